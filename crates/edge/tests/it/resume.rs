//! Readers that are cut off and come back: each gets every publication once, whole and in order, or is told of a gap.
//!
//! One test cuts a fixed conversation behind each of its bytes. The other draws readers that pause, are cut and come
//! back, bursts and restarts. What it draws follows from the seed (`PROPTEST_RNG_SEED`); how far the sockets have come at
//! a cut does not.

use std::cell::Cell;
use std::net::SocketAddr;

use proptest::prelude::*;
use serde_json::{Value, json};
use tidings_types::{Format, Variant};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::client::Client;
use crate::server::{JSON, Options, Server, publish_tagged};
use crate::streams::{STREAMS, Stream};
use crate::undelta;

/// Copies bytes one way, until there are `count` or the end.
async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, copied: &Cell<u64>, count: u64) {
    let mut buffer = [0; 4096];
    while copied.get() < count {
        let room = buffer.len().min((count - copied.get()) as usize);
        let Ok(read @ 1..) = from.read(&mut buffer[..room]).await else { return };
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
        copied.set(copied.get() + read as u64);
    }
}

/// Where a connection is cut: behind so many bytes to the client, or to the server.
#[derive(Debug, Clone, Copy)]
struct Cut {
    down: u64,
    up: u64,
}

/// A proxy for one connection, which it cuts. Returns how many bytes went each way.
async fn proxy(listener: &TcpListener, server: SocketAddr, cut: Cut) -> Cut {
    let (mut client, _) = listener.accept().await.unwrap();
    let mut server = TcpStream::connect(server).await.unwrap();
    let ((client_read, client_write), (server_read, server_write)) = (client.split(), server.split());
    let (down, up) = (Cell::new(0), Cell::new(0));
    tokio::select! {
        () = copy(server_read, client_write, &down, cut.down) => {}
        () = copy(client_read, server_write, &up, cut.up) => {}
    }
    Cut { down: down.get(), up: up.get() }
}

/// What the cut client has. It goes on where it was, again and again.
struct Had<'a> {
    server: &'a Server,
    channel: &'a str,
    epoch: String,
    offset: u64,
    told_of_gaps: usize,
}

impl Had<'_> {
    fn take(&mut self, message: &Value) {
        let reply = &message["subscribe"];
        if reply.is_object() && reply["recovered"] != true {
            self.told_of_gaps += 1;
            self.offset = reply["offset"].as_u64().unwrap();
        }
        let recovered = reply["publications"].as_array().into_iter().flatten();
        for publication in recovered.chain(message["push"].get("pub")) {
            assert_eq!(publication["offset"], self.offset + 1, "the next one, once");
            self.offset += 1;
        }
    }

    /// Waits for the reply to this command. `None`: the connection has ended.
    async fn until(&mut self, client: &mut Client, id: u64) -> Option<Value> {
        loop {
            let message = client.try_next().await.ok()?;
            self.take(&message);
            if message["id"] == id {
                return Some(message);
            }
        }
    }

    async fn resume(&mut self, client: &mut Client) -> Option<()> {
        let resume = json!({"channel": self.channel, "recover": true, "offset": self.offset, "epoch": self.epoch});
        client.try_send(json!({"id": 1, "connect": {}})).await.then_some(())?;
        client.try_send(json!({"id": 2, "subscribe": resume})).await.then_some(())?;
        self.until(client, 2).await.map(drop)
    }

    fn publish_two(&self) {
        (0..2).for_each(|value| self.server.publish(self.channel, json!(value)));
    }

    /// Resumes over what was missed, gets publications live, and publishes one. `None`: the connection has ended.
    async fn talk(&mut self, client: &mut Client) -> Option<()> {
        self.resume(client).await?;
        self.publish_two();
        client.try_send(json!({"id": 3, "publish": {"channel": self.channel, "data": "mine"}})).await.then_some(())?;
        self.until(client, 3).await?;
        self.catch_up(client).await
    }

    /// Reads until it has everything that is in the history.
    async fn catch_up(&mut self, client: &mut Client) -> Option<()> {
        client.try_send(json!({"id": 4, "history": {"channel": self.channel}})).await.then_some(())?;
        let top = self.until(client, 4).await?["history"]["offset"].as_u64().unwrap();
        while self.offset < top {
            let message = client.try_next().await.ok()?;
            self.take(&message);
        }
        Some(())
    }

    /// One conversation that is cut, and the return. How many bytes went each way before the cut.
    async fn round(&mut self, format: Format, cut: Cut) -> Cut {
        self.publish_two();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (addr, server) = (listener.local_addr().unwrap(), self.server.addr);
        let talking = async {
            if let Ok(mut client) = Client::try_open_at(addr, format).await {
                self.talk(&mut client).await;
            }
        };
        let (went, ()) = tokio::join!(proxy(&listener, server, cut), talking);
        let mut client = Client::open_as(self.server, format).await;
        self.resume(&mut client).await.unwrap();
        self.catch_up(&mut client).await.unwrap();
        went
    }
}

async fn cut_everywhere(format: Format, channel: &str, step: usize) -> usize {
    const NEVER: Cut = Cut { down: u64::MAX, up: u64::MAX };
    let server = Server::start(Options::of(format)).await;
    let epoch = Client::subscribed(&server, channel).await.epoch;
    let mut had = Had { server: &server, channel, epoch, offset: 0, told_of_gaps: 0 };
    let whole = had.round(format, NEVER).await;
    assert!(whole.down > 300 && whole.up > 200, "{whole:?}");
    for down in (0..whole.down).step_by(step) {
        had.round(format, Cut { down, ..NEVER }).await;
    }
    for up in (0..whole.up).step_by(step) {
        had.round(format, Cut { up, ..NEVER }).await;
    }
    had.told_of_gaps
}

in_both!(a_client_that_is_cut_off_at_any_byte_gets_everything_once);
async fn a_client_that_is_cut_off_at_any_byte_gets_everything_once(format: Format) {
    assert_eq!(cut_everywhere(format, "kept:1", 1).await, 0, "the history has all");
}

/// Its history has one publication, and each conversation misses two.
#[tokio::test]
async fn a_client_that_is_cut_off_is_told_what_the_history_lacks() {
    assert!(cut_everywhere(Format::Json, "small:1", 16).await > 50);
}

const STREAM: &str = "small-frames:1";
const STATE: &str = "state:1";
const KINDS: [&str; 3] = ["goal", "card", "end"];
/// More than the tail and the history hold.
const BURST: usize = 120;

#[derive(Debug, Clone)]
enum Action {
    Publish(usize),
    Burst,
    /// A reader reads what has come, and comes back before if it was gone.
    Read(usize),
    Cut(usize),
    /// The server restarts, and has lost its channels.
    Restart,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        40 => (0..KINDS.len()).prop_map(Action::Publish),
        2 => Just(Action::Burst),
        50 => any::<usize>().prop_map(Action::Read),
        20 => any::<usize>().prop_map(Action::Cut),
        1 => Just(Action::Restart),
    ];
    prop::collection::vec(action, 200)
}

enum Link {
    Socket(Box<Client>),
    Stream(Stream),
}

impl Link {
    /// Connects and subscribes. Returns the reply.
    async fn open(server: &Server, variant: Variant, request: &Value) -> (Self, Value) {
        let (connect, subscribe) = (json!({"id": 1, "connect": {}}), json!({"id": 2, "subscribe": request}));
        if !STREAMS.contains(&variant) {
            let mut client = Client::connected_in(server, variant.format).await;
            let reply = client.subscribe(request.clone()).await;
            return (Self::Socket(Box::new(client)), reply);
        }
        let mut stream = Stream::open(server, variant, &format!("{connect}\n{subscribe}")).await;
        stream.session = stream.next().await.unwrap()["connect"]["session"].as_str().unwrap().to_owned();
        let reply = stream.next().await.unwrap()["subscribe"].clone();
        (Self::Stream(stream), reply)
    }

    /// What has come, and whether the connection still holds.
    async fn read(&mut self, server: &Server) -> (Vec<Value>, bool) {
        let flush = json!({"id": 99, "presence_stats": {"channel": "kept:1"}});
        let _ = match self {
            Self::Socket(client) => client.try_send(flush).await,
            Self::Stream(stream) => stream.send(server, &flush.to_string()).await == 204,
        };
        let mut messages = Vec::new();
        loop {
            let next = match self {
                Self::Socket(client) => client.try_next().await.ok(),
                Self::Stream(stream) => stream.next().await,
            };
            match next {
                Some(message) if message["id"] == 99 => return (messages, true),
                Some(message) => messages.push(message),
                None => return (messages, false),
            }
        }
    }
}

/// By offset, from 1: the kind and the payload. The same in both channels.
type Published = Vec<(usize, String)>;

struct Reader {
    variant: Variant,
    channel: &'static str,
    kind: Option<usize>,
    has_deltas: bool,
    link: Option<Link>,
    epoch: Option<String>,
    offset: usize,
    /// The payload that the next delta is against.
    base: Option<String>,
}

impl Reader {
    fn of_each_sort() -> Vec<Self> {
        let variants = [JSON, Variant::websocket(Format::Protobuf)].into_iter().chain(STREAMS);
        let sorts = [
            (STREAM, None, false),
            (STREAM, None, true),
            (STREAM, Some(0), false),
            (STREAM, Some(1), true),
            (STATE, None, false),
        ];
        let reader = |variant, (channel, kind, has_deltas)| Self {
            variant,
            channel,
            kind,
            has_deltas,
            link: None,
            epoch: None,
            offset: 0,
            base: None,
        };
        variants.flat_map(|variant| sorts.map(|sort| reader(variant, sort))).collect()
    }

    fn wants(&self, kind: usize) -> bool {
        self.kind.is_none_or(|wanted| wanted == kind)
    }

    /// Whether nothing for this reader is between what it has and `offset`.
    fn has_all_before(&self, offset: usize, published: &Published) -> bool {
        published[self.offset..offset].iter().all(|(kind, _)| !self.wants(*kind))
    }

    async fn come(&mut self, server: &Server, published: &Published) {
        let mut request = json!({"channel": self.channel});
        if let Some(epoch) = &self.epoch {
            (request["recover"], request["offset"], request["epoch"]) = (json!(true), json!(self.offset), json!(epoch));
        }
        if self.has_deltas {
            request["delta"] = json!("fossil");
        }
        if let Some(kind) = self.kind {
            request["tf"] = json!({"key": "kind", "cmp": "eq", "val": KINDS[kind]});
        }
        let (link, reply) = Link::open(server, self.variant, &request).await;
        let offset = reply["offset"].as_u64().unwrap_or(0) as usize;
        let recovered = reply["publications"].as_array().cloned().unwrap_or_default();
        (self.link, self.base) = (Some(link), None);
        match (reply["recovered"] == true, &*recovered) {
            (false, _) => self.offset = offset, // Told of the gap, or a first time.
            (true, [_]) if self.channel == STATE => self.offset = offset - 1,
            (true, []) => {
                assert!(self.has_all_before(offset, published), "{offset} is the top, the reader has {}", self.offset);
                self.offset = offset;
            }
            (true, _) => assert_eq!((self.offset, self.epoch.as_deref()), (offset, reply["epoch"].as_str())),
        }
        self.epoch = reply["epoch"].as_str().map(str::to_owned);
        recovered.iter().for_each(|publication| self.take(publication, published));
    }

    fn take(&mut self, publication: &Value, published: &Published) {
        let offset = publication["offset"].as_u64().unwrap() as usize;
        assert!(self.offset < offset, "{offset} comes once, the reader has {}", self.offset);
        assert!(self.has_all_before(offset - 1, published), "{offset} comes, the reader has {}", self.offset);
        let data = &publication["data"];
        let text = if publication["delta"] == true {
            let base = self.base.as_ref().expect("a delta needs a payload before it");
            let text = undelta::apply(base.as_bytes(), data.as_str().unwrap().as_bytes());
            String::from_utf8(text.expect("the delta fits its base")).unwrap()
        } else if self.has_deltas && self.variant.format == Format::Json {
            data.as_str().unwrap().to_owned()
        } else {
            data.to_string()
        };
        let (kind, expected) = &published[offset - 1];
        assert!(self.wants(*kind) && text == *expected, "{offset}");
        (self.base, self.offset) = (Some(text), offset);
    }

    async fn read(&mut self, server: &Server, published: &Published) {
        if self.link.is_none() {
            self.come(server, published).await;
        }
        let Some(link) = &mut self.link else { return };
        let (messages, holds) = link.read(server).await;
        messages.iter().filter_map(|message| message["push"].get("pub")).for_each(|publication| {
            self.take(publication, published);
        });
        if !holds {
            self.link = None;
        }
    }
}

fn publish(server: &Server, published: &mut Published, kind: usize) {
    let data = json!({"match": 77, "text": "the same in all of them ".repeat(5), "minute": published.len()});
    for channel in [STREAM, STATE] {
        publish_tagged(&server.hub, channel, &data, &[("kind", KINDS[kind])]);
    }
    published.push((kind, data.to_string()));
}

async fn simulate(actions: Vec<Action>) {
    let start = || Server::start(Options { frame_count_max: 64, ..Options::default() });
    let (mut server, mut published, mut readers) = (start().await, Published::new(), Reader::of_each_sort());
    for action in actions {
        let count = readers.len();
        match action {
            Action::Publish(kind) => publish(&server, &mut published, kind),
            Action::Burst => (0..BURST).for_each(|index| publish(&server, &mut published, index % KINDS.len())),
            Action::Read(who) => readers[who % count].read(&server, &published).await,
            Action::Cut(who) => readers[who % count].link = None,
            Action::Restart => {
                readers.iter_mut().for_each(|reader| reader.link = None);
                std::mem::replace(&mut server, start().await).shutdown().await;
                published.clear();
            }
        }
    }
    for reader in &mut readers {
        reader.read(&server, &published).await;
        while !reader.has_all_before(published.len(), &published) {
            reader.read(&server, &published).await;
        }
    }
    readers.clear();
    server.until("all have gone", || server.edge().connection_count() == 0).await;
    server.shutdown().await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn every_reader_has_everything_or_was_told(actions in actions()) {
        tokio::runtime::Runtime::new().unwrap().block_on(simulate(actions));
    }
}
