//! The follower message by message, against a model channel with breaks, and the driver against a scripted server.

use futures_util::{SinkExt as _, StreamExt as _};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use super::follower::{Follower, Refused, Step};
use super::*;

fn commands(frame: &str) -> Vec<Value> {
    frame.split('\n').map(|text| serde_json::from_str(text).unwrap()).collect()
}

fn printed(steps: Vec<Step>) -> Vec<Value> {
    let text = |step| match step {
        Step::Publication(text) | Step::Gap(text) => Some(serde_json::from_str(&text).unwrap()),
        Step::Connected | Step::Send(_) => None,
    };
    steps.into_iter().filter_map(text).collect()
}

fn follower(channels: &[&str]) -> Follower {
    Follower::new(channels.iter().map(|channel| (*channel).to_owned()).collect(), None)
}

#[test]
fn connect_and_subscribe_go_out_together() {
    let mut follower = Follower::new(vec!["b".into(), "a".into(), "a".into()], Some(Secret::new("t0ken")));
    let frame = follower.connect();
    let commands = commands(&frame);
    assert_eq!(commands[0]["connect"]["token"], "t0ken");
    assert_eq!(commands[1], json!({"id": 2, "subscribe": {"channel": "a", "recoverable": true}}));
    assert_eq!(commands[2], json!({"id": 3, "subscribe": {"channel": "b", "recoverable": true}}));
    assert_eq!(commands.len(), 3);
}

#[test]
fn a_new_connection_goes_on_where_the_last_one_stopped() {
    let mut follower = follower(&["a"]);
    follower.connect();
    let subscribed = r#"{"id":1,"connect":{"ping":25,"pong":true}}
{"id":2,"subscribe":{"recoverable":true,"epoch":"xyz","offset":7}}
{"push":{"channel":"a","pub":{"offset":8,"data":{"n": 1.50},"tags":{"event":"g1"}}}}
{"push":{"channel":"a","pub":{"offset":8,"data":1}}}"#;
    let steps = follower.on_frame(subscribed).unwrap();
    let line = r#"{"channel":"a","offset":8,"data":{"n": 1.50},"tags":{"event":"g1"}}"#;
    assert_eq!(steps, [Step::Connected, Step::Publication(line.to_owned())]);
    assert_eq!(follower.ping_interval(), Some(Duration::from_secs(25)));
    assert_eq!(follower.on_frame("{}").unwrap(), [Step::Send("{}".to_owned())]);

    let again = commands(&follower.connect());
    let request = json!({"channel": "a", "recoverable": true, "recover": true, "offset": 8, "epoch": "xyz"});
    assert_eq!(again[1]["subscribe"], request);
    let recovered =
        r#"{"id":2,"subscribe":{"recoverable":true,"recovered":true,"was_recovering":true,"epoch":"xyz","offset":8,
        "publications":[{"offset":9,"data":1},{"offset":10,"data":2}]}}"#
            .replace('\n', "");
    let offsets: Vec<_> = printed(follower.on_frame(&recovered).unwrap()).iter().map(|p| p["offset"].clone()).collect();
    assert_eq!(offsets, [json!(9), json!(10)]);
}

#[test]
fn what_cannot_be_recovered_is_told_as_a_gap() {
    let mut follower = follower(&["a"]);
    follower.connect();
    follower.on_frame(r#"{"id":2,"subscribe":{"recoverable":true,"epoch":"one","offset":7}}"#).unwrap();
    follower.connect();
    let lost = r#"{"id":2,"subscribe":{"recoverable":true,"was_recovering":true,"epoch":"two","offset":3}}"#;
    let gap = json!({"channel": "a", "gap": {"since": 7, "top": 3}});
    assert_eq!(printed(follower.on_frame(lost).unwrap()), [gap]);
    assert_eq!(commands(&follower.connect())[1]["subscribe"]["epoch"], "two");
}

#[test]
fn a_channel_without_history_is_followed_without_positions() {
    let mut follower = follower(&["a"]);
    follower.connect();
    let frame = "{\"id\":2,\"subscribe\":{}}\n{\"push\":{\"channel\":\"a\",\"pub\":{\"data\":1}}}\n{\"push\":{\"channel\":\"other\",\"pub\":{\"data\":1}}}";
    assert_eq!(printed(follower.on_frame(frame).unwrap()), [json!({"channel": "a", "data": 1})]);
    assert_eq!(commands(&follower.connect())[1]["subscribe"], json!({"channel": "a", "recoverable": true}));
}

#[test]
fn refusals_end_it_or_ask_for_another_try() {
    let refusal = |frame: &str| {
        let mut follower = follower(&["a"]);
        follower.connect();
        follower.on_frame(frame).unwrap_err()
    };
    let for_good = |text: &str| Refused::ForGood(text.to_owned());
    assert_eq!(
        refusal(r#"{"id":2,"error":{"code":103,"message":"permission denied"}}"#),
        for_good("channel a: 103 permission denied")
    );
    assert_eq!(
        refusal(r#"{"id":1,"error":{"code":109,"message":"token expired"}}"#),
        for_good("the server refuses the connection: 109 token expired")
    );
    let temporary = refusal(r#"{"id":1,"error":{"code":100,"message":"internal server error","temporary":true}}"#);
    assert!(matches!(temporary, Refused::ForNow(_)));
    assert!(matches!(refusal("no json"), Refused::ForGood(_)));
    let unsubscribed = r#"{"push":{"channel":"a","unsubscribe":{"code":2000,"reason":"gone"}}}"#;
    assert_eq!(refusal(unsubscribed), for_good("channel a: 2000 gone"));
    let mut follower = follower(&["a"]);
    follower.connect();
    let back =
        follower.on_frame(r#"{"push":{"channel":"a","unsubscribe":{"code":2500,"reason":"insufficient state"}}}"#);
    assert!(matches!(&back.unwrap()[..], [Step::Send(text)] if text.contains("\"subscribe\"")));
}

/// What may happen to a channel and its connection.
#[derive(Debug, Clone)]
enum Action {
    Publish,
    /// The server forgets all but the last few.
    Trim(u64),
    Break,
}

proptest! {
    /// Every publication is printed once and in order, or lies in a gap that was told.
    #[test]
    fn nothing_is_lost_silently_or_printed_twice(
        actions in prop::collection::vec(prop_oneof![4 => Just(Action::Publish), 1 => (0_u64..4).prop_map(Action::Trim), 2 => Just(Action::Break)], 0..60),
        cut in any::<bool>(),
    ) {
        let (mut top, mut first) = (0_u64, 1_u64);
        let mut follower = follower(&["a"]);
        let mut output = Vec::new();
        let subscribe = |follower: &mut Follower, top: u64, first: u64| {
            let request = commands(&follower.connect())[1]["subscribe"].clone();
            let since = request["offset"].as_u64().unwrap_or(top);
            let recovered = request["recover"] == true && since + 1 >= first;
            let missed: Vec<_> = (since + 1..=top).filter(|_| recovered).map(|offset| json!({"offset": offset, "data": 0})).collect();
            let offset = if recovered { since } else { top };
            let result = json!({"recoverable": true, "recovered": recovered, "epoch": "e", "offset": offset, "publications": missed});
            printed(follower.on_frame(&json!({"id": 2, "subscribe": result}).to_string()).unwrap())
        };
        output.extend(subscribe(&mut follower, top, first));
        for action in actions {
            match action {
                Action::Publish => {
                    top += 1;
                    let push = json!({"push": {"channel": "a", "pub": {"offset": top, "data": 0}}}).to_string();
                    // Sometimes publications happen while the connection is already dead.
                    if !cut || top % 3 != 0 {
                        let missed = output.last().map_or(0, |last: &Value| last["offset"].as_u64().or(last["gap"]["top"].as_u64()).unwrap());
                        if missed + 1 < top {
                            output.extend(subscribe(&mut follower, top - 1, first));
                        }
                        output.extend(printed(follower.on_frame(&push).unwrap()));
                    }
                }
                Action::Trim(kept) => first = first.max((top + 1).saturating_sub(kept)),
                Action::Break => output.extend(subscribe(&mut follower, top, first)),
            }
        }
        output.extend(subscribe(&mut follower, top, first));
        let mut reached = 0;
        for line in output {
            match line["offset"].as_u64() {
                Some(offset) => prop_assert_eq!(offset, std::mem::replace(&mut reached, offset) + 1),
                None => {
                    prop_assert_eq!(line["gap"]["since"].as_u64(), Some(reached));
                    reached = line["gap"]["top"].as_u64().unwrap();
                }
            }
        }
        prop_assert_eq!(reached, top);
    }

    #[test]
    fn no_frame_makes_it_panic(frame in "\\PC{0,80}|(\\{\"(id|push|connect|error)\":[0-9a-z{}\",:]{0,20}\\}\n?){0,5}") {
        let mut follower = follower(&["a"]);
        follower.connect();
        if let Err(Refused::ForNow(why) | Refused::ForGood(why)) = follower.on_frame(&frame) {
            prop_assert!(!why.is_empty());
        }
    }
}

/// Serves the connections of a script: for each, frames sent after the first frame came, and how it is closed.
async fn serve(listener: TcpListener, script: Vec<(Vec<&str>, Option<u16>)>) -> Vec<String> {
    let mut received = Vec::new();
    for (frames, close) in script {
        let (stream, _) = listener.accept().await.unwrap();
        let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        received.push(socket.next().await.unwrap().unwrap().into_text().unwrap().to_string());
        for frame in frames {
            socket.send(Message::text(frame)).await.unwrap();
        }
        if let Some(code) = close {
            let frame = CloseFrame { code: code.into(), reason: "because".into() };
            socket.close(Some(frame)).await.unwrap();
        }
        while let Some(Ok(_)) = socket.next().await {} // Until the client has hung up.
    }
    received
}

async fn follow(script: Vec<(Vec<&str>, Option<u16>)>, count: u64) -> (Vec<String>, Result<(), CommandError>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = ServerUrl::of_listener(listener.local_addr().unwrap());
    let mut following = Following { follower: follower(&["a"]), left: Some(count), backoff: Duration::from_millis(1) };
    tokio::join!(serve(listener, script), following.run(&server))
}

#[tokio::test]
async fn a_cut_connection_is_made_again_and_resumed() {
    let first = vec![
        r#"{"id":1,"connect":{"ping":25}}"#,
        r#"{"id":2,"subscribe":{"recoverable":true,"epoch":"e","offset":0}}"#,
        r#"{"push":{"channel":"a","pub":{"offset":1,"data":1}}}"#,
    ];
    let second = vec![
        r#"{"id":1,"connect":{}}"#,
        r#"{"id":2,"subscribe":{"recovered":true,"epoch":"e","offset":1,"recoverable":true,"publications":[{"offset":2,"data":2}]}}"#,
    ];
    let (received, result) = follow(vec![(first, Some(3001)), (second, None)], 2).await;
    result.unwrap();
    let request = &commands(&received[1])[1]["subscribe"];
    assert_eq!((&request["offset"], &request["epoch"]), (&json!(1), &json!("e")));
}

#[tokio::test]
async fn a_final_disconnect_ends_it() {
    let (_, result) = follow(vec![(vec![], Some(3500))], 1).await;
    assert_eq!(result.unwrap_err().to_string(), "the server disconnected: 3500 because");
}
