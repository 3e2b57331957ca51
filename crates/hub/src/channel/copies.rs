//! A memory channel as the copy of the home's channel; see [`crate::copies`].

use std::sync::Arc;

use tidings_protocol::{Publication, Push};
use tidings_stream::{Frame, History, HistoryFilter};
use tidings_telemetry::panics::lock;
use tidings_types::{Epoch, Offset, StreamPosition, Timestamp};

use super::readers::LoopId;
use super::{Acted, Channel, State, Version, new_history};
use crate::clock::process_micros;
use crate::relay::{Applied, ChannelCopy, Cluster};

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
        cluster: &Cluster,
        wake: impl Fn(LoopId, Arc<Self>),
    ) -> Acted<Applied> {
        let mut state = lock(&self.state);
        if state.swept {
            return Acted::Swept;
        }
        if !cluster.is_copy() {
            return Acted::Done(Applied::Done);
        }
        let mine = state.history.top();
        let is_same = mine.epoch == next.epoch;
        let before = if is_same { mine.offset } else { Offset(0) };
        if next.top > before.next() {
            state.round = 0; // Whatever copy comes is better.
            return Acted::Done(Applied::Missing(self.name.clone()));
        }
        state.round = cluster.round();
        if next.top <= before {
            return Acted::Done(Applied::Done);
        }
        // Nobody has published before: only the epoch of such channels has changed at the home since it began here.
        let is_first = state.is_new && cluster.is_whole();
        if state.is_unsure || !is_same && !is_first {
            self.replace(&mut state, next, wake);
        } else {
            state.history.change(|history| history.set_epoch(next.epoch));
            self.append(&mut state, &next.kept, before, next.at, wake);
            state.version = next.version.clone().or(state.version.take());
        }
        Acted::Done(Applied::Done)
    }

    /// Takes a copy.
    pub(crate) fn take_copy(
        self: &Arc<Self>,
        copy: &ChannelCopy,
        cluster: &Cluster,
        wake: impl Fn(LoopId, Arc<Self>),
    ) -> Acted<()> {
        let mut state = lock(&self.state);
        if state.swept {
            return Acted::Swept;
        }
        let Some(base) = copy.base().filter(|_| cluster.is_copy()) else { return Acted::Done(()) };
        let mine = state.history.top();
        let is_same = mine.epoch == copy.epoch;
        if !is_same && !state.is_new && state.round == cluster.round() {
            return Acted::Done(()); // It was made before the life of which the home has told since.
        }
        state.round = cluster.round();
        if state.is_unsure || !is_same || base > mine.offset {
            self.replace(&mut state, copy, wake);
            return Acted::Done(());
        }
        if copy.top >= mine.offset {
            let known = usize::try_from(mine.offset.0 - base.0).unwrap_or(usize::MAX).min(copy.kept.len());
            self.append(&mut state, &copy.kept[known..], mine.offset, copy.at, wake);
            state.version = copy.version.clone().or(state.version.take());
        } else {
            // Known by news alone, the channel may lack the version of an earlier publication.
            state.version = state.version.take().or_else(|| copy.version.clone());
        }
        state.history.change(|history| history.remove_until(base));
        Acted::Done(())
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
            state.history.change(|history| history.append_at(offset, publication.clone(), at));
            state.is_new = false;
            self.fan_out(state, &publication, None, &wake);
        }
    }

    /// Replaces what the channel holds. Its readers start anew, and get nothing of it before.
    fn replace(self: &Arc<Self>, state: &mut State, copy: &ChannelCopy, wake: impl Fn(LoopId, Arc<Self>)) {
        let start = StreamPosition { offset: Offset(0), epoch: copy.epoch };
        let history = new_history(&self.options, start).restored(copy.top, copy.kept.clone(), copy.at);
        state.begin_life(history, copy.version.clone());
        state.is_new = false;
        self.restart(state, wake);
    }

    /// The home has forgotten the channel: it is as new, at `start`.
    pub(crate) fn empty(self: &Arc<Self>, start: StreamPosition, cluster: &Cluster, wake: impl Fn(LoopId, Arc<Self>)) {
        let mut state = lock(&self.state);
        if cluster.is_copy() && state.history.top() != start {
            self.begin_anew(&mut state, start, wake);
        }
    }

    /// At the end of a round: the home has no such channel, unless it has told of it in this round.
    ///
    /// A channel in which nobody has published may have had another life at the home before, of which this node was told
    /// nothing. Most have not, and there may be very many. So their readers start anew only if somebody publishes.
    pub(crate) fn empty_untold(
        self: &Arc<Self>,
        start: StreamPosition,
        cluster: &Cluster,
        wake: impl Fn(LoopId, Arc<Self>),
    ) {
        let mut state = lock(&self.state);
        if !cluster.is_copy() || state.round >= cluster.round() || state.history.top() == start {
            return;
        }
        if state.is_new {
            state.history.change(|history| history.set_epoch(start.epoch));
            state.is_unsure |= self.has_positioned_readers(&state);
        } else {
            self.begin_anew(&mut state, start, wake);
        }
    }

    fn begin_anew(self: &Arc<Self>, state: &mut State, start: StreamPosition, wake: impl Fn(LoopId, Arc<Self>)) {
        state.begin_life(new_history(&self.options, start), None);
        state.is_new = true;
        self.restart(state, wake);
    }

    /// Begins another epoch with the same publications.
    pub(crate) fn begin_epoch(self: &Arc<Self>, epoch: Epoch, wake: impl Fn(LoopId, Arc<Self>)) {
        let mut state = lock(&self.state);
        state.history.change(|history| history.set_epoch(epoch));
        self.restart(&mut state, wake);
    }

    /// Begins a life of its own, since the home gives offsets now. Whatever copy comes from the home replaces it. Readers get
    /// nothing of it under an epoch of the home, whose offsets mean other publications.
    pub(super) fn detach(self: &Arc<Self>, state: &mut State, wake: impl Fn(LoopId, Arc<Self>)) {
        state.history.change(|history| history.set_epoch(Epoch::from_random(rand::random())));
        state.round = 0;
        self.restart(state, wake);
    }

    /// The readers that are here start anew when they have what came before. The next frame is no delta, because what they
    /// have may be of another life.
    fn restart(self: &Arc<Self>, state: &mut State, wake: impl Fn(LoopId, Arc<Self>)) {
        (state.previous, state.is_unsure) = (None, false);
        if self.has_positioned_readers(state) {
            self.push(state, Frame::restart(process_micros()), wake);
        }
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
    fn begin_life(&mut self, history: History<Publication>, version: Option<Version>) {
        self.history.change(|known| *known = history);
        self.version = version;
    }
}
