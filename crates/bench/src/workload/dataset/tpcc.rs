//! TPC-C's tables and their initial population (clause 4.3.3.1).
//!
//! Column names are the specification's; table `ORDER` is called `oorder`, as
//! in BenchBase, since ORDER is a word of SQL. Indexes are BenchBase's: the
//! primary keys, customers by name, orders by customer. Constraints between
//! tables are left out, as in BenchBase: they would measure PostgreSQL's
//! triggers.

use super::DatasetSpec;
use super::writer::{self, Rows};
use crate::harness::Progress;
use crate::harness::error::Result;
use crate::workload::postgres::Session;
use crate::workload::tpcc::generate::{DISTRICTS, Size};
use crate::workload::tpcc::population::{Populated, Population};
use crate::workload::tpcc::row::{
    Customer, District, History, Item, NewOrder, Order, OrderLine, Stock, Warehouse,
};

/// Every row's time, [`crate::workload::tpcc::population::LOAD_TIME_US`], as text.
const LOAD_TIME: &str = "2026-01-01 00:00:00";

struct Table {
    name: &'static str,
    create: &'static str,
    index: &'static str,
    load: fn(&Session, &Table, &DatasetSpec) -> Result<()>,
}

const TABLES: [Table; 9] = [
    Table {
        name: "item",
        create: "CREATE TABLE item (i_id int NOT NULL, i_im_id int NOT NULL, \
            i_name varchar(24) NOT NULL, i_price numeric(5,2) NOT NULL, \
            i_data varchar(50) NOT NULL)",
        index: "ALTER TABLE item ADD PRIMARY KEY (i_id)",
        load: |session, table, spec| fill(session, table, spec, items),
    },
    Table {
        name: "warehouse",
        create: "CREATE TABLE warehouse (w_id int NOT NULL, w_ytd numeric(12,2) NOT NULL, \
            w_tax numeric(4,4) NOT NULL, w_name varchar(10) NOT NULL, \
            w_street_1 varchar(20) NOT NULL, w_street_2 varchar(20) NOT NULL, \
            w_city varchar(20) NOT NULL, w_state char(2) NOT NULL, w_zip char(9) NOT NULL)",
        index: "ALTER TABLE warehouse ADD PRIMARY KEY (w_id)",
        load: |session, table, spec| fill(session, table, spec, warehouse),
    },
    Table {
        name: "district",
        create: "CREATE TABLE district (d_w_id int NOT NULL, d_id int NOT NULL, \
            d_ytd numeric(12,2) NOT NULL, d_tax numeric(4,4) NOT NULL, \
            d_next_o_id int NOT NULL, d_name varchar(10) NOT NULL, \
            d_street_1 varchar(20) NOT NULL, d_street_2 varchar(20) NOT NULL, \
            d_city varchar(20) NOT NULL, d_state char(2) NOT NULL, d_zip char(9) NOT NULL)",
        index: "ALTER TABLE district ADD PRIMARY KEY (d_w_id, d_id)",
        load: |session, table, spec| fill(session, table, spec, district),
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
        load: |session, table, spec| fill(session, table, spec, customers),
    },
    Table {
        name: "history",
        create: "CREATE TABLE history (h_c_id int NOT NULL, h_c_d_id int NOT NULL, \
            h_c_w_id int NOT NULL, h_d_id int NOT NULL, h_w_id int NOT NULL, \
            h_date timestamp NOT NULL, h_amount numeric(6,2) NOT NULL, \
            h_data varchar(24) NOT NULL)",
        index: "",
        load: |session, table, spec| fill(session, table, spec, history),
    },
    Table {
        name: "oorder",
        create: "CREATE TABLE oorder (o_w_id int NOT NULL, o_d_id int NOT NULL, \
            o_id int NOT NULL, o_c_id int NOT NULL, o_carrier_id int, o_ol_cnt int NOT NULL, \
            o_all_local int NOT NULL, o_entry_d timestamp NOT NULL)",
        index: "ALTER TABLE oorder ADD PRIMARY KEY (o_w_id, o_d_id, o_id); \
            CREATE UNIQUE INDEX oorder_customer ON oorder (o_w_id, o_d_id, o_c_id, o_id)",
        load: |session, table, spec| fill(session, table, spec, orders),
    },
    Table {
        name: "new_order",
        create: "CREATE TABLE new_order (no_w_id int NOT NULL, no_d_id int NOT NULL, \
            no_o_id int NOT NULL)",
        index: "ALTER TABLE new_order ADD PRIMARY KEY (no_w_id, no_d_id, no_o_id)",
        load: |session, table, spec| fill(session, table, spec, new_orders),
    },
    Table {
        name: "order_line",
        create: "CREATE TABLE order_line (ol_w_id int NOT NULL, ol_d_id int NOT NULL, \
            ol_o_id int NOT NULL, ol_number int NOT NULL, ol_i_id int NOT NULL, \
            ol_delivery_d timestamp, ol_amount numeric(6,2) NOT NULL, \
            ol_supply_w_id int NOT NULL, ol_quantity int NOT NULL, \
            ol_dist_info char(24) NOT NULL)",
        index: "ALTER TABLE order_line ADD PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)",
        load: |session, table, spec| fill(session, table, spec, order_lines),
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
        load: |session, table, spec| fill(session, table, spec, stock),
    },
];

/// Loads all tables.
pub(super) fn load(session: &Session, spec: &DatasetSpec, progress: Progress<'_>) -> Result<()> {
    for table in &TABLES {
        progress(&format!(
            "loading TPC-C, {} warehouses: {}",
            spec.warehouses, table.name
        ));
        (table.load)(session, table, spec)?;
    }
    Ok(())
}

/// Loads one table, whose rows `write` knows to hand to COPY.
fn fill<R: Populated>(
    session: &Session,
    table: &Table,
    spec: &DatasetSpec,
    write: fn(&mut Rows, &R),
) -> Result<()> {
    let mut from = Population::of::<R>(spec.seed, Size::FULL);
    let parts = R::PARTS.count(spec.warehouses);
    let mut part = 0;
    writer::load(session, table.name, table.create, table.index, |rows| {
        R::populate(&mut from, part, &mut |row| write(rows, &row));
        part += 1;
        part < parts
    })
}

fn items(rows: &mut Rows, row: &Item) {
    rows.field(row.i_id).field(row.i_im_id).field(&*row.i_name);
    rows.cents(row.i_price.0).field(&*row.i_data).end();
}

fn warehouse(rows: &mut Rows, row: &Warehouse) {
    rows.field(row.w_id).cents(row.w_ytd.0).rate(row.w_tax.0);
    rows.field(&*row.w_name).field(&*row.w_street_1);
    rows.field(&*row.w_street_2).field(&*row.w_city);
    rows.field(&*row.w_state).field(&*row.w_zip).end();
}

fn district(rows: &mut Rows, row: &District) {
    rows.field(row.d_w_id).field(row.d_id);
    rows.cents(row.d_ytd.0).rate(row.d_tax.0);
    rows.field(row.d_next_o_id).field(&*row.d_name);
    rows.field(&*row.d_street_1).field(&*row.d_street_2);
    rows.field(&*row.d_city).field(&*row.d_state);
    rows.field(&*row.d_zip).end();
}

fn customers(rows: &mut Rows, row: &Customer) {
    rows.field(row.c_w_id).field(row.c_d_id).field(row.c_id);
    rows.rate(row.c_discount.0).field(&*row.c_credit);
    rows.field(&*row.c_last).field(&*row.c_first);
    rows.cents(row.c_credit_lim.0).cents(row.c_balance.0);
    rows.cents(row.c_ytd_payment.0).field(row.c_payment_cnt);
    rows.field(row.c_delivery_cnt).field(&*row.c_street_1);
    rows.field(&*row.c_street_2).field(&*row.c_city);
    rows.field(&*row.c_state).field(&*row.c_zip);
    rows.field(&*row.c_phone).field(LOAD_TIME);
    rows.field(&*row.c_middle).field(&*row.c_data).end();
}

fn history(rows: &mut Rows, row: &History) {
    rows.field(row.h_c_id)
        .field(row.h_c_d_id)
        .field(row.h_c_w_id);
    rows.field(row.h_d_id).field(row.h_w_id).field(LOAD_TIME);
    rows.cents(row.h_amount.0).field(&*row.h_data).end();
}

fn orders(rows: &mut Rows, row: &Order) {
    rows.field(row.o_w_id).field(row.o_d_id);
    rows.field(row.o_id).field(row.o_c_id);
    match row.o_carrier_id {
        Some(carrier) => rows.field(carrier),
        None => rows.null(),
    };
    rows.field(row.o_ol_cnt).field(row.o_all_local);
    rows.field(LOAD_TIME).end();
}

fn new_orders(rows: &mut Rows, row: &NewOrder) {
    rows.field(row.no_w_id).field(row.no_d_id);
    rows.field(row.no_o_id).end();
}

fn order_lines(rows: &mut Rows, row: &OrderLine) {
    rows.field(row.ol_w_id).field(row.ol_d_id);
    rows.field(row.ol_o_id).field(row.ol_number);
    rows.field(row.ol_i_id);
    match row.ol_delivery_d {
        Some(_) => rows.field(LOAD_TIME),
        None => rows.null(),
    };
    rows.cents(row.ol_amount.0).field(row.ol_supply_w_id);
    rows.field(row.ol_quantity).field(&*row.ol_dist_info).end();
}

fn stock(rows: &mut Rows, row: &Stock) {
    rows.field(row.s_w_id).field(row.s_i_id);
    rows.field(row.s_quantity).field(row.s_ytd);
    rows.field(row.s_order_cnt).field(row.s_remote_cnt);
    rows.field(&*row.s_data);
    for district in 1..=DISTRICTS {
        rows.field(&**row.dist_info(district));
    }
    rows.end();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_gets_the_specification_s_columns_in_the_table_s_order() {
        let mut from = Population::of::<District>(1, Size::FULL);
        let mut rows = Rows::default();
        District::populate(&mut from, 11, &mut |row| district(&mut rows, &row));
        let fields: Vec<&str> = rows.text().trim_end().split('\t').collect();
        assert_eq!(fields[..3], ["2", "2", "30000.00"]);
        assert_eq!((fields.len(), fields[4]), (11, "3001"));
        assert!(fields[3].starts_with("0.") && fields[10].ends_with("11111"));
    }
}
