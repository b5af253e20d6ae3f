//! The token cache: what `anneal-trainer read` wrote once and the trainer maps. One folder `HOME/tokens/FINGERPRINT/`:
//!
//! ```text
//! header.json     version, facts, length and hash of every file below
//! tokenizer/      the tokenizer's files, to be copied beside checkpoints
//! train/          ids.bin       u32 token ids, row after row
//!                 trained.bin   u8 a token: 1 where the loss counts predicting it
//!                 segments.bin  u32 a sample: its length; the samples of a row follow each other
//!                 rows.bin      two u64 a row: where its tokens and where its segments end
//! evaluation/     the same
//! ```
//!
//! All numbers are little-endian. Not here: how samples are made (`sample`), the order of rows (`trainer`).

mod cache;
mod pack;
mod writer;

pub use cache::{Cache, Row, TokenSet};
pub use writer::{CacheHead, CacheWriter};

use protocol::facts::TokenFacts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the layout; another one is written anew.
const VERSION: u32 = 1;
/// Longest `header.json`: facts, eight files and notes fit many times over.
const HEADER_BYTES: u64 = 1 << 20;
/// Notes kept; more would be noise.
const NOTES: usize = 100;
/// The four files of a set.
const FILES: [&str; 4] = ["ids.bin", "trained.bin", "segments.bin", "rows.bin"];

/// Training or evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// Rows to train on.
    Train,
    /// Rows to evaluate on.
    Evaluation,
}

impl Set {
    const ALL: [Set; 2] = [Set::Train, Set::Evaluation];

    fn folder(self) -> &'static str {
        match self {
            Set::Train => "train",
            Set::Evaluation => "evaluation",
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    version: u32,
    facts: TokenFacts,
    /// By path below the cache folder.
    files: BTreeMap<String, FileFacts>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileFacts {
    bytes: u64,
    xxh3: String,
}

#[cfg(test)]
mod tests;
