//! Facts of the host from /proc and /sys, held against the limits of the control group. `root` is "/" except in tests.

use protocol::machine::DiskSample;
use std::path::{Path, PathBuf};

/// Bytes of memory this process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// In all.
    pub total: u64,
    /// Without swapping, now.
    pub available: u64,
}

/// Model of the CPU.
pub fn cpu_name(root: &Path) -> String {
    let text = std::fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let name =
        text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim()));
    name.unwrap_or("unknown CPU").to_owned()
}

/// "avx512", "avx2" (with FMA) or "baseline".
pub fn instruction_set() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
            return "avx512";
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return "avx2";
        }
    }
    "baseline"
}

/// Cores this process may use: its affinity, or the control group's share of time where that is less.
pub fn cores(root: &Path) -> u32 {
    let affinity = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count());
    cpu_share(root).map_or(affinity, |share| affinity.min(share)).max(1)
}

/// Memory of the machine, or of the control group where that is less.
pub fn memory(root: &Path) -> Memory {
    let text = std::fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
    let of = |key: &str| {
        let kib = text.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or(0).saturating_mul(1024)
    };
    let machine = Memory { total: of("MemTotal:"), available: of("MemAvailable:") };
    groups(root).iter().fold(machine, |m, group| match memory_of(group) {
        Some(limit) if limit.total < m.total => {
            Memory { total: limit.total, available: m.available.min(limit.available) }
        }
        _ => m,
    })
}

/// Runnable tasks, averaged over 1, 5 and 15 minutes.
pub fn load(root: &Path) -> [f64; 3] {
    let text = std::fs::read_to_string(root.join("proc/loadavg")).unwrap_or_default();
    let mut numbers = text.split_whitespace().map(|word| word.parse().unwrap_or(0.0));
    std::array::from_fn(|_| numbers.next().unwrap_or(0.0))
}

/// The disk that holds a folder, or would hold it once it is made.
pub fn disk(folder: &Path) -> DiskSample {
    let found = folder.ancestors().find_map(|path| rustix::fs::statvfs(path).ok());
    let bytes = |blocks: u64, size: u64| blocks.saturating_mul(size);
    let path = folder.display().to_string();
    found.map_or(DiskSample { path: path.clone(), total: 0, free: 0 }, |s| DiskSample {
        path: path.clone(),
        total: bytes(s.f_blocks, s.f_frsize),
        free: bytes(s.f_bavail, s.f_frsize),
    })
}

/// Folders of this process's control groups and their parents, of both versions.
fn groups(root: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut folders = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let mount = root.join("sys/fs/cgroup").join(controllers);
        let inside = path.trim_start_matches('/');
        if !inside.split('/').any(|part| part == "..") {
            folders.extend(mount.join(inside).ancestors().take_while(|p| p.starts_with(&mount)).map(Path::to_path_buf));
        }
        // In a container the path may be the host's, and the mount itself is the group.
        folders.push(mount);
    }
    folders
}

/// Limit of a group, less what it uses of it now. Pages of files that can be dropped count as free.
fn memory_of(group: &Path) -> Option<Memory> {
    let read = |name: &str| std::fs::read_to_string(group.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let total = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes")).unwrap_or(0);
    let stat = read("memory.stat").unwrap_or_default();
    let droppable = ["total_inactive_file ", "inactive_file "]
        .iter()
        .find_map(|key| stat.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok()));
    let used = used.saturating_sub(droppable.unwrap_or(0));
    Some(Memory { total, available: total.saturating_sub(used) })
}

/// Cores' worth of time that the tightest group allows, rounded up.
fn cpu_share(root: &Path) -> Option<u32> {
    groups(root).iter().filter_map(|group| cpu_share_of(group)).min()
}

fn cpu_share_of(group: &Path) -> Option<u32> {
    let read = |name: &str| std::fs::read_to_string(group.join(name)).ok();
    let text = read("cpu.max")
        .or_else(|| Some(format!("{} {}", read("cpu.cfs_quota_us")?.trim(), read("cpu.cfs_period_us")?.trim())))?;
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (quota > 0.0 && period > 0.0).then(|| (quota / period).ceil().clamp(1.0, 65536.0) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let meminfo = ("proc/meminfo", "MemTotal:  8388608 kB\nMemFree: 1 kB\nMemAvailable:  4194304 kB\n");
        for (name, text) in [meminfo].iter().chain(files) {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn without_a_limit_the_machine_counts() {
        let root = machine(&[("proc/self/cgroup", "0::/user\n"), ("sys/fs/cgroup/user/memory.max", "max\n")]);
        assert_eq!(memory(root.path()), Memory { total: 8 << 30, available: 4 << 30 });
        assert_eq!(cpu_share(root.path()), None);
    }

    #[test]
    fn the_tightest_group_counts_less_what_it_uses() {
        let root = machine(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/memory.max", "2147483648\n"),
            ("sys/fs/cgroup/a/memory.current", "1073741824\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 536870912\n"),
            ("sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/cpu.max", "max 100000\n"),
        ]);
        assert_eq!(memory(root.path()), Memory { total: 2 << 30, available: 3 << 29 });
        assert_eq!(cpu_share(root.path()), Some(2));
    }

    #[test]
    fn groups_of_the_first_version_count_too() {
        let root = machine(&[
            ("proc/self/cgroup", "5:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1048576\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(memory(root.path()).total, 1 << 30);
        assert_eq!(cpu_share(root.path()), Some(1));
    }

    #[test]
    fn a_machine_without_proc_is_no_panic() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(memory(root.path()), Memory { total: 0, available: 0 });
        assert_eq!((cpu_name(root.path()).as_str(), load(root.path())), ("unknown CPU", [0.0; 3]));
    }
}
