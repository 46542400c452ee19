//! Files that other processes may read at any moment: they see the old content or
//! the new one, never a part.

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};

/// Writes `bytes` beside `path` and renames them into place. Readers see the
/// old file or the new one.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    fs::write(&beside, bytes).map_err(Error::file("write", Path::new(&beside)))?;
    fs::rename(&beside, path).map_err(Error::file("write", path))
}
