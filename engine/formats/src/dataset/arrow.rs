//! Arrow IPC files and streams, as `datasets` saves them, as batches of rows. Each message is checked before the reader
//! sees it: its length against the file's, what it unpacks to against the limit.
//!
//! Not here: rows (`columns`).

use super::columns::{Batches, guarded, readable};
use crate::folder;
use arrow_array::RecordBatch;
use arrow_buffer::Buffer as Bytes;
use arrow_ipc::MessageHeader;
use arrow_ipc::reader::StreamDecoder;
use protocol::{Code, Outcome, Problem, limits};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Begins and ends a file; a stream has none.
pub(super) const MAGIC: &[u8] = b"ARROW1";
/// Begins a message.
pub(super) const CONTINUED: [u8; 4] = [0xff; 4];
/// Ends a stream: a message of no length.
const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// A file that is being read.
pub(super) struct Arrow {
    reader: BufReader<File>,
    decoder: StreamDecoder,
    pending: Bytes,
    at: u64,
    end: u64,
    done: bool,
    checked: bool,
    dictionaries: u64,
    path: PathBuf,
}

/// What a message's description says of its body.
struct Told {
    /// Bytes.
    body: u64,
    is_dictionary: bool,
    /// Where its packed parts begin.
    packed: Vec<i64>,
}

impl Arrow {
    /// Opens a file or stream. Errors: `FileTruncated` for a file without its end.
    pub fn open(path: &Path) -> Outcome<Arrow> {
        let file = folder::open(path)?;
        let length = folder::length(&file, path)?;
        let mut reader = BufReader::new(file);
        let (at, end) = bounds(&mut reader, length, path)?;
        let (decoder, pending) = (StreamDecoder::new(), Bytes::from(&[]));
        let path = path.to_owned();
        Ok(Arrow { reader, decoder, pending, at, end, done: false, checked: false, dictionaries: 0, path })
    }

    /// The next message with its frame; the end of the stream where there is none.
    fn message(&mut self) -> Outcome<Vec<u8>> {
        if self.at == self.end {
            self.done = true;
            return Ok(END.to_vec());
        }
        let mut frame = self.read(4, Vec::new())?;
        if frame == CONTINUED {
            frame = self.read(4, frame)?;
        }
        let mut size = [0; 4];
        size.copy_from_slice(&frame[frame.len() - 4..]);
        let size = u64::from(u32::from_le_bytes(size));
        if size == 0 {
            self.done = true;
            return Ok(END.to_vec());
        }
        if size > limits::TABLE_FOOTER_BYTES {
            return Err(self.malformed("a message's description is longer than any"));
        }
        let start = frame.len();
        let bytes = self.read(size, frame)?;
        let told = self.told(&bytes[start..])?;
        let start = bytes.len();
        let bytes = self.read(told.body, bytes)?;
        let unpacked = unpacked(&bytes[start..], &told.packed).unwrap_or(told.body);
        if told.is_dictionary {
            self.dictionaries = self.dictionaries.saturating_add(unpacked.max(told.body));
        }
        if unpacked > limits::BATCH_BYTES || self.dictionaries > limits::BATCH_BYTES {
            return Err(self.too_large());
        }
        Ok(bytes)
    }

    /// What a message's description says of its body, checked against the file and the limits.
    fn told(&self, description: &[u8]) -> Outcome<Told> {
        let message = arrow_ipc::root_as_message(description).map_err(|e| self.malformed(&e.to_string()))?;
        let body = u64::try_from(message.bodyLength()).unwrap_or(u64::MAX);
        if body > self.end - self.at {
            return Err(self.cut());
        }
        if body > limits::BATCH_BYTES {
            return Err(self.too_large());
        }
        let is_dictionary = message.header_type() == MessageHeader::DictionaryBatch;
        let parts = match is_dictionary {
            true => message.header_as_dictionary_batch().and_then(|d| d.data()),
            false => message.header_as_record_batch(),
        };
        let buffers: Vec<_> = parts.and_then(|p| p.buffers()).iter().flatten().collect();
        let inside = |b: &&arrow_ipc::Buffer| {
            let (offset, length) = (u64::try_from(b.offset()).ok(), u64::try_from(b.length()).ok());
            offset.zip(length).and_then(|(o, l)| o.checked_add(l)).is_some_and(|end| end <= body)
        };
        if !buffers.iter().all(inside) {
            return Err(self.malformed("a part of a message lies outside of it"));
        }
        let is_packed = parts.is_some_and(|parts| parts.compression().is_some());
        let packed = buffers.iter().filter(|b| is_packed && b.length() > 0).map(|b| b.offset()).collect();
        Ok(Told { body, is_dictionary, packed })
    }

    /// Adds the next `n` bytes to `to`, none of them beyond the end.
    fn read(&mut self, n: u64, mut to: Vec<u8>) -> Outcome<Vec<u8>> {
        if n > self.end - self.at {
            return Err(self.cut());
        }
        let read = self.reader.by_ref().take(n).read_to_end(&mut to);
        self.at += n;
        match read {
            Ok(read) if read as u64 == n => Ok(to),
            Ok(_) => Err(self.cut()),
            Err(e) => Err(Problem::io(&e, "reading the data", &self.path)),
        }
    }

    fn cut(&self) -> Problem {
        let what = "the Arrow file is cut: it ends within a message";
        Problem::new(Code::FileTruncated, what).file(&self.path).remedy("export or download the file again")
    }

    fn malformed(&self, why: &str) -> Problem {
        Problem::new(Code::FileMalformed, "the Arrow file does not follow its format")
            .why(why.escape_debug().to_string().chars().take(300).collect::<String>())
            .file(&self.path)
            .remedy("export or download the file again")
    }

    fn too_large(&self) -> Problem {
        let what =
            format!("a batch of the Arrow file is too large: the limit is {} MB decoded", limits::BATCH_BYTES >> 20);
        Problem::new(Code::TooLarge, what).file(&self.path).remedy("export it in smaller batches, as of 1000 rows")
    }
}

impl Batches for Arrow {
    fn next(&mut self) -> Outcome<Option<RecordBatch>> {
        loop {
            if self.pending.is_empty() {
                if self.done {
                    return Ok(None);
                }
                self.pending = self.message()?.into();
            }
            let (decoder, pending) = (&mut self.decoder, &mut self.pending);
            let batch = guarded("reading", &self.path, || decoder.decode(pending))?;
            if let Some(schema) = self.decoder.schema().filter(|_| !self.checked) {
                readable(&schema, &self.path)?;
                self.checked = true;
            }
            if batch.is_some() {
                return Ok(batch);
            }
        }
    }

    fn position(&self) -> u64 {
        self.at
    }
}

/// Where messages begin and end. A file ends with a footer, its length and the magic number; the footer repeats what the
/// messages say.
fn bounds(reader: &mut BufReader<File>, length: u64, path: &Path) -> Outcome<(u64, u64)> {
    let failed = |e: std::io::Error| Problem::io(&e, "reading the data", path);
    let mut start = [0; 6];
    if reader.read_exact(&mut start).is_err() || start != *MAGIC {
        reader.seek(SeekFrom::Start(0)).map_err(failed)?;
        return Ok((0, length));
    }
    let mut end = [0; 10];
    let cut = || {
        Problem::new(Code::FileTruncated, "the Arrow file is cut: its footer is missing")
            .file(path)
            .remedy("export or download the file again")
    };
    if length < 8 + 10 {
        return Err(cut());
    }
    reader.seek(SeekFrom::Start(length - 10)).map_err(failed)?;
    reader.read_exact(&mut end).map_err(failed)?;
    let footer = u64::from(u32::from_le_bytes([end[0], end[1], end[2], end[3]]));
    if end[4..] != *MAGIC || footer > length - 18 {
        return Err(cut());
    }
    let end = length - 10 - footer;
    // Zeros fill up to the first message: two of them by the format, more from writers that align to whole cache lines.
    let mut filled = Vec::new();
    reader.seek(SeekFrom::Start(8)).and_then(|_| reader.take(64).read_to_end(&mut filled)).map_err(failed)?;
    let zeros = filled.iter().take_while(|byte| **byte == 0).count() as u64;
    let start = (8 + zeros / 4 * 4).min(end);
    reader.seek(SeekFrom::Start(start)).map_err(failed)?;
    Ok((start, end))
}

/// Bytes that the packed parts of a message unpack to, by the length that begins each; None where none is packed.
fn unpacked(body: &[u8], places: &[i64]) -> Option<u64> {
    let length = |place: &i64| {
        let at = usize::try_from(*place).ok()?;
        let bytes: [u8; 8] = body.get(at..at.checked_add(8)?)?.try_into().ok()?;
        // Minus one: this part is not packed.
        Some(i64::from_le_bytes(bytes).max(0) as u64)
    };
    (!places.is_empty()).then(|| places.iter().filter_map(length).fold(0, u64::saturating_add))
}
