//! The token cache: what `anneal-trainer read` wrote once and the trainer maps. One folder `HOME/tokens/FINGERPRINT/`.

use crate::sample::Sample;
use protocol::facts::TokenFacts;
use protocol::{Code, Outcome};
use std::path::{Path, PathBuf};

/// What is known of a cache before its first sample.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheHead {
    /// Hash over data, tokenizer, template and every setting that shapes tokens; also the folder's name.
    pub fingerprint: String,
    /// Hash of the data files.
    pub data_fingerprint: String,
    /// Hash of tokenizer and template.
    pub tokenizer_fingerprint: String,
    /// Entries of the tokenizer: every id lies below.
    pub vocab: u32,
    /// Id that ends a text or an answer.
    pub eos: u32,
    /// Longest row in tokens.
    pub max_length: u32,
    /// Several samples in one row.
    pub packing: bool,
}

/// Training or evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// Rows to train on.
    Train,
    /// Rows to evaluate on.
    Evaluation,
}

/// Writes a cache: samples stream to disk, the folder appears under its name when it is complete.
pub struct CacheWriter;

impl CacheWriter {
    /// Starts a cache below `parent` in a temporary folder.
    pub fn create(parent: &Path, head: CacheHead) -> Outcome<CacheWriter> {
        todo!("{parent:?} {head:?}")
    }

    /// Folder inside the cache that keeps the tokenizer files; copy or train them into it before `finish`.
    pub fn tokenizer_folder(&self) -> PathBuf {
        todo!()
    }

    /// Adds a sample (at most `max_length` tokens, all ids below `vocab`).
    pub fn push(&mut self, set: Set, sample: &Sample) -> Outcome<()> {
        todo!("{set:?} {}", sample.ids.len())
    }

    /// Counts a record that was left out.
    pub fn count_dropped(&mut self, set: Set, code: Code) {
        todo!("{set:?} {code:?}")
    }

    /// Adds a note for people.
    pub fn note(&mut self, text: impl Into<String>) {
        let _: String = text.into();
        todo!()
    }

    /// Packs the rows, makes everything durable and gives the folder its name. Where another writer of the same
    /// fingerprint was faster, its folder is kept.
    pub fn finish(self) -> Outcome<TokenFacts> {
        todo!()
    }
}

/// An open cache, checked in full and mapped.
pub struct Cache;

/// The rows of one set.
pub struct TokenSet;

/// One row: whole samples one after the other, isolated from each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row<'a> {
    /// Token ids.
    pub tokens: &'a [u32],
    /// 1 where the loss counts predicting this token, else 0; as long as `tokens`. The first token of a sample is never
    /// a target.
    pub trained: &'a [u8],
    /// Lengths of the row's samples; their sum is `tokens.len()`.
    pub segments: &'a [u32],
}

impl Cache {
    /// Where the cache of a fingerprint lies below `parent`.
    pub fn folder(parent: &Path, fingerprint: &str) -> PathBuf {
        parent.join(fingerprint)
    }

    /// Opens and checks a cache; `FileMalformed` names what does not fit.
    pub fn open(folder: &Path) -> Outcome<Cache> {
        todo!("{folder:?}")
    }

    /// Its facts.
    pub fn facts(&self) -> &TokenFacts {
        todo!()
    }

    /// Rows to train on.
    pub fn train(&self) -> &TokenSet {
        todo!()
    }

    /// Rows to evaluate on; none when off.
    pub fn evaluation(&self) -> &TokenSet {
        todo!()
    }
}

impl TokenSet {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        todo!()
    }

    /// Row `i` of `0..rows()`.
    pub fn row(&self, i: usize) -> Row<'_> {
        todo!("{i}")
    }
}
