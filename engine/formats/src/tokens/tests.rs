//! Token caches, from samples to rows, and what damage does to them.

use super::*;
use crate::sample::Sample;
use proptest::prelude::*;
use protocol::{Code, Outcome};
use std::path::{Path, PathBuf};

fn head(packing: bool) -> CacheHead {
    CacheHead {
        fingerprint: "f00d".into(),
        data_fingerprint: "d".into(),
        tokenizer_fingerprint: "t".into(),
        vocab: 100,
        eos: 2,
        max_length: 10,
        packing,
    }
}

fn sample(first: u32, length: usize) -> Sample {
    Sample { ids: (0..length as u32).map(|i| (first + i) % 100).collect(), trained: vec![1; length] }
}

fn write(parent: &Path, packing: bool) -> TokenFacts {
    let mut writer = CacheWriter::create(parent, head(packing)).unwrap();
    std::fs::write(writer.tokenizer_folder().join("tokenizer.json"), "{}").unwrap();
    for (first, length) in [(0, 6), (10, 3), (20, 5), (30, 4), (40, 2)] {
        writer.push(Set::Train, &sample(first, length)).unwrap();
    }
    writer.push(Set::Evaluation, &sample(50, 7)).unwrap();
    writer.count_dropped(Set::Train, Code::EmptyAnswer);
    writer.note("one row was empty");
    writer.finish().unwrap()
}

fn names(parent: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(parent).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn packed_rows_hold_whole_samples_and_their_lengths() {
    let dir = tempfile::tempdir().unwrap();
    let facts = write(dir.path(), true);
    assert_eq!((facts.train.rows, facts.train.samples, facts.train.tokens, facts.train.targets), (2, 5, 20, 15));
    assert_eq!((facts.train.longest, facts.train.dropped["empty_answer"]), (10, 1));
    assert_eq!((facts.path.clone(), facts.notes.len()), (dir.path().join("f00d"), 1));
    assert!(facts.tokenizer.join("tokenizer.json").exists());
    let cache = Cache::open(&facts.path).unwrap();
    let row = cache.train().row(0);
    assert_eq!(row.tokens, [0, 1, 2, 3, 4, 5, 30, 31, 32, 33]);
    assert_eq!(row.trained, [0, 1, 1, 1, 1, 1, 0, 1, 1, 1]);
    assert_eq!(row.segments, [6, 4]);
    assert_eq!(cache.train().row(1).segments, [3, 5, 2]);
    assert_eq!((cache.evaluation().rows(), cache.evaluation().row(0).tokens[0]), (1, 50));
    assert_eq!(names(dir.path()), ["f00d"]);
}

#[test]
fn without_packing_each_sample_is_a_row_in_its_order() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(&write(dir.path(), false).path).unwrap();
    let firsts: Vec<u32> = (0..cache.train().rows()).map(|i| cache.train().row(i).tokens[0]).collect();
    assert_eq!(firsts, [0, 10, 20, 30, 40]);
}

#[test]
fn no_usable_row_is_a_refusal_with_the_reasons_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = CacheWriter::create(dir.path(), head(true)).unwrap();
    writer.count_dropped(Set::Train, Code::RowTooLong);
    let problem = writer.finish().unwrap_err();
    assert_eq!(problem.code, Code::NoUsableRows);
    assert!(problem.why.contains("1 row_too_long"), "{problem}");
    assert!(names(dir.path()).is_empty());
}

#[test]
fn ids_beyond_the_vocabulary_and_overlong_samples_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = CacheWriter::create(dir.path(), head(true)).unwrap();
    let bad = Sample { ids: vec![1, 100], trained: vec![0, 1] };
    assert_eq!(writer.push(Set::Train, &bad).unwrap_err().code, Code::TokenizerInvalid);
    assert!(writer.push(Set::Train, &sample(0, 11)).is_err());
    assert!(writer.push(Set::Train, &Sample::default()).is_err());
}

#[test]
fn two_writers_of_one_cache_do_not_harm_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = CacheWriter::create(dir.path(), head(true)).unwrap();
    first.push(Set::Train, &sample(0, 6)).unwrap();
    let facts = write(dir.path(), true);
    assert_eq!(first.finish().unwrap(), facts);
    assert_eq!(names(dir.path()), ["f00d"]);
}

#[test]
fn what_a_crashed_writer_left_is_cleared_and_a_damaged_cache_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join(".f00d.0.partial/train")).unwrap();
    let facts = write(dir.path(), true);
    std::fs::write(facts.path.join("train/ids.bin"), "x").unwrap();
    assert_eq!(Cache::open(&facts.path).unwrap_err().code, Code::FileTruncated);
    assert_eq!(write(dir.path(), true), facts);
    write(dir.path(), true);
    assert_eq!(names(dir.path()), ["f00d"]);
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let sets = ["train", "evaluation"].map(|s| FILES.map(|f| folder.join(s).join(f)));
    sets.concat().into_iter().chain([folder.join("header.json")]).collect()
}

/// Opens a cache and touches every row; a damaged one must fail before.
fn touch(folder: &Path) -> Outcome<u64> {
    let cache = Cache::open(folder)?;
    let mut sum = 0;
    for set in [cache.train(), cache.evaluation()] {
        for i in 0..set.rows() {
            let row = set.row(i);
            assert_eq!(row.segments.iter().sum::<u32>() as usize, row.tokens.len());
            assert!(row.tokens.iter().all(|id| *id < 100) && row.tokens.len() <= 10);
            sum += row.tokens.len() as u64;
        }
    }
    Ok(sum)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_or_cut_cache_is_found_before_a_row_is_used(which in 0usize..9, at in 0usize..4000, to in any::<u8>(), cut in any::<bool>()) {
        let dir = tempfile::tempdir().unwrap();
        let facts = write(dir.path(), true);
        let path = &files_of(&facts.path)[which];
        let mut bytes = std::fs::read(path).unwrap();
        let at = at % bytes.len();
        let same = !cut && bytes[at] == to;
        if cut { bytes.truncate(at) } else { bytes[at] = to }
        std::fs::write(path, &bytes).unwrap();
        let verdict = touch(&facts.path);
        // A changed header may still be a true one (a count of dropped rows, a note); a changed table never is.
        prop_assert!(same || which == 8 || verdict.is_err());
    }
}
