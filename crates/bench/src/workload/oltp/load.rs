//! Loads TPC-C's tables into an engine, in transactions of a thousand rows.

use super::access::{End, Engine, Failure, Transaction, Work};
use crate::harness::Progress;
use crate::harness::error::Result;
use crate::workload::tpcc::generate::Size;
use crate::workload::tpcc::population::{Populated, Population};
use crate::workload::tpcc::row::{
    Customer, District, History, Item, NewOrder, Order, OrderLine, Row, Stock, Warehouse,
};

/// Rows of a transaction: enough that its commit does not count, few enough for
/// an engine that keeps them until then.
const BATCH: usize = 1_000;

/// Fills the tables of an empty database.
pub(crate) fn load<E: Engine>(
    engine: &E,
    seed: u64,
    warehouses: u32,
    size: Size,
    progress: Progress<'_>,
) -> Result<()> {
    fill::<E, Item>(engine, seed, warehouses, size, progress)?;
    fill::<E, Warehouse>(engine, seed, warehouses, size, progress)?;
    fill::<E, District>(engine, seed, warehouses, size, progress)?;
    fill::<E, Customer>(engine, seed, warehouses, size, progress)?;
    fill::<E, History>(engine, seed, warehouses, size, progress)?;
    fill::<E, Order>(engine, seed, warehouses, size, progress)?;
    fill::<E, NewOrder>(engine, seed, warehouses, size, progress)?;
    fill::<E, OrderLine>(engine, seed, warehouses, size, progress)?;
    fill::<E, Stock>(engine, seed, warehouses, size, progress)
}

fn fill<E: Engine, R: Populated>(
    engine: &E,
    seed: u64,
    warehouses: u32,
    size: Size,
    progress: Progress<'_>,
) -> Result<()> {
    progress(&format!("{}: loading {}", E::NAME, R::NAME));
    let mut from = Population::of::<R>(seed, size);
    let mut waiting = Vec::with_capacity(BATCH);
    let mut outcome = Ok(());
    for part in 0..R::PARTS.count(warehouses) {
        R::populate(&mut from, part, &mut |row| {
            waiting.push(row);
            if waiting.len() == BATCH && outcome.is_ok() {
                outcome = insert(engine, &waiting);
                waiting.clear();
            }
        });
    }
    outcome?;
    insert(engine, &waiting)
}

fn insert<E: Engine, R: Row>(engine: &E, rows: &[R]) -> Result<()> {
    let inserted = engine.run(&mut Insert(rows));
    inserted
        .map(|_| ())
        .map_err(|failure| failure.named(E::NAME))
}

struct Insert<'r, R>(&'r [R]);

impl<R: Row> Work for Insert<'_, R> {
    fn attempt<X: Transaction>(&mut self, x: &mut X) -> Result<End, Failure<X::Error>> {
        for row in self.0 {
            x.insert(row)?;
        }
        Ok(End::Committed)
    }
}
