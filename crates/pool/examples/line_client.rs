//! A complete client of a small service. Requests and answers are lines.
//!
//! `cargo run -p tidings-pool --example line_client`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use bytes::BytesMut;
use tidings_pool::{Codec, Decoded, Expect, Outgoing, Pool, PoolConfig, Protocol, RequestId, Tcp};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// One value serves all connections. A password for the set-up exchange would be here.
struct Lines;

/// The state of one connection: none.
struct LineCodec;

#[derive(Debug, Clone, thiserror::Error)]
enum LineError {
    #[error("a request is one line")]
    TwoLines,
    #[error("an answer is text")]
    NotText,
}

impl Protocol for Lines {
    type Request = String;
    type Response = String;
    type Error = LineError;
    type Codec = LineCodec;

    fn codec(&self) -> LineCodec {
        LineCodec
    }

    fn is_repeatable(&self, request: &String) -> bool {
        request.starts_with("get") // A repeat is harmless.
    }
}

impl Codec<Lines> for LineCodec {
    fn encode(&mut self, request: &String, _: RequestId, out: &mut Outgoing) -> Result<Expect<String>, LineError> {
        if request.contains('\n') {
            return Err(LineError::TwoLines);
        }
        out.put_slice(request.as_bytes());
        out.put_slice(b"\n");
        Ok(Expect::Answer)
    }

    fn decode(&mut self, _: Option<&String>, input: &mut BytesMut) -> Result<Decoded<String>, LineError> {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return Ok(Decoded::Incomplete) };
        let line = input.split_to(end + 1);
        let text = std::str::from_utf8(&line[..end]).map_err(|_| LineError::NotText)?;
        Ok(Decoded::oldest(text.to_owned()))
    }
}

/// The service answers in capital letters, but never answers "get nothing".
async fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    let (from, mut to) = stream.split();
    let mut lines = BufReader::new(from).lines();
    while let Some(line) = lines.next_line().await? {
        if line == "get nothing" {
            std::future::pending::<()>().await;
        }
        to.write_all(format!("{}\n", line.to_uppercase()).as_bytes()).await?;
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let mut service = JoinSet::new();
    service.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(serve(stream));
        }
    });

    let pool = Pool::start(PoolConfig::new("shouting", 2), Lines, Tcp::new(address.to_string()))?;
    let timeout = Duration::from_millis(200);

    println!("call: {}", pool.call("hello".into(), timeout).await?);

    let (tx, mut answers) = mpsc::channel(10);
    for (tag, word) in ["one", "two", "three"].into_iter().enumerate() {
        pool.cast(word.into(), timeout, tag as u64, &tx)?;
    }
    for _ in 0..3 {
        let answer = answers.recv().await.ok_or("an answer for every cast")?;
        println!("cast {}: {}", answer.tag, answer.result?);
    }

    if let Err(error) = pool.call("get nothing".into(), timeout).await {
        println!("no answer: {error}");
    }
    if let Err(error) = pool.call("two\nlines".into(), timeout).await {
        println!("no request: {error}");
    }

    println!("drained: {}", pool.drain(Duration::from_secs(1)).await);
    println!("{:#?}", pool.counters());
    Ok(())
}
