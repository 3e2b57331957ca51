//! How a server starts and stops, for `serve` alone and in a cluster.

use std::pin::pin;

use tidings_server::output::{Kind, remark};
use tidings_server::{ServeError, Server, stopped};
use tokio::task::JoinSet;

use crate::command::CommandError;

/// Waits until the server has started. Opening a large store takes seconds, in which nobody watches for signals, so that one
/// ends the process.
pub(super) async fn start(starting: impl Future<Output = Result<Server, ServeError>>) -> Result<Server, CommandError> {
    let (early, mut watching) = (stopped()?, JoinSet::new());
    watching.spawn(async move {
        early.await;
        remark(Kind::Note, "stopped while starting; nothing that was acknowledged is lost");
        std::process::exit(0);
    });
    Ok(starting.await?)
}

/// Says where the server listens.
pub(super) fn announce(server: &Server) {
    let (public, api, tls) = (server.addr(), server.api_addr(), server.tls_addr());
    let scheme = if tls == Some(public) { "https" } else { "http" };
    let secure = tls.filter(|tls| *tls != public).map_or_else(String::new, |tls| format!(" and https://{tls}"));
    let inside = if api == public { String::new() } else { format!(" with the API on http://{api}") };
    remark(Kind::Note, format!("listening on {scheme}://{public}{secure}{inside} (Ctrl-C stops)"));
}

/// Waits until the server has stopped. Returns also whether the process is told to stop; the signal after that cuts it short.
pub(super) async fn finish<T>(
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
