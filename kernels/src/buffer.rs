//! Memory of a device: storage, and handles on ranges of it.
//!
//! Storage is shared and writable. What makes that sound is one rule: its words are touched only by the holder of the
//! device's turn ([`crate::Stream`] takes it), and a stream checks that no written range overlaps another argument.

use crate::cuda::Memory;
use crate::device::{AllocError, Charge, Device};
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::Arc;

/// What the elements of a buffer are. Both take four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DType {
    /// 32-bit floats.
    F32,
    /// Unsigned 32-bit integers: token ids, positions, segment starts.
    U32,
}

/// A Rust type that a buffer can hold.
pub trait Element: Copy + Send + sealed::Sealed + 'static {
    /// Its name on the device.
    const DTYPE: DType;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
}

impl Element for u32 {
    const DTYPE: DType = DType::U32;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for u32 {}
}

/// A handle on a range of a device's memory. Clones and slices share what they point to.
#[derive(Clone)]
pub struct Buffer {
    storage: Arc<Storage>,
    device: Device,
    range: (usize, usize),
    dtype: DType,
}

impl Buffer {
    pub(crate) fn new(storage: Arc<Storage>, device: Device, len: usize, dtype: DType) -> Buffer {
        Buffer { storage, device, range: (0, len), dtype }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.range.1 - self.range.0
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the elements are.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The device this memory belongs to.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The elements `range` of this buffer, sharing its memory.
    ///
    /// # Panics
    /// When the range reaches outside.
    #[track_caller]
    pub fn slice(&self, range: Range<usize>) -> Buffer {
        let inside = range.start <= range.end && range.end <= self.len();
        assert!(inside, "slice {range:?} of a buffer of {} elements", self.len());
        Buffer { range: (self.range.0 + range.start, self.range.0 + range.end), ..self.clone() }
    }

    /// Whether any element belongs to both.
    pub fn overlaps(&self, other: &Buffer) -> bool {
        let shared = self.range.0.max(other.range.0) < self.range.1.min(other.range.1);
        shared && Arc::ptr_eq(&self.storage, &other.storage)
    }

    /// The words of this buffer, to read.
    ///
    /// # Safety
    /// The caller holds the device's turn for as long as the slice lives, and no word of it is written meanwhile.
    pub(crate) unsafe fn words(&self) -> &[u32] {
        // SAFETY: the range was checked against the storage when the handle was made; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts(self.storage.base().add(self.range.0), self.len()) }
    }

    /// The words of this buffer, to write.
    ///
    /// # Safety
    /// The caller holds the device's turn for as long as the slice lives, and no other slice shares a word with it.
    #[expect(clippy::mut_from_ref, reason = "interior mutability: exclusive access is the caller's promise")]
    pub(crate) unsafe fn words_mut(&self) -> &mut [u32] {
        // SAFETY: the range was checked against the storage when the handle was made; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.storage.base().add(self.range.0), self.len()) }
    }

    /// Its address on the CUDA device that it belongs to.
    pub(crate) fn address(&self) -> u64 {
        match &self.storage.words {
            Words::Cuda(memory) => memory.at() + 4 * self.range.0 as u64,
            Words::Host(_) => panic!("{self:?} lies in the host's memory"),
        }
    }

    /// Where this buffer lies: its storage's address, which orders storages, and the range within.
    pub(crate) fn place(&self) -> (usize, Range<usize>) {
        (self.storage.base() as usize, self.range.0..self.range.1)
    }

    /// A handle on the range `range` of the whole storage.
    pub(crate) fn at(&self, range: Range<usize>) -> Buffer {
        debug_assert!(range.end <= self.storage.len);
        Buffer { range: (range.start, range.end), ..self.clone() }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({:?}, {} elements on {})", self.dtype, self.len(), self.device.name())
    }
}

/// A cache line: memory comes in whole ones, aligned, so that vector loads never straddle two.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u32; 16]);

/// Owned memory of a device.
pub(crate) struct Storage {
    words: Words,
    len: usize,
    /// After the words: they are given back first.
    _charge: Charge,
}

/// Where words lie.
enum Words {
    Host(Box<[UnsafeCell<Line>]>),
    Cuda(Memory),
}

// SAFETY: the cells are only reached through `Buffer::words` and `words_mut`, whose callers hold the device's turn; memory
// of a CUDA device is only reached by work of streams.
unsafe impl Sync for Storage {}

impl Storage {
    /// `len` words that read as zero once `key` is XORed onto them.
    pub(crate) fn zeroed(len: usize, key: u32, charge: Charge) -> Result<Storage, AllocError> {
        let mut lines = Vec::new();
        let count = len.div_ceil(16);
        lines.try_reserve_exact(count).map_err(|_| AllocError::Exhausted { asked: charge.bytes() })?;
        lines.resize_with(count, || UnsafeCell::new(Line([key; 16])));
        Ok(Storage { words: Words::Host(lines.into_boxed_slice()), len, _charge: charge })
    }

    /// Memory of a CUDA device that holds `len` words.
    pub(crate) fn cuda(len: usize, memory: Memory, charge: Charge) -> Storage {
        Storage { words: Words::Cuda(memory), len, _charge: charge }
    }

    /// The host's words.
    fn base(&self) -> *mut u32 {
        match &self.words {
            Words::Host(lines) => UnsafeCell::raw_get(lines.as_ptr()).cast(),
            Words::Cuda(_) => panic!("memory of a CUDA device is not reachable from here"),
        }
    }
}
