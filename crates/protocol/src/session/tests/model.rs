//! Sessions under random lists of operations, compared with a model that knows only which channels should exist.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::Value;

use super::device::{device_token, introduced};
use super::hook::{admitting, let_in};
use super::*;
use crate::{HookAnswer, VISIBLE_TTL_MAX};

#[derive(Debug, Clone)]
enum Operation {
    Command(String),
    /// Passes back the outstanding ticket at this index, as done or as failed.
    Settle(prop::sample::Index, bool),
    Ping,
    End(&'static str),
    /// Time goes on by so many seconds and what expired is collected.
    Later(u16),
}

const CHANNELS: [&str; 8] = ["a", "open:b", "members:c", "$d", "closed:e", "nowhere:f", "decided:g", ""];

fn operation() -> impl Strategy<Value = Operation> {
    let token = prop_oneof![
        Just(String::new()),
        Just("forged".to_owned()),
        Just(subscription_token("42", "$d", Some(50))),
        Just(connection_token("42", Some(40))),
        Just(device_token("42", "phone-1")),
        Just(device_token("42", "tablet")),
    ];
    let kind = prop_oneof![
        8 => Just("subscribe"),
        4 => Just("unsubscribe"),
        2 => Just("publish"),
        2 => Just("history"),
        1 => Just("presence"),
        1 => Just("presence_stats"),
        1 => Just("refresh"),
        2 => Just("sub_refresh"),
        2 => Just("rpc"),
        1 => Just("connect"),
    ];
    let command = (1..50_u32, kind, prop::sample::select(&CHANNELS[..]), token, any::<bool>()).prop_map(
        |(id, kind, channel, token, flag)| {
            let method = if channel.is_empty() { "unknown" } else { RPC_VISIBLE };
            let data = match (kind, flag) {
                ("rpc", true) => r#"{"visible":true,"ttl":9}"#,
                (_, true) => "1",
                (_, false) => "null",
            };
            Operation::Command(format!(
                r#"{{"id":{id},"{kind}":{{"channel":"{channel}","token":"{token}","data":{data},"recover":{flag},"method":"{method}"}}}}"#
            ))
        },
    );
    prop_oneof![
        20 => command,
        8 => (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(index, done)| Operation::Settle(index, done)),
        1 => Just(Operation::Command("{}".to_owned())),
        1 => Just(Operation::Command(r#"{"id":1,"ping":{}}"#.to_owned())),
        2 => Just(Operation::Ping),
        1 => prop::sample::select(&CHANNELS[..5]).prop_map(Operation::End),
        1 => (0..60_u16).prop_map(Operation::Later),
    ]
}

enum Outstanding {
    Subscribe(SubscribeTicket),
    Publish(Ticket),
    History(Ticket),
    Presence(Ticket),
    PresenceStats(Ticket),
    Unsubscribe(Ticket),
    Visible(Ticket, Option<Duration>),
    Hook(u32, Asked),
}

/// The driver's side: open tickets, channels, and pings.
struct Driver {
    session: Session,
    now: Timestamp,
    outstanding: Vec<Outstanding>,
    /// Subscribed or about to be, as the driver sees it.
    channels: BTreeSet<String>,
    closed: bool,
    /// Sent and not answered.
    pings: usize,
    commands: usize,
    replies: usize,
    /// As it was named on connecting: nothing changes it.
    device: Option<DeviceId>,
}

impl Driver {
    fn write(&mut self, reply: &[u8], id: Option<u32>) {
        assert!(!self.closed, "nothing is written after a disconnect");
        let value: Value = serde_json::from_slice(reply).unwrap();
        assert_eq!(value["id"].as_u64(), id.map(u64::from), "{value}");
        self.replies += usize::from(id.is_some());
    }

    fn perform(&mut self, operation: Operation) {
        match operation {
            Operation::Command(text) => self.command(&text),
            Operation::Settle(index, done) if !self.outstanding.is_empty() => {
                let index = index.index(self.outstanding.len());
                self.settle(index, done);
            }
            Operation::Settle(..) => {}
            Operation::Ping => {
                self.pings += 1;
                self.session.on_ping_sent();
            }
            Operation::End(name) => {
                let push = self.session.end_subscription(&channel(name), &Unsubscribe::SERVER);
                self.channels.remove(name);
                push.into_iter().for_each(|push| self.write(&push, None));
            }
            Operation::Later(seconds) => {
                self.now = self.now.saturating_add(Duration::from_secs(seconds.into()));
                while let Some(expired) = self.session.poll_expired(self.now) {
                    match expired {
                        Expired::Connection(_) => self.closed = true,
                        Expired::Subscription { channel, push } => {
                            assert!(self.channels.remove(channel.as_str()));
                            self.write(&push, None);
                        }
                    }
                }
                assert!(self.closed || self.session.deadline().is_none_or(|deadline| deadline > self.now));
            }
        }
    }

    fn command(&mut self, text: &str) {
        // A subscribe, an unsubscribe or an answer of a hook is given back before the next command.
        while let Some(index) = self.outstanding.iter().position(|it| {
            matches!(it, Outstanding::Subscribe(_) | Outstanding::Unsubscribe(_) | Outstanding::Hook(..))
        }) {
            self.settle(index, true);
        }
        let command = parse_frame(Format::Json, text.as_bytes()).next().unwrap().unwrap();
        let id = command.id;
        self.commands += 1;
        let effect = self.session.handle(command, self.now);
        self.take(effect, id);
    }

    fn take(&mut self, effect: Effect, id: u32) {
        let outstanding = match effect {
            Effect::Reply(reply) | Effect::Refused(reply) => return self.write(&reply, Some(id)),
            Effect::Connect(_) => panic!("connected twice"),
            Effect::Subscribe(effect) => {
                assert!(self.channels.insert(effect.channel.as_str().to_owned()), "no channel twice");
                Outstanding::Subscribe(effect.ticket)
            }
            Effect::Unsubscribe { ticket, channel } => {
                assert!(self.channels.remove(channel.as_str()), "only what is there is left");
                Outstanding::Unsubscribe(ticket)
            }
            Effect::Publish { ticket, .. } => Outstanding::Publish(ticket),
            Effect::History { ticket, .. } => Outstanding::History(ticket),
            Effect::Presence { ticket, .. } => Outstanding::Presence(ticket),
            Effect::PresenceStats { ticket, .. } => Outstanding::PresenceStats(ticket),
            Effect::Visible { ticket, visible } => {
                assert!(visible.is_none_or(|ttl| !ttl.is_zero() && ttl <= VISIBLE_TTL_MAX));
                Outstanding::Visible(ticket, visible)
            }
            Effect::Hook { asked, .. } => Outstanding::Hook(id, *asked),
            Effect::Pong => {
                self.pings -= 1; // Below zero it panics: no pong without a ping.
                return;
            }
            Effect::Disconnect { .. } => {
                assert!(!self.closed, "closed once");
                self.closed = true;
                return;
            }
            Effect::Expired(_) => panic!("no hook extends anything here"),
            Effect::Nothing => return assert!(self.closed, "only a closed session says nothing"),
        };
        assert!(!self.closed, "nothing is done after a disconnect");
        self.outstanding.push(outstanding);
    }

    fn settle(&mut self, index: usize, done: bool) {
        let outcome = done.then_some(()).ok_or(ErrorCode::Internal);
        let outstanding = self.outstanding.swap_remove(index);
        let session = &mut self.session;
        let (id, reply) = match outstanding {
            Outstanding::Hook(id, asked) => {
                let answer = if done { HookAnswer::Result(None) } else { HookAnswer::Failed(ErrorCode::Internal) };
                let effect = session.on_hook(asked, answer, self.now);
                return self.take(effect, id);
            }
            Outstanding::Subscribe(ticket) => {
                let subscribed = Subscribed { top: ticket.positioned.then(|| top(1)), recovered: None };
                if !done {
                    self.channels.remove(ticket.channel.as_str());
                }
                (ticket.id, session.on_subscribed(ticket, outcome.map(|()| subscribed), self.now))
            }
            Outstanding::Publish(ticket) => (ticket.id(), session.on_published(ticket, outcome)),
            Outstanding::History(ticket) => {
                let found = HistoryFound { top: top(1), publications: &[] };
                (ticket.id(), session.on_history(ticket, outcome.map(|()| found)))
            }
            Outstanding::Presence(ticket) => (ticket.id(), session.on_presence(ticket, outcome.map(|()| &[][..]))),
            Outstanding::PresenceStats(ticket) => {
                (ticket.id(), session.on_presence_stats(ticket, outcome.map(|()| (1, 1))))
            }
            Outstanding::Visible(ticket, visible) => {
                (ticket.id(), session.on_visible(ticket, self.device.as_ref(), visible))
            }
            Outstanding::Unsubscribe(ticket) => (ticket.id(), session.on_unsubscribed(ticket)),
        };
        assert_eq!(reply.is_none(), self.closed, "answered exactly while open");
        reply.into_iter().for_each(|reply| self.write(&reply, Some(id)));
    }

    fn check(&self) {
        let channels: BTreeSet<_> = self.session.channels().map(|channel| channel.as_str().to_owned()).collect();
        assert_eq!(channels.len(), self.session.channels().len(), "no channel twice");
        assert!(channels.len() <= config().channel_count_max);
        assert!(self.closed || channels == self.channels);
        assert!(self.replies + self.outstanding.len() <= self.commands, "at most one reply per command");
        assert_eq!(self.session.is_connected(), !self.closed);
        assert_eq!(self.session.awaits_pong(), self.pings > 0);
        assert_eq!(self.session.device(), self.device.as_ref());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_list_of_operations_keeps_the_sessions_promises(
        token in prop_oneof![
            Just(String::new()),
            Just(connection_token("42", None)),
            Just(device_token("42", "phone-1")),
            Just(odd_token(serde_json::json!({"sub": "42", "subs": {"a": {}, "$d": {"expire_at": 1030}}}))),
        ],
        data in prop_oneof![Just("{}"), Just(r#"{"tidings":{"device":"tablet","credential":"c"}}"#)],
        is_asked in any::<bool>(),
        operations in prop::collection::vec(operation(), 0..60),
    ) {
        let session = if is_asked {
            let answer = r#"{"result":{"user":"42","channels":["a"],"subs":{"$d":{"expire_at":1030}}}}"#;
            let_in(admitting(false), &format!(r#"{{"data":{data}}}"#), answer).0
        } else {
            introduced(&token, data).0
        };
        let mut driver = Driver {
            device: session.device().cloned(),
            channels: session.channels().map(|channel| channel.as_str().to_owned()).collect(),
            session,
            now: NOW,
            outstanding: Vec::new(),
            closed: false,
            pings: 0,
            commands: 0,
            replies: 0,
        };
        for operation in operations {
            driver.perform(operation);
            driver.check();
        }
    }
}
