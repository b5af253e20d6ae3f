//! The cache of Hugging Face's libraries: `models--ORG--NAME/snapshots/REVISION`, whose files are links into `blobs`; the
//! file `refs/main` names the revision that is current.
//!
//! Not here: other kinds of the cache's folders (data sets, spaces), which hold no models.

use super::walk::{self, Entry, Look, What};
use super::weights::{self, Found};
use std::path::{Path, PathBuf};

/// Longest `refs/main`, in bytes: a commit's 40 digits, with room for other names of a revision.
const REVISION_BYTES: u64 = 256;

/// Models of a cache, each with its name.
pub fn models(look: &mut Look, root: &Path) -> Vec<(String, Found)> {
    let repositories = look.folders(root);
    repositories.iter().flat_map(|repository| repository_models(look, &repository.path)).collect()
}

/// Models of the newest whole snapshot of a repository's folder; none where it is no such folder.
pub fn repository_models(look: &mut Look, repository: &Path) -> Vec<(String, Found)> {
    let Some(name) = name_of(repository) else { return Vec::new() };
    for snapshot in snapshots(look, repository) {
        let entries = look.list(&snapshot);
        let found = weights::in_folder(&snapshot, &entries, &|entry| stands_for(repository, entry));
        if !found.is_empty() {
            return super::named(&name, found);
        }
    }
    Vec::new()
}

/// "models--ORG--NAME" is ORG/NAME.
pub fn name_of(repository: &Path) -> Option<String> {
    let name = repository.file_name()?.to_str()?.strip_prefix("models--")?;
    (!name.is_empty()).then(|| name.replace("--", "/"))
}

/// Snapshots, the current one first, then by age, the newest first.
fn snapshots(look: &mut Look, repository: &Path) -> Vec<PathBuf> {
    let all = look.folders(&repository.join("snapshots"));
    let current = walk::small_text(&repository.join("refs/main"), REVISION_BYTES);
    let current = current.as_deref().map(str::trim);
    let age = |entry: &Entry| entry.path.symlink_metadata().and_then(|status| status.modified()).ok();
    let mut dated: Vec<_> = all.into_iter().map(|e| (current == Some(e.name.as_str()), age(&e), e.path)).collect();
    dated.sort_by_key(|entry| std::cmp::Reverse((entry.0, entry.1)));
    dated.into_iter().map(|(.., path)| path).collect()
}

/// The file that an entry of a snapshot stands for: itself, or the blob of the same repository that it links to.
fn stands_for(repository: &Path, entry: &Entry) -> Option<PathBuf> {
    match entry.what {
        What::File => Some(entry.path.clone()),
        What::Link => blob(repository, &entry.path),
        What::Folder | What::Special => None,
    }
}

/// The blob of this repository that a link of a snapshot leads to; `None` for a link that leads elsewhere or nowhere.
pub fn blob(repository: &Path, link: &Path) -> Option<PathBuf> {
    let (real, blobs) = (link.canonicalize().ok()?, repository.join("blobs").canonicalize().ok()?);
    (real.starts_with(blobs) && real.symlink_metadata().is_ok_and(|status| status.is_file())).then_some(real)
}

/// The repository's folder of a snapshot's folder.
pub fn repository_of(snapshot: &Path) -> Option<&Path> {
    let snapshots = snapshot.parent().filter(|above| above.file_name().is_some_and(|name| name == "snapshots"))?;
    snapshots.parent().filter(|repository| name_of(repository).is_some())
}
