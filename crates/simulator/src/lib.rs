//! Simulated push providers with faults, and their ledger.
//!
//! [`ApnsSimulator`] is an HTTP/2 server over TLS that answers as the Apple Push Notification service does: it checks
//! every request (method, path, headers, provider token, payload), accepts it or names APNs' reason, and writes what
//! each device got into a [`Ledger`]. It can be told, also while running, to be slow, to refuse, to answer with errors,
//! to send GOAWAY, to lower its stream limit, to stall or to cut the connection ([`Faults`]); every chance is drawn from
//! a seed. The demo, the benchmarks and the crash campaign judge the sender by the ledger.
//!
//! Where it differs from APNs, it is the stricter one: `apns-push-type` may not be missing, and a topic list, if given,
//! is held to. It does not store notifications for devices that are off, knows no broadcast channels and no
//! `apns-unique-id`, and does not limit the rate per device token by itself.
//!
//! A client proves itself with provider tokens, signed by a key of [`ApnsSimulator::key_pem`] or
//! [`ApnsSimulator::add_key`], or with a certificate, if [`SimulatorConfig::client_ca_pem`] says whose; a
//! [`PushAuthority`] issues such. A certificate of another issuer ends the TLS session, one for the other environment or
//! for no topic is refused request by request.
//!
//! Bounds: connections per thread, devices and notifications in the ledger ([`SimulatorConfig`]), streams per
//! connection ([`Faults::stream_limit`], at most [`STREAM_LIMIT_MAX`]), 64 KiB per control request.
//!
//! # Control
//!
//! The same port answers, without a provider token and untouched by faults:
//!
//! | Request | Answer |
//! |---|---|
//! | `GET /simulator/ledger` | the [`LedgerSummary`] as JSON |
//! | `GET /simulator/ledger/<token in hexadecimal>` | the [`LedgerEntry`] list of the device as JSON |
//! | `GET /simulator/faults` | the [`Faults`] in force |
//! | `PUT /simulator/faults` | takes new [`Faults`]; what is left out has its default |
//!
//! Sources: Apple's "Sending notification requests to APNs" and "Handling notification responses from APNs"; RFC 9113
//! (HTTP/2); RFC 7515, 7518 (the signature of provider tokens).

mod apns;
mod authentication;
mod certificate;
mod check;
mod config;
mod connection;
mod control;
mod error;
mod identity;
mod ledger;
mod meter;
mod reason;
mod wire;

pub use apns::{AcceptedNotification, ApnsSimulator, OnAccepted};
pub use certificate::{PushAuthority, PushCertificate};
pub use config::{Faults, STREAM_LIMIT_MAX, SimulatorConfig};
pub use error::{FaultsError, StartError};
pub use ledger::{Ledger, LedgerEntry, LedgerSummary, collapse_hash};
pub use reason::Reason;
