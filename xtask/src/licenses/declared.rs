//! What a file or a package declares as its licence, and whether one covers another.

use std::path::{Path, PathBuf};

use spdx::{Expression, LicenseReq};

pub(super) const TAG: &str = "SPDX-License-Identifier:";
/// The line stands among the first lines of a file, this many.
pub(super) const LINES: usize = 5;
/// What is in no package.
const OTHERS: &str = "MIT OR Apache-2.0";

/// Directories and the licence that is declared for each.
pub(super) type Owners = Vec<(PathBuf, String)>;

pub(super) fn licence_around<'a>(owners: &'a Owners, path: &Path) -> &'a str {
    let found = owners.iter().find(|(dir, _)| path.starts_with(dir));
    found.map_or(OTHERS, |(_, licence)| licence)
}

/// The directory of a file's package; the top of the tree if it is in none.
pub(super) fn dir_around<'a>(owners: &'a Owners, path: &Path) -> &'a Path {
    let found = owners.iter().find(|(dir, _)| path.starts_with(dir));
    found.map_or(Path::new(""), |(dir, _)| dir)
}

/// What a file says of its licence.
pub(super) fn said(text: &str) -> Option<&str> {
    let mut lines = text.lines().take(LINES);
    let (_, licence) = lines.find_map(|line| line.split_once(TAG))?;
    let licence = licence.trim();
    Some(licence.strip_suffix("*/").unwrap_or(licence).trim())
}

/// Whether a package with the licence `around` may embed what has another one. A package
/// that is under the GPL alone may embed what can be had under MIT, which asks for
/// nothing that the GPL forbids. What cannot be read is complained about elsewhere.
pub(super) fn is_covered(around: &str, part: &str) -> bool {
    let is_gpl = terms(around).iter().all(|term| term.starts_with("GPL-"));
    let around = match is_gpl {
        true => format!("({around}) AND MIT"),
        false => around.to_owned(),
    };
    match (Expression::parse(&around), Expression::parse(part)) {
        (Ok(around), Ok(part)) => covers(&around, &part),
        _ => true,
    }
}

/// Whether every choice of licences that satisfies `whole` satisfies `part`.
pub(super) fn covers(whole: &Expression, part: &Expression) -> bool {
    let terms: Vec<&LicenseReq> = whole.requirements().map(|term| &term.req).collect();
    (0..1_u32 << terms.len()).all(|choice| {
        let taken = |asked: &LicenseReq| {
            let mut each = (0..).zip(&terms);
            each.any(|(bit, term)| choice >> bit & 1 == 1 && *term == asked)
        };
        !whole.evaluate(taken) || part.evaluate(taken)
    })
}

/// The names of the licences in an expression; none if it cannot be read.
pub(super) fn terms(licence: &str) -> Vec<String> {
    let expression = Expression::parse(licence);
    let terms = expression.iter().flat_map(Expression::requirements);
    terms.map(|term| term.req.to_string()).collect()
}
