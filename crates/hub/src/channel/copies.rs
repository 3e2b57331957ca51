//! A memory channel as the copy of the home's channel; see [`crate::copies`].

use std::sync::Arc;

use tidings_protocol::{Publication, Push};
use tidings_stream::{History, HistoryFilter};
use tidings_telemetry::panics::lock;
use tidings_types::{Epoch, Offset, StreamPosition, Timestamp};

use super::{Acted, Channel, LoopId, State, Version, new_history};
use crate::relay::{Applied, ChannelCopy};

impl Channel {
    /// The channel's content; `None` if nothing was published in it, or it is durable.
    pub(crate) fn copy(&self) -> Option<ChannelCopy> {
        let state = lock(&self.state);
        if self.options.durable || state.is_new || state.swept {
            return None;
        }
        let (StreamPosition { offset: top, epoch }, at) = (state.history.top(), state.history.published_at());
        let kept = state.history.read(HistoryFilter::default());
        Some(ChannelCopy { channel: self.name.clone(), epoch, top, version: state.version.clone(), kept, at })
    }

    /// Takes the one publication of `next`, if it is the next one or the first one of another life.
    pub(crate) fn apply(
        self: &Arc<Self>,
        next: &ChannelCopy,
        round: u64,
        wake: impl Fn(LoopId, Arc<Self>),
    ) -> Acted<Applied> {
        let mut state = lock(&self.state);
        if state.swept {
            return Acted::Swept;
        }
        let mine = state.history.top();
        let is_same = mine.epoch == next.epoch;
        let before = if is_same { mine.offset } else { Offset(0) };
        if next.top > before.next() {
            state.round = 0; // Whatever copy comes is better.
            return Acted::Done(Applied::Missing(self.name.clone()));
        }
        state.round = round;
        if next.top <= before {
            return Acted::Done(Applied::Done);
        }
        let mut has_to_restart = false;
        if is_same {
            self.append(&mut state, &next.kept, before, next.at, wake);
        } else {
            has_to_restart = self.replace(&mut state, next);
        }
        state.version = next.version.clone().or(state.version.take());
        Acted::Done(Applied::restart_if(has_to_restart, self.name.clone()))
    }

    /// Takes a copy. Returns whether the readers have to start anew.
    pub(crate) fn take_copy(
        self: &Arc<Self>,
        copy: &ChannelCopy,
        round: u64,
        wake: impl Fn(LoopId, Arc<Self>),
    ) -> Acted<bool> {
        let mut state = lock(&self.state);
        if state.swept {
            return Acted::Swept;
        }
        let Some(base) = copy.base() else { return Acted::Done(false) };
        let mine = state.history.top();
        let is_same = mine.epoch == copy.epoch;
        if !is_same && !state.is_new && state.round == round {
            return Acted::Done(false); // It was made before the life of which the home has told since.
        }
        state.round = round;
        if !is_same || base > mine.offset {
            return Acted::Done(self.replace(&mut state, copy));
        }
        if copy.top >= mine.offset {
            let known = usize::try_from(mine.offset.0 - base.0).unwrap_or(usize::MAX).min(copy.kept.len());
            self.append(&mut state, &copy.kept[known..], mine.offset, copy.at, wake);
            state.version = copy.version.clone().or(state.version.take());
        } else {
            // Known by news alone, the channel may lack the version of an earlier publication.
            state.version = state.version.take().or_else(|| copy.version.clone());
        }
        state.history.remove_until(base);
        Acted::Done(false)
    }

    /// Appends the publications after `top`, and gives them to the readers.
    fn append(
        self: &Arc<Self>,
        state: &mut State,
        publications: &[Publication],
        top: Offset,
        at: Timestamp,
        wake: impl Fn(LoopId, Arc<Self>),
    ) {
        for (offset, publication) in (top.0 + 1..).map(Offset).zip(publications) {
            let publication = Publication { offset, ..publication.clone() };
            state.history.append_at(offset, publication.clone(), at);
            state.is_new = false;
            self.fan_out(state, &publication, None, &wake);
        }
    }

    /// Replaces what the channel holds. Readers get nothing of it before they start anew. Returns whether there are some.
    fn replace(&self, state: &mut State, copy: &ChannelCopy) -> bool {
        let start = StreamPosition { offset: Offset(0), epoch: copy.epoch };
        let history = new_history(&self.options, start).restored(copy.top, copy.kept.clone(), copy.at);
        state.begin_life(history, copy.version.clone());
        state.is_new = false;
        !state.readers.is_empty()
    }

    /// Empties the channel unless it was told of in this round: it is as new, at `start`. Returns whether it has readers
    /// that have to start anew.
    pub(crate) fn empty(&self, start: StreamPosition, round: u64) -> bool {
        let mut state = lock(&self.state);
        if state.round >= round || state.history.top() == start {
            return false;
        }
        state.begin_life(new_history(&self.options, start), None);
        state.is_new = true;
        self.has_positioned_readers(&state)
    }

    /// Begins another epoch with the same publications. Returns whether there are readers that have to start anew.
    pub(crate) fn begin_epoch(&self, epoch: Epoch) -> bool {
        let mut state = lock(&self.state);
        state.history.set_epoch(epoch);
        self.has_positioned_readers(&state)
    }

    /// Whether there are readers that know a position.
    fn has_positioned_readers(&self, state: &State) -> bool {
        self.options.has_history() && !state.readers.is_empty()
    }

    /// Gives the readers a publication that is not kept.
    pub(crate) fn deliver(self: &Arc<Self>, publication: &Publication, wake: impl Fn(LoopId, Arc<Self>)) {
        let publication = Publication { offset: Offset(0), ..publication.clone() };
        self.fan_out(&mut lock(&self.state), &publication, None, wake);
    }

    /// Tells those who want to know it who joins and leaves on another node.
    pub(crate) fn announce_remote(self: &Arc<Self>, push: &Push<'_>, wake: impl Fn(LoopId, Arc<Self>)) {
        self.announce(&mut lock(&self.state), push, wake);
    }
}

impl State {
    /// The next frame is no delta, because what its readers have is of another life.
    fn begin_life(&mut self, history: History<Publication>, version: Option<Version>) {
        (self.history, self.version, self.previous, self.idle_since) = (history, version, None, None);
    }

    /// Begins a life of its own, since the home gives offsets now. Whatever copy comes from the home replaces it.
    pub(super) fn detach(&mut self) {
        self.history.set_epoch(Epoch::from_random(rand::random()));
        self.round = 0;
    }
}
