//! The abuse campaign: what clients and callers can do to the server and to each other, each attack bounded in time.
//!
//! Each attack has a server of its own, and beside it a bystander that behaves (`abuse/bystander.rs`). The attackers come from
//! another address than the bystander, so what the server limits by address does not meet that one. An attack fails when
//! - the server ends or panics, or the attack finds a promise broken that it looks for itself;
//! - an event of the bystander was acknowledged and does not arrive, or its client is cut off;
//! - the server takes more than [`GROWTH_MIB_MAX`] on top of what it had before the attack, or has not come back within
//!   [`REST`] after it to what it had before, a quarter, and [`REST_MIB_MAX`];
//! - the bystander waits longer than [`WAIT_MAX`], or a browser waits longer for its push. A wait from [`WAIT_MARKED`] on is
//!   marked with `!` and fails nobody: the machines that this runs on are busy.
//!
//! It is run by `cargo xtask abuse`, which names the release binary in `TIDINGS_BIN` (default: the one built with the tests); a
//! plain `cargo test` leaves it out (`test = false` in Cargo.toml). One attack alone: `cargo test -p tidings --test abuse --
//! --nocapture WORD`, with a word of the test's name.

#![expect(clippy::print_stdout, reason = "a report for whoever runs the campaign")]

#[path = "abuse/bystander.rs"]
mod bystander;
#[path = "abuse/net.rs"]
mod net;
#[path = "abuse/server.rs"]
mod server;
#[path = "abuse/shares.rs"]
mod shares;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tidings_client::{ServerUrl, Socket};
use tidings_simulator::{WebPushConfig, WebPushSimulator};
use tidings_trial::raw::{HOME, exchange, last_line, line, request};
use tidings_types::Format;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, timeout};

use bystander::{Bystander, Seen, app_request};
use net::{ABROAD, Client, backend_request, must};
use server::{ADDRESS_CONNECTIONS_MAX, memory_mib, program};

const API_KEY: &str = "abuse-campaign-key-0123456789";
const TOKEN_SECRET: &str = "the-secret-of-the-abuse-campaign-0123456789";
/// Between two looks.
const PULSE: Duration = Duration::from_millis(10);

/// How long attackers hold what they have got.
const HOLD: Duration = Duration::from_secs(5);
/// No attack takes longer, however slow the machine.
const ATTACK_MAX: Duration = Duration::from_secs(180);
const REST: Duration = Duration::from_secs(10);
const GROWTH_MIB_MAX: u64 = 512;
const REST_MIB_MAX: u64 = 64;
const WAIT_MARKED: Duration = Duration::from_millis(250);
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Of the bystander, before the attack and after it.
const QUIET_ROUNDS: u64 = 10;

/// Files that the server may open where nothing else is said.
const OPEN_FILES_MAX: u32 = 16_384;
/// Where the history is long enough to be a burden.
const LONG_CHANNEL: &str = "score:long";

/// One attack at a time: memory and waits are measured.
static ALONE: Mutex<()> = Mutex::new(());

/// How an attack ended: what its attackers still hold, or the promise that they found broken.
type Attacked<T> = Result<T, String>;

/// Prepares, attacks, prints what came of it, and fails when that is not good.
fn judge<P, T>(
    name: &str,
    (settings, open_files_max): (&str, u32),
    prepare: impl AsyncFnOnce(SocketAddr) -> P,
    attack: impl AsyncFnOnce(SocketAddr, P) -> Attacked<T>,
) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let wrongs = runtime.block_on(async {
        let mut server = server::start(settings, open_files_max).await;
        let prepared = prepare(server.addr).await;
        let bystander = Bystander::start(server.addr, server.process_id());
        bystander.rounds(QUIET_ROUNDS).await;
        let memory = || memory_mib(server.process_id()).unwrap_or_default();
        let before = memory();
        bystander.forget();

        let attacked = timeout(ATTACK_MAX, attack(server.addr, prepared)).await;
        let attacked = attacked.unwrap_or_else(|_| Err(format!("the attack is not over within {ATTACK_MAX:?}")));
        let (rest_max, rested) = (before + before / 4 + REST_MIB_MAX, Instant::now());
        let mut pulse = interval(PULSE);
        while memory() > rest_max && rested.elapsed() < REST {
            pulse.tick().await;
        }
        let (after, rested) = (memory(), rested.elapsed());
        bystander.rounds(QUIET_ROUNDS).await;
        let (seen, lived) = bystander.finish();

        let mut wrongs: Vec<String> = [lived.err(), attacked.err()].into_iter().flatten().collect();
        let mut require = |is_so: bool, wrong: String| wrongs.extend((!is_so).then_some(wrong));
        require(server.is_alive() && !server.has_panicked(), "the server ended or panicked".to_owned());
        let (growth, wait) =
            (seen.memory_max_mib.saturating_sub(before), seen.waits.into_iter().max().unwrap_or_default());
        require(growth <= GROWTH_MIB_MAX, format!("it took {growth} MiB, at most {GROWTH_MIB_MAX} are allowed"));
        require(after <= rest_max, format!("{after} MiB are left after {REST:?}, at most {rest_max} are allowed"));
        require(wait <= WAIT_MAX, format!("the bystander waited {wait:.1?}, at most {WAIT_MAX:?} are allowed"));
        print_row(name, (before, after, rested), &seen, &wrongs);
        (!wrongs.is_empty()).then(|| format!("{name}: {}\n{}", wrongs.join("\n  "), server.log_end()))
    });
    assert!(wrongs.is_none(), "{}", wrongs.unwrap_or_default());
}

fn print_row(name: &str, (before, after, rested): (u64, u64, Duration), seen: &Seen, wrongs: &[String]) {
    let Seen { rounds, waits, refusals, memory_max_mib, .. } = seen;
    let waits = waits.map(|wait| format!("{}{}", wait.as_millis(), if wait > WAIT_MARKED { "!" } else { "" }));
    println!(
        "\n{name}\n  memory    {before} MiB before, {memory_max_mib} at worst, {after} after {:.1} s\n  \
         bystander {rounds} rounds, {refusals} refusals; waited at worst {} ms to read, for an event, to register, for a command",
        rested.as_secs_f64(),
        waits.join(", "),
    );
    println!("  verdict   {}", if wrongs.is_empty() { "held".to_owned() } else { wrongs.join("; ") });
}

/// What most servers of the campaign are started with.
const PLAIN: (&str, u32) = ("", OPEN_FILES_MAX);

async fn nothing(_: SocketAddr) {}

/// Fills [`LONG_CHANNEL`].
async fn fill(server: SocketAddr, count: usize, bytes: usize) {
    for _ in 0..count {
        must(server, "POST", "/api/publish", &json!({ "channel": LONG_CHANNEL, "data": "x".repeat(bytes) })).await;
    }
}

/// Runs `attacker` so often at a time and gives back what each of them holds then.
async fn many<T: Send + 'static, F>(count: usize, attacker: impl Fn(usize) -> F) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
{
    let mut attackers = JoinSet::new();
    (0..count).for_each(|number| _ = attackers.spawn(attacker(number)));
    attackers.join_all().await
}

#[test]
fn nested_selectors_and_bodies_end_no_server() {
    judge("nested selectors and bodies", PLAIN, nothing, async |server, ()| {
        for depth in [1, 8, 29, 30, 31, 32, 33, 64, 127, 128, 129, 1000, 2000] {
            let deep = |before: &str, after: &str| before.repeat(depth) + "all" + &after.repeat(depth);
            for selector in [deep("(", ")"), deep("not ", ""), deep("all or all and (", ")")] {
                ask_all(server, &selector).await?;
            }
        }
        for depth in [100, 126, 127, 128, 129, 1000, 100_000] {
            let nested = "[".repeat(depth) + &"]".repeat(depth);
            let event =
                format!(r#"{{"topic":"goal","subjects":["match:1"],"params":{{"a":{nested}}},"push":"never"}}"#);
            ask(server, "POST", "/v1/events", "application/json", event.as_bytes()).await?;
            let packed =
                [&b"\x83\xa5topic\xa4goal\xa8subjects\x91\xa7match:1\xa6params\x81\xa1a"[..], &vec![0x91; depth]];
            ask(server, "POST", "/v1/events", "application/msgpack", &packed.concat()).await?;
        }
        Ok(())
    });
}

/// On every route that takes a selector, in both formats.
async fn ask_all(server: SocketAddr, selector: &str) -> Result<(), String> {
    let event = json!({ "topic": "goal", "subjects": ["match:1"], "to": { "selector": selector }, "push": "never" });
    for (path, body) in [
        ("/v1/audience/explain", json!({ "selector": selector })),
        ("/v1/audience/preview", event.clone()),
        ("/v1/events", event),
    ] {
        ask(server, "POST", path, "application/json", body.to_string().as_bytes()).await?;
    }
    let packed = [b"\x81\xa8selector\xda", &(selector.len() as u16).to_be_bytes()[..], selector.as_bytes()].concat();
    ask(server, "POST", "/v1/audience/explain", "application/msgpack", &packed).await?;
    let in_path = selector.replace(' ', "%20");
    ask(server, "GET", &format!("/v1/export?selector={in_path}"), "application/json", b"").await
}

/// Any answer will do that does not blame the server.
async fn ask(server: SocketAddr, method: &str, path: &str, media: &str, body: &[u8]) -> Result<(), String> {
    for accept in ["application/json", "application/msgpack"] {
        let (key, accept) = (format!("X-API-Key: {API_KEY}"), format!("Accept: {accept}"));
        let headers = [&key, &accept, &format!("Content-Type: {media}"), "Connection: close"];
        match exchange(server, ABROAD, &request(method, path, &headers, body)).await {
            Ok((..500, _)) => {}
            Ok((status, _)) => return Err(format!("{method} {path} is answered {status}")),
            // What is far too large may be refused while it is still on its way.
            Err(error) if body.len() > 64 << 10 => drop(error),
            Err(error) => return Err(format!("{method} {path} is not answered: {error}")),
        }
    }
    Ok(())
}

const LONG_COUNT: usize = 300;
const LONG_BYTES: usize = 100 << 10;

async fn fill_long(server: SocketAddr) -> String {
    fill(server, LONG_COUNT, LONG_BYTES).await;
    epoch(server).await
}

/// Where who missed everything begins.
async fn epoch(server: SocketAddr) -> String {
    let mut client = Client::connect(server, HOME).await.unwrap();
    let answer = client.ask(json!({ "subscribe": { "channel": LONG_CHANNEL, "recoverable": true } })).await.unwrap();
    answer["subscribe"]["epoch"].as_str().expect("it has a history").to_owned()
}

fn recover(epoch: &str) -> Value {
    json!({ "subscribe": { "channel": LONG_CHANNEL, "recoverable": true, "recover": true, "epoch": epoch, "offset": 0 } })
}

fn history(limit: usize) -> Value {
    json!({ "history": { "channel": LONG_CHANNEL, "limit": limit } })
}

#[test]
fn clients_that_recover_and_read_nothing() {
    judge("30 clients recover 30 MB each, 10 ask for history, none reads", PLAIN, fill_long, async |server, epoch| {
        let attackers = many(40, |number| {
            let commands = if number < 30 { vec![recover(&epoch)] } else { vec![history(LONG_COUNT); 20] };
            async move {
                let mut client = Client::connect(server, ABROAD).await?;
                _ = client.say(commands).await; // It may be closed for that.
                Ok::<_, String>(client)
            }
        })
        .await;
        sleep(HOLD).await;
        drop(attackers);
        Ok(())
    });
}

/// Messages of the protocol in Protobuf.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut length = content.len();
    let mut bytes = vec![number << 3 | 2];
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    [bytes, content.to_vec()].concat()
}

/// A command behind its length.
fn command(id: u8, request: &[u8]) -> Vec<u8> {
    field(0, &[&[1 << 3, id], request].concat())[1..].to_vec()
}

#[test]
fn commands_that_wait_behind_a_slow_hook() {
    let hole = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(); // Takes what is asked and never answers.
    let address = hole.local_addr().unwrap();
    let settings = format!(
        r#"
[channel.namespaces.asked]
subscribe_hook = "slow"
[hooks.slow]
url = "http://{address}/"
allow_http = true
timeout = "7s"
"#
    );
    let name =
        "300 clients with a frame of 30 connects, of 1024 subscriptions each, behind a hook that does not answer";
    judge(name, (&settings, OPEN_FILES_MAX), nothing, async |server, ()| {
        let asks = command(2, &field(5, &field(1, b"asked:x")));
        let connects = command(3, &field(4, &[3 << 3 | 2, 0].repeat(1024))).repeat(30);
        let attackers = many(300, |_| {
            let frames = [command(1, &field(4, b"")), asks.clone(), connects.clone()];
            async move {
                let stream = line(server, ABROAD).await.map_err(|error| error.to_string())?;
                let opened = Socket::over(stream, &ServerUrl::of_listener(server), Format::Protobuf).await;
                let mut socket = opened.map_err(|error| error.to_string())?;
                for frame in frames {
                    socket.send_binary(frame).await.map_err(|error| error.to_string())?;
                }
                Ok(socket)
            }
        })
        .await;
        let mut attackers = attackers.into_iter().collect::<Result<Vec<_>, String>>()?;
        sleep(HOLD).await;
        let is_open = |read: io::Result<usize>| read.is_ok_and(|count| count > 0);
        // The answer to connect, and nothing else: the commands wait.
        let waiting = attackers.iter_mut().filter_map(|socket| {
            let stream = socket.stream_mut();
            let is_first = is_open(stream.try_read(&mut [0; 4096]));
            let next = stream.try_read(&mut [0; 4096]);
            (is_first && next.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)).then_some(())
        });
        match waiting.count() {
            300 => Ok(()),
            count => Err(format!("only {count} of 300 clients wait for the hook")),
        }
    });
}

#[test]
fn clients_that_read_a_few_bytes_at_a_time() {
    judge("12 clients recover 30 MB each and read 64 bytes at a time", PLAIN, fill_long, async |server, epoch| {
        many(12, |_| {
            let command = recover(&epoch);
            async move {
                let mut client = Client::connect(server, ABROAD).await?;
                client.say([command]).await?;
                let stream = client.socket.stream_mut();
                let trickle = async { while stream.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {} };
                _ = timeout(HOLD, trickle).await;
                Ok::<_, String>(())
            }
        })
        .await;
        Ok(())
    });
}

#[test]
fn pipelined_requests_whose_answers_nobody_reads() {
    judge("300 connections with pipelined GET /health, unread", PLAIN, nothing, async |server, ()| {
        let pipeline = request("GET", "/health", &[], b"").repeat(20_000);
        let attackers = many(300, |_| {
            let pipeline = pipeline.clone();
            async move {
                let mut stream = line(server, ABROAD).await.ok()?;
                _ = timeout(HOLD, stream.write_all(&pipeline)).await; // Until the server takes no more.
                Some(stream)
            }
        })
        .await;
        sleep(HOLD).await;
        drop(attackers);
        Ok(())
    });
}

/// Connections that say nothing.
async fn idle_lines(server: SocketAddr, count: usize) -> Vec<TcpStream> {
    let lines = many(count, |_| async move { timeout(HOLD, line(server, ABROAD)).await.ok()?.ok() }).await;
    lines.into_iter().flatten().collect()
}

#[test]
fn thousands_of_idle_connections() {
    judge("5 000 connections that say nothing", PLAIN, nothing, async |server, ()| {
        let lines = idle_lines(server, 5000).await;
        sleep(HOLD).await;
        Ok(lines)
    });
}

#[test]
fn websockets_of_one_address() {
    judge("2 500 WebSockets of an address that may have 2 000", PLAIN, nothing, async |server, ()| {
        let clients = many(2500, |_| Client::connect(server, ABROAD)).await;
        let admitted = clients.iter().filter(|client| client.is_ok()).count();
        match admitted == ADDRESS_CONNECTIONS_MAX {
            true => Ok(clients),
            false => Err(format!("{admitted} were let in")),
        }
    });
}

#[test]
fn few_files_may_be_opened() {
    judge("600 idle connections where 400 files may be open", ("", 400), nothing, async |server, ()| {
        let lines = idle_lines(server, 600).await;
        sleep(HOLD).await;
        drop(lines);
        Ok(())
    });
}

/// Whether somebody else can still use a new channel.
async fn can_subscribe(server: SocketAddr, channel: &str) -> Result<(), String> {
    let mut client = Client::connect(server, HOME).await?;
    let answer = client.ask(json!({ "subscribe": { "channel": channel } })).await;
    answer.map(drop).map_err(|error| format!("nobody else gets the new channel {channel}: {error}"))
}

#[test]
fn new_channels_by_one_connection() {
    judge("100 000 subscribe and unsubscribe by one connection", PLAIN, nothing, async |server, ()| {
        let mut client = Client::connect(server, ABROAD).await?;
        for first in (0..100_000).step_by(200) {
            let names = (first..first + 200).map(|number| format!("score:made-up-{number}"));
            let commands = names.flat_map(|channel| {
                [json!({ "subscribe": { "channel": channel } }), json!({ "unsubscribe": { "channel": channel } })]
            });
            if client.say(commands).await.is_err() {
                break; // It was closed for that.
            }
            client.read_answers().await;
        }
        can_subscribe(server, "score:another").await?;
        can_subscribe(server, "match:another").await
    });
}

#[test]
fn new_durable_channels_by_one_connection() {
    let settings = "\n[store]\nchannel_count_max = 2000\n";
    judge("publishing into 4 000 new durable channels", (settings, OPEN_FILES_MAX), nothing, async |server, ()| {
        let mut client = Client::connect(server, ABROAD).await?;
        for first in (0..4000).step_by(100) {
            let channels = (first..first + 100).map(|number| format!("chat:made-up-{number}"));
            let commands = channels.map(|channel| json!({ "publish": { "channel": channel, "data": {} } }));
            if client.say(commands).await.is_err() {
                break; // It was closed for that.
            }
            client.read_answers().await;
        }
        let event = json!({ "id": "another", "topic": "goal", "subjects": ["match:another"], "push": "never" });
        match exchange(server, HOME, &backend_request("POST", "/v1/events", &event)).await {
            Ok((202, _)) => Ok(()),
            Ok((_, answer)) => Err(format!("an event into a channel of its own is refused: {}", last_line(&answer))),
            Err(error) => Err(error.to_string()),
        }
    });
}

#[test]
fn unfinished_bodies_of_one_user() {
    judge("200 unfinished bodies of one app's user", PLAIN, nothing, async |server, ()| {
        let attackers = many(200, |number| async move {
            let whole = app_request("mallory", &format!("mallory-{number}"), "ef");
            let mut stream = line(server, ABROAD).await.ok()?;
            stream.write_all(&whole[..whole.len() - 10]).await.ok()?;
            Some(stream)
        })
        .await;
        sleep(HOLD).await;
        drop(attackers);
        Ok(())
    });
}

#[test]
fn unfinished_bodies_of_streams() {
    const BYTES: usize = 60_000;
    const ROOM: usize = (32 << 20) / BYTES; // What one network has.
    judge("1 500 requests for a stream whose body does not end", PLAIN, nothing, async |server, ()| {
        let headers = ["Content-Type: application/json"];
        let whole = request("POST", "/connection/http_stream", &headers, &vec![b' '; BYTES]);
        let attackers = many(1500, |_| {
            let unfinished = whole[..whole.len() - 1].to_vec();
            async move {
                let mut stream = line(server, ABROAD).await.ok()?;
                _ = stream.write_all(&unfinished).await; // It may be refused before all of it is written.
                Some(stream)
            }
        })
        .await;
        let (mut held, mut refused): (Vec<TcpStream>, usize) = (attackers.into_iter().flatten().collect(), 0);
        let mut pulse = interval(PULSE);
        while held.len() > ROOM {
            pulse.tick().await;
            held.retain(|stream| {
                let mut answer = [0; 12];
                let read = stream.try_read(&mut answer);
                refused += usize::from(&answer == b"HTTP/1.1 503");
                read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            });
        }
        if refused == 0 {
            return Err("none is refused with 503".to_owned());
        }
        sleep(HOLD).await;
        let mut stream = line(server, HOME).await.map_err(|error| error.to_string())?;
        let opening = request("POST", "/connection/uni_http_stream", &headers, b"{}");
        stream.write_all(&opening).await.map_err(|error| error.to_string())?;
        let mut status = [0; 12];
        let answered = timeout(HOLD, stream.read_exact(&mut status)).await;
        drop(held);
        match answered.is_ok_and(|read| read.is_ok()) && &status == b"HTTP/1.1 200" {
            true => Ok(()),
            false => Err("nobody else gets a stream".to_owned()),
        }
    });
}

#[test]
fn idle_connections_after_a_burst() {
    judge("900 connections that stay idle after a burst", PLAIN, fill_short, async |server, epoch| {
        let held = many(900, |_| {
            let epoch = epoch.clone();
            async move {
                let mut client = Client::connect(server, ABROAD).await?;
                client.say(vec![json!({ "rpc": { "method": "x" } }); 1000]).await?;
                client.read_answers().await;
                client.say([recover(&epoch), history(10), history(10)]).await?;
                client.read_answers().await;
                Ok::<_, String>(client)
            }
        })
        .await;
        let count = held.iter().flatten().count();
        if count < held.len() { Err(format!("only {count} were let in")) } else { Ok(held) }
    });
}

async fn fill_short(server: SocketAddr) -> String {
    fill(server, 10, 20 << 10).await;
    epoch(server).await
}

/// So many clients, from many addresses, in [`LONG_CHANNEL`].
async fn crowd(server: SocketAddr) -> Vec<Client> {
    let mut members = Vec::new();
    for hundred in 0..30 {
        let home = Ipv4Addr::new(127, 0, 1, hundred);
        let joined = many(100, |_| async move {
            let mut client = Client::connect(server, home).await.unwrap();
            client.ask(json!({ "subscribe": { "channel": LONG_CHANNEL } })).await.unwrap();
            client
        });
        members.extend(joined.await);
    }
    members
}

#[test]
fn a_thousand_presence_commands_in_one_frame() {
    judge(
        "24 clients with 1 000 presence commands in one frame, 3 000 members",
        PLAIN,
        crowd,
        async |server, members| {
            many(24, |_| async move {
                let mut client = Client::over(server, TcpStream::connect(server).await).await?; // It can read fast.
                client.say(vec![json!({ "presence": { "channel": LONG_CHANNEL } }); 1000]).await?;
                let stream = client.socket.stream_mut();
                let mut answers = vec![0; 1 << 20];
                let read = async { while stream.read(&mut answers).await.is_ok_and(|count| count > 0) {} };
                _ = timeout(HOLD, read).await;
                Ok::<_, String>(())
            })
            .await;
            drop(members);
            Ok(())
        },
    );
}

/// Where the server under attack speaks TLS. Attacks come one at a time, so the port is free.
const TLS_LISTEN: &str = "127.0.0.9:8443";

/// Each beginning makes the server sign, which costs it much and the attacker nothing.
#[test]
fn tls_handshakes_that_are_begun_and_left() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let keys = tempfile::tempdir().unwrap();
    let path = |name: &str| keys.path().join(name).display().to_string();
    std::fs::write(path("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(path("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let (certificate, key) = (path("cert.pem"), path("key.pem"));
    let settings = format!(
        "\n[http.tls]\nlisten = \"{TLS_LISTEN}\"\ncertificate_file = '{certificate}'\ncertificate_key_file = '{key}'\n"
    );
    judge("64 clients begin TLS handshakes and leave", (&settings, OPEN_FILES_MAX), nothing, async |_, ()| {
        let (server, hello) = (TLS_LISTEN.parse().expect("it is an address"), client_hello());
        let begun = many(64, |_| {
            let hello = hello.clone();
            async move {
                let (began, mut begun) = (Instant::now(), 0);
                while began.elapsed() < HOLD {
                    begun += usize::from(answered(server, &hello).await);
                }
                begun
            }
        })
        .await;
        let begun: usize = begun.into_iter().sum();
        println!("\n  {begun} handshakes were begun");
        if begun < 1000 { Err(format!("only {begun} handshakes were begun, so nothing was tried")) } else { Ok(()) }
    });
}

/// The first byte of a message of the handshake (RFC 8446, 5.1); an alert has another one.
const TLS_HANDSHAKE: u8 = 22;

/// The first message of a client that speaks TLS 1.3.
fn client_hello() -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
    let mut client = rustls::ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

/// Whether the server goes on with the handshake: it has made its keys and its signature then.
async fn answered(server: SocketAddr, hello: &[u8]) -> bool {
    let begin = async {
        let mut line = line(server, ABROAD).await?;
        line.write_all(hello).await?;
        line.read_u8().await
    };
    timeout(HOLD, begin).await.is_ok_and(|read| read.is_ok_and(|first| first == TLS_HANDSHAKE))
}

#[test]
fn a_batch_of_histories() {
    judge("200 histories of 6 MB each in one batch", PLAIN, fill_medium, async |server, ()| {
        let commands = vec![history(100); 200];
        let batch = backend_request("POST", "/api/batch", &json!({ "commands": commands }));
        let mut stream = line(server, ABROAD).await.map_err(|error| error.to_string())?;
        let mut answer = vec![0; 1 << 20];
        let read = async {
            stream.write_all(&batch).await?;
            while stream.read(&mut answer).await? > 0 {}
            std::io::Result::Ok(())
        };
        _ = timeout(2 * HOLD, read).await; // It may be refused or cut off.
        Ok(())
    });
}

async fn fill_medium(server: SocketAddr) {
    fill(server, 100, 64 << 10).await;
}

#[test]
fn exports_that_nobody_reads() {
    judge("100 exports of 6 MB each, unread", PLAIN, import_crowd, async |server, ()| {
        let export = backend_request("GET", "/v1/users/crowd/export", &Value::Null);
        let attackers = many(100, |_| {
            let export = export.clone();
            async move {
                let mut stream = line(server, ABROAD).await.ok()?;
                stream.write_all(&export).await.ok()?;
                Some(stream)
            }
        })
        .await;
        sleep(HOLD).await;
        drop(attackers);
        Ok(())
    });
}

async fn import_crowd(server: SocketAddr) {
    let subscriptions = |number| -> Value {
        (0..50)
            .map(|other| json!({ "subject": format!("team:{number:050}-{other:050}"), "topics": ["goal"] }))
            .collect()
    };
    let device = |number| {
        json!({ "id": format!("crowd-{number}"), "platform": "ios", "token": format!("{number:064x}"),
                "app": "com.example.app", "locale": "en", "user": "crowd", "subscriptions": subscriptions(number) })
    };
    let lines: String = (0..1000).map(|number| format!("{}\n", device(number))).collect();
    let headers = [&*format!("X-API-Key: {API_KEY}"), "Content-Type: application/x-ndjson", "Connection: close"];
    let import = request("POST", "/v1/imports", &headers, lines.as_bytes());
    let (status, answer) = exchange(server, HOME, &import).await.unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(status == 200 && answer.contains(r#""done":true"#), "{answer}");
}

/// Endpoints of browsers that do not exist, registered before five that are real, below a wildcard that is a rule of its own.
/// The real browsers must all be reached, and wait no longer than the bystander may.
#[test]
fn made_up_browsers_beside_real_ones() {
    let browsers = WebPushSimulator::start(WebPushConfig::default()).unwrap();
    let keys = tempfile::tempdir().unwrap();
    let path = |name: &str| keys.path().join(name).display().to_string();
    std::fs::write(path("vapid.key"), browsers.vapid_key()).unwrap();
    std::fs::write(path("ca.pem"), browsers.ca_pem()).unwrap();
    let (vapid, ca, port) = (path("vapid.key"), path("ca.pem"), browsers.addr().port());
    let settings = format!(
        "\n[web_push.main]\nvapid_key_file = '{vapid}'\ncontact = \"mailto:ops@example.com\"\nca_file = '{ca}'\n\
         allowed_hosts = [\"localhost\", \"*.push.invalid\"]\nallowed_ports = [{port}, 443]\nallow_private = true\n\
         apps = [\"com.example.web\"]\n"
    );
    let register = async |server, id: &str, subscription: Value| {
        let device = json!({ "platform": "web", "web_push": subscription, "app": "com.example.web", "locale": "en",
                             "user": "fans" });
        must(server, "PUT", &format!("/v1/devices/{id}"), &device).await;
    };
    let prepare = async |server| {
        for number in 0..505 {
            let real = browsers.subscribe(Some(&browsers.application_server_key())).unwrap();
            let mut subscription = json!(real);
            if number < 500 {
                subscription["endpoint"] = json!(format!("https://host-{number}.push.invalid/{number}"));
            }
            register(server, &format!("browser-{number}"), subscription).await;
        }
    };
    judge(
        "500 made-up Web Push endpoints beside 5 real ones",
        (&settings, OPEN_FILES_MAX),
        prepare,
        async |server, ()| {
            let event = json!({ "id": "all", "topic": "goal", "subjects": ["match:1"], "to": { "users": ["fans"] }, "ttl": 20 });
            must(server, "POST", "/v1/events", &event).await;
            let (began, mut pulse) = (Instant::now(), interval(PULSE));
            let reached = || browsers.ledger().summary().accepted;
            while reached() < 5 && began.elapsed() < WAIT_MAX {
                pulse.tick().await;
            }
            let (reached, waited) = (reached(), began.elapsed());
            println!("\n  {reached} of 5 real browsers were reached within {waited:.1?}");
            if reached == 5 {
                Ok(())
            } else {
                Err(format!("{reached} of 5 real browsers were reached within {waited:.1?}"))
            }
        },
    );
}

/// All are cut off at once, miss publications, and come back together. Each client checks that it then has every publication
/// once and in order; the command fails if one has not.
#[test]
fn ten_thousand_clients_through_twenty_cuts() {
    const MEMORY_MIB_MAX: f64 = 256.0; // Connections of 6 KiB, and four times as much for what is on its way.
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let nobody = tempfile::tempdir().unwrap(); // No other server beside it.
    let mut command = Command::new(program());
    command.args("bench storm --clients 10000 --cuts 20 --runs 1 --json --peers".split(' ')).arg(nobody.path());
    let output = command.stdin(Stdio::null()).output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let measures = report["measures"].as_array().expect("it tells what it measured");
    let of_name = |end: &str| measures.iter().find(|it| it["name"].as_str().is_some_and(|name| name.ends_with(end)));
    let memory = &of_name("memory then").expect("it tells the memory")["runs"];
    println!("\n10 000 clients through 20 cuts\n  memory    {memory} MiB");
    let memory: Vec<f64> = serde_json::from_value(memory.clone()).unwrap();
    assert!(memory.len() == 20 && memory.iter().all(|mib| *mib <= MEMORY_MIB_MAX), "{memory:?}");
}
