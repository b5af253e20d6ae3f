//! Files that are refused, files that go there and back, and a real one.

use super::write::{Draft, Planned, write};
use super::*;
use crate::model_folder::{ModelFolder, copy_tokenizer};
use crate::template::Template;
use crate::tokenizer::{Control, Tokenizer};
use proptest::prelude::*;
use protocol::facts::ModelConfig;
use protocol::limits;
use serde_json::Value as Json;
use std::io::Write as _;

pub(super) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

pub(super) fn golden(path: &str) -> PathBuf {
    repository("tests/golden").join(path)
}

pub(super) fn config() -> ModelConfig {
    ModelFolder::open(&golden("models/llama")).unwrap().config().clone()
}

/// Writes a model folder of the golden data as GGUF.
pub(super) fn exported(folder: &Path, kind: Type, to: &Path) {
    let model = ModelFolder::open(folder).unwrap();
    let draft = Draft::new(model.config(), model.special_ids(), folder, kind, "golden").unwrap();
    let mut out = std::fs::File::create(to).unwrap();
    draft
        .write(&mut out, to, &mut |tensor| {
            let mut values = vec![0.0; tensor.elements() as usize];
            model.read_f32(&tensor.name, &mut values)?;
            Ok(values)
        })
        .unwrap();
}

fn read(model: &ModelFolder, name: &str, elements: u64) -> Vec<f32> {
    let mut values = vec![f32::NAN; elements as usize];
    model.read_f32(name, &mut values).unwrap();
    values
}

/// A file of these parts.
fn file_of(metadata: &[(&str, Value)], tensors: &[(&str, Vec<u64>)]) -> Vec<u8> {
    let metadata: Vec<(String, Value)> = metadata.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
    let plan =
        |(name, shape): &(&str, Vec<u64>)| Planned { name: (*name).into(), kind: Type::F32, shape: shape.clone() };
    let planned: Vec<Planned> = tensors.iter().map(plan).collect();
    let mut out = Vec::new();
    write(&mut out, Path::new("test"), &metadata, &planned, &mut |i| {
        Ok(vec![1.5; planned[i].shape.iter().product::<u64>() as usize])
    })
    .unwrap();
    out
}

fn opened(bytes: &[u8]) -> Outcome<File> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    File::open(file.path())
}

fn refused(bytes: &[u8]) -> Problem {
    opened(bytes).unwrap_err()
}

#[test]
fn hostile_files_are_refused_with_the_words_that_were_asked_for() {
    let hostile = repository("tests/corpus/hostile");
    let all: Json = serde_json::from_slice(&std::fs::read(hostile.join("expectations.json")).unwrap()).unwrap();
    let cases =
        all["items"].as_array().unwrap().iter().filter(|c| c["path"].as_str().is_some_and(|p| p.ends_with(".gguf")));
    let mut seen = 0;
    for case in cases {
        let problem = File::open(&hostile.join(case["path"].as_str().unwrap())).unwrap_err();
        for pattern in case["message_must_match"].as_array().unwrap() {
            let pattern = regex::Regex::new(&format!("(?i){}", pattern.as_str().unwrap())).unwrap();
            assert!(pattern.is_match(&problem.sentence()), "{}: {problem}", case["id"]);
        }
        seen += 1;
    }
    assert_eq!(seen, 5);
}

#[test]
fn other_versions_byte_orders_and_parts_are_refused_by_name() {
    let good = file_of(&[("general.architecture", "llama".into())], &[("a", vec![2])]);
    assert!(opened(&good).is_ok());
    let with_version = |bytes: [u8; 4]| {
        let mut file = good.clone();
        file[4..8].copy_from_slice(&bytes);
        file
    };
    assert!(opened(&with_version(2u32.to_le_bytes())).is_ok());
    for (bytes, word) in
        [(1u32.to_le_bytes(), "version 1"), (4u32.to_le_bytes(), "version 4"), (3u32.to_be_bytes(), "big-endian")]
    {
        let problem = refused(&with_version(bytes));
        assert!(problem.code == Code::NotSupported && problem.what.contains(word), "{problem}");
    }
    let split = refused(&file_of(&[("split.count", Value::U16(3))], &[]));
    assert!(split.code == Code::NotSupported && split.what.contains("3 parts"), "{split}");
    assert!(opened(&file_of(&[("split.count", Value::U16(1))], &[])).is_ok());
    assert_eq!(refused(b"").code, Code::FileEmpty);
    assert_eq!(refused(b"GG").code, Code::FileMalformed);
    assert_eq!(refused(b"GGUF\x03\0\0").code, Code::FileTruncated);
}

/// The offset of the first tensor's description, right behind the metadata.
fn tensor_at(file: &[u8], name: &str) -> usize {
    file.windows(name.len()).position(|part| part == name.as_bytes()).unwrap()
}

#[test]
fn wrong_tensors_are_refused_by_their_names() {
    let good = file_of(&[], &[("first", vec![4, 8]), ("second", vec![8])]);
    let at = tensor_at(&good, "second") + 6;
    // Behind the name: dimensions, one size, type, offset.
    let with = |skip: usize, bytes: &[u8]| {
        let mut file = good.clone();
        file[at + skip..at + skip + bytes.len()].copy_from_slice(bytes);
        refused(&file)
    };
    let cases = [
        (with(0, &0u32.to_le_bytes()), Code::FileMalformed, "0 dimensions"),
        (with(0, &9u32.to_le_bytes()), Code::FileMalformed, "9 dimensions"),
        (with(4, &0u64.to_le_bytes()), Code::FileMalformed, "zero"),
        (with(4, &(u64::MAX / 2).to_le_bytes()), Code::FileMalformed, "overflow"),
        (with(4, &1000u64.to_le_bytes()), Code::FileTruncated, "beyond the end"),
        (with(12, &8u32.to_le_bytes()), Code::FileMalformed, "no multiple of the 32"),
        (with(12, &20u32.to_le_bytes()), Code::NotSupported, "IQ4_NL"),
        (with(12, &77u32.to_le_bytes()), Code::NotSupported, "number 77"),
        (with(16, &64u64.to_le_bytes()), Code::FileMalformed, "overlaps"),
        (with(16, &129u64.to_le_bytes()), Code::FileMalformed, "alignment"),
        (with(16, &(u64::MAX - 31).to_le_bytes()), Code::FileMalformed, "overflows"),
    ];
    for (problem, code, word) in cases {
        assert!(problem.code == code && problem.what.contains(word), "{word}: {problem}");
        assert_eq!(problem.place.tensor.as_deref(), Some("second"), "{problem}");
    }
    let mut twice = good.clone();
    let at = tensor_at(&good, "second");
    twice[at..at + 6].copy_from_slice(b"secund");
    assert!(opened(&twice).is_ok());
    let twice = refused(&file_of(&[], &[("same", vec![8]), ("same", vec![8])]));
    assert!(twice.code == Code::FileMalformed && twice.what.contains("twice"), "{twice}");
}

#[test]
fn metadata_that_lies_is_refused_with_its_key() {
    let nested = (0..limits::GGUF_DEPTH + 1).fold(Array::U8(vec![1]), |inner, _| Array::Arrays(vec![inner]));
    let deep = refused(&file_of(&[("deep", Value::Array(nested))], &[]));
    assert!(deep.code == Code::TooLarge && deep.place.field.as_deref() == Some("deep"), "{deep}");
    let good = file_of(&[("flag", Value::Bool(true)), ("general.alignment", Value::U32(32))], &[("a", vec![8])]);
    let at = tensor_at(&good, "flag") + 4;
    for (skip, byte, word) in [(4, 2, "neither true nor false"), (0, 13, "unknown type 13")] {
        let mut file = good.clone();
        file[at + skip] = byte;
        let problem = refused(&file);
        assert!(problem.code == Code::FileMalformed && problem.what.contains(word), "{problem}");
    }
    for odd in [0u32, 48, 1 << 17] {
        let problem = refused(&file_of(&[("general.alignment", Value::U32(odd))], &[]));
        assert_eq!(problem.code, Code::FileMalformed, "{odd}: {problem}");
    }
    let mut same = file_of(&[("a", Value::U8(1)), ("b", Value::U8(2))], &[]);
    let b = same.iter().rposition(|byte| *byte == b'b').unwrap();
    same[b] = b'a';
    assert!(refused(&same).what.contains("twice"));
}

#[test]
fn a_golden_model_goes_there_and_back_in_every_format_that_is_written() {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["models/llama", "models/llama_tied", "models/llama_bias", "models/llama_rope_linear"] {
        let first = ModelFolder::open(&golden(folder)).unwrap();
        for (kind, off) in [(Type::F32, 0.0), (Type::F16, 1e-3), (Type::BF16, 8e-3), (Type::Q8_0, 8e-3)] {
            // Whatever its name, wherever it lies.
            let path = dir.path().join("模型 mit Leerzeichen.dat");
            exported(&golden(folder), kind, &path);
            let second = ModelFolder::open(&path).unwrap();
            let link = dir.path().join("link");
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(&path, &link).unwrap();
            assert_eq!(ModelFolder::open(&link).unwrap().weight_files(), second.weight_files());
            assert_eq!(second.facts().dtype, kind.name());
            assert_eq!(second.facts().notes.is_empty(), kind != Type::Q8_0);
            assert_eq!(second.special_ids(), first.special_ids());
            let (a, mut b) = (first.config().clone(), second.config().clone());
            b.initializer_range = a.initializer_range;
            assert_eq!(a, b, "{folder}");
            for tensor in a.tensors() {
                let (old, new) =
                    (read(&first, &tensor.name, tensor.elements()), read(&second, &tensor.name, tensor.elements()));
                let largest = old.iter().fold(0.0f32, |max, v| max.max(v.abs()));
                let exact = kind == Type::F32 || tensor.shape.len() == 1;
                let off = if exact { 0.0 } else { off * largest };
                let same = old.iter().zip(&new).all(|(a, b)| (a - b).abs() <= off);
                assert!(same, "{folder} {kind:?} {}", tensor.name);
            }
        }
    }
}

/// A golden model folder whose rotary embeddings are scaled in this way.
fn scaled(scaling: Json, theta: f64) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(golden("models/llama")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
    }
    let path = dir.path().join("config.json");
    let mut config: Json = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    (config["rope_scaling"], config["rope_theta"]) = (scaling, theta.into());
    config["max_position_embeddings"] = 32768.into();
    std::fs::write(&path, config.to_string()).unwrap();
    dir
}

#[test]
fn scaled_rotary_embeddings_go_there_and_back_or_are_refused_by_name() {
    let llama3 = |low: f64| serde_json::json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": low, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192});
    let yarn = |fast: f64| serde_json::json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192, "beta_fast": fast});
    for scaling in [llama3(1.0), yarn(32.0), serde_json::json!({"rope_type": "linear", "factor": 2.5})] {
        let folder = scaled(scaling.clone(), 5e5);
        let path = folder.path().join("model.gguf");
        exported(folder.path(), Type::F32, &path);
        let (first, second) = (ModelFolder::open(folder.path()).unwrap(), ModelFolder::open(&path).unwrap());
        assert!(first.config().rope_scaling.is_some());
        assert_eq!(first.config().rope_scaling, second.config().rope_scaling, "{scaling}");
        assert_eq!(File::open(&path).unwrap().tensor(names::ROPE_FREQS).is_some(), scaling["rope_type"] == "llama3");
    }
    for scaling in [llama3(2.0), yarn(16.0)] {
        let folder = scaled(scaling, 5e5);
        let model = ModelFolder::open(folder.path()).unwrap();
        let problem = Draft::new(model.config(), model.special_ids(), folder.path(), Type::F32, "x").unwrap_err();
        assert_eq!((problem.code, problem.place.field.as_deref()), (Code::NotSupported, Some("rope_scaling")));
    }
}

#[test]
fn tokenizer_and_template_go_there_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let all: Json = serde_json::from_slice(&std::fs::read(golden("tokenizer/encode.json")).unwrap()).unwrap();
    let texts: Vec<&str> =
        all["tokenizers"]["qwen"]["cases"].as_array().unwrap().iter().filter_map(|c| c["text"].as_str()).collect();
    assert_eq!(texts.len(), 40);
    let path = dir.path().join("model.gguf");
    exported(&golden("models/llama"), Type::F32, &path);
    let copied = dir.path().join("folder");
    std::fs::create_dir(&copied).unwrap();
    let names = copy_tokenizer(&path, &copied).unwrap();
    assert_eq!(names, ["chat_template.jinja", "tokenizer.json", "tokenizer_config.json"]);
    let first = Tokenizer::open(&golden("models/llama")).unwrap();
    for path in [&path, &copied] {
        let rebuilt = Tokenizer::open(path).unwrap();
        assert_eq!((first.bos(), first.eos(), first.pad()), (rebuilt.bos(), rebuilt.eos(), rebuilt.pad()));
        assert_eq!(first.control_texts(), rebuilt.control_texts());
        for text in &texts {
            for control in [Control::Recognised, Control::Plain] {
                assert_eq!(
                    first.encode_with(text, control, true).unwrap(),
                    rebuilt.encode_with(text, control, true).unwrap(),
                    "{text:?}"
                );
            }
            let ids = first.encode(text, true).unwrap();
            assert_eq!(first.decode(&ids, false).unwrap(), rebuilt.decode(&ids, false).unwrap());
        }
        let source = |path: &Path| Template::open(path).unwrap().unwrap().source().to_owned();
        assert_eq!(source(path), source(&golden("models/llama")));
    }
    write::check_words(&golden("models/llama"), &path).unwrap();
}

#[test]
fn another_architecture_and_a_wrong_shape_are_refused_by_name() {
    let model = |metadata: &[(&str, Value)], tensors: &[(&str, Vec<u64>)]| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&file_of(metadata, tensors)).unwrap();
        ModelFolder::open(file.path()).unwrap_err()
    };
    for (metadata, word) in [
        (vec![("general.architecture", Value::from("qwen2"))], "qwen2"),
        (vec![], "does not say"),
        (vec![("general.architecture", "llama".into()), ("llama.expert_count", Value::U32(8))], "mixture of 8"),
    ] {
        let problem = model(&metadata, &[]);
        assert!(problem.code == Code::ArchitectureUnknown && problem.what.contains(word), "{problem}");
    }
    let problem = model(&[("general.architecture", "llama".into())], &[]);
    assert_eq!(
        (problem.code, problem.place.field.as_deref()),
        (Code::ConfigInvalid, Some("llama.attention.head_count"))
    );
    assert!(problem.what.contains("llama.attention.head_count"), "{problem}");
    let small = |kv: u32| {
        let n = |key, n| (key, Value::U32(n));
        vec![
            ("general.architecture", "llama".into()),
            n("llama.block_count", 1),
            n("llama.embedding_length", 8),
            n("llama.feed_forward_length", 8),
            n("llama.attention.head_count", 2),
            n("llama.attention.head_count_kv", kv),
            n("llama.vocab_size", 4),
        ]
    };
    let problem = model(&small(3), &[]);
    assert_eq!(
        (problem.code, problem.place.field.as_deref()),
        (Code::ConfigInvalid, Some("llama.attention.head_count_kv"))
    );
    let problem = model(&small(2), &[("token_embd.weight", vec![5, 8])]);
    assert_eq!((problem.code, problem.place.tensor.as_deref()), (Code::TensorMismatch, Some("token_embd.weight")));
}

/// The real file; `None` is said.
fn real() -> Option<PathBuf> {
    let path = std::env::var_os("ANNEAL_SMOLLM2").map(PathBuf::from).filter(|path| is_gguf(path));
    if path.is_none() {
        println!("skipped: $ANNEAL_SMOLLM2 does not name SmolLM2-135M-Instruct as GGUF");
    }
    path
}

/// The SHA-256 of what is written into it, as `sha256sum` says it.
fn sha256(write: impl FnOnce(&mut dyn std::io::Write)) -> String {
    use std::process::{Command, Stdio};
    let mut sum = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    write(&mut std::io::BufWriter::new(sum.stdin.take().unwrap()));
    let output = sum.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

#[test]
fn smollm2_has_the_weights_that_the_reference_loader_reads() {
    let Some(path) = real() else { return };
    let model = ModelFolder::open(&path).unwrap();
    let facts = model.facts();
    assert_eq!((facts.dtype.as_str(), facts.parameters, facts.tied), ("Q4_1", 134_515_008, true));
    assert!(
        facts.tokenizer && facts.chat_template && facts.notes[0].contains("Q4_1, ") | facts.notes[0].contains(", Q4_1"),
        "{facts:?}"
    );
    assert_eq!((model.config().rms_norm_eps, &model.config().eos[..]), (1e-5, &[2][..]));
    let mut tensors = model.config().tensors();
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(tensors.len(), 272);
    // Sums of the safetensors files that the script of the reference makes of this GGUF file.
    let sums = [
        (Type::F32, "a672150fb4f99d7c8f4168cecdd464069c0ef3a37d8113f22ddb9d48031d03cd"),
        (Type::BF16, "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b"),
    ];
    for (kind, sum) in sums {
        let (mut header, mut at) = (String::from("{\"__metadata__\":{\"format\":\"pt\"}"), 0);
        for tensor in &tensors {
            let end = at + tensor.elements() * kind.block().1;
            let shape = format!("{:?}", tensor.shape).replace(' ', "");
            header += &format!(
                ",\"{}\":{{\"dtype\":\"{}\",\"shape\":{shape},\"data_offsets\":[{at},{end}]}}",
                tensor.name,
                kind.name()
            );
            at = end;
        }
        header.push('}');
        header += &" ".repeat(header.len().next_multiple_of(8) - header.len());
        let found = sha256(|out| {
            out.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
            out.write_all(header.as_bytes()).unwrap();
            for tensor in &tensors {
                let mut bytes = Vec::new();
                assert!(kind.append(&read(&model, &tensor.name, tensor.elements()), &mut bytes));
                out.write_all(&bytes).unwrap();
            }
        });
        assert_eq!(found, sum, "{kind:?}");
    }
}

/// Some value of every kind.
fn any_value() -> impl Strategy<Value = Value> {
    let text = "[ -~äé日]{0,12}";
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i8>().prop_map(Value::I8),
        any::<u16>().prop_map(Value::U16),
        any::<i16>().prop_map(Value::I16),
        any::<u32>().prop_map(Value::U32),
        any::<i32>().prop_map(Value::I32),
        any::<u64>().prop_map(Value::U64),
        any::<i64>().prop_map(Value::I64),
        (-1e9f32..1e9).prop_map(Value::F32),
        (-1e9f64..1e9).prop_map(Value::F64),
        any::<bool>().prop_map(Value::Bool),
        text.prop_map(Value::String),
        prop::collection::vec(text, 0..5).prop_map(|all| Value::Array(Array::Strings(all.into_iter().collect()))),
        prop::collection::vec(any::<u16>(), 0..9).prop_map(|all| Value::Array(Array::U16(all))),
        prop::collection::vec(-1e9f32..1e9, 0..9).prop_map(|all| Value::Array(Array::F32(all))),
        prop::collection::vec(any::<bool>(), 0..9).prop_map(|all| Value::Array(Array::Bool(all))),
        prop::collection::vec(any::<i64>(), 0..4).prop_map(|all| Value::Array(Array::Arrays(vec![
            Array::I64(all.clone()),
            Array::Arrays(vec![Array::I64(all)])
        ]))),
    ]
}

/// A small good file: metadata of all kinds, a vocabulary, tensors.
fn sample() -> Vec<u8> {
    let tokens: Strings = ["<s>", "a", "b", "ab"].iter().collect();
    file_of(
        &[
            ("general.architecture", "llama".into()),
            ("tokenizer.ggml.model", "llama".into()),
            ("tokenizer.ggml.tokens", Value::Array(Array::Strings(tokens))),
            ("tokenizer.ggml.scores", Value::Array(Array::F32(vec![0.0, -1.0, -2.0, -0.5]))),
            ("llama.block_count", Value::U32(1)),
            ("llama.rope.freq_base", Value::F32(1e4)),
            ("lists", Value::Array(Array::Arrays(vec![Array::U8(vec![1, 2])]))),
        ],
        &[("token_embd.weight", vec![4, 8]), ("blk.0.attn_q.weight", vec![8, 8])],
    )
}

/// Everything that may be done with whatever this is; errors are fine, panics are not.
fn use_all(bytes: &[u8]) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    if let Ok(file) = File::open(file.path()) {
        for tensor in file.tensors() {
            assert!(tensor.bytes() <= bytes.len() as u64);
            let mut out = vec![0.0; tensor.elements() as usize];
            let _ = file.read_f32(tensor, &mut out);
        }
    }
    let _ = ModelFolder::open(file.path());
    let copied = tempfile::tempdir().unwrap();
    let _ = copy_tokenizer(file.path(), copied.path());
    let _ = Tokenizer::open(file.path());
    let _ = Template::open(file.path());
}

proptest! {
    #[test]
    fn what_is_written_is_read(metadata in prop::collection::btree_map("[a-z.]{1,12}", any_value(), 0..8), sizes in prop::collection::vec(1u64..40, 0..5)) {
        let metadata: Vec<(String, Value)> = metadata.into_iter().filter(|(k, _)| k != "general.alignment").collect();
        let planned: Vec<Planned> = sizes.iter().enumerate().map(|(i, n)| {
            Planned { name: format!("t{i}"), kind: [Type::F32, Type::F16, Type::BF16][i % 3], shape: vec![2, *n] }
        }).collect();
        let mut out = Vec::new();
        write(&mut out, Path::new("test"), &metadata, &planned, &mut |i| Ok((0..2 * sizes[i]).map(|v| v as f32).collect())).unwrap();
        let file = opened(&out).unwrap();
        prop_assert_eq!(file.metadata(), &metadata.into_iter().collect::<Metadata>());
        for (tensor, plan) in file.tensors().iter().zip(&planned) {
            prop_assert_eq!((&tensor.name, tensor.kind, &tensor.shape), (&plan.name, plan.kind, &plan.shape));
            let mut values = vec![0.0; tensor.elements() as usize];
            file.read_f32(tensor, &mut values).unwrap();
            prop_assert!(values.iter().enumerate().all(|(i, v)| *v == i as f32));
        }
    }

    #[test]
    fn random_bytes_never_panic(tail in prop::collection::vec(any::<u8>(), 0..400), kept in 0usize..32) {
        let mut bytes = sample()[..kept].to_vec();
        bytes.extend(tail);
        use_all(&bytes);
    }

    #[test]
    fn a_good_file_with_wrong_bytes_never_panics(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), cut in any::<prop::sample::Index>(), cuts in any::<bool>()) {
        let mut bytes = sample();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if cuts {
            bytes.truncate(cut.index(bytes.len()));
        }
        use_all(&bytes);
    }
}
