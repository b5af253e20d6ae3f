//! Whole attempts over a socket pair: a fresh model of a few thousand parameters in a temporary run folder; the test is
//! the supervisor.

use super::cycle::{Cycle, End};
use super::open::{self, Rows};
use super::shelf::Shelf;
use crate::link::Link;
use crate::ranks::Broken;
use formats::sample::Sample;
use formats::tokens::{CacheHead, CacheWriter, Set};
use protocol::event::Step;
use protocol::facts::{DeviceFacts, MachineFacts, ModelConfig};
use protocol::link::{FromTrainer, ToTrainer};
use protocol::plan::ModelSource;
use protocol::record::Labels;
use protocol::{Code, Event, JobSpec, Outcome, Problem, limits};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use store::checkpoint;
use store::disk::{Disk, Listed, Output, RealDisk};
use store::home::Home;
use store::run::RunFolder;

/// Steps of the toy runs.
const STEPS: u64 = 6;
/// Steps of runs that the supervisor talks into: the socket holds the messages of a few steps only (`attempt`), so such a
/// run cannot be over before what it is told arrives, however fast or slow the machine is.
const MANY: u64 = 60;
const MANY_STEPS: &str = "run.steps=60";

/// A HOME with one planned run in it.
struct Toy {
    _temporary: tempfile::TempDir,
    folder: PathBuf,
}

impl Toy {
    fn new(changes: &[&str]) -> Toy {
        let temporary = tempfile::tempdir().unwrap();
        let home = Home::open(&temporary.path().join("home")).unwrap();
        let tokens = cache(&home.tokens());
        let spec = spec(changes);
        let model = plan::Model {
            source: ModelSource::Scratch,
            fingerprint: "shape".into(),
            config: config(),
            bytes: 0,
            dtype: "F32".into(),
            tokenizer: tokens.tokenizer.clone(),
        };
        let plan = plan::plan(&spec, &model, &tokens, &machine()).unwrap();
        let run = RunFolder::create(&home, "toy", &spec, &plan, &Labels::default()).unwrap();
        Toy { folder: run.path().to_path_buf(), _temporary: temporary }
    }

    /// One attempt on this disk, with `supervise` at the other end. What the attempt ended with, and every message.
    fn attempt(&self, disk: &dyn Disk, supervise: impl FnOnce(&mut Supervisor) + Send) -> Ended {
        let (ours, theirs) = UnixStream::pair().unwrap();
        // The kernel's least: a trainer whose supervisor does not listen soon waits.
        rustix::net::sockopt::set_socket_send_buffer_size(&ours, 1).unwrap();
        let link = Link::open(ours, || {}).unwrap();
        std::thread::scope(|scope| {
            let watching = scope.spawn(move || {
                let mut supervisor = Supervisor::new(theirs);
                supervise(&mut supervisor);
                supervisor.rest()
            });
            let end = self.drive(disk, &link);
            drop(link);
            Ended { end, said: watching.join().unwrap() }
        })
    }

    fn drive(&self, disk: &dyn Disk, link: &Link) -> Outcome<End> {
        let opened = open::open(&self.folder, disk, link, &nobody_breaks())?;
        let start = Instant::now();
        let clock = move || start.elapsed();
        let (train, evaluation) = (Rows(opened.cache.train()), Rows(opened.cache.evaluation()));
        let best = open::best_evaluations(&opened.run, &opened.plan, opened.ranks.first());
        let shelf = Shelf::new(disk, &opened.run, &opened.plan, opened.restored.as_ref(), best, clock());
        let unjournaled = opened.unjournaled;
        let plan = &opened.plan;
        Cycle::new(plan, opened.ranks, &train, &evaluation, link, shelf, &clock, unjournaled).run(opened.warnings)
    }

    fn finished(&self) -> Ended {
        let ended = self.attempt(&RealDisk, |_| {});
        assert_eq!(ended.end, Ok(End::Finished));
        ended
    }

    fn checkpoints(&self) -> PathBuf {
        self.folder.join("checkpoints")
    }

    fn kept(&self) -> Vec<u64> {
        checkpoint::list(&RealDisk, &self.checkpoints()).unwrap().iter().map(|row| row.step).collect()
    }

    fn file(&self, step: u64, name: &str) -> PathBuf {
        self.checkpoints().join(checkpoint::folder_name(step)).join(name)
    }

    /// Weights and optimizer state of the last step, byte for byte.
    fn last_state(&self) -> Vec<Vec<u8>> {
        let names = ["model.safetensors", "optimizer-00001.safetensors"];
        names.iter().map(|name| std::fs::read(self.file(self.kept()[0], name)).unwrap()).collect()
    }

    fn damage(&self, step: u64) {
        let path = self.file(step, "model.safetensors");
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
}

fn nobody_breaks() -> Broken {
    Arc::new(|problem| panic!("{problem}"))
}

struct Ended {
    end: Outcome<End>,
    said: Vec<FromTrainer>,
}

impl Ended {
    fn events(&self) -> Vec<&Event> {
        let event = |message: &'_ FromTrainer| matches!(message, FromTrainer::Event { .. });
        self.said
            .iter()
            .filter(|message| event(message))
            .map(|message| match message {
                FromTrainer::Event { event } => event,
                _ => unreachable!(),
            })
            .collect()
    }

    fn steps(&self) -> Vec<&Step> {
        let step = |event: &&Event| matches!(event, Event::Step(_));
        self.events()
            .into_iter()
            .filter(step)
            .map(|event| match event {
                Event::Step(step) => step,
                _ => unreachable!(),
            })
            .collect()
    }

    fn losses(&self) -> Vec<(u64, f64)> {
        self.steps().iter().map(|step| (step.step, step.loss)).collect()
    }

    fn has(&self, wanted: impl Fn(&Event) -> bool) -> bool {
        self.events().into_iter().any(wanted)
    }

    fn warnings(&self) -> Vec<&Problem> {
        let warning = |event: &'_ Event| matches!(event, Event::Warning { .. });
        self.events()
            .into_iter()
            .filter(|event| warning(event))
            .map(|event| match event {
                Event::Warning { problem, .. } => problem,
                _ => unreachable!(),
            })
            .collect()
    }
}

/// The other end of fd 3.
struct Supervisor {
    writer: Option<UnixStream>,
    reader: BufReader<UnixStream>,
    said: Vec<FromTrainer>,
}

impl Supervisor {
    fn new(stream: UnixStream) -> Supervisor {
        let mut supervisor =
            Supervisor { writer: Some(stream.try_clone().unwrap()), reader: BufReader::new(stream), said: Vec::new() };
        supervisor.line(r#"{"protocol":1}"#);
        let mut hello = String::new();
        supervisor.reader.read_line(&mut hello).unwrap();
        assert_eq!(hello, "{\"protocol\":1}\n");
        supervisor
    }

    fn line(&mut self, text: &str) {
        // A trainer that has already ended is seen by what it said.
        let _ = self.writer.as_mut().unwrap().write_all(format!("{text}\n").as_bytes());
    }

    fn tell(&mut self, command: ToTrainer) {
        self.line(&serde_json::to_string(&command).unwrap());
    }

    fn hear(&mut self) -> Option<FromTrainer> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(n) if n > 0 => {
                let message: FromTrainer = serde_json::from_str(&line).unwrap();
                self.said.push(message.clone());
                Some(message)
            }
            _ => None,
        }
    }

    /// Listens until an event like this; panics when the trainer ends before it.
    fn until(&mut self, wanted: impl Fn(&Event) -> bool) -> Event {
        loop {
            match self.hear().expect("the trainer ended before the awaited event") {
                FromTrainer::Event { event } if wanted(&event) => return event,
                _ => {}
            }
        }
    }

    fn until_step(&mut self, number: u64) {
        self.until(|event| matches!(event, Event::Step(step) if step.step == number));
    }

    /// Leaves without a word, as a killed process does.
    fn vanish(&mut self) {
        self.writer = None;
        self.reader.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    }

    fn is_silent_for(&mut self, time: Duration) -> bool {
        self.reader.get_ref().set_read_timeout(Some(time)).unwrap();
        let silent = self.hear().is_none();
        self.reader.get_ref().set_read_timeout(None).unwrap();
        silent
    }

    fn rest(mut self) -> Vec<FromTrainer> {
        while self.hear().is_some() {}
        self.said
    }
}

fn spec(changes: &[&str]) -> JobSpec {
    let text = format!(
        r#"
        stage = "pretrain"
        model = {{ preset = "nano" }}
        data = {{ train = ["/unused"] }}
        optimizer = {{ learning_rate = 0.01 }}
        run = {{ steps = {STEPS}, global_batch = 3, evaluate_every = 0 }}
        snapshot = {{ persist_every = 0 }}
        "#
    );
    let changes: Vec<String> = changes.iter().map(|change| change.to_string()).collect();
    JobSpec::parse(&text, &changes, Path::new("/")).unwrap()
}

fn config() -> ModelConfig {
    ModelConfig {
        layers: 1,
        hidden: 16,
        intermediate: 24,
        heads: 2,
        kv_heads: 1,
        head_dim: 8,
        context: 16,
        eos: vec![0],
        ..plan::preset("nano", 32).unwrap()
    }
}

fn machine() -> MachineFacts {
    MachineFacts {
        cpu: String::new(),
        cores: 2,
        instruction_set: "any".into(),
        host_memory_total: 4 << 30,
        host_memory_available: 4 << 30,
        disk_free: 4 << 30,
        gemm_gflops: 10.0,
        memory_gb_per_second: 10.0,
        devices: vec![DeviceFacts { name: "cpu".into(), memory_total: 4 << 30, memory_free: 4 << 30, card: None }],
        nccl: false,
    }
}

/// Ten rows of counting, and three to evaluate on.
fn cache(parent: &Path) -> protocol::facts::TokenFacts {
    let head = CacheHead {
        fingerprint: "0123456789abcdef".into(),
        data_fingerprint: "d".into(),
        tokenizer_fingerprint: "k".into(),
        vocab: 32,
        eos: 0,
        max_length: 12,
        packing: false,
    };
    let mut writer = CacheWriter::create(parent, head).unwrap();
    std::fs::write(writer.tokenizer_folder().join("tokenizer.json"), "{}").unwrap();
    for row in 0..13u32 {
        let ids: Vec<u32> = (0..8 + row % 4).map(|i| (row * 5 + i * 3) % 32).collect();
        let trained = (0..ids.len()).map(|i| u8::from(i > 0)).collect();
        let set = if row < 10 { Set::Train } else { Set::Evaluation };
        writer.push(set, &Sample { ids, trained }).unwrap();
    }
    writer.finish().unwrap()
}

/// The real disk, which is full while `full` is set.
#[derive(Default)]
struct FillingDisk {
    full: AtomicBool,
}

impl FillingDisk {
    fn room(&self) -> io::Result<()> {
        if self.full.load(Ordering::Relaxed) { Err(io::Error::from_raw_os_error(28)) } else { Ok(()) }
    }
}

impl Disk for FillingDisk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_folder(path)
    }
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        self.room()?;
        RealDisk.create(path)
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        RealDisk.open(path)
    }
    fn size(&self, path: &Path) -> io::Result<u64> {
        RealDisk.size(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<Listed>> {
        RealDisk.list(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }
    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.replace(from, to)
    }
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_folder(path)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_file(path)
    }
    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_folder(path)
    }
    fn free(&self, path: &Path) -> io::Result<u64> {
        if self.full.load(Ordering::Relaxed) { Ok(0) } else { RealDisk.free(path) }
    }
}

#[test]
fn a_run_tells_every_step_saves_at_the_end_and_finishes_with_what_it_used() {
    let toy = Toy::new(&[]);
    let ended = toy.finished();
    assert!(ended.has(|e| *e == Event::Started { step: 0, steps_total: STEPS }));
    assert_eq!(ended.steps().iter().map(|s| s.step).collect::<Vec<_>>(), (1..=STEPS).collect::<Vec<_>>());
    let events = ended.events();
    let [.., Event::Checkpoint { step: STEPS, .. }, Event::Finished { step: STEPS, loss, memory }] = events.as_slice()
    else {
        panic!("{events:?}")
    };
    assert_eq!(*loss, ended.losses()[STEPS as usize - 1].1);
    assert!(memory.devices[0].bytes_peak > 0 && memory.host_bytes_peak > 0);
    assert_eq!(toy.kept(), [STEPS]);
    checkpoint::verify(&RealDisk, &toy.checkpoints().join(checkpoint::folder_name(STEPS))).unwrap();
}

#[test]
fn a_paused_run_is_silent_and_goes_on_as_if_it_had_not_paused() {
    let plain = Toy::new(&[MANY_STEPS]);
    let whole = plain.finished();
    let toy = Toy::new(&[MANY_STEPS]);
    let ended = toy.attempt(&RealDisk, |supervisor| {
        supervisor.tell(ToTrainer::Pause);
        supervisor.until(|e| matches!(e, Event::Paused { .. }));
        assert!(supervisor.is_silent_for(Duration::from_millis(100)));
        supervisor.tell(ToTrainer::Resume);
        supervisor.until(|e| matches!(e, Event::Resumed { .. }));
    });
    assert_eq!(ended.end, Ok(End::Finished));
    assert!(ended.has(|e| matches!(e, Event::Checkpoint { step, .. } if *step < MANY)));
    assert_eq!(ended.losses(), whole.losses());
    assert_eq!(toy.last_state(), plain.last_state());
}

#[test]
fn a_stopped_run_leaves_saved_and_its_resume_is_bit_for_bit_the_uninterrupted_run() {
    let plain = Toy::new(&[MANY_STEPS]);
    let whole = plain.finished();
    let toy = Toy::new(&[MANY_STEPS]);
    let first = toy.attempt(&RealDisk, |supervisor| {
        supervisor.until_step(2);
        supervisor.tell(ToTrainer::Stop);
    });
    assert_eq!(first.end, Ok(End::Left));
    let Some(FromTrainer::Leaving { step }) = first.said.last() else { panic!("{:?}", first.said.last()) };
    assert_eq!(toy.kept(), [*step]);
    let second = toy.finished();
    let mut losses = first.losses();
    losses.extend(second.losses().into_iter().filter(|(number, _)| number > step));
    assert_eq!(losses, whole.losses());
    assert_eq!(toy.last_state(), plain.last_state());
}

#[test]
fn a_run_whose_supervisor_is_gone_saves_leaves_and_tells_the_lost_steps_again() {
    let toy = Toy::new(&[MANY_STEPS]);
    let first = toy.attempt(&RealDisk, |supervisor| {
        supervisor.tell(ToTrainer::Acknowledge { step: 1 });
        supervisor.until_step(2);
        supervisor.vanish();
    });
    assert_eq!(first.end, Ok(End::Orphaned));
    let safe = toy.kept()[0];
    let second = toy.finished();
    let events = second.events();
    let started = events.iter().position(|e| matches!(e, Event::Started { step, .. } if *step == safe)).unwrap();
    let again: Vec<u64> = events[..started].iter().filter(|e| e.is_metric()).map(|e| e.step()).collect();
    assert_eq!(again, (2..=safe).collect::<Vec<_>>());
}

#[test]
fn a_checkpoint_that_was_asked_for_comes_and_training_goes_on() {
    let toy = Toy::new(&[MANY_STEPS]);
    let ended = toy.attempt(&RealDisk, |supervisor| {
        supervisor.tell(ToTrainer::Snapshot);
        supervisor.until(|e| matches!(e, Event::Checkpoint { step, .. } if (1..MANY).contains(step)));
    });
    assert_eq!(ended.end, Ok(End::Finished));
}

#[test]
fn the_cadence_counts_steps_and_old_checkpoints_go() {
    let toy = Toy::new(&["snapshot.persist_every=2", "snapshot.keep=2"]);
    let ended = toy.finished();
    let saved: Vec<u64> =
        ended.events().iter().filter(|e| matches!(e, Event::Checkpoint { .. })).map(|e| e.step()).collect();
    assert_eq!(saved, [2, 4, 6]);
    assert_eq!(toy.kept(), [6, 4]);
}

#[test]
fn evaluations_come_when_due_and_at_the_end_and_the_best_is_kept() {
    let toy = Toy::new(&["run.evaluate_every=4", "snapshot.keep=1", "snapshot.keep_best=1"]);
    let ended = toy.finished();
    let evaluated: Vec<(u64, f64)> = ended
        .events()
        .iter()
        .filter_map(|e| match e {
            Event::Evaluation { step, loss, perplexity, tokens } => {
                assert!((perplexity.ln() - loss).abs() < 1e-9 && *tokens > 0);
                Some((*step, *loss))
            }
            _ => None,
        })
        .collect();
    assert_eq!(evaluated.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [4, 6]);
    let best = evaluated.iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap().0;
    assert!(toy.kept().contains(&best) && toy.kept().contains(&STEPS), "{:?}", toy.kept());
}

#[test]
fn a_resumed_run_still_keeps_the_best_evaluations_of_before() {
    let changes = ["run.evaluate_every=1", "snapshot.keep=1", "snapshot.keep_best=2"];
    let toy = Toy::new(&changes);
    let first = toy.finished();
    let run = RunFolder::open(&toy.folder).unwrap();
    let mut journal = store::journal::Writer::open(&run.journal(), run.id()).unwrap();
    for event in first.events() {
        journal.append(1, 0, event.clone()).unwrap();
    }
    journal.flush().unwrap();
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let opened = open::open(&toy.folder, &RealDisk, &Link::open(ours, || {}).unwrap(), &nobody_breaks()).unwrap();
    let mut evaluated: Vec<(f64, u64)> = first
        .events()
        .iter()
        .filter_map(|event| match event {
            Event::Evaluation { step, loss, .. } => Some((*loss, *step)),
            _ => None,
        })
        .collect();
    let mut told = open::best_evaluations(&opened.run, &opened.plan, opened.ranks.first());
    evaluated.sort_by(|a, b| a.0.total_cmp(&b.0));
    told.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert_eq!(told, evaluated);
    let best = [evaluated[0].1, evaluated[1].1];
    assert!(best.iter().all(|step| toy.kept().contains(step)), "{:?} of {best:?}", toy.kept());
}

#[test]
fn a_full_disk_is_told_with_its_numbers_and_training_goes_on() {
    let toy = Toy::new(&[MANY_STEPS, "snapshot.persist_every=2"]);
    let disk = FillingDisk::default();
    let ended = toy.attempt(&disk, |supervisor| {
        supervisor.until(|e| matches!(e, Event::Checkpoint { step: 2, .. }));
        disk.full.store(true, Ordering::Relaxed);
        supervisor.until(|e| matches!(e, Event::Warning { .. }));
        disk.full.store(false, Ordering::Relaxed);
    });
    assert_eq!(ended.end, Ok(End::Finished));
    let warning = ended.warnings().into_iter().find(|p| p.code == Code::DiskFull).unwrap();
    assert!(warning.why.contains("free") && warning.place.file.is_some(), "{warning}");
    assert!(warning.kept.contains("checkpoint of step"), "{warning}");
    assert!(toy.kept().contains(&MANY));
}

#[test]
fn a_last_save_that_fails_ends_the_run_and_older_checkpoints_stay() {
    let toy = Toy::new(&[MANY_STEPS, "snapshot.persist_every=2"]);
    let disk = FillingDisk::default();
    let ended = toy.attempt(&disk, |supervisor| {
        supervisor.until(|e| matches!(e, Event::Checkpoint { step: 2, .. }));
        disk.full.store(true, Ordering::Relaxed);
    });
    assert_eq!(ended.end.unwrap_err().code, Code::DiskFull);
    assert!((2..MANY).contains(&toy.kept()[0]));
    checkpoint::verify(&RealDisk, &toy.checkpoints().join(checkpoint::folder_name(toy.kept()[0]))).unwrap();
    assert!(std::fs::read_dir(toy.checkpoints()).unwrap().all(|entry| {
        let name = entry.unwrap().file_name();
        !name.to_string_lossy().starts_with(".tmp")
    }));
}

#[test]
fn a_pause_on_a_full_disk_keeps_the_state_in_memory_and_says_so() {
    let toy = Toy::new(&[MANY_STEPS]);
    let disk = FillingDisk::default();
    disk.full.store(true, Ordering::Relaxed);
    let ended = toy.attempt(&disk, |supervisor| {
        supervisor.tell(ToTrainer::Pause);
        let Event::Warning { problem, .. } =
            supervisor.until(|e| matches!(e, Event::Warning { problem, .. } if problem.code == Code::DiskFull))
        else {
            unreachable!()
        };
        assert!(problem.kept.contains("in memory"), "{problem}");
        supervisor.until(|e| matches!(e, Event::Paused { .. }));
        disk.full.store(false, Ordering::Relaxed);
        supervisor.tell(ToTrainer::Stop);
    });
    assert_eq!(ended.end, Ok(End::Left));
    assert_eq!(toy.kept().len(), 1);
}

#[test]
fn a_state_that_is_not_finite_is_never_saved_and_ends_the_run() {
    let huge = ["optimizer.learning_rate=1e39", "schedule.kind=\"constant\"", "schedule.warmup=0"];
    let toy = Toy::new(&[&huge[..], &[MANY_STEPS, "snapshot.persist_every=1"]].concat());
    let ended = toy.attempt(&RealDisk, |_| {});
    assert_eq!(ended.end.as_ref().unwrap_err().code, Code::NotFinite);
    let skipped = ended.events().iter().filter(|e| matches!(e, Event::Skipped { .. })).count();
    assert_eq!((ended.losses().len(), skipped), (1, 4), "one step, four left out, and the fifth ends it");
    assert!(ended.warnings().iter().any(|p| p.code == Code::NotFinite));
    assert!(toy.kept().is_empty());
}

#[test]
fn a_damaged_checkpoint_is_passed_over_by_name_and_the_one_before_is_used() {
    let toy = Toy::new(&["snapshot.persist_every=2"]);
    toy.finished();
    toy.damage(STEPS);
    let ended = toy.finished();
    assert!(ended.has(|e| matches!(e, Event::Started { step: 4, .. })));
    let warning = ended.warnings().into_iter().find(|p| p.code == Code::CheckpointDamaged).unwrap();
    assert!(warning.sentence().contains("model.safetensors"), "{warning}");
}

#[test]
fn when_every_checkpoint_is_damaged_the_run_does_not_begin_again_from_nothing() {
    let toy = Toy::new(&["snapshot.persist_every=3"]);
    toy.finished();
    toy.kept().into_iter().for_each(|step| toy.damage(step));
    let ended = toy.attempt(&RealDisk, |_| {});
    assert_eq!(ended.end.unwrap_err().code, Code::CheckpointDamaged);
}

#[test]
fn changed_tokens_are_refused() {
    let toy = Toy::new(&[]);
    let mut plan = RunFolder::open(&toy.folder).unwrap().plan().unwrap();
    plan.data.fingerprint = "another".into();
    std::fs::write(toy.folder.join("plan.json"), serde_json::to_vec(&plan).unwrap()).unwrap();
    let ended = toy.attempt(&RealDisk, |_| {});
    assert_eq!(ended.end.unwrap_err().code, Code::DataChanged);
}

#[test]
fn a_missing_base_model_is_refused_by_name() {
    let toy = Toy::new(&[]);
    let mut plan = RunFolder::open(&toy.folder).unwrap().plan().unwrap();
    plan.model.source = ModelSource::Folder { path: "/gone/model".into() };
    std::fs::write(toy.folder.join("plan.json"), serde_json::to_vec(&plan).unwrap()).unwrap();
    let problem = toy.attempt(&RealDisk, |_| {}).end.unwrap_err();
    assert_eq!(problem.code, Code::ModelChanged);
    assert!(problem.sentence().contains("/gone/model"), "{problem}");
}

#[test]
fn a_run_that_was_finished_and_saved_tells_its_end_again() {
    let toy = Toy::new(&[]);
    let first = toy.finished();
    let second = toy.finished();
    assert_eq!(first.losses().last(), second.losses().last());
    let loss = |ended: &Ended| match ended.events().last() {
        Some(Event::Finished { loss, .. }) => *loss,
        other => panic!("{other:?}"),
    };
    assert_eq!(loss(&first), loss(&second));
}

#[test]
fn the_time_to_leave_grows_with_the_state_and_not_with_hope() {
    let toy = Toy::new(&[]);
    let run = RunFolder::open(&toy.folder).unwrap();
    let mut plan = run.plan().unwrap();
    plan.memory.checkpoint_bytes = 2_000_000_000;
    let shelf = Shelf::new(&RealDisk, &run, &plan, None, Vec::new(), Duration::ZERO);
    assert_eq!(shelf.patience(), Duration::from_secs(60), "30 s and 1.5 times 20 s at 100 MB/s");
}

#[test]
fn arguments_are_exactly_home_and_a_run_folder() {
    let parse = |words: &[&str]| super::Arguments::parse(&words.iter().map(Into::into).collect::<Vec<_>>());
    let good = parse(&["--home", "/h", "/h/runs/x"]).unwrap();
    assert_eq!((good.home, good.folder), ("/h".into(), "/h/runs/x".into()));
    for bad in [&[][..], &["/h/runs/x"], &["--home", "/h"], &["--haus", "/h", "/x"], &["--home", "/h", "/x", "/y"]] {
        assert_eq!(parse(bad).unwrap_err().code, Code::SettingInvalid, "{bad:?}");
    }
    assert!(limits::UNACKNOWLEDGED_STEPS > STEPS as usize);
}
