//! Events from a stream of NATS JetStream: each message of a durable consumer is an event.
//!
//! The source pulls messages from a consumer that it makes if it is not there, publishes their events, and acknowledges
//! the messages. If the server crashes in between, NATS delivers them again; the events have the same ids, made from the
//! numbers that the stream has given the messages, so each is sent once. Several servers may use one consumer. A message
//! that can never be an event is terminated, so NATS does not deliver it again; NATS tells of it in an advisory.
//!
//! Bounds: [`MESSAGE_COUNT_MAX`] messages at a time, of [`EVENT_BYTES_MAX`] bytes; a larger one is terminated.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::{self, AckKind};
use async_nats::{ConnectOptions, ServerAddr};
use futures_util::StreamExt as _;
use tidings_push::retry::backoff;
use tokio::time::sleep;

use crate::messages::{Desk, Fate, MESSAGE_COUNT_MAX, Message};
use crate::outbox::{EVENT_BYTES_MAX, is_loopback};
use crate::status::{Counts, WrongEntry};

/// How long NATS waits for the acknowledgement before it delivers a message again.
const ACK_WAIT: Duration = Duration::from_secs(60);
/// The first pause after a failure is at most this long.
const PAUSE_BASE: Duration = Duration::from_millis(500);
/// Every pause after a failure is at most this long.
const PAUSE_CAP: Duration = Duration::from_secs(30);

/// Where the stream is.
#[derive(Debug, Clone)]
pub struct JetStreamConfig {
    /// The servers; see [`server`].
    pub servers: Vec<ServerAddr>,
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

/// Why a server's address is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    /// It has another form.
    #[error("must be nats://HOST:PORT or tls://HOST:PORT")]
    Form,
    /// Configurations are shown, and passwords must not be.
    #[error("must not have a password: use `credentials_file`")]
    Password,
    /// Others could read what goes to the server and back.
    #[error("must be tls:// beyond loopback")]
    PlainText,
}

/// Reads the address of a server.
///
/// # Errors
/// If it has another form or a password, or would be spoken to in plain text beyond loopback.
pub fn server(text: &str) -> Result<ServerAddr, ServerError> {
    let address: ServerAddr = text.parse().map_err(|_| ServerError::Form)?;
    match address.scheme() {
        _ if address.host().is_empty() => Err(ServerError::Form),
        _ if address.has_user_pass() => Err(ServerError::Password),
        "tls" => Ok(address),
        "nats" if is_loopback(address.host()) => Ok(address),
        "nats" => Err(ServerError::PlainText),
        _ => Err(ServerError::Form),
    }
}

/// Whether NATS takes the text as the name of a stream or a consumer.
pub fn is_nats_name(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_graphic() && !b".*>/\\".contains(&byte);
    (1..=255).contains(&text.len()) && text.bytes().all(is_letter)
}

/// What is wrong with the stream or the connection.
#[derive(Debug, thiserror::Error)]
enum JetStreamError {
    #[error("the credentials cannot be read")]
    Credentials(#[source] std::io::Error),
    #[error("cannot connect to NATS: {0}")]
    Connect(#[from] async_nats::ConnectError),
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
        sleep(backoff(PAUSE_BASE, PAUSE_CAP, failed, rand::random())).await;
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
    let options = options.name("tidings").tls_client_config(rustls::ClientConfig::clone(&config.tls));
    let client = options.connect(&config.servers).await?;
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
    let wanted = pull::Config {
        durable_name: Some(config.consumer.clone()),
        filter_subject: config.filter.clone().unwrap_or_default(),
        ack_policy: AckPolicy::Explicit,
        ack_wait: ACK_WAIT,
        ..pull::Config::default()
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
    use super::*;

    #[test]
    fn plain_text_stays_on_this_machine_and_passwords_in_their_file() {
        assert!(
            ["nats://127.0.0.1:4222", "nats://localhost", "tls://nats.example.com"].iter().all(|it| server(it).is_ok())
        );
        let error = |text| server(text).unwrap_err();
        assert_eq!(error("nats://nats.example.com:4222"), ServerError::PlainText);
        assert_eq!(error("tls://me:secret@nats.example.com"), ServerError::Password);
        assert_eq!([error(""), error("wss://nats.example.com")], [ServerError::Form, ServerError::Form]);
    }

    #[test]
    fn a_name_has_no_sign_that_means_something_to_nats() {
        assert!(is_nats_name("EVENTS_2"));
        let wrong = ["", "a.b", "a*", "a>", "a b", "a/b", "ä"];
        assert!(!wrong.into_iter().any(is_nats_name) && !is_nats_name(&"a".repeat(256)));
    }
}
