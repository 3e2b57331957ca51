//! What the hubs of a cluster's nodes tell each other about channels in memory, and a hub's part in its cluster. How they use it:
//! [`copies`](crate::copies).

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidings_protocol::{ClientInfo, NamespaceOptions, Publication};
use tidings_telemetry::panics::lock;
use tidings_types::{ChannelName, Epoch, Offset, Timestamp};

use crate::version::Version;

mod wire;

/// Carries news to the hubs of the other nodes.
pub trait Relay: Send + Sync + fmt::Debug {
    /// Takes news. News of one channel come in its order. Called with the channel or a part of the channel table locked: it
    /// must not block, and must not call the hub.
    fn tell(&self, news: News);
}

/// What a hub tells the hubs of the other nodes. Its serde form is JSON, for the wire between nodes of one version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum News {
    /// Something was published in a memory channel, or in any channel without being kept. Told by the home.
    #[serde(rename = "pub")]
    Published {
        /// The channel.
        #[serde(rename = "c")]
        channel: ChannelName,
        /// The epoch of the offset; `None`: it is not kept, and has no offset.
        #[serde(rename = "e", default, skip_serializing_if = "Option::is_none")]
        epoch: Option<Epoch>,
        /// The version of what is kept, if it has one.
        #[serde(rename = "v", default, skip_serializing_if = "Option::is_none")]
        version: Option<Version>,
        /// The publication, without a receipt.
        #[serde(rename = "p", with = "wire::One")]
        publication: Publication,
        /// When it was published.
        #[serde(rename = "t")]
        at: Timestamp,
    },
    /// Publications of a memory channel were removed, on request or because of their age. Told by the home.
    #[serde(rename = "rm")]
    Removed {
        /// The channel.
        #[serde(rename = "c")]
        channel: ChannelName,
        /// The epoch of the offset.
        #[serde(rename = "e")]
        epoch: Epoch,
        /// The last one that was removed.
        #[serde(rename = "u")]
        until: Offset,
    },
    /// A memory channel was forgotten with its position. Told by the home, behind the epoch of its next life.
    #[serde(rename = "gone")]
    Forgotten {
        /// The channel.
        #[serde(rename = "c")]
        channel: ChannelName,
    },
    /// Memory channels that are new from now on have another epoch. Told by the home.
    #[serde(rename = "epoch")]
    MemoryEpoch {
        /// The bits of the epoch; see [`Hub::memory_epoch`](crate::Hub::memory_epoch).
        #[serde(rename = "b")]
        bits: u64,
    },
    /// A member of any channel has joined on the node that tells it.
    #[serde(rename = "join")]
    Joined {
        /// The channel.
        #[serde(rename = "c")]
        channel: ChannelName,
        /// The member.
        #[serde(rename = "i")]
        info: ClientInfo,
    },
    /// A member that had joined has left.
    #[serde(rename = "left")]
    Left {
        /// The channel.
        #[serde(rename = "c")]
        channel: ChannelName,
        /// The member.
        #[serde(rename = "i")]
        info: ClientInfo,
    },
}

impl News {
    /// About how many bytes they take on the wire.
    pub fn weight(&self) -> usize {
        let (channel, bytes) = match self {
            Self::Published { channel, publication, .. } => (channel, publication.weight()),
            Self::Joined { channel, info } | Self::Left { channel, info } => (channel, info.weight()),
            Self::Removed { channel, .. } | Self::Forgotten { channel } => (channel, 0),
            Self::MemoryEpoch { .. } => return FIXED_BYTES,
        };
        FIXED_BYTES + channel.as_str().len() + bytes
    }
}

/// What has become of news.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// Nothing is left to do.
    Done,
    /// The copy of this channel lacks something before the news, and is unchanged. The caller applies the news again when it has
    /// taken the channel's copy ([`Hub::take_copy`](crate::Hub::take_copy)), also in a round: a page may have been made before the news.
    Missing(ChannelName),
}

/// A memory channel in which something was published, without its readers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChannelCopy {
    /// Its name.
    #[serde(rename = "c")]
    pub channel: ChannelName,
    /// Its epoch.
    #[serde(rename = "e")]
    pub epoch: Epoch,
    /// The offset of its last publication, kept or not.
    #[serde(rename = "o")]
    pub top: Offset,
    /// The version of the newest publication that has one.
    #[serde(rename = "v", default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// The kept publications, oldest first, without gaps. The last one is at `top`.
    #[serde(rename = "k", default, with = "wire::Many", skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Publication>,
    /// When the last one was published.
    #[serde(rename = "t")]
    pub at: Timestamp,
}

/// Bytes of a copy in an answer besides its name and publications.
const FIXED_BYTES: usize = 96;

/// No channel comes so far. It leaves room to count on from an offset that another node has sent.
const OFFSET_MAX: Offset = Offset(1 << 62);

impl ChannelCopy {
    /// About how many bytes it takes in an answer.
    pub(crate) fn weight(&self) -> usize {
        FIXED_BYTES + self.channel.as_str().len() + self.kept.iter().map(Publication::weight).sum::<usize>()
    }

    /// The offset before the first kept publication; `None` if no home sends such a copy.
    pub(crate) fn base(&self) -> Option<Offset> {
        let is_possible = (Offset(1)..=OFFSET_MAX).contains(&self.top);
        self.top.0.checked_sub(self.kept.len() as u64).filter(|_| is_possible).map(Offset)
    }
}

/// Where a page of copies begins; the default is the beginning. It means something only to the hub that gave it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CopyCursor {
    /// The part of the channel table.
    #[serde(rename = "s")]
    pub(crate) shard: usize,
    /// The last channel of this part that was copied.
    #[serde(rename = "a", default, skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<ChannelName>,
}

/// What a hub is for the memory channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Part {
    /// It has copies, and takes news and copies of another home.
    Copy,
    /// It is about to be the home. It takes nothing of another home any more, and gives nothing yet.
    TakingOver,
    /// It is the home.
    Home,
}

/// The hub's part in a cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) relay: Option<Arc<dyn Relay>>,
    /// A [`Part`]. Whoever changes a channel for its home, or as its home, reads it under the channel's lock.
    part: AtomicU8,
    /// The number of the current round, from 1 on.
    round: AtomicU64,
    /// Since the end of the last round no news were missed.
    is_whole: AtomicBool,
    /// The home has told of another epoch for new channels since the last round began.
    has_told_epoch: AtomicBool,
    /// The channels that the home has forgotten in the round that goes on. A page may still have them. Nothing else is
    /// locked meanwhile.
    forgotten: Mutex<Option<HashSet<ChannelName>>>,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            relay: None,
            part: AtomicU8::new(Part::Home as u8),
            round: AtomicU64::new(1),
            is_whole: AtomicBool::new(false),
            has_told_epoch: AtomicBool::new(false),
            forgotten: Mutex::default(),
        }
    }
}

impl Cluster {
    /// How long the position of a channel in memory outlives its publications and its readers. The home does not know the
    /// readers of other nodes, which start anew when it forgets their channel. So in a cluster it does not do that soon.
    pub(crate) fn position_ttl(&self, options: &NamespaceOptions) -> Duration {
        const IN_CLUSTER_MIN: Duration = Duration::from_secs(30 * 24 * 3600);
        let min = if self.relay.is_some() { IN_CLUSTER_MIN } else { Duration::ZERO };
        options.history_meta_ttl.max(min)
    }

    pub(crate) fn set_part(&self, part: Part) {
        self.is_whole.store(false, Ordering::Relaxed);
        self.has_told_epoch.store(false, Ordering::Relaxed);
        self.part.store(part as u8, Ordering::Relaxed);
    }

    pub(crate) fn is_home(&self) -> bool {
        self.part.load(Ordering::Relaxed) == Part::Home as u8
    }

    /// Whether another hub is the home, and has its say here.
    pub(crate) fn is_copy(&self) -> bool {
        self.part.load(Ordering::Relaxed) == Part::Copy as u8
    }

    pub(crate) fn round(&self) -> u64 {
        self.round.load(Ordering::Relaxed)
    }

    /// Whether a channel in which nobody has published as far as this node knows is one in which nobody has published.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Relaxed)
    }

    pub(crate) fn begin_round(&self) {
        self.is_whole.store(false, Ordering::Relaxed);
        self.has_told_epoch.store(false, Ordering::Relaxed);
        self.round.fetch_add(1, Ordering::Relaxed);
        *lock(&self.forgotten) = Some(HashSet::new());
    }

    /// The caller has not emptied the channels yet that were not told of.
    pub(crate) fn end_round(&self) {
        *lock(&self.forgotten) = None;
    }

    /// News are applied one after the other, by the caller that ends the round.
    pub(crate) fn set_whole(&self) {
        self.is_whole.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_told_epoch(&self) -> bool {
        self.has_told_epoch.load(Ordering::Relaxed)
    }

    pub(crate) fn on_epoch_told(&self) {
        self.has_told_epoch.store(true, Ordering::Relaxed);
    }

    /// The home has forgotten the channel.
    pub(crate) fn forget(&self, name: &ChannelName) {
        if let Some(forgotten) = &mut *lock(&self.forgotten) {
            forgotten.insert(name.clone());
        }
    }

    pub(crate) fn has_forgotten(&self, name: &ChannelName) -> bool {
        lock(&self.forgotten).as_ref().is_some_and(|forgotten| forgotten.contains(name))
    }

    pub(crate) fn tell(&self, news: impl FnOnce() -> News) {
        if let Some(relay) = &self.relay {
            relay.tell(news());
        }
    }

    /// `epoch` is `None` if the publication is not kept. What a node keeps that is not the home is told to nobody.
    pub(crate) fn tell_published(
        &self,
        name: &ChannelName,
        epoch: Option<Epoch>,
        version: Option<&Version>,
        publication: &Publication,
        at: Timestamp,
    ) {
        if let Some(relay) = &self.relay
            && (epoch.is_none() || self.is_home())
        {
            let publication = Publication { receipt: None, ..publication.clone() };
            let (channel, version) = (name.clone(), version.cloned());
            relay.tell(News::Published { channel, epoch, version, publication, at });
        }
    }
}
