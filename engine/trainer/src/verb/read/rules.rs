//! What the job file says of rows that cannot be used.

use protocol::facts::RowProblem;
use protocol::job::{DataSpec, RowAction};
use protocol::{Code, Outcome, Problem};
use std::collections::BTreeMap;

/// Classes of unusable rows that the job file can speak of.
const CLASSES: [Code; 5] = [Code::EmptyAnswer, Code::RowInvalid, Code::RowNotJson, Code::RowNotUtf8, Code::RowTooLong];

/// What happens to each class; one that is not named is left out and counted.
pub struct Rules {
    actions: BTreeMap<Code, RowAction>,
}

impl Rules {
    /// The rules of a job. Errors: `SettingInvalid` for an unknown class, `NotSupported` for what comes later, by name.
    pub fn of(data: &DataSpec) -> Outcome<Rules> {
        let actions = data.rows.iter().map(|(class, action)| rule(class, *action)).collect::<Outcome<_>>()?;
        Ok(Rules { actions })
    }

    /// Passes a row that is to be left out; refuses where the job says so.
    pub fn meet(&self, row: &RowProblem) -> Outcome<()> {
        if self.actions.get(&row.code) != Some(&RowAction::Refuse) {
            return Ok(());
        }
        let class = row.code.name();
        Err(Problem::new(row.code, row.message.clone())
            .row(row.row)
            .line(row.line)
            .why(format!("the job refuses rows of the class {class}"))
            .remedy(format!("correct the row, or set data.rows.{class} = \"skip\"")))
    }
}

fn rule(class: &str, action: RowAction) -> Outcome<(Code, RowAction)> {
    let field = format!("data.rows.{class}");
    let known = CLASSES.iter().find(|code| code.name() == class).ok_or_else(|| {
        let names: Vec<String> = CLASSES.iter().map(|code| code.name()).collect();
        Problem::new(Code::SettingInvalid, format!("\"{class}\" is no class of rows"))
            .field(&field)
            .remedy(format!("use one of: {}", names.join(", ")))
    })?;
    match action {
        RowAction::Skip | RowAction::Refuse => Ok((*known, action)),
        RowAction::Map | RowAction::Convert => {
            let what = "this version leaves unusable rows out or refuses them; it does not map or convert them";
            Err(Problem::new(Code::NotSupported, what).field(field).remedy("use \"skip\" or \"refuse\""))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(rows: &[(&str, RowAction)]) -> DataSpec {
        let mut data: DataSpec = serde_json::from_str(r#"{"train":["x"]}"#).unwrap();
        data.rows = rows.iter().map(|(class, action)| (class.to_string(), *action)).collect();
        data
    }

    #[test]
    fn a_class_that_must_not_occur_refuses_the_job_with_row_and_line() {
        let row = RowProblem { row: 7, line: 9, code: Code::EmptyAnswer, message: "the answer is empty".into() };
        let refuse = Rules::of(&data(&[("empty_answer", RowAction::Refuse)])).unwrap();
        let problem = refuse.meet(&row).unwrap_err();
        assert_eq!((problem.code, problem.place.row, problem.place.line), (Code::EmptyAnswer, Some(7), Some(9)));
        assert!(Rules::of(&data(&[])).unwrap().meet(&row).is_ok());
    }

    #[test]
    fn an_unknown_class_names_the_known_ones() {
        let problem = Rules::of(&data(&[("emty_answer", RowAction::Skip)])).err().unwrap();
        assert_eq!(problem.code, Code::SettingInvalid);
        assert!(problem.remedy.contains("empty_answer"), "{problem}");
    }

    #[test]
    fn what_comes_later_is_refused_by_name() {
        let problem = Rules::of(&data(&[("row_invalid", RowAction::Convert)])).err().unwrap();
        assert_eq!(problem.code, Code::NotSupported);
    }
}
