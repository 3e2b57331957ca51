//! Producers with batches, consumers that say how much they can use: `cargo run -p tidings-buffer --example lake`.
#![expect(clippy::print_stdout, reason = "an example talks to a terminal")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tidings_buffer::{Consumer, Lake, PushError};

fn main() -> Result<(), PushError> {
    let lake = Arc::new(Lake::new(100));
    thread::scope(|scope| {
        let producers = [0, 10_000].map(|first| {
            let lake = &lake;
            scope.spawn(move || {
                (0..100).try_for_each(|page| {
                    let mut batch = (first + page * 64..first + page * 64 + 64).collect();
                    block_on(lake.push_batch(&mut batch)) // Waits while the lake is full.
                })
            })
        });
        let consumers = [5, 50].map(|demand| {
            let mut consumer = Consumer::new(Arc::clone(&lake));
            scope.spawn(move || {
                let (mut values, mut count, mut visits) = (Vec::new(), 0, 0);
                while block_on(consumer.take(demand, &mut values)) > 0 {
                    (count, visits) = (count + values.len(), visits + 1);
                    values.clear();
                }
                (demand, count, visits)
            })
        });
        let produced = producers.into_iter().try_for_each(|producer| producer.join().expect("it does not panic"));
        lake.close(); // What is held is still handed out; then `take` says 0.
        for consumer in consumers {
            let (demand, count, visits) = consumer.join().expect("it does not panic");
            println!("who can use {demand} got {count} values in {visits} visits");
        }
        println!("{:?}", lake.counters());
        produced
    })
}

/// The lake needs no runtime; any does, also this one.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
