//! TPC-H: the data, the queries, and their answers.
//!
//! The rows are those of the specification (version 3.0.1, Section 4.2), made by
//! `tpchgen` as Arrow batches; this module adds what an engine needs around them:
//!
//! * [`Table::batches`] is a table in memory, whole or a part of it;
//! * [`Dataset`] writes all tables as Parquet files, in parallel, and goes on
//!   where it was interrupted;
//! * [`query`] is a query with the parameters the specification prescribes for
//!   checking answers, [`answer`] what it answers at scale factor 1.
//!
//! ```no_run
//! use giveway_sql::tpch::{Scale, Table};
//!
//! let scale: Scale = "0.1".parse()?;
//! for batch in Table::Lineitem.batches(scale) {
//!     println!("{} rows", batch.num_rows());
//! }
//! # Ok::<(), giveway_sql::tpch::TpchError>(())
//! ```

mod dataset;
mod queries;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

pub use dataset::{Dataset, Progress, Written};
pub use queries::{QUERIES, answer, query};

/// Rows of a batch: what DataFusion's operators expect.
const BATCH_ROWS: usize = 8192;

/// How much data there is: about a gigabyte of text per unit.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Scale(f64);

impl Scale {
    /// The largest scale factor that has been specified.
    pub const MAX: f64 = 100_000.0;

    /// A scale factor above 0, which may be a fraction, and at most
    /// [`Scale::MAX`].
    pub fn new(factor: f64) -> Result<Scale, TpchError> {
        if factor > 0.0 && factor <= Scale::MAX {
            Ok(Scale(factor))
        } else {
            Err(TpchError::Scale(factor.to_string()))
        }
    }

    /// The factor.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Scale {
    type Err = TpchError;

    fn from_str(text: &str) -> Result<Scale, TpchError> {
        let error = || TpchError::Scale(text.to_owned());
        let factor = text.parse().map_err(|_| error())?;
        Scale::new(factor).map_err(|_| error())
    }
}

/// A table of the schema (Section 1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names say which")]
pub enum Table {
    Region,
    Nation,
    Supplier,
    Customer,
    Part,
    Partsupp,
    Orders,
    Lineitem,
}

impl Table {
    /// All tables, the small ones first.
    pub const ALL: [Table; 8] = [
        Table::Region,
        Table::Nation,
        Table::Supplier,
        Table::Customer,
        Table::Part,
        Table::Partsupp,
        Table::Orders,
        Table::Lineitem,
    ];

    /// The name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Table::Region => "region",
            Table::Nation => "nation",
            Table::Supplier => "supplier",
            Table::Customer => "customer",
            Table::Part => "part",
            Table::Partsupp => "partsupp",
            Table::Orders => "orders",
            Table::Lineitem => "lineitem",
        }
    }

    /// The columns.
    pub fn schema(self) -> SchemaRef {
        match self {
            Table::Region => RegionArrow::schema_ref(),
            Table::Nation => NationArrow::schema_ref(),
            Table::Supplier => SupplierArrow::schema_ref(),
            Table::Customer => CustomerArrow::schema_ref(),
            Table::Part => PartArrow::schema_ref(),
            Table::Partsupp => PartSuppArrow::schema_ref(),
            Table::Orders => OrderArrow::schema_ref(),
            Table::Lineitem => LineItemArrow::schema_ref(),
        }
    }

    /// How many rows there are: exactly, but for `lineitem`, whose orders have one
    /// to seven lines each; four on average.
    pub fn rows(self, scale: Scale) -> u64 {
        let rows = |per_unit: f64| (per_unit * scale.0) as u64;
        match self {
            Table::Region => 5,
            Table::Nation => 25,
            Table::Supplier => rows(10_000.0),
            Table::Customer => rows(150_000.0),
            Table::Part => rows(200_000.0),
            Table::Partsupp => 4 * rows(200_000.0),
            Table::Orders => rows(1_500_000.0),
            Table::Lineitem => 4 * rows(1_500_000.0),
        }
    }

    /// The whole table, in the order of its key.
    pub fn batches(self, scale: Scale) -> impl Iterator<Item = RecordBatch> + Send {
        self.part(scale, Part::WHOLE)
    }

    /// One part of the table. All parts in order are the table.
    fn part(self, scale: Scale, part: Part) -> impl Iterator<Item = RecordBatch> + Send {
        type Batches = Box<
            dyn Iterator<Item = Result<RecordBatch, tpchgen_arrow::arrow::error::ArrowError>>
                + Send,
        >;
        let Part { number, of } = part;
        let scale = scale.0;
        macro_rules! batches {
            ($arrow:ident, $generator:ident) => {
                Box::new(
                    $arrow::new($generator::new(scale, number, of)).with_batch_size(BATCH_ROWS),
                )
            };
        }
        let batches: Batches = match self {
            Table::Region => batches!(RegionArrow, RegionGenerator),
            Table::Nation => batches!(NationArrow, NationGenerator),
            Table::Supplier => batches!(SupplierArrow, SupplierGenerator),
            Table::Customer => batches!(CustomerArrow, CustomerGenerator),
            Table::Part => batches!(PartArrow, PartGenerator),
            Table::Partsupp => batches!(PartSuppArrow, PartSuppGenerator),
            Table::Orders => batches!(OrderArrow, OrderGenerator),
            Table::Lineitem => batches!(LineItemArrow, LineItemGenerator),
        };
        batches.map(|batch| batch.expect("generated columns fit the schema"))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Which piece of a table: the `number`-th, from 1, of so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    number: i32,
    of: i32,
}

impl Part {
    const WHOLE: Part = Part { number: 1, of: 1 };
}

/// Why there is no data.
#[derive(Debug, thiserror::Error)]
pub enum TpchError {
    /// Write another scale factor.
    #[error("'{0}' is no scale factor: write a number above 0 and at most 100000, such as 0.1")]
    Scale(String),
    /// Write a number from 1 to 22.
    #[error("there is no TPC-H query {0}: write a number from 1 to 22")]
    Query(usize),
    /// Choose another directory, or remove what is in this one.
    #[error("{path} holds {found}: choose another directory, or remove it")]
    Occupied {
        /// The file in the way.
        path: PathBuf,
        /// What it is.
        found: String,
    },
    /// Make room or rights, and run it again: what is written is kept.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It was interrupted; run it again to go on.
    #[error("interrupted: what is written is kept, and the same command goes on from there")]
    Interrupted,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_numbers_above_zero() {
        assert_eq!("0.01".parse::<Scale>().unwrap().get(), 0.01);
        for wrong in ["0", "-1", "nan", "inf", "100001", "one", ""] {
            let error = wrong.parse::<Scale>().unwrap_err().to_string();
            assert!(error.contains("such as 0.1"), "{wrong}: {error}");
        }
    }

    #[test]
    fn tables_have_the_rows_that_are_specified() {
        let scale = Scale::new(0.01).unwrap();
        for table in Table::ALL {
            let rows: usize = table.batches(scale).map(|batch| batch.num_rows()).sum();
            let expected = table.rows(scale);
            if table == Table::Lineitem {
                // 1 to 7 lines per order, as drawn for this scale.
                assert_eq!(rows, 60_175);
            } else {
                assert_eq!(rows as u64, expected, "{table}");
            }
        }
    }

    #[test]
    fn parts_in_order_are_the_table() {
        let scale = Scale::new(0.005).unwrap();
        for table in [Table::Lineitem, Table::Supplier, Table::Partsupp] {
            let whole: Vec<_> = table.batches(scale).collect();
            let parts: Vec<_> = (1..=3)
                .flat_map(|number| table.part(scale, Part { number, of: 3 }))
                .collect();
            let concat = |batches: &[RecordBatch]| {
                datafusion::arrow::compute::concat_batches(&table.schema(), batches).unwrap()
            };
            assert_eq!(concat(&whole), concat(&parts), "{table}");
        }
    }
}
