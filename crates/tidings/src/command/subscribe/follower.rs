//! The client's side of the Centrifugo protocol, as far as following channels needs it, without socket and clock.
//!
//! It knows the position of every channel that it may resume, and on each new connection asks to resume from there. It
//! prints no publication twice. When the server cannot resume, it prints a gap and follows from the top. Sources:
//! reference of the client protocol, sections 3 (connection), 4 (subscribe), 5 (recovery), 9 (codes).

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use tidings_config::Secret;

/// An instruction to the driver.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The server has accepted the connection.
    Connected,
    /// Print this line: a publication.
    Publication(String),
    /// Print this line: publications that are no longer kept.
    Gap(String),
    /// Send this frame.
    Send(String),
}

/// The server refuses us.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Another connection may succeed.
    ForNow(String),
    /// Another try is useless.
    ForGood(String),
}

/// The last publication of a channel that was printed, or where following began.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Position {
    offset: u64,
    epoch: String,
}

enum Asked {
    Connect,
    Subscribe(String),
}

/// Follows channels over one connection after the other.
pub(super) struct Follower {
    /// `None` until a position is known, or if the channel has none.
    channels: BTreeMap<String, Option<Position>>,
    token: Option<Secret>,
    /// Commands of this connection that wait for a reply: at most one per channel, and the connect.
    asked: HashMap<u32, Asked>,
    last_id: u32,
    ping: Option<Duration>,
    pong: bool,
}

impl Follower {
    /// Follows `channels`, each once.
    pub(super) fn new(channels: Vec<String>, token: Option<Secret>) -> Self {
        let channels = channels.into_iter().map(|channel| (channel, None)).collect();
        Self { channels, token, asked: HashMap::new(), last_id: 0, ping: None, pong: false }
    }

    /// How often the server pings, once it has said so.
    pub(super) fn ping_interval(&self) -> Option<Duration> {
        self.ping
    }

    /// The first frame of a new connection: connect, and all subscriptions right behind it.
    pub(super) fn connect(&mut self) -> String {
        self.asked.clear();
        (self.last_id, self.ping, self.pong) = (0, None, false);
        let mut connect = json!({ "name": "tidings", "version": env!("CARGO_PKG_VERSION") });
        if let Some(token) = &self.token {
            connect["token"] = token.expose().into();
        }
        let id = self.ask(Asked::Connect);
        let channels: Vec<String> = self.channels.keys().cloned().collect();
        let subscribes = channels.iter().map(|channel| self.subscribe(channel));
        let subscribes: Vec<String> = subscribes.collect();
        std::iter::once(json!({ "id": id, "connect": connect }).to_string())
            .chain(subscribes)
            .collect::<Vec<_>>()
            .join("\n")
    }

    fn subscribe(&mut self, channel: &str) -> String {
        let id = self.ask(Asked::Subscribe(channel.to_owned()));
        let mut request = json!({ "channel": channel, "recoverable": true });
        if let Some(Some(position)) = self.channels.get(channel) {
            request["recover"] = true.into();
            request["offset"] = position.offset.into();
            request["epoch"] = position.epoch.as_str().into();
        }
        json!({ "id": id, "subscribe": request }).to_string()
    }

    fn ask(&mut self, asked: Asked) -> u32 {
        self.last_id += 1;
        self.asked.insert(self.last_id, asked);
        self.last_id
    }

    /// Takes a frame: one message per line.
    pub(super) fn on_frame(&mut self, frame: &str) -> Result<Vec<Step>, Refused> {
        let mut steps = Vec::new();
        for text in frame.split('\n').filter(|text| !text.is_empty()) {
            let message: Message = serde_json::from_str(text).map_err(|error| {
                Refused::ForGood(format!("the server's message is not of the client protocol: {error}"))
            })?;
            match (message.id, message.push) {
                (0, None) => steps.extend(self.pong.then(|| Step::Send("{}".to_owned()))),
                (0, Some(push)) => self.on_push(push, &mut steps)?,
                (id, _) => match (self.asked.remove(&id), message.error) {
                    (None, _) => {}
                    (Some(asked), Some(error)) => return Err(refused(&asked, &error)),
                    (Some(Asked::Connect), None) => self.on_connected(&message.connect, &mut steps),
                    (Some(Asked::Subscribe(channel)), None) => {
                        self.on_subscribed(channel, message.subscribe, &mut steps);
                    }
                },
            }
        }
        Ok(steps)
    }

    fn on_connected(&mut self, connected: &Connected, steps: &mut Vec<Step>) {
        self.ping = (connected.ping > 0).then(|| Duration::from_secs(connected.ping.into()));
        self.pong = connected.pong;
        steps.push(Step::Connected);
    }

    fn on_subscribed(&mut self, channel: String, result: Subscribed, steps: &mut Vec<Step>) {
        let before = self.channels.get(&channel).cloned().flatten();
        let has_positions = result.recoverable || result.positioned;
        let resumed = if result.recovered { before.as_ref().map(|position| position.offset) } else { None };
        let offset = resumed.unwrap_or(result.offset);
        let position = has_positions.then_some(Position { offset, epoch: result.epoch });
        self.channels.insert(channel.clone(), position);
        if let Some(before) = before.filter(|_| !result.recovered) {
            let gap = json!({ "since": before.offset, "top": result.offset });
            steps.push(Step::Gap(json!({ "channel": channel, "gap": gap }).to_string()));
        }
        for publication in result.publications {
            self.on_publication(&channel, publication, steps);
        }
    }

    fn on_push(&mut self, push: Push, steps: &mut Vec<Step>) -> Result<(), Refused> {
        if let Some(publication) = push.publication {
            self.on_publication(&push.channel, publication, steps);
        }
        if let Some(Reason { code, reason }) = push.unsubscribe {
            // Codes from 2500 on ask the client to resume.
            if code < 2500 {
                return Err(Refused::ForGood(format!("channel {}: {code} {reason}", push.channel)));
            }
            steps.push(Step::Send(self.subscribe(&push.channel)));
        }
        Ok(())
    }

    fn on_publication(&mut self, channel: &str, publication: Publication, steps: &mut Vec<Step>) {
        let Some(known) = self.channels.get_mut(channel) else { return };
        if let Some(position) = known.as_mut().filter(|_| publication.offset > 0) {
            if publication.offset <= position.offset {
                return;
            }
            position.offset = publication.offset;
        }
        let mut text = format!("{{\"channel\":{}", json!(channel));
        if publication.offset > 0 {
            text.push_str(&format!(",\"offset\":{}", publication.offset));
        }
        text.push_str(&format!(",\"data\":{}", publication.data.as_ref().map_or("null", |data| data.get())));
        if !publication.tags.is_empty() {
            text.push_str(&format!(",\"tags\":{}", json!(publication.tags)));
        }
        text.push('}');
        steps.push(Step::Publication(text));
    }
}

fn refused(asked: &Asked, error: &ReplyError) -> Refused {
    let ReplyError { code, message, temporary } = error;
    let reason = match asked {
        Asked::Connect => format!("the server refuses the connection: {code} {message}"),
        Asked::Subscribe(channel) => format!("channel {channel}: {code} {message}"),
    };
    if *temporary || *code <= 100 { Refused::ForNow(reason) } else { Refused::ForGood(reason) }
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Message {
    id: u32,
    error: Option<ReplyError>,
    connect: Connected,
    subscribe: Subscribed,
    push: Option<Push>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ReplyError {
    code: u32,
    message: String,
    temporary: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Connected {
    ping: u32,
    pong: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Subscribed {
    recoverable: bool,
    positioned: bool,
    recovered: bool,
    epoch: String,
    offset: u64,
    publications: Vec<Publication>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Push {
    channel: String,
    #[serde(rename = "pub")]
    publication: Option<Publication>,
    unsubscribe: Option<Reason>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Publication {
    offset: u64,
    data: Option<Box<RawValue>>,
    tags: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Reason {
    code: u32,
    reason: String,
}
