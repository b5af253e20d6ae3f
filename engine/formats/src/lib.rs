//! Readers and writers of everything that comes from outside: models, adapters, data sets, tokenizers and chat templates,
//! and the token cache between them and the trainer. Everything read here is hostile until parsed: bounded allocation, no
//! pickle, no code, no path outside what was given.
//!
//! Not here: journals and checkpoints (`store`), what to train and whether it fits (`plan`), any arithmetic (`kernels`).

pub mod adapter;
pub mod dataset;
mod files;
pub mod fingerprint;
mod folder;
pub mod gguf;
pub mod kind;
pub mod model_folder;
pub mod safetensors;
pub mod sample;
pub mod template;
pub mod tokenizer;
pub mod tokens;
