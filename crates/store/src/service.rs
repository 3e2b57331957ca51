//! The handle: what can be asked of the store, and how the question gets to the committer.
//!
//! Each write is prepared in the caller's task (encoded, hashed), put into its queue without waiting, and answered
//! over a channel of its own by the committer; one that cannot be queued is refused at once. Here are the reads that
//! memory answers (audience, recipients, counts); those that rows answer are in `read`. Nothing here writes a row
//! except the first ones of a new store.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidings_audience::{Explaining, Explanation, Frozen, Selecting};
use tidings_types::{
    BrakeScope, DeviceId, DeviceNumber, DeviceToken, Event, EventId, JournalPosition, Json, Mute, MuteScope, Selector,
    StreamPosition, Timestamp, UserId,
};
use tokio::sync::{oneshot, watch};

use crate::brakes::Brakes;
use crate::channels::{DurableChannel, StoredPublication};
use crate::devices::credential::{Credential, GivenCredential};
use crate::devices::{GoneToken, NewDevice, Precondition, PutTerms, Recipient, Registered};
use crate::engine::Table;
use crate::error::{AppendError, ChangeError, ImportError, SubscribeError, WriteError};
use crate::events::prepared::{PreparedEvent, prepare};
use crate::events::{Appended, NewEvent};
use crate::hash::hash16;
use crate::imports::{ImportStep, Imported, NewImport, StepPart};
use crate::message::{Command, Reply};
use crate::queue::{Class, Queue};
use crate::rows;
use crate::shared::Shared;
use crate::subscriptions::Selection;

/// Handle to the store; cheap to clone. With the last one the store closes on its own; [`Store::close`] also waits for it.
///
/// Writes wait for their acknowledgement. Their futures may be dropped at any time: what was asked is then done
/// or not, and nobody is told. Reads answer at once, from memory or, where they say so, from the disk.
#[derive(Clone)]
pub struct Store {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// What the store has done since it was opened, which only grows; and from `devices` on, what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Batches written.
    pub batches: u64,
    /// Requests in them.
    pub commands: u64,
    /// Batches the disk refused.
    pub failures: u64,
    /// Times the store was opened again after that.
    pub reopened: u64,
    /// Requests refused because a queue was full.
    pub overloaded: u64,
    /// Checkpoints of devices and audience index written.
    pub checkpoints: u64,
    /// Checkpoints that could not be written.
    pub checkpoints_failed: u64,
    /// Times, of opening and opening again, that no checkpoint could be used, and all rows were read.
    pub rebuilt: u64,
    /// Devices deleted because nobody had seen them for longer than `idle_max`.
    pub expired: u64,
    /// Devices whose record in the heap was damaged, written anew from their rows.
    pub repaired: u64,
    /// Devices known.
    pub devices: u64,
    /// Bytes of the heap's files, and of what lives in them.
    pub heap_bytes: u64,
    /// See `heap_bytes`.
    pub heap_live_bytes: u64,
    /// Of these, of devices whose records are out of order, so that handing them out takes longer. They are moved.
    pub heap_scattered_bytes: u64,
    /// Subscriptions known.
    pub subscriptions: u64,
    /// Devices whose token was accepted by its provider.
    pub proven: u64,
    /// Events accepted and not yet due.
    pub later: u64,
    /// Scopes that are paused.
    pub paused: u64,
    /// Jobs that are cancelled and not forgotten.
    pub cancelled: u64,
}

impl Store {
    pub(crate) fn new(shared: Arc<Shared>, queue: Arc<Queue>) -> Self {
        Self { handle: Arc::new(Handle { shared, queue }) }
    }

    /// Takes no more writes, writes what waits, and waits until the folder is free.
    ///
    /// # Cancel safety
    /// Dropped: the store closes nevertheless; calling it again waits for that.
    pub async fn close(&self) {
        self.handle.queue.close();
        let mut ended = self.shared().ended.subscribe();
        let _ = ended.wait_for(|ended| *ended).await; // The sender of this lives in `shared`.
    }

    /// Appends events and publishes each in its channels, in this order: all or nothing. An event whose id is known with
    /// the same content is not appended again and has the first answer. One whose `at` is later than `now` is kept instead,
    /// its id taken, until [`Store::release_later`] appends it.
    ///
    /// # Errors
    /// [`AppendError::Conflict`] for an id known with other content; [`WriteError::Overloaded`] also when the journal is full, or
    /// `later_count_max` events are not yet due.
    ///
    /// # Cancel safety
    /// Dropped: appended or not. Asking again with the same ids tells.
    pub async fn append_events(&self, events: Vec<NewEvent>, now: Timestamp) -> Result<Vec<Appended>, AppendError> {
        let events: Vec<PreparedEvent> = events.into_iter().map(|event| prepare(event, now)).collect();
        let bytes = events.iter().map(PreparedEvent::bytes).sum();
        self.ask(Class::Events, bytes, |reply| Command::AppendEvents { events, now, reply }).await?
    }

    /// Moves events that are due at `now` into the journal and publishes each in its channels, in the order of their times
    /// and, at one time, of their acceptance: as many as one batch takes, so call again until it is 0. They count as accepted
    /// when they were due, their publications are of `now`. One whose time is over is published nowhere. Each is moved in
    /// one step: a crash neither loses nor doubles it.
    ///
    /// # Errors
    /// [`WriteError::Overloaded`] when the journal has no room for the first; it stays where it is, try again.
    ///
    /// # Cancel safety
    /// Dropped: moved or not.
    pub async fn release_later(&self, now: Timestamp) -> Result<usize, WriteError> {
        self.ask(Class::Jobs, RELEASE_BYTES, |reply| Command::ReleaseLater { now, reply }).await?
    }

    /// Forgets an event that is not yet due, and its id; false when none with this id waits.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: forgotten or not.
    pub async fn cancel_later(&self, id: &EventId) -> Result<bool, WriteError> {
        let id_hash = hash16(id.as_str().as_bytes());
        self.ask(Class::Brakes, 256, |reply| Command::CancelLater { id_hash, reply }).await
    }

    /// Follows when the earliest event that is not yet due will be; `None` when there is none.
    pub fn next_later(&self) -> watch::Receiver<Option<Timestamp>> {
        self.shared().next_later.subscribe()
    }

    /// Follows what is paused and cancelled: as of the last commit, seen here before it is acknowledged.
    pub fn brakes(&self) -> watch::Receiver<Arc<Brakes>> {
        self.shared().brakes.subscribe()
    }

    /// Pauses a scope until [`Store::resume`]; false when it was paused already, which then holds since earlier.
    ///
    /// # Errors
    /// When [`PAUSE_COUNT_MAX`](crate::PAUSE_COUNT_MAX) scopes are paused, or the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: paused or not.
    pub async fn pause(&self, scope: BrakeScope, now: Timestamp) -> Result<bool, WriteError> {
        self.ask(Class::Brakes, 256, |reply| Command::Pause { scope, now, reply }).await?
    }

    /// Ends the pause of this very scope; false when it was not paused. That of everything also ends those that could not be
    /// read when the store was opened.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: resumed or not.
    pub async fn resume(&self, scope: BrakeScope) -> Result<bool, WriteError> {
        self.ask(Class::Brakes, 256, |reply| Command::Resume { scope, reply }).await
    }

    /// Cancels the job of the event at `position`, for good; false when it was cancelled already or no such event is in
    /// the journal. Whether the job is still unfinished is for the caller to know. Forgotten with the job's row
    /// ([`Store::remove_jobs`]) or its event.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: cancelled or not.
    pub async fn cancel(&self, position: JournalPosition) -> Result<bool, WriteError> {
        self.ask(Class::Brakes, 256, |reply| Command::Cancel { position, reply }).await
    }

    /// Publishes into a durable channel.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: published or not.
    pub async fn append_publication(
        &self,
        channel: DurableChannel,
        data: Json,
        tags: BTreeMap<String, String>,
        info: Option<Json>,
        now: Timestamp,
    ) -> Result<StreamPosition, WriteError> {
        let bytes = data.bytes().len() + info.as_ref().map_or(0, |info| info.bytes().len()) + 512;
        let publication = StoredPublication { data, tags, info, time: now, receipt: None };
        self.ask(Class::Events, bytes, |reply| Command::Publish { channel, publication, reply }).await?
    }

    /// Registers a device, or replaces what is known of it; its subscriptions and mutes stay. A new one gets a credential.
    ///
    /// # Errors
    /// When the precondition does not hold, or the store is overloaded, has `device_count_max` devices, or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: registered or not; the credential of a new device is then lost.
    pub async fn put_device(
        &self,
        device: NewDevice,
        terms: PutTerms,
        now: Timestamp,
    ) -> Result<Registered, ChangeError> {
        self.ask(Class::Devices, 1024, |reply| Command::PutDevice { device, terms, now, reply }).await?
    }

    /// Forgets a device with its subscriptions and mutes; false when it was not known.
    ///
    /// # Errors
    /// When the precondition does not hold, or the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: forgotten or not. Ask again to be sure; it tells false where the device was forgotten before.
    pub async fn delete_device(&self, id: &DeviceId, precondition: Precondition) -> Result<bool, ChangeError> {
        let id = id.clone();
        self.ask(Class::Devices, 1024, |reply| Command::DeleteDevice { id, precondition, reply }).await?
    }

    /// Forgets every device of a user with all that belongs to it: addresses, secrets, subscriptions, mutes. Some at a time;
    /// tells how many it were. 0: the user has none.
    ///
    /// What else is known of him is not kept by devices, and goes by itself: events that name him, in the journal with
    /// their jobs, until the sender is done with them and their ids are forgotten (`id_window`), those for later until they
    /// are due or called off; what durable channels published, with whoever did, until the channel's `history_ttl`. Who
    /// is present in a channel is not here but in the hub, until the connection ends.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write; some devices may be gone by then. Repeat it until it tells 0.
    ///
    /// # Cancel safety
    /// Dropped: done in part, as on an error.
    pub async fn erase_user(&self, user: &UserId) -> Result<u64, WriteError> {
        let mut erased = 0;
        loop {
            let user = user.clone();
            match self.ask(Class::Devices, ERASE_BYTES, |reply| Command::EraseUser { user, reply }).await? {
                0 => return Ok(erased),
                count => erased += count as u64,
            }
        }
    }

    /// Notes that a device was seen, so that it does not expire (`idle_max`): one row a day, however often it is said. Not
    /// synced; an unknown device is passed over.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write: the next time will do.
    ///
    /// # Cancel safety
    /// Dropped: noted or not.
    pub async fn touch(&self, id: &DeviceId, now: Timestamp) -> Result<(), WriteError> {
        // What is known already is no reason to wait for the disk; what cannot be read is the committer's to judge.
        if self.device(id).is_ok_and(|device| device.is_none_or(|device| device.seen_at >= now.start_of_day())) {
            return Ok(());
        }
        let id = id.clone();
        self.ask(Class::Devices, 256, |reply| Command::Touch { id, now, reply }).await
    }

    /// Mutes a device, or changes until when; false when the scope was muted before. One whose end is past only ends what
    /// there is of its scope.
    ///
    /// # Errors
    /// When there is no such device or it would have more than `mute_count_max`, or the store is overloaded or cannot
    /// write.
    ///
    /// # Cancel safety
    /// Dropped: muted or not.
    pub async fn mute(&self, id: &DeviceId, mute: Mute, now: Timestamp) -> Result<bool, SubscribeError> {
        let id = id.clone();
        self.ask(Class::Devices, 1024, |reply| Command::Mute { id, mute, now, reply }).await?
    }

    /// Ends the mute of this very scope; false when there was none.
    ///
    /// # Errors
    /// When there is no such device, or the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: ended or not.
    pub async fn unmute(&self, id: &DeviceId, scope: &MuteScope) -> Result<bool, SubscribeError> {
        let (id, scope) = (id.clone(), scope.clone());
        self.ask(Class::Devices, 1024, |reply| Command::Unmute { id, scope, reply }).await?
    }

    /// Gives a device a new secret; from the acknowledgement on the old one proves nothing. `None`: no such device. Live
    /// connections that were proven by the old one are the caller's to end.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write. As with every refused write it may be done nevertheless: ask again.
    ///
    /// # Cancel safety
    /// Dropped: done or not; the new credential is then lost, and asking again gives another.
    pub async fn rotate_credential(&self, id: &DeviceId) -> Result<Option<(DeviceNumber, Credential)>, WriteError> {
        self.ask(Class::Devices, 1024, |reply| Command::RotateCredential { id: id.clone(), reply }).await
    }

    /// Parts a device from its user: it has none, its subscriptions and mutes are gone, and its secret is a new one; its address
    /// stays. All in one step. `None`: no such device. Jobs whose audience was frozen before still hold it, but it is owed
    /// none of their events any more: what was for its former user does not show up on the next one's phone.
    ///
    /// # Errors
    /// As [`Store::rotate_credential`].
    ///
    /// # Cancel safety
    /// As [`Store::rotate_credential`].
    pub async fn log_out(&self, id: &DeviceId) -> Result<Option<(DeviceNumber, Credential)>, WriteError> {
        self.ask(Class::Devices, 1024, |reply| Command::LogOut { id: id.clone(), reply }).await
    }

    /// Subscribes a device to topics on subjects; all or nothing. Tells how many subscriptions are new.
    ///
    /// # Errors
    /// When there is no such device or it would have more than `subscription_count_max`.
    ///
    /// # Cancel safety
    /// Dropped: subscribed to all or to none. The same request again changes nothing more.
    pub async fn subscribe(&self, id: &DeviceId, selection: Selection) -> Result<usize, SubscribeError> {
        let (id, bytes) = (id.clone(), selection_bytes(&selection));
        self.ask(Class::Devices, bytes, |reply| Command::Subscribe { id, selection, reply }).await?
    }

    /// Takes subscriptions away; a subject without topics means all of its topics. Tells how many there were.
    ///
    /// # Errors
    /// When there is no such device.
    ///
    /// # Cancel safety
    /// Dropped: all taken away or none. The same request again changes nothing more.
    pub async fn unsubscribe(&self, id: &DeviceId, selection: Selection) -> Result<usize, SubscribeError> {
        let (id, bytes) = (id.clone(), selection_bytes(&selection));
        self.ask(Class::Devices, bytes, |reply| Command::Unsubscribe { id, selection, reply }).await?
    }

    /// Registers many devices with subscriptions and mutes, `IMPORT_CHUNK_COUNT` at a time; no credentials are issued, given
    /// ones count. A chunk is done as a whole or not at all, and the same import again changes nothing: after an error,
    /// repeat it.
    ///
    /// A step of a longer import is only done where it is the next one; its progress is noted in the same batch as its last
    /// chunk, also when it has no devices. The progress of 1000 imports is kept, [`Store::import_progress`] tells it;
    /// of the next one, the one that was longest without a step is forgotten, and begins anew.
    ///
    /// # Errors
    /// When the step is not the next one, a device would have too many subscriptions or mutes, or the store is overloaded
    /// or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: done in part, as on an error.
    pub async fn import_devices(
        &self,
        devices: Vec<NewImport>,
        step: Option<ImportStep>,
        now: Timestamp,
    ) -> Result<Imported, ImportError> {
        let mut imported = Imported::default();
        let mut devices = devices.into_iter();
        let mut first = 0;
        loop {
            let chunk: Vec<_> = devices.by_ref().take(IMPORT_CHUNK_COUNT).collect();
            let is_last = devices.len() == 0;
            if chunk.is_empty() && step.is_none() {
                return Ok(imported);
            }
            let done_before = is_last.then_some(imported);
            let part = step.clone().map(|step| StepPart { step, done_before });
            let bytes = 256 + chunk.iter().map(import_bytes).sum::<usize>();
            let import = |reply| Command::Import { devices: chunk, part, now, reply };
            imported += self.ask(Class::Imports, bytes, import).await?.map_err(|error| match error {
                ImportError::Device { index, id, source } => ImportError::Device { index: first + index, id, source },
                other => other,
            })?;
            if is_last {
                return Ok(imported);
            }
            first += IMPORT_CHUNK_COUNT;
        }
    }

    /// Takes tokens away that the provider says are gone, each only if the device still has it and did not register it
    /// again after `gone_at`. Tells how many were taken.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: all taken away or none. The same request again changes nothing more.
    pub async fn tokens_gone(&self, tokens: Vec<GoneToken>) -> Result<usize, WriteError> {
        let bytes = 256 * tokens.len();
        self.ask(Class::Devices, bytes, |reply| Command::TokensGone { tokens, reply }).await
    }

    /// One token, as [`Store::tokens_gone`]; true when it was taken.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// As [`Store::tokens_gone`].
    pub async fn token_gone(
        &self,
        number: DeviceNumber,
        token: DeviceToken,
        gone_at: Option<Timestamp>,
    ) -> Result<bool, WriteError> {
        Ok(self.tokens_gone(vec![GoneToken { number, token, gone_at }]).await? == 1)
    }

    /// Notes that providers have accepted pushes to the tokens of these devices; those that are not there or have no token
    /// are passed over. A token that is new or replaced is unproven again; one that was replaced between the push and this
    /// call is taken for proven. Not synced: after a power failure a device may have to prove itself once more.
    ///
    /// Tell many at a time: each call may rewrite 8 KiB for each 65 536 device numbers that it touches.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: noted or not.
    pub async fn devices_proven(&self, numbers: Vec<DeviceNumber>) -> Result<(), WriteError> {
        let bytes = 64 + size_of::<DeviceNumber>() * numbers.len();
        self.ask(Class::Devices, bytes, |reply| Command::DevicesProven { numbers, reply }).await
    }

    /// Checkpoints jobs, and up to which position (exclusive) all events have one, in one step. Not synced: a power failure
    /// may take the newest checkpoints, the end of the process does not.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: all of it is noted or nothing. Requests of one caller keep their order, so a later one still counts last.
    pub async fn put_jobs(
        &self,
        jobs: Vec<(JournalPosition, Vec<u8>)>,
        dispatched: Option<JournalPosition>,
    ) -> Result<(), WriteError> {
        let bytes = 64 + jobs.iter().map(|(_, job)| job.len() + 64).sum::<usize>();
        let remove = Vec::new();
        self.ask(Class::Jobs, bytes, |reply| Command::Jobs { put: jobs, remove, dispatched, reply }).await
    }

    /// Forgets jobs that are done, and that they were cancelled; as lazily as [`Store::put_jobs`].
    ///
    /// # Errors
    /// When the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: all are forgotten or none. The same request again changes nothing more.
    pub async fn remove_jobs(&self, remove: Vec<JournalPosition>) -> Result<(), WriteError> {
        let (put, dispatched) = (Vec::new(), None);
        self.ask(Class::Jobs, 64, |reply| Command::Jobs { put, remove, dispatched, reply }).await
    }

    /// Says that no event before `position` is needed any more. They go when their ids need not be remembered either.
    /// Not stored: the sender says it again after a start.
    pub fn trim(&self, position: JournalPosition) {
        self.shared().trim_to.fetch_max(position.0, Ordering::Relaxed);
    }

    /// Who is told of the event, as it is at one moment, in which nobody is in two places or in none: whoever it names
    /// or selects, or else whoever subscribed to its topic on any of its subjects and all devices of the users among
    /// these; of them those that its filter admits. Changes wait meanwhile: a millisecond for millions of devices, some
    /// tens of them for a selector of many parts. Named devices that memory does not know cost a row read each.
    pub fn select(&self, event: &Event) -> Frozen {
        let filter = event.filter.clone().unwrap_or_default();
        let Some(to) = &event.to else {
            return self.shared().index.read().freeze(&event.topic, &event.subjects, &filter);
        };
        let devices = self.numbers_of(&to.devices);
        let index = self.shared().index.read();
        let named = index.freeze_named(&to.users, &devices, &event.subjects, &filter);
        match &to.selector {
            Some(selector) => named.union(&index.freeze_selected(selector, &event.subjects, &filter)),
            None => named,
        }
    }

    /// All devices that a selector means, the muted too: one million of numbers after the other, each as it is then.
    pub fn selected(&self, selector: &Selector) -> Frozen {
        let index = &self.shared().index;
        let mut selecting = Selecting::new(&index.read(), selector);
        while selecting.next_shard(&index.read()) {}
        selecting.finish()
    }

    /// How many devices each part of a selector means, counted one by one, one million of numbers after the
    /// other, each as it is then. Changes wait for one at a time: up to some milliseconds for each part.
    pub fn explain(&self, selector: &Selector) -> Explanation {
        let index = &self.shared().index;
        let mut explaining = Explaining::new(&index.read(), selector);
        while explaining.next_shard(&index.read()) {}
        explaining.finish()
    }

    /// The numbers of those devices that exist. Where the rows cannot be read, memory knows them too: sending goes on.
    fn numbers_of(&self, ids: &[DeviceId]) -> Vec<DeviceNumber> {
        if ids.is_empty() {
            return Vec::new();
        }
        let read: Result<Vec<_>, _> = ids.iter().map(|id| self.device_number(id)).collect();
        read.map_or_else(
            |_| {
                let ids: HashSet<&str> = ids.iter().map(DeviceId::as_str).collect();
                self.shared().table.read().find_all(|found| ids.contains(found.id))
            },
            |numbers| numbers.into_iter().flatten().collect(),
        )
    }

    /// Hands out what sending needs of the devices among `numbers` that exist, in this order, and tells how many that were.
    /// Changes wait meanwhile: at most a window of some thousand at once, and `visit` must not call the store. A device whose
    /// record is damaged costs a row read; while the store is opened again it is passed over.
    pub fn with_recipients(&self, numbers: &[DeviceNumber], mut visit: impl FnMut(Recipient<'_>)) -> usize {
        let (mut rest, mut count) = (numbers, 0);
        let mut visit = |recipient: Recipient<'_>| {
            count += 1;
            visit(recipient);
        };
        loop {
            let visited = self.shared().table.read().visit(rest, &mut visit);
            let Err(lost) = visited else { return count };
            self.visit_lost(rest[lost], &mut visit);
            rest = &rest[lost + 1..];
        }
    }

    fn visit_lost(&self, number: DeviceNumber, visit: impl FnOnce(Recipient<'_>)) {
        self.shared().losses.note(number);
        let proven = self.shared().table.read().is_proven(number);
        let row = self.with_engine(|engine| {
            let key = rows::number_key(number);
            engine.get(Table::Device, &key)?.map(|row| rows::decode_device(&key, row.as_ref())).transpose()
        });
        if let Ok(Some(row)) = row {
            visit(Recipient::of(number, &row.device, proven));
        }
    }

    /// Where a durable channel begins that was not there when the store was opened, until
    /// [`CommitSink::on_channel_given_back`] tells of another offset. The epoch is that of every durable channel: one life of the
    /// store.
    pub fn channel_start(&self) -> StreamPosition {
        self.shared().channel_start
    }

    /// The position the next event will get.
    pub fn journal_end(&self) -> JournalPosition {
        *self.shared().journal_end.borrow()
    }

    /// Follows [`Store::journal_end`]; changes after the sink was told.
    pub fn watch_journal_end(&self) -> watch::Receiver<JournalPosition> {
        self.shared().journal_end.subscribe()
    }

    /// What the store has done so far.
    pub fn counts(&self) -> Counts {
        let shared = self.shared();
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // Each lock is let go before the next: who reads twice waits for a writer who waits for him.
        let (devices, proven, heap) = {
            let table = shared.table.read();
            (table.count(), table.proven_count(), table.heap_usage())
        };
        let subscriptions = shared.index.read().subscription_count();
        let (paused, cancelled) = {
            let brakes = shared.brakes.borrow();
            (brakes.paused.len() as u64, brakes.cancelled.len() as u64)
        };
        Counts {
            batches: value(&shared.counters.batches),
            commands: value(&shared.counters.commands),
            failures: value(&shared.counters.failures),
            reopened: value(&shared.counters.reopened),
            overloaded: value(&shared.counters.overloaded),
            checkpoints: value(&shared.checkpoint.taken_count),
            checkpoints_failed: value(&shared.checkpoint.failed_count),
            rebuilt: value(&shared.checkpoint.rebuilt_count),
            expired: value(&shared.counters.expired),
            repaired: value(&shared.counters.repaired),
            devices,
            heap_bytes: heap.disk_bytes,
            heap_live_bytes: heap.live_bytes,
            heap_scattered_bytes: heap.scattered_bytes,
            subscriptions,
            proven,
            later: value(&shared.later_count),
            paused,
            cancelled,
        }
    }

    /// Whether it takes writes: neither closed, nor waiting for a disk that takes them again. Asks memory only.
    pub fn is_open(&self) -> bool {
        self.handle.queue.is_open()
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.handle.shared
    }

    /// For what goes on without keeping the store open.
    pub(crate) fn shared_arc(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    async fn ask<T>(
        &self,
        class: Class,
        bytes: usize,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, WriteError> {
        let (reply, answer) = oneshot::channel();
        self.handle.queue.push(class, command(reply), bytes).inspect_err(|error| {
            let overloaded = matches!(error, WriteError::Overloaded { .. });
            self.shared().counters.overloaded.fetch_add(u64::from(overloaded), Ordering::Relaxed);
        })?;
        answer.await.map_err(|_| WriteError::Unavailable)
    }
}

/// What a release may make of its request: it fills a batch of its own.
const RELEASE_BYTES: usize = 1 << 20;

/// What erasing some devices may make of its request.
const ERASE_BYTES: usize = 256 << 10;

/// Devices an import writes in one batch.
const IMPORT_CHUNK_COUNT: usize = 1000;

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.shared().config.path).finish_non_exhaustive()
    }
}

fn import_bytes(import: &NewImport) -> usize {
    let credential = match &import.credential {
        Some(GivenCredential::Secret(text)) => text.len(),
        Some(GivenCredential::Hash(_)) | None => 32,
    };
    1024 + 128 * (import.subscriptions.len() + import.mutes.len()) + credential
}

fn selection_bytes(selection: &Selection) -> usize {
    256 + selection.iter().map(|(_, topics)| 128 * (1 + topics.len())).sum::<usize>()
}
