//! Taking a model: its files are copied, linked or moved into a folder that the user names.
//!
//! Nothing is written before it is known that everything fits; what is made appears whole under its name; what is moved
//! leaves its old place last. Caches with an index of their own (Hugging Face's, Ollama's) never lose a file.
//! Not here: how files are carried (`carry`), what a model is made of (`source`).

mod carry;
mod source;
#[cfg(test)]
mod tests;

use super::{Spot, text};
use carry::{Carry, Going};
use protocol::problem::{Code, Outcome, Problem};
use protocol::shelf::{How, ShelfSource, Taken};
use rustix::fs::{Access, access};
use source::{Part, Source, Status};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use store::disk::{Disk, RealDisk};

/// What is asked.
#[derive(Clone, Debug)]
pub struct Order {
    /// The folder that it goes into.
    pub to: PathBuf,
    /// How.
    pub how: How,
    /// Only tell.
    pub dry_run: bool,
}

/// Takes a model, or tells what that would do. Errors: see `Engine::take_model`.
pub fn take(places: &[Spot], path: &Path, order: &Order, going: Going) -> Outcome<Taken> {
    let source = Source::open(places, path)?;
    let to = folder(&order.to)?;
    let target = free_target(&source, &to)?;
    let across = is_across(&source, &to)?;
    match order.how {
        How::Link if across => return Err(other_disk(&source.path)),
        How::Move => may_leave(&source)?,
        How::Copy | How::Link => {}
    }
    let free = store::space::room(&to)?.free;
    let copies = order.how == How::Copy || across;
    if copies {
        has_room(source.bytes(), free, &to)?;
    }
    let file = |part: &Part| {
        let new = if source.folder { target.join(&part.name) } else { target.clone() };
        (text(&part.path), text(&new))
    };
    let files = source.parts.iter().map(file).collect();
    let taken = Taken { to: text(&target), how: order.how, files, bytes: source.bytes(), free, dry_run: order.dry_run };
    if order.dry_run {
        return Ok(taken);
    }
    match order.how {
        How::Copy => carry::carry(&source, &target, Carry::Copy { verify: false }, going)?,
        How::Link => carry::carry(&source, &target, Carry::Link, going)?,
        How::Move => move_to(&source, &target, across, free, going)?,
    }
    Ok(taken)
}

fn folder(to: &Path) -> Outcome<PathBuf> {
    let real = to.canonicalize().map_err(|e| Problem::io(&e, "finding the folder to take the model to", to))?;
    if real.is_dir() {
        return Ok(real);
    }
    Err(Problem::new(Code::FileUnreadable, "a model is taken into a folder, and this is none")
        .file(to)
        .remedy("give a folder that is there"))
}

fn free_target(source: &Source, to: &Path) -> Outcome<PathBuf> {
    if source.folder && to.starts_with(&source.path) {
        return Err(Problem::new(Code::SettingInvalid, "a model cannot be taken into itself")
            .file(to)
            .remedy("give a folder outside of the model"));
    }
    let target = to.join(&source.name);
    if target.symlink_metadata().is_ok() { Err(is_there(&target)) } else { Ok(target) }
}

pub(super) fn is_there(target: &Path) -> Problem {
    Problem::new(Code::WrongState, "there is something of this name already")
        .file(target)
        .kept("what is there, and the model where it was")
        .remedy("give another folder, or remove what is there")
}

pub(super) fn other_disk(path: &Path) -> Problem {
    Problem::new(Code::NotSupported, "the model lies on another disk than the folder it is to go to")
        .why("a file can have a second name only on its own disk")
        .file(path)
        .remedy("copy the model instead, or give a folder on the same disk")
}

fn has_room(bytes: u64, free: u64, to: &Path) -> Outcome<()> {
    if bytes <= free {
        return Ok(());
    }
    Err(Problem::new(Code::DiskFull, "there is not enough room for the model")
        .why(format!("{bytes} bytes are needed and {free} bytes are free"))
        .room(bytes, free)
        .file(to)
        .kept("nothing was written")
        .remedy("free some room on this disk, or give a folder on another"))
}

fn is_across(source: &Source, to: &Path) -> Outcome<bool> {
    let disk = to.symlink_metadata().map_err(|e| Problem::io(&e, "finding the disk of the folder", to))?.dev();
    Ok(source.parts.iter().any(|part| part.status.device != disk))
}

/// Refuses a move out of what others keep an index of, and out of folders that may not be changed.
fn may_leave(source: &Source) -> Outcome<()> {
    let refused = |what: &str, why: &str| {
        let problem = Problem::new(Code::WrongState, what).why(why).file(&source.path);
        Err(problem.kept("the model, where it is").remedy("copy or link it instead"))
    };
    match source.owner {
        Some(ShelfSource::HuggingFace | ShelfSource::Ollama) => {
            let why = "the program that fetched it keeps an index of its files, which would be broken";
            return refused("a model cannot be moved out of another program's cache", why);
        }
        None => {
            let why = "it lies in none of the places that were added, so it may be somebody else's";
            return refused("this model may not be moved", why);
        }
        Some(ShelfSource::LmStudio | ShelfSource::Added) => {}
    }
    let mut folders: Vec<&Path> = source.parts.iter().filter_map(|part| part.path.parent()).collect();
    folders.dedup();
    if source.folder && source.whole {
        folders.extend(source.path.parent());
    }
    match folders.iter().find(|folder| access(**folder, Access::WRITE_OK | Access::EXEC_OK).is_err()) {
        Some(_) => refused("this model may not be moved", "its folder may not be changed by you"),
        None => Ok(()),
    }
}

/// On one disk a model goes by its name alone; across disks it is copied, compared, and only then removed.
fn move_to(source: &Source, target: &Path, across: bool, free: u64, going: Going) -> Outcome<()> {
    if !across && source.whole {
        match rename(source, target) {
            Err(e) if e.kind() == io::ErrorKind::CrossesDevices => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Err(is_there(target)),
            renamed => return renamed.map_err(|e| Problem::io(&e, "moving the model", &source.path)),
        }
    } else if !across {
        carry::carry(source, target, Carry::Link, going)?;
        return leave(source, target);
    }
    // Two folders of one disk may be mounted apart, which shows only now.
    has_room(source.bytes(), free, target.parent().unwrap_or(target))?;
    carry::carry(source, target, Carry::Copy { verify: true }, going)?;
    leave(source, target)
}

fn rename(source: &Source, target: &Path) -> io::Result<()> {
    RealDisk.rename(&source.path, target)?;
    let folders = [target.parent(), source.path.parent()];
    folders.into_iter().flatten().try_for_each(|folder| RealDisk.sync_folder(folder))
}

/// Removes the old files, now that the new ones are durable. One that changed meanwhile stays.
fn leave(source: &Source, target: &Path) -> Outcome<()> {
    let kept = |problem: Problem| problem.kept(format!("the whole model in {}", target.display()));
    for part in &source.parts {
        let now = part.path.symlink_metadata().map(|now| Status::of(&now));
        match now {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Ok(now) if now == part.status => {}
            _ => {
                let what = "a file of the model changed while it was moved, and stays in its old place too";
                return Err(kept(Problem::new(Code::ModelChanged, what).file(&part.path)));
            }
        }
        std::fs::remove_file(&part.path).map_err(|e| {
            kept(Problem::io(&e, "removing a file from its old place", &part.path))
                .remedy("remove what is left in the old place by hand")
        })?;
    }
    if source.folder {
        // What else lies in it keeps it.
        let _ = std::fs::remove_dir(&source.path);
    }
    Ok(())
}
