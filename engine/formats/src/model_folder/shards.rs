//! The weight files of a model folder, one or many, and whether they hold exactly the model's tensors.

use super::{EMBEDDING, HEAD};
use crate::folder::Folder;
use crate::safetensors::{Dtype, File, TensorView, is_pickle, pickle};
use protocol::facts::{ModelConfig, TensorShape};
use protocol::{Code, Outcome, Problem, limits};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read;
use std::path::PathBuf;

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
        let shards = Shards::of(files)?;
        for (tensor, file) in &index.weight_map {
            let there = shards.place.get(tensor).map(|i| &shards.files[*i]);
            if there.is_none_or(|f| f.path() != folder.path().join(file)) {
                let what =
                    format!("the index says {} is in {}, but it is not", tensor.escape_debug(), file.escape_debug());
                return Err(mismatch(what, path).tensor(tensor));
            }
        }
        Ok(shards)
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
            let known = names.contains(name.as_str()) || name.ends_with(".rotary_emb.inv_freq");
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
