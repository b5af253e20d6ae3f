//! The words of a record, for lists and searches.

use super::Content;
use crate::template::Turn;
use minijinja::value::ValueKind;

impl Content {
    /// Every text that somebody says, in order.
    pub fn texts(&self) -> impl Iterator<Item = String> {
        let (text, turns): (Option<String>, Vec<&Turn>) = match self {
            Content::Text(text) => (Some(text.clone()), Vec::new()),
            Content::Messages(said) => (None, said.turns.iter().collect()),
            Content::Labelled { turns, .. } => (None, turns.iter().collect()),
            Content::Preference { asked, chosen, rejected } => {
                (None, asked.iter().chain(chosen).chain(rejected).collect())
            }
        };
        let said: Vec<String> = turns.into_iter().filter_map(words).collect();
        text.into_iter().chain(said)
    }

    /// The first thing that this role says.
    pub fn said_by(&self, role: &str) -> Option<String> {
        let is = |turn: &&Turn| turn.get_attr("role").is_ok_and(|r| r.as_str() == Some(role));
        match self {
            Content::Text(_) => None,
            Content::Messages(said) => said.turns.iter().find(is).and_then(words),
            Content::Labelled { turns, .. } => turns.iter().find(is).and_then(words),
            Content::Preference { asked, chosen, .. } => asked.iter().chain(chosen).find(is).and_then(words),
        }
    }
}

/// What a message says; a call of a tool is said as it is written.
fn words(turn: &Turn) -> Option<String> {
    let content = turn.get_attr("content").ok()?;
    match content.as_str() {
        Some(text) if !text.is_empty() => Some(text.to_owned()),
        _ => {
            let calls = turn.get_attr("tool_calls").ok().filter(|calls| calls.kind() == ValueKind::Seq)?;
            serde_json::to_string(&calls).ok()
        }
    }
}
