//! What providers have been seen to do to their clients, or may: nothing is lost, each notification has one outcome,
//! and the rules are kept meanwhile. How long each takes to recover is printed, not judged.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use tidings_gateway::GatewayConfig;
use tidings_push::{Outcome, Settled};
use tidings_telemetry::unix_now;
use tidings_types::{EventPriority, JournalPosition};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};

use crate::peer::{Behaviour, Reply, Script};
use crate::{PATIENCE, Setup, always, behaviour, first, notification, setup, third};

/// Pushes to `count` devices and waits for all to be accepted.
#[expect(clippy::print_stdout, reason = "the time to recover is for people to read")]
async fn recovers(name: &str, behaviour: Behaviour, count: u32, adapt: impl FnOnce(&mut GatewayConfig)) -> Setup {
    let setup = setup(behaviour, adapt).await;
    let started = Instant::now();
    setup.push(0..count).await;
    let outcomes = setup.sink.outcomes(count as usize).await;
    println!("{name}: {count} accepted after {:?}", started.elapsed());
    assert!(outcomes.values().all(|it| it.outcome == Outcome::Accepted), "{outcomes:?}");
    assert_eq!(setup.peer.log(|log| log.violations), 0);
    setup
}

fn requests(setup: &Setup) -> HashMap<u32, usize> {
    setup.peer.log(|log| log.requests.clone())
}

fn repeats(outcomes: &HashMap<u32, Settled>) -> u32 {
    outcomes.values().map(|it| it.repeats).sum()
}

const UNAVAILABLE: &str = r#"{"reason":"ServiceUnavailable"}"#;

#[tokio::test]
async fn retry_after_is_waited_for() {
    for status in [503, 429] {
        let reply = Reply::RefuseFor(status, UNAVAILABLE.to_owned(), 1);
        let started = Instant::now();
        let setup = recovers("retry-after", behaviour(first(reply)), 5, |_| {}).await;
        assert!(started.elapsed() >= Duration::from_secs(1), "status {status}");
        assert!(requests(&setup).values().all(|count| *count == 2));
        assert_eq!(repeats(&setup.sink.outcomes(5).await), 5);
        assert_eq!(setup.drain().await, 0);
    }
}

#[tokio::test]
async fn a_date_in_retry_after_is_waited_for() {
    for status in [503, 429] {
        let until = unix_now().as_secs() + 2;
        let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(until));
        let reply = Reply::RefuseUntil(status, UNAVAILABLE.to_owned(), date);
        let setup = recovers("retry-after with a date", behaviour(third(reply)), 5, |_| {}).await;
        assert!(unix_now().as_secs() >= until, "status {status}");
        assert_eq!((requests(&setup)[&3], requests(&setup)[&2]), (2, 1));
        assert_eq!(setup.drain().await, 0);
    }
}

#[tokio::test]
async fn a_token_that_is_called_expired_or_wrong_twice_costs_no_notification() {
    for reason in ["ExpiredProviderToken", "InvalidProviderToken"] {
        let script: Script = Arc::new(move |device, before| match (device, before) {
            (3, 0 | 1) => Reply::refuse(403, reason),
            _ => Reply::Accept,
        });
        let setup = recovers(&format!("{reason} twice"), behaviour(script), 10, |_| {}).await;
        assert_eq!(requests(&setup)[&3], 3);
        assert_eq!(setup.drain().await, 0);
    }
}

#[tokio::test]
async fn a_body_that_comes_in_drops_is_read_to_its_end() {
    let script = first(Reply::Drip(503, UNAVAILABLE.to_owned()));
    let setup = recovers("slow DATA", behaviour(script), 10, |_| {}).await;
    assert!(requests(&setup).values().all(|count| *count == 2));
    assert_eq!(setup.drain().await, 0);
}

#[tokio::test]
async fn an_acceptance_whose_body_comes_slowly_is_one() {
    let setup =
        recovers("slow 200", behaviour(always(Reply::Drip(200, "{\"name\":\"x\"}".repeat(3)))), 50, |_| {}).await;
    assert!(requests(&setup).values().all(|count| *count == 1));
    assert_eq!(setup.drain().await, 0);
}

#[tokio::test]
async fn an_answer_that_is_torn_off_counts_by_its_status() {
    let setup = recovers("RST in a 503", behaviour(third(Reply::Torn(503, UNAVAILABLE.to_owned()))), 10, |_| {}).await;
    assert_eq!((requests(&setup)[&3], requests(&setup)[&2]), (2, 1));
    assert_eq!(setup.drain().await, 0);
    let setup = recovers("RST in a 200", behaviour(always(Reply::Torn(200, "{}".to_owned()))), 10, |_| {}).await;
    assert!(requests(&setup).values().all(|count| *count == 1), "the status alone says enough");
    assert_eq!(setup.drain().await, 0);
}

#[tokio::test]
async fn an_answer_of_the_wrong_length_or_before_its_time_costs_nothing() {
    for reply in [Reply::WrongLength, Reply::Hasty] {
        let setup = recovers("odd 200", behaviour(third(reply)), 10, |_| {}).await;
        assert!(requests(&setup).values().all(|count| *count <= 2));
        assert_eq!(setup.drain().await, 0);
    }
}

#[tokio::test]
async fn a_connection_of_which_the_peer_closes_its_half_is_replaced() {
    let setup = recovers("half-closed", behaviour(third(Reply::HalfClose)), 10, |_| {}).await;
    assert!(setup.peer.log(|log| log.connections) >= 2);
    assert_eq!(setup.drain().await, 0);
}

#[tokio::test]
async fn a_window_that_is_never_opened_again_is_not_overrun_and_the_connection_replaced() {
    let stingy = Behaviour { stingy: true, ..behaviour(always(Reply::Accept)) };
    // Bodies of 200 bytes: 327 fit into the window of a connection.
    let setup =
        recovers("64 KiB for ever", stingy, 1000, |config| config.stall_timeout = Duration::from_millis(200)).await;
    let (overrun, connections) = setup.peer.log(|log| (log.overrun, log.connections));
    assert_eq!((overrun, connections), (0, 4));
    assert!(requests(&setup).values().all(|count| *count == 1), "nothing was begun that could not be ended");
    let text = setup.registry.prometheus();
    let stalled = |cause: &str, count: u32| {
        let series = r#"tidings_gateway_connections_stalled_total{cause="#;
        text.contains(&format!("{series}\"{cause}\",pool=\"main\",provider=\"apns\"}} {count}\n"))
    };
    assert!(stalled("no_window", 3) && stalled("silence", 0), "{text}");
    assert_eq!(setup.drain().await, 0);
}

#[tokio::test]
async fn a_limit_lowered_to_nothing_and_raised_again_is_obeyed() {
    let limits = vec![50, 0, 1, 0, 20];
    let lowered = Behaviour { limits, limit_every: 30, ..behaviour(always(Reply::Accept)) };
    let setup = recovers("SETTINGS 0", lowered, 500, |_| {}).await;
    assert_eq!(setup.peer.log(|log| log.connections), 1);
    assert_eq!(setup.drain().await, 0);
}

/// An address of this machine on which nobody listens.
async fn dead_address() -> SocketAddr {
    TcpListener::bind("127.0.0.2:0").await.unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn one_address_that_refuses_costs_no_connection() {
    let dead = dead_address().await;
    let goes = Behaviour { goodbye: r#"{"reason":"Shutdown"}"#, ..behaviour(third(Reply::GoAway)) };
    let setup = recovers("dead address", goes, 500, |config| {
        config.addresses = vec![dead, (config.host.parse::<std::net::IpAddr>().unwrap(), config.port).into()];
        (config.connection_count_min, config.connection_count_max) = (8, 8);
    })
    .await;
    let text = setup.registry.prometheus();
    assert!(text.contains(r#"tidings_gateway_connect_failures_total{pool="main",provider="apns"} 0"#), "{text}");
    assert!(text.contains(r#"tidings_gateway_goaways_total{pool="main",provider="apns"} 1"#), "{text}");
    assert_eq!(setup.drain().await, 0);
}

/// Keeps the lake filled until there are four connections.
async fn grows_to_four(limit: u32, rate_floor: Option<u32>) {
    let slow = Behaviour { limits: vec![limit], latency: Duration::from_millis(5), ..behaviour(always(Reply::Accept)) };
    let setup = setup(slow, |config| (config.connection_count_max, config.rate_floor) = (4, rate_floor)).await;
    let expires_at = unix_now().saturating_add(Duration::from_secs(600));
    let full = async {
        let mut count = 0;
        while setup.peer.log(|log| log.connections) < 4 {
            let batch = count..count + 10;
            setup
                .lake
                .push_batch(&mut batch.map(|it| notification(it, JournalPosition(1), expires_at)).collect())
                .await
                .unwrap();
            // As fast as they go out.
            setup.sink.outcomes(count as usize / 2).await;
            count += 10;
        }
        count as usize
    };
    let count = timeout(PATIENCE, full).await.expect("it grows");
    assert_eq!(setup.sink.outcomes(count).await.len(), count);
    assert_eq!(setup.peer.log(|log| log.violations), 0);
    assert_eq!(setup.drain().await, 0);
}

#[tokio::test]
async fn connections_are_added_while_all_are_full_and_something_waits() {
    grows_to_four(3, None).await;
}

#[tokio::test]
async fn a_floor_is_kept_by_more_connections_where_every_limit_is_one() {
    grows_to_four(1, Some(100_000)).await;
}

#[tokio::test]
async fn the_urgent_overtake_what_waits() {
    let single = Behaviour { limits: vec![1], ..behaviour(always(Reply::Accept)) };
    let setup = setup(single, |_| {}).await;
    let expires_at = unix_now().saturating_add(Duration::from_secs(600));
    let push = |priority, devices: std::ops::Range<u32>| {
        let mut batch = devices.map(|it| notification(it, JournalPosition(1), expires_at)).collect();
        setup.lakes.of(priority).try_push_batch(&mut batch).unwrap();
    };
    push(EventPriority::Low, 1000..1500);
    setup.sink.outcomes(1).await;
    push(EventPriority::High, 0..100);
    setup.sink.outcomes(600).await;
    let order = setup.peer.log(|log| log.order.clone());
    let place = |device| order.iter().position(|it| *it == device).unwrap();
    let (begin, end) = (place(0), place(99));
    assert!(end < 500, "the last urgent one came as number {end}");
    let low = order[begin..end].iter().filter(|device| **device >= 1000).count();
    assert!((5..=8).contains(&low), "one of sixteen is not urgent: {low}");
    assert_eq!(setup.drain().await, 0);
}

#[tokio::test]
async fn pings_keep_their_distance_and_an_idle_connection_sends_none_where_none_are_wanted() {
    let script: Script =
        Arc::new(|device, before| if (device, before) == (3, 0) { Reply::Ignore } else { Reply::Accept });
    let setup = recovers("no answer, with PINGs", behaviour(script), 5, |config| {
        config.stall_timeout = Duration::from_millis(100);
        config.answer_timeout = Duration::from_secs(2);
        config.ping_interval_min = Duration::from_millis(600);
        config.ping_idle = None;
    })
    .await;
    let pings = setup.peer.log(|log| log.pings);
    assert!((1..=4).contains(&pings), "{pings} PINGs in two seconds");
    assert_eq!(setup.peer.log(|log| log.connections), 1);
    assert_eq!(setup.drain().await, 0);
}
