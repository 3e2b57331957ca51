//! Sources of messages: what holds events as they are. Only with the feature `sources`, which has the clients of PostgreSQL and
//! NATS.

mod desk;
mod jetstream;
mod outbox;
mod postgres;

use std::sync::Arc;

use tidings_telemetry::Registry;

use crate::Intake;
use crate::door::Door;
use crate::status::Tracker;

pub use desk::{EVENT_BYTES_MAX, MESSAGE_COUNT_MAX};
pub use jetstream::JetStreamConfig;
pub use outbox::{DatabaseError, OutboxConfig, database};

use desk::Desk;

/// A source that holds events as they are.
#[derive(Debug, Clone)]
pub enum MessageSource {
    /// A table of PostgreSQL.
    Outbox(Box<OutboxConfig>),
    /// A stream of NATS.
    JetStream(JetStreamConfig),
}

impl Intake {
    /// Starts a source of messages.
    pub fn read_messages(&mut self, name: &str, source: MessageSource, door: &Arc<dyn Door>, registry: &Registry) {
        let (kind, place) = match &source {
            MessageSource::Outbox(config) => ("postgresql", config.table.clone()),
            MessageSource::JetStream(config) => ("jetstream", config.stream.clone()),
        };
        let tracker = Arc::new(Tracker::new(name, kind, "consumed", Some(place), registry));
        self.trackers.push(tracker.clone());
        let desk = Desk { name: name.to_owned(), door: door.clone(), tracker };
        let mut tasks = tidings_telemetry::panics::lock(&self.tasks);
        match source {
            MessageSource::Outbox(config) => tasks.spawn(outbox::run(*config, desk)),
            MessageSource::JetStream(config) => tasks.spawn(jetstream::run(config, desk)),
        };
    }
}
