//! Which layout rows have: by the names of their columns and what is in them, and by what the user says of them.

use super::values::{get, has, is_list, items};
use super::{Kind, Layout};
use minijinja::Value;
use minijinja::value::ValueKind;
use protocol::{Code, Outcome, Problem};
use std::collections::BTreeMap;

/// What a column may mean.
const MEANINGS: [&str; 11] =
    ["prompt", "input", "answer", "system", "history", "text", "messages", "tools", "chosen", "rejected", "label"];

/// Names of columns, those that say most by themselves first.
const CONVERSATIONS: [&str; 4] = ["messages", "conversations", "conversation", "dialogue"];
const PROMPTS: [&str; 10] =
    ["prompt", "question", "query", "instruction", "problem", "input", "inputs", "user", "human", "source"];
const ANSWERS: [&str; 12] = [
    "completion",
    "response",
    "answer",
    "output",
    "solution",
    "reply",
    "outputs",
    "target",
    "targets",
    "assistant",
    "gpt",
    "summary",
];
const SYSTEMS: [&str; 3] = ["system", "system_prompt", "system_message"];
const TOOLS: [&str; 2] = ["tools", "functions"];
const PAIRS: [[&str; 2]; 5] = [
    ["chosen", "rejected"],
    ["chosen_messages", "rejected_messages"],
    ["chosen_response", "rejected_response"],
    ["response_chosen", "response_rejected"],
    ["accepted", "rejected"],
];
const LABELS: [&str; 2] = ["kto_tag", "label"];

impl Kind {
    /// What its columns may mean.
    pub(super) fn meanings(self) -> &'static [&'static str] {
        match self {
            Kind::Alpaca | Kind::PromptAnswer => &["prompt", "input", "answer", "system", "history", "tools"],
            Kind::Messages | Kind::Sharegpt => &["messages", "system", "tools"],
            Kind::Text => &["text"],
            Kind::Preference => &["prompt", "input", "system", "history", "messages", "chosen", "rejected", "tools"],
            Kind::Labelled => &["prompt", "input", "answer", "system", "history", "messages", "label", "tools"],
        }
    }
}

/// The first of these that a row has.
fn first(row: &Value, names: &[&'static str]) -> Option<&'static str> {
    names.iter().find(|name| has(row, name)).copied()
}

/// The layout of a row by itself.
fn of(row: &Value) -> Option<Layout> {
    pairs(row).or_else(|| conversation(row)).or_else(|| answers(row)).or_else(|| has(row, "text").then(Layout::plain))
}

fn pairs(row: &Value) -> Option<Layout> {
    let [chosen, rejected] = *PAIRS.iter().find(|[a, b]| has(row, a) && has(row, b))?;
    let mut columns = vec![("chosen", chosen), ("rejected", rejected)];
    match first(row, &CONVERSATIONS) {
        Some(name) => columns.push(("messages", name)),
        None => columns.extend(first(row, &PROMPTS).map(|name| ("prompt", name))),
    }
    columns.extend(beside(row));
    Some(Layout::new(Kind::Preference, columns))
}

fn conversation(row: &Value) -> Option<Layout> {
    // A text under such a name is no conversation, except under the one name that means nothing else.
    let name =
        CONVERSATIONS.into_iter().find(|name| is_list(&get(row, name)) || (*name == "messages" && has(row, name)))?;
    let mut columns = vec![("messages", name)];
    columns.extend(beside(row));
    let shared = items(&get(row, name)).first().map_or(name != "messages", |message| has(message, "from"));
    let kind = if shared { Kind::Sharegpt } else { Kind::Messages };
    Some(labelled(row, Layout::new(kind, columns)))
}

fn answers(row: &Value) -> Option<Layout> {
    if has(row, "instruction") && has(row, "output") {
        let mut columns =
            vec![("prompt", "instruction"), ("input", "input"), ("answer", "output"), ("history", "history")];
        columns.extend(beside(row));
        return Some(labelled(row, Layout::new(Kind::Alpaca, columns)));
    }
    let (prompt, answer) = (first(row, &PROMPTS)?, first(row, &ANSWERS)?);
    let mut columns = vec![("prompt", prompt), ("answer", answer), ("history", "history")];
    let input = first(row, &["input", "context"]).filter(|input| *input != prompt);
    columns.extend(input.map(|input| ("input", input)));
    columns.extend(beside(row));
    Some(labelled(row, Layout::new(Kind::PromptAnswer, columns)))
}

/// Columns that any conversation may have beside it; rows may have them later than the first.
fn beside(row: &Value) -> [(&'static str, &'static str); 2] {
    let or_usual = |names: &[&'static str]| first(row, names).unwrap_or(names[0]);
    [("system", or_usual(&SYSTEMS)), ("tools", or_usual(&TOOLS))]
}

/// The same with a label, where the row has one that is true or false.
fn labelled(row: &Value, mut layout: Layout) -> Layout {
    let is_label = |name: &&&str| {
        let value = get(row, name);
        let word = value.as_str().map(str::to_ascii_lowercase);
        value.kind() == ValueKind::Bool || matches!(word.as_deref(), Some("true" | "false"))
    };
    if let Some(name) = LABELS.iter().find(is_label) {
        layout.kind = Kind::Labelled;
        layout.columns.insert("label", name.to_string());
    }
    layout
}

/// The only column of text, under a name that means nothing else.
fn only_text(row: &Value) -> Option<String> {
    let known = |name: &str| PROMPTS.contains(&name) || ANSWERS.contains(&name) || SYSTEMS.contains(&name);
    let keys: Vec<Value> = row.try_iter().ok()?.collect();
    let is_data = |key: &&Value| {
        let value = row.get_item(key).unwrap_or_default();
        value.kind() == ValueKind::String || value.kind() == ValueKind::Map || is_list(&value)
    };
    let mut data = keys.iter().filter(is_data);
    let only = data.next().filter(|_| data.next().is_none())?;
    let name = only.as_str()?;
    (get(row, name).kind() == ValueKind::String && !known(name)).then(|| name.to_owned())
}

/// Looks at the first rows of a data set until one tells its layout.
#[derive(Default)]
pub(in super::super) struct Probe {
    columns: Vec<String>,
    /// The only column of text, while all rows agree on it.
    text: Option<String>,
    rows: u64,
    first: Option<String>,
}

impl Probe {
    /// The layout, where this row has a known one.
    pub fn row(&mut self, row: &Value, most: usize) -> Option<Layout> {
        if let Some(layout) = of(row) {
            return Some(layout);
        }
        let text = only_text(row);
        self.text = if self.rows == 0 { text } else { self.text.take().filter(|name| Some(name) == text.as_ref()) };
        self.rows += 1;
        let _ = super::add_columns(row, &mut self.columns, most);
        None
    }

    /// A row that could not be read.
    pub fn unread(&mut self, line: u64, what: &str) {
        self.first.get_or_insert_with(|| format!("line {line}: {what}"));
    }

    /// The layout of rows none of which told it by itself. Errors: `LayoutUnknown` naming the columns.
    pub fn end(self) -> Outcome<Layout> {
        match self.text {
            Some(name) => Ok(Layout::new(Kind::Text, [("text", name)])),
            None => Err(unknown(&self.columns, self.first)),
        }
    }
}

/// The refusal of rows whose columns mean nothing here.
fn unknown(columns: &[String], first: Option<String>) -> Problem {
    if columns.is_empty() {
        return Problem::new(Code::LayoutUnknown, "no row is an object with named columns")
            .why(first.unwrap_or_default())
            .remedy("write one JSON object a row");
    }
    let named: Vec<String> = columns.iter().take(20).map(|c| c.chars().take(60).collect::<String>()).collect();
    let list = named.join(", ").escape_debug().to_string();
    Problem::new(Code::LayoutUnknown, format!("the columns say nothing known: {list}"))
        .remedy("name the columns, as in data.columns = { prompt = \"question\", answer = \"reply\" }")
}

/// The layout that a user's columns are by themselves; none where they only change what is recognised. Errors:
/// `SettingInvalid` for unknown meanings and for meanings that do not go together.
pub(in super::super) fn by_columns(columns: &BTreeMap<String, String>) -> Outcome<Option<Layout>> {
    let bad = |what: String| Err(Problem::new(Code::SettingInvalid, what).field("data.columns"));
    if let Some(other) = columns.keys().find(|key| !MEANINGS.contains(&key.as_str())) {
        return bad(format!("\"{}\" is no meaning of a column; use {}", other.escape_debug(), MEANINGS.join(", ")));
    }
    let has = |meaning: &str| columns.contains_key(meaning);
    let kind = match () {
        _ if has("text") => Kind::Text,
        _ if has("chosen") && has("rejected") => Kind::Preference,
        _ if has("label") && (has("messages") || (has("prompt") && has("answer"))) => Kind::Labelled,
        _ if has("messages") => Kind::Messages,
        _ if has("prompt") && has("answer") => Kind::PromptAnswer,
        _ => return Ok(None),
    };
    if let Some(other) = columns.keys().find(|key| !kind.meanings().contains(&key.as_str())) {
        let what =
            format!("name either prompt and answer, or text, or messages; \"{other}\" does not go with the rest");
        return bad(what);
    }
    Layout::new(kind, [] as [(&'static str, String); 0]).changed(columns).map(Some)
}
