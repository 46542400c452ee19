//! Whether two answers are the same.
//!
//! Engines print numbers in their own way, and sum fractions in their own order: numbers
//! agree within [`RELATIVE`] of each other. The order of rows is left out of account,
//! since many queries give none to rows that are equal by it.
//!
//! Known weakness: of rows that are equal by the order, an engine may choose which are
//! beyond a LIMIT; such answers differ, and both are right.

use super::protocol::Answer;

/// How far numbers may be apart, as a part of the larger. DataFusion's averages of
/// decimals end after four more places than what they are of.
const RELATIVE: f64 = 1e-4;
/// The same where numbers are nearly zero.
const ABSOLUTE: f64 = 1e-4;

/// How an answer differs from another one; none if it does not, as far as both say.
pub(super) fn difference(expected: &Answer, found: &Answer) -> Option<String> {
    if expected.rows != found.rows {
        return Some(format!("{} rows instead of {}", found.rows, expected.rows));
    }
    let (Some(expected), Some(found)) = (&expected.cells, &found.cells) else {
        return None;
    };
    let mut left: Vec<&Vec<String>> = expected.iter().collect();
    for row in found {
        match left.iter().position(|other| agree(other, row)) {
            Some(at) => drop(left.swap_remove(at)),
            None => return Some(format!("no other answer has the row {}", row.join(" | "))),
        }
    }
    None
}

fn agree(one: &[String], other: &[String]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
}

fn same(one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    match (one.parse::<f64>(), other.parse::<f64>()) {
        (Ok(one), Ok(other)) => {
            (one - other).abs() <= ABSOLUTE.max(RELATIVE * one.abs().max(other.abs()))
        }
        // Times are written with a T or a blank; texts are padded or not.
        _ => one.replacen('T', " ", 1).trim_end() == other.replacen('T', " ", 1).trim_end(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(cells: &[&[&str]]) -> Answer {
        let row = |row: &&[&str]| row.iter().map(|cell| (*cell).to_owned()).collect();
        Answer {
            ms: 1.0,
            rows: cells.len() as u64,
            cells: Some(cells.iter().map(row).collect()),
        }
    }

    #[test]
    fn order_and_the_last_digits_do_not_count() {
        let one = answer(&[&["1", "a", "0.33333"], &["2", "", "2013-07-01T10:00:00"]]);
        let other = answer(&[&["2.0", "", "2013-07-01 10:00:00"], &["1", "a ", "0.33334"]]);
        assert_eq!(difference(&one, &other), None);
    }

    #[test]
    fn rows_and_cells_count() {
        let expected = answer(&[&["1", "a"], &["1", "a"]]);
        let said = |found: &[&[&str]]| difference(&expected, &answer(found)).unwrap();
        assert_eq!(said(&[&["1", "a"]]), "1 rows instead of 2");
        assert!(said(&[&["1", "a"], &["1", "b"]]).contains("1 | b"));
        assert!(said(&[&["1", "a"], &["1.001", "a"]]).contains("1.001"));
        assert!(said(&[&["1", "a"], &["1", ""]]).contains("1 | "));
        // Of a long answer only the length is known.
        let long = Answer {
            cells: None,
            ..answer(&[&["3", "c"], &["4", "d"]])
        };
        assert_eq!(difference(&expected, &long), None);
    }
}
