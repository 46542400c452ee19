//! The guests of `giveway bench meta`: all have the programs of the schedulers that
//! take part. Those of the applications have an image of their own, with a Python and
//! what was prepared for it; those of the held-out programs have one with these.

use std::time::Duration;

use crate::experiments::meta::{MetaPlan, MetaRow, Part, applications, programs};
use crate::report::Report;
use giveway_lab::{Clock, Lab, Layer, Machine, Tree};
use giveway_metasched::policy::Policy;
use giveway_metasched::scheduler::Table;

use crate::runner::clock::ClockArgs;
use crate::runner::executors;
use crate::runner::executors::find_scheduler;
use crate::runner::guest::{Host, HostFile};
use crate::runner::pool::Executor;
use crate::runner::steps::Steps;
use giveway_command::{Context, Failure};

/// Seed of the applications' corpus: it is part of an image.
pub(super) const CORPUS_SEED: u64 = 1;
/// Memory of a guest.
const GUEST_MIB: u32 = 2048;
/// Few, since one host CPU emulates them all, and enough to be scheduled.
const CPUS: u32 = 2;
/// Where the applications are, in their image.
pub(crate) const APPLICATION: &str = "/var/lib/giveway/ask";
/// What the wheels are called while it is made.
const WHEELS: &str = "wheels";

/// The programs that a guest needs, by name.
pub(crate) fn scheduler_programs(
    known: &Table,
    schedulers: &[String],
) -> Result<Vec<HostFile>, Failure> {
    let mut programs: Vec<HostFile> = Vec::new();
    let names = schedulers.iter().map(String::as_str);
    for row in names.chain(["scx_ufs"]).filter_map(|name| known.get(name)) {
        let Some(program) = row.command.first() else {
            continue;
        };
        if programs.iter().any(|(_, name)| name == program) {
            continue;
        }
        let Some(path) = find_scheduler(program) else {
            let failure = Failure::new(format_args!("{program} is not here"));
            return Err(failure.with_remedy(row.install.clone()));
        };
        programs.push((path, program.clone()));
    }
    Ok(programs)
}

/// What a guest has beyond Debian's minimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Image {
    /// That of all benchmarks.
    Usual,
    /// The web application, and its load.
    Applications,
    /// The programs that are held out.
    Programs,
}

impl Image {
    fn of(part: Part) -> Image {
        match part {
            Part::Switch | Part::Phases | Part::Swaps => Image::Usual,
            Part::HeldOut => Image::Programs,
            Part::Applications => Image::Applications,
        }
    }

    /// The lab that has it; builds what is missing.
    fn open(self) -> Result<Lab, Failure> {
        match self {
            Image::Usual => executors::open(false),
            Image::Applications => application_lab(),
            Image::Programs => executors::open_with(program_layer(), false),
        }
    }
}

/// Guests that all have the same schedulers.
pub(crate) struct Guests {
    hosts: Vec<(Image, Host)>,
    programs: Vec<HostFile>,
}

impl Guests {
    /// Builds what these parts need and is missing.
    pub(crate) fn open(
        parts: &[Part],
        programs: Vec<HostFile>,
        clock: ClockArgs,
    ) -> Result<Guests, Failure> {
        let mut hosts: Vec<(Image, Host)> = Vec::new();
        for image in parts.iter().map(|part| Image::of(*part)) {
            if hosts.iter().all(|(known, _)| *known != image) {
                hosts.push((image, Host::of(image.open()?, clock)?));
            }
        }
        Ok(Guests { hosts, programs })
    }

    /// How many of them run at once.
    pub(crate) fn width(&self) -> usize {
        let host = self.hosts.first();
        host.map_or(1, |(_, host)| host.width(GUEST_MIB))
    }
}

impl Executor<MetaPlan, Report<MetaRow>> for Guests {
    fn run(&self, plan: &MetaPlan, line: &mut dyn FnMut(&str)) -> Result<Report<MetaRow>, String> {
        let image = Image::of(plan.part);
        let host = self.hosts.iter().find(|(of, _)| *of == image);
        let (_, host) = host.expect("opened for all parts of the plans");
        host.run_plan(&machine(plan), "meta-cell", plan, &self.programs, line)
            .map_err(|failure| failure.message())
    }
}

/// Debian's packages that are held out, as they are.
fn program_layer() -> Layer {
    Layer {
        key: "held-out".into(),
        packages: programs::PACKAGES.map(str::to_owned).to_vec(),
        // They are complete: what is said is in the image's log.
        command: ["gcc", "--version"].map(str::to_owned).to_vec(),
        ..Layer::default()
    }
}

/// A lab whose image has the applications, and their load.
fn application_lab() -> Result<Lab, Failure> {
    let wheels = Tree::wheels(applications::REQUIREMENTS, &Steps::new())?;
    executors::open_with(application_layer(vec![(WHEELS.into(), wheels)])?, false)
}

/// What that image has beyond Debian.
pub(crate) fn application_layer(trees: Vec<(String, Tree)>) -> Result<Layer, Failure> {
    let own = std::env::current_exe().cannot("find this program's file")?;
    let program = own.file_name().unwrap_or_default().to_string_lossy();
    let command = [
        format!("/layer/{program}"),
        "meta-prepare".into(),
        format!("--data={APPLICATION}"),
        format!("--wheels=/layer/{WHEELS}"),
        format!("--seed={CORPUS_SEED}"),
    ];
    Ok(Layer {
        key: applications::key(CORPUS_SEED),
        packages: ["python3", "python3-pip", "wrk"]
            .map(str::to_owned)
            .to_vec(),
        trees,
        files: vec![own],
        command: command.to_vec(),
    })
}

/// The same plan gives the same machine, and that the same rows.
fn machine(plan: &MetaPlan) -> Machine {
    Machine {
        cpus: CPUS,
        memory_mib: GUEST_MIB,
        clock: Clock::LOCKSTEP,
        seed: plan.seed,
        // Loading takes seconds of the guest's, and each of them ten of the host's.
        timeout: Duration::from_secs(4 * 3600) + runs(plan) * 30,
        ..Machine::default()
    }
}

/// What runs of applications take, by the guest's clock: each of the three under each
/// scheduler, one of them under each policy with each base timeslice, and what lies
/// between.
fn runs(plan: &MetaPlan) -> Duration {
    if plan.part != Part::Applications {
        return Duration::ZERO;
    }
    let schedulers = plan.schedulers.len() + 2;
    let turns = Policy::ALL.len() * plan.base_timeslices_ms.len() + 1;
    let runs = (3 * schedulers + turns) as u32 * plan.count;
    Duration::from_secs(u64::from(plan.run_s) + 2) * runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_are_held_out_are_in_an_image_of_their_own() {
        let image = |part| Image::of(part);
        assert_eq!(image(Part::HeldOut), Image::Programs);
        for other in Part::ALL.into_iter().filter(|p| *p != Part::HeldOut) {
            assert_ne!(image(other), Image::Programs);
        }
        let layer = program_layer();
        for package in ["nginx", "gcc"] {
            assert!(layer.packages.contains(&package.to_owned()));
        }
    }

    #[test]
    fn a_guest_has_time_for_all_runs() {
        let plan = |part, count| MetaPlan {
            part,
            schedulers: vec!["scx_simple".into()],
            count,
            phase_s: 1.0,
            cycles: 1,
            run_s: 8,
            prepared: std::path::PathBuf::new(),
            base_timeslices_ms: vec![500.0, 1000.0],
            swap_ms: None,
            repeat: 0,
            seed: 1,
        };
        // Three schedulers, and four policies with two timeslices beside EEVDF.
        assert_eq!(runs(&plan(Part::Applications, 1)), Duration::from_secs(180));
        assert_eq!(runs(&plan(Part::Applications, 2)), Duration::from_secs(360));
        assert_eq!(runs(&plan(Part::Swaps, 2)), Duration::ZERO);
    }
}
