//! What the user may choose, checked before anything is loaded.
//!
//! [`Opts`] is the command line as written; [`Config`] is what the BPF program
//! gets, in its units, with every rule between options enforced.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use giveway_tier::rule::Rule;
use giveway_tier::{Tier, Weight};
use nix::errno::Errno;
use scx_utils::libbpf_clap_opts::LibbpfOpts;

use crate::bpf_intf;
use crate::lock_weights::Wanted;
use crate::marks::Marks;
use crate::sessions::Sessions;
use crate::table::{self, TableOpts};

/// The kernel's own limit for a task's wait, in milliseconds, unless
/// `SCX_TIMEOUT_MS` shortens it.
const WATCHDOG_MS: u64 = 30_000;

/// The command line.
#[derive(Debug, clap::Parser)]
#[command(
    name = "scx_ufs",
    disable_version_flag = true,
    max_term_width = 80,
    about = "UFS, the unfair scheduler: background work gives way to work that users wait for.",
    long_about = "UFS, the unfair scheduler: background work gives way to work that users wait \
for.\n\n\
A task's tier is that of its cgroup. A cgroup whose name is a tier's label, or starts with the \
label followed by one of . - _ @ : is in that tier; any other is in its parent's; at the top \
--default-tier holds. Kernel threads and scx_ufs itself are always time-sensitive. Inside a tier \
CPU time is shared by cpu.weight, hierarchically.\n\n\
UFS stays loaded until it is interrupted; however it ends, the kernel's own scheduler takes over."
)]
pub(crate) struct Opts {
    /// Time slice of time-sensitive tasks, in microseconds.
    ///
    /// A longer slice costs fewer switches among CPU-bound time-sensitive tasks; a shorter one
    /// shares a CPU among them more evenly. Slices end at a timer tick (1-10 ms), so values below
    /// one tick act like one tick. Wake-ups do not wait for slices: see --preempt-lag-us.
    #[arg(long, default_value_t = 3000, value_name = "US")]
    slice_us: u64,

    /// Time slice of background tasks, in microseconds.
    ///
    /// A longer slice keeps caches warm; a shorter one makes the shares of background cgroups
    /// exact over shorter times. Time-sensitive tasks preempt background ones at once either way.
    #[arg(long, default_value_t = 10_000, value_name = "US")]
    bg_slice_us: u64,

    /// Lag in weighted virtual runtime at which a waking time-sensitive task preempts another, in
    /// microseconds.
    ///
    /// A smaller lag favours tasks that use the CPU in short bursts over CPU-bound ones of the
    /// same tier, at the price of more switches; a lag of a slice or more means that bursty tasks
    /// wait for slices to end.
    #[arg(long, default_value_t = 500, value_name = "US")]
    preempt_lag_us: u64,

    /// Longest time for which a time-sensitive task that holds a lock runs on after its slice, in
    /// microseconds (0: none does).
    ///
    /// Locks are known from hint slots. A longer time lets longer holds end, so that others of the
    /// tier do not spin or sleep until the holder's next turn; a shorter one bounds what they wait
    /// for. The time is charged to the task.
    #[arg(long, default_value_t = 200, value_name = "US")]
    extension_us: u64,

    /// Tier of cgroups that no label covers: time_sensitive or background.
    ///
    /// With background, everything that is not labelled time-sensitive gives way, system services
    /// and logins included.
    #[arg(long, default_value_t = Tier::DEFAULT, value_name = "TIER")]
    default_tier: Tier,

    /// Names, or beginnings of names, of background cgroups (at most 4, separated by commas).
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "background",
        value_name = "LABEL"
    )]
    background_label: Vec<String>,

    /// Names, or beginnings of names, of time-sensitive cgroups (at most 4, separated by commas).
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "time_sensitive,time-sensitive",
        value_name = "LABEL"
    )]
    time_sensitive_label: Vec<String>,

    /// Longest wait before a starving task gets CPU time regardless of its tier, in
    /// milliseconds.
    ///
    /// The kernel ejects a scheduler that lets a task wait for 30 s, so this can be a third of
    /// that at most. A longer deadline delays background work for longer under saturation; a
    /// shorter one gives it CPU time more often.
    #[arg(long, default_value_t = 5000, value_name = "MS")]
    floor_deadline_ms: u64,

    /// Largest share of a CPU that overdue tasks may take from the others, in percent.
    ///
    /// Exceeded only when so many tasks are overdue that they would miss the kernel's limit.
    #[arg(long, default_value_t = 5, value_name = "PERCENT")]
    floor_share: u64,

    /// Share of a CPU that a background task gets while the time-sensitive tier leaves the
    /// background none, in percent.
    ///
    /// A report that starves holds its snapshot of the database, or a lock, all the longer. 0
    /// gives it a slice after each deadline. All of them together get --floor-share at most.
    #[arg(long, default_value_t = 1, value_name = "PERCENT")]
    floor_least: u64,

    /// Time slice of an overdue task, in microseconds; ends at a timer tick.
    #[arg(long, default_value_t = 1000, value_name = "US")]
    floor_slice_us: u64,

    /// Apply the marks that root sets on cgroups ('giveway mark').
    ///
    /// Every cgroup is read once a second. A mark, the extended attribute trusted.giveway.tier,
    /// takes precedence over the name; cgroups below inherit it unless they have a label or a mark
    /// themselves.
    #[arg(long)]
    cgroup_marks: bool,

    /// What a cgroup in another tier than its parent weighs at the kernel's locks, on kernels
    /// with CFL: time-sensitive and background, each 1 to 10000, or none.
    ///
    /// Other cgroups weigh there what they weigh at the CPU. lock.weight is set where it is what
    /// Linux gives a new cgroup (100), and put back when UFS is unloaded. With none UFS sets no
    /// lock.weight.
    #[arg(long, default_value = "10000:1", value_name = "TS:BG")]
    lock_weights: Wanted,

    /// Ignore which cores, caches and NUMA nodes CPUs share.
    ///
    /// For virtual machines whose topology is not that of the hardware below, and for comparison.
    /// The kernel's search for an idle CPU still uses topology.
    #[arg(long)]
    pub flat: bool,

    /// Do not enforce cpu.max.
    ///
    /// Cgroups then use what their tier and weight give them. The kernel enforces cpu.max for its
    /// own scheduler only.
    #[arg(long)]
    no_cpu_max: bool,

    /// Do not read hint slots, and make no table of them.
    #[arg(long)]
    no_hints: bool,

    /// Directory in which the hint table is pinned; a bpf file system is mounted there.
    #[arg(long, default_value = giveway_hints::slot::DIR, value_name = "DIR")]
    hints_dir: PathBuf,

    /// Threads of a user that can have a hint slot at a time; each takes a page of memory.
    #[arg(long, default_value_t = 1023, value_name = "N")]
    hint_slots: u32,

    /// Group whose members may use hint slots, by name or number [default: giveway if it exists,
    /// else root].
    #[arg(long, value_name = "GROUP")]
    hint_group: Option<String>,

    /// Group whose members' slots may raise them above their cgroup's tier, by name or number
    /// [default: root only].
    #[arg(long, value_name = "GROUP")]
    hint_raise_group: Option<String>,

    /// Longest time for which a background task that holds a lock is boosted, in milliseconds
    /// (0: never boosted).
    ///
    /// After that it is not boosted for as long again. A longer time lets long holds end; a
    /// shorter one bounds what a holder that never releases can take from time-sensitive work.
    #[arg(long, default_value_t = 10_000, value_name = "MS")]
    boost_ms: u64,

    /// Boost also for PostgreSQL's heavyweight locks, which transactions hold until they end.
    #[arg(long)]
    boost_heavyweight: bool,

    /// Cgroup of a server whose processes are moved, once a second, to cgroups below it by the
    /// tier and weight in their slots [default: no process is moved].
    ///
    /// For tools that know cgroups only; UFS itself does not need it. The cgroup must have the cpu
    /// controller (Delegate=cpu in the server's unit). Processes elsewhere are left alone.
    #[arg(long, value_name = "DIR", conflicts_with = "no_hints")]
    session_cgroups: Option<PathBuf>,

    /// Load, print 'ready', then wait for a line on standard input before scheduling.
    ///
    /// For programs that swap schedulers: loading, which takes long, is done while another one
    /// schedules. Another line detaches UFS, which prints 'ready' and waits again. If standard
    /// input ends while it waits, scx_ufs exits.
    #[arg(long)]
    pub standby: bool,

    /// Length of the debug dump kept when the kernel ejects UFS, in bytes (0: the kernel's default).
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    pub exit_dump_len: u32,

    /// Count nothing, and serve no statistics.
    ///
    /// Saves some of the cost of each context switch. 'giveway top', 'giveway metrics' and
    /// --monitor then have nothing to show. Reports in hint slots stay.
    #[arg(long, conflicts_with = "stats")]
    no_stats: bool,

    /// Print statistics every SEC seconds while scheduling.
    #[arg(long, value_name = "SEC")]
    pub stats: Option<f64>,

    /// Print statistics of the running scx_ufs every SEC seconds; do not schedule.
    #[arg(long, value_name = "SEC")]
    pub monitor: Option<f64>,

    /// Describe the statistics.
    #[arg(long)]
    pub help_stats: bool,

    /// Print in JSON which features this kernel lacks; do not schedule.
    ///
    /// A list of objects: the feature ('name'), what UFS does without it ('without'), and the
    /// first version of Linux that has it ('since').
    #[arg(long)]
    pub kernel_lacks: bool,

    /// Have the kernel verify UFS as it would on a machine of so many CPUs, print how many
    /// instructions it went through for each callback, and end.
    ///
    /// Cores, caches and NUMA nodes are those of a machine that has several of each; with --flat
    /// there is one of each.
    #[arg(long, value_name = "CPUS", hide = true, conflicts_with = "standby")]
    pub verify_for: Option<usize>,

    /// Log more, including libbpf's messages.
    #[arg(short, long)]
    pub verbose: bool,

    /// Print the version.
    #[arg(short = 'V', long)]
    pub version: bool,

    /// Print the manual page, for packages.
    #[arg(long, hide = true)]
    pub man: bool,

    /// How libbpf opens the program.
    #[command(flatten, next_help_heading = "Libbpf Options")]
    pub libbpf: LibbpfOpts,
}

/// The options in the units of the BPF program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub ts_slice_ns: u64,
    pub bg_slice_ns: u64,
    pub preempt_lag_ns: u64,
    /// 0: no slice is extended for a lock.
    pub extension_ns: u64,
    pub floor_deadline_ms: u64,
    pub floor_slice_ns: u64,
    /// Shortest time between two floor runs on one CPU.
    pub floor_interval_ns: u64,
    /// Percent of a CPU that a background task is owed while its tier starves.
    pub floor_least: u64,
    /// How names of cgroups give tiers.
    pub rule: Rule,
    /// Whether cpu.max is enforced, if the kernel tells of it.
    pub cpu_max: bool,
    /// None: marks are ignored.
    pub marks: Option<Marks>,
    /// What a cgroup in another tier than its parent weighs at locks, by tier. None: no
    /// weight is set.
    pub lock_weights: Option<[Weight; 2]>,
    /// None: hints are off.
    pub table: Option<TableOpts>,
    /// -1 (`u32::MAX`): no group's.
    pub hint_raise_gid: u32,
    /// None: processes stay in their cgroups.
    pub sessions: Option<Sessions>,
    pub boost_ns: u64,
    pub boost_heavyweight: bool,
    /// Whether statistics are counted and served.
    pub stats: bool,
}

/// An option that is as wrong the next time.
#[derive(Debug)]
pub(crate) struct WrongOption(anyhow::Error);

impl WrongOption {
    /// What is wrong with an option; `error` itself if the system could not be asked about
    /// it, which may pass.
    pub(crate) fn of(error: anyhow::Error) -> anyhow::Error {
        match error.chain().any(|cause| cause.is::<Errno>()) {
            true => error,
            false => WrongOption(error).into(),
        }
    }
}

impl fmt::Display for WrongOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

impl std::error::Error for WrongOption {}

impl Opts {
    /// Checks the options against each other and against the watchdog, whose
    /// limit is `watchdog_ms` milliseconds (`None`: the kernel's default).
    pub(crate) fn config(&self, watchdog_ms: Option<u64>) -> Result<Config> {
        let watchdog_ms = watchdog_ms.unwrap_or(WATCHDOG_MS).clamp(1, WATCHDOG_MS);
        for (flag, us) in [
            ("--slice-us", self.slice_us),
            ("--bg-slice-us", self.bg_slice_us),
            ("--floor-slice-us", self.floor_slice_us),
        ] {
            if !(100..=100_000).contains(&us) {
                bail!("{flag} {us} is out of range: write 100 to 100000");
            }
        }
        if self.preempt_lag_us > 1_000_000 {
            bail!(
                "--preempt-lag-us {} is out of range: write 0 to 1000000",
                self.preempt_lag_us
            );
        }
        if self.extension_us > 10_000 {
            bail!(
                "--extension-us {} is out of range: write 0 to 10000",
                self.extension_us
            );
        }
        if !(1..=50).contains(&self.floor_share) {
            bail!(
                "--floor-share {} is out of range: write 1 to 50",
                self.floor_share
            );
        }
        if self.floor_least > self.floor_share {
            bail!(
                "--floor-least {} is more than --floor-share {}: write 0 to {}",
                self.floor_least,
                self.floor_share,
                self.floor_share
            );
        }
        // A task waits for up to two deadlines and a timer period.
        if self.floor_deadline_ms < 50 || self.floor_deadline_ms > watchdog_ms / 3 {
            bail!(
                "--floor-deadline-ms {} is out of range: the kernel ejects UFS when a task has \
                 waited for {watchdog_ms} ms, so write 50 to {}",
                self.floor_deadline_ms,
                watchdog_ms / 3
            );
        }
        let slots_max = bpf_intf::ufs_limits_UFS_TABLE_SLOTS_MAX - 1;
        if !(1..=slots_max).contains(&self.hint_slots) {
            bail!(
                "--hint-slots {} is out of range: write 1 to {slots_max}",
                self.hint_slots
            );
        }
        if self.boost_ms > 60_000 {
            bail!(
                "--boost-ms {} is out of range: write 0 to 60000",
                self.boost_ms
            );
        }
        let hint_raise_gid = match &self.hint_raise_group {
            Some(name) => table::gid_of(name).context("--hint-raise-group")?.as_raw(),
            None => u32::MAX,
        };
        let mut labels = [Vec::new(), Vec::new()];
        for (tier, flag, given) in [
            (
                Tier::Background,
                "--background-label",
                &self.background_label,
            ),
            (
                Tier::TimeSensitive,
                "--time-sensitive-label",
                &self.time_sensitive_label,
            ),
        ] {
            labels[tier as usize] = check_labels(flag, given)?;
        }
        if let Some(both) = labels[0].iter().find(|label| labels[1].contains(label)) {
            bail!("label '{both}' is given to both tiers: remove it from one");
        }
        let rule = Rule {
            labels,
            default_tier: self.default_tier,
            heeds_marks: self.cgroup_marks,
        };
        let sessions = match &self.session_cgroups {
            Some(dir) => Some(Sessions::new(dir, &rule, hint_raise_gid)?),
            None => None,
        };
        Ok(Config {
            ts_slice_ns: self.slice_us * 1000,
            bg_slice_ns: self.bg_slice_us * 1000,
            preempt_lag_ns: self.preempt_lag_us * 1000,
            extension_ns: self.extension_us * 1000,
            floor_deadline_ms: self.floor_deadline_ms,
            floor_slice_ns: self.floor_slice_us * 1000,
            floor_interval_ns: self.floor_slice_us * 1000 * 100 / self.floor_share,
            floor_least: self.floor_least,
            marks: self.cgroup_marks.then(|| Marks::new(&rule)),
            rule,
            cpu_max: !self.no_cpu_max,
            lock_weights: self.lock_weights.by_tier(),
            table: (!self.no_hints).then(|| TableOpts {
                dir: self.hints_dir.clone(),
                nr_slots: self.hint_slots + 1,
                group: self.hint_group.clone(),
            }),
            hint_raise_gid,
            sessions,
            boost_ns: self.boost_ms * 1_000_000,
            boost_heavyweight: self.boost_heavyweight,
            stats: !self.no_stats,
        })
    }
}

fn check_labels(flag: &str, given: &[String]) -> Result<Vec<String>> {
    let longest = bpf_intf::ufs_limits_UFS_LABEL_LEN as usize - 1;
    let most = bpf_intf::ufs_limits_UFS_LABELS_MAX as usize;
    let labels: Vec<String> = given
        .iter()
        .filter(|label| !label.is_empty())
        .cloned()
        .collect();
    if labels.len() > most {
        bail!("{flag} names {} labels: {most} at most", labels.len());
    }
    if let Some(long) = labels.iter().find(|label| label.len() > longest) {
        bail!("label '{long}' in {flag} is too long: {longest} bytes at most");
    }
    if let Some(slash) = labels.iter().find(|label| label.contains('/')) {
        bail!("label '{slash}' in {flag} is a path: write the name of one cgroup, without '/'");
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;

    fn config(args: &[&str]) -> Result<Config> {
        Opts::parse_from(["scx_ufs"].iter().chain(args)).config(None)
    }

    #[test]
    fn defaults_are_valid_and_in_the_units_of_the_bpf_program() {
        let config = config(&[]).unwrap();
        assert_eq!(config.ts_slice_ns, 3_000_000);
        assert_eq!(config.floor_interval_ns, 20_000_000);
        assert_eq!(config.floor_least, 1);
        assert!(config.cpu_max);
        assert_eq!(config.rule, Rule::default());
        let by_tier = [Tier::Background, Tier::TimeSensitive].map(Tier::cgroup_weight);
        assert_eq!(config.lock_weights, Some(by_tier));
    }

    #[test]
    fn labels_can_be_done_without() {
        let config = config(&["--time-sensitive-label="]).unwrap();
        assert!(config.rule.labels[1].is_empty());
        assert_eq!(config.rule.labels[0], ["background"]);
    }

    #[test]
    fn the_floor_deadline_leaves_the_watchdog_room() {
        assert!(config(&["--floor-deadline-ms", "10000"]).is_ok());
        let error = config(&["--floor-deadline-ms", "10001"])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("30000 ms") && error.contains("10000"),
            "{error}"
        );
        let opts = Opts::parse_from(["scx_ufs", "--floor-deadline-ms", "1001"]);
        assert!(opts.config(Some(3000)).is_err());
    }

    #[test]
    fn errors_name_the_flag() {
        for (args, flag) in [
            (["--slice-us", "0"], "--slice-us"),
            (["--extension-us", "10001"], "--extension-us"),
            (["--floor-share", "51"], "--floor-share"),
            (["--floor-least", "6"], "--floor-share"),
            (["--hint-slots", "4096"], "--hint-slots"),
            (["--boost-ms", "60001"], "--boost-ms"),
            (["--hint-raise-group", "no-such"], "--hint-raise-group"),
            (["--session-cgroups", "/tmp"], "--session-cgroups"),
            (["--background-label", "a/b"], "--background-label"),
            (["--background-label", "a,b,c,d,e"], "--background-label"),
            (["--background-label", "time_sensitive"], "both tiers"),
        ] {
            let error = WrongOption::of(config(&args).unwrap_err());
            assert!(error.is::<WrongOption>(), "{error:#}");
            assert!(format!("{error:#}").contains(flag), "{error:#}");
        }
    }

    #[test]
    fn option_that_cannot_be_checked_now_is_not_wrong() {
        let error = Err::<(), _>(Errno::EIO).context("--hint-raise-group");
        let error = WrongOption::of(error.unwrap_err());
        assert!(!error.is::<WrongOption>(), "{error:#}");
    }

    #[test]
    fn help_fits_80_columns() {
        let help = Opts::command().render_long_help().to_string();
        let long: Vec<&str> = help
            .lines()
            .filter(|line| line.chars().count() > 80)
            .collect();
        assert!(long.is_empty(), "{long:#?}");
    }
}
