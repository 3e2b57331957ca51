//! Who a client is and what it is given, whatever let it in: a token, an answer of the application, or nothing.
//!
//! [`SubscriptionTerms`] are the terms of one subscription. A subscription token states them, and so does everything that
//! subscribes a client from the server's side. Their JSON is the same everywhere: `expire_at` (seconds, 0 for never),
//! `info` or `b64info`, `data` or `b64data`, `tags_filter`, and `override`.
//!
//! Bounds: what states an admission (a token, an answer) is bounded before it is read. The session bounds the
//! subscriptions.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use tidings_types::{DeviceId, Json, Timestamp, check_json_depth};

/// The most server-side subscriptions that one `connect` may name.
pub const CONNECT_SUBSCRIPTION_COUNT_MAX: usize = 1024;

/// Who a client is, and what it is given when it connects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Admission {
    /// The user; empty: anonymous.
    pub user: String,
    /// The device on which the client runs, if that is proven.
    pub device: Option<DeviceId>,
    /// When the connection must be refreshed; may be in the past.
    pub expires_at: Option<Timestamp>,
    /// What others may see of the connection.
    pub info: Option<Json>,
    /// What only hooks get to know of the connection.
    pub meta: Option<Json>,
    /// Data for the client, in the answer to `connect`.
    pub data: Option<Json>,
    /// The channels that the server subscribes the client to.
    pub subscriptions: BTreeMap<String, SubscriptionTerms>,
}

/// The terms of one subscription.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "WireTerms", into = "WireTerms")]
pub struct SubscriptionTerms {
    /// When the subscription ends unless it is refreshed; may be in the past.
    pub expires_at: Option<Timestamp>,
    /// What others may see of the subscription.
    pub info: Option<Json>,
    /// Data for the client.
    pub data: Option<Json>,
    /// The only publications that the client may get: a [`TagsFilter`](crate::TagsFilter) that is not read yet.
    pub tags_filter: Option<Json>,
    /// Overrides `presence` of the channel.
    pub presence: Option<bool>,
    /// Overrides `force_recovery` of the channel.
    pub force_recovery: Option<bool>,
    /// Overrides whether gaps are noticed.
    pub force_positioning: Option<bool>,
    /// Overrides `join_leave` of the channel.
    pub join_leave: Option<bool>,
    /// Overrides `force_push_join_leave` of the channel.
    pub force_push_join_leave: Option<bool>,
}

#[derive(Serialize, Deserialize)]
struct WireTerms {
    #[serde(skip_serializing_if = "Option::is_none")]
    expire_at: Option<NumericDate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    info: Option<Json>,
    #[serde(skip_serializing)]
    b64info: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Json>,
    #[serde(skip_serializing)]
    b64data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tags_filter: Option<Json>,
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    overrides: Option<Overrides>,
}

impl From<SubscriptionTerms> for WireTerms {
    fn from(terms: SubscriptionTerms) -> Self {
        let flag = |value: Option<bool>| value.map(|value| Flag { value });
        Self {
            expire_at: terms.expires_at.map(|at| NumericDate(at.as_millis() as f64 / 1000.0)),
            info: terms.info,
            b64info: None,
            data: terms.data,
            b64data: None,
            tags_filter: terms.tags_filter,
            overrides: Some(Overrides {
                presence: flag(terms.presence),
                force_positioning: flag(terms.force_positioning),
                force_recovery: flag(terms.force_recovery),
                join_leave: flag(terms.join_leave),
                force_push_join_leave: flag(terms.force_push_join_leave),
            }),
        }
    }
}

impl TryFrom<WireTerms> for SubscriptionTerms {
    type Error = &'static str;

    fn try_from(wire: WireTerms) -> Result<Self, Self::Error> {
        let terms = Self {
            expires_at: wire.expire_at.filter(|at| at.0 != 0.0).map(NumericDate::timestamp),
            info: json(wire.info, wire.b64info)?,
            data: json(wire.data, wire.b64data)?,
            tags_filter: wire.tags_filter,
            ..Self::default()
        };
        Ok(terms.overridden(wire.overrides))
    }
}

impl SubscriptionTerms {
    pub(crate) fn overridden(self, overrides: Option<Overrides>) -> Self {
        let overrides = overrides.unwrap_or_default();
        let value = |flag: Option<Flag>| flag.map(|flag| flag.value);
        Self {
            presence: value(overrides.presence),
            force_recovery: value(overrides.force_recovery),
            force_positioning: value(overrides.force_positioning),
            join_leave: value(overrides.join_leave),
            force_push_join_leave: value(overrides.force_push_join_leave),
            ..self
        }
    }
}

/// Settings of the channel that a subscription overrides.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Overrides {
    presence: Option<Flag>,
    force_positioning: Option<Flag>,
    force_recovery: Option<Flag>,
    join_leave: Option<Flag>,
    force_push_join_leave: Option<Flag>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Flag {
    #[serde(default)]
    value: bool,
}

/// A moment in seconds since the Unix epoch, perhaps with a fraction (RFC 7519, 2).
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct NumericDate(pub(crate) f64);

impl NumericDate {
    pub(crate) fn timestamp(self) -> Timestamp {
        Timestamp((self.0 * 1000.0) as u64) // `as` keeps to the range: before 1970 is 1970.
    }
}

/// The base64 form wins. Its content must be JSON, because every payload is.
pub(crate) fn json(plain: Option<Json>, base64: Option<String>) -> Result<Option<Json>, &'static str> {
    let json = match base64.filter(|text| !text.is_empty()) {
        Some(base64) => Some(decoded(&base64)?),
        None => plain,
    };
    let is_deep = json.as_ref().is_some_and(|json| check_json_depth(json.bytes()).is_err());
    if is_deep { Err("info or data has more than 100 levels") } else { Ok(json) }
}

fn decoded(base64: &str) -> Result<Json, &'static str> {
    let bytes = BASE64_STANDARD.decode(base64).map_err(|_| "b64info or b64data is not base64")?;
    Json::parse(&bytes).map_err(|_| "b64info or b64data does not hold JSON")
}
