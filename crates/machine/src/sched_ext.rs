//! The kernel's state of sched_ext: which scheduler is attached, if any.
//!
//! `/sys/kernel/sched_ext/state` is `disabled`, `enabling`, `enabled` or `disabling`.
//! `root/ops` is there while a scheduler is loaded: its name, followed by version and
//! target, so names are compared by [prefix](is_ops). `enable_seq` counts the
//! schedulers that have been loaded since boot, `nr_rejected` the tasks refused.
//!
//! ```text
//!                 load                       in force
//!   disabled ───────────► enabling ─────────────────────► enabled
//!      ▲                     │ refused                       │ unloaded, or thrown out
//!      └── disabling ◄───────┴───────────────────────────────┘
//! ```
//!
//! Known weakness: state and name are two files. A scheduler that leaves between the
//! two reads is [`State::Changing`]; one that follows another that fast is taken for it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Where the kernel says it.
pub const DIR: &str = "/sys/kernel/sched_ext";

/// How often a wait looks at the state. Loading takes tens of milliseconds.
const POLL: Duration = Duration::from_millis(20);

/// The kernel's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// This kernel has no sched_ext.
    Unsupported,
    /// No scheduler is loaded: Linux's own is in force.
    Disabled,
    /// One is loaded; its name with version and target.
    Enabled(String),
    /// One is coming or going: `enabling` or `disabling`.
    Changing(String),
}

impl State {
    /// Whether the scheduler that calls itself `name` is in force.
    pub fn is(&self, name: &str) -> bool {
        matches!(self, State::Enabled(ops) if is_ops(ops, name))
    }

    /// The kernel's word for it; `unsupported` where it has none.
    pub fn word(&self) -> &str {
        match self {
            State::Unsupported => "unsupported",
            State::Disabled => "disabled",
            State::Enabled(_) => "enabled",
            State::Changing(word) => word,
        }
    }
}

impl fmt::Display for State {
    /// The name of the scheduler that is in force, else the kernel's word.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Enabled(ops) => ops,
            other => other.word(),
        })
    }
}

/// Whether the kernel's `ops` is the scheduler `name`: the name, and then nothing or
/// something that is no part of a name, such as a version. No scheduler has an empty
/// name.
pub fn is_ops(ops: &str, name: &str) -> bool {
    !name.is_empty()
        && ops
            .strip_prefix(name)
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

/// The place where the kernel says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedExt {
    dir: PathBuf,
}

impl SchedExt {
    /// That of this machine.
    pub fn this() -> Self {
        SchedExt { dir: DIR.into() }
    }

    /// Under the root directory `root` (`/`, except in tests).
    pub fn under(root: &Path) -> Self {
        SchedExt {
            dir: root.join(DIR.trim_start_matches('/')),
        }
    }

    /// Whether the kernel has sched_ext.
    pub fn is_there(&self) -> bool {
        self.dir.join("state").exists()
    }

    /// The state at this moment.
    pub fn state(&self) -> State {
        let Some(state) = self.read("state") else {
            return State::Unsupported;
        };
        match state.as_str() {
            "disabled" => State::Disabled,
            // The scheduler may leave between the two reads.
            "enabled" => self
                .ops()
                .map_or_else(|| State::Changing("disabling".to_owned()), State::Enabled),
            _ => State::Changing(state),
        }
    }

    /// The name of the scheduler that is loaded, if one is.
    pub fn ops(&self) -> Option<String> {
        self.read("root/ops")
    }

    /// How many schedulers have been loaded since boot, where the kernel counts.
    pub fn loads(&self) -> Option<u64> {
        self.read("enable_seq")?.parse().ok()
    }

    /// How many tasks have been refused since boot, where the kernel counts.
    pub fn rejected(&self) -> Option<u64> {
        self.read("nr_rejected")?.parse().ok()
    }

    /// Waits until `wanted` holds, at most `limit`; answers with the last state
    /// seen. `give_up` is asked in every round and ends the wait early.
    pub fn wait(
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

    fn read(&self, file: &str) -> Option<String> {
        let text = fs::read_to_string(self.dir.join(file)).ok()?;
        Some(text.trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_read_with_the_scheduler_s_name() {
        let root = tempfile::tempdir().unwrap();
        let kernel = SchedExt::under(root.path());
        assert_eq!(kernel.state(), State::Unsupported);
        assert!(!kernel.is_there());
        let dir = root.path().join("sys/kernel/sched_ext");
        fs::create_dir_all(dir.join("root")).unwrap();
        let say = |file: &str, text: &str| fs::write(dir.join(file), text).unwrap();
        say("state", "disabled\n");
        assert!(kernel.is_there());
        assert_eq!(kernel.state(), State::Disabled);
        say("state", "enabling\n");
        assert_eq!(kernel.state(), State::Changing("enabling".into()));
        say("state", "enabled\n");
        assert_eq!(kernel.state(), State::Changing("disabling".into()));
        say("root/ops", "ufs_0.1.0_x86_64\n");
        assert_eq!(kernel.state(), State::Enabled("ufs_0.1.0_x86_64".into()));
        assert!(kernel.state().is("ufs") && !kernel.state().is("bpfland"));
        assert_eq!((kernel.loads(), kernel.rejected()), (None, None));
        say("enable_seq", "7\n");
        say("nr_rejected", "0\n");
        assert_eq!((kernel.loads(), kernel.rejected()), (Some(7), Some(0)));
    }

    #[test]
    fn a_state_is_shown_by_the_scheduler_s_name_or_the_kernel_s_word() {
        let enabled = State::Enabled("rusty_1.0".into());
        assert_eq!(
            (enabled.to_string().as_str(), enabled.word()),
            ("rusty_1.0", "enabled")
        );
        let leaving = State::Changing("disabling".into());
        assert_eq!(
            (leaving.to_string().as_str(), leaving.word()),
            ("disabling", "disabling")
        );
        assert_eq!(State::Unsupported.to_string(), "unsupported");
    }

    #[test]
    fn a_scheduler_is_known_by_its_name_and_not_by_a_longer_one() {
        for ops in ["ufs", "ufs_0.1.0", "ufs-dev"] {
            assert!(is_ops(ops, "ufs"), "{ops}");
        }
        for ops in ["ufsx", "ufs2_1.0", "rusty", ""] {
            assert!(!is_ops(ops, "ufs"), "{ops}");
        }
        assert!(!is_ops("ufs", "") && !is_ops("", ""));
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
