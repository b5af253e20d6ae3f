//! Jobs in trouble as the window shows them: a trainer that dies over and over, a supervisor that is gone, a checkpoint
//! that is damaged. Each says what was kept and has a way on.

use super::acts::{number, press, state, submit};
use super::desk::{Desk, PATIENCE, missing};
use crate::journeys::lab::{kill, until};
use std::path::Path;

#[tokio::test(flavor = "multi_thread")]
async fn jobs_in_trouble_say_what_was_kept_and_go_on() {
    if missing() {
        return;
    }
    let desk = Desk::with_window().await;
    let id = submit(&desk, "in trouble", 20_000).await;
    desk.click("nav-run").await;
    state(&desk, "running").await;
    desk.until_text("run-step", |text| number(text) >= 60).await;
    dies_over_and_over(&desk).await;
    supervisor_lost(&desk).await;
    damaged_checkpoint(&desk, &id).await;
}

/// What a card must say.
async fn told(desk: &Desk, code: &str) -> String {
    desk.find(&format!("[data-testid=run-problem][data-code={code}]")).await;
    let card = desk.text("run-problem").await;
    assert!(["Why", "Kept", "What to do"].iter().filter(|part| card.contains(**part)).count() >= 2, "{card}");
    card
}

async fn dies_over_and_over(desk: &Desk) {
    // Seen from another place: the rail asks for attention.
    desk.click("nav-machine").await;
    let failed = || {
        if let Some(pid) = desk.lab.pid(true) {
            kill(pid, "KILL");
        }
        desk.lab.pid(false).is_none()
    };
    assert!(until(PATIENCE, failed), "the supervisor never gave up");
    desk.until_text("rail-attention", |text| text.contains("in trouble") && text.contains("Failed")).await;
    desk.picture("attention").await;
    desk.click("rail-attention").await;
    state(desk, "failed").await;
    told(desk, "trainer_died").await;
    desk.until_gone("rail-attention").await;
    desk.picture("failed-job").await;
    goes_on(desk).await;
}

/// The card's button brings the job back to work.
async fn goes_on(desk: &Desk) {
    desk.click("[data-testid=run-problem] [data-testid=resume]").await;
    state(desk, "running").await;
    desk.until_gone("run-problem").await;
    let step = number(&desk.text("run-step").await);
    desk.until_text("run-step", |text| number(text) > step).await;
}

async fn supervisor_lost(desk: &Desk) {
    kill(desk.lab.pid(false).expect("no supervisor"), "KILL");
    state(desk, "interrupted").await;
    told(desk, "supervisor_lost").await;
    desk.picture("interrupted").await;
    assert!(until(PATIENCE, || desk.lab.pid(true).is_none()), "the trainer is still there");
    goes_on(desk).await;
}

async fn damaged_checkpoint(desk: &Desk, id: &str) {
    desk.until_text("run-step", |text| number(text) >= 200).await;
    press(desk, "stop", "stopped").await;
    let newest = desk.lab.checkpoint(id);
    damage(&newest);
    desk.click("run-record").await;
    desk.click("verify").await;
    desk.until_text("checkpoint-row", |text| text.contains("damaged")).await;
    desk.picture("damaged-checkpoint").await;
    // The one before it stands in.
    desk.click("[data-testid=record] [data-testid=resume]").await;
    desk.find("place-run").await;
    state(desk, "running").await;
    let step = number(&desk.text("run-step").await);
    desk.until_text("run-step", |text| number(text) > step).await;
    desk.picture("resumed-from-the-one-before").await;
    press(desk, "stop", "stopped").await;
}

/// Turns bits in the middle of every tensor file.
fn damage(checkpoint: &Path) {
    let files = std::fs::read_dir(checkpoint).unwrap().flatten().map(|file| file.path());
    for file in files.filter(|file| file.extension().is_some_and(|kind| kind == "safetensors")) {
        let mut bytes = std::fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle..].iter_mut().take(64).for_each(|byte| *byte ^= 0xA5);
        std::fs::write(&file, bytes).unwrap();
    }
}
