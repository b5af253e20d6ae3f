//! Text to ids, with or without control tokens in it.

use super::Tokenizer;
use protocol::{Code, Outcome, Problem};
use tokenizers::{
    Encoding, Model, NormalizedString, Normalizer, NormalizerWrapper, OffsetType, PreTokenizedString, PreTokenizer,
};

/// What becomes of the texts of control tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Control<'a> {
    /// They become control tokens, as in `transformers`.
    Recognised,
    /// They stay plain text.
    Plain,
    /// They become control tokens, except across these byte positions (ascending, on character boundaries).
    PlainAt(&'a [usize]),
}

/// Ids of a text and where each comes from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Encoded {
    /// Ids.
    pub ids: Vec<u32>,
    /// Begin and end of each id's text in bytes; tokens added by the tokenizer itself have an empty range.
    pub offsets: Vec<(usize, usize)>,
}

/// Characters that mean nothing in any text (Unicode noncharacters); one of them marks a place while encoding.
const MARKS: std::ops::RangeInclusive<char> = '\u{FDD0}'..='\u{FDEF}';

impl Tokenizer {
    /// Ids and offsets of a text. `added` lets the tokenizer add what it adds by itself (BOS).
    pub fn encode_with(&self, text: &str, control: Control, added: bool) -> Outcome<Encoded> {
        match self.encode_fast(text, control, added)? {
            Some(encoded) => Ok(encoded),
            None => self.encode_slowly(text, control, added),
        }
    }

    /// By the short way; `None` for a tokenizer or a text that has none.
    pub(super) fn encode_fast(&self, text: &str, control: Control, added: bool) -> Outcome<Option<Encoded>> {
        let Some(fast) = &self.fast else { return Ok(None) };
        let model = self.inner.get_model();
        let encoded = self.guarded("encoding", || Ok(fast.encode(model, text, control, added)))?;
        if let (Some(encoded), Control::PlainAt(places)) = (&encoded, control) {
            self.check_plain(&encoded.ids, &encoded.offsets, places)?;
        }
        Ok(encoded)
    }

    /// Through the library, for every kind of tokenizer.
    pub(super) fn encode_slowly(&self, text: &str, control: Control, added: bool) -> Outcome<Encoded> {
        let encoding = match control {
            Control::Recognised | Control::PlainAt([]) => self.guarded("encoding", || self.inner.encode(text, added)),
            Control::Plain => self.guarded("encoding", || {
                let pieces = self.plain.extract_and_normalize(self.inner.get_normalizer(), text);
                self.tokenise(pieces, added)
            }),
            Control::PlainAt(places) => return self.encode_around(text, places, added),
        }?;
        Ok(Encoded { ids: encoding.get_ids().to_vec(), offsets: encoding.get_offsets().to_vec() })
    }

    /// Puts a mark at each place, so that no control token matches across it, and takes it out before normalisation.
    fn encode_around(&self, text: &str, places: &[usize], added: bool) -> Outcome<Encoded> {
        let Some(mark) = free_mark(&[text]) else {
            return Err(Problem::new(Code::RowInvalid, "the text uses every Unicode noncharacter"));
        };
        let marked = insert(text, places, mark);
        let encoding = self.guarded("encoding", || {
            let normalizer = Unmark { mark, then: self.inner.get_normalizer() };
            let pieces = self.inner.get_added_vocabulary().extract_and_normalize(Some(&normalizer), &marked);
            self.tokenise(pieces, added)
        })?;
        let width = mark.len_utf8();
        let marked_places: Vec<usize> = places.iter().enumerate().map(|(k, place)| place + k * width).collect();
        let back = |at: usize| at.saturating_sub(marked_places.partition_point(|place| *place < at) * width);
        let offsets: Vec<(usize, usize)> = encoding.get_offsets().iter().map(|(a, b)| (back(*a), back(*b))).collect();
        let ids = encoding.get_ids().to_vec();
        self.check_plain(&ids, &offsets, places)?;
        Ok(Encoded { ids, offsets })
    }

    /// Tokenizers may look for some control tokens in normalised text, where no mark is left.
    fn check_plain(&self, ids: &[u32], offsets: &[(usize, usize)], places: &[usize]) -> Outcome<()> {
        let broken =
            ids.iter().zip(offsets).any(|(id, (a, b))| self.special.normalized.contains(id) && is_cut(places, *a, *b));
        if broken {
            let what = "the text holds a control token that this tokenizer cannot keep as plain text";
            return Err(Problem::new(Code::RowInvalid, what));
        }
        Ok(())
    }

    fn tokenise(&self, mut pieces: PreTokenizedString, added: bool) -> tokenizers::Result<Encoding> {
        if let Some(pre_tokenizer) = self.inner.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces)?;
        }
        self.inner.get_model().tokenize_in_pretokenized(&mut pieces, None)?;
        let encoding = pieces.into_encoding(None, 0, OffsetType::Byte)?;
        self.inner.post_process(encoding, None, added)
    }
}

/// A mark that occurs in none of the texts.
pub(crate) fn free_mark(texts: &[&str]) -> Option<char> {
    MARKS.into_iter().find(|mark| !texts.iter().any(|t| t.contains(*mark)))
}

/// True when one of the places (ascending) lies inside `begin..end`.
pub(crate) fn is_cut(places: &[usize], begin: usize, end: usize) -> bool {
    places.get(places.partition_point(|p| *p <= begin)).is_some_and(|p| *p < end)
}

fn insert(text: &str, places: &[usize], mark: char) -> String {
    let mut marked = String::with_capacity(text.len() + places.len() * mark.len_utf8());
    let mut from = 0;
    for place in places {
        marked.push_str(&text[from..*place]);
        marked.push(mark);
        from = *place;
    }
    marked.push_str(&text[from..]);
    marked
}

/// Takes the mark out, then normalises as the tokenizer does.
struct Unmark<'a> {
    mark: char,
    then: Option<&'a NormalizerWrapper>,
}

impl Normalizer for Unmark<'_> {
    fn normalize(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        text.filter(|c| c != self.mark);
        self.then.map_or(Ok(()), |n| n.normalize(text))
    }
}
