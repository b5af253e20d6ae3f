//! The weight files of a model folder, one or many, and whether they hold exactly the model's tensors.

use super::{EMBEDDING, HEAD};
use crate::folder::Folder;
use crate::safetensors::{Dtype, File, TensorView, is_pickle, pickle};
use protocol::facts::{ModelConfig, TensorShape};
use protocol::{Code, Outcome, Problem, limits};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read;
use std::path::{Path, PathBuf};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// Files of one model: the largest published have about two hundred; each stays open.
const FILES: usize = 512;
/// Disagreements named one by one in a message.
const NAMED: usize = 3;

/// Open weight files and where each tensor is.
#[derive(Debug)]
pub(super) struct Shards {
    files: Vec<File>,
    place: HashMap<String, usize>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Shards {
    /// Opens all weight files of a folder and checks their tensors against the configuration.
    pub(super) fn open(folder: &Folder, config: &ModelConfig) -> Outcome<Shards> {
        let shards = if folder.has(SINGLE) {
            Shards::of(vec![open_file(folder, SINGLE)?])?
        } else if folder.has(INDEX) {
            Shards::indexed(folder)?
        } else {
            return Err(no_weights(folder));
        };
        shards.check(folder, config)?;
        Ok(shards)
    }

    pub(super) fn tensor(&self, name: &str) -> Option<TensorView<'_>> {
        self.files.get(*self.place.get(name)?)?.tensor(name)
    }

    /// The files, sorted by name.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.files.iter().map(|f| f.path().to_owned()).collect()
    }

    /// Bytes of all tensors.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().flat_map(File::tensors).map(|t| t.bytes()).sum()
    }

    /// The type that most bytes have.
    pub(super) fn dtype(&self) -> String {
        let mut bytes: Vec<(Dtype, u64)> = Vec::new();
        for tensor in self.files.iter().flat_map(File::tensors) {
            match bytes.iter_mut().find(|(d, _)| *d == tensor.spec.dtype) {
                Some((_, n)) => *n += tensor.bytes(),
                None => bytes.push((tensor.spec.dtype, tensor.bytes())),
            }
        }
        bytes.iter().max_by_key(|(_, n)| *n).map(|(d, _)| d.name()).unwrap_or_default()
    }

    fn of(files: Vec<File>) -> Outcome<Shards> {
        let mut place = HashMap::new();
        for (i, file) in files.iter().enumerate() {
            for tensor in file.tensors() {
                if place.insert(tensor.spec.name.clone(), i).is_some() {
                    let what = format!("{} is in two of the model's files", tensor.spec.name);
                    return Err(mismatch(what, file.path().to_owned()).tensor(&tensor.spec.name));
                }
            }
        }
        Ok(Shards { files, place })
    }

    fn indexed(folder: &Folder) -> Outcome<Shards> {
        let path = folder.path().join(INDEX);
        let index: Index = serde_json::from_slice(&folder.read(INDEX, limits::CONFIG_BYTES)?).map_err(|e| {
            Problem::new(Code::FileMalformed, "the index of the weights cannot be read").why(e.to_string()).file(&path)
        })?;
        let names: BTreeSet<&String> = index.weight_map.values().collect();
        if names.len() > FILES {
            let what = format!("the index names {} weight files; at most {FILES} are opened", names.len());
            return Err(Problem::new(Code::TooLarge, what).file(&path));
        }
        let files = names.iter().map(|name| open_file(folder, name)).collect::<Outcome<Vec<File>>>()?;
        if let Some(other) = stray(folder, &names)? {
            let what = format!("{} is in the folder, and the index does not name it", other.escape_debug());
            return Err(mismatch(what, folder.path().join(other))
                .remedy("remove it where it is left from another save, else copy the model again"));
        }
        let shards = Shards::of(files)?;
        shards.check_index(folder, &index, &path)?;
        Ok(shards)
    }

    /// Every tensor lies in the shard that the index says, and the index names every tensor.
    fn check_index(&self, folder: &Folder, index: &Index, path: &Path) -> Outcome<()> {
        let remedy = "index and shards must come from the same save; copy both again";
        for (tensor, file) in &index.weight_map {
            let there = self.place.get(tensor).map(|i| self.files[*i].path());
            if there == Some(&folder.path().join(file)) {
                continue;
            }
            let (tensor, file) = (tensor.escape_debug(), file.escape_debug());
            let what = match there.and_then(Path::file_name) {
                Some(other) => format!("the index says {tensor} is in {file}, but it is in {}", other.display()),
                None => format!("the index says {tensor} is in {file}, but it is not"),
            };
            return Err(mismatch(what, path.to_owned()).tensor(tensor.to_string()).remedy(remedy));
        }
        let unnamed = |name: &str| !index.weight_map.contains_key(name) && !is_rotary_table(name);
        let mut tensors = self.files.iter().flat_map(File::tensors);
        match tensors.find(|t| unnamed(&t.spec.name)) {
            Some(t) => {
                let what = format!("{} is in a shard, and the index does not name it", t.spec.name.escape_debug());
                Err(mismatch(what, path.to_owned()).tensor(&t.spec.name).remedy(remedy))
            }
            None => Ok(()),
        }
    }

    fn check(&self, folder: &Folder, config: &ModelConfig) -> Outcome<()> {
        let wanted = config.tensors();
        let mut wrong: Vec<(String, String)> = wanted.iter().filter_map(|t| self.disagreement(t)).collect();
        wrong.extend(self.extra(&wanted, config));
        let Some((tensor, first)) = wrong.first() else { return Ok(()) };
        let named: Vec<&str> = wrong.iter().skip(1).take(NAMED - 1).map(|(_, what)| what.as_str()).collect();
        let mut why = named.join("; ");
        if wrong.len() > NAMED {
            why.push_str(&format!("; and {} more", wrong.len() - NAMED));
        }
        let path = match (&self.files[..], self.place.get(tensor)) {
            (_, Some(i)) => self.files[*i].path().to_owned(),
            ([one], None) => one.path().to_owned(),
            _ => folder.path().to_owned(),
        };
        Err(mismatch(first.clone(), path)
            .why(why)
            .tensor(tensor)
            .remedy("config.json and weights must come from the same model; copy both again"))
    }

    fn disagreement(&self, wanted: &TensorShape) -> Option<(String, String)> {
        let name = &wanted.name;
        let what = match self.tensor(name) {
            None => format!("{name} is missing; config.json asks for it with shape {:?}", wanted.shape),
            Some(t) if t.spec.shape != wanted.shape => {
                format!("{name} has shape {:?}, config.json asks for {:?}", t.spec.shape, wanted.shape)
            }
            Some(t) if !t.spec.dtype.trainable() => {
                format!("{name} has numbers of type {}, which cannot be trained on", t.spec.dtype.name())
            }
            Some(_) => return None,
        };
        Some((name.clone(), what))
    }

    /// Tensors that the model does not have. A tied model may carry its head, and old files carry rotary tables.
    fn extra(&self, wanted: &[TensorShape], config: &ModelConfig) -> Vec<(String, String)> {
        let names: BTreeSet<&str> = wanted.iter().map(|t| t.name.as_str()).collect();
        let mut extra = Vec::new();
        for tensor in self.files.iter().flat_map(File::tensors) {
            let name = &tensor.spec.name;
            let known = names.contains(name.as_str()) || is_rotary_table(name);
            if known {
                continue;
            }
            if config.tied && name == HEAD {
                let shape = vec![u64::from(config.vocab), u64::from(config.hidden)];
                extra.extend(self.disagreement(&TensorShape { name: name.clone(), shape }));
            } else {
                let what =
                    format!("{} has shape {:?} and is no part of the model", name.escape_debug(), tensor.spec.shape);
                extra.push((name.clone(), what));
            }
        }
        extra.sort();
        extra
    }
}

/// Old files carry the frequencies of their rotary embeddings, which follow from the configuration.
fn is_rotary_table(name: &str) -> bool {
    name.ends_with(".rotary_emb.inv_freq")
}

/// A file of the folder that is called as a shard is, "model-00001-of-00003.safetensors", and is none of these.
fn stray(folder: &Folder, names: &BTreeSet<&String>) -> Outcome<Option<String>> {
    let is_shard = |name: &str| {
        let numbers = name.strip_prefix("model-").and_then(|rest| rest.strip_suffix(".safetensors"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        numbers.and_then(|n| n.split_once("-of-")).is_some_and(|(at, of)| digits(at) && digits(of))
    };
    let all = folder.names()?;
    let all = all.iter().filter_map(|name| name.to_str());
    Ok(all.filter(|name| is_shard(name)).find(|name| !names.iter().any(|n| n == name)).map(str::to_owned))
}

fn open_file(folder: &Folder, name: &str) -> Outcome<File> {
    File::of(folder.file(name)?, &folder.path().join(name))
}

fn mismatch(what: String, file: PathBuf) -> Problem {
    Problem::new(Code::TensorMismatch, what).file(&file)
}

/// A folder without safetensors: says what is there instead, by content.
fn no_weights(folder: &Folder) -> Problem {
    for name in folder.names().unwrap_or_default() {
        let Some(name) = name.to_str() else { continue };
        if name.ends_with(".json") {
            continue;
        }
        let mut start = [0u8; 8];
        let read = folder.file(name).ok().and_then(|mut f| f.read(&mut start).ok()).unwrap_or(0);
        let path = folder.path().join(name);
        if is_pickle(&start[..read]) {
            return pickle().file(&path);
        }
        if start.starts_with(b"GGUF") {
            return Problem::new(Code::FormatUnknown, "the folder has no safetensors files, but a GGUF file")
                .file(&path)
                .remedy("give the GGUF file itself as the model");
        }
    }
    Problem::new(Code::FileUnreadable, "the folder has no weights: neither model.safetensors nor an index of shards")
        .file(folder.path())
        .remedy(format!("add the model's safetensors files ({EMBEDDING} and the others)"))
}
