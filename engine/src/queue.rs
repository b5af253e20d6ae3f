//! Who gets the devices next: tickets in `HOME/queue/`, one lock a device in `HOME/devices/`.
//!
//! A ticket is a small file that its owner holds a flock on, so a dead owner's ticket counts for nothing and is removed by
//! whoever comes across it. A job takes all its devices at once, and only when no older living ticket wants one of them:
//! nobody holds one device while waiting for another, and nobody is overtaken for ever.
//!
//! Not here: what a job does while it waits (`supervisor`), which devices it wants (`plan`).

use protocol::{Code, Outcome, Problem};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::home::Home;
use store::identity::{self, Identity};
use store::lock::{self, Lock};

/// Longest ticket that is read, in bytes: a machine has tens of devices with names of a few bytes.
const TICKET_BYTES: u64 = 64 * 1024;
/// Attempts at the queue's own lock, which is held for the moment of a few file operations; 10 ms apart.
const ATTEMPTS: u32 = 200;

/// Locks on all devices of a job; free again when this and every inherited copy is closed.
#[derive(Debug)]
pub struct DeviceLocks {
    /// One a device, in the order of their names.
    pub locks: Vec<Lock>,
}

/// A place in the queue, given up when dropped.
#[derive(Debug)]
pub struct Ticket {
    number: u64,
    home: Home,
    devices: BTreeSet<String>,
    _held: Lock,
}

/// What a ticket's file says.
#[derive(Serialize, Deserialize)]
struct Wanted {
    #[serde(flatten)]
    owner: Option<Identity>,
    job: String,
    devices: BTreeSet<String>,
}

impl Ticket {
    /// Takes the next ticket.
    /// Errors: `DiskFull`, `DiskFailed`; `Busy` where the queue's lock stays taken.
    pub fn take(home: &Home, job: &str, devices: &[String]) -> Outcome<Ticket> {
        let _queue = queue_lock(home)?;
        let number = next_number(home)?;
        let path = path_of(home, number);
        let held = lock::try_lock(&path)?.ok_or_else(|| Problem::internal(format!("ticket {number} has an owner")))?;
        let devices: BTreeSet<String> = devices.iter().cloned().collect();
        let wanted = Wanted { owner: identity::own(), job: job.to_owned(), devices };
        let text = serde_json::to_string(&wanted).map_err(|e| Problem::internal(format!("a ticket: {e}")))?;
        let ticket = Ticket { number, home: home.clone(), devices: wanted.devices, _held: held };
        fs::write(&path, text).map_err(|e| Problem::io(&e, "writing a ticket", &path))?;
        Ok(ticket)
    }

    /// Its number: smaller goes first.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// All devices at once if it is this ticket's turn and they are free, else `None`: ask again a little later. The ticket
    /// has done its work then and may be dropped.
    /// Errors: `DiskFailed`, `FileUnreadable` where the locks cannot be used.
    pub fn try_acquire(&self) -> Outcome<Option<DeviceLocks>> {
        let Some(_queue) = lock::try_lock(&self.home.queue().join("lock"))? else { return Ok(None) };
        for (number, path) in tickets(&self.home)? {
            if number < self.number && is_before(&path, &self.devices)? {
                return Ok(None);
            }
        }
        let mut locks = Vec::new();
        for device in &self.devices {
            match lock::try_lock(&self.home.device_lock(device))? {
                Some(lock) => locks.push(lock),
                None => return Ok(None),
            }
        }
        Ok(Some(DeviceLocks { locks }))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // One that cannot be removed counts as dead once its lock is gone.
        let _ = fs::remove_file(path_of(&self.home, self.number));
    }
}

/// True when the owner of an older ticket lives and wants one of these devices. Removes a dead owner's ticket.
fn is_before(path: &Path, devices: &BTreeSet<String>) -> Outcome<bool> {
    if !lock::is_held(path)? {
        let _ = fs::remove_file(path);
        return Ok(false);
    }
    let wanted = store::disk::read_whole(&store::disk::RealDisk, path, TICKET_BYTES).ok();
    let wanted = wanted.and_then(|bytes| serde_json::from_slice::<Wanted>(&bytes).ok());
    // What cannot be read might want anything.
    Ok(wanted.is_none_or(|wanted| !wanted.devices.is_disjoint(devices)))
}

fn queue_lock(home: &Home) -> Outcome<Lock> {
    let path = home.queue().join("lock");
    for _ in 0..ATTEMPTS {
        if let Some(lock) = lock::try_lock(&path)? {
            return Ok(lock);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(Problem::new(Code::Busy, "the queue is locked by another process").file(&path).remedy("try again"))
}

/// One more than every number given before, also when those tickets are gone; the caller holds the queue's lock.
fn next_number(home: &Home) -> Outcome<u64> {
    let path = home.queue().join("last");
    let last = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0);
    let newest = tickets(home)?.last().map_or(0, |(number, _)| *number);
    let next = last.max(newest).saturating_add(1);
    fs::write(&path, next.to_string()).map_err(|e| Problem::io(&e, "numbering a ticket", &path))?;
    Ok(next)
}

/// All tickets, oldest first.
fn tickets(home: &Home) -> Outcome<Vec<(u64, PathBuf)>> {
    let folder = home.queue();
    let failed = |e: std::io::Error| Problem::io(&e, "reading the queue", &folder);
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let number = entry.file_name().to_str().and_then(number_of);
        found.extend(number.map(|number| (number, entry.path())));
    }
    found.sort_unstable();
    Ok(found)
}

fn number_of(name: &str) -> Option<u64> {
    (name.len() >= 8 && name.bytes().all(|b| b.is_ascii_digit())).then(|| name.parse().ok()).flatten()
}

fn path_of(home: &Home, number: u64) -> PathBuf {
    home.queue().join(format!("{number:08}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> (tempfile::TempDir, Home) {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        (folder, home)
    }

    fn ticket(home: &Home, devices: &[&str]) -> Ticket {
        Ticket::take(home, "job", &devices.iter().map(|d| d.to_string()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn the_first_comes_first_and_the_second_when_it_is_done() {
        let (_folder, home) = home();
        let (first, second, third) = (ticket(&home, &["cpu"]), ticket(&home, &["cpu"]), ticket(&home, &["cpu"]));
        assert!(second.try_acquire().unwrap().is_none(), "the first has not even asked");
        let held = first.try_acquire().unwrap().unwrap();
        drop(first);
        assert!(second.try_acquire().unwrap().is_none(), "the device is taken");
        drop(held);
        assert!(third.try_acquire().unwrap().is_none(), "the second is before the third");
        assert!(second.try_acquire().unwrap().is_some());
    }

    #[test]
    fn jobs_on_other_devices_do_not_wait_and_none_holds_half_of_what_it_needs() {
        let (_folder, home) = home();
        let one = ticket(&home, &["cuda:0"]);
        let both = ticket(&home, &["cuda:1", "cuda:0"]);
        let cpu = ticket(&home, &["cpu", "cpu"]);
        let held = one.try_acquire().unwrap().unwrap();
        drop(one);
        assert!(both.try_acquire().unwrap().is_none());
        assert!(!lock::is_held(&home.device_lock("cuda:1")).unwrap());
        assert_eq!(cpu.try_acquire().unwrap().unwrap().locks.len(), 1);
        drop(held);
        assert_eq!(both.try_acquire().unwrap().unwrap().locks.len(), 2);
    }

    #[test]
    fn a_dead_owners_ticket_is_removed_and_its_number_not_given_again() {
        let (_folder, home) = home();
        let dead = path_of(&home, 1);
        fs::write(&dead, r#"{"job":"dead","devices":["cpu"]}"#).unwrap();
        let mine = ticket(&home, &["cpu"]);
        assert_eq!(mine.number(), 2);
        assert!(mine.try_acquire().unwrap().is_some());
        assert!(!dead.exists());
        drop(mine);
        assert_eq!(ticket(&home, &["cpu"]).number(), 3);
    }

    #[test]
    fn a_ticket_given_up_lets_the_next_one_pass() {
        let (_folder, home) = home();
        let (first, second) = (ticket(&home, &["cpu"]), ticket(&home, &["cpu"]));
        drop(first);
        assert!(second.try_acquire().unwrap().is_some());
    }

    #[test]
    fn a_ticket_that_cannot_be_read_is_waited_for_while_its_owner_lives() {
        let (_folder, home) = home();
        let odd = lock::try_lock(&path_of(&home, 1)).unwrap().unwrap();
        let mine = ticket(&home, &["cpu"]);
        assert!(mine.try_acquire().unwrap().is_none());
        drop(odd);
        assert!(mine.try_acquire().unwrap().is_some());
    }
}
