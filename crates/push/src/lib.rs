//! Push providers without connections: what is sent to a device, how its provider is called, what the answer means.
//!
//! Pure logic. The gateways call it; they own sockets and time, and pass `now` and random bytes. A provider is a
//! [`Dialect`] ([`apns`], [`fcm`], [`web_push`]), a form in [`payload`], and its reasons in [`Reason`]. Nothing else
//! differs between providers.
//!
//! - [`Notification`] and [`Rendering`]: one push to one device, and what all devices with the same text share.
//! - [`Lakes`]: the queues from which a pool of connections takes notifications.
//! - [`Outcome`], [`Settled`], [`OutcomeSink`]: every notification handed to the gateway gets exactly one outcome.
//! - [`payload`]: the JSON of a notification, within the provider's limit.
//! - [`pacing`]: how many streams and connections may be open, how fast a pool sends, and which addresses are avoided.
//! - [`retry`]: when to repeat, and how many repeats may be in flight.
//! - [`PoolGauge`]: the measured rate, for estimates.

mod answer;
pub mod apns;
mod dialect;
pub mod fcm;
mod gauge;
mod key;
mod kind;
mod lakes;
mod notification;
mod outcome;
pub mod pacing;
mod parts;
pub mod payload;
mod reason;
pub mod retry;
pub mod web_push;

pub use answer::{ANSWER_BYTES_MAX, Advice, Verdict};
pub use dialect::Dialect;
pub use gauge::{Forecast, PoolGauge, RateLimit};
pub use kind::{Priority, PushType};
pub use lakes::Lakes;
pub use notification::{Notification, Rendering, Ticket};
pub use outcome::{JobStanding, Outcome, OutcomeSink, Settled, Standing, TokenGone};
pub use parts::RenderingParts;
pub use reason::Reason;
