#![allow(unused, missing_docs, unreachable_pub, clippy::all, dead_code)]
#[path = "/tmp/review/client.rs"] mod client;
#[path = "/tmp/review/server.rs"] mod server;
use std::time::Duration;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::*;
use serde_json::{json, Value};
use client::Client;
use server::{Options, Server};
use tidings_hub::*;
use tidings_protocol::*;
use tidings_types::*;

fn pubs(data: &Value) -> NewPublication {
    NewPublication { publication: Publication { offset: Offset(0), data: Json::of(data), info: None, tags: Tags::default() }, skip_history: false }
}
fn rss() -> usize {
    let s = std::fs::read_to_string("/proc/self/statm").unwrap();
    s.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4 / 1024
}
fn raw(server: &Server) -> std::net::TcpStream {
    let mut s = std::net::TcpStream::connect(server.addr).unwrap();
    s.write_all(b"GET /connection/websocket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n").unwrap();
    let mut got = Vec::new(); let mut b = [0u8; 1];
    while !got.ends_with(b"\r\n\r\n") { s.read_exact(&mut b).unwrap(); got.push(b[0]); }
    s
}
fn frame(op: u8, payload: &[u8]) -> Vec<u8> {
    let mut f = vec![0x80 | op];
    if payload.len() < 126 { f.push(0x80 | payload.len() as u8); } else { f.push(0x80 | 126); f.extend((payload.len() as u16).to_be_bytes()); }
    f.extend([0; 4]); f.extend(payload); f
}

/// A: bursts over turn_bytes_max, reader that reads always.
#[tokio::test]
async fn a_double_window() {
    let server = Server::start(Options::default()).await;
    let mut client = Client::subscribed(&server, "room").await;
    let hub = server.hub.clone();
    let block = "x".repeat(20_000);
    let mut sent = 0u64;
    for round in 0..300 {
        let (h, b, s) = (hub.clone(), block.clone(), sent);
        tokio::task::spawn_blocking(move || { let n = server::channel("room"); for i in 0..25u64 { h.publish(&n, pubs(&json!([s + i, b])), Timestamp(0)).unwrap(); } }).await.unwrap();
        for i in 0..25u64 {
            match tokio::time::timeout(Duration::from_secs(3), client.next()).await {
                Ok(m) => assert_eq!(m["push"]["pub"]["data"][0], sent + i, "round {round}"),
                Err(_) => panic!("round {round}: publication {} of the burst never came; slow={}", i, server.metric("tidings_edge_disconnects_total{reason=\"slow\"}")),
            }
        }
        sent += 25;
    }
}

/// B: one peer floods pong frames; the other gets nothing.
#[tokio::test]
async fn b_flood_starves() {
    let server = Server::start(Options::default()).await;
    let mut client = Client::subscribed(&server, "room").await;
    let mut s = raw(&server);
    let stop = Arc::new(AtomicBool::new(false)); let st = stop.clone();
    let t = std::thread::spawn(move || { let one = frame(10, &[0; 125]); let big: Vec<u8> = one.iter().cycle().take(one.len() * 4000).copied().collect(); let mut n = 0usize;
        s.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        while !st.load(Ordering::Relaxed) { match s.write_all(&big) { Ok(()) => n += big.len(), Err(e) => { eprintln!("flood ended {e}"); break } } } eprintln!("flooded {} MB", n >> 20); });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut worst = 0.0f64;
    for i in 0..20 {
        let at = std::time::Instant::now();
        server.publish("room", json!(i));
        let got = tokio::time::timeout(Duration::from_secs(8), client.next()).await;
        let took = at.elapsed().as_secs_f64(); worst = worst.max(took);
        if got.is_err() { break; }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stop.store(true, Ordering::Relaxed); t.join().unwrap();
    panic!("worst latency {worst:.3} s (stale_timeout was 10 s)");
}

/// C: closing connection that floods pings, reads nothing.
#[tokio::test]
async fn c_closing_grows() {
    let server = Server::start(Options::default()).await;
    let mut s = raw(&server);
    let before = rss();
    let one = frame(9, &[0; 125]); let big: Vec<u8> = one.iter().cycle().take(one.len() * 4000).copied().collect();
    let mut most = 0; let mut n = 0usize;
    let t = std::thread::spawn(move || { s.set_write_timeout(Some(Duration::from_secs(2))).unwrap(); let at = std::time::Instant::now();
        loop { if let Err(e) = s.write_all(&big) { eprintln!("flood ended {e} after {:?}", at.elapsed()); break } n += big.len(); most = most.max(rss()); if at.elapsed().as_secs() > 12 || most > 3000 { break } } eprintln!("after {:?}", at.elapsed()); (n >> 20, most) });
    let (n, most) = t.join().unwrap();
    panic!("flooded {n} MB; rss before {before} MB, most {most} MB; slow={}", server.metric("tidings_edge_disconnects_total{reason=\"slow\"}"));
}

/// D: one 64 KiB frame of history commands.
#[tokio::test]
async fn d_amplify() {
    let server = Server::start(Options::default()).await;
    let block = "x".repeat(2_000);
    for i in 0..300 { server.publish("kept:1", json!([i, block])); }
    let mut other = Client::subscribed(&server, "room").await;
    let mut client = Client::connected(&server).await;
    let mut text = String::new();
    while text.len() < 64_000 { text += "{\"id\":9,\"history\":{\"channel\":\"kept:1\",\"limit\":300}}\n"; }
    let n = text.lines().count();
    let before = rss();
    let stop = Arc::new(AtomicBool::new(false)); let st = stop.clone();
    let t = std::thread::spawn(move || { let mut m = 0; while !st.load(Ordering::Relaxed) { m = m.max(rss()); std::thread::yield_now(); } m });
    let at = std::time::Instant::now();
    client.send_text(text.trim_end()).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    server.publish("room", json!(1));
    other.next().await;
    let took = at.elapsed();
    stop.store(true, Ordering::Relaxed);
    panic!("{n} commands: rss {before} -> {} MB; another client waited {took:?}", t.join().unwrap());
}

/// E: a loop under constant publications: handshakes and pings.
#[tokio::test]
async fn e_busy_mailbox() {
    let server = Server::start(Options { ping_interval: Duration::from_secs(1), ..Options::default() }).await;
    let mut a = Client::subscribed(&server, "room").await;
    let stop = Arc::new(AtomicBool::new(false)); let (st, h) = (stop.clone(), server.hub.clone());
    let t = std::thread::spawn(move || { let n = server::channel("room"); let mut k = 0u64; while !st.load(Ordering::Relaxed) { h.publish(&n, pubs(&json!(1)), Timestamp(0)).unwrap(); k += 1;
         let at = std::time::Instant::now(); while at.elapsed() < Duration::from_micros(15) { std::hint::spin_loop() } } k });
    let reader = tokio::spawn(async move { let mut n = 0u64; let mut pings = 0; let end = tokio::time::Instant::now() + Duration::from_secs(6);
        while let Ok(m) = tokio::time::timeout_at(end, a.next()).await { if m == json!({}) { pings += 1; a.send(json!({})).await; } else { n += 1; } } (n, pings) });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let at = std::time::Instant::now();
    let opened = tokio::time::timeout(Duration::from_secs(5), Client::connected(&server)).await.is_ok();
    let took = at.elapsed();
    let r = reader.await;
    stop.store(true, Ordering::Relaxed);
    panic!("published {}; reader {:?} (publications, pings in 6 s with ping 1 s); new client connected: {opened} after {took:?}", t.join().unwrap(), r.map_err(|e| e.to_string()));
}

/// F: healthy reader, recovery of 300 x 30 kB.
#[tokio::test]
async fn f_big_recovery() {
    let server = Server::start(Options::default()).await;
    let block = "x".repeat(30_000);
    for i in 0..300 { server.publish("kept:1", json!([i, block])); }
    let mut client = Client::connected(&server).await;
    client.send(json!({"id": 2, "subscribe": {"channel": "kept:1", "recover": true, "offset": 0, "epoch": ""}})).await;
    let (m, code) = client.drain().await;
    panic!("replies {}, closed with {code:?}", m.len());
}

/// G: channels that were only ever subscribed to.
#[test]
fn g_channels_stay() {
    use std::collections::BTreeMap;
    let kept = NamespaceOptions { history_size: 10, history_ttl: Duration::from_secs(60), ..NamespaceOptions::closed() };
    let named = BTreeMap::from([("kept".to_owned(), kept), ("durable".to_owned(), NamespaceOptions { durable: true, ..kept })]);
    let hub = Hub::new(HubConfig { namespaces: Arc::new(Namespaces::new(NamespaceOptions::closed(), named)), channel_count_max: 100,
        tail: tidings_stream::TailBounds { frame_count_max: 10, bytes_max: 1000 }, durable_epoch: Epoch::from_random(1) }, 1);
    let (id, _) = hub.loops().next().unwrap();
    let me = ClientId::from_random(1);
    for i in 0..100 {
        let name = server::channel(&format!("{}:{i}", if i % 2 == 0 { "kept" } else { "durable" }));
        let s = hub.subscribe(&name, &Member { loop_id: id, presence: None }, None).unwrap();
        s.channel.unsubscribe(id, me);
    }
    for day in [0u64, 1, 29, 31, 62, 400] { hub.sweep(Timestamp(day * 86_400_000 + 1)); eprintln!("day {day}: {:?}", hub.counts()); }
    // durable offset lost to the limit, then room again
    let hub2 = Hub::new(HubConfig { namespaces: Arc::new(Namespaces::new(NamespaceOptions::closed(), BTreeMap::from([("durable".to_owned(), NamespaceOptions { durable: true, ..kept })]))), channel_count_max: 1,
        tail: tidings_stream::TailBounds { frame_count_max: 10, bytes_max: 1000 }, durable_epoch: Epoch::from_random(1) }, 1);
    let (id, _) = hub2.loops().next().unwrap();
    let s = hub2.subscribe(&server::channel("room"), &Member { loop_id: id, presence: None }, None).unwrap();
    let d = server::channel("durable:1");
    let p = pubs(&json!(1)).publication;
    eprintln!("{:?}", hub2.publish_durable(&d, Offset(1), p, Timestamp(0)).err());
    s.channel.unsubscribe(id, me); hub2.sweep(Timestamp(1));
    let s = hub2.subscribe(&d, &Member { loop_id: id, presence: None }, Some(&ResumeFrom { offset: Offset(0), epoch: None, count_max: 10 })).unwrap();
    panic!("durable:1 has one durable publication; resume from 0 says {:?}, top {:?}", s.recovery, s.top);
}

/// H: whole loop overtaken while one joins: stale Arc / stuck channel at the hub level.
#[tokio::test]
async fn h_overtaken_channel_recovers() {
    let server = Server::start(Options { frame_count_max: 64, ..Options::default() }).await;
    for round in 0..400 {
        let mut a = Client::subscribed(&server, "room").await;
        let mut b = Client::connected(&server).await;
        // the loop is kept busy by b's commands while the burst comes; its last command subscribes
        let mut text = String::new();
        for _ in 0..700 { text += "{\"id\":5,\"presence_stats\":{\"channel\":\"kept:2\"}}\n"; }
        text += "{\"id\":7,\"subscribe\":{\"channel\":\"room\"}}";
        b.send_text(&text).await;
        let h = server.hub.clone();
        tokio::task::spawn_blocking(move || { let n = server::channel("room"); std::thread::sleep(Duration::from_micros((round % 40) * 50)); for i in 0..200u64 { h.publish(&n, pubs(&json!(i)), Timestamp(0)).unwrap(); } }).await.unwrap();
        // b may have been closed as slow itself; only the case where it stays counts
        let mut subscribed = false;
        tokio::time::timeout(Duration::from_secs(5), async { loop { let m = b.next().await; if m["id"] == 7 { break } } }).await.expect("reply");
        tokio::time::sleep(Duration::from_millis(20)).await;
        server.publish("room", json!("after"));
        let got = tokio::time::timeout(Duration::from_secs(2), async { let (m, c) = b_until(&mut b).await; (m, c) }).await;
        match got { Ok((_, _)) => {}, Err(_) => panic!("round {round}: subscriber stays connected and gets nothing; slow={}", server.metric("tidings_edge_disconnects_total{reason=\"slow\"}")) }
    }
}
async fn b_until(b: &mut Client) -> (usize, Option<u16>) {
    let mut n = 0;
    loop { match b.try_next().await { Ok(m) => { n += 1; if m["push"]["pub"]["data"] == "after" { return (n, None) } } Err(code) => return (n, code) } }
}
