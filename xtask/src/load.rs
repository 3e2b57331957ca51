//! Busy loops beside a run, as other programs of a busy machine would be: `cargo xtask test --busy 4`.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Threads that compute until this is dropped.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl Load {
    /// Starts so many threads. Each keeps one core busy, or its share of one.
    pub(crate) fn start(count: usize) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let threads = (0..count).map(|_| {
            let is_over = is_over.clone();
            thread::spawn(move || busy(&is_over))
        });
        Self { threads: threads.collect(), is_over }
    }

    /// Ends the load, and says how many rounds the threads made together.
    fn end(&mut self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.drain(..).map(|thread| thread.join().expect("a loop does not panic")).sum()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end();
    }
}

fn busy(is_over: &AtomicBool) -> u64 {
    let mut rounds = 0_u64;
    loop {
        rounds = black_box(rounds) + 1;
        if is_over.load(Ordering::Relaxed) {
            return rounds;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Load;

    #[test]
    fn a_load_computes_until_it_is_ended() {
        let mut load = Load::start(2);
        assert!(load.threads.iter().all(|thread| !thread.is_finished()), "nobody has ended them");
        assert!(load.end() >= 2, "each has made a round");
    }
}
