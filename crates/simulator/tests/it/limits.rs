//! Stream limits, flow windows, connection limits.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use tidings_simulator::{ApnsSimulator, Faults, SimulatorConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use crate::client::{Client, Push, Seen, connect_tls, see, start};

#[tokio::test]
async fn the_limit_rises_with_the_first_token_falls_with_a_rejection_and_rises_again() {
    let simulator = start(Faults {
        stream_limit: 100,
        stream_limit_before_token: Some(1),
        stream_limit_after_rejection: Some(2),
        ..Faults::default()
    });
    let mut client = Client::connect(&simulator).await;
    client.until_stream_limit(1).await;
    assert_eq!(client.push(Push::new(&simulator, 1, 1)).await, Seen::Accepted);
    client.until_stream_limit(100).await;
    let wrong = Push::new(&simulator, 1, 1).with("apns-priority", "2");
    assert_eq!(client.push(wrong).await, Seen::rejected(400, "BadPriority"));
    client.until_stream_limit(2).await;
    assert_eq!(client.push(Push::new(&simulator, 1, 1)).await, Seen::Accepted);
    client.until_stream_limit(100).await;
    simulator.set_faults(Faults { stream_limit: 50, ..Faults::default() }).unwrap();
    client.until_stream_limit(50).await;
    assert_eq!(simulator.ledger().summary().stream_limit_violations, 0);
}

#[tokio::test]
async fn a_client_that_obeys_uses_the_whole_limit_and_never_breaks_it() {
    let simulator = start(Faults { stream_limit: 5, delay_ms: 5, ..Faults::default() });
    let mut client = Client::connect(&simulator).await;
    client.until_stream_limit(5).await;
    let mut responses = Vec::new();
    for id in 0..60 {
        let push = Push::new(&simulator, 1, id);
        responses.push(client.send(push).await.unwrap());
    }
    for response in responses {
        assert_eq!(see(response).await, Seen::Accepted);
    }
    let summary = simulator.ledger().summary();
    assert_eq!((summary.streams_open_max, summary.stream_limit_violations, summary.streams_refused), (5, 0, 0));
}

#[tokio::test]
async fn a_client_that_breaks_the_limit_is_refused_and_counted() {
    let simulator = start(Faults { stream_limit: 2, ..Faults::default() });
    let mut stream = connect_tls(simulator.addr(), simulator.ca_pem(), "h2", None).await.unwrap();
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]); // The client's SETTINGS.
    bytes.extend([0, 0, 0, 4, 1, 0, 0, 0, 0]); // The acknowledgement of the server's SETTINGS.
    for id in [1, 3, 5] {
        // POST https /a, headers ended, stream open.
        bytes.extend([0, 0, 6, 1, 4, 0, 0, 0, id, 0x83, 0x87, 0x04, 2, b'/', b'a']);
    }
    // The pieces split every frame header, so the meter must join them.
    for piece in bytes.chunks(5) {
        stream.write_all(piece).await.unwrap();
        stream.flush().await.unwrap();
    }
    let reset = tokio::time::timeout(Duration::from_secs(5), async {
        loop {
            let mut header = [0; 9];
            stream.read_exact(&mut header).await.unwrap();
            let mut payload = vec![0; usize::from(header[1]) * 256 + usize::from(header[2])];
            stream.read_exact(&mut payload).await.unwrap();
            if header[3] == 3 {
                return (header[8], payload);
            }
        }
    });
    let refused_stream = vec![0, 0, 0, 7];
    assert_eq!(reset.await.unwrap(), (5, refused_stream));
    let summary = simulator.ledger().summary();
    assert_eq!((summary.streams_open_max, summary.stream_limit_violations, summary.streams_refused), (3, 1, 1));
}

#[tokio::test]
async fn small_windows_slow_a_client_and_lose_nothing() {
    let faults = Faults { stream_window_bytes: 10, connection_window_bytes: 65_535, ..Faults::default() };
    let simulator = start(faults);
    let mut client = Client::connect(&simulator).await;
    for id in 0..40 {
        let body = Bytes::from(format!(r#"{{"a":"{}"}}"#, "x".repeat(4000)));
        assert_eq!(client.push(Push { body, ..Push::new(&simulator, 1, id) }).await, Seen::Accepted);
    }
}

#[tokio::test]
async fn a_round_trip_time_delays_answers_settings_and_windows() {
    let faults = Faults {
        round_trip_ms: 100,
        connection_window_bytes: 65_535,
        stream_limit: 100,
        stream_limit_before_token: Some(1),
        ..Faults::default()
    };
    let simulator = start(faults);
    let begin = Instant::now();
    let mut client = Client::connect(&simulator).await;
    client.until_stream_limit(1).await;
    assert!(begin.elapsed() >= Duration::from_millis(200), "TCP and TLS");
    let begin = Instant::now();
    assert_eq!(client.push(Push::new(&simulator, 1, 0)).await, Seen::Accepted);
    assert!(begin.elapsed() >= Duration::from_millis(100));
    client.until_stream_limit(100).await;
    let begin = Instant::now();
    let mut responses = Vec::new();
    for id in 1..=48 {
        // 192 KiB together: one round trip lets a third of it through the window.
        let body = Bytes::from(format!(r#"{{"a":"{}"}}"#, "x".repeat(4088)));
        responses.push(client.send(Push { body, ..Push::new(&simulator, 1, id) }).await.unwrap());
    }
    for response in responses {
        assert_eq!(see(response).await, Seen::Accepted);
    }
    assert!(begin.elapsed() >= Duration::from_millis(300), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn one_address_can_be_dead_while_another_works() {
    let other = IpAddr::from([127, 0, 0, 2]);
    let config = SimulatorConfig { more_addresses: vec![other], ..SimulatorConfig::default() };
    let simulator = ApnsSimulator::start(config).unwrap();
    let there = SocketAddr::new(other, simulator.addr().port());
    let mut client = Client::connect_to(&simulator, there).await.unwrap();
    assert_eq!(client.push(Push::new(&simulator, 1, 1)).await, Seen::Accepted);
    simulator.set_faults(Faults { dead_addresses: vec![other], ..Faults::default() }).unwrap();
    let broken = async {
        while simulator.ledger().summary().resets == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), broken).await.expect("the connection breaks");
    assert_ne!(client.push(Push::new(&simulator, 1, 2)).await, Seen::Accepted);
    assert!(Client::connect_to(&simulator, there).await.is_none());
    let mut client = Client::connect(&simulator).await;
    assert_eq!(client.push(Push::new(&simulator, 1, 2)).await, Seen::Accepted);
    simulator.set_faults(Faults::default()).unwrap();
    assert!(Client::connect_to(&simulator, there).await.is_some());
}

#[tokio::test]
async fn a_connection_too_many_is_closed() {
    let simulator =
        ApnsSimulator::start(SimulatorConfig { connection_count_max: 1, ..SimulatorConfig::default() }).unwrap();
    let mut client = Client::connect(&simulator).await;
    assert!(Client::try_connect(&simulator).await.is_none());
    assert_eq!(client.push(Push::new(&simulator, 1, 1)).await, Seen::Accepted);
}

#[test]
fn a_fault_out_of_range_is_named_with_its_rule_and_value() {
    let simulator = start(Faults::default());
    let error = simulator.set_faults(Faults { gone_share: 1.5, ..Faults::default() }).unwrap_err();
    assert_eq!(error.to_string(), "gone_share must be between 0 and 1, got 1.5");
    let error = simulator.set_faults(Faults { stream_limit: 0, ..Faults::default() }).unwrap_err();
    assert_eq!(error.to_string(), "stream_limit must be between 1 and 10000, got 0");
    assert!(simulator.set_faults(Faults { stall_probability: f64::NAN, ..Faults::default() }).is_err());
    assert!(simulator.set_faults(Faults { rejection_probability: 0.1, ..Faults::default() }).is_err());
    assert_eq!(*simulator.faults(), Faults::default());
}
