//! `giveway doctor`: what this machine has, what it lacks, and the remedies.
//!
//! Each item is one finding of `probes`. A finding counts for one of the two
//! ways in which Giveway runs: natively (sched_ext in this kernel, root, cgroup
//! v2) or in the lab (QEMU, disk, memory). The exit status is 0 if one of them
//! is usable. The end says whether UFS can be loaded here and, where giveway-bench is
//! installed, which way `giveway bench` takes: it runs `giveway doctor --json`. The
//! scheduler and the lab are asked for what they use (`kernel`, `lab`). What building and
//! user interrupts (`uintr`) take is told beside.
//!
//! Nothing here changes the machine: no scheduler is loaded, no guest booted,
//! no package fetched. What only a trial would show (whether a scheduler loads, whether
//! KVM can boot a kernel) is reported as far as files show it.

mod disks;
mod kernel;
mod lab;
mod locks;
mod probes;
mod running;
mod uintr;

use std::borrow::Cow;
use std::io::Write;
use std::path::Path;

use clap::Args;
use serde::{Deserialize, Serialize};

use giveway_command::{Failure, output, program};

/// Say what this machine has, what it lacks, and what mends it
///
/// Changes nothing. Exit status: 0 if UFS can be loaded on this machine, and
/// also if only the lab can run it; else 1. In the JSON, 'native' is true only
/// if UFS can be loaded on this machine.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The program that has the lab and the benchmarks; an operator need not have it.
const BENCH: &str = "giveway-bench";

/// What a finding means for its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Health {
    /// There.
    Ok,
    /// Missing, and the way it belongs to is closed.
    Missing,
    /// Missing or not to be told; the way stays open.
    Note,
}

/// Which way of running needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    /// UFS in this machine's own kernel.
    Native,
    /// UFS in a virtual machine.
    Lab,
    /// Preemption by user interrupts; neither way needs it.
    UserInterrupts,
    /// Building from source.
    Build,
}

/// One line.
#[derive(Debug, Serialize)]
struct Finding {
    way: Way,
    name: Cow<'static, str>,
    health: Health,
    /// Mostly one line.
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

fn ok(way: Way, name: &'static str, detail: impl Into<String>) -> Finding {
    Finding {
        way,
        name: name.into(),
        health: Health::Ok,
        detail: detail.into(),
        remedy: None,
    }
}

fn missing(
    way: Way,
    name: &'static str,
    detail: impl Into<String>,
    remedy: impl Into<String>,
) -> Finding {
    Finding {
        way,
        name: name.into(),
        health: Health::Missing,
        detail: detail.into(),
        remedy: Some(remedy.into()),
    }
}

fn note(way: Way, name: &'static str, detail: impl Into<String>) -> Finding {
    Finding {
        way,
        name: name.into(),
        health: Health::Note,
        detail: detail.into(),
        remedy: None,
    }
}

/// Everything found, and what follows.
#[derive(Debug, Serialize)]
struct Examination {
    native: bool,
    lab: bool,
    /// Where `giveway bench` measures: `native`, `lab`, or `nowhere`.
    bench: &'static str,
    /// Whether there is a `giveway bench`.
    #[serde(skip)]
    has_bench: bool,
    findings: Vec<Finding>,
}

impl Examination {
    fn of(findings: Vec<Finding>, has_bench: bool) -> Self {
        let open = |way| {
            !findings
                .iter()
                .any(|f| f.way == way && f.health == Health::Missing)
        };
        let (native, lab) = (open(Way::Native), has_bench && open(Way::Lab));
        Examination {
            native,
            lab,
            bench: match (native, lab) {
                (true, _) => "native",
                (false, true) => "lab",
                (false, false) => "nowhere",
            },
            has_bench,
            findings,
        }
    }

    /// What an operator asks first: whether UFS can be loaded here, and else where to look.
    fn verdict(&self) -> String {
        let missing = |f: &&Finding| f.way == Way::Native && f.health == Health::Missing;
        let names: Vec<&str> = self
            .findings
            .iter()
            .filter(missing)
            .map(|f| &*f.name)
            .collect();
        match names.as_slice() {
            [] => "UFS can be loaded here: giveway start".to_owned(),
            names => format!("UFS cannot be loaded here: see {} above", names.join(", ")),
        }
    }
}

/// Prints the examination; answers with the exit status.
pub(crate) fn doctor(args: &DoctorArgs) -> Result<u8, Failure> {
    let bench = program::find(BENCH);
    let findings = probes::all(Path::new("/"), bench.as_deref());
    let found = Examination::of(findings, bench.is_some());
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &found)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", text(&found, output::fancy_stdout()))?;
    }
    out.flush()?;
    Ok(u8::from(!(found.native || found.lab)))
}

fn text(found: &Examination, fancy: bool) -> String {
    let mut lines = Vec::new();
    let parts = [
        (Way::Native, "UFS in this machine's kernel"),
        (Way::Lab, "UFS in a virtual machine"),
        (
            Way::UserInterrupts,
            "User interrupts, for programs that preempt themselves",
        ),
        (Way::Build, "Building from source"),
    ];
    for (way, title) in parts {
        lines.push(title.to_owned());
        for finding in found.findings.iter().filter(|f| f.way == way) {
            let mark = match (finding.health, fancy) {
                (Health::Ok, true) => "✓",
                (Health::Missing, true) => "✗",
                (Health::Note, true) => "•",
                (Health::Ok, false) => "ok  ",
                (Health::Missing, false) => "FAIL",
                (Health::Note, false) => "note",
            };
            let begin = format!("  {mark} {:<12} ", finding.name);
            lines.push(output::wrapped(&begin, &finding.detail));
            if let Some(remedy) = &finding.remedy {
                let indent = if fancy { 4 } else { 7 };
                let begin = format!("{:indent$}remedy: ", "");
                lines.push(output::wrapped(&begin, remedy));
            }
        }
        lines.push(String::new());
    }
    lines.push(output::wrapped("", &found.verdict()));
    if found.has_bench {
        let bench = match found.bench {
            "native" => "giveway bench measures on this machine itself",
            "lab" => "giveway bench measures in the lab, in virtual machines",
            _ => "giveway bench cannot measure here: follow a remedy above first",
        };
        lines.push(bench.to_owned());
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(way: Way, health: Health) -> Finding {
        Finding {
            way,
            name: "thing".into(),
            health,
            detail: "is so".into(),
            remedy: (health != Health::Ok).then(|| "mend it".into()),
        }
    }

    #[test]
    fn bench_goes_native_where_it_can_else_to_the_lab() {
        let bench = |native, lab, has_bench| {
            let findings = vec![finding(Way::Native, native), finding(Way::Lab, lab)];
            Examination::of(findings, has_bench).bench
        };
        assert_eq!(bench(Health::Ok, Health::Missing, true), "native");
        assert_eq!(bench(Health::Note, Health::Ok, true), "native");
        assert_eq!(bench(Health::Missing, Health::Note, true), "lab");
        assert_eq!(bench(Health::Missing, Health::Missing, true), "nowhere");
        // Its program is what has the lab.
        assert_eq!(bench(Health::Missing, Health::Note, false), "nowhere");
    }

    #[test]
    fn the_end_says_whether_ufs_can_be_loaded_here() {
        let end = |health, has_bench| {
            let findings = vec![
                finding(Way::Native, health),
                finding(Way::Lab, Health::Ok),
                finding(Way::Build, Health::Missing),
            ];
            let found = Examination::of(findings, has_bench);
            let said = text(&found, false);
            said.rsplit("\n\n").next().unwrap().to_owned()
        };
        let loads = "UFS can be loaded here: giveway start\n";
        assert_eq!(end(Health::Ok, false), loads);
        assert_eq!(end(Health::Note, false), loads);
        assert_eq!(
            end(Health::Missing, true),
            "UFS cannot be loaded here: see thing above\n\
             giveway bench measures in the lab, in virtual machines\n"
        );
    }

    #[test]
    fn long_details_and_remedies_fit_80_columns() {
        let long = "a sentence that goes on ".repeat(9);
        let found = Finding {
            detail: long.clone(),
            remedy: Some(long),
            ..finding(Way::Native, Health::Missing)
        };
        let found = Examination::of(vec![found], false);
        for fancy in [false, true] {
            let said = text(&found, fancy);
            let is_short = |line: &str| line.chars().count() <= 80;
            assert!(said.lines().all(is_short), "{said}");
        }
    }

    #[test]
    fn what_is_missing_has_its_remedy_below_it_in_plain_text_too() {
        let found = Examination::of(vec![finding(Way::Native, Health::Missing)], true);
        let plain = text(&found, false);
        assert!(plain.is_ascii(), "{plain}");
        assert!(plain.contains("  FAIL thing        is so\n       remedy: mend it\n"));
        assert!(text(&found, true).contains("  ✗ thing"));
    }

    #[test]
    fn lines_of_a_finding_stand_below_each_other() {
        let two = Finding {
            detail: "one\ntwo".into(),
            ..finding(Way::Native, Health::Ok)
        };
        let found = Examination::of(vec![two], true);
        let below = |begin: &str, fancy| {
            let expected = format!("{begin}one\n{:1$}two\n", "", begin.chars().count());
            assert!(text(&found, fancy).contains(&expected));
        };
        below("  ok   thing        ", false);
        below("  ✓ thing        ", true);
    }
}
