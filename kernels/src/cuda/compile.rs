//! Turns sources into binaries for one kind of device, with NVRTC, and keeps them.

use super::{DeviceError, Presence, cubins, libraries};
use cudarc::nvrtc::{result, sys};
use std::ffi::CString;
use std::sync::{Mutex, PoisonError};
use xxhash_rust::xxh3::Xxh3;

/// The kernels of one operation.
pub(super) struct Source {
    /// Its file's name, for messages.
    pub name: &'static str,
    /// What stands in front of it, beside `common.cuh`.
    before: &'static [&'static str],
    pub text: &'static str,
}

const PHILOX: &str = include_str!("../random/philox.cuh");
const SIN_COS: &str = include_str!("../random/sin_cos.cuh");

/// All kernels there are.
pub(super) const SOURCES: [Source; 13] = [
    Source { name: "adamw.cu", before: &[], text: include_str!("../adamw/adamw.cu") },
    Source { name: "attention.cu", before: &[], text: include_str!("../attention/attention.cu") },
    Source { name: "bias.cu", before: &[], text: include_str!("../bias/bias.cu") },
    Source { name: "cross_entropy.cu", before: &[], text: include_str!("../cross_entropy/cross_entropy.cu") },
    Source { name: "dropout.cu", before: &[PHILOX], text: include_str!("../dropout/dropout.cu") },
    Source { name: "elementwise.cu", before: &[], text: include_str!("../elementwise/elementwise.cu") },
    Source { name: "embedding.cu", before: &[], text: include_str!("../embedding/embedding.cu") },
    Source { name: "matmul.cu", before: &[], text: include_str!("../matmul/matmul.cu") },
    Source { name: "random.cu", before: &[PHILOX, SIN_COS], text: include_str!("../random/random.cu") },
    Source { name: "reduce.cu", before: &[], text: include_str!("../reduce/reduce.cu") },
    Source { name: "rms_norm.cu", before: &[], text: include_str!("../rms_norm/rms_norm.cu") },
    Source { name: "rope.cu", before: &[SIN_COS], text: include_str!("../rope/rope.cu") },
    Source { name: "swiglu.cu", before: &[], text: include_str!("../swiglu/swiglu.cu") },
];

impl Source {
    /// The whole text that the compiler sees; lines count as in the file.
    pub(super) fn whole(&self) -> String {
        let before = [&[include_str!("common.cuh")], self.before].concat().join("\n");
        format!("{before}\n#line 1 \"{}\"\n{}", self.name, self.text)
    }
}

/// Sources that are compiled at once: the first start on a machine waits for this.
const THREADS: usize = 4;

/// NVRTC, for devices of one compute capability.
pub(super) struct Compiler {
    architecture: String,
    options: Vec<String>,
    /// What else a binary depends on: the compiler's version and file.
    identity: String,
}

impl Compiler {
    pub(super) fn for_device((major, minor): (u32, u32)) -> Compiler {
        let architecture = format!("sm_{major}{minor}");
        let identity = match &libraries().nvrtc.presence {
            Presence::Found { path, version } => format!("{version} {}", path.display()),
            Presence::Missing { .. } => String::new(),
        };
        Compiler { options: options(&architecture), architecture, identity }
    }

    /// Binaries of `sources`, from the cache where it has them.
    pub(super) fn binaries(&self, sources: &[Source]) -> Vec<Result<Vec<u8>, DeviceError>> {
        // Ranks that start together: the second finds what the first compiled.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let mut binaries: Vec<_> = sources.iter().map(|_| None).collect();
        let share = sources.len().div_ceil(THREADS).max(1);
        std::thread::scope(|scope| {
            for (to, sources) in binaries.chunks_mut(share).zip(sources.chunks(share)) {
                let each = |(to, source): (&mut Option<_>, &Source)| *to = Some(self.binary(source));
                scope.spawn(move || to.iter_mut().zip(sources).for_each(each));
            }
        });
        binaries.into_iter().flatten().collect()
    }

    fn binary(&self, source: &Source) -> Result<Vec<u8>, DeviceError> {
        match cubins::get(self.key(source)) {
            Some(binary) => Ok(binary),
            None => self.compile_anew(source),
        }
    }

    /// Compiles and replaces what the cache has.
    pub(super) fn compile_anew(&self, source: &Source) -> Result<Vec<u8>, DeviceError> {
        let binary = self.compile(source).map_err(|log| DeviceError::Compile {
            source_name: source.name.into(),
            architecture: self.architecture.clone(),
            log,
        })?;
        cubins::put(self.key(source), &binary);
        Ok(binary)
    }

    /// Text, options and compiler: what a binary is a function of.
    fn key(&self, source: &Source) -> u128 {
        let mut hash = Xxh3::new();
        for part in [&source.whole(), &self.options.join(" "), &self.identity] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        hash.digest128()
    }

    fn compile(&self, source: &Source) -> Result<Vec<u8>, String> {
        let text = CString::new(source.whole()).map_err(|e| e.to_string())?;
        let name = CString::new(source.name).map_err(|e| e.to_string())?;
        let program = Program(result::create_program(&text, Some(&name)).map_err(|e| e.to_string())?);
        // SAFETY: the program was just made.
        match unsafe { result::compile_program(program.0, &self.options) } {
            Ok(()) => program.binary().map_err(|e| e.to_string()),
            Err(error) => Err(format!("{error}\n{}", program.log())),
        }
    }
}

/// Options for one architecture: no relaxed mathematics.
pub(super) fn options(architecture: &str) -> Vec<String> {
    vec![format!("--gpu-architecture={architecture}"), "--std=c++17".into()]
}

/// A program of NVRTC, destroyed when it goes.
struct Program(sys::nvrtcProgram);

impl Program {
    fn binary(&self) -> Result<Vec<u8>, result::NvrtcError> {
        let mut len = 0;
        // SAFETY: the program was compiled; the length is where the call writes it.
        unsafe { sys::nvrtcGetCUBINSize(self.0, &mut len) }.result()?;
        let mut binary = vec![0u8; len];
        // SAFETY: there is room for as many bytes as the call above said.
        unsafe { sys::nvrtcGetCUBIN(self.0, binary.as_mut_ptr().cast()) }.result()?;
        Ok(binary)
    }

    fn log(&self) -> String {
        // SAFETY: the program is alive.
        let log = unsafe { result::get_program_log(self.0) }.unwrap_or_default();
        let bytes: Vec<u8> = log.into_iter().map(|c| c as u8).take_while(|c| *c != 0).collect();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: made by `create_program`, destroyed once.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}
