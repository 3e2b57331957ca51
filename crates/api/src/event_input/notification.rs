//! An event's own texts, how its notifications are shown, and its changes to payloads.
//!
//! Only shape and limits are checked here. Whether the texts' placeholders have their parameters, and whether the
//! result fits a provider's limit, is checked when they are rendered.

use std::collections::BTreeMap;

use serde_json::Value;
use tidings_types::{Interruption, Json, Locale, Payload, Present, Text, event_limits as limits};

use crate::input::{Field, LATER, Object, Schema, shown};
use crate::problem::Invalid;

pub(crate) const TEXT: Schema = Schema { fields: &["title", "body"], refused: &[("subtitle", LATER)] };
pub(crate) const PRESENT: Schema = Schema {
    fields: &["link", "image", "sound", "badge", "thread", "category", "interruption", "android_channel"],
    refused: &[],
};
pub(crate) const PAYLOAD: Schema = Schema { fields: &["apns", "fcm", "webpush"], refused: &[] };

pub(crate) const INTERRUPTIONS: [(&str, Interruption); 4] = [
    ("passive", Interruption::Passive),
    ("active", Interruption::Active),
    ("time-sensitive", Interruption::TimeSensitive),
    ("critical", Interruption::Critical),
];

/// The key of the server's own data in a payload; in FCM's flat `data` the prefix of such keys.
pub(crate) const OWN_KEY: &str = "tidings";
/// Keys of an FCM message that name its recipient. Only the server sets them.
pub(crate) const FCM_OWN_KEYS: [&str; 4] = ["token", "topic", "condition", "name"];

/// Texts by language. A title may be empty, a body may not.
pub(super) fn text(field: Field<'_>) -> Result<BTreeMap<Locale, Text>, Invalid> {
    let mut texts = BTreeMap::new();
    for (name, field) in field.entries(limits::TEXT_COUNT_MAX)? {
        let path = field.path.clone();
        let locale = Locale::new(&name).map_err(|error| Invalid::name(&path, error))?;
        let mut object = field.object(&TEXT)?;
        let title = object.require("title", "")?.text_within(0..=limits::TEXT_BYTES_MAX)?;
        let body = object.require("body", "")?.text_within(1..=limits::TEXT_BYTES_MAX)?;
        if texts.insert(locale.clone(), Text { title, body }).is_some() {
            return Err(Invalid::new(&path, format_args!("is {locale}, which appears twice")).value(locale.as_str()));
        }
    }
    Ok(texts)
}

pub(super) fn present(field: Field<'_>) -> Result<Present, Invalid> {
    let mut object = field.object(&PRESENT)?;
    Ok(Present {
        link: short_text(&mut object, "link")?,
        image: short_text(&mut object, "image")?,
        sound: short_text(&mut object, "sound")?,
        badge: object.take("badge").map(|badge| self::badge(&badge)).transpose()?,
        thread: short_text(&mut object, "thread")?,
        category: short_text(&mut object, "category")?,
        interruption: object.take("interruption").map(|level| level.one_of(&INTERRUPTIONS)).transpose()?,
        android_channel: short_text(&mut object, "android_channel")?,
    })
}

fn short_text(object: &mut Object<'_>, name: &str) -> Result<Option<String>, Invalid> {
    object.take(name).map(|text| text.text_within(1..=limits::PRESENT_BYTES_MAX)).transpose()
}

fn badge(field: &Field<'_>) -> Result<u32, Invalid> {
    let text = field.raw.get();
    if field.kind() != "a number" {
        return Err(field.invalid(format_args!("must be a number, got {}", field.kind())));
    }
    let badge = field.whole_number(u32::MAX.into()).and_then(|badge| badge.try_into().ok());
    badge.ok_or_else(|| {
        let (max, got) = (u32::MAX, shown(text));
        field.invalid(format_args!("must be a whole number from 0 to {max}, got {got}")).limit(max as usize).value(got)
    })
}

pub(super) fn payload(field: Field<'_>) -> Result<Payload, Invalid> {
    let mut object = field.object(&PAYLOAD)?;
    Ok(Payload {
        apns: object.take("apns").map(|patch| self::patch(patch, own_part)).transpose()?,
        fcm: object.take("fcm").map(|patch| self::patch(patch, own_part_of_fcm)).transpose()?,
        webpush: object.take("webpush").map(|patch| self::patch(patch, own_part)).transpose()?,
    })
}

/// A patch over a payload. It is merged as a value later, so it must be readable as one: JSON in a request may contain
/// half a character, a number that is too large, or too many levels. `refuse` is asked about each of its entries.
fn patch(field: Field<'_>, refuse: impl Fn(&str, Field<'_>) -> Result<(), Invalid>) -> Result<Json, Invalid> {
    let (max, raw) = (limits::PAYLOAD_BYTES_MAX, field.raw);
    let bytes = raw.get().len();
    if bytes > max {
        return Err(field.invalid(format_args!("must have at most {max} bytes, got {bytes}")).limit(max).value(bytes));
    }
    if let Err(error) = serde_json::from_str::<Value>(raw.get()) {
        return Err(field.invalid(format_args!("cannot be put over a payload: {error}")));
    }
    for (name, field) in field.entries(max)? {
        refuse(&name, field)?;
    }
    Ok(Json::from_raw(raw))
}

fn own_part(name: &str, field: Field<'_>) -> Result<(), Invalid> {
    if name == OWN_KEY {
        return Err(field.invalid("is reserved: the server puts the event's id and its channels there"));
    }
    Ok(())
}

/// FCM's `data` has texts by name and nothing else; some names are the server's.
fn own_part_of_fcm(name: &str, field: Field<'_>) -> Result<(), Invalid> {
    if FCM_OWN_KEYS.contains(&name) {
        return Err(field.invalid("is reserved: a patch cannot change the recipient of a message"));
    }
    if name != "data" {
        return Ok(());
    }
    for (name, field) in field.entries(limits::PAYLOAD_BYTES_MAX)? {
        if name.split('.').next() == Some(OWN_KEY) {
            own_part(OWN_KEY, field)?;
        } else if !field.is_text() && field.raw.get() != "null" {
            return Err(field.invalid(format_args!("must be text, as all of FCM's data, got {}", field.kind())));
        }
    }
    Ok(())
}
