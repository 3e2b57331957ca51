//! Sends measurements as datagrams. Each packet has as many lines as fit, and no line is split.
//!
//! `cargo run --package tidings-batch --example datagrams`

use std::time::Duration;

use tidings_batch::{BatchConfig, BatchWriter, DatagramSink, Full};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = UdpSocket::bind("127.0.0.1:0").await?;
    let socket = UdpSocket::bind("127.0.0.1:0").await?;
    socket.connect(agent.local_addr()?).await?;

    let config = BatchConfig {
        page_bytes: 1432, // What fits into an Ethernet frame; the sink would not take more either.
        count_max: 1000,
        bytes_max: 100_000,
        full: Full::EvictOldest,
        linger: Duration::from_millis(10), // Few packets matter more here than a few milliseconds.
        write_timeout: Duration::from_secs(1),
        announce: None,
    };
    let writer = BatchWriter::new(config, DatagramSink::new(socket, 1432));
    let mut tasks = JoinSet::new();
    tasks.spawn(writer.driver().ok_or("started already")?.run());
    for number in 0..100 {
        writer.write(format!("temperature,room={number} value={}.5\n", 18 + number % 5).as_bytes())?;
    }
    writer.close(Duration::from_secs(1)).await?;
    tasks.join_all().await;

    let mut packet = [0; 2048];
    for _ in 0..writer.counters().pages {
        let bytes = agent.recv(&mut packet).await?;
        let lines = packet[..bytes].iter().filter(|byte| **byte == b'\n').count();
        #[expect(clippy::print_stdout, reason = "an example talks to its reader")]
        {
            println!("a packet of {bytes} bytes, {lines} lines");
        }
    }
    Ok(())
}
