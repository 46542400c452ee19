//! The initial population (clause 4.3.3.1), row by row, for every engine.
//!
//! Rows are a function of seed and size: each table has a random stream of its
//! own, and its parts (warehouses, districts, or the whole) follow each other in
//! that stream, so a [`Population`] fills a table from its first part to its
//! last.

use rand::seq::SliceRandom;
use rand::{Rng, RngCore};
use rand_chacha::ChaCha8Rng;

use super::generate::{DISTRICTS, Size, last_name, name_number_load, random};
use super::number::{Cents, Fixed, Rate};
use super::row::{
    Address, Customer, District, History, Item, NewOrder, Order, OrderLine, Row, Stock, Text,
    Warehouse,
};

/// 2026-01-01 in µs since 1970: loading is a function of the seed, not of the
/// clock.
pub(crate) const LOAD_TIME_US: i64 = 1_767_225_600_000_000;

/// The history numbers of loaded payments are below this one, by district.
pub(crate) const LOADED_HISTORY_END: i64 = 1 << 32;

/// What a table is filled by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parts {
    /// Once.
    Whole,
    /// Warehouse by warehouse.
    Warehouses,
    /// District by district, across warehouses.
    Districts,
}

impl Parts {
    /// How many there are with so many warehouses.
    pub(crate) fn count(self, warehouses: u32) -> i32 {
        match self {
            Parts::Whole => 1,
            Parts::Warehouses => warehouses as i32,
            Parts::Districts => warehouses as i32 * DISTRICTS,
        }
    }
}

/// A table whose first rows are known.
pub(crate) trait Populated: Row {
    /// The number of its random stream.
    const STREAM: u64;
    /// What it is filled by.
    const PARTS: Parts;

    /// Makes the rows of a part, counted from 0.
    fn populate(from: &mut Population, part: i32, row: &mut dyn FnMut(Self));
}

/// The source of one table's rows.
pub(crate) struct Population {
    seed: u64,
    size: Size,
    random: ChaCha8Rng,
}

impl Population {
    pub(crate) fn of<R: Populated>(seed: u64, size: Size) -> Self {
        Population {
            seed,
            size,
            random: random(seed, R::STREAM << 32),
        }
    }

    /// Letters and digits, `low` to `high` of them (clause 4.3.2.2). Most of the
    /// data is such text, so it is made from bytes in bulk; that 256 is no
    /// multiple of 62 makes eight characters a fifth more likely.
    fn text<const N: usize>(&mut self, low: usize, high: usize) -> Text<N> {
        const CHARACTERS: &[u8; 62] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        let length = self.random.random_range(low..=high);
        let mut bytes = [0; N];
        self.random.fill_bytes(&mut bytes[..length]);
        for byte in &mut bytes[..length] {
            *byte = CHARACTERS[usize::from(*byte) % CHARACTERS.len()];
        }
        Text::from_ascii(&bytes[..length])
    }

    fn digits<const N: usize>(&mut self, count: usize) -> Text<N> {
        let mut bytes = [0; N];
        for byte in &mut bytes[..count] {
            *byte = self.random.random_range(b'0'..=b'9');
        }
        Text::from_ascii(&bytes[..count])
    }

    /// Data of an item or stock row: 10 % hold ORIGINAL (clause 4.3.3.1).
    fn data(&mut self) -> Text<50> {
        let text: Text<50> = self.text(26, 50);
        if self.random.random_range(0..10) > 0 {
            return text;
        }
        let start = self.random.random_range(0..=text.len() - 8);
        let mut text = text.to_string();
        text.replace_range(start..start + 8, "ORIGINAL");
        Text::new(&text)
    }

    /// Street, street, city, state, zip (clause 4.3.2.7). The last part of the
    /// postal code comes before the state, as it always has.
    fn address(&mut self) -> Address {
        let (street_1, street_2, city) = (self.text(10, 20), self.text(10, 20), self.text(10, 20));
        let zip: Text<4> = self.digits(4);
        Address {
            street_1,
            street_2,
            city,
            state: self.text(2, 2),
            zip: Text::new(&[&*zip, "11111"].concat()),
        }
    }

    fn rate(&mut self, most: i64) -> Rate {
        Fixed(self.random.random_range(0..=most))
    }

    /// The orders of one district: the customer (a permutation, clause 4.3.3.1)
    /// and the number of lines of each. Orders and their lines must agree on
    /// them, so they have a random stream of their own.
    fn order_shapes(&self, part: i32) -> Vec<(i32, i32)> {
        let mut random = random(self.seed, 1 << 48 | part as u64);
        let mut customers: Vec<i32> = (1..=self.size.customers).collect();
        customers.shuffle(&mut random);
        customers
            .into_iter()
            .map(|customer| (customer, random.random_range(5..=15)))
            .collect()
    }
}

/// The warehouse and district of a district part.
fn place(part: i32) -> (i32, i32) {
    (part / DISTRICTS + 1, part % DISTRICTS + 1)
}

impl Populated for Item {
    const STREAM: u64 = 1;
    const PARTS: Parts = Parts::Whole;

    fn populate(from: &mut Population, _: i32, row: &mut dyn FnMut(Self)) {
        for i_id in 1..=from.size.items {
            row(Item {
                i_id,
                i_im_id: from.random.random_range(1..=10_000),
                i_name: from.text(14, 24),
                i_price: Fixed(from.random.random_range(100..=10_000)),
                i_data: from.data(),
            });
        }
    }
}

impl Populated for Warehouse {
    const STREAM: u64 = 2;
    const PARTS: Parts = Parts::Warehouses;

    fn populate(from: &mut Population, part: i32, row: &mut dyn FnMut(Self)) {
        let w_tax = from.rate(2_000);
        let w_name = from.text(6, 10);
        let address = from.address();
        row(Warehouse {
            w_id: part + 1,
            w_ytd: Fixed(1_000 * i64::from(from.size.customers * DISTRICTS)),
            w_tax,
            w_name,
            w_street_1: address.street_1,
            w_street_2: address.street_2,
            w_city: address.city,
            w_state: address.state,
            w_zip: address.zip,
        });
    }
}

impl Populated for District {
    const STREAM: u64 = 3;
    const PARTS: Parts = Parts::Districts;

    fn populate(from: &mut Population, part: i32, row: &mut dyn FnMut(Self)) {
        let (d_w_id, d_id) = place(part);
        let d_tax = from.rate(2_000);
        let d_name = from.text(6, 10);
        let address = from.address();
        row(District {
            d_w_id,
            d_id,
            d_ytd: Fixed(1_000 * i64::from(from.size.customers)),
            d_next_o_id: from.size.customers + 1,
            d_tax,
            d_name,
            d_street_1: address.street_1,
            d_street_2: address.street_2,
            d_city: address.city,
            d_state: address.state,
            d_zip: address.zip,
        });
    }
}

impl Populated for Customer {
    const STREAM: u64 = 4;
    const PARTS: Parts = Parts::Districts;

    fn populate(from: &mut Population, part: i32, row: &mut dyn FnMut(Self)) {
        let (c_w_id, c_d_id) = place(part);
        for c_id in 1..=from.size.customers {
            let name = match c_id {
                1..=1_000 => c_id - 1,
                _ => name_number_load(&mut from.random),
            };
            let good = from.random.random_range(0..10) > 0;
            let c_discount = from.rate(5_000);
            let c_first = from.text(8, 16);
            let address = from.address();
            row(Customer {
                c_w_id,
                c_d_id,
                c_id,
                c_balance: Fixed(-1_000),
                c_ytd_payment: Fixed(1_000),
                c_payment_cnt: 1,
                c_delivery_cnt: 0,
                c_discount,
                c_credit: Text::new(if good { "GC" } else { "BC" }),
                c_last: Text::new(&last_name(name)),
                c_first,
                c_credit_lim: Fixed(5_000_000),
                c_street_1: address.street_1,
                c_street_2: address.street_2,
                c_city: address.city,
                c_state: address.state,
                c_zip: address.zip,
                c_phone: from.digits(16),
                c_since: LOAD_TIME_US,
                c_middle: Text::new("OE"),
                c_data: from.text(300, 500),
            });
        }
    }
}

impl Populated for History {
    const STREAM: u64 = 5;
    const PARTS: Parts = Parts::Districts;

    fn populate(from: &mut Population, part: i32, row: &mut dyn FnMut(Self)) {
        let (h_w_id, h_d_id) = place(part);
        for h_c_id in 1..=from.size.customers {
            row(History {
                h_w_id,
                h_number: i64::from(h_d_id) << 16 | i64::from(h_c_id),
                h_c_id,
                h_c_d_id: h_d_id,
                h_c_w_id: h_w_id,
                h_d_id,
                h_date: LOAD_TIME_US,
                h_amount: Fixed(1_000),
                h_data: from.text(12, 24),
            });
        }
    }
}

impl Populated for Order {
    const STREAM: u64 = 6;
    const PARTS: Parts = Parts::Districts;

    fn populate(from: &mut Population, part: i32, row: &mut dyn FnMut(Self)) {
        let (o_w_id, o_d_id) = place(part);
        for ((o_c_id, o_ol_cnt), o_id) in from.order_shapes(part).into_iter().zip(1..) {
            let delivered = o_id < from.size.first_new_order();
            row(Order {
                o_w_id,
                o_d_id,
                o_id,
                o_carrier_id: delivered.then(|| from.random.random_range(1..=10_i32).into()),
                o_c_id,
                o_ol_cnt,
                o_all_local: 1,
                o_entry_d: LOAD_TIME_US,
            });
        }
    }
}

impl Populated for NewOrder {
    const STREAM: u64 = 7;
    const PARTS: Parts = Parts::Districts;

    fn populate(from: &mut Population, part: i32, row: &mut dyn FnMut(Self)) {
        let (no_w_id, no_d_id) = place(part);
        for no_o_id in from.size.first_new_order()..=from.size.customers {
            row(NewOrder {
                no_w_id,
                no_d_id,
                no_o_id,
            });
        }
    }
}

impl Populated for OrderLine {
    const STREAM: u64 = 8;
    const PARTS: Parts = Parts::Districts;

    fn populate(from: &mut Population, part: i32, row: &mut dyn FnMut(Self)) {
        let (ol_w_id, ol_d_id) = place(part);
        for ((_, lines), ol_o_id) in from.order_shapes(part).into_iter().zip(1..) {
            let delivered = ol_o_id < from.size.first_new_order();
            for ol_number in 1..=lines {
                let ol_i_id = from.random.random_range(1..=from.size.items);
                let ol_amount: Cents = Fixed(match delivered {
                    true => 0,
                    false => from.random.random_range(1..=999_999),
                });
                row(OrderLine {
                    ol_w_id,
                    ol_d_id,
                    ol_o_id,
                    ol_number,
                    ol_delivery_d: delivered.then_some(LOAD_TIME_US),
                    ol_i_id,
                    ol_supply_w_id: ol_w_id,
                    ol_quantity: 5,
                    ol_amount,
                    ol_dist_info: from.text(24, 24),
                });
            }
        }
    }
}

impl Populated for Stock {
    const STREAM: u64 = 9;
    const PARTS: Parts = Parts::Warehouses;

    fn populate(from: &mut Population, part: i32, row: &mut dyn FnMut(Self)) {
        for s_i_id in 1..=from.size.items {
            row(Stock {
                s_w_id: part + 1,
                s_i_id,
                s_quantity: from.random.random_range(10..=100),
                s_ytd: 0,
                s_order_cnt: 0,
                s_remote_cnt: 0,
                s_data: from.data(),
                s_dist_01: from.text(24, 24),
                s_dist_02: from.text(24, 24),
                s_dist_03: from.text(24, 24),
                s_dist_04: from.text(24, 24),
                s_dist_05: from.text(24, 24),
                s_dist_06: from.text(24, 24),
                s_dist_07: from.text(24, 24),
                s_dist_08: from.text(24, 24),
                s_dist_09: from.text(24, 24),
                s_dist_10: from.text(24, 24),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_of_a_district_are_a_permutation_of_its_customers() {
        let from = Population::of::<Order>(1, Size::FULL);
        let shapes = from.order_shapes(3);
        let mut customers: Vec<i32> = shapes.iter().map(|(customer, _)| *customer).collect();
        let all = Vec::from_iter(1..=Size::FULL.customers);
        assert_ne!(customers, all);
        customers.sort_unstable();
        assert_eq!(customers, all);
        assert!(shapes.iter().all(|(_, lines)| (5..=15).contains(lines)));
        assert_ne!(shapes, from.order_shapes(4));
    }

    #[test]
    fn one_row_in_ten_is_original() {
        let mut from = Population::of::<Item>(1, Size::FULL);
        let rows: Vec<Text<50>> = (0..10_000).map(|_| from.data()).collect();
        assert!(rows.iter().all(|row| (26..=50).contains(&row.len())));
        let original = rows.iter().filter(|row| row.contains("ORIGINAL")).count();
        assert!((850..=1_150).contains(&original), "{original} of 10000");
    }
}
