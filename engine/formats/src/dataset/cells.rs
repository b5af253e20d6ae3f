//! Cells of Arrow columns as values. A null field of a structure is a key that the row does not have: tables give every
//! row the keys of all others.
//!
//! Not here: which rows are read when (`columns`).

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, OffsetSizeTrait, RecordBatch, StructArray};
use arrow_schema::{DataType, FieldRef, TimeUnit};
use minijinja::Value;
use protocol::limits::RECORD_BYTES;
use protocol::{Code, limits};

/// Why a row gives no record.
type Bad = (Code, String);
/// What a cell costs beside its text, in bytes.
const CELL: usize = 16;

/// Row `at` of a batch under its columns' names, and the bytes that it takes decoded.
pub(super) fn row(batch: &RecordBatch, names: &[Value], at: usize) -> (Result<Value, Bad>, usize) {
    let mut room = Room(RECORD_BYTES);
    let mut cells = Vec::with_capacity(names.len());
    for (name, column) in names.iter().zip(batch.columns()) {
        match cell(column, at, &mut room) {
            Ok(value) => cells.push((name.clone(), value)),
            Err(bad) => return (Err(bad), RECORD_BYTES - room.0),
        }
    }
    (Ok(Value::from_pairs(cells)), RECORD_BYTES - room.0)
}

/// The first column whose type has no meaning in a row, and that type.
pub(super) fn unread(fields: &[FieldRef]) -> Option<(String, String)> {
    let bad = fields.iter().find(|field| !is_read(field.data_type(), 0))?;
    Some((bad.name().clone(), bad.data_type().to_string().chars().take(100).collect()))
}

fn is_read(kind: &DataType, depth: usize) -> bool {
    use DataType::*;
    let inner = |field: &FieldRef| is_read(field.data_type(), depth + 1);
    match kind {
        _ if depth > limits::JSON_DEPTH / 2 => false,
        List(field) | LargeList(field) | FixedSizeList(field, _) | Map(field, _) => inner(field),
        Struct(fields) => fields.iter().all(inner),
        Dictionary(_, value) => is_read(value, depth + 1),
        Null | Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 => true,
        Float16 | Float32 | Float64 | Utf8 | LargeUtf8 | Utf8View => true,
        Binary | LargeBinary | BinaryView | FixedSizeBinary(_) | Date32 | Date64 | Timestamp(..) => true,
        Decimal128(..) | Decimal256(..) => true,
        _ => false,
    }
}

/// Bytes that a record may still take.
struct Room(usize);

impl Room {
    fn take(&mut self, bytes: usize) -> Result<(), Bad> {
        match self.0.checked_sub(bytes) {
            Some(left) => {
                self.0 = left;
                Ok(())
            }
            None => {
                self.0 = 0;
                Err((Code::TooLarge, format!("too large: a record has at most {RECORD_BYTES} bytes")))
            }
        }
    }
}

macro_rules! number {
    ($array:expr, $at:expr, $kind:ty) => {
        Value::from($array.as_primitive::<$kind>().value($at))
    };
}

fn cell(array: &dyn Array, at: usize, room: &mut Room) -> Result<Value, Bad> {
    use DataType::*;
    room.take(CELL)?;
    if array.is_null(at) {
        return Ok(Value::from(()));
    }
    Ok(match array.data_type() {
        Null => Value::from(()),
        Boolean => Value::from(array.as_boolean().value(at)),
        Int8 => number!(array, at, Int8Type),
        Int16 => number!(array, at, Int16Type),
        Int32 => number!(array, at, Int32Type),
        Int64 => number!(array, at, Int64Type),
        UInt8 => number!(array, at, UInt8Type),
        UInt16 => number!(array, at, UInt16Type),
        UInt32 => number!(array, at, UInt32Type),
        UInt64 => number!(array, at, UInt64Type),
        Float16 => Value::from(array.as_primitive::<Float16Type>().value(at).to_f32()),
        Float32 => number!(array, at, Float32Type),
        Float64 => number!(array, at, Float64Type),
        Utf8 => text(array.as_string::<i32>().value(at), room)?,
        LargeUtf8 => text(array.as_string::<i64>().value(at), room)?,
        Utf8View => text(array.as_string_view().value(at), room)?,
        Binary => bytes(array.as_binary::<i32>().value(at), room)?,
        LargeBinary => bytes(array.as_binary::<i64>().value(at), room)?,
        BinaryView => bytes(array.as_binary_view().value(at), room)?,
        FixedSizeBinary(_) => bytes(array.as_fixed_size_binary().value(at), room)?,
        List(_) => list::<i32>(array, at, room)?,
        LargeList(_) => list::<i64>(array, at, room)?,
        FixedSizeList(..) => all(&array.as_fixed_size_list().value(at), room)?,
        Map(..) => entries(&array.as_map().value(at), room)?,
        Struct(_) => object(array.as_struct(), at, room)?,
        Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            cell(dictionary.values(), key(dictionary.keys(), at)?, room)?
        }
        _ => text(&written(array, at)?, room)?,
    })
}

/// Dates, times and decimal numbers, as people write them.
fn written(array: &dyn Array, at: usize) -> Result<String, Bad> {
    use DataType::*;
    macro_rules! time {
        ($kind:ty) => {
            array.as_primitive::<$kind>().value_as_datetime(at).map(|time| time.to_string())
        };
    }
    let written = match array.data_type() {
        Date32 => array.as_primitive::<Date32Type>().value_as_date(at).map(|day| day.to_string()),
        Date64 => array.as_primitive::<Date64Type>().value_as_date(at).map(|day| day.to_string()),
        Timestamp(TimeUnit::Second, _) => time!(TimestampSecondType),
        Timestamp(TimeUnit::Millisecond, _) => time!(TimestampMillisecondType),
        Timestamp(TimeUnit::Microsecond, _) => time!(TimestampMicrosecondType),
        Timestamp(TimeUnit::Nanosecond, _) => time!(TimestampNanosecondType),
        Decimal128(..) => Some(array.as_primitive::<Decimal128Type>().value_as_string(at)),
        Decimal256(..) => Some(array.as_primitive::<Decimal256Type>().value_as_string(at)),
        _ => None,
    };
    written.ok_or_else(|| (Code::RowInvalid, format!("a value of type {} is out of its range", array.data_type())))
}

fn text(text: &str, room: &mut Room) -> Result<Value, Bad> {
    room.take(text.len())?;
    Ok(Value::from(text))
}

/// Bytes that are text are text.
fn bytes(bytes: &[u8], room: &mut Room) -> Result<Value, Bad> {
    room.take(bytes.len())?;
    Ok(match std::str::from_utf8(bytes) {
        Ok(text) => Value::from(text),
        Err(_) => Value::from_bytes(bytes.to_vec()),
    })
}

fn list<O: OffsetSizeTrait>(array: &dyn Array, at: usize, room: &mut Room) -> Result<Value, Bad> {
    all(&array.as_list::<O>().value(at), room)
}

fn all(array: &dyn Array, room: &mut Room) -> Result<Value, Bad> {
    let mut values = Vec::new();
    for at in 0..array.len() {
        values.push(cell(array, at, room)?);
    }
    Ok(Value::from_iter(values))
}

fn object(array: &StructArray, at: usize, room: &mut Room) -> Result<Value, Bad> {
    let mut pairs = Vec::new();
    for (field, column) in array.fields().iter().zip(array.columns()) {
        let value = cell(column, at, room)?;
        if !value.is_none() {
            pairs.push((Value::from(field.name().as_str()), value));
        }
    }
    Ok(Value::from_pairs(pairs))
}

/// A map: its keys are as they are in this row, so that a null value is one.
fn entries(array: &StructArray, room: &mut Room) -> Result<Value, Bad> {
    let mut pairs = Vec::new();
    if let [keys, values] = array.columns() {
        for at in 0..array.len() {
            pairs.push((cell(keys, at, room)?, cell(values, at, room)?));
        }
    }
    Ok(Value::from_pairs(pairs))
}

/// The entry of a dictionary that a row stands for.
fn key(keys: &dyn Array, at: usize) -> Result<usize, Bad> {
    macro_rules! index {
        ($kind:ty) => {
            usize::try_from(keys.as_primitive::<$kind>().value(at)).ok()
        };
    }
    let index = match keys.data_type() {
        DataType::Int8 => index!(Int8Type),
        DataType::Int16 => index!(Int16Type),
        DataType::Int32 => index!(Int32Type),
        DataType::Int64 => index!(Int64Type),
        DataType::UInt8 => index!(UInt8Type),
        DataType::UInt16 => index!(UInt16Type),
        DataType::UInt32 => index!(UInt32Type),
        DataType::UInt64 => index!(UInt64Type),
        _ => None,
    };
    index.ok_or_else(|| (Code::RowInvalid, "a dictionary has no such entry".into()))
}
