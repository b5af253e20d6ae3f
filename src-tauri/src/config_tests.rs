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
    let ours: BTreeSet<String> = functions.map(|rest| rest.split(['(', '<']).next().unwrap().to_owned()).collect();
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
pub fn commands() -> BTreeSet<String> {
    let list = include_str!("../build.rs").split("= [").nth(1).unwrap().split("];").next().unwrap();
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}
