//! Training steps of a given shape over random weights and tokens, timed: what the `bench` verb prints.

use crate::batch::{Row, RowSource};
use crate::random::{self, Purpose};
use crate::rank::Rank;
use crate::step::StepOutcome;
use crate::verb::bench::free_memory;
use crate::weights;
use kernels::Device;
use plan::memory::{card_room, table};
use protocol::facts::ModelConfig;
use protocol::job::{Cadence, OptimizerKind, Precision, ScheduleKind, Stage};
use protocol::plan::*;
use protocol::{Code, Outcome, Problem};
use std::time::Instant;

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Tokens a second of the median step.
    pub tokens_per_second: f64,
    /// Loss of the last step.
    pub loss: f64,
    /// Most device bytes.
    pub bytes_peak: u64,
    /// Bytes still free on a card at the end, as its driver tells.
    pub memory_free: Option<u64>,
}

/// Times `steps` steps of a benchmark's plan, one micro-batch each, after one to warm up.
/// Errors: `OutOfMemory`; `NotFinite` should the loss not stay finite.
pub fn bench_train(device: &Device, plan: &Plan, steps: u32) -> Outcome<Measured> {
    let (batch, length) = (plan.micro_batch, plan.data.max_length);
    let weights = weights::first(plan)?;
    let rows = RandomRows::new(plan.model.config.vocab, batch, length);
    let mut rank = Rank::new(plan, 0, device, weights.as_ref())?;
    let (mut seconds, mut loss) = (Vec::new(), f64::NAN);
    for _ in 0..=steps.max(1) {
        let start = Instant::now();
        match rank.step(&rows)? {
            StepOutcome::Done(done) => loss = done.measured.loss,
            StepOutcome::Skipped { problem, .. } => return Err(problem),
        }
        rank.synchronise();
        seconds.push(start.elapsed().as_secs_f64());
    }
    let mut timed = seconds.split_off(1);
    timed.sort_by(f64::total_cmp);
    let median =
        timed.get(timed.len() / 2).copied().ok_or_else(|| Problem::new(Code::SettingInvalid, "no step was timed"))?;
    let tokens = f64::from(batch) * f64::from(length);
    let memory_free = free_memory(device.name());
    Ok(Measured { tokens_per_second: tokens / median, loss, bytes_peak: device.bytes_peak(), memory_free })
}

/// The plan of a benchmark: everything in one micro-batch, at a rate that keeps the loss finite.
pub(crate) fn plan(
    config: &ModelConfig,
    method: &Method,
    batch: u32,
    length: u32,
    steps: u32,
    precision: Precision,
) -> Plan {
    let steps = u64::from(steps) + 1;
    let recompute = Recompute::None;
    let mut arena = table(config, method, OptimizerKind::Adamw, batch, length, recompute);
    if precision == Precision::Bf16 {
        arena.push(card_room(config, batch, length, precision));
    }
    let none = || String::new();
    Plan {
        version: 1,
        stage: Stage::Pretrain,
        model: PlannedModel {
            source: ModelSource::Scratch,
            fingerprint: none(),
            config: config.clone(),
            tokenizer: Default::default(),
        },
        method: method.clone(),
        data: PlannedData {
            tokens: Default::default(),
            fingerprint: none(),
            data_fingerprint: none(),
            tokenizer_fingerprint: none(),
            rows: u64::from(batch),
            row_tokens: u64::from(batch) * u64::from(length),
            evaluation_rows: 0,
            max_length: length,
            targets: 0,
            samples: u64::from(batch),
            dropped: Default::default(),
            survey: Default::default(),
        },
        optimizer: PlannedOptimizer {
            kind: OptimizerKind::Adamw,
            learning_rate: 1e-4,
            betas: [0.9, 0.999],
            eps: 1e-8,
            weight_decay: 0.01,
            clip: 1.0,
        },
        schedule: PlannedSchedule { kind: ScheduleKind::Constant, warmup_steps: 0, total_steps: steps },
        run: PlannedRun {
            steps,
            global_batch: batch,
            rows_total: steps * u64::from(batch),
            seed: 1,
            evaluate_every: 0,
        },
        snapshot: PlannedSnapshot { every_steps: 0, persist_every: Cadence::Steps(0), keep: 1, keep_best: 0 },
        strategy: Strategy { dp: 1, tp: 1, pp: 1, sp: 1, ep: 1, zero: 0, schedule: none(), sequence: none() },
        precision,
        devices: vec!["cpu".into()],
        micro_batch: batch,
        gradient_accumulation: 1,
        recompute,
        placement: "device".into(),
        compute: Compute { cpu: none(), instruction_set: none(), threads: 1, libraries: Default::default() },
        memory: MemoryPlan { devices: Vec::new(), host_bytes_peak: 0, disk_bytes: 0, checkpoint_bytes: 0, arena },
        predicted: Predicted { step_ms: 0.0, tokens_per_second: 0.0, mfu: 0.0 },
        reasons: Vec::new(),
        alternatives: Vec::new(),
    }
}

/// `batch` rows of random tokens, all targets.
struct RandomRows {
    tokens: Vec<u32>,
    trained: Vec<u8>,
    length: [u32; 1],
    rows: u64,
}

impl RandomRows {
    fn new(vocab: u32, batch: u32, length: u32) -> RandomRows {
        let places = u64::from(batch) * u64::from(length);
        let token = |i| (random::bits(1, Purpose::Bench, &[i]) % u64::from(vocab.max(1))) as u32;
        RandomRows {
            tokens: (0..places).map(token).collect(),
            trained: vec![1; length as usize],
            length: [length],
            rows: u64::from(batch),
        }
    }
}

impl RowSource for RandomRows {
    fn rows(&self) -> u64 {
        self.rows
    }

    fn row(&self, index: u64) -> Row<'_> {
        let length = self.trained.len();
        let start = index as usize * length;
        Row { tokens: &self.tokens[start..start + length], trained: &self.trained, segments: &self.length }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{lora, odd_config};

    #[test]
    fn a_benchmark_trains_for_real_and_tells_its_memory() {
        for method in [Method::Full, lora(2, 0.0, &["q_proj"])] {
            let device = Device::cpu(1);
            let plan = plan(&odd_config(true), &method, 2, 9, 2, Precision::F32);
            let measured = bench_train(&device, &plan, 2).unwrap();
            let arena: u64 = plan.memory.arena.iter().map(|l| l.bytes).sum();
            assert_eq!(measured.bytes_peak, arena);
            assert!(measured.tokens_per_second > 0.0 && (3.0..6.0).contains(&measured.loss), "{measured:?}");
        }
    }
}
