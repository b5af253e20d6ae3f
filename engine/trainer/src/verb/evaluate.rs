//! `evaluate`: loss and perplexity of a model over a token cache, one window up to the model's context a sample.
//!
//! Not here: making the cache (`read`), the evaluations of a run (`run/cycle.rs`).

use super::Lines;
use super::run::Rows;
use super::subject::{Subject, cpu};
use crate::model::Model;
use crate::rank;
use formats::tokens::Cache;
use protocol::verb::{Evaluate, Evaluated};
use protocol::{Code, Outcome, Problem};
use std::io::Write;

/// Tokens in one micro-batch of short rows: enough to keep the matrix products busy, little beside the weights.
const TOKENS_AT_ONCE: u64 = 2048;
/// Rows in one micro-batch, at most.
const ROWS_AT_ONCE: u64 = 64;

/// Carries out the request.
/// Errors: `SettingInvalid` for rows beyond the model's context or vocabulary, `NotFinite`, those of the files read.
pub fn main<W: Write>(request: Evaluate, lines: &mut Lines<W>) -> Outcome<Evaluated> {
    let cache = Cache::open(&request.tokens)?;
    let facts = cache.facts();
    lines.progress("loading", 0, 0, "bytes")?;
    let subject = Subject::open(&request.model, request.adapter.as_deref(), None)?;
    let longest = facts.train.longest.max(1);
    if longest > u64::from(subject.config.context) {
        let what = format!("a row has {longest} tokens; the model's context has {}", subject.config.context);
        return Err(Problem::new(Code::SettingInvalid, what).file(&request.tokens));
    }
    let micro_batch = (TOKENS_AT_ONCE / longest).clamp(1, ROWS_AT_ONCE) as u32;
    let Subject { config, method, weights, .. } = &subject;
    let model = Model::for_inference(&cpu(), config, method, micro_batch, longest as u32, weights.as_ref())?;
    let rows = facts.train.rows;
    let mut told = Ok(());
    let evaluation = rank::evaluate(&model, &Rows(cache.train()), micro_batch, longest as usize, &mut |done| {
        // Nobody reads any more: the evaluation is carried to its end all the same, and the problem told then.
        if let Err(problem) = lines.progress("evaluating", done, rows, "rows") {
            told = Err(problem);
        }
    })?;
    told?;
    if !evaluation.loss.is_finite() {
        return Err(Problem::new(Code::NotFinite, "the loss over this data is not a number")
            .why("the model's output is not finite, or no token of the data is a target")
            .remedy("check the model's weights and the data with `anneal inspect`"));
    }
    Ok(Evaluated { loss: evaluation.loss, perplexity: evaluation.perplexity, tokens: evaluation.targets })
}
