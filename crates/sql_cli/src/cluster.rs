//! `giveway sql cluster`: a server and its workers on this machine, started and stopped
//! together.
//!
//! Workers are processes of this program. Each has a pipe as its standard input, and ends
//! when the pipe does: so they end with the server, however that ends.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use clap::Args;
use giveway_command::{Context, Failure};

use super::measure::{self, MeasureArgs};
use super::serve::{self, ServeArgs};

/// Start a server and its workers on this machine, to try a cluster
///
/// The workers are further processes, and end with this one. A cluster is of use on several
/// machines: run 'giveway sql worker' on each, and 'giveway sql serve --workers'.
#[derive(Args, Debug)]
pub(crate) struct ClusterArgs {
    /// How many workers to start
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    machines: u16,
    #[command(flatten)]
    measure: MeasureArgs,
    #[command(flatten)]
    serve: ServeArgs,
}

/// Serves until it is told to stop.
pub(super) fn cluster(mut args: ClusterArgs) -> Result<(), Failure> {
    let machine = &mut args.serve.engine.machine;
    if machine.others().next().is_some() {
        return Err(Failure::usage(
            "these workers would be started here: give --machines",
        ));
    }
    let machines = usize::from(args.machines);
    if let Some(rounds) = args.measure.measure {
        return measured(&args, rounds);
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = machine.threads().unwrap_or((cpus / machines).max(1) as u16);
    let mut command = Command::new(std::env::current_exe().cannot("find this program")?);
    command
        .args([
            "worker",
            "--with-parent",
            "--listen",
            "127.0.0.1:0",
            "--workers",
        ])
        .arg(threads.to_string())
        .args(machine.kind_as_args())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // Ctrl-C is for the server, whose queries may need them for a while.
        .process_group(0);
    args.serve.login.pass_on(&mut command);
    args.serve.cluster.pass_on(&mut command);
    if let Some(bytes) = machine.memory_bytes() {
        // The server has a part, too.
        let each = bytes / (machines + 1);
        command.arg("--memory").arg(format!("{}K", each / 1024));
        machine.set_memory(each);
    }
    let workers: Vec<Child> = (0..machines)
        .map(|_| command.spawn().cannot("start a worker"))
        .collect::<Result<_, _>>()?;
    // All start at the same time.
    let mut workers = Workers(workers);
    for worker in &mut workers.0 {
        machine.add_other(address(worker)?);
    }
    let served = serve::serve(&args.serve);
    drop(workers);
    served
}

/// Measures on a cluster that is a further process, which ends with this one.
fn measured(args: &ClusterArgs, rounds: u32) -> Result<(), Failure> {
    // The same arguments, but for those of the measurement.
    let mut command = Command::new(std::env::current_exe().cannot("find this program")?);
    command.args(["cluster", "--with-parent", "--listen", "127.0.0.1:0"]);
    command.args(["--machines", &args.machines.to_string()]);
    command.args(args.serve.engine.as_args());
    args.serve.login.pass_on(&mut command);
    args.serve.cluster.pass_on(&mut command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut servers = Workers(vec![command.spawn().cannot("start the cluster")?]);
    let url = format!("grpc://{}", address(&mut servers.0[0])?);
    let said = measure::measure(&args.measure, rounds, &url, &args.serve.login)?;
    Ok(write!(io::stdout(), "{said}")?)
}

/// Processes that end when this does.
struct Workers(Vec<Child>);

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.0 {
            drop(worker.stdin.take());
        }
        for worker in &mut self.0 {
            let _ = worker.wait();
        }
    }
}

/// Where a worker listens: its first line.
fn address(worker: &mut Child) -> Result<String, Failure> {
    let out = worker.stdout.take().expect("it is a pipe");
    let mut line = String::new();
    (BufReader::new(out).read_line(&mut line)).cannot("read what a worker says")?;
    let address = line.trim().strip_prefix("listening on grpc://");
    address
        .map(str::to_owned)
        .ok_or_else(|| Failure::new("a worker has not started: it says above why"))
}
