//! The logic against a simple model: a list of everything that was written and pinged, searched from the beginning.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tidings_hub::{Arrival, Receipts};
use tidings_protocol::ClientId;
use tidings_types::{JournalPosition, ReceiptRequest};

use super::*;

const SWEEP_INTERVAL: Duration = Duration::from_millis(500);
const INTERVAL: Duration = Duration::from_secs(5);
const PONG_TIMEOUTS: [Duration; 3] = [Duration::from_secs(2), Duration::from_millis(4500), Duration::from_secs(12)];
const START: Timestamp = Timestamp(1_000_000);
const DEVICE: DeviceNumber = DeviceNumber(7);

#[derive(Debug, Clone)]
enum Action {
    /// One event in one channel.
    Write(u64, usize),
    /// This many different events in one channel.
    Burst(u64, usize),
    Unsubscribe(usize),
    Pong,
    /// Visible for this many milliseconds, or hidden.
    Visible(u64),
    Revoke,
    /// Time passes, at most the sweep's interval; then the sweep.
    Pass(u64),
    /// This many times almost the sweep's interval, each time with or without a pong.
    Idle(u64, bool),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        6 => (0u64..6, 0usize..3).prop_map(|(event, channel)| Action::Write(event, channel)),
        1 => (prop_oneof![4 => 1u64..50, 1 => 500u64..1200], 0usize..3).prop_map(|(count, channel)| Action::Burst(count, channel)),
        2 => (0usize..3).prop_map(Action::Unsubscribe),
        5 => Just(Action::Pong),
        2 => prop_oneof![Just(0u64), 1u64..4000].prop_map(Action::Visible),
        1 => prop::num::u8::ANY.prop_filter_map("seldom", |n| (n < 40).then_some(Action::Revoke)),
        6 => (0u64..=500).prop_map(Action::Pass),
        1 => (1u64..25, any::<bool>()).prop_map(|(count, is_answered)| Action::Idle(count, is_answered)),
    ];
    prop::collection::vec(action, 1..200)
}

/// Three kinds of events in turn.
fn terms(event: u64) -> ReceiptTerms {
    let policy = if event.is_multiple_of(3) { ReceiptPolicy::Visible } else { ReceiptPolicy::Any };
    ReceiptTerms { until: Timestamp(START.0 + 8000), every_client: event % 3 == 2, policy }
}

#[derive(Debug)]
enum Item {
    Written { event: u64, channel: usize, is_waiting: bool },
    Ping,
}

/// The logic, driven as the loop drives it, and the model.
struct Rig {
    pings: Pings,
    identity: Identity,
    receipts: Receipts,
    timing: Timing,
    pong_timeout: Duration,
    began: Instant,
    now: Instant,
    items: Vec<Item>,
    in_flight: Option<usize>,
    last_ping: Instant,
    /// By event: how often written; whether it counts for the device.
    written: Vec<u64>,
    counted: BTreeSet<u64>,
    /// Events of bursts are all different.
    fresh: u64,
}

impl Rig {
    fn new(pong_timeout: Duration) -> Self {
        let timing = Timing::new(INTERVAL, pong_timeout, SWEEP_INTERVAL).unwrap();
        let now = Instant::now();
        let mut pings = Pings::default();
        assert!(!pings.are_answered());
        pings.begin(timing, 1.0, Pongs::Required, now);
        let identity = Identity { device: Some(DEVICE), visible_until: Timestamp(0) };
        Self {
            pings,
            identity,
            receipts: Receipts::new(usize::MAX, usize::MAX),
            timing,
            pong_timeout,
            began: now,
            now,
            items: Vec::new(),
            in_flight: None,
            last_ping: now,
            written: vec![0; 20_000],
            counted: BTreeSet::new(),
            fresh: 6,
        }
    }

    fn unix(&self) -> Timestamp {
        START.saturating_add(self.now - self.began)
    }

    fn open(&self, event: u64) -> Arc<EventReceipts> {
        self.receipts.open(&ReceiptRequest { event: JournalPosition(event), terms: terms(event) })
    }

    fn waiting(&self) -> impl Iterator<Item = (usize, u64)> {
        self.items.iter().enumerate().filter_map(|(index, item)| match item {
            Item::Written { event, is_waiting: true, .. } => Some((index, *event)),
            _ => None,
        })
    }

    /// Removes what the model says is over, by a rule on event and channel.
    fn end(&mut self, is_over: impl Fn(u64, usize) -> bool) -> usize {
        let mut count = 0;
        for item in &mut self.items {
            if let Item::Written { event, channel, is_waiting } = item
                && *is_waiting
                && is_over(*event, *channel)
            {
                *is_waiting = false;
                count += 1;
            }
        }
        count
    }

    fn write(&mut self, event: u64, channel: usize) {
        let required = match (terms(event).every_client, event % 3) {
            (true, _) => true,
            _ if terms(event).until <= self.unix() => false,
            (_, 0) => self.identity.device.is_some() && self.identity.visible_until > self.unix(),
            _ => self.identity.device.is_some(),
        };
        assert_eq!(self.identity.is_wanted_by(&terms(event), self.unix()), required);
        if !required {
            return;
        }
        if !self.waiting().any(|(_, other)| other == event) {
            self.written[event as usize] += 1;
        }
        self.items.push(Item::Written { event, channel, is_waiting: true });
        let oldest = (self.waiting().count() > PENDING_COUNT_MAX).then(|| self.waiting().next().unwrap().0);
        if let Some(Item::Written { is_waiting, .. }) = oldest.map(|index| &mut self.items[index]) {
            *is_waiting = false;
        }
        let dropped = self.pings.on_written(self.open(event), channel);
        assert_eq!(dropped, usize::from(oldest.is_some()));
    }

    fn ping(&mut self) {
        assert!(self.in_flight.is_none(), "at most one in flight");
        self.pings.on_sent(self.timing, self.now);
        self.items.push(Item::Ping);
        self.in_flight = Some(self.items.len() - 1);
        self.last_ping = self.now;
    }

    fn ask(&mut self) {
        if self.pings.wants_receipts() && self.pings.may_ask(self.now) {
            assert!(self.now - self.began >= QUIET, "none for a receipt in the first second");
            self.ping();
        }
    }

    fn pong(&mut self) {
        let Some(ping) = self.in_flight.take() else { return };
        let expected: BTreeSet<u64> =
            self.waiting().filter(|(index, _)| *index < ping).map(|(_, event)| event).collect();
        let (mut got, identity, unix) = (Vec::new(), self.identity, self.unix());
        let arrival = Arrival { client: ClientId::from_random(1), at: unix };
        let count = self.pings.on_pong(|event| {
            event.on_received("", identity.device, identity.is_visible(unix), arrival);
            got.push(event.event().0);
        });
        assert_eq!(got.len(), expected.len(), "each once");
        assert_eq!(
            got.into_iter().collect::<BTreeSet<_>>(),
            expected,
            "what was written before the ping, all and only"
        );
        assert_eq!(self.end(|event, _| expected.contains(&event)), count);
        let is_visible = identity.visible_until > unix;
        let counts = |event: &&u64| identity.device.is_some() && (is_visible || !event.is_multiple_of(3));
        self.counted.extend(expected.iter().filter(counts));
    }

    /// `false`: the pong is late, the connection is closed.
    fn pass(&mut self, millis: u64) -> bool {
        self.now += Duration::from_millis(millis);
        if self.pings.is_overdue(self.now) {
            assert!(self.in_flight.is_some() && self.now - self.last_ping >= self.pong_timeout);
            return false;
        }
        // With a longer pong timeout the ping in flight may delay the regular ping beyond the interval.
        if self.pong_timeout + SWEEP_INTERVAL <= INTERVAL {
            assert!(self.now - self.last_ping <= INTERVAL, "regular pings come within the interval");
        }
        if self.pings.is_regular_due(self.now) {
            assert!(self.now - self.last_ping >= INTERVAL - SWEEP_INTERVAL, "any ping puts the next regular one off");
            self.ping();
        }
        true
    }

    fn act(&mut self, action: &Action) -> bool {
        match *action {
            Action::Write(event, channel) => self.write(event, channel),
            Action::Burst(count, channel) => {
                (self.fresh..self.fresh + count).for_each(|event| self.write(event, channel));
                self.fresh += count;
            }
            Action::Unsubscribe(channel) => {
                let dropped = self.pings.drop_channel(channel);
                assert_eq!(self.end(|_, other| other == channel), dropped);
            }
            Action::Pong => self.pong(),
            Action::Visible(ttl) => {
                self.identity.visible_until = Timestamp(if ttl == 0 { 0 } else { self.unix().0 + ttl })
            }
            Action::Revoke => {
                self.identity.device = None;
                let dropped = self.pings.drop_device();
                assert_eq!(self.end(|event, _| !terms(event).every_client), dropped);
            }
            Action::Pass(millis) => return self.pass(millis),
            Action::Idle(count, is_answered) => {
                return (0..count).all(|_| {
                    if is_answered {
                        self.pong();
                    }
                    self.pass(487)
                });
            }
        }
        true
    }

    fn check(&self) {
        let is_unasked = |(index, _): (usize, u64)| self.in_flight.is_none_or(|ping| index > ping);
        assert_eq!(self.pings.wants_receipts(), self.waiting().any(is_unasked));
        let is_quiet = self.now - self.began < QUIET;
        assert_eq!(self.pings.may_ask(self.now), self.in_flight.is_none() && !is_quiet);
        assert_eq!(self.pings.pending.as_ref().map_or(0, |pending| pending.written.len()), self.waiting().count());
        for (event, written) in self.written.iter().enumerate().take(self.fresh as usize) {
            if let Some(receipts) = self.receipts.get(JournalPosition(event as u64)) {
                assert_eq!(receipts.summary().written, *written);
                assert_eq!(receipts.received().unwrap().contains(DEVICE.0), self.counted.contains(&(event as u64)));
            }
        }
    }
}

proptest! {
    #[test]
    fn pings_and_receipts_are_what_a_naive_model_says(actions in actions(), pong_timeout in prop::sample::select(&PONG_TIMEOUTS)) {
        let mut rig = Rig::new(pong_timeout);
        for action in actions {
            if !rig.act(&action) {
                break;
            }
            rig.ask();
            rig.check();
            assert!(!rig.pings.wants_receipts() || !rig.pings.may_ask(rig.now));
        }
    }
}

#[test]
fn a_connection_from_which_nothing_is_wanted_costs_a_pointer() {
    assert_eq!(size_of::<Option<Box<Pending>>>(), 8);
    assert!(size_of::<Pings>() + size_of::<Identity>() <= 64 + 16, "{}", size_of::<Pings>());
}

#[test]
fn what_comes_after_its_time_is_asked_of_nobody_unless_everybody_is_asked() {
    let terms = |every_client| ReceiptTerms { until: START, every_client, policy: ReceiptPolicy::Any };
    let identity = Identity { device: Some(DEVICE), visible_until: Timestamp(u64::MAX) };
    assert!(identity.is_wanted_by(&terms(false), Timestamp(START.0 - 1)));
    assert!(!identity.is_wanted_by(&terms(false), START));
    assert!(identity.is_wanted_by(&terms(true), START));
}

/// Pings of a client that answers as said, after its first second; one event is written and asked for.
fn asked(pongs: Pongs, receipts: &Receipts) -> (Pings, Timing, Instant) {
    let timing = Timing::new(INTERVAL, PONG_TIMEOUTS[0], SWEEP_INTERVAL).unwrap();
    let (mut pings, now) = (Pings::default(), Instant::now());
    pings.begin(timing, 1.0, pongs, now);
    let now = now + QUIET;
    pings.on_written(receipts.open(&ReceiptRequest { event: JournalPosition(1), terms: terms(2) }), 0);
    pings.on_sent(timing, now);
    (pings, timing, now + PONG_TIMEOUTS[0])
}

#[test]
fn a_pong_that_need_not_come_and_is_late_proves_nothing_and_the_next_one_does() {
    let receipts = Receipts::new(usize::MAX, usize::MAX);
    let (mut pings, timing, now) = asked(Pongs::Optional, &receipts);
    assert_eq!((pings.drop_overdue(now - SWEEP_INTERVAL), pings.drop_overdue(now)), (0, 1));
    assert!(!pings.is_overdue(now) && !pings.wants_receipts() && pings.may_ask(now));
    let second = receipts.open(&ReceiptRequest { event: JournalPosition(2), terms: terms(2) });
    pings.on_written(second, 0);
    pings.on_sent(timing, now);
    let mut received = Vec::new();
    let mut pong = |pings: &mut Pings| pings.on_pong(|event| received.push(event.event()));
    assert_eq!((pong(&mut pings), pong(&mut pings)), (0, 1), "the first may be the answer to the first ping");
    assert_eq!(received, [JournalPosition(2)]);
}

#[test]
fn a_pong_that_must_come_is_overdue_and_one_that_cannot_come_is_never_awaited() {
    let receipts = Receipts::new(usize::MAX, usize::MAX);
    let (mut pings, _, now) = asked(Pongs::Required, &receipts);
    assert_eq!((pings.drop_overdue(now), pings.is_overdue(now)), (0, true));
    let (mut pings, _, now) = asked(Pongs::None, &receipts);
    assert_eq!((pings.drop_overdue(now), pings.is_overdue(now)), (0, false));
    assert!(!pings.are_answered() && !pings.may_ask(now) && pings.is_regular_due(now + INTERVAL));
}
