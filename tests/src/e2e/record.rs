//! One job looked at in full and gone on from: the parts of its record, its charts, its log, its checkpoints, and forks
//! from the record and from a mark.

use super::acts::{number, open_record, press, state, submit};
use super::desk::{Desk, missing};
use serde_json::{Value, json};
use thirtyfour::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_read_in_full_and_forked() {
    if missing() {
        return;
    }
    let desk = Desk::with_window().await;
    let id = submit(&desk, "the first", 20_000).await;
    desk.click("nav-run").await;
    state(&desk, "running").await;
    desk.until_text("run-step", |text| number(text) >= 200).await;
    log_that_grows(&desk).await;
    press(&desk, "stop", "stopped").await;
    charts(&desk).await;
    let forked = fork_from_a_mark(&desk, &id).await;
    desk.click("nav-history").await;
    desk.until_text("history-count", |text| number(text) == 2).await;
    open_record(&desk, &id).await;
    parts(&desk).await;
    let again = fork_from_the_record(&desk, &id).await;
    compare(&desk, &id, &again).await;
    assert_ne!(forked, again);
}

/// The log of a job at work: follows, does not, shows warnings alone.
async fn log_that_grows(desk: &Desk) {
    let lines = "return document.querySelectorAll('[data-testid=log-lines] > div').length";
    assert!(desk.script(lines).await.as_u64().is_some_and(|lines| lines > 3));
    let end = "const box = document.querySelector('[data-testid=log-lines]'); \
               return Math.round(box.scrollHeight - box.scrollTop - box.clientHeight)";
    assert!(desk.script(end).await.as_i64().is_some_and(|left| left < 24));
    desk.click("log-follow").await;
    desk.until_text("log-follow", |text| text.contains("not following")).await;
    desk.click("log-follow").await;
    desk.until_text("log-follow", |text| text.trim() == "following").await;
    desk.click("log-level-errors").await;
    desk.until_text("log-lines", |text| text.contains("No line of this level")).await;
    desk.click("log-level-all").await;
    desk.until_text("log-lines", |text| text.len() > 40).await;
    desk.click("log-copy").await;
    let told = desk.until_text("toast", |text| text.contains("Copied")).await;
    let copied = desk.screen().copied().unwrap();
    assert_eq!(copied.lines().count() as u64, number(&told), "{told}\n{copied}");
}

/// What stands below the charts.
async fn axis(desk: &Desk) -> String {
    desk.text("[data-testid=charts] .labels").await
}

async fn charts(desk: &Desk) {
    let by_step = axis(desk).await;
    desk.picture("charts-linear").await;
    desk.click("chart-scale-log").await;
    desk.find("[data-testid=chart-scale-log][aria-checked=true]").await;
    desk.picture("charts-log").await;
    desk.click("chart-axis-seconds").await;
    desk.until_text("[data-testid=charts] .labels", |text| text != by_step && text.contains('s')).await;
    let by_time = axis(desk).await;
    desk.click("chart-axis-tokens").await;
    desk.until_text("[data-testid=charts] .labels", |text| text != by_step && text != by_time).await;
    desk.picture("charts-tokens").await;
    desk.find("[data-testid=chart-smoothing] option[value='0']").await.click().await.unwrap();
    desk.until_gone(".bar .smooth").await;
    desk.find("[data-testid=chart-smoothing] option[value='0.9']").await.click().await.unwrap();
    desk.find(".bar .smooth").await;
    desk.click("chart-axis-step").await;
    desk.until_text("[data-testid=charts] .labels", |text| text == by_step).await;
    desk.click("chart-scale-linear").await;
    // A cursor under the arrow keys reads the values out.
    let cursor = desk.find("chart-cursor").await;
    cursor.send_keys(Key::Home).await.unwrap();
    // The first point may stand for a few steps.
    let at = desk.until_text("chart-at", |text| (1..10).contains(&number(text))).await;
    let said = cursor.attr("aria-valuetext").await.unwrap().unwrap_or_default();
    assert!(said.starts_with(&format!("{}: loss", at.trim())), "{at} {said}");
    cursor.send_keys(Key::Escape).await.unwrap();
}

/// "Fork from here" at the last sign of a checkpoint.
async fn fork_from_a_mark(desk: &Desk, id: &str) -> String {
    let mark = desk.page().find_all(By::Css("[data-testid=mark]")).await.unwrap().pop().expect("no mark");
    mark.scroll_into_view().await.unwrap();
    mark.click().await.unwrap();
    desk.find("mark-card").await;
    desk.picture("mark").await;
    desk.click("mark-fork").await;
    desk.find("fork-dialog").await;
    let step = chosen(desk).await;
    fork(desk, id, step, "3e-4").await
}

/// The step that the dialog begins with.
async fn chosen(desk: &Desk) -> u64 {
    desk.find("fork-step").await.prop("value").await.unwrap().unwrap_or_default().parse().unwrap()
}

/// Fills the dialog in and starts; names the new job, whose first step is the one after the kept one.
async fn fork(desk: &Desk, id: &str, step: u64, rate: &str) -> String {
    desk.find("fork-rate").await.send_keys(rate).await.unwrap();
    desk.picture("fork").await;
    desk.click("fork-start").await;
    desk.until_gone("fork-dialog").await;
    state(desk, "running").await;
    let jobs = desk.lab.json(&["jobs"]);
    let new = jobs[0]["id"].as_str().unwrap().to_owned();
    assert_ne!(new, id);
    desk.until_text("run-step", |text| number(text) > step).await;
    press(desk, "stop", "stopped").await;
    let (first, _) = desk.lab.losses(&new)[0];
    assert_eq!(first, step + 1);
    let record = desk.lab.json(&["job", &new]);
    let asked = record["spec"]["optimizer"]["learning_rate"].as_f64().unwrap();
    assert_eq!(asked, rate.parse::<f64>().unwrap());
    new
}

/// Every part of the record says something of this job.
async fn parts(desk: &Desk) {
    desk.find("record").await;
    desk.until_text("record-summary", |text| text.contains("my model")).await;
    desk.picture("record").await;
    desk.click("verify").await;
    desk.until_text("checkpoint-row", |text| text.contains("verified") && !text.contains("not verified")).await;
    desk.picture("record-verified").await;
    desk.click("record-tab-asked").await;
    desk.until_text("settings", |text| text.contains("run.steps") && text.contains("20000")).await;
    desk.picture("record-asked").await;
    desk.click("record-tab-planned").await;
    desk.until_text("[data-testid=record] [role=tabpanel]", |text| text.contains("machine.devices")).await;
    desk.picture("record-planned").await;
    desk.click("record-tab-log").await;
    desk.until_text("log-lines", |text| text.len() > 40).await;
    desk.picture("record-log").await;
    desk.click("record-tab-summary").await;
}

async fn fork_from_the_record(desk: &Desk, id: &str) -> String {
    desk.click("[data-testid=record] [data-testid=fork]").await;
    desk.find("fork-dialog").await;
    // A line that is no setting is told before anything is asked.
    desk.find("fork-changes").await.send_keys("nonsense").await.unwrap();
    desk.until_text("fork-dialog", |text| text.contains("Not KEY=VALUE: nonsense")).await;
    let erased = String::from(char::from(Key::Backspace)).repeat("nonsense".len());
    desk.find("fork-changes").await.send_keys(erased).await.unwrap();
    let step = chosen(desk).await;
    fork(desk, id, step, "5e-4").await
}

async fn compare(desk: &Desk, old: &str, new: &str) {
    desk.click("nav-history").await;
    if !desk.page().find_all(By::Css("[data-testid=record-close]")).await.unwrap().is_empty() {
        desk.click("record-close").await;
    }
    desk.until_text("history-count", |text| number(text) == 3).await;
    for job in [old, new] {
        desk.click(&format!("[data-testid=history-row][data-id=\"{job}\"] [data-testid=history-select]")).await;
    }
    desk.click("compare").await;
    let differs = desk.until_text("compare-differences", |text| text.contains("learning_rate")).await;
    assert!(differs.contains("5e-4"), "{differs}");
    let keys =
        desk.script("return [...document.querySelectorAll('[data-testid=difference]')].map((row) => row.dataset.key)");
    let keys = keys.await;
    let same = |key: &Value| *key == json!("run.steps") || *key == json!("model.path");
    assert!(!keys.as_array().unwrap().iter().any(same), "{keys}");
    desk.picture("compare-fork").await;
}
