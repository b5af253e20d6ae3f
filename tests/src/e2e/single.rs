//! One window a HOME, however often and however simultaneously the program is started.

use super::desk::{Desk, Group, missing};
use crate::journeys::lab::{binary, until};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn five_starts_at_once_give_one_window_and_four_farewells() {
    if missing() {
        return;
    }
    five_starts(&Desk::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn five_starts_at_once_on_a_desktop_bus_do_the_same() {
    if missing() {
        return;
    }
    let mut desk = Desk::new();
    let Some((_bus, address)) = bus(&desk) else {
        println!("skipped: dbus-daemon is not installed");
        return;
    };
    desk.set("DBUS_SESSION_BUS_ADDRESS", &address);
    five_starts(&desk);
}

fn five_starts(desk: &Desk) {
    let start = |n: usize| {
        let mut command = desk.environment(Command::new(binary("anneal-desktop")));
        command.arg(format!("/nowhere/{n}")).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        Group(command.spawn().unwrap())
    };
    let begun = Instant::now();
    let mut starts: Vec<Group> = (0..5).map(start).collect();
    let mut farewells = 0;
    let mut ended = |starts: &mut Vec<Group>| {
        starts.retain_mut(|start| match start.0.try_wait().unwrap() {
            Some(status) => {
                assert!(status.success(), "a start ended with {status}");
                farewells += 1;
                false
            }
            None => true,
        });
        farewells == 4
    };
    assert!(until(Duration::from_secs(60), || ended(&mut starts)), "{} starts are still there", starts.len());
    println!("four farewells after {:?}", begun.elapsed());
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(starts.len(), 1);
    assert!(starts[0].0.try_wait().unwrap().is_none(), "the window is gone too");
}

/// A desktop bus of its own.
fn bus(desk: &Desk) -> Option<(Group, String)> {
    let mut command = desk.environment(Command::new("dbus-daemon"));
    command.args(["--session", "--nofork", "--print-address"]).stdout(Stdio::piped()).process_group(0);
    let mut daemon = command.spawn().ok()?;
    let mut address = String::new();
    BufReader::new(daemon.stdout.take()?).read_line(&mut address).ok()?;
    Some((Group(daemon), address.trim().to_owned()))
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
