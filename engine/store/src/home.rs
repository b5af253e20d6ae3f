//! HOME, the one folder that holds everything: run folders, token caches, the trash, queue tickets, device locks and the
//! history. It must lie on a local disk: locks and the history's log do not work across a network.

use crate::space;
use protocol::{Code, Outcome, Problem};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Folders below HOME, made when it is opened.
const FOLDERS: [&str; 5] = ["runs", "tokens", "trash", "queue", "devices"];
/// Longest id of a run, in bytes: ours have 20, the rest is room for restored copies with a name of their own.
const ID_BYTES: usize = 64;
/// Digits of an id's random part: no two of them look or sound alike.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// The folder HOME, made and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    path: PathBuf,
}

/// Where HOME is: the `--home` option, else `$ANNEAL_HOME`, else `$XDG_DATA_HOME/anneal`, else `$HOME/.local/share/anneal`.
/// Empty values count as not given, and so does a relative `$XDG_DATA_HOME`, as its specification asks.
/// Errors: `HomeUnsuitable` where nothing is given.
pub fn choose(
    option: Option<&Path>,
    anneal_home: Option<&OsStr>,
    xdg_data_home: Option<&OsStr>,
    user_home: Option<&OsStr>,
) -> Outcome<PathBuf> {
    let given = |value: Option<&OsStr>| value.filter(|v| !v.is_empty()).map(PathBuf::from);
    option
        .map(Path::to_path_buf)
        .or_else(|| given(anneal_home))
        .or_else(|| given(xdg_data_home).filter(|p| p.is_absolute()).map(|p| p.join("anneal")))
        .or_else(|| given(user_home).map(|p| p.join(".local/share/anneal")))
        .ok_or_else(|| {
            Problem::new(Code::HomeUnsuitable, "there is no folder to keep runs in")
                .why("none of --home, ANNEAL_HOME, XDG_DATA_HOME and HOME is set")
                .remedy("give one with --home DIR")
        })
}

impl Home {
    /// Opens HOME, making it (mode 0700) and its folders where they are missing.
    /// Errors: `HomeUnsuitable` on a network file system, or where it cannot be made or is no folder.
    pub fn open(path: &Path) -> Outcome<Home> {
        refuse_network(nearest_existing(path))?;
        make(path)?;
        let path = std::fs::canonicalize(path).map_err(|e| unsuitable(path, e.to_string()))?;
        for name in FOLDERS {
            make(&path.join(name))?;
            refuse_network(&path.join(name))?;
        }
        Ok(Home { path })
    }

    /// HOME for reading only: nothing is made, checked or looked up.
    pub fn named(path: &Path) -> Home {
        Home { path: path.to_owned() }
    }

    /// True when tokens can be kept in it.
    pub fn is_writable(&self) -> bool {
        Home::open(&self.path).is_ok_and(|home| {
            use rustix::fs::{Access, access};
            access(home.tokens(), Access::WRITE_OK | Access::EXEC_OK).is_ok()
        })
    }

    /// The folder itself, as an absolute path without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Run folders.
    pub fn runs(&self) -> PathBuf {
        self.path.join("runs")
    }

    /// Token caches, one folder a fingerprint.
    pub fn tokens(&self) -> PathBuf {
        self.path.join("tokens")
    }

    /// Deleted run folders, until they are freed.
    pub fn trash(&self) -> PathBuf {
        self.path.join("trash")
    }

    /// Tickets of waiting jobs.
    pub fn queue(&self) -> PathBuf {
        self.path.join("queue")
    }

    /// Locks of devices.
    pub fn devices(&self) -> PathBuf {
        self.path.join("devices")
    }

    /// The lock of a device: "cuda:0" is `devices/cuda-0.lock`.
    pub fn device_lock(&self, device: &str) -> PathBuf {
        let safe = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        self.devices().join(format!("{}.lock", device.chars().map(safe).collect::<String>()))
    }

    /// The history's index.
    pub fn history(&self) -> PathBuf {
        self.path.join("history.sqlite3")
    }

    /// Folder of a run; nothing is looked up.
    /// Errors: `NotFound` where `id` cannot be an id, so that none leads outside `runs`.
    pub fn run(&self, id: &str) -> Outcome<PathBuf> {
        check_id(id)?;
        Ok(self.runs().join(id))
    }

    /// Ids of all runs, oldest first.
    /// Errors: `FileUnreadable` or `DiskFailed` where the folder cannot be read.
    pub fn run_ids(&self) -> Outcome<Vec<String>> {
        ids_in(&self.runs())
    }
}

/// Id of a new run: UTC time, then a short random part, as in "20261130-150312-k3f9". Ids sort by age.
/// `now_ms` counts from the Unix epoch; `random` is any random number.
pub fn run_id(now_ms: i64, random: u64) -> String {
    let seconds = now_ms.div_euclid(1000);
    let (year, month, day) = civil(seconds.div_euclid(86_400));
    let second = seconds.rem_euclid(86_400);
    let part: String = (0..4).map(|i| ALPHABET[(random >> (5 * i)) as usize % 32] as char).collect();
    let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}-{h:02}{m:02}{s:02}-{part}")
}

/// Refuses what cannot be an id: 1 to 64 of a-z, 0-9, '-' and '_', not beginning with '-'.
pub fn check_id(id: &str) -> Outcome<()> {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    if id.is_empty() || id.len() > ID_BYTES || id.starts_with('-') || !id.bytes().all(fits) {
        let shown: String = id.chars().take(ID_BYTES).flat_map(char::escape_debug).collect();
        return Err(Problem::new(Code::NotFound, format!("there is no job \"{shown}\"")).remedy("see `anneal jobs`"));
    }
    Ok(())
}

/// Names in a folder that are ids, sorted.
pub(crate) fn ids_in(folder: &Path) -> Outcome<Vec<String>> {
    use crate::disk::{Disk, RealDisk};
    let listed = RealDisk.list(folder).map_err(|e| Problem::io(&e, "reading a folder", folder))?;
    let mut ids: Vec<String> =
        listed.into_iter().filter(|l| l.folder && check_id(&l.name).is_ok()).map(|l| l.name).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// Year, month and day of a day counted from 1970-01-01 in the Gregorian calendar: 400-year eras that begin in March, so
/// that the leap day comes last (H. Hinnant, "chrono-compatible low-level date algorithms").
fn civil(day: i64) -> (i64, i64, i64) {
    let shifted = day + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day_of_year - (153 * march_month + 2) / 5 + 1)
}

/// Makes a folder of HOME where it is missing, for its user alone.
/// Errors: `HomeUnsuitable`.
pub fn make(path: &Path) -> Outcome<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| {
        // The system says "file exists" of a file in its place, which is half of the truth.
        let there = nearest_existing(path);
        let why = match (there.is_dir(), there == path) {
            (true, _) => e.to_string(),
            (false, true) => "it is no folder".to_owned(),
            (false, false) => format!("{} is no folder", there.display()),
        };
        unsuitable(path, why)
    })
}

fn nearest_existing(path: &Path) -> &Path {
    path.ancestors().find(|p| !p.as_os_str().is_empty() && p.exists()).unwrap_or(Path::new("."))
}

fn refuse_network(path: &Path) -> Outcome<()> {
    match space::network_file_system(path) {
        Ok(None) => Ok(()),
        Ok(Some(kind)) => Err(unsuitable(path, format!("it lies on a network file system ({kind})"))),
        Err(error) => Err(unsuitable(path, Errno::to_string(&error))),
    }
}

fn unsuitable(path: &Path, why: String) -> Problem {
    Problem::new(Code::HomeUnsuitable, "runs cannot be kept in this folder")
        .why(why)
        .file(path)
        .remedy("give a folder of your own on a local disk with --home DIR or ANNEAL_HOME")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn an_option_beats_the_environment_and_empty_values_do_not_count() {
        let set = |s: &'static str| Some(OsStr::new(s));
        let chosen = |o: Option<&Path>, a, x, h| choose(o, a, x, h).map(|p| p.display().to_string()).unwrap();
        assert_eq!(chosen(Some(Path::new("o")), set("/a"), set("/x"), set("/h")), "o");
        assert_eq!(chosen(None, set("/a"), set("/x"), set("/h")), "/a");
        assert_eq!(chosen(None, set(""), set("/x"), set("/h")), "/x/anneal");
        assert_eq!(chosen(None, None, set("relative"), set("/h")), "/h/.local/share/anneal");
        assert_eq!(choose(None, None, None, set("")).unwrap_err().code, Code::HomeUnsuitable);
    }

    #[test]
    fn home_is_made_for_the_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(&folder.path().join("a/b")).unwrap();
        for path in [home.path().to_path_buf(), home.runs(), home.trash(), home.queue(), home.devices(), home.tokens()]
        {
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700, "{path:?}");
        }
        assert_eq!(Home::open(home.path()).unwrap(), home);
        assert!(home.run_ids().unwrap().is_empty());
    }

    #[test]
    fn a_file_in_its_place_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "x").unwrap();
        let problem = Home::open(&path).unwrap_err();
        assert_eq!(problem.code, Code::HomeUnsuitable);
        assert!(problem.remedy.contains("--home"), "{problem}");
        assert_eq!(problem.why, "it is no folder");
        let below = Home::open(&path.join("home")).unwrap_err();
        assert!(below.why.ends_with("file is no folder"), "{below}");
        assert_eq!(Home::open(Path::new("/dev/full")).unwrap_err().why, "it is no folder");
    }

    #[test]
    fn ids_tell_the_time_and_sort_by_it() {
        assert_eq!(run_id(0, 0), "19700101-000000-0000");
        assert_eq!(run_id(1_796_051_592_999, 0), "20261130-151312-0000");
        assert_eq!(run_id(951_782_400_000, u64::MAX), "20000229-000000-zzzz");
        assert_eq!(run_id(-1, 1), "19691231-235959-1000");
        let ids: Vec<String> = (0..4000).map(|i| run_id(i * 86_400_000 * 7 + 5000, i as u64 * 7919)).collect();
        assert!(ids.is_sorted());
        assert!(ids.iter().all(|id| check_id(id).is_ok()));
    }

    #[test]
    fn no_id_leads_outside() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        for id in ["", ".", "..", "../x", "a/b", "a\0b", "-x", "ÄB", ".tmp-x", &"a".repeat(65)] {
            assert_eq!(home.run(id).unwrap_err().code, Code::NotFound, "{id:?}");
        }
        assert!(home.run("20261130-150312-k3f9").unwrap().starts_with(home.path()));
        assert_eq!(home.device_lock("cuda:0").file_name().unwrap(), "cuda-0.lock");
    }
}
