//! The one virtual machine of a process: devices, handles, settings, what was observed.

use crate::inject::Faults;
use crate::kernel::{Function, Module};
use crate::memory::{Home, Memory};
use crate::script::{DeviceSpec, Order, Script};
use crate::shared::{publish_in_turn, shared};
use crate::stream::{Event, Stream};
use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

/// Result of a driver operation: a `CUresult` where it fails.
pub(crate) type Cu<T> = Result<T, u32>;

/// Values of `CUresult`.
pub(crate) mod code {
    pub(crate) const INVALID_VALUE: u32 = 1;
    pub(crate) const OUT_OF_MEMORY: u32 = 2;
    pub(crate) const NOT_INITIALIZED: u32 = 3;
    pub(crate) const NO_DEVICE: u32 = 100;
    pub(crate) const INVALID_DEVICE: u32 = 101;
    pub(crate) const INVALID_IMAGE: u32 = 200;
    pub(crate) const INVALID_CONTEXT: u32 = 201;
    pub(crate) const NO_BINARY_FOR_GPU: u32 = 209;
    pub(crate) const PEER_ACCESS_UNSUPPORTED: u32 = 217;
    pub(crate) const INVALID_PTX: u32 = 218;
    pub(crate) const FILE_NOT_FOUND: u32 = 301;
    pub(crate) const INVALID_HANDLE: u32 = 400;
    pub(crate) const NOT_FOUND: u32 = 500;
    pub(crate) const NOT_READY: u32 = 600;
    pub(crate) const ILLEGAL_ADDRESS: u32 = 700;
    pub(crate) const LAUNCH_OUT_OF_RESOURCES: u32 = 701;
    pub(crate) const PEER_ACCESS_ALREADY_ENABLED: u32 = 704;
    pub(crate) const PEER_ACCESS_NOT_ENABLED: u32 = 705;
    pub(crate) const HOST_MEMORY_ALREADY_REGISTERED: u32 = 712;
    pub(crate) const HOST_MEMORY_NOT_REGISTERED: u32 = 713;
    pub(crate) const MISALIGNED_ADDRESS: u32 = 716;
    pub(crate) const LAUNCH_FAILED: u32 = 719;
    pub(crate) const NOT_PERMITTED: u32 = 800;
    pub(crate) const NOT_SUPPORTED: u32 = 801;
    pub(crate) const STREAM_CAPTURE_UNSUPPORTED: u32 = 900;
    pub(crate) const STREAM_CAPTURE_INVALIDATED: u32 = 901;
    pub(crate) const STREAM_CAPTURE_UNMATCHED: u32 = 903;
    pub(crate) const STREAM_CAPTURE_UNJOINED: u32 = 904;
    pub(crate) const STREAM_CAPTURE_ISOLATION: u32 = 905;
    pub(crate) const CAPTURED_EVENT: u32 = 907;
}

/// Locks even where a thread panicked while it held the lock: what a double guards is never half changed for long.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Objects behind handles. A handle is a number that is never used twice, so that a stale one is noticed.
pub(crate) struct Registry<T> {
    objects: RwLock<HashMap<usize, Arc<T>>>,
    next: AtomicUsize,
}

impl<T> Registry<T> {
    /// Handles count up from `first` in steps of 16.
    pub(crate) fn new(first: usize) -> Self {
        Registry { objects: RwLock::new(HashMap::new()), next: AtomicUsize::new(first) }
    }

    pub(crate) fn insert(&self, object: Arc<T>) -> usize {
        let handle = self.next.fetch_add(16, Ordering::Relaxed);
        self.objects.write().unwrap_or_else(PoisonError::into_inner).insert(handle, object);
        handle
    }

    pub(crate) fn get(&self, handle: usize) -> Cu<Arc<T>> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects.get(&handle).cloned().ok_or(code::INVALID_HANDLE)
    }

    pub(crate) fn remove(&self, handle: usize) -> Cu<Arc<T>> {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        objects.remove(&handle).ok_or(code::INVALID_HANDLE)
    }

    /// Forgets the objects that are not kept.
    pub(crate) fn retain(&self, keep: impl Fn(&T) -> bool) {
        self.objects.write().unwrap_or_else(PoisonError::into_inner).retain(|_, object| keep(object));
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

/// Most that one kernel of a slow device waits.
const SLOWED_SECONDS_MAX: f64 = 1.0;

/// Kernels and products that run on a device, in real time.
#[derive(Default)]
struct Activity {
    running: usize,
    /// Since when at least one runs.
    since: Option<Instant>,
    /// Time in which at least one ran, up to `since`.
    busy: Duration,
}

/// One virtual device.
pub(crate) struct Device {
    pub(crate) id: usize,
    pub(crate) spec: RwLock<DeviceSpec>,
    /// Bytes allocated.
    pub(crate) used: AtomicU64,
    /// Error that all later calls answer; 0: none.
    sticky: AtomicU32,
    /// Code of a device that no new context brings back; 0: none.
    lost: AtomicU32,
    pub(crate) primary_references: AtomicUsize,
    pub(crate) launches: AtomicU64,
    activity: Mutex<Activity>,
    /// Collectives that were issued and have not ended.
    pub(crate) pending_collectives: AtomicUsize,
    pub(crate) peers: Mutex<BTreeSet<usize>>,
    default_stream: OnceLock<Arc<Stream>>,
    pub(crate) running_streams: Mutex<Vec<Weak<Stream>>>,
}

impl Device {
    fn new(id: usize, spec: DeviceSpec) -> Self {
        Device {
            id,
            spec: RwLock::new(spec),
            used: AtomicU64::new(0),
            sticky: AtomicU32::new(0),
            lost: AtomicU32::new(0),
            primary_references: AtomicUsize::new(0),
            launches: AtomicU64::new(0),
            activity: Mutex::default(),
            pending_collectives: AtomicUsize::new(0),
            peers: Mutex::new(BTreeSet::new()),
            default_stream: OnceLock::new(),
            running_streams: Mutex::default(),
        }
    }

    pub(crate) fn spec(&self) -> DeviceSpec {
        self.spec.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads one thing of the description without a copy of the whole.
    pub(crate) fn read<T>(&self, part: impl FnOnce(&DeviceSpec) -> T) -> T {
        part(&self.spec.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut DeviceSpec)) {
        change(&mut self.spec.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// The sticky error, if any.
    pub(crate) fn healthy(&self) -> Cu<()> {
        match self.sticky.load(Ordering::Acquire) {
            0 => match shared().map_or(0, |shared| shared.lost(self.id)) {
                0 => Ok(()),
                error => Err(error),
            },
            error => Err(error),
        }
    }

    /// Bytes that all processes use.
    pub(crate) fn used_by_all(&self) -> u64 {
        self.used.load(Ordering::Acquire) + self.others().iter().map(|(_, used)| used).sum::<u64>()
    }

    /// Other processes that use the device, with the bytes of each.
    pub(crate) fn others(&self) -> Vec<(u32, u64)> {
        shared().map_or_else(Vec::new, |shared| shared.others(self.id))
    }

    /// Tells other processes what this one uses.
    pub(crate) fn publish(&self) {
        publish_in_turn(|shared| {
            let contexts = self.primary_references.load(Ordering::Acquire) as u64;
            shared.publish(self.id, self.used.load(Ordering::Acquire), contexts);
        });
    }

    /// Keeps the first error.
    pub(crate) fn fail(&self, error: u32) {
        let _ = self.sticky.compare_exchange(0, error, Ordering::AcqRel, Ordering::Acquire);
    }

    pub(crate) fn lose(&self, error: u32) {
        self.lost.store(error, Ordering::Release);
        self.sticky.store(error, Ordering::Release);
        publish_in_turn(|shared| shared.set_lost(self.id, error));
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire) != 0 || shared().is_some_and(|shared| shared.lost(self.id) != 0)
    }

    /// A new context: forgets the error, but not a loss.
    pub(crate) fn forget_error(&self) {
        self.sticky.store(self.lost.load(Ordering::Acquire), Ordering::Release);
    }

    pub(crate) fn revive(&self) {
        self.lost.store(0, Ordering::Release);
        self.sticky.store(0, Ordering::Release);
        publish_in_turn(|shared| shared.set_lost(self.id, 0));
    }

    pub(crate) fn default_stream(&self) -> Arc<Stream> {
        self.default_stream.get_or_init(|| Stream::start(self.id)).clone()
    }

    /// Whether the device can use an address: it is not memory of another device whose access is not enabled.
    pub(crate) fn reaches(&self, address: usize) -> bool {
        match gpu().memory.find(address).map(|range| range.home) {
            Some(Home::Device(owner)) if owner != self.id => lock(&self.peers).contains(&owner),
            _ => true,
        }
    }

    /// As on a GPU, work on memory that the device does not reach ends with an illegal address, once it runs.
    pub(crate) fn check_reach(&self, addresses: &[usize], what: &str) -> Cu<()> {
        match addresses.iter().find(|address| !self.reaches(**address)) {
            None => Ok(()),
            Some(address) => {
                let place = gpu().memory.describe(*address);
                gpu().tell(format!("{what} on device {} uses memory that is not enabled there: {place}", self.id));
                Err(code::ILLEGAL_ADDRESS)
            }
        }
    }

    /// Does work that counts as busy time; on a slow device it takes longer.
    pub(crate) fn busy_while(&self, work: impl FnOnce()) {
        let started = Instant::now();
        {
            let mut activity = lock(&self.activity);
            activity.running += 1;
            activity.since.get_or_insert(started);
        }
        work();
        let slower = self.read(|s| s.slow_factor) - 1.0;
        if slower > 0.0 {
            let wait = (started.elapsed().as_secs_f64() * slower).min(SLOWED_SECONDS_MAX);
            std::thread::sleep(Duration::from_secs_f64(wait));
        }
        let mut activity = lock(&self.activity);
        activity.running -= 1;
        if activity.running == 0
            && let Some(since) = activity.since.take()
        {
            activity.busy += since.elapsed();
        }
    }

    /// Time in which at least one kernel or product ran.
    pub(crate) fn busy(&self) -> Duration {
        let activity = lock(&self.activity);
        activity.busy + activity.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// All streams of the device whose threads run: also destroyed ones that have work left.
    pub(crate) fn streams(&self) -> Vec<Arc<Stream>> {
        let mut running = lock(&self.running_streams);
        running.retain(|stream| stream.strong_count() > 0);
        running.iter().filter_map(Weak::upgrade).collect()
    }

    /// Waits for all streams, then answers the sticky error.
    pub(crate) fn synchronize(&self) -> Cu<()> {
        self.streams().iter().for_each(|s| s.synchronize());
        self.healthy()
    }
}

/// What may change while programs run.
pub(crate) struct Settings {
    pub(crate) order: AtomicU32,
    pub(crate) alignment: AtomicUsize,
    pub(crate) poison: AtomicBool,
    pub(crate) threads: AtomicUsize,
    pub(crate) jitter_us: AtomicU64,
    pub(crate) strict: AtomicBool,
    pub(crate) peer_access: AtomicBool,
    pub(crate) rank_processes: AtomicBool,
    pub(crate) driver_version: AtomicU32,
}

impl Settings {
    fn new(script: &Script) -> Self {
        let settings = Settings {
            order: AtomicU32::new(0),
            alignment: AtomicUsize::new(0),
            poison: AtomicBool::new(false),
            threads: AtomicUsize::new(0),
            jitter_us: AtomicU64::new(0),
            strict: AtomicBool::new(false),
            peer_access: AtomicBool::new(false),
            rank_processes: AtomicBool::new(false),
            driver_version: AtomicU32::new(0),
        };
        settings.set(script);
        settings
    }

    pub(crate) fn set(&self, script: &Script) {
        self.set_order(script.order);
        self.set_alignment(script.alignment);
        self.poison.store(script.poison, Ordering::Relaxed);
        self.threads.store(script.threads.max(1), Ordering::Relaxed);
        self.jitter_us.store(script.jitter_us, Ordering::Relaxed);
        self.strict.store(script.strict, Ordering::Relaxed);
        self.peer_access.store(script.peer_access, Ordering::Relaxed);
        self.rank_processes.store(script.rank_processes, Ordering::Relaxed);
        self.driver_version.store(script.driver_version.max(0) as u32, Ordering::Relaxed);
    }

    pub(crate) fn set_order(&self, order: Order) {
        self.order.store(order as u32, Ordering::Relaxed);
    }

    pub(crate) fn set_alignment(&self, bytes: usize) {
        self.alignment.store(bytes.next_power_of_two().clamp(16, 4096), Ordering::Relaxed);
    }
}

/// The virtual machine.
pub(crate) struct Gpu {
    pub(crate) devices: Vec<Device>,
    pub(crate) settings: Settings,
    pub(crate) memory: Memory,
    pub(crate) faults: Faults,
    pub(crate) streams: Registry<Stream>,
    pub(crate) events: Registry<Event>,
    pub(crate) modules: Registry<Module>,
    pub(crate) functions: Registry<Function>,
    pub(crate) started: Instant,
    violations: Mutex<Vec<String>>,
    messages: Mutex<Vec<String>>,
}

/// Messages and violations kept: a test reads a few, an endless run must not fill memory.
const KEPT_LINES: usize = 1_000;

impl Gpu {
    fn new(script: &Script) -> Self {
        let devices = script.devices.iter().cloned().enumerate().map(|(id, spec)| Device::new(id, spec)).collect();
        Gpu {
            devices,
            settings: Settings::new(script),
            memory: Memory::default(),
            faults: Faults::new(&script.faults),
            streams: Registry::new(0x5700_0000),
            events: Registry::new(0xE700_0000),
            modules: Registry::new(0x3000_0000),
            functions: Registry::new(0xF000_0000),
            started: Instant::now(),
            violations: Mutex::default(),
            messages: Mutex::default(),
        }
    }

    pub(crate) fn device(&self, id: usize) -> Cu<&Device> {
        self.devices.get(id).ok_or(code::INVALID_DEVICE)
    }

    /// Tells a person what went wrong, on standard error and to the test.
    pub(crate) fn tell(&self, message: String) {
        eprintln!("virtual gpu: {message}");
        let mut messages = lock(&self.messages);
        if messages.len() < KEPT_LINES {
            messages.push(message);
        }
    }

    /// Notes what went against a rule without failing.
    pub(crate) fn note(&self, violation: String) {
        eprintln!("virtual gpu: violation: {violation}");
        let mut violations = lock(&self.violations);
        if violations.len() < KEPT_LINES {
            violations.push(violation);
        }
    }

    /// Notes a call that could deadlock beside a pending collective; fails it in strict mode.
    pub(crate) fn check_collectives(&self, device: usize, call: &str) -> Cu<()> {
        if self.devices[device].pending_collectives.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        self.note(format!("{call} on device {device} while a collective is pending"));
        if self.settings.strict.load(Ordering::Relaxed) { Err(code::NOT_PERMITTED) } else { Ok(()) }
    }

    pub(crate) fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.violations))
    }

    pub(crate) fn take_messages(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.messages))
    }
}

static GPU: OnceLock<Gpu> = OnceLock::new();

/// The machine; built at first use from the script that the environment names.
pub(crate) fn gpu() -> &'static Gpu {
    GPU.get_or_init(|| Gpu::new(&script_of_environment()))
}

/// Builds the machine from a script; `false` where it was already built.
pub(crate) fn build(script: &Script) -> bool {
    let mut built = false;
    GPU.get_or_init(|| {
        built = true;
        Gpu::new(script)
    });
    built
}

/// The script named by `VGPU_SCRIPT`, else `virtual-gpu.json` in a folder of `LD_LIBRARY_PATH`: a program that cleans its
/// children's environment keeps that one. A broken one ends the process: a test that runs on other devices than it asked for
/// proves nothing.
fn script_of_environment() -> Script {
    let beside = || {
        let folders = std::env::var_os("LD_LIBRARY_PATH")?;
        std::env::split_paths(&folders).map(|folder| folder.join("virtual-gpu.json")).find(|file| file.is_file())
    };
    let named = std::env::var_os("VGPU_SCRIPT").map(std::path::PathBuf::from);
    let Some(path) = named.or_else(beside) else { return Script::default() };
    let read = std::fs::read(&path).map_err(|e| e.to_string());
    match read.and_then(|text| serde_json::from_slice(&text).map_err(|e| e.to_string())) {
        Ok(script) => script,
        Err(error) => {
            eprintln!("virtual gpu: cannot read the script {}: {error}", path.display());
            std::process::abort()
        }
    }
}

thread_local! {
    /// Device of the thread's current context.
    static CURRENT: Cell<Option<usize>> = const { Cell::new(None) };
}

pub(crate) fn set_current(device: Option<usize>) {
    CURRENT.set(device);
}

/// Device of the current context, healthy or not.
pub(crate) fn current_unchecked() -> Option<&'static Device> {
    CURRENT.get().and_then(|id| gpu().devices.get(id))
}

/// Device of the current context; its sticky error where it has one.
pub(crate) fn current() -> Cu<&'static Device> {
    let device = current_unchecked().ok_or(code::INVALID_CONTEXT)?;
    device.healthy()?;
    Ok(device)
}
