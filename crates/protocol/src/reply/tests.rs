//! What the server sends, byte by byte: which fields are left out, and that a message is one line.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::Value;
use tidings_types::{Epoch, JournalPosition, Json, Offset, ReceiptPolicy, ReceiptRequest, ReceiptTerms, Transport};

use super::*;
use crate::Tags;

const JSON: Variant = Variant::websocket(Format::Json);
const CLIENT: &str = "00000000-0000-4000-8000-000000000000";

fn client() -> ClientId {
    ClientId::from_random(0)
}

fn info(user: &str) -> ClientInfo {
    ClientInfo { user: user.into(), client: client(), conn_info: None, chan_info: None }
}

fn publication(offset: u64, data: &str) -> Publication {
    Publication {
        offset: Offset(offset),
        data: Json::parse(data.as_bytes()).unwrap(),
        info: None,
        tags: Tags::default(),
        receipt: None,
        texts: None,
    }
}

fn top(offset: u64) -> StreamPosition {
    StreamPosition { offset: Offset(offset), epoch: Epoch::from_random(0) }
}

fn channel() -> ChannelName {
    ChannelName::new("c").unwrap()
}

#[track_caller]
fn check(reply: Reply<'_>, expected: &str) {
    let mut out = Vec::new();
    encode_reply(Format::Json, 5, &reply, &mut out);
    assert_eq!(String::from_utf8(out).unwrap(), format!(r#"{{"id":5,{expected}}}"#));
}

#[track_caller]
fn check_push(push: Push<'_>, expected: &str) {
    let mut out = Vec::new();
    encode_push(JSON, &channel(), &push, &mut out);
    assert_eq!(String::from_utf8(out).unwrap(), format!(r#"{{"push":{{"channel":"c",{expected}}}}}"#));
}

/// What is written of each error. One list makes the match and the array, so a code that is not in it does not compile.
macro_rules! written {
    ($($code:ident: $written:literal,)*) => {
        fn written(code: ErrorCode) -> &'static str {
            match code {
                $(ErrorCode::$code => $written,)*
            }
        }

        const WRITTEN: &[ErrorCode] = &[$(ErrorCode::$code),*];
    };
}

written! {
    Internal: r#"100,"message":"internal server error","temporary":true"#,
    Unauthorized: r#"101,"message":"unauthorized""#,
    UnknownChannel: r#"102,"message":"unknown channel""#,
    PermissionDenied: r#"103,"message":"permission denied""#,
    MethodNotFound: r#"104,"message":"method not found""#,
    AlreadySubscribed: r#"105,"message":"already subscribed""#,
    LimitExceeded: r#"106,"message":"limit exceeded""#,
    BadRequest: r#"107,"message":"bad request""#,
    NotAvailable: r#"108,"message":"not available""#,
    TokenExpired: r#"109,"message":"token expired""#,
    Expired: r#"110,"message":"expired""#,
    TooManyRequests: r#"111,"message":"too many requests","temporary":true"#,
    UnrecoverablePosition: r#"112,"message":"unrecoverable position""#,
}

#[test]
fn every_error_has_its_number_and_text() {
    assert_eq!(ErrorCode::ALL, WRITTEN, "all are in the list of all");
    for code in ErrorCode::ALL {
        check(Reply::Error(code), &format!(r#""error":{{"code":{}}}"#, written(code)));
    }
}

#[test]
fn connect_leaves_out_what_does_not_apply() {
    let forever = ConnectResult {
        client: client(),
        version: "1",
        expiry: ExpiryResult::default(),
        data: None,
        subscriptions: &[],
        ping_interval: Duration::ZERO,
        pong: false,
        name: None,
    };
    check(Reply::Connect(&forever), &format!(r#""connect":{{"client":"{CLIENT}","version":"1"}}"#));
    let (name, data) = (channel(), Json::of(&7));
    let full = ConnectResult {
        expiry: ExpiryResult::until(Some(Timestamp(61_500)), Timestamp(1_000)),
        data: Some(&data),
        subscriptions: &[(&name, SubscribeResult { recoverable: true, ..SubscribeResult::default() })],
        ping_interval: Duration::from_secs(25),
        pong: true,
        name: Some(("n", SessionId { loop_index: 1, secret: 2 })),
        ..forever
    };
    let session = "1-00000000000000000000000000000002";
    check(
        Reply::Connect(&full),
        &format!(
            r#""connect":{{"client":"{CLIENT}","version":"1","expires":true,"ttl":61,"data":7,"subs":{{"c":{{"recoverable":true}}}},"ping":25,"pong":true,"session":"{session}","node":"n"}}"#
        ),
    );
}

#[test]
fn what_has_just_run_out_is_still_said_to_expire() {
    check(
        Reply::Refresh(ExpiryResult::until(Some(Timestamp(5)), Timestamp(5))),
        r#""refresh":{"expires":true,"ttl":1}"#,
    );
    check(
        Reply::SubRefresh(ExpiryResult::until(Some(Timestamp(u64::MAX)), Timestamp(0))),
        r#""sub_refresh":{"expires":true,"ttl":4294967295}"#,
    );
    check(Reply::SubRefresh(ExpiryResult::default()), r#""sub_refresh":{}"#);
}

#[test]
fn subscribe_leaves_out_what_does_not_apply() {
    check(Reply::Subscribe(&SubscribeResult::default()), r#""subscribe":{}"#);
    let data = Json::of(&[1]);
    let full = SubscribeResult {
        expiry: ExpiryResult { ttl: Some(Duration::from_secs(9)) },
        recoverable: true,
        positioned: true,
        position: Some(top(6)),
        was_recovering: true,
        recovered: true,
        publications: &[publication(7, "1"), publication(8, "{}")],
        data: Some(&data),
        has_deltas: false,
        number: 0,
    };
    check(
        Reply::Subscribe(&full),
        concat!(
            r#""subscribe":{"expires":true,"ttl":9,"recoverable":true,"epoch":"AAAAAAAA","#,
            r#""publications":[{"data":1,"offset":7},{"data":{},"offset":8}],"recovered":true,"offset":6,"#,
            r#""positioned":true,"data":[1],"was_recovering":true}"#
        ),
    );
}

#[test]
fn empty_results_and_their_required_fields_stay() {
    check(Reply::Unsubscribe, r#""unsubscribe":{}"#);
    check(Reply::Publish, r#""publish":{}"#);
    check(Reply::Presence(&[]), r#""presence":{"presence":{}}"#);
    check(
        Reply::Presence(&[info("")]),
        &format!(r#""presence":{{"presence":{{"{CLIENT}":{{"user":"","client":"{CLIENT}"}}}}}}"#),
    );
    check(
        Reply::PresenceStats { client_count: 0, user_count: 0 },
        r#""presence_stats":{"num_clients":0,"num_users":0}"#,
    );
    check(
        Reply::History { top: top(0), publications: &[] },
        r#""history":{"publications":[],"epoch":"AAAAAAAA","offset":0}"#,
    );
}

#[test]
fn pushes_carry_channel_and_payload() {
    check_push(Push::Publication(&publication(0, "null")), r#""pub":{"data":null}"#);
    let terms = ReceiptTerms { until: Timestamp(7), every_client: true, policy: ReceiptPolicy::Any };
    let full = Publication {
        info: Some(Arc::new(ClientInfo {
            conn_info: Some(Json::of(&1)),
            chan_info: Some(Json::of(&"x")),
            ..info("u")
        })),
        tags: BTreeMap::from([("event".to_owned(), "e\"1".to_owned())]).into(),
        receipt: Some(ReceiptRequest { event: JournalPosition(7), terms }), // Not the client's business.
        ..publication(7, "{\"a\":\n1}")
    };
    check_push(
        Push::Publication(&full),
        &format!(
            r#""pub":{{"data":{{"a": 1}},"info":{{"user":"u","client":"{CLIENT}","conn_info":1,"chan_info":"x"}},"offset":7,"tags":{{"event":"e\"1"}}}}"#
        ),
    );
    check_push(Push::Join(&info("u")), &format!(r#""join":{{"info":{{"user":"u","client":"{CLIENT}"}}}}"#));
    check_push(Push::Leave(&info("u")), &format!(r#""leave":{{"info":{{"user":"u","client":"{CLIENT}"}}}}"#));
    check_push(
        Push::Unsubscribe(&Unsubscribe::INSUFFICIENT_STATE),
        r#""unsubscribe":{"code":2500,"reason":"insufficient state"}"#,
    );
    let said = |transport| {
        let mut out = Vec::new();
        Disconnect::SHUTDOWN.encode_push(Variant { transport, format: Format::Json }, &mut out);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(said(Transport::Sse), r#"{"push":{"disconnect":{"code":3001,"reason":"shutdown"}}}"#);
    assert_eq!(said(Transport::UniSse), r#"{"disconnect":{"code":3001,"reason":"shutdown"}}"#);
}

proptest! {
    /// Whatever the texts contain, the push is one line, and its values are read back, also through serde's form of the
    /// info.
    #[test]
    fn a_publication_push_is_one_line_that_says_what_was_published(
        user in any::<String>(),
        text in any::<String>(),
        tags in prop::collection::btree_map(any::<String>(), any::<String>(), 0..4),
        offset: u64,
    ) {
        let info = ClientInfo { conn_info: Some(Json::of(&text)), ..info(&user) };
        let publication = Publication {
            offset: Offset(offset),
            data: Json::of(&text),
            info: Some(Arc::new(info.clone())),
            tags: tags.clone().into(),
            receipt: None,
            texts: None,
        };
        let line = encode_publication_push(JSON, &channel(), &publication);
        prop_assert!(!line.contains(&b'\n'));
        let value: Value = serde_json::from_slice(&line).unwrap();
        let pushed = &value["push"]["pub"];
        prop_assert_eq!(pushed["data"].as_str(), Some(&*text));
        prop_assert_eq!(pushed["offset"].as_u64().unwrap_or(0), offset);
        prop_assert_eq!(&pushed["info"], &serde_json::to_value(&info).unwrap());
        let tags_back: BTreeMap<String, String> =
            pushed.get("tags").map(|tags| serde_json::from_value(tags.clone()).unwrap()).unwrap_or_default();
        prop_assert_eq!(pushed.get("tags").is_none(), tags.is_empty());
        prop_assert_eq!(tags_back, tags);
    }
}
