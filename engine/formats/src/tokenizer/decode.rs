//! Decoding one id at a time.

use super::Tokenizer;
use protocol::Outcome;

/// Ids held back while their bytes are no whole character: four would do for any character, the rest is for tokenizers
/// whose pieces change their neighbours.
const HELD: usize = 16;

/// Decodes ids one at a time: text comes out as soon as its bytes are whole characters. All pieces together are the text
/// of all ids together.
pub struct Decoder<'a> {
    tokenizer: &'a Tokenizer,
    ids: Vec<u32>,
    /// Ids of `ids` whose text is out already; they stay so that their neighbours decode as in the middle of a text.
    out: usize,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Decoder<'a> {
        Decoder { tokenizer, ids: Vec::new(), out: 0 }
    }

    /// The text that this id completes; may be empty.
    pub fn push(&mut self, id: u32) -> Outcome<String> {
        self.ids.push(id);
        let text = self.tokenizer.decode(&self.ids, true)?;
        if text.ends_with('\u{FFFD}') && self.ids.len() - self.out < HELD {
            return Ok(String::new());
        }
        self.release(text)
    }

    /// What is left: incomplete bytes become U+FFFD.
    pub fn finish(mut self) -> Outcome<String> {
        let text = self.tokenizer.decode(&self.ids, true)?;
        self.release(text)
    }

    /// The part of `text` that is new; the ids before it are needed no more.
    fn release(&mut self, text: String) -> Outcome<String> {
        let before = self.tokenizer.decode(&self.ids[..self.out], true)?;
        let new = text.get(before.len()..).unwrap_or_default().to_owned();
        if !new.is_empty() || self.ids.len() - self.out >= HELD {
            self.ids.drain(..self.out);
            self.out = self.ids.len();
        }
        Ok(new)
    }
}
