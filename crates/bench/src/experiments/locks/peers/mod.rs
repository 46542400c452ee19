//! The locks that are compared, by name.

mod cfl;
mod library;
mod pthread;
mod queue;
mod rust;
mod spin;
mod ticket;
mod uscl;

use std::path::PathBuf;
use std::str::FromStr;

use super::kind::{Kind, Traits};
use crate::harness::error::{Error, Result};

/// `NAME=PATH`: a lock from a shared library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryLock {
    /// The name in results.
    pub name: String,
    /// The library's file.
    pub path: PathBuf,
}

impl FromStr for LibraryLock {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.split_once('=') {
            Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok(LibraryLock {
                name: name.to_owned(),
                path: path.into(),
            }),
            _ => Err("write NAME=PATH, such as shfllock=./libshfllock.so".to_owned()),
        }
    }
}

/// Every lock that needs no library, in the order of tables.
fn known() -> Vec<Kind> {
    let mut kinds = cfl::kinds();
    kinds.extend([
        Kind::new("u-scl", "scheduler-cooperative mutex", || {
            Ok(uscl::Uscl::default())
        })
        .with(Traits {
            fair: true,
            weighted: true,
            ..Traits::default()
        }),
        Kind::new("pthread", "the C library's mutex", pthread::Pthread::plain),
        Kind::new(
            "pthread-pi",
            "it, with priority inheritance",
            pthread::Pthread::inheriting,
        ),
        Kind::new(
            "std",
            "Rust's std::sync::Mutex",
            || Ok(rust::Std::default()),
        ),
        Kind::new("parking_lot-0.12", "parking_lot, eventually fair", || {
            Ok(rust::ParkingLot12::default())
        }),
        Kind::new("parking_lot-0.13", "parking_lot, as of 2026-10", || {
            use lock_api::RawMutex as _;
            Ok(rust::Raw::new(parking_lot_013::RawMutex::INIT))
        }),
        Kind::new("ticket", "first come, first served; spins", || {
            Ok(ticket::Ticket::default())
        }),
        Kind::new("mcs", "queue, first come, first served; spins", || {
            Ok(queue::Queue::<queue::Spin>::default())
        }),
        Kind::new("fifo", "the same queue; spins, then sleeps", || {
            Ok(queue::Queue::<queue::SpinThenPark>::default())
        }),
        Kind::new("none", "no lock: what the loop costs", || Ok(rust::Nothing)).with(Traits {
            baseline: true,
            ..Traits::default()
        }),
    ]);
    kinds
}

/// Name and description of every lock.
pub fn locks() -> Vec<(String, &'static str)> {
    known()
        .into_iter()
        .map(|kind| (kind.name, kind.about))
        .collect()
}

/// The locks of these names; all if there are none. Libraries are always in.
///
/// # Errors
/// A name that is not known, with those that are; a library that is none.
pub(crate) fn chosen(names: &[String], libraries: &[LibraryLock]) -> Result<Vec<Kind>> {
    let mut kinds = known();
    for library in libraries {
        if kinds.iter().any(|kind| kind.name == library.name) {
            return Err(Error::Config(format!(
                "there is a lock '{}' already: name the library's otherwise",
                library.name
            )));
        }
        kinds.push(library::kind(&library.name, &library.path)?);
    }
    let known: Vec<String> = kinds.iter().map(|kind| kind.name.clone()).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(name)) {
        return Err(Error::Config(format!(
            "no lock is called '{name}': choose among {}",
            known.join(", ")
        )));
    }
    let is_library = |name: &str| libraries.iter().any(|library| library.name == name);
    if !names.is_empty() {
        kinds.retain(|kind| names.contains(&kind.name) || is_library(&kind.name));
    }
    Ok(kinds)
}

#[cfg(test)]
mod tests;
