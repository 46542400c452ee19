//! The server's memory: buffers that hold all data, in huge pages.
//!
//! With small pages every backend takes a page fault at its first touch of each
//! of the hundred thousand pages of shared memory; in a window of seconds that
//! is most of a transaction's time, and it fades as the run goes on. Huge pages
//! are what production servers use, and leave a few hundred faults.
//!
//! The pages are reserved for the time of the cell. Where the kernel cannot
//! find enough of them (memory is fragmented or short), the cell runs without,
//! and its row says so.

use std::fs;
use std::path::Path;

use crate::harness::error::{Error, Result};
use crate::workload::postgres::Installation;

const RESERVED: &str = "/proc/sys/vm/nr_hugepages";
const MIB: u64 = 1024 * 1024;

/// Huge pages reserved for a server; given back when dropped.
#[derive(Debug)]
pub(super) struct HugePages {
    before: u64,
}

impl HugePages {
    /// Reserves what a server with these settings needs; none when the kernel
    /// has not enough.
    pub(super) fn reserve(
        postgres: &Installation,
        data: &Path,
        settings: &[(&str, String)],
    ) -> Result<Option<Self>> {
        let Some(before) = read_reserved() else {
            return Ok(None);
        };
        let needed = needed(postgres, data, settings)?;
        let this = HugePages { before };
        let granted = fs::write(RESERVED, (before + needed).to_string()).is_ok()
            && read_reserved().is_some_and(|now| now >= before + needed);
        // Otherwise the drop gives back what was found.
        Ok(granted.then_some(this))
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // What cannot be given back stays reserved; nothing else can be done.
        let _ = fs::write(RESERVED, self.before.to_string());
    }
}

fn read_reserved() -> Option<u64> {
    fs::read_to_string(RESERVED).ok()?.trim().parse().ok()
}

/// How many huge pages the server says it needs.
fn needed(postgres: &Installation, data: &Path, settings: &[(&str, String)]) -> Result<u64> {
    let data = data.to_string_lossy();
    let settings: Vec<String> = settings
        .iter()
        .map(|(name, value)| format!("--{name}={value}"))
        .collect();
    let mut arguments = vec!["-D", &data, "-C", "shared_memory_size_in_huge_pages"];
    arguments.extend(settings.iter().map(String::as_str));
    let text = postgres.run("postgres", &arguments)?;
    text.trim().parse().map_err(|_| {
        Error::Config(format!(
            "PostgreSQL does not know how many huge pages it needs: '{text}'"
        ))
    })
}

/// Buffers for all of the data and what a run adds to it, in MiB.
pub(super) fn buffers_mib(data: &Path) -> Result<u64> {
    let bytes = size(&data.join("base"))?;
    Ok(64 + bytes / MIB * 5 / 4)
}

/// Bytes of all files below a directory.
fn size(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir).map_err(Error::file("list", dir))? {
        let entry = entry.map_err(Error::file("list", dir))?;
        let metadata = entry
            .metadata()
            .map_err(Error::file("read", &entry.path()))?;
        bytes += if metadata.is_dir() {
            size(&entry.path())?
        } else {
            metadata.len()
        };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_hold_the_data_and_a_quarter_more() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("base/1")).unwrap();
        let file = fs::File::create(dir.path().join("base/1/2")).unwrap();
        file.set_len(400 * MIB).unwrap();
        assert_eq!(buffers_mib(dir.path()).unwrap(), 64 + 500);
    }
}
