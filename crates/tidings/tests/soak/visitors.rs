//! Devices that come and go one by one, as apps and their back end do it: they register, log in and out, change their mind, and
//! are removed.

use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use rand::RngExt as _;
use serde_json::json;
use tidings_trial::raw::{HOME, exchange, request};

use crate::APP;
use crate::hand::Hand;
use crate::wave::{address, locale};

const PACE: Duration = Duration::from_millis(100);
const ZONES: [&str; 3] = ["Europe/Stockholm", "Asia/Tokyo", "America/Sao_Paulo"];

/// One device after the other, each with a life of its own.
pub(crate) async fn visitors(mut hand: Hand) -> Result<(), String> {
    while hand.turn(PACE).await {
        let number = hand.world.next();
        let path = format!("/v1/devices/visitor-{number}");
        let first = arrive(&mut hand, &path, number).await?;
        change(&mut hand, &path, number).await?;
        rotate(&mut hand, &path, first).await?;
        log_out_and_in(&mut hand, &path, number).await?;
        hand.ask("visitor", Method::DELETE, &path, None).await?;
    }
    Ok(())
}

/// Registers; its credential.
async fn arrive(hand: &mut Hand, path: &str, number: u64) -> Result<String, String> {
    let (locale, is_made_up) = locale(hand.random.random());
    let mut device = address(&hand.world, number, hand.random.random_range(0..1000), 0);
    device["app"] = json!(APP);
    device["locale"] = json!(locale);
    device["user"] = json!(format!("visitor-{number}"));
    device["time_zone"] = json!(ZONES[number as usize % ZONES.len()]);
    let answer = hand.ask("visitor", Method::PUT, path, Some(&device)).await?;
    hand.world.deeds.did("made-up locale", u64::from(is_made_up));
    answer["credential"].as_str().map(str::to_owned).ok_or_else(|| format!("{path} gets no credential: {answer}"))
}

async fn change(hand: &mut Hand, path: &str, number: u64) -> Result<(), String> {
    let subscriptions =
        |topics: &[&str]| json!({ "subscriptions": [{ "subject": format!("visited:{number}"), "topics": topics }] });
    let list = format!("{path}/subscriptions");
    hand.ask("visitor", Method::PUT, &list, Some(&subscriptions(&["goal", "unheard-of"]))).await?;
    hand.ask("visitor", Method::POST, &list, Some(&subscriptions(&["goal"]))).await?;
    let one = format!("{list}?subject=visited:{number}&topic=unheard-of");
    hand.ask("visitor", Method::DELETE, &one, None).await?;
    hand.ask("mute", Method::PUT, &format!("{path}/mutes/everything"), Some(&json!({ "for": "1h" }))).await?;
    hand.ask("mute", Method::PUT, &format!("{path}/mutes/visited:{number}"), Some(&json!({ "for": "1s" }))).await?;
    hand.ask("mute", Method::DELETE, &format!("{path}/mutes/everything"), None).await.map(drop)
}

/// Another credential; the first one does not count from now on.
async fn rotate(hand: &mut Hand, path: &str, first: String) -> Result<(), String> {
    let rotated = hand.ask("credential rotated", Method::POST, &format!("{path}/credential"), None).await?;
    let second = rotated["credential"].as_str().unwrap_or_default().to_owned();
    for (credential, expected) in [(first, 404), (second, 200)] {
        let proof = format!("X-Device-Credential: {credential}");
        let request = request("GET", path, &[&proof, "Connection: close"], &[]);
        match exchange(hand.world.addr, HOME, &request).await {
            Ok((status, _)) if status == expected => {}
            other => return Err(format!("{path} with a credential: {other:?}, not {expected}")),
        }
    }
    hand.did("old credential refused");
    Ok(())
}

async fn log_out_and_in(hand: &mut Hand, path: &str, number: u64) -> Result<(), String> {
    hand.ask("log-out", Method::POST, &format!("{path}/logout"), None).await?;
    let mut device = address(&hand.world, number, hand.random.random_range(0..1000), 1);
    device["app"] = json!(APP);
    device["locale"] = json!("en");
    device["user"] = json!(format!("other-{number}"));
    hand.ask("log-in", Method::PUT, path, Some(&device)).await?;
    let found = hand.send(Method::GET, path, Bytes::new()).await?.json();
    let is_clean = found["subscriptions"].as_array().is_some_and(Vec::is_empty) && found["user"] == device["user"];
    if is_clean { Ok(()) } else { Err(format!("after a log-out and a log-in {path} is {found}")) }
}
