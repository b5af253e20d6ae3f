//! The places of the window, as people see and use them: a job is watched, the window is killed and opened again, the job
//! is paused, resumed, stopped, found in the history, compared, asked to speak, deleted and brought back.

use super::acts::{number, press, state, submit};
use super::calls::model_with_a_hard_name;
use super::desk::{Desk, missing};
use serde_json::json;
use thirtyfour::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_watched_left_and_found_again_and_looked_back_on() {
    if missing() {
        return;
    }
    let mut desk = Desk::with_window().await;
    desk.find("nav-run").await;
    submit(&desk, "first <b>bold", 20_000).await;
    desk.click("nav-run").await;
    state(&desk, "running").await;
    desk.until_text("run-step", |text| number(text) >= 5).await;
    desk.picture("run").await;

    desk.crash();
    desk.open(&[]).await;
    desk.click("nav-run").await;
    state(&desk, "running").await;
    let step = number(&desk.text("run-step").await);
    desk.until_text("run-step", |text| number(text) > step).await;
    press(&desk, "pause", "paused").await;
    press(&desk, "resume", "running").await;
    press(&desk, "stop", "stopped").await;
    desk.picture("run-stopped").await;

    submit(&desk, "second", 60).await;
    history(&desk).await;
    speak(&desk).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_and_data_that_were_dropped_become_a_running_job() {
    if missing() {
        return;
    }
    let desk = Desk::with_window().await;
    desk.find("new-empty").await;
    let model = model_with_a_hard_name(&desk);
    let data = desk.lab.path("questions é.jsonl");
    std::fs::rename(desk.lab.chat(300), &data).unwrap();
    // From another place: the whole window takes drops.
    desk.click("nav-history").await;
    desk.find("place-history").await;
    desk.drop_paths(&[&model, &data]).await;
    desk.until_text("model-card", |text| text.contains("my model é") && text.contains("117")).await;
    desk.until_text("data-card", |text| text.contains("questions é.jsonl") && text.contains("300")).await;
    desk.until_text("tokens", |text| text.contains('?')).await;
    desk.click("row-next").await;
    desk.until_text("start", |text| !text.is_empty()).await;
    desk.find("plan-duration").await;
    desk.picture("new").await;
    desk.click("theme").await;
    desk.picture("new-other-theme").await;
    desk.click("start").await;
    desk.find("place-run").await;
    desk.until_text("run-step", |text| number(text) >= 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_used_is_explained() {
    if missing() {
        return;
    }
    let desk = Desk::with_window().await;
    desk.find("new-empty").await;
    let broken = desk.lab.path("broken <img src=x onerror=\"window.ran=1\">");
    std::fs::create_dir_all(&broken).unwrap();
    std::fs::write(broken.join("config.json"), "{}").unwrap();
    desk.drop_paths(&[&broken]).await;
    desk.until_text("refused-item", |text| text.contains("onerror")).await;
    desk.picture("refused").await;
    assert_eq!(desk.script("return String(window.ran)").await, json!("undefined"));
    assert_eq!(desk.script("return document.querySelectorAll('img[onerror]').length").await, json!(0));
}

async fn rows(desk: &Desk) -> Vec<WebElement> {
    desk.find("history-row").await;
    desk.page().find_all(By::Css("[data-testid=history-row]")).await.unwrap()
}

async fn history(desk: &Desk) {
    desk.click("nav-history").await;
    desk.until_text("history-count", |text| number(text) == 2).await;
    assert_eq!(rows(desk).await.len(), 2);
    desk.lab.wait_for(desk.lab.json(&["jobs"])[0]["id"].as_str().unwrap(), &["finished"]);
    desk.find("[data-testid=history-row] [data-state=finished]").await;
    desk.picture("history").await;
    // A name is text, whatever it holds.
    let bold = desk.script("return document.querySelectorAll('[data-testid=history-table] b').length").await;
    assert_eq!(bold, json!(0));

    for select in desk.page().find_all(By::Css("[data-testid=history-select]")).await.unwrap() {
        select.click().await.unwrap();
    }
    desk.click("compare").await;
    desk.find("compare-panel").await;
    desk.until_text("compare-differences", |text| text.contains("steps")).await;
    desk.picture("compare").await;
    desk.click("clear-selection").await;

    let first = desk.page().find(By::Css("[data-testid=history-select]")).await.unwrap();
    first.click().await.unwrap();
    desk.click("delete").await;
    desk.until_text("history-count", |text| number(text) == 1).await;
    desk.picture("deleted").await;
    desk.click("undo").await;
    desk.until_text("history-count", |text| number(text) == 2).await;
}

async fn speak(desk: &Desk) {
    desk.click("nav-try").await;
    let prompt = desk.find("try-prompt").await;
    prompt.send_keys("1 + 7?").await.unwrap();
    desk.click("try-send").await;
    desk.until_text("try-output-tuned", |text| !text.replace("1 + 7?", "").trim().is_empty()).await;
    desk.picture("try").await;
    desk.click("nav-machine").await;
    desk.find("host-card").await;
    desk.picture("machine").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_places_teach_in_both_themes_and_without_a_language() {
    if missing() {
        return;
    }
    let mut desk = Desk::new();
    desk.set("LANG", "C");
    desk.open(&[]).await;
    let places = ["new", "run", "history", "try", "machine"];
    for place in places {
        desk.click(&format!("nav-{place}")).await;
        desk.find(&format!("place-{place}")).await;
        desk.picture(&format!("empty-{place}")).await;
    }
    desk.click("theme").await;
    for place in places {
        desk.click(&format!("nav-{place}")).await;
        desk.find(&format!("place-{place}")).await;
        desk.picture(&format!("empty-{place}-other-theme")).await;
    }
    desk.click("language").await;
    desk.picture("chinese").await;
    let fatal =
        desk.script("return document.querySelectorAll('[data-testid=fatal], [data-testid=place-failed]').length");
    assert_eq!(fatal.await, json!(0));
}
