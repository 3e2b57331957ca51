//! Conversations with a session: which command is allowed when, its answer, and what expires.
//!
//! `check` takes a conversation as pairs of a command and what is said to it; the hub is a stand-in with fixed
//! answers. In `model` random operations run beside a model of which channels should be there.

use tidings_types::{Epoch, Format, StreamPosition};

use serde_json::json;

use super::*;
use crate::admission::Admission;
use crate::token::{RemoteKeys, TokenChecks, TokenKey, TokenSecret, sign_connection_token, sign_subscription_token};
use crate::{DataFormat, HookId, Publication, RecoveryMode, Tags, Unsubscribe, parse_frame};

mod device;
mod hook;
mod model;
mod server_side;
mod unidirectional;

use hook::asked;

const NOW: Timestamp = Timestamp(1_000_000);
const CLIENT: &str = "00000000-0000-4000-8000-000000000007";

fn secret() -> TokenSecret {
    TokenSecret::new(b"secret").unwrap()
}

fn at(seconds: u64) -> Timestamp {
    NOW.saturating_add(Duration::from_secs(seconds))
}

fn channel(name: &str) -> ChannelName {
    ChannelName::new(name).unwrap()
}

fn connection_token(user: &str, seconds: Option<u64>) -> String {
    let admission = Admission { user: user.to_owned(), expires_at: seconds.map(at), ..Admission::default() };
    sign_connection_token(&secret(), &admission, NOW)
}

fn subscription_token(user: &str, name: &str, seconds: Option<u64>) -> String {
    sign_subscription_token(&secret(), user, &channel(name), seconds.map(at), Some(&Json::of(&"seat 7")), NOW)
}

/// Signs claims that the crate's own helpers do not make.
fn odd_token(claims: serde_json::Value) -> String {
    let key = jsonwebtoken::EncodingKey::from_secret(b"secret");
    jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).unwrap()
}

/// Namespaces named for what they allow.
fn config() -> SessionConfig {
    let closed = NamespaceOptions::closed();
    let history = NamespaceOptions { history_size: 10, history_ttl: Duration::from_secs(60), ..closed };
    let open = NamespaceOptions { allow_subscribe_for_client: true, allow_subscribe_for_anonymous: true, ..history };
    let [subscribe_hook, publish_hook, sub_refresh_hook] = [3, 4, 6].map(|id| Some(HookId(id)));
    let decided = NamespaceOptions { subscribe_hook, publish_hook, sub_refresh_hook, ..history };
    let named = [
        ("closed", closed),
        ("decided", decided),
        ("decided-durable", NamespaceOptions { durable: true, sub_refresh_hook: None, ..decided }),
        ("open", open),
        ("users", NamespaceOptions { allow_subscribe_for_anonymous: false, ..open }),
        ("forced", NamespaceOptions { force_recovery: true, ..open }),
        ("cached", NamespaceOptions { force_recovery: true, recovery_mode: RecoveryMode::Cache, ..open }),
        (
            "state",
            NamespaceOptions {
                force_recovery: true,
                recovery_mode: RecoveryMode::Cache,
                auto_cache_recover: true,
                ..open
            },
        ),
        ("small", NamespaceOptions { allow_deltas: true, allow_channel_compaction: true, ..open }),
        ("picky", NamespaceOptions { allow_tags_filter: true, ..open }),
        ("picky-members", NamespaceOptions { allow_tags_filter: true, allow_history_for_subscriber: true, ..open }),
        ("lively", NamespaceOptions { join_leave: true, allow_presence_for_subscriber: true, ..open }),
        ("hidden", NamespaceOptions { join_leave: true, ..open }),
        ("told", NamespaceOptions { join_leave: true, force_push_join_leave: true, ..open }),
        ("quiet", NamespaceOptions { force_push_join_leave: true, allow_presence_for_subscriber: true, ..open }),
        ("recovery", NamespaceOptions { allow_recovery: true, ..open }),
        ("forgetful", NamespaceOptions { allow_recovery: true, force_recovery: true, history_size: 0, ..open }),
        (
            "members",
            NamespaceOptions {
                presence: true,
                allow_publish_for_subscriber: true,
                allow_history_for_subscriber: true,
                allow_presence_for_subscriber: true,
                ..open
            },
        ),
        ("dialog", NamespaceOptions { allow_user_limited_channels: true, ..closed }),
        (
            "public",
            NamespaceOptions {
                presence: true,
                allow_publish_for_client: true,
                allow_publish_for_anonymous: true,
                allow_history_for_client: true,
                allow_history_for_anonymous: true,
                allow_presence_for_client: true,
                allow_presence_for_anonymous: true,
                ..open
            },
        ),
    ];
    SessionConfig {
        namespaces: Namespaces::new(open, named.map(|(name, options)| (name.to_owned(), options)).into()),
        token_verifier: Some(TokenVerifier::new(&secret(), None)),
        allow_anonymous: true,
        insecure: false,
        hooks: Default::default(),
        channel_count_max: 3,
        personal_channels: None,
        ping_interval: Duration::from_secs(25),
        version: "1".to_owned(),
    }
}

fn new_session(config: SessionConfig) -> Session {
    Session::new(Arc::new(config), ClientId::from_random(7), Variant::websocket(Format::Json))
}

/// A connected session of `user`; "" without a token.
fn session(user: &str) -> Session {
    let mut session = new_session(config());
    let token = if user.is_empty() { String::new() } else { connection_token(user, None) };
    assert!(
        run(&mut session, &format!(r#"{{"id":1,"connect":{{"token":"{token}"}}}}"#))
            .starts_with(r#"{"id":1,"connect""#)
    );
    session
}

fn top(offset: u64) -> StreamPosition {
    StreamPosition { offset: Offset(offset), epoch: Epoch::from_random(0) }
}

/// Handles one command and, where the driver has something to do, lets it succeed; what goes to the client, or
/// `cut <code>`.
fn run_at(session: &mut Session, command: &str, now: Timestamp) -> String {
    let command = parse_frame(Format::Json, command.as_bytes()).next().unwrap().unwrap();
    let effect = session.handle(command, now);
    perform(session, effect, now)
}

/// Lets an effect succeed; what goes to the client, what a hook is asked, or `cut <code>`.
fn perform(session: &mut Session, effect: Effect, now: Timestamp) -> String {
    let answer = match effect {
        Effect::Reply(reply) | Effect::Refused(reply) => Some(reply),
        Effect::Connect(effect) => connected(session, *effect, now),
        Effect::Subscribe(effect) => {
            let effect = *effect;
            let top = effect.positioned.then(|| top(9));
            session.on_subscribed(effect.ticket, Ok(Subscribed { top, recovered: None }), now)
        }
        Effect::Unsubscribe { ticket, .. } => session.on_unsubscribed(ticket),
        Effect::Publish { ticket, .. } => session.on_published(ticket, Ok(())),
        Effect::History { ticket, .. } => {
            session.on_history(ticket, Ok(HistoryFound { top: top(9), publications: &[] }))
        }
        Effect::Presence { ticket, .. } => session.on_presence(ticket, Ok(&[])),
        Effect::PresenceStats { ticket, .. } => session.on_presence_stats(ticket, Ok((2, 1))),
        Effect::Visible { ticket, visible } => {
            let device = session.device().cloned();
            session.on_visible(ticket, device.as_ref(), visible)
        }
        Effect::Hook { call, .. } => return format!("hook {}", asked(&call)),
        Effect::Expired(Expired::Connection(disconnect)) => return format!("cut {}", disconnect.code),
        Effect::Expired(Expired::Subscription { push, .. }) => Some(push),
        Effect::Pong => return "pong".to_owned(),
        Effect::Disconnect { disconnect, .. } => return format!("cut {}", disconnect.code),
        Effect::Nothing => return "nothing".to_owned(),
    };
    String::from_utf8(answer.unwrap()).unwrap()
}

/// Lets a client in; nothing was missed in its server-side subscriptions.
fn connected(session: &mut Session, effect: ConnectEffect, now: Timestamp) -> Option<Vec<u8>> {
    let start = |positioned: bool| Subscribed { top: positioned.then(|| top(9)), recovered: None };
    let made = effect.subscriptions.into_iter().map(|effect| (effect.ticket, start(effect.positioned)));
    session.on_connected(effect.ticket, &made.collect::<Vec<_>>(), now)
}

fn run(session: &mut Session, command: &str) -> String {
    run_at(session, command, NOW)
}

/// Runs commands in order and compares what stands behind the id, an error's code, or the disconnect.
#[track_caller]
fn check(session: &mut Session, steps: &[(&str, &str)]) {
    for (command, expected) in steps {
        let found = run(session, &format!(r#"{{"id":5,{command}}}"#));
        let found = match found.strip_prefix(r#"{"id":5,"error":{"code":"#) {
            Some(rest) => format!("error {}", &rest[..3]),
            None => match found.strip_prefix(r#"{"id":5,"#) {
                Some(rest) => rest[..rest.len() - 1].to_owned(),
                None => found,
            },
        };
        assert_eq!(&found, expected, "{command}");
    }
}

fn subscribe_effect(session: &mut Session, request: &str) -> SubscribeEffect {
    let command = format!(r#"{{"id":5,"subscribe":{{{request}}}}}"#);
    match session.handle(parse_frame(Format::Json, command.as_bytes()).next().unwrap().unwrap(), NOW) {
        Effect::Subscribe(effect) => *effect,
        other => panic!("{request}: {other:?}"),
    }
}

#[test]
fn connect_says_what_the_client_needs() {
    assert_eq!(
        run(&mut new_session(config()), r#"{"id":1,"connect":{}}"#),
        format!(r#"{{"id":1,"connect":{{"client":"{CLIENT}","version":"1","ping":25,"pong":true}}}}"#)
    );
    let mut session = new_session(config());
    let token = connection_token("42", Some(600));
    assert!(
        run(&mut session, &format!(r#"{{"id":1,"connect":{{"token":"{token}"}}}}"#))
            .contains(r#""expires":true,"ttl":600,"#)
    );
    assert_eq!((session.user(), session.expires_at(), session.is_connected()), ("42", Some(at(600)), true));
}

#[test]
fn connect_is_refused() {
    let strict = || SessionConfig { allow_anonymous: false, ..config() };
    let keyless = || SessionConfig { token_verifier: None, ..config() };
    let good = connection_token("42", None);
    for (config, token, expected) in [
        (strict(), "", "cut 3501"),
        (config(), "forged", "cut 3500"),
        (keyless(), &*good, "cut 3500"),
        (strict(), &*connection_token("42", Some(0)), "109"),
        (strict(), &*odd_token(serde_json::json!({"expire_at": 999})), "110"),
        (config(), &*subscription_token("42", "a", None), "cut 3500"),
    ] {
        let mut session = new_session(config);
        let found = run(&mut session, &format!(r#"{{"id":1,"connect":{{"token":"{token}"}}}}"#));
        assert!(found.contains(expected), "{expected}: {found}");
        assert!(!session.is_connected());
        // After an error the connection is useless; after a disconnect it is gone.
        let after = if expected.starts_with("cut") { "nothing" } else { "cut 3501" };
        assert_eq!(run(&mut session, r#"{"id":2,"connect":{}}"#), after);
    }
    let open = SessionConfig { insecure: true, ..strict() };
    assert!(run(&mut new_session(open), r#"{"id":1,"connect":{}}"#).contains("client"));
}

#[test]
fn a_key_that_may_still_come_is_a_temporary_error() {
    let checks = TokenChecks {
        keys: vec![TokenKey::secret(&secret())],
        remote: Some(RemoteKeys::new(|| {})), // Nothing is fetched yet.
        ..TokenChecks::default()
    };
    let config = SessionConfig { token_verifier: Some(TokenVerifier::with(checks, None)), ..config() };
    let config = Arc::new(config);
    let session = || Session::new(config.clone(), ClientId::from_random(7), Variant::websocket(Format::Json));
    let unknown = "eyJhbGciOiJFUzI1NiIsImtpZCI6Im5ldyJ9.e30.AAAA"; // {"alg":"ES256","kid":"new"}
    let is_temporary = |answer: &str| answer.contains(r#""code":100"#) && answer.contains(r#""temporary":true"#);

    let mut refused = session();
    assert!(is_temporary(&run(&mut refused, &format!(r#"{{"id":1,"connect":{{"token":"{unknown}"}}}}"#))));
    assert!(!refused.is_connected());

    let mut connected = session();
    run(&mut connected, &format!(r#"{{"id":1,"connect":{{"token":"{}"}}}}"#, connection_token("42", None)));
    run(
        &mut connected,
        &format!(r#"{{"id":2,"subscribe":{{"channel":"$a","token":"{}"}}}}"#, subscription_token("42", "$a", None)),
    );
    for command in [r#""refresh":{"#, r#""subscribe":{"channel":"$b","#, r#""sub_refresh":{"channel":"$a","#] {
        let answer = run(&mut connected, &format!(r#"{{"id":3,{command}"token":"{unknown}"}}}}"#));
        assert!(is_temporary(&answer), "{command}: {answer}");
        assert!(connected.is_connected());
    }
}

#[test]
fn connect_comes_first_and_once() {
    for command in [r#"{"id":1,"subscribe":{"channel":"a"}}"#, r#"{"id":1,"ping":{}}"#, r#"{"send":{}}"#, "{}"] {
        assert_eq!(run(&mut new_session(config()), command), "cut 3501", "{command}");
    }
    assert_eq!(run(&mut session(""), r#"{"id":2,"connect":{}}"#), "cut 3501");
}

#[test]
fn commands_that_end_the_connection() {
    for (command, expected) in [
        (r#""ping":{}"#, "cut 3501"),
        (r#""send":{"data":1}"#, "cut 3508"),
        (r#""subscribe":{}"#, "cut 3501"),
        (r#""subscribe":{"channel":"a","delta":"bsdiff"}"#, "cut 3501"),
        (r#""unsubscribe":{}"#, "cut 3501"),
        (r#""publish":{"data":1}"#, "cut 3501"),
        (r#""presence":{}"#, "cut 3501"),
        (r#""presence_stats":{}"#, "cut 3501"),
        (r#""history":{}"#, "cut 3501"),
        (r#""refresh":{}"#, "cut 3501"),
        (r#""sub_refresh":{"token":"t"}"#, "cut 3501"),
    ] {
        check(&mut session("42"), &[(command, expected), (command, "nothing")]);
    }
}

#[test]
fn one_pong_per_ping() {
    let mut session = session("");
    session.on_ping_sent();
    assert!(session.awaits_pong());
    assert_eq!(run(&mut session, "{}"), "pong");
    assert!(!session.awaits_pong());
    session.on_ping_sent();
    session.on_ping_sent();
    assert_eq!(
        [run(&mut session, "{}"), run(&mut session, "{}"), run(&mut session, "{}")],
        ["pong", "pong", "cut 3501"]
    );
}

#[test]
fn subscribe_checks_in_the_protocols_order() {
    let long = format!(r#""subscribe":{{"channel":"{}"}}"#, "x".repeat(256));
    let ok = r#""subscribe":{}"#;
    check(
        &mut session("42"),
        &[
            (&long, "error 107"),
            (r#""subscribe":{"channel":"nowhere:é"}"#, "error 102"),
            (r#""subscribe":{"channel":"open:é"}"#, "error 107"),
            (r#""subscribe":{"channel":"open:a","type":1}"#, "error 103"),
            (r#""subscribe":{"channel":"open:a","type":4}"#, "error 108"),
            (r#""subscribe":{"channel":"$a"}"#, "error 103"),
            (r#""subscribe":{"channel":"closed:a"}"#, "error 103"),
            (r#""subscribe":{"channel":"open:a#7"}"#, "error 103"),
            (r#""subscribe":{"channel":"open:a","token":"forged"}"#, "error 103"),
            (r#""subscribe":{"channel":"open:a","tf":{"key":"k"}}"#, "error 107"),
            (r#""subscribe":{"channel":"open:a","delta":"fossil","tf":null}"#, r#""subscribe":{}"#),
            (r#""subscribe":{"channel":"open:a"}"#, "error 105"),
            (r#""subscribe":{"channel":"open:a#7,42"}"#, ok),
            (r#""subscribe":{"channel":"open:b"}"#, ok),
            (r#""subscribe":{"channel":"open:a"}"#, "error 105"),
            (r#""subscribe":{"channel":"open:c"}"#, "error 106"),
            (r#""unsubscribe":{"channel":"open:a"}"#, r#""unsubscribe":{}"#),
            (r#""unsubscribe":{"channel":"open:a"}"#, r#""unsubscribe":{}"#),
            (r#""subscribe":{"channel":"open:c"}"#, ok),
        ],
    );
    check(
        &mut session(""),
        &[
            (r#""subscribe":{"channel":"users:a"}"#, "error 103"),
            (r#""subscribe":{"channel":"open:a#"}"#, "error 103"),
            (r#""subscribe":{"channel":"open:a"}"#, ok),
        ],
    );
}

#[test]
fn joins_and_leaves_are_told_to_clients_that_ask_and_may_see_presence() {
    for (channel, asks, is_announced, hears) in [
        ("lively:a", true, true, true),
        ("lively:a", false, true, false),
        ("hidden:a", true, true, false),
        ("told:a", false, true, true),
        ("quiet:a", true, false, false),
        ("open:a", true, false, false),
    ] {
        let request = format!(r#""channel":"{channel}","join_leave":{asks}"#);
        let effect = subscribe_effect(&mut session("42"), &request);
        assert_eq!((effect.announced.is_some(), effect.hears_joins), (is_announced, hears), "{request}");
    }
    let effect = subscribe_effect(&mut session(""), r#""channel":"lively:a","join_leave":true"#);
    assert!(!effect.hears_joins, "an anonymous client may not see presence here");
}

#[test]
fn a_client_that_speaks_protobuf_gets_no_number() {
    let channel = "small:a".to_owned();
    let request = crate::SubscribeRequest { channel, flag: 1, ..Default::default() };
    let mut session = Session::new(config().into(), ClientId::from_random(7), Variant::websocket(Format::Protobuf));
    let connect = Command { id: 1, request: Request::Connect(Default::default()) };
    let Effect::Connect(connect) = session.handle(connect, NOW) else { panic!("no connect") };
    session.on_connected(connect.ticket, &[], NOW);
    let effect = session.handle(Command { id: 2, request: Request::Subscribe(Box::new(request)) }, NOW);
    let Effect::Subscribe(effect) = effect else { panic!("{effect:?}") };
    assert!(!effect.form.is_numbered);
}

#[test]
fn deltas_and_numbers_are_for_clients_that_ask_where_they_are_allowed() {
    for (channel, request, expected) in [
        ("small:a", r#""delta":"fossil","flag":1"#, (true, true)),
        ("small:a", r#""flag":2"#, (false, false)),
        ("open:a", r#""delta":"fossil","flag":3"#, (false, false)),
    ] {
        let mut session = session("42");
        let effect = subscribe_effect(&mut session, &format!(r#""channel":"{channel}",{request}"#));
        assert_eq!((effect.form.has_deltas, effect.form.is_numbered), expected, "{channel} {request}");
        let ticket = effect.ticket.with_number(9);
        let reply = session.on_subscribed(ticket, Ok(Subscribed { top: None, recovered: None }), NOW).unwrap();
        let told = if expected == (true, true) { r#"{"delta":true,"id":9}"# } else { "{}" };
        assert_eq!(String::from_utf8(reply).unwrap(), format!(r#"{{"id":5,"subscribe":{told}}}"#));
    }
}

#[test]
fn a_tags_filter_is_read_where_it_is_allowed() {
    let wants = r#""tf":{"key":"kind","cmp":"eq","val":"goal"}"#;
    let effect = subscribe_effect(&mut session("42"), &format!(r#""channel":"picky:a",{wants}"#));
    assert!(effect.filter.is_some());
    let refused =
        [r#"{"key":"kind"}"#, "[]", "{}"].map(|tf| format!(r#""subscribe":{{"channel":"picky:a","tf":{tf}}}"#));
    refused.iter().for_each(|command| check(&mut session("42"), &[(command, "error 107")]));
    check(&mut session("42"), &[(&format!(r#""subscribe":{{"channel":"open:a",{wants}}}"#), "error 107")]);
}

/// A subscription token with this tags filter.
fn filtering_token(channel: &str, filter: serde_json::Value) -> String {
    odd_token(json!({"sub": "42", "channel": channel, "tags_filter": filter}))
}

#[test]
fn a_token_says_which_publications_a_client_may_get_at_most() {
    let leaf = |key: &str, val: &str| json!({"key": key, "cmp": "eq", "val": val});
    let tags = |pairs: &[(&str, &str)]| -> Tags {
        let owned = pairs.iter().map(|(key, val)| ((*key).to_owned(), (*val).to_owned()));
        owned.collect::<std::collections::BTreeMap<_, _>>().into()
    };
    let token = filtering_token("picky:a", leaf("team", "SWE"));
    let request = json!({"channel": "picky:a", "token": token, "tf": leaf("kind", "goal")}).to_string();
    let request = &request[1..request.len() - 1];
    let filter = subscribe_effect(&mut session("42"), request).filter.unwrap();
    assert!(filter.matches(&tags(&[("team", "SWE"), ("kind", "goal")])));
    assert!(!filter.matches(&tags(&[("team", "SWE")])), "the client does not want it");
    assert!(!filter.matches(&tags(&[("kind", "goal")])), "the client must not get it");

    for (channel, filter) in [("open:a", leaf("team", "SWE")), ("picky:a", json!({"key": "team"}))] {
        let token = filtering_token(channel, filter);
        let command = format!(r#""subscribe":{{"channel":"{channel}","token":"{token}"}}"#);
        check(&mut session("42"), &[(&command, "error 107")]);
    }
}

#[test]
fn a_filtered_subscriber_does_not_read_the_history() {
    let mut session = session("42");
    let filter = json!({"key": "team", "cmp": "eq", "val": "SWE"});
    let token = filtering_token("picky-members:a", filter);
    let history = r#""history":{"channel":"picky-members:a"}"#;
    let subscribe = format!(r#""subscribe":{{"channel":"picky-members:a","token":"{token}"}}"#);
    let plain = r#""subscribe":{"channel":"picky-members:a"}"#;
    let leave = r#""unsubscribe":{"channel":"picky-members:a"}"#;
    let ok = r#""subscribe":{}"#;
    check(&mut session, &[(&subscribe, ok), (history, "error 103"), (leave, r#""unsubscribe":{}"#)]);
    check(&mut session, &[(plain, ok), (history, r#""history":{"publications":[],"epoch":"AAAAAAAA","offset":9}"#)]);
}

#[test]
fn users_in_the_name_of_a_channel_may_subscribe() {
    let ok = r#""subscribe":{}"#;
    check(
        &mut session("42"),
        &[
            (r#""subscribe":{"channel":"dialog:a#42,43"}"#, ok),
            (r#""subscribe":{"channel":"dialog:#42"}"#, ok),
            (r#""subscribe":{"channel":"dialog:a#43"}"#, "error 103"),
            (r#""subscribe":{"channel":"dialog:42"}"#, "error 103"),
            (r#""subscribe":{"channel":"$dialog:a#42"}"#, "error 103"),
            (r#""subscribe":{"channel":"closed:a#42"}"#, "error 103"),
            (r#""publish":{"channel":"dialog:a#42,43","data":1}"#, "error 103"),
        ],
    );
    check(&mut session(""), &[(r#""subscribe":{"channel":"dialog:a#"}"#, "error 103")]);
}

#[test]
fn names_and_data_have_the_form_of_their_namespace() {
    let objects = NamespaceOptions { data_format: DataFormat::JsonObject, ..NamespaceOptions::closed() };
    let objects = NamespaceOptions { allow_publish_for_client: true, ..objects };
    let patterns = [("o".to_owned(), crate::TextPattern::new("[a-z]+").unwrap())].into();
    let namespaces = Namespaces::new(objects, [("o".to_owned(), objects)].into()).with_names(10, patterns);
    let mut session = new_session(SessionConfig { namespaces, ..config() });
    run(&mut session, &format!(r#"{{"id":1,"connect":{{"token":"{}"}}}}"#, connection_token("42", None)));
    check(
        &mut session,
        &[
            (r#""publish":{"channel":"o:a","data":{"b":1}}"#, r#""publish":{}"#),
            (r#""publish":{"channel":"o:a","data": {} }"#, r#""publish":{}"#),
            (r#""publish":{"channel":"o:a","data":[{}]}"#, "error 107"),
            (r#""publish":{"channel":"o:a","data":"{}"}"#, "error 107"),
            (r#""publish":{"channel":"o:a","data":null}"#, "error 107"),
            (r#""publish":{"channel":"o:7","data":{}}"#, "error 107"),
            (r#""history":{"channel":"o:7"}"#, "error 107"),
            (r#""presence":{"channel":"o:7"}"#, "error 107"),
            (r#""subscribe":{"channel":"o:7"}"#, "error 107"),
            (r#""publish":{"channel":"1234567890","data":{}}"#, r#""publish":{}"#),
            (r#""publish":{"channel":"12345678901","data":{}}"#, "error 107"),
        ],
    );
}

#[test]
fn insecure_opens_everything_but_private_channels() {
    let mut session = new_session(SessionConfig { insecure: true, ..config() });
    run(&mut session, r#"{"id":1,"connect":{}}"#);
    check(
        &mut session,
        &[
            (r#""subscribe":{"channel":"closed:a"}"#, r#""subscribe":{}"#),
            (r#""subscribe":{"channel":"$a"}"#, "error 103"),
            (r#""publish":{"channel":"closed:a","data":1}"#, r#""publish":{}"#),
            (r#""history":{"channel":"closed:a"}"#, "error 108"),
        ],
    );
}

#[test]
fn a_subscription_token_is_for_one_user_channel_and_client() {
    let claims = |client: &str| serde_json::json!({"sub": "42", "channel": "$a", "client": client});
    for (token, expected) in [
        (subscription_token("42", "$a", None), r#""subscribe":{}"#),
        (odd_token(claims(CLIENT)), r#""subscribe":{}"#),
        (odd_token(claims("other")), "cut 3500"),
        (subscription_token("43", "$a", None), "cut 3500"),
        (subscription_token("42", "$b", None), "cut 3500"),
        (subscription_token("42", "$a", Some(0)), "error 109"),
        (odd_token(serde_json::json!({"sub": "42", "channel": "$a", "expire_at": 1000})), "error 110"),
        (connection_token("42", None), "error 103"),
        (subscription_token("42", "$a", Some(60)), r#""subscribe":{"expires":true,"ttl":60}"#),
    ] {
        check(&mut session("42"), &[(&format!(r#""subscribe":{{"channel":"$a","token":"{token}"}}"#), expected)]);
    }
}

/// A private channel is only for clients that a token has let in, even if the namespace allows everything to everybody.
#[test]
fn a_private_channel_is_closed_to_whoever_is_not_subscribed() {
    let uses = [
        r#""publish":{"channel":"$public:a","data":1}"#,
        r#""history":{"channel":"$public:a"}"#,
        r#""presence":{"channel":"$public:a"}"#,
        r#""presence_stats":{"channel":"$public:a"}"#,
    ];
    let token = subscription_token("42", "$public:a", None);
    let subscribe = format!(r#""subscribe":{{"channel":"$public:a","token":"{token}"}}"#);
    for insecure in [false, true] {
        let mut session = new_session(SessionConfig { insecure, ..config() });
        let connect = format!(r#"{{"id":1,"connect":{{"token":"{}"}}}}"#, connection_token("42", None));
        run(&mut session, &connect);
        check(&mut session, &uses.map(|command| (command, "error 103")));
        check(&mut session, &[(&subscribe, r#""subscribe":{}"#)]);
        for command in uses {
            let answer = run(&mut session, &format!(r#"{{"id":5,{command}}}"#));
            assert!(!answer.contains("error"), "{command}: {answer}");
        }
        check(&mut session, &[(r#""unsubscribe":{"channel":"$public:a"}"#, r#""unsubscribe":{}"#)]);
        check(&mut session, &uses.map(|command| (command, "error 103")));
    }
}

#[test]
fn a_tokens_info_data_and_overrides_take_effect() {
    let mut session = session("42");
    let token = odd_token(serde_json::json!({
        "sub": "42", "channel": "members:a", "info": {"seat": 7}, "data": "hi",
        "override": {"presence": {"value": false}, "force_recovery": {"value": true}},
    }));
    let effect = subscribe_effect(&mut session, &format!(r#""channel":"members:a","token":"{token}""#));
    assert!(effect.presence.is_none() && effect.positioned);
    let reply =
        session.on_subscribed(effect.ticket, Ok(Subscribed { top: Some(top(9)), recovered: None }), NOW).unwrap();
    assert_eq!(
        String::from_utf8(reply).unwrap(),
        r#"{"id":5,"subscribe":{"recoverable":true,"epoch":"AAAAAAAA","offset":9,"positioned":true,"data":"hi"}}"#
    );
    assert_eq!(session.info(&channel("members:a")).chan_info, Some(Json::parse(br#"{"seat":7}"#).unwrap()));
    assert_eq!(session.info(&channel("members:b")).chan_info, None);
    let effect = subscribe_effect(&mut session, r#""channel":"members:b""#);
    assert_eq!(effect.presence, Some(session.info(&channel("members:b"))));
}

#[test]
fn positions_are_granted_when_forced_or_asked_for_and_allowed() {
    let (none, positioned, both) = ((false, false), (true, false), (true, true));
    for (request, expected) in [
        (r#""channel":"open:a""#, none),
        (r#""channel":"open:a","recoverable":true,"positioned":true,"recover":true"#, none),
        (r#""channel":"recovery:a""#, none),
        (r#""channel":"recovery:a","positioned":true"#, positioned),
        (r#""channel":"recovery:a","recoverable":true"#, both),
        (r#""channel":"recovery:a","recover":true"#, both),
        (r#""channel":"members:a","recoverable":true"#, both),
        (r#""channel":"public:a","recoverable":true"#, both),
        (r#""channel":"forced:a""#, both),
        (r#""channel":"forgetful:a","recoverable":true"#, none),
    ] {
        let effect = subscribe_effect(&mut session("42"), request);
        assert_eq!((effect.positioned, effect.ticket.recoverable), expected, "{request}");
    }
}

/// The publications with the offsets 8 and 9.
fn missed() -> [Publication; 2] {
    [8, 9].map(|offset| Publication {
        offset: Offset(offset),
        data: Json::of(&offset),
        info: None,
        tags: Tags::default(),
        receipt: None,
        texts: None,
    })
}

#[test]
fn recovery_echoes_the_requested_offset_and_says_what_came_of_it() {
    let request = r#""channel":"forced:a","recover":true,"offset":7,"epoch":"AAAAAAAA","flag":3"#;
    let missed = missed();
    for (recovered, expected) in [
        (
            Some(&missed[..]),
            r#""epoch":"AAAAAAAA","publications":[{"data":8,"offset":8},{"data":9,"offset":9}],"recovered":true,"offset":7,"positioned":true,"was_recovering":true}}"#,
        ),
        // It wants nothing of what it missed, so no publication would move it on.
        (Some(&[][..]), r#""epoch":"AAAAAAAA","recovered":true,"offset":9,"positioned":true,"was_recovering":true}}"#),
        (None, r#""epoch":"AAAAAAAA","offset":9,"positioned":true,"was_recovering":true}}"#),
    ] {
        let mut session = session("42");
        let effect = subscribe_effect(&mut session, request);
        assert_eq!(effect.recover, Some(crate::ClientPosition { offset: Offset(7), epoch: "AAAAAAAA".to_owned() }));
        assert!(effect.unrecovered_is_error);
        let reply = session.on_subscribed(effect.ticket, Ok(Subscribed { top: Some(top(9)), recovered }), NOW).unwrap();
        assert_eq!(
            String::from_utf8(reply).unwrap(),
            format!(r#"{{"id":5,"subscribe":{{"recoverable":true,{expected}"#)
        );
    }
    // Where recovery is not granted, the client learns that it may have missed something.
    let mut session = session("42");
    let effect = subscribe_effect(&mut session, r#""channel":"open:a","recover":true,"offset":7,"flag":1"#);
    assert!(effect.recover.is_none() && !effect.unrecovered_is_error);
    let reply = session.on_subscribed(effect.ticket, Ok(Subscribed { top: None, recovered: None }), NOW).unwrap();
    assert_eq!(reply, br#"{"id":5,"subscribe":{"was_recovering":true}}"#);
}

#[test]
fn the_latest_publication_is_recovered_at_the_top() {
    let latest = [Publication {
        offset: Offset(9),
        data: Json::of(&9),
        info: None,
        tags: Tags::default(),
        receipt: None,
        texts: None,
    }];
    for (request, is_recovered) in [
        (r#""channel":"cached:a","recover":true,"offset":77,"epoch":"other""#, true),
        (r#""channel":"cached:a""#, false),
        (r#""channel":"state:a","flag":2"#, true),
    ] {
        let mut session = session("42");
        let effect = subscribe_effect(&mut session, request);
        assert_eq!(effect.recover.is_some(), is_recovered, "{request}");
        assert!(!effect.unrecovered_is_error, "who did not ask for recovery is not refused");
        let recovered = is_recovered.then_some(&latest[..]);
        let reply = session.on_subscribed(effect.ticket, Ok(Subscribed { top: Some(top(9)), recovered }), NOW).unwrap();
        let reply = String::from_utf8(reply).unwrap();
        assert!(reply.contains(r#""offset":9,"positioned":true"#), "{reply}");
        assert_eq!(reply.contains(r#""was_recovering":true"#), is_recovered, "{reply}");
        assert_eq!(reply.contains(r#""recovered":true"#), is_recovered, "{reply}");
    }
}

#[test]
fn a_failed_subscribe_leaves_nothing_behind() {
    let mut session = session("42");
    let effect = subscribe_effect(&mut session, r#""channel":"open:a""#);
    let reply = session.on_subscribed(effect.ticket, Err(ErrorCode::UnrecoverablePosition), NOW).unwrap();
    assert!(reply.starts_with(br#"{"id":5,"error":{"code":112,"#));
    assert_eq!(session.channels().len(), 0);
}

#[test]
fn permissions_depend_on_being_a_client_a_subscriber_or_anonymous() {
    let history = r#""history":{"publications":[],"epoch":"AAAAAAAA","offset":9}"#;
    let stats = r#""presence_stats":{"num_clients":2,"num_users":1}"#;
    check(
        &mut session("42"),
        &[
            (r#""publish":{"channel":"public:a","data":1}"#, r#""publish":{}"#),
            (r#""publish":{"channel":"public:a"}"#, "error 107"),
            (r#""publish":{"channel":"public:a","data":null}"#, r#""publish":{}"#),
            (r#""publish":{"channel":"public:a","data":1,"type":1}"#, "error 103"),
            (r#""publish":{"channel":"nowhere:a","data":1}"#, "error 102"),
            (r#""publish":{"channel":"public:a#7","data":1}"#, "error 103"),
            (r#""publish":{"channel":"members:a","data":1}"#, "error 103"),
            (r#""history":{"channel":"members:a"}"#, "error 103"),
            (r#""presence":{"channel":"members:a"}"#, "error 103"),
            (r#""presence_stats":{"channel":"members:a"}"#, "error 103"),
            (r#""subscribe":{"channel":"members:a"}"#, r#""subscribe":{}"#),
            (r#""publish":{"channel":"members:a","data":1}"#, r#""publish":{}"#),
            (r#""history":{"channel":"members:a"}"#, history),
            (r#""presence":{"channel":"members:a"}"#, r#""presence":{"presence":{}}"#),
            (r#""presence_stats":{"channel":"members:a"}"#, stats),
            (r#""unsubscribe":{"channel":"members:a"}"#, r#""unsubscribe":{}"#),
            (r#""publish":{"channel":"members:a","data":1}"#, "error 103"),
            (r#""presence":{"channel":"open:a"}"#, "error 108"),
            (r#""presence_stats":{"channel":"nowhere:a"}"#, "error 102"),
            (r#""history":{"channel":"closed:a"}"#, "error 108"),
            (r#""history":{"channel":"public:a","reverse":true,"since":{"epoch":"AAAAAAAA"}}"#, "error 107"),
        ],
    );
    check(
        &mut session(""),
        &[
            (r#""publish":{"channel":"public:a","data":1}"#, r#""publish":{}"#),
            (r#""history":{"channel":"public:a"}"#, history),
            (r#""presence_stats":{"channel":"public:a"}"#, stats),
            (r#""subscribe":{"channel":"members:a"}"#, r#""subscribe":{}"#),
            (r#""publish":{"channel":"members:a","data":1}"#, "error 103"),
        ],
    );
}

#[test]
fn a_history_request_is_bounded() {
    for (limit, expected) in [(0, 0), (5, 5), (300, 300), (301, 300), (-1, 300), (i32::MIN, 300)] {
        let command = format!(r#"{{"id":5,"history":{{"channel":"public:a","limit":{limit}}}}}"#);
        match session("42").handle(parse_frame(Format::Json, command.as_bytes()).next().unwrap().unwrap(), NOW) {
            Effect::History { limit, since: None, reverse: false, .. } => assert_eq!(limit, expected),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_connection_lasts_as_long_as_it_is_refreshed() {
    let mut session = new_session(config());
    run(&mut session, &format!(r#"{{"id":1,"connect":{{"token":"{}"}}}}"#, connection_token("42", Some(60))));
    assert_eq!(session.deadline(), Some(at(85)));
    let refresh = |token: &str| format!(r#"{{"id":2,"refresh":{{"token":"{token}"}}}}"#);
    assert_eq!(
        run_at(&mut session, &refresh(&connection_token("42", Some(100))), at(70)),
        r#"{"id":2,"refresh":{"expires":true,"ttl":30}}"#
    );
    assert_eq!(session.poll_expired(Timestamp(at(125).0 - 1)), None);
    assert_eq!(session.poll_expired(at(125)), Some(Expired::Connection(Disconnect::EXPIRED)));
    assert_eq!(session.poll_expired(at(125)), None);
    assert_eq!(run(&mut session, r#"{"id":3,"rpc":{}}"#), "nothing");
}

#[test]
fn refresh_wants_a_good_token_of_the_same_user() {
    for (user, token, expected) in [
        ("42", connection_token("42", None), r#""refresh":{}"#),
        ("42", connection_token("43", None), "cut 3500"),
        ("42", "forged".to_owned(), "cut 3500"),
        ("42", connection_token("42", Some(0)), "cut 3005"),
        ("42", odd_token(serde_json::json!({"sub": "42", "expire_at": 1})), "cut 3005"),
        ("42", odd_token(serde_json::json!({"sub": "42", "channels": ["a"]})), "cut 3010"),
        ("", connection_token("", None), "cut 3501"),
    ] {
        check(&mut session(user), &[(&format!(r#""refresh":{{"token":"{token}"}}"#), expected)]);
    }
}

#[test]
fn a_subscription_lasts_as_long_as_it_is_refreshed() {
    let mut session = session("42");
    let sub_refresh = |token: &str| format!(r#""sub_refresh":{{"channel":"$a","token":"{token}"}}"#);
    let token = |seconds| subscription_token("42", "$a", Some(seconds));
    let subscribe = format!(r#""subscribe":{{"channel":"$a","token":"{}"}}"#, token(60));
    check(
        &mut session,
        &[
            (&sub_refresh(&token(60)), "error 103"),
            (&subscribe, r#""subscribe":{"expires":true,"ttl":60}"#),
            (&sub_refresh(""), "error 107"),
            (&sub_refresh(&token(0)), "error 109"),
            (&sub_refresh(&token(100)), r#""sub_refresh":{"expires":true,"ttl":100}"#),
        ],
    );
    assert_eq!(session.deadline(), Some(at(125)));
    assert_eq!(session.poll_expired(at(124)), None);
    let push = br#"{"push":{"channel":"$a","unsubscribe":{"code":2501,"reason":"subscription expired"}}}"#.to_vec();
    assert_eq!(session.poll_expired(at(125)), Some(Expired::Subscription { channel: channel("$a"), push }));
    assert_eq!((session.poll_expired(at(125)), session.deadline(), session.channels().len()), (None, None, 0));
    assert!(session.is_connected());

    check(
        &mut session,
        &[
            (&subscribe, r#""subscribe":{"expires":true,"ttl":60}"#),
            (&sub_refresh(&subscription_token("43", "$a", None)), "cut 3500"),
        ],
    );
}

#[test]
fn the_server_may_end_a_subscription() {
    let mut session = session("42");
    check(&mut session, &[(r#""subscribe":{"channel":"open:a"}"#, r#""subscribe":{}"#)]);
    let push = session.end_subscription(&channel("open:a"), &Unsubscribe::SERVER).unwrap();
    assert_eq!(push, br#"{"push":{"channel":"open:a","unsubscribe":{"code":2000,"reason":"server unsubscribe"}}}"#);
    assert_eq!(session.end_subscription(&channel("open:a"), &Unsubscribe::SERVER), None);
}

#[test]
fn an_idle_session_is_small() {
    assert!(size_of::<Session>() <= 144, "{}", size_of::<Session>());
    assert!(size_of::<Subscription>() <= 32, "{}", size_of::<Subscription>());
}
