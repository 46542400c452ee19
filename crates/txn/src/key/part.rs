//! Keys as the user writes them: parts, and tuples of parts, each checked against
//! its column.

use super::{KeyBuf, KeySpec, push_f64, push_i32, push_i64, push_variable};
use crate::column::Type;
use crate::error::SchemaError;
use crate::value::Value;

/// Takes a key's parts one after the other, and checks each against its column.
pub struct Encoder<'a> {
    spec: &'a KeySpec,
    out: &'a mut KeyBuf,
    next: usize,
}

impl<'a> Encoder<'a> {
    #[inline]
    pub(super) fn new(spec: &'a KeySpec, out: &'a mut KeyBuf) -> Encoder<'a> {
        Encoder { spec, out, next: 0 }
    }

    /// The next part's column; its NULL byte is written.
    #[inline]
    fn column(&mut self) -> Type {
        let column = self.spec.columns[self.next];
        self.next += 1;
        if column.nullable {
            self.out.push(&[1]);
        }
        column.place.ty
    }

    /// The name of the last part's column.
    fn name(&self) -> String {
        let position = self.spec.columns[self.next - 1].position;
        self.spec.schema.columns()[position].name.clone()
    }

    #[cold]
    fn wrong_type(&self, expected: Type, given: &'static str) -> SchemaError {
        SchemaError::WrongType {
            column: self.name(),
            expected,
            given,
        }
    }

    #[cold]
    fn out_of_range(&self, expected: Type, value: i128) -> SchemaError {
        SchemaError::OutOfRange {
            column: self.name(),
            expected,
            value,
        }
    }

    #[inline]
    fn integer(&mut self, value: i64) -> Result<(), SchemaError> {
        let column = self.column();
        match column {
            Type::I64 => push_i64(value, self.out),
            Type::I32 => match i32::try_from(value) {
                Ok(value) => push_i32(value, self.out),
                Err(_) => return Err(self.out_of_range(column, value.into())),
            },
            _ => return Err(self.wrong_type(column, "an integer")),
        }
        Ok(())
    }

    #[inline]
    fn text(&mut self, value: &str) -> Result<(), SchemaError> {
        match self.column() {
            Type::Text => push_variable(value.as_bytes(), self.out),
            column => return Err(self.wrong_type(column, "text")),
        }
        Ok(())
    }

    #[inline]
    fn bytes(&mut self, value: &[u8]) -> Result<(), SchemaError> {
        match self.column() {
            Type::Bytes => push_variable(value, self.out),
            column => return Err(self.wrong_type(column, "bytes")),
        }
        Ok(())
    }

    #[inline]
    fn bool(&mut self, value: bool) -> Result<(), SchemaError> {
        match self.column() {
            Type::Bool => self.out.push(&[u8::from(value)]),
            column => return Err(self.wrong_type(column, "a bool")),
        }
        Ok(())
    }

    #[inline]
    fn f64(&mut self, value: f64) -> Result<(), SchemaError> {
        match self.column() {
            Type::F64 => push_f64(value, self.out),
            column => return Err(self.wrong_type(column, "an f64")),
        }
        Ok(())
    }

    fn null(&mut self) -> Result<(), SchemaError> {
        let column = self.spec.columns[self.next];
        self.next += 1;
        if !column.nullable {
            return Err(SchemaError::Null {
                table: self.spec.schema.name().to_owned(),
                column: self.name(),
            });
        }
        self.out.push(&[0]);
        Ok(())
    }
}

/// One part of a key. Integers fit any integer column that can hold them.
pub trait Part {
    /// Hands the part over.
    fn encode(&self, encoder: &mut Encoder<'_>) -> Result<(), SchemaError>;
}

macro_rules! integers {
    ($($ty:ty)*) => {$(
        impl Part for $ty {
            #[inline]
            fn encode(&self, encoder: &mut Encoder<'_>) -> Result<(), SchemaError> {
                encoder.integer(i64::from(*self))
            }
        }
    )*};
}
integers!(i8 i16 i32 i64 u8 u16 u32);

macro_rules! parts {
    ($($ty:ty, $method:ident;)*) => {$(
        impl Part for $ty {
            #[inline]
            fn encode(&self, encoder: &mut Encoder<'_>) -> Result<(), SchemaError> {
                encoder.$method(self.to_owned())
            }
        }
    )*};
}
parts! {
    bool, bool;
    f64, f64;
}

impl Part for u64 {
    #[inline]
    fn encode(&self, encoder: &mut Encoder<'_>) -> Result<(), SchemaError> {
        match i64::try_from(*self) {
            Ok(value) => encoder.integer(value),
            Err(_) => {
                let column = encoder.column();
                Err(encoder.out_of_range(column, (*self).into()))
            }
        }
    }
}

impl Part for str {
    #[inline]
    fn encode(&self, encoder: &mut Encoder<'_>) -> Result<(), SchemaError> {
        encoder.text(self)
    }
}

impl Part for String {
    #[inline]
    fn encode(&self, encoder: &mut Encoder<'_>) -> Result<(), SchemaError> {
        encoder.text(self)
    }
}

impl Part for [u8] {
    #[inline]
    fn encode(&self, encoder: &mut Encoder<'_>) -> Result<(), SchemaError> {
        encoder.bytes(self)
    }
}

impl Part for Value {
    fn encode(&self, encoder: &mut Encoder<'_>) -> Result<(), SchemaError> {
        match self {
            Value::Null => encoder.null(),
            Value::Bool(value) => encoder.bool(*value),
            Value::I32(value) => encoder.integer((*value).into()),
            Value::I64(value) => encoder.integer(*value),
            Value::F64(value) => encoder.f64(*value),
            Value::Text(value) => encoder.text(value),
            Value::Bytes(value) => encoder.bytes(value),
        }
    }
}

impl<P: Part + ?Sized> Part for &P {
    #[inline]
    fn encode(&self, encoder: &mut Encoder<'_>) -> Result<(), SchemaError> {
        (**self).encode(encoder)
    }
}

impl<P: Part> Part for Option<P> {
    #[inline]
    fn encode(&self, encoder: &mut Encoder<'_>) -> Result<(), SchemaError> {
        match self {
            Some(part) => part.encode(encoder),
            None => encoder.null(),
        }
    }
}

/// A key, or the first parts of one: a single [`Part`], a tuple of up to eight,
/// or a slice of [`Value`]s.
pub trait Key {
    /// How many parts it has.
    fn parts(&self) -> usize;
    /// Hands all parts over.
    fn encode(&self, encoder: &mut Encoder<'_>) -> Result<(), SchemaError>;
}

macro_rules! tuples {
    ($(($($name:ident $at:tt),*);)*) => {$(
        impl<$($name: Part),*> Key for ($($name,)*) {
            #[inline]
            fn parts(&self) -> usize {
                const { [$(stringify!($name)),*].len() }
            }
            #[inline]
            fn encode(&self, encoder: &mut Encoder<'_>) -> Result<(), SchemaError> {
                $(self.$at.encode(encoder)?;)*
                Ok(())
            }
        }
    )*};
}
tuples! {
    (A 0);
    (A 0, B 1);
    (A 0, B 1, C 2);
    (A 0, B 1, C 2, D 3);
    (A 0, B 1, C 2, D 3, E 4);
    (A 0, B 1, C 2, D 3, E 4, F 5);
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6);
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
}

impl Key for () {
    fn parts(&self) -> usize {
        0
    }
    fn encode(&self, _: &mut Encoder<'_>) -> Result<(), SchemaError> {
        Ok(())
    }
}

macro_rules! scalars {
    ($($ty:ty)*) => {$(
        impl Key for $ty {
            #[inline]
            fn parts(&self) -> usize {
                1
            }
            #[inline]
            fn encode(&self, encoder: &mut Encoder<'_>) -> Result<(), SchemaError> {
                Part::encode(self, encoder)
            }
        }
    )*};
}
scalars!(i8 i16 i32 i64 u8 u16 u32 u64 bool f64 &str String &String &[u8] Value &Value);

impl Key for &[Value] {
    fn parts(&self) -> usize {
        self.len()
    }
    fn encode(&self, encoder: &mut Encoder<'_>) -> Result<(), SchemaError> {
        self.iter()
            .try_for_each(|value| Part::encode(value, encoder))
    }
}
