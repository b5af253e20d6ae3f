//! Model folders: golden ones, damaged ones, and what comes later.

use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn tests(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(path)
}

/// A copy of a golden model whose files may be changed.
fn copy(model: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(tests("golden/models").join(model).join(name), dir.path().join(name)).unwrap();
    }
    dir
}

fn with_config(change: impl FnOnce(&mut Value)) -> Outcome<ModelFolder> {
    let dir = copy("llama");
    let path = dir.path().join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut config);
    std::fs::write(&path, config.to_string()).unwrap();
    ModelFolder::open(dir.path())
}

#[test]
fn every_golden_llama_opens_with_its_facts() {
    for (name, dtype, tied) in [
        ("llama", "F32", false),
        ("llama_sharded", "F32", false),
        ("llama_bf16", "BF16", false),
        ("llama_tied", "F32", true),
        ("llama31", "F32", true),
        ("llama31_v5", "F32", true),
        ("llama_rope_linear", "F32", false),
        ("llama_rope_yarn", "F32", false),
        ("llama_bias", "F32", false),
    ] {
        let facts = ModelFolder::open(&tests("golden/models").join(name)).unwrap().facts();
        assert_eq!((facts.dtype.as_str(), facts.tied, facts.hidden), (dtype, tied, 64), "{name}");
        assert!(facts.tokenizer && facts.chat_template);
        assert_eq!(facts.config.eos, [if name.starts_with("llama31") { 3 } else { 2 }]);
    }
    let sharded = ModelFolder::open(&tests("golden/models/llama_sharded")).unwrap();
    assert_eq!((sharded.weight_files().len(), sharded.facts().bytes), (3, 603_904));
}

#[test]
fn weights_read_as_f32_are_those_of_the_file() {
    let model = ModelFolder::open(&tests("golden/models/llama_bf16")).unwrap();
    let bytes = std::fs::read(tests("golden/models/llama_bf16/model.safetensors")).unwrap();
    let reference = ::safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let name = "model.layers.1.mlp.down_proj.weight";
    let mut ours = vec![0f32; 64 * 112];
    model.read_f32(name, &mut ours).unwrap();
    let theirs: Vec<f32> = reference
        .tensor(name)
        .unwrap()
        .data()
        .as_chunks::<2>()
        .0
        .iter()
        .map(|b| half::bf16::from_le_bytes(*b).to_f32())
        .collect();
    assert_eq!(ours, theirs);
    assert_eq!(model.read_f32("model.nothing", &mut ours).unwrap_err().code, Code::TensorMismatch);
}

#[test]
fn a_tied_head_is_the_embedding() {
    let model = ModelFolder::open(&tests("golden/models/llama_tied")).unwrap();
    let (mut head, mut embedding) = (vec![0f32; 384 * 64], vec![0f32; 384 * 64]);
    model.read_f32("lm_head.weight", &mut head).unwrap();
    model.read_f32("model.embed_tokens.weight", &mut embedding).unwrap();
    assert_eq!(head, embedding);
}

#[test]
fn damaged_folders_are_refused_by_name() {
    for (folder, code, words) in [
        ("golden/bad/llama_bin_pickle_exec", Code::CodeInFile, vec!["pytorch_model.bin", "pickle"]),
        ("golden/bad/shard_missing", Code::FileUnreadable, vec!["model-00003-of-00003.safetensors", "missing"]),
        ("golden/bad/shard_path_traversal", Code::PathOutside, vec!["../../models/llama"]),
        ("golden/bad/shard_absolute", Code::PathOutside, vec!["/etc/passwd"]),
        ("golden/bad/wrong_shape", Code::TensorMismatch, vec!["down_proj", "[64, 111]", "[64, 112]", "extra", "norm"]),
        (
            "corpus/hostile/D10_st_missing_shard",
            Code::FileUnreadable,
            vec!["model-00002-of-00002.safetensors", "missing"],
        ),
        ("corpus/hostile/D16_pickle_bin", Code::CodeInFile, vec!["pytorch_model.bin", "pickle"]),
        ("corpus/hostile/D18_config_no_hidden_size", Code::ConfigInvalid, vec!["config.json", "hidden_size"]),
        ("corpus/hostile/D19_config_vs_weights", Code::TensorMismatch, vec!["48", "32", "embed_tokens"]),
        ("corpus/hostile/D20_config_custom_code", Code::ArchitectureUnknown, vec!["EvilForCausalLM", "custom code"]),
        ("corpus/hostile/D22_tok_cut_json", Code::TokenizerInvalid, vec!["tokenizer.json", "line"]),
    ] {
        let problem = ModelFolder::open(&tests(folder)).unwrap_err();
        let text = problem.sentence();
        assert_eq!(problem.code, code, "{folder}: {text}");
        words.iter().for_each(|w| assert!(text.contains(w), "{folder}: {w} not in {text}"));
    }
    assert!(ModelFolder::open(&tests("golden/bad/nan_weight")).is_ok());
    assert!(ModelFolder::open(&tests("corpus/hostile/D_ok_model")).is_ok());
}

#[test]
fn what_comes_later_is_refused_by_name() {
    for (field, value) in [
        ("rope_scaling", json!({"type": "dynamic"})),
        ("rope_scaling", json!({"factor": 2.0})),
        ("rope_parameters", json!({"rope_type": "longrope", "rope_theta": 1e4, "factor": 4.0})),
        ("hidden_act", json!("gelu")),
        ("sliding_window", json!(8)),
        ("quantization_config", json!({"bits": 4})),
        ("layer_types", json!(["full_attention", "linear_attention"])),
    ] {
        let problem = with_config(|c| c[field] = value.clone()).unwrap_err();
        assert_eq!(problem.code, Code::NotSupported, "{field}: {problem}");
        assert_eq!(problem.place.field.as_deref(), Some(field));
        assert!(problem.what.contains("later version"), "{problem}");
    }
    for (field, value) in [
        ("architectures", json!(["MistralForCausalLM"])),
        ("model_type", json!("qwen2")),
        ("auto_map", json!({"a": "b"})),
    ] {
        let problem = with_config(|c| c[field] = value.clone()).unwrap_err();
        assert_eq!(problem.code, Code::ArchitectureUnknown, "{field}: {problem}");
    }
}

#[test]
fn spellings_that_mean_the_same_are_accepted() {
    for (field, value) in [
        ("rope_scaling", json!({"rope_type": "default"})),
        ("rope_scaling", json!(null)),
        ("rope_parameters", json!({"rope_type": "default", "rope_theta": 10000.0})),
        ("torch_dtype", json!(null)),
        ("dtype", json!("bfloat16")),
        ("layer_types", json!(["full_attention", "full_attention"])),
        ("head_dim", json!(null)),
        ("eos_token_id", json!([2, 0])),
    ] {
        let model = with_config(|c| c[field] = value.clone());
        assert!(model.is_ok(), "{field}={value}: {model:?}");
    }
    let theta = with_config(|c| {
        c.as_object_mut().unwrap().remove("rope_theta");
        c["rope_parameters"] = json!({"rope_theta": 500000.0, "rope_type": "default"});
    });
    assert_eq!(theta.unwrap().config().rope_theta, 500_000.0);
}

#[test]
fn both_generations_of_transformers_say_the_same() {
    let config = |name: &str| ModelFolder::open(&tests("golden/models").join(name)).unwrap().config().clone();
    assert_eq!(config("llama31"), config("llama31_v5"));
    assert!(config("llama31").rope_scaling.is_some());
}

#[test]
fn a_number_format_that_is_missing_is_that_of_the_tensors() {
    for change in [json!({}), json!({"dtype": null}), json!({"torch_dtype": null}), json!({"torch_dtype": "float64"})] {
        let model = with_config(|c| {
            let map = c.as_object_mut().unwrap();
            map.retain(|key, _| !["dtype", "torch_dtype"].contains(&key.as_str()));
            map.extend(change.as_object().unwrap().clone());
        });
        assert_eq!(model.unwrap().facts().dtype, "F32", "{change}");
    }
}

#[test]
fn biases_are_wanted_where_the_configuration_says_so() {
    let model = ModelFolder::open(&tests("golden/models/llama_bias")).unwrap();
    let names: Vec<String> = model.config().tensors().into_iter().map(|t| t.name).collect();
    let at = names.iter().position(|n| n == "model.layers.1.self_attn.k_proj.bias").unwrap();
    assert_eq!(names[at - 1], "model.layers.1.self_attn.k_proj.weight");
    assert_eq!((model.facts().parameters, names.len()), (118_016, 35));
    let problem = with_config(|c| c["mlp_bias"] = json!(true)).unwrap_err();
    assert!(problem.code == Code::TensorMismatch && problem.what.contains("gate_proj.bias"), "{problem}");
}

#[test]
fn absurd_and_contradicting_numbers_are_refused_with_their_field() {
    for (field, value) in [
        ("hidden_size", json!(1u64 << 62)),
        ("hidden_size", json!(-64)),
        ("hidden_size", json!("64")),
        ("num_hidden_layers", json!(0)),
        ("num_hidden_layers", json!(1e9)),
        ("vocab_size", json!(u64::MAX)),
        ("num_key_value_heads", json!(3)),
        ("head_dim", json!(15)),
        ("rms_norm_eps", json!(0.0)),
        ("rope_theta", json!(-1)),
        ("eos_token_id", json!(384)),
        ("tie_word_embeddings", json!("no")),
    ] {
        let problem = with_config(|c| c[field] = value.clone()).unwrap_err();
        assert_eq!(problem.code, Code::ConfigInvalid, "{field}={value}: {problem}");
        assert_eq!(problem.place.field.as_deref(), Some(field));
    }
}

#[test]
fn a_folder_we_write_opens_again_with_the_same_shape() {
    for name in ["llama", "llama31", "llama_rope_linear", "llama_rope_yarn", "llama_bias"] {
        written_again(name);
    }
}

fn written_again(name: &str) {
    let from = tests("golden/models").join(name);
    let model = ModelFolder::open(&from).unwrap();
    let dir = copy(name);
    let ids = model.special_ids();
    std::fs::write(dir.path().join("config.json"), config_json(model.config(), ids, "float32")).unwrap();
    std::fs::write(dir.path().join("generation_config.json"), generation_config_json(model.config(), ids)).unwrap();
    let copied = copy_tokenizer(&from, dir.path()).unwrap();
    assert_eq!(copied, ["chat_template.jinja", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"]);
    assert_eq!(tokenizer_files(dir.path()).unwrap().len(), 4);
    let again = ModelFolder::open(dir.path()).unwrap();
    assert_eq!((again.config(), again.special_ids()), (model.config(), ids));
}

#[test]
fn weights_that_are_a_link_out_of_the_folder_are_refused() {
    let dir = copy("llama");
    let weights = dir.path().join("model.safetensors");
    std::fs::remove_file(&weights).unwrap();
    std::os::unix::fs::symlink(tests("golden/models/llama/model.safetensors"), &weights).unwrap();
    assert_eq!(ModelFolder::open(dir.path()).unwrap_err().code, Code::PathOutside);
}

/// The layout of Hugging Face's cache: every file of a snapshot is a link to a blob.
#[test]
fn a_model_in_the_cache_of_hugging_face_opens_where_it_lies() {
    let cache = tempfile::tempdir().unwrap();
    let repository = cache.path().join("hub/models--org--tiny llama \u{1f999}");
    let snapshot = repository.join("snapshots/5f0c");
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::create_dir(repository.join("blobs")).unwrap();
    let from = tests("golden/models/llama_sharded");
    for (i, name) in std::fs::read_dir(&from).unwrap().map(|e| e.unwrap().file_name()).enumerate() {
        std::fs::copy(from.join(&name), repository.join(format!("blobs/{i:040x}"))).unwrap();
        std::os::unix::fs::symlink(format!("../../blobs/{i:040x}"), snapshot.join(&name)).unwrap();
    }
    let model = ModelFolder::open(&snapshot).unwrap();
    let mut norm = [0f32; 64];
    model.read_f32("model.norm.weight", &mut norm).unwrap();
    assert!(model.facts().tokenizer && model.weight_files().len() == 3 && norm[0] != 0.0);
    assert_eq!(tokenizer_files(&snapshot).unwrap().len(), 4);
    let problem = ModelFolder::open(&repository).unwrap_err();
    assert!(problem.remedy.contains("snapshots"), "{problem}");
}

#[test]
fn a_folder_that_cannot_be_written_and_has_an_odd_name_opens() {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;
    let dir = copy("llama");
    let odd = tempfile::tempdir().unwrap();
    for name in [&b"two\nlines \"quoted\" %s {} $HOME"[..], b"\xff\xfe no UTF-8", "模型 ü".as_bytes()] {
        let path = odd.path().join(std::ffi::OsStr::from_bytes(name));
        std::fs::create_dir(&path).unwrap();
        for file in std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap()) {
            std::fs::copy(file.path(), path.join(file.file_name())).unwrap();
        }
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o555)).unwrap();
        let opened = ModelFolder::open(&path).map(|model| model.facts().bytes);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(opened.unwrap(), ModelFolder::open(dir.path()).unwrap().facts().bytes);
    }
}

/// A copy of the sharded model.
fn shards() -> tempfile::TempDir {
    let (dir, from) = (tempfile::tempdir().unwrap(), tests("golden/models/llama_sharded"));
    for name in std::fs::read_dir(&from).unwrap().map(|e| e.unwrap().file_name()) {
        if !name.to_string_lossy().contains("golden") {
            std::fs::copy(from.join(&name), dir.path().join(&name)).unwrap();
        }
    }
    dir
}

#[test]
fn an_index_that_does_not_fit_its_shards_is_refused_with_both_sides() {
    const INDEX: &str = "model.safetensors.index.json";
    const LAST: &str = "model-00003-of-00003.safetensors";
    let tensor = "model.norm.weight";
    let changed = |change: &dyn Fn(&mut Value)| {
        let dir = shards();
        let mut index: Value = serde_json::from_slice(&std::fs::read(dir.path().join(INDEX)).unwrap()).unwrap();
        change(&mut index["weight_map"]);
        std::fs::write(dir.path().join(INDEX), index.to_string()).unwrap();
        ModelFolder::open(dir.path()).unwrap_err()
    };
    let first = "model-00001-of-00003.safetensors";
    let elsewhere = changed(&|map| map[tensor] = json!(if map[tensor] == first { LAST } else { first }));
    assert!(elsewhere.what.contains("but it is in model-0000"), "{elsewhere}");
    let made_up = changed(&|map| map["model.extra"] = json!(first));
    assert!(made_up.what.contains("model.extra is in") && made_up.what.contains("but it is not"), "{made_up}");
    let unnamed = changed(&|map| drop(map.as_object_mut().unwrap().remove(tensor)));
    assert!(unnamed.what.contains("the index does not name it"), "{unnamed}");
    for problem in [&elsewhere, &made_up, &unnamed] {
        assert!(problem.code == Code::TensorMismatch && problem.place.tensor.is_some(), "{problem}");
        assert!(problem.remedy.contains("same save"), "{problem}");
    }
    let missing = changed(&|map| map[tensor] = json!("model-00004-of-00004.safetensors"));
    assert!(missing.code == Code::FileUnreadable && missing.sentence().contains("00004-of-00004"), "{missing}");
    let dir = shards();
    std::fs::copy(dir.path().join(LAST), dir.path().join("model-00004-of-00004.safetensors")).unwrap();
    let stray = ModelFolder::open(dir.path()).unwrap_err();
    assert!(stray.code == Code::TensorMismatch && stray.what.starts_with("model-00004-of-00004"), "{stray}");
    std::fs::rename(dir.path().join("model-00004-of-00004.safetensors"), dir.path().join("my.safetensors")).unwrap();
    assert!(ModelFolder::open(dir.path()).is_ok(), "another file of the user's is none of ours");
}

#[test]
fn a_tokenizer_with_more_entries_than_the_embedding_has_rows_is_refused_with_both_numbers() {
    let opened = |change: &dyn Fn(&mut Value)| {
        let dir = copy("llama");
        let path = dir.path().join("tokenizer.json");
        let mut words: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        change(&mut words);
        std::fs::write(&path, words.to_string()).unwrap();
        ModelFolder::open(dir.path()).map(|_| ())
    };
    let added =
        |words: &mut Value| words["added_tokens"].as_array_mut().unwrap().push(json!({"id": 384, "content": "[PAD]"}));
    let pieces = |words: &mut Value| words["model"]["vocab"] = json!(vec![json!(["a", -1.0]); 385]);
    for change in [&added as &dyn Fn(&mut Value), &pieces, &|w| w["model"]["vocab"]["one more"] = json!(384)] {
        let problem = opened(change).unwrap_err();
        assert_eq!(problem.code, Code::TokenizerInvalid, "{problem}");
        assert!(problem.what.contains("385") && problem.what.contains("384"), "{problem}");
    }
    let smaller = |words: &mut Value| words["model"]["vocab"] = json!({"a": 0});
    opened(&smaller).unwrap();
    let odd = opened(&|words| words["model"]["vocab"] = json!({"a": "b"})).unwrap_err();
    assert_eq!(odd.code, Code::TokenizerInvalid, "{odd}");
}

#[test]
fn a_template_is_found_in_either_place_and_as_a_list() {
    let found = |template: Value| {
        let dir = copy("llama");
        std::fs::write(dir.path().join("tokenizer_config.json"), json!({"chat_template": template}).to_string())
            .unwrap();
        ModelFolder::open(dir.path()).unwrap().facts().chat_template
    };
    assert!(found(json!("{{ messages }}")));
    assert!(found(json!([{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}])));
    assert!(!found(json!([{"name": "tool_use", "template": "t"}])));
    assert!(!found(json!(null)));
    let dir = copy("llama");
    std::fs::write(dir.path().join("tokenizer_config.json"), "{}").unwrap();
    std::fs::write(dir.path().join("chat_template.jinja"), "{{ messages }}").unwrap();
    assert!(ModelFolder::open(dir.path()).unwrap().facts().chat_template);
}

/// C29: "header too large", "metadata incomplete", or an attempt to allocate a huge buffer.
#[test]
fn a_weight_file_that_is_none_is_named_for_what_it_is_at_once() {
    let whole = std::fs::read(tests("golden/models/llama/model.safetensors")).unwrap();
    let pointer = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{:064x}\nsize 4970000000\n", 7);
    let header = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}"#;
    let mut overlapping = (header.len() as u64).to_le_bytes().to_vec();
    overlapping.extend(header.as_bytes());
    overlapping.extend([0; 12]);
    let cut = format!("cut: {} of {} bytes", whole.len() - 1, whole.len());
    let cases: [(&[u8], Code, &[&str]); 6] = [
        (pointer.as_bytes(), Code::FormatUnknown, &["pointer file", "git lfs pull"]),
        (b"", Code::FileEmpty, &["empty (0 bytes)"]),
        (&whole[..7], Code::FileTruncated, &["7 bytes", "too short"]),
        (&[0xff; 64], Code::TooLarge, &["18446744073709551615", "too large"]),
        (&whole[..whole.len() - 1], Code::FileTruncated, &[&cut, "download the file again"]),
        (&overlapping, Code::FileMalformed, &["'b' begins at offset 4", "overlaps"]),
    ];
    for (bytes, code, words) in cases {
        let dir = copy("llama");
        std::fs::write(dir.path().join("model.safetensors"), bytes).unwrap();
        let start = std::time::Instant::now();
        let problem = ModelFolder::open(dir.path()).unwrap_err();
        assert!(start.elapsed().as_secs_f64() < 1.0, "{problem}");
        assert_eq!(problem.code, code, "{problem}");
        let text = problem.sentence();
        words.iter().chain(&["model.safetensors"]).for_each(|w| assert!(text.contains(w), "{w} not in {text}"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_config_with_any_changed_bytes_never_crashes(changes in prop::collection::vec((0usize..700, any::<u8>()), 1..6)) {
        let dir = copy("llama");
        let path = dir.path().join("config.json");
        let mut bytes = std::fs::read(&path).unwrap();
        for (at, value) in changes {
            let n = bytes.len();
            bytes[at % n] = value;
        }
        std::fs::write(&path, bytes).unwrap();
        if let Ok(model) = ModelFolder::open(dir.path()) {
            prop_assert_eq!(model.config().hidden, 64);
        }
    }
}
