//! Events that are accepted and not yet due: kept, moved into the journal in time and in order, cancelled, bounded.

use std::time::Duration;

use tidings_store::{AppendError, Appended, AppendedTo, DurableChannel, NewEvent, Store, WriteError};
use tidings_types::{EventId, JournalPosition, PushPolicy, Timestamp};

use crate::support::*;

fn after(millis: u64) -> Timestamp {
    Timestamp(T0.0 + millis)
}

fn later_event(name: &str, due: Timestamp, channels: &[DurableChannel]) -> NewEvent {
    let mut new = new_event(name, 1, channels);
    new.event.at = Some(due);
    new
}

async fn append(store: &Store, new: NewEvent, now: Timestamp) -> Result<Appended, AppendError> {
    store.append_events(vec![new], now).await.map(|mut appended| appended.remove(0))
}

fn event_id(name: &str) -> EventId {
    EventId::new(name).unwrap()
}

fn journaled(store: &Store) -> Vec<String> {
    let events = store.events_from(JournalPosition(0), 10_000).unwrap();
    events.iter().map(|(_, one)| one.event.id.to_string()).collect()
}

fn waiting(store: &Store) -> Vec<String> {
    store.later_events(None, 10_000).unwrap().iter().map(|one| one.event.id.to_string()).collect()
}

#[tokio::test]
async fn an_event_for_later_is_neither_published_nor_sent_before_it_is_due() {
    let folder = tempfile::tempdir().unwrap();
    let (store, sink) = open(folder.path());
    let (due, place_of) = (after(5000), channel("match:1", 10));
    let mut new = later_event("e1", due, std::slice::from_ref(&place_of));
    (new.audience_max, new.event.push) = (Some(7), PushPolicy::UnlessReceived);
    let expected = Appended { to: AppendedTo::Later { at: due }, repeated: false };
    assert_eq!(append(&store, new.clone(), T0).await, Ok(expected));
    assert_eq!((sink.told(), store.journal_end().0, *store.next_later().borrow()), (vec![], 1, Some(due)));
    store.close().await;

    let (store, sink) = open(folder.path());
    let mut next = store.next_later();
    assert_eq!(*next.borrow_and_update(), Some(due));
    assert_eq!(store.release_later(after(4999)).await, Ok(0));
    assert!(append(&store, new.clone(), after(1)).await.unwrap().repeated);
    assert_eq!(store.event_position(&event_id("e1")).unwrap(), None);
    let waits = store.later(&event_id("e1")).unwrap().unwrap();
    assert_eq!((waits.key.at, waits.accepted_at, waits.audience_max, &waits.event), (due, T0, Some(7), &new.event));

    // Repeated after it was due but before it was moved, it is still the same event.
    let again = append(&store, new.clone(), after(6000)).await.unwrap();
    assert_eq!(again, Appended { to: AppendedTo::Later { at: due }, repeated: true });
    assert_eq!(store.release_later(after(9000)).await, Ok(1));
    assert_eq!((*next.borrow_and_update(), store.counts().later), (None, 0));
    let event = store.event(JournalPosition(1)).unwrap().unwrap();
    assert_eq!((event.accepted_at, event.audience_max, &event.event), (due, Some(7), &new.event));
    let publication = channels(&store, after(9000)).remove(0).publications.remove(0).1;
    assert_eq!((publication.time, &publication.tags["event"]), (after(9000), &"e1".to_owned()));
    let receipt = publication.receipt.unwrap();
    assert_eq!((receipt.event.0, receipt.terms.until), (1, after(7000)));
    let position = event.published[0].1;
    let data = publication.data.as_str().to_owned();
    assert_eq!(sink.told(), [Told::Publication(place_of.name, position, data), Told::Events(JournalPosition(2))]);
    let again = append(&store, new, after(9000)).await.unwrap();
    let to = AppendedTo::Journal { position: JournalPosition(1), published: event.published };
    assert_eq!(again, Appended { to, repeated: true });
    assert_eq!(store.later(&event_id("e1")).unwrap(), None);
    assert_eq!(store.release_later(after(9000)).await, Ok(0));
}

#[tokio::test]
async fn what_is_due_already_is_appended_at_once_and_counts_as_accepted_now() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    for (name, due) in [("e1", T0), ("e2", Timestamp(5))] {
        assert!(append(&store, later_event(name, due, &[]), T0).await.unwrap().position().is_some());
    }
    let accepted: Vec<_> = store.events_from(JournalPosition(0), 9).unwrap();
    assert!(accepted.iter().all(|(_, one)| one.accepted_at == T0));
}

#[tokio::test]
async fn an_id_that_waits_is_taken_however_much_is_trimmed_and_free_when_the_event_is_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    (config.id_window, config.id_window_count) = (Duration::ZERO, 1);
    let (store, _) = open_with(config);
    append(&store, later_event("e1", after(5000), &[]), T0).await.unwrap();
    for n in 0..4u64 {
        append(&store, new_event(&format!("n{n}"), 1, &[]), after(n)).await.unwrap();
        store.trim(store.journal_end());
    }
    eventually("trimming", || journaled(&store).len() == 1).await;
    for other in [later_event("e1", after(5001), &[]), new_event("e1", 1, &[])] {
        assert!(matches!(append(&store, other, T0).await, Err(AppendError::Conflict { .. })));
    }
    assert!(append(&store, later_event("e1", after(5000), &[]), T0).await.unwrap().repeated);
    assert_eq!(store.cancel_later(&event_id("e1")).await, Ok(true));
    for name in ["e1", "n3", "nobody"] {
        assert_eq!(store.cancel_later(&event_id(name)).await, Ok(false), "{name}");
    }
    assert_eq!((store.release_later(after(9000)).await, *store.next_later().borrow()), (Ok(0), None));
    assert!(!append(&store, later_event("e1", after(7000), &[]), T0).await.unwrap().repeated);
    assert_eq!(store.release_later(after(9000)).await, Ok(1));
    assert_eq!(store.cancel_later(&event_id("e1")).await, Ok(false), "it is in the journal");
}

#[tokio::test]
async fn they_are_moved_in_the_order_of_their_times_and_then_of_their_coming_a_batch_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    // Of two times, the later ones first, and more than one batch takes.
    let names = |due: u64| (0..300).map(move |n| format!("at{due}-{n}"));
    for due in [2000, 1000] {
        let events = names(due).map(|name| later_event(&name, after(due), &[channel("match:1", 10_000)])).collect();
        store.append_events(events, T0).await.unwrap();
    }
    let page = store.later_events(None, 299).unwrap();
    let rest = store.later_events(Some(page[298].key), 1000).unwrap();
    assert_eq!((page.len(), rest.len(), rest[0].event.id.as_str()), (299, 301, "at1000-299"));
    assert_eq!(store.release_later(after(999)).await, Ok(0), "the clock was set back, or is slow");
    let first = store.release_later(after(2000)).await.unwrap();
    assert!((1..600).contains(&first), "{first} in one batch");
    assert_eq!(store.release_later(T0).await, Ok(0), "the clock jumps back");
    while store.release_later(after(1_000_000)).await.unwrap() > 0 {}
    let expected: Vec<String> = names(1000).chain(names(2000)).collect();
    assert_eq!((journaled(&store), waiting(&store)), (expected.clone(), vec![]));
    let published = channels(&store, after(1_000_000)).remove(0).publications;
    let published: Vec<_> = published.iter().map(|(_, one)| one.tags["event"].clone()).collect();
    assert_eq!(published, expected);
}

#[tokio::test]
async fn what_finds_the_journal_full_stays_and_is_moved_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    (config.journal_event_count_max, config.id_window, config.id_window_count) = (3, Duration::ZERO, 1);
    let (store, _) = open_with(config);
    store.append_events(vec![new_event("n1", 1, &[]), new_event("n2", 1, &[])], T0).await.unwrap();
    for name in ["e1", "e2"] {
        append(&store, later_event(name, after(1000), &[]), T0).await.unwrap(); // Though the journal is nearly full.
    }
    assert_eq!(store.release_later(after(1000)).await, Ok(1));
    let full = WriteError::Overloaded { what: "the journal", limit: 3 };
    assert_eq!(store.release_later(after(1000)).await, Err(full));
    assert_eq!((waiting(&store), *store.next_later().borrow()), (vec!["e2".to_owned()], Some(after(1000))));
    store.trim(store.journal_end());
    eventually("trimming", || journaled(&store).len() < 3).await;
    assert_eq!(store.release_later(after(1000)).await, Ok(1));
    assert_eq!((waiting(&store), journaled(&store).last().map(String::as_str)), (vec![], Some("e2")));
}

#[tokio::test]
async fn there_is_a_bound_on_those_that_wait_in_number_and_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let mut small = config(folder.path());
    (small.later_count_max, small.journal_bytes_max) = (2, 2000);
    let (store, _) = open_with(small.clone());
    let full = |limit| Err(AppendError::Write(WriteError::Overloaded { what: "the set of scheduled events", limit }));
    let three = |now| ["e1", "e2", "e3"].map(|name| later_event(name, now, &[])).to_vec();
    assert_eq!(store.append_events(three(after(9)), T0).await, full(2));
    assert_eq!(waiting(&store), [""; 0], "all or nothing");
    store.append_events(three(after(9))[..2].to_vec(), T0).await.unwrap();
    assert_eq!(append(&store, later_event("e4", after(9), &[]), T0).await.map(drop), full(2).map(drop));
    assert_eq!(
        store.append_events(three(after(9))[..2].to_vec(), T0).await.unwrap().len(),
        2,
        "repeating needs no room"
    );
    append(&store, new_event("n1", 1, &[]), T0).await.unwrap();
    store.cancel_later(&event_id("e1")).await.unwrap();
    let mut large = later_event("large", after(9), &[]);
    large.event.data = Some(tidings_types::Json::of(&"x".repeat(1900)));
    assert_eq!(append(&store, large, T0).await.map(drop), full(2000).map(drop));
    append(&store, later_event("e4", after(9), &[]), T0).await.unwrap();
}

#[tokio::test]
async fn room_for_its_channels_is_kept_from_the_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let mut small = config(folder.path());
    small.channel_count_max = 1;
    let (store, _) = open_with(small);
    append(&store, later_event("e1", after(9), &[channel("match:1", 10)]), T0).await.unwrap();
    assert_eq!(append(&store, later_event("e2", after(8), &[channel("match:1", 10)]), T0).await.map(drop), Ok(()));
    let full = WriteError::Overloaded { what: "the set of durable channels", limit: 1 };
    for new in [new_event("n1", 1, &[channel("match:2", 10)]), later_event("e3", after(9), &[channel("match:2", 10)])] {
        assert_eq!(append(&store, new, T0).await, Err(full.into()));
    }
    assert_eq!(channels(&store, T0)[0].top.0, 0);
    assert_eq!(store.release_later(after(9)).await, Ok(2));
    assert_eq!(channels(&store, T0)[0].top.0, 2);
}

/// The server was down when it was due, and for as long as it was worth delivering.
#[tokio::test]
async fn what_is_released_when_its_time_is_over_is_journaled_and_published_nowhere() {
    for (passed, expected) in [(HOUR - Duration::from_millis(1), 1), (HOUR, 0)] {
        let folder = tempfile::tempdir().unwrap();
        let (store, sink) = open(folder.path());
        let due = after(5);
        append(&store, later_event("e1", due, &[channel("match:1", 10)]), T0).await.unwrap();
        assert_eq!(store.release_later(due.saturating_add(passed)).await, Ok(1));
        let event = store.event(JournalPosition(1)).unwrap().unwrap();
        assert_eq!((event.accepted_at, event.published.len()), (due, expected));
        assert_eq!((sink.told().len(), channels(&store, due)[0].publications.len()), (expected + 1, expected));
    }
}

/// While the committer is busy with an import, requests gather and become one batch, in which each sees those before it.
#[tokio::test]
async fn cancelling_several_in_one_batch_leaves_those_that_remain() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    for (name, due) in [("e1", 1), ("e2", 2), ("e3", 3), ("e4", 4)] {
        append(&store, later_event(name, after(due), &[]), T0).await.unwrap();
    }
    let devices = (0..1000).map(|n| import(device(&format!("d{n}"), None), vec![])).collect();
    let cancel = |name: &'static str| {
        let store = store.clone();
        async move { store.cancel_later(&event_id(name)).await.unwrap() }
    };
    let (_, cancelled, of_first, again, released) = tokio::join!(
        store.import_devices(devices, None, T0),
        cancel("e2"),
        cancel("e1"),
        cancel("e2"),
        store.release_later(after(3))
    );
    assert_eq!((cancelled, of_first, again, released), (true, true, false, Ok(1)));
    assert_eq!((journaled(&store), waiting(&store)), (vec!["e3".to_owned()], vec!["e4".to_owned()]));
    assert_eq!((*store.next_later().borrow(), store.counts().later), (Some(after(4)), 1));
}
