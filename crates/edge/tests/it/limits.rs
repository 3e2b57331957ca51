//! Peers that ask for much, take little or stay silent: what they cost is bounded, and the others are served.
//!
//! Each limit of the edge, and the test that shows it. Without a file, the test is in this one.
//!
//! | Limit | Test |
//! |---|---|
//! | `connection_count_max` | `main`: `one_connection_too_many_is_refused_with_503_and_room_comes_back` |
//! | `address_connection_count_max` | `an_address_has_its_number_of_connections_over_all_transports` |
//! | `message_bytes_max`; 64 empty fragments; frames that are not allowed | `a_frame_that_is_not_allowed_ends_its_own_connection` |
//! | commands in one read: 1 ms, then others have their turn | `commands_of_one_client_do_not_hold_its_loop` |
//! | commands in requests of their own: count and bytes | `streams`: `commands_that_pile_up_end_their_stream_and_no_other` |
//! | `turn_bytes_max` | `main`: `a_burst_over_many_turns_reaches_a_reader_that_keeps_up` |
//! | `control_bytes_max` | `main`: `large_answers_wait_for_the_reader_and_all_come`, `a_flood_of_pings_that_nobody_reads_the_answers_of_is_not_taken` |
//! | `reply_budget_bytes` | `readers_that_take_nothing_share_a_budget_and_cost_nobody_else` |
//! | `input_budget_bytes` | `messages_without_an_end_share_a_budget_and_cost_nobody_else`, `connects_that_wait_for_a_proof_share_a_budget` |
//! | `reply_bytes_max` | `one_answer_holds_a_bounded_number_of_bytes`, `a_crowd_too_large_for_an_answer_is_only_counted` |
//! | `recovery_count_max` | `a_client_that_missed_too_many_is_told_of_a_gap` |
//! | `channel_creations_per_minute` | `a_user_creates_only_so_many_channels_a_minute` |
//! | all tails together | `thinning`: `slow_readers_of_many_channels_share_a_budget_and_cost_the_others_nothing` |
//! | the tail of a channel | `main`: `a_slow_reader_is_closed_and_costs_the_others_nothing`; `streams`: `a_stream_that_the_tail_overtakes_ends_with_3008` |
//! | `ping_interval`, `pong_timeout` | `main`: `a_client_that_does_not_answer_pings_is_closed_with_3012` |
//! | `write_timeout` | `a_peer_that_takes_nothing_is_cut_off_at_any_stage`; `streams`: `a_stream_that_takes_nothing_is_cut_off` |
//! | `stale_timeout` | `main`: `who_never_connects_is_closed_with_3502`; `a_peer_that_sends_drop_by_drop_has_no_more_time` |
//! | `close_timeout` | `a_peer_that_does_not_close_is_cut_off` |
//! | orders that wait for a loop | `server_side`: `too_many_orders_at_once_are_refused` |
//! | the time that a proof may take | `a_proof_that_takes_too_long_is_given_up_and_its_client_connected` |
//! | handshakes that wait for a loop | none: it needs 1024 open sockets behind a loop that stands |
//! | `allowed_origins` | `streams`: `pages_of_admitted_origins_may_read_the_answers_and_no_others` |
//!
//! HTTP heads and bodies that come drop by drop never reach the edge: the listener has time-outs for them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tidings_hub::Member;
use tidings_protocol::{ClientId, ClientInfo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::client::{self, Client, DEADLINE, Frame};
use crate::server::{JSON, Options, Server, channel};

fn disconnects(server: &Server, reason: &str) -> f64 {
    server.metric(&format!("tidings_edge_disconnects_total{{reason=\"{reason}\"}}"))
}

fn offsets(answer: &Value) -> Vec<u64> {
    let publications = answer["publications"].as_array().into_iter().flatten();
    publications.map(|publication| publication["offset"].as_u64().unwrap()).collect()
}

/// A client that resumes over too many bytes is told so; one that reads history gets it in pieces.
#[tokio::test]
async fn one_answer_holds_a_bounded_number_of_bytes() {
    let server = Server::start(Options { reply_bytes_max: 20_000, ..Options::default() }).await;
    for value in 0..10 {
        server.publish("kept:1", json!([value, "x".repeat(5000)]));
    }
    let mut client = Client::subscribed(&server, "kept:1").await;
    let epoch = client.epoch.clone();
    for (offset, recovered) in [(8, vec![9, 10]), (7, vec![8, 9, 10]), (6, vec![]), (0, vec![])] {
        client.send(json!({"id": 3, "unsubscribe": {"channel": "kept:1"}})).await;
        client.reply(3).await;
        let resume = json!({"channel": "kept:1", "recover": true, "offset": offset, "epoch": epoch});
        let answer = client.subscribe(resume).await;
        assert_eq!(answer["recovered"] == true, !recovered.is_empty(), "{offset}");
        assert_eq!(offsets(&answer), recovered, "{offset}");
    }
    let (mut seen, mut since) = (Vec::new(), 0);
    while since < 10 {
        let history = json!({"channel": "kept:1", "limit": 10, "since": {"offset": since, "epoch": epoch}});
        client.send(json!({"id": 4, "history": history})).await;
        let page = client.reply(4).await["history"].clone();
        assert!((1..=3).contains(&offsets(&page).len()));
        assert_eq!(page["offset"], 10, "the client sees that there is more");
        seen.extend(offsets(&page));
        since = *seen.last().unwrap();
    }
    assert_eq!(seen, (1..=10).collect::<Vec<_>>());
    // One larger than that comes alone.
    server.publish("kept:1", json!("x".repeat(50_000)));
    client.send(json!({"id": 5, "history": {"channel": "kept:1", "limit": 10, "reverse": true}})).await;
    assert_eq!(offsets(&client.reply(5).await["history"]), [11]);
}

fn crowd(server: &Server, name: &str, count: u128) {
    let (loop_id, _) = server.hub.loops().next().unwrap();
    for client in 0..count {
        let client = ClientId::from_random(client);
        let presence = Some(ClientInfo { user: "somebody".to_owned(), client, conn_info: None, chan_info: None });
        server
            .hub
            .subscribe(
                &channel(name),
                &Member { presence, ..Member::reader(loop_id, ClientId::from_random(1), JSON) },
                None,
            )
            .unwrap();
    }
}

#[tokio::test]
async fn a_crowd_too_large_for_an_answer_is_only_counted() {
    let server = Server::start(Options { reply_bytes_max: 20_000, ..Options::default() }).await;
    crowd(&server, "kept:1", 1000);
    crowd(&server, "kept:2", 50);
    let mut client = Client::connected(&server).await;
    client.send(json!({"id": 2, "presence": {"channel": "kept:1"}})).await;
    assert_eq!(client.reply(2).await["error"]["code"], 106);
    client.send(json!({"id": 3, "presence_stats": {"channel": "kept:1"}})).await;
    assert_eq!(client.reply(3).await["presence_stats"], json!({"num_clients": 1000, "num_users": 1}));
    client.send(json!({"id": 4, "presence": {"channel": "kept:2"}})).await;
    assert_eq!(client.reply(4).await["presence"]["presence"].as_object().unwrap().len(), 50);
}

/// Each asks for more than the system's buffers take, and reads nothing.
#[tokio::test]
async fn readers_that_take_nothing_share_a_budget_and_cost_nobody_else() {
    let options = Options { control_bytes_max: 4 << 20, reply_budget_bytes: 4 << 20, ..Options::default() };
    let server = Server::start(options).await;
    for value in 0..100 {
        server.publish("kept:1", json!([value, "x".repeat(9000)]));
    }
    let mut bystanders = [Client::connected(&server).await, Client::connected(&server).await];
    let asks: Vec<_> =
        (2..30).map(|id| json!({"id": id, "history": {"channel": "kept:1", "limit": 100}}).to_string()).collect();
    let mut greedy = Vec::new();
    for _ in 0..6 {
        let mut client = Client::connected(&server).await;
        client.send_text(&asks.join("\n")).await;
        greedy.push(client);
    }
    server.until("some are cut off", || disconnects(&server, "reply_budget") > 0.0).await;
    for client in &mut bystanders {
        client.send(json!({"id": 2, "history": {"channel": "kept:1", "limit": 100}})).await;
        assert_eq!(offsets(&client.reply(2).await["history"]).len(), 100);
    }
    let is_whole = |message: &Value| offsets(&message["history"]).len() == 100;
    let mut served = 0.0;
    for client in &mut greedy {
        let messages = client.flush_or_end().await;
        assert!(messages.iter().all(is_whole), "what a client was given is whole");
        served += f64::from(u8::from(!messages.is_empty()));
    }
    let cut_off = disconnects(&server, "reply_budget");
    assert!((1.0..=6.0).contains(&cut_off), "{cut_off}");
    assert!(served + cut_off >= 6.0, "{served} were given something, {cut_off} were cut off");
}

/// Other addresses have their own number.
#[tokio::test]
async fn an_address_has_its_number_of_connections_over_all_transports() {
    let [one, other] = [[127, 0, 0, 1], [127, 0, 0, 2]];
    let server = Server::start(Options { address_connection_count_max: 2, ..Options::default() }).await;
    let websocket = client::upgrade_request("/connection/websocket", "");
    let stream = b"GET /connection/uni_sse HTTP/1.1\r\nHost: test\r\n\r\n";
    let (first, _socket) = client::asked_from(&server, one, &websocket).await;
    let (second, leaving) = client::asked_from(&server, one, stream).await;
    assert_eq!((first, second), (101, 200));
    for request in [&websocket[..], stream] {
        assert_eq!(client::asked_from(&server, one, request).await.0, 429);
        assert_eq!(client::asked_from(&server, other, request).await.0, if request == stream { 200 } else { 101 });
    }
    assert_eq!(server.metric("tidings_edge_handshakes_refused_total{reason=\"address\"}"), 2.0);
    drop(leaving);
    server.until("those that left are gone", || server.edge().connection_count() == 1).await;
    assert_eq!(client::asked_from(&server, one, stream).await.0, 200);
}

/// Each has sent most of a message that is allowed, and says nothing more.
#[tokio::test]
async fn messages_without_an_end_share_a_budget_and_cost_nobody_else() {
    const PEERS: usize = 20;
    let server = Server::start(Options { input_budget_bytes: 256 << 10, ..Options::default() }).await;
    let mut bystander = client::upgraded(&server).await;
    let [begin, end] = [(0x01, r#"{"id":1,"conn"#), (0x80, r#"ect":{}}"#)]
        .map(|(first, text)| [&[first, 0x80 | text.len() as u8, 0, 0, 0, 0], text.as_bytes()].concat());
    bystander.write_all(&begin).await.unwrap();
    let most = [&[0x81, 0x80 | 126, 0xEA, 0x60, 0, 0, 0, 0][..], &[b'x'; 50_000]].concat();
    let mut peers = Vec::new();
    for _ in 0..PEERS {
        let mut peer = client::upgraded(&server).await;
        peer.write_all(&most).await.unwrap();
        peers.push(peer);
    }
    // Half of the budget is for this: 128 KiB, the messages of two peers on each of the two loops.
    server.until("most are closed", || disconnects(&server, "input") >= PEERS as f64 - 4.0).await;
    bystander.write_all(&end).await.unwrap();
    let mut answer = [0; 64];
    let count = timeout(DEADLINE, bystander.read(&mut answer)).await.expect("an answer").unwrap();
    assert!(String::from_utf8_lossy(&answer[..count]).contains(r#""connect""#), "{answer:?}");
    let held = || server.metric("tidings_edge_input_bytes");
    server.until("the metric has what the others hold", || (1.0..=262_144.0).contains(&held())).await;
    assert_eq!(client::close_code(&mut peers[0]).await, Some(3013), "who holds as much for longer goes first");
    drop(peers);
    server.until("nothing is held", || held() == 0.0).await;
}

/// The directory answers when the test allows it. A connect that keeps too much to wait for that is let in without a proof.
#[tokio::test]
async fn connects_that_wait_for_a_proof_share_a_budget() {
    let server = Server::start(Options { input_budget_bytes: 32 << 10, ..Options::default() }).await;
    let connect = json!({"id": 1, "connect": {
        "name": "x".repeat(6000), "data": {"tidings": {"device": "phone-9", "credential": "secret-9"}},
    }});
    let lookups = || server.lookups.load(Ordering::Relaxed);
    let mut clients = JoinSet::new();
    for count in 1..=10 {
        let mut client = Client::open(&server).await;
        client.send(connect.clone()).await;
        server.until("it is handled", || server.metric("tidings_edge_commands_total") == f64::from(count)).await;
        clients.spawn(async move {
            assert!(client.reply(1).await["connect"].is_object());
            client
        });
    }
    assert_eq!(lookups(), 4, "there are 16 KiB on each of the two loops: for two connects");
    server.permits.add_permits(5);
    assert_eq!(clients.join_all().await.len(), 10);
    let mut late = Client::open(&server).await;
    late.send(connect).await;
    assert!(late.reply(1).await["connect"].is_object());
    assert_eq!(lookups(), 5, "there is room again");
}

/// A bystander on the same loop is answered while a frame full of commands is worked off, or many frames of one read.
#[tokio::test]
async fn commands_of_one_client_do_not_hold_its_loop() {
    for commands_in_a_frame in [1000, 1] {
        one_client_does_not_hold_its_loop(commands_in_a_frame).await;
    }
}

async fn one_client_does_not_hold_its_loop(commands_in_a_frame: usize) {
    let options = Options { control_bytes_max: 1 << 30, reply_budget_bytes: 1 << 30, ..Options::default() };
    let server = Server::start(options).await;
    crowd(&server, "kept:1", 100);
    let mut busy = Client::connected(&server).await;
    let _on_the_other_loop = Client::connected(&server).await;
    let mut bystander = Client::connected(&server).await;
    let done = || server.metric("tidings_edge_commands_total");
    let before = done();
    let asks: Vec<_> = (2..1002).map(|id| json!({"id": id, "presence": {"channel": "kept:1"}}).to_string()).collect();
    for frame in asks.chunks(commands_in_a_frame) {
        busy.send_text(&frame.join("\n")).await;
    }
    server.until("the first commands are done", || done() > before).await;
    bystander.send(json!({"id": 2, "presence_stats": {"channel": "kept:1"}})).await;
    bystander.reply(2).await;
    assert!(done() < before + 1000.0, "the bystander waited for all of them");
    for id in 2..1002 {
        assert_eq!(busy.reply(id).await["presence"]["presence"].as_object().unwrap().len(), 100);
    }
}

#[tokio::test]
async fn a_peer_that_takes_nothing_is_cut_off_at_any_stage() {
    let options = Options {
        write_timeout: Duration::from_millis(300),
        stale_timeout: Duration::from_secs(300),
        control_bytes_max: 64 << 10,
        ..Options::default()
    };
    let server = Server::start(options).await;
    let mut reader = Client::connected(&server).await;
    // One has not connected yet.
    let flood = client::flood(&server, Frame::Ping);
    server.until("it is cut off", || disconnects(&server, "stalled") == 1.0).await;
    assert!(flood.ended().await < client::FLOOD_BYTES);
    // One has, and asks for more than the system takes for it.
    for value in 0..100 {
        server.publish("kept:1", json!([value, "x".repeat(9000)]));
    }
    let mut silent = Client::connected(&server).await;
    let ask = json!({"history": {"channel": "kept:1", "limit": 100}});
    for id in 2..30 {
        let mut ask = ask.clone();
        ask["id"] = json!(id);
        silent.send(ask).await;
    }
    server.until("it is cut off", || disconnects(&server, "stalled") == 2.0).await;
    server.until("both have gone", || server.edge().connection_count() == 1).await;
    reader.send(json!({"id": 2, "presence_stats": {"channel": "kept:1"}})).await;
    reader.reply(2).await;
}

/// Who publishes into ever new channels is told to wait; into those that are there anybody may.
#[tokio::test]
async fn a_user_creates_only_so_many_channels_a_minute() {
    let server = Server::start(Options::default()).await;
    let mut client = Client::connected(&server).await;
    let mut codes = Vec::new();
    for name in (0..25).map(|index| format!("kept:{index}")).chain(["kept:0".to_owned(), "passing".to_owned()]) {
        client.send(json!({"id": 2, "publish": {"channel": name, "data": 1}})).await;
        codes.push(client.reply(2).await["error"]["code"].as_u64());
    }
    let expected = [vec![None; 20], vec![Some(111); 5], vec![None; 2]].concat();
    assert_eq!(codes, expected);
    assert_eq!(server.metric("tidings_edge_channel_creations_refused_total"), 5.0);
    client.send(json!({"id": 3, "publish": {"channel": "durable:new", "data": 1}})).await;
    assert_eq!(client.reply(3).await["error"]["code"], 111);
}

/// A client that comes and goes through any number of channels leaves none behind: there is room for 100.
#[tokio::test]
async fn subscribing_and_leaving_uses_up_no_channels() {
    let server = Server::start(Options::default()).await;
    let mut client = Client::connected(&server).await;
    for index in 0..300 {
        let name = format!("{}{index}", ["kept:", "durable:", ""][index % 3]);
        client.subscribe(json!({"channel": name})).await;
        client.send(json!({"id": 3, "unsubscribe": {"channel": name}})).await;
        client.reply(3).await;
    }
    assert_eq!(server.hub.counts().channels, 0);
}

/// The JavaScript SDK tells the application of a publication that stands behind a subscribe reply in the same frame before
/// those that the reply recovers.
#[tokio::test]
async fn each_reply_has_a_frame_of_its_own() {
    let server = Server::start(Options::default()).await;
    server.publish("kept:1", json!("missed"));
    let mut client = Client::open(&server).await;
    client
        .send_text(
            r#"{"id":1,"connect":{}}
{"id":2,"subscribe":{"channel":"kept:1","recover":true}}
{"id":3,"publish":{"channel":"kept:1","data":"live"}}
{"id":4,"history":{"channel":"kept:1","limit":2}}"#,
        )
        .await;
    for _ in 0..5 {
        let frame = client.frame().await;
        assert_eq!(frame.lines().count(), 1, "{frame}");
        serde_json::from_str::<Value>(&frame).unwrap();
    }
}

/// The frame of a client, with a mask of zeros. `len` is what the header says.
fn header(first: u8, len: u16) -> Vec<u8> {
    [&[first, 0x80 | 126][..], &len.to_be_bytes(), &[0; 4]].concat()
}

fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    [header(first, payload.len() as u16), payload.to_vec()].concat()
}

/// Each is closed with its code, and does not answer that: it is gone after the close timeout, and so is what it cost.
#[tokio::test]
async fn a_frame_that_is_not_allowed_ends_its_own_connection() {
    let options = Options { close_timeout: Duration::from_millis(100), ..Options::default() };
    let server = Server::start(options).await;
    let mut bystander = Client::subscribed(&server, "kept:1").await;
    let fragments = |count| [frame(0x01, b"{"), frame(0x00, b"").repeat(count)].concat();
    for (what, bytes, code) in [
        ("a frame without a mask", b"\x81\x02{}".to_vec(), 1002),
        ("a reserved bit", frame(0xC1, b"{}"), 1002),
        ("a reserved opcode", frame(0x83, b"{}"), 1002),
        ("a continuation of nothing", frame(0x80, b"{}"), 1002),
        ("a ping too long", header(0x89, 126), 1002),
        ("text that is not UTF-8", frame(0x81, b"\xFF"), 1007),
        ("empty fragments", fragments(65), 1008),
        ("fragments too long together", [frame(0x01, &[b' '; 60_000]), header(0x00, 6000)].concat(), 1009),
        ("a header of a message too long", [&[0x81, 0xFF][..], &(1_u64 << 40).to_be_bytes(), &[0; 4]].concat(), 1009),
        ("a close code that is not allowed", frame(0x88, &1005_u16.to_be_bytes()), 1002),
    ] {
        let mut socket = client::upgraded(&server).await;
        socket.write_all(&bytes).await.unwrap();
        assert_eq!(client::close_code(&mut socket).await, Some(code), "{what}");
        server.until("it is gone", || server.edge().connection_count() == 1).await;
        server.publish("kept:1", json!(what));
        assert_eq!(bystander.publications(1).await, [what]);
    }
}

/// Its connect command never becomes whole.
#[tokio::test]
async fn a_peer_that_sends_drop_by_drop_has_no_more_time() {
    let stale_timeout = Duration::from_millis(500);
    let server = Server::start(Options { stale_timeout, ..Options::default() }).await;
    let began = Instant::now(); // The server's time begins later.
    let (mut reader, mut writer) = client::upgraded(&server).await.into_split();
    let dripping = async {
        writer.write_all(&header(0x81, 60_000)).await.unwrap();
        let mut drops = tokio::time::interval(Duration::from_millis(10));
        loop {
            drops.tick().await;
            let _ = writer.write_all(b" ").await;
        }
    };
    tokio::select! {
        code = client::close_code(&mut reader) => assert_eq!(code, Some(3502)),
        () = dripping => {}
    }
    assert!(began.elapsed() >= stale_timeout, "{:?}", began.elapsed());
}

/// It gets the close frame, keeps its socket open and says nothing more.
#[tokio::test]
async fn a_peer_that_does_not_close_is_cut_off() {
    let close_timeout = Duration::from_millis(300);
    let server = Server::start(Options { close_timeout, ..Options::default() }).await;
    let mut socket = client::upgraded(&server).await;
    let began = Instant::now();
    socket.write_all(&frame(0x81, b"nonsense")).await.unwrap();
    assert_eq!(client::close_code(&mut socket).await, Some(3501));
    server.until("it is gone", || server.edge().connection_count() == 0).await;
    assert!(began.elapsed() >= close_timeout, "{:?}", began.elapsed());
    drop(socket);
}

/// Not all frames of a read are decoded at once. The close frame behind them is heard all the same, and ends the connection.
#[tokio::test]
async fn a_close_frame_behind_many_frames_is_heard() {
    let server = Server::start(Options { close_timeout: Duration::from_secs(300), ..Options::default() }).await;
    let mut socket = client::upgraded(&server).await;
    let (refused, more, close) = (frame(0x81, b"nonsense"), frame(0x81, b"{}").repeat(200), frame(0x88, &[3, 232]));
    socket.write_all(&[refused, more, close].concat()).await.unwrap();
    assert_eq!(client::close_code(&mut socket).await, Some(3501));
    server.until("it is gone", || server.edge().connection_count() == 0).await;
    drop(socket);
}

/// The bound is 300.
#[tokio::test]
async fn a_client_that_missed_too_many_is_told_of_a_gap() {
    let server = Server::start(Options::default()).await;
    let epoch = Client::subscribed(&server, "kept:1").await.epoch;
    for value in 0..301 {
        server.publish("kept:1", json!(value));
    }
    for (offset, count) in [(0, 0), (1, 300)] {
        let resume = json!({"channel": "kept:1", "recover": true, "offset": offset, "epoch": epoch});
        let answer = Client::connected(&server).await.subscribe(resume).await;
        assert_eq!((answer["recovered"] == true, offsets(&answer).len()), (count > 0, count));
        assert_eq!(answer["offset"], if count > 0 { offset } else { 301 });
    }
}

/// The directory answers when the test allows it, which is never. The client is connected after 5 seconds, and has no device.
#[tokio::test]
async fn a_proof_that_takes_too_long_is_given_up_and_its_client_connected() {
    let server = Server::start(Options::default()).await;
    let mut client = Client::open(&server).await;
    let device = json!({"tidings": {"device": "phone-9", "credential": "secret-9"}});
    client.send(json!({"id": 1, "connect": {"data": device}})).await;
    let began = Instant::now();
    assert!(client.reply(1).await["connect"].is_object());
    assert!(began.elapsed() >= Duration::from_secs(4), "it waited for the proof");
    assert_eq!(server.permits.available_permits(), 0, "nobody allowed an answer");
}
