//! `/api`, byte for byte.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use http_body_util::BodyExt;
use tidings_hub::Member;
use tidings_protocol::{
    ClientId, ClientInfo, ClientPosition, Disconnect, LiveConnection, Order, OrderError, SubscriptionTerms, Target,
    Unsubscribe,
};
use tidings_types::{ChannelName, Format, Json, Offset, Timestamp, Variant};
use tower::ServiceExt;

use crate::support::{Cases, Server};

const BAD_REQUEST: &str = r#"{"error":{"code":107,"message":"bad request"}}"#;
const UNKNOWN: &str = r#"{"error":{"code":102,"message":"unknown channel"}}"#;
const NOT_AVAILABLE: &str = r#"{"error":{"code":108,"message":"not available"}}"#;

impl Server {
    async fn api(&self, method: &str, body: impl Into<String>) -> String {
        let answer = self.post(&format!("/api/{method}"), body.into()).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        assert_eq!(answer.headers["content-type"], "application/json");
        answer.body
    }

    /// The epoch of a channel with history.
    async fn epoch(&self, channel: &str) -> String {
        let answer = self.api("history", format!(r#"{{"channel":"{channel}"}}"#)).await;
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        answer["result"]["epoch"].as_str().unwrap().to_owned()
    }

    pub(crate) fn join(&self, channel: &str, user: &str, bits: u128, conn_info: Option<&str>) {
        let conn_info = conn_info.map(|info| Json::parse(info.as_bytes()).unwrap());
        let client = ClientId::from_random(bits);
        let presence = Some(ClientInfo { user: user.to_owned(), client, conn_info, chan_info: None });
        let loop_id = self.hub.loops().next().unwrap().0;
        self.hub
            .subscribe(
                &ChannelName::new(channel).unwrap(),
                &Member {
                    presence,
                    ..Member::reader(loop_id, ClientId::from_random(1), Variant::websocket(Format::Json))
                },
                None,
            )
            .unwrap();
    }
}

#[tokio::test]
async fn a_publication_without_history_has_an_empty_result() {
    let server = Server::start();
    assert_eq!(server.api("publish", r#"{"channel":"news","data":{"a":1}}"#).await, r#"{"result":{}}"#);
    assert_eq!(
        server.api("publish", r#"{"channel":"chat:1","data":null,"delta":true,"unknown":[]}"#).await,
        r#"{"result":{}}"#
    );
    let skipped = server.api("publish", r#"{"channel":"live:1","data":1,"skip_history":true}"#).await;
    assert_eq!(skipped, r#"{"result":{}}"#);
}

#[tokio::test]
async fn a_namespace_may_take_objects_only() {
    let server = Server::start();
    for (data, expected) in [(r#"{"a":1}"#, r#"{"result":{}}"#), ("[]", BAD_REQUEST), ("null", BAD_REQUEST)] {
        let body = format!(r#"{{"channel":"objects:1","data":{data}}}"#);
        assert_eq!(server.api("publish", body).await, expected, "{data}");
    }
}

#[tokio::test]
async fn a_publication_with_history_tells_its_position() {
    let server = Server::start();
    let epoch = server.epoch("live:1").await;
    for offset in 1..=2 {
        let answer = server.api("publish", r#"{"channel":"live:1","data":{}}"#).await;
        assert_eq!(answer, format!(r#"{{"result":{{"offset":{offset},"epoch":"{epoch}"}}}}"#));
    }
}

#[tokio::test]
async fn a_publication_into_a_durable_channel_goes_through_the_store() {
    let server = Server::start();
    let epoch = server.store.channel_start().epoch;
    let answer = server.api("publish", r#"{"channel":"team:1","data":{"a": 1},"tags":{"k":"v"}}"#).await;
    assert_eq!(answer, format!(r#"{{"result":{{"offset":1,"epoch":"{epoch}"}}}}"#));
    assert_eq!(server.published("team:1"), [r#"{"a": 1}"#]);
    let history = server.api("history", r#"{"channel":"team:1","limit":-1}"#).await;
    let publication = r#"{"data":{"a": 1},"offset":1,"tags":{"k":"v"}}"#;
    let expected = format!(r#"{{"result":{{"publications":[{publication}],"epoch":"{epoch}","offset":1}}}}"#);
    assert_eq!(history, expected);
    let skipped = server.api("publish", r#"{"channel":"team:1","data":1,"skip_history":true}"#).await;
    assert_eq!((skipped.as_str(), server.published("team:1").len()), (DONE, 1), "only for those who read now");
}

#[tokio::test]
async fn wrong_publications_are_refused_with_the_references_codes() {
    let server = Server::start();
    let cases = Cases::default();
    let key = "k".repeat(256);
    let large = "x".repeat(5000);
    for (name, body, expected) in [
        ("no channel", r#"{"data":1}"#.to_owned(), BAD_REQUEST),
        ("empty channel", r#"{"channel":"","data":1}"#.to_owned(), BAD_REQUEST),
        ("channel with a space", r#"{"channel":"a b","data":1}"#.to_owned(), BAD_REQUEST),
        ("no data", r#"{"channel":"news"}"#.to_owned(), BAD_REQUEST),
        ("nothing", String::new(), BAD_REQUEST),
        ("binary", r#"{"channel":"news","b64data":"AA==","data":1}"#.to_owned(), BAD_REQUEST),
        ("unknown namespace", r#"{"channel":"nowhere:1","data":1}"#.to_owned(), UNKNOWN),
        ("long epoch", format!(r#"{{"channel":"news","data":1,"version":1,"version_epoch":"{key}"}}"#), BAD_REQUEST),
        ("long key", format!(r#"{{"channel":"news","data":1,"idempotency_key":"{key}"}}"#), BAD_REQUEST),
        ("long tags", format!(r#"{{"channel":"news","data":1,"tags":{{"k":"{large}"}}}}"#), BAD_REQUEST),
        (
            "no version",
            r#"{"channel":"news","data":1,"version":0,"b64data":"","idempotency_key":""}"#.to_owned(),
            r#"{"result":{}}"#,
        ),
    ] {
        cases.check(name, server.api("publish", body).await, expected.to_owned());
    }
    for body in ["{", "[]", r#"{"channel":5,"data":1}"#, r#"{"channel":"news","data":1,"skip_history":"yes"}"#] {
        let answer = server.post("/api/publish", body).await;
        cases.check(body, answer.status, StatusCode::BAD_REQUEST);
        cases.check(body, answer.body.starts_with("not JSON of the method's shape: "), true);
        cases.check(body, answer.headers["content-type"].to_str().unwrap(), "text/plain; charset=utf-8");
    }
}

#[tokio::test]
async fn data_over_its_limit_is_refused() {
    let server = Server::with(|_, api| api.body_bytes_max = 1 << 20);
    let body = |bytes: usize| format!(r#"{{"channel":"news","data":"{}"}}"#, "x".repeat(bytes - 2));
    assert_eq!(server.api("publish", body(512 << 10)).await, r#"{"result":{}}"#);
    assert_eq!(server.api("publish", body((512 << 10) + 1)).await, BAD_REQUEST);
}

#[tokio::test]
async fn in_transport_error_mode_the_status_says_it() {
    let server = Server::start();
    let cases = Cases::default();
    let epoch = r#"{"channel":"live:1","since":{"offset":1,"epoch":"xxxxxxxx"}}"#;
    for (method, body, status, expected) in [
        ("publish", r#"{"channel":"nowhere:1","data":1}"#, 404, r#"{"code":102,"message":"unknown channel"}"#),
        ("publish", "{}", 400, r#"{"code":107,"message":"bad request"}"#),
        ("history", r#"{"channel":"news"}"#, 400, r#"{"code":108,"message":"not available"}"#),
        ("history", epoch, 416, r#"{"code":112,"message":"unrecoverable position"}"#),
        ("info", "{}", 200, r#"{"result":{"nodes":["#),
    ] {
        let headers = [("x-api-key", "root"), ("x-centrifugo-error-mode", "transport")];
        let answer = server.send_with("POST", &format!("/api/{method}"), &headers, body).await;
        cases.check(method, answer.status.as_u16(), status);
        cases.check(method, answer.body.starts_with(expected), true);
    }
}

#[tokio::test]
async fn without_room_the_caller_is_told_to_try_again_and_a_failing_store_is_an_internal_error() {
    let no_room = "too many requests: there are as many channels or waiting writes as allowed, try again later";
    let no_room = format!(r#"{{"error":{{"code":111,"message":"{no_room}"}}}}"#);
    let server = Server::with(|store, _| store.channel_count_max = 1);
    assert!(server.api("publish", r#"{"channel":"team:1","data":1}"#).await.contains("\"offset\":1"));
    assert_eq!(server.api("publish", r#"{"channel":"team:2","data":1}"#).await, no_room);
    let publish = r#"{"publish":{"channel":"team:2","data":1}}"#;
    let batch = server.api("batch", format!(r#"{{"commands":[{publish}]}}"#)).await;
    assert!(batch.contains(&no_room[1..no_room.len() - 1]), "{batch}");
    for number in 0..1200 {
        let answer = server.api("publish", format!(r#"{{"channel":"live:{number}","data":1}}"#)).await;
        assert_eq!(answer == no_room, number >= 1100, "{number}: {answer}");
    }
    let server = Server::with(|store, _| store.event_queue.count = 0);
    assert_eq!(server.api("publish", r#"{"channel":"team:1","data":1}"#).await, no_room);
    let server = Server::start();
    server.store.close().await;
    let error = r#"{"error":{"code":100,"message":"internal server error"}}"#;
    assert_eq!(server.api("publish", r#"{"channel":"team:1","data":1}"#).await, error);
    let memory = server.api("publish", r#"{"channel":"live:1","data":1}"#).await;
    assert!(memory.contains("\"offset\":1"), "a memory channel needs no store: {memory}");
}

#[tokio::test]
async fn a_broadcast_answers_for_each_channel_in_order() {
    let server = Server::start();
    let epoch = server.epoch("live:1").await;
    let answer = server.api("broadcast", r#"{"channels":["live:1","nowhere:1","","news","live:1"],"data":1}"#).await;
    let place = |offset: u64| format!(r#"{{"result":{{"offset":{offset},"epoch":"{epoch}"}}}}"#);
    let expected = format!(
        r#"{{"result":{{"responses":[{},{UNKNOWN},{BAD_REQUEST},{{"result":{{}}}},{}]}}}}"#,
        place(1),
        place(2)
    );
    assert_eq!(answer, expected);
    assert_eq!(server.api("broadcast", r#"{"channels":[],"data":1}"#).await, BAD_REQUEST);
    assert_eq!(server.api("broadcast", r#"{"channels":["news"]}"#).await, BAD_REQUEST);
    let many = |count: usize| {
        let channels: Vec<String> = (0..count).map(|number| format!("\"team:{number}\"")).collect();
        format!(r#"{{"channels":[{}],"data":1}}"#, channels.join(","))
    };
    let too_many = r#"{"error":{"code":107,"message":"bad request: a broadcast has at most 1000 channels"}}"#;
    assert_eq!(server.api("broadcast", many(1001)).await, too_many);
    let answer = server.api("broadcast", many(1000)).await;
    assert_eq!(answer.matches(r#"{"result":{"offset":1,"#).count(), 1000);
}

#[tokio::test]
async fn with_an_idempotency_key_a_channel_gets_a_publication_once() {
    let server = Server::start();
    for channel in ["live:1", "team:1"] {
        let body = |key: &str| format!(r#"{{"channel":"{channel}","data":1,"idempotency_key":"{key}"}}"#);
        let first = server.api("publish", body("a")).await;
        assert!(first.contains("\"offset\":1"), "{first}");
        let (second, third) = tokio::join!(server.api("publish", body("a")), server.api("publish", body("a")));
        assert_eq!((&second, &third), (&first, &first));
        assert!(server.api("publish", body("b")).await.contains("\"offset\":2"));
    }
    let both = r#"{"channels":["live:1","live:2","live:2"],"data":1,"idempotency_key":"a"}"#;
    let answer = server.api("broadcast", both).await;
    assert_eq!(answer.matches("\"offset\":1").count(), 3, "the key counts per channel: {answer}");
}

/// Between two calls the server ends and comes back.
#[tokio::test]
async fn with_an_idempotency_key_a_durable_channel_gets_a_publication_once_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let start = || Server::with(|store, _| store.path = folder.path().to_owned());
    let calls = [
        ("publish", r#"{"channel":"team:1","data":1,"tags":{"event":"e1"},"idempotency_key":"a"}"#),
        ("publish", r#"{"channel":"team:1","data":2,"idempotency_key":"b"}"#),
        ("broadcast", r#"{"channels":["team:1","team:2"],"data":3,"idempotency_key":"b"}"#),
        (
            "batch",
            r#"{"commands":[{"publish":{"channel":"team:2","data":4,"idempotency_key":"c"}},
            {"broadcast":{"channels":["team:2","team:3"],"data":5,"idempotency_key":"c"}}],"parallel":true}"#,
        ),
    ];
    let mut answers: Vec<String> = Vec::new();
    for life in 0..3 {
        let server = start();
        for (index, (method, body)) in calls.into_iter().enumerate() {
            let answer = server.api(method, body).await;
            let first = if life == 0 { answer.clone() } else { answers[index].clone() };
            assert_eq!(answer, first, "{method} in life {life}");
            answers.push(answer);
        }
        let counts = ["team:1", "team:2", "team:3"].map(|channel| server.published(channel).len());
        assert_eq!(counts, [2, 2, 1], "in life {life}");
        server.store.close().await;
    }
    assert!(answers[2].contains("\"offset\":2"), "the key of another call in the channel: {}", answers[2]);
}

#[tokio::test]
async fn history_is_paged_in_both_directions() {
    let server = Server::start();
    let epoch = server.epoch("live:1").await;
    for number in 1..=4 {
        server.api("publish", format!(r#"{{"channel":"live:1","data":{number}}}"#)).await;
    }
    let cases = Cases::default();
    for (request, expected) in [
        ("", vec![]),
        (r#","limit":0"#, vec![]),
        (r#","limit":-1"#, vec![2, 3, 4]),
        (r#","limit":2"#, vec![2, 3]),
        (r#","limit":2,"reverse":true"#, vec![4, 3]),
        (r#","limit":-1,"since":{"offset":3}"#, vec![4]),
        (r#","limit":-1,"since":{"offset":4},"reverse":true"#, vec![3, 2]),
        (r#","limit":-1,"since":{"offset":9}"#, vec![]),
    ] {
        let answer = server.api("history", format!(r#"{{"channel":"live:1"{request}}}"#)).await;
        let publications: Vec<String> =
            expected.iter().map(|number| format!(r#"{{"data":{number},"offset":{number}}}"#)).collect();
        let publications = publications.join(",");
        let expected = format!(r#"{{"result":{{"publications":[{publications}],"epoch":"{epoch}","offset":4}}}}"#);
        cases.check(request, answer, expected);
    }
    let since = |epoch: &str| format!(r#"{{"channel":"live:1","limit":1,"since":{{"offset":3,"epoch":"{epoch}"}}}}"#);
    assert!(server.api("history", since(&epoch)).await.starts_with(r#"{"result":{"publications":[{"data":4"#));
    let lost = r#"{"error":{"code":112,"message":"unrecoverable position"}}"#;
    assert_eq!(server.api("history", since("xxxxxxxx")).await, lost);
    assert_eq!(server.api("history", r#"{"channel":"news","limit":1}"#).await, NOT_AVAILABLE);
    assert_eq!(server.api("history", r#"{"channel":"nowhere:1"}"#).await, UNKNOWN);
    assert_eq!(server.api("history", "{}").await, BAD_REQUEST);
}

#[tokio::test]
async fn presence_tells_who_is_there() {
    let server = Server::start();
    assert_eq!(server.api("presence", r#"{"channel":"live:1"}"#).await, r#"{"result":{"presence":{}}}"#);
    assert_eq!(
        server.api("presence_stats", r#"{"channel":"live:1"}"#).await,
        r#"{"result":{"num_clients":0,"num_users":0}}"#
    );
    server.join("live:1", "ann", 1, Some(r#"{"name":"Ann"}"#));
    server.join("live:1", "", 2, None);
    server.join("live:1", "ann", 3, None);
    let [one, two, three] = [1, 2, 3].map(|bits| ClientId::from_random(bits).to_string());
    let expected = format!(
        r#"{{"result":{{"presence":{{"{one}":{{"user":"ann","client":"{one}","conn_info":{{"name":"Ann"}}}},"{two}":{{"user":"","client":"{two}"}},"{three}":{{"user":"ann","client":"{three}"}}}}}}}}"#
    );
    assert_eq!(server.api("presence", r#"{"channel":"live:1"}"#).await, expected);
    assert_eq!(
        server.api("presence_stats", r#"{"channel":"live:1"}"#).await,
        r#"{"result":{"num_clients":3,"num_users":2}}"#
    );
    for method in ["presence", "presence_stats"] {
        assert_eq!(server.api(method, r#"{"channel":"news"}"#).await, NOT_AVAILABLE);
        assert_eq!(server.api(method, r#"{"channel":"nowhere:1"}"#).await, UNKNOWN);
        assert_eq!(server.api(method, "{}").await, BAD_REQUEST);
    }
}

#[tokio::test(start_paused = true)]
async fn info_counts_what_there_is() {
    let server = Server::start();
    server.join("live:1", "ann", 1, None);
    server.join("chat:1", "ann", 1, None);
    let node = |uptime: &str| {
        format!(
            r#"{{"result":{{"nodes":[{{"uid":"u-1","name":"node-1","version":"1.2.3","num_clients":5,"num_users":4,"num_subs":2,"num_channels":2{uptime}}}]}}}}"#
        )
    };
    for body in ["", "{}", "null"] {
        assert_eq!(server.api("info", body).await, node(""));
    }
    tokio::time::advance(std::time::Duration::from_secs(7)).await;
    assert_eq!(server.api("info", "{}").await, node(r#","uptime":7"#));
}

#[tokio::test]
async fn a_batch_answers_each_command_in_order() {
    let server = Server::start();
    let commands = r#"[{"publish":{"channel":"live:1","data":1}},{"presence_stats":{"channel":"live:1"}},{"publish":{"channel":"nowhere:1","data":1}},{"rpc":{}},{"nothing":{}},{"batch":{}},{},null,{"publish":5},{"info":{},"publish":{}}]"#;
    let epoch = server.epoch("live:1").await;
    let answer = server.api("batch", format!(r#"{{"commands":{commands}}}"#)).await;
    let not_found = r#"{"error":{"code":104,"message":"not found"}}"#;
    let expected = [
        format!(r#"{{"publish":{{"offset":1,"epoch":"{epoch}"}}}}"#),
        r#"{"presence_stats":{"num_clients":0,"num_users":0}}"#.to_owned(),
        UNKNOWN.to_owned(),
        NOT_AVAILABLE.to_owned(),
        not_found.to_owned(),
        not_found.to_owned(),
        BAD_REQUEST.to_owned(),
        BAD_REQUEST.to_owned(),
        BAD_REQUEST.to_owned(),
        BAD_REQUEST.to_owned(),
    ];
    assert_eq!(answer, format!(r#"{{"replies":[{}]}}"#, expected.join(",")));
    let parallel = format!(r#"{{"commands":{commands},"parallel":true}}"#);
    assert_eq!(server.api("batch", parallel).await.matches("error").count(), 8);
    assert_eq!(server.api("batch", "{}").await, BAD_REQUEST);
    let headers = [("x-api-key", "read")];
    let body = r#"{"commands":[{"publish":{"channel":"news","data":1}},{"history":{"channel":"live:1"}}]}"#;
    let answer = server.send_with("POST", "/api/batch", &headers, body).await.body;
    let denied = r#"{"replies":[{"error":{"code":103,"message":"permission denied"}},{"history":{"publications":[]"#;
    assert!(answer.starts_with(denied), "{answer}");
}

#[tokio::test]
async fn the_older_endpoint_answers_a_line_per_command() {
    let server = Server::start();
    let body = concat!(
        r#"{"method":"publish","params":{"channel":"news","data":1}}"#,
        "\n",
        r#"{"id":7,"method":"PRESENCE_STATS","params":{"channel":"live:1"}}{"method":"nothing"} {"method":"publish","params":{}}"#,
    );
    let answer = server.post("/api", body).await;
    let with_slash = server.post("/api/", body).await;
    assert_eq!((with_slash.status, &with_slash.body), (answer.status, &answer.body));
    let expected = concat!(
        "{\"result\":{}}\n",
        "{\"result\":{\"num_clients\":0,\"num_users\":0}}\n",
        "{\"error\":{\"code\":104,\"message\":\"not found\"}}\n",
        "{\"error\":{\"code\":107,\"message\":\"bad request\"}}\n",
    );
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, expected));
    for body in ["", "  ", "{", r#"{"method":"info"}{"#, "7", "[\"info\"]"] {
        assert_eq!(server.post("/api", body).await.status, StatusCode::BAD_REQUEST, "{body:?}");
    }
    let headers = [("x-api-key", "devices")];
    let answer = server.send_with("POST", "/api", &headers, r#"{"method":"info"}"#).await;
    assert_eq!(answer.body, "{\"error\":{\"code\":103,\"message\":\"permission denied\"}}\n");
}

#[tokio::test]
async fn what_the_reference_has_and_we_have_not_is_not_available() {
    let server = Server::start();
    for method in ["rpc"] {
        assert_eq!(server.api(method, "{}").await, NOT_AVAILABLE, "{method}");
    }
}

const TOO_LARGE: &str = "bad request: the results of a request have at most 8 MiB: read less with limit and since, or fewer \
                         channels at once; this command was not done";

/// A server with a channel whose history is 1.1 MB as JSON.
async fn with_long_history() -> Server {
    let server = Server::start();
    let publication = format!(r#"{{"channel":"team:1","data":"{}"}}"#, "x".repeat(110_000));
    for _ in 0..10 {
        server.api("publish", publication.as_str()).await;
    }
    server
}

#[tokio::test]
async fn the_results_of_a_request_are_bounded_in_bytes() {
    let server = with_long_history().await;
    let history = r#"{"history":{"channel":"team:1","limit":-1}}"#;
    let presence = r#"{"presence":{"channel":"team:1"}}"#;
    let publish = r#"{"publish":{"channel":"team:2","data":1}}"#;
    for parallel in [false, true] {
        let commands = [[history; 9].join(","), [presence, publish].join(",")].join(",");
        let answer = server.api("batch", format!(r#"{{"parallel":{parallel},"commands":[{commands}]}}"#)).await;
        assert!(answer.len() < 9 << 20, "{} bytes", answer.len());
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        let replies = answer["replies"].as_array().unwrap();
        let refused =
            |reply: &serde_json::Value| reply["error"]["message"] == TOO_LARGE && reply["error"]["code"] == 107;
        let read =
            |reply: &&serde_json::Value| reply["history"]["publications"].as_array().is_some_and(|it| it.len() == 10);
        assert_eq!(replies[..9].iter().filter(read).count(), 7, "{parallel}");
        assert_eq!(replies[..9].iter().filter(|reply| refused(reply)).count(), 2, "{parallel}");
        assert!(refused(&replies[9]) || parallel, "what is read behind it does not fit either");
        assert!(replies[10]["publish"]["offset"].is_u64(), "what is done is told: {}", replies[10]);
    }
    let older = r#"{"method":"history","params":{"channel":"team:1","limit":-1}}"#;
    let answer = server.post("/api", older.repeat(9)).await;
    assert_eq!(answer.body.matches(TOO_LARGE).count(), 2);
    let one = server.api("history", r#"{"channel":"team:1","limit":-1}"#).await;
    assert!(one.len() > 1 << 20, "alone it fits");
}

#[tokio::test]
async fn only_so_many_large_answers_wait_for_their_readers() {
    let server = with_long_history().await;
    let ask = async |key: &str| {
        let request = Request::post("/api/history").header("x-api-key", key);
        let body = Body::from(r#"{"channel":"team:1","limit":-1}"#);
        server.router.clone().oneshot(request.body(body).unwrap()).await.unwrap()
    };
    let read = async |answer: Response| answer.into_body().collect().await.unwrap().to_bytes();
    let mut unread = Vec::new();
    let refused = loop {
        let answer = ask("root").await;
        if answer.headers()["content-length"].to_str().unwrap().parse::<usize>().unwrap() < 1 << 20 {
            break read(answer).await;
        }
        unread.push(answer);
        assert!(unread.len() < 17, "nothing is refused");
    };
    assert_eq!(unread.len(), 10, "sixteen, of which six other keys have one each");
    let expected =
        r#"{"error":{"code":100,"message":"internal server error: too many large answers at a time, try again"}}"#;
    assert_eq!(refused, expected);
    let small = server.api("history", r#"{"channel":"team:1"}"#).await;
    assert!(small.starts_with(r#"{"result":{"publications":[]"#), "{small}");
    assert!(read(ask("read").await).await.len() > 1 << 20, "another key has its own place");
    let bytes = read(unread.pop().unwrap()).await;
    assert_eq!(read(ask("root").await).await, expected, "its bytes are not written yet");
    drop(bytes);
    assert!(read(ask("root").await).await.len() > 1 << 20);
}

/// What the edge was asked, and its answer.
async fn orders(server: &Server, method: &str, body: &str) -> (String, Vec<(Target, Order)>) {
    let answer = server.api(method, body).await;
    (answer, server.revoked.take_orders())
}

fn target(user: &str) -> Target {
    Target { user: user.to_owned(), ..Target::default() }
}

const DONE: &str = r#"{"result":{}}"#;

#[tokio::test]
async fn live_connections_are_subscribed() {
    let server = Server::start();
    let body = r#"{"user":"42","client":"c","session":"","channel":"live:1","data":{"a":1},"info":7,"expire_at":4000000000,
        "recover_since":{"offset":3,"epoch":"e"},"override":{"presence":{"value":true}}}"#;
    let terms = SubscriptionTerms {
        expires_at: Some(Timestamp(4_000_000_000_000)),
        info: Some(Json::of(&7)),
        data: Some(Json::parse(br#"{"a":1}"#).unwrap()),
        presence: Some(true),
        ..SubscriptionTerms::default()
    };
    let since = Some(ClientPosition { offset: Offset(3), epoch: "e".to_owned() });
    let channel = ChannelName::new("live:1").unwrap();
    let order = Order::Subscribe { channel: channel.clone(), terms, since };
    let expected = (Target { client: Some("c".to_owned()), ..target("42") }, order);
    assert_eq!(orders(&server, "subscribe", body).await, (DONE.to_owned(), vec![expected]));

    let plain = Order::Subscribe { channel, terms: SubscriptionTerms::default(), since: None };
    let (answer, given) = orders(&server, "subscribe", r#"{"channel":"live:1"}"#).await;
    assert_eq!((answer.as_str(), given), (DONE, vec![(target(""), plain)]), "the user without a name");
    let cases = Cases::default();
    for (body, expected) in [
        ("{}", BAD_REQUEST),
        (r#"{"user":"42","channel":"a b"}"#, BAD_REQUEST),
        (r#"{"user":"42","channel":"live:1","expire_at":1}"#, BAD_REQUEST),
        (r#"{"user":"42","channel":"nowhere:1"}"#, UNKNOWN),
        (r#"{"all_users":true,"channel":"live:1"}"#, NOT_AVAILABLE),
    ] {
        cases.check(body, orders(&server, "subscribe", body).await, (expected.to_owned(), vec![]));
    }
}

#[tokio::test]
async fn live_connections_are_unsubscribed() {
    let server = Server::start();
    let channel = ChannelName::new("live:1").unwrap();
    for (body, channel) in [
        (r#"{"user":"42","channel":"live:1"}"#, Some(channel)),
        (r#"{"user":"42","channel":""}"#, None),
        (r#"{"user":"42"}"#, None),
    ] {
        let order = Order::Unsubscribe { channel, why: Unsubscribe::SERVER };
        assert_eq!(
            orders(&server, "unsubscribe", body).await,
            (DONE.to_owned(), vec![(target("42"), order)]),
            "{body}"
        );
    }
    let unknown = orders(&server, "unsubscribe", r#"{"user":"42","channel":"nowhere:1"}"#).await;
    assert_eq!(unknown, (UNKNOWN.to_owned(), vec![]));
}

#[tokio::test]
async fn live_connections_are_disconnected() {
    let server = Server::start();
    let with = |code, reason: &'static str| Disconnect { code, reason: reason.into() };
    for (body, disconnect) in [
        (r#"{"user":"42"}"#, Disconnect::FORCE_DISCONNECT),
        (r#"{"user":"42","disconnect":{"reason":"bye"}}"#, with(3503, "bye")),
        (r#"{"user":"42","disconnect":{"code":3000,"reason":"a"}}"#, with(3000, "a")),
        (r#"{"user":"42","disconnect":{"code":4999}}"#, with(4999, "")),
        (r#"{"user":"42","Disconnect":{"code":4501,"reason":"bye","reconnect":false}}"#, with(4501, "bye")), // gocent's.
    ] {
        let order = Order::Disconnect { disconnect, spared: [].into() };
        assert_eq!(orders(&server, "disconnect", body).await, (DONE.to_owned(), vec![(target("42"), order)]), "{body}");
    }
    for code in [1, 1000, 2999, 5000, 70_000] {
        let body = format!(r#"{{"user":"42","disconnect":{{"code":{code}}}}}"#);
        assert_eq!(orders(&server, "disconnect", &body).await, (BAD_REQUEST.to_owned(), vec![]), "{code}");
    }
    let spared = ClientId::from_random(7);
    let body = format!(r#"{{"user":"42","whitelist":["{spared}","none"]}}"#);
    let order = Order::Disconnect { disconnect: Disconnect::FORCE_DISCONNECT, spared: [spared].into() };
    assert_eq!(orders(&server, "disconnect", &body).await, (DONE.to_owned(), vec![(target("42"), order)]));
}

#[tokio::test]
async fn live_connections_are_refreshed() {
    let server = Server::start();
    let refresh = |expires_at: Option<u64>, info: Option<u8>| Order::Refresh {
        expires_at: expires_at.map(Timestamp),
        info: info.map(|info| Json::of(&info)),
    };
    let expired = || Order::Disconnect { disconnect: Disconnect::EXPIRED, spared: [].into() };
    for (body, order) in [
        (r#"{"user":"42"}"#, refresh(None, None)),
        (r#"{"user":"42","expire_at":4000000000,"info":7}"#, refresh(Some(4_000_000_000_000), Some(7))),
        (r#"{"user":"42","expire_at":1}"#, expired()),
        (r#"{"user":"42","expired":true,"expire_at":4000000000}"#, expired()),
    ] {
        assert_eq!(orders(&server, "refresh", body).await, (DONE.to_owned(), vec![(target("42"), order)]), "{body}");
    }
    assert_eq!(orders(&server, "refresh", r#"{"expire_at":-1}"#).await, (BAD_REQUEST.to_owned(), vec![]));
}

#[tokio::test]
async fn live_connections_are_listed_up_to_a_number() {
    const CLIENT: &str = "0195c2a0-0000-7000-8000-000000000001";
    let server = Server::start();
    let connection = |user: &str, channels: &[&str]| LiveConnection {
        client: ClientId::parse(CLIENT).unwrap(),
        user: user.to_owned(),
        variant: Variant::websocket(Format::Protobuf),
        channels: channels.iter().map(|name| ChannelName::new(name).unwrap()).collect(),
    };
    let list = async |body: &str| server.api("connections", body).await;
    *server.revoked.live.lock().unwrap() = vec![connection("42", &["live:1", "team:1"]), connection("", &[])];
    let told =
        r#"{"transport":"websocket","protocol":"protobuf","user":"42","state":{"channels":{"live:1":{},"team:1":{}}}}"#;
    assert_eq!(list(r#"{"user":"42"}"#).await, format!(r#"{{"result":{{"connections":{{"{CLIENT}":{told}}}}}}}"#));
    let told = r#"{"transport":"websocket","protocol":"protobuf","state":{"channels":{}}}"#;
    assert_eq!(list("{}").await, format!(r#"{{"result":{{"connections":{{"{CLIENT}":{told}}}}}}}"#));
    assert_eq!(list(r#"{"user":"nobody"}"#).await, r#"{"result":{"connections":{}}}"#);
    assert_eq!(list(r#"{"user":"42","expression":"true"}"#).await, NOT_AVAILABLE);
    *server.revoked.live.lock().unwrap() = vec![connection("42", &[]); 1001];
    let told = r#"{"error":{"code":107,"message":"bad request: the user has more than 1000 connections"}}"#;
    assert_eq!(list(r#"{"user":"42"}"#).await, told);
    server.revoked.fail(OrderError::Late);
    assert_eq!(list("{}").await, r#"{"error":{"code":100,"message":"internal server error"}}"#);
}

#[tokio::test]
async fn orders_come_in_any_form_and_need_their_scope() {
    let server = Server::start();
    let batch = r#"{"commands":[{"disconnect":{"user":"42"}},{"unsubscribe":{"user":"43"}}]}"#;
    let expected = r#"{"replies":[{"disconnect":{}},{"unsubscribe":{}}]}"#;
    let (answer, given) = orders(&server, "batch", batch).await;
    assert_eq!((answer.as_str(), given.len()), (expected, 2));
    let answer = server.post("/api", r#"{"method":"refresh","params":{"user":"42"}}"#).await;
    assert_eq!((answer.body.as_str(), server.revoked.take_orders().len()), ("{\"result\":{}}\n", 1));
    server.revoked.fail(OrderError::Late);
    let (answer, _) = orders(&server, "disconnect", "{}").await;
    assert_eq!(answer, r#"{"error":{"code":100,"message":"internal server error"}}"#);
    let headers = [("x-api-key", "read")];
    for method in ["subscribe", "unsubscribe", "disconnect", "refresh"] {
        let answer = server.send_with("POST", &format!("/api/{method}"), &headers, "{}").await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{method}");
    }
}

#[tokio::test]
async fn a_publication_that_is_not_newer_is_swallowed() {
    let server = Server::start();
    for channel in ["live:1", "team:1"] {
        let epoch = server.epoch(channel).await;
        for (version, of, offset) in [(2, "a", 1), (2, "a", 1), (1, "a", 1), (1, "b", 2), (2, "b", 3)] {
            let body = format!(r#"{{"channel":"{channel}","data":1,"version":{version},"version_epoch":"{of}"}}"#);
            let expected = format!(r#"{{"result":{{"offset":{offset},"epoch":"{epoch}"}}}}"#);
            assert_eq!(server.api("publish", body).await, expected, "{channel} {version} {of}");
        }
    }
}

#[tokio::test]
async fn a_history_is_removed_and_its_position_stays() {
    let server = Server::start();
    for channel in ["live:1", "team:1"] {
        for _ in 0..3 {
            server.api("publish", format!(r#"{{"channel":"{channel}","data":1}}"#)).await;
        }
        let body = format!(r#"{{"channel":"{channel}"}}"#);
        let epoch = server.epoch(channel).await;
        assert_eq!(server.api("history_remove", body.as_str()).await, DONE);
        assert_eq!(server.epoch(channel).await, epoch);
        let history = server.api("history", format!(r#"{{"channel":"{channel}","limit":-1}}"#)).await;
        assert_eq!(history, format!(r#"{{"result":{{"publications":[],"epoch":"{epoch}","offset":3}}}}"#), "{channel}");
    }
    assert_eq!(server.published("team:1"), [""; 0]);
    let cases = Cases::default();
    for (body, expected) in [
        (r#"{"channel":"team:9"}"#, DONE),
        (r#"{"channel":"news"}"#, NOT_AVAILABLE),
        (r#"{"channel":"nowhere:1"}"#, UNKNOWN),
        ("{}", BAD_REQUEST),
    ] {
        cases.check(body, server.api("history_remove", body).await, expected.to_owned());
    }
}

#[tokio::test]
async fn the_channels_with_subscribers_are_listed() {
    let server = Server::start();
    server.api("publish", r#"{"channel":"live:0","data":1}"#).await;
    for (bits, channel) in ["live:1", "live:1", "live:2", "chat:1"].into_iter().enumerate() {
        server.join(channel, "42", bits as u128, None);
    }
    let (one, two) = (r#""chat:1":{"num_clients":1}"#, r#""live:1":{"num_clients":2},"live:2":{"num_clients":1}"#);
    let cases = Cases::default();
    for (body, expected) in [
        ("{}", format!("{one},{two}")),
        (r#"{"pattern":""}"#, format!("{one},{two}")),
        (r#"{"pattern":"live:*"}"#, two.to_owned()),
        (r#"{"pattern":"nowhere:*"}"#, String::new()),
    ] {
        cases.check(body, server.api("channels", body).await, format!(r#"{{"result":{{"channels":{{{expected}}}}}}}"#));
    }
    cases.check("braces", server.api("channels", r#"{"pattern":"{a,b}"}"#).await, BAD_REQUEST.to_owned());
}
