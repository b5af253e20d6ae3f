//! A JSON array of records, streamed: only where an element ends is found here, its parser sees it alone.

use super::stream::{Bytes, Raw};
use protocol::limits::RECORD_BYTES;
use protocol::{Code, Outcome};

pub(super) struct Array {
    pub(super) bytes: Bytes,
    state: State,
}

#[derive(PartialEq)]
enum State {
    Start,
    /// After an element or the opening bracket.
    Between {
        first: bool,
    },
    Done,
}

/// Follows strings and brackets of one element.
#[derive(Default)]
struct Scan {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Scan {
    /// Takes a byte of the element in; true when the element is complete with it.
    fn take(&mut self, byte: u8) -> bool {
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
    fn ends_before(&self, byte: u8) -> bool {
        self.depth == 0 && !self.in_string && (matches!(byte, b',' | b']') || byte.is_ascii_whitespace())
    }
}

impl Array {
    pub fn new(bytes: Bytes) -> Array {
        Array { bytes, state: State::Start }
    }

    pub fn next(&mut self) -> Outcome<Option<Raw>> {
        match self.state {
            State::Done => return Ok(None),
            State::Start => {
                if self.skip_space()? != Some(b'[') {
                    return self.broken("the file does not begin with an array");
                }
                self.bytes.consume(1);
                self.state = State::Between { first: true };
            }
            State::Between { .. } => {}
        }
        let first = self.state == State::Between { first: true };
        self.state = State::Between { first: false };
        match self.skip_space()? {
            Some(b']') => self.end(),
            Some(b',') if !first => {
                self.bytes.consume(1);
                match self.skip_space()? {
                    Some(b']' | b',') => self.broken("a comma with no record behind it"),
                    _ => self.element().map(Some),
                }
            }
            Some(b',') => self.broken("a comma with no record before it"),
            Some(_) if first => self.element().map(Some),
            Some(_) => self.broken("two records without a comma between them"),
            None => self.broken("the array is cut: the file ends before it does"),
        }
    }

    /// After the closing bracket only white space may follow.
    fn end(&mut self) -> Outcome<Option<Raw>> {
        self.bytes.consume(1);
        self.state = State::Done;
        match self.skip_space()? {
            None => Ok(None),
            Some(_) => self.broken("something follows after the end of the array"),
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
                let what = "the array is cut: the file ends in the middle of this record";
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
fn part(scan: &mut Scan, buffer: &[u8]) -> (usize, bool) {
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
