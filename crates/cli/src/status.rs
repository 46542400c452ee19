//! `giveway status`: the scheduler, and the work in each tier.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use clap::Args;
use giveway_hints::slot::Table;
use giveway_machine::files;
use giveway_machine::sched_ext::{SchedExt, State};
use giveway_tier::Tier;
use giveway_tier::rule::Rule;
use giveway_watch::names::printable;
use serde::Serialize;

use crate::cgroup::{Hierarchy, Labelled};
use crate::service::{Process, RUN_DIR, UFS, Unit, last_exit};
use crate::tier;
use giveway_command::Failure;
use giveway_command::output::human;

/// Say which scheduler is loaded and what runs in each tier
///
/// Lists the cgroups that carry a tier, by their names or, which only root can see,
/// by marks, and those directly inside them. Exit status 0 whether or not UFS is
/// loaded.
#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Status {
    /// `unsupported`, `disabled`, `enabled`, `enabling` or `disabling`.
    state: String,
    /// The loaded scheduler's full name.
    scheduler: Option<String>,
    ufs: bool,
    pid: Option<u32>,
    uptime_s: Option<f64>,
    /// Schedulers loaded since boot.
    loads: Option<u64>,
    /// Threads with a hint slot, and slots; none if this user may not see them.
    hint_slots: Option<(u32, u32)>,
    /// Whether UFS was loaded to heed marks; none if it is not loaded, or does not say.
    heeds_marks: Option<bool>,
    /// The tier of cgroups without a label.
    default_tier: Tier,
    /// Names, or beginnings of names, of the cgroups of each tier.
    labels: BTreeMap<&'static str, Vec<String>>,
    /// Why UFS left last, if it has.
    last_exit: Option<String>,
    cgroups: Vec<Labelled>,
}

/// Prints the status.
pub(crate) fn status(args: &StatusArgs) -> Result<(), Failure> {
    let found = look();
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &found)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", text(&found))?;
    }
    Ok(out.flush()?)
}

fn look() -> Status {
    let kernel = SchedExt::under(Path::new("/"));
    let state = kernel.state();
    let process = state.is(UFS).then(|| Process::find(true)).flatten();
    let word = state.word();
    let scheduler = match &state {
        State::Enabled(ops) => Some(ops.clone()),
        _ => None,
    };
    let said = tier::rule(&kernel);
    let heeds_marks = said
        .as_ref()
        .filter(|_| state.is(UFS))
        .map(|rule| rule.heeds_marks);
    let rule = Rule {
        // A mark that may count is shown.
        heeds_marks: heeds_marks != Some(false),
        ..said.unwrap_or_default()
    };
    let cgroups = std::fs::read_to_string("/proc/self/mountinfo")
        .ok()
        .and_then(|mounts| Hierarchy::in_mounts(&mounts))
        .map(|hierarchy| hierarchy.labelled(&rule))
        .unwrap_or_default();
    Status {
        ufs: state.is(UFS),
        pid: process.as_ref().map(Process::pid),
        uptime_s: process
            .as_ref()
            .and_then(Process::age)
            .map(|age| age.as_secs_f64()),
        loads: kernel.loads(),
        hint_slots: hint_slots(),
        heeds_marks,
        default_tier: rule.default_tier,
        labels: Tier::ALL
            .map(|tier| (tier.name(), rule.labels[tier as usize].clone()))
            .into(),
        last_exit: said_last(),
        state: word.to_owned(),
        scheduler,
        cgroups,
    }
}

/// Why UFS left last, in its own words: the unit's, where there is one.
fn said_last() -> Option<String> {
    let of_unit = || last_exit(&Unit::possible()?.0.log());
    let of_daemon = || last_exit(&files::read(&Path::new(RUN_DIR).join("scx_ufs.log")).ok()?);
    of_unit().or_else(of_daemon)
}

/// Slots in use and slots in all, of the users whose tables may be opened.
fn hint_slots() -> Option<(u32, u32)> {
    let usages = Table::of_all_users(None).into_iter();
    usages
        .map(|(_, table)| table.usage())
        .reduce(|a, b| (a.0 + b.0, a.1 + b.1))
}

fn text(status: &Status) -> String {
    let mut lines = vec![match (&status.scheduler, status.ufs) {
        (Some(name), true) => format!("scheduler  UFS ({name})"),
        (Some(name), false) => format!("scheduler  {name}, not UFS"),
        (None, _) if status.state == State::Unsupported.word() => {
            "scheduler  Linux's own; sched_ext is unsupported: see 'giveway doctor'".to_owned()
        }
        (None, _) => format!("scheduler  Linux's own; sched_ext is {}", status.state),
    }];
    if let Some(pid) = status.pid {
        lines.push(format!("process    {pid}"));
    }
    if let Some(uptime) = status.uptime_s {
        let uptime = std::time::Duration::from_secs_f64(uptime);
        lines.push(format!("uptime     {}", human(uptime)));
    }
    if let Some((used, all)) = status.hint_slots {
        lines.push(format!("hints      {used} of {all} slots in use"));
    }
    lines.extend(unusual(status));
    let unheeded = status.heeds_marks == Some(false);
    if unheeded && status.cgroups.iter().any(|row| row.mark.is_some()) {
        lines.push("marks      not heeded: UFS was loaded without --cgroup-marks".into());
    }
    if let Some(reason) = &status.last_exit {
        // It quotes names of programs.
        lines.push(format!("last exit  {}", printable(reason.as_bytes())));
    }
    for tier in Tier::ALL {
        let mut rows = status
            .cgroups
            .iter()
            .filter(|row| row.tier == tier)
            .peekable();
        if rows.peek().is_some() {
            lines.push(format!("\n{:>6} {:>6}  {tier}", "weight", "tasks"));
        }
        lines.extend(rows.map(|row| {
            let weight = row
                .weight
                .map_or("-".to_owned(), |weight| weight.to_string());
            let mark = row.mark.map_or("", |_| "  (marked)");
            let path = printable(row.path.as_os_str().as_bytes());
            format!("{weight:>6} {:>6}  /{path}{mark}", row.tasks)
        }));
    }
    lines.join("\n") + "\n"
}

/// How names give tiers, where that is not as it is without options.
fn unusual(status: &Status) -> Vec<String> {
    let usual = Rule::default();
    let mut lines = Vec::new();
    if status.default_tier != usual.default_tier {
        lines.push(format!("default    {}", status.default_tier));
    }
    for tier in Tier::ALL {
        let labels = &status.labels[tier.name()];
        if *labels != usual.labels[tier as usize] {
            let labels = match labels.is_empty() {
                true => "none".to_owned(),
                false => labels.join(", "),
            };
            lines.push(format!("labels     {tier}: {labels}"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn tiers_are_listed_apart_the_urgent_one_first() {
        let row = |tier, path: &str, weight| Labelled {
            tier,
            mark: path.contains("pod").then_some(tier),
            path: path.into(),
            weight,
            tasks: 3,
        };
        let mut found = Status {
            state: "enabled".into(),
            scheduler: Some("ufs_0.1".into()),
            ufs: true,
            pid: Some(9),
            uptime_s: Some(61.0),
            loads: Some(1),
            hint_slots: Some((2, 1023)),
            heeds_marks: Some(true),
            default_tier: Tier::DEFAULT,
            labels: Tier::ALL
                .map(|tier| (tier.name(), Rule::default().labels[tier as usize].clone()))
                .into(),
            last_exit: None,
            cgroups: vec![
                row(Tier::Background, "giveway/background/run-1", Some(50)),
                row(Tier::Background, "kubepods/pod7", None),
                row(Tier::TimeSensitive, "time_sensitive.slice", None),
            ],
        };
        assert_eq!(
            text(&found),
            "scheduler  UFS (ufs_0.1)\nprocess    9\nuptime     1 min 1 s\n\
             hints      2 of 1023 slots in use\n\n\
             weight  tasks  time_sensitive\n     -      3  /time_sensitive.slice\n\n\
             weight  tasks  background\n    50      3  /giveway/background/run-1\n     \
             -      3  /kubepods/pod7  (marked)\n"
        );
        found.heeds_marks = Some(false);
        assert!(text(&found).contains("in use\nmarks      not heeded: UFS"));
        found.default_tier = Tier::Background;
        found
            .labels
            .insert("background", vec!["batch".into(), "etl".into()]);
        found.labels.insert("time_sensitive", vec![]);
        let lines = "in use\ndefault    background\nlabels     time_sensitive: none\n\
                     labels     background: batch, etl\nmarks ";
        assert!(text(&found).contains(lines), "{}", text(&found));
        found.last_exit = Some("stalled: \u{1b}]0;x\u{7}".into());
        found.cgroups = vec![row(Tier::Background, "background-\u{1b}[2J\rx", None)];
        let shown = text(&found);
        assert!(shown.contains("  /background-[2Jx\n"), "{shown}");
        assert!(shown.contains("last exit  stalled: ]0;x\n"), "{shown}");
        (found.scheduler, found.ufs) = (None, false);
        for (state, line) in [
            (
                "disabled",
                "scheduler  Linux's own; sched_ext is disabled\n",
            ),
            (
                "unsupported",
                "sched_ext is unsupported: see 'giveway doctor'\n",
            ),
        ] {
            found.state = state.into();
            assert!(text(&found).contains(line), "{}", text(&found));
        }
    }

    #[test]
    fn a_name_that_is_no_text_is_written_as_far_as_it_is() {
        let row = Labelled {
            tier: Tier::Background,
            mark: None,
            path: OsStr::from_bytes(b"background-\xff").into(),
            weight: None,
            tasks: 1,
        };
        let json = serde_json::to_value(&row).unwrap();
        assert_eq!(json["path"], "background-\u{fffd}");
    }
}
