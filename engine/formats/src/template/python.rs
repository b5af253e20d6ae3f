//! What templates expect of Python: how values print, `json.dumps`, `strftime`.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Output, State, Value};
use std::fmt::Write;

/// Deepest nesting that prints.
const DEPTH: usize = protocol::limits::JSON_DEPTH;

/// A calendar date for `strftime_now`; the time of day is midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    /// Year.
    pub year: u16,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day, 1 to 31.
    pub day: u8,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

impl Date {
    /// The date in a `strftime` format; unknown directives stay as they are.
    pub fn format(&self, format: &str) -> String {
        let month = MONTHS[usize::from(self.month.clamp(1, 12)) - 1];
        let day = DAYS[self.weekday()];
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let _ = match chars.next() {
                Some('Y') => write!(out, "{:04}", self.year),
                Some('y') => write!(out, "{:02}", self.year % 100),
                Some('m') => write!(out, "{:02}", self.month),
                Some('d') => write!(out, "{:02}", self.day),
                Some('B') => write!(out, "{month}"),
                Some('b') => write!(out, "{}", &month[..3]),
                Some('A') => write!(out, "{day}"),
                Some('a') => write!(out, "{}", &day[..3]),
                Some('H' | 'M' | 'S') => write!(out, "00"),
                Some('%') => write!(out, "%"),
                Some(other) => write!(out, "%{other}"),
                None => write!(out, "%"),
            };
        }
        out
    }

    /// 0 = Sunday (Sakamoto).
    fn weekday(&self) -> usize {
        const OFFSETS: [usize; 12] = [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4];
        let month = self.month.clamp(1, 12);
        let year = usize::from(self.year) - usize::from(month < 3 && self.year > 0);
        (year + year / 4 - year / 100 + year / 400 + OFFSETS[usize::from(month) - 1] + usize::from(self.day)) % 7
    }
}

/// Prints a value as `str()` does: None, True, 1.0, ['a', {'b': 1}].
pub(super) fn print(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    let mut text = String::new();
    match value.kind() {
        ValueKind::Undefined => return Ok(()),
        ValueKind::String => return out.write_str(value.as_str().unwrap_or_default()).map_err(Error::from),
        _ => repr(state, value, &mut text, DEPTH)?,
    }
    out.write_str(&text).map_err(Error::from)
}

/// Pays for a part of what is being written, before it is: a small value may print as a large text.
fn pay(state: &State, value: &Value) -> Result<(), Error> {
    state.consume_fuel(1 + value.as_str().map_or(0, str::len) as u64 / 16)
}

fn repr(state: &State, value: &Value, out: &mut String, depth: usize) -> Result<(), Error> {
    pay(state, value)?;
    if depth == 0 {
        return Err(Error::new(ErrorKind::InvalidOperation, "a value is nested too deeply to print"));
    }
    match value.kind() {
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => number(value, out),
        ValueKind::String => quoted(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq | ValueKind::Iterable => {
            listed(out, ['[', ']'], value.try_iter()?, |v, out| repr(state, &v, out, depth - 1))?;
        }
        ValueKind::Map => listed(out, ['{', '}'], value.try_iter()?, |key, out| {
            repr(state, &key, out, depth - 1)?;
            out.push_str(": ");
            repr(state, &value.get_item(&key)?, out, depth - 1)
        })?,
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

fn listed(
    out: &mut String,
    [open, close]: [char; 2],
    items: impl Iterator<Item = Value>,
    mut each: impl FnMut(Value, &mut String) -> Result<(), Error>,
) -> Result<(), Error> {
    out.push(open);
    for (i, item) in items.enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        each(item, out)?;
    }
    out.push(close);
    Ok(())
}

fn quoted(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// A number as Python's `repr`: integers as they are, floats shortest, with an exponent below 1e-4 and from 1e16.
fn number(value: &Value, out: &mut String) {
    if value.is_integer() {
        out.push_str(&value.to_string());
        return;
    }
    let x = f64::try_from(value.clone()).unwrap_or(f64::NAN);
    let magnitude = x.abs();
    let _ = if x.is_nan() {
        write!(out, "nan")
    } else if x.is_infinite() {
        write!(out, "{}inf", if x < 0.0 { "-" } else { "" })
    } else if magnitude != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let text = format!("{x:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |d| ('-', d));
        write!(out, "{mantissa}e{sign}{digits:0>2}")
    } else {
        write!(out, "{x:?}")
    };
}

/// `tojson` as `transformers` defines it: `json.dumps` with `ensure_ascii=False`; nothing is escaped for HTML.
pub(super) fn to_json(state: &State, value: &Value, options: Kwargs) -> Result<String, Error> {
    let style = Style::of(&options)?;
    let mut out = String::new();
    style.put(state, value, 0, &mut out)?;
    Ok(out)
}

struct Style {
    ascii: bool,
    sorted: bool,
    indent: Option<String>,
    item: String,
    key: String,
}

impl Style {
    fn of(options: &Kwargs) -> Result<Style, Error> {
        let indent = options.get::<Option<Value>>("indent")?.filter(|v| !v.is_none()).map(|v| match v.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::try_from(v).unwrap_or(0).min(64)),
        });
        let separators: Option<Vec<String>> = options.get("separators")?;
        let [item, key] = match separators.as_deref() {
            Some([item, key]) => [item.clone(), key.clone()],
            _ => [if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()],
        };
        let flag = |name| options.get::<Option<bool>>(name).map(|v| v.unwrap_or(false));
        let (ascii, sorted) = (flag("ensure_ascii")?, flag("sort_keys")?);
        options.assert_all_used()?;
        Ok(Style { ascii, sorted, indent, item, key })
    }

    fn put(&self, state: &State, value: &Value, level: usize, out: &mut String) -> Result<(), Error> {
        pay(state, value)?;
        if level >= DEPTH {
            return Err(Error::new(ErrorKind::InvalidOperation, "a value is nested too deeply for JSON"));
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => {
                let mut text = String::new();
                number(value, &mut text);
                out.push_str(match text.as_str() {
                    "nan" => "NaN",
                    "inf" => "Infinity",
                    "-inf" => "-Infinity",
                    text => text,
                });
            }
            ValueKind::String => self.string(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable => {
                self.group(['[', ']'], level, out, value.try_iter()?.collect(), |v, out| {
                    self.put(state, &v, level + 1, out)
                })?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sorted {
                    keys.sort();
                }
                self.group(['{', '}'], level, out, keys, |key, out| {
                    self.string(&key.to_string(), out);
                    out.push_str(&self.key);
                    self.put(state, &value.get_item(&key)?, level + 1, out)
                })?;
            }
            other => {
                let what = format!("an {other} value is not JSON serializable");
                return Err(Error::new(ErrorKind::InvalidOperation, what));
            }
        }
        Ok(())
    }

    fn group(
        &self,
        [open, close]: [char; 2],
        level: usize,
        out: &mut String,
        items: Vec<Value>,
        mut each: impl FnMut(Value, &mut String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let line = |level: usize, out: &mut String| {
            if let Some(indent) = &self.indent {
                out.push('\n');
                (0..level).for_each(|_| out.push_str(indent));
            }
        };
        out.push(open);
        let any = !items.is_empty();
        for (i, item) in items.into_iter().enumerate() {
            if i > 0 {
                out.push_str(&self.item);
            }
            line(level + 1, out);
            each(item, out)?;
        }
        if any {
            line(level, out);
        }
        out.push(close);
        Ok(())
    }

    fn string(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if (c as u32) < 0x20 || (self.ascii && !c.is_ascii()) => {
                    c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                        let _ = write!(out, "\\u{unit:04x}");
                    });
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}
