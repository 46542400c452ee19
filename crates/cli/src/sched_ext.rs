//! What the kernel says about sched_ext: which scheduler is loaded, if any.
//!
//! `/sys/kernel/sched_ext/state` is `disabled`, `enabling`, `enabled` or
//! `disabling`; `root/ops` is there while a scheduler is loaded and holds its
//! name followed by version and target, so names are compared by prefix.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How often a wait looks at the state. Loading takes tens of milliseconds.
const POLL: Duration = Duration::from_millis(20);

/// The kernel's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// This kernel has no sched_ext.
    Unsupported,
    /// No scheduler is loaded.
    Disabled,
    /// A scheduler is loaded; its full name.
    Enabled(String),
    /// A scheduler is coming or going: `enabling` or `disabling`.
    Changing(String),
}

impl State {
    /// Whether the loaded scheduler is UFS.
    pub(crate) fn is_ufs(&self) -> bool {
        matches!(self, State::Enabled(ops) if is_ufs(ops))
    }
}

/// Whether an ops name is that of UFS: `ufs`, or `ufs` and a version.
fn is_ufs(ops: &str) -> bool {
    ops.strip_prefix("ufs")
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

/// The place where the kernel speaks.
pub(crate) struct SchedExt {
    dir: PathBuf,
}

impl SchedExt {
    /// Under the root directory `root` (`/`, except in tests).
    pub(crate) fn under(root: &Path) -> Self {
        SchedExt {
            dir: root.join("sys/kernel/sched_ext"),
        }
    }

    /// The state at this moment.
    pub(crate) fn state(&self) -> State {
        let Ok(state) = fs::read_to_string(self.dir.join("state")) else {
            return State::Unsupported;
        };
        match state.trim() {
            "disabled" => State::Disabled,
            "enabled" => match fs::read_to_string(self.dir.join("root/ops")) {
                Ok(ops) => State::Enabled(ops.trim().to_owned()),
                // The scheduler left between the two reads.
                Err(_) => State::Changing("disabling".to_owned()),
            },
            other => State::Changing(other.to_owned()),
        }
    }

    /// How many schedulers have been loaded since boot, where the kernel counts.
    pub(crate) fn loads(&self) -> Option<u64> {
        let text = fs::read_to_string(self.dir.join("enable_seq")).ok()?;
        text.trim().parse().ok()
    }

    /// Waits until `wanted` holds, at most `limit`; answers with the last state
    /// seen. `give_up` is asked in every round and ends the wait early.
    pub(crate) fn wait(
        &self,
        limit: Duration,
        wanted: impl Fn(&State) -> bool,
        mut give_up: impl FnMut() -> bool,
    ) -> State {
        let deadline = Instant::now() + limit;
        loop {
            let state = self.state();
            if wanted(&state) || give_up() || Instant::now() >= deadline {
                return state;
            }
            thread::sleep(POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(state: Option<&str>, ops: Option<&str>) -> State {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("sys/kernel/sched_ext");
        if let Some(state) = state {
            fs::create_dir_all(dir.join("root")).unwrap();
            fs::write(dir.join("state"), state).unwrap();
        }
        if let Some(ops) = ops {
            fs::write(dir.join("root/ops"), ops).unwrap();
        }
        SchedExt::under(root.path()).state()
    }

    #[test]
    fn the_state_is_read_with_the_scheduler_s_name() {
        assert_eq!(kernel(None, None), State::Unsupported);
        assert_eq!(kernel(Some("disabled\n"), None), State::Disabled);
        let ufs = kernel(Some("enabled\n"), Some("ufs_0.1.0_x86_64\n"));
        assert!(ufs.is_ufs());
        let other = kernel(Some("enabled\n"), Some("bpfland_1.1.4\n"));
        assert_eq!(other, State::Enabled("bpfland_1.1.4".to_owned()));
        assert!(!other.is_ufs());
        assert_eq!(
            kernel(Some("enabling\n"), None),
            State::Changing("enabling".to_owned())
        );
        assert_eq!(
            kernel(Some("enabled\n"), None),
            State::Changing("disabling".to_owned())
        );
    }

    #[test]
    fn only_ufs_itself_is_ufs() {
        assert!(is_ufs("ufs") && is_ufs("ufs_0.1.0") && is_ufs("ufs-dev"));
        assert!(!is_ufs("ufsx") && !is_ufs("rusty") && !is_ufs(""));
    }

    #[test]
    fn a_wait_ends_when_asked_to_give_up() {
        let root = tempfile::tempdir().unwrap();
        let kernel = SchedExt::under(root.path());
        let started = Instant::now();
        let state = kernel.wait(Duration::from_secs(60), |_| false, || true);
        assert_eq!(state, State::Unsupported);
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}
