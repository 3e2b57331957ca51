//! The index against plain rows.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::shard::SHARD_DEVICE_COUNT;

mod cost;

const TOPICS: [&str; 3] = ["goal", "red_card", "kick-off"];
const SUBJECTS: [&str; 5] = ["team:1", "team:2", "user:7", "user:42", "users:7"];
const USERS: [&str; 3] = ["42", "7", "a:b"];
const APPS: [&str; 2] = ["com.example.app", "com.example.other"];
const LOCALES: [&str; 6] = ["pt-BR", "pt", "pl", "zh-Hant-TW", "zh-Hans", "zh"];
/// Also those that devices only fall back to, and one that none has.
const MEANT_LOCALES: [&str; 6] = ["pt-BR", "pt", "zh-Hant", "zh", "pl", "de"];
const COUNTRIES: [&str; 3] = ["BR", "PL", "SE"];

pub(crate) fn topic(index: usize) -> TopicName {
    TopicName::new(TOPICS[index]).unwrap()
}

pub(crate) fn subject(index: usize) -> Subject {
    Subject::new(SUBJECTS[index]).unwrap()
}

fn user(index: usize) -> UserId {
    UserId::new(USERS[index]).unwrap()
}

/// What a device is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Being {
    platform: Platform,
    app: AppId,
    locale: Locale,
    country: Option<Country>,
    user: Option<UserId>,
}

impl Being {
    pub(crate) fn traits(&self) -> Traits<'_> {
        let Self { platform, app, locale, country, user } = self;
        Traits { platform: *platform, app, locale, country: country.as_ref(), user: user.as_ref() }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Operation {
    Insert(u32, usize, usize),
    Remove(u32, usize, usize),
    /// Many at once, so that sets cross the limits between their forms in both directions.
    InsertRange(u32, u32, usize, usize),
    RemoveRange(u32, u32, usize, usize),
    Register(u32, Being),
    RegisterRange(u32, u32, Being),
    Mute(u32, Option<usize>),
    Unmute(u32, Option<usize>),
    Delete(u32),
    /// Its subscriptions are known, what it is is not.
    DeleteUnknown(u32),
}

#[derive(Debug, Clone)]
enum Question {
    Freeze(usize, Vec<usize>, Filter, u32),
    FreezeNamed(Vec<usize>, Vec<u32>, Vec<usize>, Filter, u32),
}

/// Few numbers, on both sides of shard borders, so that operations meet.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![0..40u32, (SHARD_DEVICE_COUNT - 20)..(SHARD_DEVICE_COUNT + 20), Just(u32::MAX)]
}

pub(crate) fn being() -> impl Strategy<Value = Being> {
    let index = |length: usize| 0..length;
    let names = (index(3), index(APPS.len()), index(LOCALES.len()));
    let optional = (prop::option::of(index(COUNTRIES.len())), prop::option::of(index(USERS.len())));
    (names, optional).prop_map(|((platform, app, locale), (country, of_user))| Being {
        platform: Platform::ALL[platform],
        app: AppId::new(APPS[app]).unwrap(),
        locale: Locale::new(LOCALES[locale]).unwrap(),
        country: country.map(|country| Country::new(COUNTRIES[country]).unwrap()),
        user: of_user.map(user),
    })
}

fn filter() -> impl Strategy<Value = Filter> {
    let some = |length: usize| prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(0..length, 0..3)];
    let lists = (some(3), some(APPS.len()), some(MEANT_LOCALES.len()), some(COUNTRIES.len()));
    lists.prop_map(|(platforms, apps, locales, countries)| Filter {
        platforms: platforms.into_iter().map(|platform| Platform::ALL[platform]).collect(),
        apps: apps.into_iter().map(|app| AppId::new(APPS[app]).unwrap()).collect(),
        locales: locales.into_iter().map(|locale| Locale::new(MEANT_LOCALES[locale]).unwrap()).collect(),
        countries: countries.into_iter().map(|country| Country::new(COUNTRIES[country]).unwrap()).collect(),
    })
}

pub(crate) fn operation() -> impl Strategy<Value = Operation> {
    let start = || prop_oneof![Just(0u32), Just(2000), Just(65_000), Just(SHARD_DEVICE_COUNT - 3000)];
    // About the limits: 500 numbers or so as gaps, 8192 as halves.
    let count = || prop_oneof![4 => 1..700u32, 1 => 8100..8300u32, 1 => 1..10_000u32];
    let topic = || 0..TOPICS.len();
    let subject = || 0..SUBJECTS.len();
    prop_oneof![
        6 => (number(), subject(), topic()).prop_map(|(n, s, t)| Operation::Insert(n, s, t)),
        4 => (number(), subject(), topic()).prop_map(|(n, s, t)| Operation::Remove(n, s, t)),
        1 => (start(), count(), subject(), topic()).prop_map(|(a, n, s, t)| Operation::InsertRange(a, n, s, t)),
        1 => (start(), count(), subject(), topic()).prop_map(|(a, n, s, t)| Operation::RemoveRange(a, n, s, t)),
        6 => (number(), being()).prop_map(|(n, being)| Operation::Register(n, being)),
        1 => (start(), 1..700u32, being()).prop_map(|(a, n, being)| Operation::RegisterRange(a, n, being)),
        3 => (number(), prop::option::of(subject())).prop_map(|(n, s)| Operation::Mute(n, s)),
        2 => (number(), prop::option::of(subject())).prop_map(|(n, s)| Operation::Unmute(n, s)),
        1 => number().prop_map(Operation::Delete),
        1 => number().prop_map(Operation::DeleteUnknown),
    ]
}

fn question() -> impl Strategy<Value = Question> {
    let subjects = || prop::collection::vec(0..SUBJECTS.len(), 0..5);
    let users = prop::collection::vec(0..USERS.len(), 0..3);
    let devices = prop::collection::vec(number(), 0..4);
    prop_oneof![
        (0..TOPICS.len(), subjects(), filter(), number()).prop_map(|(t, s, f, from)| Question::Freeze(t, s, f, from)),
        (users, devices, subjects(), filter(), number())
            .prop_map(|(u, d, s, f, from)| Question::FreezeNamed(u, d, s, f, from)),
    ]
}

#[derive(Default)]
pub(crate) struct Model {
    subscriptions: BTreeSet<(u32, usize, usize)>,
    beings: BTreeMap<u32, Being>,
    mutes: BTreeSet<(u32, Option<usize>)>,
}

impl Model {
    fn devices_of(&self, is_meant: impl Fn(&UserId) -> bool) -> impl Iterator<Item = u32> {
        let of = move |being: &Being| being.user.as_ref().is_some_and(&is_meant);
        self.beings.iter().filter(move |(_, being)| of(being)).map(|(&number, _)| number)
    }

    fn subscribed(&self, t: usize, subjects: &[usize]) -> BTreeSet<u32> {
        let is_meant = |&&(_, s, topic): &&(u32, usize, usize)| topic == t && subjects.contains(&s);
        let subscribed = self.subscriptions.iter().filter(is_meant).map(|&(number, ..)| number);
        let is_subject = |user: &UserId| subjects.iter().any(|&s| SUBJECTS[s] == format!("user:{user}"));
        subscribed.chain(self.devices_of(is_subject)).collect()
    }

    fn limited(&self, audience: BTreeSet<u32>, subjects: &[usize], filter: &Filter) -> BTreeSet<u32> {
        let is_admitted = |number: &u32| match self.beings.get(number) {
            Some(being) => filter.admits(being.platform, &being.app, &being.locale, being.country.as_ref()),
            None => *filter == Filter::default(),
        };
        let is_muted = |number: u32| {
            self.mutes.contains(&(number, None)) || subjects.iter().any(|&s| self.mutes.contains(&(number, Some(s))))
        };
        audience.into_iter().filter(is_admitted).filter(|&number| !is_muted(number)).collect()
    }
}

fn change(index: &mut Index, model: &mut Model, add: bool, (number, s, t): (u32, usize, usize)) {
    let rows = &mut model.subscriptions;
    if add {
        assert_eq!(index.insert(DeviceNumber(number), &subject(s), &topic(t)), rows.insert((number, s, t)));
    } else {
        assert_eq!(index.remove(DeviceNumber(number), &subject(s), &topic(t)), rows.remove(&(number, s, t)));
    }
}

pub(crate) fn register(index: &mut Index, model: &mut Model, number: u32, after: Option<&Being>) {
    let before = match after {
        Some(after) => model.beings.insert(number, after.clone()),
        None => model.beings.remove(&number),
    };
    index.set_device(DeviceNumber(number), before.as_ref().map(Being::traits), after.map(Being::traits));
}

fn delete(index: &mut Index, model: &mut Model, number: u32, is_known: bool) {
    let rows: Vec<_> = model.subscriptions.range((number, 0, 0)..=(number, usize::MAX, usize::MAX)).copied().collect();
    let names: Vec<_> = rows.iter().map(|&(_, s, t)| (subject(s), topic(t))).collect();
    index.remove_device(DeviceNumber(number), names.iter().map(|(subject, topic)| (subject, topic)));
    rows.iter().for_each(|row| assert!(model.subscriptions.remove(row)));
    let muted: Vec<Option<usize>> =
        model.mutes.range((number, None)..=(number, Some(usize::MAX))).map(|(_, scope)| *scope).collect();
    muted.iter().for_each(|&scope| assert!(model.mutes.remove(&(number, scope))));
    if is_known {
        muted.iter().for_each(|scope| assert!(index.unmute(DeviceNumber(number), scope.map(subject).as_ref())));
        register(index, model, number, None);
    } else {
        model.beings.remove(&number);
        index.forget_devices(&[DeviceNumber(number)].into());
    }
}

pub(crate) fn apply(index: &mut Index, model: &mut Model, operation: &Operation) {
    match *operation {
        Operation::Insert(number, s, t) => change(index, model, true, (number, s, t)),
        Operation::Remove(number, s, t) => change(index, model, false, (number, s, t)),
        Operation::InsertRange(start, count, s, t) => {
            (start..start + count).for_each(|number| change(index, model, true, (number, s, t)));
        }
        Operation::RemoveRange(start, count, s, t) => {
            (start..start + count).for_each(|number| change(index, model, false, (number, s, t)));
        }
        Operation::Register(number, ref being) => register(index, model, number, Some(being)),
        Operation::RegisterRange(start, count, ref being) => {
            (start..start + count).for_each(|number| register(index, model, number, Some(being)));
        }
        Operation::Mute(number, s) => {
            assert_eq!(index.mute(DeviceNumber(number), s.map(subject).as_ref()), model.mutes.insert((number, s)));
        }
        Operation::Unmute(number, s) => {
            assert_eq!(index.unmute(DeviceNumber(number), s.map(subject).as_ref()), model.mutes.remove(&(number, s)));
        }
        Operation::Delete(number) => delete(index, model, number, true),
        Operation::DeleteUnknown(number) => delete(index, model, number, false),
    }
}

/// Makes a change again that is perhaps there already: as [`apply`], without asking what it changed.
pub(crate) fn replay(index: &mut Index, model: &mut Model, operation: &Operation) {
    let mut subscribe = |number: u32, s: usize, t: usize, add: bool| match add {
        true => {
            model.subscriptions.insert((number, s, t));
            index.insert(DeviceNumber(number), &subject(s), &topic(t));
        }
        false => {
            model.subscriptions.remove(&(number, s, t));
            index.remove(DeviceNumber(number), &subject(s), &topic(t));
        }
    };
    match *operation {
        Operation::Insert(number, s, t) => subscribe(number, s, t, true),
        Operation::Remove(number, s, t) => subscribe(number, s, t, false),
        Operation::InsertRange(start, count, s, t) => (start..start + count).for_each(|n| subscribe(n, s, t, true)),
        Operation::RemoveRange(start, count, s, t) => (start..start + count).for_each(|n| subscribe(n, s, t, false)),
        Operation::Mute(number, s) => {
            model.mutes.insert((number, s));
            index.mute(DeviceNumber(number), s.map(subject).as_ref());
        }
        Operation::Unmute(number, s) => {
            model.mutes.remove(&(number, s));
            index.unmute(DeviceNumber(number), s.map(subject).as_ref());
        }
        Operation::Register(number, ref being) => register(index, model, number, Some(being)),
        Operation::RegisterRange(start, count, ref being) => {
            (start..start + count).for_each(|number| register(index, model, number, Some(being)));
        }
        Operation::Delete(number) => replay_delete(index, model, number),
        Operation::DeleteUnknown(number) => {
            replay_delete(index, model, number);
            index.forget_devices(&[DeviceNumber(number)].into());
        }
    }
}

fn replay_delete(index: &mut Index, model: &mut Model, number: u32) {
    let rows: Vec<_> = model.subscriptions.range((number, 0, 0)..=(number, usize::MAX, usize::MAX)).copied().collect();
    for (number, s, t) in rows {
        model.subscriptions.remove(&(number, s, t));
        index.remove(DeviceNumber(number), &subject(s), &topic(t));
    }
    for scope in std::iter::once(None).chain((0..SUBJECTS.len()).map(Some)) {
        if model.mutes.remove(&(number, scope)) {
            index.unmute(DeviceNumber(number), scope.map(subject).as_ref());
        }
    }
    register(index, model, number, None);
}

fn check_frozen(frozen: &Frozen, expected: &BTreeSet<u32>, from: u32) {
    assert_eq!(frozen.len(), expected.len() as u64);
    assert_eq!(frozen.is_empty(), expected.is_empty());
    assert!(frozen.iter_from(DeviceNumber(0)).map(|number| number.0).eq(expected.iter().copied()));
    assert!(frozen.iter_from(DeviceNumber(from)).map(|number| number.0).eq(expected.range(from..).copied()));
    assert_eq!(frozen.contains(DeviceNumber(from)), expected.contains(&from));
}

fn ask(index: &Index, model: &Model, question: &Question) -> (Frozen, BTreeSet<u32>) {
    let names = |subjects: &[usize]| subjects.iter().map(|&s| subject(s)).collect::<Vec<_>>();
    match question {
        Question::Freeze(t, subjects, filter, from) => {
            let expected = model.limited(model.subscribed(*t, subjects), subjects, filter);
            let audience = index.freeze(&topic(*t), &names(subjects), filter);
            check_frozen(&audience, &expected, *from);
            (audience, expected)
        }
        Question::FreezeNamed(users, devices, subjects, filter, from) => {
            let users: Vec<UserId> = users.iter().map(|&u| user(u)).collect();
            let numbers: Vec<DeviceNumber> = devices.iter().copied().map(DeviceNumber).collect();
            let told = model.devices_of(|user| users.contains(user)).chain(devices.iter().copied()).collect();
            let expected = model.limited(told, subjects, filter);
            let audience = index.freeze_named(&users, &numbers, &names(subjects), filter);
            check_frozen(&audience, &expected, *from);
            (audience, expected)
        }
    }
}

/// What a set is of.
pub(crate) fn words(index: &Index, key: SetKey) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    if key.family.0 < family::FIRST.0 {
        (text(index.topics().name(key.family)), text(index.subjects().name(key.name)))
    } else if has_name(key) {
        (format!("{:?}", key.family), text(index.names(key.family).name(key.name)))
    } else {
        (format!("{:?}", key.family), format!("{:?}", key.name))
    }
}

/// Everything in an index, in words.
pub(crate) fn contents(index: &Index) -> BTreeMap<(String, String), Vec<u32>> {
    let sets = index.sets().iter_from(0).map(|(key, members)| {
        let mut numbers = Vec::new();
        members.for_each(|number| numbers.push(number));
        (words(index, key), numbers)
    });
    sets.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn the_index_answers_like_plain_rows(
        steps in prop::collection::vec((operation(), prop::collection::vec(question(), 0..3)), 1..40),
    ) {
        let (mut index, mut model, mut frozen) = (Index::new(), Model::default(), Vec::new());
        for (operation, questions) in steps {
            apply(&mut index, &mut model, &operation);
            index.check();
            frozen.extend(questions.iter().map(|question| ask(&index, &model, question)));
            prop_assert_eq!(index.subscription_count(), model.subscriptions.len() as u64);
            let users: BTreeSet<_> = model.beings.values().filter_map(|being| being.user.as_ref()).collect();
            prop_assert_eq!(index.user_count(), users.len());
        }
        // What was frozen has not moved with the index.
        for (audience, expected) in &frozen {
            check_frozen(audience, expected, SHARD_DEVICE_COUNT);
        }
        let mut counts = vec![0; 70_000];
        index.count_into(&mut counts, |number| number.0 % 3 > 0);
        for (number, &count) in counts.iter().enumerate() {
            let rows = model.subscriptions.range((number as u32, 0, 0)..(number as u32 + 1, 0, 0));
            prop_assert_eq!(usize::from(count), if number % 3 > 0 { rows.count() } else { 0 });
        }
        for &(number, s, t) in &model.subscriptions {
            prop_assert!(index.contains(DeviceNumber(number), &subject(s), &topic(t)));
        }
        let rows = model.subscriptions.iter().map(|row| row.0);
        let devices = rows.chain(model.beings.keys().copied()).chain(model.mutes.iter().map(|mute| mute.0));
        for number in devices.collect::<BTreeSet<_>>() {
            delete(&mut index, &mut model, number, true);
        }
        index.check();
        prop_assert!(contents(&index).is_empty(), "nothing is left of devices that are gone");
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

pub(crate) fn being_of(user: Option<&str>) -> Being {
    Being {
        platform: Platform::Ios,
        app: AppId::new(APPS[0]).unwrap(),
        locale: Locale::new("pt-BR").unwrap(),
        country: None,
        user: user.map(|user| UserId::new(user).unwrap()),
    }
}

#[test]
fn a_device_that_is_meant_in_every_way_is_told_once_and_a_user_whatever_the_topic() {
    let mut index = Index::new();
    let all = Filter::default();
    let (anns, hers) = (being_of(Some("42")), being_of(Some("7")));
    index.insert(DeviceNumber(1), &subject(3), &topic(0));
    index.insert(DeviceNumber(1), &subject(0), &topic(0));
    index.insert(DeviceNumber(2), &subject(0), &topic(0));
    index.set_device(DeviceNumber(1), None, Some(anns.traits()));
    index.set_device(DeviceNumber(9), None, Some(anns.traits()));
    let numbers = |frozen: &Frozen| frozen.iter_from(DeviceNumber(0)).map(|number| number.0).collect::<Vec<_>>();
    assert_eq!(numbers(&index.freeze(&topic(0), &[subject(0), subject(3)], &all)), [1, 2, 9]);
    let unknown = TopicName::new("nobody_asked_for_it").unwrap();
    let before = index.freeze(&unknown, &[subject(3)], &all);
    assert_eq!(numbers(&before), [1, 9]);
    // The phone goes to somebody else.
    index.set_device(DeviceNumber(9), Some(anns.traits()), Some(hers.traits()));
    assert_eq!(numbers(&index.freeze(&unknown, &[subject(3)], &all)), [1]);
    assert_eq!(numbers(&before), [1, 9], "what is frozen does not move");
    let (ann, devices) = (UserId::new("42").unwrap(), [DeviceNumber(1), DeviceNumber(u32::MAX)]);
    assert_eq!(numbers(&index.freeze_named(&[ann], &devices, &[], &all)), [1, u32::MAX]);
}

#[test]
fn a_muted_subject_takes_a_device_out_of_every_event_that_carries_it() {
    let mut index = Index::new();
    let all = Filter::default();
    index.insert(DeviceNumber(1), &subject(0), &topic(0));
    index.insert(DeviceNumber(2), &subject(0), &topic(0));
    assert!(index.mute(DeviceNumber(1), Some(&subject(1))));
    let len = |index: &Index, subjects: &[usize]| {
        let subjects: Vec<Subject> = subjects.iter().map(|&s| subject(s)).collect();
        (
            index.freeze(&topic(0), &subjects, &all).len(),
            index.freeze_named(&[], &[DeviceNumber(1)], &subjects, &all).len(),
        )
    };
    assert_eq!((len(&index, &[0]), len(&index, &[0, 1])), ((2, 1), (1, 0)));
    assert!(index.mute(DeviceNumber(2), None));
    assert_eq!((len(&index, &[0]), len(&index, &[0, 1])), ((1, 1), (0, 0)));
    assert!(index.unmute(DeviceNumber(2), None) && index.unmute(DeviceNumber(1), Some(&subject(1))));
    assert_eq!(len(&index, &[0, 1]), (2, 1));
}

#[test]
fn a_large_set_without_filter_and_mutes_is_shared() {
    let mut index = Index::new();
    (0..20_000).for_each(|number| _ = index.insert(DeviceNumber(number * 3), &subject(0), &topic(0)));
    let key = index.subscription_key(&topic(0), &subject(0)).unwrap();
    let kept = Arc::downgrade(&index.bitmap(0, key).unwrap());
    index.mute(DeviceNumber(1), None); // Nobody of these.
    assert_eq!(kept.strong_count(), 1);
    let frozen = index.freeze(&topic(0), &[subject(0)], &Filter::default());
    assert_eq!((kept.strong_count(), frozen.len()), (2, 20_000));
    index.mute(DeviceNumber(3), None);
    assert_eq!(index.freeze(&topic(0), &[subject(0)], &Filter::default()).len(), 19_999);
    assert_eq!(frozen.len(), 20_000);
}
