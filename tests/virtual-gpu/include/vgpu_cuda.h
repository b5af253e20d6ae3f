// CUDA C++ on a CPU: included before an unmodified kernel source, which g++ then compiles to a shared library.
//
// A block runs on one OS thread. Its CUDA threads run one after the other in a plain loop on a small stack of their own (a
// fiber); only when one blocks, at a barrier or a warp operation, does the next one get another fiber. A kernel without
// barriers therefore never switches. The block's state is found through register r15, which nothing else may use.
#pragma once
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <math.h>

#define __VGPU__ 1
#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#ifndef __CUDA_ARCH__
#define __CUDA_ARCH__ 900
#endif
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __constant__ __attribute__((visibility("default")))
#define __managed__
#define __shared__ static thread_local
#define __restrict__ __restrict
#define __grid_constant__

// ---- vector types ----

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef long long longlong;
typedef unsigned long long ulonglong;

#define VGPU_VECTOR(type, name)                                                                                        \
  struct name##1 { type x; };                                                                                          \
  struct __attribute__((aligned(2 * sizeof(type)))) name##2 { type x, y; };                                            \
  struct name##3 { type x, y, z; };                                                                                    \
  struct __attribute__((aligned(sizeof(type) * 4 > 16 ? 16 : sizeof(type) * 4))) name##4 { type x, y, z, w; };         \
  static inline name##1 make_##name##1(type x) { return {x}; }                                                         \
  static inline name##2 make_##name##2(type x, type y) { return {x, y}; }                                              \
  static inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                                   \
  static inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
VGPU_VECTOR(signed char, char)
VGPU_VECTOR(uchar, uchar)
VGPU_VECTOR(short, short)
VGPU_VECTOR(ushort, ushort)
VGPU_VECTOR(int, int)
VGPU_VECTOR(uint, uint)
VGPU_VECTOR(long, long)
VGPU_VECTOR(ulong, ulong)
VGPU_VECTOR(longlong, longlong)
VGPU_VECTOR(ulonglong, ulonglong)
VGPU_VECTOR(float, float)
VGPU_VECTOR(double, double)
#undef VGPU_VECTOR

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
  dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

// ---- one block ----

namespace vgpu {

enum : unsigned { kThreads = 1024, kLanes = 32, kWarps = kThreads / kLanes, kStackBytes = 64 * 1024 };
enum : int { kAssert = 710, kLaunchFailed = 719 };
enum class State : uint8_t { kRunning, kAtBarrier, kAtWarp, kReady, kDone };
enum class WarpOp : uint8_t { kShuffle, kBallot, kGather };

struct Thread {
  void* stack_pointer;
  uint64_t value;
  uint64_t result;
  uint3 index;
  uint8_t source;
  WarpOp op;
  State state;
};

struct Warp {
  uint32_t arrived;
  uint64_t gathered[kLanes];
};

// Shared with the library, which fills it in.
struct Launch {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z;
  unsigned shared_bytes;
  unsigned order;
  unsigned poison;
  uint64_t seed;
};

struct Block {
  uint3 thread, index;
  dim3 size, grid;
  unsigned count;       // threads
  unsigned started;     // threads that have begun, in the order of `order`
  unsigned done;        // threads that have ended
  unsigned at_barrier;
  unsigned current;
  unsigned votes[2], phase;
  unsigned ready_count, ready_head;
  unsigned free_stacks;
  bool forward;
  int fault;
  void (*body)(void*);
  void* arguments;
  char* shared;
  void* scheduler;      // stack pointer of the loop over blocks
  char* new_stack;
  sigjmp_buf escape;
  uint16_t order[kThreads], ready[kThreads];
  char* stacks[kThreads];
  Thread threads[kThreads];
  Warp warps[kWarps];
};

register Block* self asm("r15");    // compiled with -ffixed-r15; the C library keeps it
static thread_local Block* running; // for the signal handler, in which r15 may be lost

static inline void* dynamic_shared() { return self->shared; }

// Saves the callee-saved registers on this stack and goes on with another one. r15 is the same for all.
extern "C" void vgpu_switch(void** from, void* to);
asm(R"(
  .text
  .type vgpu_switch,@function
vgpu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size vgpu_switch,.-vgpu_switch
)");

[[noreturn]] static void raise_fault(int code) {
  Block* block = running;
  self = block;
  block->fault = code;
  siglongjmp(block->escape, 1);
}

static void fiber_main();

// A fresh stack whose first switch enters `fiber_main`, aligned as a call would leave it.
static inline void* new_fiber() {
  char* stack = self->stacks[--self->free_stacks];
  self->new_stack = stack;
  void** top = (void**)(stack + kStackBytes);
  *--top = nullptr;
  *--top = (void*)fiber_main;
  for (int i = 0; i < 5; i++) *--top = nullptr;
  return top;
}

static inline void* resume_next() {
  unsigned next = self->ready[self->ready_head++ % kThreads];
  self->ready_count--;
  Thread& thread = self->threads[next];
  thread.state = State::kRunning;
  self->current = next;
  self->thread = thread.index;
  return thread.stack_pointer;
}

static inline void make_ready(unsigned thread) {
  self->threads[thread].state = State::kReady;
  self->ready[(self->ready_head + self->ready_count++) % kThreads] = thread;
}

// Leaves this thread where it is and runs another one; the loop over blocks where none can run.
static inline void suspend(unsigned thread) {
  void* to;
  if (self->ready_count) {
    to = resume_next();
    if (self->current == thread) return; // the barrier it filled let it go first
  } else {
    to = self->started < self->count ? new_fiber() : self->scheduler;
  }
  vgpu_switch(&self->threads[thread].stack_pointer, to);
}

static inline void release_barrier_when_full() {
  if (!self->at_barrier || self->started < self->count || self->at_barrier != self->count - self->done) return;
  for (unsigned i = 0; i < self->count; i++) {
    unsigned thread = self->order[i];
    if (self->threads[thread].state == State::kAtBarrier) make_ready(thread);
  }
  self->at_barrier = 0;
  self->phase++;
  self->votes[(self->phase) & 1] = 0;
}

static __attribute__((noinline)) void barrier() {
  unsigned thread = self->current;
  self->threads[thread].state = State::kAtBarrier;
  self->at_barrier++;
  release_barrier_when_full();
  suspend(thread);
}

// How many threads of the block vote yes. A count is read before the next barrier can be full, which alone resets it.
static __attribute__((noinline)) unsigned barrier_count(bool yes) {
  unsigned phase = self->phase & 1;
  if (yes) self->votes[phase]++;
  barrier();
  return self->votes[phase];
}

// The last lane to arrive computes the results of all.
static void complete_warp(unsigned warp, uint32_t mask, WarpOp op) {
  Warp& w = self->warps[warp];
  Thread* lanes = self->threads + warp * kLanes;
  uint32_t ballot = 0;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    unsigned lane = __builtin_ctz(rest);
    if (op == WarpOp::kGather) w.gathered[lane] = lanes[lane].value;
    if (lanes[lane].value) ballot |= 1u << lane;
  }
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    Thread& thread = lanes[__builtin_ctz(rest)];
    bool has_source = thread.source < kLanes && (mask >> thread.source & 1);
    if (op == WarpOp::kShuffle) thread.result = has_source ? lanes[thread.source].value : thread.value;
    if (op == WarpOp::kBallot) thread.result = ballot;
  }
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    unsigned lane = __builtin_ctz(rest);
    if (lanes[lane].state == State::kAtWarp) make_ready(warp * kLanes + lane);
  }
  w.arrived &= ~mask;
}

static __attribute__((noinline)) uint64_t warp_operation(uint32_t mask, uint64_t value, unsigned source, WarpOp op) {
  unsigned current = self->current, warp = current / kLanes, lane = current % kLanes;
  unsigned lanes = self->count - warp * kLanes;
  if (lanes < kLanes) mask &= (1u << lanes) - 1;
  if (!(mask >> lane & 1)) {
    fprintf(stderr, "virtual gpu: lane %u calls a warp operation whose mask %#x leaves it out\n", lane, mask);
    raise_fault(kLaunchFailed);
  }
  Thread& thread = self->threads[current];
  thread.value = value;
  thread.source = source < kLanes ? source : 255;
  thread.op = op;
  Warp& w = self->warps[warp];
  w.arrived |= 1u << lane;
  if ((w.arrived & mask) == mask) {
    complete_warp(warp, mask, op);
    return thread.result;
  }
  thread.state = State::kAtWarp;
  suspend(current);
  return thread.result;
}

[[noreturn]] static inline void leave_fiber(char* stack, void* to) {
  void* unused;
  self->stacks[self->free_stacks++] = stack;
  vgpu_switch(&unused, to);
  __builtin_unreachable();
}

static inline void begin_thread() {
  unsigned at = self->started++, number = self->order[at];
  Thread& thread = self->threads[number];
  thread.state = State::kRunning;
  self->current = number;
  uint3 index;
  if (self->forward && at) { // no division where the order is the natural one
    index = self->threads[number - 1].index;
    if (++index.x == self->size.x) {
      index.x = 0;
      if (++index.y == self->size.y) index.y = 0, ++index.z;
    }
  } else {
    index = {number % self->size.x, number / self->size.x % self->size.y, number / self->size.x / self->size.y};
  }
  thread.index = index;
  self->thread = index;
}

static void fiber_main() {
  char* stack = self->new_stack;
  for (;;) {
    if (self->ready_count) leave_fiber(stack, resume_next());
    if (self->started >= self->count) leave_fiber(stack, self->scheduler);
    begin_thread();
    self->body(self->arguments);
    self->threads[self->current].state = State::kDone;
    self->done++;
    release_barrier_when_full();
  }
}

static void run_block() {
  self->started = self->done = self->at_barrier = self->ready_count = self->ready_head = 0;
  self->votes[0] = self->votes[1] = self->phase = 0;
  for (Warp& warp : self->warps) warp.arrived = 0;
  vgpu_switch(&self->scheduler, new_fiber());
  if (self->done == self->count) return;
  unsigned at_warp = self->count - self->done - self->at_barrier;
  fprintf(stderr,
          "virtual gpu: deadlock in block (%u,%u,%u): of %u threads %u have ended, %u wait at a barrier, %u at a warp "
          "operation\n",
          self->index.x, self->index.y, self->index.z, self->count, self->done, self->at_barrier, at_warp);
  raise_fault(kLaunchFailed);
}

static void order_threads(const Launch* launch) {
  uint64_t random = launch->seed | 1;
  self->forward = launch->order == 0;
  for (unsigned i = 0; i < self->count; i++) self->order[i] = launch->order == 1 ? self->count - 1 - i : i;
  if (launch->order != 2) return;
  for (unsigned i = self->count - 1; i > 0; i--) {
    random = random * 6364136223846793005ull + 1442695040888963407ull;
    unsigned other = (random >> 33) % (i + 1);
    uint16_t kept = self->order[i];
    self->order[i] = self->order[other];
    self->order[other] = kept;
  }
}

static __attribute__((noinline)) int run_range(const Launch* launch, void (*body)(void*), void* arguments,
                                               uint64_t from, uint64_t to, char* arena, Block* block, char* shared) {
  self = running = block;
  self->size = dim3(launch->block_x, launch->block_y, launch->block_z);
  self->grid = dim3(launch->grid_x, launch->grid_y, launch->grid_z);
  self->count = launch->block_x * launch->block_y * launch->block_z;
  self->body = body;
  self->arguments = arguments;
  self->shared = shared;
  self->fault = 0;
  self->free_stacks = kThreads;
  for (unsigned i = 0; i < kThreads; i++) self->stacks[i] = arena + (size_t)(kThreads - 1 - i) * kStackBytes;
  order_threads(launch);
  if (sigsetjmp(self->escape, 1)) {
    self = running;
    return self->fault;
  }
  for (uint64_t block_number = from; block_number < to; block_number++) {
    uint64_t rest = block_number / launch->grid_x;
    self->index = {(unsigned)(block_number % launch->grid_x), (unsigned)(rest % launch->grid_y),
                   (unsigned)(rest / launch->grid_y)};
    if (launch->poison && launch->shared_bytes) memset(self->shared, 0xFF, launch->shared_bytes);
    run_block();
  }
  return 0;
}

// Keeps the caller's r15.
static __attribute__((noinline)) int run_blocks(const Launch* launch, void (*body)(void*), void* arguments,
                                                uint64_t from, uint64_t to, char* arena, Block* block, char* shared) {
  Block* volatile kept = self;
  int result = run_range(launch, body, arguments, from, to, arena, block, shared);
  self = kept;
  return result;
}

#define VGPU_EXPORT extern "C" __attribute__((visibility("default")))

VGPU_EXPORT size_t vgpu_block_bytes() { return sizeof(Block); }
VGPU_EXPORT size_t vgpu_arena_bytes() { return (size_t)kStackBytes * kThreads; }
VGPU_EXPORT void vgpu_raise(int code) { raise_fault(code); }
VGPU_EXPORT void vgpu_where(unsigned* place) {
  const Block* block = running;
  unsigned now[6] = {block->index.x, block->index.y, block->index.z, block->thread.x, block->thread.y, block->thread.z};
  memcpy(place, now, sizeof now);
}

// ---- parameters: their sizes from the kernel's own type ----

template <int... I> struct Indices {};
template <int N, int... I> struct IndicesTo : IndicesTo<N - 1, N - 1, I...> {};
template <int... I> struct IndicesTo<0, I...> { typedef Indices<I...> Type; };
template <class T> struct Plain { typedef T Type; };
template <class T> struct Plain<const T> { typedef T Type; };

template <class F> struct Kernel;
template <class... A> struct Kernel<void (*)(A...)> {
  typedef typename IndicesTo<sizeof...(A)>::Type All;
  template <int... I> static inline __attribute__((always_inline)) void call(void (*kernel)(A...), void** values,
                                                                             Indices<I...>) {
    kernel(*(typename Plain<A>::Type*)values[I]...);
  }
  static unsigned sizes(unsigned* out) {
    unsigned all[] = {(unsigned)sizeof(A)..., 0};
    memcpy(out, all, sizeof...(A) * sizeof(unsigned));
    return sizeof...(A);
  }
};

} // namespace vgpu

// `kernel` under the name by which it is looked up.
#define VGPU_KERNEL(name, ...)                                                                                         \
  static void vgpu_body_##name(void* values) {                                                                         \
    typedef vgpu::Kernel<decltype(&__VA_ARGS__)> Kernel;                                                               \
    Kernel::call(&__VA_ARGS__, (void**)values, typename Kernel::All());                                                \
  }                                                                                                                    \
  VGPU_EXPORT unsigned vgpu_sizes_##name(unsigned* out) { return vgpu::Kernel<decltype(&__VA_ARGS__)>::sizes(out); }   \
  VGPU_EXPORT int vgpu_run_##name(const vgpu::Launch* launch, void** values, uint64_t from, uint64_t to, char* arena,  \
                                  void* block, char* shared) {                                                         \
    return vgpu::run_blocks(launch, &vgpu_body_##name, values, from, to, arena, (vgpu::Block*)block, shared);          \
  }

// ---- what kernels see ----

#define threadIdx (vgpu::self->thread)
#define blockIdx (vgpu::self->index)
#define blockDim (vgpu::self->size)
#define gridDim (vgpu::self->grid)
enum { warpSize = 32 };

#define __syncthreads() vgpu::barrier()
static inline int __syncthreads_count(int yes) { return (int)vgpu::barrier_count(yes != 0); }
static inline int __syncthreads_or(int yes) { return vgpu::barrier_count(yes != 0) != 0; }
static inline int __syncthreads_and(int yes) { return vgpu::barrier_count(yes == 0) == 0; }
static inline void __threadfence() { __sync_synchronize(); }
static inline void __threadfence_block() { __sync_synchronize(); }
static inline void __threadfence_system() { __sync_synchronize(); }
static inline void __nanosleep(unsigned) {}
static inline long long clock64() { return (long long)__builtin_ia32_rdtsc(); }

namespace vgpu {
static inline unsigned lane() { return self->current % kLanes; }

template <class T> static inline T shuffle(unsigned mask, T value, unsigned source) {
  static_assert(sizeof(T) <= 8, "shuffles take at most eight bytes");
  uint64_t bits = 0;
  memcpy((void*)&bits, (const void*)&value, sizeof(T));
  bits = warp_operation(mask, bits, source, WarpOp::kShuffle);
  memcpy((void*)&value, (const void*)&bits, sizeof(T));
  return value;
}

// Gives a lane all lanes' values; those outside the mask are stale.
static inline void gather(unsigned mask, uint64_t value, uint64_t* out) {
  warp_operation(mask, value, 0, WarpOp::kGather);
  memcpy(out, self->warps[self->current / kLanes].gathered, sizeof(uint64_t) * kLanes);
  warp_operation(mask, 0, 0, WarpOp::kBallot); // nobody gathers anew before all have read
}

template <class T, class F> static inline T reduce(unsigned mask, T value, F combine) {
  uint64_t bits = 0, all[kLanes];
  memcpy(&bits, &value, sizeof(T));
  gather(mask, bits, all);
  unsigned lanes = self->count - self->current / kLanes * kLanes;
  if (lanes < kLanes) mask &= (1u << lanes) - 1;
  T sum;
  memcpy(&sum, &all[__builtin_ctz(mask)], sizeof(T));
  for (uint32_t rest = mask & (mask - 1); rest; rest &= rest - 1) {
    T next;
    memcpy(&next, &all[__builtin_ctz(rest)], sizeof(T));
    sum = combine(sum, next);
  }
  return sum;
}
} // namespace vgpu

static inline void __syncwarp(unsigned mask = 0xffffffffu) {
  vgpu::warp_operation(mask, 0, 0, vgpu::WarpOp::kBallot);
}
template <class T> static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  int base = (int)vgpu::lane() & ~(width - 1);
  return vgpu::shuffle(mask, value, base | (source & (width - 1)));
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  int lane = vgpu::lane(), end = (lane & ~(width - 1)) + width, source = lane + (int)by;
  return vgpu::shuffle(mask, value, source < end ? source : lane);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  int lane = vgpu::lane(), base = lane & ~(width - 1), source = lane - (int)by;
  return vgpu::shuffle(mask, value, source >= base ? source : lane);
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  int lane = vgpu::lane(), end = (lane & ~(width - 1)) + width, source = lane ^ bits;
  return vgpu::shuffle(mask, value, source < end ? source : lane);
}
static inline unsigned __ballot_sync(unsigned mask, int yes) {
  return (unsigned)vgpu::warp_operation(mask, yes != 0, 0, vgpu::WarpOp::kBallot);
}
static inline int __any_sync(unsigned mask, int yes) { return __ballot_sync(mask, yes) != 0; }
static inline int __all_sync(unsigned mask, int yes) { return __ballot_sync(mask, !yes) == 0; }
#define VGPU_REDUCE(name, type, expression)                                                                            \
  static inline type name(unsigned mask, type value) {                                                                 \
    return vgpu::reduce(mask, value, [](type a, type b) { return (type)(expression); });                               \
  }
VGPU_REDUCE(__reduce_add_sync, unsigned, a + b)
VGPU_REDUCE(__reduce_add_sync, int, a + b)
VGPU_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
VGPU_REDUCE(__reduce_max_sync, int, a > b ? a : b)
VGPU_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
VGPU_REDUCE(__reduce_min_sync, int, a < b ? a : b)
VGPU_REDUCE(__reduce_and_sync, unsigned, a & b)
VGPU_REDUCE(__reduce_or_sync, unsigned, a | b)
VGPU_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
#undef VGPU_REDUCE

// ---- memory ----

template <class T> static inline T __ldg(const T* from) { return *from; }
template <class T> static inline T __ldcg(const T* from) { return *from; }
template <class T> static inline T __ldca(const T* from) { return *from; }
template <class T> static inline T __ldcs(const T* from) { return *from; }
template <class T> static inline T __ldlu(const T* from) { return *from; }
template <class T> static inline T __ldcv(const T* from) { return *(const volatile T*)from; }
template <class T> static inline void __stcg(T* to, T value) { *to = value; }
template <class T> static inline void __stcs(T* to, T value) { *to = value; }
template <class T> static inline void __stwb(T* to, T value) { *to = value; }
template <class T> static inline void __stwt(T* to, T value) { *to = value; }

namespace vgpu {
template <class T, class F> static inline T update(T* at, F change) {
  T old, next;
  __atomic_load(at, &old, __ATOMIC_RELAXED);
  do next = change(old);
  while (!__atomic_compare_exchange(at, &old, &next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return old;
}
} // namespace vgpu

#define VGPU_ATOMIC(name, type, expression)                                                                            \
  static inline type name(type* at, type value) {                                                                      \
    return vgpu::update(at, [value](type old) { return (type)(expression); });                                         \
  }
#define VGPU_ATOMIC_INTEGER(type)                                                                                      \
  VGPU_ATOMIC(atomicAdd, type, old + value)                                                                            \
  VGPU_ATOMIC(atomicMax, type, old > value ? old : value)                                                              \
  VGPU_ATOMIC(atomicMin, type, old < value ? old : value)                                                              \
  VGPU_ATOMIC(atomicAnd, type, old & value)                                                                            \
  VGPU_ATOMIC(atomicOr, type, old | value)                                                                             \
  VGPU_ATOMIC(atomicXor, type, old ^ value)                                                                            \
  VGPU_ATOMIC(atomicExch, type, value)                                                                                 \
  static inline type atomicCAS(type* at, type expected, type value) {                                                  \
    __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);                      \
    return expected;                                                                                                   \
  }
VGPU_ATOMIC_INTEGER(int)
VGPU_ATOMIC_INTEGER(unsigned)
VGPU_ATOMIC_INTEGER(unsigned long long)
VGPU_ATOMIC(atomicSub, int, old - value)
VGPU_ATOMIC(atomicSub, unsigned, old - value)
VGPU_ATOMIC(atomicInc, unsigned, old >= value ? 0u : old + 1u)
VGPU_ATOMIC(atomicDec, unsigned, old == 0u || old > value ? value : old - 1u)
VGPU_ATOMIC(atomicAdd, float, old + value)
VGPU_ATOMIC(atomicAdd, double, old + value)
VGPU_ATOMIC(atomicExch, float, value)
VGPU_ATOMIC(atomicAdd_block, float, old + value)
VGPU_ATOMIC(atomicAdd_block, int, old + value)
VGPU_ATOMIC(atomicAdd_block, unsigned, old + value)

// ---- numbers ----

#define VGPU_EXTREMES(type)                                                                                            \
  static inline type min(type a, type b) { return a < b ? a : b; }                                                     \
  static inline type max(type a, type b) { return a > b ? a : b; }
VGPU_EXTREMES(int)
VGPU_EXTREMES(unsigned)
VGPU_EXTREMES(long)
VGPU_EXTREMES(unsigned long)
VGPU_EXTREMES(long long)
VGPU_EXTREMES(unsigned long long)
#undef VGPU_EXTREMES
static inline float min(float a, float b) { return fminf(a, b); } // a NaN loses, as on the device
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }

static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
static inline float sinpif(float x) { return (float)sin(M_PI * (double)x); }
static inline float cospif(float x) { return (float)cos(M_PI * (double)x); }
static inline float normcdff(float x) { return (float)(0.5 * erfc(-(double)x * M_SQRT1_2)); }
static inline float __saturatef(float x) { return x >= 1.0f ? 1.0f : x > 0.0f ? x : 0.0f; }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __frsqrt_rn(float x) { return rsqrtf(x); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
// The C library declares functions of these names.
#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __powf(x, y) powf(x, y)
#define __sincosf(x, s, c) sincosf(x, s, c)

namespace vgpu {
template <class To, class From> static inline To bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  To to;
  memcpy((void*)&to, (const void*)&from, sizeof(To));
  return to;
}
} // namespace vgpu
static inline unsigned __float_as_uint(float x) { return vgpu::bits<unsigned>(x); }
static inline float __uint_as_float(unsigned x) { return vgpu::bits<float>(x); }
static inline int __float_as_int(float x) { return vgpu::bits<int>(x); }
static inline float __int_as_float(int x) { return vgpu::bits<float>(x); }
static inline long long __double_as_longlong(double x) { return vgpu::bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return vgpu::bits<double>(x); }
static inline int __float2int_rn(float x) { return (int)rintf(x); }
static inline int __float2int_rz(float x) { return (int)x; }
static inline int __float2int_rd(float x) { return (int)floorf(x); }
static inline int __float2int_ru(float x) { return (int)ceilf(x); }
static inline unsigned __float2uint_rn(float x) { return (unsigned)rintf(x); }
static inline unsigned __float2uint_rz(float x) { return (unsigned)x; }
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline int __mul24(int a, int b) { return (int)((unsigned)(a << 8 >> 8) * (unsigned)(b << 8 >> 8)); }
static inline int __mulhi(int a, int b) { return (int)(((long long)a * b) >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
static inline unsigned __brev(unsigned x) {
  unsigned out = 0;
  for (int i = 0; i < 32; i++) out |= (x >> i & 1u) << (31 - i);
  return out;
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  unsigned long long both = (unsigned long long)b << 32 | a;
  unsigned out = 0;
  for (int i = 0; i < 4; i++) out |= (unsigned)(both >> 8 * (selector >> 4 * i & 7) & 0xFF) << 8 * i;
  return out;
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  return (unsigned)((((unsigned long long)high << 32 | low) << (by & 31)) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return (unsigned)(((unsigned long long)high << 32 | low) >> (by & 31));
}

#undef assert
#define assert(condition)                                                                                              \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "virtual gpu: %s:%d: assertion `%s` failed in block (%u,%u,%u), thread (%u,%u,%u)\n", __FILE__,  \
              __LINE__, #condition, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);        \
      vgpu::raise_fault(vgpu::kAssert);                                                                                \
    }                                                                                                                  \
  } while (0)
#define __trap() vgpu::raise_fault(vgpu::kLaunchFailed)
