//! The repository's files, and Rust sources with comments and literals blanked out, so that `tidy` can look for words of
//! the language alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Folders that are made, not written.
const MADE: [&str; 5] = [".git", "target", "dist", "node_modules", "proptest-regressions"];

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// All written files below the root, sorted, relative to it.
pub fn files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(&root(), &mut found);
    let mut files: Vec<PathBuf> = found.iter().map(|f| f.strip_prefix(root()).unwrap().to_path_buf()).collect();
    files.sort();
    files
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && !MADE.iter().any(|made| entry.file_name() == *made) {
            walk(&entry.path(), found);
        } else if kind.is_file() && entry.file_name() != ".git" {
            found.push(entry.path());
        }
    }
}

/// Text of a file; `None` where it is not UTF-8.
pub fn text(file: &Path) -> Option<String> {
    String::from_utf8(fs::read(root().join(file)).unwrap()).ok()
}

/// A Rust file.
pub struct Source {
    /// Relative to the root.
    pub path: PathBuf,
    /// As written.
    pub text: String,
    /// Comments, strings and characters replaced by spaces; lines and columns are kept.
    pub code: String,
}

/// All Rust files, read once.
pub fn sources() -> &'static [Source] {
    static SOURCES: OnceLock<Vec<Source>> = OnceLock::new();
    let rust = || files().into_iter().filter(|f| f.extension().is_some_and(|e| e == "rs"));
    let read = |path: PathBuf| {
        let text = text(&path).unwrap();
        let code = blank(&text);
        Source { path, text, code }
    };
    SOURCES.get_or_init(|| rust().map(read).collect())
}

/// Replaces comments, strings and character literals by spaces, byte for byte.
pub fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match literal(bytes, at) {
            Some(end) => end,
            None => {
                at += 1;
                continue;
            }
        };
        code[at..end].iter_mut().filter(|b| **b != b'\n').for_each(|b| *b = b' ');
        at = end;
    }
    String::from_utf8(code.iter().map(|b| if b.is_ascii() { *b } else { b'_' }).collect()).unwrap()
}

/// End of the comment or literal that begins here.
fn literal(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    let fresh = at == 0 || !(bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    match rest {
        [b'/', b'/', ..] => Some(at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())),
        [b'/', b'*', ..] => Some(at + block_comment(rest)),
        [b'"', ..] => Some(at + string(rest, 1)),
        [b'b' | b'c', b'"', ..] if fresh => Some(at + string(rest, 2)),
        [b'r', b'"' | b'#', ..] if fresh => raw(rest, 1).map(|n| at + n),
        [b'b' | b'c', b'r', b'"' | b'#', ..] if fresh => raw(rest, 2).map(|n| at + n),
        [b'\'', ..] => character(rest).map(|n| at + n),
        _ => None,
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string(rest: &[u8], open: usize) -> usize {
    let mut at = open;
    while at < rest.len() && rest[at] != b'"' {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// r"…", r#"…"#; `None` for a raw identifier.
fn raw(rest: &[u8], prefix: usize) -> Option<usize> {
    let hashes = rest[prefix..].iter().take_while(|b| **b == b'#').count();
    let open = prefix + hashes + 1;
    if rest.get(open - 1) != Some(&b'"') {
        return None;
    }
    let close = [vec![b'"'], vec![b'#'; hashes]].concat();
    let length = rest[open..].windows(close.len()).position(|w| w == close);
    Some(length.map_or(rest.len(), |n| open + n + close.len()))
}

/// 'x' or '\n'; `None` for a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    let text =
        std::str::from_utf8(&rest[..rest.len().min(16)]).or_else(|e| std::str::from_utf8(&rest[..e.valid_up_to()]));
    let mut chars = text.ok()?.char_indices().skip(1);
    let (_, first) = chars.next()?;
    if first == '\\' {
        let close = rest.iter().skip(3).position(|b| *b == b'\'')?;
        return Some(close + 4);
    }
    let (at, second) = chars.next()?;
    (second == '\'').then_some(at + 1)
}

/// A function of a source.
pub struct Function {
    /// Name.
    pub name: String,
    /// Line of `fn`, from 1.
    pub line: usize,
    /// Lines from `fn` to the closing brace.
    pub lines: usize,
}

/// All functions with a body.
pub fn functions(source: &Source) -> Vec<Function> {
    let start = regex::Regex::new(r"\bfn\s+([A-Za-z_0-9]+)").unwrap();
    let ends: Vec<usize> = source.code.match_indices('\n').map(|(at, _)| at).collect();
    let line = |at: usize| ends.partition_point(|end| *end < at) + 1;
    let found = start.captures_iter(&source.code).filter_map(|c| {
        let at = c.get(0).unwrap().start();
        let end = body_end(&source.code[at..])? + at;
        Some(Function { name: c[1].to_owned(), line: line(at), lines: line(end) - line(at) + 1 })
    });
    found.collect()
}

/// Where the braces opened after `fn` close; `None` for a declaration without a body.
fn body_end(code: &str) -> Option<usize> {
    let open = code.find(['{', ';'])?;
    // An array type like [f32; 4] in the signature holds a semicolon too.
    let open = if code.as_bytes()[open] == b';' && code[..open].matches('[').count() > code[..open].matches(']').count()
    {
        open + code[open..].find('{')?
    } else {
        open
    };
    if code.as_bytes()[open] == b';' {
        return None;
    }
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

#[test]
fn literals_and_comments_are_blanked_and_nothing_else() {
    let text = "a('x', '\\'', \"q\\\"}\", r#\"}\"#, b\"}\"); // }\nfn f<'a>(x: &'a str) {} /* /* } */ } */ done";
    let code = blank(text);
    assert_eq!(code.len(), text.len());
    assert_eq!(code.matches('}').count(), 1, "{code}");
    assert!(code.contains("fn f<'a>(x: &'a str) {}") && code.ends_with("done"), "{code}");
}

#[test]
fn functions_are_measured_from_their_name_to_their_brace() {
    let text = "fn a(x: [f32; 2]) -> u8 {\n  { }\n}\ntrait T { fn none(&self); }\nfn b() {}\n".to_owned();
    let source = Source { path: "x.rs".into(), code: blank(&text), text };
    let found: Vec<(String, usize)> = functions(&source).into_iter().map(|f| (f.name, f.lines)).collect();
    assert_eq!(found, [("a".to_owned(), 3), ("b".to_owned(), 1)]);
}
