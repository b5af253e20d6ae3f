//! Saves under power cuts, failing calls, damage and years of retention.

use super::*;
use crate::disk::{Disk, Fault, RealDisk, SimulatedDisk};
use crate::testing::Numbers;
use protocol::{Code, Outcome, Problem};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

const RUN: &str = "20261130-150312-k3f9";
const ENOSPC: i32 = 28;
const ERRNOS: [i32; 5] = [ENOSPC, 122, 5, 18, 30];

fn checkpoints() -> &'static Path {
    Path::new("/checkpoints")
}

fn disk() -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    disk.create_folder(checkpoints()).unwrap();
    disk.settle();
    disk
}

/// What a checkpoint of this step holds: a small file, one of a few sectors, and one of several pieces.
fn content(step: u64) -> BTreeMap<&'static str, Vec<u8>> {
    let mut numbers = Numbers(step);
    let mut bytes = |n: usize| (0..n).map(|_| numbers.next() as u8).collect::<Vec<u8>>();
    [("state.json", bytes(100)), ("optim.safetensors", bytes(3000)), ("model.safetensors", bytes(70_000))].into()
}

fn save(disk: &dyn Disk, dir: &Path, step: u64) -> Outcome<Manifest> {
    let mut writer = Writer::begin(disk, dir, step, RUN)?;
    for (name, bytes) in content(step) {
        writer.file(name, |out| Ok(out.write_all(&bytes)?))?;
    }
    writer.commit()
}

fn read(disk: &dyn Disk, path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    disk.open(path).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

fn steps_on(disk: &dyn Disk, dir: &Path) -> Vec<u64> {
    list(disk, dir).unwrap().into_iter().map(|row| row.step).collect()
}

fn names_on(disk: &dyn Disk) -> Vec<String> {
    let mut names: Vec<String> = disk.list(checkpoints()).unwrap().into_iter().map(|l| l.name).collect();
    names.sort();
    names
}

/// The step that a resume would take; its files must hold what was saved.
fn restored(disk: &dyn Disk, dir: &Path) -> (Option<u64>, Vec<Problem>) {
    let (restore, problems) = newest_good(disk, dir, RUN);
    if let Some(restore) = &restore {
        for (name, bytes) in content(restore.step) {
            assert_eq!(read(disk, &restore.file(name).unwrap()), bytes, "{name} of step {}", restore.step);
        }
    }
    (restore.map(|r| r.step), problems)
}

#[test]
fn a_checkpoint_on_a_real_disk_is_listed_verified_and_read_back() {
    let folder = tempfile::tempdir().unwrap();
    for step in [5, 100_000_000, 99, 100] {
        save(&RealDisk, folder.path(), step).unwrap();
    }
    std::fs::create_dir(folder.path().join("step-7")).unwrap();
    std::fs::create_dir(folder.path().join("step-00000005.tmp-99")).unwrap();
    std::fs::write(folder.path().join("step-00000008"), "a file").unwrap();
    let rows = list(&RealDisk, folder.path()).unwrap();
    assert_eq!(rows.iter().map(|r| r.step).collect::<Vec<_>>(), [100_000_000, 100, 99, 5], "by number, ours only");
    assert!(rows.iter().all(|r| r.complete && r.verified.is_none() && r.bytes == 73_100));
    assert_eq!(restored(&RealDisk, folder.path()), (Some(100_000_000), vec![]));
    assert!(rows.iter().all(|r| verify(&RealDisk, Path::new(&r.path)).is_ok()));
    assert_eq!(list(&RealDisk, &folder.path().join("none")).unwrap(), []);
    let restore = Restore::open(&RealDisk, Path::new(&rows[3].path)).unwrap();
    assert_eq!(restore.file("other").unwrap_err().code, Code::CheckpointDamaged);
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(restore.dir.clone()), mode(restore.dir.join("state.json"))), (0o700, 0o600));
}

#[test]
fn saved_is_said_only_after_the_last_fsync() {
    let disk = disk();
    let mut writer = Writer::begin(&disk, checkpoints(), 3, RUN).unwrap();
    for (name, bytes) in content(3) {
        writer.file(name, |out| Ok(out.write_all(&bytes)?)).unwrap();
        assert!(steps_on(&disk, checkpoints()).is_empty(), "nothing under its name yet");
    }
    let before = disk.instants();
    writer.commit().unwrap();
    for instant in before..disk.instants() {
        let seen = disk.after_power_cut(instant, &mut || false);
        assert_eq!(restored(&seen, checkpoints()).0, None, "it was not durable at {instant}, before commit returned");
    }
    assert_eq!(restored(&disk.after_power_cut(disk.instants(), &mut || false), checkpoints()).0, Some(3));
}

/// R2. Saves with retention over existing checkpoints; the power fails at every instant and what was pending is random.
#[test]
fn after_a_power_cut_the_newest_or_second_newest_checkpoint_loads() {
    let (disk, mut numbers, mut images) = (disk(), Numbers(2), 0);
    save(&disk, checkpoints(), 10).unwrap();
    for step in [20, 30, 40] {
        disk.settle();
        let before = step - 10;
        save(&disk, checkpoints(), step).unwrap();
        let saved_at = disk.instants();
        retain(&disk, checkpoints(), RUN, 1, &[], &[]);
        for instant in 0..=disk.instants() {
            for round in 0..14 {
                let cut = disk.after_power_cut(instant, &mut || match round {
                    0 => false,
                    1 => true,
                    2 => numbers.below(8) == 0,
                    3 => numbers.below(8) > 0,
                    _ => numbers.coin(),
                });
                let found = restored(&cut, checkpoints()).0;
                let loads = found == Some(step) || found == Some(before) && instant < saved_at;
                assert!(loads, "step {step}, instant {instant} of {saved_at}: found {found:?}");
                save(&cut, checkpoints(), step + 1).unwrap();
                assert_eq!(restored(&cut, checkpoints()).0, Some(step + 1), "and the next save works");
                images += 1;
            }
        }
    }
    assert!(images >= 1000, "{images} images");
    println!("{images} crash images");
}

/// R3. Every call of a save fails in turn, once and for ever, in every way.
#[test]
fn whichever_call_fails_older_checkpoints_stay_and_the_next_save_works() {
    let start = disk();
    save(&start, checkpoints(), 10).unwrap();
    start.settle();
    let calls = {
        let counted = start.after_power_cut(0, &mut || true);
        save(&counted, checkpoints(), 20).unwrap();
        counted.calls()
    };
    let faults: Vec<Fault> = ERRNOS.map(Fault::Errno).into_iter().chain([Fault::Short]).collect();
    for (k, fault, for_ever) in
        (1..=calls).flat_map(|k| faults.iter().flat_map(move |f| [(k, *f, false), (k, *f, true)]))
    {
        let disk = start.after_power_cut(0, &mut || true);
        disk.fail(k, for_ever, fault);
        let result = save(&disk, checkpoints(), 20);
        disk.heal();
        let shown = format!("call {k} of {calls}, {fault:?}, for ever: {for_ever}");
        let durable = disk.after_power_cut(disk.instants(), &mut || false);
        match &result {
            Ok(_) => assert_eq!(restored(&durable, checkpoints()).0, Some(20), "{shown}"),
            Err(problem) => {
                assert_ne!(fault, Fault::Short, "{shown}");
                assert!(problem.place.file.is_some() && problem.kept.contains("untouched"), "{shown}: {problem}");
                assert!(problem.code != Code::DiskFull || problem.why.contains("bytes are needed"), "{problem}");
                assert!(!for_ever || restored(&durable, checkpoints()).0.is_some(), "{shown}");
                if !for_ever {
                    assert_eq!(names_on(&disk), ["step-00000010"], "nothing is left: {shown}");
                }
            }
        }
        let old = checkpoints().join("step-00000010");
        assert!(verify(&disk, &old).is_ok() && verify(&durable, &old).is_ok(), "{shown}");
        save(&disk, checkpoints(), 20).unwrap();
        let again = disk.after_power_cut(disk.instants(), &mut || false);
        assert_eq!(restored(&again, checkpoints()).0, Some(20), "the next save is durable: {shown}");
        assert_eq!(names_on(&disk), ["step-00000010", "step-00000020"], "{shown}");
    }
}

#[test]
fn a_full_disk_is_found_before_anything_is_written_and_said_in_bytes() {
    let disk = SimulatedDisk::with_capacity(100_000);
    disk.create_folder(checkpoints()).unwrap();
    save(&disk, checkpoints(), 1).unwrap();
    let begun = Writer::begin(&disk, checkpoints(), 2, RUN).unwrap();
    let problem = begun.expecting(73_100).map(|_| ()).unwrap_err();
    assert_eq!(problem.code, Code::DiskFull);
    assert!(problem.why.contains("73100 bytes are needed") && problem.why.contains(" bytes are free"), "{problem}");
    assert!(problem.place.file.as_ref().unwrap().ends_with("step-00000002"), "{problem}");
    for _ in 0..20 {
        assert_eq!(save(&disk, checkpoints(), 2).unwrap_err().code, Code::DiskFull);
        assert_eq!(retain(&disk, checkpoints(), RUN, 1, &[], &[]), Retained::default());
    }
    assert_eq!(names_on(&disk), ["step-00000001"], "keep = 1 and twenty failing saves leave the one good");
    assert_eq!(restored(&disk, checkpoints()), (Some(1), vec![]));
    disk.set_capacity(1_000_000);
    save(&disk, checkpoints(), 2).unwrap();
}

#[test]
fn a_problem_in_what_is_saved_leaves_nothing() {
    let disk = disk();
    let mut writer = Writer::begin(&disk, checkpoints(), 1, RUN).unwrap();
    let problem = Problem::new(Code::NotFinite, "a weight is not finite");
    let given = writer.file("model.safetensors", |_| Err(problem.clone().into())).unwrap_err();
    assert_eq!(given, problem);
    assert!(writer.file("state.json", |_| Ok(())).is_err() && writer.commit().is_err());
    assert_eq!(names_on(&disk), [""; 0]);
    let mut writer = Writer::begin(&disk, checkpoints(), 1, RUN).unwrap();
    for name in ["", "manifest.json", "../x", "a/b", ".hidden", "a\nb"] {
        assert!(writer.file(name, |_| Ok(())).is_err(), "{name:?}");
    }
    writer.file("twice", |_| Ok(())).unwrap();
    assert!(writer.file("twice", |_| Ok(())).is_err());
}

#[test]
fn what_a_killed_save_left_is_removed_by_the_next() {
    let disk = disk();
    let writer = Writer::begin(&disk, checkpoints(), 5, RUN).unwrap();
    std::mem::forget(writer);
    assert_eq!(names_on(&disk), [".tmp-step-00000005-0"]);
    save(&disk, checkpoints(), 5).unwrap();
    assert_eq!(names_on(&disk), ["step-00000005"]);
}

#[test]
fn saving_a_step_again_keeps_the_good_one_and_replaces_a_damaged_one() {
    let disk = disk();
    save(&disk, checkpoints(), 5).unwrap();
    let mut writer = Writer::begin(&disk, checkpoints(), 5, RUN).unwrap();
    writer.file("other", |out| Ok(out.write_all(b"x")?)).unwrap();
    assert_eq!(writer.commit().unwrap().files.len(), 3, "the first one's");
    assert_eq!(names_on(&disk), ["step-00000005"]);
    disk.damage(&checkpoints().join("step-00000005/model.safetensors"), |bytes| bytes[9] ^= 1).unwrap();
    assert_eq!(restored(&disk, checkpoints()).0, None);
    disk.fail(1, false, Fault::Errno(5));
    save(&disk, checkpoints(), 5).unwrap();
    assert_eq!(restored(&disk, checkpoints()), (Some(5), vec![]));
    assert_eq!(names_on(&disk), ["step-00000005"]);
}

/// R5. 1,000 bit flips over all files, and one in every byte of the manifest (`seal` tries all of its bits).
#[test]
fn every_flipped_bit_is_found_and_the_next_intact_checkpoint_is_used() {
    let disk = disk();
    save(&disk, checkpoints(), 10).unwrap();
    save(&disk, checkpoints(), 20).unwrap();
    let dir = checkpoints().join("step-00000020");
    let mut numbers = Numbers(5);
    let check = |name: &str, bit: u64| {
        let flip = |bytes: &mut Vec<u8>| bytes[bit as usize / 8] ^= 1 << (bit % 8);
        disk.damage(&dir.join(name), flip).unwrap();
        let (found, problems) = restored(&disk, checkpoints());
        assert_eq!((found, problems.len()), (Some(10), 1), "{name}, bit {bit}");
        assert_eq!(problems[0].code, Code::CheckpointDamaged);
        assert!(problems[0].place.file.as_ref().unwrap().ends_with(name), "{}", problems[0]);
        disk.damage(&dir.join(name), flip).unwrap();
    };
    for _ in 0..250 {
        for (name, bytes) in content(20) {
            check(name, numbers.below(bytes.len() as u64 * 8));
        }
    }
    for name in ["model.safetensors"; 250] {
        check(name, numbers.below(70_000 * 8));
    }
    for byte in 0..read(&disk, &dir.join("manifest.json")).len() as u64 {
        check("manifest.json", byte * 8 + byte % 8);
    }
    assert_eq!(restored(&disk, checkpoints()), (Some(20), vec![]));
}

fn cut(path: PathBuf, bytes: u64) {
    std::fs::File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

/// The mutations that people's disks make, each with the words a user looks for.
#[test]
fn a_damaged_checkpoint_is_named_with_what_is_wrong() {
    type Mutation = fn(&Path);
    let cases: [(&str, Mutation); 7] = [
        ("size", |dir| cut(dir.join("model.safetensors"), 9)),
        ("missing", |dir| std::fs::remove_file(dir.join("model.safetensors")).unwrap()),
        ("manifest", |dir| std::fs::remove_file(dir.join("manifest.json")).unwrap()),
        ("manifest", |dir| cut(dir.join("manifest.json"), 99)),
        ("checksum", |dir| std::fs::write(dir.join("model.safetensors"), vec![0; 70_000]).unwrap()),
        ("manifest", |dir| {
            let text = std::fs::read_to_string(dir.join("manifest.json")).unwrap();
            std::fs::write(dir.join("manifest.json"), text.replace("model.safetensors", "../../../etc/hostname"))
                .unwrap();
        }),
        ("regular", |dir| {
            std::fs::rename(dir.join("model.safetensors"), dir.join("x")).unwrap();
            std::os::unix::fs::symlink("x", dir.join("model.safetensors")).unwrap();
        }),
    ];
    for (i, (word, mutation)) in cases.into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        for step in [1, 2] {
            save(&RealDisk, folder.path(), step).unwrap();
        }
        mutation(&folder.path().join("step-00000002"));
        let (found, problems) = restored(&RealDisk, folder.path());
        assert_eq!((found, problems.len()), (Some(1), 1), "case {i}");
        assert!(problems[0].to_string().contains(word), "case {i}: {}", problems[0]);
        mutation(&folder.path().join("step-00000001"));
        let (found, problems) = restored(&RealDisk, folder.path());
        assert_eq!((found, problems.len()), (None, 2), "all damaged is not the same as none");
    }
}

#[test]
fn a_path_that_leads_outside_is_refused_even_under_a_right_checksum() {
    let disk = disk();
    save(&disk, checkpoints(), 1).unwrap();
    let dir = checkpoints().join("step-00000001");
    for name in ["../x", "/etc/hostname", "..", ".", "a/../b"] {
        let mut manifest = Restore::open(&disk, &dir).unwrap().manifest;
        manifest.files[0].name = name.into();
        let whole = read(&disk, &dir.join("manifest.json"));
        disk.damage(&dir.join("manifest.json"), |bytes| *bytes = manifest.sealed().unwrap()).unwrap();
        let problem = verify(&disk, &dir).unwrap_err();
        assert!(problem.what.contains("outside"), "{problem}");
        disk.damage(&dir.join("manifest.json"), |bytes| *bytes = whole).unwrap();
    }
}

#[test]
fn a_checkpoint_of_another_run_or_step_is_not_taken() {
    let disk = disk();
    save(&disk, checkpoints(), 1).unwrap();
    let (found, problems) = newest_good(&disk, checkpoints(), "another-run");
    assert!(found.is_none() && problems[0].why.contains("another-run"), "{problems:?}");
    disk.rename(&checkpoints().join("step-00000001"), &checkpoints().join("step-00000009")).unwrap();
    let (found, problems) = newest_good(&disk, checkpoints(), RUN);
    assert!(found.is_none() && problems[0].why.contains("step 1"), "{problems:?}");
    let problem = Restore::open(&disk, &checkpoints().join("step-00000009")).unwrap_err();
    assert!(problem.why.contains("step 1"), "a fork would begin elsewhere than it was told: {problem}");
    disk.rename(&checkpoints().join("step-00000009"), &checkpoints().join("elsewhere")).unwrap();
    assert_eq!(Restore::open(&disk, &checkpoints().join("elsewhere")).unwrap().step, 1);
}

#[test]
fn retention_keeps_the_newest_the_best_and_the_pinned() {
    let disk = disk();
    for step in 1..=12 {
        save(&disk, checkpoints(), step * 9).unwrap();
    }
    let retained = retain(&disk, checkpoints(), RUN, 3, &[27], &[9, 4]);
    assert_eq!(retained.removed, [81, 72, 63, 54, 45, 36, 18]);
    assert_eq!(steps_on(&disk, checkpoints()), [108, 99, 90, 27, 9]);
    assert_eq!(names_on(&disk).len(), 5);
    assert_eq!(retain(&disk, checkpoints(), RUN, 3, &[27], &[9]), Retained::default(), "and then nothing more");
    assert_eq!(retain(&disk, checkpoints(), "another-run", 1, &[], &[]).removed, [0; 0]);
    assert_eq!(retain(&disk, checkpoints(), RUN, 0, &[], &[]).removed, [99, 90, 27, 9], "0 means 1");
}

#[test]
fn what_cannot_be_removed_is_said_and_training_goes_on() {
    let disk = disk();
    for step in [1, 2, 3] {
        save(&disk, checkpoints(), step).unwrap();
    }
    let dry = disk.after_power_cut(disk.instants(), &mut || true);
    retain(&dry, checkpoints(), RUN, 1, &[], &[]);
    for k in 1..=dry.calls() {
        let disk = disk.after_power_cut(disk.instants(), &mut || true);
        disk.fail(k, true, Fault::Errno(30));
        let retained = retain(&disk, checkpoints(), RUN, 1, &[], &[]);
        disk.heal();
        assert!(retained.removed.len() < 2, "call {k}");
        assert_eq!(restored(&disk, checkpoints()).0, Some(3), "call {k}");
    }
}

/// R4. Random histories of saves, failures, damage, leftovers and retention against a plain model of the rules.
#[test]
fn over_ten_thousand_histories_retention_never_takes_what_it_must_keep() {
    for seed in 0..10_000 {
        history(seed);
    }
}

fn history(seed: u64) {
    let (mut numbers, disk) = (Numbers(seed), disk());
    let keep = numbers.below(4) as u32;
    // Steps that were saved, those of them that nobody damaged, and the last step.
    let (mut saved, mut good, mut step) = (Vec::<u64>::new(), Vec::<u64>::new(), 95);
    let small = |disk: &dyn Disk, step: u64, run: &str| -> Outcome<Manifest> {
        let mut writer = Writer::begin(disk, checkpoints(), step, run)?;
        writer.file("state.json", |out| Ok(out.write_all(&step.to_le_bytes())?))?;
        writer.commit()
    };
    let foreign = numbers.coin();
    if foreign {
        small(&disk, 3, "another-run").unwrap();
    }
    for _ in 0..numbers.below(12) {
        step += 1 + numbers.below(5);
        if numbers.below(3) == 0 {
            disk.fail(1 + numbers.below(20), numbers.coin(), Fault::Errno(ERRNOS[numbers.below(5) as usize]));
        }
        let said = small(&disk, step, RUN).is_ok();
        disk.heal();
        let visible = still_there(&disk, step);
        assert!(visible || !said, "seed {seed}: saved and not there");
        saved.extend(visible.then_some(step));
        good.extend(visible.then_some(step));
        if visible && numbers.below(6) == 0 {
            let file = checkpoints().join(folder_name(step)).join("state.json");
            disk.damage(&file, |bytes| bytes[0] ^= 1).unwrap();
            good.pop();
        }
        let protected: Vec<u64> = good.iter().copied().filter(|_| numbers.below(4) == 0).collect();
        let (best, pins) = protected.split_at(protected.len() / 2);
        let failing = numbers.below(4) == 0;
        if failing {
            disk.fail(1 + numbers.below(25), numbers.coin(), Fault::Errno(5));
        }
        let retained = retain(&disk, checkpoints(), RUN, keep, best, pins);
        disk.heal();
        // One whose content is damaged and whose size is not takes a place below the newest good one.
        let newest = good.last().copied().unwrap_or(0);
        let ranked = saved.iter().rev().filter(|&&s| s <= newest).take(keep.max(1) as usize);
        let must: Vec<u64> = ranked.filter(|s| good.contains(s)).chain(&protected).copied().collect();
        let lost = must.iter().find(|&&step| !still_there(&disk, step));
        assert_eq!(lost, None, "seed {seed}: of {must:?}, removed {:?}", retained.removed);
        good.retain(|&step| still_there(&disk, step));
        saved.retain(|step| steps_on(&disk, checkpoints()).contains(step));
        let spare = good.iter().filter(|s| !must.contains(s)).count();
        assert!(failing || spare == 0, "seed {seed}: {spare} more than asked were kept");
        assert_eq!(newest_good(&disk, checkpoints(), RUN).0.map(|r| r.step), good.last().copied(), "seed {seed}");
    }
    assert_eq!(foreign, still_there(&disk, 3), "seed {seed}: another run's checkpoint is not ours to remove");
}

fn still_there(disk: &dyn Disk, step: u64) -> bool {
    verify(disk, &checkpoints().join(folder_name(step))).is_ok()
}
