//! TPC-C's tables as types (clause 1.3), for every engine that is called and not
//! sent SQL.
//!
//! ```text
//!   Row      struct, one a table: key columns first, then what changes, then the rest
//!    │ put / take, column by column
//!    ▼
//!   Sink / Source      an engine's own form: bytes, SQL values, …
//! ```
//!
//! Text lies inside the row ([`Text`]), so that a row is read and written without
//! an allocation, as the engines that are measured this way do it.
//!
//! Departures from clause 1.3: `history` has a number of its own, since a store
//! needs a key; the specification's has none. The order of columns is ours.

use std::fmt;
use std::ops::Deref;

use super::number::{Cents, Fixed, Rate};

/// Text of at most `N` bytes, of which the row owns all.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text<const N: usize> {
    length: u16,
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    /// The text's beginning, as much as fits.
    pub fn new(text: &str) -> Self {
        let mut whole = Text::default();
        whole.append(text);
        whole
    }

    /// Adds a text's beginning, as much as fits.
    pub fn append(&mut self, text: &str) {
        let used = usize::from(self.length);
        let mut length = text.len().min(N - used);
        while !text.is_char_boundary(length) {
            length -= 1;
        }
        self.bytes[used..used + length].copy_from_slice(&text.as_bytes()[..length]);
        // Columns are far shorter than 64 KiB.
        self.length += length as u16;
    }

    /// The beginning of bytes, where others than ASCII become question marks.
    pub fn from_ascii(text: &[u8]) -> Self {
        let length = text.len().min(N);
        let mut bytes = [0; N];
        for (byte, given) in bytes.iter_mut().zip(text) {
            *byte = if given.is_ascii() { *given } else { b'?' };
        }
        Text {
            length: length as u16,
            bytes,
        }
    }
}

impl<const N: usize> Deref for Text<N> {
    type Target = str;

    fn deref(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)])
            .expect("only whole characters were copied")
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Text {
            length: 0,
            bytes: [0; N],
        }
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &**self)
    }
}

/// Where the columns of a row or key go, in order.
pub trait Sink {
    /// A whole number: also money in cents, rates in 1/10000, times in µs.
    fn integer(&mut self, value: i64);
    /// A whole number of four bytes, for those who care.
    fn small(&mut self, value: i32) {
        self.integer(i64::from(value));
    }
    /// Text.
    fn text(&mut self, value: &str);
    /// Nothing.
    fn null(&mut self);
}

/// Where the columns of a row come from, in the order in which they were put.
pub trait Source {
    /// The next column, which is a number.
    fn integer(&mut self) -> i64;
    /// The next column, which is a number of four bytes.
    fn small(&mut self) -> i32 {
        // Only what was put as four bytes is taken as such.
        self.integer() as i32
    }
    /// The next column, which is text.
    fn text(&mut self) -> &str;
    /// The next column, a number or nothing.
    fn nullable(&mut self) -> Option<i64>;
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number of so many bytes.
    Integer(u8),
    /// A whole number or nothing.
    Nullable,
    /// Text of so many bytes at most.
    Text(usize),
}

/// A column's name and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name in the specification.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
}

/// A value that a column can hold.
pub trait Value: Sized {
    /// What a column of such values holds.
    const KIND: Kind;
    /// Hands it over.
    fn put(&self, sink: &mut impl Sink);
    /// Takes it back.
    fn take(source: &mut impl Source) -> Self;
}

impl Value for i32 {
    const KIND: Kind = Kind::Integer(4);

    fn put(&self, sink: &mut impl Sink) {
        sink.small(*self);
    }

    fn take(source: &mut impl Source) -> Self {
        source.small()
    }
}

impl Value for i64 {
    const KIND: Kind = Kind::Integer(8);

    fn put(&self, sink: &mut impl Sink) {
        sink.integer(*self);
    }

    fn take(source: &mut impl Source) -> Self {
        source.integer()
    }
}

impl<const PLACES: u32> Value for Fixed<PLACES> {
    const KIND: Kind = Kind::Integer(8);

    fn put(&self, sink: &mut impl Sink) {
        sink.integer(self.0);
    }

    fn take(source: &mut impl Source) -> Self {
        Fixed(source.integer())
    }
}

impl Value for Option<i64> {
    const KIND: Kind = Kind::Nullable;

    fn put(&self, sink: &mut impl Sink) {
        match self {
            Some(value) => sink.integer(*value),
            None => sink.null(),
        }
    }

    fn take(source: &mut impl Source) -> Self {
        source.nullable()
    }
}

impl<const N: usize> Value for Text<N> {
    const KIND: Kind = Kind::Text(N);

    fn put(&self, sink: &mut impl Sink) {
        sink.text(self);
    }

    fn take(source: &mut impl Source) -> Self {
        Text::new(source.text())
    }
}

/// The position of a column, for constants.
///
/// # Panics
/// There is no such column.
pub const fn position(columns: &[Column], name: &str) -> usize {
    let mut at = 0;
    while !is_same(columns[at].name.as_bytes(), name.as_bytes()) {
        at += 1;
    }
    at
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// The first columns of a key, or all of them.
pub trait Key: Copy {
    /// How many.
    const COLUMNS: usize;
    /// Hands them over, in order.
    fn put(&self, sink: &mut impl Sink);
    /// Takes them back.
    fn take(source: &mut impl Source) -> Self;
}

macro_rules! keys {
    ($(($($name:ident)*) $count:literal;)*) => {$(
        impl<$($name: Value + Copy),*> Key for ($($name,)*) {
            const COLUMNS: usize = $count;

            #[allow(non_snake_case, unused_variables)]
            fn put(&self, sink: &mut impl Sink) {
                let ($($name,)*) = self;
                $($name.put(sink);)*
            }

            // Of no columns, this is the unit.
            #[allow(unused_variables, clippy::unused_unit)]
            fn take(source: &mut impl Source) -> Self {
                ($($name::take(source),)*)
            }
        }
    )*};
}

keys! {
    () 0;
    (A) 1;
    (A B) 2;
    (A B C) 3;
    (A B C D) 4;
    (A B C D E) 5;
}

/// A table's row.
pub trait Row: Sized + Clone {
    /// The table's place in [`TABLES`].
    const TABLE: usize;
    /// The table's name.
    const NAME: &'static str;
    /// All columns.
    const COLUMNS: &'static [Column];
    /// How many of the first columns are the primary key.
    const KEY: usize;
    /// How many columns after them a transaction changes; the rest stays as it
    /// was inserted.
    const CHANGING: usize;
    /// The primary key's type.
    type Key: Key;

    /// The primary key.
    fn key(&self) -> Self::Key;
    /// Hands over all columns, in order.
    fn put(&self, sink: &mut impl Sink);
    /// Hands over those that transactions change.
    fn put_changing(&self, sink: &mut impl Sink);
    /// Takes all columns back.
    fn take(source: &mut impl Source) -> Self;
}

/// Another way to a table's rows. No transaction changes its columns.
pub trait Index {
    /// The index's place in [`INDEXES`].
    const INDEX: usize;
    /// Its name.
    const NAME: &'static str;
    /// Its columns; those of the primary key are among them, so that no two
    /// rows have the same.
    const COLUMNS: &'static [&'static str];
    /// The table.
    type Row: Row;
    /// The key's type.
    type Key: Key;

    /// The key of a row.
    fn key(row: &Self::Row) -> Self::Key;
}

macro_rules! rows {
    ($(
        $(#[$about:meta])*
        $number:literal $table:literal $row:ident {
            key { $($key:ident: $key_type:ty),* $(,)? }
            changing { $($changing:ident: $changing_type:ty),* $(,)? }
            fixed { $($fixed:ident: $fixed_type:ty),* $(,)? }
        }
    )*) => {
        /// All tables' names.
        pub const TABLES: &[&str] = &[$($table),*];

        $(
            $(#[$about])*
            #[derive(Clone, Debug, PartialEq)]
            #[allow(missing_docs, reason = "columns are explained in the specification")]
            pub struct $row {
                $(pub $key: $key_type,)*
                $(pub $changing: $changing_type,)*
                $(pub $fixed: $fixed_type,)*
            }

            impl Row for $row {
                const TABLE: usize = $number;
                const NAME: &'static str = $table;
                const COLUMNS: &'static [Column] = &[
                    $(Column { name: stringify!($key), kind: <$key_type as Value>::KIND },)*
                    $(Column { name: stringify!($changing), kind: <$changing_type as Value>::KIND },)*
                    $(Column { name: stringify!($fixed), kind: <$fixed_type as Value>::KIND },)*
                ];
                const KEY: usize = <[&str]>::len(&[$(stringify!($key)),*]);
                const CHANGING: usize = <[&str]>::len(&[$(stringify!($changing)),*]);
                type Key = ($($key_type,)*);

                fn key(&self) -> Self::Key {
                    ($(self.$key,)*)
                }

                fn put(&self, sink: &mut impl Sink) {
                    $(self.$key.put(sink);)*
                    $(self.$changing.put(sink);)*
                    $(self.$fixed.put(sink);)*
                }

                #[allow(unused_variables, reason = "some tables never change")]
                fn put_changing(&self, sink: &mut impl Sink) {
                    $(self.$changing.put(sink);)*
                }

                fn take(source: &mut impl Source) -> Self {
                    $row {
                        $($key: Value::take(source),)*
                        $($changing: Value::take(source),)*
                        $($fixed: Value::take(source),)*
                    }
                }
            }
        )*
    };
}

/// A postal address (clause 4.3.2.7).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Address {
    /// First street.
    pub street_1: Text<20>,
    /// Second street.
    pub street_2: Text<20>,
    /// City.
    pub city: Text<20>,
    /// State.
    pub state: Text<2>,
    /// Postal code.
    pub zip: Text<9>,
}

rows! {
    /// A warehouse.
    0 "warehouse" Warehouse {
        key { w_id: i32 }
        changing { w_ytd: Cents }
        fixed {
            w_tax: Rate, w_name: Text<10>, w_street_1: Text<20>, w_street_2: Text<20>,
            w_city: Text<20>, w_state: Text<2>, w_zip: Text<9>,
        }
    }

    /// A district of a warehouse.
    1 "district" District {
        key { d_w_id: i32, d_id: i32 }
        changing { d_ytd: Cents, d_next_o_id: i32 }
        fixed {
            d_tax: Rate, d_name: Text<10>, d_street_1: Text<20>, d_street_2: Text<20>,
            d_city: Text<20>, d_state: Text<2>, d_zip: Text<9>,
        }
    }

    /// A customer of a district.
    2 "customer" Customer {
        key { c_w_id: i32, c_d_id: i32, c_id: i32 }
        changing {
            c_balance: Cents, c_ytd_payment: Cents, c_payment_cnt: i32, c_delivery_cnt: i32,
            c_data: Text<500>,
        }
        fixed {
            c_discount: Rate, c_credit: Text<2>, c_last: Text<16>, c_first: Text<16>,
            c_credit_lim: Cents, c_street_1: Text<20>, c_street_2: Text<20>, c_city: Text<20>,
            c_state: Text<2>, c_zip: Text<9>, c_phone: Text<16>, c_since: i64, c_middle: Text<2>,
        }
    }

    /// A payment; its number is unique in the warehouse.
    3 "history" History {
        key { h_w_id: i32, h_number: i64 }
        changing {}
        fixed {
            h_c_id: i32, h_c_d_id: i32, h_c_w_id: i32, h_d_id: i32, h_date: i64,
            h_amount: Cents, h_data: Text<24>,
        }
    }

    /// An order; ORDER is a word of SQL.
    4 "oorder" Order {
        key { o_w_id: i32, o_d_id: i32, o_id: i32 }
        changing { o_carrier_id: Option<i64> }
        fixed { o_c_id: i32, o_ol_cnt: i32, o_all_local: i32, o_entry_d: i64 }
    }

    /// An order that was not delivered yet.
    5 "new_order" NewOrder {
        key { no_w_id: i32, no_d_id: i32, no_o_id: i32 }
        changing {}
        fixed {}
    }

    /// A line of an order.
    6 "order_line" OrderLine {
        key { ol_w_id: i32, ol_d_id: i32, ol_o_id: i32, ol_number: i32 }
        changing { ol_delivery_d: Option<i64> }
        fixed {
            ol_i_id: i32, ol_supply_w_id: i32, ol_quantity: i32, ol_amount: Cents,
            ol_dist_info: Text<24>,
        }
    }

    /// An item.
    7 "item" Item {
        key { i_id: i32 }
        changing {}
        fixed { i_im_id: i32, i_price: Cents, i_name: Text<24>, i_data: Text<50> }
    }

    /// What a warehouse has of an item.
    8 "stock" Stock {
        key { s_w_id: i32, s_i_id: i32 }
        changing { s_quantity: i32, s_ytd: i32, s_order_cnt: i32, s_remote_cnt: i32 }
        fixed {
            s_data: Text<50>, s_dist_01: Text<24>, s_dist_02: Text<24>, s_dist_03: Text<24>,
            s_dist_04: Text<24>, s_dist_05: Text<24>, s_dist_06: Text<24>, s_dist_07: Text<24>,
            s_dist_08: Text<24>, s_dist_09: Text<24>, s_dist_10: Text<24>,
        }
    }
}

impl Stock {
    /// The text that a district puts on its order lines.
    pub fn dist_info(&self, district: i32) -> &Text<24> {
        match district {
            1 => &self.s_dist_01,
            2 => &self.s_dist_02,
            3 => &self.s_dist_03,
            4 => &self.s_dist_04,
            5 => &self.s_dist_05,
            6 => &self.s_dist_06,
            7 => &self.s_dist_07,
            8 => &self.s_dist_08,
            9 => &self.s_dist_09,
            _ => &self.s_dist_10,
        }
    }
}

/// All indexes' names.
pub const INDEXES: &[&str] = &[CustomerName::NAME, CustomerOrder::NAME];

/// Customers by last name, then first name.
#[derive(Clone, Copy, Debug)]
pub struct CustomerName;

impl Index for CustomerName {
    const INDEX: usize = 0;
    const NAME: &'static str = "customer_name";
    const COLUMNS: &'static [&'static str] = &["c_w_id", "c_d_id", "c_last", "c_first", "c_id"];
    type Row = Customer;
    type Key = (i32, i32, Text<16>, Text<16>, i32);

    fn key(row: &Customer) -> Self::Key {
        (row.c_w_id, row.c_d_id, row.c_last, row.c_first, row.c_id)
    }
}

/// Orders by customer.
#[derive(Clone, Copy, Debug)]
pub struct CustomerOrder;

impl Index for CustomerOrder {
    const INDEX: usize = 1;
    const NAME: &'static str = "oorder_customer";
    const COLUMNS: &'static [&'static str] = &["o_w_id", "o_d_id", "o_c_id", "o_id"];
    type Row = Order;
    type Key = (i32, i32, i32, i32);

    fn key(row: &Order) -> Self::Key {
        (row.o_w_id, row.o_d_id, row.o_c_id, row.o_id)
    }
}
