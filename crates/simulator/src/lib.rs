//! Simulated push providers with faults, and their ledger.
//!
//! [`ApnsSimulator`] is an HTTP/2 server over TLS that answers as the Apple Push Notification service does. It checks
//! every request (method, path, headers, provider token, payload), and accepts it or refuses it with APNs' reason. A
//! [`Ledger`] records what each device got. With [`Faults`], also while it runs, it is slow, refuses requests, answers
//! with errors, sends GOAWAY, lowers its stream limit, stalls or cuts the connection. A seed decides all random choices.
//! The demo, the benchmarks and the crash tests judge the sender by the ledger.
//!
//! [`FcmSimulator`] does the same for Firebase Cloud Messaging (HTTP v1), with its OAuth token endpoint.
//! [`WebPushSimulator`] does the same for a browser maker's push service. It has the browsers' keys and decrypts the
//! pushes. Both speak HTTP/2 and HTTP/1.1 on one port.
//!
//! Where the simulators differ from the real services, they are stricter. APNs: `apns-push-type` is required, and only
//! the configured topics are accepted. FCM: every unknown name is refused. Web Push: a push that the browser cannot
//! decrypt is refused. The simulators do not store notifications for devices that are off. They know no broadcast
//! channels and no `apns-unique-id`. They do not limit the rate per device token.
//!
//! # Credentials
//!
//! - APNs: provider tokens, signed by the key of [`ApnsSimulator::key_pem`] or [`ApnsSimulator::add_key`]. Or a client
//!   certificate of an authority in [`SimulatorConfig::client_ca_pem`]; [`PushAuthority`] issues such certificates. A
//!   certificate of another issuer ends the TLS session. With a certificate for the other environment or without a
//!   topic, every request is refused.
//! - FCM: the service account of [`FcmSimulator::service_account_json`].
//! - Web Push: the sender that the subscription was made for.
//!
//! # Bounds
//!
//! Connections per thread, devices and notifications in the ledger ([`SimulatorConfig`]), streams per connection
//! ([`Faults::stream_limit`], at most [`STREAM_LIMIT_MAX`]), 64 KiB per control request.
//!
//! # Control
//!
//! The same port answers these requests. They need no credential, and no fault affects them:
//!
//! | Request | Answer |
//! |---|---|
//! | `GET /simulator/ledger` | the [`LedgerSummary`] as JSON |
//! | `GET /simulator/ledger/<address>` | what the device got, as JSON: [`LedgerEntry`] (APNs) or [`MessageEntry`] |
//! | `GET /simulator/shown/<address>` | the notifications that the device shows; FCM and Web Push |
//! | `GET /simulator/faults` | the [`Faults`] in force |
//! | `PUT /simulator/faults` | sets new [`Faults`]; a missing field gets its default |
//! | `POST /simulator/subscriptions` | Web Push: a browser subscribes |
//! | `POST /simulator/gone` | Web Push: a subscription ends |
//!
//! An address is APNs' token in hexadecimal, FCM's token, or a Web Push endpoint or its last part.
//!
//! Sources: Apple's "Sending notification requests to APNs" and "Handling notification responses from APNs"; Firebase's
//! reference of HTTP v1; RFC 8030, 8188, 8291, 8292 (Web Push); RFC 7523 (assertions); RFC 9112, 9113 (HTTP); RFC 7515,
//! 7518 (signatures of tokens).

mod apns;
mod authentication;
mod certificate;
mod check;
mod config;
mod connection;
mod control;
mod error;
mod fcm;
mod http1;
mod identity;
mod ledger;
mod meter;
mod provider;
mod quota;
mod reason;
mod refusal;
mod server;
mod shared;
mod web_push;
mod wire;

pub use apns::{AcceptedNotification, ApnsSimulator, OnAccepted};
pub use certificate::{PushAuthority, PushCertificate};
pub use config::{Faults, FcmConfig, STREAM_LIMIT_MAX, SimulatorConfig, WebPushConfig};
pub use error::{FaultsError, StartError};
pub use fcm::{FcmReason, FcmSimulator};
pub use ledger::{Ledger, LedgerEntry, LedgerSummary, MessageEntry, collapse_hash};
pub use provider::{AcceptedMessage, OnMessage};
pub use reason::Reason;
pub use refusal::Refusal;
pub use web_push::{PushKeys, PushSubscription, WebPushReason, WebPushSimulator};
