//! Faults that a script arms, and the one entry through which a test steers the library while it runs.

use crate::script::{Fault, NvmlSpec, Order, Script};
use crate::state::{build, gpu, lock};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, PoisonError};

/// What a launch meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaunchFault {
    Fails(u32),
    Lost(u32),
    Hangs,
    Xid(u64),
}

/// What a collective meets on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CollectiveFault {
    Refused(u32),
    Spoiled,
}

/// Armed faults, with what remains of their counts.
#[derive(Default)]
pub(crate) struct Faults {
    armed: Mutex<Vec<Fault>>,
    cleared: Condvar,
}

/// Counts a fault's number down; true when it is due.
fn due(count: &mut u64) -> bool {
    *count = count.saturating_sub(1);
    *count == 0
}

impl Faults {
    pub(crate) fn new(faults: &[Fault]) -> Self {
        Faults { armed: Mutex::new(faults.to_vec()), cleared: Condvar::new() }
    }

    pub(crate) fn arm(&self, fault: Fault) {
        lock(&self.armed).push(fault);
    }

    /// Forgets all faults and lets hanging calls go on.
    pub(crate) fn clear(&self) {
        lock(&self.armed).clear();
        self.cleared.notify_all();
    }

    /// Removes the faults that `hit` answers something for, and answers these.
    fn take<T>(&self, mut hit: impl FnMut(&mut Fault) -> Option<T>) -> Vec<T> {
        let mut taken = Vec::new();
        lock(&self.armed).retain_mut(|fault| match hit(fault) {
            Some(found) => {
                taken.push(found);
                false
            }
            None => true,
        });
        taken
    }

    /// True where this allocation is to fail.
    pub(crate) fn allocation(&self, id: usize) -> bool {
        let hits = self.take(|fault| match fault {
            Fault::OutOfMemory { device, allocation } if *device == id => due(allocation).then_some(()),
            _ => None,
        });
        !hits.is_empty()
    }

    /// What this launch meets.
    pub(crate) fn launch(&self, id: usize) -> Vec<LaunchFault> {
        self.take(|fault| match fault {
            Fault::IllegalAddress { device, launch } if *device == id => {
                due(launch).then_some(LaunchFault::Fails(crate::state::code::ILLEGAL_ADDRESS))
            }
            Fault::DeviceLost { device, launch, code } if *device == id => {
                due(launch).then_some(LaunchFault::Lost(*code))
            }
            Fault::Xid { device, launch, code } if *device == id => due(launch).then_some(LaunchFault::Xid(*code)),
            _ => None,
        })
        .into_iter()
        .chain(self.hang(id))
        .collect()
    }

    /// A hang stays armed until the faults are cleared: that is what it waits for.
    fn hang(&self, id: usize) -> Option<LaunchFault> {
        lock(&self.armed).iter_mut().find_map(|fault| match fault {
            Fault::LaunchHang { device, launch } if *device == id && *launch > 0 => {
                due(launch).then_some(LaunchFault::Hangs)
            }
            _ => None,
        })
    }

    /// True where this copy is to go wrong.
    pub(crate) fn peer_copy(&self, id: usize) -> bool {
        let hits = self.take(|fault| match fault {
            Fault::WrongPeerCopy { device, copy } if *device == id => due(copy).then_some(()),
            _ => None,
        });
        !hits.is_empty()
    }

    /// True where this registration of host memory is to fail.
    pub(crate) fn registration(&self, id: usize) -> bool {
        let hits = self.take(|fault| match fault {
            Fault::HostRegistration { device, registration } if *device == id => due(registration).then_some(()),
            _ => None,
        });
        !hits.is_empty()
    }

    /// What this collective meets.
    pub(crate) fn collective(&self, id: usize) -> Vec<CollectiveFault> {
        self.take(|fault| match fault {
            Fault::CollectiveError { device, collective, code } if *device == id => {
                due(collective).then_some(CollectiveFault::Refused(*code))
            }
            Fault::WrongCollective { device, collective } if *device == id => {
                due(collective).then_some(CollectiveFault::Spoiled)
            }
            _ => None,
        })
    }

    /// Returns once no spent hang of a device's launches is armed.
    pub(crate) fn wait_while_hanging(&self, id: usize) {
        let hangs = |f: &Fault| matches!(f, Fault::LaunchHang { device, launch: 0 } if *device == id);
        self.wait_while(hangs);
    }

    /// Returns once no hang of a function of NVML is armed.
    pub(crate) fn wait_for_nvml(&self, name: &str) {
        self.wait_while(|f| matches!(f, Fault::NvmlHang { call } if call == name));
    }

    fn wait_while(&self, hangs: impl Fn(&Fault) -> bool) {
        let mut armed = lock(&self.armed);
        while armed.iter().any(&hangs) {
            armed = self.cleared.wait(armed).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// What a test asks of the library; JSON, since a test links a second copy of this crate that shares no state with it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    Install(Box<Script>),
    Arm(Fault),
    ClearFaults,
    Order(Order),
    Alignment(usize),
    Poison(bool),
    Threads(usize),
    Jitter(u64),
    Strict(bool),
    PeerAccess(bool),
    Memory { device: usize, bytes: u64 },
    Slow { device: usize, factor: f64 },
    Nvml { device: usize, spec: Box<NvmlSpec> },
    Xid { device: usize, code: u64 },
    Lose { device: usize, code: u32 },
    Revive { device: usize },
    Violations,
    Messages,
    DeviceTime { device: usize },
    StreamTime { stream: usize },
    UsedBytes { device: usize },
    Launches { device: usize },
}

/// Carries a request out; `Err` in words where it names a device or stream that is not there.
pub(crate) fn answer(request: Request) -> Result<Value, String> {
    let missing = |_| "no such device or stream".to_owned();
    let device = |id: usize| gpu().device(id).map_err(missing);
    match request {
        Request::Install(script) => return Ok(json!(install(&script))),
        Request::Arm(fault) => gpu().faults.arm(fault),
        Request::ClearFaults => gpu().faults.clear(),
        Request::Order(order) => gpu().settings.set_order(order),
        Request::Alignment(bytes) => gpu().settings.set_alignment(bytes),
        Request::Poison(on) => gpu().settings.poison.store(on, Ordering::Relaxed),
        Request::Threads(count) => gpu().settings.threads.store(count.max(1), Ordering::Relaxed),
        Request::Jitter(us) => gpu().settings.jitter_us.store(us, Ordering::Relaxed),
        Request::Strict(on) => gpu().settings.strict.store(on, Ordering::Relaxed),
        Request::PeerAccess(on) => gpu().settings.peer_access.store(on, Ordering::Relaxed),
        Request::Memory { device: id, bytes } => device(id)?.change(|s| s.memory_bytes = bytes),
        Request::Slow { device: id, factor } => device(id)?.change(|s| s.slow_factor = factor),
        Request::Nvml { device: id, spec } => device(id)?.change(|s| s.nvml = *spec),
        Request::Xid { device: id, code } => crate::nvml::report_xid(device(id)?, code),
        Request::Lose { device: id, code } => device(id)?.lose(code),
        Request::Revive { device: id } => device(id)?.revive(),
        Request::Violations => return Ok(json!(gpu().take_violations())),
        Request::Messages => return Ok(json!(gpu().take_messages())),
        Request::DeviceTime { device: id } => {
            return Ok(json!(device(id)?.streams().iter().map(|s| s.time()).max().unwrap_or(0)));
        }
        Request::StreamTime { stream } => return Ok(json!(gpu().streams.get(stream).map_err(missing)?.time())),
        Request::UsedBytes { device: id } => return Ok(json!(device(id)?.used.load(Ordering::Acquire))),
        Request::Launches { device: id } => return Ok(json!(device(id)?.launches.load(Ordering::Acquire))),
    }
    Ok(Value::Null)
}

/// Builds the machine, or gives the built one the script's settings and faults; true where its devices are the script's.
fn install(script: &Script) -> bool {
    if build(script) {
        return true;
    }
    if gpu().devices.len() != script.devices.len() {
        return false;
    }
    gpu().settings.set(script);
    gpu().faults.clear();
    script.faults.iter().cloned().for_each(|fault| gpu().faults.arm(fault));
    gpu().devices.iter().zip(&script.devices).for_each(|(device, spec)| device.change(|s| *s = spec.clone()));
    true
}

/// Answers a request of JSON with `{"ok": ...}` or `{"error": "..."}`.
pub(crate) fn answer_text(request: &[u8]) -> String {
    let answered = serde_json::from_slice(request).map_err(|e| e.to_string()).and_then(answer);
    let reply = match answered {
        Ok(value) => json!({ "ok": value }),
        Err(error) => json!({ "error": error }),
    };
    reply.to_string()
}

/// Answers a request of JSON: `{"ok": ...}` or `{"error": "..."}` is written to `reply`, and its length returned. A reply
/// longer than `capacity` is cut; the length tells.
///
/// # Safety
/// `request` points to `length` readable bytes, `reply` to `capacity` writable ones.
#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_control(request: *const u8, length: usize, reply: *mut u8, capacity: usize) -> usize {
    // SAFETY: the caller vouches for the range.
    let text = unsafe { std::slice::from_raw_parts(request, length) };
    let text = answer_text(text);
    let fits = text.len().min(capacity);
    // SAFETY: the caller vouches for `capacity` bytes, and `fits` is no more.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), reply, fits) };
    text.len()
}
