//! Measures what a push costs the simulator of APNs: the CPU time of its threads per accepted notification.
//!
//! `cargo run --release -p tidings-simulator --example cost -- [PUSHES] [CONNECTIONS] [STREAMS] [THREADS]`
//!
//! A client on `h2`, on a thread of its own, sends notifications as the server does: each to another device, with an id
//! of its own and one of four payloads. All must be accepted, and the ledger must have all of them. Linux only: the time
//! is read from `/proc`.
#![expect(clippy::print_stdout, reason = "an example talks to a terminal")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderValue, Request};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tidings_simulator::{ApnsSimulator, Faults, SimulatorConfig};
use tidings_telemetry::unix_now;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use uuid::Uuid;

type Failure = Box<dyn Error>;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc; // The server's allocator.

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let mut next = |default| arguments.next().unwrap_or(Ok(default));
    let (push_count, connection_count) = (next(400_000)?, next(2)?);
    let (stream_count, thread_count) = (next(1000)? as usize, next(1)? as usize);
    let faults = Faults { stream_limit: stream_count as u32, ..Faults::default() };
    let simulator = ApnsSimulator::start(SimulatorConfig { thread_count, faults, ..SimulatorConfig::default() })?;
    let before = cpu_time()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let began = Instant::now();
    LocalSet::new().block_on(&runtime, async {
        let mut connections = JoinSet::new();
        for number in 0..connection_count {
            let client = connect(&simulator).await?;
            let bearer = bearer(&simulator)?;
            let share = number * push_count / connection_count..(number + 1) * push_count / connection_count;
            connections.spawn_local(send(client, bearer, share, stream_count));
        }
        while let Some(sent) = connections.join_next().await {
            sent??;
        }
        Ok::<_, Failure>(())
    })?;
    let (elapsed, used) = (began.elapsed(), cpu_time()? - before);
    let summary = simulator.ledger().summary();
    if (summary.accepted, summary.notifications, summary.repeated) != (push_count, push_count, 0) {
        return Err(format!("the ledger differs from what was sent: {summary:?}").into());
    }
    let micros = used.as_secs_f64() * 1e6 / push_count as f64;
    println!("{micros:.2} µs of CPU per push, {:.0} pushes/s", push_count as f64 / elapsed.as_secs_f64());
    Ok(())
}

async fn connect(simulator: &ApnsSimulator) -> Result<SendRequest<Bytes>, Failure> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(simulator.ca_pem().as_bytes())?)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(simulator.addr()).await?;
    stream.set_nodelay(true)?;
    let tls = TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost")?, stream).await?;
    let (client, connection) = h2::client::Builder::new().initial_max_send_streams(1).handshake(tls).await?;
    tokio::task::spawn_local(async move { connection.await.expect("the simulator closes no connection") });
    Ok(client)
}

fn bearer(simulator: &ApnsSimulator) -> Result<HeaderValue, Failure> {
    let header = Header { kid: Some(simulator.key_id().into()), ..Header::new(Algorithm::ES256) };
    let claims = json!({"iss": simulator.team_id(), "iat": unix_now().as_secs()});
    let token = jsonwebtoken::encode(&header, &claims, &EncodingKey::from_ec_pem(simulator.key_pem().as_bytes())?)?;
    let mut value = HeaderValue::from_str(&format!("bearer {token}"))?;
    value.set_sensitive(true);
    Ok(value)
}

async fn send(
    client: SendRequest<Bytes>,
    bearer: HeaderValue,
    numbers: std::ops::Range<u64>,
    stream_count: usize,
) -> Result<(), h2::Error> {
    let free = Arc::new(Semaphore::new(stream_count));
    let mut answers = JoinSet::new();
    let mut client = client.ready().await?;
    for number in numbers {
        let place = free.clone().acquire_owned().await.expect("the semaphore is never closed");
        while answers.try_join_next().is_some() {}
        client = client.ready().await?;
        let (answer, mut body) = client.send_request(request(number, &bearer), false)?;
        body.send_data(payload(number), true)?;
        answers.spawn_local(async move {
            let answer = answer.await.expect("the simulator answers");
            assert_eq!(answer.status(), 200);
            drop(place);
        });
    }
    while answers.join_next().await.is_some() {}
    Ok(())
}

fn request(number: u64, bearer: &HeaderValue) -> Request<()> {
    let sensitive = |text: String| {
        let mut value = HeaderValue::from_str(&text).expect("visible ASCII");
        value.set_sensitive(true);
        value
    };
    let spread = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let request = Request::post(format!("https://localhost/3/device/{spread:032x}{spread:032x}"))
        .header("authorization", bearer)
        .header("apns-topic", "com.example.football")
        .header("apns-push-type", "alert")
        .header("apns-priority", "10")
        .header("apns-expiration", sensitive("1800000000".into()))
        .header("apns-collapse-id", sensitive("match-7".into()))
        .header("apns-id", sensitive(Uuid::from_u128(spread).to_string()));
    request.body(()).expect("all parts are well formed")
}

fn payload(number: u64) -> Bytes {
    const PAYLOADS: [&str; 4] = [
        r#"{"aps":{"alert":{"title":"Goal for Sweden!","body":"Kosovare Asllani scores in minute 90. Sweden 2 – 1 France"},"sound":"default"},"tidings":{"event":"2022-final-07-goal"},"data":{"clock":"81'","score":[2,2],"moment":6,"sent":12345678}}"#,
        r#"{"aps":{"alert":{"title":"Tor für Schweden!","body":"Kosovare Asllani trifft in Minute 90. Schweden 2 – 1 France"},"sound":"default"},"tidings":{"event":"2022-final-07-goal"},"data":{"clock":"81'","score":[2,2],"moment":6,"sent":12345678}}"#,
        r#"{"aps":{"alert":{"title":"¡Gol de Suecia!","body":"Kosovare Asllani marca en el minuto 90. Suecia 2 – 1 France"},"sound":"default"},"tidings":{"event":"2022-final-07-goal"},"data":{"clock":"81'","score":[2,2],"moment":6,"sent":12345678}}"#,
        r#"{"aps":{"alert":{"title":"هدف لفريق السويد!","body":"سجّل Kosovare Asllani في الدقيقة 90. 2 – 1"},"sound":"default"},"tidings":{"event":"2022-final-07-goal"},"data":{"clock":"81'","score":[2,2],"moment":6,"sent":12345678}}"#,
    ];
    Bytes::from_static(PAYLOADS[(number % 4) as usize].as_bytes())
}

/// The CPU time of the simulator's threads, in steps of 10 ms.
fn cpu_time() -> Result<Duration, Failure> {
    let mut ticks = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let stat = std::fs::read_to_string(task?.path().join("stat"))?;
        let (name, rest) = stat.rsplit_once(')').ok_or("no name in stat")?;
        if name.contains("(simulator-") {
            // Fields 14 and 15 of the line (proc_pid_stat(5)). The first field after the name is field 3.
            ticks += rest.split_whitespace().skip(11).take(2).map(|field| field.parse().unwrap_or(0)).sum::<u64>();
        }
    }
    Ok(Duration::from_millis(10 * ticks))
}
