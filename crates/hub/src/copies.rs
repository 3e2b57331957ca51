//! Memory channels in a cluster: one hub is their home, the others have copies.
//!
//! ```text
//!   home: publish ──► channel (lock) ──tell──► Relay ··· the network ··· ──► apply ──► copy ──► readers
//!                        │                                                     │ Missing: asks for one channel
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
//!   epoch ([`Hub::take_over`]), and no offset means two publications.
//!
//! What the caller does: carries news and copies to the other nodes, asks for what is missing, begins a round with each
//! new link, and lets readers start anew where it is told to. Until a reader is told, it may be given publications of the
//! channel's new life.
//!
//! Durable channels are not copied: each node has them from the log. Only what is not kept, and joins and leaves, is told.
//!
//! Bounds: a copy is never refused, so a node has at most the home's memory channels besides those that its own readers
//! ask for. The names that are forgotten in a round are remembered until it ends. A page of copies is bounded by its
//! caller. The relay bounds what waits. While the home is gone, nothing expires.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidings_protocol::Push;
use tidings_telemetry::panics::lock;
use tidings_types::{ChannelName, Timestamp};

use crate::channel::Channel;
use crate::relay::{Applied, ChannelCopy, Cluster, CopyCursor, News, Relay};
use crate::{Creation, Hub, SHARD_COUNT};

impl Hub {
    /// Tells the other nodes of a cluster by `relay`. Call it before there are channels.
    #[must_use]
    pub fn with_relay(self, relay: Arc<dyn Relay>) -> Self {
        Self { cluster: Cluster { relay: Some(relay), ..self.cluster }, ..self }
    }

    /// Whether this hub is the home of the memory channels. It is at first. Before a node takes news or copies from
    /// another home, it is set to false; [`Hub::take_over`] sets it to true.
    pub fn set_home(&self, is_home: bool) {
        self.cluster.is_home.store(is_home, Ordering::Relaxed);
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
    /// which nobody has published resumes on every node. Set it before the pages of a round.
    pub fn set_memory_epoch(&self, bits: u64) {
        self.memory_epoch.store(bits, Ordering::Relaxed);
    }

    /// New memory channels have another epoch from now on.
    pub(crate) fn begin_memory_epoch(&self) {
        let bits = rand::random();
        self.set_memory_epoch(bits);
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
                }
            }
            _ if self.cluster.is_home() => {}
            News::Published { channel, epoch: Some(epoch), version, publication, at } => {
                let (top, kept) = (publication.offset, vec![publication]);
                return self.apply_kept(ChannelCopy { channel, epoch, top, version, kept, at: at.min(now) });
            }
            News::Removed { channel, epoch, until } => {
                let (kept, version) = (Vec::new(), None);
                let copy = ChannelCopy { channel: channel.clone(), epoch, top: until, version, kept, at: now };
                return Applied::restart_if(self.take_copy(copy, now), channel);
            }
            News::Forgotten { channel: name } => {
                if let Some(forgotten) = &mut *lock(&self.cluster.forgotten) {
                    forgotten.insert(name.clone());
                }
                let channel = self.existing(&name).filter(|channel| !channel.options().durable);
                return Applied::restart_if(channel.is_some_and(|channel| self.empty(&channel, u64::MAX)), name);
            }
            News::MemoryEpoch { bits } => self.set_memory_epoch(bits),
        }
        Applied::Done
    }

    /// `next` has the one publication that was told.
    fn apply_kept(&self, next: ChannelCopy) -> Applied {
        if !self.is_copied(&next) {
            return Applied::Done;
        }
        let applied = self.with_channel(&next.channel, Creation::Accepted, |channel| {
            channel.apply(&next, self.cluster.round(), |loop_id, channel| self.wake(loop_id, channel))
        });
        let applied = applied.unwrap_or(Applied::Done);
        if matches!(applied, Applied::Missing(_))
            && let Some(channel) = self.existing(&next.channel)
        {
            self.remove_if_unused(&channel); // It may have been created for this publication.
        }
        applied
    }

    /// Whether this node copies the channel, and a home can have sent this copy.
    fn is_copied(&self, copy: &ChannelCopy) -> bool {
        self.options(&copy.channel).is_ok_and(|options| !options.durable) && copy.base().is_some()
    }

    fn announce(&self, name: &ChannelName, push: &Push<'_>) {
        if let Some(channel) = self.existing(name) {
            channel.announce_remote(push, |loop_id, channel| self.wake(loop_id, channel));
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
        let mut channels = self.memory_channels(cursor.shard);
        channels.retain(|channel| cursor.after.as_ref().is_none_or(|after| channel.name() > after));
        channels.sort_unstable_by(|one, other| one.name().cmp(other.name()));
        channels
    }

    fn memory_channels(&self, shard: usize) -> Vec<Arc<Channel>> {
        let shard = lock(&self.shards[shard]);
        shard.values().filter(|channel| !channel.options().durable).cloned().collect()
    }

    /// Takes the home's copy of a channel. What the channel here lacks is appended and given to its readers. If there is a
    /// hole between, or the copy is of another life, the copy replaces the history. A copy that is behind only removes what
    /// the home had removed.
    ///
    /// Returns whether the readers have to start anew: the history was replaced, and there are some.
    pub fn take_copy(&self, copy: ChannelCopy, now: Timestamp) -> bool {
        if self.cluster.is_home() || !self.is_copied(&copy) {
            return false;
        }
        if self.cluster.has_forgotten(&copy.channel) && self.copy_of(&copy.channel).is_none() {
            return false; // It was made before the home has forgotten the channel.
        }
        let copy = ChannelCopy { at: copy.at.min(now), ..copy };
        let taken = self.with_channel(&copy.channel, Creation::Accepted, |channel| {
            channel.take_copy(&copy, self.cluster.round(), |loop_id, channel| self.wake(loop_id, channel))
        });
        taken.unwrap_or(false)
    }

    /// Begins a round. All copies that the home has are taken after this, and news are applied meanwhile. It is begun anew
    /// with each new link and each new home. A round that is begun anew need not be ended.
    pub fn begin_round(&self) {
        self.cluster.round.fetch_add(1, Ordering::Relaxed);
        *lock(&self.cluster.forgotten) = Some(HashSet::new());
    }

    /// Ends a round: the home has no channel that was not told of since [`Hub::begin_round`]. Such memory channels are
    /// emptied, and are as new. A new channel whose epoch is not the current one is emptied too, since it may have had a
    /// life at the home of which this node was told nothing.
    ///
    /// Returns the emptied channels with readers, which have to start anew.
    pub fn end_round(&self) -> Vec<ChannelName> {
        *lock(&self.cluster.forgotten) = None;
        if self.cluster.is_home() {
            return Vec::new();
        }
        let round = self.cluster.round();
        self.memory_channels_where(|channel| self.empty(channel, round))
    }

    /// Empties a channel that was not told of in this round. Returns whether it has readers that have to start anew.
    fn empty(&self, channel: &Arc<Channel>, round: u64) -> bool {
        let has_readers = channel.empty(self.memory_start(), round);
        self.remove_if_unused(channel);
        has_readers
    }

    /// This node becomes the home, and has the last word about all memory channels. Their publications, offsets and
    /// versions stay. They get another epoch, because the home before may have given offsets of which this node was not
    /// told. No news or copies may be applied from the call on.
    ///
    /// Returns the channels with readers that know a position, which have to start anew.
    pub fn take_over(&self) -> Vec<ChannelName> {
        self.set_memory_epoch(rand::random());
        let epoch = self.memory_start().epoch;
        let restarted = self.memory_channels_where(|channel| channel.begin_epoch(epoch));
        self.set_home(true);
        restarted
    }

    /// The names of the memory channels for which `act` returns true.
    fn memory_channels_where(&self, act: impl Fn(&Arc<Channel>) -> bool) -> Vec<ChannelName> {
        let channels = (0..SHARD_COUNT).flat_map(|shard| self.memory_channels(shard));
        channels.filter(act).map(|channel| channel.name().clone()).collect()
    }
}
