//! `tidings serve`: the server, until it is told to stop.

use crate::cli::ServeArgs;
use crate::command::output::{Kind, remark};
use crate::command::{CommandError, load};
use crate::config::memory_sum;
use crate::server::Server;

pub(crate) async fn run(args: ServeArgs) -> Result<(), CommandError> {
    let loaded = load(&args.file)?;
    tidings_telemetry::log::init(loaded.config.log.format.into(), &loaded.config.log.filter)
        .map_err(|error| CommandError::Usage(format!("log.filter: {error}")))?;
    for warning in &loaded.warnings {
        tracing::warn!(%warning, "Configuration");
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = memory_sum(&loaded.config, cores);
    tracing::info!(standing.bytes = memory.standing_bytes(), full.bytes = memory.bytes(), "Memory, every count at its limit");
    let server = Server::start(loaded.config).await?;
    remark(Kind::Note, format!("listening on http://{} (Ctrl-C stops)", server.addr()));
    stopped().await?;
    server.stop().await;
    Ok(())
}

/// Waits for Ctrl-C or SIGTERM.
pub(crate) async fn stopped() -> std::io::Result<()> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted,
        _ = terminate.recv() => Ok(()),
    }
}
