//! `giveway metrics`: UFS's counters, for Prometheus and similar systems.

use std::io::{self, ErrorKind, Write as _, stdout};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use giveway_watch::metrics::listed::Listed;
use giveway_watch::metrics::{exposition, server};
use giveway_watch::source::{SOCKET, Source as _};

use giveway_command::{Context, Failure};

use crate::top::{source, unanswered};

/// Print what UFS has counted as OpenMetrics text, or serve it
///
/// Totals since UFS was loaded, by tier, CPU and cgroup; of waits for the kernel's locks,
/// which a kernel with CFL counts, since the cgroup has the controller. While UFS is not loaded
/// a scrape finds giveway_up 0 and nothing else.
#[derive(Args, Debug)]
pub(crate) struct MetricsArgs {
    /// Serve http://ADDRESS:PORT/metrics instead of printing once
    ///
    /// Any client that can connect can read it, names of cgroups included.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Where UFS serves its statistics
    #[arg(long, default_value = SOCKET, value_name = "SOCKET")]
    socket: PathBuf,
}

/// What helps where nothing can listen.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::AddrInUse => "choose another port, or stop what listens there (ss -ltnp)",
        ErrorKind::AddrNotAvailable => {
            "choose an address of this machine (ip addr), or 0.0.0.0 for all of them"
        }
        ErrorKind::PermissionDenied => "choose a port from 1024 on: those below are root's",
        _ => "choose another address or port",
    }
}

/// Prints or serves the metrics.
pub(crate) fn metrics(args: &MetricsArgs) -> Result<(), Failure> {
    let (mut source, _) = source(&args.socket);
    let Some(address) = args.listen else {
        let sample = source.sample().map_err(unanswered)?;
        let text = exposition(Some(&Listed::default().thinned(sample, Duration::ZERO)));
        return Ok(stdout().write_all(text.as_bytes())?);
    };
    let listener = TcpListener::bind(address).map_err(|error| {
        Failure::new(format_args!("cannot listen at {address}: {error}"))
            .with_remedy(remedy(&error))
    })?;
    // The port may have been 0: any that is free.
    let address = listener.local_addr().cannot("tell the port")?;
    eprintln!("giveway: metrics are at http://{address}/metrics");
    server::serve(listener, source).cannot(format_args!("go on at {address}"))
}
