//! Clients that only listen: what they are told when they are let in, and when they are not.

use serde_json::{Value, json};
use tidings_types::Transport;

use super::*;
use crate::{FrameError, SessionId, parse_connect};

fn listening() -> Session {
    let variant = Variant { transport: Transport::UniSse, format: Format::Json };
    Session::new(Arc::new(config()), ClientId::from_random(7), variant)
}

/// The answer to a request to connect.
fn answer(session: &mut Session, request: &str) -> String {
    let effect = session.handle(parse_connect(request.as_bytes()).unwrap(), NOW);
    perform(session, effect, NOW)
}

#[test]
fn the_answer_to_connect_is_a_push() {
    let mut session = listening();
    let id = SessionId { loop_index: 1, secret: 2 };
    session.name("node", id);
    let request = json!({"token": odd_token(json!({"sub": "7", "channels": ["closed:a"]})), "subs": {"open:b": {}}});
    let push: Value = serde_json::from_str(&answer(&mut session, &request.to_string())).unwrap();
    let subs = json!({"closed:a": {}, "open:b": {}});
    // It is not asked to answer pings, and knows no node to which it could say anything.
    let connect = json!({"client": CLIENT, "version": "1", "subs": subs, "ping": 25, "session": id.to_string()});
    assert_eq!(push, json!({"connect": connect}));
    assert!(answer(&mut listening(), " ").starts_with(r#"{"connect":{"client":"#), "it may say nothing");
}

#[test]
fn a_refusal_is_a_disconnect() {
    for (claims, expected) in [
        (json!({"exp": 1}), "cut 3005"),
        (json!({"subs": {"a": {"expire_at": 1}}}), "cut 3005"),
        (json!({"channels": ["nowhere:a"]}), "cut 3004"),
        (json!({"channels": 7}), "cut 3500"),
    ] {
        let mut session = listening();
        assert_eq!(
            answer(&mut session, &json!({"token": odd_token(claims.clone())}).to_string()),
            expected,
            "{claims}"
        );
        assert_eq!(answer(&mut session, "{}"), "nothing", "it is over");
    }
    let mut session = listening();
    let Effect::Connect(effect) = session.handle(parse_connect(b"").unwrap(), NOW) else { panic!("it may connect") };
    let effect = session.on_connect_failed(effect.ticket, ErrorCode::TooManyRequests);
    assert_eq!(perform(&mut session, effect, NOW), "cut 3013");
    assert_eq!(Disconnect::instead_of(103), Disconnect::PERMISSION_DENIED);
}

#[test]
fn the_request_must_be_an_object() {
    for wrong in ["[]", "1", "null", "{", r#"{"token":1}"#, "{}\n{}", "{}\u{c}"] {
        assert!(matches!(parse_connect(wrong.as_bytes()), Err(FrameError::Malformed { .. })), "{wrong}");
    }
}
