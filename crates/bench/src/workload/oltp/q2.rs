//! TPC-H's Q2 (clause 2.4.2) as the long background transaction of PreemptDB's
//! evaluation (paper 001, Section 6.1).
//!
//! Which supplier of a region sells the parts of a size and kind cheapest? The
//! plan is the nested loops of the published code, on TPC-H's tables instead of
//! TPC-C's:
//!
//! ```text
//!   region by name ─► its nations ─► their suppliers ─► what they sell (partsupp)
//!     for each: the part; if size and kind fit:
//!       ┌ nested block: least cost of the part among the region's suppliers
//!       └ an answer, if this one has it
//! ```
//!
//! Answers are ordered as the clause asks, by account balance, nation, supplier
//! and part. `handcrafted_yield_point` stands where the paper's authors put it by
//! hand: after each step of the innermost loop, outside the nested block.

use giveway_tier::Tier;
use giveway_txn::{Database, Direction, Error, KeyRange, Result, Schema, Table, TxnOptions, Type};
use tpchgen::generators::{
    NationGenerator, PartGenerator, PartSuppGenerator, RegionGenerator, SupplierGenerator,
};

/// What is asked for: the parameters of the specification's validation run
/// (clause 2.4.2.3).
const SIZE: i32 = 15;
const KIND: &str = "BRASS";
const REGION: &str = "EUROPE";

/// Positions of columns, in the order in which `tables` declares them.
mod column {
    pub(super) const R_KEY: usize = 0;
    pub(super) const R_NAME: usize = 1;
    pub(super) const N_KEY: usize = 0;
    pub(super) const N_REGION: usize = 1;
    pub(super) const N_NAME: usize = 2;
    pub(super) const S_KEY: usize = 0;
    pub(super) const S_NATION: usize = 1;
    pub(super) const S_BALANCE: usize = 2;
    pub(super) const S_NAME: usize = 3;
    pub(super) const P_SIZE: usize = 1;
    pub(super) const P_TYPE: usize = 2;
    pub(super) const PS_PART: usize = 0;
    pub(super) const PS_SUPPLIER: usize = 1;
    pub(super) const PS_COST: usize = 3;
}

/// One answer; the order of fields is that of the result.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Offer {
    /// Account balance in cents, negated: the largest comes first.
    pub(crate) debt_cents: i64,
    pub(crate) nation: String,
    pub(crate) supplier: String,
    pub(crate) part: i64,
}

/// The tables of Q2 in a database.
pub(crate) struct Q2 {
    database: Database,
    region: Table,
    nation: Table,
    supplier: Table,
    part: Table,
    partsupp: Table,
    nations_by_region: giveway_txn::Index,
    suppliers_by_nation: giveway_txn::Index,
    offers_by_supplier: giveway_txn::Index,
}

impl Q2 {
    /// Makes the tables and loads them at this scale.
    pub(crate) fn load(database: &Database, scale: f64) -> Result<Self> {
        let this = Q2::create(database)?;
        this.fill(scale)?;
        Ok(this)
    }

    fn create(database: &Database) -> Result<Self> {
        let region = database.create_table(
            Schema::builder("region")
                .column("r_regionkey", Type::I64)
                .column("r_name", Type::Text)
                .primary_key(["r_regionkey"])
                .build()?,
        )?;
        let nation = database.create_table(
            Schema::builder("nation")
                .column("n_nationkey", Type::I64)
                .column("n_regionkey", Type::I64)
                .column("n_name", Type::Text)
                .primary_key(["n_nationkey"])
                .index("nation_region", ["n_regionkey"])
                .build()?,
        )?;
        let supplier = database.create_table(
            Schema::builder("supplier")
                .column("s_suppkey", Type::I64)
                .column("s_nationkey", Type::I64)
                .column("s_acctbal", Type::I64)
                .column("s_name", Type::Text)
                .column("s_address", Type::Text)
                .column("s_phone", Type::Text)
                .column("s_comment", Type::Text)
                .primary_key(["s_suppkey"])
                .index("supplier_nation", ["s_nationkey"])
                .build()?,
        )?;
        let part = database.create_table(
            Schema::builder("part")
                .column("p_partkey", Type::I64)
                .column("p_size", Type::I32)
                .column("p_type", Type::Text)
                .column("p_mfgr", Type::Text)
                .column("p_name", Type::Text)
                .primary_key(["p_partkey"])
                .build()?,
        )?;
        let partsupp = database.create_table(
            Schema::builder("partsupp")
                .column("ps_partkey", Type::I64)
                .column("ps_suppkey", Type::I64)
                .column("ps_availqty", Type::I32)
                .column("ps_supplycost", Type::I64)
                .column("ps_comment", Type::Text)
                .primary_key(["ps_partkey", "ps_suppkey"])
                .index("partsupp_supplier", ["ps_suppkey"])
                .build()?,
        )?;
        Ok(Q2 {
            database: database.clone(),
            nations_by_region: nation.index("nation_region")?,
            suppliers_by_nation: supplier.index("supplier_nation")?,
            offers_by_supplier: partsupp.index("partsupp_supplier")?,
            region,
            nation,
            supplier,
            part,
            partsupp,
        })
    }

    fn fill(&self, scale: f64) -> Result<()> {
        let options = TxnOptions::default();
        self.database.run(options, |txn| {
            let mut row = self.region.row();
            for region in RegionGenerator::new(scale, 1, 1).iter() {
                row.set_i64(0, region.r_regionkey);
                row.set_text(1, region.r_name);
                txn.insert(&self.region, &row)?;
            }
            let mut row = self.nation.row();
            for nation in NationGenerator::new(scale, 1, 1).iter() {
                row.set_i64(0, nation.n_nationkey);
                row.set_i64(1, nation.n_regionkey);
                row.set_text(2, nation.n_name);
                txn.insert(&self.nation, &row)?;
            }
            let mut row = self.supplier.row();
            for supplier in SupplierGenerator::new(scale, 1, 1).iter() {
                row.set_i64(0, supplier.s_suppkey);
                row.set_i64(1, supplier.s_nationkey);
                row.set_i64(2, supplier.s_acctbal.into_inner());
                row.set_text(3, &supplier.s_name.to_string());
                row.set_text(4, &supplier.s_address.to_string());
                row.set_text(5, &supplier.s_phone.to_string());
                row.set_text(6, &supplier.s_comment);
                txn.insert(&self.supplier, &row)?;
            }
            let mut row = self.part.row();
            for part in PartGenerator::new(scale, 1, 1).iter() {
                row.set_i64(0, part.p_partkey);
                row.set_i32(1, part.p_size);
                row.set_text(2, part.p_type);
                row.set_text(3, &part.p_mfgr.to_string());
                row.set_text(4, &part.p_name.to_string());
                txn.insert(&self.part, &row)?;
            }
            let mut row = self.partsupp.row();
            for offer in PartSuppGenerator::new(scale, 1, 1).iter() {
                row.set_i64(0, offer.ps_partkey);
                row.set_i64(1, offer.ps_suppkey);
                row.set_i32(2, offer.ps_availqty);
                row.set_i64(3, offer.ps_supplycost.into_inner());
                row.set_text(4, offer.ps_comment);
                match txn.insert(&self.partsupp, &row) {
                    // With very few suppliers the specification's formula names
                    // one twice for a part (clause 4.2.3).
                    Err(Error::DuplicateKey { .. }) => {}
                    inserted => inserted?,
                }
            }
            Ok(())
        })
    }

    /// Runs the query in a transaction of its own.
    pub(crate) fn run(&self) -> Result<Vec<Offer>> {
        use column::*;
        let options = TxnOptions::snapshot().tier(Tier::Background).label(&"q2");
        let txn = self.database.begin(options)?;
        let mut offers = Vec::new();
        for region in txn.scan(&self.region, KeyRange::all(), Direction::Forward)? {
            let region = region?;
            if region.text(R_NAME) != REGION {
                continue;
            }
            let range = KeyRange::prefix(region.i64(R_KEY));
            for nation in txn.scan_index(&self.nations_by_region, range, Direction::Forward)? {
                let nation = nation?;
                let range = KeyRange::prefix(nation.i64(N_KEY));
                let suppliers =
                    txn.scan_index(&self.suppliers_by_nation, range, Direction::Forward)?;
                for supplier in suppliers {
                    let supplier = supplier?;
                    let range = KeyRange::prefix(supplier.i64(S_KEY));
                    for sold in
                        txn.scan_index(&self.offers_by_supplier, range, Direction::Forward)?
                    {
                        let sold = sold?;
                        let number = sold.i64(PS_PART);
                        let part = txn.get(&self.part, number)?;
                        let fits = part.is_some_and(|part| {
                            part.i32(P_SIZE) == SIZE && part.text(P_TYPE).ends_with(KIND)
                        });
                        let is_cheapest = fits
                            && self.least_cost(&txn, number, region.i64(R_KEY))?
                                == Some(sold.i64(PS_COST));
                        if is_cheapest {
                            offers.push(Offer {
                                debt_cents: -supplier.i64(S_BALANCE),
                                nation: nation.text(N_NAME).to_owned(),
                                supplier: supplier.text(S_NAME).to_owned(),
                                part: number,
                            });
                        }
                        giveway_preempt::handcrafted_yield_point();
                    }
                }
            }
        }
        txn.commit()?;
        offers.sort_unstable();
        offers.truncate(100);
        Ok(offers)
    }

    /// The nested block: the least that a part costs in a region.
    fn least_cost(
        &self,
        txn: &giveway_txn::Transaction<'_>,
        part: i64,
        region: i64,
    ) -> Result<Option<i64>> {
        use column::*;
        let mut least: Option<i64> = None;
        for sold in txn.scan(&self.partsupp, KeyRange::prefix(part), Direction::Forward)? {
            let sold = sold?;
            let Some(supplier) = txn.get(&self.supplier, sold.i64(PS_SUPPLIER))? else {
                continue;
            };
            let Some(nation) = txn.get(&self.nation, supplier.i64(S_NATION))? else {
                continue;
            };
            if nation.i64(N_REGION) == region {
                let cost = sold.i64(PS_COST);
                least = Some(least.map_or(cost, |least| least.min(cost)));
            }
        }
        Ok(least)
    }
}

/// The answer by definition, from the generator's rows: every part and supplier
/// is looked at, and no index is used.
#[cfg(test)]
fn expected(scale: f64) -> Vec<Offer> {
    use std::collections::{HashMap, HashSet};

    let region = RegionGenerator::new(scale, 1, 1)
        .iter()
        .find(|region| region.r_name == REGION)
        .expect("the region is one of five")
        .r_regionkey;
    let nations: HashMap<i64, String> = NationGenerator::new(scale, 1, 1)
        .iter()
        .filter(|nation| nation.n_regionkey == region)
        .map(|nation| (nation.n_nationkey, nation.n_name.to_owned()))
        .collect();
    let suppliers: HashMap<i64, (i64, String, String)> = SupplierGenerator::new(scale, 1, 1)
        .iter()
        .filter_map(|supplier| {
            let nation = nations.get(&supplier.s_nationkey)?.clone();
            let name = supplier.s_name.to_string();
            Some((
                supplier.s_suppkey,
                (-supplier.s_acctbal.into_inner(), nation, name),
            ))
        })
        .collect();
    let parts: HashSet<i64> = PartGenerator::new(scale, 1, 1)
        .iter()
        .filter(|part| part.p_size == SIZE && part.p_type.ends_with(KIND))
        .map(|part| part.p_partkey)
        .collect();
    let sold: Vec<(i64, i64, i64)> = PartSuppGenerator::new(scale, 1, 1)
        .iter()
        .map(|sold| {
            let cost = sold.ps_supplycost.into_inner();
            (sold.ps_partkey, sold.ps_suppkey, cost)
        })
        .filter(|(part, supplier, _)| parts.contains(part) && suppliers.contains_key(supplier))
        .collect();
    let least = |part: i64| sold.iter().filter(|s| s.0 == part).map(|s| s.2).min();
    let mut offers: Vec<Offer> = sold
        .iter()
        .filter(|(part, _, cost)| least(*part) == Some(*cost))
        .map(|(part, supplier, _)| {
            let (debt_cents, nation, name) = suppliers[supplier].clone();
            Offer {
                debt_cents,
                nation,
                supplier: name,
                part: *part,
            }
        })
        .collect();
    offers.sort_unstable();
    offers.truncate(100);
    offers
}

#[cfg(test)]
mod tests {
    use super::*;
    use giveway_txn::Options;

    #[test]
    fn the_answer_is_that_of_the_definition() {
        let scale = 0.01;
        let database = Database::in_memory(Options::default());
        let q2 = Q2::load(&database, scale).unwrap();
        let offers = q2.run().unwrap();
        assert!(offers.len() >= 2, "the data are too small: {offers:?}");
        assert_eq!(offers, expected(scale));
    }
}
