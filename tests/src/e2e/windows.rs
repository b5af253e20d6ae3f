//! A job and the windows that look at it: killed at any moment, closed by the window manager, ended by a signal or with
//! their display, none of them touches it, and the next one shows it.
//!
//! Not here: what the window shows of a job besides (`places`), the death of a command line (`journeys::crash`).

use super::desk::{Desk, Group, PATIENCE, missing};
use super::wm;
use crate::journeys::lab::{Lab, kill, until};
use protocol::Event;
use std::time::Duration;

/// Deaths of a window: `ANNEAL_SOAK` raises it.
fn deaths() -> u64 {
    if std::env::var_os("ANNEAL_SOAK").is_some() { 100 } else { 10 }
}

/// A seeded delay: from before there is a window to when it has been looked at for a while.
fn delay(death: u64) -> Duration {
    let x = (death + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    Duration::from_millis((x ^ (x >> 29)) % 1500)
}

/// Starts a job that takes longer than the test.
fn submit(lab: &Lab) -> String {
    let job = lab.job(1_000_000, "");
    let answer = lab.json(&["submit", job.to_str().unwrap(), "--set", "snapshot.persist_every=500"]);
    let id = answer["job"].as_str().unwrap().to_owned();
    goes_on(lab, &id);
    id
}

/// Every step that the journal names, each time it does, in order.
fn steps(lab: &Lab, id: &str) -> Vec<u64> {
    let journal = lab.home().join("runs").join(id).join("journal.jsonl");
    let Ok(mut reader) = store::journal::Reader::open(&journal, 0) else { return Vec::new() };
    let entries = std::iter::from_fn(|| reader.next().unwrap());
    entries.filter(|(entry, _)| matches!(entry.event, Event::Step(_))).map(|(entry, _)| entry.event.step()).collect()
}

/// Waits until the job has made more steps than now.
fn goes_on(lab: &Lab, id: &str) {
    let before = steps(lab, id).len();
    assert!(until(PATIENCE, || steps(lab, id).len() > before), "no step after {before}\n{}", lab.log(id));
}

/// Ends the job and asserts that one attempt made each of its steps once.
fn whole(lab: &Lab, id: &str) {
    assert_eq!(lab.json(&["job", id])["attempts"], 1, "{}", lab.log(id));
    lab.json(&["stop", id]);
    let all = steps(lab, id);
    let once: Vec<u64> = (1..=all.len() as u64).collect();
    assert_eq!(all, once, "a step is lost or doubled");
}

/// The window shows the job as running, and its steps as they come.
async fn shows_it_running(desk: &Desk) {
    desk.find("rail-job").await;
    desk.click("nav-run").await;
    desk.find("[data-testid=run-state][data-state=running]").await;
    let step = desk.text("run-step").await;
    desk.until_text("run-step", |now| now != step).await;
}

/// Waits until a window that nobody drives can be seen.
fn seen(desk: &Desk) {
    assert!(until(PATIENCE, || wm::window(&desk.display).is_ok_and(|window| window.is_some())), "there is no window");
}

fn ends(mut window: Group, how: &str) {
    assert!(until(PATIENCE, || window.0.try_wait().unwrap().is_some()), "the window is still there after {how}");
}

/// Waits until a window under a driver is gone.
fn closed(desk: &Desk) {
    let gone = || desk.lab.processes().iter().all(|(_, name)| name != "anneal-desktop");
    assert!(until(PATIENCE, gone), "the window is still there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_killed_at_any_moment_loses_nothing_of_a_job() {
    if missing() {
        return;
    }
    let mut desk = Desk::new();
    let id = submit(&desk.lab);
    for death in 0..deaths() {
        // Every other one is looked at before it dies; the rest may die before they are drawn.
        if death % 2 == 0 {
            desk.open(&[]).await;
            shows_it_running(&desk).await;
            tokio::time::sleep(delay(death)).await;
            desk.crash();
        } else {
            let window = desk.launch(&[]);
            std::thread::sleep(delay(death));
            kill(window.0.id() as i32, "KILL");
        }
        goes_on(&desk.lab, &id);
    }
    desk.open(&[]).await;
    shows_it_running(&desk).await;
    desk.crash();
    whole(&desk.lab, &id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_is_closed_says_once_that_jobs_go_on_and_they_do() {
    if missing() {
        return;
    }
    let mut desk = Desk::new();
    let id = submit(&desk.lab);
    desk.open(&[]).await;
    shows_it_running(&desk).await;
    wm::close(&desk.display).unwrap();
    let said = desk.text("closing-text").await;
    assert!(said.contains('1'), "{said}");
    desk.picture("closing").await;
    goes_on(&desk.lab, &id);
    desk.click("closing-stay").await;
    shows_it_running(&desk).await;
    // Said is said: the second wish is granted.
    wm::close(&desk.display).unwrap();
    closed(&desk);
    goes_on(&desk.lab, &id);
    desk.crash();
    // The button of the sentence closes as well.
    desk.open(&[]).await;
    shows_it_running(&desk).await;
    wm::close(&desk.display).unwrap();
    // The answer to this click may go with the window.
    let _ = desk.find("closing-now").await.click().await;
    closed(&desk);
    goes_on(&desk.lab, &id);
    whole(&desk.lab, &id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_ended_by_a_signal_or_with_its_display_leaves_its_job_alone() {
    if missing() {
        return;
    }
    let mut desk = Desk::new();
    let id = submit(&desk.lab);
    for signal in ["TERM", "HUP"] {
        let window = desk.launch(&[]);
        seen(&desk);
        kill(window.0.id() as i32, signal);
        ends(window, signal);
        goes_on(&desk.lab, &id);
    }
    let window = desk.launch(&[]);
    seen(&desk);
    desk.lose_display();
    ends(window, "the end of its display");
    goes_on(&desk.lab, &id);
    desk.open(&[]).await;
    shows_it_running(&desk).await;
    desk.crash();
    whole(&desk.lab, &id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_without_jobs_closes_without_a_word() {
    if missing() {
        return;
    }
    let desk = Desk::new();
    let window = desk.launch(&[]);
    seen(&desk);
    // Not before the page listens: closing is the program's affair until then, too.
    wm::close(&desk.display).unwrap();
    ends(window, "its close button");
}
