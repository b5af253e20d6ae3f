//! What a job says of rows that cannot be used as they are, and what they become.

use super::Options;
use protocol::facts::{RowClass, RowProblem};
use protocol::job::RowAction;
use protocol::rows::{self, Class};
use protocol::{Code, Outcome, Problem};
use std::collections::BTreeMap;

/// A job's decisions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    rows: BTreeMap<String, RowAction>,
    pub(super) roles: BTreeMap<String, String>,
}

impl Rules {
    /// The decisions of these options. Errors: `SettingInvalid` for what is no class, decision or role.
    pub fn of(options: &Options) -> Outcome<Rules> {
        rows::check(&options.rows, &options.roles)?;
        Ok(Rules { rows: options.rows.clone(), roles: options.roles.clone() })
    }

    /// True where the job names roles.
    pub(super) fn has_roles(&self) -> bool {
        !self.roles.is_empty()
    }

    /// True where rows of this class are converted.
    pub fn converts(&self, code: Code) -> bool {
        self.decision(code) == Some(RowAction::Convert)
    }

    /// What happens to rows of a class; none where only the user can tell. What speaks of an entry of a folder is passed
    /// over; damage of no class stops a job too.
    fn decision(&self, code: Code) -> Option<RowAction> {
        match (Class::of(code), code) {
            (Some(class), _) => class.decision(&self.rows),
            (None, Code::PathOutside | Code::NotSupported | Code::FormatUnknown) => Some(RowAction::Skip),
            (None, _) => None,
        }
    }
}

/// Counts rows by class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    rules: Rules,
    classes: Vec<RowClass>,
}

impl Tally {
    /// Nothing counted yet.
    pub fn new(rules: Rules) -> Tally {
        Tally { rules, classes: Vec::new() }
    }

    /// Counts a row.
    pub fn add(&mut self, row: &RowProblem) {
        self.add_rows(row, 1);
    }

    /// Counts so many rows of a class, of which this is the first.
    pub fn add_rows(&mut self, row: &RowProblem, rows: u64) {
        if let Some(class) = self.classes.iter_mut().find(|class| class.code == row.code) {
            class.rows += rows;
            return;
        }
        let choices = Class::of(row.code).map_or_else(Vec::new, |class| class.choices.to_vec());
        let decision = self.rules.decision(row.code);
        self.classes.push(RowClass { code: row.code, rows, first: row.clone(), choices, decision });
    }

    /// Counts a class that was counted elsewhere, under the decision of these rules.
    pub fn add_class(&mut self, class: &RowClass) {
        self.classes.push(RowClass { decision: self.rules.decision(class.code), ..class.clone() });
    }

    /// True where a row of this class stops a job.
    pub fn stops(&self, code: Code) -> bool {
        !matches!(self.rules.decision(code), Some(RowAction::Skip | RowAction::Convert))
    }

    /// The classes in the order of their first rows.
    pub fn classes(&self) -> &[RowClass] {
        &self.classes
    }

    /// Why a job on these rows is refused: the first class that it leaves undecided, or refuses. `rows` is how many rows
    /// there are in all.
    pub fn refusal(&self, rows: u64) -> Option<Problem> {
        let class = self.classes.iter().find(|class| self.stops(class.code))?;
        let name = class.code.name();
        let (many, are) = (class.rows, if class.rows == 1 { "is" } else { "are" });
        let said = match class.decision {
            None => "the job does not say what happens to such rows".to_owned(),
            Some(RowAction::Map) => "data.columns and data.roles do not map them".to_owned(),
            Some(_) => format!("the job refuses rows of the class {name}"),
        };
        let mut problem = class.first.problem().why(format!("{many} of {rows} rows {are} of the class {name}; {said}"));
        if let Some(known) = Class::of(class.code) {
            problem = problem.field(known.field()).remedy(known.remedy());
            problem.ways = known.ways();
        }
        Some(problem)
    }
}
