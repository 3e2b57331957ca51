//! Why a device did or did not get an event: `GET /v1/events/{id}/devices/{device}`, the same for the devices of a user,
//! and the last events of a device.
//!
//! [`story`] says what is told. This module finds the facts: the event, the device's rows, and what the sender has kept of
//! the event's job. Only for a device that was not selected, or of which nothing is known, it also selects the event's
//! audience as it is now.
//!
//! Bounds: those of [`Shared::read`]. Selecting takes turns with previews ([`Shared::counting_turn`]) and needs a
//! [`Shared::waiting_place`]. [`USER_DEVICE_COUNT`] devices of a user at most are told of in one answer. The events of a
//! device are searched for in some thousand trails at a time; `next` says where to go on.

mod story;

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::Serialize;
use tidings_audience::Frozen;
use tidings_jobs::DeviceTrail;
use tidings_store::{AcceptedEvent, ReadError, Selection, Store};
use tidings_types::{Device, DeviceId, DeviceNumber, EventId, JournalPosition, Mute, Subject, UserId};

pub(crate) use self::story::Standing;
use self::story::{Brief, Facts, Why};
use crate::auth::Caller;
use crate::event_report::find;
use crate::guard::{IdPath, SecondPath};
use crate::problem::{Invalid, Problem, json};
use crate::query::Params;
use crate::shared::{Shared, blocking};

/// Devices of a user of which one answer tells.
const USER_DEVICE_COUNT: usize = 50;
/// Events of a device of which one answer tells, unless it is asked for another number.
pub(crate) const EVENT_COUNT_DEFAULT: usize = 20;

/// `GET /v1/events/{id}/devices/{device}`.
pub(crate) async fn of_device(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    IdPath(id): IdPath<EventId>,
    SecondPath(device): SecondPath<DeviceId>,
) -> Result<Response, Problem> {
    let (position, accepted) = find(&shared, &id).await?;
    let asked = Asked { position, accepted: Arc::new(accepted) };
    let of = device.clone();
    let known = shared.read(move |shared| Known::read(&shared.store, &of)).await?;
    let known = known.ok_or_else(|| Problem::no_device(&device))?;
    let mut audience = None;
    Ok(json(StatusCode::OK, &asked.why(&shared, &caller, &known, &mut audience).await?))
}

/// `GET /v1/events/{id}/users/{user}`.
pub(crate) async fn of_user(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    IdPath(id): IdPath<EventId>,
    SecondPath(user): SecondPath<UserId>,
    uri: Uri,
) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct Devices {
        event: EventId,
        user: UserId,
        devices: Vec<Why>,
        /// The `after` of the next page; absent on the last page.
        #[serde(skip_serializing_if = "Option::is_none")]
        next: Option<DeviceId>,
    }
    let mut params = Params::read(&uri, &["after"])?;
    let after = params.take("after").map(|after| DeviceId::new(&after)).transpose();
    let after = after.map_err(|error| Invalid::name("after", error))?;
    let (position, accepted) = find(&shared, &id).await?;
    let asked = Asked { position, accepted: Arc::new(accepted) };
    let of = user.clone();
    let found = shared.read(move |shared| shared.store.devices_of_user(&of, after.as_ref(), USER_DEVICE_COUNT + 1));
    let found = found.await?;
    let page = &found[..USER_DEVICE_COUNT.min(found.len())];
    let next = page.last().filter(|_| found.len() > page.len()).map(|device| device.id.clone());
    let (mut devices, mut audience) = (Vec::new(), None);
    for device in page {
        let of = device.id.clone();
        let Some(known) = shared.read(move |shared| Known::read(&shared.store, &of)).await? else { continue };
        devices.push(asked.why(&shared, &caller, &known, &mut audience).await?);
    }
    Ok(json(StatusCode::OK, &Devices { event: id, user, devices, next }))
}

/// `GET /v1/devices/{id}/events`.
pub(crate) async fn events_of_device(
    State(shared): State<Arc<Shared>>,
    IdPath(id): IdPath<DeviceId>,
    uri: Uri,
) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct Events {
        device: DeviceId,
        events: Vec<Brief>,
        /// The `before` of the next page; absent if there is nothing more.
        #[serde(skip_serializing_if = "Option::is_none")]
        next: Option<JournalPosition>,
    }
    let mut params = Params::read(&uri, &["before", "limit"])?;
    let limit = params.limit_or(EVENT_COUNT_DEFAULT)?;
    let before = params.before()?;
    let of = id.clone();
    let known = shared.read(move |shared| Known::read(&shared.store, &of)).await?;
    let known = known.ok_or_else(|| Problem::no_device(&id))?;
    let (jobs, number) = (shared.jobs.clone(), known.number);
    let found = blocking(move || jobs.events_of(number, before, limit)).await?;
    let mut events = Vec::new();
    for position in found.positions {
        let Some(accepted) = shared.read(move |shared| shared.store.event(position)).await? else { continue };
        if known.device.since <= position {
            let trail = shared.jobs.trail(position, number);
            let asked = Asked { position, accepted: Arc::new(accepted) };
            events.push(known.facts(&asked, trail, false).brief());
        }
    }
    Ok(json(StatusCode::OK, &Events { device: id, events, next: found.next }))
}

/// The event that is asked about.
struct Asked {
    position: JournalPosition,
    accepted: Arc<AcceptedEvent>,
}

impl Asked {
    /// `audience` is that of the event now, once somebody needs it.
    async fn why(
        &self,
        shared: &Arc<Shared>,
        caller: &Caller,
        known: &Known,
        audience: &mut Option<Frozen>,
    ) -> Result<Why, Problem> {
        // Read first: if the job begins between the two looks, its trail is found.
        let dispatched = shared.read(|shared| shared.store.dispatched()).await?;
        let trail = shared.jobs.trail(self.position, known.number);
        let is_unread = trail.is_none()
            && (self.position >= dispatched || shared.jobs.job(self.position).is_some_and(|job| job.done_at.is_none()));
        let mut facts = known.facts(self, trail, is_unread);
        if facts.asks_for_selection() {
            if audience.is_none() {
                *audience = Some(self.select(shared, caller).await?);
            }
            facts.is_selected_now = audience.as_ref().map(|audience| audience.contains(known.number));
        }
        Ok(facts.why())
    }

    /// The event's audience as it is now.
    async fn select(&self, shared: &Arc<Shared>, caller: &Caller) -> Result<Frozen, Problem> {
        let place = shared.waiting_place(caller)?;
        let turn = shared.counting_turn().await?;
        let (store, accepted) = (shared.store.clone(), self.accepted.clone());
        blocking(move || {
            let _held = (place, turn); // Also if the caller hangs up.
            store.select(&accepted.event)
        })
        .await
    }
}

/// What rows say of a device now.
struct Known {
    number: DeviceNumber,
    device: Device,
    subscriptions: Selection,
    mutes: Vec<Mute>,
}

impl Known {
    fn read(store: &Store, id: &DeviceId) -> Result<Option<Self>, ReadError> {
        let (Some(device), Some(number)) = (store.device(id)?, store.device_number(id)?) else { return Ok(None) };
        let subscriptions = store.subscriptions(id)?.unwrap_or_default();
        let mutes = store.mutes(id)?.unwrap_or_default();
        Ok(Some(Self { number, device, subscriptions, mutes }))
    }

    fn facts<'a>(&'a self, asked: &'a Asked, trail: Option<DeviceTrail>, is_unread: bool) -> Facts<'a> {
        let event = &asked.accepted.event;
        let fits =
            |(subject, topics): &&(Subject, Vec<_>)| topics.contains(&event.topic) && event.subjects.contains(subject);
        let subscribed = self.subscriptions.iter().filter(fits).map(|(subject, _)| subject.clone()).collect();
        let covers = |mute: &&Mute| mute.scope.subject().is_none_or(|subject| event.subjects.contains(subject));
        Facts {
            position: asked.position,
            accepted: &asked.accepted,
            device: &self.device,
            subscribed,
            mutes: self.mutes.iter().filter(covers).cloned().collect(),
            trail,
            is_unread,
            is_selected_now: None,
        }
    }
}
