//! One window a HOME, however often and however simultaneously the program is started.

use super::bus::bus;
use super::desk::{Desk, Group, missing};
use crate::journeys::lab::{binary, until};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn starts_at_once_give_one_window_and_farewells_of_the_others() {
    if missing() {
        return;
    }
    for _ in 0..rounds() {
        starts_at_once(&Desk::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn starts_at_once_on_a_desktop_bus_do_the_same() {
    if missing() {
        return;
    }
    let mut desk = Desk::new();
    let Some((_bus, address)) = bus(&desk) else {
        println!("skipped: dbus-daemon is not installed");
        return;
    };
    desk.set("DBUS_SESSION_BUS_ADDRESS", &address);
    for _ in 0..rounds() {
        starts_at_once(&desk);
    }
}

/// How many starts at once, how often: `ANNEAL_SOAK` raises both.
fn starts() -> usize {
    if std::env::var_os("ANNEAL_SOAK").is_some() { 20 } else { 5 }
}

fn rounds() -> usize {
    if std::env::var_os("ANNEAL_SOAK").is_some() { 10 } else { 1 }
}

fn starts_at_once(desk: &Desk) {
    let begun = Instant::now();
    let mut there: Vec<Group> = (0..starts()).map(|n| desk.launch(&[&format!("/nowhere/{n}")])).collect();
    let mut ended = || {
        there.retain_mut(|start| match start.0.try_wait().unwrap() {
            Some(status) => {
                assert!(status.success(), "a start ended with {status}");
                false
            }
            None => true,
        });
        there.len() == 1
    };
    assert!(until(Duration::from_secs(60), &mut ended), "more than one start is still there");
    println!("{} farewells after {:?}", starts() - 1, begun.elapsed());
    std::thread::sleep(Duration::from_secs(1));
    assert!(there[0].0.try_wait().unwrap().is_none(), "the window is gone too");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_display_a_sentence_says_so() {
    let lab = crate::journeys::lab::Lab::new();
    let mut command = Command::new(binary("anneal-desktop"));
    command.env("ANNEAL_HOME", lab.home()).env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY").stdin(Stdio::null());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no display") && !said.contains("panicked"), "{said}");
}
