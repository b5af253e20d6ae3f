//! A row's own text for a report: its beginning, with nothing in it that moves a cursor or turns the reading direction.

use protocol::limits::ROW_TEXT;

/// The beginning of a text, escaped.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    // Four bytes a character are enough, and a record may be long.
    let start = &bytes[..bytes.len().min(4 * ROW_TEXT + 4)];
    let mut text = String::new();
    let mut left = ROW_TEXT;
    for chunk in start.utf8_chunks() {
        for c in chunk.valid().chars() {
            if left == 0 {
                return text + "…";
            }
            left -= 1;
            match c {
                c if c.is_control() => text.extend(c.escape_default()),
                '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                    text.extend(c.escape_unicode())
                }
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            if left == 0 {
                return text + "…";
            }
            left -= 1;
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    if start.len() < bytes.len() { text + "…" } else { text }
}

/// Text of the code page that most files in western languages have that are not UTF-8 (WHATWG's windows-1252: every byte
/// is a character).
pub(super) fn windows_1252(bytes: &[u8]) -> String {
    const HIGH: [char; 32] = [
        '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}', '\u{90}', '‘',
        '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
    ];
    let of = |byte: &u8| match byte {
        0x80..=0x9f => HIGH[usize::from(byte - 0x80)],
        _ => char::from(*byte),
    };
    bytes.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_short_and_shows_what_cannot_be_seen() {
        assert_eq!(excerpt("a\n\u{202e}\u{1b}[31mé".as_bytes()), "a\\n\\u{202e}\\u{1b}[31mé");
        assert_eq!(excerpt(b"caf\xe9!"), "caf\\xe9!");
        let long = excerpt("é".repeat(5000).as_bytes());
        assert_eq!((long.chars().count(), long.ends_with('…')), (ROW_TEXT + 1, true));
        assert_eq!(excerpt("x".repeat(ROW_TEXT).as_bytes()).chars().count(), ROW_TEXT);
    }

    #[test]
    fn every_byte_is_a_character_of_the_code_page() {
        assert_eq!(windows_1252(b"na\xefve \x80 \x93q\x94"), "naïve € “q”");
    }
}
