//! JSON lines: a record a line. Blank lines, CRLF and a missing last newline are as good as any.

use super::stream::{Bytes, Raw};
use protocol::limits::RECORD_BYTES;
use protocol::{Code, Outcome};

pub(super) struct Lines {
    pub(super) bytes: Bytes,
}

impl Lines {
    pub fn new(bytes: Bytes) -> Lines {
        Lines { bytes }
    }

    pub fn next(&mut self) -> Outcome<Option<Raw>> {
        loop {
            let line = self.bytes.line;
            let Some((text, too_long)) = self.line()? else { return Ok(None) };
            if too_long {
                let what = format!("too large: a record has at most {RECORD_BYTES} bytes");
                return Ok(Some(Raw::whole(line, Err((Code::TooLarge, what)))));
            }
            if !text.iter().all(u8::is_ascii_whitespace) {
                return Ok(Some(Raw::whole(line, Ok(text))));
            }
        }
    }

    /// The next line without its end; one that is too long is passed over without being kept.
    fn line(&mut self) -> Outcome<Option<(Vec<u8>, bool)>> {
        let mut text = Vec::new();
        let (mut too_long, mut any) = (false, false);
        loop {
            let buffer = self.bytes.peek()?;
            if buffer.is_empty() {
                break;
            }
            any = true;
            let end = buffer.iter().position(|b| *b == b'\n');
            let part = &buffer[..end.unwrap_or(buffer.len())];
            too_long |= text.len() + part.len() > RECORD_BYTES;
            if too_long {
                text = Vec::new();
            } else {
                text.extend_from_slice(part);
            }
            let n = part.len() + usize::from(end.is_some());
            self.bytes.consume(n);
            if end.is_some() {
                break;
            }
        }
        if text.last() == Some(&b'\r') {
            text.pop();
        }
        Ok(any.then_some((text, too_long)))
    }
}
