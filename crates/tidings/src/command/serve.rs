//! `tidings serve`: the server, until it is told to stop.

use std::pin::pin;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::ServeArgs;
use crate::command::output::{Kind, chain, remark};
use crate::command::{CommandError, load};
use crate::config::memory_sum;
use crate::server::{FILE_RESERVE, Server};

pub(crate) async fn run(args: ServeArgs) -> Result<(), CommandError> {
    let loaded = load(&args.file)?;
    crate::log::init(loaded.config.log.format.into(), &loaded.config.log.filter)
        .map_err(|error| CommandError::Usage(format!("log.filter: {error}")))?;
    for warning in &loaded.warnings {
        tracing::warn!(%warning, "Configuration");
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = memory_sum(&loaded.config, cores);
    tracing::info!(
        standing.bytes = memory.standing_bytes(),
        full.bytes = memory.bytes(),
        "Memory, every count at its limit"
    );
    // Each listener admits as many connections as the edge.
    let listener_count = 1 + u64::from(loaded.config.http.internal_listen.is_some());
    allow_files(loaded.config.client.connection_count_max as u64 * (1 + listener_count));
    let mut hangup = signal(SignalKind::hangup())?; // From the start: it would end a server that does not know it yet.
    let server = Server::start_with(loaded.config, args.seed.as_deref()).await?;
    remark(Kind::Note, format!("listening on http://{} (Ctrl-C stops)", server.addr()));
    let mut stop = pin!(stopped());
    loop {
        tokio::select! {
            stopped = &mut stop => break stopped?,
            Some(()) = hangup.recv() => match load(&args.file) {
                Ok(loaded) => server.reload(&loaded.config),
                Err(error) => tracing::error!(error = chain(&error), "Configuration is wrong, nothing is reloaded"),
            },
        }
    }
    remark(Kind::Note, "stopping; again cuts it short, which loses nothing that was acknowledged");
    tokio::select! {
        () = server.stop() => Ok(()),
        again = stopped() => Err(again.err().map_or_else(|| CommandError::Failed("cut short".to_owned()), Into::into)),
    }
}

/// Every connection is an open file: takes as many as the system lets us have, and says so when that is too few.
fn allow_files(connection_count: u64) {
    let needed = connection_count + FILE_RESERVE;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return;
    }
    let allowed = maximum.map_or(needed, |maximum| maximum.min(needed));
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), maximum }) {
        tracing::warn!(%error, "The limit of open files cannot be raised");
    }
    if allowed < needed {
        tracing::warn!(
            allowed,
            needed,
            "Open files: fewer than client.connection_count_max asks for, so connections are refused earlier"
        );
    }
}

/// Waits for Ctrl-C or SIGTERM.
pub(crate) async fn stopped() -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted,
        _ = terminate.recv() => Ok(()),
    }
}
