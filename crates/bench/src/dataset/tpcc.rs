//! TPC-C's tables and their initial population (clause 4.3.3.1).
//!
//! Column names are the specification's; table `ORDER` is called `oorder`, as
//! in BenchBase, since ORDER is a word of SQL. Indexes are BenchBase's: the
//! primary keys, customers by name, orders by customer. Constraints between
//! tables are left out, as in BenchBase: they would measure PostgreSQL's
//! triggers.

use rand::seq::SliceRandom;
use rand::{Rng, RngCore};
use rand_chacha::ChaCha8Rng;

use super::DatasetSpec;
use super::writer::{self, Rows};
use crate::postgres::Session;
use crate::tpcc::generate::{
    CUSTOMERS, DISTRICTS, FIRST_NEW_ORDER, ITEMS, ORDERS, last_name, name_number_load, random,
};
use crate::{Progress, Result};

/// Every row's time: loading is a function of the seed, not of the clock.
const LOAD_TIME: &str = "2026-01-01 00:00:00";

struct Table {
    name: &'static str,
    create: &'static str,
    index: &'static str,
    /// How many times `fill` is called: for each warehouse, or once.
    parts: fn(&DatasetSpec) -> i32,
    fill: fn(&mut Source, i32, &mut Rows),
}

const WAREHOUSES: fn(&DatasetSpec) -> i32 = |spec| spec.warehouses as i32;
const DISTRICT_PARTS: fn(&DatasetSpec) -> i32 = |spec| spec.warehouses as i32 * DISTRICTS;

const TABLES: [Table; 9] = [
    Table {
        name: "item",
        create: "CREATE TABLE item (i_id int NOT NULL, i_im_id int NOT NULL, \
            i_name varchar(24) NOT NULL, i_price numeric(5,2) NOT NULL, \
            i_data varchar(50) NOT NULL)",
        index: "ALTER TABLE item ADD PRIMARY KEY (i_id)",
        parts: |_| 1,
        fill: Source::items,
    },
    Table {
        name: "warehouse",
        create: "CREATE TABLE warehouse (w_id int NOT NULL, w_ytd numeric(12,2) NOT NULL, \
            w_tax numeric(4,4) NOT NULL, w_name varchar(10) NOT NULL, \
            w_street_1 varchar(20) NOT NULL, w_street_2 varchar(20) NOT NULL, \
            w_city varchar(20) NOT NULL, w_state char(2) NOT NULL, w_zip char(9) NOT NULL)",
        index: "ALTER TABLE warehouse ADD PRIMARY KEY (w_id)",
        parts: WAREHOUSES,
        fill: Source::warehouse,
    },
    Table {
        name: "district",
        create: "CREATE TABLE district (d_w_id int NOT NULL, d_id int NOT NULL, \
            d_ytd numeric(12,2) NOT NULL, d_tax numeric(4,4) NOT NULL, \
            d_next_o_id int NOT NULL, d_name varchar(10) NOT NULL, \
            d_street_1 varchar(20) NOT NULL, d_street_2 varchar(20) NOT NULL, \
            d_city varchar(20) NOT NULL, d_state char(2) NOT NULL, d_zip char(9) NOT NULL)",
        index: "ALTER TABLE district ADD PRIMARY KEY (d_w_id, d_id)",
        parts: DISTRICT_PARTS,
        fill: Source::district,
    },
    Table {
        name: "customer",
        create: "CREATE TABLE customer (c_w_id int NOT NULL, c_d_id int NOT NULL, \
            c_id int NOT NULL, c_discount numeric(4,4) NOT NULL, c_credit char(2) NOT NULL, \
            c_last varchar(16) NOT NULL, c_first varchar(16) NOT NULL, \
            c_credit_lim numeric(12,2) NOT NULL, c_balance numeric(12,2) NOT NULL, \
            c_ytd_payment numeric(12,2) NOT NULL, c_payment_cnt int NOT NULL, \
            c_delivery_cnt int NOT NULL, c_street_1 varchar(20) NOT NULL, \
            c_street_2 varchar(20) NOT NULL, c_city varchar(20) NOT NULL, \
            c_state char(2) NOT NULL, c_zip char(9) NOT NULL, c_phone char(16) NOT NULL, \
            c_since timestamp NOT NULL, c_middle char(2) NOT NULL, c_data varchar(500) NOT NULL)",
        index: "ALTER TABLE customer ADD PRIMARY KEY (c_w_id, c_d_id, c_id); \
            CREATE INDEX customer_name ON customer (c_w_id, c_d_id, c_last, c_first)",
        parts: DISTRICT_PARTS,
        fill: Source::customers,
    },
    Table {
        name: "history",
        create: "CREATE TABLE history (h_c_id int NOT NULL, h_c_d_id int NOT NULL, \
            h_c_w_id int NOT NULL, h_d_id int NOT NULL, h_w_id int NOT NULL, \
            h_date timestamp NOT NULL, h_amount numeric(6,2) NOT NULL, \
            h_data varchar(24) NOT NULL)",
        index: "",
        parts: DISTRICT_PARTS,
        fill: Source::history,
    },
    Table {
        name: "oorder",
        create: "CREATE TABLE oorder (o_w_id int NOT NULL, o_d_id int NOT NULL, \
            o_id int NOT NULL, o_c_id int NOT NULL, o_carrier_id int, o_ol_cnt int NOT NULL, \
            o_all_local int NOT NULL, o_entry_d timestamp NOT NULL)",
        index: "ALTER TABLE oorder ADD PRIMARY KEY (o_w_id, o_d_id, o_id); \
            CREATE UNIQUE INDEX oorder_customer ON oorder (o_w_id, o_d_id, o_c_id, o_id)",
        parts: DISTRICT_PARTS,
        fill: Source::orders,
    },
    Table {
        name: "new_order",
        create: "CREATE TABLE new_order (no_w_id int NOT NULL, no_d_id int NOT NULL, \
            no_o_id int NOT NULL)",
        index: "ALTER TABLE new_order ADD PRIMARY KEY (no_w_id, no_d_id, no_o_id)",
        parts: DISTRICT_PARTS,
        fill: Source::new_orders,
    },
    Table {
        name: "order_line",
        create: "CREATE TABLE order_line (ol_w_id int NOT NULL, ol_d_id int NOT NULL, \
            ol_o_id int NOT NULL, ol_number int NOT NULL, ol_i_id int NOT NULL, \
            ol_delivery_d timestamp, ol_amount numeric(6,2) NOT NULL, \
            ol_supply_w_id int NOT NULL, ol_quantity int NOT NULL, \
            ol_dist_info char(24) NOT NULL)",
        index: "ALTER TABLE order_line ADD PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)",
        parts: DISTRICT_PARTS,
        fill: Source::order_lines,
    },
    Table {
        name: "stock",
        create: "CREATE TABLE stock (s_w_id int NOT NULL, s_i_id int NOT NULL, \
            s_quantity int NOT NULL, s_ytd int NOT NULL, s_order_cnt int NOT NULL, \
            s_remote_cnt int NOT NULL, s_data varchar(50) NOT NULL, \
            s_dist_01 char(24) NOT NULL, s_dist_02 char(24) NOT NULL, \
            s_dist_03 char(24) NOT NULL, s_dist_04 char(24) NOT NULL, \
            s_dist_05 char(24) NOT NULL, s_dist_06 char(24) NOT NULL, \
            s_dist_07 char(24) NOT NULL, s_dist_08 char(24) NOT NULL, \
            s_dist_09 char(24) NOT NULL, s_dist_10 char(24) NOT NULL)",
        index: "ALTER TABLE stock ADD PRIMARY KEY (s_w_id, s_i_id)",
        parts: WAREHOUSES,
        fill: Source::stock,
    },
];

/// Loads all tables.
pub(super) fn load(session: &Session, spec: &DatasetSpec, progress: Progress<'_>) -> Result<()> {
    for (table, stream) in TABLES.iter().zip(1_u64..) {
        let parts = (table.parts)(spec);
        progress(&format!(
            "loading TPC-C, {} warehouses: {}",
            spec.warehouses, table.name
        ));
        let mut source = Source {
            seed: spec.seed,
            random: random(spec.seed, stream << 32),
        };
        let mut part = 0;
        writer::load(session, table.name, table.create, table.index, |rows| {
            (table.fill)(&mut source, part, rows);
            part += 1;
            part < parts
        })?;
    }
    Ok(())
}

/// The orders of one district: the customer (a permutation, clause 4.3.3.1) and
/// the number of lines of each. `oorder` and `order_line` must agree on them,
/// so they have a random stream of their own.
fn order_shapes(seed: u64, part: i32) -> Vec<(i32, i32)> {
    let mut random = random(seed, 1 << 48 | part as u64);
    let mut customers: Vec<i32> = (1..=CUSTOMERS).collect();
    customers.shuffle(&mut random);
    customers
        .into_iter()
        .map(|customer| (customer, random.random_range(5..=15)))
        .collect()
}

/// The rows of the tables. `part` counts warehouses, or districts across all
/// warehouses, from 0.
struct Source {
    seed: u64,
    random: ChaCha8Rng,
}

impl Source {
    /// Letters and digits, `low` to `high` of them (clause 4.3.2.2). Most of the
    /// data is such text, so it is made from bytes in bulk; that 256 is no
    /// multiple of 62 makes eight characters a fifth more likely.
    fn text(&mut self, low: usize, high: usize) -> String {
        const CHARACTERS: &[u8; 62] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        let length = self.random.random_range(low..=high);
        let mut bytes = [0; 500];
        let bytes = &mut bytes[..length];
        self.random.fill_bytes(bytes);
        for byte in bytes.iter_mut() {
            *byte = CHARACTERS[usize::from(*byte) % CHARACTERS.len()];
        }
        String::from_utf8_lossy(bytes).into_owned()
    }

    fn digits(&mut self, count: usize) -> String {
        (0..count)
            .map(|_| char::from(self.random.random_range(b'0'..=b'9')))
            .collect()
    }

    /// Data of an item or stock row: 10 % hold ORIGINAL (clause 4.3.3.1).
    fn data(&mut self) -> String {
        let mut text = self.text(26, 50);
        if self.random.random_range(0..10) == 0 {
            let start = self.random.random_range(0..=text.len() - 8);
            text.replace_range(start..start + 8, "ORIGINAL");
        }
        text
    }

    /// Street, street, city, state, zip (clause 4.3.2.7).
    fn address(&mut self, rows: &mut Rows) {
        for _ in 0..3 {
            rows.field(self.text(10, 20));
        }
        let zip = self.digits(4);
        rows.field(self.text(2, 2))
            .field(format_args!("{zip}11111"));
    }

    fn items(&mut self, _: i32, rows: &mut Rows) {
        for item in 1..=ITEMS {
            rows.field(item).field(self.random.random_range(1..=10_000));
            rows.field(self.text(14, 24))
                .cents(self.random.random_range(100..=10_000));
            rows.field(self.data()).end();
        }
    }

    fn warehouse(&mut self, part: i32, rows: &mut Rows) {
        rows.field(part + 1)
            .cents(30_000_000)
            .rate(self.random.random_range(0..=2_000));
        rows.field(self.text(6, 10));
        self.address(rows);
        rows.end();
    }

    fn district(&mut self, part: i32, rows: &mut Rows) {
        place(part, rows)
            .cents(3_000_000)
            .rate(self.random.random_range(0..=2_000));
        rows.field(ORDERS + 1).field(self.text(6, 10));
        self.address(rows);
        rows.end();
    }

    fn customers(&mut self, part: i32, rows: &mut Rows) {
        for customer in 1..=CUSTOMERS {
            let name = match customer {
                1..=1_000 => customer - 1,
                _ => name_number_load(&mut self.random),
            };
            let good = self.random.random_range(0..10) > 0;
            place(part, rows)
                .field(customer)
                .rate(self.random.random_range(0..=5_000));
            rows.field(if good { "GC" } else { "BC" })
                .field(last_name(name));
            rows.field(self.text(8, 16))
                .cents(5_000_000)
                .cents(-1_000)
                .cents(1_000);
            rows.field(1).field(0);
            self.address(rows);
            rows.field(self.digits(16)).field(LOAD_TIME).field("OE");
            rows.field(self.text(300, 500)).end();
        }
    }

    fn history(&mut self, part: i32, rows: &mut Rows) {
        let (warehouse, district) = (part / DISTRICTS + 1, part % DISTRICTS + 1);
        for customer in 1..=CUSTOMERS {
            rows.field(customer).field(district).field(warehouse);
            rows.field(district)
                .field(warehouse)
                .field(LOAD_TIME)
                .cents(1_000);
            rows.field(self.text(12, 24)).end();
        }
    }

    fn orders(&mut self, part: i32, rows: &mut Rows) {
        for ((customer, lines), order) in order_shapes(self.seed, part).into_iter().zip(1..) {
            place(part, rows).field(order).field(customer);
            if order < FIRST_NEW_ORDER {
                rows.field(self.random.random_range(1..=10));
            } else {
                rows.null();
            }
            rows.field(lines).field(1).field(LOAD_TIME).end();
        }
    }

    fn new_orders(&mut self, part: i32, rows: &mut Rows) {
        for order in FIRST_NEW_ORDER..=ORDERS {
            place(part, rows).field(order).end();
        }
    }

    fn order_lines(&mut self, part: i32, rows: &mut Rows) {
        let warehouse = part / DISTRICTS + 1;
        for ((_, lines), order) in order_shapes(self.seed, part).into_iter().zip(1..) {
            for number in 1..=lines {
                place(part, rows).field(order).field(number);
                rows.field(self.random.random_range(1..=ITEMS));
                if order < FIRST_NEW_ORDER {
                    rows.field(LOAD_TIME).cents(0);
                } else {
                    rows.null().cents(self.random.random_range(1..=999_999));
                }
                rows.field(warehouse)
                    .field(5)
                    .field(self.text(24, 24))
                    .end();
            }
        }
    }

    fn stock(&mut self, part: i32, rows: &mut Rows) {
        for item in 1..=ITEMS {
            rows.field(part + 1)
                .field(item)
                .field(self.random.random_range(10..=100));
            rows.field(0).field(0).field(0).field(self.data());
            for _ in 0..DISTRICTS {
                rows.field(self.text(24, 24));
            }
            rows.end();
        }
    }
}

/// The warehouse and district of a part.
fn place(part: i32, rows: &mut Rows) -> &mut Rows {
    rows.field(part / DISTRICTS + 1).field(part % DISTRICTS + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_of_a_district_are_a_permutation_of_its_customers() {
        let shapes = order_shapes(1, 3);
        let mut customers: Vec<i32> = shapes.iter().map(|(customer, _)| *customer).collect();
        assert_ne!(customers, (1..=CUSTOMERS).collect::<Vec<_>>());
        customers.sort_unstable();
        assert_eq!(customers, (1..=CUSTOMERS).collect::<Vec<_>>());
        assert!(shapes.iter().all(|(_, lines)| (5..=15).contains(lines)));
        assert_ne!(shapes, order_shapes(1, 4));
    }

    #[test]
    fn one_row_in_ten_is_original() {
        let mut source = Source {
            seed: 1,
            random: random(1, 0),
        };
        let rows: Vec<String> = (0..10_000).map(|_| source.data()).collect();
        assert!(rows.iter().all(|row| (26..=50).contains(&row.len())));
        let original = rows.iter().filter(|row| row.contains("ORIGINAL")).count();
        assert!((850..=1_150).contains(&original), "{original} of 10000");
    }
}
