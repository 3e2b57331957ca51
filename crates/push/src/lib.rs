//! Push providers without connections: what goes to a device, how its provider is asked, what the answer means.
//!
//! Pure logic, called by the gateway, which owns sockets and time: it is handed `now` and random bits and opens nothing.
//! APNs is the provider that exists; its requests, answers and credentials are in [`apns`].
//!
//! - [`Notification`] and [`Rendering`]: one push to one device; what all devices of one text share.
//! - [`Outcome`], [`Settled`], [`OutcomeSink`]: every notification handed to the gateway is settled exactly once.
//! - [`payload`]: the JSON of a notification, within the provider's limit.
//! - [`pacing`]: how many streams may be open, and when to ask for more work.
//! - [`retry`]: when to repeat, and how many repeats may be on their way.

pub mod apns;
mod notification;
mod outcome;
pub mod pacing;
pub mod payload;
pub mod retry;

pub use notification::{Notification, Priority, PushType, Rendering, RenderingParts, Ticket};
pub use outcome::{Outcome, OutcomeSink, Settled, TokenGone};
