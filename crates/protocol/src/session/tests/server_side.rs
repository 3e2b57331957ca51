//! Server-side subscriptions: who asks for them, how `connect` answers, and what ends them.

use serde_json::{Value, json};

use super::*;
use crate::{ClientPosition, SubscriptionTerms};

/// A connect command with these claims, and with the subscriptions that the client names.
fn command(claims: &Value, subs: Value) -> String {
    json!({"id": 1, "connect": {"token": odd_token(claims.clone()), "subs": subs}}).to_string()
}

/// What a client with these claims is told of its subscriptions, or all of another answer.
fn subs(config: SessionConfig, claims: &Value, subs: Value) -> (Session, Value) {
    let mut session = new_session(config);
    let answer = run(&mut session, &command(claims, subs));
    let Ok(mut answer) = serde_json::from_str::<Value>(&answer) else { return (session, json!(answer)) };
    let subs = answer["connect"]["subs"].take();
    (session, if subs.is_null() { answer } else { subs })
}

/// What connecting asks of the driver.
fn effect(session: &mut Session, claims: &Value, subs: Value) -> ConnectEffect {
    match session.handle(parse_frame(Format::Json, command(claims, subs).as_bytes()).next().unwrap().unwrap(), NOW) {
        Effect::Connect(effect) => *effect,
        other => panic!("{other:?}"),
    }
}

fn personal() -> SessionConfig {
    let own = PersonalChannels { namespace: "forced".to_owned(), single_connection: false };
    SessionConfig { personal_channels: Some(own), ..config() }
}

#[test]
fn the_token_the_user_and_the_client_ask_for_them() {
    let forced = json!({"recoverable": true, "epoch": "AAAAAAAA", "offset": 9, "positioned": true});
    for (claims, requested, expected) in [
        (json!({"channels": ["closed:a", "$b"]}), json!({}), json!({"$b": {}, "closed:a": {}})),
        (json!({"sub": "7"}), json!({}), json!({"forced:#7": forced})),
        (json!({"sub": "7", "channels": ["forced:#7"]}), json!({}), json!({"forced:#7": forced})),
        // The client gets what it might subscribe to by itself, and nothing else.
        (json!({}), json!({"open:a": null, "closed:b": {}, "$c": {}, "open:d#7": {}}), json!({"open:a": {}})),
        (json!({"channels": ["open:a"]}), json!({"open:a": {}}), json!({"open:a": {}})),
        (json!({"subs": {"open:a": {"data": [7], "expire_at": 2000}}}), json!({}), json!({"open:a": {"data": [7]}})),
        (
            json!({"subs": {"open:a": {"override": {"force_recovery": {"value": true}}}}}),
            json!({}),
            json!({"open:a": forced}),
        ),
    ] {
        let (session, found) = subs(personal(), &claims, requested);
        assert_eq!(found, expected, "{claims}");
        let made = session.channels().map(|channel| channel.as_str());
        assert!(made.eq(expected.as_object().unwrap().keys()), "{claims}");
    }
}

#[test]
fn the_server_filters_them_where_filters_are_allowed() {
    let filter = json!({"key": "team", "cmp": "eq", "val": "SWE"});
    let claims = |channel: &str| json!({"subs": {channel: {"tags_filter": filter}}});
    let mut session = new_session(config());
    let effect = effect(&mut session, &claims("picky:a"), json!({"picky:a": {"tf": {"key": "x", "cmp": "ex"}}}));
    let filter = effect.subscriptions[0].filter.as_ref().unwrap();
    let tags = |team: &str| -> Tags { std::collections::BTreeMap::from([("team".to_owned(), team.to_owned())]).into() };
    assert_eq!(["SWE", "DEN"].map(|team| filter.matches(&tags(team))), [true, false]);
    let (session, refused) = subs(config(), &claims("open:a"), json!({}));
    assert_eq!((refused["error"]["code"].clone(), session.channels().count()), (json!(107), 0));
}

#[test]
fn one_that_cannot_be_made_fails_the_connect() {
    let many = json!(["a", "b", "c", "d"]);
    for (claims, requested, expected) in [
        (json!({"channels": ["open:a", "nowhere:b"]}), json!({}), "error 102"),
        (json!({"channels": ["é"]}), json!({}), "error 107"),
        (json!({"subs": {"a": {}, "b": {"expire_at": 1000}}}), json!({}), "error 110"),
        (json!({"sub": "7#8"}), json!({}), "error 107"),
        (json!({"sub": "7,8"}), json!({}), "error 107"),
        (json!({"channels": many}), json!({}), "cut 3505"),
        (json!({"sub": "7", "channels": ["a", "b"]}), json!({"c": {}}), "cut 3505"),
        (json!({}), json!({"nowhere:a": {}}), "cut 3501"),
        (json!({}), json!({"": {}}), "cut 3501"),
    ] {
        let (session, found) = subs(personal(), &claims, requested);
        let found = found["error"]["code"]
            .as_u64()
            .map_or(found.as_str().unwrap_or("").to_owned(), |code| format!("error {code}"));
        assert_eq!(found, expected, "{claims}");
        assert_eq!((session.is_connected(), session.channels().len()), (false, 0), "{claims}");
    }
}

#[test]
fn one_that_the_driver_cannot_make_fails_the_connect() {
    let mut session = new_session(config());
    let effect = effect(&mut session, &json!({"channels": ["a"]}), json!({}));
    let effect = session.on_connect_failed(effect.ticket, ErrorCode::TooManyRequests);
    let Effect::Refused(reply) = effect else { panic!("{effect:?}") };
    assert!(reply.starts_with(br#"{"id":1,"error":{"code":111,"#));
    assert_eq!(session.channels().len(), 0);
    assert_eq!(run(&mut session, r#"{"id":2,"connect":{}}"#), "cut 3501");
}

#[test]
fn a_client_resumes_them_when_it_connects() {
    let mut session = new_session(config());
    let position = json!({"recover": true, "offset": 7, "epoch": "AAAAAAAA"});
    let claims = json!({"channels": ["forced:a", "forced:b", "open:c"]});
    let effect = effect(&mut session, &claims, json!({"forced:a": position, "open:c": position}));
    let recover: Vec<_> = effect.subscriptions.iter().map(|effect| effect.recover.clone()).collect();
    assert_eq!(recover, [Some(ClientPosition { offset: Offset(7), epoch: "AAAAAAAA".to_owned() }), None, None]);
    let missed = missed();
    let made = effect.subscriptions.into_iter().map(|effect| {
        let recovered = effect.recover.is_some().then_some(&missed[..]);
        (effect.ticket, Subscribed { top: Some(top(9)), recovered })
    });
    let reply = session.on_connected(effect.ticket, &made.collect::<Vec<_>>(), NOW).unwrap();
    let reply: Value = serde_json::from_slice(&reply).unwrap();
    let recovered = json!({
        "recoverable": true, "epoch": "AAAAAAAA", "publications": [{"data": 8, "offset": 8}, {"data": 9, "offset": 9}],
        "recovered": true, "offset": 7, "positioned": true, "was_recovering": true,
    });
    let new = json!({"recoverable": true, "epoch": "AAAAAAAA", "offset": 9, "positioned": true});
    let plain = json!({"was_recovering": true});
    assert_eq!(reply["connect"]["subs"], json!({"forced:a": recovered, "forced:b": new, "open:c": plain}));
}

#[test]
fn they_count_as_subscriptions_of_the_client() {
    let mut session = new_session(config());
    run(&mut session, &command(&json!({"sub": "7", "channels": ["members:a", "$public:b"]}), json!({})));
    check(
        &mut session,
        &[
            (r#""publish":{"channel":"members:a","data":1}"#, r#""publish":{}"#),
            (r#""presence":{"channel":"$public:b"}"#, r#""presence":{"presence":{}}"#),
            (r#""subscribe":{"channel":"members:a"}"#, "error 105"),
            (r#""subscribe":{"channel":"open:c"}"#, r#""subscribe":{}"#),
            (r#""subscribe":{"channel":"open:d"}"#, "error 106"),
            (r#""unsubscribe":{"channel":"members:a"}"#, r#""unsubscribe":{}"#),
            (r#""publish":{"channel":"members:a","data":1}"#, "error 103"),
            (r#""sub_refresh":{"channel":"$public:b","token":"t"}"#, "cut 3501"),
        ],
    );
}

#[test]
fn one_that_expires_closes_the_connection() {
    let mut session = new_session(config());
    let claims = json!({"subs": {"a": {"expire_at": 1060, "info": "seat"}}});
    run(&mut session, &command(&claims, json!({})));
    assert_eq!(session.info(&channel("a")).chan_info, Some(Json::of(&"seat")));
    assert_eq!(session.deadline(), Some(at(85)));
    assert_eq!(session.poll_expired(at(84)), None);
    assert_eq!(session.poll_expired(at(85)), Some(Expired::Connection(Disconnect::SUBSCRIPTION_EXPIRED)));
    assert_eq!(session.poll_expired(at(85)), None);
}

#[test]
fn a_refresh_grants_the_subscriptions_that_the_connection_has() {
    let refresh = |claims: Value| format!(r#""refresh":{{"token":"{}"}}"#, odd_token(claims));
    for (claims, expected) in [
        (json!({"sub": "7", "channels": ["b", "a"]}), r#""refresh":{}"#),
        (json!({"sub": "7", "subs": {"a": {}, "b": {}}}), r#""refresh":{}"#),
        (json!({"sub": "7", "channels": ["a", "b", "forced:#7"]}), r#""refresh":{}"#),
        (json!({"sub": "7", "channels": ["a"]}), "cut 3010"),
        (json!({"sub": "7"}), "cut 3010"),
        (json!({"sub": "7", "channels": ["a", "b", "c"]}), "cut 3010"),
    ] {
        let mut session = new_session(SessionConfig { channel_count_max: 4, ..personal() });
        run(&mut session, &command(&json!({"sub": "7", "channels": ["a", "b"]}), json!({})));
        check(&mut session, &[(&refresh(claims), expected)]);
    }
    // A subscription of the client is none that the server has granted.
    let mut session = session("7");
    check(
        &mut session,
        &[
            (r#""subscribe":{"channel":"a"}"#, r#""subscribe":{}"#),
            (&refresh(json!({"sub": "7", "channels": ["a"]})), "cut 3010"),
        ],
    );
}

#[test]
fn the_server_subscribes_a_connected_client() {
    let mut session = session("7");
    check(&mut session, &[(r#""subscribe":{"channel":"open:mine"}"#, r#""subscribe":{}"#)]);
    let data = Json::of(&9);
    let missed =
        [Publication { offset: Offset(9), data, info: None, tags: Tags::default(), receipt: None, texts: None }];
    let terms = |info: &str| SubscriptionTerms { info: Some(Json::of(&info)), ..SubscriptionTerms::default() };
    let mut subscribe = |name: &str, info: &str, since| {
        let effect = session.subscribe_by_server(&channel(name), terms(info), since).map(|effect| {
            let Some(effect) = effect else { return String::new() };
            let (top, recover) = (effect.positioned.then(|| top(9)), effect.recover.is_some());
            let started = Subscribed { top, recovered: recover.then_some(&missed[..]) };
            String::from_utf8(session.on_subscribed(effect.ticket, Ok(started), NOW).unwrap()).unwrap()
        });
        (effect, session.info(&channel(name)).chan_info)
    };
    let said = |info: &str| Some(Json::of(&info));
    let plain = r#"{"push":{"channel":"closed:a","subscribe":{}}}"#;
    assert_eq!(subscribe("closed:a", "one", None), (Ok(plain.to_owned()), said("one")));
    assert_eq!(subscribe("closed:a", "two", None), (Ok(String::new()), said("two")), "the new terms hold");
    assert_eq!(subscribe("open:mine", "one", None), (Ok(String::new()), None), "it is the client's");
    let since = ClientPosition { offset: Offset(4), epoch: "AAAAAAAA".to_owned() };
    let resumed = r#"{"push":{"channel":"forced:b","subscribe":{"recoverable":true,"epoch":"AAAAAAAA","offset":4,"positioned":true}}}"#;
    assert_eq!(subscribe("forced:b", "one", Some(since)), (Ok(resumed.to_owned()), said("one")));
    assert_eq!(subscribe("open:c", "", None).0, Err(NotSubscribed::Disconnect(Disconnect::CHANNEL_LIMIT)));
    session.close();
    assert_eq!(session.subscribe_by_server(&channel("open:c"), terms(""), None).unwrap().map(drop), None);
}

#[test]
fn a_subscription_by_the_server_that_fails_tells_nothing() {
    let mut session = session("7");
    let unknown = session.subscribe_by_server(&channel("nowhere:a"), SubscriptionTerms::default(), None);
    assert_eq!(unknown.unwrap_err(), NotSubscribed::Error(ErrorCode::UnknownChannel));
    let effect = session.subscribe_by_server(&channel("open:a"), SubscriptionTerms::default(), None).unwrap().unwrap();
    assert_eq!(session.on_subscribed(effect.ticket, Err(ErrorCode::TooManyRequests), NOW), None);
    assert_eq!((session.channels().len(), session.is_connected()), (0, true));
}

#[test]
fn the_server_refreshes_a_connected_client() {
    let mut session = session("7");
    let push = session.refresh_by_server(Some(at(60)), Some(Json::of(&"new")), NOW).unwrap();
    assert_eq!(push, br#"{"push":{"refresh":{"expires":true,"ttl":60}}}"#);
    assert_eq!((session.deadline(), session.info(&channel("a")).conn_info), (Some(at(85)), Some(Json::of(&"new"))));
    assert_eq!(session.refresh_by_server(None, None, NOW).unwrap(), br#"{"push":{"refresh":{}}}"#);
    assert_eq!((session.deadline(), session.info(&channel("a")).conn_info), (None, Some(Json::of(&"new"))));
}

#[test]
fn where_a_hook_decides_a_client_cannot_name_a_channel_to_be_let_in() {
    let open = NamespaceOptions { allow_subscribe_for_client: true, allow_subscribe_for_anonymous: true, ..closed() };
    let decided = NamespaceOptions { subscribe_hook: Some(HookId(3)), allow_user_limited_channels: true, ..open };
    let named = [("open", open), ("decided", decided)].map(|(name, options)| (name.to_owned(), options));
    let namespaces = Namespaces::new(open, named.into());
    for insecure in [false, true] {
        let config = SessionConfig { namespaces: namespaces.clone(), insecure, ..config() };
        let requested = json!({"open:a": {}, "decided:a": {}, "decided:b#7": {}});
        assert_eq!(subs(config, &json!({"sub": "7"}), requested).1, json!({"open:a": {}}));
    }
    let config = SessionConfig { namespaces, ..config() };
    let granted = json!({"channels": ["decided:a"]});
    assert_eq!(subs(config, &granted, json!({"decided:a": {}})).1, json!({"decided:a": {}}), "a token may");
}

const fn closed() -> NamespaceOptions {
    NamespaceOptions::closed()
}
