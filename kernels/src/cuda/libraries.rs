//! The libraries of NVIDIA: where they are, and that they have what is called.
//!
//! The bindings panic where a library or a function is missing, so nothing of them is called before this module found
//! everything: it looks through folders, loads what it finds by full path, checks the functions, and gives it the name
//! that the bindings ask for.

use super::{alias, folders};
use libloading::os::unix::{Library as Loaded, RTLD_LAZY, RTLD_LOCAL};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Whether a library can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is loaded and has all functions that are called.
    Found {
        /// Its file.
        path: PathBuf,
        /// As it tells: "12.9"; for the driver the CUDA version that it supports. Empty where it does not tell.
        version: String,
    },
    /// It is not there, or not usable.
    Missing {
        /// What was looked for and where, or what it lacks.
        why: String,
    },
}

/// One library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// For people: "the NVIDIA driver".
    pub name: &'static str,
    /// What the pip package is called that has it; the driver has none.
    pub package: Option<&'static str>,
    /// Whether a single GPU works without it.
    pub required: bool,
    /// Whether it can be used.
    pub presence: Presence,
}

/// All libraries that CUDA devices need, looked for once a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Libraries {
    /// The driver.
    pub driver: Library,
    /// The run-time compiler.
    pub nvrtc: Library,
    /// Matrix products.
    pub cublas_lt: Library,
    /// Collectives: only several GPUs need them.
    pub nccl: Library,
}

impl Libraries {
    /// All of them, in the order they are needed.
    pub fn all(&self) -> [&Library; 4] {
        [&self.driver, &self.nvrtc, &self.cublas_lt, &self.nccl]
    }

    /// What is missing and needed for one GPU, in words; empty where nothing is.
    pub fn missing(&self) -> String {
        let needed = self.all().into_iter().filter(|library| library.required);
        let words = needed.filter_map(|library| match &library.presence {
            Presence::Found { .. } => None,
            Presence::Missing { why } => Some(format!("{}: {why}", library.name)),
        });
        words.collect::<Vec<_>>().join("; ")
    }

    /// Whether one GPU can be used.
    pub fn usable(&self) -> bool {
        self.missing().is_empty()
    }
}

impl Library {
    /// Whether it can be used.
    pub fn is_found(&self) -> bool {
        matches!(self.presence, Presence::Found { .. })
    }

    /// An error that names it, unless it can be used.
    pub(crate) fn or_error(&self) -> Result<(), super::DeviceError> {
        match &self.presence {
            Presence::Found { .. } => Ok(()),
            Presence::Missing { why } => Err(super::DeviceError::Library { library: self.name, why: why.clone() }),
        }
    }
}

/// What is known of a library before it is looked for.
pub(super) struct Wanted {
    name: &'static str,
    package: Option<&'static str>,
    required: bool,
    /// The name that the bindings ask the loader for first.
    alias: &'static str,
    /// Names of its file, the preferred first.
    files: &'static [&'static str],
    /// Files beside it that it loads by name later, by how they begin.
    companions: &'static str,
    symbols: &'static [&'static str],
    /// The function that tells the version, how, and how its numbers become words.
    version: &'static str,
    telling: Telling,
    words: fn(i32, i32) -> String,
}

/// How a function tells a version.
enum Telling {
    /// It writes one number.
    One,
    /// It writes major and minor.
    Two,
    /// It returns a number.
    Returned,
}

pub(super) const DRIVER: Wanted = Wanted {
    name: "the NVIDIA driver",
    package: None,
    required: true,
    alias: "libcuda.so",
    files: &["libcuda.so.1", "libcuda.so"],
    companions: "",
    symbols: &[
        "cuInit",
        "cuDriverGetVersion",
        "cuDeviceGet",
        "cuDeviceGetCount",
        "cuDeviceGetName",
        "cuDeviceGetUuid",
        "cuDeviceTotalMem_v2",
        "cuDeviceGetAttribute",
        "cuDevicePrimaryCtxRetain",
        "cuDevicePrimaryCtxRelease_v2",
        "cuCtxSetCurrent",
        "cuStreamCreate",
        "cuStreamDestroy_v2",
        "cuStreamSynchronize",
        "cuStreamQuery",
        "cuMemAlloc_v2",
        "cuMemFree_v2",
        "cuMemGetInfo_v2",
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2",
        "cuMemsetD8Async",
        "cuModuleLoadData",
        "cuModuleUnload",
        "cuModuleGetFunction",
        "cuFuncSetAttribute",
        "cuLaunchKernel",
        "cuGetErrorName",
    ],
    version: "cuDriverGetVersion",
    telling: Telling::One,
    words: |version, _| format!("{}.{}", version / 1000, version % 1000 / 10),
};

pub(super) const NVRTC: Wanted = Wanted {
    name: "NVRTC",
    package: Some("nvidia-cuda-nvrtc-cu12"),
    required: true,
    alias: "libnvrtc.so",
    files: &["libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc.so"],
    companions: "libnvrtc-builtins.so",
    symbols: &[
        "nvrtcVersion",
        "nvrtcCreateProgram",
        "nvrtcCompileProgram",
        "nvrtcDestroyProgram",
        "nvrtcGetCUBIN",
        "nvrtcGetCUBINSize",
        "nvrtcGetProgramLog",
        "nvrtcGetProgramLogSize",
    ],
    version: "nvrtcVersion",
    telling: Telling::Two,
    words: |major, minor| format!("{major}.{minor}"),
};

pub(super) const CUBLAS_LT: Wanted = Wanted {
    name: "cuBLASLt",
    package: Some("nvidia-cublas-cu12"),
    required: true,
    alias: "libcublasLt.so",
    files: &["libcublasLt.so.12", "libcublasLt.so.13", "libcublasLt.so"],
    companions: "",
    symbols: &[
        "cublasLtCreate",
        "cublasLtDestroy",
        "cublasLtMatmul",
        "cublasLtMatmulAlgoGetHeuristic",
        "cublasLtMatmulDescCreate",
        "cublasLtMatmulDescDestroy",
        "cublasLtMatmulDescSetAttribute",
        "cublasLtMatmulPreferenceCreate",
        "cublasLtMatmulPreferenceDestroy",
        "cublasLtMatmulPreferenceSetAttribute",
        "cublasLtMatrixLayoutCreate",
        "cublasLtMatrixLayoutDestroy",
    ],
    version: "cublasLtGetVersion",
    telling: Telling::Returned,
    words: |version, _| format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100),
};

pub(super) const NCCL: Wanted = Wanted {
    name: "NCCL",
    package: Some("nvidia-nccl-cu12"),
    required: false,
    alias: "libnccl.so",
    files: &["libnccl.so.2", "libnccl.so"],
    companions: "",
    symbols: &[
        "ncclGetVersion",
        "ncclGetUniqueId",
        "ncclCommInitRank",
        "ncclCommAbort",
        "ncclCommGetAsyncError",
        "ncclAllReduce",
    ],
    version: "ncclGetVersion",
    telling: Telling::One,
    words: |version, _| format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100),
};

/// Looks for all libraries, the first time; loads them and keeps them loaded. Never panics.
pub fn libraries() -> &'static Libraries {
    static FOUND: OnceLock<Libraries> = OnceLock::new();
    FOUND.get_or_init(|| {
        let folders = folders::to_search();
        let [driver, nvrtc, cublas_lt, nccl] = [DRIVER, NVRTC, CUBLAS_LT, NCCL].map(|wanted| find(&wanted, &folders));
        Libraries { driver, nvrtc, cublas_lt, nccl }
    })
}

/// Looks for one library.
pub(super) fn find(wanted: &Wanted, folders: &[PathBuf]) -> Library {
    let presence = match locate(wanted, folders) {
        Ok((path, version)) => Presence::Found { path, version },
        Err(why) => Presence::Missing { why },
    };
    Library { name: wanted.name, package: wanted.package, required: wanted.required, presence }
}

fn locate(wanted: &Wanted, folders: &[PathBuf]) -> Result<(PathBuf, String), String> {
    // Whoever loaded a library under this name before us has chosen already.
    if let Some(loaded) = already(wanted.alias) {
        return checked(wanted, loaded).map(|version| (PathBuf::from(wanted.alias), version));
    }
    let mut refused = Vec::new();
    let in_folders = folders.iter().flat_map(|folder| wanted.files.iter().map(move |file| folder.join(file)));
    let by_name = wanted.files.iter().map(PathBuf::from);
    for path in in_folders.filter(|path| path.is_file()).chain(by_name) {
        match load(wanted, &path) {
            Ok(version) => return Ok((path, version)),
            // What the loader finds nowhere by name is no news.
            Err(why) if path.is_absolute() => refused.push(format!("{}: {why}", path.display())),
            Err(_) => {}
        }
    }
    if !refused.is_empty() {
        return Err(refused.join("; "));
    }
    Err(format!("none of {} is in the {} folders that were searched", wanted.files.join(", "), folders.len()))
}

/// A library that stands in this process under the name already.
fn already(name: &str) -> Option<Loaded> {
    const RTLD_NOLOAD: i32 = 4;
    // SAFETY: nothing is loaded, so no code of a library runs.
    unsafe { Loaded::open(Some(name), RTLD_LAZY | RTLD_NOLOAD) }.ok()
}

/// Loads a file, checks it and gives it its second name; its version.
fn load(wanted: &Wanted, path: &Path) -> Result<String, String> {
    load_companions(wanted, path);
    // SAFETY: the libraries of NVIDIA have no constructors that touch this program.
    let loaded = unsafe { Loaded::open(Some(path), RTLD_LAZY | RTLD_LOCAL) }.map_err(|e| words(&e))?;
    let version = checked(wanted, loaded)?;
    let named = alias::load(wanted.alias, path, &folders::to_write())?;
    std::mem::forget(named);
    Ok(version)
}

/// Loads what lies beside a library and is looked for by name later, from wherever that may be.
fn load_companions(wanted: &Wanted, path: &Path) {
    let Some(folder) = path.parent().filter(|_| !wanted.companions.is_empty()) else { return };
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let beside = entries.flatten().filter(|e| e.file_name().to_string_lossy().starts_with(wanted.companions));
    for entry in beside {
        // SAFETY: as above. One that cannot be loaded is missed when it is needed, with the library's own words.
        if let Ok(loaded) = unsafe { Loaded::open(Some(entry.path()), RTLD_LAZY | RTLD_LOCAL) } {
            std::mem::forget(loaded);
        }
    }
}

/// The library's version, once all functions were found in it. It stays loaded.
fn checked(wanted: &Wanted, loaded: Loaded) -> Result<String, String> {
    // SAFETY: only asked whether they are there.
    let lacks = |name: &&&str| unsafe { loaded.get::<*const ()>(name.as_bytes()) }.is_err();
    let missing: Vec<&str> = wanted.symbols.iter().filter(lacks).copied().collect();
    if !missing.is_empty() {
        return Err(format!("it lacks {}", missing.join(", ")));
    }
    let version = version(wanted, &loaded);
    std::mem::forget(loaded);
    Ok(version)
}

/// Empty where the library does not tell.
fn version(wanted: &Wanted, loaded: &Loaded) -> String {
    let name = wanted.version.as_bytes();
    let (mut first, mut second) = (0, 0);
    // SAFETY: the functions have the types that NVIDIA documents, and the numbers live through the calls.
    let status = unsafe {
        match wanted.telling {
            Telling::One => loaded.get::<unsafe extern "C" fn(*mut i32) -> u32>(name).map(|ask| ask(&mut first)),
            Telling::Two => {
                let ask = loaded.get::<unsafe extern "C" fn(*mut i32, *mut i32) -> u32>(name);
                ask.map(|ask| ask(&mut first, &mut second))
            }
            Telling::Returned => loaded.get::<unsafe extern "C" fn() -> usize>(name).map(|ask| {
                first = ask() as i32;
                0
            }),
        }
    };
    if status.is_ok_and(|status| status == 0) { (wanted.words)(first, second) } else { String::new() }
}

/// An error of the loader with what lies behind it, where its words are.
pub(super) fn words(error: &libloading::Error) -> String {
    let behind = std::error::Error::source(error).map(|source| format!(": {source}"));
    format!("{error}{}", behind.unwrap_or_default())
}
