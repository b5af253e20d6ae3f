//! The hidden device's memory: scrambled between operations, in the clear while one runs.

use crate::buffer::Buffer;
use crate::device::Device;

/// Runs `work` while the words of `buffers` are in the clear. On a CPU they always are.
pub(crate) fn revealed(device: &Device, buffers: &[&Buffer], work: impl FnOnce()) {
    let key = device.scramble();
    if key == 0 {
        return work();
    }
    let merged = merge(buffers);
    flip(&merged, key);
    work();
    flip(&merged, key);
}

fn flip(buffers: &[Buffer], key: u32) {
    for buffer in buffers {
        // SAFETY: the caller of `revealed` has the turn; merged ranges are disjoint and no other slice lives here.
        unsafe { buffer.words_mut() }.iter_mut().for_each(|word| *word ^= key);
    }
}

/// The union of `buffers` as disjoint ranges, so that a word that is read twice is revealed once.
fn merge(buffers: &[&Buffer]) -> Vec<Buffer> {
    let mut places: Vec<_> = buffers.iter().filter(|b| !b.is_empty()).map(|b| (b.place(), *b)).collect();
    places.sort_by_key(|((base, range), _)| (*base, range.start));
    let mut merged: Vec<Buffer> = Vec::new();
    for ((base, range), buffer) in places {
        match merged.last_mut().map(|last| (last.place(), last)) {
            Some(((b, r), last)) if b == base && range.start <= r.end => *last = last.at(r.start..r.end.max(range.end)),
            _ => merged.push(buffer.clone()),
        }
    }
    merged
}
