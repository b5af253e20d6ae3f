//! How fast the window is, measured in the real webview: ten thousand jobs, a run of a million steps, a job at work. A
//! measurement and no test: it asserts that everything came, never how long that took. `make bench-window` prints its table.
//!
//! Not here: the engine's own figures (`anneal bench history`), the scripts that run in the page (`probe.js`).

mod growing;
mod probe;
mod table;

use super::calls::{job, model_with_a_hard_name};
use super::desk::{Desk, missing};
use engine::history::{History, seed};
use growing::Growing;
use probe::Probe;
use serde_json::json;
use std::time::Duration;
use store::home::Home;
use table::Table;

/// Steps of the long run.
const STEPS: u64 = 1_000_000;
/// Its id.
const LONG: &str = "long";
/// Longest time from a click to the first frame with the place's content.
const OPEN_MS: f64 = 200.0;
/// Longest gap between two frames, for 99 of 100.
const GAP_MS: f64 = 50.0;
/// Seconds over which frames are counted.
const SECONDS: u64 = 20;

#[tokio::test(flavor = "multi_thread")]
async fn the_window_beside_its_limits() {
    // Minutes, and worth something on a quiet machine only.
    if std::env::var_os("ANNEAL_BENCH_WINDOW").is_none() || missing() {
        return;
    }
    let mut desk = Desk::new();
    let home = Home::open(&desk.lab.home()).unwrap();
    fill(&home);
    desk.open(&[]).await;
    desk.find("nav-history").await;
    let mut table = Table::default();
    let probe = Probe::new(&desk).await;
    table.gaps("frames of an idle page: the machine's own", GAP_MS, &probe.frames(SECONDS, "").await);
    places(&probe, &mut table).await;
    list(&probe, &mut table).await;
    long_run(&probe, &mut table).await;
    live(&probe, &home, &mut table).await;
    println!("\n{table}");
}

/// Run folders, and the index over them as an earlier day left it.
fn fill(home: &Home) {
    println!("making {} jobs and a run of {STEPS} steps", seed::JOBS);
    seed::jobs(home, seed::JOBS).unwrap();
    seed::long_run(home, LONG, STEPS).unwrap();
    drop(History::open(home).unwrap());
    // Folders that changed a moment ago are looked at again and again; those of an earlier day are not.
    std::thread::sleep(Duration::from_secs(11));
}

/// Each place, by its rail and by its key.
async fn places(probe: &Probe<'_>, table: &mut Table) {
    let places = [
        ("new", "1", "seen('[data-testid=new-empty]')"),
        ("history", "3", "all('[data-testid=history-row]').length > 10 && seen('[data-testid=history-count]')"),
        ("try", "4", "seen('[data-testid=try-prompt]') && all('[data-testid=try-job] option').length > 10"),
        ("machine", "5", "seen('[data-testid=host-card]')"),
    ];
    for (place, key, ready) in places {
        let act = [format!("click('[data-testid=nav-{place}]')"), format!("press('{key}')")];
        // Left for one whose opening costs little.
        let leave =
            if place == "new" { "click('[data-testid=nav-machine]')" } else { "click('[data-testid=nav-new]')" };
        let times = probe.opened(&act, &format!("seen('[data-testid=place-{place}]') && {ready}"), leave).await;
        table.times(&format!("{place} opens"), OPEN_MS, &times);
    }
}

/// The history of ten thousand jobs: scrolled, jumped through, searched, sorted.
async fn list(probe: &Probe<'_>, table: &mut Table) {
    probe.until("click('[data-testid=nav-history]')", "all('[data-testid=history-row]').length > 10").await;
    let rows = "one('[data-testid=history-table] .rows')";
    let scroll = format!("{rows}.scrollTop += 90;");
    table.gaps("history scrolls, 150 rows a second: frames", GAP_MS, &probe.frames(SECONDS, &scroll).await);
    let there = "all('[data-testid=history-row]').length > 10 && !seen('[data-testid=history-table] .waiting')";
    let jumps: Vec<String> = (1..=8).map(|n| format!("{rows}.scrollTop = {}", n * 36 * 1100)).collect();
    table.times("history jumps to rows far away", OPEN_MS, &probe.each(&jumps, there).await);
    let with = |digits: &str| (0..seed::JOBS).filter(|n| n.to_string().contains(digits)).count() as u64;
    // The two more are the long run and the one that all others are copies of.
    let words = [
        ("number 77", with("77")),
        ("lr>0 number 5", with("5")),
        ("number 4321", with("4321")),
        ("lr>0", seed::JOBS + 2),
        ("number 4", with("4")),
        ("", seed::JOBS + 2),
    ];
    let mut times = Vec::new();
    for (word, found) in words {
        let ready = format!("digits(one('[data-testid=history-count]')) === {found}");
        let act = format!("type('[data-testid=history-search]', {})", json!(word));
        times.push(probe.until(&act, &ready).await);
    }
    table.times("a search is answered, from the last letter", OPEN_MS, &times);
    let sorts = ["name", "final_loss", "tokens", "created"];
    let mut times = Vec::new();
    for by in sorts {
        let first = "one('[data-testid=history-row]')?.dataset.id";
        let act = format!("window.before = {first}; click('[data-testid=sort-{by}]')");
        let ready = format!("one('[data-testid=sort-{by}]').closest('[aria-sort]').ariaSort !== 'none' && {there}");
        times.push(probe.until(&act, &ready).await);
    }
    table.times("the list is sorted another way", OPEN_MS, &times);
    probe.until(&format!("{rows}.scrollTop = 0"), there).await;
}

/// The record of a million steps: opened, zoomed, read with the cursor.
async fn long_run(probe: &Probe<'_>, table: &mut Table) {
    let find = format!("type('[data-testid=history-search]', {})", json!(LONG));
    let row = format!("[data-id={LONG}]");
    probe.until(&find, &format!("seen('{row}')")).await;
    let drawn = "Number(one('[data-testid=charts]')?.dataset.points) > 100";
    let record = format!("seen('[data-testid=record-summary]') && {drawn}");
    let click = [format!("click('{row}')")];
    let back = "click('[data-testid=record-close]')";
    probe.until(&click[0], &record).await;
    table.times("the record of 1 M steps opens", OPEN_MS, &probe.opened(&click, &record, back).await);
    let run = format!("seen('[data-testid=run-state]') && {drawn}");
    let open = ["click('[data-testid=open-run]')".to_owned()];
    // History may show the record that was left, or the list.
    let (list, summary) = ("seen('[data-testid=history-search]')", "seen('[data-testid=record-summary]')");
    let back = format!(
        "click('[data-testid=nav-history]'); await until(() => {list} || {summary});\
         if ({list}) {{ {find}; await until(() => seen('{row}')); click('{row}'); }}"
    );
    table.times("Run of 1 M steps opens", OPEN_MS, &probe.opened(&open, &run, &back).await);
    zoom(probe, table).await;
}

async fn zoom(probe: &Probe<'_>, table: &mut Table) {
    let (cursor, summary) = ("one('[data-testid=chart-cursor]')", "one('[data-testid=chart-summary]').textContent");
    let zoom = format!("window.before = {cursor}.ariaValueMin; key({cursor}, '+')");
    // At the newest step: half of the axis lies behind it, so what is shown begins elsewhere each time. The old curve is cut
    // at once and has half as many points; the finer one has as many as before.
    let newest = format!("key({cursor}, 'End')");
    let points = "Number(one('[data-testid=charts]').dataset.points)";
    let finer = format!("{cursor}.ariaValueMin !== window.before && {points} > 400");
    let mut times = Vec::new();
    for _ in 0..4 {
        probe.until(&newest, "true").await;
        times.push(probe.until(&zoom, &finer).await);
    }
    table.times("a zoom shows its finer curve", OPEN_MS, &times);
    let out = format!("window.before = {summary}; key({cursor}, '0')");
    table.times(
        "and back to the whole run",
        OPEN_MS,
        &[probe.until(&out, &format!("{summary} !== window.before")).await],
    );
    let wheel = format!("zoomed(n, {cursor})");
    table.gaps("zooming in and out, 2 a second: frames", GAP_MS, &probe.frames(SECONDS, &wheel).await);
    table.gaps("the cursor moves over 1 M steps: frames", GAP_MS, &probe.frames(SECONDS, "cursor(n)").await);
}

/// A job at work, and a run of a million steps that grows.
async fn live(probe: &Probe<'_>, home: &Home, table: &mut Table) {
    let id = submit(probe.desk).await;
    let rail = format!("[data-testid=rail-job][data-job=\"{id}\"]");
    let steps = "one('[data-testid=run-step]')?.textContent";
    probe.until("true", &format!("seen('{rail}')")).await;
    probe
        .until(&format!("click('{rail}')"), &format!("digits({steps} ? one('[data-testid=run-step]') : null) > 20"))
        .await;
    // The minute after a start is another thing: folders have just changed.
    tokio::time::sleep(Duration::from_secs(12)).await;
    let leave = "click('[data-testid=nav-new]')";
    let ready = "seen('[data-testid=run-state]') && Number(one('[data-testid=charts]')?.dataset.points) > 100";
    let act = [format!("click('{rail}')"), "press('2')".to_owned()];
    table.times("Run opens, its job at work", OPEN_MS, &probe.opened(&act, ready, leave).await);
    probe.until(&act[0], ready).await;
    counted(probe, table, "Run with a job at work", steps).await;
    // History shows the record that was looked at last.
    let list = "click('[data-testid=nav-history]'); await frame(); await frame();\
                if (seen('[data-testid=record-close]')) click('[data-testid=record-close]')";
    probe.until(list, "all('[data-testid=history-row]').length > 10").await;
    let sparks = "one('[data-testid=rail-job]')?.innerHTML";
    counted(probe, table, "history, a job at work", sparks).await;
    let ready = "all('[data-testid=history-row]').length > 10";
    let act = ["click('[data-testid=nav-history]')".to_owned()];
    table.times("history opens, a job at work", OPEN_MS, &probe.opened(&act, ready, leave).await);
    probe.desk.call("request", json!({ "id": id, "word": "stop" })).await;
    let growing = Growing::start(home, LONG, STEPS);
    let rail = format!("[data-testid=rail-job][data-job={LONG}]");
    probe.until("true", &format!("seen('{rail}')")).await;
    probe.until(&format!("click('{rail}')"), "Number(one('[data-testid=charts]')?.dataset.points) > 100").await;
    tokio::time::sleep(Duration::from_secs(12)).await;
    counted(probe, table, "Run of 1 M steps, growing by 20 a second", steps).await;
    drop(growing);
}

/// Frames, and how often something that is shown changed meanwhile.
async fn counted(probe: &Probe<'_>, table: &mut Table, what: &str, shown: &str) {
    let each = format!("const now = {shown}; if (now !== window.shown) {{ window.shown = now; window.changes++; }}");
    probe.desk.script("window.changes = 0; window.shown = null;").await;
    let gaps = probe.frames(SECONDS, &each).await;
    let changes = probe.desk.script("return window.changes").await.as_f64().unwrap_or_default();
    table.gaps(&format!("{what}: frames ({:.0} changes a second)", changes / SECONDS as f64), GAP_MS, &gaps);
}

/// A job of short steps over the toy model.
async fn submit(desk: &Desk) -> String {
    let (model, data) = (model_with_a_hard_name(desk), desk.lab.chat(300));
    desk.call("inspect", json!({ "paths": [model, data] })).await;
    let mut spec = job(&model, &data, 1_000_000);
    (spec["run"]["evaluate_every"], spec["snapshot"]["persist_every"]) = (json!(500), json!(5000));
    let (done, id) = desk.call("submit", json!({ "spec": spec })).await;
    assert!(done, "{id}");
    id.as_str().unwrap().to_owned()
}
