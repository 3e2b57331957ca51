//! Deadlines, back-off and silence, on a paused clock.

use std::time::Duration;

use bytes::BytesMut;
use tidings_pool::{Codec, Decoded, Expect, Matching, Outgoing, Pool, Protocol, Reconnect, RequestId, Violation};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::line::*;

const MILLI: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn a_deadline_is_kept_and_the_late_answer_is_discarded() {
    let (pool, mut peer, ..) = pair(config(1)).await;
    let begun = Instant::now();
    assert_eq!(pool.call(ask("slow"), SECOND).await, Err(Error::Timeout { sent: true }));
    let took = begun.elapsed();
    assert!((SECOND..=SECOND + 2 * MILLI).contains(&took), "{took:?}");
    assert_eq!(pool.counters().tombstones, 1);

    let service = async {
        assert_eq!(peer.hear_many(2).await, ["slow", "quick"]);
        peer.say_bytes(b"late\nin time\n").await;
    };
    let (quick, ()) = tokio::join!(pool.call(ask("quick"), SECOND), service);
    assert_eq!(quick.unwrap(), "in time");
    let counters = pool.counters();
    assert_eq!((counters.late, counters.tombstones, counters.timed_out, counters.answered), (1, 0, 1, 1));
    check(counters);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_the_pipeline_expires() {
    let mut config = config(1);
    config.in_flight_max = 1;
    config.tombstone_max = 1;
    let (pool, mut peer, ..) = pair(config).await;
    let (first, second) = tokio::join!(pool.call(ask("a"), MINUTE / 4), pool.call(ask("b"), SECOND));
    assert_eq!(second, Err(Error::Timeout { sent: false }));
    assert_eq!(first, Err(Error::Timeout { sent: true }));
    assert_eq!(peer.hear().await.unwrap(), "a");
    assert_eq!(peer.hear().await, None, "b was never written");
    check(pool.counters());
}

#[tokio::test(start_paused = true)]
async fn every_timeout_from_a_millisecond_to_an_hour_is_kept() {
    let mut config = config(1);
    config.tombstone_max = 100;
    config.in_flight_max = 100;
    config.silence_max = MINUTE * 600;
    let (pool, _peer, ..) = pair(config).await;
    let mut calls = JoinSet::new();
    for bits in 0..22 {
        for extra in [0, 1, 7] {
            let timeout = MILLI * ((1 << bits) + extra);
            let pool = pool.clone();
            calls.spawn(async move {
                let begun = Instant::now();
                let result = pool.call(ask("x"), timeout).await;
                assert_eq!(result, Err(Error::Timeout { sent: true }));
                let late = begun.elapsed() - timeout;
                assert!(late <= 2 * MILLI, "{timeout:?} ended {late:?} late");
            });
        }
    }
    calls.join_all().await;
    check(pool.counters());
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_zero_and_the_longest_timeout() {
    let (pool, peer, ..) = pair(config(1)).await;
    assert!(matches!(pool.call(ask("x"), Duration::ZERO).await, Err(Error::Timeout { .. })));
    let mut echo = JoinSet::new();
    echo.spawn(peer.echo());
    assert_eq!(pool.call(ask("y"), Duration::MAX).await.unwrap(), "y");
}

#[tokio::test(start_paused = true)]
async fn while_no_connection_is_up_requests_fail_at_once_and_attempts_back_off() {
    let (gate, mut peers, control) = Gate::new();
    control.set_refuses(true);
    let pool = Pool::start(config(1), Line::default(), gate).unwrap();
    assert_eq!(pool.call(ask("with the first attempt"), SECOND).await, Err(Error::Unavailable));
    let begun = Instant::now();
    assert_eq!(pool.call(ask("after it"), SECOND).await, Err(Error::Unavailable));
    assert_eq!(begun.elapsed(), Duration::ZERO);
    tokio::time::sleep(MINUTE * 10).await;

    let attempts = control.attempts();
    let waits: Vec<_> = attempts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mut window = MILLI * 100;
    for wait in &waits {
        window = (window * 2).min(SECOND * 10);
        assert!((MILLI * 100..=window + 2 * MILLI).contains(wait), "{wait:?} with a window of {window:?}");
    }
    assert!((60..=300).contains(&waits.len()), "{} attempts in ten minutes", waits.len());
    assert!(waits[10..].iter().any(|wait| *wait < SECOND * 3), "no jitter: {waits:?}");
    assert!(waits[10..].iter().any(|wait| *wait > SECOND * 7), "no back-off: {waits:?}");

    control.set_refuses(false);
    let mut echo = JoinSet::new();
    echo.spawn(peers.recv().await.unwrap().echo());
    until(&pool, |counters| counters.connected == 1).await;
    assert_eq!(pool.call(ask("back"), SECOND).await.unwrap(), "back");
    let counters = pool.counters();
    assert_eq!((counters.abandoned, counters.unavailable, counters.answered), (1, 1, 1));
    check(counters);
}

#[tokio::test(start_paused = true)]
async fn the_pool_backs_off_from_a_peer_that_accepts_and_closes() {
    let (gate, mut peers, control) = Gate::new();
    let pool = Pool::start(config(1), Line::default(), gate).unwrap();
    let mut slams = JoinSet::new();
    slams.spawn(async move { while peers.recv().await.is_some() {} });
    tokio::time::sleep(MINUTE * 10).await;
    let count = control.attempts().len();
    assert!((60..=300).contains(&count), "{count} attempts in ten minutes");
    assert_eq!(pool.counters().disconnects, pool.counters().connects);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_never_ends_times_out() {
    let (gate, _peers, control) = Gate::new();
    let pool = Pool::start(config(1), Line { greets: true }, gate).unwrap(); // Nobody says welcome.
    let begun = Instant::now();
    assert_eq!(pool.call(ask("x"), MINUTE).await, Err(Error::Unavailable));
    assert_eq!(begun.elapsed().as_millis() / 10, 100); // connect_timeout
    assert_eq!((pool.counters().connect_failures, control.attempts().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_set_up_exchange_comes_first_and_can_fail() {
    let (gate, mut peers, _) = Gate::new();
    let pool = Pool::start(config(1), Line { greets: true }, gate).unwrap();
    let service = async {
        let mut wrong = peers.recv().await.unwrap();
        assert_eq!(wrong.hear().await.unwrap(), "hello");
        wrong.say("go away").await;
        assert_eq!(wrong.hear().await, None);
        let mut right = peers.recv().await.unwrap();
        assert_eq!(right.hear().await.unwrap(), "hello");
        right.say_bytes(b"wel").await;
        right.say_bytes(b"come\n").await;
        right
    };
    let (early, mut right) = tokio::join!(pool.call(ask("early"), SECOND), service);
    assert_eq!(early, Err(Error::Unavailable));
    until(&pool, |counters| counters.connected == 1).await;
    pool.tell(ask("later"), SECOND).unwrap();
    assert_eq!(right.hear().await.unwrap(), "later");
    let counters = pool.counters();
    assert_eq!((counters.connects, counters.connect_failures), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn silence_ends_a_connection() {
    let mut config = config(1);
    config.silence_max = SECOND * 20;
    let (pool, mut peer, mut peers, _) = pair(config).await;
    tokio::time::sleep(MINUTE).await; // Silence that nobody minds.
    assert_eq!(pool.counters().disconnects, 0);
    let begun = Instant::now();
    let service = async {
        assert_eq!(peer.hear().await.unwrap(), "a");
        tokio::time::sleep(SECOND * 15).await;
        peer.say("# still there").await; // Counts as life.
        assert_eq!(peer.hear().await, None);
        drop(peer);
        peers.recv().await.unwrap()
    };
    let (lost, _next) = tokio::join!(pool.call(ask("a"), MINUTE), service);
    assert_eq!(lost, Err(Error::Lost));
    let took = begun.elapsed();
    assert!((SECOND * 35..SECOND * 36).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_large_request_to_a_slow_reader_is_not_silence() {
    let large = ask("x".repeat(4096 * 10 - 1));
    for request in [large.clone(), large.one_way()] {
        let mut config = config(1);
        config.silence_max = SECOND * 2;
        let (pool, mut peer, ..) = pair(config).await;
        let expected = if request.is_one_way { "gone" } else { "at last" };
        let service = async {
            let mut heard = vec![0; 4096];
            for _ in 0..10 {
                tokio::time::sleep(SECOND).await;
                tokio::io::AsyncReadExt::read_exact(&mut peer.io, &mut heard).await.unwrap();
            }
            if expected == "at last" {
                peer.say("at last").await;
            }
        };
        let (answer, ()) = tokio::join!(pool.call(request, MINUTE), service);
        assert_eq!(answer.unwrap(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn too_many_tombstones_end_a_connection() {
    let (pool, mut peer, mut peers, _) = pair(config(1)).await;
    let (tx, mut rx) = mpsc::channel(20);
    for n in 0..5 {
        pool.cast(ask("x"), SECOND * (n + 1), n.into(), &tx).unwrap();
    }
    pool.cast(ask("kept").repeatable(), MINUTE, 5, &tx).unwrap();
    let begun = Instant::now();
    peer.hear_many(6).await;
    assert_eq!(peer.hear().await, None);
    let took = begun.elapsed();
    assert!((SECOND * 5..SECOND * 5 + 5 * MILLI).contains(&took), "{took:?}");
    for _ in 0..5 {
        assert_eq!(rx.recv().await.unwrap().result, Err(Error::Timeout { sent: true }));
    }
    // There is no other connection, and the pool does not reconnect at once after such an end.
    assert_eq!(rx.recv().await.unwrap().result, Err(Error::Lost));
    let mut next = peers.recv().await.unwrap();
    until(&pool, |counters| counters.connected == 1).await;
    pool.tell(ask("y"), SECOND).unwrap();
    assert_eq!(next.hear().await.unwrap(), "y");
    check(pool.counters());
}

#[tokio::test(start_paused = true)]
async fn a_repeated_request_keeps_its_deadline() {
    let (gate, mut peers, _) = Gate::new();
    let pool = Pool::start(config(2), Line::default(), gate).unwrap();
    let (mut one, mut two) = (peers.recv().await.unwrap(), peers.recv().await.unwrap());
    until(&pool, |counters| counters.connected == 2).await;
    let begun = Instant::now();
    let service = async {
        let is_one = tokio::select! {
            line = one.hear() => { assert_eq!(line.unwrap(), "x"); true }
            line = two.hear() => { assert_eq!(line.unwrap(), "x"); false }
        };
        tokio::time::sleep(SECOND * 7).await;
        let mut other = if is_one {
            drop(one);
            two
        } else {
            drop(two);
            one
        };
        assert_eq!(other.hear().await.unwrap(), "x");
        other // Says nothing.
    };
    let (result, _other) = tokio::join!(pool.call(ask("x").repeatable(), SECOND * 10), service);
    assert_eq!(result, Err(Error::Timeout { sent: true }));
    let took = begun.elapsed();
    assert!((SECOND * 10..=SECOND * 10 + 3 * MILLI).contains(&took), "{took:?}");
    assert_eq!(pool.counters().repeated, 1);
    check(pool.counters());
}

#[tokio::test(start_paused = true)]
async fn input_without_an_answer_is_bounded() {
    let mut config = config(1);
    config.input_bytes_max = 2000;
    let (pool, mut peer, ..) = pair(config).await;
    let service = async {
        peer.hear().await.unwrap();
        peer.say_bytes(&[b'x'; 4000]).await;
        assert_eq!(peer.hear().await, None);
    };
    let (result, ()) = tokio::join!(pool.call(ask("x"), SECOND), service);
    let Err(Error::Violation(Violation::Oversized { bytes, limit: 2000 })) = result else { panic!("{result:?}") };
    assert!(bytes > 2000);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_no_bytes_is_silent_too() {
    let (pool, _peer, ..) = pair(config(1)).await;
    let begun = Instant::now();
    while pool.counters().disconnects == 0 {
        assert!(begun.elapsed() < MINUTE, "{:?}", pool.counters());
        let _ = pool.call(ask("x".repeat(300_000)).one_way(), SECOND).await;
    }
    assert!(begun.elapsed() >= SECOND * 30);
}

/// A protocol with ids. The peer never answers.
struct Ids;

impl Protocol for Ids {
    type Request = ();
    type Response = ();
    type Error = BadLine;
    type Codec = Self;

    fn codec(&self) -> Self {
        Self
    }

    fn matching(&self) -> Matching {
        Matching::ById { id_count: 1 << 16 }
    }
}

impl Codec<Self> for Ids {
    fn encode(&mut self, (): &(), id: RequestId, out: &mut Outgoing) -> Result<Expect<()>, BadLine> {
        out.put_slice(&id.to_be_bytes());
        Ok(Expect::Answer)
    }

    fn decode(&mut self, _: Option<&()>, _: &mut BytesMut) -> Result<Decoded<()>, BadLine> {
        Ok(Decoded::Incomplete)
    }
}

#[tokio::test(start_paused = true)]
async fn silence_counts_for_requests_that_have_expired_and_were_forgotten() {
    let (gate, mut peers, _) = Gate::new();
    let pool = Pool::start(config(1), Ids, gate).unwrap();
    let _peer = peers.recv().await.unwrap();
    until(&pool, |counters| counters.connected == 1).await;
    let begun = Instant::now();
    while pool.counters().disconnects == 0 {
        assert!(begun.elapsed() < MINUTE, "{:?}", pool.counters());
        assert!(pool.call((), SECOND).await.is_err());
        tokio::time::sleep(SECOND).await;
    }
    assert!(begun.elapsed() >= SECOND * 30);
}

#[tokio::test(start_paused = true)]
async fn a_wanted_connection_ends_a_long_pause() {
    let (gate, mut peers, control) = Gate::new();
    control.set_refuses(true);
    let mut config = config(1);
    config.reconnect = Reconnect { min: MILLI * 100, max: MINUTE * 60 };
    let pool = Pool::start(config, Line::default(), gate).unwrap();
    tokio::time::sleep(MINUTE * 600).await; // Each pause is one of up to an hour by now.
    control.set_refuses(false);
    let begun = Instant::now();
    pool.reconnect();
    peers.recv().await.unwrap();
    assert!(begun.elapsed() <= MILLI * 110, "after the shortest pause: {:?}", begun.elapsed());
    until(&pool, |counters| counters.connected == 1).await;
}
