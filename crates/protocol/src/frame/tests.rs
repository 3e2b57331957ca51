//! What clients may send: every command word by word, malformed frames, and any bytes at all.

use proptest::prelude::*;
use tidings_types::{JSON_DEPTH_MAX, Json, Offset};

use super::*;
use crate::admission::CONNECT_SUBSCRIPTION_COUNT_MAX;
use crate::command::{ClientPosition, Request};
use crate::filter::UnreadFilter;

fn commands(frame: &str) -> Vec<Result<Command, FrameError>> {
    parse_frame(Format::Json, frame.as_bytes()).collect()
}

fn only(frame: &str) -> Command {
    let mut commands = commands(frame);
    assert_eq!(commands.len(), 1, "{frame}");
    commands.pop().unwrap().unwrap()
}

#[test]
fn every_request_is_recognised() {
    for (frame, expected) in [
        (r#"{"id":1,"connect":{}}"#, "Connect"),
        (r#"{"id":1,"subscribe":{"channel":"a"}}"#, "Subscribe"),
        (r#"{"id":1,"unsubscribe":{"channel":"a"}}"#, "Unsubscribe"),
        (r#"{"id":1,"publish":{"channel":"a","data":1}}"#, "Publish"),
        (r#"{"id":1,"presence":{"channel":"a"}}"#, "Presence {"),
        (r#"{"id":1,"presence_stats":{"channel":"a"}}"#, "PresenceStats"),
        (r#"{"id":1,"history":{"channel":"a"}}"#, "History"),
        (r#"{"id":1,"ping":{}}"#, "Ping"),
        (r#"{"id":1,"rpc":{"method":"m","data":{}}}"#, "Rpc"),
        (r#"{"id":1,"send":{"data":{}}}"#, "Send"),
        (r#"{"send":{"data":{}}}"#, "Send"),
        (r#"{"id":1,"refresh":{"token":"t"}}"#, "Refresh"),
        (r#"{"id":1,"sub_refresh":{"channel":"a","token":"t"}}"#, "SubRefresh"),
        (r#"{}"#, "Pong"),
        (r#"{"subscribe":{"channel":"a"}}"#, "Pong"), // Without an id nothing else is meant.
        (r#"{"id":1,"subscribe":{},"connect":{}}"#, "Connect"), // The first in the protocol's order.
    ] {
        let request = format!("{:?}", only(frame).request);
        assert!(request.starts_with(expected), "{frame} is {request}");
    }
}

#[test]
fn fields_are_read_null_is_absent_and_unknown_ones_are_skipped() {
    let Request::Subscribe(request) = only(
        r#"{"id":7,"new":[{}],"connect":null,"subscribe":{"channel":"a","token":null,"recover":true,"epoch":"e","offset":9,
        "recoverable":true,"flag":3,"type":1,"delta":"fossil","tf":{"op":"and"},"join_leave":true,"future":{"x":[]}}}"#
            .replace('\n', "")
            .as_str(),
    )
    .request
    else {
        panic!("not a subscribe")
    };
    assert!(request.token.is_empty() && request.recover && request.recoverable && !request.positioned);
    assert!(request.join_leave);
    assert_eq!(request.tags_filter, Some(UnreadFilter::Json(Json::of(&serde_json::json!({"op": "and"})))));
    assert_eq!((&*request.channel, &*request.epoch, request.offset), ("a", "e", 9));
    assert_eq!((request.flag, request.kind, &*request.delta), (3, 1, "fossil"));

    let Request::History(request) =
        only(r#"{"id":1,"history":{"channel":"a","limit":-1,"since":{"offset":3},"reverse":true}}"#).request
    else {
        panic!("not a history request")
    };
    assert_eq!((request.limit, request.reverse), (-1, true));
    assert_eq!(request.since, Some(ClientPosition { offset: Offset(3), epoch: String::new() }));

    let Request::Publish(request) = only(r#"{"id":1,"publish":{"channel":"a","data":null}}"#).request else {
        panic!("not a publish")
    };
    assert_eq!(request.data.as_ref().map(Json::as_str), Some("null"));
    let Request::Publish(request) = only(r#"{"id":1,"publish":{"channel":"a"}}"#).request else {
        panic!("not a publish")
    };
    assert_eq!(request.data, None);

    let Request::Connect(request) = only(
        r#"{"id":1,"connect":{"token":"t","data":[ 1],"name":"js","subs":{"a":{"recover":true,"offset":7},"b":null}}}"#,
    )
    .request
    else {
        panic!("not a connect")
    };
    assert_eq!((request.token.as_str(), request.data.as_ref().map(Json::as_str)), ("t", Some("[ 1]")));
    let subscriptions = request.subscriptions.iter().map(|one| (&*one.channel, one.recover, one.offset));
    assert_eq!(subscriptions.collect::<Vec<_>>(), [("a", true, 7), ("b", false, 0)]);

    let Request::Rpc(request) = only(r#"{"id":1,"rpc":{"method":null,"data":{}}}"#).request else {
        panic!("not an rpc")
    };
    assert_eq!((&*request.method, request.data.as_ref().map(Json::as_str)), ("", Some("{}")));
}

#[test]
fn commands_before_a_malformed_one_are_served() {
    for (frame, good, error) in [
        ("", 0, Some(FrameError::Empty)),
        ("\n", 0, Some(FrameError::Empty)),
        ("{}", 1, None),
        ("{}\n", 1, None),
        ("{}\r\n{}", 2, None),
        ("{}\n{}\n{}\n", 3, None),
        ("{}\n\n{}", 1, Some(FrameError::Empty)),
        ("{}\n\n", 1, Some(FrameError::Empty)),
        ("{}\n[]\n{}", 1, Some(FrameError::Malformed { column: 1 })),
        ("[1,null,null,null,null,null,null,null,{},null,null,null,null]", 0, Some(FrameError::Malformed { column: 1 })),
        ("  \n{}", 0, Some(FrameError::Malformed { column: 1 })),
        (r#"{"id":1}"#, 0, Some(FrameError::NoRequest)),
        ("{}\n{\"id\":-1}", 1, Some(FrameError::Malformed { column: 8 })),
        ("{} {}", 0, Some(FrameError::Malformed { column: 4 })),
        ("null", 0, Some(FrameError::Malformed { column: 1 })),
    ] {
        let mut commands = commands(frame);
        let found = commands.pop_if(|last| last.is_err()).map(|last| last.unwrap_err());
        assert_eq!((commands.len(), &found), (good, &error), "{frame:?}");
        assert!(found.is_none_or(|error| error.disconnect() == Disconnect::BAD_REQUEST));
    }
}

#[test]
fn a_frame_has_a_bounded_number_of_commands() {
    let full = "{}\n".repeat(FRAME_COMMAND_COUNT_MAX);
    assert!(commands(&full).iter().all(Result::is_ok));
    let mut over = commands(&(full + "{}\n{}"));
    assert_eq!(over.len(), FRAME_COMMAND_COUNT_MAX + 1);
    assert_eq!(over.pop().unwrap().unwrap_err(), FrameError::TooMany);
}

#[test]
fn a_frame_is_done_after_its_last_command_or_its_first_error() {
    for (frame, count) in [("{}", 1), ("{}\n{}\n", 2), ("{}\nx\n{}", 2), ("", 1)] {
        let mut commands = parse_frame(Format::Json, frame.as_bytes().to_vec());
        for index in 1..=count {
            assert!(!commands.is_done(), "{frame:?} before {index}");
            assert!(commands.next().is_some(), "{frame:?} at {index}");
        }
        assert!(commands.is_done() && commands.next().is_none(), "{frame:?}");
    }
}

#[test]
fn a_connect_names_a_bounded_number_of_subscriptions() {
    for (count, is_read) in [(CONNECT_SUBSCRIPTION_COUNT_MAX, true), (CONNECT_SUBSCRIPTION_COUNT_MAX + 1, false)] {
        let subs: Vec<_> = (0..count).map(|index| format!(r#""{index}":{{}}"#)).collect();
        let frame = format!(r#"{{"id":1,"connect":{{"subs":{{{}}}}}}}"#, subs.join(","));
        assert_eq!(commands(&frame)[0].is_ok(), is_read, "{count}");
        // In Protobuf: field 3 of the connect, an empty message.
        let connect = [0x1A, 0x00].repeat(count);
        let length = |count: usize| [count as u8 | 0x80, (count >> 7) as u8];
        let message = [&[0x08, 1, 0x22][..], &length(connect.len()), &connect].concat();
        let frame = [&length(message.len())[..], &message].concat();
        let read = parse_frame(Format::Protobuf, &frame).next().unwrap();
        assert_eq!(read.is_ok(), is_read, "{count}");
    }
}

#[test]
fn nesting_is_bounded_in_what_is_carried_and_in_what_is_passed_over() {
    let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let frames = |depth: usize| {
        let deep = deep(depth);
        [
            format!(r#"{{"id":1,"publish":{{"channel":"a","data":{deep}}}}}"#),
            format!(r#"{{"id":1,"subscribe":{{"channel":"a","tf":{deep}}}}}"#),
            format!(r#"{{"id":1,"rpc":{{"data":{deep}}}}}"#),
            format!(r#"{{"id":1,"connect":{{"data":{deep},"more":{deep}}}}}"#),
        ]
    };
    for frame in frames(JSON_DEPTH_MAX - 2) {
        only(&frame);
    }
    for depth in [JSON_DEPTH_MAX - 1, 30_000] {
        for frame in frames(depth) {
            let error = commands(&frame)[0].as_ref().unwrap_err().clone();
            assert_eq!(error, FrameError::TooDeep(JsonDepthError { depth: depth + 2 }));
        }
    }
    assert!(commands(&format!(r#"{{"id":1,"connect":{}}}"#, deep(3)))[0].is_err());
}

#[test]
fn tokens_and_payloads_never_show() {
    let shown = format!(
        "{:?}",
        commands(concat!(
            r#"{"id":1,"connect":{"token":"s3cret","data":{"tidings":{"credential":"s3cret"}}}}"#,
            "\n",
            r#"{"id":6,"rpc":{"method":"m","data":"s3cret"}}"#,
            "\n",
            r#"{"id":2,"subscribe":{"channel":"a","token":"s3cret"}}"#,
            "\n",
            r#"{"id":3,"publish":{"channel":"a","data":"s3cret"}}"#,
            "\n",
            r#"{"id":4,"sub_refresh":{"token":"s3cret"}}"#,
            "\n",
            r#"{"id":5,"refresh":{"token":["s3cret"]}}"#
        ))
    );
    assert!(!shown.contains("s3cret"), "{shown}");
}

proptest! {
    #[test]
    fn any_bytes_end_without_a_panic(frame in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(parse_frame(Format::Json, &frame).count() >= 1);
    }

    #[test]
    fn any_json_like_text_ends_without_a_panic(
        frame in r#"(\{"(id|subscribe|publish|history|connect|rpc)":(-?[0-9]{1,12}|null|\{\}|\{"(channel|since|data|offset|method|token)":(1|"a"|null|\{\})\})\}\n?){1,4}"#,
    ) {
        let commands = commands(&frame);
        prop_assert!(commands[..commands.len() - 1].iter().all(Result::is_ok));
    }
}
