//! Every kernel through NVIDIA's own compiler, for the oldest and the newest devices: none may keep registers in memory.
//!
//! A process of its own runs the compiler: beside a virtual GPU, whose functions have the same names, it would call those.

use super::compile::{Compiler, SOURCES, Source, options};
use crate::testing::{alone, in_child};
use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

/// Devices to compile for: the first with bf16, and the two that came after.
const ARCHITECTURES: [&str; 3] = ["sm_80", "sm_90", "sm_120"];

/// Registers of a thread at most: a block of 256 threads then fits a multiprocessor twice at least.
const REGISTERS_MAX: u32 = 128;

#[test]
fn every_kernel_compiles_for_real_devices_without_spills() {
    const NAME: &str = "cuda::gate::every_kernel_compiles_for_real_devices_without_spills";
    match in_child(NAME) {
        Some(_) => compile_all(),
        None => println!("{}", alone(NAME, Path::new("/"), &[])),
    }
}

fn compile_all() {
    let Some(nvrtc) = Nvrtc::open() else { return };
    let mut table: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut offenders = Vec::new();
    for architecture in ARCHITECTURES {
        for source in &SOURCES {
            for entry in entries(&nvrtc.compile(source, architecture)) {
                let Entry { name, registers, shared, stack, spilled } = entry;
                if spilled > 0 || stack > 0 || registers > REGISTERS_MAX {
                    offenders.push(format!("{name}, {architecture}: {registers} registers, {stack} + {spilled} bytes"));
                }
                table.entry(name).or_default().push(format!("{registers} / {shared}"));
            }
        }
    }
    println!("| kernel | {} |\n|---|---|---|---|", ARCHITECTURES.join(" | "));
    table.iter().for_each(|(name, cells)| println!("| `{name}` | {} |", cells.join(" | ")));
    assert!(offenders.is_empty(), "{}", offenders.join("\n"));
    let kernels: usize = SOURCES.iter().map(|source| super::signature::all(source.text).len()).sum();
    assert_eq!(table.len(), kernels, "a kernel is missing from the compiler's words");
    assert!(table.values().all(|cells| cells.len() == ARCHITECTURES.len()));
}

/// The library's own way to it: found in a folder, given its second name, called through the bindings.
#[test]
fn the_real_compiler_is_used_as_on_a_machine_with_devices() {
    const NAME: &str = "cuda::gate::the_real_compiler_is_used_as_on_a_machine_with_devices";
    if in_child(NAME).is_some() {
        assert!(super::libraries().nvrtc.is_found(), "{:?}", super::libraries());
        let compiler = Compiler::for_device((9, 0));
        for binary in compiler.binaries(&SOURCES) {
            let binary = binary.unwrap();
            // An ELF file for NVIDIA's devices.
            assert_eq!((&binary[..4], &binary[18..20]), (&b"\x7fELF"[..], &[190, 0][..]));
        }
        let wrong = Compiler::for_device((4, 2)).binaries(&SOURCES[..1]).remove(0).unwrap_err();
        return assert!(wrong.to_string().contains("sm_42"), "{wrong}");
    }
    if let Some(file) = nvrtc() {
        let folder = file.parent().unwrap();
        let cache = std::env::temp_dir().join(format!("kernels-gate-{}", std::process::id()));
        alone(NAME, folder, &[("ANNEAL_CUDA_LIBRARIES", folder), ("ANNEAL_KERNEL_CACHE", &cache)]);
        std::fs::remove_dir_all(cache).unwrap();
    }
}

/// The library that `ANNEAL_NVRTC` names or `scripts/nvrtc` fetched.
fn nvrtc() -> Option<PathBuf> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/nvrtc/libnvrtc.so.12");
    let file = std::env::var_os("ANNEAL_NVRTC").map_or(fetched, PathBuf::from);
    if !file.is_file() {
        println!("skipped: no NVRTC ({}); scripts/nvrtc fetches it", file.display());
        return None;
    }
    Some(file)
}

/// What the assembler says of one kernel.
struct Entry {
    name: String,
    registers: u32,
    shared: u32,
    stack: u32,
    spilled: u32,
}

fn entries(log: &str) -> Vec<Entry> {
    let after = |text: &str, word: &str| text.split_once(word).map(|(_, rest)| rest.to_owned());
    let number = |text: &str, unit: &str| -> u32 {
        let before = text.split_once(unit).map_or("", |(before, _)| before.trim());
        before.rsplit(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    let parts = log.split("Compiling entry function '").skip(1);
    parts
        .map(|part| Entry {
            name: part.split('\'').next().unwrap_or_default().to_owned(),
            registers: number(part, " registers"),
            shared: after(part, "Used ").map_or(0, |used| number(&used, " bytes smem")),
            stack: number(part, " bytes stack frame"),
            spilled: number(part, " bytes spill stores") + number(part, " bytes spill loads"),
        })
        .collect()
}

struct Nvrtc(Library);

impl Nvrtc {
    fn open() -> Option<Nvrtc> {
        let file = nvrtc()?;
        // It looks for these by name alone.
        for beside in std::fs::read_dir(file.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()) {
            if beside.file_name().unwrap().to_string_lossy().starts_with("libnvrtc-builtins") {
                std::mem::forget(open(&beside));
            }
        }
        Some(Nvrtc(open(&file)))
    }

    /// The log of a successful compilation.
    fn compile(&self, source: &Source, architecture: &str) -> String {
        type Text = *const c_char;
        let (text, name) = (CString::new(source.whole()).unwrap(), CString::new(source.name).unwrap());
        let mut options = options(architecture);
        options.extend(["--ptxas-options=-v", "--ptxas-options=--warn-on-spills"].map(String::from));
        let options: Vec<CString> = options.into_iter().map(|option| CString::new(option).unwrap()).collect();
        let pointers: Vec<Text> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program: *mut c_void = std::ptr::null_mut();
        // SAFETY: signatures as NVRTC documents them; every argument lives through its call.
        let (status, log) = unsafe {
            let create: unsafe extern "C" fn(*mut *mut c_void, Text, Text, c_int, *const Text, *const Text) -> c_int =
                self.function("nvrtcCreateProgram");
            let none = std::ptr::null();
            assert_eq!(create(&mut program, text.as_ptr(), name.as_ptr(), 0, none, none), 0);
            let compile: unsafe extern "C" fn(*mut c_void, c_int, *const Text) -> c_int =
                self.function("nvrtcCompileProgram");
            let status = compile(program, pointers.len() as c_int, pointers.as_ptr());
            let log_size: unsafe extern "C" fn(*mut c_void, *mut usize) -> c_int =
                self.function("nvrtcGetProgramLogSize");
            let get_log: unsafe extern "C" fn(*mut c_void, *mut u8) -> c_int = self.function("nvrtcGetProgramLog");
            let mut len = 0;
            assert_eq!(log_size(program, &mut len), 0);
            let mut log = vec![0; len];
            assert_eq!(get_log(program, log.as_mut_ptr()), 0);
            let destroy: unsafe extern "C" fn(*mut *mut c_void) -> c_int = self.function("nvrtcDestroyProgram");
            assert_eq!(destroy(&mut program), 0);
            (status, String::from_utf8_lossy(&log).into_owned())
        };
        assert_eq!(status, 0, "{} for {architecture}:\n{log}", source.name);
        log
    }

    /// # Safety
    /// `F` is the function's type.
    unsafe fn function<F: Copy>(&self, name: &str) -> F {
        // SAFETY: the caller's promise.
        unsafe { *self.0.get::<F>(name.as_bytes()).unwrap() }
    }
}

fn open(file: &Path) -> Library {
    // SAFETY: NVIDIA's compiler has no constructors that touch this program.
    unsafe { Library::open(Some(file), RTLD_LAZY | RTLD_LOCAL) }.unwrap()
}
