//! Conversations as lists of messages, under every mixture of the names that data sets give keys and roles; all become the
//! same messages of `role` and `content`.

use super::parts::{self, Said};
use super::roles::Role;
use super::values::{get, has, invalid, is_absent, is_blank, is_list, items, kind, missing, pairs, shape};
use super::{Bad, Layout, Reading, tools};
use crate::template::{Turn, turn};
use minijinja::Value;
use minijinja::value::ValueKind;
use protocol::Code;

/// Keys that say whose a message is, and keys of what it says.
const WHO: [&str; 2] = ["role", "from"];
const WHAT: [&str; 2] = ["content", "value"];

impl Layout {
    /// The conversation of a row, begun by its system column where it has no such message itself.
    pub(super) fn conversation(&self, row: &Value, reading: &mut Reading) -> Result<Vec<Turn>, Bad> {
        let column = self.column("messages");
        let list = get(row, column);
        if is_absent(&list) {
            let absent = missing(row, column);
            return Err(if has(row, column) { (Code::NoAnswer, absent.1) } else { absent });
        }
        if !is_list(&list) {
            return Err(shape(format!("{} is {}, not a list of messages", column.escape_debug(), kind(&list))));
        }
        let mut turns = listed(&list, reading)?;
        if turns.first().is_none_or(|first| role(first) != Some("system")) {
            let system = self.system(row, reading)?;
            turns.splice(0..0, system);
        }
        Ok(turns)
    }

    /// The turn of a row's system column, where it says something.
    pub(super) fn system(&self, row: &Value, reading: &mut Reading) -> Result<Option<Turn>, Bad> {
        let Some(column) = self.columns.get("system") else { return Ok(None) };
        let text = reading.text(&get(row, column), column)?;
        Ok(text.filter(|text| !is_blank(text)).map(|text| turn("system", &text)))
    }
}

/// The messages of a list.
pub(super) fn listed(list: &Value, reading: &mut Reading) -> Result<Vec<Turn>, Bad> {
    let numbered = items(list).into_iter().enumerate();
    let turns = numbered.map(|(i, value)| {
        message(&value, reading).map_err(|(code, what)| (code, format!("message {}: {what}", i + 1)))
    });
    turns.collect()
}

/// Whose a message is, in the words of templates.
pub(super) fn role(turn: &Turn) -> Option<&'static str> {
    let role = get(turn, "role");
    ["system", "user", "assistant", "tool"].into_iter().find(|name| role.as_str() == Some(name))
}

/// A conversation that something can be learnt from; what follows its last answer is cut where the job says so.
pub(super) fn answered(mut turns: Vec<Turn>, reading: &mut Reading) -> Result<Vec<Turn>, Bad> {
    let Some(last) = turns.iter().rposition(|turn| role(turn) == Some("assistant")) else {
        return Err((Code::NoAnswer, "no message is an assistant's, so there is nothing to learn".into()));
    };
    if last + 1 < turns.len() {
        let behind = role(&turns[turns.len() - 1]).unwrap_or_default();
        reading.convert((Code::UnansweredTurn, format!("the last message is of the {behind}, and has no answer")))?;
        turns.truncate(last + 1);
    }
    Ok(turns)
}

/// One message as templates see it.
pub(super) fn message(value: &Value, reading: &mut Reading) -> Result<Turn, Bad> {
    if value.kind() != ValueKind::Map {
        return Err(shape(format!("it is {}, not an object with role and content", kind(value))));
    }
    let Some(who) = WHO.into_iter().find(|key| has(value, key)) else {
        return Err(shape("it says not whose it is: it has neither role nor from"));
    };
    let name = get(value, who);
    let Some(name) = name.as_str() else { return Err(shape(format!("{who} is {}, not text", kind(&name)))) };
    let role = reading.role(name)?;
    let what = WHAT.into_iter().find(|key| has(value, key)).unwrap_or(WHAT[0]);
    let content = get(value, what);
    let said = said(role, &content, what, value, reading)?;
    check(role, &said)?;
    let as_it_is = who == WHO[0] && what == WHAT[0] && name == role.name() && content.as_str().is_some();
    if as_it_is && said.calls.is_empty() {
        return Ok(value.clone());
    }
    Ok(rewritten(role, said, value))
}

/// What a message says, in text, thought and calls.
fn said(role: Role, content: &Value, key: &str, message: &Value, reading: &mut Reading) -> Result<Said, Bad> {
    let mut said = match role {
        Role::FunctionCall => Said { calls: tools::calls(content)?, ..Said::default() },
        _ if is_list(content) => parts::joined(content, reading)?,
        _ => Said { text: reading.text(content, key)?, ..Said::default() },
    };
    if role == Role::Assistant {
        for key in ["tool_calls", "function_call"] {
            said.calls.extend(tools::calls(&get(message, key))?);
        }
    }
    if role == Role::FunctionCall && said.calls.is_empty() {
        return Err(shape("it is to call a tool and calls none"));
    }
    Ok(said)
}

fn check(role: Role, said: &Said) -> Result<(), Bad> {
    let blank = said.text.as_deref().is_none_or(is_blank);
    match role {
        Role::Assistant if blank && said.calls.is_empty() => Err((Code::EmptyAnswer, "the answer is empty".into())),
        Role::System | Role::User | Role::Tool if said.text.is_none() => {
            Err(invalid(format!("the {} says nothing: content is missing or null", role.name())))
        }
        _ => Ok(()),
    }
}

/// The message anew: role and content first, then the calls, then all other keys as they are. A call without text has an
/// empty text, because "null" would be written by some templates.
fn rewritten(role: Role, said: Said, message: &Value) -> Turn {
    let mut all: Vec<(Value, Value)> =
        vec![("role".into(), role.name().into()), ("content".into(), Value::from(said.text.unwrap_or_default()))];
    if let Some(reasoning) = said.reasoning {
        all.push(("reasoning_content".into(), Value::from(reasoning)));
    }
    if !said.calls.is_empty() {
        all.push(("tool_calls".into(), Value::from(said.calls)));
    }
    let taken = ["role", "from", "content", "value", "tool_calls", "function_call"];
    let rest = pairs(message).into_iter().filter(|(key, _)| !taken.iter().any(|name| key.as_str() == Some(name)));
    for (key, value) in rest {
        if !all.iter().any(|(there, _)| *there == key) {
            all.push((key, value));
        }
    }
    Value::from_pairs(all)
}
