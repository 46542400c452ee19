//! Where a program is: beside the one that runs, or in PATH.
//!
//! Beside comes first, so that programs that were built or installed together find
//! each other and not those of an older installation.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

/// The file of the program `name`, if there is one that this user may run.
pub fn find(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    find_in(own.parent()?, std::env::var_os("PATH"), name)
}

fn find_in(beside: &Path, path: Option<OsString>, name: &str) -> Option<PathBuf> {
    let path = path.unwrap_or_default();
    [beside.to_owned()]
        .into_iter()
        .chain(std::env::split_paths(&path))
        .map(|dir| dir.join(name))
        .find(|file| file.is_file() && access(file, AccessFlags::X_OK).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    fn program(dir: &Path, name: &str, mode: u32) {
        fs::write(dir.join(name), "").unwrap();
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_program_beside_this_one_comes_before_one_in_path() {
        let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let [beside, first, second] = dirs.each_ref().map(|dir| dir.path());
        let path = std::env::join_paths([first, second]).unwrap();
        let found = |name| find_in(beside, Some(path.clone()), name);
        assert_eq!(found("x"), None);
        program(second, "x", 0o755);
        assert_eq!(found("x"), Some(second.join("x")));
        // A file that cannot be run is no program.
        program(first, "x", 0o644);
        assert_eq!(found("x"), Some(second.join("x")));
        program(beside, "x", 0o755);
        assert_eq!(found("x"), Some(beside.join("x")));
        assert_eq!(find_in(first, None, "x"), None);
    }
}
