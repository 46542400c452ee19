//! The two commands behind an experiment: make its data, measure one cell.
//!
//! `prepare` runs while the guest image is made, `cell` inside each guest; the
//! native way uses the same library calls without them.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use clap::Args;
use giveway_bench::dataset::{self, DatasetSpec};
use giveway_bench::{CellConfig, Environment, Report, run_cell};

use crate::error::{Context, Failure};

#[derive(Args, Debug)]
pub(crate) struct PrepareArgs {
    /// Directory to make; must not exist or be empty
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// TPC-C warehouses
    #[arg(long, default_value_t = DatasetSpec::default().warehouses, value_name = "N")]
    warehouses: u32,
    /// TPC-H scale factor
    #[arg(long, default_value_t = DatasetSpec::default().tpch_scale, value_name = "SF")]
    tpch_scale: f64,
    /// Seed of the data
    #[arg(long, default_value_t = DatasetSpec::default().seed, value_name = "N")]
    seed: u64,
}

#[derive(Args, Debug)]
pub(crate) struct CellArgs {
    /// The cell, as JSON
    #[arg(long, value_name = "FILE")]
    pub(super) config: PathBuf,
    /// Report with the cell's row
    #[arg(long, value_name = "FILE")]
    pub(super) out: PathBuf,
    /// Name of the clock, for the report
    #[arg(long, default_value = "real")]
    pub(super) clock: String,
}

/// Makes the data.
pub(super) fn prepare(args: &PrepareArgs) -> Result<(), Failure> {
    let spec = DatasetSpec {
        warehouses: args.warehouses,
        tpch_scale: args.tpch_scale,
        seed: args.seed,
    };
    Ok(dataset::prepare(&args.data, &spec, &mut |line| {
        eprintln!("{line}");
    })?)
}

/// Measures the cell.
pub(super) fn cell(args: &CellArgs) -> Result<(), Failure> {
    let file = File::open(&args.config).cannot(format_args!("open {}", args.config.display()))?;
    let config: CellConfig = serde_json::from_reader(BufReader::new(file))
        .cannot(format_args!("read {}", args.config.display()))?;
    Ok(measure(&config, &args.clock, &mut |line| println!("{line}"))?.write(&args.out)?)
}

/// One cell as a report of one row.
pub(super) fn measure(
    config: &CellConfig,
    clock: &str,
    line: &mut dyn FnMut(&str),
) -> giveway_bench::Result<Report> {
    let row = run_cell(config, line)?;
    let environment = Environment::of(config.installation(), clock, super::COMMIT);
    let mut report = Report::new(super::mixed::NAME, environment);
    report.rows.push(row);
    Ok(report)
}
