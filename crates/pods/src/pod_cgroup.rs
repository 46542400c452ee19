//! The cgroups of pods.
//!
//! The kubelet makes one for each pod, by one of two drivers, below a cgroup of its
//! choice (`--cgroup-root`), with the pod's UID in its name:
//!
//! ```text
//! systemd   kubepods.slice/kubepods-burstable.slice/
//!               kubepods-burstable-pod5c4f9c0e_1b8a_….slice    '-' would be a level
//! cgroupfs  kubepods/burstable/pod5c4f9c0e-1b8a-…
//! ```
//!
//! Guaranteed pods have no `burstable` or `besteffort` in it, and kind puts
//! `kubelet-` before each. Static pods' UIDs are 32 digits without a dash.
//!
//! A user with a delegated part of the hierarchy could make a `kubepods/podUID` in it,
//! with the UID of a pod that has more rights: only names that root has chosen count.

use std::path::{Path, PathBuf};

use giveway_machine::cgroup::Cgroup;

/// Every pod's UID, with the directory of its cgroup, below `top`. `by_root` says
/// whether root has named a directory ([`giveway_tier::mark::named_by_root`]).
pub fn pods(top: &Path, by_root: &dyn Fn(&Path) -> bool) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    let mut waiting = vec![(top.to_path_buf(), false)];
    while let Some((dir, inside)) = waiting.pop() {
        for path in Cgroup::at(dir).children() {
            if !by_root(&path) {
                continue;
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let inside = inside || name.contains("kubepods");
            match uid(&name).filter(|_| inside) {
                // Below are the pod's own.
                Some(uid) => found.push((uid, path)),
                None => waiting.push((path, inside)),
            }
        }
    }
    found.sort();
    found
}

/// The UID in the name of a pod's cgroup.
fn uid(name: &str) -> Option<String> {
    let name = name.strip_suffix(".slice").unwrap_or(name);
    let uid = match name.rsplit_once("-pod") {
        Some((before, uid)) if before.contains("kubepods") => uid,
        _ => name.strip_prefix("pod")?,
    };
    let uid = uid.replace('_', "-");
    let is_uid = |c: char| c.is_ascii_hexdigit() || c == '-';
    let digits = uid.chars().filter(char::is_ascii_hexdigit).count();
    (digits == 32 && uid.chars().all(is_uid)).then_some(uid)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const UID: &str = "5c4f9c0e-1b8a-4d3e-9f00-0123456789ab";
    const STATIC: &str = "0123456789abcdef0123456789abcdef";

    fn made(names: &[&str]) -> Vec<String> {
        let top = tempfile::tempdir().unwrap();
        for name in names {
            fs::create_dir_all(top.path().join(name)).unwrap();
        }
        let pods = pods(top.path(), &|dir| !dir.ends_with("user"));
        pods.into_iter().map(|(uid, _)| uid).collect()
    }

    #[test]
    fn both_drivers_names_are_read() {
        for name in [
            "kubepods.slice/kubepods-pod5c4f9c0e_1b8a_4d3e_9f00_0123456789ab.slice",
            "kubepods.slice/kubepods-burstable.slice/\
             kubepods-burstable-pod5c4f9c0e_1b8a_4d3e_9f00_0123456789ab.slice/cri-x.scope",
            "kubelet.slice/kubelet-kubepods.slice/\
             kubelet-kubepods-pod5c4f9c0e_1b8a_4d3e_9f00_0123456789ab.slice",
            "kubepods/besteffort/pod5c4f9c0e-1b8a-4d3e-9f00-0123456789ab/x",
        ] {
            assert_eq!(made(&[name]), [UID], "{name}");
        }
        let name = format!("kubepods/pod{STATIC}");
        assert_eq!(made(&[&name]), [STATIC]);
    }

    #[test]
    fn what_only_looks_like_a_pod_is_none() {
        // One made by a user in a delegated part of the hierarchy.
        let pretended = format!("user/kubepods/pod{UID}");
        assert_eq!(made(&[&pretended]), [""; 0]);
        let elsewhere = format!("system.slice/pod{UID}");
        let inside = format!("kubepods/pod{STATIC}/pod{UID}");
        assert_eq!(
            made(&[&elsewhere, "kubepods/pod", "kubepods/podium"]),
            [""; 0]
        );
        assert_eq!(made(&[&inside]), [STATIC]);
    }
}
