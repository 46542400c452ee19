//! From rows to what a person reads: a table for the terminal, a page with
//! plots, and one sentence. All of them are functions of a
//! [`crate::result::Report`] and of nothing else.

pub mod html;
mod plots;
#[cfg(test)]
pub(crate) mod samples;
mod sentence;
mod stats;
pub mod table;

pub use sentence::sentence;
