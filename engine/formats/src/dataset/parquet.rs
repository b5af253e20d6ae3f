//! Parquet files as batches of rows. Texts stay in their pages, each once, until a row is made of them; what a page
//! unpacks to is checked before the reader sees it.
//!
//! Not here: rows (`columns`).

use super::columns::{Batches, allowed, guarded, readable, too_large};
use super::thrift::Compact;
use crate::folder;
use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use protocol::{Code, Outcome, Problem, limits};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows of a batch: their positions alone are held beside the pages.
const ROWS: usize = 256;
/// Deepest nesting of columns: two levels for each of a list.
const DEPTH: usize = 64;

pub(super) const MAGIC: &[u8] = b"PAR1";

/// A file that is being read.
pub(super) struct Parquet {
    reader: ParquetRecordBatchReader,
    rows: u64,
    read: u64,
    length: u64,
    path: PathBuf,
}

impl Parquet {
    /// Opens a file. Errors: `FileTruncated`, `FileMalformed`, `TooLarge` for what unpacks to more than is read,
    /// `NotSupported` for columns of other types.
    pub fn open(path: &Path) -> Outcome<Parquet> {
        let file = folder::open(path)?;
        let length = folder::length(&file, path)?;
        check_footer(&file, length, path)?;
        let options = || ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let plain = guarded("opening", path, || ArrowReaderMetadata::load(&file, options()))?;
        readable(plain.schema(), path)?;
        check_size(plain.metadata(), length).map_err(|p| p.file(path))?;
        for group in plain.metadata().row_groups() {
            for column in group.columns() {
                check_pages(&file, column, length, path)?;
            }
        }
        let rows = plain.metadata().file_metadata().num_rows().max(0) as u64;
        let reader = guarded("opening", path, || {
            let schema = Arc::new(Schema::new(viewed(plain.schema().fields())));
            let metadata = ArrowReaderMetadata::try_new(plain.metadata().clone(), options().with_schema(schema))?;
            ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata).with_batch_size(ROWS).build()
        })?;
        Ok(Parquet { reader, rows, read: 0, length, path: path.to_owned() })
    }
}

impl Batches for Parquet {
    fn next(&mut self) -> Outcome<Option<RecordBatch>> {
        let batch = guarded("reading", &self.path, || self.reader.next().transpose())?;
        self.read += batch.as_ref().map_or(0, |batch| batch.num_rows() as u64);
        Ok(batch)
    }

    fn position(&self) -> u64 {
        let share = u128::from(self.length) * u128::from(self.read.min(self.rows)) / u128::from(self.rows.max(1));
        share as u64
    }
}

/// The same columns with texts as views into their pages.
fn viewed(fields: &Fields) -> Fields {
    let one = |field: &FieldRef| {
        Arc::new(Field::clone(field).with_data_type(match field.data_type() {
            DataType::Utf8 => DataType::Utf8View,
            DataType::Binary => DataType::BinaryView,
            DataType::Struct(inner) => DataType::Struct(viewed(inner)),
            DataType::List(inner) => DataType::List(viewed(&Fields::from(vec![inner.clone()]))[0].clone()),
            DataType::Map(inner, sorted) => {
                DataType::Map(viewed(&Fields::from(vec![inner.clone()]))[0].clone(), *sorted)
            }
            other => other.clone(),
        }))
    };
    fields.iter().map(one).collect()
}

fn cut(path: &Path, what: &str) -> Problem {
    Problem::new(Code::FileTruncated, format!("the Parquet file is cut: {what}"))
        .file(path)
        .remedy("export or download the file again")
}

fn malformed(path: &Path, why: &str) -> Problem {
    Problem::new(Code::FileMalformed, "the Parquet file does not follow its format")
        .why(why)
        .file(path)
        .remedy("export or download the file again")
}

/// The footer ends the file: itself, its length, the magic number.
fn check_footer(mut file: &File, length: u64, path: &Path) -> Outcome<()> {
    let failed = |e: std::io::Error| Problem::io(&e, "reading the data", path);
    let mut end = [0; 8];
    if length < 12 {
        return Err(cut(path, "it ends before its footer"));
    }
    file.seek(SeekFrom::Start(length - 8)).and_then(|_| file.read_exact(&mut end)).map_err(failed)?;
    let footer = u64::from(u32::from_le_bytes([end[0], end[1], end[2], end[3]]));
    match &end[4..] {
        b"PAR1" => {}
        b"PARE" => return Err(Problem::new(Code::NotSupported, "encrypted Parquet files are not read").file(path)),
        _ => return Err(cut(path, "its footer is missing")),
    }
    if footer > length - 12 {
        return Err(malformed(path, "its footer is longer than the file"));
    }
    if footer > limits::TABLE_FOOTER_BYTES {
        let what = format!("the footer of the Parquet file is too large: {footer} bytes");
        return Err(Problem::new(Code::TooLarge, what).file(path));
    }
    file.seek(SeekFrom::Start(length - 8 - footer)).map_err(failed)?;
    Compact::new(BufReader::new(file), footer).footer(DEPTH).map_err(|why| malformed(path, why))
}

/// Holds what the footer says of the decoded size against the limit, before anything is decoded.
fn check_size(metadata: &ParquetMetaData, length: u64) -> Outcome<()> {
    let columns = metadata.row_groups().iter().flat_map(|group| group.columns());
    let known = columns.filter_map(ColumnChunkMetaData::unencoded_byte_array_data_bytes);
    let bytes = known.fold(0u64, |sum, bytes| sum.saturating_add(bytes.max(0) as u64));
    match bytes > allowed(length) {
        true => Err(too_large(allowed(length)).why(format!("its texts have {} MB", bytes >> 20))),
        false => Ok(()),
    }
}

/// Walks over the headers of a column's pages.
fn check_pages(file: &File, column: &ColumnChunkMetaData, length: u64, path: &Path) -> Outcome<()> {
    let (start, bytes) = guarded("opening", path, || Ok::<_, String>(column.byte_range()))?;
    let end = start.checked_add(bytes).filter(|end| *end <= length);
    let Some(end) = end else { return Err(cut(path, "a column lies behind its end")) };
    let repeats = column.column_descr().max_rep_level() > 0;
    let (mut at, mut values) = (start, 0u64);
    let mut reader = BufReader::with_capacity(4096, file);
    reader.seek(SeekFrom::Start(at)).map_err(|e| Problem::io(&e, "reading the data", path))?;
    while at < end && values < column.num_values().max(0) as u64 {
        let page = Compact::new(&mut reader, end - at).page().map_err(|why| malformed(path, why))?;
        let packed = u64::try_from(page.packed).ok().filter(|n| *n <= end - at - page.header);
        let Some(packed) = packed else { return Err(malformed(path, "a page is longer than its column")) };
        if page.unpacked < 0 || page.values < 0 {
            return Err(malformed(path, "a page has a size below zero"));
        }
        values += page.values as u64;
        if page.unpacked as u64 > limits::BATCH_BYTES || (repeats && values > limits::LEVELS) {
            let name = column.column_path().string().escape_debug().to_string();
            let what = format!("the column \"{name}\" is too large: a page of it is over the limit when it is decoded");
            let why = format!(
                "at most {} MB a page and {} entries a group of rows are read",
                limits::BATCH_BYTES >> 20,
                limits::LEVELS
            );
            return Err(Problem::new(Code::TooLarge, what)
                .why(why)
                .file(path)
                .remedy("export it in smaller groups of rows"));
        }
        at += page.header + packed;
        reader.seek_relative(packed as i64).map_err(|e| Problem::io(&e, "reading the data", path))?;
    }
    Ok(())
}
