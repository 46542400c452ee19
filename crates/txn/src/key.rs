//! Keys: typed parts, encoded so that bytes compare as the values do.
//!
//! | part | bytes |
//! | --- | --- |
//! | of a nullable column | 0 for NULL, else 1 and the value: NULL sorts first |
//! | `Bool` | 0 or 1 |
//! | `I32`, `I64` | big-endian, sign bit flipped |
//! | `F64` | big-endian; sign bit flipped if positive, all bits if negative |
//! | `Text`, `Bytes` | 0 as 0 0xff, all else as it is, then 0 0 |
//!
//! No encoded part is a prefix of another of the same column, so an encoded key
//! needs no lengths, and the keys that begin with certain parts are exactly
//! those between that prefix and its successor. The entry of a secondary index
//! is its columns followed by the primary key, which makes it unique.

mod part;
mod range;

use crate::column::Type;
use crate::error::SchemaError;
use crate::layout::Place;
use crate::row::Row;
use crate::schema::{Columns, Schema};
use crate::value::Value;

pub use part::{Encoder, Key, Part};
pub use range::KeyRange;
pub(crate) use range::Span;

/// Keys up to this length stay on the stack.
const INLINE: usize = 64;

/// An encoded key.
pub(crate) struct KeyBuf {
    length: usize,
    inline: [u8; INLINE],
    /// All of the key, if it is longer than `inline`.
    heap: Vec<u8>,
}

impl KeyBuf {
    #[inline]
    pub(crate) const fn new() -> KeyBuf {
        KeyBuf {
            length: 0,
            inline: [0; INLINE],
            heap: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        if self.length <= INLINE {
            &self.inline[..self.length]
        } else {
            &self.heap
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        if end <= INLINE {
            self.inline[self.length..end].copy_from_slice(bytes);
        } else {
            self.spill(bytes);
        }
        self.length = end;
    }

    #[cold]
    fn spill(&mut self, bytes: &[u8]) {
        if self.length <= INLINE {
            self.heap.clear();
            self.heap.extend_from_slice(&self.inline[..self.length]);
        }
        self.heap.extend_from_slice(bytes);
    }

    /// Replaces the key by the smallest that is larger than all it is a prefix
    /// of. False if there is none.
    #[must_use]
    fn succeed(&mut self) -> bool {
        let bytes = if self.length <= INLINE {
            &mut self.inline[..self.length]
        } else {
            &mut self.heap[..]
        };
        match bytes.iter().rposition(|&byte| byte != 0xff) {
            None => false,
            Some(at) => {
                bytes[at] += 1;
                let kept = KeyBuf::from(&bytes[..=at]);
                *self = kept;
                true
            }
        }
    }
}

impl From<&[u8]> for KeyBuf {
    #[inline]
    fn from(bytes: &[u8]) -> KeyBuf {
        let mut key = KeyBuf::new();
        key.push(bytes);
        key
    }
}

/// Which columns a key consists of. It holds for all later schemas of the table.
#[derive(Clone, Debug)]
pub(crate) struct KeySpec {
    /// Table or index, for messages.
    of: String,
    /// A schema that has its columns.
    schema: Schema,
    columns: Vec<KeyColumn>,
    /// The same as a set.
    set: Columns,
}

/// What encoding a column asks of the schema, all in one place.
#[derive(Clone, Copy, Debug)]
struct KeyColumn {
    /// In the schema.
    position: usize,
    place: Place,
    nullable: bool,
}

impl KeySpec {
    pub(crate) fn new(of: &str, schema: &Schema, columns: &[usize]) -> KeySpec {
        let of_schema = |&position: &usize| KeyColumn {
            position,
            place: schema.layout().places[position],
            nullable: schema.columns()[position].nullable,
        };
        let columns: Vec<KeyColumn> = columns.iter().map(of_schema).collect();
        let mut set = Columns::NONE;
        columns
            .iter()
            .for_each(|key| set.add(key.place.number.into()));
        KeySpec {
            of: of.to_owned(),
            schema: schema.clone(),
            columns,
            set,
        }
    }

    /// Whether the key is the same after these columns were touched.
    #[inline]
    pub(crate) fn is_kept(&self, touched: Columns) -> bool {
        !self.set.meet(touched)
    }

    /// The numbers of its columns.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = usize> {
        self.columns.iter().map(|key| key.place.number.into())
    }

    /// Encodes a whole key.
    #[inline]
    pub(crate) fn whole(&self, key: &impl Key, out: &mut KeyBuf) -> Result<(), SchemaError> {
        if key.parts() != self.columns.len() {
            return Err(self.wrong_parts(key.parts()));
        }
        key.encode(&mut Encoder::new(self, out))
    }

    /// Encodes the first parts of a key.
    #[inline]
    fn prefix(&self, key: &impl Key, out: &mut KeyBuf) -> Result<(), SchemaError> {
        if key.parts() > self.columns.len() {
            return Err(self.wrong_parts(key.parts()));
        }
        key.encode(&mut Encoder::new(self, out))
    }

    #[cold]
    fn wrong_parts(&self, given: usize) -> SchemaError {
        SchemaError::KeyParts {
            of: self.of.clone(),
            expected: self.columns.len(),
            given,
        }
    }

    /// Whether a part of a row's key is NULL.
    pub(crate) fn has_null(&self, bytes: &[u8]) -> bool {
        let layout = self.schema.layout();
        let null = |key: &KeyColumn| key.nullable && layout.is_null(bytes, key.place);
        self.columns.iter().any(null)
    }

    /// The values of a row's key, for messages.
    pub(crate) fn values(&self, bytes: &[u8]) -> Vec<Value> {
        let row = Row::new(&self.schema, bytes);
        self.columns
            .iter()
            .map(|key| row.value(key.position))
            .collect()
    }

    /// Appends the key of a row with these bytes, whatever schema it was made with.
    #[inline]
    pub(crate) fn of_row(&self, bytes: &[u8], out: &mut KeyBuf) {
        let layout = self.schema.layout();
        for &KeyColumn {
            place, nullable, ..
        } in &self.columns
        {
            if nullable {
                let null = layout.is_null(bytes, place);
                out.push(&[u8::from(!null)]);
                if null {
                    continue;
                }
            }
            match place.ty {
                Type::Bool => out.push(&[u8::from(layout.fixed::<1>(bytes, place) != [0])]),
                Type::I32 => push_i32(i32::from_le_bytes(layout.fixed(bytes, place)), out),
                Type::I64 => push_i64(i64::from_le_bytes(layout.fixed(bytes, place)), out),
                Type::F64 => push_f64(f64::from_le_bytes(layout.fixed(bytes, place)), out),
                Type::Text | Type::Bytes => push_variable(layout.variable(bytes, place), out),
            }
        }
    }
}

#[inline]
fn push_i32(value: i32, out: &mut KeyBuf) {
    out.push(&(value as u32 ^ 1 << 31).to_be_bytes());
}

#[inline]
fn push_i64(value: i64, out: &mut KeyBuf) {
    out.push(&(value as u64 ^ 1 << 63).to_be_bytes());
}

#[inline]
fn push_f64(value: f64, out: &mut KeyBuf) {
    let bits = value.to_bits();
    let mask = if bits >> 63 == 1 { u64::MAX } else { 1 << 63 };
    out.push(&(bits ^ mask).to_be_bytes());
}

#[inline]
fn push_variable(value: &[u8], out: &mut KeyBuf) {
    let mut rest = value;
    while let Some(zero) = rest.iter().position(|&byte| byte == 0) {
        out.push(&rest[..zero]);
        out.push(&[0, 0xff]);
        rest = &rest[zero + 1..];
    }
    out.push(rest);
    out.push(&[0, 0]);
}

#[cfg(test)]
mod tests;
