//! The words of this crate as TypeScript, one file a type, in `ui/src/api/bindings`. The test fails where a file differs;
//! `ANNEAL_BLESS=1 cargo test -p protocol bindings` writes them.

use crate::job::Auto;
use crate::{event, facts, job, look, machine, plan, problem, record, shelf, verb, view};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use ts_rs::{Config, TS, TypeVisitor};

/// "auto" or a value.
impl<T: TS> TS for Auto<T> {
    type WithoutGenerics = Self;
    type OptionInnerType = Self;

    fn name(config: &Config) -> String {
        format!("{} | \"auto\"", T::name(config))
    }

    fn inline(config: &Config) -> String {
        Self::name(config)
    }

    fn visit_dependencies(visitor: &mut impl TypeVisitor)
    where
        Self: 'static,
    {
        visitor.visit::<T>();
    }

    fn visit_generics(visitor: &mut impl TypeVisitor)
    where
        Self: 'static,
    {
        visitor.visit::<T>();
    }
}

/// Numbers stay numbers: every integer of the protocol lies below 2^53.
fn config(folder: &Path) -> Config {
    Config::new().with_large_int("number").with_out_dir(folder)
}

fn export(folder: &Path) {
    let config = config(folder);
    macro_rules! all {
        ($($kind:ty),* $(,)?) => { $(<$kind>::export_all(&config).unwrap();)* };
    }
    all![
        event::Entry,
        facts::ItemFacts,
        facts::MachineFacts,
        facts::Preview,
        job::JobSpec,
        machine::Checkup,
        machine::MachineSample,
        plan::Plan,
        problem::Problem,
        record::CheckpointRow,
        record::Comparison,
        record::JobRecord,
        look::FoundRow,
        look::RowPage,
        shelf::Shelf,
        shelf::Taken,
        verb::Exported,
        verb::Generated,
        verb::Line,
        view::Batch,
        view::Browse,
        view::Curve,
        view::CurveQuery,
        view::ExportFormat,
        view::GenerateQuery,
        view::JobPage,
        view::JobQuery,
        view::JobWord,
        view::LogTail,
        view::Startup,
    ];
}

fn files(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(&at).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.insert(path.strip_prefix(folder).unwrap().to_owned(), std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn the_bindings_of_the_window_are_those_of_the_protocol() {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ui/src/api/bindings");
    if std::env::var_os("ANNEAL_BLESS").is_some() {
        let _ = std::fs::remove_dir_all(&committed);
        export(&committed);
        return;
    }
    let fresh = tempfile::tempdir().unwrap();
    export(fresh.path());
    let (fresh, committed) = (files(fresh.path()), files(&committed));
    let names = fresh.keys().chain(committed.keys()).filter(|name| fresh.get(*name) != committed.get(*name));
    let differing: std::collections::BTreeSet<&PathBuf> = names.collect();
    assert!(differing.is_empty(), "run `ANNEAL_BLESS=1 cargo test -p protocol bindings`; differing: {differing:?}");
}
