//! Conversations in which a hook decides: what it is asked, and what its answer means for the client.

use super::*;
use crate::{HOOK_HEADER_BYTES_MAX, HookAnswer, HookCall};

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
    SessionConfig { hooks: SessionHooks { rpc: Some(HookId(1)), rpc_namespaces, headers, refresh: None }, ..config() }
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
