//! `GET /v1/export`: devices with their subscriptions and mutes, one per line, in the form of `POST /v1/imports`.
//!
//! A device whose record cannot be read has a line too, with its id (if it is known) and a `problem`. The store's log
//! names the record; an import refuses the line. So an export is complete, or shows what is missing, or breaks off.
//!
//! Without a selector, all devices come in the order of their ids, and a caller that was cut off continues with
//! `after`. With `selector`, the devices that match at the moment of the request come in the order of the index. A
//! device that changes during the export may be shown before or after the change. A device that is deleted is left out.
//! With a selector, a device is also left out if it is logged out or registered during the export, because its number
//! may have belonged to another device. Addresses are shown in full, credentials as hashes: the holder of an export can
//! push to every device, but cannot act for it.
//!
//! Bounds: pages of [`PAGE_COUNT`] devices, with the bounds of `pages`. A selector's devices are held as a set, at most
//! one bit for each device number.

use std::io;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};
use tidings_audience::Frozen;
use tidings_store::{ExportPage, Exported, ReadError, Store};
use tidings_types::{
    AppId, Country, Device, DeviceId, DeviceNumber, DeviceToken, Environment, JournalPosition, Locale, Platform,
    PushPermission, Selector, TimeZone, Timestamp, UserId,
};

use crate::auth::Caller;
use crate::devices::Item;
use crate::format::LINES;
use crate::input::shown;
use crate::mutes;
use crate::pages::{self, Page};
use crate::problem::{Invalid, Kind, Problem};
use crate::query::Params;
use crate::rfc3339::Rfc3339;
use crate::shared::{Shared, blocking};

/// Devices that are read at once.
const PAGE_COUNT: usize = 500;

pub(crate) async fn export(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let place = shared.waiting_place(&caller)?;
    let cursor = Cursor::begin(&shared, &uri).await?;
    // The first page shows whether the store can be read, while the answer can still be a problem.
    let first = next(shared.clone(), cursor).await.ok_or_else(crate::shared::stopping)??;
    let pages = pages::body(place, first, move |cursor| {
        let reading = next(shared.clone(), cursor);
        async move { reading.await.ok_or(io::ErrorKind::Interrupted)?.map_err(io::Error::other) }
    });
    let headers = [(CONTENT_TYPE, LINES), (CACHE_CONTROL, "no-store")];
    let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value)));
    Ok((headers, pages).into_response())
}

/// Where an export continues.
enum Cursor {
    /// With the device after this one, of all devices.
    Behind(Option<DeviceId>),
    /// With the devices of a set from this number on, except those that were registered after this position: their
    /// numbers may have belonged to other devices.
    From(Frozen, DeviceNumber, JournalPosition),
}

impl Cursor {
    async fn begin(shared: &Arc<Shared>, uri: &Uri) -> Result<Self, Problem> {
        let mut params = Params::read(uri, &["after", "selector"])?;
        let after = params.take("after").map(|after| DeviceId::new(&after)).transpose();
        let after = after.map_err(|error| Invalid::name("after", error))?;
        let Some(text) = params.take("selector") else { return Ok(Self::Behind(after)) };
        if after.is_some() {
            return Err(Invalid::new("after", "is for an export of all devices, not for one with a selector").into());
        }
        let selector = text.parse::<Selector>().map_err(|error| {
            Invalid::new("selector", format_args!("is not a valid selector: {error}")).value(shown(&text))
        })?;
        let turn = shared.counting_turn().await?;
        let store = shared.store.clone();
        let end = store.journal_end();
        let selecting = blocking(move || {
            let _turn = turn; // Held also if the caller hangs up.
            store.selected(&selector)
        });
        Ok(Self::From(selecting.await?, DeviceNumber(0), end))
    }

    fn read(self, store: &Store) -> Result<(ExportPage, Option<Self>), ReadError> {
        match self {
            Self::Behind(after) => {
                let mut page = store.export(after.as_ref(), PAGE_COUNT)?;
                let last = page.last.take();
                Ok((page, last.map(|last| Self::Behind(Some(last)))))
            }
            Self::From(selected, start, end) => {
                let numbers: Vec<DeviceNumber> = selected.iter_from(start).take(PAGE_COUNT).collect();
                let (mut page, covered) = store.export_numbers(&numbers)?;
                page.devices.retain(|exported| exported.device.since <= end);
                let may_continue = covered < numbers.len() || numbers.len() == PAGE_COUNT;
                let last = numbers[..covered].last().filter(|_| may_continue);
                let next = last.and_then(|last| last.0.checked_add(1));
                Ok((page, next.map(|next| Self::From(selected, DeviceNumber(next), end))))
            }
        }
    }
}

async fn next(shared: Arc<Shared>, cursor: Cursor) -> Option<Result<Page<Cursor>, ReadError>> {
    let page = shared.read_page(move |shared| {
        let is_by_id = matches!(cursor, Cursor::Behind(_));
        let (page, next) = cursor.read(&shared.store)?;
        Ok((lines(page, is_by_id).into(), next))
    });
    page.await
}

fn lines(ExportPage { devices, damaged, .. }: ExportPage, is_by_id: bool) -> Vec<u8> {
    let damaged = damaged.into_iter().map(|id| Told::Damaged(Unreadable::new(id)));
    let mut told: Vec<Told> = devices.into_iter().map(Told::from).chain(damaged).collect();
    if is_by_id {
        told.sort_by(|one, other| one.id().cmp(&other.id())); // A caller that is cut off continues after its last line.
    }
    let mut lines = Vec::new();
    for line in told {
        serde_json::to_writer(&mut lines, &line).expect("our own shapes have string keys");
        lines.push(b'\n');
    }
    lines
}

/// The content of a line.
#[derive(Serialize)]
#[serde(untagged)]
enum Told {
    Device(Box<Line>),
    Damaged(Unreadable),
}

/// A device whose record cannot be read.
#[derive(Serialize)]
pub(crate) struct Unreadable {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<DeviceId>,
    problem: Value,
}

impl Unreadable {
    pub(crate) fn new(id: Option<DeviceId>) -> Self {
        let problem = Problem::new(Kind::Damaged, "the device cannot be read; the server's log names the row");
        Self { id, problem: problem.into_value() }
    }
}

impl Told {
    fn id(&self) -> Option<&DeviceId> {
        match self {
            Self::Device(line) => Some(&line.id),
            Self::Damaged(unreadable) => unreadable.id.as_ref(),
        }
    }
}

impl From<Exported> for Told {
    fn from(exported: Exported) -> Self {
        Self::Device(Box::new(exported.into()))
    }
}

/// A device in the form of an import.
#[derive(Serialize)]
struct Line {
    id: DeviceId,
    platform: Platform,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    web_push: Option<Value>,
    app: AppId,
    locale: Locale,
    environment: Environment,
    #[serde(skip_serializing_if = "Option::is_none")]
    country: Option<Country>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_zone: Option<TimeZone>,
    push_permission: PushPermission,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<UserId>,
    proven: bool,
    subscriptions: Vec<Item>,
    mutes: Vec<mutes::View>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credential_hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seen_at: Option<Rfc3339>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_at: Option<Rfc3339>,
}

impl From<Exported> for Line {
    fn from(exported: Exported) -> Self {
        let Exported { device, credential, subscriptions, mutes, proven } = exported;
        let Device {
            id,
            user,
            app,
            platform,
            environment,
            token,
            locale,
            country,
            time_zone,
            push_permission,
            token_at,
            since: _,
            revision: _,
            seen_at,
        } = device;
        let known = |at: Timestamp| (at > Timestamp(0)).then_some(Rfc3339(at));
        let token_at = token.as_ref().and_then(|_| known(token_at));
        let address = token.map(spelt);
        let (token, web_push) = if platform == Platform::Web { (None, address) } else { (address, None) };
        Self {
            id,
            platform,
            token,
            web_push,
            app,
            locale,
            environment,
            country,
            time_zone,
            push_permission,
            user,
            proven,
            subscriptions: Item::all(grouped(subscriptions)),
            mutes: mutes::View::all(mutes),
            credential_hash: credential.map(|hash| hash.to_string()),
            seen_at: known(seen_at),
            token_at,
        }
    }
}

/// Groups items by name; the names are in order.
pub(crate) fn grouped<T: PartialEq, U>(pairs: Vec<(T, U)>) -> Vec<(T, Vec<U>)> {
    let mut groups: Vec<(T, Vec<U>)> = Vec::new();
    for (name, item) in pairs {
        match groups.last_mut() {
            Some((last, items)) if *last == name => items.push(item),
            _ => groups.push((name, vec![item])),
        }
    }
    groups
}

/// An address in the field of its platform; the serde form is the store's.
fn spelt(token: DeviceToken) -> Value {
    let mut stored = serde_json::to_value(token).expect("our own shapes have string keys");
    if let Some(text) = stored.get_mut("fcm") {
        return text.take();
    }
    match stored.get_mut("web_push").map(Value::take) {
        Some(parts) => {
            json!({"endpoint": parts["endpoint"], "keys": {"p256dh": parts["p256dh"], "auth": parts["auth"]}})
        }
        None => stored,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exported(id: &str) -> Exported {
        let id = DeviceId::new(id).unwrap();
        let device = Device {
            id,
            user: None,
            app: AppId::new("app").unwrap(),
            platform: Platform::Ios,
            environment: Environment::Production,
            token: None,
            locale: Locale::new("sv").unwrap(),
            country: None,
            time_zone: None,
            push_permission: PushPermission::Unknown,
            token_at: Timestamp(0),
            since: JournalPosition(0),
            revision: 1,
            seen_at: Timestamp(0),
        };
        Exported { device, credential: None, subscriptions: Vec::new(), mutes: Vec::new(), proven: false }
    }

    /// A reader that was cut off continues without a gap, and an import of all lines reports the damaged device.
    #[test]
    fn a_device_that_cannot_be_read_has_a_line_in_its_place() {
        let page = ExportPage {
            devices: vec![exported("b"), exported("d")],
            damaged: vec![DeviceId::new("a").ok(), DeviceId::new("c").ok()],
            last: None,
        };
        let text = String::from_utf8(lines(page, true)).unwrap();
        let told: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let ids: Vec<&str> = told.iter().map(|line| line["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["a", "b", "c", "d"]);
        for (line, is_damaged) in told.iter().zip([true, false, true, false]) {
            assert_eq!(line["problem"]["type"] == "urn:tidings:problem:damaged", is_damaged, "{line}");
        }
        let refused = crate::read_device(text.lines().next().unwrap().as_bytes(), 1).unwrap_err();
        assert!(refused.contains("`problem` marks a device that an export could not read"), "{refused}");
        assert!(crate::read_device(text.lines().nth(1).unwrap().as_bytes(), 1).is_ok());

        let nobody_knows = ExportPage { damaged: vec![None], ..ExportPage::default() };
        let text = lines(nobody_knows, false);
        assert!(text.starts_with(b"{\"problem\":{"), "{}", text.escape_ascii());
    }
}
