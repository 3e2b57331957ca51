//! A durable channel whose older publications only the store has; see [`crate::histories`].

use std::time::Duration;

use tidings_protocol::{Publication, RecoveryMode};
use tidings_telemetry::panics::lock;
use tidings_types::{Offset, Timestamp};

use super::{Acted, Channel, State};

/// How long a channel without readers holds its publications.
const IDLE_TIME: Duration = Duration::from_secs(60);

impl Channel {
    /// `is_kept`: the store has its publications.
    pub(crate) fn restore(&self, top: Offset, at: Timestamp, is_kept: bool) -> Acted<()> {
        let mut state = lock(&self.state);
        if state.swept {
            return Acted::Swept;
        }
        if top > Offset(0) {
            state.history = state.history.restored(top, Vec::new(), at);
            state.is_new = false;
            state.older = is_kept.then_some(Offset(0));
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
    pub(crate) fn add_older(&self, mut publications: Vec<Publication>) {
        let mut state = lock(&self.state);
        let Some(removed) = state.older.take() else { return };
        publications.retain(|publication| publication.offset > removed);
        if let Some(last) = publications.last() {
            let last = last.offset;
            state.history.prepend(publications, last);
        }
        state.unread_since = None;
    }

    /// Whoever reads its publications from the store holds this meanwhile.
    pub(crate) fn loading(&self) -> &tokio::sync::Mutex<()> {
        &self.loading
    }

    /// Lets go of the publications if they are in the store and nobody has read the channel for [`IDLE_TIME`].
    pub(crate) fn unload_if_idle(&self, now: Timestamp) {
        if !self.options.durable {
            return;
        }
        let Ok(_nobody_loads) = self.loading.try_lock() else { return };
        let mut state = lock(&self.state);
        if !state.readers.is_empty() {
            state.unread_since = None;
        } else if now.saturating_since(*state.unread_since.get_or_insert(now)) >= IDLE_TIME && state.history.clear() > 0
        {
            state.older.get_or_insert(Offset(0));
        }
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
}
