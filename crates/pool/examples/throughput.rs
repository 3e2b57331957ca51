//! Measures how many requests per second the pool itself can carry on one core. Small lines go over one TCP connection to
//! an echo on another thread, which reads and writes many of them at once.
//!
//! `cargo run --release -p tidings-pool --example throughput [REQUESTS]`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::io::{Read as _, Write as _};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use tidings_pool::{Codec, Decoded, Expect, Outgoing, Pool, PoolConfig, Protocol, RequestId, Tcp};
use tokio::task::JoinSet;
use tokio::time::Instant;

const LINE: &[u8] = b"0123456789abcdef0123456789abcdef\n";

struct Lines;

impl Protocol for Lines {
    type Request = Bytes;
    type Response = usize;
    type Error = std::convert::Infallible;
    type Codec = Lines;

    fn codec(&self) -> Lines {
        Lines
    }
}

impl Codec<Lines> for Lines {
    fn encode(
        &mut self,
        request: &Bytes,
        _: RequestId,
        out: &mut Outgoing,
    ) -> Result<Expect<usize>, std::convert::Infallible> {
        out.put_bytes(request.clone());
        Ok(Expect::Answer)
    }

    fn decode(&mut self, _: Option<&Bytes>, input: &mut BytesMut) -> Result<Decoded<usize>, std::convert::Infallible> {
        if input.len() < LINE.len() {
            return Ok(Decoded::Incomplete);
        }
        input.advance(LINE.len());
        Ok(Decoded::oldest(LINE.len()))
    }
}

/// The peer, on a thread of its own.
fn echo(listener: std::net::TcpListener) -> std::io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..count])?;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let total: usize = std::env::args().nth(1).map_or(Ok(200_000), |text| text.parse())?;
    for concurrency in [1, 16, 128, 1024] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let service = std::thread::spawn(move || echo(listener));
        let mut config = PoolConfig::new("throughput", 1);
        (config.backlog_max, config.in_flight_max) = (2048, 2048);
        let pool = Pool::start(config, Lines, Tcp::new(address))?;
        pool.call(Bytes::from_static(LINE), Duration::from_secs(5)).await?;

        let each = (total / if concurrency == 1 { 10 } else { 1 }) / concurrency;
        let begun = Instant::now();
        let mut callers = JoinSet::new();
        for _ in 0..concurrency {
            let pool = pool.clone();
            callers.spawn(async move {
                for _ in 0..each {
                    let answer = pool.call(Bytes::from_static(LINE), Duration::from_secs(5)).await;
                    assert_eq!(answer, Ok(LINE.len()));
                }
            });
        }
        callers.join_all().await;
        let took = begun.elapsed();
        let count = each * concurrency;
        println!(
            "{concurrency:5} callers: {:9.0} requests/s, {:6.2} µs each",
            count as f64 / took.as_secs_f64(),
            took.as_secs_f64() * 1e6 / count as f64
        );
        pool.drain(Duration::from_secs(1)).await;
        service.join().map_err(|_| "the echo has panicked")??;
    }
    Ok(())
}
