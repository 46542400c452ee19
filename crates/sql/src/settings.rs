//! Which of DataFusion's options a statement may set, and to what.
//!
//! DataFusion believes each number that it is given: so many partitions are made, so many
//! rows are allocated. And its `datafusion.runtime` replaces what the engine counts memory
//! and disk with. So numbers have ranges here, and `datafusion.runtime` is refused.

use std::ops::RangeInclusive;

use datafusion::common::{Result, config_err};

/// What belongs to the engine.
const RUNTIME: &str = "datafusion.runtime.";
/// Where a number may be a size of something that is allocated.
const EXECUTION: &str = "datafusion.execution.";

/// The ranges of numbers that are not [`USUAL`] below `datafusion.execution`, and of those
/// elsewhere that have one.
const RANGES: [(&str, RangeInclusive<f64>); 14] = [
    ("datafusion.execution.batch_size", 1.0..=65_536.0),
    ("datafusion.execution.target_partitions", 0.0..=4096.0),
    ("datafusion.execution.planning_concurrency", 0.0..=64.0),
    ("datafusion.execution.meta_fetch_concurrency", 1.0..=1024.0),
    (
        "datafusion.execution.perfect_hash_join_min_key_density",
        0.01..=1.0,
    ),
    (
        "datafusion.execution.minimum_parallel_output_files",
        1.0..=1024.0,
    ),
    (
        "datafusion.execution.max_buffered_batches_per_output_file",
        2.0..=1024.0,
    ),
    (
        "datafusion.execution.objectstore_writer_buffer_size",
        1.0..=1e8,
    ),
    (
        "datafusion.execution.soft_max_rows_per_output_file",
        1.0..=f64::MAX,
    ),
    (
        "datafusion.execution.parquet.maximum_parallel_row_group_writers",
        1.0..=64.0,
    ),
    (
        "datafusion.execution.parquet.maximum_buffered_record_batches_per_stream",
        1.0..=1024.0,
    ),
    ("datafusion.sql_parser.recursion_limit", 1.0..=50.0),
    ("datafusion.optimizer.max_passes", 1.0..=16.0),
    (
        "datafusion.explain.tree_maximum_render_width",
        0.0..=10_000.0,
    ),
];
/// Of other numbers below `datafusion.execution`: a size is at most a MiB.
const USUAL: RangeInclusive<f64> = 0.0..=1_048_576.0;

/// Whether an option may be set to this; without a value, to its default.
///
/// # Errors
/// The range, or what to do instead.
pub(crate) fn check(name: &str, value: Option<&str>) -> Result<()> {
    let name = name.to_lowercase();
    if name.starts_with(RUNTIME) {
        return config_err!(
            "{name} is the engine's: its memory and its disk are set when it is started \
             (--memory, --spill)"
        );
    }
    let range = (RANGES.iter())
        .find(|(of, _)| *of == name)
        .map(|(_, range)| range)
        .or_else(|| name.starts_with(EXECUTION).then_some(&USUAL));
    let number = value.and_then(|value| value.trim().parse::<f64>().ok());
    match (range, number) {
        (Some(range), Some(number)) if !range.contains(&number) => config_err!(
            "{name} = {number}: write a number from {} to {}",
            range.start(),
            range.end()
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::common::config::ConfigOptions;

    #[test]
    fn numbers_have_ranges() {
        for (name, wrong, right) in [
            ("datafusion.execution.batch_size", "1e12", "1000"),
            ("datafusion.execution.batch_size", "0", "1"),
            ("datafusion.execution.TARGET_partitions", "4000000000", "8"),
            ("datafusion.execution.parquet.bloom_filter_ndv", "1e12", "5"),
            ("datafusion.sql_parser.recursion_limit", "1000000", "20"),
        ] {
            let error = check(name, Some(wrong)).unwrap_err().to_string();
            assert!(error.contains("write a number from"), "{error}");
            check(name, Some(right)).unwrap();
        }
        check("datafusion.execution.time_zone", Some("+01:00")).unwrap();
        check(
            "datafusion.optimizer.repartition_file_min_size",
            Some("1000000000"),
        )
        .unwrap();
    }

    #[test]
    fn memory_and_disk_are_the_engine_s() {
        for value in [Some("/tmp"), None] {
            let error = check("datafusion.runtime.temp_directory", value).unwrap_err();
            assert!(error.to_string().contains("--spill"), "{error}");
        }
    }

    #[test]
    fn every_range_is_of_an_option_that_there_is() {
        let entries = ConfigOptions::new().entries();
        for (name, range) in RANGES {
            let entry = entries.iter().find(|entry| entry.key == name);
            let value = &entry.unwrap_or_else(|| panic!("no option {name}")).value;
            let value: f64 = value.as_deref().unwrap_or("1").parse().unwrap();
            assert!(range.contains(&value), "{name}: {value}");
        }
    }
}
