//! The history is an index: deleted, damaged or behind, it gives the same answers.

use super::lab::{Lab, until};
use protocol::Event;
use protocol::event::Step;
use std::time::{Duration, Instant};

/// The answers that must not change.
fn answers(lab: &Lab, id: &str) -> (serde_json::Value, serde_json::Value, serde_json::Value) {
    (lab.json(&["jobs"]), lab.json(&["job", id]), lab.json(&["metrics", id]))
}

fn finished(lab: &Lab) -> String {
    let job = lab.job(60, "");
    let id = lab.json(&["submit", job.to_str().unwrap()])["job"].as_str().unwrap().to_owned();
    lab.wait_for(&id, &["finished"]);
    id
}

#[test]
fn a_deleted_history_gives_the_same_answers() {
    let lab = Lab::new();
    let id = finished(&lab);
    let before = answers(&lab, &id);
    for name in ["history.sqlite3", "history.sqlite3-wal", "history.sqlite3-shm"] {
        let _ = std::fs::remove_file(lab.home().join(name));
    }
    assert_eq!(answers(&lab, &id), before);
}

#[test]
fn a_history_damaged_in_the_middle_is_rebuilt_kept_aside_and_said() {
    let lab = Lab::new();
    let id = finished(&lab);
    let before = answers(&lab, &id);
    let file = lab.home().join("history.sqlite3");
    let mut bytes = std::fs::read(&file).unwrap();
    assert!(bytes.len() > 8192);
    let middle = bytes.len() / 2;
    for b in &mut bytes[middle - 3000..middle + 3000] {
        *b ^= 0xA5;
    }
    std::fs::write(&file, bytes).unwrap();
    let output = lab.run(&["jobs", "--json"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("history"), "nothing was said");
    assert_eq!(answers(&lab, &id), before);
    let aside = std::fs::read_dir(lab.home())
        .unwrap()
        .flatten()
        .filter(|e| e.file_name().to_string_lossy().contains("damaged"));
    assert!(aside.count() >= 1, "the damaged file was not kept");
}

#[test]
fn a_deleted_job_is_gone_from_the_list_and_safe_in_the_trash() {
    let lab = Lab::new();
    let id = finished(&lab);
    lab.json(&["delete", &id]);
    assert_eq!(lab.json(&["jobs"]).as_array().unwrap().len(), 0);
    assert!(lab.home().join("trash").join(&id).join("plan.json").exists());
}

#[test]
fn ten_thousand_metric_rows_a_second_are_all_there_within_a_second() {
    let lab = Lab::new();
    let id = finished(&lab);
    // A run that goes on writing: its journal grows at 10,000 rows a second while the command line reads.
    let seconds = if std::env::var_os("ANNEAL_SOAK").is_some() { 60 } else { 10 };
    let journal = lab.home().join("runs").join(&id).join("journal.jsonl");
    let mut writer = store::journal::Writer::open(&journal, &id).unwrap();
    let start = Instant::now();
    let first = 61;
    let total = seconds * 10_000;
    for batch in 0..seconds * 100 {
        for i in 0..100u64 {
            let step = first + batch * 100 + i;
            let event = Event::Step(Step {
                step,
                loss: 1.0 + 1.0 / step as f64,
                grad_norm: 1.0,
                learning_rate: 1e-3,
                targets: 10,
                tokens: step * 10,
                epoch: 0.0,
                step_ms: 0.1,
                tokens_per_second: 1e5,
            });
            writer.append(1, 0, event).unwrap();
        }
        writer.flush().unwrap();
        let due = Duration::from_millis((batch + 1) * 10);
        std::thread::sleep(due.saturating_sub(start.elapsed()));
        if batch % 100 == 99 {
            lab.run(&["jobs", "--json"]);
        }
    }
    let written = Instant::now();
    let newest = first + total - 1;
    let there = until(Duration::from_secs(30), || lab.json(&["job", &id])["steps"].as_u64() == Some(newest));
    println!("{total} rows in {:?}, readable {:?} after the last", start.elapsed(), written.elapsed());
    assert!(there, "the newest row never came");
    assert_eq!(lab.losses(&id).len() as u64, first - 1 + total);
}
