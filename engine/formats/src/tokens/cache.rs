//! Reading a cache: every file is hashed and every offset checked before the first row is given out.

use super::{FILES, FileFacts, HEADER_BYTES, Header, Set, VERSION};
use crate::folder::{self, Folder};
use memmap2::Mmap;
use protocol::facts::{SetFacts, TokenFacts};
use protocol::{Code, Outcome, Problem};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// Bytes hashed at once; a multiple of 4, so that ids are never cut.
const CHUNK: usize = 1 << 20;

/// An open cache, checked in full and mapped.
#[derive(Debug)]
pub struct Cache {
    facts: TokenFacts,
    train: TokenSet,
    evaluation: TokenSet,
}

/// The rows of one set.
#[derive(Debug)]
pub struct TokenSet {
    ids: Mapped,
    trained: Mapped,
    segments: Vec<u32>,
    /// Where the tokens and the segments of each row end.
    ends: Vec<(usize, usize)>,
}

/// One row: whole samples one after the other, isolated from each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row<'a> {
    /// Token ids.
    pub tokens: &'a [u32],
    /// 1 where the loss counts predicting this token, else 0; as long as `tokens`. The first token of a sample is never
    /// a target.
    pub trained: &'a [u8],
    /// Lengths of the row's samples; their sum is `tokens.len()`.
    pub segments: &'a [u32],
}

impl Cache {
    /// Where the cache of a fingerprint lies below `parent`.
    pub fn folder(parent: &Path, fingerprint: &str) -> PathBuf {
        parent.join(fingerprint)
    }

    /// Opens and checks a cache: sizes, hashes, offsets and counts. `FileMalformed` and `FileTruncated` name what does
    /// not fit; the cache can then be made again from the data.
    pub fn open(path: &Path) -> Outcome<Cache> {
        let folder = Folder::open(path)?;
        let header = read_header(&folder)?;
        let open = |set: Set, facts: &SetFacts| TokenSet::open(&folder, &header, set, facts);
        let train = open(Set::Train, &header.facts.train)?;
        let evaluation = open(Set::Evaluation, &header.facts.evaluation)?;
        let mut facts = header.facts;
        facts.path = path.to_owned();
        facts.tokenizer = path.join("tokenizer");
        Ok(Cache { facts, train, evaluation })
    }

    /// Its facts.
    pub fn facts(&self) -> &TokenFacts {
        &self.facts
    }

    /// Rows to train on.
    pub fn train(&self) -> &TokenSet {
        &self.train
    }

    /// Rows to evaluate on; none when off.
    pub fn evaluation(&self) -> &TokenSet {
        &self.evaluation
    }
}

impl TokenSet {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.ends.len()
    }

    /// Row `i` of `0..rows()`.
    pub fn row(&self, i: usize) -> Row<'_> {
        let (token, segment) = if i == 0 { (0, 0) } else { self.ends[i - 1] };
        let (token_end, segment_end) = self.ends[i];
        Row {
            tokens: &self.ids.words()[token..token_end],
            trained: &self.trained.bytes()[token..token_end],
            segments: &self.segments[segment..segment_end],
        }
    }

    fn open(folder: &Folder, header: &Header, set: Set, facts: &SetFacts) -> Outcome<TokenSet> {
        let path = |name: &str| format!("{}/{name}", set.folder());
        let [ids, trained, segments, rows] = FILES.map(path);
        let bytes = |name: &str, width: u64, count: u64| expect_bytes(folder, header, name, width, count);
        bytes(&ids, 4, facts.tokens)?;
        bytes(&trained, 1, facts.tokens)?;
        bytes(&segments, 4, facts.samples)?;
        bytes(&rows, 16, facts.rows)?;
        let vocab = header.facts.vocab;
        let mut largest = 0u32;
        let ids = Mapped::open(folder, header, &ids, &mut |chunk| {
            largest = chunk.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).max().unwrap_or(0).max(largest);
        })?;
        let mut flag = 0u8;
        let trained = Mapped::open(folder, header, &trained, &mut |chunk| {
            flag = chunk.iter().copied().max().unwrap_or(0).max(flag);
        })?;
        if (facts.tokens > 0 && largest >= vocab) || flag > 1 {
            return Err(malformed(folder, &path("ids.bin"), format!("an id of {largest} is beyond the vocabulary")));
        }
        let segments = read_numbers::<4, _>(folder, header, &segments, u32::from_le_bytes)?;
        let rows = read_numbers::<8, _>(folder, header, &rows, u64::from_le_bytes)?;
        let ends = check_rows(&rows, &segments, header.facts.max_length, facts)
            .ok_or_else(|| malformed(folder, &path("rows.bin"), "the rows do not cover the tokens".into()))?;
        Ok(TokenSet { ids, trained, segments, ends })
    }
}

fn read_header(folder: &Folder) -> Outcome<Header> {
    const NAME: &str = "header.json";
    let bytes = folder.read(NAME, HEADER_BYTES)?;
    let value: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(|e| malformed(folder, NAME, e.to_string()))?;
    let version = value.get("version").and_then(serde_json::Value::as_u64);
    if version != Some(u64::from(VERSION)) {
        return Err(malformed(folder, NAME, format!("version {version:?} is not the version {VERSION} read here")));
    }
    serde_json::from_value(value).map_err(|e| malformed(folder, NAME, e.to_string()))
}

/// The header's two statements on a file must agree before either is used.
fn expect_bytes(folder: &Folder, header: &Header, name: &str, width: u64, count: u64) -> Outcome<()> {
    let said = file_facts(folder, header, name)?.bytes;
    if count.checked_mul(width) != Some(said) {
        return Err(malformed(folder, name, format!("{said} bytes do not hold {count} entries")));
    }
    Ok(())
}

fn file_facts<'a>(folder: &Folder, header: &'a Header, name: &str) -> Outcome<&'a FileFacts> {
    header.files.get(name).ok_or_else(|| malformed(folder, name, "the header does not list it".into()))
}

/// Each row ends on a whole sample, is no longer than allowed, and all rows together are all tokens.
fn check_rows(rows: &[u64], segments: &[u32], max_length: u32, facts: &SetFacts) -> Option<Vec<(usize, usize)>> {
    let mut ends = Vec::with_capacity(rows.len() / 2);
    let (mut token, mut segment) = (0u64, 0usize);
    for &[token_end, segment_end] in rows.as_chunks::<2>().0 {
        let segment_end = usize::try_from(segment_end).ok()?;
        let samples = segments.get(segment..segment_end)?;
        let length: u64 = samples.iter().map(|n| u64::from(*n)).sum();
        if samples.is_empty() || samples.contains(&0) || length > u64::from(max_length) || token + length != token_end {
            return None;
        }
        (token, segment) = (token_end, segment_end);
        ends.push((usize::try_from(token).ok()?, segment));
    }
    (token == facts.tokens && segment == segments.len()).then_some(ends)
}

/// Opens a file, holds its length and hash against the header and shows each chunk to `look`.
fn check_file(folder: &Folder, header: &Header, name: &str, look: &mut dyn FnMut(&[u8])) -> Outcome<File> {
    let facts = file_facts(folder, header, name)?;
    let path = folder.path().join(name);
    let mut file = folder.file(name)?;
    let length = folder::length(&file, &path)?;
    if length != facts.bytes {
        let what = format!("the token cache is cut: {length} of {} bytes are there", facts.bytes);
        return Err(Problem::new(Code::FileTruncated, what).file(&path).remedy(REMEDY));
    }
    let mut hash = Xxh3::new();
    let mut buffer = vec![0u8; CHUNK.min(length as usize)];
    let mut left = length as usize;
    while left > 0 {
        let part = left.min(CHUNK);
        file.read_exact(&mut buffer[..part]).map_err(|e| Problem::io(&e, "reading tokens", &path))?;
        hash.update(&buffer[..part]);
        look(&buffer[..part]);
        left -= part;
    }
    if format!("{:032x}", hash.digest128()) != facts.xxh3 {
        return Err(malformed(folder, name, "its checksum is wrong".into()));
    }
    Ok(file)
}

fn read_numbers<const W: usize, T>(
    folder: &Folder,
    header: &Header,
    name: &str,
    number: impl Fn([u8; W]) -> T,
) -> Outcome<Vec<T>> {
    let mut numbers = Vec::new();
    let mut look = |chunk: &[u8]| numbers.extend(chunk.as_chunks::<W>().0.iter().map(|b| number(*b)));
    check_file(folder, header, name, &mut look)?;
    Ok(numbers)
}

const REMEDY: &str = "delete the folder; it is made again from the data";

fn malformed(folder: &Folder, name: &str, why: String) -> Problem {
    let what = "the token cache is damaged";
    Problem::new(Code::FileMalformed, what).why(why).file(&folder.path().join(name)).remedy(REMEDY)
}

/// A checked file in memory; an empty one is not mapped.
#[derive(Debug)]
struct Mapped(Option<Mmap>);

impl Mapped {
    fn open(folder: &Folder, header: &Header, name: &str, look: &mut dyn FnMut(&[u8])) -> Outcome<Mapped> {
        let file = check_file(folder, header, name, look)?;
        let bytes = file_facts(folder, header, name)?.bytes as usize;
        if bytes == 0 {
            return Ok(Mapped(None));
        }
        // SAFETY: the mapping is read-only and private to this file of our own making, which was complete, checked and
        // synchronised before it got its name and is never written again; `bytes` is its length just checked.
        let map = unsafe { memmap2::MmapOptions::new().len(bytes).map(&file) };
        map.map(|m| Mapped(Some(m))).map_err(|e| Problem::io(&e, "mapping tokens", &folder.path().join(name)))
    }

    fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or(&[])
    }

    /// The same as little-endian words.
    fn words(&self) -> &[u32] {
        const { assert!(cfg!(target_endian = "little")) };
        let bytes = self.bytes();
        // SAFETY: a mapping starts on a page, so it is aligned for u32; every bit pattern is a u32; the length is cut to
        // whole words; an empty slice is aligned by `align_to` itself.
        let (_, words, _) = unsafe { bytes.align_to::<u32>() };
        words
    }
}
