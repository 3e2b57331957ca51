//! The churning clients: each lives many short lives, and leaves each of them in another way.
//!
//! Judged in each life: the offsets of a channel are dense, also over a recovery, unless the server has told that it could not
//! recover, or the client has chosen by tags. A client keeps the positions of its last life only.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use tidings_trial::raw::PATIENCE;
use tokio::time::{Instant, sleep, timeout};

use crate::hand::World;
use crate::publisher::{FLOOD, fresh_channel, steady_channel};
use crate::wire::{Ended, WAYS, Way, Wire};

/// How long a client that has stopped reading stays, unless the round ends before: long enough to fill the sockets' buffers and
/// the server's bound.
const STALL: Duration = Duration::from_secs(6);
/// How long it reads then, until it is told that it was too slow.
const CATCH_UP: Duration = Duration::from_secs(2);
/// One in so many lives ends so.
const STALLS: u32 = 16;
const LIFE_MS: std::ops::Range<u64> = 100..4000;
/// Durable channels that were forgotten and come back begin behind a multiple of this (`store/src/channels/trim.rs`), so that
/// no offset is used twice.
const FLOOR_STRIDE: u64 = 1 << 20;
/// The close code of a reader that is too slow.
const SLOW: u64 = 3008;

/// What all clients have seen, beside what counts as a deed.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    publications: AtomicU64,
    unrecovered: AtomicU64,
    /// Lives that ended otherwise before their time.
    ended: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
enum Leave {
    Close,
    Reset,
    Unsubscribe,
    Stall,
}

/// How far a client has come in a channel.
#[derive(Debug, Clone)]
struct Position {
    epoch: String,
    offset: u64,
    /// Whether the client chooses publications by their tags, so that offsets may jump.
    is_filtered: bool,
    /// Whether the subscription began at an earlier position.
    recovers: bool,
    is_subscribed: bool,
}

pub(crate) struct Client {
    world: Arc<World>,
    random: Xoshiro256PlusPlus,
    seen: Arc<Seen>,
    /// Until then it begins new lives.
    deadline: Instant,
    positions: BTreeMap<String, Position>,
    /// The channels in the order of their commands, which have the ids from 2 on.
    asked: Vec<String>,
    answered: u64,
}

impl Client {
    /// `number` is of no other client.
    pub(crate) fn new(world: &Arc<World>, number: u64, seen: &Arc<Seen>, deadline: Instant) -> Self {
        let (world, seen) = (world.clone(), seen.clone());
        let random = Xoshiro256PlusPlus::seed_from_u64(world.plan.seed.wrapping_add(number));
        Self { world, random, seen, deadline, positions: BTreeMap::new(), asked: Vec::new(), answered: 0 }
    }

    /// Lives until the deadline; the error is a broken promise.
    pub(crate) async fn live(mut self) -> Result<(), String> {
        while Instant::now() < self.deadline {
            let way = WAYS[self.random.random_range(0..WAYS.len())];
            let leave = match self.random.random_range(0..STALLS) {
                0 => Leave::Stall,
                number => [Leave::Close, Leave::Reset, Leave::Unsubscribe][number as usize % 3],
            };
            self.life(way, leave).await.map_err(|wrong| format!("{way:?}, {leave:?}: {wrong}"))?;
            self.world.deeds.did(&format!("life over {way:?}"), 1);
        }
        Ok(())
    }

    async fn life(&mut self, way: Way, leave: Leave) -> Result<(), String> {
        let first = self.first_commands(way, matches!(leave, Leave::Stall));
        let mut wire = Wire::open(self.world.addr, way, &first).await?;
        let deadline = Instant::now() + PATIENCE;
        while self.answered < self.asked.len() as u64 {
            let next = timeout(deadline - Instant::now(), wire.next()).await;
            let message = next.map_err(|_| "no answer to connect and subscribe")?;
            let Ok(message) = message.map_err(|ended| self.note_end(ended)) else { return Ok(()) };
            if let Some(ended) = self.take(&mut wire, &message)? {
                self.note_end(ended);
                return Ok(());
            }
        }
        let time = Duration::from_millis(self.random.random_range(LIFE_MS));
        if self.read_for(&mut wire, time).await? {
            return Ok(());
        }
        match leave {
            Leave::Close => wire.close().await,
            Leave::Reset => {
                wire.reset();
                Ok(())
            }
            Leave::Unsubscribe => self.unsubscribe(wire, way).await,
            Leave::Stall => {
                sleep(STALL.min(self.deadline.saturating_duration_since(Instant::now()))).await;
                self.read_for(&mut wire, CATCH_UP).await.map(drop)
            }
        }
    }

    /// Connects, and subscribes to the channels of the last life from where it ended, or to others.
    fn first_commands(&mut self, way: Way, stalls: bool) -> Vec<Value> {
        if stalls || self.positions.is_empty() || self.random.random_bool(0.5) {
            self.positions.clear();
            self.asked = match stalls {
                true => vec![FLOOD.to_owned()],
                false => (0..2)
                    .flat_map(|_| {
                        let number = self.random.random_range(0..u64::MAX);
                        [steady_channel(number), fresh_channel(&self.world, self.random.random_range(0..u64::MAX))]
                    })
                    .collect(),
            };
            self.asked.sort();
            self.asked.dedup();
        }
        self.answered = 0;
        let mut subscribes = Vec::new();
        for channel in &self.asked {
            let earlier = self.positions.get(channel).filter(|position| !position.epoch.is_empty());
            let is_live = channel.starts_with("live:");
            let is_filtered = way != Way::Listen && is_live && self.random.random_bool(0.2);
            let mut request = json!({ "channel": channel, "recoverable": true });
            if let Some(Position { epoch, offset, .. }) = earlier {
                request["recover"] = json!(true);
                request["epoch"] = json!(epoch);
                request["offset"] = json!(offset);
            }
            if is_live {
                request["join_leave"] = json!(self.random.random_bool(0.3));
            }
            if is_filtered {
                request["tf"] = json!({ "key": "kind", "cmp": "eq", "val": "goal" });
            } else if is_live && way != Way::Listen && self.random.random_bool(0.3) {
                request["delta"] = json!("fossil");
            }
            let recovers = earlier.is_some();
            let (epoch, offset) = earlier.map(|earlier| (earlier.epoch.clone(), earlier.offset)).unwrap_or_default();
            let position = Position { epoch, offset, is_filtered, recovers, is_subscribed: false };
            self.positions.insert(channel.clone(), position);
            subscribes.push(request);
        }
        if way == Way::Listen {
            let subs: BTreeMap<&String, Value> = self.asked.iter().zip(subscribes).collect();
            return vec![json!({ "subs": subs })];
        }
        let subscribes = (2..).zip(subscribes).map(|(id, request)| json!({ "id": id, "subscribe": request }));
        [json!({ "id": 1, "connect": {} })].into_iter().chain(subscribes).collect()
    }

    /// Takes one message: an answer, or a push. Returns an end that the message announces.
    fn take(&mut self, wire: &mut Wire, message: &Value) -> Result<Option<Ended>, String> {
        if !message["error"].is_null() {
            return Err(format!("refused: {message}"));
        }
        let push = message.get("push").unwrap_or(message);
        if let Some(connect) = push.get("connect").filter(|connect| connect.is_object()) {
            wire.session = json!({ "node": connect["node"], "session": connect["session"] });
            for (channel, answer) in connect["subs"].as_object().into_iter().flatten() {
                self.begin(channel, answer)?;
            }
        } else if let Some(answer) = message.get("subscribe").filter(|_| message["id"].is_u64()) {
            let index = message["id"].as_u64().unwrap_or_default() as usize - 2;
            let channel = self.asked.get(index).ok_or_else(|| format!("an answer to nothing: {message}"))?.clone();
            self.begin(&channel, answer)?;
        } else if let Some(publication) = push.get("pub").filter(|publication| publication.is_object()) {
            let channel = push["channel"].as_str().unwrap_or_default();
            let position = self.positions.get_mut(channel).filter(|position| position.is_subscribed);
            position
                .ok_or_else(|| format!("{channel}: a publication without a subscription"))?
                .go(channel, publication)?;
            count(&self.seen.publications, 1);
        } else if let Some(end) = push.get("disconnect").filter(|end| end.is_object()) {
            return Ok(Some(end["code"].as_u64()));
        }
        Ok(None)
    }

    /// A subscription begins where the answer says.
    fn begin(&mut self, channel: &str, answer: &Value) -> Result<(), String> {
        let position = self.positions.get_mut(channel).ok_or_else(|| format!("{channel}: was not asked for"))?;
        self.answered += 1;
        position.is_subscribed = true;
        let end = answer["offset"].as_u64().unwrap_or_default();
        if position.recovers && answer["recovered"] == true {
            for publication in answer["publications"].as_array().into_iter().flatten() {
                position.go(channel, publication)?;
            }
            self.world.deeds.did("recovery", 1);
        } else if position.recovers {
            if answer["was_recovering"] != true {
                return Err(format!("{channel}: nothing said about the recovery: {answer}"));
            }
            count(&self.seen.unrecovered, 1);
        }
        // A recovery that succeeded begins where the client was; its publications have led on from there.
        position.offset = if answer["recovered"] == true { position.offset.max(end) } else { end };
        position.epoch = answer["epoch"].as_str().unwrap_or_default().to_owned();
        Ok(())
    }

    /// Reads for some time; whether the connection has ended.
    async fn read_for(&mut self, wire: &mut Wire, time: Duration) -> Result<bool, String> {
        let deadline = Instant::now() + time;
        while let Ok(next) = timeout(deadline.saturating_duration_since(Instant::now()), wire.next()).await {
            let ended = match next {
                Ok(message) => self.take(wire, &message)?,
                Err(ended) => Some(ended),
            };
            if let Some(ended) = ended {
                self.note_end(ended);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Unsubscribes from everything, waits for the last answer, and closes.
    async fn unsubscribe(&mut self, mut wire: Wire, way: Way) -> Result<(), String> {
        if way == Way::Listen {
            return wire.close().await;
        }
        let ids = 2 + self.asked.len()..;
        let commands: Vec<Value> = ids
            .zip(&self.asked)
            .map(|(id, channel)| json!({ "id": id, "unsubscribe": { "channel": channel } }))
            .collect();
        let last = commands.last().map(|command| command["id"].clone());
        wire.say(&commands).await?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let next = timeout(deadline - Instant::now(), wire.next()).await;
            let Ok(message) = next.map_err(|_| "no answer to unsubscribe")? else { return Ok(()) };
            if let Some(ended) = self.take(&mut wire, &message)? {
                self.note_end(ended);
                return Ok(());
            }
            if message.get("id") == last.as_ref() {
                return wire.close().await;
            }
        }
    }

    fn note_end(&self, ended: Ended) {
        match ended {
            Some(SLOW) => self.world.deeds.did("reader too slow", 1),
            _ => count(&self.seen.ended, 1),
        }
    }
}

impl Position {
    /// The next publication of a channel.
    fn go(&mut self, channel: &str, publication: &Value) -> Result<(), String> {
        let offset = publication["offset"].as_u64().unwrap_or_default();
        // The first publication of a durable channel that is new to the store, or was forgotten, comes behind a floor.
        let is_first = channel.starts_with("kept:") && offset % FLOOR_STRIDE == 1;
        let may_jump = self.is_filtered || is_first;
        let is_next = offset == self.offset + 1 || may_jump && offset > self.offset;
        if !is_next {
            return Err(format!("{channel}: offset {offset} follows {}, and nobody told of a gap", self.offset));
        }
        self.offset = offset;
        Ok(())
    }
}

fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}
