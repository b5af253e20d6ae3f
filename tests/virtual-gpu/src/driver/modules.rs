//! Modules, kernels and launches.

use super::{put, status, stream};
use crate::kernel::{self, Geometry, Module};
use crate::state::{Cu, code, current, gpu};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

fn load(out: *mut usize, image: impl FnOnce() -> Cu<Vec<u8>>) -> Cu<()> {
    let device = current()?;
    gpu().check_collectives(device.id, "cuModuleLoad")?;
    let handle = gpu().modules.insert(Module::load(&image()?)?);
    // SAFETY: the caller vouches for the place of the handle; null is refused.
    unsafe { put(out, handle) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadData(out: *mut usize, image: *const u8) -> u32 {
    status(|| load(out, || kernel::image_at(image)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadDataEx(
    out: *mut usize,
    image: *const u8,
    _count: c_uint,
    _options: *const c_int,
    _values: *const *mut c_void,
) -> u32 {
    cuModuleLoadData(out, image)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoad(out: *mut usize, path: *const c_char) -> u32 {
    status(|| {
        if path.is_null() {
            return Err(code::INVALID_VALUE);
        }
        let mut image = kernel::read_file(&CStr::from_ptr(path).to_string_lossy())?;
        image.push(0);
        load(out, || kernel::image_at(image.as_ptr()))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: usize) -> u32 {
    status(|| {
        gpu().check_collectives(current()?.id, "cuModuleUnload")?;
        let module = gpu().modules.remove(module)?;
        gpu().functions.retain(|function| !function.is_of(&module));
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(out: *mut usize, module: usize, name: *const c_char) -> u32 {
    status(|| {
        current()?;
        if name.is_null() {
            return Err(code::INVALID_VALUE);
        }
        let function = gpu().modules.get(module)?.function(&CStr::from_ptr(name).to_string_lossy())?;
        put(out, gpu().functions.insert(function))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetGlobal_v2(
    out: *mut usize,
    bytes: *mut usize,
    module: usize,
    name: *const c_char,
) -> u32 {
    status(|| {
        current()?;
        if name.is_null() {
            return Err(code::INVALID_VALUE);
        }
        let (address, size) = gpu().modules.get(module)?.global(&CStr::from_ptr(name).to_string_lossy())?;
        if !bytes.is_null() {
            put(bytes, size)?;
        }
        if out.is_null() { Ok(()) } else { put(out, address) }
    })
}

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const DYNAMIC_SHARED_BYTES: c_int = 8;

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(function: usize, attribute: c_int, value: c_int) -> u32 {
    status(|| {
        let function = gpu().functions.get(function)?;
        match attribute {
            DYNAMIC_SHARED_BYTES if (0..=kernel::SHARED_BYTES_MAX as c_int).contains(&value) => {
                function.shared_bytes.store(value, Ordering::Relaxed);
                Ok(())
            }
            9 => Ok(()), // a preference
            _ => Err(code::INVALID_VALUE),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: usize) -> u32 {
    status(|| {
        let function = gpu().functions.get(function)?;
        let binary = current()?.read(|s| s.compute_capability[0] * 10 + s.compute_capability[1]) as c_int;
        let known = match attribute {
            0 => 1_024,
            1..=3 => 0,
            4 => 32,
            5 | 6 => binary,
            DYNAMIC_SHARED_BYTES => function.shared_bytes.load(Ordering::Relaxed),
            _ => return Err(code::NOT_SUPPORTED),
        };
        put(value, known)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetCacheConfig(function: usize, _preference: c_int) -> u32 {
    status(|| gpu().functions.get(function).map(|_| ()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    function: usize,
    threads: c_int,
    shared_bytes: usize,
) -> u32 {
    status(|| {
        gpu().functions.get(function)?;
        if threads <= 0 {
            return Err(code::INVALID_VALUE);
        }
        let by_memory = (228 << 10) / shared_bytes.max(1);
        put(blocks, (2_048 / threads).min(32).min(by_memory as c_int))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernel(
    function: usize,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared_bytes: c_uint,
    handle: usize,
    parameters: *const *const u8,
    extra: *const *const c_void,
) -> u32 {
    status(|| {
        let stream = stream(handle)?;
        if !extra.is_null() {
            return Err(code::NOT_SUPPORTED);
        }
        let function = gpu().functions.get(function)?;
        let geometry = Geometry { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared_bytes };
        kernel::launch(&function, geometry, &stream, parameters)
    })
}
