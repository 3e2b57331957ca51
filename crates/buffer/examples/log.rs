//! Two writers, a reader that waits for them, and one that does not look: `cargo run -p tidings-buffer --example log`.
#![expect(clippy::print_stdout, reason = "an example talks to a terminal")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tidings_buffer::{Closed, Lagged, Reader, Rejected, SharedLog};

/// Values that the two writers write, which fit.
const VALUE_COUNT: usize = 800;

fn main() -> Result<(), Rejected<String, Closed>> {
    let log = Arc::new(SharedLog::new(1000));
    let (mut attentive, mut careless) = (Reader::new(log.clone()), Reader::new(log.clone()));

    let attentive = thread::spawn(move || block_on(read_all(&mut attentive)));
    let writers = ["home", "away"].map(|team| {
        let log = log.clone();
        thread::spawn(move || {
            (0..VALUE_COUNT / 2).try_for_each(|number| log.append(format!("{team} {number}")).map(drop))
        })
    });
    writers.into_iter().try_for_each(|writer| writer.join().expect("a writer does not panic"))?;
    let values = attentive.join().expect("a reader does not panic").expect("nothing was pushed out");
    println!("the attentive reader got {} values", values.len());

    // Now the oldest go. Nobody waits for the one who does not look, but it learns exactly what it missed.
    (0..1200).try_for_each(|number| log.append(format!("more {number}")).map(drop))?;
    log.close(); // Readers get what is held, and then 0.
    let mut values = Vec::new();
    println!("the careless one: {:?}", careless.try_read(10, &mut values)); // Err(Lagged { missed: 1000 })
    while let Ok(1..) = careless.try_read(100, &mut values) {}
    println!("then {} values, from {:?} to {:?}", values.len(), values.first(), values.last());
    println!("{:?}", log.counters());
    Ok(())
}

/// Reads what the writers write, waiting for it.
async fn read_all(reader: &mut Reader<String>) -> Result<Vec<String>, Lagged> {
    let mut values = Vec::new();
    while values.len() < VALUE_COUNT {
        reader.read(64, &mut values).await?;
    }
    Ok(values)
}

/// The log needs no runtime; any does, also this one.
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
