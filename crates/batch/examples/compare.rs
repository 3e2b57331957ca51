//! Measures how much batching saves: 25 bytes at a time into a pipe and a file, directly under a lock and through a writer.
//!
//! `cargo run --release --package tidings-batch --example compare`

use std::io::{self, Read as _, Write};
use std::sync::Mutex;
use std::time::Duration;

use tidings_batch::{BatchConfig, BatchWriter, Counters, Full, IoSink};
use tokio::time::Instant;

const MESSAGE: &[u8; 25] = b"twenty-four characters..\n";
const COUNT: usize = 1_000_000;

fn main() -> io::Result<()> {
    for (name, open) in
        [("pipe", pipe as fn() -> io::Result<Box<dyn Write + Send>>), ("file", file), ("nothing", nothing)]
    {
        let direct = direct(open()?)?;
        say(&format!("{name:8} locked, direct      {:6.0} ns a message", per_message(direct)));
        for page_bytes in [2048, 4096, 8192] {
            let (batched, counters) = batched(open()?, page_bytes)?;
            let gain = direct.as_secs_f64() / batched.as_secs_f64();
            let (now, dropped) = (per_message(batched), counters.dropped);
            say(&format!(
                "{name:8} pages of {page_bytes:5}     {now:8.0} ns a message, {gain:.1} times, {dropped} dropped"
            ));
        }
    }
    Ok(())
}

fn direct(output: Box<dyn Write + Send>) -> io::Result<Duration> {
    let begin = Instant::now();
    let output = Mutex::new(output);
    for _ in 0..COUNT {
        output.lock().map_err(|_| io::ErrorKind::Other)?.write_all(MESSAGE)?;
    }
    Ok(begin.elapsed())
}

/// Until the last byte is written.
fn batched(output: Box<dyn Write + Send>, page_bytes: usize) -> io::Result<(Duration, Counters)> {
    let config = BatchConfig {
        page_bytes,
        count_max: 40_000,
        bytes_max: 40_000 * MESSAGE.len(),
        full: Full::Wait { at_most: Duration::from_secs(1) },
        linger: Duration::ZERO,
        write_timeout: Duration::from_secs(1),
        announce: None,
    };
    let writer = BatchWriter::new(config, IoSink::new(output));
    writer.start_thread("batch")?;
    let begin = Instant::now();
    for _ in 0..COUNT {
        writer.write(MESSAGE).map_err(io::Error::other)?;
    }
    writer.close_blocking(Duration::from_secs(10)).map_err(io::Error::other)?;
    Ok((begin.elapsed(), writer.counters()))
}

/// A pipe with a reader that reads as fast as it can.
fn pipe() -> io::Result<Box<dyn Write + Send>> {
    let (mut reader, writer) = io::pipe()?;
    std::thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while reader.read(&mut bytes).is_ok_and(|count| count > 0) {}
    });
    Ok(Box::new(writer))
}

fn file() -> io::Result<Box<dyn Write + Send>> {
    let path = std::env::temp_dir().join(format!("tidings-batch-{}", std::process::id()));
    let file = std::fs::File::create(&path)?;
    std::fs::remove_file(path)?;
    Ok(Box::new(file))
}

fn nothing() -> io::Result<Box<dyn Write + Send>> {
    Ok(Box::new(io::sink()))
}

fn per_message(elapsed: Duration) -> f64 {
    elapsed.as_secs_f64() * 1e9 / COUNT as f64
}

#[expect(clippy::print_stdout, reason = "an example talks to its reader")]
fn say(line: &str) {
    println!("{line}");
}
