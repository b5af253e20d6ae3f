//! The short way from text to ids for byte-level BPE, which is what nearly every model of today uses.
//!
//! The library keeps an alignment for every byte and a string for every token; training needs neither. Here a text is cut
//! into words by the tokenizer's own pattern, the ids of a word come from the library's model once and from a table
//! afterwards. Result and offsets are those of the long way (`encode`), which stays for every other kind of tokenizer and
//! for every text that normalisation would change.
//!
//! Not here: how words are cut (`split`), the table (`words`).

use super::encode::{Control, Encoded};
use super::split::Splitter;
use super::words::Words;
use aho_corasick::{AhoCorasick, MatchKind};
use std::ops::Range;
use std::sync::Mutex;
use tokenizers::{
    Model, ModelWrapper, NormalizedString, Normalizer, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper,
};

/// Tables kept for the next caller: one for each thread that may encode at once.
const TABLES: usize = 64;

/// What the short way needs to know of a tokenizer.
pub(super) struct Fast {
    splitter: Splitter,
    /// Added tokens that are looked for in the text as it is, and in what lies between those.
    added: [Added; 2],
    /// Text that is not ASCII must be left as it is by this.
    normalizer: Option<NormalizerWrapper>,
    /// White space does not count to a token; true where the first space of a text does all the same.
    trim: Option<bool>,
    /// Ids that the tokenizer puts before and behind a text by itself.
    around: [Vec<u32>; 2],
    tables: Mutex<Vec<Words>>,
}

impl Fast {
    /// The short way of a tokenizer; `None` where only the long one is right.
    pub fn of(inner: &tokenizers::Tokenizer) -> Option<Fast> {
        let ModelWrapper::BPE(model) = inner.get_model() else { return None };
        let plain = model.dropout.is_none_or(|p| p == 0.0)
            && model.continuing_subword_prefix.as_deref().is_none_or(str::is_empty)
            && model.end_of_word_suffix.as_deref().is_none_or(str::is_empty)
            && !model.byte_fallback;
        let normalizer = match inner.get_normalizer() {
            None => None,
            Some(nfc @ NormalizerWrapper::NFC(_)) => Some(nfc.clone()),
            Some(_) => return None,
        };
        if !plain {
            return None;
        }
        Some(Fast {
            splitter: Splitter::of(inner.get_pre_tokenizer()?)?,
            added: added(inner)?,
            normalizer,
            trim: trim(inner.get_post_processor())?,
            around: around(inner)?,
            tables: Mutex::new(Vec::new()),
        })
    }

    /// Ids and offsets as the long way gives them; `None` for a text that takes the long way.
    pub fn encode(&self, model: &ModelWrapper, text: &str, control: Control, added: bool) -> Option<Encoded> {
        let mut words = self.tables.lock().ok()?.pop().unwrap_or_default();
        let encoded = self.encode_with(&mut words, model, text, control, added);
        let mut tables = self.tables.lock().ok()?;
        if tables.len() < TABLES {
            tables.push(words);
        }
        encoded
    }

    fn encode_with(
        &self,
        words: &mut Words,
        model: &ModelWrapper,
        text: &str,
        control: Control,
        added: bool,
    ) -> Option<Encoded> {
        let mut out = Out { encoded: Encoded::default(), text, trim: self.trim };
        if added {
            out.unplaced(&self.around[0]);
        }
        let mut rest = 0;
        for (id, token) in self.added[0].find(text, control) {
            self.between(words, model, rest..token.start, control, &mut out)?;
            out.push(id, token.clone());
            rest = token.end;
        }
        self.between(words, model, rest..text.len(), control, &mut out)?;
        if added {
            out.unplaced(&self.around[1]);
        }
        Some(out.encoded)
    }

    /// What lies between added tokens: normalised text, in which others are looked for.
    fn between(
        &self,
        words: &mut Words,
        model: &ModelWrapper,
        range: Range<usize>,
        control: Control,
        out: &mut Out,
    ) -> Option<()> {
        let text = &out.text[range.clone()];
        if text.is_empty() {
            return Some(());
        }
        if let Some(normalizer) = self.normalizer.as_ref().filter(|_| !text.is_ascii()) {
            let mut normalized = NormalizedString::from(text);
            normalizer.normalize(&mut normalized).ok()?;
            if normalized.get() != text {
                return None;
            }
        }
        // Places are not seen in normalised text: no mark is left there.
        let control = if control == Control::Plain { control } else { Control::Recognised };
        let mut rest = 0;
        for (id, token) in self.added[1].find(text, control) {
            self.plain(words, model, range.start + rest..range.start + token.start, out)?;
            out.push(id, range.start + token.start..range.start + token.end);
            rest = token.end;
        }
        self.plain(words, model, range.start + rest..range.end, out)
    }

    fn plain(&self, words: &mut Words, model: &ModelWrapper, range: Range<usize>, out: &mut Out) -> Option<()> {
        let text = &out.text[range.clone()];
        let mut known = true;
        let whole = self.splitter.split(text, &mut |word: Range<usize>| {
            let start = range.start + word.start;
            let each = &mut |id: u32, token: Range<usize>| out.push(id, start + token.start..start + token.end);
            known = known && words.each(&text[word], |mapped| model.tokenize(mapped).ok(), each);
        });
        (known && whole).then_some(())
    }
}

/// Ids and offsets so far.
struct Out<'a> {
    encoded: Encoded,
    text: &'a str,
    trim: Option<bool>,
}

impl Out<'_> {
    /// A token of these bytes. Part of a character counts as the whole of it.
    fn push(&mut self, id: u32, range: Range<usize>) {
        let (mut start, mut end) = (range.start, range.end);
        while !self.text.is_char_boundary(start) {
            start -= 1;
        }
        while !self.text.is_char_boundary(end) {
            end += 1;
        }
        if let Some(first_counts) = self.trim {
            (start, end) = self.trimmed(start, end, first_counts);
        }
        self.encoded.ids.push(id);
        self.encoded.offsets.push((start, end));
    }

    fn trimmed(&self, start: usize, end: usize, first_counts: bool) -> (usize, usize) {
        let bytes = &self.text.as_bytes()[start..end];
        let mut leading = bytes.iter().take_while(|b| **b == b' ').count();
        let trailing = bytes.iter().rev().take_while(|b| **b == b' ').count();
        let is_first = self.encoded.ids.is_empty() || start == 0;
        if is_first && first_counts && leading == 1 {
            leading = 0;
        }
        let start = (start + leading).min(end);
        (start, if end >= trailing { (end - trailing).max(start) } else { end })
    }

    /// Tokens that stand for nothing in the text.
    fn unplaced(&mut self, ids: &[u32]) {
        for id in ids {
            self.encoded.ids.push(*id);
            self.encoded.offsets.push((0, 0));
        }
    }
}

/// Added tokens of one kind.
struct Added {
    automaton: Option<AhoCorasick>,
    ids: Vec<u32>,
    /// Those that `Control::Plain` passes over.
    special: Vec<bool>,
}

impl Added {
    fn new(tokens: &[(&str, u32, bool)]) -> Option<Added> {
        let automaton = if tokens.is_empty() {
            None
        } else {
            let texts = tokens.iter().map(|(text, ..)| text);
            Some(AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(texts).ok()?)
        };
        let ids = tokens.iter().map(|(_, id, _)| *id).collect();
        Some(Added { automaton, ids, special: tokens.iter().map(|(.., special)| *special).collect() })
    }

    /// The tokens in a text in their order; none lies across a place that must stay plain.
    fn find(&self, text: &str, control: Control) -> Vec<(u32, Range<usize>)> {
        let Some(automaton) = &self.automaton else { return Vec::new() };
        let places = match control {
            Control::PlainAt(places) => places,
            _ => &[],
        };
        let mut found = Vec::new();
        let mut start = 0;
        for end in places.iter().copied().chain([text.len()]) {
            let matches = automaton.find_iter(&text[start..end]);
            let kept = matches.filter(|m| !(control == Control::Plain && self.special[m.pattern().as_usize()]));
            found.extend(kept.map(|m| (self.ids[m.pattern().as_usize()], start + m.start()..start + m.end())));
            start = end;
        }
        found
    }
}

/// Added tokens that are matched as they are written, before and after normalisation. `None` where some also take the
/// space around them in, or begin or end with one.
fn added(inner: &tokenizers::Tokenizer) -> Option<[Added; 2]> {
    let tokens = inner.get_added_tokens_decoder();
    let mut kinds: [Vec<(&str, u32, bool)>; 2] = Default::default();
    for (id, token) in &tokens {
        let spaced = token.content.trim() != token.content || token.content.contains('Ġ');
        if token.lstrip || token.rstrip || token.single_word || spaced || token.content.is_empty() {
            return None;
        }
        // What normalisation would change in a token could match where the text as written does not.
        if token.normalized && inner.get_normalizer().is_some() && !token.content.is_ascii() {
            return None;
        }
        kinds[usize::from(token.normalized)].push((&token.content, *id, token.special));
    }
    kinds.iter_mut().for_each(|kind| kind.sort_unstable());
    let [a, b] = &kinds;
    Some([Added::new(a)?, Added::new(b)?])
}

/// Whether offsets are trimmed: `None` for a post-processor that does something else besides adding tokens.
fn trim(post: Option<&PostProcessorWrapper>) -> Option<Option<bool>> {
    match post {
        None | Some(PostProcessorWrapper::Template(_)) => Some(None),
        Some(PostProcessorWrapper::ByteLevel(bytes)) => Some(bytes.trim_offsets.then_some(bytes.add_prefix_space)),
        Some(PostProcessorWrapper::Sequence(all)) => {
            let each: Option<Vec<_>> = all.as_ref().iter().map(|one| trim(Some(one))).collect();
            each.map(|found| found.into_iter().flatten().next())
        }
        Some(_) => None,
    }
}

/// What is put around a text, seen in a text of one letter.
fn around(inner: &tokenizers::Tokenizer) -> Option<[Vec<u32>; 2]> {
    let ids = |added| inner.encode("a", added).ok().map(|encoding| encoding.get_ids().to_vec());
    let (bare, whole) = (ids(false)?, ids(true)?);
    if bare.is_empty() {
        return None;
    }
    let at = whole.windows(bare.len()).position(|part| part == bare)?;
    Some([whole[..at].to_vec(), whole[at + bare.len()..].to_vec()])
}

impl Splitter {
    /// The splitter of a pre-tokenizer that ends in bytes; `None` for every other.
    fn of(pre: &PreTokenizerWrapper) -> Option<Splitter> {
        let parts = match pre {
            PreTokenizerWrapper::Sequence(all) => all.as_ref(),
            one => std::slice::from_ref(one),
        };
        let (PreTokenizerWrapper::ByteLevel(bytes), first) = parts.split_last()? else { return None };
        if bytes.add_prefix_space {
            return None;
        }
        match first {
            [] => Splitter::new(false, bytes.use_regex.then_some(super::split::GPT2)),
            [PreTokenizerWrapper::Digits(digits)] if digits.individual_digits => {
                Splitter::new(true, bytes.use_regex.then_some(super::split::GPT2))
            }
            [PreTokenizerWrapper::Split(split)] if !bytes.use_regex => {
                super::split::pattern(split).and_then(|pattern| Splitter::new(false, Some(pattern)))
            }
            _ => None,
        }
    }
}
