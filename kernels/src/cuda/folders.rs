//! Where libraries may lie, and where small files may be written. The only place of this crate that reads the environment.

use std::path::{Path, PathBuf};

/// Folders to look for libraries in, the preferred first: those the user names, the loader's, the system's, conda's, pip's.
pub(super) fn to_search() -> Vec<PathBuf> {
    let mut folders = list("ANNEAL_CUDA_LIBRARIES");
    folders.extend(list("LD_LIBRARY_PATH"));
    folders.extend(system());
    folders.extend(variable("CONDA_PREFIX").map(|prefix| prefix.join("lib")));
    folders.extend(pip());
    let mut seen = std::collections::HashSet::new();
    folders.retain(|folder| folder.is_dir() && seen.insert(folder.clone()));
    folders
}

/// Folders to write small files in, the preferred first.
pub(super) fn to_write() -> Vec<PathBuf> {
    cache().into_iter().chain(variable("XDG_RUNTIME_DIR")).chain([std::env::temp_dir()]).collect()
}

/// Where compiled kernels are kept; `None` where there is no home.
pub(super) fn cache() -> Option<PathBuf> {
    if cfg!(test) && std::env::var_os("ANNEAL_KERNEL_CACHE").is_none() {
        return Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/kernels"));
    }
    let below = |folder: PathBuf| folder.join("anneal/kernels");
    let home = || variable("HOME").map(|home| home.join(".cache"));
    variable("ANNEAL_KERNEL_CACHE").or_else(|| variable("XDG_CACHE_HOME").or_else(home).map(below))
}

/// A variable that names an absolute path.
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn list(name: &str) -> Vec<PathBuf> {
    let value = std::env::var_os(name).unwrap_or_default();
    std::env::split_paths(&value).filter(|path| path.is_absolute()).collect()
}

/// What the loader's configuration names, the usual places, and toolkits of NVIDIA, the newest first.
fn system() -> Vec<PathBuf> {
    let mut folders = configured(Path::new("/etc/ld.so.conf.d"));
    let usual = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/lib64",
        "/usr/lib",
        "/usr/lib/wsl/lib",
    ];
    folders.extend(usual.map(PathBuf::from));
    let toolkits = below(Path::new("/usr/local"), |name| name.starts_with("cuda"));
    folders.extend(toolkits.into_iter().rev().map(|toolkit| toolkit.join("lib64")));
    folders
}

fn configured(folder: &Path) -> Vec<PathBuf> {
    let files = below(folder, |name| name.ends_with(".conf"));
    let texts = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
    texts.flat_map(|text| text.lines().map(|line| PathBuf::from(line.trim())).collect::<Vec<_>>()).collect()
}

/// `site-packages/nvidia/*/lib` of the active environment and of the user.
fn pip() -> Vec<PathBuf> {
    let roots = [variable("VIRTUAL_ENV"), variable("CONDA_PREFIX"), variable("HOME").map(|home| home.join(".local"))];
    let pythons =
        roots.into_iter().flatten().flat_map(|root| below(&root.join("lib"), |name| name.starts_with("python")));
    let packages = pythons.flat_map(|python| below(&python.join("site-packages/nvidia"), |_| true));
    packages.map(|package| package.join("lib")).collect()
}

/// Entries of a folder by name, sorted; none where it cannot be read.
fn below(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let named = entries.flatten().filter(|entry| wanted(&entry.file_name().to_string_lossy()));
    let mut found: Vec<PathBuf> = named.map(|entry| entry.path()).collect();
    found.sort();
    found
}
