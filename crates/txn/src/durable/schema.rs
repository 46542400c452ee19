//! Schemas as bytes, in the log and in checkpoints.
//!
//! ```text
//! 0xffffffff │ name │ columns in the base │ columns: (name, type 1, flags 1, initial)
//!            │ primary key: columns │ indexes: (name, unique 1, columns)
//! ```
//!
//! Names, lists and initial values begin with their length, numbers have four bytes.
//! The columns are all that there ever were, keys have their numbers. Flags: 1 for one
//! that may be NULL, 2 for one that was dropped.
//!
//! Before format version 3 there were no columns but those of the base, and no unique
//! indexes:
//!
//! ```text
//! name │ columns: (name, type 1, nullable 1) │ primary key │ indexes: (name, columns)
//! ```

use crate::column::{Column, Type};
use crate::layout::Stored;
use crate::schema::{IndexSchema, Parts, Schema};

/// The types in the order of their numbers, which never change.
const TYPES: [Type; 6] = [
    Type::Bool,
    Type::I32,
    Type::I64,
    Type::F64,
    Type::Text,
    Type::Bytes,
];

/// What no name is long: schemas since format version 3 begin with it.
const MARK: usize = u32::MAX as usize;
const NULLABLE: u8 = 1;
const DROPPED: u8 = 2;

/// The bytes of a schema.
pub(super) fn encode(schema: &Schema) -> Vec<u8> {
    let parts = schema.parts();
    let mut bytes = Vec::new();
    number(&mut bytes, MARK);
    data(&mut bytes, parts.name.as_bytes());
    number(&mut bytes, parts.base);
    number(&mut bytes, parts.stored.len());
    for stored in &parts.stored {
        data(&mut bytes, stored.column.name.as_bytes());
        let ty = TYPES.iter().position(|ty| *ty == stored.column.ty);
        bytes.push(ty.expect("every type has a number") as u8);
        let nullable = u8::from(stored.column.nullable) * NULLABLE;
        let dropped = u8::from(stored.dropped) * DROPPED;
        bytes.push(nullable | dropped);
        data(&mut bytes, &stored.initial);
    }
    numbers(&mut bytes, &parts.primary_key);
    number(&mut bytes, parts.indexes.len());
    for index in &parts.indexes {
        data(&mut bytes, index.name.as_bytes());
        bytes.push(u8::from(index.unique));
        numbers(&mut bytes, &index.columns);
    }
    bytes
}

fn number(bytes: &mut Vec<u8>, number: usize) {
    let number = u32::try_from(number).expect("schemas are small");
    bytes.extend_from_slice(&number.to_le_bytes());
}

fn data(bytes: &mut Vec<u8>, data: &[u8]) {
    number(bytes, data.len());
    bytes.extend_from_slice(data);
}

fn numbers(bytes: &mut Vec<u8>, numbers: &[usize]) {
    number(bytes, numbers.len());
    for each in numbers {
        number(bytes, *each);
    }
}

/// The schema with these bytes; `None` if it has none.
pub(super) fn decode(bytes: &[u8]) -> Option<Schema> {
    let mut input = Input(bytes);
    let is_old = Input(bytes).number()? != MARK;
    if !is_old {
        input.number()?;
    }
    let name = input.text()?.into();
    let base = match is_old {
        true => None,
        false => Some(input.number()?),
    };
    let mut stored = Vec::new();
    for _ in 0..input.number()? {
        let name = input.text()?;
        let ty = *TYPES.get(usize::from(input.byte()?))?;
        let flags = input.byte()?;
        let known = if is_old { NULLABLE } else { NULLABLE | DROPPED };
        if flags & !known != 0 {
            return None;
        }
        let nullable = flags & NULLABLE != 0;
        stored.push(Stored {
            column: Column { name, ty, nullable },
            dropped: flags & DROPPED != 0,
            initial: match is_old {
                true => Vec::new(),
                false => input.data()?.to_vec(),
            },
        });
    }
    let base = base.unwrap_or(stored.len());
    let primary_key = input.key(&stored)?;
    let mut indexes = Vec::new();
    for _ in 0..input.number()? {
        indexes.push(IndexSchema {
            name: input.text()?,
            unique: match is_old {
                true => false,
                false => input.flag()?,
            },
            columns: input.key(&stored)?,
        });
    }
    let parts = Parts {
        name,
        stored,
        base,
        primary_key,
        indexes,
    };
    let fits = input.0.is_empty() && parts.fits();
    fits.then(|| parts.build().ok())?
}

/// What has not been read yet.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn take(&mut self, length: usize) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn flag(&mut self) -> Option<bool> {
        let byte = self.byte()?;
        (byte <= 1).then_some(byte == 1)
    }

    fn number(&mut self) -> Option<usize> {
        let bytes = self.take(4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes) as usize)
    }

    fn data(&mut self) -> Option<&[u8]> {
        let length = self.number()?;
        self.take(length)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.data()?.to_owned()).ok()
    }

    /// The numbers of columns that there are.
    fn key(&mut self, stored: &[Stored]) -> Option<Vec<usize>> {
        let count = self.number()?;
        let mut numbers = Vec::new();
        for _ in 0..count {
            let number = self.number()?;
            if stored.get(number)?.dropped {
                return None;
            }
            numbers.push(number);
        }
        Some(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alter::{with_column, without_column};

    #[test]
    fn a_schema_comes_back_and_part_of_one_does_not() {
        let mut builder = Schema::builder("table");
        for (at, ty) in TYPES.into_iter().enumerate() {
            builder = builder.column(format!("c{at}"), ty);
            builder = builder.nullable(format!("n{at}"), ty);
        }
        let schema = builder
            .primary_key(["c1", "c4"])
            .index("first", ["n0", "c1"])
            .unique_index("second", ["c5"])
            .build()
            .unwrap();
        let column = |name: &str, ty, nullable| {
            let name = name.to_owned();
            Column { name, ty, nullable }
        };
        let schema = with_column(&schema, column("added", Type::Text, false), "é".into());
        let schema = without_column(&schema.unwrap(), "n3").unwrap();
        let last = column("last", Type::I64, true);
        let schema = with_column(&schema, last, crate::Value::Null).unwrap();
        let bytes = encode(&schema);
        let decoded = decode(&bytes).unwrap();
        assert_eq!(decoded.parts(), schema.parts());
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end]), None, "{end}");
        }
        assert_eq!(decode(&[&bytes[..], &[0]].concat()), None);
    }
}
