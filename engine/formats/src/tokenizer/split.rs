//! Cutting text into words as byte-level tokenizers do, in linear time.
//!
//! The patterns in use end in `\s+(?!\S)|\s+`: a run of white space leaves its last character to the word behind it. That
//! one look ahead is done by hand, so that what is left of the pattern needs no backtracking.
//!
//! Not here: ids of words (`words`).

use regex_automata::{Input, meta::Regex, util::syntax};
use std::ops::Range;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;

/// The pattern of GPT-2 (Radford et al. 2019), which byte-level tokenizers use that name none.
pub(super) const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// What is done by hand.
const TAIL: &str = r"|\s+(?!\S)|\s+";
/// Bytes a compiled pattern may take: those in use take under one MiB, one from a file may be anything.
const PATTERN_BYTES: usize = 16 << 20;

/// Cuts text into words.
pub(super) struct Splitter {
    /// Each digit is a word, and what lies between digits is cut by itself.
    digits: bool,
    pattern: Option<Pattern>,
}

struct Pattern {
    regex: Regex,
    /// Matches of the second pattern are runs of white space that leave their last character.
    leaves: bool,
}

/// The pattern of a pre-tokenizer that makes each match and each gap a word.
pub(super) fn pattern(split: &Split) -> Option<&str> {
    match &split.pattern {
        SplitPattern::Regex(text) if split.behavior == SplitDelimiterBehavior::Isolated && !split.invert => Some(text),
        _ => None,
    }
}

impl Splitter {
    /// `None` for a pattern that needs more than a finite automaton.
    pub fn new(digits: bool, pattern: Option<&str>) -> Option<Splitter> {
        let pattern = match pattern {
            None => None,
            Some(text) => Some(Pattern::new(text)?),
        };
        Some(Splitter { digits, pattern })
    }

    /// The words of a text in their order; together they are the text. False where the pattern matches nothing somewhere:
    /// what that means is left to the long way.
    pub fn split(&self, text: &str, each: &mut impl FnMut(Range<usize>)) -> bool {
        if !self.digits {
            return self.part(text, 0, each);
        }
        let mut from = 0;
        for (at, digit) in text.char_indices().filter(|(_, c)| c.is_numeric()) {
            let past = at + digit.len_utf8();
            if !self.part(&text[from..at], from, each) || !self.part(&text[at..past], at, each) {
                return false;
            }
            from = past;
        }
        self.part(&text[from..], from, each)
    }

    fn part(&self, text: &str, start: usize, each: &mut impl FnMut(Range<usize>)) -> bool {
        match &self.pattern {
            _ if text.is_empty() => true,
            None => {
                each(start..start + text.len());
                true
            }
            Some(pattern) => pattern.split(text, &mut |word: Range<usize>| each(start + word.start..start + word.end)),
        }
    }
}

impl Pattern {
    fn new(text: &str) -> Option<Pattern> {
        let body = text.strip_suffix(TAIL);
        let patterns = match body {
            Some(body) => vec![body, r"\s+"],
            None => vec![text],
        };
        let config = Regex::config().nfa_size_limit(Some(PATTERN_BYTES)).utf8_empty(true);
        let regex = Regex::builder().configure(config).syntax(syntax::Config::new()).build_many(&patterns).ok()?;
        Some(Pattern { regex, leaves: body.is_some() })
    }

    fn split(&self, text: &str, each: &mut impl FnMut(Range<usize>)) -> bool {
        let mut at = 0;
        while at < text.len() {
            let Some(found) = self.regex.find(Input::new(text).range(at..)) else { break };
            let (start, mut end) = (found.start(), found.end());
            if self.leaves && found.pattern().as_usize() == 1 && end < text.len() {
                let last = text[start..end].chars().next_back().map_or(0, char::len_utf8);
                if start + last < end {
                    end -= last;
                }
            }
            if at < start {
                each(at..start);
            }
            if start == end {
                return false;
            }
            each(start..end);
            at = end;
        }
        if at < text.len() {
            each(at..text.len());
        }
        true
    }
}
