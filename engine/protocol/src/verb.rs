//! What the engine asks of `anneal-trainer`: one JSON request on standard input, JSON lines on standard output, the last
//! one a result or a problem. Exit status 0 after a result, 3 after a problem.

use crate::facts::ModelConfig;
use crate::job::{DataSpec, JobSpec, Precision};
use crate::problem::Problem;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A line that a verb prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum Line {
    /// How far it is.
    Progress {
        /// What is being done.
        phase: String,
        /// Units done.
        done: u64,
        /// Units in all; 0 = unknown.
        total: u64,
        /// Unit: "bytes", "rows", "tokens".
        unit: String,
    },
    /// A piece of generated text.
    Text {
        /// The piece.
        text: String,
    },
    /// The result; its type belongs to the request.
    Result {
        /// The value.
        value: serde_json::Value,
    },
    /// Why there is none.
    Problem {
        /// The problem.
        problem: Problem,
    },
}

/// `anneal-trainer read`: everything that opens a tokenizer or a template, in a sandboxed child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(tag = "read", rename_all = "snake_case", deny_unknown_fields)]
pub enum Read {
    /// Writes (or finds) the token cache of a job below `home`/tokens. Result: `facts::TokenFacts`.
    Tokenise {
        /// The job.
        spec: Box<JobSpec>,
        /// HOME.
        home: PathBuf,
        /// Rows are at most this long.
        max_length: u32,
        /// Ids must lie below this; 0 = the tokenizer's own size (fresh model).
        vocab: u32,
        /// Append the end token to each text of a pre-training set, as training does; an evaluation takes texts as they
        /// are.
        end_of_text: bool,
    },
    /// Facts of a data set. Result: `facts::DatasetFacts`.
    Inspect {
        /// Its file or folder, and how to read it: `train` is not looked at.
        path: PathBuf,
        /// How to read it: columns, roles, rows and encoding count.
        data: Box<DataSpec>,
        /// Stop after about so many bytes; 0 = look at every row.
        most_bytes: u64,
    },
    /// One record as the trainer will see it. Result: `facts::Preview`.
    Preview {
        /// The job (its model path or tokenizer, its first training file).
        spec: Box<JobSpec>,
        /// Record, from 1.
        row: u64,
        /// Limit that `truncated` speaks of.
        max_length: u32,
    },
}

/// A chat message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Message {
    /// "system", "user", "assistant".
    pub role: String,
    /// Text.
    pub content: String,
}

/// What generation starts from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum Prompt {
    /// Raw text, no template.
    Text(String),
    /// Through the chat template.
    Messages(Vec<Message>),
}

/// `anneal-trainer generate`. Lines: `Text` as tokens come; result: `Generated`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct Generate {
    /// Model folder or checkpoint.
    pub model: PathBuf,
    /// Adapter folder.
    pub adapter: Option<PathBuf>,
    /// Start.
    pub prompt: Prompt,
    /// Most new tokens.
    pub max_tokens: u32,
    /// 0 = greedy.
    pub temperature: f64,
    /// Seed of sampling.
    pub seed: u64,
}

/// Result of `generate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Generated {
    /// The completion, without the end token.
    pub text: String,
    /// Ids of the completion.
    pub ids: Vec<u32>,
    /// New tokens.
    pub tokens: u32,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Speed of reading the prompt.
    pub prompt_tokens_per_second: f64,
    /// Speed of writing.
    pub tokens_per_second: f64,
    /// Why it ended: "end" (end token), "length", "context".
    pub stop: String,
}

/// `anneal-trainer evaluate`. Result: `Evaluated`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct Evaluate {
    /// Model folder or checkpoint.
    pub model: PathBuf,
    /// Adapter folder.
    pub adapter: Option<PathBuf>,
    /// Token cache; its training set is evaluated.
    pub tokens: PathBuf,
}

/// Result of `evaluate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Evaluated {
    /// Mean loss over targets.
    pub loss: f64,
    /// exp(loss).
    pub perplexity: f64,
    /// Targets.
    pub tokens: u64,
}

/// `anneal-trainer export`. Result: `Exported`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct Export {
    /// Checkpoint, model folder or adapter.
    pub from: PathBuf,
    /// Folder to write; must not exist or be empty.
    pub to: PathBuf,
    /// "safetensors" or "gguf" (merged), or "adapter".
    pub format: String,
    /// Number format of the weights written: "f32", "bf16", "f16"; "q8_0" in GGUF.
    pub dtype: String,
    /// Base of an adapter, where `from` does not tell.
    pub base: Option<PathBuf>,
}

/// Result of `export`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Exported {
    /// Files written.
    pub files: Vec<PathBuf>,
    /// Largest difference of logits before and after, over a fixed batch.
    pub max_logit_difference: f64,
}

/// `anneal-trainer probe`. Result: `machine::Probe`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct ProbeCards {
    /// Also measure the cards' speeds, which wakes them up.
    pub measure: bool,
}

/// `anneal-trainer bench`. Result: an object with at least name, value, unit, limit, ratio.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(tag = "bench", rename_all = "snake_case", deny_unknown_fields)]
pub enum Bench {
    /// Training step of a known shape on random weights and tokens.
    Train {
        /// Shape.
        config: ModelConfig,
        /// Name of the shape.
        shape: String,
        /// "full" or "lora".
        method: String,
        /// Rows.
        batch: u32,
        /// Tokens a row.
        length: u32,
        /// Timed steps after one warm-up.
        steps: u32,
        /// "cpu", or a card as "cuda:0".
        device: String,
        /// What products are computed in.
        precision: Precision,
    },
    /// Matrix products over the shapes of a training step.
    Gemm,
    /// AdamW over this many parameters.
    Optimizer {
        /// Parameters.
        parameters: u64,
    },
    /// Speeds the time model needs: (gemm GFLOP/s, memory GB/s), in under two seconds.
    Machine,
}
