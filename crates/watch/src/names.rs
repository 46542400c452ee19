//! What a thread is called.
//!
//! PostgreSQL writes what a backend is into its command line ("postgres: app shop
//! \[local\] SELECT"), which says more than the name of the program. Other programs
//! name their threads.

use std::fs;
use std::path::Path;

/// The title of thread `tid` as the files below `proc` have it; none if it is
/// gone. Control characters are left out: a title is any program's own choice.
pub fn title(proc: &Path, tid: u32) -> Option<String> {
    let dir = proc.join(tid.to_string());
    let line = fs::read(dir.join("cmdline")).unwrap_or_default();
    let first = line.split(|&byte| byte == 0).next().unwrap_or_default();
    let title = match first.starts_with(b"postgres: ") {
        true => String::from_utf8_lossy(first).into_owned(),
        false => fs::read_to_string(dir.join("comm")).ok()?,
    };
    let printable: String = title.chars().filter(|c| !c.is_control()).collect();
    Some(printable.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_has_its_title_and_others_have_their_name() {
        let proc = tempfile::tempdir().unwrap();
        let thread = |tid: u32, cmdline: &[u8], comm: &str| {
            let dir = proc.path().join(tid.to_string());
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("cmdline"), cmdline).unwrap();
            fs::write(dir.join("comm"), comm).unwrap();
        };
        thread(7, b"postgres: app shop [local] idle\0\0\0", "postgres\n");
        thread(8, b"/usr/bin/train\0--fast\0", "wor\u{1b}ker\n");
        let name = |tid| title(proc.path(), tid);
        assert_eq!(name(7).as_deref(), Some("postgres: app shop [local] idle"));
        assert_eq!(name(8).as_deref(), Some("worker"));
        assert_eq!(name(9), None);
    }
}
