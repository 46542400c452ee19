//! Who is compared: a policy of our scheduler, stock DataFusion, DuckDB.

use std::fmt;
use std::str::FromStr;

use giveway_tasks::{Attained, Decay, Policy};

/// Who runs the queries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Arm {
    /// Our engine under a policy.
    Policy(Policy),
    /// The same plans on stock DataFusion, whose tasks Tokio spreads over threads.
    Stock,
    /// DuckDB, in a process of its own.
    DuckDb {
        /// Whether its workers leave a query after some chunks
        /// (`scheduler_process_partial`), which they do not by default.
        partial: bool,
    },
}

impl Arm {
    /// The paper's λ on both sides of its first one, and beginnings from 4 to 100 ms.
    const GRID: [(f32, u32); 9] = [
        (0.5, 2),
        (0.5, 10),
        (0.5, 50),
        (0.8, 2),
        (0.8, 10),
        (0.8, 50),
        (0.95, 2),
        (0.95, 10),
        (0.95, 50),
    ];

    /// Without and with a first stage, and a floor.
    const LAS: [(u32, f32); 4] = [(0, 0.0), (0, 0.05), (4, 0.05), (20, 0.05)];

    /// Fixed parameters, among which the best is what tuning is to come near: decay's, and
    /// those of least attained service.
    pub(crate) fn grid() -> impl Iterator<Item = Arm> {
        let decay = Arm::GRID.into_iter().map(|(lambda, d_start)| {
            Policy::Decay(Decay::new(lambda, d_start).expect("lambdas are below 1"))
        });
        let attained = Arm::LAS.into_iter().map(|(start, floor)| {
            Policy::LeastAttained(Attained::new(start, floor).expect("floors are below 0.5"))
        });
        decay.chain(attained).map(Arm::Policy)
    }

    /// Every policy once, with its first parameters.
    pub(crate) fn policies() -> [Arm; 8] {
        [
            Policy::Fifo,
            Policy::Fair,
            Policy::Lottery { seed: 1 },
            Policy::Balanced,
            Policy::LeastAttained(Attained::INITIAL),
            Policy::Decay(Decay::INITIAL),
            Policy::Tuned,
            Policy::Adaptive,
        ]
        .map(Arm::Policy)
    }

    /// What `--arms` says: a name of [`Arm`], or `grid` for all fixed parameters.
    ///
    /// # Errors
    /// The names that there are.
    pub(crate) fn parse(text: &str) -> Result<Vec<Arm>, String> {
        match text {
            "grid" => Ok(Arm::grid().collect()),
            name => name.parse().map(|arm| vec![arm]),
        }
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arm::Policy(policy) => policy.fmt(f),
            Arm::Stock => f.write_str("stock"),
            Arm::DuckDb { partial: false } => f.write_str("duckdb"),
            Arm::DuckDb { partial: true } => f.write_str("duckdb-partial"),
        }
    }
}

impl FromStr for Arm {
    type Err = String;

    fn from_str(text: &str) -> Result<Arm, String> {
        match text {
            "stock" => Ok(Arm::Stock),
            "duckdb" => Ok(Arm::DuckDb { partial: false }),
            "duckdb-partial" => Ok(Arm::DuckDb { partial: true }),
            policy => policy.parse().map(Arm::Policy).map_err(|error| {
                format!("{error}; or write stock, duckdb, duckdb-partial or grid")
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_round_trip_through_text() {
        let others = ["stock", "duckdb", "duckdb-partial"].map(|text| text.parse().unwrap());
        for arm in Arm::grid().chain(Arm::policies()).chain(others) {
            assert_eq!(arm.to_string().parse(), Ok(arm));
        }
        assert_eq!(Arm::parse("grid").unwrap().len(), 13);
        let error = Arm::parse("postgres").unwrap_err();
        assert!(
            error.contains("'postgres'") && error.contains("duckdb-partial"),
            "{error}"
        );
    }
}
