//! `POST /v1/events`: events in, acknowledged when durable.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use tidings_hub::Hub;
use tidings_protocol::NamespaceOptions;
use tidings_store::{Appended, DurableChannel, NewEvent};
use tidings_telemetry::unix_now;
use tidings_types::{ChannelName, Epoch, Event, EventId, JournalPosition, Offset, StreamPosition};

use crate::Shared;
use crate::event_input::Batch;
use crate::guard::JsonBody;
use crate::problem::{Invalid, Problem, json};

/// Checking an event renders its texts in every language; after this many, others get a turn.
const CHECK_TURN_COUNT: usize = 16;

pub(crate) async fn post_events(State(shared): State<Arc<Shared>>, body: JsonBody) -> Result<Response, Problem> {
    let Batch { events, is_list } = Batch::read(&body.0)?;
    let prefix = |index: usize| if is_list { format!("[{index}].") } else { String::new() };
    let ids: Vec<EventId> = events.iter().map(|event| event.id.clone()).collect();
    let mut new = Vec::with_capacity(events.len());
    for (index, event) in events.into_iter().enumerate() {
        let channels = durable_channels(&shared.hub, &event, &prefix(index))?;
        shared.check.check(&event).map_err(|error| error.at(&prefix(index)))?;
        new.push(NewEvent { event, channels });
        if (index + 1) % CHECK_TURN_COUNT == 0 {
            tokio::task::yield_now().await;
        }
    }
    let appended = shared.store.append_events(new, unix_now()).await;
    let appended = appended.map_err(|error| Problem::of_append(error, prefix))?;
    let answers: Vec<Accepted<'_>> = ids.iter().zip(&appended).map(Accepted::new).collect();
    Ok(match answers.first() {
        Some(answer) if !is_list => json(StatusCode::ACCEPTED, answer),
        _ => json(StatusCode::ACCEPTED, &answers),
    })
}

/// Where an event is published: the channels it names, else that of its first subject if that is a durable one.
fn durable_channels(hub: &Hub, event: &Event, prefix: &str) -> Result<Vec<DurableChannel>, Invalid> {
    if event.channels.is_empty() {
        let own = event.subjects.first().and_then(|subject| ChannelName::new(subject.as_str()).ok());
        let durable = own.and_then(|name| {
            let options = hub.options(&name).ok().filter(|options| options.durable)?;
            Some(durable_channel(name, options))
        });
        return Ok(durable.into_iter().collect());
    }
    let channel = |(index, name): (usize, &ChannelName)| match hub.options(name) {
        Ok(options) if options.durable => Ok(durable_channel(name.clone(), options)),
        found => {
            let field = format!("{prefix}channels[{index}]");
            Err(Invalid::new(&field, not_durable(name, found.is_ok())).value(name.as_str()))
        }
    };
    event.channels.iter().enumerate().map(channel).collect()
}

pub(crate) fn durable_channel(name: ChannelName, options: &NamespaceOptions) -> DurableChannel {
    DurableChannel { name, history_size: options.history_size, history_ttl: options.history_ttl }
}

/// Why a channel takes no events, and what to configure.
fn not_durable(name: &ChannelName, configured: bool) -> String {
    let channel = name.as_str();
    match channel.strip_prefix('$').unwrap_or(channel).split_once(':') {
        Some((namespace, _)) if configured => {
            format!("{channel} is not durable, events need that: set channel.namespaces.{namespace}.durable = true")
        }
        Some((namespace, _)) => {
            format!(
                "{channel} is in a namespace that is not configured: add channel.namespaces.{namespace} with durable = true"
            )
        }
        None => format!("{channel} is not durable, events need that: set channel.without_namespace.durable = true"),
    }
}

/// The answer for one event.
#[derive(Debug, Serialize)]
struct Accepted<'a> {
    id: &'a EventId,
    position: JournalPosition,
    channels: Vec<Place<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    repeated: bool,
}

/// Where in a channel it was published.
#[derive(Debug, Serialize)]
pub(crate) struct Place<'a> {
    channel: &'a ChannelName,
    offset: Offset,
    epoch: Epoch,
}

impl<'a> Place<'a> {
    pub(crate) fn new((channel, position): &'a (ChannelName, StreamPosition)) -> Self {
        let StreamPosition { offset, epoch } = *position;
        Self { channel, offset, epoch }
    }
}

impl<'a> Accepted<'a> {
    fn new((id, appended): (&'a EventId, &'a Appended)) -> Self {
        Self {
            id,
            position: appended.position,
            channels: appended.published.iter().map(Place::new).collect(),
            repeated: appended.repeated,
        }
    }
}
