//! When pages are written: idle, busy, lingering, flushing and closing. In virtual time.

use std::time::Duration;

use tidings_batch::{BatchConfig, BatchWriter, FlushError, Full, WriteError};
use tokio::time::{Instant, timeout};

use crate::common::{Gate, PATIENCE, config, start, until, write_all};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn an_idle_sink_gets_a_message_at_once_and_a_busy_one_gets_full_pages() {
    let gate = Gate::closed();
    let writer = BatchWriter::new(config(8, 100, Full::Reject), gate.clone());
    let running = start(&writer);
    write_all(&writer, &["a"]);
    until(&writer, |counters| counters.in_flight == 1).await;
    write_all(&writer, &["b", "c", "d", "larger than a page", "e"]);
    gate.allow(10);
    writer.flush(SECOND).await.unwrap();
    assert_eq!(gate.pages(), ["a", "bcd", "larger than a page", "e"]);
    writer.close(SECOND).await.unwrap();
    running.ended().await;
    assert!(gate.is_closed());
    assert_eq!(writer.write(b"f"), Err(WriteError::Closed));
    assert_eq!((writer.counters().sent, writer.counters().refused), (6, 1));
}

#[tokio::test(start_paused = true)]
async fn a_lingering_page_is_written_when_it_is_full_flushed_or_old() {
    let gate = Gate::open();
    let lingering = BatchConfig { linger: SECOND, ..config(4, 100, Full::Reject) };
    let writer = BatchWriter::new(lingering, gate.clone());
    let running = start(&writer);
    let begin = Instant::now();
    let took = |since: Instant| since.elapsed().as_millis();

    write_all(&writer, &["a"]);
    until(&writer, |counters| counters.sent == 1).await;
    assert!((1000..1005).contains(&took(begin)), "old: {}", took(begin));

    let begin = Instant::now();
    write_all(&writer, &["bb", "cc"]);
    until(&writer, |counters| counters.sent == 3).await;
    assert!(took(begin) < 5, "full: {}", took(begin));

    write_all(&writer, &["d"]);
    writer.flush(SECOND).await.unwrap();
    write_all(&writer, &["e"]);
    writer.close(SECOND).await.unwrap();
    assert!(took(begin) < 10, "flushed, closed: {}", took(begin));
    running.ended().await;
    assert_eq!(gate.pages(), ["a", "bbcc", "d", "e"]);
}

#[tokio::test(start_paused = true)]
async fn a_producer_that_waits_for_room_ends_the_linger() {
    let lingering = BatchConfig { linger: SECOND, bytes_max: 10, ..config(100, 100, Full::Reject) };
    let writer = BatchWriter::new(lingering, Gate::open());
    let _running = start(&writer);
    let begin = Instant::now();
    writer.write(b"1234567").unwrap();
    writer.write_when_room(b"89ab").await.unwrap();
    assert!(begin.elapsed() < SECOND / 2, "{:?}", begin.elapsed());
    assert_eq!(writer.counters().refused, 0);
}

#[tokio::test(start_paused = true)]
async fn a_flush_waits_for_earlier_messages_and_at_most_its_timeout() {
    let gate = Gate::closed();
    let writer = BatchWriter::new(config(1, 100, Full::Reject), gate.clone());
    let _running = start(&writer);
    write_all(&writer, &["a", "b"]);
    let begin = Instant::now();
    assert_eq!(writer.flush(SECOND).await, Err(FlushError::Deadline { held: 2 }));
    assert_eq!(begin.elapsed(), SECOND);
    let flush = writer.flush(SECOND);
    let mut flush = std::pin::pin!(flush);
    assert!(timeout(Duration::ZERO, flush.as_mut()).await.is_err());
    write_all(&writer, &["later"]);
    gate.allow(2);
    flush.await.unwrap();
    assert_eq!(gate.pages(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_close_drops_unwritten_messages_at_its_deadline() {
    let gate = Gate::closed();
    let writer = BatchWriter::new(config(1, 100, Full::Reject), gate.clone());
    let running = start(&writer);
    write_all(&writer, &["a", "b", "c"]);
    gate.allow(1);
    assert_eq!(writer.close(SECOND).await, Err(FlushError::Deadline { held: 2 }));
    running.ended().await;
    let counters = writer.counters();
    assert_eq!((counters.sent, counters.dropped, counters.waiting, counters.in_flight), (1, 2, 0, 0));
    assert_eq!(gate.pages(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn after_the_last_handle_is_dropped_the_driver_finishes_and_ends() {
    let gate = Gate::closed();
    let writer = BatchWriter::new(config(2, 100, Full::Reject), gate.clone());
    let running = start(&writer);
    let other = writer.clone();
    write_all(&writer, &["aa", "bb"]);
    drop(writer);
    write_all(&other, &["cc"]);
    drop(other);
    gate.allow(3);
    running.ended().await;
    assert_eq!(gate.pages(), ["aa", "bb", "cc"]);
}

#[tokio::test(start_paused = true)]
async fn before_the_start_producers_write_into_the_sink() {
    let gate = Gate::open();
    let writer = BatchWriter::new(config(100, 100, Full::Reject), gate.clone());
    write_all(&writer, &["a", "b"]);
    assert_eq!(gate.pages(), ["a", "b"]);
    let running = start(&writer);
    assert!(writer.driver().is_none(), "one driver");
    write_all(&writer, &["c"]);
    writer.flush(SECOND).await.unwrap();
    running.aborted().await;
    write_all(&writer, &["d"]);
    assert_eq!(gate.pages(), ["a", "b", "c", "d"], "without a driver, producers write directly again");
    writer.close(SECOND).await.unwrap();
    assert!(gate.is_closed());
}

#[tokio::test(start_paused = true)]
async fn before_the_start_a_message_that_is_not_written_at_once_is_lost_and_announced() {
    let gate = Gate::closed();
    let writer = BatchWriter::new(config(100, 100, Full::Reject), gate.clone());
    write_all(&writer, &["a"]);
    assert_eq!((writer.counters().dropped, writer.counters().failure), (1, Some(std::io::ErrorKind::WouldBlock)));
    assert_eq!(writer.flush(SECOND).await, Err(FlushError::Failed { held: 0 }));
    gate.allow(9);
    write_all(&writer, &["b"]);
    assert_eq!(gate.pages(), ["\n… 1 message lost …\n", "b"]);
}

#[tokio::test(start_paused = true)]
async fn page_size_capacity_and_sink_change_while_running() {
    let (old, new) = (Gate::closed(), Gate::open());
    let writer = BatchWriter::new(config(100, 4, Full::Reject), old.clone());
    let _running = start(&writer);
    write_all(&writer, &["in flight"]);
    until(&writer, |counters| counters.in_flight == 1).await;
    write_all(&writer, &["aa", "bb", "cc", "dd"]);
    assert_eq!(writer.write(b"ee"), Err(WriteError::Full { bytes: 2 }));
    writer.set_capacity(5, 1 << 20);
    write_all(&writer, &["ee"]);
    writer.set_page_bytes(4);
    writer.set_sink(new.clone());
    assert!(new.pages().is_empty(), "the old sink still has a page");
    old.allow(1);
    writer.flush(PATIENCE).await.unwrap();
    assert_eq!(old.pages(), ["in flight"]);
    assert_eq!(new.pages(), ["aabb", "ccdd", "ee"]);
    assert!(old.is_closed() && !new.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_producer_waits_for_room_without_losing_anything() {
    let gate = Gate::closed();
    let writer = BatchWriter::new(config(1, 1, Full::EvictOldest), gate.clone());
    let _running = start(&writer);
    write_all(&writer, &["a"]);
    until(&writer, |counters| counters.in_flight == 1).await;
    write_all(&writer, &["b"]);
    assert!(timeout(SECOND, writer.write_when_room(b"given up")).await.is_err());
    gate.allow(100);
    writer.write_when_room(b"c").await.unwrap();
    writer.flush(SECOND).await.unwrap();
    assert_eq!(gate.pages(), ["a", "b", "c"]);
    assert_eq!(writer.counters().total, 3, "a dropped call is not counted");
}
