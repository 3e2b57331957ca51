//! The client with a faulty server.
//!
//! The server follows a script with one entry per connection. The last entry is for all later connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tidings_http1::{Client, Http1Error, Request, Response, SendError, Violation};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::{SOON, client, config, until};

/// What happens on one connection.
#[derive(Clone)]
enum Act {
    /// Answers each request with its path, in order.
    Honest,
    /// Waits for some requests, answers some of them, writes this and closes.
    Leave { requests: usize, answered: usize, last: Vec<u8> },
    /// As `Leave`, but does not close.
    Stay { requests: usize, answered: usize, last: Vec<u8> },
    /// After the first request, writes this as long as the client reads.
    Endless { first: &'static str, again: &'static str },
    /// Answers a request before it reads on, and notes how many came together.
    OneByOne(Arc<AtomicUsize>),
}

/// Stops when it is dropped.
struct Chaos {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl Chaos {
    async fn start(script: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut acts = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let act = script[count.fetch_add(1, SeqCst).min(script.len() - 1)].clone();
                acts.spawn(
                    async move { drop(perform(act, Peer { stream, input: Vec::with_capacity(1 << 16) }).await) },
                );
            }
        });
        Self { address, connections, _task: task }
    }

    fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }
}

/// The server's end of a connection.
struct Peer {
    stream: TcpStream,
    /// With room for a whole pipeline.
    input: Vec<u8>,
}

impl Peer {
    /// The path of the next request, which must have no body.
    async fn request(&mut self) -> std::io::Result<String> {
        loop {
            if let Some(end) = self.input.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = String::from_utf8(self.input.drain(..end + 4).collect()).unwrap();
                return Ok(head.split(' ').nth(1).unwrap().to_owned());
            }
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    async fn answer(&mut self, body: &str) -> std::io::Result<()> {
        self.stream.write_all(answer(body).as_bytes()).await
    }

    async fn answer_some(&mut self, requests: usize, answered: usize, last: &[u8]) -> std::io::Result<()> {
        let mut paths = Vec::new();
        for _ in 0..requests {
            paths.push(self.request().await?);
        }
        for path in &paths[..answered] {
            self.answer(path).await?;
        }
        self.stream.write_all(last).await
    }
}

fn answer(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

async fn perform(act: Act, mut peer: Peer) -> std::io::Result<()> {
    match act {
        Act::Honest => loop {
            let path = peer.request().await?;
            peer.answer(&path).await?;
        },
        Act::Leave { requests, answered, last } => {
            peer.answer_some(requests, answered, &last).await?;
            peer.stream.shutdown().await?;
            // Closing with unread requests would reset the connection, and answers might be lost.
            peer.stream.read_to_end(&mut Vec::new()).await.map(drop)
        }
        Act::Stay { requests, answered, last } => {
            peer.answer_some(requests, answered, &last).await?;
            peer.stream.read_to_end(&mut Vec::new()).await.map(drop)
        }
        Act::Endless { first, again } => {
            peer.request().await?;
            peer.stream.write_all(first.as_bytes()).await?;
            let again = again.repeat(100);
            loop {
                peer.stream.write_all(again.as_bytes()).await?;
            }
        }
        Act::OneByOne(most) => loop {
            let path = peer.request().await?;
            let heads = peer.input.windows(4).filter(|window| window == b"\r\n\r\n").count();
            most.fetch_max(1 + heads, SeqCst);
            peer.answer(&path).await?;
        },
    }
}

async fn get(client: &Client, path: &str) -> Result<Response, SendError> {
    client.send(Request::get(path).unwrap(), SOON).await
}

/// Makes requests together: `/0`, `/1`, and so on.
async fn together(client: &Client, count: usize, make: fn(&str) -> Request) -> Vec<Result<String, SendError>> {
    let mut callers = JoinSet::new();
    for number in 0..count {
        let client = client.clone();
        callers.spawn(async move { (number, client.send(make(&format!("/{number}")), SOON).await) });
    }
    let mut results: Vec<_> = callers.join_all().await;
    results.sort_by_key(|(number, _)| *number);
    let body = |response: Response| String::from_utf8(response.into_body().to_vec()).unwrap();
    results.into_iter().map(|(_, result)| result.map(body)).collect()
}

fn plain_get(path: &str) -> Request {
    Request::get(path).unwrap()
}

fn piped_post(path: &str) -> Request {
    Request::post(path).unwrap().pipeline(true)
}

fn leave(requests: usize, answered: usize, last: impl Into<Vec<u8>>) -> Act {
    Act::Leave { requests, answered, last: last.into() }
}

fn stay(requests: usize, answered: usize, last: impl Into<Vec<u8>>) -> Act {
    Act::Stay { requests, answered, last: last.into() }
}

#[track_caller]
fn assert_own_paths(results: &[Result<String, SendError>]) {
    for (number, result) in results.iter().enumerate() {
        assert_eq!(result.as_deref(), Ok(format!("/{number}").as_str()));
    }
}

#[tokio::test]
async fn a_close_in_the_middle_of_a_pipeline_costs_idempotent_requests_nothing() {
    for last in ["", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", "HTTP/1.1 200 OK\r\nTransfer-Enc"] {
        let server = Chaos::start(vec![leave(6, 2, last), Act::Honest]).await;
        let client = client(server.address, config(1));
        assert_own_paths(&together(&client, 6, plain_get).await);
        assert_eq!((server.connections(), client.counters().repeated), (2, 4), "{last:?}");
    }
}

#[tokio::test]
async fn a_close_in_the_middle_of_a_pipeline_fails_requests_that_must_not_be_repeated() {
    let server = Chaos::start(vec![leave(6, 2, ""), Act::Honest]).await;
    let client = client(server.address, config(1));
    let results = together(&client, 6, piped_post).await;
    assert_own_paths(&results[..2]);
    assert!(results[2..].iter().all(|result| *result == Err(SendError::Lost)), "{results:?}");
    assert!(results[2..].iter().all(|result| result.as_ref().is_err_and(SendError::may_have_been_sent)));
}

#[tokio::test]
async fn connection_close_ends_a_pipeline_and_the_rest_goes_elsewhere() {
    let closing = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n/2";
    let until_close = "HTTP/1.1 200 OK\r\n\r\n/2";
    // Either the server or the client closes.
    for act in [leave(6, 2, closing), stay(6, 2, closing), leave(6, 2, until_close)] {
        let server = Chaos::start(vec![act, Act::Honest]).await;
        let client = client(server.address, config(1));
        assert_own_paths(&together(&client, 6, plain_get).await);
        assert_eq!(server.connections(), 2);
    }
}

#[tokio::test]
async fn a_server_that_closes_after_each_answer_costs_connections_but_no_request() {
    for closing in ["HTTP/1.1 200 OK\r\nConnection: close\r\n", "HTTP/1.0 200 OK\r\n"] {
        let server = Chaos::start(vec![leave(1, 0, format!("{closing}Content-Length: 0\r\n\r\n"))]).await;
        let mut config = config(1);
        config.pool.in_flight_max = 1;
        config.pool.tombstone_max = 1;
        let client = client(server.address, config);
        for make in [plain_get, |path: &str| Request::post(path).unwrap()] {
            let results = together(&client, 20, make).await;
            assert!(results.iter().all(Result::is_ok), "{results:?}");
        }
    }
}

#[tokio::test]
async fn smuggled_answers_reach_no_caller() {
    for (bad, violation) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
            Violation::LengthAndEncoding,
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 40\r\n\r\n", Violation::SeveralLengths),
        ("HTTP/1.1 200 OK\nContent-Length: 0\n\n", Violation::BareLineFeed),
        ("HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\n\r\n", Violation::SwitchingProtocols),
        ("\r\n\r\n", Violation::NotHttp),
    ] {
        let server = Chaos::start(vec![stay(4, 1, bad), Act::Honest]).await;
        let client = client(server.address, config(1));
        let results = together(&client, 4, plain_get).await;
        assert_own_paths(&results[..1]);
        // All requests on the connection have failed, repeatable or not. Later requests use a new connection.
        let expected = SendError::Violation(tidings_pool::Violation::Malformed(Http1Error::Answer(violation)));
        assert!(results[1..].iter().all(|result| *result == Err(expected.clone())), "{results:?}");
        until("a new connection", || client.counters().connected == 1).await;
        assert_eq!(get(&client, "/after").await.unwrap().body(), "/after");
        assert_eq!(client.counters().violated, 3);
    }
}

#[tokio::test]
async fn an_answer_without_a_request_is_discarded() {
    let unasked = answer("poison") + "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n";
    let server = Chaos::start(vec![stay(1, 1, unasked), Act::Honest]).await;
    let client = client(server.address, config(1));
    assert_eq!(get(&client, "/first").await.unwrap().body(), "/first");
    until("the connection is given up", || client.counters().disconnects == 1).await;
    until("another is there", || client.counters().connected == 1).await;
    assert_eq!(get(&client, "/second").await.unwrap().body(), "/second");
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_late_answer_does_not_go_to_the_next_request() {
    // The server answers the first request together with the second.
    let server = Chaos::start(vec![stay(2, 2, ""), Act::Honest]).await;
    let client = client(server.address, config(1));
    let impatient = client.send(Request::get("/late").unwrap(), Duration::from_millis(30)).await;
    assert_eq!(impatient.err(), Some(SendError::Timeout { sent: true }));
    assert_eq!(get(&client, "/next").await.unwrap().body(), "/next");
    assert_eq!((client.counters().late, server.connections()), (1, 1));
}

#[tokio::test]
async fn every_endless_answer_is_a_violation() {
    let limits = config(1).limits;
    let (head, body) = (limits.head_bytes_max, limits.body_bytes_max);
    for (first, again, violation) in [
        ("HTTP/1.1 200 OK\r\n", "A: b\r\n", Violation::HeadTooLarge { limit: head }),
        ("HTTP/1.1 200 ", "O", Violation::HeadTooLarge { limit: head }),
        ("HTTP/1.1 200 OK\r\n\r\n", "x", Violation::BodyTooLarge { limit: body }),
        ("", "HTTP/1.1 100 Continue\r\n\r\n", Violation::TooManyInterim),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "1\r\nx\r\n",
            Violation::BodyTooLarge { limit: body },
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1;", Violation::ChunkLineTooLong),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "1;an-extension\r\nx\r\n",
            Violation::ChunkExtensionsTooLong,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
            "A: b\r\n",
            Violation::TrailersTooLarge { limit: head },
        ),
    ] {
        let server = Chaos::start(vec![Act::Endless { first, again }]).await;
        let client = client(server.address, config(1));
        let expected = SendError::Violation(tidings_pool::Violation::Malformed(Http1Error::Answer(violation)));
        assert_eq!(get(&client, "/").await.err(), Some(expected), "{first:?} {again:?}");
    }
}

#[tokio::test]
async fn silence_ends_at_the_deadline() {
    let server = Chaos::start(vec![stay(1, 0, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhal")]).await;
    let client = client(server.address, config(1));
    let result = client.send(Request::get("/").unwrap(), Duration::from_millis(30)).await;
    assert_eq!(result.err(), Some(SendError::Timeout { sent: true }));
}

#[tokio::test]
async fn a_request_that_is_not_idempotent_travels_alone_by_default() {
    let most = async |make: fn(&str) -> Request| {
        let most = Arc::new(AtomicUsize::new(0));
        let server = Chaos::start(vec![Act::OneByOne(Arc::clone(&most))]).await;
        let client = client(server.address, config(1));
        get(&client, "/warm").await.unwrap();
        assert_own_paths(&together(&client, 30, make).await);
        most.load(SeqCst)
    };
    assert_eq!(most(|path| Request::post(path).unwrap()).await, 1);
    assert_eq!(most(|path| Request::get(path).unwrap().pipeline(false)).await, 1);
    assert!(most(plain_get).await > 1);
    assert!(most(piped_post).await > 1);
    // A request that travels alone has no other request before or after it on the connection.
    let mixed = |path: &str| if path.ends_with('5') { Request::post(path).unwrap() } else { plain_get(path) };
    assert!(most(mixed).await > 1);
}

#[tokio::test]
async fn a_request_beyond_the_backlog_fails_at_once() {
    let server = Chaos::start(vec![stay(1000, 0, "")]).await;
    let mut config = config(2);
    config.pool.backlog_max = 8;
    config.pool.in_flight_max = 4;
    config.pool.tombstone_max = 4;
    let client = client(server.address, config);
    let (answers, mut rx) = tokio::sync::mpsc::channel(64);
    let cast = |tag| client.cast(plain_get("/"), Duration::from_millis(200), tag, &answers);
    until("both connections are up", || client.counters().connected == 2).await;
    for tag in 0..16 {
        cast(tag).unwrap();
    }
    assert_eq!(cast(16), Err(SendError::Backlog { limit: 8 }));
    for _ in 0..16 {
        assert!(matches!(
            rx.recv().await.unwrap().result,
            Err(SendError::Timeout { .. } | SendError::Unavailable | SendError::Lost)
        ));
    }
}
