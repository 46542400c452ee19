//! The five transactions on typed rows (clauses 2.4 to 2.8).
//!
//! Values that the specification wants on the terminal's screen are read, and
//! passed to [`black_box`] where nothing else needs them, so that no compiler
//! leaves their reading out.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::time::{SystemTime, UNIX_EPOCH};

use super::access::{Change, End, Failure, Transaction, View, Work};
use crate::workload::tpcc::generate::{CustomerKey, DISTRICTS, Input, Line};
use crate::workload::tpcc::number::{Cents, Fixed};
use crate::workload::tpcc::population::LOADED_HISTORY_END;
use crate::workload::tpcc::row::{
    Customer, CustomerName, CustomerOrder, District, History, Item, NewOrder, Order, OrderLine,
    Stock, Text, Warehouse,
};

type Outcome<T, X> = Result<T, Failure<<X as Transaction>::Error>>;

/// Where columns are that are read or changed where they lie.
mod at {
    use crate::workload::tpcc::row::{Customer, District, Item, Row, Stock, Warehouse, position};

    macro_rules! columns {
        ($($row:ident { $($name:ident $column:literal),* $(,)? })*) => {$($(
            pub(super) const $name: usize = position($row::COLUMNS, $column);
        )*)*};
    }

    columns! {
        Warehouse { W_YTD "w_ytd", W_TAX "w_tax", W_NAME "w_name" }
        District {
            D_YTD "d_ytd", D_NEXT_O_ID "d_next_o_id", D_TAX "d_tax", D_NAME "d_name",
        }
        Customer {
            C_BALANCE "c_balance", C_YTD_PAYMENT "c_ytd_payment",
            C_PAYMENT_CNT "c_payment_cnt", C_DELIVERY_CNT "c_delivery_cnt", C_DATA "c_data",
            C_DISCOUNT "c_discount", C_CREDIT "c_credit", C_LAST "c_last",
            C_FIRST "c_first", C_MIDDLE "c_middle",
        }
        Item { I_PRICE "i_price", I_DATA "i_data" }
        Stock {
            S_QUANTITY "s_quantity", S_YTD "s_ytd", S_ORDER_CNT "s_order_cnt",
            S_REMOTE_CNT "s_remote_cnt", S_DATA "s_data", S_DIST_01 "s_dist_01",
        }
    }

    /// The text that a district, from 1, puts on its order lines.
    pub(super) fn s_dist(district: i32) -> usize {
        S_DIST_01 + district as usize - 1
    }
}

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
        x.announce::<Customer>(std::iter::once((home, district, customer)));
        x.announce::<Item>(lines.iter().map(|line| (line.item,)));
        x.announce::<Stock>(lines.iter().map(|line| (line.supplier, line.item)));
        let tax = x.read::<Warehouse, _>((home,), |warehouse| warehouse.integer(at::W_TAX))?;
        let tax = some(tax, "warehouse")?;
        let row = x.change::<District, _>((home, district), |row| {
            let order = row.small(at::D_NEXT_O_ID);
            row.set_small(at::D_NEXT_O_ID, order + 1);
            (order, row.integer(at::D_TAX))
        })?;
        let (order, district_tax) = some(row, "district")?;
        let buyer = x.read::<Customer, _>((home, district, customer), |buyer| {
            let last = Text::<16>::new(buyer.text(at::C_LAST));
            let credit = Text::<2>::new(buyer.text(at::C_CREDIT));
            (buyer.integer(at::C_DISCOUNT), last, credit)
        })?;
        let (discount, last, credit) = some(buyer, "customer")?;
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
            let item = x.read::<Item, _>((line.item,), |item| {
                (
                    item.integer(at::I_PRICE),
                    is_original(item.text(at::I_DATA)),
                )
            })?;
            let Some((price, item_is_original)) = item else {
                return Ok(End::RolledBack);
            };
            let stock = x.change::<Stock, _>((line.supplier, line.item), |stock| {
                let left = stock.small(at::S_QUANTITY) - line.quantity;
                let quantity = if left >= 10 { left } else { left + 91 };
                stock.set_small(at::S_QUANTITY, quantity);
                stock.add_small(at::S_YTD, line.quantity);
                stock.add_small(at::S_ORDER_CNT, 1);
                if line.supplier != home {
                    stock.add_small(at::S_REMOTE_CNT, 1);
                }
                let info = Text::<24>::new(stock.text(at::s_dist(district)));
                (info, is_original(stock.text(at::S_DATA)))
            })?;
            let (info, stock_is_original) = some(stock, "stock row")?;
            let amount = price * i64::from(line.quantity);
            // Brand or generic (clause 2.4.2.2).
            black_box(item_is_original && stock_is_original);
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
                ol_dist_info: info,
            })?;
            total += amount;
        }
        // The total that the terminal would show (clause 2.4.2.2).
        let rates = (10_000 - discount) * (10_000 + tax + district_tax);
        black_box((i128::from(total) * i128::from(rates), last, credit));
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
        let warehouse = x.change::<Warehouse, _>((home,), |row| {
            row.add_integer(at::W_YTD, amount.0);
            Text::<24>::new(row.text(at::W_NAME))
        })?;
        let mut data = some(warehouse, "warehouse")?;
        data.append("    ");
        let row = x.change::<District, _>((home, district), |row| {
            row.add_integer(at::D_YTD, amount.0);
            Text::<10>::new(row.text(at::D_NAME))
        })?;
        data.append(&some(row, "district")?);
        let payer = customer(x, place, key)?;
        let changed = x.change::<Customer, _>((place.0, place.1, payer), |row| {
            row.add_integer(at::C_BALANCE, -amount.0);
            row.add_integer(at::C_YTD_PAYMENT, amount.0);
            row.add_small(at::C_PAYMENT_CNT, 1);
            if row.text(at::C_CREDIT) == "BC" {
                // Bad credit: the payment is noted in the customer's data
                // (clause 2.5.2.2).
                let note = Text::<500>::new(&format!(
                    "{payer} {} {} {district} {home} {}.{:02} | {}",
                    place.1,
                    place.0,
                    amount.0 / 100,
                    amount.0 % 100,
                    row.text(at::C_DATA)
                ));
                row.set_text(at::C_DATA, &note);
            }
        })?;
        some(changed, "customer")?;
        x.insert(&History {
            h_w_id: home,
            h_number: self.history,
            h_c_id: payer,
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
        let balance = x.read::<Customer, _>((self.home, district, customer), |row| {
            let names = [at::C_FIRST, at::C_MIDDLE, at::C_LAST];
            black_box(names.map(|name| Text::<16>::new(row.text(name))));
            row.integer(at::C_BALANCE)
        })?;
        let balance = some(balance, "customer")?;
        let last = x.last_by_index::<CustomerOrder, _>((self.home, district, customer))?;
        let order = some(last, "order")?;
        let of_order = (self.home, district, order.o_id);
        x.scan(of_order, of_order, |line: OrderLine| {
            black_box(line);
            ControlFlow::Continue(())
        })?;
        black_box((balance, order.o_carrier_id));
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
            let buyer = x.change::<Customer, _>((home, district, order.o_c_id), |buyer| {
                buyer.add_integer(at::C_BALANCE, amount);
                buyer.add_small(at::C_DELIVERY_CNT, 1);
            })?;
            some(buyer, "customer")?;
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
        let next = x.read::<District, _>((home, district), |row| row.small(at::D_NEXT_O_ID))?;
        let next = some(next, "district")?;
        // The last 20 orders have 300 lines at most.
        let mut items = Vec::with_capacity(300);
        let (from, to) = ((home, district, next - 20), (home, district, next - 1));
        x.scan(from, to, |line: OrderLine| {
            items.push(line.ol_i_id);
            ControlFlow::Continue(())
        })?;
        items.sort_unstable();
        items.dedup();
        let mut low = 0;
        for item in items {
            let left = x.read::<Stock, _>((home, item), |row| row.small(at::S_QUANTITY))?;
            low += u32::from(some(left, "stock row")? < threshold);
        }
        black_box(low);
        Ok(())
    }
}

/// A customer's number, by itself or by last name.
fn customer<X: Transaction>(
    x: &mut X,
    (warehouse, district): (i32, i32),
    key: &CustomerKey,
) -> Outcome<i32, X> {
    match key {
        CustomerKey::Number(number) => Ok(*number),
        CustomerKey::LastName(name) => {
            let mut found = Vec::with_capacity(16);
            let prefix = (warehouse, district, Text::<16>::new(name));
            x.keys_by_index::<CustomerName, _>(prefix, |(_, _, number)| found.push(number))?;
            // The one in the middle, rounded up (clause 2.5.2.2).
            let middle = found.len().div_ceil(2).checked_sub(1);
            some(middle.map(|middle| found[middle]), "customer of that name")
        }
    }
}

fn is_original(data: &str) -> bool {
    data.contains("ORIGINAL")
}

fn some<T, E>(row: Option<T>, what: &'static str) -> Result<T, Failure<E>> {
    row.ok_or(Failure::Missing(what))
}

fn now_us() -> i64 {
    let age = SystemTime::now().duration_since(UNIX_EPOCH);
    age.map_or(0, |age| age.as_micros() as i64)
}
