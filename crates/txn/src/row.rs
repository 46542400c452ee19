//! Rows as compact bytes.
//!
//! ```text
//! ┌─────────────┬────────────────┬──────────────────────┬───────────────┐
//! │ NULL bitmap │ fixed columns  │ end of each variable │ variable data │
//! │ 1 bit each  │ little-endian  │ column, u32          │               │
//! └─────────────┴────────────────┴──────────────────────┴───────────────┘
//! ```
//!
//! Where a column is follows from the schema alone ([`Layout`](crate::layout::Layout)), or, for
//! variable ones, from two numbers in the row, so every access takes constant
//! time and a row is read where it lies: [`Row`] borrows the bytes of a version.
//! The bytes hold no address and are the same on every machine; the log and the
//! checkpoint store them as they are.
//!
//! A NULL column keeps its place: zeros if fixed, nothing if variable.
//!
//! A column that was added to the table later has a part of its own behind this, if the
//! row is not older (`layout`):
//!
//! ```text
//! ┌─────────┬──────────────────────┐     ┌─────────┬─────────────┬──────┐
//! │ NULL? 1 │ value, little-endian │ or  │ NULL? 1 │ length, u32 │ data │
//! └─────────┴──────────────────────┘     └─────────┴─────────────┴──────┘
//! ```

mod buf;

use std::fmt;

use crate::column::Type;
use crate::schema::Schema;
use crate::value::Value;

pub use buf::RowBuf;

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
            schema.layout().variable_value(bytes, column, ty)
        }

        /// Whether the column is NULL.
        ///
        /// # Panics
        /// There is no such column.
        #[inline]
        pub fn is_null(&self, column: usize) -> bool {
            let (schema, bytes) = self.parts();
            let place = schema.layout().places.get(column);
            let place = place.unwrap_or_else(|| panic!("there is no column {column}"));
            schema.layout().is_null(bytes, *place)
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
            let (from, place) = schema.layout().value(all, column, Type::$ty);
            let at = place.at as usize;
            let $bytes: [u8; size_of::<$name>()] =
                from[at..at + size_of::<$name>()].try_into().expect("as long as asked for");
            $read
        }
    };
}

use accessors;

impl<'t> Row<'t> {
    /// A row of bytes that [`Layout::check`](crate::layout::Layout::check) would accept.
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

    /// A copy that borrows nothing: it outlives the transaction and the table's
    /// handle, may be kept, sent to other threads and inserted again.
    pub fn to_owned(&self) -> RowBuf<'static> {
        RowBuf::copy_of(*self)
    }

    accessors!('t);
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

#[cfg(test)]
mod tests;
