//! Text from files is text: whatever is stored in names, rows, logs, problems, settings and paths, no place of the window
//! makes code, elements or requests of it, and none shows characters that hide or turn what stands beside them.
//!
//! Not here: the texts (`payloads`), what the page's policy stops besides (`guard`).

use super::calls::{job, model_with_a_hard_name};
use super::desk::{Desk, PATIENCE, missing};
use super::payloads;
use crate::journeys::lab::Lab;
use protocol::event::Step;
use protocol::problem::{Code, Problem};
use protocol::record::Labels;
use protocol::{Event, JobSpec, Plan};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::home::Home;
use store::run::RunFolder;
use thirtyfour::prelude::*;

const PLAN: &str = include_str!("../../../engine/src/history/example_plan.json");

/// Looks for everything that a text must not have become, and for the numbers of the texts that are shown.
const LOOK: &str = r#"
const made = [];
if (window.ran !== undefined) made.push('code ran');
const strange = 'iframe,frame,object,embed,img,image,video,audio,source,math,base,form:not([data-testid=settings]),template,marquee,foreignObject,' +
  'animate,set,meta[http-equiv],b[onclick],noscript,details[ontoggle],a';
for (const found of document.querySelectorAll(strange)) made.push(found.outerHTML.slice(0, 200));
const count = (css) => document.querySelectorAll(css).length;
window.first ??= [count('script'), count('style'), count('link'), count('meta')];
const now = [count('script'), count('style'), count('link'), count('meta')];
if (String(now) !== String(window.first)) made.push('scripts, styles, links, metas: ' + now + ', not ' + window.first);
// What a long log has out of sight is no part of what the page draws, and is text all the same.
const log = document.querySelector('[data-testid=log-lines]');
const told = [document.title, document.body.innerText, log?.textContent ?? ''];
for (const element of document.querySelectorAll('*')) {
  for (const { name, value } of element.attributes) {
    if (/^on/i.test(name)) made.push(element.outerHTML.slice(0, 200));
    if (/^(href|src|srcdoc|action|formaction|data|xlink:href)$/i.test(name) && !/^(\/|\.\/|#)/.test(value) && !element.closest('head'))
      made.push(name + '=' + value);
    if (/^(title|aria-label|placeholder|value)$/.test(name)) told.push(value);
  }
}
const hidden = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/;
for (const text of told) {
  const at = text.search(hidden);
  if (at >= 0) made.push('shown as it is: ' + JSON.stringify(text.slice(Math.max(0, at - 40), at + 40)));
}
for (const entry of performance.getEntriesByType('resource'))
  if (!/^(tauri|ipc):\/\/localhost\//.test(entry.name)) made.push('asked for ' + entry.name);
const seen = told.join(' ').match(/n\d+z/g) ?? [];
return { made: made.slice(0, 5), seen: [...new Set(seen)] };
"#;

/// A desk full of hostile texts.
struct Show {
    desk: Desk,
    listener: TcpListener,
    texts: Vec<String>,
    seen: BTreeSet<String>,
}

impl Show {
    async fn new() -> Show {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let texts = payloads::all(&format!("http://{}/", listener.local_addr().unwrap()));
        let mut desk = Desk::beside(Lab::named("\"><img src=x onerror=window.ran=1> "));
        let home = Home::open(&desk.lab.home()).unwrap();
        texts.iter().enumerate().for_each(|(n, text)| seed(&home, n, text));
        seed_full(&home, &texts);
        std::fs::write(desk.lab.home().join("history.sqlite3"), "no history ".repeat(1000)).unwrap();
        desk.open(&[]).await;
        Show { desk, listener, texts, seen: BTreeSet::new() }
    }

    /// Asserts that what is shown now is text.
    async fn look(&mut self, place: &str) {
        let found = self.desk.script(LOOK).await;
        assert_eq!(found["made"], json!([]), "{place}");
        let seen = found["seen"].as_array().unwrap().iter().map(|number| number.as_str().unwrap().to_owned());
        self.seen.extend(seen);
        let asked = self.listener.accept().map(|(_, from)| from);
        assert!(asked.is_err(), "{place}: somebody asked for an address of a text: {asked:?}");
    }

    /// Asserts that every text was shown since the last time: a look at nothing finds nothing.
    fn all_shown(&mut self, place: &str) {
        let seen = std::mem::take(&mut self.seen);
        let never: Vec<usize> = (0..self.texts.len()).filter(|n| !seen.contains(&format!("n{n}z"))).collect();
        assert!(never.is_empty(), "{place} never showed {never:?}");
    }
}

/// A job of each text: what a run folder says of itself.
fn seed(home: &Home, n: usize, text: &str) {
    let id = format!("20261130-1{:02}{:02}{:02}-aaaa", n / 60 / 60, n / 60 % 60, n % 60);
    let labels =
        Labels { name: Some(text.to_owned()), note: text.to_owned(), tags: vec![text.to_owned()], ..Labels::default() };
    let run = create(home, &id, text, &labels);
    journal(
        &run,
        vec![Event::Started { step: 0, steps_total: 9 }, step(1), Event::Failed { step: 1, problem: problem(text) }],
    );
}

/// The newest job, which says all of them everywhere.
fn seed_full(home: &Home, texts: &[String]) {
    let run = create(home, "20261130-235959-zzzz", &texts[46], &Labels::default());
    std::fs::write(run.trainer_log(), texts.join("\n")).unwrap();
    let broken = run.checkpoints().join(store::checkpoint::folder_name(1));
    std::fs::create_dir_all(&broken).unwrap();
    std::fs::write(broken.join("manifest.json"), json!({ "version": texts[0], "files": texts }).to_string()).unwrap();
    let mut events = vec![Event::Started { step: 0, steps_total: 400 }];
    for (n, text) in texts.iter().enumerate() {
        events.push(step(n as u64 + 1));
        events.push(Event::Warning { step: n as u64 + 1, problem: problem(text) });
        events.push(Event::Checkpoint { step: n as u64 + 1, path: text.clone(), bytes: 1, seconds: 0.1 });
    }
    let long = texts.concat().chars().take(50_000).collect::<String>();
    events.push(Event::Failed { step: 200, problem: problem(&long[..long.floor_char_boundary(9_000)]) });
    journal(&run, events);
}

fn create(home: &Home, id: &str, text: &str, labels: &Labels) -> RunFolder {
    let name = payloads::file_name(text);
    let spec = json!({
        "name": payloads::job_name(text), "stage": "sft", "model": { "path": format!("/models/{name}") },
        "data": { "train": [format!("/data/{name}.jsonl")], "columns": { text: text }, "rows": { text: "skip" } },
        "machine": { "devices": [text] },
    });
    let spec: JobSpec = serde_json::from_value(spec).unwrap();
    RunFolder::create(home, id, &spec, &plan(text), labels).unwrap()
}

/// A plan with the text in every place that takes one.
fn plan(text: &str) -> Plan {
    let mut plan: Value = serde_json::from_str(PLAN).unwrap();
    for place in
        ["/model/source/path", "/model/fingerprint", "/model/config/architecture", "/data/fingerprint", "/compute/cpu"]
    {
        *plan.pointer_mut(place).unwrap() = json!(text);
    }
    plan["compute"]["libraries"] = json!({ text: text });
    plan["devices"] = json!([text]);
    plan["reasons"] = json!([{ "field": text, "value": text, "why": text }]);
    let parts = json!({ "weights": 1, "gradients": 1, "optimizer": 1, "activations": 1, "workspace": 1 });
    plan["memory"]["devices"] = json!([{ "name": text, "bytes_total": 10, "parts": parts, "bytes_peak": 5 }]);
    serde_json::from_value(plan).unwrap()
}

fn problem(text: &str) -> Problem {
    Problem::new(Code::TrainerDied, text)
        .why(text)
        .kept(text)
        .remedy(text)
        .file(Path::new(text))
        .tensor(text)
        .field(text)
}

fn step(step: u64) -> Event {
    Event::Step(Step {
        step,
        loss: 2.0,
        grad_norm: 1.0,
        learning_rate: 1e-3,
        targets: 10,
        tokens: step * 10,
        epoch: 0.1,
        step_ms: 5.0,
        tokens_per_second: 2000.0,
    })
}

/// Everything at one moment: keys of a page that are made of it are the same then.
fn journal(run: &RunFolder, events: Vec<Event>) {
    let mut writer = store::journal::Writer::open(&run.journal(), run.id()).unwrap();
    events.into_iter().for_each(|event| drop(writer.append(1, 1_796_000_000_000, event).unwrap()));
    writer.flush().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn text_from_files_is_text_in_every_place() {
    if missing() {
        return;
    }
    let mut show = Show::new().await;
    show.desk.find("new-empty").await;
    show.look("a fresh window").await;
    history(&mut show).await;
    record(&mut show).await;
    run(&mut show).await;
    compare_and_delete(&mut show).await;
    search(&mut show).await;
    for place in ["try", "machine"] {
        show.desk.click(&format!("nav-{place}")).await;
        show.desk.find(&format!("place-{place}")).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        show.look(place).await;
    }
    refused(&mut show).await;
    a_job_of_them(&mut show).await;
}

/// The list from its first row to its last.
async fn history(show: &mut Show) {
    show.desk.click("nav-history").await;
    show.desk.find("history-notice").await;
    show.desk.until_text("history-count", |text| text.contains("201")).await;
    for _ in 0..14 {
        rows_came(show).await;
        show.look("the list of jobs").await;
        show.desk
            .script("document.querySelector('[data-testid=history-table] [role=rowgroup]').scrollTop += 540")
            .await;
    }
    show.all_shown("the list of jobs");
    show.desk.script("document.querySelector('[data-testid=history-table] [role=rowgroup]').scrollTop = 0").await;
}

/// Waits until each row in sight is there: they are fetched as they come into sight.
async fn rows_came(show: &Show) {
    let begun = std::time::Instant::now();
    let waiting = "await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));\
                   return document.querySelectorAll('[data-testid=history-table] .waiting').length";
    loop {
        tokio::time::sleep(Duration::from_millis(60)).await;
        if show.desk.script(waiting).await == json!(0) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "rows of the list never came");
    }
}

async fn record(show: &mut Show) {
    show.desk.find("[data-id=\"20261130-235959-zzzz\"]").await;
    // A name of this kind has a strange shape: the row is clicked, not a point of it.
    show.desk.script("document.querySelector('[data-id=\"20261130-235959-zzzz\"] .name').click()").await;
    show.desk.find("record-problem").await;
    show.look("the record").await;
    let tabs = show.desk.page().find_all(By::Css("[data-testid^=record-tab-]")).await.unwrap();
    assert!(tabs.len() >= 3);
    for tab in tabs {
        tab.click().await.unwrap();
        tokio::time::sleep(Duration::from_millis(150)).await;
        show.look("a tab of the record").await;
    }
    // Its one checkpoint is damaged: nothing is offered that needs a sound one.
    for word in ["fork", "export"] {
        let disabled = show.desk.find(word).await.attr("disabled").await.unwrap();
        assert!(disabled.is_some(), "{word} is offered of a damaged checkpoint");
    }
}

async fn run(show: &mut Show) {
    show.seen.clear();
    show.desk.click("open-run").await;
    show.desk.until_text("log-lines", |text| text.contains("n199z")).await;
    show.desk.find("run-problem").await;
    show.look("the run").await;
    show.all_shown("the log");
    let marks = show.desk.page().find_all(By::Css("[data-testid=mark]")).await.unwrap();
    assert!(!marks.is_empty());
    for mark in marks.iter().take(3) {
        mark.click().await.unwrap();
        show.desk.find("mark-card").await;
        show.look("a mark").await;
    }
}

async fn compare_and_delete(show: &mut Show) {
    show.desk.click("nav-history").await;
    show.desk.click("record-close").await;
    show.desk.find("history-row").await;
    for select in show.desk.page().find_all(By::Css("[data-testid=history-select]")).await.unwrap().iter().take(2) {
        select.click().await.unwrap();
    }
    show.desk.click("compare").await;
    show.desk.find("difference").await;
    show.look("the comparison").await;
    show.desk.click("clear-selection").await;
    show.desk.page().find(By::Css("[data-testid=history-select]")).await.unwrap().click().await.unwrap();
    show.desk.click("delete").await;
    show.desk.find("toast").await;
    show.look("what was deleted").await;
}

/// What is searched for and not found is said.
async fn search(show: &mut Show) {
    let every = if std::env::var_os("ANNEAL_SOAK").is_some() { 1 } else { 20 };
    let texts: Vec<String> = show.texts.iter().step_by(every).map(|text| format!("\"{text}\" nowhere")).collect();
    for text in texts {
        let typed = format!(
            "const box = document.querySelector('input[data-testid=search], [data-testid=history-search]');\
             const field = box.matches('input') ? box : box.querySelector('input');\
             field.value = {}; field.dispatchEvent(new Event('input', {{ bubbles: true }}));",
            json!(text)
        );
        show.desk.script(&typed).await;
        tokio::time::sleep(Duration::from_millis(60)).await;
        show.look("a search").await;
    }
}

/// Folders that look like models, named and filled with the texts.
async fn refused(show: &mut Show) {
    show.seen.clear();
    let broken = |text: &String| -> PathBuf {
        let folder = show.desk.lab.path(&payloads::file_name(text));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("config.json"), json!({ "architectures": [text], "model_type": text }).to_string())
            .unwrap();
        folder
    };
    let folders: Vec<PathBuf> = show.texts.iter().map(broken).collect();
    let shown: Vec<&Path> = folders.iter().map(PathBuf::as_path).collect();
    show.desk.drop_paths(&shown).await;
    let begun = std::time::Instant::now();
    while show.desk.page().find_all(By::Css("[data-testid=refused-item]")).await.unwrap().len() < shown.len() {
        assert!(begun.elapsed() < PATIENCE, "not all are refused");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    show.look("what was refused").await;
    show.all_shown("what was refused");
}

/// A model and data that are named with texts and full of them, trained under a name that is one.
async fn a_job_of_them(show: &mut Show) {
    let model = show.desk.lab.path("\"><svg onload=window.ran=1>");
    std::fs::rename(model_with_a_hard_name(&show.desk), &model).unwrap();
    let data = show.desk.lab.path("'><img src=x onerror=window.ran=1>.jsonl");
    std::fs::write(&data, rows(&show.texts)).unwrap();
    show.desk.drop_paths(&[&model, &data]).await;
    show.desk.find("data-card").await;
    show.desk.until_text("tokens", |text| text.contains("window.ran")).await;
    show.look("what it will learn from").await;
    for _ in 0..if std::env::var_os("ANNEAL_SOAK").is_some() { show.texts.len() } else { 4 } {
        show.desk.click("row-next").await;
        tokio::time::sleep(Duration::from_millis(250)).await;
        show.look("a row").await;
    }
    // Rows of roles that are texts of somebody's ask for a decision.
    let decide = "const choice = document.querySelector('[data-testid=row-action-unknown_role]');
        choice.value = 'skip'; choice.dispatchEvent(new Event('change', { bubbles: true }));";
    show.desk.find("row-action-unknown_role").await;
    show.desk.script(decide).await;
    show.desk.find("plan-duration").await;
    show.look("the plan").await;
    // Started as the button does, but long enough to be looked at.
    let mut spec = job(&model, &data, 1_000_000);
    spec["name"] = json!(payloads::job_name(&show.texts[46]));
    spec["data"]["rows"] = json!({ "unknown_role": "skip" });
    let (done, answer) = show.desk.call("submit", json!({ "spec": spec })).await;
    assert!(done, "{answer}");
    show.desk.click("rail-job").await;
    show.desk.find("run-loss").await;
    show.look("a job that runs").await;
}

/// One conversation a text, and a row of every kind that cannot be used.
fn rows(texts: &[String]) -> String {
    let turn = |role: &str, text: &str| json!({ "role": role, "content": text });
    let row = |text: &String| json!({ "messages": [turn("user", text), turn("assistant", text)] });
    let broken = |text: &String| json!({ "messages": [turn(text, text)] });
    let empty = |text: &String| json!({ "messages": [turn("user", text), turn("assistant", "")] });
    let all = texts.iter().map(row).chain(texts.iter().map(broken)).chain(texts.iter().map(empty));
    all.map(|row| row.to_string() + "\n").collect()
}
