//! Looking at the rows of a data set as a job would learn them: what is asked of `anneal-trainer rows`, a sandboxed reader
//! that stays while it is looked at. The first line it gets is a [`LookAtRows`], every further one a [`RowsAsk`], answered
//! by the lines of `verb::Line`.

use crate::facts::RowProblem;
use crate::job::JobSpec;
use serde::{Deserialize, Serialize};

/// What is looked at: the training data of a job, through the tokenizer and template of its model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LookAtRows {
    /// The job.
    pub spec: Box<JobSpec>,
    /// Longest row in tokens.
    pub max_length: u32,
}

/// A question about the rows. Rows count from 1 over all training files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum RowsAsk {
    /// Rows one after the other, at most `limits::LISTED_ROWS`. Result: [`RowPage`].
    Page {
        /// The first one.
        from: u64,
        /// How many.
        count: u32,
    },
    /// One row with all of its tokens. Result: `facts::Preview`.
    Row {
        /// Which.
        row: u64,
    },
    /// The next row that says something, searched for about a second. Result: [`FoundRow`].
    Find {
        /// What; upper and lower case are the same.
        text: String,
        /// The first row looked at.
        from: u64,
    },
}

/// Part of the list of rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct RowPage {
    /// The rows, fewer than asked for at the end of the data.
    pub rows: Vec<RowLine>,
    /// Rows known so far: a large data set is counted while it is looked at.
    pub known: u64,
    /// All rows are known.
    pub complete: bool,
}

/// A row in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct RowLine {
    /// Row, from 1.
    pub row: u64,
    /// What comes before the first answer, its beginning; empty for plain text.
    pub prompt: String,
    /// The first answer, or the text, its beginning.
    pub answer: String,
    /// Tokens before any cut; 0 where the row cannot be used.
    pub tokens: u64,
    /// Tokens that are trained.
    pub trained: u64,
    /// Over the length limit.
    pub too_long: bool,
    /// Why it cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub problem: Option<RowProblem>,
}

/// What a search came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct FoundRow {
    /// The row, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub row: Option<u64>,
    /// Where to go on: the second was over before the data was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub next: Option<u64>,
}

/// What tokenising found out about a data set as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Survey {
    /// Records by their length in tokens before any cut.
    pub lengths: Vec<LengthBin>,
    /// Records over the limit.
    pub too_long: u64,
    /// The shortest record that is learnt: its row and its length in tokens.
    pub shortest: Option<(u64, u64)>,
    /// The longest record.
    pub longest: Option<(u64, u64)>,
}

/// Records of about the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct LengthBin {
    /// Shortest, in tokens.
    pub from: u64,
    /// Past the longest.
    pub to: u64,
    /// Records.
    pub rows: u64,
}
