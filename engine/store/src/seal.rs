//! A JSON object that ends with its own checksum: `{…,"sum":"<16 hex digits>"}`, XXH3-64 of all bytes before `,"sum"`.
//! Journal lines and manifests carry it. The tail is compared literally, so no byte of a sealed object can change unseen.

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of `,"sum":"0123456789abcdef"}`.
const TAIL_BYTES: usize = 26;

/// Appends `value` as a sealed object to `out`; nothing is appended where it is no JSON object with at least one key.
pub fn write<T: Serialize>(out: &mut Vec<u8>, value: &T) -> serde_json::Result<()> {
    let start = out.len();
    let result = serde_json::to_writer(&mut *out, value);
    if result.is_err() || !out.ends_with(b"}") {
        out.truncate(start);
        return result.and_then(|()| Err(serde::ser::Error::custom("only an object can be sealed")));
    }
    out.pop();
    let tail = tail(&out[start..]);
    out.extend_from_slice(&tail);
    Ok(())
}

/// True where `text` is a sealed object that nobody has touched.
pub fn is_whole(text: &[u8]) -> bool {
    text.len() > TAIL_BYTES && {
        let (head, found) = text.split_at(text.len() - TAIL_BYTES);
        found == tail(head)
    }
}

/// Without an allocation: a burst of metrics has half a million of them.
fn tail(head: &[u8]) -> [u8; TAIL_BYTES] {
    let (mut tail, sum) = (*b",\"sum\":\"0000000000000000\"}", xxh3_64(head));
    for (i, digit) in tail[8..24].iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(sum >> (60 - 4 * i)) as usize % 16];
    }
    tail
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_any_bit_is_found() {
        let mut text = Vec::new();
        write(&mut text, &serde_json::json!({"a": 1, "b": "x"})).unwrap();
        assert!(is_whole(&text));
        assert!(serde_json::from_slice::<serde_json::Value>(&text).is_ok());
        for bit in 0..text.len() * 8 {
            text[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_whole(&text), "bit {bit}");
            text[bit / 8] ^= 1 << (bit % 8);
        }
        assert!((0..text.len()).all(|n| !is_whole(&text[..n])));
    }

    #[test]
    fn only_objects_are_sealed() {
        let mut text = b"before".to_vec();
        assert!(write(&mut text, &3).is_err());
        assert_eq!(text, b"before");
    }
}
