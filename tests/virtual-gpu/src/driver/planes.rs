//! Copies of rectangles.

use super::copies::finish;
use super::{status, stream};
use crate::clock::{self, Way};
use crate::memory;
use crate::state::{Cu, code, current, gpu};
use crate::stream::Stream;
use std::ffi::{c_uint, c_void};

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Rectangle {
    from: Side,
    to: Side,
    width_bytes: usize,
    height: usize,
}

/// One side of the copy.
#[repr(C)]
#[derive(Clone, Copy)]
struct Side {
    x_bytes: usize,
    y: usize,
    kind: c_uint,
    host: usize,
    device: usize,
    array: *const c_void,
    pitch: usize,
}

const HOST: c_uint = 1;
const DEVICE: c_uint = 2;
const UNIFIED: c_uint = 4;

impl Side {
    /// Where the rectangle begins; `NOT_SUPPORTED` for arrays.
    fn start(&self) -> Cu<usize> {
        let base = match self.kind {
            HOST => self.host,
            DEVICE | UNIFIED => self.device,
            _ => return Err(code::NOT_SUPPORTED),
        };
        Ok(base + self.y * self.pitch + self.x_bytes)
    }

    /// Bytes from the first byte of the rectangle to its last one.
    fn extent(&self, width: usize, height: usize) -> usize {
        if width == 0 || height == 0 { 0 } else { (height - 1) * self.pitch + width }
    }

    fn is_host(&self, start: usize) -> bool {
        self.kind == HOST || (self.kind == UNIFIED && gpu().memory.find(start).is_none())
    }
}

fn copy(rectangle: Rectangle, stream: &Stream) -> Cu<()> {
    let Rectangle { from, to, width_bytes: width, height } = rectangle;
    let (source, target) = (from.start()?, to.start()?);
    if height > 1 && (from.pitch < width || to.pitch < width) {
        return Err(code::INVALID_VALUE);
    }
    let (from_host, to_host) = (from.is_host(source), to.is_host(target));
    if !from_host {
        gpu().memory.check(source, from.extent(width, height), "copy of a rectangle, source")?;
    }
    if !to_host {
        gpu().memory.check(target, to.extent(width, height), "copy of a rectangle, target")?;
    }
    let way = if from_host || to_host { Way::Host } else { Way::Within };
    let cost = clock::copy(&gpu().devices[stream.device], width * height, way);
    let rows = move |source: usize, pitch: usize| {
        (0..height).for_each(|row| memory::copy(target + row * to.pitch, source + row * pitch, width));
    };
    if from_host && !gpu().memory.is_pinned(source, from.extent(width, height)) {
        // Pageable memory is read before the call returns.
        let staged: Vec<u8> = (0..height).flat_map(|row| memory::read(source + row * from.pitch, width)).collect();
        stream.submit(cost, move |_| rows(staged.as_ptr() as usize, width));
    } else {
        stream.submit(cost, move |_| rows(source, from.pitch));
    }
    let pageable = to_host && !gpu().memory.is_pinned(target, to.extent(width, height));
    if pageable && stream.capture().is_none() { finish(stream) } else { Ok(()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpy2DAsync_v2(rectangle: *const Rectangle, handle: usize) -> u32 {
    status(|| {
        let stream = stream(handle)?;
        if rectangle.is_null() { Err(code::INVALID_VALUE) } else { copy(*rectangle, &stream) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpy2D_v2(rectangle: *const Rectangle) -> u32 {
    status(|| {
        let stream = current()?.default_stream();
        if rectangle.is_null() {
            return Err(code::INVALID_VALUE);
        }
        copy(*rectangle, &stream)?;
        finish(&stream)
    })
}
