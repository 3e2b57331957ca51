//! The books against a plain model: any step between any two others, also between the opening of a window and its end.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tidings_audience::Index;
use tidings_types::{Filter, Subject, TopicName};

use super::*;
use crate::outcome::Suppression;

const END: Timestamp = Timestamp(60_000);
const LIMITS: LaneLimits = LaneLimits { window_device_count: 4, in_flight_max: 8 };
const LANE_COUNT: usize = 2;

impl<N> Books<N> {
    fn may_open(&self, lane: usize) -> bool {
        let most = LIMITS.in_flight_max - LIMITS.window_device_count as u64;
        let Lane { pending, .. } = &self.lanes[lane];
        !self.is_barred && !pending.is_subset(&self.blocked) && self.lanes[lane].handed_out_len() <= most
    }
}

fn audience(numbers: &BTreeSet<u32>) -> Frozen {
    let (topic, subject) = (TopicName::new("goal").unwrap(), Subject::new("team:1").unwrap());
    let mut index = Index::new();
    numbers.iter().for_each(|&number| _ = index.insert(DeviceNumber(number), &subject, &topic));
    index.freeze(&topic, &[subject], &Filter::default())
}

fn books(numbers: &BTreeSet<u32>) -> Books<u32> {
    Books::new(LANE_COUNT, Progress::start(), audience(numbers), END)
}

/// What the store would say of a device just now: by its number and a changing salt.
fn finding(number: DeviceNumber, salt: u32) -> Finding {
    match number.0.wrapping_add(salt).wrapping_mul(2_654_435_761) >> 29 {
        0 => Finding::Suppressed(Suppression::Gone),
        place => Finding::Lane((place % 2) as usize),
    }
}

fn findings(devices: &[DeviceNumber], salt: u32) -> Vec<Finding> {
    devices.iter().map(|&device| finding(device, salt)).collect()
}

fn accepted() -> Answer {
    Answer { outcome: DeviceOutcome::Accepted, cell: u16::MAX, repeats: 0, latency: Duration::ZERO }
}

fn numbers(set: &BTreeSet<u32>) -> RoaringBitmap {
    set.iter().copied().collect()
}

/// How many devices are in each set whose memory [`crate::JobSize`] tells, in its order.
fn set_lens(books: &Books<u32>) -> [(u64, &'static str); 7] {
    let sum = |of: fn(&Lane) -> u64| books.lanes.iter().map(of).sum();
    [
        (books.resumed.len(), "resumed"),
        (books.may_answer.len(), "may_answer"),
        (sum(|lane| lane.held.len() + lane.pending.len()), "of lanes"),
        (books.superseded.len(), "superseded"),
        (books.waiters.iter().map(|waiter| waiter.numbers.len()).sum(), "waiters"),
        (books.unproven.len(), "unproven"),
        (sum(Lane::handed_out_len), "handed out"),
    ]
}

/// A driver, and what it was told.
struct World {
    books: Books<u32>,
    audience: Frozen,
    /// Devices that have received the event, by the hub.
    received: BTreeSet<u32>,
    walk: Option<WalkWindow>,
    windows: Vec<Window>,
    outgoing: Vec<Outgoing>,
    lake: BTreeSet<u32>,
    /// That were asked for.
    lanes: BTreeSet<usize>,
    /// Of these those that sleep until they are woken.
    asleep: BTreeSet<usize>,
    is_lane_wanted: bool,
    is_barred: bool,
    was_holding: bool,
    has_ended: bool,
    answered: BTreeSet<u32>,
    /// Must not be handed out: there is time left, they have answered in time, an older job has them, a newer one took
    /// them.
    waited_for: BTreeSet<u32>,
    spared: BTreeSet<u32>,
    blocked: BTreeSet<u32>,
    lost: BTreeSet<u32>,
    /// Newer jobs that were not told yet that a device has landed.
    newer: BTreeMap<u32, u32>,
    held: i64,
    counted: u64,
}

impl World {
    fn new(members: &BTreeSet<u32>, readers: &BTreeSet<u32>, blocked: &BTreeSet<u32>) -> Self {
        let mut books = books(members);
        books.block(&numbers(blocked));
        books.heed_receipts(RoaringBitmap::new(), numbers(readers));
        Self {
            books,
            audience: audience(members),
            received: BTreeSet::new(),
            walk: None,
            windows: Vec::new(),
            outgoing: Vec::new(),
            lake: BTreeSet::new(),
            lanes: BTreeSet::new(),
            asleep: BTreeSet::new(),
            is_lane_wanted: false,
            is_barred: false,
            was_holding: false,
            has_ended: false,
            answered: BTreeSet::new(),
            waited_for: &(members & readers) - blocked,
            spared: BTreeSet::new(),
            blocked: blocked.clone(),
            lost: BTreeSet::new(),
            newer: BTreeMap::new(),
            held: 0,
            counted: 0,
        }
    }

    /// After every step: takes the effects, and checks that they say what has become true.
    fn settle_down(&mut self) {
        let Effects { ended, held, wake, is_lane_wanted, is_nobody_held, is_over, landed, newer, .. } =
            self.books.take_effects();
        self.held += held;
        self.counted += ended.iter().map(|(_, devices)| devices.len()).sum::<u64>();
        self.is_lane_wanted |= is_lane_wanted;
        wake.iter().for_each(|lane| _ = self.asleep.remove(lane));
        for device in landed {
            let newest = self.newer.remove(&device).expect("a newer job waits for it");
            assert!(newer.contains(&newest), "the newest is told of {device}");
        }
        self.books.check(self.audience.len());
        let handed_out = (LANE_COUNT as u64 * LIMITS.in_flight_max).min(self.audience.len());
        for (index, (len, name)) in set_lens(&self.books).into_iter().enumerate() {
            assert!(len <= if index < 3 { self.audience.len() } else { handed_out }, "{len} are {name}");
        }
        assert_eq!(self.held as u64, self.books.held_len());
        assert_eq!(self.counted, self.books.tally().counts.total(), "each is counted once, here and over all jobs");
        assert!(!self.books.is_over() || is_over || self.has_ended, "nobody says that the job is over");
        self.has_ended |= is_over;
        let is_holding = self.books.is_holding();
        assert!(!self.was_holding || is_holding || is_nobody_held, "nobody says that the wait is over");
        self.was_holding = is_holding;
        for lane in (0..LANE_COUNT).filter(|&lane| self.books.may_open(lane)) {
            let is_told = if self.lanes.contains(&lane) { !self.asleep.contains(&lane) } else { self.is_lane_wanted };
            assert!(is_told, "lane {lane} has something to do and does not know");
        }
    }

    fn open_walk(&mut self) -> bool {
        if self.walk.is_none() {
            self.walk = self.books.open_walk(LIMITS.window_device_count);
        }
        self.walk.is_some()
    }

    fn assign(&mut self, salt: u32) {
        if let Some(window) = self.walk.take() {
            let findings = findings(window.devices(), salt);
            self.books.assign(window, &findings);
        }
    }

    fn open_window(&mut self, lane: usize) -> bool {
        self.lanes.extend(self.books.take_wanted_lanes());
        self.is_lane_wanted = false;
        if !self.lanes.contains(&lane) {
            return false;
        }
        let step = self.books.step(lane, LIMITS);
        let window = self.books.open_window(lane, LIMITS);
        assert_eq!(window.is_some(), step == Step::Open);
        let Some(window) = window else {
            self.asleep.insert(lane);
            return false;
        };
        assert!(!self.is_barred, "it hands nothing out");
        let devices: BTreeSet<u32> = window.devices().iter().map(|device| device.0).collect();
        assert!((1..=LIMITS.window_device_count).contains(&devices.len()));
        let never = [&self.waited_for, &self.spared, &self.blocked, &self.lost, &self.answered, &self.lake];
        let place = never.iter().position(|never| !devices.is_disjoint(never));
        assert_eq!(place, None, "{devices:?} may not be handed out: {never:?}");
        let others = self.windows.iter().map(Window::devices).chain(self.outgoing.iter().map(Outgoing::devices));
        assert!(others.flatten().all(|other| !devices.contains(&other.0)), "a device is in two windows");
        self.windows.push(window);
        assert!(self.books.lanes[lane].handed_out_len() <= LIMITS.in_flight_max);
        true
    }

    fn hand_out(&mut self, salt: u32) -> bool {
        if self.windows.is_empty() {
            return false;
        }
        let window = self.windows.swap_remove(salt as usize % self.windows.len());
        let (lane, devices) = (window.lane(), window.devices().to_vec());
        let findings = findings(&devices, salt);
        let unproven: Vec<_> = devices.iter().copied().filter(|device| device.0.is_multiple_of(3)).collect();
        let outgoing = self.books.hand_out(window, &findings, &unproven);
        let own = devices.iter().filter(|&&device| finding(device, salt) == Finding::Lane(lane));
        assert!(own.eq(outgoing.devices()));
        self.outgoing.push(outgoing);
        true
    }

    /// What is on its way gets into the lake, but for the last ones.
    fn push(&mut self, salt: u32) -> bool {
        if self.outgoing.is_empty() {
            return false;
        }
        let outgoing = self.outgoing.swap_remove(salt as usize % self.outgoing.len());
        let devices: Vec<DeviceNumber> = outgoing.devices().to_vec();
        let (sent, left) = devices.split_at(devices.len() - devices.len().min(salt as usize % 3));
        assert!(sent.iter().all(|device| self.lake.insert(device.0)), "in the lake twice");
        if !left.is_empty() {
            self.asleep.remove(&outgoing.lane); // It does this itself.
            // A number of no window changes nothing.
            self.books.put_back(outgoing, left.iter().copied().chain([DeviceNumber(1000)]).rev());
        }
        true
    }

    fn answer(&mut self, count: usize) {
        let devices: Vec<u32> = self.lake.iter().copied().take(count).collect();
        for device in devices {
            self.lake.remove(&device);
            let landing = self.books.settle(DeviceNumber(device), accepted()).expect("it is in flight");
            assert_eq!(landing.is_proven, device.is_multiple_of(3));
            assert!(self.answered.insert(device), "answered twice");
            assert_eq!(self.books.settle(DeviceNumber(device), accepted()), None, "it has its outcome");
        }
        self.books.end_settling();
    }

    /// Somebody answers over a connection; it is in time where the job still waits for it.
    fn receive(&mut self, salt: u32) {
        let members: Vec<u32> = self.audience.iter_from(DeviceNumber(0)).map(|number| number.0).collect();
        let number = members[salt as usize % members.len()];
        self.received.insert(number);
        if self.waited_for.remove(&number) {
            self.spared.insert(number);
        }
        self.books.receive(numbers(&self.received));
    }

    fn let_go(&mut self) {
        self.books.let_go();
        self.waited_for.clear();
    }

    fn supersede(&mut self, newer: u32) {
        let taken = |number: &DeviceNumber| (number.0.wrapping_add(newer)).is_multiple_of(2 + newer % 3);
        let taken: BTreeSet<u32> = self.audience.iter_from(DeviceNumber(0)).filter(taken).map(|it| it.0).collect();
        let open = self.books.open_devices();
        let racing = self.books.supersede(newer, &(numbers(&taken) & open));
        assert!(racing.is_subset(&self.books.handed_out()));
        self.lost.extend(&taken);
        self.newer.extend(racing.iter().map(|device| (device, newer)));
    }

    fn end(&mut self) {
        self.books.end_unsent();
        self.waited_for.clear();
        assert!(!self.books.has_unsent());
    }

    /// Killed right after a checkpoint: what is handed out is open again. Receipts are not known any more.
    fn crash(&mut self) {
        self.books.spoil_checkpoint();
        let progress = self.books.take_progress().expect("a spoilt checkpoint is written again");
        assert!(self.books.take_progress().is_none(), "nothing has changed since");
        assert!(progress.outstanding.is_disjoint(&numbers(&self.lost)), "what a newer one took comes back");
        let outstanding = progress.outstanding.len() + progress.tally.counts.total();
        self.counted = progress.tally.counts.total();
        self.books = Books::new(LANE_COUNT, progress, self.audience.clone(), END);
        assert!(outstanding + self.books.rest().len() == self.audience.len());
        (self.walk, self.windows, self.outgoing) = (None, Vec::new(), Vec::new());
        self.lake.clear();
        self.lanes.clear();
        self.asleep.clear();
        self.waited_for.clear();
        self.spared.clear();
        self.blocked.clear();
        self.newer.clear();
        (self.held, self.was_holding, self.is_lane_wanted, self.is_barred) = (0, false, false, false);
        self.has_ended = self.books.is_over();
    }

    fn bar(&mut self, is_barred: bool) {
        self.is_barred = is_barred;
        if is_barred { self.books.bar() } else { self.books.unbar() }
    }

    fn step(&mut self, action: u8, lane: usize, salt: u32) {
        match action {
            0..=2 => drop(self.open_walk()),
            3..=5 => self.assign(salt),
            6..=10 => drop(self.open_window(lane)),
            11..=14 => drop(self.hand_out(salt)),
            15..=18 => drop(self.push(salt)),
            19..=21 => self.answer(salt as usize % 5),
            22..=24 => self.receive(salt),
            25 => self.let_go(),
            26 => self.supersede(salt % 64),
            27 => {
                self.blocked.clear();
                self.books.unblock(&self.books.blocked.clone());
            }
            28 if salt.is_multiple_of(3) => self.crash(),
            29 if salt.is_multiple_of(3) => self.end(),
            30 if salt.is_multiple_of(3) => {
                self.books.cancel();
                self.waited_for.clear();
            }
            31 | 32 => self.bar(action == 31),
            _ => {}
        }
        self.settle_down();
    }

    fn finish(&mut self) {
        self.bar(false);
        self.blocked.clear();
        self.books.unblock(&self.books.blocked.clone());
        self.settle_down();
        while !self.books.is_over() {
            let mut has_moved = self.open_walk();
            self.assign(3);
            for lane in 0..LANE_COUNT {
                has_moved |= self.open_window(lane);
            }
            has_moved |= self.hand_out(3) | self.push(3) | !self.lake.is_empty();
            self.answer(100);
            if !has_moved {
                assert!(self.books.is_holding(), "nobody has anything to do, but the job is not over");
                self.let_go();
            }
            self.settle_down();
        }
    }
}

fn devices() -> impl Strategy<Value = BTreeSet<u32>> {
    // Both ends of the numbers, and both sides of a shard's border.
    let number = prop_oneof![0..60_u32, (1_u32 << 20) - 20..(1 << 20) + 20, u32::MAX - 5..=u32::MAX];
    prop::collection::btree_set(number, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_device_is_in_one_place_whatever_comes_between_two_calls(
        members in devices(),
        readers in prop::option::of(devices()),
        blocked in prop::option::of(devices()),
        actions in prop::collection::vec((0..33_u8, 0..LANE_COUNT, any::<u32>()), 0..150),
    ) {
        // Some of the audience, all, or none; strangers among them.
        let readers = readers.unwrap_or_else(|| members.clone());
        let mut world = World::new(&members, &readers, &blocked.unwrap_or_default());
        for (action, lane, salt) in actions {
            world.step(action, lane, salt);
        }
        world.finish();
        let counts = &world.books.tally().counts;
        prop_assert_eq!(counts.total(), members.len() as u64);
        prop_assert_eq!(counts.accepted(), world.answered.len() as u64);
        prop_assert!(world.newer.is_empty(), "a newer job waits for ever");
    }
}

/// Books of these devices, all pending in the first lane.
fn pending(members: &[u32]) -> Books<u32> {
    let mut books = books(&members.iter().copied().collect());
    while let Some(window) = books.open_walk(1024) {
        let findings = vec![Finding::Lane(0); window.devices().len()];
        books.assign(window, &findings);
    }
    assert_eq!(books.take_wanted_lanes(), [0]);
    books
}

fn of(books: &Books<u32>, outcome: DeviceOutcome) -> u64 {
    books.tally().counts.of(outcome)
}

#[test]
fn two_windows_of_a_lane_have_no_device_in_common() {
    let mut books = pending(&[1, 2, 3, 4, 5]);
    let [first, second] = [(); 2].map(|()| books.open_window(0, LIMITS).unwrap());
    assert_eq!(first.devices(), [1, 2, 3, 4].map(DeviceNumber));
    assert_eq!(second.devices(), [DeviceNumber(5)]);
    assert!(books.open_window(0, LIMITS).is_none());
    assert_eq!(books.settle(DeviceNumber(1), accepted()), None, "it is not handed out yet");
    books.check(5);
}

#[test]
fn what_is_cancelled_while_its_records_are_read_is_counted_once() {
    let mut books = books(&BTreeSet::from([1, 2, 3]));
    let window = books.open_walk(2).unwrap();
    books.cancel();
    assert_eq!((of(&books, DeviceOutcome::Cancelled), books.is_over()), (3, true));
    books.assign(window, &[Finding::Lane(0), Finding::Suppressed(Suppression::Gone)]);
    assert_eq!((books.tally().counts.total(), books.is_over()), (3, true));
    books.check(3);
}

#[test]
fn a_newer_job_waits_for_an_opened_device_and_has_it_when_it_is_not_handed_out() {
    let mut books = pending(&[1, 2, 3, 4]);
    let window = books.open_window(0, LIMITS).unwrap();
    assert_eq!(books.supersede(7, &RoaringBitmap::from([1, 2, 3])), RoaringBitmap::from([1, 2, 3]));
    let _ = books.take_effects();
    // Of the first three one is suppressed, one has moved to another lane, and one does not get into the lake.
    let [own, other] = [0, 1].map(Finding::Lane);
    let findings = [Finding::Suppressed(Suppression::Gone), other, own, own];
    let outgoing = books.hand_out(window, &findings, &[]);
    let effects = books.take_effects();
    assert_eq!((effects.landed, effects.newer), (RoaringBitmap::from([1, 2]), vec![7]));
    books.put_back(outgoing, [3, 4].map(DeviceNumber).into_iter());
    let effects = books.take_effects();
    assert_eq!((effects.landed, effects.newer), (RoaringBitmap::from([3]), vec![7]));
    assert_eq!((of(&books, DeviceOutcome::Superseded), books.newer_len()), (3, 0));
    assert_eq!(books.open_devices(), RoaringBitmap::from([4]));
    books.check(4);
}

#[test]
fn only_what_was_left_over_is_put_back() {
    let mut books = pending(&[1, 2, 3]);
    let window = books.open_window(0, LIMITS).unwrap();
    let outgoing = books.hand_out(window, &[Finding::Lane(0); 3], &[]);
    assert!(books.settle(DeviceNumber(2), accepted()).is_some());
    books.put_back(outgoing, [2, 3, 9].map(DeviceNumber).into_iter());
    assert_eq!(books.open_window(0, LIMITS).unwrap().devices(), [DeviceNumber(3)]);
    books.check(3);
}
