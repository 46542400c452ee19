//! What `db_bench` prints. An excerpt (version 7.8):
//!
//! ```text
//! overwrite    :  336.897 micros/op 5890 ops/sec 2.037 seconds 11998 operations;  0.7 MB/s
//! Microseconds per write:
//! Count: 11998 Average: 347.4978  StdDev: 7188.59
//! Min: 3  Median: 3.9717  Max: 385078
//! Percentiles: P50: 3.97 P75: 5.28 P99: 16.92 P99.9: 126374.55 P99.99: 354026.00
//! ```
//!
//! Lines that are not known are passed over; a line that is known and misses a
//! number is an error that names it.

use super::row::Operation;

/// What one workload did.
#[derive(Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) ops_per_s: f64,
    pub(super) seconds: f64,
    pub(super) operations: Vec<Operation>,
}

/// Finds a workload's result.
pub(super) fn outcome(workload: &str, printed: &str) -> Result<Outcome, String> {
    let mut found = None;
    let mut operation: Option<Operation> = None;
    let mut operations = Vec::new();
    for line in printed.lines() {
        if let Some(rest) = result_line(workload, line) {
            found = Some((before(rest, "ops/sec")?, before(rest, "seconds")?));
        } else if let Some(name) = line.strip_prefix("Microseconds per ") {
            operation = Some(Operation {
                name: name.trim_end_matches(':').to_owned(),
                count: 0,
                mean_us: 0.0,
                p50_us: 0.0,
                p99_us: 0.0,
                p999_us: 0.0,
                p9999_us: 0.0,
                max_us: 0.0,
            });
        } else if let Some(current) = &mut operation {
            if line.starts_with("Count:") {
                // A count has no fraction.
                current.count = after(line, "Count:")? as u64;
                current.mean_us = after(line, "Average:")?;
            } else if line.starts_with("Min:") {
                current.max_us = after(line, "Max:")?;
            } else if line.starts_with("Percentiles:") {
                current.p50_us = after(line, "P50:")?;
                current.p99_us = after(line, "P99:")?;
                current.p999_us = after(line, "P99.9:")?;
                current.p9999_us = after(line, "P99.99:")?;
                operations.extend(operation.take());
            }
        }
    }
    let Some((ops_per_s, seconds)) = found else {
        return Err(format!("it printed no result for '{workload}'"));
    };
    if operations.is_empty() {
        return Err("it printed no latencies: is it older than 7.0?".to_owned());
    }
    Ok(Outcome {
        ops_per_s,
        seconds,
        operations,
    })
}

/// What stands behind the workload's name and a colon.
fn result_line<'a>(workload: &str, line: &'a str) -> Option<&'a str> {
    line.strip_prefix(workload)?.trim_start().strip_prefix(':')
}

/// The number before a unit.
fn before(line: &str, unit: &str) -> Result<f64, String> {
    let words = Vec::from_iter(line.split_whitespace());
    let pairs = words.windows(2).find(|pair| pair[1] == unit);
    number(pairs.map(|pair| pair[0]), unit, line)
}

/// The number after a label.
fn after(line: &str, label: &str) -> Result<f64, String> {
    let words = Vec::from_iter(line.split_whitespace());
    let pairs = words.windows(2).find(|pair| pair[0] == label);
    number(pairs.map(|pair| pair[1]), label, line)
}

fn number(word: Option<&str>, what: &str, line: &str) -> Result<f64, String> {
    word.and_then(|word| word.parse().ok())
        .ok_or_else(|| format!("no number for '{what}' in its line '{line}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = include_str!("db_bench.txt");

    #[test]
    fn a_workload_with_two_kinds_of_operations_is_read() {
        let outcome = outcome("readrandomwriterandom", PRINTED).unwrap();
        assert_eq!((outcome.ops_per_s, outcome.seconds), (20_139.0, 2.284));
        let [read, write] = outcome.operations.as_slice() else {
            panic!("{:?}", outcome.operations);
        };
        assert_eq!((read.name.as_str(), read.count), ("read", 41_400));
        assert_eq!(
            (read.mean_us, read.p50_us, read.p99_us),
            (67.2938, 0.85, 5.05)
        );
        assert_eq!((read.p999_us, read.p9999_us), (31.73, 151_657.14));
        assert_eq!((read.max_us, write.count), (274_549.0, 4_598));
    }

    #[test]
    fn what_is_missing_is_said() {
        let error = outcome("overwrite", PRINTED).unwrap_err();
        assert!(error.contains("'overwrite'"), "{error}");
        let broken = PRINTED.replace("P99.9: 31.73", "P99.9: many");
        let error = outcome("readrandomwriterandom", &broken).unwrap_err();
        assert!(error.contains("'P99.9:'"), "{error}");
        let silent = PRINTED.replace("Percentiles", "Quantiles");
        let error = outcome("readrandomwriterandom", &silent).unwrap_err();
        assert!(error.contains("no latencies"), "{error}");
    }
}
