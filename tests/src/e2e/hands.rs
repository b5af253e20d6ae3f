//! The window under the keyboard alone, on real keys: from files to the first step, the sample, the places, the list of all
//! keys, pausing.

use super::acts::{number, press, state};
use super::calls::model_with_a_hard_name;
use super::desk::{Desk, PATIENCE, missing};
use super::screen::Screen;
use serde_json::json;
use std::time::{Duration, Instant};

/// What has the keyboard's focus in the page.
async fn focused(desk: &Desk) -> String {
    let mark = desk.script("return document.activeElement?.dataset?.testid ?? ''").await;
    mark.as_str().unwrap_or_default().to_owned()
}

/// Waits until this has the focus.
async fn until_focused(desk: &Desk, mark: &str) {
    let begun = Instant::now();
    while focused(desk).await != mark {
        assert!(begun.elapsed() < PATIENCE, "{mark} never gets the focus: it is at {}", focused(desk).await);
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

/// Presses Tab until this has the focus.
async fn tab_to(desk: &Desk, screen: &Screen, mark: &str) {
    for _ in 0..40 {
        let at = focused(desk).await;
        if at == mark {
            return;
        }
        screen.press("Tab");
        // A key that is still on its way must not be pressed again.
        let begun = Instant::now();
        while focused(desk).await == at && begun.elapsed() < Duration::from_secs(2) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    panic!("Tab never comes to {mark}: it is at {}", focused(desk).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn three_actions_lead_from_files_to_the_first_step() {
    if missing() {
        return;
    }
    let desk = Desk::with_window().await;
    desk.find("new-empty").await;
    let (model, data) = (model_with_a_hard_name(&desk), desk.lab.chat(300));
    desk.drop_paths(&[&model]).await;
    desk.find("need-data").await;
    desk.drop_paths(&[&data]).await;
    desk.find("[data-testid=plan][data-state=fits]").await;
    desk.keyboard().press("Control+Return");
    desk.find("place-run").await;
    desk.until_text("run-step", |text| number(text) >= 1).await;

    by_keys_alone(&desk).await;
    pauses(&desk).await;
    list_of_keys(&desk).await;
}

/// The same with typed paths: each is written and entered, then the plan is started.
async fn by_keys_alone(desk: &Desk) {
    let screen = desk.keyboard();
    let model = crate::journeys::lab::golden("models/llama");
    screen.press("n");
    desk.find("place-new").await;
    desk.click("remove-model").await;
    desk.click("remove-data").await;
    desk.find("new-empty").await;
    tab_to(desk, &screen, "path").await;
    screen.write(model.to_str().unwrap());
    screen.press("Return");
    desk.find("need-data").await;
    // The field that takes over is where one writes on.
    until_focused(desk, "path").await;
    screen.write(desk.lab.path("chat.jsonl").to_str().unwrap());
    screen.press("Return");
    desk.find("[data-testid=plan][data-state=fits]").await;
    desk.picture("typed-paths").await;
    screen.press("Control+Return");
    desk.find("place-run").await;
    desk.until_text("run-step", |text| number(text) >= 1).await;
}

/// Space pauses the job that Run shows, and Space goes on.
async fn pauses(desk: &Desk) {
    let long = super::acts::submit(desk, "a long one", 20_000).await;
    let row = format!("[data-testid=rail-job][data-job=\"{long}\"]");
    desk.click(&row).await;
    state(desk, "running").await;
    desk.until_text("run-step", |text| number(text) >= 1).await;
    desk.script("document.activeElement.blur(); return 1").await;
    let screen = desk.keyboard();
    screen.press(" ");
    state(desk, "paused").await;
    desk.picture("paused").await;
    screen.press(" ");
    state(desk, "running").await;
    press(desk, "stop", "stopped").await;
}

async fn list_of_keys(desk: &Desk) {
    let screen = desk.keyboard();
    desk.script("document.activeElement.blur(); return 1").await;
    for (key, place) in [("5", "machine"), ("4", "try"), ("3", "history"), ("2", "run"), ("1", "new")] {
        screen.press(key);
        desk.find(&format!("place-{place}")).await;
    }
    screen.press("?");
    desk.until_text("shortcuts", |text| ["Ctrl", "Space", "Esc", "/"].iter().all(|key| text.contains(key))).await;
    desk.picture("shortcuts").await;
    // A place does not change below an open list.
    screen.press("3");
    screen.press("Escape");
    desk.until_gone("shortcuts").await;
    desk.find("place-new").await;
    screen.press("/");
    desk.find("place-history").await;
    until_focused(desk, "history-search").await;
    // What is typed here is text, not a key.
    screen.write("long");
    desk.until_text("history-count", |text| text.contains("1 job matches")).await;
    let typed = desk.find("history-search").await.prop("value").await.unwrap();
    assert_eq!(typed.as_deref(), Some("long"));
    desk.find("place-history").await;
    // The first empties the field, the second leaves it.
    screen.press("Escape");
    desk.until_text("history-count", |text| text.contains("3 jobs")).await;
    screen.press("Escape");
    until_focused(desk, "").await;
    screen.press("n");
    desk.find("place-new").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sample_is_one_button_and_one_key() {
    if missing() {
        return;
    }
    let desk = Desk::with_window().await;
    desk.find("new-empty").await;
    let screen = desk.keyboard();
    tab_to(&desk, &screen, "train-sample").await;
    desk.picture("sample-focused").await;
    screen.press("Return");
    desk.find("place-run").await;
    desk.until_text("run-step", |text| number(text) >= 1).await;
    desk.picture("sample-running").await;
    let id = desk.lab.json(&["jobs"])[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(desk.lab.json(&["job", &id])["state"], json!("running"));
}
