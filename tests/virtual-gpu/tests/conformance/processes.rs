//! Several processes with one set of devices: memory, losses, steering from outside.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use virtual_gpu::{Script, Unavailable, control_of, library_folder, processes_in};

const MIB: usize = 1 << 20;

/// Starts one test of this program as a process of its own.
fn start(test: &str, folder: &Path, libraries: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("processes::{test}"), "--nocapture"]).env("LD_LIBRARY_PATH", libraries);
    command.env("VGPU_SCRIPT", folder.join("script.json")).env("VGPU_DIR", folder).env("VGPU_CONFORMANCE_CHILD", test);
    command.stdout(Stdio::piped()).spawn().unwrap()
}

/// Reads until a line holds a word; that line.
fn wait_for(child: &mut BufReader<std::process::ChildStdout>, word: &str) -> String {
    child.lines().map(Result::unwrap).find(|line| line.contains(word)).unwrap()
}

fn is_child(test: &str) -> bool {
    std::env::var_os("VGPU_CONFORMANCE_CHILD").is_some_and(|wanted| wanted == test)
}

#[test]
fn as_a_tenant() {
    if !is_child("as_a_tenant") {
        return;
    }
    let context = cudarc::driver::CudaContext::new(1).unwrap();
    let stream = context.new_stream().unwrap();
    let _held = unsafe { stream.alloc::<u8>(60 * MIB) }.unwrap();
    println!("holds {:?}", context.mem_get_info().unwrap());
    loop {
        if let Err(error) = stream.synchronize() {
            println!("lost {:?}", error.0);
            std::process::exit(0);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn as_a_monitor() {
    if !is_child("as_a_monitor") {
        return;
    }
    let nvml = nvml_wrapper::Nvml::init().unwrap();
    let device = nvml.device_by_index(1).unwrap();
    match device.memory_info() {
        Ok(memory) => {
            let processes = device.running_compute_processes().unwrap();
            let context = cudarc::driver::CudaContext::new(1).unwrap();
            let stream = context.new_stream().unwrap();
            let fits = unsafe { stream.alloc::<u8>(41 * MIB) }.is_ok();
            println!("sees {} by {}, fits {fits}", memory.used, processes[0].pid);
        }
        Err(error) => println!("sees {error:?}"),
    }
}

#[test]
fn processes_share_devices_and_are_steered_from_outside() {
    if std::env::var_os("VGPU_CONFORMANCE_CHILD").is_some() {
        return;
    }
    let libraries = match library_folder() {
        Ok(folder) => folder,
        Err(why @ Unavailable::NoCompiler(_)) => return eprintln!("{why}"),
        Err(why) => panic!("{why}"),
    };
    let place = tempfile::tempdir().unwrap();
    let script = serde_json::to_vec(&Script::with_devices(2, 100 << 20)).unwrap();
    std::fs::write(place.path().join("script.json"), script).unwrap();
    let mut tenant = start("as_a_tenant", place.path(), &libraries);
    let mut told = BufReader::new(tenant.stdout.take().unwrap());
    wait_for(&mut told, "holds");
    assert_eq!(processes_in(place.path()), [tenant.id()]);
    let control = control_of(place.path(), tenant.id());
    assert_eq!(control.used_bytes(1), 60 * MIB as u64);
    let watch = || {
        let mut monitor = start("as_a_monitor", place.path(), &libraries);
        let mut told = BufReader::new(monitor.stdout.take().unwrap());
        let line = wait_for(&mut told, "sees");
        told.lines().for_each(|_| {}); // it writes on
        assert!(monitor.wait().unwrap().success());
        line
    };
    assert!(watch().contains(&format!("sees {} by {}, fits false", 60 * MIB, tenant.id())));
    control.lose(1, 46);
    assert!(wait_for(&mut told, "lost").contains("CUDA_ERROR_DEVICE_UNAVAILABLE"));
    told.lines().for_each(|_| {});
    tenant.wait().unwrap();
    assert!(processes_in(place.path()).is_empty());
    assert!(watch().contains("GpuLost"));
}
