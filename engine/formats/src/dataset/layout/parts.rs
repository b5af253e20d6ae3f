//! The content of a message as a list of parts, and media, which this version does not learn from.

use super::values::{get, is_absent, is_blank, is_list, items, kind, shape};
use super::{Bad, Reading, tools};
use minijinja::Value;
use minijinja::value::ValueKind;
use protocol::Code;

/// Columns that hold media in data sets that have them.
pub(super) const MEDIA_COLUMNS: [&str; 6] = ["images", "image", "audios", "audio", "videos", "video"];

/// What the parts of a message say.
#[derive(Default)]
pub(super) struct Said {
    /// Text; none where there was no part of it.
    pub text: Option<String>,
    /// What an assistant thought before.
    pub reasoning: Option<String>,
    /// Calls of tools.
    pub calls: Vec<Value>,
}

/// Refuses rows with media beside their messages.
pub(super) fn no_media_columns(row: &Value) -> Result<(), Bad> {
    match MEDIA_COLUMNS.iter().find(|column| is_medium(&get(row, column))) {
        None => Ok(()),
        Some(column) => Err(media(&format!("the column {column}"))),
    }
}

fn is_medium(value: &Value) -> bool {
    match value.as_str() {
        Some(text) => !is_blank(text),
        None => value.kind() == ValueKind::Map || (is_list(value) && value.len().is_none_or(|n| n > 0)),
    }
}

fn media(what: &str) -> Bad {
    (Code::MediaContent, format!("{what} holds media; this version learns from text alone"))
}

/// The parts of a message: texts are joined as they are.
pub(super) fn joined(list: &Value, reading: &mut Reading) -> Result<Said, Bad> {
    let mut said = Said::default();
    for (i, part) in items(list).iter().enumerate() {
        one(part, &mut said, reading).map_err(|(code, what)| (code, format!("part {}: {what}", i + 1)))?;
    }
    Ok(said)
}

fn one(part: &Value, said: &mut Said, reading: &mut Reading) -> Result<(), Bad> {
    if let Some(text) = part.as_str() {
        add(&mut said.text, text);
        return Ok(());
    }
    if part.kind() != ValueKind::Map {
        return Err(shape(format!("it is {}, not an object with type and text", kind(part))));
    }
    let name = get(part, "type");
    // Some writers leave the type out where the key says it.
    let name = name.as_str().unwrap_or("text");
    let own = match name {
        "reasoning" | "thinking" => get(part, name),
        _ => get(part, "text"),
    };
    let value = if is_absent(&own) { get(part, "value") } else { own };
    match name {
        "text" | "input_text" | "output_text" | "reasoning" | "thinking" => {
            let Some(text) = reading.text(&value, name)? else {
                return Err(shape(format!("a part of type {name} has no text")));
            };
            let to = if name.ends_with("text") { &mut said.text } else { &mut said.reasoning };
            add(to, &text);
        }
        "tool_call" | "tool_calls" | "function_call" => said.calls.extend(tools::calls(&value)?),
        _ if ["image", "audio", "video", "file"].iter().any(|medium| name.contains(medium)) => {
            return Err(media(&format!("a part of type {}", short(name))));
        }
        _ => return Err(shape(format!("a part of type \"{}\" is not known", short(name)))),
    }
    Ok(())
}

fn short(name: &str) -> String {
    name.chars().take(60).collect::<String>().escape_debug().to_string()
}

fn add(to: &mut Option<String>, text: &str) {
    to.get_or_insert_default().push_str(text);
}
