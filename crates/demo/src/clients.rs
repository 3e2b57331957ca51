//! The connected clients: real sockets that follow the match, check what they get and time it.
//!
//! All run in one thread of their own, so that the server's work and theirs are told apart. Each is the app of the phone of
//! its number, proves that with the phone's credential, and says whether it is on the screen. It subscribes (everybody
//! to the match, every fifth to Argentina, every seventh to France) and then reads. For each channel it knows which
//! events are to come in which order, and that offsets rise by one: whatever comes twice, in another order, with a jump
//! or unasked for is counted. A delivery is counted once per (client, channel, event), so what is missing in the end is
//! the difference to what was owed.
//!
//! A connection that breaks is not made again: in this demo none may. Connecting goes [`CONNECTING_COUNT_MAX`] at a time.

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
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::interval;

use super::clock::Clock;
use super::population::{credential, device_id, is_watching};
use super::pushes::origin;
use super::timeline::{MATCH, Moment, Team};

/// The name of their thread.
pub(super) const THREAD: &str = "demo-clients";

/// Connections being made at a time: the listener's backlog is not what we measure.
const CONNECTING_COUNT_MAX: usize = 64;

/// How often an app on the screen says that it still is; the server believes it for a minute.
const VISIBLE_INTERVAL: Duration = Duration::from_secs(30);

/// The id of that command; its answer tells nothing new.
const VISIBLE_ID: u32 = 1000;

/// How often the thread's measurements become visible.
const FLUSH_INTERVAL: Duration = Duration::from_millis(50);

/// All clients, while they are connected.
pub(super) struct Crowd {
    shared: Arc<Shared>,
    /// Publications that clients are to get, by moment.
    owed: Box<[u64]>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// What clients got so far.
#[derive(Default)]
struct Shared {
    subscribed: AtomicU32,
    delivered: AtomicU64,
    /// Every publication, also of events that are not of the match.
    seen: AtomicU64,
    duplicates: AtomicU64,
    strangers: AtomicU64,
    misplaced: AtomicU64,
    /// Why the first one broke.
    failure: OnceLock<String>,
    latency: Histogram,
}

/// What was wrong with deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CrowdVerdict {
    /// Publications owed that did not come.
    pub(super) lost: u64,
    /// Publications that came again.
    pub(super) duplicates: u64,
    /// Publications in a channel that they do not belong to.
    pub(super) strangers: u64,
    /// Publications before their turn, or with an offset that is not the next one.
    pub(super) misplaced: u64,
}

impl Crowd {
    /// Starts connecting `count` clients.
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
                    // An error means that the crowd is gone, which is also a reason to stop.
                    _ = stopped.wait_for(|stopped| *stopped) => {}
                    () = run(addr, count, owed, seen, clock) => {}
                }
            });
        })?;
        Ok(Self { shared, owed: owed_by_moment.into(), stop, thread: Some(thread) })
    }

    /// Clients that have their subscriptions.
    pub(super) fn subscribed(&self) -> u32 {
        self.shared.subscribed.load(Relaxed)
    }

    /// Publications of the match that clients have, each once.
    pub(super) fn delivered(&self) -> u64 {
        self.shared.delivered.load(Relaxed)
    }

    /// All publications that came.
    pub(super) fn seen(&self) -> u64 {
        self.shared.seen.load(Relaxed)
    }

    /// Publications of the first so many moments that clients are to get.
    pub(super) fn owed_through(&self, moment_count: usize) -> u64 {
        self.owed[..moment_count].iter().sum()
    }

    /// Why the first of those connections broke that did; `None` as long as all hold.
    pub(super) fn failure(&self) -> Option<&str> {
        self.shared.failure.get().map(String::as_str)
    }

    /// From handing in to receiving.
    pub(super) fn latency(&self) -> HistogramSnapshot {
        self.shared.latency.snapshot()
    }

    /// What is wrong, as it stands now.
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
    /// Hangs up, everywhere at once.
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // A panic was reported when it happened.
        }
    }
}

/// The channels clients follow.
const CHANNELS: [&str; 3] = [MATCH, "team:argentina", "team:france"];

/// Which of them the client of a number follows.
fn channels_of(number: u32) -> impl Iterator<Item = usize> {
    let follows = [true, number.is_multiple_of(5), number.is_multiple_of(7)];
    (0..CHANNELS.len()).filter(move |channel| follows[*channel])
}

/// Which events are published in a channel, in order.
fn owed_in(channel: &str, moments: &[Moment]) -> Vec<usize> {
    debug_assert!([MATCH, Team::Argentina.subject(), Team::France.subject()].contains(&channel));
    let published = moments.iter().enumerate().filter(|(_, moment)| moment.channels.contains(&channel));
    published.map(|(index, _)| index).collect()
}

/// The thread's life: connects all, then waits for their ends, which do not come by themselves.
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
            let _ = shared.failure.set(format!("client {number}: {error}")); // The first one tells enough.
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

/// Where a client is in a channel.
#[derive(Debug, Clone, Copy)]
struct Following {
    channel: usize,
    /// The offset of the last publication, or where the subscription began.
    offset: u64,
    /// How many of the owed events have come or were passed over.
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

    /// Lives until the connection ends, and says why it did.
    async fn run(&mut self, addr: SocketAddr, connecting: &Semaphore) -> Result<Infallible, Box<dyn Error>> {
        let permit = connecting.acquire().await?;
        let mut socket = Socket::open(&ServerUrl::of_listener(addr)).await?;
        socket.send(self.commands()).await?;
        let mut permit = Some(permit);
        let mut left = self.follows.len();
        let mut visible = interval(VISIBLE_INTERVAL);
        visible.reset(); // It has just said so.
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

    /// Connect and subscribe, in one frame. A subscription's command has the id of its place, plus two.
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

/// The command that says so once more.
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

    /// A client of number 0, which follows all channels, after it subscribed where `offset` publications were before.
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
    fn the_whole_match_in_order_is_what_is_owed() {
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
    fn what_comes_twice_in_another_order_or_unasked_for_is_told_apart() {
        let mut client = client(0);
        publish(&mut client, MATCH, 1, 0);
        publish(&mut client, MATCH, 2, 0); // Again.
        assert_eq!(verdict(&client), (1, 1, 0, 0));
        publish(&mut client, MATCH, 4, 1); // An offset is missing.
        assert_eq!(verdict(&client), (2, 1, 0, 1));
        publish(&mut client, MATCH, 5, 3); // Event 2 was passed over.
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
