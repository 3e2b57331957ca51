//! The request that is sent and the text made of the answer, against a listener that answers once.

use clap::Parser as _;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::cli::{Cli, Command};

fn args(words: &[&str]) -> PublishArgs {
    match Cli::try_parse_from(["tidings", "publish"].iter().chain(words)).unwrap().command {
        Command::Publish(args) => args,
        _ => unreachable!("it says publish"),
    }
}

fn body(words: &[&str]) -> (&'static str, Value) {
    let (path, body) = request(&args(words)).unwrap();
    (path, serde_json::from_slice(&body).unwrap())
}

#[test]
fn flags_make_an_event() {
    let words = "--topic goal --subject match:1 --subject team:se --param minute=90 --param team=Sweden --param code=007 \
                 --id g1 --collapse-key k --ttl 1h";
    let (path, event) = body(&words.split_whitespace().collect::<Vec<_>>());
    let expected = json!({
        "id": "g1", "topic": "goal", "subjects": ["match:1", "team:se"], "collapse_key": "k", "ttl": 3600,
        "params": {"minute": 90, "team": "Sweden", "code": "007"},
    });
    assert_eq!((path, event), ("/v1/events", expected));
    let words = "--topic news --subject league:1 --id n1 --priority low --urgency very_low --at 2026-07-15T20:04:05+02:00 \
                 --expect-min 1 --expect-max 50000 --dry-run";
    let (_, event) = body(&words.split_whitespace().collect::<Vec<_>>());
    let expected = json!({
        "id": "n1", "topic": "news", "subjects": ["league:1"], "params": {}, "priority": "low", "urgency": "very_low",
        "at": "2026-07-15T18:04:05.000Z", "expect_audience": {"min": 1, "max": 50000}, "dry_run": true,
    });
    assert_eq!(event, expected);
    tidings_api::read_event(event.to_string().as_bytes()).unwrap();
    let id = |(_, event): (_, Value)| event["id"].as_str().unwrap().to_owned();
    assert_ne!(id(body(&["--topic", "a", "--subject", "b:c"])), id(body(&["--topic", "a", "--subject", "b:c"])));
}

#[test]
fn json_goes_out_as_it_is() {
    let text = "[{\"id\": \"a\",  \"n\": 1.50}]";
    assert_eq!(request(&args(&[text])).unwrap(), ("/v1/events", Bytes::from(text)));
    assert_eq!(
        body(&["--channel", "news", "{\"n\": 1.50}"]),
        ("/api/publish", json!({"channel": "news", "data": {"n": 1.50}}))
    );
}

#[test]
fn nonsense_is_refused_before_anything_is_sent() {
    for words in [
        &["{"] as &[&str],
        &["--topic", "Not A Topic", "--subject", "a:b"],
        &["--topic", "goal", "--subject", "nokind"],
        &["--channel", "a b", "{}"],
    ] {
        assert!(matches!(request(&args(words)), Err(CommandError::Usage(_))), "{words:?}");
    }
    for words in [
        &[] as &[&str],
        &["--topic", "goal"],
        &["--channel", "news"],
        &["{}", "--topic", "goal", "--subject", "a:b"],
        &["{}", "--dry-run"],
        &["--topic", "goal", "--subject", "a:b", "--at", "tomorrow"],
        &["--topic", "goal", "--subject", "a:b", "--priority", "urgent"],
    ] {
        assert!(Cli::try_parse_from(["tidings", "publish"].iter().chain(words)).is_err(), "{words:?}");
    }
}

/// Takes one request and gives one answer.
async fn answer_once(listener: TcpListener, status: &str, answer: &str) -> String {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = Vec::new();
    while !request.ends_with(b"{}") {
        let count = stream.read_buf(&mut request).await.unwrap();
        assert!(count > 0, "the request broke off");
    }
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", answer.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.read_to_end(&mut Vec::new()).await.unwrap(); // The client hangs up first, or its answer might be cut off.
    String::from_utf8(request).unwrap()
}

async fn publish(status: &str, answer: &str) -> (String, Result<(), CommandError>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let args = args(&["{}", "--url", &url, "--api-key", "k3y"]);
    tokio::join!(answer_once(listener, status, answer), run(args))
}

#[tokio::test]
async fn the_request_carries_the_key_and_the_answer_decides() {
    let (request, result) = publish("202 Accepted", "{\"id\": \"a\", \"position\": 3}").await;
    result.unwrap();
    assert!(request.starts_with("POST /v1/events HTTP/1.1\r\n"), "{request}");
    assert!(
        request.contains("authorization: apikey k3y\r\n") && request.contains("content-type: application/json\r\n")
    );

    let failed = |result: Result<(), CommandError>| match result {
        Err(CommandError::Failed(text) | CommandError::Refused { detail: text, .. }) => text,
        other => panic!("{other:?}"),
    };
    let refused = failed(publish("200 OK", "{\"error\":{\"code\":102,\"message\":\"unknown channel\"}}").await.1);
    assert_eq!(refused, "the server refused the publication: 102 unknown channel");
    let unauthorized = failed(publish("401 Unauthorized", "").await.1);
    assert!(unauthorized.contains("401 Unauthorized, is the API key right?") && !unauthorized.contains("k3y"));
    let overloaded = failed(publish("503 Service Unavailable", "journal is full").await.1);
    assert!(overloaded.ends_with("503 Service Unavailable: journal is full"), "{overloaded}");
}

#[test]
fn an_accepted_event_is_told_with_its_place_or_its_time() {
    let words = |answer: &str| match serde_json::from_str(answer).unwrap() {
        Answer::Accepted(event) => event.words(),
        _ => panic!("{answer}"),
    };
    assert_eq!(words(r#"{"id":"a","position":3,"channels":[]}"#), "accepted a at position 3");
    let again = r#"{"id":"a","position":3,"channels":[],"repeated":true}"#;
    assert_eq!(words(again), "already known: a at position 3; nothing is sent again");
    let later = r#"{"id":"a","at":"2026-07-15T18:04:05.000Z","state":"scheduled"}"#;
    assert_eq!(words(later), "accepted a for 2026-07-15T18:04:05.000Z");
}

#[tokio::test]
async fn nobody_there_is_told_with_the_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = run(args(&["{}", "--url", &url, "--api-key", "k"])).await.unwrap_err();
    assert_eq!(error.to_string(), format!("cannot connect to {url}"));
}
