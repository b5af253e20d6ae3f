//! The places that the user added, in `HOME/places.toml`: `places = ["/data/models"]`. Keys of a later version are kept.
//!
//! Not here: what lies in them (`added`).

use protocol::limits;
use protocol::problem::{Code, Outcome, Problem};
use std::path::{Path, PathBuf};
use store::disk::{self, RealDisk};
use store::home::Home;

/// Most places: each is searched whenever models are listed.
const PLACES: usize = 100;
/// The key of the list.
const KEY: &str = "places";

/// Where the list lies.
pub fn file(home: &Path) -> PathBuf {
    home.join("places.toml")
}

/// The places, in the order in which they were added; none where there is no list.
/// Errors: `FileMalformed`, `FileUnreadable`, `TooLarge`.
pub fn read(home: &Path) -> Outcome<Vec<PathBuf>> {
    paths(&table(&file(home))?, &file(home))
}

/// Adds a folder, by its path without links. One that is there already stays.
/// Errors: `FileUnreadable` where it is no folder or its name no text, `TooLarge`, as `read`, and disk problems.
pub fn add(home: &Home, place: &Path) -> Outcome<()> {
    let real = place.canonicalize().map_err(|e| Problem::io(&e, "finding the folder", place))?;
    if !real.is_dir() {
        return Err(Problem::new(Code::FileUnreadable, "a place is a folder, and this is none")
            .file(place)
            .remedy("give the folder that the models lie in"));
    }
    let Some(text) = real.to_str() else {
        return Err(Problem::new(Code::FileUnreadable, "the name of this folder is no text")
            .why("a job can only name what is written in UTF-8")
            .file(place)
            .remedy("rename it"));
    };
    change(home, |places| {
        if places.iter().any(|known| known == &real) {
            return Ok(());
        }
        if places.len() >= PLACES {
            return Err(Problem::new(Code::TooLarge, format!("there are {PLACES} places already"))
                .remedy("remove one first, or add the folder above several"));
        }
        places.push(PathBuf::from(text));
        Ok(())
    })
}

/// Takes a place off the list; its models stay as they are. Errors: `NotFound`, as `read`, and disk problems.
pub fn remove(home: &Home, place: &Path) -> Outcome<()> {
    let named = std::path::absolute(place).unwrap_or_else(|_| place.to_owned());
    let real = place.canonicalize().unwrap_or_else(|_| named.clone());
    change(home, |places| {
        let before = places.len();
        places.retain(|known| known != &named && known != &real);
        if places.len() < before {
            return Ok(());
        }
        Err(Problem::new(Code::NotFound, "this is none of the places that were added")
            .file(place)
            .remedy("see `anneal models` for those that were"))
    })
}

/// Reads, changes and writes the list, alone.
fn change(home: &Home, how: impl FnOnce(&mut Vec<PathBuf>) -> Outcome<()>) -> Outcome<()> {
    let _held = store::lock::of_folder(home.path())?;
    let file = file(home.path());
    let mut table = table(&file)?;
    let mut places = paths(&table, &file)?;
    how(&mut places)?;
    let list = places.iter().map(|place| toml::Value::String(place.display().to_string())).collect();
    table.insert(KEY.to_owned(), toml::Value::Array(list));
    let text = toml::to_string(&table).map_err(|e| Problem::internal(format!("places that TOML cannot hold: {e}")))?;
    disk::write_whole(&RealDisk, &file, text.as_bytes())
}

fn table(file: &Path) -> Outcome<toml::Table> {
    if file.symlink_metadata().is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
        return Ok(toml::Table::new());
    }
    let bytes = disk::read_whole(&RealDisk, file, limits::JOB_BYTES)?;
    let text = String::from_utf8(bytes).map_err(|_| malformed("it is not UTF-8".into(), file))?;
    text.parse().map_err(|e: toml::de::Error| malformed(e.message().to_owned(), file))
}

fn paths(table: &toml::Table, file: &Path) -> Outcome<Vec<PathBuf>> {
    let wrong = || malformed(format!("\"{KEY}\" is not a list of at most {PLACES} paths from the root"), file);
    let Some(value) = table.get(KEY) else { return Ok(Vec::new()) };
    let list = value.as_array().filter(|list| list.len() <= PLACES).ok_or_else(wrong)?;
    let path = |value: &toml::Value| value.as_str().map(PathBuf::from).filter(|path| path.is_absolute());
    list.iter().map(|value| path(value).ok_or_else(wrong)).collect()
}

fn malformed(why: String, file: &Path) -> Problem {
    Problem::new(Code::FileMalformed, "the list of places cannot be read")
        .why(why)
        .file(file)
        .kept("the file, as it is")
        .remedy("correct it, or remove it and add the places again")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> (tempfile::TempDir, Home) {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        (folder, home)
    }

    #[test]
    fn a_place_is_added_once_and_removed_even_when_it_is_gone() {
        let (folder, home) = home();
        let place = folder.path().join("mo\"dels é");
        std::fs::create_dir(&place).unwrap();
        std::os::unix::fs::symlink(&place, folder.path().join("link")).unwrap();
        add(&home, &place).unwrap();
        add(&home, &folder.path().join("link")).unwrap();
        assert_eq!(read(home.path()).unwrap(), [place.canonicalize().unwrap()]);
        std::fs::remove_dir(&place).unwrap();
        remove(&home, &place).unwrap();
        assert!(read(home.path()).unwrap().is_empty());
        assert_eq!(remove(&home, &place).unwrap_err().code, Code::NotFound);
    }

    #[test]
    fn only_folders_are_places() {
        let (folder, home) = home();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        for none in [file.clone(), folder.path().join("nowhere"), file.join("below")] {
            assert!(add(&home, &none).is_err(), "{none:?}");
        }
        assert!(!super::file(home.path()).exists());
    }

    #[test]
    fn keys_of_a_later_version_stay() {
        let (folder, home) = home();
        std::fs::write(file(home.path()), "later = { a = 1 }\nplaces = [\"/gone\"]\n").unwrap();
        add(&home, folder.path()).unwrap();
        let table: toml::Table = std::fs::read_to_string(file(home.path())).unwrap().parse().unwrap();
        assert_eq!(table["later"]["a"].as_integer(), Some(1));
        assert_eq!(table["places"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_list_that_cannot_be_read_is_refused_and_kept() {
        let (folder, home) = home();
        for text in ["places = 3", "places = [\"relative\"]", "places = [1]", "= [", "\u{0}"] {
            std::fs::write(file(home.path()), text).unwrap();
            assert_eq!(add(&home, folder.path()).unwrap_err().code, Code::FileMalformed, "{text}");
            assert_eq!(std::fs::read_to_string(file(home.path())).unwrap(), text);
        }
    }

    #[test]
    fn there_is_an_end_to_places() {
        let (folder, home) = home();
        let many: Vec<String> = (0..PLACES).map(|n| format!("\"/p/{n}\"")).collect();
        std::fs::write(file(home.path()), format!("places = [{}]", many.join(","))).unwrap();
        assert_eq!(add(&home, folder.path()).unwrap_err().code, Code::TooLarge);
        remove(&home, Path::new("/p/7")).unwrap();
        add(&home, folder.path()).unwrap();
    }
}
