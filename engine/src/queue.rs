//! Who gets the devices next: tickets in `HOME/queue/`, one lock a device in `HOME/devices/`.

use protocol::Outcome;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Locks on all devices of a job; free again when this and every inherited copy is closed.
pub struct DeviceLocks {
    /// One a device, each the open description that carries the flock.
    pub files: Vec<OwnedFd>,
}

/// A place in the queue; dead owners' tickets count for nothing, since each owner holds a flock on its own.
pub struct Ticket {
    /// Its number: smaller goes first.
    pub number: u64,
}

impl Ticket {
    /// Takes the next ticket.
    pub fn take(_home: &Path, _job: &str, _devices: &[String]) -> Outcome<Ticket> {
        todo!()
    }

    /// All devices at once if it is this ticket's turn and they are free, else `None`; gives the ticket back on success.
    pub fn try_acquire(&mut self) -> Outcome<Option<DeviceLocks>> {
        todo!()
    }
}
