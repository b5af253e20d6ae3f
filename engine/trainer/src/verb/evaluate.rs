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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verb::testing::{golden, problem_of};
    use formats::sample::Sample;
    use formats::tokens::{CacheHead, CacheWriter, Set};
    use std::path::PathBuf;

    /// Rows of different lengths, so that some are padded beside others.
    fn cache(folder: &std::path::Path, longest: u32) -> PathBuf {
        let head = CacheHead {
            fingerprint: "ab".into(),
            data_fingerprint: "d".into(),
            tokenizer_fingerprint: "t".into(),
            vocab: 320,
            eos: 0,
            max_length: longest,
            packing: false,
        };
        let mut writer = CacheWriter::create(folder, head).unwrap();
        for row in 0..5 {
            let ids: Vec<u32> = (0..longest - row * 2).map(|i| (i * 37 + row * 11) % 320).collect();
            let trained = (0..ids.len()).map(|i| u8::from(i > 3)).collect();
            writer.push(Set::Train, &Sample { ids, trained }).unwrap();
        }
        writer.finish().unwrap().path
    }

    fn evaluate(tokens: PathBuf) -> Outcome<Evaluated> {
        let request = Evaluate { model: golden("models/llama"), adapter: None, tokens };
        main(request, &mut Lines::new(Vec::new()))
    }

    #[test]
    fn loss_perplexity_and_targets_agree() {
        let folder = tempfile::tempdir().unwrap();
        let answer = evaluate(cache(folder.path(), 24)).unwrap();
        assert_eq!(answer.tokens, (0..5).map(|row| 24 - row * 2 - 4).sum::<u64>());
        assert!((answer.perplexity - answer.loss.exp()).abs() < 1e-9 * answer.perplexity);
        // A random model knows nothing: near the logarithm of the vocabulary, never far below.
        assert!(answer.loss > 320f64.ln() - 1.0 && answer.loss < 320f64.ln() + 4.0, "{}", answer.loss);
    }

    #[test]
    fn rows_beyond_the_context_are_refused_with_both_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let problem = problem_of(evaluate(cache(folder.path(), 4000)));
        assert_eq!(problem.code, Code::SettingInvalid);
        assert!(problem.what.contains("4000"), "{problem}");
    }
}
