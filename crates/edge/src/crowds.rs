//! Clients that publish in channels whose readers cannot keep up.
//!
//! A client publishes as fast as it likes, until a loop or many of the readers may soon be overtaken
//! ([`Channel::is_crowded`]). From then on its publications wait: those of all clients of this loop together fill what is kept for
//! slow readers once in [`FILL_TIME`], or go as fast as the readers take them. Fair shares decide whose is next
//! ([`shares`](crate::shares)).
//!
//! Bound: an entry for each connection that waits, and one for each channel in which somebody waits, or has just waited.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidings_buffer::Line;
use tidings_hub::Channel;
use tidings_types::ChannelName;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::shares::{Asker, Askers};
use crate::stint::Stint;

/// A reader that takes in this time what is kept for slow readers is not overtaken by clients.
const FILL_TIME: Duration = Duration::from_secs(10);

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Crowds(HashMap<ChannelName, Crowd>);

#[derive(Debug)]
struct Crowd {
    channel: Arc<Channel>,
    /// Each with the time that its publication takes.
    waiting: Askers<(oneshot::Sender<()>, Duration)>,
    /// When the next one may publish.
    free_at: Instant,
}

impl Crowds {
    /// A client wants to publish so many bytes in a channel that is crowded, or was a moment ago. It must wait until this is
    /// received.
    pub(crate) fn ask(
        &mut self,
        channel: Arc<Channel>,
        bytes: usize,
        asker: &Asker,
        now: Instant,
    ) -> oneshot::Receiver<()> {
        let time = FILL_TIME.mul_f64(channel.part(bytes));
        let crowd = || Crowd { channel: channel.clone(), waiting: Askers::default(), free_at: now };
        let crowd = self.0.entry(channel.name().clone()).or_insert_with(crowd);
        let (turn, given) = oneshot::channel();
        crowd.waiting.push(asker.path(), (turn, time));
        given
    }

    /// The channel with this name, if others wait there: then everybody does, crowded or not.
    pub(crate) fn channel(&self, name: &ChannelName) -> Option<Arc<Channel>> {
        self.0.get(name).map(|crowd| crowd.channel.clone())
    }

    /// When [`Crowds::give`] is due.
    pub(crate) fn next_due_at(&self) -> Option<Instant> {
        self.0.values().map(|crowd| crowd.free_at).min()
    }

    /// Lets those publish whose time has come: one in each channel, as many as a stint serves.
    pub(crate) fn give(&mut self, now: Instant) {
        let mut stint = Stint::begin();
        self.0.retain(|_, crowd| crowd.free_at > now || !stint.goes_on() || crowd.give(now));
        if self.0.is_empty() {
            self.0 = HashMap::new(); // Frees the memory of earlier crowds.
        }
    }

    /// Nobody waits from now on.
    pub(crate) fn end(&mut self) {
        self.0.clear();
    }
}

impl Crowd {
    /// Lets the next one publish. Returns whether there was one.
    fn give(&mut self, now: Instant) -> bool {
        while let Some((turn, time)) = self.waiting.pop() {
            if turn.send(()).is_ok() {
                self.free_at = if self.channel.is_crowded() { now + time } else { now };
                return true;
            }
        }
        false
    }
}
