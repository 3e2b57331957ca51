//! The hub as its users see it: one order for all readers, no gap between resume and live, bounds that say so.

mod cluster;
mod copies;
mod histories;
mod receipts;
mod reports;
mod room;
mod simulation;
mod takeover;
mod texts;
mod thin;

use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use tidings_hub::{
    Hub, HubConfig, HubError, LOOK_COUNT_MAX, LoopId, Member, NewPublication, Recovery, ResumeFrom, Subscribed,
    Version, Wishes,
};
use tidings_protocol::{ClientId, ClientInfo, NamespaceOptions, Namespaces, Publication, Tags};
use tidings_stream::{Frame, HistoryFilter, TailBounds};
use tidings_types::{ChannelName, Epoch, Format, Json, Offset, StreamPosition, Timestamp, Transport, Variant};

const NOW: Timestamp = Timestamp(1_000_000);
const JSON: Variant = Variant::websocket(Format::Json);
const SSE: Variant = Variant { transport: Transport::Sse, format: Format::Json };

fn hub(channel_count_max: usize) -> Hub {
    hub_with(channel_count_max, usize::MAX)
}

fn hub_with(channel_count_max: usize, tails_bytes_max: usize) -> Hub {
    hub_within(channel_count_max, tails_bytes_max, usize::MAX)
}

fn hub_within(channel_count_max: usize, tails_bytes_max: usize, history_bytes_max: usize) -> Hub {
    let (history_ttl, history_meta_ttl) = (Duration::from_secs(60), Duration::from_secs(600));
    let kept = NamespaceOptions { history_size: 100_000, history_ttl, history_meta_ttl, ..NamespaceOptions::closed() };
    let named = BTreeMap::from([
        ("kept".to_owned(), kept),
        ("durable".to_owned(), NamespaceOptions { durable: true, ..kept }),
        ("told".to_owned(), NamespaceOptions { event_texts: true, ..kept }),
        ("few".to_owned(), NamespaceOptions { channel_count_max: 2, ..kept }),
        ("few-durable".to_owned(), NamespaceOptions { channel_count_max: 2, durable: true, ..kept }),
        ("here".to_owned(), NamespaceOptions { presence: true, ..NamespaceOptions::closed() }),
    ]);
    let config = HubConfig {
        namespaces: Arc::new(Namespaces::new(NamespaceOptions::closed(), named)),
        channel_count_max,
        tail: TailBounds { frame_count_max: 1_000_000, bytes_max: usize::MAX },
        tails_bytes_max,
        history_bytes_max,
        durable_start: StreamPosition { offset: Offset(0), epoch: Epoch::from_random(1) },
        receipt_event_count_max: 3,
        receipt_bytes_max: 256 << 20,
    };
    Hub::new(config, 2)
}

fn channel(name: &str) -> ChannelName {
    ChannelName::new(name).unwrap()
}

fn publication(value: u64) -> Publication {
    Publication {
        offset: Offset(0),
        data: Json::of(&value),
        info: None,
        tags: Tags::default(),
        receipt: None,
        texts: None,
    }
}

fn publish(hub: &Hub, name: &str, value: u64) -> Option<u64> {
    let new = NewPublication { publication: publication(value), skip_history: false };
    hub.publish(&channel(name), new, NOW).unwrap().map(|position| position.offset.0)
}

fn loop_ids(hub: &Hub) -> Vec<LoopId> {
    hub.loops().map(|(loop_id, _)| loop_id).collect()
}

fn join(hub: &Hub, name: &str, resume: Option<ResumeFrom>) -> Subscribed {
    let member = Member::reader(loop_ids(hub)[0], ClientId::from_random(1), JSON);
    hub.subscribe(&channel(name), &member, resume.as_ref()).unwrap()
}

/// What a reader is written: it gets nothing behind a restart frame.
fn texts(frames: &[Frame]) -> Vec<String> {
    let frames = frames.iter().take_while(|frame| !frame.is_restart());
    frames.map(|frame| String::from_utf8_lossy(&frame.bytes(JSON, false)[2..]).into_owned()).collect()
}

#[test]
fn a_reader_is_written_what_comes_after_it_and_nothing_is_kept_when_all_have_it() {
    let hub = hub(10);
    publish(&hub, "news", 1);
    let reader = join(&hub, "news", None);
    publish(&hub, "news", 2);
    let mut frames = Vec::new();
    let (end, more) = reader.channel.fetch(reader.next, 1000, &mut frames).unwrap();
    assert_eq!(texts(&frames), [r#"{"push":{"channel":"news","pub":{"data":2}}}"#]);
    assert!(!more);
    assert_eq!(reader.channel.settle(loop_ids(&hub)[0], end), end, "the tail is empty");
}

/// Readers that read nothing, in channels of very different traffic, some of them many at a time on other threads.
#[test]
fn all_tails_together_hold_no_more_than_their_bound_and_the_oldest_frames_go_first() {
    const BYTES_MAX: usize = 200_000;
    const CHANNEL_COUNT: u64 = 40;
    let hub = hub_with(100, BYTES_MAX);
    let readers: Vec<_> = (0..CHANNEL_COUNT).map(|number| join(&hub, &format!("news-{number}"), None)).collect();
    let quiet = join(&hub, "quiet", None);
    publish(&hub, "quiet", 1);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let hub = &hub;
            scope.spawn(move || {
                for number in 0..5_000_u64 {
                    publish(hub, &format!("news-{}", (number * number + thread) % CHANNEL_COUNT), number);
                    assert!(hub.tail_bytes() <= BYTES_MAX + 4 * 1000, "one frame for each thread");
                }
            });
        }
    });
    assert!(hub.tail_bytes() > BYTES_MAX / 4, "no more is dropped than needed: {}", hub.tail_bytes());
    let lagged = |reader: &Subscribed| reader.channel.fetch(reader.next, 1, &mut Vec::new()).is_err();
    assert!(readers.iter().any(lagged));
    let newest = |reader: &Subscribed| {
        let mut frames = Vec::new();
        let held = (0..10_000).find(|next| reader.channel.fetch(*next, usize::MAX, &mut frames).is_ok());
        held.map(|_| frames.len())
    };
    assert!(readers.iter().any(|reader| newest(reader) > Some(1)), "and the newest are there");
    let data = Json::of(&"x".repeat(BYTES_MAX));
    let new = NewPublication { publication: Publication { data, ..publication(1) }, skip_history: false };
    hub.publish(&channel("news-0"), new, NOW).unwrap();
    assert!(lagged(&quiet), "the oldest is gone, though its channel has only one: the others are not enough");
    drop(readers);
    for number in 0..CHANNEL_COUNT {
        let name = format!("news-{number}");
        let reader = join(&hub, &name, None);
        for _ in 0..2 {
            hub.unsubscribe(&reader.channel, loop_ids(&hub)[0], ClientId::from_random(1), None, JSON);
        }
    }
    hub.unsubscribe(&quiet.channel, loop_ids(&hub)[0], ClientId::from_random(1), None, JSON);
    assert_eq!(hub.tail_bytes(), 0, "without readers nothing is held");
}

#[test]
fn a_loop_is_woken_once_however_much_is_published() {
    let hub = hub(10);
    let reader = join(&hub, "news", None);
    let (loop_id, mailbox) = hub.loops().next().unwrap();
    let mut dirty = Vec::new();
    for value in 0..5 {
        publish(&hub, "news", value);
    }
    mailbox.take(&mut dirty);
    assert_eq!(dirty.len(), 1);
    reader.channel.clear_dirty(loop_id);
    publish(&hub, "news", 5);
    mailbox.take(&mut dirty);
    assert_eq!(dirty.len(), 2, "after the loop has looked, it is woken again");
}

#[test]
fn a_loop_is_busy_until_it_has_written_what_it_has_taken_and_what_came_meanwhile() {
    let hub = hub(10);
    let reader = join(&hub, "news", None);
    let (loop_id, mailbox) = hub.loops().next().unwrap();
    let is_ready =
        |future: Pin<&mut dyn Future<Output = ()>>| future.poll(&mut Context::from_waker(Waker::noop())).is_ready();
    let rests = || is_ready(pin!(hub.fan_out().rest()));
    mailbox.rest(); // A turn that was for something else.
    assert!(rests());

    publish(&hub, "news", 1);
    mailbox.take(&mut Vec::new());
    reader.channel.clear_dirty(loop_id);
    publish(&hub, "news", 2);
    mailbox.rest();
    assert!(!rests(), "the second publication was not taken yet");

    mailbox.take(&mut Vec::new());
    let mut waiting = pin!(hub.fan_out().rest());
    assert!(!is_ready(waiting.as_mut()));
    mailbox.rest();
    assert!(is_ready(waiting) && rests());
}

#[test]
fn presence_lists_who_is_there_until_they_leave() {
    let hub = hub(10);
    let loop_id = loop_ids(&hub)[1];
    let info = |client, user: &str| ClientInfo {
        user: user.into(),
        client: ClientId::from_random(client),
        conn_info: None,
        chan_info: None,
    };
    let join = |client, user| {
        let member =
            Member { presence: Some(info(client, user)), ..Member::reader(loop_id, ClientId::from_random(1), JSON) };
        hub.subscribe(&channel("here:1"), &member, None).unwrap()
    };
    let first = join(1, "ann");
    join(2, "ann");
    join(3, "bob");
    assert_eq!(hub.presence_stats(&channel("here:1")), (3, 2));
    hub.unsubscribe(&first.channel, loop_id, ClientId::from_random(1), None, JSON);
    let mut users: Vec<String> = hub.presence(&channel("here:1")).iter().map(|info| info.user.to_string()).collect();
    users.sort();
    assert_eq!(users, ["ann", "bob"]);
}

/// One namespace leaves the others their room.
#[test]
fn a_namespace_has_its_own_limit() {
    let hub = hub(10);
    publish(&hub, "few:1", 1);
    join(&hub, "few:2", None);
    let setting = "the namespace's channel_count_max";
    let refused = |name| HubError::ChannelLimit { channel: channel(name), limit: 2, setting };
    let member = Member::reader(loop_ids(&hub)[0], ClientId::from_random(1), JSON);
    assert_eq!(hub.subscribe(&channel("few:3"), &member, None).unwrap_err(), refused("few:3"));
    assert_eq!(hub.is_first(&channel("few:3")), Err(refused("few:3")));
    assert_eq!((hub.is_first(&channel("few:1")), hub.is_first(&channel("few:2"))), (Ok(false), Ok(true)));
    publish(&hub, "kept:1", 1);
    // What the journal has accepted is never refused, but counts.
    for name in ["few-durable:1", "few-durable:2", "few-durable:3"] {
        hub.publish_durable(&channel(name), Offset(1), publication(1), NOW).unwrap();
    }
    assert_eq!(hub.is_first(&channel("few-durable:4")), Err(refused("few-durable:4")));
    assert_eq!(hub.is_first(&channel("few-durable:3")), Ok(false));
    hub.sweep(NOW.saturating_add(Duration::from_secs(61)));
    assert!(hub.is_first(&channel("few-durable:4")).is_err(), "a durable channel keeps its position");
    join(&hub, "few:3", None);
}

/// A frame has the variants of those that read the channel when it was made, and no other.
#[test]
fn a_publication_is_encoded_once_for_each_variant_that_is_read() {
    let hub = hub(10);
    let loop_id = loop_ids(&hub)[0];
    let enter = |variant| {
        let member = Member::reader(loop_id, ClientId::from_random(1), variant);
        hub.subscribe(&channel("here:1"), &member, None).unwrap()
    };
    let leave = |reader: &Subscribed, variant| {
        hub.unsubscribe(&reader.channel, loop_id, ClientId::from_random(1), None, variant);
    };
    let first = enter(JSON);
    publish(&hub, "here:1", 1);
    let second = enter(SSE);
    let third = enter(SSE);
    publish(&hub, "here:1", 2);
    leave(&second, SSE);
    publish(&hub, "here:1", 3);
    leave(&first, JSON);
    publish(&hub, "here:1", 4);
    enter(JSON);
    leave(&third, SSE);
    publish(&hub, "here:1", 5);

    let mut frames = Vec::new();
    first.channel.fetch(first.next, usize::MAX, &mut frames).unwrap();
    let has: Vec<_> =
        frames.iter().map(|frame| [JSON, SSE].map(|variant| !frame.bytes(variant, false).is_empty())).collect();
    assert_eq!(has, [[true, false], [true, true], [true, true], [false, true], [true, false]]);
    assert_eq!(third.next, 1, "a reader begins behind the frames that lack its variant");
    assert_eq!(frames[1].bytes(JSON, false)[0], 0x81, "text");
    assert!(frames[1].bytes(SSE, false).starts_with(b"data: {"));
}

/// Joins and leaves are encoded only in the variants of those who want to know them, and wake their loops.
#[test]
fn who_joins_and_leaves_is_told_in_the_variants_of_those_who_asked() {
    let hub = hub(10);
    let (loop_id, mailbox) = hub.loops().next().unwrap();
    let info = |number| ClientInfo {
        user: "ann".into(),
        client: ClientId::from_random(number),
        conn_info: None,
        chan_info: None,
    };
    let enter = |number, variant, joins| {
        let client = ClientId::from_random(number);
        let (announced, wishes) = (Some(info(number)), Wishes { joins, ..Wishes::default() });
        let member = Member { announced, wishes, ..Member::reader(loop_id, client, variant) };
        let reader = hub.subscribe(&channel("news"), &member, None).unwrap();
        if number < 4 {
            hub.announce_join(&reader.channel, client);
        }
        reader
    };
    let leave = |reader: &Subscribed, number, variant| {
        hub.unsubscribe(&reader.channel, loop_id, ClientId::from_random(number), None, variant);
    };
    let first = enter(1, JSON, false);
    mailbox.take(&mut Vec::new());
    let second = enter(2, SSE, true);
    let mut dirty = Vec::new();
    mailbox.take(&mut dirty);
    assert_eq!((dirty.len(), second.next), (1, 0), "the first join was told to nobody");
    enter(3, JSON, false);
    leave(&first, 1, JSON);
    leave(&enter(4, JSON, false), 4, JSON); // Nobody was told that it has joined.
    leave(&second, 2, SSE);
    let mut frames = Vec::new();
    second.channel.fetch(second.next, usize::MAX, &mut frames).unwrap();
    let has: Vec<_> =
        frames.iter().map(|frame| [JSON, SSE].map(|variant| !frame.bytes(variant, false).is_empty())).collect();
    assert_eq!(has, [[false, true]; 3], "two joins and a leave");
    assert!(frames.iter().all(|frame| Wishes { joins: true, ..Wishes::default() }.wants(frame)));
    assert!(!frames.iter().any(|frame| Wishes::default().wants(frame)));
}

#[test]
fn a_reader_that_must_resume_and_cannot_leaves_no_trace() {
    let hub = hub(10);
    let from = ResumeFrom { offset: Offset(7), epoch: None, limit: 10.into(), is_required: true };
    let member = Member::reader(loop_ids(&hub)[0], ClientId::from_random(1), JSON);
    let refused = hub.subscribe(&channel("kept:1"), &member, Some(&from));
    assert!(matches!(refused, Err(HubError::Gap(gap)) if gap.top.offset == Offset(0)));
    assert_eq!(hub.counts().channels, 0);
    publish(&hub, "kept:1", 1);
    assert!(hub.subscribe(&channel("kept:1"), &member, Some(&from)).is_err());
    assert_eq!((hub.counts().channels, hub.counts().subscriptions), (1, 0));
}

#[test]
fn a_channel_that_was_only_read_goes_with_its_last_reader() {
    let hub = hub(1);
    let loop_id = loop_ids(&hub)[0];
    let leave = |reader: &Subscribed| hub.unsubscribe(&reader.channel, loop_id, ClientId::from_random(1), None, JSON);
    for index in 0..100 {
        let name = format!("{}:{index}", ["kept", "durable", "here"][index % 3]);
        let (first, second) = (join(&hub, &name, None), join(&hub, &name, None));
        leave(&first);
        assert_eq!(hub.counts().channels, 1, "one still reads it");
        leave(&second);
        assert_eq!(hub.counts().channels, 0);
        hub.history(&channel(&name), HistoryFilter::default()).unwrap();
        assert_eq!(hub.counts().channels, 0, "reading the history of an absent one creates nothing");
    }
    // Whoever comes back to it has missed nothing.
    let reader = join(&hub, "kept:1", None);
    let from = ResumeFrom {
        offset: Offset(0),
        epoch: Some(reader.top.epoch.as_str().to_owned()),
        limit: 10.into(),
        is_required: false,
    };
    leave(&reader);
    let resumed = join(&hub, "kept:1", Some(from.clone()));
    assert!(matches!(&resumed.recovery, Some(Recovery::Recovered(missed)) if missed.is_empty()));
    publish(&hub, "kept:1", 1);
    leave(&resumed);
    assert_eq!(hub.counts().channels, 1, "what was published is kept");
    let resumed = join(&hub, "kept:1", Some(from));
    assert!(matches!(&resumed.recovery, Some(Recovery::Recovered(missed)) if missed.len() == 1));
}

#[test]
fn a_published_channel_that_comes_back_after_it_was_forgotten_has_another_epoch() {
    let hub = hub(10);
    publish(&hub, "kept:1", 1);
    let (_, before) = hub.history(&channel("kept:1"), HistoryFilter::default()).unwrap();
    let later = |days: u64| NOW.saturating_add(Duration::from_secs(days * 24 * 3600));
    hub.sweep(later(1));
    hub.sweep(later(32));
    assert_eq!(hub.counts().channels, 0);
    publish(&hub, "kept:1", 2);
    let (_, after) = hub.history(&channel("kept:1"), HistoryFilter::default()).unwrap();
    assert_eq!((before.offset, after.offset), (Offset(1), Offset(1)));
    assert_ne!(before.epoch, after.epoch);
}

#[test]
fn who_is_present_is_told_only_within_the_bytes_of_an_answer() {
    let hub = hub(10);
    let user = "u".repeat(1000);
    for client in 0..20 {
        let info = ClientInfo {
            user: format!("{user}{}", client % 5),
            client: ClientId::from_random(client),
            conn_info: None,
            chan_info: None,
        };
        let member =
            Member { presence: Some(info), ..Member::reader(loop_ids(&hub)[0], ClientId::from_random(1), JSON) };
        hub.subscribe(&channel("here:1"), &member, None).unwrap();
    }
    assert_eq!(hub.presence_stats(&channel("here:1")), (20, 5));
    assert_eq!(hub.presence_within(&channel("here:1"), 25_000).unwrap().len(), 20);
    assert_eq!(hub.presence_within(&channel("here:1"), 19_000), None);
    let reader = join(&hub, "here:1", None);
    for client in 0..20 {
        hub.unsubscribe(&reader.channel, loop_ids(&hub)[0], ClientId::from_random(client), None, JSON);
    }
    assert_eq!(hub.presence_stats(&channel("here:1")), (0, 0));
    assert_eq!(hub.presence_within(&channel("here:1"), 0), Some(vec![]));
}

#[test]
fn an_idle_channel_keeps_its_epoch_so_that_a_reader_at_its_top_resumes() {
    let hub = hub(10);
    publish(&hub, "kept:1", 1);
    let (_, before) = hub.history(&channel("kept:1"), HistoryFilter::default()).unwrap();
    hub.sweep(NOW.saturating_add(Duration::from_secs(61)));
    let (publications, after) = hub.history(&channel("kept:1"), HistoryFilter::default()).unwrap();
    assert!(publications.is_empty());
    assert_eq!(before, after);
}

#[test]
fn a_publication_that_is_not_newer_is_swallowed() {
    let hub = hub(10);
    let publish = |name: &str, number, epoch: &str, skip_history| {
        let new = NewPublication { publication: publication(number), skip_history };
        let version = Version { number, epoch: epoch.into() };
        let position = hub.publish_newer(&channel(name), new, Some(&version), Timestamp(0)).unwrap();
        position.map(|position| position.offset.0)
    };
    for (number, epoch, skipped, expected) in [
        (5, "", false, Some(1)),
        (5, "", false, Some(1)),
        (9, "", true, None), // What is not kept has no version.
        (6, "", false, Some(2)),
        (6, "b", false, Some(3)),
        (7, "", false, Some(4)), // Of the versions only the newest is known.
        (6, "", false, Some(4)),
    ] {
        assert_eq!(publish("kept:1", number, epoch, skipped), expected, "{number} {epoch}");
    }
    assert_eq!((publish("kept:2", 1, "", false), publish("plain", 1, "", false)), (Some(1), None));
}

#[test]
fn a_removed_history_is_a_gap_for_all_but_those_at_the_top() {
    let hub = hub(10);
    (1..=3).for_each(|value| _ = publish(&hub, "kept:1", value));
    hub.publish_durable(&channel("durable:1"), Offset(1), publication(1), NOW).unwrap();
    assert_eq!(hub.history_bytes(), 3 * (publication(1).weight() + size_of::<Publication>()));
    hub.remove_history(&channel("kept:1"), None);
    assert_eq!(hub.history_bytes(), 0, "durable channels are not among them");
    hub.remove_history(&channel("kept:2"), None);
    let resume = |offset| {
        let from = ResumeFrom { offset: Offset(offset), epoch: None, limit: 10.into(), is_required: false };
        matches!(join(&hub, "kept:1", Some(from)).recovery, Some(Recovery::Recovered(missed)) if missed.is_empty())
    };
    assert_eq!([resume(2), resume(3)], [false, true]);
    assert_eq!(publish(&hub, "kept:1", 4), Some(4));
}

#[test]
fn a_durable_channel_comes_back_where_it_was_and_ignores_what_it_knows() {
    let at = |offset| Publication { offset: Offset(offset), ..publication(offset) };
    let hub = hub(10).with_histories(histories::Journal::with([6, 7].map(at)), usize::MAX);
    let name = channel("durable:1");
    hub.restore(&name, Offset(7), NOW).unwrap();
    histories::wait_for(hub.load(&name, tidings_hub::Wanted::Any));
    hub.publish_durable(&name, Offset(7), at(7), NOW).unwrap();
    hub.publish_durable(&name, Offset(8), at(8), NOW).unwrap();
    let (publications, top) = hub.history(&name, HistoryFilter::default()).unwrap();
    assert_eq!(publications.iter().map(|publication| publication.offset.0).collect::<Vec<_>>(), [6, 7, 8]);
    assert_eq!((top.offset, top.epoch), (Offset(8), Epoch::from_random(1)));
}

#[test]
fn durable_channels_do_not_count_and_exist_unpublished_only_while_read() {
    let hub = hub(1);
    publish(&hub, "kept:1", 1);
    let loop_id = loop_ids(&hub)[0];
    for index in 0..5 {
        let name = format!("durable:{index}");
        let reader = join(&hub, &name, None);
        hub.unsubscribe(&reader.channel, loop_id, ClientId::from_random(1), None, JSON);
        hub.history(&channel(&format!("durable:read-{index}")), HistoryFilter::default()).unwrap();
    }
    assert_eq!(hub.counts().channels, 1, "reading the history of an absent one creates nothing");
    hub.publish_durable(&channel("durable:0"), Offset(1), publication(1), NOW).unwrap();
    hub.sweep(NOW);
    assert_eq!(hub.counts().channels, 2, "the memory channel and the published one");
    let from = ResumeFrom { offset: Offset(0), epoch: None, limit: 10.into(), is_required: false };
    let Some(Recovery::Recovered(missed)) = join(&hub, "durable:0", Some(from)).recovery else { panic!("it is kept") };
    assert_eq!(missed.len(), 1);
}

#[test]
fn a_durable_channel_that_was_given_back_begins_behind_all_its_offsets() {
    let hub = hub(10);
    let (name, loop_id, client) = (channel("durable:1"), loop_ids(&hub)[0], ClientId::from_random(1));
    let stayed = join(&hub, "durable:1", None);
    hub.publish_durable(&name, Offset(1), publication(1), NOW).unwrap();
    hub.publish_durable(&name, Offset(2), publication(2), NOW).unwrap();
    let resume = |offset| {
        let from = ResumeFrom { offset: Offset(offset), epoch: None, limit: 10.into(), is_required: false };
        let reader = join(&hub, "durable:1", Some(from));
        hub.unsubscribe(&reader.channel, loop_id, client, None, JSON);
        (reader.top.offset.0, reader.recovery.unwrap())
    };
    let later = NOW.saturating_add(Duration::from_secs(24 * 3600));
    hub.sweep(later);
    assert!(matches!(resume(2), (2, Recovery::Recovered(missed)) if missed.is_empty()));
    hub.on_channel_forgotten(&name, Offset(100));
    assert!(matches!(resume(2), (2, Recovery::Recovered(_))), "who reads it keeps it");
    assert!(hub.is_first(&name).unwrap(), "a client's next publication makes it anew");

    hub.publish_durable(&name, Offset(101), publication(3), later).unwrap();
    let mut frames = Vec::new();
    let _ = stayed.channel.fetch(stayed.next, 1 << 16, &mut frames).unwrap();
    assert_eq!(frames.len(), 3, "who stayed misses nothing");
    for missed_something in [0, 1, 2, 99] {
        assert!(matches!(resume(missed_something), (101, Recovery::Gap(_))));
    }
    assert!(matches!(resume(100), (101, Recovery::Recovered(missed)) if missed.len() == 1));

    hub.sweep(later.saturating_add(Duration::from_secs(24 * 3600)));
    hub.on_channel_forgotten(&name, Offset(200));
    hub.unsubscribe(&stayed.channel, loop_id, client, None, JSON);
    assert_eq!(hub.counts().channels, 0, "nobody reads it and the store has forgotten it");
    assert!(matches!(resume(101), (200, Recovery::Gap(_))));
    assert_eq!(hub.history(&name, HistoryFilter::default()).unwrap().1.offset, Offset(200));
    hub.restore(&name, Offset(0), later).unwrap(); // It waits for an event that is not yet due.
    assert!(matches!(resume(200), (200, Recovery::Recovered(_))));
}

/// The store may have channels of a namespace that was durable once.
#[test]
fn what_the_store_says_of_a_channel_that_is_not_durable_costs_its_readers_nothing() {
    let hub = hub(10);
    let name = channel("kept:1");
    for value in 1..=3 {
        publish(&hub, "kept:1", value);
    }
    hub.on_channel_forgotten(&name, Offset(100));
    let passing = join(&hub, "kept:1", None);
    hub.unsubscribe(&passing.channel, loop_ids(&hub)[0], ClientId::from_random(1), None, JSON);
    hub.sweep(NOW);
    assert_eq!(hub.history(&name, HistoryFilter::default()).unwrap().0.len(), 3, "it does not go with its last reader");
    let reader = join(&hub, "kept:1", None);
    hub.publish_durable(&name, Offset(2), publication(4), NOW).unwrap();
    let mut frames = Vec::new();
    let _ = reader.channel.fetch(reader.next, 1 << 16, &mut frames).unwrap();
    assert_eq!(frames.len(), 1, "an offset of the store's would be an old one here");
    hub.unsubscribe(&reader.channel, loop_ids(&hub)[0], ClientId::from_random(1), None, JSON);
    let (kept, top) = hub.history(&name, HistoryFilter::default()).unwrap();
    assert_eq!((kept.len(), top.offset), (4, Offset(4)), "it is not forgotten");
}

/// Writers on several threads, and a reader that is cut off again and again: resumed and live parts together are every
/// publication, in order, once.
#[test]
fn no_gap_and_no_repeat_between_resume_and_live_while_writers_write() {
    const WRITERS: u64 = 3;
    const EACH: u64 = 3000;
    let hub = Arc::new(hub(10));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let hub = hub.clone();
            std::thread::spawn(move || {
                (0..EACH).for_each(|n| assert!(publish(&hub, "kept:1", writer * EACH + n).is_some()))
            })
        })
        .collect();

    let mut got = Vec::new();
    while got.len() < (WRITERS * EACH) as usize {
        let from =
            ResumeFrom { offset: Offset(got.len() as u64), epoch: None, limit: usize::MAX.into(), is_required: false };
        let reader = join(&hub, "kept:1", Some(from));
        let Some(Recovery::Recovered(missed)) = reader.recovery else { panic!("the history is long enough") };
        got.extend(missed.iter().map(|publication| publication.offset.0));
        let mut frames = Vec::new();
        let _ = reader.channel.fetch(reader.next, 4096, &mut frames).unwrap();
        for text in texts(&frames) {
            let message: serde_json::Value = serde_json::from_str(&text).unwrap();
            got.push(message["push"]["pub"]["offset"].as_u64().unwrap());
        }
        hub.unsubscribe(&reader.channel, loop_ids(&hub)[0], ClientId::from_random(9), None, JSON);
    }
    for writer in writers {
        writer.join().unwrap();
    }
    assert_eq!(got, (1..=WRITERS * EACH).collect::<Vec<_>>());
}
