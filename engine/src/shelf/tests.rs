//! Homes as they are found, made by hand: each program's layout, and what strangers may put there.

use super::*;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

/// A user's home and a HOME of ours.
pub(super) struct Fake {
    folder: tempfile::TempDir,
}

impl Fake {
    pub(super) fn new() -> Fake {
        let fake = Fake { folder: tempfile::tempdir().unwrap() };
        Home::open(&fake.path("anneal")).unwrap();
        fake
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Writes a file with the folders above it.
    pub(super) fn put(&self, path: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub(super) fn add(&self, path: &str) {
        places::add(&Home::open(&self.path("anneal")).unwrap(), &self.path(path)).unwrap();
    }

    pub(super) fn here(&self) -> Surroundings {
        let ollama_system = vec![self.path("system/ollama")];
        Surroundings { home: Some(self.path("user")), ollama_system, ..Surroundings::default() }
    }

    pub(super) fn places(&self) -> Vec<Spot> {
        places_of(&self.here(), &self.path("anneal"))
    }

    pub(super) fn look(&self) -> Shelf {
        look(&self.here(), &self.path("anneal"))
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.look().models.into_iter().map(|model| model.name).collect()
    }

    /// A file of a snapshot as the cache lays it: a link to a blob.
    pub(super) fn cached(&self, repository: &str, revision: &str, name: &str, bytes: impl AsRef<[u8]>) {
        let root = format!("{HUB}/{repository}");
        self.put(&format!("{root}/blobs/{revision}-{name}"), bytes);
        self.put(&format!("{root}/snapshots/{revision}/.keep"), "");
        let link = self.path(&format!("{root}/snapshots/{revision}/{name}"));
        symlink(format!("../../blobs/{revision}-{name}"), link).unwrap();
    }

    /// A model of Ollama: a manifest and its blob.
    pub(super) fn ollama(&self, root: &str, tag: &str, digit: &str) -> PathBuf {
        let hex = digit.repeat(64);
        let layers = serde_json::json!({ "schemaVersion": 2, "layers": [
            { "mediaType": "application/vnd.ollama.image.template", "digest": "sha256:0", "size": 1 },
            { "mediaType": "application/vnd.ollama.image.model", "digest": format!("sha256:{hex}"), "size": 9 },
        ]});
        self.put(&format!("{root}/manifests/{tag}"), layers.to_string());
        self.put(&format!("{root}/blobs/sha256-{hex}"), "GGUF\x03....")
    }
}

pub(super) const HUB: &str = "user/.cache/huggingface/hub";
pub(super) const OLLAMA: &str = "user/.ollama/models";

fn pipe(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

#[test]
fn an_empty_home_has_places_that_are_not_there() {
    let fake = Fake::new();
    let shelf = fake.look();
    assert!(shelf.models.is_empty());
    assert_eq!(shelf.places.len(), 5, "{:?}", shelf.places);
    assert!(shelf.places.iter().all(|place| !place.there && place.models == 0));
    assert!(look(&Surroundings::default(), &fake.path("anneal")).places.is_empty());
}

#[test]
fn the_current_snapshot_of_a_hugging_face_cache_is_listed() {
    let fake = Fake::new();
    for revision in ["aaa", "bbb"] {
        fake.cached("models--org--a-model", revision, "config.json", "{}");
        fake.cached("models--org--a-model", revision, "model.safetensors", revision.repeat(2));
    }
    fake.put(&format!("{HUB}/models--org--a-model/refs/main"), "aaa\n");
    fake.cached("models--alone", "ccc", "model-Q4.gguf", "GGUF1");
    fake.cached("models--alone", "ccc", "model-Q8.gguf", "GGUF12");
    fake.cached("datasets--org--rows", "ddd", "config.json", "{}");
    fake.cached("datasets--org--rows", "ddd", "model.safetensors", "x");
    let shelf = fake.look();
    let told: Vec<_> = shelf.models.iter().map(|m| (m.name.as_str(), m.bytes, m.format.as_str())).collect();
    let expected = [("alone/model-Q4", 5, "gguf"), ("alone/model-Q8", 6, "gguf"), ("org/a-model", 6, "safetensors")];
    assert_eq!(told, expected);
    assert!(shelf.models[2].path.ends_with("models--org--a-model/snapshots/aaa"));
    assert_eq!((shelf.places[0].there, shelf.places[0].models), (true, 3));
}

#[test]
fn the_newest_whole_snapshot_counts_where_none_is_current() {
    let fake = Fake::new();
    fake.cached("models--o--m", "old", "config.json", "{}");
    fake.cached("models--o--m", "old", "model.safetensors", "abc");
    fake.cached("models--o--m", "new", "config.json", "{}");
    fake.cached("models--o--m", "new", "model.safetensors", "abcd");
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    let dated = std::fs::File::open(fake.path(&format!("{HUB}/models--o--m/snapshots/new"))).unwrap();
    dated.set_modified(later).unwrap();
    assert_eq!(fake.look().models[0].bytes, 4);
    // Its download is under way: the link is there, the blob is not.
    std::fs::remove_file(fake.path(&format!("{HUB}/models--o--m/blobs/new-model.safetensors"))).unwrap();
    assert_eq!(fake.look().models[0].bytes, 3);
}

#[test]
fn a_cache_that_leads_elsewhere_is_not_followed() {
    let fake = Fake::new();
    let secret = fake.put("secret/model.safetensors", "secret");
    fake.cached("models--o--m", "aaa", "config.json", "{}");
    symlink(&secret, fake.path(&format!("{HUB}/models--o--m/snapshots/aaa/model.safetensors"))).unwrap();
    symlink(fake.path("secret"), fake.path(&format!("{HUB}/models--o--link"))).unwrap();
    let circle = fake.path(&format!("{HUB}/models--o--c/snapshots/x"));
    std::fs::create_dir_all(circle.parent().unwrap()).unwrap();
    symlink("x", &circle).unwrap();
    fake.put(&format!("{HUB}/models--o--c/refs/main"), "../../../../secret");
    assert!(fake.names().is_empty());
}

#[test]
fn each_quantisation_in_lm_studio_is_a_model() {
    let fake = Fake::new();
    fake.put("user/.lmstudio/models/pub/m-GGUF/m-Q4.gguf", "GGUF");
    fake.put("user/.lmstudio/models/pub/m-GGUF/m-Q8.gguf", "GGUF");
    fake.put("user/.lmstudio/models/pub/m-GGUF/mmproj-m.gguf", "GGUF");
    fake.put("user/.cache/lm-studio/models/pub/old/m.gguf", "GGUF");
    fake.put("elsewhere/models/pub/far/m.gguf", "GGUF");
    fake.put("user/.lmstudio-home-pointer", fake.path("elsewhere").to_str().unwrap());
    assert_eq!(fake.names(), ["pub/far", "pub/m-GGUF/m-Q4", "pub/m-GGUF/m-Q8", "pub/old"]);
}

#[test]
fn ollama_names_its_models_as_it_does() {
    let fake = Fake::new();
    let blob = fake.ollama(OLLAMA, "registry.ollama.ai/library/llama3.2/1b", "1");
    fake.ollama(OLLAMA, "registry.ollama.ai/somebody/tune/latest", "2");
    fake.ollama("system/ollama", "hf.co/org/repo-GGUF/Q4", "3");
    let shelf = fake.look();
    let names: Vec<&str> = shelf.models.iter().map(|model| model.name.as_str()).collect();
    assert_eq!(names, ["hf.co/org/repo-GGUF:Q4", "llama3.2:1b", "somebody/tune:latest"]);
    assert_eq!((Path::new(&shelf.models[1].path), shelf.models[1].bytes), (blob.as_path(), 9));
}

#[test]
fn manifests_that_lie_are_passed_over() {
    let fake = Fake::new();
    let model = |digest: &str| {
        serde_json::json!({ "layers": [{ "mediaType": "application/vnd.ollama.image.model", "digest": digest }] })
            .to_string()
    };
    let root = format!("{OLLAMA}/manifests/registry.ollama.ai/library/m");
    fake.put("secret", "GGUF");
    fake.put(&format!("{OLLAMA}/blobs/sha256-{}", "5".repeat(64)), "not a model");
    for (tag, text) in [
        ("outside", model("sha256:../../../../secret")),
        ("missing", model(&format!("sha256:{}", "4".repeat(64)))),
        ("other", model(&format!("sha256:{}", "5".repeat(64)))),
        ("nothing", String::new()),
        ("deep", "[".repeat(100_000)),
        ("layers", "{\"layers\": 3}".into()),
    ] {
        fake.put(&format!("{root}/{tag}"), text);
    }
    // A hundred megabytes that take no room.
    std::fs::File::create(fake.path(&format!("{root}/huge"))).unwrap().set_len(100 << 20).unwrap();
    pipe(&fake.path(&format!("{root}/pipe")));
    symlink("/dev/zero", fake.path(&format!("{root}/zero"))).unwrap();
    assert!(fake.names().is_empty());
}

#[test]
fn an_added_place_is_searched_a_few_levels_deep() {
    let fake = Fake::new();
    fake.put("disk/a/b/config.json", "{}");
    fake.put("disk/a/b/model.safetensors", "abc");
    fake.put("disk/loose-Q4.gguf", "GGUF");
    fake.put("disk/.hidden/m.gguf", "GGUF");
    fake.put("disk/1/2/3/4/5/6/7/m.gguf", "GGUF");
    symlink(fake.path("disk"), fake.path("disk/a/circle")).unwrap();
    pipe(&fake.path("disk/pipe.gguf"));
    fake.add("disk");
    assert_eq!(fake.names(), ["a/b", "loose-Q4"]);
    fake.add("disk/a/b");
    let shelf = fake.look();
    assert_eq!(shelf.models.len(), 2, "one model is listed once");
    assert_eq!(shelf.places.last().unwrap().models, 0);
}

#[test]
fn a_cache_in_an_added_place_stays_a_cache() {
    let fake = Fake::new();
    fake.cached("models--o--m", "aaa", "config.json", "{}");
    fake.cached("models--o--m", "aaa", "model.safetensors", "abc");
    std::fs::create_dir_all(fake.path("disk")).unwrap();
    std::fs::rename(fake.path(HUB), fake.path("disk/hub")).unwrap();
    fake.ollama("disk/ollama", "registry.ollama.ai/library/m/1b", "1");
    fake.add("disk");
    let told: Vec<_> = fake.look().models.into_iter().map(|model| (model.name, model.source)).collect();
    assert_eq!(told, [("m:1b".to_owned(), ShelfSource::Ollama), ("o/m".into(), ShelfSource::HuggingFace)]);
}

#[test]
fn odd_names_are_listed_as_they_are_and_what_is_no_text_is_left_out() {
    let fake = Fake::new();
    fake.put("disk/new\nline <b>&amp; \u{202e}.gguf", "GGUF");
    let folder = fake.path("disk").join(OsStr::from_bytes(b"no \xff text"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("m.gguf"), "GGUF").unwrap();
    fake.add("disk");
    assert_eq!(fake.names(), ["new\nline <b>&amp; \u{202e}"]);
    let model = &fake.look().models[0];
    assert!(Path::new(&model.path).is_file());
}

#[test]
fn a_place_that_is_gone_and_a_list_that_is_damaged_are_told_and_are_no_error() {
    let fake = Fake::new();
    std::fs::create_dir(fake.path("disk")).unwrap();
    fake.add("disk");
    std::fs::remove_dir(fake.path("disk")).unwrap();
    let last = |shelf: Shelf| shelf.places.last().map(|place| (place.source, place.there, place.path.clone())).unwrap();
    assert_eq!(last(fake.look()).1, false);
    fake.put("anneal/places.toml", "places = 3");
    let (source, there, path) = last(fake.look());
    assert_eq!((source, there), (ShelfSource::Added, false));
    assert!(path.ends_with("places.toml"));
}

#[test]
fn a_model_is_found_by_its_name_or_its_path() {
    let fake = Fake::new();
    let file = fake.put("one/m.gguf", "GGUF");
    fake.add("one");
    assert_eq!(by_name(&fake.look(), Path::new("m")).unwrap(), file.canonicalize().unwrap());
    assert_eq!(by_name(&fake.look(), &file).unwrap(), file);
    assert_eq!(by_name(&fake.look(), Path::new("nothing like it")).unwrap_err().code, Code::NotFound);
    fake.put("two/m.gguf", "GGUF");
    fake.add("two");
    assert_eq!(by_name(&fake.look(), Path::new("m")).unwrap_err().code, Code::SettingInvalid);
}
