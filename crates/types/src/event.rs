//! Events as producers publish them, and the identity of a notification.
//!
//! [`Event`] is also the durable form of the journal, so a change of its serde form changes the store's format. A new
//! field must be left out of the serde form while it has its default. Otherwise an event that was accepted before the
//! field existed would not be recognised when it is repeated. (For two fields that are always written, `former` in the
//! store handles this.) The limits are in [`event_limits`]: the API checks them and names the field, so every existing
//! `Event` is within them. Values of parameters never show in `Debug`.
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
    Subject, Timestamp, TopicName, TraceContext, TypedValue, UserId,
};

/// The limits of an event; an error names the field, the limit and the value.
pub mod event_limits {
    use std::time::Duration;

    /// Subjects per event.
    pub const SUBJECT_COUNT_MAX: usize = 16;
    /// Channels that an event may name.
    pub const CHANNEL_COUNT_MAX: usize = 16;
    /// Parameters per event.
    pub const PARAM_COUNT_MAX: usize = 32;
    /// Bytes of a parameter's name.
    pub const PARAM_NAME_BYTES_MAX: usize = 64;
    /// Bytes of a text parameter.
    pub const PARAM_TEXT_BYTES_MAX: usize = 512;
    /// Digits of a typed number's fraction.
    pub const PARAM_DIGITS_MAX: u8 = 15;
    /// A typed number with a fraction lies between this and its negative: doubles have no more than 15 safe digits.
    pub const PARAM_DECIMAL_MAX: f64 = 1e15;
    /// Bytes of a name's context.
    pub const PARAM_CONTEXT_BYTES_MAX: usize = 128;
    /// Bytes of `data`.
    pub const DATA_BYTES_MAX: usize = 32 * 1024;
    /// Users that an event may name.
    pub const USER_COUNT_MAX: usize = 1000;
    /// Devices that an event may name.
    pub const DEVICE_COUNT_MAX: usize = 1000;
    /// Languages of an event's own texts.
    pub const TEXT_COUNT_MAX: usize = 64;
    /// Bytes of an own title or body.
    pub const TEXT_BYTES_MAX: usize = 2048;
    /// Entries of each list of a filter.
    pub const FILTER_COUNT_MAX: usize = 256;
    /// Bytes of each text of `present`.
    pub const PRESENT_BYTES_MAX: usize = 512;
    /// Bytes of each patch in `payload`.
    pub const PAYLOAD_BYTES_MAX: usize = 4096;
    /// The default of `receipt_wait`.
    pub const RECEIPT_WAIT_DEFAULT: Duration = Duration::from_secs(2);
    /// The shortest `receipt_wait`.
    pub const RECEIPT_WAIT_MIN: Duration = Duration::from_millis(100);
    /// The longest `receipt_wait`.
    pub const RECEIPT_WAIT_MAX: Duration = Duration::from_secs(30);
    /// Events in one request.
    pub const BATCH_COUNT_MAX: usize = 1000;
    /// The default of `ttl`.
    pub const TTL_DEFAULT: Duration = Duration::from_secs(4 * 3600);
    /// The longest `ttl`: the time that APNs and FCM keep a notification for a device that is off.
    pub const TTL_MAX: Duration = Duration::from_secs(28 * 24 * 3600);
    /// How far in the future `at` may be.
    pub const AHEAD_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
}

/// An event: something happened, about these subjects.
///
/// Invariant: within [`event_limits`]; a list has no duplicates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The producer's name for it; the same id is the same event.
    pub id: EventId,
    /// The kind of event; names the text templates.
    pub topic: TopicName,
    /// What it is about, 1 to 16 subjects. Its audience are the devices that subscribed to `topic` on any of them. All
    /// devices of a user are subscribed to the subject `user:<id>`, whatever the topic.
    pub subjects: Vec<Subject>,
    /// The recipients, instead of the subscribed devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Recipients>,
    /// The part of the audience that is pushed; without one, all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// The values of the templates' placeholders.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, ParamValue>,
    /// The event's own texts by language. A device whose language has none gets the topic's text; a text in `und` is
    /// for all other languages.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub text: BTreeMap<Locale, Text>,
    /// How the notification is shown.
    #[serde(default, skip_serializing_if = "Present::is_empty")]
    pub present: Present,
    /// Changes to the payload for each provider.
    #[serde(default, skip_serializing_if = "Payload::is_empty")]
    pub payload: Payload,
    /// The data for connected clients; by default topic, subjects and params.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Json>,
    /// The channels in which it is published; empty: the channel with the name of the first subject.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<ChannelName>,
    /// Which devices are pushed.
    pub push: PushPolicy,
    /// Whether receipts from all clients are collected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub receipt: bool,
    /// How long after its acceptance connected devices may take to answer before they are pushed.
    #[serde(default = "receipt_wait_default", with = "milliseconds")]
    pub receipt_wait: Duration,
    /// Which receipts make a push unnecessary.
    #[serde(default)]
    pub receipt_policy: ReceiptPolicy,
    /// The event replaces older notifications with this key on a device. Without one, it only replaces an earlier
    /// delivery of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collapse_key: Option<CollapseKey>,
    /// How long after its acceptance, or after `at`, it is useful to deliver it, in whole seconds.
    #[serde(with = "seconds")]
    pub ttl: Duration,
    /// The priority over other events.
    #[serde(default, skip_serializing_if = "EventPriority::is_normal")]
    pub priority: EventPriority,
    /// How urgently providers deliver it; without one, at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub urgency: Option<Urgency>,
    /// When it is due: it is not published or sent before. Without one, it is due at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// How many devices its audience must have; otherwise nobody is pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect_audience: Option<ExpectAudience>,
    /// Do everything but the delivery. Providers that offer it validate the message; the others are not called.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// The trace in which it was handed in. Not part of its content: the same event in another trace is the same event.
    #[serde(skip)]
    pub trace: Option<Box<TraceContext>>,
}

/// The channels of an event that names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EventChannels {
    /// The channel with the name of its first subject.
    #[default]
    FirstSubject,
    /// The channels with the names of its subjects.
    AllSubjects,
    /// No channel.
    None,
}

impl EventChannels {
    /// The subjects of the event that have a channel.
    pub fn subjects(self, event: &Event) -> &[Subject] {
        match self {
            Self::FirstSubject => event.subjects.get(..1).unwrap_or_default(),
            Self::AllSubjects => &event.subjects,
            Self::None => &[],
        }
    }
}

impl Event {
    /// The part of the event of which its texts are made: topic, parameters, own texts. All else has its default.
    pub fn texts_only(&self) -> Self {
        let Self { id, topic, params, text, .. } = self;
        let bare = Self::new(id.clone(), topic.clone(), Vec::new());
        Self { params: params.clone(), text: text.clone(), ..bare }
    }

    /// An event with these three fields; all others have their defaults.
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
            trace: None,
        }
    }

    /// The receipts that the event wants; `None` if it wants none.
    pub fn receipt_terms(&self, accepted_at: Timestamp) -> Option<ReceiptTerms> {
        let for_push = self.push == PushPolicy::UnlessReceived;
        (for_push || self.receipt).then(|| ReceiptTerms {
            until: accepted_at.saturating_add(self.receipt_wait),
            every_client: self.receipt,
            policy: self.receipt_policy,
        })
    }
}

/// The priority of an event: higher ones are sent first, but none waits for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventPriority {
    /// For example a goal.
    High,
    /// The default.
    #[default]
    Normal,
    /// For example a newsletter.
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

/// How urgently a provider delivers (RFC 8030, 5.3): in which state of its battery a device gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Urgency {
    /// Only on power and Wi-Fi.
    VeryLow,
    /// On power or on Wi-Fi.
    Low,
    /// On neither power nor Wi-Fi, too.
    Normal,
    /// Also with a low battery: at once.
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
    /// The least number of devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u64>,
    /// The greatest number of devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
}

impl ExpectAudience {
    /// Whether this number of devices is expected.
    pub fn admits(self, device_count: u64) -> bool {
        self.min.is_none_or(|min| device_count >= min) && self.max.is_none_or(|max| device_count <= max)
    }
}

/// The recipients: every device that one of these fields names, once. Invariant: it names somebody.
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

/// The part of an audience that is pushed: the devices that fit every list that is not empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Filter {
    /// Countries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub countries: Vec<Country>,
    /// Languages; `pt` includes `pt-BR`.
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
    /// Whether the filter admits a device.
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

/// An event's own text. Its placeholders are replaced by parameters. Never shows in `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Text {
    /// First line.
    pub title: String,
    /// Text.
    pub body: String,
}

// User text must never appear in a log.
impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({} bytes)", self.title.len() + self.body.len())
    }
}

/// How a notification is shown, in terms of no provider; docs/payload.md says how each provider gets it.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Present {
    /// What the app opens when the notification is tapped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// The address of a picture to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// A sound of the app, `default`, or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sound: Option<String>,
    /// The number on the app's icon; 0 removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub badge: Option<u32>,
    /// Notifications with the same thread are shown together; the default is the first subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// The category, which decides the actions that the app offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// How much it may interrupt the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interruption: Option<Interruption>,
    /// The notification channel on Android.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub android_channel: Option<String>,
}

impl Present {
    /// Whether no field is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Itself, with the fields of `defaults` where it has none.
    pub fn or(&self, defaults: &Self) -> Self {
        let text = |own: &Option<String>, default: &Option<String>| own.as_ref().or(default.as_ref()).cloned();
        Self {
            link: text(&self.link, &defaults.link),
            image: text(&self.image, &defaults.image),
            sound: text(&self.sound, &defaults.sound),
            badge: self.badge.or(defaults.badge),
            thread: text(&self.thread, &defaults.thread),
            category: text(&self.category, &defaults.category),
            interruption: self.interruption.or(defaults.interruption),
            android_channel: text(&self.android_channel, &defaults.android_channel),
        }
    }
}

// User text must never appear in a log.
impl fmt::Debug for Present {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Present")
    }
}

/// How much a notification may interrupt the user.
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

/// Changes to the payload for each provider, as JSON Merge Patch (RFC 7396).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Payload {
    /// For the APNs payload: an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apns: Option<Json>,
    /// For the FCM message: an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fcm: Option<Json>,
    /// For the text that a browser's service worker gets: an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webpush: Option<Json>,
}

impl Payload {
    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Which receipts make a push unnecessary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiptPolicy {
    /// Those of a device whose app is on the screen.
    #[default]
    Visible,
    /// Those of any device.
    Any,
}

/// The receipts that a publication wants from the connections to which it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptTerms {
    /// Until then receipts are useful.
    pub until: Timestamp,
    /// Whether every client is asked, not only proven devices.
    pub every_client: bool,
    /// Which receipts make a push unnecessary.
    pub policy: ReceiptPolicy,
}

/// The receipts that an event's publication wants from the connections to which it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptRequest {
    /// The event.
    pub event: JournalPosition,
    /// Which receipts.
    #[serde(flatten)]
    pub terms: ReceiptTerms,
}

/// Which devices get a push notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PushPolicy {
    /// Every device of the audience that did not prove in time that it got the event live.
    #[default]
    UnlessReceived,
    /// Every device of the audience.
    Always,
    /// None: only connected clients get the event.
    Never,
}

/// The value of a placeholder.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ParamValue {
    /// A whole number; may choose a plural form.
    Integer(i64),
    /// A decimal number, shown as in JSON.
    Decimal(f64),
    /// Text as it is.
    Text(String),
    /// Shown as the reader's language shows it.
    Typed(TypedValue),
}

// User text must never appear in a log.
impl fmt::Debug for ParamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Integer(_) => "Integer",
            Self::Decimal(_) => "Decimal",
            Self::Text(_) => "Text",
            Self::Typed(value) => return value.fmt(f),
        })
    }
}

impl ParamValue {
    /// Whether it looks different in different languages, regions or time zones.
    pub fn is_typed(&self) -> bool {
        matches!(self, Self::Typed(_))
    }
}

/// Identity of one notification: derived from event and device, so a repeat has the same one.
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
        name.push(b' '); // No id contains a space, so no two pairs have the same name.
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
