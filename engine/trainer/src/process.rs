//! What the process asks of the kernel: its name, its limits as a sandbox, its signals, its high-water mark.
//!
//! Not here: what `read` does inside its limits (`verb/read.rs`), when a run leaves (`verb/run.rs`).

use protocol::{Code, Outcome, Problem};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};

/// Exit status after a result.
pub const DONE: u8 = 0;
/// Exit status after wrong arguments.
pub const USAGE: u8 = 2;
/// Exit status after a problem.
pub const REFUSED: u8 = 3;

/// Names the process for `ps` and `top`: started through `/proc/self/fd/N` its name would be the number.
pub fn set_name() {
    // Only cosmetic: a kernel that refuses it leaves the process fully usable.
    let _ = rustix::thread::set_name(c"anneal-trainer");
}

/// Most resident bytes this process ever had (VmHWM); 0 where the kernel does not say.
pub fn host_bytes_peak() -> u64 {
    status_kib("VmHWM:") * 1024
}

/// Address space in use (VmSize), in bytes.
fn address_space() -> u64 {
    status_kib("VmSize:") * 1024
}

fn status_kib(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|rest| rest.split_whitespace().next()).and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Limits of the sandboxed `read`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of address space beyond what the process has when the limit is set.
    pub memory: u64,
    /// Seconds of processor time.
    pub cpu_seconds: u64,
    /// Open files.
    pub files: u64,
}

impl Limits {
    /// Sets the limits on this process for good. No way back: a hostile file cannot lift them.
    /// Errors: `Internal` where the kernel refuses.
    pub fn apply(self) -> Outcome<()> {
        let memory = address_space().saturating_add(self.memory);
        limit(Resource::As, memory, memory)?;
        limit(Resource::Nofile, self.files, self.files)?;
        limit(Resource::Core, 0, 0)?;
        // The soft limit sends SIGXCPU, which speaks and leaves; the hard one kills where even that hangs.
        limit(Resource::Cpu, self.cpu_seconds, self.cpu_seconds + 5)?;
        speak_when_out_of_time()?;
        // Nothing the sandbox might start could gain rights.
        let _ = rustix::thread::set_no_new_privs(true);
        SANDBOXED.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Does `work` inside the limits on memory and time, then lifts them again: for a process that goes on to hold a model.
    /// Errors: those of `work`; `Internal` where the kernel refuses.
    pub fn during<T>(self, work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        let _sandbox = Sandbox::enter(self)?;
        work()
    }
}

/// Limits that end with this value.
struct Sandbox {
    memory: Rlimit,
    cpu: Rlimit,
}

impl Sandbox {
    fn enter(limits: Limits) -> Outcome<Sandbox> {
        let sandbox = Sandbox { memory: getrlimit(Resource::As), cpu: getrlimit(Resource::Cpu) };
        speak_when_out_of_time()?;
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime).tv_sec.max(0) as u64;
        soft(Resource::As, sandbox.memory, address_space().saturating_add(limits.memory))?;
        soft(Resource::Cpu, sandbox.cpu, used.saturating_add(limits.cpu_seconds))?;
        SANDBOXED.store(true, Ordering::Relaxed);
        Ok(sandbox)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        SANDBOXED.store(false, Ordering::Relaxed);
        // Raising a soft limit back to where it was is always allowed.
        let _ = setrlimit(Resource::As, self.memory);
        let _ = setrlimit(Resource::Cpu, self.cpu);
    }
}

/// Lowers a soft limit; the hard one stays, so that it can be lifted again.
fn soft(resource: Resource, now: Rlimit, wanted: u64) -> Outcome<()> {
    let current = now.current.map_or(wanted, |current| current.min(wanted));
    set(resource, Rlimit { current: Some(current), maximum: now.maximum })
}

/// Lowers a limit; one that is already tighter stays.
fn limit(resource: Resource, soft: u64, hard: u64) -> Outcome<()> {
    let maximum = getrlimit(resource).maximum.map_or(hard, |now| now.min(hard));
    set(resource, Rlimit { current: Some(soft.min(maximum)), maximum: Some(maximum) })
}

fn set(resource: Resource, new: Rlimit) -> Outcome<()> {
    setrlimit(resource, new)
        .map_err(|e| Problem::internal(format!("the limit {resource:?} could not be set")).why(e.to_string()))
}

/// Set once limits stand: from then on a failed allocation is the input's doing.
static SANDBOXED: AtomicBool = AtomicBool::new(false);

/// Last words of a sandbox that may not allocate any more; the shape of `protocol::verb::Line::Problem`.
const OUT_OF_MEMORY: &str = concat!(
    r#"{"line":"problem","problem":{"code":"too_large","what":"reading these files needs more memory than is allowed","#,
    r#""why":"the sandbox's memory limit was reached (512 MiB and 8 times the size of tokenizer.json)","#,
    r#""kept":"nothing was changed","remedy":"check that tokenizer, template and data are what they should be"}}"#,
    "\n"
);

/// Last words of a sandbox that ran out of processor time.
const OUT_OF_TIME: &str = concat!(
    r#"{"line":"problem","problem":{"code":"too_large","what":"reading these files takes longer than is allowed","#,
    r#""why":"the sandbox's limit of processor time was reached","#,
    r#""kept":"nothing was changed","remedy":"check that tokenizer, template and data are what they should be"}}"#,
    "\n"
);

/// Writes a line to standard output and leaves without running anything else: safe in a signal and without memory.
fn leave_with(words: &str) -> ! {
    let mut rest = words.as_bytes();
    while !rest.is_empty() {
        match rustix::io::write(rustix::stdio::stdout(), rest) {
            Ok(n) if n > 0 => rest = &rest[n..],
            _ => break,
        }
    }
    exit_now(REFUSED)
}

/// Leaves at once, without destructors.
pub fn exit_now(status: u8) -> ! {
    signal_hook::low_level::exit(i32::from(status))
}

fn speak_when_out_of_time() -> Outcome<()> {
    // SAFETY: the action only writes a constant with write(2) and calls _exit(2); both are async-signal-safe.
    let set =
        unsafe { signal_hook::low_level::register(rustix::process::Signal::XCPU.as_raw(), || leave_with(OUT_OF_TIME)) };
    set.map(drop).map_err(|e| Problem::internal("SIGXCPU could not be watched").why(e.to_string()))
}

/// The system's allocator; in the sandbox a failed allocation ends the process with a `Problem` instead of an abort.
pub struct Bounded;

// SAFETY: every call goes to the system's allocator with the arguments unchanged; a null result either reaches the caller
// as it is or does not return at all.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract is the system allocator's.
        some_or_leave(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        some_or_leave(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        some_or_leave(unsafe { System.realloc(old, layout, size) })
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(old, layout) }
    }
}

fn some_or_leave(memory: *mut u8) -> *mut u8 {
    if memory.is_null() && SANDBOXED.load(Ordering::Relaxed) {
        leave_with(OUT_OF_MEMORY);
    }
    memory
}

/// Watches the run's signals on a thread: the first SIGTERM calls `stop`, a second one leaves at once. SIGINT and SIGHUP
/// are ignored: the terminal's Ctrl-C and its end are for the command line, not for a job that outlives it.
pub fn watch_signals(stop: impl Fn() + Send + 'static) -> Outcome<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let failed = |e: std::io::Error| Problem::internal("signals could not be watched").why(e.to_string());
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(failed)?;
    let watch = move || {
        let mut asked = false;
        for signal in signals.forever().filter(|s| *s == SIGTERM) {
            if asked {
                eprintln!("a second signal {signal}: leaving at once");
                exit_now(REFUSED);
            }
            asked = true;
            stop();
        }
    };
    std::thread::Builder::new().name("anneal-signals".into()).spawn(watch).map(drop).map_err(failed)
}

/// Bytes free on the disk that holds `path`, for messages; 0 where the kernel does not say.
pub fn disk_free(path: &std::path::Path) -> u64 {
    rustix::fs::statvfs(path).map(|s| s.f_bavail.saturating_mul(s.f_frsize)).unwrap_or(0)
}

/// The problem of arguments that name no verb or misuse one.
pub fn usage(what: impl Into<String>) -> Problem {
    Problem::new(Code::SettingInvalid, what)
        .remedy("anneal-trainer is started by anneal; use anneal itself, see `anneal --help`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::verb::Line;

    #[test]
    fn last_words_are_a_problem_the_engine_can_read() {
        for words in [OUT_OF_MEMORY, OUT_OF_TIME] {
            let line: Line = serde_json::from_str(words).unwrap();
            let Line::Problem { problem } = line else { panic!("{words}") };
            assert_eq!(problem.code, Code::TooLarge);
        }
    }

    #[test]
    fn the_high_water_mark_is_told() {
        let before = host_bytes_peak();
        let mut block = vec![0u8; 64 << 20];
        block.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        assert!(before > 100_000 && host_bytes_peak() >= 64 << 20 && address_space() >= 64 << 20, "{}", block[4096]);
    }
}
