//! TPC-C as a closed loop of terminals without think time, in the shape that
//! BenchBase gives it, since that is what the paper measures with (Section 6).
//!
//! Each statement is a prepared round trip of its own; `BEGIN` travels with the
//! first one, as with the JDBC driver; order lines and stock updates of a new
//! order are one batch, as in BenchBase. Transactions run under REPEATABLE
//! READ, which is enough for TPC-C to be serializable (Fekete et al., "Making
//! Snapshot Isolation Serializable", 2005) and costs no predicate locks. Each
//! terminal has a home warehouse.
//!
//! * [`generate`]: the specification's random values and a terminal's inputs;
//! * [`row`], `population`: the tables as types, and their first rows;
//! * `statements`: the SQL, prepared once per terminal;
//! * `transactions`: the five transactions;
//! * [`terminal`]: the loop, retries, and what is recorded;
//! * [`check`]: consistency conditions 3.3.2.1 to 3.3.2.4;
//! * [`number`]: exact decimals on the wire.
//!
//! References to clauses are to the TPC-C specification, revision 5.11.

pub mod check;
pub mod generate;
pub mod number;
pub(crate) mod population;
pub mod row;
mod statements;
pub mod terminal;
mod transactions;
