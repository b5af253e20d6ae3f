//! Exports of the golden toy model and its adapter.

use super::main;
use crate::verb::Lines;
use crate::verb::testing::{golden, problem_of};
use formats::model_folder::ModelFolder;
use protocol::verb::{Export, Exported};
use protocol::{Code, Outcome};
use std::path::{Path, PathBuf};

fn export(from: PathBuf, to: &Path, format: &str, dtype: &str, base: Option<PathBuf>) -> Outcome<Exported> {
    let request = Export { from, to: to.to_path_buf(), format: format.into(), dtype: dtype.into(), base };
    main(request, &mut Lines::new(Vec::new()))
}

fn adapter() -> PathBuf {
    golden("train/lora/adapter_final")
}

fn llama() -> PathBuf {
    golden("models/llama")
}

#[test]
fn a_merged_adapter_answers_as_the_adapter_over_its_base() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("merged");
    let exported = export(adapter(), &to, "safetensors", "f32", Some(llama())).unwrap();
    assert!(exported.max_logit_difference < 1e-4, "{}", exported.max_logit_difference);
    assert!(exported.files.iter().all(|file| file.is_file()));
    let (merged, base) = (ModelFolder::open(&to).unwrap(), ModelFolder::open(&llama()).unwrap());
    assert_eq!(merged.config(), base.config());
    let values = |folder: &ModelFolder, name: &str, len: usize| {
        let mut values = vec![0.0; len];
        folder.read_f32(name, &mut values).unwrap();
        values
    };
    let tensors = base.config().tensors();
    let differs: Vec<bool> = tensors
        .iter()
        .map(|t| values(&merged, &t.name, t.elements() as usize) != values(&base, &t.name, t.elements() as usize))
        .collect();
    let projections = tensors.iter().map(|t| t.name.contains("_proj"));
    assert_eq!(differs, projections.collect::<Vec<_>>(), "exactly the projections change");
}

#[test]
fn a_model_in_f32_is_written_bit_for_bit_and_in_bf16_within_its_precision() {
    let folder = tempfile::tempdir().unwrap();
    let exact = export(llama(), &folder.path().join("a"), "safetensors", "f32", None).unwrap();
    assert_eq!(exact.max_logit_difference, 0.0);
    let rounded = export(llama(), &folder.path().join("b"), "safetensors", "bf16", None).unwrap();
    assert!((1e-6..0.5).contains(&rounded.max_logit_difference), "{}", rounded.max_logit_difference);
    let config = std::fs::read_to_string(folder.path().join("b/config.json")).unwrap();
    assert!(config.contains("bfloat16"), "{config}");
}

/// Exported folders say the same as their models: biases and stretched positions go with them.
#[test]
fn a_model_with_biases_or_stretched_positions_is_written_with_both() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["llama_bias", "llama_rope_yarn", "llama_rope_linear", "llama31_v5"] {
        let from = golden(&format!("models/{name}"));
        let exported = export(from.clone(), &folder.path().join(name), "safetensors", "f32", None).unwrap();
        assert_eq!(exported.max_logit_difference, 0.0, "{name}");
        let (to, from) = (ModelFolder::open(&folder.path().join(name)).unwrap(), ModelFolder::open(&from).unwrap());
        assert_eq!(to.config(), from.config());
    }
}

#[test]
fn an_adapter_export_is_the_adapter_and_knows_its_base() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("adapter");
    let exported = export(adapter(), &to, "adapter", "f32", Some(llama())).unwrap();
    assert_eq!(exported.max_logit_difference, 0.0);
    // From now on the base is found without being named.
    let merged = export(to, &folder.path().join("merged"), "safetensors", "f32", None).unwrap();
    assert!(merged.max_logit_difference < 1e-4);
}

#[test]
fn a_gguf_file_answers_as_the_model_and_says_what_rounding_costs() {
    let folder = tempfile::tempdir().unwrap();
    for (dtype, least, most) in [("f32", 0.0, 0.0), ("f16", 1e-6, 0.02), ("bf16", 1e-6, 0.5), ("q8_0", 1e-6, 0.5)] {
        let to = folder.path().join(dtype);
        let exported = export(llama(), &to, "gguf", dtype, None).unwrap();
        assert_eq!(exported.files, [to.join("model.gguf")]);
        let found = exported.max_logit_difference;
        assert!((least..=most).contains(&found), "{dtype}: {found}");
        println!("{dtype}: logits differ by at most {found}");
    }
}

/// Greedy ids as llama.cpp writes them: prompt ids come in as JSON after the model, ids go out as JSON.
const LLAMA_CPP: &str = "
import json, sys
from llama_cpp import Llama
model = Llama(model_path=sys.argv[1], n_ctx=64, verbose=False, seed=0, n_threads=1)
out = []
for token in model.generate(json.loads(sys.argv[2]), temp=0.0, top_k=1, repeat_penalty=1.0):
    out.append(token)
    if len(out) == 16: break
print(json.dumps(out))
";

#[test]
fn llama_cpp_writes_what_the_reference_writes() {
    let python = |arguments: &[&str]| std::process::Command::new("python3").args(arguments).output();
    if !python(&["-c", "import llama_cpp"]).is_ok_and(|output| output.status.success()) {
        return println!("skipped: llama-cpp-python is not installed");
    }
    let reference = crate::testing::Golden::open("models/llama/golden.safetensors");
    let (prompt, expected) = (reference.i64("gen.prompt"), reference.i64("gen.output"));
    let folder = tempfile::tempdir().unwrap();
    for dtype in ["f32", "f16", "bf16", "q8_0"] {
        let to = folder.path().join(dtype);
        let file = export(llama(), &to, "gguf", dtype, None).unwrap().files.remove(0);
        let output = python(&["-c", LLAMA_CPP, file.to_str().unwrap(), &format!("{prompt:?}")]).unwrap();
        assert!(output.status.success(), "{dtype}: {}", String::from_utf8_lossy(&output.stderr));
        let written: Vec<i64> = serde_json::from_slice(&output.stdout).unwrap();
        let same = written.iter().zip(&expected[prompt.len()..]).take_while(|(a, b)| a == b).count();
        println!("{dtype}: llama.cpp agrees on the first {same} of 16 tokens");
        if dtype == "f32" {
            assert_eq!(written, expected[prompt.len()..], "{dtype}");
        }
    }
}

#[test]
fn an_adapter_over_a_gguf_base_is_merged_dequantised_and_names_its_base() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("base");
    export(llama(), &base, "gguf", "q8_0", None).unwrap();
    let file = base.join("model.gguf");
    let over = folder.path().join("adapter");
    export(adapter(), &over, "adapter", "f32", Some(file.clone())).unwrap();
    let config = std::fs::read_to_string(over.join("adapter_config.json")).unwrap();
    assert!(config.contains("base/model.gguf"), "{config}");
    assert!(over.join("tokenizer.json").is_file(), "words come with the adapter");
    let merged = folder.path().join("merged");
    let exported = export(over.clone(), &merged, "safetensors", "f32", None).unwrap();
    assert!(exported.max_logit_difference < 1e-4, "{}", exported.max_logit_difference);
    assert_eq!(ModelFolder::open(&merged).unwrap().facts().dtype, "F32");
    let again = export(over, &folder.path().join("again"), "gguf", "f32", None).unwrap();
    assert!(again.max_logit_difference < 1e-4, "{}", again.max_logit_difference);
    std::fs::remove_file(file).unwrap();
    let problem =
        problem_of(export(folder.path().join("adapter"), &folder.path().join("y"), "safetensors", "f32", None));
    assert!(problem.code == Code::NotFound && problem.what.contains("model.gguf"), "{problem}");
}

#[test]
fn a_missing_base_is_refused_by_name_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let problem = problem_of(export(adapter(), &folder.path().join("x"), "safetensors", "f32", None));
    assert_eq!(problem.code, Code::NotFound);
    assert!(problem.what.contains("models/llama"), "{problem}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_folder_in_use_is_not_written_over_and_an_empty_one_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("taken");
    std::fs::create_dir(&taken).unwrap();
    std::fs::write(taken.join("mine"), "x").unwrap();
    let problem = problem_of(export(llama(), &taken, "safetensors", "f32", None));
    assert_eq!(problem.code, Code::WrongState);
    assert_eq!(std::fs::read_to_string(taken.join("mine")).unwrap(), "x");
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    assert!(export(llama(), &empty, "safetensors", "f32", None).is_ok());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "a draft was left");
}

#[test]
fn unknown_formats_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("x");
    let code = |format, dtype| problem_of(export(llama(), &to, format, dtype, None)).code;
    assert_eq!(code("pickle", "f32"), Code::SettingInvalid);
    assert_eq!(code("safetensors", "q4"), Code::SettingInvalid);
    assert_eq!(code("safetensors", "q8_0"), Code::SettingInvalid);
    assert_eq!(code("gguf", "q4_k"), Code::SettingInvalid);
    assert_eq!(code("adapter", "f32"), Code::WrongState);
}

#[test]
fn another_model_in_the_place_of_a_checkpoints_base_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = folder.path().join("step-00000001");
    export(adapter(), &checkpoint, "adapter", "f32", Some(llama())).unwrap();
    let state = |fingerprint: &str| {
        let state = serde_json::json!({
            "version": 1, "step": 1, "updates": 1, "skipped": 0, "skipped_in_a_row": 0, "cursor": 1, "tokens": 9,
            "model_fingerprint": fingerprint, "best": null, "unacknowledged": [],
        });
        std::fs::write(checkpoint.join("state.json"), state.to_string()).unwrap();
    };
    let files = ModelFolder::open(&llama()).unwrap().weight_files();
    state(&formats::fingerprint::files(&files).unwrap());
    assert!(export(checkpoint.clone(), &folder.path().join("a"), "safetensors", "f32", None).is_ok());
    state("another");
    let problem = problem_of(export(checkpoint.clone(), &folder.path().join("b"), "safetensors", "f32", None));
    assert_eq!(problem.code, Code::ModelChanged);
    assert!(problem.what.contains("llama"), "{problem}");
}
