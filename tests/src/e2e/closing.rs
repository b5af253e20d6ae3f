//! What is said when the window is closed while a job runs.

use super::acts::{number, state, submit};
use super::desk::{Desk, PATIENCE, missing};
use crate::journeys::lab::until;

#[tokio::test(flavor = "multi_thread")]
async fn closing_beside_a_running_job_is_said_once() {
    if missing() {
        return;
    }
    let desk = Desk::with_window().await;
    submit(&desk, "goes on", 20_000).await;
    desk.click("nav-run").await;
    state(&desk, "running").await;
    desk.until_text("run-step", |text| number(text) >= 5).await;
    let screen = desk.screen();
    let window = screen.window("Anneal");
    screen.ask_to_close(window);
    let said = desk.until_text("closing-text", |text| !text.is_empty()).await;
    assert!(said.starts_with("1 job keeps running") && said.contains("when you come back"), "{said}");
    desk.picture("closing").await;
    desk.click("closing-stay").await;
    desk.until_gone("closing").await;
    state(&desk, "running").await;

    screen.ask_to_close(window);
    screen.until_gone("Anneal");
    let open = || desk.lab.processes().into_iter().any(|(_, name)| name == "anneal-desktop");
    assert!(until(PATIENCE, || !open()), "the program is still there");
}
