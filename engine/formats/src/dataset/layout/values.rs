//! Values of a row: what is there, what kind it is, and texts.

use super::{Bad, Reading};
use minijinja::Value;
use minijinja::value::ValueKind;
use protocol::Code;

pub(super) fn invalid(what: impl Into<String>) -> Bad {
    (Code::RowInvalid, what.into())
}

pub(super) fn shape(what: impl Into<String>) -> Bad {
    (Code::WrongShape, what.into())
}

pub(super) fn get(row: &Value, key: &str) -> Value {
    row.get_attr(key).unwrap_or_default()
}

pub(super) fn has(row: &Value, key: &str) -> bool {
    !get(row, key).is_undefined()
}

pub(super) fn is_absent(value: &Value) -> bool {
    value.is_undefined() || value.is_none()
}

pub(super) fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

pub(super) fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// The items of a list; of anything else none.
pub(super) fn items(value: &Value) -> Vec<Value> {
    if !is_list(value) {
        return Vec::new();
    }
    value.try_iter().map(Iterator::collect).unwrap_or_default()
}

/// Keys and values of an object, in its order.
pub(super) fn pairs(value: &Value) -> Vec<(Value, Value)> {
    if value.kind() != ValueKind::Map {
        return Vec::new();
    }
    let keys = value.try_iter().map(Iterator::collect::<Vec<_>>).unwrap_or_default();
    keys.into_iter().map(|key| (key.clone(), value.get_item(&key).unwrap_or_default())).collect()
}

/// The kind of a value, in words of JSON.
pub(super) fn kind(value: &Value) -> &'static str {
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

/// What is wrong with a column that must be there.
pub(super) fn missing(row: &Value, column: &str) -> Bad {
    let name = column.escape_debug();
    match has(row, column) {
        false => (Code::MissingColumn, format!("the row has no column {name}")),
        true => (Code::EmptyAnswer, format!("{name} is null")),
    }
}

impl Reading<'_> {
    /// A text; none where there is nothing. Anything else is taken as its JSON where the job converts such values.
    pub fn text(&mut self, value: &Value, name: &str) -> Result<Option<String>, Bad> {
        match value.as_str() {
            Some(text) => Ok(Some(text.to_owned())),
            None if is_absent(value) => Ok(None),
            None => {
                let what = format!("{} is {}, not text", name.escape_debug(), kind(value));
                self.convert((Code::ValueNotText, what))?;
                serde_json::to_string(value).map(Some).map_err(|e| shape(e.to_string()))
            }
        }
    }
}

/// A row as an object.
pub(in super::super) fn parse(text: &str) -> Result<Value, Bad> {
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
        let what = format!("the row is {}, not an object with named columns", kind(&value));
        return Err((Code::RowNotObject, what));
    }
    Ok(value)
}

/// Adds the columns of a row in order of appearance.
pub(in super::super) fn add_columns(row: &Value, columns: &mut Vec<String>, most: usize) -> Result<(), Bad> {
    let keys = row.try_iter().map_err(|_| (Code::RowNotObject, "the row has no columns".to_owned()))?;
    for key in keys {
        let name = key.as_str().unwrap_or_default();
        if columns.len() < most && !columns.iter().any(|c| c == name) {
            columns.push(name.to_owned());
        }
    }
    Ok(())
}
