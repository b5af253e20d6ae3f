//! Kernels: loading the libraries that the compiler double makes, launching, and stopping at a bad address.

use crate::clock;
use crate::inject::LaunchFault;
use crate::memory;
use crate::state::{Cu, Device, code, gpu, lock};
use crate::stream::Stream;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Most threads of a block.
const BLOCK_THREADS: u64 = 1024;
/// Dynamic shared memory without `cuFuncSetAttribute`, bytes.
const SHARED_BYTES: u32 = 48 << 10;
/// Dynamic shared memory with it, bytes.
pub(crate) const SHARED_BYTES_MAX: u32 = 227 << 10;
const PAGE: usize = 4096;
/// Kernels of fewer threads run on one thread.
const PARALLEL_FROM: u64 = 16_384;
const SIGNAL_STACK_BYTES: usize = 64 << 10;

/// `vgpu::Launch` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawLaunch {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    order: u32,
    poison: u32,
    seed: u64,
}

type Run = unsafe extern "C" fn(
    *const RawLaunch,
    *const *mut c_void,
    u64,
    u64,
    *mut c_void,
    *mut c_void,
    *mut c_void,
) -> c_int;
type Sizes = unsafe extern "C" fn(*mut u32) -> u32;
type Raise = unsafe extern "C" fn(c_int);
type Where = unsafe extern "C" fn(*mut u32);
type Bytes = unsafe extern "C" fn() -> usize;

unsafe extern "C" {
    fn dladdr1(address: *const c_void, found: *mut libc::Dl_info, extra: *mut *mut c_void, flags: c_int) -> c_int;
}
const RTLD_DL_SYMENT: c_int = 1;

// ---- modules ----

/// A loaded module: one copy of a library, so that its globals are its own.
pub(crate) struct Module {
    library: usize,
    raise: Raise,
    place: Where,
    block_bytes: usize,
    arena_bytes: usize,
    globals: Mutex<Vec<usize>>,
}

impl Drop for Module {
    fn drop(&mut self) {
        for start in lock(&self.globals).drain(..) {
            let _ = gpu().memory.unregister(start);
        }
        // SAFETY: the handle is dlopen's; functions hold the module, so that none of its code runs now.
        unsafe { libc::dlclose(self.library as *mut c_void) };
    }
}

fn symbol(library: usize, name: &str) -> Cu<usize> {
    let name = CString::new(name).map_err(|_| code::INVALID_VALUE)?;
    // SAFETY: the handle is dlopen's and the name ends in a NUL.
    let found = unsafe { libc::dlsym(library as *mut c_void, name.as_ptr()) } as usize;
    if found == 0 { Err(code::NOT_FOUND) } else { Ok(found) }
}

impl Module {
    /// Loads an image of the compiler double; NVIDIA's own images are refused as the driver refuses foreign ones.
    pub(crate) fn load(image: &[u8]) -> Cu<Arc<Module>> {
        let library = open_copy(image)?;
        let (block, arena) = (symbol(library, "vgpu_block_bytes"), symbol(library, "vgpu_arena_bytes"));
        let (raise, place) = (symbol(library, "vgpu_raise"), symbol(library, "vgpu_where"));
        let (Ok(block), Ok(arena), Ok(raise), Ok(place)) = (block, arena, raise, place) else {
            return Err(code::INVALID_IMAGE);
        };
        // SAFETY: the header defines these symbols with these types.
        unsafe {
            Ok(Arc::new(Module {
                library,
                raise: std::mem::transmute::<usize, Raise>(raise),
                place: std::mem::transmute::<usize, Where>(place),
                block_bytes: std::mem::transmute::<usize, Bytes>(block)(),
                arena_bytes: std::mem::transmute::<usize, Bytes>(arena)(),
                globals: Mutex::default(),
            }))
        }
    }

    /// A kernel by name.
    pub(crate) fn function(self: &Arc<Self>, name: &str) -> Cu<Arc<Function>> {
        let run = symbol(self.library, &format!("vgpu_run_{name}"))?;
        let sizes = symbol(self.library, &format!("vgpu_sizes_{name}"))?;
        let mut bytes = [0u32; 256];
        // SAFETY: the header defines these symbols with these types; no kernel has more than 256 parameters.
        let (run, count) = unsafe {
            (std::mem::transmute::<usize, Run>(run), std::mem::transmute::<usize, Sizes>(sizes)(bytes.as_mut_ptr()))
        };
        let sizes = bytes[..count as usize].iter().map(|b| *b as usize).collect();
        Ok(Arc::new(Function {
            module: self.clone(),
            run,
            sizes,
            name: name.into(),
            shared_bytes: AtomicI32::new(SHARED_BYTES as i32),
        }))
    }

    /// Address and size of a global of the module.
    pub(crate) fn global(&self, name: &str) -> Cu<(usize, usize)> {
        let address = symbol(self.library, name)?;
        // SAFETY: all-zero bytes are a valid `Dl_info`; the call fills it and the pointer in.
        let size = unsafe {
            let mut found: libc::Dl_info = std::mem::zeroed();
            let mut entry: *mut c_void = std::ptr::null_mut();
            if dladdr1(address as *const c_void, &mut found, &mut entry, RTLD_DL_SYMENT) == 0 || entry.is_null() {
                return Err(code::NOT_FOUND);
            }
            (*entry.cast::<libc::Elf64_Sym>()).st_size as usize
        };
        if gpu().memory.register(address, size).is_ok() {
            lock(&self.globals).push(address);
        }
        Ok((address, size))
    }
}

/// Opens a private copy of an image: dlopen gives the same file, and the same name, only once.
fn open_copy(image: &[u8]) -> Cu<usize> {
    static COPIES: AtomicU64 = AtomicU64::new(0);
    let number = COPIES.fetch_add(1, Ordering::Relaxed);
    let path = crate::nvrtc::cache_folder().join(format!("module-{}-{number}.so", std::process::id()));
    let written = std::fs::create_dir_all(crate::nvrtc::cache_folder()).and_then(|()| std::fs::write(&path, image));
    if let Err(error) = written {
        gpu().tell(format!("cannot write {}: {error}", path.display()));
        return Err(code::OUT_OF_MEMORY);
    }
    let opened = open_library(&path);
    let _ = std::fs::remove_file(&path);
    opened
}

fn open_library(path: &std::path::Path) -> Cu<usize> {
    let name = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| code::INVALID_VALUE)?;
    // SAFETY: the name ends in a NUL; the library's initialisers are those of a kernel source.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) } as usize;
    if library != 0 {
        return Ok(library);
    }
    // SAFETY: dlerror answers a string after a failure, or null.
    let error = unsafe { libc::dlerror() };
    if !error.is_null() {
        // SAFETY: as above.
        gpu().tell(unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned());
    }
    Err(code::INVALID_IMAGE)
}

const ELF_MAGIC: &[u8; 4] = b"\x7fELF";
/// `e_machine` of NVIDIA's own images.
const MACHINE_CUDA: u16 = 190;

/// The image behind a pointer: an ELF file tells its own length, a text ends in a NUL.
///
/// # Safety
/// `image` points to a whole ELF file or to a text that ends in a NUL.
pub(crate) unsafe fn image_at(image: *const u8) -> Cu<Vec<u8>> {
    if image.is_null() {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: the caller vouches for the image; a text of fewer bytes stops the comparison at its NUL.
    let is_elf = unsafe { (0..4).all(|i| *image.add(i) == ELF_MAGIC[i]) };
    if is_elf {
        // SAFETY: an ELF file has its 64-byte header.
        return unsafe { elf_at(image) };
    }
    // SAFETY: the caller vouches for the NUL.
    let text = unsafe { CStr::from_ptr(image.cast::<c_char>()) }.to_string_lossy().into_owned();
    let Some(path) = crate::nvrtc::library_named_by(&text) else {
        gpu().tell("PTX of another compiler was given to the virtual GPU".into());
        return Err(code::INVALID_PTX);
    };
    std::fs::read(path).map_err(|_| code::FILE_NOT_FOUND)
}

/// # Safety
/// `image` points to a whole ELF file.
unsafe fn elf_at(image: *const u8) -> Cu<Vec<u8>> {
    // SAFETY: the caller vouches for the header, which has 64 bytes.
    let header = unsafe { std::slice::from_raw_parts(image, 64) };
    let short = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    if short(0x12) == MACHINE_CUDA {
        gpu().tell("a cubin of another compiler was given to the virtual GPU".into());
        return Err(code::NO_BINARY_FOR_GPU);
    }
    let sections = u64::from_le_bytes(header[0x28..0x30].try_into().map_err(|_| code::INVALID_IMAGE)?);
    let length = sections as usize + short(0x3A) as usize * short(0x3C) as usize;
    // SAFETY: the table of sections is what an ELF file ends with, as the linker writes it.
    Ok(unsafe { std::slice::from_raw_parts(image, length) }.to_vec())
}

// ---- launches ----

/// A kernel.
pub(crate) struct Function {
    module: Arc<Module>,
    run: Run,
    sizes: Vec<usize>,
    name: String,
    /// Most dynamic shared memory a launch may ask for.
    pub(crate) shared_bytes: AtomicI32,
}

impl Function {
    pub(crate) fn is_of(&self, module: &Arc<Module>) -> bool {
        Arc::ptr_eq(&self.module, module)
    }
}

/// Grid, block and dynamic shared memory of a launch.
#[derive(Clone, Copy)]
pub(crate) struct Geometry {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
}

impl Geometry {
    fn blocks(&self) -> u64 {
        self.grid.iter().map(|n| u64::from(*n)).product()
    }

    fn threads_a_block(&self) -> u64 {
        self.block.iter().map(|n| u64::from(*n)).product()
    }

    fn check(&self, function: &Function) -> Cu<()> {
        let most = function.shared_bytes.load(Ordering::Relaxed).max(0) as u32;
        let sound = self.blocks() > 0
            && (1..=BLOCK_THREADS).contains(&self.threads_a_block())
            && self.block[2] <= 64
            && self.grid[0] <= i32::MAX as u32
            && self.grid[1] <= 65_535
            && self.grid[2] <= 65_535
            && self.shared_bytes <= most;
        if sound { Ok(()) } else { Err(code::INVALID_VALUE) }
    }
}

/// Values of a kernel's parameters, as they were at the call.
struct Values {
    bytes: Vec<u128>,
    offsets: Vec<usize>,
}

impl Values {
    /// # Safety
    /// `parameters` points to one pointer a size, each to as many bytes.
    unsafe fn copy(sizes: &[usize], parameters: *const *const u8) -> Values {
        let mut offsets = Vec::with_capacity(sizes.len());
        let mut units = 0;
        for size in sizes {
            offsets.push(units * 16);
            units += size.div_ceil(16);
        }
        let mut bytes = vec![0u128; units];
        for (i, size) in sizes.iter().enumerate() {
            // SAFETY: the caller vouches for the parameters; the offsets leave each value its room.
            unsafe {
                let to = bytes.as_mut_ptr().cast::<u8>().add(offsets[i]);
                std::ptr::copy_nonoverlapping(*parameters.add(i), to, *size);
            }
        }
        Values { bytes, offsets }
    }

    /// All words of the values: those that are addresses of device memory are hardly anything else.
    fn addresses(&self) -> Vec<usize> {
        self.bytes.iter().flat_map(|unit| [*unit as usize, (*unit >> 64) as usize]).collect()
    }

    fn pointers(&self) -> Vec<usize> {
        self.offsets.iter().map(|offset| self.bytes.as_ptr() as usize + offset).collect()
    }
}

/// A launch on its way through the blocks of its grid.
struct Job {
    function: Arc<Function>,
    launch: RawLaunch,
    values: Arc<Values>,
    next: AtomicU64,
    blocks: u64,
    chunk: u64,
    result: AtomicI32,
}

/// Queues a launch.
///
/// # Safety
/// `parameters` points to one pointer a parameter of the kernel, each to a value of its type.
pub(crate) unsafe fn launch(
    function: &Arc<Function>,
    geometry: Geometry,
    stream: &Stream,
    parameters: *const *const u8,
) -> Cu<()> {
    geometry.check(function)?;
    if parameters.is_null() && !function.sizes.is_empty() {
        return Err(code::INVALID_VALUE);
    }
    let device = &gpu().devices[stream.device];
    // SAFETY: the caller vouches for the parameters.
    let values = Arc::new(unsafe { Values::copy(&function.sizes, parameters) });
    // What goes wrong is drawn when the launch is issued, but for a graph, whose launches are issued later.
    let issued = stream.capture().is_none().then(|| draw(device));
    let cost = clock::kernel(device, geometry.blocks() * geometry.threads_a_block());
    let reach = device.check_reach(&values.addresses(), &function.name);
    let function = function.clone();
    stream.submit(cost, move |device| {
        if let Err(error) = reach {
            return device.fail(error);
        }
        let (number, faults) = issued.clone().unwrap_or_else(|| draw(device));
        device.busy_while(|| {
            faults.iter().for_each(|fault| meet(device, *fault));
            if device.healthy().is_ok() {
                Job::new(function.clone(), geometry, values.clone(), number).run(device);
            }
        });
    });
    Ok(())
}

/// Counts a launch: its number, and what it meets.
fn draw(device: &Device) -> (u64, Vec<LaunchFault>) {
    (device.launches.fetch_add(1, Ordering::Relaxed) + 1, gpu().faults.launch(device.id))
}

fn meet(device: &Device, fault: LaunchFault) {
    match fault {
        LaunchFault::Fails(error) => device.fail(error),
        LaunchFault::Lost(error) => device.lose(error),
        LaunchFault::Hangs => gpu().faults.wait_while_hanging(device.id),
        LaunchFault::Xid(number) => crate::nvml::report_xid(device, number),
    }
}

impl Job {
    fn new(function: Arc<Function>, geometry: Geometry, values: Arc<Values>, number: u64) -> Job {
        let settings = &gpu().settings;
        let launch = RawLaunch {
            grid: geometry.grid,
            block: geometry.block,
            shared_bytes: geometry.shared_bytes,
            order: settings.order.load(Ordering::Relaxed),
            poison: u32::from(settings.poison.load(Ordering::Relaxed)),
            seed: number,
        };
        let blocks = geometry.blocks();
        let chunk = (blocks / 16).clamp(1, 4_096);
        Job { function, launch, values, next: AtomicU64::new(0), blocks, chunk, result: AtomicI32::new(0) }
    }

    fn run(&self, device: &Device) {
        let block: u64 = self.launch.block.iter().map(|n| u64::from(*n)).product();
        let threads = gpu().settings.threads.load(Ordering::Relaxed) as u64;
        if threads > 1 && self.blocks > 1 && self.blocks * block >= PARALLEL_FROM {
            std::thread::scope(|scope| {
                for _ in 1..threads.min(self.blocks) {
                    scope.spawn(|| self.run_share());
                }
                self.run_share();
            });
        } else {
            self.run_share();
        }
        match self.result.load(Ordering::Relaxed) {
            0 => {}
            error => device.fail(error as u32),
        }
    }

    /// Runs chunks of blocks until none is left or one failed.
    fn run_share(&self) {
        let pointers = self.values.pointers();
        ARENA.with_borrow_mut(|arena| {
            let Some(arena) = arena.get_or_insert_with(|| Arena::new(&self.function.module)).as_ref() else {
                self.result.store(code::LAUNCH_OUT_OF_RESOURCES as i32, Ordering::Relaxed);
                return;
            };
            RUNNING.set(Arc::as_ptr(&self.function));
            loop {
                let from = self.next.fetch_add(self.chunk, Ordering::Relaxed);
                if from >= self.blocks {
                    break;
                }
                let result = self.run_chunk(arena, &pointers, from, (from + self.chunk).min(self.blocks));
                if result != 0 {
                    self.result.store(result, Ordering::Relaxed);
                    self.next.store(self.blocks, Ordering::Relaxed);
                    break;
                }
            }
            RUNNING.set(std::ptr::null());
        });
    }

    fn run_chunk(&self, arena: &Arena, pointers: &[usize], from: u64, to: u64) -> c_int {
        let shared = arena.shared_end - (self.launch.shared_bytes as usize).next_multiple_of(16);
        // SAFETY: the function belongs to a loaded module; values, stacks, block and shared memory have the sizes that the
        // header asks for and belong to this thread alone.
        unsafe {
            (self.function.run)(
                &self.launch,
                pointers.as_ptr().cast::<*mut c_void>(),
                from,
                to,
                arena.stacks as *mut c_void,
                arena.block.as_ptr() as *mut c_void,
                shared as *mut c_void,
            )
        }
    }
}

// ---- what a thread needs to run blocks ----

/// Fiber stacks, block state, shared memory and a stack for the signal handler; the same for all modules.
struct Arena {
    stacks: usize,
    stacks_bytes: usize,
    block: Vec<u128>,
    shared_base: usize,
    shared_end: usize,
    signal_stack: usize,
}

const SHARED_MAPPED: usize = (SHARED_BYTES_MAX as usize).next_multiple_of(PAGE) + 2 * PAGE;

impl Arena {
    fn new(module: &Module) -> Option<Arena> {
        let stacks_bytes = module.arena_bytes + 2 * PAGE;
        let stacks = memory::map_between_guards(stacks_bytes)? + PAGE;
        let shared_base = memory::map_between_guards(SHARED_MAPPED)?;
        let signal_stack = memory::map_between_guards(SIGNAL_STACK_BYTES + 2 * PAGE)? + PAGE;
        let stack = libc::stack_t { ss_sp: signal_stack as *mut c_void, ss_flags: 0, ss_size: SIGNAL_STACK_BYTES };
        // SAFETY: the stack was just mapped and is this thread's until the arena is dropped.
        unsafe { libc::sigaltstack(&stack, std::ptr::null_mut()) };
        let block = vec![0u128; module.block_bytes.div_ceil(16)];
        let shared_end = shared_base + SHARED_MAPPED - PAGE;
        Some(Arena { stacks, stacks_bytes, block, shared_base, shared_end, signal_stack })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let none = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // SAFETY: the thread ends and runs no kernel; the ranges are those that `new` mapped.
        unsafe {
            libc::sigaltstack(&none, std::ptr::null_mut());
            libc::munmap((self.signal_stack - PAGE) as *mut c_void, SIGNAL_STACK_BYTES + 2 * PAGE);
            libc::munmap(self.shared_base as *mut c_void, SHARED_MAPPED);
            libc::munmap((self.stacks - PAGE) as *mut c_void, self.stacks_bytes);
        }
    }
}

thread_local! {
    static ARENA: RefCell<Option<Option<Arena>>> = const { RefCell::new(None) };
    /// What this thread runs, for the signal handler.
    static RUNNING: Cell<*const Function> = const { Cell::new(std::ptr::null()) };
}

// ---- faults of the processor ----

const SIGNALS: [c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];
static BEFORE: OnceLock<Vec<libc::sigaction>> = OnceLock::new();

/// Installs the handler once; the handlers before it stay in charge of everything outside kernels.
pub(crate) fn catch_faults() {
    BEFORE.get_or_init(|| {
        SIGNALS
            .iter()
            .map(|signal| {
                // SAFETY: all-zero bytes are a valid `sigaction`; the handler has the type that SA_SIGINFO asks for.
                unsafe {
                    let mut action: libc::sigaction = std::mem::zeroed();
                    action.sa_sigaction = on_signal as *const () as usize;
                    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
                    let mut before: libc::sigaction = std::mem::zeroed();
                    libc::sigaction(*signal, &action, &mut before);
                    before
                }
            })
            .collect()
    });
}

extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    let function = RUNNING.get();
    if function.is_null() {
        return pass_on(signal);
    }
    // SAFETY: the thread runs this function, whose job holds it; the kernel's own code raised the signal, so that no lock
    // of this library is held by this thread; `info` is the kernel's.
    unsafe {
        let function = &*function;
        let mut place = [0u32; 6];
        (function.module.place)(place.as_mut_ptr());
        let error = explain(signal, &*info, function, place);
        (function.module.raise)(error as c_int);
    }
}

/// The instruction runs again once the handler returns, and meets the handler that was there before.
fn pass_on(signal: c_int) {
    let before = SIGNALS.iter().position(|s| *s == signal).and_then(|i| BEFORE.get()?.get(i));
    // SAFETY: the action is what the system told before, or the default.
    unsafe {
        match before {
            Some(action) => libc::sigaction(signal, action, std::ptr::null_mut()),
            None => {
                libc::signal(signal, libc::SIG_DFL);
                0
            }
        };
    }
}

/// `si_code` of a general protection fault: a misaligned vector access, or an address outside the canonical ones.
const SI_KERNEL: c_int = 0x80;

fn explain(signal: c_int, info: &libc::siginfo_t, function: &Function, place: [u32; 6]) -> u32 {
    let [bx, by, bz, x, y, z] = place;
    let here = format!("in {}, block ({bx},{by},{bz}), thread ({x},{y},{z})", function.name);
    match signal {
        libc::SIGSEGV | libc::SIGBUS if info.si_code != SI_KERNEL => {
            // SAFETY: these signals carry an address.
            let address = unsafe { info.si_addr() } as usize;
            gpu().tell(format!("illegal address {address:#x} {here}: {}", describe(address)));
            code::ILLEGAL_ADDRESS
        }
        libc::SIGFPE => {
            gpu().tell(format!("integer division by zero {here}"));
            code::LAUNCH_FAILED
        }
        _ => {
            gpu().tell(format!("misaligned access or array bound {here}"));
            code::MISALIGNED_ADDRESS
        }
    }
}

fn describe(address: usize) -> String {
    let shared = ARENA.with(|arena| {
        // SAFETY: this thread alone uses its arena, and only reads it while a kernel runs.
        unsafe { (*arena.as_ptr()).as_ref()?.as_ref().map(|a| (a.shared_base, a.shared_end)) }
    });
    match shared {
        Some((base, end)) if (base..end + PAGE).contains(&address) => {
            format!("{} bytes past the end of dynamic shared memory", address.saturating_sub(end))
        }
        _ => gpu().memory.describe(address),
    }
}

/// A whole file, as `cuModuleLoad` names it.
pub(crate) fn read_file(path: &str) -> Cu<Vec<u8>> {
    std::fs::read(PathBuf::from(path)).map_err(|_| code::FILE_NOT_FOUND)
}
