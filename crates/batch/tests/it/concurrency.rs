//! Many producers, changing settings and random failures: every loss is counted, and messages keep their order.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use tidings_batch::{BatchConfig, BatchWriter, Full, IoSink, Loss, WriteError};

use crate::common::{PATIENCE, check_law, config};

const PRODUCER_COUNT: usize = 4;
const MESSAGE_COUNT: usize = 2000;

/// Stores everything, and fails sometimes.
#[derive(Clone)]
struct Recorder {
    written: Arc<Mutex<Vec<u8>>>,
    calls: usize,
    fail_every: usize,
}

impl io::Write for Recorder {
    fn write(&mut self, page: &[u8]) -> io::Result<usize> {
        self.calls += 1;
        if self.calls.is_multiple_of(self.fail_every) {
            return Err(io::ErrorKind::Other.into());
        }
        self.written.lock().unwrap().extend(page);
        Ok(page.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What producers know: the number of accepted or silently lost messages, and of refused ones.
fn produce(writer: &BatchWriter, producer: usize) -> u64 {
    let mut refused = 0;
    for number in 0..MESSAGE_COUNT {
        match writer.write(format!("{producer} {number}\n").as_bytes()) {
            Ok(()) => {}
            Err(WriteError::Full { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        if number % 500 == 0 {
            writer.set_page_bytes(20 + number % 300);
            writer.set_capacity(10 + number % 90, 4096);
        }
    }
    refused
}

fn check(full: Full, page_bytes: usize, count_max: usize, fail_every: usize) {
    let announce =
        tidings_batch::Announce::new(|loss: Loss, text| text.extend(format!("lost {}\n", loss.count).bytes()));
    let recorder = Recorder { written: Arc::default(), calls: 0, fail_every };
    let written = Arc::clone(&recorder.written);
    let writer = BatchWriter::new(
        BatchConfig { announce: Some(announce), ..config(page_bytes, count_max, full) },
        IoSink::new(recorder),
    );
    writer.start_thread("batch-test").unwrap();
    let refused: u64 = std::thread::scope(|scope| {
        let producers: Vec<_> = (0..PRODUCER_COUNT)
            .map(|producer| {
                scope.spawn({
                    let writer = &writer;
                    move || produce(writer, producer)
                })
            })
            .collect();
        producers.into_iter().map(|producer| producer.join().unwrap()).sum()
    });
    while writer.flush_blocking(PATIENCE).is_err() {} // Each failure ends one.
    let counters = writer.counters();
    let _ = writer.close_blocking(PATIENCE); // Nothing is held.
    check_law(&counters);
    assert_eq!((counters.total, counters.refused), ((PRODUCER_COUNT * MESSAGE_COUNT) as u64, refused));
    assert_eq!((counters.waiting, counters.in_flight, counters.bytes), (0, 0, 0));

    let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
    let (mut sent, mut told) = (0_u64, 0_u64);
    let mut last = HashMap::new();
    for line in text.lines() {
        let (who, number) = line.split_once(' ').unwrap();
        let number: u64 = number.parse().unwrap();
        if who == "lost" {
            told += number;
        } else {
            sent += 1;
            let before = last.insert(who.to_owned(), number);
            assert!(before.is_none_or(|before| before < number), "{who}: {number} after {before:?}");
        }
    }
    assert_eq!((sent, told), (counters.sent, counters.announced), "{counters:?}");
    assert!(told == counters.dropped || counters.failure.is_some(), "{counters:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn everything_is_sent_in_order_or_counted(
        full in prop_oneof![
            Just(Full::EvictOldest), Just(Full::DropNewest), Just(Full::Reject),
            Just(Full::Wait { at_most: Duration::from_millis(1) }),
        ],
        page_bytes in 1_usize..4096,
        count_max in 1_usize..3000,
        fail_every in prop_oneof![3 => Just(usize::MAX), 1 => 20_usize..60],
    ) {
        check(full, page_bytes, count_max, fail_every);
    }
}

#[test]
fn waiting_producers_lose_nothing() {
    let recorder = Recorder { written: Arc::default(), calls: 0, fail_every: usize::MAX };
    let written = Arc::clone(&recorder.written);
    let writer = BatchWriter::new(config(64, 2, Full::Wait { at_most: PATIENCE }), IoSink::new(recorder));
    writer.start_thread("batch-test").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..PRODUCER_COUNT {
            scope.spawn(|| (0..MESSAGE_COUNT).for_each(|_| writer.write(b"line\n").unwrap()));
        }
    });
    writer.close_blocking(PATIENCE).unwrap();
    assert_eq!(written.lock().unwrap().len(), PRODUCER_COUNT * MESSAGE_COUNT * 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_tasks_lose_nothing_and_none_starves() {
    let recorder = Recorder { written: Arc::default(), calls: 0, fail_every: usize::MAX };
    let written = Arc::clone(&recorder.written);
    let writer = BatchWriter::new(config(64, 2, Full::Reject), IoSink::new(recorder));
    writer.start_thread("batch-test").unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..PRODUCER_COUNT {
        let writer = writer.clone();
        tasks.spawn(async move {
            for _ in 0..MESSAGE_COUNT {
                writer.write_when_room(b"line\n").await.unwrap();
            }
        });
    }
    tokio::time::timeout(PATIENCE, tasks.join_all()).await.unwrap();
    writer.close(PATIENCE).await.unwrap();
    assert_eq!(written.lock().unwrap().len(), PRODUCER_COUNT * MESSAGE_COUNT * 5);
}
