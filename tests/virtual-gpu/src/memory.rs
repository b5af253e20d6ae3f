//! Buffers between guard pages: device memory and pinned host memory, with exact accounting.
//!
//! A buffer ends at a guard page, but for its alignment, so that a kernel which runs past its end is stopped by the
//! processor. What lies between a buffer and its guards holds a pattern that is looked at when the buffer is freed. Freed
//! ranges stay reserved for a while, so that a late access is stopped too.
//! Addresses are the process's own: a host access to device memory is *not* noticed.

use crate::state::{Cu, code, gpu, lock};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

const PAGE: usize = 4096;
/// Written between a buffer and its guards.
const PATTERN: u8 = 0xA5;
/// Freed ranges kept unmapped and reserved.
const KEPT_FREED: usize = 512;

/// Where a buffer lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    Device(usize),
    Host,
}

#[derive(Clone, Copy)]
struct Buffer {
    base: usize,
    mapped: usize,
    size: usize,
    home: Home,
}

impl Buffer {
    /// What lies between the guards and a buffer, before and after it: start and bytes.
    fn margins(&self, start: usize) -> [(usize, usize); 2] {
        let (first, last) = (self.base + PAGE, self.base + self.mapped - PAGE);
        [(first, start - first), (start + self.size, last - start - self.size)]
    }

    fn check_margins(&self, start: usize) {
        for (from, bytes) in self.margins(start) {
            // SAFETY: the margins lie inside the mapping, which nobody else frees.
            let margin = unsafe { std::slice::from_raw_parts(from as *const u8, bytes) };
            if let Some(at) = margin.iter().position(|byte| *byte != PATTERN) {
                gpu().note(format!("something was written {}", place(from + at, start, self)));
            }
        }
    }
}

/// A live range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) start: usize,
    pub(crate) size: usize,
    pub(crate) home: Home,
}

/// All buffers of the machine.
#[derive(Default)]
pub(crate) struct Memory {
    live: Mutex<BTreeMap<usize, Buffer>>,
    freed: Mutex<VecDeque<(usize, Buffer)>>,
    registered: Mutex<BTreeMap<usize, usize>>,
}

impl Memory {
    /// Allocates; device memory is counted and may run out.
    pub(crate) fn allocate(&self, size: usize, home: Home) -> Cu<usize> {
        if size == 0 {
            return Err(code::INVALID_VALUE);
        }
        if let Home::Device(id) = home {
            self.count(id, size)?;
        }
        let alignment = gpu().settings.alignment.load(Ordering::Relaxed);
        let padded = size.next_multiple_of(alignment);
        let mapped = padded.next_multiple_of(PAGE) + 2 * PAGE;
        let Some(base) = map_between_guards(mapped) else {
            self.uncount(home, size);
            return Err(code::OUT_OF_MEMORY);
        };
        let start = base + mapped - PAGE - padded;
        if gpu().settings.poison.load(Ordering::Relaxed) && home != Home::Host {
            // SAFETY: the range was mapped above and nobody else knows it yet.
            unsafe { std::ptr::write_bytes(start as *mut u8, 0xFF, padded) };
        }
        let buffer = Buffer { base, mapped, size, home };
        for (from, bytes) in buffer.margins(start) {
            // SAFETY: the margins lie inside the mapping, between guards and buffer.
            unsafe { std::ptr::write_bytes(from as *mut u8, PATTERN, bytes) };
        }
        lock(&self.live).insert(start, buffer);
        Ok(start)
    }

    fn count(&self, id: usize, size: usize) -> Cu<()> {
        let device = gpu().device(id)?;
        if gpu().faults.allocation(id) {
            return Err(code::OUT_OF_MEMORY);
        }
        let others: u64 = device.others().iter().map(|(_, used)| used).sum();
        let total = device.read(|s| s.memory_bytes).saturating_sub(others);
        let add = |used: u64| used.checked_add(size as u64).filter(|sum| *sum <= total);
        let added = device.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
        device.publish();
        added.map(|_| ()).map_err(|_| code::OUT_OF_MEMORY)
    }

    fn uncount(&self, home: Home, size: usize) {
        if let Home::Device(id) = home {
            gpu().devices[id].used.fetch_sub(size as u64, Ordering::AcqRel);
            gpu().devices[id].publish();
        }
    }

    /// Frees a buffer of the wanted sort; a foreign, inner, stale or doubly freed address is `INVALID_VALUE`.
    pub(crate) fn free(&self, start: usize, host: bool) -> Cu<()> {
        let buffer = {
            let mut live = lock(&self.live);
            let buffer = *live.get(&start).ok_or(code::INVALID_VALUE)?;
            if (buffer.home == Home::Host) != host {
                return Err(code::INVALID_VALUE);
            }
            live.remove(&start);
            buffer
        };
        self.uncount(buffer.home, buffer.size);
        buffer.check_margins(start);
        self.retire(start, buffer);
        Ok(())
    }

    /// Takes the pages away at once, and keeps the addresses from being used again for a while.
    fn retire(&self, start: usize, buffer: Buffer) {
        reserve(buffer.base, buffer.mapped);
        let mut freed = lock(&self.freed);
        freed.push_back((start, buffer));
        if freed.len() > KEPT_FREED
            && let Some((_, old)) = freed.pop_front()
        {
            // SAFETY: the range was mapped by `allocate` and belongs to no live buffer.
            unsafe { libc::munmap(old.base as *mut libc::c_void, old.mapped) };
        }
    }

    /// Frees what a device holds: its last context is gone.
    pub(crate) fn free_all(&self, device: usize) {
        let starts: Vec<usize> = {
            let live = lock(&self.live);
            live.iter().filter(|(_, b)| b.home == Home::Device(device)).map(|(start, _)| *start).collect()
        };
        for start in starts {
            let _ = self.free(start, false);
        }
    }

    /// The live buffer that holds an address.
    pub(crate) fn find(&self, address: usize) -> Option<Range> {
        let live = lock(&self.live);
        let (start, buffer) = live.range(..=address).next_back()?;
        let inside = address < start + buffer.size;
        inside.then_some(Range { start: *start, size: buffer.size, home: buffer.home })
    }

    /// Whether `[address, address + bytes)` lies in one live buffer or registered range; tells where it does not.
    pub(crate) fn check(&self, address: usize, bytes: usize, what: &str) -> Cu<()> {
        if bytes == 0 {
            return Ok(());
        }
        let found = self.find(address).is_some_and(|r| address + bytes <= r.start + r.size);
        if found || self.is_registered(address, bytes) {
            return Ok(());
        }
        gpu().tell(format!("{what}: {bytes} bytes at {address:#x} are not in one buffer: {}", self.describe(address)));
        Err(code::INVALID_VALUE)
    }

    /// Whether the range is pinned: allocated by the driver or registered with it.
    pub(crate) fn is_pinned(&self, address: usize, bytes: usize) -> bool {
        self.find(address).is_some_and(|r| address + bytes <= r.start + r.size) || self.is_registered(address, bytes)
    }

    fn is_registered(&self, address: usize, bytes: usize) -> bool {
        let registered = lock(&self.registered);
        registered.range(..=address).next_back().is_some_and(|(start, size)| address + bytes <= start + size)
    }

    /// Registers host memory.
    pub(crate) fn register(&self, address: usize, bytes: usize) -> Cu<()> {
        if address == 0 || bytes == 0 {
            return Err(code::INVALID_VALUE);
        }
        let mut registered = lock(&self.registered);
        let before = registered.range(..address + bytes).next_back();
        if before.is_some_and(|(start, size)| start + size > address) {
            return Err(code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        registered.insert(address, bytes);
        Ok(())
    }

    /// Takes a registration back; only its start names it.
    pub(crate) fn unregister(&self, address: usize) -> Cu<()> {
        lock(&self.registered).remove(&address).map(|_| ()).ok_or(code::HOST_MEMORY_NOT_REGISTERED)
    }

    /// Start and size of the registration that holds an address.
    pub(crate) fn registration(&self, address: usize) -> Option<(usize, usize)> {
        let registered = lock(&self.registered);
        let (start, size) = registered.range(..=address).next_back()?;
        (address < start + size).then_some((*start, *size))
    }

    /// Says in words where an address lies.
    pub(crate) fn describe(&self, address: usize) -> String {
        let near = {
            let live = lock(&self.live);
            let around = live.range(..=address).next_back().into_iter().chain(live.range(address..).next());
            around.map(|(s, b)| (*s, *b)).find(|(_, b)| (b.base..b.base + b.mapped).contains(&address))
        };
        if let Some((start, buffer)) = near {
            return place(address, start, &buffer);
        }
        let freed = lock(&self.freed);
        match freed.iter().rev().find(|(_, b)| (b.base..b.base + b.mapped).contains(&address)) {
            Some((start, buffer)) => format!("freed before: {}", place(address, *start, buffer)),
            None => "no buffer near".into(),
        }
    }
}

fn place(address: usize, start: usize, buffer: &Buffer) -> String {
    let home = match buffer.home {
        Home::Device(id) => format!("a buffer of {} bytes of device {id}", buffer.size),
        Home::Host => format!("a pinned host buffer of {} bytes", buffer.size),
    };
    if address < start {
        format!("{} bytes before {home}", start - address)
    } else if address < start + buffer.size {
        format!("{} bytes into {home}", address - start)
    } else {
        format!("{} bytes past the end of {home}", address - start - buffer.size)
    }
}

/// Maps `bytes` with the first and the last page closed.
pub(crate) fn map_between_guards(bytes: usize) -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh anonymous mapping touches nothing that exists.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return None;
    }
    let base = base as usize;
    let (inner, open) = ((base + PAGE) as *mut libc::c_void, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: the range lies inside the mapping just made.
    let opened = unsafe { libc::mprotect(inner, bytes - 2 * PAGE, open) };
    if opened != 0 {
        // SAFETY: the mapping was made above and nobody knows it.
        unsafe { libc::munmap(base as *mut libc::c_void, bytes) };
        return None;
    }
    Some(base)
}

/// Drops the pages of a range of ours and keeps its addresses closed.
fn reserve(base: usize, bytes: usize) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: the range is one of `allocate`'s mappings whose buffer was just freed.
    unsafe { libc::mmap(base as *mut libc::c_void, bytes, libc::PROT_NONE, flags, -1, 0) };
}

/// Copies between ranges that were checked before; they may overlap.
pub(crate) fn copy(to: usize, from: usize, bytes: usize) {
    // SAFETY: device ranges were checked when the copy was issued, host ranges are vouched for by the caller of the driver.
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) }
}

/// Copies a range that was checked before.
pub(crate) fn read(address: usize, bytes: usize) -> Vec<u8> {
    if bytes == 0 {
        return Vec::new();
    }
    // SAFETY: the range was checked when the operation was issued.
    unsafe { std::slice::from_raw_parts(address as *const u8, bytes) }.to_vec()
}

/// Makes a byte of a range that was checked before a wrong one.
pub(crate) fn spoil(address: usize) {
    // SAFETY: the range was checked when the operation was issued.
    unsafe { *(address as *mut u8) ^= 0x10 }
}
