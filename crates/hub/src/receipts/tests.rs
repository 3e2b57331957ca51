//! The budget of all receipts, whatever happens. What receipts say is in `tests/it/receipts.rs`.

use std::collections::HashSet;
use std::ops::Range;
use std::thread;

use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp(1_000_000);
const EVENT_COUNT_MAX: usize = 4;
const BYTES_MAX: usize = 64 << 10;

fn request(event: u64) -> ReceiptRequest {
    let until = NOW.saturating_add(std::time::Duration::from_secs(2));
    let terms = ReceiptTerms { until, every_client: true, policy: ReceiptPolicy::Any };
    ReceiptRequest { event: JournalPosition(event), terms }
}

fn receive(event: &EventReceipts, device: u32, resumes: bool) {
    let (user, arrival) = (format!("user-{device}"), Arrival { client: ClientId::from_random(1), at: Timestamp(1) });
    match resumes {
        true => event.on_resumed(&user, Some(DeviceNumber(device)), true, arrival),
        false => event.on_received(&user, Some(DeviceNumber(device)), true, arrival),
    }
}

impl EventReceipts {
    /// What it takes, as far as it can be seen: nodes of trees are taken for full.
    fn measured(&self) -> usize {
        let state = lock(&self.state);
        let Some(state) = state.as_ref() else { return 0 };
        let of_users = state.users.iter().map(|user| size_of::<Box<str>>() + user.len()).sum::<usize>();
        let of_arrivals = state.arrivals.len() * size_of::<(u32, Arrival)>() + state.arrived.capacity() * 8;
        size_of::<Self>() + state.readers.measured() + state.devices.measured() + of_users + of_arrivals
    }
}

#[derive(Debug, Clone)]
enum Action {
    Open(u64),
    /// Somebody holds the event from now on, or nobody any more.
    Hold(u64),
    Release,
    Readers(u64, u32, u32),
    Written(u64),
    /// Devices answer, or come back.
    Receive(u64, Range<u32>, bool),
    /// Of another node, which has opened the event.
    Report(u64, Range<u32>),
    Pass(u64),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let event = || 0_u64..8;
    let devices = || (0_u32..4, 1_u32..60).prop_map(|(from, count)| from << 16..(from << 16) + count);
    let action = prop_oneof![
        4 => event().prop_map(Action::Open),
        2 => event().prop_map(Action::Hold),
        1 => Just(Action::Release),
        2 => (event(), 0_u32..300_000, 1_u32..6000).prop_map(|(event, from, count)| Action::Readers(event, from, count)),
        1 => event().prop_map(Action::Written),
        6 => (event(), devices(), any::<bool>()).prop_map(|(event, some, back)| Action::Receive(event, some, back)),
        2 => (event(), devices()).prop_map(|(event, some)| Action::Report(event, some)),
        1 => (0_u64..40_000).prop_map(Action::Pass),
    ];
    prop::collection::vec(action, 1..80)
}

/// Receipts with a small budget, and what is known of every event that somebody can reach.
struct World {
    receipts: Receipts,
    node: Receipts,
    held: Vec<Arc<EventReceipts>>,
    /// By the address of an event: who has answered.
    answered: BTreeMap<*const EventReceipts, BTreeSet<u32>>,
    now: Timestamp,
}

impl World {
    fn new() -> Self {
        let (receipts, node) = (Receipts::new(EVENT_COUNT_MAX, BYTES_MAX), Receipts::new(100, usize::MAX));
        node.begin_reports();
        Self { receipts, node, held: Vec::new(), answered: BTreeMap::new(), now: NOW }
    }

    /// One that is open, or one that somebody holds.
    fn find(&self, event: u64) -> Option<Arc<EventReceipts>> {
        let position = JournalPosition(event);
        let held = || self.held.iter().find(|held| held.event() == position).cloned();
        self.receipts.get(position).or_else(held)
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Open(event) => drop(self.receipts.open(&request(event))),
            Action::Hold(event) => self.held.extend(self.receipts.get(JournalPosition(event))),
            Action::Release => drop(self.held.pop()),
            Action::Readers(event, from, count) => {
                self.find(event).inspect(|event| event.add_readers(&(from..from + count).collect()));
            }
            Action::Written(event) => _ = self.find(event).inspect(|event| event.on_written()),
            Action::Receive(event, devices, resumes) => {
                let Some(event) = self.find(event) else { return };
                self.answered.entry(Arc::as_ptr(&event)).or_default().extend(devices.clone());
                for device in devices {
                    receive(&event, device, resumes);
                    self.check_level();
                }
            }
            Action::Report(event, devices) => {
                let of_node = self.node.open(&request(event));
                devices.clone().for_each(|device| receive(&of_node, device, false));
                if let Some(open) = self.receipts.get(JournalPosition(event)) {
                    self.answered.entry(Arc::as_ptr(&open)).or_default().extend(devices);
                }
                self.node.take_report().into_iter().for_each(|report| _ = self.receipts.take_in(7, report));
            }
            Action::Pass(millis) => {
                self.now = self.now.saturating_add(std::time::Duration::from_millis(millis));
                self.receipts.sweep(self.now);
            }
        }
    }

    fn reachable(&self) -> Vec<Arc<EventReceipts>> {
        let mut seen = HashSet::new();
        let open: Vec<_> = lock(&self.receipts.table.events).open.values().cloned().collect();
        let all = open.into_iter().chain(self.held.iter().cloned());
        all.filter(|event| seen.insert(Arc::as_ptr(event))).collect()
    }

    fn check_level(&self) {
        assert!(self.receipts.bytes_len() <= BYTES_MAX, "{} bytes", self.receipts.bytes_len());
    }

    fn check(&mut self) {
        self.check_level();
        let all = self.reachable();
        let charged: usize = all.iter().map(|event| event.bytes_len()).sum();
        let of_early = lock(&self.receipts.table.events).early.bytes_len();
        assert_eq!(self.receipts.bytes_len(), charged + of_early, "the level is the sum of all charges");
        for event in &all {
            assert!(event.measured() <= event.bytes_len() + size_of::<EventReceipts>(), "{event:?}");
            assert_eq!(event.measured() == 0, event.is_forgotten());
            if let (Some(received), Some(answered)) = (event.received(), self.answered.get(&Arc::as_ptr(event))) {
                assert!(answered.iter().all(|device| received.contains(*device)), "nobody is lost of {event:?}");
            }
        }
        let alive: HashSet<_> = all.iter().map(Arc::as_ptr).collect();
        self.answered.retain(|event, _| alive.contains(event)); // The next event may have the address of one that is gone.
    }
}

proptest! {
    #[test]
    fn the_level_is_what_all_events_take_and_never_above_the_budget(actions in actions()) {
        let mut world = World::new();
        for action in actions {
            world.act(action);
            world.check();
        }
        let end = std::time::Duration::from_secs(1000);
        world.receipts.sweep(world.now);
        world.receipts.sweep(world.now.saturating_add(end));
        world.held.clear();
        prop_assert_eq!(world.receipts.bytes_len(), 0, "everything is given back");
    }
}

/// Four threads, as edge loops are; the events are opened and swept meanwhile.
#[test]
fn many_threads_stay_within_the_budget_and_never_block_each_other() {
    const THREADS: usize = 4;
    const LAST: u64 = 60;
    /// The most that a thread adds before it makes room: a receipt, and readers where events are opened.
    const STEP: usize = 20 << 10;
    let (receipts, newest) = (Receipts::new(8, BYTES_MAX), AtomicU64::new(0));
    thread::scope(|scope| {
        for number in 0..THREADS as u32 {
            let (receipts, newest) = (&receipts, &newest);
            scope.spawn(move || {
                for round in 0.. {
                    let event = newest.load(Ordering::Relaxed);
                    if event == LAST {
                        return;
                    }
                    let event = JournalPosition(event.saturating_sub(u64::from(round % 3)));
                    let Some(event) = receipts.get(event) else { continue };
                    receive(&event, round * THREADS as u32 + number, round % 5 == 0);
                    assert!(receipts.bytes_len() <= BYTES_MAX + (THREADS + 1) * STEP, "{}", receipts.bytes_len());
                }
            });
        }
        for event in 1..=LAST {
            receipts.open(&request(event)).add_readers(&(0..10_000).collect());
            newest.store(event, Ordering::Relaxed);
            receipts.sweep(NOW);
            (0..200).for_each(|_| thread::yield_now());
        }
    });
    assert!(receipts.dropped_count() > 0 && receipts.bytes_len() <= BYTES_MAX, "{}", receipts.bytes_len());
    receipts.sweep(NOW.saturating_add(std::time::Duration::from_secs(1000)));
    assert_eq!(receipts.bytes_len(), 0);
}
