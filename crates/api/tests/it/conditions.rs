//! `If-Match` and `If-None-Match` on `/v1/devices/{id}`.

use axum::http::StatusCode;
use futures_util::future::join_all;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::support::{Answer, Cases, Server};

const PHONE: &str = "/v1/devices/phone-1";

fn phone(token: &str) -> String {
    json!({"platform": "ios", "token": token, "app": "a", "locale": "en"}).to_string()
}

fn tag(answer: &Answer) -> String {
    answer.headers["etag"].to_str().unwrap().to_owned()
}

async fn ask(server: &Server, method: &str, conditions: &[(&str, &str)], body: &str) -> Answer {
    let headers: Vec<_> = [("x-api-key", "devices")].into_iter().chain(conditions.iter().copied()).collect();
    server.send_with(method, PHONE, &headers, body.to_owned()).await
}

#[tokio::test]
async fn a_change_is_made_only_of_what_was_read() {
    let server = Server::start();
    let put = async |conditions: &[(&str, &str)], token| ask(&server, "PUT", conditions, &phone(token)).await;
    let nothing = put(&[("if-match", "*")], "aa").await;
    let expected = json!({
        "type": "urn:tidings:problem:precondition-failed",
        "title": "The device does not fulfil the request's condition",
        "status": 412,
        "detail": "If-Match: the device is not registered",
        "field": "If-Match",
    });
    assert_eq!((nothing.status, nothing.json()), (StatusCode::PRECONDITION_FAILED, expected));

    let created = put(&[("if-none-match", "*")], "aa").await;
    assert_eq!(created.status, StatusCode::CREATED);
    let first = tag(&created);
    assert!(first.starts_with("\"r") && first.ends_with('"'), "{first}");
    assert_eq!(tag(&ask(&server, "GET", &[], "").await), first);
    let again = put(&[("if-none-match", "*")], "bb").await;
    assert_eq!((again.status, &again.json()["value"]), (StatusCode::PRECONDITION_FAILED, &json!(first)));

    let changed = put(&[("if-match", &first)], "bb").await;
    let second = tag(&changed);
    assert_eq!((changed.status, second == first), (StatusCode::OK, false));
    let late = put(&[("if-match", &first)], "cc").await;
    let detail = format!("If-Match: the device has the tag {second}");
    assert_eq!(
        (late.status, late.detail(), &late.json()["value"]),
        (StatusCode::PRECONDITION_FAILED, detail, &json!(second))
    );
    let listed = put(&[("if-match", &format!("\"other\", {first}, {second}"))], "cc").await;
    assert_eq!((listed.status, tag(&listed) == second), (StatusCode::OK, false));
    let third = tag(&listed);
    let weak = put(&[("if-match", &format!("W/{third}"))], "dd").await;
    assert_eq!(weak.status, StatusCode::PRECONDITION_FAILED);

    for (conditions, status) in [
        ([("if-match", first.as_str())], 412),
        ([("if-none-match", "*")], 412),
        ([("if-match", "")], 400),
        ([("if-match", third.as_str())], 204),
        ([("if-match", "*")], 404), // As without a condition (RFC 9110, 13.2.1).
    ] {
        let answer = ask(&server, "DELETE", &conditions, "").await;
        assert_eq!(answer.status.as_u16(), status, "{conditions:?} {answer:?}");
    }
    let anew = put(&[("if-none-match", "*")], "aa").await;
    assert!(![first, second, third].contains(&tag(&anew)), "what it had before comes never again");
}

#[tokio::test]
async fn who_has_it_already_is_not_told_again() {
    let server = Server::start();
    let current = tag(&ask(&server, "PUT", &[], &phone("aa")).await);
    let cases = Cases::default();
    let weak = format!("W/{current}");
    for (conditions, status) in [
        (&[("if-none-match", current.as_str())][..], 304),
        (&[("if-none-match", weak.as_str())], 304),
        (&[("if-none-match", "*")], 304),
        (&[("if-none-match", "\"r0\""), ("if-none-match", &current)], 304),
        (&[("if-none-match", "\"r0\"")], 200),
        (&[("if-match", &current)], 200),
        (&[("if-match", "\"r0\"")], 412),
        (&[("if-match", "\"r0\""), ("if-none-match", &current)], 412),
        (&[("if-none-match", "r0")], 400),
    ] {
        let answer = ask(&server, "GET", conditions, "").await;
        cases.check(&format!("{conditions:?}"), answer.status.as_u16(), status);
        if status == 304 {
            cases.check("304", (answer.body.as_str(), tag(&answer)), ("", current.clone()));
        }
    }
    let wrong = ask(&server, "GET", &[("if-none-match", "r0")], "").await.json();
    assert_eq!(wrong["detail"], "If-None-Match: must be * or a list of entity tags in quotation marks, such as \"r7\"");
    let absent = server.send_with("GET", "/v1/devices/x", &[("x-api-key", "root"), ("if-match", "*")], "").await;
    assert_eq!(absent.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn of_many_who_change_what_they_have_read_one_wins() {
    let server = Server::start();
    for round in 0..5 {
        let read = tag(&ask(&server, "PUT", &[], &phone("aa")).await);
        let bodies: Vec<String> = (0..8).map(|index| phone(&format!("bb{round}{index}"))).collect();
        let headers = [("if-match", read.as_str())];
        let answers = join_all(bodies.iter().map(|body| ask(&server, "PUT", &headers, body))).await;
        let won: Vec<_> = answers.iter().filter(|answer| answer.status == StatusCode::OK).collect();
        let lost = answers.iter().filter(|answer| answer.status == StatusCode::PRECONDITION_FAILED).count();
        assert_eq!((won.len(), lost), (1, 7), "{answers:?}");
        assert_eq!(tag(&ask(&server, "GET", &[], "").await), tag(won[0]));
    }
}

#[derive(Debug, Clone)]
enum Step {
    Put(Condition),
    Delete(Condition),
    Get(Condition),
    /// Something else about the device.
    Rotate,
}

/// What is asked: of no tag, of any, of the present one, of one that it had, each for one header.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Condition {
    None,
    Match(Which),
    NoneMatch(Which),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Which {
    Any,
    Present,
    Former,
    Both,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let which = || select(vec![Which::Any, Which::Present, Which::Former, Which::Both]);
    let condition = || {
        prop_oneof![Just(Condition::None), which().prop_map(Condition::Match), which().prop_map(Condition::NoneMatch)]
    };
    let step = prop_oneof![
        4 => condition().prop_map(Step::Put),
        2 => condition().prop_map(Step::Delete),
        2 => condition().prop_map(Step::Get),
        1 => Just(Step::Rotate),
    ];
    prop::collection::vec(step, 1..14)
}

/// The API against what the standard says of a thing that is there with a tag, or not.
#[test]
fn conditions_hold_whatever_came_before() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(async { Server::start() });
    let mut runner = TestRunner::new(Config { cases: 16, ..Config::with_source_file(file!()) });
    let run = |steps: Vec<Step>| {
        runtime.block_on(async {
            ask(&server, "DELETE", &[], "").await;
            let (mut present, mut former, mut token): (Option<String>, Vec<String>, u32) = (None, Vec::new(), 0);
            for step in steps {
                let condition = match &step {
                    Step::Put(condition) | Step::Delete(condition) | Step::Get(condition) => *condition,
                    Step::Rotate => Condition::None,
                };
                let now = present.clone().unwrap_or_else(|| "\"none\"".to_owned());
                let before = former.last().cloned().unwrap_or_else(|| "\"none\"".to_owned());
                let text = |which| match which {
                    Which::Any => "*".to_owned(),
                    Which::Present => now.clone(),
                    Which::Former => before.clone(),
                    Which::Both => format!("{before} , {now}"),
                };
                let headers: Vec<(&str, String)> = match condition {
                    Condition::None => Vec::new(),
                    Condition::Match(which) => vec![("if-match", text(which))],
                    Condition::NoneMatch(which) => vec![("if-none-match", text(which))],
                };
                let headers: Vec<(&str, &str)> = headers.iter().map(|(name, text)| (*name, text.as_str())).collect();
                let names_it = |which| present.is_some() && which != Which::Former;
                let holds = match condition {
                    Condition::None => true,
                    Condition::Match(which) => names_it(which),
                    Condition::NoneMatch(which) => !names_it(which),
                };
                token += 1;
                let (method, body) = match step {
                    Step::Put(_) => ("PUT", phone(&format!("{token:04}"))),
                    Step::Delete(_) => ("DELETE", String::new()),
                    Step::Get(_) => ("GET", String::new()),
                    Step::Rotate => {
                        server.post("/v1/devices/phone-1/credential", "").await;
                        let answer = ask(&server, "GET", &[], "").await;
                        former.extend(present.take());
                        present = (answer.status == StatusCode::OK).then(|| tag(&answer));
                        continue;
                    }
                };
                let answer = ask(&server, method, &headers, &body).await;
                let expected = match (&step, &present, holds) {
                    (Step::Put(_), None, true) => 201,
                    (Step::Put(_), Some(_), true) | (Step::Get(_), Some(_), true) => 200,
                    (Step::Delete(_), Some(_), true) => 204,
                    (Step::Delete(_) | Step::Get(_), None, _) => 404,
                    (Step::Get(_), Some(_), false) if matches!(condition, Condition::NoneMatch(_)) => 304,
                    _ => 412,
                };
                assert_eq!(answer.status.as_u16(), expected, "{step:?} {headers:?} {present:?}");
                match answer.status.as_u16() {
                    200 | 201 if method == "PUT" => former.extend(present.replace(tag(&answer))),
                    204 => former.extend(present.take()),
                    200 | 304 => assert_eq!(Some(tag(&answer)), present),
                    412 => {
                        let value = answer.json().get("value").and_then(Value::as_str).map(str::to_owned);
                        assert_eq!(value, present, "it says what there is");
                    }
                    _ => {}
                }
            }
        });
        Ok(())
    };
    runner.run(&steps(), run).unwrap();
}
