//! The compiler double: the unmodified source, a header that gives CUDA's words a meaning on a CPU, and g++.
//!
//! A cubin is the shared library that g++ wrote; PTX is a line that names it. Compiled once a source, kept in a folder.

#![allow(
    unsafe_op_in_unsafe_fn,
    non_snake_case,
    reason = "C entry points: callers vouch for pointers as NVRTC demands"
)]

use crate::state::{Registry, lock};
use regex::Regex;
use std::ffi::{CStr, CString, c_char, c_int};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

const SUCCESS: u32 = 0;
const OUT_OF_MEMORY: u32 = 1;
const INVALID_INPUT: u32 = 3;
const INVALID_PROGRAM: u32 = 4;
const INVALID_OPTION: u32 = 5;
const COMPILATION: u32 = 6;
const NO_NAME_EXPRESSIONS_AFTER_COMPILATION: u32 = 8;
const NO_LOWERED_NAMES_BEFORE_COMPILATION: u32 = 9;
const NAME_EXPRESSION_NOT_VALID: u32 = 10;
const INTERNAL_ERROR: u32 = 11;

/// Architectures that the double knows by name: those of NVRTC 12.8.
const ARCHITECTURES: [c_int; 17] = [50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 120];

const HEADERS: [(&str, &str); 4] = [
    ("vgpu_cuda.h", include_str!("../include/vgpu_cuda.h")),
    ("cuda_bf16.h", include_str!("../include/cuda_bf16.h")),
    ("cuda_fp16.h", include_str!("../include/cuda_fp16.h")),
    ("mma.h", include_str!("../include/mma.h")),
];

/// `-ffixed-r15`: the header's. `-fnon-call-exceptions`: loads and stores may fault. Contraction as NVRTC does it by default.
const FLAGS: [&str; 17] = [
    "-x",
    "c++",
    "-std=c++17",
    "-O2",
    "-march=native",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-ffixed-r15",
    "-fPIC",
    "-shared",
    "-fno-semantic-interposition",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-strict-aliasing",
    "-fmax-errors=20",
    "-fnon-call-exceptions",
    "-w",
];

struct Program {
    source: String,
    name: String,
    headers: Vec<(String, String)>,
    expressions: Vec<CString>,
    lowered: Vec<CString>,
    log: CString,
    ptx: Vec<u8>,
    cubin: Vec<u8>,
}

fn programs() -> &'static Registry<Mutex<Program>> {
    static PROGRAMS: OnceLock<Registry<Mutex<Program>>> = OnceLock::new();
    PROGRAMS.get_or_init(|| Registry::new(0x9000_0000))
}

// ---- where things are kept ----

/// Folder of compiled kernels: `VGPU_CACHE`, else beside this library, else in the temporary folder.
pub(crate) fn cache_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        if let Some(folder) = std::env::var_os("VGPU_CACHE") {
            return folder.into();
        }
        let beside = own_path().and_then(|path| Some(path.parent()?.join("virtual-gpu-cache")));
        let writable = beside.filter(|folder| std::fs::create_dir_all(folder).is_ok());
        // SAFETY: getuid has no conditions.
        let user = unsafe { libc::getuid() };
        writable.unwrap_or_else(|| std::env::temp_dir().join(format!("virtual-gpu-cache-{user}")))
    })
}

/// Where this library was loaded from.
fn own_path() -> Option<PathBuf> {
    // SAFETY: all-zero bytes are a valid `Dl_info`; the address is one of this library's functions.
    let name = unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(own_path as *const () as *const _, &mut found) == 0 || found.dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(found.dli_fname).to_string_lossy().into_owned()
    };
    std::fs::canonicalize(name).ok()
}

/// Writes a file so that nobody ever sees half of it.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let part = path.with_extension(format!("{}-{number}.part", std::process::id()));
    std::fs::write(&part, bytes)?;
    std::fs::rename(part, path)
}

fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Folder of a set of headers, written where it is missing.
fn header_folder<N: AsRef<str> + Hash, T: AsRef<str> + Hash>(headers: &[(N, T)]) -> io::Result<PathBuf> {
    let folder = cache_folder().join(format!("include-{:016x}", hash_of(headers)));
    for (name, text) in headers {
        let file = folder.join(name.as_ref());
        if !file.exists() {
            std::fs::create_dir_all(file.parent().unwrap_or(&folder))?;
            write_whole(&file, text.as_ref().as_bytes())?;
        }
    }
    Ok(folder)
}

const PTX_MARK: &str = "// virtual gpu: ";

/// The library that a PTX text of this double names.
pub(crate) fn library_named_by(ptx: &str) -> Option<PathBuf> {
    Some(ptx.strip_prefix(PTX_MARK)?.lines().next()?.into())
}

// ---- translation ----

/// Patterns over CUDA sources: dynamic shared memory, and names of kernels.
fn patterns() -> Option<&'static (Regex, Regex)> {
    static PATTERNS: OnceLock<Option<(Regex, Regex)>> = OnceLock::new();
    let align = r"(?:__align__\s*\(\s*\w+\s*\)\s*)?";
    let bounds = r"(?:__launch_bounds__\s*\([^)]*\)\s*)?";
    PATTERNS
        .get_or_init(|| {
            let shared = format!(
                r"extern\s+__shared__\s+{align}([A-Za-z_][\w:<>\s]*?)\s+{align}(\w+)\s*\[\s*\]\s*(?:__align__\s*\(\s*\w+\s*\)\s*)?;"
            );
            let kernel = format!(r"extern\s+.C.\s+(?:static\s+)?{bounds}__global__\s+{bounds}(?:static\s+)?void\s+{bounds}(\w+)\s*\(");
            Some((Regex::new(&shared).ok()?, Regex::new(&kernel).ok()?))
        })
        .as_ref()
}

/// Kernels inside `extern "C" { ... }` blocks, which the pattern of single ones misses.
fn kernels_of_blocks(source: &str) -> Vec<String> {
    let (Ok(opening), Ok(kernel)) = (
        Regex::new(r#"extern\s+"C"\s*\{"#),
        Regex::new(
            r"__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(",
        ),
    ) else {
        return Vec::new();
    };
    let mut names = Vec::new();
    for start in opening.find_iter(source) {
        let mut depth = 1;
        let inner = &source[start.end()..];
        let end = inner.char_indices().find_map(|(at, c)| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            (depth == 0).then_some(at)
        });
        names.extend(kernel.captures_iter(&inner[..end.unwrap_or(inner.len())]).map(|c| c[1].to_owned()));
    }
    names
}

impl Program {
    /// The C++ text, with one line a kernel that exports it.
    fn translate(&mut self) -> Option<String> {
        let (shared, kernel) = patterns()?;
        let body = shared.replace_all(&self.source, "$1* $2 = ($1*)vgpu::dynamic_shared();");
        let mut text = format!("#include \"vgpu_cuda.h\"\n#line 1 \"{}\"\n{body}\n", self.name);
        let mut names: Vec<String> = kernel.captures_iter(&self.source).map(|c| c[1].to_owned()).collect();
        names.extend(kernels_of_blocks(&self.source));
        names.sort();
        names.dedup();
        names.iter().for_each(|name| text += &format!("VGPU_KERNEL({name}, {name})\n"));
        self.lowered.clear();
        for (number, expression) in self.expressions.iter().enumerate() {
            let name = format!("vgpu_expression_{number}");
            let expression = expression.to_string_lossy();
            text += &format!("VGPU_KERNEL({name}, {})\n", expression.trim_start_matches('&'));
            self.lowered.push(CString::new(name).ok()?);
        }
        Some(text)
    }

    fn compile(&mut self, options: &[String]) -> Result<(), u32> {
        let flags = flags_of(options)?;
        let text = self.translate().ok_or(INTERNAL_ERROR)?;
        let built = self.build(&text, &flags);
        let library = match built {
            Ok(library) => library?,
            Err(error) => {
                self.tell(format!("virtual gpu: {error}\n").into_bytes());
                return Err(INTERNAL_ERROR);
            }
        };
        self.cubin = std::fs::read(&library).map_err(|_| INTERNAL_ERROR)?;
        self.ptx = format!("{PTX_MARK}{}\n\0", library.display()).into_bytes();
        Ok(())
    }

    fn tell(&mut self, mut log: Vec<u8>) {
        log.retain(|byte| *byte != 0);
        self.log = CString::new(log).unwrap_or_default();
    }

    /// The library of a text: kept from before, or built now.
    fn build(&mut self, text: &str, flags: &[String]) -> io::Result<Result<PathBuf, u32>> {
        let include = header_folder(&HEADERS)?;
        let own = header_folder(&self.headers)?;
        let extra = std::env::var("VGPU_CXXFLAGS").unwrap_or_default();
        let key = hash_of((text, flags, &extra, &include, &own));
        let library = cache_folder().join(format!("{key:016x}.so"));
        if library.exists() {
            return Ok(Ok(library));
        }
        let source = cache_folder().join(format!("{key:016x}.cpp"));
        write_whole(&source, text.as_bytes())?;
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let part = cache_folder().join(format!("{key:016x}.{}-{number}.part", std::process::id()));
        let mut command = Command::new(compiler());
        command.args(FLAGS).args(extra.split_whitespace()).args(flags);
        command.arg("-I").arg(&include).arg("-I").arg(&own).arg(&source).arg("-o").arg(&part);
        // The folder of doubles is no place for a compiler's own libraries.
        let output = command.env_remove("LD_LIBRARY_PATH").output();
        let output = output.map_err(|e| io::Error::new(e.kind(), format!("cannot run {}: {e}", compiler())))?;
        self.tell(output.stderr);
        if !output.status.success() {
            return Ok(Err(COMPILATION));
        }
        std::fs::rename(&part, &library)?;
        Ok(Ok(library))
    }
}

/// The C++ compiler: `VGPU_CXX` or g++.
pub(crate) fn compiler() -> String {
    std::env::var("VGPU_CXX").unwrap_or_else(|_| "g++".into())
}

/// Options of g++ for options of NVRTC. What only concerns NVIDIA's code generator is left out; unknown ones are refused.
fn flags_of(options: &[String]) -> Result<Vec<String>, u32> {
    let mut flags = Vec::new();
    let mut at = 0;
    while at < options.len() {
        let mut option = options[at].clone();
        at += 1;
        let takes_next = ["-D", "-I", "-U", "-arch", "--gpu-architecture", "--define-macro", "--include-path", "-std"];
        if takes_next.contains(&option.as_str()) && at < options.len() {
            option = format!("{option}={}", options[at]);
            at += 1;
        }
        flags.extend(flag_of(&option).ok_or(INVALID_OPTION)?);
    }
    Ok(flags)
}

/// The flags for one option; `None` where NVRTC has no such option.
fn flag_of(option: &str) -> Option<Vec<String>> {
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    let whole = |flag: &str| Some(vec![format!("{flag}{value}")]);
    match name {
        "--define-macro" | "-D" => whole("-D"),
        "--undefine-macro" | "-U" => whole("-U"),
        "--include-path" | "-I" => whole("-I"),
        "--gpu-architecture" | "-arch" => {
            let digits = value.rsplit('_').next()?.trim_end_matches(['a', 'f']);
            let number: c_int = digits.parse().ok()?;
            ARCHITECTURES.contains(&number).then(|| vec![format!("-D__CUDA_ARCH__={}", number * 10)])
        }
        "--fmad" | "-fmad" if value == "false" => Some(vec!["-ffp-contract=off".into()]),
        "--use_fast_math" | "-use_fast_math" => Some(vec!["-D__USE_FAST_MATH__=1".into()]),
        "--std" | "-std" => whole("-std="),
        _ if option.starts_with("-D") || option.starts_with("-I") || option.starts_with("-U") => {
            Some(vec![option.into()])
        }
        _ => is_of_code_generator(name).then(Vec::new),
    }
}

fn is_of_code_generator(name: &str) -> bool {
    let known = [
        "fmad",
        "ftz",
        "prec-div",
        "prec-sqrt",
        "maxrregcount",
        "extra-device-vectorization",
        "ptxas-options",
        "Xptxas",
        "device-debug",
        "G",
        "generate-line-info",
        "lineinfo",
        "restrict",
        "extensible-whole-program",
        "ewp",
        "relocatable-device-code",
        "rdc",
        "dopt",
        "device-as-default-execution-space",
        "default-device",
        "disable-warnings",
        "w",
        "diag-suppress",
        "diag-error",
        "split-compile",
        "minimal",
        "builtin-move-forward",
        "no-source-include",
        "version-ident",
        "display-error-number",
        "time",
        "pch",
        "builtin-initializer-list",
        "extra-device-vectorization",
        "default-stream",
        "device-int128",
        "jump-table-density",
        "no-cache",
        "frandom-seed",
        "dlto",
        "arch-list",
    ];
    known.contains(&name.trim_start_matches('-'))
}

// ---- entry points ----

unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() { String::new() } else { CStr::from_ptr(pointer).to_string_lossy().into_owned() }
}

fn with(handle: usize, use_it: impl FnOnce(&mut Program) -> u32) -> u32 {
    programs().get(handle).map_or(INVALID_PROGRAM, |program| use_it(&mut lock(&program)))
}

unsafe fn put_bytes(to: *mut u8, bytes: &[u8]) -> u32 {
    if to.is_null() {
        return INVALID_INPUT;
    }
    std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
    SUCCESS
}

unsafe fn put_length(to: *mut usize, bytes: &[u8]) -> u32 {
    if to.is_null() {
        return INVALID_INPUT;
    }
    *to = bytes.len();
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> u32 {
    if major.is_null() || minor.is_null() {
        return INVALID_INPUT;
    }
    (*major, *minor) = (12, 8);
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetNumSupportedArchs(count: *mut c_int) -> u32 {
    if count.is_null() {
        return INVALID_INPUT;
    }
    *count = ARCHITECTURES.len() as c_int;
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetSupportedArchs(architectures: *mut c_int) -> u32 {
    if architectures.is_null() {
        return INVALID_INPUT;
    }
    std::ptr::copy_nonoverlapping(ARCHITECTURES.as_ptr(), architectures, ARCHITECTURES.len());
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcCreateProgram(
    program: *mut usize,
    source: *const c_char,
    name: *const c_char,
    count: c_int,
    headers: *const *const c_char,
    names: *const *const c_char,
) -> u32 {
    if program.is_null() || source.is_null() || count < 0 {
        return INVALID_INPUT;
    }
    let name = Some(text(name)).filter(|n| !n.is_empty()).unwrap_or_else(|| "default_program".into());
    let made = Program {
        source: text(source),
        name,
        headers: (0..count as usize).map(|i| (text(*names.add(i)), text(*headers.add(i)))).collect(),
        expressions: Vec::new(),
        lowered: Vec::new(),
        log: CString::default(),
        ptx: Vec::new(),
        cubin: Vec::new(),
    };
    *program = programs().insert(Arc::new(Mutex::new(made)));
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcDestroyProgram(program: *mut usize) -> u32 {
    if program.is_null() || programs().remove(*program).is_err() {
        return INVALID_PROGRAM;
    }
    *program = 0;
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcCompileProgram(program: usize, count: c_int, options: *const *const c_char) -> u32 {
    let options: Vec<String> = (0..count.max(0) as usize).map(|i| text(*options.add(i))).collect();
    with(program, |p| p.compile(&options).err().unwrap_or(SUCCESS))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcAddNameExpression(program: usize, expression: *const c_char) -> u32 {
    let Ok(expression) = CString::new(text(expression)) else { return INVALID_INPUT };
    with(program, |p| {
        if !p.cubin.is_empty() {
            return NO_NAME_EXPRESSIONS_AFTER_COMPILATION;
        }
        p.expressions.push(expression);
        SUCCESS
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetLoweredName(program: usize, expression: *const c_char, name: *mut *const c_char) -> u32 {
    let wanted = text(expression);
    with(program, |p| {
        if p.cubin.is_empty() {
            return NO_LOWERED_NAMES_BEFORE_COMPILATION;
        }
        let found = p.expressions.iter().position(|e| e.to_string_lossy() == wanted);
        let Some(lowered) = found.and_then(|i| p.lowered.get(i)) else { return NAME_EXPRESSION_NOT_VALID };
        *name = lowered.as_ptr(); // lives as long as the program
        SUCCESS
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetPTXSize(program: usize, size: *mut usize) -> u32 {
    with(program, |p| put_length(size, &p.ptx))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetPTX(program: usize, ptx: *mut u8) -> u32 {
    with(program, |p| put_bytes(ptx, &p.ptx))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetCUBINSize(program: usize, size: *mut usize) -> u32 {
    with(program, |p| put_length(size, &p.cubin))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetCUBIN(program: usize, cubin: *mut u8) -> u32 {
    with(program, |p| put_bytes(cubin, &p.cubin))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetProgramLogSize(program: usize, size: *mut usize) -> u32 {
    with(program, |p| put_length(size, p.log.as_bytes_with_nul()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetProgramLog(program: usize, log: *mut u8) -> u32 {
    with(program, |p| put_bytes(log, p.log.as_bytes_with_nul()))
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcGetErrorString(error: u32) -> *const c_char {
    let name = match error {
        SUCCESS => c"NVRTC_SUCCESS",
        OUT_OF_MEMORY => c"NVRTC_ERROR_OUT_OF_MEMORY",
        INVALID_INPUT => c"NVRTC_ERROR_INVALID_INPUT",
        INVALID_PROGRAM => c"NVRTC_ERROR_INVALID_PROGRAM",
        INVALID_OPTION => c"NVRTC_ERROR_INVALID_OPTION",
        COMPILATION => c"NVRTC_ERROR_COMPILATION",
        NO_NAME_EXPRESSIONS_AFTER_COMPILATION => c"NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
        NO_LOWERED_NAMES_BEFORE_COMPILATION => c"NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
        NAME_EXPRESSION_NOT_VALID => c"NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
        _ => c"NVRTC_ERROR_INTERNAL_ERROR",
    };
    name.as_ptr()
}
