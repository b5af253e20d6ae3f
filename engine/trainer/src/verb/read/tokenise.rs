//! From a job's data to its token cache. A cache that is already there under the same fingerprint is used as it is.

use super::rules::Rules;
use super::source::{Ready, Texts, TokenizerSource, Words};
use super::{data_paths, evaluation_paths};
use crate::random::{self, Purpose};
use crate::verb::Lines;
use formats::dataset::{self, Records, Row};
use formats::fingerprint;
use formats::sample::{Made, Sampler, Settings};
use formats::tokens::{Cache, CacheHead, CacheWriter, Set};
use protocol::facts::{RowProblem, TokenFacts};
use protocol::job::EvaluationData;
use protocol::{Code, JobSpec, Outcome, Problem};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Changes with every change to how records become tokens, so that no cache of another version is taken for ours.
const VERSION: u32 = 1;

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
        let rules = Rules::of(&self.spec.data)?;
        let parent = self.home.join("tokens");
        lines.progress("reading", 0, 0, "bytes")?;
        let data = fingerprint::files(&files(&data_paths(self.spec))?)?;
        let source = TokenizerSource::of(&self.spec.model)?;
        let whole = self.fingerprint(&data, &source)?;
        if let Some(facts) = found(&parent, &whole) {
            return Ok(facts);
        }
        lines.progress("tokenizer", 0, 0, "bytes")?;
        let ready = source.open(&parent, || Texts::of(&self.spec.data.train, &self.options()))?;
        let mut writer = CacheWriter::create(&parent, self.head(whole, data, &ready)?)?;
        ready.copy_into(&writer.tokenizer_folder())?;
        self.feed_all(&ready.words, &rules, &mut writer, lines)?;
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

    fn options(&self) -> dataset::Options {
        dataset::Options { columns: self.spec.data.columns.clone(), encoding: Some(self.spec.data.encoding.clone()) }
    }

    fn feed_all<W: Write>(
        &self,
        words: &Words,
        rules: &Rules,
        writer: &mut CacheWriter,
        lines: &mut Lines<W>,
    ) -> Outcome<()> {
        let settings = Settings {
            stage: self.spec.stage,
            max_length: self.max_length,
            too_long: self.spec.data.too_long,
            special_tokens_in_text: self.spec.data.special_tokens_in_text,
            end_of_text: self.end_of_text,
        };
        let sampler = Sampler { tokenizer: &words.tokenizer, template: words.template.as_ref(), settings };
        let share = Share { fraction: fraction(&self.spec.data.evaluation), seed: self.spec.run.seed };
        let bound = if self.vocab == 0 { words.tokenizer.vocab() } else { self.vocab };
        let mut feed = Feed { sampler, rules, writer, bound, records: 0, first_left_out: None };
        feed.records(dataset::read(&self.spec.data.train, &self.options())?, |row| share.set(row), lines)?;
        let own = evaluation_paths(&self.spec.data.evaluation);
        if !own.is_empty() {
            feed.records(dataset::read(&own, &self.options())?, |_| Set::Evaluation, lines)?;
        }
        feed.end(share.fraction > 0.0 || !own.is_empty())
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

/// Turns records into samples of the cache.
struct Feed<'a> {
    sampler: Sampler<'a>,
    rules: &'a Rules,
    writer: &'a mut CacheWriter,
    bound: u32,
    records: u64,
    first_left_out: Option<RowProblem>,
}

impl Feed<'_> {
    fn records<W: Write>(
        &mut self,
        mut records: Records,
        set: impl Fn(u64) -> Set,
        lines: &mut Lines<W>,
    ) -> Outcome<()> {
        while let Some(row) = records.next() {
            self.records += 1;
            match row? {
                Row::Record(record) => self.record(&record, set(record.row))?,
                Row::Problem(row) => self.leave_out(set(row.row), row)?,
            }
            let (done, total) = records.progress();
            lines.progress("tokenising", done, total, "bytes")?;
        }
        Ok(())
    }

    fn record(&mut self, record: &dataset::Record, set: Set) -> Outcome<()> {
        match self.sampler.samples(record).map_err(|problem| at_row(problem, record))? {
            Made::Samples(samples) => samples.iter().try_for_each(|sample| {
                self.check_ids(&sample.ids).map_err(|problem| at_row(problem, record))?;
                self.writer.push(set, sample)
            }),
            Made::Dropped(code, message) => {
                self.leave_out(set, RowProblem { row: record.row, line: record.line, code, message })
            }
        }
    }

    fn leave_out(&mut self, set: Set, row: RowProblem) -> Outcome<()> {
        self.rules.meet(&row)?;
        self.writer.count_dropped(set, row.code);
        self.first_left_out.get_or_insert(row);
        Ok(())
    }

    fn check_ids(&self, ids: &[u32]) -> Outcome<()> {
        match ids.iter().find(|id| **id >= self.bound) {
            None => Ok(()),
            Some(id) => Err(Problem::new(
                Code::TokenizerInvalid,
                format!("the tokenizer gives id {id}, the model's vocabulary has {} entries", self.bound),
            )
            .remedy("use the tokenizer that the model was trained with")),
        }
    }

    /// Refuses an empty training set; notes an empty evaluation set that was asked for.
    fn end(self, evaluation: bool) -> Outcome<()> {
        if self.writer.counted(Set::Train).targets == 0 {
            return Err(nothing_to_train_on(&self));
        }
        if evaluation && self.writer.counted(Set::Evaluation).targets == 0 {
            self.writer.note("evaluation is off: no usable row fell into the evaluation set");
        }
        Ok(())
    }
}

/// The problem of an empty training set: how many rows of each class, and the first of them.
fn nothing_to_train_on(feed: &Feed<'_>) -> Problem {
    let dropped = &feed.writer.counted(Set::Train).dropped;
    let counts: Vec<String> = dropped.iter().map(|(code, rows)| format!("{rows} {code}")).collect();
    let remedy = match dropped.contains_key(&Code::RowTooLong.name()) {
        true => "raise data.max_length, or set data.too_long = \"truncate_prompt\"",
        false => "see `anneal inspect` and `anneal preview` on this data",
    };
    let what = format!("none of {} rows can be trained on", feed.records);
    let problem = Problem::new(Code::NoUsableRows, what).remedy(remedy);
    match &feed.first_left_out {
        Some(first) => {
            problem.why(format!("{}; the first: {}", counts.join(", "), first.message)).row(first.row).line(first.line)
        }
        None => problem,
    }
}

fn at_row(problem: Problem, record: &dataset::Record) -> Problem {
    let row = problem.place.row.unwrap_or(record.row);
    problem.row(row)
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
