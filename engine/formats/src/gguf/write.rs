//! Writing GGUF, version 3: a model of ours with its tokenizer, in llama.cpp's names and order, one tensor in memory at a
//! time.
//!
//! Not here: where values come from, what a written file is held against (`trainer`, `export`).

use super::header::Metadata;
use super::rope::Llama3;
use super::vocabulary::describe::{describe, same};
use super::{Array, Type, Value, names};
use crate::model_folder::SpecialIds;
use crate::tokenizer::Tokenizer;
use protocol::facts::{ModelConfig, RopeScaling, TensorShape};
use protocol::{Code, Outcome, Problem};
use std::io::Write;
use std::path::Path;

/// Tensors begin at multiples of this; what llama.cpp takes where a file names nothing.
const ALIGNMENT: u64 = 32;
/// Values converted at once: whole blocks of every format.
const CHUNK: usize = 1 << 18;

/// A tensor to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Name in the file.
    pub name: String,
    /// Number format.
    pub kind: Type,
    /// Dimensions, rows first.
    pub shape: Vec<u64>,
}

/// A file to be written: everything but the values.
#[derive(Debug)]
pub struct Draft {
    metadata: Vec<(String, Value)>,
    /// Name and shape of each parameter under its Hugging Face name, and what it becomes.
    tensors: Vec<(TensorShape, Planned)>,
    config: ModelConfig,
    divisors: Option<Vec<f32>>,
}

impl Type {
    /// The format of a word as users write it: "f32", "f16", "bf16", "q8_0"; others are not written.
    pub fn written(word: &str) -> Option<Type> {
        match word.to_ascii_lowercase().as_str() {
            "f32" => Some(Type::F32),
            "f16" => Some(Type::F16),
            "bf16" => Some(Type::BF16),
            "q8_0" => Some(Type::Q8_0),
            _ => None,
        }
    }

    /// llama.cpp's number for a file whose matrices are mostly of this format.
    fn file_type(self) -> u32 {
        match self {
            Type::F16 => 1,
            Type::Q8_0 => 7,
            Type::BF16 => 32,
            _ => 0,
        }
    }
}

impl Draft {
    /// A file of this model with matrices in `kind` (where a row is no whole number of its blocks: F16) and vectors in F32,
    /// with the tokenizer and template of `words`, a folder or GGUF file. Errors: `TokenizerInvalid`; `NotSupported` naming
    /// what GGUF cannot say.
    pub fn new(config: &ModelConfig, ids: SpecialIds, words: &Path, kind: Type, name: &str) -> Outcome<Draft> {
        let divisors = divisors(config)?;
        let mut metadata = shape(config, name, kind);
        metadata.extend(describe(words, config, ids)?);
        if kind.is_quantised() {
            metadata.push(("general.quantization_version".into(), Value::U32(2)));
        }
        let mut tensors = Vec::new();
        for tensor in config.tensors() {
            let Some(name) = names::to_gguf(&tensor.name) else {
                return Err(Problem::new(Code::NotSupported, format!("{} has no name in GGUF", tensor.name)));
            };
            let whole = tensor.shape.last().is_some_and(|n| n % kind.block().0 == 0);
            let kind = if tensor.shape.len() < 2 {
                Type::F32
            } else if whole {
                kind
            } else {
                Type::F16
            };
            let shape = tensor.shape.clone();
            tensors.push((tensor, Planned { name, kind, shape }));
        }
        tensors.sort_by_key(|(_, planned)| names::order(&planned.name));
        Ok(Draft { metadata, tensors, config: config.clone(), divisors })
    }

    /// How many tensors are asked for.
    pub fn tensors(&self) -> usize {
        self.tensors.len()
    }

    /// Writes the file. `values` gives a parameter under its Hugging Face name and in that layout. `path` is for messages;
    /// nothing is flushed or synchronised here.
    pub fn write(
        &self,
        out: &mut dyn Write,
        path: &Path,
        values: &mut dyn FnMut(&TensorShape) -> Outcome<Vec<f32>>,
    ) -> Outcome<()> {
        let divisors = self.divisors.as_ref().map(|all| Planned {
            name: names::ROPE_FREQS.into(),
            kind: Type::F32,
            shape: vec![all.len() as u64],
        });
        let before = usize::from(divisors.is_some());
        let planned: Vec<Planned> = divisors.into_iter().chain(self.tensors.iter().map(|(_, p)| p.clone())).collect();
        write(out, path, &self.metadata, &planned, &mut |i| match i.checked_sub(before) {
            None => Ok(self.divisors.clone().unwrap_or_default()),
            Some(i) => {
                let (tensor, _) = &self.tensors[i];
                Ok(self.turned(tensor, values(tensor)?))
            }
        })
    }

    /// Values in the order of rows that GGUF has.
    fn turned(&self, tensor: &TensorShape, values: Vec<f32>) -> Vec<f32> {
        let Some(heads) = names::turned_heads(&self.config, &tensor.name) else { return values };
        let rows = tensor.shape[0] as usize;
        let (width, in_row) = (rows / heads, values.len() / rows);
        let mut turned = vec![0.0; values.len()];
        for (row, from) in values.chunks_exact(in_row).enumerate() {
            let to = names::to_pairs(row, width) * in_row;
            turned[to..to + in_row].copy_from_slice(from);
        }
        turned
    }
}

/// Checks that a written file's tokenizer is the one of `words`. Errors: `NotSupported` with the first text that differs.
pub fn check_words(words: &Path, written: &Path) -> Outcome<()> {
    same(&Tokenizer::open(words)?, &Tokenizer::open(written)?)
}

/// The model's shape in llama.cpp's words.
fn shape(config: &ModelConfig, name: &str, kind: Type) -> Vec<(String, Value)> {
    let whole = |key: &str, n: u32| (format!("llama.{key}"), Value::U32(n));
    let mut all: Vec<(String, Value)> = vec![
        ("general.architecture".into(), "llama".into()),
        ("general.type".into(), "model".into()),
        ("general.name".into(), name.into()),
        ("general.file_type".into(), Value::U32(kind.file_type())),
        ("general.alignment".into(), Value::U32(ALIGNMENT as u32)),
        whole("block_count", config.layers),
        whole("context_length", config.context),
        whole("embedding_length", config.hidden),
        whole("feed_forward_length", config.intermediate),
        whole("attention.head_count", config.heads),
        whole("attention.head_count_kv", config.kv_heads),
        whole("attention.key_length", config.head_dim),
        whole("attention.value_length", config.head_dim),
        whole("rope.dimension_count", config.head_dim),
        whole("vocab_size", config.vocab),
        ("llama.attention.layer_norm_rms_epsilon".into(), Value::F32(config.rms_norm_eps as f32)),
        ("llama.rope.freq_base".into(), Value::F32(config.rope_theta as f32)),
    ];
    all.extend(scaling(config));
    all
}

/// Writes a file: header, then tensor by tensor. `values(i)` gives the elements of `tensors[i]` when they are due.
/// Errors: `Internal` for shapes that do not fit their format, a failed write.
pub fn write(
    out: &mut dyn Write,
    path: &Path,
    metadata: &[(String, Value)],
    tensors: &[Planned],
    values: &mut dyn FnMut(usize) -> Outcome<Vec<f32>>,
) -> Outcome<()> {
    let failed = |e: std::io::Error| Problem::io(&e, "writing the model", path);
    let header = header(metadata, tensors)?;
    out.write_all(&header).map_err(failed)?;
    let mut bytes = Vec::new();
    for (i, tensor) in tensors.iter().enumerate() {
        let values = values(i)?;
        let size = size(tensor)?;
        if values.len() as u64 != tensor.shape.iter().product::<u64>() {
            return Err(Problem::internal(format!("{} has another number of values than its shape", tensor.name)));
        }
        for part in values.chunks(CHUNK) {
            bytes.clear();
            if !tensor.kind.append(part, &mut bytes) {
                let what = format!("weights are not written as {}", tensor.kind.name());
                return Err(Problem::new(Code::NotSupported, what).tensor(&tensor.name));
            }
            out.write_all(&bytes).map_err(failed)?;
        }
        out.write_all(&vec![0; (size.next_multiple_of(ALIGNMENT) - size) as usize]).map_err(failed)?;
    }
    Ok(())
}

/// Bytes of a tensor.
fn size(tensor: &Planned) -> Outcome<u64> {
    let (in_block, bytes) = tensor.kind.block();
    let elements = tensor.shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d));
    let whole = tensor.shape.last().is_some_and(|n| n % in_block == 0);
    let size = elements.filter(|_| whole).and_then(|n| (n / in_block).checked_mul(bytes));
    size.ok_or_else(|| {
        Problem::internal(format!("{} has a shape that {} cannot hold", tensor.name, tensor.kind.name()))
    })
}

fn header(metadata: &[(String, Value)], tensors: &[Planned]) -> Outcome<Vec<u8>> {
    let known: Metadata = metadata.iter().cloned().collect();
    if known.len() != metadata.len() {
        return Err(Problem::internal("a metadata key is written twice"));
    }
    let mut out = super::MAGIC.to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        put_text(&mut out, key);
        out.extend(kind_of(value).to_le_bytes());
        put_value(&mut out, value);
    }
    let mut offset = 0u64;
    for tensor in tensors {
        put_text(&mut out, &tensor.name);
        out.extend((tensor.shape.len() as u32).to_le_bytes());
        tensor.shape.iter().rev().for_each(|n| out.extend(n.to_le_bytes()));
        out.extend(tensor.kind.number().to_le_bytes());
        out.extend(offset.to_le_bytes());
        offset += size(tensor)?.next_multiple_of(ALIGNMENT);
    }
    out.resize(out.len().next_multiple_of(ALIGNMENT as usize), 0);
    Ok(out)
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn kind_of(value: &Value) -> u32 {
    match value {
        Value::U8(_) => 0,
        Value::I8(_) => 1,
        Value::U16(_) => 2,
        Value::I16(_) => 3,
        Value::U32(_) => 4,
        Value::I32(_) => 5,
        Value::F32(_) => 6,
        Value::Bool(_) => 7,
        Value::String(_) => 8,
        Value::Array(_) => 9,
        Value::U64(_) => 10,
        Value::I64(_) => 11,
        Value::F64(_) => 12,
    }
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::U8(n) => out.extend(n.to_le_bytes()),
        Value::I8(n) => out.extend(n.to_le_bytes()),
        Value::U16(n) => out.extend(n.to_le_bytes()),
        Value::I16(n) => out.extend(n.to_le_bytes()),
        Value::U32(n) => out.extend(n.to_le_bytes()),
        Value::I32(n) => out.extend(n.to_le_bytes()),
        Value::F32(x) => out.extend(x.to_le_bytes()),
        Value::Bool(flag) => out.push(u8::from(*flag)),
        Value::String(text) => put_text(out, text),
        Value::Array(array) => put_array(out, array),
        Value::U64(n) => out.extend(n.to_le_bytes()),
        Value::I64(n) => out.extend(n.to_le_bytes()),
        Value::F64(x) => out.extend(x.to_le_bytes()),
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    let mut put = |kind: u32, count: usize, elements: Vec<u8>| {
        out.extend(kind.to_le_bytes());
        out.extend((count as u64).to_le_bytes());
        out.extend(elements);
    };
    match array {
        Array::U8(all) => put(0, all.len(), all.clone()),
        Array::I8(all) => put(1, all.len(), all.iter().flat_map(|n| n.to_le_bytes()).collect()),
        Array::U16(all) => put(2, all.len(), all.iter().flat_map(|n| n.to_le_bytes()).collect()),
        Array::I16(all) => put(3, all.len(), all.iter().flat_map(|n| n.to_le_bytes()).collect()),
        Array::U32(all) => put(4, all.len(), all.iter().flat_map(|n| n.to_le_bytes()).collect()),
        Array::I32(all) => put(5, all.len(), all.iter().flat_map(|n| n.to_le_bytes()).collect()),
        Array::F32(all) => put(6, all.len(), all.iter().flat_map(|n| n.to_le_bytes()).collect()),
        Array::Bool(all) => put(7, all.len(), all.iter().map(|flag| u8::from(*flag)).collect()),
        Array::Strings(all) => {
            let mut elements = Vec::new();
            all.iter().for_each(|text| put_text(&mut elements, text));
            put(8, all.len(), elements);
        }
        Array::Arrays(all) => {
            let mut elements = Vec::new();
            all.iter().for_each(|inner| put_array(&mut elements, inner));
            put(9, all.len(), elements);
        }
        Array::U64(all) => put(10, all.len(), all.iter().flat_map(|n| n.to_le_bytes()).collect()),
        Array::I64(all) => put(11, all.len(), all.iter().flat_map(|n| n.to_le_bytes()).collect()),
        Array::F64(all) => put(12, all.len(), all.iter().flat_map(|n| n.to_le_bytes()).collect()),
    }
}

/// Scaling of rotary embeddings that is said in metadata.
fn scaling(config: &ModelConfig) -> Vec<(String, Value)> {
    let key = |name: &str| format!("llama.rope.scaling.{name}");
    match config.rope_scaling {
        None | Some(RopeScaling::Llama3 { .. }) => Vec::new(),
        Some(RopeScaling::Linear { factor }) => {
            vec![(key("type"), "linear".into()), (key("factor"), Value::F32(factor as f32))]
        }
        Some(RopeScaling::Yarn { factor, original_context, .. }) => vec![
            (key("type"), "yarn".into()),
            (key("factor"), Value::F32(factor as f32)),
            (key("original_context_length"), Value::U32(original_context)),
        ],
    }
}

/// Llama 3's scaling as divisors. Errors: `NotSupported` for parameters that could not be read again.
fn divisors(config: &ModelConfig) -> Outcome<Option<Vec<f32>>> {
    let cannot = |what: &str| {
        let what = format!("a GGUF file cannot say {what}");
        Err(Problem::new(Code::NotSupported, what).field("rope_scaling").remedy("export as safetensors"))
    };
    let (theta, width) = (config.rope_theta, config.head_dim);
    match config.rope_scaling {
        Some(RopeScaling::Llama3 { factor, low_freq_factor: low, high_freq_factor: high, original_context }) => {
            let scaling = Llama3 { factor, low, high, original_context };
            let divisors = scaling.divisors(theta, width);
            match Llama3::recover(&divisors, theta, width) {
                Ok(read) if read == scaling => Ok(Some(divisors)),
                _ => cannot("how these rotary embeddings are scaled: not as in any published Llama 3"),
            }
        }
        Some(RopeScaling::Yarn { factor, beta_fast, beta_slow, attention_factor, truncate, .. }) => {
            let usual = 0.1 * factor.ln() + 1.0;
            if (beta_fast, beta_slow, truncate) != (32.0, 1.0, true) || (attention_factor - usual).abs() > 1e-6 {
                return cannot("YaRN with other parameters than its authors'");
            }
            Ok(None)
        }
        _ => Ok(None),
    }
}
