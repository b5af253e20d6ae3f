//! JSON lines from a socket, bounded, and safe to stop waiting for at any moment.

use protocol::{Code, Outcome, Problem, limits};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Reads lines of at most `limits::MESSAGE_BYTES`; the first must be a `Hello` of our protocol.
pub struct Lines<R> {
    stream: R,
    /// What was read and not given out; never longer than one message and one read.
    buffer: Vec<u8>,
    searched: usize,
    greeted: bool,
    who: &'static str,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Lines from `stream`; `who` names the other side in problems.
    pub fn new(stream: R, who: &'static str) -> Lines<R> {
        Lines { stream, buffer: Vec::new(), searched: 0, greeted: false, who }
    }

    /// The next message; `None` at the end of the stream. Nothing is lost when the future is dropped before it is ready.
    /// Errors: `ProtocolMismatch` for another version, `Internal` for a line that is too long or no message.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Outcome<Option<T>> {
        if !self.greeted {
            let Some(line) = self.line().await? else { return Ok(None) };
            self.greet(&line)?;
            self.greeted = true;
        }
        let Some(line) = self.line().await? else { return Ok(None) };
        serde_json::from_slice(&line).map(Some).map_err(|e| self.breach("a line that is no message", e.to_string()))
    }

    fn greet(&self, line: &[u8]) -> Outcome<()> {
        let hello: Result<protocol::link::Hello, _> = serde_json::from_slice(line);
        match hello {
            Ok(hello) if hello.protocol == limits::PROTOCOL => Ok(()),
            Ok(hello) => {
                let (ours, theirs) = (limits::PROTOCOL, hello.protocol);
                let what = format!("the {} speaks protocol {theirs}, this Anneal speaks {ours}", self.who);
                Err(Problem::new(Code::ProtocolMismatch, what)
                    .remedy("use anneal and anneal-trainer of the same release"))
            }
            Err(e) => Err(self.breach("no greeting first", e.to_string())),
        }
    }

    async fn line(&mut self) -> Outcome<Option<Vec<u8>>> {
        loop {
            if let Some(at) = self.buffer[self.searched..].iter().position(|b| *b == b'\n') {
                let end = self.searched + at;
                self.searched = 0;
                let line = self.buffer.drain(..=end).collect::<Vec<u8>>();
                return Ok(Some(line));
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > limits::MESSAGE_BYTES {
                return Err(self.breach("a line that is too long", format!("over {} bytes", limits::MESSAGE_BYTES)));
            }
            self.buffer.reserve(8192);
            match self.stream.read_buf(&mut self.buffer).await {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                // A side that died with unread messages resets the connection: it is gone all the same.
                Err(_) => return Ok(None),
            }
        }
    }

    fn breach(&self, what: &str, why: String) -> Problem {
        Problem::internal(format!("the {} sent {what}", self.who)).why(why)
    }
}

/// One message as a line.
pub fn line_of<T: serde::Serialize>(message: &T) -> Vec<u8> {
    // Our own messages are plain structures with string keys: they always serialise.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::link::Request;

    fn read(bytes: &[u8]) -> Vec<Outcome<Option<Request>>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut lines = Lines::new(bytes, "engine");
            let mut found = vec![];
            for _ in 0..4 {
                found.push(lines.next().await);
            }
            found
        })
    }

    #[test]
    fn messages_come_in_order_and_a_torn_one_is_none() {
        let found = read(b"{\"protocol\":1}\n{\"request\":\"ping\"}\n{\"request\":\"stop\"}\n{\"request\":");
        assert!(matches!(found[..], [Ok(Some(Request::Ping)), Ok(Some(Request::Stop)), Ok(None), Ok(None)]));
    }

    #[test]
    fn strangers_are_refused_by_what_they_say() {
        assert_eq!(read(b"{\"protocol\":2}\n")[0].as_ref().unwrap_err().code, Code::ProtocolMismatch);
        assert_eq!(read(b"GET / HTTP/1.1\n")[0].as_ref().unwrap_err().code, Code::Internal);
        assert_eq!(read(b"{\"protocol\":1}\n\xff\xff\n")[0].as_ref().unwrap_err().code, Code::Internal);
        let endless = vec![b'x'; 10 * limits::MESSAGE_BYTES];
        assert!(read(&endless)[0].as_ref().unwrap_err().what.contains("too long"));
    }
}
