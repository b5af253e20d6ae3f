//! The keys of a JSON object that is a configuration: typed, bounded, every refusal with its key.
//!
//! Not here: which keys a model has (`config`, `rope`).

use protocol::{Code, Outcome, Problem};
use serde_json::{Map, Value};
use std::path::Path;

/// End tokens a model may name.
const ENDS: usize = 64;

/// The keys of a JSON object, with its path for messages. Null is the same as absent, as in transformers.
pub(super) struct Fields<'a> {
    map: Map<String, Value>,
    path: &'a Path,
    /// The key that this object stands under; empty for the file itself.
    within: String,
}

impl<'a> Fields<'a> {
    /// The keys of an object that stands for a file; `path` is where they are from.
    pub(super) fn of(map: Map<String, Value>, path: &'a Path) -> Fields<'a> {
        Fields { map, path, within: String::new() }
    }

    /// Parses a whole file. Errors: `ConfigInvalid` with the line.
    pub(super) fn parse(bytes: &[u8], path: &'a Path) -> Outcome<Fields<'a>> {
        let bad = |why: String, line| {
            Problem::new(Code::ConfigInvalid, "the configuration is not a JSON object").why(why).file(path).line(line)
        };
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(map)) => Ok(Fields { map, path, within: String::new() }),
            Ok(_) => Err(bad("it holds another kind of value".into(), 1)),
            Err(e) => Err(bad(e.to_string(), e.line() as u64)),
        }
    }

    /// The object under a key, `None` where it is absent, null or empty.
    pub(super) fn block(&self, field: &str) -> Outcome<Option<Fields<'a>>> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Object(map)) if map.is_empty() => Ok(None),
            Some(Value::Object(map)) => {
                Ok(Some(Fields { map: map.clone(), path: self.path, within: field.to_owned() }))
            }
            Some(other) => Err(self.invalid(field, format!("{} is no object", brief(other)))),
        }
    }

    /// A key as messages name it, dotted.
    pub(super) fn dotted(&self, field: &str) -> String {
        if self.within.is_empty() { field.to_owned() } else { format!("{}.{field}", self.within) }
    }

    /// The key that this object stands under.
    pub(super) fn within(&self) -> String {
        self.within.clone()
    }

    /// True for a key that is there and not null.
    pub(super) fn has(&self, field: &str) -> bool {
        self.get(field).is_some()
    }

    /// All keys, those with null included.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.map.keys().map(String::as_str)
    }

    /// The value of a key, unless it is null.
    pub(super) fn get(&self, field: &str) -> Option<&Value> {
        self.map.get(field).filter(|v| !v.is_null())
    }

    /// A problem with a key.
    pub(super) fn problem(&self, code: Code, field: &str, what: impl Into<String>) -> Problem {
        Problem::new(code, what).file(self.path).field(self.dotted(field))
    }

    /// A value that cannot be.
    pub(super) fn invalid(&self, field: &str, what: impl Into<String>) -> Problem {
        self.problem(Code::ConfigInvalid, field, format!("{}: {}", self.dotted(field), what.into()))
            .remedy("take the config.json that belongs to these weights")
    }

    /// A whole number from 1 to `most`. A number such as 4096.0 counts as whole.
    pub(super) fn size(&self, field: &str, most: u64, default: Option<u32>) -> Outcome<u32> {
        let Some(value) = self.get(field) else {
            return default.ok_or_else(|| self.invalid(field, "is missing"));
        };
        // Tools that rewrite configurations turn 4096 into 4096.0.
        let whole =
            value.as_u64().or_else(|| value.as_f64().filter(|x| x.fract() == 0.0 && *x >= 1.0).map(|x| x as u64));
        match whole {
            Some(n) if (1..=most).contains(&n) => Ok(n as u32),
            _ => Err(self.invalid(field, format!("{} is not a whole number from 1 to {most}", brief(value)))),
        }
    }

    /// True or false.
    pub(super) fn flag(&self, field: &str) -> Outcome<Option<bool>> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Bool(b)) => Ok(Some(*b)),
            Some(other) => Err(self.invalid(field, format!("{} is neither true nor false", brief(other)))),
        }
    }

    /// Any number.
    pub(super) fn number(&self, field: &str) -> Outcome<Option<f64>> {
        match self.get(field) {
            None => Ok(None),
            Some(v) => match v.as_f64() {
                Some(x) => Ok(Some(x)),
                None => Err(self.invalid(field, format!("{} is not a number", brief(v)))),
            },
        }
    }

    /// A finite number above 0; without a default it must be there.
    pub(super) fn positive(&self, field: &str, default: impl Into<Option<f64>>) -> Outcome<f64> {
        let Some(x) = self.number(field)?.or(default.into()) else { return Err(self.invalid(field, "is missing")) };
        let good = x.is_finite() && x > 0.0;
        good.then_some(x).ok_or_else(|| self.invalid(field, format!("{x} is not above 0")))
    }

    /// The id of a token; one beyond the vocabulary is as good as none.
    pub(super) fn id(&self, field: &str, vocab: u32) -> Outcome<Option<u32>> {
        self.get(field).and_then(|v| valid_id(v, vocab)).map_or(Ok(None), |id| Ok(Some(id)))
    }

    /// One end token or several; ids beyond the vocabulary are an error, since generation would never end.
    pub(super) fn ends(&self, vocab: u32) -> Outcome<Vec<u32>> {
        let ids = match self.get("eos_token_id") {
            None => return Ok(Vec::new()),
            Some(Value::Array(ids)) => ids.clone(),
            Some(one) => vec![one.clone()],
        };
        if ids.len() > ENDS {
            return Err(
                self.invalid("eos_token_id", format!("names {} end tokens; at most {ENDS} are read", ids.len()))
            );
        }
        let bad = |v: &Value| self.invalid("eos_token_id", format!("{} is no id below vocab_size {vocab}", brief(v)));
        ids.iter().map(|v| valid_id(v, vocab).ok_or_else(|| bad(v))).collect()
    }
}

fn valid_id(value: &Value, vocab: u32) -> Option<u32> {
    value.as_u64().filter(|id| *id < u64::from(vocab)).map(|id| id as u32)
}

/// A value for a message: short, control characters escaped.
pub(super) fn brief(value: &Value) -> String {
    let text: String = value.to_string().chars().take(40).collect();
    text.escape_debug().to_string()
}
