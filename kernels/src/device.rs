//! A device: its threads, its memory and the count of that memory.
//!
//! Not here: the order of work (`stream.rs`), views of memory (`buffer.rs`).

use crate::buffer::{Buffer, DType, Storage};
use crate::cuda::{Compute, DeviceError, Gpu, Memory};
use crate::stream::Stream;
use crate::team::Team;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A cheap handle on a device. Clones are the same device.
#[derive(Clone, Debug)]
pub struct Device(Arc<Inner>);

/// Why no memory was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// The device was told to keep to a budget and this would pass it.
    #[error("{asked} bytes were asked for while {in_use} of a budget of {budget} are in use")]
    Budget {
        /// Bytes of the refused allocation.
        asked: u64,
        /// Bytes in use at that moment.
        in_use: u64,
        /// The budget in bytes.
        budget: u64,
    },
    /// The machine itself has no more.
    #[error("the machine has no {asked} bytes left to give")]
    Exhausted {
        /// Bytes of the refused allocation (`u64::MAX` where the count itself does not fit).
        asked: u64,
    },
    /// The device has no more, whatever the budget says: other programs may hold some, or it is in pieces.
    #[error("{asked} bytes were asked for while {free} of the device's {total} are free")]
    Device {
        /// Bytes of the refused allocation.
        asked: u64,
        /// Bytes free on the device at that moment.
        free: u64,
        /// Bytes that the device has.
        total: u64,
    },
}

#[derive(Debug)]
struct Inner {
    kind: Kind,
    team: Team,
    /// Held by whoever runs an operation: it makes buffers, which are shared, safe to write to.
    turn: Mutex<()>,
    ledger: Arc<Ledger>,
}

enum Kind {
    Cpu,
    Hidden,
    Cuda(Arc<Gpu>),
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// CUDA devices by number.
const CUDA_NAMES: [&str; 16] = [
    "cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:4", "cuda:5", "cuda:6", "cuda:7", "cuda:8", "cuda:9", "cuda:10",
    "cuda:11", "cuda:12", "cuda:13", "cuda:14", "cuda:15",
];

impl Kind {
    fn name(&self) -> &'static str {
        match self {
            Kind::Cpu => "cpu",
            Kind::Hidden => "hidden",
            Kind::Cuda(gpu) => CUDA_NAMES.get(gpu.index()).unwrap_or(&"cuda"),
        }
    }
}

/// What hidden memory is XORed with between operations: as f32 it turns most values into absurd ones.
const SCRAMBLE: u32 = 0x7FA5_5A3C;

impl Device {
    /// The CPU, with `threads` threads of its own (at least one). Results do not depend on their number.
    ///
    /// # Panics
    /// When the operating system gives no threads.
    pub fn cpu(threads: usize) -> Device {
        Device::new(Kind::Cpu, threads)
    }

    /// A test double with the CPU's arithmetic, bit for bit, and an accelerator's manners: memory is scrambled between
    /// operations, and operations wait until the stream is synchronised.
    ///
    /// # Panics
    /// When the operating system gives no threads.
    pub fn hidden(threads: usize) -> Device {
        Device::new(Kind::Hidden, threads)
    }

    /// CUDA device `index`, from 0, multiplying matrices in `compute`. Opens it: the first time on a machine its kernels
    /// are compiled, which takes some seconds. Two handles made by two calls are two devices: their buffers do not mix.
    ///
    /// # Errors
    /// [`DeviceError`]: what is missing, or which call failed. Nothing is held then.
    pub fn cuda(index: usize, compute: Compute) -> Result<Device, DeviceError> {
        Ok(Device::new(Kind::Cuda(Arc::new(Gpu::open(index, compute)?)), 1))
    }

    fn new(kind: Kind, threads: usize) -> Device {
        let ledger = Arc::new(Ledger::default());
        Device(Arc::new(Inner { kind, team: Team::new(threads), turn: Mutex::new(()), ledger }))
    }

    /// A new, empty stream of work on this device.
    pub fn stream(&self) -> Stream {
        Stream::new(self.clone())
    }

    /// A zeroed buffer of `len` elements, [`Device::bytes_of`]`(len)` bytes.
    ///
    /// # Errors
    /// [`AllocError`]; nothing is allocated then.
    pub fn alloc(&self, len: usize, dtype: DType) -> Result<Buffer, AllocError> {
        let bytes = Device::bytes_of(len).ok_or(AllocError::Exhausted { asked: u64::MAX })?;
        let charge = self.0.ledger.charge(bytes)?;
        let storage = match &self.0.kind {
            Kind::Cuda(gpu) => Storage::cuda(len, Memory::zeroed(gpu, bytes)?, charge),
            Kind::Cpu | Kind::Hidden => Storage::zeroed(len, self.scramble(), charge)?,
        };
        Ok(Buffer::new(Arc::new(storage), self.clone(), len, dtype))
    }

    /// Bytes that a buffer of `len` elements takes: four each, in whole lines of 64; `None` where that has no number.
    pub fn bytes_of(len: usize) -> Option<u64> {
        (len as u64).checked_mul(4)?.checked_next_multiple_of(64).filter(|bytes| *bytes <= isize::MAX as u64)
    }

    /// Sets or lifts the most bytes this device may hold. Buffers already given stay.
    pub fn set_budget(&self, bytes: Option<u64>) {
        self.0.ledger.lock().budget = bytes;
    }

    /// Bytes of all living buffers. A hidden device keeps a dropped buffer until its queued work is done.
    pub fn bytes_in_use(&self) -> u64 {
        self.0.ledger.lock().in_use
    }

    /// The most that [`Device::bytes_in_use`] has been.
    pub fn bytes_peak(&self) -> u64 {
        self.0.ledger.lock().peak
    }

    /// Number of threads that operations run on.
    pub fn threads(&self) -> usize {
        self.0.team.threads()
    }

    /// What the device is called in plans and messages.
    pub fn name(&self) -> &'static str {
        self.0.kind.name()
    }

    /// In which numbers it multiplies matrices.
    pub fn compute(&self) -> Compute {
        self.gpu().map_or(Compute::F32, |gpu| gpu.compute())
    }

    /// The CUDA device behind this, where it is one.
    pub(crate) fn gpu(&self) -> Option<&Arc<Gpu>> {
        match &self.0.kind {
            Kind::Cuda(gpu) => Some(gpu),
            Kind::Cpu | Kind::Hidden => None,
        }
    }

    pub(crate) fn defers(&self) -> bool {
        matches!(self.0.kind, Kind::Hidden)
    }

    pub(crate) fn scramble(&self) -> u32 {
        if self.defers() { SCRAMBLE } else { 0 }
    }

    pub(crate) fn same(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn team(&self) -> &Team {
        &self.0.team
    }

    /// Waits for this thread's turn. An operation that panicked leaves numbers behind, not a broken structure.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.0.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The count of a device's memory.
#[derive(Debug, Default)]
struct Ledger(Mutex<Account>);

#[derive(Debug, Default)]
struct Account {
    in_use: u64,
    peak: u64,
    budget: Option<u64>,
}

/// Bytes counted as in use for as long as this lives.
#[derive(Debug)]
pub(crate) struct Charge {
    ledger: Arc<Ledger>,
    bytes: u64,
}

impl Charge {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, Account> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn charge(self: &Arc<Self>, asked: u64) -> Result<Charge, AllocError> {
        let mut account = self.lock();
        let total = account.in_use.checked_add(asked).ok_or(AllocError::Exhausted { asked })?;
        if let Some(budget) = account.budget.filter(|budget| total > *budget) {
            return Err(AllocError::Budget { asked, in_use: account.in_use, budget });
        }
        account.in_use = total;
        account.peak = account.peak.max(total);
        Ok(Charge { ledger: Arc::clone(self), bytes: asked })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.ledger.lock().in_use -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_while_it_lives_and_the_peak_stays() {
        let device = Device::cpu(1);
        let (small, large) = (device.alloc(1, DType::F32).unwrap(), device.alloc(100, DType::U32).unwrap());
        let view = large.slice(10..20);
        assert_eq!(device.bytes_in_use(), 64 + 448);
        drop((small, large));
        assert_eq!(device.bytes_in_use(), 448, "a view keeps its memory alive");
        drop(view);
        assert_eq!((device.bytes_in_use(), device.bytes_peak()), (0, 512));
    }

    #[test]
    fn a_budget_refuses_with_all_three_numbers_and_takes_nothing() {
        let device = Device::cpu(1);
        device.set_budget(Some(1000));
        let held = device.alloc(200, DType::F32).unwrap();
        let refused = device.alloc(100, DType::F32).unwrap_err();
        assert_eq!(refused, AllocError::Budget { asked: 448, in_use: 832, budget: 1000 });
        drop(held);
        assert_eq!(device.bytes_in_use(), 0);
        assert!(device.alloc(100, DType::F32).is_ok());
    }

    #[test]
    fn more_memory_than_a_machine_can_have_is_an_error_and_no_abort() {
        let device = Device::cpu(1);
        for len in [usize::MAX, usize::MAX / 4, 1 << 52] {
            assert!(matches!(device.alloc(len, DType::F32), Err(AllocError::Exhausted { .. })), "{len}");
        }
        assert_eq!(device.bytes_in_use(), 0);
    }

    #[test]
    fn fresh_memory_reads_as_zero() {
        for device in [Device::cpu(1), Device::hidden(1)] {
            let buffer = device.alloc(33, DType::F32).unwrap();
            assert_eq!(device.stream().to_host(&buffer), [0.0; 33], "{}", device.name());
        }
    }
}
