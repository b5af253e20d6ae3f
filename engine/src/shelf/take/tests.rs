//! Models taken each way, and everything that may stand in the way: afterwards the model is where it was, whole, and
//! nothing half-made is left.

use super::super::tests::{Fake, HUB, OLLAMA};
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A home with a model folder in an added place, and a folder to take it to.
fn fake() -> Fake {
    let fake = Fake::new();
    fake.put("disk/m/config.json", "{}");
    fake.put("disk/m/model.safetensors", "weights".repeat(1000));
    fake.put("disk/m/tokenizer.json", "[]");
    fake.put("to/.keep", "");
    fake.add("disk");
    fake
}

fn order(fake: &Fake, how: How) -> Order {
    Order { to: fake.path("to"), how, dry_run: false }
}

fn taken(fake: &Fake, path: &str, how: How) -> Outcome<Taken> {
    take(&fake.places(), &fake.path(path), &order(fake, how), &mut |_, _| Ok(()))
}

fn code(outcome: Outcome<Taken>) -> Code {
    outcome.unwrap_err().code
}

/// Every file below a folder with its bytes.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let (mut all, mut open) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(path) = open.pop() {
        for entry in std::fs::read_dir(&path).unwrap().flatten() {
            if entry.path().is_dir() {
                open.push(entry.path());
            }
            let bytes = std::fs::read(entry.path()).unwrap_or_default();
            all.insert(entry.path().strip_prefix(folder).unwrap().display().to_string(), bytes);
        }
    }
    all
}

#[test]
fn a_copy_is_a_model_of_its_own() {
    let fake = fake();
    fake.put("disk/m/deeper/other.bin", "no part of the model");
    let mut told = Vec::new();
    let done = take(&fake.places(), &fake.path("disk/m"), &order(&fake, How::Copy), &mut |done, total| {
        told.push((done, total));
        Ok(())
    })
    .unwrap();
    assert_eq!((done.bytes, done.files.len(), done.dry_run), (7004, 3, false));
    assert_eq!(told.last(), Some(&(7004, 7004)));
    assert_eq!(Path::new(&done.to), fake.path("to/m").canonicalize().unwrap());
    let new = files(&fake.path("to/m"));
    assert_eq!(new.keys().collect::<Vec<_>>(), ["config.json", "model.safetensors", "tokenizer.json"]);
    assert_eq!(new["model.safetensors"], std::fs::read(fake.path("disk/m/model.safetensors")).unwrap());
    let inode = |path: &str| fake.path(path).metadata().unwrap().ino();
    assert_ne!(inode("to/m/config.json"), inode("disk/m/config.json"));
}

#[test]
fn a_link_is_the_same_bytes_and_takes_no_room() {
    let fake = fake();
    taken(&fake, "disk/m", How::Link).unwrap();
    let inode = |path: &str| fake.path(path).metadata().unwrap().ino();
    assert_eq!(inode("to/m/model.safetensors"), inode("disk/m/model.safetensors"));
    assert_eq!(files(&fake.path("to")).len(), 5, "the model, its folder and what was there");
}

#[test]
fn a_move_leaves_nothing_in_the_old_place() {
    let fake = fake();
    taken(&fake, "disk/m", How::Move).unwrap();
    assert!(!fake.path("disk/m").exists());
    assert_eq!(files(&fake.path("to/m")).len(), 3);
}

#[test]
fn a_move_leaves_what_is_no_part_of_the_model() {
    let fake = fake();
    fake.put("disk/m/deeper/other.bin", "x");
    taken(&fake, "disk/m", How::Move).unwrap();
    assert_eq!(files(&fake.path("disk/m")).into_keys().collect::<Vec<_>>(), ["deeper", "deeper/other.bin"]);
    assert_eq!(files(&fake.path("to/m")).len(), 3);
}

#[test]
fn a_dry_run_tells_everything_and_does_nothing() {
    let fake = fake();
    for how in [How::Copy, How::Link, How::Move] {
        let order = Order { dry_run: true, ..order(&fake, how) };
        let told = take(&fake.places(), &fake.path("disk/m"), &order, &mut |_, _| panic!("nothing is copied")).unwrap();
        assert_eq!((told.bytes, told.files.len(), told.how, told.dry_run), (7004, 3, how, true));
        assert!(told.free > 0);
    }
    assert_eq!(files(&fake.path("to")).len(), 1);
    assert_eq!(files(&fake.path("disk/m")).len(), 3);
}

#[test]
fn nothing_is_written_over() {
    let fake = fake();
    fake.put("to/m", "something else");
    for how in [How::Copy, How::Link, How::Move] {
        assert_eq!(code(taken(&fake, "disk/m", how)), Code::WrongState);
    }
    assert_eq!(std::fs::read_to_string(fake.path("to/m")).unwrap(), "something else");
    assert_eq!(files(&fake.path("disk/m")).len(), 3);
}

#[test]
fn a_target_that_comes_to_be_meanwhile_is_kept() {
    let fake = fake();
    let target = fake.path("to/m");
    let order = order(&fake, How::Copy);
    let outcome = take(&fake.places(), &fake.path("disk/m"), &order, &mut |_, _| {
        std::fs::write(&target, "quicker").unwrap();
        Ok(())
    });
    assert_eq!(code(outcome), Code::WrongState);
    assert_eq!(files(&fake.path("to")).len(), 2, "only what was there");
}

#[test]
fn too_little_room_is_refused_before_anything_is_written() {
    let fake = fake();
    let file = std::fs::File::options().write(true).open(fake.path("disk/m/model.safetensors")).unwrap();
    // Larger than any disk, and not there: holes take no room.
    file.set_len(1 << 42).unwrap();
    let problem = taken(&fake, "disk/m", How::Copy).unwrap_err();
    assert_eq!(problem.code, Code::DiskFull);
    assert!(problem.room.is_some_and(|room| room.needs > room.has));
    assert_eq!(files(&fake.path("to")).len(), 1);
    taken(&fake, "disk/m", How::Link).unwrap();
}

#[test]
fn a_source_that_vanishes_or_changes_leaves_nothing_half_made() {
    for vanish in [true, false] {
        let fake = fake();
        let weights = fake.path("disk/m/model.safetensors");
        let order = order(&fake, How::Copy);
        let outcome = take(&fake.places(), &fake.path("disk/m"), &order, &mut |_, _| {
            if vanish {
                drop(std::fs::remove_file(&weights))
            } else {
                std::fs::write(&weights, "other").unwrap()
            }
            Ok(())
        });
        let expected = if vanish { Code::FileUnreadable } else { Code::ModelChanged };
        assert_eq!(code(outcome), expected);
        assert_eq!(files(&fake.path("to")).len(), 1);
    }
}

#[test]
fn what_was_cancelled_or_killed_leaves_room_for_the_next() {
    let fake = fake();
    let cancelled = |_, _| Err(Problem::new(Code::Cancelled, "enough"));
    let outcome = take(&fake.places(), &fake.path("disk/m"), &order(&fake, How::Copy), &mut { cancelled });
    assert_eq!(code(outcome), Code::Cancelled);
    assert_eq!(files(&fake.path("to")).len(), 1);
    fake.put("to/.tmp-anneal-m/model.safetensors", "what a kill left");
    taken(&fake, "disk/m", How::Copy).unwrap();
    assert_eq!(files(&fake.path("to/m")).len(), 3);
    assert!(!fake.path("to/.tmp-anneal-m").exists());
}

#[test]
fn two_at_once_do_not_meet() {
    let fake = fake();
    let (places, order) = (fake.places(), order(&fake, How::Copy));
    let mut second = None;
    take(&places, &fake.path("disk/m"), &order, &mut |_, _| {
        second.get_or_insert_with(|| code(take(&places, &fake.path("disk/m"), &order, &mut |_, _| Ok(()))));
        Ok(())
    })
    .unwrap();
    assert_eq!(second, Some(Code::Busy));
}

#[test]
fn a_cached_model_is_copied_by_what_its_links_lead_to_and_never_moved() {
    let fake = fake();
    fake.cached("models--org--name", "aaa", "config.json", "{}");
    fake.cached("models--org--name", "aaa", "model.safetensors", "abc");
    let snapshot = format!("{HUB}/models--org--name/snapshots/aaa");
    assert_eq!(code(taken(&fake, &snapshot, How::Move)), Code::WrongState);
    let done = taken(&fake, &snapshot, How::Copy).unwrap();
    assert!(done.to.ends_with("/to/name"), "{}", done.to);
    let new = fake.path("to/name/model.safetensors");
    assert!(new.symlink_metadata().unwrap().is_file());
    assert_eq!(std::fs::read(new).unwrap(), b"abc");
    let secret = fake.put("secret", "secret");
    std::os::unix::fs::symlink(secret, fake.path(&snapshot).join("tokenizer.json")).unwrap();
    std::fs::remove_dir_all(fake.path("to/name")).unwrap();
    assert_eq!(code(taken(&fake, &snapshot, How::Copy)), Code::PathOutside);
}

#[test]
fn a_model_of_ollama_gets_a_name_that_says_what_it_is() {
    let fake = fake();
    let blob = fake.ollama(OLLAMA, "registry.ollama.ai/library/llama3.2/1b", "1");
    let path = blob.strip_prefix(fake.path("")).unwrap().to_str().unwrap();
    assert_eq!(code(taken(&fake, path, How::Move)), Code::WrongState);
    let done = taken(&fake, path, How::Copy).unwrap();
    assert!(done.to.ends_with("/to/llama3.2-1b.gguf"), "{}", done.to);
    assert_eq!(std::fs::read(fake.path("to/llama3.2-1b.gguf")).unwrap(), std::fs::read(blob).unwrap());
}

#[test]
fn a_gguf_file_goes_by_its_name_and_a_split_one_as_a_folder() {
    let fake = fake();
    fake.put("user/.lmstudio/models/p/m/m-Q4.gguf", "GGUF4");
    fake.put("user/.lmstudio/models/p/m/b-00001-of-00002.gguf", "GGUF");
    fake.put("user/.lmstudio/models/p/m/b-00002-of-00002.gguf", "GGUF2");
    taken(&fake, "user/.lmstudio/models/p/m/m-Q4.gguf", How::Move).unwrap();
    assert_eq!(std::fs::read(fake.path("to/m-Q4.gguf")).unwrap(), b"GGUF4");
    taken(&fake, "user/.lmstudio/models/p/m/b-00001-of-00002.gguf", How::Move).unwrap();
    assert_eq!(files(&fake.path("to/b")).len(), 2);
    assert!(files(&fake.path("user/.lmstudio/models/p/m")).is_empty());
}

#[test]
fn what_is_no_model_or_nobodys_is_refused() {
    let fake = fake();
    fake.put("other/m.gguf", "GGUF");
    fake.put("other/text.gguf", "text");
    fake.put("other/half/config.json", "{}");
    assert_eq!(code(taken(&fake, "other/m.gguf", How::Move)), Code::WrongState);
    for none in ["other/text.gguf", "other/half", "other"] {
        assert_eq!(code(taken(&fake, none, How::Copy)), Code::FormatUnknown, "{none}");
    }
    assert_eq!(code(taken(&fake, "nowhere", How::Copy)), Code::FileUnreadable);
    let into = |to: &str| {
        let order = Order { to: fake.path(to), how: How::Copy, dry_run: false };
        code(take(&fake.places(), &fake.path("disk/m"), &order, &mut |_, _| Ok(())))
    };
    assert_eq!(into("disk/m"), Code::SettingInvalid);
    assert_eq!(into("nowhere"), Code::FileUnreadable);
    assert_eq!(into("other/m.gguf"), Code::FileUnreadable);
}

#[test]
fn across_disks_a_move_is_a_copy_that_was_compared_and_a_link_is_refused() {
    let fake = fake();
    // Memory as a disk: where there is none of its own, there is no second disk to try.
    let Ok(other) = tempfile::tempdir_in("/dev/shm") else { return };
    if other.path().metadata().unwrap().dev() == fake.path("to").metadata().unwrap().dev() {
        return;
    }
    let to = |how| Order { to: other.path().to_owned(), how, dry_run: false };
    let take = |how| take(&fake.places(), &fake.path("disk/m"), &to(how), &mut |_, _| Ok(()));
    assert_eq!(code(take(How::Link)), Code::NotSupported);
    let before = files(&fake.path("disk/m"));
    take(How::Move).unwrap();
    assert_eq!(files(&other.path().join("m")), before);
    assert!(!fake.path("disk/m").exists());
}

proptest! {
    #[test]
    fn any_name_becomes_one_plain_component(name in ".{0,300}") {
        let plain = source::plain_name(&name);
        prop_assert!(!plain.is_empty() && plain.len() <= 200);
        prop_assert!(!plain.starts_with('.') && !plain.starts_with('-'));
        prop_assert!(!plain.chars().any(|c| c.is_control() || c == '/'));
        prop_assert_eq!(Path::new(&plain).components().count(), 1);
    }
}
