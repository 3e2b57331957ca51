//! `/v1/events`: accepts events (acknowledged when durable), lists scheduled events, and cancels events.
//!
//! A repeated event gets the same answer even if the audience or the time has changed: these are checked only when the
//! event is new.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tidings_hub::Hub;
use tidings_protocol::NamespaceOptions;
use tidings_store::{Appended, AppendedTo, DurableChannel, LaterKey, NewEvent, ReadError};
use tidings_telemetry::{unix_nanos, unix_now};
use tidings_types::{
    ChannelName, Event, EventChannels, EventId, JobState, JournalPosition, Subject, Timestamp, event_limits as limits,
};

use crate::audience;
use crate::audited::Note;
use crate::auth::Caller;
use crate::event_input::Batch;
use crate::event_report::find;
use crate::event_view::{Place, SCHEDULED, Scheduled};
use crate::guard::{IdPath, JsonBody};
use crate::input::shown;
use crate::problem::{Invalid, Kind, Problem, json};
use crate::query::Params;
use crate::rfc3339::Rfc3339;
use crate::shared::Shared;
use crate::traces::Accepting;
use crate::warnings::{Kind as WarningKind, Strict, Warnings};

/// How long after its `at` an event may arrive: clocks differ, and retries take a while.
const LATE_MAX: Duration = Duration::from_secs(60);

/// The most events of a request with a selector whose audiences are counted, one after another.
const SELECTOR_COUNT_MAX: usize = 16;
/// Checking an event renders its texts in every language; after this many events, other tasks get a turn.
pub(crate) const CHECK_TURN_COUNT: usize = 16;

pub(crate) async fn post_events(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    note: Note,
    headers: HeaderMap,
    strict: Strict,
    body: JsonBody,
) -> Result<Response, Problem> {
    let mut accepting = Accepting::begin(shared.tracer.as_ref(), &headers);
    let (now, audience_max) = (unix_now(), caller.audience_max());
    let event_channels = shared.config.event_channels;
    let Batch { events, is_list } = Batch::read(&body.0)?;
    let prefix = |index: usize| if is_list { format!("[{index}].") } else { String::new() };
    let ids: Vec<EventId> = events.iter().map(|event| event.id.clone()).collect();
    let (mut new, mut warned) = (Vec::with_capacity(events.len()), Vec::with_capacity(events.len()));
    let mut selector_count = 0;
    if let Some((first, others)) = events.split_first() {
        note.event(first);
        others.iter().for_each(|event| note.touch(event.id.as_str()));
    }
    for (index, mut event) in events.into_iter().enumerate() {
        accepting.enter(index, &mut event);
        event.trace.iter().for_each(|trace| note.trace(trace.trace));
        let mut warnings = Warnings::default();
        let channels = durable_channels(&shared.hub, event_channels, &event, &prefix(index), &mut warnings)?;
        shared.check.check(&event).map_err(|error| error.at(&prefix(index)))?;
        warnings.note_untranslated(&*shared.configured, &event, &prefix(index));
        warnings.note_plain_moments(&*shared.configured, &event, &prefix(index));
        warnings.note_unknown_value(&*shared.configured, &event, &prefix(index));
        if strict.0 && !warnings.is_empty() && !is_known(&shared, &event.id).await? {
            warnings.refuse()?;
        }
        warned.push(warnings);
        let is_conditional = event.at.is_some() || event.expect_audience.is_some() || audience_max.is_some();
        if is_conditional && !is_known(&shared, &event.id).await? {
            check_time(&event, now, &prefix(index))?;
            let is_counted = audience::has_selector(&event) && audience::is_counted(&event, audience_max);
            selector_count += usize::from(is_counted);
            check_selectors(selector_count, &prefix(index))?;
            let device_count = audience::admit(&shared, &caller, &event, &prefix(index)).await?;
            device_count.into_iter().for_each(|count| note.devices(count));
        }
        new.push(NewEvent { event, channels, audience_max });
        if (index + 1) % CHECK_TURN_COUNT == 0 {
            tokio::task::yield_now().await;
        }
    }
    // Counting large audiences may have taken a while: the events' time begins now.
    let committing = unix_nanos();
    let appended = shared.store.append_events(new, unix_now()).await;
    let appended = appended.map_err(|error| Problem::of_append(error, prefix))?;
    let trace = accepting.end(&ids, &appended, committing);
    let answers = ids.iter().zip(&appended).zip(warned);
    let answers: Vec<Accepted<'_>> = answers.map(|(event, warnings)| Accepted::new(event, warnings)).collect();
    let mut response = match answers.first() {
        Some(answer) if !is_list => json(StatusCode::ACCEPTED, answer),
        _ => json(StatusCode::ACCEPTED, &answers),
    };
    trace.into_iter().for_each(|trace| _ = response.extensions_mut().insert(trace)); // For the metrics.
    Ok(response)
}

async fn is_known(shared: &Arc<Shared>, id: &EventId) -> Result<bool, Problem> {
    let id = id.clone();
    shared.read(move |shared| shared.store.is_known(&id)).await
}

/// Whether a request may have this many events with a selector to count.
fn check_selectors(count: usize, prefix: &str) -> Result<(), Invalid> {
    if count <= SELECTOR_COUNT_MAX {
        return Ok(());
    }
    let rule = format_args!(
        "must not be counted here: of events with a selector and expect_audience, or of a key with audience_max, a request \
         has at most {SELECTOR_COUNT_MAX}"
    )
    .to_string();
    Err(Invalid::new(&format!("{prefix}to.selector"), rule).limit(SELECTOR_COUNT_MAX).value(count))
}

/// Whether the `at` of a new event is within the allowed range.
pub(crate) fn check_time(event: &Event, now: Timestamp, prefix: &str) -> Result<(), Invalid> {
    let (ahead_max, late_max) = (limits::AHEAD_MAX.as_secs(), LATE_MAX.as_secs());
    let Some(at) = event.at else { return Ok(()) };
    let (rule, limit) = if at > now.saturating_add(limits::AHEAD_MAX) {
        (format!("must lie at most {} days ahead", ahead_max / 86_400), ahead_max)
    } else if at.saturating_add(LATE_MAX) < now {
        (format!("must lie at most {late_max} seconds back"), late_max)
    } else {
        return Ok(());
    };
    let got = Rfc3339(at).to_string();
    let refused = Invalid::new(&format!("{prefix}at"), format_args!("{rule}, got {got:?}"));
    Err(Invalid { limit: Some(limit), ..refused }.value(got))
}

/// A page of the scheduled events, the next one first.
pub(crate) async fn scheduled_events(State(shared): State<Arc<Shared>>, uri: Uri) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct Page<'a> {
        events: Vec<Scheduled<'a>>,
        /// The `after` of the next page; absent on the last page.
        #[serde(skip_serializing_if = "Option::is_none")]
        next: Option<String>,
    }
    let mut params = Params::read(&uri, &["state", "after", "limit"])?;
    let state = params.take("state");
    if state.as_deref() != Some(SCHEDULED) {
        let rule = format!("must be {SCHEDULED:?}: other events are listed at /v1/jobs");
        let refused = Invalid::new("state", rule);
        return Err(state.map_or(refused.clone(), |state| refused.value(shown(&state))).into());
    }
    let limit = params.limit()?;
    let after = params.take("after").map(|after| later_key(&after)).transpose()?;
    let read = shared.read(move |Shared { store, .. }| -> Result<_, ReadError> {
        let page = store.later_events(after, limit)?; // Fewer if they are large.
        let last = page.last().map(|event| event.key);
        let is_more = last.is_some() && !store.later_events(last, 1)?.is_empty();
        Ok((page, last, is_more))
    });
    let (page, last, is_more) = read.await?;
    let next = last.filter(|_| is_more).map(|LaterKey { at, arrival }| format!("{}-{arrival}", at.as_millis()));
    Ok(json(StatusCode::OK, &Page { events: page.iter().map(Scheduled::new).collect(), next }))
}

/// Reads the `next` of an earlier page.
fn later_key(text: &str) -> Result<LaterKey, Invalid> {
    let parts = text.split_once('-').and_then(|(at, arrival)| Some((at.parse().ok()?, arrival.parse().ok()?)));
    parts.map(|(at, arrival)| LaterKey { at: Timestamp(at), arrival }).ok_or_else(|| {
        let got = shown(text);
        Invalid::new("after", format_args!("must be the `next` of the page before, got {got:?}")).value(got)
    })
}

/// Cancels an event. A scheduled event is deleted, with its id. Of another event, devices that had not been sent to are
/// not pushed.
pub(crate) async fn cancel_event(
    State(shared): State<Arc<Shared>>,
    IdPath(id): IdPath<EventId>,
) -> Result<Response, Problem> {
    // The store handles this in order with releases: an event that is being released is in the journal afterwards.
    if shared.store.cancel_later(&id).await? {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let (position, _) = find(&shared, &id).await?;
    // The store first, as in `event_report`.
    let dispatched = shared.read(|shared| shared.store.dispatched()).await?;
    match shared.jobs.job(position).map(|job| job.state) {
        Some(JobState::Cancelled) => {}
        Some(JobState::Running | JobState::Paused) => _ = shared.store.cancel(position).await?,
        None if position >= dispatched => _ = shared.store.cancel(position).await?,
        Some(JobState::Finished) | None => {
            let detail = format!("event {id} cannot be cancelled: every device of it has its outcome");
            return Err(Problem::new(Kind::JobFinished, detail).field("id").value(id.as_str()));
        }
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The channels in which an event is published: those that it names, else the durable ones of its subjects, as
/// `event_channels` says.
pub(crate) fn durable_channels(
    hub: &Hub,
    event_channels: EventChannels,
    event: &Event,
    prefix: &str,
    warnings: &mut Warnings,
) -> Result<Vec<DurableChannel>, Invalid> {
    if event.channels.is_empty() {
        let subjects = event_channels.subjects(event).iter();
        let own = |subject: &Subject| {
            let name = ChannelName::new(subject.as_str()).ok()?;
            match hub.options(&name) {
                Ok(options) if options.durable => Some(durable_channel(name, options)),
                found => {
                    let rule =
                        format_args!("it is not published live: {}", not_durable(&name, found.is_ok())).to_string();
                    warnings.add(WarningKind::NoChannel, &format!("{prefix}subjects"), rule);
                    None
                }
            }
        };
        return Ok(subjects.filter_map(own).collect());
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
    let NamespaceOptions { history_size, history_ttl, event_texts, .. } = *options;
    DurableChannel { name, history_size, history_ttl, has_texts: event_texts }
}

/// Why a channel accepts no events, and which setting changes that.
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
    #[serde(flatten)]
    to: AcceptedTo<'a>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    repeated: bool,
    #[serde(skip_serializing_if = "Warnings::is_empty")]
    warnings: Warnings,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum AcceptedTo<'a> {
    Journal { position: JournalPosition, channels: Vec<Place<'a>> },
    Later { at: Rfc3339, state: &'static str },
}

impl<'a> Accepted<'a> {
    fn new((id, appended): (&'a EventId, &'a Appended), warnings: Warnings) -> Self {
        let to = match &appended.to {
            AppendedTo::Journal { position, published } => {
                AcceptedTo::Journal { position: *position, channels: published.iter().map(Place::new).collect() }
            }
            AppendedTo::Later { at } => AcceptedTo::Later { at: Rfc3339(*at), state: SCHEDULED },
        };
        Self { id, to, repeated: appended.repeated, warnings }
    }
}
