//! Apps that call for themselves: what proves them, what they reach, what they are refused, how fast.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode};
use futures_util::future::join_all;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tidings_api::{Apps, Rate};
use tidings_protocol::Admission;
use tidings_protocol::token::{TokenSecret, TokenVerifier, sign_connection_token, sign_subscription_token};
use tidings_telemetry::unix_now;
use tidings_types::{ChannelName, DeviceId, OriginPattern, Timestamp};
use tower::ServiceExt;

use crate::support::{Answer, Cases, Server};

const PHONE: &str = "/v1/devices/phone-1";
const NOT_THERE: &str = "device phone-1 is not registered";

fn secret() -> TokenSecret {
    TokenSecret::new(b"a secret that apps do not know..").unwrap()
}

fn apps() -> Apps {
    Apps {
        verifier: Some(TokenVerifier::new(&secret(), None)),
        subjects: vec!["team:*".parse().unwrap(), "match:7".parse().unwrap()],
        allowed_origins: ["https://example.com", "https://*.example.net"]
            .map(|it| OriginPattern::new(it).unwrap())
            .to_vec(),
        user_device_count_max: 3,
        rate: None,
        address_rate: None,
        address_header: None,
    }
}

fn start() -> Server {
    Server::with_apps(Some(apps()), |_, _| ())
}

/// `Authorization` of a user, on a device if one is named.
fn bearer(user: &str, device: Option<&str>) -> String {
    let device = device.map(|id| DeviceId::new(id).unwrap());
    let admission = Admission { user: user.to_owned(), device, ..Admission::default() };
    format!("Bearer {}", sign_connection_token(&secret(), &admission, unix_now()))
}

fn phone() -> Value {
    json!({"platform": "android", "token": "t-1", "app": "a", "locale": "sv"})
}

fn phone_with(token: &str) -> String {
    json!({"platform": "android", "token": token, "app": "a", "locale": "sv"}).to_string()
}

async fn ask(server: &Server, method: &str, path: &str, shown: &[(&str, &str)], body: impl Into<Body>) -> Answer {
    server.send_with(method, path, shown, body).await
}

/// Registered by a backend as `user`'s; its credential.
async fn registered(server: &Server, id: &str, user: Option<&str>) -> String {
    let device = json!({"platform": "android", "token": format!("t-{id}"), "app": "a", "locale": "sv", "user": user});
    let answer = server.send("PUT", &format!("/v1/devices/{id}"), device.to_string()).await;
    answer.json()["credential"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_app_registers_its_device_with_its_user_token_and_lives_with_its_credential() {
    let server = start();
    let token = bearer("ada", None);
    let made = ask(&server, "PUT", PHONE, &[("authorization", &token)], phone().to_string()).await;
    assert_eq!((made.status, &made.json()["user"]), (StatusCode::CREATED, &json!("ada")));
    let credential = made.json()["credential"].as_str().unwrap().to_owned();
    let own = [("x-device-credential", credential.as_str())];

    let shown = ask(&server, "GET", PHONE, &own, "").await;
    assert_eq!((shown.status, &shown.json()["user"]), (StatusCode::OK, &json!("ada")));
    let tag = shown.headers["etag"].to_str().unwrap().to_owned();
    let changed = [own[0], ("if-match", tag.as_str())];
    let changed = ask(&server, "PUT", PHONE, &changed, phone_with("t-2")).await;
    assert_eq!((changed.status, &changed.json()["user"]), (StatusCode::OK, &json!("ada")), "it stays hers");

    let list = json!({"subscriptions": [{"subject": "team:1", "topics": ["goal"]}]});
    for (method, path, body, status) in [
        ("PUT", "/subscriptions", list.to_string(), 200),
        ("POST", "/subscriptions", list.to_string(), 200),
        ("GET", "/subscriptions", String::new(), 200),
        ("DELETE", "/subscriptions?subject=team:1", String::new(), 200),
        ("PUT", "/mutes/everything", String::new(), 201),
        ("GET", "/mutes", String::new(), 200),
        ("DELETE", "/mutes/everything", String::new(), 204),
    ] {
        let answer = ask(&server, method, &format!("{PHONE}{path}"), &own, body).await;
        assert_eq!(answer.status.as_u16(), status, "{method} {path} {answer:?}");
    }

    let rotated = ask(&server, "POST", &format!("{PHONE}/credential"), &own, "").await;
    assert_eq!(ask(&server, "GET", PHONE, &own, "").await.detail(), NOT_THERE, "the old one is worth nothing");
    let credential = rotated.json()["credential"].as_str().unwrap().to_owned();
    let own = [("x-device-credential", credential.as_str())];
    let out = ask(&server, "POST", &format!("{PHONE}/logout"), &own, "").await;
    let credential = out.json()["credential"].as_str().unwrap().to_owned();
    let hers = ask(&server, "GET", PHONE, &[("authorization", &token)], "").await;
    assert_eq!(hers.detail(), NOT_THERE, "it is nobody's now");

    // Another user logs in on it: whoever has both proofs.
    let bobs = bearer("bob", None);
    let stolen = ask(&server, "PUT", PHONE, &[("authorization", &bobs)], phone_with("t-3")).await;
    assert_eq!((stolen.status, stolen.detail()), (StatusCode::NOT_FOUND, NOT_THERE.to_owned()));
    let both = [("x-device-credential", credential.as_str()), ("authorization", &bobs)];
    let his = ask(&server, "PUT", PHONE, &both, phone_with("t-3")).await;
    assert_eq!((his.status, &his.json()["user"]), (StatusCode::OK, &json!("bob")));
    assert_eq!(ask(&server, "DELETE", PHONE, &[("authorization", &bobs)], "").await.status, StatusCode::NO_CONTENT);
    let again = ask(&server, "PUT", PHONE, &both[..1], phone_with("t-3")).await;
    assert_eq!(again.detail(), NOT_THERE, "a credential registers nothing");
}

#[tokio::test]
async fn what_proves_nothing_is_refused_and_tells_nothing() {
    let server = start();
    let credential = registered(&server, "phone-1", Some("ada")).await;
    let cases = Cases::default();
    let past = Timestamp(unix_now().0 - 5000);
    let signed = |user: &str, device: Option<&DeviceId>, expires_at| {
        let admission =
            Admission { user: user.to_owned(), device: device.cloned(), expires_at, ..Admission::default() };
        format!("Bearer {}", sign_connection_token(&secret(), &admission, past))
    };
    let foreign = TokenSecret::new(b"another secret of another server").unwrap();
    let ada = Admission { user: "ada".to_owned(), ..Admission::default() };
    let forged = format!("Bearer {}", sign_connection_token(&foreign, &ada, past));
    let channel = ChannelName::new("news").unwrap();
    let of_channel = format!("Bearer {}", sign_subscription_token(&secret(), "ada", &channel, None, None, past));
    let elsewhere = DeviceId::new("phone-2").unwrap();
    for (name, shown, status, detail) in [
        (
            "nothing",
            vec![],
            401,
            "send a valid key in X-API-Key or in Authorization: apikey KEY; an app sends its device's credential in X-Device-Credential or its user token in Authorization: Bearer",
        ),
        (
            "an old token",
            vec![("authorization", signed("ada", None, Some(past)))],
            401,
            "token has expired or is not valid yet",
        ),
        (
            "a forged token",
            vec![("authorization", forged.clone())],
            401,
            "token is not valid: its signature fits no configured key",
        ),
        (
            "a forged token with a credential",
            vec![("authorization", forged), ("x-device-credential", credential.clone())],
            401,
            "token is not valid: its signature fits no configured key",
        ),
        (
            "a channel's token",
            vec![("authorization", of_channel)],
            401,
            "token is not valid: a subscription token cannot connect",
        ),
        (
            "nobody's token",
            vec![("authorization", signed("", None, None))],
            401,
            "the token must name a user (claim sub) or a device (claim device)",
        ),
        (
            "a name with a space",
            vec![("authorization", signed("ada l", None, None))],
            401,
            "claim sub: user id must be 1 to 128 visible ASCII characters",
        ),
        (
            "no credential",
            vec![("x-device-credential", String::new())],
            401,
            "X-Device-Credential must hold 1 to 256 ASCII characters",
        ),
        (
            "a wrong key",
            vec![("x-api-key", "wrong".to_owned())],
            401,
            "send a valid key in X-API-Key or in Authorization: apikey KEY; an app sends its device's credential in X-Device-Credential or its user token in Authorization: Bearer",
        ),
        ("a wrong credential", vec![("x-device-credential", "x".repeat(43))], 404, NOT_THERE),
        (
            "a wrong credential with a key",
            vec![("x-device-credential", "x".repeat(43)), ("x-api-key", "root".to_owned())],
            404,
            NOT_THERE,
        ),
        ("another user", vec![("authorization", bearer("bob", None))], 404, NOT_THERE),
        ("another device of hers", vec![("authorization", signed("ada", Some(&elsewhere), None))], 404, NOT_THERE),
    ] {
        let shown: Vec<(&str, &str)> = shown.iter().map(|(name, value)| (*name, value.as_str())).collect();
        for (method, path, body) in [
            ("GET", "", String::new()),
            ("PUT", "", phone_with("t-9")),
            ("DELETE", "", String::new()),
            ("POST", "/credential", String::new()),
            ("POST", "/logout", String::new()),
            ("GET", "/subscriptions", String::new()),
            ("PUT", "/subscriptions", r#"{"subscriptions":[]}"#.to_owned()),
            ("POST", "/subscriptions", r#"{"subscriptions":[]}"#.to_owned()),
            ("DELETE", "/subscriptions?subject=team:1", String::new()),
            ("GET", "/mutes", String::new()),
            ("PUT", "/mutes/everything", String::new()),
            ("DELETE", "/mutes/everything", String::new()),
        ] {
            let answer = ask(&server, method, &format!("{PHONE}{path}"), &shown, body).await;
            let name = format!("{name}: {method} {path}");
            cases.check(&name, (answer.status.as_u16(), answer.detail().as_str()), (status, detail));
        }
    }
    let still = server.send("GET", PHONE, "").await.json();
    cases.check("nothing has happened", (&still["user"], &still["token"]), (&json!("ada"), &json!("…")));
    cases.check("and nobody was closed", server.revoked.take(), Vec::new());
}

/// To an app, a device of another and one that nobody has are the same, byte for byte.
#[tokio::test]
async fn another_device_answers_as_if_it_were_not_there() {
    let server = start();
    registered(&server, "taken", Some("ada")).await;
    let mine = registered(&server, "mine", Some("bob")).await;
    let (token, on_mine) = (bearer("bob", None), bearer("bob", Some("mine")));
    let list = r#"{"subscriptions":[{"subject":"team:1","topics":["goal"]}]}"#;
    for shown in [("x-device-credential", mine.as_str()), ("authorization", &token), ("authorization", &on_mine)] {
        for (method, path, body) in [
            ("GET", "", ""),
            ("DELETE", "", ""),
            ("POST", "/credential", ""),
            ("POST", "/logout", ""),
            ("GET", "/subscriptions", ""),
            ("PUT", "/subscriptions", list),
            ("POST", "/subscriptions", list),
            ("DELETE", "/subscriptions?subject=team:1", ""),
            ("GET", "/mutes", ""),
            ("PUT", "/mutes/team:1", ""),
            ("DELETE", "/mutes/team:1", ""),
        ] {
            for headers in [vec![shown], vec![shown, ("if-match", "*")], vec![shown, ("if-none-match", "*")]] {
                let taken = ask(&server, method, &format!("/v1/devices/taken{path}"), &headers, body).await;
                let absent = ask(&server, method, &format!("/v1/devices/other{path}"), &headers, body).await;
                assert_eq!(taken.status, StatusCode::NOT_FOUND, "{method} {path} {taken:?}");
                assert_eq!(taken.body.replace("taken", "other"), absent.body);
                assert_eq!(taken.headers, absent.headers);
            }
        }
    }
    // Who may not register finds out nothing by trying.
    for shown in [("x-device-credential", mine.as_str()), ("authorization", &on_mine)] {
        let taken = ask(&server, "PUT", "/v1/devices/taken", &[shown], phone_with("t")).await;
        let absent = ask(&server, "PUT", "/v1/devices/other", &[shown], phone_with("t")).await;
        assert_eq!((taken.status, absent.status), (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND));
        assert_eq!(taken.body.replace("taken", "other"), absent.body);
    }
    assert_eq!(server.store.counts().devices, 2);
}

#[tokio::test]
async fn an_app_does_not_say_whose_a_device_is_nor_that_its_token_works() {
    let server = start();
    let credential = registered(&server, "phone-1", Some("ada")).await;
    let token = bearer("ada", None);
    let cases = Cases::default();
    for shown in [("x-device-credential", credential.as_str()), ("authorization", &token)] {
        for (field, value, detail) in [
            ("user", json!("bob"), "user: cannot be set by an app: it is the user of the token"),
            ("user", json!("ada"), "user: cannot be set by an app: it is the user of the token"),
            ("proven", json!(true), "proven: can only be set by a backend, not by an app"),
            ("proven", json!(false), "proven: can only be set by a backend, not by an app"),
        ] {
            let mut device = phone();
            device[field] = value;
            let answer = ask(&server, "PUT", PHONE, &[shown], device.to_string()).await;
            cases.check(field, (answer.status.as_u16(), answer.detail().as_str()), (400, detail));
        }
    }
    let nothing = ask(
        &server,
        "PUT",
        PHONE,
        &[("authorization", &token)],
        json!({"user": null, "proven": null, "platform": "ios", "token": "aa", "app": "a", "locale": "en"}).to_string(),
    )
    .await;
    cases.check("said of nobody", nothing.status, StatusCode::OK);
}

#[tokio::test]
async fn an_app_subscribes_to_what_the_operator_lists_and_never_to_users() {
    let server = start();
    let credential = registered(&server, "phone-1", Some("ada")).await;
    let own = [("x-device-credential", credential.as_str())];
    let cases = Cases::default();
    let list = |subjects: &[&str]| {
        let item = |subject: &&str| json!({"subject": subject, "topics": ["goal"]});
        json!({"subscriptions": subjects.iter().map(item).collect::<Vec<_>>()}).to_string()
    };
    let path = format!("{PHONE}/subscriptions");
    for (subjects, refused) in [
        (&["team:1", "match:7"][..], None),
        (&["team:1", "match:8"], Some("match:8")),
        (&["order:8"], Some("order:8")),
        (&["user:bob"], Some("user:bob")),
        (&["user:ada"], Some("user:ada")),
        (&["teams:1"], Some("teams:1")),
    ] {
        for method in ["PUT", "POST"] {
            let answer = ask(&server, method, &path, &own, list(subjects)).await;
            let Some(refused) = refused else {
                cases.check(&format!("{subjects:?}"), answer.status, StatusCode::OK);
                continue;
            };
            let expected = json!({
                "type": "urn:tidings:problem:not-for-apps", "title": "An app may not do this for itself", "status": 403,
                "detail": format!("subscriptions: {refused} is not among what apps may subscribe to (apps.subjects)"),
                "field": "subscriptions", "value": refused,
            });
            cases.check(&format!("{method} {subjects:?}"), answer.json(), expected);
        }
    }
    // What a backend has said stays as long as the app lists it, and goes when it takes it away.
    server.post(&path, list(&["order:8"])).await;
    let kept = ask(&server, "PUT", &path, &own, list(&["order:8", "team:2"])).await;
    cases.check("listed", kept.body, r#"{"added":1,"removed":2}"#.to_owned());
    let more = ask(&server, "POST", &path, &own, list(&["order:8"])).await;
    cases.check("listed again", more.status, StatusCode::OK);
    ask(&server, "DELETE", &format!("{path}?subject=order:8"), &own, "").await;
    let gone = ask(&server, "POST", &path, &own, list(&["order:8"])).await;
    cases.check("gone", gone.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_user_has_only_so_many_devices_that_apps_register() {
    let server = start();
    let (ada, bob) = (bearer("ada", None), bearer("bob", None));
    let mut credential = String::new();
    for index in 0..4 {
        let path = format!("/v1/devices/ada-{index}");
        let body = phone_with(&format!("a-{index}"));
        let answer = ask(&server, "PUT", &path, &[("authorization", &ada)], body.clone()).await;
        if index < 3 {
            assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
            credential = answer.json()["credential"].as_str().unwrap().to_owned();
            let again = ask(&server, "PUT", &path, &[("authorization", &ada)], body).await;
            assert_eq!(again.status, StatusCode::OK, "that it has so many is no reason");
        } else {
            let expected = "a user's apps may register up to 3 devices (apps.user_device_count_max)";
            assert_eq!((answer.status, answer.detail().as_str()), (StatusCode::FORBIDDEN, expected));
        }
    }
    // One that changes hands is one more as well.
    for index in 0..3 {
        ask(
            &server,
            "PUT",
            &format!("/v1/devices/bob-{index}"),
            &[("authorization", &bob)],
            phone_with(&format!("b-{index}")),
        )
        .await;
    }
    let both = [("authorization", bob.as_str()), ("x-device-credential", &credential)];
    assert_eq!(ask(&server, "PUT", "/v1/devices/ada-2", &both, phone_with("a-2")).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_token_with_a_device_registers_that_one_also_for_nobody() {
    let server = start();
    let on_phone = bearer("", Some("phone-1"));
    let made = ask(&server, "PUT", PHONE, &[("authorization", &on_phone)], phone().to_string()).await;
    assert_eq!((made.status, made.json().get("user")), (StatusCode::CREATED, None));
    let other = ask(&server, "PUT", "/v1/devices/phone-2", &[("authorization", &on_phone)], phone().to_string()).await;
    assert_eq!(other.status, StatusCode::NOT_FOUND);
    // Its user changes with the token: the backend has signed that she uses it.
    let hers = bearer("ada", Some("phone-1"));
    let put = ask(&server, "PUT", PHONE, &[("authorization", &hers)], phone().to_string()).await;
    assert_eq!((put.status, &put.json()["user"]), (StatusCode::OK, &json!("ada")));
    let put = ask(&server, "PUT", PHONE, &[("authorization", &on_phone)], phone().to_string()).await;
    assert_eq!(put.json()["user"], "ada", "without a user nothing is said of whose it is");
}

#[tokio::test]
async fn where_apps_do_not_call_what_they_show_is_nothing() {
    let server = Server::start();
    let credential = registered(&server, "phone-1", Some("ada")).await;
    let token = bearer("ada", None);
    for shown in [("x-device-credential", credential.as_str()), ("authorization", &token)] {
        let answer = ask(&server, "GET", PHONE, &[shown], "").await;
        let expected = "send a valid key in X-API-Key or in Authorization: apikey KEY";
        assert_eq!((answer.status, answer.detail().as_str()), (StatusCode::UNAUTHORIZED, expected));
    }
    assert!(server.apps.is_none());
    // Without a secret, credentials alone.
    let server = Server::with_apps(Some(Apps { verifier: None, ..apps() }), |_, _| ());
    let credential = registered(&server, "phone-1", Some("ada")).await;
    assert_eq!(ask(&server, "GET", PHONE, &[("authorization", &token)], "").await.status, StatusCode::UNAUTHORIZED);
    let shown = [("x-device-credential", credential.as_str()), ("authorization", &token)];
    assert_eq!(ask(&server, "GET", PHONE, &shown, "").await.status, StatusCode::OK);
}

#[tokio::test]
async fn the_listener_for_all_has_what_apps_may_and_takes_no_key() {
    let server = start();
    let credential = registered(&server, "phone-1", Some("ada")).await;
    let outside = server.apps.clone().unwrap();
    let ask = async |method: &str, path: &str, (name, value): (&str, &str)| {
        let request = Request::builder().method(method).uri(path).header(name, value).body(Body::empty()).unwrap();
        outside.clone().oneshot(request).await.unwrap().status().as_u16()
    };
    let own = ("x-device-credential", credential.as_str());
    assert_eq!(ask("GET", PHONE, own).await, 200);
    assert_eq!(ask("PUT", &format!("{PHONE}/mutes/everything"), own).await, 201);
    for key in [("x-api-key", "root"), ("authorization", "Bearer root"), ("authorization", "apikey root")] {
        assert_eq!(ask("GET", PHONE, key).await, 401, "{key:?}");
    }
    for path in
        ["/v1/devices", "/v1/users/ada/devices", "/v1/events", "/openapi.json", "/api/info", "/v1/tokens/lookup"]
    {
        assert_eq!(ask("GET", path, ("x-api-key", "root")).await, 404, "{path}");
    }
    // What is not for apps takes no proof of theirs inside either.
    for path in ["/v1/devices", "/v1/users/ada/devices", "/v1/jobs"] {
        let answer = server.send_with("GET", path, &[own], "").await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path}");
    }
}

#[tokio::test]
async fn a_call_is_a_sign_of_life() {
    let server = start();
    let credential = registered(&server, "phone-1", Some("ada")).await;
    let seen = async || server.send("GET", PHONE, "").await.json()["seen_at"].clone();
    let today = seen().await;
    assert!(today.as_str().is_some_and(|today| today.ends_with("T00:00:00.000Z")), "{today}");
    let answer = ask(&server, "GET", PHONE, &[("x-device-credential", &credential)], "").await;
    assert_eq!(answer.json()["seen_at"], today);
}

#[tokio::test(start_paused = true)]
async fn who_asks_too_fast_is_told_when_to_come_back() {
    let rate = Some(Rate { per_second: 2, burst: 3 });
    let server = Server::with_apps(Some(Apps { rate, ..apps() }), |_, _| ());
    let credential = registered(&server, "phone-1", Some("ada")).await;
    let other = registered(&server, "phone-2", Some("bob")).await;
    let token = bearer("ada", None);
    let own = [("x-device-credential", credential.as_str())];
    let statuses = async |shown: &[(&str, &str)], path: &str, count: usize| {
        let mut statuses = Vec::new();
        for _ in 0..count {
            statuses.push(ask(&server, "GET", path, shown, "").await.status.as_u16());
        }
        statuses
    };
    assert_eq!(statuses(&own, PHONE, 4).await, [200, 200, 200, 429]);
    let refused = ask(&server, "GET", PHONE, &own, "").await;
    let expected = json!({
        "type": "urn:tidings:problem:rate-limited", "title": "Requests come too fast", "status": 429, "limit": 2,
        "detail": "app: at most 2 requests a second, and 3 at once after a pause",
    });
    assert_eq!((refused.json(), &refused.headers["retry-after"]), (expected, &"1".parse().unwrap()));
    // Nobody else pays for it: not the user, not another device; and who only tries its name pays apart.
    assert_eq!(statuses(&[("authorization", &token)], PHONE, 3).await, [200; 3]);
    assert_eq!(statuses(&[("x-device-credential", &other)], "/v1/devices/phone-2", 3).await, [200; 3]);
    assert_eq!(statuses(&[("x-device-credential", &other)], PHONE, 5).await, [404, 404, 404, 429, 429]);
    tokio::time::advance(Duration::from_millis(500)).await;
    assert_eq!(statuses(&own, PHONE, 2).await, [200, 429]);
    // Who tries the names of others pays with its own.
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(statuses(&[("authorization", &token)], "/v1/devices/phone-2", 4).await, [404, 404, 404, 429]);
    let metrics = server.send("GET", "/metrics", "").await.body;
    assert!(metrics.contains(r#"tidings_api_limited_total{by="app"} 6"#), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn an_address_is_limited_before_anything_is_proven() {
    let address_rate = Some(Rate { per_second: 1, burst: 2 });
    let header = "x-forwarded-for".parse().unwrap();
    let apps = Apps { address_rate, address_header: Some(header), ..apps() };
    let server = Server::with_apps(Some(apps), |_, _| ());
    let ask = async |peer: &str, told: Option<&str>, shown: (&str, &str)| {
        let mut request = Request::get(PHONE).header(shown.0, shown.1);
        if let Some(told) = told {
            request = request.header("x-forwarded-for", told);
        }
        let mut request = request.body(Body::empty()).unwrap();
        request.extensions_mut().insert(ConnectInfo::<SocketAddr>(peer.parse().unwrap()));
        server.answer(request).await.status.as_u16()
    };
    let wrong = ("authorization", "Bearer wrong");
    for expected in [401, 401, 429] {
        assert_eq!(ask("10.0.0.1:1", None, wrong).await, expected);
    }
    assert_eq!(ask("10.0.0.1:2", None, ("x-device-credential", "wrong")).await, 429, "whatever it shows");
    assert_eq!(ask("10.0.0.2:1", None, wrong).await, 401);
    assert_eq!(ask("10.0.0.1:1", None, ("x-api-key", "root")).await, 404, "keys are not apps'");
    // Behind a proxy it is the last address that counts; of IPv6 the network.
    for (told, expected) in [
        ("1.1.1.1", 401),
        ("6.6.6.6, 1.1.1.1", 401),
        ("7.7.7.7, 1.1.1.1", 429),
        ("2001:db8::1", 401),
        ("2001:db8::2", 401),
        ("2001:db8::3", 429),
        ("2001:db8:0:1::3", 401),
        ("::ffff:1.1.1.1", 429),
    ] {
        assert_eq!(ask("10.0.0.3:1", Some(told), wrong).await, expected, "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_is_limited_by_itself() {
    let server = Server::with(|_, config| config.key_rate = Some(Rate { per_second: 10, burst: 2 }));
    let ask = async |key: &str| server.send_with("GET", "/v1/devices", &[("x-api-key", key)], "").await;
    for expected in [200, 200, 429] {
        assert_eq!(ask("root").await.status.as_u16(), expected);
    }
    let refused = ask("root").await;
    assert_eq!(refused.detail(), "the key root: at most 10 requests a second, and 2 at once after a pause");
    assert_eq!(ask("devices").await.status, StatusCode::OK);
    tokio::time::advance(Duration::from_millis(100)).await;
    assert_eq!(ask("root").await.status, StatusCode::OK);
}

#[derive(Debug, Clone, Copy)]
struct Call {
    /// Which device the path names.
    device: usize,
    /// Whose credential is shown: the present one of this device, or one it had.
    credential: Option<(usize, bool)>,
    user: Option<usize>,
    /// The claim `device`.
    claim: Option<usize>,
    act: Act,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Act {
    Put,
    Get,
    Delete,
    LogOut,
    Mute,
}

const USERS: [&str; 2] = ["ada", "bob"];

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let device = 0..3_usize;
    let act = select(vec![Act::Put, Act::Put, Act::Get, Act::Get, Act::Mute, Act::Delete, Act::LogOut]);
    let credential = prop::option::of((device.clone(), any::<bool>()));
    let call = (device.clone(), credential, prop::option::of(0..2_usize), prop::option::weighted(0.3, device), act);
    let call = call.prop_map(|(device, credential, user, claim, act)| Call { device, credential, user, claim, act });
    prop::collection::vec(call, 1..24)
}

/// What a device is to the model: whose, and its credential.
#[derive(Debug, Clone, Default)]
struct Known {
    user: Option<usize>,
    credential: String,
}

/// Whatever apps show and ask in whatever order: each reaches what it has proven, and everything else is not there.
#[test]
fn an_app_reaches_its_own_device_and_no_other() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server =
        runtime.block_on(async { Server::with_apps(Some(Apps { user_device_count_max: 99, ..apps() }), |_, _| ()) });
    let mut runner = TestRunner::new(Config { cases: 24, ..Config::with_source_file(file!()) });
    let run = |calls: Vec<Call>| {
        runtime.block_on(async {
            for device in 0..3 {
                server.send("DELETE", &format!("/v1/devices/d-{device}"), "").await;
            }
            let mut model: BTreeMap<usize, Known> = BTreeMap::new();
            let mut former: BTreeMap<usize, String> = BTreeMap::new();
            for (number, call) in calls.into_iter().enumerate() {
                let Call { device, credential, user, claim, act } = call;
                let shown_credential = credential.and_then(|(of, is_present)| match is_present {
                    true => model.get(&of).map(|known| known.credential.clone()),
                    false => former.get(&of).cloned(),
                });
                let claim_name = claim.map(|claim| format!("d-{claim}"));
                let has_token = user.is_some() || claim.is_some();
                let token = has_token.then(|| bearer(user.map_or("", |user| USERS[user]), claim_name.as_deref()));
                let mut shown = Vec::new();
                shown.extend(token.as_deref().map(|token| ("authorization", token)));
                shown.extend(shown_credential.as_deref().map(|credential| ("x-device-credential", credential)));

                let known = model.get(&device);
                let by_credential = known.is_some_and(|known| Some(&known.credential) == shown_credential.as_ref());
                let is_it = by_credential || claim == Some(device);
                let is_elsewhere = claim.is_some_and(|claim| claim != device);
                let expected = if shown.is_empty() {
                    401
                } else {
                    match (known, act) {
                        _ if is_elsewhere => 404,
                        (Some(known), _) if is_it || (user.is_some() && known.user == user) => 200,
                        (None, Act::Put) if has_token => 201,
                        _ => 404,
                    }
                };
                let path = format!("/v1/devices/d-{device}");
                let (method, path, body) = match act {
                    Act::Put => ("PUT", path, phone_with(&format!("t-{number}"))),
                    Act::Get => ("GET", path, String::new()),
                    Act::Delete => ("DELETE", path, String::new()),
                    Act::LogOut => ("POST", format!("{path}/logout"), String::new()),
                    Act::Mute => ("PUT", format!("{path}/mutes/team:{number}"), String::new()),
                };
                let answer = ask(&server, method, &path, &shown, body).await;
                let status = match answer.status.as_u16() {
                    204 => 200,
                    201 if act == Act::Mute => 200,
                    status => status,
                };
                assert_eq!(status, expected, "{call:?} {model:?} {answer:?}");
                if !answer.status.is_success() {
                    continue;
                }
                match act {
                    Act::Put => {
                        let entry = model.entry(device).or_default();
                        entry.user = user.or(entry.user);
                        if let Some(new) = answer.json()["credential"].as_str() {
                            entry.credential = new.to_owned();
                        }
                    }
                    Act::Delete => former.extend(model.remove(&device).map(|known| (device, known.credential))),
                    Act::LogOut => {
                        let new = answer.json()["credential"].as_str().unwrap().to_owned();
                        let known = Known { user: None, credential: new };
                        former.extend(model.insert(device, known).map(|known| (device, known.credential)));
                    }
                    Act::Get | Act::Mute => {}
                }
                for (device, known) in &model {
                    let shown = server.send("GET", &format!("/v1/devices/d-{device}"), "").await.json();
                    assert_eq!(
                        shown.get("user").and_then(Value::as_str),
                        known.user.map(|user| USERS[user]),
                        "{call:?}"
                    );
                }
            }
        });
        Ok(())
    };
    runner.run(&calls(), run).unwrap();
}

/// A log-out comes between what an app was let in for and what it does, or it does not: never half.
#[tokio::test]
async fn what_an_app_adds_at_a_log_out_does_not_outlive_it() {
    let server = start();
    let list = r#"{"subscriptions":[{"subject":"team:1","topics":["goal"]}]}"#;
    for round in 0..20 {
        let id = format!("d-{round}");
        let path = format!("/v1/devices/{id}");
        let credential = registered(&server, &id, Some("ada")).await;
        let token = bearer("ada", None);
        let own = [("x-device-credential", credential.as_str())];
        let hers = [("authorization", token.as_str())];
        let (subscriptions, mute, out) =
            (format!("{path}/subscriptions"), format!("{path}/mutes/team:1"), format!("{path}/logout"));
        let asked = join_all([
            ask(&server, "POST", &subscriptions, &own, list),
            ask(&server, "PUT", &mute, &hers, ""),
            ask(&server, "POST", &out, &own, ""),
            ask(&server, "POST", &subscriptions, &hers, list),
            ask(&server, "PUT", &path, &hers, ""),
        ]);
        let answers = asked.await;
        assert_eq!(answers[2].status, StatusCode::OK);
        let left = server.send("GET", &subscriptions, "").await.body
            + &server.send("GET", &format!("{path}/mutes"), "").await.body;
        assert_eq!(left, r#"{"subscriptions":[]}{"mutes":[]}"#, "{answers:?}");
        assert_eq!(server.send("GET", &path, "").await.json().get("user"), None);
    }
}

/// A body that never ends after it has begun.
fn endless() -> Body {
    Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, std::convert::Infallible>>())
}

async fn put(server: &Server, path: &str, shown: (&str, &str), body: Body) -> Answer {
    let shown = [shown, ("content-type", "application/json")];
    let answer = ask(server, "PUT", path, &shown, body);
    tokio::time::timeout(Duration::from_secs(20), answer).await.expect("an answer before the body")
}

#[tokio::test(start_paused = true)]
async fn a_proof_is_checked_before_the_body_is_read() {
    let server = start();
    let credential = registered(&server, "phone-1", Some("ada")).await;
    registered(&server, "phone-2", Some("bob")).await;
    let token = bearer("bob", None);
    for shown in [("x-device-credential", "wrong"), ("authorization", token.as_str())] {
        for path in [PHONE, "/v1/devices/phone-1/subscriptions", "/v1/devices/phone-1/mutes/everything"] {
            let answer = put(&server, path, shown, endless()).await;
            assert_eq!((answer.status, answer.detail().as_str()), (StatusCode::NOT_FOUND, NOT_THERE), "{path}");
        }
    }
    let own = ("x-device-credential", credential.as_str());
    let large = put(&server, PHONE, own, vec![b' '; (64 << 10) + 1].into()).await;
    assert_eq!((large.status, &large.json()["limit"]), (StatusCode::PAYLOAD_TOO_LARGE, &json!(64 << 10)));
}

#[tokio::test(start_paused = true)]
async fn a_user_whose_bodies_do_not_come_takes_no_place_of_others() {
    let server = Server::with_apps(Some(apps()), |_, config| config.request_count_max = 8); // Two of apps.
    let credential = registered(&server, "phone-1", Some("ada")).await;
    let bobs = registered(&server, "phone-2", Some("bob")).await;
    let (token, own, his) = (bearer("ada", None), ["phone-1", &credential], ["phone-2", &bobs]);
    let shown = |credential| [("x-device-credential", credential), ("content-type", "application/json")];
    let hers = [("authorization", token.as_str()), ("content-type", "application/json")];
    // While a blocking task runs, a paused clock stands still, and no body is too late.
    let (go_on, waits) = std::sync::mpsc::sync_channel::<()>(1);
    let standstill = tokio::task::spawn_blocking(move || waits.recv());
    // Eight of hers are as many as she may have, whichever of her proofs they show. One that comes while a request of below is
    // the eighth is asked again.
    let one_slow = async || {
        loop {
            let answer = ask(&server, "PUT", PHONE, &hers, endless()).await;
            if answer.status != StatusCode::TOO_MANY_REQUESTS {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    };
    let slow = join_all((0..8).map(|_| one_slow()));
    let others = async {
        let mut refused = None;
        for _ in 0..100_000 {
            let answer = ask(&server, "GET", PHONE, &hers, "").await;
            if answer.status != StatusCode::OK {
                refused = Some(answer);
                break;
            }
            tokio::task::yield_now().await;
        }
        let path = format!("/v1/devices/{}", his[0]);
        let bob = ask(&server, "PUT", &path, &shown(his[1]), phone_with("t-9")).await;
        let producer = server.send("GET", "/v1/devices", "").await;
        drop(go_on);
        (refused.expect("eight are under way at a time"), bob, producer)
    };
    let (slow, (refused, bob, producer)) = tokio::join!(slow, others);
    for answer in slow {
        let expected = "the body must arrive within 5 seconds".to_owned();
        assert_eq!((answer.status, answer.detail()), (StatusCode::REQUEST_TIMEOUT, expected));
    }
    let told = "app: at most 8 requests of one user, or of one device, at a time";
    assert_eq!((refused.status.as_u16(), refused.detail().as_str()), (429, told));
    assert_eq!((bob.status, producer.status), (StatusCode::OK, StatusCode::OK), "{bob:?}");
    assert_eq!(ask(&server, "GET", PHONE, &shown(own[1]), "").await.status, StatusCode::OK);
    standstill.await.unwrap().unwrap_err();
}

#[tokio::test]
async fn pages_of_admitted_origins_may_call_and_no_others() {
    let server = start();
    let credential = registered(&server, "phone-1", Some("ada")).await;
    let preflight = async |router: &axum::Router, origin: &str, path: &str| {
        let request = Request::options(path)
            .header("origin", origin)
            .header("access-control-request-method", "PUT")
            .header("access-control-request-headers", "x-device-credential,if-match");
        router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    };
    let named = |headers: &axum::http::HeaderMap, name: &str| {
        headers.get(name).map(|value| value.to_str().unwrap().to_ascii_lowercase())
    };
    for router in [&server.router, server.apps.as_ref().unwrap()] {
        for path in [PHONE, "/v1/devices/phone-1/mutes/everything"] {
            let admitted = preflight(router, "https://example.com", path).await;
            assert_eq!(admitted.status(), StatusCode::OK);
            let headers = admitted.headers();
            assert_eq!(named(headers, "access-control-allow-origin").as_deref(), Some("https://example.com"));
            assert_eq!(named(headers, "access-control-allow-methods").as_deref(), Some("get,put,post,delete"));
            let allowed = "authorization,content-type,if-match,if-none-match,x-device-credential";
            assert_eq!(named(headers, "access-control-allow-headers").as_deref(), Some(allowed));
            assert_eq!(named(headers, "access-control-allow-credentials"), None);
            assert!(named(headers, "vary").is_some_and(|vary| vary.contains("origin")), "{headers:?}");
            let refused = preflight(router, "https://example.com.evil.org", path).await;
            assert_eq!(named(refused.headers(), "access-control-allow-origin"), None, "{refused:?}");
        }
    }
    let of_servers = preflight(&server.router, "https://example.com", "/v1/devices").await;
    assert_eq!(of_servers.status(), StatusCode::METHOD_NOT_ALLOWED, "what is not for apps is not for pages");
    assert_eq!(named(of_servers.headers(), "access-control-allow-origin"), None);
    for (credential, status) in [(credential.as_str(), 200), ("wrong", 404)] {
        for (origin, allowed) in [
            ("https://EXAMPLE.com", Some("https://example.com")),
            ("https://a.example.net", Some("https://a.example.net")),
            ("https://evil.org", None),
        ] {
            let shown = [("x-device-credential", credential), ("origin", origin)];
            let answer = ask(&server, "GET", PHONE, &shown, "").await;
            assert_eq!(answer.status.as_u16(), status);
            assert_eq!(named(&answer.headers, "access-control-allow-origin").as_deref(), allowed, "{origin} {status}");
            assert_eq!(named(&answer.headers, "access-control-expose-headers").as_deref(), Some("etag,retry-after"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_tries_pays_and_the_device_does_not_pay_for_it() {
    let server = Server::with_apps(Some(Apps { rate: Some(Rate { per_second: 1, burst: 2 }), ..apps() }), |_, _| ());
    let credential = registered(&server, "phone-1", Some("ada")).await;
    let ask = async |name: &str, value: &str| ask(&server, "GET", PHONE, &[(name, value)], "").await.status.as_u16();
    for expected in [404, 404, 429] {
        assert_eq!(ask("x-device-credential", "wrong").await, expected);
    }
    for expected in [200, 200, 429] {
        assert_eq!(ask("x-device-credential", &credential).await, expected);
    }
    let elsewhere = bearer("", Some("phone-2"));
    for expected in [404, 404, 429] {
        assert_eq!(ask("authorization", &elsewhere).await, expected, "its token is about another device");
    }
}

#[tokio::test]
async fn a_condition_tells_an_app_nothing_of_devices_that_are_not_its_own() {
    let server = start();
    registered(&server, "phone-1", Some("ada")).await;
    let token = bearer("bob", None);
    let shown = [("authorization", token.as_str()), ("if-match", "*"), ("content-type", "application/json")];
    for method in ["PUT", "DELETE", "GET"] {
        for id in ["phone-1", "phone-9"] {
            let answer = ask(&server, method, &format!("/v1/devices/{id}"), &shown, phone().to_string()).await;
            let detail = format!("device {id} is not registered");
            assert_eq!((answer.status, answer.detail()), (StatusCode::NOT_FOUND, detail), "{method} {id}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registered_all_at_once_they_are_no_more_than_a_user_may_have() {
    let server = start();
    let token = bearer("ada", None);
    let shown = [("authorization", token.as_str()), ("content-type", "application/json")];
    let paths: Vec<String> = (0..24).map(|number| format!("/v1/devices/d-{number}")).collect();
    let puts = paths
        .iter()
        .zip(0..)
        .map(|(path, number)| ask(&server, "PUT", path, &shown, phone_with(&format!("t-{number}"))));
    let made = join_all(puts).await.into_iter().filter(|answer| answer.status == StatusCode::CREATED).count();
    assert_eq!(made, 3);
}
