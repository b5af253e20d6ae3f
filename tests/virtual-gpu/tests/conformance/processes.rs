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

/// Whether this process was started for one test; it ends by itself should it hang.
fn is_child(test: &str) -> bool {
    let wanted = std::env::var_os("VGPU_CONFORMANCE_CHILD").is_some_and(|wanted| wanted == test);
    if wanted {
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_secs(60));
            std::process::exit(1)
        });
    }
    wanted
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
fn as_a_rank() {
    if !is_child("as_a_rank") {
        return;
    }
    use cudarc::nccl::{Comm, Id, ReduceOp, group_end, group_start};
    let folder = std::path::PathBuf::from(std::env::var_os("VGPU_DIR").unwrap());
    // Both processes start at once: the first to make the file is rank 0 and tells its identity.
    let (first, mine, told) = (folder.join("first"), folder.join("id.part"), folder.join("id"));
    let rank = usize::from(std::fs::OpenOptions::new().write(true).create_new(true).open(first).is_err());
    let context = cudarc::driver::CudaContext::new(rank).unwrap();
    let stream = context.new_stream().unwrap();
    if rank == 0 {
        let bytes: Vec<u8> = Id::new().unwrap().internal().iter().map(|byte| *byte as u8).collect();
        std::fs::write(&mine, bytes).unwrap();
        std::fs::rename(&mine, &told).unwrap();
    }
    while !told.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let bytes: Vec<_> = std::fs::read(&told).unwrap().into_iter().map(|byte| byte as std::ffi::c_char).collect();
    let comm = Comm::from_rank(stream.clone(), rank, 2, Id::uninit(bytes.try_into().unwrap())).unwrap();
    let mut x = stream.clone_htod(&[rank as f32 + 1.0; 1000]).unwrap();
    for _ in 0..3 {
        comm.all_reduce_in_place(&mut x, &ReduceOp::Sum).unwrap();
    }
    let mut y = stream.alloc_zeros::<f32>(1000).unwrap();
    group_start().unwrap();
    comm.send(&x, 1 - rank as i32).unwrap();
    comm.recv(&mut y, 1 - rank as i32).unwrap();
    group_end().unwrap();
    println!("result {:?}", stream.clone_dtoh(&y).unwrap()[999]);
    let short = comm.all_reduce_in_place(&mut stream.alloc_zeros::<f32>(10 + rank).unwrap(), &ReduceOp::Sum);
    println!("mismatch {:?} {:?}", short.is_ok(), stream.synchronize().is_err());
    let _ = context.check_err();
}

#[test]
fn ranks_can_be_processes() {
    if std::env::var_os("VGPU_CONFORMANCE_CHILD").is_some() {
        return;
    }
    let Ok(libraries) = library_folder() else { return };
    let place = tempfile::tempdir().unwrap();
    let script = Script { rank_processes: true, ..Script::with_devices(2, 100 << 20) };
    std::fs::write(place.path().join("script.json"), serde_json::to_vec(&script).unwrap()).unwrap();
    let mut ranks = [0, 1].map(|_| start("as_a_rank", place.path(), &libraries));
    for rank in &mut ranks {
        let mut told = BufReader::new(rank.stdout.take().unwrap());
        assert!(wait_for(&mut told, "result").contains("12.0"));
        assert!(wait_for(&mut told, "mismatch").contains("true true"));
        told.lines().for_each(|_| {});
        assert!(rank.wait().unwrap().success());
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
