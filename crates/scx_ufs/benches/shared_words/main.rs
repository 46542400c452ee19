//! What the words that CPUs share cost at a switch, by layout and number of CPUs.
//!
//! ```text
//! cargo bench -p scx_ufs --bench shared_words -- --json FILE
//! ```
//!
//! The lab's clock counts instructions, so there a word that 96 CPUs write costs as much as
//! one that a single CPU writes. Here each thread, pinned to a CPU, does what the callbacks
//! do to shared words, and nothing else of theirs. Three sequences:
//!
//! - `background`: a slice ends, and the group's next task runs
//! - `wake-up`: a time-sensitive task wakes up, waits for a CPU of its tier, runs, sleeps
//! - `burst`: a time-sensitive task preempts a background task, and sleeps; the group's
//!   next task runs
//!
//! Three layouts:
//!
//! - `before`: words lie where the compiler put them; each charge advances a clock
//! - `lines`: words lie as `__begins_line` in `src/bpf/ctx.bpf.h` places them
//! - `batches`: likewise, and each CPU advances the clocks in batches
//!
//! All tasks of a tier are in one group. Each run is taken to use `--run-us` of CPU time,
//! which only decides how often a batch is full. Before each callback and charge a CPU does
//! private work, in a sequence 0 ns, which shows what the words allow at most, and
//! `--private-ns`, about what a switch takes. Its time, measured alone, is subtracted.
//!
//! All layouts take turns in short rounds. A round ends for all CPUs when the first has
//! done its part. One whose CPUs did not run at the same time, since something else ran on
//! one of them, measures another thing: it is left out, and counted. The table has the
//! median round and the middle half. Without `--bench`, as under `cargo test --benches`,
//! there are few rounds, so that this does not rot. Sums are checked at the end.
//!
//! Not measured: the kernel's own shared words, narrow groups, hints, limits, caches that
//! tasks use, and what UFS does to private memory.

mod callbacks;
mod layout;

use std::fmt::Write as _;
use std::fs;
use std::hint::spin_loop;
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, value_parser};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::json;

use callbacks::{Cpu, Pace};
use layout::{BATCHES, BEFORE, LINES, Memory};

/// Sequences that end a round, and between two looks at its end.
const PART: usize = 200;
const CHUNK: usize = 16;
/// Part of a round for which all its CPUs must run.
const TOGETHER: f64 = 0.9;
/// Rounds below which a median says little.
const ROUNDS_MIN: usize = 11;

type Sequence = fn(&Cpu<'_>);

const SEQUENCES: [(&str, Sequence); 3] = [
    ("background", |cpu| cpu.background()),
    ("wake-up", |cpu| cpu.wake_up()),
    ("burst", |cpu| cpu.burst()),
];

/// Measure what the words that CPUs share cost at a switch.
#[derive(Parser)]
struct Opts {
    /// Write all rounds as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// CPU time that each run is taken to use.
    #[arg(long, default_value_t = 50, value_name = "US", value_parser = value_parser!(u64).range(1..=100_000))]
    run_us: u64,
    /// Private work in each sequence, beside none.
    #[arg(long, default_value_t = 2000, value_name = "NS", value_parser = value_parser!(u64).range(1..=1_000_000))]
    private_ns: u64,
    /// Rounds of each measurement.
    #[arg(long, default_value_t = 201, value_parser = value_parser!(u32).range(ROUNDS_MIN as i64..=10_000))]
    rounds: u32,
    /// Given by cargo bench.
    #[arg(long, hide = true)]
    bench: bool,
    /// Given by what lists tests.
    #[arg(long, hide = true)]
    list: bool,
}

// ---- Rounds ----

/// A round, and how its CPUs begin and end it together.
struct Round {
    sequence: Sequence,
    /// Private work of a sequence: how often, and steps of each time.
    paces: u64,
    steps: u64,
    /// `None`: the private work alone.
    layout: Option<usize>,
    come: AtomicUsize,
    done: AtomicBool,
}

/// What one CPU did in a round.
struct Part {
    begin: Instant,
    end: Instant,
    sequences: usize,
}

impl Round {
    fn run(&self, memories: &[Memory], number: usize, run_ns: u64) -> Part {
        let pace = Pace::new(self.steps, number);
        let cpu = self.layout.map(|layout| Cpu {
            memory: &memories[layout],
            number,
            run_ns,
            pace: &pace,
        });
        self.come.fetch_add(1, SeqCst);
        // Spins, to begin within nanoseconds of the others: each has a CPU of its own.
        while self.come.load(SeqCst) < memories[0].cpus {
            spin_loop();
        }
        let mut sequences = 0;
        let begin = Instant::now();
        while !self.done.load(Relaxed) {
            for _ in 0..CHUNK {
                match &cpu {
                    Some(cpu) => (self.sequence)(cpu),
                    None => (0..self.paces).for_each(|_| pace.take()),
                }
            }
            sequences += CHUNK;
            if sequences >= PART {
                self.done.store(true, Relaxed);
            }
        }
        Part {
            begin,
            end: Instant::now(),
            sequences,
        }
    }
}

/// Nanoseconds for a sequence in a round, if its CPUs ran at the same time.
fn nanoseconds(parts: &[&Part]) -> Option<f64> {
    let begins = || parts.iter().map(|part| part.begin);
    let ends = || parts.iter().map(|part| part.end);
    let all = ends().max()? - begins().min()?;
    let together = ends().min()?.saturating_duration_since(begins().max()?);
    let of = |part: &&Part| (part.end - part.begin).as_nanos() as f64 / part.sequences as f64;
    (together.as_secs_f64() >= TOGETHER * all.as_secs_f64())
        .then(|| parts.iter().map(of).sum::<f64>() / parts.len() as f64)
}

/// Steps of the pace that take a microsecond.
fn steps_per_us() -> u64 {
    const STEPS: u64 = 1000;
    const TIMES: u64 = 1000;
    let pace = Pace::new(STEPS, 0);
    let times = (0..11).map(|_| {
        let begin = Instant::now();
        (0..TIMES).for_each(|_| pace.take());
        begin.elapsed().as_nanos() as u64
    });
    STEPS * TIMES * 1000 / times.min().unwrap_or_default().max(1)
}

/// Runs the rounds on these CPUs, one after the other, a thread on each.
fn run(cpus: &[usize], run_ns: u64, memories: &[Memory], rounds: &[Round]) -> Vec<Option<f64>> {
    let parts: Vec<Vec<Part>> = std::thread::scope(|scope| {
        let start = |(number, &cpu): (usize, &usize)| {
            scope.spawn(move || {
                let mut set = CpuSet::new();
                let pinned = set.set(cpu);
                pinned
                    .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
                    .unwrap_or_else(|error| panic!("cannot pin to CPU {cpu}: {error}"));
                let parts = rounds
                    .iter()
                    .map(|round| round.run(memories, number, run_ns));
                parts.collect()
            })
        };
        let threads: Vec<_> = cpus.iter().enumerate().map(start).collect();
        let ends = threads.into_iter().map(|thread| thread.join());
        ends.map(|parts| parts.expect("a thread ends")).collect()
    });
    let in_round = |at: usize| parts.iter().map(|of| &of[at]).collect::<Vec<_>>();
    (0..rounds.len())
        .map(|at| nanoseconds(&in_round(at)))
        .collect()
}

// ---- Measurements ----

/// Of one sequence, layout, number of CPUs and amount of private work.
struct Cell {
    sequence: &'static str,
    layout: &'static str,
    cpus: usize,
    private_ns: u64,
    /// In order of size; the private work is subtracted.
    ns: Vec<f64>,
}

/// What lies at this part of a sorted list.
fn at(sorted: &[f64], part: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * part) as usize]
}

/// All measurements on these CPUs; with how many rounds each began.
fn cells(opts: &Opts, cpus: &[usize], begun: usize, per_us: u64) -> Result<Vec<Cell>> {
    let memories = [BEFORE, LINES, BATCHES].map(|layout| Memory::new(layout, cpus.len()));
    let layouts = || [None, Some(0), Some(1), Some(2)];
    let mut cells = Vec::new();
    for (name, sequence) in SEQUENCES {
        let paces = callbacks::paces(sequence);
        for private_ns in [0, opts.private_ns] {
            let steps = private_ns * per_us / 1000 / paces;
            let round = |layout| Round {
                sequence,
                paces,
                steps,
                layout,
                come: AtomicUsize::new(0),
                done: AtomicBool::new(false),
            };
            let rounds: Vec<Round> = (0..begun).flat_map(|_| layouts().map(round)).collect();
            let taken = run(cpus, opts.run_us * 1000, &memories, &rounds);
            let of = |which: usize| {
                let mut ns: Vec<f64> = taken
                    .iter()
                    .skip(which)
                    .step_by(4)
                    .flatten()
                    .copied()
                    .collect();
                ns.sort_by(f64::total_cmp);
                ns
            };
            let alone = of(0);
            let enough = |ns: &[f64]| {
                if opts.bench && ns.len() < ROUNDS_MIN {
                    bail!(
                        "{} CPUs ran together in {} of {begun} rounds: stop what else runs here, \
                         or name CPUs with taskset",
                        cpus.len(),
                        ns.len()
                    );
                }
                Ok(())
            };
            let mut less = 0.0;
            // Without private work a round is too short for its CPUs to be together.
            if steps > 0 {
                enough(&alone)?;
                less = alone.get(alone.len() / 2).copied().unwrap_or(0.0);
            }
            for (which, memory) in (1..).zip(&memories) {
                let ns = of(which);
                enough(&ns)?;
                cells.push(Cell {
                    sequence: name,
                    layout: memory.layout.name,
                    cpus: cpus.len(),
                    private_ns,
                    ns: ns.iter().map(|ns| ns - less).collect(),
                });
            }
        }
    }
    memories.iter().for_each(Memory::check);
    Ok(cells)
}

// ---- Output ----

/// 1, 2, 4 and so on, and all.
fn counts(all: usize) -> Vec<usize> {
    let powers = (0..).map(|n| 1 << n).take_while(|&n| n < all);
    powers.chain([all]).collect()
}

/// A block for each sequence, a line for each number of CPUs and amount of private work.
fn table(cells: &[Cell]) -> String {
    let mut text = String::new();
    for (sequence, _) in SEQUENCES {
        let _ = writeln!(text, "{sequence}");
        let of: Vec<&Cell> = cells
            .iter()
            .filter(|cell| cell.sequence == sequence)
            .collect();
        for row in of.chunks(3) {
            let _ = write!(text, "{:>6}{:>9}", row[0].cpus, row[0].private_ns);
            for cell in row.iter().filter(|cell| !cell.ns.is_empty()) {
                let half = format!("({:.0} to {:.0})", at(&cell.ns, 0.25), at(&cell.ns, 0.75));
                let _ = write!(text, "{:>8.0} {half:<12}", at(&cell.ns, 0.5));
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
    }
    text
}

/// What a file says behind this name.
fn field(file: &str, name: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let value = value.unwrap_or_default();
    value.trim_start_matches([' ', '\t', ':']).to_owned()
}

fn main() -> Result<()> {
    let opts = Opts::parse();
    if opts.list {
        return Ok(());
    }
    let begun = if opts.bench { opts.rounds as usize } else { 3 };
    let allowed = sched_getaffinity(Pid::from_raw(0)).context("which CPUs may be used")?;
    let is_allowed = |&cpu: &usize| allowed.is_set(cpu).unwrap_or(false);
    let cpus: Vec<usize> = (0..CpuSet::count()).filter(is_allowed).collect();
    let per_us = steps_per_us();
    let mut all = Vec::new();
    for count in counts(cpus.len()) {
        all.extend(cells(&opts, &cpus[..count], begun, per_us)?);
    }
    let model = field("/proc/cpuinfo", "model name");
    let kernel = field("/proc/sys/kernel/osrelease", "");
    println!(
        "ns for the shared words of a sequence: median round (middle half)\n\
         {model}, {} CPUs, Linux {kernel}; {} of {} rounds had their CPUs\n\n\
         {:>6}{:>9}{:>9}{:>20}{:>23}",
        cpus.len(),
        all.iter().map(|cell| cell.ns.len()).sum::<usize>(),
        all.len() * begun,
        "CPUs",
        "private",
        "before",
        "lines",
        "batches"
    );
    print!("{}", table(&all));
    if let Some(file) = &opts.json {
        let rows = all.iter().map(|cell| {
            json!({
                "sequence": cell.sequence,
                "layout": cell.layout,
                "cpus": cell.cpus,
                "private_ns": cell.private_ns,
                "ns": cell.ns.iter().map(|ns| ns.round() as i64).collect::<Vec<_>>(),
            })
        });
        let whole = json!({
            "cpu_model": model,
            "kernel": kernel,
            "cpus": cpus,
            "run_us": opts.run_us,
            "rounds": begun,
            "rows": rows.collect::<Vec<_>>(),
        });
        fs::write(file, whole.to_string() + "\n")
            .with_context(|| format!("cannot write {}: name another file", file.display()))?;
    }
    Ok(())
}
