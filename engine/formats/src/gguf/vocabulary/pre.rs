//! How byte-level tokenizers cut a text into words before pairs are merged: what a GGUF file says with one name.
//!
//! Not here: merging.

use serde_json::{Value as Json, json};

/// Ways of cutting. Names that mean the same share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pre {
    /// Words, numbers and signs, each with a space before it.
    Gpt2,
    /// The same with every digit apart.
    Digits,
    /// Words of any letters, numbers of up to three digits.
    Llama3,
    /// Words of any letters, every digit apart, composed characters.
    Qwen2,
    /// Words by upper and lower case, every digit apart.
    Tekken,
    /// Signs apart, then as GPT-2, then digits by threes.
    Default,
}

/// Names in files, the one that is written first for each way.
const NAMES: [(&str, Pre); 23] = [
    ("gpt-2", Pre::Gpt2),
    ("gpt2", Pre::Gpt2),
    ("phi-2", Pre::Gpt2),
    ("mpt", Pre::Gpt2),
    ("olmo", Pre::Gpt2),
    ("jais", Pre::Gpt2),
    ("smollm", Pre::Digits),
    ("starcoder", Pre::Digits),
    ("refact", Pre::Digits),
    ("command-r", Pre::Digits),
    ("codeshell", Pre::Digits),
    ("exaone", Pre::Digits),
    ("minerva-7b", Pre::Digits),
    ("llama-bpe", Pre::Llama3),
    ("llama3", Pre::Llama3),
    ("llama-v3", Pre::Llama3),
    ("falcon3", Pre::Llama3),
    ("falcon-h1", Pre::Llama3),
    ("pixtral", Pre::Llama3),
    ("qwen2", Pre::Qwen2),
    ("deepseek-r1-qwen", Pre::Qwen2),
    ("tekken", Pre::Tekken),
    ("default", Pre::Default),
];

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEFAULT: [&str; 4] = [
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
];

impl Pre {
    /// All ways.
    pub const ALL: [Pre; 6] = [Pre::Gpt2, Pre::Digits, Pre::Llama3, Pre::Qwen2, Pre::Tekken, Pre::Default];

    /// The way of a name in a file.
    pub fn of(name: &str) -> Option<Pre> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, pre)| *pre)
    }

    /// The name that is written.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, pre)| *pre == self).map_or("default", |(name, _)| name)
    }

    /// A word that is a token stays whole, whatever the merges say.
    pub fn takes_whole_words(self) -> bool {
        matches!(self, Pre::Llama3 | Pre::Tekken)
    }

    /// Texts get a token at their beginning where the file does not say.
    pub fn begins_texts(self) -> bool {
        matches!(self, Pre::Llama3 | Pre::Tekken)
    }

    /// The parts of a `tokenizer.json` besides its model.
    pub fn shape(self) -> Json {
        let normalizer = if self == Pre::Qwen2 { json!({"type": "NFC"}) } else { Json::Null };
        json!({"normalizer": normalizer, "pre_tokenizer": self.pre_tokenizer(), "decoder": bytes(true)})
    }

    fn pre_tokenizer(self) -> Json {
        let steps = match self {
            Pre::Gpt2 => return bytes(true),
            Pre::Digits => vec![json!({"type": "Digits", "individual_digits": true}), bytes(true)],
            Pre::Llama3 => vec![split(LLAMA3), bytes(false)],
            Pre::Qwen2 => vec![split(QWEN2), bytes(false)],
            Pre::Tekken => vec![split(TEKKEN), bytes(false)],
            Pre::Default => DEFAULT.iter().map(|regex| split(regex)).chain([bytes(false)]).collect(),
        };
        json!({"type": "Sequence", "pretokenizers": steps})
    }
}

fn split(regex: &str) -> Json {
    json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false})
}

fn bytes(cuts: bool) -> Json {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": cuts})
}
