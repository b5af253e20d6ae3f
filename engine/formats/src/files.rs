//! The small files of a model: those of its folder, or those that a GGUF file stands for.
//!
//! Not here: weights (`model_folder`), what is in the files.

use crate::folder::Folder;
use crate::gguf;
use protocol::{Code, Outcome, Problem};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Small files by name.
#[derive(Debug)]
pub(crate) enum Files {
    /// Those of a folder.
    Folder(Folder),
    /// Those that a file stands for.
    Gguf { path: PathBuf, files: BTreeMap<&'static str, Vec<u8>> },
}

impl Files {
    /// Opens a folder or a GGUF file.
    pub(crate) fn open(path: &Path) -> Outcome<Files> {
        if gguf::is_gguf(path) {
            return Ok(Files::Gguf { path: path.to_owned(), files: gguf::companions(path)? });
        }
        Folder::open(path).map(Files::Folder)
    }

    /// The path it was opened by.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Files::Folder(folder) => folder.path(),
            Files::Gguf { path, .. } => path,
        }
    }

    /// True for a folder.
    pub(crate) fn is_folder(&self) -> bool {
        matches!(self, Files::Folder(_))
    }

    /// Where a file is, for messages: a file that GGUF stands for is that one.
    pub(crate) fn place(&self, name: &str) -> PathBuf {
        match self {
            Files::Folder(folder) => folder.path().join(name),
            Files::Gguf { path, .. } => path.clone(),
        }
    }

    /// True when there is a file of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        match self {
            Files::Folder(folder) => folder.has(name),
            Files::Gguf { files, .. } => files.contains_key(name),
        }
    }

    /// Reads a whole file of at most `limit` bytes.
    pub(crate) fn read(&self, name: &str, limit: u64) -> Outcome<Vec<u8>> {
        match self {
            Files::Folder(folder) => folder.read(name, limit),
            Files::Gguf { path, files } => match files.get(name) {
                Some(bytes) if bytes.len() as u64 <= limit => Ok(bytes.clone()),
                Some(_) => {
                    Err(Problem::new(Code::TooLarge, format!("what the file holds for {name} is too large")).file(path))
                }
                None => {
                    Err(Problem::new(Code::FileUnreadable, format!("the file holds nothing for {name}")).file(path))
                }
            },
        }
    }
}
