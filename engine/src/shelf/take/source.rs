//! What a path is that is to be taken: which files, under which name, and whose.
//!
//! Not here: where they go (`target`), how (`carry`).

use super::super::walk::{self, Look, What};
use super::super::{Spot, hugging_face, models_of, ollama, text, weights};
use protocol::limits;
use protocol::problem::{Code, Outcome, Problem};
use protocol::shelf::ShelfSource;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Entries of a model's folder: the largest models have some hundred files.
const ENTRIES: usize = 10_000;
/// Longest name of what is made, in bytes: with our own mark before it, it must stay a name (255).
const NAME_BYTES: usize = limits::NAME_BYTES;

/// A file of a model.
#[derive(Clone, Debug)]
pub struct Part {
    /// The regular file itself.
    pub path: PathBuf,
    /// Its name in the model.
    pub name: String,
    /// What it was when it was looked at.
    pub status: Status,
}

/// What tells that a file is still the one that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The disk.
    pub device: u64,
    /// Number on the disk.
    pub inode: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Time of the last change, in seconds and nanoseconds.
    pub changed: (i64, i64),
}

impl Status {
    /// Of what the system says of a file.
    pub fn of(meta: &Metadata) -> Status {
        let changed = (meta.mtime(), meta.mtime_nsec());
        Status { device: meta.dev(), inode: meta.ino(), bytes: meta.len(), changed }
    }
}

/// A model that is to be taken.
#[derive(Clone, Debug)]
pub struct Source {
    /// The folder or file itself, without links.
    pub path: PathBuf,
    /// Name of what is made: one plain component of a path.
    pub name: String,
    /// The new place is a folder.
    pub folder: bool,
    /// Its files.
    pub parts: Vec<Part>,
    /// The files are all that there is: the folder can go as a whole.
    pub whole: bool,
    /// Whose place it lies in.
    pub owner: Option<ShelfSource>,
}

impl Source {
    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(part.status.bytes))
    }

    /// Looks at a path. Errors: `FileUnreadable`, `FormatUnknown` where it is no model, `PathOutside` where a link in it
    /// leads elsewhere, `TooLarge`.
    pub fn open(places: &[Spot], path: &Path) -> Outcome<Source> {
        let real = path.canonicalize().map_err(|e| Problem::io(&e, "finding the model", path))?;
        let status = real.symlink_metadata().map_err(|e| Problem::io(&e, "finding the model", path))?;
        if status.is_dir() {
            return folder(places, real);
        }
        if !status.is_file() || !walk::is_gguf(&real) {
            return Err(no_model(path));
        }
        file(places, path, real)
    }
}

fn folder(places: &[Spot], path: PathBuf) -> Outcome<Source> {
    let entries = Look::with(ENTRIES + 1).list(&path);
    if entries.len() > ENTRIES {
        return Err(
            Problem::new(Code::TooLarge, format!("a folder of more than {ENTRIES} files is no model")).file(&path)
        );
    }
    let repository = hugging_face::repository_of(&path);
    let blob = |link: &Path| repository.and_then(|repository| hugging_face::blob(repository, link));
    let mut parts = Vec::new();
    for entry in &entries {
        let real = match entry.what {
            What::File => entry.path.clone(),
            What::Link => blob(&entry.path).ok_or_else(|| leads_out(&entry.path))?,
            What::Folder | What::Special => continue,
        };
        parts.push(part(real, &entry.name)?);
    }
    let stands = |entry: &walk::Entry| match entry.what {
        What::File => Some(entry.path.clone()),
        What::Link => blob(&entry.path),
        What::Folder | What::Special => None,
    };
    weights::folder_bytes(&entries, &stands).ok_or_else(|| no_model(&path))?;
    let name = match repository.and_then(hugging_face::name_of) {
        Some(name) => name.rsplit('/').next().unwrap_or_default().to_owned(),
        None => text(Path::new(path.file_name().unwrap_or_default())),
    };
    // Names that are no text are in no list of ours: such a file keeps its folder.
    let all = std::fs::read_dir(&path).map_err(|e| Problem::io(&e, "reading the folder", &path))?.count();
    let whole = repository.is_none() && all == parts.len();
    let owner = owner(places, &path);
    Ok(Source { name: plain_name(&name), folder: true, parts, whole, owner, path })
}

/// A GGUF file with the other parts of its set.
fn file(places: &[Spot], path: &Path, real: PathBuf) -> Outcome<Source> {
    let owner = owner(places, &real);
    // The name that the user knows: that of the link, not of the blob behind it.
    let own = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| no_model(path))?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    if owner == Some(ShelfSource::Ollama) {
        let name = plain_name(&ollama_name(places, &real).unwrap_or_else(|| own.to_owned())) + ".gguf";
        let parts = vec![part(real.clone(), &name)?];
        return Ok(Source { path: real, name, folder: false, parts, whole: true, owner });
    }
    let entries = Look::with(ENTRIES).list(folder);
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    let set = weights::parts(own, &names).ok_or_else(|| {
        Problem::new(Code::FileTruncated, "a part of this model is missing")
            .file(path)
            .remedy("fetch the missing part, or the model again")
    })?;
    let parts: Vec<Part> = set.iter().map(|name| part(beside(folder, name)?, name)).collect::<Outcome<_>>()?;
    let several = parts.len() > 1;
    let name =
        if several { plain_name(weights::stem(own)) } else { plain_name(own.trim_end_matches(".gguf")) + ".gguf" };
    Ok(Source { path: real, name, folder: several, parts, whole: !several, owner })
}

/// A file of a folder: itself, or what its link leads to where that is a blob of the same repository or what was named.
fn beside(folder: &Path, name: &str) -> Outcome<PathBuf> {
    let path = folder.join(name);
    let status = path.symlink_metadata().map_err(|e| Problem::io(&e, "finding a part of the model", &path))?;
    if status.is_file() {
        return Ok(path);
    }
    let blob = hugging_face::repository_of(folder).and_then(|repository| hugging_face::blob(repository, &path));
    blob.ok_or_else(|| leads_out(&path))
}

fn part(path: PathBuf, name: &str) -> Outcome<Part> {
    let status = path.symlink_metadata().map_err(|e| Problem::io(&e, "finding a file of the model", &path))?;
    Ok(Part { name: name.to_owned(), status: Status::of(&status), path })
}

/// NAME-TAG of an Ollama blob, from its manifest.
fn ollama_name(places: &[Spot], blob: &Path) -> Option<String> {
    let same = |path: &Path| path.canonicalize().is_ok_and(|path| path == blob);
    let roots = places.iter().filter(|spot| blob.starts_with(spot.path.canonicalize().unwrap_or_default()));
    let mut all = roots.flat_map(models_of);
    let name = all.find(|one| same(&one.found.path))?.name;
    Some(name.rsplit('/').next().unwrap_or_default().replace(':', "-"))
}

/// Whose a path is. Layouts decide before places: a cache in a folder that the user added is a cache still.
fn owner(places: &[Spot], path: &Path) -> Option<ShelfSource> {
    let cached = path.ancestors().any(|above| hugging_face::name_of(above).is_some());
    if cached {
        return Some(ShelfSource::HuggingFace);
    }
    if path.ancestors().any(ollama::is_root) {
        return Some(ShelfSource::Ollama);
    }
    let holds = |spot: &&Spot| spot.path.canonicalize().is_ok_and(|root| path.starts_with(root));
    places.iter().filter(holds).map(|spot| spot.source).min()
}

/// A name that is one plain, visible component of a path, whatever strangers called their model.
pub fn plain_name(name: &str) -> String {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '/' | '\\' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let plain: String = name.chars().map(|c| if hidden(c) { '-' } else { c }).collect();
    let plain = plain.trim_start_matches(['.', '-', ' ']).trim_end();
    let mut end = plain.len().min(NAME_BYTES);
    while !plain.is_char_boundary(end) {
        end -= 1;
    }
    let plain = plain[..end].trim_end();
    if plain.is_empty() { "model".to_owned() } else { plain.to_owned() }
}

fn no_model(path: &Path) -> Problem {
    Problem::new(Code::FormatUnknown, "this is neither a whole model folder nor a GGUF file")
        .why("a model folder holds config.json and every part of its safetensors files")
        .file(path)
        .remedy("`anneal models` lists the models that are here")
}

fn leads_out(path: &Path) -> Problem {
    Problem::new(Code::PathOutside, "a file of this model is a link that leads elsewhere, or nowhere")
        .why("only links of a Hugging Face cache to its own blobs are followed")
        .file(path)
        .remedy("put the file itself in its place, or fetch the model again")
}
