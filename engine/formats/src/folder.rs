//! Opening files that others made: only regular files, only beneath a given folder, only up to a stated size. One
//! exception: a snapshot of Hugging Face's cache may reach the blobs of its own repository (`cache`).
//!
//! Not here: what is in the files.

mod cache;

use cache::Repository;
use protocol::{Code, Outcome, Problem};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

/// Entries read from one folder: a folder of a million files is no model and no data set.
const ENTRIES: usize = 100_000;

/// Non-blocking, so that opening a FIFO returns; never a controlling terminal; never inherited.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// A folder that was given to us; nothing outside it is opened through it, but for the blobs of a cached repository.
#[derive(Debug)]
pub(crate) struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Opens a folder.
    pub(crate) fn open(path: &Path) -> Outcome<Folder> {
        let flags = READ | OFlags::DIRECTORY;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => Ok(Folder { fd, path: path.to_owned() }),
            Err(Errno::NOTDIR) => Err(not_a_folder(path)),
            Err(e) => Err(Problem::io(&e.into(), "opening the folder", path)),
        }
    }

    /// The path it was opened by.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// True when there is an entry of this name, of whatever kind.
    pub(crate) fn has(&self, name: &str) -> bool {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Opens a regular file beneath the folder. Errors: `PathOutside`, `FileUnreadable`, `FormatUnknown` for a special file.
    pub(crate) fn file(&self, name: &str) -> Outcome<File> {
        let full = self.path.join(name);
        if !is_beneath(Path::new(name)) {
            return Err(outside(&self.path.join("…"), name));
        }
        let found = match self.resolve(name) {
            Err(e @ (Errno::XDEV | Errno::LOOP)) => {
                Repository::around(&self.fd, &self.path).and_then(|repository| repository.blob(name)).unwrap_or(Err(e))
            }
            other => other,
        };
        let fd = found.map_err(|e| match e {
            Errno::XDEV | Errno::LOOP => outside(&full, name),
            Errno::NOENT => missing(&full),
            e => Problem::io(&e.into(), "opening the file", &full),
        })?;
        regular(File::from(fd), &full)
    }

    /// Reads a whole file of at most `limit` bytes.
    pub(crate) fn read(&self, name: &str, limit: u64) -> Outcome<Vec<u8>> {
        read_all(self.file(name)?, &self.path.join(name), limit)
    }

    /// Names in the folder, sorted by bytes, links and folders included.
    pub(crate) fn names(&self) -> Outcome<Vec<std::ffi::OsString>> {
        let failed = |e: std::io::Error| Problem::io(&e, "listing the folder", &self.path);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path).map_err(failed)? {
            names.push(entry.map_err(failed)?.file_name());
            if names.len() > ENTRIES {
                let what = format!("the folder has more than {ENTRIES} entries");
                return Err(Problem::new(Code::TooLarge, what).file(&self.path));
            }
        }
        names.sort();
        Ok(names)
    }

    fn resolve(&self, name: &str) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        loop {
            match rustix::fs::openat2(&self.fd, name, READ, Mode::empty(), resolve) {
                // The kernel could not be sure that nothing moved meanwhile; it asks to be called again.
                Err(Errno::AGAIN) => continue,
                Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => return self.resolve_by_steps(name),
                other => return other,
            }
        }
    }

    /// For kernels without openat2: one component at a time, links refused altogether.
    fn resolve_by_steps(&self, name: &str) -> Result<OwnedFd, Errno> {
        let mut at: Option<OwnedFd> = None;
        let parts: Vec<_> = Path::new(name).components().collect();
        for (i, part) in parts.iter().enumerate() {
            let last = i + 1 == parts.len();
            let flags = READ | OFlags::NOFOLLOW | if last { OFlags::empty() } else { OFlags::DIRECTORY };
            let next = rustix::fs::openat(at.as_ref().unwrap_or(&self.fd), part.as_os_str(), flags, Mode::empty())?;
            at = Some(next);
        }
        at.ok_or(Errno::NOENT)
    }
}

/// What a file is that was given in a folder's place.
fn not_a_folder(path: &Path) -> Problem {
    let mut start = Vec::new();
    let read = open(path).map(|file| file.take(crate::kind::START_BYTES).read_to_end(&mut start));
    let is_named = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("gguf"));
    match read {
        Err(problem) => problem,
        Ok(_) if start.starts_with(crate::gguf::MAGIC) => {
            let what = "this is a GGUF model; a folder is asked for here";
            Problem::new(Code::FormatUnknown, what).file(path).remedy("give the GGUF file as the model itself")
        }
        Ok(_) if is_named => {
            let what = "this is not a GGUF file, whatever its name: it has not the magic number of one";
            Problem::new(Code::FileMalformed, what).file(path).remedy("fetch the file again")
        }
        Ok(_) => crate::kind::refused(&start).map_or_else(
            || {
                Problem::new(Code::FormatUnknown, "this is a file, and no model or adapter")
                    .file(path)
                    .remedy("give a folder with config.json, *.safetensors and tokenizer.json")
            },
            |problem| problem.file(path),
        ),
    }
}

/// Opens a regular file that the user named himself; links are followed, special files are not opened for reading.
pub(crate) fn open(path: &Path) -> Outcome<File> {
    let fd =
        rustix::fs::open(path, READ, Mode::empty()).map_err(|e| Problem::io(&e.into(), "opening the file", path))?;
    regular(File::from(fd), path)
}

/// Reads a whole open file of at most `limit` bytes.
pub(crate) fn read_all(file: File, path: &Path, limit: u64) -> Outcome<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|e| Problem::io(&e, "reading the file", path))?;
    if bytes.len() as u64 > limit {
        let what = format!("the file is too large: more than {limit} bytes, which is the limit for its kind");
        return Err(Problem::new(Code::TooLarge, what).file(path));
    }
    Ok(bytes)
}

/// Length of an open file.
pub(crate) fn length(file: &File, path: &Path) -> Outcome<u64> {
    Ok(file.metadata().map_err(|e| Problem::io(&e, "reading the file's size", path))?.len())
}

/// The same bytes as text; `FileMalformed` where they are not UTF-8.
pub(crate) fn text(bytes: Vec<u8>, path: &Path) -> Outcome<String> {
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Problem::new(Code::FileMalformed, "the file is not UTF-8")
            .why(format!("byte {at} begins no character"))
            .file(path)
    })
}

fn is_beneath(name: &Path) -> bool {
    name.components().all(|c| matches!(c, Component::Normal(_))) && name.components().next().is_some()
}

fn outside(file: &Path, name: &str) -> Problem {
    Problem::new(Code::PathOutside, format!("\"{}\" leads outside the folder; it was not opened", name.escape_debug()))
        .remedy("copy the file itself into the folder (cp -L follows links)")
        .file(file)
}

fn missing(file: &Path) -> Problem {
    Problem::new(Code::FileUnreadable, "the file is missing (not found)").file(file).remedy("add it to the folder")
}

fn regular(file: File, path: &Path) -> Outcome<File> {
    let stat = rustix::fs::fstat(&file).map_err(|e| Problem::io(&e.into(), "reading the file's kind", path))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(file),
        FileType::Directory => Err(Problem::new(Code::FormatUnknown, "this is a folder, not a file").file(path)),
        _ => Err(Problem::new(Code::FormatUnknown, "this is a device, pipe or socket, not a file").file(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn folder() -> (tempfile::TempDir, Folder) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("in.txt"), "inside").unwrap();
        symlink("in.txt", dir.path().join("near")).unwrap();
        symlink("/etc/passwd", dir.path().join("far")).unwrap();
        symlink("../x", dir.path().join("up")).unwrap();
        symlink("self", dir.path().join("self")).unwrap();
        let opened = Folder::open(dir.path()).unwrap();
        (dir, opened)
    }

    #[test]
    fn links_out_of_the_folder_are_not_followed() {
        let (_dir, folder) = folder();
        assert_eq!(folder.read("near", 100).unwrap(), b"inside");
        for name in ["far", "up", "self", "../x", "/etc/passwd", "", "a/../in.txt", "."] {
            assert_eq!(folder.file(name).unwrap_err().code, Code::PathOutside, "{name}");
        }
    }

    #[test]
    fn old_kernels_follow_no_links_at_all() {
        let (_dir, folder) = folder();
        assert!(folder.resolve_by_steps("in.txt").is_ok());
        for name in ["near", "far", "up"] {
            assert!(folder.resolve_by_steps(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_model_file_in_a_folders_place_is_refused_by_what_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let cases: [(&[u8], Code, &str); 5] = [
            (b"GGUF\x03\0\0\0", Code::FormatUnknown, "GGUF"),
            (b"\x80\x02}q\x00.", Code::CodeInFile, "pickle"),
            (b"PK\x03\x04....archive/data.pkl", Code::CodeInFile, "pickle"),
            (b"\x02\0\0\0\0\0\0\0{}", Code::FormatUnknown, "weight file"),
            (b"words", Code::FormatUnknown, "no model"),
        ];
        for (bytes, code, word) in cases {
            let path = dir.path().join("model.any");
            std::fs::write(&path, bytes).unwrap();
            let problem = Folder::open(&path).unwrap_err();
            assert!(problem.code == code && problem.what.contains(word), "{problem}");
            assert!(!problem.remedy.is_empty() && problem.place.file.is_some(), "{problem}");
        }
    }

    #[test]
    fn a_pipe_does_not_hang_and_a_large_file_is_not_read() {
        let (dir, folder) = folder();
        rustix::fs::mkfifoat(&folder.fd, "pipe", Mode::from_raw_mode(0o600)).unwrap();
        assert_eq!(folder.file("pipe").unwrap_err().code, Code::FormatUnknown);
        assert_eq!(open(&dir.path().join("pipe")).unwrap_err().code, Code::FormatUnknown);
        assert_eq!(folder.read("in.txt", 5).unwrap_err().code, Code::TooLarge);
    }
}
