//! Parquet and Arrow.

use super::*;
use crate::dataset::stream::Body;
use ::parquet::arrow::ArrowWriter;
use ::parquet::basic::Compression;
use ::parquet::file::properties::WriterProperties;
use arrow_array::builder::*;
use arrow_array::types::Int8Type;
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, DictionaryArray, Float64Array, Int64Array, LargeStringArray, RecordBatch,
    StringArray, StringViewArray,
};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_schema::{DataType, Field, Fields};
use std::sync::Arc;

/// A stream of one column of texts.
pub(super) fn arrow_stream(rows: usize) -> Vec<u8> {
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..rows).map(|i| format!("row {i}"))));
    stream(&[RecordBatch::try_from_iter([("text", texts)]).unwrap()], None)
}

fn stream(batches: &[RecordBatch], packed: Option<CompressionType>) -> Vec<u8> {
    let options = IpcWriteOptions::default().try_with_compression(packed).unwrap();
    let mut writer = StreamWriter::try_new_with_options(Vec::new(), &batches[0].schema(), options).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.into_inner().unwrap()
}

fn file(batches: &[RecordBatch]) -> Vec<u8> {
    let mut writer = FileWriter::try_new(Vec::new(), &batches[0].schema()).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.into_inner().unwrap()
}

fn parquet(batches: &[RecordBatch], packed: Compression) -> Vec<u8> {
    let properties = WriterProperties::builder().set_compression(packed).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batches[0].schema(), Some(properties)).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.into_inner().unwrap()
}

/// Every column that rows have, two rows.
fn all_types() -> RecordBatch {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("text", Arc::new(StringArray::from(vec![Some("a"), None]))),
        ("large", Arc::new(LargeStringArray::from(vec!["b", "c"]))),
        ("view", Arc::new(StringViewArray::from(vec!["d", "a text that is longer than twelve bytes"]))),
        ("word", Arc::new(vec!["x", "x"].into_iter().collect::<DictionaryArray<Int8Type>>())),
        ("bytes", Arc::new(BinaryArray::from(vec!["é".as_bytes(), b"\xff"]))),
        ("n", Arc::new(Int64Array::from(vec![Some(-5), None]))),
        ("x", Arc::new(Float64Array::from(vec![0.5, 1.0]))),
        ("yes", Arc::new(BooleanArray::from(vec![true, false]))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true))).unwrap()
}

/// Two conversations; the second calls another tool with other arguments.
fn conversations() -> RecordBatch {
    let text = |name| Field::new(name, DataType::Utf8, true);
    let arguments = Fields::from(vec![Field::new("x", DataType::Int64, true), text("text")]);
    let call = Fields::from(vec![text("name"), Field::new("arguments", DataType::Struct(arguments.clone()), true)]);
    let message =
        Fields::from(vec![text("role"), text("content"), Field::new("call", DataType::Struct(call.clone()), true)]);
    let mut list = ListBuilder::new(StructBuilder::from_fields(message, 4));
    for (name, x, said) in [("move", Some(3), None), ("speak", None, Some("hi"))] {
        for assistant in [false, true] {
            let turn = list.values();
            turn.field_builder::<StringBuilder>(0).unwrap().append_value(if assistant { "assistant" } else { "user" });
            turn.field_builder::<StringBuilder>(1).unwrap().append_value("words");
            let call = turn.field_builder::<StructBuilder>(2).unwrap();
            call.field_builder::<StringBuilder>(0).unwrap().append_option(assistant.then_some(name));
            let arguments = call.field_builder::<StructBuilder>(1).unwrap();
            arguments.field_builder::<Int64Builder>(0).unwrap().append_option(x.filter(|_| assistant));
            arguments.field_builder::<StringBuilder>(1).unwrap().append_option(said.filter(|_| assistant));
            arguments.append(assistant);
            call.append(assistant);
            turn.append(true);
        }
        list.append(true);
    }
    RecordBatch::try_from_iter([("messages", Arc::new(list.finish()) as ArrayRef)]).unwrap()
}

/// The same rows in each container.
fn containers(batches: &[RecordBatch]) -> Vec<(&'static str, Vec<u8>)> {
    let mut all = vec![
        ("arrow", stream(batches, None)),
        ("arrow", stream(batches, Some(CompressionType::ZSTD))),
        ("arrow", stream(batches, Some(CompressionType::LZ4_FRAME))),
        ("arrow", file(batches)),
    ];
    let zstd = Compression::ZSTD(Default::default());
    for packed in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        zstd,
        Compression::LZ4_RAW,
        Compression::GZIP(Default::default()),
    ] {
        all.push(("parquet", parquet(batches, packed)));
    }
    all
}

fn values(bytes: &[u8]) -> Vec<String> {
    let dropped = Dropped::new("a.any", bytes);
    let path = dropped.dir.path().join("a.any");
    let mut source = Source::open(&path, &sniff::kind(&path, None).unwrap()).unwrap();
    let mut rows = Vec::new();
    while let Some(raw) = source.next().unwrap() {
        match raw.body {
            Ok(Body::Row(row)) => rows.push(serde_json::to_string(&row).unwrap()),
            Ok(_) => panic!("no row"),
            Err(bad) => panic!("{bad:?}"),
        }
    }
    rows
}

#[test]
fn columns_of_every_type_are_the_same_values_in_every_container() {
    for (name, bytes) in containers(&[all_types()]) {
        let rows = values(&bytes);
        let first = r#"{"text":"a","large":"b","view":"d","word":"x","bytes":"é","n":-5,"x":0.5,"yes":true}"#;
        assert_eq!(rows[0], first, "{name}");
        assert!(
            rows[1].starts_with(
                r#"{"text":null,"large":"c","view":"a text that is longer than twelve bytes","word":"x","bytes":"#
            ),
            "{}",
            rows[1]
        );
        let facts = facts("a.any", &bytes).unwrap();
        assert_eq!((facts.container.as_str(), facts.rows, facts.usable_rows), (name, 2, 1));
    }
}

#[test]
fn keys_of_other_rows_do_not_appear_in_tables() {
    for (name, bytes) in containers(&[conversations()]) {
        let records = Dropped::new("a.any", bytes).records();
        let calls: Vec<String> = records
            .iter()
            .map(|record| match record {
                Content::Messages(said) => serde_json::to_string(&said.turns).unwrap(),
                _ => panic!("{name}"),
            })
            .collect();
        let turns = |call: &str| {
            format!(r#"[{{"role":"user","content":"words"}},{{"role":"assistant","content":"words","call":{call}}}]"#)
        };
        assert_eq!(
            calls,
            [turns(r#"{"name":"move","arguments":{"x":3}}"#), turns(r#"{"name":"speak","arguments":{"text":"hi"}}"#)]
        );
    }
}

#[test]
fn many_rows_come_in_their_order_over_groups_and_batches() {
    let batch = |from: usize| {
        let texts = StringArray::from_iter_values((from..from + 3000).map(|i| format!("row {i}")));
        RecordBatch::try_from_iter([("text", Arc::new(texts) as ArrayRef)]).unwrap()
    };
    for (name, bytes) in containers(&[batch(0), batch(3000), batch(6000)]) {
        let texts: Vec<Content> = Dropped::new("a.any", bytes).records();
        assert_eq!(texts.len(), 9000, "{name}");
        assert!(texts.iter().enumerate().all(|(i, text)| *text == Content::Text(format!("row {i}"))), "{name}");
    }
    let control = inspect(&corpus("ok/plain.parquet"), &Options::default()).unwrap();
    assert_eq!((control.rows, control.usable_rows, control.container.as_str()), (500, 500, "parquet"));
}

/// Most memory this process has held, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn a_table_that_unpacks_to_terabytes_is_refused_in_time_and_memory() {
    let (before, start) = (peak(), std::time::Instant::now());
    let problem = inspect(&corpus("D31_bomb.parquet"), &Options::default()).unwrap_err();
    assert_eq!(problem.code, Code::TooLarge);
    let said = problem.sentence();
    assert!(said.contains("bomb.parquet") && said.contains("limit"), "{said}");
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    assert!(peak() - before < 512 << 20, "{} MB more", (peak() - before) >> 20);
    println!("bomb: {:?}, {} MB more", start.elapsed(), (peak() - before) >> 20);
}

#[test]
fn a_table_that_does_not_tell_its_size_is_refused_while_it_is_read() {
    // One text of 8 MB, 400 times, written once.
    let long = "long ".repeat(8 << 20 >> 2);
    let keys = arrow_array::Int32Array::from(vec![0; 100]);
    let column = DictionaryArray::new(keys, Arc::new(StringArray::from(vec![long.as_str()])));
    let batch = RecordBatch::try_from_iter([("text", Arc::new(column) as ArrayRef)]).unwrap();
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(Default::default()))
        .set_statistics_enabled(::parquet::file::properties::EnabledStatistics::None)
        .set_dictionary_page_size_limit(64 << 20)
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    (0..4).for_each(|_| writer.write(&batch).unwrap());
    let dropped = Dropped::new("a.parquet", writer.into_inner().unwrap());
    let before = peak();
    let mut records = read(&[dropped.dir.path().to_owned()], &Options::default()).unwrap();
    let last = records.by_ref().find_map(Result::err).unwrap();
    assert!(last.code == Code::TooLarge && last.sentence().contains("a.parquet"), "{last}");
    assert!(records.row > 100 && records.next().is_none());
    assert!(peak() - before < 512 << 20, "{} MB more", (peak() - before) >> 20);
}

#[test]
fn packed_zeros_in_a_batch_are_refused_before_they_are_unpacked() {
    let zeros = Int64Array::from(vec![0; limits::BATCH_BYTES as usize / 8 + 1]);
    let batch = RecordBatch::try_from_iter([("n", Arc::new(zeros) as ArrayRef)]).unwrap();
    let bytes = stream(&[batch], Some(CompressionType::ZSTD));
    assert!(bytes.len() < 1 << 20);
    assert_eq!(facts("a.arrow", bytes).unwrap_err().code, Code::TooLarge);
}

#[test]
fn a_cut_table_says_that_it_is_cut() {
    for (name, bytes) in containers(&[all_types()]) {
        for keep in [bytes.len() - 9, bytes.len() / 2, 100] {
            let Err(problem) = facts("a.any", &bytes[..keep]) else { continue };
            let expected = [Code::FileTruncated, Code::FileMalformed, Code::FileEmpty];
            assert!(expected.contains(&problem.code), "{name} {keep}: {problem}");
            assert!(problem.place.file.is_some(), "{problem}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_damage_to_a_table_ends_in_rows_or_a_refusal(which in 0usize..9, talk in any::<bool>(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), cut in prop::option::of(any::<prop::sample::Index>())) {
        let batch = if talk { conversations() } else { all_types() };
        let mut bytes = containers(&[batch]).swap_remove(which).1;
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()) + 1);
        }
        let _ = facts("a.any", bytes);
    }

    #[test]
    fn any_bytes_after_a_magic_number_end_in_a_refusal(magic in prop::sample::select(vec![&b"PAR1"[..], b"ARROW1\0\0", b"\xff\xff\xff\xff\x10\0\0\0"]), bytes in prop::collection::vec(any::<u8>(), 0..300), ended in any::<bool>()) {
        let mut file = [magic, &bytes].concat();
        if ended {
            file.extend([magic, &[20, 0, 0, 0], &magic[..magic.len().min(6)]].concat());
        }
        prop_assert!(facts("a.any", file).is_err());
    }
}
