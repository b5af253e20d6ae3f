//! A GGUF file as a model: its shape, and its tensors under their Hugging Face names.
//!
//! Not here: tokenizer and template (`vocabulary`).

use super::{File, TensorInfo, Type, config, names, vocabulary};
use crate::model_folder::{SpecialIds, parse_config};
use protocol::facts::ModelConfig;
use protocol::{Code, Outcome, Problem};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Disagreements named one by one in a message.
const NAMED: usize = 3;

/// An open file that holds exactly the tensors of its model.
#[derive(Debug)]
pub(crate) struct Model {
    file: File,
    config: ModelConfig,
    ids: SpecialIds,
}

impl Model {
    /// Opens and checks a file; no weights are read but the few of `rope_freqs`. Errors: those of `File::open`,
    /// `ArchitectureUnknown`, `NotSupported`, `ConfigInvalid`, `TensorMismatch`, `TokenizerInvalid`.
    pub fn open(path: &Path) -> Outcome<Model> {
        let file = File::open(path)?;
        let named = |problem: Problem| problem.file(path);
        let fields = config::json(&file).map_err(named)?;
        let (config, ids) = parse_config(fields, path).map_err(|p| in_keys(p).file(path))?;
        check_tensors(&file, &config).map_err(named)?;
        vocabulary::check(file.metadata(), config.vocab).map_err(named)?;
        Ok(Model { file, config, ids })
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }

    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    pub fn special_ids(&self) -> SpecialIds {
        self.ids
    }

    /// The file, through no link: a fingerprint names what was read, not how it was found.
    pub fn weight_files(&self) -> Vec<PathBuf> {
        vec![std::fs::canonicalize(self.path()).unwrap_or_else(|_| self.path().to_owned())]
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        self.file.tensors().iter().map(TensorInfo::bytes).sum()
    }

    /// The format that most values have.
    pub fn kind(&self) -> Type {
        let mut values: Vec<(Type, u64)> = Vec::new();
        for tensor in self.file.tensors() {
            match values.iter_mut().find(|(kind, _)| *kind == tensor.kind) {
                Some((_, n)) => *n += tensor.elements(),
                None => values.push((tensor.kind, tensor.elements())),
            }
        }
        values.into_iter().max_by_key(|(_, n)| *n).map_or(Type::F32, |(kind, _)| kind)
    }

    /// What people should know: training goes on from rounded weights.
    pub fn notes(&self) -> Vec<String> {
        let kinds: BTreeSet<Type> = self.file.tensors().iter().map(|t| t.kind).filter(|k| k.is_quantised()).collect();
        if kinds.is_empty() {
            return Vec::new();
        }
        let kinds: Vec<String> = kinds.into_iter().map(Type::name).collect();
        vec![format!(
            "the weights were quantised ({}): they are rounded, and are trained and written in full precision from here",
            kinds.join(", ")
        )]
    }

    pub fn has_tokenizer(&self) -> bool {
        self.file.metadata().contains_key(vocabulary::TOKENS)
    }

    pub fn has_template(&self) -> bool {
        self.file.metadata().contains_key(vocabulary::TEMPLATE)
    }

    /// Reads a parameter by its Hugging Face name.
    pub fn read_f32(&self, name: &str, out: &mut [f32]) -> Outcome<()> {
        let tensor = names::to_gguf(name).and_then(|gguf| self.file.tensor(&gguf));
        let Some(tensor) = tensor else {
            let what = format!("{name} is not in the model");
            return Err(Problem::new(Code::TensorMismatch, what).file(self.path()).tensor(name));
        };
        match names::turned_heads(&self.config, name) {
            None => self.file.read_f32(tensor, out),
            Some(heads) => self.read_turned(tensor, out, heads),
        }
    }

    fn read_turned(&self, tensor: &TensorInfo, out: &mut [f32], heads: usize) -> Outcome<()> {
        let width = tensor.shape[0] as usize / heads;
        if tensor.shape.len() > 1 {
            return self.file.read_rows(tensor, out, |row| names::to_halves(row, width));
        }
        let mut bias = vec![0.0; out.len()];
        self.file.read_f32(tensor, &mut bias)?;
        bias.iter().enumerate().for_each(|(row, value)| out[names::to_halves(row, width)] = *value);
        Ok(())
    }
}

/// A complaint about `config.json` in the words of the file that it came from.
fn in_keys(problem: Problem) -> Problem {
    let Some((field, key)) = problem.place.field.clone().and_then(|f| Some((f.clone(), config::key_of(&f)?))) else {
        return problem;
    };
    let what = problem.what.replacen(&field, &key, 1);
    Problem { what, ..problem }
        .field(key)
        .remedy("the file is damaged, or was made for another program; fetch it again")
}

/// The file holds the model's tensors with their shapes, and no others.
fn check_tensors(file: &File, config: &ModelConfig) -> Outcome<()> {
    let (mut wrong, mut known) = (Vec::new(), BTreeSet::from([names::ROPE_FREQS.to_owned()]));
    for wanted in config.tensors() {
        let name = names::to_gguf(&wanted.name)
            .ok_or_else(|| Problem::internal(format!("{} has no name in GGUF", wanted.name)))?;
        match file.tensor(&name) {
            None => {
                wrong.push((name.clone(), format!("{name} is missing; the model has it with shape {:?}", wanted.shape)))
            }
            Some(t) if t.shape != wanted.shape => {
                let what = format!("{name} has shape {:?}, the metadata asks for {:?}", t.shape, wanted.shape);
                wrong.push((name.clone(), what));
            }
            Some(_) => {}
        }
        known.insert(name);
    }
    for tensor in file.tensors().iter().filter(|t| !known.contains(&t.name)) {
        let what = format!("{} has shape {:?} and is no part of the model", tensor.name.escape_debug(), tensor.shape);
        wrong.push((tensor.name.clone(), what));
    }
    let Some((tensor, first)) = wrong.first() else { return Ok(()) };
    let named: Vec<&str> = wrong.iter().skip(1).take(NAMED - 1).map(|(_, what)| what.as_str()).collect();
    let mut why = named.join("; ");
    if wrong.len() > NAMED {
        why.push_str(&format!("; and {} more", wrong.len() - NAMED));
    }
    Err(Problem::new(Code::TensorMismatch, first.clone())
        .why(why)
        .tensor(tensor)
        .remedy("the file is damaged, or its model is no plain Llama; fetch it again"))
}
