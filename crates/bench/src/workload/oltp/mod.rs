//! TPC-C and TPC-H's Q2 on engines that are called, not sent SQL.
//!
//! ```text
//!   tpcc::generate ─► Input ─┐
//!   tpcc::population ─► load ├─► transactions ─► access (trait) ─┬─ giveway-txn
//!                            │                                   ├─ SQLite in memory
//!                    check ──┘                                   ├─ redb
//!                                                                └─ sled
//! ```
//!
//! As in PreemptDB's evaluation (paper 001, Section 6.1), the benchmark calls the
//! engine's interface directly, without a parser, an optimizer or a network.

pub(crate) mod access;
mod bytes;
pub(crate) mod check;
pub(crate) mod giveway;
pub(crate) mod load;
pub(crate) mod q2;
pub(crate) mod redb;
pub(crate) mod sled;
pub(crate) mod sqlite;
#[cfg(test)]
mod tests;
pub(crate) mod transactions;
