//! A durable channel whose older publications only the store has; see [`crate::histories`].

use std::sync::{Arc, Weak};
use std::time::Duration;

use tidings_protocol::{Publication, RecoveryMode};
use tidings_telemetry::panics::lock;
use tidings_types::{Offset, Timestamp};

use super::{Acted, Channel, State};
use crate::cache::{Cache, Holder};
use crate::clock::process_micros;

/// How long a channel without readers holds its publications.
const IDLE_TIME: Duration = Duration::from_secs(60);

impl Channel {
    /// The store has publications up to this one.
    pub(crate) fn restore(&self, top: Offset, at: Timestamp) -> Acted<()> {
        let mut state = lock(&self.state);
        if state.swept {
            return Acted::Swept;
        }
        if top > Offset(0) {
            state.history = state.history.restored(top, Vec::new(), at);
            state.is_new = false;
            state.older = state.charge.is_some().then_some(Offset(0));
        }
        Acted::Done(())
    }

    /// Whether the store may have publications after `since`, or any, that the channel should hold and does not.
    pub(crate) fn lacks(&self, since: Option<Offset>) -> bool {
        let state = lock(&self.state);
        let history = &state.history;
        let is_empty = history.is_empty() && self.options.recovery_mode == RecoveryMode::Cache;
        state.older.is_some() && history.has_room() && (is_empty || since.is_none_or(|since| since < history.base()))
    }

    /// Takes what the store has of it.
    pub(crate) fn add_older(self: &Arc<Self>, mut publications: Vec<Publication>, cache: &Cache) {
        let mut state = lock(&self.state);
        let Some(removed) = state.older.take() else { return };
        publications.retain(|publication| publication.offset > removed);
        if let Some(last) = publications.last() {
            let last = last.offset;
            state.history.prepend(publications, last);
        }
        state.unread_since = None;
        self.charge(&mut state, Some(cache));
    }

    /// The channel is used, and its history may have become larger.
    pub(super) fn charge(self: &Arc<Self>, state: &mut State, cache: Option<&Cache>) {
        let (Some(charge), Some(cache)) = (&mut state.charge, cache) else { return };
        if charge.bytes() == 0 {
            let channel: Weak<Self> = Arc::downgrade(self);
            cache.hold(self.number, channel);
        }
        charge.set(state.history.bytes());
        state.used_at = process_micros();
    }

    /// Whoever reads its publications from the store holds this meanwhile.
    pub(crate) fn loading(&self) -> &tokio::sync::Mutex<()> {
        &self.loading
    }

    /// Lets go of the publications if nobody has read the channel for [`IDLE_TIME`].
    pub(crate) fn unload_if_idle(&self, now: Timestamp) {
        if !self.options.durable {
            return;
        }
        let mut state = lock(&self.state);
        if !state.readers.is_empty() {
            state.unread_since = None;
            return;
        }
        let unread_since = *state.unread_since.get_or_insert(now);
        drop(state);
        if now.saturating_since(unread_since) >= IDLE_TIME {
            self.unload();
        }
    }
}

impl Holder for Channel {
    fn used_at(&self) -> u64 {
        lock(&self.state).used_at
    }

    fn unload(&self) -> bool {
        let Ok(_nobody_loads) = self.loading.try_lock() else { return false };
        let mut state = lock(&self.state);
        if state.charge.is_none() || state.history.clear() == 0 {
            return false;
        }
        state.older.get_or_insert(Offset(0));
        state.charge_less();
        true
    }

    fn release_if_empty(&self, cache: &Cache) {
        let state = lock(&self.state);
        if state.charge.as_ref().is_none_or(|charge| charge.bytes() == 0) {
            cache.release(self.number);
        }
    }
}

impl State {
    /// The history has become smaller.
    pub(super) fn charge_less(&mut self) {
        if let Some(charge) = &mut self.charge {
            charge.set(self.history.bytes());
        }
    }

    /// The store has removed the publications up to `until`.
    pub(super) fn remove_older(&mut self, until: Offset) {
        if until >= self.history.base() {
            self.older = None;
        } else if let Some(removed) = &mut self.older {
            *removed = until.max(*removed);
        }
    }
}
