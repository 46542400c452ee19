//! `giveway sql serve`: the engine for other programs, over Arrow Flight SQL.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use giveway_sql::server::{Server, ServerError};
use tokio::sync::Notify;

use super::LoginArgs;
use super::session::EngineArgs;
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
    engine: EngineArgs,
    #[command(flatten)]
    login: LoginArgs,
}

/// Serves until it is told to stop.
pub(super) fn serve(args: &ServeArgs) -> Result<(), Failure> {
    // Queries run on the engine's workers; these plan, and pack rows.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .cannot("start a runtime")?;
    runtime.block_on(listen(args))
}

async fn listen(args: &ServeArgs) -> Result<(), Failure> {
    let session = args.engine.session().await?;
    let mut builder = Server::builder(session).read_only(args.read_only);
    if let Some(password) = &args.login.password {
        builder = builder.password(&args.login.user, password);
    }
    let server = builder
        .bind(args.listen)
        .await
        .map_err(|error| match error {
            ServerError::Open(_) => {
                Failure::usage(error).with_remedy("set GIVEWAY_SQL_PASSWORD, or leave out --listen")
            }
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
    let grace = Duration::from_secs(args.grace);
    server.serve(stopped, grace).await.map_err(Failure::new)
}
