//! The terms of Tidings as types, each with its invariant.
//!
//! Everything here is plain data: a value that exists is valid. Serde forms are those of the server's own durable rows
//! and of scalar fields of the HTTP API. The shapes of requests and answers belong to the crates that use them. Nothing
//! here reads a clock or does I/O.

mod backoff;
mod brake;
mod chain;
mod device;
mod event;
mod format;
mod job;
mod json;
mod mute;
mod name;
mod origin;
mod position;
mod provider;
mod selector;
mod tags;
mod time;
mod token;
mod trace;
mod value;
mod words;

pub use backoff::Backoff;
pub use brake::BrakeScope;
pub use chain::chain;
pub use device::{Device, DeviceNumber, Environment, Platform, PushPermission};
pub use event::{
    Event, EventChannels, EventPriority, ExpectAudience, Filter, Interruption, NotificationId, ParamValue, Payload,
    Present, PushPolicy, ReceiptPolicy, ReceiptRequest, ReceiptTerms, Recipients, Text, Urgency, event_limits,
};
pub use format::{Format, Language, PushForm, Transport, Variant};
pub use job::{JobState, TimeTo};
pub use json::{JSON_DEPTH_MAX, Json, JsonDepthError, JsonError, check_json_depth};
pub use mute::{Mute, MuteScope};
pub use name::{
    AppId, ChannelName, CollapseKey, Country, DeviceId, EventId, FeedName, ImportName, Locale, NameError, Subject,
    TimeZone, TopicName, UserId,
};
pub use origin::OriginPattern;
pub use position::{Epoch, JournalPosition, Offset, StreamPosition};
pub use provider::Provider;
pub use selector::{Selector, SelectorError, SelectorNode, SelectorProblem, selector_limits};
pub use tags::Tags;
pub use time::Timestamp;
pub use token::{DeviceToken, TokenRef, WebPushToken};
pub use trace::{SpanId, TRACE_STATE_BYTES_MAX, TraceContext, TraceId, TraceParentError};
pub use value::{Currency, DateTime, Day, Number, Style, TimeOfDay, TypedValue, ValueError, Zone};
