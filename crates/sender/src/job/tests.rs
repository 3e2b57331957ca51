//! The books against a plain model: random steps of walk, lanes, provider, receipts and crashes.

mod chain;

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use proptest::prelude::*;
use tidings_audience::Index;
use tidings_hub::Receipts;
use tidings_push::{Outcome, Ticket};
use tidings_telemetry::Registry;
use tidings_types::{Event, ReceiptPolicy, ReceiptRequest, Subject, TopicName};

use super::*;

const POSITION: JournalPosition = JournalPosition(3);
const NOW: Timestamp = Timestamp(1_000_000);
const LIMITS: LaneLimits = LaneLimits { window_device_count: 4, in_flight_max: 8 };

fn accepted() -> AcceptedEvent {
    let subjects = vec![Subject::new("team:1").unwrap()];
    let mut event = Event::new(EventId::new("goal-1").unwrap(), TopicName::new("goal").unwrap(), subjects);
    (event.ttl, event.receipt_policy) = (Duration::from_secs(60), ReceiptPolicy::Any);
    AcceptedEvent { accepted_at: NOW, published: Vec::new(), audience_max: None, event }
}

fn freeze(audience: &BTreeSet<u32>) -> Frozen {
    let AcceptedEvent { event, .. } = accepted();
    let mut index = Index::new();
    for &number in audience {
        index.insert(DeviceNumber(number), &event.subjects[0], &event.topic);
    }
    index.freeze(&event.topic, &event.subjects, &tidings_types::Filter::default())
}

fn job(frozen: &Frozen, progress: Progress) -> Job {
    Job::new(POSITION, accepted(), frozen.clone(), 2, progress)
}

/// The event's receipts; these devices read it.
fn receipts(readers: &BTreeSet<u32>) -> Arc<EventReceipts> {
    let terms = accepted().event.receipt_terms(NOW).unwrap();
    let receipts = Receipts::new(10).open(&ReceiptRequest { event: POSITION, terms });
    receipts.add_readers(&readers.iter().copied().collect());
    receipts
}

pub(crate) fn receive(receipts: &EventReceipts, number: DeviceNumber) {
    receipts.on_received("", Some(number), false);
}

/// A job whose whole audience was walked and is held.
pub(crate) fn all_held(audience: &BTreeSet<u32>, now: Timestamp, metrics: &Metrics) -> (Job, Arc<EventReceipts>) {
    let receipts = receipts(audience);
    let accepted = AcceptedEvent { accepted_at: now, ..accepted() };
    let job = Job::new(POSITION, accepted, freeze(audience), 2, Progress::start()).with_receipts(receipts.clone(), now);
    loop {
        let findings: Vec<_> = job.walk(1024, metrics, now).into_iter().map(|it| (it, Finding::Lane(0))).collect();
        if findings.is_empty() {
            return (job, receipts);
        }
        job.assign(&findings, metrics);
    }
}

/// Whether the task that waits for receipts was told that there is nothing to wait for.
fn is_told(job: &Job) -> bool {
    pin!(job.nobody_held()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// What the store would say of a device just now: by its number and a changing salt.
fn finding(number: DeviceNumber, salt: u32) -> Finding {
    match number.0.wrapping_add(salt).wrapping_mul(2_654_435_761) >> 29 {
        0 => Finding::Suppressed(Suppression::Gone),
        place => Finding::Lane((place % 2) as usize),
    }
}

fn settled(number: u32) -> Settled {
    let ticket = Ticket { job: POSITION, device: DeviceNumber(number), cell: 0 };
    Settled { ticket, outcome: Outcome::Accepted, token_gone: None, repeats: 0, latency: Duration::ZERO }
}

/// Of two lanes.
fn unbraked() -> Braking {
    let lanes = [(Provider::Apns, AppId::new("one").unwrap()), (Provider::Fcm, AppId::new("two").unwrap())];
    let (_, none) = tokio::sync::watch::channel(Arc::default());
    Braking::new(none, Arc::new(lanes))
}

/// Under no brakes.
pub(crate) fn report(job: &Job, now: Timestamp) -> JobReport {
    job.report(&unbraked(), now)
}

/// The world around a job: what each lake and provider hold, and who may answer over a connection.
struct Around {
    job: Job,
    frozen: Frozen,
    metrics: Metrics,
    /// That were asked for.
    lanes: BTreeSet<usize>,
    held: [BTreeSet<u32>; 2],
    answered: BTreeSet<u32>,
    receipts: Arc<EventReceipts>,
    /// Must not be handed out: there is time left, or they have answered in time.
    waited_for: BTreeSet<u32>,
    spared: BTreeSet<u32>,
    was_holding: bool,
}

impl Around {
    /// One window of the walk; true when there was something to look at.
    fn walk(&mut self, salt: u32) -> bool {
        let numbers = self.job.walk(LIMITS.window_device_count, &self.metrics, NOW);
        assert!(numbers.len() <= LIMITS.window_device_count);
        self.meddle(salt);
        let findings: Vec<_> = numbers.iter().map(|&number| (number, finding(number, salt))).collect();
        self.job.assign(&findings, &self.metrics);
        self.check();
        !numbers.is_empty()
    }

    /// One turn of a lane; true when it had something to do.
    fn turn(&mut self, lane: usize, salt: u32) -> bool {
        self.lanes.extend(self.job.take_wanted_lanes());
        if !self.lanes.contains(&lane) {
            return false;
        }
        let Step::Open(numbers) = self.job.step(lane, LIMITS, &self.metrics, NOW) else { return false };
        assert!(numbers.len() <= LIMITS.window_device_count);
        self.meddle(salt);
        let findings: Vec<_> = numbers.iter().map(|&number| (number, finding(number, salt))).collect();
        let mine = findings.iter().filter(|(_, finding)| *finding == Finding::Lane(lane));
        let mine: Vec<u32> = mine.map(|(number, _)| number.0).collect();
        let unproven: BTreeSet<u32> = mine.iter().copied().filter(|number| number % 3 == 0).collect();
        self.job.open(lane, &findings, unproven.iter().copied().map(DeviceNumber), &self.metrics);
        let (sent, back) = mine.split_at(mine.len() - mine.len().min(salt as usize % 3));
        self.job.take_back(lane, back.iter().copied().map(DeviceNumber), &self.metrics);
        assert!(sent.iter().all(|&number| self.held[lane].insert(number)), "handed out twice");
        let unasked = |number| self.waited_for.contains(number) || self.spared.contains(number);
        assert!(!mine.iter().any(unasked), "who may answer or has is not pushed");
        assert!(self.held[lane].len() as u64 <= LIMITS.in_flight_max);
        self.check();
        true
    }

    /// What may happen between two calls of one step.
    fn meddle(&mut self, salt: u32) {
        match salt % 11 {
            0 => self.answer(0, 1),
            1 | 2 => drop(self.job.take_receipts(&self.metrics)),
            3 => self.receive(salt),
            4 if salt.is_multiple_of(3) => self.let_go(),
            _ => {}
        }
    }

    /// Somebody answers over a connection.
    fn receive(&mut self, salt: u32) {
        let numbers: Vec<DeviceNumber> = self.frozen.iter_from(DeviceNumber(0)).collect();
        let number = numbers[salt as usize % numbers.len()];
        receive(&self.receipts, number);
        if self.waited_for.remove(&number.0) {
            self.spared.insert(number.0);
        }
    }

    fn let_go(&mut self) {
        self.job.let_go(&self.metrics);
        assert!(!self.job.is_holding() && report(&self.job, Timestamp(0)).held == 0);
        self.waited_for.clear();
        self.was_holding = false;
    }

    fn check(&mut self) {
        self.job.check(self.frozen.len());
        assert_eq!(self.metrics.devices_held.value(), report(&self.job, Timestamp(0)).held as i64);
        let is_holding = self.job.is_holding();
        assert!(!self.was_holding || is_holding || is_told(&self.job), "nobody says that the wait is over");
        self.was_holding = is_holding;
    }

    fn answer(&mut self, lane: usize, count: usize) {
        let numbers: Vec<u32> = self.held[lane].iter().copied().take(count).collect();
        let outcomes: Vec<Settled> = numbers.iter().map(|&number| settled(number)).collect();
        let landed = self.job.settle(&outcomes, &self.metrics, NOW);
        let unproven: Vec<u32> = numbers.iter().copied().filter(|number| number % 3 == 0).collect();
        assert_eq!((landed.strays, landed.proven.iter().map(|it| it.0).collect()), (0, unproven));
        for number in numbers {
            self.held[lane].remove(&number);
            assert!(self.answered.insert(number), "answered twice");
        }
        self.check();
    }

    /// Killed right after a checkpoint: what is in flight is open again. The receipts are gone, or not.
    fn crash(&mut self, keeps_receipts: bool) {
        self.job.spoil_checkpoint();
        let row = self.job.checkpoint().expect("a spoilt checkpoint is written again");
        assert_eq!(self.job.checkpoint(), None, "nothing has changed since");
        let JobRow::Running(progress) = JobRow::decode(POSITION, &row).unwrap() else { panic!("running") };
        self.job = job(&self.frozen, progress);
        self.held.iter_mut().for_each(BTreeSet::clear);
        self.lanes.clear();
        self.metrics.devices_held.set(0);
        (self.was_holding, self.waited_for) = (false, BTreeSet::new());
        if keeps_receipts {
            self.hold();
        } else {
            self.receipts = receipts(&BTreeSet::new());
            self.spared.clear();
        }
        self.check();
    }

    /// The job begins to wait for those of the audience who may answer and have not.
    fn hold(&mut self) {
        let waited_for = members(&self.frozen, &(self.receipts.may_answer() - self.receipts.received()));
        self.waited_for = waited_for.iter().collect();
        let empty = job(&self.frozen, Progress::start());
        self.job = std::mem::replace(&mut self.job, empty).with_receipts(self.receipts.clone(), NOW);
    }
}

fn audience() -> impl Strategy<Value = BTreeSet<u32>> {
    // Both ends of the numbers, and both sides of a shard's border.
    let number = prop_oneof![0..60_u32, (1_u32 << 20) - 20..(1 << 20) + 20, u32::MAX - 5..=u32::MAX];
    prop::collection::btree_set(number, 1..60)
}

proptest! {
    #[test]
    fn every_device_is_in_one_place_at_every_step(
        audience in audience(),
        readers in prop::option::of(audience()),
        actions in prop::collection::vec((0..15_u8, 0..2_usize, any::<u32>()), 0..120),
        end in 0..4_u8,
    ) {
        let (expires, cancels) = (end == 1, end == 2);
        let frozen = freeze(&audience);
        let mut around = Around {
            job: job(&frozen, Progress::start()),
            frozen,
            metrics: Metrics::new(&Registry::new()),
            lanes: BTreeSet::new(),
            held: [BTreeSet::new(), BTreeSet::new()],
            answered: BTreeSet::new(),
            // Some of the audience, all, or none; strangers among them.
            receipts: receipts(&readers.unwrap_or_else(|| audience.clone())),
            waited_for: BTreeSet::new(),
            spared: BTreeSet::new(),
            was_holding: false,
        };
        around.hold();
        around.check();
        for (action, lane, salt) in actions {
            match action {
                0..=1 => drop(around.walk(salt)),
                2..=5 => drop(around.turn(lane, salt)),
                6..=8 => around.answer(lane, salt as usize % 5),
                9..=11 => around.receive(salt),
                12 => drop(around.job.take_receipts(&around.metrics)),
                13 if salt.is_multiple_of(4) => around.let_go(),
                14 if salt.is_multiple_of(2) => around.crash(salt.is_multiple_of(4)),
                _ => {}
            }
            around.check();
        }
        if expires {
            around.job.walk(0, &around.metrics, NOW.saturating_add(Duration::from_secs(60)));
            around.check();
            prop_assert!(!around.job.is_holding());
            prop_assert_eq!(around.job.in_flight(), around.held.iter().map(|held| held.len() as u64).sum::<u64>());
        }
        if cancels {
            around.job.cancel(&around.metrics);
            around.check();
            prop_assert_eq!(around.job.job_standing(), JobStanding::Cancelled);
            prop_assert_eq!(around.job.in_flight(), around.held.iter().map(|held| held.len() as u64).sum::<u64>());
        }
        while !around.job.is_over() {
            let moved = around.walk(3) | around.turn(0, 3) | around.turn(1, 3);
            let held = around.held.iter().any(|held| !held.is_empty());
            if !(moved || held) {
                prop_assert!(around.job.is_holding(), "nobody has anything to do, but the job is not over");
                around.let_go();
            }
            (0..2).for_each(|lane| around.answer(lane, 100));
        }
        let report = report(&around.job, Timestamp(0));
        prop_assert_eq!(report.state, if cancels { JobState::Cancelled } else { JobState::Finished });
        prop_assert_eq!(report.counts.total(), audience.len() as u64);
        prop_assert_eq!(report.counts.accepted(), around.answered.len() as u64);
        prop_assert!(expires || report.counts.expired() == 0);
        prop_assert!(cancels || report.counts.of(DeviceOutcome::Cancelled) == 0);
        prop_assert!(report.counts.received() <= around.receipts.received().len() || around.spared.is_empty());
    }
}

#[test]
fn only_a_job_that_somebody_of_its_audience_may_answer_waits_and_only_until_its_time() {
    let (audience, others) = (BTreeSet::from([1, 2, 3]), BTreeSet::from([4, 5]));
    let holds = |readers: &BTreeSet<u32>, now| {
        job(&freeze(&audience), Progress::start()).with_receipts(receipts(readers), now).is_holding()
    };
    let late = NOW.saturating_add(Duration::from_secs(2));
    assert!(holds(&audience, NOW) && holds(&(&audience | &others), NOW));
    assert!(!holds(&others, NOW) && !holds(&BTreeSet::new(), NOW) && !holds(&audience, late));
    let job = job(&freeze(&audience), Progress::start());
    assert!(!job.is_holding());
    let wait = Duration::from_secs(2);
    assert_eq!(job.hold_left(Timestamp(NOW.0 + 500)), Duration::from_millis(1500));
    assert_eq!((job.hold_left(late), job.hold_left(Timestamp(0))), (Duration::ZERO, wait), "a clock set back");
}

#[test]
fn who_is_held_when_time_is_over_expires_unless_the_receipt_has_come() {
    let metrics = Metrics::new(&Registry::new());
    let (job, receipts) = all_held(&BTreeSet::from([1, 2, 3]), NOW, &metrics);
    receive(&receipts, DeviceNumber(2));
    assert_eq!(report(&job, Timestamp(6)).done_at, None);
    assert_eq!(job.step(0, LIMITS, &metrics, NOW.saturating_add(Duration::from_secs(60))), Step::Over);
    let last = report(&job, Timestamp(7));
    assert_eq!((last.counts.received(), last.counts.expired(), last.held), (1, 2, 0));
    assert_eq!((last.state, last.done_at), (JobState::Finished, Some(Timestamp(7))));
    assert_eq!(report(&job, Timestamp(8)), last, "whoever asks later is told the same");
    assert!(is_told(&job));
}

#[test]
fn a_stray_outcome_is_told_and_not_counted() {
    let metrics = Metrics::new(&Registry::new());
    let job = job(&freeze(&BTreeSet::from([1, 2])), Progress::start());
    assert_eq!(job.settle(&[settled(1), settled(9)], &metrics, NOW).strays, 2);
    assert_eq!(report(&job, Timestamp(0)).counts.total(), 0);
}
