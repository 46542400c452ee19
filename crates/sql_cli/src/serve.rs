//! `giveway sql serve` and `giveway sql worker`: the engine for other programs, over Arrow
//! Flight SQL, on one machine or as part of a cluster.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use giveway_sql::server::{Builder, Server, ServerError};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use super::LoginArgs;
use super::session::{EngineArgs, MachineArgs};
use giveway_command::{Context, Failure};

/// Serve Parquet and CSV files to database clients
///
/// The protocol is Arrow Flight SQL: ADBC and JDBC drivers speak it, and so does
/// 'giveway sql --connect'. Ctrl-C or SIGTERM ends the server when the queries
/// that run have ended; a second one ends it at once.
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// Where to listen; port 0 is any free one
    #[arg(long, default_value = "127.0.0.1:50051", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Refuse statements that change or write something
    #[arg(long)]
    read_only: bool,
    /// For how many seconds queries may go on after the first Ctrl-C
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    grace: u64,
    #[command(flatten)]
    parent: ParentArgs,
    #[command(flatten)]
    pub(super) engine: EngineArgs,
    #[command(flatten)]
    pub(super) login: LoginArgs,
    #[command(flatten)]
    background: BackgroundArgs,
    #[command(flatten)]
    pub(super) cluster: ClusterLoginArgs,
}

/// A second login, with fewer rights.
#[derive(Args, Debug)]
struct BackgroundArgs {
    /// The name that clients log in with whose queries are in the background
    #[arg(long, default_value = "background", value_name = "NAME")]
    background_user: String,
    /// Their password; without one there is no such login
    #[arg(
        long,
        env = "GIVEWAY_SQL_BACKGROUND_PASSWORD",
        hide_env_values = true,
        value_name = "WORD"
    )]
    background_password: Option<String>,
}

/// How the servers of a cluster log in at each other.
#[derive(Args, Debug)]
pub(super) struct ClusterLoginArgs {
    /// The password of the servers of a cluster; without one they log in like clients, and
    /// clients may do what they do
    #[arg(
        long,
        env = "GIVEWAY_SQL_CLUSTER_PASSWORD",
        hide_env_values = true,
        value_name = "WORD"
    )]
    cluster_password: Option<String>,
}

/// The name that goes with it.
const CLUSTER_USER: &str = "giveway-cluster";

impl ClusterLoginArgs {
    /// What to log in with at other servers, if a password is asked for at all.
    pub(super) fn at_others<'a>(&'a self, login: &'a LoginArgs) -> Option<(&'a str, &'a str)> {
        let own = self.cluster_password.as_deref();
        let clients = login.password.as_deref();
        own.map(|password| (CLUSTER_USER, password))
            .or_else(|| clients.map(|password| (login.user.as_str(), password)))
    }

    /// The same for a further process.
    pub(super) fn pass_on(&self, command: &mut std::process::Command) {
        if let Some(password) = &self.cluster_password {
            command.env("GIVEWAY_SQL_CLUSTER_PASSWORD", password);
        }
    }

    fn lock(&self, server: Builder) -> Builder {
        match &self.cluster_password {
            Some(password) => server.cluster_password(CLUSTER_USER, password),
            None => server,
        }
    }
}

/// For a server that another process has started.
#[derive(Args, Debug)]
struct ParentArgs {
    /// End when standard input does
    #[arg(long, hide = true)]
    with_parent: bool,
}

impl ParentArgs {
    fn watch(&self) {
        if self.with_parent {
            std::thread::spawn(|| {
                let _ = io::copy(&mut io::stdin(), &mut io::sink());
                std::process::exit(0);
            });
        }
    }
}

/// Run parts of queries for a 'giveway sql serve --workers'
///
/// All workers of a cluster and its server have the same version, the same
/// GIVEWAY_SQL_CLUSTER_PASSWORD beside GIVEWAY_SQL_PASSWORD (without the first, the same
/// --user and GIVEWAY_SQL_PASSWORD), and see the same files under the same names.
#[derive(Args, Debug)]
pub(crate) struct WorkerArgs {
    /// Where to listen; port 0 is any free one
    #[arg(long, default_value = "127.0.0.1:50052", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// For how many seconds queries may go on after the first Ctrl-C
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    grace: u64,
    #[command(flatten)]
    parent: ParentArgs,
    #[command(flatten)]
    engine: MachineArgs,
    #[command(flatten)]
    login: LoginArgs,
    #[command(flatten)]
    cluster: ClusterLoginArgs,
}

/// Serves until it is told to stop.
pub(super) fn serve(args: &ServeArgs) -> Result<(), Failure> {
    runtime()?.block_on(async {
        args.parent.watch();
        let others = args.cluster.at_others(&args.login);
        let session = args.engine.session(others).await?;
        let mut server = Server::builder(session).read_only(args.read_only);
        let BackgroundArgs {
            background_user,
            background_password,
        } = &args.background;
        if let Some(password) = background_password {
            server = server.background_password(background_user, password);
        }
        let server = args.cluster.lock(server);
        listen(server, args.listen, args.grace, &args.login).await
    })
}

/// Works until it is told to stop.
pub(super) fn work(args: &WorkerArgs) -> Result<(), Failure> {
    runtime()?.block_on(async {
        let session = args.engine.engine(None)?.session();
        let server = Server::builder(session).read_only(true).worker(true);
        args.parent.watch();
        let server = args.cluster.lock(server);
        listen(server, args.listen, args.grace, &args.login).await
    })
}

/// Plans are dropped there, each in one call.
const STACK_BYTES: usize = 16 << 20;

/// Queries run on the engine's workers; these plan, and pack rows.
fn runtime() -> Result<Runtime, Failure> {
    // A connection is a descriptor, and so is a file. What cannot be had is done without.
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()
        .cannot("start a runtime")
}

async fn listen(
    mut server: Builder,
    address: SocketAddr,
    grace: u64,
    login: &LoginArgs,
) -> Result<(), Failure> {
    if let Some(password) = &login.password {
        server = server.password(&login.user, password);
    }
    let server = server.bind(address).await.map_err(|error| match error {
        ServerError::Open(_) => {
            Failure::usage(error).with_remedy("set GIVEWAY_SQL_PASSWORD, or leave out --listen")
        }
        ServerError::NoPassword => Failure::usage(error).with_remedy("set GIVEWAY_SQL_PASSWORD"),
        ServerError::Bind { .. } => Failure::new(error).with_remedy("choose another --listen"),
        error => Failure::new(error),
    })?;

    let stop = Arc::new(Notify::new());
    let signalled = Arc::clone(&stop);
    let mut is_second = false;
    ctrlc::set_handler(move || {
        if is_second {
            std::process::exit(super::INTERRUPTED.into());
        }
        is_second = true;
        signalled.notify_one();
    })
    .cannot("handle interrupts")?;

    // The program that started this reads where to connect.
    let mut out = io::stdout();
    writeln!(out, "listening on grpc://{}", server.address())?;
    out.flush()?;
    let stopped = async move {
        stop.notified().await;
        eprintln!("stopping: waiting for the queries that run (Ctrl-C: at once)");
    };
    let grace = Duration::from_secs(grace);
    server.serve(stopped, grace).await.map_err(Failure::new)
}
