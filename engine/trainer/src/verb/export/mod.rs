//! `export`: weights for other programs. A merged folder in the Hugging Face layout, a merged GGUF file, or an adapter;
//! written beside its place, proved by reading it back and comparing logits, and only then given its name.
//!
//! Not here: checkpoints (`store`), the layouts themselves (`formats`).

mod merge;
#[cfg(test)]
mod tests;

use super::Lines;
use super::subject::{Subject, cpu};
use crate::batch::{MicroBatch, Row};
use crate::model::Model;
use formats::safetensors::Dtype;
use formats::{adapter, gguf, model_folder};
use merge::{Values, write_gguf, write_weights};
use protocol::verb::{Export, Exported};
use protocol::{Code, Outcome, Problem};
use std::fs::{self, DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Tokens of the batch that proves an export: long enough to use every position-dependent part, short enough for any
/// model's context and patience.
const PROOF_TOKENS: u32 = 32;

/// Name of an exported GGUF file in its folder.
const GGUF: &str = "model.gguf";

/// What is written, and its number format.
#[derive(Clone, Copy, Debug)]
enum Format {
    Merged(Numbers),
    Gguf(gguf::Type),
    Adapter(Numbers),
}

/// Carries out the request.
/// Errors: `NotSupported` naming what GGUF cannot say, `SettingInvalid`, `WrongState` where `to` is taken, `NotFound` naming a missing
/// base, `NotFinite` where the written model's output is no number; nothing is left at `to` then.
pub fn main<W: Write>(request: Export, lines: &mut Lines<W>) -> Outcome<Exported> {
    let format = format(&request.format, &request.dtype)?;
    check_target(&request.to)?;
    lines.progress("loading", 0, 0, "bytes")?;
    let subject = Subject::open(&request.from, None, request.base.as_deref())?;
    if matches!(format, Format::Adapter(_)) && subject.adapter.is_none() {
        return Err(Problem::new(Code::WrongState, "there is no adapter here to export")
            .file(&request.from)
            .remedy("use --format safetensors"));
    }
    lines.progress("logits before", 0, 0, "tokens")?;
    let before = logits(&subject)?;
    let draft = Draft::beside(&request.to)?;
    let names = match format {
        Format::Merged(numbers) => merged(&subject, numbers, draft.path(), lines)?,
        Format::Gguf(kind) => gguf_file(&subject, kind, draft.path(), &request.to, lines)?,
        Format::Adapter(numbers) => adapter_only(&subject, numbers.dtype, draft.path(), lines)?,
    };
    lines.progress("logits after", 0, 0, "tokens")?;
    let after = logits(&match format {
        Format::Merged(_) => Subject::open(draft.path(), None, None)?,
        Format::Gguf(_) => Subject::open(&draft.path().join(GGUF), None, None)?,
        Format::Adapter(_) => Subject::open(draft.path(), None, Some(&subject.base))?,
    })?;
    let max_logit_difference = difference(&before, &after)?;
    draft.appear(&request.to)?;
    let files = names.iter().map(|name| request.to.join(name)).collect();
    Ok(Exported { files, max_logit_difference })
}

fn format(name: &str, dtype: &str) -> Outcome<Format> {
    match name {
        "safetensors" => Ok(Format::Merged(numbers(dtype)?)),
        "adapter" => Ok(Format::Adapter(numbers(dtype)?)),
        "gguf" => {
            gguf::Type::written(dtype).map(Format::Gguf).ok_or_else(|| no_numbers(dtype, "f32, bf16, f16 or q8_0"))
        }
        _ => Err(Problem::new(Code::SettingInvalid, format!("\"{name}\" is no format of exports"))
            .field("format")
            .remedy("use safetensors, gguf or adapter")),
    }
}

fn no_numbers(name: &str, known: &str) -> Problem {
    Problem::new(Code::SettingInvalid, format!("\"{name}\" is no number format of this export"))
        .field("dtype")
        .remedy(format!("use {known}"))
}

/// A number format, and its word in config.json.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    dtype: Dtype,
    word: &'static str,
}

fn numbers(name: &str) -> Outcome<Numbers> {
    match name {
        "f32" => Ok(Numbers { dtype: Dtype::F32, word: "float32" }),
        "bf16" => Ok(Numbers { dtype: Dtype::BF16, word: "bfloat16" }),
        "f16" => Ok(Numbers { dtype: Dtype::F16, word: "float16" }),
        _ => Err(no_numbers(name, "f32, bf16 or f16")),
    }
}

fn check_target(to: &Path) -> Outcome<()> {
    match fs::read_dir(to).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Problem::new(Code::WrongState, "the folder to export to is not empty")
            .file(to)
            .kept("what is in it")
            .remedy("name a folder that does not exist yet")),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Problem::io(&e, "looking at the folder to export to", to)),
    }
}

fn merged<W: Write>(subject: &Subject, numbers: Numbers, to: &Path, lines: &mut Lines<W>) -> Outcome<Vec<String>> {
    let tensors: Vec<_> = subject.config.tensors();
    write_weights(&Values::merged(subject), &tensors, numbers.dtype, &to.join("model.safetensors"), lines)?;
    let ids = model_folder::ModelFolder::open(&subject.base)?.special_ids();
    write_text(&to.join("config.json"), &model_folder::config_json(&subject.config, ids, numbers.word))?;
    write_text(&to.join("generation_config.json"), &model_folder::generation_config_json(&subject.config, ids))?;
    let mut names: Vec<String> =
        ["config.json", "generation_config.json", "model.safetensors"].map(String::from).into();
    names.extend(copy_tokenizer(subject, to)?);
    Ok(names)
}

/// One file with everything in it; its tokenizer is held against the one that it was made from.
fn gguf_file<W: Write>(
    subject: &Subject,
    kind: gguf::Type,
    to: &Path,
    name: &Path,
    lines: &mut Lines<W>,
) -> Outcome<Vec<String>> {
    let ids = model_folder::ModelFolder::open(&subject.base)?.special_ids();
    let name = name.file_name().unwrap_or_default().to_string_lossy();
    let words = subject.words_folder();
    let draft = gguf::write::Draft::new(&subject.config, ids, words, kind, &name)?;
    let path = to.join(GGUF);
    write_gguf(&Values::merged(subject), &draft, &path, lines)?;
    gguf::write::check_words(words, &path)?;
    Ok(vec![GGUF.to_owned()])
}

fn adapter_only<W: Write>(subject: &Subject, dtype: Dtype, to: &Path, lines: &mut Lines<W>) -> Outcome<Vec<String>> {
    let Some((_, config)) = &subject.adapter else { return Err(Problem::internal("an adapter was looked for twice")) };
    let tensors = subject.config.adapter_tensors(config.rank, &config.targets);
    write_weights(&Values::plain(subject), &tensors, dtype, &to.join("adapter_model.safetensors"), lines)?;
    // The base by a path that holds wherever the adapter goes on this machine.
    let base = fs::canonicalize(&subject.base).map_err(|e| Problem::io(&e, "finding the base model", &subject.base))?;
    let config = adapter::AdapterConfig { base: base.display().to_string(), ..config.clone() };
    write_text(&to.join("adapter_config.json"), &adapter::config_json(&config))?;
    let mut names: Vec<String> = ["adapter_config.json", "adapter_model.safetensors"].map(String::from).into();
    names.extend(copy_tokenizer(subject, to)?);
    Ok(names)
}

fn copy_tokenizer(subject: &Subject, to: &Path) -> Outcome<Vec<String>> {
    let names = model_folder::copy_tokenizer(subject.words_folder(), to)?;
    names.iter().try_for_each(|name| sync(&to.join(name)))?;
    Ok(names)
}

fn write_text(path: &Path, text: &str) -> Outcome<()> {
    fs::write(path, text).map_err(|e| Problem::io(&e, "writing an export", path))?;
    sync(path)
}

fn sync(path: &Path) -> Outcome<()> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|e| Problem::io(&e, "writing an export", path))
}

/// Logits over a fixed row of ids that walks through the vocabulary.
fn logits(subject: &Subject) -> Outcome<Vec<f32>> {
    let Subject { config, method, weights, .. } = subject;
    let length = PROOF_TOKENS.min(config.context).max(1);
    let model = Model::for_inference(&cpu(), config, method, 1, length, weights.as_ref())?;
    let step = (config.vocab / length).max(1);
    let tokens: Vec<u32> = (0..length).map(|i| (i * step + i % 3) % config.vocab.max(1)).collect();
    let (trained, segments) = (vec![0u8; tokens.len()], [length]);
    let mut batch = MicroBatch::default();
    let row = Row { tokens: &tokens, trained: &trained, segments: &segments };
    batch.fill([(0, row)].into_iter(), length as usize)?;
    model.logits(&batch)
}

fn difference(before: &[f32], after: &[f32]) -> Outcome<f64> {
    let largest = before.iter().zip(after).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, |max, d| {
        // `f64::max` would pass over NaN.
        if d.is_nan() || d > max { d } else { max }
    });
    if before.len() != after.len() || !largest.is_finite() {
        return Err(Problem::new(Code::NotFinite, "the exported model's output is not a number")
            .why("its weights are not finite, or do not fit into the number format")
            .kept("nothing was written")
            .remedy("check the model, or use --dtype f32"));
    }
    Ok(largest)
}

/// A folder being written: gone when dropped before it appears.
struct Draft {
    path: PathBuf,
}

impl Draft {
    fn beside(to: &Path) -> Outcome<Draft> {
        let parent = match to.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let name = to.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let path = parent.join(format!(".tmp-{name}-{}", std::process::id()));
        // Left by a dead process of the same id.
        let _ = fs::remove_dir_all(&path);
        let make = |folder: &Path| DirBuilder::new().mode(0o700).recursive(true).create(folder);
        make(&path).map_err(|e| Problem::io(&e, "making the folder to export to", to))?;
        Ok(Draft { path })
    }

    fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it its name, in one step; an empty folder of that name is replaced.
    fn appear(self, to: &Path) -> Outcome<()> {
        sync(&self.path)?;
        fs::rename(&self.path, to).map_err(|e| Problem::io(&e, "giving the export its name", to))?;
        sync(self.path.parent().unwrap_or(Path::new(".")))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
