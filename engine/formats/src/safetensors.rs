//! Safetensors files: an 8-byte header length, a JSON header, then the bytes of all tensors without holes.
//!
//! Reading goes through `pread`, not a mapping: a file that is cut while it is read is an error, not a signal. What is
//! accepted is what the reference implementation accepts, less files that name a tensor twice.
//!
//! Not here: which tensors a model has (`model_folder`), numbers on devices (`kernels`).

mod check;
mod dtype;
mod write;

pub(crate) use check::{is_pickle, pickle};
pub use dtype::Dtype;
pub use write::{Written, write};

use crate::folder;
use protocol::{Code, Outcome, Problem};
use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes read from disk at once while converting: enough to keep a disk busy, small beside any tensor worth naming.
const CHUNK: usize = 1 << 20;

/// Name, type and shape of one tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Name.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions; none for a scalar.
    pub shape: Vec<u64>,
}

/// An open file whose header has been checked in full.
#[derive(Debug)]
pub struct File {
    file: std::fs::File,
    path: PathBuf,
    header: check::Header,
    index: HashMap<String, usize>,
}

/// One tensor of an open file.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    /// Its name, type and shape.
    pub spec: &'a TensorSpec,
    file: &'a File,
    offset: u64,
    bytes: u64,
}

impl File {
    /// Opens a file and checks its whole header; nothing is allocated by an unchecked number. Errors: `FileEmpty`,
    /// `FileTruncated`, `FileMalformed`, `TooLarge`, `CodeInFile` for a pickle, `FormatUnknown` for a Git LFS pointer.
    pub fn open(path: &Path) -> Outcome<File> {
        File::of(folder::open(path)?, path)
    }

    /// The same for a file that is open already; `path` is for messages.
    pub(crate) fn of(file: std::fs::File, path: &Path) -> Outcome<File> {
        let header = check::read(&file, path)?;
        let index = header.tensors.iter().enumerate().map(|(i, t)| (t.name.clone(), i)).collect();
        Ok(File { file, path: path.to_owned(), header, index })
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Free-form strings of the header.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.header.metadata
    }

    /// All tensors in the order of their bytes.
    pub fn tensors(&self) -> impl Iterator<Item = TensorView<'_>> {
        (0..self.header.tensors.len()).map(|i| self.view(i))
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<TensorView<'_>> {
        self.index.get(name).map(|&i| self.view(i))
    }

    fn view(&self, i: usize) -> TensorView<'_> {
        let (begin, end) = self.header.offsets[i];
        let offset = self.header.data_start + begin;
        TensorView { spec: &self.header.tensors[i], file: self, offset, bytes: end - begin }
    }
}

impl TensorView<'_> {
    /// Elements.
    pub fn elements(&self) -> u64 {
        self.spec.shape.iter().product()
    }

    /// Bytes in the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads the tensor as f32 into `out`, which has as many elements; never more than one chunk besides it in memory.
    /// Errors: `TensorMismatch` for a wrong length or a type that does not become f32, `FileTruncated`.
    pub fn read_f32(&self, out: &mut [f32]) -> Outcome<()> {
        if out.len() as u64 != self.elements() {
            let what = format!("the tensor has {} elements, {} were expected", self.elements(), out.len());
            return Err(self.problem(Code::TensorMismatch, what));
        }
        let Some(convert) = self.spec.dtype.to_f32() else {
            let what = format!("numbers of type {} cannot be trained on", self.spec.dtype.name());
            return Err(self.problem(Code::TensorMismatch, what).remedy("save the weights as F32, BF16 or F16"));
        };
        let width = self.spec.dtype.bits() as usize / 8;
        let mut buffer = vec![0u8; CHUNK.min(out.len() * width)];
        let mut at = self.offset;
        for part in out.chunks_mut(CHUNK / width) {
            let bytes = &mut buffer[..part.len() * width];
            self.file.file.read_exact_at(bytes, at).map_err(|e| self.failed(e))?;
            convert(bytes, part);
            at += bytes.len() as u64;
        }
        Ok(())
    }

    fn failed(&self, e: std::io::Error) -> Problem {
        if e.kind() == std::io::ErrorKind::UnexpectedEof {
            return self.problem(Code::FileTruncated, "the file was cut while it was being read");
        }
        Problem::io(&e, "reading the weights", &self.file.path).tensor(&self.spec.name)
    }

    fn problem(&self, code: Code, what: impl Into<String>) -> Problem {
        Problem::new(code, what).file(&self.file.path).tensor(&self.spec.name)
    }
}

#[cfg(test)]
mod tests;
