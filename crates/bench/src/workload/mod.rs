//! What is run in experiments with a database: servers, data, transactions, background
//! jobs.

pub mod background;
pub mod dataset;
pub(crate) mod network;
#[cfg(feature = "engines")]
pub(crate) mod oltp;
pub mod postgres;
pub mod tpcc;
