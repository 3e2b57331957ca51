//! The session as a list of operations: commands, what became of them, pings, time, ends.
//!
//! A driver plays them and keeps its own books: what it owes, which channels there should be, whether the session is
//! over. Commands come as words that make sense, so that most of them get far, and as any bytes. Like the edge it gives
//! back a subscribe or unsubscribe before the next command. Promises checked after each operation: one answer per
//! command at most, exactly one for a ticket while open, nothing after the end, no channel twice, subscriptions within
//! their bound, no pong without a ping, nothing overdue is kept.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use serde_json::Value;
use tidings_protocol::token::{sign_connection_token, sign_subscription_token};
use tidings_protocol::{
    Admission, ClientId, Command, Effect, ErrorCode, Expired, HISTORY_PUBLICATION_COUNT_MAX, HistoryFound,
    NamespaceOptions, Namespaces, Publication, Session, SessionConfig, SubscribeEffect, SubscribeTicket, Subscribed,
    Tags, Ticket, Unsubscribe, VISIBLE_TTL_MAX, parse_frame,
};
use tidings_types::{ChannelName, DeviceId, Epoch, Format, Json, Offset, StreamPosition, Timestamp, Variant};

use crate::protocol::{NOW, config, connected, only, secret, signed};

/// The corpus spells these by their order and count: after a change here, `cargo xtask fuzz` finds its way anew.
#[derive(Debug, Arbitrary)]
enum Operation<'a> {
    Command(Asked),
    Frame(&'a [u8]),
    Settle(u8, Outcome),
    Ping,
    End(u8),
    Later(u16),
    Close,
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Outcome {
    Done,
    Recovered,
    Failed,
}

/// A command that is well formed.
#[derive(Debug, Arbitrary)]
struct Asked {
    id: u8,
    kind: Kind,
    channel: u8,
    token: u8,
    data: u8,
    recover: bool,
    positioned: bool,
    flag: u8,
    number: u16,
}

#[derive(Debug, Arbitrary)]
enum Kind {
    Connect,
    Subscribe,
    Unsubscribe,
    Publish,
    Presence,
    PresenceStats,
    History,
    Refresh,
    SubRefresh,
    Rpc,
    Ping,
    Send,
}

const CHANNELS: [&str; 8] = ["a", "open:b", "members:c", "$d", "closed:e", "nowhere:f", "dialog#42", ""];
const DATA: [&str; 6] = [
    "null",
    "1",
    r#"{"visible":true,"ttl":9}"#,
    r#"{"visible":false}"#,
    r#"{"tidings":{"device":"tablet","credential":"c","visible":true}}"#,
    r#"{"tidings":[]}"#,
];

/// Tokens good and bad, of connections and of subscriptions, that run out soon or never.
static TOKENS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let at = |seconds| Some(NOW.saturating_add(Duration::from_secs(seconds)));
    let connection = |user, device: Option<&str>, until| {
        let device = device.map(|device| DeviceId::new(device).expect("it is one"));
        let admission = Admission { user: String::from(user), device, expires_at: until, ..Admission::default() };
        sign_connection_token(&secret(), &admission, NOW)
    };
    let subscription = |user, name| {
        let channel = ChannelName::new(name).expect("it is one");
        sign_subscription_token(&secret(), user, &channel, at(50), Some(&Json::of(&"seat 7")), NOW)
    };
    vec![
        String::new(),
        "forged".to_owned(),
        connection("42", None, None),
        connection("42", Some("phone-1"), at(40)),
        connection("42", Some("tablet"), at(100)),
        connection("43", None, at(40)),
        connection("", None, None),
        subscription("42", "$d"),
        subscription("42", "a"),
        subscription("43", "$d"),
        signed(br#"{"sub":"42","channels":["a","$d"]}"#).as_str().to_owned(),
        signed(br#"{"sub":"42","subs":{"members:c":{"expire_at":1030,"data":7}}}"#).as_str().to_owned(),
    ]
});

static CONFIG: LazyLock<Arc<SessionConfig>> = LazyLock::new(|| {
    let closed = NamespaceOptions::closed();
    let open = NamespaceOptions {
        history_size: 10,
        history_ttl: Duration::from_secs(60),
        allow_recovery: true,
        allow_subscribe_for_client: true,
        allow_subscribe_for_anonymous: true,
        ..closed
    };
    let members = NamespaceOptions {
        presence: true,
        force_recovery: true,
        allow_publish_for_subscriber: true,
        allow_history_for_subscriber: true,
        allow_presence_for_subscriber: true,
        ..open
    };
    let named = [("closed", closed), ("open", open), ("members", members)];
    Arc::new(config(Namespaces::new(open, named.map(|(name, options)| (name.to_owned(), options)).into())))
});

impl Asked {
    fn frame(&self) -> String {
        let Self { id, number, recover, positioned, flag, .. } = self;
        let pick = |index: u8, count: usize| usize::from(index) % count;
        let name = match self.kind {
            Kind::Connect => "connect",
            Kind::Subscribe => "subscribe",
            Kind::Unsubscribe => "unsubscribe",
            Kind::Publish => "publish",
            Kind::Presence => "presence",
            Kind::PresenceStats => "presence_stats",
            Kind::History => "history",
            Kind::Refresh => "refresh",
            Kind::SubRefresh => "sub_refresh",
            Kind::Rpc => "rpc",
            Kind::Ping => "ping",
            Kind::Send => "send",
        };
        let channel = CHANNELS[pick(self.channel, CHANNELS.len())];
        let token = &TOKENS[pick(self.token, TOKENS.len())];
        let data = DATA[pick(self.data, DATA.len())];
        format!(
            r#"{{"id":{id},"{name}":{{"channel":"{channel}","token":"{token}","data":{data},"method":"tidings.visible","recover":{recover},"positioned":{positioned},"offset":{number},"limit":{number},"reverse":{positioned},"since":{{"offset":{number}}},"flag":{flag},"type":{},"subs":{{"{channel}":{{"recover":{recover},"offset":{number}}}}}}}}}"#,
            i32::from(*flag == u8::MAX),
        )
    }
}

enum Outstanding {
    Subscribe { ticket: SubscribeTicket, channel: ChannelName, positioned: bool, may_recover: bool },
    Unsubscribe(Ticket),
    Publish(Ticket),
    History(Ticket),
    Presence(Ticket),
    PresenceStats(Ticket),
    Visible(Ticket, Option<Duration>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Connected,
    Refused,
    Closed,
}

struct Driver {
    session: Session,
    state: State,
    now: Timestamp,
    /// With the id each answer must carry.
    outstanding: Vec<(u32, Outstanding)>,
    /// Subscribed or about to be.
    channels: BTreeSet<ChannelName>,
    device: Option<DeviceId>,
    pings: usize,
    commands: usize,
    replies: usize,
}

/// Plays the operations that the bytes spell.
pub(crate) fn session(bytes: &[u8]) {
    let mut driver = Driver {
        session: Session::new(CONFIG.clone(), ClientId::from_random(7), Variant::websocket(Format::Json)),
        state: State::New,
        now: NOW,
        outstanding: Vec::new(),
        channels: BTreeSet::new(),
        device: None,
        pings: 0,
        commands: 0,
        replies: 0,
    };
    let mut input = Unstructured::new(bytes);
    while !input.is_empty() {
        let Ok(operation) = Operation::arbitrary(&mut input) else { return };
        driver.perform(operation);
        driver.check();
    }
}

impl Driver {
    fn perform(&mut self, operation: Operation<'_>) {
        match operation {
            Operation::Command(asked) => self.command(only(&asked.frame())),
            Operation::Frame(bytes) => self.frame(bytes),
            Operation::Settle(index, outcome) if !self.outstanding.is_empty() => {
                self.settle(usize::from(index) % self.outstanding.len(), outcome);
            }
            Operation::Settle(..) => {}
            Operation::Ping => {
                // Like the edge, which pings who is connected, and never so often that the answers are not counted.
                if self.state == State::Connected && self.pings < 200 {
                    self.session.on_ping_sent();
                    self.pings += 1;
                }
            }
            Operation::End(index) => {
                let name = CHANNELS[usize::from(index) % CHANNELS.len()];
                let Ok(channel) = ChannelName::new(name) else { return };
                let push = self.session.end_subscription(&channel, &Unsubscribe::SERVER);
                let was_there = self.channels.remove(&channel);
                assert_eq!(push.is_some(), was_there && self.state == State::Connected, "{name}");
                push.into_iter().for_each(|push| self.write(&push, None));
            }
            Operation::Later(seconds) => self.later(Duration::from_secs(seconds.into())),
            Operation::Close => {
                self.session.close();
                self.state = State::Closed;
            }
        }
    }

    fn frame(&mut self, bytes: &[u8]) {
        for command in parse_frame(Format::Json, bytes).take(16) {
            match command {
                Ok(command) => self.command(command),
                Err(error) => {
                    assert_eq!(error.disconnect().code, 3501);
                    self.session.close();
                    self.state = State::Closed;
                }
            }
        }
    }

    fn command(&mut self, command: Command) {
        let awaits = |(_, owed): &(u32, Outstanding)| {
            matches!(owed, Outstanding::Subscribe { .. } | Outstanding::Unsubscribe(_))
        };
        while let Some(index) = self.outstanding.iter().position(awaits) {
            self.settle(index, Outcome::Done);
        }
        self.commands += 1;
        let id = command.id;
        let effect = self.session.handle(command, self.now);
        assert_eq!(matches!(effect, Effect::Nothing), self.state == State::Closed, "{effect:?}");
        match (self.state, &effect) {
            (State::New, Effect::Connect(_) | Effect::Refused(_) | Effect::Disconnect { .. }) => {}
            (State::Refused, Effect::Disconnect { .. }) => {}
            (State::Connected, Effect::Connect(_) | Effect::Refused(_)) => panic!("connected twice: {effect:?}"),
            (State::Connected | State::Closed, _) => {}
            (State::New | State::Refused, _) => panic!("served without being connected: {effect:?}"),
        }
        if let Some(owed) = self.take(effect, id) {
            self.outstanding.push((id, owed));
        }
    }

    /// Does an effect; what it leaves owed.
    fn take(&mut self, effect: Effect, id: u32) -> Option<Outstanding> {
        match effect {
            Effect::Reply(reply) => self.write(&reply, Some(id)),
            Effect::Connect(effect) => {
                let is_made = id % 8 != 7;
                self.state = if is_made { State::Connected } else { State::Refused };
                self.device = effect.introduction.device.as_ref().map(|claim| claim.device().clone());
                let channels = effect.subscriptions.iter().map(|effect| effect.channel.clone());
                self.channels = channels.filter(|_| is_made).collect();
                let reply = connected(&mut self.session, *effect, is_made).expect("it is open");
                self.write(&reply, Some(id));
            }
            Effect::Refused(reply) => {
                self.write(&reply, Some(id));
                self.state = State::Refused;
            }
            Effect::Subscribe(effect) => {
                let SubscribeEffect { ticket, channel, positioned, recover, .. } = *effect;
                assert!(self.channels.insert(channel.clone()), "no channel twice");
                return Some(Outstanding::Subscribe { ticket, channel, positioned, may_recover: recover.is_some() });
            }
            Effect::Unsubscribe { ticket, channel } => {
                assert!(self.channels.remove(&channel), "only what is there is left");
                return Some(Outstanding::Unsubscribe(ticket));
            }
            Effect::Publish { ticket, .. } => return Some(Outstanding::Publish(ticket)),
            Effect::History { ticket, limit, .. } => {
                assert!(limit <= HISTORY_PUBLICATION_COUNT_MAX);
                return Some(Outstanding::History(ticket));
            }
            Effect::Presence { ticket, .. } => return Some(Outstanding::Presence(ticket)),
            Effect::PresenceStats { ticket, .. } => return Some(Outstanding::PresenceStats(ticket)),
            Effect::Visible { ticket, visible } => {
                assert!(visible.is_none_or(|ttl| !ttl.is_zero() && ttl <= VISIBLE_TTL_MAX));
                return Some(Outstanding::Visible(ticket, visible));
            }
            Effect::Hook { .. } | Effect::Expired(_) => panic!("no hook is configured"),
            Effect::Pong => self.pings = self.pings.checked_sub(1).expect("no pong without a ping"),
            Effect::Disconnect { disconnect, .. } => {
                assert!((3000..5000).contains(&disconnect.code));
                self.state = State::Closed;
            }
            Effect::Nothing => {}
        }
        None
    }

    fn settle(&mut self, index: usize, outcome: Outcome) {
        let (id, owed) = self.outstanding.swap_remove(index);
        let session = &mut self.session;
        let top = StreamPosition { offset: Offset(2), epoch: Epoch::from_random(0) };
        let publications = [1, 2].map(|offset| Publication {
            offset: Offset(offset),
            data: Json::of(&offset),
            info: None,
            tags: Tags::default(),
            receipt: None,
            texts: None,
        });
        let done = match outcome {
            Outcome::Done | Outcome::Recovered => Ok(()),
            Outcome::Failed => Err(ErrorCode::Internal),
        };
        let reply = match owed {
            Outstanding::Subscribe { ticket, channel, positioned, may_recover } => {
                if done.is_err() {
                    self.channels.remove(&channel);
                }
                let recovered = (may_recover && matches!(outcome, Outcome::Recovered)).then_some(&publications[..]);
                let subscribed = done.map(|()| Subscribed { top: positioned.then_some(top), recovered });
                session.on_subscribed(ticket, subscribed, self.now)
            }
            Outstanding::Unsubscribe(ticket) => session.on_unsubscribed(ticket),
            Outstanding::Publish(ticket) => session.on_published(ticket, done),
            Outstanding::History(ticket) => {
                session.on_history(ticket, done.map(|()| HistoryFound { top, publications: &publications }))
            }
            Outstanding::Presence(ticket) => session.on_presence(ticket, done.map(|()| &[][..])),
            Outstanding::PresenceStats(ticket) => session.on_presence_stats(ticket, done.map(|()| (1, 1))),
            Outstanding::Visible(ticket, visible) => session.on_visible(ticket, self.device.as_ref(), visible),
        };
        assert_eq!(reply.is_some(), self.state == State::Connected, "answered exactly while open");
        reply.into_iter().for_each(|reply| self.write(&reply, Some(id)));
    }

    fn later(&mut self, duration: Duration) {
        self.now = self.now.saturating_add(duration);
        while let Some(expired) = self.session.poll_expired(self.now) {
            assert_eq!(self.state, State::Connected, "nothing expires but what is open");
            match expired {
                Expired::Connection(_) => self.state = State::Closed,
                Expired::Subscription { channel, push } => {
                    assert!(self.channels.remove(&channel), "only what is there expires");
                    self.write(&push, None);
                }
            }
        }
        let overdue = self.session.deadline().is_some_and(|deadline| deadline <= self.now);
        assert!(!overdue || self.state != State::Connected, "what is overdue is reported");
    }

    /// One message: one line of JSON with the command's id, or without one.
    fn write(&mut self, message: &[u8], id: Option<u32>) {
        assert_ne!(self.state, State::Closed, "nothing is written after the end");
        assert!(!message.contains(&b'\n'));
        let value: Value = serde_json::from_slice(message).expect("what we write is JSON");
        assert_eq!(value["id"].as_u64(), id.map(u64::from), "{value}");
        self.replies += usize::from(id.is_some());
    }

    fn check(&self) {
        let channels: BTreeSet<_> = self.session.channels().cloned().collect();
        assert_eq!(channels.len(), self.session.channels().len(), "no channel twice");
        assert!(channels.len() <= CONFIG.channel_count_max);
        assert!(self.state == State::Closed || channels == self.channels);
        assert!(self.replies + self.outstanding.len() <= self.commands, "at most one answer per command");
        assert_eq!(self.session.is_connected(), self.state == State::Connected);
        assert_eq!(self.session.awaits_pong(), self.pings > 0);
        assert_eq!(self.session.device(), self.device.as_ref(), "nothing changes the device");
    }
}
