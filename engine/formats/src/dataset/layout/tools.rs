//! Tools that rows define and calls of them, in the shape that templates know: `{"type": "function", "function": {…}}`.
//! Keys are those of the row itself, in its order.

use super::Bad;
use super::values::{get, has, is_absent, is_blank, is_list, items, kind, pairs, shape};
use minijinja::Value;
use minijinja::value::ValueKind;

/// The tools of a row: a list, one object, or either as JSON text. None where there are none.
pub(super) fn defined(value: &Value, column: &str) -> Result<Option<Value>, Bad> {
    let name = column.escape_debug();
    let tools = listed(value).map_err(|what| shape(format!("{name} {what}")))?;
    if let Some(other) = tools.iter().find(|tool| tool.kind() != ValueKind::Map) {
        return Err(shape(format!("{name} holds {}, not the definition of a tool", kind(other))));
    }
    let tools: Vec<Value> = tools.iter().map(wrapped).collect();
    Ok((!tools.is_empty()).then(|| Value::from(tools)))
}

/// The calls of a message: a list, one call, or either as JSON text.
pub(super) fn calls(value: &Value) -> Result<Vec<Value>, Bad> {
    let calls = listed(value).map_err(|what| shape(format!("the call of a tool {what}")))?;
    calls.iter().map(call).collect()
}

fn call(call: &Value) -> Result<Value, Bad> {
    let inner = if has(call, "function") { get(call, "function") } else { call.clone() };
    if inner.kind() != ValueKind::Map || get(&inner, "name").as_str().is_none_or(is_blank) {
        return Err(shape("the call of a tool names no tool"));
    }
    let function = pairs(&inner).into_iter().map(|(key, value)| match key.as_str() {
        Some("arguments") => arguments(&value).map(|value| (key, value)),
        _ => Ok((key, value)),
    });
    let function = Value::from_pairs(function.collect::<Result<Vec<_>, Bad>>()?);
    if !has(call, "function") {
        return Ok(as_function(function));
    }
    let outer = pairs(call).into_iter().map(|(key, value)| match key.as_str() {
        Some("function") => (key, function.clone()),
        _ => (key, value),
    });
    Ok(Value::from_pairs(outer.collect::<Vec<_>>()))
}

/// Arguments are often JSON text within JSON; templates write the object.
fn arguments(value: &Value) -> Result<Value, Bad> {
    match value.as_str() {
        Some(text) if !is_blank(text) => {
            let parsed = serde_json::from_str::<Value>(text).ok().filter(|parsed| parsed.kind() == ValueKind::Map);
            parsed.ok_or_else(|| shape("the arguments of a tool's call are text, and not that of a JSON object"))
        }
        _ => Ok(value.clone()),
    }
}

/// A definition or call as templates expect it.
fn wrapped(tool: &Value) -> Value {
    if has(tool, "function") || !has(tool, "name") { tool.clone() } else { as_function(tool.clone()) }
}

fn as_function(function: Value) -> Value {
    Value::from_pairs([("type", Value::from("function")), ("function", function)])
}

fn listed(value: &Value) -> Result<Vec<Value>, String> {
    match value.as_str() {
        Some(text) if is_blank(text) => Ok(Vec::new()),
        Some(text) => {
            let parsed: Value = serde_json::from_str(text).map_err(|e| format!("is not JSON: {e}"))?;
            // Text within text would go on for ever.
            if parsed.as_str().is_some() { Err("is JSON of a text".into()) } else { listed(&parsed) }
        }
        None if is_absent(value) => Ok(Vec::new()),
        None if is_list(value) => Ok(items(value)),
        None if value.kind() == ValueKind::Map => Ok(vec![value.clone()]),
        None => Err(format!("is {}, not a list", kind(value))),
    }
}
