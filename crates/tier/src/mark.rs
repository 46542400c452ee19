//! A tier as a mark on a cgroup: an extended attribute of its directory.
//!
//! A cgroup's name gives it its tier. Where others choose the names, as the kubelet
//! does for pods, root marks the directory instead; the mark counts for the cgroup
//! and, unless they have names or marks of their own, for those below it. It lasts
//! as long as the cgroup, and does nothing where no UFS heeds it.
//!
//! A name that puts a cgroup above its parent counts only where root has chosen it
//! ([`named_by_root`]).
//!
//! Attributes of the class `trusted` are read and written with `CAP_SYS_ADMIN` in
//! the machine's own user namespace only (xattr(7)), whoever owns the directory. So
//! neither a user with a delegated part of the hierarchy nor root in a container can
//! raise a tier by one.

use std::ffi::{CStr, CString};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::Tier;

/// The attribute's name; its value is the tier's.
pub const ATTRIBUTE: &CStr = c"trusted.giveway.tier";

/// The tier that the cgroup whose directory is `dir` is marked with.
///
/// # Errors
/// Those of getxattr(2), but for a mark that is not there. `InvalidData` if the
/// attribute is no tier's name.
pub fn read(dir: &Path) -> io::Result<Option<Tier>> {
    let path = CString::new(dir.as_os_str().as_bytes())?;
    let mut text = [0_u8; 64];
    // SAFETY: two strings that end in 0, and a buffer of the length given.
    let length = unsafe {
        libc::getxattr(
            path.as_ptr(),
            ATTRIBUTE.as_ptr(),
            text.as_mut_ptr().cast(),
            text.len(),
        )
    };
    let Ok(length) = usize::try_from(length) else {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            // None, or none possible in this file system.
            Some(libc::ENODATA | libc::EOPNOTSUPP) => Ok(None),
            _ => Err(error),
        };
    };
    let text = String::from_utf8_lossy(&text[..length]);
    let tier = text.trim_end_matches(['\0', '\n']).parse();
    tier.map(Some)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Marks the cgroup whose directory is `dir`, or takes its mark away.
///
/// # Errors
/// Those of setxattr(2) and removexattr(2), but for a mark that is gone already.
pub fn write(dir: &Path, tier: Option<Tier>) -> io::Result<()> {
    let path = CString::new(dir.as_os_str().as_bytes())?;
    let failed = match tier {
        Some(tier) => {
            let name = tier.name();
            // SAFETY: two strings that end in 0, and a buffer of the length given.
            unsafe {
                libc::setxattr(
                    path.as_ptr(),
                    ATTRIBUTE.as_ptr(),
                    name.as_ptr().cast(),
                    name.len(),
                    0,
                )
            }
        }
        // SAFETY: two strings that end in 0.
        None => unsafe { libc::removexattr(path.as_ptr(), ATTRIBUTE.as_ptr()) },
    } != 0;
    if !failed {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match (tier, error.raw_os_error()) {
        (None, Some(libc::ENODATA)) => Ok(()),
        _ => Err(error),
    }
}

/// Whether root has given the cgroup whose directory is `dir` its name: the directory
/// is root's, or is in one where no other user can make any. False if it is gone.
pub fn named_by_root(dir: &Path) -> bool {
    let about = |dir: &Path| fs::metadata(dir).ok().map(|about| Access::of(&about));
    let above = dir.parent().and_then(about);
    about(dir).is_some_and(|own| own.names(above))
}

/// A directory's owner, and whether others may make directories in it.
#[derive(Clone, Copy)]
struct Access {
    uid: u32,
    mode: u32,
}

impl Access {
    fn of(about: &Metadata) -> Self {
        Access {
            uid: about.uid(),
            mode: about.mode(),
        }
    }

    /// Whether root has named this one, which is in `above`.
    fn names(self, above: Option<Access>) -> bool {
        let closed = |above: Access| above.uid == 0 && above.mode & 0o022 == 0;
        self.uid == 0 || above.is_some_and(closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_trusted_only_where_root_alone_can_create_directories() {
        let names = |own: u32, above: Option<(u32, u32)>| {
            let above = above.map(|(uid, mode)| Access { uid, mode });
            Access {
                uid: own,
                mode: 0o755,
            }
            .names(above)
        };
        assert!(names(0, Some((1000, 0o755))));
        // A service manager gives its user the cgroup that it has made for him.
        assert!(names(1000, Some((0, 0o40755))));
        assert!(!names(1000, Some((1000, 0o755))));
        assert!(!names(1000, Some((0, 0o40775))));
        assert!(!names(1000, Some((0, 0o40757))));
        assert!(!names(1000, None));
    }

    #[test]
    fn a_directory_that_is_gone_has_no_name() {
        assert!(!named_by_root(Path::new("/proc/no/such/cgroup")));
        // In a container without a root of the machine nothing is root's.
        let is_root_s = fs::metadata("/").unwrap().uid() == 0;
        assert_eq!(named_by_root(Path::new("/etc")), is_root_s);
    }
}
