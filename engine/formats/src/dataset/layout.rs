//! What the columns of a row mean.

use super::Content;
use crate::template::{Turn, turn};
use minijinja::Value;
use minijinja::value::ValueKind;
use protocol::{Code, Outcome, Problem};
use std::collections::BTreeMap;

/// Layout of the rows, by column.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Layout {
    /// Prompt and answer: alpaca, or two columns that the user named.
    Answers { prompt: String, input: Option<String>, answer: String, system: Option<String>, history: Option<String> },
    /// OpenAI's messages.
    Messages(String),
    /// Plain text.
    Text(String),
}

/// Why a row gives no record.
type Bad = (Code, String);

fn invalid(what: impl Into<String>) -> Bad {
    (Code::RowInvalid, what.into())
}

impl Layout {
    /// The one layout of text files.
    pub fn plain() -> Layout {
        Layout::Text("text".into())
    }

    pub fn name(&self) -> &'static str {
        match self {
            Layout::Answers { .. } => "alpaca",
            Layout::Messages(_) => "messages",
            Layout::Text(_) => "text",
        }
    }

    /// The layout a user named by columns; None when he named none.
    pub fn mapped(columns: &BTreeMap<String, String>) -> Outcome<Option<Layout>> {
        if columns.is_empty() {
            return Ok(None);
        }
        let bad = |what: String| Err(Problem::new(Code::SettingInvalid, what).field("data.columns"));
        let known = ["prompt", "answer", "system", "text", "messages"];
        if let Some(role) = columns.keys().find(|role| !known.contains(&role.as_str())) {
            return bad(format!("\"{}\" is no role of a column; use {}", role.escape_debug(), known.join(", ")));
        }
        let get = |role: &str| columns.get(role).cloned();
        let system = get("system");
        match (get("prompt"), get("answer"), get("text"), get("messages")) {
            (Some(prompt), Some(answer), None, None) => {
                Ok(Some(Layout::Answers { prompt, input: None, answer, system, history: None }))
            }
            (None, None, Some(text), None) if system.is_none() => Ok(Some(Layout::Text(text))),
            (None, None, None, Some(messages)) if system.is_none() => Ok(Some(Layout::Messages(messages))),
            _ => bad("name either prompt and answer, or text, or messages".into()),
        }
    }

    /// The layout of a row; the name of a layout that is known but not read yet.
    pub fn of(row: &Value) -> Result<Layout, Option<&'static str>> {
        let has = |key: &str| !get(row, key).is_undefined();
        match () {
            _ if has("chosen") || has("rejected") || has("chosen_messages") => Err(Some("preference pairs (DPO)")),
            _ if has("conversations") || has("conversation") => Err(Some("conversations (ShareGPT)")),
            _ if has("messages") && get(row, "label").kind() == ValueKind::Bool => Err(Some("rated answers (KTO)")),
            _ if has("messages") => Ok(Layout::Messages("messages".into())),
            _ if has("instruction") && has("output") => Ok(Layout::Answers {
                prompt: "instruction".into(),
                input: Some("input".into()),
                answer: "output".into(),
                system: Some("system".into()),
                history: Some("history".into()),
            }),
            _ if has("text") => Ok(Layout::plain()),
            _ => Err(None),
        }
    }

    /// The record of a row.
    pub fn content(&self, row: &Value) -> Result<Content, Bad> {
        match self {
            Layout::Text(column) => {
                let text = text(row, column)?;
                plain_text(text.ok_or_else(|| missing(row, column))?)
            }
            Layout::Messages(column) => messages(row, column).map(Content::Messages),
            Layout::Answers { prompt, input, answer, system, history } => {
                let mut turns = Vec::new();
                let optional = |column: &Option<String>| column.as_ref().map_or(Ok(None), |c| text(row, c));
                turns.extend(optional(system)?.filter(|s| !is_blank(s)).map(|s| turn("system", &s)));
                if let Some(column) = history {
                    turns.extend(earlier(row, column)?);
                }
                turns.push(turn("user", &question(row, prompt, optional(input)?)?));
                turns.push(turn("assistant", &reply(row, answer)?));
                Ok(Content::Messages(turns))
            }
        }
    }
}

/// A text record; blank ones teach nothing.
pub(super) fn plain_text(text: String) -> Result<Content, Bad> {
    if is_blank(&text) {
        return Err((Code::EmptyAnswer, "the text is empty".into()));
    }
    Ok(Content::Text(text))
}

/// A row as an object.
pub(super) fn parse(text: &str) -> Result<Value, Bad> {
    let value: Value = serde_json::from_str(text).map_err(|e| {
        let what = e.to_string();
        if what.contains("recursion") {
            return (Code::RowNotJson, "nested too deeply: JSON of more than 127 levels is not read".into());
        }
        // The parser counts lines of the record, not of the file; within a line only the column means something.
        (
            Code::RowNotJson,
            format!("not JSON: {} (column {})", what.split(" at line").next().unwrap_or_default(), e.column()),
        )
    })?;
    if value.kind() != ValueKind::Map {
        return Err(invalid(format!("the row is {}, not an object with named columns", kind(&value))));
    }
    Ok(value)
}

/// Adds the columns of a row in order of appearance.
pub(super) fn add_columns(row: &Value, columns: &mut Vec<String>, most: usize) -> Result<(), Bad> {
    let keys = row.try_iter().map_err(|_| invalid("the row has no columns"))?;
    for key in keys {
        let name = key.as_str().unwrap_or_default();
        if columns.len() < most && !columns.iter().any(|c| c == name) {
            columns.push(name.to_owned());
        }
    }
    Ok(())
}

/// The refusal of rows whose columns mean nothing here.
pub(super) fn unknown(columns: &[String], foreign: Option<&'static str>, first: Option<String>) -> Problem {
    let named: Vec<String> = columns.iter().take(20).map(|c| c.chars().take(60).collect::<String>()).collect();
    let list = named.join(", ").escape_debug().to_string();
    let remedy = "name the columns, as in data.columns = { prompt = \"question\", answer = \"reply\" }";
    match (foreign, columns.is_empty()) {
        (Some(name), _) => Problem::new(
            Code::LayoutUnknown,
            format!("the rows have the layout of {name}, which comes with a later version"),
        )
        .why(format!("the columns are: {list}"))
        .remedy("convert them to messages: [{\"role\": …, \"content\": …}]"),
        (None, true) => Problem::new(Code::LayoutUnknown, "no row is an object with named columns")
            .why(first.unwrap_or_default())
            .remedy("write one JSON object a row"),
        (None, false) => {
            Problem::new(Code::LayoutUnknown, format!("the columns say nothing known: {list}")).remedy(remedy)
        }
    }
}

fn get(row: &Value, key: &str) -> Value {
    row.get_attr(key).unwrap_or_default()
}

fn is_absent(value: &Value) -> bool {
    value.is_undefined() || value.is_none()
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// The kind of a value, in words of JSON.
fn kind(value: &Value) -> &'static str {
    match value.kind() {
        ValueKind::Undefined => "missing",
        ValueKind::None => "null",
        ValueKind::Bool => "true or false",
        ValueKind::Number => "a number",
        ValueKind::String => "text",
        ValueKind::Map => "an object",
        _ => "a list",
    }
}

fn text(row: &Value, column: &str) -> Result<Option<String>, Bad> {
    let value = get(row, column);
    match value.as_str() {
        Some(text) => Ok(Some(text.to_owned())),
        None if is_absent(&value) => Ok(None),
        None => Err(invalid(format!("{} is {}, not text", column.escape_debug(), kind(&value)))),
    }
}

fn missing(row: &Value, column: &str) -> Bad {
    match get(row, column).is_undefined() {
        true => invalid(format!("the row has no column {}", column.escape_debug())),
        false => (Code::EmptyAnswer, format!("{} is null", column.escape_debug())),
    }
}

/// Instruction, then a newline and the input if there is one.
fn question(row: &Value, column: &str, input: Option<String>) -> Result<String, Bad> {
    let prompt = text(row, column)?.unwrap_or_default();
    let input = input.unwrap_or_default();
    match (is_blank(&prompt), is_blank(&input)) {
        (true, true) => Err(invalid(format!("{} is empty", column.escape_debug()))),
        (true, false) => Ok(input),
        (false, true) => Ok(prompt),
        (false, false) => Ok(format!("{prompt}\n{input}")),
    }
}

fn reply(row: &Value, column: &str) -> Result<String, Bad> {
    let answer = text(row, column)?;
    if answer.is_none() && get(row, column).is_undefined() {
        return Err(missing(row, column));
    }
    answer
        .filter(|a| !is_blank(a))
        .ok_or_else(|| (Code::EmptyAnswer, format!("the answer ({}) is empty", column.escape_debug())))
}

/// Alpaca's `history`: pairs of earlier questions and answers.
fn earlier(row: &Value, column: &str) -> Result<Vec<Turn>, Bad> {
    let history = get(row, column);
    if is_absent(&history) {
        return Ok(Vec::new());
    }
    let bad = || invalid(format!("{column} is no list of pairs of question and answer"));
    if history.kind() != ValueKind::Seq {
        return Err(bad());
    }
    let mut turns = Vec::new();
    for pair in history.try_iter().map_err(|_| bad())? {
        let pair: Vec<Value> = pair.try_iter().map_err(|_| bad())?.collect();
        let [Some(question), Some(answer)] = [0, 1].map(|i| pair.get(i).and_then(|v| v.as_str())) else {
            return Err(bad());
        };
        if is_blank(answer) {
            return Err((Code::EmptyAnswer, format!("an answer in {column} is empty")));
        }
        turns.extend([turn("user", question), turn("assistant", answer)]);
    }
    Ok(turns)
}

fn messages(row: &Value, column: &str) -> Result<Vec<Turn>, Bad> {
    let list = get(row, column);
    if list.kind() != ValueKind::Seq {
        let what = format!("{} is {}, not a list of messages", column.escape_debug(), kind(&list));
        return Err(invalid(what));
    }
    let tools = get(row, "tools");
    if tools.is_true() && tools.as_str() != Some("[]") {
        return Err(invalid("the row defines tools, which come with a later version"));
    }
    let turns: Vec<Turn> = list.try_iter().map_err(|_| invalid("the messages cannot be listed"))?.collect();
    let mut answers = 0;
    for (i, turn) in turns.iter().enumerate() {
        answers += usize::from(message(turn).map_err(|(code, what)| (code, format!("message {}: {what}", i + 1)))?);
    }
    if answers == 0 {
        return Err(invalid("no message is an assistant's, so there is nothing to learn"));
    }
    Ok(turns)
}

/// Checks a message; true when it is an assistant's.
fn message(turn: &Turn) -> Result<bool, Bad> {
    if turn.kind() != ValueKind::Map {
        return Err(invalid(format!("it is {}, not an object with role and content", kind(turn))));
    }
    let role = get(turn, "role");
    let Some(role) = role.as_str() else {
        return Err(invalid(format!("role is {}, not text", kind(&role))));
    };
    let content = get(turn, "content");
    let assistant = role == "assistant";
    let calls = assistant && get(turn, "tool_calls").is_true();
    match content.as_str() {
        Some(text) if assistant && !calls && is_blank(text) => Err((Code::EmptyAnswer, "the answer is empty".into())),
        Some(_) => Ok(assistant),
        None if is_absent(&content) && calls => Ok(true),
        None if is_absent(&content) && assistant => Err((Code::EmptyAnswer, "the answer is empty".into())),
        None => Err(invalid(format!("content is {}, not text", kind(&content)))),
    }
}
