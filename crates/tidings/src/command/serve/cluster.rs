//! `tidings serve` in a cluster: the server follows, leads when it is its turn, and follows again.

use std::path::Path;
use std::pin::pin;

use tidings_config::{Config, Problem};
use tidings_sender::Tenure;
use tidings_server::cluster::{Node, Resignation};
use tidings_server::output::{Kind, remark};
use tidings_server::{Frontend, Loader, Server};
use tidings_telemetry::chain;
use tokio::signal::unix::Signal;

use super::running::{announce, finish, start};
use crate::command::CommandError;

/// Runs the server until it is told to stop.
pub(super) async fn run(
    (mut config, mut faults, load): (Config, Vec<Problem>, Loader),
    seed: Option<&Path>,
    stop: &mut (impl Future<Output = ()> + Unpin),
    hangup: &mut Signal,
) -> Result<(), CommandError> {
    let mut node = tokio::select! {
        node = Node::connect(&config) => node?,
        () = &mut *stop => return Ok(()),
    };
    let mut kept = None;
    loop {
        let frontend = match kept.take() {
            Some(frontend) => frontend,
            None => tokio::select! {
                frontend = node.join(config.clone(), faults.clone(), load.clone()) => frontend?,
                () = &mut *stop => {
                    node.leave(None).await;
                    return Ok(());
                }
            },
        };
        let server = match follow(&node, &frontend, stop, hangup).await {
            Followed::Leads(tenure) => start(Server::lead(frontend, seed, Some(tenure))).await?,
            end @ (Followed::Anew | Followed::Stop) => {
                let is_told = matches!(end, Followed::Stop);
                if is_told {
                    remark(Kind::Note, "stopping; a second signal stops at once");
                }
                let ((), is_told) = finish(frontend.stop(), is_told, stop).await?;
                if is_told {
                    node.leave(None).await;
                    return Ok(());
                }
                continue;
            }
        };
        announce(&server);
        let end = lead(&server, &mut node, stop, hangup).await;
        say_why(end.as_ref());
        let (left, is_told) = retire(server, &mut node, end, stop).await?;
        if is_told {
            if let Some(frontend) = left {
                finish(frontend.stop(), true, stop).await?;
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

/// Says why a server does not lead any more; `None`: the process is told to stop.
fn say_why(end: Option<&Resignation>) {
    let told = match end {
        None => "stopping; a second signal stops at once, and nothing that was acknowledged is lost",
        Some(Resignation::Asked(_)) => "another server is to lead; this one follows as a standby",
        Some(_) => "stopping, to follow as a standby",
    };
    remark(Kind::Note, told);
}

/// Ends what only one server does. Another one leads then. Returns what still serves clients, if something does, and
/// whether the process is told to stop.
async fn retire(
    mut server: Server,
    node: &mut Node,
    end: Option<Resignation>,
    stop: &mut (impl Future<Output = ()> + Unpin),
) -> Result<(Option<Frontend>, bool), CommandError> {
    let is_told = end.is_none();
    match end {
        None | Some(Resignation::Asked(_)) => {
            let handed = node.hand_over(server, end.and_then(Resignation::to), !is_told);
            let (frontend, is_told) = finish(handed, is_told, stop).await?;
            Ok((frontend?, is_told))
        }
        Some(Resignation::Demoted | Resignation::Deposed) => {
            server.hurry();
            let ((), is_told) = finish(server.stop(), is_told, stop).await?;
            node.leave(None).await;
            Ok((None, is_told))
        }
    }
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

/// Runs the server until it is told to stop, or should not lead its cluster any more.
async fn lead(
    server: &Server,
    node: &mut Node,
    stop: &mut (impl Future<Output = ()> + Unpin),
    hangup: &mut Signal,
) -> Option<Resignation> {
    let mut resigned = pin!(node.resigns(server.store()));
    loop {
        tokio::select! {
            () = &mut *stop => return None,
            Some(()) = hangup.recv() => server.reload(),
            resignation = &mut resigned => return Some(resignation),
        }
    }
}
