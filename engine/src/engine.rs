//! `Engine`: the one door for the window, the command line and tests.
//!
//! Each call takes plain values and gives an answer or a `Problem`; none of them knows a screen. Not here: how a run is
//! followed (`follow`), how a job is forked (`fork`), what the supervisor does (`supervisor`).

use crate::history::History;
use crate::machine::Cards;
use crate::{intake, machine, supervisor, trainer_call};
use protocol::facts::{MachineFacts, TokenFacts};
use protocol::job::{EvaluationData, Stage};
use protocol::link::{Answer, Request};
use protocol::machine::{Checkup, MachineSample, Probe, Speeds};
use protocol::plan::{ModelSource, Plan};
use protocol::problem::{Code, Outcome, Problem};
use protocol::record::{CheckpointRow, Comparison, JobRecord, JobRow, JobState, Labels, MetricRow};
use protocol::verb::{self, Line};
use protocol::{JobSpec, limits};
use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::home::Home;
use store::run::RunFolder;

/// Longest wait for the effect of a request to show in the history: a step, an evaluation and a save must fit.
const EFFECT: Duration = Duration::from_secs(30);

/// What a caller does with progress.
pub type OnLine<'a> = &'a mut dyn FnMut(&Line);

/// An open HOME.
pub struct Engine {
    home: Home,
    /// `None` in an engine that only looks.
    history: Option<History>,
    pub(crate) trainer: PathBuf,
    cards: Cards,
    cancel: Arc<AtomicBool>,
}

impl Engine {
    /// Opens HOME: `home`, else `$ANNEAL_HOME`, else the platform's data folder. Returns notices for the user besides.
    /// Errors: `HomeUnsuitable`, disk problems, a missing `anneal-trainer`.
    pub fn open(home: Option<&Path>) -> Outcome<(Engine, Vec<Problem>)> {
        let home = Home::open(&home_path(home)?)?;
        let trainer = trainer_call::trainer_path()?;
        let (history, notices) = History::open(&home)?;
        Ok((Engine { home, history: Some(history), trainer, cards: Cards::default(), cancel: Arc::default() }, notices))
    }

    /// A second engine of the same HOME, for a call beside this one's: it begins with what this one knows.
    /// Errors: as `open`.
    pub fn another(&mut self) -> Outcome<Engine> {
        let history = self.history.as_mut().map(History::another).transpose()?;
        let (home, trainer, cards) = (self.home.clone(), self.trainer.clone(), self.cards.clone());
        Ok(Engine { home, history, trainer, cards, cancel: Arc::default() })
    }

    /// An engine for what needs no job: facts of files, text of a model, measurements. HOME need not be there and may be
    /// read-only; calls about jobs are refused. Errors: no HOME is named, a missing `anneal-trainer`.
    pub fn look(home: Option<&Path>) -> Outcome<Engine> {
        Ok(Engine {
            home: Home::named(&home_path(home)?),
            history: None,
            trainer: trainer_call::trainer_path()?,
            cards: Cards::default(),
            cancel: Arc::default(),
        })
    }

    pub(crate) fn history(&mut self) -> Outcome<&mut History> {
        self.history.as_mut().ok_or_else(|| Problem::internal("this engine was opened without its history"))
    }

    /// HOME.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// From now on, long calls end with `Cancelled` at their next line once this flag is set.
    pub fn cancelled_by(&mut self, flag: Arc<AtomicBool>) {
        self.cancel = flag;
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// The machine as the planner sees it, its speeds assumed until they have been measured, with the cards that were found.
    pub fn facts(&self) -> MachineFacts {
        let mut facts = machine::facts(self.home.path());
        facts.devices.extend(self.cards.known().into_iter().flat_map(|probe| probe.devices));
        facts
    }

    /// The complete plan of a job, for this machine or the one a file describes. Tokenises the data where no cache fits.
    pub fn plan(&mut self, spec: &JobSpec, machine: Option<&Path>, on_line: OnLine) -> Outcome<Plan> {
        let facts = self.machine_facts(machine)?;
        let (tokens, model) = self.prepare(spec, &facts, on_line)?;
        plan::plan(spec, &model, &tokens, &facts)
    }

    /// A plan that was stored before, used as it is. Errors: `FileMalformed`, `SettingInvalid` where it is not a plan of this
    /// job or contradicts itself.
    pub fn stored_plan(&mut self, spec: &JobSpec, file: &Path, on_line: OnLine) -> Outcome<Plan> {
        let text = read_bounded(file, 64 * limits::JOB_BYTES)?;
        let remedy = "make a new one with `anneal plan JOB --json`";
        let stored: Plan = serde_json::from_str(&text).map_err(|e| {
            Problem::new(Code::FileMalformed, "the plan file is not a plan of this version")
                .why(e.to_string())
                .file(file)
                .remedy(remedy)
        })?;
        let fresh = self.plan(spec, None, on_line)?;
        let field = contradiction(&stored, &fresh);
        match field {
            None => Ok(stored),
            Some(field) => Err(Problem::new(Code::SettingInvalid, "the stored plan is not a plan of this job")
                .why(format!("it says something else, or something impossible, of {field}"))
                .file(file)
                .field(field)
                .remedy(remedy)),
        }
    }

    /// Creates the run folder and starts its supervisor. Returns the job's id.
    pub fn submit(&mut self, spec: &JobSpec, plan: &Plan) -> Outcome<String> {
        let run = self.create_run(spec, plan)?;
        supervisor::launch(self.home.path(), run.path())?;
        Ok(run.id().to_owned())
    }

    /// A new run folder with a fresh id.
    pub(crate) fn create_run(&self, spec: &JobSpec, plan: &Plan) -> Outcome<RunFolder> {
        let mut suffix = [0u8; 8];
        rustix::rand::getrandom(&mut suffix, rustix::rand::GetRandomFlags::empty())
            .map_err(|e| Problem::io(&e.into(), "asking the system for a random number", Path::new("getrandom")))?;
        let id = store::home::run_id(now_ms(), u64::from_le_bytes(suffix));
        RunFolder::create(&self.home, &id, spec, plan, &Labels::default())
    }

    /// Asks a job's supervisor to pause or stop, and waits until the job's state shows it.
    /// Errors: `WrongState` when no supervisor owns the job, `NotFound`.
    pub fn request(&mut self, id: &str, request: Request) -> Outcome<JobState> {
        let state = self.state(id)?;
        if !state.is_alive() {
            return Err(Problem::new(Code::WrongState, format!("{id} is {}", state.word()))
                .remedy(format!("nothing to do; `anneal resume {id}` goes on with it")));
        }
        if let Answer::Refused { problem } = supervisor::request(self.run_folder(id)?.path(), request)? {
            return Err(problem);
        }
        let reached = |s: JobState| match request {
            Request::Pause => s == JobState::Paused,
            Request::Stop => !s.is_alive(),
            Request::Resume => s == JobState::Running,
            Request::Ping | Request::Snapshot => true,
        };
        self.wait(id, |s| reached(s) || !s.is_alive())
    }

    /// Goes on with a job: a paused one by a word to its supervisor, an ended one by a new supervisor that restores the
    /// newest good checkpoint. A notice tells where newer ones are gone. Errors: `WrongState` when it runs or has finished,
    /// `CheckpointMissing` where all are gone.
    pub fn resume(&mut self, id: &str) -> Outcome<Option<Problem>> {
        match self.state(id)? {
            JobState::Paused => self.request(id, Request::Resume).map(|_| None),
            JobState::Stopped | JobState::Interrupted | JobState::Failed => {
                let run = self.run_folder(id)?;
                let notice = supervisor::lost_checkpoint(&run)?;
                self.tokens_are_there(&run)?;
                supervisor::launch(self.home.path(), run.path())?;
                Ok(notice)
            }
            state => Err(Problem::new(Code::WrongState, format!("{id} is {}", state.word()))
                .remedy("only paused, stopped, interrupted and failed jobs can be resumed; `fork` makes a new job of any kept step")),
        }
    }

    /// Makes a token cache that was deleted or damaged again, from unchanged data. Errors: `DataChanged`, or why not.
    pub(crate) fn tokens_are_there(&self, run: &RunFolder) -> Outcome<()> {
        let plan = run.plan()?;
        let made = self.prepare(&run.spec()?, &self.facts(), &mut |_| {});
        match made {
            Ok((tokens, _)) if tokens.fingerprint == plan.data.fingerprint => Ok(()),
            _ if formats::tokens::Cache::open(&plan.data.tokens).is_ok() => Ok(()),
            Ok(_) => Err(Problem::new(
                Code::DataChanged,
                "the job's tokens are gone, and its data has changed since it was planned",
            )
            .kept("every checkpoint and the journal")
            .remedy("bring the data back as it was, or start a new job")),
            Err(problem) => Err(problem.kept("every checkpoint and the journal")),
        }
    }

    /// The full id of a job from its beginning.
    pub fn id(&mut self, id: &str) -> Outcome<String> {
        self.history()?.look_at(id)?;
        self.history()?.find(id)
    }

    /// All jobs, newest first.
    pub fn jobs(&mut self, search: Option<&str>) -> Outcome<Vec<JobRow>> {
        self.history()?.ingest()?;
        self.history()?.jobs(search)
    }

    /// One job in full.
    pub fn job(&mut self, id: &str) -> Outcome<JobRecord> {
        self.history()?.look_at(id)?;
        let record = self.history()?.job(id)?;
        if record.row.state != JobState::Interrupted {
            return Ok(record);
        }
        // A run may have ended between the look at its journal and the look at its lock: its last word is there now.
        self.history()?.look_at(id)?;
        self.history()?.job(id)
    }

    /// State of a job now.
    pub fn state(&mut self, id: &str) -> Outcome<JobState> {
        Ok(self.job(id)?.row.state)
    }

    /// Every step of a job, in order.
    pub fn metrics(&mut self, id: &str, each: &mut dyn FnMut(&MetricRow) -> Outcome<()>) -> Outcome<()> {
        self.history()?.look_at(id)?;
        self.history()?.metrics(id, each)
    }

    /// What differs between two jobs.
    pub fn compare(&mut self, a: &str, b: &str) -> Outcome<Comparison> {
        self.history()?.look_at(a)?;
        self.history()?.look_at(b)?;
        self.history()?.compare(a, b)
    }

    /// Checkpoints of a job.
    pub fn checkpoints(&mut self, id: &str, verify: bool) -> Outcome<Vec<CheckpointRow>> {
        self.history()?.look_at(id)?;
        self.history()?.checkpoints(id, verify)
    }

    /// Moves a job to the trash; `id` may be the beginning of one. Returns the full id. Errors: `WrongState` while it lives
    /// or where it is in the trash already.
    pub fn delete(&mut self, id: &str) -> Outcome<String> {
        self.history()?.ingest()?;
        self.history()?.delete(id)
    }

    /// Takes a job out of the trash. Errors: `NotFound`.
    pub fn restore(&mut self, id: &str) -> Outcome<()> {
        self.history()?.restore(id)
    }

    /// The run folder of a job.
    pub fn run_folder(&self, id: &str) -> Outcome<RunFolder> {
        RunFolder::of(&self.home, id)
    }

    /// Lets a model speak; pieces of text come through `on_line`.
    pub fn generate(&self, request: &verb::Generate, on_line: OnLine) -> Outcome<verb::Generated> {
        if !(request.temperature.is_finite() && request.temperature >= 0.0) {
            let what = format!("a temperature of {} is not possible", request.temperature);
            return Err(Problem::new(Code::SettingInvalid, what).field("temperature").remedy("use 0 (greedy) or more"));
        }
        if request.max_tokens == 0 {
            return Err(Problem::new(Code::SettingInvalid, "a text of at most 0 tokens is none").field("max_tokens"));
        }
        let mut request = request.clone();
        request.model = absolute(&request.model)?;
        request.adapter = request.adapter.as_deref().map(absolute).transpose()?;
        self.call("generate", &request, on_line)
    }

    /// Loss and perplexity of a model on a data set: one window up to the model's context a sample.
    pub fn evaluate(
        &self,
        model: &Path,
        adapter: Option<&Path>,
        data: &Path,
        on_line: OnLine,
    ) -> Outcome<verb::Evaluated> {
        let (model, data) = (absolute(model)?, absolute(data)?);
        let adapter = adapter.map(absolute).transpose()?;
        let base = self.base_of(&model)?;
        let config = formats::model_folder::ModelFolder::open(base.as_deref().unwrap_or(&model))?.config().clone();
        let mut spec = look_spec(base.clone().unwrap_or_else(|| model.clone()), data.clone(), self.stage_of(&data)?);
        spec.data.packing = false;
        // Tokens of a HOME that cannot be written live as long as the question.
        let passing = if self.home.is_writable() { None } else { Some(Passing::new()?) };
        let read = verb::Read::Tokenise {
            spec: Box::new(spec),
            home: passing.as_ref().map_or(self.home.path(), |folder| &folder.path).to_owned(),
            max_length: config.context,
            vocab: config.vocab,
            end_of_text: false,
        };
        let tokens: TokenFacts = self.read(&read, on_line)?;
        self.call("evaluate", &verb::Evaluate { model, adapter, tokens: tokens.path }, on_line)
    }

    /// Writes a merged model or an adapter, proving it by its logits.
    pub fn export(&self, request: &verb::Export, on_line: OnLine) -> Outcome<verb::Exported> {
        let mut request = request.clone();
        request.from = absolute(&request.from)?;
        request.to = absolute(&request.to)?;
        request.base = request.base.as_deref().map(absolute).transpose()?;
        self.call("export", &request, on_line)
    }

    /// A measurement.
    pub fn bench(&self, request: &verb::Bench) -> Outcome<serde_json::Value> {
        self.call("bench", request, &mut |_| {})
    }

    /// How busy the machine is now.
    pub fn machine(&self) -> MachineSample {
        machine::sample(self.home.path())
    }

    /// What is missing on this machine, and how to get it. Looks anew each time.
    pub fn doctor(&self) -> Checkup {
        let home = self.home.path();
        machine::checkup(self.cards.again(&|measure| self.probe(measure)), home, Home::open(home).map(drop))
    }

    fn probe(&self, measure: bool) -> Outcome<Probe> {
        self.call("probe", &verb::ProbeCards { measure }, &mut |_| {})
    }

    /// Token cache and model of a job.
    fn prepare(&self, spec: &JobSpec, machine: &MachineFacts, on_line: OnLine) -> Outcome<(TokenFacts, plan::Model)> {
        match &spec.model.path {
            Some(path) => self.prepare_folder(spec, path, machine, on_line),
            None => self.prepare_preset(spec, machine, on_line),
        }
    }

    fn prepare_folder(
        &self,
        spec: &JobSpec,
        path: &Path,
        machine: &MachineFacts,
        on_line: OnLine,
    ) -> Outcome<(TokenFacts, plan::Model)> {
        if intake::is_adapter(path) {
            return Err(Problem::new(Code::NotSupported, "a job cannot start from an adapter")
                .file(path)
                .remedy("merge it first with `anneal export --format safetensors`, then train the merged folder"));
        }
        let folder = formats::model_folder::ModelFolder::open(path)?;
        let config = folder.config().clone();
        plan::check(spec, &config, machine)?;
        let (max_length, _) = plan::max_length(spec, config.context);
        let tokens = self.tokenise(spec, max_length, config.vocab, on_line)?;
        let facts = folder.facts();
        let model = plan::Model {
            source: ModelSource::Folder { path: path.to_owned() },
            fingerprint: formats::fingerprint::files(&folder.weight_files())?,
            config,
            bytes: facts.bytes,
            dtype: facts.dtype,
            // The cache's own copy: the user may move the folder while the job runs.
            tokenizer: tokens.tokenizer.clone(),
        };
        Ok((tokens, model))
    }

    fn prepare_preset(
        &self,
        spec: &JobSpec,
        machine: &MachineFacts,
        on_line: OnLine,
    ) -> Outcome<(TokenFacts, plan::Model)> {
        let name = spec.model.preset.as_deref().unwrap_or_default();
        let sketch = sketch(spec)?;
        plan::check(spec, &sketch, machine)?;
        let (max_length, _) = plan::max_length(spec, sketch.context);
        let tokens = self.tokenise(spec, max_length, 0, on_line)?;
        let mut config = plan::preset(name, tokens.vocab)?;
        config.eos = vec![tokens.eos];
        let shape = serde_json::to_vec(&config).map_err(|e| Problem::internal(e.to_string()))?;
        let model = plan::Model {
            source: ModelSource::Scratch,
            fingerprint: formats::fingerprint::bytes(&shape),
            bytes: 0,
            dtype: "F32".into(),
            tokenizer: tokens.tokenizer.clone(),
            config,
        };
        Ok((tokens, model))
    }

    fn tokenise(&self, spec: &JobSpec, max_length: u32, vocab: u32, on_line: OnLine) -> Outcome<TokenFacts> {
        let (spec, home) = (Box::new(spec.clone()), self.home.path().to_owned());
        self.read(&verb::Read::Tokenise { spec, home, max_length, vocab, end_of_text: true }, on_line)
    }

    /// The base that a LoRA checkpoint names, when `model` is one.
    fn base_of(&self, model: &Path) -> Outcome<Option<PathBuf>> {
        if !formats::adapter::is_adapter(model).unwrap_or(false) {
            return Ok(None);
        }
        let adapter = formats::adapter::Adapter::open(model)?;
        let base = model.join(&adapter.config.base);
        if adapter.config.base.is_empty() || !base.exists() {
            let what = format!("the base model \"{}\" of this adapter is not here", adapter.config.base);
            return Err(Problem::new(Code::NotFound, what)
                .file(&model.join("adapter_config.json"))
                .field("base_model_name_or_path")
                .kept("the adapter is untouched")
                .remedy("put the base back in its place, or name it: --model BASE --adapter ADAPTER"));
        }
        Ok(Some(base))
    }

    /// The machine of a file, or this one, its speeds measured and kept.
    fn machine_facts(&self, file: Option<&Path>) -> Outcome<MachineFacts> {
        if let Some(file) = file {
            let text = read_bounded(file, limits::JOB_BYTES)?;
            return serde_json::from_str(&text).map_err(|e| {
                Problem::new(Code::FileMalformed, "the machine file is not a machine").why(e.to_string()).file(file)
            });
        }
        if machine::wants_measuring(self.home.path()) {
            let value = self.bench(&verb::Bench::Machine)?;
            let speeds: Speeds = serde_json::from_value(value)
                .map_err(|e| Problem::internal(format!("a measurement that is none: {e}")))?;
            machine::remember(self.home.path(), &speeds)?;
        }
        let mut facts = machine::facts(self.home.path());
        self.cards.complete(&mut facts, self.home.path(), &|measure| self.probe(measure))?;
        Ok(facts)
    }

    pub(crate) fn read<T: serde::de::DeserializeOwned>(&self, request: &verb::Read, on_line: OnLine) -> Outcome<T> {
        self.call("read", request, on_line)
    }

    fn call<R: serde::Serialize, T: serde::de::DeserializeOwned>(
        &self,
        verb: &str,
        request: &R,
        on_line: OnLine,
    ) -> Outcome<T> {
        let value = trainer_call::call(&self.trainer, verb, request, |line| {
            on_line(line);
            if self.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        serde_json::from_value(value)
            .map_err(|e| Problem::internal(format!("anneal-trainer {verb} answered something else: {e}")))
    }

    fn wait(&mut self, id: &str, reached: impl Fn(JobState) -> bool) -> Outcome<JobState> {
        let start = std::time::Instant::now();
        loop {
            let state = self.state(id)?;
            if reached(state) || start.elapsed() > EFFECT {
                return Ok(state);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The first part of a stored plan that a plan of the same job cannot say. What only depends on the machine may differ.
fn contradiction(stored: &Plan, fresh: &Plan) -> Option<&'static str> {
    let (micro, batch) = (stored.micro_batch, stored.run.global_batch);
    let arena = || {
        let (config, kind) = (&stored.model.config, stored.optimizer.kind);
        plan::memory::table(config, &stored.method, kind, micro, stored.data.max_length, stored.recompute)
    };
    let parts = [
        ("stage", stored.stage == fresh.stage),
        ("model", stored.model == fresh.model),
        ("method", stored.method == fresh.method),
        ("data", stored.data.is(&fresh.data)),
        ("optimizer", stored.optimizer == fresh.optimizer),
        ("schedule", stored.schedule == fresh.schedule),
        ("run", stored.run == fresh.run),
        ("snapshot", stored.snapshot == fresh.snapshot),
        ("strategy", stored.strategy == fresh.strategy && stored.devices == fresh.devices),
        ("micro_batch", (1..=batch).contains(&micro) && stored.gradient_accumulation == batch.div_ceil(micro)),
    ];
    let wrong = parts.iter().find(|(_, same)| !same).map(|(field, _)| *field);
    wrong.or_else(|| (arena() != stored.memory.arena).then_some("memory.arena"))
}

/// HOME, from the option, the environment or the platform. Errors: `HomeUnsuitable` where none says.
pub fn home_path(option: Option<&Path>) -> Outcome<PathBuf> {
    let variable = |name: &str| std::env::var_os(name);
    let (own, data, user) = (variable("ANNEAL_HOME"), variable("XDG_DATA_HOME"), variable("HOME"));
    absolute(&store::home::choose(option, own.as_deref(), data.as_deref(), user.as_deref())?)
}

/// Makes HOME where it is missing. Errors: `HomeUnsuitable`.
pub fn make_home(path: &Path) -> Outcome<()> {
    store::home::make(path)
}

/// A HOME for one question, gone with it.
struct Passing {
    path: PathBuf,
}

impl Passing {
    fn new() -> Outcome<Passing> {
        let path = std::env::temp_dir().join(format!("anneal-look-{}-{}", std::process::id(), now_ms()));
        Home::open(&path)?;
        Ok(Passing { path })
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Milliseconds since the Unix epoch.
fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A path from the root, so that processes with another working folder mean the same file.
pub(crate) fn absolute(path: &Path) -> Outcome<PathBuf> {
    std::path::absolute(path).map_err(|e| Problem::io(&e, "finding", path))
}

/// The spec of a look at data: everything else at its default.
pub(crate) fn look_spec(model: PathBuf, data: PathBuf, stage: Stage) -> JobSpec {
    JobSpec {
        version: 1,
        name: None,
        stage,
        model: protocol::job::ModelSpec { path: Some(model), ..Default::default() },
        data: protocol::job::DataSpec {
            train: vec![data],
            evaluation: EvaluationData::default(),
            max_length: Default::default(),
            packing: false,
            too_long: Default::default(),
            columns: Default::default(),
            roles: Default::default(),
            encoding: "utf-8".into(),
            rows: Default::default(),
            special_tokens_in_text: false,
        },
        optimizer: Default::default(),
        schedule: Default::default(),
        run: Default::default(),
        snapshot: Default::default(),
        machine: Default::default(),
    }
}

/// A built-in shape before its vocabulary is known.
pub(crate) fn sketch(spec: &JobSpec) -> Outcome<protocol::facts::ModelConfig> {
    plan::preset(spec.model.preset.as_deref().unwrap_or_default(), 512)
}

/// Reads a small text file. Errors: `TooLarge`, `FileMalformed` when it is not UTF-8, `FileUnreadable`.
pub(crate) fn read_bounded(path: &Path, limit: u64) -> Outcome<String> {
    let unreadable = |e: std::io::Error| Problem::io(&e, "reading", path);
    let file = std::fs::OpenOptions::new().read(true).open(path).map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(Problem::new(Code::FileUnreadable, "this is not a file").file(path));
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > limit {
        return Err(Problem::new(Code::TooLarge, format!("more than {limit} bytes")).file(path));
    }
    String::from_utf8(bytes).map_err(|_| Problem::new(Code::FileMalformed, "this file is not UTF-8 text").file(path))
}

/// Writes a file unless it already holds these bytes.
pub(crate) fn write_if_different(path: &Path, bytes: &[u8]) -> Outcome<()> {
    if std::fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    std::fs::write(path, bytes).map_err(|e| Problem::io(&e, "writing", path))
}
