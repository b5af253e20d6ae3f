//! Looking at files before there is a job: facts of models and data, single records, lists of records.
//!
//! Data is read by `anneal-trainer read` and `anneal-trainer rows`, within limits on memory and time: whatever a file holds,
//! the window and the command line go on. Not here: how a dropped path is recognised (`intake`).

use crate::engine::{Engine, OnLine, absolute, look_spec, sketch};
use crate::intake;
use crate::rows::RowsReader;
use protocol::facts::{DatasetFacts, ItemFacts, Preview};
use protocol::job::{Auto, DataSpec, Stage};
use protocol::look::LookAtRows;
use protocol::problem::{Code, Outcome, Problem};
use protocol::verb;
use protocol::{JobSpec, limits};
use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// A job that only says how data is read.
const READING: &str = "stage = \"sft\"\n[model]\npreset = \"nano\"\n[data]\ntrain = [\"data\"]\n";

impl Engine {
    /// Facts of dropped paths; data is read as these changes say ("data.rows.empty_answer=refuse").
    /// Errors: `SettingInvalid` for a change that is none of data.
    pub fn inspect(&self, paths: &[PathBuf], changes: &[String], on_line: OnLine) -> Outcome<Vec<ItemFacts>> {
        if let Some(other) = changes.iter().find(|change| !change.starts_with("data.")) {
            return Err(Problem::new(Code::SettingInvalid, format!("\"{other}\" says nothing of how data is read"))
                .remedy("change a setting of data, as data.encoding=gb18030 or data.rows.row_not_json=skip"));
        }
        let data = JobSpec::parse(READING, changes, Path::new("/"))?.data;
        Ok(self.look_at(paths, &data, 0, on_line))
    }

    /// The same, a large data set only in its beginning: `complete` tells.
    pub fn first_look(&self, paths: &[PathBuf]) -> Outcome<Vec<ItemFacts>> {
        let data = JobSpec::parse(READING, &[], Path::new("/"))?.data;
        Ok(self.look_at(paths, &data, limits::FIRST_LOOK_BYTES, &mut |_| {}))
    }

    /// Facts of one data set, read as a job would; how far it is comes through `on_line`.
    pub fn inspect_data(&self, path: &Path, data: &DataSpec, on_line: OnLine) -> Outcome<ItemFacts> {
        let facts = self.look_at(&[path.to_owned()], data, 0, on_line).pop();
        facts.ok_or_else(|| Problem::internal("a path was looked at and nothing was told of it"))
    }

    fn look_at(&self, paths: &[PathBuf], data: &DataSpec, most_bytes: u64, on_line: OnLine) -> Vec<ItemFacts> {
        let on_line = RefCell::new(on_line);
        let look = |path: &Path| -> Outcome<DatasetFacts> {
            let (path, data) = (absolute(path)?, Box::new(data.clone()));
            let request = verb::Read::Inspect { path, data, most_bytes };
            self.read(&request, &mut |line| (on_line.borrow_mut())(line))
        };
        intake::inspect(paths, data, &look)
    }

    /// One record as the trainer will see it. `row` counts from 1, over all training files.
    pub fn preview(&self, spec: &JobSpec, row: u64) -> Outcome<Preview> {
        let max_length = self.row_limit(spec)?;
        self.read(&verb::Read::Preview { spec: Box::new(spec.clone()), row, max_length }, &mut |_| {})
    }

    /// A reader of the rows that a job would learn from, to be asked while they are looked at.
    pub fn rows(&self, spec: &JobSpec) -> Outcome<RowsReader> {
        let max_length = self.row_limit(spec)?;
        RowsReader::open(&self.trainer, &LookAtRows { spec: Box::new(spec.clone()), max_length })
    }

    /// Longest row of a job, in tokens.
    fn row_limit(&self, spec: &JobSpec) -> Outcome<u32> {
        let context = match &spec.model.path {
            Some(path) => formats::model_folder::ModelFolder::open(path)?.config().context,
            None => sketch(spec)?.context,
        };
        Ok(plan::max_length(spec, context).0)
    }

    /// The job that a look at a model and data alone means: answers are learnt, or texts as a whole.
    pub fn look_job(&self, model: &Path, data: &Path, max_length: Option<u32>) -> Outcome<JobSpec> {
        let (model, data) = (absolute(model)?, absolute(data)?);
        let mut spec = look_spec(model, data.clone(), self.stage_of(&data)?);
        if let Some(limit) = max_length {
            spec.data.max_length = Auto::Is(limit);
        }
        Ok(spec)
    }

    /// Text rows are learnt whole; anything else is a conversation.
    pub(crate) fn stage_of(&self, data: &Path) -> Outcome<Stage> {
        match self.first_look(&[data.to_owned()])?.pop() {
            // Rows that cannot be used are shown as such by a preview, and refuse an evaluation by themselves.
            Some(ItemFacts { dataset: Some(d), .. }) if d.usable_rows > 0 => Ok(d.stage.unwrap_or(Stage::Sft)),
            Some(ItemFacts { problem: Some(problem), .. }) => Err(problem),
            _ => Err(Problem::new(Code::FormatUnknown, "this is not a data set").file(data)),
        }
    }
}
