//! What providers have been seen to do below HTTP, done to FCM's side: the frames are made by hand, as for APNs in
//! `crate::nasty`.

use std::collections::HashMap;
use std::time::Duration;

use tidings_gateway::{Gateway, GatewayConfig, OAuth};
use tidings_push::Settled;

use super::*;
use crate::behaviour;
use crate::peer::{Behaviour, Peer, Reply, Script};

/// FCM by hand, and the endpoint of [`Google`], which gives a token for an hour.
struct Raw {
    peer: Peer,
    sink: Arc<Sink>,
    gateway: Gateway,
    _google: Google,
}

/// Pushes to `count` devices, waits for all outcomes and says how long they took.
#[expect(clippy::print_stdout, reason = "the time to recover is for people to read")]
async fn outcomes(
    name: &str,
    behaviour: Behaviour,
    count: u32,
    adapt: impl FnOnce(&mut GatewayConfig),
) -> (HashMap<u32, Settled>, Raw) {
    let peer = Peer::start(behaviour).await;
    let google = Google::start(accept(), vec![Grant::Token(3600)]).await;
    let mut config = settings(&google);
    config.port = peer.address.port();
    config.ca_pem = Some(format!("{}{}", peer.ca_pem, google.ca_pem));
    config.credential = Credential::OAuth(Arc::new(OAuth::new(account(google.endpoint, 0)).unwrap()));
    adapt(&mut config);
    let (sink, lakes) = (Arc::<Sink>::default(), Lakes::new(1000));
    let gateway = Gateway::start(config, lakes.clone(), Arc::clone(&sink) as _, &Registry::new()).unwrap();
    let started = Instant::now();
    lakes.of(EventPriority::Normal).try_push_batch(&mut (0..count).map(notification).collect()).unwrap();
    let outcomes = sink.outcomes(count as usize).await;
    println!("{name}: {count} settled after {:?}", started.elapsed());
    assert_eq!(peer.log(|log| log.violations), 0);
    (outcomes, Raw { peer, sink, gateway, _google: google })
}

/// [`outcomes`], all of which are to be acceptances. Returns how many requests there were for each device.
async fn recovers(
    name: &str,
    behaviour: Behaviour,
    count: u32,
    adapt: impl FnOnce(&mut GatewayConfig),
) -> HashMap<u32, usize> {
    let (outcomes, raw) = outcomes(name, behaviour, count, adapt).await;
    assert!(outcomes.values().all(|it| it.outcome == Outcome::Accepted), "{name}: {outcomes:?}");
    let requests = raw.peer.log(|log| log.requests.clone());
    raw.drain().await;
    requests
}

impl Raw {
    async fn drain(self) {
        assert_eq!(self.gateway.drain(Instant::now() + PATIENCE).await.unsettled, 0);
        drop(self.sink);
    }
}

/// This reply to the first request for device 3, 200 for all others.
fn third(reply: Reply) -> Script {
    Arc::new(move |device, before| if (device, before) == (3, 0) { reply.clone() } else { Reply::Accept })
}

fn error(code: &str) -> String {
    let kind = "type.googleapis.com/google.firebase.fcm.v1.FcmError";
    format!(r#"{{"error":{{"message":"m","status":"X","details":[{{"@type":"{kind}","errorCode":"{code}"}}]}}}}"#)
}

#[tokio::test]
async fn a_stated_wait_is_kept_in_seconds_and_as_a_date() {
    for (status, code) in [(503, "UNAVAILABLE"), (429, "QUOTA_EXCEEDED")] {
        let started = Instant::now();
        let seconds = third(Reply::RefuseFor(status, error(code), 1));
        let requests = recovers(&format!("{status} for a second"), behaviour(seconds), 10, |_| {}).await;
        assert!(started.elapsed() >= Duration::from_secs(1) && requests[&3] == 2, "{requests:?}");
        let until = unix_now().as_secs() + 2;
        let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(until));
        let date = third(Reply::RefuseUntil(status, error(code), date));
        let requests = recovers(&format!("{status} until a date"), behaviour(date), 10, |_| {}).await;
        assert!(unix_now().as_secs() >= until && requests[&3] == 2, "{requests:?}");
    }
}

#[tokio::test]
async fn what_comes_slowly_is_read_to_its_end_and_what_is_torn_off_costs_no_token() {
    let script: Script = Arc::new(|device, _| match device {
        0 => Reply::Drip(200, r#"{"name":"projects/p/messages/1"}"#.to_owned()),
        1 => Reply::Drip(404, error("UNREGISTERED")),
        2 => Reply::Torn(404, error("UNREGISTERED")),
        3 => Reply::Torn(200, r#"{"name":"projects/p/messages/1"}"#.to_owned()),
        _ => Reply::Accept,
    });
    let (outcomes, raw) = outcomes("slow and torn DATA", behaviour(script), 10, |_| {}).await;
    assert_eq!(outcomes[&1].outcome, Outcome::Rejected(Reason::Unregistered.into()));
    assert!(outcomes[&1].token_gone.is_some());
    assert_eq!(outcomes[&2].outcome, Outcome::Rejected(Reason::NotFound.into()));
    assert!(outcomes[&2].token_gone.is_none(), "what is missing may say that it is the project");
    assert!(outcomes.iter().all(|(device, it)| matches!(device, 1 | 2) || it.outcome == Outcome::Accepted));
    assert!(raw.peer.log(|log| log.requests.values().all(|count| *count == 1)));
    raw.drain().await;
}

#[tokio::test]
async fn connections_and_streams_that_end_in_odd_ways_lose_nothing() {
    const REFUSED_STREAM: u32 = 7;
    for (name, reply, requests) in [
        ("half-closed", Reply::HalfClose, 2..=2),
        ("wrong content-length", Reply::WrongLength, 1..=2),
        ("RST after 200", Reply::Hasty, 1..=2),
        ("GOAWAY", Reply::GoAway, 2..=2),
        ("cut", Reply::Cut, 2..=2),
        ("REFUSED_STREAM", Reply::Reset(REFUSED_STREAM), 2..=2),
        ("silent", Reply::Stall, 2..=2),
    ] {
        let stall_timeout = Duration::from_millis(400);
        let seen = recovers(name, behaviour(third(reply)), 10, |config| config.stall_timeout = stall_timeout).await;
        assert!(requests.contains(&seen[&3]), "{name}: {seen:?}");
    }
}

#[tokio::test]
async fn a_token_that_is_refused_twice_costs_no_notification() {
    let unauthenticated = r#"{"error":{"code":401,"status":"UNAUTHENTICATED"}}"#;
    let script: Script = Arc::new(move |device, before| match (device, before) {
        (3, 0 | 1) => Reply::Refuse(401, unauthenticated.to_owned()),
        _ => Reply::Accept,
    });
    let requests = recovers("401 twice", behaviour(script), 10, |_| {}).await;
    assert_eq!(requests[&3], 3);
}
