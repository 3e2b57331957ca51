//! Requests as bytes, each over a connection of its own, from an address of one's own choice.
//!
//! What takes longer than [`PATIENCE`] is an error.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// How long connecting, and an exchange, may take.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The address of clients that behave.
pub const HOME: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// So small that what is not read soon waits in the server.
const RECEIVE_BUFFER_BYTES: u32 = 16 * 1024;

/// A connection that says nothing yet.
///
/// # Errors
/// If it cannot be made in time.
pub async fn line(server: SocketAddr, from: Ipv4Addr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
    socket.bind((from, 0).into())?;
    let stream = timeout(PATIENCE, socket.connect(server)).await??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A request as bytes, with `headers` of one line each.
pub fn request(method: &str, path: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n");
    headers.iter().for_each(|header| head.extend([*header, "\r\n"]));
    [head.as_bytes(), b"\r\n", body].concat()
}

/// A request by a back end with this API key, with a body of JSON. It ends its connection.
pub fn backend_request(key: &str, method: &str, path: &str, body: &Value) -> Vec<u8> {
    let headers = [&*format!("X-API-Key: {key}"), "Content-Type: application/json", "Connection: close"];
    request(method, path, &headers, body.to_string().as_bytes())
}

/// Sends a request that ends its connection, and reads the answer: its status and all of its bytes.
///
/// # Errors
/// If there is no whole answer in time.
pub async fn exchange(server: SocketAddr, from: Ipv4Addr, request: &[u8]) -> io::Result<(u16, Vec<u8>)> {
    let mut stream = line(server, from).await?;
    let mut answer = Vec::new();
    let exchanged = timeout(PATIENCE, async {
        stream.write_all(request).await?;
        stream.read_to_end(&mut answer).await
    });
    exchanged.await??;
    let status = answer.get(9..12).and_then(|digits| str::from_utf8(digits).ok()?.parse().ok());
    Ok((status.ok_or(io::ErrorKind::InvalidData)?, answer))
}

/// The last line of an answer: a problem, where it is one.
pub fn last_line(answer: &[u8]) -> String {
    String::from_utf8_lossy(answer).lines().next_back().unwrap_or_default().to_owned()
}
