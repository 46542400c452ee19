//! What a column is: a name, a type, perhaps NULL.

use std::fmt;

/// The types of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// True or false.
    Bool,
    /// 32 bits, signed.
    I32,
    /// 64 bits, signed. Also money, in its smallest unit, and times.
    I64,
    /// A binary floating point number; in keys, in the order of `total_cmp`.
    F64,
    /// UTF-8, ordered by its bytes.
    Text,
    /// Bytes.
    Bytes,
}

impl Type {
    /// Bytes of a value in a row; `None` for types without a fixed size.
    pub(crate) fn fixed_bytes(self) -> Option<usize> {
        match self {
            Type::Bool => Some(1),
            Type::I32 => Some(4),
            Type::I64 | Type::F64 => Some(8),
            Type::Text | Type::Bytes => None,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Type::Bool => "a bool",
            Type::I32 => "an i32",
            Type::I64 => "an i64",
            Type::F64 => "an f64",
            Type::Text => "text",
            Type::Bytes => "bytes",
        })
    }
}

/// One column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, unique in the table.
    pub name: String,
    /// What it holds.
    pub ty: Type,
    /// Whether it may be NULL.
    pub nullable: bool,
}
