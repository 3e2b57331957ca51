//! Conversations in which a hook decides: what it is asked, and what its answer means for the client.

use tidings_types::Transport;

use super::*;
use crate::{HOOK_HEADER_BYTES_MAX, HookAnswer, HookCall, parse_connect};

/// The body of a question, without what is the same in all of this test's questions.
pub(super) fn asked(call: &HookCall) -> String {
    let body = String::from_utf8(call.body(true)).unwrap();
    let common = format!(r#"{{"client":"{CLIENT}","transport":"websocket","protocol":"json","encoding":"json""#);
    let own = body.strip_prefix(&common).expect("what all questions begin with").trim_start_matches(',');
    format!("{} {{{own}", call.question.kind())
}

fn hooks() -> SessionConfig {
    let rpc_namespaces = [("chat".to_owned(), HookId(2))].into();
    let headers = vec!["cookie".into(), "x-real-ip".into()];
    SessionConfig {
        hooks: SessionHooks { rpc: Some(HookId(1)), rpc_namespaces, headers, ..SessionHooks::default() },
        ..config()
    }
}

fn connected(config: SessionConfig, connect: &str) -> Session {
    let mut session = new_session(config);
    run(&mut session, &format!(r#"{{"id":1,"connect":{connect}}}"#));
    session
}

/// A session of the user 42 that has asked a hook.
fn asking(config: SessionConfig, command: &str) -> (Session, HookCall, Asked) {
    let mut session = connected(config, &format!(r#"{{"token":"{}"}}"#, connection_token("42", None)));
    let (call, asked) = ask(&mut session, command);
    (session, call, asked)
}

fn ask(session: &mut Session, command: &str) -> (HookCall, Asked) {
    let command = format!(r#"{{"id":5,{command}}}"#);
    match session.handle(parse_frame(Format::Json, command.as_bytes()).next().unwrap().unwrap(), NOW) {
        Effect::Hook { call, asked } => (*call, *asked),
        other => panic!("{command}: {other:?}"),
    }
}

/// What the client is told when the hook answers so.
fn told(session: &mut Session, asked: Asked, answer: &str) -> String {
    let effect = session.on_hook(asked, HookAnswer::read(answer.as_bytes()).expect(answer), NOW);
    perform(session, effect, NOW)
}

const RPC: &str = r#""rpc":{"method":"greet","data":{"name":"Ada"}}"#;

#[test]
fn an_rpc_is_asked_of_the_hook_of_its_namespace() {
    let (_, call, _) = asking(hooks(), RPC);
    assert_eq!((call.hook, &*asked(&call)), (HookId(1), r#"rpc {"user":"42","method":"greet","data":{"name":"Ada"}}"#));
    let (_, call, _) = asking(hooks(), r#""rpc":{"method":"chat:say"}"#);
    assert_eq!((call.hook, &*asked(&call)), (HookId(2), r#"rpc {"user":"42","method":"chat:say"}"#));
    let mut session = connected(hooks(), "{}");
    check(
        &mut session,
        &[
            (r#""rpc":{}"#, "hook rpc {}"),
            (r#""rpc":{"method":"other:say"}"#, "error 104"),
            (
                r#""rpc":{"method":"tidings.visible","data":{"visible":false}}"#,
                r#""rpc":{"data":{"device":null,"ttl":0}}"#,
            ),
        ],
    );
    let only_named = SessionHooks { rpc: None, ..hooks().hooks };
    let mut session = connected(SessionConfig { hooks: only_named, ..config() }, "{}");
    check(&mut session, &[(RPC, "error 108"), (r#""rpc":{"method":"other:say"}"#, "error 104")]);
}

#[test]
fn of_an_answer_disconnect_wins_then_error() {
    for (answer, expected) in [
        (r#"{"result":{"data":[1]}}"#, r#"{"id":5,"rpc":{"data":[1]}}"#),
        (r#"{"result":{"b64data":"WzJd","data":[1]}}"#, r#"{"id":5,"rpc":{"data":[2]}}"#),
        (r#"{"result":{"data":null,"later":[]}}"#, r#"{"id":5,"rpc":{}}"#),
        ("{}", r#"{"id":5,"rpc":{}}"#),
        (
            r#"{"result":{"data":1},"error":{"code":1001,"message":"no","temporary":true}}"#,
            r#"{"id":5,"error":{"code":1001,"message":"no","temporary":true}}"#,
        ),
        (r#"{"error":{"code":400},"disconnect":{"code":4500,"reason":"go"},"result":{}}"#, "cut 4500"),
        (r#"{"disconnect":{"code":7}}"#, "cut 3503"),
    ] {
        let (mut session, _, asked) = asking(hooks(), RPC);
        assert_eq!(told(&mut session, asked, answer), expected, "{answer}");
        assert_eq!(session.is_connected(), !expected.starts_with("cut"));
    }
}

#[test]
fn without_an_answer_the_client_gets_an_error() {
    let (mut session, _, asked) = asking(hooks(), RPC);
    let effect = session.on_hook(asked, HookAnswer::Failed(ErrorCode::Internal), NOW);
    let expected = r#"{"id":5,"error":{"code":100,"message":"internal server error","temporary":true}}"#;
    assert_eq!(perform(&mut session, effect, NOW), expected);
    assert!(session.is_connected());
}

#[test]
fn an_answer_that_comes_after_the_end_is_dropped() {
    let (mut session, _, asked) = asking(hooks(), RPC);
    session.close();
    assert_eq!(told(&mut session, asked, r#"{"disconnect":{"code":4500}}"#), "nothing");
}

#[test]
fn hooks_get_the_listed_headers_and_those_of_the_request_win() {
    let mut session = new_session(hooks());
    session.set_headers([("x-real-ip".into(), "1.2.3.4".into())].into());
    let headers = r#"{"Cookie":"c=1","X-Real-IP":"6.6.6.6","Authorization":"a"}"#;
    run(&mut session, &format!(r#"{{"id":1,"connect":{{"headers":{headers}}}}}"#));
    let (call, _asked) = ask(&mut session, RPC);
    let found: Vec<(&str, &str)> =
        call.headers.as_ref().unwrap().iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(found, [("x-real-ip", "1.2.3.4"), ("cookie", "c=1")]);
    assert!(!format!("{call:?}").contains("c=1"));
}

#[test]
fn headers_that_are_kept_are_bounded() {
    for (bytes, expected) in [(HOOK_HEADER_BYTES_MAX - 6, true), (HOOK_HEADER_BYTES_MAX - 5, false)] {
        let mut session = new_session(hooks());
        let connect = format!(r#"{{"id":1,"connect":{{"headers":{{"cookie":"{}","other":"x"}}}}}}"#, "c".repeat(bytes));
        assert_eq!(run(&mut session, &connect) != "cut 3501", expected);
    }
}

/// A server whose hook decides on clients without a token.
pub(super) fn admitting(allow_anonymous: bool) -> SessionConfig {
    let hooks = SessionHooks { connect: Some(HookId(7)), headers: vec!["cookie".into()], ..SessionHooks::default() };
    SessionConfig { hooks, allow_anonymous, ..config() }
}

/// What a client with this connect command is told when the hook answers so.
pub(super) fn let_in(config: SessionConfig, connect: &str, answer: &str) -> (Session, String) {
    let mut session = new_session(config);
    let (_, asked) = ask(&mut session, &format!(r#""connect":{connect}"#));
    let told = told(&mut session, asked, answer);
    (session, told)
}

#[test]
fn a_hook_is_asked_who_a_client_without_a_token_is() {
    let mut session = new_session(admitting(true));
    let connect = r#""connect":{"data":{"key":7},"name":"app","version":"2","subs":{"open:a":{},"b":{}},"headers":{"Cookie":"c=1"}}"#;
    let (call, _asked) = ask(&mut session, connect);
    let question = r#"connect {"data":{"key":7},"name":"app","version":"2","channels":["open:a","b"]}"#;
    assert_eq!((call.hook, &*asked(&call)), (HookId(7), question));
    assert_eq!(&*call.headers.unwrap()[0].1, "c=1");
    assert!(!session.is_connected());
    assert_eq!(run(&mut session, r#"{"id":2,"connect":{}}"#), "cut 3501", "the answer comes first");

    let (call, _asked) = ask(&mut new_session(admitting(false)), r#""connect":{}"#);
    assert_eq!(asked(&call), "connect {}");
    for (token, expected) in [(&*connection_token("42", None), "client"), ("forged", "cut 3500")] {
        let command = format!(r#"{{"id":1,"connect":{{"token":"{token}"}}}}"#);
        let keyless = SessionConfig { token_verifier: None, ..admitting(true) };
        assert!(run(&mut new_session(admitting(false)), &command).contains(expected), "the server checks tokens");
        assert_eq!(run(&mut new_session(keyless), &command), "cut 3500", "also if it has no key");
    }
}

#[test]
fn a_hook_says_who_the_client_is_and_what_it_gets() {
    let answer = r#"{"result":{"user":"42","info":{"name":"Ada"},"b64data":"WzFd","meta":{"plan":"gold"},"expire_at":1060,
        "channels":["closed:a","$b"],"subs":{"closed:a":{"info":"seat","data":"hi"}},"caps":[{"channels":["*"],"match":"wildcard"}]}}"#;
    let (session, told) = let_in(admitting(false), r#"{"subs":{"open:a":{}}}"#, answer);
    assert!(told.contains(r#""expires":true,"ttl":60,"data":[1],"subs":{"$b":{},"closed:a":{"data":"hi"}}"#), "{told}");
    let info = session.info(&channel("closed:a"));
    assert_eq!((&*info.user, info.conn_info.unwrap().as_str()), ("42", r#"{"name":"Ada"}"#));
    assert_eq!(info.chan_info, Some(Json::of(&"seat")));
    assert_eq!(session.expires_at(), Some(at(60)));

    let (session, told) = let_in(admitting(false), "{}", r#"{"result":{}}"#);
    assert!(told.contains("client") && session.user().is_empty(), "an anonymous client, as the hook wants it");
}

#[test]
fn a_client_that_the_hook_does_not_let_in_is_refused() {
    let many = r#"{"result":{"channels":["a","b","c","d"]}}"#;
    for (answer, expected, after) in [
        ("{}", "cut 3501", "nothing"),
        (
            r#"{"error":{"code":401,"message":"who are you"}}"#,
            r#"{"id":5,"error":{"code":401,"message":"who are you"}}"#,
            "cut 3501",
        ),
        (r#"{"disconnect":{"code":4501,"reason":"no"}}"#, "cut 4501", "nothing"),
        (r#"{"result":{"expire_at":999}}"#, r#"{"id":5,"error":{"code":110,"message":"expired"}}"#, "cut 3501"),
        (
            r#"{"result":{"channels":["nowhere:a"]}}"#,
            r#"{"id":5,"error":{"code":102,"message":"unknown channel"}}"#,
            "cut 3501",
        ),
        (many, "cut 3505", "nothing"),
    ] {
        let (mut session, told) = let_in(admitting(false), "{}", answer);
        assert_eq!(told, expected, "{answer}");
        assert!(!session.is_connected() && session.channels().len() == 0);
        assert_eq!(run(&mut session, r#"{"id":2,"connect":{}}"#), after, "{answer}");
    }
    let mut session = new_session(admitting(true));
    let (_, asked) = ask(&mut session, r#""connect":{}"#);
    let effect = session.on_hook(asked, HookAnswer::Failed(ErrorCode::TooManyRequests), NOW);
    let Effect::Refused(reply) = effect else { panic!("{effect:?}") };
    assert!(String::from_utf8(reply).unwrap().contains(r#""code":111,"#), "also where anonymous clients may connect");

    let mut session = new_session(admitting(true));
    let (_, asked) = ask(&mut session, r#""connect":{}"#);
    session.close();
    assert_eq!(self::told(&mut session, asked, r#"{"result":{"user":"42"}}"#), "nothing");
    assert!(session.user().is_empty());
}

#[test]
fn without_a_result_the_settings_decide() {
    let (session, told) = let_in(admitting(true), r#"{"subs":{"open:a":{}}}"#, "{}");
    assert!(told.contains(r#""subs":{"open:a":{}}"#) && session.user().is_empty(), "{told}");
}

#[test]
fn a_hook_decides_on_clients_that_only_listen() {
    for (answer, expected) in [
        (r#"{"result":{"user":"42"}}"#, r#"{"connect":{"client":"#),
        (r#"{"error":{"code":401,"message":"no"}}"#, "cut 3004"),
        (r#"{"disconnect":{"code":4501}}"#, "cut 4501"),
        ("{}", "cut 3501"),
    ] {
        let variant = Variant { transport: Transport::UniSse, format: Format::Json };
        let mut session = Session::new(Arc::new(admitting(false)), ClientId::from_random(7), variant);
        let effect = session.handle(parse_connect(br#"{"data":7}"#).unwrap(), NOW);
        let Effect::Hook { call, asked } = effect else { panic!("{effect:?}") };
        let question: serde_json::Value = serde_json::from_slice(&call.body(true)).unwrap();
        assert_eq!((&question["transport"], &question["data"]), (&"uni_sse".into(), &7.into()));
        let told = told(&mut session, *asked, answer);
        assert!(told.starts_with(expected), "{answer}: {told}");
    }
}

#[test]
fn a_hook_proves_no_device() {
    let connect = r#"{"data":{"tidings":{"device":"phone-1"}}}"#;
    let (session, _) = let_in(admitting(false), connect, r#"{"result":{"user":"42","device":"phone-1"}}"#);
    assert_eq!(session.device(), None);
}

/// The connection of a user whom a hook has named goes on by a token, or by the refresh hook.
#[test]
fn a_connection_that_a_hook_let_in_is_refreshed() {
    let answer = r#"{"result":{"user":"42","expire_at":1060,"meta":"m","channels":["closed:a"]}}"#;
    for (user, expected) in [("42", r#""refresh":{"expires":true,"ttl":600}"#), ("7", "cut 3500")] {
        let (mut session, _) = let_in(admitting(false), "{}", answer);
        check(
            &mut session,
            &[(&format!(r#""refresh":{{"token":"{}"}}"#, connection_token(user, Some(600))), expected)],
        );
    }
    let hooks = SessionHooks { refresh: Some(HookId(5)), ..admitting(false).hooks };
    let (mut session, told) = let_in(SessionConfig { hooks, ..admitting(false) }, "{}", answer);
    assert!(!told.contains("expires"), "{told}");
    refreshed(&mut session, r#"refresh {"user":"42","meta":"m"}"#, r#"{"result":{"expire_at":1100}}"#, at(60));
    assert_eq!(session.expires_at(), Some(at(100)));
}

const PUBLISH: &str = r#""publish":{"channel":"decided:a","data":{"text":"hi"}}"#;

/// What is published when the hook answers so, or what the client is told.
fn published(command: &str, answer: &str) -> String {
    let (mut session, _, asked) = asking(config(), command);
    match session.on_hook(asked, HookAnswer::read(answer.as_bytes()).unwrap(), NOW) {
        Effect::Publish { data, tags, skip_history, info, .. } => {
            let tags: Vec<_> = tags.iter().collect();
            format!("{} {tags:?} {skip_history} by {}", data.as_str(), info.user)
        }
        other => perform(&mut session, other, NOW),
    }
}

#[test]
fn a_hook_decides_what_is_published() {
    let (_, call, _) = asking(config(), PUBLISH);
    let question = r#"publish {"user":"42","channel":"decided:a","data":{"text":"hi"}}"#;
    assert_eq!((call.hook, &*asked(&call)), (HookId(4), question));
    for (answer, expected) in [
        ("{}", r#"{"text":"hi"} [] false by 42"#),
        (
            r#"{"result":{"data":"clean","tags":{"kind":"chat"},"skip_history":true}}"#,
            r#""clean" [("kind", "chat")] true by 42"#,
        ),
        (r#"{"error":{"code":1000,"message":"rude"}}"#, r#"{"id":5,"error":{"code":1000,"message":"rude"}}"#),
        (r#"{"disconnect":{"code":4501,"reason":"rude"}}"#, "cut 4501"),
    ] {
        assert_eq!(published(PUBLISH, answer), expected, "{answer}");
    }
    let kept = r#""publish":{"channel":"decided-durable:a","data":1}"#;
    assert_eq!(published(kept, "{}"), "1 [] false by 42");
    assert!(published(kept, r#"{"result":{"skip_history":true}}"#).contains(r#""code":108"#));
}

#[test]
fn a_hook_is_not_asked_about_channels_that_are_for_others() {
    let mut session = connected(config(), "{}");
    check(
        &mut session,
        &[
            (r#""publish":{"channel":"$decided:a","data":1}"#, "error 103"),
            (r#""publish":{"channel":"decided:a#7","data":1}"#, "error 103"),
            (r#""publish":{"channel":"decided:a"}"#, "error 107"),
            (r#""subscribe":{"channel":"$decided:a"}"#, "error 103"),
            (r#""subscribe":{"channel":"decided:a#7"}"#, "error 103"),
            (r#""subscribe":{"channel":"nowhere:a"}"#, "error 102"),
        ],
    );
}

const SUBSCRIBE: &str = r#""subscribe":{"channel":"decided:a","data":{"ticket":7}}"#;

#[test]
fn a_hook_decides_who_subscribes() {
    let (_, call, _) = asking(config(), SUBSCRIBE);
    let question = r#"subscribe {"user":"42","channel":"decided:a","data":{"ticket":7}}"#;
    assert_eq!((call.hook, &*asked(&call)), (HookId(3), question));
    for (answer, expected) in [
        ("{}", r#"{"id":5,"subscribe":{}}"#),
        (
            r#"{"result":{"data":"hi","expire_at":1060,"override":{"force_recovery":{"value":true}}}}"#,
            r#"{"id":5,"subscribe":{"recoverable":true,"epoch":"AAAAAAAA","offset":9,"positioned":true,"data":"hi"}}"#,
        ),
        (r#"{"result":{"expire_at":999}}"#, r#"{"id":5,"error":{"code":110,"message":"expired"}}"#),
        (r#"{"error":{"code":403,"message":"no ticket"}}"#, r#"{"id":5,"error":{"code":403,"message":"no ticket"}}"#),
        (r#"{"disconnect":{"code":4501}}"#, "cut 4501"),
    ] {
        let (mut session, _, asked) = asking(config(), SUBSCRIBE);
        assert_eq!(told(&mut session, asked, answer), expected, "{answer}");
        let is_subscribed = expected.contains("subscribe");
        assert_eq!(session.channels().len(), usize::from(is_subscribed), "{answer}");
    }
    let (mut session, _, asked) = asking(config(), r#""subscribe":{"channel":"decided-durable:a"}"#);
    let refreshed_by_the_client = r#"{"id":5,"subscribe":{"expires":true,"ttl":60}}"#;
    assert_eq!(told(&mut session, asked, r#"{"result":{"expire_at":1060}}"#), refreshed_by_the_client);
    let (mut session, _, asked) = asking(config(), SUBSCRIBE);
    told(&mut session, asked, r#"{"result":{"info":{"seat":3}}}"#);
    assert_eq!(session.info(&channel("decided:a")).chan_info, Some(Json::parse(br#"{"seat":3}"#).unwrap()));
}

/// With a secret the server judges tokens by itself; without one the hook does.
#[test]
fn a_subscription_token_goes_to_the_hook_only_if_the_server_cannot_judge_it() {
    let token = subscription_token("42", "decided:a", None);
    let command = format!(r#""subscribe":{{"channel":"decided:a","token":"{token}"}}"#);
    let mut session = connected(config(), &format!(r#"{{"token":"{}"}}"#, connection_token("42", None)));
    check(&mut session, &[(&command, r#""subscribe":{}"#)]);
    let mut session = connected(SessionConfig { token_verifier: None, ..config() }, "{}");
    let (call, _asked) = ask(&mut session, &command);
    assert_eq!(asked(&call), format!(r#"subscribe {{"channel":"decided:a","token":"{token}"}}"#));
}

#[test]
fn what_changed_while_a_hook_was_asked_is_checked_again() {
    let (mut session, _, asked) = asking(config(), SUBSCRIBE);
    let token = subscription_token("42", "decided:a", None);
    check(
        &mut session,
        &[(&format!(r#""subscribe":{{"channel":"decided:a","token":"{token}"}}"#), r#""subscribe":{}"#)],
    );
    assert!(told(&mut session, asked, "{}").contains(r#""code":105"#));
}

/// A session of the user 42, until second 60, that a hook may extend; with `meta` from its token.
fn refreshable() -> Session {
    let hooks = SessionHooks { refresh: Some(HookId(5)), ..SessionHooks::default() };
    let claims = serde_json::json!({"sub": "42", "expire_at": 1060, "meta": {"plan": "gold"}});
    let mut session = new_session(SessionConfig { hooks, ..config() });
    let connected = run(&mut session, &format!(r#"{{"id":1,"connect":{{"token":"{}"}}}}"#, odd_token(claims)));
    assert!(!connected.contains("expires"), "the client has nothing to refresh: {connected}");
    session
}

/// Asks what is due at `now`, with this answer; what goes to the client, or `nothing`.
fn refreshed(session: &mut Session, question: &str, answer: &str, now: Timestamp) -> String {
    assert!(session.is_refresh_due(now));
    let Some(Effect::Hook { call, asked }) = session.poll_refresh(now) else { panic!("nothing is asked") };
    assert_eq!(self::asked(&call), question);
    assert!(!session.is_refresh_due(now), "it is asked once");
    let answer = if answer.is_empty() { HookAnswer::Failed(ErrorCode::Internal) } else { answer_of(answer) };
    let effect = session.on_hook(*asked, answer, now);
    perform(session, effect, now)
}

fn answer_of(text: &str) -> HookAnswer {
    HookAnswer::read(text.as_bytes()).expect(text)
}

#[test]
fn a_hook_says_whether_a_connection_goes_on() {
    let question = r#"refresh {"user":"42","meta":{"plan":"gold"}}"#;
    for (answer, expected, until) in [
        (r#"{"result":{"expire_at":1100}}"#, "nothing", Some(at(100))),
        (r#"{"result":{}}"#, "nothing", None),
        ("", "nothing", Some(at(60).saturating_add(crate::REFRESH_RETRY))),
        (r#"{"result":{"expired":true,"expire_at":1100}}"#, "cut 3005", None),
        (r#"{"result":{"expire_at":1060}}"#, "cut 3005", None),
        ("{}", "cut 3005", None),
        (r#"{"error":{"code":1}}"#, "cut 3005", None),
        (r#"{"disconnect":{"code":4502}}"#, "cut 4502", None),
    ] {
        let mut session = refreshable();
        assert!(!session.is_refresh_due(Timestamp(at(60).0 - 1)));
        assert_eq!(refreshed(&mut session, question, answer, at(60)), expected, "{answer}");
        assert_eq!(session.is_connected(), expected == "nothing");
        assert!(expected != "nothing" || session.expires_at() == until, "{answer}: {:?}", session.expires_at());
    }
    let mut session = refreshable();
    refreshed(&mut session, question, r#"{"result":{"expire_at":1100,"info":"new","meta":"newer"}}"#, at(60));
    assert_eq!(session.info(&channel("open:a")).conn_info, Some(Json::of(&"new")));
    refreshed(&mut session, r#"refresh {"user":"42","meta":"newer"}"#, r#"{"result":{}}"#, at(100));
    check(&mut session, &[(&format!(r#""refresh":{{"token":"{}"}}"#, connection_token("42", None)), "cut 3501")]);
}

#[test]
fn a_hook_says_whether_a_subscription_goes_on() {
    let subscribed = || {
        let (mut session, _, asked) = asking(config(), SUBSCRIBE);
        let told = told(&mut session, asked, r#"{"result":{"expire_at":1060,"info":1}}"#);
        assert_eq!(told, r#"{"id":5,"subscribe":{}}"#, "the client has nothing to refresh");
        session
    };
    let question = r#"sub_refresh {"user":"42","channel":"decided:a"}"#;
    let push = r#"{"push":{"channel":"decided:a","unsubscribe":{"code":2501,"reason":"subscription expired"}}}"#;
    for (answer, expected) in [
        (r#"{"result":{"expire_at":1100}}"#, "nothing"),
        (r#"{"result":{}}"#, "nothing"),
        ("", "nothing"),
        (r#"{"result":{"expired":true}}"#, push),
        ("{}", push),
        (r#"{"disconnect":{"code":4502}}"#, "cut 4502"),
    ] {
        let mut session = subscribed();
        assert_eq!(refreshed(&mut session, question, answer, at(60)), expected, "{answer}");
        assert_eq!(session.channels().len(), usize::from(expected != push), "{answer}");
    }
    let mut session = subscribed();
    refreshed(&mut session, question, r#"{"result":{"expire_at":1100,"info":2}}"#, at(60));
    assert_eq!(session.info(&channel("decided:a")).chan_info, Some(Json::of(&2)));
    refreshed(&mut session, question, "", at(100));
    assert!(!session.is_refresh_due(at(159)) && session.is_refresh_due(at(160)), "a minute more");
    check(&mut session, &[(r#""sub_refresh":{"channel":"decided:a","token":"t"}"#, "cut 3501")]);
}

#[test]
fn what_a_hook_lets_pass_has_the_format_of_the_channel() {
    let object = NamespaceOptions {
        publish_hook: Some(HookId(4)),
        data_format: DataFormat::JsonObject,
        ..NamespaceOptions::closed()
    };
    let namespaces = Namespaces::new(object, Default::default());
    let config = || SessionConfig { namespaces: namespaces.clone(), ..hooks() };
    let mut session = connected(config(), "{}");
    check(&mut session, &[(r#""publish":{"channel":"a","data":[]}"#, "error 107")]);
    for (answer, expected) in [("{}", r#"{"id":5,"publish":{}}"#), (r#"{"result":{"data":[]}}"#, "107")] {
        let (mut session, _, asked) = asking(config(), r#""publish":{"channel":"a","data":{}}"#);
        let told = told(&mut session, asked, answer);
        assert!(told.contains(expected), "{answer}: {told}");
    }
}

#[test]
fn who_has_left_a_private_channel_meanwhile_publishes_nothing() {
    let config = SessionConfig {
        namespaces: Namespaces::new(
            NamespaceOptions { publish_hook: Some(HookId(4)), ..NamespaceOptions::closed() },
            Default::default(),
        ),
        ..hooks()
    };
    let mut session = connected(config, &format!(r#"{{"token":"{}"}}"#, connection_token("42", None)));
    let token = subscription_token("42", "$a", None);
    run(&mut session, &format!(r#"{{"id":2,"subscribe":{{"channel":"$a","token":"{token}"}}}}"#));
    let (_, asked) = ask(&mut session, r#""publish":{"channel":"$a","data":1}"#);
    assert!(session.end_subscription(&channel("$a"), &Unsubscribe::SERVER).is_some());
    let told = told(&mut session, asked, "{}");
    assert!(told.contains(r#""code":103"#), "{told}");
}

#[test]
fn headers_do_not_show() {
    let mut session = new_session(hooks());
    session.set_headers([("x-real-ip".into(), "hunter1".into())].into());
    let command = r#"{"id":1,"connect":{"headers":{"cookie":"hunter2"},"data":"hunter3"}}"#;
    let command = parse_frame(Format::Json, command.as_bytes()).next().unwrap().unwrap();
    let shown = format!("{command:?}");
    let effect = session.handle(command, NOW);
    let shown = format!("{shown} {effect:?} {session:?}");
    assert!(!shown.contains("hunter"), "{shown}");
}

#[test]
fn a_hook_says_which_publications_a_client_may_get() {
    let picky =
        NamespaceOptions { subscribe_hook: Some(HookId(3)), allow_tags_filter: true, ..NamespaceOptions::closed() };
    let config = SessionConfig { namespaces: Namespaces::new(picky, Default::default()), ..hooks() };
    let (mut session, _, asked) = asking(config, r#""subscribe":{"channel":"a"}"#);
    let answer = br#"{"result":{"tags_filter":{"key":"team","cmp":"eq","val":"SWE"}}}"#;
    match session.on_hook(asked, HookAnswer::read(answer).unwrap(), NOW) {
        Effect::Subscribe(effect) => assert!(!effect.filter.unwrap().matches(&Tags::default())),
        other => panic!("{other:?}"),
    }
}
