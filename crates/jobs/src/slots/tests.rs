//! The rules as tables, and random histories against a plain model that finds everything out anew each time.

use proptest::prelude::*;

use super::*;

const HIGH: EventPriority = EventPriority::High;
const NORMAL: EventPriority = EventPriority::Normal;
const LOW: EventPriority = EventPriority::Low;

fn at(position: u64) -> JournalPosition {
    JournalPosition(position)
}

/// A running job: its position and priority, and whether it is idle.
type Running = (u64, EventPriority, bool);

/// So many slots, with these running jobs, which were looked at.
fn slots(job_count_max: usize, running: &[Running]) -> Slots {
    let mut slots = Slots::new(job_count_max, usize::MAX);
    running.iter().for_each(|_| slots.on_started(1));
    slots.on_look(running.iter().map(|&(position, priority, is_idle)| (priority, at(position), is_idle)));
    slots
}

#[test]
fn a_slot_is_claimed_from_the_least_urgent_then_youngest_job() {
    let cases: [(&str, &[Running], EventPriority, Claim); 7] = [
        ("a free slot", &[(1, HIGH, false)], LOW, Claim::Granted),
        ("an idle job holds none", &[(1, HIGH, false), (2, HIGH, true)], LOW, Claim::Granted),
        ("all are as urgent", &[(1, NORMAL, false), (2, NORMAL, false)], NORMAL, Claim::Denied),
        ("all are more urgent", &[(1, HIGH, false), (2, HIGH, false)], LOW, Claim::Denied),
        ("the least urgent", &[(1, LOW, false), (2, NORMAL, false)], HIGH, Claim::Suspend(at(1))),
        ("the youngest", &[(1, LOW, false), (2, LOW, false)], NORMAL, Claim::Suspend(at(2))),
        ("idle ones take none", &[(1, LOW, true), (2, NORMAL, false), (3, HIGH, false)], HIGH, Claim::Suspend(at(2))),
    ];
    for (case, running, priority, claim) in cases {
        assert_eq!(slots(2, running).claim(priority), claim, "{case}");
    }
}

#[test]
fn an_urgent_job_starts_in_addition_when_no_less_urgent_one_can_be_suspended() {
    let mut slots = slots(2, &[(1, LOW, false), (2, NORMAL, false)]);
    assert_eq!(slots.claim(HIGH), Claim::Suspend(at(1)));
    assert_eq!(slots.claim(HIGH), Claim::Suspend(at(2)), "the first has something in flight");
    for _ in 0..2 {
        assert_eq!(slots.claim(HIGH), Claim::Granted, "and so has the other");
        slots.on_started(1);
    }
    assert_eq!(slots.claim(HIGH), Claim::Denied, "twice as many are the limit");
    assert_eq!(slots.claim(LOW), Claim::Denied);
    slots.on_stopped(LOW, at(1), 1);
    assert_eq!(slots.claim(HIGH), Claim::Granted);
    assert_eq!(slots.claim(NORMAL), Claim::Granted, "there was a job of low priority at the last look");
}

#[test]
fn the_last_running_jobs_are_for_more_urgent_ones() {
    let idle: Vec<_> = (0..16).map(|position| (position, LOW, true)).collect();
    let free = |count: usize| EventPriority::ALL.map(|priority| slots(1, &idle[..count]).free(priority));
    assert_eq!((free(13), free(14), free(15), free(16)), ([1, 1, 1], [1, 1, 0], [1, 0, 0], [0, 0, 0]));
}

#[test]
fn the_last_memory_is_for_more_urgent_jobs() {
    let free = |bytes: usize| {
        let mut slots = Slots::new(9, 32);
        slots.on_started(bytes);
        EventPriority::ALL.map(|priority| slots.free(priority) > 0)
    };
    assert_eq!(
        [27, 28, 29, 30, 32].map(free),
        [[true; 3], [true, true, false], [true, true, false], [true, false, false], [false; 3]]
    );
    let mut slots = Slots::new(9, 32);
    slots.on_started(10);
    slots.on_started(1000);
    assert!(slots.are_contended(0), "one more than the limit has begun");
    assert!(slots.are_exceeded(1) && !slots.are_exceeded(0), "idle jobs make room for those that wait");
    assert!(!slots.may_end_one() && slots.holds_to_cut(7) == 7, "and so do those that hold devices back");
    slots.on_look([(LOW, at(1), false), (LOW, at(2), false)].into_iter());
    assert_eq!(slots.claim(LOW), Claim::Denied);
    assert_eq!(
        (slots.claim(HIGH), slots.claim(HIGH), slots.claim(HIGH)),
        (Claim::Suspend(at(2)), Claim::Suspend(at(1)), Claim::Denied)
    );
    slots.on_stopped(LOW, at(2), 1000);
    assert_eq!((slots.claim(LOW), slots.are_contended(0)), (Claim::Granted, false));
}

#[test]
fn idle_jobs_are_suspended_while_there_are_more_running_jobs_than_slots() {
    let mut slots = slots(2, &[(1, NORMAL, true), (2, LOW, true), (3, NORMAL, true), (4, HIGH, false)]);
    assert_eq!(slots.idle(), [at(2), at(3), at(1)]);
    slots.on_stopped(LOW, at(2), 1);
    assert!(slots.are_exceeded(0));
    slots.on_stopped(NORMAL, at(3), 1);
    assert!(!slots.are_exceeded(9));
    assert_eq!((slots.idle(), slots.free(LOW)), (vec![at(1)], 1));
}

#[test]
fn events_stay_in_the_journal_and_jobs_run_on_when_too_many_wait() {
    let slots = Slots::new(2, 4000);
    assert_eq!((slots.waiting_room(0), slots.waiting_room(125), slots.waiting_room(126)), (126, 1, 0));
    assert_eq!(slots.waiting_room(1000), 0, "after a start with fewer slots");
    assert!(slots.may_suspend(127, 999));
    assert!(!slots.may_suspend(128, 0) && !slots.may_suspend(0, 1000));
}

#[test]
fn jobs_stop_waiting_for_receipts_only_where_no_slot_is_free() {
    assert_eq!(slots(2, &[(1, LOW, false)]).holds_to_cut(7), 0);
    assert_eq!(slots(2, &[(1, LOW, false), (2, LOW, false)]).holds_to_cut(7), 7);
}

#[test]
fn of_16_slots_each_lower_priority_that_waits_gets_one() {
    let chosen = |running: &[Running], waiting: &[EventPriority]| {
        let (mut slots, mut counts) = (slots(1, running), [0; 3]);
        let next = |priority| waiting.contains(&priority).then(|| at(priority as u64));
        (0..32).for_each(|_| counts[slots.choose(HIGH, next).unwrap().0 as usize] += 1);
        counts
    };
    let sending: Vec<_> = (0..2).map(|position| (position, LOW, false)).collect();
    let idle: Vec<_> = (0..15).map(|position| (position, LOW, true)).collect();
    assert_eq!(chosen(&sending[..1], &EventPriority::ALL), [28, 2, 2]);
    assert_eq!(chosen(&sending[..1], &[HIGH, LOW]), [30, 0, 2]);
    assert_eq!(chosen(&sending, &EventPriority::ALL), [32, 0, 0], "twice as many jobs as slots have something to send");
    assert_eq!(chosen(&idle[..14], &EventPriority::ALL), [30, 2, 0], "the last running jobs are for more urgent ones");
    assert_eq!(chosen(&idle, &EventPriority::ALL), [32, 0, 0]);
    assert_eq!(slots(1, &[]).choose(HIGH, |_| None), None);
    // The memory that was granted to a more urgent job is theirs, too.
    let mut slots = Slots::new(9, 32);
    slots.on_started(29);
    assert_eq!((slots.free(NORMAL), slots.free(LOW)), (8, 0));
    let chosen =
        (0..32).filter_map(|_| slots.choose(NORMAL, |priority| (priority != HIGH).then(|| at(priority as u64))));
    assert_eq!(chosen.filter(|job| *job == at(LOW as u64)).count(), 2);
}

#[test]
fn what_only_ends_goes_first_then_the_more_urgent_then_the_older() {
    let mut queue = ReadyQueue::default();
    let ready = [(4, Ready::ToSend(LOW)), (5, Ready::ToSend(HIGH)), (6, Ready::ToSend(HIGH)), (7, Ready::ToEnd)];
    ready.iter().for_each(|&(position, ready)| queue.update(at(position), None, Some(ready)));
    assert_eq!(queue.job_count(), 4);
    assert_eq!(queue.first(Ready::ToSend(HIGH)), Some((Ready::ToSend(HIGH), at(5))));
    assert_eq!(queue.first(Ready::ToSend(NORMAL)), Some((Ready::ToSend(LOW), at(4))));
    let mut order = Vec::new();
    while let Some((ready, position)) = queue.first(Ready::ToEnd) {
        queue.update(position, Some(ready), None);
        order.push(position.0);
    }
    assert_eq!(order, [7, 5, 6, 4]);
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Doing {
    /// Waits, and can go on or not.
    Waits(Option<Ready>),
    /// Runs; what it was at the last look, if it ran then.
    Runs(Option<Seen>),
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Seen {
    Idle,
    Sending,
    /// As before, and a claim has named it since.
    Named,
}

#[derive(Debug, Clone, Copy)]
struct ModelJob {
    priority: EventPriority,
    bytes: usize,
    doing: Doing,
    is_idle: bool,
    can_be_suspended: bool,
}

/// Knows all jobs there ever were, by position, and nothing else.
struct Model {
    job_count_max: usize,
    job_bytes_max: usize,
    jobs: Vec<ModelJob>,
    least_urgent: Option<EventPriority>,
    turns: Turns<3>,
}

impl Model {
    fn count(&self, is: impl Fn(Doing) -> bool) -> usize {
        self.jobs.iter().filter(|job| is(job.doing)).count()
    }

    fn running(&self) -> usize {
        self.count(|doing| matches!(doing, Doing::Runs(_)))
    }

    fn running_bytes(&self) -> usize {
        self.jobs.iter().filter(|job| matches!(job.doing, Doing::Runs(_))).map(|job| job.bytes).sum()
    }

    fn has_memory(&self, priority: EventPriority) -> bool {
        self.running_bytes() < self.job_bytes_max * [16, 15, 14][priority as usize] / 16
    }

    fn waiting(&self) -> usize {
        self.count(|doing| matches!(doing, Doing::Waits(_)))
    }

    fn is_exceeded(&self) -> bool {
        self.running() > self.job_count_max || (self.waiting() > 0 && !self.has_memory(LOW))
    }

    fn has_slot(&self, slot_count: usize, priority: EventPriority) -> bool {
        let in_slots = self.count(|doing| matches!(doing, Doing::Runs(seen) if seen != Some(Seen::Idle)));
        let running_max = self.job_count_max * [16, 15, 14][priority as usize];
        in_slots < slot_count && self.running() < running_max
    }

    fn has_room(&self, slot_count: usize, priority: EventPriority) -> bool {
        self.has_slot(slot_count, priority) && self.has_memory(priority)
    }

    fn claim(&mut self, priority: EventPriority) -> Claim {
        if self.has_room(self.job_count_max, priority) {
            return Claim::Granted;
        }
        let jobs = self.jobs.iter().enumerate();
        let less_urgent =
            jobs.filter(|(_, job)| job.doing == Doing::Runs(Some(Seen::Sending)) && job.priority > priority);
        if let Some((index, _)) = less_urgent.max_by_key(|(index, job)| (job.priority, *index)) {
            self.jobs[index].doing = Doing::Runs(Some(Seen::Named));
            return Claim::Suspend(at(index as u64));
        }
        let in_addition = self.least_urgent > Some(priority) && self.has_room(2 * self.job_count_max, priority);
        if in_addition { Claim::Granted } else { Claim::Denied }
    }

    /// The first by rules 4 and 5, of those that are `from` or come after it.
    fn first(&self, from: Ready) -> Option<(Ready, usize)> {
        let jobs = self.jobs.iter().enumerate();
        let ready = jobs.filter_map(|(index, job)| match job.doing {
            Doing::Waits(Some(ready)) => Some((ready, index)),
            _ => None,
        });
        ready.filter(|(ready, _)| *ready >= from).min()
    }

    /// The oldest of a priority that can go on.
    fn oldest(&self, priority: EventPriority) -> Option<usize> {
        self.jobs.iter().position(|job| job.doing == Doing::Waits(Some(Ready::ToSend(priority))))
    }

    /// Who gets the slot that was granted for one of priority `first`.
    fn choose(&mut self, first: EventPriority) -> usize {
        // Memory was granted to one of them.
        let has_room = |priority| priority == first || self.has_slot(2 * self.job_count_max, priority);
        let next = EventPriority::ALL.map(|priority| self.oldest(priority).filter(|_| has_room(priority)));
        next[self.turns.next(|level| next[level].is_some()).expect("the first one waits")].expect("it waits")
    }
}

/// The model and the real thing, of which both are told the same.
struct Both {
    model: Model,
    slots: Slots,
    queue: ReadyQueue,
}

impl Both {
    fn new(job_count_max: usize, job_bytes_max: usize) -> Self {
        let (jobs, turns) = (Vec::new(), Turns::new());
        let model = Model { job_count_max, job_bytes_max, jobs, least_urgent: None, turns };
        Self { model, slots: Slots::new(job_count_max, job_bytes_max), queue: ReadyQueue::default() }
    }

    fn set(&mut self, index: usize, doing: Doing) {
        let job = &mut self.model.jobs[index];
        let before = std::mem::replace(&mut job.doing, doing);
        let ready = |doing| if let Doing::Waits(ready) = doing { ready } else { None };
        self.queue.update(at(index as u64), ready(before), ready(doing));
        match (matches!(before, Doing::Runs(_)), matches!(doing, Doing::Runs(_))) {
            (false, true) => self.slots.on_started(job.bytes),
            (true, false) => self.slots.on_stopped(job.priority, at(index as u64), job.bytes),
            _ => {}
        }
    }

    /// Whether the job gets a slot. Whoever is suspended for it is less urgent.
    fn claim(&mut self, priority: EventPriority) -> bool {
        loop {
            let claim = self.slots.claim(priority);
            assert_eq!(claim, self.model.claim(priority));
            let Claim::Suspend(position) = claim else { return claim == Claim::Granted };
            let job = self.model.jobs[position.0 as usize];
            assert!(job.priority > priority);
            if job.can_be_suspended {
                self.set(position.0 as usize, Doing::Waits(Some(Ready::ToSend(job.priority))));
            }
        }
    }

    fn read_event(&mut self, job: ModelJob) {
        self.model.jobs.push(job);
        let has_slot = self.claim(job.priority);
        let doing = if has_slot { Doing::Runs(None) } else { Doing::Waits(Some(Ready::ToSend(job.priority))) };
        self.set(self.model.jobs.len() - 1, doing);
    }

    /// One waiting job starts or ends.
    fn start_waiting(&mut self) {
        let first = self.model.first(Ready::ToEnd);
        assert_eq!(self.queue.first(Ready::ToEnd), first.map(|(ready, index)| (ready, at(index as u64))));
        let Some((mut ready, first)) = first else { return };
        if ready == Ready::ToEnd {
            assert_eq!(self.slots.may_end_one(), self.model.has_memory(HIGH));
            if self.slots.may_end_one() {
                return self.set(first, Doing::Runs(None));
            }
            // A more urgent job may get the memory of a less urgent one.
            let Some((urgent, _)) = self.model.first(Ready::ToSend(HIGH)) else { return };
            ready = urgent;
        }
        let Ready::ToSend(priority) = ready else { unreachable!("it has something to send") };
        if !self.claim(priority) {
            return;
        }
        let next = |priority| {
            let next = self.queue.first(Ready::ToSend(priority)).filter(|(ready, _)| *ready == Ready::ToSend(priority));
            next.map(|(_, position)| position)
        };
        let (chosen, expected) = (self.slots.choose(priority, next), self.model.choose(priority));
        assert_eq!(chosen, Some(at(expected as u64)));
        self.set(expected, Doing::Runs(None));
    }

    fn look(&mut self) {
        for job in &mut self.model.jobs {
            if let Doing::Runs(seen) = &mut job.doing {
                *seen = Some(if job.is_idle { Seen::Idle } else { Seen::Sending });
            }
        }
        let running: Vec<_> = self.seen().map(|(index, job)| (job.priority, at(index as u64), job.is_idle)).collect();
        self.slots.on_look(running.into_iter());
        let sending = self.seen().filter(|(_, job)| !job.is_idle);
        self.model.least_urgent = sending.map(|(_, job)| job.priority).max();
        for position in self.slots.idle() {
            let is_exceeded = self.slots.are_exceeded(self.model.waiting());
            assert_eq!(is_exceeded, self.model.is_exceeded());
            let job = self.model.jobs[position.0 as usize];
            if is_exceeded && job.can_be_suspended {
                self.set(position.0 as usize, Doing::Waits(None));
            }
        }
        let can_go = |job: &ModelJob| job.doing == Doing::Runs(Some(Seen::Idle)) && job.can_be_suspended;
        let is_left = self.model.jobs.iter().any(can_go);
        assert!(!is_left || !self.model.is_exceeded(), "an idle job keeps others waiting");
    }

    /// The running jobs of the last look.
    fn seen(&self) -> impl Iterator<Item = (usize, &ModelJob)> {
        self.model.jobs.iter().enumerate().filter(|(_, job)| matches!(job.doing, Doing::Runs(Some(_))))
    }

    fn check(&self) {
        for priority in EventPriority::ALL {
            assert_eq!(self.slots.free(priority) > 0, self.model.has_room(self.model.job_count_max, priority));
        }
        assert!(self.model.running() <= 16 * self.model.job_count_max);
        assert!(self.model.running_bytes() < self.model.job_bytes_max + JOB_BYTES_MAX);
        let ready = self.model.count(|doing| matches!(doing, Doing::Waits(Some(_))));
        assert_eq!(self.queue.job_count(), ready);
    }
}

/// Of one job here.
const JOB_BYTES_MAX: usize = 4;

fn priority() -> impl Strategy<Value = EventPriority> {
    prop_oneof![Just(HIGH), Just(NORMAL), Just(LOW)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn slots_go_to_the_jobs_that_a_plain_model_gives_them_to(
        job_count_max in 1..4_usize,
        job_bytes_max in prop_oneof![Just(16_usize), Just(32), Just(usize::MAX / 32)],
        steps in prop::collection::vec(
            (0..9_u8, any::<prop::sample::Index>(), priority(), any::<[bool; 2]>(), 1..=JOB_BYTES_MAX),
            0..250,
        ),
    ) {
        let mut both = Both::new(job_count_max, job_bytes_max);
        for (step, index, priority, [is_idle, can_be_suspended], bytes) in steps {
            let job = ModelJob { priority, bytes, doing: Doing::Over, is_idle, can_be_suspended };
            if step < 3 || both.model.jobs.is_empty() {
                both.read_event(job);
            }
            let index = index.index(both.model.jobs.len());
            match (step, both.model.jobs[index]) {
                (3, _) => both.look(),
                (4..=5, _) => both.start_waiting(),
                (6, ModelJob { doing: Doing::Runs(_), .. }) if is_idle => both.set(index, Doing::Over),
                (6, ModelJob { doing: Doing::Runs(_), .. }) => both.model.jobs[index].is_idle ^= true,
                (7, ModelJob { doing: Doing::Waits(_), priority, .. }) => {
                    let ready = [None, Some(Ready::ToSend(priority)), Some(Ready::ToEnd)];
                    both.set(index, Doing::Waits(ready[usize::from(is_idle) + usize::from(can_be_suspended)]));
                }
                (8, _) => both.model.jobs[index].can_be_suspended = can_be_suspended,
                _ => {}
            }
            both.check();
        }
        // Whatever can go on starts in the end, when running jobs end one by one.
        for index in 0..both.model.jobs.len() {
            if let ModelJob { doing: Doing::Waits(None), priority, .. } = both.model.jobs[index] {
                both.set(index, Doing::Waits(Some(Ready::ToSend(priority))));
            }
        }
        while let Some(index) = both.model.jobs.iter().position(|job| job.doing != Doing::Over) {
            let running = both.model.jobs.iter().position(|job| matches!(job.doing, Doing::Runs(_)));
            prop_assert!(running.is_some() || both.model.first(Ready::ToEnd).is_some(), "{index} neither runs nor can go on");
            running.into_iter().for_each(|running| both.set(running, Doing::Over));
            both.start_waiting();
            both.check();
        }
    }
}
