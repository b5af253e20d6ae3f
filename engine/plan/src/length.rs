//! How long and in which portions: length of a row, rows a step, steps, warm-up, evaluations.
//!
//! Not here: how many rows go through the model at once (`fit`), the order of rows (the trainer's `batch`).

use crate::{Model, Reasons};
use protocol::facts::{ModelConfig, TokenFacts};
use protocol::job::{Stage, Warmup};
use protocol::plan::{PlannedRun, PlannedSchedule, Reason};
use protocol::problem::Way;
use protocol::{Code, JobSpec, Outcome, Problem};

/// Rows are at most this long where the job leaves it open: memory and attention time grow with it, and few answers
/// are longer.
const LENGTH_AUTO: u32 = 1024;
/// Shortest row the search for a remedy proposes.
const SHORTEST_LENGTH: u32 = 16;
/// Samples a step where the job leaves it open, for a trained model and for fresh weights.
const BATCH_AUTO: u64 = 16;
const BATCH_AUTO_SCRATCH: u64 = 32;
/// An open batch leaves an epoch at least this many steps.
const STEPS_AN_EPOCH: u64 = 10;
/// Most rows a run may draw: every count of tokens and steps stays far inside u64 and exact in f64.
const ROWS_TOTAL: u64 = 1_000_000_000_000_000;

/// Most tokens a row may have, for the tokeniser: what was asked, else the model's context, at most 1024.
pub fn max_length(spec: &JobSpec, context: u32) -> (u32, Reason) {
    let auto = context.min(LENGTH_AUTO);
    let (value, why) = match spec.data.max_length.value() {
        Some(asked) => (asked, "as asked".to_owned()),
        None if auto < context => {
            (auto, format!("the context of {context} would cost more memory than most rows need"))
        }
        None => (auto, "the model's context".to_owned()),
    };
    (value, Reason { field: "data.max_length".to_owned(), value: value.to_string(), why })
}

/// Lengths of a row, in tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row {
    /// What memory is planned for: the longest row there is.
    pub(crate) length: u32,
    /// Mean, padding excluded.
    pub(crate) mean: f64,
    /// Mean of what a token can attend to at most: one sample.
    pub(crate) span: f64,
    /// How many rows there are.
    pub(crate) count: u64,
    /// Shortest limit worth proposing: answers are not cut, so below the mean of a sample most would be left out.
    pub(crate) least: u32,
}

impl Row {
    /// Tokens computed for a row of a micro-batch of `n`, padding included: the longest of n rows. Where lengths have an
    /// exponential tail it grows with ln n, from the mean of one row to the longest of all.
    pub(crate) fn computed(&self, n: u32) -> f64 {
        let all = (self.count.max(2) as f64).ln();
        self.mean + (self.length as f64 - self.mean) * ((n as f64).ln() / all).min(1.0)
    }

    /// The same rows cut to another length.
    pub(crate) fn cut(self, length: u32) -> Row {
        let most = length as f64;
        Row { length, mean: self.mean.min(most), span: self.span.min(most), ..self }
    }
}

/// The lengths of this job's rows; refuses a data set without rows and rows beyond the model's context.
pub(crate) fn row(spec: &JobSpec, model: &Model, tokens: &TokenFacts, reasons: &mut Reasons) -> Outcome<Row> {
    let train = &tokens.train;
    if train.rows == 0 || train.tokens == 0 {
        return Err(Problem::new(Code::NoUsableRows, "no training row is left")
            .why(dropped(tokens))
            .field("data.train")
            .remedy("inspect the data set to see why its rows cannot be used"));
    }
    if !train.dropped.is_empty() {
        let count: u64 = train.dropped.values().sum();
        reasons.add("data.train", format!("{count} rows left out"), dropped(tokens));
    }
    for note in &tokens.notes {
        reasons.add("data", "note", note);
    }
    check_context(spec, &model.config)?;
    let (_, reason) = max_length(spec, model.config.context);
    let longest = train.longest.max(tokens.evaluation.longest).clamp(1, tokens.max_length.max(1) as u64) as u32;
    if longest > model.config.context {
        return Err(beyond_context(longest, model.config.context));
    }
    if spec.data.max_length.value().is_none() {
        reasons.list.push(reason);
    }
    let per = |count: u64| train.tokens as f64 / count.max(1) as f64;
    let mean = per(train.rows).min(longest as f64);
    let span = per(train.samples.max(train.rows)).min(mean);
    let least = if spec.stage == Stage::Sft { (span.ceil() as u32).max(SHORTEST_LENGTH) } else { SHORTEST_LENGTH };
    Ok(Row { length: longest, mean, span, count: train.rows, least })
}

fn dropped(tokens: &TokenFacts) -> String {
    let counts: Vec<String> = tokens.train.dropped.iter().map(|(code, n)| format!("{n} × {code}")).collect();
    if counts.is_empty() { "the data set is empty".to_owned() } else { format!("left out: {}", counts.join(", ")) }
}

/// Refuses a length that the model has no positions for.
pub(crate) fn check_context(spec: &JobSpec, config: &ModelConfig) -> Outcome<()> {
    match max_length(spec, config.context).0 {
        asked if asked > config.context => Err(beyond_context(asked, config.context)),
        _ => Ok(()),
    }
}

fn beyond_context(asked: u32, context: u32) -> Problem {
    Problem::new(Code::SettingInvalid, format!("rows of {asked} tokens do not fit the model's context of {context}"))
        .why("positions beyond the context were never trained")
        .field("data.max_length")
        .remedy(format!("use data.max_length = {context} or less"))
        .way(Way::set("data.max_length", context))
}

/// Steps and rows of the whole run.
pub(crate) fn run(spec: &JobSpec, model: &Model, tokens: &TokenFacts, reasons: &mut Reasons) -> Outcome<PlannedRun> {
    let global_batch = global_batch(spec, model, tokens, reasons);
    let rows_total = rows_total(spec, tokens, global_batch)?;
    let steps = rows_total.div_ceil(global_batch as u64);
    if spec.run.steps.is_none() {
        reasons.add("run.steps", steps, format!("{rows_total} rows are drawn, {global_batch} a step"));
    }
    Ok(PlannedRun {
        steps,
        global_batch,
        rows_total,
        seed: spec.run.seed,
        evaluate_every: evaluate_every(spec, tokens, reasons),
    })
}

fn global_batch(spec: &JobSpec, model: &Model, tokens: &TokenFacts, reasons: &mut Reasons) -> u32 {
    let train = &tokens.train;
    let samples = if model.is_scratch() { BATCH_AUTO_SCRATCH } else { BATCH_AUTO };
    let samples_a_row = (train.samples as f64 / train.rows as f64).max(1.0);
    let rows = ((samples as f64 / samples_a_row).round() as u64).max(1);
    let most = (train.rows / STEPS_AN_EPOCH).max(1);
    let why = if rows <= most {
        format!("about {samples} samples a step, {samples_a_row:.1} in a row")
    } else {
        format!("{} rows are few: an epoch keeps at least {STEPS_AN_EPOCH} steps where it can", train.rows)
    };
    reasons.settle("run.global_batch", spec.run.global_batch.value(), rows.min(most) as u32, &why)
}

fn rows_total(spec: &JobSpec, tokens: &TokenFacts, global_batch: u32) -> Outcome<u64> {
    let run = &spec.run;
    let (field, rows) = match (run.steps, run.tokens) {
        (Some(steps), _) => ("run.steps", steps.saturating_mul(global_batch as u64)),
        (None, Some(wanted)) => ("run.tokens", rows_for_tokens(wanted, tokens)),
        // A float beyond u64 becomes u64::MAX and is refused below.
        (None, None) => ("run.epochs", (run.epochs.unwrap_or(1.0) * tokens.train.rows as f64).round() as u64),
    };
    if rows > ROWS_TOTAL {
        let what = format!("{field} asks for more than {ROWS_TOTAL} rows");
        return Err(Problem::new(Code::SettingInvalid, what).field(field).remedy("ask for less"));
    }
    Ok(rows.max(1))
}

/// Rows that hold this many tokens, at the mean of the data set.
fn rows_for_tokens(wanted: u64, tokens: &TokenFacts) -> u64 {
    let rows = (wanted as u128 * tokens.train.rows as u128).div_ceil(tokens.train.tokens as u128);
    u64::try_from(rows).unwrap_or(u64::MAX)
}

fn evaluate_every(spec: &JobSpec, tokens: &TokenFacts, reasons: &mut Reasons) -> u64 {
    if spec.run.evaluate_every > 0 && tokens.evaluation.rows == 0 {
        reasons.add("run.evaluate_every", 0, "there is no row to evaluate on");
        return 0;
    }
    spec.run.evaluate_every
}

/// The schedule over `steps`; a warm-up given as a fraction is rounded up to whole steps, as `transformers` does.
pub(crate) fn schedule(spec: &JobSpec, steps: u64, reasons: &mut Reasons) -> PlannedSchedule {
    let warmup_steps = match spec.schedule.warmup {
        Warmup::Steps(n) => n,
        Warmup::Fraction(share) => {
            let n = (share * steps as f64).ceil() as u64;
            reasons.add("schedule.warmup", n, format!("{share} of {steps} steps, rounded up"));
            n
        }
    };
    PlannedSchedule { kind: spec.schedule.kind, warmup_steps, total_steps: steps }
}
