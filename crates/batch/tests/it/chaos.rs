//! Sinks that fail, hang, are slow or panic. Producers must not notice.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tidings_batch::{Announce, BatchConfig, BatchWriter, FlushError, Full, Sink, StreamSink};
use tokio::io::AsyncWrite;
use tokio::runtime::Builder;
use tokio::time::Instant;

use crate::common::{Gate, check_law, config, start, until, write_all};

const SECOND: Duration = Duration::from_secs(1);

/// Fails the chosen calls.
#[derive(Clone, Default)]
struct Failing {
    fail_from: usize,
    fail_until: usize,
    calls: Arc<AtomicUsize>,
    pages: Arc<Mutex<Vec<String>>>,
}

impl Sink for Failing {
    async fn write_page(&mut self, page: &[u8]) -> io::Result<()> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if (self.fail_from..self.fail_until).contains(&call) {
            return Err(ErrorKind::ConnectionReset.into());
        }
        self.pages.lock().unwrap().push(String::from_utf8(page.to_vec()).unwrap());
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn losses_of_a_failing_sink_are_announced_when_it_works_again() {
    let sink = Failing { fail_from: 1, fail_until: 5, ..Failing::default() };
    let writer = BatchWriter::new(config(100, 3, Full::EvictOldest), sink.clone());
    let _running = start(&writer);
    write_all(&writer, &["a\n"]);
    until(&writer, |counters| counters.sent == 1).await;
    write_all(&writer, &["b\n"]);
    until(&writer, |counters| counters.failures == 1).await;
    let begin = Instant::now();
    write_all(&writer, &["c\n", "d\n", "e\n", "f\n"]);
    until(&writer, |counters| counters.sent == 4).await;
    let expected = ["a\n", "\n… 2 messages lost …\n", "d\ne\nf\n"];
    assert_eq!(*sink.pages.lock().unwrap(), expected, "the newest messages were kept");
    let counters = writer.counters();
    assert_eq!((counters.dropped, counters.announced, counters.failures, counters.failure), (2, 2, 4, None));
    let pauses = Duration::from_millis(10 + 20 + 40 + 80);
    assert!(begin.elapsed() > pauses / 2 && begin.elapsed() < pauses * 2, "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_flush_does_not_wait_for_its_timeout_if_the_sink_is_broken() {
    let sink = Failing { fail_until: usize::MAX, ..Failing::default() };
    let writer = BatchWriter::new(config(100, 3, Full::EvictOldest), sink.clone());
    let running = start(&writer);
    write_all(&writer, &["a"]);
    assert_eq!(writer.flush(SECOND * 60).await, Err(FlushError::Failed { held: 0 }));
    write_all(&writer, &["b"]);
    assert_eq!(writer.flush(SECOND * 60).await, Err(FlushError::Failed { held: 1 }), "the announcement came first");
    let begin = Instant::now();
    assert_eq!(writer.close(SECOND * 60).await, Err(FlushError::Failed { held: 1 }));
    assert!(begin.elapsed() < SECOND);
    running.ended().await;
    assert_eq!((writer.counters().total, writer.counters().dropped), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_flush_does_not_wait_for_the_pause_after_a_failure() {
    let sink = Failing { fail_until: 10, ..Failing::default() };
    let writer = BatchWriter::new(config(100, 3, Full::EvictOldest), sink.clone());
    let _running = start(&writer);
    write_all(&writer, &["a"]);
    until(&writer, |counters| counters.failures == 1).await;
    write_all(&writer, &["b"]);
    until(&writer, |counters| counters.failures == 9).await;
    let begin = Instant::now();
    assert_eq!(writer.flush(SECOND * 60).await, Err(FlushError::Failed { held: 1 }));
    writer.flush(SECOND * 60).await.unwrap();
    assert!(begin.elapsed() < SECOND / 10, "{:?}", begin.elapsed());
    assert_eq!(*sink.pages.lock().unwrap(), ["\n… 1 message lost …\n", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_broken_sink_is_called_rarely() {
    let sink = Failing { fail_until: usize::MAX, ..Failing::default() };
    let writer = BatchWriter::new(config(100, 3, Full::EvictOldest), sink.clone());
    let _running = start(&writer);
    write_all(&writer, &["a"]);
    tokio::time::sleep(SECOND * 3600).await;
    assert_eq!(sink.calls.load(Ordering::Relaxed), 1);
    write_all(&writer, &["b"]);
    tokio::time::sleep(SECOND * 60).await;
    let calls = sink.calls.load(Ordering::Relaxed);
    assert!((60..75).contains(&calls), "in the end once per second: {calls}");
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_hangs_loses_a_page_after_the_timeout() {
    let gate = Gate::closed();
    let slow = BatchConfig { write_timeout: SECOND, ..config(2, 100, Full::EvictOldest) };
    let writer = BatchWriter::new(slow, gate.clone());
    let _running = start(&writer);
    write_all(&writer, &["aa", "bb"]);
    tokio::time::sleep(SECOND * 3 / 2).await;
    assert_eq!((writer.counters().dropped, writer.counters().failure), (1, Some(ErrorKind::TimedOut)));
    gate.allow(9);
    writer.flush(SECOND).await.unwrap();
    assert_eq!(gate.pages(), ["\n… 1 message lost …\n", "bb"]);
}

/// Panics at the second page.
struct Bomb(usize);

impl Sink for Bomb {
    async fn write_page(&mut self, _: &[u8]) -> io::Result<()> {
        self.0 += 1;
        assert!(self.0 < 2, "the sink has a bug");
        Ok(())
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(self.0 < 2, "and another");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panicking_sink_harms_no_producer_and_can_be_replaced() {
    let writer = BatchWriter::new(config(1, 100, Full::EvictOldest), Bomb(0));
    let _running = start(&writer);
    write_all(&writer, &["a", "b", "c"]);
    assert!(matches!(writer.flush(SECOND * 60).await, Err(FlushError::Failed { .. })));
    assert_eq!(writer.flush(SECOND * 60).await, Err(FlushError::Failed { held: 1 }), "there is no sink now");
    write_all(&writer, &["d"]);
    let gate = Gate::open();
    writer.set_sink(gate.clone());
    writer.flush(SECOND).await.unwrap();
    assert_eq!(gate.pages(), ["\n… 1 message lost …\n", "c", "d"]);
    check_law(&writer.counters());
}

#[test]
fn a_sink_that_panics_in_a_direct_write_harms_no_producer() {
    let writer = BatchWriter::new(config(1, 100, Full::EvictOldest), Bomb(0));
    write_all(&writer, &["a", "b", "c"]);
    assert_eq!((writer.counters().sent, writer.counters().dropped, writer.counters().waiting), (1, 1, 1));
    let gate = Gate::open();
    writer.set_sink(gate.clone());
    write_all(&writer, &["d"]);
    assert_eq!(gate.pages(), ["\n… 1 message lost …\n", "c", "d"]);
}

#[tokio::test(start_paused = true)]
async fn an_announcement_that_panics_is_left_out() {
    let announce = Announce::new(|_, _| panic!("the announcement has a bug"));
    let gate = Gate::closed();
    let writer =
        BatchWriter::new(BatchConfig { announce: Some(announce), ..config(1, 1, Full::EvictOldest) }, gate.clone());
    let _running = start(&writer);
    write_all(&writer, &["a", "b", "c"]);
    gate.allow(9);
    writer.flush(SECOND).await.unwrap();
    assert!(gate.pages().ends_with(&["c".to_owned()]), "{:?}", gate.pages());
    assert!(writer.counters().dropped > 0);
}

/// Writes a few bytes at a time, is sometimes not ready, and fails in the end.
struct Crawling {
    steps: std::vec::IntoIter<u8>,
    written: Arc<Mutex<Vec<u8>>>,
}

impl AsyncWrite for Crawling {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.steps.next() {
            Some(0) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(255) => Poll::Ready(Err(ErrorKind::Interrupted.into())),
            Some(step) => {
                let count = usize::from(step).min(bytes.len());
                self.written.lock().unwrap().extend(&bytes[..count]);
                Poll::Ready(Ok(count))
            }
            None => {
                self.written.lock().unwrap().extend(bytes);
                Poll::Ready(Ok(bytes.len()))
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn short_writes_and_failures_lose_whole_pages_and_nothing_else(
        steps in vec(prop_oneof![5 => 1_u8..20, 3 => Just(0), 1 => Just(255)], 0..60),
        count in 1_usize..60,
    ) {
        let written = Arc::new(Mutex::new(Vec::new()));
        let sink = StreamSink::new(Crawling { steps: steps.into_iter(), written: Arc::clone(&written) });
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let counters = runtime.block_on(async {
            let writer = BatchWriter::new(config(20, 1000, Full::Reject), sink);
            let running = start(&writer);
            for number in 0..count {
                writer.write_when_room(format!("<{number}>\n").as_bytes()).await.unwrap();
                if number % 7 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            until(&writer, |counters| counters.waiting + counters.in_flight == 0).await;
            let _ = writer.close(SECOND).await; // It may fail at the last line.
            running.ended().await;
            writer.counters()
        });
        check_law(&counters);
        // Whole lines are sent in order. The losses are announced, except for the last one.
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        let numbers: Vec<usize> = text
            .lines()
            .filter_map(|line| line.strip_prefix('<')?.strip_suffix('>')?.parse().ok())
            .collect();
        prop_assert!(numbers.is_sorted_by(|one, two| one < two), "{text}");
        prop_assert!(numbers.len() as u64 >= counters.sent, "{text}: {counters:?}");
        prop_assert!(counters.announced == counters.dropped || counters.failure.is_some(), "{counters:?}");
    }
}
