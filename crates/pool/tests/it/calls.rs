//! What callers see in normal operation and at the limits.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use tidings_pool::{Connect, Pool, Strategy, Transport};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::line::*;

#[tokio::test(start_paused = true)]
async fn requests_are_pipelined_and_get_their_own_answers() {
    let (pool, mut peer, ..) = pair(config(1)).await;
    let service = async {
        assert_eq!(peer.hear_many(3).await, ["a", "b", "c"]); // All three come before any is answered.
        peer.say_bytes(b"1\n# not an answer\n2").await;
        peer.say_bytes(b"2\n3\n").await;
    };
    let (a, b, c, ()) =
        tokio::join!(pool.call(ask("a"), SECOND), pool.call(ask("b"), SECOND), pool.call(ask("c"), SECOND), service);
    assert_eq!([a.unwrap(), b.unwrap(), c.unwrap()], ["1", "22", "3"]);
    let counters = pool.counters();
    assert_eq!((counters.sent, counters.answered, counters.held), (3, 3, 0));
    check(counters);
}

/// Counts writes.
struct Counted {
    io: DuplexStream,
    writes: Arc<AtomicUsize>,
}

impl Transport for Counted {}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.writes.fetch_add(1, Relaxed);
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

struct CountedEcho(Arc<AtomicUsize>);

impl Connect for CountedEcho {
    type Transport = Counted;

    async fn connect(&self) -> std::io::Result<Counted> {
        let (io, peer) = tokio::io::duplex(64 << 10);
        let mut echo = JoinSet::new();
        echo.spawn(Talk::new(peer).echo());
        echo.detach_all();
        Ok(Counted { io, writes: Arc::clone(&self.0) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_requests_made_together_are_written_at_once() {
    let writes = Arc::new(AtomicUsize::new(0));
    let mut config = config(1);
    (config.backlog_max, config.in_flight_max) = (1000, 1000);
    let pool = Pool::start(config, Line::default(), CountedEcho(Arc::clone(&writes))).unwrap();
    until(&pool, |counters| counters.connected == 1).await;
    let mut calls = JoinSet::new();
    for n in 0..1000 {
        let pool = pool.clone();
        calls.spawn(async move { pool.call(ask(format!("{n}")), SECOND).await.unwrap() == format!("{n}") });
    }
    assert!(calls.join_all().await.iter().all(|is_right| *is_right));
    assert_eq!(writes.load(Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn beyond_the_backlog_a_request_fails_at_once() {
    let (pool, mut peer, ..) = pair(config(1)).await;
    let (tx, mut rx) = mpsc::channel(200);
    for n in 0..100 {
        pool.cast(ask(format!("{n}")), SECOND, n, &tx).unwrap();
    }
    assert_eq!(pool.cast(ask("too much"), SECOND, 100, &tx), Err(Error::Backlog { limit: 100 }));
    assert_eq!(pool.call(ask("too much"), SECOND).await, Err(Error::Backlog { limit: 100 }));
    assert_eq!(peer.hear_many(10).await.last().unwrap(), "9"); // in_flight_max of them are written.
    assert_eq!(until(&pool, |counters| counters.in_flight == 10).await.held, 100);
    peer.say("0").await;
    assert_eq!(rx.recv().await.unwrap().result.unwrap(), "0");
    pool.tell(ask("now there is room"), SECOND).unwrap();
    assert_eq!(pool.tell(ask("but for one"), SECOND), Err(Error::Backlog { limit: 100 }));
    let counters = pool.counters();
    assert_eq!((counters.backlog, counters.accepted, counters.held), (3, 101, 100));
    check(counters);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_travels_alone_has_the_connection_to_itself() {
    let (pool, mut peer, ..) = pair(config(1)).await;
    let (tx, mut rx) = mpsc::channel(10);
    pool.cast(ask("a"), SECOND, 0, &tx).unwrap();
    pool.cast(ask("alone").alone(), SECOND, 1, &tx).unwrap();
    pool.cast(ask("b"), SECOND, 2, &tx).unwrap();
    pool.cast(ask("c"), SECOND, 3, &tx).unwrap();
    for together in [vec!["a"], vec!["alone"], vec!["b", "c"]] {
        assert_eq!(peer.hear_many(together.len()).await, together);
        let is_more = tokio::time::timeout(SECOND / 10, peer.hear()).await.is_ok();
        assert!(!is_more, "another line came with {together:?}");
        for line in together {
            peer.say(line).await;
            assert_eq!(rx.recv().await.unwrap().result.unwrap(), line);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_travels_alone_prefers_an_idle_connection() {
    let (gate, mut peers, _) = Gate::new();
    let pool = Pool::start(config(8), Line::default(), gate).unwrap();
    let mut all = Vec::new();
    for _ in 0..8 {
        all.push(peers.recv().await.unwrap());
    }
    until(&pool, |counters| counters.connected == 8).await;
    for n in 0..8 {
        pool.tell(ask(format!("{n}")).alone(), SECOND).unwrap();
    }
    let mut heard = Vec::new();
    for peer in &mut all {
        let line = tokio::time::timeout(SECOND / 2, peer.hear()).await;
        heard.push(line.expect("each connection has one of them").unwrap());
    }
    heard.sort_unstable();
    assert_eq!(heard, ["0", "1", "2", "3", "4", "5", "6", "7"]);
    assert_eq!(until(&pool, |counters| counters.in_flight == 8).await.backlog, 0);
}

#[tokio::test(start_paused = true)]
async fn a_cast_is_answered_on_its_channel_and_reserves_room_there() {
    let (pool, mut peer, ..) = pair(config(1)).await;
    let (tx, mut rx) = mpsc::channel(2);
    pool.cast(ask("a"), SECOND, 7, &tx).unwrap();
    pool.cast(ask("b"), SECOND, 8, &tx).unwrap();
    assert_eq!(pool.cast(ask("c"), SECOND, 9, &tx), Err(Error::Backlog { limit: 2 }));
    peer.hear_many(2).await;
    peer.say("A").await;
    let answer = rx.recv().await.unwrap();
    assert_eq!((answer.tag, answer.result.unwrap().as_str()), (7, "A"));
    drop(pool); // What is out is told so.
    let answer = rx.recv().await.unwrap();
    assert_eq!((answer.tag, answer.result), (8, Err(Error::Closed)));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_encoded_writes_nothing() {
    let (pool, mut peer, ..) = pair(config(1)).await;
    let service = async {
        assert_eq!(peer.hear_many(2).await, ["a", "b"]);
        peer.say_bytes(b"A\nB\n").await;
    };
    let (a, bad, b, ()) = tokio::join!(
        pool.call(ask("a"), SECOND),
        pool.call(ask("two\nlines"), SECOND),
        pool.call(ask("b"), SECOND),
        service
    );
    assert_eq!((a.unwrap().as_str(), b.unwrap().as_str()), ("A", "B"));
    assert_eq!(bad, Err(Error::Refused(BadLine("two\nlines".into()))));
    check(pool.counters());
}

#[tokio::test(start_paused = true)]
async fn one_way_requests_end_when_they_are_written() {
    let (pool, mut peer, ..) = pair(config(1)).await;
    assert_eq!(pool.call(ask("x").one_way(), SECOND).await.unwrap(), "gone");
    assert_eq!(peer.hear().await.unwrap(), "x");
    // A one-way request that cannot be written because the peer does not read has a deadline too.
    let large = pool.call(ask("y".repeat(10_000)).one_way(), SECOND).await;
    assert_eq!(large, Err(Error::Timeout { sent: true }));
    assert_eq!(peer.hear().await.unwrap().len(), 10_000);
    let counters = until(&pool, |counters| counters.tombstones == 0).await;
    assert_eq!((counters.answered, counters.timed_out, counters.held), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_is_withdrawn_or_its_answer_is_discarded() {
    let mut config = config(1);
    config.in_flight_max = 2;
    config.tombstone_max = 2;
    let (pool, mut peer, ..) = pair(config).await;
    let mut calls: Vec<_> = ["a", "b", "c", "d"].map(|text| Box::pin(pool.call(ask(text), SECOND))).into();
    for call in &mut calls {
        assert!(futures_poll(call.as_mut()).await.is_none());
    }
    assert_eq!(peer.hear_many(2).await, ["a", "b"]);
    drop(calls.remove(2)); // c, which waits.
    drop(calls.remove(0)); // a, which is in flight.
    until(&pool, |counters| counters.cancelled == 1 && counters.held == 3).await;
    peer.say("A").await;
    assert_eq!(peer.hear().await.unwrap(), "d", "c was withdrawn");
    peer.say_bytes(b"B\nD\n").await;
    assert_eq!(calls.remove(0).await.unwrap(), "B", "a kept its place");
    assert_eq!(calls.remove(0).await.unwrap(), "D");
    let counters = pool.counters();
    assert_eq!((counters.cancelled, counters.answered, counters.held), (2, 2, 0));
    check(counters);
}

/// Polls once, and lets all other tasks run.
async fn futures_poll<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    let polled = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
    tokio::task::yield_now().await;
    match polled {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[tokio::test(start_paused = true)]
async fn the_strategy_chooses_connections() {
    for strategy in [Strategy::Random, Strategy::RoundRobin, Strategy::LeastLoadedOfTwo] {
        let (gate, mut peers, _) = Gate::new();
        let mut config = config(4);
        config.strategy = strategy;
        config.in_flight_max = 100;
        let pool = Pool::start(config, Line::default(), gate).unwrap();
        let mut all = Vec::new();
        for _ in 0..4 {
            all.push(peers.recv().await.unwrap());
        }
        until(&pool, |counters| counters.connected == 4).await;
        for _ in 0..200 {
            pool.tell(ask("x"), SECOND).unwrap();
        }
        until(&pool, |counters| counters.in_flight == 200).await;
        let mut shares = Vec::new();
        for mut peer in all {
            let mut count = 0;
            while let Ok(Some(_)) = tokio::time::timeout(SECOND / 1000, peer.hear()).await {
                count += 1;
            }
            shares.push(count);
        }
        let allowed = match strategy {
            Strategy::RoundRobin => 50..=50,
            Strategy::LeastLoadedOfTwo => 45..=55, // Exponentially less spread than random.
            Strategy::Random => 20..=80,           // 6 standard deviations are 37.
        };
        assert!(shares.iter().all(|share| allowed.contains(share)), "{strategy:?}: {shares:?}");
        assert_eq!(shares.iter().sum::<usize>(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_connection_is_skipped() {
    let (gate, mut peers, _) = Gate::new();
    let mut config = config(2);
    config.strategy = Strategy::RoundRobin;
    config.backlog_max = 3;
    config.in_flight_max = 3;
    let pool = Pool::start(config, Line::default(), gate).unwrap();
    let mut silent = peers.recv().await.unwrap();
    let mut echoes = JoinSet::new();
    echoes.spawn(peers.recv().await.unwrap().echo());
    until(&pool, |counters| counters.connected == 2).await;
    let (tx, mut rx) = mpsc::channel(20);
    for n in 0..20 {
        pool.cast(ask("x"), SECOND, n, &tx).unwrap();
        until(&pool, |counters| counters.held <= 3).await; // Only the silent one's are left.
    }
    assert_eq!(silent.hear_many(3).await, ["x"; 3]);
    for _ in 0..17 {
        assert_eq!(rx.recv().await.unwrap().result.unwrap(), "x");
    }
    let counters = until(&pool, |counters| counters.held == 3).await;
    assert_eq!((counters.answered, counters.in_flight, counters.backlog), (17, 3, 0), "the full one has had its three");
    check(counters);
}

#[tokio::test(start_paused = true)]
async fn draining_answers_pending_requests_and_says_goodbye() {
    let (pool, mut peer, ..) = pair(config(1)).await;
    let (tx, mut rx) = mpsc::channel(10);
    pool.cast(ask("a"), SECOND, 0, &tx).unwrap();
    let handle = pool.clone();
    let mut draining = JoinSet::new();
    draining.spawn(async move { handle.drain(SECOND).await });
    assert_eq!(peer.hear().await.unwrap(), "a");
    assert_eq!(pool.call(ask("b"), SECOND).await, Err(Error::Closed));
    peer.say("A").await;
    assert_eq!(peer.hear().await.unwrap(), "bye");
    assert_eq!(peer.hear().await, None);
    assert!(draining.join_next().await.unwrap().unwrap());
    assert_eq!(rx.recv().await.unwrap().result.unwrap(), "A");
    assert!(pool.drain(SECOND).await, "a second drain has nothing to do");
    check(pool.counters());
    assert_eq!(pool.counters().connected, 0);
}

#[tokio::test(start_paused = true)]
async fn draining_ends_at_its_deadline() {
    let (pool, mut peer, ..) = pair(config(1)).await;
    let (tx, mut rx) = mpsc::channel(10);
    pool.cast(ask("a"), MINUTE, 0, &tx).unwrap();
    assert_eq!(peer.hear().await.unwrap(), "a");
    let begun = tokio::time::Instant::now();
    assert!(!pool.drain(SECOND).await);
    assert!(begun.elapsed() <= SECOND * 11 / 10);
    assert_eq!(rx.recv().await.unwrap().result, Err(Error::Closed));
    assert_eq!(pool.counters().closed, 1);
    check(pool.counters());
}

#[tokio::test(start_paused = true)]
async fn draining_does_not_wait_for_dropped_calls() {
    let (pool, mut peer, ..) = pair(config(1)).await;
    assert_eq!(pool.call(ask("a"), SECOND).await, Err(Error::Timeout { sent: true }));
    assert_eq!(pool.counters().tombstones, 1);
    assert!(pool.drain(SECOND).await);
    assert_eq!(peer.hear_many(2).await, ["a", "bye"]);
    assert_eq!(pool.counters().tombstones, 0);
}

#[tokio::test(start_paused = true)]
async fn settings_out_of_range_are_named() {
    let mut settings = config(0);
    let refusal = |settings| {
        let (gate, ..) = Gate::new();
        Pool::start(settings, Line::default(), gate).unwrap_err().to_string()
    };
    assert_eq!(refusal(settings.clone()), "connection_count is 0, must be 1 to 65536");
    settings.connection_count = 1;
    settings.in_flight_max = 101;
    assert_eq!(refusal(settings.clone()), "in_flight_max is 101, must be 1 to 100");
    settings.in_flight_max = 1;
    settings.reconnect.max = SECOND / 100;
    assert_eq!(refusal(settings), "reconnect.max is 10ms, must be at least 100ms");
}

#[tokio::test(start_paused = true)]
async fn a_cast_is_answered_even_if_the_pool_is_dropped_before_it_ran() {
    let (gate, ..) = Gate::new();
    let pool = Pool::start(config(1), Line::default(), gate).unwrap();
    let (tx, mut rx) = mpsc::channel(1);
    pool.cast(ask("x"), SECOND, 0, &tx).unwrap();
    assert!(!pool.drain(Duration::ZERO).await);
    let answer = tokio::time::timeout(MINUTE, rx.recv()).await.expect("an answer");
    assert_eq!(answer.unwrap().result, Err(Error::Closed));
    assert_eq!((pool.counters().closed, pool.counters().held), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn the_shortest_of_several_drains_counts() {
    let (pool, _peer, ..) = pair(config(1)).await;
    let (tx, mut rx) = mpsc::channel(1);
    pool.cast(ask("x"), MINUTE, 0, &tx).unwrap();
    let begun = Instant::now();
    let patient = async { (pool.drain(MINUTE).await, begun.elapsed()) };
    let hasty = async { (pool.drain(SECOND).await, begun.elapsed()) };
    let ends = tokio::join!(patient, hasty);
    for (in_time, took) in [ends.0, ends.1] {
        assert!(!in_time && took < SECOND * 2, "{took:?}");
    }
    assert_eq!(rx.recv().await.unwrap().result, Err(Error::Closed));
}

/// Larger than the pipe, so that other requests wait for it.
fn large() -> Ask {
    ask("x".repeat(5999)).one_way()
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_room_is_written_as_soon_as_there_is_room() {
    for next in [ask("y").one_way(), ask("y").one_way().alone()] {
        let mut settings = config(1);
        // One request waits for room, the other for a free connection.
        settings.output_bytes_max = if next.is_alone { 1 << 20 } else { 1024 };
        let (pool, mut peer, ..) = pair(settings).await;
        let (tx, mut rx) = mpsc::channel(2);
        pool.cast(large(), SECOND, 0, &tx).unwrap();
        pool.cast(next, SECOND, 1, &tx).unwrap();
        until(&pool, |counters| counters.bytes_sent > 0).await;
        let begun = Instant::now();
        tokio::io::AsyncReadExt::read_exact(peer.io.get_mut(), &mut [0; 4096]).await.unwrap();
        for _ in 0..2 {
            assert_eq!(rx.recv().await.unwrap().result.unwrap(), "gone");
        }
        assert_eq!(begun.elapsed(), Duration::ZERO, "the second request waited for the next wake-up");
    }
}
