//! What all other parts are made of: errors, files, numbers, and where something was
//! measured.

pub(crate) mod environment;
pub mod error;
pub(crate) mod figure;
pub(crate) mod files;
pub(crate) mod number;
pub(crate) mod scheduler;
pub(crate) mod words;

/// Called with one short line for each step that takes a while.
pub type Progress<'a> = &'a mut dyn FnMut(&str);
