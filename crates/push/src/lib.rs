//! Push providers without connections: what goes to a device, how its provider is asked, what the answer means.
//!
//! Pure logic, called by the gateways, which own sockets and time: it is handed `now` and random bytes and opens
//! nothing. A provider is a [`Dialect`] ([`apns`], [`fcm`], [`web_push`]), a form in [`payload`] and its reasons in
//! [`Reason`]; nothing else differs between them.
//!
//! - [`Notification`] and [`Rendering`]: one push to one device; what all devices of one text share.
//! - [`Lakes`]: what a pool of connections draws from.
//! - [`Outcome`], [`Settled`], [`OutcomeSink`]: every notification handed to the gateway is settled exactly once.
//! - [`payload`]: the JSON of a notification, within the provider's limit.
//! - [`pacing`]: how many streams may be open, on how many connections, how fast, and where not to.
//! - [`retry`]: when to repeat, and how many repeats may be on their way.
//! - [`PoolGauge`]: how fast it goes, for estimates.

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
