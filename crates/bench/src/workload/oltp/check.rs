//! The consistency conditions of clauses 3.3.2.1 to 3.3.2.12, on typed rows.
//!
//! One transaction reads every table once into [`Books`]; the conditions compare
//! their sums. A run whose database breaks one measured something else than
//! TPC-C, and is refused.
//!
//! Condition 11 says that orders exceed new orders by 2100, which is so only
//! until the first delivery. Here it is 2100 and what customers' delivery counts
//! say, so that it holds, and says something, after a run.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::access::{End, Engine, Failure, Transaction, Work};
use crate::harness::error::Violation;
use crate::harness::error::{Error, Result};
use crate::workload::tpcc::generate::Size;
use crate::workload::tpcc::row::{
    Customer, District, History, NewOrder, Order, OrderLine, Row, Warehouse,
};

/// Checks all conditions; the first that is broken is the error.
pub(crate) fn consistency<E: Engine>(engine: &E, size: Size) -> Result<()> {
    let mut books = Books::default();
    let read = engine.run(&mut books);
    read.map_err(|failure| failure.named(E::NAME))?;
    match books.violation(size) {
        None => Ok(()),
        Some(violation) => Err(Error::Inconsistent(violation)),
    }
}

/// Warehouse and district.
type DistrictId = (i32, i32);

/// What tables say of a warehouse.
#[derive(Debug, Default)]
struct WarehouseBook {
    ytd: i64,
    districts_ytd: i64,
    payments: i64,
}

/// Of a district.
#[derive(Debug, Default)]
struct DistrictBook {
    ytd: i64,
    next_order: i32,
    payments: i64,
    deliveries: i64,
    orders: i64,
    last_order: i32,
    /// As orders have it, and as lines have it.
    lines: (i64, i64),
    new_orders: i64,
    first_new: i32,
    last_new: i32,
}

/// Of an order.
#[derive(Debug, Default)]
struct OrderBook {
    customer: i32,
    is_there: bool,
    is_new: bool,
    delivered: bool,
    lines: (i32, i32),
    lines_delivered: i32,
    amount_delivered: i64,
}

/// Of a customer.
#[derive(Debug, Default)]
struct CustomerBook {
    balance: i64,
    ytd_payment: i64,
    payments: i64,
    amount_delivered: i64,
}

/// All tables, added up.
#[derive(Debug, Default)]
struct Books {
    warehouses: BTreeMap<i32, WarehouseBook>,
    districts: BTreeMap<DistrictId, DistrictBook>,
    orders: BTreeMap<(i32, i32, i32), OrderBook>,
    customers: BTreeMap<(i32, i32, i32), CustomerBook>,
}

impl Work for Books {
    fn attempt<X: Transaction>(&mut self, x: &mut X) -> Result<End, Failure<X::Error>> {
        *self = Books::default();
        all(x, |row: Warehouse| {
            self.warehouses.entry(row.w_id).or_default().ytd = row.w_ytd.0;
        })?;
        all(x, |row: District| self.district(&row))?;
        all(x, |row: Customer| self.customer(&row))?;
        all(x, |row: History| self.payment(&row))?;
        all(x, |row: Order| self.order(&row))?;
        all(x, |row: NewOrder| self.new_order(&row))?;
        all(x, |row: OrderLine| self.line(&row))?;
        self.add_up();
        Ok(End::Committed)
    }
}

impl Books {
    fn district(&mut self, row: &District) {
        let book = self.districts.entry((row.d_w_id, row.d_id)).or_default();
        (book.ytd, book.next_order) = (row.d_ytd.0, row.d_next_o_id);
        self.warehouses.entry(row.d_w_id).or_default().districts_ytd += row.d_ytd.0;
    }

    fn customer(&mut self, row: &Customer) {
        let id = (row.c_w_id, row.c_d_id, row.c_id);
        let book = self.customers.entry(id).or_default();
        (book.balance, book.ytd_payment) = (row.c_balance.0, row.c_ytd_payment.0);
        let district = self.districts.entry((id.0, id.1)).or_default();
        district.deliveries += i64::from(row.c_delivery_cnt);
    }

    fn payment(&mut self, row: &History) {
        let amount = row.h_amount.0;
        self.warehouses.entry(row.h_w_id).or_default().payments += amount;
        let place = (row.h_w_id, row.h_d_id);
        self.districts.entry(place).or_default().payments += amount;
        let customer = (row.h_c_w_id, row.h_c_d_id, row.h_c_id);
        self.customers.entry(customer).or_default().payments += amount;
    }

    fn order(&mut self, row: &Order) {
        let district = self.districts.entry((row.o_w_id, row.o_d_id)).or_default();
        district.orders += 1;
        district.last_order = district.last_order.max(row.o_id);
        district.lines.0 += i64::from(row.o_ol_cnt);
        let id = (row.o_w_id, row.o_d_id, row.o_id);
        let book = self.orders.entry(id).or_default();
        book.is_there = true;
        book.customer = row.o_c_id;
        book.delivered = row.o_carrier_id.is_some();
        book.lines.0 = row.o_ol_cnt;
    }

    fn new_order(&mut self, row: &NewOrder) {
        let place = (row.no_w_id, row.no_d_id);
        let district = self.districts.entry(place).or_default();
        if district.new_orders == 0 {
            district.first_new = row.no_o_id;
        }
        district.new_orders += 1;
        district.first_new = district.first_new.min(row.no_o_id);
        district.last_new = district.last_new.max(row.no_o_id);
        let id = (place.0, place.1, row.no_o_id);
        self.orders.entry(id).or_default().is_new = true;
    }

    fn line(&mut self, row: &OrderLine) {
        let place = (row.ol_w_id, row.ol_d_id);
        self.districts.entry(place).or_default().lines.1 += 1;
        let id = (place.0, place.1, row.ol_o_id);
        let order = self.orders.entry(id).or_default();
        order.lines.1 += 1;
        if row.ol_delivery_d.is_some() {
            order.lines_delivered += 1;
            order.amount_delivered += row.ol_amount.0;
        }
    }

    /// What customers owe for orders.
    fn add_up(&mut self) {
        for ((warehouse, district, _), order) in &self.orders {
            let id = (*warehouse, *district, order.customer);
            self.customers.entry(id).or_default().amount_delivered += order.amount_delivered;
        }
    }

    /// The first violation, in the order of the clauses.
    fn violation(&self, size: Size) -> Option<Violation> {
        let delivered_at_first = i64::from(size.first_new_order() - 1);
        let w = &self.warehouses;
        let d = &self.districts;
        let o = &self.orders;
        let c = &self.customers;
        first(w, "3.3.2.1", "W_YTD = sum(D_YTD)", |w| {
            w.ytd == w.districts_ytd
        })
        .or_else(|| {
            let demand = "D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)";
            first(d, "3.3.2.2", demand, |d| {
                d.next_order - 1 == d.last_order
                    && (d.new_orders == 0 || d.last_new == d.last_order)
            })
        })
        .or_else(|| {
            let demand = "max(NO_O_ID) - min(NO_O_ID) + 1 = number of new orders";
            first(d, "3.3.2.3", demand, |d| {
                d.new_orders == 0 || i64::from(d.last_new - d.first_new + 1) == d.new_orders
            })
        })
        .or_else(|| {
            let demand = "sum(O_OL_CNT) = number of order lines";
            first(d, "3.3.2.4", demand, |d| d.lines.0 == d.lines.1)
        })
        .or_else(|| {
            let demand = "O_CARRIER_ID is null if and only if there is a new order";
            first(o, "3.3.2.5", demand, |o| {
                o.is_there && o.is_new != o.delivered
            })
        })
        .or_else(|| {
            let demand = "O_OL_CNT = number of the order's lines";
            first(o, "3.3.2.6", demand, |o| o.lines.0 == o.lines.1)
        })
        .or_else(|| {
            let demand = "OL_DELIVERY_D is null if and only if O_CARRIER_ID is";
            first(o, "3.3.2.7", demand, |o| {
                o.lines_delivered == if o.delivered { o.lines.1 } else { 0 }
            })
        })
        .or_else(|| {
            first(w, "3.3.2.8", "W_YTD = sum(H_AMOUNT)", |w| {
                w.ytd == w.payments
            })
        })
        .or_else(|| {
            first(d, "3.3.2.9", "D_YTD = sum(H_AMOUNT)", |d| {
                d.ytd == d.payments
            })
        })
        .or_else(|| {
            let demand = "C_BALANCE = sum(OL_AMOUNT) - sum(H_AMOUNT)";
            first(c, "3.3.2.10", demand, |c| {
                c.balance == c.amount_delivered - c.payments
            })
        })
        .or_else(|| {
            let demand = "orders - new orders = those delivered at first and since";
            first(d, "3.3.2.11", demand, |d| {
                d.orders - d.new_orders == delivered_at_first + d.deliveries
            })
        })
        .or_else(|| {
            let demand = "C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT)";
            first(c, "3.3.2.12", demand, |c| {
                c.balance + c.ytd_payment == c.amount_delivered
            })
        })
    }
}

/// Every row of a table.
fn all<X: Transaction, R: Row>(x: &mut X, mut visit: impl FnMut(R)) -> Result<(), X::Error> {
    x.scan((), (), |row: R| {
        visit(row);
        ControlFlow::Continue(())
    })
}

/// The first entry that does not hold what is demanded of it.
fn first<K: std::fmt::Debug, V: std::fmt::Debug>(
    books: &BTreeMap<K, V>,
    clause: &'static str,
    demand: &'static str,
    holds: impl Fn(&V) -> bool,
) -> Option<Violation> {
    let (place, book) = books.iter().find(|(_, book)| !holds(book))?;
    Some(Violation {
        clause,
        demand,
        place: format!("{place:?}: {book:?}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::oltp::load::load;
    use crate::workload::oltp::sqlite::{Sqlite, open};
    use crate::workload::oltp::transactions::Terminal;
    use crate::workload::tpcc::generate::Inputs;

    /// The clause that is broken by a change of a database that was used.
    fn clause_after(change: &mut impl Work) -> &'static str {
        let connection = open().unwrap();
        let engine = Sqlite::new(&connection);
        load(&engine, 1, 1, Size::SMALL, &mut |_| ()).unwrap();
        let mut terminal = Terminal::new(1, 0);
        for input in Inputs::sized(1, 0, 1, Size::SMALL).take(300) {
            engine.run(&mut terminal.order(&input)).unwrap();
        }
        consistency(&engine, Size::SMALL).unwrap();
        engine.run(change).unwrap();
        match consistency(&engine, Size::SMALL) {
            Err(Error::Inconsistent(violation)) => violation.clause,
            other => panic!("not found: {other:?}"),
        }
    }

    /// Replaces a row by a changed one.
    struct Replace<R: Row> {
        key: R::Key,
        change: fn(&mut R),
    }

    impl<R: Row> Work for Replace<R> {
        fn attempt<X: Transaction>(&mut self, x: &mut X) -> Result<End, Failure<X::Error>> {
            let mut row: R = x.get(self.key)?.expect("the row is there");
            (self.change)(&mut row);
            x.delete::<R>(self.key)?;
            x.insert(&row)?;
            Ok(End::Committed)
        }
    }

    fn with<R: Row>(key: R::Key, change: fn(&mut R)) -> &'static str {
        clause_after(&mut Replace { key, change })
    }

    /// Removes one of the first district's new orders.
    struct Remove(fn(&[NewOrder]) -> &NewOrder);

    impl Work for Remove {
        fn attempt<X: Transaction>(&mut self, x: &mut X) -> Result<End, Failure<X::Error>> {
            let mut rows = Vec::new();
            x.scan((1, 1), (1, 1), |row| {
                rows.push(row);
                ControlFlow::Continue(())
            })?;
            x.delete::<NewOrder>(self.0(&rows).key())?;
            Ok(End::Committed)
        }
    }

    #[test]
    fn every_condition_is_checked() {
        assert_eq!(with::<Warehouse>((1,), |row| row.w_ytd.0 += 1), "3.3.2.1");
        let next = with::<District>((1, 3), |row| row.d_next_o_id += 1);
        assert_eq!(next, "3.3.2.2");
        let last = clause_after(&mut Remove(|rows| rows.last().unwrap()));
        assert_eq!(last, "3.3.2.2");
        assert_eq!(clause_after(&mut Remove(|rows| &rows[1])), "3.3.2.3");
        assert_eq!(with::<Order>((1, 1, 1), |row| row.o_ol_cnt += 1), "3.3.2.4");
        let carrier = with::<Order>((1, 1, 1), |row| row.o_carrier_id = None);
        assert_eq!(carrier, "3.3.2.5");
        // A line that moves to another order leaves the district's sum alone.
        let moved = with::<OrderLine>((1, 1, 1, 1), |row| {
            (row.ol_o_id, row.ol_number) = (2, 20);
        });
        assert_eq!(moved, "3.3.2.6");
        let line = with::<OrderLine>((1, 1, 1, 1), |row| row.ol_delivery_d = None);
        assert_eq!(line, "3.3.2.7");
        let payment = (1, 1 << 16 | 1);
        let amount = with::<History>(payment, |row| row.h_amount.0 += 1);
        assert_eq!(amount, "3.3.2.8");
        assert_eq!(with::<History>(payment, |row| row.h_d_id = 2), "3.3.2.9");
        let of_customer = |change| with::<Customer>((1, 1, 1), change);
        assert_eq!(of_customer(|row| row.c_balance.0 += 1), "3.3.2.10");
        assert_eq!(of_customer(|row| row.c_delivery_cnt += 1), "3.3.2.11");
        assert_eq!(of_customer(|row| row.c_ytd_payment.0 += 1), "3.3.2.12");
    }
}
