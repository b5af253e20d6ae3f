//! Host memory and disk: what the process takes besides its device, and whether there is room for it now.
//!
//! Not here: the choice of settings (`fit`); nothing on this page changes a decision, it can only refuse.

use crate::ranks::Ranks;
use crate::{Model, size, time};
use protocol::facts::{DeviceFacts, MachineFacts, TensorShape, TokenFacts};
use protocol::plan::{Method, PlannedSnapshot};
use protocol::problem::Way;
use protocol::{Code, Outcome, Problem};

const KEEP: &str = "snapshot.keep";
const KEEP_BEST: &str = "snapshot.keep_best";

/// The trainer itself: code, stacks, packing buffers of the matrix products, allocator slack.
const PROCESS_BYTES: u64 = 48 << 20;
/// What the driver and its libraries take of the host for each card in use.
const DRIVER_BYTES: u64 = 512 << 20;
/// Bytes the token cache takes for one token: its id and its share of marks and row tables.
const CACHE_BYTES_A_TOKEN: u64 = 8;
/// A checkpoint's headers, state and manifest.
const CHECKPOINT_SMALL_BYTES: u64 = 1 << 20;
/// Bytes of tokenizer files for one entry of the vocabulary (64 to 130 in published models).
const TOKENIZER_BYTES_AN_ENTRY: u64 = 128;

/// Memory of the host that no job may plan with: an eighth, at least 512 MB, at most half of a small machine.
pub(crate) fn reserve(host_memory_total: u64) -> u64 {
    (host_memory_total / 8).max(512 << 20).min(host_memory_total / 2)
}

/// Memory of a card that no job may plan with: the driver's context, kernels and the libraries' workspaces. A twentieth, at
/// least 768 MB, at most half of a small card.
pub(crate) fn card_reserve(total: u64) -> u64 {
    (total / 20).max(768 << 20).min(total / 2)
}

/// Most host memory of the trainer process. A CPU rank's device memory is host memory; the token cache and, while weights
/// are read, the model's files are mapped and count as long as the system keeps their pages.
pub(crate) fn host_bytes(model: &Model, tokens: &TokenFacts, device_bytes: u64, ranks: &Ranks) -> u64 {
    let cache = (tokens.train.tokens + tokens.evaluation.tokens) * CACHE_BYTES_A_TOKEN;
    cache + model.bytes + own_bytes(model, device_bytes, ranks)
}

/// What cannot be dropped: the process, and on the CPU the device's memory too.
fn own_bytes(model: &Model, device_bytes: u64, ranks: &Ranks) -> u64 {
    match ranks.card() {
        None => device_bytes + private_bytes(model),
        Some(_) => u64::from(ranks.count()) * (DRIVER_BYTES + private_bytes(model)),
    }
}

/// Process and the one tensor that is converted at a time while weights are read or written.
fn private_bytes(model: &Model) -> u64 {
    let largest = model.config.tensors().iter().map(TensorShape::elements).max().unwrap_or(0);
    PROCESS_BYTES + 4 * largest
}

/// Refuses where less memory is free now than the job will take; mapped files can be dropped and do not count.
pub(crate) fn check_free_memory(
    device_bytes: u64,
    model: &Model,
    machine: &MachineFacts,
    ranks: &Ranks,
) -> Outcome<()> {
    ranks.devices.iter().filter(|device| device.card.is_some()).try_for_each(|card| check_card(card, device_bytes))?;
    let needed = own_bytes(model, device_bytes, ranks);
    if needed <= machine.host_memory_available {
        return Ok(());
    }
    let (needs, free) = (size(needed, true), size(machine.host_memory_available, false));
    Err(Problem::new(Code::OutOfMemory, format!("the job takes {needs} of memory and {free} are free now"))
        .why("other programs hold the rest; the plan itself fits this machine")
        .kept("nothing was started")
        .room(needed, machine.host_memory_available)
        .remedy(format!("close other programs, or set machine.device_memory below {free}")))
}

/// Refuses where other programs hold what the job needs of a card.
fn check_card(card: &DeviceFacts, needed: u64) -> Outcome<()> {
    if needed <= card.memory_free {
        return Ok(());
    }
    let (needs, free) = (size(needed, true), size(card.memory_free, false));
    Err(Problem::new(Code::OutOfMemory, format!("the job takes {needs} of {} and {free} are free now", card.name))
        .why("other programs hold the rest; the plan itself fits this card")
        .kept("nothing was started")
        .room(needed, card.memory_free)
        .remedy(format!("close other programs on the card, or set machine.device_memory below {free}")))
}

/// Bytes of one checkpoint: f32 weights and two moments of all that moves, the tokenizer's files, and small things.
pub(crate) fn checkpoint_bytes(model: &Model, method: &Method) -> u64 {
    let moving = time::moving_parameters(&model.config, method);
    3 * 4 * moving + model.config.vocab as u64 * TOKENIZER_BYTES_AN_ENTRY + CHECKPOINT_SMALL_BYTES
}

/// Bytes the run's checkpoints take: those kept and the one being written, before an old one goes. Refuses where the disk
/// has less.
pub(crate) fn check_disk(snapshot: &PlannedSnapshot, checkpoint_bytes: u64, machine: &MachineFacts) -> Outcome<u64> {
    let copies = snapshot.keep as u64 + snapshot.keep_best as u64 + 1;
    let needed = copies.saturating_mul(checkpoint_bytes);
    if needed <= machine.disk_free {
        return Ok(needed);
    }
    let (needs, free) = (size(needed, true), size(machine.disk_free, false));
    let problem = Problem::new(Code::DiskFull, format!("the checkpoints need {needs} of disk and {free} are free"))
        .why(format!("{copies} × {}: those kept and the one being written", size(checkpoint_bytes, true)))
        .kept("nothing was started")
        .field(KEEP)
        .room(needed, machine.disk_free);
    let room = format!("free {} on this disk", size(needed - machine.disk_free, true));
    Err(match machine.disk_free / checkpoint_bytes {
        fit if fit >= 2 && fit < copies => problem
            .remedy(format!("{room}, or keep fewer: {KEEP} = {} and {KEEP_BEST} = 0 fit", fit - 1))
            .way(Way::set(KEEP, fit - 1).and(KEEP_BEST, 0)),
        _ => problem.remedy(format!("{room}, or choose a HOME on a larger one")),
    })
}
