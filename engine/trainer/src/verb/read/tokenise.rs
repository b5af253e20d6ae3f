//! From a job's data to its token cache. A cache that is already there under the same fingerprint is used as it is.

use super::feed::{Fed, Feed};
use super::rules;
use super::source::{Ready, Texts, TokenizerSource, Words};
use super::{data_paths, evaluation_paths};
use crate::random::{self, Purpose};
use crate::verb::Lines;
use formats::dataset;
use formats::fingerprint;
use formats::sample::{Sampler, Settings};
use formats::tokens::{Cache, CacheHead, CacheWriter, Set};
use protocol::facts::TokenFacts;
use protocol::job::EvaluationData;
use protocol::{Code, JobSpec, Outcome, Problem};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Changes with every change to how records become tokens, so that no cache of another version is taken for ours.
const VERSION: u32 = 2;

/// `protocol::verb::Read::Tokenise`.
pub struct Request<'a> {
    /// The job.
    pub spec: &'a JobSpec,
    /// HOME.
    pub home: &'a Path,
    /// Rows are at most this long.
    pub max_length: u32,
    /// Ids must lie below this; 0 = the tokenizer's own size.
    pub vocab: u32,
    /// Append the end token to each text of a pre-training set.
    pub end_of_text: bool,
}

impl Request<'_> {
    /// Finds or writes the cache.
    pub fn carry_out<W: Write>(&self, lines: &mut Lines<W>) -> Outcome<TokenFacts> {
        let options = rules::options(&self.spec.data)?;
        let parent = self.home.join("tokens");
        lines.progress("reading", 0, 0, "bytes")?;
        let data = fingerprint::files(&files(&data_paths(self.spec))?)?;
        let source = TokenizerSource::of(&self.spec.model)?;
        let whole = self.fingerprint(&data, &source)?;
        if let Some(facts) = found(&parent, &whole) {
            return Ok(facts);
        }
        lines.progress("tokenizer", 0, 0, "bytes")?;
        let ready = source.open(&parent, || Texts::of(&self.spec.data.train, &options))?;
        let head = self.head(whole, data, &ready)?;
        let share = Share { fraction: fraction(&self.spec.data.evaluation), seed: self.spec.run.seed };
        let mut writer = CacheWriter::create(&parent, head.clone())?;
        if let Fed::NothingToTrainOn { rows } = self.feed_all(&ready.words, &options, &share, &mut writer, lines)? {
            // Too few rows to spare one: all of them are trained on.
            drop(writer);
            writer = CacheWriter::create(&parent, head)?;
            writer.note(format!(
                "evaluation is off: of {rows} rows, a share of {} leaves none to train on",
                share.fraction
            ));
            self.feed_all(&ready.words, &options, &Share { fraction: 0.0, ..share }, &mut writer, lines)?;
        }
        ready.copy_into(&writer.tokenizer_folder())?;
        writer.finish()
    }

    /// Hash over everything that shapes tokens.
    fn fingerprint(&self, data: &str, source: &TokenizerSource) -> Outcome<String> {
        let d = &self.spec.data;
        let parts = serde_json::json!({
            "version": VERSION,
            "data": data,
            "tokenizer": source.identity(data)?,
            "stage": self.spec.stage,
            "evaluation_files": evaluation_paths(&d.evaluation).len(),
            "evaluation_fraction": fraction(&d.evaluation),
            "evaluation_seed": if fraction(&d.evaluation) > 0.0 { self.spec.run.seed } else { 0 },
            "max_length": self.max_length,
            "packing": d.packing,
            "too_long": d.too_long,
            "columns": d.columns,
            "rows": d.rows,
            "roles": d.roles,
            "encoding": d.encoding,
            "special_tokens_in_text": d.special_tokens_in_text,
            "vocab": self.vocab,
            "end_of_text": self.end_of_text,
        });
        Ok(fingerprint::bytes(parts.to_string().as_bytes()))
    }

    fn head(&self, fingerprint: String, data_fingerprint: String, ready: &Ready) -> Outcome<CacheHead> {
        let tokenizer = &ready.words.tokenizer;
        let eos = tokenizer.eos().ok_or_else(|| {
            Problem::new(Code::TokenizerInvalid, "the tokenizer names no end token")
                .why("without one, an answer could not be taught to end")
                .field("eos_token")
                .remedy("name it in tokenizer_config.json")
        })?;
        Ok(CacheHead {
            fingerprint,
            data_fingerprint,
            tokenizer_fingerprint: ready.fingerprint()?,
            vocab: tokenizer.vocab(),
            eos,
            max_length: self.max_length,
            packing: self.spec.data.packing,
        })
    }

    fn feed_all<W: Write>(
        &self,
        words: &Words,
        options: &dataset::Options,
        share: &Share,
        writer: &mut CacheWriter,
        lines: &mut Lines<W>,
    ) -> Outcome<Fed> {
        let settings = Settings {
            stage: self.spec.stage,
            max_length: self.max_length,
            too_long: self.spec.data.too_long,
            special_tokens_in_text: self.spec.data.special_tokens_in_text,
            end_of_text: self.end_of_text,
        };
        let sampler = Sampler { tokenizer: &words.tokenizer, template: words.template.as_ref(), settings };
        let bound = if self.vocab == 0 { words.tokenizer.vocab() } else { self.vocab };
        let mut feed = Feed::new(sampler, dataset::Rules::of(options)?, writer, bound);
        feed.records(dataset::read(&self.spec.data.train, options)?, |row| share.set(row), lines)?;
        let own = evaluation_paths(&self.spec.data.evaluation);
        if !own.is_empty() {
            feed.records(dataset::read(&own, options)?, |_| Set::Evaluation, lines)?;
        }
        feed.end(share.fraction > 0.0, !own.is_empty())
    }
}

/// A whole cache under this fingerprint. A damaged one counts as none: the writer puts the new one in its place.
fn found(parent: &Path, fingerprint: &str) -> Option<TokenFacts> {
    let folder = Cache::folder(parent, fingerprint);
    if !folder.exists() {
        return None;
    }
    let opened = Cache::open(&folder).inspect_err(|problem| eprintln!("a token cache is made anew: {problem}"));
    opened.ok().map(|cache| cache.facts().clone())
}

fn files(paths: &[PathBuf]) -> Outcome<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in paths {
        all.extend(dataset::files(path)?);
    }
    Ok(all)
}

fn fraction(evaluation: &EvaluationData) -> f64 {
    match evaluation {
        EvaluationData::Fraction(share) => *share,
        _ => 0.0,
    }
}

/// Which records are evaluated on: the records are cut into blocks of 1 / fraction, and one of each, chosen by the seed,
/// is. So the share is right to one record, spread over the whole set, and independent of what the records hold.
struct Share {
    fraction: f64,
    seed: u64,
}

impl Share {
    /// The set of a record, counted from 1.
    fn set(&self, row: u64) -> Set {
        if self.fraction <= 0.0 {
            return Set::Train;
        }
        let index = row.saturating_sub(1);
        let block = self.block(index);
        let (start, end) = (self.start(block), self.start(block + 1));
        let chosen = start + random::bits(self.seed, Purpose::EvaluationRows, &[block]) % (end - start).max(1);
        if index == chosen { Set::Evaluation } else { Set::Train }
    }

    /// The block of a record: where rounding puts the quotient on the wrong side of a border, one of its neighbours.
    fn block(&self, index: u64) -> u64 {
        let guess = (index as f64 * self.fraction) as u64;
        match index {
            _ if index < self.start(guess) => guess - 1,
            _ if index >= self.start(guess + 1) => guess + 1,
            _ => guess,
        }
    }

    /// The first record of a block.
    fn start(&self, block: u64) -> u64 {
        (block as f64 / self.fraction).ceil() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(fraction: f64, seed: u64, rows: u64) -> Vec<u64> {
        let share = Share { fraction, seed };
        (1..=rows).filter(|row| share.set(*row) == Set::Evaluation).collect()
    }

    #[test]
    fn the_share_is_right_to_one_record_and_spread_over_the_whole_set() {
        for (fraction, rows) in [(0.02, 1000), (0.1, 997), (0.3, 1000), (0.7, 500), (0.99, 300), (1e-3, 10_000)] {
            let chosen = chosen(fraction, 1, rows);
            let wanted = fraction * rows as f64;
            assert!((chosen.len() as f64 - wanted).abs() <= 1.0, "{fraction} of {rows}: {}", chosen.len());
            let gap = chosen.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
            assert!(gap as f64 <= 2.0 / fraction + 2.0, "{fraction} of {rows}: a gap of {gap}");
        }
        assert!(chosen(0.0, 1, 1000).is_empty());
    }

    #[test]
    fn the_seed_decides_which() {
        assert_eq!(chosen(0.1, 1, 500), chosen(0.1, 1, 500));
        assert_ne!(chosen(0.1, 1, 500), chosen(0.1, 2, 500));
    }
}
