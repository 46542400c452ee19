//! How a report looks, whatever it is about: plots on a canvas, pages, lists of targets.

pub(crate) mod canvas;
pub(crate) mod page;
pub(crate) mod target;
