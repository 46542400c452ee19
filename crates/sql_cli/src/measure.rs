//! `giveway sql cluster --measure`: what a background stream costs short queries.
//!
//! ```text
//!   round 1: alone ─ beside      round 2: beside ─ alone      round 3: …
//!            Q6 ×N   Q6 ×N, and clients that ask long queries in the background, for ever
//! ```
//!
//! The client asks the next query when it has the last row of the one before. A round's
//! ratio is that of its medians, so what changes slowly on the machine is in both.
//!
//! Known weakness: all machines of the cluster are processes that share the CPUs of this
//! one. Each orders its own work by tier; between them Linux does, which knows tiers only
//! while UFS is loaded.

use std::fmt::Write as _;
use std::io;
use std::time::{Duration, Instant};

use clap::Args;
use giveway_command::{Context, Failure};
use giveway_sql::shell::{Screen, Shell};
use giveway_sql::tpch::{self, Scale};

use super::LoginArgs;

/// Which queries count, and which are in the background: those with joins, sorts and groups
/// of all orders.
const SHORT: usize = 6;
const LONG: [usize; 4] = [9, 18, 21, 1];

/// How much is measured.
#[derive(Args, Debug)]
pub(super) struct MeasureArgs {
    /// Instead of serving, measure on TPC-H tables ('giveway sql tpch') how much short
    /// queries are slowed by a background stream, in so many rounds
    #[arg(long, value_name = "ROUNDS", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) measure: Option<u32>,
    /// Short queries of each half of a round
    #[arg(long, default_value_t = 20, value_name = "N", requires = "measure",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    queries: u32,
    /// Clients of the background stream
    #[arg(long, default_value_t = 2, value_name = "N", requires = "measure",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    streams: u32,
}

/// Writes nothing.
struct Nowhere;

impl Screen for Nowhere {
    fn write(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn note(&mut self, _: &str) {}

    fn progress(&mut self, _: Option<(Option<f64>, Duration)>) {}

    fn clear(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A client of the cluster.
struct Client(Shell);

impl Client {
    async fn connect(url: &str, login: &LoginArgs, tier: &str) -> Result<Client, Failure> {
        let password = login.password.as_deref().unwrap_or_default();
        let shell = Shell::connect(url, &login.user, password).await;
        let mut client = Client(shell.map_err(Failure::new)?);
        client.ask(&format!("SET giveway.tier = '{tier}'")).await?;
        Ok(client)
    }

    /// Asks a statement; how long it has taken to the last row.
    async fn ask(&mut self, sql: &str) -> Result<Duration, Failure> {
        let began = Instant::now();
        let asked = self.0.line(&format!("{sql};"), &mut Nowhere).await;
        asked.map_err(Failure::new)?;
        Ok(began.elapsed())
    }
}

/// Half of a round.
struct Half {
    ms: Vec<f64>,
    /// Background queries that have ended.
    background: u32,
}

/// Measures at a server; what there is to say.
pub(super) fn measure(
    args: &MeasureArgs,
    rounds: u32,
    url: &str,
    login: &LoginArgs,
) -> Result<String, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .cannot("start a runtime")?;
    runtime.block_on(async {
        let short = query(SHORT)?;
        let long: Vec<String> = LONG
            .iter()
            .map(|&number| query(number))
            .collect::<Result<_, _>>()?;
        // What is read first is not in the caches.
        let mut client = Client::connect(url, login, "time_sensitive").await?;
        for sql in long.iter().chain([&short]) {
            client.ask(sql).await?;
        }
        let (mut alone, mut beside, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let mut background = 0;
        for round in 0..rounds {
            let mut halves = [None, None];
            for turn in 0..2 {
                let is_beside = (round + turn) % 2 == 1;
                let streams = if is_beside { args.streams } else { 0 };
                let half = half(url, login, &short, &long, args.queries, streams).await?;
                eprintln!(
                    "round {}, {}: median {:.1} ms",
                    round + 1,
                    if is_beside { "beside" } else { "alone" },
                    median(&half.ms)
                );
                halves[usize::from(is_beside)] = Some(half);
            }
            let [Some(one), Some(other)] = halves else {
                unreachable!("each half has had its turn")
            };
            ratios.push(median(&other.ms) / median(&one.ms));
            background += other.background;
            alone.extend(one.ms);
            beside.extend(other.ms);
        }
        Ok(report(&alone, &beside, &ratios, background))
    })
}

fn query(number: usize) -> Result<String, Failure> {
    let scale = Scale::new(1.0).map_err(Failure::new)?;
    tpch::query(number, scale).map_err(Failure::new)
}

async fn half(
    url: &str,
    login: &LoginArgs,
    short: &str,
    long: &[String],
    queries: u32,
    streams: u32,
) -> Result<Half, Failure> {
    let ended = std::cell::Cell::new(0);
    let ended = &ended;
    let stream = |first: usize| async move {
        let mut client = Client::connect(url, login, "background").await?;
        for sql in long.iter().cycle().skip(first) {
            client.ask(sql).await?;
            ended.set(ended.get() + 1);
        }
        Ok::<(), Failure>(())
    };
    let background = async {
        let mut streams: Vec<_> = (0..streams as usize).map(|n| Box::pin(stream(n))).collect();
        // All of them go on for ever, or one fails.
        std::future::poll_fn(|context| {
            for stream in &mut streams {
                if let std::task::Poll::Ready(failed) = stream.as_mut().poll(context) {
                    return std::task::Poll::Ready(failed);
                }
            }
            std::task::Poll::Pending
        })
        .await
    };
    let foreground = async {
        if streams > 0 {
            // The stream is at work before it is measured.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let mut client = Client::connect(url, login, "time_sensitive").await?;
        let mut ms = Vec::new();
        for _ in 0..queries {
            ms.push(client.ask(short).await?.as_secs_f64() * 1e3);
        }
        Ok::<_, Failure>(ms)
    };
    let ms = tokio::select! {
        failed = background, if streams > 0 => return Err(failed.expect_err("it has no end")),
        ms = foreground => ms?,
    };
    Ok(Half {
        ms,
        background: ended.get(),
    })
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => f64::NAN,
        (count, half) if count % 2 == 0 => (sorted[half - 1] + sorted[half]) / 2.0,
        (_, half) => sorted[half],
    }
}

fn report(alone: &[f64], beside: &[f64], ratios: &[f64], background: u32) -> String {
    let mut text = String::new();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    // Writing into memory does not fail.
    let _ = writeln!(
        text,
        "short queries alone:      median {:.1} ms",
        median(alone)
    );
    let _ = writeln!(
        text,
        "beside the stream:        median {:.1} ms; {background} background queries ended",
        median(beside)
    );
    let _ = writeln!(
        text,
        "ratio of medians:         {:.2}; by round {:.2}, from {least:.2} to {most:.2}",
        median(beside) / median(alone),
        median(ratios)
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_has_medians_their_ratio_and_its_spread() {
        let text = report(&[2.0, 1.0, 3.0], &[2.0, 4.0], &[1.0, 2.0, 1.4], 7);
        for part in [
            "median 2.0 ms",
            "median 3.0 ms; 7",
            "1.50; by round 1.40, from 1.00 to 2.00",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
