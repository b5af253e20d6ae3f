//! Where a job's tokenizer and template come from: the model's folder, a folder or file of their own, or training on the data.

use formats::template::Template;
use formats::tokenizer::Tokenizer;
use formats::{dataset, fingerprint, gguf, model_folder};
use protocol::job::ModelSpec;
use protocol::{Code, Outcome, Problem, limits};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Entries of a tokenizer trained on the data: all 256 bytes, one end token, and the most frequent pairs.
const TRAINED_ENTRIES: u32 = 512;

/// Where the tokenizer comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenizerSource {
    /// A folder with `tokenizer.json` and perhaps a template, or a GGUF file, which holds both.
    Folder(PathBuf),
    /// A single file.
    File(PathBuf),
    /// Byte-pair encoding trained on the training data.
    Trained,
}

impl TokenizerSource {
    /// The source of a job. Errors: `SettingInvalid` where the model names neither a path nor a preset.
    pub fn of(model: &ModelSpec) -> Outcome<TokenizerSource> {
        match (&model.path, &model.preset, &model.tokenizer) {
            (Some(folder), None, None) => Ok(TokenizerSource::Folder(folder.clone())),
            (None, Some(_), Some(path)) => Ok(TokenizerSource::at(path)),
            (None, Some(_), None) => Ok(TokenizerSource::Trained),
            (Some(_), _, Some(_)) => Err(Problem::new(
                Code::NotSupported,
                "a model from a folder keeps the tokenizer it was trained with; another one cannot be given",
            )
            .field("model.tokenizer")
            .remedy("leave model.tokenizer out")),
            _ => Err(Problem::new(Code::SettingInvalid, "give either model.path or model.preset").field("model")),
        }
    }

    /// A `tokenizer.json` stands for its folder, so that the template beside it counts.
    fn at(path: &Path) -> TokenizerSource {
        match path.parent() {
            Some(folder) if path.ends_with("tokenizer.json") => TokenizerSource::Folder(folder.to_path_buf()),
            _ if path.is_dir() || gguf::is_gguf(path) => TokenizerSource::Folder(path.to_path_buf()),
            _ => TokenizerSource::File(path.to_path_buf()),
        }
    }

    /// Size of `tokenizer.json`, or the most that a GGUF file may hold of it; 0 where there is none yet.
    pub fn bytes(&self) -> u64 {
        let path = match self {
            TokenizerSource::Folder(file) if gguf::is_gguf(file) => {
                return file.metadata().map_or(0, |m| m.len().min(limits::GGUF_HEADER_BYTES));
            }
            TokenizerSource::Folder(folder) => folder.join("tokenizer.json"),
            TokenizerSource::File(file) => file.clone(),
            TokenizerSource::Trained => return 0,
        };
        path.metadata().map_or(0, |m| m.len())
    }

    /// What makes equal tokenizers equal before any is loaded. A trained one is a function of its data.
    pub fn identity(&self, data_fingerprint: &str) -> Outcome<String> {
        match self {
            TokenizerSource::Folder(_) | TokenizerSource::File(_) => self.fingerprint(),
            TokenizerSource::Trained => Ok(format!("byte pairs, {TRAINED_ENTRIES} entries, of {data_fingerprint}")),
        }
    }

    /// Hash of its files; of none for one that is not trained yet.
    fn fingerprint(&self) -> Outcome<String> {
        match self {
            TokenizerSource::Folder(folder) => model_folder::tokenizer_fingerprint(folder),
            TokenizerSource::File(file) => fingerprint::files(std::slice::from_ref(file)),
            TokenizerSource::Trained => fingerprint::files(&[]),
        }
    }

    /// Opens the tokenizer; one that is to be trained is trained on `texts` in a folder below `parent` that goes with the
    /// result. Errors: those of the files read, named as the user named them.
    pub fn open(self, parent: &Path, texts: impl FnOnce() -> Outcome<Texts>) -> Outcome<Ready> {
        match &self {
            TokenizerSource::Folder(folder) => Ok(Ready { words: Words::open(folder)?, source: self, _scratch: None }),
            TokenizerSource::File(file) => {
                let words = Words { tokenizer: Tokenizer::open(file)?, template: None };
                Ok(Ready { words, source: self, _scratch: None })
            }
            TokenizerSource::Trained => {
                let (scratch, mut texts) = (Scratch::create(parent)?, texts()?);
                formats::tokenizer::train_bpe(&mut texts, TRAINED_ENTRIES, scratch.path())?;
                texts.end()?;
                let source = TokenizerSource::Folder(scratch.path().to_path_buf());
                Ok(Ready { words: Words::open(scratch.path())?, source, _scratch: Some(scratch) })
            }
        }
    }
}

/// An open tokenizer and where its files are.
pub struct Ready {
    /// Tokenizer and template.
    pub words: Words,
    source: TokenizerSource,
    _scratch: Option<Scratch>,
}

impl Ready {
    /// Hash of its files.
    pub fn fingerprint(&self) -> Outcome<String> {
        self.source.fingerprint()
    }

    /// Copies its files into `folder`.
    pub fn copy_into(&self, folder: &Path) -> Outcome<()> {
        match &self.source {
            TokenizerSource::Folder(from) => model_folder::copy_tokenizer(from, folder).map(drop),
            TokenizerSource::File(file) => std::fs::copy(file, folder.join("tokenizer.json"))
                .map(drop)
                .map_err(|e| Problem::io(&e, "copying the tokenizer", file)),
            TokenizerSource::Trained => Err(Problem::internal("a tokenizer was to be copied before it was trained")),
        }
    }
}

/// A tokenizer with its template.
pub struct Words {
    /// The tokenizer.
    pub tokenizer: Tokenizer,
    /// The chat template, where there is one.
    pub template: Option<Template>,
}

impl Words {
    /// Opens what lies in a folder.
    pub fn open(folder: &Path) -> Outcome<Words> {
        Ok(Words { tokenizer: Tokenizer::open(folder)?, template: Template::open(folder)? })
    }
}

/// All text of a data set, for training a tokenizer. An error ends it and is told by `end`.
pub struct Texts {
    records: dataset::Records,
    failed: Option<Problem>,
}

impl Texts {
    /// The text of these files.
    pub fn of(paths: &[PathBuf], options: &dataset::Options) -> Outcome<Texts> {
        Ok(Texts { records: dataset::read(paths, options)?, failed: None })
    }

    fn end(&mut self) -> Outcome<()> {
        self.failed.take().map_or(Ok(()), Err)
    }
}

impl Iterator for Texts {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        loop {
            match self.records.next()? {
                Ok(dataset::Row::Record(record)) => return Some(text_of(record.content)),
                Ok(dataset::Row::Problem(_)) => {}
                Err(problem) => {
                    self.failed = Some(problem);
                    return None;
                }
            }
        }
    }
}

fn text_of(content: dataset::Content) -> String {
    let turns = match content {
        dataset::Content::Text(text) => return text,
        dataset::Content::Messages(said) => said.turns,
        dataset::Content::Labelled { turns, .. } => turns,
        dataset::Content::Preference { asked, chosen, .. } => [asked, chosen].concat(),
    };
    let said = |turn: &formats::template::Turn| {
        let content = turn.get_attr("content").ok()?;
        content.as_str().map(str::to_owned)
    };
    turns.iter().filter_map(said).collect::<Vec<_>>().join("\n")
}

/// A private folder that is removed when dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new folder for this user alone below `parent`; its name holds the process id, which no two living ones share.
    pub fn create(parent: &Path) -> Outcome<Scratch> {
        let path = parent.join(format!(".anneal-read-{}", std::process::id()));
        // Left by a dead process of the same id.
        let _ = std::fs::remove_dir_all(&path);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(parent);
        made.and_then(|()| DirBuilder::new().mode(0o700).create(&path))
            .map_err(|e| Problem::io(&e, "making a temporary folder", &path))?;
        Ok(Scratch(path))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
