//! A real model and real data in the window: from a drop to the first step in three actions. Prints "skipped" where the
//! model or the data is not there.

use super::desk::{Desk, missing};
use crate::journeys::real::{data, model};
use std::time::{Duration, Instant};

/// Longest wait for the first step: some thousand tokens on two busy cores.
const FIRST_STEP: Duration = Duration::from_secs(400);

#[tokio::test(flavor = "multi_thread")]
async fn smollm2_and_alpaca_rows_learn_three_actions_after_the_window_opened() {
    if missing() {
        return;
    }
    let (model, data) = match (model(), data("llama_factory/alpaca_en_demo.json")) {
        (Ok(model), Ok(data)) => (model, data),
        (Err(why), _) | (_, Err(why)) => return println!("skipped: {why}"),
    };
    let desk = Desk::with_window().await;
    desk.find("new-empty").await;
    let begun = Instant::now();
    desk.drop_paths(&[&model]).await;
    desk.until_text("model-card", |text| text.contains("135")).await;
    desk.drop_paths(&[&data]).await;
    desk.until_text("data-card", |text| text.contains("alpaca_en_demo.json")).await;
    desk.until_text("tokens", |text| text.contains("<|im_start|>")).await;
    desk.find("plan-duration").await;
    println!("a plan {:.1} s after the first drop", begun.elapsed().as_secs_f64());
    desk.picture("real-new").await;
    desk.click("start").await;
    desk.find("place-run").await;
    while desk.text("run-step").await.trim_start().starts_with('0') {
        assert!(begun.elapsed() < FIRST_STEP, "no step came");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    println!("the first step {:.1} s after the first drop", begun.elapsed().as_secs_f64());
    desk.picture("real-run").await;
    let id = desk.lab.json(&["jobs"])[0]["id"].as_str().unwrap().to_owned();
    desk.lab.json(&["stop", &id]);
    desk.lab.wait_for(&id, &["stopped"]);
}
