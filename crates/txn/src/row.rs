//! Rows as compact bytes.
//!
//! ```text
//! ┌─────────────┬────────────────┬──────────────────────┬───────────────┐
//! │ NULL bitmap │ fixed columns  │ end of each variable │ variable data │
//! │ 1 bit each  │ little-endian  │ column, u32          │               │
//! └─────────────┴────────────────┴──────────────────────┴───────────────┘
//! ```
//!
//! Where a column is follows from the schema alone ([`Layout`]), or, for
//! variable ones, from two numbers in the row, so every access takes constant
//! time and a row is read where it lies: [`Row`] borrows the bytes of a version.
//! The bytes hold no address and are the same on every machine; the log and the
//! checkpoint store them as they are.
//!
//! A NULL column keeps its place: zeros if fixed, nothing if variable.

use std::fmt;

use crate::error::SchemaError;
use crate::schema::{Column, Schema, Type};
use crate::value::Value;

/// Where columns are in a row's bytes.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    places: Vec<Place>,
    /// Where the ends of the variable columns begin.
    ends: usize,
    /// Where the variable data begins: the length of a row without any.
    data: usize,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    ty: Type,
    /// Fixed columns: offset of the value. Variable ones: which of them it is.
    at: u32,
}

impl Layout {
    pub(crate) fn new(columns: &[Column]) -> Layout {
        let mut offset = columns.len().div_ceil(8);
        let mut variable = 0;
        let places = columns
            .iter()
            .map(|column| {
                let at = match column.ty.fixed_bytes() {
                    Some(bytes) => {
                        offset += bytes;
                        offset - bytes
                    }
                    None => {
                        variable += 1;
                        variable - 1
                    }
                };
                Place {
                    ty: column.ty,
                    at: at as u32,
                }
            })
            .collect();
        Layout {
            places,
            ends: offset,
            data: offset + 4 * variable,
        }
    }

    #[inline]
    fn place(&self, column: usize, wanted: Type) -> usize {
        let place = self.places[column];
        assert!(
            place.ty == wanted,
            "column {column} is {}, not {wanted}",
            place.ty
        );
        place.at as usize
    }

    /// From where to where the data of variable column number `index` is.
    #[inline]
    fn span(&self, bytes: &[u8], index: usize) -> (usize, usize) {
        let end = |index: usize| {
            let at = self.ends + 4 * index;
            u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes")) as usize
        };
        let start = if index == 0 {
            self.data
        } else {
            end(index - 1)
        };
        (start, end(index))
    }

    /// Whether these bytes are a row, so that no accessor fails on them.
    pub(crate) fn check(&self, columns: &[Column], bytes: &[u8]) -> Result<(), &'static str> {
        if bytes.len() < self.data {
            return Err("they are too short");
        }
        let mut last = self.data;
        for (place, column) in self.places.iter().zip(columns) {
            if column.ty.fixed_bytes().is_some() {
                continue;
            }
            let (start, end) = self.span(bytes, place.at as usize);
            if start != last || end < start || end > bytes.len() {
                return Err("a column lies outside of them");
            }
            if place.ty == Type::Text && std::str::from_utf8(&bytes[start..end]).is_err() {
                return Err("text is not UTF-8");
            }
            last = end;
        }
        if last != bytes.len() {
            return Err("they are too long");
        }
        let null = |at: usize| bytes[at / 8] & (1 << (at % 8)) != 0;
        if (0..columns.len()).any(|at| null(at) && !columns[at].nullable) {
            return Err("a column that must have a value has none");
        }
        Ok(())
    }
}

/// A row as a transaction sees it: valid as long as the transaction is open.
#[derive(Clone, Copy)]
pub struct Row<'t> {
    schema: &'t Schema,
    bytes: &'t [u8],
}

/// Accessors by column position, for [`Row`] and [`RowBuf`] alike. `'a` is how
/// long borrowed values live.
macro_rules! accessors {
    ($life:lifetime) => {
        accessors!(@fixed bool, Bool, "The value of a `Bool` column.", |bytes| bytes[0] != 0);
        accessors!(@fixed i32, I32, "The value of an `I32` column.", |bytes| i32::from_le_bytes(bytes));
        accessors!(@fixed i64, I64, "The value of an `I64` column.", |bytes| i64::from_le_bytes(bytes));
        accessors!(@fixed f64, F64, "The value of an `F64` column.", |bytes| f64::from_le_bytes(bytes));

        /// The value of a `Text` column.
        ///
        /// # Panics
        /// The column has another type, or is NULL.
        #[inline]
        pub fn text(&self, column: usize) -> &$life str {
            let bytes = self.variable(column, Type::Text);
            // SAFETY: text enters a row as `&str`, or after `Layout::check`.
            unsafe { std::str::from_utf8_unchecked(bytes) }
        }

        /// The value of a `Bytes` column.
        ///
        /// # Panics
        /// The column has another type, or is NULL.
        #[inline]
        pub fn bytes(&self, column: usize) -> &$life [u8] {
            self.variable(column, Type::Bytes)
        }

        #[inline]
        fn variable(&self, column: usize, ty: Type) -> &$life [u8] {
            let (schema, bytes) = self.parts();
            let index = schema.layout().place(column, ty);
            self.assert_value(column);
            let (start, end) = schema.layout().span(bytes, index);
            &bytes[start..end]
        }

        #[inline]
        fn assert_value(&self, column: usize) {
            assert!(!self.is_null(column), "column {column} is NULL");
        }

        /// Whether the column is NULL.
        ///
        /// # Panics
        /// There is no such column.
        #[inline]
        pub fn is_null(&self, column: usize) -> bool {
            let (schema, bytes) = self.parts();
            assert!(column < schema.columns().len(), "there is no column {column}");
            bytes[column / 8] & (1 << (column % 8)) != 0
        }

        /// The value of any column.
        ///
        /// # Panics
        /// There is no such column.
        pub fn value(&self, column: usize) -> Value {
            if self.is_null(column) {
                return Value::Null;
            }
            match self.parts().0.columns()[column].ty {
                Type::Bool => Value::Bool(self.bool(column)),
                Type::I32 => Value::I32(self.i32(column)),
                Type::I64 => Value::I64(self.i64(column)),
                Type::F64 => Value::F64(self.f64(column)),
                Type::Text => Value::Text(self.text(column).to_owned()),
                Type::Bytes => Value::Bytes(self.bytes(column).to_owned()),
            }
        }

        /// All values, in the order of the columns.
        pub fn values(&self) -> Vec<Value> {
            (0..self.parts().0.columns().len())
                .map(|column| self.value(column))
                .collect()
        }
    };
    (@fixed $name:ident, $ty:ident, $doc:literal, |$bytes:ident| $read:expr) => {
        #[doc = $doc]
        ///
        /// # Panics
        /// The column has another type, or is NULL.
        #[inline]
        pub fn $name(&self, column: usize) -> $name {
            let (schema, all) = self.parts();
            let at = schema.layout().place(column, Type::$ty);
            self.assert_value(column);
            let $bytes: [u8; size_of::<$name>()] =
                all[at..at + size_of::<$name>()].try_into().expect("as long as asked for");
            $read
        }
    };
}

impl<'t> Row<'t> {
    /// A row of bytes that [`Layout::check`] would accept.
    #[inline]
    pub(crate) fn new(schema: &'t Schema, bytes: &'t [u8]) -> Row<'t> {
        Row { schema, bytes }
    }

    #[inline]
    fn parts(&self) -> (&'t Schema, &'t [u8]) {
        (self.schema, self.bytes)
    }

    /// The row's bytes, as the log stores them.
    pub fn raw(&self) -> &'t [u8] {
        self.bytes
    }

    /// A copy that outlives the transaction.
    pub fn to_owned(&self) -> RowBuf<'t> {
        RowBuf {
            schema: self.schema,
            bytes: self.bytes.to_vec(),
        }
    }

    accessors!('t);
}

/// A row that is being made or changed.
#[derive(Clone)]
pub struct RowBuf<'s> {
    schema: &'s Schema,
    bytes: Vec<u8>,
}

/// A fixed-size value's bytes in a row.
macro_rules! bytes_of {
    ($value:expr, bool) => {
        [u8::from($value)]
    };
    ($value:expr, $name:ident) => {
        $value.to_le_bytes()
    };
}

/// Setters of fixed-size columns.
macro_rules! setters {
    ($($set:ident, $name:ident, $ty:ident;)*) => {$(
        #[doc = concat!("Sets a column of type `", stringify!($ty), "`.")]
        ///
        /// # Panics
        /// The column has another type.
        #[inline]
        pub fn $set(&mut self, column: usize, value: $name) -> &mut Self {
            let at = self.schema.layout().place(column, Type::$ty);
            self.bytes[at..at + size_of::<$name>()].copy_from_slice(&bytes_of!(value, $name));
            self.mark(column, false);
            self
        }
    )*};
}
impl<'s> RowBuf<'s> {
    /// A row whose columns are all NULL.
    pub(crate) fn new(schema: &'s Schema) -> RowBuf<'s> {
        let mut row = RowBuf {
            schema,
            bytes: Vec::new(),
        };
        row.clear();
        row
    }

    /// A row in a buffer that is reused, with these bytes.
    pub(crate) fn reuse(schema: &'s Schema, mut buffer: Vec<u8>, bytes: &[u8]) -> RowBuf<'s> {
        buffer.clear();
        buffer.extend_from_slice(bytes);
        RowBuf {
            schema,
            bytes: buffer,
        }
    }

    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    #[inline]
    fn parts(&self) -> (&Schema, &[u8]) {
        (self.schema, &self.bytes)
    }

    /// The schema of the row's table.
    pub fn schema(&self) -> &'s Schema {
        self.schema
    }

    /// The row's bytes, as the log stores them.
    pub fn raw(&self) -> &[u8] {
        &self.bytes
    }

    /// Makes all columns NULL.
    pub fn clear(&mut self) {
        let layout = self.schema.layout();
        let columns = self.schema.columns().len();
        self.bytes.clear();
        self.bytes.resize(layout.data, 0);
        for ends in self.bytes[layout.ends..].chunks_exact_mut(4) {
            ends.copy_from_slice(&(layout.data as u32).to_le_bytes());
        }
        for column in 0..columns {
            self.mark(column, true);
        }
    }

    #[inline]
    fn mark(&mut self, column: usize, null: bool) {
        let bit = 1 << (column % 8);
        let byte = &mut self.bytes[column / 8];
        *byte = if null { *byte | bit } else { *byte & !bit };
    }

    setters! {
        set_bool, bool, Bool;
        set_i32, i32, I32;
        set_i64, i64, I64;
        set_f64, f64, F64;
    }

    /// Sets a column of type `Text`.
    ///
    /// # Panics
    /// The column has another type.
    #[inline]
    pub fn set_text(&mut self, column: usize, value: &str) -> &mut Self {
        self.set_variable(column, Type::Text, value.as_bytes())
    }

    /// Sets a column of type `Bytes`.
    ///
    /// # Panics
    /// The column has another type.
    #[inline]
    pub fn set_bytes(&mut self, column: usize, value: &[u8]) -> &mut Self {
        self.set_variable(column, Type::Bytes, value)
    }

    /// Makes a column NULL.
    ///
    /// # Panics
    /// There is no such column.
    pub fn set_null(&mut self, column: usize) -> &mut Self {
        let place = self.schema.layout().places[column];
        match place.ty.fixed_bytes() {
            Some(bytes) => self.bytes[place.at as usize..][..bytes].fill(0),
            None => {
                self.set_variable(column, place.ty, &[]);
            }
        }
        self.mark(column, true);
        self
    }

    fn set_variable(&mut self, column: usize, ty: Type, value: &[u8]) -> &mut Self {
        let layout = self.schema.layout();
        let index = layout.place(column, ty);
        let (start, end) = layout.span(&self.bytes, index);
        self.bytes.splice(start..end, value.iter().copied());
        if value.len() != end - start {
            for at in (layout.ends + 4 * index..layout.data).step_by(4) {
                let field: &mut [u8; 4] = self
                    .bytes
                    .get_mut(at..at + 4)
                    .and_then(|field| field.try_into().ok())
                    .expect("an end");
                let moved = u32::from_le_bytes(*field) as usize + value.len() - (end - start);
                *field = u32::try_from(moved)
                    .expect("a row is below 4 GiB")
                    .to_le_bytes();
            }
        }
        self.mark(column, false);
        self
    }

    /// Sets any column; numbers are converted if they fit.
    pub fn set(
        &mut self,
        column: usize,
        value: impl Into<Value>,
    ) -> Result<&mut Self, SchemaError> {
        let value = value.into();
        let declared = &self.schema.columns()[column];
        match (declared.ty, &value) {
            (_, Value::Null) => return Ok(self.set_null(column)),
            (Type::Bool, &Value::Bool(value)) => return Ok(self.set_bool(column, value)),
            (Type::F64, &Value::F64(value)) => return Ok(self.set_f64(column, value)),
            (Type::Text, Value::Text(value)) => return Ok(self.set_text(column, value)),
            (Type::Bytes, Value::Bytes(value)) => return Ok(self.set_bytes(column, value)),
            _ => {}
        }
        let wrong = || SchemaError::WrongType {
            column: declared.name.clone(),
            expected: declared.ty,
            given: value.kind(),
        };
        let number = value.as_i64().ok_or_else(wrong)?;
        match declared.ty {
            Type::I64 => Ok(self.set_i64(column, number)),
            Type::I32 => match i32::try_from(number) {
                Ok(number) => Ok(self.set_i32(column, number)),
                Err(_) => Err(SchemaError::OutOfRange {
                    column: declared.name.clone(),
                    expected: declared.ty,
                    value: number.into(),
                }),
            },
            _ => Err(wrong()),
        }
    }

    /// Fails if a column that must have a value is NULL.
    #[inline]
    pub(crate) fn check_nulls(&self) -> Result<(), SchemaError> {
        let columns = self.schema.columns();
        let bitmap = &self.bytes[..columns.len().div_ceil(8)];
        if bitmap.iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        match (0..columns.len()).find(|&at| self.is_null(at) && !columns[at].nullable) {
            None => Ok(()),
            Some(at) => Err(SchemaError::Null {
                table: self.schema.name().to_owned(),
                column: columns[at].name.clone(),
            }),
        }
    }

    /// The row, to be read.
    #[inline]
    pub fn as_row(&self) -> Row<'_> {
        Row::new(self.schema, &self.bytes)
    }

    accessors!('_);
}

fn debug(row: Row<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let names = row.schema.columns().iter().map(|column| &column.name);
    f.debug_map().entries(names.zip(row.values())).finish()
}

impl fmt::Debug for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(*self, f)
    }
}

impl fmt::Debug for RowBuf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(self.as_row(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        Schema::builder("t")
            .column("k", Type::I32)
            .nullable("name", Type::Text)
            .nullable("sum", Type::I64)
            .nullable("blob", Type::Bytes)
            .nullable("rate", Type::F64)
            .nullable("flag", Type::Bool)
            .primary_key(["k"])
            .build()
            .unwrap()
    }

    #[test]
    fn values_come_back_in_whatever_order_they_are_set() {
        let schema = schema();
        let mut row = RowBuf::new(&schema);
        row.set_bytes(3, b"xyz").set_text(1, "né").set_i32(0, -7);
        row.set_f64(4, 0.5).set_bool(5, true).set_i64(2, i64::MIN);
        let expected = |name: &str| {
            vec![
                Value::I32(-7),
                Value::from(name),
                Value::I64(i64::MIN),
                Value::Bytes(b"xyz".to_vec()),
                Value::F64(0.5),
                Value::Bool(true),
            ]
        };
        assert_eq!(row.values(), expected("né"));
        row.set_text(1, "longer than before");
        assert_eq!(row.values(), expected("longer than before"));
        row.set_text(1, "");
        assert_eq!(row.values(), expected(""));
        assert_eq!(schema.layout().check(schema.columns(), row.raw()), Ok(()));
        row.set_null(1).set_null(2).set_null(3);
        assert_eq!(row.value(1), Value::Null);
        assert_eq!(row.as_row().f64(4), 0.5);
        assert_eq!(schema.layout().check(schema.columns(), row.raw()), Ok(()));
    }

    #[test]
    fn numbers_are_converted_where_they_fit() {
        let schema = schema();
        let mut row = RowBuf::new(&schema);
        row.set(2, 5i32).unwrap();
        assert_eq!(row.i64(2), 5);
        let error = row.set(0, i64::MAX).unwrap_err().to_string();
        assert!(error.contains("does not fit"), "{error}");
        let error = row.set(1, 1i32).unwrap_err().to_string();
        assert!(error.contains("'name' is text"), "{error}");
        assert_eq!(
            row.check_nulls().unwrap_err(),
            SchemaError::Null {
                table: "t".into(),
                column: "k".into()
            }
        );
    }

    #[test]
    #[should_panic(expected = "column 0 is an i32, not text")]
    fn a_column_of_another_type_is_a_bug() {
        let schema = schema();
        RowBuf::new(&schema).text(0);
    }

    #[test]
    #[should_panic(expected = "column 1 is NULL")]
    fn null_has_no_value() {
        let schema = schema();
        RowBuf::new(&schema).text(1);
    }

    #[test]
    fn damaged_bytes_are_recognised() {
        let schema = schema();
        let mut row = RowBuf::new(&schema);
        row.set_i32(0, 1).set_text(1, "ab").set_bytes(3, b"c");
        let check = |bytes: &[u8]| schema.layout().check(schema.columns(), bytes);
        let good = row.raw().to_vec();
        assert_eq!(check(&good), Ok(()));
        assert!(check(&good[..good.len() - 1]).is_err());
        assert!(check(&good[..3]).is_err());
        assert!(check(&[&good[..], b"x"].concat()).is_err());
        let ends = schema.layout().ends;
        for at in [0, ends, ends + 1, ends + 4, good.len() - 3] {
            let mut bad = good.clone();
            bad[at] ^= 0xff;
            assert!(check(&bad).is_err(), "byte {at}");
        }
    }
}
