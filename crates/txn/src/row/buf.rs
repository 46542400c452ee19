//! Rows that are made or changed.

use std::borrow::Cow;
use std::fmt;

use super::{Row, accessors, debug};
use crate::column::Type;
use crate::error::SchemaError;
use crate::layout::{DATA, Place, VALUE};
use crate::schema::{Columns, Schema};
use crate::value::Value;

/// A row that is being made or changed.
#[derive(Clone)]
pub struct RowBuf<'s> {
    /// The table's, or shared with it by a row that outlives the handle.
    schema: Cow<'s, Schema>,
    bytes: Vec<u8>,
    /// Columns that may not be as they were in the row that this is a copy of.
    touched: Columns,
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
            let place = self.schema.layout().place(column, Type::$ty);
            let at = self.mark(place, false) + place.at as usize;
            self.bytes[at..at + size_of::<$name>()].copy_from_slice(&bytes_of!(value, $name));
            self
        }
    )*};
}
impl<'s> RowBuf<'s> {
    /// A row whose columns are all NULL.
    pub(crate) fn new(schema: &'s Schema) -> RowBuf<'s> {
        RowBuf::new_in(schema, Vec::new())
    }

    /// The same in a buffer that is reused.
    pub(crate) fn new_in(schema: &'s Schema, buffer: Vec<u8>) -> RowBuf<'s> {
        let mut row = RowBuf {
            schema: Cow::Borrowed(schema),
            bytes: buffer,
            touched: Columns::ALL,
        };
        row.clear();
        row
    }

    /// A row that is a copy of this one, as a whole, and borrows nothing.
    pub(super) fn copy_of(row: Row<'_>) -> RowBuf<'static> {
        let mut bytes = row.bytes.to_vec();
        row.schema.layout().complete(&mut bytes);
        RowBuf {
            schema: Cow::Owned(row.schema.clone()),
            bytes,
            touched: Columns::ALL,
        }
    }

    /// A row with these bytes, none of which has been touched yet, in a buffer
    /// that is reused.
    pub(crate) fn to_change(schema: &'s Schema, mut buffer: Vec<u8>, bytes: &[u8]) -> RowBuf<'s> {
        buffer.clear();
        buffer.extend_from_slice(bytes);
        schema.layout().complete(&mut buffer);
        RowBuf {
            schema: Cow::Borrowed(schema),
            bytes: buffer,
            touched: Columns::NONE,
        }
    }

    /// Columns of which it is not certain that they are as they were.
    #[inline]
    pub(crate) fn touched(&self) -> Columns {
        self.touched
    }

    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    #[inline]
    fn parts(&self) -> (&Schema, &[u8]) {
        (&self.schema, &self.bytes)
    }

    /// The schema of the row's table.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The row's bytes, as the log stores them.
    pub fn raw(&self) -> &[u8] {
        &self.bytes
    }

    /// Makes all columns NULL.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&self.schema.layout().blank);
        self.touched = Columns::ALL;
    }

    /// Says whether a column is NULL; where the offset in its place counts from.
    #[inline]
    fn mark(&mut self, place: Place, null: bool) -> usize {
        self.touched.add(place.number.into());
        let (at, bit, from) = match self.schema.layout().part_span(&self.bytes, place) {
            None => (usize::from(place.number / 8), 1 << (place.number % 8), 0),
            Some((start, _)) => (start, 1, start),
        };
        let byte = &mut self.bytes[at];
        *byte = if null { *byte | bit } else { *byte & !bit };
        from
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
            Some(bytes) => {
                let at = self.mark(place, true) + place.at as usize;
                self.bytes[at..][..bytes].fill(0);
            }
            None => {
                self.set_variable(column, place.ty, &[]);
                self.mark(place, true);
            }
        }
        self
    }

    fn set_variable(&mut self, column: usize, ty: Type, value: &[u8]) -> &mut Self {
        let layout = self.schema.layout();
        let place = layout.place(column, ty);
        match layout.part_span(&self.bytes, place) {
            None => self.set_in_base(place, value),
            Some((start, end)) => {
                let length = u32::try_from(value.len()).expect("a row is below 4 GiB");
                self.bytes[start + VALUE..start + DATA].copy_from_slice(&length.to_le_bytes());
                self.splice(start + DATA, end, value);
            }
        }
        self.mark(place, false);
        self
    }

    /// Puts a value in the place of another.
    fn splice(&mut self, start: usize, end: usize, value: &[u8]) {
        if value.len() == end - start {
            self.bytes[start..end].copy_from_slice(value);
        } else if end == self.bytes.len() {
            // As when columns are set in order.
            self.bytes.truncate(start);
            self.bytes.extend_from_slice(value);
        } else {
            self.bytes.splice(start..end, value.iter().copied());
        }
    }

    fn set_in_base(&mut self, place: Place, value: &[u8]) {
        let layout = self.schema.layout();
        let index = place.at as usize;
        let (first, data) = (layout.ends + 4 * index, layout.data);
        let (start, end) = layout.span(&self.bytes, index);
        self.splice(start, end, value);
        if value.len() != end - start {
            for at in (first..data).step_by(4) {
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
        let (stored, base) = self.schema.layout().stored();
        let bitmap = &self.bytes[..base.div_ceil(8)];
        if stored.len() == base && bitmap.iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        let null = |at: usize| self.is_null(at) && !columns[at].nullable;
        match (0..columns.len()).find(|&at| null(at)) {
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
        Row::new(&self.schema, &self.bytes)
    }

    accessors!('_);
}

impl fmt::Debug for RowBuf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(self.as_row(), f)
    }
}
