//! What the page asks: one typed structure a command, unknown fields refused, bounded in size.
//!
//! Not here: what is done with it (`commands`), which paths it may name (`grants`).

use protocol::problem::{Code, Problem};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tauri::Runtime;
use tauri::ipc::{CommandArg, CommandItem, InvokeBody, InvokeError};

/// Most bytes of one question: a job with every setting, or a long conversation, several times over.
const BYTES: usize = 1024 * 1024;

/// The whole payload of a command.
pub struct Ask<T>(pub T);

impl<'de, R: Runtime, T: DeserializeOwned> CommandArg<'de, R> for Ask<T> {
    fn from_command(command: CommandItem<'de, R>) -> Result<Ask<T>, InvokeError> {
        let asked = match command.message.payload() {
            InvokeBody::Json(value) => typed(value),
            InvokeBody::Raw(_) => Err(not_understood("bytes instead of words")),
        };
        asked.map(Ask).map_err(|problem| InvokeError(serde_json::json!(problem)))
    }
}

/// Reads a question. Errors: `TooLarge`, `SettingInvalid`.
pub fn typed<T: DeserializeOwned>(value: &Value) -> Result<T, Problem> {
    let bytes = size(value);
    if bytes > BYTES {
        let what = format!("the window asked with {bytes} bytes; at most {BYTES} are taken");
        return Err(Problem::new(Code::TooLarge, what).remedy("ask for less at once"));
    }
    T::deserialize(value).map_err(|e| not_understood(&e.to_string()))
}

fn not_understood(why: &str) -> Problem {
    Problem::new(Code::SettingInvalid, "a value is not one that Anneal understands")
        .why(why)
        .remedy("correct the value that was changed last")
}

/// Bytes of a value as it is held, roughly as many as it was sent with.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => 8 + text.len(),
        Value::Array(all) => 8 + all.iter().map(size).sum::<usize>(),
        Value::Object(all) => 8 + all.iter().map(|(key, value)| key.len() + size(value)).sum::<usize>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::view::JobQuery;
    use serde_json::json;

    fn query() -> Value {
        json!({ "search": "", "sort": "name", "descending": true, "offset": 0, "count": 10 })
    }

    #[test]
    fn unknown_fields_and_floods_are_refused_with_a_problem() {
        assert!(typed::<JobQuery>(&query()).is_ok());
        let mut more = query();
        more["colour"] = json!("red");
        assert_eq!(typed::<JobQuery>(&more).unwrap_err().code, Code::SettingInvalid);
        let mut long = query();
        long["search"] = json!("x".repeat(BYTES));
        assert_eq!(typed::<JobQuery>(&long).unwrap_err().code, Code::TooLarge);
    }
}
