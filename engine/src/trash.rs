//! Deleted jobs: what a user may delete, and which ones are freed. Moving and freeing folders is `store::trash`.

use protocol::{Code, Outcome, Problem};
use store::home::Home;
use store::trash::{self, GRACE_MS};

/// Moves a job that nobody runs to the trash. Errors: `NotFound`, `WrongState` while it is alive.
pub fn delete(home: &Home, id: &str, now_ms: i64) -> Outcome<()> {
    trash::delete(home, id, now_ms).map(|_| ()).map_err(|problem| match problem.code {
        Code::Busy => Problem { code: Code::WrongState, ..problem },
        _ => problem,
    })
}

/// Frees what has been in the trash for its grace period.
/// Errors: the first folder that could not be freed; it is tried again the next time.
pub fn free_old(home: &Home, now_ms: i64) -> Outcome<()> {
    trash::free_old(home, now_ms, GRACE_MS).map(|_| ())
}

/// The full id of a deleted job, from its id or any beginning of it that only one has. Errors: `NotFound`.
pub fn find(home: &Home, beginning: &str) -> Outcome<String> {
    let mut matching = trash::list(home)?.into_iter().map(|one| one.id).filter(|id| id.starts_with(beginning));
    let shown = beginning.escape_debug();
    match (matching.next(), matching.next()) {
        (Some(id), None) => Ok(id),
        (None, _) => Err(Problem::new(Code::NotFound, format!("job \"{shown}\" is not in the trash"))),
        (Some(a), Some(b)) => Err(Problem::new(Code::NotFound, format!("several deleted jobs begin with \"{shown}\""))
            .why(format!("{a}, {b}"))
            .remedy("give more of the id")),
    }
}
