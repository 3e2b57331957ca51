//! All of pacing together, in virtual time: one seed, one trace.
//!
//! A pool, driven as by a gateway, against a provider that does everything it may: it lowers and raises SETTINGS at any time,
//! answers late and out of order, has small flow windows, sends GOAWAY, refuses because of spent quotas, and has addresses
//! that die and come back. Checked at every step, independently of the code under test:
//!
//! - when a stream is opened, not more are open than the last acknowledged SETTINGS allow, and only one before the credential
//!   is proven; the flow window is never exceeded except by a single request;
//! - a failing address has at most one probe at a time;
//! - no connection that could send waits while there is work (`check_nobody_starves`), and in the end everything has been
//!   answered exactly once.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use tidings_types::Timestamp;

use super::{Breaker, ConnectionCount, Permits, Quota};

const START: u64 = 1_800_000_000_000;
const TICK: u64 = 100;
const PAYLOAD: u64 = 700;
const CEILING: u32 = 200;
const ADDRESS_COUNT: usize = 3;
/// Everything must be answered within this time after the last arrival.
const PATIENCE: u64 = 600_000;

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn within(&mut self, range: std::ops::Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }
}

/// An event of the simulation. The trace consists of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrived { count: u32 },
    Connecting { connection: u64, address: usize },
    Connected { connection: u64 },
    Settings { connection: u64, limit: u32 },
    Opened { connection: u64, notification: u32 },
    Answered { connection: u64, notification: u32 },
    GoAway { connection: u64 },
    Address { address: usize, is_up: bool },
    Repeat { notification: u32 },
    Wake,
    Tick,
}

/// A connection, with the simulation's own view of it.
struct Connection {
    number: u64,
    address: usize,
    is_probe: bool,
    is_up: bool,
    is_leaving: bool,
    permits: Permits,
    /// The limit of the last acknowledged SETTINGS.
    limit: u32,
    is_proven: bool,
    open: Vec<u32>,
    window: i64,
}

struct World {
    random: Random,
    now: u64,
    sequence: u64,
    agenda: BinaryHeap<Reverse<(u64, u64, Event)>>,
    trace: Vec<(u64, Event)>,
    lake: VecDeque<u32>,
    answered: Vec<u32>,
    arriving: u32,
    connections: Vec<Connection>,
    connection_count: u64,
    target: ConnectionCount,
    quota: Quota,
    breakers: [Breaker; ADDRESS_COUNT],
    is_up: [bool; ADDRESS_COUNT],
    window: i64,
    limit: u32,
    woken_at: Option<u64>,
    was_exhausted: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let now = START;
        let (min, more) = (random.within(1..4) as u32, random.within(0..8) as u32);
        let ramp = Duration::from_millis(random.within(0..20_000));
        let quota = Quota::new(random.within(3000..600_000) as u32, ramp, Timestamp(now));
        let window = [1500, 65_535, 8_000_000][random.within(0..3) as usize];
        let limit = random.within(1..500) as u32;
        let mut world = Self {
            random,
            now,
            sequence: 0,
            agenda: BinaryHeap::new(),
            trace: Vec::new(),
            lake: VecDeque::new(),
            answered: Vec::new(),
            arriving: 0,
            connections: Vec::new(),
            connection_count: 0,
            target: ConnectionCount::new(min, min + more),
            quota,
            breakers: <_>::default(),
            is_up: [true; ADDRESS_COUNT],
            window,
            limit,
            woken_at: None,
            was_exhausted: false,
        };
        world.plan();
        world
    }

    /// Plans all events from outside.
    fn plan(&mut self) {
        for _ in 0..self.random.within(1..6) {
            let (after, count) = (self.random.within(0..20_000), self.random.within(1..500) as u32);
            self.after(after, Event::Arrived { count });
            self.arriving += count;
        }
        for address in 0..ADDRESS_COUNT {
            if self.random.chance(50) {
                let (down, up) = (self.random.within(0..10_000), self.random.within(0..60_000));
                self.after(down, Event::Address { address, is_up: false });
                self.after(down + up, Event::Address { address, is_up: true });
            }
        }
        self.after(0, Event::Tick);
    }

    fn at(&self) -> Timestamp {
        Timestamp(self.now)
    }

    fn after(&mut self, delay: u64, event: Event) {
        self.sequence += 1;
        self.agenda.push(Reverse((self.now + delay, self.sequence, event)));
    }

    /// Runs to the end and returns the trace.
    fn run(mut self) -> Vec<(u64, Event)> {
        while self.answered.len() < self.arriving as usize {
            let Reverse((at, _, event)) = self.agenda.pop().expect("there is always a next tick");
            assert!(at <= START + 20_000 + PATIENCE, "{} of {} answered", self.answered.len(), self.arriving);
            self.now = at;
            if !matches!(event, Event::Tick | Event::Wake) {
                self.trace.push((at, event));
            }
            self.handle(event);
            self.pump();
            self.check_nobody_starves();
        }
        self.answered.sort_unstable();
        assert!(self.answered.iter().copied().eq(0..self.arriving), "answered twice, or never");
        self.trace
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrived { count } => {
                let first = self.answered.len() + self.lake.len() + self.elsewhere();
                self.lake.extend((0..count).map(|number| first as u32 + number));
            }
            Event::Connected { connection } => self.on_connected(connection),
            Event::Settings { connection, limit } => {
                if let Some(connection) = self.find(connection) {
                    connection.limit = limit;
                    connection.permits.on_limit(limit as usize);
                }
            }
            Event::Answered { connection, notification } => self.on_answered(connection, notification),
            Event::GoAway { connection } => self.on_go_away(connection),
            Event::Address { address, is_up } => self.is_up[address] = is_up,
            Event::Repeat { notification } => self.lake.push_back(notification),
            Event::Tick => self.on_tick(),
            Event::Wake => self.woken_at = None,
            Event::Connecting { .. } | Event::Opened { .. } => unreachable!("they are for the trace"),
        }
    }

    /// Notifications in flight or waiting to be repeated.
    fn elsewhere(&self) -> usize {
        let repeats = self.agenda.iter().filter(|Reverse((.., event))| matches!(event, Event::Repeat { .. })).count();
        repeats + self.connections.iter().map(|connection| connection.open.len()).sum::<usize>()
    }

    fn find(&mut self, number: u64) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|connection| connection.number == number)
    }

    fn on_tick(&mut self) {
        let up = self.connections.iter().filter(|connection| connection.is_up);
        let (in_flight, limit) = up.fold((0, 0), |(in_flight, limit), connection| {
            (in_flight + u64::from(connection.permits.in_flight()), limit + u64::from(connection.permits.limit()))
        });
        let exhausted = std::mem::take(&mut self.was_exhausted);
        let target = self.target.on_tick(exhausted, in_flight, limit, Timestamp(self.now)) as usize;
        let staying = self.connections.iter().filter(|connection| !connection.is_leaving).count();
        for _ in staying..target {
            self.connect();
        }
        for connection in self.connections.iter_mut().filter(|connection| !connection.is_leaving).skip(target) {
            connection.is_leaving = true;
        }
        self.connections.retain(|connection| !(connection.is_leaving && connection.open.is_empty()));
        if self.random.chance(1) && !self.connections.is_empty() {
            let place = self.random.within(0..self.connections.len() as u64) as usize;
            let connection = self.connections[place].number;
            self.after(0, Event::GoAway { connection });
        }
        self.after(TICK, Event::Tick);
    }

    fn connect(&mut self) {
        let now = self.at();
        let first = self.connection_count as usize;
        let mut addresses = (first..first + ADDRESS_COUNT).map(|number| number % ADDRESS_COUNT);
        let was_open = self.breakers.each_ref().map(|breaker| breaker.retry_at().is_some());
        let Some(address) = addresses.find(|address| self.breakers[*address].admits(now)) else { return };
        let is_probe = was_open[address];
        if is_probe {
            let probes = self.connections.iter().filter(|it| it.address == address && it.is_probe && !it.is_up);
            assert_eq!(probes.count(), 0, "two probes at a time");
        }
        self.connection_count += 1;
        let number = self.connection_count;
        let mut permits = Permits::new(CEILING);
        permits.on_limit(self.limit as usize);
        self.connections.push(Connection {
            number,
            address,
            is_probe,
            is_up: false,
            is_leaving: false,
            permits,
            limit: self.limit,
            is_proven: false,
            open: Vec::new(),
            window: self.window,
        });
        self.trace.push((self.now, Event::Connecting { connection: number, address }));
        let delay = self.random.within(20..300);
        self.after(delay, Event::Connected { connection: number });
    }

    fn on_connected(&mut self, number: u64) {
        let (now, is_up, random) = (self.at(), self.is_up, self.random.next());
        let Some(place) = self.connections.iter().position(|connection| connection.number == number) else { return };
        let address = self.connections[place].address;
        if is_up[address] {
            self.breakers[address].on_success();
            self.connections[place].is_up = true;
        } else {
            self.breakers[address].on_failure(random, now);
            self.connections.remove(place);
        }
    }

    fn on_answered(&mut self, number: u64, notification: u32) {
        let verdict = self.random.next() % 100;
        let (base, delay, raised) = (self.limit, self.random.within(0..50), self.random.within(100..5000));
        let low = self.random.within(0..2) as u32;
        let Some(connection) = self.find(number) else { return };
        let Some(place) = connection.open.iter().position(|open| *open == notification) else { return };
        connection.open.swap_remove(place);
        connection.permits.on_ended();
        connection.window += PAYLOAD as i64;
        match verdict {
            0..3 => {
                // As APNs does after a rejected token; `low` is 0 or 1.
                self.answered.push(notification);
                self.after(delay, Event::Settings { connection: number, limit: low });
                self.after(delay + raised, Event::Settings { connection: number, limit: base });
            }
            3 => {
                let pause = self.random.within(0..5000);
                let now = Timestamp(self.now);
                self.quota.on_spent(Duration::from_millis(pause), now, now);
                self.after(pause, Event::Repeat { notification });
            }
            4..7 => self.after(raised, Event::Repeat { notification }),
            _ => {
                connection.is_proven = true;
                connection.permits.on_accepted();
                self.answered.push(notification);
            }
        }
    }

    /// The peer says that it has processed none of the open streams.
    fn on_go_away(&mut self, number: u64) {
        let Some(place) = self.connections.iter().position(|connection| connection.number == number) else { return };
        let connection = self.connections.swap_remove(place);
        self.lake.extend(connection.open);
        if !connection.is_up {
            let (random, now) = (self.random.next(), self.at());
            self.breakers[connection.address].on_failure(random, now);
        }
    }

    /// What a gateway does for each connection after each event.
    fn pump(&mut self) {
        let now = self.at();
        for place in 0..self.connections.len() {
            loop {
                let connection = &self.connections[place];
                if !connection.is_up || connection.is_leaving {
                    break;
                }
                let demand = connection.permits.demand_within(connection.window.max(0) as u64, PAYLOAD as usize);
                let given = self.quota.take(demand.min(self.lake.len()), now);
                if given == 0 {
                    break;
                }
                (0..given).for_each(|_| self.open(place));
            }
        }
        self.was_exhausted |= !self.lake.is_empty() && self.quota.next(now).is_zero();
        if !self.lake.is_empty() && self.woken_at.is_none() {
            let next = self.quota.next(now).as_millis() as u64;
            if next > 0 {
                self.woken_at = Some(self.now + next);
                self.after(next, Event::Wake);
            }
        }
    }

    fn open(&mut self, place: usize) {
        let notification = self.lake.pop_front().expect("no more is taken than there is");
        let slow = self.random.chance(2);
        let latency = if slow { self.random.within(1000..5000) } else { self.random.within(5..200) };
        let connection = &mut self.connections[place];
        connection.open.push(notification);
        connection.permits.on_opened();
        let open = connection.open.len() as u32;
        assert!(open <= connection.limit, "{open} streams open, {} allowed", connection.limit);
        assert!(connection.is_proven || open == 1, "{open} streams open before the credential is proven");
        assert!(connection.window >= PAYLOAD as i64 || open == 1, "the flow window is overdrawn");
        connection.window -= PAYLOAD as i64;
        let number = connection.number;
        self.trace.push((self.now, Event::Opened { connection: number, notification }));
        self.after(latency, Event::Answered { connection: number, notification });
    }

    /// If there is work and quota, every connection uses all its permits except fewer than a batch.
    fn check_nobody_starves(&mut self) {
        let now = self.at();
        if self.lake.is_empty() || !self.quota.next(now).is_zero() {
            return;
        }
        for connection in self.connections.iter().filter(|connection| connection.is_up && !connection.is_leaving) {
            let limit = if connection.is_proven { connection.limit.min(CEILING) } else { connection.limit.min(1) };
            let open = connection.open.len() as u32;
            let is_busy = open > limit || limit - open < (limit / 20).max(1);
            let is_narrow = open > 0 && connection.window < PAYLOAD as i64;
            assert!(is_busy || is_narrow, "{open} streams of {limit} although work waits");
        }
    }
}

#[test]
fn limits_are_kept_and_nothing_starves() {
    for seed in 0..60 {
        World::new(seed).run();
    }
}

#[test]
fn one_seed_gives_one_trace() {
    let traces: Vec<_> = [7, 8, 7].map(|seed| World::new(seed).run()).into();
    assert!(traces[0].len() > 100);
    assert_eq!(traces[0], traces[2]);
    assert_ne!(traces[0], traces[1]);
}
