//! Kernels: orders, barriers, warps, globals, templates, images.

use crate::{Bench, machine, options, threads};
use cudarc::driver::{LaunchConfig, PushKernelArg, sys};
use cudarc::nvrtc::{Ptx, compile_ptx_with_opts, result};
use std::ffi::CString;
use virtual_gpu::Order;

#[test]
fn elementwise_kernels_run_in_every_order() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(0);
    let n = 100_001usize;
    let x: Vec<f32> = (0..n).map(|i| (i % 1000) as f32).collect();
    for (order, workers) in [(Order::Forward, 1), (Order::Reverse, 2), (Order::Random, 3)] {
        control.set_order(order);
        control.set_threads(workers);
        let given = bench.stream.clone_htod(&x).unwrap();
        let mut sums = bench.stream.clone_htod(&vec![1f32; n]).unwrap();
        let (kernel, factor) = (bench.kernel("saxpy"), 2f32);
        let mut launch = bench.stream.launch_builder(&kernel);
        launch.arg(&factor).arg(&given).arg(&mut sums).arg(&n);
        unsafe { launch.launch(LaunchConfig::for_num_elems(n as u32)) }.unwrap();
        let sums = bench.stream.clone_dtoh(&sums).unwrap();
        assert!(sums.iter().zip(&x).all(|(y, x)| *y == 2.0 * x + 1.0), "{order:?}");
    }
}

#[test]
fn reductions_with_shuffles_and_barriers_are_right() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(0);
    let x: Vec<half::bf16> = (0..50_000).map(|i| half::bf16::from_f32((i % 7) as f32 - 3.0)).collect();
    let want: f32 = x.iter().map(|x| x.to_f32()).sum();
    for order in [Order::Forward, Order::Reverse, Order::Random] {
        control.set_order(order);
        let given = bench.stream.clone_htod(&x).unwrap();
        let mut sum = bench.stream.alloc_zeros::<f32>(1).unwrap();
        let (kernel, n) = (bench.kernel("block_sum"), x.len() as i32);
        let mut launch = bench.stream.launch_builder(&kernel);
        launch.arg(&given).arg(&mut sum).arg(&n);
        let geometry = LaunchConfig { grid_dim: (8, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
        unsafe { launch.launch(geometry) }.unwrap();
        assert_eq!(bench.stream.clone_dtoh(&sum).unwrap(), [want], "{order:?}");
    }
}

fn reversed(bench: &Bench, with_barrier: i32) -> usize {
    let x: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let given = bench.stream.clone_htod(&x).unwrap();
    let mut out = bench.stream.alloc_zeros::<f32>(64).unwrap();
    let kernel = bench.kernel("reversed");
    let mut launch = bench.stream.launch_builder(&kernel);
    launch.arg(&given).arg(&mut out).arg(&with_barrier);
    unsafe { launch.launch(LaunchConfig { shared_mem_bytes: 256, ..threads(64) }) }.unwrap();
    let out = bench.stream.clone_dtoh(&out).unwrap();
    out.iter().zip(x.iter().rev()).filter(|(a, b)| a != b).count()
}

#[test]
fn a_missing_barrier_shows() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(0);
    for order in [Order::Forward, Order::Reverse, Order::Random] {
        control.set_order(order);
        assert_eq!(reversed(&bench, 1), 0, "{order:?}");
        assert!(reversed(&bench, 0) > 0, "{order:?}");
    }
}

#[test]
fn votes_count_all_threads() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(0);
    for order in [Order::Forward, Order::Reverse, Order::Random] {
        control.set_order(order);
        let mut out = bench.stream.alloc_zeros::<i32>(96).unwrap();
        let kernel = bench.kernel("votes");
        unsafe { bench.stream.launch_builder(&kernel).arg(&mut out).launch(threads(96)) }.unwrap();
        assert_eq!(bench.stream.clone_dtoh(&out).unwrap(), [48 * 1000 + 161; 96]);
    }
}

#[test]
fn templates_are_found_by_their_lowered_names() {
    let Some((_turn, _control)) = machine() else { return };
    let bench = Bench::new(0);
    let source = CString::new(crate::KERNELS).unwrap();
    let program = result::create_program(&source, None).unwrap();
    let expression = c"scale<float, 3>";
    let (image, name) = unsafe {
        use cudarc::nvrtc::sys as nvrtc;
        assert_eq!(nvrtc::nvrtcAddNameExpression(program, expression.as_ptr()), nvrtc::nvrtcResult::NVRTC_SUCCESS);
        result::compile_program(program, &["--gpu-architecture=sm_90"]).unwrap();
        let mut name = std::ptr::null();
        nvrtc::nvrtcGetLoweredName(program, expression.as_ptr(), &mut name).result().unwrap();
        let name = std::ffi::CStr::from_ptr(name).to_str().unwrap().to_owned();
        let mut size = 0;
        nvrtc::nvrtcGetCUBINSize(program, &mut size).result().unwrap();
        let mut image = vec![0u8; size];
        nvrtc::nvrtcGetCUBIN(program, image.as_mut_ptr().cast()).result().unwrap();
        result::destroy_program(program).unwrap();
        (image, name)
    };
    let module = bench.context.load_module(Ptx::from_binary(image)).unwrap();
    let kernel = module.load_function(&name).unwrap();
    let mut x = bench.stream.clone_htod(&[1f32, 2.0]).unwrap();
    unsafe { bench.stream.launch_builder(&kernel).arg(&mut x).launch(threads(2)) }.unwrap();
    assert_eq!(bench.stream.clone_dtoh(&x).unwrap(), [3.0, 6.0]);
}

#[test]
fn each_module_has_its_own_globals() {
    let Some((_turn, _control)) = machine() else { return };
    let benches = [Bench::new(0), Bench::new(1)];
    for (number, bench) in benches.iter().enumerate() {
        let factors = [number as f32, 1.0, 2.0, 3.0];
        let mut global = bench.module.get_global("factors", &bench.stream).unwrap();
        assert_eq!(global.len(), 16);
        let mut view = unsafe { global.transmute_mut::<f32>(4) }.unwrap();
        bench.stream.memcpy_htod(&factors, &mut view).unwrap();
        let kernel = bench.kernel("use_globals");
        let mut out = bench.stream.alloc_zeros::<f32>(8).unwrap();
        unsafe { bench.stream.launch_builder(&kernel).arg(&mut out).launch(threads(8)) }.unwrap();
        assert_eq!(bench.stream.clone_dtoh(&out).unwrap()[..4], factors);
        let counter = bench.module.get_global("counter", &bench.stream).unwrap();
        assert_eq!(bench.stream.clone_dtoh(&counter).unwrap(), 8i32.to_le_bytes());
    }
}

#[test]
fn images_of_other_compilers_are_refused() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(0);
    let mut cubin = vec![0u8; 64];
    cubin[..4].copy_from_slice(b"\x7fELF");
    cubin[0x12] = 190;
    let refused = bench.context.load_module(Ptx::from_binary(cubin)).unwrap_err();
    assert_eq!(refused.0, sys::CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU);
    let refused = bench.context.load_module(Ptx::from_src(".version 8.0\n.target sm_90\n")).unwrap_err();
    assert_eq!(refused.0, sys::CUresult::CUDA_ERROR_INVALID_PTX);
    assert_eq!(control.messages().len(), 2);
    assert_eq!(bench.module.load_function("nobody").unwrap_err().0, sys::CUresult::CUDA_ERROR_NOT_FOUND);
}

#[test]
fn mistakes_in_a_source_are_told_with_their_lines() {
    let Some((_turn, _control)) = machine() else { return };
    let error = compile_ptx_with_opts("extern \"C\" __global__ void k(float* x) {\n  x[0] = y;\n}\n", options());
    let text = format!("{:?}", error.unwrap_err());
    assert!(text.contains("conformance.cu:2:"), "{text}");
    let unknown = cudarc::nvrtc::CompileOptions { options: vec!["--fast-and-wrong".into()], ..options() };
    assert!(format!("{:?}", compile_ptx_with_opts("", unknown).unwrap_err()).contains("INVALID_OPTION"));
}

#[test]
fn launches_beyond_the_limits_are_refused() {
    let Some((_turn, _control)) = machine() else { return };
    let bench = Bench::new(0);
    let kernel = bench.kernel("shared_store");
    let mut out = bench.stream.alloc_zeros::<f32>(1).unwrap();
    let at = 0;
    let mut launch = |block: u32, shared_mem_bytes: u32| {
        let geometry = LaunchConfig { shared_mem_bytes, ..threads(block) };
        unsafe { bench.stream.launch_builder(&kernel).arg(&mut out).arg(&at).launch(geometry) }.map(|_| ())
    };
    assert!(launch(1025, 0).is_err());
    assert!(launch(1, 49 << 10).is_err(), "more shared memory than 48 KiB needs an attribute");
    kernel
        .set_attribute(sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 10)
        .unwrap();
    launch(1, 100 << 10).unwrap();
    bench.stream.synchronize().unwrap();
}

#[test]
fn warp_matrices_multiply() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(0);
    let module = bench.context.load_module(compile_ptx_with_opts(include_str!("wmma.cu"), options()).unwrap()).unwrap();
    let kernel = module.load_function("wmma_product").unwrap();
    let (m, n, k) = (32usize, 48usize, 64usize);
    let numbers = |count: usize, period: usize| -> Vec<half::bf16> {
        (0..count).map(|i| half::bf16::from_f32((i % period) as f32 - (period / 2) as f32)).collect()
    };
    let (a, b) = (numbers(m * k, 13), numbers(k * n, 11));
    for order in [Order::Forward, Order::Random] {
        control.set_order(order);
        let (given_a, given_b) = (bench.stream.clone_htod(&a).unwrap(), bench.stream.clone_htod(&b).unwrap());
        let mut out = bench.stream.alloc_zeros::<f32>(m * n).unwrap();
        let (ni, ki) = (n as i32, k as i32);
        let mut launch = bench.stream.launch_builder(&kernel);
        launch.arg(&given_a).arg(&given_b).arg(&mut out).arg(&ni).arg(&ki);
        let grid = LaunchConfig { grid_dim: (n as u32 / 16, m as u32 / 16, 1), ..threads(32) };
        unsafe { launch.launch(grid) }.unwrap();
        let out = bench.stream.clone_dtoh(&out).unwrap();
        for (i, value) in out.iter().enumerate() {
            let (row, column) = (i / n, i % n);
            let want: f32 = (0..k).map(|k_| a[row * k + k_].to_f32() * b[k_ * n + column].to_f32()).sum();
            assert_eq!(*value, want, "({row}, {column})");
        }
    }
}

/// Same number, or both not one.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

#[test]
fn halves_are_rounded_and_widened_as_they_should() {
    use half::{bf16, f16};
    let Some((_turn, _control)) = machine() else { return };
    let bench = Bench::new(0);
    let image = compile_ptx_with_opts(include_str!("halves.cu"), options()).unwrap();
    let module = bench.context.load_module(image).unwrap();
    // Steps through all signs and sizes, subnormals, infinities and numbers that are none.
    let x: Vec<f32> = (0..1 << 18).map(|i: u32| f32::from_bits(i.wrapping_mul(16_411))).collect();
    let n = x.len() as i32;
    let given = bench.stream.clone_htod(&x).unwrap();
    let mut rounded = [0, 1].map(|_| bench.stream.alloc_zeros::<u16>(x.len()).unwrap());
    let kernel = module.load_function("round_halves").unwrap();
    let [a, b] = &mut rounded;
    let grid = LaunchConfig::for_num_elems(n as u32);
    unsafe { bench.stream.launch_builder(&kernel).arg(&given).arg(a).arg(b).arg(&n).launch(grid) }.unwrap();
    let [a, b] = rounded.map(|r| bench.stream.clone_dtoh(&r).unwrap());
    for (i, x) in x.iter().enumerate() {
        assert!(same(bf16::from_bits(a[i]).to_f32(), bf16::from_f32(*x).to_f32()), "bf16 of {x:e}");
        assert!(same(f16::from_bits(b[i]).to_f32(), f16::from_f32(*x).to_f32()), "f16 of {x:e}");
    }
    let n = 1 << 16;
    let mut wide = [0, 1].map(|_| bench.stream.alloc_zeros::<f32>(n as usize).unwrap());
    let kernel = module.load_function("widen_halves").unwrap();
    let [a, b] = &mut wide;
    let grid = LaunchConfig::for_num_elems(n as u32);
    unsafe { bench.stream.launch_builder(&kernel).arg(a).arg(b).arg(&n).launch(grid) }.unwrap();
    let [a, b] = wide.map(|w| bench.stream.clone_dtoh(&w).unwrap());
    for bits in 0..=u16::MAX {
        assert!(same(a[bits as usize], bf16::from_bits(bits).to_f32()), "bf16 {bits:#x}");
        assert!(same(b[bits as usize], f16::from_bits(bits).to_f32()), "f16 {bits:#x}");
    }
    let mut pair = bench.stream.clone_htod(&[1f32, 2.0].map(bf16::from_f32)).unwrap();
    let mut one = bench.stream.clone_htod(&[f16::from_f32(3.0)]).unwrap();
    let kernel = module.load_function("sum_halves").unwrap();
    unsafe { bench.stream.launch_builder(&kernel).arg(&mut pair).arg(&mut one).launch(threads(1)) }.unwrap();
    assert_eq!(bench.stream.clone_dtoh(&pair).unwrap(), [2f32, 5.0].map(bf16::from_f32));
    assert_eq!(bench.stream.clone_dtoh(&one).unwrap(), [f16::from_f32(6.5)]);
}
