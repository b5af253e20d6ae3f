//! `anneal-trainer VERB`: the process that owns devices, and the sandbox that opens tokenizers. All of it is in the library;
//! here are only the process's name and the allocator that ends an over-limit `read` with words.

use std::process::ExitCode;
use trainer::process::Bounded;

#[global_allocator]
static ALLOCATOR: Bounded = Bounded;

fn main() -> ExitCode {
    // SAFETY: nothing has started a thread yet.
    unsafe { kernels::cuda::prepare_process() };
    trainer::process::set_name();
    trainer::verb::main(std::env::args_os().skip(1).collect())
}
