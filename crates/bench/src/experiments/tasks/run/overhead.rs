//! Experiments without arrivals: right answers, single queries, lengths of tasks, and
//! what scheduling takes.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream;
use giveway_sql::{Policy, SqlError};
use giveway_tasks::simulation::{Arrival, run};
use giveway_tasks::{Decay, Pool};

use super::answers::difference;
use super::data::Sizes;
use super::failure::failed;
use super::host::{Host, block_on};
use crate::experiments::tasks::TasksBench;
use crate::experiments::tasks::arm::Arm;
use crate::experiments::tasks::kind::Kind;
use crate::experiments::tasks::row::{
    Answers, Cost, Decision, Measured, Operators, Pair, Share, Turns,
};
use crate::harness::Progress;
use crate::harness::error::Result;

/// How many queries run at a time where they run at once.
const AT_ONCE: u32 = 16;
/// How long the engine's tasks should take, ms (Section 3.1).
const T_MAX_MS: f64 = 2.0;
/// Turns of a query on each engine in `single`.
const TURNS: usize = 5;

/// All queries on the large data.
fn large() -> impl Iterator<Item = Kind> {
    Kind::all(true)
}

/// The 22 queries at scale factor 1 against the reference answers, alone and at once.
pub(super) fn answers(
    bench: &TasksBench,
    arm: Arm,
    progress: Progress<'_>,
) -> Result<Vec<Measured>> {
    let data = bench.reference_data(progress)?;
    let sizes = Sizes {
        small: data.clone(),
        large: data,
    };
    let host = Host::start(
        arm,
        bench.settings.workers,
        &bench.settings,
        &sizes,
        large(),
    )?;
    [1, AT_ONCE]
        .into_iter()
        .map(|at_a_time| {
            progress(&format!("the 22 queries, {at_a_time} at a time"));
            // At once each query is asked twice, so that there are 16 most of the time.
            let rounds = if at_a_time == 1 { 1 } else { 2 };
            let kinds = (0..rounds).flat_map(|_| large());
            let begun = Instant::now();
            let results = at_once(&host, kinds, at_a_time)?;
            let seconds = begun.elapsed().as_secs_f64();
            let wrong = results.iter().filter_map(|(kind, result)| {
                let difference = match result {
                    Ok(batches) => difference(kind.query, batches)?,
                    Err(error) => error.to_string(),
                };
                Some(format!("Q{}: {difference}", kind.query))
            });
            Ok(Measured::Answers(Answers {
                at_a_time,
                compared: results.len() as u32,
                wrong: wrong.collect(),
                seconds,
            }))
        })
        .collect()
}

type Outcome = std::result::Result<Vec<datafusion::arrow::array::RecordBatch>, SqlError>;

/// Runs queries, so many at a time: the next begins when one has ended.
fn at_once(
    host: &Host,
    kinds: impl Iterator<Item = Kind>,
    at_a_time: u32,
) -> Result<Vec<(Kind, Outcome)>> {
    let queries = kinds.map(|kind| host.query(kind).map(|query| (kind, query)));
    let queries = queries.collect::<Result<Vec<_>>>()?;
    let runs = queries
        .into_iter()
        .map(|(kind, query)| async move { (kind, host.run(query).await) });
    let results = stream::iter(runs).buffer_unordered(at_a_time as usize);
    Ok(block_on(results.collect()))
}

/// Each query of the large data alone, on our engine and on stock DataFusion, in turns,
/// each of which is first every other time.
pub(super) fn single(bench: &TasksBench, progress: Progress<'_>) -> Result<Vec<Measured>> {
    let workers = bench.settings.workers;
    let ours = bench.host(Arm::Policy(Policy::Tuned), workers, large(), progress)?;
    let stock = bench.host(Arm::Stock, workers, large(), progress)?;
    let mut pairs = Vec::new();
    for kind in large() {
        progress(&format!("Q{} alone", kind.query));
        let once = |host: &Host| -> Result<f64> {
            let query = host.query(kind)?;
            let begun = Instant::now();
            block_on(host.run(query)).map_err(|error| failed(kind, error))?;
            Ok(begun.elapsed().as_secs_f64() * 1e3)
        };
        let (mut ours_ms, mut stock_ms) = (Vec::new(), Vec::new());
        once(&ours)?;
        once(&stock)?;
        for turn in 0..TURNS {
            let order = if turn % 2 == 0 { [0, 1] } else { [1, 0] };
            for which in order {
                match which {
                    0 => ours_ms.push(once(&ours)?),
                    _ => stock_ms.push(once(&stock)?),
                }
            }
        }
        pairs.push(Pair {
            query: kind.query,
            ours_ms,
            stock_ms,
        });
    }
    Ok(vec![Measured::Single(pairs)])
}

/// Lengths of tasks, with queries alone and at once.
pub(super) fn overrun(bench: &TasksBench, progress: Progress<'_>) -> Result<Vec<Measured>> {
    let workers = bench.settings.workers;
    let turns = |at_a_time| -> Result<Measured> {
        let default = Arm::Policy(Policy::default());
        let host = bench.host(default, workers, Kind::both(), progress)?;
        progress(&format!("lengths of tasks, {at_a_time} at a time"));
        for (kind, result) in at_once(&host, Kind::both(), at_a_time)? {
            result.map_err(|error| failed(kind, error))?;
        }
        let operators = host.stats().turns.into_iter().map(|turns| Operators {
            names: turns.operators,
            tasks: turns.turns,
            longest_ms: turns.longest_ns as f64 / 1e6,
        });
        Ok(Measured::Turns(Turns {
            t_max_ms: T_MAX_MS,
            at_a_time,
            operators: operators.collect(),
        }))
    };
    [1, AT_ONCE].into_iter().map(turns).collect()
}

/// What decisions take by simulation, and what scheduling and tuning take here.
pub(super) fn cost(bench: &TasksBench, progress: Progress<'_>) -> Result<Vec<Measured>> {
    progress("decisions, by simulation");
    let decisions = [
        (1, 1),
        (1, 16),
        (1, 128),
        (2, 16),
        (8, 128),
        (32, 128),
        (128, 128),
    ]
    .map(|(workers, queries)| decision(workers, queries));
    let workers = bench.settings.workers;
    let default = Arm::Policy(Policy::default());
    let host = bench.host(default, workers, Kind::both(), progress)?;
    progress(&format!("{AT_ONCE} queries at a time, without an end"));
    let share = share(bench, &host)?;
    Ok(vec![Measured::Cost(Cost {
        decisions: decisions.into(),
        share,
    })])
}

/// Tasks of a simulated turn.
const SIMULATED_TASKS: u64 = 100_000;

fn decision(workers: u32, queries: u32) -> Decision {
    let task_ns = (T_MAX_MS * 1e6) as u64;
    let each_ns = SIMULATED_TASKS / u64::from(queries) * task_ns;
    let trace = vec![Arrival::new(0, each_ns); queries as usize];
    let pool = Pool::builder()
        .workers(workers as usize)
        .policy(Policy::Decay(Decay::INITIAL));
    let turn = |_| {
        let begun = Instant::now();
        let done = run(&pool, &trace).expect("a valid pool");
        begun.elapsed().as_secs_f64() * 1e9 / done.tasks as f64
    };
    Decision {
        workers,
        queries,
        ns: (0..TURNS).map(turn).collect(),
    }
}

/// Keeps as many queries running for as long as a trace would be played.
fn share(bench: &TasksBench, host: &Host) -> Result<Share> {
    let length = Duration::from_secs_f64(bench.seconds);
    let begun = Instant::now();
    let (before, cpu_before) = (host.stats().pool, host.cpu());
    // Rounds of all queries, until the time is over.
    let kinds: Vec<Kind> = Kind::both().collect();
    let endless = (0..).map(|number: usize| kinds[number % kinds.len()]);
    let runs = endless
        .take_while(|_| begun.elapsed() < length)
        .map(|kind| async move {
            let result = host.run(host.planned(kind).await?).await;
            result.map(drop).map_err(|error| failed(kind, error))
        });
    let runs = stream::iter(runs).buffer_unordered(AT_ONCE as usize);
    let results: Vec<Result<()>> = block_on(runs.collect());
    results.into_iter().collect::<Result<()>>()?;
    let pool = host.stats().pool;
    let since = |number: fn(&giveway_tasks::WorkerStats) -> u64| -> u64 {
        let sum = |pool: &giveway_tasks::PoolStats| pool.workers.iter().map(number).sum::<u64>();
        sum(&pool) - sum(&before)
    };
    Ok(Share {
        span_s: begun.elapsed().as_secs_f64(),
        queries: AT_ONCE,
        busy_s: since(|worker| worker.busy_ns) as f64 / 1e9,
        tuning_s: (pool.tuning_ns - before.tuning_ns) as f64 / 1e9,
        cpu_s: host.cpu().since_s(&cpu_before),
        decisions: since(|worker| worker.decisions),
        tasks: since(|worker| worker.tasks),
        tunings: pool.tunings - before.tunings,
    })
}
