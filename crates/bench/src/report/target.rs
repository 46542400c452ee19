//! What was wanted, beside what was measured.

/// One target.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Target {
    pub(super) what: String,
    pub(super) bound: &'static str,
    pub(super) measured: String,
    pub(super) met: bool,
}
