//! Pairs of a better and a worse answer, and answers that are labelled as good or bad. They are recognised and counted; the
//! stages that learn from them come with a later version.

use super::messages::{listed, message};
use super::values::{get, has, is_absent, is_blank, is_list, kind, missing, shape};
use super::{Bad, Content, Layout, Reading};
use crate::template::{Turn, turn};
use minijinja::Value;
use minijinja::value::ValueKind;
use protocol::Code;

impl Layout {
    /// What was asked, where it stands by itself, and two answers to it.
    pub(super) fn preference(&self, row: &Value, reading: &mut Reading) -> Result<Content, Bad> {
        let asked = match (self.columns.get("messages"), self.columns.get("prompt")) {
            (Some(_), _) => self.conversation(row, reading)?,
            (None, Some(column)) if has(row, column) => self.asked(row, reading)?,
            _ => self.system(row, reading)?.into_iter().collect(),
        };
        let mut answer = |meaning| self.said(row, self.column(meaning), reading);
        Ok(Content::Preference { asked, chosen: answer("chosen")?, rejected: answer("rejected")? })
    }

    /// A conversation, and whether its answer is good.
    pub(super) fn labelled(&self, row: &Value, reading: &mut Reading) -> Result<Content, Bad> {
        let column = self.column("label");
        let label = get(row, column);
        if label.is_undefined() {
            return Err(missing(row, column));
        }
        let good = truth(&label)
            .ok_or_else(|| shape(format!("{} is {}, not true or false", column.escape_debug(), kind(&label))))?;
        Ok(Content::Labelled { turns: super::messages::answered(self.turns(row, reading)?, reading)?, good })
    }

    /// An answer as text, as one message or as several.
    fn said(&self, row: &Value, column: &str, reading: &mut Reading) -> Result<Vec<Turn>, Bad> {
        let value = get(row, column);
        let empty = || (Code::EmptyAnswer, format!("the answer ({}) is empty", column.escape_debug()));
        if is_absent(&value) {
            return Err(missing(row, column));
        }
        if is_list(&value) {
            let turns = listed(&value, reading)?;
            return if turns.is_empty() { Err(empty()) } else { Ok(turns) };
        }
        if value.kind() == ValueKind::Map {
            return Ok(vec![message(&value, reading)?]);
        }
        let text = reading.text(&value, column)?.filter(|text| !is_blank(text)).ok_or_else(empty)?;
        Ok(vec![turn("assistant", &text)])
    }
}

/// A label as data sets write it.
fn truth(value: &Value) -> Option<bool> {
    match value.kind() {
        ValueKind::Bool => Some(value.is_true()),
        ValueKind::Number => match f64::try_from(value.clone()).ok()? {
            0.0 => Some(false),
            1.0 => Some(true),
            _ => None,
        },
        _ => match value.as_str()?.trim().to_ascii_lowercase().as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        },
    }
}
