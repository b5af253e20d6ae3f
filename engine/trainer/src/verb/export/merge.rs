//! The values of an export, one tensor at a time, so that no second copy of the model is ever in memory.

use crate::verb::Lines;
use crate::verb::subject::{Subject, cpu};
use formats::gguf;
use formats::safetensors::{self, Dtype, TensorSpec};
use kernels::{Buffer, DType, Device, Stream, matmul};
use protocol::facts::{ModelConfig, PROJECTIONS, TensorShape};
use protocol::plan::Method;
use protocol::{Code, Outcome, Problem};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Gives tensors as they are, or with the adapter in them.
pub struct Values<'a> {
    subject: &'a Subject,
    merge: bool,
    device: Device,
    stream: Stream,
}

impl<'a> Values<'a> {
    /// The base's tensors, each with the adapter's update added: W + (alpha / rank) B A.
    pub fn merged(subject: &'a Subject) -> Values<'a> {
        Values::new(subject, true)
    }

    /// Tensors as they are.
    pub fn plain(subject: &'a Subject) -> Values<'a> {
        Values::new(subject, false)
    }

    fn new(subject: &'a Subject, merge: bool) -> Values<'a> {
        let device = cpu();
        Values { subject, merge, stream: device.stream(), device }
    }

    /// The values of one tensor.
    fn of(&self, tensor: &TensorShape) -> Outcome<Vec<f32>> {
        let weight = self.load(tensor)?;
        if self.merge {
            self.add_update(tensor, &weight)?;
        }
        Ok(self.stream.to_host(&weight))
    }

    fn load(&self, tensor: &TensorShape) -> Outcome<Buffer> {
        let no_room = |e: kernels::AllocError| {
            Problem::new(Code::OutOfMemory, "there is no memory for this tensor")
                .why(e.to_string())
                .tensor(&tensor.name)
        };
        let buffer = self.device.alloc(tensor.elements() as usize, DType::F32).map_err(no_room)?;
        self.subject.weights.load(tensor, &self.stream, &buffer)?;
        Ok(buffer)
    }

    fn add_update(&self, tensor: &TensorShape, weight: &Buffer) -> Outcome<()> {
        let Method::Lora { rank, alpha, targets, .. } = &self.subject.method else { return Ok(()) };
        let Some((a, b)) = adapter_of(&self.subject.config, tensor, *rank, targets) else { return Ok(()) };
        let shape = matmul::Shape { m: b.shape[0] as usize, n: a.shape[1] as usize, k: *rank as usize };
        let scale = (alpha / f64::from(*rank)) as f32;
        matmul::nn(&self.stream, weight, &self.load(&b)?, &self.load(&a)?, shape, scale, 1.0);
        Ok(())
    }
}

/// The two adapter tensors over a weight, A [rank, in] and B [out, rank]; `None` where it has none.
fn adapter_of(
    config: &ModelConfig,
    tensor: &TensorShape,
    rank: u32,
    targets: &[String],
) -> Option<(TensorShape, TensorShape)> {
    let path = tensor.name.strip_suffix(".weight")?;
    let name = path.rsplit('.').next().filter(|name| PROJECTIONS.contains(name))?;
    targets.iter().find(|target| *target == name)?;
    let [out, input] = config.projection(name)?;
    let half = |letter: &str, shape: [u64; 2]| TensorShape {
        name: format!("base_model.model.{path}.lora_{letter}.weight"),
        shape: shape.to_vec(),
    };
    Some((half("A", [u64::from(rank), input]), half("B", [out, u64::from(rank)])))
}

/// Writes tensors to a new file and makes it durable.
pub fn write_weights<W: Write>(
    values: &Values<'_>,
    tensors: &[TensorShape],
    dtype: Dtype,
    path: &Path,
    lines: &mut Lines<W>,
) -> Outcome<()> {
    let mut out = create(path)?;
    let spec = |t: &TensorShape| TensorSpec { name: t.name.clone(), dtype, shape: t.shape.clone() };
    let specs: Vec<TensorSpec> = tensors.iter().map(spec).collect();
    let total = tensors.len() as u64;
    safetensors::write(&mut out, path, &specs, &mut |i| {
        lines.progress("writing", i as u64 + 1, total, "tensors")?;
        values.of(&tensors[i])
    })?;
    finish(out, path)
}

/// Writes a GGUF file and makes it durable.
pub fn write_gguf<W: Write>(
    values: &Values<'_>,
    draft: &gguf::write::Draft,
    path: &Path,
    lines: &mut Lines<W>,
) -> Outcome<()> {
    let mut out = create(path)?;
    let (mut done, total) = (0, draft.tensors() as u64);
    draft.write(&mut out, path, &mut |tensor| {
        done += 1;
        lines.progress("writing", done, total, "tensors")?;
        values.of(tensor)
    })?;
    finish(out, path)
}

fn create(path: &Path) -> Outcome<BufWriter<File>> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.map(BufWriter::new).map_err(|e| failed(&e, path))
}

fn finish(out: BufWriter<File>, path: &Path) -> Outcome<()> {
    let file = out.into_inner().map_err(|e| failed(e.error(), path))?;
    file.sync_all().map_err(|e| failed(&e, path))
}

fn failed(e: &std::io::Error, path: &Path) -> Problem {
    Problem::io(e, "writing an export", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_targeted_projections_get_an_update() {
        let config = plan::preset("nano", 512).unwrap();
        let targets = ["q_proj".to_owned(), "down_proj".to_owned()];
        let updated: Vec<String> = config
            .tensors()
            .iter()
            .filter(|tensor| adapter_of(&config, tensor, 4, &targets).is_some())
            .map(|tensor| tensor.name.clone())
            .collect();
        assert_eq!(updated.len(), 2 * config.layers as usize);
        let known: Vec<String> = config.adapter_tensors(4, &targets).into_iter().map(|t| t.name).collect();
        for tensor in config.tensors() {
            if let Some((a, b)) = adapter_of(&config, &tensor, 4, &targets) {
                assert!(known.contains(&a.name) && known.contains(&b.name), "{a:?} {b:?}");
            }
        }
    }
}
