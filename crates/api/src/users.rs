//! `/v1/users/{user}`: the devices of one user, all that is kept of them, and forgetting all of it.
//!
//! Kept of a user are devices, with what they are subscribed to and have muted. Events are not among it: one that names
//! the user stays until the journal lets it go, and is delivered to nobody once the devices are gone. Live connections
//! that have proven no device are not closed: they end with their token.
//!
//! A device that cannot be read is in an export with its id, if anybody knows that, and a `problem`, as in
//! `GET /v1/export`; it can be forgotten like others.
//!
//! Bounds: an export is made [`EXPORT_PAGE_COUNT`] devices at a time, when the reader has taken those before, and holds
//! one of the places for requests that wait. What comes between its pages may be in it or not; a device that stays is in
//! it once.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Serialize;
use tidings_store::{ExportPage, Exported, ReadError};
use tidings_telemetry::unix_now;
use tidings_types::{DeviceId, DeviceNumber, UserId};

use crate::devices::{self, Item, View};
use crate::exports::{Unreadable, grouped};
use crate::format::JsonOnly;
use crate::guard::IdPath;
use crate::problem::{Problem, json};
use crate::rfc3339::Rfc3339;
use crate::{Connections, Shared, mutes};

/// Devices of an export that are in memory at a time.
const EXPORT_PAGE_COUNT: usize = 50;

/// A page of the user's devices, in the order of their ids; of one that nobody has, an empty one.
pub(crate) async fn devices(
    State(shared): State<Arc<Shared>>,
    IdPath(user): IdPath<UserId>,
    uri: Uri,
) -> Result<Response, Problem> {
    devices::page(&uri, |after, limit| Ok(shared.store.devices_of_user(&user, after, limit)?))
}

/// A device with all that belongs to it.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    device: View<'a>,
    subscriptions: Vec<Item>,
    mutes: Vec<mutes::View>,
}

/// Everything that is kept of the user, as one document.
pub(crate) async fn export(
    State(shared): State<Arc<Shared>>,
    IdPath(user): IdPath<UserId>,
) -> Result<Response, Problem> {
    let place = shared.waiting_place()?;
    let head = format!(
        r#"{{"user":{},"exported_at":{},"devices":["#,
        serde_json::to_string(&user).expect("a name is a string"),
        serde_json::to_string(&Rfc3339(unix_now())).expect("a moment is a string")
    );
    let mut first = head.into_bytes();
    let last = write_page(&shared, &user, None, &mut first)?; // Errors are answers as long as nothing is sent.
    let begin = (shared, user, Progress::Sent(first, last), place);
    let pieces = stream::unfold(begin, async move |(shared, user, progress, place)| {
        let (piece, next) = match progress {
            Progress::Sent(piece, last) => (Ok(piece), last.map_or(Progress::End, Progress::Behind)),
            Progress::Behind(last) => {
                let mut piece = b",".to_vec();
                match write_page(&shared, &user, Some(&last), &mut piece) {
                    Ok(_) if piece.len() == 1 => (Ok(Vec::new()), Progress::End), // The rest has gone meanwhile.
                    Ok(last) => (Ok(piece), last.map_or(Progress::End, Progress::Behind)),
                    Err(error) => (Err(error), Progress::Done), // The connection breaks off, so nobody takes it for whole.
                }
            }
            Progress::End => (Ok(b"]}".to_vec()), Progress::Done),
            Progress::Done => return None,
        };
        Some((piece.map(Bytes::from), (shared, user, next, place)))
    });
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    let mut response =
        (headers.map(|(name, value)| (name, HeaderValue::from_static(value))), Body::from_stream(pieces))
            .into_response();
    response.extensions_mut().insert(JsonOnly);
    Ok(response)
}

/// How far an export is.
enum Progress {
    /// This is made already, and ends with that device if there may be more.
    Sent(Vec<u8>, Option<DeviceId>),
    /// Up to this device.
    Behind(DeviceId),
    /// All devices are there.
    End,
    Done,
}

/// Adds the devices behind `after`, and tells which was the last if there may be more.
fn write_page(
    shared: &Shared,
    user: &UserId,
    after: Option<&DeviceId>,
    out: &mut Vec<u8>,
) -> Result<Option<DeviceId>, ReadError> {
    let ExportPage { devices, damaged, last } = shared.store.export_of_user(user, after, EXPORT_PAGE_COUNT)?;
    let devices = devices.into_iter().map(|Exported { device, subscriptions, mutes, .. }| {
        let (subscriptions, mutes) = (Item::all(grouped(subscriptions)), mutes::View::all(mutes));
        serde_json::to_vec(&Whole { device: View::new(&device, None), subscriptions, mutes })
    });
    let damaged = damaged.into_iter().map(|id| serde_json::to_vec(&Unreadable::new(id)));
    for (index, element) in devices.chain(damaged).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend(element.expect("our own shapes have string keys"));
    }
    Ok(last)
}

/// Forgets all devices of the user, with all that belongs to them; their connections lose their proof and are closed.
pub(crate) async fn erase(
    State(shared): State<Arc<Shared>>,
    IdPath(user): IdPath<UserId>,
) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct Erased {
        devices: u64,
    }
    let mut revocations = Revocations { connections: &*shared.connections, devices: Vec::new() };
    let mut after = None;
    loop {
        let page = shared.store.devices_of_user(&user, after.as_ref(), EXPORT_PAGE_COUNT)?;
        for device in &page {
            revocations.devices.extend(shared.store.device_number(&device.id)?);
        }
        match page.last() {
            Some(last) if page.len() == EXPORT_PAGE_COUNT => after = Some(last.id.clone()),
            _ => break,
        }
    }
    let devices = shared.store.erase_user(&user).await?;
    Ok(json(StatusCode::OK, &Erased { devices }))
}

/// Takes their proof from the connections of these devices and closes them, when it is dropped: also when the caller hangs
/// up while the store writes, or when only a part was forgotten.
struct Revocations<'a> {
    connections: &'a dyn Connections,
    devices: Vec<DeviceNumber>,
}

impl Drop for Revocations<'_> {
    fn drop(&mut self) {
        self.devices.iter().for_each(|device| self.connections.revoke(*device, true));
    }
}
