//! Waits for the kernel's locks, by cgroup, added to what UFS says.
//!
//! A kernel with CFL counts in `lock.stat` of each cgroup that has the controller `lock` for
//! how long threads in it and below it have waited for the locks that take part
//! (docs/design/cfl-kernel.md):
//!
//! ```text
//! MOUNT                      no lock.stat at the top
//! ├ system.slice/lock.stat     wait_ns 1250
//! │ └ web                      none: system.slice does not hand the controller down
//! └ background.slice/lock.stat wait_ns 98000
//! ```
//!
//! A cgroup has the file only if all above it but the top have it, so a walk ends at those
//! without. UFS's number of a cgroup is that of its directory.
//!
//! Known weaknesses: waits that go on are not in it, nor those that a signal ended. UFS
//! knows only cgroups that have the cpu controller: waits in others are in their parents'.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::DirEntryExt as _;
use std::path::{Path, PathBuf};

use crate::sample::Sample;
use crate::source::{Source, SourceError};

/// Samples of another source, with waits for locks in them.
#[derive(Clone, Debug)]
pub struct WithLocks<S> {
    source: S,
    mount: Option<PathBuf>,
}

impl<S> WithLocks<S> {
    /// Adds what the hierarchy at `mount` counts; nothing without one.
    pub fn new(source: S, mount: Option<PathBuf>) -> Self {
        Self { source, mount }
    }
}

impl<S: Source> Source for WithLocks<S> {
    fn sample(&mut self) -> Result<Sample, SourceError> {
        let mut sample = self.source.sample()?;
        if let Some(mount) = &self.mount {
            add(&mut sample, mount);
        }
        Ok(sample)
    }
}

fn add(sample: &mut Sample, mount: &Path) {
    let mut waiting = VecDeque::from([mount.to_path_buf()]);
    while let Some(dir) = waiting.pop_front() {
        // It may have ended since it was seen.
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let Ok(text) = fs::read_to_string(entry.path().join("lock.stat")) else {
                continue;
            };
            if let Some(cgroup) = sample.cgroups.get_mut(&entry.ino()) {
                cgroup.lock_wait_ns = wait_ns(&text);
            }
            waiting.push_back(entry.path());
        }
    }
}

/// The time waited, in the text of a `lock.stat`.
fn wait_ns(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let number = lines.find_map(|line| line.strip_prefix("wait_ns "))?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::sample::CgroupSample;

    struct Known(Vec<u64>);

    impl Source for Known {
        fn sample(&mut self) -> Result<Sample, SourceError> {
            let cgroups = self.0.iter().map(|&id| (id, CgroupSample::default()));
            Ok(Sample {
                cgroups: cgroups.collect(),
                ..Sample::default()
            })
        }
    }

    #[test]
    fn cgroups_have_the_waits_that_their_files_say() {
        let mount = tempfile::tempdir().unwrap();
        let stat =
            |wait: &str| format!("acquisitions 7\ncontended 3\n{wait}\nhold_ns 90\nvlht_ns 90\n");
        let cgroups = [
            ("", None, None),
            ("system.slice", Some("wait_ns 1250"), Some(1250)),
            ("system.slice/web", Some("wait_ns 1200"), Some(1200)),
            ("odd", Some("wait_ns -5"), None),
            ("plain", None, None),
            // There is no such thing, and the walk does not look for it.
            ("plain/below", Some("wait_ns 9"), None),
        ];
        let mut known = Known(Vec::new());
        for (path, wait, _) in cgroups {
            let dir = mount.path().join(path);
            fs::create_dir_all(&dir).unwrap();
            known.0.push(fs::metadata(&dir).unwrap().ino());
            if let Some(wait) = wait {
                fs::write(dir.join("lock.stat"), stat(wait)).unwrap();
            }
        }
        // One that UFS does not know.
        fs::create_dir(mount.path().join("new")).unwrap();
        fs::write(mount.path().join("new/lock.stat"), stat("wait_ns 1")).unwrap();
        let numbers = known.0.clone();
        let mut source = WithLocks::new(known, Some(mount.path().to_path_buf()));
        let sample = source.sample().unwrap();
        for (id, (path, _, wait)) in numbers.iter().zip(cgroups) {
            assert_eq!(sample.cgroups[id].lock_wait_ns, wait, "{path}");
        }
        assert_eq!(sample.cgroups.len(), cgroups.len());
    }

    #[test]
    fn nothing_is_added_without_a_hierarchy() {
        let mut source = WithLocks::new(Known(vec![1]), None);
        assert_eq!(source.sample().unwrap().cgroups[&1].lock_wait_ns, None);
    }
}
