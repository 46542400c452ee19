//! A directory whose files are a test's: it stands between the log and each of them.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use giveway_txn::{Directory, Disk, DiskFile};

/// A directory of which each file that is written goes through a function first. The
/// function gets its name, where writing begins, and the file.
pub(crate) struct Wrapped<F>(Directory, F);

impl<F> Wrapped<F>
where
    F: Fn(&str, u64, Box<dyn DiskFile>) -> Box<dyn DiskFile> + Send + Sync + 'static,
{
    pub(crate) fn open(path: &Path, wrap: F) -> Arc<Self> {
        Arc::new(Wrapped(Directory::open(path).unwrap(), wrap))
    }
}

impl<F> fmt::Debug for Wrapped<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<F> Disk for Wrapped<F>
where
    F: Fn(&str, u64, Box<dyn DiskFile>) -> Box<dyn DiskFile> + Send + Sync + 'static,
{
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok((self.1)(name, 0, self.0.create(name)?))
    }

    fn overwrite(&self, name: &str, from: u64, end: u64) -> io::Result<Box<dyn DiskFile>> {
        Ok((self.1)(name, from, self.0.overwrite(name, from, end)?))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.0.read(name)
    }

    fn stream(&self, name: &str) -> io::Result<Box<dyn io::Read + Send>> {
        self.0.stream(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        self.0.names()
    }

    fn sync_names(&self) -> io::Result<()> {
        self.0.sync_names()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.0.free_bytes()
    }

    fn describe(&self, name: &str) -> String {
        self.0.describe(name)
    }
}
