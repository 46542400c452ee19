//! `giveway meta tune`: which policy with which base timeslice.

use std::io::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use clap::Args;
use giveway_metasched::application::Commands;
use giveway_metasched::config::Config;
use giveway_metasched::kernel::rise;
use giveway_metasched::measurements::Measurements;
use giveway_metasched::policy::Policy;
use giveway_metasched::system::System;
use giveway_metasched::tune::{Followed, Plan, Tuned, tune as tune_all};

use super::ConfigArgs;
use super::measure::{interrupt, minutes};
use giveway_command::{Context, Failure};

/// Find the policy and the base timeslice that are best for all applications
///
/// Runs all applications' benchmarks together, under EEVDF and then under each
/// policy with each base timeslice, and says what to write into the
/// configuration. Needs measurements: run 'giveway meta measure' first.
#[derive(Args, Debug)]
pub(super) struct TuneArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Base timeslices to try, in milliseconds
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = length,
          default_values_t = [200.0, 600.0, 1800.0, 5400.0])]
    base_timeslices: Vec<f64>,
    /// How often each is tried
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
    /// Stop after this many minutes, wherever it is
    #[arg(long, default_value_t = 120.0, value_name = "MINUTES", value_parser = minutes)]
    budget: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn length(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|ms| (1.0..=86_400_000.0).contains(ms))
        .ok_or_else(|| "write a number of milliseconds from 1 to a day's".into())
}

/// Tunes; answers with the exit status.
pub(super) fn tune(args: &TuneArgs) -> Result<u8, Failure> {
    super::entitled()?;
    let config: Config = args.config.read()?;
    let measured = Measurements::read(&config.measurements)
        .map_err(|error| Failure::new(error).with_remedy("run 'giveway meta measure' first"))?;
    let ms = |ms: &f64| Duration::from_secs_f64(ms / 1e3);
    let base_timeslices: Vec<Duration> = args.base_timeslices.iter().map(ms).collect();
    let dir = tempfile::tempdir().cannot("make a temporary directory")?;
    let mut host = System::new(&dir.path().join("log"))?;
    // To notice a scheduler that stalls, and to end it.
    rise();
    let stopped = interrupt()?;
    let plan = Plan {
        config: &config,
        policies: &Policy::ALL,
        base_timeslices: &base_timeslices,
        repetitions: args.repetitions as usize,
        budget: Duration::from_secs_f64(args.budget * 60.0),
    };
    let tuned = tune_all(
        &plan,
        &measured,
        &mut host,
        &mut Commands::new(dir.path()),
        &|| stopped.load(Relaxed),
        &mut |followed, fault| match fault {
            None => eprintln!("{}", name(followed)),
            Some(what) => eprintln!("  {what}"),
        },
    )?;
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &tuned)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", text(&tuned))?;
    }
    out.flush()?;
    if stopped.load(Relaxed) {
        return Ok(130);
    }
    Ok(u8::from(tuned.best().is_none()))
}

fn name(followed: Followed) -> String {
    match followed {
        None => "eevdf".to_owned(),
        Some((policy, base)) => format!("{}, {} ms", policy.word(), base.as_millis()),
    }
}

fn text(tuned: &Tuned) -> String {
    let mut text = format!("{:<34} {:>8} {:>17}\n", "followed", "score", "from, to");
    for (tried, score) in tuned.tried.iter().zip(&tuned.scores) {
        let name = name(tried.followed);
        text += &match score {
            Some(s) => format!(
                "{name:<34} {:>8.3} {:>8.3} {:>8.3}\n",
                s.median, s.min, s.max
            ),
            None => format!("{name:<34} {:>8}\n", "-"),
        };
        for fault in &tried.faults {
            text += &format!("  {fault}\n");
        }
    }
    let eevdf = tuned.scores.first().copied().flatten();
    let Some((policy, base)) = tuned.best() else {
        return text + "no policy could be followed\n";
    };
    let best = tuned
        .tried
        .iter()
        .position(|tried| tried.followed == Some((policy, base)))
        .and_then(|at| tuned.scores[at]);
    // Runs of EEVDF scatter about 1: what does not reach beyond them may be chance.
    if let (Some(eevdf), Some(best)) = (eevdf, best)
        && best.min <= eevdf.max
    {
        text += "warning: the best is not beyond what EEVDF itself reaches: it may be chance\n";
    }
    text + &format!(
        "policy = \"{}\"\nbase_timeslice_ms = {}\n",
        policy.word(),
        base.as_millis()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use giveway_metasched::measurements::Spread;
    use giveway_metasched::tune::Tried;

    fn tuned(best: [f64; 2]) -> Tuned {
        let tried = |followed, faults: &[&str]| Tried {
            followed,
            readings: Vec::new(),
            faults: faults.iter().map(|fault| fault.to_string()).collect(),
        };
        let base = Duration::from_millis(600);
        Tuned {
            tried: vec![
                tried(None, &[]),
                tried(Some((Policy::RoundRobin, base)), &["x stalled"]),
                tried(Some((Policy::DeltaWeighted, base)), &[]),
            ],
            scores: vec![Spread::of([0.99, 1.01]), None, Spread::of(best)],
        }
    }

    #[test]
    fn the_answer_is_what_to_write_into_the_configuration() {
        let text = text(&tuned([1.1, 1.2]));
        assert!(text.ends_with("policy = \"delta_weighted\"\nbase_timeslice_ms = 600\n"));
        assert!(text.contains("round_robin, 600 ms                       -\n  x stalled"));
        assert!(!text.contains("chance"), "{text}");
    }

    #[test]
    fn results_within_the_spread_are_marked() {
        assert!(text(&tuned([1.0, 1.2])).contains("may be chance"));
    }
}
