//! How the job file says that data is read.

use formats::dataset::{self, Options, Records};
use protocol::job::DataSpec;
use protocol::{JobSpec, Outcome};

/// What a job says of its data.
pub fn options(data: &DataSpec) -> Outcome<Options> {
    Ok(Options {
        columns: data.columns.clone(),
        rows: data.rows.clone(),
        roles: data.roles.clone(),
        encoding: Some(data.encoding.clone()),
    })
}

/// The training records of a job.
pub fn records(spec: &JobSpec) -> Outcome<Records> {
    dataset::read(&spec.data.train, &options(&spec.data)?)
}
