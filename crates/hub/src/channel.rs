//! One channel and its lock.
//!
//! Each loop that has subscribers of this channel has one entry in `Readers`: the number of subscribers and the position of
//! the slowest one. An entry is *dirty* while the channel waits in the loop's mailbox. Publishing wakes a loop only
//! when its entry becomes dirty.
//!
//! The channel counts its subscribers by form: transport, format, with deltas or without, whether they know the channel
//! by its number, and the language of the texts of events. A publication is encoded once for each form that has a subscriber, in the publisher's thread
//! and under the lock. So every frame that a subscriber reads has its form: the subscriber was counted, under this
//! lock, before the frame was made. A delta is made once, against the publication of the last frame.
//!
//! The channel also knows which proven devices read it, so an event that is published here knows from the start which
//! devices may answer. And it knows which of its publications still collect receipts, so a reader that resumes can give
//! one.
//!
//! Members that ask for it are told when others join and leave. What the others are told about a member is fixed when
//! the member joins ([`JoinLeave`]).

mod copies;
mod counted;
mod older;
pub(crate) mod readers;
mod sources;
#[cfg(test)]
mod tests;
pub(crate) mod thin;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use roaring::RoaringBitmap;
use tidings_protocol::{
    ChannelRef, ClientId, ClientInfo, DataForm, NamespaceOptions, Publication, PublicationKey, Push, RecoveryMode,
    TagsFilter, encode_push, fossil, frame,
};
use tidings_stream::{Bounds, Encoded, Frame, FrameKind, Gap, History, HistoryFilter, Lagged, Retention, Tail};
use tidings_telemetry::panics::lock;
use tidings_types::{
    ChannelName, DeviceNumber, Epoch, JournalPosition, Json, Language, Offset, PushForm, ReceiptRequest,
    StreamPosition, Timestamp,
};
use tokio::sync::watch;

use self::counted::Counted;
use self::readers::{LoopId, Readers};
use self::sources::Sources;
use crate::budget::Charge;
use crate::cache::Cache;
use crate::changes::Changes;
use crate::clock::process_micros;
use crate::presence::Presence;
use crate::receipts::{EventReceipts, Receipts};
use crate::relay::{Cluster, News};
use crate::roster::{Place, Roster};
use crate::sum::Share;
use crate::texts::{LiveText, Localizer, with_text};
use crate::version::Version;
use crate::wishes::Wishes;

/// What is to be published.
#[derive(Debug, Clone)]
pub struct NewPublication {
    /// The publication; the channel sets its offset.
    pub publication: Publication,
    /// Deliver it to the current readers only: no history, no offset.
    pub skip_history: bool,
}

/// A subscriber as the channel sees it.
#[derive(Debug, Clone)]
pub struct Member {
    /// The loop that owns its connection.
    pub loop_id: LoopId,
    /// Its connection.
    pub client: ClientId,
    /// Who appears in the channel's presence, if anybody.
    pub presence: Option<ClientInfo>,
    /// The device that the connection has proven to be, if it answers pings.
    pub device: Option<DeviceNumber>,
    /// What its pushes look like.
    pub form: PushForm,
    /// What it wants.
    pub wishes: Wishes,
    /// What the others are told when it joins and leaves; `None`: nothing.
    pub announced: Option<ClientInfo>,
}

impl Member {
    /// A reader that wants all publications; it has no device, and nobody is told that it is here.
    pub fn reader(loop_id: LoopId, client: ClientId, form: impl Into<PushForm>) -> Self {
        let (form, wishes) = (form.into(), Wishes::default());
        Self { loop_id, client, presence: None, device: None, form, wishes, announced: None }
    }

    fn join_leave(&self) -> Option<JoinLeave> {
        let (is_told, announced) = (self.wishes.joins, self.announced.clone());
        (is_told || announced.is_some()).then_some(JoinLeave { is_told, announced, has_joined: false })
    }
}

/// From where a reader wants to resume.
#[derive(Debug, Clone)]
pub struct ResumeFrom {
    /// The last publication that the reader has.
    pub offset: Offset,
    /// The epoch of that offset; `None` if the reader knows none.
    pub epoch: Option<String>,
    /// If the reader missed more than this, it gets a gap.
    pub limit: Bounds,
    /// With a gap the reader does not want to subscribe at all.
    pub is_required: bool,
}

/// The result of a resume.
#[derive(Debug, Clone)]
pub enum Recovery {
    /// Everything missed, in order; in the recovery mode `Cache` at most the latest publication.
    Recovered(Vec<Publication>),
    /// The missed publications are not available; the reader starts anew from the top.
    Gap(Gap),
}

/// A new reader's start.
#[derive(Debug)]
pub struct Subscribed {
    /// The channel. The reader must [unsubscribe](crate::Hub::unsubscribe) from it.
    pub channel: Arc<Channel>,
    /// Index of the first tail frame for the reader.
    pub next: u64,
    /// There was no other reader on this server.
    pub is_first: bool,
    /// The channel's position at that moment.
    pub top: StreamPosition,
    /// The result of the resume, if the reader asked for one.
    pub recovery: Option<Recovery>,
    /// The publication whose difference to the next one may be told, if it is in the history.
    pub delta_base: Option<Offset>,
    /// For a reader that resumes: the publications of this channel that still collect receipts, in order.
    pub receipts: Vec<(Offset, Arc<EventReceipts>)>,
}

#[derive(Debug)]
struct State {
    history: Counted,
    /// Only of a durable channel: the store may keep publications before those of the history, but none up to this offset.
    older: Option<Offset>,
    /// What the history takes of the cache's budget.
    charge: Option<Charge>,
    /// Ends when the publications have been read that somebody reads from the store now.
    loading: Option<watch::Receiver<()>>,
    /// When a publication came, or somebody asked for one; see [`process_micros`].
    used_at: u64,
    tail: Tail,
    readers: Readers,
    forms: FormCounts,
    /// The subscribers that want to know who joins and leaves.
    told_forms: FormCounts,
    /// While somebody gets deltas: the publication of the last frame, and its offset (0 if it is not in the history).
    previous: Option<(Offset, Json)>,
    /// The publications of the tail, for readers that get less than everything.
    sources: Sources,
    presence: Presence,
    join_leaves: HashMap<ClientId, JoinLeave>,
    /// The devices of the members without a filter.
    devices: DeviceCounts,
    /// The devices of the members with a filter.
    filtered: HashMap<ClientId, (DeviceNumber, Arc<TagsFilter>)>,
    /// Publications that may still collect receipts, in order. Bound: the events of [`Receipts`], and those that were
    /// removed from it in the last second.
    open: VecDeque<(Offset, JournalPosition)>,
    /// Nothing with an offset was published yet, or the store has forgotten the channel since.
    is_new: bool,
    /// Only while it is new: its readers may have missed a life of it, under the epoch that they know, of which this node was
    /// not told. They start anew when somebody publishes.
    is_unsure: bool,
    /// The version of the newest publication that has one.
    version: Option<Version>,
    /// The last round in which the home told of the channel; see [`Hub::begin_round`](crate::Hub::begin_round). 0: it is
    /// not known to be a copy of the home's channel.
    round: u64,
    /// Where it stands in the roster.
    place: Place,
    /// Since when it has no reader, and nobody has asked for its publications.
    unread_since: Option<Timestamp>,
    /// Removed from the table: a caller that still holds the channel must look it up again.
    swept: bool,
}

/// How many subscribers there are of each form.
///
/// Invariant: only forms that have some, each once.
#[derive(Debug, Default)]
struct FormCounts(Vec<(PushForm, usize)>);

impl FormCounts {
    fn enter(&mut self, form: PushForm) {
        match self.0.iter_mut().find(|(known, _)| *known == form) {
            Some((_, count)) => *count += 1,
            None => self.0.push((form, 1)),
        }
    }

    fn leave(&mut self, form: PushForm) {
        let Some(index) = self.0.iter().position(|(known, _)| *known == form) else {
            debug_assert!(false, "a subscriber leaves with the form it came with");
            return;
        };
        self.0[index].1 -= 1;
        if self.0[index].1 == 0 {
            self.0.swap_remove(index);
        }
    }

    fn have_deltas(&self) -> bool {
        self.0.iter().any(|(form, _)| form.has_deltas)
    }

    /// The languages of the subscribers, each once.
    fn languages(&self) -> Vec<Language> {
        let languages: BTreeSet<Language> = self.0.iter().filter_map(|(form, _)| form.language).collect();
        languages.into_iter().collect()
    }
}

/// What a member is told about joins and leaves, and what others are told about the member.
#[derive(Debug)]
struct JoinLeave {
    /// The member is told when others join and leave.
    is_told: bool,
    /// What others are told when the member joins and leaves; `None`: nothing.
    announced: Option<ClientInfo>,
    /// Others have been told that it has joined.
    has_joined: bool,
}

/// Proven devices, each with the number of its connections here.
///
/// Invariant: `more` holds only devices of `set`, with their connections beyond the first.
#[derive(Debug, Default)]
struct DeviceCounts {
    set: RoaringBitmap,
    more: HashMap<u32, u32>,
}

impl DeviceCounts {
    fn enter(&mut self, device: DeviceNumber) {
        if !self.set.insert(device.0) {
            *self.more.entry(device.0).or_insert(0) += 1;
        }
    }

    fn leave(&mut self, device: DeviceNumber) {
        match self.more.get_mut(&device.0) {
            Some(1) => drop(self.more.remove(&device.0)),
            Some(count) => *count -= 1,
            None => {
                let was_in = self.set.remove(device.0);
                debug_assert!(was_in, "a device leaves as often as it came");
            }
        }
    }
}

/// The time between two looks at a channel of which it is not known when it will change.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How long a channel holds its publications that has no readers, and for which nobody asks.
const UNREAD_TIME: Duration = Duration::from_secs(60);

/// A named, ordered stream of publications, with its readers.
#[derive(Debug)]
pub struct Channel {
    name: ChannelName,
    /// Its number in the pushes of subscribers that know it by number.
    number: u64,
    options: NamespaceOptions,
    roster: Arc<Roster>,
    /// Who is told when the first reader comes and the last one leaves, if anybody.
    changes: Option<Arc<Changes>>,
    /// Writes the texts of events, if the channel has them.
    localizer: Option<Arc<dyn Localizer>>,
    /// Where publications tell what they are about.
    key: Option<Arc<PublicationKey>>,
    /// Only if it is durable and the store has its publications, too.
    cache: Option<Arc<Cache>>,
    state: Mutex<State>,
}

impl Channel {
    /// A new channel, which has entered the roster.
    pub(crate) fn new(
        name: ChannelName,
        number: u64,
        options: NamespaceOptions,
        start: StreamPosition,
        tail: Tail,
        roster: Arc<Roster>,
    ) -> Self {
        let bytes = (!options.durable).then(|| Share::none(roster.history_bytes.clone()));
        let state = State {
            history: Counted::new(new_history(&options, start), bytes),
            older: None,
            charge: None,
            loading: None,
            used_at: 0,
            tail,
            readers: Readers::none(Share::none(roster.subscriptions.clone())),
            forms: FormCounts::default(),
            told_forms: FormCounts::default(),
            previous: None,
            sources: Sources::default(),
            presence: Presence::default(),
            join_leaves: HashMap::new(),
            devices: DeviceCounts::default(),
            filtered: HashMap::new(),
            open: VecDeque::new(),
            is_new: true,
            is_unsure: false,
            version: None,
            round: 0,
            place: Place::SOON,
            unread_since: None,
            swept: false,
        };
        let (changes, localizer, key, cache) = (None, None, None, None);
        Self { name, number, options, roster, changes, localizer, key, cache, state: Mutex::new(state) }
    }

    /// With somebody who is told when the first reader comes and the last one leaves.
    pub(crate) fn with_changes(self, changes: Option<Arc<Changes>>) -> Self {
        Self { changes, ..self }
    }

    /// With somebody who writes the texts of events.
    pub(crate) fn with_localizer(self, localizer: Option<Arc<dyn Localizer>>) -> Self {
        Self { localizer, ..self }
    }

    /// With publications that tell what they are about.
    pub(crate) fn with_key(self, key: Option<Arc<PublicationKey>>) -> Self {
        Self { key, ..self }
    }

    /// With a history that the store has, too.
    pub(crate) fn with_cache(mut self, cache: Option<Arc<Cache>>) -> Self {
        let charge = cache.as_ref().map(|cache| cache.charge());
        self.state.get_mut().unwrap_or_else(PoisonError::into_inner).charge = charge;
        Self { cache, ..self }
    }

    /// Its name.
    pub fn name(&self) -> &ChannelName {
        &self.name
    }

    /// Its number: no other channel of this process has or had it.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The options of its namespace.
    pub fn options(&self) -> &NamespaceOptions {
        &self.options
    }

    /// Publishes. `wake` is called for each loop that has readers here and is not dirty yet, while the channel is
    /// locked.
    pub(crate) fn publish(
        self: &Arc<Self>,
        new: NewPublication,
        version: Option<&Version>,
        cluster: &Cluster,
        wake: impl Fn(LoopId, Arc<Self>),
        now: Timestamp,
    ) -> Acted<Option<StreamPosition>> {
        let mut state = lock(&self.state);
        if state.swept {
            return Acted::Swept;
        }
        let mut publication = new.publication;
        let kept = self.options.has_history() && !new.skip_history;
        let version = version.filter(|_| kept);
        if let Some(version) = version {
            if state.version.as_ref().is_some_and(|top| version.is_behind(top)) {
                return Acted::Done(Some(state.history.top()));
            }
            state.version = Some(version.clone());
        }
        let is_detached = kept && !cluster.is_home();
        if is_detached {
            self.detach(&mut state, &wake);
        }
        if kept {
            self.look_if_empty(&mut state);
            let number = |offset| Publication { offset, ..publication };
            publication = state.history.change(|history| history.append(number, now));
            state.is_new = false;
        }
        let position = kept.then(|| state.history.top());
        cluster.tell_published(&self.name, position.map(|position| position.epoch), version, &publication, now);
        if !is_detached {
            self.fan_out(&mut state, &publication, None, wake);
        }
        Acted::Done(position)
    }

    /// Succeeds also if the publication is already there: the journal may hand in a publication that a restore has
    /// brought.
    pub(crate) fn publish_at(
        self: &Arc<Self>,
        offset: Offset,
        publication: Publication,
        receipts: &Receipts,
        wake: impl Fn(LoopId, Arc<Self>),
        now: Timestamp,
    ) -> Acted<()> {
        let mut state = lock(&self.state);
        if state.swept {
            return Acted::Swept;
        }
        let publication = Publication { offset, ..publication };
        if state.history.is_over(now) {
            state.older = None; // As in the store: what is over does not come back with the next publication.
        }
        state.history.change(|history| history.expire(now));
        self.look_if_empty(&mut state);
        if state.history.change(|history| history.append_at(offset, publication.clone(), now)) {
            state.is_new = false;
            self.charge(&mut state);
            // Before the first reader can answer, and before the sender asks which devices may answer.
            if let Some(request) = &publication.receipt {
                state.open(&publication, request, receipts);
                self.look_soon(&mut state);
            }
            self.fan_out(&mut state, &publication, publication.receipt.map(|request| request.event), wake);
        } else {
            state.know_of(offset);
        }
        Acted::Done(())
    }

    pub(crate) fn remove_history(&self, until: Option<Offset>, cluster: &Cluster) {
        let mut state = lock(&self.state);
        let is_copy = !self.options.durable && !cluster.is_home();
        if is_copy || state.swept {
            return;
        }
        let StreamPosition { offset: top, epoch } = state.history.top();
        let until = until.map_or(top, |until| until.min(top));
        state.remove_older(until);
        state.history.change(|history| history.remove_until(until));
        self.charge_less(&mut state);
        self.look_soon(&mut state);
        self.tell_removed(cluster, until, epoch);
    }

    /// The bytes of the history, and when the newest of its publications came; `None` if [`Channel::cut_history`] would do nothing.
    pub(crate) fn history_use(&self, keeps_newest: bool) -> Option<(usize, Timestamp)> {
        let state = lock(&self.state);
        let has_more = state.history.len() > usize::from(keeps_newest);
        has_more.then(|| (state.history.bytes(), state.history.published_at()))
    }

    /// Removes the publications that the history has now, perhaps without the newest. Returns whether there were any.
    pub(crate) fn cut_history(&self, keeps_newest: bool, cluster: &Cluster) -> bool {
        let until = {
            let state = lock(&self.state);
            if state.history.len() <= usize::from(keeps_newest) {
                return false;
            }
            state.history.top().offset
        };
        self.remove_history(Some(if keeps_newest { Offset(until.0 - 1) } else { until }), cluster);
        true
    }

    /// The journal tells every node what is removed from a durable channel.
    fn tell_removed(&self, cluster: &Cluster, until: Offset, epoch: Epoch) {
        if !self.options.durable && until > Offset(0) {
            cluster.tell(|| News::Removed { channel: self.name.clone(), epoch, until });
        }
    }

    pub(crate) fn top(&self) -> StreamPosition {
        lock(&self.state).history.top()
    }

    /// The store has forgotten the channel. Its readers stay, and its next publication has a later offset.
    pub(crate) fn on_forgotten(&self) {
        let mut state = lock(&self.state);
        (state.is_new, state.older) = (true, None);
        self.look_soon(&mut state);
    }

    fn fan_out(
        self: &Arc<Self>,
        state: &mut State,
        publication: &Publication,
        receipt: Option<JournalPosition>,
        wake: impl Fn(LoopId, Arc<Self>),
    ) {
        if state.readers.is_empty() {
            return; // No reader: the publication is not encoded.
        }
        let have_deltas = state.forms.have_deltas();
        let delta = state.previous.as_ref().filter(|_| have_deltas);
        let delta = delta.and_then(|(_, old)| fossil::delta(old.as_str(), publication.data.as_str()));
        state.previous = have_deltas.then(|| (publication.offset, publication.data.clone()));
        let encode = |form| self.encode_publication(form, publication, delta.as_deref());
        let forms: Vec<Encoded> = match (&self.localizer, &publication.texts) {
            (Some(localizer), Some(event)) => {
                let languages = state.forms.languages();
                let texts = localizer.texts(event, &languages);
                let texts = languages.into_iter().zip(texts).collect();
                self.encode_texts(&state.forms, publication, delta.as_deref(), &texts)
            }
            _ => state.forms.0.iter().map(|&(form, _)| encode(form)).collect(),
        };
        let kind = FrameKind::Publication(publication.tags.clone());
        let frame = Frame::new(kind, forms, process_micros(), receipt).at(publication.offset);
        state.sources.add(state.tail.end(), publication, self.key.as_deref());
        self.push(state, frame, wake);
    }

    /// Encodes the publication for each form, once for all languages that have the same text.
    fn encode_texts(
        &self,
        forms: &FormCounts,
        publication: &Publication,
        delta: Option<&str>,
        texts: &HashMap<Language, Option<Arc<LiveText>>>,
    ) -> Vec<Encoded> {
        let mut known: HashMap<(PushForm, Option<*const LiveText>), Encoded> = HashMap::new();
        let encoded = |&(form, _): &(PushForm, usize)| {
            let text = form.language.and_then(|language| texts.get(&language)?.as_ref());
            let key = (PushForm { language: None, ..form }, text.map(Arc::as_ptr));
            let encode = || {
                let publication = with_text(publication, text.map(Arc::as_ref));
                self.encode_publication(form, &publication, delta)
            };
            Encoded { form, ..known.entry(key).or_insert_with(encode).clone() }
        };
        forms.0.iter().map(encoded).collect()
    }

    /// `delta`: the difference of the data to the publication before, if it saves something.
    fn encode_publication(&self, form: PushForm, publication: &Publication, delta: Option<&str>) -> Encoded {
        let bytes = publication.data.bytes().len();
        let encode = |data| self.encode(form, &Push::PublicationAs(publication, data), bytes);
        Encoded {
            form,
            whole: encode(if form.has_deltas { DataForm::Whole } else { DataForm::Plain }),
            delta: delta.filter(|_| form.has_deltas).map(|delta| encode(DataForm::Delta(delta))),
        }
    }

    /// `bytes`: those of the data.
    fn encode(&self, form: PushForm, push: &Push<'_>, bytes: usize) -> Bytes {
        const FIXED_BYTES: usize = 64; // Names and punctuation, the offset's digits; info and tags may grow it once.
        let channel = if form.is_numbered { ChannelRef::Number(self.number) } else { ChannelRef::Name(&self.name) };
        let mut out = Vec::with_capacity(FIXED_BYTES + self.name.as_str().len() + bytes);
        encode_push(form.variant, channel, push, &mut out);
        frame(form.variant, &out)
    }

    /// Tells the subscribers that want to know it that somebody has joined or left.
    fn announce(self: &Arc<Self>, state: &mut State, push: &Push<'_>, wake: impl Fn(LoopId, Arc<Self>)) {
        if state.told_forms.0.is_empty() {
            return;
        }
        let forms = state.told_forms.0.iter().map(|&(form, _)| (form, self.encode(form, push, 0)));
        let frame = Frame::new(FrameKind::JoinLeave, forms, process_micros(), None);
        self.push(state, frame, wake);
    }

    fn push(self: &Arc<Self>, state: &mut State, frame: Frame, wake: impl Fn(LoopId, Arc<Self>)) {
        state.sources.on_frame(state.tail.end(), &frame);
        state.tail.push(frame);
        state.sources.trim(state.tail.base());
        for reader in state.readers.iter_mut() {
            if !std::mem::replace(&mut reader.dirty, true) {
                wake(reader.loop_id, self.clone());
            }
        }
    }

    pub(crate) fn subscribe(
        self: &Arc<Self>,
        member: &Member,
        resume: Option<&ResumeFrom>,
        receipts: &Receipts,
    ) -> Acted<Result<Subscribed, Gap>> {
        let mut state = lock(&self.state);
        if state.swept {
            return Acted::Swept;
        }
        let recovery = resume.map(|from| state.resume(from, self.options.recovery_mode));
        if let (Some(Recovery::Gap(gap)), Some(ResumeFrom { is_required: true, .. })) = (&recovery, resume) {
            return Acted::Done(Err(*gap));
        }
        let next = state.tail.end();
        let is_first = state.readers.is_empty();
        if is_first {
            self.tell_change(true);
        }
        state.readers.enter(member.loop_id, next);
        if let Place::Idle(_) = state.place {
            self.put(&mut state, Place::Nowhere);
        }
        state.forms.enter(member.form);
        if member.wishes.thinning.thins() {
            state.sources.enter(member.client);
        }
        if let Some(info) = &member.presence {
            state.presence.enter(info.clone());
        }
        match (member.device, &member.wishes.filter) {
            (Some(device), Some(filter)) => drop(state.filtered.insert(member.client, (device, filter.clone()))),
            (Some(device), None) => state.devices.enter(device),
            (None, _) => {}
        }
        if let Some(join_leave) = member.join_leave() {
            if join_leave.is_told {
                state.told_forms.enter(member.form);
            }
            state.join_leaves.insert(member.client, join_leave);
        }
        let is_asked = resume.is_some() && !state.open.is_empty();
        let receipts = if is_asked { receipts.resolve(state.open.iter()) } else { Vec::new() };
        let (channel, top) = (self.clone(), state.history.top());
        let delta_base = state.previous.as_ref().map(|(offset, _)| *offset).filter(|offset| *offset > Offset(0));
        Acted::Done(Ok(Subscribed { channel, next, is_first, top, recovery, delta_base, receipts }))
    }

    /// The first reader has come, or the last one has left. Called under the lock, so that changes stay in order.
    fn tell_change(&self, is_here: bool) {
        if let Some(changes) = &self.changes {
            changes.channel(&self.name, is_here);
        }
    }

    /// Tells those who want to know it that the member has joined. Until then nobody is told that it leaves either.
    pub(crate) fn announce_join(
        self: &Arc<Self>,
        client: ClientId,
        cluster: &Cluster,
        wake: impl Fn(LoopId, Arc<Self>),
    ) {
        let mut state = lock(&self.state);
        let Some(join_leave) = state.join_leaves.get_mut(&client) else { return };
        join_leave.has_joined = true;
        if let Some(info) = join_leave.announced.clone() {
            cluster.tell(|| News::Joined { channel: self.name.clone(), info: info.clone() });
            self.announce(&mut state, &Push::Join(&info), wake);
        }
    }

    /// The client has lost the proof that it is the device. It will unsubscribe without a device.
    pub fn disown(&self, client: ClientId, device: DeviceNumber) {
        lock(&self.state).disown(client, device);
    }

    /// Removes a subscriber. Returns whether the channel is unused now: no readers, nothing published.
    pub(crate) fn unsubscribe(
        self: &Arc<Self>,
        loop_id: LoopId,
        client: ClientId,
        device: Option<DeviceNumber>,
        form: PushForm,
        cluster: &Cluster,
        wake: impl Fn(LoopId, Arc<Self>),
    ) -> bool {
        let mut state = lock(&self.state);
        if let Some(device) = device {
            state.disown(client, device);
        }
        let join_leave = state.join_leaves.remove(&client);
        if join_leave.as_ref().is_some_and(|join_leave| join_leave.is_told) {
            state.told_forms.leave(form);
        }
        state.presence.leave(client);
        if !state.readers.leave(loop_id) {
            debug_assert!(false, "a subscriber leaves only once");
            return false;
        }
        state.forms.leave(form);
        state.sources.leave(client);
        if !state.forms.have_deltas() {
            state.previous = None;
        }
        if state.readers.is_empty() {
            self.tell_change(false);
        }
        if state.readers.is_empty() && !state.is_new {
            self.look_soon(&mut state);
        }
        let has_joined = join_leave.filter(|join_leave| join_leave.has_joined);
        if let Some(info) = has_joined.and_then(|join_leave| join_leave.announced) {
            cluster.tell(|| News::Left { channel: self.name.clone(), info: info.clone() });
            self.announce(&mut state, &Push::Leave(&info), wake);
        }
        state.trim();
        state.is_unused()
    }

    /// Marks the channel as swept if it is unused (no readers, nothing published). Returns whether it is.
    pub(crate) fn sweep_if_unused(&self) -> bool {
        let mut state = lock(&self.state);
        if !state.swept && state.is_unused() {
            self.mark_swept(&mut state);
        }
        state.swept
    }

    fn mark_swept(&self, state: &mut State) {
        self.put(state, Place::Nowhere);
        state.swept = true;
    }

    fn put(&self, state: &mut State, to: Place) {
        self.roster.put(&self.name, &mut state.place, to);
    }

    /// What has happened may end something sooner than the channel is looked at.
    fn look_soon(&self, state: &mut State) {
        if !state.swept {
            self.put(state, Place::SOON);
        }
    }

    /// A history that is not empty is looked at before it ends.
    fn look_if_empty(&self, state: &mut State) {
        if state.history.is_empty() {
            self.look_soon(state);
        }
    }

    /// Lets the next sweep look at it.
    pub(crate) fn nudge(&self) {
        self.look_soon(&mut lock(&self.state));
    }

    /// Whether nothing that is kept was published in it.
    pub(crate) fn is_new(&self) -> bool {
        lock(&self.state).is_new
    }

    /// The frames from `next` on, at most `bytes_max` but at least one, for all readers of a loop. Returns the index
    /// after the last one and whether there are more.
    ///
    /// # Errors
    /// [`Lagged`] when the frame at `next` was overwritten.
    pub fn fetch(&self, next: u64, bytes_max: usize, frames: &mut Vec<Frame>) -> Result<(u64, bool), Lagged> {
        let state = lock(&self.state);
        let end = state.tail.read(next, bytes_max, frames)?;
        Ok((end, end < state.tail.end()))
    }

    /// From now on a publication wakes the loop again. Called before fetching, so that none is missed. Returns the frame that
    /// readers should have passed, or else they may soon be overtaken.
    pub fn clear_dirty(&self, loop_id: LoopId) -> Option<u64> {
        let mut state = lock(&self.state);
        if let Some(reader) = state.readers.of(loop_id) {
            reader.dirty = false;
        }
        state.tail.midway()
    }

    /// The loop has taken all frames before `fetched`; `are_late`: many of its readers may soon be overtaken.
    pub fn on_fetched(&self, loop_id: LoopId, fetched: u64, are_late: bool) {
        if let Some(reader) = lock(&self.state).readers.of(loop_id) {
            (reader.fetched, reader.are_late) = (fetched, are_late);
        }
    }

    /// Whether a loop, or many of its readers, may soon be overtaken. Then clients publish no more than that they can keep up with.
    pub fn is_crowded(&self) -> bool {
        let state = lock(&self.state);
        let late = |midway| state.readers.iter().any(|reader| reader.are_late || reader.fetched < midway);
        state.tail.midway().is_some_and(late)
    }

    /// The part of what is kept for slow readers that a publication with so many bytes takes.
    pub fn part(&self, bytes: usize) -> f64 {
        lock(&self.state).tail.part(bytes)
    }

    /// Tells the channel that a loop's slowest subscriber needs no frame before `next`, and drops the frames that no
    /// loop needs. Returns the first index that is still held: a subscriber that needs an earlier one has been
    /// overtaken.
    pub fn settle(&self, loop_id: LoopId, next: u64) -> u64 {
        let mut state = lock(&self.state);
        if let Some(reader) = state.readers.of(loop_id) {
            reader.next = next;
        }
        state.trim();
        state.tail.base()
    }

    /// When the first frame of the tail was published, and the last one.
    pub(crate) fn frame_times(&self) -> Option<(u64, u64)> {
        lock(&self.state).tail.times()
    }

    /// The bytes of the frames that were published before this time, without the newest `kept`.
    pub(crate) fn bytes_before(&self, published_micros: u64, kept: usize) -> usize {
        lock(&self.state).tail.bytes_before(published_micros, kept)
    }

    /// Drops these frames, even if readers need them.
    pub(crate) fn drop_before(&self, published_micros: u64, kept: usize) {
        let state = &mut *lock(&self.state);
        state.tail.drop_before(published_micros, kept);
        state.sources.trim(state.tail.base());
    }

    /// Also works for a swept channel: the answer was true a moment ago.
    pub(crate) fn history(&self, filter: HistoryFilter) -> (Vec<Publication>, StreamPosition) {
        let state = lock(&self.state);
        (state.history.read(filter), state.history.top())
    }

    pub(crate) fn presence_within(&self, bytes_max: usize) -> Option<Vec<ClientInfo>> {
        lock(&self.state).presence.within(bytes_max)
    }

    pub(crate) fn presence_stats(&self) -> (u64, u64) {
        lock(&self.state).presence.stats()
    }

    pub(crate) fn subscriber_count(&self) -> usize {
        lock(&self.state).readers.subscriber_count()
    }

    /// Drops the history if its time is over. Returns whether the channel itself is to be removed: it has no readers
    /// and keeps nothing, and it has no position that a reader may resume from, or there is no room for it. A copy in
    /// memory drops nothing that was published: its home tells when.
    pub(crate) fn expire(&self, receipts: &Receipts, cluster: &Cluster, now: Timestamp, has_room: bool) -> bool {
        let mut state = lock(&self.state);
        if state.swept {
            return false;
        }
        if !state.open.is_empty() {
            let open = receipts.resolve(state.open.iter());
            let of_use = open.iter().filter(|(_, receipts)| receipts.is_of_use(now));
            state.open = of_use.map(|(offset, receipts)| (*offset, receipts.event())).collect();
        }
        let is_copy = !self.options.durable && !cluster.is_home();
        if state.history.is_over(now) {
            state.older = None; // It is over in the store, too.
        }
        if !is_copy && state.history.change(|history| history.expire(now)) > 0 {
            let StreamPosition { offset, epoch } = state.history.top();
            self.charge_less(&mut state);
            self.tell_removed(cluster, offset, epoch);
        }
        self.unload_if_idle(&mut state, now);
        let is_empty = state.readers.is_empty() && state.history.is_empty();
        if is_empty {
            state.tail.clear(); // A channel may be idle for long.
        }
        // A durable channel keeps its position until the store forgets it, a copy until its home does.
        let has_end = is_empty && !self.options.durable && !is_copy;
        let to = if has_end { state.idle(now) } else { Self::next_look(&state, is_copy, now) };
        let ttl = cluster.position_ttl(&self.options);
        let is_over = matches!(to, Place::Idle(since) if !has_room || now.saturating_since(since) >= ttl);
        let is_over = is_over || is_empty && state.is_new; // Without a publication it has no position.
        if is_over {
            self.mark_swept(&mut state);
        } else {
            self.put(&mut state, to);
        }
        is_over
    }

    /// When time alone changes something of it next, which is not over at `now`.
    fn next_look(state: &State, is_copy: bool, now: Timestamp) -> Place {
        let soon = now.saturating_add(LOOK_INTERVAL);
        let has_end = !is_copy && (!state.history.is_empty() || state.older.is_some());
        // While it is read from the store it does not let go of its publications, although it is time.
        let unread_since = state.unread_since.filter(|_| !state.history.is_empty());
        let times = [
            has_end.then(|| state.history.expires_at()),
            unread_since.map(|since| since.saturating_add(UNREAD_TIME).max(soon)),
            (!state.open.is_empty()).then_some(soon),
        ];
        times.into_iter().flatten().min().map_or(Place::Nowhere, Place::Look)
    }
}

fn new_history(options: &NamespaceOptions, start: StreamPosition) -> History<Publication> {
    let retention = Retention { size: options.history_size as usize, ttl: options.history_ttl };
    History::new(start, retention, Publication::weight)
}

/// The result of an action on a channel that may have been swept before.
#[derive(Debug)]
pub(crate) enum Acted<T> {
    Done(T),
    Swept,
}

impl State {
    fn resume(&self, from: &ResumeFrom, mode: RecoveryMode) -> Recovery {
        let (offset, epoch) = (from.offset, from.epoch.as_deref());
        let missed = match mode {
            RecoveryMode::Stream => self.history.resume(offset, epoch, from.limit),
            RecoveryMode::Cache => self.history.resume_latest(offset, epoch).map(|latest| latest.into_iter().collect()),
        };
        missed.map_or_else(Recovery::Gap, Recovery::Recovered)
    }

    fn is_unused(&self) -> bool {
        self.readers.is_empty() && self.is_new
    }

    /// It has been idle since `now`, unless it was before.
    const fn idle(&self, now: Timestamp) -> Place {
        match self.place {
            Place::Idle(since) => Place::Idle(since),
            Place::Nowhere | Place::Look(_) => Place::Idle(now),
        }
    }

    /// Starts to collect receipts of the publication.
    fn open(&mut self, publication: &Publication, request: &ReceiptRequest, receipts: &Receipts) {
        let event = receipts.open(request);
        event.add_readers(&self.devices.set);
        let filtered = self.filtered.values().filter(|(_, filter)| filter.matches(&publication.tags));
        event.add_readers(&filtered.map(|(device, _)| device.0).collect());
        while self.open.front().is_some_and(|(_, oldest)| !receipts.is_open(*oldest)) {
            self.open.pop_front();
        }
        self.open.push_back((publication.offset, request.event));
    }

    fn disown(&mut self, client: ClientId, device: DeviceNumber) {
        match self.filtered.remove(&client) {
            Some((filtered, _)) => debug_assert_eq!(filtered, device, "a connection has one device"),
            None => self.devices.leave(device),
        }
    }

    fn trim(&mut self) {
        let end = self.tail.end();
        self.tail.trim(self.readers.next().unwrap_or(end));
        self.sources.trim(self.tail.base());
    }
}
