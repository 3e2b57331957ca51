//! Changes while the writer runs: drivers that linger or end while producers wait for room, new sinks, and losses without a
//! text.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tidings_batch::{Announce, BatchConfig, BatchWriter, Full, Sink};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use crate::common::{Gate, PATIENCE, check_law, config, start, until, write_all};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn each_producer_that_waits_for_room_ends_the_linger() {
    let lingering = BatchConfig { linger: SECOND, bytes_max: 10, ..config(100, 100, Full::Reject) };
    let writer = BatchWriter::new(lingering, Gate::open());
    let _running = start(&writer);
    let begin = Instant::now();
    writer.write(b"1234567").unwrap();
    let (one, other, third) = tokio::join!(
        writer.write_when_room(b"89abcdef"),
        writer.write_when_room(b"ghijklmn"),
        writer.write_when_room(b"opqrstuv"),
    );
    one.and(other).and(third).unwrap();
    assert!(begin.elapsed() < SECOND / 2, "{:?}", begin.elapsed());
}

#[test]
fn a_producer_that_blocks_for_room_does_not_wait_for_the_linger() {
    // A producer that waited for the linger would be refused before its end.
    let waiting = Full::Wait { at_most: PATIENCE };
    let lingering = BatchConfig { linger: PATIENCE * 100, bytes_max: 10, ..config(100, 100, waiting) };
    let writer = BatchWriter::new(lingering, Gate::open());
    writer.start_thread("batch-test").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..500).for_each(|_| writer.write(b"12345678").unwrap()));
        }
    });
    let counters = writer.counters();
    check_law(&counters);
    assert_eq!((counters.total, counters.refused, counters.dropped), (4 * 500, 0, 0), "each found room in time");
}

#[tokio::test(start_paused = true)]
async fn a_producer_that_waits_for_room_when_the_driver_ends_writes_directly() {
    let gate = Gate::closed();
    let writer = BatchWriter::new(config(1, 1, Full::Reject), gate.clone());
    let running = start(&writer);
    write_all(&writer, &["a"]);
    until(&writer, |counters| counters.in_flight == 1).await;
    write_all(&writer, &["b"]);
    let mut waiting = pin!(writer.write_when_room(b"c"));
    assert!(timeout(Duration::ZERO, waiting.as_mut()).await.is_err(), "no room");
    gate.allow(9); // The driver is cut off before it sees that.
    running.aborted().await;
    timeout(SECOND, waiting).await.expect("the waiting producer is woken").unwrap();
    assert_eq!(gate.pages(), ["\n… 1 message lost …\n", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_new_sink_gets_lingering_messages_even_if_the_writer_is_closed() {
    for closes in [false, true] {
        let (old, new) = (Gate::open(), Gate::open());
        let lingering = BatchConfig { linger: SECOND, ..config(100, 100, Full::Reject) };
        let writer = BatchWriter::new(lingering, old.clone());
        let _running = start(&writer);
        write_all(&writer, &["a"]);
        tokio::time::sleep(SECOND / 2).await;
        writer.set_sink(new.clone());
        if closes { writer.close(SECOND).await } else { writer.flush(SECOND).await }.unwrap();
        assert_eq!((old.pages().concat(), new.pages().concat()), (String::new(), "a".to_owned()));
    }
}

/// Always fails.
struct Broken(Arc<AtomicUsize>);

impl Sink for Broken {
    async fn write_page(&mut self, _: &[u8]) -> io::Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(io::ErrorKind::BrokenPipe.into())
    }
}

#[tokio::test(start_paused = true)]
async fn a_loss_without_a_text_is_not_counted_as_announced_and_does_not_end_the_pause() {
    let silent = BatchConfig { announce: Some(Announce::new(|_, _| {})), ..config(1, 1000, Full::EvictOldest) };
    let calls = Arc::new(AtomicUsize::new(0));
    let writer = BatchWriter::new(silent, Broken(Arc::clone(&calls)));
    let _running = start(&writer);
    (0..1000).for_each(|_| writer.write(b"a").unwrap());
    tokio::time::sleep(SECOND * 60).await;
    let calls = calls.load(Ordering::Relaxed);
    assert!((50..75).contains(&calls), "in the end once per second: {calls}");
    assert_eq!(writer.counters().announced, 0);
    let gate = Gate::open();
    writer.set_sink(gate.clone());
    writer.flush(PATIENCE).await.unwrap();
    assert_eq!(writer.counters().announced, 0, "the stream does not report it");
}

/// Writes a message into its own writer when it is dropped.
struct Polite(Option<BatchWriter>, Arc<AtomicBool>);

impl Sink for Polite {
    async fn write_page(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Polite {
    fn drop(&mut self) {
        if let Some(writer) = self.0.take() {
            let _ = writer.write(b"goodbye");
            self.1.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_sink_that_is_dropped_may_still_write() {
    let said = Arc::new(AtomicBool::new(false));
    let writer = BatchWriter::new(config(100, 100, Full::EvictOldest), Gate::open());
    writer.set_sink(Polite(Some(writer.clone()), Arc::clone(&said)));
    let driver = writer.driver().unwrap();
    let gate = Gate::open();
    writer.set_sink(gate.clone());
    let (tx, rx) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        drop(driver);
        let _ = tx.send(());
    });
    rx.recv_timeout(Duration::from_secs(5)).expect("the drop does not deadlock");
    assert!(said.load(Ordering::Relaxed));
    writer.flush_blocking(PATIENCE).unwrap();
    assert_eq!(gate.pages(), ["goodbye"]);
}

/// Checks that numbers come in order, and is not always ready.
struct Ordered {
    last: Arc<AtomicUsize>,
    calls: usize,
}

impl Sink for Ordered {
    async fn write_page(&mut self, page: &[u8]) -> io::Result<()> {
        self.calls += 1;
        for number in page.chunks(8) {
            let number = u64::from_le_bytes(number.try_into().unwrap()) as usize;
            assert!(self.last.swap(number, Ordering::Relaxed) < number, "order");
        }
        if self.calls.is_multiple_of(5) {
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// Drivers start and end, and sinks change. No producer hangs or is refused, and every message is sent or lost with a driver.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drivers_and_sinks_change_under_load() {
    const PRODUCED: u64 = 5_000;
    let waiting = BatchConfig { announce: None, ..config(64, 16, Full::Wait { at_most: PATIENCE }) };
    let last = Arc::new(AtomicUsize::new(0));
    let sink = || Ordered { last: Arc::clone(&last), calls: 0 };
    let writer = BatchWriter::new(waiting, sink());
    let is_done = Arc::new(AtomicUsize::new(0));
    let numbers = Arc::new(std::sync::Mutex::new(0_u64));
    for _ in 0..3 {
        let (writer, is_done, numbers) = (writer.clone(), Arc::clone(&is_done), Arc::clone(&numbers));
        std::thread::spawn(move || {
            for _ in 0..PRODUCED {
                let mut number = numbers.lock().unwrap();
                *number += 1;
                writer.write(&number.to_le_bytes()).unwrap();
            }
            is_done.fetch_add(1, Ordering::Relaxed);
        });
    }
    let (mut deadline, mut total) = (Instant::now() + PATIENCE, 0);
    while is_done.load(Ordering::Relaxed) < 3 {
        let counters = writer.counters();
        if counters.total > total {
            (deadline, total) = (Instant::now() + PATIENCE, counters.total);
        }
        assert!(Instant::now() < deadline, "nothing is written any more: {counters:?}");
        let running = start(&writer);
        for _ in 0..20 {
            yield_now().await;
            writer.set_sink(sink());
            check_law(&writer.counters());
        }
        running.aborted().await;
        for _ in 0..20 {
            writer.set_page_bytes(8 + writer.counters().total as usize % 90);
            yield_now().await;
        }
    }
    writer.flush(PATIENCE).await.unwrap();
    let counters = writer.counters();
    assert_eq!((counters.total, counters.refused, counters.waiting), (3 * PRODUCED, 0, 0), "{counters:?}");
    assert_eq!(counters.sent + counters.dropped, counters.total);
}
