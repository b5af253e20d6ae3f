//! Vocabularies with scores, as SentencePiece makes them: pairs merge by the score of what they become, spaces are written
//! as U+2581, and characters without a token become bytes.
//!
//! Not here: byte-level vocabularies (`pre`).

use super::{NORMAL, bad};
use crate::gguf::Strings;
use protocol::{Code, Outcome, Problem, limits};
use serde_json::{Value as Json, json};
use std::collections::HashMap;

/// What a space is written as.
pub(super) const SPACE: &str = "\u{2581}";

/// The parts of a `tokenizer.json` besides its model; `prefix` puts a space before a text.
pub(super) fn shape(prefix: bool) -> Json {
    let mut normalizers = vec![json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE})];
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": SPACE}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if prefix {
        normalizers.insert(0, json!({"type": "Prepend", "prepend": SPACE}));
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    json!({
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": null,
        "decoder": {"type": "Sequence", "decoders": decoders},
    })
}

/// All pairs of tokens that together are a token, the best score first; among equal scores the longer left part first,
/// then the longer right part, in characters.
pub(super) fn merges<'a>(tokens: &'a Strings, types: &[i32], scores: &[f32]) -> Outcome<Vec<(&'a str, &'a str)>> {
    let steps: u64 = tokens.iter().map(|text| (text.len() as u64).pow(2)).fold(0, u64::saturating_add);
    if steps > limits::GGUF_MERGE_STEPS {
        let what = "the tokens of the vocabulary are too long to find their merges";
        return Err(Problem::new(Code::TooLarge, what).field(super::TOKENS));
    }
    if let Some(id) = scores.iter().position(|score| score.is_nan()) {
        return Err(bad(super::SCORES, format!("the score of token {id} is not a number")));
    }
    let ids: HashMap<&str, usize> = tokens.iter().enumerate().map(|(id, text)| (text, id)).collect();
    let mut all = Vec::new();
    for (id, text) in tokens.iter().enumerate().filter(|(id, _)| types[*id] == NORMAL) {
        let start = all.len();
        for (at, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(at);
            if let (Some(l), Some(r)) = (ids.get(left), ids.get(right)) {
                all.push((scores[id], (left, right), (*l, *r)));
            }
        }
        all[start..].sort_by_key(|(_, _, ids)| *ids);
    }
    let lengths = |(left, right): (&str, &str)| (left.chars().count(), right.chars().count());
    all.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| lengths(b.1).cmp(&lengths(a.1))));
    Ok(all.into_iter().map(|(_, pair, _)| pair).collect())
}

/// The scores under which merges come out in the order given: the rank of the first merge that makes a token, negated.
pub(super) fn scores(tokens: &Strings, merges: &[(String, String)]) -> Vec<f32> {
    let mut first: HashMap<String, usize> = HashMap::new();
    for (rank, (left, right)) in merges.iter().enumerate() {
        first.entry(format!("{left}{right}")).or_insert(rank);
    }
    let rank = |text: &str| first.get(text).copied().unwrap_or(merges.len());
    tokens.iter().map(|text| -(rank(text) as f32)).collect()
}
