//! What is wrong with a job file or a `--set`, in the words of the job file: which setting, what it says, what it may say.
//!
//! Not here: which values make sense (`JobSpec::check`).

use super::JobSpec;
use crate::problem::{Code, Problem};

/// Words that a later version brings.
const LATER: [&str; 14] =
    ["dpo", "orpo", "kto", "reward", "ppo", "grpo", "wsd", "sgd", "lion", "muon", "adafactor", "qlora", "dora", "fp8"];
/// What serde says after this is what it expected.
const EXPECTED: &str = ", expected ";

/// A file that is no TOML.
pub fn syntax(error: &toml::de::Error, text: &str) -> Problem {
    unread(Code::JobInvalid, error.message().trim().to_owned(), error, text)
}

/// A file whose settings cannot be taken, without any `--set`.
pub fn file(error: &toml::de::Error, text: &str) -> Problem {
    // A table without its text says which setting it was, the text says where.
    let table: toml::Table = text.parse().unwrap_or_default();
    let found = Found::of(&table);
    let problem = unread(found.code(Code::JobInvalid), found.sentence(), error, text);
    if found.field.is_empty() { problem } else { problem.field(found.field) }
}

/// Settings that cannot be taken after these changes.
pub fn changed(table: &toml::Table, changes: &[String], error: &toml::de::Error, text: &str) -> Problem {
    let found = Found::of(table);
    let touches = |change: &&String| change.split_once('=').is_some_and(|(key, _)| related(key.trim(), &found.field));
    let Some(change) = changes.iter().rev().find(touches) else { return file(error, text) };
    let code = if found.unknown { Code::Usage } else { found.code(Code::SettingInvalid) };
    refused(change, code, found.sentence()).field(found.field)
}

/// A `--set` that was refused.
pub fn refused(change: &str, code: Code, why: String) -> Problem {
    Problem::new(code, format!("--set {} cannot be carried out", change.escape_debug()))
        .why(why)
        .remedy("settings are named and written as in the job file, like optimizer.learning_rate=1e-4")
}

/// True when one key is the other, or lies in it.
fn related(a: &str, b: &str) -> bool {
    let inside = |inner: &str, outer: &str| inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'));
    a == b || inside(a, b) || inside(b, a)
}

fn unread(code: Code, why: String, error: &toml::de::Error, text: &str) -> Problem {
    let problem = Problem::new(code, "the job file cannot be understood").why(why).remedy("correct this line");
    match error.span() {
        Some(span) => {
            let before = text.as_bytes().iter().take(span.start);
            problem.line(before.filter(|byte| **byte == b'\n').count() as u64 + 1)
        }
        None => problem.remedy("correct the job file"),
    }
}

/// A setting that cannot be taken.
struct Found {
    /// Dotted key; empty for the file as a whole.
    field: String,
    /// There is no setting of that name.
    unknown: bool,
    /// What it says, as TOML; empty where it is missing.
    value: String,
    /// serde's sentence.
    message: String,
}

impl Found {
    fn of(table: &toml::Table) -> Found {
        let error = match table.clone().try_into::<JobSpec>() {
            Err(error) => error.to_string(),
            Ok(_) => String::new(),
        };
        let group = error.trim_end().lines().next_back().and_then(|line| line.strip_prefix("in `")?.strip_suffix('`'));
        let message = error.lines().next().unwrap_or_default().to_owned();
        let named = ["unknown field `", "missing field `"].iter().find_map(|lead| message.strip_prefix(lead));
        let name = named.and_then(|rest| rest.split('`').next());
        let parts = [group, name].into_iter().flatten();
        let field = parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".");
        let value = value_at(table, &field).map(|value| value.to_string()).unwrap_or_default();
        Found { unknown: message.starts_with("unknown field"), field, value, message }
    }

    fn code(&self, otherwise: Code) -> Code {
        let later = self.message.starts_with("unknown variant") && LATER.contains(&self.value.trim_matches('"'));
        if later { Code::NotSupported } else { otherwise }
    }

    fn sentence(&self) -> String {
        let Found { field, value, message, .. } = self;
        let wanted = message.split_once(EXPECTED).map_or("", |(_, wanted)| wanted);
        if self.unknown {
            return format!("there is no setting {field}; there are {}", listed(wanted, "and"));
        }
        if message.starts_with("missing field") {
            return format!("{field} is missing");
        }
        if message.starts_with("unknown variant") {
            return format!("{field} is {value}; it must be {}", listed(wanted, "or"));
        }
        if wanted.is_empty() || field.is_empty() {
            return message.clone();
        }
        format!("{field} is {value}; it must be {}", plain(wanted))
    }
}

/// What a spec says of a setting, as TOML.
pub fn value_in(spec: &JobSpec, field: &str) -> Option<String> {
    let table = toml::Table::try_from(spec).ok()?;
    value_at(&table, field).map(|value| value.to_string())
}

fn value_at<'a>(table: &'a toml::Table, field: &str) -> Option<&'a toml::Value> {
    let (first, rest) = field.split_once('.').map_or((field, None), |(first, rest)| (first, Some(rest)));
    match (table.get(first)?, rest) {
        (value, None) => Some(value),
        (value, Some(rest)) => value_at(value.as_table()?, rest),
    }
}

/// serde's list of names (`` one of `a`, `b` ``, `` `a` or `b` ``, `` `a` ``) as a sentence has it.
fn listed(wanted: &str, word: &str) -> String {
    let names: Vec<&str> = wanted.split('`').skip(1).step_by(2).collect();
    match names.split_last() {
        None => wanted.to_owned(),
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} {word} {last}", others.join(", ")),
    }
}

/// serde's name of a type, in the job file's words.
fn plain(wanted: &str) -> String {
    let (kind, auto) = wanted.strip_suffix(super::OR_AUTO).map_or((wanted, ""), |kind| (kind, super::OR_AUTO));
    let words = match kind {
        "f64" => "a finite number",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" => "a whole number of at least 0",
        "a boolean" => "true or false",
        "a sequence" => "a list like [\"a\", \"b\"]",
        "a string" | "path string" => "text in quotes",
        "a map" => "a group of settings",
        kind if kind.starts_with("struct ") => "a group of settings",
        kind if kind.starts_with("an array of length ") || kind.starts_with("a tuple of size ") => {
            "a list of two numbers"
        }
        kind => kind,
    };
    format!("{words}{auto}")
}
