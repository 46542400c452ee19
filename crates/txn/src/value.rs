//! One value, with its type at run time: for tools and glue. Code that knows its
//! columns uses the typed accessors of rows, which copy nothing.

use std::fmt;

/// A value of any column.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value.
    Null,
    /// Of a `Bool` column.
    Bool(bool),
    /// Of an `I32` column.
    I32(i32),
    /// Of an `I64` column.
    I64(i64),
    /// Of an `F64` column.
    F64(f64),
    /// Of a `Text` column.
    Text(String),
    /// Of a `Bytes` column.
    Bytes(Vec<u8>),
}

impl Value {
    /// What it is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::Null => "NULL",
            Value::Bool(_) => "a bool",
            Value::I32(_) | Value::I64(_) => "an integer",
            Value::F64(_) => "an f64",
            Value::Text(_) => "text",
            Value::Bytes(_) => "bytes",
        }
    }

    /// The integer, if it is one.
    pub(crate) fn as_i64(&self) -> Option<i64> {
        match *self {
            Value::I32(number) => Some(number.into()),
            Value::I64(number) => Some(number),
            _ => None,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.pad("NULL"),
            Value::Bool(value) => value.fmt(f),
            Value::I32(value) => value.fmt(f),
            Value::I64(value) => value.fmt(f),
            Value::F64(value) => value.fmt(f),
            Value::Text(value) => f.pad(value),
            Value::Bytes(value) => value.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

macro_rules! from {
    ($($from:ty => $variant:ident;)*) => {$(
        impl From<$from> for Value {
            fn from(value: $from) -> Value {
                Value::$variant(value.into())
            }
        }
    )*};
}
from! {
    bool => Bool;
    i32 => I32;
    i64 => I64;
    f64 => F64;
    &str => Text;
    String => Text;
    &[u8] => Bytes;
    Vec<u8> => Bytes;
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}
