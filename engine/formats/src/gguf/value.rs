//! Metadata of a GGUF file: typed values under names, as the file holds them.
//!
//! Not here: reading and checking them (`header`), what they mean (`config`, `vocabulary`).

/// One value of the metadata.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(String),
    Array(Array),
}

/// Values of one type, packed: a vocabulary takes little more memory than it has bytes.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bool(Vec<bool>),
    Strings(Strings),
    /// Arrays of arrays.
    Arrays(Vec<Array>),
}

/// Many strings in one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strings {
    text: String,
    ends: Vec<u32>,
}

impl Strings {
    /// Adds one; false where the whole would pass what an offset can say.
    pub fn push(&mut self, text: &str) -> bool {
        let Ok(end) = u32::try_from(self.text.len() + text.len()) else { return false };
        self.text.push_str(text);
        self.ends.push(end);
        true
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at a place.
    pub fn get(&self, i: usize) -> Option<&str> {
        let end = *self.ends.get(i)? as usize;
        let begin = i.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        self.text.get(begin..end)
    }

    /// All of them in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|i| self.get(i))
    }
}

impl<S: AsRef<str>> FromIterator<S> for Strings {
    fn from_iter<I: IntoIterator<Item = S>>(all: I) -> Strings {
        let mut strings = Strings::default();
        all.into_iter().all(|text| strings.push(text.as_ref()));
        strings
    }
}

impl Value {
    /// A whole number of any width.
    pub fn whole(&self) -> Option<u64> {
        match *self {
            Value::U8(n) => Some(n.into()),
            Value::U16(n) => Some(n.into()),
            Value::U32(n) => Some(n.into()),
            Value::U64(n) => Some(n),
            Value::I8(n) => n.try_into().ok(),
            Value::I16(n) => n.try_into().ok(),
            Value::I32(n) => n.try_into().ok(),
            Value::I64(n) => n.try_into().ok(),
            _ => None,
        }
    }

    /// A number of any kind. One of 32 bits is the shortest decimal that rounds to it: 1e-5, not 0.00000999999974….
    pub fn number(&self) -> Option<f64> {
        match *self {
            Value::F32(x) => x.to_string().parse().ok(),
            Value::F64(x) => Some(x),
            _ => self.whole().map(|n| n as f64),
        }
    }

    /// A text.
    pub fn text(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// A truth value.
    pub fn flag(&self) -> Option<bool> {
        match self {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    /// A list of texts.
    pub fn strings(&self) -> Option<&Strings> {
        match self {
            Value::Array(Array::Strings(strings)) => Some(strings),
            _ => None,
        }
    }

    /// A list of whole numbers of any width, all of which fit.
    pub fn integers(&self) -> Option<Vec<i64>> {
        fn wide<T: Copy + TryInto<i64>>(all: &[T]) -> Option<Vec<i64>> {
            all.iter().map(|n| (*n).try_into().ok()).collect()
        }
        match self {
            Value::Array(Array::U8(all)) => wide(all),
            Value::Array(Array::I8(all)) => wide(all),
            Value::Array(Array::U16(all)) => wide(all),
            Value::Array(Array::I16(all)) => wide(all),
            Value::Array(Array::U32(all)) => wide(all),
            Value::Array(Array::I32(all)) => wide(all),
            Value::Array(Array::U64(all)) => wide(all),
            Value::Array(Array::I64(all)) => wide(all),
            _ => None,
        }
    }

    /// A list of 32-bit numbers.
    pub fn floats(&self) -> Option<&[f32]> {
        match self {
            Value::Array(Array::F32(all)) => Some(all),
            _ => None,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(text.to_owned())
    }
}
