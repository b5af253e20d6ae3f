//! Room on disks: what is free, what a folder takes, how fast a disk writes, and whether it is a disk at all.

use crate::disk::Disk;
use protocol::{Outcome, Problem};
use rustix::io::Errno;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// Nesting that [`folder_bytes`] counts: run folders have 3.
const DEPTH: u32 = 32;
/// Piece that [`write_rate`] writes at once.
const PIECE_BYTES: usize = 1 << 20;

/// Room on the volume of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes that this user can still write.
    pub free: u64,
    /// Bytes of the whole volume.
    pub total: u64,
}

/// Room where `path` lies.
/// Errors: `FileUnreadable`, `DiskFailed`.
pub fn room(path: &Path) -> Outcome<Room> {
    let volume = rustix::fs::statvfs(path).map_err(|e| Problem::io(&e.into(), "measuring a disk", path))?;
    let bytes = |blocks: u64| blocks.saturating_mul(volume.f_frsize);
    Ok(Room { free: bytes(volume.f_bavail), total: bytes(volume.f_blocks) })
}

/// Sum of the sizes of all files in a folder. Links are not followed; what vanishes meanwhile is not counted.
/// Errors: `FileUnreadable` where the folder itself cannot be read.
pub fn folder_bytes(path: &Path) -> Outcome<u64> {
    bytes_below(path, DEPTH).map_err(|e| Problem::io(&e, "measuring a folder", path))
}

fn bytes_below(path: &Path, depth: u32) -> io::Result<u64> {
    let mut sum = 0u64;
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let Ok(status) = entry.metadata() else { continue };
        sum = sum.saturating_add(match status.is_dir() {
            true if depth > 0 => bytes_below(&entry.path(), depth - 1).unwrap_or(0),
            true => 0,
            false => status.len(),
        });
    }
    Ok(sum)
}

/// Bytes a second that this disk takes for good: writes `bytes` to a file in `folder`, fsyncs and removes it. `now` reads a
/// clock that never runs backwards.
/// Errors: `DiskFull`, `DiskFailed`; the file is removed.
pub fn write_rate(disk: &dyn Disk, folder: &Path, bytes: u64, now: impl Fn() -> Duration) -> Outcome<f64> {
    let path = folder.join(format!(".tmp-rate-{}", std::process::id()));
    let _ = disk.remove_file(&path);
    let start = now();
    let written = write_pieces(disk, &path, bytes);
    let took = now().saturating_sub(start);
    let _ = disk.remove_file(&path);
    written.map_err(|e| crate::disk::failed(disk, &e, "measuring a disk", &path, bytes))?;
    Ok(bytes as f64 / took.as_secs_f64().max(1e-9))
}

fn write_pieces(disk: &dyn Disk, path: &Path, bytes: u64) -> io::Result<()> {
    // Not zeros: some file systems do not write those at all.
    let piece: Vec<u8> = (0..PIECE_BYTES as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut file = disk.create(path)?;
    let mut left = bytes;
    while left > 0 {
        let n = left.min(PIECE_BYTES as u64);
        file.write_all(&piece[..n as usize])?;
        left -= n;
    }
    file.sync()
}

/// Name of the network file system that `path` lies on; `None` on a local one.
pub(crate) fn network_file_system(path: &Path) -> Result<Option<String>, Errno> {
    let magic = rustix::fs::statfs(path)?.f_type as u64 & 0xffff_ffff;
    Ok(network_of_magic(magic).map(str::to_owned).or_else(|| (magic == FUSE).then(|| network_of_fuse(path)).flatten()))
}

/// Magic number of every file system that a program serves.
const FUSE: u64 = 0x6573_5546;

/// Magic numbers of statfs(2) and of the file systems' own headers.
fn network_of_magic(magic: u64) -> Option<&'static str> {
    match magic {
        0x6969 => Some("nfs"),
        0x517b | 0xfe53_4d42 | 0xff53_4d42 => Some("smb"),
        0x00c3_6400 => Some("ceph"),
        0x0bd0_0bd0 => Some("lustre"),
        0x5346_414f | 0x6b41_4653 => Some("afs"),
        0x7375_7245 => Some("coda"),
        0x4750_4653 => Some("gpfs"),
        0x1983_0326 => Some("beegfs"),
        _ => None,
    }
}

fn network_of_fuse(path: &Path) -> Option<String> {
    let device = std::fs::metadata(path).ok()?.dev();
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let kind = mounts.lines().find_map(|line| type_of_mount(line, &device))?;
    is_network_fuse(kind).then(|| kind.to_owned())
}

/// File system type of a line of /proc/self/mountinfo, where the line is of this device.
fn type_of_mount<'a>(line: &'a str, device: &str) -> Option<&'a str> {
    let (mount, rest) = line.split_once(" - ")?;
    (mount.split(' ').nth(2)? == device).then(|| rest.split(' ').next()).flatten()
}

fn is_network_fuse(kind: &str) -> bool {
    const NETWORK: [&str; 16] = [
        "sshfs",
        "rclone",
        "s3fs",
        "gcsfuse",
        "goofys",
        "mountpoint-s3",
        "glusterfs",
        "ceph",
        "ceph-fuse",
        "juicefs",
        "davfs",
        "davfs2",
        "curlftpfs",
        "smbnetfs",
        "gvfsd-fuse",
        "moosefs",
    ];
    kind.strip_prefix("fuse.").is_some_and(|name| NETWORK.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;
    use std::time::Instant;

    #[test]
    fn a_folder_counts_its_files_and_not_what_links_point_to() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
        std::fs::write(folder.path().join("a/b/x"), [0; 1000]).unwrap();
        std::fs::write(folder.path().join("y"), [0; 24]).unwrap();
        std::os::unix::fs::symlink("/", folder.path().join("a/root")).unwrap();
        let bytes = folder_bytes(folder.path()).unwrap();
        assert_eq!(bytes - 1, 1024, "the link itself has the one byte of its target's name");
        assert!(folder_bytes(&folder.path().join("missing")).is_err());
    }

    #[test]
    fn a_disk_has_room_and_a_rate_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let room = room(folder.path()).unwrap();
        assert!(room.free > 0 && room.free <= room.total);
        let start = Instant::now();
        let rate = write_rate(&RealDisk, folder.path(), 3_000_000, || start.elapsed()).unwrap();
        assert!(rate > 1000.0, "{rate}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn network_file_systems_are_known_by_number_and_by_name() {
        assert_eq!(network_of_magic(0x6969), Some("nfs"));
        assert_eq!(network_of_magic(0xff53_4d42), Some("smb"));
        for local in [0xef53, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x0102_1997, FUSE] {
            assert_eq!(network_of_magic(local), None, "ext4, btrfs, tmpfs, overlay, 9p, fuse: {local:x}");
        }
        let line = "36 35 0:52 / /mnt/a\\040b rw,nosuid shared:1 - fuse.sshfs me@host:/ rw,user_id=0";
        assert_eq!(type_of_mount(line, "0:52"), Some("fuse.sshfs"));
        assert_eq!(type_of_mount(line, "0:5"), None);
        assert!(is_network_fuse("fuse.sshfs") && !is_network_fuse("fuse.ntfs-3g") && !is_network_fuse("fuseblk"));
        assert_eq!(network_file_system(Path::new("/proc")).unwrap(), None);
    }
}
