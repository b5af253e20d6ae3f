//! The header: read, parsed and held against the file's length before anything else is believed.

use super::{Dtype, TensorSpec};
use protocol::{Code, Outcome, Problem, limits};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use std::collections::{BTreeMap, HashSet};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of the length before the header.
const LENGTH_BYTES: u64 = 8;

/// A checked header: tensors in the order of their bytes, which they cover without hole or overlap.
#[derive(Debug)]
pub(super) struct Header {
    pub metadata: BTreeMap<String, String>,
    pub tensors: Vec<TensorSpec>,
    /// Begin and end of each tensor, from `data_start`.
    pub offsets: Vec<(u64, u64)>,
    pub data_start: u64,
}

/// Reads and checks the header of an open file.
pub(super) fn read(file: &std::fs::File, path: &Path) -> Outcome<Header> {
    let length = crate::folder::length(file, path)?;
    let text = header_text(file, length, path).map_err(|p| p.file(path))?;
    let data_start = LENGTH_BYTES + text.len() as u64;
    let raw: Raw = serde_json::from_str(&text).map_err(|e| not_json(&e).file(path))?;
    check(raw, data_start, length).map_err(|p| p.file(path))
}

fn header_text(file: &std::fs::File, length: u64, path: &Path) -> Outcome<String> {
    let mut start = [0u8; 64];
    let known = length.min(start.len() as u64) as usize;
    file.read_exact_at(&mut start[..known], 0).map_err(|e| Problem::io(&e, "reading the header", path))?;
    disguise(&start[..known])?;
    if length < LENGTH_BYTES {
        let what = format!("the file is cut: it has {length} bytes, too short for the 8-byte header length");
        return Err(Problem::new(Code::FileTruncated, what).remedy("copy or download the file again"));
    }
    let mut prefix = [0u8; LENGTH_BYTES as usize];
    prefix.copy_from_slice(&start[..LENGTH_BYTES as usize]);
    let n = u64::from_le_bytes(prefix);
    if n > limits::SAFETENSORS_HEADER_BYTES {
        let limit = limits::SAFETENSORS_HEADER_BYTES;
        let what = format!("the header is said to have {n} bytes; that is too large, the limit is {limit}");
        return Err(Problem::new(Code::TooLarge, what).remedy("this is no safetensors file, or it is damaged"));
    }
    if n > length - LENGTH_BYTES {
        let what = format!("the header is said to have {n} bytes, beyond the end of the file ({length} bytes)");
        return Err(Problem::new(Code::FileTruncated, what).remedy("copy or download the file again"));
    }
    let mut bytes = vec![0u8; n as usize];
    file.read_exact_at(&mut bytes, LENGTH_BYTES).map_err(|e| Problem::io(&e, "reading the header", path))?;
    String::from_utf8(bytes).map_err(|_| Problem::new(Code::FileMalformed, "the header is not UTF-8"))
}

/// Names the files that most often lie under a `.safetensors` name without being one.
fn disguise(start: &[u8]) -> Outcome<()> {
    let problem = if start.is_empty() {
        Problem::new(Code::FileEmpty, "the weights file is empty (0 bytes)").remedy("copy or download it again")
    } else if start.starts_with(b"version https://git-lfs") {
        Problem::new(Code::FormatUnknown, "this is a Git LFS pointer file, not the weights")
            .remedy("run \"git lfs pull\" in the folder it came from")
    } else if is_pickle(start) {
        pickle()
    } else if start.starts_with(b"GGUF") {
        Problem::new(Code::FormatUnknown, "this is a GGUF file under the name of a safetensors file")
            .remedy("give the GGUF file itself as the model")
    } else {
        return Ok(());
    };
    Err(problem)
}

/// True for what `torch.save` writes: a zip, or a bare pickle of protocol 2 and up.
pub(crate) fn is_pickle(start: &[u8]) -> bool {
    start.starts_with(b"PK\x03\x04") || (start.len() > 1 && start[0] == 0x80 && (2..=5).contains(&start[1]))
}

/// The refusal of a pickle.
pub(crate) fn pickle() -> Problem {
    Problem::new(Code::CodeInFile, "these weights are a PyTorch pickle, which can run code when it is loaded")
        .why("a pickle is a program; it was not opened")
        .remedy("convert the model to safetensors where it came from (save_pretrained writes it)")
}

fn not_json(e: &serde_json::Error) -> Problem {
    let text = e.to_string();
    let what = if text.contains("unknown variant") {
        "the header names an element type (dtype) that does not exist"
    } else if text.contains("twice") {
        "the header names a tensor twice (duplicate)"
    } else {
        "the header is not the JSON it should be"
    };
    Problem::new(Code::FileMalformed, what).why(text)
}

fn check(raw: Raw, data_start: u64, length: u64) -> Outcome<Header> {
    let mut tensors = raw.tensors;
    tensors.sort_by_key(|(_, t)| t.data_offsets);
    let mut end = 0;
    for (name, tensor) in &tensors {
        end = tensor.check(name, end)?;
    }
    let expected = data_start.checked_add(end).ok_or_else(|| Problem::new(Code::FileMalformed, "offsets overflow"))?;
    if length < expected {
        let what = format!("the file is cut: {length} of {expected} bytes are there");
        return Err(Problem::new(Code::FileTruncated, what).remedy("copy or download the file again"));
    }
    if length > expected {
        let what = format!("{} bytes follow after the last tensor; they belong to none", length - expected);
        return Err(Problem::new(Code::FileMalformed, what));
    }
    let offsets = tensors.iter().map(|(_, t)| t.data_offsets).collect();
    let tensors = tensors.into_iter().map(|(name, t)| TensorSpec { name, dtype: t.dtype, shape: t.shape }).collect();
    Ok(Header { metadata: raw.metadata, tensors, offsets, data_start })
}

/// A header as written; nothing in it has been checked but its types and that no name comes twice.
struct Raw {
    metadata: BTreeMap<String, String>,
    tensors: Vec<(String, RawTensor)>,
}

#[derive(Deserialize)]
struct RawTensor {
    dtype: Dtype,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl RawTensor {
    /// Checks the tensor against where the one before it ends; gives its own end.
    fn check(&self, name: &str, start: u64) -> Outcome<u64> {
        let bad = |what: String| Err(Problem::new(Code::FileMalformed, what).tensor(name));
        let (begin, end) = self.data_offsets;
        if end < begin {
            return bad(format!("the offsets of '{name}' are reversed: {begin} to {end}"));
        }
        if begin < start {
            return bad(format!("'{name}' begins at offset {begin} and overlaps the tensor that ends at {start}"));
        }
        if begin > start {
            return bad(format!(
                "'{name}' begins at offset {begin} and leaves a hole after the tensor that ends at {start}"
            ));
        }
        let elements = self.shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d));
        let Some(bits) = elements.and_then(|n| n.checked_mul(self.dtype.bits())) else {
            return bad(format!("the shape {:?} of '{name}' is too large: its size overflows", self.shape));
        };
        if bits % 8 != 0 {
            return bad(format!("the shape {:?} of '{name}' does not end on a whole byte", self.shape));
        }
        if end - begin != bits / 8 {
            let (shape, dtype) = (&self.shape, self.dtype.name());
            return bad(format!(
                "the shape {shape:?} of '{name}' needs {} bytes of {dtype}, its offsets give {}",
                bits / 8,
                end - begin
            ));
        }
        Ok(end)
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Raw, D::Error> {
        d.deserialize_map(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut raw = Raw { metadata: BTreeMap::new(), tensors: Vec::new() };
        let mut seen = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if !seen.insert(name.clone()) {
                return Err(A::Error::custom(format!("\"{name}\" is there twice")));
            }
            if name == "__metadata__" {
                raw.metadata = map.next_value::<Option<BTreeMap<String, String>>>()?.unwrap_or_default();
            } else {
                raw.tensors.push((name, map.next_value()?));
            }
        }
        Ok(raw)
    }
}
