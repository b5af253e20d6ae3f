//! Intake: what the paths are that a user dropped, decided by content. Only headers and rows are read, through `formats`.
//!
//! Not here: anything that opens a tokenizer or a template (`anneal-trainer read`), and checksums (`checkpoints --verify`).

use formats::adapter::Adapter;
use formats::dataset;
use formats::model_folder::ModelFolder;
use protocol::facts::{DatasetFacts, ItemFacts, Kind};
use protocol::job::{DataSpec, RowAction};
use protocol::{Code, Outcome, Problem};
use rustix::fs::{FileType, Mode, OFlags};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How data is looked at: what the user says of it, and who opens it.
struct Look<'a> {
    data: &'a DataSpec,
    facts: &'a dyn Fn(&Path) -> Outcome<DatasetFacts>,
}

/// Facts of each path, in the order given; data under what a job says of it, looked at by `facts`. A path that cannot be used
/// is `Kind::Unknown` with a problem; never an error.
pub fn inspect(paths: &[PathBuf], data: &DataSpec, facts: &dyn Fn(&Path) -> Outcome<DatasetFacts>) -> Vec<ItemFacts> {
    let look = Look { data, facts };
    paths.iter().map(|path| one(path, &look)).collect()
}

/// True for a folder that holds an adapter alone; a checkpoint is more.
pub fn is_adapter(path: &Path) -> bool {
    let has = |name: &str| path.join(name).symlink_metadata().is_ok();
    has("adapter_config.json") && !(has("manifest.json") && has("state.json"))
}

fn one(path: &Path, look: &Look) -> ItemFacts {
    if path.to_str().is_none() {
        return item(path, Kind::Unknown, Some(no_text(path)));
    }
    match start(path) {
        Ok(Dropped::Folder) => folder(path, look),
        Ok(Dropped::File(start)) => file(path, &start, look),
        Err(problem) => item(path, Kind::Unknown, Some(problem)),
    }
}

/// The path as it is, because a job is made of it; who shows it escapes it. What is no text is escaped here: `no_text` refuses it.
fn item(path: &Path, kind: Kind, problem: Option<Problem>) -> ItemFacts {
    let path = path.to_str().map_or_else(|| escaped(path.as_os_str().as_bytes()), str::to_owned);
    ItemFacts { path, kind, model: None, dataset: None, problem }
}

/// Jobs, plans and the window's questions are text; a name that is none could be named in no job.
fn no_text(path: &Path) -> Problem {
    Problem::new(Code::FileUnreadable, "the name of this file or folder is no text")
        .why("a job file can only name what is written in UTF-8")
        .file(Path::new(&escaped(path.as_os_str().as_bytes())))
        .remedy("rename it")
}

enum Dropped {
    Folder,
    File(Vec<u8>),
}

/// Opened non-blocking and asked for its kind before anything is read, so that a pipe or a device is refused at once.
/// Links that the user dropped are followed, a circle of them is the kernel's error.
fn start(path: &Path) -> Result<Dropped, Problem> {
    let failed = |e: rustix::io::Errno| Problem::io(&e.into(), "opening", path);
    let special = || {
        Problem::new(Code::FormatUnknown, "this is a device, pipe or socket, not a file or folder")
            .file(path)
            .remedy("give a file or a folder")
    };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let fd = match rustix::fs::open(path, flags, Mode::empty()) {
        // What opening a socket, or a device without a driver, says.
        Err(rustix::io::Errno::NXIO | rustix::io::Errno::NODEV) => return Err(special()),
        opened => opened.map_err(failed)?,
    };
    match FileType::from_raw_mode(rustix::fs::fstat(&fd).map_err(failed)?.st_mode) {
        FileType::Directory => Ok(Dropped::Folder),
        FileType::RegularFile => {
            let mut start = Vec::new();
            let read = std::fs::File::from(fd).take(formats::kind::START_BYTES).read_to_end(&mut start);
            read.map_err(|e| Problem::io(&e, "reading", path))?;
            Ok(Dropped::File(start))
        }
        _ => Err(special()),
    }
}

fn folder(path: &Path, look: &Look) -> ItemFacts {
    let has = |name: &str| path.join(name).symlink_metadata().is_ok();
    if has("manifest.json") && has("state.json") {
        return weights(path, Kind::Checkpoint, has("adapter_config.json"));
    }
    if has("adapter_config.json") {
        return weights(path, Kind::Adapter, true);
    }
    if has("config.json") {
        return weights(path, Kind::Model, false);
    }
    if has("job.toml") && has("checkpoints") {
        let problem = Problem::new(Code::FormatUnknown, "this is the folder of a run")
            .file(path)
            .remedy("give one of the folders in its checkpoints folder");
        return item(path, Kind::Unknown, Some(problem));
    }
    if let Some(name) = weight_file(path) {
        let remedy = if name.to_ascii_lowercase().ends_with(".gguf") {
            "give the GGUF file itself"
        } else {
            "give a model folder: config.json, *.safetensors and tokenizer.json together"
        };
        let problem = Problem::new(Code::ConfigInvalid, format!("there is a weight file ({name}) but no config.json"))
            .file(path)
            .remedy(remedy);
        return item(path, Kind::Unknown, Some(problem));
    }
    data(path, look)
}

fn weights(path: &Path, kind: Kind, adapter: bool) -> ItemFacts {
    if adapter {
        return item(path, kind, Adapter::open(path).err());
    }
    match ModelFolder::open(path) {
        Ok(model) => ItemFacts { model: Some(model.facts()), ..item(path, kind, None) },
        Err(problem) => item(path, kind, Some(problem)),
    }
}

/// The first file among a thousand that looks like weights by its name.
fn weight_file(path: &Path) -> Option<String> {
    let names = std::fs::read_dir(path).ok()?.take(1000).filter_map(|entry| Some(entry.ok()?.file_name()));
    let ends = [".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf"];
    names
        .filter(|name| ends.iter().any(|end| name.as_bytes().ends_with(end.as_bytes())))
        .map(|name| escaped(name.as_bytes()))
        .min()
}

fn file(path: &Path, start: &[u8], look: &Look) -> ItemFacts {
    if start.starts_with(b"GGUF") {
        return weights(path, Kind::Model, false);
    }
    match formats::kind::refused(start) {
        Some(problem) => item(path, Kind::Unknown, Some(problem.file(path))),
        None if path.extension().is_some_and(|end| end.eq_ignore_ascii_case("gguf")) => {
            let what = "this is not a GGUF file, whatever its name: it has not the magic number of one";
            item(
                path,
                Kind::Unknown,
                Some(Problem::new(Code::FileMalformed, what).file(path).remedy("fetch the file again")),
            )
        }
        None => data(path, look),
    }
}

/// A folder without one data file is no data set; one with rows that cannot be used still is. A class of rows that only the
/// user can decide on is told as the problem a job without a decision would meet.
fn data(path: &Path, look: &Look) -> ItemFacts {
    match (look.facts)(path) {
        Ok(facts) => {
            let options = dataset::Options {
                rows: look.data.rows.clone(),
                roles: look.data.roles.clone(),
                ..dataset::Options::default()
            };
            let problem = dataset::Rules::of(&options).map(|rules| undecided(path, &facts, rules));
            let problem = problem.unwrap_or_else(Some);
            ItemFacts { dataset: Some(facts), ..item(path, Kind::Dataset, problem) }
        }
        Err(problem) => {
            let kind = match problem.code {
                Code::FormatUnknown | Code::FileUnreadable | Code::FileEmpty | Code::NotFound => Kind::Unknown,
                _ => Kind::Dataset,
            };
            item(path, kind, Some(problem))
        }
    }
}

/// What stops a job on these rows: that there are none, unless a decision could change that, or a class without a decision.
fn undecided(path: &Path, facts: &DatasetFacts, rules: dataset::Rules) -> Option<Problem> {
    let mut tally = dataset::Tally::new(rules);
    facts.classes.iter().for_each(|class| tally.add_class(class));
    let refusal = tally.refusal(facts.rows);
    let mendable = facts.classes.iter().any(|class| {
        tally.stops(class.code) && class.choices.iter().any(|way| matches!(way, RowAction::Map | RowAction::Convert))
    });
    match refusal {
        Some(problem) if mendable || facts.usable_rows > 0 => Some(problem),
        _ => (facts.usable_rows == 0).then(|| unusable(path, facts)),
    }
}

/// A data set of which no row can be trained on, and what is wrong with the first.
fn unusable(path: &Path, facts: &DatasetFacts) -> Problem {
    let first = facts.problems.first();
    let mut problem =
        Problem::new(Code::NoUsableRows, format!("none of the {} rows can be used", facts.rows)).file(path);
    if let Some(row) = first {
        problem = problem.why(format!("row {}: {}", row.row, row.message)).row(row.row).line(row.line);
    }
    problem.remedy("correct the rows; a layout that is known is {\"messages\": [{\"role\", \"content\"}, …]}")
}

/// Names are bytes and may hold anything: what is no text, moves the cursor or turns the reading direction is escaped.
pub(crate) fn escaped(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                c if c.is_control() => text.extend(c.escape_default()),
                '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                    text.extend(c.escape_unicode())
                }
                c => text.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::fs::symlink;

    fn inspected(path: PathBuf) -> ItemFacts {
        inspected_as(path, "{}")
    }

    /// Looked at here, without a process of its own. `data`: what the job says of it.
    fn inspected_as(path: PathBuf, data: &str) -> ItemFacts {
        let mut data: serde_json::Value = serde_json::from_str(data).unwrap();
        data["train"] = serde_json::json!([]);
        let data: DataSpec = serde_json::from_value(data).unwrap();
        let (rows, roles) = (data.rows.clone(), data.roles.clone());
        let options = dataset::Options { rows, roles, ..dataset::Options::default() };
        inspect(&[path], &data, &|path| dataset::inspect(path, &options)).remove(0)
    }

    fn code(facts: &ItemFacts) -> Option<Code> {
        facts.problem.as_ref().map(|problem| problem.code)
    }

    #[test]
    fn pipes_sockets_devices_and_circles_are_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe.jsonl");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let socket = dir.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        symlink("circle", dir.path().join("circle")).unwrap();
        for special in [pipe, socket, "/dev/zero".into(), "/dev/null".into()] {
            let facts = inspected(special.clone());
            assert_eq!((facts.kind, code(&facts)), (Kind::Unknown, Some(Code::FormatUnknown)), "{special:?}");
        }
        for missing in ["circle", "nothing"] {
            let facts = inspected(dir.path().join(missing));
            assert!(facts.kind == Kind::Unknown && facts.problem.is_some(), "{facts:?}");
        }
    }

    #[test]
    fn content_decides_and_names_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let cases: [(&str, &[u8], Code); 4] = [
            ("data.jsonl", b"\x80\x04\x95", Code::CodeInFile),
            ("rows.json", b"PK\x03\x04....archive/data.pkl", Code::CodeInFile),
            ("rows.txt", b"PK\x03\x04....rows.jsonl", Code::NotSupported),
            ("weights", b"\x02\0\0\0\0\0\0\0{}", Code::FormatUnknown),
        ];
        for (name, bytes, expected) in cases {
            std::fs::write(dir.path().join(name), bytes).unwrap();
            let facts = inspected(dir.path().join(name));
            assert_eq!((facts.kind, code(&facts)), (Kind::Unknown, Some(expected)), "{name}");
        }
        std::fs::write(dir.path().join("rows.csv"), b"PAR1").unwrap();
        let facts = inspected(dir.path().join("rows.csv"));
        assert_eq!((facts.kind, code(&facts)), (Kind::Dataset, Some(Code::FileTruncated)));
    }

    #[test]
    fn a_gguf_file_is_a_model_whatever_its_name() {
        use formats::gguf::{Type, write::Draft};
        let dir = tempfile::tempdir().unwrap();
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/models/llama");
        let model = ModelFolder::open(&golden).unwrap();
        let draft = Draft::new(model.config(), model.special_ids(), &golden, Type::Q8_0, "golden").unwrap();
        let path = dir.path().join("我的 rows.jsonl");
        let mut out = std::fs::File::create(&path).unwrap();
        draft.write(&mut out, &path, &mut |tensor| Ok(vec![0.5; tensor.elements() as usize])).unwrap();
        let facts = inspected(path);
        assert_eq!((facts.kind, code(&facts)), (Kind::Model, None));
        let model = facts.model.unwrap();
        assert!(model.dtype == "Q8_0" && model.tokenizer && !model.notes.is_empty(), "{model:?}");
        std::fs::write(dir.path().join("cut.bin"), b"GGUF\x03\0\0\0").unwrap();
        let facts = inspected(dir.path().join("cut.bin"));
        assert_eq!((facts.kind, code(&facts)), (Kind::Model, Some(Code::FileTruncated)));
    }

    #[test]
    fn an_odd_name_is_the_path_a_job_can_be_made_of() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new\nline \u{1b}[31m \u{202e} ok é.jsonl");
        std::fs::write(&path, "{\"text\": \"some words\"}\n").unwrap();
        let facts = inspected(path.clone());
        assert_eq!((facts.kind, code(&facts)), (Kind::Dataset, None));
        assert_eq!(Path::new(&facts.path), path);
    }

    #[test]
    fn a_name_that_is_no_text_is_refused_and_shown_escaped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(OsStr::from_bytes(b"a\nb \xff \xe2\x80\xae.jsonl"));
        std::fs::write(&path, "{\"text\": \"some words\"}\n").unwrap();
        let facts = inspected(path);
        assert_eq!((facts.kind, code(&facts)), (Kind::Unknown, Some(Code::FileUnreadable)));
        assert!(facts.path.ends_with("a\\nb \\xff \\u{202e}.jsonl"), "{}", facts.path);
        assert_eq!(facts.problem.unwrap().place.file, Some(facts.path));
    }

    #[test]
    fn a_run_folder_and_weights_without_a_configuration_say_what_is_wanted() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("run/checkpoints")).unwrap();
        std::fs::write(dir.path().join("run/job.toml"), "").unwrap();
        assert!(inspected(dir.path().join("run")).problem.unwrap().remedy.contains("checkpoints"));
        std::fs::create_dir(dir.path().join("loose")).unwrap();
        std::fs::write(dir.path().join("loose/model.safetensors"), "x").unwrap();
        assert_eq!(code(&inspected(dir.path().join("loose"))), Some(Code::ConfigInvalid));
    }

    #[test]
    fn a_damaged_row_is_a_problem_with_ways_out_until_the_user_decides() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.jsonl");
        std::fs::write(&path, "{\"text\": \"a\"}\n{\"text\": \"b\"}\nnot json\n").unwrap();
        let facts = inspected(path.clone());
        let problem = facts.problem.unwrap();
        assert_eq!((facts.kind, problem.code, problem.place.line), (Kind::Dataset, Code::RowNotJson, Some(3)));
        assert_eq!(problem.ways[0].set["data.rows.row_not_json"], "skip");
        assert_eq!(facts.dataset.unwrap().usable_rows, 2);
        let facts = inspected_as(path.clone(), r#"{"rows": {"row_not_json": "skip"}}"#);
        assert_eq!((facts.problem, facts.dataset.unwrap().problem_counts["row_not_json"]), (None, 1));
        let facts = inspected_as(path, r#"{"rows": {"row_not_json": "convert"}}"#);
        assert_eq!(code(&facts), Some(Code::SettingInvalid));
    }

    #[test]
    fn rows_that_a_decision_would_make_usable_are_told_by_their_class() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.jsonl");
        let row = r#"{"messages": [{"role": "customer", "content": "q"}, {"role": "assistant", "content": "a"}]}"#;
        std::fs::write(&path, row).unwrap();
        assert_eq!(code(&inspected(path.clone())), Some(Code::UnknownRole));
        std::fs::write(&path, row.replace("customer", "user").replace("\"a\"", "\"\"")).unwrap();
        assert_eq!(code(&inspected(path)), Some(Code::NoUsableRows));
    }

    #[test]
    fn damaged_rows_of_the_hostile_set_are_named_by_file_line_and_reason() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus/hostile");
        for (file, words) in [
            ("D25_bad_line.jsonl", ["line 3", "not JSON", "1 of 5 rows"]),
            ("D26_not_utf8.jsonl", ["line 2", "UTF-8", "convert"]),
            ("D27_mixed_shape.jsonl", ["line 4", "not an object", "1 of 5 rows"]),
            ("D36_deep.jsonl", ["line 2", "nested", "skip"]),
        ] {
            let sentence = inspected(corpus.join(file)).problem.unwrap().sentence();
            assert!(sentence.contains(file) && words.iter().all(|word| sentence.contains(word)), "{sentence}");
        }
    }
}
