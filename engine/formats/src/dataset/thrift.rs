//! Just enough of Thrift's compact protocol to check a Parquet file before its reader sees it: lists that are longer than
//! what holds them, structures nested without end, pages that say they unpack to gigabytes.
//!
//! Not here: what the fields mean beyond that (the crate `parquet` reads them).

use std::io::Read;

/// Deepest nesting of structures; the format's own go to 8.
const DEPTH: usize = 24;

/// Why a structure cannot be followed.
pub(super) type Broken = &'static str;

/// Bytes that hold structures, at most `left` of them.
pub(super) struct Compact<R> {
    from: R,
    left: u64,
}

/// A page of a column, as its header tells.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Page {
    /// Bytes of the header.
    pub header: u64,
    /// Bytes behind it.
    pub packed: i64,
    /// Bytes that those unpack to.
    pub unpacked: i64,
    /// Entries, nulls included; 0 for a dictionary.
    pub values: i64,
}

impl<R: Read> Compact<R> {
    pub fn new(from: R, left: u64) -> Compact<R> {
        Compact { from, left }
    }

    /// Reads the header of a page.
    pub fn page(&mut self) -> Result<Page, Broken> {
        let before = self.left;
        let (mut page, mut last) = (Page::default(), 0);
        while let Some((id, kind)) = self.field(&mut last)? {
            match (id, kind) {
                (2, I32) => page.unpacked = self.number()?,
                (3, I32) => page.packed = self.number()?,
                (5 | 8, STRUCT) => page.values = self.first_number()?,
                _ => self.skip(kind, 0)?,
            }
        }
        page.header = before - self.left;
        Ok(page)
    }

    /// Follows a footer; its schema may nest `deepest` levels.
    pub fn footer(&mut self, deepest: usize) -> Result<(), Broken> {
        let mut last = 0;
        while let Some((id, kind)) = self.field(&mut last)? {
            match (id, kind) {
                (2, LIST) => self.schema(deepest)?,
                _ => self.skip(kind, 0)?,
            }
        }
        Ok(())
    }

    /// The schema is a tree, written as a list in which every element says how many children follow.
    fn schema(&mut self, deepest: usize) -> Result<(), Broken> {
        let (n, kind) = self.list()?;
        if kind != STRUCT {
            return Err("its schema is no list of columns");
        }
        let mut open: Vec<u64> = Vec::new();
        for _ in 0..n {
            while open.last() == Some(&0) {
                open.pop();
            }
            if let Some(children) = open.last_mut() {
                *children -= 1;
            }
            let (mut last, mut children) = (0, 0);
            while let Some((id, kind)) = self.field(&mut last)? {
                match (id, kind) {
                    (5, I32) => children = self.number()?,
                    _ => self.skip(kind, 0)?,
                }
            }
            if children < 0 || children as u64 > n {
                return Err("its schema announces more columns than it has");
            }
            if children > 0 {
                open.push(children as u64);
            }
            if open.len() > deepest {
                return Err("its columns are nested too deeply");
            }
        }
        Ok(())
    }

    /// The number of field 1 of a structure.
    fn first_number(&mut self) -> Result<i64, Broken> {
        let (mut number, mut last) = (0, 0);
        while let Some((id, kind)) = self.field(&mut last)? {
            match (id, kind) {
                (1, I32) => number = self.number()?,
                _ => self.skip(kind, 1)?,
            }
        }
        Ok(number)
    }

    /// The next field of a structure; None at its end.
    fn field(&mut self, last: &mut i64) -> Result<Option<(i64, u8)>, Broken> {
        let head = self.byte()?;
        if head == 0 {
            return Ok(None);
        }
        *last = match head >> 4 {
            0 => self.number()?,
            more => last.checked_add(i64::from(more)).ok_or("a field has no number")?,
        };
        Ok(Some((*last, head & 15)))
    }

    fn list(&mut self) -> Result<(u64, u8), Broken> {
        let head = self.byte()?;
        let n = match head >> 4 {
            15 => self.varint()?,
            n => u64::from(n),
        };
        // Every element takes at least a byte.
        if n > self.left {
            return Err("a list is longer than what holds it");
        }
        Ok((n, head & 15))
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Result<(), Broken> {
        if depth > DEPTH {
            return Err("it is nested too deeply");
        }
        match kind {
            TRUE | FALSE => Ok(()),
            BYTE => self.byte().map(|_| ()),
            I16 | I32 | I64 => self.varint().map(|_| ()),
            DOUBLE => self.pass(8),
            BINARY => {
                let n = self.varint()?;
                self.pass(n)
            }
            LIST | SET => {
                let (n, kind) = self.list()?;
                (0..n).try_for_each(|_| match kind {
                    TRUE | FALSE => self.byte().map(|_| ()),
                    kind => self.skip(kind, depth + 1),
                })
            }
            STRUCT => {
                let mut last = 0;
                while let Some((_, kind)) = self.field(&mut last)? {
                    self.skip(kind, depth + 1)?;
                }
                Ok(())
            }
            _ => Err("a field has an unknown type"),
        }
    }

    fn pass(&mut self, n: u64) -> Result<(), Broken> {
        if n > self.left {
            return Err("a text is longer than what holds it");
        }
        self.left -= n;
        match std::io::copy(&mut self.from.by_ref().take(n), &mut std::io::sink()) {
            Ok(read) if read == n => Ok(()),
            _ => Err("it is cut"),
        }
    }

    fn number(&mut self) -> Result<i64, Broken> {
        let n = self.varint()?;
        Ok((n >> 1) as i64 ^ -((n & 1) as i64))
    }

    fn varint(&mut self) -> Result<u64, Broken> {
        let mut n = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            n |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Ok(n);
            }
        }
        Err("a number has no end")
    }

    fn byte(&mut self) -> Result<u8, Broken> {
        let mut byte = [0];
        self.left = self.left.checked_sub(1).ok_or("it is cut")?;
        self.from.read_exact(&mut byte).map_err(|_| "it is cut")?;
        Ok(byte[0])
    }
}

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const STRUCT: u8 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    fn page(bytes: &[u8]) -> Result<Page, Broken> {
        Compact::new(bytes, bytes.len() as u64).page()
    }

    #[test]
    fn a_page_header_tells_its_sizes_and_entries() {
        // type 0, unpacked 300, packed 7, data page header { 5 values, encoding 0 }, end.
        let bytes = [0x15, 0, 0x15, 0xd8, 0x04, 0x15, 14, 0x2c, 0x15, 10, 0x15, 0, 0, 0];
        assert_eq!(page(&bytes), Ok(Page { header: 14, packed: 7, unpacked: 300, values: 5 }));
        for n in 0..bytes.len() {
            assert!(page(&bytes[..n]).is_err(), "{n}");
        }
    }

    #[test]
    fn lists_longer_than_the_file_and_endless_nesting_are_broken() {
        let long = [0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07];
        let deep = [0x1c; 1000];
        for bytes in [&long[..], &deep] {
            assert!(Compact::new(bytes, bytes.len() as u64).footer(64).is_err());
        }
        // A schema in which every column holds the next: [{5: 1}, {5: 1}, …].
        let mut schema = vec![0x29, 0xfc, 100];
        (0..100).for_each(|_| schema.extend([0x55, 2, 0]));
        schema.push(0);
        let follow = |deepest| Compact::new(&schema[..], schema.len() as u64).footer(deepest);
        assert_eq!(follow(64), Err("its columns are nested too deeply"));
        assert_eq!(follow(101), Ok(()));
    }
}
