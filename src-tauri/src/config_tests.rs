//! What the configuration of the window must never lose.

use serde_json::Value;
use std::collections::BTreeSet;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn config() -> Value {
    json(include_str!("../tauri.conf.json"))
}

#[test]
fn the_policy_of_the_page_lets_nothing_in() {
    let security = &config()["app"]["security"];
    let policy = security["csp"].as_object().unwrap();
    for (name, value) in policy {
        let value = value.as_str().unwrap();
        assert!(!value.contains("unsafe") && !value.contains('*') && !value.contains("https:"), "{name}: {value}");
        assert!(name == "connect-src" || !value.contains("http:"), "{name}: {value}");
    }
    assert_eq!(policy["script-src"], "'self'");
    for name in ["object-src", "frame-src", "base-uri", "form-action", "frame-ancestors"] {
        assert_eq!(policy[name], "'none'", "{name}");
    }
    assert_eq!(security["freezePrototype"], true);
    assert_eq!(security["assetProtocol"]["enable"], false);
    assert_eq!(security["capabilities"], serde_json::json!(["main"]));
    assert!(security["pattern"].is_null() && security["dangerousDisableAssetCspModification"].is_null());
    assert_eq!(config()["app"]["withGlobalTauri"], false);
    assert!(config()["build"]["devUrl"].is_null());
    assert!(config()["plugins"].is_null());
}

#[test]
fn the_page_may_call_our_commands_and_listen_and_nothing_else() {
    let capability = json(include_str!("../capabilities/main.json"));
    assert_eq!(capability["windows"], serde_json::json!(["main"]));
    assert!(capability["remote"].is_null() && capability["webviews"].is_null());
    let allowed: BTreeSet<&str> =
        capability["permissions"].as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect();
    let mut expected: BTreeSet<String> = commands().iter().map(|c| format!("allow-{}", c.replace('_', "-"))).collect();
    expected.extend(["core:event:allow-listen", "core:event:allow-unlisten"].map(str::to_owned));
    assert_eq!(allowed, expected.iter().map(String::as_str).collect());
}

#[test]
fn every_command_of_the_build_is_one_of_ours() {
    let source = include_str!("commands.rs");
    let functions = source.split("#[tauri::command]\npub async fn ").skip(1);
    let ours: BTreeSet<String> = functions.map(|rest| rest.split('(').next().unwrap().to_owned()).collect();
    assert_eq!(ours, commands());
    let handled = source.split("generate_handler![").nth(1).unwrap().split(']').next().unwrap();
    let handled: BTreeSet<String> = handled.split(',').map(|word| word.trim().to_owned()).collect();
    assert_eq!(handled, commands());
}

#[test]
fn the_client_calls_commands_that_are_there() {
    let client = include_str!("../../ui/src/api/client.ts");
    let called: BTreeSet<String> = client
        .split("call")
        .skip(1)
        .filter_map(|rest| {
            let rest = rest.trim_start_matches(|c: char| c != '(' && c != '\n').strip_prefix("(\"")?;
            Some(rest.split('"').next()?.to_owned())
        })
        .collect();
    assert_eq!(called, commands());
}

/// The list in `build.rs`.
fn commands() -> BTreeSet<String> {
    let list = include_str!("../build.rs").split("= [").nth(1).unwrap().split("];").next().unwrap();
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Whatever the page says, nothing panics: random words for every command.
#[test]
fn random_words_are_refused_without_a_panic() {
    let mut seed = 1u64;
    let mut next = move |bound: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % bound
    };
    let calls = std::env::var("ANNEAL_SOAK").map_or(2_000, |_| 100_000);
    for _ in 0..calls {
        let value = words(&mut next, 0);
        read_as_every_command(&value);
    }
}

fn read_as_every_command(value: &Value) {
    use crate::{ask::typed, asked::*};
    macro_rules! every {
        ($($kind:ty),*) => { $(let _ = typed::<$kind>(value);)* };
    }
    every![
        Nothing, Browsed, Job, Title, Notice, Token, Paths, Record, Planning, Submission, Word, Page, CurvePart,
        Following, Log, Pair, Kept, Fork, Exporting, Generating
    ];
}

/// A value with the names that the commands know, and values that they mostly do not.
fn words(next: &mut impl FnMut(u64) -> u64, depth: u32) -> Value {
    const NAMES: [&str; 24] = [
        "id",
        "what",
        "title",
        "body",
        "token",
        "paths",
        "model",
        "data",
        "row",
        "max_length",
        "spec",
        "on_line",
        "word",
        "query",
        "axis",
        "from",
        "to",
        "points",
        "lines",
        "a",
        "step",
        "changes",
        "train",
        "stage",
    ];
    match next(if depth > 4 { 6 } else { 8 }) {
        0 => Value::Null,
        1 => Value::Bool(next(2) == 0),
        2 => serde_json::json!(next(u64::MAX)),
        3 => serde_json::json!(-(next(1 << 40) as f64) / 3.0),
        4 => Value::String(["", "auto", "model", "../..", "\u{0}", "__CHANNEL__:1"][next(6) as usize].to_owned()),
        5 => Value::String("é".repeat(next(50) as usize)),
        6 => (0..next(4)).map(|_| words(next, depth + 1)).collect(),
        _ => {
            let fields = (0..next(6)).map(|_| (NAMES[next(24) as usize].to_owned(), words(next, depth + 1)));
            Value::Object(fields.collect())
        }
    }
}
