//! What a producer hands in, and the identity of what a device gets of it.
//!
//! [`Event`] is also the durable form of the journal, so a change of its serde form is a change of the store's format.
//! A new field must not be spelt while it has its default: an event accepted before it was there would not be known
//! when it is repeated (`former` in the store sees to it for the two that are spelt always).
//! The bounds are in [`event_limits`]; whoever reads events from outside (the API) checks them and names the field, an
//! `Event` that exists is within them. Values of parameters never show in `Debug`.
//!
//! Not here: the texts of a topic.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    AppId, ChannelName, CollapseKey, Country, DeviceId, EventId, JournalPosition, Json, Locale, Platform, Selector,
    Subject, Timestamp, TopicName, UserId,
};

/// The limits an event is checked against; a refusal names the field, the limit and the value.
pub mod event_limits {
    use std::time::Duration;

    /// Subjects per event.
    pub const SUBJECT_COUNT_MAX: usize = 16;
    /// Channels an event may name.
    pub const CHANNEL_COUNT_MAX: usize = 16;
    /// Parameters per event.
    pub const PARAM_COUNT_MAX: usize = 32;
    /// Bytes of a parameter's name.
    pub const PARAM_NAME_BYTES_MAX: usize = 64;
    /// Bytes of a text parameter.
    pub const PARAM_TEXT_BYTES_MAX: usize = 512;
    /// Bytes of `data`.
    pub const DATA_BYTES_MAX: usize = 32 * 1024;
    /// Users an event may name.
    pub const USER_COUNT_MAX: usize = 1000;
    /// Devices an event may name.
    pub const DEVICE_COUNT_MAX: usize = 1000;
    /// Languages an event may bring its own text in.
    pub const TEXT_COUNT_MAX: usize = 64;
    /// Bytes of an own title or body.
    pub const TEXT_BYTES_MAX: usize = 2048;
    /// Entries of each list of a filter.
    pub const FILTER_COUNT_MAX: usize = 256;
    /// Bytes of each text of `present`.
    pub const PRESENT_BYTES_MAX: usize = 512;
    /// Bytes of each patch in `payload`.
    pub const PAYLOAD_BYTES_MAX: usize = 4096;
    /// How long connected devices may take to answer, when an event does not say.
    pub const RECEIPT_WAIT_DEFAULT: Duration = Duration::from_secs(2);
    /// The shortest time an event may give them.
    pub const RECEIPT_WAIT_MIN: Duration = Duration::from_millis(100);
    /// The longest time an event may give them.
    pub const RECEIPT_WAIT_MAX: Duration = Duration::from_secs(30);
    /// Events in one request.
    pub const BATCH_COUNT_MAX: usize = 1000;
    /// The life of an event that does not state one.
    pub const TTL_DEFAULT: Duration = Duration::from_secs(4 * 3600);
    /// The longest life: what APNs and FCM keep for a device that is off.
    pub const TTL_MAX: Duration = Duration::from_secs(28 * 24 * 3600);
    /// How far ahead an event's time may lie.
    pub const AHEAD_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
}

/// What a producer hands in: something happened, about these subjects.
///
/// Invariant: within [`event_limits`]; a list has no duplicates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The producer's name for it; the same id is the same event.
    pub id: EventId,
    /// Which kind of event; names the text templates.
    pub topic: TopicName,
    /// What it is about, 1 to 16; whoever subscribed to `topic` on any of them is told. All devices of a user are
    /// subscribed to the subject `user:<id>`, whatever the topic.
    pub subjects: Vec<Subject>,
    /// Who is told instead of those who subscribed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Recipients>,
    /// Who of the audience is pushed; without one, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// What the templates' placeholders are filled with.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, ParamValue>,
    /// Texts of its own by language; a device whose language has none gets the topic's text. That of the language `und`
    /// is for all others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub text: BTreeMap<Locale, Text>,
    /// How the notification is shown.
    #[serde(default, skip_serializing_if = "Present::is_empty")]
    pub present: Present,
    /// What is put over the notifications as we make them, by provider.
    #[serde(default, skip_serializing_if = "Payload::is_empty")]
    pub payload: Payload,
    /// What connected clients are given; without it they get topic, subjects and params.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Json>,
    /// Where it is published; without any, the channel named like the first subject.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<ChannelName>,
    /// Who is pushed.
    pub push: PushPolicy,
    /// Whether the producer wants to know who got it over a live connection.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub receipt: bool,
    /// How long after its acceptance connected devices may take to answer before they are pushed.
    #[serde(default = "receipt_wait_default", with = "milliseconds")]
    pub receipt_wait: Duration,
    /// Whose receipt counts against a push.
    #[serde(default)]
    pub receipt_policy: ReceiptPolicy,
    /// What it replaces on a device; without one, an earlier delivery of itself only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collapse_key: Option<CollapseKey>,
    /// How long after its acceptance, or after `at`, it is still worth delivering, in whole seconds.
    #[serde(with = "seconds")]
    pub ttl: Duration,
    /// Before which other events it is sent.
    #[serde(default, skip_serializing_if = "EventPriority::is_normal")]
    pub priority: EventPriority,
    /// How urgently providers deliver it; without one, at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub urgency: Option<Urgency>,
    /// When it is due: until then it is neither published nor sent. Without one, at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// How many devices its audience must have, or nobody is pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect_audience: Option<ExpectAudience>,
    /// Everything is done but the delivery: providers that offer it validate the message, the others are not asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// In which channels an event is published that names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EventChannels {
    /// In the channel named like its first subject.
    #[default]
    FirstSubject,
    /// In the channels named like its subjects, one each.
    AllSubjects,
    /// In none.
    None,
}

impl EventChannels {
    /// The subjects of the event whose channels these are.
    pub fn subjects(self, event: &Event) -> &[Subject] {
        match self {
            Self::FirstSubject => event.subjects.get(..1).unwrap_or_default(),
            Self::AllSubjects => &event.subjects,
            Self::None => &[],
        }
    }
}

impl Event {
    /// An event with these three and nothing else: everything has its default.
    pub fn new(id: EventId, topic: TopicName, subjects: Vec<Subject>) -> Self {
        Self {
            id,
            topic,
            subjects,
            to: None,
            filter: None,
            params: BTreeMap::new(),
            text: BTreeMap::new(),
            present: Present::default(),
            payload: Payload::default(),
            data: None,
            channels: Vec::new(),
            push: PushPolicy::default(),
            receipt: false,
            receipt_wait: event_limits::RECEIPT_WAIT_DEFAULT,
            receipt_policy: ReceiptPolicy::default(),
            collapse_key: None,
            ttl: event_limits::TTL_DEFAULT,
            priority: EventPriority::default(),
            urgency: None,
            at: None,
            expect_audience: None,
            dry_run: false,
        }
    }

    /// What is asked of the connections it is written to; `None` when nobody wants to know.
    pub fn receipt_terms(&self, accepted_at: Timestamp) -> Option<ReceiptTerms> {
        let for_push = self.push == PushPolicy::UnlessReceived;
        (for_push || self.receipt).then(|| ReceiptTerms {
            until: accepted_at.saturating_add(self.receipt_wait),
            every_client: self.receipt,
            policy: self.receipt_policy,
        })
    }
}

/// Before which other events an event is sent: the higher ones first, though none waits for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventPriority {
    /// A goal.
    High,
    /// Neither.
    #[default]
    Normal,
    /// A newsletter.
    Low,
}

impl EventPriority {
    /// All of them, the highest first.
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    /// Its name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }

    fn is_normal(&self) -> bool {
        *self == Self::Normal
    }
}

/// How urgently a provider delivers (RFC 8030, 5.3): what a device that saves its battery is woken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Urgency {
    /// On power and Wi-Fi.
    VeryLow,
    /// On either.
    Low,
    /// On neither.
    Normal,
    /// Also when the battery is low: at once.
    High,
}

impl Urgency {
    /// All of them, the least first.
    pub const ALL: [Self; 4] = [Self::VeryLow, Self::Low, Self::Normal, Self::High];

    /// Its name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::VeryLow => "very_low",
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }
}

/// How many devices an audience must have. Invariant: at least one bound, and `min` ≤ `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectAudience {
    /// At least so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u64>,
    /// At most so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
}

impl ExpectAudience {
    /// Whether so many are expected.
    pub fn admits(self, device_count: u64) -> bool {
        self.min.is_none_or(|min| device_count >= min) && self.max.is_none_or(|max| device_count <= max)
    }
}

/// Who is told: everybody whom any of these names, each once. Invariant: it names somebody.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Recipients {
    /// All devices of these users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<UserId>,
    /// These devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceId>,
    /// The devices it selects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
}

/// Who of an audience is pushed: a device that is in each list that is not empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Filter {
    /// Countries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub countries: Vec<Country>,
    /// Languages; `pt` holds `pt-BR`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locales: Vec<Locale>,
    /// Kinds of device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub platforms: Vec<Platform>,
    /// Applications.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apps: Vec<AppId>,
}

impl Filter {
    /// Whether a device is among those meant.
    pub fn admits(&self, platform: Platform, app: &AppId, locale: &Locale, country: Option<&Country>) -> bool {
        let any = |is_empty: bool, found: bool| is_empty || found;
        any(self.platforms.is_empty(), self.platforms.contains(&platform))
            && any(self.apps.is_empty(), self.apps.contains(app))
            && any(self.countries.is_empty(), country.is_some_and(|country| self.countries.contains(country)))
            && any(
                self.locales.is_empty(),
                locale.fallbacks().any(|tag| self.locales.iter().any(|meant| meant.as_str() == tag)),
            )
    }
}

/// A text of an event's own. Placeholders are filled with its parameters. Never shows in `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Text {
    /// First line.
    pub title: String,
    /// Text.
    pub body: String,
}

// User text never reaches a log.
impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({} bytes)", self.title.len() + self.body.len())
    }
}

/// How a notification is shown; each field in the words of no provider, mapped to each (docs/payload.md).
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Present {
    /// What the app opens when the notification is tapped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// A picture to show, by its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// A sound of the app, `default`, or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sound: Option<String>,
    /// The number on the app's icon; 0 takes it away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub badge: Option<u32>,
    /// Notifications with the same one are shown together; without one, those of the same first subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// Which actions the app offers with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// How much it may disturb.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interruption: Option<Interruption>,
    /// The notification channel on Android.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub android_channel: Option<String>,
}

impl Present {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

// User text never reaches a log.
impl fmt::Debug for Present {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Present")
    }
}

/// How much a notification may disturb.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Interruption {
    /// It waits in the list, without light or sound.
    Passive,
    /// As usual.
    Active,
    /// It breaks through a focus mode.
    TimeSensitive,
    /// It sounds even when the device is muted; needs the provider's permission.
    Critical,
}

/// What is put over the notifications of each provider, as JSON Merge Patch (RFC 7396).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Payload {
    /// Over the APNs payload: an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apns: Option<Json>,
    /// Over the FCM message: an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fcm: Option<Json>,
    /// Over the text that a browser's service worker gets: an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webpush: Option<Json>,
}

impl Payload {
    /// Whether nothing is put over any.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Whose receipt counts against a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiptPolicy {
    /// That of a device whose app is on the screen.
    #[default]
    Visible,
    /// That of any device.
    Any,
}

/// What a publication asks of the connections it is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptTerms {
    /// Receipts are of use until then.
    pub until: Timestamp,
    /// Of every client, not of proven devices only.
    pub every_client: bool,
    /// Whose receipt counts against a push.
    pub policy: ReceiptPolicy,
}

/// What a publication of an event asks of the connections it is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptRequest {
    /// Whose receipts are collected.
    pub event: JournalPosition,
    /// On which terms.
    #[serde(flatten)]
    pub terms: ReceiptTerms,
}

/// Who is told by push notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PushPolicy {
    /// Every device of the audience that did not prove in time that it got it over a live connection.
    #[default]
    UnlessReceived,
    /// Every device of the audience.
    Always,
    /// Nobody: connected clients only.
    Never,
}

/// What fills a placeholder.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ParamValue {
    /// A whole number; may choose a plural form.
    Integer(i64),
    /// A decimal number, shown as JSON spells it.
    Decimal(f64),
    /// Text as it is.
    Text(String),
}

impl fmt::Display for ParamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => number.fmt(f),
            Self::Decimal(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

// User text never reaches a log.
impl fmt::Debug for ParamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Integer(_) => "Integer",
            Self::Decimal(_) => "Decimal",
            Self::Text(_) => "Text",
        })
    }
}

/// Identity of one notification: derived from event and device, so that a repeat carries the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NotificationId(pub Uuid);

impl NotificationId {
    /// The UUIDv5 (RFC 9562, 5.5) of event id and device id (a [`DeviceId`], or its text), in a name space of our own.
    pub fn new(event: &EventId, device: &(impl Borrow<str> + ?Sized)) -> Self {
        const NAMESPACE: Uuid = Uuid::from_u128(0x7d1f_b1c4_52d9_4f0e_9a57_2c1c_0d6e_a2f1);
        let device: &str = device.borrow();
        let mut name = Vec::with_capacity(event.as_str().len() + device.len() + 1);
        name.extend_from_slice(event.as_str().as_bytes());
        name.push(b' '); // Neither id can hold a space, so no two pairs share a name.
        name.extend_from_slice(device.as_bytes());
        Self(Uuid::new_v5(&NAMESPACE, &name))
    }
}

impl fmt::Display for NotificationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn receipt_wait_default() -> Duration {
    event_limits::RECEIPT_WAIT_DEFAULT
}

mod milliseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(duration.as_secs())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_secs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_keeps_its_id_over_repeats_and_no_two_share_one() {
        let id = |event: &str, device: &str| {
            NotificationId::new(&EventId::new(event).unwrap(), &DeviceId::new(device).unwrap())
        };
        assert_eq!(id("goal-1", "phone"), id("goal-1", "phone"));
        assert_ne!(id("goal-1", "phone"), id("goal-1p", "hone"));
    }

    fn event() -> Event {
        let subjects = vec![Subject::new("match:1").unwrap()];
        Event::new(EventId::new("goal-1").unwrap(), TopicName::new("goal").unwrap(), subjects)
    }

    #[test]
    fn an_event_of_an_older_journal_is_read_with_defaults() {
        let row = r#"{"id":"goal-1","topic":"goal","subjects":["match:1"],"push":"always","ttl":14400}"#;
        let read: Event = serde_json::from_str(row).unwrap();
        assert_eq!(read, Event { push: PushPolicy::Always, ..event() });
    }

    #[test]
    fn only_an_event_that_somebody_wants_to_know_about_asks_for_receipts() {
        let asks = |push, receipt| Event { push, receipt, ..event() }.receipt_terms(Timestamp(1000));
        assert_eq!(asks(PushPolicy::Always, false), None);
        assert_eq!(asks(PushPolicy::Never, false), None);
        let terms = asks(PushPolicy::UnlessReceived, false).unwrap();
        assert_eq!((terms.until, terms.every_client), (Timestamp(3000), false));
        assert!(asks(PushPolicy::Never, true).unwrap().every_client);
    }

    #[test]
    fn a_filter_admits_who_is_in_each_of_its_lists() {
        let app = AppId::new("com.example.app").unwrap();
        let (brazil, poland) = (Country::new("BR").unwrap(), Country::new("PL").unwrap());
        let admits = |filter: &Filter, locale: &str, country: Option<&Country>| {
            filter.admits(Platform::Ios, &app, &Locale::new(locale).unwrap(), country)
        };
        assert!(admits(&Filter::default(), "pl", None));
        let filter = Filter { locales: vec![Locale::new("pt").unwrap()], ..Filter::default() };
        assert!(admits(&filter, "pt-BR", None) && !admits(&filter, "pl", None));
        let filter = Filter { countries: vec![brazil.clone()], ..filter };
        assert!(admits(&filter, "pt-BR", Some(&brazil)));
        assert!(!admits(&filter, "pt-BR", Some(&poland)) && !admits(&filter, "pt-BR", None));
        let filter = Filter { apps: vec![AppId::new("com.example.other").unwrap()], ..Filter::default() };
        assert!(!admits(&filter, "pt-BR", Some(&brazil)));
    }
}
