//! Tokenizers from `tokenizer.json`, and training a small one.
//!
//! Text of a data set never becomes a control token unless that is asked for: "<|im_end|>" typed by a user is six plain
//! tokens. What a chat template writes does become control tokens.
//!
//! Not here: chat templates (`template`), which tokens are trained (`sample`).

mod decode;
mod encode;
mod fast;
mod special;
mod split;
mod train;
mod words;

pub use decode::Decoder;
pub use encode::{Control, Encoded};
pub(crate) use encode::{free_mark, is_cut};
pub(crate) use special::names;
pub use train::train_bpe;

use crate::files::Files;
use protocol::{Code, Outcome, Problem, limits};
use special::Special;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use tokenizers::AddedVocabulary;

const FILE: &str = "tokenizer.json";

/// A loaded tokenizer.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// The same added tokens, but control tokens are not looked for in text.
    plain: AddedVocabulary,
    special: Special,
    /// The short way to ids, where there is one.
    fast: Option<fast::Fast>,
    path: PathBuf,
    vocab: u32,
}

impl Tokenizer {
    /// Loads the tokenizer of a folder or a GGUF file, or a `tokenizer.json` itself with the files beside it. Errors:
    /// `TokenizerInvalid` naming line and column, `TooLarge`, `PathOutside`, `NotSupported` for kinds that are not rebuilt.
    pub fn open(path: &Path) -> Outcome<Tokenizer> {
        let is_file = path.is_file() && !crate::gguf::is_gguf(path);
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = Files::open(if is_file { parent } else { path })?;
        let name = if is_file { path.file_name().and_then(|n| n.to_str()).unwrap_or(FILE) } else { FILE };
        let path = folder.place(name);
        if !folder.has(name) {
            let what =
                if folder.is_folder() { "the folder has no tokenizer.json" } else { "the file has no tokenizer" };
            return Err(Problem::new(Code::TokenizerInvalid, what)
                .file(folder.path())
                .remedy("add the tokenizer.json that belongs to the model"));
        }
        let bytes = folder.read(name, limits::TOKENIZER_BYTES)?;
        let mut inner = parse(&bytes, &path)?;
        let special = Special::read(&folder, &inner)?;
        inner.with_padding(None);
        let cleared = inner.with_truncation(None).map(|_| ());
        cleared.map_err(|e| Problem::new(Code::TokenizerInvalid, e.to_string()).file(&path))?;
        let mut plain = inner.get_added_vocabulary().clone();
        plain.set_encode_special_tokens(true);
        let vocab = inner.get_vocab(true).into_values().max().map_or(0, |id| id.saturating_add(1));
        if vocab == 0 {
            return Err(Problem::new(Code::TokenizerInvalid, "the tokenizer has no entries").file(&path));
        }
        let fast = guarded("reading", &path, || Ok(fast::Fast::of(&inner)))?;
        Ok(Tokenizer { inner, plain, special, fast, path, vocab })
    }

    /// The file it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Entries: every id lies below.
    pub fn vocab(&self) -> u32 {
        self.vocab
    }

    /// Id of a token by its text.
    pub fn token_id(&self, text: &str) -> Option<u32> {
        self.inner.token_to_id(text)
    }

    /// Id that ends a text or an answer: of `tokenizer_config.json`, else `special_tokens_map.json`, else `config.json`.
    pub fn eos(&self) -> Option<u32> {
        self.special.eos.as_ref().map(|t| t.id)
    }

    /// Id that begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.special.bos.as_ref().map(|t| t.id)
    }

    /// Padding id.
    pub fn pad(&self) -> Option<u32> {
        self.special.pad.as_ref().map(|t| t.id)
    }

    /// Text of the token that begins a text, as templates use it.
    pub fn bos_text(&self) -> Option<&str> {
        self.special.bos.as_ref().map(|t| t.text.as_str())
    }

    /// Text of the token that ends a text, as templates use it.
    pub fn eos_text(&self) -> Option<&str> {
        self.special.eos.as_ref().map(|t| t.text.as_str())
    }

    /// Texts of all control tokens, longest first.
    pub fn control_texts(&self) -> &[String] {
        &self.special.texts
    }

    /// True for control tokens.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.ids.contains(&id)
    }

    /// True where a text is an entry of its own.
    pub fn has_token(&self, text: &str) -> bool {
        self.inner.token_to_id(text).is_some()
    }

    /// The text an id stands for by itself; pieces of characters show as U+FFFD.
    pub fn token_text(&self, id: u32) -> String {
        if self.is_special(id) {
            return self.inner.id_to_token(id).unwrap_or_default();
        }
        self.decode(&[id], false).unwrap_or_default()
    }

    /// Ids of a text with what the tokenizer adds by itself (BOS where it does). Control tokens in the text stay plain
    /// text unless `special_tokens_in_text`.
    pub fn encode(&self, text: &str, special_tokens_in_text: bool) -> Outcome<Vec<u32>> {
        let control = if special_tokens_in_text { Control::Recognised } else { Control::Plain };
        Ok(self.encode_with(text, control, true)?.ids)
    }

    /// Text of ids; unknown ids give nothing.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Outcome<String> {
        self.guarded("decoding", || self.inner.decode(ids, skip_special))
    }

    /// Starts decoding one id at a time; control tokens give no text.
    pub fn decoder(&self) -> Decoder<'_> {
        Decoder::new(self)
    }

    /// Runs foreign code on foreign data: errors and panics of it become a problem.
    fn guarded<T>(&self, doing: &str, run: impl FnOnce() -> tokenizers::Result<T>) -> Outcome<T> {
        guarded(doing, &self.path, run)
    }
}

fn parse(bytes: &[u8], path: &Path) -> Outcome<tokenizers::Tokenizer> {
    guarded("reading", path, || tokenizers::Tokenizer::from_bytes(bytes)).map_err(|p| {
        let cut = serde_json::from_slice::<serde::de::IgnoredAny>(bytes).err();
        let what = "tokenizer.json cannot be read";
        let why = cut.as_ref().map_or(p.why, |e| e.to_string());
        let problem = Problem::new(Code::TokenizerInvalid, what).why(why).file(path);
        let problem = cut.map_or(problem.clone(), |e| problem.line(e.line() as u64));
        problem.remedy("copy the file again from where the model came from")
    })
}

fn guarded<T>(doing: &str, path: &Path, run: impl FnOnce() -> tokenizers::Result<T>) -> Outcome<T> {
    // Worker threads would make the order of work depend on the machine, and a pool would live on in a trainer.
    tokenizers::parallelism::set_parallelism(false);
    let failed = |why: String| {
        Problem::new(Code::TokenizerInvalid, format!("{doing} with the tokenizer failed")).why(why).file(path)
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => Err(failed(e.to_string())),
        Err(_) => Err(failed("the tokenizer contradicts itself".into())),
    }
}

#[cfg(test)]
pub(crate) mod tests;
