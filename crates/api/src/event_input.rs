//! Reads events from a body, within their limits.
//!
//! Only what depends on the event alone is checked here: shape, names, limits. Whether its channels are durable, its
//! topic has a text and its notifications fit is checked later. What could be read in two ways is refused: a `to` that
//! names nobody, a filter with an empty list, a language that appears twice.
//!
//! Durations are seconds, or text with a unit. The journal's own rows have `receipt_wait` in milliseconds. Such a
//! number is out of range here, so a stored event that is sent as it is gets refused instead of misread.

mod duration;
mod notification;
mod value;

use std::collections::BTreeMap;

use tidings_types::{
    AppId, ChannelName, CollapseKey, Country, DeviceId, Event, EventId, EventPriority, ExpectAudience, Filter, Json,
    Locale, Number, ParamValue, PushPolicy, ReceiptPolicy, Recipients, Subject, Timestamp, TopicName, TraceContext,
    Urgency, UserId, event_limits as limits,
};

use crate::devices::PLATFORMS;
use crate::input::{self, Field, Object, Schema, distinct, shown};
use crate::problem::{Invalid, Problem};
use crate::rfc3339::Rfc3339;
use crate::selectors::selector;

pub(crate) use duration::{QUERY_WAIT_MAX, TTL_UNITS, wait_of_query, whole_seconds};
pub(crate) use notification::{FCM_OWN_KEYS, INTERRUPTIONS, OWN_KEY, PAYLOAD, PRESENT, TEXT};
pub(crate) use value::{DATE, DATETIME, MONEY, NAME, NUMBER, PERCENT, TIME};

pub(crate) const SCHEMA: Schema = Schema {
    fields: &[
        "id",
        "topic",
        "subjects",
        "to",
        "filter",
        "params",
        "text",
        "present",
        "payload",
        "data",
        "channels",
        "push",
        "receipt",
        "receipt_wait",
        "receipt_policy",
        "collapse_key",
        "ttl",
        "priority",
        "urgency",
        "at",
        "expect_audience",
        "dry_run",
        "traceparent",
    ],
    refused: &[],
};
pub(crate) const EXPECT_AUDIENCE: Schema = Schema { fields: &["min", "max"], refused: &[] };
pub(crate) const TO: Schema = Schema { fields: &["users", "devices", "selector"], refused: &[] };
pub(crate) const FILTER: Schema = Schema { fields: &["countries", "locales", "platforms", "apps"], refused: &[] };

/// Why fields of an event are refused where only its audience matters.
const NO_PART: &str = "is not accepted here: it does not change the audience";
pub(crate) const AUDIENCE: Schema = Schema {
    fields: &["topic", "subjects", "to", "filter"],
    refused: &[
        ("id", NO_PART),
        ("params", NO_PART),
        ("text", NO_PART),
        ("present", NO_PART),
        ("payload", NO_PART),
        ("data", NO_PART),
        ("channels", NO_PART),
        ("push", NO_PART),
        ("receipt", NO_PART),
        ("receipt_wait", NO_PART),
        ("receipt_policy", NO_PART),
        ("collapse_key", NO_PART),
        ("ttl", NO_PART),
        ("priority", NO_PART),
        ("urgency", NO_PART),
        ("at", NO_PART),
        ("expect_audience", NO_PART),
        ("dry_run", NO_PART),
        ("traceparent", NO_PART),
    ],
};

/// The events of a body, and the form of the body.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) events: Vec<Event>,
    /// The body is a list, and the answer is a list; else both are one object.
    pub(crate) is_list: bool,
}

impl Batch {
    pub(crate) fn read(body: &[u8]) -> Result<Self, Problem> {
        let root = input::root(body)?;
        if !root.is_array() {
            return Ok(Self { events: vec![event(root)?], is_list: false });
        }
        let items = root.items(1..=limits::BATCH_COUNT_MAX, "events")?;
        let events = items.into_iter().map(event).collect::<Result<_, _>>()?;
        Ok(Self { events, is_list: true })
    }
}

/// The audience of an event: reads a body with only topic, subjects, `to` and `filter`.
pub(crate) fn audience(body: &[u8]) -> Result<Event, Problem> {
    let mut object = input::root(body)?.object(&AUDIENCE)?;
    let id = EventId::new("preview").expect("visible ASCII");
    Ok(addressed(&mut object, id)?)
}

fn event(field: Field<'_>) -> Result<Event, Invalid> {
    let mut object = field.object(&SCHEMA)?;
    let id =
        object.require("id", ": with it a retry is safe, since an id is accepted only once")?.name(EventId::new)?;
    let addressed = addressed(&mut object, id)?;
    Ok(Event {
        params: object.take("params").map(params).transpose()?.unwrap_or_default(),
        text: object.take("text").map(notification::text).transpose()?.unwrap_or_default(),
        present: object.take("present").map(notification::present).transpose()?.unwrap_or_default(),
        payload: object.take("payload").map(notification::payload).transpose()?.unwrap_or_default(),
        data: object.take("data").map(data).transpose()?,
        channels: object.take("channels").map(channels).transpose()?.unwrap_or_default(),
        push: object.take("push").map(|push| push.one_of(&PUSH_POLICIES)).transpose()?.unwrap_or_default(),
        receipt: object.take("receipt").map(|receipt| receipt.boolean()).transpose()?.unwrap_or_default(),
        receipt_wait: object.take("receipt_wait").map_or(Ok(limits::RECEIPT_WAIT_DEFAULT), duration::receipt_wait)?,
        receipt_policy: object
            .take("receipt_policy")
            .map(|policy| policy.one_of(&RECEIPT_POLICIES))
            .transpose()?
            .unwrap_or_default(),
        collapse_key: object.take("collapse_key").map(|key| key.name(CollapseKey::new)).transpose()?,
        ttl: object.take("ttl").map_or(Ok(limits::TTL_DEFAULT), duration::ttl)?,
        priority: object.take("priority").map(|it| it.one_of(&PRIORITIES)).transpose()?.unwrap_or_default(),
        urgency: object.take("urgency").map(|urgency| urgency.one_of(&URGENCIES)).transpose()?,
        at: object.take("at").map(|at| self::at(&at)).transpose()?,
        expect_audience: object.take("expect_audience").map(expect_audience).transpose()?,
        dry_run: object.take("dry_run").map(|dry_run| dry_run.boolean()).transpose()?.unwrap_or_default(),
        trace: object.take("traceparent").map(|parent| trace(&parent)).transpose()?.map(Box::new),
        ..addressed
    })
}

/// Choices by name, the default first.
pub(crate) const PUSH_POLICIES: [(&str, PushPolicy); 3] =
    [("unless_received", PushPolicy::UnlessReceived), ("always", PushPolicy::Always), ("never", PushPolicy::Never)];
pub(crate) const RECEIPT_POLICIES: [(&str, ReceiptPolicy); 2] =
    [("visible", ReceiptPolicy::Visible), ("any", ReceiptPolicy::Any)];
pub(crate) const PRIORITIES: [(&str, EventPriority); 3] =
    [("normal", EventPriority::Normal), ("high", EventPriority::High), ("low", EventPriority::Low)];
/// The default is the last one.
pub(crate) const URGENCIES: [(&str, Urgency); 4] =
    [("very_low", Urgency::VeryLow), ("low", Urgency::Low), ("normal", Urgency::Normal), ("high", Urgency::High)];
/// The largest possible audience: as many devices as there are device numbers.
pub(crate) const AUDIENCE_COUNT_MAX: u64 = u32::MAX as u64;

/// Reads the fields that say for whom an event is.
fn addressed(object: &mut Object<'_>, id: EventId) -> Result<Event, Invalid> {
    let topic = object.require("topic", "")?.name(TopicName::new)?;
    let subjects = subjects(object.require("subjects", "")?)?;
    let to = object.take("to").map(recipients).transpose()?;
    let filter = object.take("filter").map(filter).transpose()?;
    Ok(Event { to, filter, ..Event::new(id, topic, subjects) })
}

fn recipients(field: Field<'_>) -> Result<Recipients, Invalid> {
    let mut object = field.object(&TO)?;
    let users = object.take("users").map_or(Ok(Vec::new()), |users| {
        distinct(users.items(0..=limits::USER_COUNT_MAX, "users")?, |user| user.name(UserId::new))
    })?;
    let devices = object.take("devices").map_or(Ok(Vec::new()), |devices| {
        distinct(devices.items(0..=limits::DEVICE_COUNT_MAX, "devices")?, |device| device.name(DeviceId::new))
    })?;
    let selector = object.take("selector").map(|text| selector(&text)).transpose()?;
    if users.is_empty() && devices.is_empty() && selector.is_none() {
        return Err(Invalid::new(
            &object.path,
            "must name at least one user or device, or have a selector; leave `to` out to push all subscribed devices",
        ));
    }
    Ok(Recipients { users, devices, selector })
}

fn filter(field: Field<'_>) -> Result<Filter, Invalid> {
    // An empty list could mean "nobody" or "everybody".
    const COUNT: std::ops::RangeInclusive<usize> = 1..=limits::FILTER_COUNT_MAX;
    let mut object = field.object(&FILTER)?;
    let countries = object.take("countries").map_or(Ok(Vec::new()), |countries| {
        distinct(countries.items(COUNT, "countries")?, |country| country.name(Country::new))
    })?;
    let locales = object.take("locales").map_or(Ok(Vec::new()), |locales| {
        distinct(locales.items(COUNT, "locales")?, |locale| locale.name(Locale::new))
    })?;
    let platforms = object.take("platforms").map_or(Ok(Vec::new()), |platforms| {
        distinct(platforms.items(COUNT, "platforms")?, |platform| platform.one_of(&PLATFORMS))
    })?;
    let apps = object
        .take("apps")
        .map_or(Ok(Vec::new()), |apps| distinct(apps.items(COUNT, "apps")?, |app| app.name(AppId::new)))?;
    let filter = Filter { countries, locales, platforms, apps };
    if filter == Filter::default() {
        return Err(Invalid::new(
            &object.path,
            "must have countries, locales, platforms or apps; leave `filter` out to push the whole audience",
        ));
    }
    Ok(filter)
}

fn subjects(field: Field<'_>) -> Result<Vec<Subject>, Invalid> {
    distinct(field.items(1..=limits::SUBJECT_COUNT_MAX, "subjects")?, |subject| subject.name(Subject::new))
}

fn channels(field: Field<'_>) -> Result<Vec<ChannelName>, Invalid> {
    // An empty list could mean "no channel". Without the field it means the first subject's channel.
    distinct(field.items(1..=limits::CHANNEL_COUNT_MAX, "channels")?, |channel| channel.name(ChannelName::new))
}

fn params(field: Field<'_>) -> Result<BTreeMap<String, ParamValue>, Invalid> {
    let path = field.path.clone();
    let mut params = BTreeMap::new();
    for (name, field) in field.entries(limits::PARAM_COUNT_MAX)? {
        let (max, bytes) = (limits::PARAM_NAME_BYTES_MAX, name.len());
        if !(1..=max).contains(&bytes) {
            let rule = format!("a name must have 1 to {max} bytes, got {bytes}");
            return Err(Invalid::new(&path, rule).limit(max).value(bytes));
        }
        params.insert(name, param(&field)?);
    }
    Ok(params)
}

fn param(field: &Field<'_>) -> Result<ParamValue, Invalid> {
    if field.is_text() {
        return field.text_within(0..=limits::PARAM_TEXT_BYTES_MAX).map(ParamValue::Text);
    }
    match field.kind() {
        "an object" => value::typed(field).map(ParamValue::Typed),
        "a number" => value::number(field).map(|number| match number {
            Number::Integer(number) => ParamValue::Integer(number),
            Number::Decimal(number) => ParamValue::Decimal(number),
        }),
        kind => Err(field.invalid(format_args!("must be text, a number or an object, got {kind}"))),
    }
}

fn trace(field: &Field<'_>) -> Result<TraceContext, Invalid> {
    let text = field.text()?;
    text.parse().map_err(|error| {
        let got = shown(&text);
        field.invalid(format_args!("{error}, got {got:?}")).value(got)
    })
}

/// A moment. Whether it is within the allowed range is checked later, against the clock.
fn at(field: &Field<'_>) -> Result<Timestamp, Invalid> {
    let text = field.text()?;
    text.parse().map(|Rfc3339(at)| at).map_err(|error| {
        let got = shown(&text);
        field.invalid(format_args!("{error}, got {got:?}")).value(got)
    })
}

fn expect_audience(field: Field<'_>) -> Result<ExpectAudience, Invalid> {
    let mut object = field.object(&EXPECT_AUDIENCE)?;
    let min = object.take("min").map(|min| device_count(&min)).transpose()?;
    let max = object.take("max").map(|max| device_count(&max)).transpose()?;
    match (min, max) {
        (None, None) => {
            Err(Invalid::new(&object.path, "must have min or max; leave `expect_audience` out to allow any audience"))
        }
        (Some(min), Some(max)) if min > max => {
            let rule = format_args!("must be at most max, which is {max}, got {min}").to_string();
            Err(Invalid { limit: Some(max), ..Invalid::new(&object.path_of("min"), rule).value(min) })
        }
        _ => Ok(ExpectAudience { min, max }),
    }
}

fn device_count(field: &Field<'_>) -> Result<u64, Invalid> {
    let max = AUDIENCE_COUNT_MAX;
    field.whole_number(max).ok_or_else(|| {
        let got = shown(field.raw.get());
        field.invalid(format_args!("must be a whole number from 0 to {max}, got {got}")).limit(max as usize).value(got)
    })
}

fn data(field: Field<'_>) -> Result<Json, Invalid> {
    let (max, bytes) = (limits::DATA_BYTES_MAX, field.raw.get().len());
    if bytes > max {
        return Err(field.invalid(format_args!("must have at most {max} bytes, got {bytes}")).limit(max).value(bytes));
    }
    Ok(Json::from_raw(field.raw))
}

#[cfg(test)]
mod tests;
