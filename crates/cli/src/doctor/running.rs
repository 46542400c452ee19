//! The running kernel: its release and its configuration. Files are read below a root
//! directory, as in `probes`.

use std::fs;
use std::path::Path;
use std::process::Command;

/// A file without white space around it.
pub(super) fn text(root: &Path, path: &str) -> Option<String> {
    Some(fs::read_to_string(root.join(path)).ok()?.trim().to_owned())
}

/// The release, such as `7.2.13+deb14-amd64`.
pub(super) fn release(root: &Path) -> String {
    text(root, "proc/sys/kernel/osrelease").unwrap_or_else(|| "of unknown version".into())
}

/// Major and minor version of a kernel release such as `7.2.13+deb14-amd64`.
pub(super) fn version(release: &str) -> Option<(u64, u64)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The third number of a kernel release; 0 if it has none, as a release candidate.
pub(super) fn patch(release: &str) -> u64 {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    parts.nth(2).and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// The kernel's configuration, where distributions leave it.
pub(super) fn config(root: &Path) -> Option<String> {
    let release = release(root);
    [
        format!("boot/config-{release}"),
        format!("usr/lib/modules/{release}/config"),
        format!("lib/modules/{release}/config"),
    ]
    .iter()
    .find_map(|path| fs::read_to_string(root.join(path)).ok())
    .or_else(|| {
        let packed = root.join("proc/config.gz");
        let output = Command::new("gzip").arg("-dc").arg(packed).output().ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    })
}
