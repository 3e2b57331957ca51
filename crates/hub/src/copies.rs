//! Memory channels in a cluster: one hub is their home, the others have copies.
//!
//! ```text
//!   home: publish ──► channel (lock) ──tell──► Relay ··· the network ··· ──► apply ──► copy ──► readers
//!                        │                                                     │ Missing: the channel's copy first
//!                        └── copies, copy_of ··············· the network ··· ──► take_copy
//! ```
//!
//! - The **home** is the hub of the node that leads. It gives offsets, and removes what is too old. It tells the others
//!   under the channel's lock, so they hear of a channel in its order ([`News`]).
//! - A **copy** removes nothing by itself. It appends only the publication that is next. If it lacks one before it, it
//!   says so ([`Applied::Missing`]), and takes the whole channel ([`Hub::take_copy`]). So no reader has a hole that it was
//!   not told of.
//! - A **round** copies all channels, for a node that is new or was cut off. News go on meanwhile, over the same link: it
//!   hands on pages and news in the order in which it got them, and loses nothing until the round ends. A page may be older
//!   than news that were handed on before it. Therefore a page does not put a channel back into another life if the home
//!   has told of its life in this round, and does not bring back a channel that the home has forgotten in this round.
//! - **Another home** may have missed the last publications of the home before. So all its memory channels begin another
//!   epoch ([`Hub::take_over`]), and no offset means two publications. While it takes over, it neither takes news of the home
//!   before nor gives offsets as the home.
//!
//! # When readers start anew
//! A copy's content may be replaced by another life of the channel, or by a later part of its life behind a hole. Then a
//! [restart frame](tidings_stream::FrameKind::Restart) stands in the tail between the old content and the new content, put there under
//! the same lock. A reader gets the frames before it, is disconnected, and comes back with the position that it really has.
//! So no reader's position moves over a hole.
//!
//! An epoch says whether a reader's position means anything. A reader of a channel in which nobody has published knows an
//! epoch and offset 0, and a push has an offset but no epoch. Two cases follow from that:
//! - The home's epoch for new channels changes often. A copy that missed nothing since its last round knows that the first
//!   publication is the first one, whatever its epoch is. It gives it to its readers. They know it under an epoch in which
//!   nobody has published anywhere, so where they come back next, they are told of a gap.
//! - A copy that was cut off does not know whether there was a publication under the epoch that its readers know. If there
//!   was one, a reader could come back to a copy that still has it, and resume over it. Therefore such readers start anew when
//!   somebody publishes. They do not before: there may be very many such channels, and most had no publication.
//!
//! Readers of channels without a history have no positions, and never start anew.
//!
//! # What the caller does
//! It carries news and copies to the other nodes, keeps news that miss something until the channel's copy has come, and begins a
//! round with each new link. If news were
//! lost, it begins the round before it applies later ones.
//!
//! Durable channels are not copied: each node has them from the log. Only what is not kept, and joins and leaves, is told.
//!
//! # Bounds
//! A copy is never refused. A node that is not the home has at most the home's memory channels, and those that its own readers
//! ask for: they are refused only from twice the limits on, since the copies count, too, and cannot be removed here. The names
//! that are forgotten in a round are remembered until it ends. A page of copies is bounded by its caller. The relay bounds
//! what waits. While the home is gone, nothing expires.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidings_protocol::Push;
use tidings_types::{ChannelName, Timestamp};

use crate::channel::Channel;
use crate::relay::{Applied, ChannelCopy, CopyCursor, News, Part, Relay};
use crate::table::SHARD_COUNT;
use crate::{Creation, Hub};

impl Hub {
    /// Tells the other nodes of a cluster by `relay`. Call it before there are channels.
    #[must_use]
    pub fn with_relay(mut self, relay: Arc<dyn Relay>) -> Self {
        self.cluster.relay = Some(relay);
        self
    }

    /// Whether this hub is the home of the memory channels. It is at first. Before a node takes news or copies from
    /// another home, it is set to false; [`Hub::take_over`] sets it to true.
    pub fn set_home(&self, is_home: bool) {
        if is_home {
            self.begin_as_home();
        } else {
            self.cluster.set_part(Part::Copy);
        }
    }

    /// Whether this hub is the home of the memory channels.
    pub fn is_home(&self) -> bool {
        self.cluster.is_home()
    }

    /// The bits of the epoch with which new memory channels begin.
    pub fn memory_epoch(&self) -> u64 {
        self.memory_epoch.load(Ordering::Relaxed)
    }

    /// New memory channels begin with this epoch from now on. A copy has that of its home, so a reader of a channel in
    /// which nobody has published resumes on every node. Set it with the first page of a round. If the home has told of an
    /// epoch in this round, that one stays: the page may have been made before.
    pub fn set_memory_epoch(&self, bits: u64) {
        if !self.cluster.has_told_epoch() {
            self.memory_epoch.store(bits, Ordering::Relaxed);
        }
    }

    /// New memory channels have another epoch from now on.
    pub(crate) fn begin_memory_epoch(&self) {
        let bits = self.memory_epoch.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.cluster.tell(|| News::MemoryEpoch { bits });
    }

    /// Applies news of another node. It tells nothing itself. News must come in the order in which they were told.
    ///
    /// News of a channel whose namespace is not configured here, or is durable only here, change nothing. Nor do, on the
    /// home, those that only a home tells: they come from a home that is none any more.
    pub fn apply(&self, news: News, now: Timestamp) -> Applied {
        match news {
            News::Joined { channel, info } => self.announce(&channel, &Push::Join(&info)),
            News::Left { channel, info } => self.announce(&channel, &Push::Leave(&info)),
            News::Published { channel, epoch: None, publication, .. } => {
                if let Some(channel) = self.existing(&channel) {
                    channel.deliver(&publication, |loop_id, channel| self.wake(loop_id, channel));
                    self.bound_tails();
                }
            }
            _ if !self.cluster.is_copy() => {}
            News::Published { channel, epoch: Some(epoch), version, publication, at } => {
                let (top, kept) = (publication.offset, vec![publication]);
                return self.apply_kept(ChannelCopy { channel, epoch, top, version, kept, at: at.min(now) });
            }
            News::Removed { channel, epoch, until } => {
                let (kept, version) = (Vec::new(), None);
                self.take_copy(ChannelCopy { channel, epoch, top: until, version, kept, at: now }, now);
            }
            News::Forgotten { channel: name } => {
                self.cluster.forget(&name);
                if let Some(channel) = self.existing(&name).filter(|channel| !channel.options().durable) {
                    let wake = |loop_id, channel| self.wake(loop_id, channel);
                    channel.empty(self.memory_start(), &self.cluster, wake);
                    self.remove_if_unused(&channel);
                }
            }
            News::MemoryEpoch { bits } => {
                self.cluster.on_epoch_told();
                self.memory_epoch.store(bits, Ordering::Relaxed);
            }
        }
        Applied::Done
    }

    /// `next` has the one publication that was told.
    fn apply_kept(&self, next: ChannelCopy) -> Applied {
        if !self.is_copied(&next) {
            return Applied::Done;
        }
        let applied = self.with_channel(&next.channel, Creation::Accepted, |channel| {
            channel.apply(&next, &self.cluster, |loop_id, channel| self.wake(loop_id, channel))
        });
        let applied = applied.unwrap_or(Applied::Done);
        self.remove_untaken(&next.channel, applied != Applied::Done);
        applied
    }

    /// Removes the channel if it was created for what was not taken: because something is missing, or because this node takes
    /// over at this moment.
    fn remove_untaken(&self, name: &ChannelName, is_missing: bool) {
        if (is_missing || !self.cluster.is_copy())
            && let Some(channel) = self.existing(name)
        {
            self.remove_if_unused(&channel);
        }
    }

    /// Whether this node copies the channel, and a home can have sent this copy.
    fn is_copied(&self, copy: &ChannelCopy) -> bool {
        self.options(&copy.channel).is_ok_and(|options| !options.durable) && copy.base().is_some()
    }

    fn announce(&self, name: &ChannelName, push: &Push<'_>) {
        if let Some(channel) = self.existing(name) {
            channel.announce_remote(push, |loop_id, channel| self.wake(loop_id, channel));
            self.bound_tails();
        }
    }

    /// A copy of one memory channel; `None` if nothing was published in it, or it is durable.
    pub fn copy_of(&self, name: &ChannelName) -> Option<ChannelCopy> {
        self.existing(name)?.copy()
    }

    /// Copies of the memory channels in which something was published, and where the next page begins; `None`: this was
    /// the last one. A page ends before its publications weigh more than `bytes_max`, but has at least one channel, if
    /// there is one. A cursor that this hub did not give leads to some page, or to an empty last one.
    ///
    /// Each channel that exists all the time is in one page. Those that come and go are told as news.
    pub fn copies(&self, from: CopyCursor, bytes_max: usize) -> (Vec<ChannelCopy>, Option<CopyCursor>) {
        let (mut page, mut bytes, mut cursor) = (Vec::new(), 0_usize, from);
        while cursor.shard < SHARD_COUNT {
            for channel in self.sorted_memory_channels(&cursor) {
                let Some(copy) = channel.copy() else { continue };
                bytes = bytes.saturating_add(copy.weight());
                if bytes > bytes_max && !page.is_empty() {
                    return (page, Some(cursor));
                }
                page.push(copy);
                cursor.after = Some(channel.name().clone());
            }
            cursor = CopyCursor { shard: cursor.shard + 1, after: None };
        }
        (page, None)
    }

    /// The memory channels of the cursor's shard that come after it, by name. The shard is locked only to collect them.
    fn sorted_memory_channels(&self, cursor: &CopyCursor) -> Vec<Arc<Channel>> {
        let mut channels = self.table.memory_channels(cursor.shard);
        channels.retain(|channel| cursor.after.as_ref().is_none_or(|after| channel.name() > after));
        channels.sort_unstable_by(|one, other| one.name().cmp(other.name()));
        channels
    }

    /// Takes the home's copy of a channel. What the channel here lacks is appended and given to its readers. If there is a
    /// hole between, or the copy is of another life, the copy replaces the history, and the readers start anew. A copy that is
    /// behind only removes what the home had removed.
    pub fn take_copy(&self, copy: ChannelCopy, now: Timestamp) {
        if !self.cluster.is_copy() || !self.is_copied(&copy) {
            return;
        }
        if self.cluster.has_forgotten(&copy.channel) && self.copy_of(&copy.channel).is_none() {
            return; // It was made before the home has forgotten the channel.
        }
        let copy = ChannelCopy { at: copy.at.min(now), ..copy };
        // Only an unknown namespace is an error, and then it is not copied.
        let _taken = self.with_channel(&copy.channel, Creation::Accepted, |channel| {
            channel.take_copy(&copy, &self.cluster, |loop_id, channel| self.wake(loop_id, channel))
        });
        self.remove_untaken(&copy.channel, false);
    }

    /// Begins a round. All copies that the home has are taken after this, and news are applied meanwhile. It is begun anew
    /// with each new link and each new home, and when news were missed, before later ones are applied. A round that is begun
    /// anew need not be ended.
    pub fn begin_round(&self) {
        self.cluster.begin_round();
    }

    /// Ends a round: the home has no channel that was not told of since [`Hub::begin_round`]. Such memory channels are
    /// emptied, and are as new; their readers start anew.
    ///
    /// A channel in which nobody has published takes the current epoch. If it had another one, it may have had a life at the
    /// home of which this node was told nothing. Its readers start anew at the first publication, since there may be very
    /// many such channels, and most had none.
    pub fn end_round(&self) {
        self.cluster.end_round();
        if self.cluster.is_copy() {
            let start = self.memory_start();
            for channel in self.all_memory_channels() {
                channel.empty_untold(start, &self.cluster, |loop_id, channel| self.wake(loop_id, channel));
                self.remove_if_unused(&channel);
            }
            self.cluster.set_whole();
        }
    }

    /// This node becomes the home, and has the last word about all memory channels. Their publications, offsets and
    /// versions stay. They get another epoch, because the home before may have given offsets of which this node was not
    /// told. Readers that know a position start anew. News and copies of the home before change nothing from the call on.
    ///
    /// The node is the home when this returns, not before. What it publishes meanwhile gets an offset of no other
    /// node's epoch, as [`Hub::publish`] says of a node that is not the home, and stays.
    pub fn take_over(&self) {
        self.cluster.set_part(Part::TakingOver);
        self.memory_epoch.store(rand::random(), Ordering::Relaxed);
        let epoch = self.memory_start().epoch;
        // A channel that begins behind this has the epoch already.
        for channel in self.all_memory_channels() {
            channel.begin_epoch(epoch, |loop_id, channel| self.wake(loop_id, channel));
        }
        self.begin_as_home();
    }

    /// From now on this node removes what is over.
    fn begin_as_home(&self) {
        self.cluster.set_part(Part::Home);
        self.all_memory_channels().for_each(|channel| channel.nudge());
    }

    fn all_memory_channels(&self) -> impl Iterator<Item = Arc<Channel>> {
        (0..SHARD_COUNT).flat_map(|shard| self.table.memory_channels(shard))
    }
}
