//! How many rows go through the model at once, and what is computed again instead of being kept: the fastest setting,
//! by the time model, that the arena table says fits the budget.
//!
//! Not here: free memory and disk, which can only refuse (`room`).

use crate::length::Row;
use crate::ranks::Ranks;
use crate::{Model, Reasons, memory, room, size, time};
use protocol::facts::{MachineFacts, PROJECTIONS};
use protocol::job::{self, OptimizerKind};
use protocol::plan::{Alternative, ArenaLine, Method, PlannedRun, Predicted, Recompute};
use protocol::problem::Way;
use protocol::{Code, JobSpec, Outcome, Problem};

const BUDGET: &str = "machine.device_memory";
const LENGTH: &str = "data.max_length";
const RANK: &str = "model.adapter.rank";

/// On a CPU the weights are read from memory once a product, whatever the rows: beyond this many tokens that cost is
/// below a hundredth of the step and a larger micro-batch only takes memory.
const USEFUL_TOKENS: u32 = 2048;
/// A card needs more rows to keep its units at work; beyond this many tokens nothing is gained there either.
const USEFUL_TOKENS_CARD: u32 = 16384;
/// Bytes of a page of a card's memory.
const CARD_PAGE: u64 = 2 << 20;
/// Ranks the search for a remedy proposes.
const REMEDY_RANKS: [u32; 3] = [16, 8, 4];

/// What has to fit.
#[derive(Clone, Copy)]
pub(crate) struct Load<'a> {
    pub(crate) model: &'a Model,
    pub(crate) method: &'a Method,
    pub(crate) optimizer: OptimizerKind,
    pub(crate) row: Row,
    pub(crate) run: &'a PlannedRun,
    pub(crate) ranks: &'a Ranks,
}

impl Load<'_> {
    /// Rows of one step; a run shorter than its batch has fewer.
    pub(crate) fn rows_a_step(&self) -> u32 {
        self.run.rows_total.min(self.run.global_batch as u64) as u32
    }

    /// Most rows of one step that a rank takes.
    pub(crate) fn rows_a_rank(&self) -> u32 {
        self.rows_a_step().div_ceil(self.ranks.count())
    }

    /// Tokens at once beyond which a larger micro-batch gains nothing.
    fn useful_tokens(&self) -> u32 {
        self.ranks.card().map_or(USEFUL_TOKENS, |_| USEFUL_TOKENS_CARD)
    }

    fn arena(&self, micro_batch: u32, recompute: Recompute) -> Vec<ArenaLine> {
        let config = &self.model.config;
        let mut table = memory::table(config, self.method, self.optimizer, micro_batch, self.row.length, recompute);
        if self.ranks.card().is_some() {
            table.push(memory::card_room(config, micro_batch, self.row.length, self.ranks.precision));
        }
        table
    }

    /// Bytes of the setting that takes the least.
    fn smallest_bytes(&self) -> u64 {
        let settings = [Recompute::None, Recompute::Layers];
        settings.iter().map(|r| self.total(&self.arena(1, *r))).min().unwrap_or(0)
    }

    /// Bytes that a device gives for these lines. A card gives large buffers in whole pages.
    fn total(&self, arena: &[ArenaLine]) -> u64 {
        let given = |bytes: u64| match self.ranks.card() {
            Some(_) if bytes >= CARD_PAGE / 2 => bytes.div_ceil(CARD_PAGE).saturating_mul(CARD_PAGE),
            _ => bytes,
        };
        arena.iter().fold(0, |sum, line| sum.saturating_add(given(line.bytes)))
    }
}

/// Bytes the device may use, decided from totals only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Budget {
    /// The budget.
    pub(crate) bytes: u64,
    /// What the machine could give at most.
    pub(crate) most: u64,
}

impl Budget {
    /// The budget asked for, at most what a device has beyond its reserve.
    pub(crate) fn of(spec: &JobSpec, machine: &MachineFacts, ranks: &Ranks, reasons: &mut Reasons) -> Budget {
        let (total, reserve, rest) = match ranks.card() {
            None => (machine.host_memory_total, room::reserve(machine.host_memory_total), "everything else"),
            Some(_) => {
                let total = ranks.devices.iter().map(|device| device.memory_total).min().unwrap_or(0);
                (total, room::card_reserve(total), "the driver and its libraries")
            }
        };
        let most = total - reserve;
        let asked = spec.machine.device_memory.value().and_then(|text| job::bytes(&text));
        if let Some(bytes) = asked.filter(|bytes| *bytes <= most) {
            return Budget { bytes, most };
        }
        let why = format!("{} of memory less a reserve of {} for {rest}", size(total, false), size(reserve, true));
        reasons.add(BUDGET, size(most, false), why);
        Budget { bytes: most, most }
    }
}

/// A setting that fits.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) micro_batch: u32,
    pub(crate) recompute: Recompute,
    pub(crate) arena: Vec<ArenaLine>,
    pub(crate) bytes: u64,
    pub(crate) predicted: Predicted,
}

/// The setting taken and up to two others.
pub(crate) struct Choice {
    pub(crate) best: Candidate,
    pub(crate) alternatives: Vec<Alternative>,
}

/// The fastest setting that fits the budget, or the refusal with what would fit.
pub(crate) fn choose(load: &Load, budget: &Budget, machine: &MachineFacts, reasons: &mut Reasons) -> Outcome<Choice> {
    let mut fitting = candidates(load, budget, machine);
    // Equal times cannot hide an order: fewer bytes, then the larger micro-batch first.
    fitting.sort_by(|a, b| {
        let times = a.predicted.step_ms.total_cmp(&b.predicted.step_ms);
        times.then(a.bytes.cmp(&b.bytes)).then(b.micro_batch.cmp(&a.micro_batch))
    });
    if fitting.is_empty() {
        return Err(refusal(load, budget));
    }
    let best = fitting.remove(0);
    explain(load, &best, &fitting, budget, reasons);
    let alternatives = alternatives(&best, &fitting);
    Ok(Choice { best, alternatives })
}

fn candidates(load: &Load, budget: &Budget, machine: &MachineFacts) -> Vec<Candidate> {
    let mut found = Vec::new();
    for micro_batch in micro_batches(load) {
        for recompute in [Recompute::None, Recompute::Layers] {
            let arena = load.arena(micro_batch, recompute);
            let bytes = load.total(&arena);
            if bytes <= budget.bytes {
                let predicted = time::predict(load, micro_batch, recompute, machine);
                found.push(Candidate { micro_batch, recompute, arena, bytes, predicted });
            }
        }
    }
    found
}

/// Micro-batches worth trying, largest first: halves of the largest useful one, each evened out so that the micro-batches
/// of a step have nearly the same size.
fn micro_batches(load: &Load) -> Vec<u32> {
    let rows = load.rows_a_rank();
    let mut list = Vec::new();
    let mut rows_at_once = (load.useful_tokens() / load.row.length).clamp(1, rows);
    loop {
        let even = rows.div_ceil(rows.div_ceil(rows_at_once));
        if list.last() != Some(&even) {
            list.push(even);
        }
        if rows_at_once == 1 {
            return list;
        }
        rows_at_once /= 2;
    }
}

fn explain(load: &Load, best: &Candidate, others: &[Candidate], budget: &Budget, reasons: &mut Reasons) {
    let (n, length) = (best.micro_batch, load.row.length);
    let larger_fits = others.iter().any(|c| c.micro_batch > n && c.recompute == best.recompute);
    let why = if n == load.rows_a_rank() {
        format!("the whole step at once, {length} tokens a row at most")
    } else if n == micro_batches(load)[0] {
        let (useful, who) = (load.useful_tokens(), load.ranks.card().map_or("a CPU", |_| "a card"));
        format!("rows of {length}: beyond about {useful} tokens at once {who} gains nothing")
    } else if larger_fits {
        "more rows at once would lose more by padding than they save".to_owned()
    } else {
        format!("the largest that pays within {}", size(budget.bytes, false))
    };
    reasons.add("micro_batch", n, why);
    let (word, why) = match best.recompute {
        Recompute::None => ("none", format!("all activations fit: {} in all", size(best.bytes, true))),
        Recompute::Layers => ("layers", format!("kept activations would exceed {}", size(budget.bytes, false))),
    };
    reasons.add("recompute", word, why);
}

/// The one that takes least memory, and the next fastest.
fn alternatives(best: &Candidate, others: &[Candidate]) -> Vec<Alternative> {
    let smallest = others.iter().min_by_key(|c| c.bytes).filter(|c| c.bytes < best.bytes);
    let next = others.iter().find(|c| !smallest.is_some_and(|s| same_setting(s, c)));
    smallest.into_iter().chain(next).map(|c| alternative(best, c)).collect()
}

fn same_setting(a: &Candidate, b: &Candidate) -> bool {
    (a.micro_batch, a.recompute) == (b.micro_batch, b.recompute)
}

fn alternative(best: &Candidate, other: &Candidate) -> Alternative {
    let recompute = match other.recompute {
        Recompute::None => "all activations kept",
        Recompute::Layers => "every layer computed again",
    };
    let slower = (other.predicted.step_ms / best.predicted.step_ms - 1.0) * 100.0;
    let difference = match best.bytes.checked_sub(other.bytes) {
        Some(less) => format!("{} less memory", size(less, false)),
        None => format!("{} more memory", size(other.bytes - best.bytes, true)),
    };
    Alternative {
        what: format!("micro-batch {}, {recompute}: {difference}, {slower:.0} % slower", other.micro_batch),
        micro_batch: other.micro_batch,
        recompute: other.recompute,
        bytes_peak: other.bytes,
        step_ms: other.predicted.step_ms,
    }
}

fn refusal(load: &Load, budget: &Budget) -> Problem {
    let needed = load.smallest_bytes();
    let (needs, has) = (size(needed, true), size(budget.bytes, false));
    let remedies = remedies(load, budget, needed);
    let words: Vec<&str> = remedies.iter().map(|(words, _)| words.as_str()).collect();
    let remedy = if words.is_empty() { "use a smaller model".to_owned() } else { words.join("; ") };
    let problem =
        Problem::new(Code::OutOfMemory, format!("the job needs {needs} on {} and has {has}", load.ranks.name()))
            .why(format!(
                "{needs} is its smallest setting: rows of {} tokens, one at a time, every layer computed again",
                load.row.length
            ))
            .kept("nothing was started")
            .field(BUDGET)
            .room(needed, budget.bytes)
            .remedy(remedy);
    remedies.into_iter().fold(problem, |problem, (_, way)| problem.way(way))
}

/// The nearest settings that fit, each checked against the table, in words and as settings.
fn remedies(load: &Load, budget: &Budget, needed: u64) -> Vec<(String, Way)> {
    let fits = |load: &Load| load.smallest_bytes() <= budget.bytes;
    let mut found = Vec::new();
    if let Some(length) = longest_that_fits(load, &fits) {
        found.push((format!("max_length {length} fits"), Way::set(LENGTH, length)));
    }
    if let Some(way) = adapter_that_fits(load, &fits) {
        found.push(way);
    }
    if needed <= budget.most {
        let bytes = size(needed, true);
        found.push((format!("a budget of {bytes} fits"), Way::set(BUDGET, bytes)));
    }
    found
}

/// The longest row below the present one that fits; the table only grows with the length.
fn longest_that_fits(load: &Load, fits: &dyn Fn(&Load) -> bool) -> Option<u32> {
    let at = |length: u32| Load { row: load.row.cut(length), ..*load };
    let (mut good, mut bad) = (load.row.least, load.row.length);
    if good >= bad || !fits(&at(good)) {
        return None;
    }
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if fits(&at(middle)) { good = middle } else { bad = middle }
    }
    // A round number is easier to type, and still fits.
    Some(if good >= 64 { (good / 16 * 16).max(load.row.least) } else { good })
}

/// An adapter smaller than what moves now that fits, where the model was trained before; with shorter rows if need be.
fn adapter_that_fits(load: &Load, fits: &dyn Fn(&Load) -> bool) -> Option<(String, Way)> {
    if load.model.is_scratch() {
        return None;
    }
    let (below, targets) = match load.method {
        Method::Full => (u32::MAX, PROJECTIONS.map(str::to_owned).to_vec()),
        Method::Lora { rank, targets, .. } => (*rank, targets.clone()),
    };
    for rank in REMEDY_RANKS.into_iter().filter(|rank| *rank < below) {
        let method = Method::Lora { rank, alpha: 2.0 * rank as f64, dropout: 0.0, targets: targets.clone() };
        let smaller = Load { method: &method, ..*load };
        if fits(&smaller) {
            return Some((format!("LoRA rank {rank} fits"), Way::set(RANK, rank)));
        }
        if let Some(length) = longest_that_fits(&smaller, fits) {
            let words = format!("LoRA rank {rank} with max_length {length} fits");
            return Some((words, Way::set(RANK, rank).and(LENGTH, length)));
        }
    }
    None
}
