//! Fair shares: what greedy clients ask for costs only themselves. The bystander has an address of its own, and the same loop.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::{Value, json};
use tidings_client::{ServerUrl, Socket};
use tidings_trial::raw::{HOME, exchange, line};
use tidings_types::Format;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep};

use crate::net::{ABROAD, Client, backend_request, must};
use crate::{Attacked, HOLD, OPEN_FILES_MAX, judge, many, nothing};

const GREEDY_COUNT: usize = 1000;
/// The longest wait of a client beside greedy ones.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Everybody shares one loop, and everybody may read and write here.
const ONE_LOOP: &str = r#"
[edge]
loops = 1
[channel.namespaces.open]
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true
allow_publish_for_client = true
allow_publish_for_anonymous = true
[channel.namespaces.map]
slow_readers = "latest"
latest_key = "thing"
allow_tags_filter = true
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true
[channel.namespaces.told]
allow_tags_filter = true
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true
"#;

/// Connects, and subscribes to one channel. What comes is not read, unless its task reads it.
async fn reader(server: SocketAddr, from: Ipv4Addr, connect: Value, subscribe: Value) -> Result<Client, String> {
    let stream = line(server, from).await.map_err(|error| format!("cannot connect: {error}"))?;
    let mut client = Client::with(server, stream, connect).await?;
    client.ask(json!({ "subscribe": subscribe })).await?;
    Ok(client)
}

async fn readers(count: usize, server: SocketAddr, connect: Value, subscribe: Value) -> Result<Vec<Client>, String> {
    let all = many(count, |_| reader(server, ABROAD, connect.clone(), subscribe.clone())).await;
    all.into_iter().collect()
}

/// The back end publishes so often in a second, for a while.
async fn publish(server: SocketAddr, per_second: u64, time: Duration, mut body: impl FnMut(u64) -> Value) {
    let mut pulse = interval(Duration::from_secs(1) / per_second as u32);
    let began = Instant::now();
    let mut batch = Vec::new();
    for number in 0.. {
        pulse.tick().await;
        batch.push(json!({ "publish": body(number) }));
        if batch.len() as u64 >= per_second.div_ceil(50) {
            must(server, "POST", "/api/batch", &json!({ "commands": std::mem::take(&mut batch) })).await;
        }
        if began.elapsed() > time {
            break;
        }
    }
}

fn thing(number: u64) -> Value {
    let thing = number * 2_654_435_761 % 4096;
    json!({ "channel": "map:1", "data": { "number": number }, "tags": { "thing": thing.to_string() } })
}

#[test]
fn readers_that_want_few_bytes() {
    let name = "1 000 readers of 4 096 things at 400 a second, that want 1 000 bytes a second and read nothing";
    judge(name, (ONE_LOOP, OPEN_FILES_MAX), nothing, async |server, ()| {
        let connect = json!({ "data": { "tidings": { "bytes_per_second_max": 1000 } } });
        let greedy = readers(GREEDY_COUNT, server, connect, json!({ "channel": "map:1" })).await?;
        publish(server, 400, 3 * HOLD, thing).await;
        drop(greedy);
        Ok(())
    });
}

#[test]
fn readers_of_many_channels_that_want_few_bytes() {
    let name = "16 readers of 128 channels at 600 a second, that want 20 000 bytes a second";
    judge(name, (ONE_LOOP, OPEN_FILES_MAX), nothing, async |server, ()| {
        let connect = json!({ "data": { "tidings": { "bytes_per_second_max": 20_000 } } });
        let mut greedy = readers(16, server, connect, json!({ "channel": "map:0" })).await?;
        for client in &mut greedy {
            client.say((1..128).map(|number| json!({ "subscribe": { "channel": format!("map:{number}") } }))).await?;
            client.read_answers().await;
        }
        let body = |number| {
            Value::Object({
                let mut body = thing(number).as_object().unwrap().clone();
                body.insert("channel".to_owned(), format!("map:{}", number % 128).into());
                body
            })
        };
        publish(server, 600, 3 * HOLD, body).await;
        drop(greedy);
        Ok(())
    });
}

#[test]
fn filters_over_long_numbers() {
    let name = "1 000 readers with a filter of 55 comparisons with a number of 4 000 digits, at 50 a second";
    judge(name, (ONE_LOOP, OPEN_FILES_MAX), nothing, async |server, ()| {
        let leaf = json!({ "key": "n", "cmp": "lt", "val": "1" });
        let filter = json!({ "op": "or", "nodes": vec![leaf; 55] });
        let subscribe = json!({ "channel": "told:1", "tf": filter });
        let greedy = readers(GREEDY_COUNT, server, json!({}), subscribe).await?;
        let digits = "9".repeat(4000);
        publish(server, 50, 2 * HOLD, |_| json!({ "channel": "told:1", "data": {}, "tags": { "n": digits } })).await;
        drop(greedy);
        Ok(())
    });
}

/// Clients that read what comes, until they are cut off. They look at nothing of it, or this process would be slower than the
/// server. The attack is over before they would have to answer a ping.
fn all_read(clients: Vec<Client>) -> JoinSet<String> {
    let mut reading = JoinSet::new();
    for mut client in clients {
        reading.spawn(async move {
            let mut buffer = vec![0; 64 << 10];
            loop {
                match client.socket.stream_mut().read(&mut buffer).await {
                    Ok(0) => return "the server has ended the connection".to_owned(),
                    Ok(_) => {}
                    Err(error) => return error.to_string(),
                }
            }
        });
    }
    reading
}

/// None of the readers may have been cut off.
fn all_stayed(mut readers: JoinSet<String>) -> Attacked<()> {
    let ended: Vec<_> = std::iter::from_fn(|| readers.try_join_next()).flatten().collect();
    match ended.first() {
        None => Ok(()),
        Some(error) => Err(format!("{} readers were cut off, the first of them: {error}", ended.len())),
    }
}

/// Prints why the server has ended connections.
async fn print_ends(server: SocketAddr) {
    let (_, answer) = exchange(server, HOME, &backend_request("GET", "/metrics", &Value::Null)).await.unwrap();
    let text = String::from_utf8_lossy(&answer);
    let ends = text.lines().filter(|line| {
        ["tidings_edge_disconnects_total", "tidings_edge_shares_total"].iter().any(|name| line.starts_with(name))
            && !line.ends_with(" 0")
    });
    ends.for_each(|line| println!("  {line}"));
}

#[test]
fn one_client_publishes_as_fast_as_it_can() {
    let name = "one anonymous client publishes as fast as it can to 1 000 readers";
    judge(name, (ONE_LOOP, OPEN_FILES_MAX), nothing, async |server, ()| {
        let subscribe = json!({ "channel": "open:1" });
        let all = many(GREEDY_COUNT, |_| reader(server, HOME, json!({}), subscribe.clone())).await;
        let all = all.into_iter().collect::<Result<Vec<_>, String>>()?;
        let all = all_read(all);
        let stream = line(server, ABROAD).await.map_err(|error| error.to_string())?;
        let mut greedy = Client::with(server, stream, json!({})).await?;
        let frame: Vec<_> =
            (0..400).map(|number| json!({ "publish": { "channel": "open:1", "data": number } })).collect();
        let began = Instant::now();
        let mut count = 0;
        while began.elapsed() < 2 * HOLD {
            if greedy.say(frame.clone()).await.is_err() {
                break; // It was closed for that.
            }
            greedy.read_answers().await;
            count += frame.len();
        }
        println!("  published {count} in {:.1} s", began.elapsed().as_secs_f64());
        print_ends(server).await;
        all_stayed(all)
    });
}

#[test]
fn a_reader_of_each_form_before_a_burst() {
    let name = "a reader of each transport, format and delta, and then 400 KB at once to 100 readers";
    let settings =
        ONE_LOOP.replace("[channel.namespaces.open]", "[channel.namespaces.open]\nallowed_delta_types = [\"fossil\"]");
    judge(name, (&settings, OPEN_FILES_MAX), nothing, async |server, ()| {
        let subscribe = json!({ "channel": "open:1" });
        let all = many(100, |_| reader(server, HOME, json!({}), subscribe.clone())).await;
        let all = all.into_iter().collect::<Result<Vec<_>, String>>()?;
        let all = all_read(all);
        let delta = json!({ "channel": "open:1", "delta": "fossil" });
        let mut greedy = vec![reader(server, ABROAD, json!({}), delta).await?];
        greedy.push(reader(server, ABROAD, json!({}), subscribe).await?);
        let protobuf = protobuf_reader(server, "open:1").await?;
        let unidirectional = uni_readers(server, "open:1").await?;
        let data = "x".repeat(4000);
        let commands: Vec<_> = (0..100)
            .map(|number| json!({ "publish": { "channel": "open:1", "data": { "number": number, "text": data } } }))
            .collect();
        for _ in 0..3 {
            must(server, "POST", "/api/batch", &json!({ "commands": commands })).await;
            sleep(Duration::from_millis(500)).await; // Between bursts the readers have all of it.
        }
        drop((greedy, protobuf, unidirectional));
        all_stayed(all)
    });
}

/// A reader that speaks Protobuf and reads nothing.
async fn protobuf_reader(server: SocketAddr, channel: &str) -> Result<Socket, String> {
    let stream = line(server, ABROAD).await.map_err(|error| error.to_string())?;
    let opened = Socket::over(stream, &ServerUrl::of_listener(server), Format::Protobuf).await;
    let mut socket = opened.map_err(|error| error.to_string())?;
    let subscribe = crate::field(5, &crate::field(1, channel.as_bytes()));
    for frame in [crate::command(1, &crate::field(4, b"")), crate::command(2, &subscribe)] {
        socket.send_binary(frame).await.map_err(|error| error.to_string())?;
    }
    Ok(socket)
}

/// Readers over the endless bodies of answers, which read nothing.
async fn uni_readers(server: SocketAddr, channel: &str) -> Result<Vec<tokio::net::TcpStream>, String> {
    let connect = json!({ "subs": { channel: {} } }).to_string();
    let mut all = Vec::new();
    for path in ["/connection/uni_http_stream", "/connection/http_stream", "/connection/sse"] {
        let body = if path.ends_with("uni_http_stream") {
            connect.clone()
        } else {
            format!("{}", json!({ "id": 1, "connect": { "subs": { channel: {} } } }))
        };
        let headers = ["Content-Type: application/json"];
        let bytes = tidings_trial::raw::request("POST", path, &headers, body.as_bytes());
        let mut stream = line(server, ABROAD).await.map_err(|error| error.to_string())?;
        stream.write_all(&bytes).await.map_err(|error| error.to_string())?;
        all.push(stream);
    }
    Ok(all)
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0_usize)
}

#[test]
fn calls_of_a_hook_without_a_pause() {
    let name = "1 100 clients call a hook of 50 ms without a pause, beside one that calls now and then";
    // The back end lives as long as the attack, on a thread of its own.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (address, mood) = moody_back_end(&runtime);
    mood.send_replace(Mood::Slow(Duration::from_millis(50)));
    let settings = format!(
        "{ONE_LOOP}\n[rpc]\nhook = \"slow\"\n[hooks.slow]\nurl = \"http://{address}/\"\nallow_http = true\ntimeout = \"5s\"\n"
    );
    judge(name, (&settings, OPEN_FILES_MAX), nothing, async |server, ()| {
        let rpc = || json!({ "rpc": { "method": "greet", "data": {} } });
        let clients = many(1100, |_| Client::connect(server, ABROAD)).await;
        let mut greedy = JoinSet::new();
        for mut client in clients.into_iter().collect::<Result<Vec<_>, String>>()? {
            greedy.spawn(async move {
                while client.say([rpc()]).await.is_ok() {
                    client.read_answers().await; // An error, too.
                }
            });
        }
        let mut modest = Client::connect(server, HOME).await?;
        let (mut longest, began, mut count) = (Duration::ZERO, Instant::now(), 0);
        while began.elapsed() < HOLD {
            let asked = Instant::now();
            modest.ask(rpc()).await.map_err(|error| format!("call {count} beside greedy ones: {error}"))?;
            longest = longest.max(asked.elapsed());
            count += 1;
        }
        println!("  {count} calls beside them, which waited at worst {} ms", longest.as_millis());
        if longest > WAIT_MAX { Err(format!("a call waited {longest:.1?}")) } else { Ok(()) }
    });
}

#[test]
fn full_frames_of_commands() {
    let name = "1 000 clients send frames full of commands without a pause";
    judge(name, (ONE_LOOP, OPEN_FILES_MAX), nothing, async |server, ()| {
        let clients = many(GREEDY_COUNT, |_| Client::connect(server, ABROAD)).await;
        let clients = clients.into_iter().collect::<Result<Vec<_>, String>>()?;
        let mut greedy = JoinSet::new();
        for (number, mut client) in clients.into_iter().enumerate() {
            greedy.spawn(async move {
                let channel = format!("open:{}", number % 100);
                let both =
                    [json!({ "subscribe": { "channel": channel } }), json!({ "unsubscribe": { "channel": channel } })];
                let frame: Vec<_> = both.iter().cycle().take(400).cloned().collect();
                while client.say(frame.clone()).await.is_ok() {
                    client.read_answers().await;
                }
            });
        }
        sleep(2 * HOLD).await;
        Ok(())
    });
}

#[test]
fn one_address_takes_all_channels() {
    let name = "160 clients of one address subscribe to all 20 000 channels of a namespace";
    let few = "[channel.namespaces.open]\nchannel_count_max = 20000";
    let settings = ONE_LOOP.replace("[channel.namespaces.open]", few);
    judge(name, (&settings, OPEN_FILES_MAX), nothing, async |server, ()| {
        let greedy = many(160, |number| async move {
            let mut client = Client::connect(server, ABROAD).await?;
            client
                .say((0..128).map(|one| json!({ "subscribe": { "channel": format!("open:{number}-{one}") } })))
                .await?;
            client.read_answers().await;
            Ok::<_, String>(client)
        });
        let greedy = greedy.await.into_iter().collect::<Result<Vec<_>, String>>()?;
        let mut modest = Client::connect(server, HOME).await?;
        for number in 0..100 {
            let channel = format!("open:modest-{number}");
            modest.ask(json!({ "subscribe": { "channel": channel } })).await?;
        }
        drop(greedy);
        let event = json!({ "id": "another", "topic": "goal", "subjects": ["match:another"], "push": "never" });
        match exchange(server, HOME, &backend_request("POST", "/v1/events", &event)).await {
            Ok((202, _)) => Ok(()),
            other => Err(format!("an event is answered with {other:?}")),
        }
    });
}

/// How the back end of a storm answers.
#[derive(Debug, Clone, Copy)]
enum Mood {
    /// After this time.
    Slow(Duration),
    /// It takes what is asked, and never answers.
    Dead,
}

/// A back end with one worker for each connection, whose mood changes.
fn moody_back_end(runtime: &tokio::runtime::Runtime) -> (SocketAddr, tokio::sync::watch::Sender<Mood>) {
    let (tell, mood) = tokio::sync::watch::channel(Mood::Slow(Duration::from_millis(1)));
    let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(answer_all(stream, mood.clone()));
        }
    });
    (address, tell)
}

async fn answer_all(mut stream: tokio::net::TcpStream, mut mood: tokio::sync::watch::Receiver<Mood>) {
    let mut input = Vec::new();
    while stream.read_buf(&mut input).await.is_ok_and(|count| count > 0) {
        if !is_whole(&input) {
            continue;
        }
        input.clear();
        let now = *mood.borrow_and_update();
        match now {
            Mood::Slow(time) => sleep(time).await,
            Mood::Dead => {
                // It is another one when it is back.
                _ = mood.wait_for(|mood| !matches!(mood, Mood::Dead)).await;
                return;
            }
        }
        let body = r#"{"result":{"data":{}}}"#;
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

const STORM_CLIENTS: usize = 2000;
const STORM_CHANNELS: u64 = 60;
/// What a client waits before it asks again for what it was refused, as SDKs do.
const RETRY: Duration = Duration::from_secs(1);

/// Comes back with all its channels, and asks again for those that it does not get. Ends when it has all of them.
async fn come_back(server: SocketAddr, from: Ipv4Addr, number: u64) -> Result<(), String> {
    let mut client = Client::connect(server, from).await?;
    let mut missing: Vec<u64> = (0..STORM_CHANNELS).collect();
    let mut tries = 0;
    while !missing.is_empty() {
        let asked: Vec<_> = missing
            .iter()
            .map(|channel| json!({ "subscribe": { "channel": format!("asked:{channel}-{}", number % 100) } }))
            .collect();
        let first = client.say_from(asked).await?;
        let (mut answered, mut still) = (0, Vec::new());
        while answered < missing.len() {
            // A wait for the back end is not one for a message: pings come meanwhile, and are answered.
            let message = client.socket.message().await.map_err(|error| format!("cut off: {error}"))?;
            let Some(id) = message["id"].as_u64().filter(|id| *id >= first) else { continue };
            answered += 1;
            if !message["error"].is_null() {
                still.push(missing[(id - first) as usize]);
            }
        }
        missing = still;
        tries += 1;
        if !missing.is_empty() {
            let pause = RETRY.mul_f64(1.0 + (number % 97) as f64 / 97.0) * u32::min(tries, 4);
            client.answer_pings(pause).await?;
        }
    }
    Ok(())
}

#[test]
fn two_thousand_clients_come_back_to_a_slow_back_end() {
    let name = "2 000 clients come back with 60 channels each to a back end that is slow, slower, dead, and back";
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (address, mood) = moody_back_end(&runtime);
    let settings = format!(
        r#"{ONE_LOOP}
[channel.namespaces.asked]
subscribe_hook = "moody"
[hooks.moody]
url = "http://{address}/"
allow_http = true
timeout = "3s"
in_flight_max = 64
"#
    );
    let settings = settings.replace("[edge]\n", "[edge]\ninput_bytes_max = \"256MiB\"\n");
    judge(name, (&settings, OPEN_FILES_MAX), nothing, async |server, ()| {
        let began = Instant::now();
        let mut storm = JoinSet::new();
        mood.send_replace(Mood::Slow(Duration::from_millis(400)));
        for number in 0..STORM_CLIENTS as u64 {
            // Of many networks.
            let from = Ipv4Addr::new(127, 0, 1, (number % 250) as u8 + 1);
            storm.spawn(come_back(server, from, number));
            if number % 100 == 0 {
                sleep(Duration::from_millis(10)).await;
            }
        }
        for next in [Mood::Slow(Duration::from_secs(2)), Mood::Dead, Mood::Slow(Duration::from_millis(1))] {
            sleep(HOLD).await;
            mood.send_replace(next);
        }
        let back = Instant::now();
        while let Some(one) = storm.join_next().await {
            one.map_err(|error| error.to_string())??;
        }
        println!(
            "  all are back {:.1} s after the back end, {:.1} s after they came",
            back.elapsed().as_secs_f64(),
            began.elapsed().as_secs_f64()
        );
        Ok(())
    });
}
