//! What a reader gets that gets less than everything, against a model that looks at all that was published.
//!
//! The reader reads a part of what it is behind, now and then, and the tail overtakes it. Whatever comes between, what it has
//! got in the end is what the model says, and the gaps of which it was told are what it has not got.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use tidings_hub::{Behind, Hub, HubConfig, LoopId, Member, NewPublication, Subscribed, Wishes};
use tidings_protocol::{
    ClientId, NamespaceOptions, Namespaces, Publication, PublicationKey, SlowReaders, TagsFilter, Thinning,
    UnreadFilter,
};
use tidings_stream::TailBounds;
use tidings_types::{Epoch, Json, Offset, StreamPosition, Tags};

use super::{JSON, NOW, channel, loop_ids};

const FRAME_COUNT_MAX: usize = 8;

#[derive(Debug, Clone)]
enum Action {
    /// About the thing of this number, if any; it is of a kind that the reader may not want.
    Publish { thing: Option<u8>, is_wanted: bool, is_kept: bool },
    /// What follows does not continue what came before.
    Restart,
    /// Another one joins, of which the reader may want to hear.
    Join,
    /// The reader takes at most so many frames of an answer of at most so many bytes.
    Read { bytes_max: usize, count: usize },
    /// The edge is told that the tail has overtaken the reader.
    MoveOn,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let publish = (prop::option::weighted(0.9, 0u8..3), prop::bool::weighted(0.7), prop::bool::weighted(0.9));
    let action = prop_oneof![
        12 => publish.prop_map(|(thing, is_wanted, is_kept)| Action::Publish { thing, is_wanted, is_kept }),
        1 => Just(Action::Restart),
        2 => Just(Action::Join),
        4 => (1usize..600, 0usize..6).prop_map(|(bytes_max, count)| Action::Read { bytes_max, count }),
        1 => Just(Action::MoveOn),
    ];
    prop::collection::vec(action, 1..80)
}

/// What was pushed, as the model keeps it.
#[derive(Debug, Clone)]
enum Pushed {
    Publication { number: u64, offset: u64, thing: Option<u8>, is_wanted: bool },
    Join,
    Restart,
}

impl Pushed {
    fn offset(&self) -> Option<u64> {
        match self {
            Self::Publication { offset, .. } => Some(*offset),
            Self::Join | Self::Restart => None,
        }
    }
}

struct Reader {
    made: Subscribed,
    wishes: Wishes,
    next: u64,
    offset: Offset,
    missed_count: u64,
}

fn hub(key: Option<&str>) -> Hub {
    let kept = NamespaceOptions {
        history_size: 1000,
        history_ttl: std::time::Duration::from_secs(60),
        ..NamespaceOptions::closed()
    };
    let named = BTreeMap::from([("map".to_owned(), kept)]);
    let keys = key.map(|key| ("map".to_owned(), PublicationKey::new(key))).into_iter().collect();
    let config = HubConfig {
        namespaces: Arc::new(Namespaces::new(NamespaceOptions::closed(), named).with_keys(keys)),
        channel_count_max: 10,
        tail: TailBounds { frame_count_max: FRAME_COUNT_MAX, bytes_max: usize::MAX },
        tails_bytes_max: usize::MAX,
        history_bytes_max: usize::MAX,
        durable_start: StreamPosition { offset: Offset(0), epoch: Epoch::from_random(1) },
        receipt_event_count_max: 3,
        receipt_bytes_max: 256 << 20,
    };
    Hub::new(config, 1)
}

fn publish(hub: &Hub, number: u64, thing: Option<u8>, is_wanted: bool, is_kept: bool) -> u64 {
    let kind = if is_wanted { "wanted" } else { "other" };
    let tags = [("kind".to_owned(), kind.to_owned())].into_iter();
    let tags: BTreeMap<_, _> = tags.chain(thing.map(|thing| ("thing".to_owned(), thing.to_string()))).collect();
    let data = match thing {
        Some(thing) => Json::of(&serde_json::json!({"number": number, "thing": thing})),
        None => Json::of(&serde_json::json!({ "number": number })),
    };
    let (tags, offset) = (Tags::from(tags), Offset(0));
    let publication = Publication { offset, data, info: None, tags, receipt: None, texts: None };
    let new = NewPublication { publication, skip_history: !is_kept };
    hub.publish(&channel("map:1"), new, NOW).unwrap().map_or(0, |position| position.offset.0)
}

impl Reader {
    fn join(hub: &Hub, loop_id: LoopId, wishes: Wishes) -> Self {
        let member = Member { wishes: wishes.clone(), ..Member::reader(loop_id, ClientId::from_random(1), JSON) };
        let made = hub.subscribe(&channel("map:1"), &member, None).unwrap();
        let (next, offset) = (made.next, made.top.offset);
        Self { made, wishes, next, offset, missed_count: 0 }
    }

    fn behind(&self) -> Behind<'_> {
        let Self { next, offset, missed_count, wishes, .. } = self;
        Behind { next: *next, offset: *offset, missed_count: *missed_count, form: JSON.into(), wishes }
    }
}

/// What the model says the reader gets of the frames from `next` on, up to a restart: their indices.
fn expected(pushed: &[Pushed], reader: &Reader, policy: SlowReaders, has_key: bool) -> Vec<u64> {
    let base = (pushed.len() as u64).saturating_sub(FRAME_COUNT_MAX as u64).max(reader.next);
    let is_overrun = base > reader.next || reader.missed_count > 0;
    let held = (base..).zip(&pushed[base as usize..]);
    let held: Vec<_> = held.take_while(|(_, one)| !matches!(one, Pushed::Restart)).collect();
    let is_for = |one: &Pushed| match one {
        Pushed::Publication { is_wanted, .. } => *is_wanted || reader.wishes.filter.is_none(),
        Pushed::Join => reader.wishes.joins,
        Pushed::Restart => false,
    };
    let is_replaced = |at: u64, one: &Pushed| {
        let Pushed::Publication { thing, .. } = one else { return false };
        held.iter().any(|(other_at, other)| {
            let Pushed::Publication { thing: other_thing, .. } = other else { return false };
            let is_about_same = match policy {
                SlowReaders::Latest if has_key => thing.is_some() && thing == other_thing,
                SlowReaders::Latest => true,
                SlowReaders::Skip => is_overrun,
                SlowReaders::Disconnect => false,
            };
            *other_at > at && is_for(other) && is_about_same
        })
    };
    held.iter().filter(|(at, one)| is_for(one) && !is_replaced(*at, one)).map(|(at, _)| *at).collect()
}

proptest! {
    #[test]
    fn a_reader_gets_what_is_newest_and_is_told_of_the_rest(
        actions in actions(),
        key in prop::option::of(prop::sample::select(vec!["thing", "/thing"])),
        is_skip in any::<bool>(),
        is_filtered in any::<bool>(),
        joins in any::<bool>(),
    ) {
        let (hub, slow_readers) = (hub(key), if is_skip { SlowReaders::Skip } else { SlowReaders::Latest });
        let (loop_id, name) = (loop_ids(&hub)[0], channel("map:1"));
        let wanted = Json::of(&serde_json::json!({"key": "kind", "cmp": "eq", "val": "wanted"}));
        let filter = TagsFilter::read(&UnreadFilter::Json(wanted)).unwrap();
        let filter = is_filtered.then(|| Arc::new(filter));
        let wishes = Wishes { filter, joins, thinning: Thinning { slow_readers, per_second_max: 0 } };
        let mut reader = Reader::join(&hub, loop_id, wishes);
        let _other = Reader::join(&hub, loop_id, Wishes::default()); // Keeps what was published in the tail.
        let (mut pushed, mut got) = (Vec::new(), BTreeSet::new());
        // What the reader knows that it has not got: offsets.
        let mut told = BTreeSet::new();
        let mut ended = false;
        for (number, action) in (1..).zip(actions) {
            match action {
                Action::Publish { thing, is_wanted, is_kept } => {
                    let offset = publish(&hub, number, thing, is_wanted, is_kept);
                    pushed.push(Pushed::Publication { number, offset, thing, is_wanted });
                }
                Action::Restart => {
                    hub.set_home(false);
                    publish(&hub, number, None, true, true); // Not for those who are here.
                    hub.set_home(true);
                    pushed.push(Pushed::Restart);
                }
                Action::Join => {
                    let client = ClientId::from_random(u128::from(number) + 10);
                    let info = tidings_protocol::ClientInfo { user: "ann".into(), client, conn_info: None, chan_info: None };
                    let member = Member { announced: Some(info), ..Member::reader(loop_id, client, JSON) };
                    let joined = hub.subscribe(&name, &member, None).unwrap();
                    hub.announce_join(&joined.channel, client);
                    if joins {
                        pushed.push(Pushed::Join); // Else nobody wants to know it, and there is no frame.
                    }
                }
                Action::MoveOn => {
                    let base = (pushed.len() as u64).saturating_sub(FRAME_COUNT_MAX as u64);
                    if base > reader.next && reader.next >= reader.made.channel.restart_end() {
                        reader.missed_count += base - reader.next;
                        reader.next = base;
                    }
                }
                Action::Read { bytes_max, count } => {
                    let end = pushed.len() as u64;
                    let thinned = match reader.made.channel.thin(&reader.behind(), end, bytes_max) {
                        Ok(thinned) => thinned,
                        Err(_) => {
                            let base = end.saturating_sub(FRAME_COUNT_MAX as u64);
                            let passed = &pushed[reader.next as usize..];
                            prop_assert!(base > reader.next && passed.iter().any(|one| matches!(one, Pushed::Restart)));
                            break; // It is disconnected, and comes back with its position.
                        }
                    };
                    let expected = expected(&pushed, &reader, slow_readers, key.is_some());
                    let chosen = &thinned.indices;
                    prop_assert!(expected.starts_with(chosen) && (!chosen.is_empty() || expected.is_empty()));
                    let is_whole = chosen.len() == expected.len();
                    let at_restart = pushed.get(thinned.end as usize).is_some_and(|one| matches!(one, Pushed::Restart));
                    prop_assert_eq!(thinned.is_at_restart, is_whole && at_restart);
                    prop_assert!(is_whole || thinned.end == chosen.last().unwrap() + 1);
                    for (place, (index, frame)) in chosen.iter().zip(&thinned.frames).enumerate().take(count) {
                        (reader.next, reader.missed_count) = (index + 1, thinned.untold_counts[place]);
                        let text = String::from_utf8_lossy(&frame.bytes(JSON, true)[2..]).into_owned();
                        let text = &text[text.find('{').unwrap()..];
                        let push: serde_json::Value = serde_json::from_str(text).unwrap();
                        let Pushed::Publication { number, offset, .. } = &pushed[*index as usize] else {
                            prop_assert!(push["push"]["join"].is_object());
                            continue;
                        };
                        let publication = &push["push"]["pub"];
                        prop_assert_eq!(publication["data"]["number"].as_u64(), Some(*number));
                        prop_assert!(got.insert(*number), "each once");
                        let tag = |name: &str| Some(publication["tags"][name].as_str()?.parse::<u64>().unwrap());
                        if tag("skipped").is_some() {
                            // What of it had an offset is seen by the jump of the next one.
                            told.extend(pushed[..*index as usize].iter().filter_map(Pushed::offset));
                        }
                        if let Some((from, to)) = tag("skipped_from").zip(tag("skipped_to")) {
                            prop_assert!(from <= to && to + 1 == *offset && from == reader.offset.0 + 1);
                            told.extend(from..=to);
                        }
                        reader.offset = reader.offset.max(Offset(*offset));
                    }
                    if count >= chosen.len() {
                        (reader.next, reader.missed_count) = (thinned.end, thinned.untold_count);
                        ended = thinned.is_at_restart;
                    }
                }
            }
            if ended {
                break;
            }
        }
        // Whatever it wanted and passed over for good, it was told of.
        let had = reader.offset.0;
        for one in &pushed[..reader.next as usize] {
            let Pushed::Publication { number, offset, is_wanted, .. } = one else { continue };
            let is_for = *is_wanted || reader.wishes.filter.is_none();
            let is_known = got.contains(number) || told.contains(offset) || *offset == 0 || *offset > had;
            prop_assert!(!is_for || is_known, "{one:?} was left out without a word");
        }
    }
}
