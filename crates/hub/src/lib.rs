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
//!   namespace but are never refused. A channel without any publication exists only while it has a reader. A memory channel
//!   whose history is over and that nobody reads is *idle*: it has only its position, for `history_meta_ttl` of its namespace. Where
//!   there is no room, an idle one goes earlier for each new one: that of the namespace with the most channels which has been idle
//!   for longest. History is bounded by each namespace, the tail by
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
//! then one of the roster, a mailbox, the changes, the channels that hold publications, the receipts or what the [`Relay`]
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
mod roster;
mod sum;
mod table;
mod texts;
mod version;
mod wishes;

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tidings_protocol::{ClientId, ClientInfo, NamespaceOptions, Namespaces, Publication};
use tidings_stream::{Gap, HistoryFilter, Tail, TailBounds, TailUse};
use tidings_telemetry::panics::lock;
use tidings_types::{ChannelName, DeviceNumber, Epoch, Language, Locale, Offset, PushForm, StreamPosition, Timestamp};

use cache::Cache;
pub use cache::{Kept, Wanted};
pub use changes::{Batch, Change, Changes, ChangesConfig, Key};
use channel::Acted;
pub use channel::readers::LoopId;
pub use channel::thin::{Behind, Thinned};
pub use channel::{Channel, Member, NewPublication, Recovery, ResumeFrom, Subscribed};
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
use roster::{Admission, Full, Roster};
use table::{SHARD_COUNT, Table};
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
    /// Bytes of the histories of all memory channels together. Above that, the largest histories lose what is in them.
    pub history_bytes_max: usize,
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
    /// Channels that exist: with a subscriber, a history or a position.
    pub channels: usize,
    /// Subscriptions of live connections.
    pub subscriptions: usize,
}

/// At most so many channels are looked at by one call of [`Hub::sweep`].
pub const LOOK_COUNT_MAX: usize = 4096;
/// At most so many histories lose publications at a time.
const CUT_COUNT_MAX: usize = 4096;
/// At most so many are looked at before it is tried again whether there is room for another one.
const ROOM_LOOK_COUNT_MAX: usize = 64;

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

/// Why a channel is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Creation {
    /// A reader or a publisher asks for it, at this time: there must be room.
    Asked(Timestamp),
    /// The journal or the home has accepted a publication into it: it is always created.
    Accepted,
}

/// Owner of all channels.
#[derive(Debug)]
pub struct Hub {
    config: HubConfig,
    table: Table,
    roster: Arc<Roster>,
    /// The time of the last sweep.
    swept_at: AtomicU64,
    /// The number of the next channel. It begins at random, because SDKs remember numbers over a restart of the server.
    next_number: AtomicU64,
    /// The bits of the epoch of the next memory channel. They begin at random, and go up; see [`Hub::sweep`].
    memory_epoch: AtomicU64,
    /// The offset at which the next durable channel begins; see [`Hub::on_channel_forgotten`].
    durable_floor: AtomicU64,
    mailboxes: Box<[Arc<Mailbox>]>,
    fan_out: Arc<FanOut>,
    tails: Arc<TailUse>,
    /// Held by whoever drops frames because the tails have too many, or publications because the histories have.
    dropping: Mutex<()>,
    /// Histories of memory channels that lost publications because all of them had too many bytes.
    histories_cut: AtomicU64,
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
        let (fan_out, roster) = (Arc::<FanOut>::default(), Arc::<Roster>::default());
        Self {
            receipts: Arc::new(Receipts::new(config.receipt_event_count_max, config.receipt_bytes_max)),
            config,
            table: Table::new(roster.clone()),
            roster,
            swept_at: AtomicU64::new(0),
            next_number: AtomicU64::new(rand::random_range(1..1 << 31)),
            memory_epoch: AtomicU64::new(rand::random()),
            durable_floor: AtomicU64::new(durable_floor),
            mailboxes: (0..loop_count).map(|_| Arc::new(Mailbox::new(fan_out.clone()))).collect(),
            fan_out,
            tails: Arc::default(),
            dropping: Mutex::default(),
            histories_cut: AtomicU64::new(0),
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
        self.with_channel(name, Creation::Asked(now), |channel| {
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
        for shard in self.table.shards() {
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
        let creation = Creation::Asked(self.swept_at());
        let subscribed =
            self.with_channel(name, creation, |channel| channel.subscribe(member, resume, &self.receipts))?;
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
        let is_swept = |known: &Channel| known.number() == channel.number() && known.sweep_if_unused();
        self.table.shard(channel.name()).remove_if(channel.name(), is_swept);
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
        if let Some(channel) = self.existing(name) {
            return Ok(channel.is_new());
        }
        let admission = self.admission(options, Creation::Asked(self.swept_at()));
        while let Err(full) = self.roster.check(name, &admission) {
            let can_remove = self.can_remove(options);
            if can_remove && self.look_at_due(self.swept_at(), ROOM_LOOK_COUNT_MAX) > 0 {
                continue;
            }
            if can_remove && self.roster.idlest(full, name).is_some() {
                break;
            }
            return Err(limit_error(name, full, &admission));
        }
        Ok(true)
    }

    /// If the channel would be a new one where room is scarce: how much of the last quarter is left, in quarters, rounded up.
    /// `None`: it is there, or less than three quarters are taken, or an idle channel could make room.
    pub fn last_room(&self, name: &ChannelName) -> Option<f64> {
        let options = self.options(name).ok()?;
        if self.existing(name).is_some() {
            return None;
        }
        let admission = self.admission(options, Creation::Asked(self.swept_at()));
        let full_at = |sixteenths: usize| {
            let part = |max: usize| max.saturating_mul(sixteenths) / 16;
            let (memory_max, namespace_max) = (part(admission.memory_max), part(admission.namespace_max));
            self.roster.check(name, &Admission { memory_max, namespace_max, ..admission }).err()
        };
        let full = full_at(12)?;
        if self.can_remove(options) && self.roster.idlest(full, name).is_some() {
            return None;
        }
        let taken = (13..16).take_while(|sixteenths| full_at(*sixteenths).is_some()).last().unwrap_or(12);
        Some((16 - taken) as f64 / 4.0)
    }

    /// The channel, if it is [crowded](Channel::is_crowded).
    pub fn crowded(&self, name: &ChannelName) -> Option<Arc<Channel>> {
        self.existing(name).filter(|channel| channel.is_crowded())
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
    /// that hold nothing any more, or only a position whose time is over ([`NamespaceOptions::history_meta_ttl`]). Called about
    /// once a second.
    ///
    /// Returns how many channels it has looked at. Those are the ones that are due, however many there are. With
    /// [`LOOK_COUNT_MAX`] there may be more of them: call it again, after others had their turn.
    ///
    /// A memory channel that is created again begins at offset 0. If its first life had publications, its second life
    /// must have another epoch. Otherwise a reader of the first life would get publications of the second life as if it
    /// had missed them. So removing such a channel gives all new channels a new epoch, which none had before: its bits go up. A
    /// channel without publications is the same in each life, and a reader that comes back to it resumes.
    ///
    /// In a cluster the home tells the other nodes what it has dropped. Their sweeps drop no publication and no position
    /// of a memory channel, so their clocks do not matter.
    pub fn sweep(&self, now: Timestamp) -> usize {
        self.receipts.sweep(now);
        self.swept_at.store(now.0, Ordering::Relaxed);
        self.look_at_due(now, LOOK_COUNT_MAX)
    }

    fn swept_at(&self) -> Timestamp {
        Timestamp(self.swept_at.load(Ordering::Relaxed))
    }

    /// Returns how many channels it has looked at. No shard and no channel may be locked.
    fn look_at_due(&self, now: Timestamp, count_max: usize) -> usize {
        let due = self.roster.due(now, count_max);
        due.iter().for_each(|name| self.look_at(name, now, true));
        due.len()
    }

    /// Drops what is over of a channel; also its position, unless it `has_room`.
    fn look_at(&self, name: &ChannelName, now: Timestamp, has_room: bool) {
        let mut shard = self.table.shard(name);
        let removed = shard.remove_if(name, |channel| channel.expire(&self.receipts, &self.cluster, now, has_room));
        if removed.is_some_and(|channel| !channel.options().durable && !channel.is_new()) {
            self.begin_memory_epoch(); // The shard's lock makes it visible.
            self.cluster.tell(|| News::Forgotten { channel: name.clone() });
        }
    }

    /// Whether channels of these options may be removed to make room. Only the home removes what was published, and only the
    /// store forgets a durable channel.
    fn can_remove(&self, options: &NamespaceOptions) -> bool {
        !options.durable && self.cluster.is_home()
    }

    /// Removes channels whose time is over, else an idle one. Returns whether it is worth to try again. Each channel is looked at
    /// at most once until time goes on.
    fn make_room(&self, name: &ChannelName, full: Full, now: Timestamp) -> bool {
        if self.look_at_due(now, ROOM_LOOK_COUNT_MAX) > 0 {
            return true;
        }
        let idlest = self.roster.idlest(full, name);
        idlest.iter().for_each(|idlest| self.look_at(idlest, now, false));
        idlest.is_some()
    }

    /// The current number of channels and subscriptions.
    pub fn counts(&self) -> HubCounts {
        HubCounts { channels: self.roster.count(), subscriptions: self.roster.subscriptions.get() }
    }

    /// The bytes of the publications that memory channels keep.
    pub fn history_bytes(&self) -> usize {
        self.roster.history_bytes.get()
    }

    fn existing(&self, name: &ChannelName) -> Option<Arc<Channel>> {
        self.table.get(name)
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
                self.bound_histories();
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
        for shard in self.table.shards() {
            for channel in shard.values() {
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

    /// Removes publications that memory channels keep if all of them have too many bytes: first from the largest histories,
    /// because whoever keeps much pays first, and of histories of about one size from the one in which nobody has published for
    /// longest. Frees a quarter, so that not every further publication has to search. The newest publication of a channel goes
    /// only if the others are not enough. Must not be called with a channel or a shard locked.
    ///
    /// On a node that is not the home this does nothing: its copies become smaller when the home's channels do.
    fn bound_histories(&self) {
        let bytes_max = self.config.history_bytes_max;
        if self.history_bytes() <= bytes_max || !self.cluster.is_home() {
            return;
        }
        let _one = lock(&self.dropping);
        if self.history_bytes() <= bytes_max {
            return;
        }
        for keeps_newest in [true, false] {
            let channels = (0..SHARD_COUNT).flat_map(|index| self.table.memory_channels(index));
            let use_of = |channel: Arc<Channel>| Some((channel.history_use(keeps_newest)?, channel));
            let mut kept: Vec<_> = channels.filter_map(use_of).collect();
            kept.sort_by_key(|((bytes, published_at), _)| (Reverse(bytes.checked_ilog2()), *published_at));
            // Each cut is told to the other nodes, whose queue has an end. The next publication goes on.
            let is_all = kept.len() <= CUT_COUNT_MAX;
            for (_, channel) in kept.into_iter().take(CUT_COUNT_MAX) {
                if self.history_bytes() <= bytes_max / 4 * 3 {
                    return;
                }
                if channel.cut_history(keeps_newest, &self.cluster) {
                    self.histories_cut.fetch_add(1, Ordering::Relaxed);
                }
            }
            if !is_all {
                return;
            }
        }
    }

    /// How often the history of a memory channel lost publications to [`HubConfig::history_bytes_max`].
    pub fn histories_cut(&self) -> u64 {
        self.histories_cut.load(Ordering::Relaxed)
    }

    /// Tells the loop that the channel has something new.
    fn wake(&self, loop_id: LoopId, channel: Arc<Channel>) {
        self.mailboxes[loop_id.0].put(channel);
    }

    /// The channel, which is created if it is not there. If there is no room, others go.
    fn channel(&self, name: &ChannelName, creation: Creation) -> Result<Arc<Channel>, HubError> {
        loop {
            let mut shard = self.table.shard(name);
            if let Some(channel) = shard.get(name) {
                return Ok(channel);
            }
            let options = self.options(name)?;
            let admission = self.admission(options, creation);
            let full = match shard.insert(name, &admission, || self.new_channel(name, options)) {
                Ok(channel) => return Ok(channel),
                Err(full) => full,
            };
            drop(shard);
            match creation {
                Creation::Asked(now) if self.can_remove(options) && self.make_room(name, full, now) => {}
                _ => return Err(limit_error(name, full, &admission)),
            }
        }
    }

    fn new_channel(&self, name: &ChannelName, options: &NamespaceOptions) -> Channel {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let (start, tail) = (self.start(options), Tail::new(self.config.tail, self.tails.clone()));
        Channel::new(name.clone(), number, *options, start, tail, self.roster.clone())
            .with_changes(self.changes.clone().filter(|_| options.occupancy_webhook))
            .with_localizer(self.localizer.clone().filter(|_| options.event_texts))
            .with_key(self.config.namespaces.key_of(name).cloned())
            .with_cache(self.cache.clone().filter(|_| options.durable))
    }

    /// What a channel needs to be created.
    fn admission(&self, options: &NamespaceOptions, creation: Creation) -> Admission {
        let (is_durable, position_ttl) = (options.durable, self.cluster.position_ttl(options));
        // Copies are of no use to make room: only the home removes them.
        let factor = match creation {
            Creation::Accepted => usize::MAX,
            Creation::Asked(_) if is_durable || self.cluster.is_home() => 1,
            Creation::Asked(_) => 2,
        };
        let memory_max = self.config.channel_count_max.saturating_mul(factor);
        let namespace_max = (options.channel_count_max as usize).saturating_mul(factor);
        Admission { is_durable, memory_max, namespace_max, position_ttl }
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
}

fn limit_error(name: &ChannelName, full: Full, admission: &Admission) -> HubError {
    let (limit, setting) = match full {
        Full::Memory => (admission.memory_max, "channels.count_max"),
        Full::Namespace => (admission.namespace_max, "the namespace's channel_count_max"),
    };
    HubError::ChannelLimit { channel: name.clone(), limit, setting }
}
