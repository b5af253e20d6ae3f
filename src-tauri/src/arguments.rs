//! The words behind `anneal-desktop`: paths to open, and where HOME is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What the program was asked to do.
#[derive(Debug, PartialEq)]
pub enum Asked {
    /// Open the window.
    Open {
        /// HOME, where it was named.
        home: Option<PathBuf>,
        /// Files to open, absolute.
        paths: Vec<PathBuf>,
    },
    /// Print a text and end.
    Print(String),
    /// Complain and end.
    Refuse(String),
}

const HELP: &str = "anneal-desktop [--home DIR] [PATH...]\n\n\
    Opens the window of Anneal. PATHs are models and data sets to begin with.\n\
    HOME is --home, else $ANNEAL_HOME, else the platform's data folder.";

/// Reads the arguments, the program's name left out; relative paths are taken from `folder`.
pub fn read(arguments: impl IntoIterator<Item = OsString>, folder: &Path) -> Asked {
    let (mut home, mut paths) = (None, Vec::new());
    let mut words = arguments.into_iter();
    let mut only_paths = false;
    while let Some(word) = words.next() {
        match word.to_str().filter(|_| !only_paths) {
            Some("--") => only_paths = true,
            Some("--home") => match words.next() {
                Some(folder_of) => home = Some(folder.join(folder_of)),
                None => return Asked::Refuse("--home needs a folder".into()),
            },
            Some("--version") => return Asked::Print(format!("anneal-desktop {}", env!("CARGO_PKG_VERSION"))),
            Some("--help" | "-h") => return Asked::Print(HELP.into()),
            Some(other) if other.starts_with('-') => {
                return Asked::Refuse(format!("{other} is not known; --help lists what is"));
            }
            _ => paths.push(folder.join(word)),
        }
    }
    Asked::Open { home, paths }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(all: &[&str]) -> Asked {
        read(all.iter().map(OsString::from), Path::new("/here"))
    }

    #[test]
    fn paths_become_absolute_and_options_are_known() {
        let open = |home: Option<&str>, paths: &[&str]| Asked::Open {
            home: home.map(PathBuf::from),
            paths: paths.iter().map(PathBuf::from).collect(),
        };
        assert_eq!(words(&["a b", "/c"]), open(None, &["/here/a b", "/c"]));
        assert_eq!(words(&["--home", "h", "--", "--x"]), open(Some("/here/h"), &["/here/--x"]));
        assert!(matches!(words(&["--home"]), Asked::Refuse(_)));
        assert!(matches!(words(&["--colour"]), Asked::Refuse(_)));
        assert!(matches!(words(&["--version"]), Asked::Print(_)));
    }
}
