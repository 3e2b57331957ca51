//! What a node reports, and what others make of it.

use super::*;

fn device(number: u32) -> DeviceNumber {
    DeviceNumber(number)
}

fn report() -> Report {
    Report::default()
}

/// On the wire and back.
fn sent(report: Report) -> Report {
    let text = serde_json::to_vec(&report).unwrap();
    let read: Report = serde_json::from_slice(&text).unwrap();
    assert_eq!(read, report);
    read
}

/// Reports that have begun, and have told that there is nothing.
fn begun() -> Reports {
    let reports = Reports::default();
    reports.begin();
    assert_eq!(reports.take(), Some(Report { is_whole: true, ..report() }));
    reports
}

#[test]
fn nothing_is_collected_before_it_begins() {
    let reports = Reports::default();
    reports.on_connected(device(1));
    reports.on_visible(device(1), true);
    reports.on_event(JournalPosition(1), |event| event.written += 1);
    assert_eq!(reports.take(), None);
}

#[test]
fn a_device_comes_with_its_first_connection_and_goes_with_its_last_one() {
    let reports = begun();
    reports.on_connected(device(1));
    reports.on_connected(device(1));
    reports.on_connected(device(2));
    assert_eq!(reports.take(), Some(Report { came: vec![1, 2], ..report() }));
    assert_eq!(reports.take(), None);
    reports.on_gone(device(1));
    assert_eq!(reports.take(), None, "its other connection is still there");
    reports.on_gone(device(1));
    reports.on_connected(device(3));
    assert_eq!(sent(reports.take().unwrap()), Report { came: vec![3], gone: vec![1], ..report() });
    reports.on_gone(device(2));
    reports.on_connected(device(2));
    assert_eq!(reports.take(), None, "it is there again");
}

#[test]
fn a_device_that_is_announced_counts_as_connected_and_visible_until_its_time_is_over() {
    let reports = begun();
    for number in 1..=3 {
        reports.announce(device(number), Timestamp(100));
    }
    let report = || Report { announcement: 3, ..report() };
    assert_eq!(reports.take(), Some(Report { came: vec![1, 2, 3], shown: vec![1, 2, 3], ..report() }));
    reports.on_connected(device(1));
    reports.on_visible(device(1), true);
    reports.on_connected(device(2));
    reports.on_gone(device(2));
    reports.sweep(Timestamp(99));
    assert_eq!(reports.take(), None, "a client has left, and another one may come");
    reports.on_visible(device(1), false);
    reports.settle(device(1));
    assert_eq!(reports.take(), Some(Report { hidden: vec![1], ..report() }), "it is let in, and not on the screen");
    reports.on_gone(device(1));
    assert_eq!(reports.take(), Some(Report { gone: vec![1], ..report() }), "it is gone at once");
    reports.sweep(Timestamp(100));
    assert_eq!(reports.take(), Some(Report { gone: vec![2, 3], hidden: vec![2, 3], ..report() }));
}

#[test]
fn a_node_knows_of_a_device_that_another_one_announces_before_it_is_reported() {
    let elsewhere = Elsewhere::default();
    elsewhere.announce(7, &[1], 1);
    assert_eq!(elsewhere.all(), Default::default(), "nobody knows that node");
    elsewhere.take(7, &Report { is_whole: true, ..report() });
    elsewhere.announce(7, &[1, 2], 2);
    assert_eq!(elsewhere.all(), ([1, 2].into(), [1, 2].into()));
    elsewhere.take(7, &Report { gone: vec![2], hidden: vec![1, 2], announcement: 2, ..report() });
    assert_eq!(elsewhere.all(), ([1].into(), RoaringBitmap::new()));
}

/// A client comes back on its device: the report that the one before is gone comes after the announcement of the next one.
#[test]
fn a_report_that_was_made_before_an_announcement_takes_nothing_of_it_back() {
    let (reports, elsewhere) = (begun(), Elsewhere::default());
    elsewhere.take(7, &Report { is_whole: true, ..report() });
    reports.on_connected(device(1));
    reports.on_visible(device(1), true);
    elsewhere.take(7, &sent(reports.take().unwrap()));
    reports.on_gone(device(1));
    reports.on_visible(device(1), false);
    let late = reports.take().unwrap();
    let number = reports.announce(device(1), Timestamp(100));
    elsewhere.announce(7, &[1], number);
    for late in [&late, &Report { is_whole: true, ..late.clone() }] {
        elsewhere.take(7, late);
        assert_eq!(elsewhere.all(), ([1].into(), [1].into()));
    }
    let next = reports.take().unwrap();
    elsewhere.take(7, &sent(next));
    reports.sweep(Timestamp(100)); // It is not let in.
    elsewhere.take(7, &reports.take().unwrap());
    assert_eq!(elsewhere.all(), Default::default());
}

#[test]
fn a_device_is_shown_and_hidden() {
    let reports = begun();
    for (is_visible, shown, hidden) in [(true, vec![1], vec![]), (false, vec![], vec![1])] {
        reports.on_visible(device(1), is_visible);
        reports.on_visible(device(1), is_visible);
        assert_eq!(reports.take(), Some(Report { shown, hidden, ..report() }));
    }
}

#[test]
fn a_whole_report_has_all_devices() {
    let reports = begun();
    reports.on_connected(device(1));
    reports.on_visible(device(1), true);
    assert!(reports.take().is_some());
    reports.on_gone(device(2)); // It was never here.
    reports.forget();
    let whole = Report { is_whole: true, came: vec![1], shown: vec![1], ..report() };
    assert_eq!(reports.take().map(sent), Some(whole));
    assert_eq!(reports.take(), None);
    // A node that no longer leads reports the devices that have been there all the time.
    reports.end();
    reports.on_event(JournalPosition(1), |event| event.written += 1);
    reports.on_connected(device(2));
    reports.begin();
    assert_eq!(reports.take().map(|report| (report.came, report.events)), Some((vec![1, 2], vec![])));
}

#[test]
fn what_is_received_is_collected_by_event_and_the_oldest_event_goes() {
    let reports = begun();
    let count = EVENT_COUNT_MAX as u64 + 2;
    for position in (0..count).rev() {
        reports.on_event(JournalPosition(position), |event| event.written += 1);
    }
    reports.on_event(JournalPosition(count - 1), |event| event.readers.push(7));
    let events = reports.take().unwrap().events;
    assert_eq!((events.len(), events[0].event), (EVENT_COUNT_MAX, JournalPosition(2)));
    let last = EventReport { event: JournalPosition(count - 1), written: 1, readers: vec![7], answers: vec![] };
    assert_eq!(events.last(), Some(&last));
    assert_eq!(reports.take(), None);
}

#[test]
fn a_report_is_the_same_after_the_wire() {
    let answer = |user: &str, device, has_resumed: bool| {
        let (user, client) = (user.into(), ClientId::from_random(7));
        Answer { user, device, is_visible: !has_resumed, client, at: Timestamp(9), has_resumed }
    };
    let answers = vec![answer("ann", Some(device(4)), false), answer("", None, true)];
    let event = EventReport { event: JournalPosition(u64::MAX), written: 2, readers: vec![4, u32::MAX], answers };
    let (came, gone, shown, hidden) = (vec![1], vec![2], vec![3], vec![4]);
    let full = Report { is_whole: true, came, gone, shown, hidden, announcement: 0, events: vec![event] };
    assert!(full.weight() >= serde_json::to_vec(&full).unwrap().len() / 2);
    sent(full);
    sent(report());
}

#[test]
fn a_node_is_known_from_its_first_whole_report_until_one_may_be_lost() {
    let elsewhere = Elsewhere::default();
    let of = |devices: &RoaringBitmap| devices.iter().collect::<Vec<_>>();
    assert!(!elsewhere.take(1, &Report { came: vec![1], ..report() }));
    assert!(!elsewhere.knows(1) && elsewhere.all().0.is_empty());
    assert!(elsewhere.take(1, &Report { is_whole: true, came: vec![1, 2], shown: vec![2], ..report() }));
    assert!(elsewhere.take(2, &Report { is_whole: true, came: vec![2, 3], ..report() }));
    assert!(elsewhere.take(1, &Report { gone: vec![1, 2], hidden: vec![2], ..report() }));
    assert!(elsewhere.knows(1) && elsewhere.knows(2) && !elsewhere.knows(3));
    assert_eq!(
        (of(&elsewhere.all().0), of(&elsewhere.all().1)),
        (vec![2, 3], vec![]),
        "2 is connected to the other node"
    );
    elsewhere.forget(2);
    elsewhere.forget(3);
    assert!(!elsewhere.knows(2) && !elsewhere.take(2, &Report { came: vec![4], ..report() }));
    assert_eq!(of(&elsewhere.all().0), [2, 3, 4], "what is known may answer");
    assert!(elsewhere.take(2, &Report { is_whole: true, came: vec![4], ..report() }) && elsewhere.knows(2));
    elsewhere.retain(&[1]);
    assert!(elsewhere.knows(1) && !elsewhere.knows(2) && elsewhere.all().0.is_empty());
}

#[test]
fn what_comes_early_waits_for_its_event_and_not_for_ever() {
    let (mut early, budget) = (Early::default(), Budget::new(usize::MAX));
    let of = |position| EventReport { event: JournalPosition(position), ..EventReport::default() };
    let count = EARLY_EVENT_COUNT_MAX as u64;
    (0..=count).for_each(|position| early.put(of(position), &budget));
    early.put(of(count), &budget);
    assert_eq!(early.take(JournalPosition(0)), [], "the oldest one goes");
    assert_eq!(early.take(JournalPosition(count)).len(), 2);
    assert_eq!(early.take(JournalPosition(count)), []);
    let later = |seconds| Timestamp(5_000).saturating_add(std::time::Duration::from_secs(seconds));
    early.sweep(later(0));
    early.put(of(count), &budget);
    early.sweep(later(59));
    assert_eq!(early.0.len(), EARLY_EVENT_COUNT_MAX);
    early.sweep(later(60));
    assert_eq!(early.0.len(), 1, "it came later");
    early.sweep(later(119));
    assert!(early.0.is_empty());
    assert_eq!(budget.used(), 0);
}
