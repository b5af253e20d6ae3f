//! Getting the library loaded in place of CUDA's, and steering it: what tests link.
//!
//! A test has two copies of this crate: the one it links, and the library that CUDA's users load. They share no state, so
//! everything here goes through the library's one control entry.

use crate::inject::Request;
use crate::script::{Fault, NvmlSpec, Order, Script};
use crate::shared;
use crate::state::lock;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Why no virtual GPU can be had here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// There is no C++ compiler, which kernels need.
    NoCompiler(String),
    /// The library was not built beside this program.
    NoLibrary(String),
    /// Something that should work did not.
    Failed(String),
    /// The virtual GPU of this process was built before, with another number of devices.
    OtherDevices,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unavailable::NoCompiler(compiler) => write!(f, "skipped: no {compiler}, which compiles kernels"),
            Unavailable::NoLibrary(places) => write!(f, "skipped: libvirtual_gpu.so is in none of {places}"),
            Unavailable::Failed(why) => write!(f, "the virtual GPU cannot be loaded: {why}"),
            Unavailable::OtherDevices => f.write_str("this process has a virtual GPU with another number of devices"),
        }
    }
}

impl std::error::Error for Unavailable {}

/// A library that the virtual GPU stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Library {
    /// The driver.
    Cuda,
    /// The run-time compiler.
    Nvrtc,
    /// Products.
    Cublas,
    /// Products with layouts and epilogues.
    CublasLt,
    /// Collectives.
    Nccl,
    /// Monitoring.
    Nvml,
}

impl Library {
    /// All of them.
    pub const ALL: [Library; 6] =
        [Library::Cuda, Library::Nvrtc, Library::Cublas, Library::CublasLt, Library::Nccl, Library::Nvml];

    /// The file names by which it is looked for.
    pub fn names(self) -> [&'static str; 2] {
        match self {
            Library::Cuda => ["libcuda.so", "libcuda.so.1"],
            Library::Nvrtc => ["libnvrtc.so", "libnvrtc.so.12"],
            Library::Cublas => ["libcublas.so", "libcublas.so.12"],
            Library::CublasLt => ["libcublasLt.so", "libcublasLt.so.12"],
            Library::Nccl => ["libnccl.so", "libnccl.so.2"],
            Library::Nvml => ["libnvidia-ml.so", "libnvidia-ml.so.1"],
        }
    }
}

/// The built library: `VGPU_LIBRARY`, else beside this program or in the neighbouring `deps`.
fn library() -> Result<PathBuf, Unavailable> {
    if let Some(path) = std::env::var_os("VGPU_LIBRARY") {
        return Ok(path.into());
    }
    let program = std::env::current_exe().map_err(|e| Unavailable::Failed(e.to_string()))?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    // The copy in `deps` is the one that a build of any dependent keeps fresh.
    let folders = if folder.ends_with("deps") {
        vec![folder.to_path_buf(), folder.join("..")]
    } else {
        vec![folder.join("deps"), folder.to_path_buf()]
    };
    let found = folders.iter().map(|f| f.join("libvirtual_gpu.so")).find(|f| f.exists());
    let found = found.ok_or_else(|| Unavailable::NoLibrary(format!("{folders:?}")))?;
    found.canonicalize().map_err(|e| Unavailable::Failed(e.to_string()))
}

fn check_compiler() -> Result<(), Unavailable> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Err(Unavailable::Failed("kernels switch stacks in the machine code of x86-64 on Linux".into()));
    }
    let compiler = crate::nvrtc::compiler();
    let answer = Command::new(&compiler).arg("--version").env_remove("LD_LIBRARY_PATH").output();
    match answer {
        Ok(output) if output.status.success() => Ok(()),
        _ => Err(Unavailable::NoCompiler(compiler)),
    }
}

/// A folder that holds all libraries under all their names, for a program's `LD_LIBRARY_PATH`. Made once, beside the
/// library, whole or not at all: several processes may ask at once.
///
/// # Errors
/// Where there is no compiler, or the library was not built.
pub fn library_folder() -> Result<PathBuf, Unavailable> {
    library_folder_without(&[])
}

/// As [`library_folder`], but some libraries are missing, as on a machine where they were never installed.
///
/// # Errors
/// As [`library_folder`].
pub fn library_folder_without(missing: &[Library]) -> Result<PathBuf, Unavailable> {
    check_compiler()?;
    let library = library()?;
    let libraries: Vec<Library> = Library::ALL.into_iter().filter(|l| !missing.contains(l)).collect();
    let names: Vec<&str> = libraries.iter().flat_map(|l| l.names()).collect();
    let mut hasher = DefaultHasher::new();
    (&library, &names).hash(&mut hasher);
    let parent = library.parent().unwrap_or(Path::new("/"));
    let folder = parent.join(format!("virtual-gpu-libraries-{:016x}", hasher.finish()));
    if !folder.exists() {
        make_folder(&folder, &library, &names).map_err(Unavailable::Failed)?;
    }
    Ok(folder)
}

fn make_folder(folder: &Path, library: &Path, names: &[&str]) -> Result<(), String> {
    let words = |e: std::io::Error| e.to_string();
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = lock(&ONE_AT_A_TIME);
    let part = folder.with_extension(format!("{}.part", std::process::id()));
    std::fs::create_dir_all(&part).map_err(words)?;
    for name in names {
        link_shim(&part.join(name), name, library)?;
    }
    // Another process may have been faster: its folder is as good.
    if std::fs::rename(&part, folder).is_err() {
        std::fs::remove_dir_all(&part).map_err(words)?;
    }
    if folder.exists() { Ok(()) } else { Err(format!("cannot make {}", folder.display())) }
}

/// A library of no code with a name of CUDA's that depends on ours: what is looked up in it is found there.
fn link_shim(file: &Path, name: &str, library: &Path) -> Result<(), String> {
    let mut command = Command::new(crate::nvrtc::compiler());
    // The dependency is noted with its whole path, so that a shim can be copied anywhere.
    command.args(["-shared", "-nostdlib", "-x", "c++", "/dev/null", "-x", "none", "-o"]).arg(file);
    command.arg(format!("-Wl,-soname,{name}")).arg("-Wl,--no-as-needed").arg(library);
    command.env_remove("LD_LIBRARY_PATH");
    let output = command.output().map_err(|e| e.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Loads the virtual GPU into this process, before anything looks for CUDA; `false` where `ANNEAL_GPU=real` asks for the
/// real one. A second call gives the same devices the settings and faults of its script.
///
/// # Errors
/// Where there is no compiler, where the library was not built, or where the number of devices is another than before.
pub fn install(script: &Script) -> Result<bool, Unavailable> {
    if std::env::var_os("ANNEAL_GPU").is_some_and(|wanted| wanted == "real") {
        return Ok(false);
    }
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = lock(&ONE_AT_A_TIME);
    let folder = library_folder()?;
    open(&library()?).map_err(Unavailable::Failed)?;
    let built = ask(&Request::Install(Box::new(script.clone()))).map_err(Unavailable::Failed)?;
    if built != Value::Bool(true) {
        return Err(Unavailable::OtherDevices);
    }
    for name in Library::ALL.iter().flat_map(|l| l.names()) {
        open(&folder.join(name)).map_err(Unavailable::Failed)?;
    }
    Ok(true)
}

/// Names alone make later look-ups find it: its symbols stay out of the way of other libraries of the same functions.
fn open(path: &Path) -> Result<usize, String> {
    let name = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|e| e.to_string())?;
    // SAFETY: the name ends in a NUL; the library has no initialisers of its own.
    let opened = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) } as usize;
    if opened != 0 {
        return Ok(opened);
    }
    // SAFETY: dlerror answers a string after a failure, or null.
    let error = unsafe { libc::dlerror() };
    if error.is_null() {
        return Err(format!("cannot open {}", path.display()));
    }
    // SAFETY: as above.
    Err(unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned())
}

type Entry = unsafe extern "C" fn(*const u8, usize, *mut u8, usize) -> usize;

/// Longest reply; a thousand messages fit.
const REPLY_BYTES: usize = 1 << 20;

fn ask(request: &Request) -> Result<Value, String> {
    let opened = open(&library().map_err(|e| e.to_string())?)?;
    // SAFETY: the handle is dlopen's and the name ends in a NUL.
    let entry = unsafe { libc::dlsym(opened as *mut c_void, c"vgpu_control".as_ptr()) };
    if entry.is_null() {
        return Err("the library has no control entry".into());
    }
    // SAFETY: the library defines this symbol with this type.
    let entry = unsafe { std::mem::transmute::<*mut c_void, Entry>(entry) };
    let text = serde_json::to_vec(request).map_err(|e| e.to_string())?;
    let mut reply = vec![0u8; REPLY_BYTES];
    // SAFETY: both ranges are as long as is said.
    let length = unsafe { entry(text.as_ptr(), text.len(), reply.as_mut_ptr(), reply.len()) };
    read_reply(reply.get(..length).ok_or("the reply is too long")?)
}

fn read_reply(reply: &[u8]) -> Result<Value, String> {
    let mut reply: Value = serde_json::from_slice(reply).map_err(|e| e.to_string())?;
    match reply.get("error") {
        Some(error) => Err(error.to_string()),
        None => Ok(reply["ok"].take()),
    }
}

/// Steers the virtual GPU of a process. Every method panics where the library cannot be loaded, the process does not answer
/// or a device is not there: a test that goes on then would prove nothing.
#[derive(Clone, Copy, Debug)]
pub struct Control(Option<(&'static Path, u32)>);

/// The control of this process's virtual GPU.
pub fn control() -> Control {
    Control(None)
}

/// The control of another process, which runs with `VGPU_DIR` set to `folder` and has made its first call.
pub fn control_of(folder: &Path, process: u32) -> Control {
    // Kept for good: a control is copied about in tests, of which there are few.
    Control(Some((Box::leak(folder.to_path_buf().into_boxed_path()), process)))
}

/// Living processes whose `VGPU_DIR` is `folder` and that have made their first call, in the order of their numbers.
pub fn processes_in(folder: &Path) -> Vec<u32> {
    shared::processes_in(folder)
}

impl Control {
    #[track_caller]
    fn tell(self, request: Request) -> Value {
        let answered = match self.0 {
            None => ask(&request),
            Some((folder, process)) => {
                shared::ask(folder, process, &request).and_then(|reply| read_reply(reply.as_bytes()))
            }
        };
        match answered {
            Ok(value) => value,
            Err(error) => panic!("virtual gpu: {error}"),
        }
    }

    #[track_caller]
    fn read<T: DeserializeOwned>(self, request: Request) -> T {
        match serde_json::from_value(self.tell(request)) {
            Ok(value) => value,
            Err(error) => panic!("virtual gpu: {error}"),
        }
    }

    /// Arms a fault; its count starts now.
    pub fn arm(self, fault: Fault) {
        self.tell(Request::Arm(fault));
    }

    /// Disarms all faults; what hangs goes on.
    pub fn clear_faults(self) {
        self.tell(Request::ClearFaults);
    }

    /// Sets the order of threads for later launches.
    pub fn set_order(self, order: Order) {
        self.tell(Request::Order(order));
    }

    /// Sets the alignment of later buffers, bytes.
    pub fn set_alignment(self, bytes: usize) {
        self.tell(Request::Alignment(bytes));
    }

    /// Whether fresh memory is filled with 0xFF.
    pub fn set_poison(self, on: bool) {
        self.tell(Request::Poison(on));
    }

    /// How many threads run the blocks of one kernel.
    pub fn set_threads(self, count: usize) {
        self.tell(Request::Threads(count));
    }

    /// Holds each piece of work in a stream up by a random time of up to so many microseconds.
    pub fn set_jitter(self, us: u64) {
        self.tell(Request::Jitter(us));
    }

    /// Whether calls that can deadlock beside a pending collective fail.
    pub fn set_strict(self, on: bool) {
        self.tell(Request::Strict(on));
    }

    /// Whether devices can map each other's memory.
    pub fn set_peer_access(self, on: bool) {
        self.tell(Request::PeerAccess(on));
    }

    /// Sets a device's memory, bytes; what is allocated stays.
    pub fn set_memory(self, device: usize, bytes: u64) {
        self.tell(Request::Memory { device, bytes });
    }

    /// Makes a device so many times slower than its figures.
    pub fn set_slow(self, device: usize, factor: f64) {
        self.tell(Request::Slow { device, factor });
    }

    /// Sets what NVML tells of a device.
    pub fn set_nvml(self, device: usize, spec: NvmlSpec) {
        self.tell(Request::Nvml { device, spec: Box::new(spec) });
    }

    /// Reports an Xid through NVML's event sets.
    pub fn report_xid(self, device: usize, code: u64) {
        self.tell(Request::Xid { device, code });
    }

    /// Loses a device at once, with a `CUresult` such as 46.
    pub fn lose(self, device: usize, code: u32) {
        self.tell(Request::Lose { device, code });
    }

    /// Brings a device back, and forgets its error: as after a reset and in a new process.
    pub fn revive(self, device: usize) {
        self.tell(Request::Revive { device });
    }

    /// What went against a rule without failing since the last call: calls that could deadlock beside a pending collective,
    /// writes just outside a buffer.
    pub fn violations(self) -> Vec<String> {
        self.read(Request::Violations)
    }

    /// What the double had to say since the last call: illegal addresses, deadlocks, mismatches.
    pub fn messages(self) -> Vec<String> {
        self.read(Request::Messages)
    }

    /// Modelled time of a device's furthest stream, nanoseconds.
    pub fn virtual_time(self, device: usize) -> u64 {
        self.read(Request::DeviceTime { device })
    }

    /// Modelled time of a stream by its `CUstream`, nanoseconds.
    pub fn stream_time(self, stream: usize) -> u64 {
        self.read(Request::StreamTime { stream })
    }

    /// Bytes allocated on a device.
    pub fn used_bytes(self, device: usize) -> u64 {
        self.read(Request::UsedBytes { device })
    }

    /// Kernels launched on a device.
    pub fn launches(self, device: usize) -> u64 {
        self.read(Request::Launches { device })
    }
}
