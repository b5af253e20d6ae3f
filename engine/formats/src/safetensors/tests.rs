//! Weight files, sound and damaged, against the reference implementation.

use super::*;
use proptest::prelude::*;
use std::io::Write as _;

fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(path)
}

fn corpus(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/hostile").join(path)
}

fn open_bytes(bytes: &[u8]) -> Outcome<File> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    File::open(file.path())
}

fn small() -> Vec<u8> {
    let specs = [("b", Dtype::F32, vec![2, 3]), ("a", Dtype::BF16, vec![4]), ("c", Dtype::F16, vec![])];
    let specs: Vec<TensorSpec> =
        specs.map(|(n, dtype, shape)| TensorSpec { name: n.into(), dtype, shape }).into_iter().collect();
    let mut bytes = Vec::new();
    let mut values = |i: usize| Ok((0..specs[i].elements()).map(|x| x as f32 - 0.5).collect());
    write(&mut bytes, Path::new("x"), &specs, &mut values).unwrap();
    bytes
}

#[test]
fn every_damaged_file_is_refused_as_the_reference_does() {
    let index = std::fs::read(golden("bad/safetensors/INDEX.json")).unwrap();
    let index: serde_json::Value = serde_json::from_slice(&index).unwrap();
    let cases = index["cases"].as_object().unwrap();
    assert_eq!(cases.len(), 18);
    for (name, case) in cases {
        let accepted = case["reference_python_safetensors"].as_str().unwrap().starts_with("accepted");
        let ours = File::open(&golden(&format!("bad/safetensors/{name}.safetensors")));
        assert_eq!(ours.is_ok(), accepted, "{name}: {ours:?}");
    }
}

#[test]
fn damaged_model_files_are_refused_with_their_cause() {
    let cases = [
        ("D01_st_empty_file", "0 bytes"),
        ("D02_st_header_past_eof", "4096"),
        ("D03_st_header_len_max", "too large"),
        ("D04_st_overlap", "overlaps"),
        ("D05_st_unknown_dtype", "F33"),
        ("D06_st_shape_vs_bytes", "64"),
        ("D07_st_shape_overflow", "overflow"),
        ("D08_st_duplicate_tensor", "twice"),
        ("D09_st_cut_download", "cut: "),
    ];
    for (folder, word) in cases {
        let problem = File::open(&corpus(&format!("{folder}/model.safetensors"))).unwrap_err();
        let text = problem.sentence();
        assert!(text.contains(word) && text.contains("model.safetensors"), "{folder}: {text}");
    }
}

#[test]
fn unusual_but_valid_files_are_read() {
    for name in ["unordered_header", "empty_and_scalar"] {
        let path = corpus(&format!("ok/{name}.safetensors"));
        let ours = File::open(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let reference = ::safetensors::SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(ours.tensors().count(), reference.len());
    }
}

#[test]
fn pointer_files_and_pickles_are_called_by_their_name() {
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n";
    assert!(open_bytes(pointer).unwrap_err().sentence().contains("git lfs pull"));
    assert_eq!(open_bytes(b"\x80\x02}q\x00.").unwrap_err().code, Code::CodeInFile);
    assert_eq!(open_bytes(b"PK\x03\x04aaaaaaaaa").unwrap_err().code, Code::CodeInFile);
}

#[test]
fn what_is_written_is_read_by_the_reference_and_by_us() {
    let bytes = small();
    let reference = ::safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(reference.tensor("b").unwrap().shape(), [2, 3]);
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(header % 8, 0);
    let ours = open_bytes(&bytes).unwrap();
    assert_eq!(ours.metadata()["format"], "pt");
    assert_eq!(ours.tensors().map(|t| t.spec.name.clone()).collect::<Vec<_>>(), ["b", "a", "c"]);
    let mut values = [0f32; 6];
    ours.tensor("b").unwrap().read_f32(&mut values).unwrap();
    assert_eq!(values, [-0.5, 0.5, 1.5, 2.5, 3.5, 4.5]);
    let mut values = [0f32; 4];
    ours.tensor("a").unwrap().read_f32(&mut values).unwrap();
    assert_eq!(values, [-0.5, 0.5, 1.5, 2.5]);
    let mut scalar = [0f32; 1];
    ours.tensor("c").unwrap().read_f32(&mut scalar).unwrap();
    assert_eq!(scalar, [-0.5]);
    assert!(ours.tensor("b").unwrap().read_f32(&mut scalar).is_err());
}

#[test]
fn the_hash_of_a_write_is_the_hash_of_the_file() {
    let specs = [TensorSpec { name: "w".into(), dtype: Dtype::F32, shape: vec![3] }];
    let mut bytes = Vec::new();
    let written = write(&mut bytes, Path::new("x"), &specs, &mut |_| Ok(vec![1.0, 2.0, 3.0])).unwrap();
    assert_eq!((written.bytes, written.xxh3), (bytes.len() as u64, crate::fingerprint::bytes(&bytes)));
}

#[test]
fn tensors_longer_than_a_chunk_arrive_whole() {
    let n = CHUNK / 4 * 2 + 3;
    let specs = [TensorSpec { name: "w".into(), dtype: Dtype::F32, shape: vec![n as u64] }];
    let mut bytes = Vec::new();
    write(&mut bytes, Path::new("x"), &specs, &mut |_| Ok((0..n).map(|i| i as f32).collect())).unwrap();
    let file = open_bytes(&bytes).unwrap();
    let mut out = vec![0f32; n];
    file.tensor("w").unwrap().read_f32(&mut out).unwrap();
    assert!(out.iter().enumerate().all(|(i, v)| *v == i as f32));
}

#[test]
fn a_file_cut_while_open_is_an_error_and_no_signal() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&small()).unwrap();
    let ours = File::open(file.path()).unwrap();
    file.as_file().set_len(10).unwrap();
    let problem = ours.tensor("b").unwrap().read_f32(&mut [0.0; 6]).unwrap_err();
    assert_eq!(problem.code, Code::FileTruncated);
}

/// Our verdict and the reference's, and the bytes both see. Naming a tensor twice is the one difference on purpose.
fn same_verdict(bytes: &[u8]) {
    let reference = ::safetensors::SafeTensors::deserialize(bytes);
    match (open_bytes(bytes), reference) {
        (Ok(ours), Ok(theirs)) => {
            for view in ours.tensors() {
                let other = theirs.tensor(&view.spec.name).unwrap();
                let shape: Vec<u64> = other.shape().iter().map(|d| *d as u64).collect();
                assert_eq!(view.spec.shape, shape);
                assert_eq!(view.bytes(), other.data().len() as u64);
                assert_eq!(&bytes[view.offset as usize..][..view.bytes as usize], other.data());
            }
            assert_eq!(ours.tensors().count(), theirs.len());
        }
        (Err(ours), Ok(_)) => assert!(ours.why.contains("twice"), "refused by us alone: {ours}"),
        (Ok(_), Err(theirs)) => panic!("accepted by us alone: {theirs}"),
        (Err(_), Err(_)) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_files_get_the_verdict_of_the_reference(changes in prop::collection::vec((0usize..400, any::<u8>()), 1..4)) {
        let mut bytes = small();
        for (at, value) in changes {
            let n = bytes.len();
            bytes[at % n] = value;
        }
        same_verdict(&bytes);
    }

    #[test]
    fn odd_headers_get_the_verdict_of_the_reference(
        tensors in prop::collection::vec((0usize..3, 0usize..5, prop::collection::vec(0u64..5, 0..3), 0u64..40, 0u64..40), 0..4),
        tail in 0usize..40,
    ) {
        let dtypes = ["F32", "BF16", "F4", "F6_E2M3", "X9"];
        let entries: Vec<String> = tensors.iter().map(|(name, dtype, shape, begin, end)| {
            format!("\"t{name}\":{{\"dtype\":\"{}\",\"shape\":{shape:?},\"data_offsets\":[{begin},{end}]}}", dtypes[*dtype])
        }).collect();
        let header = format!("{{{}}}", entries.join(","));
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend(vec![0u8; tail]);
        same_verdict(&bytes);
    }

    #[test]
    fn any_bytes_are_refused_without_a_crash(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        same_verdict(&bytes);
    }
}
