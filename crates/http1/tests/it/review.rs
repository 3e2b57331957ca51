//! Half-written requests, answers that come too early or too slowly, and servers that speak HTTP/1.0.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::ServerName;
use tidings_http1::{Client, Origin, Request, SendError};
use tidings_pool::Connect;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::tls::certificates;
use crate::{SOON, client, config, until};

/// A server that does the same on every connection. `number` counts them from 0. Stops when it is dropped.
struct Server {
    address: SocketAddr,
    _task: JoinSet<()>,
}

impl Server {
    async fn start<F>(serve: impl Fn(usize, TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let serving = serve(number, stream);
                connections.spawn(async move { drop(serving.await) });
            }
        });
        Self { address, _task: task }
    }
}

/// The path of the next request, and the bytes read after its head.
async fn read_head(stream: &mut (impl AsyncRead + Unpin), input: &mut Vec<u8>) -> io::Result<String> {
    loop {
        if let Some(end) = input.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8(input.drain(..end + 4).collect()).unwrap();
            return Ok(head.split(' ').nth(1).unwrap().to_owned());
        }
        if stream.read_buf(input).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

async fn answer_all(mut stream: TcpStream) -> io::Result<()> {
    let mut input = Vec::new();
    loop {
        let path = read_head(&mut stream, &mut input).await?;
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len());
        stream.write_all(answer.as_bytes()).await?;
    }
}

/// Each answer ends with its connection, so the requests behind it are lost without a fault of theirs.
#[tokio::test]
async fn answers_that_end_with_their_connection_cost_later_requests_no_repeats() {
    const CALLERS: usize = 8;
    let server = Server::start(|number, mut stream| async move {
        let mut input = Vec::new();
        let path = read_head(&mut stream, &mut input).await?;
        for _ in 1..if number == 0 { CALLERS } else { 1 } {
            read_head(&mut stream, &mut input).await?; // All others come behind the first.
        }
        stream.write_all(format!("HTTP/1.0 200 OK\r\n\r\n{path}").as_bytes()).await?;
        stream.shutdown().await?;
        stream.read_to_end(&mut Vec::new()).await.map(drop)
    })
    .await;
    let mut config = config(1);
    config.pool.repeat_max = 0;
    let client = client(server.address, config);
    let mut callers = JoinSet::new();
    for number in 0..CALLERS {
        let client = client.clone();
        callers.spawn(async move {
            let path = format!("/{number}");
            let body = client.send(Request::get(&path).unwrap(), SOON).await.map(|response| response.into_body());
            assert_eq!(body.as_deref(), Ok(path.as_bytes()));
        });
    }
    callers.join_all().await;
}

/// The request has expired and its answer never ends. The next request must not wait for it.
#[tokio::test]
async fn an_expired_request_that_travels_alone_does_not_block_the_connection() {
    let server = Server::start(|number, mut stream| async move {
        if number > 0 {
            return answer_all(stream).await;
        }
        read_head(&mut stream, &mut Vec::new()).await?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n").await?;
        loop {
            stream.write_all(b"x").await?;
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    let client = client(server.address, config(1));
    let slow = client.send(Request::post("/slow").unwrap(), Duration::from_millis(50)).await;
    assert_eq!(slow.err(), Some(SendError::Timeout { sent: true }));
    until("the connection is given up", || client.counters().disconnects == 1).await;
    until("another is there", || client.counters().connected == 1).await;
    let next = client.send(Request::get("/next").unwrap(), SOON).await;
    assert_eq!(next.unwrap().body(), "/next");
}

const LARGE: usize = 8 << 20;

/// The rest of the body is still written, and the next request gets its own answer.
#[tokio::test]
async fn an_answer_before_the_end_of_its_request_is_accepted() {
    let is_answered = Arc::new(Notify::new());
    let go_on = Arc::clone(&is_answered);
    let server = Server::start(move |_, mut stream| {
        let go_on = Arc::clone(&go_on);
        async move {
            let mut input = Vec::new();
            read_head(&mut stream, &mut input).await?;
            stream.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n").await?;
            go_on.notified().await; // The body is larger than what the system buffers, so its end is not written yet.
            let mut rest = LARGE - input.len();
            while rest > 0 {
                let mut piece = vec![0; rest.min(1 << 16)];
                let count = stream.read(&mut piece).await?;
                assert!(count > 0, "the rest of the body is written: {rest} bytes are missing");
                rest -= count;
            }
            answer_all(stream).await
        }
    })
    .await;
    let client = client(server.address, config(1));
    let post = Request::post("/large").unwrap().body(vec![b'x'; LARGE]);
    assert_eq!(client.send(post, SOON).await.unwrap().status(), 413);
    is_answered.notify_one();
    let next = client.send(Request::get("/next").unwrap(), SOON).await.unwrap();
    assert_eq!((next.body().as_ref(), client.counters().connects), (&b"/next"[..], 1));
}

/// The server sends a second answer before the second request is written, so it cannot be its answer.
#[tokio::test]
async fn an_answer_to_an_unwritten_request_is_discarded() {
    let is_queued = Arc::new(Notify::new());
    let go_on = Arc::clone(&is_queued);
    let server = Server::start(move |number, mut stream| {
        let go_on = Arc::clone(&go_on);
        async move {
            if number > 0 {
                return answer_all(stream).await;
            }
            read_head(&mut stream, &mut Vec::new()).await?;
            stream.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n").await?;
            go_on.notified().await;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison").await?;
            std::future::pending().await // Keeps the connection open until the test ends.
        }
    })
    .await;
    let mut config = config(1);
    config.pool.output_bytes_max = 2 * LARGE;
    let client = client(server.address, config);
    let post = Request::post("/large").unwrap().body(vec![b'x'; LARGE]);
    assert_eq!(client.send(post, SOON).await.unwrap().status(), 413);
    let queued = async {
        until("it stands behind the body", || client.counters().in_flight == 1).await;
        is_queued.notify_one();
    };
    let (next, ()) = tokio::join!(client.send(Request::get("/next").unwrap(), SOON), queued);
    // An unsent request may only end because there is no connection at the moment.
    assert!(matches!(&next, Err(SendError::Unavailable)) || next.as_ref().unwrap().body() == "/next", "{next:?}");
}

/// A socket that breaks once, after a number of bytes.
struct Fragile {
    tcp: TcpStream,
    rest: Arc<AtomicUsize>,
}

impl AsyncRead for Fragile {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Fragile {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let rest = self.rest.load(SeqCst);
        if rest == 0 {
            self.rest.store(usize::MAX, SeqCst);
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let count = ready!(Pin::new(&mut self.tcp).poll_write(cx, &bytes[..bytes.len().min(rest)]))?;
        if rest != usize::MAX {
            self.rest.store(rest - count, SeqCst);
        }
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

struct OverFragile {
    address: SocketAddr,
    rest: Arc<AtomicUsize>,
    tls: TlsConnector,
}

impl Connect for OverFragile {
    type Transport = TlsStream<Fragile>;

    async fn connect(&self) -> io::Result<TlsStream<Fragile>> {
        let fragile = Fragile { tcp: TcpStream::connect(self.address).await?, rest: Arc::clone(&self.rest) };
        self.tls.connect(ServerName::try_from("localhost").unwrap(), fragile).await
    }
}

/// TLS accepts more bytes than the socket, and then fails. The server may have got the accepted bytes.
#[tokio::test]
async fn a_request_that_tls_has_partly_sent_counts_as_sent() {
    let (ca_pem, certificate, key) = certificates("localhost");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let tls = builder.unwrap().with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let heads = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&heads);
    let server = Server::start(move |_, stream| {
        let (acceptor, seen) = (acceptor.clone(), Arc::clone(&seen));
        async move {
            let mut tls = acceptor.accept(stream).await?;
            let mut input = Vec::new();
            loop {
                read_head(&mut tls, &mut input).await?;
                seen.fetch_add(1, SeqCst);
                tls.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await?;
                tls.flush().await?;
            }
        }
    })
    .await;

    let mut roots = rustls::RootCertStore::empty();
    let pem = <rustls::pki_types::CertificateDer<'_> as rustls::pki_types::pem::PemObject>::from_pem_slice;
    roots.add(pem(ca_pem.as_bytes()).unwrap()).unwrap();
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let tls = builder.unwrap().with_root_certificates(roots).with_no_client_auth();
    let rest = Arc::new(AtomicUsize::new(usize::MAX));
    let connector =
        OverFragile { address: server.address, rest: Arc::clone(&rest), tls: TlsConnector::from(Arc::new(tls)) };
    let origin: Origin = "https://localhost".parse().unwrap();
    let client = Client::start_over(&origin, config(1), connector).unwrap();
    until("it is up", || client.counters().connected == 1).await;

    rest.store(20_000, SeqCst); // One record of 16 KiB and a part of the next.
    let result = client.send(Request::post("/once").unwrap().body(vec![b'x'; 40_000]), SOON).await;
    assert_eq!(result.err(), Some(SendError::Lost));
    until("the server has its head", || heads.load(SeqCst) == 1).await;
}
