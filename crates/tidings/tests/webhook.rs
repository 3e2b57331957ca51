//! `[webhook]` of the real program against receivers good and bad: who is told what, how often, and what a crash repeats.

#[path = "webhook/receiver.rs"]
mod receiver;
#[path = "webhook/server.rs"]
mod server;

use std::collections::BTreeSet;
use std::fs;

use receiver::{Behaviour, Receiver, Request, status, with};
use server::Server;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER_SECRET: &str = "whsec_Y2hhbmdlLW1lLWNoYW5nZS1tZS1jaGFu";
/// Stands in the address and nowhere else.
const PATH: &str = "/hook?token=hidden-from-logs";

/// A webhook that is quick to try again.
fn webhook(receiver: &Receiver, more: &str) -> String {
    format!(
        "url = \"http://{}{PATH}\"\nallow_http = true\nsecret_file = \"secret\"\nbackoff_min = \"10ms\"\n\
         backoff_max = \"100ms\"\n{more}",
        receiver.addr
    )
}

fn ids(requests: &[Request]) -> BTreeSet<&str> {
    requests.iter().map(Request::id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_told_gets_a_signed_report_of_the_job_once() {
    let receiver = Receiver::start(status(204)).await;
    let server = Server::start(&webhook(&receiver, "")).await;
    server.tell("goal-1").await;
    server.tell("goal-2").await;
    let requests = receiver.has(2).await;
    server.shows("tidings_webhook_told_total 2").await;
    server.shows("tidings_sender_jobs_untold 0").await;
    for request in &requests {
        assert_eq!(request.line, format!("POST {PATH} HTTP/1.1"));
        assert_eq!(request.headers["content-type"], "application/json");
        assert_eq!(request.headers["host"], receiver.addr.to_string());
        assert!(request.headers["user-agent"].starts_with("tidings/"));
        assert_eq!(request.signatures(SECRET), (1, true));
        assert_eq!(request.signatures(OTHER_SECRET), (1, false));
        let report = request.json();
        assert_eq!(report["type"], "event.done");
        assert_eq!(report["timestamp"], report["data"]["done_at"]);
    }
    let mut told: Vec<_> = requests.iter().map(|request| request.json()["data"].take()).collect();
    told.sort_by_key(|job| std::cmp::Reverse(job["position"].as_u64()));
    assert_eq!(server.get("/v1/jobs").await["jobs"], serde_json::Value::from(told), "the same shape, the same values");
    assert_eq!(ids(&requests).len(), 2);
    assert_eq!(receiver.requests().len(), 2, "once each");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_misbehaves_is_told_the_same_again_until_it_takes_it() {
    let receiver = Receiver::start(status(200)).await;
    let endless = format!("HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n{}", "x".repeat(1_000_000));
    let failures = [
        status(500),
        Behaviour::HangUp,
        Behaviour::Silence,
        Behaviour::Answer(b"I speak no HTTP\r\n\r\n".to_vec()),
        with(307, &format!("location: http://{}/elsewhere\r\n", receiver.addr)),
        status(404),
        Behaviour::Answer(endless.into_bytes()),
        Behaviour::Answer(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n".to_vec()),
    ];
    let count = failures.len();
    receiver.script(failures);
    let server = Server::start(&webhook(&receiver, "timeout = \"500ms\"")).await;
    server.tell("goal-1").await;
    server.shows("tidings_webhook_told_total 1").await;
    // Where the connection was lost the request was repeated at once, under the attempt's own id as well.
    let requests = receiver.has(count + 1).await;
    assert_eq!(ids(&requests).len(), 1, "{requests:?}");
    assert!(requests.iter().all(|request| request.body == requests[0].body && request.line.contains(PATH)));
    assert!(requests.iter().all(|request| request.signatures(SECRET) == (1, true)));
    assert_eq!(requests.len(), count + 1, "and no more once it was taken");
    server.says("Receiver does not take reports, trying again", 1).await;
    server.says("Receiver takes reports again", 1).await;
    let log = server.log();
    assert!(!log.contains("hidden-from-logs") && !log.contains(&SECRET[6..]) && !log.contains("v1,"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_that_is_not_answered_holds_up_no_other() {
    let receiver = Receiver::start(status(200)).await;
    receiver.script([Behaviour::Silence, Behaviour::Silence]);
    let server = Server::start(&webhook(&receiver, "in_flight_max = 3\ntimeout = \"5m\"")).await;
    for index in 0..20 {
        server.tell(&format!("goal-{index}")).await;
    }
    server.shows("tidings_webhook_told_total 18").await;
    server.shows("tidings_webhook_in_flight 2").await;
    server.shows("tidings_webhook_attempts_total{result=\"failed\"} 0").await;
    let requests = receiver.requests();
    assert_eq!((requests.len(), ids(&requests).len()), (20, 20), "each is told once, the two included");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_has_left_is_not_asked_before_it_is_said_to_be_back() {
    let receiver = Receiver::start(status(410)).await;
    let server = Server::start(&webhook(&receiver, "")).await;
    server.tell("goal-1").await;
    server.shows("tidings_webhook_closed 1").await;
    server.tell("goal-2").await;
    server.shows("tidings_sender_jobs_untold 2").await;
    receiver.behave(status(200));
    server.hang_up();
    server.shows("tidings_webhook_told_total 2").await;
    server.shows("tidings_webhook_closed 0").await;
    let requests = receiver.requests();
    assert_eq!(requests.len(), 3, "one was refused, and nobody was asked again before");
    assert_eq!(requests[0].event(), "goal-1");
    assert_eq!(ids(&requests).len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_done_and_not_told_is_told_after_a_crash() {
    let receiver = Receiver::start(Behaviour::Silence).await;
    let mut server = Server::start(&webhook(&receiver, "")).await;
    server.tell("goal-1").await;
    let sent = receiver.has(1).await; // Done, sent, and nobody has said that it is taken.
    server.kill_and_restart().await;
    let again = receiver.has(2).await;
    assert_eq!((again[1].id(), &again[1].body), (sent[0].id(), &sent[0].body), "the same report");
    receiver.behave(status(200));
    server.kill_and_restart().await;
    server.shows("tidings_webhook_told_total 1").await;
    let told = receiver.has(3).await;
    assert_eq!(ids(&told).len(), 1);
    assert_eq!(told[2].body, sent[0].body);

    server.restart().await; // The last checkpoint has it that it was told.
    server.tell("goal-2").await;
    server.shows("tidings_webhook_told_total 1").await;
    server.shows("tidings_sender_jobs_untold 0").await;
    let all = receiver.requests();
    assert_eq!((all.len(), all[3].event()), (4, "goal-2".to_owned()), "nothing is told again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_takes_is_given_up_at_its_end() {
    let receiver = Receiver::start(status(500)).await;
    let mut server = Server::start(&webhook(&receiver, "give_up_after = \"1s\"")).await;
    server.tell("goal-1").await;
    server.shows("tidings_webhook_given_up_total 1").await;
    server.shows("tidings_sender_jobs_untold 0").await;
    let tried = receiver.requests().len();
    assert!(tried > 2, "{tried}");
    server.restart().await;
    server.tell("goal-2").await;
    receiver.behave(status(200));
    server.shows("tidings_webhook_told_total 1").await;
    assert!(receiver.requests()[tried..].iter().all(|request| request.event() == "goal-2"), "also after a restart");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_changed_without_losing_a_report() {
    let receiver = Receiver::start(status(200)).await;
    let server = Server::start(&webhook(&receiver, "previous_secret_file = \"secret-before\"")).await;
    server.tell("goal-1").await;
    assert_eq!(receiver.has(1).await[0].signatures(SECRET), (2, true));
    fs::write(server.path("secret"), OTHER_SECRET).unwrap();
    fs::write(server.path("secret-before"), SECRET).unwrap();
    server.hang_up();
    server.says("Webhook secrets reloaded", 1).await;
    server.tell("goal-2").await;
    let requests = receiver.has(2).await;
    assert_eq!((requests[1].signatures(OTHER_SECRET), requests[1].signatures(SECRET)), ((2, true), (2, true)));
    fs::write(server.path("secret"), "no secret").unwrap();
    server.hang_up();
    server.says("Configuration is wrong, nothing is reloaded", 1).await;
    server.tell("goal-3").await;
    assert_eq!(receiver.has(3).await[2].signatures(OTHER_SECRET), (2, true));
    let log = server.log();
    assert!(!log.contains(&SECRET[6..]) && !log.contains(&OTHER_SECRET[6..]) && !log.contains("no secret"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_with_fewer_connections_than_we_would_use_is_told_as_fast_as_it_takes() {
    let receiver = Receiver::with_connections(2, status(410)).await;
    let patient = "backoff_min = \"1m\"\nbackoff_max = \"1h\"\nin_flight_max = 8";
    let server =
        Server::start(&webhook(&receiver, "").replace("backoff_min = \"10ms\"\nbackoff_max = \"100ms\"", patient))
            .await;
    server.tell("goal-0").await;
    server.shows("tidings_webhook_closed 1").await;
    for index in 1..100 {
        server.tell(&format!("goal-{index}")).await;
    }
    server.shows("tidings_sender_jobs_untold 100").await;
    receiver.behave(status(200));
    server.hang_up();
    server.shows("tidings_webhook_told_total 100").await;
    assert_eq!(ids(&receiver.requests()).len(), 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_fails_now_and_then_does_not_fill_the_log() {
    let receiver = Receiver::start(status(200)).await;
    receiver.script((0..20).map(|index| status(if index % 2 == 0 { 500 } else { 200 })));
    let server = Server::start(&webhook(&receiver, "in_flight_max = 1")).await;
    for index in 0..20 {
        server.tell(&format!("goal-{index}")).await;
    }
    server.shows("tidings_webhook_told_total 20").await;
    server.shows("tidings_webhook_attempts_total{result=\"failed\"} 10").await;
    let log = server.log();
    assert_eq!(log.matches("Receiver does not take reports").count(), 1, "{log}");
    assert_eq!(log.matches("Receiver takes reports again").count(), 1, "{log}");
}
