//! Rows of tables that are stored by columns (Parquet, Arrow): a batch of rows is in memory at a time, and what a file
//! decodes to is held against its size on disk.
//!
//! Not here: the files (`parquet`, `arrow`), what a cell is (`cells`).

use super::cells;
use super::stream::{Body, Raw};
use arrow_array::RecordBatch;
use minijinja::Value;
use protocol::{Code, Outcome, Problem, limits};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// What a row costs beside its cells, in bytes: a file of nothing but nulls ends too.
const ROW: u64 = 64;

/// A file that gives batches of rows.
pub(super) trait Batches {
    fn next(&mut self) -> Outcome<Option<RecordBatch>>;

    /// Bytes of the file that were read.
    fn position(&self) -> u64;
}

/// The rows of a file.
pub(super) struct Columns {
    batches: Box<dyn Batches + Send>,
    batch: Option<RecordBatch>,
    names: Vec<Value>,
    at: usize,
    row: u64,
    decoded: u64,
    allowed: u64,
    path: PathBuf,
}

impl Columns {
    pub fn new(batches: Box<dyn Batches + Send>, path: &Path, length: u64) -> Columns {
        let (batch, names, path) = (None, Vec::new(), path.to_owned());
        Columns { batches, batch, names, at: 0, row: 0, decoded: 0, allowed: allowed(length), path }
    }

    pub fn position(&self) -> u64 {
        self.batches.position()
    }

    pub fn next(&mut self) -> Outcome<Option<Raw>> {
        loop {
            let Some(batch) = &self.batch else {
                let Some(batch) = self.batches.next()? else { return Ok(None) };
                self.names = names(&batch);
                self.batch = Some(batch);
                self.at = 0;
                continue;
            };
            if self.at == batch.num_rows() {
                self.batch = None;
                continue;
            }
            let (at, names) = (self.at, &self.names);
            let (row, bytes) = guarded("reading", &self.path, || Ok::<_, String>(cells::row(batch, names, at)))?;
            self.at += 1;
            self.row += 1;
            self.decoded += ROW + bytes as u64;
            if self.decoded > self.allowed {
                return Err(too_large(self.allowed)
                    .why(format!("the limit is reached in row {}", self.row))
                    .file(&self.path));
            }
            return Ok(Some(Raw::row(self.row, row.map(Body::Row))));
        }
    }
}

/// Decoded bytes that are read of a file of this length.
pub(super) fn allowed(length: u64) -> u64 {
    limits::DECODED_BYTES.max(length.saturating_mul(limits::DECODED_RATIO))
}

/// The refusal of a file that decodes to more than `allowed` bytes.
pub(super) fn too_large(allowed: u64) -> Problem {
    let what = format!(
        "the table is too large: decoded it has more than {} MB, which is the limit for a file of its size",
        allowed >> 20
    );
    Problem::new(Code::TooLarge, what).remedy("if this is no mistake, export it as JSON lines")
}

/// Runs foreign code on foreign data: errors and panics of it become a problem.
pub(super) fn guarded<T, E: ToString>(doing: &str, path: &Path, run: impl FnOnce() -> Result<T, E>) -> Outcome<T> {
    let failed = |why: String| {
        let what = format!("{doing} the table failed: the file does not follow its format");
        let why = why.escape_debug().to_string().chars().take(300).collect::<String>();
        Problem::new(Code::FileMalformed, what).why(why).file(path).remedy("export or download the file again")
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => Err(failed(e.to_string())),
        Err(_) => Err(failed("it contradicts itself".into())),
    }
}

/// Refuses columns that no row can show.
pub(super) fn readable(schema: &arrow_schema::Schema, path: &Path) -> Outcome<()> {
    let fields = schema.fields();
    let mut seen = std::collections::HashSet::new();
    if let Some(twice) = fields.iter().find(|field| !seen.insert(field.name())) {
        let what = format!("two columns have the name \"{}\"", twice.name().escape_debug());
        return Err(Problem::new(Code::FileMalformed, what).file(path).remedy("give every column a name of its own"));
    }
    match cells::unread(fields) {
        None => Ok(()),
        Some((name, kind)) => {
            let what = format!("the column \"{}\" has the type {kind}, which is not read", name.escape_debug());
            Err(Problem::new(Code::NotSupported, what).file(path).remedy("export the table without this column"))
        }
    }
}

fn names(batch: &RecordBatch) -> Vec<Value> {
    batch.schema_ref().fields().iter().map(|field| Value::from(field.name().as_str())).collect()
}
