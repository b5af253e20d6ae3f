//! `manifest.json`: what a checkpoint consists of. Sealed: it ends with its own checksum, so no byte of it changes unseen.

use crate::disk::{self, Disk};
use crate::seal;
use protocol::{Code, Outcome, Problem, limits};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Name of the manifest's file.
pub(super) const FILE: &str = "manifest.json";
/// Version written and read.
const VERSION: u32 = 1;
/// Longest name of a file in bytes, as file systems have it.
const NAME_BYTES: usize = 255;

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
    pub(super) fn new(run: &str, step: u64) -> Manifest {
        Manifest { version: VERSION, run: run.to_owned(), step, files: Vec::new() }
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// The file's content: one sealed line.
    pub(super) fn sealed(&self) -> Outcome<Vec<u8>> {
        let mut text = Vec::new();
        seal::write(&mut text, self).map_err(|e| Problem::internal(format!("the manifest: {e}")))?;
        text.push(b'\n');
        Ok(text)
    }

    /// Reads the manifest of a checkpoint folder. Nothing in it is believed before its seal was checked, nor a name that
    /// leads outside the folder after.
    /// Errors: `CheckpointDamaged`, `NotSupported` for a version of a later release.
    pub(super) fn read(disk: &dyn Disk, dir: &Path) -> Outcome<Manifest> {
        let path = dir.join(FILE);
        let damaged = |why: String| {
            Problem::new(Code::CheckpointDamaged, "the checkpoint is incomplete: it has no whole manifest").why(why)
        };
        let text = disk::read_whole(disk, &path, limits::CONFIG_BYTES)
            .map_err(|p| damaged(format!("manifest.json: {}", if p.why.is_empty() { p.what } else { p.why })))
            .map_err(|p| p.file(&path))?;
        let line = text.strip_suffix(b"\n").filter(|line| seal::is_whole(line));
        let line = line.ok_or_else(|| damaged("manifest.json is damaged: its checksum is wrong".into()).file(&path))?;
        let manifest: Manifest = serde_json::from_slice(line)
            .map_err(|e| damaged(format!("manifest.json cannot be read: {e}")).file(&path))?;
        manifest.check().map_err(|problem| problem.file(&path))?;
        Ok(manifest)
    }

    fn check(&self) -> Outcome<()> {
        if self.version != VERSION {
            let what = format!("the checkpoint has manifest version {}, this release reads {VERSION}", self.version);
            return Err(Problem::new(Code::NotSupported, what).remedy("use the release that wrote it"));
        }
        match self.files.iter().find(|file| !is_plain(&file.name)) {
            None => Ok(()),
            Some(file) => Err(Problem::new(Code::CheckpointDamaged, "a path in manifest.json leads outside")
                .why(format!("\"{}\" is not the name of a file in the checkpoint", file.name.escape_debug()))),
        }
    }
}

/// True for the name of a file directly in the folder that a checkpoint may hold.
pub(super) fn is_plain(name: &str) -> bool {
    let odd = |c: char| c == '/' || c == '\\' || c.is_control();
    !name.is_empty() && name.len() <= NAME_BYTES && !name.starts_with('.') && name != FILE && !name.contains(odd)
}
