//! What the operations' tests share: devices, numbers and comparisons.

use crate::random::philox;
use crate::{Buffer, DType, Device, Element, Stream};

/// Every backend there is, with the name a failure prints.
pub(crate) fn backends() -> Vec<(&'static str, Device)> {
    let names = ["cpu, 1 thread", "cpu, 2 threads", "cpu, 3 threads", "hidden, 2 threads"];
    names.into_iter().zip([Device::cpu(1), Device::cpu(2), Device::cpu(3), Device::hidden(2)]).collect()
}

/// Runs `body` on every backend and checks that all of them return the same bits; returns them.
pub(crate) fn on_every_backend(body: impl Fn(&Bench) -> Vec<Vec<f32>>) -> Vec<Vec<f32>> {
    let mut first: Option<Vec<Vec<f32>>> = None;
    for (name, device) in backends() {
        let results = body(&Bench::new(&device));
        let bits = |results: &[Vec<f32>]| results.iter().map(|r| r.iter().map(|x| x.to_bits()).collect()).collect();
        let (these, those): (Vec<Vec<u32>>, _) = (bits(&results), first.get_or_insert(results));
        assert!(these == bits(those), "{name} differs from one CPU thread");
    }
    first.unwrap_or_default()
}

/// A stream with short ways to fill and read buffers.
pub(crate) struct Bench {
    pub stream: Stream,
}

impl Bench {
    pub(crate) fn new(device: &Device) -> Bench {
        Bench { stream: device.stream() }
    }

    pub(crate) fn of<T: Element>(&self, values: &[T]) -> Buffer {
        let buffer = self.stream.device().alloc(values.len(), T::DTYPE).unwrap();
        self.stream.copy_from_host(&buffer, values);
        buffer
    }

    /// A buffer that holds what no operation may read.
    pub(crate) fn empty(&self, len: usize) -> Buffer {
        self.of(&vec![f32::NAN; len])
    }

    pub(crate) fn zeros(&self, len: usize) -> Buffer {
        self.stream.device().alloc(len, DType::F32).unwrap()
    }

    pub(crate) fn read(&self, buffers: &[&Buffer]) -> Vec<Vec<f32>> {
        buffers.iter().map(|buffer| self.stream.to_host(buffer)).collect()
    }
}

/// `len` numbers in -1..1 that depend on the seed alone.
pub(crate) fn uniform(len: usize, seed: u32) -> Vec<f32> {
    let word = |i: usize| philox([seed, 7], i as u32, [0; 3])[0][0];
    (0..len).map(|i| word(i) as f32 / 2_147_483_648.0 - 1.0).collect()
}

/// `len` integers below `below` that depend on the seed alone.
pub(crate) fn integers(len: usize, below: u32, seed: u32) -> Vec<u32> {
    (0..len).map(|i| philox([seed, 9], i as u32, [0; 3])[0][0] % below).collect()
}

pub(crate) fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|x| f64::from(*x)).collect()
}

/// Asserts that each element is within `tolerance · (1 + |wanted|)`.
#[track_caller]
pub(crate) fn close(what: &str, got: &[f32], wanted: &[f64], tolerance: f64) {
    assert_eq!(got.len(), wanted.len(), "{what}: lengths");
    for (i, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        let distance = (f64::from(*got) - wanted).abs();
        assert!(distance <= tolerance * (1.0 + wanted.abs()), "{what}[{i}]: {got}, wanted {wanted}");
    }
}

/// Asserts that `gradient` is that of `loss` at `x`, by central differences in f64.
#[track_caller]
pub(crate) fn gradient(what: &str, x: &[f64], gradient: &[f64], loss: impl Fn(&[f64]) -> f64) {
    const STEP: f64 = 1e-5;
    assert_eq!(x.len(), gradient.len(), "{what}: lengths");
    let mut moved = x.to_vec();
    for (i, wanted) in gradient.iter().enumerate() {
        let mut at = |value| {
            moved[i] = value;
            loss(&moved)
        };
        let slope = (at(x[i] + STEP) - at(x[i] - STEP)) / (2.0 * STEP);
        moved[i] = x[i];
        assert!((slope - wanted).abs() < 1e-6 * (1.0 + wanted.abs()), "{what}[{i}]: {wanted}, differences say {slope}");
    }
}

pub(crate) fn inner(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
