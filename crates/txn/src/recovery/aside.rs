//! Files that are damaged are kept under other names.

use crate::log::{Disk, DurabilityError};

/// The name of what is set aside.
pub(super) const DAMAGED: &str = ".damaged";

/// Keeps a file that is damaged, under another name; as which. The next checkpoint would
/// take it for one of those that can stand in, and remove one that is whole.
pub(super) fn set_aside(disk: &dyn Disk, name: &str) -> Result<String, DurabilityError> {
    let aside = format!("{name}{DAMAGED}");
    let renamed = disk.rename(name, &aside);
    renamed.map_err(DurabilityError::io("renaming", disk.describe(name)))?;
    let named = disk.sync_names();
    named.map_err(DurabilityError::io("syncing", disk.describe("")))?;
    Ok(disk.describe(&aside))
}
