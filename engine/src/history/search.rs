//! The search of the job list: words and comparisons, all of which must hold.
//!
//! A word is looked for, without regard to case, in id, name, model, data, stage, state, tags and note. A comparison is
//! `KEY OP VALUE` without blanks, OP one of `:` (contains) `=` `!=` `<` `<=` `>` `>=`; KEY is a column of the list (`loss`,
//! `steps`, `state`, `tag`, …), a dotted key of the job file, or its last part (`rank`, `seed`). `lr` is the learning rate.
//!
//! A word for a time (`today`, `yesterday`, `week`, `month`, `2026-11`, `2026-11-30`) also finds the jobs that were started
//! then: jobs with that word in their texts are found as before.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use protocol::record::{JobRow, Labels};
use protocol::{Code, Outcome, Problem};
use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// A search, understood.
pub struct Search {
    terms: Vec<Term>,
}

enum Term {
    Word(String),
    /// The word, and the milliseconds since the Unix epoch that it stands for.
    Time(String, Range<i64>),
    Compare {
        key: String,
        operator: Operator,
        value: String,
    },
}

#[derive(Clone, Copy, PartialEq)]
enum Operator {
    Contains,
    Equal,
    NotEqual,
    Less,
    AtMost,
    More,
    AtLeast,
}

/// Longer ones first: `<=` is not `<`.
const OPERATORS: [(&str, Operator); 7] = [
    ("<=", Operator::AtMost),
    (">=", Operator::AtLeast),
    ("!=", Operator::NotEqual),
    ("<", Operator::Less),
    (">", Operator::More),
    ("=", Operator::Equal),
    (":", Operator::Contains),
];

impl Search {
    /// What holds no operator is a word. Errors: `SettingInvalid` for a comparison without a key or a value, or one by size
    /// with something that is no number.
    pub fn parse(text: &str, now: &Now) -> Outcome<Search> {
        Ok(Search { terms: text.split_whitespace().map(|word| term(word, now)).collect::<Outcome<_>>()? })
    }

    /// True where a term can only be answered from a job's settings.
    pub fn names_a_setting(&self) -> bool {
        self.terms.iter().any(|term| matches!(term, Term::Compare { key, .. } if !COLUMNS.contains(&key.as_str())))
    }

    /// True when every term holds for the job; `settings` is the JSON of its settings.
    pub fn matches(&self, row: &JobRow, labels: &Labels, settings: &str) -> bool {
        let has = |word: &String| texts(row, labels).any(|text| text.to_lowercase().contains(word));
        self.terms.iter().all(|term| match term {
            Term::Word(word) => has(word),
            Term::Time(word, span) => row.started.is_some_and(|at_ms| span.contains(&at_ms)) || has(word),
            Term::Compare { key, operator, value } => {
                let values = column(row, labels, key).unwrap_or_else(|| setting(settings, key));
                holds(&values, *operator, value)
            }
        })
    }
}

/// The moment of a search, and where its days begin.
pub struct Now {
    /// Milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// The user's time zone.
    pub zone: TimeZone,
}

impl Now {
    /// What a word for a time stands for; nothing where it is none.
    fn span(&self, word: &str) -> Option<Range<i64>> {
        let today = Timestamp::from_millisecond(self.at_ms).ok()?.to_zoned_datetime(self.zone.clone()).date();
        let days_ago = |days: i64| today.checked_sub(Span::new().days(days)).ok();
        let (first, last) = match word {
            "today" | "今天" => (today, today),
            "yesterday" | "昨天" => (days_ago(1)?, days_ago(1)?),
            "week" => (days_ago(6)?, today),
            "month" => (days_ago(29)?, today),
            date => dates(date)?,
        };
        Some(self.begin_ms(first)?..self.begin_ms(last.tomorrow().ok()?)?)
    }

    fn begin_ms(&self, day: Date) -> Option<i64> {
        Some(day.to_zoned_datetime(self.zone.clone()).ok()?.timestamp().as_millisecond())
    }
}

/// First and last day of `2026-11-30` or `2026-11`.
fn dates(word: &str) -> Option<(Date, Date)> {
    // No other form: ids begin with eight digits, and a year alone may be part of a name.
    let is_date = |length| word.len() == length && word.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    if is_date("2026-11-30".len()) {
        return word.parse().ok().map(|day: Date| (day, day));
    }
    let first: Date = is_date("2026-11".len()).then(|| format!("{word}-01").parse().ok())??;
    Some((first, first.last_of_month()))
}

fn term(given: &str, now: &Now) -> Outcome<Term> {
    let word = given.to_lowercase();
    let first = (0..word.len()).filter(|i| word.is_char_boundary(*i)).find_map(|at| {
        OPERATORS
            .iter()
            .find(|(sign, _)| word[at..].starts_with(sign))
            .map(|(sign, operator)| (at, sign.len(), *operator))
    });
    let Some((at, length, operator)) = first else {
        return Ok(match now.span(&word) {
            Some(span) => Term::Time(word, span),
            None => Term::Word(word),
        });
    };
    let (key, value) = (&word[..at], &word[at + length..]);
    if key.is_empty() || value.is_empty() {
        let lacks = if key.is_empty() { "key" } else { "value" };
        return Err(no_comparison(given, format!("it has no {lacks}")));
    }
    let by_size = !matches!(operator, Operator::Contains | Operator::Equal | Operator::NotEqual);
    if by_size && !value.parse::<f64>().is_ok_and(f64::is_finite) {
        return Err(no_comparison(given, format!("\"{}\" is no number", value.escape_debug())));
    }
    Ok(Term::Compare { key: key.to_owned(), operator, value: value.to_owned() })
}

fn no_comparison(given: &str, why: String) -> Problem {
    Problem::new(Code::SettingInvalid, format!("\"{}\" is no condition to search by", given.escape_debug()))
        .why(why)
        .field("search")
        .remedy(
            "write words, or KEY OP VALUE without blanks: OP is one of : = != < <= > >=, KEY a column like loss, steps or \
             state, or a setting like lr; for example lr>1e-4 state:failed yesterday",
        )
}

fn texts<'a>(row: &'a JobRow, labels: &'a Labels) -> impl Iterator<Item = &'a str> {
    let fixed = [&row.id, &row.name, &row.model, &row.data, &row.stage, &labels.note].map(String::as_str);
    fixed.into_iter().chain([row.state.word()]).chain(labels.tags.iter().map(String::as_str))
}

/// Keys that are columns of the list.
const COLUMNS: [&str; 18] = [
    "id",
    "name",
    "model",
    "data",
    "stage",
    "state",
    "note",
    "tag",
    "star",
    "loss",
    "final_loss",
    "evaluation",
    "evaluation_loss",
    "best_evaluation_loss",
    "steps",
    "steps_total",
    "tokens",
    "seconds_active",
];

/// The values of a column of the list: none where the job has no such thing yet, several for tags. `None` where the key is
/// no column.
fn column(row: &JobRow, labels: &Labels, key: &str) -> Option<Vec<Value>> {
    let number = |n: Option<f64>| n.map(Value::from).into_iter().collect();
    Some(match key {
        "id" => vec![row.id.as_str().into()],
        "name" => vec![row.name.as_str().into()],
        "model" => vec![row.model.as_str().into()],
        "data" => vec![row.data.as_str().into()],
        "stage" => vec![row.stage.as_str().into()],
        "state" => vec![row.state.word().into()],
        "note" => vec![labels.note.as_str().into()],
        "tag" => labels.tags.iter().map(|t| t.as_str().into()).collect(),
        "star" => vec![labels.star.into()],
        "loss" | "final_loss" => number(row.final_loss),
        "evaluation" | "evaluation_loss" | "best_evaluation_loss" => number(row.best_evaluation_loss),
        "steps" => vec![row.steps.into()],
        "steps_total" => vec![row.steps_total.into()],
        "tokens" => vec![row.tokens.into()],
        "seconds_active" => number(Some(row.seconds_active)),
        _ => return None,
    })
}

/// The value under a dotted key, or else the first whose last part it is. Only that one is built: the others of sixty
/// settings are passed over, ten thousand jobs long.
fn setting(settings: &str, key: &str) -> Vec<Value> {
    let key = if key == "lr" { "learning_rate" } else { key };
    let mut json = serde_json::Deserializer::from_str(settings);
    json.deserialize_map(Wanted { key }).ok().flatten().into_iter().collect()
}

struct Wanted<'k> {
    key: &'k str,
}

impl<'de> Visitor<'de> for Wanted<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("settings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<Value>, A::Error> {
        let (mut exact, mut by_last_part) = (None, None);
        while let Some(full) = map.next_key::<Key<'de>>()?.map(|key| key.0) {
            if full == self.key {
                exact = Some(map.next_value()?);
            } else if by_last_part.is_none() && full.rsplit('.').next() == Some(self.key) {
                by_last_part = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(exact.or(by_last_part))
    }
}

/// Borrowed unless it has an escape.
#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

fn holds(values: &[Value], operator: Operator, wanted: &str) -> bool {
    let any = |wanted_operator| values.iter().any(|value| compare(value, wanted_operator, wanted));
    match operator {
        Operator::NotEqual => !values.is_empty() && !any(Operator::Equal),
        _ => any(operator),
    }
}

fn compare(value: &Value, operator: Operator, wanted: &str) -> bool {
    let text = match value {
        Value::String(text) => text.to_lowercase(),
        other => other.to_string().to_lowercase(),
    };
    if operator == Operator::Contains {
        return text.contains(wanted);
    }
    match (value.as_f64(), wanted.parse::<f64>()) {
        (Some(a), Ok(b)) => ordered(a.partial_cmp(&b), operator),
        _ => operator == Operator::Equal && text == wanted,
    }
}

fn ordered(order: Option<std::cmp::Ordering>, operator: Operator) -> bool {
    let Some(order) = order else { return false };
    match operator {
        Operator::Less => order.is_lt(),
        Operator::AtMost => order.is_le(),
        Operator::More => order.is_gt(),
        Operator::AtLeast => order.is_ge(),
        Operator::NotEqual => order.is_ne(),
        Operator::Equal | Operator::Contains => order.is_eq(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::record::JobState;

    fn job() -> (JobRow, Labels, String) {
        let row = JobRow {
            id: "20260101-7".into(),
            name: "Support assistant".into(),
            state: JobState::Failed,
            model: "SmolLM2-135M".into(),
            data: "support.jsonl".into(),
            stage: "sft".into(),
            steps: 120,
            steps_total: 200,
            final_loss: Some(1.5),
            best_evaluation_loss: None,
            tokens: 4000,
            started: Some(1),
            seconds_active: 12.0,
        };
        let settings: [(&str, Value); 3] =
            [("optimizer.learning_rate", 2e-4.into()), ("run.seed", 3.into()), ("schedule.kind", "wsd".into())];
        let labels =
            Labels { tags: vec!["Nightly".into(), "gpu".into()], note: "with a Typo".into(), ..Labels::default() };
        (row, labels, serde_json::to_string(&std::collections::BTreeMap::from(settings)).unwrap())
    }

    /// 2026-12-01 01:30 in a zone two hours east: 2026-11-30 23:30 UTC.
    fn now() -> Now {
        let zone = TimeZone::fixed(jiff::tz::Offset::from_seconds(7200).unwrap());
        Now { at_ms: "2026-11-30T23:30:00Z".parse::<Timestamp>().unwrap().as_millisecond(), zone }
    }

    #[test]
    fn words_for_a_time_find_what_was_started_then_in_the_users_zone() {
        let (mut row, labels, settings) = job();
        let mut found = |started: &str, search: &str| {
            row.started = Some(started.parse::<Timestamp>().unwrap().as_millisecond());
            Search::parse(search, &now()).unwrap().matches(&row, &labels, &settings)
        };
        for (started, search) in [
            ("2026-11-30T22:00:00Z", "today"),
            ("2026-11-30T22:00:00Z", "2026-12 smollm lr>1e-4"),
            ("2026-11-30T21:59:59Z", "yesterday"),
            ("2026-11-29T22:00:00Z", "YESTERDAY"),
            ("2026-11-30T21:59:59Z", "2026-11-30"),
            ("2026-10-31T22:00:00Z", "2026-11"),
            ("2026-11-24T22:00:00Z", "week"),
            ("2026-11-01T22:00:00Z", "month"),
        ] {
            assert!(found(started, search), "{started} {search}");
        }
        for (started, search) in [
            ("2026-11-30T21:59:59Z", "today"),
            ("2026-11-30T22:00:00Z", "yesterday"),
            ("2026-11-30T22:00:00Z", "2026-11"),
            ("2026-11-24T21:59:59Z", "week"),
            ("2026-11-30T22:00:00Z", "today nothing"),
            ("2026-11-30T22:00:00Z", "2026-13"),
        ] {
            assert!(!found(started, search), "{started} {search}");
        }
    }

    #[test]
    fn a_word_for_a_time_is_still_found_in_texts() {
        let (mut row, labels, settings) = job();
        (row.name, row.started) = ("the week of 2026-11".into(), None);
        for word in ["week", "2026-11"] {
            assert!(Search::parse(word, &now()).unwrap().matches(&row, &labels, &settings), "{word}");
        }
    }

    fn matches(search: &str) -> bool {
        let (row, labels, settings) = job();
        Search::parse(search, &now()).unwrap().matches(&row, &labels, &settings)
    }

    #[test]
    fn settings_are_opened_only_for_what_no_column_answers() {
        let (row, labels, _) = job();
        assert!(COLUMNS.iter().all(|key| column(&row, &labels, key).is_some()));
        for (search, opens) in [("loss<2 state:failed words", false), ("lr>1e-4", true), ("loss<2 run.seed=3", true)] {
            assert_eq!(Search::parse(search, &now()).unwrap().names_a_setting(), opens, "{search}");
        }
    }

    #[test]
    fn words_are_found_anywhere_and_all_must_be_there() {
        for found in ["", "support", "SMOLLM2 assist", "nightly typo", "failed sft", "20260101"] {
            assert!(matches(found), "{found}");
        }
        for missing in ["support nothing", "running", "zz"] {
            assert!(!matches(missing), "{missing}");
        }
    }

    #[test]
    fn comparisons_reach_columns_settings_and_tags() {
        for found in [
            "lr>1e-4",
            "lr<=2e-4",
            "loss<2",
            "state:failed",
            "seed=3",
            "run.seed!=4",
            "tag:gpu",
            "kind=WSD",
            "steps>=120",
        ] {
            assert!(matches(found), "{found}");
        }
        for missing in
            ["lr>2e-4", "loss>2", "state:running", "evaluation<9", "rank=16", "tag!=gpu", "kind<3", "nosuch=1"]
        {
            assert!(!matches(missing), "{missing}");
        }
    }

    #[test]
    fn a_condition_that_is_none_is_refused_with_the_grammar_instead_of_finding_nothing() {
        for odd in ["=", "<", ">=", "=3", "a=", "lr>", "ä<ö", "::", "lr>abc", "lr>NaN", "lr<1e999", "support lr>"] {
            let problem = Search::parse(odd, &now()).err().unwrap_or_else(|| panic!("{odd}"));
            assert_eq!(problem.code, Code::SettingInvalid);
            assert!(problem.remedy.contains("KEY OP VALUE"), "{problem}");
        }
        assert!(Search::parse("\u{1F600}>1 name=ä a:b:c", &now()).is_ok());
    }
}
