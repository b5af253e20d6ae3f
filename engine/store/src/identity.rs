//! Who a process is: pid, start time and boot id together. A pid alone may have passed to a stranger; signals go through a
//! pidfd that was compared with the whole identity first, so a stranger is never signalled.

use protocol::{Code, Outcome, Problem};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::fd::OwnedFd;

/// A process, unmistakably.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot.
    pub start: u64,
    /// Boot id of the kernel it runs on.
    pub boot: String,
}

/// Identity of the process that now bears this pid; `None` where there is none or it is a zombie.
pub fn of_pid(pid: u32) -> Option<Identity> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let (state, start) = state_and_start(&stat)?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
    (!matches!(state, b'Z' | b'X')).then_some(Identity { pid, start, boot })
}

/// Identity of this process.
pub fn own() -> Option<Identity> {
    of_pid(std::process::id())
}

/// True while that very process lives (a zombie does not).
pub fn is_alive(identity: &Identity) -> bool {
    of_pid(identity.pid).as_ref() == Some(identity)
}

/// A pidfd of that very process, readable once it ends; `None` where it is gone.
/// Errors: `DiskFailed` where the kernel gives no pidfd.
pub fn open(identity: &Identity) -> Outcome<Option<OwnedFd>> {
    let Some(pid) = i32::try_from(identity.pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        // Compared after opening: what the pidfd holds cannot change any more.
        Ok(fd) => Ok(is_alive(identity).then_some(fd)),
        Err(Errno::SRCH) => Ok(None),
        Err(error) => Err(refused(identity, "looking at", error)),
    }
}

/// Signals that very process; false where it is gone. A stranger with its pid is never signalled.
/// Errors: `WrongState` where the kernel does not permit it.
pub fn signal(identity: &Identity, signal: Signal) -> Outcome<bool> {
    let Some(fd) = open(identity)? else { return Ok(false) };
    match pidfd_send_signal(&fd, signal) {
        Ok(()) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(error) => Err(refused(identity, "signalling", error)),
    }
}

fn refused(identity: &Identity, doing: &str, error: Errno) -> Problem {
    Problem::new(Code::WrongState, format!("{doing} process {} failed", identity.pid)).why(error.to_string())
}

/// Fields 3 and 22 of /proc/PID/stat; the name in field 2 may hold spaces and brackets, so counting starts after its end.
fn state_and_start(stat: &[u8]) -> Option<(u8, u64)> {
    let end_of_name = stat.iter().rposition(|&b| b == b')')?;
    let fields = std::str::from_utf8(&stat[end_of_name + 1..]).ok()?;
    let mut fields = fields.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn a_name_with_brackets_does_not_hide_the_start_time() {
        let stat = b"7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 19";
        assert_eq!(state_and_start(stat), Some((b'S', 4242)));
        assert_eq!(state_and_start(b"7 (x) S 1"), None);
        assert_eq!(state_and_start(b""), None);
    }

    #[test]
    fn the_very_process_is_signalled_and_then_gone() {
        let _alone = crate::testing::alone();
        let mut child = sleeper();
        let identity = of_pid(child.id()).unwrap();
        assert!(is_alive(&identity));
        assert!(signal(&identity, Signal::TERM).unwrap());
        child.wait().unwrap();
        assert!(!is_alive(&identity));
        assert!(!signal(&identity, Signal::TERM).unwrap());
    }

    #[test]
    fn a_stranger_with_the_same_pid_is_never_signalled() {
        let _alone = crate::testing::alone();
        let mut child = sleeper();
        let mut earlier = of_pid(child.id()).unwrap();
        earlier.start -= 1;
        assert!(!signal(&earlier, Signal::KILL).unwrap());
        let other_boot = Identity { boot: "another".into(), ..of_pid(child.id()).unwrap() };
        assert!(!signal(&other_boot, Signal::KILL).unwrap());
        assert!(child.try_wait().unwrap().is_none(), "it still runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_zombie_is_not_alive() {
        let _alone = crate::testing::alone();
        let mut child = sleeper();
        let identity = of_pid(child.id()).unwrap();
        child.kill().unwrap();
        let fd = open(&identity).unwrap();
        if let Some(fd) = fd {
            rustix::event::poll(&mut [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)], None).unwrap();
        }
        assert!(!is_alive(&identity), "killed, not yet waited for");
        child.wait().unwrap();
    }
}
