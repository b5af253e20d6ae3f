//! What a run folder's quiet files (spec, plan, labels) say of a job, as far as lists and searches need it.

use super::compare::flatten;
use protocol::job::EvaluationData;
use protocol::plan::ModelSource;
use protocol::record::Labels;
use protocol::{JobSpec, Plan, Problem};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use store::run::RunFolder;

/// What the files say. A file that cannot be read leaves its part empty: the job is listed all the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Hash of the stamps of the files this was read from.
    pub stamp: i64,
    /// A file could not be read; it may be mended without any other sign.
    pub incomplete: bool,
    /// Name of the spec, or made from model and data.
    pub name: String,
    /// Model, by name.
    pub model: String,
    /// Data, by name.
    pub data: String,
    /// Stage.
    pub stage: String,
    /// Steps planned.
    pub steps: u64,
    /// What the user says of it.
    pub labels: Labels,
}

/// Settings under their dotted keys: as asked, and as decided where that was left open. Kept apart from the description,
/// because only a search that names one opens them.
pub type Settings = BTreeMap<String, Value>;

impl Description {
    /// Reads the files. The problems name those that could not be read. What a job file said that was read `before` is kept
    /// when it cannot be read any more.
    pub fn read(folder: &RunFolder, stamp: i64, before: &Description) -> (Description, Settings, Vec<Problem>) {
        let mut problems = Vec::new();
        let mut kept = |problem: Problem| problems.push(problem);
        let spec = folder.spec().map_err(&mut kept).ok();
        let plan = folder.plan().map_err(&mut kept).ok();
        let labels = folder.labels().map_err(&mut kept).unwrap_or_default();
        let mut description = Description { stamp, name: folder.id().to_owned(), labels, ..Description::default() };
        let mut settings = Settings::new();
        if let Some(spec) = &spec {
            description.take_spec(spec);
            settings.extend(flatten(&json!(spec)));
        } else if !before.model.is_empty() {
            description.take_before(before);
        } else if let Some(plan) = &plan {
            description.take_plan(plan);
        }
        if let Some(plan) = &plan {
            description.steps = plan.run.steps;
            settings.extend(decided(plan));
        }
        description.incomplete = !problems.is_empty();
        settings.retain(|_, value| !value.is_null() && *value != "auto");
        (description, settings, problems)
    }

    /// The name to show: the label's before the spec's.
    pub fn shown_name(&self) -> &str {
        self.labels.name.as_deref().unwrap_or(&self.name)
    }

    fn take_before(&mut self, before: &Description) {
        self.name.clone_from(&before.name);
        self.model.clone_from(&before.model);
        self.data.clone_from(&before.data);
        self.stage.clone_from(&before.stage);
    }

    /// Less than the job file says: a plan names neither the data files nor the job.
    fn take_plan(&mut self, plan: &Plan) {
        self.stage = text_of(json!(plan.stage));
        self.model = match &plan.model.source {
            ModelSource::Folder { path } => file_name(path),
            ModelSource::Scratch => plan.model.config.architecture.clone(),
        };
    }

    fn take_spec(&mut self, spec: &JobSpec) {
        self.model = model_name(spec);
        self.data = data_name(spec);
        self.stage = text_of(json!(spec.stage));
        self.name = spec.name.clone().unwrap_or_else(|| format!("{} on {}", self.model, self.data));
    }
}

/// The plan has an answer where the spec says "auto".
fn decided(plan: &Plan) -> Settings {
    flatten(&json!({
        "optimizer": plan.optimizer, "run": plan.run, "method": plan.method, "precision": plan.precision,
        "micro_batch": plan.micro_batch, "gradient_accumulation": plan.gradient_accumulation,
        "data": {"max_length": plan.data.max_length}, "machine": {"devices": plan.devices},
    }))
}

fn model_name(spec: &JobSpec) -> String {
    match (&spec.model.path, &spec.model.preset) {
        (Some(path), _) => file_name(path),
        (None, Some(preset)) => preset.clone(),
        (None, None) => String::new(),
    }
}

fn data_name(spec: &JobSpec) -> String {
    let names: Vec<String> = spec.data.train.iter().map(|path| file_name(path)).collect();
    let evaluation = match &spec.data.evaluation {
        EvaluationData::Fraction(_) => Vec::new(),
        EvaluationData::Path(path) => vec![file_name(path)],
        EvaluationData::Paths(paths) => paths.iter().map(|path| file_name(path)).collect(),
    };
    match evaluation.is_empty() {
        true => names.join(", "),
        false => format!("{} (evaluated on {})", names.join(", "), evaluation.join(", ")),
    }
}

/// Names are shown escaped: a file's name may hold anything.
fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    name.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

fn text_of(value: Value) -> String {
    value.as_str().map(str::to_owned).unwrap_or_else(|| value.to_string())
}
