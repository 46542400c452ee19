//! Results beside the reference answers (TPC-H 3.0.1, clause 2.1.3).
//!
//! Numbers agree if they are a cent apart at most, which is as exact as the answers are
//! written and stricter than the specification; text agrees without blanks around it.
//! Rows come in the order of the query's `order by`, and those that are equal by it in
//! any order among themselves.

use datafusion::arrow::array::RecordBatch;
use giveway_sql::tpch;

use crate::workload::rows::{Row, rows};

/// What numbers may differ by. A little more than a cent, since neither number is
/// binary.
const CENT: f64 = 0.010_000_1;

/// The columns of each query's `order by`, from 0.
const ORDER_BY: [&[usize]; 22] = [
    &[0, 1],
    &[0, 2, 1, 3],
    &[1, 2],
    &[0],
    &[1],
    &[],
    &[0, 1, 2],
    &[0],
    &[0, 1],
    &[2],
    &[1],
    &[0],
    &[1, 0],
    &[],
    &[0],
    &[3, 0, 1, 2],
    &[],
    &[4, 3],
    &[],
    &[0],
    &[1, 0],
    &[0],
];

/// The first difference between a result and the reference answer of a query; none if
/// they agree.
pub(super) fn difference(query: u8, result: &[RecordBatch]) -> Option<String> {
    let text = tpch::answer(query.into()).expect("queries are 1 to 22");
    let mut rows = match rows(result) {
        Ok(rows) => rows,
        Err(error) => return Some(format!("a value cannot be shown: {error}")),
    };
    for cell in rows.iter_mut().flatten() {
        *cell = cell.trim().to_owned();
    }
    if query == 11 {
        rows.iter_mut().for_each(|row| row[0] = cut_key(&row[0]));
    }
    compare(ORDER_BY[usize::from(query) - 1], &reference(&text), &rows)
}

/// A key as the reference answer of Q11 has it: the first four of six places.
fn cut_key(key: &str) -> String {
    let places: String = format!("{key:>6}").chars().take(4).collect();
    places.trim().to_owned()
}

/// The rows of an answer: after the names of its columns, without blanks around cells.
fn reference(text: &str) -> Vec<Row> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect();
    lines.skip(1).map(cells).collect()
}

fn compare(order_by: &[usize], expected: &[Row], found: &[Row]) -> Option<String> {
    if expected.len() != found.len() {
        return Some(format!(
            "{} rows instead of {}",
            found.len(),
            expected.len()
        ));
    }
    let is_tied = |one: &Row, other: &Row| order_by.iter().all(|at| one[*at] == other[*at]);
    let mut first = 0;
    for tied in expected.chunk_by(is_tied) {
        let mut left: Vec<&Row> = tied.iter().collect();
        for (row, number) in found[first..first + tied.len()].iter().zip(first + 1..) {
            let Some(at) = left.iter().position(|other| agree_to_a_cent(other, row)) else {
                return Some(format!(
                    "row {number} is {} instead of {}",
                    row.join(" | "),
                    left[0].join(" | ")
                ));
            };
            left.swap_remove(at);
        }
        first += tied.len();
    }
    None
}

fn agree_to_a_cent(expected: &Row, found: &Row) -> bool {
    expected.len() == found.len()
        && expected.iter().zip(found).all(|(one, other)| {
            match (one.parse::<f64>(), other.parse::<f64>()) {
                (Ok(one), Ok(other)) => (one - other).abs() <= CENT,
                _ => one == other,
            }
        })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, StringArray};

    use super::*;

    fn row(cells: &[&str]) -> Row {
        cells.iter().map(|cell| (*cell).to_owned()).collect()
    }

    #[test]
    fn every_answer_is_read_and_has_its_order_by() {
        for query in 1..=22_u8 {
            let rows = reference(&tpch::answer(query.into()).unwrap());
            let order_by = ORDER_BY[usize::from(query) - 1];
            assert!(!rows.is_empty(), "Q{query}");
            for row in &rows {
                assert_eq!(row.len(), rows[0].len(), "Q{query}");
                assert!(order_by.iter().all(|at| *at < row.len()), "Q{query}");
            }
            assert_eq!(compare(order_by, &rows, &rows), None, "Q{query}");
        }
        // Q4's priorities and counts.
        let text = tpch::answer(4).unwrap();
        assert_eq!(reference(&text)[0], row(&["1-URGENT", "10594"]));
    }

    #[test]
    fn blanks_around_cells_do_not_count() {
        let rows = reference(&tpch::answer(4).unwrap());
        let column = |at: usize| -> ArrayRef {
            let cells = rows.iter().map(|row| format!(" {}  ", row[at]));
            Arc::new(StringArray::from_iter_values(cells))
        };
        let columns = [("priority", column(0)), ("count", column(1))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        assert_eq!(difference(4, &[batch]), None);
    }

    #[test]
    fn the_keys_of_q11_are_known_by_four_of_six_places() {
        let keys = reference(&tpch::answer(11).unwrap());
        for (row, key) in [(0, "129760"), (4, "34452"), (6, "9403")] {
            assert_eq!(keys[row][0], cut_key(key));
        }
    }

    #[test]
    fn a_cent_is_nothing_and_two_are_wrong() {
        let expected = [row(&["A", "37734107.00", "25.52"])];
        let found = |sum: &str| [row(&["A", sum, "25.522005"])];
        assert_eq!(compare(&[0], &expected, &found("37734107.01")), None);
        let error = compare(&[0], &expected, &found("37734107.02")).unwrap();
        assert!(
            error.contains("row 1") && error.contains("37734107.02"),
            "{error}"
        );
        assert!(
            compare(&[0], &expected, &[])
                .unwrap()
                .contains("0 rows instead of 1")
        );
        let other = [row(&["B", "37734107.00", "25.52"])];
        assert!(compare(&[0], &expected, &other).is_some());
    }

    #[test]
    fn rows_are_in_order_but_for_those_that_are_tied() {
        let expected = [row(&["1", "a"]), row(&["1", "b"]), row(&["2", "c"])];
        let tied = [row(&["1", "b"]), row(&["1", "a"]), row(&["2", "c"])];
        let wrong = [row(&["2", "c"]), row(&["1", "a"]), row(&["1", "b"])];
        let twice = [row(&["1", "a"]), row(&["1", "a"]), row(&["2", "c"])];
        assert_eq!(compare(&[0], &expected, &tied), None);
        assert!(compare(&[0], &expected, &wrong).is_some());
        assert!(compare(&[0], &expected, &twice).is_some());
        assert!(compare(&[0, 1], &expected, &tied).is_some());
    }
}
