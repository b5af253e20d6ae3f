//! Classes of rows that cannot be used as they are: which decisions make sense for each, and what happens when a job says
//! nothing. Damage and ambiguity have no default: only the user knows whether a row may be lost.
//!
//! Not here: how a row is found to be of a class (crate `formats`).

use crate::job::RowAction;
use crate::job::RowAction::{Convert, Map, Refuse, Skip};
use crate::problem::{Code, Outcome, Problem, Way};
use std::collections::BTreeMap;

/// Who says a message, in the words that templates know. A `function_call` is an assistant's call of a tool.
pub const ROLES: [&str; 5] = ["system", "user", "assistant", "tool", "function_call"];

/// A class of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Its code; `data.rows` names it by `Code::name`.
    pub code: Code,
    /// Decisions that make sense, the usual one first.
    pub choices: &'static [RowAction],
    /// What happens when the job says nothing; none = the job is refused until it does.
    pub default: Option<RowAction>,
}

const fn asks(code: Code, choices: &'static [RowAction]) -> Class {
    Class { code, choices, default: None }
}

const fn by_itself(code: Code, choices: &'static [RowAction], default: RowAction) -> Class {
    Class { code, choices, default: Some(default) }
}

/// All classes.
pub const CLASSES: [Class; 16] = [
    asks(Code::RowNotJson, &[Skip, Refuse]),
    asks(Code::RowNotUtf8, &[Convert, Skip, Refuse]),
    asks(Code::RowNotObject, &[Skip, Refuse]),
    asks(Code::MissingColumn, &[Map, Skip, Refuse]),
    asks(Code::ValueNotText, &[Convert, Skip, Refuse]),
    asks(Code::WrongShape, &[Skip, Refuse]),
    asks(Code::UnknownRole, &[Map, Skip, Refuse]),
    asks(Code::FieldsDiffer, &[Skip, Refuse]),
    asks(Code::QuoteOpen, &[Skip, Refuse]),
    asks(Code::MediaContent, &[Skip, Refuse]),
    asks(Code::TooLarge, &[Skip, Refuse]),
    by_itself(Code::EmptyAnswer, &[Skip, Refuse], Skip),
    by_itself(Code::NoAnswer, &[Skip, Refuse], Skip),
    by_itself(Code::UnansweredTurn, &[Convert, Skip, Refuse], Convert),
    by_itself(Code::RowInvalid, &[Skip, Refuse], Skip),
    by_itself(Code::RowTooLong, &[Skip, Refuse], Skip),
];

impl Class {
    /// The class of a code; none where a code speaks of no row.
    pub fn of(code: Code) -> Option<Class> {
        CLASSES.into_iter().find(|class| class.code == code)
    }

    /// What happens to its rows in a job that says this.
    pub fn decision(&self, rows: &BTreeMap<String, RowAction>) -> Option<RowAction> {
        rows.get(&self.code.name()).copied().or(self.default)
    }

    /// The setting that decides.
    pub fn field(&self) -> String {
        format!("data.rows.{}", self.code.name())
    }

    /// Its decisions as ways out; mapping is none, because only the user knows to what.
    pub fn ways(&self) -> Vec<Way> {
        let settings = self.choices.iter().filter(|action| matches!(action, Skip | Convert));
        settings.map(|action| Way::set(&self.field(), action.name())).collect()
    }

    /// What can be done, in a sentence.
    pub fn remedy(&self) -> String {
        let field = self.field();
        let mut ways: Vec<String> = Vec::new();
        for action in self.choices {
            ways.push(match action {
                Map if self.code == Code::UnknownRole => "say who it is, as in data.roles = { name = \"user\" }".into(),
                Map => "name the right column in data.columns".into(),
                Convert => format!("set {field} = \"convert\" ({})", self.conversion()),
                Skip => format!("set {field} = \"skip\" to leave such rows out"),
                Refuse => continue,
            });
        }
        format!("correct the rows, or {}", ways.join(", or "))
    }

    /// What converting does to a row.
    fn conversion(&self) -> &'static str {
        match self.code {
            Code::RowNotUtf8 => "reads them as windows-1252",
            Code::UnansweredTurn => "cuts what comes behind the last answer",
            _ => "takes the value as it is written in JSON",
        }
    }
}

impl RowAction {
    /// The word of the job file.
    pub fn name(self) -> &'static str {
        match self {
            Skip => "skip",
            Map => "map",
            Convert => "convert",
            Refuse => "refuse",
        }
    }
}

/// Checks what a job says of rows. Errors: `SettingInvalid` for an unknown class or role, and for a decision that makes no
/// sense for its class; names the known ones.
pub fn check(rows: &BTreeMap<String, RowAction>, roles: &BTreeMap<String, String>) -> Outcome<()> {
    for (name, action) in rows {
        let known = CLASSES.iter().find(|class| class.code.name() == *name);
        let field = format!("data.rows.{name}");
        let class = known.ok_or_else(|| {
            let names: Vec<String> = CLASSES.iter().map(|class| class.code.name()).collect();
            Problem::new(Code::SettingInvalid, format!("\"{}\" is no class of rows", name.escape_debug()))
                .field(&field)
                .remedy(format!("use one of: {}", names.join(", ")))
        })?;
        if !class.choices.contains(action) {
            let names: Vec<&str> = class.choices.iter().map(|action| action.name()).collect();
            let what = format!("{field} is \"{}\", which does not help such rows", action.name());
            return Err(Problem::new(Code::SettingInvalid, what)
                .field(field)
                .remedy(format!("use one of: {}", names.join(", "))));
        }
    }
    match roles.iter().find(|(_, role)| !ROLES.contains(&role.as_str())) {
        None => Ok(()),
        Some((name, role)) => Err(Problem::new(
            Code::SettingInvalid,
            format!("data.roles maps \"{}\" to \"{}\", which is no role", name.escape_debug(), role.escape_debug()),
        )
        .field("data.roles")
        .remedy(format!("use one of: {}", ROLES.join(", ")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(name: &str, action: RowAction) -> BTreeMap<String, RowAction> {
        BTreeMap::from([(name.to_owned(), action)])
    }

    #[test]
    fn an_unknown_class_names_the_known_ones() {
        let problem = check(&rows("emty_answer", Skip), &BTreeMap::new()).unwrap_err();
        assert_eq!(problem.code, Code::SettingInvalid);
        assert!(problem.remedy.contains("empty_answer"), "{problem}");
    }

    #[test]
    fn a_decision_that_makes_no_sense_names_those_that_do() {
        let problem = check(&rows("row_not_json", Convert), &BTreeMap::new()).unwrap_err();
        assert_eq!(problem.place.field.as_deref(), Some("data.rows.row_not_json"));
        assert!(problem.remedy.contains("skip, refuse"), "{problem}");
        assert!(check(&rows("row_not_utf8", Convert), &BTreeMap::new()).is_ok());
    }

    #[test]
    fn an_unknown_role_names_the_known_ones() {
        let roles = BTreeMap::from([("bot".to_owned(), "robot".to_owned())]);
        assert!(check(&BTreeMap::new(), &roles).unwrap_err().remedy.contains("assistant"));
    }

    #[test]
    fn damage_has_no_default_and_its_ways_are_settings_a_job_accepts() {
        for class in CLASSES {
            assert!(class.choices.contains(&Skip) && class.choices.contains(&Refuse), "{class:?}");
            assert!(class.default.is_none_or(|action| class.choices.contains(&action)), "{class:?}");
            assert!(!class.ways().is_empty());
            for action in class.choices {
                assert!(check(&rows(&class.code.name(), *action), &BTreeMap::new()).is_ok());
            }
        }
        assert_eq!(Class::of(Code::RowNotJson).unwrap().decision(&BTreeMap::new()), None);
        assert_eq!(Class::of(Code::EmptyAnswer).unwrap().decision(&BTreeMap::new()), Some(Skip));
    }
}
