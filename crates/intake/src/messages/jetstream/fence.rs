//! A fence between NATS and its client: what a server sends is bounded before the client reads it.
//!
//! The client keeps whatever the server says belongs together: a line without an end, a message of 4 GiB, messages that nobody
//! asked for. It takes no connection but its own. So for each server there is a *door*, a listener on the loopback interface. The
//! client connects to the doors, and behind each this module speaks to the server:
//!
//! ```text
//!   client ──── plain text, loopback ──── door │ fence ──── TLS, or plain text on loopback ──── server
//! ```
//!
//! - A line has at most [`LINE_BYTES_MAX`] bytes, a message [`MESSAGE_BYTES_MAX`]: NATS itself takes no larger ones.
//! - So many bytes of messages that nobody has answered are let through: [`WINDOW_BYTES`]. Then the server waits until the client
//!   publishes, which it does with each acknowledgement.
//! - TLS is begun here, and never ended. What a server sends in plain text behind its greeting, where TLS has to begin, is refused.
//!   The client is told that there is no TLS, because its part of the way has none.
//!
//! Whoever may connect to the loopback interface may come through a door, too, but has no credentials then.
//!
//! Sources: the NATS client protocol (docs.nats.io, "Client Protocol"); RFC 8446 (TLS).

use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::ServerAddr;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tidings_telemetry::chain;
use tidings_telemetry::panics::lock;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::io::{BufReader, BufWriter, copy_buf, split};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// A greeting with the addresses of a large cluster, or a client's introduction with its certificate of the account.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// The largest `max_payload` of a NATS server.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;
const WINDOW_BYTES: u64 = 64 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ADDRESS_COUNT_MAX: usize = 8;
/// Connections through one door; the client has one at a time, and the one before may still end.
const CONNECTION_COUNT_MAX: usize = 4;

/// Why a connection was given up.
#[derive(Debug, thiserror::Error)]
enum FenceError {
    #[error("it sends a line of more than {LINE_BYTES_MAX} bytes")]
    Line,
    #[error("it sends a message of {0} bytes, at most {MESSAGE_BYTES_MAX} are taken")]
    Message(u64),
    #[error("it does not greet as a NATS server")]
    Greeting,
    #[error("it sends something before TLS begins")]
    Early,
    #[error("its name is none that a certificate can have")]
    Name,
    #[error("TLS fails")]
    Tls(#[source] io::Error),
    #[error("no address of it answers")]
    Unreachable(#[source] io::Error),
    #[error("the connection breaks")]
    Broken(#[from] io::Error),
}

/// Doors to NATS servers. Dropped, all connections through them end.
pub(super) struct Fence {
    doors: Vec<String>,
    why: Why,
    _tasks: JoinSet<()>,
}

/// Why the last connection was given up.
type Why = Arc<Mutex<Option<String>>>;

impl Fence {
    /// A door to each server; the addresses were checked.
    pub(super) async fn open(servers: &[String], tls: &Arc<ClientConfig>) -> io::Result<Self> {
        let (mut doors, mut tasks, why) = (Vec::new(), JoinSet::new(), Why::default());
        for server in servers {
            let server: ServerAddr = server.parse().map_err(io::Error::other)?;
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            doors.push(format!("nats://{}", listener.local_addr()?));
            tasks.spawn(serve(listener, server, tls.clone(), why.clone()));
        }
        Ok(Self { doors, why, _tasks: tasks })
    }

    /// The addresses for the client.
    pub(super) fn doors(&self) -> &[String] {
        &self.doors
    }

    /// Why the last connection was given up, if it was here.
    pub(super) fn why(&self) -> Option<String> {
        lock(&self.why).clone()
    }
}

async fn serve(listener: TcpListener, server: ServerAddr, tls: Arc<ClientConfig>, why: Why) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.len() >= CONNECTION_COUNT_MAX {
            connections.join_next().await;
        }
        let (server, tls, why) = (server.clone(), tls.clone(), why.clone());
        connections.spawn(async move {
            *lock(&why) = match pass(client, &server, tls).await {
                // Either side has ended it; the client knows more of that.
                Ok(()) | Err(FenceError::Broken(_)) => None,
                Err(error) => Some(format!("NATS server {}:{}: {}", server.host(), server.port(), chain(&error))),
            };
        });
    }
}

/// Passes one connection of the client on until either side ends it.
async fn pass(client: TcpStream, server: &ServerAddr, tls: Arc<ClientConfig>) -> Result<(), FenceError> {
    let mut stream = BufReader::new(connect(server).await?);
    let greeting = timeout(CONNECT_TIMEOUT, line(&mut stream)).await;
    let greeting = greeting.map_err(|_| FenceError::Greeting)??.ok_or(FenceError::Greeting)?;
    let info = Info::read(&greeting).ok_or(FenceError::Greeting)?;
    if !server.tls_required() && !info.wants_tls {
        return pass_on(client, stream, &info).await;
    }
    if !stream.buffer().is_empty() {
        return Err(FenceError::Early);
    }
    let name = ServerName::try_from(server.host().to_owned()).map_err(|_| FenceError::Name)?;
    let secured = timeout(CONNECT_TIMEOUT, TlsConnector::from(tls).connect(name, stream.into_inner())).await;
    let secured = secured.map_err(|_| FenceError::Tls(io::ErrorKind::TimedOut.into()))?;
    pass_on(client, BufReader::new(secured.map_err(FenceError::Tls)?), &info).await
}

async fn connect(server: &ServerAddr) -> Result<TcpStream, FenceError> {
    let addresses = timeout(CONNECT_TIMEOUT, lookup_host((server.host(), server.port()))).await;
    let addresses = addresses.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses.map_err(FenceError::Unreachable)?.take(ADDRESS_COUNT_MAX) {
        match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(FenceError::Unreachable(last))
}

/// What a server says of itself.
struct Info {
    wants_tls: bool,
    /// For the client, with its line's end.
    told: Vec<u8>,
}

impl Info {
    /// `None`: it is none.
    fn read(line: &[u8]) -> Option<Self> {
        let mut info: serde_json::Map<String, Value> = serde_json::from_slice(line.strip_prefix(b"INFO ")?).ok()?;
        let wants_tls = info.remove("tls_required").is_some_and(|wants| wants == true);
        info.remove("tls_available");
        info.remove("tls_verify");
        let told = format!("INFO {}\r\n", Value::Object(info)).into_bytes();
        Some(Self { wants_tls, told })
    }
}

async fn pass_on<S: AsyncRead + AsyncWrite>(
    client: TcpStream,
    server: BufReader<S>,
    info: &Info,
) -> Result<(), FenceError> {
    client.set_nodelay(true)?;
    let early = server.buffer().to_vec();
    let (from_server, to_server) = split(server.into_inner());
    let (from_client, mut to_client) = client.into_split();
    to_client.write_all(&info.told).await?;
    let (answered, answers) = watch::channel(0_u64);
    let from_server = BufReader::new(io::Cursor::new(early).chain(from_server));
    tokio::select! {
        ended = guard(from_server, BufWriter::new(to_client), answers) => ended,
        ended = listen(BufReader::new(from_client), BufWriter::new(to_server), answered) => ended,
    }
}

/// Passes on what the server sends, within the bounds.
async fn guard(
    mut from: impl AsyncBufRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut answers: watch::Receiver<u64>,
) -> Result<(), FenceError> {
    let (mut unanswered, mut seen) = (0, 0);
    while let Some(line) = line(&mut from).await? {
        if line.starts_with(b"INFO ") {
            to.write_all(&Info::read(&line).ok_or(FenceError::Greeting)?.told).await?;
        } else {
            to.write_all(&line).await?;
        }
        if let Some(bytes) = payload(&line, &[b"MSG ", b"HMSG "]) {
            if bytes > MESSAGE_BYTES_MAX {
                return Err(FenceError::Message(bytes));
            }
            if *answers.borrow_and_update() != seen {
                (unanswered, seen) = (0, *answers.borrow());
            }
            copy(&mut from, &mut to, bytes + 2).await?;
            unanswered += bytes;
            if unanswered > WINDOW_BYTES {
                to.flush().await?;
                if answers.changed().await.is_err() {
                    return Ok(());
                }
            }
        }
        flush_if_all(&mut from, &mut to).await?;
    }
    Ok(())
}

/// Passes on what the client sends, and counts what it publishes.
async fn listen(
    mut from: BufReader<impl AsyncRead + Unpin>,
    mut to: impl AsyncWrite + Unpin,
    answered: watch::Sender<u64>,
) -> Result<(), FenceError> {
    while let Some(line) = line(&mut from).await? {
        to.write_all(&line).await?;
        if let Some(bytes) = payload(&line, &[b"PUB ", b"HPUB "]) {
            copy(&mut from, &mut to, bytes + 2).await?;
            answered.send_modify(|count| *count += 1);
        }
        flush_if_all(&mut from, &mut to).await?;
    }
    Ok(())
}

/// The next line with its end; `None`: there is nothing more.
async fn line(from: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<Vec<u8>>, FenceError> {
    let mut line = Vec::new();
    (&mut *from).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await?;
    match line.last() {
        Some(b'\n') => Ok(Some(line)),
        Some(_) if line.len() as u64 == LINE_BYTES_MAX => Err(FenceError::Line),
        Some(_) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        None => Ok(None),
    }
}

/// The bytes behind such a line, without their end. A number that is none is left to who reads the line.
fn payload(line: &[u8], operations: &[&[u8]]) -> Option<u64> {
    operations
        .iter()
        .find(|operation| line.get(..operation.len()).is_some_and(|start| start.eq_ignore_ascii_case(operation)))?;
    let last = line.trim_ascii_end().rsplit(|byte| byte.is_ascii_whitespace()).next()?;
    std::str::from_utf8(last).ok()?.parse().ok()
}

async fn copy(
    from: &mut (impl AsyncBufRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    bytes: u64,
) -> io::Result<()> {
    match copy_buf(&mut (&mut *from).take(bytes), to).await? {
        copied if copied == bytes => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Nothing waits here while there is nothing more to read.
async fn flush_if_all(from: &mut (impl AsyncBufRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    let more = tokio::select! {
        biased;
        more = from.fill_buf() => more?.len(),
        () = std::future::ready(()) => 0,
    };
    if more == 0 { to.flush().await } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_behind_a_line_are_its_last_number() {
        let operations: &[&[u8]] = &[b"MSG ", b"HMSG "];
        let of = |line: &str| payload(line.as_bytes(), operations);
        assert_eq!(of("MSG events 1 11\r\n"), Some(11));
        assert_eq!(of("msg events 1 reply.to 4294967296\r\n"), Some(4_294_967_296));
        assert_eq!(of("HMSG events 1 12 30\r\n"), Some(30));
        assert_eq!([of("PING\r\n"), of("MSG\r\n"), of("MSG events 1 -5\r\n"), of("")], [None; 4]);
    }

    #[test]
    fn the_client_is_told_of_no_tls() {
        let info = Info::read(b"INFO {\"server_id\":\"A\",\"tls_required\":true,\"tls_available\":true}\r\n").unwrap();
        assert!(info.wants_tls);
        assert_eq!(info.told, b"INFO {\"server_id\":\"A\"}\r\n");
        assert!(Info::read(b"PING\r\n").is_none() && Info::read(b"INFO []\r\n").is_none());
    }

    /// Messages that nobody asked for stop when the window is full, and go on with the next answer.
    #[tokio::test(start_paused = true)]
    async fn unanswered_messages_wait() {
        let mut messages = Vec::new();
        for _ in 0..200 {
            messages.extend(format!("MSG a 1 {}\r\n", 1 << 20).into_bytes());
            messages.extend(vec![b'x'; (1 << 20) + 2]);
        }
        let (answered, answers) = watch::channel(0);
        let (write, mut read) = tokio::io::duplex(1 << 20);
        let passing = guard(io::Cursor::new(messages), write, answers);
        let reading = async {
            let (mut buffer, mut count, mut answers) = (vec![0; 1 << 20], 0_u64, 0);
            loop {
                match timeout(Duration::from_millis(300), read.read(&mut buffer)).await {
                    Ok(Ok(0) | Err(_)) => return (count, answers),
                    Ok(Ok(bytes)) => count += bytes as u64,
                    Err(_) => {
                        let window = (answers + 1) * (WINDOW_BYTES + (2 << 20));
                        assert!(count >= WINDOW_BYTES * (answers + 1) && count <= window, "{count} after {answers}");
                        answers += 1;
                        answered.send_modify(|count| *count += 1);
                    }
                }
            }
        };
        let (passed, (count, answers)) = tokio::join!(passing, reading);
        passed.unwrap();
        assert!(count > 200 << 20 && answers == 3, "{count} bytes with {answers} answers");
    }
}
