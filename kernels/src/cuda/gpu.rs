//! One CUDA device as this process holds it: its context, its kernels, its matrix products.
//!
//! The context is the primary one, which NCCL and other libraries share. Every call makes it current first: threads of one
//! process work on several devices.

use super::blas::Blas;
use super::compile::{Compiler, SOURCES};
use super::devices;
use super::launch::Kernel;
use super::{Compute, DeviceError, DeviceFailure, libraries, signature};
use cudarc::driver::result::{self, DriverError, device, module, stream};
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUfunction_attribute};
use std::collections::HashMap;
use std::ffi::CString;

/// Shared memory of a block that needs no asking for.
const SHARED_PLAIN: u32 = 48 * 1024;

/// A device, open.
pub(crate) struct Gpu {
    pub(super) index: usize,
    pub(super) compute: Compute,
    pub(super) blas: Blas,
    handle: sys::CUdevice,
    context: sys::CUcontext,
    /// Work that belongs to no stream of a caller: zeroing.
    own: sys::CUstream,
    modules: Vec<sys::CUmodule>,
    kernels: HashMap<&'static str, Kernel>,
    multiprocessors: u32,
    shared_max: u32,
}

// SAFETY: handles of the driver may be used by any thread; `kernels` and `modules` do not change once the device is open.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

impl Gpu {
    /// Opens device `index` and loads all kernels, compiling those that this machine has not compiled before.
    pub(crate) fn open(index: usize, compute: Compute) -> Result<Gpu, DeviceError> {
        let libraries = libraries();
        libraries.all().into_iter().filter(|library| library.required).try_for_each(|library| library.or_error())?;
        let count = devices::count()?;
        if index >= count {
            return Err(DeviceError::NoDevice { index, count });
        }
        let at = |error| DeviceError::of_driver("opening a device", error);
        let handle = device::get(index as i32).map_err(at)?;
        let capability = devices::capability(handle).map_err(at)?;
        if compute == Compute::Bf16 && capability.0 < 8 {
            return Err(DeviceError::NoBf16 { major: capability.0, minor: capability.1 });
        }
        let mut gpu = Gpu::bare(index, compute, handle).map_err(at)?;
        gpu.blas.open()?;
        gpu.load(&Compiler::for_device(capability))?;
        Ok(gpu)
    }

    /// A device with a context and nothing in it.
    fn bare(index: usize, compute: Compute, handle: sys::CUdevice) -> Result<Gpu, DriverError> {
        let multiprocessors = devices::attribute(handle, Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1);
        let shared = devices::attribute(handle, Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        // SAFETY: the handle came from the driver; `Gpu::drop` releases.
        let context = unsafe { result::primary_ctx::retain(handle) }?;
        let mut gpu = Gpu {
            index,
            compute,
            blas: Blas::new(),
            handle,
            context,
            own: std::ptr::null_mut(),
            modules: Vec::new(),
            kernels: HashMap::new(),
            multiprocessors,
            shared_max: shared.max(SHARED_PLAIN),
        };
        gpu.current()?;
        gpu.own = stream::create(stream::StreamKind::NonBlocking)?;
        Ok(gpu)
    }

    /// Its number, from 0.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// In which numbers it multiplies matrices.
    pub(crate) fn compute(&self) -> Compute {
        self.compute
    }

    fn load(&mut self, compiler: &Compiler) -> Result<(), DeviceError> {
        for (source, binary) in SOURCES.iter().zip(compiler.binaries(&SOURCES)) {
            let module = match load_module(&binary?) {
                Ok(module) => module,
                // A binary of a cache that another driver filled: once more, from its source.
                Err(_) => load_module(&compiler.compile_anew(source)?)
                    .map_err(|error| DeviceError::of_driver("loading a kernel", error))?,
            };
            self.modules.push(module);
            for signature in signature::all(source.text) {
                let name = CString::new(signature.name).unwrap_or_default();
                // SAFETY: the module was just loaded and lives as long as this device.
                let function = unsafe { module::get_function(module, name) }
                    .map_err(|error| DeviceError::of_driver("finding a kernel", error))?;
                self.kernels.insert(signature.name, Kernel { function, parameters: signature.parameters });
            }
        }
        Ok(())
    }

    /// Makes this device the calling thread's.
    pub(super) fn current(&self) -> Result<(), DriverError> {
        // SAFETY: the context is retained as long as this lives.
        unsafe { result::ctx::set_current(self.context) }
    }

    /// Ends this thread's work where a call failed.
    #[track_caller]
    pub(super) fn expect<T>(&self, operation: &'static str, outcome: Result<T, DriverError>) -> T {
        outcome.unwrap_or_else(|error| DeviceFailure::of_driver(self.index, operation, error).raise())
    }

    pub(super) fn kernel(&self, name: &str) -> &Kernel {
        self.kernels.get(name).unwrap_or_else(|| panic!("there is no kernel {name}"))
    }

    /// Blocks of a grid whose threads take several elements: enough to fill the device.
    pub(super) fn blocks_max(&self) -> u32 {
        self.multiprocessors * 16
    }

    /// Lets a kernel have `bytes` of shared memory; false where the device has less.
    pub(super) fn allow_shared(&self, kernel: &Kernel, bytes: u32) -> Result<bool, DriverError> {
        if bytes <= SHARED_PLAIN {
            return Ok(true);
        }
        if bytes > self.shared_max {
            return Ok(false);
        }
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function belongs to a module of this device.
        unsafe { result::function::set_function_attribute(kernel.function, attribute, bytes as i32) }.map(|()| true)
    }

    /// Sets memory to zero and waits for it.
    pub(super) fn zero(&self, at: sys::CUdeviceptr, bytes: usize) -> Result<(), DriverError> {
        // SAFETY: the caller owns the memory, and nobody knows of it yet.
        unsafe {
            result::memset_d8_async(at, 0, bytes, self.own)?;
            stream::synchronize(self.own)
        }
    }
}

impl Drop for Gpu {
    /// Errors are of no use to anybody here, and after a sticky one there are many.
    fn drop(&mut self) {
        if self.current().is_err() {
            return;
        }
        self.blas.close();
        // SAFETY: buffers and streams hold this device, so none is left; each handle is given back once.
        unsafe {
            for module in self.modules.drain(..) {
                let _ = module::unload(module);
            }
            if !self.own.is_null() {
                let _ = stream::destroy(self.own);
            }
            let _ = result::primary_ctx::release(self.handle);
        }
    }
}

fn load_module(binary: &[u8]) -> Result<sys::CUmodule, DriverError> {
    // SAFETY: a whole binary as the compiler made it; its checksum was compared.
    unsafe { module::load_data(binary.as_ptr().cast()) }
}
