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

use std::ops::Bound;

use crate::error::SchemaError;
use crate::row::Row;
use crate::schema::{Column, Schema, Type};
use crate::value::Value;

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
    pub(crate) fn new() -> KeyBuf {
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

    #[inline]

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

/// Which columns a key consists of.
#[derive(Clone, Debug)]
pub(crate) struct KeySpec {
    /// Table or index, for messages.
    of: String,
    columns: Vec<usize>,
}

impl KeySpec {
    pub(crate) fn new(of: &str, columns: &[usize]) -> KeySpec {
        KeySpec {
            of: of.to_owned(),
            columns: columns.to_vec(),
        }
    }

    /// Encodes a whole key.
    #[inline]
    pub(crate) fn whole(
        &self,
        schema: &Schema,
        key: &impl Key,
        out: &mut KeyBuf,
    ) -> Result<(), SchemaError> {
        if key.parts() != self.columns.len() {
            return Err(self.wrong_parts(key.parts()));
        }
        key.encode(&mut Encoder::new(self, schema, out))
    }

    /// Encodes the first parts of a key.
    #[inline]
    fn prefix(&self, schema: &Schema, key: &impl Key, out: &mut KeyBuf) -> Result<(), SchemaError> {
        if key.parts() > self.columns.len() {
            return Err(self.wrong_parts(key.parts()));
        }
        key.encode(&mut Encoder::new(self, schema, out))
    }

    #[cold]
    fn wrong_parts(&self, given: usize) -> SchemaError {
        SchemaError::KeyParts {
            of: self.of.clone(),
            expected: self.columns.len(),
            given,
        }
    }

    /// Appends the key of a row.
    #[inline]
    pub(crate) fn of_row(&self, row: Row<'_>, schema: &Schema, out: &mut KeyBuf) {
        for &column in &self.columns {
            let declared = &schema.columns()[column];
            if declared.nullable {
                let null = row.is_null(column);
                out.push(&[u8::from(!null)]);
                if null {
                    continue;
                }
            }
            match declared.ty {
                Type::Bool => out.push(&[u8::from(row.bool(column))]),
                Type::I32 => push_i32(row.i32(column), out),
                Type::I64 => push_i64(row.i64(column), out),
                Type::F64 => push_f64(row.f64(column), out),
                Type::Text => push_variable(row.text(column).as_bytes(), out),
                Type::Bytes => push_variable(row.bytes(column), out),
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

/// Takes a key's parts one after the other, and checks each against its column.
pub struct Encoder<'a> {
    spec: &'a KeySpec,
    schema: &'a Schema,
    out: &'a mut KeyBuf,
    next: usize,
}

impl<'a> Encoder<'a> {
    #[inline]
    fn new(spec: &'a KeySpec, schema: &'a Schema, out: &'a mut KeyBuf) -> Encoder<'a> {
        Encoder {
            spec,
            schema,
            out,
            next: 0,
        }
    }

    /// The next part's column; its NULL byte is written.
    #[inline]
    fn column(&mut self) -> &'a Column {
        let column = &self.schema.columns()[self.spec.columns[self.next]];
        self.next += 1;
        if column.nullable {
            self.out.push(&[1]);
        }
        column
    }

    #[inline]
    fn integer(&mut self, value: i64) -> Result<(), SchemaError> {
        let column = self.column();
        match column.ty {
            Type::I64 => push_i64(value, self.out),
            Type::I32 => match i32::try_from(value) {
                Ok(value) => push_i32(value, self.out),
                Err(_) => return Err(out_of_range(column, value.into())),
            },
            _ => return Err(wrong_type(column, "an integer")),
        }
        Ok(())
    }

    #[inline]
    fn text(&mut self, value: &str) -> Result<(), SchemaError> {
        match self.column() {
            Column { ty: Type::Text, .. } => push_variable(value.as_bytes(), self.out),
            column => return Err(wrong_type(column, "text")),
        }
        Ok(())
    }

    #[inline]
    fn bytes(&mut self, value: &[u8]) -> Result<(), SchemaError> {
        match self.column() {
            Column {
                ty: Type::Bytes, ..
            } => push_variable(value, self.out),
            column => return Err(wrong_type(column, "bytes")),
        }
        Ok(())
    }

    #[inline]
    fn bool(&mut self, value: bool) -> Result<(), SchemaError> {
        match self.column() {
            Column { ty: Type::Bool, .. } => self.out.push(&[u8::from(value)]),
            column => return Err(wrong_type(column, "a bool")),
        }
        Ok(())
    }

    #[inline]
    fn f64(&mut self, value: f64) -> Result<(), SchemaError> {
        match self.column() {
            Column { ty: Type::F64, .. } => push_f64(value, self.out),
            column => return Err(wrong_type(column, "an f64")),
        }
        Ok(())
    }

    fn null(&mut self) -> Result<(), SchemaError> {
        let column = &self.schema.columns()[self.spec.columns[self.next]];
        self.next += 1;
        if !column.nullable {
            return Err(SchemaError::Null {
                table: self.schema.name().to_owned(),
                column: column.name.clone(),
            });
        }
        self.out.push(&[0]);
        Ok(())
    }
}

#[cold]
fn wrong_type(column: &Column, given: &'static str) -> SchemaError {
    SchemaError::WrongType {
        column: column.name.clone(),
        expected: column.ty,
        given,
    }
}

#[cold]
fn out_of_range(column: &Column, value: i128) -> SchemaError {
    SchemaError::OutOfRange {
        column: column.name.clone(),
        expected: column.ty,
        value,
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
            Err(_) => Err(out_of_range(encoder.column(), (*self).into())),
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

/// From which key to which a scan goes. A bound may have fewer parts than the
/// key and then stands for all keys that begin with it.
#[derive(Clone, Copy, Debug)]
pub struct KeyRange<L, U> {
    lower: Bound<L>,
    upper: Bound<U>,
}

impl KeyRange<(), ()> {
    /// Every key.
    pub fn all() -> KeyRange<(), ()> {
        KeyRange::new(Bound::Unbounded, Bound::Unbounded)
    }
}

impl<K: Key + Clone> KeyRange<K, K> {
    /// The keys that begin with these parts.
    pub fn prefix(key: K) -> KeyRange<K, K> {
        KeyRange::between(key.clone(), key)
    }
}

impl<L: Key> KeyRange<L, ()> {
    /// This key and those after it.
    pub fn at_least(lower: L) -> KeyRange<L, ()> {
        KeyRange::new(Bound::Included(lower), Bound::Unbounded)
    }
}

impl<U: Key> KeyRange<(), U> {
    /// This key and those before it.
    pub fn at_most(upper: U) -> KeyRange<(), U> {
        KeyRange::new(Bound::Unbounded, Bound::Included(upper))
    }
}

impl<L: Key, U: Key> KeyRange<L, U> {
    /// From the first to the second key, both included.
    pub fn between(lower: L, upper: U) -> KeyRange<L, U> {
        KeyRange::new(Bound::Included(lower), Bound::Included(upper))
    }

    /// Between any bounds.
    pub fn new(lower: Bound<L>, upper: Bound<U>) -> KeyRange<L, U> {
        KeyRange { lower, upper }
    }

    pub(crate) fn encode(&self, spec: &KeySpec, schema: &Schema) -> Result<Span, SchemaError> {
        let mut from = KeyBuf::new();
        let mut empty = false;
        match &self.lower {
            Bound::Unbounded => {}
            Bound::Included(key) => spec.prefix(schema, key, &mut from)?,
            Bound::Excluded(key) => {
                spec.prefix(schema, key, &mut from)?;
                empty = !from.succeed();
            }
        }
        let mut to = Some(KeyBuf::new());
        match (&self.upper, to.as_mut().expect("just made")) {
            (Bound::Unbounded, _) => to = None,
            (Bound::Excluded(key), end) => spec.prefix(schema, key, end)?,
            (Bound::Included(key), end) => {
                spec.prefix(schema, key, end)?;
                if !end.succeed() {
                    to = None;
                }
            }
        }
        empty |= to
            .as_ref()
            .is_some_and(|to| to.as_slice() <= from.as_slice());
        Ok(Span { from, to, empty })
    }
}

/// Encoded keys from `from` up to, without, `to`; `None` is after all keys.
pub(crate) struct Span {
    pub(crate) from: KeyBuf,
    pub(crate) to: Option<KeyBuf>,
    pub(crate) empty: bool,
}

impl Span {
    /// From one encoded key up to, without, another.
    pub(crate) fn new(from: &[u8], to: Option<&[u8]>) -> Span {
        Span {
            from: KeyBuf::from(from),
            to: to.map(KeyBuf::from),
            empty: to.is_some_and(|to| to <= from),
        }
    }

    /// Where it ends.
    #[inline]
    pub(crate) fn end(&self) -> Option<&[u8]> {
        self.to.as_ref().map(KeyBuf::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::RowBuf;
    use proptest::prelude::*;

    fn schema() -> Schema {
        Schema::builder("t")
            .column("a", Type::I32)
            .nullable("b", Type::Text)
            .column("c", Type::F64)
            .column("d", Type::Bytes)
            .column("e", Type::I64)
            .column("f", Type::Bool)
            .primary_key(["a"])
            .build()
            .unwrap()
    }

    type Parts = (i32, Option<String>, f64, Vec<u8>, i64, bool);

    fn parts() -> impl Strategy<Value = Parts> {
        (
            prop_oneof![-2..2i32, any::<i32>()],
            proptest::option::of("[\\x00\\x01ab\u{ff}]{0,40}"),
            prop_oneof![Just(-0.0), Just(0.0), any::<f64>()],
            proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..4),
            prop_oneof![-2..2i64, any::<i64>()],
            any::<bool>(),
        )
    }

    fn compare(a: &Parts, b: &Parts) -> std::cmp::Ordering {
        let front = a.0.cmp(&b.0).then_with(|| a.1.cmp(&b.1));
        let middle = front.then_with(|| a.2.total_cmp(&b.2));
        middle.then_with(|| (&a.3, a.4, a.5).cmp(&(&b.3, b.4, b.5)))
    }

    fn encode(parts: &Parts) -> Vec<u8> {
        let spec = KeySpec::new("t", &[0, 1, 2, 3, 4, 5]);
        let (a, b, c, d, e, f) = parts;
        let mut out = KeyBuf::new();
        let key = (a, b.as_ref(), c, &d[..], e, f);
        spec.whole(&schema(), &key, &mut out).unwrap();
        out.as_slice().to_vec()
    }

    proptest! {
        #[test]
        fn bytes_compare_as_values_do(a in parts(), b in parts()) {
            prop_assert_eq!(encode(&a).cmp(&encode(&b)), compare(&a, &b));
        }

        #[test]
        fn a_row_has_the_key_of_its_values(parts in parts()) {
            let schema = schema();
            let (a, b, c, d, e, f) = &parts;
            let mut row = RowBuf::new(&schema);
            row.set_i32(0, *a).set_f64(2, *c).set_bytes(3, d).set_i64(4, *e).set_bool(5, *f);
            if let Some(text) = b {
                row.set_text(1, text);
            }
            let mut out = KeyBuf::new();
            KeySpec::new("t", &[0, 1, 2, 3, 4, 5]).of_row(row.as_row(), &schema, &mut out);
            prop_assert_eq!(out.as_slice(), &encode(&parts)[..]);
        }

        #[test]
        fn a_prefix_covers_exactly_its_completions(a in parts(), b in parts()) {
            let schema = schema();
            let spec = KeySpec::new("t", &[0, 1, 2, 3, 4, 5]);
            let span = KeyRange::prefix((b.0, b.1.as_ref())).encode(&spec, &schema).unwrap();
            let key = encode(&a);
            let inside = span.from.as_slice() <= &key[..]
                && span.to.as_ref().is_none_or(|to| &key[..] < to.as_slice());
            prop_assert_eq!(inside, a.0 == b.0 && a.1 == b.1);
        }
    }

    #[test]
    fn a_key_that_does_not_fit_is_refused_by_name() {
        let schema = schema();
        let spec = KeySpec::new("t", &[0, 1]);
        let says = |key: &dyn Fn(&mut KeyBuf) -> Result<(), SchemaError>, text: &str| {
            let error = key(&mut KeyBuf::new()).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        };
        says(
            &|out| spec.whole(&schema, &1i32, out),
            "2 columns, 1 were given",
        );
        says(
            &|out| spec.whole(&schema, &("x", "y"), out),
            "'a' is an i32, the value given is text",
        );
        says(
            &|out| spec.whole(&schema, &(i64::MAX, "y"), out),
            "does not fit",
        );
        says(
            &|out| spec.whole(&schema, &(u64::MAX, "y"), out),
            "does not fit",
        );
        says(&|out| spec.whole(&schema, &(1, 2), out), "'b' is text");
        says(
            &|out| spec.whole(&schema, &(Value::Null, "y"), out),
            "must have a value",
        );
    }

    #[test]
    fn ranges_that_hold_nothing_are_known_to() {
        let schema = schema();
        let spec = KeySpec::new("t", &[0, 4]);
        let empty =
            |range: KeyRange<(i32, i64), (i32, i64)>| range.encode(&spec, &schema).unwrap().empty;
        assert!(empty(KeyRange::between((1, 5), (1, 4))));
        assert!(!empty(KeyRange::between((1, 5), (1, 5))));
        assert!(empty(KeyRange::new(
            Bound::Excluded((1, 5)),
            Bound::Included((1, 5))
        )));
        assert!(empty(KeyRange::new(
            Bound::Included((1, 5)),
            Bound::Excluded((1, 5))
        )));
    }
}
