//! Against real sockets: packets as an agent gets them, and an agent that is not there.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tidings_telemetry::{Metric, Registry};
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout};

use super::{Arrival, Influxing, Traffic};
use tidings_config::{ByteSize, HostPort, Influx, Tag};

static BOOKS: Metric = Metric::counter("tidings_test_books_total");
static SHELVES: Metric = Metric::counter("tidings_test_books_total").labels(&["shelf"]);

const DEADLINE: Duration = Duration::from_secs(10);

fn config(agent: SocketAddr, interval: Duration) -> Influx {
    let tag = |key: &str, value: &str| Tag { key: key.to_owned(), value: value.to_owned() };
    Influx {
        address: Some(HostPort(agent.to_string())),
        interval,
        socket_count: 3,
        packet_bytes: ByteSize(512),
        tags: vec![tag("host", "web 1"), tag("region", "eu")],
    }
}

async fn agent() -> UdpSocket {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap()
}

/// Packets until one satisfies `is_last`.
async fn packets(agent: &UdpSocket, is_last: impl Fn(&str) -> bool) -> Vec<String> {
    let mut packets = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    while packets.last().is_none_or(|packet: &String| !is_last(packet)) {
        let length = timeout(DEADLINE, agent.recv(&mut buffer)).await.expect("a packet comes").unwrap();
        packets.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
    }
    packets
}

/// What `field` of measurement `tidings_test` adds up to.
fn sum(packets: &[String], field: &str) -> i64 {
    let lines = packets.iter().flat_map(|packet| packet.lines()).filter(|line| line.starts_with("tidings_test,"));
    let fields = lines.flat_map(|line| line.rsplit(' ').nth(1).unwrap().split(','));
    let values = fields.filter_map(|text| text.strip_prefix(field)?.strip_prefix('=')?.strip_suffix('i'));
    values.map(|value| value.parse::<i64>().unwrap()).sum()
}

#[tokio::test]
async fn packets_are_full_of_whole_lines_and_the_end_is_told_too() {
    let (agent, registry) = (agent().await, Registry::new());
    let shelves: Vec<_> = (0..40).map(|shelf| registry.counter(&SHELVES, &[shelf.to_string().as_str()])).collect();
    shelves.iter().for_each(|shelf| shelf.add(5));
    let influx = Influxing::start(&config(agent.local_addr().unwrap(), Duration::from_hours(1)), &registry).unwrap();
    let mut got = packets(&agent, |packet| packet.contains("shelf=9 ")).await;
    shelves.iter().for_each(|shelf| shelf.add(2));
    influx.stop().await;
    got.extend(packets(&agent, |packet| packet.contains("shelf=9 ")).await);

    assert_eq!(sum(&got, "books"), 40 * 7);
    let line = "tidings_test,host=web\\ 1,region=eu,shelf=0 books=5i ";
    assert!(got.iter().any(|packet| packet.lines().any(|text| text.starts_with(line))), "{got:?}");
    for packet in &got {
        assert!(packet.len() <= 512 && packet.ends_with('\n'), "{packet}");
    }
    // As few as possible: the last of each flush may be short.
    let room = 512 - line.len() - "1700000000000000000\n".len() - 2;
    let short = got.iter().filter(|packet| packet.len() < room).count();
    assert!(short <= 2, "{:?}", got.iter().map(String::len).collect::<Vec<_>>());
}

#[tokio::test]
async fn our_own_counters_are_those_of_what_the_agent_got() {
    let (agent, registry) = (agent().await, Registry::new());
    let books = registry.counter(&BOOKS, &[]);
    let influx = Influxing::start(&config(agent.local_addr().unwrap(), Duration::from_millis(20)), &registry).unwrap();
    let mut got = Vec::new();
    for _ in 0..10 {
        books.add(3);
        got.extend(packets(&agent, |packet| packet.contains("books=")).await);
    }
    books.inc();
    influx.stop().await;
    got.extend(packets(&agent, |packet| packet.contains("books=")).await);
    assert_eq!(sum(&got, "books"), 31);
    let mut buffer = [0; 1024];
    while let Ok(length) = agent.try_recv(&mut buffer) {
        got.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
    }
    let (lines, text) = (got.iter().map(|packet| packet.lines().count()).sum::<usize>(), registry.prometheus());
    for (name, value) in [("points", lines), ("packets", got.len()), ("dropped", 0)] {
        assert!(text.contains(&format!("\ntidings_influx_{name}_total {value}\n")), "{name} {value} in {text}");
    }
}

#[tokio::test]
async fn an_agent_that_is_not_there_is_told_of_once_and_found_when_it_comes() {
    let absent = agent().await;
    let address = absent.local_addr().unwrap();
    drop(absent);
    let mut traffic = Traffic::start(&address.to_string(), 2, 512);
    let mut driver = tokio::task::JoinSet::new();
    driver.spawn(traffic.writer.driver().unwrap().run());
    let mut arrival = Arrival::new(address.to_string());
    let mut changes = Vec::new();
    let mut step = async |changes: &mut Vec<bool>, traffic: &mut Traffic| {
        traffic.writer.write(b"tidings_test,a=b c=1i 1\n").unwrap();
        let _lost_is_fine = traffic.writer.flush(DEADLINE).await;
        sleep(Duration::from_millis(5)).await; // A refusal comes back while others run.
        let before = arrival.seems_well;
        arrival.look(traffic);
        if arrival.seems_well != before {
            changes.push(arrival.seems_well);
        }
    };
    let told = async {
        while changes.is_empty() {
            step(&mut changes, &mut traffic).await;
        }
        while traffic.writer.counters().dropped == 0 {
            step(&mut changes, &mut traffic).await;
        }
    };
    timeout(DEADLINE, told).await.expect("it is told and counted");
    let agent = UdpSocket::bind(address).await.unwrap();
    assert_eq!(changes, [false], "once, and not that it is there before it is");
    let mut packet = [0; 512];
    let again = async {
        while changes.last() != Some(&true) || agent.try_recv(&mut packet).is_err() {
            step(&mut changes, &mut traffic).await;
        }
    };
    timeout(DEADLINE, again).await.expect("it is told that it came");
    assert!(packet.starts_with(b"tidings_test,a=b c=1i 1\n\0"), "what it got: {packet:?}");
    assert_eq!(changes, [false, true]);
}

/// No socket, no look-up, no task.
#[test]
fn nothing_is_started_without_an_address() {
    let config = Influx { address: None, ..config("127.0.0.1:1".parse().unwrap(), DEADLINE) };
    assert!(Influxing::start(&config, &Registry::new()).is_none());
}
