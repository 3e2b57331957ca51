//! Events and durable channels: order, repeats, restarts, trimming, and what a full journal or queue says.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidings_store::{
    AppendError, CommitSink, DurableChannel, PutTerms, QueueLimit, Store, StoreConfig, StoredPublication, WriteError,
};
use tidings_types::{
    ChannelName, EventId, JournalPosition, Json, Offset, PushPolicy, ReceiptPolicy, ReceiptRequest, ReceiptTerms,
    StreamPosition, Timestamp,
};

use crate::support::*;

fn positions(store: &Store) -> Vec<u64> {
    store.events_from(JournalPosition(0), 1000).unwrap().iter().map(|(position, _)| position.0).collect()
}

fn offsets(store: &Store, now: Timestamp) -> Vec<u64> {
    channels(store, now)[0].publications.iter().map(|(offset, _)| offset.0).collect()
}

#[tokio::test]
async fn an_event_is_appended_published_and_told_before_it_is_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let (store, sink) = open(folder.path());
    let [a, b] = [channel("match:1", 10), channel("match:2", 10)];
    let events = vec![new_event("e1", 1, &[a.clone(), b.clone()]), new_event("e2", 2, std::slice::from_ref(&a))];
    let appended = store.append_events(events, T0).await.unwrap();
    assert_eq!(appended.iter().map(|one| (place(one), one.repeated)).collect::<Vec<_>>(), [(1, false), (2, false)]);
    let data = |minute| format!(r#"{{"topic":"goal","subjects":["team:1"],"params":{{"minute":{minute}}}}}"#);
    let at = |index: usize, place: usize| appended[index].published()[place].1;
    let expected = [
        Told::Publication(a.name.clone(), at(0, 0), data(1)),
        Told::Publication(b.name, at(0, 1), data(1)),
        Told::Publication(a.name, at(1, 0), data(2)),
        Told::Events(JournalPosition(3)),
    ];
    assert_eq!(sink.told(), expected);
    assert_eq!((at(1, 0).offset, at(1, 0).epoch), (Offset(2), at(0, 0).epoch));
    assert_eq!(store.journal_end(), JournalPosition(3));
    let stored = store.event(JournalPosition(2)).unwrap().unwrap();
    assert_eq!((stored.event, stored.accepted_at, &*stored.published), (event("e2", 2), T0, appended[1].published()));
    assert_eq!(channels(&store, T0)[0].publications[0].1.tags["event"], "e1");
}

#[tokio::test]
async fn a_publication_says_whose_receipts_its_event_waits_for_and_until_when() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let place = || channel("match:1", 10);
    let mut held = new_event("held", 1, &[place()]);
    (held.event.push, held.event.receipt_wait) = (PushPolicy::UnlessReceived, Duration::from_secs(3));
    let first = store.append_events(vec![new_event("pushed", 1, &[place()]), held.clone()], T0).await.unwrap();
    store.append_publication(place(), Json::of(&1), BTreeMap::new(), None, T0).await.unwrap();
    // A repetition waits no longer than the first did.
    assert!(store.append_events(vec![held], Timestamp(T0.0 + 9)).await.unwrap()[0].repeated);
    store.close().await;
    let (store, _) = open(folder.path());
    let receipts: Vec<_> = channels(&store, T0)[0].publications.iter().map(|(_, one)| one.receipt).collect();
    let terms = ReceiptTerms { until: Timestamp(T0.0 + 3000), every_client: false, policy: ReceiptPolicy::default() };
    assert_eq!(receipts, [None, Some(ReceiptRequest { event: first[1].position().unwrap(), terms }), None]);
}

#[tokio::test]
async fn an_event_is_found_by_its_id_as_long_as_that_is_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    (config.id_window, config.id_window_count) = (Duration::ZERO, 1);
    let (store, _) = open_with(config);
    store.append_events(vec![new_event("e1", 1, &[]), new_event("e2", 1, &[])], T0).await.unwrap();
    let position = |name: &str| store.event_position(&EventId::new(name).unwrap()).unwrap();
    assert_eq!((position("e1"), position("e2")), (Some(JournalPosition(1)), Some(JournalPosition(2))));
    assert_eq!(position("e3"), None);
    store.trim(store.journal_end());
    store.append_events(vec![new_event("e3", 1, &[])], Timestamp(T0.0 + 1)).await.unwrap();
    eventually("trimming", || position("e1").is_none()).await;
    assert_eq!(position("e3"), Some(JournalPosition(3)));
}

#[tokio::test]
async fn the_same_event_again_has_the_same_answer_and_does_nothing_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let event = || vec![new_event("e1", 1, &[channel("match:1", 10)])];
    let first = store.append_events(event(), T0).await.unwrap();
    store.close().await;
    let (store, sink) = open(folder.path());
    for _ in 0..2 {
        let again = store.append_events(event(), Timestamp(T0.0 + 5)).await.unwrap();
        assert!(again[0].repeated);
        assert_eq!(again[0].to, first[0].to);
    }
    assert_eq!((positions(&store), sink.told()), (vec![1], vec![]));
}

#[tokio::test]
async fn an_id_with_other_content_refuses_the_whole_request() {
    let folder = tempfile::tempdir().unwrap();
    let (store, sink) = open(folder.path());
    store.append_events(vec![new_event("e1", 1, &[])], T0).await.unwrap();
    let told = sink.told();
    let request = vec![new_event("e2", 1, &[channel("match:1", 10)]), new_event("e1", 9, &[])];
    let error = store.append_events(request, T0).await.unwrap_err();
    assert_eq!(error, AppendError::Conflict { index: 1, id: event("e1", 1).id });
    assert_eq!((positions(&store), channels(&store, T0), sink.told()), (vec![1], vec![], told));
    // Two of one id inside one request: the same content is one event, other content is refused.
    let appended = store.append_events(vec![new_event("e3", 1, &[]), new_event("e3", 1, &[])], T0).await.unwrap();
    assert_eq!(appended.iter().map(|one| (place(one), one.repeated)).collect::<Vec<_>>(), [(2, false), (2, true)]);
    let error = store.append_events(vec![new_event("e4", 1, &[]), new_event("e4", 2, &[])], T0).await.unwrap_err();
    assert!(matches!(error, AppendError::Conflict { index: 1, .. }));
    assert_eq!(positions(&store), [1, 2]);
}

#[tokio::test]
async fn a_channel_keeps_its_life_its_offsets_and_its_newest_publications() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let info = Json::parse(br#"{"user":"42"}"#).unwrap();
    for number in 1..=5 {
        let (data, tags) = (Json::of(&number), BTreeMap::from([("n".to_owned(), number.to_string())]));
        let position =
            store.append_publication(channel("chat:1", 3), data, tags, Some(info.clone()), T0).await.unwrap();
        assert_eq!(position.offset, Offset(number));
    }
    let before = channels(&store, T0);
    assert_eq!((before[0].top, offsets(&store, T0)), (Offset(5), vec![3, 4, 5]));
    let newest = &before[0].publications[2].1;
    assert_eq!((newest.data.as_str(), &newest.tags["n"], newest.info.as_ref()), ("5", &"5".to_owned(), Some(&info)));
    store.close().await;
    let (store, _) = open(folder.path());
    assert_eq!(channels(&store, T0), before);
    let position =
        store.append_publication(channel("chat:1", 2), Json::of(&6), BTreeMap::new(), None, T0).await.unwrap();
    assert_eq!(position, StreamPosition { offset: Offset(6), epoch: store.channel_start().epoch });
    assert_eq!(offsets(&store, T0), [5, 6], "a smaller history takes more than one");
    let without = channel("chat:2", 0);
    store.append_publication(without, Json::of(&1), BTreeMap::new(), None, T0).await.unwrap();
    assert_eq!((channels(&store, T0)[1].top, channels(&store, T0)[1].publications.len()), (Offset(1), 0));
}

#[tokio::test]
async fn a_history_ends_as_a_whole_and_is_then_taken_away() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open_with(config(folder.path()));
    let publish =
        |name: &'static str, now| store.append_publication(channel(name, 10), Json::of(&1), BTreeMap::new(), None, now);
    let first = publish("chat:1", T0).await.unwrap();
    let later = T0.saturating_add(HOUR / 2);
    publish("chat:1", later).await.unwrap();
    let [after, end] = [HOUR, HOUR + HOUR / 2].map(|time| T0.saturating_add(time));
    assert_eq!(offsets(&store, after), [1, 2], "the last one has not expired");
    assert!(offsets(&store, end).is_empty(), "not given, though the rows are there");
    publish("chat:9", end).await.unwrap();
    eventually("taking the expired rows away", || offsets(&store, T0).is_empty()).await;
    let again = publish("chat:1", T0.saturating_add(1000 * HOUR)).await.unwrap();
    assert_eq!(again, StreamPosition { offset: Offset(3), ..first }, "an idle channel goes on where it was");
}

#[tokio::test]
async fn what_had_expired_before_the_next_publication_came_does_not_come_back_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let publish = |now| store.append_publication(channel("chat:1", 10), Json::of(&1), BTreeMap::new(), None, now);
    for now in [T0, T0.saturating_add(HOUR / 2), T0.saturating_add(2 * HOUR)] {
        publish(now).await.unwrap();
    }
    assert_eq!(offsets(&store, T0.saturating_add(2 * HOUR)), [3]);
}

#[tokio::test]
async fn an_idle_channel_is_forgotten_and_no_offset_is_used_twice() {
    static NOW: AtomicU64 = AtomicU64::new(T0.0);
    let clock_is = |now: Timestamp| NOW.store(now.0, Ordering::Relaxed);
    let folder = tempfile::tempdir().unwrap();
    let small = || StoreConfig {
        channel_count_max: 2,
        channel_ttl: HOUR,
        clock: || Timestamp(NOW.load(Ordering::Relaxed)),
        ..config(folder.path())
    };
    let (store, sink) = open_with(small());
    let publish = |store: &Store, name: &str, now| {
        let (store, channel) = (store.clone(), channel(name, 10));
        async move { store.append_publication(channel, Json::of(&1), BTreeMap::new(), None, now).await }
    };
    let names = |store: &Store| -> Vec<_> {
        channels(store, T0).into_iter().map(|channel| (channel.name.to_string(), channel.top.0)).collect()
    };
    let first = publish(&store, "chat:1", T0).await.unwrap();
    assert_eq!(publish(&store, "chat:1", T0).await.unwrap().offset, Offset(2));
    let due = T0.saturating_add(9 * HOUR);
    let mut waiting = new_event("e1", 1, &[channel("match:1", 10)]);
    waiting.event.at = Some(due);
    store.append_events(vec![waiting], T0).await.unwrap();
    assert!(publish(&store, "chat:2", T0).await.is_err(), "there is no room for it");

    let empty = T0.saturating_add(HOUR);
    clock_is(empty);
    eventually("the end of its history", || offsets(&store, T0).is_empty()).await;
    assert_eq!(
        names(&store),
        [("chat:1".to_owned(), 2), ("match:1".to_owned(), 0)],
        "it is looked at, and not idle yet"
    );
    let over = empty.saturating_add(Duration::from_millis(1));
    clock_is(over);
    let floor = Offset(1 << 20);
    let forgotten = |sink: &Sink, floor| sink.told().last() == Some(&Told::Forgotten(channel_name("chat:1"), floor));
    eventually("the idle channel is forgotten", || forgotten(&sink, floor)).await;
    assert_eq!(names(&store), [("match:1".to_owned(), 0)]);
    store.close().await;

    let (store, sink) = open_with(small());
    assert_eq!(store.channel_start(), StreamPosition { offset: floor, ..first });
    let again = publish(&store, "chat:1", over).await.unwrap();
    assert_eq!(again, StreamPosition { offset: floor.next(), ..first });
    clock_is(due);
    assert_eq!(store.release_later(due).await, Ok(1));
    eventually("it is forgotten again", || forgotten(&sink, Offset(2 << 20))).await;
    assert_eq!(names(&store), [("match:1".to_owned(), floor.0 + 1)]);
}

#[tokio::test]
async fn a_namespace_may_forget_its_channels_sooner_or_later_than_others() {
    let folder = tempfile::tempdir().unwrap();
    let opened = |namespace_ttls: &[(&str, Duration)], clock| {
        let namespace_ttls = namespace_ttls.iter().map(|(name, ttl)| ((*name).to_owned(), *ttl)).collect();
        open_with(StoreConfig { channel_ttl: 5 * HOUR, namespace_ttls, clock, ..config(folder.path()) }).0
    };
    let names = |store: &Store| channels(store, T0).iter().map(|channel| channel.name.to_string()).collect::<Vec<_>>();
    let store = opened(&[], || T0);
    for name in ["$chat:1", "chat:1", "match:1", "news", "order:1"] {
        let publication = store.append_publication(channel(name, 10), Json::of(&1), BTreeMap::new(), None, T0);
        publication.await.unwrap();
    }
    store.close().await;
    // The histories end after an hour.
    let ttls = [("chat", 2 * HOUR), ("", 3 * HOUR), ("order", 9 * HOUR)];
    let store = opened(&ttls, || T0.saturating_add(2 * HOUR).saturating_add(Duration::from_millis(1)));
    eventually("chats are forgotten", || names(&store) == ["match:1", "news", "order:1"]).await;
    store.close().await;
    let store = opened(&ttls, || T0.saturating_add(6 * HOUR));
    eventually("others are forgotten, and what has no namespace", || names(&store) == ["order:1"]).await;
}

#[tokio::test]
async fn a_channel_reserved_for_a_cancelled_event_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let clock = || T0.saturating_add(HOUR).saturating_add(Duration::from_millis(1));
    let (store, _) = open_with(StoreConfig { channel_ttl: HOUR, clock, ..config(folder.path()) });
    let mut called_off = new_event("e1", 1, &[channel("match:1", 10)]);
    called_off.event.at = Some(T0.saturating_add(9000 * HOUR));
    store.append_events(vec![called_off], T0).await.unwrap();
    assert!(store.cancel_later(&EventId::new("e1").unwrap()).await.unwrap());
    // It was needed until the moment when the event was called off, which is that of the clock.
    store.append_events(vec![new_event("e2", 1, &[])], T0.saturating_add(9 * HOUR)).await.unwrap();
    assert_eq!(channels(&store, T0).len(), 1);
    store.close().await;
    let clock = || T0.saturating_add(3 * HOUR);
    let (store, _) = open_with(StoreConfig { channel_ttl: HOUR, clock, ..config(folder.path()) });
    eventually("giving it back", || channels(&store, T0).is_empty()).await;
}

fn channel_name(text: &str) -> ChannelName {
    ChannelName::new(text).unwrap()
}

#[tokio::test]
async fn an_event_stays_until_the_sender_is_done_and_its_id_is_out_of_the_window() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    (config.id_window, config.id_window_count) = (HOUR, 4);
    let (store, _) = open_with(config);
    let append = async |name: &str, minute, now| store.append_events(vec![new_event(name, minute, &[])], now).await;
    append("e1", 1, T0).await.unwrap();
    store.trim(JournalPosition(2));
    let late = T0.saturating_add(2 * HOUR);
    append("e2", 1, late).await.unwrap();
    append("e3", 1, late).await.unwrap();
    eventually("trimming by age", || positions(&store) == [2, 3]).await;
    assert_eq!(append("e1", 7, late).await.unwrap()[0].position(), Some(JournalPosition(4)), "the id may be used anew");
    // Out of the window by age, but the sender is not done with it.
    append("e5", 1, late.saturating_add(2 * HOUR)).await.unwrap();
    assert!(append("e2", 1, late).await.unwrap()[0].repeated);
    store.trim(JournalPosition(4));
    eventually("trimming up to where the sender said", || positions(&store) == [4, 5]).await;
    // By count: five ids newer than the window holds.
    store.trim(JournalPosition(100));
    for index in 6..=9 {
        append(&format!("f{index}"), 1, late.saturating_add(2 * HOUR)).await.unwrap();
    }
    eventually("trimming by count", || positions(&store) == [6, 7, 8, 9]).await;
    assert!(append("f6", 1, late).await.unwrap()[0].repeated);
}

#[tokio::test]
async fn a_full_journal_refuses_and_takes_events_again_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    (config.journal_event_count_max, config.id_window, config.id_window_count) = (3, Duration::ZERO, 1);
    let (store, _) = open_with(config);
    let full = AppendError::Write(WriteError::Overloaded { what: "the journal", limit: 3 });
    let two = |a: &str, b: &str| vec![new_event(a, 1, &[]), new_event(b, 1, &[])];
    store.append_events(two("e1", "e2"), T0).await.unwrap();
    assert_eq!(store.append_events(two("e3", "e4"), T0).await.unwrap_err(), full);
    assert_eq!(positions(&store), [1, 2]);
    assert!(store.append_events(two("e1", "e2"), T0).await.unwrap()[0].repeated, "a repetition needs no room");
    store.append_events(vec![new_event("e3", 1, &[])], T0).await.unwrap();
    assert_eq!(store.append_events(vec![new_event("e4", 1, &[])], T0).await.unwrap_err(), full);
    store.trim(store.journal_end());
    eventually("trimming", || positions(&store).len() < 3).await;
    store.append_events(vec![new_event("e4", 1, &[])], T0).await.unwrap();
}

/// Ids are remembered for an hour here, but a journal that is full of them would take nothing for that hour.
#[tokio::test]
async fn a_journal_close_to_its_bound_forgets_ids_rather_than_refuse_new_events() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    (config.journal_event_count_max, config.id_window, config.id_window_count) = (16, HOUR, 16);
    let (store, _) = open_with(config);
    let append = |n: i64| store.append_events(vec![new_event(&format!("e{n}"), n, &[])], T0);
    for n in 0..16 {
        append(n).await.unwrap();
    }
    assert!(append(16).await.is_err(), "full, and the sender needs them all");
    store.trim(store.journal_end());
    eventually("room for new events", || positions(&store).len() < 14).await;
    append(16).await.unwrap();
}

#[tokio::test]
async fn jobs_and_how_far_they_go_survive_and_events_come_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    assert_eq!(store.dispatched().unwrap(), JournalPosition(0));
    store.append_events((0..10).map(|n| new_event(&format!("e{n}"), n, &[])).collect(), T0).await.unwrap();
    let job = |position, text: &str| (JournalPosition(position), text.as_bytes().to_vec());
    store.put_jobs(vec![job(1, "one"), job(2, "two")], Some(JournalPosition(3))).await.unwrap();
    store.put_jobs(vec![job(2, "two, further")], None).await.unwrap();
    store.remove_jobs(vec![JournalPosition(1)]).await.unwrap();
    store.close().await;
    assert!(store.put_jobs(vec![], None).await.is_err(), "closed");
    let (store, _) = open(folder.path());
    assert_eq!(store.jobs().unwrap(), [job(2, "two, further")]);
    assert_eq!(store.dispatched().unwrap(), JournalPosition(3));
    let piece = |start, limit| store.events_from(JournalPosition(start), limit).unwrap();
    assert_eq!(piece(3, 2).iter().map(|(position, _)| position.0).collect::<Vec<_>>(), [3, 4]);
    assert_eq!((piece(11, 5).len(), piece(9, 5).len(), piece(1, 0).len()), (0, 2, 0));
    assert_eq!(store.event(JournalPosition(11)).unwrap(), None);
}

/// Stands still in the first publication until the test lets it go on.
struct Gate {
    entered: mpsc::SyncSender<()>,
    go_on: Mutex<mpsc::Receiver<()>>,
}

impl CommitSink for Gate {
    fn on_publication(&self, _: &ChannelName, _: StreamPosition, _: &StoredPublication, _: &DurableChannel) {
        self.entered.send(()).unwrap();
        self.go_on.lock().unwrap().recv().unwrap();
    }

    fn on_events(&self, _: JournalPosition) {}
}

#[tokio::test]
async fn a_full_queue_refuses_at_once_and_nothing_is_acknowledged_before_the_sink_returns() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.event_queue = QueueLimit { count: 2, bytes: 1 << 20 };
    let (entered, entered_rx) = mpsc::sync_channel(1);
    let (go_on_tx, go_on) = mpsc::sync_channel(1);
    let store = Store::open(config, Arc::new(Gate { entered, go_on: Mutex::new(go_on) })).unwrap();
    let append = |name: &str, channels: &[DurableChannel]| {
        let (store, events) = (store.clone(), vec![new_event(name, 1, channels)]);
        Box::pin(async move { store.append_events(events, T0).await })
    };
    let mut first = append("e0", &[channel("match:1", 1)]);
    assert!(is_pending(&mut first).await);
    entered_rx.recv().unwrap(); // The committer stands in the sink.
    let (mut second, mut third) = (append("e1", &[]), append("e2", &[]));
    assert!(is_pending(&mut second).await && is_pending(&mut third).await && is_pending(&mut first).await);
    let limit = WriteError::Overloaded { what: "the queue of events", limit: 2 };
    assert_eq!(append("e3", &[]).await.unwrap_err(), AppendError::Write(limit));
    assert!(
        store.put_device(device("phone", None), PutTerms::default(), T0).now_or_pending().await,
        "the other queues have room"
    );
    go_on_tx.send(()).unwrap();
    for answer in [first.await, second.await, third.await] {
        answer.unwrap();
    }
    assert_eq!(store.counts().overloaded, 1);
}

async fn is_pending<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
    std::future::poll_fn(|context| std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending()))
        .await
}

/// Polls once: true when the request was taken and waits.
trait NowOrPending: Future + Sized {
    async fn now_or_pending(self) -> bool {
        is_pending(&mut Box::pin(self)).await
    }
}

impl<F: Future> NowOrPending for F {}
