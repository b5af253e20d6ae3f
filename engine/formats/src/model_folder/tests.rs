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
    ] {
        let facts = ModelFolder::open(&tests("golden/models").join(name)).unwrap().facts();
        assert_eq!((facts.dtype.as_str(), facts.tied, facts.hidden), (dtype, tied, 64), "{name}");
        assert!(facts.tokenizer && facts.chat_template);
        assert_eq!(facts.config.eos, [2]);
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
        ("rope_scaling", json!({"type": "linear", "factor": 8.0})),
        ("rope_scaling", json!({"rope_type": "llama3", "factor": 8.0})),
        ("rope_scaling", json!({"type": "dynamic"})),
        ("rope_scaling", json!({"factor": 2.0})),
        ("rope_parameters", json!({"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0})),
        ("attention_bias", json!(true)),
        ("mlp_bias", json!(true)),
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
    let from = tests("golden/models/llama");
    let model = ModelFolder::open(&from).unwrap();
    let dir = copy("llama");
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
