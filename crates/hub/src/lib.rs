//! Owner of all channels: publish, subscribe, resume, history, presence, receipts.
//!
//! ```text
//!            publish ──► Channel { lock: history, tail, readers, presence } ──► wakes each edge loop once
//!                                    ▲            │
//!   subscribe, history, presence ────┘            └──► the loop fetches the new frames, once for all its readers
//! ```
//!
//! - Adding to the history and to the fan-out is one step under the channel's lock, so all readers see one order. A
//!   resume reads the history and takes a position in the tail under the same lock. So nothing has to be merged, and
//!   nothing is missed.
//! - The hub never waits for a reader and holds no socket. A reader is a position in the channel's
//!   [`Tail`]. Loops report the position of their slowest reader, and frames that all readers
//!   have are dropped.
//! - Memory channels get their offsets here. Durable channels get them from the journal ([`Hub::publish_durable`]),
//!   since offsets must survive a restart. Their publications are in the store as well, so they are read from there when a reader
//!   asks for them ([`Hub::load`]), and leave the memory when nobody has read the channel for a while. Otherwise both kinds are
//!   treated the same.
//! - Bounds: memory channels have the limit `channel_count_max`, and the channels of each namespace have the
//!   namespace's own `channel_count_max`; beyond that [`HubError::ChannelLimit`]. In a cluster, a node that is not the home
//!   has twice these limits for memory channels: up to once the limit are copies, which only the home can remove. The store bounds the durable channels
//!   that are published in. The hub must not refuse what the store has accepted, so these channels count in their
//!   namespace but are never refused. A channel without any publication exists only while it has a reader. While there
//!   is no room, idle memory channels are removed early. History is bounded by each namespace, the tail by
//!   [`TailBounds`] and all tails together by `tails_bytes_max`, what durable channels hold of their histories by that of
//!   [`Hub::with_histories`], presence, proven devices and what members want by the connections, receipts by
//!   `receipt_event_count_max` and `receipt_bytes_max` (see [`Receipts`]).
//! - Receipts of an event are opened under the channel's lock before fan-out, so they know which devices read the
//!   channel at that moment and want the publication ([`Wishes`]).
//! - Who joins and leaves is told through the tail too, so it is in order with the publications, and bounded like them.
//!   A joiner is told of itself, because it reads from before its join. A leaver is not.
//!
//! - In a cluster every node has a hub, and the hub of the leading node is the *home* of all memory channels. The others
//!   have copies of them, so subscribe, history and resume stay local; see [`News`] and [`Hub::apply`].
//! - Channels of a namespace with `occupancy_webhook` tell [`Changes`] when the first reader comes and the last one leaves.
//!
//! Locks, in this order: that of who drops frames of all tails or histories, a shard of the channel table, then a channel,
//! then one of the counts, a mailbox, the changes, the channels that hold publications, the receipts or what the [`Relay`]
//! locks. Within the receipts: the events, then one event. The lock of visibility is held
//! without these two.

mod budget;
mod cache;
mod changes;
mod channel;
mod clock;
mod copies;
mod fan_out;
mod histories;
mod loads;
mod mailbox;
mod memory;
mod presence;
mod receipts;
mod relay;
mod reports;
mod sum;
mod texts;
mod version;
mod wishes;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use tidings_protocol::{ClientId, ClientInfo, NamespaceOptions, Namespaces, Publication};
use tidings_stream::{Gap, HistoryFilter, Tail, TailBounds, TailUse};
use tidings_telemetry::panics::lock;
use tidings_types::{ChannelName, DeviceNumber, Epoch, Language, Locale, Offset, PushForm, StreamPosition, Timestamp};

use cache::Cache;
pub use cache::{Kept, Wanted};
pub use changes::{Batch, Change, Changes, ChangesConfig, Key};
use channel::Acted;
pub use channel::thin::{Behind, Thinned};
pub use channel::{Channel, LoopId, Member, NewPublication, Recovery, ResumeFrom, Subscribed};
pub use clock::process_micros;
pub use fan_out::FanOut;
pub use histories::{Histories, LOAD_TIMEOUT, Load, LoadFuture};
pub use mailbox::Mailbox;
pub use memory::{MemoryUse, PUBLICATION_BYTES};
pub use receipts::{
    ARRIVAL_BYTES, ARRIVAL_COUNT_MAX, Arrival, EventReceipts, RECEIPT_USER_COUNT_MAX, ReceiptSummary, Receipts,
};
use relay::Cluster;
pub use relay::{Applied, ChannelCopy, CopyCursor, News, Relay};
pub use reports::{RECEIPTS_TTL, Report};
pub use texts::{LiveText, Localizer, TAG_BODY, TAG_LANG, TAG_TITLE};
pub use version::Version;
pub use wishes::Wishes;

/// The hub's settings.
#[derive(Debug, Clone)]
pub struct HubConfig {
    /// The configured namespaces.
    pub namespaces: Arc<Namespaces>,
    /// Memory channels at one time.
    pub channel_count_max: usize,
    /// The bounds of each channel's tail.
    pub tail: TailBounds,
    /// Bytes of all tails together. Above that, the oldest frames are dropped, whatever channel they are of.
    pub tails_bytes_max: usize,
    /// The position at which a durable channel begins. The epoch is one life of the store; the offset rises with
    /// [`Hub::on_channel_forgotten`].
    pub durable_start: StreamPosition,
    /// Events whose receipts are collected at one time.
    pub receipt_event_count_max: usize,
    /// Bytes of the receipts of all events together.
    pub receipt_bytes_max: usize,
}

/// Why the hub refuses a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HubError {
    /// The channel's namespace is not configured.
    #[error("channel {0} is in a namespace that is not in the configuration (channel.namespaces)")]
    UnknownNamespace(ChannelName),
    /// A reader wanted to subscribe only if it can resume, and what it missed is not available.
    #[error(transparent)]
    Gap(#[from] Gap),
    /// There is no room for another channel.
    #[error("channel {channel} cannot be created: there are {limit} channels, the limit of {setting}")]
    ChannelLimit {
        /// The channel that was to be created.
        channel: ChannelName,
        /// The limit.
        limit: usize,
        /// The setting that has this limit.
        setting: &'static str,
    },
}

/// Number of channels and of subscriptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HubCounts {
    /// Channels that exist: with a subscriber or a history.
    pub channels: usize,
    /// Subscriptions of live connections.
    pub subscriptions: usize,
}

const SHARD_COUNT: usize = 64;

/// The earliest time between these two at which something is so that stays so, or the later one; in some steps, so not much
/// before it.
fn earliest(mut from: u64, mut until: u64, is_so: impl Fn(u64) -> bool) -> u64 {
    const STEP_COUNT: usize = 16;
    for _ in 0..STEP_COUNT {
        let middle = from + (until - from) / 2;
        if is_so(middle) {
            until = middle;
        } else {
            from = middle;
        }
    }
    until
}

/// A part of the channel table, so that look-ups of different channels seldom wait for each other.
type Shard = Mutex<HashMap<ChannelName, Arc<Channel>>>;

/// How many channels exist.
#[derive(Debug, Default)]
struct ChannelCounts {
    memory: usize,
    /// By the namespace's name; empty for those without one.
    by_namespace: HashMap<Box<str>, usize>,
}

/// How many idle channels one sweep may remove because there is no room for another channel.
struct Excess {
    memory: usize,
    by_namespace: HashMap<Box<str>, usize>,
}

impl Excess {
    fn of_memory(count: usize, limit: usize) -> Self {
        Self { memory: Self::of(count, limit), by_namespace: HashMap::new() }
    }

    fn of(count: usize, limit: usize) -> usize {
        if count < limit { 0 } else { count - limit + (limit / 16).max(1) }
    }

    /// Whether an idle channel of the namespace may be kept.
    fn has_room(&mut self, namespace: &str, options: &NamespaceOptions, counts: &Mutex<ChannelCounts>) -> bool {
        if !self.by_namespace.contains_key(namespace) {
            let count = lock(counts).by_namespace.get(namespace).copied().unwrap_or_default();
            self.by_namespace.insert(namespace.into(), Self::of(count, options.channel_count_max as usize));
        }
        self.by_namespace[namespace] == 0 && (options.durable || self.memory == 0)
    }

    fn count_out(&mut self, namespace: &str, options: &NamespaceOptions) {
        self.memory = self.memory.saturating_sub(usize::from(!options.durable));
        if let Some(left) = self.by_namespace.get_mut(namespace) {
            *left = left.saturating_sub(1);
        }
    }
}

/// Why a channel is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Creation {
    /// A reader or a publisher asks for it: there must be room.
    Asked,
    /// The journal or the home has accepted a publication into it: it is always created.
    Accepted,
}

/// Owner of all channels.
#[derive(Debug)]
pub struct Hub {
    config: HubConfig,
    shards: Box<[Shard]>,
    channel_counts: Mutex<ChannelCounts>,
    /// The number of the next channel. It begins at random, because SDKs remember numbers over a restart of the server.
    next_number: AtomicU64,
    /// The bits of the epoch of the next memory channel; see [`Hub::sweep`].
    memory_epoch: AtomicU64,
    /// The offset at which the next durable channel begins; see [`Hub::on_channel_forgotten`].
    durable_floor: AtomicU64,
    mailboxes: Box<[Arc<Mailbox>]>,
    fan_out: Arc<FanOut>,
    tails: Arc<TailUse>,
    /// Held by whoever drops frames because the tails have too many.
    dropping: Mutex<()>,
    receipts: Arc<Receipts>,
    changes: Option<Arc<Changes>>,
    localizer: Option<Arc<dyn Localizer>>,
    histories: Option<Arc<dyn Histories>>,
    cache: Option<Arc<Cache>>,
    cluster: Cluster,
}

impl Hub {
    /// A hub without channels, for `loop_count` edge loops.
    pub fn new(config: HubConfig, loop_count: usize) -> Self {
        let durable_floor = config.durable_start.offset.0;
        let fan_out = Arc::<FanOut>::default();
        Self {
            receipts: Arc::new(Receipts::new(config.receipt_event_count_max, config.receipt_bytes_max)),
            config,
            shards: (0..SHARD_COUNT).map(|_| Mutex::default()).collect(),
            channel_counts: Mutex::default(),
            next_number: AtomicU64::new(rand::random_range(1..1 << 31)),
            memory_epoch: AtomicU64::new(rand::random()),
            durable_floor: AtomicU64::new(durable_floor),
            mailboxes: (0..loop_count).map(|_| Arc::new(Mailbox::new(fan_out.clone()))).collect(),
            fan_out,
            tails: Arc::default(),
            dropping: Mutex::default(),
            changes: None,
            localizer: None,
            histories: None,
            cache: None,
            cluster: Cluster::default(),
        }
    }

    /// Tells `changes` who comes and goes. Call it before there are channels.
    #[must_use]
    pub fn with_changes(self, changes: Option<Arc<Changes>>) -> Self {
        Self { changes, ..self }
    }

    /// Writes the texts of events by `localizer`, in the channels that have them. Call it before there are channels.
    #[must_use]
    pub fn with_localizer(self, localizer: Arc<dyn Localizer>) -> Self {
        Self { localizer: Some(localizer), ..self }
    }

    /// What durable channels do not hold is read from `histories`, and what they hold takes about `bytes_max` together. Call it
    /// before there are channels. Without it they hold all that they keep.
    #[must_use]
    pub fn with_histories(self, histories: Arc<dyn Histories>, bytes_max: usize) -> Self {
        Self { histories: Some(histories), cache: Some(Cache::new(bytes_max)), ..self }
    }

    /// The language of readers with this locale, if there are texts in it.
    pub fn language(&self, locale: &Locale) -> Option<Language> {
        self.localizer.as_ref()?.language(locale)
    }

    /// Adds the texts to these publications of a channel, for a reader of this language.
    pub fn add_texts(&self, publications: &mut [Publication], language: Language) {
        let Some(localizer) = &self.localizer else { return };
        for publication in publications {
            if let Some(event) = &publication.texts {
                let text = localizer.texts(event, &[language]).pop().flatten();
                *publication = texts::with_text(publication, text.as_deref());
            }
        }
    }

    /// Who is told who comes and goes, if anybody.
    pub fn changes(&self) -> Option<&Arc<Changes>> {
        self.changes.as_ref()
    }

    /// The loops' ids and mailboxes, in order.
    pub fn loops(&self) -> impl Iterator<Item = (LoopId, Arc<Mailbox>)> {
        self.mailboxes.iter().enumerate().map(|(index, mailbox)| (LoopId(index), mailbox.clone()))
    }

    /// Whether the loops have made their turn over what is new.
    pub fn fan_out(&self) -> &Arc<FanOut> {
        &self.fan_out
    }

    /// The receipts of events.
    pub fn receipts(&self) -> &Arc<Receipts> {
        &self.receipts
    }

    /// The configured namespaces.
    pub fn namespaces(&self) -> &Namespaces {
        &self.config.namespaces
    }

    /// The options of a channel's namespace.
    ///
    /// # Errors
    /// [`HubError::UnknownNamespace`].
    pub fn options(&self, channel: &ChannelName) -> Result<&NamespaceOptions, HubError> {
        self.config.namespaces.options(channel).ok_or_else(|| HubError::UnknownNamespace(channel.clone()))
    }

    /// Publishes into a memory channel, or into any channel without keeping the publication. The position is `None` if
    /// nothing was written to the history. A publication that is neither kept nor read creates no channel.
    ///
    /// In a cluster this is called on the home, which tells the other nodes. A node that has just lost the lead may still
    /// be publishing. What it keeps then is a life of its own: the other nodes are not told, and the home's copy replaces
    /// it later.
    ///
    /// # Errors
    /// When the namespace is unknown or there is no room for a new channel.
    ///
    /// # Panics
    /// In debug builds, when the namespace is durable: publications that it keeps come from the journal.
    pub fn publish(
        &self,
        name: &ChannelName,
        new: NewPublication,
        now: Timestamp,
    ) -> Result<Option<StreamPosition>, HubError> {
        self.publish_newer(name, new, None, now)
    }

    /// Like [`Hub::publish`], but a publication that the channel keeps is swallowed if its version is not newer than
    /// that of an earlier one with the same version epoch. Then the channel's position is returned.
    ///
    /// # Errors
    /// Like those of [`Hub::publish`].
    ///
    /// # Panics
    /// Like [`Hub::publish`].
    pub fn publish_newer(
        &self,
        name: &ChannelName,
        new: NewPublication,
        version: Option<&Version>,
        now: Timestamp,
    ) -> Result<Option<StreamPosition>, HubError> {
        let options = self.options(name)?;
        debug_assert!(!options.durable || new.skip_history, "a durable channel is published through the journal");
        if (new.skip_history || !options.has_history()) && self.existing(name).is_none() {
            self.cluster.tell_published(name, None, None, &new.publication, now);
            return Ok(None);
        }
        self.with_channel(name, Creation::Asked, |channel| {
            let wake = |loop_id, channel| self.wake(loop_id, channel);
            channel.publish(new.clone(), version, &self.cluster, wake, now)
        })
    }

    /// Removes the publications that a channel keeps, up to `until` or all. Its position stays, so a reader that has
    /// everything resumes, and others are told of the gap.
    ///
    /// Memory channels: the other nodes of a cluster are told; on a node that is not the home this does nothing.
    pub fn remove_history(&self, name: &ChannelName, until: Option<Offset>) {
        if let Some(channel) = self.existing(name) {
            channel.remove_history(until, &self.cluster);
        }
    }

    /// The channels with subscribers whose names fit, with the numbers of their subscriptions.
    pub fn read_channels(&self, fits: impl Fn(&str) -> bool) -> Vec<(ChannelName, usize)> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            let named = shard.iter().filter(|(name, _)| fits(name.as_str()));
            let counted = named.map(|(name, channel)| (name.clone(), channel.subscriber_count()));
            found.extend(counted.filter(|(_, count)| *count > 0));
        }
        found
    }

    /// Publishes what the journal has accepted, at the journal's position. A publication that the channel already has
    /// changes nothing. If it asks for receipts, they are open when this returns. An event may have been accepted
    /// before its namespace stopped being durable: then the channel gives an offset of its own, and no receipts are
    /// collected. In a cluster the home does this, and the other nodes ignore the journal's publication.
    ///
    /// # Errors
    /// When the namespace is unknown or there is no room for a new channel.
    pub fn publish_durable(
        &self,
        name: &ChannelName,
        offset: Offset,
        publication: Publication,
        now: Timestamp,
    ) -> Result<(), HubError> {
        if !self.options(name)?.durable {
            if !self.cluster.is_home() {
                return Ok(());
            }
            let new = NewPublication { publication: Publication { receipt: None, ..publication }, skip_history: false };
            return self.publish(name, new, now).map(drop);
        }
        self.with_channel(name, Creation::Accepted, |channel| {
            channel.publish_at(
                offset,
                publication.clone(),
                &self.receipts,
                |loop_id, channel| self.wake(loop_id, channel),
                now,
            )
        })?;
        self.cache.iter().for_each(|cache| cache.make_room());
        Ok(())
    }

    /// A durable channel that the store has, with the offset of its last publication and that one's time, or a later one. A
    /// `top` of 0 means that there is none yet. Its publications are read when somebody asks for them; see [`Hub::load`].
    ///
    /// # Errors
    /// When the namespace is unknown.
    pub fn restore(&self, name: &ChannelName, top: Offset, at: Timestamp) -> Result<(), HubError> {
        self.with_channel(name, Creation::Accepted, |channel| channel.restore(top, at))
    }

    /// The store has forgotten a durable channel. Channels that are created from now on begin at `floor`, which is
    /// behind every offset of a forgotten channel. Until this returns, nothing may be published in the channel.
    pub fn on_channel_forgotten(&self, name: &ChannelName, floor: Offset) {
        self.durable_floor.fetch_max(floor.0, Ordering::Relaxed); // The shard's lock makes it visible.
        // If the namespace is no longer durable, the store may still have a channel of this name. That is not the
        // memory channel of this name.
        if let Some(channel) = self.existing(name).filter(|channel| channel.options().durable) {
            channel.on_forgotten();
        }
    }

    /// Adds a reader on an edge loop and, with `resume`, reads what it has missed, in one step. Nobody is told that the
    /// reader has joined before [`Hub::announce_join`].
    ///
    /// # Errors
    /// When the namespace is unknown, there is no room for a new channel, or the reader cannot resume and must.
    pub fn subscribe(
        &self,
        name: &ChannelName,
        member: &Member,
        resume: Option<&ResumeFrom>,
    ) -> Result<Subscribed, HubError> {
        let subscribed =
            self.with_channel(name, Creation::Asked, |channel| channel.subscribe(member, resume, &self.receipts))?;
        if subscribed.is_err()
            && let Some(channel) = self.existing(name)
        {
            self.remove_if_unused(&channel); // It may have been created for this reader.
        }
        Ok(subscribed?)
    }

    /// Whether a reader has got more of the channel's current life than this hub has: from another node of a cluster, which
    /// is a moment ahead.
    pub fn is_behind(&self, name: &ChannelName, offset: Offset, epoch: &str) -> bool {
        let top = match (self.existing(name), self.options(name)) {
            (Some(channel), _) => channel.top(),
            (None, Ok(options)) => self.start(options),
            (None, Err(_)) => return false,
        };
        top.offset < offset && top.epoch.as_str() == epoch
    }

    /// Tells those who want to know it that the subscriber has joined, and that it leaves when it does.
    pub fn announce_join(&self, channel: &Arc<Channel>, client: ClientId) {
        channel.announce_join(client, &self.cluster, |loop_id, channel| self.wake(loop_id, channel));
        self.bound_tails();
    }

    /// Removes a subscriber; `device` is that of its subscription, unless it was disowned. A channel without readers
    /// and publications is removed.
    pub fn unsubscribe(
        &self,
        channel: &Arc<Channel>,
        loop_id: LoopId,
        client: ClientId,
        device: Option<DeviceNumber>,
        form: impl Into<PushForm>,
    ) {
        let wake = |loop_id, channel| self.wake(loop_id, channel);
        if channel.unsubscribe(loop_id, client, device, form.into(), &self.cluster, wake) {
            self.remove_if_unused(channel);
        }
        self.bound_tails();
    }

    fn remove_if_unused(&self, channel: &Arc<Channel>) {
        let mut shard = lock(self.shard(channel.name()));
        let is_there = shard.get(channel.name()).is_some_and(|known| Arc::ptr_eq(known, channel));
        if is_there && channel.sweep_if_unused() {
            shard.remove(channel.name());
            self.count_out(channel);
        }
    }

    /// Whether a publication would be the first one that the channel keeps. Then the channel is kept as well.
    ///
    /// # Errors
    /// When the namespace is unknown or there is no room for a new channel.
    pub fn is_first(&self, name: &ChannelName) -> Result<bool, HubError> {
        let options = self.options(name)?;
        if !options.has_history() {
            return Ok(false);
        }
        match self.existing(name) {
            Some(channel) => Ok(channel.is_new()),
            None => self.check_room(name, options, &lock(&self.channel_counts)).map(|()| true),
        }
    }

    /// A page of a channel's history, and the channel's position.
    ///
    /// # Errors
    /// When the namespace is unknown.
    pub fn history(
        &self,
        name: &ChannelName,
        filter: HistoryFilter,
    ) -> Result<(Vec<Publication>, StreamPosition), HubError> {
        let options = self.options(name)?;
        match self.existing(name) {
            Some(channel) => Ok(channel.history(filter)),
            None => Ok((Vec::new(), self.start(options))),
        }
    }

    /// The members of the channel, by client id.
    pub fn presence(&self, name: &ChannelName) -> Vec<ClientInfo> {
        self.presence_within(name, usize::MAX).expect("nothing is heavier")
    }

    /// The members of the channel; `None` if they take more than `bytes_max` in an answer. This is known without
    /// looking at each.
    pub fn presence_within(&self, name: &ChannelName, bytes_max: usize) -> Option<Vec<ClientInfo>> {
        self.existing(name).map_or(Some(Vec::new()), |channel| channel.presence_within(bytes_max))
    }

    /// How many connections and how many different users are in the channel.
    pub fn presence_stats(&self, name: &ChannelName) -> (u64, u64) {
        self.existing(name).map(|channel| channel.presence_stats()).unwrap_or_default()
    }

    /// How many subscriptions a channel has, over all loops.
    pub fn subscriber_count(&self, name: &ChannelName) -> usize {
        self.existing(name).map_or(0, |channel| channel.subscriber_count())
    }

    /// Drops histories and receipts whose time is over, the publications of durable channels that nobody reads, and channels
    /// that hold nothing any more. If there is no room for another channel, it also drops idle channels whose position a reader may still ask for: a sixteenth of the
    /// limit, so that new channels find room until the next call. Called about once a second.
    ///
    /// A memory channel that is created again begins at offset 0. If its first life had publications, its second life
    /// must have another epoch. Otherwise a reader of the first life would get publications of the second life as if it
    /// had missed them. So removing such a channel gives all new channels a new epoch. A channel without publications
    /// is the same in each life, and a reader that comes back to it resumes.
    ///
    /// In a cluster the home tells the other nodes what it has dropped. Their sweeps drop no publication and no position
    /// of a memory channel, so their clocks do not matter.
    pub fn sweep(&self, now: Timestamp) {
        self.receipts.sweep(now);
        let mut excess = Excess::of_memory(lock(&self.channel_counts).memory, self.config.channel_count_max);
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.retain(|name, channel| {
                let (namespace, options) = (Namespaces::namespace_of(name), channel.options());
                let has_room = excess.has_room(namespace, options, &self.channel_counts);
                let swept = channel.expire(&self.receipts, &self.cluster, now, has_room);
                if swept {
                    excess.count_out(namespace, options);
                    if !options.durable && !channel.is_new() {
                        self.begin_memory_epoch(); // The shard's lock makes it visible.
                        self.cluster.tell(|| News::Forgotten { channel: name.clone() });
                    }
                    self.count_out(channel);
                }
                !swept
            });
            if shard.capacity() > 4 * shard.len().max(64) {
                shard.shrink_to_fit(); // Frees the memory after a burst of channels.
            }
        }
    }

    /// The current number of channels and subscriptions.
    pub fn counts(&self) -> HubCounts {
        let mut counts = HubCounts::default();
        for shard in &self.shards {
            let shard = lock(shard);
            counts.channels += shard.len();
            counts.subscriptions += shard.values().map(|channel| channel.subscriber_count()).sum::<usize>();
        }
        counts
    }

    /// The bytes of the publications that memory channels keep.
    pub fn history_bytes(&self) -> usize {
        let of_shard = |shard: &Shard| {
            let shard = lock(shard);
            let in_memory = shard.values().filter(|channel| !channel.options().durable);
            in_memory.map(|channel| channel.history_bytes()).sum::<usize>()
        };
        self.shards.iter().map(of_shard).sum()
    }

    fn existing(&self, name: &ChannelName) -> Option<Arc<Channel>> {
        lock(self.shard(name)).get(name).cloned()
    }

    /// Runs `act` on the channel, and creates the channel if necessary. If the channel was swept between look-up and
    /// lock, it is looked up again.
    fn with_channel<T>(
        &self,
        name: &ChannelName,
        creation: Creation,
        act: impl Fn(&Arc<Channel>) -> Acted<T>,
    ) -> Result<T, HubError> {
        loop {
            let channel = self.channel(name, creation)?;
            if let Acted::Done(value) = act(&channel) {
                self.bound_tails();
                return Ok(value);
            }
        }
    }

    /// Bytes that all tails hold.
    pub fn tail_bytes(&self) -> usize {
        self.tails.bytes()
    }

    /// Drops the oldest frames of all channels if the tails hold too many bytes: those are what the slowest readers still
    /// need. Frees a quarter, so that not every further publication has to search. Whoever publishes meanwhile waits. Must not be
    /// called with a channel or a shard locked.
    fn bound_tails(&self) {
        let bytes_max = self.config.tails_bytes_max;
        if self.tails.bytes() <= bytes_max {
            return;
        }
        let _one = lock(&self.dropping);
        if self.tails.bytes() <= bytes_max {
            return;
        }
        let (mut channels, mut oldest, mut newest) = (Vec::new(), u64::MAX, 0);
        for shard in &self.shards {
            for channel in lock(shard).values() {
                if let Some((first, last)) = channel.frame_times() {
                    channels.push(channel.clone());
                    (oldest, newest) = (oldest.min(first), newest.max(last));
                }
            }
        }
        // The newest frame of each channel is dropped only if the others are not enough, and the newest of all never.
        for kept in [1, 0] {
            let surplus = self.tails.bytes().saturating_sub(bytes_max / 4 * 3);
            if surplus == 0 || channels.is_empty() {
                break;
            }
            let before = |time| channels.iter().map(|channel| channel.bytes_before(time, kept)).sum::<usize>();
            let time = earliest(oldest, newest, |time| before(time) >= surplus);
            channels.iter().for_each(|channel| channel.drop_before(time, kept));
        }
    }

    /// Tells the loop that the channel has something new.
    fn wake(&self, loop_id: LoopId, channel: Arc<Channel>) {
        self.mailboxes[loop_id.0].put(channel);
    }

    fn channel(&self, name: &ChannelName, creation: Creation) -> Result<Arc<Channel>, HubError> {
        let mut shard = lock(self.shard(name));
        if let Some(channel) = shard.get(name) {
            return Ok(channel.clone());
        }
        let options = self.options(name)?;
        let mut counts = lock(&self.channel_counts);
        if creation == Creation::Asked {
            self.check_room(name, options, &counts)?;
        }
        counts.memory += usize::from(!options.durable);
        *counts.by_namespace.entry(Namespaces::namespace_of(name).into()).or_default() += 1;
        drop(counts);
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let changes = self.changes.clone().filter(|_| options.occupancy_webhook);
        let localizer = self.localizer.clone().filter(|_| options.event_texts);
        let (start, tail) = (self.start(options), Tail::new(self.config.tail, self.tails.clone()));
        let key = self.config.namespaces.key_of(name).cloned();
        let cache = self.cache.clone().filter(|_| options.durable);
        let channel = Channel::new(name.clone(), number, *options, start, tail, changes, localizer);
        let channel = Arc::new(channel.with_key(key).with_cache(cache));
        shard.insert(name.clone(), channel.clone());
        Ok(channel)
    }

    fn check_room(
        &self,
        name: &ChannelName,
        options: &NamespaceOptions,
        counts: &ChannelCounts,
    ) -> Result<(), HubError> {
        match self.limit_reached(name, options, counts) {
            None => Ok(()),
            Some((limit, setting)) => Err(HubError::ChannelLimit { channel: name.clone(), limit, setting }),
        }
    }

    /// The limit that allows no further channel in the namespace, with its setting.
    fn limit_reached(
        &self,
        name: &ChannelName,
        options: &NamespaceOptions,
        counts: &ChannelCounts,
    ) -> Option<(usize, &'static str)> {
        let in_namespace = counts.by_namespace.get(Namespaces::namespace_of(name)).copied().unwrap_or_default();
        // Copies are of no use to make room: only the home removes them.
        let factor = if options.durable || self.cluster.is_home() { 1 } else { 2 };
        let memory_max = self.config.channel_count_max.saturating_mul(factor);
        let namespace_max = (options.channel_count_max as usize).saturating_mul(factor);
        if !options.durable && counts.memory >= memory_max {
            return Some((memory_max, "channels.count_max"));
        }
        (in_namespace >= namespace_max).then_some((namespace_max, "the namespace's channel_count_max"))
    }

    /// Counts a removed channel; its shard is locked.
    fn count_out(&self, channel: &Channel) {
        let mut counts = lock(&self.channel_counts);
        counts.memory -= usize::from(!channel.options().durable);
        if let Some(count) = counts.by_namespace.get_mut(Namespaces::namespace_of(channel.name())) {
            *count -= 1;
        }
    }

    /// The start of a channel that is created now.
    fn start(&self, options: &NamespaceOptions) -> StreamPosition {
        if options.durable {
            let offset = Offset(self.durable_floor.load(Ordering::Relaxed));
            return StreamPosition { offset, ..self.config.durable_start };
        }
        self.memory_start()
    }

    /// The start of a memory channel that is created now.
    fn memory_start(&self) -> StreamPosition {
        StreamPosition { offset: Offset(0), epoch: Epoch::from_random(self.memory_epoch.load(Ordering::Relaxed)) }
    }

    fn shard(&self, name: &ChannelName) -> &Shard {
        use std::hash::{BuildHasher, RandomState};
        static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        &self.shards[HASHER.hash_one(name) as usize % SHARD_COUNT]
    }
}
