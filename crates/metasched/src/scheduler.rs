//! Schedulers are data: a name, a command line, and how to see that one is up.
//!
//! `schedulers.toml`, which is part of the program, has a row for each
//! scheduler of the paper's section 2.1 and for those that have come since. A
//! configuration adds rows or replaces them, so unknown schedulers
//! are rows as well.
//!
//! Whether a row can be used on this machine is asked in two steps. Files tell
//! what is plainly missing ([`obstacle`]): the kernel, the program, the rights.
//! Whether the verifier accepts a scheduler that is there, only loading it
//! tells; that is the supervisor's, and its answer is a fault with the
//! scheduler's last words.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use giveway_machine::sched_ext::{SchedExt, is_ops};
use nix::unistd::{AccessFlags, access};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The name of Linux's own scheduler, which is what runs when none is loaded.
pub const EEVDF: &str = "eevdf";

/// The rows known from the start.
const KNOWN: &str = include_str!("schedulers.toml");

/// One scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduler {
    /// What configurations and measurements call it.
    pub name: String,
    /// Program and options; empty for Linux's own.
    #[serde(default)]
    pub command: Vec<String>,
    /// Options with which it loads, prints a line `ready`, and waits for a line
    /// on its standard input before it schedules; at another it leaves, and does
    /// the same again. Empty: it cannot wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub standby: Vec<String>,
    /// How its name in `root/ops` begins; empty for Linux's own.
    #[serde(default)]
    pub ops: String,
    /// The oldest kernel it runs on, as `6.12`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Release>,
    /// Where to get the program, for a person.
    #[serde(default)]
    pub install: String,
    /// The same for `giveway meta schedulers --install`; none: by hand only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// What it does, in half a line.
    #[serde(default)]
    pub about: String,
}

impl Scheduler {
    /// Linux's own scheduler.
    pub fn eevdf() -> Scheduler {
        Scheduler {
            name: EEVDF.to_owned(),
            command: Vec::new(),
            standby: Vec::new(),
            ops: String::new(),
            kernel: None,
            install: String::new(),
            source: None,
            about: String::new(),
        }
    }

    /// Whether it is Linux's own, for which nothing is loaded.
    pub fn is_eevdf(&self) -> bool {
        self.command.is_empty()
    }

    /// Whether the kernel's `ops` is this scheduler: its prefix, and then
    /// nothing or something that is no part of a name, such as a version.
    pub fn is_ops(&self, ops: &str) -> bool {
        is_ops(ops, &self.ops)
    }

    /// What is wrong with the row, if anything.
    fn complaint(&self) -> Option<String> {
        let name = &self.name;
        if name.trim().is_empty() {
            return Some("a scheduler without a name; write name = \"scx_…\"".into());
        }
        match (self.name == EEVDF, self.is_eevdf(), self.ops.is_empty()) {
            (true, true, true) | (false, false, false) => None,
            (true, ..) => Some(format!(
                "{EEVDF} is Linux's own scheduler and has neither command nor ops"
            )),
            (false, true, _) => Some(format!("{name} has no command; write command = [\"…\"]")),
            (false, false, true) => Some(format!(
                "{name} has no ops; write how its name in /sys/kernel/sched_ext/root/ops begins"
            )),
        }
    }
}

/// Where a scheduler's program is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The crate of the program's name, in the Rust registry.
    Crate,
    /// The kernel's source, tools/sched_ext.
    Kernel,
}

/// Where root's `giveway meta schedulers --install` puts programs, in its `bin`: all
/// users of the machine find them there, and so does a unit that sees no home.
pub const SYSTEM_DIR: &str = "/usr/local/lib/giveway/schedulers";

/// Where `giveway meta schedulers --install` puts programs, in its `bin`: [`SYSTEM_DIR`]
/// for root, `${XDG_CACHE_HOME:-~/.cache}/giveway/schedulers` for others.
pub fn install_dir() -> PathBuf {
    if nix::unistd::geteuid().is_root() {
        return SYSTEM_DIR.into();
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map_or(PathBuf::from("/"), PathBuf::from);
    let cache = cache.unwrap_or_else(|| home().join(".cache"));
    cache.join("giveway/schedulers")
}

/// The schedulers there are to choose from, each name once.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Scheduler>,
}

impl Table {
    /// The rows known from the start.
    pub fn known() -> Table {
        #[derive(Deserialize)]
        struct File {
            scheduler: Vec<Scheduler>,
        }
        let file: File = toml::from_str(KNOWN).expect("the built-in table is well formed");
        Table {
            rows: file.scheduler,
        }
    }

    /// Adds rows, or replaces those of the same name. `path` is the file they
    /// are from, for the error.
    ///
    /// # Errors
    /// [`Error::Content`] if a row makes no sense.
    pub fn extend(&mut self, rows: &[Scheduler], path: &Path) -> Result<()> {
        for row in rows {
            if let Some(what) = row.complaint() {
                return Err(Error::content(path, what));
            }
            match self.rows.iter_mut().find(|old| old.name == row.name) {
                Some(old) => *old = row.clone(),
                None => self.rows.push(row.clone()),
            }
        }
        Ok(())
    }

    /// All rows, in the order in which they were given.
    pub fn rows(&self) -> &[Scheduler] {
        &self.rows
    }

    /// The row of this name.
    pub fn get(&self, name: &str) -> Option<&Scheduler> {
        self.rows.iter().find(|row| row.name == name)
    }
}

/// A kernel release as far as it matters here: `6.12`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Release {
    major: u32,
    minor: u32,
}

impl Release {
    /// From the beginning of a release such as `7.2.13+deb14-cloud-amd64`.
    pub fn parse(text: &str) -> Option<Release> {
        let mut numbers = text.split(|c: char| !c.is_ascii_digit());
        Some(Release {
            major: numbers.next()?.parse().ok()?,
            minor: numbers.next()?.parse().ok()?,
        })
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl TryFrom<String> for Release {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Release, String> {
        Release::parse(&text).ok_or_else(|| format!("'{text}' is no kernel release; write 6.12"))
    }
}

impl From<Release> for String {
    fn from(release: Release) -> String {
        release.to_string()
    }
}

/// What of a machine decides whether a scheduler can be tried on it.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Whether the kernel has sched_ext.
    pub sched_ext: bool,
    /// The running kernel, where it can be told.
    pub release: Option<Release>,
    /// Whether this process may load schedulers.
    pub root: bool,
    /// Where programs are looked for, in this order.
    pub path: Vec<PathBuf>,
}

impl Machine {
    /// The machine whose `/proc` and `/sys` lie below `root` (`/` but in tests),
    /// with programs beside this one looked for first, then those in `PATH`, then
    /// those in [`SYSTEM_DIR`], then those in [`install_dir`].
    pub fn look(root: &Path) -> Machine {
        let release = fs::read_to_string(root.join("proc/sys/kernel/osrelease"));
        let beside = std::env::current_exe()
            .ok()
            .and_then(|exe| Some(exe.parent()?.to_owned()));
        let path = std::env::var_os("PATH").unwrap_or_default();
        Machine {
            sched_ext: SchedExt::under(root).is_there(),
            release: release.ok().and_then(|text| Release::parse(&text)),
            root: nix::unistd::geteuid().is_root(),
            path: beside
                .into_iter()
                .chain(std::env::split_paths(&path))
                .chain([Path::new(SYSTEM_DIR).join("bin"), install_dir().join("bin")])
                .collect(),
        }
    }

    /// The file that this program is, if there is one that can be run.
    pub fn find(&self, program: &str) -> Option<PathBuf> {
        let runs = |file: &PathBuf| file.is_file() && access(file, AccessFlags::X_OK).is_ok();
        if program.contains('/') {
            return Some(PathBuf::from(program)).filter(runs);
        }
        self.path.iter().map(|dir| dir.join(program)).find(runs)
    }
}

/// Why a scheduler cannot even be tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The kernel has no sched_ext.
    NoSchedExt,
    /// The kernel is older than the scheduler asks for.
    OldKernel {
        /// What it asks for.
        needs: Release,
        /// What runs.
        is: Release,
    },
    /// The program is not there.
    NotInstalled {
        /// The program.
        program: String,
        /// Where to get it.
        install: String,
    },
    /// Loading a scheduler takes root.
    NotRoot,
}

impl Obstacle {
    /// What the user can do about it.
    pub fn remedy(&self) -> String {
        match self {
            Obstacle::NoSchedExt => {
                "boot a kernel of 6.12 or newer with CONFIG_SCHED_CLASS_EXT=y".into()
            }
            Obstacle::OldKernel { needs, .. } => format!("boot a kernel of {needs} or newer"),
            Obstacle::NotInstalled { install, .. } if install.is_empty() => {
                "put it into a directory of PATH".into()
            }
            Obstacle::NotInstalled { install, .. } => install.clone(),
            Obstacle::NotRoot => "use sudo".into(),
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::NoSchedExt => write!(f, "this kernel has no sched_ext"),
            Obstacle::OldKernel { needs, is } => write!(f, "needs Linux {needs}, this is {is}"),
            Obstacle::NotInstalled { program, .. } => write!(f, "{program} is not installed"),
            Obstacle::NotRoot => write!(f, "only root may load it"),
        }
    }
}

/// What keeps this scheduler from being tried on this machine; the most
/// fundamental reason first.
pub fn obstacle(scheduler: &Scheduler, machine: &Machine) -> Option<Obstacle> {
    let program = scheduler.command.first()?;
    if !machine.sched_ext {
        return Some(Obstacle::NoSchedExt);
    }
    if let (Some(needs), Some(is)) = (scheduler.kernel, machine.release)
        && is < needs
    {
        return Some(Obstacle::OldKernel { needs, is });
    }
    if machine.find(program).is_none() {
        return Some(Obstacle::NotInstalled {
            program: program.clone(),
            install: scheduler.install.clone(),
        });
    }
    (!machine.root).then_some(Obstacle::NotRoot)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, command: &[&str], ops: &str) -> Scheduler {
        Scheduler {
            name: name.into(),
            command: command.iter().map(|word| word.to_string()).collect(),
            ops: ops.into(),
            ..Scheduler::eevdf()
        }
    }

    #[test]
    fn the_known_rows_make_sense_and_have_each_name_once() {
        let table = Table::known();
        for row in table.rows() {
            assert_eq!(row.complaint(), None);
            let same = table.rows().iter().filter(|other| other.name == row.name);
            assert_eq!(same.count(), 1, "{}", row.name);
            assert!(row.is_eevdf() || !row.install.is_empty(), "{}", row.name);
        }
        // Those of the paper's section 2.1, and what they are compared with.
        for name in [
            "eevdf",
            "scx_central",
            "scx_nest",
            "scx_pair",
            "scx_qmap",
            "scx_simple",
            "scx_simple -f",
            "scx_rustland",
            "scx_rusty",
        ] {
            assert!(table.get(name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_scheduler_is_known_by_its_prefix_and_not_by_a_longer_name() {
        let rusty = row("scx_rusty", &["scx_rusty"], "rusty");
        assert!(rusty.is_ops("rusty") && rusty.is_ops("rusty_1.1.4_x86_64"));
        assert!(!rusty.is_ops("rustyland") && !rusty.is_ops("rustland") && !rusty.is_ops(""));
        assert!(!Scheduler::eevdf().is_ops("") && !Scheduler::eevdf().is_ops("ufs"));
    }

    #[test]
    fn a_configuration_adds_and_replaces_rows() {
        let mut table = Table::known();
        let before = table.rows().len();
        let rows = [
            row("scx_ufs", &["/opt/scx_ufs", "--stats"], "ufs"),
            row("mine", &["scx_mine"], "mine"),
        ];
        table.extend(&rows, Path::new("f")).unwrap();
        assert_eq!(table.rows().len(), before + 1);
        assert_eq!(table.get("scx_ufs").unwrap().command[0], "/opt/scx_ufs");
        let bad = [
            (row("x", &[], "x"), "no command"),
            (row("x", &["x"], ""), "no ops"),
            (row(" ", &["x"], "x"), "without a name"),
            (row("eevdf", &["x"], "x"), "own scheduler"),
        ];
        for (row, what) in bad {
            let error = table.extend(&[row], Path::new("f")).unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
        }
    }

    #[test]
    fn the_most_fundamental_obstacle_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let mut scheduler = row("scx_x", &["scx_x"], "x");
        scheduler.kernel = Release::parse("6.14");
        scheduler.install = "build it".into();
        let mut machine = Machine {
            sched_ext: false,
            release: Release::parse("6.12.1-cloud"),
            root: false,
            path: vec![dir.path().to_owned()],
        };
        let why = |machine: &Machine| obstacle(&scheduler, machine);
        assert_eq!(why(&machine), Some(Obstacle::NoSchedExt));
        machine.sched_ext = true;
        let old = why(&machine).unwrap();
        assert_eq!(old.to_string(), "needs Linux 6.14, this is 6.12");
        machine.release = Release::parse("6.14");
        let missing = why(&machine).unwrap();
        assert_eq!(missing.remedy(), "build it");
        fs::write(dir.path().join("scx_x"), "").unwrap();
        assert_eq!(why(&machine), Some(missing), "a file that cannot be run");
        fs::remove_file(dir.path().join("scx_x")).unwrap();
        std::os::unix::fs::symlink("/bin/sh", dir.path().join("scx_x")).unwrap();
        assert_eq!(why(&machine), Some(Obstacle::NotRoot));
        machine.root = true;
        assert_eq!(why(&machine), None);
        machine.sched_ext = false;
        assert_eq!(obstacle(&Scheduler::eevdf(), &machine), None);
    }

    #[test]
    fn what_root_installs_is_in_no_home_and_found_by_all() {
        let found = Machine::look(Path::new("/")).path;
        assert!(
            found.contains(&Path::new(SYSTEM_DIR).join("bin")),
            "{found:?}"
        );
        assert!(found.contains(&install_dir().join("bin")), "{found:?}");
        let is_root = nix::unistd::geteuid().is_root();
        assert_eq!(install_dir() == Path::new(SYSTEM_DIR), is_root);
    }

    #[test]
    fn releases_compare_by_number() {
        let release = |text| Release::parse(text).unwrap();
        assert!(release("6.9") < release("6.12.3") && release("6.12") < release("7.0-rc1"));
        assert_eq!(Release::parse("six"), None);
    }
}
