//! The small files of a model: those of its folder, or those that a GGUF file stands for.
//!
//! Not here: weights (`model_folder`), what is in the files.

use crate::folder::Folder;
use crate::gguf;
use protocol::{Code, Outcome, Problem};
use std::path::{Path, PathBuf};

/// Small files by name.
#[derive(Debug)]
pub(crate) enum Files {
    /// Those of a folder.
    Folder(Folder),
    /// Those that a file stands for; each is made when it is asked for.
    Gguf(gguf::File),
}

impl Files {
    /// Opens a folder or a GGUF file.
    pub(crate) fn open(path: &Path) -> Outcome<Files> {
        if gguf::is_gguf(path) {
            return gguf::File::open(path).map(Files::Gguf);
        }
        Folder::open(path).map(Files::Folder)
    }

    /// The path it was opened by.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Files::Folder(folder) => folder.path(),
            Files::Gguf(file) => file.path(),
        }
    }

    /// True for a folder.
    pub(crate) fn is_folder(&self) -> bool {
        matches!(self, Files::Folder(_))
    }

    /// Where a file is, for messages: what GGUF stands for is in that file.
    pub(crate) fn place(&self, name: &str) -> PathBuf {
        match self {
            Files::Folder(folder) => folder.path().join(name),
            Files::Gguf(file) => file.path().to_owned(),
        }
    }

    /// True when there is a file of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        match self {
            Files::Folder(folder) => folder.has(name),
            Files::Gguf(file) => gguf::has_companion(file, name),
        }
    }

    /// Reads a whole file of at most `limit` bytes.
    pub(crate) fn read(&self, name: &str, limit: u64) -> Outcome<Vec<u8>> {
        let file = match self {
            Files::Folder(folder) => return folder.read(name, limit),
            Files::Gguf(file) => file,
        };
        let bytes = gguf::companion(file, name)?;
        if bytes.len() as u64 > limit {
            let what = format!("what the file says for {name} is too large: more than {limit} bytes");
            return Err(Problem::new(Code::TooLarge, what).file(file.path()));
        }
        Ok(bytes)
    }
}
