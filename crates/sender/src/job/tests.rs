//! What a job adds to its books: the time, receipts, and whom it wakes. What is told to newer jobs is in `chain`.

mod chain;

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use tidings_audience::Index;
use tidings_hub::{Arrival, Receipts};
use tidings_protocol::ClientId;
use tidings_push::{Outcome, Ticket};
use tidings_telemetry::Registry;
use tidings_types::{Event, EventId, ReceiptPolicy, ReceiptRequest, Subject, TopicName};

use super::*;

const POSITION: JournalPosition = JournalPosition(3);
const NOW: Timestamp = Timestamp(1_000_000);
const LIMITS: LaneLimits = LaneLimits { window_device_count: 4, in_flight_max: 8 };

/// A receipt whose connection and time do not matter.
fn arrival() -> Arrival {
    Arrival { client: ClientId::from_random(1), at: Timestamp(1) }
}

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
    forgettable(readers).1
}

/// The same, with all receipts of the hub.
fn forgettable(readers: &BTreeSet<u32>) -> (Receipts, Arc<EventReceipts>) {
    let terms = accepted().event.receipt_terms(NOW).unwrap();
    let hub = Receipts::new(1, usize::MAX);
    let receipts = hub.open(&ReceiptRequest { event: POSITION, terms });
    receipts.add_readers(&readers.iter().copied().collect());
    (hub, receipts)
}

/// The hub has room for one event.
fn forget(hub: &Receipts) {
    let terms = accepted().event.receipt_terms(NOW).unwrap();
    hub.open(&ReceiptRequest { event: JournalPosition(POSITION.0 + 1), terms });
}

pub(crate) fn receive(receipts: &EventReceipts, number: DeviceNumber) {
    receipts.on_received("", Some(number), false, arrival());
}

/// A job whose whole audience was walked and is held.
pub(crate) fn all_held(audience: &BTreeSet<u32>, now: Timestamp, metrics: &Metrics) -> (Job, Arc<EventReceipts>) {
    let receipts = receipts(audience);
    let accepted = AcceptedEvent { accepted_at: now, ..accepted() };
    let job = Job::new(POSITION, accepted, freeze(audience), 2, Progress::start()).with_receipts(receipts.clone(), now);
    walk_all(&job, metrics, now);
    (job, receipts)
}

/// The whole audience is of the first lane.
fn walk_all(job: &Job, metrics: &Metrics, now: Timestamp) {
    while let Some(window) = job.open_walk(1024, metrics, now) {
        let findings = vec![Finding::Lane(0); window.devices().len()];
        job.assign(window, &findings, metrics);
    }
}

/// Whether the task that waits for receipts was told that there is nothing to wait for.
fn is_told(job: &Job) -> bool {
    pin!(job.nobody_held()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

fn settled(number: u32) -> Settled {
    let ticket = Ticket { job: POSITION, device: DeviceNumber(number), cell: 0 };
    Settled { ticket, outcome: Outcome::Accepted, token_gone: None, repeats: 0, latency: Duration::ZERO }
}

/// Of two lanes.
fn unbraked() -> Braking {
    let lanes = [(Provider::Apns, AppId::new("one").unwrap()), (Provider::Fcm, AppId::new("two").unwrap())];
    let (_, none) = tokio::sync::watch::channel(Arc::default());
    Braking::new(none, None, Arc::new(lanes))
}

/// Under no brakes.
pub(crate) fn report(job: &Job, now: Timestamp) -> JobReport {
    job.report(&unbraked(), now)
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

/// What was counted stays counted; nobody else is spared a push, and nobody is waited for.
#[test]
fn forgotten_receipts_spare_nobody_a_push_whom_the_job_has_not_counted() {
    let (metrics, audience) = (Metrics::new(&Registry::new()), BTreeSet::from_iter(1..=7));
    let (hub, receipts) = forgettable(&audience);
    [1, 5].into_iter().for_each(|number| receive(&receipts, DeviceNumber(number)));
    let job = job(&freeze(&audience), Progress::start()).with_receipts(receipts.clone(), NOW);
    let window = job.open_walk(4, &metrics, NOW).unwrap();
    job.assign(window, &[Finding::Lane(0); 4], &metrics);
    receive(&receipts, DeviceNumber(2));
    assert!(job.take_receipts(&metrics) && report(&job, NOW).held == 2, "1 and 2 have it");
    [3, 6].into_iter().for_each(|number| receive(&receipts, DeviceNumber(number))); // The job has not looked yet.
    forget(&hub);
    assert!(!job.take_receipts(&metrics) && report(&job, NOW).held == 0);
    walk_all(&job, &metrics, NOW);
    receive(&receipts, DeviceNumber(7));
    job.let_go(&metrics); // Its time is up.
    assert_eq!(job.take_wanted_lanes(), [0]);
    let mut pushed = Vec::new();
    while let Some(window) = job.open_window(0, LIMITS, &metrics, NOW) {
        let findings = vec![Finding::Lane(0); window.devices().len()];
        let devices: Vec<u32> = window.devices().iter().map(|device| device.0).collect();
        job.hand_out(window, &findings, &[], BTreeMap::new(), &metrics);
        pushed.extend(devices.iter().copied());
        devices.into_iter().for_each(|device| assert_eq!(job.settle(&[settled(device)], &metrics, NOW).strays, 0));
    }
    assert_eq!(pushed, [3, 4, 6, 7], "5 had it when the job began");
    let last = report(&job, NOW);
    assert_eq!((last.state, last.counts.received(), last.counts.accepted()), (JobState::Finished, 3, 4));
    assert_eq!((last.held, metrics.devices_held.value()), (0, 0));
}

#[test]
fn a_job_that_begins_when_its_receipts_are_forgotten_pushes_all_at_once() {
    let (metrics, audience) = (Metrics::new(&Registry::new()), BTreeSet::from([1, 2, 3]));
    let (hub, receipts) = forgettable(&audience);
    receive(&receipts, DeviceNumber(1));
    forget(&hub);
    let job = job(&freeze(&audience), Progress::start()).with_receipts(receipts, NOW);
    walk_all(&job, &metrics, NOW);
    assert!(!job.is_holding() && report(&job, NOW).counts.total() == 0);
    assert_eq!(job.open_window(0, LIMITS, &metrics, NOW).unwrap().devices().len(), 3);
}

#[test]
fn a_stray_outcome_is_told_and_not_counted() {
    let metrics = Metrics::new(&Registry::new());
    let job = job(&freeze(&BTreeSet::from([1, 2])), Progress::start());
    assert_eq!(job.settle(&[settled(1), settled(9)], &metrics, NOW).strays, 2);
    assert_eq!(report(&job, Timestamp(0)).counts.total(), 0);
}
