//! Whatever happens to channels: what is counted is what is there, each is looked at in time, and only what is not in use makes
//! room. No offset of an epoch is given twice.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tidings_protocol::Namespaces;
use tidings_stream::TailBounds;
use tidings_types::{Format, Tags, Variant};

use super::*;
use crate::{Histories, Hub, HubConfig, HubCounts, HubError, Load};

/// Durable ones, those of the other namespaces, and one without a history.
const NAMES: [&str; 12] = [
    "kept:1",
    "kept:2",
    "kept:3",
    "kept:4",
    "few:1",
    "few:2",
    "few:3",
    "less:1",
    "less:2",
    "plain",
    "durable:1",
    "durable:2",
];
const MEMORY_MAX: usize = 5;
const JSON: Variant = Variant::websocket(Format::Json);
const POSITION_TTL: Duration = Duration::from_secs(120);

#[derive(Debug, Clone)]
enum Step {
    Publish(usize),
    Come(usize),
    Leave(usize),
    Empty(usize),
    Ask(usize),
    Forget(usize),
    Wait { seconds: u64, is_swept: bool },
    SetHome(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = || 0..NAMES.len();
    let step = prop_oneof![
        8 => name().prop_map(Step::Publish),
        4 => name().prop_map(Step::Come),
        4 => name().prop_map(Step::Leave),
        1 => name().prop_map(Step::Empty),
        1 => name().prop_map(Step::Ask),
        1 => name().prop_map(Step::Forget),
        5 => (1_u64..90, any::<bool>()).prop_map(|(seconds, is_swept)| Step::Wait { seconds, is_swept }),
        1 => any::<bool>().prop_map(Step::SetHome),
    ];
    prop::collection::vec(step, 0..80)
}

/// A store that cannot be read.
#[derive(Debug)]
struct Unread;

impl Histories for Unread {
    fn begin(&self, load: Load) {
        drop(load);
    }
}

fn hub() -> Hub {
    let closed = NamespaceOptions::closed();
    let (history_ttl, history_meta_ttl) = (Duration::from_secs(60), POSITION_TTL);
    let kept = NamespaceOptions { history_size: 3, history_ttl, history_meta_ttl, ..closed };
    let named = BTreeMap::from([
        ("kept".to_owned(), kept),
        ("few".to_owned(), NamespaceOptions { channel_count_max: 2, ..kept }),
        ("less".to_owned(), NamespaceOptions { history_ttl: Duration::from_secs(30), ..kept }),
        ("durable".to_owned(), NamespaceOptions { durable: true, history_ttl: Duration::from_secs(600), ..kept }),
    ]);
    let config = HubConfig {
        namespaces: Arc::new(Namespaces::new(closed, named)),
        channel_count_max: MEMORY_MAX,
        tail: TailBounds { frame_count_max: 10, bytes_max: usize::MAX },
        tails_bytes_max: usize::MAX,
        history_bytes_max: usize::MAX,
        durable_start: StreamPosition { offset: Offset(0), epoch: Epoch::from_random(1) },
        receipt_event_count_max: 1,
        receipt_bytes_max: 1 << 20,
    };
    Hub::new(config, 1).with_histories(Arc::new(Unread), usize::MAX)
}

fn publication() -> Publication {
    let (info, receipt, texts) = (None, None, None);
    Publication { offset: Offset(0), data: Json::of(&1), info, tags: Tags::default(), receipt, texts }
}

/// What is known of a memory channel at one moment.
#[derive(Debug, Clone, Copy)]
struct Seen {
    place: Place,
    is_in_use: bool,
}

struct World {
    hub: Hub,
    now: Timestamp,
    readers: Vec<Arc<Channel>>,
    durable_top: u64,
    given: BTreeSet<(&'static str, String, Offset)>,
}

impl World {
    fn take(&mut self, step: &Step) {
        match *step {
            Step::Publish(index) if NAMES[index].starts_with("durable") => {
                self.durable_top += 1;
                let offset = Offset(self.durable_top);
                self.hub.publish_durable(&name(index), offset, publication(), self.now).unwrap();
            }
            Step::Publish(index) => self.publish(index),
            Step::Come(index) => self.come(index),
            Step::Leave(index) => self.leave(index),
            Step::Empty(index) => self.hub.remove_history(&name(index), None),
            Step::Ask(index) => drop(self.hub.load(&name(index), crate::Wanted::Any)),
            Step::Forget(index) => self.hub.on_channel_forgotten(&name(index), Offset(self.durable_top)),
            Step::Wait { seconds, is_swept } => {
                self.now = self.now.saturating_add(Duration::from_secs(seconds));
                if is_swept {
                    self.hub.sweep(self.now);
                    assert_eq!(self.hub.sweep(self.now), 0, "nothing is looked at twice");
                }
            }
            Step::SetHome(false) => self.hub.set_home(false),
            Step::SetHome(true) => self.hub.take_over(),
        }
        self.check_counts();
        self.check_places();
    }

    fn publish(&mut self, index: usize) {
        let before = self.seen(self.now);
        let new = NewPublication { publication: publication(), skip_history: false };
        let published = self.hub.publish(&name(index), new, self.now);
        self.check_room(&before, published.as_ref().err(), self.now);
        if let Ok(Some(StreamPosition { offset, epoch })) = published {
            assert!(self.given.insert((NAMES[index], epoch.as_str().to_owned(), offset)), "it was given before");
        }
    }

    fn come(&mut self, index: usize) {
        let now = self.hub.swept_at();
        let before = self.seen(now);
        let (loop_id, _) = self.hub.loops().next().unwrap();
        let come = self.hub.subscribe(&name(index), &Member::reader(loop_id, ClientId::from_random(1), JSON), None);
        self.check_room(&before, come.as_ref().err(), now);
        self.readers.extend(come.ok().map(|subscribed| subscribed.channel));
    }

    fn leave(&mut self, index: usize) {
        let Some(at) = self.readers.iter().position(|channel| *channel.name() == name(index)) else { return };
        let channel = self.readers.swap_remove(at);
        let (loop_id, _) = self.hub.loops().next().unwrap();
        self.hub.unsubscribe(&channel, loop_id, ClientId::from_random(1), None, JSON);
    }

    fn seen(&self, now: Timestamp) -> BTreeMap<ChannelName, Seen> {
        let channels = (0..crate::table::SHARD_COUNT).flat_map(|index| self.hub.table.memory_channels(index));
        let seen = channels.map(|channel| {
            let state = lock(&channel.state);
            let has_history = !state.history.is_empty() && !state.history.is_over(now);
            let is_in_use = !state.readers.is_empty() || has_history;
            (channel.name.clone(), Seen { place: state.place, is_in_use })
        });
        seen.collect()
    }

    /// What makes room for another channel is not in use. Whatever is refused finds nothing but what is.
    fn check_room(&self, before: &BTreeMap<ChannelName, Seen>, refused: Option<&HubError>, now: Timestamp) {
        let after = self.seen(now);
        let gone: Vec<_> = before.iter().filter(|(name, _)| !after.contains_key(*name)).collect();
        assert!(gone.iter().all(|(_, seen)| !seen.is_in_use), "{gone:?}");
        if !self.hub.is_home() {
            return;
        }
        if let Some(HubError::ChannelLimit { channel, setting, .. }) = refused {
            let is_whole = *setting == "channels.count_max";
            let mut there = after.iter().filter(|(name, _)| is_whole || namespace(name) == namespace(channel));
            assert!(there.all(|(_, seen)| seen.is_in_use), "{refused:?} {after:?}");
        }
        // Without others whose time was over, it is the namespace with the most channels that pays, or the one that is full.
        let is_idle =
            |seen: &Seen| matches!(seen.place, Place::Idle(since) if now.saturating_since(since) < POSITION_TTL);
        let is_due = |seen: &Seen| match seen.place {
            Place::Nowhere => false,
            Place::Look(at) => at <= now,
            Place::Idle(_) => !is_idle(seen),
        };
        let has_due = before.values().any(is_due);
        if let ([(paid, _)], false) = (&*gone, has_due) {
            let count = |name: &ChannelName| before.keys().filter(|other| namespace(other) == namespace(name)).count();
            let idle = before.iter().filter(|(_, seen)| is_idle(seen));
            let most = idle.map(|(name, _)| count(name)).max();
            assert!(Some(count(paid)) == most || namespace(paid) == "few", "{paid} of {before:?}");
        }
    }

    fn check_counts(&self) {
        let (mut counts, mut history_bytes) = (HubCounts::default(), 0);
        let (mut by_namespace, mut memory_count) = (BTreeMap::new(), 0);
        for shard in self.hub.table.shards() {
            for channel in shard.values() {
                let state = lock(&channel.state);
                let readers = self.readers.iter().filter(|reader| Arc::ptr_eq(reader, channel)).count();
                assert_eq!(state.readers.subscriber_count(), readers);
                counts.channels += 1;
                counts.subscriptions += readers;
                *by_namespace.entry(namespace(&channel.name).to_owned()).or_insert(0) += 1;
                if !channel.options.durable {
                    memory_count += 1;
                    history_bytes += state.history.bytes();
                }
            }
        }
        assert_eq!((self.hub.counts(), self.hub.history_bytes()), (counts, history_bytes));
        assert_eq!(self.hub.roster.counted(), (by_namespace, memory_count));
        assert_eq!(counts.subscriptions, self.readers.len());
    }

    fn check_places(&self) {
        let mut places = Vec::new();
        for shard in self.hub.table.shards() {
            for channel in shard.values() {
                let state = lock(&channel.state);
                self.check_place(channel, &state);
                places.extend((state.place != Place::Nowhere).then(|| (channel.name.clone(), state.place)));
            }
        }
        places.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        assert_eq!(self.hub.roster.places(), places);
    }

    fn check_place(&self, channel: &Channel, state: &State) {
        let (is_durable, place) = (channel.options.durable, state.place);
        let is_empty = state.readers.is_empty() && state.history.is_empty();
        let is_before = |time| matches!(place, Place::Look(at) if at <= time);
        assert!(!state.swept);
        if let Place::Idle(_) = place {
            assert!(is_empty && !is_durable && !state.is_new, "{state:?}");
        }
        if !state.history.is_empty() && (is_durable || self.hub.is_home()) {
            assert!(is_before(state.history.expires_at()), "{state:?}");
        }
        if is_durable && state.readers.is_empty() && !state.history.is_empty() {
            let since = state.unread_since.map_or(Timestamp(0), |since| since.saturating_add(UNREAD_TIME));
            assert!(is_before(since), "{state:?}");
        }
        if is_empty && (state.is_new || !is_durable && self.hub.is_home()) {
            assert!(place == Place::SOON || matches!(place, Place::Idle(_)), "{state:?}");
        }
    }
}

fn name(index: usize) -> ChannelName {
    ChannelName::new(NAMES[index]).unwrap()
}

fn namespace(name: &ChannelName) -> &str {
    Namespaces::namespace_of(name)
}

proptest! {
    #[test]
    fn what_is_counted_is_there_and_only_what_is_not_in_use_makes_room(steps in steps()) {
        let (readers, given) = Default::default();
        let mut world = World { hub: hub(), now: Timestamp(1_000_000), readers, durable_top: 0, given };
        world.hub.sweep(world.now);
        steps.iter().for_each(|step| world.take(step));
    }
}
