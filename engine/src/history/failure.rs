//! How work on the database fails: by damage, which is repaired by building it again, or by a problem for the user.

use protocol::{Code, Problem};
use rusqlite::ErrorCode;

/// Why an answer did not come.
#[derive(Debug)]
pub enum Failure {
    /// The file contradicts itself; it can be built again from the run folders.
    Damaged(String),
    /// Anything else.
    Refused(Box<Problem>),
}

/// A value, or why there is none.
pub type Answer<T> = Result<T, Failure>;

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Failure {
        Failure::Refused(Box::new(problem))
    }
}

impl From<rusqlite::Error> for Failure {
    /// Busy, full and failing disks, and memory are the machine's; everything else (a table that is gone, a number where a
    /// text should be) can only come from damage, because the statements themselves are fixed and tested.
    fn from(error: rusqlite::Error) -> Failure {
        let reason = error.to_string();
        let (code, remedy) = match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                (Code::Busy, "another program holds history.sqlite3; try again when it is done")
            }
            Some(ErrorCode::DiskFull) => (Code::DiskFull, "free some room on the disk that holds HOME and try again"),
            Some(ErrorCode::SystemIoFailure) => (Code::DiskFailed, "check the disk (dmesg tells more) and try again"),
            Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
                (Code::HistoryFailed, "check that HOME and history.sqlite3 may be read and written by you")
            }
            Some(ErrorCode::OutOfMemory) => (Code::OutOfMemory, "close other programs and try again"),
            _ => return Failure::Damaged(reason),
        };
        let what = "the history cannot be read or written";
        Failure::Refused(Box::new(Problem::new(code, what).why(reason).kept(KEPT).remedy(remedy)))
    }
}

/// What is never at risk when the index fails.
pub const KEPT: &str = "all run folders, from which the history is built again";

impl Failure {
    /// For the user: damage that came back right after the history was built again is the disk's.
    pub fn problem(self) -> Problem {
        match self {
            Failure::Refused(problem) => *problem,
            Failure::Damaged(why) => {
                Problem::new(Code::HistoryFailed, "the history was damaged again while it was built")
                    .why(why)
                    .kept(KEPT)
                    .remedy("check the disk that holds HOME (dmesg tells more)")
            }
        }
    }
}
