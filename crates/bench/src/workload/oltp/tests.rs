//! Every engine runs every transaction and stays consistent, and all of them end
//! up with the same rows.

use std::ops::ControlFlow;

use giveway_txn::Isolation;

use super::access::{End, Engine, Failure, Transaction, View, Work};
use super::check::consistency;
use super::giveway::Giveway;
use super::load::load;
use super::redb::Redb;
use super::sled::Sled;
use super::sqlite::{self, Sqlite};
use super::transactions::Terminal;
use crate::workload::tpcc::generate::{Inputs, Size};
use crate::workload::tpcc::row::{
    Customer, CustomerName, CustomerOrder, District, NewOrder, OrderLine, Row, Stock, position,
};

const LAST: usize = position(Customer::COLUMNS, "c_last");
const FIRST: usize = position(Customer::COLUMNS, "c_first");

/// Numbers of which every one depends on what transactions did.
#[derive(Debug, Default, PartialEq)]
struct Fingerprint {
    balances: Vec<i64>,
    next_orders: Vec<i32>,
    new_orders: Vec<(i32, i32)>,
    quantities: Vec<i32>,
    notes: Vec<usize>,
    /// By the index on orders: each customer's last one.
    last_orders: Vec<Option<i32>>,
    /// By the index on names: a district's customers.
    namesakes: Vec<String>,
    /// Lines of some orders in a row.
    lines: Vec<(i32, i32)>,
}

impl Work for Fingerprint {
    fn attempt<X: Transaction>(&mut self, x: &mut X) -> Result<End, Failure<X::Error>> {
        *self = Fingerprint::default();
        x.scan((), (), |row: Customer| {
            self.balances.push(row.c_balance.0);
            self.notes.push(row.c_data.len());
            ControlFlow::Continue(())
        })?;
        x.scan((), (), |row: District| {
            self.next_orders.push(row.d_next_o_id);
            ControlFlow::Continue(())
        })?;
        x.scan((), (), |row: NewOrder| {
            self.new_orders.push((row.no_d_id, row.no_o_id));
            ControlFlow::Continue(())
        })?;
        x.scan((), (), |row: Stock| {
            self.quantities.push(row.s_quantity);
            ControlFlow::Continue(())
        })?;
        for customer in 1..=Size::SMALL.customers {
            let last = x.last_by_index::<CustomerOrder, _>((1, 1, customer))?;
            self.last_orders.push(last.map(|order| order.o_id));
        }
        let mut keys = Vec::new();
        x.keys_by_index::<CustomerName, _>((1, 1), |key| keys.push(key))?;
        for key in keys {
            let name = x.read::<Customer, _>(key, |row| {
                format!("{} {}", row.text(LAST), row.text(FIRST))
            })?;
            self.namesakes.push(name.expect("an index leads to rows"));
        }
        x.scan((1, 2, 5), (1, 2, 8), |row: OrderLine| {
            self.lines.push((row.ol_o_id, row.ol_number));
            ControlFlow::Continue(())
        })?;
        Ok(End::Committed)
    }
}

/// Some hundred transactions of the mix on an empty database, checked.
fn used(engine: &impl Engine) -> Fingerprint {
    let size = Size::SMALL;
    load(engine, 1, 2, size, &mut |_| ()).unwrap();
    consistency(engine, size).unwrap();
    let mut first = Fingerprint::default();
    engine.run(&mut first).unwrap();
    let mut rolled_back = 0;
    for number in 0..2 {
        let mut inputs = Inputs::sized(3, number, 2, size);
        let mut terminal = Terminal::new(inputs.home(), number);
        for input in inputs.by_ref().take(300) {
            let (end, retries) = engine.run(&mut terminal.order(&input)).unwrap();
            assert_eq!(retries, 0, "nobody else is there");
            rolled_back += u32::from(end == End::RolledBack);
        }
    }
    assert!(rolled_back > 0, "one new order in a hundred is rolled back");
    consistency(engine, size).unwrap();
    let mut last = Fingerprint::default();
    engine.run(&mut last).unwrap();
    assert_ne!(first, last);
    assert_ne!(first.last_orders, last.last_orders);
    assert!(last.namesakes.is_sorted() && last.lines.is_sorted());
    assert_eq!(last.namesakes.len(), size.customers as usize);
    assert_eq!(last.lines.first(), Some(&(5, 1)));
    assert_eq!(last.lines.last().map(|line| line.0), Some(8));
    last
}

#[test]
fn all_engines_end_up_with_the_same_rows() {
    let connection = sqlite::open().unwrap();
    let expected = used(&Sqlite::new(&connection));
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        assert_eq!(used(&Giveway::new(isolation).unwrap()), expected);
    }
    assert_eq!(used(&Redb::new().unwrap()), expected);
    assert_eq!(used(&Sled::new().unwrap()), expected);
}
