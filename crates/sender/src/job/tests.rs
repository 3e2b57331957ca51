//! The books against a plain model: random steps of walk, lanes, provider and crashes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use tidings_audience::Index;
use tidings_push::{Outcome, Ticket};
use tidings_telemetry::Registry;
use tidings_types::{Event, PushPolicy, Subject, TopicName};

use super::*;

const POSITION: JournalPosition = JournalPosition(3);
const NOW: Timestamp = Timestamp(1_000_000);
const LIMITS: LaneLimits = LaneLimits { window_device_count: 4, in_flight_max: 8 };

fn accepted() -> AcceptedEvent {
    let event = Event {
        id: EventId::new("goal-1").unwrap(),
        topic: TopicName::new("goal").unwrap(),
        subjects: vec![Subject::new("team:1").unwrap()],
        params: BTreeMap::new(),
        data: None,
        channels: Vec::new(),
        push: PushPolicy::Always,
        collapse_key: None,
        ttl: Duration::from_secs(60),
    };
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

/// The world around a job: what each lake and provider hold.
struct Around {
    job: Job,
    frozen: Frozen,
    metrics: Metrics,
    held: [BTreeSet<u32>; 2],
    answered: BTreeSet<u32>,
}

impl Around {
    /// One turn of a lane; true when it had something to do.
    fn turn(&mut self, lane: usize, salt: u32) -> bool {
        match self.job.step(lane, LIMITS, &self.metrics, NOW) {
            Step::Walk(numbers) => {
                let findings: Vec<_> = numbers.iter().map(|&number| (number, finding(number, salt))).collect();
                self.job.assign(&findings, &self.metrics);
            }
            Step::Open(numbers) => {
                assert!(numbers.len() <= LIMITS.window_device_count);
                let findings: Vec<_> = numbers.iter().map(|&number| (number, finding(number, salt))).collect();
                self.job.open(lane, &findings, &self.metrics);
                let mine = findings.iter().filter(|(_, finding)| *finding == Finding::Lane(lane));
                let mine: Vec<u32> = mine.map(|(number, _)| number.0).collect();
                let (sent, back) = mine.split_at(mine.len() - mine.len().min(salt as usize % 3));
                self.job.take_back(lane, back.iter().copied().map(DeviceNumber));
                assert!(sent.iter().all(|&number| self.held[lane].insert(number)), "handed out twice");
                assert!(self.held[lane].len() as u64 <= LIMITS.in_flight_max);
            }
            Step::Wait | Step::Over => return false,
        }
        self.job.check();
        true
    }

    fn answer(&mut self, lane: usize, count: usize) {
        let numbers: Vec<u32> = self.held[lane].iter().copied().take(count).collect();
        let outcomes: Vec<Settled> = numbers.iter().map(|&number| settled(number)).collect();
        assert_eq!(self.job.settle(&outcomes, &self.metrics, NOW), 0);
        for number in numbers {
            self.held[lane].remove(&number);
            assert!(self.answered.insert(number), "answered twice");
        }
        self.job.check();
    }

    /// Killed right after a checkpoint: what is in flight is open again.
    fn crash(&mut self) {
        self.job.spoil_checkpoint();
        let row = self.job.checkpoint().expect("a spoilt checkpoint is written again");
        assert_eq!(self.job.checkpoint(), None, "nothing has changed since");
        let JobRow::Running(progress) = JobRow::decode(POSITION, &row).unwrap() else { panic!("running") };
        self.job = job(&self.frozen, progress);
        self.held.iter_mut().for_each(BTreeSet::clear);
        self.job.check();
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
        actions in prop::collection::vec((0..10_u8, 0..2_usize, any::<u32>()), 0..120),
        expires in any::<bool>(),
    ) {
        let frozen = freeze(&audience);
        let metrics = Metrics::new(&Registry::new());
        let (job, held) = (job(&frozen, Progress::start()), [BTreeSet::new(), BTreeSet::new()]);
        let mut around = Around { job, frozen, metrics, held, answered: BTreeSet::new() };
        around.job.check();
        for (action, lane, salt) in actions {
            match action {
                0..=5 => drop(around.turn(lane, salt)),
                6..=8 => around.answer(lane, salt as usize % 5),
                _ => around.crash(),
            }
        }
        if expires {
            around.job.step(0, LIMITS, &around.metrics, NOW.saturating_add(Duration::from_secs(60)));
            around.job.check();
            prop_assert_eq!(around.job.in_flight(), around.held.iter().map(|held| held.len() as u64).sum::<u64>());
        }
        while !around.job.is_over() {
            let moved = [0, 1].map(|lane| around.turn(lane, 3));
            let held = around.held.iter().any(|held| !held.is_empty());
            prop_assert!(moved[0] || moved[1] || held, "nobody has anything to do, but the job is not over");
            (0..2).for_each(|lane| around.answer(lane, 100));
        }
        let report = around.job.report();
        prop_assert_eq!(report.state, JobState::Finished);
        prop_assert_eq!(report.counts.total(), audience.len() as u64);
        prop_assert_eq!(report.counts.accepted(), around.answered.len() as u64);
        prop_assert!(expires || report.counts.expired() == 0);
    }
}

#[test]
fn a_stray_outcome_is_told_and_not_counted() {
    let metrics = Metrics::new(&Registry::new());
    let job = job(&freeze(&BTreeSet::from([1, 2])), Progress::start());
    assert_eq!(job.settle(&[settled(1), settled(9)], &metrics, NOW), 2);
    assert_eq!(job.report().counts.total(), 0);
}
