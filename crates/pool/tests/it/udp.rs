//! A protocol with ids over UDP: 16 bits of id, then text. Datagrams are lost, doubled and late.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tidings_pool::{CallError, Codec, Decoded, Expect, Matching, Outgoing, Pool, PoolConfig, Protocol, RequestId, Udp};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::line::{BadLine, MINUTE, SECOND, check, config, until};

struct Datagrams {
    id_count: u64,
}

/// A request: text, and whether an answer is expected.
type Question = (String, bool);

impl Protocol for Datagrams {
    type Request = Question;
    type Response = String;
    type Error = BadLine;
    type Codec = Coding;

    fn codec(&self) -> Coding {
        Coding
    }

    fn matching(&self) -> Matching {
        Matching::ById { id_count: self.id_count }
    }
}

struct Coding;

impl Codec<Datagrams> for Coding {
    fn encode(&mut self, request: &Question, id: RequestId, out: &mut Outgoing) -> Result<Expect<String>, BadLine> {
        out.put_slice(&u16::try_from(id).expect("within id_count").to_be_bytes());
        out.put_bytes(request.0.clone().into());
        Ok(if request.1 { Expect::Answer } else { Expect::Nothing(String::new()) })
    }

    fn decode(&mut self, _: Option<&Question>, input: &mut BytesMut) -> Result<Decoded<String>, BadLine> {
        if input.len() < 2 {
            return Ok(Decoded::Incomplete);
        }
        let id = input.get_u16();
        let text = String::from_utf8(input.split().to_vec()).map_err(|_| BadLine("not text".into()))?;
        Ok(Decoded::to(id.into(), text))
    }
}

async fn service() -> (UdpSocket, Udp) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let udp = Udp::new(socket.local_addr().unwrap().to_string());
    (socket, udp)
}

/// The next datagram. Not for services that wait for ever.
async fn received(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = vec![0; 2048];
    let datagram = tokio::time::timeout(SECOND * 10, socket.recv_from(&mut buffer)).await;
    let (count, from) = datagram.expect("there is a datagram").unwrap();
    buffer.truncate(count);
    (buffer, from)
}

fn settings(connection_count: usize) -> PoolConfig {
    PoolConfig { backlog_max: 1000, in_flight_max: 500, ..config(connection_count) }
}

#[tokio::test]
async fn answers_in_any_order_lost_and_doubled() {
    let (socket, udp) = service().await;
    let mut peer = JoinSet::new();
    peer.spawn(async move {
        let mut held = Vec::new();
        let mut buffer = [0; 2048];
        for n in 0.. {
            let (count, from) = socket.recv_from(&mut buffer).await.unwrap();
            let datagram = buffer[..count].to_vec();
            let number: u32 = String::from_utf8_lossy(&datagram[2..]).split(' ').next().unwrap().parse().unwrap();
            if number % 10 == 3 {
                continue; // Lost.
            }
            held.push((datagram, from));
            if n % 3 == 2 {
                // In reverse order, each of them twice.
                for (datagram, from) in held.drain(..).rev() {
                    socket.send_to(&datagram, from).await.unwrap();
                    socket.send_to(&datagram, from).await.unwrap();
                }
                socket.send_to(b"\0", from).await.unwrap(); // Too short to be anything.
                socket.send_to(b"", from).await.unwrap();
            }
        }
    });
    let pool = Pool::start(settings(3), Datagrams { id_count: 1 << 16 }, udp).unwrap();
    let mut calls = JoinSet::new();
    for n in 0..90 {
        let pool = pool.clone();
        calls.spawn(async move {
            let text = format!("{n} {}", "x".repeat(n * 15));
            match pool.call((text.clone(), true), SECOND).await {
                Ok(answer) => {
                    assert_eq!(answer, text);
                    true
                }
                Err(CallError::Timeout { sent: true }) => false,
                Err(other) => panic!("{other:?}"),
            }
        });
    }
    let answered = calls.join_all().await.iter().filter(|is_answered| **is_answered).count();
    assert!((70..=81).contains(&answered), "{answered} of 81 that were not lost (the last may wait for a third)");
    let counters = pool.counters();
    assert!(counters.late >= 70, "doubles: {counters:?}");
    assert_eq!((counters.tombstones, counters.held, counters.disconnects), (0, 0, 0));
    check(counters);
}

#[tokio::test]
async fn a_late_answer_is_discarded_even_if_there_are_few_ids() {
    let (socket, udp) = service().await;
    let pool = Pool::start(settings(1), Datagrams { id_count: 2 }, udp).unwrap();
    let late = pool.call(("late".into(), true), Duration::from_millis(20));
    assert_eq!(late.await, Err(CallError::Timeout { sent: true }));
    let (datagram, from) = received(&socket).await;
    assert_eq!(datagram, b"\0\0late");
    let service = async {
        let (other, _) = received(&socket).await;
        assert_eq!(other, b"\0\x01next");
        socket.send_to(b"\0\0late", from).await.unwrap();
        socket.send_to(b"\0\x07never given out", from).await.unwrap();
        socket.send_to(&other, from).await.unwrap();
    };
    let (next, ()) = tokio::join!(pool.call(("next".into(), true), SECOND), service);
    assert_eq!(next.unwrap(), "next");
    assert_eq!(pool.counters().late, 2);
    check(pool.counters());
}

#[tokio::test]
async fn the_number_of_ids_bounds_the_requests_in_flight() {
    let (socket, udp) = service().await;
    let pool = Pool::start(settings(1), Datagrams { id_count: 4 }, udp).unwrap();
    let (tx, mut rx) = mpsc::channel(100);
    for n in 0..100 {
        pool.cast((format!("{n}"), true), MINUTE, n, &tx).unwrap();
    }
    assert_eq!(until(&pool, |counters| counters.in_flight == 4).await.held, 100);
    let mut peer = JoinSet::new();
    peer.spawn(async move {
        let mut buffer = [0; 100];
        loop {
            let (count, from) = socket.recv_from(&mut buffer).await.unwrap();
            socket.send_to(&buffer[..count], from).await.unwrap();
        }
    });
    for _ in 0..100 {
        let answer = rx.recv().await.unwrap();
        assert_eq!(answer.result.unwrap(), format!("{}", answer.tag));
    }
}

#[tokio::test]
async fn one_way_datagrams_are_one_packet_each() {
    let (socket, udp) = service().await;
    let pool = Pool::start(settings(1), Datagrams { id_count: 1 << 16 }, udp).unwrap();
    let texts: Vec<String> = (0..50).map(|n| format!("{n}").repeat(n * 10)).collect();
    for text in &texts {
        pool.call((text.clone(), false), SECOND).await.unwrap();
    }
    for text in &texts {
        assert_eq!(&received(&socket).await.0[2..], text.as_bytes());
    }
    let counters = pool.counters();
    assert_eq!((counters.sent, counters.answered, counters.in_flight), (50, 50, 0));
}

#[tokio::test]
async fn a_refused_port_fails_the_requests_sent_to_it() {
    let (socket, udp) = service().await;
    drop(socket);
    let pool = Pool::start(settings(1), Datagrams { id_count: 1 << 16 }, udp).unwrap();
    // The kernel reports it when a later datagram is sent. Then all requests that were sent are lost.
    let mut calls = JoinSet::new();
    let mut is_refused = false;
    while !is_refused {
        let pool_of_call = pool.clone();
        calls.spawn(async move { pool_of_call.call(("anybody?".into(), true), MINUTE).await });
        let sent = calls.len() as u64;
        let counters = until(&pool, |counters| counters.in_flight == sent || counters.disconnects > 0).await;
        is_refused = counters.disconnects > 0;
        assert!(is_refused || sent < 100, "the kernel refuses nothing: {counters:?}");
    }
    for result in calls.join_all().await {
        assert_eq!(result, Err(CallError::Lost));
    }
    check(pool.counters());
}

#[tokio::test]
async fn a_datagram_that_is_too_large_fails_alone() {
    let (socket, udp) = service().await;
    let pool = Pool::start(settings(1), Datagrams { id_count: 1 << 16 }, udp).unwrap();
    let result = pool.call(("x".repeat(100_000), true), SECOND).await;
    assert_eq!(result, Err(CallError::Lost));
    until(&pool, |counters| counters.connected == 1).await;
    pool.call(("small".into(), false), SECOND).await.unwrap();
    assert_eq!(&received(&socket).await.0[2..], b"small");
}
