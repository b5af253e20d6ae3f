//! What many of these tests do: submit a job, wait for its state, press a button until it has worked.

use super::calls::{job, model_with_a_hard_name};
use super::desk::{Desk, PATIENCE};
use serde_json::json;
use std::time::{Duration, Instant};
use thirtyfour::prelude::*;

/// Submits a job by the commands of an open window.
pub async fn submit(desk: &Desk, name: &str, steps: u64) -> String {
    let (model, data) = (model_with_a_hard_name(desk), desk.lab.chat(300));
    desk.call("inspect", json!({ "paths": [model, data] })).await;
    let mut spec = job(&model, &data, steps);
    spec["name"] = json!(name);
    let (done, id) = desk.call("submit", json!({ "spec": spec })).await;
    assert!(done, "{id}");
    id.as_str().unwrap().to_owned()
}

/// Waits until Run shows a job in this state.
pub async fn state(desk: &Desk, good: &str) {
    let begun = Instant::now();
    loop {
        let now = desk.find("run-state").await.attr("data-state").await.ok().flatten().unwrap_or_default();
        if now == good {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "the job is {now}, not {good}\n{}", desk.seen().await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Presses a button until the job is in this state: one that is drawn anew in that moment loses a click.
pub async fn press(desk: &Desk, button: &str, good: &str) {
    for _ in 0..10 {
        desk.click(button).await;
        let state = format!("[data-testid=run-state][data-state={good}]");
        let seconds = Duration::from_secs(6);
        if desk.page().query(By::Css(&state)).wait(seconds, seconds / 60).first().await.is_ok() {
            return;
        }
    }
    state(desk, good).await;
}

/// The number that a text begins with: "1,240 / 5,000" is 1240.
pub fn number(text: &str) -> u64 {
    let first = text.split('/').next().unwrap_or_default();
    first.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)
}

/// A job file of the command line in the desk's HOME, over the toy model, with this name and so many steps.
pub fn job_file(desk: &Desk, name: &str, steps: u64) -> std::path::PathBuf {
    let file = desk.lab.job(steps, "");
    let text = std::fs::read_to_string(&file).unwrap().replace("\"toy\"", &json!(name).to_string());
    desk.lab.write(&format!("{name}.toml"), &text)
}

/// Runs a job to its end by the command line and names it.
pub fn finished(desk: &Desk, name: &str, steps: u64) -> String {
    let file = job_file(desk, name, steps);
    let id = desk.lab.json(&["submit", file.to_str().unwrap()])["job"].as_str().unwrap().to_owned();
    desk.lab.wait_for(&id, &["finished"]);
    id
}

/// Opens the record of a job from the list in History.
pub async fn open_record(desk: &Desk, id: &str) {
    desk.click("nav-history").await;
    let row = format!("[data-testid=history-row][data-id=\"{id}\"]");
    let begun = Instant::now();
    loop {
        // A list that is read anew in this moment draws its rows anew.
        let clicked = desk.find(&row).await.click().await;
        if clicked.is_ok() && desk.page().query(By::Css("[data-testid=record]")).first().await.is_ok() {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{id} does not open: {clicked:?}");
    }
}
