//! Random requests on the store and on a few plain maps, with restarts and crashes in between: both answer alike.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use tempfile::TempDir;
use tidings_store::{
    AppendError, AppendedTo, Brakes, ChangeError, Credential, GivenCredential, ImportError, ImportStep, NewDevice,
    NewImport, Precondition, PutTerms, Store, SubscribeError,
};
use tidings_types::{
    BrakeScope, DeviceNumber, EventId, ImportName, JournalPosition, Json, Locale, Mute, Provider, Timestamp,
};

use crate::support::*;

const DEVICES: [&str; 4] = ["d0", "d1", "d2", "d3"];
const SUBJECTS: [&str; 3] = ["team:1", "team:2", "match:1"];
const TOPICS: [&str; 2] = ["goal", "card"];
const USERS: [&str; 2] = ["ann", "bob"];
const LOCALES: [&str; 2] = ["sv", "pt-BR"];
const SUBSCRIPTION_COUNT_MAX: usize = 4;
const HISTORY_SIZE: u32 = 3;
const SCOPES: [BrakeScope; 2] = [BrakeScope::Everything, BrakeScope::Provider(Provider::WebPush)];

const MUTES: [&str; 3] = ["everything", "team:1", "match:1"];
const MUTE_COUNT_MAX: usize = 2;
const IMPORTS: [&str; 2] = ["i0", "i1"];

/// What the store's clock says; one store is open at a time.
static CLOCK: AtomicU64 = AtomicU64::new(0);

type Pair = (usize, usize);
/// A scope, and after how many seconds it ends.
type Muting = (usize, Option<u64>);

/// On which condition a device is changed.
#[derive(Debug, Clone, Copy)]
enum Condition {
    None,
    Absent,
    Present,
    /// The revision it has at its turn, or the one before.
    Current,
    Stale,
}

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
    Put { device: usize, said: Said, at: u64, condition: Condition },
    Delete(usize, Condition),
    Rotate(usize),
    LogOut(usize),
    Subscribe(usize, Vec<Pair>),
    Unsubscribe(usize, usize, Option<usize>),
    Gone { device: usize, token: u8, at: Option<u64> },
    Proven(usize),
    Mute(usize, Muting),
    Unmute(usize, usize),
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

/// What an import says of a device: with the secret it brings along, what it mutes, and whether its token is proven.
#[derive(Debug, Clone)]
struct Brought {
    device: usize,
    said: Said,
    secret: Option<u8>,
    proven: bool,
    mutes: Vec<Muting>,
}

#[derive(Debug, Clone)]
enum Step {
    Changes(Vec<Change>),
    Append(Vec<Handed>),
    /// Until nothing is due at this moment.
    Release(u64),
    CancelLater(u8),
    Publish(u8),
    /// Devices; and of which import they are a step, if that is the next one.
    Import(Vec<Brought>, Option<(usize, bool)>),
    /// All devices of a user.
    Erase(usize),
    /// So many seconds after the beginning.
    Time(u64),
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

fn condition() -> impl Strategy<Value = Condition> {
    use Condition::{Absent, Current, None, Present, Stale};
    prop_oneof![6 => Just(None), 1 => Just(Absent), 1 => Just(Present), 2 => Just(Current), 1 => Just(Stale)]
}

fn muting() -> impl Strategy<Value = Muting> {
    (0..MUTES.len(), prop::option::weighted(0.7, 1..5u64))
}

fn brought() -> impl Strategy<Value = Brought> {
    let rest = (prop::option::of(0..2u8), any::<bool>(), prop::collection::vec(muting(), 0..2));
    (0..DEVICES.len(), said(), rest).prop_map(|(device, said, (secret, proven, mutes))| Brought {
        device,
        said,
        secret,
        proven,
        mutes,
    })
}

fn change() -> impl Strategy<Value = Change> {
    let device = || 0..DEVICES.len();
    let pair = || (0..SUBJECTS.len(), 0..TOPICS.len());
    prop_oneof![
        4 => (device(), said(), 0..10u64, condition())
            .prop_map(|(device, said, at, condition)| Change::Put { device, said, at, condition }),
        1 => (device(), condition()).prop_map(|(device, condition)| Change::Delete(device, condition)),
        1 => device().prop_map(Change::Rotate),
        1 => device().prop_map(Change::LogOut),
        4 => (device(), prop::collection::vec(pair(), 0..4)).prop_map(|(device, pairs)| Change::Subscribe(device, pairs)),
        2 => (device(), 0..SUBJECTS.len(), prop::option::of(0..TOPICS.len()))
            .prop_map(|(device, subject, topic)| Change::Unsubscribe(device, subject, topic)),
        2 => (device(), 0..3u8, prop::option::of(0..10u64))
            .prop_map(|(device, token, at)| Change::Gone { device, token, at }),
        3 => device().prop_map(Change::Proven),
        3 => (device(), muting()).prop_map(|(device, muting)| Change::Mute(device, muting)),
        1 => (device(), 0..MUTES.len()).prop_map(|(device, scope)| Change::Unmute(device, scope)),
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
        2 => (prop::collection::vec(brought(), 0..4), prop::option::of((0..IMPORTS.len(), prop::bool::weighted(0.8))))
            .prop_map(|(brought, part)| Step::Import(brought, part)),
        1 => (0..USERS.len()).prop_map(Step::Erase),
        2 => (1..5u64).prop_map(Step::Time),
        2 => (0..SCOPES.len(), any::<bool>(), 0..10u64).prop_map(|(scope, on, at)| Step::Pause(scope, on, at)),
        1 => (0..8u64).prop_map(Step::Cancel),
        1 => (0..8u64).prop_map(Step::RemoveJob),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
    ]
}

#[derive(Debug, Clone, PartialEq)]
struct ModelDevice {
    /// Which life of which device it is.
    life: u32,
    user: Option<usize>,
    token: Option<u8>,
    locale: usize,
    /// `None`: only an import has said it.
    token_at: Option<u64>,
    since: u64,
    proven: bool,
    subscriptions: BTreeSet<Pair>,
    /// By scope, when it ends in milliseconds.
    mutes: BTreeMap<usize, Option<u64>>,
    revision: u64,
}

impl ModelDevice {
    fn has_muted(&self, subjects: &[&str]) -> bool {
        self.mutes.keys().any(|&scope| scope == 0 || subjects.contains(&MUTES[scope]))
    }
}

/// The event, its channel and offset there, and when it counts as accepted.
type ModelEvent = (Handed, Option<(u8, u64)>, u64);

#[derive(Default)]
struct Model {
    devices: BTreeMap<usize, ModelDevice>,
    life_next: u32,
    /// The numbers of lives, as far as the store has told.
    numbers: BTreeMap<u32, DeviceNumber>,
    /// The last one given out.
    revision: u64,
    /// Milliseconds since the beginning.
    now: u64,
    /// Lines done.
    imports: BTreeMap<usize, u64>,
    /// All secrets a device had in a life; the last one is good.
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
    /// `at` is `None` in an import, which may bring a secret along.
    fn put(&mut self, device: usize, Said { user, token, locale }: Said, at: Option<u64>, secret: Option<&String>) {
        let before = self.devices.get(&device).cloned();
        let was_same = before.as_ref().filter(|before| before.token == token);
        let token_at = at.or_else(|| was_same?.token_at);
        let was_proven = was_same.is_some_and(|before| before.proven);
        let loses = |(index, other): &(&usize, &mut ModelDevice)| **index != device && other.token == token;
        if token.is_some() {
            for (_, other) in self.devices.iter_mut().filter(loses) {
                self.revision += 1;
                (other.token, other.proven, other.revision) = (None, false, self.revision);
            }
        }
        let next = &mut self.life_next;
        let since = self.events.len() as u64 + 1;
        let (life, revision) = before.as_ref().map_or_else(
            || {
                *next += 1;
                (*next - 1, 0)
            },
            |before| (before.life, before.revision),
        );
        let (mutes, subscriptions) = (BTreeMap::new(), BTreeSet::new());
        let new = ModelDevice {
            life,
            user,
            token,
            locale,
            token_at,
            since,
            proven: was_proven,
            subscriptions,
            mutes,
            revision,
        };
        let entry = match &before {
            Some(ModelDevice { user: owner, since: known, subscriptions, mutes, .. }) => {
                let since = if owner.is_some() && *owner != user { since } else { *known };
                ModelDevice { since, subscriptions: subscriptions.clone(), mutes: mutes.clone(), ..new }
            }
            None => new,
        };
        let known_secret = self.secrets.get(&life).and_then(|(_, all)| all.last());
        let is_other =
            before.as_ref().map(|before| ModelDevice { proven: was_proven, ..before.clone() }) != Some(entry.clone());
        let has_changed = at.is_some() || is_other || (secret.is_some() && secret != known_secret);
        self.devices.insert(device, entry);
        if has_changed {
            self.change(device);
        }
    }

    /// The device has another revision.
    fn change(&mut self, device: usize) {
        self.revision += 1;
        if let Some(entry) = self.devices.get_mut(&device) {
            entry.revision = self.revision;
        }
    }

    /// The condition as the store is asked for it.
    fn precondition(&self, device: usize, condition: Condition) -> Precondition {
        let revision = self.devices.get(&device).map_or(1, |entry| entry.revision);
        match condition {
            Condition::None => Precondition::None,
            Condition::Absent => Precondition::Absent,
            Condition::Present => Precondition::Present,
            Condition::Current => Precondition::Revision(revision),
            Condition::Stale => Precondition::Revision(revision - 1),
        }
    }

    /// The answer to a change whose condition does not hold.
    fn refusal(&self, device: usize, condition: Condition) -> Option<Answer> {
        let known = self.devices.get(&device);
        let holds = match condition {
            Condition::None => true,
            Condition::Absent => known.is_none(),
            Condition::Present | Condition::Current => known.is_some(),
            Condition::Stale => false,
        };
        (!holds).then(|| Answer::Failed(known.map(|entry| entry.revision)))
    }

    fn mute(&mut self, device: usize, (scope, seconds): Muting) -> Answer {
        let Some(entry) = self.devices.get_mut(&device) else { return Answer::Refused };
        let until = seconds.map(|seconds| seconds * 1000);
        if until.is_some_and(|until| until <= self.now) {
            entry.mutes.remove(&scope);
            return Answer::Was(false);
        }
        if !entry.mutes.contains_key(&scope) && entry.mutes.len() == MUTE_COUNT_MAX {
            return Answer::Refused;
        }
        Answer::Was(entry.mutes.insert(scope, until).is_none())
    }

    /// Whether the devices have room for what is brought to them.
    fn has_room(&self, brought: &[Brought]) -> bool {
        (0..DEVICES.len()).all(|device| {
            let known = self.devices.get(&device).into_iter().flat_map(|entry| entry.mutes.keys().copied());
            let new = brought.iter().filter(|one| one.device == device).flat_map(|one| &one.mutes);
            let is_touched = brought.iter().any(|one| one.device == device);
            let scopes: BTreeSet<usize> = known.chain(new.map(|(scope, _)| *scope)).collect();
            !is_touched || scopes.len() <= MUTE_COUNT_MAX
        })
    }

    /// Takes note of the numbers of new devices: a device keeps its number for life, and shares it with nobody.
    fn learn(&mut self, store: &Store) {
        for (&index, device) in &self.devices {
            let number = store.device_number(&id(DEVICES[index])).unwrap().unwrap();
            assert_eq!(*self.numbers.entry(device.life).or_insert(number), number);
        }
        let numbers: BTreeSet<_> = self.devices.values().map(|device| self.numbers[&device.life]).collect();
        assert_eq!(numbers.len(), self.devices.len());
    }

    fn number_of(&self, device: usize) -> Option<DeviceNumber> {
        self.numbers.get(&self.devices.get(&device)?.life).copied()
    }

    fn give_secret(&mut self, device: usize, life: u32, secret: String) {
        self.secrets.entry(life).or_insert_with(|| (device, Vec::new())).1.push(secret);
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
            self.change(device);
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
    /// A new secret, if there is such a device.
    Issued(bool),
    Was(bool),
    Count(usize),
    Refused,
    /// The condition does not hold; the revision.
    Failed(Option<u64>),
    Done,
}

fn change_model(model: &mut Model, change: &Change) -> Answer {
    match change {
        Change::Put { device, said, at, condition } => model.refusal(*device, *condition).unwrap_or_else(|| {
            let created = !model.devices.contains_key(device);
            model.put(*device, *said, Some(*at), None);
            Answer::Created(created)
        }),
        Change::Rotate(device) => {
            let is_there = model.devices.contains_key(device);
            if is_there {
                model.change(*device);
            }
            Answer::Issued(is_there)
        }
        Change::LogOut(device) => {
            let is_there = model.devices.get_mut(device).map(|entry| {
                (entry.user, entry.since) = (None, model.events.len() as u64 + 1);
                entry.subscriptions.clear();
                entry.mutes.clear();
            });
            if is_there.is_some() {
                model.change(*device);
            }
            Answer::Issued(is_there.is_some())
        }
        Change::Delete(device, condition) => {
            model.refusal(*device, *condition).unwrap_or_else(|| Answer::Was(model.devices.remove(device).is_some()))
        }
        Change::Mute(device, muting) => model.mute(*device, *muting),
        Change::Unmute(device, scope) => match model.devices.get_mut(device) {
            Some(entry) => Answer::Was(entry.mutes.remove(scope).is_some()),
            None => Answer::Refused,
        },
        Change::Subscribe(device, pairs) => model.subscribe(*device, pairs).map_or(Answer::Refused, Answer::Count),
        Change::Unsubscribe(device, subject, topic) => match model.devices.get_mut(device) {
            Some(entry) => {
                let before = entry.subscriptions.len();
                entry.subscriptions.retain(|(s, t)| s != subject || topic.is_some_and(|topic| topic != *t));
                Answer::Count(before - entry.subscriptions.len())
            }
            None => Answer::Refused,
        },
        Change::Gone { device, token, at } => {
            Answer::Was(model.number_of(*device).is_some() && model.gone(*device, *token, *at))
        }
        Change::Proven(device) => {
            if model.number_of(*device).is_some() {
                model.prove(*device);
            }
            Answer::Done
        }
    }
}

/// The store's answer, and the secret it gave out.
async fn change_store(store: &Store, change: &Change, known: Known) -> (Answer, Option<Credential>) {
    let issued = |issued: Option<(DeviceNumber, Credential)>| {
        let (number, credential) = issued.unzip();
        (Answer::Issued(number.is_some()), credential)
    };
    match change {
        Change::Put { device, said, at: millis, .. } => {
            let terms = PutTerms { precondition: known.precondition, ..PutTerms::default() };
            match store.put_device(new_device(*device, *said), terms, at(*millis)).await {
                Ok(registered) => (Answer::Created(registered.created), registered.credential),
                Err(error) => (failed(error), None),
            }
        }
        Change::Rotate(device) => issued(store.rotate_credential(&id(DEVICES[*device])).await.unwrap()),
        Change::LogOut(device) => issued(store.log_out(&id(DEVICES[*device])).await.unwrap()),
        change => (change_store_silently(store, change, known).await, None),
    }
}

fn new_device(index: usize, Said { user: of, token: byte, locale }: Said) -> NewDevice {
    let (user, locale) = (of.map(|of| user(USERS[of])), Locale::new(LOCALES[locale]).unwrap());
    NewDevice { user, locale, ..device(DEVICES[index], byte.map(token)) }
}

fn failed(error: ChangeError) -> Answer {
    match error {
        ChangeError::PreconditionFailed { revision } => Answer::Failed(revision),
        error => panic!("{error}"),
    }
}

/// What the caller knows of a device at its turn.
#[derive(Clone, Copy)]
struct Known {
    number: DeviceNumber,
    precondition: Precondition,
}

fn to_mute(&(scope, seconds): &Muting) -> Mute {
    mute(MUTES[scope], seconds.map(|seconds| at(seconds * 1000)))
}

async fn change_store_silently(store: &Store, change: &Change, Known { number, precondition }: Known) -> Answer {
    let was = |result: Result<bool, SubscribeError>| match result {
        Ok(was) => Answer::Was(was),
        Err(SubscribeError::Write(error)) => panic!("{error}"),
        Err(_) => Answer::Refused,
    };
    let count = |result: Result<usize, SubscribeError>| match result {
        Ok(count) => Answer::Count(count),
        Err(SubscribeError::Write(error)) => panic!("{error}"),
        Err(_) => Answer::Refused,
    };
    match change {
        Change::Delete(device, _) => {
            store.delete_device(&id(DEVICES[*device]), precondition).await.map_or_else(failed, Answer::Was)
        }
        Change::Mute(device, muting) => {
            let now = Timestamp(CLOCK.load(Ordering::Relaxed));
            was(store.mute(&id(DEVICES[*device]), to_mute(muting), now).await)
        }
        Change::Unmute(device, scope) => {
            was(store.unmute(&id(DEVICES[*device]), &MUTES[*scope].parse().unwrap()).await)
        }
        Change::Subscribe(device, pairs) => {
            let selection = pairs.iter().map(|&(s, t)| (subject(SUBJECTS[s]), vec![topic(TOPICS[t])])).collect();
            count(store.subscribe(&id(DEVICES[*device]), selection).await)
        }
        Change::Unsubscribe(device, s, t) => {
            let selection = vec![(subject(SUBJECTS[*s]), t.iter().map(|t| topic(TOPICS[*t])).collect())];
            count(store.unsubscribe(&id(DEVICES[*device]), selection).await)
        }
        Change::Gone { token: byte, at: millis, .. } => {
            Answer::Was(token_gone(store, number, token(*byte), millis.map(at)).await.unwrap())
        }
        Change::Proven(_) => {
            store.devices_proven(vec![number]).await.unwrap();
            Answer::Done
        }
        Change::Put { .. } | Change::Rotate(_) | Change::LogOut(_) => unreachable!("these give out secrets"),
    }
}

async fn do_changes(store: &Store, model: &mut Model, changes: &[Change]) {
    let (mut expected, mut all_known, mut holders) = (Vec::new(), Vec::new(), Vec::new());
    for change in changes {
        // The sender knows numbers from earlier, so it says nothing of a device that is as new as this.
        let number = match change {
            Change::Gone { device, .. } | Change::Proven(device) => model.number_of(*device),
            _ => None,
        };
        let number = number.unwrap_or(DeviceNumber(u32::MAX));
        let precondition = match change {
            Change::Put { device, condition, .. } | Change::Delete(device, condition) => {
                model.precondition(*device, *condition)
            }
            _ => Precondition::None,
        };
        all_known.push(Known { number, precondition });
        let answer = change_model(model, change);
        holders.push(match (change, &answer) {
            (Change::Put { device, .. }, Answer::Created(true))
            | (Change::Rotate(device) | Change::LogOut(device), Answer::Issued(true)) => {
                Some((*device, model.devices[device].life))
            }
            _ => None,
        });
        expected.push(answer);
    }
    let requests = changes.iter().zip(all_known);
    let futures = requests
        .map(|(change, known)| Box::pin(change_store(store, change, known)) as Pin<Box<dyn Future<Output = _>>>);
    let (answers, issued): (Vec<Answer>, Vec<Option<Credential>>) =
        join_all(futures.collect()).await.into_iter().unzip();
    assert_eq!(answers, expected, "{changes:?}");
    for (holder, issued) in holders.into_iter().zip(issued) {
        assert_eq!(holder.is_some(), issued.is_some(), "{changes:?}");
        if let Some(((device, life), issued)) = holder.zip(issued) {
            model.give_secret(device, life, issued.as_str().to_owned());
        }
    }
}

async fn import_all(store: &Store, model: &mut Model, brought: &[Brought], part: Option<(usize, bool)>) {
    let secret = |byte: Option<u8>| byte.map(|byte| format!("brought along {byte}"));
    let new = |one: &Brought| NewImport {
        credential: secret(one.secret).map(GivenCredential::Secret),
        proven: one.proven,
        mutes: one.mutes.iter().map(to_mute).collect(),
        ..import(new_device(one.device, one.said), vec![])
    };
    let recorded = part.map_or(0, |(name, _)| model.imports.get(&name).copied().unwrap_or_default());
    let step = part.map(|(name, is_next)| {
        let lines_before = recorded + u64::from(!is_next);
        let lines_after = lines_before + brought.len() as u64;
        ImportStep { name: ImportName::new(IMPORTS[name]).unwrap(), lines_before, lines_after }
    });
    let now = at(model.now);
    let answer = store.import_devices(brought.iter().map(new).collect(), step, now).await;
    let imported = match (answer, part) {
        (Err(ImportError::OutOfStep { recorded: found, .. }), Some((_, false))) => return assert_eq!(found, recorded),
        (Err(ImportError::Device { .. }), _) if !model.has_room(brought) => return,
        (Ok(imported), None | Some((_, true))) if model.has_room(brought) => imported,
        (answer, _) => panic!("{answer:?} to {brought:?} as {part:?}"),
    };
    if let Some((name, _)) = part {
        model.imports.insert(name, recorded + brought.len() as u64);
    }
    let mut created = 0;
    for one in brought {
        let secret = secret(one.secret);
        created += u64::from(!model.devices.contains_key(&one.device));
        model.put(one.device, one.said, None, secret.as_ref());
        if one.proven {
            model.prove(one.device);
        }
        for muting in &one.mutes {
            if muting.1.is_none_or(|seconds| seconds * 1000 > model.now) {
                model.mute(one.device, *muting);
            }
        }
        if let Some(secret) = secret {
            model.give_secret(one.device, model.devices[&one.device].life, secret);
        }
    }
    assert_eq!((imported.created, imported.updated), (created, brought.len() as u64 - created));
}

async fn erase(store: &Store, model: &mut Model, of: usize) {
    let count = model.devices.len();
    model.devices.retain(|_, device| device.user != Some(of));
    assert_eq!(store.erase_user(&user(USERS[of])).await.unwrap(), (count - model.devices.len()) as u64);
}

/// Time goes on, and what is over ends though nobody asks for it.
async fn pass_time(store: &Store, model: &mut Model, seconds: u64) {
    model.now = model.now.max(seconds * 1000);
    CLOCK.store(at(model.now).0, Ordering::Relaxed);
    for device in model.devices.values_mut() {
        device.mutes.retain(|_, until| until.is_none_or(|until| until > model.now));
    }
    let now = at(model.now);
    eventually("the end of mutes", || {
        let mutes = DEVICES.iter().filter_map(|name| store.mutes(&id(name)).unwrap()).flatten();
        mutes.filter_map(|mute| mute.until).all(|until| until > now)
    })
    .await;
    // Its batch is applied when the next one is answered.
    let nobody = store.unmute(&id("nobody"), &MUTES[0].parse().unwrap()).await;
    assert_eq!(nobody, Err(SubscribeError::NotFound));
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
        assert_eq!((found.token_at, found.since.0, found.revision), (token_at, expected.since, expected.revision));
        assert_eq!(found.user, expected.user.map(|index| user(USERS[index])));
        assert_eq!(found.locale.as_str(), LOCALES[expected.locale]);
        let held = store.subscriptions(&id(name)).unwrap().unwrap();
        let held: BTreeSet<_> =
            held.iter().flat_map(|(s, topics)| topics.iter().map(|t| (s.as_str(), t.as_str()))).collect();
        assert_eq!(held, expected.subscriptions.iter().map(|&(s, t)| (SUBJECTS[s], TOPICS[t])).collect());
    }
    check_audiences(store, model);
    check_secrets(store, model);
    check_exported(store, model);
    check_found(store, model);
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

/// What an export has of the devices, with their mutes.
fn check_exported(store: &Store, model: &Model) {
    let exported = store.export(None, 10).unwrap().devices;
    assert_eq!(exported.len(), model.devices.len());
    for (found, (&index, expected)) in exported.into_iter().zip(&model.devices) {
        assert_eq!(Some(&found.device), store.device(&id(DEVICES[index])).unwrap().as_ref());
        let pairs = expected.subscriptions.iter().map(|&(s, t)| (subject(SUBJECTS[s]), topic(TOPICS[t])));
        assert_eq!(found.subscriptions.into_iter().collect::<BTreeSet<_>>(), pairs.collect());
        let mutes: BTreeSet<Mute> =
            expected.mutes.iter().map(|(&scope, until)| mute(MUTES[scope], until.map(at))).collect();
        assert_eq!(found.mutes.iter().cloned().collect::<BTreeSet<_>>(), mutes);
        assert_eq!(store.mutes(&id(DEVICES[index])).unwrap().unwrap(), found.mutes);
        assert_eq!(found.proven, expected.proven);
        assert_eq!(found.credential.is_some(), model.secrets.contains_key(&expected.life));
    }
    for (index, name) in IMPORTS.iter().enumerate() {
        let progress = store.import_progress(&ImportName::new(name).unwrap()).unwrap();
        assert_eq!(progress.map(|progress| progress.lines), model.imports.get(&index).copied(), "{name}");
    }
}

/// Devices are found by their user and their address.
fn check_found(store: &Store, model: &Model) {
    let meant = |is_meant: &dyn Fn(&ModelDevice) -> bool| -> Vec<_> {
        let meant = model.devices.iter().filter(|(_, device)| is_meant(device));
        meant.map(|(&index, _)| id(DEVICES[index])).collect()
    };
    for (index, name) in USERS.iter().enumerate() {
        let devices = store.devices_of_user(&user(name), None, 10).unwrap();
        let found: Vec<_> = devices.into_iter().map(|device| device.id).collect();
        assert_eq!(found, meant(&|device| device.user == Some(index)));
    }
    for byte in 0..3 {
        let found: Vec<_> = store.device_by_token(&token(byte)).unwrap().into_iter().map(|device| device.id).collect();
        assert_eq!(found, meant(&|device| device.token == Some(byte)));
    }
}

fn check_audiences(store: &Store, model: &Model) {
    let expect = |found: Vec<DeviceNumber>, subjects: &[&str], is_meant: &dyn Fn(&ModelDevice) -> bool| {
        let meant = model.devices.values().filter(|device| is_meant(device) && !device.has_muted(subjects));
        let meant = meant.map(|device| model.numbers[&device.life]);
        assert_eq!(found.iter().copied().collect::<BTreeSet<_>>(), meant.collect());
        assert!(found.is_sorted_by(|a, b| a < b), "each once");
    };
    for (t, topic_name) in TOPICS.iter().enumerate() {
        let subscribed =
            |device: &ModelDevice| device.subscriptions.contains(&(0, t)) || device.subscriptions.contains(&(2, t));
        let subjects = ["team:1", "match:1", "user:ann"];
        expect(audience(store, topic_name, &subjects[..2]), &subjects, &subscribed);
        expect(audience(store, topic_name, &subjects), &subjects, &|device| {
            subscribed(device) || device.user == Some(0)
        });
    }
    let d0 = model.devices.get(&0).map(|device| device.life);
    let is_named = |device: &ModelDevice| device.user == Some(1) || Some(device.life) == d0;
    expect(named(store, &["bob"], &["d0"]), &["team:1"], &is_named);
}

/// The last secret of each device proves it, none before it does, and none of a device that was deleted.
fn check_secrets(store: &Store, model: &Model) {
    for (&life, (index, secrets)) in &model.secrets {
        let current = model.devices.get(index).filter(|device| device.life == life);
        let (last, older) = secrets.split_last().unwrap();
        for secret in older.iter().rev().take(4).chain([last]) {
            let expected = current.filter(|_| secret == last).map(|_| model.numbers[&life]);
            // An imported secret may be that of another life of the same name.
            let brought_along = secret.starts_with("brought") && current.is_none();
            if !brought_along {
                assert_eq!(store.prove(&id(DEVICES[*index]), Some(secret)).unwrap(), expected, "{life}");
            }
        }
    }
    for (&device, entry) in &model.devices {
        assert_eq!(store.prove(&id(DEVICES[device]), None).unwrap(), Some(model.numbers[&entry.life]));
    }
}

fn open_small(path: &Path) -> Store {
    let mut config = config(path);
    config.subscription_count_max = SUBSCRIPTION_COUNT_MAX as u32;
    config.mute_count_max = MUTE_COUNT_MAX as u32;
    config.checkpoint_change_count = 3;
    config.clock = || Timestamp(CLOCK.load(Ordering::Relaxed));
    open_with(config).0
}

/// A copy of the folder as the disk has it while the store is open: what a crash would leave. A file that goes meanwhile, as
/// that of a checkpoint in the making, is not in it.
pub(crate) fn copy(from: &Path, to: &Path) {
    // The engine may replace files meanwhile. A crash leaves those of one moment, so a mixture is copied again.
    loop {
        let before = names(from);
        copy_files(from, to);
        if names(from) == before {
            return;
        }
        std::fs::remove_dir_all(to).unwrap();
    }
}

/// All files below a folder.
fn names(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let below = |entry: std::fs::DirEntry| match entry.file_type().unwrap().is_dir() {
        true => names(&entry.path()),
        false => BTreeSet::from([entry.path()]),
    };
    entries.flat_map(below).collect()
}

fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            copy_files(&entry.path(), &to.join(entry.file_name()));
        } else {
            match std::fs::copy(entry.path(), to.join(entry.file_name())) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                copied => _ = copied.unwrap(),
            }
        }
    }
}

async fn run(steps: Vec<Step>) {
    let mut folder = tempfile::tempdir().unwrap();
    CLOCK.store(T0.0, Ordering::Relaxed);
    let (mut store, mut model) = (open_small(folder.path()), Model::default());
    for step in steps {
        match step {
            Step::Changes(changes) => do_changes(&store, &mut model, &changes).await,
            Step::Append(events) => append(&store, &mut model, &events).await,
            Step::Release(now) => release(&store, &mut model, now).await,
            Step::CancelLater(name) => cancel_later(&store, &mut model, name).await,
            Step::Pause(..) | Step::Cancel(_) | Step::RemoveJob(_) => brake(&store, &mut model, &step).await,
            Step::Import(brought, part) => import_all(&store, &mut model, &brought, part).await,
            Step::Erase(of) => erase(&store, &mut model, of).await,
            Step::Time(seconds) => pass_time(&store, &mut model, seconds).await,
            Step::Publish(number) => {
                let (durable, data) = (channel(&channel_name(number), HISTORY_SIZE), Json::of(&"said"));
                let position =
                    store.append_publication(durable, data.clone(), BTreeMap::new(), None, T0).await.unwrap();
                assert_eq!(position.offset.0, model.publish(number, data.as_str().to_owned()));
            }
            Step::Restart => {
                store.close().await;
                assert_sound(folder.path());
                store = open_small(folder.path());
            }
            Step::Crash => {
                let left: TempDir = tempfile::tempdir().unwrap();
                copy(folder.path(), left.path());
                store.close().await;
                assert_sound(left.path());
                store = open_small(left.path());
                folder = left;
            }
        }
        model.learn(&store);
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
