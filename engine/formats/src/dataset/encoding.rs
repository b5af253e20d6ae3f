//! Text that is not UTF-8: never read by guess. What it seems to be is said, the user confirms, then it is decoded as it
//! is read; bytes that are none of the encoding's stay visible as such.

use super::stream::Bad;
use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Decoder, DecoderResult, Encoding, GB18030, GBK, UTF_8, UTF_16BE, UTF_16LE};
use protocol::problem::Way;
use protocol::{Code, Outcome, Problem};
use std::fs::File;
use std::io::Read;

/// Bytes decoded at once.
const PART: usize = 1 << 16;
/// Stands for bytes that are not of the encoding: no UTF-8 has it, so that their row is found and named.
const MALFORMED: u8 = 0xff;
/// Lines shown of a file whose encoding is asked for, and characters of each.
const SHOWN: (usize, usize) = (3, 60);

/// The encoding a user named; None for UTF-8, which is read as it is. Errors: `SettingInvalid` listing some.
pub(super) fn named(name: Option<&str>) -> Outcome<Option<&'static Encoding>> {
    let name = name.unwrap_or("utf-8").trim();
    match Encoding::for_label_no_replacement(name.as_bytes()) {
        Some(encoding) if encoding == UTF_8 => Ok(None),
        Some(encoding) if encoding == GBK => Ok(Some(GB18030)),
        Some(encoding) => Ok(Some(encoding)),
        None => {
            let known =
                "utf-8, utf-16le, utf-16be, windows-1252, windows-1251, gb18030, big5, shift_jis, euc-jp, euc-kr";
            let what = format!("\"{}\" is no encoding that is known; use one of {known}", name.escape_debug());
            Err(Problem::new(Code::SettingInvalid, what).field("data.encoding"))
        }
    }
}

/// How an encoding is written in a job.
pub(super) fn label(encoding: &'static Encoding) -> String {
    encoding.name().to_ascii_lowercase()
}

/// The text of a row, or where it is none. `line`: where it begins.
pub(super) fn text(bytes: Vec<u8>, line: u64, encoding: Option<&'static Encoding>) -> Result<String, Bad> {
    String::from_utf8(bytes).map_err(|e| {
        let good = String::from_utf8_lossy(&e.as_bytes()[..e.utf8_error().valid_up_to()]).into_owned();
        let line = line + good.matches('\n').count() as u64;
        let column = good.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let cut = e.utf8_error().error_len().is_none();
        let what = match encoding {
            Some(encoding) => format!("not {}: the bytes", label(encoding)),
            None if cut => "not UTF-8: a character is cut off".into(),
            None => "not UTF-8: the byte".into(),
        };
        let verb = if encoding.is_none() && cut { "" } else { " mean no character" };
        // The line of a row of one line is told with the row.
        let place =
            if good.contains('\n') { format!("line {line}, column {column}") } else { format!("column {column}") };
        (Code::RowNotUtf8, format!("{what} at {place}{verb}"))
    })
}

/// How the bytes of a file's start say what it is.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum By {
    /// JSON: a row that is not UTF-8 is a row that cannot be used, unless most are.
    Lines,
    /// Tables and text: where it is not UTF-8, all of it is something else.
    All,
}

/// Refuses a file that seems to be in another encoding. `whole`: the start is all there is. Errors: `EncodingUnconfirmed`
/// with the way to confirm.
pub(super) fn confirm(start: &[u8], whole: bool, by: By) -> Outcome<()> {
    let foreign = match by {
        By::Lines => most_lines_are_broken(start),
        By::All => is_foreign(start),
    };
    match foreign {
        true => Err(unconfirmed(start, whole)),
        false => Ok(()),
    }
}

/// UTF-16, by its mark or by a zero in every second byte of what is mostly ASCII.
pub(super) fn utf_16(start: &[u8]) -> Option<&'static Encoding> {
    if let Some((encoding, _)) = Encoding::for_bom(start).filter(|(encoding, _)| *encoding != UTF_8) {
        return Some(encoding);
    }
    let zeros = |from: usize| start.iter().skip(from).step_by(2).filter(|b| **b == 0).count();
    let half = start.len() / 2;
    let most = |n: usize| n * 10 > half * 7;
    match (zeros(0), zeros(1)) {
        _ if half < 2 => None,
        (0, odd) if most(odd) => Some(UTF_16LE),
        (even, 0) if most(even) => Some(UTF_16BE),
        _ => None,
    }
}

/// The question which encoding it is, with the likely answer.
pub(super) fn unconfirmed(start: &[u8], whole: bool) -> Problem {
    let encoding = utf_16(start).unwrap_or_else(|| detected(start, whole));
    let name = label(encoding);
    let (text, _) = encoding.decode_with_bom_removal(start);
    let short = |line: &str| line.chars().take(SHOWN.1).collect::<String>().escape_debug().to_string();
    let lines: Vec<String> = text.lines().filter(|l| !l.trim().is_empty()).take(SHOWN.0).map(short).collect();
    Problem::new(Code::EncodingUnconfirmed, format!("the file is not UTF-8; it seems to be {name}"))
        .why(format!("read as {name} it begins: {}", lines.join(" ⏎ ")))
        .remedy(format!("if this is right, confirm it with data.encoding = \"{name}\"; else name the right one"))
        .field("data.encoding")
        .way(Way::set("data.encoding", name))
}

fn detected(start: &[u8], whole: bool) -> &'static Encoding {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Allow);
    detector.feed(start, whole);
    match detector.guess(None, Utf8Detection::Deny) {
        encoding if encoding == GBK => GB18030,
        encoding => encoding,
    }
}

/// What a start holds beyond ASCII: characters of UTF-8, and bytes that are none.
fn beyond_ascii(start: &[u8]) -> (usize, usize) {
    let (mut good, mut bad) = (0, 0);
    let mut chunks = start.utf8_chunks().peekable();
    while let Some(chunk) = chunks.next() {
        good += chunk.valid().chars().filter(|c| !c.is_ascii()).count();
        let last = chunks.peek().is_none();
        let cut = last && std::str::from_utf8(chunk.invalid()).is_err_and(|e| e.error_len().is_none());
        // The end of the window may cut a character, and so may the end of a file that was cut.
        bad += usize::from(!chunk.invalid().is_empty() && !cut);
    }
    (good, bad)
}

/// True where bytes beyond ASCII are rarely UTF-8: another encoding gives a valid sequence by chance alone, damage to
/// UTF-8 leaves most whole.
fn is_foreign(start: &[u8]) -> bool {
    let (good, bad) = beyond_ascii(start);
    bad * 2 > good
}

fn most_lines_are_broken(start: &[u8]) -> bool {
    let lines = start.split(|b| *b == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let (mut all, mut broken) = (0, 0);
    for line in lines {
        all += 1;
        broken += usize::from(is_foreign(line));
    }
    broken * 2 > all
}

/// A file decoded as it is read.
pub(super) struct Decoded {
    file: File,
    decoder: Decoder,
    raw: Vec<u8>,
    start: usize,
    end: usize,
    last: bool,
    finished: bool,
}

impl Decoded {
    pub fn new(file: File, encoding: &'static Encoding) -> Decoded {
        let decoder = encoding.new_decoder_with_bom_removal();
        Decoded { file, decoder, raw: vec![0; PART], start: 0, end: 0, last: false, finished: false }
    }
}

impl Read for Decoded {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        // The longest character takes four bytes, and one more is kept for a sign of damage.
        if to.len() < 16 {
            return Err(std::io::Error::other("the buffer is too small to decode into"));
        }
        while !self.finished {
            if self.start == self.end && !self.last {
                self.end = self.file.read(&mut self.raw)?;
                (self.start, self.last) = (0, self.end == 0);
            }
            let room = to.len() - 1;
            let from = &self.raw[self.start..self.end];
            let (result, read, written) =
                self.decoder.decode_to_utf8_without_replacement(from, &mut to[..room], self.last);
            self.start += read;
            match result {
                DecoderResult::Malformed(..) => {
                    to[written] = MALFORMED;
                    return Ok(written + 1);
                }
                DecoderResult::OutputFull => return Ok(written),
                DecoderResult::InputEmpty => self.finished = self.last,
            }
            if written > 0 {
                return Ok(written);
            }
        }
        Ok(0)
    }
}

/// The start of a file, decoded.
pub(super) fn decoded(start: &[u8], encoding: &'static Encoding) -> Vec<u8> {
    encoding.decode_with_bom_removal(start).0.into_owned().into_bytes()
}
