//! `tidings subscribe`: follows channels over WebSocket, as any client does, and prints every publication once.
//!
//! This is the driver: socket, clock, terminal. The [`Follower`] decides what the messages mean. After a broken
//! connection the driver connects again, with full jitter between tries (at most [`BACKOFF_MAX`]), and continues from
//! the last offset of each channel. It ends on Ctrl-C, after `--count` publications, or when the server says that
//! another try is useless.

mod follower;

use std::time::Duration;

use tidings_telemetry::chain;

use self::follower::{Follower, Refused, Step};
use super::{CommandError, load_to_serve, named, plain};
use crate::cli::SubscribeArgs;
use tidings_client::{ServerUrl, Socket, SocketError};
use tidings_config::Secret;
use tidings_server::output::{Kind, line, remark};
use tidings_types::Format;

/// The upper end of the first pause; its mean is half of this.
const BACKOFF_MIN: Duration = Duration::from_millis(200);
/// The longest pause between two tries.
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// How long connecting may take, and how late a ping of the server may be (SDKs allow the same).
const PATIENCE: Duration = Duration::from_secs(10);

/// Why one connection has ended.
enum Ended {
    /// It broke; another connection may work.
    Broken(String),
    /// Everything asked for was printed.
    Done,
}

/// Follows until told to stop.
pub(crate) async fn run(args: SubscribeArgs) -> Result<(), CommandError> {
    let server = match named(&args.server)? {
        Some(server) => server,
        None => plain(&load_to_serve(&args.server.file)?.0.config.http)?,
    };
    let token = args.token.map(Secret::new);
    let mut following =
        Following { follower: Follower::new(args.channels, token), left: args.count, backoff: BACKOFF_MIN };
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => Ok(interrupted?),
        ended = following.run(&server) => ended,
    }
}

struct Following {
    follower: Follower,
    /// Publications still to print; `None` is no end.
    left: Option<u64>,
    backoff: Duration,
}

impl Following {
    async fn run(&mut self, server: &ServerUrl) -> Result<(), CommandError> {
        loop {
            match self.connection(server).await? {
                Ended::Done => return Ok(()),
                Ended::Broken(reason) => {
                    let pause = self.backoff.mul_f64(rand::random::<f64>());
                    remark(Kind::Note, format!("{reason}; trying again in {} ms", pause.as_millis()));
                    self.backoff = BACKOFF_MAX.min(self.backoff * 2);
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// One connection from handshake to end.
    async fn connection(&mut self, server: &ServerUrl) -> Result<Ended, CommandError> {
        let mut socket = match tokio::time::timeout(PATIENCE, Socket::open(server, Format::Json)).await {
            Ok(Ok(socket)) => socket,
            Ok(Err(error)) => return Ok(Ended::Broken(format!("cannot connect to {server}: {}", chain(&error)))),
            Err(_) => return Ok(Ended::Broken(format!("no answer from {server}"))),
        };
        if let Err(error) = socket.send(self.follower.connect()).await {
            return Ok(Ended::Broken(chain(&error)));
        }
        loop {
            // The server pings at the interval that it stated. A longer silence means a dead connection.
            let patience = self.follower.ping_interval().unwrap_or_default() + PATIENCE;
            let text = match tokio::time::timeout(patience, socket.frame()).await {
                Err(_) => return Ok(Ended::Broken("the server has been silent for too long".to_owned())),
                Ok(Err(error)) => return ended(&error),
                Ok(Ok(text)) => text,
            };
            let steps = match self.follower.on_frame(text.as_str()) {
                Ok(steps) => steps,
                Err(Refused::ForGood(reason)) => return Err(CommandError::Failed(reason)),
                Err(Refused::ForNow(reason)) => return Ok(Ended::Broken(reason)),
            };
            if let Some(ended) = self.perform(steps, &mut socket).await? {
                return Ok(ended);
            }
        }
    }

    async fn perform(&mut self, steps: Vec<Step>, socket: &mut Socket) -> Result<Option<Ended>, CommandError> {
        for step in steps {
            match step {
                Step::Connected => self.backoff = BACKOFF_MIN,
                Step::Gap(text) => line(text)?,
                Step::Send(text) => {
                    if let Err(error) = socket.send(text).await {
                        return Ok(Some(Ended::Broken(chain(&error))));
                    }
                }
                Step::Publication(text) => {
                    if self.left == Some(0) {
                        return Ok(Some(Ended::Done));
                    }
                    line(text)?;
                    self.left = self.left.map(|left| left - 1);
                }
            }
        }
        Ok((self.left == Some(0)).then_some(Ended::Done))
    }
}

/// What the end of a connection means. The close codes 3500–3999, 4500–4999 and "too large" are final, as for every SDK.
fn ended(error: &SocketError) -> Result<Ended, CommandError> {
    match error {
        SocketError::Closed { code: 1009 | 3500..=3999 | 4500..=4999, .. } => {
            Err(CommandError::Failed(error.to_string()))
        }
        _ => Ok(Ended::Broken(chain(error))),
    }
}

#[cfg(test)]
mod tests;
