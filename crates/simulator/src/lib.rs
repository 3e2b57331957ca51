//! Simulated push providers with faults, and their ledger.
//!
//! [`ApnsSimulator`] is an HTTP/2 server over TLS that answers as the Apple Push Notification service does: it checks
//! every request (method, path, headers, provider token, payload), accepts it or names APNs' reason, and writes what
//! each device got into a [`Ledger`]. It can be told, also while running, to be slow, to refuse, to answer with errors,
//! to send GOAWAY, to lower its stream limit, to stall or to cut the connection ([`Faults`]); every chance is drawn
//! from a seed. The demo, the benchmarks and the crash campaign judge the sender by the ledger.
//!
//! [`FcmSimulator`] is the same for Firebase Cloud Messaging (HTTP v1) with its OAuth token endpoint,
//! [`WebPushSimulator`] for a browser maker's push service; the latter keeps the browsers' keys and opens what comes.
//! Both speak HTTP/2 and HTTP/1.1 on one port.
//!
//! Where they differ from the real ones, they are stricter: at APNs `apns-push-type` may not be missing, and a topic
//! list, if given, is held to; at FCM no unknown name passes, whatever it is spelt like; a Web Push that the browser
//! could not open is refused. They do not store notifications for devices that are off, know no broadcast channels and
//! no `apns-unique-id`, and do not limit the rate per device token by themselves.
//!
//! A client of APNs proves itself with provider tokens, signed by a key of [`ApnsSimulator::key_pem`] or
//! [`ApnsSimulator::add_key`], or with a certificate, if [`SimulatorConfig::client_ca_pem`] says whose; a
//! [`PushAuthority`] issues such. A certificate of another issuer ends the TLS session, one for the other environment
//! or for no topic is refused request by request. A client of FCM is the service account of
//! [`FcmSimulator::service_account_json`]; one of a push service is whoever the subscription was made for.
//!
//! Bounds: connections per thread, devices and notifications in the ledger ([`SimulatorConfig`]), streams per
//! connection ([`Faults::stream_limit`], at most [`STREAM_LIMIT_MAX`]), 64 KiB per control request.
//!
//! # Control
//!
//! The same port answers, without a credential and untouched by faults:
//!
//! | Request | Answer |
//! |---|---|
//! | `GET /simulator/ledger` | the [`LedgerSummary`] as JSON |
//! | `GET /simulator/ledger/<address>` | what the device got as JSON: [`LedgerEntry`], or [`MessageEntry`] |
//! | `GET /simulator/shown/<address>` | what of it the device shows; FCM and Web Push |
//! | `GET /simulator/faults` | the [`Faults`] in force |
//! | `PUT /simulator/faults` | takes new [`Faults`]; what is left out has its default |
//! | `POST /simulator/subscriptions` | Web Push: a browser subscribes |
//! | `POST /simulator/gone` | Web Push: a subscription ends |
//!
//! An address is APNs' token in hexadecimal, FCM's token, an endpoint or its last piece.
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
