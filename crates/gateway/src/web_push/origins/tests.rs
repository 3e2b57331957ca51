//! The books against a world of origins that are quick, slow, dead or full, in a time of its own.

use proptest::prelude::*;
use tidings_push::retry::RETRY_BUDGET_MAX;
use tidings_types::Timestamp;

use super::origin::WAIT_MAX;
use super::*;
use crate::attempt::BUDGET_PAUSE;

// Priorities.
const HIGH: usize = 0;
const NORMAL: usize = 1;

const LIMITS: Limits =
    Limits { origin_count_max: 3, attempt_count_max: 2, held_max: 3 * 100, idle_timeout: Duration::from_secs(30) };

impl<T, C> Origins<T, C> {
    /// How many connections there are, or are being made.
    fn connection_count(&self) -> usize {
        self.placed.iter().map(|index| self.origins[*index].connection_count()).sum()
    }

    /// Checks what must hold between two calls.
    fn check(&self) {
        let mut held = [0; LEVELS];
        for (index, origin) in &self.origins {
            (0..LEVELS).for_each(|level| held[level] += origin.held[level]);
            let queued = origin.fresh.iter().map(VecDeque::len).sum::<usize>() + origin.repeats.len();
            assert!(queued + origin.in_flight <= origin.held.iter().sum(), "held counts all");
            assert_eq!(origin.placed_at.is_some(), self.placed.contains(&index));
            assert_eq!(origin.turn == Turn::Ready, self.ready.contains(&index));
            let in_line = self.lines.iter().flatten().filter(|waiting| **waiting == index).count();
            assert_eq!(usize::from(origin.turn == Turn::InLine), in_line);
            assert!(origin.placed_at.is_some() || origin.connection_count() == 0, "connections need a place");
            assert!(origin.placed_at.is_some() || origin.turn != Turn::Ready, "only with a place it is ready");
            assert!(origin.connection_count() <= origin.attempt_count_max);
            assert_eq!(self.ids[&origin.name], index);
            let wakes = self.wakes.iter().filter(|(_, waking)| *waking == index).map(|(at, _)| *at);
            assert!(wakes.eq(origin.wakes_at));
        }
        assert_eq!((held, self.ids.len()), (self.held, self.origins.len()));
        assert_eq!(self.origins.iter().filter(|(_, origin)| origin.is_failing()).count(), self.failing);
        assert!(self.placed.len() <= self.limits.origin_count_max);
        assert!(self.unknown_count() <= self.unknown_count_max());
        assert!(held.iter().all(|held| *held <= self.level_max()), "{held:?}");
        assert!(self.ready.len() <= self.placed.len() && self.wakes.len() <= self.origins.len());
    }
}

impl<T, C> Origin<T, C> {
    fn connection_count(&self) -> usize {
        self.in_flight + self.idle.len()
    }
}

/// How an origin answers.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Well, after so many milliseconds.
    Good(u64),
    /// Not at all; that is known after so many milliseconds.
    Dead(u64),
    /// Each second answer asks for a pause of so many milliseconds and takes nothing.
    Full(u64),
    /// Each answer asks for such a pause.
    Shut(u64),
}

#[derive(Debug, Clone, Copy)]
struct Item {
    id: usize,
    origin: usize,
    attempts: u32,
}

struct Flight {
    ends_at: Instant,
    /// Of its origin when it began.
    kind: Kind,
    start: Start<Item, usize>,
}

/// What became of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Accepted,
    GivenUp,
    Shed,
}

struct World {
    origins: Origins<Item, usize>,
    kinds: Vec<Kind>,
    /// What has not been pushed, by priority.
    lakes: [VecDeque<Item>; LEVELS],
    flights: Vec<Flight>,
    begun: Instant,
    now: Now,
    fates: HashMap<usize, (Fate, Duration)>,
    answers: usize,
    attempts_max: u32,
    connections_made: usize,
    swept_at: Instant,
    /// Each second answer takes a millisecond longer.
    jitter: bool,
    /// Of what is left to chance; without one it is always the same.
    seed: Option<u64>,
}

impl World {
    fn new(limits: Limits, kinds: Vec<Kind>) -> Self {
        let begun = Instant::now();
        Self {
            origins: Origins::new(limits),
            kinds,
            lakes: Default::default(),
            flights: Vec::new(),
            begun,
            now: Now { at: begun, unix: Timestamp(1_000_000) },
            fates: HashMap::new(),
            answers: 0,
            attempts_max: 5,
            connections_made: 0,
            swept_at: begun,
            jitter: false,
            seed: None,
        }
    }

    fn add(&mut self, level: usize, origin: usize, count: usize) -> std::ops::Range<usize> {
        let first = self.fates.len() + self.lakes.iter().map(VecDeque::len).sum::<usize>() + self.origins.held();
        self.lakes[level].extend((first..first + count).map(|id| Item { id, origin, attempts: 0 }));
        first..first + count
    }

    /// Adds as many of each origin as is said, well mixed.
    fn add_mixed(&mut self, level: usize, counts: &[usize]) -> Vec<std::ops::Range<usize>> {
        let first = self.lakes[level].len();
        let ranges = counts.iter().enumerate().map(|(origin, count)| self.add(level, origin, *count)).collect();
        let place = |item: &Item| item.id.wrapping_mul(0x9e37_79b9) & 0xffff;
        self.lakes[level].make_contiguous()[first..].sort_by_key(place);
        ranges
    }

    fn shed(&self, range: &std::ops::Range<usize>) -> usize {
        range.clone().filter(|id| self.fate(*id) == Some(Fate::Shed)).count()
    }

    fn elapsed(&self) -> Duration {
        self.now.at - self.begun
    }

    fn settle(&mut self, item: Item, fate: Fate) {
        let before = self.fates.insert(item.id, (fate, self.elapsed()));
        assert!(before.is_none(), "{item:?} was {before:?}");
    }

    /// Pushes what is asked for, or one a second if nothing is, and starts what can be.
    fn turn(&mut self) {
        let is_swept = self.now.at.saturating_duration_since(self.swept_at) >= Duration::from_secs(1);
        if is_swept {
            self.swept_at = self.now.at;
        }
        for level in 0..LEVELS {
            let one = usize::from(is_swept && self.origins.has_room(level));
            let demand = self.origins.demand(level).max(one);
            for _ in 0..demand.min(self.lakes[level].len()) {
                let item = self.lakes[level].pop_front().unwrap();
                if let Err(item) = self.origins.push(&name(item.origin), level, item, self.now) {
                    self.settle(item, Fate::Shed);
                }
                self.origins.check();
            }
        }
        while let Some(mut start) = self.origins.next(self.now) {
            self.origins.check();
            let in_flight = self.flights.iter().filter(|flight| flight.start.origin == start.origin).count();
            assert!(in_flight < self.origins.limits.attempt_count_max);
            start.connection.get_or_insert_with(|| {
                self.connections_made += 1;
                self.connections_made
            });
            let kind = self.kinds[start.item.origin];
            let millis = match kind {
                Kind::Good(millis) | Kind::Dead(millis) => millis,
                Kind::Full(_) | Kind::Shut(_) => 20,
            };
            let millis = millis + u64::from(self.jitter && start.item.id.is_multiple_of(2));
            self.flights.push(Flight { ends_at: self.now.at + Duration::from_millis(millis), kind, start });
        }
    }

    /// Goes on to the next thing that happens, at most to `until`; returns whether something does.
    fn advance(&mut self, until: Duration) -> bool {
        let next = self.origins.release(self.now);
        self.turn();
        let next = next.into_iter().chain(self.flights.iter().map(|flight| flight.ends_at)).min();
        let sweep = (self.origins.held() > 0).then(|| self.now.at + Duration::from_secs(1));
        let Some(next) = next.into_iter().chain(sweep).min() else { return false };
        if next > self.begun + until {
            return false;
        }
        let step = next.saturating_duration_since(self.now.at);
        self.now = Now { at: self.now.at + step, unix: self.now.unix.saturating_add(step) };
        let (over, left) = std::mem::take(&mut self.flights).into_iter().partition(|it| it.ends_at <= self.now.at);
        self.flights = left;
        let over: Vec<Flight> = over;
        over.into_iter().for_each(|flight| self.end(flight));
        let swept = self.origins.sweep(self.now, (), |_| None::<()>);
        swept.into_iter().for_each(|(item, ())| self.settle(item, Fate::Shed));
        self.origins.check();
        true
    }

    fn end(&mut self, Flight { kind, start: Start { origin, level, mut item, connection }, .. }: Flight) {
        item.attempts += 1;
        self.answers += 1;
        let random = |seed: u64| (seed + self.answers as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let random = self.seed.map_or(u64::MAX / 2, random);
        let pause = match kind {
            Kind::Full(millis) if self.answers.is_multiple_of(2) => Duration::from_millis(millis),
            Kind::Shut(millis) => Duration::from_millis(millis),
            _ => Duration::ZERO,
        };
        let health = if matches!(kind, Kind::Dead(_)) { Health::Failing } else { Health::Well };
        let connection = connection.filter(|_| health == Health::Well);
        self.origins.on_ended(origin, connection, Effect { health, pause, random }, self.now);
        let fate = match health {
            Health::Well if pause.is_zero() => Fate::Accepted,
            _ if item.attempts >= self.attempts_max => Fate::GivenUp,
            _ => return self.origins.put_back(origin, level, item, self.now.at + Duration::from_millis(100), self.now),
        };
        if fate == Fate::Accepted {
            self.origins.on_accepted(origin);
        }
        self.settle(item, fate);
        self.origins.on_settled(origin, level, self.now);
        self.origins.check();
    }

    fn run(&mut self, until: Duration) {
        while self.advance(until) {}
    }

    fn fate(&self, id: usize) -> Option<Fate> {
        self.fates.get(&id).map(|(fate, _)| *fate)
    }
}

fn name(origin: usize) -> Name {
    format!("https://push-{origin}.example").parse().unwrap()
}

#[test]
fn a_dead_origin_costs_itself() {
    let mut world = World::new(LIMITS, vec![Kind::Dead(5000), Kind::Good(50)]);
    world.attempts_max = u32::MAX;
    world.add(NORMAL, 0, 45);
    let good = world.add(NORMAL, 1, 100);
    world.run(Duration::from_secs(20));
    let late = good.clone().filter_map(|id| world.fates.get(&id)).map(|(_, at)| *at).max().unwrap();
    assert!(good.clone().all(|id| world.fate(id) == Some(Fate::Accepted)) && late < Duration::from_secs(4), "{late:?}");
}

/// An outage begins and ends for all at once, but they are tried again one after the other.
fn outage(counts: [usize; 4], is_new: bool, hang: u64, seed: u64) {
    let mut world = World::new(LIMITS, vec![Kind::Good(20); 4]);
    (world.attempts_max, world.seed) = (u32::MAX, Some(seed));
    if !is_new {
        world.add_mixed(NORMAL, &[1500, 600, 600]);
        world.run(Duration::from_secs(100));
        assert_eq!(world.fates.len(), 2700);
    }
    let begun = world.elapsed();
    world.kinds = vec![Kind::Dead(hang); 4];
    let all = world.add_mixed(NORMAL, &counts);
    world.run(begun + Duration::from_secs(900 + 7 * seed));
    let context = format!("{counts:?}, new: {is_new}, {hang} ms, seed {seed}");
    assert_eq!(all.iter().map(|it| world.shed(it)).sum::<usize>(), 0, "while it lasts: {context}");
    world.kinds = vec![Kind::Good(20); 4];
    world.run(world.elapsed() + Duration::from_secs(1000));
    let accepted = all.into_iter().flatten().filter(|id| world.fate(*id) == Some(Fate::Accepted)).count();
    assert_eq!(accepted, counts.iter().sum::<usize>(), "when it is over: {context}");
}

#[test]
fn an_outage_of_our_own_sheds_nothing() {
    for (seed, hang) in (0..4).flat_map(|seed| [(seed, 1000), (seed, 12_000)]) {
        outage([700, 200, 100, 0], false, hang, seed);
        outage([700, 200, 100, 0], true, hang, seed);
    }
}

#[test]
fn an_outage_of_our_own_sheds_nothing_of_an_origin_that_is_heard_of_first_while_it_lasts() {
    for (seed, hang) in (0..4).flat_map(|seed| [(seed, 1000), (seed, 12_000)]) {
        outage([50, 50, 50, 700], false, hang, seed);
    }
}

#[test]
fn a_pause_that_ends_in_an_outage_sheds_nothing() {
    for seconds in [60, 280] {
        let mut world = World::new(LIMITS, vec![Kind::Shut(1000 * seconds), Kind::Good(400)]);
        world.attempts_max = u32::MAX;
        let paused = world.add_mixed(NORMAL, &[80, 400]).swap_remove(0);
        world.run(Duration::from_secs(seconds - 1));
        assert!(world.fates.len() > 200, "others answer while it lasts: {}", world.fates.len());
        world.kinds = vec![Kind::Dead(1000); 2];
        world.run(Duration::from_secs(1500));
        world.kinds = vec![Kind::Good(20); 2];
        world.run(Duration::from_secs(2500));
        assert!(paused.clone().all(|id| world.fate(id) == Some(Fate::Accepted)), "{seconds}: {}", world.shed(&paused));
    }
}

const WELL: Effect = Effect { health: Health::Well, ..Effect::NONE };
const FAILING: Effect = Effect { health: Health::Failing, ..Effect::NONE };

/// Another origin answers.
fn answer(origins: &mut Origins<usize, usize>, now: Now) {
    origins.push(&name(1), NORMAL, 1000, now).unwrap();
    let Start { origin, level, item, connection } = origins.next(now).unwrap();
    assert_eq!(item, 1000);
    origins.on_ended(origin, connection.or(Some(1)), WELL, now);
    origins.on_settled(origin, level, now);
}

/// An attempt ends and is to be repeated.
fn end(
    origins: &mut Origins<usize, usize>,
    Start { origin, level, item, .. }: Start<usize, usize>,
    is: Effect,
    now: Now,
) {
    origins.on_ended(origin, None, is, now);
    origins.put_back(origin, level, item, now.at, now);
}

#[test]
fn a_failed_probe_counts_if_another_origin_took_something_since_the_probe_before() {
    for (others_answer, shed) in [([true; 3], 40), ([false, true, true], 0), ([true, false, true], 0), ([false; 3], 0)]
    {
        let (mut origins, begun) = (Origins::<usize, usize>::new(LIMITS), World::new(LIMITS, Vec::new()).now);
        let at = |seconds| {
            let passed = Duration::from_secs(seconds);
            Now { at: begun.at + passed, unix: begun.unix.saturating_add(passed) }
        };
        let fail = |origins: &mut Origins<usize, usize>, now| {
            origins.release(now);
            let start = origins.next(now).unwrap();
            end(origins, start, FAILING, now);
        };
        (0..90).for_each(|id| origins.push(&name(0), NORMAL, id, begun).unwrap());
        (0..3).for_each(|_| fail(&mut origins, begun));
        assert!(origins.next(begun).is_none(), "the breaker is open");
        for (others_answer, minutes) in others_answer.into_iter().zip(1..) {
            if others_answer {
                answer(&mut origins, at(60 * minutes));
            }
            fail(&mut origins, at(60 * minutes));
            assert!(origins.next(at(60 * minutes)).is_none(), "one probe at a time");
        }
        let swept = origins.sweep(at(181), "shed", |_| None).len();
        assert_eq!(swept, shed, "what is beyond half of what may be held, or nothing: {others_answer:?}");
        assert_eq!(origins.push(&name(0), NORMAL, 98, at(182)).is_err(), shed > 0, "nor does it get more");
        origins.release(at(300));
        let Start { origin, level, .. } = origins.next(at(300)).unwrap();
        origins.on_ended(origin, Some(0), WELL, at(300));
        origins.on_settled(origin, level, at(300));
        origins.push(&name(0), NORMAL, 99, at(300)).expect("it has taken something");
        origins.check();
    }
}

#[test]
fn a_dead_origin_is_shed_beyond_half_when_others_have_answered_for_long() {
    let mut world = World::new(LIMITS, vec![Kind::Good(20); 2]);
    world.attempts_max = u32::MAX;
    world.add_mixed(NORMAL, &[1000, 1000]);
    world.run(Duration::from_secs(100));
    assert_eq!(world.fates.len(), 2000);
    world.kinds[0] = Kind::Dead(1000);
    let begun = world.elapsed();
    let [dead, good] = <[_; 2]>::try_from(world.add_mixed(NORMAL, &[500, 500])).unwrap();
    world.run(begun + WAIT_MAX - Duration::from_secs(1));
    assert_eq!(world.shed(&dead), 0);
    let waiting = good.clone().filter(|id| world.fate(*id).is_none()).count();
    assert!((100..450).contains(&waiting), "some pass before it holds everything: {waiting}");
    world.run(begun + WAIT_MAX + Duration::from_secs(30));
    assert!(good.clone().all(|id| world.fate(id) == Some(Fate::Accepted)));
    let held = world.origins.held();
    assert!(world.shed(&dead) + held == 500 && held == 50, "half of what may be held: {held}");
    let first = (0..500).map(|at| dead.start + at).filter(|id| world.fate(*id).is_none());
    assert_eq!(first.count(), held);
    // It is well again: what is left still has its chance, and what comes is taken.
    world.kinds[0] = Kind::Good(20);
    let more = world.add(NORMAL, 0, 300);
    world.run(world.elapsed() + Duration::from_secs(300));
    assert!(more.clone().skip(100).all(|id| world.fate(id) == Some(Fate::Accepted)));
    assert_eq!((world.origins.held(), world.lakes[NORMAL].len()), (0, 0));
}

#[test]
fn an_origin_that_is_slower_than_its_sender_makes_the_lake_wait_and_is_not_shed() {
    let mut world = World::new(LIMITS, vec![Kind::Good(500)]);
    let all = world.add(NORMAL, 0, 1000);
    world.run(Duration::from_secs(600));
    assert!(all.clone().all(|id| world.fate(id) == Some(Fate::Accepted)), "{} left", world.lakes[NORMAL].len());
    assert!(world.elapsed() >= Duration::from_secs(250) && world.connections_made == 2);
}

#[test]
fn priorities_have_room_of_their_own() {
    let mut world = World::new(LIMITS, vec![Kind::Good(100)]);
    world.add(NORMAL, 0, 1000);
    world.run(Duration::from_secs(5));
    let goal = world.add(HIGH, 0, 20);
    let asked_at = world.elapsed();
    world.run(asked_at + Duration::from_secs(10));
    let late = goal.map(|id| world.fates[&id].1).max().unwrap() - asked_at;
    assert!(late < Duration::from_millis(1300), "20 of 2 at a time and 100 ms, and one of 16 is another's: {late:?}");
}

#[test]
fn a_pause_is_kept_and_stops_no_other() {
    let mut world = World::new(LIMITS, vec![Kind::Full(3000), Kind::Good(10)]);
    world.attempts_max = u32::MAX;
    let paused = world.add(NORMAL, 0, 10);
    let good = world.add(NORMAL, 1, 50);
    world.run(Duration::from_secs(2));
    assert!(good.clone().all(|id| world.fate(id) == Some(Fate::Accepted)));
    assert!(paused.clone().filter(|id| world.fate(*id).is_some()).count() <= 2, "two were under way");
    world.run(Duration::from_secs(100));
    assert!(paused.clone().all(|id| world.fate(id) == Some(Fate::Accepted)));
}

#[test]
fn hundreds_of_origins_share_three_places() {
    let mut world = World::new(LIMITS, (0..300).map(|it| Kind::Good(5 + it % 40)).collect());
    for origin in (0..300).chain(0..300) {
        world.add(NORMAL, origin, 1);
    }
    world.run(Duration::from_secs(100));
    assert_eq!(world.fates.len(), 600);
    assert!(world.fates.values().all(|(fate, _)| *fate == Fate::Accepted));
    world.now.at += REMEMBERED_FOR;
    world.origins.sweep(world.now, (), |_| None::<()>);
    assert!(world.origins.origins.len() <= LIMITS.origin_count_max, "the others are forgotten");
}

#[test]
fn busy_origins_leave_their_places_to_those_in_line() {
    let mut world = World::new(LIMITS, (10..16).map(Kind::Good).collect());
    world.jitter = true;
    for origin in 0..3 {
        world.add(NORMAL, origin, 2000);
    }
    world.lakes[NORMAL].make_contiguous().sort_by_key(|item| item.id % 2000); // In turns.
    world.run(Duration::from_millis(1500));
    let late: Vec<usize> = (3..6).flat_map(|origin| world.add(HIGH, origin, 10)).collect();
    let asked_at = world.elapsed();
    world.run(asked_at + Duration::from_secs(2));
    assert!(late.iter().all(|id| world.fate(*id) == Some(Fate::Accepted)));
    world.run(Duration::from_secs(120));
    assert_eq!(world.fates.len(), 6030);
}

#[test]
fn a_doubtful_origin_with_an_idle_connection_leaves_its_place_to_another_though_sound_ones_need_none() {
    let limits = Limits { origin_count_max: 2, ..LIMITS };
    let (mut origins, mut now) = (Origins::<usize, usize>::new(limits), World::new(limits, Vec::new()).now);
    (0..2).for_each(|id| origins.push(&name(0), NORMAL, id, now).unwrap());
    origins.push(&name(1), NORMAL, 2, now).unwrap();
    let Start { origin, level, .. } = origins.next(now).unwrap();
    let other = origins.next(now).unwrap();
    assert!(origins.next(now).is_none(), "the doubtful have one place");
    now.at += TENURE;
    // It answers that it cannot, and the connection is kept.
    let failing = Effect { health: Health::Failing, ..Effect::NONE };
    origins.on_ended(other.origin, Some(1), failing, now);
    origins.on_ended(origin, Some(0), failing, now);
    origins.on_settled(origin, level, now);
    assert_eq!(origins.next(now).unwrap().item, 2);
    origins.check();
}

#[test]
fn connections_are_used_again_and_closed_when_idle() {
    let mut world = World::new(LIMITS, vec![Kind::Good(10), Kind::Good(10)]);
    world.add(NORMAL, 0, 20);
    world.add(NORMAL, 1, 1);
    world.run(Duration::from_secs(20));
    assert_eq!((world.connections_made, world.origins.connection_count()), (3, 3));
    let later = |now: Now, by| Now { at: now.at + by, ..now };
    let swept = world.origins.sweep(later(world.now, LIMITS.idle_timeout - Duration::from_secs(1)), (), |_| None::<()>);
    assert_eq!((swept.len(), world.origins.connection_count()), (0, 3));
    world.origins.sweep(later(world.now, LIMITS.idle_timeout), (), |_| None::<()>);
    assert_eq!((world.origins.connection_count(), world.origins.attempt_count_max()), (0, 0));
    world.origins.check();
}

#[test]
fn what_is_over_leaves_the_queues() {
    let mut world = World::new(LIMITS, vec![Kind::Dead(1000)]);
    world.attempts_max = u32::MAX;
    let all = world.add(NORMAL, 0, 40);
    world.run(Duration::from_secs(30));
    assert!(world.flights.len() <= 1, "the breaker lets one try");
    let over = world.origins.sweep(world.now, "shed", |item| (item.id % 2 == 0).then_some("even"));
    assert!(over.iter().all(|(item, why)| item.id % 2 == 0 && *why == "even"));
    assert_eq!(world.origins.held(), all.len() - over.len());
    assert!(over.len() >= 19, "all but what is under way: {}", over.len());
    world.origins.check();
}

#[test]
fn what_is_over_does_not_wait_for_its_moment() {
    let (mut origins, now) = (Origins::<usize, usize>::new(LIMITS), World::new(LIMITS, Vec::new()).now);
    for id in 0..2 {
        origins.push(&name(id), NORMAL, id, now).unwrap();
        let Start { origin, level, item, .. } = origins.next(now).unwrap();
        origins.on_ended(origin, None, Effect { health: Health::Well, ..Effect::NONE }, now);
        origins.put_back(origin, level, item, now.at + Duration::from_secs(3600), now);
    }
    assert_eq!(origins.sweep(now, "shed", |id| (*id == 0).then_some("even")), [(0, "even")]);
    assert_eq!((origins.held(), origins.wakes.len()), (1, 1));
    origins.check();
}

#[test]
fn repeats_that_the_budget_does_not_pay_for_wait_and_fresh_ones_go_on() {
    let mut origins = Origins::<usize, usize>::new(LIMITS);
    let now = Now { at: Instant::now(), unix: Timestamp(u64::MAX) }; // From then on no floor flows in.
    let effect = Effect { health: Health::Well, pause: Duration::ZERO, random: 0 };
    origins.push(&name(0), NORMAL, 0, now).unwrap();
    for _ in 0..RETRY_BUDGET_MAX {
        let Start { origin, item, .. } = origins.next(now).unwrap();
        origins.on_ended(origin, None, effect, now);
        origins.put_back(origin, NORMAL, item, now.at, now);
        assert_eq!(origins.release(now), None);
    }
    let Start { origin, item, .. } = origins.next(now).expect("the last one that is paid");
    origins.on_ended(origin, None, effect, now);
    origins.put_back(origin, NORMAL, item, now.at, now);
    origins.release(now);
    assert!(origins.next(now).is_none());
    assert_eq!(origins.release(now), Some(now.at + BUDGET_PAUSE));
    origins.push(&name(0), NORMAL, 1, now).unwrap();
    assert_eq!(origins.next(now).unwrap().item, 1);
    origins.check();
}

#[test]
fn made_up_origins_share_one_half() {
    // Names that are not there, one endpoint each, are tried for hours.
    let mut world = World::new(LIMITS, vec![Kind::Dead(20); 601]);
    world.attempts_max = u32::MAX;
    world.kinds[0] = Kind::Good(20);
    let counts: Vec<usize> = std::iter::once(200).chain([1; 600]).collect();
    let good = world.add_mixed(NORMAL, &counts).swap_remove(0);
    world.run(Duration::from_secs(300));
    assert!(good.clone().all(|id| world.fate(id) == Some(Fate::Accepted)));
    assert!(world.lakes[NORMAL].is_empty(), "{} left", world.lakes[NORMAL].len());
    for _ in 0..40 {
        let (late, asked_at) = (world.add(NORMAL, 0, 3), world.elapsed());
        world.run(asked_at + Duration::from_secs(5));
        assert!(late.clone().all(|id| world.fate(id) == Some(Fate::Accepted)), "at {asked_at:?}");
    }
    assert!(world.origins.held() <= 50, "half of what may be held: {}", world.origins.held());
}

#[test]
fn an_answer_of_any_priority_tells_made_up_origins_from_an_outage() {
    let mut world = World::new(LIMITS, vec![Kind::Dead(20); 301]);
    world.attempts_max = u32::MAX;
    world.kinds[0] = Kind::Good(20);
    for origin in 1..=300 {
        world.add(NORMAL, origin, 1);
    }
    let good = world.add(NORMAL, 0, 50);
    world.run(Duration::from_secs(60));
    assert!(!world.fates.values().any(|(fate, _)| *fate == Fate::Shed), "nobody has answered");
    assert_eq!(world.origins.held(), 100);
    for _ in 0..100 {
        world.add(HIGH, 0, 1);
        world.run(world.elapsed() + Duration::from_secs(5));
    }
    assert!(good.clone().all(|id| world.fate(id) == Some(Fate::Accepted)));
}

#[test]
fn an_old_notification_that_waits_takes_no_grace_from_a_burst() {
    let mut world = World::new(LIMITS, vec![Kind::Good(20)]);
    let mut origins = Origins::<Item, usize>::new(LIMITS);
    std::mem::swap(&mut origins, &mut world.origins);
    // One waits for a minute, as its own subscription was told.
    let old = Item { id: usize::MAX, origin: 0, attempts: 0 };
    origins.push(&name(0), NORMAL, old, world.now).unwrap();
    let Start { origin, level, item, .. } = origins.next(world.now).unwrap();
    origins.on_ended(origin, None, Effect { health: Health::Well, ..Effect::NONE }, world.now);
    origins.put_back(origin, level, item, world.now.at + Duration::from_secs(600), world.now);
    world.origins = origins;
    world.run(Duration::from_secs(500));
    world.now = Now { at: world.begun + Duration::from_secs(500), ..world.now };
    let burst = world.add(NORMAL, 0, 1000);
    world.run(Duration::from_secs(590));
    assert!(burst.clone().all(|id| world.fate(id) == Some(Fate::Accepted)));
}

#[test]
fn a_pause_is_no_reason_to_shed_unless_it_is_too_long() {
    let (full, shut) = (|seconds: u64| Kind::Full(1000 * seconds), |seconds: u64| Kind::Shut(1000 * seconds));
    for (kind, is_shed) in [(full(240), false), (full(3600), true), (shut(240), true)] {
        let mut world = World::new(LIMITS, vec![kind, Kind::Good(7)]);
        world.attempts_max = u32::MAX;
        let [paused, good] = <[_; 2]>::try_from(world.add_mixed(NORMAL, &[300, 300])).unwrap();
        world.run(WAIT_MAX - Duration::from_secs(10));
        assert_eq!(world.shed(&paused), 0, "{kind:?}");
        world.run(2 * WAIT_MAX);
        assert_eq!(world.shed(&paused) > 0, is_shed, "{kind:?}");
        assert!(!is_shed || good.clone().all(|id| world.fate(id) == Some(Fate::Accepted)), "{kind:?}");
    }
}

#[test]
fn who_answers_does_not_queue_behind_those_who_hang() {
    let limits = Limits { origin_count_max: 4, held_max: 3 * 1000, ..LIMITS };
    let mut world = World::new(limits, vec![Kind::Dead(10_000); 201]);
    world.attempts_max = u32::MAX;
    world.kinds[0] = Kind::Good(10);
    world.add(NORMAL, 0, 1);
    world.run(Duration::from_secs(1));
    for origin in 1..=200 {
        world.add(NORMAL, origin, 1);
    }
    world.run(Duration::from_secs(9));
    assert!(world.lakes[NORMAL].is_empty());
    for _ in 0..30 {
        let asked_at = world.elapsed();
        let good = world.add(NORMAL, 0, 20);
        world.run(asked_at + Duration::from_millis(1500));
        assert!(good.clone().all(|id| world.fate(id) == Some(Fate::Accepted)), "at {asked_at:?}");
        let hanging = world.flights.iter().filter(|flight| flight.start.item.origin != 0);
        assert!(hanging.count() <= 2, "half of the places, an item each");
    }
    // It has trouble, and is well again long before the others have all been tried.
    world.kinds[0] = Kind::Dead(10);
    world.add(NORMAL, 0, 20);
    world.run(world.elapsed() + Duration::from_secs(5));
    world.kinds[0] = Kind::Good(10);
    world.run(world.elapsed() + Duration::from_secs(60));
    assert!(world.flights.iter().all(|flight| flight.start.item.origin != 0));
    let left = world.origins.origins[world.origins.ids[&name(0)]].held[NORMAL];
    assert_eq!(left, 0, "and it is remembered");
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        4 => (1u64..300).prop_map(Kind::Good),
        1 => (1u64..6000).prop_map(Kind::Dead),
        1 => (1u64..3000).prop_map(Kind::Full),
        1 => (1u64..3000).prop_map(Kind::Shut),
    ]
}

/// Origins that take nothing.
fn bad_kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![(1u64..6000).prop_map(Kind::Dead), (1u64..600_000).prop_map(Kind::Shut)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Whatever the origins do: the books are right at every step, and every item has one fate once they are well.
    #[test]
    fn every_item_has_one_fate(
        places in 1usize..5,
        kinds in proptest::collection::vec(kinds(), 1..12),
        items in proptest::collection::vec((0..LEVELS, 0usize..12, 1usize..20), 1..40),
    ) {
        let limits = Limits { origin_count_max: places, held_max: 3 * 40, ..LIMITS };
        let mut world = World::new(limits, kinds);
        world.jitter = true;
        let mut count = 0;
        for (level, origin, some) in items {
            count += some;
            let origin = origin % world.kinds.len();
            world.add(level, origin, some);
        }
        world.run(Duration::from_secs(3600));
        world.kinds.fill(Kind::Good(50));
        world.run(Duration::from_secs(36_000));
        prop_assert_eq!((world.fates.len(), world.origins.held(), world.flights.len()), (count, 0, 0));
        for (id, (fate, at)) in &world.fates {
            // A breaker's first three pauses are at least so long together.
            prop_assert!(*fate != Fate::Shed || *at >= Duration::from_millis(3500), "{} {:?} at {:?}", id, fate, at);
        }
    }

    /// Origins that take nothing delay another one below the wildcard until they are dead, and no longer: those that answer
    /// with pauses for five minutes, those that never answered until three probes have failed.
    #[test]
    fn origins_that_take_nothing_delay_another_until_they_are_dead(
        bad in proptest::collection::vec((bad_kinds(), 0usize..600), 1..6),
        good in 400usize..800,
    ) {
        let limits = Limits { origin_count_max: 16, held_max: 3 * 400, ..LIMITS };
        let (kinds, counts): (Vec<_>, Vec<_>) = std::iter::once((Kind::Good(10), good)).chain(bad).unzip();
        let answers = kinds.iter().any(|kind| matches!(kind, Kind::Shut(_)));
        let mut world = World::new(limits, kinds);
        world.attempts_max = u32::MAX;
        let good = world.add_mixed(NORMAL, &counts).swap_remove(0);
        let patience = if answers { WAIT_MAX } else { Duration::ZERO };
        world.run(patience + Duration::from_secs(120));
        let waiting = good.clone().filter(|id| world.fate(*id).is_none()).count();
        prop_assert!(waiting == 0 && world.shed(&good) == 0, "{} of {} wait", waiting, good.len());
    }
}
