//! Rows and keys as bytes, for stores that know nothing else.
//!
//! Keys compare as their columns do: numbers have their sign bit flipped and the
//! highest byte first, texts end with a zero byte, which no text here has in it.
//! So a partial key is a prefix of the whole ones.

use std::ops::Range;

use super::access::{Change, View};
use crate::workload::tpcc::row::{Column, Key, Kind, Row, Sink, Source};

/// Columns, one after the other.
#[derive(Debug, Default)]
struct Columns(Vec<u8>);

impl Sink for Columns {
    fn integer(&mut self, value: i64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn small(&mut self, value: i32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, value: &str) {
        // Columns are far shorter than 64 KiB.
        self.0
            .extend_from_slice(&(value.len() as u16).to_le_bytes());
        self.0.extend_from_slice(value.as_bytes());
    }

    /// No number here is the smallest.
    fn null(&mut self) {
        self.integer(i64::MIN);
    }
}

struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn next(&mut self, length: usize) -> &'b [u8] {
        let (next, rest) = self.0.split_at(length);
        self.0 = rest;
        next
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        self.next(N).try_into().expect("it has this length")
    }
}

impl Source for Reader<'_> {
    fn integer(&mut self) -> i64 {
        i64::from_le_bytes(self.array())
    }

    fn small(&mut self) -> i32 {
        i32::from_le_bytes(self.array())
    }

    fn text(&mut self) -> &str {
        let length = u16::from_le_bytes(self.array());
        std::str::from_utf8(self.next(usize::from(length))).expect("a text was put")
    }

    fn nullable(&mut self) -> Option<i64> {
        Some(self.integer()).filter(|value| *value != i64::MIN)
    }
}

/// A row where it lies. `B` owns or borrows its bytes.
pub(super) struct Columned<B> {
    columns: &'static [Column],
    bytes: B,
}

impl<B: AsRef<[u8]>> Columned<B> {
    /// The bytes of a row.
    pub(super) fn of<R: Row>(bytes: B) -> Self {
        Columned {
            columns: R::COLUMNS,
            bytes,
        }
    }

    pub(super) fn into_bytes(self) -> B {
        self.bytes
    }

    /// From where to where a column lies, a text with its length.
    fn span(&self, column: usize) -> Range<usize> {
        let bytes = self.bytes.as_ref();
        let mut span = 0..0;
        for column in &self.columns[..=column] {
            let length = match column.kind {
                Kind::Integer(4) => 4,
                Kind::Integer(_) | Kind::Nullable => 8,
                Kind::Text(_) => {
                    2 + usize::from(u16::from_le_bytes([bytes[span.end], bytes[span.end + 1]]))
                }
            };
            span = span.end..span.end + length;
        }
        span
    }

    fn reader(&self, column: usize) -> Reader<'_> {
        Reader(&self.bytes.as_ref()[self.span(column)])
    }
}

impl<B: AsRef<[u8]>> View for Columned<B> {
    fn integer(&self, column: usize) -> i64 {
        self.reader(column).integer()
    }

    fn small(&self, column: usize) -> i32 {
        self.reader(column).small()
    }

    fn text(&self, column: usize) -> &str {
        let text = &self.bytes.as_ref()[self.span(column)][2..];
        std::str::from_utf8(text).expect("a text was put")
    }
}

impl Change for Columned<Vec<u8>> {
    fn set_integer(&mut self, column: usize, value: i64) {
        let span = self.span(column);
        self.bytes[span].copy_from_slice(&value.to_le_bytes());
    }

    fn set_small(&mut self, column: usize, value: i32) {
        let span = self.span(column);
        self.bytes[span].copy_from_slice(&value.to_le_bytes());
    }

    fn set_text(&mut self, column: usize, value: &str) {
        let span = self.span(column);
        let length = (value.len() as u16).to_le_bytes();
        let text = length.into_iter().chain(value.bytes());
        self.bytes.splice(span, text);
    }
}

/// A key under construction.
#[derive(Debug, Default)]
struct Ordered(Vec<u8>);

impl Sink for Ordered {
    fn integer(&mut self, value: i64) {
        let flipped = value as u64 ^ 1 << 63;
        self.0.extend_from_slice(&flipped.to_be_bytes());
    }

    fn small(&mut self, value: i32) {
        let flipped = value as u32 ^ 1 << 31;
        self.0.extend_from_slice(&flipped.to_be_bytes());
    }

    fn text(&mut self, value: &str) {
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(0);
    }

    fn null(&mut self) {
        unreachable!("no key has a column without a value");
    }
}

/// A key that is taken apart.
struct Apart<'b>(Reader<'b>);

impl Source for Apart<'_> {
    fn integer(&mut self) -> i64 {
        (u64::from_be_bytes(self.0.array()) ^ 1 << 63) as i64
    }

    fn small(&mut self) -> i32 {
        (u32::from_be_bytes(self.0.array()) ^ 1 << 31) as i32
    }

    fn text(&mut self) -> &str {
        let length = self.0.0.iter().position(|&byte| byte == 0);
        let text = self.0.next(length.expect("texts end with a zero"));
        self.0.next(1);
        std::str::from_utf8(text).expect("a text was put")
    }

    fn nullable(&mut self) -> Option<i64> {
        unreachable!("no key has a column without a value");
    }
}

/// The key that these bytes are.
pub(super) fn read_key<K: Key>(bytes: &[u8]) -> K {
    K::take(&mut Apart(Reader(bytes)))
}

/// A row's bytes.
pub(super) fn row<R: Row>(row: &R) -> Vec<u8> {
    let mut columns = Columns(Vec::with_capacity(128));
    row.put(&mut columns);
    columns.0
}

/// The row that these bytes are.
pub(super) fn read<R: Row>(bytes: &[u8]) -> R {
    R::take(&mut Reader(bytes))
}

/// A key's bytes, or the beginning of those that begin with it.
pub(super) fn key(key: &impl Key) -> Vec<u8> {
    let mut ordered = Ordered(Vec::with_capacity(48));
    key.put(&mut ordered);
    ordered.0
}

/// The first bytes after all that begin with these; none after the last.
pub(super) fn after(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = prefix.pop() {
        if last < u8::MAX {
            prefix.push(last + 1);
            return Some(prefix);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::tpcc::generate::Size;
    use crate::workload::tpcc::population::{Populated, Population};
    use crate::workload::tpcc::row::{Customer, History, Order, OrderLine, Text, position};

    fn survives<R: Populated + PartialEq + std::fmt::Debug>() {
        let mut from = Population::of::<R>(1, Size::SMALL);
        R::populate(&mut from, 0, &mut |given| {
            assert_eq!(read::<R>(&row(&given)), given);
        });
    }

    #[test]
    fn rows_survive() {
        survives::<Customer>();
        survives::<History>();
        survives::<Order>();
        survives::<OrderLine>();
    }

    #[test]
    fn columns_are_read_and_changed_in_place() {
        const BALANCE: usize = position(Customer::COLUMNS, "c_balance");
        const COUNT: usize = position(Customer::COLUMNS, "c_payment_cnt");
        const DATA: usize = position(Customer::COLUMNS, "c_data");
        const LAST: usize = position(Customer::COLUMNS, "c_last");
        let mut from = Population::of::<Customer>(1, Size::SMALL);
        Customer::populate(&mut from, 0, &mut |mut given| {
            let mut changed = Columned::of::<Customer>(row(&given));
            assert_eq!(changed.integer(BALANCE), given.c_balance.0);
            changed.set_integer(BALANCE, -5);
            changed.add_small(COUNT, 7);
            changed.set_text(DATA, "a longer or a shorter text");
            assert_eq!(changed.text(LAST), &*given.c_last);
            given.c_balance.0 = -5;
            given.c_payment_cnt += 7;
            given.c_data = Text::new("a longer or a shorter text");
            assert_eq!(read::<Customer>(&changed.into_bytes()), given);
        });
    }

    #[test]
    fn keys_are_ordered_as_their_columns() {
        let ordered = [i32::MIN, -256, -1, 0, 1, 255, 256, i32::MAX];
        assert!(ordered.map(|number| key(&(number,))).is_sorted());
        let names = ["", "A", "AB", "B"].map(|name| key(&(Text::<16>::new(name), 5)));
        assert!(names.is_sorted());
        assert!(key(&(3, 7)).starts_with(&key(&(3,))));
        let whole = (-3, Text::<16>::new("AB"), i64::MIN);
        assert!(read_key::<(i32, Text<16>, i64)>(&key(&whole)) == whole);
    }

    #[test]
    fn what_begins_with_a_prefix_lies_before_what_is_after_it() {
        assert_eq!(after(vec![1, 255, 255]), Some(vec![2]));
        assert_eq!(after(vec![255]), None);
        let end = after(key(&(3,))).unwrap();
        assert!(key(&(3, i32::MAX)) < end && end <= key(&(4,)));
    }
}
