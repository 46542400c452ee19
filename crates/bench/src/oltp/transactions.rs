//! The five transactions on typed rows (clauses 2.4 to 2.8).
//!
//! Values that the specification wants on the terminal's screen are read, and
//! passed to [`black_box`] where nothing else needs them, so that no compiler
//! leaves their reading out.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::time::{SystemTime, UNIX_EPOCH};

use super::access::{End, Failure, Transaction, Work};
use crate::tpcc::generate::{CustomerKey, DISTRICTS, Input, Line};
use crate::tpcc::number::{Cents, Fixed};
use crate::tpcc::population::LOADED_HISTORY_END;
use crate::tpcc::row::{
    Customer, CustomerName, CustomerOrder, District, History, Item, NewOrder, Order, OrderLine,
    Stock, Text, Warehouse,
};

type Outcome<T, X> = Result<T, Failure<<X as Transaction>::Error>>;

/// Who runs transactions: a terminal with a home.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal {
    /// Its warehouse.
    home: i32,
    /// The number that its next payment has in the history; unique among all
    /// terminals.
    history: i64,
}

impl Terminal {
    /// A terminal with a number, from 0.
    pub(crate) fn new(home: i32, number: u32) -> Self {
        Terminal {
            home,
            history: LOADED_HISTORY_END * (1 + i64::from(number)),
        }
    }

    /// Counts a transaction that somebody else orders for this terminal.
    pub(crate) fn skip(&mut self) {
        self.history += 1;
    }

    /// The transaction that these inputs ask for.
    pub(crate) fn order<'i>(&mut self, input: &'i Input) -> Ordered<'i> {
        self.history += 1;
        Ordered {
            home: self.home,
            history: self.history,
            input,
        }
    }
}

/// A transaction of a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ordered<'i> {
    home: i32,
    history: i64,
    input: &'i Input,
}

impl Work for Ordered<'_> {
    fn attempt<X: Transaction>(&mut self, x: &mut X) -> Outcome<End, X> {
        match self.input {
            Input::NewOrder {
                district,
                customer,
                lines,
            } => return self.new_order(x, *district, *customer, lines),
            Input::Payment {
                district,
                customer_warehouse,
                customer_district,
                customer,
                amount_cents,
            } => {
                let place = (*customer_warehouse, *customer_district);
                self.payment(x, *district, place, customer, Fixed(*amount_cents))?;
            }
            Input::OrderStatus { district, customer } => {
                self.order_status(x, *district, customer)?
            }
            Input::Delivery { carrier } => self.delivery(x, *carrier)?,
            Input::StockLevel {
                district,
                threshold,
            } => self.stock_level(x, *district, *threshold)?,
        }
        Ok(End::Committed)
    }
}

impl Ordered<'_> {
    fn new_order<X: Transaction>(
        &self,
        x: &mut X,
        district: i32,
        customer: i32,
        lines: &[Line],
    ) -> Outcome<End, X> {
        let home = self.home;
        let warehouse: Warehouse = some(x.get((home,))?, "warehouse")?;
        let mut row: District = some(x.get((home, district))?, "district")?;
        let buyer: Customer = some(x.get((home, district, customer))?, "customer")?;
        let order = row.d_next_o_id;
        row.d_next_o_id += 1;
        x.update(&row)?;
        x.insert(&Order {
            o_w_id: home,
            o_d_id: district,
            o_id: order,
            o_carrier_id: None,
            o_c_id: customer,
            o_ol_cnt: lines.len() as i32,
            o_all_local: i32::from(lines.iter().all(|line| line.supplier == home)),
            o_entry_d: now_us(),
        })?;
        x.insert(&NewOrder {
            no_w_id: home,
            no_d_id: district,
            no_o_id: order,
        })?;
        let mut total = 0;
        for (line, number) in lines.iter().zip(1..) {
            let Some(item) = x.get::<Item>((line.item,))? else {
                return Ok(End::RolledBack);
            };
            let mut stock: Stock = some(x.get((line.supplier, line.item))?, "stock row")?;
            let left = stock.s_quantity - line.quantity;
            stock.s_quantity = if left >= 10 { left } else { left + 91 };
            stock.s_ytd += line.quantity;
            stock.s_order_cnt += 1;
            stock.s_remote_cnt += i32::from(line.supplier != home);
            x.update(&stock)?;
            let amount = item.i_price.0 * i64::from(line.quantity);
            // Brand or generic (clause 2.4.2.2).
            black_box(item.i_data.contains("ORIGINAL") && stock.s_data.contains("ORIGINAL"));
            x.insert(&OrderLine {
                ol_w_id: home,
                ol_d_id: district,
                ol_o_id: order,
                ol_number: number,
                ol_delivery_d: None,
                ol_i_id: line.item,
                ol_supply_w_id: line.supplier,
                ol_quantity: line.quantity,
                ol_amount: Fixed(amount),
                ol_dist_info: *stock.dist_info(district),
            })?;
            total += amount;
        }
        // The total that the terminal would show (clause 2.4.2.2).
        let rates = (10_000 - buyer.c_discount.0) * (10_000 + warehouse.w_tax.0 + row.d_tax.0);
        black_box((
            i128::from(total) * i128::from(rates),
            buyer.c_last,
            buyer.c_credit,
        ));
        Ok(End::Committed)
    }

    fn payment<X: Transaction>(
        &self,
        x: &mut X,
        district: i32,
        place: (i32, i32),
        key: &CustomerKey,
        amount: Cents,
    ) -> Outcome<(), X> {
        let home = self.home;
        let mut warehouse: Warehouse = some(x.get((home,))?, "warehouse")?;
        warehouse.w_ytd.0 += amount.0;
        x.update(&warehouse)?;
        let mut row: District = some(x.get((home, district))?, "district")?;
        row.d_ytd.0 += amount.0;
        x.update(&row)?;
        let mut payer = customer(x, place, key)?;
        payer.c_balance.0 -= amount.0;
        payer.c_ytd_payment.0 += amount.0;
        payer.c_payment_cnt += 1;
        if &*payer.c_credit == "BC" {
            // Bad credit: the payment is noted in the customer's data
            // (clause 2.5.2.2).
            payer.c_data = Text::new(&format!(
                "{} {} {} {district} {home} {}.{:02} | {}",
                payer.c_id,
                place.1,
                place.0,
                amount.0 / 100,
                amount.0 % 100,
                &*payer.c_data
            ));
        }
        x.update(&payer)?;
        let mut data = Text::<24>::new(&warehouse.w_name);
        data.append("    ");
        data.append(&row.d_name);
        x.insert(&History {
            h_w_id: home,
            h_number: self.history,
            h_c_id: payer.c_id,
            h_c_d_id: place.1,
            h_c_w_id: place.0,
            h_d_id: district,
            h_date: now_us(),
            h_amount: amount,
            h_data: data,
        })?;
        Ok(())
    }

    fn order_status<X: Transaction>(
        &self,
        x: &mut X,
        district: i32,
        key: &CustomerKey,
    ) -> Outcome<(), X> {
        let customer = customer(x, (self.home, district), key)?;
        let last = x.last_by_index::<CustomerOrder, _>((self.home, district, customer.c_id))?;
        let order = some(last, "order")?;
        let of_order = (self.home, district, order.o_id);
        x.scan(of_order, of_order, |line: OrderLine| {
            black_box(line);
            ControlFlow::Continue(())
        })?;
        black_box((customer.c_balance, order.o_carrier_id));
        Ok(())
    }

    fn delivery<X: Transaction>(&self, x: &mut X, carrier: i32) -> Outcome<(), X> {
        let home = self.home;
        let now = now_us();
        for district in 1..=DISTRICTS {
            let mut oldest = None;
            x.scan((home, district), (home, district), |row: NewOrder| {
                oldest = Some(row);
                ControlFlow::Break(())
            })?;
            // A district without undelivered orders is passed over
            // (clause 2.7.4.2).
            let Some(oldest) = oldest else { continue };
            let id = (home, district, oldest.no_o_id);
            x.delete::<NewOrder>(id)?;
            let mut order: Order = some(x.get(id)?, "order")?;
            order.o_carrier_id = Some(carrier.into());
            x.update(&order)?;
            let mut lines = [const { None }; 15];
            let mut count = 0;
            x.scan(id, id, |line: OrderLine| {
                lines[count] = Some(line);
                count += 1;
                ControlFlow::Continue(())
            })?;
            let mut amount = 0;
            for line in lines.iter_mut().flatten() {
                line.ol_delivery_d = Some(now);
                amount += line.ol_amount.0;
                x.update(line)?;
            }
            let mut buyer: Customer = some(x.get((home, district, order.o_c_id))?, "customer")?;
            buyer.c_balance.0 += amount;
            buyer.c_delivery_cnt += 1;
            x.update(&buyer)?;
        }
        Ok(())
    }

    fn stock_level<X: Transaction>(
        &self,
        x: &mut X,
        district: i32,
        threshold: i32,
    ) -> Outcome<(), X> {
        let home = self.home;
        let row: District = some(x.get((home, district))?, "district")?;
        // The last 20 orders have 300 lines at most.
        let mut items = Vec::with_capacity(300);
        let next = row.d_next_o_id;
        let (from, to) = ((home, district, next - 20), (home, district, next - 1));
        x.scan(from, to, |line: OrderLine| {
            items.push(line.ol_i_id);
            ControlFlow::Continue(())
        })?;
        items.sort_unstable();
        items.dedup();
        let mut low = 0;
        for item in items {
            let stock: Stock = some(x.get((home, item))?, "stock row")?;
            low += u32::from(stock.s_quantity < threshold);
        }
        black_box(low);
        Ok(())
    }
}

/// A customer by number or last name.
fn customer<X: Transaction>(
    x: &mut X,
    (warehouse, district): (i32, i32),
    key: &CustomerKey,
) -> Outcome<Customer, X> {
    match key {
        CustomerKey::Number(number) => some(x.get((warehouse, district, *number))?, "customer"),
        CustomerKey::LastName(name) => {
            let mut found = Vec::new();
            let prefix = (warehouse, district, Text::<16>::new(name));
            x.scan_index::<CustomerName, _>(prefix, |row| {
                found.push(row);
                ControlFlow::Continue(())
            })?;
            // The one in the middle, rounded up (clause 2.5.2.2).
            let middle = found.len().div_ceil(2).checked_sub(1);
            some(
                middle.map(|middle| found.swap_remove(middle)),
                "customer of that name",
            )
        }
    }
}

fn some<T, E>(row: Option<T>, what: &'static str) -> Result<T, Failure<E>> {
    row.ok_or(Failure::Missing(what))
}

fn now_us() -> i64 {
    let age = SystemTime::now().duration_since(UNIX_EPOCH);
    age.map_or(0, |age| age.as_micros() as i64)
}
