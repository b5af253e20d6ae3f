//! What is missing on this machine and how to get it: libraries, cards, HOME, disk, and whether jobs outlive a logout.
//!
//! Not here: how libraries are found (`kernels`, through `anneal-trainer probe`).

use super::{gpu, host};
use protocol::machine::{Check, CheckState, Checkup, LibraryFacts, Probe};
use protocol::{Code, Outcome, Problem};
use std::path::Path;

/// Free disk below which a checkpoint of a middling model no longer fits.
const LOW_DISK: u64 = 5 << 30;

/// Looks at everything. `probe` is what the trainer found, `home` whether HOME can be used.
pub fn checkup(probe: Outcome<Probe>, home: &Path, usable: Outcome<()>) -> Checkup {
    let mut checks = Vec::new();
    match probe {
        Ok(probe) => {
            checks.extend(probe.libraries.iter().map(library));
            checks.push(nvml());
            checks.push(cards(&probe));
        }
        Err(problem) => checks.push(failed("cards", "the cards could not be looked for", problem)),
    }
    checks.push(match usable {
        Ok(()) => good("home", home.display().to_string()),
        Err(problem) => failed("home", &home.display().to_string(), problem),
    });
    checks.push(disk(home));
    checks.push(logout(Path::new("/")));
    Checkup { checks }
}

fn good(name: &str, found: impl Into<String>) -> Check {
    Check { name: name.to_owned(), state: CheckState::Good, found: found.into(), problem: None }
}

fn missing(name: &str, found: &str, problem: Problem) -> Check {
    Check { name: name.to_owned(), state: CheckState::Missing, found: found.to_owned(), problem: Some(problem) }
}

fn failed(name: &str, found: &str, problem: Problem) -> Check {
    Check { name: name.to_owned(), state: CheckState::Bad, found: found.to_owned(), problem: Some(problem) }
}

fn library(library: &LibraryFacts) -> Check {
    match &library.problem {
        None => {
            let version = library.version.as_deref().unwrap_or_default();
            let path = library.path.as_deref().unwrap_or_default();
            good(&library.name, format!("{version} {path}").trim())
        }
        Some(problem) => missing(&library.name, "not found", problem.clone()),
    }
}

fn nvml() -> Check {
    match gpu::sample() {
        Ok(all) if all.driver.is_some() => good("nvml", format!("driver {}", all.driver.unwrap_or_default())),
        Ok(_) => {
            let problem = Problem::new(Code::DeviceUnavailable, "NVML is not there")
                .why("libnvidia-ml.so.1 was not found; it comes with the NVIDIA driver")
                .remedy("install the NVIDIA driver: without it cards are neither shown nor used");
            missing("nvml", "not found", problem)
        }
        Err(problem) => failed("nvml", "does not answer", problem),
    }
}

fn cards(probe: &Probe) -> Check {
    let names: Vec<String> = probe
        .devices
        .iter()
        .filter_map(|device| Some(format!("{} {}", device.name, device.card.as_ref()?.model)))
        .collect();
    match &probe.problem {
        _ if !names.is_empty() => good("cards", names.join(", ")),
        Some(problem) => failed("cards", "none can be used", problem.clone()),
        None => {
            let problem = Problem::new(Code::DeviceUnavailable, "no NVIDIA card can be trained on")
                .why("no card was found, or a library above is missing")
                .kept("jobs run on the CPU")
                .remedy("see the points above; a machine without an NVIDIA card needs none of them");
            missing("cards", "none", problem)
        }
    }
}

fn disk(home: &Path) -> Check {
    let disk = host::disk(home);
    let found = format!("{} GB free of {} GB", disk.free >> 30, disk.total >> 30);
    if disk.free >= LOW_DISK {
        return good("disk", found);
    }
    let problem = Problem::new(Code::DiskFull, "the disk of HOME is nearly full")
        .file(home)
        .kept("everything on it")
        .remedy("make room, or set ANNEAL_HOME to a folder on another disk");
    failed("disk", &found, problem)
}

/// Jobs live in the session that started them unless systemd keeps it: where logind ends all processes of a user who logs
/// out, a job ends with them.
fn logout(root: &Path) -> Check {
    if !kills_at_logout(root) {
        return good("logout", "jobs go on after a logout");
    }
    let problem = Problem::new(Code::WrongState, "a logout ends running jobs on this machine")
        .why("systemd-logind is set to KillUserProcesses=yes")
        .kept("the newest checkpoint of each; they can be resumed")
        .remedy("set KillUserProcesses=no in /etc/systemd/logind.conf, or stay logged in while jobs run");
    missing("logout", "jobs end with the session", problem)
}

/// The last setting wins; files of the folder come after the main one, in the order of their names.
fn kills_at_logout(root: &Path) -> bool {
    let etc = root.join("etc/systemd");
    let parts = std::fs::read_dir(etc.join("logind.conf.d")).into_iter().flatten().flatten();
    let mut parts: Vec<_> =
        parts.map(|entry| entry.path()).filter(|p| p.extension().is_some_and(|e| e == "conf")).collect();
    parts.sort();
    let files = std::iter::once(etc.join("logind.conf")).chain(parts);
    let text: String = files.filter_map(|file| std::fs::read_to_string(file).ok()).collect::<Vec<_>>().join("\n");
    let setting = text.lines().rev().find_map(|line| line.trim().strip_prefix("KillUserProcesses="));
    setting.is_some_and(|value| ["yes", "true", "1", "on"].contains(&value.trim().to_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named<'a>(checkup: &'a Checkup, name: &str) -> &'a Check {
        checkup.checks.iter().find(|check| check.name == name).unwrap()
    }

    fn libraries(missing: &[&str]) -> Vec<LibraryFacts> {
        let facts = |name: &&str| LibraryFacts {
            name: (*name).to_owned(),
            required: *name != "nccl",
            path: Some(format!("/lib/lib{name}.so")),
            version: Some("12.8".into()),
            problem: missing.contains(name).then(|| Problem::new(Code::DeviceUnavailable, format!("no {name}"))),
        };
        ["driver", "nvrtc", "cublaslt", "nccl"].iter().map(facts).collect()
    }

    #[test]
    fn each_missing_library_is_a_point_of_its_own() {
        let home = tempfile::tempdir().unwrap();
        let probe = Probe { libraries: libraries(&["nvrtc", "nccl"]), ..Probe::default() };
        let found = checkup(Ok(probe), home.path(), Ok(()));
        let state = |name| named(&found, name).state;
        assert_eq!([state("driver"), state("cublaslt")], [CheckState::Good; 2]);
        assert_eq!([state("nvrtc"), state("nccl"), state("cards")], [CheckState::Missing; 3]);
        assert_eq!(named(&found, "driver").found, "12.8 /lib/libdriver.so");
        assert!(found.checks.iter().all(|check| (check.state == CheckState::Good) == check.problem.is_none()));
    }

    #[test]
    fn a_home_that_cannot_be_used_is_said() {
        let problem = Problem::new(Code::HomeUnsuitable, "no").remedy("another");
        let found = checkup(Ok(Probe::default()), Path::new("/nowhere"), Err(problem.clone()));
        assert_eq!((named(&found, "home").state, &named(&found, "home").problem), (CheckState::Bad, &Some(problem)));
    }

    #[test]
    fn logind_that_ends_all_processes_is_found_in_either_place() {
        let root = tempfile::tempdir().unwrap();
        assert!(!kills_at_logout(root.path()));
        let etc = root.path().join("etc/systemd");
        std::fs::create_dir_all(etc.join("logind.conf.d")).unwrap();
        std::fs::write(etc.join("logind.conf"), "[Login]\n#KillUserProcesses=yes\n").unwrap();
        assert!(!kills_at_logout(root.path()));
        std::fs::write(etc.join("logind.conf.d/10-kill.conf"), "[Login]\nKillUserProcesses=yes\n").unwrap();
        assert_eq!(logout(root.path()).state, CheckState::Missing);
        std::fs::write(etc.join("logind.conf.d/20-not.conf"), "[Login]\nKillUserProcesses=no\n").unwrap();
        assert!(!kills_at_logout(root.path()));
    }
}
