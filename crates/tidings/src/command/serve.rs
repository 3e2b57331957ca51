//! `tidings serve`: runs the server until it is told to stop.

#[cfg(feature = "cluster")]
mod cluster;
mod running;

use std::pin::pin;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

use self::running::{announce, finish, start};
use crate::cli::ServeArgs;
use crate::command::{CommandError, load_to_serve};
use tidings_config::Config;
use tidings_server::output::{Kind, remark};
use tidings_server::{FILE_RESERVE, Loader, Server, memory_sum, raise_file_limit, stopped};

pub(crate) async fn run(args: ServeArgs) -> Result<(), CommandError> {
    let (loaded, faults) = load_to_serve(&args.file).inspect_err(|error| {
        if let Some(format) = error.log_format() {
            tidings_server::log::speak(format.into());
        }
    })?;
    tidings_server::log::speak(loaded.config.log.format.into()); // Before `init`, so that an error about the filter has this format too.
    tidings_server::log::init(loaded.config.log.format.into(), &loaded.config.log.filter)
        .map_err(|error| CommandError::Usage(format!("log.filter: {error}")))?;
    let (http, data_dir) = (&loaded.config.http, loaded.config.data_dir.display());
    let internal_listen = http.internal_listen.map(tracing::field::display);
    tracing::info!(version = env!("CARGO_PKG_VERSION"), listen = %http.listen, internal_listen, %data_dir, "Starting");
    for warning in &loaded.warnings {
        tracing::warn!(%warning, "Configuration");
    }
    let memory = memory_sum(&loaded.config);
    tracing::debug!(
        standing.bytes = memory.standing_bytes(),
        full.bytes = memory.bytes(),
        "Memory when every count is at its limit"
    );
    allow_files(&loaded.config);
    // First of all: without a handler, these signals would end the process.
    let mut hangup = signal(SignalKind::hangup())?;
    let mut stop = pin!(stopped()?);
    let file = args.file.clone();
    let load: Loader = Arc::new(move || load_to_serve(&file).map(|(loaded, faults)| (loaded.config, faults)));
    let (config, seed) = (loaded.config, args.seed.as_deref());
    #[cfg(feature = "cluster")]
    if !config.cluster.servers.is_empty() {
        return cluster::run((config, faults, load), seed, &mut stop, &mut hangup).await;
    }
    let server = start(Server::start_with(config, faults, load, seed)).await?;
    announce(&server);
    loop {
        tokio::select! {
            () = &mut stop => break,
            Some(()) = hangup.recv() => server.reload(),
        }
    }
    remark(Kind::Note, "stopping; a second signal stops at once, and nothing that was acknowledged is lost");
    finish(server.stop(), true, &mut stop).await?;
    Ok(())
}

/// Raises the limit of open files as far as the system allows, since every connection is one. Warns if that is less
/// than the number of clients that the configuration allows.
fn allow_files(config: &Config) {
    let clients = config.client.connection_count_max as u64;
    // Each listener admits as many connections as the edge.
    let others = [config.http.internal_listen, config.http.tls.listen];
    let listener_count = 1 + others.iter().flatten().count() as u64;
    let needed = clients * (1 + listener_count) + FILE_RESERVE;
    if let Some(text) = too_few_files(raise_file_limit(needed), clients) {
        tracing::warn!("{text}");
    }
}

/// The warning, if `allowed` open files are too few for so many clients.
fn too_few_files(allowed: u64, clients: u64) -> Option<String> {
    let room = allowed.saturating_sub(FILE_RESERVE);
    (room < clients).then(|| {
        format!(
            "The system allows {allowed} open files, enough for {room} of the {clients} clients that \
             client.connection_count_max allows: raise its limit (ulimit -n, or LimitNOFILE= of systemd) or lower the \
             setting"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_are_a_matter_only_where_clients_would_be_kept_out() {
        assert_eq!(too_few_files(FILE_RESERVE + 100_000, 100_000), None);
        let text = too_few_files(20_000, 100_000).unwrap();
        assert!(text.contains("18976 of the 100000 clients") && text.contains("ulimit -n"), "{text}");
    }
}
