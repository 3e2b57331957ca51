//! Peers that break the protocol, stall or close the connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tidings_pool::{Connect, Pool, Transport, Violation};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::line::*;

/// A pool of two connections with both peers. The first peer to hear something comes first.
async fn two(config_of: impl FnOnce(&mut tidings_pool::PoolConfig)) -> (Pool<Line>, [Peer; 2], mpsc::Receiver<Peer>) {
    let (gate, mut peers, _) = Gate::new();
    let mut settings = config(2);
    settings.strategy = tidings_pool::Strategy::RoundRobin;
    config_of(&mut settings);
    let pool = Pool::start(settings, Line::default(), gate).unwrap();
    let both = [peers.recv().await.unwrap(), peers.recv().await.unwrap()];
    until(&pool, |counters| counters.connected == 2).await;
    (pool, both, peers)
}

#[tokio::test(start_paused = true)]
async fn a_malformed_answer_fails_all_written_requests_of_the_connection() {
    let mut settings = config(1);
    settings.in_flight_max = 3;
    let (pool, mut peer, mut peers, _) = pair(settings).await;
    let (tx, mut rx) = mpsc::channel(20);
    for n in 0..5 {
        pool.cast(ask(format!("{n}")).repeatable(), SECOND, n, &tx).unwrap();
    }
    peer.hear_many(3).await;
    peer.say_bytes(b"0\n! nonsense\n1\n").await;
    assert_eq!(rx.recv().await.unwrap().result.unwrap(), "0");
    // 1 and 2 were in flight, and perhaps 3, after 0 was answered. Unwritten requests do not fail.
    let violation = Err(Error::Violation(Violation::Malformed(BadLine("! nonsense".into()))));
    for n in 1..3 {
        let answer = rx.recv().await.unwrap();
        assert_eq!((answer.tag, answer.result), (n, violation.clone()));
    }
    for _ in 3..5 {
        assert_eq!(rx.recv().await.unwrap().result, Err(Error::Unavailable)); // No other connection.
    }
    drop(peer);
    let mut echo = JoinSet::new();
    echo.spawn(peers.recv().await.unwrap().echo());
    until(&pool, |counters| counters.connected == 1).await;
    assert_eq!(pool.call(ask("again"), SECOND).await.unwrap(), "again");
    check(pool.counters());
}

#[tokio::test(start_paused = true)]
async fn unwritten_requests_go_on_after_a_malformed_answer() {
    let (pool, [mut one, two], _peers) = two(|settings| {
        settings.in_flight_max = 1;
        settings.tombstone_max = 1;
    })
    .await;
    let mut echo = JoinSet::new();
    echo.spawn(two.echo());
    let (tx, mut rx) = mpsc::channel(20);
    for n in 0..6 {
        pool.cast(ask(format!("{n}")), SECOND, n, &tx).unwrap();
    }
    one.hear().await.unwrap();
    one.say("! nonsense").await;
    let (mut answered, mut violated) = (0, 0);
    for _ in 0..6 {
        match rx.recv().await.unwrap().result {
            Ok(_) => answered += 1,
            Err(Error::Violation(_)) => violated += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((answered, violated), (5, 1));
    check(pool.counters());
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_request_ends_the_connection() {
    let (pool, mut peer, mut peers, _) = pair(config(1)).await;
    peer.say("surprise").await;
    assert_eq!(peer.hear().await, None);
    peers.recv().await.unwrap();
    assert_eq!(pool.counters().disconnects, 1);

    let (pool, mut peer, ..) = pair(config(1)).await;
    let service = async {
        peer.hear().await.unwrap();
        peer.say_bytes(b"A\nand more\n").await;
    };
    let (a, ()) = tokio::join!(pool.call(ask("a"), SECOND), service);
    assert_eq!(a.unwrap(), "A", "a correct answer stays correct");
    until(&pool, |counters| counters.disconnects == 1).await;
}

#[tokio::test(start_paused = true)]
async fn when_a_connection_is_lost_only_repeatable_requests_go_to_another() {
    let (pool, [mut one, mut two], _peers) = two(|_| ()).await;
    let (tx, mut rx) = mpsc::channel(20);
    for n in 0..6 {
        // Round-robin puts 0, 2, 4 on one connection and 1, 3, 5 on the other.
        let request = ask(format!("{n}"));
        pool.cast(if n < 2 { request } else { request.repeatable() }, SECOND, n, &tx).unwrap();
    }
    let (firsts, _) = (one.hear_many(3).await, two.hear_many(3).await);
    let first = firsts[0].clone();
    one.say_bytes(format!("{first}\nhalf an ans").as_bytes()).await;
    drop(one);
    assert_eq!(rx.recv().await.unwrap().result.unwrap(), first);
    for _ in 0..3 {
        assert!(
            tokio::time::timeout(SECOND / 10, two.hear()).await.is_err(),
            "the repeated request does not travel alone"
        );
        two.say("?").await;
        rx.recv().await.unwrap().result.unwrap();
    }
    for repeated in &firsts[1..] {
        assert_eq!(two.hear().await.as_ref(), Some(repeated), "the order changed");
        assert!(tokio::time::timeout(SECOND / 10, two.hear()).await.is_err(), "the next request did not wait");
        two.say(repeated).await;
        assert_eq!(rx.recv().await.unwrap().result.as_ref(), Ok(repeated));
    }
    let counters = pool.counters();
    assert_eq!((counters.repeated, counters.answered, counters.lost), (2, 6, 0));
    check(counters);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_may_not_be_repeated_is_lost() {
    let (pool, [mut one, mut two], _peers) = two(|_| ()).await;
    let service = async {
        let other = tokio::select! {
            _ = one.hear() => { drop(one); &mut two }
            _ = two.hear() => { drop(two); &mut one }
        };
        assert!(tokio::time::timeout(SECOND * 2, other.hear()).await.is_err(), "it was repeated");
    };
    let (a, ()) = tokio::join!(pool.call(ask("a"), SECOND), service);
    assert_eq!(a, Err(Error::Lost));
    check(pool.counters());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_ends_its_connection_is_not_repeated_without_end() {
    let (gate, mut peers, _) = Gate::new();
    let pool = Pool::start(config(10), Line::default(), gate).unwrap();
    let mut services = JoinSet::new();
    for _ in 0..10 {
        let mut peer = peers.recv().await.unwrap();
        services.spawn(async move { peer.hear().await.is_some() });
    }
    until(&pool, |counters| counters.connected == 10).await;
    assert_eq!(pool.call(ask("poison").repeatable(), SECOND).await, Err(Error::Lost));
    assert_eq!(pool.counters().sent, 3, "one time and repeat_max repeats");
    assert_eq!(pool.counters().connected, 7);
    check(pool.counters());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_renews_its_connections_costs_no_request() {
    let (gate, mut peers, control) = Gate::new();
    let pool = Pool::start(config(1), Line::default(), gate).unwrap();
    let mut services = JoinSet::new();
    services.spawn(async move {
        // Each connection gives five answers, and the last one announces the end.
        while let Some(mut peer) = peers.recv().await {
            for n in 0..5 {
                let Some(line) = peer.hear().await else { break };
                peer.say(&if n < 4 { line } else { format!("last {line}") }).await;
            }
        }
    });
    let mut calls = JoinSet::new();
    for n in 0..100 {
        let pool = pool.clone();
        calls.spawn(async move { pool.call(ask(format!("{n}")).repeatable(), SECOND).await == Ok(format!("{n}")) });
    }
    assert!(calls.join_all().await.iter().all(|is_right| *is_right));
    let counters = pool.counters();
    assert_eq!((counters.answered, control.attempts().len() >= 20), (100, true));
    check(counters);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_costs_bounded_memory_and_keeps_deadlines() {
    let mut settings = config(1);
    settings.output_bytes_max = 10_000;
    settings.in_flight_max = 100;
    settings.tombstone_max = 100;
    let (pool, _peer, ..) = pair(settings).await; // It reads nothing.
    let (tx, mut rx) = mpsc::channel(200);
    let mut full = 0;
    for n in 0..150 {
        full += usize::from(pool.cast(ask("x".repeat(1000)), SECOND, n, &tx).is_err());
    }
    assert_eq!(full, 50);
    until(&pool, |counters| counters.in_flight > 0).await;
    assert!(pool.counters().in_flight <= 16, "more than the pipe and output_bytes_max: {:?}", pool.counters());
    for _ in 0..100 {
        assert!(matches!(rx.recv().await.unwrap().result, Err(Error::Timeout { .. })));
    }
    let counters = until(&pool, |counters| counters.held == 0).await;
    assert_eq!(counters.timed_out, 100);
    check(counters);
}

#[tokio::test(start_paused = true)]
async fn answers_in_the_wrong_order_go_to_the_requests_in_order() {
    // An ordered protocol cannot detect it. Each request gets the answer at its position.
    let (pool, mut peer, ..) = pair(config(1)).await;
    let service = async {
        peer.hear_many(2).await;
        peer.say_bytes(b"b\na\n").await;
    };
    let (a, b, ()) = tokio::join!(pool.call(ask("a"), SECOND), pool.call(ask("b"), SECOND), service);
    assert_eq!((a.unwrap().as_str(), b.unwrap().as_str()), ("b", "a"));
}

/// Accepts one write. The second write fails, and only then the peer's bytes can be read.
#[derive(Default)]
struct HungUp {
    writes: usize,
    has_read: bool,
}

impl Transport for HungUp {}

impl AsyncRead for HungUp {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.writes < 2 {
            return Poll::Pending;
        }
        if !std::mem::replace(&mut self.has_read, true) {
            buffer.put_slice(b"A\n");
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for HungUp {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.writes += 1;
        Poll::Ready(if self.writes == 1 { Ok(bytes.len()) } else { Err(io::ErrorKind::BrokenPipe.into()) })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

struct HangingUp;

impl Connect for HangingUp {
    type Transport = HungUp;

    async fn connect(&self) -> io::Result<HungUp> {
        Ok(HungUp::default())
    }
}

#[tokio::test(start_paused = true)]
async fn answers_sent_before_the_peer_closed_are_read() {
    let pool = Pool::start(config(1), Line::default(), HangingUp).unwrap();
    let second = async {
        until(&pool, |counters| counters.in_flight == 1).await;
        pool.call(ask("b"), SECOND).await
    };
    let (a, b) = tokio::join!(pool.call(ask("a"), SECOND), second);
    assert_eq!(a.unwrap(), "A");
    assert!(b.is_err());
    check(pool.counters());
}

#[tokio::test]
async fn a_codec_that_panics_removes_its_connection_and_ends_its_requests() {
    use bytes::BytesMut;
    use tidings_pool::{Codec, Decoded, Expect, Outgoing, Protocol, RequestId};

    struct Bomb;
    impl Protocol for Bomb {
        type Request = u8;
        type Response = ();
        type Error = BadLine;
        type Codec = Bomb;
        fn codec(&self) -> Bomb {
            Bomb
        }
    }
    impl Codec<Bomb> for Bomb {
        fn encode(&mut self, request: &u8, _: RequestId, _: &mut Outgoing) -> Result<Expect<()>, BadLine> {
            assert!(*request < 9, "boom");
            Ok(Expect::Answer)
        }
        fn decode(&mut self, _: Option<&u8>, _: &mut BytesMut) -> Result<Decoded<()>, BadLine> {
            Ok(Decoded::Incomplete)
        }
    }
    let (gate, _peers, _) = Gate::new();
    let pool = Pool::start(config(1), Bomb, gate).unwrap();
    let (quiet, loud) = tokio::join!(pool.call(1, SECOND), pool.call(9, SECOND));
    assert!(matches!(quiet, Err(tidings_pool::CallError::Closed)));
    assert!(matches!(loud, Err(tidings_pool::CallError::Closed)));
    assert!(matches!(pool.call(2, SECOND).await, Err(tidings_pool::CallError::Unavailable)));
    check(pool.counters());
    assert_eq!(pool.counters().closed, 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_sent_once_never_ends_as_unsent() {
    for breaks in [false, true] {
        let (pool, [mut one, mut two], _peers) = two(|settings| {
            settings.in_flight_max = 1;
            settings.tombstone_max = 1;
        })
        .await;
        let (tx, mut rx) = mpsc::channel(2);
        pool.cast(ask("a").repeatable(), SECOND, 0, &tx).unwrap();
        pool.cast(ask("busy"), MINUTE, 1, &tx).unwrap();
        let is_one = one.hear().await.unwrap() == "a";
        two.hear().await.unwrap();
        let (sent_to, mut waits_at) = if is_one { (one, two) } else { (two, one) };
        drop(sent_to);
        until(&pool, |counters| counters.repeated == 1).await;
        if breaks {
            waits_at.say("! nonsense").await;
        }
        let answers = [rx.recv().await.unwrap(), rx.recv().await.unwrap()];
        let of_a = answers.iter().find(|answer| answer.tag == 0).unwrap();
        let expected = if breaks { Error::Lost } else { Error::Timeout { sent: true } };
        assert_eq!(of_a.result, Err(expected));
        check(pool.counters());
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_closes_with_every_answer_costs_connections_but_no_request() {
    let (gate, mut peers, control) = Gate::new();
    let pool = Pool::start(config(1), Line::default(), gate).unwrap();
    let mut services = JoinSet::new();
    services.spawn(async move {
        while let Some(mut peer) = peers.recv().await {
            if let Some(line) = peer.hear().await {
                peer.say(&format!("last {line}")).await;
            }
        }
    });
    let mut calls = JoinSet::new();
    for n in 0..50 {
        let pool = pool.clone();
        calls.spawn(async move { pool.call(ask(format!("{n}")).repeatable(), SECOND).await == Ok(format!("{n}")) });
    }
    assert!(calls.join_all().await.iter().all(|is_right| *is_right), "{:?}", pool.counters());
    assert!(control.attempts().len() >= 50);
    check(pool.counters());
}

#[tokio::test(start_paused = true)]
async fn an_unwritten_request_is_never_answered() {
    let (pool, mut peer, ..) = pair(config(1)).await;
    let (tx, mut rx) = mpsc::channel(2);
    pool.cast(ask("x".repeat(5999)), SECOND, 0, &tx).unwrap(); // More than the pipe holds.
    pool.cast(ask("y"), SECOND, 1, &tx).unwrap();
    until(&pool, |counters| counters.bytes_sent > 0).await;
    peer.say_bytes(b"early, as may be\nfor whom?\n").await;
    assert_eq!(rx.recv().await.unwrap().result.unwrap(), "early, as may be");
    assert_eq!(rx.recv().await.unwrap().result, Err(Error::Unavailable));
    assert_eq!(pool.counters().disconnects, 1);
}
