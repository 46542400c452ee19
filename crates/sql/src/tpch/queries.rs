//! The 22 queries, with the parameters for which answers are known.
//!
//! `tpchgen` has their text with placeholders `:1`, `:2`, … and the answers at
//! scale factor 1. Here is what goes into the placeholders (Section 2.4.x.3 of
//! the specification, "query validation") and how many rows the application takes
//! (Section 2.1.2.9), which dialects write differently.

use tpchgen::q_and_a::{answers_sf1, queries};

use super::{Scale, TpchError};

/// The numbers of the queries.
pub const QUERIES: std::ops::RangeInclusive<usize> = 1..=22;

/// What stands for `:1`, `:2`, … in each query. The second of Q11 depends on the
/// scale factor.
const PARAMETERS: [&[&str]; 22] = [
    &["90"],
    &["15", "BRASS", "EUROPE"],
    &["BUILDING", "1995-03-15"],
    &["1993-07-01"],
    &["ASIA", "1994-01-01"],
    &["1994-01-01", "0.06", "24"],
    &["FRANCE", "GERMANY"],
    &["BRAZIL", "AMERICA", "ECONOMY ANODIZED STEEL"],
    &["green"],
    &["1993-10-01"],
    &["GERMANY"],
    &["MAIL", "SHIP", "1994-01-01"],
    &["special", "requests"],
    &["1995-09-01"],
    &["1996-01-01"],
    &[
        "Brand#45",
        "MEDIUM POLISHED",
        "49",
        "14",
        "23",
        "45",
        "19",
        "3",
        "36",
        "9",
    ],
    &["Brand#23", "MED BOX"],
    &["300"],
    &["Brand#12", "Brand#23", "Brand#34", "1", "10", "20"],
    &["forest", "1994-01-01", "CANADA"],
    &["SAUDI ARABIA"],
    &["13", "31", "23", "29", "30", "18", "17"],
];

/// Query `number`, as one statement without a semicolon.
pub fn query(number: usize, scale: Scale) -> Result<String, TpchError> {
    let template = i32::try_from(number)
        .ok()
        .and_then(queries::query)
        .ok_or(TpchError::Query(number))?;
    let mut text = match number {
        15 => view_as_with(template),
        // The precision of an interval says nothing about its value.
        1 => template.replace("day (3)", "day"),
        _ => template.to_owned(),
    };
    if number == 11 {
        text = text.replace(":2", &format!("{:.10}", 0.0001 / scale.get()));
    }
    // From the last one: `:1` begins `:10`.
    for (index, value) in PARAMETERS[number - 1].iter().enumerate().rev() {
        text = text.replace(&format!(":{}", index + 1), value);
    }
    let text = text.trim().trim_end_matches(';');
    Ok(match rows_taken(number) {
        Some(rows) => format!("{text}\nlimit {rows}"),
        None => text.to_owned(),
    })
}

/// Where `tpchgen`'s copy of the answers differs from the specification (Section
/// 2.4.17.4): the query, what the copy says, what it should.
const MISPRINT: (usize, &str, &str) = (17, "348406.02", "348406.05");

/// The answer at scale factor 1: a line of column names, then one per row, with
/// columns separated by `|` and padded with blanks. Of Q11's keys, which have up to six
/// digits, it has the first four of six places.
pub fn answer(number: usize) -> Result<String, TpchError> {
    let text = i32::try_from(number).ok().and_then(answers_sf1::answer);
    let text = text.ok_or(TpchError::Query(number))?;
    let (query, wrong, right) = MISPRINT;
    Ok(match number == query {
        true => text.replace(wrong, right),
        false => text.to_owned(),
    })
}

/// How many rows the application fetches; `None`: all.
fn rows_taken(number: usize) -> Option<u32> {
    match number {
        2 | 18 | 21 => Some(100),
        3 => Some(10),
        10 => Some(20),
        _ => None,
    }
}

/// Q15 makes a view, asks, and drops it. The specification allows a common table
/// expression in its place (Section 2.4.15, variant A), which is one statement.
fn view_as_with(template: &str) -> String {
    let (view, rest) = template
        .split_once(';')
        .expect("Q15 begins with a view definition");
    let (ask, _drop) = rest.split_once(';').expect("Q15 ends with a drop");
    let view = view.replacen(
        "create view revenue:s (supplier_no, total_revenue) as",
        "",
        1,
    );
    let with = format!("with revenue (supplier_no, total_revenue) as (\n{view}\n)");
    format!("{with}\n{}", ask.trim()).replace("revenue:s", "revenue")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_is_filled() {
        let scale = Scale::new(1.0).unwrap();
        for number in QUERIES {
            let text = query(number, scale).unwrap();
            assert!(!text.contains(':'), "Q{number}: {text}");
            assert!(!text.contains(';'), "Q{number}: {text}");
            assert!(answer(number).unwrap().contains('|') || number != 1);
        }
        assert!(
            query(16, scale)
                .unwrap()
                .contains("(49, 14, 23, 45, 19, 3, 36, 9)")
        );
    }

    #[test]
    fn a_fraction_of_the_stock_shrinks_with_the_scale() {
        let fraction = |factor| query(11, Scale::new(factor).unwrap()).unwrap();
        assert!(fraction(1.0).contains("* 0.0001000000"));
        assert!(fraction(0.01).contains("* 0.0100000000"));
        assert!(fraction(100.0).contains("* 0.0000010000"));
    }

    #[test]
    fn the_misprint_is_mended() {
        let (number, wrong, right) = MISPRINT;
        let answer = answer(number).unwrap();
        assert!(answer.contains(right) && !answer.contains(wrong));
    }

    #[test]
    fn there_are_22() {
        let scale = Scale::new(1.0).unwrap();
        for wrong in [0, 23, usize::MAX] {
            assert!(query(wrong, scale).is_err() && answer(wrong).is_err());
        }
    }
}
