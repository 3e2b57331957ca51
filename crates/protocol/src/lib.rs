//! The Centrifugo client protocol as pure logic: what a client's bytes mean, and what the server answers.
//!
//! ```text
//! socket bytes ─► websocket::Decoder ─► parse_frame ─► Command ─► Session::handle ─► Effect ─► (driver, hub)
//! socket bytes ◄─ frame ◄─ reply bytes ◄─ Session::on_* ◄────────────────────────────────────── the effect's result
//! ```
//!
//! A core: no sockets, timers, clock or tokio; callers pass `now`. Publications to clients do not pass through a
//! [`Session`]: they are encoded once per channel ([`encode_publication_push`]) and shared.
//!
//! Bytes from outside never cause a panic. Per connection this crate holds one [`Session`] (under 150 bytes plus 32 per
//! subscription) and one [`websocket::Decoder`] (under 90 bytes plus an unfinished message, bounded).
//!
//! Messages are JSON or Protobuf ([`Format`](tidings_types::Format)). The format matters only where bytes are read
//! ([`parse_frame`]) and written (`fields`); commands, sessions and effects are the same for both. In Protobuf a payload is
//! bytes, and these bytes must be JSON. The transport matters only for what stands around a message ([`frame`](fn@frame)),
//! and for pushes, which are messages of their own on a unidirectional transport.
//!
//! Map subscriptions are refused with the protocol's code for them. RPCs go to the application's back end
//! ([`HookCall`]), except [`RPC_VISIBLE`], which is for the server itself.

mod absent;
mod admission;
mod client;
mod code;
mod command;
mod emulation;
mod fields;
mod filter;
pub mod fossil;
mod frame;
mod framing;
mod hook;
mod introduction;
mod namespace;
mod order;
mod pattern;
mod protobuf;
mod publication;
mod reply;
mod session;
pub mod token;
pub mod websocket;

pub use admission::{Admission, CONNECT_SUBSCRIPTION_COUNT_MAX, SubscriptionTerms};
pub use client::{ClientId, ClientInfo};
pub use code::{Disconnect, ErrorCode, Unsubscribe};
pub use command::{
    ClientPosition, Command, ConnectRequest, HistoryRequest, PublishRequest, Request, RpcRequest, SubscribeRequest,
};
pub use emulation::{
    EMULATED_BYTES_MAX, EMULATED_FRAME_COUNT_MAX, EmulationError, EmulationRequest, NoSessionIdError, SessionId,
};
pub use filter::{FILTER_BYTES_MAX, FILTER_COUNT_MAX, FILTER_DEPTH_MAX, FilterError, TagsFilter, UnreadFilter};
pub use frame::{Commands, FRAME_COMMAND_COUNT_MAX, FrameError, WAITING_FRAME_COUNT_MAX, parse_connect, parse_frame};
pub use framing::frame;
pub use hook::{
    AppError, HOOK_HEADER_BYTES_MAX, HookAnswer, HookCall, HookHeaders, HookId, HookResult, Question, SessionHooks,
};
pub use introduction::{
    CREDENTIAL_BYTES_MAX, DeviceClaim, DeviceCredential, Introduction, RPC_VISIBLE, VISIBLE_TTL_MAX,
};
pub use namespace::{
    DataFormat, DeltaType, NamespaceOptions, Namespaces, PublicationKey, RecoveryMode, SlowReaders, Thinning,
};
pub use order::{CONNECTION_LIST_MAX, LiveConnection, Order, OrderError, Target};
pub use pattern::{PatternError, TextPattern};
pub use protobuf::ProtobufError;
pub use publication::{DataForm, Publication, TEXTS_BYTES_MAX};
pub use reply::{
    ChannelRef, ConnectResult, ExpiryResult, Push, Reply, SubscribeResult, VisibleResult, encode_publication_push,
    encode_push, encode_reply, ping,
};
pub use session::{
    Asked, CHANNEL_BYTES_MAX, ConnectEffect, ConnectTicket, EXPIRED_CLOSE_DELAY, Effect, Expired,
    HISTORY_PUBLICATION_COUNT_MAX, HistoryFound, NotSubscribed, PersonalChannels, REFRESH_RETRY, Session,
    SessionConfig, SubscribeEffect, SubscribeTicket, Subscribed, Ticket,
};
pub use tidings_types::Tags;
