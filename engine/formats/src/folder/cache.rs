//! Hugging Face's cache: the files of `models--org--name/snapshots/<revision>` are links to `models--org--name/blobs/<hash>`.
//!
//! Such a link is followed to a regular file directly in the `blobs` of the very repository that the snapshot lies in, and
//! no further: a blob that is itself a link, or a target anywhere else, stays outside.

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

const FOLDER: OFlags = super::READ.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW);

/// The repository that a snapshot belongs to.
pub(super) struct Repository {
    fd: OwnedFd,
    path: PathBuf,
    revision: OsString,
}

impl Repository {
    /// The one around an open folder, where the folder is a snapshot.
    pub(super) fn around(snapshot: &OwnedFd, path: &Path) -> Option<Repository> {
        let whole = std::fs::canonicalize(path).ok()?;
        let (revision, snapshots) = (whole.file_name()?.to_owned(), whole.parent()?);
        let repository = snapshots.parent()?;
        let kind = repository.file_name()?.as_bytes();
        let cached = kind.starts_with(b"models--") || kind.starts_with(b"datasets--");
        if !cached || snapshots.file_name()? != "snapshots" {
            return None;
        }
        let fd = rustix::fs::open(repository, FOLDER, Mode::empty()).ok()?;
        // The folder that is open may have moved since: it must be the one that this path leads to.
        let (here, there) = (rustix::fs::fstat(snapshot).ok()?, at(&fd, &Path::new("snapshots").join(&revision)).ok()?);
        let same = (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino);
        same.then(|| Repository { fd, path: repository.to_owned(), revision })
    }

    /// Opens the blob that the link `name` of the snapshot leads to; `None` where it is no such link.
    pub(super) fn blob(&self, name: &str) -> Option<Result<OwnedFd, Errno>> {
        let link = Path::new("snapshots").join(&self.revision).join(name);
        let target = rustix::fs::readlinkat(&self.fd, &link, Vec::new()).ok()?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        let blob = match target.strip_prefix(&self.path) {
            Ok(inside) => inside.to_owned(),
            Err(_) => beneath(link.parent()?, &target)?,
        };
        let mut parts = blob.components();
        let (Some(Component::Normal(first)), Some(Component::Normal(hash)), None) =
            (parts.next(), parts.next(), parts.next())
        else {
            return None;
        };
        (first == OsStr::new("blobs")).then(|| self.open(hash))
    }

    fn open(&self, hash: &OsStr) -> Result<OwnedFd, Errno> {
        let blobs = rustix::fs::openat(&self.fd, "blobs", FOLDER, Mode::empty())?;
        rustix::fs::openat(&blobs, hash, super::READ | OFlags::NOFOLLOW, Mode::empty())
    }
}

fn at(fd: &OwnedFd, path: &Path) -> Result<rustix::fs::Stat, Errno> {
    rustix::fs::statat(fd, path, AtFlags::SYMLINK_NOFOLLOW)
}

/// `target` seen from `from`, both relative to the repository; `None` where it leaves the repository or is absolute.
fn beneath(from: &Path, target: &Path) -> Option<PathBuf> {
    let mut path = from.to_owned();
    for part in target.components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                path.file_name()?;
                path.pop();
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::super::Folder;
    use protocol::Code;
    use std::os::unix::fs::symlink;

    /// A cache of one repository whose snapshot has a file, a file in a folder, and links that lead elsewhere.
    fn cache() -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let repository = dir.path().join("hub/models--org--name");
        let snapshot = repository.join("snapshots/0123abcd");
        std::fs::create_dir_all(snapshot.join("onnx")).unwrap();
        std::fs::create_dir_all(repository.join("blobs/deep")).unwrap();
        std::fs::create_dir_all(dir.path().join("hub/models--org--other/blobs")).unwrap();
        std::fs::write(repository.join("blobs/feed"), "blob").unwrap();
        std::fs::write(repository.join("secret"), "no blob").unwrap();
        std::fs::write(repository.join("blobs/deep/x"), "no blob").unwrap();
        std::fs::write(dir.path().join("hub/models--org--other/blobs/feed"), "another's").unwrap();
        symlink("/etc/passwd", repository.join("blobs/evil")).unwrap();
        for (name, target) in [
            ("good", "../../blobs/feed"),
            ("onnx/good", "../../../blobs/feed"),
            ("evil", "../../blobs/evil"),
            ("passwd", "/etc/passwd"),
            ("other", "../../../models--org--other/blobs/feed"),
            ("secret", "../../secret"),
            ("deep", "../../blobs/deep/x"),
            ("folder", "../../blobs/deep"),
            ("around", "../../blobs/../secret"),
            ("gone", "../../blobs/gone"),
        ] {
            symlink(target, snapshot.join(name)).unwrap();
        }
        symlink(repository.join("blobs/feed"), snapshot.join("absolute")).unwrap();
        (dir, snapshot)
    }

    #[test]
    fn links_of_a_cached_snapshot_reach_the_blobs_of_their_repository_and_nothing_else() {
        let (dir, snapshot) = cache();
        let folder = Folder::open(&snapshot).unwrap();
        let mut good = vec!["good", "onnx/good"];
        // The path that the system calls its temporary folder by may hold links itself.
        if dir.path().canonicalize().unwrap() == dir.path() {
            good.push("absolute");
        }
        for name in good {
            assert_eq!(folder.read(name, 100).unwrap(), b"blob", "{name}");
        }
        for name in ["evil", "passwd", "other", "secret", "deep", "around"] {
            assert_eq!(folder.file(name).unwrap_err().code, Code::PathOutside, "{name}");
        }
        assert_eq!(folder.file("gone").unwrap_err().code, Code::FileUnreadable);
        assert_eq!(folder.file("folder").unwrap_err().code, Code::FormatUnknown);
    }

    #[test]
    fn a_snapshot_is_known_through_a_link_and_only_where_the_cache_is_one() {
        let (dir, snapshot) = cache();
        symlink(&snapshot, dir.path().join("mine")).unwrap();
        assert_eq!(Folder::open(&dir.path().join("mine")).unwrap().read("good", 100).unwrap(), b"blob");
        let elsewhere = dir.path().join("hub/name");
        std::fs::rename(dir.path().join("hub/models--org--name"), &elsewhere).unwrap();
        let folder = Folder::open(&elsewhere.join("snapshots/0123abcd")).unwrap();
        assert_eq!(folder.file("good").unwrap_err().code, Code::PathOutside);
    }
}
