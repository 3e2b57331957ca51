//! Streams without WebSocket, and the requests with their commands: over real sockets, with a client that reads bytes.

use std::time::Duration;

use prost::Message as _;
use serde_json::{Value, json};
use tidings_protocol::token::sign_connection_token;
use tidings_protocol::{Admission, Order, SubscriptionTerms, Target};
use tidings_telemetry::unix_now;
use tidings_types::{Format, Transport, Variant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::{Client, as_json, upgrade_request};
use crate::schema;
use crate::server::{Asks, NODE, ORIGIN, Options, Server, channel, token_secret};

const DEADLINE: Duration = Duration::from_secs(20);
const SSE: Variant = Variant { transport: Transport::Sse, format: Format::Json };
const HTTP_JSON: Variant = Variant { transport: Transport::HttpStream, format: Format::Json };
const HTTP_PROTOBUF: Variant = Variant { transport: Transport::HttpStream, format: Format::Protobuf };
pub(crate) const STREAMS: [Variant; 3] = [SSE, HTTP_JSON, HTTP_PROTOBUF];
const UNI_WEBSOCKET: Variant = Variant { transport: Transport::UniWebSocket, format: Format::Json };
const UNI_SSE: Variant = Variant { transport: Transport::UniSse, format: Format::Json };
const UNI_HTTP: Variant = Variant { transport: Transport::UniHttpStream, format: Format::Json };
const UNIDIRECTIONAL: [Variant; 3] = [UNI_WEBSOCKET, UNI_SSE, UNI_HTTP];

const CONNECT: &str = r#"{"id":1,"connect":{}}"#;

/// Connects, and subscribes to the channel.
fn connect_to(channel: &str) -> String {
    format!("{CONNECT}\n{}", json!({"id": 2, "subscribe": {"channel": channel}}))
}

/// A request with a body, as bytes.
fn request(method: &str, target: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("{method} {target} HTTP/1.1\r\nHost: test\r\nContent-Length: {length}\r\n{headers}\r\n");
    [head.as_bytes(), body].concat()
}

/// Commands in the format.
fn encoded(format: Format, commands: &str) -> Vec<u8> {
    match format {
        Format::Json => commands.into(),
        Format::Protobuf => {
            let read = |line| serde_json::from_str::<schema::Command>(line).unwrap();
            commands.lines().flat_map(|line| read(line).encode_length_delimited_to_vec()).collect()
        }
    }
}

/// The request with which a client connects.
fn stream_request(variant: Variant, commands: &str) -> Vec<u8> {
    let body = encoded(variant.format, commands);
    let pair = form_urlencoded::Serializer::new(String::new()).append_pair("cf_connect", commands).finish();
    match (variant.transport, variant.format) {
        (Transport::Sse, _) => request("GET", &format!("/connection/sse?{pair}"), "", b""),
        (Transport::UniSse, _) => request("GET", &format!("/connection/uni_sse?{pair}"), "", b""),
        (Transport::UniHttpStream, _) => request("POST", "/connection/uni_http_stream", "", &body),
        (Transport::UniWebSocket, _) => upgrade_request(&format!("/connection/uni_websocket?{pair}"), ""),
        (_, Format::Json) => request("POST", "/connection/http_stream", "Content-Type: application/json\r\n", &body),
        (_, Format::Protobuf) => {
            request("POST", "/connection/http_stream", "Content-Type: application/octet-stream\r\n", &body)
        }
    }
}

/// A client that reads a stream, or a WebSocket to which it says nothing.
pub(crate) struct Stream {
    variant: Variant,
    socket: TcpStream,
    /// What came and was not taken yet.
    bytes: Vec<u8>,
    head: String,
    pub(crate) session: String,
}

impl Stream {
    pub(crate) async fn open(server: &Server, variant: Variant, commands: &str) -> Self {
        Self::ask(server, variant, &stream_request(variant, commands)).await
    }

    async fn ask(server: &Server, variant: Variant, request: &[u8]) -> Self {
        let mut socket = TcpStream::connect(server.addr).await.unwrap();
        socket.write_all(request).await.unwrap();
        let mut stream = Self { variant, socket, bytes: Vec::new(), head: String::new(), session: String::new() };
        stream.head = String::from_utf8(stream.until(b"\r\n\r\n").await.unwrap()).unwrap();
        if [SSE, UNI_SSE].contains(&variant) && stream.head.starts_with("HTTP/1.1 200") {
            assert_eq!(stream.until(b"\r\n").await.unwrap(), b"\r\n");
        }
        stream
    }

    /// A client whose first two commands were answered: connect and subscribe.
    async fn subscribed(server: &Server, variant: Variant, channel: &str) -> Self {
        let mut stream = Self::open(server, variant, &connect_to(channel)).await;
        let connected = stream.next().await.unwrap();
        assert_eq!((&connected["id"], &connected["connect"]["pong"]), (&json!(1), &json!(true)), "{connected}");
        assert_eq!(connected["connect"]["node"], NODE);
        stream.session = connected["connect"]["session"].as_str().unwrap().to_owned();
        assert!(stream.next().await.unwrap()["subscribe"].is_object());
        stream
    }

    /// Reads once; `false`: the end.
    async fn read(&mut self) -> bool {
        let read = timeout(DEADLINE, self.socket.read_buf(&mut self.bytes)).await.expect("bytes within the deadline");
        read.is_ok_and(|count| count > 0)
    }

    /// Everything up to and with `end`.
    async fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.bytes.windows(end.len()).position(|window| window == end) {
                return Some(self.bytes.drain(..at + end.len()).collect());
            }
            if !self.read().await {
                return None;
            }
        }
    }

    /// The next message; `None`: the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        match (self.variant.transport, self.variant.format) {
            (Transport::UniWebSocket, _) => self.next_frame().await,
            (Transport::Sse | Transport::UniSse, _) => {
                let event = self.until(b"\n\n").await?;
                Some(serde_json::from_slice(event.strip_prefix(b"data: ").unwrap()).unwrap())
            }
            (_, Format::Json) => {
                let line = self.until(b"\n").await?;
                assert!(line.is_ascii());
                Some(serde_json::from_slice(&line).unwrap())
            }
            (_, Format::Protobuf) => loop {
                let mut bytes = &self.bytes[..];
                if let Ok(reply) = schema::Reply::decode_length_delimited(&mut bytes) {
                    let rest = bytes.len();
                    self.bytes.drain(..self.bytes.len() - rest);
                    return Some(as_json(reply));
                }
                if !self.read().await {
                    return None;
                }
            },
        }
    }

    /// The next message of a WebSocket; a close frame is the number of its code.
    async fn next_frame(&mut self) -> Option<Value> {
        loop {
            let (head, length) = match self.bytes[..] {
                [_, 126, high, low, ..] => (4, u16::from_be_bytes([high, low]).into()),
                [_, length @ ..126, ..] => (2, length.into()),
                _ => (2, usize::MAX - 2),
            };
            if self.bytes.len() >= head + length {
                let frame: Vec<u8> = self.bytes.drain(..head + length).collect();
                return Some(match frame[0] {
                    0x81 => serde_json::from_slice(&frame[head..]).unwrap(),
                    0x88 => json!(u16::from_be_bytes([frame[2], frame[3]])),
                    opcode => panic!("{opcode:x}"),
                });
            }
            if !self.read().await {
                return None;
            }
        }
    }

    /// All messages until the end, or until a close frame.
    async fn drain(&mut self) -> Vec<Value> {
        let mut messages = Vec::new();
        while !messages.last().is_some_and(Value::is_number)
            && let Some(message) = self.next().await
        {
            messages.push(message);
        }
        messages
    }

    /// Sends commands in a request of their own. Returns the status.
    pub(crate) async fn send(&self, server: &Server, commands: &str) -> u16 {
        emulate(server, self.variant.format, NODE, &self.session, commands).await
    }
}

async fn emulate(server: &Server, format: Format, node: &str, session: &str, commands: &str) -> u16 {
    let data = encoded(format, commands);
    let (kind, body) = match format {
        Format::Json => ("json", json!({"node": node, "session": session, "data": commands}).to_string().into_bytes()),
        Format::Protobuf => {
            let field = |number: u8, bytes: &[u8]| {
                let mut field = vec![number << 3 | 2];
                prost::encode_length_delimiter(bytes.len(), &mut field).unwrap();
                [field, bytes.to_vec()].concat()
            };
            ("octet-stream", [field(1, node.as_bytes()), field(2, session.as_bytes()), field(3, &data)].concat())
        }
    };
    let headers = format!("Content-Type: application/{kind}\r\n");
    status(&answer(server, &request("POST", "/emulation", &headers, &body)).await)
}

/// The head of the answer.
async fn answer(server: &Server, request: &[u8]) -> String {
    let mut socket = TcpStream::connect(server.addr).await.unwrap();
    socket.write_all(request).await.unwrap();
    let mut head = Vec::new();
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        assert!(timeout(DEADLINE, socket.read_buf(&mut head)).await.unwrap().unwrap() > 0);
    }
    String::from_utf8(head).unwrap().to_lowercase()
}

fn status(head: &str) -> u16 {
    head["http/1.1 ".len()..][..3].parse().unwrap()
}

fn code(message: &Value) -> &Value {
    &message["push"]["disconnect"]["code"]
}

#[tokio::test]
async fn a_stream_connects_in_its_request_and_gets_publications_in_order() {
    let server = Server::start(Options::default()).await;
    let mut streams = Vec::new();
    for variant in STREAMS {
        streams.push(Stream::subscribed(&server, variant, "kept:1").await);
    }
    let mut client = Client::subscribed(&server, "kept:1").await;
    for value in 1..=100 {
        server.publish("kept:1", json!({"n": value, "text": "Größe 🎉"}));
    }
    for stream in &mut streams {
        for value in 1..=100 {
            let push = json!({"channel": "kept:1", "pub": {"data": {"n": value, "text": "Größe 🎉"}, "offset": value}});
            assert_eq!(stream.next().await.unwrap(), json!({"push": push}));
        }
    }
    assert_eq!(client.publications(100).await.len(), 100);
    let head = streams[0].head.to_lowercase();
    for header in ["content-type: text/event-stream", "cache-control: private, no-cache", "x-accel-buffering: no"] {
        assert!(head.contains(header), "{head}");
    }
    assert!(streams[2].head.contains("application/octet-stream"));
}

#[tokio::test]
async fn commands_in_requests_of_their_own_are_answered_on_the_stream() {
    let server = Server::start(Options::default()).await;
    for variant in STREAMS {
        let mut stream = Stream::subscribed(&server, variant, "kept:1").await;
        let publish = json!({"id": 3, "publish": {"channel": "kept:1", "data": "mine"}});
        let subscribe = json!({"id": 4, "subscribe": {"channel": "kept:2"}});
        assert_eq!(stream.send(&server, &format!("{publish}\n{subscribe}")).await, 204);
        let mut got = Vec::new();
        for _ in 0..3 {
            got.push(stream.next().await.unwrap());
        }
        assert!(got.iter().any(|message| message["id"] == 3 && message["publish"].is_object()), "{got:?}");
        assert!(got.iter().any(|message| message["id"] == 4 && message["subscribe"].is_object()));
        assert!(got.iter().any(|message| message["push"]["pub"]["data"] == "mine"));
        // A command that breaks the protocol ends the stream, and the stream says so.
        assert_eq!(stream.send(&server, "").await, 204);
        let end = stream.drain().await;
        assert_eq!(code(end.last().unwrap()), 3501);
    }
}

#[tokio::test]
async fn requests_that_name_no_session_or_are_none_change_nothing() {
    let server = Server::start(Options::default()).await;
    let mut stream = Stream::subscribed(&server, SSE, "kept:1").await;
    let publish = json!({"id": 3, "publish": {"channel": "kept:1", "data": 1}}).to_string();
    let guess = format!("{}-{}", &stream.session[..1], "0".repeat(32));
    for (node, session, expected) in [
        ("node-2", stream.session.as_str(), 404),
        ("", &stream.session, 404),
        (NODE, "", 204),
        (NODE, &guess, 204),
        (NODE, "ffff-00000000000000000000000000000000", 204),
        (NODE, &stream.session.to_uppercase(), 204),
    ] {
        assert_eq!(emulate(&server, Format::Json, node, session, &publish).await, expected, "{node} {session}");
    }
    for (method, body, expected) in
        [("POST", &b"{"[..], 400), ("POST", b"[]", 400), ("POST", b"", 400), ("GET", b"", 405)]
    {
        assert_eq!(status(&answer(&server, &request(method, "/emulation", "", body)).await), expected);
    }
    assert_eq!(stream.send(&server, &json!({"id": 9, "presence_stats": {"channel": "kept:1"}}).to_string()).await, 204);
    assert_eq!(stream.next().await.unwrap()["id"], 9, "nothing else has come");
}

#[tokio::test]
async fn requests_that_begin_no_stream_are_told_why() {
    let options = Options { connection_count_max: 1, ..Options::default() };
    let server = Server::start(options).await;
    for (method, target, expected) in [
        ("GET", "/connection/sse", 400),
        ("GET", "/connection/sse?cf_connec=x", 400),
        ("PUT", "/connection/sse", 405),
        ("GET", "/connection/http_stream", 405),
    ] {
        assert_eq!(status(&answer(&server, &request(method, target, "", b"")).await), expected, "{method} {target}");
    }
    let refused = Stream::open(&server, SSE, "{").await.drain().await;
    assert_eq!(code(&refused[0]), 3501);
    server.until("it is gone", || server.edge().connection_count() == 0).await;
    let _first = Stream::subscribed(&server, SSE, "kept:1").await;
    assert_eq!(status(&answer(&server, &stream_request(HTTP_JSON, CONNECT)).await), 503);
}

#[tokio::test]
async fn pages_of_admitted_origins_may_read_the_answers_and_no_others() {
    let server = Server::start(Options::default()).await;
    let asked = format!("Origin: {ORIGIN}\r\nAccess-Control-Request-Headers: content-type\r\n");
    for path in ["/connection/sse", "/connection/http_stream", "/emulation"] {
        let head = answer(&server, &request("OPTIONS", path, &asked, b"")).await;
        assert_eq!(status(&head), 204);
        for header in [
            "access-control-allow-origin: https://app.example",
            "access-control-allow-credentials: true",
            "access-control-allow-headers: content-type",
            "access-control-max-age: 300",
            "post, options",
        ] {
            assert!(head.contains(header), "{path}: {head}");
        }
        let stranger = request("POST", path, "Origin: https://evil.example\r\n", b"{}");
        assert_eq!(status(&answer(&server, &stranger).await), 403, "{path}");
    }
    let body = connect_to("kept:1");
    let ask = request("POST", "/connection/http_stream", &format!("Origin: {ORIGIN}\r\n"), body.as_bytes());
    let stream = Stream::ask(&server, HTTP_JSON, &ask).await;
    assert!(stream.head.contains("access-control-allow-origin: https://app.example\r\n"), "{}", stream.head);
}

/// What was asked for earlier on the connection is answered whole, however it came.
#[tokio::test]
async fn a_stream_may_follow_other_requests_on_its_connection() {
    let server = Server::start(Options::default()).await;
    let asks = [request("GET", "/nothing", "", b""), stream_request(SSE, &connect_to("kept:1"))].concat();
    let mut stream = Stream::ask(&server, SSE, &asks).await;
    assert!(stream.head.starts_with("HTTP/1.1 404"));
    assert!(stream.until(b"\r\n\r\n").await.unwrap().starts_with(b"HTTP/1.1 200"));
    assert_eq!(stream.until(b"\r\n").await.unwrap(), b"\r\n");
    assert!(stream.next().await.unwrap()["connect"].is_object());
}

async fn check_slow_stream(options: Options, variant: Variant) {
    let server = Server::start(options).await;
    let mut quick = Client::subscribed(&server, "kept:1").await;
    let mut slow = Stream::subscribed(&server, variant, "kept:1").await;
    let (block, mut value) = ("x".repeat(60_000), 0);
    while server.metric("tidings_edge_disconnects_total{reason=\"slow\"}") == 0.0 {
        server.publish("kept:1", json!([value, block]));
        quick.publications(1).await;
        value += 1;
        assert!(value < 1000, "the tail has overtaken it");
    }
    let got = slow.drain().await;
    let (last, publications) = got.split_last().unwrap();
    assert_eq!(code(last), 3008);
    for (value, push) in publications.iter().enumerate() {
        assert_eq!(push["push"]["pub"]["data"][0], value, "in order and without a gap");
    }
    server.until("it is gone", || server.edge().connection_count() == 1).await;
}

#[tokio::test]
async fn a_stream_that_the_tail_overtakes_ends_with_3008() {
    for variant in STREAMS {
        check_slow_stream(Options { frame_count_max: 64, ..Options::default() }, variant).await;
    }
}

#[tokio::test]
async fn so_does_one_over_tls() {
    check_slow_stream(Options { frame_count_max: 64, tls: true, ..Options::default() }, SSE).await;
}

#[tokio::test]
async fn a_stream_that_takes_nothing_is_cut_off() {
    let server = Server::start(Options { write_timeout: Duration::from_millis(300), ..Options::default() }).await;
    let _silent = Stream::subscribed(&server, HTTP_JSON, "room").await;
    let block = "x".repeat(60_000);
    for _ in 0..1000 {
        server.publish("room", json!(block));
    }
    let cut = || server.metric("tidings_edge_disconnects_total{reason=\"stalled\"}") == 1.0;
    server.until("the client is cut off", cut).await;
    server.until("it is gone", || server.edge().connection_count() == 0).await;
}

#[tokio::test]
async fn a_stream_that_was_cut_is_gone_with_its_session() {
    let server = Server::start(Options::default()).await;
    let stream = Stream::subscribed(&server, SSE, "kept:1").await;
    let session = stream.session.clone();
    assert_eq!(server.hub.counts().subscriptions, 1);
    drop(stream);
    server.until("it is gone", || server.edge().connection_count() == 0).await;
    server.until("its channel is left", || server.hub.counts().subscriptions == 0).await;
    let publish = json!({"id": 3, "publish": {"channel": "kept:1", "data": 1}}).to_string();
    let commands = server.metric("tidings_edge_commands_total");
    assert_eq!(emulate(&server, Format::Json, NODE, &session, &publish).await, 204);
    let mut other = Stream::subscribed(&server, SSE, "kept:1").await;
    assert_eq!(other.send(&server, &publish).await, 204);
    other.next().await.unwrap();
    assert_eq!(server.metric("tidings_edge_commands_total") - commands, 3.0, "connect, subscribe, one publish");
}

#[tokio::test]
async fn commands_that_pile_up_end_their_stream_and_no_other() {
    let server = Server::start(Options::default()).await;
    let mut bystander = Stream::subscribed(&server, SSE, "kept:1").await;
    let mut busy = Stream::subscribed(&server, HTTP_JSON, "kept:1").await;
    // It asks for much and takes nothing, so its commands wait.
    let flood = (10..1010).map(|id| json!({"id": id, "history": {"channel": "kept:1", "limit": 100}}).to_string());
    let flood = flood.collect::<Vec<_>>().join("\n");
    for _ in 0..100 {
        server.publish("kept:1", json!("x".repeat(9000)));
    }
    for _ in 0..5 {
        assert_eq!(busy.send(&server, &flood).await, 204);
    }
    server.until("it is closed", || server.metric("tidings_edge_disconnects_total{reason=\"input\"}") == 1.0).await;
    assert_eq!(code(busy.drain().await.last().unwrap()), 3013);
    assert_eq!(
        bystander.send(&server, &json!({"id": 9, "presence_stats": {"channel": "kept:1"}}).to_string()).await,
        204
    );
    while bystander.next().await.unwrap()["id"] != 9 {}
}

#[tokio::test]
async fn a_stream_answers_pings_by_requests_and_may_fail_to() {
    let (ping_interval, pong_timeout) = (Duration::from_secs(2), Duration::from_millis(600));
    let server = Server::start(Options { ping_interval, pong_timeout, ..Options::default() }).await;
    let mut stream = Stream::subscribed(&server, SSE, "durable:1").await;
    let first = server.publish_event(1, Asks::Everybody, "durable:1", 1);
    let next_ping = async |stream: &mut Stream| while stream.next().await.unwrap() != json!({}) {};
    next_ping(&mut stream).await;
    assert_eq!(stream.send(&server, "{}").await, 204);
    server.until("it has received it", || first.summary().received == 1).await;
    // The next ping is not answered: that is no receipt, and no reason to close.
    let second = server.publish_event(2, Asks::Everybody, "durable:1", 2);
    next_ping(&mut stream).await;
    server.until("its pong is late", || server.metric("tidings_edge_receipts_dropped_total") == 1.0).await;
    next_ping(&mut stream).await;
    assert_eq!((second.summary().received, server.edge().connection_count()), (0, 1));
}

#[tokio::test]
async fn a_server_that_stops_says_so_on_every_stream() {
    let server = Server::start(Options::default()).await;
    let mut streams = Vec::new();
    for variant in STREAMS {
        streams.push(Stream::subscribed(&server, variant, "kept:1").await);
    }
    server.publish("kept:1", json!("last"));
    let drained = async {
        let mut all = Vec::new();
        for stream in &mut streams {
            all.push(stream.drain().await);
            let _ = stream.socket.shutdown().await;
        }
        all
    };
    let ((), all) = tokio::join!(server.edge().shutdown(), drained);
    for messages in all {
        assert_eq!((messages.len(), code(&messages[1])), (2, &json!(3001)), "{messages:?}");
    }
}

/// What a client that only listens gets when it is let in. Back ends can name it by its session.
fn is_connected(push: &Value) -> bool {
    let connect = &push["connect"];
    let has_no = |field| connect.get(field).is_none();
    connect["client"].is_string() && connect["session"].is_string() && has_no("pong") && has_no("node")
}

/// A request of a user whom the server subscribes to these channels.
fn listen(user: &str, channels: &[&str], subs: Value) -> String {
    let subscriptions = channels.iter().map(|name| ((*name).to_owned(), SubscriptionTerms::default())).collect();
    let admission = Admission { user: user.to_owned(), subscriptions, ..Admission::default() };
    json!({"token": sign_connection_token(&token_secret(), &admission, unix_now()), "subs": subs}).to_string()
}

#[tokio::test]
async fn a_client_that_only_listens_gets_what_the_server_subscribes_it_to() {
    let server = Server::start(Options::default()).await;
    let request = listen("ann", &["kept:1", "told:1"], json!({}));
    for (offset, variant) in (1..).zip(UNIDIRECTIONAL) {
        let mut stream = Stream::open(&server, variant, &request).await;
        let push = stream.next().await.unwrap();
        assert!(is_connected(&push), "{push}");
        let subs = push["connect"]["subs"].as_object().unwrap();
        assert_eq!(subs.keys().collect::<Vec<_>>(), ["kept:1", "own:#ann", "told:1"]);
        let join = stream.next().await.unwrap();
        assert_eq!((&join["channel"], &join["join"]["info"]["user"]), (&json!("told:1"), &json!("ann")), "its own");

        server.publish("kept:1", json!("größer"));
        let publication = json!({"data": "größer", "offset": offset});
        assert_eq!(stream.next().await.unwrap(), json!({"channel": "kept:1", "pub": publication}));
        let other = Client::subscribed(&server, "told:1").await;
        assert!(stream.next().await.unwrap()["join"]["info"]["client"].is_string());
        drop(other);
        assert!(stream.next().await.unwrap()["leave"]["info"]["client"].is_string());

        let session = push["connect"]["session"].as_str().map(str::to_owned);
        let target = Target { user: "ann".to_owned(), session, ..Target::default() };
        let order = Order::Subscribe { channel: channel("plain"), terms: SubscriptionTerms::default(), since: None };
        server.edge().order(target, order).await.unwrap();
        assert_eq!(stream.next().await.unwrap(), json!({"channel": "plain", "subscribe": {}}));
        drop(stream);
        server.until("it is gone", || server.hub.subscriber_count(&channel("told:1")) == 0).await;
    }
}

#[tokio::test]
async fn a_client_that_only_listens_resumes_in_its_request() {
    let server = Server::start(Options::default()).await;
    let first = Stream::open(&server, UNI_SSE, &listen("ann", &["kept:1"], json!({}))).await.next().await.unwrap();
    let epoch = &first["connect"]["subs"]["kept:1"]["epoch"];
    (1..=3).for_each(|value| server.publish("kept:1", json!(value)));
    let subs = json!({"kept:1": {"recover": true, "offset": 1, "epoch": epoch}});
    for variant in UNIDIRECTIONAL {
        let mut stream = Stream::open(&server, variant, &listen("ann", &["kept:1"], subs.clone())).await;
        let push = stream.next().await.unwrap();
        let sub = &push["connect"]["subs"]["kept:1"];
        let missed = json!([{"data": 2, "offset": 2}, {"data": 3, "offset": 3}]);
        assert_eq!((&sub["recovered"], &sub["publications"]), (&json!(true), &missed));
    }
}

#[tokio::test]
async fn pings_that_nobody_can_answer_close_nothing_and_prove_nothing() {
    let (ping_interval, pong_timeout) = (Duration::from_secs(2), Duration::from_millis(600));
    let server = Server::start(Options { ping_interval, pong_timeout, ..Options::default() }).await;
    let mut streams = Vec::new();
    for variant in UNIDIRECTIONAL {
        let mut stream = Stream::open(&server, variant, &listen("ann", &["durable:1"], json!({}))).await;
        assert_eq!(stream.next().await.unwrap()["connect"]["ping"], 2);
        streams.push(stream);
    }
    let event = server.publish_event(1, Asks::Everybody, "durable:1", 1);
    for stream in &mut streams {
        assert_eq!(stream.next().await.unwrap()["pub"]["data"], "event 1");
        for _ in 0..2 {
            assert_eq!(stream.next().await.unwrap(), json!({}));
        }
    }
    assert_eq!((event.summary().received, server.metric("tidings_edge_receipts_asked_total")), (0, 0.0));
    let drained = async {
        let mut all = Vec::new();
        for stream in &mut streams {
            let mut said = stream.drain().await;
            said.retain(|message| *message != json!({}));
            all.push(said);
            let _ = stream.socket.shutdown().await;
        }
        all
    };
    let ((), all) = tokio::join!(server.edge().shutdown(), drained);
    let push = json!({"disconnect": {"code": 3001, "reason": "shutdown"}});
    assert_eq!(all, [vec![push.clone(), json!(3001)], vec![push.clone()], vec![push]]);
}

#[tokio::test]
async fn a_client_that_only_listens_may_say_nothing_or_too_much() {
    let server = Server::start(Options { ping_interval: Duration::from_secs(2), ..Options::default() }).await;
    let mut silent = Stream::ask(&server, UNI_SSE, &request("GET", "/connection/uni_sse", "", b"")).await;
    assert!(is_connected(&silent.next().await.unwrap()));
    let mut talking = Stream::ask(&server, UNI_WEBSOCKET, &upgrade_request("/connection/uni_websocket", "")).await;
    // Masked with zeroes: the request to connect, then something that nobody reads.
    talking.socket.write_all(b"\x81\x82\0\0\0\0{}\x81\x81\0\0\0\0x").await.unwrap();
    assert!(is_connected(&talking.next().await.unwrap()));
    assert_eq!(talking.next().await.unwrap(), json!({}), "a ping: the connection stays");
    // A message of 128 KiB, of which the head says enough.
    talking.socket.write_all(b"\x81\xff\0\0\0\0\0\x02\0\0\0\0\0\0").await.unwrap();
    assert_eq!(talking.drain().await.last(), Some(&json!(1009)));
}

#[tokio::test]
async fn a_client_that_only_listens_is_told_why_it_may_not() {
    let server = Server::start(Options::default()).await;
    for variant in UNIDIRECTIONAL {
        for (request, expected) in [
            (r#"{"token":"forged"}"#.to_owned(), 3500),
            ("[]".to_owned(), 3501),
            (listen("ann", &["nowhere:1"], json!({})), 3004),
        ] {
            let said = Stream::open(&server, variant, &request).await.drain().await;
            assert_eq!(said[0]["disconnect"]["code"], expected);
            let close = (variant == UNI_WEBSOCKET).then_some(json!(expected));
            assert_eq!(said.get(1), close.as_ref());
        }
    }
    let get = request("GET", "/connection/uni_http_stream", "", b"");
    assert_eq!(status(&answer(&server, &get).await), 405);
    server.until("all are gone", || server.edge().connection_count() == 0).await;
}
