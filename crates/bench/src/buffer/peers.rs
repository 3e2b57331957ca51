//! Buffers of other libraries: tokio's channels and the standard library's deque; with the feature `bench-peers` also
//! `crossbeam`'s `ArrayQueue`, `flume` and `thingbuf`.

use std::collections::VecDeque;

use tokio::sync::{broadcast, mpsc};

use super::latency::{self, InPlace, Item as _, Pulled, Subject};
use super::throughput::{BATCH, CAPACITY, Numbers, Seen, Wait};

/// A deque with all its memory allocated: what a ring is made of.
pub(super) struct Deque(VecDeque<InPlace>);

impl Deque {
    pub(super) fn open() -> Self {
        Self(VecDeque::with_capacity(latency::CAPACITY))
    }
}

impl Subject for Deque {
    type Item = InPlace;
    type Out = Option<InPlace>;

    fn push(&mut self, item: InPlace) {
        if self.0.len() == latency::CAPACITY {
            self.0.pop_front();
        }
        self.0.push_back(item);
    }

    fn pull(&mut self) -> Self::Out {
        self.0.pop_front()
    }

    fn look(out: Self::Out) -> Pulled {
        out.map_or(Pulled::Nothing, |item| Pulled::Item(item.number()))
    }

    fn counted(&self) -> Option<[u64; 4]> {
        None
    }
}

/// One consumer, any number of producers.
pub(super) struct TokioMpsc;

impl Wait for TokioMpsc {
    type Tx = mpsc::Sender<u64>;
    type Rx = mpsc::Receiver<u64>;

    fn open(consumers: usize) -> (Self::Tx, Vec<Self::Rx>) {
        assert_eq!(consumers, 1, "tokio's mpsc has one consumer");
        let (tx, rx) = mpsc::channel(CAPACITY);
        (tx, vec![rx])
    }

    async fn produce(tx: Self::Tx, numbers: Numbers) {
        for number in numbers {
            tx.send(number).await.expect("the consumer ends last");
        }
    }

    async fn consume(mut rx: Self::Rx, mut seen: Seen) -> Seen {
        while let Some(number) = rx.recv().await {
            seen.on(number);
        }
        seen
    }
}

/// Every consumer gets every number.
pub(super) struct TokioBroadcast;

impl Wait for TokioBroadcast {
    type Tx = broadcast::Sender<u64>;
    type Rx = broadcast::Receiver<u64>;

    fn open(consumers: usize) -> (Self::Tx, Vec<Self::Rx>) {
        let (tx, rx) = broadcast::channel(CAPACITY);
        let rxs = (1..consumers).map(|_| tx.subscribe()).collect::<Vec<_>>();
        (tx, rxs.into_iter().chain([rx]).collect())
    }

    async fn produce(tx: Self::Tx, numbers: Numbers) {
        for number in numbers {
            tx.send(number).expect("the consumers end last");
            if (number + 1).is_multiple_of(BATCH as u64) {
                tokio::task::yield_now().await; // A send never waits, and the consumers must run too.
            }
        }
    }

    async fn consume(mut rx: Self::Rx, mut seen: Seen) -> Seen {
        loop {
            match rx.recv().await {
                Ok(number) => seen.on(number),
                Err(broadcast::error::RecvError::Lagged(count)) => seen.on_missed(count),
                Err(broadcast::error::RecvError::Closed) => return seen,
            }
        }
    }
}

#[cfg(feature = "peers")]
pub(super) use libraries::{ArrayQueue, Flume, ThingBuf};

#[cfg(feature = "peers")]
mod libraries {
    use super::*;
    use crate::buffer::throughput::Overwrite;

    /// `crossbeam_queue::ArrayQueue::force_push`.
    pub(in super::super) struct ArrayQueue<T>(crossbeam_queue::ArrayQueue<T>);

    impl ArrayQueue<InPlace> {
        pub(in super::super) fn open() -> Self {
            Self(crossbeam_queue::ArrayQueue::new(latency::CAPACITY))
        }
    }

    impl Subject for ArrayQueue<InPlace> {
        type Item = InPlace;
        type Out = Option<InPlace>;

        fn push(&mut self, item: InPlace) {
            let _evicted = self.0.force_push(item);
        }

        fn pull(&mut self) -> Self::Out {
            self.0.pop()
        }

        fn look(out: Self::Out) -> Pulled {
            Deque::look(out)
        }

        fn counted(&self) -> Option<[u64; 4]> {
            None
        }
    }

    impl Overwrite for ArrayQueue<u64> {
        fn open() -> Self {
            Self(crossbeam_queue::ArrayQueue::new(CAPACITY))
        }

        fn push(&self, number: u64) -> u64 {
            self.0.force_push(number).is_some().into()
        }

        fn pull(&self) -> Option<u64> {
            self.0.pop()
        }
    }

    pub(in super::super) struct Flume;

    impl Wait for Flume {
        type Tx = flume::Sender<u64>;
        type Rx = flume::Receiver<u64>;

        fn open(consumers: usize) -> (Self::Tx, Vec<Self::Rx>) {
            let (tx, rx) = flume::bounded(CAPACITY);
            (tx, vec![rx; consumers])
        }

        async fn produce(tx: Self::Tx, numbers: Numbers) {
            for number in numbers {
                tx.send_async(number).await.expect("the consumers end last");
            }
        }

        async fn consume(rx: Self::Rx, mut seen: Seen) -> Seen {
            while let Ok(number) = rx.recv_async().await {
                seen.on(number);
            }
            seen
        }
    }

    /// One consumer, any number of producers.
    pub(in super::super) struct ThingBuf;

    impl Wait for ThingBuf {
        type Tx = thingbuf::mpsc::Sender<u64>;
        type Rx = thingbuf::mpsc::Receiver<u64>;

        fn open(consumers: usize) -> (Self::Tx, Vec<Self::Rx>) {
            assert_eq!(consumers, 1, "thingbuf's mpsc has one consumer");
            let (tx, rx) = thingbuf::mpsc::channel(CAPACITY);
            (tx, vec![rx])
        }

        async fn produce(tx: Self::Tx, numbers: Numbers) {
            for number in numbers {
                tx.send(number).await.expect("the consumer ends last");
            }
        }

        async fn consume(rx: Self::Rx, mut seen: Seen) -> Seen {
            while let Some(number) = rx.recv().await {
                seen.on(number);
            }
            seen
        }
    }
}
