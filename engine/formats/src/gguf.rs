//! GGUF files of the Llama family: header, tensors in all common number formats, and everything else of a model that they
//! hold (shape, tokenizer, chat template) as the Hugging Face files that say the same.
//!
//! Not here: which of these files a caller opens (`model_folder`, `files`), safetensors (`safetensors`).

mod config;
mod header;
mod model;
mod names;
mod quant;
mod rope;
mod value;
mod vocabulary;
pub mod write;

pub use header::{Metadata, TensorInfo};
pub(crate) use model::Model;
pub use quant::Type;
pub use value::{Array, Strings, Value};
pub(crate) use vocabulary::{companion, has_companion};

use crate::folder;
use protocol::{Code, Outcome, Problem};
use std::collections::HashMap;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What every file begins with.
pub(crate) const MAGIC: &[u8; 4] = b"GGUF";
/// Bytes read from disk at once while converting.
const CHUNK: usize = 1 << 20;

/// True for a regular file (or a link to one) that begins as GGUF does, whatever its name.
pub fn is_gguf(path: &Path) -> bool {
    let mut start = [0; MAGIC.len()];
    // A folder that is not opened first would be an error of its own for nothing.
    path.is_file() && folder::open(path).is_ok_and(|mut f| f.read_exact(&mut start).is_ok()) && start == *MAGIC
}

/// An open file whose header has been checked in full.
#[derive(Debug)]
pub struct File {
    file: std::fs::File,
    path: PathBuf,
    header: header::Header,
    index: HashMap<String, usize>,
}

impl File {
    /// Opens a file and checks its whole header; nothing is allocated by an unchecked number. Errors: `FileEmpty`,
    /// `FileTruncated`, `FileMalformed`, `TooLarge`; `NotSupported` for other versions, big-endian and split files, and
    /// tensors of other types.
    pub fn open(path: &Path) -> Outcome<File> {
        let file = folder::open(path)?;
        let header = header::read(&file, path)?;
        let index = header.tensors.iter().enumerate().map(|(i, t)| (t.name.clone(), i)).collect();
        Ok(File { file, path: path.to_owned(), header, index })
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.header.metadata
    }

    /// All tensors in the order of the file.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.header.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).map(|i| &self.header.tensors[*i])
    }

    /// Reads a tensor of this file as f32 into `out`, which has as many elements; never more than a chunk besides it in
    /// memory. Errors: `TensorMismatch` for a wrong length, `FileTruncated`, a failed read.
    pub fn read_f32(&self, tensor: &TensorInfo, out: &mut [f32]) -> Outcome<()> {
        self.check_length(tensor, out)?;
        let (values, bytes) = tensor.kind.block();
        let blocks = CHUNK / bytes as usize;
        let mut buffer = vec![0u8; blocks.min(out.len() / values as usize) * bytes as usize];
        let mut at = tensor.place.0;
        for part in out.chunks_mut(blocks * values as usize) {
            let bytes = &mut buffer[..part.len() / values as usize * bytes as usize];
            self.file.read_exact_at(bytes, at).map_err(|e| self.failed(e, tensor))?;
            tensor.kind.dequantise(bytes, part);
            at += bytes.len() as u64;
        }
        Ok(())
    }

    /// The same for a matrix; `target` says which row of `out` a row of the file becomes, each exactly once. Never more
    /// than a chunk, or one row where that is longer, besides `out` in memory.
    fn read_rows(&self, tensor: &TensorInfo, out: &mut [f32], target: impl Fn(usize) -> usize) -> Outcome<()> {
        self.check_length(tensor, out)?;
        let width = tensor.shape.last().map_or(1, |n| *n as usize);
        let (values, bytes) = tensor.kind.block();
        let row_bytes = width / values as usize * bytes as usize;
        let rows = out.len() / width;
        let at_once = (CHUNK / row_bytes).clamp(1, rows);
        let mut buffer = vec![0u8; at_once * row_bytes];
        for first in (0..rows).step_by(at_once) {
            let bytes = &mut buffer[..at_once.min(rows - first) * row_bytes];
            let at = tensor.place.0 + (first * row_bytes) as u64;
            self.file.read_exact_at(bytes, at).map_err(|e| self.failed(e, tensor))?;
            for (i, row) in bytes.chunks_exact(row_bytes).enumerate() {
                let begin = target(first + i) * width;
                tensor.kind.dequantise(row, &mut out[begin..begin + width]);
            }
        }
        Ok(())
    }

    fn check_length(&self, tensor: &TensorInfo, out: &[f32]) -> Outcome<()> {
        if out.len() as u64 == tensor.elements() {
            return Ok(());
        }
        let what = format!("the tensor has {} elements, {} were expected", tensor.elements(), out.len());
        Err(Problem::new(Code::TensorMismatch, what).file(&self.path).tensor(&tensor.name))
    }

    fn failed(&self, e: std::io::Error, tensor: &TensorInfo) -> Problem {
        if e.kind() == std::io::ErrorKind::UnexpectedEof {
            let what = "the file was cut while it was being read";
            return Problem::new(Code::FileTruncated, what).file(&self.path).tensor(&tensor.name);
        }
        Problem::io(&e, "reading the weights", &self.path).tensor(&tensor.name)
    }
}

#[cfg(test)]
mod tests;
