//! Prompt and answer in columns of their own: alpaca's, and pairs under other names.

use super::messages::listed;
use super::values::{get, has, invalid, is_absent, is_blank, is_list, items, missing, shape};
use super::{Bad, Layout, Reading};
use crate::template::{Turn, turn};
use minijinja::Value;
use protocol::Code;

impl Layout {
    /// System, earlier questions and answers, the question, the answer.
    pub(super) fn question_and_answer(&self, row: &Value, reading: &mut Reading) -> Result<Vec<Turn>, Bad> {
        let mut turns = self.asked(row, reading)?;
        let column = self.column("answer");
        let answer = get(row, column);
        if answer.is_undefined() {
            return Err(missing(row, column));
        }
        if is_list(&answer) {
            turns.extend(listed(&answer, reading)?);
            return Ok(turns);
        }
        let text = reading.text(&answer, column)?.filter(|text| !is_blank(text));
        let empty = || (Code::EmptyAnswer, format!("the answer ({}) is empty", column.escape_debug()));
        turns.push(turn("assistant", &text.ok_or_else(empty)?));
        Ok(turns)
    }

    /// All that comes before the answer.
    pub(super) fn asked(&self, row: &Value, reading: &mut Reading) -> Result<Vec<Turn>, Bad> {
        let mut turns: Vec<Turn> = self.system(row, reading)?.into_iter().collect();
        if let Some(column) = self.columns.get("history") {
            turns.extend(earlier(row, column, reading)?);
        }
        let column = self.column("prompt");
        let prompt = get(row, column);
        if is_list(&prompt) {
            turns.extend(listed(&prompt, reading)?);
        } else {
            turns.push(turn("user", &self.question(row, column, reading)?));
        }
        Ok(turns)
    }

    /// Instruction, then a newline and the input if there is one.
    fn question(&self, row: &Value, column: &str, reading: &mut Reading) -> Result<String, Bad> {
        let input = match self.columns.get("input") {
            Some(input) => reading.text(&get(row, input), input)?.unwrap_or_default(),
            None => String::new(),
        };
        let prompt = reading.text(&get(row, column), column)?.unwrap_or_default();
        match (is_blank(&prompt), is_blank(&input)) {
            (true, true) if !has(row, column) => Err(missing(row, column)),
            (true, true) => Err(invalid(format!("{} is empty", column.escape_debug()))),
            (true, false) => Ok(input),
            (false, true) => Ok(prompt),
            (false, false) => Ok(format!("{prompt}\n{input}")),
        }
    }
}

/// Alpaca's `history`: pairs of earlier questions and answers.
fn earlier(row: &Value, column: &str, reading: &mut Reading) -> Result<Vec<Turn>, Bad> {
    let history = get(row, column);
    if is_absent(&history) {
        return Ok(Vec::new());
    }
    let bad = || shape(format!("{} is no list of pairs of question and answer", column.escape_debug()));
    if !is_list(&history) {
        return Err(bad());
    }
    let mut turns = Vec::new();
    for pair in items(&history) {
        let [question, answer] = items(&pair).try_into().map_err(|_| bad())?;
        let mut said = |value: &Value| reading.text(value, column)?.ok_or_else(bad);
        let (question, answer) = (said(&question)?, said(&answer)?);
        if is_blank(&answer) {
            return Err((Code::EmptyAnswer, format!("an answer in {} is empty", column.escape_debug())));
        }
        turns.extend([turn("user", &question), turn("assistant", &answer)]);
    }
    Ok(turns)
}
