//! Whatever the page asks, it is answered: with a value or a `Problem`, without a panic, in time, and with nothing read
//! that was not given and nothing touched outside HOME.
//!
//! The questions go the way they go in the window, below the webview: capabilities, deserialisation, command, engine,
//! `anneal-trainer`. They are asked in a process of its own that has no display, no desktop and no user. Only `anneal` is
//! another: no job is started here. Not here: the values themselves (`hostile`).

use crate::config_tests::commands;
use crate::hostile::{self, Dice};
use crate::{Shell, answering, context, window};
use protocol::problem::{Code, Problem};
use protocol::record::Labels;
use protocol::{Event, JobSpec, Plan};
use rustix::fs::inotify;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use store::home::Home;
use tauri::ipc::{CallbackFn, InvokeBody, InvokeResponse};
use tauri::test::MockRuntime;
use tauri::webview::InvokeRequest;
use tauri::{Manager, Webview};

/// Names the folder of a process that asks.
const ROOM: &str = "ANNEAL_TEST_ROOM";
/// Longest wait for an answer: a trainer may be asked, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// After this long the page wants no more of a call, and it must end then.
const SEEN_ENOUGH: Duration = Duration::from_secs(3);
/// Questions that are right to the last word, of each command.
const RIGHT: usize = 12;
/// Most of these commands' questions are no more than shapes: a right one starts a process or reads files.
const SLOW: [&str; 8] = ["find_row", "generate", "inspect", "inspect_data", "plan", "preview", "rows", "submit"];
/// Without a desktop, a checkpoint or another `anneal`, these have a problem to tell.
const NEVER_DONE: [&str; 6] = ["browse", "export_files", "fork", "request", "reveal", "submit"];
/// Jobs that have ended.
const JOBS: usize = 5;
const PLAN: &str = include_str!("../../engine/src/history/example_plan.json");
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/models/llama");

fn questions() -> usize {
    if std::env::var_os("ANNEAL_SOAK").is_some() { 100_000 } else { 2000 }
}

#[test]
fn whatever_the_page_asks_is_answered_and_nothing_that_was_not_given_is_touched() {
    let room = Room::new();
    let watch = watch(&room.path("secret"));
    let before = outside(&room);
    let begun = Instant::now();
    let status = room.asker().status().unwrap();
    println!("{}", std::fs::read_to_string(room.path("said")).unwrap_or_default());
    println!("{} questions a command in {:?}", questions(), begun.elapsed());
    assert!(status.success(), "{status}");
    assert_eq!(opened(&watch), BTreeSet::new(), "read without having been given");
    let after = outside(&room);
    let touched: Vec<_> = after.iter().filter(|(path, is)| before.get(*path) != Some(is)).collect();
    assert!(touched.is_empty() && after.len() == before.len(), "touched outside HOME: {touched:?}");
}

// ---- the room ----

/// What lies around the process that asks.
struct Room {
    folder: tempfile::TempDir,
    /// Beside the build's own programs: a link of a file stays on its disk.
    programs: tempfile::TempDir,
}

impl Room {
    fn new() -> Room {
        let own = std::env::current_exe().unwrap();
        let built = own.ancestors().nth(2).unwrap();
        let programs = tempfile::tempdir_in(built).unwrap();
        let trainer = built.join("anneal-trainer");
        assert!(trainer.is_file(), "{} is missing: `cargo build --workspace --bins` first", trainer.display());
        std::fs::hard_link(trainer, programs.path().join("anneal-trainer")).unwrap();
        std::fs::hard_link(own, programs.path().join("asker")).unwrap();
        let refuses = "#!/bin/sh\necho '{\"problem\":{\"code\":\"busy\",\"what\":\"no job is started here\"}}'\n";
        std::fs::write(programs.path().join("anneal"), refuses).unwrap();
        let may_run = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(programs.path().join("anneal"), may_run).unwrap();
        let room = Room { folder: tempfile::tempdir().unwrap(), programs };
        for name in ["user", "here", "tmp", "empty", "given", "secret", "page"] {
            std::fs::create_dir(room.path(name)).unwrap();
        }
        for name in ["given", "secret"] {
            copy(Path::new(MODEL), &room.path(name).join("model"));
            std::fs::write(room.path(name).join("data.jsonl"), rows()).unwrap();
        }
        let home = Home::open(&room.path("home")).unwrap();
        (0..JOBS).for_each(|n| seed(&home, n));
        room
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// This test program again, in the room and with nothing of this machine's user.
    fn asker(&self) -> Command {
        let mut command = Command::new(self.programs.path().join("asker"));
        let said = std::fs::File::create(self.path("said")).unwrap();
        command
            .args(["--exact", "question_tests::asked_in_a_room_of_its_own", "--nocapture"])
            .current_dir(self.path("here"))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.path("user"))
            .env("TMPDIR", self.path("tmp"))
            .env("XDG_DATA_DIRS", self.path("empty"))
            // The webview's own.
            .env("XDG_DATA_HOME", self.path("page"))
            .env("XDG_CONFIG_DIRS", self.path("empty"))
            .env(ROOM, self.folder.path())
            .stdout(said.try_clone().unwrap())
            .stderr(said);
        command.envs(std::env::var_os("ANNEAL_SOAK").map(|soak| ("ANNEAL_SOAK", soak)));
        command
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for file in std::fs::read_dir(from).unwrap().flatten() {
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

fn rows() -> String {
    let row = |n: usize| {
        let messages =
            json!([{"role": "user", "content": format!("{n} + 1?")}, {"role": "assistant", "content": "a sum"}]);
        json!({ "messages": messages }).to_string() + "\n"
    };
    (0..30).map(row).collect()
}

fn id(n: usize) -> String {
    format!("20261130-15031{n}-k3f{n}")
}

/// A run that has ended.
fn seed(home: &Home, n: usize) {
    let text = "stage = \"sft\"\n[model]\npath = \"/m\"\n[data]\ntrain = [\"/d.jsonl\"]\n";
    let spec = JobSpec::parse(text, &[], Path::new("/")).unwrap();
    let plan: Plan = serde_json::from_str(PLAN).unwrap();
    let run = store::run::RunFolder::create(home, &id(n), &spec, &plan, &Labels::default()).unwrap();
    let mut journal = store::journal::Writer::open(&run.journal(), run.id()).unwrap();
    let step = json!({
        "event": "step", "step": 1, "loss": 2.0, "grad_norm": 1.0, "learning_rate": 1e-4, "targets": 10, "tokens": 10,
        "epoch": 0.1, "step_ms": 5.0, "tokens_per_second": 2000.0,
    });
    let all =
        [Event::Started { step: 0, steps_total: 9 }, serde_json::from_value(step).unwrap(), Event::Stopped { step: 1 }];
    all.into_iter().for_each(|event| drop(journal.append(1, 1_000, event).unwrap()));
    journal.flush().unwrap();
    std::fs::write(run.trainer_log(), "step 1\nerror: none\n").unwrap();
}

/// Sees every opening of what lies in a folder from now on.
fn watch(folder: &Path) -> rustix::fd::OwnedFd {
    let eye = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
    for place in [folder.to_owned(), folder.join("model")] {
        inotify::add_watch(&eye, &place, inotify::WatchFlags::ALL_EVENTS).unwrap();
    }
    eye
}

fn opened(eye: &rustix::fd::OwnedFd) -> BTreeSet<String> {
    let mut space = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(eye, &mut space);
    let mut all = BTreeSet::new();
    while let Ok(event) = events.next() {
        all.insert(
            event.file_name().map_or_else(|| "the folder".to_owned(), |name| name.to_string_lossy().into_owned()),
        );
    }
    all
}

/// Everything in the room that is not HOME: path to bytes, time of change and content.
fn outside(room: &Room) -> BTreeMap<PathBuf, (u64, i64, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut open: Vec<PathBuf> = ["user", "here", "tmp", "empty", "given"].iter().map(|name| room.path(name)).collect();
    while let Some(path) = open.pop() {
        let meta = path.symlink_metadata().unwrap();
        let bytes = if meta.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        if meta.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().flatten().map(|entry| entry.path()));
        }
        all.insert(path, (meta.len(), meta.mtime_nsec(), bytes));
    }
    all
}

// ---- the process that asks ----

/// The other half of the test above; by itself it has nothing to do.
#[test]
fn asked_in_a_room_of_its_own() {
    let Some(room) = std::env::var_os(ROOM).map(PathBuf::from) else { return };
    let panics = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&panics);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        counted.fetch_add(1, Ordering::SeqCst);
        usual(info);
    }));
    let shell = Shell::new(room.join("home"), Arc::default());
    shell.grants.allow(&room.join("given"));
    let app = answering(tauri::test::mock_builder(), shell).build(context()).unwrap();
    window::open(app.handle()).unwrap();
    let webview = app.get_webview_window("main").unwrap().as_ref().clone();
    let left = Mutex::new(commands().into_iter().collect::<Vec<_>>());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(command) = next(&left) {
                    Asker::new(&webview, &room, &command).ask_all();
                }
            });
        }
    });
    assert_eq!(panics.load(Ordering::SeqCst), 0, "panics");
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(open < 200, "{open} files are still open");
}

fn next(left: &Mutex<Vec<String>>) -> Option<String> {
    left.lock().unwrap().pop()
}

struct Asker<'a> {
    webview: &'a Webview<MockRuntime>,
    command: &'a str,
    dice: Dice,
    right: Value,
    names: Vec<String>,
    texts: Vec<String>,
}

impl<'a> Asker<'a> {
    fn new(webview: &'a Webview<MockRuntime>, room: &Path, command: &'a str) -> Asker<'a> {
        let right = right(command, room);
        let path = |name: &str| room.join(name).display().to_string();
        // Whoever types a path has given it: a page that looks at a secret by `inspect` may open it then.
        let secrets = ["secret", "secret/model", "secret/data.jsonl", "given/../secret/data.jsonl"];
        let mut paths =
            vec![path("given"), path("given/model"), path("given/data.jsonl"), path("home"), path("nowhere")];
        paths.extend(secrets.iter().filter(|_| command != "inspect").map(|name| path(name)));
        paths.extend((0..JOBS).map(id));
        let mut names = vec!["more".to_owned(), "__proto__".into(), String::new()];
        collect_names(&right, &mut names);
        let seed = command.bytes().fold(7u64, |sum, byte| sum.wrapping_mul(131) + u64::from(byte));
        let mut texts = hostile::texts(&paths);
        // A data set is all of a folder: whoever types one above the secret has given that too.
        let above = |text: &String| Path::new(text).canonicalize().is_ok_and(|real| room.starts_with(real));
        texts.retain(|text| command != "inspect" || !above(text));
        Asker { webview, command, dice: Dice(seed), right, names, texts }
    }

    fn ask_all(&mut self) {
        let begun = Instant::now();
        let (mut done, mut slowest) = (0, Duration::ZERO);
        for n in 0..questions() {
            let body = self.question(n);
            let asked = Instant::now();
            done += usize::from(self.ask(body));
            slowest = slowest.max(asked.elapsed());
            self.put_back(n);
        }
        assert!(done > 0 || NEVER_DONE.contains(&self.command), "{} does nothing that it is asked for", self.command);
        println!("{}: {done} done, slowest {slowest:?}, all {:?}", self.command, begun.elapsed());
    }

    /// Every command finds the jobs that the others find.
    fn put_back(&self, n: usize) {
        let shell = self.webview.state::<Arc<Shell>>();
        let delete = |id: &str| shell.engine(|engine| engine.delete(id).map(drop));
        match self.command {
            "remove" => (0..JOBS).for_each(|n| drop(shell.engine(|engine| engine.restore(&id(n))))),
            // A place that is not on the list cannot be taken off it.
            "remove_place" => {
                drop(shell.engine(|engine| engine.add_place(Path::new(self.right["path"].as_str().unwrap()))))
            }
            "restore" if n.is_multiple_of(8) => drop(delete(&id(0))),
            _ => {}
        }
    }

    fn question(&mut self, n: usize) -> InvokeBody {
        let mut question = self.right.clone();
        let shape = if SLOW.contains(&self.command) { !n.is_multiple_of(8) } else { n.is_multiple_of(3) };
        match n {
            _ if n < RIGHT => {}
            _ if n.is_multiple_of(97) => return InvokeBody::Raw(vec![b'{'; self.dice.below(3000)]),
            _ if shape => question = hostile::value(&mut self.dice, &self.texts, &self.names, 0),
            _ => {
                for _ in 0..=self.dice.below(3) {
                    hostile::spoil(&mut self.dice, &mut question, &self.texts, &self.names);
                }
            }
        }
        InvokeBody::Json(question)
    }

    /// Asks and waits. True where it was done.
    fn ask(&self, body: InvokeBody) -> bool {
        let told = match &body {
            InvokeBody::Json(value) => value.to_string().chars().take(2000).collect(),
            InvokeBody::Raw(bytes) => format!("{} bytes", bytes.len()),
        };
        let (answered, answer) = channel();
        let respond = move |_, _, response, _, _| drop(answered.send(response));
        self.webview.clone().on_message(request(self.command, body), Box::new(respond));
        let response = answer.recv_timeout(SEEN_ENOUGH).or_else(|_| {
            let shell = self.webview.state::<Arc<Shell>>();
            shell.calls.cancel_all();
            answer.recv_timeout(PATIENCE)
        });
        match response.unwrap_or_else(|_| panic!("{} never answered {told}", self.command)) {
            InvokeResponse::Ok(_) => true,
            InvokeResponse::Err(error) => {
                let problem: Problem = serde_json::from_value(error.0.clone())
                    .unwrap_or_else(|_| panic!("{} answered {told} with {}", self.command, error.0));
                assert!(
                    !problem.what.is_empty() && problem.code != Code::Internal,
                    "{}: {told}: {problem:?}",
                    self.command
                );
                false
            }
        }
    }
}

fn request(command: &str, body: InvokeBody) -> InvokeRequest {
    InvokeRequest {
        cmd: command.to_owned(),
        callback: CallbackFn(0),
        error: CallbackFn(1),
        url: "tauri://localhost".parse().unwrap(),
        body,
        headers: Default::default(),
        invoke_key: tauri::test::INVOKE_KEY.to_owned(),
    }
}

/// Names of all fields of a question.
fn collect_names(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Array(all) => all.iter().for_each(|inside| collect_names(inside, names)),
        Value::Object(all) => all.iter().for_each(|(name, inside)| {
            names.push(name.clone());
            collect_names(inside, names);
        }),
        _ => {}
    }
}

/// A question that is right; a command that is not here fails the test.
fn right(command: &str, room: &Path) -> Value {
    let (model, data) = (room.join("given/model"), room.join("given/data.jsonl"));
    let spec = json!({
        "version": 1, "name": "n", "stage": "sft", "model": { "path": model, "adapter": { "rank": 4, "alpha": 8.0 } },
        "data": { "train": [data], "evaluation": 0.1, "max_length": 64, "columns": {}, "rows": { "row_invalid": "skip" } },
        "optimizer": { "learning_rate": 1e-3, "betas": [0.9, 0.99], "eps": 1e-8, "weight_decay": 0.0, "clip": 1.0 },
        "schedule": { "kind": "linear", "warmup": 3 }, "run": { "steps": 5, "global_batch": 2, "seed": 3, "evaluate_every": 2 },
        "snapshot": { "every_steps": 0, "persist_every": "10m", "keep": 2, "keep_best": 1 },
        "machine": { "devices": ["cpu"], "device_memory": "1GB", "precision": "f32", "strategy": { "dp": 1 }, "offload": "none" },
    });
    match command {
        "startup" | "close_now" | "alive" | "machine" | "doctor" | "sample_spec" | "shelf" => json!({}),
        "browse" => json!({ "what": "data" }),
        "reveal" | "job" | "remove" | "restore" => json!({ "id": id(0) }),
        "set_title" => json!({ "title": "a title" }),
        "notify" => json!({ "title": "a title", "body": "a body", "id": id(1) }),
        "cancel" => json!({ "token": 7 }),
        "inspect" => json!({ "paths": [model, data] }),
        "preview" => json!({ "spec": spec, "row": 1 }),
        "rows" => json!({ "spec": spec, "from": 1, "count": 3 }),
        "find_row" => json!({ "spec": spec, "text": "a", "from": 1 }),
        "inspect_data" => {
            let words = json!({ "train": [], "rows": { "row_not_json": "skip" }, "columns": {} });
            json!({ "path": data, "data": words, "on_line": "__CHANNEL__:4" })
        }
        "plan" => json!({ "spec": spec, "on_line": "__CHANNEL__:1" }),
        "submit" => json!({ "spec": spec }),
        "request" => json!({ "id": id(1), "word": "resume" }),
        "jobs" => {
            let query = json!({ "search": "llama", "sort": "name", "descending": true, "offset": 0, "count": 10 });
            json!({ "query": query })
        }
        "curve" => json!({ "id": id(1), "query": { "axis": "seconds", "from": 0.0, "to": 5.0, "points": 100 } }),
        "follow" => json!({ "id": id(2), "token": 9, "on_batch": "__CHANNEL__:2" }),
        "log" => json!({ "id": id(1), "lines": 100 }),
        "compare" => json!({ "a": id(1), "b": id(2) }),
        "checkpoints" => json!({ "id": id(1), "verify": true }),
        "fork" => json!({ "id": id(1), "step": 1, "changes": ["run.steps=20"] }),
        "add_place" | "remove_place" => json!({ "path": room.join("home/devices") }),
        "take_model" => json!({ "path": model, "to": room.join("home"), "how": "copy", "dry_run": true }),
        "export_files" => json!({ "from": model, "format": "safetensors" }),
        "generate" => {
            let query = json!({
                "model": model, "adapter": null, "messages": [{ "role": "user", "content": "1 + 1?" }], "prompt": null,
                "max_tokens": 3, "temperature": 0.0, "seed": 1,
            });
            json!({ "query": query, "token": 11, "on_text": "__CHANNEL__:3" })
        }
        other => panic!("there is no question for {other}"),
    }
}
