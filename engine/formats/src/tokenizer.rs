//! Tokenizers from `tokenizer.json`, and training a small one.

use protocol::Outcome;
use std::path::Path;

/// A loaded tokenizer.
pub struct Tokenizer;

/// Decodes ids one at a time: text comes out as soon as its bytes are whole characters.
pub struct Decoder<'a> {
    tokenizer: &'a Tokenizer,
}

impl Tokenizer {
    /// Loads the tokenizer of a folder, or a `tokenizer.json` itself.
    pub fn open(path: &Path) -> Outcome<Tokenizer> {
        todo!("{path:?}")
    }

    /// Entries: every id lies below.
    pub fn vocab(&self) -> u32 {
        todo!()
    }

    /// Id that ends a text or an answer.
    pub fn eos(&self) -> Option<u32> {
        todo!()
    }

    /// Id that begins a text.
    pub fn bos(&self) -> Option<u32> {
        todo!()
    }

    /// Padding id.
    pub fn pad(&self) -> Option<u32> {
        todo!()
    }

    /// Ids of a text with what the tokenizer adds by itself (BOS where it does). Control tokens in the text stay plain
    /// text unless `special_tokens_in_text`.
    pub fn encode(&self, text: &str, special_tokens_in_text: bool) -> Outcome<Vec<u32>> {
        todo!("{text} {special_tokens_in_text}")
    }

    /// Text of ids.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Outcome<String> {
        todo!("{ids:?} {skip_special}")
    }

    /// Starts decoding one id at a time; special tokens give no text.
    pub fn decoder(&self) -> Decoder<'_> {
        Decoder { tokenizer: self }
    }
}

impl Decoder<'_> {
    /// The text that this id completes; may be empty.
    pub fn push(&mut self, id: u32) -> Outcome<String> {
        let _ = self.tokenizer;
        todo!("{id}")
    }

    /// What is left: incomplete bytes become U+FFFD.
    pub fn finish(self) -> Outcome<String> {
        todo!()
    }
}

/// Trains a byte-level BPE of `entries` on `texts` (deterministic) and writes `tokenizer.json` and
/// `tokenizer_config.json` into `folder`. Its one special token is `<|endoftext|>`.
pub fn train_bpe(texts: &mut dyn Iterator<Item = String>, entries: u32, folder: &Path) -> Outcome<()> {
    let _ = texts;
    todo!("{entries} {folder:?}")
}
