//! How long channels in memory live, which of them go when there is no room, and what a sweep looks at.

use super::*;

fn after(seconds: u64) -> Timestamp {
    NOW.saturating_add(Duration::from_secs(seconds))
}

fn publish_at(hub: &Hub, name: &str, now: Timestamp) -> Result<(), HubError> {
    let new = NewPublication { publication: publication(1), skip_history: false };
    hub.publish(&channel(name), new, now).map(drop)
}

fn limit(name: &str, limit: usize, setting: &'static str) -> HubError {
    HubError::ChannelLimit { channel: channel(name), limit, setting }
}

/// Whether the channel remembers that somebody published in it.
fn is_known(hub: &Hub, name: &str) -> bool {
    hub.history(&channel(name), HistoryFilter::default()).unwrap().1.offset > Offset(0)
}

fn known(hub: &Hub, names: impl IntoIterator<Item = &'static str>) -> Vec<&'static str> {
    names.into_iter().filter(|name| is_known(hub, name)).collect()
}

/// How many channels the sweeps of one moment look at.
fn sweep(hub: &Hub, now: Timestamp) -> usize {
    let mut count = 0;
    loop {
        let more = hub.sweep(now);
        count += more;
        assert!(more <= LOOK_COUNT_MAX && count <= 10 * LOOK_COUNT_MAX, "it ends");
        if more < LOOK_COUNT_MAX {
            return count;
        }
    }
}

#[test]
fn a_full_hub_whose_histories_are_over_refuses_no_publication() {
    const COUNT: usize = 500;
    let hub = hub(COUNT);
    let names = |from: usize| (from..from + COUNT).map(|number| format!("kept:{number}"));
    names(0).for_each(|name| publish_at(&hub, &name, NOW).unwrap());
    for (from, now) in [(COUNT, after(60)), (2 * COUNT, after(120))] {
        assert_eq!(
            hub.is_first(&channel("kept:next")).is_ok(),
            from > COUNT,
            "no sweep has seen yet that they are over"
        );
        names(from).for_each(|name| publish_at(&hub, &name, now).unwrap());
        assert_eq!(hub.counts().channels, COUNT);
        assert!(
            names(from).all(|name| is_known(&hub, &name)) && !names(from - COUNT).any(|name| is_known(&hub, &name))
        );
        hub.sweep(after(120));
    }
    assert_eq!(publish_at(&hub, "kept:next", after(179)), Err(limit("kept:next", COUNT, "channels.count_max")));
}

#[test]
fn a_channel_in_use_makes_no_room() {
    let hub = hub(2);
    publish_at(&hub, "kept:kept", after(30)).unwrap();
    let reader = join(&hub, "kept:read", None);
    hub.sweep(after(89));
    let refused = limit("kept:new", 2, "channels.count_max");
    let member = Member::reader(loop_ids(&hub)[0], ClientId::from_random(1), JSON);
    assert_eq!(publish_at(&hub, "kept:new", after(89)), Err(refused.clone()));
    assert_eq!(hub.subscribe(&channel("kept:new"), &member, None).unwrap_err(), refused);
    assert_eq!(hub.is_first(&channel("kept:new")), Err(refused));
    assert_eq!(
        hub.publish(&channel("news"), NewPublication { publication: publication(1), skip_history: false }, NOW),
        Ok(None)
    );

    publish_at(&hub, "kept:read", after(20)).unwrap();
    hub.sweep(after(90));
    assert_eq!(hub.is_first(&channel("kept:new")), Ok(true));
    assert!(is_known(&hub, "kept:kept"), "asking removes nothing");
    join(&hub, "kept:new", None);
    assert_eq!(known(&hub, ["kept:kept", "kept:read"]), ["kept:read"], "it has a reader");
    hub.unsubscribe(&reader.channel, loop_ids(&hub)[0], ClientId::from_random(1), None, JSON);
    publish_at(&hub, "kept:more", after(91)).unwrap();
    assert!(!is_known(&hub, "kept:read"));
}

#[test]
fn the_namespace_with_the_most_channels_makes_room_and_what_was_idle_for_longest_goes() {
    const NAMES: [&str; 6] = ["told:1", "told:2", "kept:1", "kept:2", "kept:3", "kept:4"];
    let hub = hub(6);
    for (second, name) in (0..).zip(["told:1", "kept:2", "kept:1", "told:2", "kept:3", "kept:4"]) {
        publish_at(&hub, name, after(second)).unwrap();
    }
    (60..66).for_each(|second| _ = hub.sweep(after(second)));
    for (new, left) in [
        ("told:3", &["told:1", "told:2", "kept:1", "kept:3", "kept:4"][..]),
        ("told:4", &["told:2", "kept:1", "kept:3", "kept:4"][..]), // There are as many of both, and this one was idle for longest.
        ("told:5", &["told:2", "kept:3", "kept:4"][..]),
        ("told:6", &["kept:3", "kept:4"][..]),
        ("told:7", &["kept:4"][..]), // What is left of the others is in use.
    ] {
        publish_at(&hub, new, after(70)).unwrap();
        assert_eq!(known(&hub, NAMES), left, "{new}");
    }
}

/// Its neighbours do not pay for it, whatever room they take.
#[test]
fn a_full_namespace_makes_room_itself() {
    let hub = hub(10);
    for name in ["kept:1", "kept:2", "kept:3", "few:1", "few:2"] {
        publish_at(&hub, name, NOW).unwrap();
    }
    assert_eq!(publish_at(&hub, "few:3", NOW), Err(limit("few:3", 2, "the namespace's channel_count_max")));
    publish_at(&hub, "few:2", after(1)).unwrap();
    publish_at(&hub, "few:3", after(60)).unwrap();
    assert_eq!(known(&hub, ["kept:1", "kept:2", "kept:3", "few:1", "few:2", "few:3"]).len(), 5);
    assert!(!is_known(&hub, "few:1"));
}

#[test]
fn a_sweep_looks_at_what_is_due_and_at_nothing_else() {
    const COUNT: usize = 10_000;
    let hub = hub(COUNT);
    let names: Vec<_> = (0..COUNT).map(|number| format!("kept:{number}")).collect();
    names.iter().for_each(|name| publish_at(&hub, name, NOW).unwrap());
    assert_eq!((sweep(&hub, NOW), sweep(&hub, after(59))), (COUNT, 0));
    for name in &names[..10] {
        (1..50).for_each(|second| publish_at(&hub, name, after(second)).unwrap());
    }
    assert_eq!((sweep(&hub, after(59)), hub.history_bytes() > 0), (0, true));
    assert_eq!(sweep(&hub, after(60)), COUNT, "10 of them are put back at their new time");
    assert_eq!((sweep(&hub, after(108)), sweep(&hub, after(109)), hub.history_bytes()), (0, 10, 0));
    let reader = join(&hub, &names[0], None);
    hub.unsubscribe(&reader.channel, loop_ids(&hub)[0], ClientId::from_random(1), None, JSON);
    assert_eq!((sweep(&hub, after(200)), sweep(&hub, after(200))), (1, 0), "one was left");
    assert_eq!((sweep(&hub, after(659)), sweep(&hub, after(660)), hub.counts().channels), (0, COUNT - 10, 10));
    assert_eq!((sweep(&hub, after(709)), sweep(&hub, after(800)), hub.counts().channels), (9, 1, 0));
}

/// Small histories stay while somebody fills channels with large publications.
#[test]
fn histories_have_a_budget_and_the_largest_pay_first() {
    const BYTES_MAX: usize = 512 << 10;
    let hub = hub_within(10_000, usize::MAX, BYTES_MAX);
    let publish = |name: &str, bytes: usize, second| {
        let publication = Publication { data: Json::of(&"x".repeat(bytes)), ..publication(1) };
        let new = NewPublication { publication, skip_history: false };
        hub.publish(&channel(name), new, after(second)).unwrap().unwrap()
    };
    let small: Vec<_> = (0..100).map(|number| format!("kept:small-{number}")).collect();
    let tops: Vec<_> = small.iter().map(|name| publish(name, 10, 0)).collect();
    for second in 1..50 {
        publish("kept:hog", 20_000, second);
        publish(&format!("kept:new-{second}"), 30_000, second);
        assert!(hub.history_bytes() <= BYTES_MAX);
    }
    assert!(hub.histories_cut() > 0);
    let kept = |name: &str| hub.history(&channel(name), HistoryFilter::default()).unwrap();
    for (name, top) in small.iter().zip(&tops) {
        let (publications, at) = kept(name);
        assert_eq!((publications.len(), &at), (1, top), "{name}");
    }
    let (publications, top) = kept("kept:hog");
    assert!(publications.len() < 40 && publications.last().is_none_or(|last| last.offset == top.offset));
    assert_eq!(top.offset, Offset(49), "its position stays");
    assert!(kept("kept:new-49").0.len() == 1 && kept("kept:new-1").0.is_empty(), "of one size the oldest goes first");
}

#[test]
fn a_position_outlives_its_history_and_its_readers_for_the_time_that_is_set() {
    let hub = hub(10);
    publish_at(&hub, "kept:1", NOW).unwrap();
    let from = |at: StreamPosition| ResumeFrom {
        offset: at.offset,
        epoch: Some(at.epoch.as_str().to_owned()),
        limit: 10.into(),
        is_required: false,
    };
    let leave = |reader: Subscribed| {
        hub.unsubscribe(&reader.channel, loop_ids(&hub)[0], ClientId::from_random(1), None, JSON);
        reader.recovery
    };
    let (_, first) = hub.history(&channel("kept:1"), HistoryFilter::default()).unwrap();
    hub.sweep(after(60));
    hub.sweep(after(659));
    let recovery = leave(join(&hub, "kept:1", Some(from(first))));
    assert!(matches!(recovery, Some(Recovery::Recovered(missed)) if missed.is_empty()));
    hub.sweep(after(660));
    hub.sweep(after(1259));
    assert_eq!(hub.counts().channels, 1, "its time begins when the last reader has left");
    hub.sweep(after(1260));
    assert_eq!(hub.counts().channels, 0);
    let mut lives = vec![first];
    for life in 1..100 {
        let came = after(2000 * life);
        publish_at(&hub, "kept:1", came).unwrap();
        for position in &lives {
            let recovery = leave(join(&hub, "kept:1", Some(from(*position))));
            assert!(matches!(recovery, Some(Recovery::Gap(_))), "it is offset 1 of another epoch");
        }
        lives.push(hub.history(&channel("kept:1"), HistoryFilter::default()).unwrap().1);
        [0, 60, 660].iter().for_each(|seconds| _ = hub.sweep(came.saturating_add(Duration::from_secs(*seconds))));
    }
    assert!(lives.iter().all(|life| life.offset == Offset(1)));
}
