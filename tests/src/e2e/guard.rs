//! What the page must not be able to do, and what the engine behind it refuses.

use super::desk::{Desk, missing};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn the_page_reaches_nothing_but_our_commands() {
    if missing() {
        return;
    }
    let desk = Desk::with_window().await;
    for command in ["plugin:window|close", "plugin:event|emit", "plugin:webview|create_webview", "shell", "supervise"] {
        let (done, answer) = desk.call(command, json!({})).await;
        assert!(!done, "{command} was done: {answer}");
        let told = answer.to_string();
        assert!(told.contains("not allowed") || told.contains("not found"), "{command}: {told}");
    }
    let (done, facts) = desk.call("startup", json!({})).await;
    assert!(done && facts["home"].as_str().is_some_and(|home| !home.is_empty()), "{facts}");
    let outside = json!({ "stage": "sft", "model": { "path": "/etc" }, "data": { "train": ["/etc/passwd"] } });
    let refused = [
        ("jobs", json!({ "query": { "search": "" } }), "setting_invalid"),
        ("startup", json!({ "more": 1 }), "setting_invalid"),
        ("job", json!({ "id": "nothing" }), "not_found"),
        ("set_title", json!({ "title": "x".repeat(2 << 20) }), "too_large"),
        ("preview", json!({ "spec": outside, "row": 1 }), "path_outside"),
        ("export_files", json!({ "from": "/etc", "format": "safetensors" }), "path_outside"),
    ];
    for (command, words, code) in refused {
        let (done, problem) = desk.call(command, words).await;
        assert!(!done && problem["code"] == json!(code), "{command}: {problem}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_stops_code_and_network() {
    if missing() {
        return;
    }
    let desk = Desk::with_window().await;
    let eval = "let run = 'ran'; try { (0, eval)('1') } catch (e) { run = String(e) } return run;";
    let by_element = "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; \
                      document.head.append(s); return String(window.ran);";
    assert_eq!(desk.script(by_element).await, json!("undefined"));
    let evaluated = desk.script(eval).await;
    assert!(evaluated.as_str().is_some_and(|said| said.contains("Error")), "{evaluated}");
    for address in ["http://127.0.0.1:1/", "https://example.com/", "file:///etc/passwd", "asset://localhost/etc/passwd"]
    {
        let fetch = format!("fetch('{address}').then(() => done('fetched'), (e) => done(String(e)));");
        let said = desk.wait_script(&fetch).await;
        assert!(said.as_str().is_some_and(|said| said.contains("Error")), "{address}: {said}");
    }
    desk.script("window.open('https://example.com/'); location.href = 'https://example.com/'; return 1").await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let at = desk.script("return location.href").await;
    assert!(at.as_str().is_some_and(|at| at.starts_with("tauri://localhost")), "{at}");
}
