//! Starts the sources of messages of the configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidings_config::{Config, JetStream, Outbox, read_file};
use tidings_intake::{Door, Intake, JetStreamConfig, MessageSource, OutboxConfig};
use tidings_telemetry::Registry;

use super::error::FeedsError;
use crate::outgoing::{OutgoingError, roots};

/// The same feeds, and the sources.
pub(super) fn start(
    mut intake: Intake,
    config: &Config,
    door: &Arc<dyn Door>,
    registry: &Registry,
) -> Result<Intake, FeedsError> {
    for (name, outbox) in &config.outbox {
        intake.read_messages(name, outbox_source(name, outbox)?, door, registry);
    }
    for (name, stream) in &config.jetstream {
        intake.read_messages(name, stream_source(name, stream)?, door, registry);
    }
    Ok(intake)
}

fn outbox_source(name: &str, outbox: &Outbox) -> Result<MessageSource, FeedsError> {
    let text = outbox.database.as_ref().expect("the check lets no source without a database pass").expose();
    Ok(MessageSource::Outbox(Box::new(OutboxConfig {
        database: tidings_intake::database(text).expect("the check lets no other text pass"),
        tls: tls(name, outbox.ca_file.as_deref())?,
        table: outbox.table.clone(),
        channel: outbox.channel.clone(),
        interval: outbox.interval,
    })))
}

fn stream_source(name: &str, stream: &JetStream) -> Result<MessageSource, FeedsError> {
    let read = |file: &PathBuf| {
        let failed = |source| OutgoingError::File { path: file.display().to_string(), source };
        read_file(file).map_err(failed).map_err(|error| FeedsError::Source(name.to_owned(), error))
    };
    Ok(MessageSource::JetStream(JetStreamConfig {
        servers: stream.servers.clone(),
        tls: tls(name, stream.ca_file.as_deref())?,
        credentials: stream.credentials_file.as_ref().map(read).transpose()?,
        stream: stream.stream.clone(),
        consumer: stream.consumer.clone(),
        filter: stream.filter.clone(),
    }))
}

fn tls(name: &str, ca_file: Option<&Path>) -> Result<Arc<rustls::ClientConfig>, FeedsError> {
    let failed = |error| FeedsError::Source(name.to_owned(), error);
    roots(ca_file).map_err(failed)?.client_config().map_err(|error| failed(OutgoingError::Client(error.into())))
}
