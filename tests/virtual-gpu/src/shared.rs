//! What processes share below the folder that `VGPU_DIR` names: memory in use, losses, and a socket a process through which
//! a test steers it.
//!
//! Without the variable a process has its devices for itself.

use crate::inject::{Request, answer_text};
use crate::state::lock;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

/// Devices and processes that the table has room for.
const DEVICES: usize = 16;
const PROCESSES: usize = 64;

/// One process's part of the table.
#[repr(C)]
struct Row {
    process: AtomicU64,
    /// Bytes in use, a device.
    used: [AtomicU64; DEVICES],
    /// Contexts, a device.
    contexts: [AtomicU64; DEVICES],
}

/// The table, as it lies in the file.
#[repr(C)]
struct Table {
    lost: [AtomicU64; DEVICES],
    rows: [Row; PROCESSES],
}

/// The table and this process's row.
pub(crate) struct Shared {
    table: &'static Table,
    row: usize,
}

/// The shared state, where `VGPU_DIR` asks for it. A folder that cannot be used ends the process: a test that believes to
/// share would prove nothing.
pub(crate) fn shared() -> Option<&'static Shared> {
    static SHARED: OnceLock<Option<Shared>> = OnceLock::new();
    let open = || {
        let folder = PathBuf::from(std::env::var_os("VGPU_DIR")?);
        match Shared::open(&folder) {
            Ok(shared) => Some(shared),
            Err(error) => {
                eprintln!("virtual gpu: cannot use VGPU_DIR {}: {error}", folder.display());
                std::process::abort()
            }
        }
    };
    SHARED.get_or_init(open).as_ref()
}

fn is_alive(process: u64) -> bool {
    // SAFETY: signal 0 only asks whether the process is there.
    process != 0 && unsafe { libc::kill(process as libc::pid_t, 0) } == 0
}

impl Shared {
    fn open(folder: &Path) -> io::Result<Shared> {
        std::fs::create_dir_all(folder)?;
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(folder.join("devices"))?;
        // A fresh file reads as zero, which is an empty table.
        file.set_len(size_of::<Table>() as u64)?;
        let (open, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
        // SAFETY: a fresh mapping of a file of that size touches nothing that exists.
        let map = unsafe { libc::mmap(std::ptr::null_mut(), size_of::<Table>(), open, libc::MAP_SHARED, fd, 0) };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping is never undone, has the table's size, and holds atomics alone, for which all bytes are valid.
        let table = unsafe { &*map.cast::<Table>() };
        let row = claim(table).ok_or_else(|| io::Error::other("too many processes"))?;
        listen(folder)?;
        Ok(Shared { table, row })
    }

    /// Tells the others what this process uses of a device.
    pub(crate) fn publish(&self, device: usize, used: u64, contexts: u64) {
        if device < DEVICES {
            self.table.rows[self.row].used[device].store(used, Ordering::Release);
            self.table.rows[self.row].contexts[device].store(contexts, Ordering::Release);
        }
    }

    /// Other processes that use a device, with the bytes of each.
    pub(crate) fn others(&self, device: usize) -> Vec<(u32, u64)> {
        let mut found = Vec::new();
        for (number, row) in self.table.rows.iter().enumerate() {
            let process = row.process.load(Ordering::Acquire);
            if number == self.row || device >= DEVICES || !is_alive(process) {
                continue;
            }
            let used = row.used[device].load(Ordering::Acquire);
            if used > 0 || row.contexts[device].load(Ordering::Acquire) > 0 {
                found.push((process as u32, used));
            }
        }
        found
    }

    /// The code with which a device was lost in any process; 0: it was not.
    pub(crate) fn lost(&self, device: usize) -> u32 {
        self.table.lost.get(device).map_or(0, |lost| lost.load(Ordering::Acquire) as u32)
    }

    pub(crate) fn set_lost(&self, device: usize, code: u32) {
        if let Some(lost) = self.table.lost.get(device) {
            lost.store(u64::from(code), Ordering::Release);
        }
    }
}

/// Takes a row that is free, or that a dead process left behind.
fn claim(table: &Table) -> Option<usize> {
    let own = u64::from(std::process::id());
    table.rows.iter().position(|row| {
        let before = row.process.load(Ordering::Acquire);
        if before != own && is_alive(before) {
            return false;
        }
        if row.process.compare_exchange(before, own, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return false;
        }
        row.used.iter().chain(&row.contexts).for_each(|number| number.store(0, Ordering::Release));
        true
    })
}

// ---- a socket a process ----

fn socket_of(folder: &Path, process: u32) -> PathBuf {
    folder.join(format!("control-{process}"))
}

/// Answers requests, a line each, for as long as the process lives.
fn listen(folder: &Path) -> io::Result<()> {
    let path = socket_of(folder, std::process::id());
    // One of the same number may be left from a process that is gone.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path)?;
    let serve = move || {
        for stream in listener.incoming().flatten() {
            // A client that went away needs no answer.
            let _ = serve_one(stream);
        }
    };
    std::thread::Builder::new().name("vgpu-control".into()).spawn(serve).map(|_| ())
}

fn serve_one(stream: UnixStream) -> io::Result<()> {
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    let mut reply = answer_text(line.as_bytes());
    reply.push('\n');
    (&stream).write_all(reply.as_bytes())
}

/// Asks another process; its reply as it stands.
pub(crate) fn ask(folder: &Path, process: u32, request: &Request) -> Result<String, String> {
    let words = |e: io::Error| format!("process {process} does not answer: {e}");
    let mut text = serde_json::to_string(request).map_err(|e| e.to_string())?;
    text.push('\n');
    let stream = UnixStream::connect(socket_of(folder, process)).map_err(words)?;
    (&stream).write_all(text.as_bytes()).map_err(words)?;
    let mut reply = String::new();
    BufReader::new(&stream).read_line(&mut reply).map_err(words)?;
    Ok(reply)
}

/// Living processes that share a folder, in the order of their numbers.
pub(crate) fn processes_in(folder: &Path) -> Vec<u32> {
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let number = |name: std::ffi::OsString| name.to_str()?.strip_prefix("control-")?.parse::<u32>().ok();
    let mut found: Vec<u32> = names.filter_map(number).filter(|process| is_alive(u64::from(*process))).collect();
    found.sort_unstable();
    found
}

/// Keeps two threads of this process from publishing out of order.
pub(crate) fn publish_in_turn(publish: impl FnOnce(&Shared)) {
    static TURN: Mutex<()> = Mutex::new(());
    if let Some(shared) = shared() {
        let _turn = lock(&TURN);
        publish(shared);
    }
}
