//! Failures with their names, libraries in odd places, and what a device and its cache do.

use super::{DeviceError, DeviceFailure, FailureKind, Presence, devices, libraries};
use crate::matmul::{self, Orientation, Shape};
use crate::testing::{Bench, alone, close, cuda_device, cuda_is_virtual, in_child, uniform};
use crate::{AllocError, Compute, DType, Device, elementwise};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use virtual_gpu::{Fault, Library, control};

/// Devices that no other test uses: these fail.
const FAILING: usize = 4;
const FULL: usize = 5;

/// The failure that `work` ends in.
#[track_caller]
fn failure(work: impl FnOnce()) -> DeviceFailure {
    let payload = catch_unwind(AssertUnwindSafe(work)).expect_err("no failure");
    *payload.downcast::<DeviceFailure>().expect("a failure without its kind")
}

#[test]
fn a_failure_under_way_has_a_kind_and_a_name() {
    if !cuda_is_virtual() {
        return;
    }
    let cases = [
        (
            Fault::IllegalAddress { device: FAILING, launch: 1 },
            FailureKind::IllegalAddress,
            "CUDA_ERROR_ILLEGAL_ADDRESS",
        ),
        (
            Fault::DeviceLost { device: FAILING, launch: 2, code: 46 },
            FailureKind::Lost,
            "CUDA_ERROR_DEVICE_UNAVAILABLE",
        ),
        (
            Fault::DeviceLost { device: FAILING, launch: 1, code: 719 },
            FailureKind::LaunchFailed,
            "CUDA_ERROR_LAUNCH_FAILED",
        ),
    ];
    for (fault, kind, name) in cases {
        let device = Device::cuda(FAILING, Compute::F32).unwrap();
        let (stream, x) = (device.stream(), device.alloc(100, DType::F32).unwrap());
        let [a, b] = [(); 2].map(|()| device.alloc(50, DType::F32).unwrap());
        control().arm(fault);
        let seen = failure(|| {
            (0..3).for_each(|_| elementwise::fill(&stream, &x, 1.0));
            stream.synchronise();
        });
        assert_eq!((seen.device, seen.kind, seen.name.as_str()), (FAILING, kind, name));
        assert!(seen.to_string().contains("cuda:4 failed in"), "{seen}");
        let again = failure(|| drop(stream.to_host(&x)));
        assert_eq!(again.kind, kind, "the error sticks");
        let shape = Shape { m: 10, n: 10, k: 5 };
        let product = failure(|| matmul::nt(&stream, &x, &a, &b, shape, 1.0, 0.0));
        assert_eq!((product.kind, product.name.as_str()), (kind, name), "a library hides what the driver knows");
        drop((stream, x, a, b, device));
        control().revive(FAILING);
    }
}

#[test]
fn a_full_device_says_so_and_goes_on() {
    if !cuda_is_virtual() {
        return;
    }
    let device = Device::cuda(FULL, Compute::F32).unwrap();
    let stream = device.stream();
    let asked = 4 << 30;
    match device.alloc(1 << 30, DType::F32).unwrap_err() {
        AllocError::Device { asked: said, free, total } => assert!(said == asked && free < asked && free < total),
        other => panic!("{other:?}"),
    }
    assert_eq!(device.bytes_in_use(), 0);
    let x = device.alloc(3, DType::F32).unwrap();
    elementwise::fill(&stream, &x, 2.0);
    assert_eq!((stream.to_host(&x), device.bytes_in_use()), (vec![2.0; 3], 64));
    assert!(matches!(stream.reserve(4 << 30), Err(AllocError::Device { .. })));
    stream.reserve(1 << 20).unwrap();
    control().arm(Fault::OutOfMemory { device: FULL, allocation: 1 });
    let seen = failure(|| drop(device.stream()));
    assert_eq!((seen.kind, seen.device), (FailureKind::OutOfMemory, FULL));
}

#[test]
fn memory_is_counted_as_on_a_cpu() {
    let Some(device) = cuda_device(Compute::F32) else { return };
    let device = Device::cuda(0, device.gpu().unwrap().compute()).unwrap();
    let (small, large) = (device.alloc(1, DType::F32).unwrap(), device.alloc(100, DType::U32).unwrap());
    assert_eq!((device.bytes_in_use(), device.name()), (64 + 448, "cuda:0"));
    drop(small);
    device.set_budget(Some(500));
    let refused = device.alloc(100, DType::F32).unwrap_err();
    assert_eq!(refused, AllocError::Budget { asked: 448, in_use: 448, budget: 500 });
    let view = large.slice(10..20);
    drop(large);
    assert_eq!(device.bytes_in_use(), 448, "a view keeps its memory alive");
    let mut seen = [1u32; 10];
    device.stream().read_into(&mut seen, &view);
    assert_eq!(seen, [0; 10], "fresh memory reads as zero");
}

#[test]
fn what_there_is_can_be_listed() {
    if !cuda_is_virtual() {
        return;
    }
    let all = devices().unwrap();
    assert_eq!((all.len(), all[0].name.as_str(), all[0].capability), (6, "Virtual GPU", (9, 0)));
    assert!(all.iter().enumerate().all(|(i, device)| device.index == i && device.memory_total == 2 << 30), "{all:?}");
    assert!(all[1].uuid != all[2].uuid && all[1].pci != all[2].pci && all[1].uuid.starts_with("GPU-"), "{all:?}");
    assert!(all[FULL].memory_free.is_some_and(|free| free <= 2 << 30));
    assert_eq!(Device::cuda(6, Compute::F32).unwrap_err(), DeviceError::NoDevice { index: 6, count: 6 });
}

/// bf16 has eight bits: each operand is off by 2⁻⁹ of itself at most, and products are added in f32.
#[test]
fn products_in_bf16_are_those_of_rounded_operands() {
    let Some(device) = cuda_device(Compute::Bf16) else { return };
    let on = Bench::new(&device);
    for [m, n, k] in [[1, 1, 1], [3, 5, 7], [16, 24, 40], [33, 130, 65], [97, 50, 321]] {
        let shape = Shape { m, n, k };
        on.stream.reserve(matmul::room_bytes(&device, shape)).unwrap();
        let (a, b, old) = (uniform(m * k, 1), uniform(n * k, 2), uniform(m * n, 3));
        let rounded = |x: &[f32]| x.iter().map(|x| f64::from(half::bf16::from_f32(*x).to_f32())).collect::<Vec<_>>();
        for orientation in [Orientation::Nt, Orientation::Nn, Orientation::Tn] {
            let (written, added) = (on.empty(m * n), on.of(&old));
            let (on_a, on_b) = (on.of(&a), on.of(&b));
            matmul::product(&on.stream, orientation, &written, [&on_a, &on_b], shape, [1.0, 0.0]);
            matmul::product(&on.stream, orientation, &added, [&on_a, &on_b], shape, [0.5, 2.0]);
            let wanted = matmul::textbook(orientation, &rounded(&a), &rounded(&b), shape);
            let more: Vec<f64> = wanted.iter().zip(&old).map(|(x, old)| 0.5 * x + 2.0 * f64::from(*old)).collect();
            close(&format!("{orientation:?} {shape:?}"), &on.stream.to_host(&written), &wanted, 2e-5);
            close(&format!("{orientation:?} {shape:?} added"), &on.stream.to_host(&added), &more, 2e-5);
        }
    }
}

#[test]
fn bad_numbers_survive_rounding_to_bf16() {
    let Some(device) = cuda_device(Compute::Bf16) else { return };
    let on = Bench::new(&device);
    let a = [f32::NAN, f32::INFINITY, f32::MAX, f32::from_bits(0x7f80_0001)];
    let out = on.empty(4);
    matmul::nt(&on.stream, &out, &on.of(&a), &on.of(&[1.0]), Shape { m: 4, n: 1, k: 1 }, 1.0, 0.0);
    let seen = on.stream.to_host(&out);
    assert!(seen[0].is_nan() && seen[1] == f32::INFINITY && seen[2] == f32::INFINITY && seen[3].is_nan(), "{seen:?}");
}

/// A folder with libraries under these names, each a copy of one of the virtual GPU's.
fn folder_of(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("kernels-libraries-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let from = virtual_gpu::library_folder().unwrap();
    for (to, original) in files {
        std::fs::copy(from.join(original), folder.join(to)).unwrap();
    }
    folder
}

fn found_in(presence: &Presence, folder: &Path) -> bool {
    matches!(presence, Presence::Found { path, .. } if path.starts_with(folder))
}

/// Files whose names, and names within, are none that the bindings ask for.
#[test]
fn libraries_are_used_from_any_folder_under_any_name() {
    const NAME: &str = "cuda::tests::libraries_are_used_from_any_folder_under_any_name";
    if let Some(folder) = in_child(NAME) {
        let all = libraries();
        assert!(all.usable(), "{all:?}");
        let required = all.all().into_iter().filter(|library| library.required);
        required.for_each(|library| assert!(found_in(&library.presence, Path::new(&folder)), "{library:?}"));
        let device = Device::cuda(0, Compute::F32).unwrap();
        let on = Bench::new(&device);
        let out = on.empty(1);
        matmul::nt(&on.stream, &out, &on.of(&[3.0]), &on.of(&[4.0]), Shape { m: 1, n: 1, k: 1 }, 1.0, 0.0);
        return assert_eq!(on.stream.to_host(&out), [12.0]);
    }
    if cuda_is_virtual() {
        let files = [
            ("libcuda.so.1", "libcuda.so.1"),
            ("libnvrtc.so.13", "libnvrtc.so.12"),
            ("libcublasLt.so.13", "libcublasLt.so.12"),
            ("libnccl.so.2", "libnccl.so.2"),
        ];
        let folder = folder_of("renamed", &files);
        alone(NAME, &folder, &[("ANNEAL_CUDA_LIBRARIES", &folder)]);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn what_is_missing_or_damaged_is_said_and_no_panic() {
    const NAME: &str = "cuda::tests::what_is_missing_or_damaged_is_said_and_no_panic";
    if let Some(folder) = in_child(NAME) {
        let all = libraries();
        assert!(!all.usable() && all.driver.is_found() && !all.nvrtc.is_found() && !all.nccl.is_found(), "{all:?}");
        let Presence::Missing { why } = &all.nvrtc.presence else { panic!("{all:?}") };
        assert!(why.contains(&folder), "{why}");
        let error = Device::cuda(0, Compute::F32).unwrap_err();
        assert!(matches!(error, DeviceError::Library { library: "NVRTC", .. }), "{error}");
        assert!(crate::group::UniqueId::new().is_err());
        return assert_eq!(devices().unwrap().len(), 1, "the driver alone tells what there is");
    }
    if cuda_is_virtual() {
        let folder = folder_of("missing", &[("libcuda.so.1", "libcuda.so.1")]);
        std::fs::write(folder.join("libnvrtc.so.12"), "not a library").unwrap();
        alone(NAME, &folder, &[("ANNEAL_CUDA_LIBRARIES", &folder)]);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn a_missing_nccl_leaves_one_device_usable() {
    const NAME: &str = "cuda::tests::a_missing_nccl_leaves_one_device_usable";
    if in_child(NAME).is_some() {
        let all = libraries();
        assert!(all.usable() && !all.nccl.is_found(), "{all:?}");
        return assert!(Device::cuda(0, Compute::F32).is_ok());
    }
    if cuda_is_virtual() {
        let folder = virtual_gpu::library_folder_without(&[Library::Nccl]).unwrap();
        alone(NAME, &folder, &[("LD_LIBRARY_PATH", &folder)]);
    }
}

#[test]
fn a_machine_without_libraries_has_no_devices_and_no_panic() {
    const NAME: &str = "cuda::tests::a_machine_without_libraries_has_no_devices_and_no_panic";
    if in_child(NAME).is_some() {
        assert!(!libraries().usable());
        assert!(matches!(devices(), Err(DeviceError::Library { .. })));
        return assert!(matches!(Device::cuda(0, Compute::Bf16), Err(DeviceError::Library { .. })));
    }
    if cuda_is_virtual() {
        alone(NAME, Path::new("/"), &[]);
    }
}

/// The first start compiles, the second reads; damage and a folder that takes nothing are no errors.
#[test]
fn compiled_kernels_are_kept_and_damage_is_repaired() {
    const NAME: &str = "cuda::tests::compiled_kernels_are_kept_and_damage_is_repaired";
    if in_child(NAME).is_some() {
        let device = Device::cuda(0, Compute::F32).unwrap();
        let (stream, x) = (device.stream(), device.alloc(2, DType::F32).unwrap());
        elementwise::fill(&stream, &x, 1.5);
        return assert_eq!(stream.to_host(&x), [1.5; 2]);
    }
    if !cuda_is_virtual() {
        return;
    }
    let (folder, libraries) = (folder_of("cache", &[]), virtual_gpu::library_folder().unwrap());
    let run = |cache: &Path| alone(NAME, &folder, &[("LD_LIBRARY_PATH", &libraries), ("ANNEAL_KERNEL_CACHE", cache)]);
    let entries = || -> Vec<(PathBuf, Vec<u8>)> {
        let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let mut all: Vec<_> = files.map(|file| (file.clone(), std::fs::read(file).unwrap())).collect();
        all.sort();
        all
    };
    run(&folder);
    let first = entries();
    assert_eq!(first.len(), super::compile::SOURCES.len());
    std::fs::write(&first[0].0, b"damaged").unwrap();
    std::fs::write(&first[1].0, &first[1].1[..first[1].1.len() / 2]).unwrap();
    run(&folder);
    assert!(entries() == first, "damaged entries were not replaced");
    run(Path::new("/proc/kernels"));
    std::fs::remove_dir_all(folder).unwrap();
}
