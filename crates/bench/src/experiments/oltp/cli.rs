//! `giveway bench oltp`: from options to a report.

use giveway_command::Failure;

use super::row::OltpRow;
#[cfg(test)]
use crate::report::Report;
use crate::runner::experiment::Experiment;
#[cfg(feature = "engines")]
use crate::runner::experiment::GuestCommand;

#[cfg(not(feature = "engines"))]
pub(crate) use crate::runner::experiment::AnyOptions as OltpArgs;
#[cfg(feature = "engines")]
pub(crate) use with_engines::OltpArgs;

/// The experiment, as the registry knows it.
pub(crate) struct Oltp;

impl Experiment for Oltp {
    const NAME: &'static str = super::NAME;
    const SUMMARY: &'static str = "YCSB's workloads A to F on the transaction engine and on \
        LMDB, redb, fjall, sled, RocksDB and SQLite: latency and throughput";
    const SECTION: &'static str = "none of the papers; PreemptDB (paper 001) takes an engine for \
        granted";
    const SUBJECT: &'static [&'static str] = &["crates/txn/src"];
    const QUICK: &'static str = "--engines giveway,redb,sqlite --workloads A,C,E --rows 20000 \
        --seconds 0.4 --threads 1";
    type Args = OltpArgs;
    type Row = OltpRow;

    #[cfg(feature = "engines")]
    fn run(args: &OltpArgs) -> Result<u8, Failure> {
        with_engines::oltp(args)
    }

    /// A program that was built without the engines has nothing to measure.
    #[cfg(not(feature = "engines"))]
    fn run(_: &OltpArgs) -> Result<u8, Failure> {
        Err(
            Failure::new("this giveway-bench was built without the engines, which 'oltp' measures")
                .with_remedy("cargo build --release -p giveway-bench --features rivals"),
        )
    }

    /// Not of a guest: of this machine.
    #[cfg(feature = "engines")]
    fn guest_commands() -> Vec<GuestCommand> {
        use super::process::{COMMAND, EngineArgs, serve};
        vec![GuestCommand::new::<EngineArgs>(
            COMMAND,
            "Run YCSB on one engine, as standard input says",
            serve,
        )]
    }

    #[cfg(test)]
    fn sample() -> Report<Self::Row> {
        super::report::samples::report()
    }
}

#[cfg(feature = "engines")]
mod with_engines {
    use std::path::PathBuf;

    use clap::Args;
    use giveway_command::Failure;

    use crate::experiments::oltp::process::make_room;
    use crate::experiments::oltp::row::{OltpEngine, OltpRow, OltpWorkload};
    use crate::experiments::oltp::run::{Bench, Cell, Settings, place};
    use crate::experiments::oltp::store::{ROW_BYTES, absent, has_files};
    use crate::harness::environment::Environment;
    use crate::report::Report;
    use crate::runner::pool::Executor;
    use crate::runner::results::{RepeatArgs, ResultArgs, interruptible, positive};

    /// Measure YCSB on the transaction engine and on others
    ///
    /// Each engine has a process of its own, and they take turns. Rows have 1000 bytes and
    /// a key. LMDB and fjall take a giveway-bench that was built with --features rivals,
    /// RocksDB its library (Debian: librocksdb-dev). Best on a machine that does nothing
    /// else. See docs/measure/oltp.md.
    #[derive(Args, Debug)]
    pub(crate) struct OltpArgs {
        /// YCSB's core workloads
        #[arg(long, value_delimiter = ',', value_name = "LIST",
              default_values_t = OltpWorkload::ALL.to_vec())]
        workloads: Vec<OltpWorkload>,
        /// giveway, lmdb, redb, fjall, sled, rocksdb, sqlite
        #[arg(long, value_delimiter = ',', value_name = "LIST",
              default_values_t = OltpEngine::ALL.to_vec())]
        engines: Vec<OltpEngine>,
        /// Columns of a row, which divide its 1000 bytes
        #[arg(long, value_delimiter = ',', value_name = "LIST", default_values_t = [10, 1],
              value_parser = columns)]
        columns: Vec<u32>,
        /// Threads that ask
        #[arg(long, value_delimiter = ',', value_name = "LIST", default_values_t = [1, 2],
              value_parser = clap::value_parser!(u32).range(1..=256))]
        threads: Vec<u32>,
        /// Rows that are loaded
        #[arg(long, default_value_t = 200_000, value_name = "N",
              value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
        rows: u64,
        /// What counts of each engine's time in a workload, in four turns
        #[arg(long, default_value_t = 2.0, value_name = "SECONDS", value_parser = positive)]
        seconds: f64,
        /// Where engines that have files put them: a tmpfs
        #[arg(long, default_value = "/dev/shm", value_name = "DIR")]
        dir: PathBuf,
        #[command(flatten)]
        repeats: RepeatArgs,
        #[command(flatten)]
        results: ResultArgs,
    }

    fn columns(text: &str) -> Result<u32, String> {
        match text.parse() {
            Ok(columns @ 1..=100) if ROW_BYTES.is_multiple_of(columns as usize) => Ok(columns),
            _ => Err(format!("write a divisor of {ROW_BYTES} up to 100")),
        }
    }

    /// Measures and reports; answers with the exit status.
    pub(super) fn oltp(args: &OltpArgs) -> Result<u8, Failure> {
        // Before anything is loaded.
        if let Some(absent) = args.engines.iter().find_map(|engine| absent(*engine)) {
            return Err(Failure::new(absent));
        }
        let engines = distinct(&args.engines);
        if engines.iter().any(|engine| has_files(*engine)) {
            make_room(&args.dir, args.rows).map_err(|error| Failure::new(error.to_string()))?;
        }
        let cells = args.cells();
        let stop = interruptible()?;
        let bench = Bench::new(Settings {
            engines: engines.clone(),
            rows: args.rows,
            seconds: args.seconds,
            dir: args.dir.clone(),
        });
        eprintln!(
            "measuring on this machine itself, {} workloads on {} engines",
            cells.len(),
            engines.len()
        );
        args.results
            .run(&cells, Cell::title, &Native(bench), 1, &stop)
    }

    /// Each once, in the order given.
    fn distinct<T: Copy + PartialEq>(given: &[T]) -> Vec<T> {
        let mut distinct = Vec::new();
        for one in given {
            if !distinct.contains(one) {
                distinct.push(*one);
            }
        }
        distinct
    }

    impl OltpArgs {
        /// Repeats outside, so that what is compared was measured close together.
        fn cells(&self) -> Vec<Cell> {
            let mut workloads = distinct(&self.workloads);
            workloads.sort_by_key(|workload| place(*workload));
            let mut cells = Vec::new();
            for (repeat, seed) in self.repeats.seeds() {
                for columns in distinct(&self.columns) {
                    for threads in distinct(&self.threads) {
                        cells.extend(workloads.iter().map(|&workload| Cell {
                            workload,
                            columns,
                            threads,
                            repeat,
                            seed,
                        }));
                    }
                }
            }
            cells
        }
    }

    /// This machine.
    struct Native(Bench);

    impl Executor<Cell, Report<OltpRow>> for Native {
        fn run(&self, cell: &Cell, line: &mut dyn FnMut(&str)) -> Result<Report<OltpRow>, String> {
            let environment = Environment::probe("native");
            let mut report = Report::new(crate::experiments::oltp::NAME, environment);
            report.rows = self.0.run(cell, line).map_err(|error| error.to_string())?;
            Ok(report)
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::runner::experiment::parse;

        fn cells(options: &[&str]) -> Vec<Cell> {
            parse::<OltpArgs>(options).unwrap().cells()
        }

        #[test]
        fn workloads_that_add_rows_come_last() {
            let cells = cells(&["--workloads", "E,D,F,A,A", "--threads=2,2", "--columns=1,1"]);
            let titles = Vec::from_iter(cells.iter().map(Cell::title));
            assert_eq!(
                titles,
                ["A", "F", "D", "E"].map(|of| format!("{of}, 1 column, 2 threads, repeat 1"))
            );
        }

        #[test]
        fn every_setting_is_measured_before_the_next_repeat() {
            let cells = cells(&["--repeat=2", "--seed=7"]);
            assert_eq!(cells.len(), 2 * 2 * 2 * 6);
            let (first, second) = cells.split_at(24);
            assert!(first.iter().all(|cell| (cell.repeat, cell.seed) == (0, 7)));
            assert!(second.iter().all(|cell| (cell.repeat, cell.seed) == (1, 8)));
        }

        #[test]
        fn columns_that_leave_a_rest_are_refused() {
            let error = parse::<OltpArgs>(&["--columns=3"]).unwrap_err();
            assert!(error.to_string().contains("a divisor of 1000"), "{error}");
        }
    }
}
