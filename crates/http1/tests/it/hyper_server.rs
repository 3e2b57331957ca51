//! The client with hyper's server.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Request as Incoming, Response as Reply, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tidings_http1::{Request, Response, SendError};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::{SOON, client, config};

type Body = BoxBody<Bytes, Infallible>;

/// Stops when it is dropped.
struct Server {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service_fn(reply));
                connections.spawn(async move { drop(connection.await) });
            }
        });
        Self { address, _tasks: tasks }
    }
}

/// Answers as the path says.
async fn reply(request: Incoming<hyper::body::Incoming>) -> Result<Reply<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let full = |bytes: Bytes| Full::new(bytes).boxed();
    let reply = match head.uri.path() {
        "/empty" => Reply::builder().status(StatusCode::NO_CONTENT).body(full(Bytes::new())),
        "/same" => Reply::builder().status(StatusCode::NOT_MODIFIED).header("etag", "\"1\"").body(full(Bytes::new())),
        "/chunks" => {
            let frames = ["one, ", "two, ", "three"].map(|piece| Ok(Frame::data(Bytes::from(piece))));
            let mut trailers = HeaderMap::new();
            trailers.insert("x-sum", "3".parse().unwrap());
            let frames = frames.into_iter().chain([Ok(Frame::trailers(trailers))]);
            let body = StreamBody::new(futures_util::stream::iter(frames)).boxed();
            Reply::builder().header("trailer", "x-sum").body(body)
        }
        "/echo" => {
            let shown =
                format!("{} {}", head.method, head.headers.get("x-a").map_or("", |value| value.to_str().unwrap()));
            Reply::builder().header("X-Was", shown).body(full(body.collect().await.unwrap().to_bytes()))
        }
        _ => Reply::builder().body(full(head.uri.to_string().into())),
    };
    Ok(reply.unwrap())
}

#[tokio::test]
async fn methods_bodies_and_headers_arrive() {
    let server = Server::start().await;
    let client = client(server.address, config(2));
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE"] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let large = Bytes::from(vec![b'x'; 20_000]);
        let request = Request::new(method.clone(), "/echo").unwrap();
        let request = request.header("X-A", "b c").unwrap().body("small, ").body(large.clone()).body("").body(", end");
        let response = client.send(request, SOON).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["x-was"], format!("{method} b c"));
        assert_eq!(response.body(), &[b"small, ", &large[..], b", end"].concat());
    }
    let response = client.send(Request::post("/echo").unwrap(), SOON).await.unwrap();
    assert!(response.body().is_empty());
}

#[tokio::test]
async fn answers_of_every_shape_follow_each_other_on_one_connection() {
    let server = Server::start().await;
    let client = client(server.address, config(1));
    for _ in 0..3 {
        let get = async |path| client.send(Request::get(path).unwrap(), SOON).await.unwrap();
        let head = client.send(Request::head("/a-path").unwrap(), SOON);
        let chunks = client.send(Request::get("/chunks").unwrap().want_trailers(), SOON);
        let (chunks, head, empty, same, plain) = tokio::join!(chunks, head, get("/empty"), get("/same"), get("/x?y=z"));
        let (chunks, head): (Response, Response) = (chunks.unwrap(), head.unwrap());
        assert_eq!(
            (chunks.body(), &chunks.trailers()["X-Sum"]),
            (&Bytes::from("one, two, three"), &"3".parse().unwrap())
        );
        assert_eq!((head.headers()["content-length"].as_bytes(), head.body().len()), (&b"7"[..], 0));
        assert_eq!((empty.status(), empty.body().len()), (StatusCode::NO_CONTENT, 0));
        assert_eq!((same.status(), &same.headers()["ETag"]), (StatusCode::NOT_MODIFIED, &"\"1\"".parse().unwrap()));
        assert_eq!(plain.body(), "/x?y=z");
    }
    assert_eq!(client.counters().connects, 1);
    assert!(client.drain(SOON).await);
    let after = client.send(Request::get("/").unwrap(), SOON).await;
    assert!(matches!(after, Err(SendError::Closed)), "{after:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_caller_gets_its_own_answer() {
    let server = Server::start().await;
    let client = client(server.address, config(3));
    let mut callers = JoinSet::new();
    for caller in 0..40 {
        let client = client.clone();
        callers.spawn(async move {
            for number in 0..50 {
                let path = format!("/{caller}/{number}");
                let request = match number % 3 {
                    0 => Request::post(&path).unwrap().body("x"),
                    _ => Request::get(&path).unwrap(),
                };
                assert_eq!(client.send(request, SOON).await.unwrap().body(), path.as_bytes());
            }
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller.unwrap();
    }
    let counters = client.counters();
    assert_eq!((counters.answered, counters.held, counters.connects), (2000, 0, 3));
}
