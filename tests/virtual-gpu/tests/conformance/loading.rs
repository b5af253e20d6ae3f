//! Folders of libraries for programs of their own, and scripts from files.

use std::process::Command;
use virtual_gpu::{Fault, Library, Script, Unavailable, library_folder, library_folder_without};

/// Runs one test of this program again, in a process that finds the libraries as shipped programs do.
fn run_alone(folder: &std::path::Path, script: &std::path::Path, test: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.args(["--exact", test, "--nocapture"]).env("LD_LIBRARY_PATH", folder).env("VGPU_SCRIPT", script);
    let output = command.env("VGPU_CONFORMANCE_CHILD", "1").output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn is_child() -> bool {
    std::env::var_os("VGPU_CONFORMANCE_CHILD").is_some()
}

#[test]
fn as_a_shipped_program() {
    if !is_child() {
        return;
    }
    let present = unsafe {
        [
            cudarc::driver::sys::is_culib_present(),
            cudarc::nvrtc::sys::is_culib_present(),
            cudarc::cublas::sys::is_culib_present(),
            cudarc::cublaslt::sys::is_culib_present(),
            cudarc::nccl::sys::is_culib_present(),
            nvml_wrapper::Nvml::init().is_ok(),
        ]
    };
    println!("present {present:?}");
    if present[0] {
        let context = cudarc::driver::CudaContext::new(2).unwrap();
        let stream = context.new_stream().unwrap();
        println!("memory {}", context.total_mem().unwrap());
        println!("first {}", stream.alloc_zeros::<u8>(10).is_ok());
        println!("second {}", stream.alloc_zeros::<u8>(10).is_ok());
    }
}

#[test]
fn programs_find_the_libraries_and_read_their_script() {
    if is_child() {
        return;
    }
    let folder = match library_folder() {
        Ok(folder) => folder,
        Err(why @ Unavailable::NoCompiler(_)) => return eprintln!("{why}"),
        Err(why) => panic!("{why}"),
    };
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("script.json");
    let faults = vec![Fault::OutOfMemory { device: 2, allocation: 2 }];
    let script = Script { faults, ..Script::with_devices(3, 77 << 20) };
    std::fs::write(&file, serde_json::to_vec(&script).unwrap()).unwrap();
    let out = run_alone(&folder, &file, "loading::as_a_shipped_program");
    assert!(out.contains("present [true, true, true, true, true, true]"), "{out}");
    assert!(out.contains(&format!("memory {}", 77 << 20)) && out.contains("first true\nsecond false"), "{out}");
    let folder = library_folder_without(&[Library::Nccl, Library::Nvml]).unwrap();
    let out = run_alone(&folder, &file, "loading::as_a_shipped_program");
    assert!(out.contains("present [true, true, true, true, false, false]"), "{out}");
    std::fs::write(&file, r#"{"devises": []}"#).unwrap();
    let out = run_alone(&folder, &file, "loading::as_a_shipped_program");
    assert!(out.contains("unknown field `devises`"), "{out}");
}

#[test]
fn as_an_installing_test() {
    if is_child() {
        match virtual_gpu::install(&Script::with_devices(1, 1 << 20)) {
            Ok(installed) => println!("installed {installed}"),
            Err(why) => println!("told: {why}"),
        }
    }
}

#[test]
fn a_real_gpu_can_be_asked_for_and_a_missing_compiler_is_told() {
    if is_child() {
        return;
    }
    let told = |name: &str, value: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "loading::as_an_installing_test", "--nocapture"]);
        let output = command.env("VGPU_CONFORMANCE_CHILD", "1").env(name, value).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(told("ANNEAL_GPU", "real").contains("installed false"));
    assert!(told("VGPU_CXX", "/nowhere/g++").contains("told: skipped: no /nowhere/g++, which compiles kernels"));
}

#[test]
fn folders_can_be_asked_for_by_many_at_once() {
    let missing = [Library::Cublas, Library::Nvml, Library::Cuda];
    let folders: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(move || library_folder_without(&missing))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    if folders[0].is_ok() {
        assert!(folders.iter().all(|folder| folder == &folders[0]));
        assert_eq!(std::fs::read_dir(folders[0].as_ref().unwrap()).unwrap().count(), 6);
    }
}

#[test]
fn scripts_are_read_back_as_they_were_written() {
    let faults = vec![
        Fault::DeviceLost { device: 1, launch: 4, code: 46 },
        Fault::NvmlHang { call: "nvmlDeviceGetName".into() },
    ];
    let script = Script { faults, ..Script::with_devices(2, 1 << 20) };
    let text = serde_json::to_string(&script).unwrap();
    assert_eq!(serde_json::from_str::<Script>(&text).unwrap(), script);
    assert_eq!(serde_json::from_str::<Script>("{}").unwrap(), Script::default());
    assert!(serde_json::from_str::<Script>(r#"{"faults": [{"kind": "earthquake"}]}"#).is_err());
}
