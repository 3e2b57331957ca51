//! The hub as its users see it: one order for all readers, no gap between resume and live, bounds that say so.

mod receipts;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidings_hub::{Hub, HubConfig, HubError, LoopId, Member, NewPublication, Recovery, ResumeFrom, Subscribed};
use tidings_protocol::{ClientId, ClientInfo, NamespaceOptions, Namespaces, Publication, Tags};
use tidings_stream::{Frame, HistoryFilter, TailBounds};
use tidings_types::{ChannelName, Epoch, Json, Offset, Timestamp};

const NOW: Timestamp = Timestamp(1_000_000);

fn hub(channel_count_max: usize) -> Hub {
    let kept =
        NamespaceOptions { history_size: 100_000, history_ttl: Duration::from_secs(60), ..NamespaceOptions::closed() };
    let named = BTreeMap::from([
        ("kept".to_owned(), kept),
        ("durable".to_owned(), NamespaceOptions { durable: true, ..kept }),
        ("here".to_owned(), NamespaceOptions { presence: true, ..NamespaceOptions::closed() }),
    ]);
    let config = HubConfig {
        namespaces: Arc::new(Namespaces::new(NamespaceOptions::closed(), named)),
        channel_count_max,
        tail: TailBounds { frame_count_max: 1_000_000, bytes_max: usize::MAX },
        durable_epoch: Epoch::from_random(1),
        receipt_event_count_max: 3,
    };
    Hub::new(config, 2)
}

fn channel(name: &str) -> ChannelName {
    ChannelName::new(name).unwrap()
}

fn publication(value: u64) -> Publication {
    Publication { offset: Offset(0), data: Json::of(&value), info: None, tags: Tags::default(), receipt: None }
}

fn publish(hub: &Hub, name: &str, value: u64) -> Option<u64> {
    let new = NewPublication { publication: publication(value), skip_history: false };
    hub.publish(&channel(name), new, NOW).unwrap().map(|position| position.offset.0)
}

fn loop_ids(hub: &Hub) -> Vec<LoopId> {
    hub.loops().map(|(loop_id, _)| loop_id).collect()
}

fn join(hub: &Hub, name: &str, resume: Option<ResumeFrom>) -> Subscribed {
    let member = Member { loop_id: loop_ids(hub)[0], presence: None, device: None };
    hub.subscribe(&channel(name), &member, resume.as_ref()).unwrap()
}

fn texts(frames: &[Frame]) -> Vec<String> {
    frames.iter().map(|frame| String::from_utf8_lossy(&frame.bytes[2..]).into_owned()).collect()
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
        let member = Member { loop_id, presence: Some(info(client, user)), device: None };
        hub.subscribe(&channel("here:1"), &member, None).unwrap()
    };
    let first = join(1, "ann");
    join(2, "ann");
    join(3, "bob");
    assert_eq!(hub.presence_stats(&channel("here:1")), (3, 2));
    first.channel.unsubscribe(loop_id, ClientId::from_random(1), None);
    let mut users: Vec<String> = hub.presence(&channel("here:1")).iter().map(|info| info.user.to_string()).collect();
    users.sort();
    assert_eq!(users, ["ann", "bob"]);
}

#[test]
fn one_channel_more_than_the_limit_is_refused_with_the_limit_and_swept_ones_make_room() {
    let hub = hub(2);
    publish(&hub, "one", 1);
    publish(&hub, "kept:two", 1);
    let new = || NewPublication { publication: publication(1), skip_history: false };
    let refused = hub.publish(&channel("three"), new(), NOW);
    assert_eq!(refused, Err(HubError::ChannelLimit { channel: channel("three"), limit: 2 }));
    hub.sweep(NOW);
    assert_eq!(hub.publish(&channel("three"), new(), NOW), Ok(None), "a channel that holds nothing was swept");
    assert_eq!(hub.counts().channels, 2);
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
fn a_durable_channel_comes_back_where_it_was_and_ignores_what_it_knows() {
    let hub = hub(10);
    let name = channel("durable:1");
    let at = |offset| Publication { offset: Offset(offset), ..publication(offset) };
    hub.restore(&name, Offset(7), vec![at(6), at(7)], NOW).unwrap();
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
        reader.channel.unsubscribe(loop_id, ClientId::from_random(1), None);
        hub.history(&channel(&format!("durable:read-{index}")), HistoryFilter::default()).unwrap();
    }
    assert_eq!(hub.counts().channels, 6, "reading the history of an absent one creates nothing");
    hub.publish_durable(&channel("durable:0"), Offset(1), publication(1), NOW).unwrap();
    hub.sweep(NOW);
    assert_eq!(hub.counts().channels, 2, "the memory channel and the published one");
    let from = ResumeFrom { offset: Offset(0), epoch: None, count_max: 10 };
    let Some(Recovery::Recovered(missed)) = join(&hub, "durable:0", Some(from)).recovery else { panic!("it is kept") };
    assert_eq!(missed.len(), 1);
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
        let from = ResumeFrom { offset: Offset(got.len() as u64), epoch: None, count_max: usize::MAX };
        let reader = join(&hub, "kept:1", Some(from));
        let Some(Recovery::Recovered(missed)) = reader.recovery else { panic!("the history is long enough") };
        got.extend(missed.iter().map(|publication| publication.offset.0));
        let mut frames = Vec::new();
        let _ = reader.channel.fetch(reader.next, 4096, &mut frames).unwrap();
        for text in texts(&frames) {
            let message: serde_json::Value = serde_json::from_str(&text).unwrap();
            got.push(message["push"]["pub"]["offset"].as_u64().unwrap());
        }
        reader.channel.unsubscribe(loop_ids(&hub)[0], ClientId::from_random(9), None);
    }
    for writer in writers {
        writer.join().unwrap();
    }
    assert_eq!(got, (1..=WRITERS * EACH).collect::<Vec<_>>());
}
