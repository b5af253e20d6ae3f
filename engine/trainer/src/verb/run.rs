//! `run`: one attempt of a job, from opening the plan to the last checkpoint.

use crate::process::usage;
use protocol::Outcome;
use std::ffi::OsString;
use std::path::PathBuf;

/// `run --home HOME RUN_FOLDER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// HOME, so that the process tells whose it is.
    pub home: PathBuf,
    /// The run folder.
    pub folder: PathBuf,
}

impl Arguments {
    /// Parses what follows the verb.
    pub fn parse(rest: &[OsString]) -> Outcome<Arguments> {
        match rest {
            [flag, home, folder] if flag == "--home" => Ok(Arguments { home: home.into(), folder: folder.into() }),
            _ => Err(usage("`run` is called as: anneal-trainer run --home HOME RUN_FOLDER")),
        }
    }
}

/// Runs the attempt; returns the exit status.
pub fn main(_arguments: Arguments) -> u8 {
    todo!()
}
