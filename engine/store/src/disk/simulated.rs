//! A disk in memory that knows what is pending and what is durable.

use super::{Disk, Listed, Output};
use std::io::{self, Read};
use std::path::Path;

/// What a failing call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails with this errno.
    Errno(i32),
    /// It writes half of what it was given and says so; calls that do not write succeed.
    Short,
}

/// A disk in memory.
#[derive(Debug, Default)]
pub struct SimulatedDisk {}

impl Disk for SimulatedDisk {
    fn create_folder(&self, _path: &Path) -> io::Result<()> {
        todo!()
    }
    fn create(&self, _path: &Path) -> io::Result<Box<dyn Output>> {
        todo!()
    }
    fn open(&self, _path: &Path) -> io::Result<Box<dyn Read + Send>> {
        todo!()
    }
    fn size(&self, _path: &Path) -> io::Result<u64> {
        todo!()
    }
    fn list(&self, _path: &Path) -> io::Result<Vec<Listed>> {
        todo!()
    }
    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        todo!()
    }
    fn replace(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        todo!()
    }
    fn sync_folder(&self, _path: &Path) -> io::Result<()> {
        todo!()
    }
    fn remove_file(&self, _path: &Path) -> io::Result<()> {
        todo!()
    }
    fn remove_folder(&self, _path: &Path) -> io::Result<()> {
        todo!()
    }
    fn free(&self, _path: &Path) -> io::Result<u64> {
        todo!()
    }
}
