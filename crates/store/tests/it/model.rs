//! Random requests on the store and on a few plain maps, with restarts and crashes in between: both answer alike.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use proptest::prelude::*;
use tempfile::TempDir;
use tidings_store::{AppendError, AppendedTo, Brakes, Credential, NewDevice, NewImport, Store, SubscribeError};
use tidings_types::{BrakeScope, DeviceNumber, EventId, JournalPosition, Json, Locale, Provider, Timestamp};

use crate::support::*;

const DEVICES: [&str; 4] = ["d0", "d1", "d2", "d3"];
const SUBJECTS: [&str; 3] = ["team:1", "team:2", "match:1"];
const TOPICS: [&str; 2] = ["goal", "card"];
const USERS: [&str; 2] = ["ann", "bob"];
const LOCALES: [&str; 2] = ["sv", "pt-BR"];
const SUBSCRIPTION_COUNT_MAX: usize = 4;
const HISTORY_SIZE: u32 = 3;
const SCOPES: [BrakeScope; 2] = [BrakeScope::Everything, BrakeScope::Provider(Provider::WebPush)];

type Pair = (usize, usize);

/// What is said of a device.
#[derive(Debug, Clone, Copy)]
struct Said {
    user: Option<usize>,
    token: Option<u8>,
    locale: usize,
}

/// A request on a device: these are queued together and must behave as if done one by one.
#[derive(Debug, Clone)]
enum Change {
    Put { device: usize, said: Said, at: u64 },
    Delete(usize),
    Rotate(usize),
    LogOut(usize),
    Subscribe(usize, Vec<Pair>),
    Unsubscribe(usize, usize, Option<usize>),
    Gone { device: usize, token: u8, at: Option<u64> },
    Proven(usize),
}

/// An event as handed in.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Handed {
    name: u8,
    /// Its content is this and when it is due.
    variant: i64,
    due: Option<u64>,
    channel: Option<u8>,
}

#[derive(Debug, Clone)]
enum Step {
    Changes(Vec<Change>),
    Append(Vec<Handed>),
    /// Until nothing is due at this moment.
    Release(u64),
    CancelLater(u8),
    Publish(u8),
    /// Devices with the secret they bring along, and whether their token is said to be proven.
    Import(Vec<(usize, Said, Option<u8>, bool)>),
    /// On or off, at this moment.
    Pause(usize, bool, u64),
    Cancel(u64),
    RemoveJob(u64),
    Restart,
    Crash,
}

fn said() -> impl Strategy<Value = Said> {
    (prop::option::of(0..USERS.len()), prop::option::weighted(0.8, 0..3u8), 0..LOCALES.len())
        .prop_map(|(user, token, locale)| Said { user, token, locale })
}

fn change() -> impl Strategy<Value = Change> {
    let device = || 0..DEVICES.len();
    let pair = || (0..SUBJECTS.len(), 0..TOPICS.len());
    prop_oneof![
        4 => (device(), said(), 0..10u64).prop_map(|(device, said, at)| Change::Put { device, said, at }),
        1 => device().prop_map(Change::Delete),
        1 => device().prop_map(Change::Rotate),
        1 => device().prop_map(Change::LogOut),
        4 => (device(), prop::collection::vec(pair(), 0..4)).prop_map(|(device, pairs)| Change::Subscribe(device, pairs)),
        2 => (device(), 0..SUBJECTS.len(), prop::option::of(0..TOPICS.len()))
            .prop_map(|(device, subject, topic)| Change::Unsubscribe(device, subject, topic)),
        2 => (device(), 0..3u8, prop::option::of(0..10u64))
            .prop_map(|(device, token, at)| Change::Gone { device, token, at }),
        3 => device().prop_map(Change::Proven),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let variant = prop_oneof![9 => Just(0i64), 1 => Just(1i64)];
    let due = |name: u8| prop_oneof![9 => Just(name.is_multiple_of(3).then_some(u64::from(name))), 1 => Just(Some(2))];
    let event = (0..12u8, variant, prop::option::of(0..2u8)).prop_flat_map(move |(name, variant, channel)| {
        due(name).prop_map(move |due| Handed { name, variant, due, channel })
    });
    prop_oneof![
        8 => prop::collection::vec(change(), 1..6).prop_map(Step::Changes),
        5 => prop::collection::vec(event, 1..4).prop_map(Step::Append),
        3 => (0..2u8).prop_map(Step::Publish),
        2 => (0..10u64).prop_map(Step::Release),
        1 => (0..12u8).prop_map(Step::CancelLater),
        2 => prop::collection::vec((0..DEVICES.len(), said(), prop::option::of(0..2u8), any::<bool>()), 1..4)
            .prop_map(Step::Import),
        2 => (0..SCOPES.len(), any::<bool>(), 0..10u64).prop_map(|(scope, on, at)| Step::Pause(scope, on, at)),
        1 => (0..8u64).prop_map(Step::Cancel),
        1 => (0..8u64).prop_map(Step::RemoveJob),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
    ]
}

#[derive(Debug, Clone, PartialEq)]
struct ModelDevice {
    number: u32,
    user: Option<usize>,
    token: Option<u8>,
    locale: usize,
    /// `None`: only an import has said it.
    token_at: Option<u64>,
    since: u64,
    proven: bool,
    subscriptions: BTreeSet<Pair>,
}

/// The event, its channel and offset there, and when it counts as accepted.
type ModelEvent = (Handed, Option<(u8, u64)>, u64);

#[derive(Default)]
struct Model {
    devices: BTreeMap<usize, ModelDevice>,
    device_next: u32,
    /// All secrets a device number ever had; the last one is good.
    secrets: BTreeMap<u32, (usize, Vec<String>)>,
    /// In journal order.
    events: Vec<ModelEvent>,
    /// What is not yet due, by when it is and how many came before.
    later: BTreeMap<(u64, usize), Handed>,
    arrivals: usize,
    paused: BTreeMap<usize, u64>,
    cancelled: BTreeSet<u64>,
    /// Data of all publications of a channel.
    channels: BTreeMap<u8, Vec<String>>,
}

impl Model {
    /// `at` is `None` in an import.
    fn put(&mut self, device: usize, Said { user, token, locale }: Said, at: Option<u64>) {
        let before = self.devices.get(&device);
        let token_at = at.or_else(|| before.filter(|before| before.token == token)?.token_at);
        let was_proven = before.is_some_and(|before| before.token == token && before.proven);
        for other in self.devices.values_mut().filter(|other| other.token == token) {
            (other.token, other.proven) = (None, false);
        }
        let next = &mut self.device_next;
        let since = self.events.len() as u64 + 1;
        let entry = self.devices.entry(device).or_insert_with(|| {
            *next += 1;
            let (number, subscriptions) = (*next - 1, BTreeSet::new());
            ModelDevice { number, user, token, locale, token_at, since, proven: false, subscriptions }
        });
        (entry.user, entry.token, entry.locale, entry.token_at) = (user, token, locale, token_at);
        entry.proven = was_proven;
    }

    fn give_secret(&mut self, device: usize, number: u32, secret: String) {
        self.secrets.entry(number).or_insert_with(|| (device, Vec::new())).1.push(secret);
    }

    fn subscribe(&mut self, device: usize, pairs: &[Pair]) -> Result<usize, ()> {
        let held = &mut self.devices.get_mut(&device).ok_or(())?.subscriptions;
        let new: BTreeSet<Pair> = pairs.iter().filter(|pair| !held.contains(pair)).copied().collect();
        if held.len() + new.len() > SUBSCRIPTION_COUNT_MAX {
            return Err(());
        }
        held.extend(&new);
        Ok(new.len())
    }

    fn gone(&mut self, device: usize, token: u8, at: Option<u64>) -> bool {
        let Some(entry) = self.devices.get_mut(&device) else { return false };
        let taken = entry.token == Some(token) && at.is_none_or(|at| entry.token_at <= Some(at));
        if taken {
            (entry.token, entry.proven) = (None, false);
        }
        taken
    }

    fn prove(&mut self, device: usize) {
        if let Some(entry) = self.devices.get_mut(&device) {
            entry.proven = entry.token.is_some();
        }
    }

    /// The event of this name, wherever it is.
    fn known(&self, name: u8) -> Option<Handed> {
        let journaled = self.events.iter().map(|(handed, ..)| handed);
        journaled.chain(self.later.values()).find(|handed| handed.name == name).copied()
    }

    fn journal(&mut self, handed: Handed, accepted_at: u64) {
        let published = handed.channel.map(|channel| (channel, self.publish(channel, handed.name.to_string())));
        self.events.push((handed, published, accepted_at));
    }

    fn accept(&mut self, handed: Handed) {
        match handed.due.filter(|due| *due > 0) {
            Some(due) => {
                self.later.insert((due, self.arrivals), handed);
                self.arrivals += 1;
                if let Some(channel) = handed.channel {
                    self.channels.entry(channel).or_default();
                }
            }
            None => self.journal(handed, 0),
        }
    }

    fn release(&mut self, now: u64) -> usize {
        let due: Vec<_> = self.later.range(..(now + 1, 0)).map(|(key, handed)| (*key, *handed)).collect();
        for (key, handed) in &due {
            self.later.remove(key);
            self.journal(*handed, key.0);
        }
        due.len()
    }

    fn publish(&mut self, channel: u8, data: String) -> u64 {
        let publications = self.channels.entry(channel).or_default();
        publications.push(data);
        publications.len() as u64
    }
}

fn channel_name(channel: u8) -> String {
    format!("match:{channel}")
}

fn at(millis: u64) -> Timestamp {
    Timestamp(T0.0 + millis)
}

/// What a change answers, in a form both sides have.
#[derive(Debug, PartialEq)]
enum Answer {
    Created(bool),
    /// With a new secret, of the device with this number.
    Issued(Option<u32>),
    Was(bool),
    Count(usize),
    Refused,
    Done,
}

fn change_model(model: &mut Model, change: &Change) -> Answer {
    match change {
        Change::Put { device, said, at } => {
            let created = !model.devices.contains_key(device);
            model.put(*device, *said, Some(*at));
            Answer::Created(created)
        }
        Change::Rotate(device) => Answer::Issued(model.devices.get(device).map(|entry| entry.number)),
        Change::LogOut(device) => Answer::Issued(model.devices.get_mut(device).map(|entry| {
            (entry.user, entry.since) = (None, model.events.len() as u64 + 1);
            entry.subscriptions.clear();
            entry.number
        })),
        Change::Delete(device) => Answer::Was(model.devices.remove(device).is_some()),
        Change::Subscribe(device, pairs) => model.subscribe(*device, pairs).map_or(Answer::Refused, Answer::Count),
        Change::Unsubscribe(device, subject, topic) => match model.devices.get_mut(device) {
            Some(entry) => {
                let before = entry.subscriptions.len();
                entry.subscriptions.retain(|(s, t)| s != subject || topic.is_some_and(|topic| topic != *t));
                Answer::Count(before - entry.subscriptions.len())
            }
            None => Answer::Refused,
        },
        Change::Gone { device, token, at } => Answer::Was(model.gone(*device, *token, *at)),
        Change::Proven(device) => {
            model.prove(*device);
            Answer::Done
        }
    }
}

/// The store's answer, and the secret it gave out.
async fn change_store(store: &Store, change: &Change, number: DeviceNumber) -> (Answer, Option<Credential>) {
    let issued = |issued: Option<(DeviceNumber, Credential)>| {
        let (number, credential) = issued.unzip();
        (Answer::Issued(number.map(|number| number.0)), credential)
    };
    match change {
        Change::Put { device, said, at: millis } => {
            let registered = store.put_device(new_device(*device, *said), at(*millis)).await.unwrap();
            (Answer::Created(registered.created), registered.credential)
        }
        Change::Rotate(device) => issued(store.rotate_credential(&id(DEVICES[*device])).await.unwrap()),
        Change::LogOut(device) => issued(store.log_out(&id(DEVICES[*device])).await.unwrap()),
        change => (change_store_silently(store, change, number).await, None),
    }
}

fn new_device(index: usize, Said { user: of, token: byte, locale }: Said) -> NewDevice {
    let (user, locale) = (of.map(|of| user(USERS[of])), Locale::new(LOCALES[locale]).unwrap());
    NewDevice { user, locale, ..device(DEVICES[index], byte.map(token)) }
}

async fn change_store_silently(store: &Store, change: &Change, number: DeviceNumber) -> Answer {
    let count = |result: Result<usize, SubscribeError>| match result {
        Ok(count) => Answer::Count(count),
        Err(SubscribeError::Write(error)) => panic!("{error}"),
        Err(_) => Answer::Refused,
    };
    match change {
        Change::Delete(device) => Answer::Was(store.delete_device(&id(DEVICES[*device])).await.unwrap()),
        Change::Subscribe(device, pairs) => {
            let selection = pairs.iter().map(|&(s, t)| (subject(SUBJECTS[s]), vec![topic(TOPICS[t])])).collect();
            count(store.subscribe(&id(DEVICES[*device]), selection).await)
        }
        Change::Unsubscribe(device, s, t) => {
            let selection = vec![(subject(SUBJECTS[*s]), t.iter().map(|t| topic(TOPICS[*t])).collect())];
            count(store.unsubscribe(&id(DEVICES[*device]), selection).await)
        }
        Change::Gone { token: byte, at: millis, .. } => {
            Answer::Was(store.token_gone(number, token(*byte), millis.map(at)).await.unwrap())
        }
        Change::Proven(_) => {
            store.devices_proven(vec![number]).await.unwrap();
            Answer::Done
        }
        Change::Put { .. } | Change::Rotate(_) | Change::LogOut(_) => unreachable!("these give out secrets"),
    }
}

async fn do_changes(store: &Store, model: &mut Model, changes: &[Change]) {
    let (mut expected, mut numbers, mut holders) = (Vec::new(), Vec::new(), Vec::new());
    for change in changes {
        // The sender knows numbers from earlier; here: the one at its turn.
        let device = match change {
            Change::Gone { device, .. } | Change::Proven(device) => model.devices.get(device),
            _ => None,
        };
        numbers.push(DeviceNumber(device.map_or(u32::MAX, |device| device.number)));
        let answer = change_model(model, change);
        holders.push(match (change, &answer) {
            (Change::Put { device, .. }, Answer::Created(true)) => Some((*device, model.devices[device].number)),
            (Change::Rotate(device) | Change::LogOut(device), Answer::Issued(Some(number))) => Some((*device, *number)),
            _ => None,
        });
        expected.push(answer);
    }
    let requests = changes.iter().zip(numbers);
    let futures = requests
        .map(|(change, number)| Box::pin(change_store(store, change, number)) as Pin<Box<dyn Future<Output = _>>>);
    let (answers, issued): (Vec<Answer>, Vec<Option<Credential>>) =
        join_all(futures.collect()).await.into_iter().unzip();
    assert_eq!(answers, expected, "{changes:?}");
    for (holder, issued) in holders.into_iter().zip(issued) {
        assert_eq!(holder.is_some(), issued.is_some(), "{changes:?}");
        if let Some(((device, number), issued)) = holder.zip(issued) {
            model.give_secret(device, number, issued.as_str().to_owned());
        }
    }
}

async fn import_all(store: &Store, model: &mut Model, imports: &[(usize, Said, Option<u8>, bool)]) {
    let secret = |byte: Option<u8>| byte.map(|byte| format!("brought along {byte}"));
    let new = |&(device, said, byte, proven): &(usize, Said, Option<u8>, bool)| NewImport {
        credential: secret(byte),
        proven,
        ..import(new_device(device, said), vec![])
    };
    let imported = store.import_devices(imports.iter().map(new).collect(), T0).await.unwrap();
    let mut created = 0;
    for &(device, said, byte, proven) in imports {
        created += u64::from(!model.devices.contains_key(&device));
        model.put(device, said, None);
        if proven {
            model.prove(device);
        }
        if let Some(secret) = secret(byte) {
            model.give_secret(device, model.devices[&device].number, secret);
        }
    }
    assert_eq!((imported.created, imported.updated), (created, imports.len() as u64 - created));
}

async fn append(store: &Store, model: &mut Model, events: &[Handed]) {
    let new = |&Handed { name, variant, due, channel: place }: &Handed| {
        let durable: Vec<_> = place.iter().map(|place| channel(&channel_name(*place), HISTORY_SIZE)).collect();
        let mut new = new_event(&format!("e{name}"), variant, &durable);
        new.event.data = Some(Json::of(&name)); // Where it is published is not part of the content.
        new.event.at = due.map(at);
        new
    };
    let answer = store.append_events(events.iter().map(new).collect(), T0).await;
    let mut first = BTreeMap::new();
    let conflict = events.iter().position(|handed| {
        let earlier = model.known(handed.name).unwrap_or_else(|| *first.entry(handed.name).or_insert(*handed));
        (earlier.variant, earlier.due) != (handed.variant, handed.due)
    });
    let appended = match (answer, conflict) {
        (Ok(appended), None) => appended,
        (Err(AppendError::Conflict { index, .. }), Some(expected)) => return assert_eq!(index, expected),
        (answer, expected) => panic!("{answer:?} where {expected:?} is the conflict"),
    };
    for (&handed, answer) in events.iter().zip(appended) {
        assert_eq!(answer.repeated, model.known(handed.name).is_some());
        if !answer.repeated {
            model.accept(handed);
        }
        match (model.events.iter().position(|(earlier, ..)| earlier.name == handed.name), &answer.to) {
            (Some(index), AppendedTo::Journal { position, published }) => {
                assert_eq!(position.0, index as u64 + 1);
                let offset = published.first().map(|(_, position)| position.offset.0);
                assert_eq!(offset, model.events[index].1.map(|(_, offset)| offset));
            }
            (None, AppendedTo::Later { at: due }) => assert_eq!(Some(*due), handed.due.map(at)),
            (expected, found) => panic!("{found:?} where {expected:?} is the place in the journal"),
        }
    }
}

async fn release(store: &Store, model: &mut Model, now: u64) {
    let mut released = 0;
    loop {
        match store.release_later(at(now)).await.unwrap() {
            0 => break,
            more => released += more,
        }
    }
    assert_eq!(released, model.release(now));
}

async fn cancel_later(store: &Store, model: &mut Model, name: u8) {
    let count = model.later.len();
    model.later.retain(|_, handed| handed.name != name);
    assert_eq!(store.cancel_later(&event_id(name)).await.unwrap(), model.later.len() < count);
}

fn event_id(name: u8) -> EventId {
    EventId::new(&format!("e{name}")).unwrap()
}

async fn brake(store: &Store, model: &mut Model, step: &Step) {
    let journaled = 1..=model.events.len() as u64;
    match step {
        Step::Pause(scope, true, now) => {
            let paused = store.pause(SCOPES[*scope].clone(), at(*now)).await.unwrap();
            assert_eq!(paused, !model.paused.contains_key(scope));
            model.paused.entry(*scope).or_insert(*now);
        }
        Step::Pause(scope, false, _) => {
            let resumed = store.resume(SCOPES[*scope].clone()).await.unwrap();
            assert_eq!(resumed, model.paused.remove(scope).is_some());
        }
        Step::Cancel(position) => {
            let cancelled = store.cancel(JournalPosition(*position)).await.unwrap();
            assert_eq!(cancelled, journaled.contains(position) && model.cancelled.insert(*position));
        }
        Step::RemoveJob(position) => {
            store.remove_jobs(vec![JournalPosition(*position)]).await.unwrap();
            model.cancelled.remove(position);
        }
        _ => unreachable!("no brake"),
    }
}

fn check(store: &Store, model: &Model) {
    for (index, name) in DEVICES.iter().enumerate() {
        let expected = model.devices.get(&index);
        let found = store.device(&id(name)).unwrap();
        assert_eq!(found.is_some(), expected.is_some());
        assert_eq!(sending_token(store, name), expected.map(|device| device.token.map(token)));
        let (Some(found), Some(expected)) = (found, expected) else { continue };
        assert_eq!(found.token, expected.token.map(token));
        assert_eq!(is_proven(store, name), expected.proven, "{name}");
        let token_at = expected.token_at.map_or(Timestamp(0), at);
        assert_eq!((found.token_at, found.since.0), (token_at, expected.since));
        assert_eq!(found.user, expected.user.map(|index| user(USERS[index])));
        assert_eq!(found.locale.as_str(), LOCALES[expected.locale]);
        assert_eq!(store.device_number(&id(name)).unwrap(), Some(DeviceNumber(expected.number)));
        let held = store.subscriptions(&id(name)).unwrap().unwrap();
        let held: BTreeSet<_> =
            held.iter().flat_map(|(s, topics)| topics.iter().map(|t| (s.as_str(), t.as_str()))).collect();
        assert_eq!(held, expected.subscriptions.iter().map(|&(s, t)| (SUBJECTS[s], TOPICS[t])).collect());
    }
    check_audiences(store, model);
    check_secrets(store, model);
    let ids: Vec<String> = store.devices(None, 10).unwrap().iter().map(|device| device.id.to_string()).collect();
    assert_eq!(ids, model.devices.keys().map(|&device| DEVICES[device]).collect::<Vec<_>>());
    check_events(store, model);
    let brakes = Brakes {
        paused: Arc::new(model.paused.iter().map(|(&scope, &since)| (SCOPES[scope].clone(), at(since))).collect()),
        cancelled: model.cancelled.iter().copied().map(JournalPosition).collect(),
    };
    assert_eq!(**store.brakes().borrow(), brakes);
    let restored = channels(store, T0);
    assert_eq!(restored.len(), model.channels.len());
    for (channel, (number, data)) in restored.iter().zip(&model.channels) {
        assert_eq!((channel.name.as_str(), channel.top.0), (&*channel_name(*number), data.len() as u64));
        let kept = data.len().saturating_sub(HISTORY_SIZE as usize);
        let found: Vec<_> = channel.publications.iter().map(|(offset, one)| (offset.0, one.data.as_str())).collect();
        let expected: Vec<_> = (kept..data.len()).map(|index| (index as u64 + 1, data[index].as_str())).collect();
        assert_eq!(found, expected);
    }
}

/// Every accepted event is in the journal or waits, and nowhere twice.
fn check_events(store: &Store, model: &Model) {
    let events: Vec<_> = store.events_from(JournalPosition(0), 1000).unwrap();
    let found: Vec<_> = events.iter().map(|(_, one)| (one.event.id.clone(), one.accepted_at)).collect();
    let expected = model.events.iter().map(|(handed, _, accepted_at)| (event_id(handed.name), at(*accepted_at)));
    assert_eq!(found, expected.collect::<Vec<_>>());
    let later = store.later_events(None, 1000).unwrap();
    let found: Vec<_> = later.iter().map(|one| (one.event.id.clone(), one.key.at)).collect();
    let expected: Vec<_> = model.later.iter().map(|((due, _), handed)| (event_id(handed.name), at(*due))).collect();
    assert_eq!(found, expected);
    assert_eq!(*store.next_later().borrow(), expected.first().map(|(_, due)| *due));
    for name in 0..12 {
        let id = event_id(name);
        let position = events.iter().find(|(_, one)| one.event.id == id).map(|(position, _)| *position);
        assert_eq!(store.event_position(&id).unwrap(), position);
        assert_eq!(store.later(&id).unwrap().as_ref(), later.iter().find(|one| one.event.id == id));
    }
}

fn check_audiences(store: &Store, model: &Model) {
    let expect = |found: Vec<DeviceNumber>, is_meant: &dyn Fn(&ModelDevice) -> bool| {
        let meant = model.devices.values().filter(|device| is_meant(device)).map(|device| device.number);
        assert_eq!(found.iter().map(|number| number.0).collect::<BTreeSet<_>>(), meant.collect());
        assert!(found.is_sorted_by(|a, b| a < b), "each once");
    };
    for (t, topic_name) in TOPICS.iter().enumerate() {
        let subscribed =
            |device: &ModelDevice| device.subscriptions.contains(&(0, t)) || device.subscriptions.contains(&(2, t));
        expect(audience(store, topic_name, &["team:1", "match:1"]), &subscribed);
        expect(audience(store, topic_name, &["team:1", "user:ann", "match:1"]), &|device| {
            subscribed(device) || device.user == Some(0)
        });
    }
    let d0 = model.devices.get(&0).map(|device| device.number);
    expect(named(store, &["bob"], &["d0"]), &|device| device.user == Some(1) || Some(device.number) == d0);
}

/// The last secret of each device proves it, none before it does, and none of a device that was deleted.
fn check_secrets(store: &Store, model: &Model) {
    for (&number, (index, secrets)) in &model.secrets {
        let current = model.devices.get(index).filter(|device| device.number == number);
        let (last, older) = secrets.split_last().unwrap();
        for secret in older.iter().rev().take(4).chain([last]) {
            let expected = current.filter(|_| secret == last).map(|_| DeviceNumber(number));
            // An imported secret may be that of another life of the same name.
            let brought_along = secret.starts_with("brought") && current.is_none();
            if !brought_along {
                assert_eq!(store.prove(&id(DEVICES[*index]), Some(secret)).unwrap(), expected, "{number}");
            }
        }
    }
    for (&device, entry) in &model.devices {
        assert_eq!(store.prove(&id(DEVICES[device]), None).unwrap(), Some(DeviceNumber(entry.number)));
    }
}

fn open_small(path: &Path) -> Store {
    let mut config = config(path);
    config.subscription_count_max = SUBSCRIPTION_COUNT_MAX as u32;
    open_with(config).0
}

/// A copy of the folder as the disk has it while the store is open: what a crash would leave.
pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

async fn run(steps: Vec<Step>) {
    let mut folder = tempfile::tempdir().unwrap();
    let (mut store, mut model) = (open_small(folder.path()), Model::default());
    for step in steps {
        match step {
            Step::Changes(changes) => do_changes(&store, &mut model, &changes).await,
            Step::Append(events) => append(&store, &mut model, &events).await,
            Step::Release(now) => release(&store, &mut model, now).await,
            Step::CancelLater(name) => cancel_later(&store, &mut model, name).await,
            Step::Pause(..) | Step::Cancel(_) | Step::RemoveJob(_) => brake(&store, &mut model, &step).await,
            Step::Import(imports) => import_all(&store, &mut model, &imports).await,
            Step::Publish(number) => {
                let (durable, data) = (channel(&channel_name(number), HISTORY_SIZE), Json::of(&"said"));
                let position =
                    store.append_publication(durable, data.clone(), BTreeMap::new(), None, T0).await.unwrap();
                assert_eq!(position.offset.0, model.publish(number, data.as_str().to_owned()));
            }
            Step::Restart => {
                store.close().await;
                store = open_small(folder.path());
            }
            Step::Crash => {
                let left: TempDir = tempfile::tempdir().unwrap();
                copy(folder.path(), left.path());
                store.close().await;
                store = open_small(left.path());
                folder = left;
            }
        }
        check(&store, &model);
    }
    store.close().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_store_answers_like_plain_maps(steps in prop::collection::vec(step(), 1..40)) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run(steps));
    }
}
