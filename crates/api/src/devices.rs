//! `/v1/devices`: registering devices, their subscriptions and their users. The shapes are in the crate's header.
//!
//! A credential is a secret: only the answer that makes it contains it, and no cache may keep that answer. When a
//! device gets a new credential, is logged out or deleted, its connections lose their proof; at a log-out they are also
//! closed. A look-up by token has the token in its body, so that no log of paths contains it.
//!
//! A conditional change is a read and a write that succeeds only if the device has not changed since the read. If it
//! has changed, both are repeated, at most [`ATTEMPT_COUNT_MAX`] times.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, ETAG};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tidings_store::{
    ChangeError, Credential, NewDevice, Precondition, PutTerms, ReadError, Registered, Store, WriteError,
};
use tidings_telemetry::unix_now;
use tidings_types::{
    AppId, Country, Device, DeviceId, DeviceNumber, DeviceToken, Environment, Locale, Platform, Provider,
    PushPermission, Subject, TimeZone, Timestamp, TopicName, UserId,
};

use crate::conditions::{Conditions, tag};
use crate::guard::JsonBody;
use crate::input::{self, Field, LATER, Object, Schema};
use crate::mutes;
use crate::ports::Connections;
use crate::problem::{Invalid, Kind, Problem, json};
use crate::query::Params;
use crate::rfc3339::Rfc3339;
use crate::shared::Shared;
use crate::target::{Target, found};
use crate::warnings::{Configured, Kind as WarningKind, Strict, Warnings};

pub(crate) const DEVICE: Schema = Schema {
    fields: &[
        "platform",
        "token",
        "web_push",
        "app",
        "locale",
        "environment",
        "country",
        "time_zone",
        "push_permission",
        "user",
        "proven",
    ],
    refused: &[
        ("id", "is given by the path"),
        ("subscriptions", "cannot be set here: use PUT /v1/devices/{id}/subscriptions"),
        ("endpoint", IN_WEB_PUSH),
        ("keys", IN_WEB_PUSH),
        ("mutes", "cannot be set here: use PUT /v1/devices/{id}/mutes/{scope}"),
    ],
};
pub(crate) const LOOKUP: Schema = Schema { fields: &["platform", "token", "web_push"], refused: &[] };
/// The result of a browser's `PushSubscription.toJSON()`.
pub(crate) const WEB_PUSH: Schema = Schema { fields: &["endpoint", "expirationTime", "keys"], refused: &[] };
pub(crate) const WEB_PUSH_KEYS: Schema = Schema { fields: &["p256dh", "auth"], refused: &[] };
pub(crate) const SUBSCRIPTIONS: Schema = Schema { fields: &["subscriptions"], refused: &[] };
pub(crate) const SUBSCRIPTION: Schema = Schema { fields: &["subject", "topics"], refused: &[("filter", LATER)] };

/// Why a part of a browser's subscription is refused as a field of its own.
const IN_WEB_PUSH: &str = "is a part of `web_push`, which takes what PushSubscription.toJSON() gives";

/// Platforms by their words.
pub(crate) const PLATFORMS: [(&str, Platform); 3] =
    [("ios", Platform::Ios), ("android", Platform::Android), ("web", Platform::Web)];
/// A provider's environments by name, the default first.
pub(crate) const ENVIRONMENTS: [(&str, Environment); 2] =
    [("production", Environment::Production), ("sandbox", Environment::Sandbox)];

/// The permissions that a device reports, by name.
pub(crate) const PUSH_PERMISSIONS: [(&str, PushPermission); 4] = [
    ("unknown", PushPermission::Unknown),
    ("granted", PushPermission::Granted),
    ("provisional", PushPermission::Provisional),
    ("denied", PushPermission::Denied),
];

/// How often a conditional change is tried.
const ATTEMPT_COUNT_MAX: usize = 8;
/// The most bytes of a browser's endpoint.
pub(crate) const ENDPOINT_BYTES_MAX: usize = 2048;
/// The most characters of a host (RFC 1035, 2.3.4).
const HOST_BYTES_MAX: usize = 253;

/// Subscriptions as pairs, without repeats.
pub(crate) type Pairs = BTreeSet<(Subject, TopicName)>;
/// Subscriptions as the store and the wire group them.
pub(crate) type Selection = Vec<(Subject, Vec<TopicName>)>;

pub(crate) async fn put_device(
    State(shared): State<Arc<Shared>>,
    target: Target,
    conditions: Conditions,
    strict: Strict,
    body: JsonBody,
) -> Result<Response, Problem> {
    let (mut device, proven) = new_device(target.id.clone(), &body.0)?;
    let mut warnings = Warnings::default();
    leave_unknown_locale_out(&*shared.configured, &mut device, &mut warnings);
    note_unserved(&*shared.configured, &device, &mut warnings);
    strict.admit(&warnings)?;
    target.refuse_to_app("proven", proven.as_ref(), "can only be set by a backend, not by an app")?;
    target.refuse_to_app("user", device.user.as_ref(), "cannot be set by an app: it is the user of the token")?;
    let _turn = target.turn(&shared).await?;
    let registered = if target.is_trusted() && !conditions.are_stated() {
        let terms = PutTerms { proven, precondition: Precondition::None };
        shared.store.put_device(device, terms, unix_now()).await.map_err(of_change)?
    } else {
        put_as_found(&shared, &target, &conditions, &device, proven).await?
    };
    let credential = registered.credential.as_ref().map(Credential::as_str);
    let status = if registered.created { StatusCode::CREATED } else { StatusCode::OK };
    let view = Put { device: View::new(&registered.device, credential), warnings };
    Ok(secret(tagged(json(status, &view), &registered.device)))
}

/// A device that was registered or changed.
#[derive(Serialize)]
struct Put<'a> {
    #[serde(flatten)]
    device: View<'a>,
    #[serde(skip_serializing_if = "Warnings::is_empty")]
    warnings: Warnings,
}

/// A locale whose language does not exist is not kept. An import takes it as it is.
fn leave_unknown_locale_out(configured: &dyn Configured, device: &mut NewDevice, warnings: &mut Warnings) {
    if !configured.knows_language(&device.locale) {
        let rule = format!("{} is of no known language, so und is used, with the source texts", device.locale);
        device.locale = Locale::new("und").expect("und is a language by BCP 47");
        warnings.add(WarningKind::UnknownLocale, "locale", rule);
    }
}

/// Warns if no push can reach the device although it has an address.
fn note_unserved(configured: &dyn Configured, device: &NewDevice, warnings: &mut Warnings) {
    let NewDevice { app, platform, environment, token, .. } = device;
    let provider = platform.provider();
    if token.is_some() && !configured.serves(app, provider, *environment) {
        let section = provider.as_str();
        let world = if provider == Provider::Apns {
            format!(" of environment {}", environment.as_str())
        } else {
            String::new()
        };
        let rule =
            format_args!("{app} is not listed in any section [{section}.NAME]{world}, so the device cannot be pushed")
                .to_string();
        warnings.add(WarningKind::UnservedApp, "app", rule);
    }
}

/// Registers the device if its current state fulfils the conditions.
async fn put_as_found(
    shared: &Arc<Shared>,
    target: &Target,
    conditions: &Conditions,
    device: &NewDevice,
    proven: Option<bool>,
) -> Result<Registered, Problem> {
    for _ in 0..ATTEMPT_COUNT_MAX {
        let (known, user) = target.owner(shared, device.user.clone()).await?; // A caller without permission must not learn the tag.
        let held = conditions.hold(known.as_ref().map(|known| known.revision));
        // An app must not learn whether another user's device is registered.
        held.map_err(|unmet| match &known {
            None if !target.is_trusted() => Problem::no_device(&target.id),
            _ => unmet,
        })?;
        let precondition = known.map_or(Precondition::Absent, |known| Precondition::Revision(known.revision));
        let (device, terms) = (NewDevice { user, ..device.clone() }, PutTerms { proven, precondition });
        match shared.store.put_device(device, terms, unix_now()).await {
            Err(ChangeError::PreconditionFailed { .. }) => {}
            put => return put.map_err(of_change),
        }
    }
    Err(restless())
}

/// The device as an answer, with its tag.
fn shown(status: StatusCode, device: &Device) -> Response {
    tagged(json(status, &View::new(device, None)), device)
}

fn tagged(mut response: Response, device: &Device) -> Response {
    response.headers_mut().insert(ETAG, tag(device.revision));
    response
}

fn of_change(error: ChangeError) -> Problem {
    match error {
        ChangeError::PreconditionFailed { .. } => restless(),
        other => other.into(),
    }
}

fn restless() -> Problem {
    Problem::new(Kind::Overloaded, "other requests changed the device again and again: try again")
}

/// Marks an answer with a credential: no cache on the way may keep it (RFC 9111, 5.2.2.5).
fn secret(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A page of the devices, in the order of their ids.
pub(crate) async fn devices(State(shared): State<Arc<Shared>>, uri: Uri) -> Result<Response, Problem> {
    page(&shared, &uri, |store, after, limit| store.devices(after, limit)).await
}

/// A page of the devices that `find` returns for a start and a limit.
pub(crate) async fn page(
    shared: &Arc<Shared>,
    uri: &Uri,
    find: impl FnOnce(&Store, Option<&DeviceId>, usize) -> Result<Vec<Device>, ReadError> + Send + 'static,
) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct Page<'a> {
        devices: Vec<View<'a>>,
        /// The `after` of the next page; absent on the last page.
        #[serde(skip_serializing_if = "Option::is_none")]
        next: Option<&'a DeviceId>,
    }
    let mut params = Params::read(uri, &["after", "limit"])?;
    let limit = params.limit()?;
    let after = params.take("after").map(|after| DeviceId::new(&after)).transpose();
    let after = after.map_err(|error| Invalid::name("after", error))?;
    // One more entry shows whether there is a next page.
    let found = shared.read(move |shared| find(&shared.store, after.as_ref(), limit + 1)).await?;
    let page = &found[..limit.min(found.len())];
    let next = page.last().filter(|_| found.len() > limit).map(|device| &device.id);
    let devices = page.iter().map(|device| View::new(device, None)).collect();
    Ok(json(StatusCode::OK, &Page { devices, next }))
}

pub(crate) async fn device(
    State(shared): State<Arc<Shared>>,
    target: Target,
    conditions: Conditions,
) -> Result<Response, Problem> {
    let _place = target.read(&shared).await?;
    let device = found(&shared, &target.id, Store::device).await?;
    if conditions.is_news(device.revision)? {
        let selection = found(&shared, &target.id, Store::subscriptions).await?;
        let mutes = found(&shared, &target.id, Store::mutes).await?;
        let (subscriptions, mutes) = (Item::all(selection), mutes::View::all(mutes));
        let whole = Whole { device: View::new(&device, None), subscriptions, mutes };
        return Ok(secret(tagged(json(StatusCode::OK, &whole), &device))); // The tag does not cover all of this answer: no cache.
    }
    Ok((StatusCode::NOT_MODIFIED, [(ETAG, tag(device.revision))]).into_response())
}

/// The device that has a token.
pub(crate) async fn look_up(State(shared): State<Arc<Shared>>, body: JsonBody) -> Result<Response, Problem> {
    let mut object = input::root(&body.0)?.object(&LOOKUP)?;
    let platform = object.require("platform", "")?.one_of(&PLATFORMS)?;
    let token = required_address(&mut object, platform)?;
    let device = shared.read(move |shared| shared.store.device_by_token(&token)).await?;
    let device = device.ok_or_else(|| Problem::new(Kind::NotFound, "no device has this token"))?;
    Ok(shown(StatusCode::OK, &device))
}

pub(crate) async fn delete_device(
    State(shared): State<Arc<Shared>>,
    target: Target,
    conditions: Conditions,
) -> Result<Response, Problem> {
    let _turn = target.change_alone(&shared).await?;
    let id = &target.id;
    for _ in 0..ATTEMPT_COUNT_MAX {
        let mut precondition = Precondition::None;
        if conditions.are_stated() {
            let known = found(&shared, id, Store::device).await?;
            conditions.hold(Some(known.revision))?;
            precondition = Precondition::Revision(known.revision);
        }
        let revocation = Revocation::new(&shared, id, false).await?;
        let deleted = shared.store.delete_device(id, precondition).await.map(|deleted| deleted.then_some(()));
        match revocation.over(deleted) {
            Err(ChangeError::PreconditionFailed { .. }) => {}
            Err(error) => return Err(of_change(error)),
            Ok(None) => return Err(Problem::no_device(id)),
            Ok(Some(())) => return Ok(StatusCode::NO_CONTENT.into_response()),
        }
    }
    Err(restless())
}

/// Gives the device a new credential; the old one is invalid from now on.
pub(crate) async fn post_credential(State(shared): State<Arc<Shared>>, target: Target) -> Result<Response, Problem> {
    let _turn = target.change_alone(&shared).await?;
    let revocation = Revocation::new(&shared, &target.id, false).await?;
    let rotated = revocation.over(shared.store.rotate_credential(&target.id).await.map_err(ChangeError::from));
    let (_, credential) = rotated.map_err(of_change)?.ok_or_else(|| Problem::no_device(&target.id))?;
    Ok(proof(&credential))
}

/// Takes user, subscriptions, mutes and credential from the device; it stays registered, without a user.
pub(crate) async fn post_logout(State(shared): State<Arc<Shared>>, target: Target) -> Result<Response, Problem> {
    let _turn = target.change_alone(&shared).await?; // No replacement of subscriptions may finish after it.
    let revocation = Revocation::new(&shared, &target.id, true).await?;
    let logged_out = revocation.over(shared.store.log_out(&target.id).await.map_err(ChangeError::from));
    let (_, credential) = logged_out.map_err(of_change)?.ok_or_else(|| Problem::no_device(&target.id))?;
    Ok(proof(&credential))
}

/// Ends the proof of a device's connections when it is dropped. So it does so also if the caller hangs up while the
/// store writes: then the handler ends, but the write stands.
struct Revocation<'a> {
    connections: &'a dyn Connections,
    device: Option<DeviceNumber>,
    close: bool,
}

impl<'a> Revocation<'a> {
    async fn new(shared: &'a Arc<Shared>, id: &DeviceId, close: bool) -> Result<Self, Problem> {
        let id = id.clone();
        let device = shared.read(move |shared| shared.store.device_number(&id)).await?;
        Ok(Self { connections: &*shared.connections, device, close })
    }

    /// The store has answered. If it has surely changed nothing, nothing is revoked.
    fn over<T, E>(mut self, answer: Result<Option<T>, E>) -> Result<Option<T>, ChangeError>
    where
        ChangeError: From<E>,
    {
        let answer = answer.map_err(ChangeError::from);
        let is_undone = |error: &ChangeError| !matches!(error, ChangeError::Write(WriteError::Unavailable));
        if matches!(answer, Ok(None)) || answer.as_ref().is_err_and(is_undone) {
            self.device = None;
        }
        answer
    }
}

impl Drop for Revocation<'_> {
    fn drop(&mut self) {
        if let Some(device) = self.device {
            self.connections.revoke(device, self.close);
        }
    }
}

fn proof(credential: &Credential) -> Response {
    #[derive(Serialize)]
    struct Proof<'a> {
        credential: &'a str,
    }
    secret(json(StatusCode::OK, &Proof { credential: credential.as_str() }))
}

/// Subscriptions as answers show them.
#[derive(Serialize)]
pub(crate) struct Item {
    subject: Subject,
    topics: Vec<TopicName>,
}

impl Item {
    pub(crate) fn all(selection: Selection) -> Vec<Self> {
        selection.into_iter().map(|(subject, topics)| Self { subject, topics }).collect()
    }
}

pub(crate) async fn subscriptions(State(shared): State<Arc<Shared>>, target: Target) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct List {
        subscriptions: Vec<Item>,
    }
    let _place = target.read(&shared).await?;
    let selection = found(&shared, &target.id, Store::subscriptions).await?;
    Ok(json(StatusCode::OK, &List { subscriptions: Item::all(selection) }))
}

/// A device with its subscriptions and mutes.
#[derive(Serialize)]
pub(crate) struct Whole<'a> {
    #[serde(flatten)]
    pub(crate) device: View<'a>,
    pub(crate) subscriptions: Vec<Item>,
    pub(crate) mutes: Vec<mutes::View>,
}

/// What a change of subscriptions did.
#[derive(Debug, Serialize)]
struct Changed {
    added: usize,
    removed: usize,
    #[serde(skip_serializing_if = "Warnings::is_empty")]
    warnings: Warnings,
}

pub(crate) async fn put_subscriptions(
    State(shared): State<Arc<Shared>>,
    target: Target,
    strict: Strict,
    body: JsonBody,
) -> Result<Response, Problem> {
    let wanted = pairs(&body.0, shared.config.subscription_count_max)?;
    let warnings = unknown_topics(&*shared.configured, &wanted);
    strict.admit(&warnings)?;
    let _turn = target.change_alone(&shared).await?;
    let id = &target.id;
    let present = present(&shared, id).await?;
    target.check_subjects(&shared, wanted.difference(&present).map(|(subject, _)| subject))?;
    let (surplus, missing) = (grouped(present.difference(&wanted)), grouped(wanted.difference(&present)));
    let (mut added, mut removed) = (0, 0);
    // First the surplus is removed, so that the device never exceeds its limit. Subscriptions that stay are not
    // touched, so the device misses no event.
    if !surplus.is_empty() {
        removed = shared.store.unsubscribe(id, surplus).await.map_err(|error| Problem::of_subscribe(error, id))?;
    }
    if !missing.is_empty() {
        added = shared.store.subscribe(id, missing).await.map_err(|error| Problem::of_subscribe(error, id))?;
    }
    Ok(json(StatusCode::OK, &Changed { added, removed, warnings }))
}

/// Warns of topics that are not configured: only an event with texts of its own can have them.
fn unknown_topics(configured: &dyn Configured, wanted: &Pairs) -> Warnings {
    let mut warnings = Warnings::default();
    let topics: BTreeSet<&TopicName> = wanted.iter().map(|(_, topic)| topic).collect();
    for topic in topics.into_iter().filter(|topic| !configured.knows_topic(topic)) {
        let rule = format_args!(
            "topic {topic} is not in the configuration (topics): only an event with texts of its own can have it"
        )
        .to_string();
        warnings.add(WarningKind::UnknownTopic, "subscriptions", rule);
    }
    warnings
}

async fn present(shared: &Arc<Shared>, id: &DeviceId) -> Result<Pairs, Problem> {
    Ok(ungrouped(found(shared, id, Store::subscriptions).await?).collect())
}

pub(crate) async fn post_subscriptions(
    State(shared): State<Arc<Shared>>,
    target: Target,
    strict: Strict,
    body: JsonBody,
) -> Result<Response, Problem> {
    let wanted = pairs(&body.0, shared.config.subscription_count_max)?;
    let warnings = unknown_topics(&*shared.configured, &wanted);
    strict.admit(&warnings)?;
    let _turn = target.change(&shared).await?;
    if !target.is_trusted() {
        let present = present(&shared, &target.id).await?;
        target.check_subjects(&shared, wanted.difference(&present).map(|(subject, _)| subject))?;
    }
    let added = shared.store.subscribe(&target.id, grouped(&wanted)).await;
    let added = added.map_err(|error| Problem::of_subscribe(error, &target.id))?;
    Ok(json(StatusCode::OK, &Changed { added, removed: 0, warnings }))
}

pub(crate) async fn delete_subscriptions(
    State(shared): State<Arc<Shared>>,
    target: Target,
    uri: Uri,
) -> Result<Response, Problem> {
    let selected = selected(&uri)?;
    let _turn = target.change(&shared).await?;
    let removed = shared.store.unsubscribe(&target.id, vec![selected]).await;
    let removed = removed.map_err(|error| Problem::of_subscribe(error, &target.id))?;
    Ok(json(StatusCode::OK, &Changed { added: 0, removed, warnings: Warnings::default() }))
}

/// `?subject=…`, with `&topic=…` for one of its topics.
fn selected(uri: &Uri) -> Result<(Subject, Vec<TopicName>), Invalid> {
    let mut params = Params::read(uri, &["subject", "topic"])?;
    let subject = params.take("subject");
    let subject = subject.ok_or_else(|| Invalid::new("subject", "is required in the query: ?subject=team:42"))?;
    let subject = Subject::new(&subject).map_err(|error| Invalid::name("subject", error))?;
    let topic = params.take("topic").map(|topic| TopicName::new(&topic)).transpose();
    Ok((subject, topic.map_err(|error| Invalid::name("topic", error))?.into_iter().collect()))
}

/// Reads a device from a body, with its field `proven`.
pub(crate) fn new_device(id: DeviceId, body: &[u8]) -> Result<(NewDevice, Option<bool>), Problem> {
    let mut object = input::root(body)?.object(&DEVICE)?;
    // A device without the permission for pushes may have no address. For other devices an address is required.
    let is_reached = |permission| !matches!(permission, Some(PushPermission::Denied | PushPermission::Unknown));
    Ok(described(id, &mut object, is_reached)?)
}

/// Like [`new_device`], for an object that may have further fields. The permission decides whether an address is
/// required.
pub(crate) fn described(
    id: DeviceId,
    object: &mut Object<'_>,
    is_reached: impl FnOnce(Option<PushPermission>) -> bool,
) -> Result<(NewDevice, Option<bool>), Invalid> {
    let platform = object.require("platform", "")?.one_of(&PLATFORMS)?;
    let proven = object.take("proven").map(|proven| proven.boolean()).transpose()?;
    let permission = object.take("push_permission").map(|field| field.one_of(&PUSH_PERMISSIONS)).transpose()?;
    let token =
        if is_reached(permission) { Some(required_address(object, platform)?) } else { address(object, platform)? };
    let app = object.require("app", "")?.name(AppId::new)?;
    let device = NewDevice {
        token,
        environment: environment(object, platform)?,
        country: object.take("country").map(|country| country.name(Country::new)).transpose()?,
        time_zone: object.take("time_zone").map(|zone| zone.name(TimeZone::new)).transpose()?,
        push_permission: permission.unwrap_or_default(),
        user: object.take("user").map(|user| user.name(UserId::new)).transpose()?,
        ..NewDevice::new(id, app, platform, object.require("locale", "")?.name(Locale::new)?)
    };
    Ok((device, proven))
}

fn required_address(object: &mut Object<'_>, platform: Platform) -> Result<DeviceToken, Invalid> {
    let (field, _) = address_fields(platform);
    let missing = Invalid::new(&object.path_of(field), "is required");
    address(object, platform)?.ok_or(missing)
}

/// The field with the address on this platform, and the fields of other platforms.
fn address_fields(platform: Platform) -> (&'static str, &'static str) {
    match platform {
        Platform::Ios | Platform::Android => ("token", "web_push"),
        Platform::Web => ("web_push", "token"),
    }
}

/// The device's address, if there is one.
fn address(object: &mut Object<'_>, platform: Platform) -> Result<Option<DeviceToken>, Invalid> {
    let (field, other) = address_fields(platform);
    if let Some(foreign) = object.take(other) {
        return Err(foreign.invalid(format_args!("is not for {}, which has `{field}`", platform.as_str())));
    }
    let Some(address) = object.take(field) else { return Ok(None) };
    let address = match platform {
        Platform::Ios => address.name(DeviceToken::from_hex),
        Platform::Android => address.name(DeviceToken::fcm),
        Platform::Web => web_push(address),
    };
    address.map(Some)
}

/// A browser's subscription. Its `expirationTime` is ignored: the push service tells when a subscription has ended.
fn web_push(field: Field<'_>) -> Result<DeviceToken, Invalid> {
    let mut object = field.object(&WEB_PUSH)?;
    let endpoint = object.require("endpoint", "")?;
    let mut keys = object.require("keys", "")?.object(&WEB_PUSH_KEYS)?;
    let (p256dh, auth) = (keys.require("p256dh", "")?, keys.require("auth", "")?);
    let text = endpoint.text_within(1..=ENDPOINT_BYTES_MAX)?;
    if let Some(rule) = endpoint_mistake(&text) {
        return Err(endpoint.invalid(rule)); // Its value is not repeated: an endpoint may be enough to push.
    }
    DeviceToken::web_push(&text, &p256dh.text()?, &auth.text()?).map_err(|error| {
        let field = match error.what {
            "p256dh" => &p256dh,
            "auth" => &auth,
            _ => &endpoint,
        };
        Invalid::name(&field.path, error)
    })
}

/// What is wrong with the form of an endpoint: it must be `https://HOST[:PORT][/PATH][?QUERY]`. Whether the server may
/// connect to the host is checked when it connects.
fn endpoint_mistake(text: &str) -> Option<&'static str> {
    let Some(rest) = text.strip_prefix("https://") else { return Some("must begin with https://") };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (host, port) = authority.split_once(':').unwrap_or((authority, "443"));
    let is_in_host = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    let is_in_path = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/?@!$&'()*+,;=%".contains(&byte);
    if authority.contains('@') {
        Some("must not hold a user or password before its host")
    } else if !(1..=HOST_BYTES_MAX).contains(&host.len()) || !host.bytes().all(is_in_host) {
        Some("must have a host of 1 to 253 letters, digits, hyphens and dots behind https://")
    } else if !port.bytes().all(|byte| byte.is_ascii_digit()) || !port.parse::<u16>().is_ok_and(|port| port > 0) {
        Some("must have a port from 1 to 65535, or none")
    } else if !path.bytes().all(is_in_path) {
        Some("must have a path of the characters of a URL (RFC 3986), without a fragment")
    } else {
        None
    }
}

/// Only Apple has two environments.
fn environment(object: &mut Object<'_>, platform: Platform) -> Result<Environment, Invalid> {
    let Some(field) = object.take("environment") else { return Ok(Environment::default()) };
    let environment = field.one_of(&ENVIRONMENTS)?;
    if environment == Environment::Sandbox && platform != Platform::Ios {
        return Err(field
            .invalid("must be \"production\" where platform is not ios, got \"sandbox\"")
            .value("sandbox"));
    }
    Ok(environment)
}

fn pairs(body: &[u8], max: usize) -> Result<Pairs, Problem> {
    let mut object = input::root(body)?.object(&SUBSCRIPTIONS)?;
    Ok(pairs_of(object.require("subscriptions", "")?, max)?)
}

pub(crate) fn pairs_of(list: Field<'_>, max: usize) -> Result<Pairs, Invalid> {
    let path = list.path.clone();
    let mut pairs = Pairs::new();
    for item in list.items(0..=max, "subjects")? {
        let mut item = item.object(&SUBSCRIPTION)?;
        let subject = item.require("subject", "")?.name(Subject::new)?;
        for topic in item.require("topics", "")?.items(1..=max, "topics")? {
            pairs.insert((subject.clone(), topic.name(TopicName::new)?));
        }
        if pairs.len() > max {
            let rule = format!("must hold at most {max} pairs of subject and topic, got {} or more", pairs.len());
            return Err(Invalid::new(&path, rule).limit(max).value(pairs.len()));
        }
    }
    Ok(pairs)
}

fn ungrouped(selection: Selection) -> impl Iterator<Item = (Subject, TopicName)> {
    selection.into_iter().flat_map(|(subject, topics)| topics.into_iter().map(move |topic| (subject.clone(), topic)))
}

fn grouped<'p>(pairs: impl IntoIterator<Item = &'p (Subject, TopicName)>) -> Selection {
    let mut selection = Selection::new();
    for (subject, topic) in pairs {
        match selection.last_mut() {
            Some((last, topics)) if last == subject => topics.push(topic.clone()),
            _ => selection.push((subject.clone(), vec![topic.clone()])),
        }
    }
    selection
}

/// A device as answers show it. Of its token or endpoint only the end is shown, enough to tell two apart.
#[derive(Debug, Serialize)]
pub(crate) struct View<'a> {
    id: &'a DeviceId,
    platform: Platform,
    app: &'a AppId,
    environment: Environment,
    /// Absent if it never had one, if the provider said that it is gone, or if another device registered it.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    push_permission: PushPermission,
    locale: &'a Locale,
    #[serde(skip_serializing_if = "Option::is_none")]
    country: Option<&'a Country>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_zone: Option<&'a TimeZone>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a UserId>,
    /// The day; absent if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    seen_at: Option<Rfc3339>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credential: Option<&'a str>,
}

impl<'a> View<'a> {
    pub(crate) fn new(device: &'a Device, credential: Option<&'a str>) -> Self {
        Self {
            id: &device.id,
            platform: device.platform,
            app: &device.app,
            environment: device.environment,
            token: device.token.as_ref().map(token_end),
            push_permission: device.push_permission,
            locale: &device.locale,
            country: device.country.as_ref(),
            time_zone: device.time_zone.as_ref(),
            user: device.user.as_ref(),
            seen_at: (device.seen_at > Timestamp::default()).then_some(Rfc3339(device.seen_at)),
            credential,
        }
    }
}

/// The last four characters; empty if the token is so short that they would be a large part of it.
fn token_end(token: &DeviceToken) -> String {
    let text = token.to_text();
    let end = text.len().checked_sub(4).filter(|start| *start >= 12).and_then(|start| text.get(start..));
    format!("…{}", end.unwrap_or_default())
}
