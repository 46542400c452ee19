//! What is run in experiments with a database: servers, data, transactions, background
//! jobs.

pub mod background;
pub mod dataset;
pub(crate) mod network;
#[cfg(feature = "engines")]
pub(crate) mod oltp;
pub mod postgres;
#[cfg(feature = "sql")]
pub(crate) mod rows;
pub mod tpcc;
