//! What the columns of a row mean, and the record that a row of a layout is.
//!
//! Not here: which layout rows have (`recognise.rs`), whose names say what (`roles.rs`), what a row that fits badly is told
//! (`protocol::rows`).

mod answers;
mod messages;
mod parts;
mod preference;
mod quick;
mod recognise;
mod roles;
mod tools;
mod values;

pub(super) use quick::Quick;
pub(super) use recognise::{Probe, by_columns};
pub(super) use values::{add_columns, parse};

use super::rules::Rules;
use super::{Content, Conversation};
use minijinja::Value;
use protocol::job::Stage;
use protocol::{Code, Outcome, Problem};
use std::collections::BTreeMap;
use values::{get, is_blank};

/// Why a row gives no record.
pub(super) type Bad = (Code, String);

/// Layouts that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Alpaca,
    PromptAnswer,
    Messages,
    Sharegpt,
    Text,
    Preference,
    Labelled,
}

/// Layout of the rows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layout {
    kind: Kind,
    /// What a column means, of `recognise::MEANINGS`, to its name. Not all need be in every row.
    columns: BTreeMap<&'static str, String>,
}

/// A row while it is read: what the job says of such rows, and what had to be converted.
pub(super) struct Reading<'a> {
    pub rules: &'a Rules,
    pub converted: Vec<Bad>,
}

impl<'a> Reading<'a> {
    pub fn new(rules: &'a Rules) -> Reading<'a> {
        Reading { rules, converted: Vec::new() }
    }

    /// Passes what the job converts, and remembers it; anything else is why the row is no record.
    pub fn convert(&mut self, bad: Bad) -> Result<(), Bad> {
        if !self.rules.converts(bad.0) {
            return Err(bad);
        }
        self.converted.push(bad);
        Ok(())
    }
}

impl Layout {
    fn new<S: Into<String>>(kind: Kind, columns: impl IntoIterator<Item = (&'static str, S)>) -> Layout {
        Layout { kind, columns: columns.into_iter().map(|(meaning, name)| (meaning, name.into())).collect() }
    }

    /// The one layout of text files.
    pub fn plain() -> Layout {
        Layout::new(Kind::Text, [("text", "text")])
    }

    pub fn name(&self) -> &'static str {
        match self.kind {
            Kind::Alpaca => "alpaca",
            Kind::PromptAnswer => "prompt_answer",
            Kind::Messages => "messages",
            Kind::Sharegpt => "sharegpt",
            Kind::Text => "text",
            Kind::Preference => "preference",
            Kind::Labelled => "labelled",
        }
    }

    /// The stage it is for.
    pub fn stage(&self) -> Option<Stage> {
        match self.kind {
            Kind::Text => Some(Stage::Pretrain),
            Kind::Preference | Kind::Labelled => None,
            _ => Some(Stage::Sft),
        }
    }

    /// What a column means to its name, of the columns that there are.
    pub fn mapping(&self, columns: &[String]) -> BTreeMap<String, String> {
        let there = self.columns.iter().filter(|(_, name)| columns.contains(name));
        there.map(|(meaning, name)| (meaning.to_string(), name.clone())).collect()
    }

    /// The same with what the user says of some columns. Errors: `SettingInvalid` for what this layout has no use of.
    pub fn changed(mut self, columns: &BTreeMap<String, String>) -> Outcome<Layout> {
        for (meaning, name) in columns {
            let known = self.kind.meanings();
            let Some(key) = known.iter().find(|known| *known == meaning) else {
                let what = format!("rows of the layout {} have no column that is \"{meaning}\"", self.name());
                return Err(Problem::new(Code::SettingInvalid, what)
                    .field("data.columns")
                    .remedy(format!("use {}", known.join(", "))));
            };
            self.columns.insert(key, name.clone());
        }
        Ok(self)
    }

    /// The record of a row.
    pub fn content(&self, row: &Value, reading: &mut Reading) -> Result<Content, Bad> {
        if self.kind == Kind::Text {
            let column = self.column("text");
            let text = reading.text(&get(row, column), column)?;
            return plain_text(text.ok_or_else(|| values::missing(row, column))?);
        }
        parts::no_media_columns(row)?;
        match self.kind {
            Kind::Preference => self.preference(row, reading),
            Kind::Labelled => self.labelled(row, reading),
            _ => {
                let turns = messages::answered(self.turns(row, reading)?, reading)?;
                Ok(Content::Messages(Conversation { turns, tools: self.tools(row)? }))
            }
        }
    }

    /// What is said in a row.
    fn turns(&self, row: &Value, reading: &mut Reading) -> Result<Vec<Value>, Bad> {
        match self.columns.contains_key("messages") {
            true => self.conversation(row, reading),
            false => self.question_and_answer(row, reading),
        }
    }

    fn tools(&self, row: &Value) -> Result<Option<Value>, Bad> {
        self.columns.get("tools").map_or(Ok(None), |column| tools::defined(&get(row, column), column))
    }

    /// The name of a column that every row of the layout needs.
    fn column(&self, meaning: &str) -> &str {
        self.columns.get(meaning).map_or("", String::as_str)
    }
}

/// A text record; blank ones teach nothing.
pub(super) fn plain_text(text: String) -> Result<Content, Bad> {
    if is_blank(&text) {
        return Err((Code::EmptyAnswer, "the text is empty".into()));
    }
    Ok(Content::Text(text))
}

#[cfg(test)]
mod quick_tests;
#[cfg(test)]
mod tests;
