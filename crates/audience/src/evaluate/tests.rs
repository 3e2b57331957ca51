//! Selectors against a plain list of devices.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use tidings_types::{DeviceNumber, SelectorProblem};

use super::*;
use crate::{SHARD_DEVICE_COUNT, Traits};

const TOPICS: [&str; 3] = ["goal", "red_card", "kick-off"];
const SUBJECTS: [&str; 4] = ["team:1", "team:2", "user:7", "user:42"];
const USERS: [&str; 3] = ["7", "42", "none"];
const COUNTRIES: [&str; 3] = ["DE", "IN", "AT"];
const LOCALES: [&str; 4] = ["pt", "pt-BR", "zh-Hant-TW", "de"];
const APPS: [&str; 2] = ["com.example.one", "com.example.two"];

#[derive(Debug, Clone)]
struct Device {
    number: u32,
    platform: Platform,
    app: AppId,
    locale: Locale,
    country: Option<Country>,
    user: Option<UserId>,
    /// Topic and subject.
    subscriptions: Vec<(TopicName, Subject)>,
    /// `None`: everything.
    mutes: Vec<Option<Subject>>,
}

/// The one of `texts` that `choice` says.
fn one<T>(texts: &[&str], choice: usize, new: impl Fn(&str) -> Result<T, tidings_types::NameError>) -> T {
    new(texts[choice % texts.len()]).unwrap()
}

/// `None` as often as any of `texts`.
fn one_or_none<T>(
    texts: &[&str],
    choice: usize,
    new: impl Fn(&str) -> Result<T, tidings_types::NameError>,
) -> Option<T> {
    (!choice.is_multiple_of(texts.len() + 1)).then(|| one(texts, choice % (texts.len() + 1) - 1, new))
}

/// A device made of any numbers.
fn device(number: u32, choices: [usize; 5], subscriptions: &[(usize, usize)], mutes: &[usize]) -> Device {
    let subscribed = |&(topic, subject)| (one(&TOPICS, topic, TopicName::new), one(&SUBJECTS, subject, Subject::new));
    Device {
        number,
        platform: Platform::ALL[choices[0] % 3],
        app: one(&APPS, choices[1], AppId::new),
        locale: one(&LOCALES, choices[2], Locale::new),
        country: one_or_none(&COUNTRIES, choices[3], Country::new),
        user: one_or_none(&USERS, choices[4], UserId::new),
        subscriptions: subscriptions.iter().map(subscribed).collect(),
        mutes: mutes.iter().map(|&mute| one_or_none(&SUBJECTS, mute, Subject::new)).collect(),
    }
}

fn devices() -> impl Strategy<Value = Vec<Device>> {
    let number = prop_oneof![0..30u32, SHARD_DEVICE_COUNT - 5..SHARD_DEVICE_COUNT + 5, Just(3 * SHARD_DEVICE_COUNT)];
    let subscriptions = prop::collection::vec((0..3usize, 0..4usize), 0..4);
    let mutes = prop_oneof![4 => Just(Vec::new()), 1 => prop::collection::vec(0..5usize, 1..3)];
    let made_of = (prop::array::uniform5(0..60usize), subscriptions, mutes);
    prop::collection::btree_map(number, made_of, 0..30).prop_map(|devices| {
        devices.into_iter().map(|(number, (choices, s, m))| device(number, choices, &s, &m)).collect()
    })
}

/// So many that all three forms of a set occur, in several shards.
static CROWD: LazyLock<World> = LazyLock::new(|| {
    let numbers = (0..9000).chain(SHARD_DEVICE_COUNT - 3000..SHARD_DEVICE_COUNT + 6000);
    let of = |number: u32| {
        let n = number as usize;
        let subscriptions: &[(usize, usize)] = match n % 7 {
            0..4 => &[(0, 0)],
            4 => &[(0, 1), (1, 0)],
            _ if n.is_multiple_of(999) => &[(2, 2), (1, 3)],
            _ => &[],
        };
        let mutes: &[usize] = if n.is_multiple_of(11) { &[0] } else { &[] };
        // Users are rare, but for "none" and for no user.
        let user = if n.is_multiple_of(700) { n / 700 } else { n % 2 * 3 };
        device(number, [n % 5 / 2, n % 3, n % 13, n % 11, user], subscriptions, mutes)
    };
    World::new(numbers.map(of).collect())
});

#[derive(Debug)]
struct World {
    index: Index,
    devices: Vec<Device>,
}

impl World {
    fn new(devices: Vec<Device>) -> Self {
        let mut index = Index::new();
        for device in &devices {
            let number = DeviceNumber(device.number);
            let Device { platform, app, locale, country, user, .. } = device;
            let (country, user) = (country.as_ref(), user.as_ref());
            index.set_device(number, None, Some(Traits { platform: *platform, app, locale, country, user }));
            for (topic, subject) in &device.subscriptions {
                index.insert(number, subject, topic);
            }
            for subject in &device.mutes {
                index.mute(number, subject.as_ref());
            }
        }
        index.check();
        Self { index, devices }
    }

    fn numbers(&self, is_meant: impl Fn(&Device) -> bool) -> BTreeSet<u32> {
        self.devices.iter().filter(|device| is_meant(device)).map(|device| device.number).collect()
    }

    fn meant(&self, node: &SelectorNode) -> BTreeSet<u32> {
        self.numbers(|device| is_meant(node, device))
    }

    /// As an event without subjects and filter would have it.
    fn selected(&self, text: &str) -> BTreeSet<u32> {
        set(&self.index.freeze_selected(&selector(text), &[], &Filter::default()))
    }
}

fn set(frozen: &Frozen) -> BTreeSet<u32> {
    let numbers: BTreeSet<u32> = frozen.iter_from(DeviceNumber(0)).map(|number| number.0).collect();
    assert_eq!(numbers.len() as u64, frozen.len());
    numbers
}

fn selector(text: &str) -> Selector {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// What a selector means, said device by device.
fn is_meant(node: &SelectorNode, device: &Device) -> bool {
    let filtered =
        |filter: Filter| filter.admits(device.platform, &device.app, &device.locale, device.country.as_ref());
    match node {
        SelectorNode::All => true,
        SelectorNode::Subscribed { topics, subjects } => {
            let is_topic = |topic| topics.as_ref().is_none_or(|topics| topics.contains(topic));
            let subscribed = device.subscriptions.iter().any(|(topic, on)| is_topic(topic) && subjects.contains(on));
            let user = device.user.as_ref().map(|user| Subject::new(&format!("user:{user}")).unwrap());
            subscribed || user.is_some_and(|user| subjects.contains(&user))
        }
        SelectorNode::Platform(of) => of.contains(&device.platform),
        SelectorNode::App(of) => of.contains(&device.app),
        SelectorNode::Country(of) => of.contains(&device.country),
        SelectorNode::Locale(of) => filtered(Filter { locales: of.clone(), ..Filter::default() }),
        SelectorNode::User(of) => of.contains(&device.user),
        SelectorNode::Not(inner) => !is_meant(inner, device),
        SelectorNode::And(all) => all.iter().all(|node| is_meant(node, device)),
        SelectorNode::Or(any) => any.iter().any(|node| is_meant(node, device)),
    }
}

fn values(texts: &'static [&'static str]) -> impl Strategy<Value = String> {
    subsequence(texts, 1..=texts.len().min(3)).prop_map(|texts| texts.join(", "))
}

/// Selectors as text, with names that nobody has as well.
fn text() -> impl Strategy<Value = String> {
    let topics = prop_oneof![
        Just("*".to_owned()),
        values(&["goal", "red_card", "kick-off", "nobody"]).prop_map(|topics| format!("({topics})"))
    ];
    let subjects = values(&["team:1", "team:2", "user:7", "user:42", "team:none"]);
    let leaf = prop_oneof![
        1 => Just("all".to_owned()),
        4 => (topics, subjects).prop_map(|(topics, subjects)| format!("{topics} on ({subjects})")),
        1 => values(&["ios", "android", "web"]).prop_map(|of| format!("platform in ({of})")),
        1 => values(&["com.example.one", "com.example.two", "com.example"]).prop_map(|of| format!("app in ({of})")),
        2 => values(&["DE", "IN", "AT", "XX", "none"]).prop_map(|of| format!("country in ({of})")),
        2 => values(&["pt", "pt-BR", "zh-Hant", "zh", "de-AT", "de"]).prop_map(|of| format!("locale in ({of})")),
        2 => values(&["7", "42", "\"none\"", "none", "8"]).prop_map(|of| format!("user in ({of})")),
    ];
    leaf.prop_recursive(4, 12, 3, |inner| {
        let some = || prop::collection::vec(inner.clone(), 2..4);
        let joined = |word: &'static str| move |texts: Vec<String>| format!("({})", texts.join(word));
        prop_oneof![
            inner.clone().prop_map(|text| format!("not ({text})")),
            some().prop_map(joined(" and ")),
            some().prop_map(joined(" or ")),
        ]
    })
    .prop_filter("within the limits", |text| is_short(text))
}

/// Whether no limit of the language is passed.
fn is_short(text: &str) -> bool {
    let read = text.parse::<Selector>();
    !read.is_err_and(|error| matches!(error.problem, SelectorProblem::Limit { .. }))
}

fn filter() -> impl Strategy<Value = Filter> {
    let platforms = prop_oneof![Just(Vec::new()), select(Platform::ALL).prop_map(|platform| vec![platform])];
    let countries = subsequence(&COUNTRIES, 0..2);
    let locales = subsequence(&["pt", "zh-Hant", "de-AT"], 0..2);
    (platforms, countries, locales).prop_map(|(platforms, countries, locales)| Filter {
        platforms,
        countries: countries.into_iter().map(|text| Country::new(text).unwrap()).collect(),
        locales: locales.into_iter().map(|text| Locale::new(text).unwrap()).collect(),
        apps: Vec::new(),
    })
}

/// Each count is that of the devices that the model finds for the same part.
fn check_counts(world: &World, node: &ExplainedNode) -> BTreeSet<u32> {
    let mut parts = node.children.iter().map(|child| check_counts(world, child)).collect::<Vec<_>>().into_iter();
    let numbers = match node.text.as_str() {
        "and" => parts.reduce(|left, right| &left & &right).unwrap(),
        "or" => parts.reduce(|left, right| &left | &right).unwrap(),
        "not" => &world.meant(&SelectorNode::All) - &parts.next().unwrap(),
        leaf => world.meant(selector(leaf).root()),
    };
    assert_eq!(node.count, numbers.len() as u64, "{}", node.text);
    numbers
}

fn check(world: &World, text: &str, subjects: &[Subject], filter: &Filter) {
    let selector = selector(text);
    let meant = world.meant(selector.root());
    let unmuted = |device: &Device| !device.mutes.contains(&None);
    let is_told = |device: &Device| {
        let muted = device.mutes.iter().flatten().any(|subject| subjects.contains(subject));
        let admitted = filter.admits(device.platform, &device.app, &device.locale, device.country.as_ref());
        meant.contains(&device.number) && admitted && !muted && unmuted(device)
    };
    let frozen = world.index.freeze_selected(&selector, subjects, filter);
    assert_eq!(set(&frozen), world.numbers(is_told), "{text}");

    let explanation = world.index.explain(&selector);
    assert_eq!(check_counts(world, &explanation.root), meant, "{text}");
    assert_eq!(explanation.device_count, world.devices.len() as u64);
    let unmuted = world.numbers(|device| meant.contains(&device.number) && unmuted(device));
    assert_eq!(explanation.unmuted_count, unmuted.len() as u64);
}

fn subjects(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Subject>> {
    subsequence(&SUBJECTS, count).prop_map(|texts| texts.into_iter().map(|text| Subject::new(text).unwrap()).collect())
}

proptest! {
    #[test]
    fn a_selector_means_what_it_says_device_by_device(
        devices in devices(),
        asked in prop::collection::vec((text(), subjects(0..3), filter()), 1..4),
    ) {
        let world = World::new(devices);
        for (text, subjects, filter) in asked {
            check(&world, &text, &subjects, &filter);
        }
    }

    #[test]
    fn laws_of_sets_hold(devices in devices(), a in text(), b in text(), c in text()) {
        let world = World::new(devices);
        for (left, right) in [
            (format!("not not ({a})"), a.clone()),
            (format!("not (({a}) and ({b}))"), format!("not ({a}) or not ({b})")),
            (format!("not (({a}) or ({b}))"), format!("not ({a}) and not ({b})")),
            (format!("({a}) or ({a}) and ({b})"), a.clone()),
            (format!("({a}) and (({a}) or ({b}))"), a.clone()),
            (format!("({a}) and (({b}) or ({c}))"), format!("({a}) and ({b}) or ({a}) and ({c})")),
            (format!("({a}) and ({b}) and ({c})"), format!("({c}) and ({a}) and ({b})")),
            (format!("({a}) or not ({a})"), "all".to_owned()),
            (format!("({a}) and not ({a})"), "not all".to_owned()),
        ] {
            if !is_short(&left) || !is_short(&right) {
                continue;
            }
            prop_assert_eq!(world.selected(&left), world.selected(&right), "{} is not {}", left, right);
        }
    }

    #[test]
    fn a_selector_of_one_topic_and_its_filter_are_what_an_event_selects(
        devices in devices(),
        (subjects, filter) in (subjects(1..4), filter()),
        topic in select(&TOPICS[..]),
    ) {
        let world = World::new(devices);
        let topic = TopicName::new(topic).unwrap();
        let names: Vec<_> = subjects.iter().map(Subject::as_str).collect();
        let selector = selector(&format!("{topic} on ({})", names.join(", ")));
        let selected = world.index.freeze_selected(&selector, &subjects, &filter);
        let frozen = world.index.freeze(&topic, &subjects, &filter);
        prop_assert_eq!(set(&selected), set(&frozen));
        let all = world.index.freeze_selected(&"all".parse().unwrap(), &[], &Filter::default());
        prop_assert_eq!(set(&all.union(&selected)), set(&all));
        prop_assert_eq!(set(&Frozen::default().union(&selected)), set(&selected));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn large_sets_answer_like_small_ones(text in text(), subjects in subjects(0..3), filter in filter()) {
        check(&CROWD, &text, &subjects, &filter);
    }
}

#[test]
fn a_plan_begins_with_the_fewest_and_ends_with_what_is_negated() {
    let texts = |text: &str| -> Vec<String> {
        let explanation = CROWD.index.explain(&selector(text));
        explanation.root.children.into_iter().map(|child| child.text).collect()
    };
    assert_eq!(
        texts("not platform = web and all and platform = ios and user = 42 and (user = 7 or country = DE)"),
        ["user = 42", "or", "platform = ios", "all", "not"]
    );
    assert_eq!(texts("all or user = 42"), ["all", "user = 42"]);
}

#[test]
fn between_two_shards_names_may_come_and_go() {
    let mut world = World::new(vec![
        device(0, [0, 0, 0, 1, 0], &[(0, 0)], &[]),
        device(SHARD_DEVICE_COUNT, [0, 0, 0, 2, 0], &[(0, 1)], &[]),
    ]);
    let (goal, [one, two]) =
        (TopicName::new("goal").unwrap(), ["team:1", "team:2"].map(|it| Subject::new(it).unwrap()));
    let selector = selector("goal on team:1 and country in (DE, IN)");
    let mut explaining = Explaining::new(&world.index, &selector);
    let mut selecting = Selecting::new(&world.index, &selector);
    assert!(explaining.next_shard(&world.index) && selecting.next_shard(&world.index));
    // The numbers of both subjects are free, and each is given to the other.
    world.index.remove(DeviceNumber(0), &one, &goal);
    world.index.remove(DeviceNumber(SHARD_DEVICE_COUNT), &two, &goal);
    world.index.insert(DeviceNumber(SHARD_DEVICE_COUNT), &one, &goal);
    for number in 1..4 {
        world.index.insert(DeviceNumber(SHARD_DEVICE_COUNT + number), &two, &goal);
    }
    assert!(explaining.next_shard(&world.index) && !explaining.next_shard(&world.index));
    let explanation = explaining.finish();
    let counts: Vec<_> = explanation.root.children.iter().map(|part| (part.text.as_str(), part.count)).collect();
    assert_eq!(counts, [("goal on team:1", 2), ("country in (DE, IN)", 2)]);
    assert_eq!((explanation.root.count, explanation.unmuted_count, explanation.device_count), (2, 2, 2));
    assert!(selecting.next_shard(&world.index) && !selecting.next_shard(&world.index));
    let selected = selecting.finish();
    let found: Vec<_> = selected.iter_from(DeviceNumber(0)).map(|number| number.0).collect();
    assert_eq!((found, selected.len()), (vec![0, SHARD_DEVICE_COUNT], 2), "each as it was when it was looked at");
}

#[test]
fn devices_of_which_nobody_knows_what_they_are_are_forgotten_at_once() {
    let mutes = |number: u32| if number.is_multiple_of(3) { &[0, 1][..] } else { &[] };
    let device = |number: u32| device(number, [number as usize; 5], &[], mutes(number));
    let mut world = World::new((0..20_000).map(device).collect());
    let (kept, forgotten): (Vec<_>, Vec<_>) = (0..20_000).map(DeviceNumber).partition(|number| number.0 % 5 > 0);
    world.index.forget_devices(&forgotten.into_iter().collect());
    world.index.check();
    let expected = World::new(kept.iter().map(|number| device(number.0)).collect());
    for text in ["all", "user = 7", "user = none", "country = DE", "locale = pt", "app = com.example.one"] {
        assert!(world.selected(text) == expected.selected(text), "{text}");
    }
}

#[test]
fn many_topics_and_subjects_are_found_either_way() {
    let mut index = Index::new();
    let subject = |index: u32| Subject::new(&format!("team:{index}")).unwrap();
    for number in 0..300 {
        let topic = TopicName::new(&format!("topic-{number}")).unwrap();
        index.insert(DeviceNumber(number), &subject(number % 100), &topic);
    }
    // Its sets have names of the same numbers, but not of subjects.
    let other = device(1000, [0; 5], &[], &[1]);
    let Device { platform, app, locale, .. } = &other;
    let traits = Traits { platform: *platform, app, locale, country: None, user: None };
    index.set_device(DeviceNumber(1000), None, Some(traits));
    index.mute(DeviceNumber(1001), other.mutes[0].as_ref());
    // Few pairs: each is looked for. Many: more than there are sets, which are looked at instead.
    for count in [1, 2, 16] {
        let names: Vec<_> = (0..count).map(|index| subject(index).to_string()).collect();
        let selector = selector(&format!("* on ({})", names.join(", ")));
        let frozen = index.freeze_selected(&selector, &[], &Filter::default());
        assert_eq!(set(&frozen), (0..300).filter(|number| number % 100 < count).collect());
    }
}
