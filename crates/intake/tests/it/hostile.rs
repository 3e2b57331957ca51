//! Databases and brokers that lie: what they say costs them the connection, and nobody anything else.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidings_http1::Roots;
use tidings_intake::{Door, Intake, JetStreamConfig, MessageSource, OutboxConfig, SourceStatus, database};
use tidings_telemetry::Registry;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::support::*;

/// One source of messages, and what it needs.
struct Source {
    intake: Intake,
    ledger: Arc<Ledger>,
    _folder: tempfile::TempDir,
}

impl Source {
    fn start(source: MessageSource) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (store, ledger, registry) = (open(&folder), Arc::<Ledger>::default(), Registry::new());
        let door: Arc<dyn Door> = ledger.clone();
        let mut intake = Intake::start(Default::default(), &store, &door, &registry).unwrap();
        intake.read_messages("shop", source, &door, &registry);
        Self { intake, ledger, _folder: folder }
    }

    fn status(&self) -> SourceStatus {
        self.intake.statuses().remove(0)
    }
}

/// A database that answers each statement with what it has been told to, whatever the statement says.
struct Liar {
    source: Source,
    /// The tags of all frames that the client sent after its greeting.
    heard: Arc<Mutex<Vec<u8>>>,
    _serving: JoinSet<()>,
}

fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
    [&[tag][..], &(u32::try_from(body.len()).unwrap() + 4).to_be_bytes(), body].concat()
}

/// The connection's greeting.
fn welcome() -> Vec<u8> {
    [frame(b'R', &[0; 4]), ready()].concat()
}

fn ready() -> Vec<u8> {
    frame(b'Z', b"I")
}

/// The names of columns, all of a type that nobody knows.
fn columns(names: &[&str]) -> Vec<u8> {
    let mut body = u16::try_from(names.len()).unwrap().to_be_bytes().to_vec();
    for name in names {
        let of_type = [&[0; 6][..], &999_999_u32.to_be_bytes(), &[0xff; 2], &[0xff; 4], &[0; 2]].concat();
        body.extend([name.as_bytes(), &[0], &of_type].concat());
    }
    frame(b'T', &body)
}

fn row(values: &[&str]) -> Vec<u8> {
    let mut body = u16::try_from(values.len()).unwrap().to_be_bytes().to_vec();
    for value in values {
        body.extend([&u32::try_from(value.len()).unwrap().to_be_bytes()[..], value.as_bytes()].concat());
    }
    frame(b'D', &body)
}

impl Liar {
    /// `greeting`: after the client's own. `answer`: to each statement but `LISTEN`.
    async fn start(greeting: Vec<u8>, answer: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::<Mutex<Vec<u8>>>::default();
        let mut serving = JoinSet::new();
        let told = heard.clone();
        serving.spawn(async move {
            let mut talks = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                talks.spawn(talk(stream, greeting.clone(), answer.clone(), told.clone()));
            }
        });
        let source = Source::start(MessageSource::Outbox(Box::new(OutboxConfig {
            database: database(&format!("postgres://shop:secret@127.0.0.1:{port}/shop")).unwrap(),
            tls: Roots::Native.client_config().unwrap(),
            table: "outbox".to_owned(),
            channel: "outbox".to_owned(),
            interval: Duration::from_millis(10),
        })));
        Self { source, heard, _serving: serving }
    }
}

async fn talk(
    mut stream: TcpStream,
    greeting: Vec<u8>,
    answer: Vec<u8>,
    heard: Arc<Mutex<Vec<u8>>>,
) -> std::io::Result<()> {
    let mut length = [0; 4];
    loop {
        stream.read_exact(&mut length).await?;
        let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
        stream.read_exact(&mut body).await?;
        match body.first_chunk() {
            Some([0x04, 0xd2, 0x16, 0x2f]) => stream.write_all(b"N").await?, // It asks for TLS.
            _ => break,
        }
    }
    stream.write_all(&greeting).await?;
    loop {
        let tag = stream.read_u8().await?;
        stream.read_exact(&mut length).await?;
        let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
        stream.read_exact(&mut body).await?;
        heard.lock().unwrap().push(tag);
        let listens = body.starts_with(b"LISTEN");
        stream.write_all(if listens { &[] } else { &answer }).await?;
        stream.write_all(&[frame(b'C', b"OK\0"), ready()].concat()).await?;
    }
}

/// A library that looks up the type asks for it again and again, until the stack overflows.
#[tokio::test]
async fn a_type_that_nobody_knows_is_not_asked_for() {
    let answer = [columns(&["id", "event"]), row(&["7", r#"{"topic":"goal"}"#])].concat();
    let liar = Liar::start(welcome(), answer).await;
    eventually("the event is taken", || liar.source.ledger.count() > 0).await;
    assert_eq!(liar.source.ledger.take()[0], r#"{"id":"shop-7","topic":"goal"}"#);
    assert!(liar.heard.lock().unwrap().iter().all(|tag| *tag == b'Q'), "only simple statements");
}

#[tokio::test]
async fn a_database_that_lies_loses_the_connection_and_the_status_says_why() {
    let asks = |count: &str| frame(b'R', &[&[0, 0, 0, 11], format!("r=a,s=c2FsdA==,i={count}").as_bytes()].concat());
    let accepted = frame(b'R', &[0; 4]);
    let parameter = frame(b'S', &[&[b'x'; 100_000][..], b"\0\0"].concat());
    let mechanisms = frame(b'R', &[&[0, 0, 0, 10][..], b"SCRAM-SHA-256\0\0"].concat());
    let huge = [&b"D"[..], &u32::MAX.to_be_bytes()].concat();
    let (two, rows) = (columns(&["id", "event"]), row(&["1", "{}"]).repeat(300));
    let cases = [
        ([mechanisms, asks("4294967295")].concat(), Vec::new(), "4294967295 hashes"),
        ([accepted, frame(b'N', &[b'x'; 60_000]).repeat(20)].concat(), Vec::new(), "before it is ready"),
        (welcome(), parameter.repeat(170), "bytes of parameters"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), Vec::new(), "1414811695 bytes"),
        (welcome(), huge, "4294967295 bytes"),
        (welcome(), [&two[..], &rows].concat(), "more rows than were asked for"),
        (welcome(), [columns(&["id"]), row(&["1"])].concat(), "a row that was not asked for"),
        (welcome(), [&two[..], &row(&["one", "{}"])].concat(), "an id that is no number"),
        (welcome(), [&two[..], &row(&["1"])].concat(), "does not match"),
    ];
    for (greeting, answer, why) in cases {
        let liar = Liar::start(greeting, answer).await;
        eventually(why, || liar.source.status().error.is_some()).await;
        let error = liar.source.status().error.unwrap();
        assert!(error.contains(why) && !error.contains("secret"), "{why}: {error}");
        assert_eq!(liar.source.ledger.take(), [""; 0]);
    }
}

/// A broker that names another server to its clients: they would be sent there, with their credentials, in plain text.
#[tokio::test]
async fn a_server_that_a_broker_names_is_not_connected_to() {
    let broker = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = broker.local_addr().unwrap();
    let [greeted, misled] = [0, 0].map(|count| Arc::new(AtomicUsize::new(count)));
    let mut serving = JoinSet::new();
    let count = greeted.clone();
    let name = other.local_addr().unwrap();
    serving.spawn(async move {
        loop {
            let (stream, _) = broker.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            let info = format!(
                r#"INFO {{"server_id":"A","server_name":"a","version":"2.15.0","go":"go1.26","host":"127.0.0.1","port":4222,"headers":true,"max_payload":1048576,"jetstream":true,"client_id":1,"connect_urls":["{name}"]}}"#
            );
            let _ = stream.write_all(format!("{info}\r\n").as_bytes()).await;
            let mut line = String::new();
            while stream.read_line(&mut line).await.is_ok_and(|bytes| bytes > 0) && !line.contains("PING") {}
            let _ = stream.write_all(b"PONG\r\n").await;
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let count = misled.clone();
    serving.spawn(async move {
        loop {
            let _ = other.accept().await.unwrap();
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let _source = Source::start(MessageSource::JetStream(JetStreamConfig {
        servers: vec![format!("nats://{address}")],
        tls: Roots::Native.client_config().unwrap(),
        credentials: None,
        stream: "EVENTS".to_owned(),
        consumer: "tidings".to_owned(),
        filter: None,
    }));
    eventually("the broker is connected to again and again", || {
        greeted.load(Ordering::Relaxed) >= 4 || misled.load(Ordering::Relaxed) > 0
    })
    .await;
    assert_eq!(misled.load(Ordering::Relaxed), 0);
}

const INFO: &str = r#"{"server_id":"A","server_name":"a","version":"2.15.0","go":"go1.26","host":"127.0.0.1","port":4222,"headers":true,"max_payload":1048576,"jetstream":true,"client_id":1,"proto":1}"#;

/// A broker that says this to each client, and then `endless` again and again.
async fn broker(greeting: String, endless: &'static str) -> (SocketAddr, JoinSet<()>, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, sent) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let (mut serving, count) = (JoinSet::new(), sent.clone());
    serving.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.write_all(greeting.as_bytes()).await;
            let piece = endless.repeat((64 << 10) / endless.len().max(1));
            while stream.write_all(piece.as_bytes()).await.is_ok() && !piece.is_empty() {
                count.fetch_add(piece.len(), Ordering::Relaxed);
            }
            let _ = stream.read(&mut [0; 1024]).await; // It ends with its client.
        }
    });
    (address, serving, sent)
}

/// What a broker sends is bounded before its client keeps it, and the status says what was wrong.
#[tokio::test]
async fn a_broker_that_lies_loses_the_connection_and_the_status_says_why() {
    let wants_tls = INFO.replace("{\"server_id", "{\"tls_required\":true,\"server_id");
    let lies = [
        ("INFO {".to_owned(), "\"a\":1,", "a line of more than 65536 bytes"),
        (format!("INFO {INFO}\r\nMSG a 1 4294967296\r\n"), "x", "a message of 4294967296 bytes, at most 67108864"),
        (format!("INFO {INFO}\r\n"), "x", "a line of more than 65536 bytes"),
        (format!("INFO {wants_tls}\r\nMSG a 1 0\r\n"), "\r\n", "sends something before TLS begins"),
        ("220 mail.example.com\r\n".to_owned(), "", "does not greet as a NATS server"),
    ];
    for (greeting, endless, why) in lies {
        let (address, _serving, sent) = broker(greeting, endless).await;
        let source = Source::start(MessageSource::JetStream(JetStreamConfig {
            servers: vec![format!("nats://{address}")],
            tls: Roots::Native.client_config().unwrap(),
            credentials: None,
            stream: "EVENTS".to_owned(),
            consumer: "tidings".to_owned(),
            filter: None,
        }));
        eventually(why, || source.status().error.is_some_and(|error| error.contains(why))).await;
        let sent = sent.load(Ordering::Relaxed);
        assert!(sent < 256 << 20, "{sent} bytes were taken");
    }
}
