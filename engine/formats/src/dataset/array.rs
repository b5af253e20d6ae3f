//! Records within one JSON document (an array, an object that has them under a key or by their numbers), or one after
//! the other, streamed: only where an element ends is found here, its parser sees it alone.

use super::object::{Shape, is_rows_key};
use super::stream::{Bytes, Raw};
use protocol::limits::RECORD_BYTES;
use protocol::{Code, Outcome};

/// Longest key of an object that holds records, in bytes.
const KEY: usize = 4096;

pub(super) struct Array {
    pub(super) bytes: Bytes,
    shape: Shape,
    state: State,
}

#[derive(PartialEq)]
enum State {
    Start,
    /// After an element or the opening bracket.
    Between {
        first: bool,
    },
    /// After the records of an object that had them under a key.
    After,
    Done,
}

/// Follows strings and brackets of one element.
#[derive(Default)]
pub(super) struct Scan {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Scan {
    /// Takes a byte of the element in; true when the element is complete with it.
    pub(super) fn take(&mut self, byte: u8) -> bool {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return !self.in_string && self.depth == 0;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }

    /// A number or word ends where the next thing of the array begins.
    pub(super) fn ends_before(&self, byte: u8) -> bool {
        self.depth == 0 && !self.in_string && (matches!(byte, b',' | b']' | b'}') || byte.is_ascii_whitespace())
    }
}

impl Array {
    pub fn new(bytes: Bytes, shape: Shape) -> Array {
        Array { bytes, shape, state: State::Start }
    }

    pub fn next(&mut self) -> Outcome<Option<Raw>> {
        match self.state {
            State::Done => Ok(None),
            State::After => self.rest(),
            _ if self.shape == Shape::Stream => self.following(),
            State::Start => self.start(),
            State::Between { first } => self.between(first),
        }
    }

    fn start(&mut self) -> Outcome<Option<Raw>> {
        if self.skip_space()? != Some(if self.shape == Shape::Array { b'[' } else { b'{' }) {
            return self.broken("the file begins with something else");
        }
        self.bytes.consume(1);
        if self.shape == Shape::Rows {
            match self.seek_rows(true)? {
                Ok(Some(_)) => {}
                Ok(None) => return self.broken("no key of the object has records"),
                Err(what) => return self.broken(what),
            }
        }
        self.between(true)
    }

    fn between(&mut self, first: bool) -> Outcome<Option<Raw>> {
        self.state = State::Between { first: false };
        let close = if self.shape == Shape::Numbered { b'}' } else { b']' };
        match self.skip_space()? {
            Some(byte) if byte == close => self.end(),
            Some(b',') if !first => {
                self.bytes.consume(1);
                match self.skip_space()? {
                    Some(byte) if byte == close || byte == b',' => self.broken("a comma with no record behind it"),
                    _ => self.member(),
                }
            }
            Some(b',') => self.broken("a comma with no record before it"),
            Some(_) if first => self.member(),
            Some(_) => self.broken("two records without a comma between them"),
            None => self.broken("the array is cut: the file ends before it does"),
        }
    }

    /// An element, after its key if it has one.
    fn member(&mut self) -> Outcome<Option<Raw>> {
        if self.shape == Shape::Numbered && self.key()?.is_none() {
            return self.broken("a record without its number");
        }
        self.element().map(Some)
    }

    /// Documents that follow each other.
    fn following(&mut self) -> Outcome<Option<Raw>> {
        match self.skip_space()? {
            None => Ok(None),
            Some(b',' | b']' | b'}') => self.broken("something between two records is none"),
            Some(_) => self.element().map(Some),
        }
    }

    /// After the closing bracket only white space may follow, and in an object what else it says.
    fn end(&mut self) -> Outcome<Option<Raw>> {
        self.bytes.consume(1);
        if self.shape == Shape::Rows {
            self.state = State::After;
            return self.rest();
        }
        self.finish()
    }

    fn finish(&mut self) -> Outcome<Option<Raw>> {
        self.state = State::Done;
        match self.skip_space()? {
            None => Ok(None),
            Some(_) => self.broken("something follows after the end of the array"),
        }
    }

    /// The rest of an object after its records; further records are named, not read: they may be there to test with.
    fn rest(&mut self) -> Outcome<Option<Raw>> {
        match self.skip_space()? {
            Some(b',') => self.bytes.consume(1),
            Some(b'}') => {
                self.bytes.consume(1);
                return self.finish();
            }
            _ => return self.broken("the object is cut: the file ends before it does"),
        }
        match self.seek_rows(false)? {
            Err(what) => self.broken(what),
            Ok(None) => self.finish(),
            Ok(Some(key)) => {
                let line = self.bytes.line;
                self.discard()?;
                let what = format!(
                    "the records under the key \"{}\" are left out: those of one key are read",
                    key.escape_debug()
                );
                Ok(Some(Raw::whole(line, Err((Code::NotSupported, what)))))
            }
        }
    }

    /// Goes on to the next key that has records and says which: before the first of them, or (`inside` false) before their
    /// bracket. None at the end of the object.
    fn seek_rows(&mut self, inside: bool) -> Outcome<Result<Option<String>, &'static str>> {
        loop {
            if self.skip_space()? == Some(b'}') {
                self.bytes.consume(1);
                return Ok(Ok(None));
            }
            let Some(key) = self.key()? else { return Ok(Err("a key of the object cannot be read")) };
            if self.bytes.byte()? == Some(b'[') && is_rows_key(&key) {
                if inside {
                    self.bytes.consume(1);
                }
                return Ok(Ok(Some(key)));
            }
            self.discard()?;
            match self.skip_space()? {
                Some(b',') => self.bytes.consume(1),
                Some(b'}') => {}
                _ => return Ok(Err("the object is cut: the file ends before it does")),
            }
        }
    }

    /// Reads a key and its colon, up to the value.
    fn key(&mut self) -> Outcome<Option<String>> {
        if self.skip_space()? != Some(b'"') {
            return Ok(None);
        }
        let (mut text, mut scan) = (Vec::new(), Scan::default());
        loop {
            let Some(byte) = self.bytes.byte()?.filter(|_| text.len() < KEY) else { return Ok(None) };
            self.bytes.consume(1);
            text.push(byte);
            if scan.take(byte) {
                break;
            }
        }
        if self.skip_space()? != Some(b':') {
            return Ok(None);
        }
        self.bytes.consume(1);
        self.skip_space()?;
        Ok(serde_json::from_slice(&text).ok())
    }

    /// Passes over a value.
    fn discard(&mut self) -> Outcome<()> {
        let mut scan = Scan::default();
        loop {
            let buffer = self.bytes.peek()?;
            if buffer.is_empty() {
                return Ok(());
            }
            let (n, done) = part(&mut scan, buffer);
            self.bytes.consume(n);
            if done {
                return Ok(());
            }
        }
    }

    fn element(&mut self) -> Outcome<Raw> {
        let line = self.bytes.line;
        let mut scan = Scan::default();
        let (mut text, mut too_long) = (Vec::new(), false);
        loop {
            let buffer = self.bytes.peek()?;
            if buffer.is_empty() {
                self.state = State::Done;
                let what = match self.shape {
                    // What a file with one document holds is told by its parser.
                    Shape::Stream if !too_long => return Ok(Raw::whole(line, Ok(text))),
                    _ => "the array is cut: the file ends in the middle of this record",
                };
                return Ok(Raw::whole(line, Err((Code::RowNotJson, what.into()))));
            }
            let (n, done) = part(&mut scan, buffer);
            too_long |= text.len() + n > RECORD_BYTES;
            if too_long {
                text = Vec::new();
            } else {
                text.extend_from_slice(&buffer[..n]);
            }
            self.bytes.consume(n);
            if done {
                break;
            }
        }
        let what = || (Code::TooLarge, format!("too large: a record has at most {RECORD_BYTES} bytes"));
        Ok(Raw::whole(line, if too_long { Err(what()) } else { Ok(text) }))
    }

    /// What cannot be read on: one last problem.
    fn broken(&mut self, what: &str) -> Outcome<Option<Raw>> {
        self.state = State::Done;
        Ok(Some(Raw::whole(self.bytes.line, Err((Code::RowNotJson, format!("not JSON: {what}"))))))
    }

    fn skip_space(&mut self) -> Outcome<Option<u8>> {
        loop {
            let buffer = self.bytes.peek()?;
            let n = buffer.iter().take_while(|b| b.is_ascii_whitespace()).count();
            if n == 0 {
                return self.bytes.byte();
            }
            self.bytes.consume(n);
        }
    }
}

/// How many bytes of the buffer belong to the element, and whether it ends with them.
pub(super) fn part(scan: &mut Scan, buffer: &[u8]) -> (usize, bool) {
    for (i, byte) in buffer.iter().enumerate() {
        if scan.ends_before(*byte) {
            return (i, true);
        }
        if scan.take(*byte) {
            return (i + 1, true);
        }
    }
    (buffer.len(), false)
}
