//! TPC-C beside TPC-H Q17 on the same CPUs (UFS paper, Sections 3, 6.1 and 6.2).

pub(crate) mod cli;
pub(crate) mod plan;
pub(crate) mod report;
