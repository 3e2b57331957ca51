//! One hub as the home of memory channels, others with copies: each rule alone. `cluster.rs` tries them together.

use std::sync::Mutex;

use tidings_hub::{Applied, ChannelCopy, CopyCursor, News, Relay};
use tidings_protocol::Push;
use tidings_types::{Event, EventId, PushForm, TopicName};

use super::*;

/// Remembers what is told.
#[derive(Debug, Default)]
pub(super) struct Outbox(Mutex<Vec<News>>);

impl Relay for Outbox {
    fn tell(&self, news: News) {
        self.0.lock().unwrap().push(news);
    }
}

impl Outbox {
    pub(super) fn take(&self) -> Vec<News> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn home() -> (Hub, Arc<Outbox>) {
    let outbox = Arc::new(Outbox::default());
    (hub(100).with_relay(outbox.clone()), outbox)
}

/// A copy that new channels of `home` begin alike.
fn copy(home: &Hub) -> Hub {
    let copy = hub(100);
    copy.set_home(false);
    copy.set_memory_epoch(home.memory_epoch());
    copy
}

/// On the wire and back.
pub(super) fn sent<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
    serde_json::from_slice(&serde_json::to_vec(value).unwrap()).unwrap()
}

fn apply_all(to: &Hub, outbox: &Outbox) -> Vec<Applied> {
    let applied = outbox.take().into_iter().map(|news| to.apply(sent(&news), NOW));
    applied.filter(|applied| *applied != Applied::Done).collect()
}

pub(super) fn top(hub: &Hub, name: &str) -> StreamPosition {
    hub.history(&channel(name), HistoryFilter::default()).unwrap().1
}

fn offsets(hub: &Hub, name: &str) -> Vec<u64> {
    let (publications, _) = hub.history(&channel(name), HistoryFilter::default()).unwrap();
    publications.iter().map(|publication| publication.offset.0).collect()
}

fn frames(reader: &Subscribed) -> Vec<String> {
    let mut frames = Vec::new();
    reader.channel.fetch(reader.next, usize::MAX, &mut frames).unwrap();
    texts(&frames)
}

/// How often a reader that reads on would have to start anew.
fn restarts(reader: &Subscribed) -> usize {
    let mut frames = Vec::new();
    reader.channel.fetch(reader.next, usize::MAX, &mut frames).unwrap();
    frames.iter().filter(|frame| frame.is_restart()).count()
}

fn take(to: &Hub, from: &Hub, name: &str) {
    to.take_copy(sent(&from.copy_of(&channel(name)).unwrap()), NOW);
}

fn round(to: &Hub, from: &Hub) {
    to.begin_round();
    to.set_memory_epoch(from.memory_epoch());
    let (copies, _) = from.copies(CopyCursor::default(), usize::MAX);
    copies.into_iter().for_each(|copy| to.take_copy(copy, NOW));
    to.end_round();
}

/// Publishes, and forgets the channel after a month, if nobody reads it.
fn live_and_be_forgotten(home: &Hub, name: &str) {
    publish(home, name, 1);
    home.sweep(NOW.saturating_add(Duration::from_secs(61)));
    home.sweep(NOW.saturating_add(Duration::from_secs(31 * 24 * 3600 + 61)));
    assert_eq!(home.copy_of(&channel(name)), None);
}

fn position(at: StreamPosition) -> ResumeFrom {
    let epoch = Some(at.epoch.as_str().to_owned());
    ResumeFrom { offset: at.offset, epoch, limit: 100.into(), is_required: false }
}

fn info(number: u128) -> ClientInfo {
    let client = ClientId::from_random(number);
    ClientInfo { user: "ann".into(), client, conn_info: Some(Json::of(&[1])), chan_info: None }
}

#[test]
fn a_copy_gives_its_readers_what_the_home_publishes_and_answers_like_it() {
    let (home, outbox) = home();
    let copy = copy(&home);
    let before = join(&copy, "kept:1", None);
    (1..=3).for_each(|value| _ = publish(&home, "kept:1", value));
    assert_eq!(apply_all(&copy, &outbox), []);
    assert_eq!(before.top.epoch, top(&home, "kept:1").epoch, "a reader that came before the first publication resumes");
    assert_eq!(copy.copy_of(&channel("kept:1")), home.copy_of(&channel("kept:1")));
    assert_eq!(frames(&before).len(), 3);
    assert_eq!(frames(&before)[2], r#"{"push":{"channel":"kept:1","pub":{"data":3,"offset":3}}}"#);
    home.remove_history(&channel("kept:1"), Some(Offset(2)));
    assert_eq!(apply_all(&copy, &outbox), []);
    assert_eq!((offsets(&copy, "kept:1"), top(&copy, "kept:1")), (vec![3], top(&home, "kept:1")));
    assert!(outbox.take().is_empty());
}

#[test]
fn a_copy_that_lacks_something_says_so_and_appends_the_home_s_copy_where_it_can() {
    let (home, outbox) = home();
    let copy = copy(&home);
    let name = channel("kept:1");
    publish(&home, "kept:1", 1);
    let first = outbox.take();
    publish(&home, "kept:1", 2);
    let second = outbox.take();
    assert_eq!(copy.apply(second[0].clone(), NOW), Applied::Missing(name.clone()));
    assert_eq!(copy.counts().channels, 0, "nothing was made for it");
    assert_eq!(copy.apply(first[0].clone(), NOW), Applied::Done);
    let reader = join(&copy, "kept:1", None);
    publish(&home, "kept:1", 3);
    assert_eq!(apply_all(&copy, &outbox), [Applied::Missing(name.clone())]);
    take(&copy, &home, "kept:1");
    assert_eq!((frames(&reader).len(), offsets(&copy, "kept:1")), (2, vec![1, 2, 3]));
    assert_eq!(restarts(&reader), 0, "its readers go on");
    assert_eq!(copy.apply(second[0].clone(), NOW), Applied::Done);
    assert_eq!((frames(&reader).len(), offsets(&copy, "kept:1")), (2, vec![1, 2, 3]), "it is known");

    (4..=6).for_each(|value| _ = publish(&home, "kept:1", value));
    home.remove_history(&name, Some(Offset(4)));
    outbox.take();
    let gone = join(&copy, "kept:1", None);
    copy.unsubscribe(&gone.channel, loop_ids(&copy)[0], ClientId::from_random(1), None, JSON);
    take(&copy, &home, "kept:1");
    assert_eq!((restarts(&reader), offsets(&copy, "kept:1")), (1, vec![5, 6]), "4 is nowhere to be had");
    let behind = join(&copy, "kept:1", None);
    take(&copy, &home, "kept:1");
    assert_eq!(restarts(&reader), 1, "the same again changes nothing");
    publish(&home, "kept:1", 7);
    assert_eq!(apply_all(&copy, &outbox), []);
    assert_eq!(frames(&reader).len(), 2, "it gets what came before the restart, and nothing behind it");
    assert_eq!((frames(&behind).len(), restarts(&behind)), (1, 0), "who comes later starts behind it");
}

#[test]
fn a_copy_that_is_behind_changes_nothing_but_what_was_removed() {
    let (home, outbox) = home();
    let copy = copy(&home);
    (1..=3).for_each(|value| _ = publish(&home, "kept:1", value));
    home.remove_history(&channel("kept:1"), Some(Offset(1)));
    let old = home.copy_of(&channel("kept:1")).unwrap();
    outbox.take().into_iter().for_each(|news| {
        if !matches!(news, News::Removed { .. }) {
            assert_eq!(copy.apply(news, NOW), Applied::Done);
        }
    });
    publish(&home, "kept:1", 4);
    assert_eq!(apply_all(&copy, &outbox), []);
    copy.take_copy(old, NOW);
    assert_eq!(copy.copy_of(&channel("kept:1")), home.copy_of(&channel("kept:1")));
}

#[test]
fn another_life_replaces_the_copy_and_its_readers_get_nothing_of_it_before_they_start_anew() {
    let (home, outbox) = home();
    let copy = copy(&home);
    (1..=2).for_each(|value| _ = publish(&home, "kept:1", value));
    assert_eq!(apply_all(&copy, &outbox), []);
    let reader = join(&copy, "kept:1", None);
    let later = |days: u64| NOW.saturating_add(Duration::from_secs(days * 24 * 3600));
    let name = channel("kept:1");
    home.sweep(later(1));
    assert!(matches!(&outbox.take()[..], [News::Removed { until: Offset(2), .. }]), "of age");
    home.sweep(later(32));
    let gone = outbox.take();
    assert!(matches!(&gone[..], [News::MemoryEpoch { .. }, News::Forgotten { .. }]), "{gone:?}");
    publish(&home, "kept:1", 3);
    let first = outbox.take();
    publish(&home, "kept:1", 4);
    assert_eq!(apply_all(&copy, &outbox), [Applied::Missing(name.clone())]);
    assert_eq!(copy.apply(first[0].clone(), NOW), Applied::Done);
    assert_eq!((restarts(&reader), offsets(&copy, "kept:1")), (1, vec![1]), "the copy did not hear it was gone");
    assert_eq!(frames(&reader), [""; 0]);

    // A copy that hears it empties the channel.
    let copy = self::copy(&home);
    copy.take_copy(home.copy_of(&name).unwrap(), NOW);
    let reader = join(&copy, "kept:1", None);
    assert_eq!(copy.apply(gone[0].clone(), NOW), Applied::Done);
    assert_eq!(copy.apply(gone[1].clone(), NOW), Applied::Done);
    assert_eq!(restarts(&reader), 1);
    assert_eq!((top(&copy, "kept:1").offset, copy.copy_of(&name)), (Offset(0), None));
    assert_eq!(copy.memory_epoch(), home.memory_epoch());
}

#[test]
fn a_copy_removes_nothing_by_itself() {
    let (home, outbox) = home();
    let copy = copy(&home);
    publish(&home, "kept:1", 1);
    assert_eq!(apply_all(&copy, &outbox), []);
    copy.sweep(NOW.saturating_add(Duration::from_secs(100 * 24 * 3600)));
    copy.sweep(NOW.saturating_add(Duration::from_secs(200 * 24 * 3600)));
    copy.remove_history(&channel("kept:1"), None);
    assert_eq!((offsets(&copy, "kept:1"), copy.memory_epoch()), (vec![1], home.memory_epoch()));
}

#[test]
fn a_copy_is_never_refused() {
    let (home, outbox) = home();
    let copy = copy(&home);
    (0..5).for_each(|number| _ = publish(&home, &format!("kept:{number}"), 1));
    let few = hub(2);
    few.set_home(false);
    outbox.take().into_iter().for_each(|news| assert_eq!(few.apply(news, NOW), Applied::Done));
    assert_eq!((few.counts().channels, copy.counts().channels), (5, 0));
}

/// The copies count, too, and only the home can remove them.
#[test]
fn readers_at_a_copy_may_ask_for_as_many_channels_as_the_home_has() {
    let (home, outbox) = home();
    let few = hub(2);
    few.set_home(false);
    ["kept:1", "few:1"].iter().for_each(|name| _ = publish(&home, name, 1));
    outbox.take().into_iter().for_each(|news| assert_eq!(few.apply(news, NOW), Applied::Done));
    let ask = |name: &str| {
        few.subscribe(&channel(name), &Member::reader(loop_ids(&few)[0], ClientId::from_random(1), JSON), None)
    };
    assert!(ask("few:2").is_ok() && ask("few:3").is_ok());
    assert!(matches!(ask("news"), Err(HubError::ChannelLimit { limit: 4, setting: "channels.count_max", .. })));
    assert!(ask("durable:1").is_ok(), "it counts in its namespace");
    few.set_home(true);
    assert!(matches!(ask("kept:2"), Err(HubError::ChannelLimit { limit: 2, .. })));

    let many = hub(100);
    many.set_home(false);
    let ask = |name: String| {
        many.subscribe(&channel(&name), &Member::reader(loop_ids(&many)[0], ClientId::from_random(1), JSON), None)
    };
    assert!((0..4).all(|number| ask(format!("few:{number}")).is_ok()));
    assert!(matches!(ask("few:4".to_owned()), Err(HubError::ChannelLimit { limit: 4, .. })));
    assert!((0..2).all(|number| ask(format!("few-durable:{number}")).is_ok()));
    assert!(matches!(ask("few-durable:2".to_owned()), Err(HubError::ChannelLimit { limit: 2, .. })), "no copies");
}

#[test]
fn what_is_not_kept_reaches_the_readers_of_all_nodes() {
    let (home, outbox) = home();
    let copy = copy(&home);
    publish(&home, "news", 1);
    assert_eq!(apply_all(&copy, &outbox), []);
    assert_eq!((home.counts().channels, copy.counts().channels), (0, 0));
    let readers = ["news", "kept:1", "durable:1"].map(|name| join(&copy, name, None));
    for reader in &readers {
        let new = NewPublication { publication: publication(2), skip_history: true };
        assert_eq!(home.publish(reader.channel.name(), new, NOW), Ok(None));
        assert_eq!(apply_all(&copy, &outbox), []);
        assert_eq!(frames(reader).len(), 1, "{:?}", reader.channel.name());
        assert!(!frames(reader)[0].contains("offset"));
    }
}

#[test]
fn what_the_journal_has_for_a_memory_channel_gets_its_offset_at_home() {
    let (home, outbox) = home();
    let copy = copy(&home);
    for hub in [&copy, &home] {
        hub.publish_durable(&channel("kept:1"), Offset(70), publication(1), NOW).unwrap();
        hub.publish_durable(&channel("durable:1"), Offset(7), publication(1), NOW).unwrap();
    }
    assert_eq!((offsets(&copy, "kept:1"), offsets(&home, "kept:1")), (vec![], vec![1]));
    let told = outbox.take();
    assert_eq!(told.len(), 1, "the journal tells of durable channels");
    assert_eq!(copy.apply(told[0].clone(), NOW), Applied::Done);
    assert_eq!((offsets(&copy, "kept:1"), offsets(&copy, "durable:1")), (vec![1], vec![7]));
    home.remove_history(&channel("durable:1"), None);
    assert!(outbox.take().is_empty());
}

#[test]
fn versions_come_with_publications_and_copies() {
    let (home, outbox) = home();
    let (by_news, by_copy) = (copy(&home), copy(&home));
    let version = Version { number: 5, epoch: "a".into() };
    let new = || NewPublication { publication: publication(1), skip_history: false };
    home.publish_newer(&channel("kept:1"), new(), Some(&version), NOW).unwrap();
    publish(&home, "kept:1", 2);
    assert_eq!(apply_all(&by_news, &outbox), []);
    take(&by_copy, &home, "kept:1");
    for copy in [by_news, by_copy] {
        copy.take_over();
        let position = copy.publish_newer(&channel("kept:1"), new(), Some(&version), NOW).unwrap();
        assert_eq!(position.map(|position| position.offset), Some(Offset(2)), "it is swallowed");
    }
}

#[test]
fn members_hear_who_joins_and_leaves_on_other_nodes() {
    let outbox = Arc::new(Outbox::default());
    let (one, other) = (hub(10).with_relay(outbox.clone()), hub(10));
    let enter = |hub: &Hub, name: &str, number, joins| {
        let (wishes, announced) = (Wishes { joins, ..Wishes::default() }, Some(info(number)));
        let reader = Member::reader(loop_ids(hub)[0], ClientId::from_random(number), JSON);
        let reader = hub.subscribe(&channel(name), &Member { wishes, announced, ..reader }, None).unwrap();
        hub.announce_join(&reader.channel, ClientId::from_random(number));
        reader
    };
    for name in ["kept:1", "durable:1"] {
        let told = enter(&other, name, 1, true);
        let joined = enter(&one, name, 2, false);
        one.unsubscribe(&joined.channel, loop_ids(&one)[0], ClientId::from_random(2), None, JSON);
        assert_eq!(apply_all(&other, &outbox), []);
        let frames = frames(&told);
        let expected = [Push::Join(&info(1)), Push::Join(&info(2)), Push::Leave(&info(2))].map(|push| match push {
            Push::Join(info) => ("join", info.client.to_string()),
            Push::Leave(info) => ("leave", info.client.to_string()),
            _ => unreachable!(),
        });
        assert_eq!(frames.len(), expected.len());
        for (frame, (word, client)) in frames.iter().zip(expected) {
            assert!(frame.contains(&format!("\"{word}\"")) && frame.contains(&client), "{frame}");
        }
    }
}

#[test]
fn pages_hold_every_published_memory_channel_once_and_have_their_bounds() {
    let (home, _) = home();
    (0..90).for_each(|number| _ = publish(&home, &format!("kept:{number}"), number));
    publish(&home, "news", 1);
    home.publish_durable(&channel("durable:1"), Offset(1), publication(1), NOW).unwrap();
    join(&home, "kept:unpublished", None);
    for bytes_max in [0, 1_000, usize::MAX] {
        let (mut names, mut next, mut pages) = (Vec::new(), Some(CopyCursor::default()), 0);
        while let Some(cursor) = next.take() {
            let (page, after) = home.copies(sent(&cursor), bytes_max);
            assert!(bytes_max > 0 || page.len() == 1, "at least one");
            names.extend(page.iter().map(|copy| copy.channel.clone()));
            (next, pages) = (after, pages + 1);
        }
        assert_eq!(names.len(), 90, "{bytes_max}");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 90);
        assert!(pages == 1 || bytes_max < usize::MAX, "{pages}");
    }
    let bad: CopyCursor = serde_json::from_str(r#"{"s":18446744073709551615,"a":"kept:1"}"#).unwrap();
    assert_eq!(home.copies(bad, 1), (vec![], None));
}

#[test]
fn a_round_ends_with_what_the_home_has() {
    let (home, outbox) = home();
    let copy = copy(&home);
    for name in ["kept:gone", "kept:unread", "kept:stays"] {
        publish(&home, name, 1);
    }
    assert_eq!(apply_all(&copy, &outbox), []);
    let readers = ["kept:gone", "kept:stays", "news"].map(|name| join(&copy, name, None));
    let (next, _) = self::home();
    let reader_there = join(&next, "kept:stays", None);
    next.set_home(false);
    next.take_copy(home.copy_of(&channel("kept:stays")).unwrap(), NOW);
    assert_eq!(restarts(&reader_there), 1);
    next.take_over();
    assert_eq!(restarts(&reader_there), 2);
    round(&copy, &next);
    assert_eq!(readers.each_ref().map(restarts), [1, 1, 0], "one is emptied, one has another epoch");
    assert_eq!(copy.copy_of(&channel("kept:stays")), next.copy_of(&channel("kept:stays")));
    assert_eq!(top(&copy, "kept:gone"), top(&next, "kept:gone"), "as new, with the home's epoch");
    assert_eq!(copy.counts().channels, 3, "what nobody reads is removed");
    round(&copy, &next);
    assert_eq!(readers.each_ref().map(restarts), [1, 1, 0]);
}

/// Each channel that the home forgets changes the epoch. The readers of channels in which nobody has published need not care.
#[test]
fn the_first_publication_under_another_epoch_reaches_the_readers_of_a_copy_that_has_missed_nothing() {
    let (home, outbox) = home();
    let copy = copy(&home);
    round(&copy, &home);
    let reader = join(&copy, "kept:1", None);
    live_and_be_forgotten(&home, "kept:other");
    publish(&home, "kept:1", 7);
    assert_eq!(apply_all(&copy, &outbox), []);
    assert_eq!((frames(&reader).len(), restarts(&reader)), (1, 0));
    assert_ne!(top(&copy, "kept:1").epoch, reader.top.epoch);
    assert_eq!(copy.copy_of(&channel("kept:1")), home.copy_of(&channel("kept:1")));
    // Where it comes back next, it is told.
    let known = StreamPosition { offset: Offset(1), ..reader.top };
    for hub in [&copy, &home] {
        assert!(matches!(join(hub, "kept:1", Some(position(known))).recovery, Some(Recovery::Gap(_))));
    }
}

/// In a round, and before the first one, a node does not know whether there was a publication before.
#[test]
fn the_first_publication_under_another_epoch_restarts_the_readers_of_a_copy_that_may_have_missed_something() {
    let (home, outbox) = home();
    let copy = copy(&home);
    for in_round in [false, true] {
        let name = ["kept:1", "kept:2"][usize::from(in_round)];
        if in_round {
            round(&copy, &home);
            copy.begin_round();
        }
        let reader = join(&copy, name, None);
        live_and_be_forgotten(&home, "kept:other");
        publish(&home, name, 7);
        assert_eq!(apply_all(&copy, &outbox), []);
        assert_eq!((frames(&reader).len(), restarts(&reader)), (0, 1), "{in_round}");
        assert_eq!(copy.copy_of(&channel(name)), home.copy_of(&channel(name)));
    }
}

/// The home may have made and forgotten a life of it while this node was cut off. A node that was not may still have that
/// life. Its readers could resume over it if they got the first publication of the next one as theirs.
#[test]
fn a_round_keeps_the_readers_of_an_unpublished_channel_until_somebody_publishes() {
    let (home, outbox) = home();
    let (copy, stale) = (copy(&home), copy(&home));
    for hub in [&copy, &stale] {
        round(hub, &home);
    }
    let reader = join(&copy, "kept:1", None);
    round(&copy, &home);
    publish(&home, "kept:1", 1);
    publish(&home, "kept:1", 2);
    assert_eq!(apply_all(&stale, &outbox), []);
    home.sweep(NOW.saturating_add(Duration::from_secs(61)));
    home.sweep(NOW.saturating_add(Duration::from_secs(31 * 24 * 3600 + 61)));
    assert_eq!(home.counts().channels, 0);
    round(&copy, &home);
    outbox.take();
    assert_eq!(
        (restarts(&reader), top(&copy, "kept:1")),
        (0, top(&home, "kept:1")),
        "there may be very many such channels"
    );
    let later = join(&copy, "kept:1", None);
    publish(&home, "kept:1", 3);
    assert_eq!(apply_all(&copy, &outbox), []);
    assert_eq!((frames(&reader), restarts(&reader)), (vec![], 1), "it must not become offset 1 of the earlier life");
    assert_eq!(restarts(&later), 1);
    assert!(matches!(join(&copy, "kept:1", Some(position(reader.top))).recovery, Some(Recovery::Gap(_))));
    let resumed = join(&copy, "kept:1", Some(position(later.top)));
    assert!(matches!(resumed.recovery, Some(Recovery::Recovered(missed)) if missed.len() == 1));
    let resumed = join(&stale, "kept:1", Some(position(reader.top)));
    assert!(matches!(resumed.recovery, Some(Recovery::Recovered(missed)) if missed.len() == 2));
    publish(&home, "kept:1", 4);
    assert_eq!(apply_all(&copy, &outbox), []);
    assert_eq!(restarts(&later), 1, "once");
}

#[test]
fn a_round_s_page_does_not_bring_back_an_epoch_that_is_over() {
    let (home, outbox) = home();
    let copy = copy(&home);
    let old = home.memory_epoch();
    copy.begin_round();
    live_and_be_forgotten(&home, "kept:1");
    assert_eq!(apply_all(&copy, &outbox), []);
    copy.set_memory_epoch(old);
    assert_eq!(copy.memory_epoch(), home.memory_epoch());
    copy.begin_round();
    copy.set_memory_epoch(7);
    assert_eq!(copy.memory_epoch(), 7, "it may be of another home");
}

/// A page may be made before news and come after them.
#[test]
fn a_page_does_not_bring_back_an_earlier_life() {
    let (home, outbox) = home();
    let copy = copy(&home);
    publish(&home, "kept:1", 1);
    outbox.take();
    copy.begin_round();
    let page = home.copy_of(&channel("kept:1")).unwrap();
    home.sweep(NOW.saturating_add(Duration::from_secs(61)));
    home.sweep(NOW.saturating_add(Duration::from_secs(31 * 24 * 3600 + 61)));
    publish(&home, "kept:1", 2);
    assert_eq!(apply_all(&copy, &outbox), []);
    let reader = join(&copy, "kept:1", None);
    copy.take_copy(page, NOW);
    copy.end_round();
    assert_eq!(restarts(&reader), 0);
    assert_eq!(copy.copy_of(&channel("kept:1")), home.copy_of(&channel("kept:1")));
}

#[test]
fn a_page_does_not_bring_back_a_channel_that_the_home_has_forgotten() {
    let (home, outbox) = home();
    let copy = copy(&home);
    publish(&home, "kept:1", 1);
    outbox.take();
    copy.begin_round();
    let page = home.copy_of(&channel("kept:1")).unwrap();
    home.sweep(NOW.saturating_add(Duration::from_secs(61)));
    home.sweep(NOW.saturating_add(Duration::from_secs(31 * 24 * 3600 + 61)));
    assert_eq!(apply_all(&copy, &outbox), []);
    copy.take_copy(page, NOW);
    copy.end_round();
    assert_eq!(copy.counts().channels, 0);
}

/// Whatever has happened: what a copy asks for, it takes.
#[test]
fn a_copy_that_has_asked_takes_another_life_also_in_the_same_round() {
    let ((one, told), (other, told_too)) = (home(), home());
    let copy = copy(&one);
    publish(&one, "kept:1", 1);
    assert_eq!(apply_all(&copy, &told), []);
    let reader = join(&copy, "kept:1", None);
    publish(&other, "kept:1", 1);
    told_too.take();
    publish(&other, "kept:1", 2);
    take(&copy, &other, "kept:1");
    assert_eq!(restarts(&reader), 0, "it looks like a page of an earlier life");
    assert_eq!(apply_all(&copy, &told_too), [Applied::Missing(channel("kept:1"))]);
    take(&copy, &other, "kept:1");
    assert_eq!(restarts(&reader), 1);
    assert_eq!(copy.copy_of(&channel("kept:1")), other.copy_of(&channel("kept:1")));
}

/// What was removed does not come back with a page that was made before.
#[test]
fn a_page_does_not_bring_back_what_was_removed() {
    let (home, outbox) = home();
    let copy = copy(&home);
    (1..=3).for_each(|value| _ = publish(&home, "kept:1", value));
    let page = home.copy_of(&channel("kept:1")).unwrap();
    outbox.take();
    home.remove_history(&channel("kept:1"), Some(Offset(2)));
    assert_eq!(apply_all(&copy, &outbox), []);
    copy.take_copy(page, NOW);
    assert_eq!(copy.copy_of(&channel("kept:1")), home.copy_of(&channel("kept:1")));
}

#[test]
fn a_node_that_takes_over_keeps_what_it_has_with_other_epochs() {
    let (home, outbox) = home();
    let copy = copy(&home);
    (1..=2).for_each(|value| _ = publish(&home, "kept:read", value));
    publish(&home, "kept:unread", 1);
    assert_eq!(apply_all(&copy, &outbox), []);
    let readers = ["kept:read", "kept:new", "news", "durable:1"].map(|name| join(&copy, name, None));
    let before = ["kept:read", "kept:unread", "kept:new", "kept:none"].map(|name| top(&copy, name));
    let durable = top(&copy, "durable:1");
    copy.take_over();
    assert!(copy.is_home());
    assert_eq!(readers.each_ref().map(restarts), [1, 1, 0, 0], "those that know a position of it");
    let after = ["kept:read", "kept:unread", "kept:new", "kept:none"].map(|name| top(&copy, name));
    for (before, after) in before.iter().zip(after) {
        assert_eq!(before.offset, after.offset);
        assert_ne!(before.epoch, after.epoch);
    }
    assert_eq!(top(&copy, "durable:1"), durable);
    assert_eq!((publish(&copy, "kept:read", 3), offsets(&copy, "kept:read")), (Some(3), vec![1, 2, 3]));
    publish(&home, "kept:read", 4);
    publish(&home, "kept:other", 1);
    assert_eq!(apply_all(&copy, &outbox), [], "the home before has no say any more");
    assert_eq!((offsets(&copy, "kept:read"), offsets(&copy, "kept:other")), (vec![1, 2, 3], vec![]));
    copy.end_round();
    take(&copy, &home, "kept:read");
    assert_eq!((offsets(&copy, "kept:read"), restarts(&readers[0])), (vec![1, 2, 3], 1));
}

#[test]
fn what_a_node_publishes_that_has_just_lost_the_lead_is_replaced() {
    let (old, outbox) = home();
    let (new, told) = home();
    publish(&old, "kept:1", 1);
    new.set_home(false);
    assert_eq!(apply_all(&new, &outbox), []);
    new.take_over();
    old.set_home(false);
    round(&old, &new);
    let reader = join(&old, "kept:1", None);
    publish(&old, "kept:1", 2);
    assert!(outbox.take().is_empty(), "only a home tells");
    assert_eq!((frames(&reader), restarts(&reader)), (vec![], 1), "the home gives this offset to something else");
    let reader = join(&old, "kept:1", None);
    publish(&new, "kept:1", 3);
    assert_eq!(apply_all(&old, &told), [Applied::Missing(channel("kept:1"))]);
    take(&old, &new, "kept:1");
    assert_eq!(restarts(&reader), 1);
    assert_eq!(old.copy_of(&channel("kept:1")), new.copy_of(&channel("kept:1")));
}

/// An SDK's delta needs the data of the last frame, and a reader that resumes may have other data at that offset.
#[test]
fn the_first_frame_of_another_life_is_no_delta() {
    let (old, outbox) = home();
    let (new, told) = home();
    let copy = copy(&old);
    publish(&old, "kept:1", 1);
    assert_eq!(apply_all(&copy, &outbox), []);
    let form = PushForm { has_deltas: true, ..JSON.into() };
    let member = Member::reader(loop_ids(&copy)[0], ClientId::from_random(1), form);
    copy.subscribe(&channel("kept:1"), &member, None).unwrap();
    publish(&old, "kept:1", 2);
    assert_eq!(apply_all(&copy, &outbox), []);
    (1..=2).for_each(|value| _ = publish(&new, "kept:1", value));
    told.take();
    copy.begin_round();
    take(&copy, &new, "kept:1");
    assert_eq!(copy.subscribe(&channel("kept:1"), &member, None).unwrap().delta_base, None);
}

#[test]
fn what_no_home_sends_changes_nothing() {
    let (home, _) = home();
    let copy = copy(&home);
    publish(&home, "kept:1", 1);
    let good = home.copy_of(&channel("kept:1")).unwrap();
    let bad = [
        ChannelCopy { top: Offset(0), ..good.clone() },
        ChannelCopy { top: Offset(u64::MAX), ..good.clone() },
        ChannelCopy { top: Offset(1), kept: vec![publication(1), publication(2)], ..good.clone() },
        ChannelCopy { channel: channel("unknown:1"), ..good.clone() },
        ChannelCopy { channel: channel("durable:1"), ..good.clone() },
    ];
    for bad in bad {
        copy.take_copy(bad.clone(), NOW);
        let ChannelCopy { channel, epoch, version, top, mut kept, at } = bad;
        let publication = Publication { offset: top, ..kept.swap_remove(0) };
        let published = News::Published { channel: channel.clone(), epoch: Some(epoch), version, publication, at };
        let applied = copy.apply(published, NOW);
        assert!(applied == Applied::Done, "{channel}");
        assert_eq!(copy.apply(News::Forgotten { channel }, NOW), Applied::Done);
    }
    assert_eq!(copy.counts().channels, 0);
}

#[test]
fn news_and_copies_are_the_same_after_the_wire() {
    let event: Event = serde_json::from_value(serde_json::json!({
        "id": "goal-1", "topic": "goal", "subjects": ["match:1"], "params": {"minute": 7}, "push": "never", "ttl": 60
    }))
    .unwrap();
    assert_eq!((&event.id, &event.topic), (&EventId::new("goal-1").unwrap(), &TopicName::new("goal").unwrap()));
    let full = Publication {
        offset: Offset(7),
        data: Json::parse(br#"{"a":[1,2.50,"x"]}"#).unwrap(),
        info: Some(Arc::new(info(1))),
        tags: Tags::from(BTreeMap::from([("odd".to_owned(), "yes".to_owned())])),
        receipt: None,
        texts: Some(Arc::new(event)),
    };
    let (name, epoch) = (channel("kept:1"), Epoch::from_random(9));
    let version = Some(Version { number: u64::MAX, epoch: "a".into() });
    let published = |epoch, version, publication| {
        let (channel, at) = (name.clone(), NOW);
        News::Published { channel, epoch, version, publication, at }
    };
    let all = [
        published(Some(epoch), version.clone(), full.clone()),
        published(None, None, publication(1)),
        News::Removed { channel: name.clone(), epoch, until: Offset(3) },
        News::Forgotten { channel: name.clone() },
        News::MemoryEpoch { bits: u64::MAX },
        News::Joined { channel: name.clone(), info: info(1) },
        News::Left { channel: name.clone(), info: info(2) },
    ];
    for news in all {
        assert_eq!(sent(&news), news);
    }
    assert_eq!(
        serde_json::to_string(&published(None, None, publication(1))).unwrap(),
        r#"{"pub":{"c":"kept:1","p":{"o":0,"d":1},"t":1000000}}"#
    );
    for kept in [vec![], vec![publication(1), full]] {
        let copy =
            ChannelCopy { channel: name.clone(), epoch, top: Offset(7), version: version.clone(), kept, at: NOW };
        assert_eq!(sent(&copy), copy);
    }
    for bad in [r#"{"pub":{"c":"","p":{"d":1},"t":1}}"#, r#"{"rm":{"c":"a","e":"short","u":1}}"#, "{}", "[]"] {
        assert!(serde_json::from_str::<News>(bad).is_err(), "{bad}");
    }
}
