//! What the operations' tests share: devices, numbers and comparisons.

use crate::random::philox;
use crate::{Buffer, Compute, DType, Device, Element, Stream, cuda};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use virtual_gpu::{Order, Script};

/// Backends whose results are the same bits. Between groups they agree within the tolerance of each test.
pub(crate) enum Backends {
    /// The CPU with any number of threads, and the hidden device.
    Host(Vec<(&'static str, Device)>),
    /// A CUDA device, real or virtual, multiplying in f32.
    Cuda(Device),
}

/// All groups that there are here.
pub(crate) fn every_backend() -> Vec<Backends> {
    let names = ["cpu, 1 thread", "cpu, 2 threads", "cpu, 3 threads", "hidden, 2 threads"];
    let host = names.into_iter().zip([Device::cpu(1), Device::cpu(2), Device::cpu(3), Device::hidden(2)]);
    let cuda = cuda_device(Compute::F32).map(Backends::Cuda);
    std::iter::once(Backends::Host(host.collect())).chain(cuda).collect()
}

impl Backends {
    pub(crate) fn is_cuda(&self) -> bool {
        matches!(self, Backends::Cuda(_))
    }

    /// Runs `body` on every backend of the group, a CUDA device in each order of threads and once more, and checks that all
    /// of them return the same bits; returns them.
    pub(crate) fn agree(&self, body: impl Fn(&Bench) -> Vec<Vec<f32>>) -> Vec<Vec<f32>> {
        let mut first: Option<Vec<Vec<f32>>> = None;
        let mut compare = |name: &str, results: Vec<Vec<f32>>| {
            let bits = |results: &[Vec<f32>]| results.iter().map(|r| r.iter().map(|x| x.to_bits()).collect()).collect();
            let (these, those): (Vec<Vec<u32>>, _) = (bits(&results), first.get_or_insert(results));
            assert!(these == bits(those), "{name} differs from the first backend of its group");
        };
        match self {
            Backends::Host(devices) => {
                devices.iter().for_each(|(name, device)| compare(name, body(&Bench::new(device))));
            }
            Backends::Cuda(device) => {
                for order in [Order::Forward, Order::Reverse, Order::Random, Order::Forward] {
                    in_order(order, || compare(&format!("{order:?}"), body(&Bench::new(device))));
                }
            }
        }
        first.unwrap_or_default()
    }
}

/// CUDA device 0, opened once; `None` where there is none, and why is printed once.
pub(crate) fn cuda_device(compute: Compute) -> Option<Device> {
    static DEVICES: [OnceLock<Option<Device>>; 2] = [OnceLock::new(), OnceLock::new()];
    let open = || match cuda_is_there().then(|| Device::cuda(0, compute)) {
        Some(Ok(device)) => Some(device),
        Some(Err(error)) => panic!("there is a CUDA device that cannot be opened: {error}"),
        None => None,
    };
    DEVICES[usize::from(compute == Compute::Bf16)].get_or_init(open).clone()
}

/// Whether there is a CUDA device: the virtual one, or with `ANNEAL_GPU=real` a real one. Without, says so once.
pub(crate) fn cuda_is_there() -> bool {
    cuda_with(&Script::with_devices(DEVICES, 2 << 30))
}

/// As [`cuda_is_there`], where the virtual one is as `script` says: for processes of their own.
pub(crate) fn cuda_with(script: &Script) -> bool {
    static WHY_NOT: OnceLock<Option<String>> = OnceLock::new();
    let why_not = WHY_NOT.get_or_init(|| {
        let why_not = match virtual_gpu::install(script) {
            Ok(_) if cuda::libraries().usable() => None,
            Ok(_) => Some(cuda::libraries().missing()),
            Err(why) => Some(why.to_string()),
        };
        why_not.inspect(|why| eprintln!("skipped: no CUDA device ({why})"))
    });
    why_not.is_none()
}

/// Whether the CUDA device is the virtual one, which can be told to fail.
pub(crate) fn cuda_is_virtual() -> bool {
    cuda_is_there() && std::env::var_os("ANNEAL_GPU").is_none_or(|wanted| wanted != "real")
}

/// Set in the process that a test starts for itself.
const CHILD: &str = "ANNEAL_TEST_CHILD";

/// In a process that [`alone`] started for the test `name`: the folder it was given.
pub(crate) fn in_child(name: &str) -> Option<String> {
    let (of, folder) = std::env::var(CHILD).ok()?.split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned()))?;
    (of == name).then_some(folder)
}

/// Runs the test `name` in a process of its own, where no library is loaded, with these paths in its environment; what it
/// printed. It fails where the other one does.
#[track_caller]
pub(crate) fn alone(name: &str, folder: &Path, variables: &[(&str, &Path)]) -> String {
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again.args([name, "--exact", "--nocapture"]).env(CHILD, format!("{name} {}", folder.display()));
    again.env_remove("LD_LIBRARY_PATH").env_remove("CONDA_PREFIX").env_remove("VIRTUAL_ENV");
    let output = again.envs(variables.iter().copied()).output().unwrap();
    let words = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{words}");
    words
}

/// Devices of the virtual machine: 0 to 3 work, the others are there to fail.
const DEVICES: usize = 6;

/// Runs `work` while a virtual GPU takes threads in this order; a real one takes its own.
fn in_order(order: Order, work: impl FnOnce()) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    if cuda_is_virtual() {
        virtual_gpu::control().set_order(order);
        // Blocks side by side as well: none may wait for another.
        virtual_gpu::control().set_threads(if order == Order::Random { 2 } else { 1 });
    }
    work();
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
