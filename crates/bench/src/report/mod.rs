//! From rows to something a person reads.
#[cfg(test)]
pub(crate) mod samples;
pub mod html;
pub mod table;
