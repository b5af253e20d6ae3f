//! What a file is by its first bytes, whatever its name, where it is something that is never read as rows or as a folder.
//!
//! Not here: which rows are understood (`dataset`), what is in a folder (`model_folder`, `adapter`).

use protocol::{Code, Problem, limits};

/// Bytes from a file's start that tell what it is: the mark of a tar archive, at byte 257, is the farthest.
pub const START_BYTES: u64 = 512;

/// Why such a file is refused; `None` where it may be rows.
pub fn refused(start: &[u8]) -> Option<Problem> {
    const UNPACK: &str = "unpack it and give the folder";
    const CONVERT: &str = "save the model as safetensors and give its folder";
    let begins = |mark: &[u8]| start.starts_with(mark);
    let holds = |mark: &[u8]| start.windows(mark.len()).any(|part| part == mark);
    let problem = |code, what: &str, remedy: &str| Some(Problem::new(code, what).remedy(remedy));
    let pickle = begins(b"PK\x03\x04") && holds(b"data.pkl")
        || start.len() > 1 && start[0] == 0x80 && (2..=5).contains(&start[1]);
    if pickle {
        let what = "this is a pickle: reading it would run code that is in it, so it is not supported";
        return problem(Code::CodeInFile, what, CONVERT);
    }
    let packed: [&[u8]; 6] = [b"PK\x03\x04", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh", b"7z\xbc\xaf"];
    if packed.iter().any(|mark| begins(mark)) || start.get(257..262) == Some(b"ustar") {
        return problem(Code::NotSupported, "archives and compressed files are not supported", UNPACK);
    }
    if begins(b"SQLite format 3\0") {
        let what = "this is a database, neither a model nor a data set";
        return problem(Code::FormatUnknown, what, "export it as JSONL");
    }
    if is_safetensors(start) {
        let what = "this is a weight file alone";
        return problem(Code::FormatUnknown, what, "give its folder, with config.json and tokenizer.json");
    }
    None
}

/// A header length in eight bytes, then the header's brace.
fn is_safetensors(start: &[u8]) -> bool {
    let length = start.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes));
    length.is_some_and(|n| n <= limits::SAFETENSORS_HEADER_BYTES) && start.get(8) == Some(&b'{')
}
