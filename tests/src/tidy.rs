//! The rules of the tree: who may import whom, how modules begin and functions end, which words and which licences do not
//! come in. Each test prints every offender, not the first.
//!
//! Not here: rules that the compiler and its lints hold (root `Cargo.toml`, `clippy.toml`).

use crate::source::{self, Source};
use regex::Regex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// Fails with all offenders.
fn none(rule: &str, offenders: Vec<String>) {
    assert!(offenders.is_empty(), "{rule}:\n  {}", offenders.join("\n  "));
}

/// Where something stands, for an editor to jump to.
fn place(source: &Source, at: usize) -> String {
    format!("{}:{}", source.path.display(), source.text[..at].matches('\n').count() + 1)
}

/// Every match of a pattern in the code of some sources.
fn matches(pattern: &str, allowed: impl Fn(&Source) -> bool) -> Vec<String> {
    let pattern = Regex::new(pattern).unwrap();
    let hits = source::sources().iter().filter(|s| !allowed(s)).flat_map(|s| {
        pattern.find_iter(&s.code).map(|m| format!("{} {}", place(s, m.start()), m.as_str().trim())).collect::<Vec<_>>()
    });
    hits.collect()
}

// ---- manifests ----

/// The workspace as cargo resolves it for this machine, without network; asked once.
fn metadata() -> &'static Value {
    static METADATA: OnceLock<Value> = OnceLock::new();
    METADATA.get_or_init(|| {
        let arguments = ["metadata", "--format-version", "1", "--locked", "--offline"];
        let platform = ["--filter-platform", "x86_64-unknown-linux-gnu"];
        let mut cargo = Command::new(env!("CARGO"));
        let output = cargo.args(arguments).args(platform).current_dir(source::root()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    })
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn word<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Packages of the workspace: they have no source.
fn members(metadata: &Value) -> Vec<&Value> {
    list(metadata, "packages").iter().filter(|p| p["source"].is_null()).collect()
}

/// The table "Who may import whom" of ARCHITECTURE.md: crate to crates.
fn import_table() -> BTreeMap<String, BTreeSet<String>> {
    let page = source::text(Path::new("ARCHITECTURE.md")).unwrap();
    let section = page.split("## Who may import whom").nth(1).unwrap().split("\n## ").next().unwrap();
    let quoted = Regex::new("`([a-z-]+)`").unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let mut names = quoted.captures_iter(row).map(|c| c[1].to_owned());
        (names.next().unwrap(), names.collect())
    })
    .collect()
}

#[test]
fn crates_import_only_what_the_architecture_allows() {
    let (metadata, table) = (metadata(), import_table());
    let ours: BTreeSet<&str> = members(metadata).iter().map(|p| word(p, "name")).collect();
    let mut offenders = Vec::new();
    for package in members(metadata) {
        let name = word(package, "name");
        let Some(allowed) = table.get(name) else {
            offenders.push(format!("{name} is not in the table of ARCHITECTURE.md"));
            continue;
        };
        // Tests of a crate may use more; programs may not.
        let linked = list(package, "dependencies").iter().filter(|d| d["kind"] != "dev").map(|d| word(d, "name"));
        let wrong = linked.filter(|d| ours.contains(d) && !allowed.contains(*d));
        offenders.extend(wrong.map(|d| format!("{name} imports {d}")));
    }
    none("imports against ARCHITECTURE.md", offenders);
    assert!(table.keys().all(|name| ours.contains(name.as_str())), "the table names a crate that is not there");
}

/// Names of all packages that a package links, itself included; development dependencies excluded.
fn linked<'a>(metadata: &'a Value, name: &str) -> BTreeSet<&'a str> {
    let names: BTreeMap<&str, &str> =
        list(metadata, "packages").iter().map(|p| (word(p, "id"), word(p, "name"))).collect();
    let nodes: BTreeMap<&str, &Value> =
        list(&metadata["resolve"], "nodes").iter().map(|n| (word(n, "id"), n)).collect();
    let mut open: Vec<&str> =
        members(metadata).iter().filter(|p| word(p, "name") == name).map(|p| word(p, "id")).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if seen.insert(id) {
            let kept = |d: &&Value| list(d, "dep_kinds").iter().any(|k| k["kind"] != "dev");
            open.extend(list(nodes[id], "deps").iter().filter(kept).map(|d| word(d, "pkg")));
        }
    }
    seen.into_iter().map(|id| names[id]).collect()
}

#[test]
fn no_program_links_what_it_must_not() {
    let metadata = metadata();
    let rules: [(&str, &[&str]); 5] = [
        (
            "anneal-desktop",
            &["kernels", "trainer", "cudarc", "tauri-plugin-shell", "tauri-plugin-fs", "tauri-plugin-http"],
        ),
        ("engine", &["kernels", "trainer", "cudarc", "webkit2gtk"]),
        ("trainer", &["tokio", "rusqlite", "libsqlite3-sys", "tauri", "clap", "sysinfo"]),
        ("kernels", &["serde", "serde_json", "tokio", "memmap2", "rustix"]),
        ("plan", &["rustix", "memmap2", "tokio", "rayon"]),
    ];
    let mut offenders = Vec::new();
    for (name, forbidden) in rules {
        let all = linked(metadata, name);
        assert!(all.contains(name));
        offenders.extend(forbidden.iter().filter(|f| all.contains(**f)).map(|f| format!("{name} links {f}")));
    }
    none("linked against the architecture", offenders);
}

// ---- licences and sources ----

fn deny() -> toml::Table {
    source::text(Path::new("deny.toml")).unwrap().parse().unwrap()
}

/// True where an SPDX expression can be satisfied by allowed licences alone.
fn satisfied(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let expression = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = expression.split_whitespace().collect();
    let (good, rest) = either(&words, allowed);
    good && rest.is_empty()
}

fn either<'a>(words: &'a [&'a str], allowed: &BTreeSet<String>) -> (bool, &'a [&'a str]) {
    let (mut good, mut rest) = both(words, allowed);
    while let ["OR", more @ ..] = rest {
        let (other, after) = both(more, allowed);
        (good, rest) = (good | other, after);
    }
    (good, rest)
}

fn both<'a>(words: &'a [&'a str], allowed: &BTreeSet<String>) -> (bool, &'a [&'a str]) {
    let (mut good, mut rest) = single(words, allowed);
    while let ["AND", more @ ..] = rest {
        let (other, after) = single(more, allowed);
        (good, rest) = (good & other, after);
    }
    (good, rest)
}

fn single<'a>(words: &'a [&'a str], allowed: &BTreeSet<String>) -> (bool, &'a [&'a str]) {
    match words {
        ["(", inner @ ..] => match either(inner, allowed) {
            (good, [")", rest @ ..]) => (good, rest),
            (_, rest) => (false, rest),
        },
        [name, "WITH", exception, rest @ ..] => (allowed.contains(&format!("{name} WITH {exception}")), rest),
        [name, rest @ ..] => (allowed.contains(*name), rest),
        [] => (false, words),
    }
}

#[test]
fn every_library_has_an_allowed_licence() {
    let deny = deny();
    let allow = deny["licenses"]["allow"].as_array().unwrap();
    let allowed: BTreeSet<String> = allow.iter().map(|l| l.as_str().unwrap().to_owned()).collect();
    let metadata = metadata();
    let wrong = list(metadata, "packages").iter().filter(|p| !satisfied(word(p, "license"), &allowed));
    none("licences not allowed by deny.toml", wrong.map(|p| format!("{}: {}", p["name"], p["license"])).collect());
}

#[test]
fn licence_expressions_are_read_as_spdx_means_them() {
    let allowed = BTreeSet::from(["MIT".to_owned(), "Apache-2.0 WITH LLVM-exception".into()]);
    for (expression, good) in [
        ("MIT", true),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0 AND MIT", false),
        ("GPL-3.0/MIT", true),
        ("(GPL-3.0 OR MIT) AND MIT", true),
        ("MIT AND (GPL-3.0 OR LGPL-3.0)", false),
        ("Apache-2.0", false),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("", false),
    ] {
        assert_eq!(satisfied(expression, &allowed), good, "{expression}");
    }
}

#[test]
fn every_library_comes_from_the_one_registry() {
    let deny = deny();
    let registry = deny["sources"]["allow-registry"][0].as_str().unwrap();
    let metadata = metadata();
    let wrong = list(metadata, "packages").iter().filter(|p| match p["source"].as_str() {
        Some(from) => from != format!("registry+{registry}"),
        None => !word(p, "manifest_path").starts_with(source::root().to_str().unwrap()),
    });
    none("sources not allowed by deny.toml", wrong.map(|p| format!("{}: {}", p["name"], p["source"])).collect());
}

// ---- sources ----

#[test]
fn every_module_says_what_it_is() {
    let silent = source::sources().iter().filter(|s| !s.text.starts_with("//! "));
    none("files that do not begin with a `//!` text", silent.map(|s| s.path.display().to_string()).collect());
}

/// Words that say nothing about what a thing is.
const EMPTY_WORDS: &str = "manager|helper|util|processor|handler|worker";

#[test]
fn names_say_what_a_thing_is() {
    let in_snake = format!(r"\b(?:fn|mod|static|const)\s+(?:\w+_)?(?i:{EMPTY_WORDS})s?(?:_\w+)?\b");
    let camel: Vec<String> = EMPTY_WORDS.split('|').map(|w| format!("{}{}", w[..1].to_uppercase(), &w[1..])).collect();
    let camel = camel.join("|");
    let in_camel = format!(r"\b(?:struct|enum|trait|type|union)\s+\w*?(?:{camel})s?(?:[A-Z]\w*)?\b");
    let mut offenders = matches(&in_snake, |_| false);
    offenders.extend(matches(&in_camel, |_| false));
    let in_path = Regex::new(&format!(r"(?i)(?:^|[/_-])(?:{EMPTY_WORDS})s?(?:[/_.-]|$)")).unwrap();
    let files = source::files().into_iter().map(|f| f.display().to_string());
    offenders.extend(files.filter(|f| !f.starts_with("tests/golden/") && in_path.is_match(f)));
    none("empty names", offenders);
}

#[test]
fn nothing_is_left_to_do() {
    let unfinished = matches(r"\b(?:todo|unimplemented)!|#\[ignore\b", |_| false);
    none("unfinished code or switched-off tests", unfinished);
}

#[test]
fn functions_are_short() {
    let mut all: Vec<(usize, String)> = Vec::new();
    for s in source::sources() {
        let rows = source::functions(s).into_iter();
        all.extend(
            rows.map(|f| (f.lines, format!("{}:{} {} has {} lines", s.path.display(), f.line, f.name, f.lines))),
        );
    }
    all.sort();
    let long =
        |limit: usize| all.iter().rev().take_while(move |(lines, _)| *lines >= limit).map(|(_, text)| text.clone());
    none("functions over 120 lines", long(121).collect());
    let share = long(60).count() as f64 / all.len() as f64;
    let longest: Vec<String> = long(60).collect();
    assert!(share <= 0.05, "{:.1} % of functions have 60 lines or more:\n  {}", share * 100.0, longest.join("\n  "));
}

#[test]
fn the_global_thread_pool_stays_unborn() {
    none("global thread pools", matches(r"\bbuild_global\b", |_| false));
    // Parallel calls outside `install` start the global pool: only kernels, whose devices own their pools, make any.
    let calls = r"\brayon::(?:join|scope|spawn|broadcast|current_num_threads)\b|\.(?:into_)?par_\w+\(";
    none("parallel calls outside kernels", matches(calls, |s| s.path.starts_with("kernels/src")));
}

#[test]
fn the_planner_reads_no_clock_file_or_environment() {
    let impure = matches(r"\bstd::(?:fs|env|time|net|process|thread)\b|\b(?:Instant|SystemTime)\b", |s| {
        !s.path.starts_with("engine/plan/src")
    });
    none("impure calls in plan", impure);
}

// ---- texts ----

/// Patterns of `tests/words.txt`, each with its line.
fn stray_words() -> Vec<Regex> {
    let page = source::text(Path::new("tests/words.txt")).unwrap();
    let lines = page.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| Regex::new(line).unwrap()).collect()
}

#[test]
fn the_repository_speaks_of_the_product_alone() {
    let words = stray_words();
    let mut offenders = Vec::new();
    for file in source::files().iter().filter(|f| !f.starts_with("tests/golden")) {
        let Some(text) = source::text(file) else { continue };
        for (number, line) in text.lines().enumerate() {
            let hits = words.iter().filter_map(|w| w.find(line));
            offenders.extend(hits.map(|m| format!("{}:{} {}", file.display(), number + 1, m.as_str())));
        }
    }
    none("words of tests/words.txt", offenders);
}

#[test]
fn stray_words_are_found() {
    let words = stray_words();
    let lines = [concat!("see /wo", "rk/main/x"), concat!("in /tmp/an", "neal/x"), concat!("fixes iss", "ue #12")];
    for line in lines {
        assert!(words.iter().any(|w| w.is_match(line)), "{line}");
    }
    assert!(!words.iter().any(|w| w.is_match("issues a warning, works, and writes /tmp/x")));
}

#[test]
fn the_map_of_the_readme_names_existing_paths() {
    let page = source::text(Path::new("README.md")).unwrap();
    let section = page.split("## Where things live").nth(1).unwrap().split("\n## ").next().unwrap();
    let quoted = Regex::new("^\\| `([^`]+)`").unwrap();
    let paths: Vec<String> =
        section.lines().filter_map(|line| quoted.captures(line)).map(|c| c[1].to_owned()).collect();
    assert!(paths.len() > 5, "the map is empty");
    none("paths that are not there", paths.into_iter().filter(|p| !source::root().join(p).exists()).collect());
}

#[test]
fn the_commands_of_the_readme_are_in_the_makefile() {
    let page = source::text(Path::new("README.md")).unwrap();
    let makefile = source::text(Path::new("Makefile")).unwrap();
    let command = Regex::new(r"(?m)(?:^ {4}|`)make ([a-z]+)\b").unwrap();
    let told: BTreeSet<String> = command.captures_iter(&page).map(|c| c[1].to_owned()).collect();
    assert!(told.len() >= 5, "{told:?}");
    let missing = told.into_iter().filter(|target| !makefile.contains(&format!("\n{target}:")));
    none("commands that the Makefile lacks", missing.collect());
}
