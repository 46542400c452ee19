//! By how much a claim about UFS holds: each claim with many seeds.
//!
//! On the lab's lockstep clock one seed is one run, exactly. A bound that was met with
//! one seed may be missed after any change that moves the run: a rebuilt program, a
//! package in the image. So a bound is chosen from a distribution. This command runs
//! the tests of `scx_ufs` that boot a guest once with each seed, and prints for each
//! claim how often it held, and the extremes of every number it printed:
//!
//! ```text
//! claim                                        held   numbers, least to greatest
//! cpu_max_on_many_tasks_stalls_none            20/20   1.1..1.9, 1, 0..0, 40
//! ```
//!
//! Every line that the probe printed is kept in the file that `--out` names.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// Which claims, with which seeds.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Tests to run, by a part of their names; all without any
    tests: Vec<String>,
    /// How many seeds
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// The targets that the tests are in
    #[arg(long = "target", default_values = ["vm", "faults"])]
    targets: Vec<String>,
    /// Tests to leave out, by a part of their names
    #[arg(long)]
    skip: Vec<String>,
    /// How many guests at once
    #[arg(long, short, default_value_t = 2)]
    jobs: usize,
    /// Where the probe's lines are kept, each behind its seed
    #[arg(long, default_value = "target/seeds.txt")]
    out: PathBuf,
}

/// What one claim came to over all seeds.
#[derive(Debug, Default, PartialEq)]
struct Outcomes {
    held: u64,
    tried: u64,
    /// Least and greatest of each number, in the order in which they are printed.
    ranges: Vec<(f64, f64)>,
}

/// Runs the tests with each seed and prints the distribution.
///
/// # Errors
/// A claim failed with a seed, or no claim was tried.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let mut file = File::create(&args.out)
        .with_context(|| format!("{}: choose another file with --out", args.out.display()))?;
    let mut claims: BTreeMap<String, Outcomes> = BTreeMap::new();
    for seed in args.first..args.first + args.seeds {
        let start = Instant::now();
        let mut tests = Command::new("cargo")
            .args(["test", "--locked", "--no-fail-fast", "-p", "scx_ufs"])
            .args(args.targets.iter().flat_map(|target| ["--test", target]))
            .args(["--", "--nocapture", "--test-threads"])
            .arg(args.jobs.to_string())
            .args(args.skip.iter().flat_map(|test| ["--skip", test]))
            .args(&args.tests)
            .env("GIVEWAY_SEED", seed.to_string())
            .current_dir(root)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cargo test")?;
        let stdout = tests.stdout.take().expect("it is piped");
        for line in BufReader::new(stdout).lines() {
            let line = line?;
            let Some((claim, held, numbers)) = verdict(&line) else {
                continue;
            };
            writeln!(file, "{seed} {line}")?;
            claims.entry(claim).or_default().add(held, &numbers);
        }
        // What failed has been read from what the tests printed.
        tests.wait()?;
        eprintln!("seed {seed}: {} s", start.elapsed().as_secs());
    }
    if claims.is_empty() {
        bail!(
            "no claim was tried: name tests of `cargo test -p scx_ufs --test {}`",
            args.targets.join(" --test ")
        );
    }
    println!("{:<60} {:>6}  numbers, least to greatest", "claim", "held");
    for (claim, outcomes) in &claims {
        println!(
            "{claim:<60} {:>6}  {}",
            outcomes.counted(),
            outcomes.spread()
        );
    }
    match claims
        .values()
        .all(|outcomes| outcomes.held == outcomes.tried)
    {
        true => Ok(()),
        false => bail!("a claim failed; its lines are in {}", args.out.display()),
    }
}

/// A line of the probe's: the claim, whether it held, and the numbers in what it says.
fn verdict(line: &str) -> Option<(String, bool, Vec<f64>)> {
    let (held, rest) = match line.strip_prefix("PASS ") {
        Some(rest) => (true, rest),
        None => (false, line.strip_prefix("FAIL ")?),
    };
    let (claim, said) = rest.split_once(": ")?;
    Some((claim.to_owned(), held, numbers(said)))
}

/// The numbers of a text, as far as they stand alone: `p99` and `0x5eed` are names.
fn numbers(text: &str) -> Vec<f64> {
    text.split(|c: char| c.is_whitespace() || "(),;:[]".contains(c))
        .filter_map(|word| word.trim_end_matches('.').parse().ok())
        .filter(|number: &f64| number.is_finite())
        .collect()
}

impl Outcomes {
    fn add(&mut self, held: bool, numbers: &[f64]) {
        self.tried += 1;
        self.held += u64::from(held);
        for (at, &number) in numbers.iter().enumerate() {
            match self.ranges.get_mut(at) {
                Some((least, greatest)) => {
                    *least = least.min(number);
                    *greatest = greatest.max(number);
                }
                None => self.ranges.push((number, number)),
            }
        }
    }

    fn counted(&self) -> String {
        format!("{}/{}", self.held, self.tried)
    }

    fn spread(&self) -> String {
        let range = |&(least, greatest): &(f64, f64)| match least == greatest {
            true => format!("{least}"),
            false => format!("{least}..{greatest}"),
        };
        let ranges: Vec<String> = self.ranges.iter().map(range).collect();
        ranges.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_claim_spread_over_its_seeds() {
        let mut outcomes = Outcomes::default();
        for line in [
            "PASS crowd: background 1.1 % of 1 %, 0 of 40 stood still; p99 7 us",
            "FAIL crowd: background 1.9 % of 1 %, 1 of 40 stood still; p99 9 us",
        ] {
            let (claim, held, numbers) = verdict(line).unwrap();
            assert_eq!(claim, "crowd");
            outcomes.add(held, &numbers);
        }
        assert_eq!(outcomes.counted(), "1/2");
        assert_eq!(outcomes.spread(), "1.1..1.9, 1, 0..1, 40, 7..9");
    }

    #[test]
    fn other_lines_say_nothing_of_a_claim() {
        assert_eq!(verdict("test loading_is_done_once ... ok"), None);
    }
}
