//! The double through the bindings that the product uses: what must work, and what must fail as it does on a GPU.

#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    reason = "each block calls an entry point of the double with this test's own buffers: that is what is under test"
)]

mod collectives;
mod faults;
mod graphs;
mod kernels;
mod loading;
mod memory;
mod modelled_time;
mod monitoring;
mod processes;
mod products;

use cudarc::driver::{CudaContext, CudaFunction, CudaModule, CudaStream, LaunchConfig, sys};
use cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use virtual_gpu::{Control, Script, control};

const DEVICES: usize = 4;
const MEMORY: u64 = 256 << 20;

/// Settings, faults and accounting are the process's, so that tests take turns.
fn machine() -> Option<(MutexGuard<'static, ()>, Control)> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    match virtual_gpu::install(&Script::with_devices(DEVICES, MEMORY)) {
        Ok(true) => {}
        Ok(false) => return None,
        Err(why) => {
            eprintln!("{why}");
            return None;
        }
    }
    let control = control();
    (0..DEVICES).for_each(|device| control.revive(device));
    control.messages();
    control.violations();
    Some((turn, control))
}

fn options() -> CompileOptions {
    CompileOptions { arch: Some("sm_90"), name: Some("conformance.cu".into()), ..Default::default() }
}

const KERNELS: &str = include_str!("kernels.cu");

struct Bench {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    module: Arc<CudaModule>,
}

impl Bench {
    fn new(device: usize) -> Bench {
        let context = CudaContext::new(device).unwrap();
        let stream = context.new_stream().unwrap();
        let module = context.load_module(compile_ptx_with_opts(KERNELS, options()).unwrap()).unwrap();
        Bench { context, stream, module }
    }

    fn kernel(&self, name: &str) -> CudaFunction {
        self.module.load_function(name).unwrap()
    }
}

fn threads(count: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (1, 1, 1), block_dim: (count, 1, 1), shared_mem_bytes: 0 }
}

fn code<T: std::fmt::Debug>(result: Result<T, cudarc::driver::DriverError>) -> sys::CUresult {
    result.unwrap_err().0
}

// ---- devices ----

#[test]
fn devices_are_those_of_the_script() {
    let Some((_turn, control)) = machine() else { return };
    assert_eq!(CudaContext::device_count().unwrap(), DEVICES as i32);
    let context = CudaContext::new(1).unwrap();
    assert_eq!(context.name().unwrap(), "Virtual GPU");
    assert_eq!(context.compute_capability().unwrap(), (9, 0));
    assert_eq!(context.total_mem().unwrap(), MEMORY as usize);
    assert!(context.has_async_alloc());
    assert_ne!(context.uuid().unwrap().bytes, CudaContext::new(2).unwrap().uuid().unwrap().bytes);
    assert_eq!(code(CudaContext::new(DEVICES)), sys::CUresult::CUDA_ERROR_INVALID_DEVICE);
    let _ = control;
}
