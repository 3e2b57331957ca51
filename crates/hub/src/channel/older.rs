//! A durable channel whose older publications only the store has; see [`crate::histories`].

use std::sync::{Arc, Weak};

use tidings_protocol::RecoveryMode;
use tidings_stream::History;
use tidings_telemetry::panics::lock;
use tidings_types::{Offset, Timestamp};
use tokio::sync::watch;

use super::{Acted, Channel, State, UNREAD_TIME};
use crate::cache::{Holder, Kept, Wanted};
use crate::clock::process_micros;

impl Channel {
    /// The store has publications up to this one.
    pub(crate) fn restore(&self, top: Offset, at: Timestamp) -> Acted<()> {
        let mut state = lock(&self.state);
        if state.swept {
            return Acted::Swept;
        }
        if top > Offset(0) {
            state.history.change(|history| *history = history.restored(top, Vec::new(), at));
            state.is_new = false;
            state.older = self.cache.is_some().then_some(Offset(0));
            self.look_soon(&mut state);
        }
        Acted::Done(())
    }

    /// See [`Hub::lacks`](crate::Hub::lacks).
    pub(crate) fn lacks(&self, wanted: Wanted<'_>) -> bool {
        let mut state = lock(&self.state);
        if state.unread_since.take().is_some() {
            self.look_soon(&mut state);
        }
        state.used_at = process_micros();
        let (history, top) = (&state.history, state.history.top());
        let is_lacking = match wanted {
            Wanted::Any => true,
            Wanted::After(since, epoch) if self.options.recovery_mode == RecoveryMode::Cache => {
                history.is_empty() && (since, epoch) != (top.offset, top.epoch.as_str())
            }
            // In another epoch there is a gap, whatever the store has.
            Wanted::After(since, epoch) => since < history.base() && (epoch.is_empty() || epoch == top.epoch.as_str()),
        };
        state.older.is_some() && history.has_room() && is_lacking
    }

    /// Returns what ends when the publications have been read, and the other end of it if nobody reads them yet.
    pub(crate) fn begin_loading(&self) -> (watch::Receiver<()>, Option<watch::Sender<()>>) {
        let mut state = lock(&self.state);
        if let Some(ended) = &state.loading {
            return (ended.clone(), None);
        }
        let (ends, ended) = watch::channel(());
        state.loading = Some(ended.clone());
        (ended, Some(ends))
    }

    pub(crate) fn end_loading(&self) {
        lock(&self.state).loading = None;
    }

    /// Takes what the store has of it.
    pub(crate) fn add_older(self: &Arc<Self>, kept: Kept) {
        let Kept { mut publications, published_at } = kept;
        let mut state = lock(&self.state);
        let Some(removed) = state.older else { return };
        let last = publications.last().map(|last| last.offset);
        if last.is_some_and(|last| last < state.history.base()) {
            return; // They end before those that are held begin. Whoever asks next reads them again.
        }
        state.older = None;
        publications.retain(|publication| publication.offset > removed);
        if let Some(last) = last {
            let is_whole = last == state.history.top().offset;
            state.history.change(|history| {
                history.prepend(publications, last);
                if is_whole {
                    history.set_published_at(published_at);
                }
            });
        }
        state.unread_since = None;
        self.look_soon(&mut state);
        self.charge(&mut state);
    }

    /// The history may have become larger.
    pub(super) fn charge(self: &Arc<Self>, state: &mut State) {
        let (Some(charge), Some(cache)) = (&mut state.charge, &self.cache) else { return };
        if charge.bytes() == 0 {
            let channel: Weak<Self> = Arc::downgrade(self);
            cache.hold(self.number, channel);
        }
        state.used_at = process_micros();
        self.charge_less(state);
    }

    /// The history may have become smaller.
    pub(super) fn charge_less(&self, state: &mut State) {
        let (Some(charge), Some(cache)) = (&mut state.charge, &self.cache) else { return };
        charge.set(state.history.bytes());
        if charge.bytes() == 0 {
            cache.release(self.number);
        }
    }

    /// Lets go of the publications if the store has them, and nobody has read the channel or asked for them for [`UNREAD_TIME`].
    pub(super) fn unload_if_idle(&self, state: &mut State, now: Timestamp) {
        if self.cache.is_none() || !state.readers.is_empty() {
            state.unread_since = None;
        } else if now.saturating_since(*state.unread_since.get_or_insert(now)) >= UNREAD_TIME {
            self.unload_locked(state);
        }
    }

    fn unload_locked(&self, state: &mut State) -> bool {
        if self.cache.is_none() || state.loading.is_some() || state.history.change(History::clear) == 0 {
            return false;
        }
        state.older.get_or_insert(Offset(0));
        self.charge_less(state);
        true
    }
}

impl Holder for Channel {
    fn used_at(&self) -> u64 {
        lock(&self.state).used_at
    }

    fn unload(&self) -> bool {
        self.unload_locked(&mut lock(&self.state))
    }
}

impl State {
    /// The store has removed the publications up to `until`.
    pub(super) fn remove_older(&mut self, until: Offset) {
        if until >= self.history.base() {
            self.older = None;
        } else if let Some(removed) = &mut self.older {
            *removed = until.max(*removed);
        }
    }

    /// The channel has a publication at `offset`, of which it is told late: it is not in the history, if the channel was forgotten
    /// and made anew before the hub began.
    pub(super) fn know_of(&mut self, offset: Offset) {
        if self.is_new {
            self.is_new = false;
            self.older = self.charge.is_some().then(|| Offset(offset.0.saturating_sub(1)));
        }
    }
}
