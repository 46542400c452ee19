//! The five transactions: what is asked of the server, in which order.
//!
//! An execution begins a transaction with its first statement and ends it with
//! COMMIT, or ROLLBACK where the inputs ask for it. On an error the caller
//! rolls back. Values that the specification wants on the terminal's screen are
//! fetched, and read where a later statement needs them.

use std::time::SystemTime;

use futures_util::future::{join, try_join_all};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};

use super::generate::{CustomerKey, DISTRICTS, Input, Line};
use super::number::{Cents, Fixed, Rate};
use super::statements::Statements;

type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Why a transaction did not end as its inputs wanted.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server or the connection.
    Sql(Error),
    /// A row is missing that loading made and nothing removes.
    Missing(&'static str),
    /// Another delivery took the order first: to be retried.
    Taken,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Sql(error)
    }
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Committed.
    Committed,
    /// Rolled back because an item does not exist (clause 2.4.1.4).
    RolledBack,
}

/// One terminal's connection and statements.
pub(super) struct Executor<'a> {
    pub(super) client: &'a Client,
    pub(super) statements: &'a Statements,
    pub(super) home: i32,
}

impl Executor<'_> {
    /// Runs one transaction to its commit or rollback.
    pub(super) async fn run(&self, input: &Input) -> Result<End, Failure> {
        let end = match input {
            Input::NewOrder {
                district,
                customer,
                lines,
            } => self.new_order(*district, *customer, lines).await?,
            Input::Payment {
                district,
                customer_warehouse,
                customer_district,
                customer,
                amount_cents,
            } => {
                let place = (*customer_warehouse, *customer_district);
                self.payment(*district, place, customer, Fixed(*amount_cents))
                    .await?;
                End::Committed
            }
            Input::OrderStatus { district, customer } => {
                self.order_status(*district, customer).await?;
                End::Committed
            }
            Input::Delivery { carrier } => {
                self.delivery(*carrier).await?;
                End::Committed
            }
            Input::StockLevel {
                district,
                threshold,
            } => {
                self.stock_level(*district, *threshold).await?;
                End::Committed
            }
        };
        self.client
            .batch_execute(match end {
                End::Committed => "COMMIT",
                End::RolledBack => "ROLLBACK",
            })
            .await?;
        Ok(end)
    }

    /// BEGIN and the first statement, sent together.
    async fn begin(&self, statement: &Statement, params: Params<'_>) -> Result<Vec<Row>, Failure> {
        let begin = self.client.batch_execute("BEGIN");
        let (begun, rows) = join(begin, self.client.query(statement, params)).await;
        begun?;
        Ok(rows?)
    }

    async fn one(
        &self,
        what: &'static str,
        statement: &Statement,
        params: Params<'_>,
    ) -> Result<Row, Failure> {
        self.client
            .query_opt(statement, params)
            .await?
            .ok_or(Failure::Missing(what))
    }

    async fn change(
        &self,
        what: &'static str,
        statement: &Statement,
        params: Params<'_>,
    ) -> Result<(), Failure> {
        match self.client.execute(statement, params).await? {
            0 => Err(Failure::Missing(what)),
            _ => Ok(()),
        }
    }

    async fn new_order(
        &self,
        district: i32,
        customer: i32,
        lines: &[Line],
    ) -> Result<End, Failure> {
        let (s, home) = (self.statements, self.home);
        let rows = self
            .begin(&s.new_order_customer, &[&home, &district, &customer])
            .await?;
        let row = rows.first().ok_or(Failure::Missing("customer"))?;
        let discount: Rate = row.get(0);
        let tax: Rate = self
            .one("warehouse", &s.new_order_warehouse, &[&home])
            .await?
            .get(0);
        let row = self
            .one("district", &s.new_order_district, &[&home, &district])
            .await?;
        let (order, district_tax): (i32, Rate) = (row.get(0), row.get(1));
        self.change("district", &s.advance_district, &[&home, &district])
            .await?;
        let all_local = i32::from(lines.iter().all(|line| line.supplier == home));
        let (count, now) = (lines.len() as i32, SystemTime::now());
        let values: Params<'_> = &[
            &order, &district, &home, &customer, &now, &count, &all_local,
        ];
        self.client.execute(&s.insert_order, values).await?;
        self.client
            .execute(&s.insert_new_order, &[&order, &district, &home])
            .await?;

        let mut sold = Vec::with_capacity(lines.len());
        for (line, number) in lines.iter().zip(1_i32..) {
            let item = self.client.query_opt(&s.item, &[&line.item]).await?;
            let Some(item) = item else {
                return Ok(End::RolledBack);
            };
            let stock = self
                .one("stock", &s.stock, &[&line.item, &line.supplier])
                .await?;
            let (price, quantity): (Cents, i32) = (item.get(0), stock.get(0));
            sold.push(Sold {
                line,
                number,
                remaining: if quantity >= line.quantity + 10 {
                    quantity - line.quantity
                } else {
                    quantity - line.quantity + 91
                },
                remote: i32::from(line.supplier != home),
                amount: Fixed(price.0 * i64::from(line.quantity)),
                stock,
            });
        }

        // The batch: every statement is sent before the first answer is awaited.
        let total: i64 = sold.iter().map(|sold| sold.amount.0).sum();
        try_join_all(sold.iter().map(|sold| async {
            let info: &str = sold.stock.get(1 + district as usize);
            let line = sold.line;
            let values: Params<'_> = &[
                &order,
                &district,
                &home,
                &sold.number,
                &line.item,
                &line.supplier,
                &line.quantity,
                &sold.amount,
                &info,
            ];
            self.client.execute(&s.insert_line, values).await
        }))
        .await?;
        try_join_all(sold.iter().map(|sold| async {
            let line = sold.line;
            let values: Params<'_> = &[
                &sold.remaining,
                &line.quantity,
                &sold.remote,
                &line.item,
                &line.supplier,
            ];
            self.client.execute(&s.update_stock, values).await
        }))
        .await?;
        // The total that the terminal would show (clause 2.4.2.2).
        let rates = (10_000 - discount.0) * (10_000 + tax.0 + district_tax.0);
        std::hint::black_box(i128::from(total) * i128::from(rates));
        Ok(End::Committed)
    }

    /// A customer's row, as `customer_by_number` gives it.
    async fn customer(
        &self,
        (warehouse, district): (i32, i32),
        key: &CustomerKey,
        first: bool,
    ) -> Result<Row, Failure> {
        let s = self.statements;
        let (statement, value): (_, &(dyn ToSql + Sync)) = match key {
            CustomerKey::Number(number) => (&s.customer_by_number, number),
            CustomerKey::LastName(name) => (&s.customer_by_name, name),
        };
        let params: Params<'_> = &[&warehouse, &district, value];
        let mut rows = if first {
            self.begin(statement, params).await?
        } else {
            self.client.query(statement, params).await?
        };
        if rows.is_empty() {
            return Err(Failure::Missing("customer"));
        }
        // The one in the middle, rounded up (clause 2.5.2.2).
        let middle = rows.len().div_ceil(2) - 1;
        Ok(rows.swap_remove(middle))
    }

    async fn payment(
        &self,
        district: i32,
        place: (i32, i32),
        key: &CustomerKey,
        amount: Cents,
    ) -> Result<(), Failure> {
        let (s, home) = (self.statements, self.home);
        self.begin(&s.pay_warehouse, &[&amount, &home]).await?;
        let warehouse = self
            .one("warehouse", &s.payment_warehouse, &[&home])
            .await?;
        self.change("district", &s.pay_district, &[&amount, &home, &district])
            .await?;
        let row = self
            .one("district", &s.payment_district, &[&home, &district])
            .await?;
        let customer = self.customer(place, key, false).await?;
        let number: i32 = customer.get("c_id");
        let (balance, paid): (Cents, Cents) =
            (customer.get("c_balance"), customer.get("c_ytd_payment"));
        let count: i32 = customer.get("c_payment_cnt");
        let (balance, paid, count) = (
            Fixed::<2>(balance.0 - amount.0),
            Fixed::<2>(paid.0 + amount.0),
            count + 1,
        );
        let id: [&(dyn ToSql + Sync); 3] = [&place.0, &place.1, &number];
        if customer.get::<_, &str>("c_credit") == "BC" {
            // Bad credit: the payment is noted in the customer's data
            // (clause 2.5.2.2).
            let old = self.one("customer", &s.customer_data, &id).await?;
            let mut data = format!(
                "{number} {} {} {district} {home} {}.{:02} | {}",
                place.1,
                place.0,
                amount.0 / 100,
                amount.0 % 100,
                old.get::<_, &str>(0)
            );
            data.truncate(500);
            let values: Params<'_> = &[&balance, &paid, &count, id[0], id[1], id[2], &data];
            self.change("customer", &s.pay_customer_data, values)
                .await?;
        } else {
            let values: Params<'_> = &[&balance, &paid, &count, id[0], id[1], id[2]];
            self.change("customer", &s.pay_customer, values).await?;
        }
        let names: (&str, &str) = (warehouse.get("w_name"), row.get("d_name"));
        let data = [names.0, "    ", names.1].concat();
        let now = SystemTime::now();
        let values: Params<'_> = &[
            &place.1, &place.0, &number, &district, &home, &now, &amount, &data,
        ];
        self.client.execute(&s.insert_history, values).await?;
        Ok(())
    }

    async fn order_status(&self, district: i32, key: &CustomerKey) -> Result<(), Failure> {
        let (s, home) = (self.statements, self.home);
        let customer = self.customer((home, district), key, true).await?;
        let number: i32 = customer.get("c_id");
        let order = self
            .one("order", &s.last_order, &[&home, &district, &number])
            .await?;
        let order: i32 = order.get(0);
        self.client
            .query(&s.order_lines, &[&order, &district, &home])
            .await?;
        Ok(())
    }

    async fn delivery(&self, carrier: i32) -> Result<(), Failure> {
        let (s, home) = (self.statements, self.home);
        let now = SystemTime::now();
        for district in 1..=DISTRICTS {
            let params: Params<'_> = &[&district, &home];
            let rows = if district == 1 {
                self.begin(&s.oldest_new_order, params).await?
            } else {
                self.client.query(&s.oldest_new_order, params).await?
            };
            // A district without undelivered orders is passed over
            // (clause 2.7.4.2).
            let Some(row) = rows.first() else { continue };
            let order: i32 = row.get(0);
            let id: Params<'_> = &[&order, &district, &home];
            if self.client.execute(&s.delete_new_order, id).await? == 0 {
                return Err(Failure::Taken);
            }
            let customer: i32 = self.one("order", &s.order_customer, id).await?.get(0);
            let values: Params<'_> = &[&carrier, &order, &district, &home];
            self.change("order", &s.deliver_order, values).await?;
            let values: Params<'_> = &[&now, &order, &district, &home];
            self.change("order line", &s.deliver_lines, values).await?;
            let amount: Cents = self.one("order line", &s.order_amount, id).await?.get(0);
            let values: Params<'_> = &[&amount, &home, &district, &customer];
            self.change("customer", &s.deliver_customer, values).await?;
        }
        Ok(())
    }

    async fn stock_level(&self, district: i32, threshold: i32) -> Result<(), Failure> {
        let (s, home) = (self.statements, self.home);
        let rows = self.begin(&s.next_order, &[&home, &district]).await?;
        let next: i32 = rows.first().ok_or(Failure::Missing("district"))?.get(0);
        let oldest = next - 20;
        let values: Params<'_> = &[&home, &district, &next, &oldest, &threshold];
        self.one("count", &s.low_stock, values).await?;
        Ok(())
    }
}

/// A line of a new order, with what the server said about it.
struct Sold<'a> {
    line: &'a Line,
    number: i32,
    remaining: i32,
    remote: i32,
    amount: Cents,
    stock: Row,
}
