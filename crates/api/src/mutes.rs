//! `/v1/devices/{id}/mutes`: what a device does not want to be pushed for a time.
//!
//! A mute has a scope: `everything` or a subject. A device has at most one mute of each scope; a new one replaces its
//! end. A mute takes the device out of every event that it covers, even if the event names the device. The store
//! removes a mute when its time is over.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tidings_store::Store;
use tidings_telemetry::unix_now;
use tidings_types::{Mute, MuteScope, Timestamp};

use crate::event_input::whole_seconds;
use crate::guard::{OptionalJsonBody, SecondPath};
use crate::input::{self, Field, Schema, shown};
use crate::problem::{Invalid, Kind, Problem, json};
use crate::rfc3339::Rfc3339;
use crate::shared::Shared;
use crate::target::{Target, found};

pub(crate) const MUTE: Schema =
    Schema { fields: &["until", "for"], refused: &[("subject", IN_PATH), ("scope", IN_PATH)] };
const IN_PATH: &str = "is given by the path";

/// The longest mute that is given as a duration.
pub(crate) const MUTE_MAX: Duration = Duration::from_secs(366 * 86_400);

/// A mute as answers show it.
#[derive(Debug, Serialize)]
pub(crate) struct View {
    scope: MuteScope,
    /// Absent: the mute does not end by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Rfc3339>,
}

impl View {
    pub(crate) fn all(mutes: Vec<Mute>) -> Vec<Self> {
        mutes.into_iter().map(Self::from).collect()
    }
}

impl From<Mute> for View {
    fn from(Mute { scope, until }: Mute) -> Self {
        Self { scope, until: until.map(Rfc3339) }
    }
}

pub(crate) async fn mutes(State(shared): State<Arc<Shared>>, target: Target) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct List {
        mutes: Vec<View>,
    }
    let _place = target.read(&shared).await?;
    let mutes = found(&shared, &target.id, Store::mutes).await?;
    Ok(json(StatusCode::OK, &List { mutes: View::all(mutes) }))
}

pub(crate) async fn mute(
    State(shared): State<Arc<Shared>>,
    target: Target,
    SecondPath(scope): SecondPath<MuteScope>,
    body: OptionalJsonBody,
) -> Result<Response, Problem> {
    let now = unix_now();
    let mute = Mute { scope, until: end(&body.0, now)? };
    let _turn = target.change(&shared).await?;
    let is_new = shared.store.mute(&target.id, mute.clone(), now).await;
    let is_new = is_new.map_err(|error| Problem::of_subscribe(error, &target.id))?;
    Ok(json(if is_new { StatusCode::CREATED } else { StatusCode::OK }, &View::from(mute)))
}

pub(crate) async fn unmute(
    State(shared): State<Arc<Shared>>,
    target: Target,
    SecondPath(scope): SecondPath<MuteScope>,
) -> Result<Response, Problem> {
    let _turn = target.change(&shared).await?;
    let ended = shared.store.unmute(&target.id, &scope).await;
    if !ended.map_err(|error| Problem::of_subscribe(error, &target.id))? {
        let detail = format!("device {} has not muted {scope}", target.id);
        return Err(Problem::new(Kind::NotFound, detail));
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// When the mute ends, if it ends by itself.
fn end(body: &[u8], now: Timestamp) -> Result<Option<Timestamp>, Problem> {
    let mut object = input::root(body)?.object(&MUTE)?;
    match (object.take("until"), object.take("for")) {
        (None, None) => Ok(None),
        (Some(until), None) => Ok(Some(moment(&until, now)?)),
        (None, Some(length)) => Ok(Some(now.saturating_add(whole_seconds(length, MUTE_MAX)?))),
        (Some(_), Some(length)) => Err(length.invalid("must not be given together with until").into()),
    }
}

fn moment(field: &Field<'_>, now: Timestamp) -> Result<Timestamp, Invalid> {
    let text = field.text()?;
    let got = shown(&text);
    match text.parse() {
        Ok(Rfc3339(until)) if until > now => Ok(until),
        Ok(_) => Err(field.invalid(format_args!("must be in the future, got {got:?}")).value(got)),
        Err(error) => Err(field.invalid(format_args!("{error}, got {got:?}")).value(got)),
    }
}
