//! The part of a GGUF file before its tensors: read front to back, every length held against the file before it is used.

use super::quant::Type;
use super::value::{Array, Strings, Value};
use protocol::{Code, Outcome, Problem, limits};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes read from disk at once.
const WINDOW: usize = 1 << 16;
/// Alignment where the metadata names none.
const ALIGNMENT: u64 = 32;
/// Fewest bytes of one metadata pair (key length, type, value) and of one tensor's description.
const LEAST_PAIR: u64 = 8 + 4 + 1;
const LEAST_TENSOR: u64 = 8 + 4 + 8 + 4 + 8;
/// Most dimensions of a tensor.
const DIMENSIONS: u32 = 4;

/// Metadata by name.
pub type Metadata = BTreeMap<String, Value>;

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name in the file.
    pub name: String,
    /// Number format.
    pub kind: Type,
    /// Dimensions, rows first: [out, in].
    pub shape: Vec<u64>,
    /// Place of its bytes in the file, and their number.
    pub(super) place: (u64, u64),
}

impl TensorInfo {
    /// Elements.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Bytes in the file.
    pub fn bytes(&self) -> u64 {
        self.place.1
    }
}

/// A checked header.
#[derive(Debug)]
pub(super) struct Header {
    pub metadata: Metadata,
    /// In the order of the file.
    pub tensors: Vec<TensorInfo>,
}

/// Reads and checks the header of an open file.
pub(super) fn read(file: &std::fs::File, path: &Path) -> Outcome<Header> {
    let length = crate::folder::length(file, path)?;
    parse(&mut Source::new(file, path, length)).map_err(|p| p.file(path))
}

fn parse(source: &mut Source) -> Outcome<Header> {
    check_kind(source)?;
    let tensors = source.u64("the number of tensors")?;
    let keys = source.u64("the number of metadata keys")?;
    source.count("metadata keys", keys, limits::GGUF_KEYS, LEAST_PAIR)?;
    source.count("tensors", tensors, limits::GGUF_TENSORS, LEAST_TENSOR)?;
    let metadata = read_metadata(source, keys)?;
    check_whole(&metadata)?;
    let tensors = read_tensors(source, tensors, alignment(&metadata)?)?;
    Ok(Header { metadata, tensors })
}

fn check_kind(source: &mut Source) -> Outcome<()> {
    let again = "copy or download the file again";
    if source.length == 0 {
        return Err(Problem::new(Code::FileEmpty, "the file is empty (0 bytes)").remedy(again));
    }
    if source.length < 4 || source.array::<4>("the magic number")? != *b"GGUF" {
        let what = "this is not a GGUF file: it has not the magic number of one";
        return Err(Problem::new(Code::FileMalformed, what).remedy(again));
    }
    let version = source.u32("the version")?;
    let refused = |what: String| Err(Problem::new(Code::NotSupported, what).remedy("convert the model again"));
    match version {
        2 | 3 => Ok(()),
        _ if matches!(version.swap_bytes(), 1..=3) => {
            refused("this GGUF file is big-endian; only little-endian ones are read".into())
        }
        _ => refused(format!("this GGUF file is of version {version}; versions 2 and 3 are read")),
    }
}

fn read_metadata(source: &mut Source, keys: u64) -> Outcome<Metadata> {
    let mut metadata = Metadata::new();
    for i in 0..keys {
        let key = source.string(&format!("the name of metadata key {} of {keys}", i + 1))?;
        let kind = source.u32(&key)?;
        let mut nested = limits::GGUF_NESTED_ARRAYS;
        let value = source.value(&key, kind, &mut nested).map_err(|p| p.field(key.as_str()))?;
        if metadata.contains_key(&key) {
            let what = format!("the metadata has {} twice", key.escape_debug());
            return Err(Problem::new(Code::FileMalformed, what).field(key));
        }
        metadata.insert(key, value);
    }
    Ok(metadata)
}

/// A part of a model is refused: the other parts are not looked for.
fn check_whole(metadata: &Metadata) -> Outcome<()> {
    match metadata.get("split.count").map(|v| (v.whole(), v)) {
        None | Some((Some(0 | 1), _)) => Ok(()),
        Some((Some(parts), _)) => {
            Err(Problem::new(Code::NotSupported, format!("this GGUF file is one of {parts} parts of a split model"))
                .field("split.count")
                .remedy("put the parts together with llama-gguf-split --merge, then give the whole file"))
        }
        Some((None, _)) => {
            Err(Problem::new(Code::FileMalformed, "split.count is no whole number").field("split.count"))
        }
    }
}

fn alignment(metadata: &Metadata) -> Outcome<u64> {
    const KEY: &str = "general.alignment";
    let Some(value) = metadata.get(KEY) else { return Ok(ALIGNMENT) };
    match value.whole() {
        Some(n) if n.is_power_of_two() && n <= limits::GGUF_ALIGNMENT => Ok(n),
        _ => {
            let what = format!("{KEY} must be a power of two up to {}", limits::GGUF_ALIGNMENT);
            Err(Problem::new(Code::FileMalformed, what).field(KEY))
        }
    }
}

fn read_tensors(source: &mut Source, count: u64, alignment: u64) -> Outcome<Vec<TensorInfo>> {
    let (mut tensors, mut names) = (Vec::new(), BTreeSet::new());
    for i in 0..count {
        let what = format!("the name of tensor {} of {count}", i + 1);
        let name = source.short_string(&what, limits::GGUF_NAME_BYTES)?;
        let tensor = read_tensor(source, name, alignment)?;
        if !names.insert(tensor.name.clone()) {
            return Err(bad(&tensor.name, "is described twice (duplicate)".into()));
        }
        tensors.push(tensor);
    }
    let data = source.at.next_multiple_of(alignment);
    place(&mut tensors, data, source.length)?;
    Ok(tensors)
}

/// One description; the place is still counted from where the data begins.
fn read_tensor(source: &mut Source, name: String, alignment: u64) -> Outcome<TensorInfo> {
    let dimensions = source.u32(&name)?;
    if !(1..=DIMENSIONS).contains(&dimensions) {
        return Err(bad(&name, format!("has {dimensions} dimensions; 1 to {DIMENSIONS} are possible")));
    }
    let mut shape = Vec::new();
    for _ in 0..dimensions {
        shape.push(source.u64(&name)?);
    }
    let (kind, offset) = (source.u32(&name)?, source.u64(&name)?);
    if shape.contains(&0) {
        return Err(bad(&name, format!("has a dimension of zero: {shape:?}")));
    }
    let kind = Type::of(kind).map_err(|word| {
        Problem::new(Code::NotSupported, format!("tensor {} is of type {word}, which is not read", name.escape_debug()))
            .tensor(&name)
            .remedy(format!("take a file of another type: {}", Type::names()))
    })?;
    let overflow = || bad(&name, format!("is too large: the product of its dimensions {shape:?} overflows"));
    let elements = shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d)).ok_or_else(overflow)?;
    let (in_block, block_bytes) = kind.block();
    if shape[0] % in_block != 0 {
        return Err(bad(
            &name,
            format!("has rows of {}, no multiple of the {in_block} of type {}", shape[0], kind.name()),
        ));
    }
    let bytes = (elements / in_block).checked_mul(block_bytes).ok_or_else(overflow)?;
    if offset % alignment != 0 {
        return Err(bad(&name, format!("begins at {offset}, no multiple of the alignment {alignment}")));
    }
    shape.reverse();
    Ok(TensorInfo { name, kind, shape, place: (offset, bytes) })
}

/// Turns offsets into places in the file: inside it, none over another.
fn place(tensors: &mut [TensorInfo], data: u64, length: u64) -> Outcome<()> {
    for tensor in tensors.iter_mut() {
        let (offset, bytes) = tensor.place;
        let begin = data.checked_add(offset);
        match begin.and_then(|begin| Some((begin, begin.checked_add(bytes)?))) {
            Some((begin, end)) if end <= length => tensor.place.0 = begin,
            Some((_, end)) => {
                let what = format!(
                    "tensor {} ends at byte {end}, beyond the end of the file ({length} bytes)",
                    tensor.name.escape_debug()
                );
                return Err(Problem::new(Code::FileTruncated, what)
                    .tensor(&tensor.name)
                    .remedy("the file is cut or damaged; copy or download it again"));
            }
            None => return Err(bad(&tensor.name, format!("has an offset of {offset}, which overflows"))),
        }
    }
    let mut order: Vec<&TensorInfo> = tensors.iter().collect();
    order.sort_by_key(|t| t.place);
    for pair in order.windows(2) {
        if pair[0].place.0 + pair[0].place.1 > pair[1].place.0 {
            return Err(bad(&pair[1].name, format!("overlaps tensor {}", pair[0].name.escape_debug())));
        }
    }
    Ok(())
}

fn bad(tensor: &str, what: String) -> Problem {
    Problem::new(Code::FileMalformed, format!("tensor {} {what}", tensor.escape_debug())).tensor(tensor)
}

/// A file read front to back through a small window.
struct Source<'a> {
    file: &'a std::fs::File,
    path: &'a Path,
    /// Bytes of the file, and those of them that a header may have.
    length: u64,
    end: u64,
    at: u64,
    window: Vec<u8>,
    window_at: u64,
}

impl<'a> Source<'a> {
    fn new(file: &'a std::fs::File, path: &'a Path, length: u64) -> Source<'a> {
        let end = length.min(limits::GGUF_HEADER_BYTES);
        Source { file, path, length, end, at: 0, window: Vec::new(), window_at: 0 }
    }

    /// Refuses to go on where fewer than `bytes` are left for `what`.
    fn room(&self, what: &str, bytes: u64) -> Outcome<()> {
        if bytes <= self.end - self.at {
            return Ok(());
        }
        let what = what.chars().take(100).collect::<String>();
        let what = what.escape_debug();
        if bytes <= self.length - self.at {
            let limit = limits::GGUF_HEADER_BYTES;
            let what = format!("the metadata is too large: {what} goes beyond the limit of {limit} bytes");
            return Err(Problem::new(Code::TooLarge, what));
        }
        let (at, length) = (self.at, self.length);
        let what =
            format!("the file is truncated or damaged: {what} at byte {at} needs {bytes} bytes, the file has {length}");
        Err(Problem::new(Code::FileTruncated, what).remedy("copy or download the file again"))
    }

    /// Checks a number of things of at least `least` bytes each, before any of them is read.
    fn count(&self, what: &str, count: u64, most: u64, least: u64) -> Outcome<()> {
        if count > most {
            let what = format!("the file announces {count} {what}; the limit is {most}");
            return Err(Problem::new(Code::TooLarge, what).remedy("the file is damaged; copy or download it again"));
        }
        self.room(&format!("a count of {count} {what}"), count.saturating_mul(least))
    }

    /// Copies the next bytes, which `room` has allowed.
    fn fill(&mut self, mut out: &mut [u8]) -> Outcome<()> {
        while !out.is_empty() {
            let skip = (self.at - self.window_at) as usize;
            if skip >= self.window.len() {
                self.window.resize(WINDOW.min((self.end - self.at) as usize), 0);
                self.window_at = self.at;
                self.file
                    .read_exact_at(&mut self.window, self.at)
                    .map_err(|e| Problem::io(&e, "reading the metadata", self.path))?;
                continue;
            }
            let n = out.len().min(self.window.len() - skip);
            let (now, later) = out.split_at_mut(n);
            now.copy_from_slice(&self.window[skip..skip + n]);
            (out, self.at) = (later, self.at + n as u64);
        }
        Ok(())
    }

    fn array<const N: usize>(&mut self, what: &str) -> Outcome<[u8; N]> {
        self.room(what, N as u64)?;
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn u32(&mut self, what: &str) -> Outcome<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &str) -> Outcome<u64> {
        self.array(what).map(u64::from_le_bytes)
    }

    fn string(&mut self, what: &str) -> Outcome<String> {
        self.short_string(what, limits::GGUF_HEADER_BYTES)
    }

    fn short_string(&mut self, what: &str, most: u64) -> Outcome<String> {
        let length = self.u64(what)?;
        self.room(what, length)?;
        if length > most {
            return Err(Problem::new(Code::TooLarge, format!("{what} has {length} bytes; the limit is {most}")));
        }
        let mut bytes = vec![0; length as usize];
        self.fill(&mut bytes)?;
        String::from_utf8(bytes)
            .map_err(|_| Problem::new(Code::FileMalformed, format!("{} is not UTF-8", what.escape_debug())))
    }

    fn flag(&mut self, what: &str) -> Outcome<bool> {
        match self.array::<1>(what)? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(Problem::new(
                Code::FileMalformed,
                format!("{} is neither true nor false but {other}", what.escape_debug()),
            )),
        }
    }

    fn value(&mut self, key: &str, kind: u32, nested: &mut u64) -> Outcome<Value> {
        Ok(match kind {
            0 => Value::U8(u8::from_le_bytes(self.array(key)?)),
            1 => Value::I8(i8::from_le_bytes(self.array(key)?)),
            2 => Value::U16(u16::from_le_bytes(self.array(key)?)),
            3 => Value::I16(i16::from_le_bytes(self.array(key)?)),
            4 => Value::U32(u32::from_le_bytes(self.array(key)?)),
            5 => Value::I32(i32::from_le_bytes(self.array(key)?)),
            6 => Value::F32(f32::from_le_bytes(self.array(key)?)),
            7 => Value::Bool(self.flag(key)?),
            8 => Value::String(self.string(key)?),
            9 => Value::Array(self.list(key, limits::GGUF_DEPTH, nested)?),
            10 => Value::U64(u64::from_le_bytes(self.array(key)?)),
            11 => Value::I64(i64::from_le_bytes(self.array(key)?)),
            12 => Value::F64(f64::from_le_bytes(self.array(key)?)),
            _ => return Err(unknown(key, kind)),
        })
    }

    fn list(&mut self, key: &str, depth: usize, nested: &mut u64) -> Outcome<Array> {
        let (kind, count) = (self.u32(key)?, self.u64(key)?);
        Ok(match kind {
            0 => Array::U8(self.numbers(key, count, u8::from_le_bytes)?),
            1 => Array::I8(self.numbers(key, count, i8::from_le_bytes)?),
            2 => Array::U16(self.numbers(key, count, u16::from_le_bytes)?),
            3 => Array::I16(self.numbers(key, count, i16::from_le_bytes)?),
            4 => Array::U32(self.numbers(key, count, u32::from_le_bytes)?),
            5 => Array::I32(self.numbers(key, count, i32::from_le_bytes)?),
            6 => Array::F32(self.numbers(key, count, f32::from_le_bytes)?),
            7 => {
                self.elements(key, count, 1)?;
                Array::Bool((0..count).map(|_| self.flag(key)).collect::<Outcome<_>>()?)
            }
            8 => Array::Strings(self.strings(key, count)?),
            9 => Array::Arrays(self.lists(key, count, depth, nested)?),
            10 => Array::U64(self.numbers(key, count, u64::from_le_bytes)?),
            11 => Array::I64(self.numbers(key, count, i64::from_le_bytes)?),
            12 => Array::F64(self.numbers(key, count, f64::from_le_bytes)?),
            _ => return Err(unknown(key, kind)),
        })
    }

    fn elements(&self, key: &str, count: u64, least: u64) -> Outcome<()> {
        self.room(&format!("{key}, an array said to have a length of {count},"), count.saturating_mul(least))
    }

    fn numbers<T, const N: usize>(&mut self, key: &str, count: u64, of: fn([u8; N]) -> T) -> Outcome<Vec<T>> {
        self.elements(key, count, N as u64)?;
        let mut all = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let mut bytes = [0; N];
            self.fill(&mut bytes)?;
            all.push(of(bytes));
        }
        Ok(all)
    }

    fn strings(&mut self, key: &str, count: u64) -> Outcome<Strings> {
        self.elements(key, count, 8)?;
        let mut all = Strings::default();
        for _ in 0..count {
            if !all.push(&self.string(key)?) {
                return Err(Problem::new(Code::TooLarge, format!("the texts of {} are too long", key.escape_debug())));
            }
        }
        Ok(all)
    }

    fn lists(&mut self, key: &str, count: u64, depth: usize, nested: &mut u64) -> Outcome<Vec<Array>> {
        self.elements(key, count, 12)?;
        if depth <= 1 || count > *nested {
            let what = format!("the arrays in {} are nested too deeply or are too many", key.escape_debug());
            return Err(Problem::new(Code::TooLarge, what));
        }
        *nested -= count;
        (0..count).map(|_| self.list(key, depth - 1, nested)).collect()
    }
}

fn unknown(key: &str, kind: u32) -> Problem {
    Problem::new(
        Code::FileMalformed,
        format!("the metadata key {} has a value of the unknown type {kind}", key.escape_debug()),
    )
}
