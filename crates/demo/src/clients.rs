//! The connected clients: real sockets that receive the match, check what they get, and measure latency.
//!
//! All clients run on a thread of their own, so that their CPU time is separate from the server's. Client n is the app of
//! phone n. It proves this with the phone's credential, and says whether it is on the screen. It subscribes (every client
//! to the match, every fifth to Argentina, every seventh to France) and reads. For each channel it knows which events
//! must come in which order, and that offsets rise by one. It counts publications that come twice, in another order,
//! with a jump, or in a channel where they do not belong. A delivery counts once per (client, channel, event), so the
//! difference to the expected number is what was lost.
//!
//! A broken connection is not made again: none may break in this demo. At most [`CONNECTING_COUNT_MAX`] clients connect at
//! a time.

use std::cell::RefCell;
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tidings_client::{PONG, ServerUrl, Socket};
use tidings_telemetry::{Histogram, HistogramSnapshot, LocalHistogram};
use tidings_types::Format;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::interval;

use super::clock::Clock;
use super::population::{credential, device_id, is_watching};
use super::pushes::origin;
use super::timeline::{MATCH, Moment, Team};

/// The name of the clients' thread.
pub(super) const THREAD: &str = "demo-clients";

/// Clients that connect at a time. The listener's backlog is not measured.
const CONNECTING_COUNT_MAX: usize = 64;

/// How often an app repeats that it is on the screen. The server believes it for a minute.
const VISIBLE_INTERVAL: Duration = Duration::from_secs(30);

/// The id of that command. Its reply is ignored.
const VISIBLE_ID: u32 = 1000;

/// How often the thread's measurements become visible.
const FLUSH_INTERVAL: Duration = Duration::from_millis(50);

/// The connected clients.
pub(super) struct Crowd {
    shared: Arc<Shared>,
    /// Publications that clients must get, by moment.
    owed: Box<[u64]>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// What clients have got so far.
#[derive(Default)]
struct Shared {
    subscribed: AtomicU32,
    delivered: AtomicU64,
    /// All publications, also of events that do not belong to the match.
    seen: AtomicU64,
    duplicates: AtomicU64,
    strangers: AtomicU64,
    misplaced: AtomicU64,
    /// Why the first connection broke.
    failure: OnceLock<String>,
    latency: Histogram,
}

/// What was wrong with the deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CrowdVerdict {
    /// Publications that did not come.
    pub(super) lost: u64,
    /// Publications that came more than once.
    pub(super) duplicates: u64,
    /// Publications in a channel that they do not belong to.
    pub(super) strangers: u64,
    /// Publications in the wrong order, or whose offset is not the next one.
    pub(super) misplaced: u64,
}

impl Crowd {
    /// Starts to connect `count` clients.
    pub(super) fn start(addr: SocketAddr, count: u32, moments: &[Moment], clock: Clock) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let owed = CHANNELS.map(|channel| owed_in(channel, moments)).to_vec();
        let mut owed_by_moment = vec![0; moments.len()];
        for moment in (0..count).flat_map(channels_of).flat_map(|channel| &owed[channel]) {
            owed_by_moment[*moment] += 1;
        }
        let (stop, mut stopped) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let seen = shared.clone();
        let thread = std::thread::Builder::new().name(THREAD.to_owned()).spawn(move || {
            LocalSet::new().block_on(&runtime, async {
                tokio::select! {
                    // An error means that the crowd was dropped, which is a reason to stop too.
                    _ = stopped.wait_for(|stopped| *stopped) => {}
                    () = run(addr, count, owed, seen, clock) => {}
                }
            });
        })?;
        Ok(Self { shared, owed: owed_by_moment.into(), stop, thread: Some(thread) })
    }

    /// Clients that have subscribed.
    pub(super) fn subscribed(&self) -> u32 {
        self.shared.subscribed.load(Relaxed)
    }

    /// Publications of the match that clients have got, each once.
    pub(super) fn delivered(&self) -> u64 {
        self.shared.delivered.load(Relaxed)
    }

    /// All publications that clients have got.
    pub(super) fn seen(&self) -> u64 {
        self.shared.seen.load(Relaxed)
    }

    /// Publications of the first `moment_count` moments that clients must get.
    pub(super) fn owed_through(&self, moment_count: usize) -> u64 {
        self.owed[..moment_count].iter().sum()
    }

    /// Why the first connection broke; `None` if none has.
    pub(super) fn failure(&self) -> Option<&str> {
        self.shared.failure.get().map(String::as_str)
    }

    /// Times from posting an event to receiving it.
    pub(super) fn latency(&self) -> HistogramSnapshot {
        self.shared.latency.snapshot()
    }

    /// What is wrong so far.
    pub(super) fn settle(&self) -> CrowdVerdict {
        CrowdVerdict {
            lost: self.owed_through(self.owed.len()).saturating_sub(self.delivered()),
            duplicates: self.shared.duplicates.load(Relaxed),
            strangers: self.shared.strangers.load(Relaxed),
            misplaced: self.shared.misplaced.load(Relaxed),
        }
    }
}

impl Drop for Crowd {
    /// Disconnects all clients at once.
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // A panic was reported already.
        }
    }
}

/// The channels that clients subscribe to.
const CHANNELS: [&str; 3] = [MATCH, "team:argentina", "team:france"];

/// The channels of client `number`, as indexes into [`CHANNELS`].
fn channels_of(number: u32) -> impl Iterator<Item = usize> {
    let follows = [true, number.is_multiple_of(5), number.is_multiple_of(7)];
    (0..CHANNELS.len()).filter(move |channel| follows[*channel])
}

/// The events that are published in a channel, in order.
fn owed_in(channel: &str, moments: &[Moment]) -> Vec<usize> {
    debug_assert!([MATCH, Team::Argentina.subject(), Team::France.subject()].contains(&channel));
    let published = moments.iter().enumerate().filter(|(_, moment)| moment.channels.contains(&channel));
    published.map(|(index, _)| index).collect()
}

/// Runs the clients: connects all of them, and waits until they are stopped.
async fn run(addr: SocketAddr, count: u32, owed: Vec<Vec<usize>>, shared: Arc<Shared>, clock: Clock) {
    let owed: Rc<[Vec<usize>]> = owed.into();
    let latency = Rc::new(RefCell::new(shared.latency.local()));
    let connecting = Rc::new(Semaphore::new(CONNECTING_COUNT_MAX));
    let mut clients = JoinSet::new();
    for number in 0..count {
        let (shared, connecting) = (shared.clone(), connecting.clone());
        let mut client = Client::new(number, owed.clone(), shared.clone(), latency.clone(), clock);
        clients.spawn_local(async move {
            let Err(error) = client.run(addr, &connecting).await;
            let _ = shared.failure.set(format!("client {number}: {error}")); // Only the first failure is kept.
        });
    }
    let mut flush = tokio::time::interval(FLUSH_INTERVAL);
    loop {
        flush.tick().await;
        latency.borrow_mut().flush();
        while clients.try_join_next().is_some() {}
    }
}

/// One client.
struct Client {
    number: u32,
    follows: Vec<Following>,
    owed: Rc<[Vec<usize>]>,
    shared: Arc<Shared>,
    latency: Rc<RefCell<LocalHistogram>>,
    clock: Clock,
}

/// The position of a client in a channel.
#[derive(Debug, Clone, Copy)]
struct Following {
    channel: usize,
    /// The offset of the last publication, or at the time of the subscription.
    offset: u64,
    /// How many of the expected events have come or were skipped.
    next: usize,
}

impl Client {
    fn new(
        number: u32,
        owed: Rc<[Vec<usize>]>,
        shared: Arc<Shared>,
        latency: Rc<RefCell<LocalHistogram>>,
        clock: Clock,
    ) -> Self {
        let follows = channels_of(number).map(|channel| Following { channel, offset: 0, next: 0 }).collect();
        Self { number, follows, owed, shared, latency, clock }
    }

    /// Runs until the connection ends. Returns why it ended.
    async fn run(&mut self, addr: SocketAddr, connecting: &Semaphore) -> Result<Infallible, Box<dyn Error>> {
        let permit = connecting.acquire().await?;
        let mut socket = Socket::open(&ServerUrl::of_listener(addr), Format::Json).await?;
        socket.send(self.commands()).await?;
        let mut permit = Some(permit);
        let mut left = self.follows.len();
        let mut visible = interval(VISIBLE_INTERVAL);
        visible.reset(); // The connect command has said so already.
        loop {
            let frame = tokio::select! {
                frame = socket.frame() => frame?,
                _ = visible.tick(), if is_watching(self.number) => {
                    socket.send(still_visible()).await?;
                    continue;
                }
            };
            let now = self.clock.micros();
            for message in frame.lines() {
                match self.take(message, now)? {
                    Taken::Ping => socket.send(PONG).await?,
                    Taken::Subscribed => left -= 1,
                    Taken::Other => {}
                }
            }
            if left == 0 && permit.take().is_some() {
                self.shared.subscribed.fetch_add(1, Relaxed);
            }
        }
    }

    /// The commands connect and subscribe, in one frame. The id of a subscription is its index plus two.
    fn commands(&self) -> String {
        let number = self.number;
        let app =
            json!({ "device": device_id(number), "credential": credential(number), "visible": is_watching(number) });
        let connect = json!({ "name": "tidings-demo", "data": { "tidings": app } });
        let mut commands = json!({ "id": 1, "connect": connect }).to_string();
        for (place, following) in self.follows.iter().enumerate() {
            let subscribe = json!({ "channel": CHANNELS[following.channel] });
            commands.push('\n');
            commands.push_str(&json!({ "id": place + 2, "subscribe": subscribe }).to_string());
        }
        commands
    }

    fn take(&mut self, message: &str, now: u64) -> Result<Taken, String> {
        let message: Message<'_> = serde_json::from_str(message).map_err(|error| error.to_string())?;
        if let Some(error) = message.error {
            return Err(format!("the server answered {} {}", error.code, error.message));
        }
        if let Some(push) = message.push {
            if let Some(publication) = push.publication {
                self.publication(push.channel, &publication, now);
            }
            return Ok(Taken::Other);
        }
        match (message.id, message.subscribe) {
            (0, _) => Ok(Taken::Ping),
            (id, Some(subscribed)) => {
                let place = (id as usize).checked_sub(2).and_then(|place| self.follows.get_mut(place));
                place.ok_or("an answer to no command")?.offset = subscribed.offset;
                Ok(Taken::Subscribed)
            }
            _ => Ok(Taken::Other),
        }
    }

    fn publication(&mut self, channel: &str, publication: &Publication<'_>, now: u64) {
        let shared = &self.shared;
        shared.seen.fetch_add(1, Relaxed);
        let Some(following) = self.follows.iter_mut().find(|following| CHANNELS[following.channel] == channel) else {
            shared.strangers.fetch_add(1, Relaxed);
            return;
        };
        if publication.offset != following.offset + 1 {
            shared.misplaced.fetch_add(1, Relaxed);
        }
        following.offset = publication.offset;
        let Some((moment, sent)) = publication.data.and_then(|data| origin(data.get().as_bytes())) else { return };
        let owed = &self.owed[following.channel];
        match owed.iter().position(|owed| *owed == moment) {
            None => _ = shared.strangers.fetch_add(1, Relaxed),
            Some(place) if place < following.next => _ = shared.duplicates.fetch_add(1, Relaxed),
            Some(place) => {
                if place > following.next {
                    shared.misplaced.fetch_add(1, Relaxed);
                }
                following.next = place + 1;
                shared.delivered.fetch_add(1, Relaxed);
                self.latency.borrow_mut().record_micros(now.saturating_sub(sent));
            }
        }
    }
}

/// The command that repeats that the app is on the screen.
fn still_visible() -> String {
    json!({ "id": VISIBLE_ID, "rpc": { "method": "tidings.visible", "data": { "visible": true } } }).to_string()
}

enum Taken {
    Ping,
    Subscribed,
    Other,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(default)]
    id: u32,
    error: Option<ReplyError>,
    subscribe: Option<Subscribed>,
    #[serde(borrow)]
    push: Option<Push<'a>>,
}

#[derive(Deserialize)]
struct ReplyError {
    code: u32,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct Subscribed {
    #[serde(default)]
    offset: u64,
}

#[derive(Deserialize)]
struct Push<'a> {
    #[serde(default)]
    channel: &'a str,
    #[serde(rename = "pub", borrow)]
    publication: Option<Publication<'a>>,
}

#[derive(Deserialize)]
struct Publication<'a> {
    #[serde(default)]
    offset: u64,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[cfg(test)]
mod tests {
    use super::super::timeline::moments;
    use super::*;

    /// Client 0, which has subscribed to all channels; in the first one there were `offset` publications before.
    fn client(offset: u64) -> Client {
        let owed: Vec<_> = CHANNELS.iter().map(|channel| owed_in(channel, &moments())).collect();
        let shared = Arc::new(Shared::default());
        let latency = Rc::new(RefCell::new(shared.latency.local()));
        let mut client = Client::new(0, owed.into(), shared, latency, Clock::start());
        let reply = format!(r#"{{"id":2,"subscribe":{{"recoverable":true,"epoch":"abcdefgh","offset":{offset}}}}}"#);
        assert!(matches!(client.take(&reply, 0), Ok(Taken::Subscribed)));
        client
    }

    fn publish(client: &mut Client, channel: &str, offset: u64, moment: usize) {
        let data = format!(r#"{{"clock":"1'","moment":{moment},"score":[0,0],"sent":1}}"#);
        let push = format!(
            r#"{{"push":{{"channel":"{channel}","pub":{{"data":{data},"offset":{offset},"tags":{{"event":"e"}}}}}}}}"#
        );
        client.take(&push, 5).unwrap();
    }

    fn verdict(client: &Client) -> (u64, u64, u64, u64) {
        let Shared { delivered, duplicates, strangers, misplaced, .. } = &*client.shared;
        (delivered.load(Relaxed), duplicates.load(Relaxed), strangers.load(Relaxed), misplaced.load(Relaxed))
    }

    #[test]
    fn the_whole_match_in_order_is_right() {
        let mut client = client(40);
        let moments = moments();
        let mut offsets = [40, 0, 0];
        for (index, moment) in moments.iter().enumerate() {
            for channel in &moment.channels {
                let place = CHANNELS.iter().position(|known| known == channel).unwrap();
                offsets[place] += 1;
                publish(&mut client, channel, offsets[place], index);
            }
        }
        let owed: usize = moments.iter().map(|moment| moment.channels.len()).sum();
        assert_eq!(verdict(&client), (owed as u64, 0, 0, 0));
    }

    #[test]
    fn repeated_misplaced_and_unexpected_publications_are_counted() {
        let mut client = client(0);
        publish(&mut client, MATCH, 1, 0);
        publish(&mut client, MATCH, 2, 0); // The same one again.
        assert_eq!(verdict(&client), (1, 1, 0, 0));
        publish(&mut client, MATCH, 4, 1); // An offset is missing.
        assert_eq!(verdict(&client), (2, 1, 0, 1));
        publish(&mut client, MATCH, 5, 3); // Event 2 was skipped.
        assert_eq!(verdict(&client), (3, 1, 0, 2));
        publish(&mut client, "team:argentina", 1, 0); // Kick-off is not published there.
        publish(&mut client, "team:brazil", 1, 0); // Not subscribed.
        assert_eq!(verdict(&client), (3, 1, 2, 2));
    }

    #[test]
    fn pings_are_answered_and_errors_end_the_client() {
        let mut client = client(0);
        assert!(matches!(client.take("{}", 0), Ok(Taken::Ping)));
        assert!(client.take(r#"{"id":3,"error":{"code":103,"message":"permission denied"}}"#, 0).is_err());
        assert!(client.take(r#"{"id":9,"subscribe":{}}"#, 0).is_err());
        assert!(client.take("nonsense", 0).is_err());
    }
}
