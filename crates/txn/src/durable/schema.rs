//! Schemas as bytes, in the log and in checkpoints.
//!
//! ```text
//! name │ columns: (name, type 1, nullable 1) │ primary key: positions
//!      │ indexes: (name, positions)
//! ```
//!
//! Names and lists begin with their length, numbers have four bytes.

use crate::column::Type;
use crate::schema::Schema;

/// The types in the order of their numbers, which never change.
const TYPES: [Type; 6] = [
    Type::Bool,
    Type::I32,
    Type::I64,
    Type::F64,
    Type::Text,
    Type::Bytes,
];

/// The bytes of a schema.
pub(super) fn encode(schema: &Schema) -> Vec<u8> {
    let mut bytes = Vec::new();
    text(&mut bytes, schema.name());
    number(&mut bytes, schema.columns().len());
    for column in schema.columns() {
        text(&mut bytes, &column.name);
        let ty = TYPES.iter().position(|ty| *ty == column.ty);
        bytes.push(ty.expect("every type has a number") as u8);
        bytes.push(u8::from(column.nullable));
    }
    positions(&mut bytes, schema.primary_key());
    number(&mut bytes, schema.indexes().len());
    for index in schema.indexes() {
        text(&mut bytes, &index.name);
        positions(&mut bytes, &index.columns);
    }
    bytes
}

fn number(bytes: &mut Vec<u8>, number: usize) {
    let number = u32::try_from(number).expect("schemas are small");
    bytes.extend_from_slice(&number.to_le_bytes());
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    number(bytes, text.len());
    bytes.extend_from_slice(text.as_bytes());
}

fn positions(bytes: &mut Vec<u8>, positions: &[usize]) {
    number(bytes, positions.len());
    for position in positions {
        number(bytes, *position);
    }
}

/// The schema with these bytes; `None` if it has none.
pub(super) fn decode(bytes: &[u8]) -> Option<Schema> {
    let mut input = Input(bytes);
    let mut builder = Schema::builder(input.text()?);
    let mut names = Vec::new();
    for _ in 0..input.number()? {
        let name = input.text()?;
        let ty = *TYPES.get(usize::from(input.byte()?))?;
        builder = match input.byte()? {
            0 => builder.column(&name, ty),
            1 => builder.nullable(&name, ty),
            _ => return None,
        };
        names.push(name);
    }
    builder = builder.primary_key(input.names(&names)?);
    for _ in 0..input.number()? {
        let name = input.text()?;
        builder = builder.index(name, input.names(&names)?);
    }
    match input.0 {
        [] => builder.build().ok(),
        _ => None,
    }
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

    fn number(&mut self) -> Option<usize> {
        let bytes = self.take(4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes) as usize)
    }

    fn text(&mut self) -> Option<String> {
        let length = self.number()?;
        String::from_utf8(self.take(length)?.to_owned()).ok()
    }

    /// The names of the columns at the positions that follow.
    fn names(&mut self, columns: &[String]) -> Option<Vec<String>> {
        let count = self.number()?;
        let mut names = Vec::new();
        for _ in 0..count {
            names.push(columns.get(self.number()?)?.clone());
        }
        Some(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            .index("second", ["c5"])
            .build()
            .unwrap();
        let bytes = encode(&schema);
        assert_eq!(decode(&bytes), Some(schema));
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end]), None, "{end}");
        }
        assert_eq!(decode(&[&bytes[..], &[0]].concat()), None);
    }
}
