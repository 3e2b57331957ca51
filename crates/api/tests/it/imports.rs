//! `POST /v1/imports` and `GET /v1/imports/{name}`.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use futures_util::stream;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tidings_store::QueueLimit;
use tidings_types::DeviceId;
use tokio::time::{sleep, timeout};
use tower::ServiceExt;

use crate::support::{Answer, Cases, MUTE_COUNT_MAX, SUBSCRIPTION_COUNT_MAX, Server};

/// Of a device with as many subscriptions and mutes as here.
const LINE_BYTES_MAX: usize = (64 << 10) + 400 * SUBSCRIPTION_COUNT_MAX + 320 * MUTE_COUNT_MAX as usize;

fn device(id: &str) -> Value {
    json!({"id": id, "platform": "android", "token": format!("token-of-{id}"), "app": "a", "locale": "sv"})
}

fn subscribed(id: &str, subjects: &[&str]) -> Value {
    let mut device = device(id);
    device["subscriptions"] =
        subjects.iter().map(|subject| json!({"subject": subject, "topics": ["goal"]})).collect::<Value>();
    device
}

/// So many devices, a line each.
fn many(range: std::ops::Range<usize>) -> String {
    range.map(|number| format!("{}\n", subscribed(&format!("d-{number:05}"), &["team:1"]))).collect()
}

fn lines(devices: &[Value]) -> String {
    devices.iter().map(|device| format!("{device}\n")).collect()
}

fn large() -> Server {
    Server::with(|store, _| store.device_count_max = 10_000)
}

fn told(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    assert_eq!(answer.headers["content-type"], "application/x-ndjson");
    answer.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn last(answer: &Answer) -> Value {
    told(answer).pop().unwrap_or_default()
}

async fn import(server: &Server, query: &str, body: impl Into<Body>) -> Answer {
    server.send_with("POST", &format!("/v1/imports{query}"), &[("x-api-key", "root")], body).await
}

/// A body that comes in these pieces and then breaks off.
fn cut(pieces: Vec<Bytes>) -> Body {
    let pieces = pieces.into_iter().map(Ok).chain([Err(io::Error::other("the sender is gone"))]);
    Body::from_stream(stream::iter(pieces.collect::<Vec<_>>()))
}

async fn done(server: &Server, name: &str) -> Option<u64> {
    let answer = server.send("GET", &format!("/v1/imports/{name}"), "").await;
    (answer.status == StatusCode::OK).then(|| answer.json()["lines"].as_u64().unwrap())
}

async fn exported(server: &Server) -> String {
    server.send("GET", "/v1/export", "").await.body
}

#[tokio::test]
async fn it_tells_how_far_it_is_and_in_the_end_that_it_is_done() {
    let server = large();
    let answer = import(&server, "", many(0..2500)).await;
    let tally = |lines: u64| json!({"lines": lines, "repeated": 0, "created": lines, "updated": 0, "subscribed": lines, "rejected": 0});
    let mut end = tally(2500);
    end["done"] = json!(true);
    assert_eq!(told(&answer), [tally(1000), tally(2000), tally(2500), end]);
    assert_eq!(server.store.counts().devices, 2500);
    // The same again changes nothing.
    let before = exported(&server).await;
    let again = last(&import(&server, "", many(0..2500)).await);
    assert_eq!(
        again,
        json!({"lines": 2500, "repeated": 0, "created": 0, "updated": 2500, "subscribed": 0, "rejected": 0, "done": true})
    );
    assert_eq!(exported(&server).await, before);
    // Nothing is as good as done.
    for nothing in ["", "\n", " \n\r\n\t"] {
        assert_eq!(last(&import(&server, "", nothing).await)["done"], true, "{nothing:?}");
    }
}

#[tokio::test]
async fn one_with_a_name_goes_on_where_it_was_cut_off() {
    let server = large();
    assert_eq!(done(&server, "move").await, None);
    let (all, half) = (many(0..2500), many(0..1500) + r#"{"id": "half-a-li"#);
    let answer = import(&server, "?name=move", cut(vec![half.into()])).await;
    let told = told(&answer);
    assert!(!told.is_empty() && told.iter().all(|told| told.get("done").is_none()), "{answer:?}");
    assert_eq!(done(&server, "move").await, Some(1000), "what was told");
    let gap = import(&server, "?name=move&from=1001", many(1001..2500)).await;
    assert_eq!(gap.status, StatusCode::CONFLICT);
    let problem = gap.json();
    assert_eq!(
        (&problem["type"], &problem["field"], &problem["limit"], &problem["value"]),
        (&json!("urn:tidings:problem:out-of-step"), &json!("from"), &json!(1000), &json!(1001))
    );
    let rest = last(&import(&server, "?name=move&from=500", many(500..2500)).await);
    assert_eq!((&rest["done"], &rest["lines"], &rest["repeated"]), (&json!(true), &json!(2500), &json!(500)));
    assert_eq!((&rest["created"], &rest["updated"]), (&json!(1500), &json!(0)));
    let whole = last(&import(&server, "?name=move", all.clone()).await);
    assert_eq!((&whole["done"], &whole["repeated"], &whole["updated"]), (&json!(true), &json!(2500), &json!(0)));
    let progress = server.send("GET", "/v1/imports/move", "").await.json();
    assert_eq!(
        (&progress["lines"], &progress["created"], &progress["subscribed"]),
        (&json!(2500), &json!(2500), &json!(2500))
    );
    // Without a name the body's first line is said with `from` alone.
    let nameless = last(&import(&server, "?from=7", lines(&[device("x")])).await);
    assert_eq!((&nameless["lines"], &nameless["done"]), (&json!(8), &json!(true)));
}

/// Wherever it is cut, and however often, what comes of it is what one import makes.
#[tokio::test]
async fn cut_off_anywhere_it_makes_the_same_devices() {
    let all = many(0..1600);
    let expected = large();
    import(&expected, "", all.clone()).await;
    let expected = exported(&expected).await;
    let offsets: Vec<usize> = std::iter::once(0).chain(all.match_indices('\n').map(|(at, _)| at + 1)).collect();
    for seed in 1_usize..3 {
        let server = large();
        let mut at = seed;
        loop {
            at = at * 48_271 % 2_147_483_647;
            let from = done(&server, "move").await.unwrap_or_default() as usize;
            let from = from.saturating_sub(at % 3); // Some send a little again.
            let rest = &all.as_bytes()[offsets[from]..];
            let piece = Bytes::copy_from_slice(&rest[..rest.len().min(1 + at % (2 * rest.len()))]);
            let is_whole = piece.len() == rest.len();
            let body = if is_whole { Body::from(piece) } else { cut(vec![piece]) };
            let answer = import(&server, &format!("?name=move&from={from}"), body).await;
            if is_whole && last(&answer)["done"] == true {
                break;
            }
        }
        assert_eq!(done(&server, "move").await, Some(1600), "seed {seed}");
        assert!(exported(&server).await == expected, "seed {seed}: other devices");
    }
}

#[tokio::test]
async fn a_wrong_line_is_told_with_its_number_and_what_is_wrong() {
    let server = Server::start();
    let cases = Cases::default();
    let with = |field: &str, value: Value| {
        let mut device = device("wrong");
        device[field] = value;
        device.to_string()
    };
    let too_many: Vec<String> = (0..=SUBSCRIPTION_COUNT_MAX).map(|number| format!("t:{number}")).collect();
    let too_many: Vec<&str> = too_many.iter().map(String::as_str).collect();
    let long = with("app", json!("x".repeat(LINE_BYTES_MAX)));
    for (name, line, field, limit, value) in [
        ("not JSON", "{".to_owned(), json!(null), json!(null), json!(null)),
        ("not text", "[]".to_owned(), json!(null), json!(null), json!(null)),
        ("no id", "{}".to_owned(), json!("id"), json!(null), json!(null)),
        ("unknown", with("colour", json!("red")), json!("colour"), json!(null), json!(null)),
        ("name", with("locale", json!("svenska!")), json!("locale"), json!(null), json!("svenska!")),
        ("moment", with("seen_at", json!("today")), json!("seen_at"), json!(null), json!("today")),
        ("mute", with("mutes", json!([{"scope": "all"}])), json!("mutes[0].scope"), json!(null), json!("all")),
        ("both", with("credential_hash", json!("a")), json!("credential_hash"), json!(null), json!("a secret's")),
        ("too long", long, json!(null), json!(LINE_BYTES_MAX), json!(null)),
        (
            "too many",
            subscribed("wrong", &too_many).to_string(),
            json!("subscriptions"),
            json!(SUBSCRIPTION_COUNT_MAX),
            json!(SUBSCRIPTION_COUNT_MAX + 1),
        ),
    ] {
        let body = format!("{}\n\n{line}\n{}\n", device("right"), device(&format!("behind-{}", name.len())));
        let stopped = last(&import(&server, "", body.clone()).await);
        let problem = &stopped["problem"];
        cases.check(
            name,
            (&stopped["done"], &stopped["line"], &stopped["lines"]),
            (&json!(false), &json!(3), &json!(1)),
        );
        let facts = (problem["field"].clone(), problem["limit"].clone(), problem["value"].clone());
        cases.check(name, facts, (field, limit, value));
        let skipped = told(&import(&server, "?on_error=skip", body).await);
        cases.check(name, (&skipped[0]["line"], &skipped[0]["problem"]), (&json!(3), problem));
        let end = skipped.last().unwrap();
        cases.check(name, (&end["done"], &end["rejected"], &end["lines"]), (&json!(true), &json!(1), &json!(4)));
    }
    let secret =
        format!(r#"{{"id":"d","platform":"ios","app":"a","locale":"sv","credential":"s3cret-{}"}}"#, "x".repeat(9999));
    let answer = import(&server, "", secret).await;
    assert!(last(&answer)["done"] == false && !answer.body.contains("s3cret"), "{answer:?}");
    let not_utf8 = import(&server, "", &b"{\"id\":\"\xff\"}\n"[..]).await;
    assert_eq!((&last(&not_utf8)["done"], &last(&not_utf8)["line"]), (&json!(false), &json!(1)));
}

/// Only the store knows what a device has already: the line to blame is the one that does not fit, and none other.
#[tokio::test]
async fn a_device_that_has_no_room_is_the_wrong_line_and_no_other() {
    let full = ["t:1", "t:2", "t:3", "t:4"];
    let body = |more: &str| {
        let first: Vec<Value> = (0..40).map(|number| device(&format!("a-{number}"))).collect();
        let rest = [
            subscribed("full", &["t:5"]),       // 41: it fits.
            subscribed("full", &["t:6"]),       // 42: it fits too.
            subscribed("full", &["t:7", more]), // 43: it does not.
            subscribed("full", &["t:6"]),       // 44: it has that already.
            device("behind"),                   // 45
            subscribed("full", &["t:8"]),       // 46: it does not.
        ];
        lines(&[first, rest.to_vec()].concat())
    };
    let stopping = Server::start();
    import(&stopping, "", lines(&[subscribed("full", &full)])).await;
    let stopped = last(&import(&stopping, "?name=move", body("t:9")).await);
    assert_eq!((&stopped["line"], &stopped["lines"], &stopped["done"]), (&json!(43), &json!(42), &json!(false)));
    let problem = &stopped["problem"];
    assert_eq!(
        (&problem["field"], &problem["limit"], &problem["value"]),
        (&json!("subscriptions"), &json!(6), &json!(8))
    );
    assert_eq!(done(&stopping, "move").await, Some(42), "no line behind it is taken for done");
    assert_eq!(stopping.send("GET", "/v1/devices/behind", "").await.status, StatusCode::NOT_FOUND);

    let skipping = Server::start();
    import(&skipping, "", lines(&[subscribed("full", &full)])).await;
    let told = told(&import(&skipping, "?name=move&on_error=skip", body("t:9")).await);
    let wrong: Vec<u64> = told.iter().filter_map(|told| told["line"].as_u64()).collect();
    let end = told.last().unwrap();
    assert_eq!(
        (wrong, &end["rejected"], &end["lines"], &end["done"]),
        (vec![43, 46], &json!(2), &json!(46), &json!(true))
    );
    assert_eq!(done(&skipping, "move").await, Some(46));
    assert_eq!(skipping.send("GET", "/v1/devices/behind", "").await.status, StatusCode::OK);
}

/// The same where the chunk is full, and more of the body is to come.
#[tokio::test]
async fn nothing_behind_a_device_without_room_is_taken_for_done() {
    let server = large();
    import(&server, "", lines(&[subscribed("full", &["t:1", "t:2", "t:3", "t:4", "t:5"])])).await;
    let wrong = lines(&[subscribed("full", &["t:6", "t:7"])]);
    let body = many(0..500) + &wrong + &many(500..1500);
    let stopped = last(&import(&server, "?name=move", body).await);
    assert_eq!((&stopped["line"], &stopped["lines"], &stopped["created"]), (&json!(501), &json!(500), &json!(500)));
    assert_eq!((done(&server, "move").await, server.store.counts().devices), (Some(500), 501));
    let mended = many(0..500) + "\n" + &many(500..1500);
    let rest = last(&import(&server, "?name=move", mended).await);
    assert_eq!((&rest["done"], &rest["lines"], &rest["created"]), (&json!(true), &json!(1501), &json!(1000)));
    assert_eq!(server.store.counts().devices, 1501);
}

#[tokio::test]
async fn many_wrong_lines_are_counted_and_some_are_told() {
    let server = Server::start();
    let body = "{}\n".repeat(1500) + &lines(&[device("right")]);
    let told = told(&import(&server, "?on_error=skip&name=bad", body).await);
    let wrong = told.iter().filter(|told| told.get("line").is_some()).count();
    let end = told.last().unwrap();
    assert_eq!((wrong, &end["rejected"], &end["created"], &end["done"]), (100, &json!(1500), &json!(1), &json!(true)));
    assert_eq!(done(&server, "bad").await, Some(1501));
}

#[tokio::test]
async fn what_is_asked_wrongly_is_refused_before_anything_is_read() {
    let server = Server::start();
    let cases = Cases::default();
    for (query, field) in [
        ("?name=", "name"),
        ("?name=a%20b", "name"),
        ("?from=-1", "from"),
        ("?from=1.5", "from"),
        ("?from=18446744073709551615", "from"),
        ("?from=9007199254740993", "from"),
        ("?on_error=ignore", "on_error"),
        ("?on-error=skip", "on-error"),
        ("?name=a&name=b", "name"),
    ] {
        let answer = import(&server, query, lines(&[device("d")])).await;
        cases.check(query, (answer.status, answer.json()["field"].clone()), (StatusCode::BAD_REQUEST, json!(field)));
    }
    for (header, value) in
        [("content-type", "text/csv"), ("content-type", "application/msgpack"), ("content-encoding", "gzip")]
    {
        let headers = [("x-api-key", "root"), (header, value)];
        let answer = server.send_with("POST", "/v1/imports", &headers, lines(&[device("d")])).await;
        cases.check(value, answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    assert_eq!(server.store.counts().devices, 0);
    let largest = import(&server, "?from=9007199254740992", lines(&[device("d")])).await;
    assert_eq!((&last(&largest)["lines"], &last(&largest)["done"]), (&json!(9_007_199_254_740_993_u64), &json!(true)));
    for (key, status) in [("publish", 403), ("read", 403), ("operate", 403), ("nobody's", 401), ("devices", 200)] {
        let answer = server.send_with("POST", "/v1/imports", &[("x-api-key", key)], lines(&[device("d")])).await;
        cases.check(key, answer.status.as_u16(), status);
        let answer = server.send_with("GET", "/v1/imports/x", &[("x-api-key", key)], "").await;
        cases.check(key, answer.status.as_u16(), if status == 200 { 404 } else { status });
    }
}

/// 32 MiB that are never in memory together; the one line of it that is right is found.
#[tokio::test]
async fn a_body_may_be_longer_than_any_memory() {
    let server = Server::start();
    let long = Bytes::from(vec![b'x'; 64 << 10]);
    let filler = std::iter::repeat_n(long, 512);
    let pieces = filler.chain([Bytes::from(format!("\n{}", device("right")))]);
    let body = Body::from_stream(stream::iter(pieces.map(Ok::<_, Infallible>)));
    let told = told(&import(&server, "?on_error=skip", body).await);
    let end = told.last().unwrap();
    assert_eq!((&told[0]["line"], &told[0]["problem"]["limit"]), (&json!(1), &json!(LINE_BYTES_MAX)));
    assert_eq!((&end["rejected"], &end["created"], &end["done"]), (&json!(1), &json!(1), &json!(true)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_store_has_too_much_to_do_it_waits() {
    let server = Server::with(|store, _| {
        store.device_count_max = 10_000;
        store.import_queue = QueueLimit { count: 1, bytes: 4 << 20 };
    });
    let imports = (0..6).map(|part| import(&server, "", many(part * 500..(part + 1) * 500)));
    let answers = futures_util::future::join_all(imports).await;
    assert!(
        answers.iter().all(|answer| last(answer)["done"] == true),
        "{:?}",
        answers.iter().map(last).collect::<Vec<_>>()
    );
    assert_eq!(server.store.counts().devices, 3000);
}

/// The one or the other does each part; together they do all of it, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_of_one_name_at_once_do_no_harm() {
    let server = large();
    let (one, other) =
        tokio::join!(import(&server, "?name=move", many(0..2500)), import(&server, "?name=move", many(0..2500)));
    let ends = [last(&one), last(&other)];
    for end in &ends {
        let is_out_of_step = end["problem"]["type"] == "urn:tidings:problem:out-of-step";
        assert!(end["done"] == true || is_out_of_step && end["done"] == false, "{end}");
    }
    let rest = last(&import(&server, "?name=move", many(0..2500)).await);
    assert_eq!((&rest["done"], &rest["lines"]), (&json!(true), &json!(2500)));
    let progress = server.send("GET", "/v1/imports/move", "").await.json();
    assert_eq!(
        (&progress["created"], &progress["updated"], &progress["lines"]),
        (&json!(2500), &json!(0), &json!(2500))
    );
}

#[tokio::test]
async fn who_hangs_up_ends_it_and_leaves_its_place() {
    let server = Server::with(|_, api| api.request_count_max = 4);
    let endless = || {
        let first = Bytes::from(lines(&[device("first")]));
        Body::from_stream(stream::unfold(Some(first), async |first| match first {
            Some(first) => Some((Ok::<_, Infallible>(first), None)),
            None => std::future::pending().await,
        }))
    };
    let request =
        Request::builder().method("POST").uri("/v1/imports").header("x-api-key", "root").body(endless()).unwrap();
    let waiting = server.router.clone().oneshot(request).await.unwrap();
    assert_eq!(waiting.status(), StatusCode::OK);
    let second = import(&server, "", lines(&[device("second")])).await;
    assert_eq!(second.status, StatusCode::SERVICE_UNAVAILABLE, "one of four may wait");
    drop(waiting);
    let free = async {
        while import(&server, "", lines(&[device("second")])).await.status != StatusCode::OK {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(10), free).await.expect("its place is free");
    let id = DeviceId::new("first").unwrap();
    assert!(server.store.device(&id).unwrap().is_none(), "what was not written is not done");
}

/// Whoever sends nothing more does not hold the place for good; what came before is not lost to one who says so.
#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_go_on_is_given_up() {
    let server = Server::start();
    let first = Bytes::from(lines(&[device("first")]));
    let body = Body::from_stream(stream::unfold(Some(first), async |first| match first {
        Some(first) => Some((Ok::<_, Infallible>(first), None)),
        None => std::future::pending().await,
    }));
    let request = Request::builder().method("POST").uri("/v1/imports").header("x-api-key", "root").body(body).unwrap();
    let answer = server.router.clone().oneshot(request).await.unwrap();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    let end: Value = serde_json::from_slice(bytes.trim_ascii()).unwrap();
    assert_eq!((&end["done"], &end["problem"]["type"]), (&json!(false), &json!("urn:tidings:problem:timeout")));
    assert_eq!(end["lines"], 0);
}

/// A sender with `Expect: 100-continue` is told to go on when its body is asked for, and that must be before the answer.
#[tokio::test]
async fn nothing_is_answered_before_the_body_is_asked_for() {
    let server = Server::start();
    let is_asked = Arc::new(AtomicBool::new(false));
    let asked = is_asked.clone();
    let body = Body::from_stream(stream::once(async move {
        asked.store(true, Ordering::Relaxed);
        Ok::<_, Infallible>(Bytes::from(lines(&[device("d")])))
    }));
    let request = Request::builder().method("POST").uri("/v1/imports").header("x-api-key", "root").body(body).unwrap();
    let answer = server.router.clone().oneshot(request).await.unwrap();
    assert!(answer.status() == StatusCode::OK && is_asked.load(Ordering::Relaxed));
}

/// Also where the progress of many chunks came before them, and nobody has read any of it.
#[tokio::test]
async fn what_is_wrong_is_told_to_a_slow_reader_as_well() {
    let server = Server::start();
    let padding = " ".repeat(60 << 10); // So that few lines are a chunk.
    let many = format!("{}{padding}\n", device("d-1"));
    let (devices, wrong) = (20 * 18, 100);
    let body = many.repeat(devices) + &"{}\n".repeat(wrong);
    let request = Request::builder().method("POST").uri("/v1/imports?name=n&on_error=skip").header("x-api-key", "root");
    let unread = server.router.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
    let done = async {
        while server.send("GET", "/v1/imports/n", "").await.json()["lines"] != devices + wrong {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(60), done).await.expect("an import waits for no reader");
    let bytes = unread.into_body().collect().await.unwrap().to_bytes();
    let told = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let told: Vec<Value> = told.map(|line| serde_json::from_slice(line).unwrap()).collect();
    assert_eq!(told.iter().filter(|line| line["problem"].is_object()).count(), wrong);
    assert_eq!((&told.last().unwrap()["rejected"], &told.last().unwrap()["done"]), (&json!(wrong), &json!(true)));
}
