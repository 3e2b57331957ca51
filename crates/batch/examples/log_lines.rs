//! Writes log lines through a batching writer. Many threads log, and standard error gets pages.
//!
//! `cargo run --package tidings-batch --example log_lines 2>/dev/null`

use std::time::Duration;

use tidings_batch::{Announce, BatchConfig, BatchWriter, Full, IoSink, MakeBatchWriter};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = BatchConfig {
        page_bytes: 8192,
        count_max: 10_000,
        bytes_max: 1 << 20,
        full: Full::EvictOldest,
        linger: Duration::ZERO,
        write_timeout: Duration::from_secs(10),
        announce: Some(Announce::line()),
    };
    let writer = BatchWriter::new(config, IoSink::new(std::io::stderr()));
    writer.start_thread("log")?;
    tracing_subscriber::fmt().with_writer(MakeBatchWriter::new(writer.clone())).init();

    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || (0..10_000).for_each(|line| tracing::info!(thread, line, "Still here")));
        }
    });
    writer.flush_blocking(Duration::from_secs(1))?; // The last lines are the ones that matter.

    #[expect(clippy::print_stdout, reason = "an example talks to its reader")]
    {
        println!("{:#?}", writer.counters());
    }
    Ok(())
}
