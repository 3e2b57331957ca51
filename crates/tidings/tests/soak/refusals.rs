//! What the server refuses, each kind again and again: of callers and of live clients. Each must be refused as it was before.

use std::time::Duration;

use serde_json::{Value, json};
use tidings_trial::raw::{HOME, PATIENCE, exchange, last_line, request};
use tokio::time::timeout;

use crate::hand::Hand;
use crate::wire::{Way, Wire};
use crate::{API_KEY, READER_KEY, SMALL_KEY};

const PACE: Duration = Duration::from_millis(50);
const LIVE_PACE: Duration = Duration::from_millis(500);
/// More than the configured `http.body_bytes_max`.
const LARGE_BYTES: usize = 65 << 10;

const JSON: &str = "Content-Type: application/json";

/// What is sent, how it counts, and with which status it is refused.
struct Refusal {
    deed: &'static str,
    status: u16,
    request: Vec<u8>,
}

fn refusals(number: u64) -> Vec<Refusal> {
    let sent = |deed, status, what: &str, key: &str, headers: &[&str], body: &[u8]| {
        let (method, path) = what.split_once(' ').expect("METHOD /path");
        let key = format!("X-API-Key: {key}");
        let headers = [&[key.as_str(), "Connection: close"], headers].concat();
        Refusal { deed, status, request: request(method, path, &headers, body) }
    };
    let events = "POST /v1/events";
    let event = |more: &Value| {
        let mut event = json!({ "id": format!("refused-{number}"), "topic": "goal", "subjects": ["kept:refused"] });
        event.as_object_mut().expect("it is one").extend(more.as_object().cloned().unwrap_or_default());
        event.to_string().into_bytes()
    };
    let small = event(&json!({ "to": { "devices": ["resident-0", "resident-1"] } }));
    let malformed = "malformed refused";
    let long = format!("X-Long: {}", "x".repeat(17 << 10));
    vec![
        sent(malformed, 400, events, API_KEY, &[JSON], b"{\"id\": "),
        sent(malformed, 400, events, API_KEY, &[JSON], &event(&json!({ "no_such_field": number }))),
        sent(malformed, 400, events, API_KEY, &["Content-Type: application/msgpack"], b"\xc1"),
        sent(malformed, 415, events, API_KEY, &["Content-Type: text/plain"], b"a goal"),
        sent(malformed, 415, "POST /v1/imports", API_KEY, &["Content-Encoding: gzip"], b"a line"),
        sent(malformed, 405, "PATCH /v1/events", API_KEY, &[], b""),
        sent("caller refused", 401, events, "no-key-at-all-0123456789", &[JSON], &event(&json!({}))),
        sent("caller refused", 403, events, READER_KEY, &[JSON], &event(&json!({}))),
        sent("caller refused", 403, events, SMALL_KEY, &[JSON], &small),
        sent("unknown refused", 404, &format!("GET /v1/devices/nobody-{number}"), API_KEY, &[], b""),
        sent("unknown refused", 404, &format!("DELETE /v1/events/never-{number}"), API_KEY, &[], b""),
        sent("unknown refused", 404, &format!("GET /v1/nothing/{number}"), API_KEY, &[], b""),
        sent("unknown refused", 404, &format!("POST /v1/feeds/feed-{number}"), API_KEY, &[], b""),
        sent("too large refused", 413, events, API_KEY, &[JSON], &[b' '; LARGE_BYTES]),
        sent("too large refused", 431, events, API_KEY, &[&long], b"{}"),
        sent("conflict refused", 409, events, API_KEY, &[JSON], &event(&json!({ "expect_audience": { "min": 1 } }))),
        sent("conflict refused", 412, "DELETE /v1/devices/resident-0", API_KEY, &["If-Match: \"r0\""], b""),
    ]
}

/// All of them, one after the other.
pub(crate) async fn callers(mut hand: Hand) -> Result<(), String> {
    let mut left = Vec::new();
    while hand.turn(PACE).await {
        if left.is_empty() {
            left = refusals(hand.world.next());
        }
        let Refusal { deed, status, request } = left.pop().expect("some are left");
        let answer = exchange(hand.world.addr, HOME, &request).await;
        let shown = || String::from_utf8_lossy(&request[..request.len().min(200)]).into_owned();
        match answer {
            Ok((found, _)) if found == status => hand.did(deed),
            Ok((found, answer)) => return Err(format!("{}: {found}, not {status}: {}", shown(), last_line(&answer))),
            Err(error) => return Err(format!("{}: {error}, not {status}", shown())),
        }
    }
    Ok(())
}

/// Clients whose channel does not exist, and whose channel has a hook that nobody answers.
pub(crate) async fn clients(mut hand: Hand) -> Result<(), String> {
    const CASES: [(&str, &str, u64); 2] = [("nowhere", "unknown channel refused", 102), ("gate", "failed hook", 100)];
    while hand.turn(LIVE_PACE).await {
        for (namespace, deed, code) in CASES {
            let channel = format!("{namespace}:{}", hand.world.next());
            let first = [json!({ "id": 1, "connect": {} }), json!({ "id": 2, "subscribe": { "channel": channel } })];
            let mut wire = Wire::open(hand.world.addr, Way::WebSocket, &first).await?;
            let answer = timeout(PATIENCE, async {
                loop {
                    match wire.next().await {
                        Ok(answer) if answer["id"] == 2 => return answer,
                        Ok(_) => {}
                        Err(ended) => return json!({ "ended": ended }),
                    }
                }
            });
            let answer = answer.await.map_err(|_| format!("{channel}: no answer"))?;
            if answer["error"]["code"] != code {
                return Err(format!("{channel} is answered {answer}, not with error {code}"));
            }
            hand.did(deed);
            wire.close().await?;
        }
    }
    Ok(())
}
