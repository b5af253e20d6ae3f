//! Models that are already on this machine: in the caches of other programs, and in places that the user added.
//!
//! Everything here was written by strangers. Nothing is opened beyond its first bytes, no link is followed but those of
//! Hugging Face's cache to its own blobs, and what cannot be read is passed over. `walk` bounds the looking, `weights` says
//! what a model is, the module of each program knows its layout, `take` brings a model elsewhere.
//!
//! Not here: what a model is in full (`intake`).

mod added;
mod hugging_face;
mod lm_studio;
mod ollama;
mod places;
mod surroundings;
mod take;
#[cfg(test)]
mod tests;
mod walk;
mod weights;

pub use surroundings::Surroundings;

use crate::engine::{Engine, OnLine};
use protocol::problem::{Code, Outcome, Problem};
use protocol::shelf::{How, Shelf, ShelfModel, ShelfPlace, ShelfSource, Taken};
use protocol::verb::Line;
use std::path::{Path, PathBuf};
use store::home::Home;
use walk::{ENTRIES, Look, Seen};
use weights::Found;

/// Models listed of one place: more than fit on any disk.
const MODELS: usize = 5_000;

/// A model with its name.
struct Listed {
    name: String,
    source: ShelfSource,
    found: Found,
}

impl Engine {
    /// Models that are already on this machine, and where was looked. Places that cannot be read are told as not there.
    pub fn shelf(&self) -> Shelf {
        look(&Surroundings::of_process(), self.home().path())
    }

    /// Adds a folder to the places that are searched. Errors: `FileUnreadable` where it is no folder, `FileMalformed` where
    /// the list cannot be read, disk problems.
    pub fn add_place(&self, place: &Path) -> Outcome<Shelf> {
        places::add(&Home::open(self.home().path())?, place)?;
        Ok(self.shelf())
    }

    /// Takes a folder off the places that are searched. Errors: `NotFound`, `FileMalformed`, disk problems.
    pub fn remove_place(&self, place: &Path) -> Outcome<Shelf> {
        places::remove(&Home::open(self.home().path())?, place)?;
        Ok(self.shelf())
    }

    /// Brings a model (folder or GGUF file) into the folder `to`; a dry run tells what that would do. Bytes that are copied
    /// are told through `on_line`. Errors: `WrongState` where the target is there or the model may not leave its place,
    /// `DiskFull` before anything is written, `NotSupported` for a link across disks, `Cancelled`, disk problems.
    pub fn take_model(&self, path: &Path, to: &Path, how: How, dry_run: bool, on_line: OnLine) -> Outcome<Taken> {
        let order = take::Order { to: crate::engine::absolute(to)?, how, dry_run };
        let places = places_of(&Surroundings::of_process(), self.home().path());
        let phase = if how == How::Move { "moving" } else { "copying" };
        take::take(&places, &crate::engine::absolute(path)?, &order, &mut |done, total| {
            on_line(&Line::Progress { phase: phase.to_owned(), done, total, unit: "bytes".to_owned() });
            if self.is_cancelled() { Err(Problem::new(Code::Cancelled, "it was cancelled")) } else { Ok(()) }
        })
    }

    /// The path of a model by its name on the shelf, else the path itself.
    /// Errors: `NotFound` for neither, `SettingInvalid` where several bear the name.
    pub fn shelved(&self, name: &Path) -> Outcome<PathBuf> {
        by_name(&self.shelf(), name)
    }
}

fn by_name(shelf: &Shelf, name: &Path) -> Outcome<PathBuf> {
    let same: Vec<&ShelfModel> = shelf.models.iter().filter(|model| Path::new(&model.name) == name).collect();
    match same.as_slice() {
        [one] => Ok(PathBuf::from(&one.path)),
        [] if name.symlink_metadata().is_ok() => Ok(name.to_owned()),
        [] => Err(Problem::new(Code::NotFound, "there is no model of this name, and no such path")
            .file(name)
            .remedy("`anneal models` lists the models that are here")),
        several => {
            let paths: Vec<&str> = several.iter().map(|model| model.path.as_str()).collect();
            Err(Problem::new(Code::SettingInvalid, format!("{} models bear this name", several.len()))
                .why(paths.join(", "))
                .file(name)
                .remedy("give the path of one"))
        }
    }
}

/// A place that is looked at.
#[derive(Clone, Debug)]
struct Spot {
    path: PathBuf,
    source: ShelfSource,
}

/// All places; a list of the user's that cannot be read stands for itself, as a place that is not there.
fn places_of(here: &Surroundings, home: &Path) -> Vec<Spot> {
    let of = |source: ShelfSource, paths: Vec<PathBuf>| paths.into_iter().map(move |path| Spot { path, source });
    let added = places::read(home).unwrap_or_else(|_| vec![places::file(home)]);
    of(ShelfSource::HuggingFace, here.hugging_face().into_iter().collect())
        .chain(of(ShelfSource::LmStudio, here.lm_studio()))
        .chain(of(ShelfSource::Ollama, here.ollama()))
        .chain(of(ShelfSource::Added, added))
        .collect()
}

/// Everything that lies in the places of these surroundings and in those that were added to `home`.
fn look(here: &Surroundings, home: &Path) -> Shelf {
    let mut shelf = Shelf::default();
    let (mut places, mut models) = (Seen::default(), Seen::default());
    for spot in places_of(here, home) {
        if !places.is_new(&spot.path) {
            continue;
        }
        let before = shelf.models.len();
        let listed = models_of(&spot).into_iter().take(MODELS).filter(|one| models.is_new(&one.found.path));
        shelf.models.extend(listed.filter_map(shown));
        shelf.places.push(ShelfPlace {
            path: text(&spot.path),
            source: spot.source,
            there: std::fs::read_dir(&spot.path).is_ok(),
            models: (shelf.models.len() - before) as u64,
        });
    }
    shelf.models.sort_by(|a, b| (&a.name, a.source, &a.path).cmp(&(&b.name, b.source, &b.path)));
    shelf
}

fn models_of(spot: &Spot) -> Vec<Listed> {
    let (look, source) = (&mut Look::with(ENTRIES), spot.source);
    let models = match source {
        ShelfSource::HuggingFace => hugging_face::models(look, &spot.path),
        ShelfSource::LmStudio => lm_studio::models(look, &spot.path),
        ShelfSource::Ollama => ollama::models(look, &spot.path),
        ShelfSource::Added => return added::models(look, &spot.path),
    };
    models.into_iter().map(|(name, found)| Listed { name, source, found }).collect()
}

/// A path as it is, or escaped where it is no text.
fn text(path: &Path) -> String {
    path.to_str().map_or_else(|| crate::intake::escaped(path.as_os_str().as_encoded_bytes()), str::to_owned)
}

/// A job can only name what is text.
fn shown(listed: Listed) -> Option<ShelfModel> {
    let Listed { name, source, found } = listed;
    let path = found.path.to_str()?.to_owned();
    Some(ShelfModel { name, path, source, bytes: found.bytes, format: found.format.to_owned() })
}

/// Names of the models of one folder: the folder's, and of several GGUF files each with its own.
fn named(name: &str, found: Vec<Found>) -> Vec<(String, Found)> {
    let alone = found.len() == 1;
    let own = |one: &Found| match &one.stem {
        Some(stem) if !alone => format!("{name}/{stem}"),
        _ => name.to_owned(),
    };
    found.into_iter().map(|one| (own(&one), one)).collect()
}
