//! Ids of words that were seen before.
//!
//! Not here: how a text is cut into words (`split`), where unknown words get their ids from (the library's model).

use hashbrown::HashMap;
use std::ops::Range;
use tokenizers::Token;

/// Words kept: those of a large corpus that come more than a few times; a table of them takes some 20 MiB at most.
const WORDS: usize = 1 << 17;
/// Longest word kept, in bytes; longer ones are rarely met twice. The places in a word fit into a byte.
const WORD_BYTES: usize = 64;

/// Ids of words by their text.
#[derive(Default)]
pub(super) struct Words {
    /// Where a word's tokens lie in `tokens`.
    places: HashMap<Box<str>, (u32, u32)>,
    /// Id, first byte and byte past the last in the word.
    tokens: Vec<(u32, u8, u8)>,
}

impl Words {
    /// Gives `each` the tokens of a word with their bytes in it; unknown words are tokenised by `model`, which gets them in
    /// the byte alphabet. False where it fails.
    pub fn each(
        &mut self,
        word: &str,
        model: impl FnOnce(&str) -> Option<Vec<Token>>,
        each: &mut impl FnMut(u32, Range<usize>),
    ) -> bool {
        if let Some((from, past)) = self.places.get(word) {
            for (id, start, end) in &self.tokens[*from as usize..*past as usize] {
                each(*id, usize::from(*start)..usize::from(*end));
            }
            return true;
        }
        let mapped = bytes_of(word);
        let Some(tokens) = model(&mapped) else { return false };
        let found: Vec<(u32, Range<usize>)> = tokens.iter().map(|token| (token.id, in_word(&mapped, token))).collect();
        self.keep(word, &found);
        found.into_iter().for_each(|(id, range)| each(id, range));
        true
    }

    fn keep(&mut self, word: &str, tokens: &[(u32, Range<usize>)]) {
        if word.len() > WORD_BYTES {
            return;
        }
        if self.places.len() == WORDS {
            self.places.clear();
            self.tokens.clear();
        }
        let from = self.tokens.len() as u32;
        self.tokens.extend(tokens.iter().map(|(id, range)| (*id, range.start as u8, range.end as u8)));
        self.places.insert(word.into(), (from, self.tokens.len() as u32));
    }
}

/// A word in the alphabet of byte-level models: a character for each byte (Radford et al. 2019).
pub(super) fn bytes_of(word: &str) -> String {
    word.bytes().map(character).collect()
}

/// Printable bytes stand for themselves, the others for the characters from U+0100 on, in their order.
fn character(byte: u8) -> char {
    let shown = |b: u8| matches!(b, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    if shown(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|b| !shown(*b)).count() as u32;
    char::from_u32(0x100 + before).unwrap_or('\u{FFFD}')
}

/// A token's bytes in the word: each character of the alphabet is one.
fn in_word(mapped: &str, token: &Token) -> Range<usize> {
    let count = |to: usize| mapped.get(..to).map_or(0, |part| part.chars().count());
    count(token.offsets.0)..count(token.offsets.1)
}
