//! `/v1/devices`: registering devices, what they are subscribed to, whose they are. The shapes are in the crate's header.
//!
//! A credential is a secret: it is in the answer that makes it and nowhere else, and no cache may keep that answer. When a
//! device gets another one, is logged out or forgotten, its connections lose their proof; at a log-out they are closed.
//! Looking a device up by its token takes that in a body, so that it is in nobody's log of paths.
//!
//! A change on a condition is a read and a write that holds only if the device is still what was read; when something came
//! between, it is judged anew, at most [`ATTEMPT_COUNT_MAX`] times.

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
        ("subscriptions", "is not part of this: use PUT /v1/devices/{id}/subscriptions"),
        ("endpoint", IN_WEB_PUSH),
        ("keys", IN_WEB_PUSH),
        ("mutes", "is not part of this: use PUT /v1/devices/{id}/mutes/{scope}"),
    ],
};
pub(crate) const LOOKUP: Schema = Schema { fields: &["platform", "token", "web_push"], refused: &[] };
/// What `PushSubscription.toJSON()` of a browser gives.
pub(crate) const WEB_PUSH: Schema = Schema { fields: &["endpoint", "expirationTime", "keys"], refused: &[] };
pub(crate) const WEB_PUSH_KEYS: Schema = Schema { fields: &["p256dh", "auth"], refused: &[] };
pub(crate) const SUBSCRIPTIONS: Schema = Schema { fields: &["subscriptions"], refused: &[] };
pub(crate) const SUBSCRIPTION: Schema = Schema { fields: &["subject", "topics"], refused: &[("filter", LATER)] };

/// The reason of the parts of a browser's subscription where only the whole is taken.
const IN_WEB_PUSH: &str = "is a part of `web_push`, which takes what PushSubscription.toJSON() gives";

/// Platforms by their words.
pub(crate) const PLATFORMS: [(&str, Platform); 3] =
    [("ios", Platform::Ios), ("android", Platform::Android), ("web", Platform::Web)];
/// A provider's worlds by their words, the usual one first.
pub(crate) const ENVIRONMENTS: [(&str, Environment); 2] =
    [("production", Environment::Production), ("sandbox", Environment::Sandbox)];

/// What a device says of its permission, by its words.
pub(crate) const PUSH_PERMISSIONS: [(&str, PushPermission); 4] = [
    ("unknown", PushPermission::Unknown),
    ("granted", PushPermission::Granted),
    ("provisional", PushPermission::Provisional),
    ("denied", PushPermission::Denied),
];

/// Reading and changing a device until nothing comes between.
const ATTEMPT_COUNT_MAX: usize = 8;
/// Bytes of a browser's endpoint.
pub(crate) const ENDPOINT_BYTES_MAX: usize = 2048;
/// Characters of a host (RFC 1035, 2.3.4).
const HOST_BYTES_MAX: usize = 253;

/// Subscriptions as pairs, each once.
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
    let (device, proven) = new_device(target.id.clone(), &body.0)?;
    let mut warnings = Warnings::default();
    note_unserved(&*shared.configured, &device, &mut warnings);
    strict.admit(&warnings)?;
    target.refuse_to_app("proven", proven.as_ref(), "is for backends to say, not for apps")?;
    target.refuse_to_app("user", device.user.as_ref(), "is not for apps to say: it is whose user token comes along")?;
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

/// A device that was put.
#[derive(Serialize)]
struct Put<'a> {
    #[serde(flatten)]
    device: View<'a>,
    #[serde(skip_serializing_if = "Warnings::is_empty")]
    warnings: Warnings,
}

/// That no push can reach the device, though it has an address.
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
            format_args!("{app} is in no section [{section}.NAME]{world}, so the device cannot be pushed").to_string();
        warnings.add(WarningKind::UnservedApp, "app", rule);
    }
}

/// Puts the device if what there is of it admits that.
async fn put_as_found(
    shared: &Arc<Shared>,
    target: &Target,
    conditions: &Conditions,
    device: &NewDevice,
    proven: Option<bool>,
) -> Result<Registered, Problem> {
    for _ in 0..ATTEMPT_COUNT_MAX {
        let (known, user) = target.owner(shared, device.user.clone()).await?; // Who may not learns of no tag.
        let held = conditions.hold(known.as_ref().map(|known| known.revision));
        // An app must not learn whether a device that is not its own is registered.
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
    Problem::new(Kind::Overloaded, "the device is changed by others all the time")
}

/// An answer with a credential: no cache on the way may keep it (RFC 9111, 5.2.2.5).
fn secret(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A page of the devices, in the order of their ids.
pub(crate) async fn devices(State(shared): State<Arc<Shared>>, uri: Uri) -> Result<Response, Problem> {
    page(&shared, &uri, |store, after, limit| store.devices(after, limit)).await
}

/// A page of the list that `find` gives: so many behind one.
pub(crate) async fn page(
    shared: &Arc<Shared>,
    uri: &Uri,
    find: impl FnOnce(&Store, Option<&DeviceId>, usize) -> Result<Vec<Device>, ReadError> + Send + 'static,
) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct Page<'a> {
        devices: Vec<View<'a>>,
        /// What to ask for as `after`; absent on the last page.
        #[serde(skip_serializing_if = "Option::is_none")]
        next: Option<&'a DeviceId>,
    }
    let mut params = Params::read(uri, &["after", "limit"])?;
    let limit = params.limit()?;
    let after = params.take("after").map(|after| DeviceId::new(&after)).transpose();
    let after = after.map_err(|error| Invalid::name("after", error))?;
    // One more tells whether there is a next page.
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
        return Ok(secret(tagged(json(StatusCode::OK, &whole), &device))); // The tag is not that of all of it: no cache.
    }
    Ok((StatusCode::NOT_MODIFIED, [(ETAG, tag(device.revision))]).into_response())
}

/// Whose token it is.
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

/// Gives the device another credential; the one before is worth nothing from now on.
pub(crate) async fn post_credential(State(shared): State<Arc<Shared>>, target: Target) -> Result<Response, Problem> {
    let _turn = target.change_alone(&shared).await?;
    let revocation = Revocation::new(&shared, &target.id, false).await?;
    let rotated = revocation.over(shared.store.rotate_credential(&target.id).await.map_err(ChangeError::from));
    let (_, credential) = rotated.map_err(of_change)?.ok_or_else(|| Problem::no_device(&target.id))?;
    Ok(proof(&credential))
}

/// Takes user, subscriptions, mutes and credential from the device; it stays registered, as nobody's.
pub(crate) async fn post_logout(State(shared): State<Arc<Shared>>, target: Target) -> Result<Response, Problem> {
    let _turn = target.change_alone(&shared).await?; // No replacement of subscriptions may go on behind it.
    let revocation = Revocation::new(&shared, &target.id, true).await?;
    let logged_out = revocation.over(shared.store.log_out(&target.id).await.map_err(ChangeError::from));
    let (_, credential) = logged_out.map_err(of_change)?.ok_or_else(|| Problem::no_device(&target.id))?;
    Ok(proof(&credential))
}

/// Takes their proof from a device's connections when it is dropped: also when the caller hangs up while the store writes,
/// which ends the handler, and what is written stands.
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

    /// The store has answered. What it has surely not done revokes nothing.
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

/// Subscriptions as they are shown.
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

/// A device with all that belongs to it.
#[derive(Serialize)]
pub(crate) struct Whole<'a> {
    #[serde(flatten)]
    pub(crate) device: View<'a>,
    pub(crate) subscriptions: Vec<Item>,
    pub(crate) mutes: Vec<mutes::View>,
}

/// What changed.
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
    // First away with the surplus, so that the device's limit is never in the way. What stays is not touched, so the
    // device misses nothing that it had and wants.
    if !surplus.is_empty() {
        removed = shared.store.unsubscribe(id, surplus).await.map_err(|error| Problem::of_subscribe(error, id))?;
    }
    if !missing.is_empty() {
        added = shared.store.subscribe(id, missing).await.map_err(|error| Problem::of_subscribe(error, id))?;
    }
    Ok(json(StatusCode::OK, &Changed { added, removed, warnings }))
}

/// Topics that no event can have, unless it brings its own text.
fn unknown_topics(configured: &dyn Configured, wanted: &Pairs) -> Warnings {
    let mut warnings = Warnings::default();
    let topics: BTreeSet<&TopicName> = wanted.iter().map(|(_, topic)| topic).collect();
    for topic in topics.into_iter().filter(|topic| !configured.knows_topic(topic)) {
        let rule = format_args!("topic {topic} is not configured: only an event with texts of its own can have it")
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

/// What is said of a device, and whether its token is said to have worked before.
pub(crate) fn new_device(id: DeviceId, body: &[u8]) -> Result<(NewDevice, Option<bool>), Problem> {
    let mut object = input::root(body)?.object(&DEVICE)?;
    // Who does not let the app push may have no address; elsewhere one that is missing was forgotten.
    let is_reached = |permission| !matches!(permission, Some(PushPermission::Denied | PushPermission::Unknown));
    Ok(described(id, &mut object, is_reached)?)
}

/// The same of an object that may hold more. Whether an address is required depends on the permission that is said.
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

/// The one field that a platform has for where a device is reached, and that of others.
fn address_fields(platform: Platform) -> (&'static str, &'static str) {
    match platform {
        Platform::Ios | Platform::Android => ("token", "web_push"),
        Platform::Web => ("web_push", "token"),
    }
}

/// Where the device is reached, if that is said.
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

/// A browser's subscription. When it says that it ends is not looked at: its push service tells when it has.
fn web_push(field: Field<'_>) -> Result<DeviceToken, Invalid> {
    let mut object = field.object(&WEB_PUSH)?;
    let endpoint = object.require("endpoint", "")?;
    let mut keys = object.require("keys", "")?.object(&WEB_PUSH_KEYS)?;
    let (p256dh, auth) = (keys.require("p256dh", "")?, keys.require("auth", "")?);
    let text = endpoint.text_within(1..=ENDPOINT_BYTES_MAX)?;
    if let Some(rule) = endpoint_mistake(&text) {
        return Err(endpoint.invalid(rule)); // Its value is not repeated: whoever has it may be able to push.
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

/// What is wrong with the form of an endpoint: it must be `https://HOST[:PORT][/PATH][?QUERY]`. Whether the host may be
/// connected to is asked when it is.
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

/// Only Apple has two worlds.
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

/// A device as it is shown. Its token or endpoint only by its end, enough to tell two apart.
#[derive(Debug, Serialize)]
pub(crate) struct View<'a> {
    id: &'a DeviceId,
    platform: Platform,
    app: &'a AppId,
    environment: Environment,
    /// Absent when it never had one, the provider said that it is gone, or another device registered it.
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
    /// The day; absent where nobody knows.
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

/// The last four characters; of a token so short that this would be much of it, nothing.
fn token_end(token: &DeviceToken) -> String {
    let text = token.to_text();
    let end = text.len().checked_sub(4).filter(|start| *start >= 12).and_then(|start| text.get(start..));
    format!("…{}", end.unwrap_or_default())
}
