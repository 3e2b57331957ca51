//! A job drives the books of one event.
//!
//! [`Books`] know where each device is; their header proves that each device is sent to once. A `Job` puts the books
//! behind a lock and gives them the time and the receipts that have come. Then it performs their effects: it wakes the
//! tasks that wait here, counts in the metrics, and tells newer jobs ([`crate::supersede`]) which devices are no longer
//! in flight.
//!
//! **Held**: devices of an event with `push: unless_received`, until `receipt_wait` after the event's acceptance, but
//! at most for half of its life, because a device that has not answered is to be pushed, not to expire. Receipts are
//! lost at a restart, and the hub may forget them for lack of memory: then a device whose receipt was not counted yet is
//! pushed, without waiting any longer.
//!
//! **Expired or cancelled**: when the event expires, or from [`Job::cancel`] on, devices that were not handed out are
//! counted as expired or cancelled at once. For notifications in flight the gateway learns this from the rendering, or
//! from [`Job::job_standing`]. Before its next attempt, the gateway also gives up a notification whose device a newer
//! job has taken over.
//!
//! **Suspended**: the job cannot go on, or makes room for a more urgent one ([`tidings_jobs::Slots`]). Later a new
//! `Job` continues it and ignores receipts: pending devices are pushed.
//!
//! **Trail**: the effects of each change go into the job's trail, too ([`crate::trails`]).
//!
//! Memory: the books, and one rendering per lane and text; for an event with typed values one per lane, text and place
//! (`places.rs`).

#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use roaring::RoaringBitmap;
use tidings_audience::Frozen;
use tidings_hub::EventReceipts;
use tidings_jobs::{
    Answer, Books, DeviceOutcome, Effects, Extent, Finding, JobReport, JobRow, Landing, LaneLimits, Note, Outgoing,
    Progress, Step, Suppression, WalkWindow, Whereabouts, Window,
};
use tidings_push::{JobStanding, Outcome, Rendering, Settled, Standing};
use tidings_store::AcceptedEvent;
use tidings_telemetry::panics::{self, Locked};
use tidings_telemetry::unix_now;
use tidings_types::{
    AppId, BrakeScope, CollapseKey, DeviceNumber, JobState, JournalPosition, Locale, Provider, Timestamp,
};
use tokio::sync::Notify;

use crate::brakes::Braking;
use crate::collapse::collapse_id;
use crate::flow::Flow;
use crate::metrics::Metrics;
use crate::parts::PartIndex;
use crate::places::{PlaceIndex, Places};
use crate::spans::Answered;
use crate::topic::{CurrentTopics, TextIndex, Topics};
use crate::trails::JobTrail;
use crate::wave::{Answers, is_doubtful};

/// One event on its way.
pub(crate) struct Job {
    pub(crate) position: JournalPosition,
    pub(crate) accepted: AcceptedEvent,
    pub(crate) expires_at: Timestamp,
    pub(crate) collapse_id: CollapseKey,
    /// The most that it takes; see [`tidings_jobs::JobSize`].
    pub(crate) bytes: usize,
    ledger: Mutex<Ledger>,
    trail: Arc<Mutex<JobTrail>>,
    /// When somebody first saw that it is over; from then on always the same.
    done_at: OnceLock<Timestamp>,
    /// One per lane: it has something to do again.
    wakes: Box<[Notify]>,
    /// A lane that has no task yet has something to do, or the job is over.
    lanes_wanted: Notify,
    /// Who got the event over a live connection; `None` where nobody is held and nobody has.
    receipts: Option<Arc<EventReceipts>>,
    /// Nobody is held any more and nobody will be.
    nobody_held: Notify,
    /// The topics that were in force when the first window was prepared. The job stays with them, also when it is put aside;
    /// only a restart of the server gives it others.
    topics: OnceLock<Arc<Topics>>,
    /// Made for the first device that needs them.
    pub(crate) renderings: Mutex<Renderings>,
}

/// What is shared by devices with the same text.
#[derive(Default)]
pub(crate) struct Renderings {
    pub(crate) places: Places,
    /// By lane, text and place, with the cell where their outcomes are counted, or why none can be made.
    pub(crate) made: HashMap<(usize, TextIndex, PlaceIndex), Made>,
}

type Made = Result<(Arc<Rendering>, u16), Suppression>;

/// What is under the job's lock.
struct Ledger {
    /// Newer jobs are weak: once one is over nobody is to be told, and an older job that takes its time keeps no audience in
    /// memory.
    books: Books<Weak<Job>>,
    /// By cell, where the parts of the tally are counted over all jobs; those of the newest may be missing.
    indexes: Vec<PartIndex>,
    /// Only if the event's trace is recorded.
    answered: Vec<Answered>,
}

/// What came of outcomes, beside the counts.
#[derive(Debug, Default)]
pub(crate) struct Landed {
    /// Outcomes of devices that were not in flight: a bug.
    pub(crate) strays: u64,
    /// Whose token was accepted for the first time.
    pub(crate) proven: Vec<DeviceNumber>,
    /// By lane, what providers said of its tokens.
    pub(crate) answers: BTreeMap<usize, Answers>,
    /// Indexes of outcomes that say that a token is gone, and their lanes.
    pub(crate) gone: Vec<(usize, usize)>,
}

impl Landed {
    /// Takes what the outcome at `index` says of its token.
    fn take(&mut self, index: usize, settled: &Settled, Landing { lane, is_proven, .. }: Landing) {
        if is_proven {
            self.proven.push(settled.ticket.device);
        }
        match settled.outcome {
            Outcome::Accepted => self.answers.entry(lane).or_default().accepted += 1,
            Outcome::Rejected(reason) if is_doubtful(reason) => {
                self.answers.entry(lane).or_default().doubtful += 1;
            }
            _ => {}
        }
        if settled.token_gone.is_some() {
            self.gone.push((index, lane));
        }
    }
}

impl Job {
    pub(crate) fn new(
        position: JournalPosition,
        accepted: AcceptedEvent,
        frozen: Frozen,
        lane_count: usize,
        progress: Progress,
    ) -> Self {
        let expires_at = accepted.accepted_at.saturating_add(accepted.event.ttl);
        let books = Books::new(lane_count, progress, frozen, expires_at);
        Self {
            position,
            expires_at,
            collapse_id: collapse_id(&accepted.event),
            bytes: 0,
            trail: Arc::new(Mutex::new(JobTrail::new(true, accepted.accepted_at))),
            accepted,
            done_at: OnceLock::new(),
            ledger: Mutex::new(Ledger { books, indexes: Vec::new(), answered: Vec::new() }),
            wakes: (0..lane_count).map(|_| Notify::new()).collect(),
            lanes_wanted: Notify::new(),
            receipts: None,
            nobody_held: Notify::new(),
            topics: OnceLock::new(),
            renderings: Mutex::default(),
        }
    }

    /// Spares those who prove by `receipts` that they need no push, and holds back whom it is worth waiting for at
    /// `now`.
    pub(crate) fn with_receipts(mut self, receipts: Arc<EventReceipts>, now: Timestamp) -> Self {
        let hold_until = self.accepted.accepted_at.saturating_add(self.hold_max());
        let Some(received) = receipts.received() else { return self }; // They are forgotten: as if there were none.
        let may_answer = if now < hold_until { receipts.may_answer() } else { RoaringBitmap::new() };
        // Devices that come into its channels later are not counted.
        self.bytes += Extent::of(&received).with(Extent::of(&may_answer)).bytes(1) as usize;
        self.ledger.get_mut().expect("no holder of this lock panics").books.heed_receipts(received, may_answer);
        panics::lock(&self.trail).receipts = Some(receipts.clone());
        self.receipts = Some(receipts);
        self
    }

    /// What happens to its devices is noted there.
    pub(crate) fn with_trail(self, trail: Arc<Mutex<JobTrail>>) -> Self {
        Self { trail, ..self }
    }

    /// It takes at most so many bytes.
    pub(crate) fn taking(self, bytes: usize) -> Self {
        Self { bytes, ..self }
    }

    /// The next devices to look at; `None` at the end of the walk. After `expires_at` everything that was not handed out is
    /// counted as expired first.
    pub(crate) fn open_walk(&self, device_count: usize, metrics: &Metrics, now: Timestamp) -> Option<WalkWindow> {
        self.change(metrics, |books| {
            self.end_in_time(books, now);
            books.open_walk(device_count)
        })
    }

    /// Takes what was found of a piece of the walk, in its order.
    pub(crate) fn assign(&self, window: WalkWindow, findings: &[Finding], metrics: &Metrics) {
        self.change(metrics, |books| books.assign(window, findings));
    }

    /// Counts everything that was not handed out, if the job is cancelled or its time is over.
    pub(crate) fn end(&self, metrics: &Metrics, now: Timestamp) {
        self.change(metrics, |books| self.end_in_time(books, now));
    }

    /// What `lane` does next, after what [`Job::open_walk`] says of `expires_at`.
    pub(crate) fn step(&self, lane: usize, limits: LaneLimits, metrics: &Metrics, now: Timestamp) -> Step {
        self.change(metrics, |books| {
            self.end_in_time(books, now);
            books.step(lane, limits)
        })
    }

    /// The devices that `lane` hands out next, where [`Job::step`] still says so.
    pub(crate) fn open_window(
        &self,
        lane: usize,
        limits: LaneLimits,
        metrics: &Metrics,
        now: Timestamp,
    ) -> Option<Window> {
        self.change(metrics, |books| {
            self.end_in_time(books, now);
            books.open_window(lane, limits)
        })
    }

    /// As [`Books::hand_out`]. `texts` are the cells of the devices that are handed out.
    pub(crate) fn hand_out(
        &self,
        window: Window,
        findings: &[Finding],
        unproven: &[DeviceNumber],
        texts: BTreeMap<u16, RoaringBitmap>,
        metrics: &Metrics,
    ) -> Outgoing {
        let mut trail = panics::lock(&self.trail);
        texts.into_iter().for_each(|(cell, devices)| trail.trail.note_text(cell, devices));
        drop(trail);
        self.change(metrics, |books| books.hand_out(window, findings, unproven))
    }

    /// Takes devices back that were handed out and did not get into the lake.
    pub(crate) fn put_back(&self, outgoing: Outgoing, left: impl Iterator<Item = DeviceNumber>, metrics: &Metrics) {
        self.change(metrics, |books| books.put_back(outgoing, left));
    }

    /// Takes outcomes of devices in flight.
    pub(crate) fn settle(&self, settled: &[Settled], metrics: &Metrics, now: Timestamp) -> Landed {
        let latency = now.saturating_since(self.accepted.accepted_at);
        let (mut landed, mut answers) = (Landed::default(), 0);
        let trace = self.accepted.event.trace.as_deref().filter(|trace| trace.is_sampled);
        let mut ledger = self.lock();
        for (index, settled) in settled.iter().enumerate() {
            let Settled { ticket, outcome, repeats, .. } = settled;
            let outcome = DeviceOutcome::from(*outcome);
            let answer = Answer { outcome, cell: ticket.cell, repeats: u64::from(*repeats), latency };
            let Some(landing) = ledger.books.settle(ticket.device, answer) else {
                landed.strays += 1;
                continue;
            };
            landed.take(index, settled, landing);
            ledger.count_part(settled, landing, metrics);
            if let Some(provider) = landing.provider.filter(|_| trace.is_some()) {
                Answered::note(&mut ledger.answered, provider, now);
            }
            answers += u64::from(outcome.is_answer());
        }
        ledger.books.end_settling();
        self.perform(ledger, metrics);
        metrics.latency.record_in(latency, answers, trace);
        landed
    }

    /// When its providers answered, if its trace is recorded.
    pub(crate) fn answered(&self) -> Vec<Answered> {
        self.lock().answered.clone()
    }

    /// Where the outcomes of one provider, app and language are counted; a ticket's `cell`.
    /// The topics of the job's texts.
    pub(crate) fn topics(&self, current: &CurrentTopics) -> &Topics {
        self.topics.get_or_init(|| current.get())
    }

    /// The topics that it stays with, once it has used them.
    pub(crate) fn topics_used(&self) -> Option<Arc<Topics>> {
        self.topics.get().cloned()
    }

    /// It was put aside after it had used these.
    pub(crate) fn staying_with(mut self, topics: Option<Arc<Topics>>) -> Self {
        self.topics = topics.map(OnceLock::from).unwrap_or_default();
        self
    }

    pub(crate) fn cell(&self, provider: Provider, app: &AppId, locale: Option<&Locale>) -> u16 {
        self.lock().books.cell(provider, app, locale)
    }

    /// Takes the receipts that have come. Tells whether somebody is held or may still be.
    pub(crate) fn take_receipts(&self, metrics: &Metrics) -> bool {
        self.change(metrics, |books| {
            self.receive(books);
            books.is_holding()
        })
    }

    /// Time is up: whoever is held and has not answered is due now, and nobody is held any more.
    pub(crate) fn let_go(&self, metrics: &Metrics) {
        self.change(metrics, |books| {
            self.receive(books);
            books.let_go();
        });
    }

    /// Ends the job: what was not handed out is counted as cancelled, what is in flight is not attempted again.
    pub(crate) fn cancel(&self, metrics: &Metrics) {
        self.change(metrics, |books| {
            self.receive_held(books);
            books.cancel();
        });
    }

    /// As [`Books::supersede`].
    pub(crate) fn supersede(&self, newer: &Arc<Self>, numbers: &RoaringBitmap, metrics: &Metrics) -> RoaringBitmap {
        self.change(metrics, |books| {
            books.forget_newer(|newer| newer.strong_count() == 0);
            books.supersede(Arc::downgrade(newer), numbers)
        })
    }

    /// As [`Books::block`].
    pub(crate) fn block(&self, numbers: &RoaringBitmap) {
        self.lock().books.block(numbers);
    }

    /// The older job does not have these in flight any more.
    pub(crate) fn unblock(&self, numbers: &RoaringBitmap, metrics: &Metrics) {
        self.change(metrics, |books| books.unblock(numbers));
    }

    /// As [`Books::bar`]. Before it runs.
    pub(crate) fn bar(&self) {
        self.lock().books.bar();
    }

    /// As [`Books::unbar`].
    pub(crate) fn unbar(&self, metrics: &Metrics) {
        self.change(metrics, Books::unbar);
    }

    /// Devices that were handed out and have no answer.
    pub(crate) fn handed_out(&self) -> RoaringBitmap {
        self.lock().books.handed_out()
    }

    /// Devices without an outcome.
    pub(crate) fn open_devices(&self) -> RoaringBitmap {
        self.lock().books.open_devices()
    }

    /// Whether its notifications are still to be sent.
    pub(crate) fn job_standing(&self) -> JobStanding {
        let Ledger { books, .. } = &*self.lock();
        match (books.is_cancelled(), books.has_superseded()) {
            (true, _) => JobStanding::Cancelled,
            (false, false) => JobStanding::Go,
            (false, true) => JobStanding::AskEach,
        }
    }

    /// Whether the notification of one device is still to be sent.
    pub(crate) fn standing(&self, number: DeviceNumber) -> Standing {
        let Ledger { books, .. } = &*self.lock();
        match (books.is_cancelled(), books.is_superseded(number)) {
            (true, _) => Standing::Cancelled,
            (false, true) => Standing::Superseded,
            (false, false) => Standing::Go,
        }
    }

    /// Whether one of these devices in flight is not to be sent to any more.
    pub(crate) fn calls_back(&self, mut numbers: impl Iterator<Item = DeviceNumber>) -> bool {
        let Ledger { books, .. } = &*self.lock();
        books.is_cancelled() || (books.has_superseded() && numbers.any(|number| books.is_superseded(number)))
    }

    /// Whether receipts are all that is missing, and its devices have had so long for them from the event's acceptance.
    pub(crate) fn only_holds_since(&self, age: Duration, now: Timestamp) -> bool {
        now.saturating_since(self.accepted.accepted_at) >= age && self.lock().books.only_holds()
    }

    /// Whether all that is left to do is to wait: for answers, or for lanes that `flow` says are stuck.
    pub(crate) fn is_idle(&self, flow: &Flow) -> bool {
        let event = &self.accepted.event;
        self.lock().books.is_idle(|lane| flow.is_stuck(&event.topic, event.priority, lane))
    }

    /// As [`Books::suspend`].
    pub(crate) fn suspend(&self, metrics: &Metrics) -> Option<(Progress, Box<[usize]>)> {
        self.change(metrics, Books::suspend)
    }

    /// Whether something was not handed out and is not counted.
    pub(crate) fn has_unsent(&self) -> bool {
        self.lock().books.has_unsent()
    }

    /// Whether somebody is held or may still be.
    pub(crate) fn is_holding(&self) -> bool {
        self.lock().books.is_holding()
    }

    /// Resolves when [`Job::is_holding`] has become false; at once if it has since it was last asked.
    pub(crate) async fn nobody_held(&self) {
        self.nobody_held.notified().await;
    }

    /// How long devices are held from the event's acceptance on. Half of its life is left to push them.
    fn hold_max(&self) -> Duration {
        self.accepted.event.receipt_wait.min(self.accepted.event.ttl / 2)
    }

    /// How long devices are still held; never more than that, whatever the clock was set to.
    pub(crate) fn hold_left(&self, now: Timestamp) -> Duration {
        let wait = self.hold_max();
        self.accepted.accepted_at.saturating_add(wait).saturating_since(now).min(wait)
    }

    pub(crate) fn receipts(&self) -> Option<&EventReceipts> {
        self.receipts.as_deref()
    }

    /// Resolves when the lane has something to do again; at once if that was since it last asked.
    pub(crate) async fn woken(&self, lane: usize) {
        self.wakes[lane].notified().await;
    }

    /// Resolves when [`Job::take_wanted_lanes`] has more, or the job is over; at once if that was since it was last
    /// asked.
    pub(crate) async fn lanes_wanted(&self) {
        self.lanes_wanted.notified().await;
    }

    /// The lanes that have something to do for the first time: each is to be run from now on.
    pub(crate) fn take_wanted_lanes(&self) -> Vec<usize> {
        self.lock().books.take_wanted_lanes()
    }

    /// Until when devices may be held.
    pub(crate) fn held_until(&self) -> Timestamp {
        self.accepted.accepted_at.saturating_add(self.hold_max())
    }

    /// The language of the devices of a cell.
    pub(crate) fn locale_of(&self, cell: u16) -> Option<Option<Locale>> {
        Some(self.lock().books.tally().parts.get(usize::from(cell))?.locale.clone())
    }

    /// Where a device is now.
    pub(crate) fn whereabouts(&self, number: DeviceNumber) -> Whereabouts {
        self.lock().books.whereabouts(number)
    }

    /// Whether every device has its outcome.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().books.is_over()
    }

    /// Whether nothing of a lane is in flight; if not, the lane is woken then.
    pub(crate) fn has_landed(&self, lane: usize) -> bool {
        self.lock().books.has_landed(lane)
    }

    /// Devices without an answer.
    pub(crate) fn in_flight(&self) -> u64 {
        self.lock().books.handed_out_len()
    }

    /// The row for a checkpoint; `None` when nothing has changed since the last.
    pub(crate) fn checkpoint(&self) -> Option<Vec<u8>> {
        let progress = self.lock().books.take_progress()?;
        Some(JobRow::Running(progress).encode())
    }

    /// The last checkpoint was not written.
    pub(crate) fn spoil_checkpoint(&self) {
        self.lock().books.spoil_checkpoint();
    }

    /// How it stands under the present brakes.
    pub(crate) fn report(&self, brakes: &Braking, now: Timestamp) -> JobReport {
        let event = &self.accepted.event;
        let Ledger { books, .. } = &*self.lock();
        let over = books.is_over() && !books.is_suspended();
        let paused_by = if over || books.is_cancelled() { None } else { self.paused_by(books, brakes) };
        let state = match (books.is_cancelled(), over, &paused_by) {
            (true, ..) => JobState::Cancelled,
            (false, true, _) => JobState::Finished,
            (false, false, Some(_)) => JobState::Paused,
            (false, false, None) => JobState::Running,
        };
        let tally = books.tally();
        JobReport {
            position: self.position,
            event: event.id.clone(),
            topic: Some(event.topic.clone()),
            priority: event.priority,
            state,
            paused_by,
            accepted_at: self.accepted.accepted_at,
            done_at: over.then(|| *self.done_at.get_or_init(|| now)),
            audience: books.audience_len(),
            held: books.held_len(),
            counts: tally.counts.clone(),
            by: tally.parts.clone(),
            retried: tally.retried,
            time_to: tally.time_to(),
            time_to_by: tally.time_to_by(),
            time_to_live: self.receipts.as_ref().and_then(|receipts| receipts.time_to(self.accepted.accepted_at)),
        }
    }

    /// The brake, if any, that keeps everything back which is left to hand out.
    fn paused_by(&self, books: &Books<Weak<Self>>, brakes: &Braking) -> Option<BrakeScope> {
        let topic = &self.accepted.event.topic;
        let mut waiting = books.unsent_lanes().map(|lane| brakes.of_lane(topic, lane));
        match waiting.next() {
            Some(first) => first.filter(|_| waiting.all(|scope| scope.is_some())),
            None => brakes.of_topic(topic).filter(|_| !books.is_walked()),
        }
    }

    /// Takes the receipts that have come. If they are forgotten, no further one can spare a device its push, so nobody is held
    /// any more. Who was counted as received stays so.
    fn receive(&self, books: &mut Books<Weak<Self>>) {
        match self.receipts.as_ref().map(|receipts| receipts.received()) {
            Some(Some(received)) => books.receive(received),
            Some(None) => books.let_go(),
            None => {}
        }
    }

    /// Takes the receipts of those that are about to end.
    fn receive_held(&self, books: &mut Books<Weak<Self>>) {
        if books.held_len() > 0 {
            self.receive(books);
        }
    }

    fn end_in_time(&self, books: &mut Books<Weak<Self>>, now: Timestamp) {
        if books.must_end(now) {
            self.receive_held(books);
            books.end_unsent();
        }
    }

    /// Changes the books, and does what they say about it.
    fn change<T>(&self, metrics: &Metrics, change: impl FnOnce(&mut Books<Weak<Self>>) -> T) -> T {
        let mut ledger = self.lock();
        let value = change(&mut ledger.books);
        self.perform(ledger, metrics);
        value
    }

    /// Writes into the trail what has happened to devices.
    fn note<N>(&self, effects: &mut Effects<N>) {
        let Effects { ended, held_back, handed_out, put_back, repeated, .. } = effects;
        let (now, mut kept) = (unix_now(), panics::lock(&self.trail));
        let trail = &mut kept.trail;
        handed_out.drain(..).for_each(|(lane, devices)| trail.note(Note::HandedOut(lane), devices, now));
        trail.take_back(put_back);
        trail.note(Note::Held, mem::take(held_back), now);
        trail.note(Note::Repeated, mem::take(repeated), now);
        ended.drain(..).for_each(|(outcome, devices)| trail.note(Note::Ended(outcome), devices, now));
    }

    /// Does what the books say. Newer jobs come last: no thread holds the locks of two.
    fn perform(&self, mut ledger: Locked<'_, Ledger>, metrics: &Metrics) {
        let mut effects = ledger.books.take_effects();
        effects.ended.iter().for_each(|(outcome, devices)| metrics.count(*outcome, devices.len()));
        if effects.are_of_devices() {
            self.note(&mut effects);
        }
        let Effects { held, wake, is_lane_wanted, is_nobody_held, is_over, landed, newer, .. } = effects;
        if held != 0 {
            metrics.devices_held.add(held);
            let until_now = unix_now().saturating_since(self.accepted.accepted_at);
            metrics.hold.record_n(until_now, u64::try_from(-held).unwrap_or_default());
        }
        if is_nobody_held {
            self.nobody_held.notify_one();
        }
        if is_lane_wanted || is_over {
            self.lanes_wanted.notify_one();
        }
        if is_over {
            self.wakes.iter().for_each(Notify::notify_one);
        } else {
            wake.into_iter().for_each(|lane| self.wakes[lane].notify_one());
        }
        drop(ledger);
        newer.iter().filter_map(Weak::upgrade).for_each(|newer| newer.unblock(&landed, metrics));
    }

    fn lock(&self) -> Locked<'_, Ledger> {
        panics::lock(&self.ledger)
    }
}

impl Ledger {
    /// Counts a device that a gateway has settled over all jobs, where its part is counted.
    fn count_part(&mut self, settled: &Settled, landing: Landing, metrics: &Metrics) {
        let Settled { ticket, outcome, repeats, .. } = settled;
        metrics.attempts_repeated.add(u64::from(*repeats));
        let Some(provider) = landing.provider else { return };
        metrics.count_provider(provider, DeviceOutcome::from(*outcome));
        let Self { books, indexes, .. } = self;
        let missing = books.tally().parts.iter().skip(indexes.len());
        indexes.extend(missing.map(|part| metrics.parts.index(part)));
        if let Some(index) = indexes.get(usize::from(ticket.cell)) {
            metrics.parts.count(*index, *outcome);
        }
    }
}
