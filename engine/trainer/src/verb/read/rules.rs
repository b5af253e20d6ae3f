//! How the job file says that data is read.

use formats::dataset::{self, Options, Records};
use protocol::job::DataSpec;
use protocol::{Code, JobSpec, Outcome, Problem};

/// What a job says of its data. Errors: `NotSupported` for an encoding that comes later, by name.
pub fn options(data: &DataSpec) -> Outcome<Options> {
    if !data.encoding.eq_ignore_ascii_case("utf-8") && !data.encoding.eq_ignore_ascii_case("utf8") {
        let what = format!("the encoding \"{}\" is not read by this version", data.encoding);
        return Err(Problem::new(Code::NotSupported, what).field("data.encoding").remedy("convert the file to UTF-8"));
    }
    Ok(Options { columns: data.columns.clone(), rows: data.rows.clone(), roles: data.roles.clone() })
}

/// The training records of a job.
pub fn records(spec: &JobSpec) -> Outcome<Records> {
    dataset::read(&spec.data.train, &options(&spec.data)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_later_is_refused_by_name() {
        let mut latin: DataSpec = serde_json::from_str(r#"{"train":["x"]}"#).unwrap();
        latin.encoding = "latin-1".into();
        assert!(options(&latin).unwrap_err().what.contains("latin-1"));
    }
}
