//! The library under programs that know nothing of it.
//!
//! Programs of our own (`../programs`) do what POSIX describes and print what
//! they saw; programs of others (databases, an interpreter) do their work and
//! are asked whether the result is right. Each runs on glibc's locks and on
//! ours, and has to say the same.
//!
//! A test that needs a program that is not installed says so, and which
//! package brings it.

mod conformance;
// The packages are fetched for this architecture only.
#[cfg(target_arch = "x86_64")]
mod glibcs;
mod programs;
mod settings;
mod support;
