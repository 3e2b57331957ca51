//! The books against a plain model: random steps of walk, lanes, provider, receipts and crashes.

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
    AcceptedEvent { accepted_at: NOW, published: Vec::new(), event }
}

fn freeze(audience: &BTreeSet<u32>) -> Frozen {
    let AcceptedEvent { event, .. } = accepted();
    let mut index = Index::new();
    for &number in audience {
        index.insert(DeviceNumber(number), &event.subjects[0], &event.topic);
    }
    index.freeze(&event.topic, &event.subjects)
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
    let limits = LaneLimits { window_device_count: 1024, in_flight_max: 1024 };
    while let Step::Walk(numbers) = job.step(0, limits, metrics, now) {
        let findings: Vec<_> = numbers.into_iter().map(|number| (number, Finding::Lane(0))).collect();
        job.assign(&findings, metrics);
    }
    (job, receipts)
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
    let ticket = Ticket { job: POSITION, device: DeviceNumber(number) };
    Settled { ticket, outcome: Outcome::Accepted, token_gone: None, latency: Duration::ZERO }
}

/// The world around a job: what each lake and provider hold, and who may answer over a connection.
struct Around {
    job: Job,
    frozen: Frozen,
    metrics: Metrics,
    held: [BTreeSet<u32>; 2],
    answered: BTreeSet<u32>,
    receipts: Arc<EventReceipts>,
    /// Must not be handed out: there is time left, or they have answered in time.
    waited_for: BTreeSet<u32>,
    spared: BTreeSet<u32>,
    was_holding: bool,
}

impl Around {
    /// One turn of a lane; true when it had something to do.
    fn turn(&mut self, lane: usize, salt: u32) -> bool {
        match self.job.step(lane, LIMITS, &self.metrics, NOW) {
            Step::Walk(numbers) => {
                self.meddle(salt);
                let findings: Vec<_> = numbers.iter().map(|&number| (number, finding(number, salt))).collect();
                self.job.assign(&findings, &self.metrics);
            }
            Step::Open(numbers) => {
                assert!(numbers.len() <= LIMITS.window_device_count);
                self.meddle(salt);
                let findings: Vec<_> = numbers.iter().map(|&number| (number, finding(number, salt))).collect();
                self.job.open(lane, &findings, &self.metrics);
                let mine = findings.iter().filter(|(_, finding)| *finding == Finding::Lane(lane));
                let mine: Vec<u32> = mine.map(|(number, _)| number.0).collect();
                let (sent, back) = mine.split_at(mine.len() - mine.len().min(salt as usize % 3));
                self.job.take_back(lane, back.iter().copied().map(DeviceNumber));
                assert!(sent.iter().all(|&number| self.held[lane].insert(number)), "handed out twice");
                let unasked = |number| self.waited_for.contains(number) || self.spared.contains(number);
                assert!(!mine.iter().any(unasked), "who may answer or has is not pushed");
                assert!(self.held[lane].len() as u64 <= LIMITS.in_flight_max);
            }
            Step::Wait | Step::Over => return false,
        }
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
        assert!(!self.job.is_holding() && self.job.report(Timestamp(0)).held == 0);
        self.waited_for.clear();
        self.was_holding = false;
    }

    fn check(&mut self) {
        self.job.check();
        assert_eq!(self.metrics.devices_held.value(), self.job.report(Timestamp(0)).held as i64);
        let is_holding = self.job.is_holding();
        assert!(!self.was_holding || is_holding || is_told(&self.job), "nobody says that the wait is over");
        self.was_holding = is_holding;
    }

    fn answer(&mut self, lane: usize, count: usize) {
        let numbers: Vec<u32> = self.held[lane].iter().copied().take(count).collect();
        let outcomes: Vec<Settled> = numbers.iter().map(|&number| settled(number)).collect();
        assert_eq!(self.job.settle(&outcomes, &self.metrics, NOW), 0);
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
        expires in any::<bool>(),
    ) {
        let frozen = freeze(&audience);
        let mut around = Around {
            job: job(&frozen, Progress::start()),
            frozen,
            metrics: Metrics::new(&Registry::new()),
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
                0..=5 => drop(around.turn(lane, salt)),
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
            around.job.step(0, LIMITS, &around.metrics, NOW.saturating_add(Duration::from_secs(60)));
            around.check();
            prop_assert!(!around.job.is_holding());
            prop_assert_eq!(around.job.in_flight(), around.held.iter().map(|held| held.len() as u64).sum::<u64>());
        }
        while !around.job.is_over() {
            let moved = [0, 1].map(|lane| around.turn(lane, 3));
            let held = around.held.iter().any(|held| !held.is_empty());
            if !(moved[0] || moved[1] || held) {
                prop_assert!(around.job.is_holding(), "nobody has anything to do, but the job is not over");
                around.let_go();
            }
            (0..2).for_each(|lane| around.answer(lane, 100));
        }
        let report = around.job.report(Timestamp(0));
        prop_assert_eq!(report.state, JobState::Finished);
        prop_assert_eq!(report.counts.total(), audience.len() as u64);
        prop_assert_eq!(report.counts.accepted(), around.answered.len() as u64);
        prop_assert!(expires || report.counts.expired() == 0);
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
    assert_eq!(job.report(Timestamp(6)).done_at, None);
    assert_eq!(job.step(0, LIMITS, &metrics, NOW.saturating_add(Duration::from_secs(60))), Step::Over);
    let report = job.report(Timestamp(7));
    assert_eq!((report.counts.received(), report.counts.expired(), report.held), (1, 2, 0));
    assert_eq!((report.state, report.done_at), (JobState::Finished, Some(Timestamp(7))));
    assert_eq!(job.report(Timestamp(8)), report, "whoever asks later is told the same");
    assert!(is_told(&job));
}

#[test]
fn a_stray_outcome_is_told_and_not_counted() {
    let metrics = Metrics::new(&Registry::new());
    let job = job(&freeze(&BTreeSet::from([1, 2])), Progress::start());
    assert_eq!(job.settle(&[settled(1), settled(9)], &metrics, NOW), 2);
    assert_eq!(job.report(Timestamp(0)).counts.total(), 0);
}
