//! What a paper has, beside what was measured.
//!
//! A paper's numbers are of its machine: what is compared here are ratios of
//! numbers of one machine, and shapes. Where a paper gives no number, only which
//! way it goes, its side is words.

use serde::Serialize;

use crate::harness::number::short;

/// A number of a paper beside ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Figure {
    /// What it is of.
    pub what: String,
    /// Where the paper has it.
    pub place: &'static str,
    /// What the paper has.
    pub paper: &'static str,
    /// What was measured; infinite if it never ended; none where the rows that it
    /// takes are missing.
    pub measured: Option<f64>,
    /// What follows the number.
    pub unit: &'static str,
}

impl Figure {
    /// A ratio, which has no unit.
    pub(crate) fn ratio(
        what: impl Into<String>,
        place: &'static str,
        paper: &'static str,
        measured: Option<f64>,
    ) -> Self {
        Figure {
            what: what.into(),
            place,
            paper,
            measured: measured.filter(|measured| !measured.is_nan()),
            unit: "",
        }
    }

    /// The same with a unit.
    pub(crate) fn unit(self, unit: &'static str) -> Self {
        Figure { unit, ..self }
    }

    /// What was measured, as it is printed.
    pub(crate) fn text(&self) -> String {
        match self.measured {
            Some(measured) if measured.is_infinite() => "endless".to_owned(),
            Some(measured) => format!("{}{}", short(measured), self.unit),
            None => "-".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_number_was_not_measured() {
        let text = |measured| {
            Figure::ratio("x", "Figure 1", "2", measured)
                .unit(" %")
                .text()
        };
        assert_eq!(text(Some(0.5)), "0.50 %");
        assert_eq!([text(None), text(Some(f64::NAN))], ["-", "-"]);
        assert_eq!(text(Some(f64::INFINITY)), "endless");
    }
}
