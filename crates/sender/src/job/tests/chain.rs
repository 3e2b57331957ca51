//! Several jobs of one collapse key over overlapping audiences, in any interleaving, suspended and started again in
//! any order: nobody is left without news, nobody is shown the older one last, and each job has one outcome for each of its
//! devices.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tidings_jobs::Ready;
use tidings_push::Ticket;

use super::*;
use crate::flow::Flow;
use crate::supersede;
use crate::waiting::{WaitingJob, WaitingJobs};

const JOB_COUNT: usize = 4;
/// Devices that no job can reach.
const UNREACHABLE: u32 = 7;

/// Nothing comes back, and every answer comes.
const PLAIN: u32 = 9;

/// What one event is, whatever happens.
#[derive(Debug, Clone)]
struct Plan {
    /// Who is to be told if the filter says so.
    addressed: BTreeSet<u32>,
    /// Whom its filter never admits.
    refused: BTreeSet<u32>,
    /// Who come and go: the filter admits them when an audience is selected in every second run, and mostly not when
    /// their records are read.
    fickle: BTreeSet<u32>,
    readers: BTreeSet<u32>,
}

impl Plan {
    /// Whom it is for in such a run.
    fn audience(&self, is_odd_run: bool) -> BTreeSet<u32> {
        let is_out = |it: &&u32| self.refused.contains(it) || self.fickle.contains(it) && (**it % 2 == 1) == is_odd_run;
        self.addressed.iter().filter(|it| !is_out(it)).copied().collect()
    }

    fn may_be_for(&self, device: u32) -> bool {
        self.addressed.contains(&device) && !self.refused.contains(&device)
    }
}

fn position(index: usize) -> JournalPosition {
    JournalPosition(index as u64 + 1)
}

/// A notification at the gateway.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    job: usize,
    device: u32,
    /// It is on the wire.
    is_sent: bool,
    /// It was tried, and nobody knows what came of it.
    is_unsure: bool,
}

struct World {
    plans: Vec<Plan>,
    metrics: Metrics,
    /// Those whose events were read in this run; `None` wait, or were finished in an earlier one.
    jobs: Vec<Option<Arc<Job>>>,
    /// None are known of an event that was accepted in an earlier run.
    receipts: Vec<Option<(Receipts, Arc<EventReceipts>)>>,
    waiting: WaitingJobs,
    flow: Flow,
    lake: Vec<Attempt>,
    /// Rows as of the last checkpoint: `None` of a job that was over.
    rows: Vec<Option<Vec<u8>>>,
    /// What a newer job has taken from a job, which is never to hand it out again.
    lost: BTreeSet<(usize, u32)>,
    /// The same as of the last checkpoint.
    lost_in_rows: BTreeSet<(usize, u32)>,
    /// These hand nothing out before the next checkpoint.
    barred: BTreeSet<usize>,
    cancelled: BTreeSet<usize>,
    /// Killed an odd number of times.
    is_odd_run: bool,
    /// How many each job is for, from when it was last selected.
    sizes: [u64; JOB_COUNT],
    /// Handed out by each job in this run.
    handed_out: BTreeSet<(usize, u32)>,
    /// What devices were shown, in order, and when.
    shown: BTreeMap<u32, Vec<(usize, usize)>>,
    /// Counts what is shown.
    clock: usize,
    /// When each job began first.
    begun: BTreeMap<usize, usize>,
    /// The same of this run.
    shown_now: BTreeMap<u32, usize>,
    /// Got an answer of whatever kind, or a receipt.
    reached: BTreeSet<(usize, u32)>,
}

impl World {
    fn new(plans: Vec<Plan>) -> Self {
        Self {
            plans,
            metrics: Metrics::new(&Registry::new()),
            jobs: Vec::new(),
            receipts: Vec::new(),
            waiting: WaitingJobs::default(),
            flow: Flow::new(2),
            lake: Vec::new(),
            rows: Vec::new(),
            lost: BTreeSet::new(),
            lost_in_rows: BTreeSet::new(),
            barred: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            is_odd_run: false,
            sizes: [0; JOB_COUNT],
            handed_out: BTreeSet::new(),
            shown: BTreeMap::new(),
            clock: 0,
            begun: BTreeMap::new(),
            shown_now: BTreeMap::new(),
            reached: BTreeSet::new(),
        }
    }

    fn accepted() -> AcceptedEvent {
        let mut accepted = accepted();
        accepted.event.collapse_key = Some(CollapseKey::new("score").unwrap());
        accepted
    }

    /// The next event is read from the journal, and finds no slot.
    fn park(&mut self, has_receipts: bool) {
        let index = self.jobs.len();
        let is_new = !self.begun.contains_key(&index); // Of events of an earlier run no receipts are known.
        self.begun.entry(index).or_insert(usize::MAX);
        self.receipts.push((is_new && has_receipts).then(|| forgettable(&self.plans[index].readers)));
        self.jobs.push(None);
        self.waiting.insert(position(index), WaitingJob::unbegun(&Self::accepted()), &self.flow, NOW);
        self.check();
    }

    /// The next event has its turn at once.
    fn begin(&mut self, has_receipts: bool) {
        self.park(has_receipts);
        self.bring_back(self.jobs.len() - 1);
    }

    /// Who has no outcome of a waiting job, which is for so many from here on.
    fn select(&mut self, index: usize) -> RoaringBitmap {
        let progress = self.waiting.get(position(index)).unwrap().progress();
        let open = WaitingJob::open_devices(progress, &freeze(&self.plans[index].audience(self.is_odd_run)));
        self.sizes[index] = progress.tally.counts.total() + open.len();
        open
    }

    /// As the dispatcher does it.
    fn freeze_older(&mut self, mine: &RoaringBitmap, index: usize, key: &CollapseKey) {
        for older in self.waiting.unfrozen_older_of(key, position(index)) {
            let rest = self.select(older.0 as usize - 1);
            let taken = &rest & mine;
            self.lost.extend(taken.iter().map(|device| (older.0 as usize - 1, device)));
            self.waiting.freeze(older, rest - &taken, taken.len(), &self.metrics);
        }
    }

    /// A waiting job starts, as the dispatcher does it.
    fn bring_back(&mut self, index: usize) {
        if self.waiting.get(position(index)).is_none() {
            return;
        }
        let (accepted, is_cancelled) = (Self::accepted(), self.cancelled.contains(&index));
        let key = accepted.event.collapse_key.clone().unwrap();
        let waiting_older = self.waiting.older_of(&key, position(index));
        let mine = self.select(index);
        if !is_cancelled {
            self.freeze_older(&mine, index, &key);
        }
        let begun = self.begun.entry(index).or_default();
        *begun = (*begun).min(self.clock);
        let waiting = self.waiting.remove(position(index)).unwrap();
        let frozen = if waiting.is_frozen() { BTreeSet::new() } else { self.plans[index].audience(self.is_odd_run) };
        let receipts = self.receipts[index].as_ref().map(|(_, receipts)| receipts.clone());
        let receipts = receipts.filter(|_| !waiting.has_begun());
        let job = Job::new(position(index), accepted, freeze(&frozen), 2, waiting.into_progress());
        let job = Arc::new(match receipts {
            Some(receipts) => job.with_receipts(receipts, NOW),
            None => job,
        });
        if is_cancelled {
            job.cancel(&self.metrics);
        } else {
            let older: Vec<_> = self.jobs[..index].iter().flatten().cloned().collect();
            let shared = supersede::shared(&job, &older, self.waiting.open_devices(&waiting_older));
            for older in &older {
                let lost = older.open_devices() & &shared;
                self.lost.extend(lost.iter().map(|device| (older.position.0 as usize - 1, device)));
            }
            for older in &waiting_older {
                let lost = self.waiting.open_devices(&[*older]) & &shared;
                self.lost.extend(lost.iter().map(|device| (older.0 as usize - 1, device)));
            }
            if !(0..index).all(|older| self.is_written(older)) {
                job.bar();
                self.barred.insert(index);
            }
            supersede::begin(&job, &older, &shared, &self.metrics);
            self.waiting.supersede(&waiting_older, &shared, &self.metrics);
        }
        self.jobs[index] = Some(job);
        self.check();
    }

    /// Whether a job is finished in the last checkpoint, too.
    fn is_written(&self, index: usize) -> bool {
        let is_done = self.waiting.get(position(index)).is_none() && self.job(index).is_none_or(|job| job.is_over());
        is_done && self.rows.get(index).is_some_and(Option::is_none)
    }

    /// A running job is suspended, if it can be.
    fn suspend(&mut self, index: usize) {
        let Some(job) = self.job(index) else { return };
        let Some((progress, lanes)) = job.suspend(&self.metrics) else { return };
        assert!(job.is_over(), "its tasks end");
        assert!(self.lake.iter().all(|attempt| attempt.job != index), "something of it is in flight");
        self.waiting.insert(position(index), WaitingJob::suspended(&job.accepted, progress, lanes), &self.flow, NOW);
        self.jobs[index] = None;
        self.check();
    }

    fn job(&self, index: usize) -> Option<Arc<Job>> {
        self.jobs.get(index).cloned().flatten()
    }

    fn finding(&self, index: usize, number: DeviceNumber, salt: u32) -> Finding {
        assert!(self.plans[index].may_be_for(number.0), "{number:?} is none of job {index}");
        if self.plans[index].fickle.contains(&number.0) && salt % 8 < 6 {
            Finding::Suppressed(Suppression::Filtered)
        } else if number.0 % 10 == UNREACHABLE {
            Finding::Suppressed(Suppression::NoToken)
        } else {
            Finding::Lane(((number.0 + salt / 8) % 2) as usize)
        }
    }

    fn walk(&mut self, index: usize, salt: u32) -> bool {
        let Some(job) = self.job(index) else { return false };
        let window = job.open_walk(LIMITS.window_device_count, &self.metrics, NOW);
        if salt.is_multiple_of(3) {
            self.attempt(salt);
        }
        let Some(window) = window else { return false };
        let findings: Vec<_> = window.devices().iter().map(|&number| self.finding(index, number, salt)).collect();
        job.assign(window, &findings, &self.metrics);
        true
    }

    fn open(&mut self, index: usize, lane: usize, salt: u32) -> bool {
        let Some(job) = self.job(index) else { return false };
        job.take_wanted_lanes();
        let Some(window) = job.open_window(lane, LIMITS, &self.metrics, NOW) else { return false };
        if salt.is_multiple_of(3) {
            self.attempt(salt);
        }
        let findings: Vec<_> = window.devices().iter().map(|&number| self.finding(index, number, salt)).collect();
        let outgoing = job.hand_out(window, &findings, &[], BTreeMap::new(), &self.metrics);
        let mine: Vec<u32> = outgoing.devices().iter().map(|number| number.0).collect();
        let (sent, back) = mine.split_at(mine.len() - mine.len().min(salt as usize % 3));
        for &device in sent {
            assert!(!self.barred.contains(&index), "{device} is handed out before a checkpoint has what {index} took");
            assert!(self.handed_out.insert((index, device)), "job {index} handed {device} out twice");
            assert!(!self.lost.contains(&(index, device)), "job {index} has {device} back");
            let rival = self.lake.iter().find(|other| other.device == device);
            assert!(rival.is_none(), "{device} is on its way for {rival:?} and for {index}");
            self.lake.push(Attempt { job: index, device, is_sent: false, is_unsure: false });
        }
        if salt.is_multiple_of(5) && index + 1 == self.jobs.len() && self.jobs.len() < JOB_COUNT {
            self.begin(true); // While this one waits for room.
        }
        job.put_back(outgoing, back.iter().copied().map(DeviceNumber), &self.metrics);
        true
    }

    /// The gateway turns to one of its notifications.
    fn attempt(&mut self, salt: u32) {
        if self.lake.is_empty() {
            return;
        }
        let place = salt as usize / 16 % self.lake.len();
        let Attempt { job: index, device, is_sent, is_unsure } = self.lake[place];
        let job = self.job(index).expect("what is in flight is of a running job");
        let ticket = Ticket { job: job.position, device: DeviceNumber(device), cell: 0 };
        let standing = match job.job_standing() {
            JobStanding::Go => Standing::Go,
            JobStanding::Cancelled => Standing::Cancelled,
            JobStanding::AskEach => job.standing(ticket.device),
        };
        let outcome = match standing {
            // What has gone out cannot be called back: it is shown, and mostly answered.
            _ if is_sent => {
                self.show(index, device);
                if salt.is_multiple_of(4) {
                    self.lake[place] = Attempt { job: index, device, is_sent: false, is_unsure: true };
                    return;
                }
                Outcome::Accepted
            }
            Standing::Go => {
                self.lake[place].is_sent = true;
                return;
            }
            Standing::Cancelled => Outcome::Cancelled,
            Standing::Superseded => Outcome::Superseded,
        };
        let outcome = if is_unsure { outcome.after_unknown() } else { outcome };
        self.lake.swap_remove(place);
        let settled = Settled { ticket, outcome, token_gone: None, repeats: 0, latency: Duration::ZERO };
        assert_eq!(job.settle(&[settled], &self.metrics, NOW).strays, 0);
    }

    fn show(&mut self, index: usize, device: u32) {
        let last = self.shown_now.insert(device, index);
        assert!(last.is_none_or(|last| last <= index), "{device} is shown {index} after {last:?}");
        self.clock += 1;
        self.shown.entry(device).or_default().push((index, self.clock));
        self.reached.insert((index, device));
    }

    fn receive(&mut self, index: usize, salt: u32) {
        let Some(Some((_, receipts))) = self.receipts.get(index) else { return };
        if receipts.is_forgotten() {
            return;
        }
        let audience: Vec<u32> = self.plans[index].readers.iter().copied().collect();
        let Some(&device) = audience.get(salt as usize % audience.len().max(1)) else { return };
        receive(receipts, DeviceNumber(device));
        self.reached.insert((index, device));
        if let Some(job) = self.job(index) {
            job.take_receipts(&self.metrics);
        }
    }

    /// The hub forgets the event's receipts; the job may look at once, or later.
    fn forget(&mut self, index: usize, looks: bool) {
        let Some(Some((hub, _))) = self.receipts.get(index) else { return };
        forget(hub);
        if let Some(job) = self.job(index).filter(|_| looks) {
            assert!(!job.take_receipts(&self.metrics), "nobody is held any more");
        }
    }

    fn checkpoint(&mut self) {
        let running = |job: &Arc<Job>| {
            if job.is_over() {
                return None;
            }
            job.spoil_checkpoint();
            job.checkpoint()
        };
        (0..self.jobs.len()).for_each(|index| self.waiting.spoil_checkpoint(position(index)));
        let waiting =
            self.waiting.take_dirty().into_iter().map(|(at, progress)| (at, JobRow::Running(progress).encode()));
        let waiting: BTreeMap<_, _> = waiting.collect();
        let jobs = self.jobs.iter().enumerate();
        let row = |(index, job): (_, &Option<_>)| match job {
            Some(job) => running(job),
            None => waiting.get(&position(index)).cloned(),
        };
        self.rows = jobs.map(row).collect();
        self.lost_in_rows = self.lost.clone();
        self.barred.clear();
        self.jobs.iter().flatten().for_each(|job| job.unbar(&self.metrics));
    }

    /// Killed and started again: all jobs of the last checkpoint wait.
    fn crash(&mut self) {
        self.jobs.clear();
        self.receipts.clear();
        self.lake.clear();
        self.barred.clear();
        self.waiting = WaitingJobs::default();
        self.handed_out.clear();
        self.shown_now.clear();
        self.lost = self.lost_in_rows.clone();
        self.is_odd_run = !self.is_odd_run;
        self.metrics.devices_held.set(0);
        for (index, row) in self.rows.iter().enumerate() {
            self.jobs.push(None);
            self.receipts.push(None);
            let Some(row) = row else { continue };
            let JobRow::Running(progress) = JobRow::decode(POSITION, row).unwrap() else { panic!("running") };
            self.waiting.insert(position(index), WaitingJob::restored(&Self::accepted(), progress), &self.flow, NOW);
        }
    }

    fn check(&self) {
        for (index, job) in self.jobs.iter().enumerate() {
            let audience = self.sizes[index];
            if let Some(job) = job {
                job.lock().books.check(audience);
            } else if let Some(waiting) = self.waiting.get(position(index)).filter(|waiting| waiting.is_frozen()) {
                assert_eq!(waiting.report(position(index), &unbraked()).audience, audience);
            }
        }
    }

    /// Lets everything come to its end.
    fn finish(&mut self) {
        while self.jobs.len() < JOB_COUNT {
            self.begin(true);
        }
        while let Some((_, position)) = self.waiting.first_ready(Ready::ToEnd, &self.flow, NOW) {
            self.bring_back(position.0 as usize - 1);
        }
        while self.jobs.iter().flatten().any(|job| !job.is_over()) {
            let mut has_moved = !self.lake.is_empty();
            for index in 0..JOB_COUNT {
                has_moved |= self.walk(index, PLAIN) | self.open(index, 0, PLAIN) | self.open(index, 1, PLAIN);
            }
            (0..2 * self.lake.len()).for_each(|_| self.attempt(PLAIN));
            if !has_moved && !self.barred.is_empty() {
                self.checkpoint();
            } else if !has_moved {
                let holding: Vec<_> = self.jobs.iter().flatten().filter(|job| job.is_holding()).cloned().collect();
                assert!(!holding.is_empty(), "nobody has anything to do, but a job is not over");
                holding.iter().for_each(|job| job.let_go(&self.metrics));
            }
            self.check();
        }
    }

    fn check_end(&self) {
        for (index, job) in self.jobs.iter().enumerate() {
            let Some(job) = job else { continue };
            assert_eq!(report(job, NOW).counts.total(), self.sizes[index]);
        }
        assert_eq!(self.metrics.devices_held.value(), 0);
        let all: BTreeSet<u32> = self.plans.iter().flat_map(|plan| plan.addressed.iter().copied()).collect();
        for device in all.into_iter().filter(|device| device % 10 != UNREACHABLE) {
            let is_for = |index: &usize| self.plans[*index].may_be_for(device);
            let shown: Vec<(usize, usize)> = self.shown.get(&device).cloned().unwrap_or_default();
            let last = shown.last().map(|(index, _)| *index);
            let newest_shown = shown.iter().map(|(index, _)| *index).max();
            assert_eq!(last, newest_shown, "{device} is shown an older one last: {shown:?}");
            if (0..JOB_COUNT).filter(is_for).any(|index| self.cancelled.contains(&index)) {
                continue; // What a cancelled job took it does not give back.
            }
            // Who leaves what has taken it from an older one gets neither.
            let is_certain = |index: &usize| !self.plans[*index].fickle.contains(&device);
            let Some(newest) = (0..JOB_COUNT).rfind(is_for).filter(is_certain) else { continue };
            let has_news = self.reached.contains(&(newest, device)) || last > Some(newest);
            assert!(has_news, "{device} is left without the news of {newest}");
            // Who has it over a live connection is still pushed, when an older one may have come after it.
            let is_overtaken = shown.iter().any(|(index, at)| *index < newest && *at > self.begun[&newest]);
            assert!(!is_overtaken || last >= Some(newest), "{device} has {newest}, and then was shown {shown:?}");
        }
    }
}

fn plan() -> impl Strategy<Value = Plan> {
    let set = |size: std::ops::Range<usize>| prop::collection::btree_set(0..24_u32, size);
    let sets = (set(1..24), set(0..6), set(0..6), set(0..8));
    sets.prop_map(|(addressed, refused, fickle, readers)| Plan { addressed, refused, fickle, readers })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn a_newer_event_takes_over_whatever_happens_in_between(
        plans in prop::collection::vec(plan(), JOB_COUNT),
        actions in prop::collection::vec((0..34_u8, 0..JOB_COUNT, 0..2_usize, any::<u32>()), 0..150),
    ) {
        let mut world = World::new(plans);
        world.begin(true);
        for (action, index, lane, salt) in actions {
            match action {
                0..=5 => drop(world.walk(index, salt)),
                6..=11 => drop(world.open(index, lane, salt)),
                12..=16 => world.attempt(salt),
                17..=18 => world.receive(index, salt),
                19 | 24 if world.jobs.len() < JOB_COUNT => world.begin(true),
                20 | 32..=33 => world.checkpoint(),
                21 => if let Some(job) = world.job(index) { job.let_go(&world.metrics) },
                22 if salt.is_multiple_of(4) => {
                    match world.job(index) {
                        Some(job) if !job.is_over() => {
                            world.cancelled.insert(index);
                            job.cancel(&world.metrics);
                        }
                        None if world.waiting.get(position(index)).is_some() => drop(world.cancelled.insert(index)),
                        _ => {}
                    }
                }
                23 if salt.is_multiple_of(3) => world.crash(),
                25 if world.jobs.len() < JOB_COUNT => world.park(true),
                26..=27 => world.suspend(index),
                28..=30 => world.bring_back(index),
                31 => world.forget(index, salt.is_multiple_of(2)),
                _ => {}
            }
            world.check();
        }
        world.finish();
        world.check_end();
    }
}

/// For one device, which reads it.
fn only(device: u32) -> Plan {
    let [addressed, readers] = [(); 2].map(|()| BTreeSet::from([device]));
    Plan { addressed, refused: BTreeSet::new(), fickle: BTreeSet::new(), readers }
}

/// The older one is on the wire when the newer one's receipt comes: whichever is shown first, the newer one is last.
#[test]
fn who_may_be_shown_the_older_one_after_a_receipt_of_the_newer_is_pushed_that_too() {
    let plan = only(1);
    let mut world = World::new(vec![plan; JOB_COUNT]);
    world.begin(false);
    world.walk(0, PLAIN);
    for lane in 0..2 {
        world.open(0, lane, 13);
    }
    assert_eq!(world.lake.len(), 0, "one that comes back");
    for lane in 0..2 {
        world.open(0, lane, 2 * 2 * 3);
    }
    world.attempt(PLAIN);
    assert!(world.lake[0].is_sent);
    world.begin(true);
    world.receive(1, 0);
    world.walk(1, PLAIN);
    world.checkpoint();
    assert_eq!(report(&world.job(1).unwrap(), NOW).counts.received(), 0);
    world.plans.truncate(2);
    while world.job(1).is_some_and(|job| !job.is_over()) {
        for lane in 0..2 {
            world.open(1, lane, PLAIN);
        }
        world.attempt(PLAIN);
    }
    assert_eq!(world.shown[&1].iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 1]);
}

/// As before, and the newer one is suspended when it has walked: its receipts count no more when it starts again.
#[test]
fn also_when_the_newer_one_was_suspended_in_between() {
    let plan = only(1);
    let mut world = World::new(vec![plan; 2]);
    world.begin(false);
    world.walk(0, PLAIN);
    (0..2).for_each(|lane| assert_eq!(world.open(0, lane, 2 * 2 * 3), lane == 0));
    world.attempt(PLAIN);
    assert!(world.lake[0].is_sent);
    world.begin(true);
    world.receive(1, 0);
    world.walk(1, 10); // Without a turn of the gateway.
    world.suspend(1);
    assert!(world.job(1).is_some(), "it waits for what is in flight");
    world.attempt(PLAIN);
    world.suspend(1);
    assert!(world.job(1).is_none());
    world.bring_back(1);
    world.walk(1, PLAIN);
    world.checkpoint();
    (0..2).for_each(|lane| assert_eq!(world.open(1, lane, 2 * 2 * 3), lane == 0));
    (0..2).for_each(|_| world.attempt(PLAIN));
    assert_eq!(world.shown[&1].iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 1]);
}

/// The newer one was told by then. The older has not come so far in its walk, and after a crash it selects anew.
#[test]
fn who_moves_into_the_filter_of_an_older_one_is_not_told_that_after_the_newer() {
    let addressed = BTreeSet::from([1, 2]);
    let older = Plan { addressed, fickle: BTreeSet::from([2]), ..only(1) };
    let mut world = World::new(vec![older, only(2), only(3), only(4)]);
    world.begin(false);
    assert_eq!(world.sizes[0], 1);
    world.begin(false);
    world.walk(1, PLAIN);
    world.checkpoint();
    (0..2).for_each(|lane| _ = world.open(1, lane, 2 * 2 * 3));
    (0..2).for_each(|_| world.attempt(PLAIN));
    assert_eq!(world.shown.keys().copied().collect::<Vec<_>>(), [2]);
    world.checkpoint();
    world.crash();
    world.bring_back(0);
    world.walk(0, 6);
    (0..2).for_each(|lane| _ = world.open(0, lane, 6));
    world.finish();
    world.check_end();
    assert_eq!(world.shown.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4]);
}

/// One device, which is in the audience of the newer one before the crash only.
fn with_one_that_leaves_the_newer() -> World {
    let newer = Plan { fickle: BTreeSet::from([3]), ..only(3) };
    World::new(vec![only(3), newer, only(4), only(5)])
}

/// The row of the older has the device until the newer is shown, and the newer does not take it over once more.
#[test]
fn a_device_that_left_the_newer_after_it_was_shown_is_not_shown_the_older_after_a_crash() {
    let mut world = with_one_that_leaves_the_newer();
    world.begin(false);
    world.checkpoint();
    world.begin(false);
    world.walk(1, 6);
    (0..2).for_each(|lane| assert!(!world.open(1, lane, 6), "no row says that it has taken over"));
    world.checkpoint();
    assert!((0..2).any(|lane| world.open(1, lane, 6)));
    (0..2).for_each(|_| world.attempt(PLAIN));
    assert_eq!(world.shown[&3].len(), 1);
    world.crash();
    world.finish();
    world.check_end();
    assert_eq!(world.shown[&3].iter().map(|(index, _)| *index).collect::<Vec<_>>(), [1]);
}

/// The older is done, and its row does not say so yet.
#[test]
fn also_when_the_older_was_done_after_the_last_checkpoint() {
    let mut world = with_one_that_leaves_the_newer();
    world.begin(false);
    world.checkpoint();
    world.walk(0, PLAIN);
    (0..2).for_each(|lane| _ = world.open(0, lane, 6));
    (0..2).for_each(|_| world.attempt(PLAIN));
    assert!(world.job(0).unwrap().is_over());
    world.begin(false);
    world.walk(1, 6);
    (0..2).for_each(|lane| assert!(!world.open(1, lane, 6), "its row would go on"));
    world.checkpoint();
    assert!((0..2).any(|lane| world.open(1, lane, 6)));
    (0..2).for_each(|_| world.attempt(PLAIN));
    world.crash();
    world.finish();
    world.check_end();
    assert_eq!(world.shown[&3].iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 1]);
}

/// Each device of `older` is in flight.
fn all_in_flight(older: &Job, metrics: &Metrics) {
    walk_all(older, metrics, NOW);
    older.take_wanted_lanes();
    while let Some(window) = older.open_window(0, LIMITS, metrics, NOW) {
        let findings = vec![Finding::Lane(0); window.devices().len()];
        drop(older.hand_out(window, &findings, &[], BTreeMap::new(), metrics));
    }
}

/// A newer job that takes what it can from `older`.
fn take_over(older: &[Arc<Job>], audience: &BTreeSet<u32>, metrics: &Metrics) -> Arc<Job> {
    let newer = Arc::new(job(&freeze(audience), Progress::start()));
    let shared = supersede::shared(&newer, older, RoaringBitmap::new());
    supersede::begin(&newer, older, &shared, metrics);
    newer
}

#[test]
fn while_a_device_of_the_oldest_is_in_flight_newer_jobs_come_and_go_and_the_newest_has_it_in_the_end() {
    let (metrics, audience) = (Metrics::new(&Registry::new()), BTreeSet::from([1]));
    let oldest = Arc::new(job(&freeze(&audience), Progress::start()));
    all_in_flight(&oldest, &metrics);
    let mut newest = take_over(std::slice::from_ref(&oldest), &audience, &metrics);
    for _ in 0..1000 {
        let newer = take_over(&[oldest.clone(), newest.clone()], &audience, &metrics);
        assert!(newest.is_over());
        let retired = Arc::downgrade(&std::mem::replace(&mut newest, newer));
        assert_eq!((retired.strong_count(), oldest.lock().books.newer_len()), (0, 1), "nothing is kept of it");
        oldest.lock().books.check(1);
    }
    walk_all(&newest, &metrics, NOW);
    assert_eq!(newest.step(0, LIMITS, &metrics, NOW), Step::Wait);
    assert_eq!(oldest.settle(&[settled(1)], &metrics, NOW).strays, 0);
    assert_eq!(newest.step(0, LIMITS, &metrics, NOW), Step::Open);
    assert!(oldest.is_over() && oldest.lock().books.newer_len() == 0);
}

#[test]
fn who_waits_for_other_devices_is_forgotten_when_it_is_over() {
    let (metrics, audience) = (Metrics::new(&Registry::new()), BTreeSet::from_iter(1..=8));
    let oldest = Arc::new(job(&freeze(&audience), Progress::start()));
    all_in_flight(&oldest, &metrics);
    assert_eq!(oldest.in_flight(), 8);
    for number in audience {
        let newer = take_over(std::slice::from_ref(&oldest), &BTreeSet::from([number]), &metrics);
        newer.cancel(&metrics);
        assert_eq!((Arc::strong_count(&newer), oldest.lock().books.newer_len()), (1, 1));
    }
}

#[test]
fn the_row_of_the_older_has_nothing_left_of_what_the_newer_waits_for() {
    let (metrics, audience) = (Metrics::new(&Registry::new()), BTreeSet::from([1, 2]));
    let older = Arc::new(job(&freeze(&audience), Progress::start()));
    all_in_flight(&older, &metrics);
    let newer = take_over(std::slice::from_ref(&older), &BTreeSet::from([2]), &metrics);
    let row = || {
        let JobRow::Running(progress) = JobRow::decode(POSITION, &older.checkpoint()?).unwrap() else { return None };
        Some((progress.outstanding, progress.tally.counts.of(DeviceOutcome::Superseded)))
    };
    assert_eq!(row(), Some((RoaringBitmap::from([1]), 1)));
    newer.end(&metrics, newer.expires_at);
    assert!(newer.is_over());
    older.settle(&[settled(2)], &metrics, NOW);
    assert_eq!(row(), Some((RoaringBitmap::from([1]), 0)), "its own outcome counts when it comes");
}
