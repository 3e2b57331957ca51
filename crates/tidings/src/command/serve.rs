//! `tidings serve`: runs the server until it is told to stop.

use std::pin::pin;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use crate::cli::ServeArgs;
use crate::command::{CommandError, load_to_serve};
use tidings_config::Config;
use tidings_sender::Tenure;
use tidings_server::cluster::{Node, Resignation};
use tidings_server::output::{Kind, remark};
use tidings_server::{FILE_RESERVE, Frontend, Loader, ServeError, Server, memory_sum, raise_file_limit, stopped};
use tidings_telemetry::chain;

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
    let (mut config, mut faults) = (loaded.config, faults);
    let mut node = tokio::select! {
        node = Node::connect(&config) => node?,
        () = &mut stop => return Ok(()),
    };
    let mut kept = None;
    loop {
        let seed = args.seed.as_deref();
        let server = match &mut node {
            None => start(Server::start_with(config.clone(), faults.clone(), load.clone(), seed)).await?,
            Some(node) => {
                let frontend = match kept.take() {
                    Some(frontend) => frontend,
                    None => tokio::select! {
                        frontend = node.join(config.clone(), faults.clone(), load.clone()) => frontend?,
                        () = &mut stop => {
                            node.leave(None).await;
                            return Ok(());
                        }
                    },
                };
                match follow(node, &frontend, &mut stop, &mut hangup).await {
                    Followed::Leads(tenure) => start(Server::lead(frontend, seed, Some(tenure))).await?,
                    end @ (Followed::Anew | Followed::Stop) => {
                        let is_told = matches!(end, Followed::Stop);
                        if is_told {
                            remark(Kind::Note, "stopping; a second signal stops at once");
                        }
                        let ((), is_told) = finish(frontend.stop(), is_told, &mut stop).await?;
                        if is_told {
                            node.leave(None).await;
                            return Ok(());
                        }
                        continue;
                    }
                }
            }
        };
        announce(&server);
        let end = serve(&server, &mut node, &mut stop, &mut hangup).await;
        match &end {
            None => {
                remark(Kind::Note, "stopping; a second signal stops at once, and nothing that was acknowledged is lost")
            }
            Some(Resignation::Asked(_)) => {
                remark(Kind::Note, "another server is to lead; this one follows as a standby")
            }
            Some(_) => remark(Kind::Note, "stopping, to follow as a standby"),
        }
        let (left, is_told) = retire(server, &mut node, end, &mut stop).await?;
        if is_told {
            if let (Some(frontend), Some(node)) = (left, &mut node) {
                finish(frontend.stop(), true, &mut stop).await?;
                node.leave(None).await;
            }
            return Ok(());
        }
        if left.is_none() {
            match load() {
                Ok(now) => (config, faults) = now,
                Err(error) => {
                    tracing::error!(error = chain(&error), "The configuration is wrong now; the former one holds")
                }
            }
        }
        kept = left;
    }
}

/// Ends what only one server does. In a cluster another one leads then. Returns what still serves clients, if something does, and
/// whether the process is told to stop.
async fn retire(
    mut server: Server,
    node: &mut Option<Node>,
    end: Option<Resignation>,
    stop: &mut (impl Future<Output = ()> + Unpin),
) -> Result<(Option<Frontend>, bool), CommandError> {
    let is_told = end.is_none();
    match (node, end) {
        (Some(node), end @ (None | Some(Resignation::Asked(_)))) => {
            let handed = node.hand_over(server, end.and_then(Resignation::to), !is_told);
            let (frontend, is_told) = finish(handed, is_told, stop).await?;
            Ok((frontend?, is_told))
        }
        (node, end) => {
            if end.is_some() {
                server.hurry();
            }
            let ((), is_told) = finish(server.stop(), is_told, stop).await?;
            if let Some(node) = node {
                node.leave(None).await;
            }
            Ok((None, is_told))
        }
    }
}

/// Waits until the server has stopped. Returns also whether the process is told to stop; the signal after that cuts it short.
async fn finish<T>(
    stopping: impl Future<Output = T>,
    mut is_told: bool,
    stop: &mut (impl Future<Output = ()> + Unpin),
) -> Result<(T, bool), CommandError> {
    let (mut stopping, mut next) = (pin!(stopping), pin!(stopped()?));
    loop {
        tokio::select! {
            stopped = &mut stopping => return Ok((stopped, is_told)),
            () = &mut *stop, if !is_told => {
                is_told = true;
                next.set(stopped()?); // This was the first one.
            }
            () = &mut next, if is_told => return Err(CommandError::Failed("cut short".to_owned())),
        }
    }
}

/// Waits until the server has started. Opening a large store takes seconds, in which nobody watches for signals, so that one
/// ends the process.
async fn start(starting: impl Future<Output = Result<Server, ServeError>>) -> Result<Server, CommandError> {
    let (early, mut watching) = (stopped()?, JoinSet::new());
    watching.spawn(async move {
        early.await;
        remark(Kind::Note, "stopped while starting; nothing that was acknowledged is lost");
        std::process::exit(0);
    });
    Ok(starting.await?)
}

/// Why a server does not follow any more.
enum Followed {
    /// It is to lead.
    Leads(Tenure),
    /// It has to join the cluster anew.
    Anew,
    /// The process is told to stop.
    Stop,
}

/// Follows the leader of the cluster.
async fn follow(
    node: &Node,
    frontend: &Frontend,
    stop: &mut (impl Future<Output = ()> + Unpin),
    hangup: &mut Signal,
) -> Followed {
    let mut led = pin!(node.leads(frontend));
    loop {
        tokio::select! {
            tenure = &mut led => return tenure.map_or(Followed::Anew, Followed::Leads),
            () = &mut *stop => return Followed::Stop,
            Some(()) = hangup.recv() => drop(frontend.reload()),
        }
    }
}

/// Says where the server listens.
fn announce(server: &Server) {
    let (public, api, tls) = (server.addr(), server.api_addr(), server.tls_addr());
    let scheme = if tls == Some(public) { "https" } else { "http" };
    let secure = tls.filter(|tls| *tls != public).map_or_else(String::new, |tls| format!(" and https://{tls}"));
    let inside = if api == public { String::new() } else { format!(" with the API on http://{api}") };
    remark(Kind::Note, format!("listening on {scheme}://{public}{secure}{inside} (Ctrl-C stops)"));
}

/// Runs the server until it is told to stop, or should not lead its cluster any more.
async fn serve(
    server: &Server,
    node: &mut Option<Node>,
    stop: &mut (impl Future<Output = ()> + Unpin),
    hangup: &mut Signal,
) -> Option<Resignation> {
    let mut resigned = pin!(async {
        match node {
            Some(node) => node.resigns(server.store()).await,
            None => std::future::pending().await,
        }
    });
    loop {
        tokio::select! {
            () = &mut *stop => return None,
            Some(()) = hangup.recv() => server.reload(),
            resignation = &mut resigned => return Some(resignation),
        }
    }
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
