//! The index against a plain set of rows, and what it costs.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const TOPICS: [&str; 3] = ["goal", "red_card", "kick-off"];
const SUBJECTS: [&str; 5] = ["team:1", "team:2", "user:7", "user:42", "users:7"];
const USERS: [&str; 3] = ["42", "7", "a:b"];

fn topic(index: usize) -> TopicName {
    TopicName::new(TOPICS[index]).unwrap()
}

fn subject(index: usize) -> Subject {
    Subject::new(SUBJECTS[index]).unwrap()
}

fn user(index: usize) -> UserId {
    UserId::new(USERS[index]).unwrap()
}

#[derive(Debug, Clone)]
enum Operation {
    Insert(u32, usize, usize),
    Remove(u32, usize, usize),
    /// Many at once, so that sets cross the limit between array and Roaring in both directions.
    InsertRange(u32, u32, usize, usize),
    RemoveRange(u32, u32, usize, usize),
    RemoveDevice(u32),
    SetUser(u32, Option<usize>),
    SetUserRange(u32, u32, Option<usize>),
    Freeze(usize, Vec<usize>, u32),
    FreezeNamed(Vec<usize>, Vec<u32>, u32),
}

fn operation() -> impl Strategy<Value = Operation> {
    // Few numbers, on both sides of shard borders, so that operations meet.
    let number = || prop_oneof![0..40u32, (SHARD_DEVICE_COUNT - 20)..(SHARD_DEVICE_COUNT + 20), Just(u32::MAX)];
    let start = || prop_oneof![Just(0u32), Just(2000), Just(SHARD_DEVICE_COUNT - 3000)];
    let topic = || 0..TOPICS.len();
    let subject = || 0..SUBJECTS.len();
    let user = || 0..USERS.len();
    prop_oneof![
        6 => (number(), subject(), topic()).prop_map(|(n, s, t)| Operation::Insert(n, s, t)),
        4 => (number(), subject(), topic()).prop_map(|(n, s, t)| Operation::Remove(n, s, t)),
        1 => (start(), 1..6000u32, subject(), topic()).prop_map(|(a, n, s, t)| Operation::InsertRange(a, n, s, t)),
        1 => (start(), 1..6000u32, subject(), topic()).prop_map(|(a, n, s, t)| Operation::RemoveRange(a, n, s, t)),
        1 => number().prop_map(Operation::RemoveDevice),
        6 => (number(), prop::option::weighted(0.8, user())).prop_map(|(n, u)| Operation::SetUser(n, u)),
        1 => (start(), 1..6000u32, prop::option::of(user())).prop_map(|(a, n, u)| Operation::SetUserRange(a, n, u)),
        3 => (topic(), prop::collection::vec(subject(), 0..5), number())
            .prop_map(|(t, s, from)| Operation::Freeze(t, s, from)),
        2 => (prop::collection::vec(user(), 0..3), prop::collection::vec(number(), 0..4), number())
            .prop_map(|(u, d, from)| Operation::FreezeNamed(u, d, from)),
    ]
}

#[derive(Default)]
struct Model {
    subscriptions: BTreeSet<(u32, usize, usize)>,
    users: BTreeMap<u32, usize>,
}

fn change(index: &mut Index, model: &mut Model, add: bool, (number, s, t): (u32, usize, usize)) {
    let rows = &mut model.subscriptions;
    if add {
        assert_eq!(index.insert(DeviceNumber(number), &subject(s), &topic(t)), rows.insert((number, s, t)));
    } else {
        assert_eq!(index.remove(DeviceNumber(number), &subject(s), &topic(t)), rows.remove(&(number, s, t)));
    }
}

fn set_user(index: &mut Index, model: &mut Model, number: u32, after: Option<usize>) {
    let before = match after {
        Some(after) => model.users.insert(number, after),
        None => model.users.remove(&number),
    };
    index.set_user(DeviceNumber(number), before.map(user).as_ref(), after.map(user).as_ref());
}

fn check_frozen(frozen: &Frozen, expected: &BTreeSet<u32>, from: u32) {
    assert_eq!(frozen.len(), expected.len() as u64);
    assert_eq!(frozen.is_empty(), expected.is_empty());
    assert!(frozen.iter_from(DeviceNumber(0)).map(|number| number.0).eq(expected.iter().copied()));
    assert!(frozen.iter_from(DeviceNumber(from)).map(|number| number.0).eq(expected.range(from..).copied()));
    assert_eq!(frozen.contains(DeviceNumber(from)), expected.contains(&from));
}

fn expected_audience(model: &Model, t: usize, subjects: &[usize]) -> BTreeSet<u32> {
    let is_meant = |&&(_, s, topic): &&(u32, usize, usize)| topic == t && subjects.contains(&s);
    let subscribed = model.subscriptions.iter().filter(is_meant).map(|&(number, ..)| number);
    let is_subject = |u: usize| subjects.iter().any(|&s| SUBJECTS[s] == format!("user:{}", USERS[u]));
    subscribed.chain(devices_of(model, is_subject)).collect()
}

fn devices_of(model: &Model, is_meant: impl Fn(usize) -> bool) -> impl Iterator<Item = u32> {
    model.users.iter().filter(move |(_, u)| is_meant(**u)).map(|(&number, _)| number)
}

fn apply(index: &mut Index, model: &mut Model, frozen: &mut Vec<(Frozen, BTreeSet<u32>)>, operation: Operation) {
    match operation {
        Operation::Insert(number, s, t) => change(index, model, true, (number, s, t)),
        Operation::Remove(number, s, t) => change(index, model, false, (number, s, t)),
        Operation::InsertRange(start, count, s, t) => {
            (start..start + count).for_each(|number| change(index, model, true, (number, s, t)));
        }
        Operation::RemoveRange(start, count, s, t) => {
            (start..start + count).for_each(|number| change(index, model, false, (number, s, t)));
        }
        Operation::RemoveDevice(number) => {
            let of_device = (number, 0, 0)..=(number, usize::MAX, usize::MAX);
            let rows: Vec<_> = model.subscriptions.range(of_device).copied().collect();
            let names: Vec<_> = rows.iter().map(|&(_, s, t)| (subject(s), topic(t))).collect();
            index.remove_device(DeviceNumber(number), names.iter().map(|(subject, topic)| (subject, topic)));
            rows.iter().for_each(|row| assert!(model.subscriptions.remove(row)));
            set_user(index, model, number, None);
        }
        Operation::SetUser(number, after) => set_user(index, model, number, after),
        Operation::SetUserRange(start, count, after) => {
            (start..start + count).for_each(|number| set_user(index, model, number, after));
        }
        Operation::FreezeNamed(users, devices, from) => {
            let names: Vec<UserId> = users.iter().map(|&u| user(u)).collect();
            let numbers: Vec<DeviceNumber> = devices.iter().copied().map(DeviceNumber).collect();
            let expected = devices_of(model, |u| users.contains(&u)).chain(devices.iter().copied()).collect();
            let audience = index.freeze_named(&names, &numbers);
            check_frozen(&audience, &expected, from);
            frozen.push((audience, expected));
        }
        Operation::Freeze(t, subjects, from) => {
            let names: Vec<Subject> = subjects.iter().map(|&s| subject(s)).collect();
            let expected = expected_audience(model, t, &subjects);
            let audience = index.freeze(&topic(t), &names);
            check_frozen(&audience, &expected, from);
            frozen.push((audience, expected));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_index_answers_like_a_plain_set(operations in prop::collection::vec(operation(), 1..60)) {
        let (mut index, mut model, mut frozen) = (Index::new(), Model::default(), Vec::new());
        for operation in operations {
            apply(&mut index, &mut model, &mut frozen, operation);
            index.check();
            prop_assert_eq!(index.subscription_count(), model.subscriptions.len() as u64);
            let users: BTreeSet<usize> = model.users.values().copied().collect();
            prop_assert_eq!(index.user_count(), users.len());
        }
        // What was frozen has not moved with the index.
        for (audience, expected) in &frozen {
            check_frozen(audience, expected, SHARD_DEVICE_COUNT);
        }
        for &(number, s, t) in &model.subscriptions {
            prop_assert!(index.contains(DeviceNumber(number), &subject(s), &topic(t)));
        }
        for row in model.subscriptions.clone() {
            change(&mut index, &mut model, false, row);
        }
        for number in model.users.clone().into_keys() {
            set_user(&mut index, &mut model, number, None);
        }
        index.check();
        prop_assert!(index.shards.iter().all(HashMap::is_empty));
    }
}

#[test]
fn a_name_in_use_elsewhere_survives_the_end_of_a_set() {
    let mut index = Index::new();
    index.insert(DeviceNumber(1), &subject(0), &topic(0));
    index.insert(DeviceNumber(1), &subject(0), &topic(1));
    index.remove(DeviceNumber(1), &subject(0), &topic(0));
    // A new pair may take the freed numbers; the old one must not be mistaken for it.
    index.insert(DeviceNumber(2), &subject(1), &topic(2));
    assert!(index.contains(DeviceNumber(1), &subject(0), &topic(1)));
    assert!(!index.contains(DeviceNumber(1), &subject(1), &topic(2)));
    assert_eq!(index.subject_count(), 2);
}

#[test]
fn one_slot_of_a_shard_stays_small() {
    assert!(size_of::<(SetKey, Set)>() <= 32, "what one (topic, subject) costs in a shard beside its numbers");
}

#[test]
fn a_device_that_is_meant_in_every_way_is_told_once_and_a_user_whatever_the_topic() {
    let mut index = Index::new();
    let ann = UserId::new("42").unwrap();
    index.insert(DeviceNumber(1), &subject(3), &topic(0));
    index.insert(DeviceNumber(1), &subject(0), &topic(0));
    index.insert(DeviceNumber(2), &subject(0), &topic(0));
    index.set_user(DeviceNumber(1), None, Some(&ann));
    index.set_user(DeviceNumber(9), None, Some(&ann));
    let numbers = |frozen: &Frozen| frozen.iter_from(DeviceNumber(0)).map(|number| number.0).collect::<Vec<_>>();
    assert_eq!(numbers(&index.freeze(&topic(0), &[subject(0), subject(3)])), [1, 2, 9]);
    let unknown = TopicName::new("nobody_asked_for_it").unwrap();
    let before = index.freeze(&unknown, &[subject(3)]);
    assert_eq!(numbers(&before), [1, 9]);
    // The phone goes to somebody else.
    index.set_user(DeviceNumber(9), Some(&ann), Some(&UserId::new("7").unwrap()));
    assert_eq!(numbers(&index.freeze(&unknown, &[subject(3)])), [1]);
    assert_eq!(numbers(&before), [1, 9], "what is frozen does not move");
    assert_eq!(numbers(&index.freeze_named(&[ann], &[DeviceNumber(1), DeviceNumber(u32::MAX)])), [1, u32::MAX]);
}

#[test]
fn a_user_with_one_device_costs_about_eighty_bytes_and_its_name() {
    const COUNT: u32 = 100_000;
    let mut index = Index::new();
    for number in 0..COUNT {
        let name = UserId::new(&format!("user-{number:07}")).unwrap();
        index.set_user(DeviceNumber(number), None, Some(&name));
    }
    assert!(index.shards[0].values().all(|set| matches!(set, Set::One(_))), "no memory of its own for one device");
    let bytes = map_bytes(&index.shards[0]) + index.users.bytes();
    let each = bytes as f64 / f64::from(COUNT);
    assert!(each < 90.0, "{each} bytes for each user");
    // All devices of one user are one set.
    let all = UserId::new("everybody").unwrap();
    for number in 0..COUNT {
        let name = UserId::new(&format!("user-{number:07}")).unwrap();
        index.set_user(DeviceNumber(number), Some(&name), Some(&all));
    }
    index.check();
    assert_eq!((index.user_count(), index.shards[0].len()), (1, 1));
}
