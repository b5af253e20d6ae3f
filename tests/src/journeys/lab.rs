//! A HOME of its own, toy data, and the binaries: what every journey starts from.

use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use virtual_gpu::{Script, Unavailable};

/// Longest a journey waits for something that normally takes a second: the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// What a run came to: (step, loss) of every step; name and checksum of every tensor file.
pub type Outcome = (Vec<(u64, f64)>, Vec<(String, u128)>);

/// Compiled kernels, shared by all tests of a build.
fn kernel_cache() -> PathBuf {
    binary("anneal").with_file_name("virtual-gpu-kernels")
}

/// One user's world.
pub struct Lab {
    folder: tempfile::TempDir,
    /// What its commands have in their environment besides.
    environment: Vec<(&'static str, OsString)>,
}

impl Lab {
    /// A fresh one.
    pub fn new() -> Lab {
        Lab { folder: tempfile::tempdir().unwrap(), environment: Vec::new() }
    }

    /// A fresh one in a folder whose name begins like this.
    pub fn named(beginning: &str) -> Lab {
        Lab { folder: tempfile::Builder::new().prefix(beginning).tempdir().unwrap(), environment: Vec::new() }
    }

    /// A machine with virtual cards. `None`, said aloud, where they cannot be had.
    pub fn with_cards(script: &Script) -> Option<Lab> {
        Lab::new().with_libraries(&virtual_gpu::library_folder(), script)
    }

    /// A machine with virtual cards whose libraries lie in a folder.
    pub fn with_libraries(mut self, libraries: &Result<PathBuf, Unavailable>, script: &Script) -> Option<Lab> {
        let libraries = match libraries {
            Ok(folder) => folder.clone(),
            Err(why) => {
                println!("skipped: no CUDA device ({why})");
                return None;
            }
        };
        let folders = std::env::join_paths([self.path("cards"), libraries]).unwrap();
        std::fs::create_dir_all(self.path("cards")).unwrap();
        self.environment = vec![("LD_LIBRARY_PATH", folders), ("ANNEAL_KERNEL_CACHE", kernel_cache().into())];
        self.set_script(script);
        Some(self)
    }

    /// What the virtual cards are from the next process on.
    pub fn set_script(&self, script: &Script) {
        let (file, part) = (self.path("cards/virtual-gpu.json"), self.path("cards/part"));
        std::fs::write(&part, serde_json::to_vec(script).unwrap()).unwrap();
        std::fs::rename(part, file).unwrap();
    }

    /// What its commands have in their environment besides HOME.
    pub fn environment(&self) -> &[(&'static str, OsString)] {
        &self.environment
    }

    /// HOME.
    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// A path beside HOME.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file beside HOME.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A command with HOME set, not yet started, in a process group of its own as a shell would make one.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary("anneal"));
        command.args(args).env("ANNEAL_HOME", self.home()).stdin(Stdio::null());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command that must succeed and returns its JSON.
    pub fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["--json"]].concat());
        assert!(output.status.success(), "anneal {args:?}: {}", words(&output));
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("anneal {args:?}: {e}: {}", words(&output)))
    }

    /// Runs a command that must be refused and returns its problem.
    pub fn refusal(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(3), "anneal {args:?}: {}", words(&output));
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(answer["problem"]["what"].as_str().is_some_and(|w| !w.is_empty()), "{answer}");
        answer["problem"].clone()
    }

    /// Starts a command that streams JSON lines.
    pub fn stream(&self, args: &[&str]) -> Child {
        self.command(&[args, &["--json"]].concat()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// A chat data set of `rows` short questions.
    pub fn chat(&self, rows: usize) -> PathBuf {
        let row = |i: usize| {
            let (a, b) = (i % 13, i * 7 % 17);
            let messages = json!([
                {"role": "user", "content": format!("{a} + {b}?")}, {"role": "assistant", "content": format!("{}", a + b)}
            ]);
            json!({ "messages": messages }).to_string() + "\n"
        };
        self.write("chat.jsonl", &(0..rows).map(row).collect::<String>())
    }

    /// A job over the toy chat model that takes `steps` steps.
    pub fn job(&self, steps: u64, more: &str) -> PathBuf {
        let (model, data) = (golden("models/llama"), self.chat(300));
        let text = format!(
            "stage = \"sft\"\nname = \"toy\"\n[model]\npath = {model:?}\n[data]\ntrain = [{data:?}]\nevaluation = 0.05\nmax_length = 96\n\
             [optimizer]\nlearning_rate = 1e-3\n[run]\nsteps = {steps}\nglobal_batch = 4\nevaluate_every = 20\n\
             [snapshot]\npersist_every = 7\n{more}"
        );
        self.write("job.toml", &text)
    }

    /// Waits until the job's state is one of these and returns it.
    pub fn wait_for(&self, id: &str, states: &[&str]) -> String {
        let mut last = String::new();
        let reached = until(PATIENCE, || {
            last = self.json(&["job", id])["state"].as_str().unwrap_or_default().to_owned();
            states.contains(&last.as_str())
        });
        assert!(reached, "{id} is {last} and never became {states:?}\n{}", self.log(id));
        last
    }

    /// What the processes of a job said, for messages of failed tests.
    pub fn log(&self, id: &str) -> String {
        let folder = self.home().join("runs").join(id);
        ["journal.jsonl", "trainer.log", "supervisor.log"]
            .iter()
            .map(|name| {
                let text = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
                let tail: Vec<&str> = text.lines().rev().take(12).collect();
                format!("--- {name}\n{}\n", tail.into_iter().rev().collect::<Vec<_>>().join("\n"))
            })
            .collect()
    }

    /// Newest checkpoint of a job.
    pub fn checkpoint(&self, id: &str) -> PathBuf {
        let rows = self.json(&["checkpoints", id, "--verify"]);
        let newest = rows.as_array().unwrap().iter().max_by_key(|r| r["step"].as_u64()).unwrap();
        assert_eq!(newest["verified"], json!(true), "{rows}");
        let path = PathBuf::from(newest["path"].as_str().unwrap());
        if path.is_absolute() { path } else { self.home().join("runs").join(id).join("checkpoints").join(path) }
    }

    /// (step, loss) of every step as the history has them.
    pub fn losses(&self, id: &str) -> Vec<(u64, f64)> {
        let rows = self.json(&["metrics", id]);
        rows.as_array().unwrap().iter().map(|r| (r["step"].as_u64().unwrap(), r["loss"].as_f64().unwrap())).collect()
    }

    /// Everything that resume must reproduce: the losses and the bytes of every tensor file of the last checkpoint.
    pub fn outcome(&self, id: &str) -> Outcome {
        let folder = self.checkpoint(id);
        let mut files: Vec<(String, u128)> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|e| e.unwrap().path())
            .filter(|p| p.extension().is_some_and(|x| x == "safetensors"))
            .map(|p| {
                (
                    p.file_name().unwrap().to_string_lossy().into_owned(),
                    xxhash_rust::xxh3::xxh3_128(&std::fs::read(&p).unwrap()),
                )
            })
            .collect();
        files.sort();
        assert!(files.len() >= 2, "{files:?}");
        (self.losses(id), files)
    }

    /// Processes of ours that belong to this HOME, by name.
    pub fn processes(&self) -> Vec<(i32, String)> {
        let home = self.home().display().to_string();
        std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|e| e.ok()?.file_name().to_str()?.parse::<i32>().ok())
            .filter_map(|pid| {
                let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
                let read = |what: &str| {
                    std::fs::read(format!("/proc/{pid}/{what}")).map(|b| String::from_utf8_lossy(&b).into_owned())
                };
                let ours = name.starts_with("anneal")
                    && (read("cmdline").ok()?.contains(&home) || read("environ").ok()?.contains(&home));
                ours.then(|| (pid, name.trim().to_owned()))
            })
            .collect()
    }

    /// The supervisor's or the trainer's pid.
    pub fn pid(&self, trainer: bool) -> Option<i32> {
        let is = |pid: i32, name: &str| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let run = String::from_utf8_lossy(&line).into_owned();
            if trainer {
                name == "anneal-trainer" && run.contains("\0run\0")
            } else {
                name != "anneal-trainer" && run.contains("\0supervise\0")
            }
        };
        self.processes().into_iter().find(|(pid, name)| is(*pid, name)).map(|(pid, _)| pid)
    }

    /// Asserts that no process of this HOME is left, waiting a little for the last to go.
    pub fn nothing_left(&self) {
        assert!(until(PATIENCE, || self.processes().is_empty()), "left behind: {:?}", self.processes());
        let runs = self.home().join("runs");
        for run in std::fs::read_dir(&runs).unwrap().flatten() {
            let leftovers: Vec<_> = std::fs::read_dir(run.path().join("checkpoints"))
                .map(|d| {
                    d.flatten()
                        .map(|e| e.file_name().to_string_lossy().into_owned())
                        .filter(|n| !n.starts_with("step-"))
                        .collect()
                })
                .unwrap_or_default();
            assert_eq!(leftovers, Vec::<String>::new(), "in {}", run.path().display());
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for (pid, _) in self.processes() {
            kill(pid, "KILL");
        }
    }
}

/// Sends a signal.
pub fn kill(pid: i32, signal: &str) {
    let signal = match signal {
        "KILL" => rustix::process::Signal::KILL,
        "TERM" => rustix::process::Signal::TERM,
        "STOP" => rustix::process::Signal::STOP,
        "CONT" => rustix::process::Signal::CONT,
        "HUP" => rustix::process::Signal::HUP,
        other => panic!("signal {other}"),
    };
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Waits until something is true; false when it took longer than `limit`.
pub fn until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < limit {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    done()
}

/// A binary of the workspace, beside this test's own.
pub fn binary(name: &str) -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let folder = exe.ancestors().nth(2).unwrap();
    let path = folder.join(name);
    assert!(
        path.exists(),
        "{} is missing: `cargo build --workspace --bins` first, as `make test` does",
        path.display()
    );
    path
}

/// A file of the golden data.
pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name)
}

/// What a finished command said.
pub fn words(output: &Output) -> String {
    format!(
        "status {:?}\nstdout: {}\nstderr: {}",
        output.status.code(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// The events of a stream that has ended.
pub fn events(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"))).collect()
}
