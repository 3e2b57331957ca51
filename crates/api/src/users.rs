//! `/v1/users/{user}`: the devices of one user, an export of all the user's data, and deleting it.
//!
//! The data of a user are devices, with their subscriptions and mutes. Events are not part of it. An event that names
//! the user stays until the journal deletes it, and is delivered to nobody once the devices are deleted. Live
//! connections that have proven no device are not closed: they end with their token.
//!
//! A device whose record cannot be read is in an export with its id (if it is known) and a `problem`, as in
//! `GET /v1/export`. It can be deleted like others.
//!
//! Bounds: an export is made for [`EXPORT_PAGE_COUNT`] devices at a time, with the bounds of `pages`. A change between
//! two pages may be in the export or not. A device that stays is in it once.

use std::io;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tidings_store::{ExportPage, Exported, ReadError, Store};
use tidings_telemetry::unix_now;
use tidings_types::{DeviceId, DeviceNumber, UserId};

use crate::audited::Note;
use crate::auth::Caller;
use crate::devices::{self, Item, View, Whole};
use crate::exports::{Unreadable, grouped};
use crate::format::JsonOnly;
use crate::guard::IdPath;
use crate::mutes;
use crate::pages::{self, Page};
use crate::ports::Connections;
use crate::problem::{Problem, json};
use crate::rfc3339::Rfc3339;
use crate::shared::Shared;

/// Devices of an export that are in memory at a time.
const EXPORT_PAGE_COUNT: usize = 50;

/// A page of the user's devices, in the order of their ids; empty if the user has none.
pub(crate) async fn devices(
    State(shared): State<Arc<Shared>>,
    IdPath(user): IdPath<UserId>,
    uri: Uri,
) -> Result<Response, Problem> {
    devices::page(&shared, &uri, move |store, after, limit| store.devices_of_user(&user, after, limit)).await
}

/// All data of the user, as one document.
pub(crate) async fn export(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    IdPath(user): IdPath<UserId>,
) -> Result<Response, Problem> {
    let place = shared.waiting_place(&caller)?;
    // Errors can be answers only until the first byte is sent.
    let first = next(shared.clone(), user.clone(), None).await.ok_or_else(crate::shared::stopping)??;
    let pages = pages::body(place, first, move |last| {
        let reading = next(shared.clone(), user.clone(), Some(last));
        async move { reading.await.ok_or(io::ErrorKind::Interrupted)?.map_err(io::Error::other) }
    });
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    let mut response = (headers.map(|(name, value)| (name, HeaderValue::from_static(value))), pages).into_response();
    response.extensions_mut().insert(JsonOnly);
    Ok(response)
}

async fn next(shared: Arc<Shared>, user: UserId, after: Option<DeviceId>) -> Option<Result<Page<DeviceId>, ReadError>> {
    shared.read_page(move |shared| page(shared, &user, after.as_ref())).await
}

/// The part of an export after `after`: the beginning without `after`, and the end after the last device.
fn page(shared: &Shared, user: &UserId, after: Option<&DeviceId>) -> Result<Page<DeviceId>, ReadError> {
    let head = || {
        let name = serde_json::to_string(user).expect("a name is a string");
        let now = serde_json::to_string(&Rfc3339(unix_now())).expect("a moment is a string");
        format!(r#"{{"user":{name},"exported_at":{now},"devices":["#).into_bytes()
    };
    let mut page = after.map_or_else(head, |_| b",".to_vec());
    let begun = page.len();
    let mut last = write_page(shared, user, after, &mut page)?;
    if after.is_some() && page.len() == begun {
        (page, last) = (Vec::new(), None); // The remaining devices were deleted in the meantime.
    }
    if last.is_none() {
        page.extend(b"]}");
    }
    Ok((page.into(), last))
}

/// Adds the devices after `after`, and returns the last one if there may be more.
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

/// Deletes all devices of the user, with their subscriptions and mutes. Their connections lose their proof and are
/// closed.
pub(crate) async fn erase(
    State(shared): State<Arc<Shared>>,
    note: Note,
    IdPath(user): IdPath<UserId>,
) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct Erased {
        devices: u64,
    }
    let mut revocations = Revocations { connections: &*shared.connections, devices: Vec::new() };
    let wanted = user.clone();
    revocations.devices = shared.read(move |shared| numbers(&shared.store, &wanted)).await?;
    let devices = shared.store.erase_user(&user).await?;
    note.devices(devices);
    Ok(json(StatusCode::OK, &Erased { devices }))
}

/// The numbers of all devices of the user.
fn numbers(store: &Store, user: &UserId) -> Result<Vec<DeviceNumber>, ReadError> {
    let (mut numbers, mut after) = (Vec::new(), None);
    loop {
        let page = store.devices_of_user(user, after.as_ref(), EXPORT_PAGE_COUNT)?;
        for device in &page {
            numbers.extend(store.device_number(&device.id)?);
        }
        match page.last() {
            Some(last) if page.len() == EXPORT_PAGE_COUNT => after = Some(last.id.clone()),
            _ => return Ok(numbers),
        }
    }
}

/// Ends the proof of the connections of these devices and closes them, when it is dropped. So it does so also if the
/// caller hangs up while the store writes, and if only a part was deleted.
struct Revocations<'a> {
    connections: &'a dyn Connections,
    devices: Vec<DeviceNumber>,
}

impl Drop for Revocations<'_> {
    fn drop(&mut self) {
        self.devices.iter().for_each(|device| self.connections.revoke(*device, true));
    }
}
