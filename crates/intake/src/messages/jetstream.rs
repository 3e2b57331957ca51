//! Events from a stream of NATS JetStream: each message of a durable consumer is an event.
//!
//! The source pulls messages from a consumer that it makes if it is not there, publishes their events, and acknowledges
//! the messages. If the server crashes in between, NATS delivers them again; the events have the same ids, made from the
//! numbers that the stream has given the messages, so each is sent once. Several servers may use one consumer. A message
//! that can never be an event is terminated, so NATS does not deliver it again; NATS tells of it in an advisory.
//!
//! Bounds: [`MESSAGE_COUNT_MAX`] messages at a time, of [`EVENT_BYTES_MAX`] bytes; a larger one is terminated.

mod fence;

use std::sync::Arc;
use std::time::Duration;

use async_nats::ConnectOptions;
use async_nats::jetstream::consumer::pull::Config as PullConfig;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer};
use async_nats::jetstream::{self, AckKind};
use futures_util::StreamExt as _;
use tidings_types::Backoff;
use tokio::time::{sleep, timeout};

use self::fence::Fence;
use super::desk::{Desk, EVENT_BYTES_MAX, Fate, MESSAGE_COUNT_MAX, Message};
use crate::status::{Counts, WrongEntry};

/// How long connecting may take, the look-up of names included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long NATS waits for the acknowledgement before it delivers a message again.
const ACK_WAIT: Duration = Duration::from_secs(60);
/// Messages that the client keeps before they are read; of those that are pulled at a time there are fewer.
const WAITING_COUNT_MAX: usize = 4 * MESSAGE_COUNT_MAX;
/// After failures.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));

/// Where the stream is.
#[derive(Debug, Clone)]
pub struct JetStreamConfig {
    /// The servers; checked by [`check_server`](crate::check_server).
    pub servers: Vec<String>,
    /// The authorities that may have signed the servers' certificates.
    pub tls: Arc<rustls::ClientConfig>,
    /// The content of a credentials file (`.creds`).
    pub credentials: Option<String>,
    /// The stream.
    pub stream: String,
    /// The durable consumer; it is made if it is not there.
    pub consumer: String,
    /// The subjects of the stream that are read; `None`: all. Counts only when the consumer is made.
    pub filter: Option<String>,
}

/// What is wrong with the stream or the connection.
#[derive(Debug, thiserror::Error)]
enum JetStreamError {
    #[error("the credentials cannot be read")]
    Credentials(#[source] std::io::Error),
    #[error("cannot connect to NATS: {0}")]
    Connect(#[from] async_nats::ConnectError),
    #[error("no door to NATS can be opened")]
    Fence(#[source] std::io::Error),
    #[error("{0}")]
    Refused(String),
    #[error("NATS did not answer within {} s", CONNECT_TIMEOUT.as_secs())]
    Silent,
    #[error("the stream {stream} cannot be read: {reason}")]
    Stream { stream: String, reason: String },
    #[error("messages cannot be pulled: {0}")]
    Pull(String),
}

/// Reads the stream until it is dropped.
pub(crate) async fn run(config: JetStreamConfig, desk: Desk) {
    let mut failed = 0_u32;
    loop {
        let mut pulled = false;
        let Err(error) = read(&config, &desk, &mut pulled).await;
        failed = if pulled { 1 } else { failed.saturating_add(1) };
        desk.tracker.failed(&error.to_string());
        sleep(PAUSES.pause(failed, rand::random())).await;
    }
}

/// Reads the stream until something fails. `pulled`: it has worked.
async fn read(
    config: &JetStreamConfig,
    desk: &Desk,
    pulled: &mut bool,
) -> Result<std::convert::Infallible, JetStreamError> {
    let options = match &config.credentials {
        Some(text) => ConnectOptions::with_credentials(text).map_err(JetStreamError::Credentials)?,
        None => ConnectOptions::new(),
    };
    let fence = Fence::open(&config.servers, &config.tls).await.map_err(JetStreamError::Fence)?;
    let options = options.name("tidings").ignore_discovered_servers(); // They would be spoken to without the fence.
    let options = options.subscription_capacity(WAITING_COUNT_MAX);
    let reading = async {
        let connecting = timeout(CONNECT_TIMEOUT, options.connect(fence.doors()));
        let client = connecting.await.map_err(|_| JetStreamError::Silent)??;
        pull(config, client, desk, pulled).await
    };
    let Err(error) = reading.await;
    Err(fence.why().map_or(error, JetStreamError::Refused))
}

/// Pulls messages until something fails.
async fn pull(
    config: &JetStreamConfig,
    client: async_nats::Client,
    desk: &Desk,
    pulled: &mut bool,
) -> Result<std::convert::Infallible, JetStreamError> {
    let failed = |error: &dyn std::fmt::Display| JetStreamError::Pull(error.to_string());
    let consumer = consumer(config, client).await?;
    let stream = consumer.stream().max_messages_per_batch(MESSAGE_COUNT_MAX).messages().await;
    let mut chunks = stream.map_err(|error| failed(&error))?.ready_chunks(MESSAGE_COUNT_MAX);
    desk.tracker.looked();
    *pulled = true;
    while let Some(chunk) = chunks.next().await {
        let messages = chunk.into_iter().collect::<Result<Vec<_>, _>>().map_err(|error| failed(&error))?;
        settle(messages, desk).await?;
    }
    Err(failed(&"the stream of messages has ended"))
}

/// The durable consumer. One that is there stays as its operator has made it.
async fn consumer(config: &JetStreamConfig, client: async_nats::Client) -> Result<PullConsumer, JetStreamError> {
    let failed = |reason: &dyn std::fmt::Display| JetStreamError::Stream {
        stream: config.stream.clone(),
        reason: reason.to_string(),
    };
    let stream = jetstream::new(client).get_stream(&config.stream).await.map_err(|error| failed(&error))?;
    let wanted = PullConfig {
        durable_name: Some(config.consumer.clone()),
        filter_subject: config.filter.clone().unwrap_or_default(),
        ack_policy: AckPolicy::Explicit,
        ack_wait: ACK_WAIT,
        ..PullConfig::default()
    };
    stream.get_or_create_consumer(&config.consumer, wanted).await.map_err(|error| failed(&error))
}

/// Publishes the events of messages, and acknowledges them.
async fn settle(pulled: Vec<jetstream::Message>, desk: &Desk) -> Result<(), JetStreamError> {
    let failed = |error: &dyn std::fmt::Display| JetStreamError::Pull(error.to_string());
    let (mut messages, mut held) = (Vec::with_capacity(pulled.len()), Vec::with_capacity(pulled.len()));
    for message in pulled {
        let number = message.info().map_err(|error| failed(&error))?.stream_sequence;
        if message.payload.len() > EVENT_BYTES_MAX {
            let at = format!("message {number}");
            desk.tracker.note_wrong(WrongEntry { at, reason: format!("it has more than {EVENT_BYTES_MAX} bytes") });
            desk.tracker.count(Counts { wrong: 1, ..Counts::default() });
            message.ack_with(AckKind::Term).await.map_err(|error| failed(&error))?;
        } else {
            messages.push(Message { number, json: message.payload.to_vec() });
            held.push(message);
        }
    }
    for (fate, message) in desk.publish(&messages).await.into_iter().zip(held) {
        let kind = if fate == Fate::Sent { AckKind::Ack } else { AckKind::Term };
        message.ack_with(kind).await.map_err(|error| failed(&error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use async_nats::ServerAddr;
    use proptest::prelude::*;

    use crate::check_server;

    proptest! {
        /// Else a server that passes the check would never be connected to.
        #[test]
        fn what_the_check_takes_the_client_takes_as_the_same_server(
            scheme in "(nats://|tls://|TLS://|wss://|nats:)?",
            host in "(localhost|127\\.0\\.0\\.1|\\[::1\\]|[a-z0-9._@:%\\[\\]-]{0,12})",
            rest in "(:[0-9]{0,6})?[/?#x]?",
        ) {
            let text = format!("{scheme}{host}{rest}");
            if check_server(&text).is_ok() {
                let address: ServerAddr = text.parse().expect("the client reads it");
                let authority = format!("{host}{rest}");
                let name = authority.split([':', '/', '?']).next().filter(|_| !authority.starts_with('['));
                let inside = name.unwrap_or("::1");
                prop_assert_eq!(address.host(), inside, "{}", &text);
                prop_assert!(!address.has_user_pass() && !address.is_websocket());
            }
        }
    }
}
