//! Writing: the header first, then tensor by tensor, hashed on the way.

use super::TensorSpec;
use protocol::{Code, Outcome, Problem};
use std::io::Write;
use std::path::Path;
use xxhash_rust::xxh3::Xxh3;

/// Values converted at once.
const CHUNK: usize = 1 << 18;
/// The data starts at a multiple of this, so that a mapping has aligned elements.
const ALIGNMENT: usize = 8;

/// What a write produced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes written.
    pub bytes: u64,
    /// XXH3-128 of them, as 32 hex digits.
    pub xxh3: String,
}

/// Writes a file to `out`: `values(i)` gives the elements of `tensors[i]` when they are due, so only one tensor is in
/// memory. Tensors are F32, BF16 or F16 and keep the order given. `path` is for error messages; nothing is flushed or
/// synchronised here.
pub fn write(
    out: &mut dyn Write,
    path: &Path,
    tensors: &[TensorSpec],
    values: &mut dyn FnMut(usize) -> Outcome<Vec<f32>>,
) -> Outcome<Written> {
    let mut sink = Hashed { out, path, bytes: 0, hash: Xxh3::new() };
    sink.put(&header(tensors)?)?;
    for (i, tensor) in tensors.iter().enumerate() {
        let values = values(i)?;
        if values.len() as u64 != tensor.elements() {
            let what = format!("{} has {} elements, {} were given", tensor.name, tensor.elements(), values.len());
            return Err(Problem::internal(what));
        }
        sink.put_values(tensor, &values)?;
    }
    Ok(Written { bytes: sink.bytes, xxh3: format!("{:032x}", sink.hash.digest128()) })
}

impl TensorSpec {
    /// Elements.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }
}

/// Length and JSON of the header, padded with spaces.
fn header(tensors: &[TensorSpec]) -> Outcome<Vec<u8>> {
    let mut json = serde_json::Map::new();
    let mut text = String::from("{\"__metadata__\":{\"format\":\"pt\"}");
    let mut begin = 0u64;
    for tensor in tensors {
        let end = begin + tensor.elements() * tensor.dtype.bits() / 8;
        let value = serde_json::json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [begin, end]});
        text.push_str(&format!(",{}:{value}", serde_json::Value::from(tensor.name.as_str())));
        if json.insert(tensor.name.clone(), serde_json::Value::Null).is_some() {
            return Err(Problem::internal(format!("tensor {} is written twice", tensor.name)));
        }
        begin = end;
    }
    text.push('}');
    while text.len() % ALIGNMENT != 0 {
        text.push(' ');
    }
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    Ok(bytes)
}

struct Hashed<'a> {
    out: &'a mut dyn Write,
    path: &'a Path,
    bytes: u64,
    hash: Xxh3,
}

impl Hashed<'_> {
    fn put(&mut self, bytes: &[u8]) -> Outcome<()> {
        self.out.write_all(bytes).map_err(|e| Problem::io(&e, "writing the weights", self.path))?;
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn put_values(&mut self, tensor: &TensorSpec, values: &[f32]) -> Outcome<()> {
        let mut bytes = Vec::with_capacity(CHUNK.min(values.len()) * 4);
        for part in values.chunks(CHUNK) {
            bytes.clear();
            if !tensor.dtype.append(part, &mut bytes) {
                let what = format!("weights are not written as {}", tensor.dtype.name());
                return Err(Problem::new(Code::NotSupported, what).tensor(&tensor.name));
            }
            self.put(&bytes)?;
        }
        Ok(())
    }
}
