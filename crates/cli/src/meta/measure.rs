//! `giveway meta measure`: applications under schedulers, into a file.
//!
//! The file is saved whenever a scheduler has been left, so what was measured
//! before a power cut or Ctrl-C is kept. A file of an earlier run
//! is replaced unless `--add` says to add to it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use clap::Args;
use giveway_metasched::application::Commands;
use giveway_metasched::kernel::rise;
use giveway_metasched::measure::{Plan, Progress, measure as measure_all};
use giveway_metasched::measurements::{Company, MachineNote, Measurements};
use giveway_metasched::scheduler::{Machine, obstacle};
use giveway_metasched::system::System;

use super::ConfigArgs;
use giveway_command::output::human;
use giveway_command::{Context, Failure};

/// Run each application's benchmark under each scheduler
///
/// Alone and together, with repetition, within a time budget. A scheduler that
/// stalls, crashes or is thrown out is recorded so and does not stop the others.
#[derive(Args, Debug)]
pub(super) struct MeasureArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// How often each combination is run
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
    /// Stop after this many minutes, wherever it is
    #[arg(long, default_value_t = 60.0, value_name = "MINUTES", value_parser = minutes)]
    budget: f64,
    /// Where to write [default: `measurements` of the configuration,
    /// /var/lib/giveway/meta.json]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Add to what the file holds already
    #[arg(long)]
    add: bool,
    /// What the file is to call the clock that results are measured by
    #[arg(long, default_value = "native", value_name = "NAME")]
    clock: String,
}

pub(super) fn minutes(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|minutes| (0.01..=100_000.0).contains(minutes))
        .ok_or_else(|| "write a number of minutes above 0".into())
}

/// Measures; answers with the exit status.
pub(super) fn measure(args: &MeasureArgs) -> Result<u8, Failure> {
    super::entitled()?;
    let config = args.config.read()?;
    if config.applications.is_empty() {
        return Err(Failure::new(format_args!(
            "{} names no application",
            config.path.display()
        ))
        .with_remedy("add [[application]] with a name and the command that benchmarks it"));
    }
    let machine = Machine::look(Path::new("/"));
    let mut schedulers = config.schedulers.clone();
    schedulers.retain(|scheduler| match obstacle(scheduler, &machine) {
        Some(obstacle) => {
            eprintln!("giveway: note: without {}: {obstacle}", scheduler.name);
            false
        }
        None => true,
    });
    let path = args.output.as_ref().unwrap_or(&config.measurements);
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).cannot(format_args!("make {}", dir.display()))?;
    }
    let mut measurements = match args.add && path.exists() {
        true => Measurements::read(path)?,
        false => Measurements::new(note(&args.clock)),
    };
    measurements.write(path)?;
    let dir = tempfile::tempdir().cannot("make a temporary directory")?;
    let mut host = System::new(&dir.path().join("log"))?;
    // To notice a scheduler that stalls, and to end it.
    rise();
    let stopped = interrupt()?;
    let plan = Plan {
        applications: &config.applications,
        together: config.together.as_ref(),
        schedulers: &schedulers,
        repetitions: args.repetitions as usize,
        budget: Duration::from_secs_f64(args.budget * 60.0),
        limits: config.limits,
    };
    let mut unsaved = None;
    let summary = measure_all(
        &plan,
        &mut measurements,
        &mut host,
        &mut Commands::new(dir.path()),
        &|| stopped.load(Relaxed),
        &mut |progress| match progress {
            Progress::Run {
                repetition,
                scheduler,
                application,
            } => eprintln!(
                "{} of {}: {} under {scheduler}",
                repetition + 1,
                plan.repetitions,
                application.unwrap_or("all together"),
            ),
            Progress::Fault { scheduler, what } => eprintln!("  {scheduler}: {what}"),
            Progress::Left(so_far) => unsaved = so_far.write(path).err(),
        },
    )?;
    if let Some(error) = unsaved {
        return Err(error.into());
    }
    measurements.write(path)?;
    print!("{}", table(&measurements));
    println!(
        "{} readings, {} faults, {} left out; {}",
        summary.readings,
        summary.faults,
        summary.left_out,
        path.display()
    );
    if stopped.load(Relaxed) {
        return Ok(130);
    }
    Ok(u8::from(summary.readings == 0))
}

/// Set by the first interrupt.
pub(super) fn interrupt() -> Result<Arc<AtomicBool>, Failure> {
    let stopped = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stopped);
    ctrlc::set_handler(move || flag.store(true, Relaxed)).cannot("handle interrupts")?;
    Ok(stopped)
}

fn note(clock: &str) -> MachineNote {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    MachineNote {
        kernel: kernel.trim().to_owned(),
        cpus: std::thread::available_parallelism().map_or(0, usize::from),
        unix_time_s: now.map_or(0, |now| now.as_secs()),
        clock: clock.to_owned(),
    }
}

/// Medians with their spread, a line per cell.
fn table(measurements: &Measurements) -> String {
    let mut text = format!(
        "{:<16} {:<16} {:<9} {:>18} {:>18}\n",
        "application", "scheduler", "company", "per second", "99 % latency"
    );
    for cell in &measurements.cells {
        let company = match cell.company {
            Company::Alone => "alone",
            Company::Together => "together",
        };
        let (throughput, p99) = match (cell.throughput(), cell.p99()) {
            (Some(t), Some(l)) => (
                format!("{:.1} ± {:.0} %", t.median, t.relative() * 100.0),
                format!("{} ± {:.0} %", latency(l.median), l.relative() * 100.0),
            ),
            _ => ("-".into(), "-".into()),
        };
        text += &format!(
            "{:<16} {:<16} {company:<9} {throughput:>18} {p99:>18}\n",
            cell.application, cell.scheduler
        );
        for fault in &cell.faults {
            text += &format!("  repetition {}: {}\n", fault.repetition + 1, fault.what);
        }
    }
    text
}

fn latency(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => human(Duration::from_secs_f64(s)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use giveway_metasched::measurements::{Blame, FaultNote, Reading};

    #[test]
    fn the_table_shows_spread_and_faults() {
        let mut all = Measurements::new(MachineNote::default());
        let cell = all.cell_mut("web", "eevdf", Company::Alone);
        for throughput_per_s in [90.0, 100.0, 110.0] {
            cell.runs.push(Reading {
                throughput_per_s,
                p99_s: 0.0125,
            });
        }
        let cell = all.cell_mut("web", "scx_x", Company::Together);
        cell.faults.push(FaultNote {
            repetition: 0,
            blame: Blame::Scheduler,
            what: "stalled".into(),
        });
        let text = table(&all);
        assert!(text.contains("100.0 ± 10 %"), "{text}");
        assert!(text.contains("12.50 ms ± 0 %"), "{text}");
        assert!(text.contains("repetition 1: stalled"), "{text}");
    }

    #[test]
    fn a_budget_is_some_time() {
        assert_eq!(minutes("1.5"), Ok(1.5));
        for bad in ["0", "-1", "nan", "inf", "soon"] {
            assert!(minutes(bad).is_err(), "{bad}");
        }
    }
}
