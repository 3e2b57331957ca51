//! Receipts against a naive model, and how channels open them.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use proptest::prelude::*;
use tidings_hub::{
    ARRIVAL_BYTES, Arrival, EventReceipts, Hub, Member, RECEIPT_USER_COUNT_MAX, RECEIPTS_TTL, Receipts, Recovery,
    ResumeFrom,
};
use tidings_protocol::{ClientId, Publication};
use tidings_types::{
    DeviceNumber, Epoch, JournalPosition, Offset, ReceiptPolicy, ReceiptRequest, ReceiptTerms, Timestamp,
};

use crate::{JSON, NOW, channel, hub, loop_ids, publication};

/// A receipt whose connection and time do not matter.
fn arrival() -> Arrival {
    Arrival { client: ClientId::from_random(1), at: Timestamp(1) }
}

fn request(event: u64, policy: ReceiptPolicy) -> ReceiptRequest {
    let until = NOW.saturating_add(Duration::from_secs(2));
    ReceiptRequest { event: JournalPosition(event), terms: ReceiptTerms { until, every_client: true, policy } }
}

fn client(number: u8) -> ClientId {
    ClientId::from_random(u128::from(number))
}

#[derive(Debug, Clone)]
enum Action {
    Open(u64),
    Readers(u64, u32),
    Visible(u32, u8, Option<u64>),
    Written(u64),
    Received(u64, u8, Option<u32>, bool),
    Resumed(u64, u8, Option<u32>, bool),
    Pass(u64),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let (event, device, user) = (0u64..5, 0u32..3, 0u8..3);
    let action = prop_oneof![
        3 => event.clone().prop_map(Action::Open),
        2 => (event.clone(), device.clone()).prop_map(|(event, device)| Action::Readers(event, device)),
        4 => (device.clone(), 0u8..3, prop::option::of(1u64..90_000))
            .prop_map(|(device, client, ttl)| Action::Visible(device, client, ttl)),
        2 => event.clone().prop_map(Action::Written),
        3 => (event.clone(), user.clone(), prop::option::of(device.clone()), any::<bool>())
            .prop_map(|(event, user, device, visible)| Action::Received(event, user, device, visible)),
        2 => (event, user, prop::option::of(device), any::<bool>())
            .prop_map(|(event, user, device, visible)| Action::Resumed(event, user, device, visible)),
        2 => (0u64..40_000).prop_map(Action::Pass),
    ];
    prop::collection::vec(action, 1..120)
}

#[derive(Default, Clone)]
struct EventModel {
    readers: BTreeSet<u32>,
    devices: BTreeSet<u32>,
    users: BTreeSet<String>,
    written: u64,
    received: u64,
}

/// Events of even number care for visibility, the others do not.
fn policy(event: u64) -> ReceiptPolicy {
    if event.is_multiple_of(2) { ReceiptPolicy::Visible } else { ReceiptPolicy::Any }
}

fn user_name(user: u8) -> String {
    ["", "ann", "bob"][usize::from(user)].to_owned()
}

impl EventModel {
    /// Whether a name or a device is new.
    fn count(&mut self, event: u64, user: u8, device: Option<u32>, visible: bool) -> bool {
        let known = self.users.len() + self.devices.len();
        self.users.extend(Some(user_name(user)).filter(|user| !user.is_empty()));
        self.devices.extend(device.filter(|_| visible || policy(event) == ReceiptPolicy::Any));
        self.users.len() + self.devices.len() > known
    }

    fn check(&self, event: u64, real: &EventReceipts, visible: &BTreeMap<(u32, u8), u64>) {
        let is_visible = |device: &u32| visible.keys().any(|(other, _)| other == device);
        let may_answer: Vec<u32> = match policy(event) {
            ReceiptPolicy::Any => self.readers.iter().copied().collect(),
            ReceiptPolicy::Visible => self.readers.iter().copied().filter(is_visible).collect(),
        };
        assert_eq!(real.may_answer().iter().collect::<Vec<_>>(), may_answer);
        assert_eq!(
            real.received().unwrap().iter().collect::<Vec<_>>(),
            self.devices.iter().copied().collect::<Vec<_>>()
        );
        let summary = real.summary();
        assert_eq!((summary.written, summary.received), (self.written, self.received));
        assert_eq!(summary.users, self.users.iter().cloned().collect::<Vec<_>>());
        assert!(summary.users_complete);
    }
}

const EVENT_COUNT_MAX: usize = 3;

proptest! {
    /// Whatever comes in whatever order: who may answer, whose receipt counts and which events are known are what a
    /// model says that looks everything up anew.
    #[test]
    fn receipts_are_what_a_naive_model_says(actions in actions()) {
        let receipts = Receipts::new(EVENT_COUNT_MAX, usize::MAX);
        let mut now = NOW;
        let mut events: BTreeMap<u64, EventModel> = BTreeMap::new();
        let mut removed: Option<u64> = None;
        let mut visible: BTreeMap<(u32, u8), u64> = BTreeMap::new();
        for action in actions {
            let real = |event: u64| receipts.get(JournalPosition(event));
            match action {
                Action::Open(event) => {
                    let opened = receipts.open(&request(event, policy(event)));
                    let is_again = !events.contains_key(&event) && removed >= Some(event);
                    prop_assert!(!is_again || opened.is_forgotten());
                    if !is_again {
                        events.entry(event).or_default();
                    }
                    if events.len() > EVENT_COUNT_MAX {
                        removed = removed.max(events.pop_first().map(|(event, _)| event));
                    }
                }
                Action::Readers(event, device) => if let Some(real) = real(event) {
                    real.add_readers(&[device].into_iter().collect());
                    events.get_mut(&event).unwrap().readers.insert(device);
                },
                Action::Visible(device, number, ttl) => {
                    let until = ttl.map(|ttl| Timestamp(now.0 + ttl));
                    receipts.set_visible(DeviceNumber(device), client(number), until);
                    match until {
                        Some(until) => visible.insert((device, number), until.0),
                        None => visible.remove(&(device, number)),
                    };
                }
                Action::Written(event) => if let Some(real) = real(event) {
                    real.on_written();
                    events.get_mut(&event).unwrap().written += 1;
                },
                Action::Received(event, user, device, is_visible) => if let Some(real) = real(event) {
                    real.on_received(&user_name(user), device.map(DeviceNumber), is_visible, arrival());
                    let model = events.get_mut(&event).unwrap();
                    model.count(event, user, device, is_visible);
                    model.received = model.written.min(model.received + 1);
                },
                Action::Resumed(event, user, device, is_visible) => if let Some(real) = real(event) {
                    real.on_resumed(&user_name(user), device.map(DeviceNumber), is_visible, arrival());
                    let model = events.get_mut(&event).unwrap();
                    let is_counted = device.is_some_and(|device| model.devices.contains(&device));
                    if !is_counted && model.count(event, user, device, is_visible) {
                        model.received = model.written.min(model.received + 1);
                    }
                },
                Action::Pass(millis) => {
                    now = now.saturating_add(Duration::from_millis(millis));
                    receipts.sweep(now);
                    visible.retain(|_, until| *until > now.0);
                    let until = NOW.saturating_add(Duration::from_secs(2)).saturating_add(RECEIPTS_TTL);
                    if now >= until {
                        removed = removed.max(events.keys().next_back().copied());
                        events.clear();
                    }
                }
            }
            for event in 0..5 {
                let real = receipts.get(JournalPosition(event));
                prop_assert_eq!(real.is_some(), events.contains_key(&event));
                real.inspect(|real| events[&event].check(event, real, &visible));
            }
        }
    }
}

#[test]
fn users_are_listed_up_to_a_limit_and_the_summary_says_whether_those_are_all() {
    let receipts = Receipts::new(1, usize::MAX);
    let event = receipts.open(&request(1, ReceiptPolicy::Any));
    for number in 0..RECEIPT_USER_COUNT_MAX {
        event.on_received(&format!("user-{number:04}"), None, false, arrival());
    }
    event.on_received("user-0000", None, false, arrival());
    assert!(event.summary().users_complete, "nobody is missing yet");
    event.on_received("zoe", None, false, arrival());
    let summary = event.summary();
    assert_eq!((summary.users.len(), summary.users_complete), (RECEIPT_USER_COUNT_MAX, false));
    assert!(summary.users.is_sorted());

    let event = receipts.open(&request(3, ReceiptPolicy::Any));
    event.on_received(&"x".repeat(129), None, false, arrival());
    let summary = event.summary();
    assert_eq!((summary.users.len(), summary.users_complete), (0, false), "no list of names of any length");

    let mut request = request(4, ReceiptPolicy::Any);
    request.terms.every_client = false;
    let event = receipts.open(&request);
    event.on_received("ann", Some(DeviceNumber(1)), true, arrival());
    assert!(event.summary().users.is_empty(), "nobody asked who");
}

#[test]
fn what_receipts_take_is_known_while_they_are_collected() {
    let receipts = Receipts::new(10, usize::MAX);
    assert_eq!(receipts.bytes_len(), 0);
    let events: Vec<_> = (1..=2).map(|event| receipts.open(&request(event, ReceiptPolicy::Any))).collect();
    let empty = receipts.bytes_len();
    for event in &events {
        (0..1000).for_each(|device| event.on_received("", Some(DeviceNumber(device)), true, arrival()));
    }
    assert!(receipts.bytes_len() >= empty + 2 * 1000 * ARRIVAL_BYTES, "{}", receipts.bytes_len());
    let full = receipts.bytes_len();
    receipts.sweep(NOW.saturating_add(Duration::from_secs(2) + RECEIPTS_TTL));
    assert_eq!(receipts.bytes_len(), full, "somebody still holds them");
    drop(events);
    assert_eq!(receipts.bytes_len(), 0);
}

/// 1000 receipts of devices: the sets take some 10 KiB, the rest 90.
fn answer(event: &EventReceipts) {
    (0..1000).for_each(|device| event.on_received("ann", Some(DeviceNumber(device)), true, arrival()));
}

/// Readers that are far from each other: about 90 KiB of sets.
fn fill(event: &EventReceipts) {
    event.add_readers(&(0..700).map(|device| device << 16).collect());
}

#[test]
fn what_decides_no_push_goes_before_any_event_is_forgotten() {
    let receipts = Receipts::new(20, 256 << 10);
    let events: Vec<_> = (1..=10).map(|event| receipts.open(&request(event, ReceiptPolicy::Any))).collect();
    events.iter().for_each(|event| answer(event));
    assert!(events.iter().all(|event| event.received().unwrap().len() == 1000), "who has it is known of all");
    assert_eq!(receipts.dropped_count(), 0);
    let known = |event: &EventReceipts| (event.arrival(DeviceNumber(3)).is_some(), event.summary().users_complete);
    assert_eq!((known(&events[0]), known(&events[9])), ((false, false), (true, true)));
    assert_eq!((events[0].time_to(Timestamp(0)), events[0].summary().received), (None, events[9].summary().received));
    answer(&events[0]);
    assert!(events[0].arrival(DeviceNumber(3)).is_none() && events[0].summary().users.is_empty());
    events[0].on_received("bob", Some(DeviceNumber(5000)), true, arrival());
    assert_eq!((events[0].received().unwrap().len(), known(&events[0])), (1001, (false, false)));
}

#[test]
fn of_two_events_the_one_whose_time_ends_first_is_forgotten_and_not_opened_again() {
    let receipts = Receipts::new(10, 256 << 10);
    let mut long = request(1, ReceiptPolicy::Any);
    long.terms.until = NOW.saturating_add(Duration::from_secs(30));
    let [older, younger] = [long, request(2, ReceiptPolicy::Any)].map(|request| receipts.open(&request));
    fill(&older);
    fill(&younger);
    fill(&receipts.open(&request(3, ReceiptPolicy::Any)));
    assert!(!older.is_forgotten() && younger.is_forgotten());
    // As for the next channel of the event.
    let again = receipts.open(&request(2, ReceiptPolicy::Any));
    again.add_readers(&[1].into_iter().collect());
    assert!(again.is_forgotten() && again.may_answer().is_empty() && receipts.get(JournalPosition(2)).is_none());
}

#[test]
fn when_memory_is_used_up_the_oldest_events_are_forgotten_also_for_whoever_holds_them() {
    let receipts = Receipts::new(10, 256 << 10);
    let events: Vec<_> = (1..=5).map(|event| receipts.open(&request(event, ReceiptPolicy::Any))).collect();
    events.iter().for_each(|event| event.add_readers(&[7].into_iter().collect()));
    let mut changed = pin!(events[0].changed());
    fill(&events[0]);
    fill(&events[2]);
    assert!(changed.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    let mut changed = pin!(events[0].changed());
    fill(&events[3]);
    assert!(changed.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready(), "who waits for it is told");
    let forgotten: Vec<bool> = events.iter().map(|event| event.is_forgotten()).collect();
    assert_eq!((forgotten, receipts.dropped_count()), (vec![true, false, false, false, false], 1));
    let first = &events[0];
    assert_eq!((first.received(), first.is_reader(DeviceNumber(7)), first.bytes_len()), (None, None, 0));
    assert!(first.may_answer().is_empty() && first.arrival(DeviceNumber(1)).is_none());
    assert!(receipts.get(JournalPosition(1)).is_none() && receipts.get(JournalPosition(2)).is_some());
    fill(first);
    first.add_readers(&(0..1000).collect());
    assert_eq!((first.received(), first.bytes_len()), (None, 0), "nothing is collected any more");

    fill(&events[4]);
    let forgotten: Vec<bool> = events.iter().map(|event| event.is_forgotten()).collect();
    assert_eq!(forgotten, [true, true, true, false, false], "the second one was too small to be enough");
    assert!(events[3..].iter().all(|event| event.is_reader(DeviceNumber(3 << 16)) == Some(true)));
    assert_eq!(receipts.bytes_len(), events.iter().map(|event| event.bytes_len()).sum::<usize>());
    assert!(receipts.bytes_len() <= 256 << 10);
}

#[test]
fn one_event_too_many_is_forgotten_like_one_too_large() {
    let receipts = Receipts::new(1, usize::MAX);
    let first = receipts.open(&request(1, ReceiptPolicy::Any));
    first.on_received("", Some(DeviceNumber(1)), true, arrival());
    let second = receipts.open(&request(2, ReceiptPolicy::Any));
    assert_eq!((first.received(), second.received()), (None, Some(Default::default())));
    assert_eq!((receipts.bytes_len(), receipts.dropped_count()), (second.bytes_len(), 0), "memory was not the reason");
}

#[test]
fn an_event_that_is_too_large_alone_is_forgotten_and_the_next_one_is_not() {
    let receipts = Receipts::new(10, 64 << 10);
    let large = receipts.open(&request(1, ReceiptPolicy::Any));
    fill(&large);
    assert!(large.is_forgotten() && receipts.bytes_len() == 0);
    let next = receipts.open(&request(2, ReceiptPolicy::Any));
    next.on_received("ann", Some(DeviceNumber(1)), true, arrival());
    assert_eq!((next.received().unwrap().len(), next.summary().users), (1, vec!["ann".to_owned()]));
}

/// They are only there for the question why.
#[test]
fn events_whose_time_is_over_and_that_somebody_holds_are_forgotten_first() {
    let receipts = Receipts::new(10, 256 << 10);
    let over = receipts.open(&request(9, ReceiptPolicy::Any));
    fill(&over);
    let still = |event| ReceiptRequest {
        terms: ReceiptTerms { until: NOW.saturating_add(RECEIPTS_TTL * 9), ..request(event, ReceiptPolicy::Any).terms },
        ..request(event, ReceiptPolicy::Any)
    };
    let open = receipts.open(&still(10));
    fill(&open);
    receipts.sweep(NOW.saturating_add(Duration::from_secs(2) + RECEIPTS_TTL));
    assert!(receipts.get(JournalPosition(9)).is_none() && over.is_reader(DeviceNumber(3 << 16)) == Some(true));
    fill(&receipts.open(&still(11)));
    assert!(over.is_forgotten() && !open.is_forgotten());
}

#[test]
fn what_others_report_of_events_that_are_not_open_takes_of_the_same_memory() {
    let (node, home) = (Receipts::new(10, usize::MAX), Receipts::new(10, 256 << 10));
    node.begin_reports();
    let report_of = |event| {
        answer(&node.open(&request(event, ReceiptPolicy::Any)));
        node.take_report().unwrap()
    };
    let first = report_of(1);
    home.take_in(7, first.clone());
    let one = home.bytes_len();
    assert!(one > 1000 * 64, "{one}");
    assert_eq!(home.open(&request(1, ReceiptPolicy::Any)).received().unwrap().len(), 1000);
    for event in 2..9 {
        home.take_in(7, report_of(event));
        assert!(home.bytes_len() <= 256 << 10, "{}", home.bytes_len());
    }
    assert!(home.get(JournalPosition(1)).is_none(), "the oldest one");
    assert_eq!(home.open(&request(2, ReceiptPolicy::Any)).received().unwrap().len(), 0);
    assert_eq!(home.open(&request(8, ReceiptPolicy::Any)).received().unwrap().len(), 1000);
}

/// What a client says when it comes back may be what its connection before has said.
#[test]
fn a_client_that_answers_and_then_resumes_is_one_receipt() {
    let receipts = Receipts::new(10, usize::MAX);
    for (number, (user, device)) in [("", None), ("ann", None), ("ann", Some(DeviceNumber(1)))].into_iter().enumerate()
    {
        // The app is not on the screen: no receipt of a device, but one of a client.
        let event = receipts.open(&request(number as u64, ReceiptPolicy::Visible));
        (0..3).for_each(|_| event.on_written());
        event.on_received(user, device, false, arrival());
        (0..5).for_each(|_| event.on_resumed(user, device, false, arrival()));
        assert_eq!((event.summary().written, event.summary().received), (3, 1), "{user:?}, {device:?}");
    }
    let event = receipts.open(&request(9, ReceiptPolicy::Any));
    event.on_written();
    event.on_resumed("ann", None, false, arrival());
    event.on_received("ann", None, false, arrival()); // Its pong was on the way.
    assert_eq!((event.summary().written, event.summary().received), (1, 1));
}

#[test]
fn a_change_between_looking_and_waiting_is_not_missed() {
    let receipts = Receipts::new(1, usize::MAX);
    let event = receipts.open(&request(1, ReceiptPolicy::Any));
    let mut context = Context::from_waker(Waker::noop());
    for change in [
        |event: &EventReceipts| event.on_received("ann", None, true, arrival()),
        |event: &EventReceipts| {
            event.add_readers(&[1].into_iter().collect());
        },
    ] {
        let mut changed = pin!(event.changed());
        change(&event);
        assert!(changed.as_mut().poll(&mut context).is_ready());
        assert!(pin!(event.changed()).poll(&mut context).is_pending(), "only what comes after the call counts");
    }
}

fn enter(hub: &Hub, name: &str, device: u32) -> std::sync::Arc<tidings_hub::Channel> {
    let member = Member {
        device: Some(DeviceNumber(device)),
        ..Member::reader(loop_ids(hub)[0], ClientId::from_random(1), JSON)
    };
    hub.subscribe(&channel(name), &member, None).unwrap().channel
}

fn publish(hub: &Hub, name: &str, offset: u64, event: u64) {
    let publication = Publication { receipt: Some(request(event, ReceiptPolicy::Any)), ..publication(offset) };
    hub.publish_durable(&channel(name), Offset(offset), publication, NOW).unwrap();
}

fn readers(hub: &Hub, event: u64) -> Vec<u32> {
    hub.receipts().get(JournalPosition(event)).unwrap().may_answer().iter().collect()
}

/// A device is a reader as long as one of its connections is in the channel and proven, in any channel of the event.
#[test]
fn an_event_knows_the_proven_devices_that_read_its_channels_when_it_was_published() {
    let hub = hub(10);
    let loop_id = loop_ids(&hub)[0];
    let one = enter(&hub, "durable:1", 7);
    enter(&hub, "durable:1", 7);
    let mut anonymous = Member::reader(loop_id, ClientId::from_random(1), JSON);
    hub.subscribe(&channel("durable:1"), &anonymous, None).unwrap();
    enter(&hub, "durable:2", 9);
    publish(&hub, "durable:1", 1, 1);
    assert_eq!(readers(&hub, 1), [7]);
    publish(&hub, "durable:2", 1, 1);
    assert_eq!(readers(&hub, 1), [7, 9]);

    hub.unsubscribe(&one, loop_id, client(1), Some(DeviceNumber(7)), JSON);
    publish(&hub, "durable:1", 2, 2);
    assert_eq!(readers(&hub, 2), [7], "its other connection is still there");
    one.disown(client(2), DeviceNumber(7));
    publish(&hub, "durable:1", 3, 3);
    assert_eq!(readers(&hub, 3), [0; 0]);
    hub.unsubscribe(&one, loop_id, client(2), None, JSON);
    anonymous.device = Some(DeviceNumber(7));
    hub.subscribe(&channel("durable:1"), &anonymous, None).unwrap();
    publish(&hub, "durable:1", 4, 4);
    assert_eq!(readers(&hub, 4), [7]);
    assert_eq!(readers(&hub, 3), [0; 0], "who comes later is none of an earlier event's");
}

#[test]
fn only_what_was_published_for_receipts_and_is_new_asks_for_them() {
    let hub = hub(10);
    let reader = enter(&hub, "durable:1", 7);
    publish(&hub, "durable:1", 1, 1);
    hub.publish_durable(&channel("durable:1"), Offset(2), publication(2), NOW).unwrap();
    publish(&hub, "durable:1", 2, 5); // The channel has it already.
    let mut frames = Vec::new();
    let _ = reader.fetch(0, 1 << 20, &mut frames).unwrap();
    let asked: Vec<_> = frames.iter().map(|frame| frame.receipt).collect();
    assert_eq!(asked, [Some(JournalPosition(1)), None]);
    assert!(hub.receipts().get(JournalPosition(5)).is_none());
}

/// What was published before a restart is no event of this run, however often the journal hands it in.
#[test]
fn what_is_restored_opens_no_receipts() {
    let publication = |offset| {
        let receipt = Some(request(offset, ReceiptPolicy::Any));
        Publication { offset: Offset(offset), receipt, ..publication(offset) }
    };
    let hub = hub(10).with_histories(crate::histories::Journal::with([1, 2].map(publication)), usize::MAX);
    hub.restore(&channel("durable:1"), Offset(2), NOW).unwrap();
    crate::histories::wait_for(hub.load(&channel("durable:1"), tidings_hub::Wanted::Any));
    let from = ResumeFrom { offset: Offset(0), epoch: None, limit: 100.into(), is_required: false };
    let member =
        Member { device: Some(DeviceNumber(7)), ..Member::reader(loop_ids(&hub)[0], ClientId::from_random(1), JSON) };
    for _ in 0..2 {
        let made = hub.subscribe(&channel("durable:1"), &member, Some(&from)).unwrap();
        assert!(matches!(&made.recovery, Some(Recovery::Recovered(publications)) if publications.len() == 2));
        assert!(made.receipts.is_empty() && hub.receipts().get(JournalPosition(2)).is_none());
        hub.publish_durable(&channel("durable:1"), Offset(2), publication(2), NOW).unwrap();
    }
}

#[test]
fn who_resumes_is_told_which_publications_still_collect_receipts() {
    let hub = hub(10);
    let told = |epoch: Option<Epoch>| {
        let from = epoch.map(|epoch| ResumeFrom {
            offset: Offset(0),
            epoch: Some(epoch.as_str().to_owned()),
            limit: 100.into(),
            is_required: false,
        });
        let member = Member::reader(loop_ids(&hub)[0], ClientId::from_random(1), JSON);
        let made = hub.subscribe(&channel("durable:1"), &member, from.as_ref()).unwrap();
        made.receipts.iter().map(|(offset, event)| (offset.0, event.event().0)).collect::<Vec<_>>()
    };
    for offset in 1..=5 {
        publish(&hub, "durable:1", offset, 10 + offset);
    }
    assert_eq!(told(None), []);
    assert_eq!(told(Some(Epoch::from_random(1))), [(3, 13), (4, 14), (5, 15)], "three events at one time");
    // Of the last one only whether its device has got it is asked: soon nobody wants to know any more.
    let mut of_devices = request(16, ReceiptPolicy::Any);
    of_devices.terms.every_client = false;
    let of_devices = Publication { receipt: Some(of_devices), ..publication(6) };
    hub.publish_durable(&channel("durable:1"), Offset(6), of_devices, NOW).unwrap();
    assert_eq!(told(Some(Epoch::from_random(1))), [(4, 14), (5, 15), (6, 16)]);
    hub.sweep(NOW.saturating_add(Duration::from_secs(2)));
    assert_eq!(told(Some(Epoch::from_random(1))), [(4, 14), (5, 15)]);
    assert!(hub.receipts().get(JournalPosition(16)).is_some(), "what came can still be asked for");
    hub.sweep(NOW.saturating_add(Duration::from_secs(2)).saturating_add(RECEIPTS_TTL));
    assert_eq!(told(Some(Epoch::from_random(1))), []);
}
