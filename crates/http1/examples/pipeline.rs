//! Sends a hundred requests over one connection, to a server in the same process, and shows how few writes this takes.
//!
//! `cargo run -p tidings-http1 --example pipeline`

use std::io;
use std::time::Duration;

use tidings_http1::{Client, ClientConfig, Origin, Request};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let origin: Origin = format!("http://{}", listener.local_addr()?).parse()?;
    let mut server = JoinSet::new();
    server.spawn(async move { serve(listener.accept().await?.0).await });

    let client = Client::start(&origin, ClientConfig::new("example", 1))?;
    let mut callers = JoinSet::new();
    for number in 0..100 {
        let (client, request) = (client.clone(), Request::get(&format!("/{number}"))?);
        callers.spawn(async move { client.send(request, Duration::from_secs(5)).await });
    }
    let mut right = 0;
    while let Some(answer) = callers.join_next().await {
        right += u32::from(answer??.status().is_success());
    }
    let all_in_time = client.drain(Duration::from_secs(1)).await;
    let read_count = server.join_next().await.expect("the server task has started")??;
    let mut out = io::stdout();
    io::Write::write_all(&mut out, format!("{right} answers; the server read {read_count} times\n").as_bytes())?;
    assert!(right == 100 && all_in_time);
    Ok(())
}

/// Answers every request, and returns how many reads that took.
async fn serve(mut stream: TcpStream) -> io::Result<u32> {
    let (mut input, mut read_count) = (Vec::with_capacity(64 * 1024), 0);
    while stream.read_buf(&mut input).await? > 0 {
        read_count += 1;
        while let Some(end) = input.windows(4).position(|window| window == b"\r\n\r\n") {
            input.drain(..end + 4);
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await?;
        }
    }
    Ok(read_count)
}
