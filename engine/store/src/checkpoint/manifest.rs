//! `manifest.json`: what a checkpoint consists of.

use serde::{Deserialize, Serialize};

/// A checkpoint's manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this structure: 1.
    pub version: u32,
    /// Id of the run that wrote it.
    pub run: String,
    /// Steps done.
    pub step: u64,
    /// The files, in the order they were written.
    pub files: Vec<ManifestFile>,
}

/// One file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// Name within the folder.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// XXH3-128 of its content, 32 hex digits.
    pub xxh3_128: String,
}

impl Manifest {
    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.bytes))
    }
}
