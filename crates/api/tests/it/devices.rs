//! `/v1/devices`.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tidings_api::Rfc3339;
use tidings_telemetry::unix_now;
use tidings_types::{DeviceId, DeviceToken, Platform};

use crate::support::{Cases, SUBSCRIPTION_COUNT_MAX, Server, poll_and_drop};

const PHONE: &str = "/v1/devices/phone-1";
const SUBSCRIPTIONS: &str = "/v1/devices/phone-1/subscriptions";
const TOKEN: &str = "00aa11bb22cc33dd44ee55ff66778899";

fn phone() -> Value {
    json!({"platform": "ios", "token": TOKEN, "app": "com.example.scores", "locale": "pt_br"})
}

fn phone_with(change: Value) -> String {
    let mut device = phone();
    for (name, value) in change.as_object().unwrap() {
        device[name] = value.clone();
    }
    device.to_string()
}

#[tokio::test]
async fn a_device_is_registered_changed_shown_and_forgotten() {
    let server = Server::start();
    let said = json!({"country": "BR", "user": "u-7", "time_zone": "America/Bahia", "push_permission": "provisional"});
    let created = server.send("PUT", PHONE, phone_with(said)).await;
    assert_eq!(created.status, StatusCode::CREATED);
    assert_eq!(created.headers["cache-control"], "no-store");
    let credential = created.json()["credential"].as_str().unwrap().to_owned();
    let id = DeviceId::new("phone-1").unwrap();
    assert!(server.store.prove(&id, Some(&credential)).unwrap().is_some());
    let mut shown = json!({
        "id": "phone-1", "platform": "ios", "app": "com.example.scores", "environment": "production",
        "token": "…8899", "push_permission": "provisional", "locale": "pt-BR", "country": "BR",
        "time_zone": "America/Bahia", "user": "u-7", "seen_at": today(),
    });
    let found = server.send("GET", PHONE, "").await;
    let mut whole = shown.clone();
    (whole["subscriptions"], whole["mutes"]) = (json!([]), json!([]));
    assert_eq!((found.status, found.json()), (StatusCode::OK, whole));
    shown["credential"] = json!(credential);
    assert_eq!(created.json(), shown);

    let changed = server.send("PUT", PHONE, phone_with(json!({"environment": "sandbox"}))).await;
    let expected = json!({
        "id": "phone-1", "platform": "ios", "app": "com.example.scores", "environment": "sandbox", "token": "…8899",
        "push_permission": "unknown", "locale": "pt-BR", "seen_at": today(),
    });
    assert_eq!((changed.status, changed.json()), (StatusCode::OK, expected), "as a whole, and no new credential");

    let gone = server.send("DELETE", PHONE, "").await;
    assert_eq!((gone.status, gone.body.as_str()), (StatusCode::NO_CONTENT, ""));
    for method in ["GET", "DELETE"] {
        let absent = server.send(method, PHONE, "").await;
        assert_eq!(
            (absent.status, absent.detail().as_str()),
            (StatusCode::NOT_FOUND, "device phone-1 is not registered")
        );
    }
}

/// The day, as a device that was seen has it.
fn today() -> String {
    Rfc3339(unix_now().start_of_day()).to_string()
}

#[tokio::test]
async fn who_does_not_let_the_app_push_may_have_no_address() {
    let server = Server::start();
    for (permission, platform, field) in [("denied", "web", "web_push"), ("unknown", "ios", "token")] {
        let said = json!({"platform": platform, "push_permission": permission, "app": "a", "locale": "en"});
        let made = server.send("PUT", PHONE, said.to_string()).await;
        assert!(made.status.is_success(), "{made:?}");
        let shown = server.send("GET", PHONE, "").await.json();
        assert_eq!((&shown["push_permission"], shown.get("token")), (&json!(permission), None), "{shown}");
        let mut unsaid = said;
        unsaid.as_object_mut().unwrap().remove("push_permission");
        let refused = server.send("PUT", PHONE, unsaid.to_string()).await;
        assert_eq!(refused.detail(), format!("{field}: is required"), "forgotten, if nothing else is said");
    }
}

#[tokio::test]
async fn a_device_is_found_by_its_token() {
    let server = Server::start();
    server.send("PUT", PHONE, phone_with(json!({"user": "ada"}))).await;
    server.send("PUT", "/v1/devices/tab-1", browser(&subscription("https://push.example/x"))).await;
    let look_up = async |body: Value| server.post("/v1/tokens/lookup", body.to_string()).await;
    let found = look_up(json!({"platform": "ios", "token": TOKEN})).await;
    assert_eq!(
        (found.status, &found.json()["id"], &found.json()["user"]),
        (StatusCode::OK, &json!("phone-1"), &json!("ada"))
    );
    assert!(!found.body.contains(TOKEN) && found.headers.contains_key("etag"), "{found:?}");
    let found = look_up(json!({"platform": "web", "web_push": subscription("https://push.example/x")})).await;
    assert_eq!(found.json()["id"], "tab-1");
    let cases = Cases::default();
    for (body, status, detail) in [
        (json!({"platform": "ios", "token": "aabb"}), 404, "no device has this token"),
        (json!({"platform": "android", "token": TOKEN}), 404, "no device has this token"),
        (json!({"platform": "ios"}), 400, "token: is required"),
        (json!({"token": TOKEN}), 400, "platform: is required"),
        (json!({"platform": "web", "token": TOKEN}), 400, "token: is not for web, which has `web_push`"),
        (json!({"platform": "ios", "token": TOKEN, "id": "a"}), 400, "unknown field `id`"),
    ] {
        let answer = look_up(body.clone()).await;
        cases.check(&body.to_string(), (answer.status.as_u16(), answer.detail().as_str()), (status, detail));
    }
}

#[tokio::test]
async fn a_token_is_never_shown_in_full_and_moves_to_the_device_that_registers_it_last() {
    let server = Server::start();
    server.send("PUT", PHONE, phone().to_string()).await;
    let other = server.send("PUT", "/v1/devices/phone-2", phone().to_string()).await;
    assert!(!other.body.contains(TOKEN) && !other.body.contains(&TOKEN[..8]), "{other:?}");
    assert_eq!(server.send("GET", PHONE, "").await.json()["token"], Value::Null);
    let short = server.send("PUT", PHONE, phone_with(json!({"token": "abcd"}))).await;
    assert_eq!(short.json()["token"], "…");
    let wrong = server.send("PUT", PHONE, phone_with(json!({"token": "secret-token"}))).await;
    assert!(!wrong.body.contains("secret"), "{wrong:?}");
}

#[tokio::test]
async fn an_id_may_hold_any_visible_character_when_it_is_percent_encoded() {
    let server = Server::start();
    let answer = server.send("PUT", "/v1/devices/a%2Fb%25", phone().to_string()).await;
    assert_eq!(answer.json()["id"], "a/b%");
    assert_eq!(server.send("GET", "/v1/devices/a%2Fb%25", "").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_wrong_device_is_refused_with_the_fields_path_the_rule_and_the_value() {
    let server = Server::start();
    let cases = Cases::default();
    let without = |field: &str| {
        let mut device = phone();
        device.as_object_mut().unwrap().remove(field);
        device.to_string()
    };
    for (name, body, expected) in [
        ("unknown field", phone_with(json!({"local": "en"})), "unknown field `local`, did you mean `locale`?"),
        (
            "wrong time zone",
            phone_with(json!({"time_zone": "+02:00"})),
            "time_zone: time zone must be an IANA name such as Europe/Stockholm, 1 to 64 characters, got \"+02:00\"",
        ),
        (
            "wrong permission",
            phone_with(json!({"push_permission": "default"})),
            "push_permission: must be \"unknown\" or \"granted\" or \"provisional\" or \"denied\", got \"default\"",
        ),
        (
            "permitted, without a token",
            phone_with(json!({"push_permission": "granted", "token": null})),
            "token: is required",
        ),
        (
            "part of a subscription",
            phone_with(json!({"endpoint": "x"})),
            "field `endpoint` is a part of `web_push`, which takes what PushSubscription.toJSON() gives",
        ),
        (
            "field of another path",
            phone_with(json!({"subscriptions": []})),
            "field `subscriptions` cannot be set here: use PUT /v1/devices/{id}/subscriptions",
        ),
        ("id", phone_with(json!({"id": "phone-1"})), "field `id` is given by the path"),
        ("no platform", without("platform"), "platform: is required"),
        ("no token", without("token"), "token: is required"),
        ("no app", without("app"), "app: is required"),
        ("no locale", without("locale"), "locale: is required"),
        (
            "wrong platform",
            phone_with(json!({"platform": "iOS"})),
            "platform: must be \"ios\" or \"android\" or \"web\", got \"iOS\"",
        ),
        (
            "Android's token",
            phone_with(json!({"platform": "android", "token": "a b"})),
            "token: token must be 1 to 4096 visible ASCII characters, got \"3 characters\"",
        ),
        (
            "Android in the sandbox",
            phone_with(json!({"platform": "android", "environment": "sandbox"})),
            "environment: must be \"production\" where platform is not ios, got \"sandbox\"",
        ),
        ("a phone's subscription", phone_with(json!({"web_push": {}})), "web_push: is not for ios, which has `token`"),
        ("a browser's token", phone_with(json!({"platform": "web"})), "token: is not for web, which has `web_push`"),
        ("no subscription", phone_with(json!({"platform": "web", "token": null})), "web_push: is required"),
        (
            "unknown locale",
            phone_with(json!({"locale": "english"})),
            "locale: locale must be a BCP 47 language, optionally with script and region, such as pt or pt-BR, got \"english\"",
        ),
        (
            "wrong country",
            phone_with(json!({"country": "Brazil"})),
            "country: country must be two letters A-Z (ISO 3166-1), got \"Brazil\"",
        ),
        (
            "wrong environment",
            phone_with(json!({"environment": "test"})),
            "environment: must be \"production\" or \"sandbox\", got \"test\"",
        ),
        (
            "wrong token",
            phone_with(json!({"token": "xyz"})),
            "token: token must be 2 to 400 hexadecimal digits, an even number, got \"3 characters\"",
        ),
        ("no object", "[]".to_owned(), "must be an object, got a list"),
        ("no JSON", "{\"a\" 1}".to_owned(), "not JSON: expected `:` at line 1 column 6"),
    ] {
        let answer = server.send("PUT", PHONE, body).await;
        cases.check(name, (answer.status.as_u16(), answer.detail()), (400, expected.to_owned()));
    }
    for (path, expected) in [
        ("/v1/devices/a%20b", "id: device id must be 1 to 128 visible ASCII characters, got \"a b\""),
        ("/v1/devices/%ff", "id: the path must be UTF-8 text"),
    ] {
        let answer = server.send("PUT", path, phone().to_string()).await;
        cases.check(path, (answer.status.as_u16(), answer.detail()), (400, expected.to_owned()));
    }
    assert_eq!(server.store.counts().devices, 0);
}

/// As a browser's `JSON.stringify(subscription)` has it.
fn subscription(endpoint: &str) -> Value {
    json!({
        "endpoint": endpoint,
        "expirationTime": null,
        "keys": {
            "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
            "auth": "BTBZMqHH6r4Tts7J_aSIgg",
        },
    })
}

fn browser(web_push: &Value) -> String {
    json!({"platform": "web", "web_push": web_push, "app": "example.com", "locale": "en"}).to_string()
}

#[tokio::test]
async fn each_platform_is_reached_in_its_own_way() {
    let server = Server::start();
    let android =
        phone_with(json!({"platform": "android", "token": "dPx0:APA91b-8_xSecret", "environment": "production"}));
    let made = server.send("PUT", PHONE, android).await;
    assert_eq!((made.status, &made.json()["token"]), (StatusCode::CREATED, &json!("…cret")), "{made:?}");
    assert!(!made.body.contains("APA91b"), "{made:?}");
    let stored = |id: &str| server.store.device(&DeviceId::new(id).unwrap()).unwrap().unwrap();
    assert_eq!(stored("phone-1").token, Some(DeviceToken::fcm("dPx0:APA91b-8_xSecret").unwrap()));

    let endpoint = "https://fcm.googleapis.com/fcm/send/dYyb:APA91b_secret-1234";
    let mut web_push = subscription(endpoint);
    let made = server.send("PUT", "/v1/devices/tab-1", browser(&web_push)).await;
    assert_eq!((made.status, &made.json()["token"]), (StatusCode::CREATED, &json!("…1234")), "{made:?}");
    assert!(!made.body.contains("googleapis") && !made.body.contains("BTBZ"), "{made:?}");
    let token = stored("tab-1").token.unwrap();
    assert_eq!((stored("tab-1").platform, token.as_bytes()), (Platform::Web, endpoint.as_bytes()));
    // What browsers and libraries add or leave out changes nothing.
    web_push["expirationTime"] = json!(1_784_138_645_500_u64);
    let again = server.send("PUT", "/v1/devices/tab-1", browser(&web_push)).await;
    web_push.as_object_mut().unwrap().remove("expirationTime");
    web_push["keys"]["auth"] = json!("BTBZMqHH6r4Tts7J_aSIgg==");
    let padded = server.send("PUT", "/v1/devices/tab-1", browser(&web_push)).await;
    assert_eq!((again.status, padded.status), (StatusCode::OK, StatusCode::OK), "{padded:?}");
    assert_eq!(stored("tab-1").token, Some(token));
}

/// Whatever is wrong with it is told, and an endpoint or a key never.
#[tokio::test]
async fn a_wrong_subscription_is_refused_without_being_repeated() {
    let server = Server::start();
    let cases = Cases::default();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut web_push = subscription("https://push.example/secret");
        change(&mut web_push);
        web_push
    };
    let to = |endpoint: &str| subscription(endpoint);
    let long = format!("https://push.example/{}", "x".repeat(2028));
    for (name, web_push, expected) in [
        ("plain", to("http://push.example/secret"), "web_push.endpoint: must begin with https://"),
        ("no address", to("secret"), "web_push.endpoint: must begin with https://"),
        ("empty", to(""), "web_push.endpoint: must have 1 to 2048 bytes, got 0"),
        ("long", to(&long), "web_push.endpoint: must have 1 to 2048 bytes, got 2049"),
        (
            "with a user",
            to("https://secret:word@push.example/x"),
            "web_push.endpoint: must not hold a user or password before its host",
        ),
        (
            "without a host",
            to("https:///secret"),
            "web_push.endpoint: must have a host of 1 to 253 letters, digits, hyphens and dots behind https://",
        ),
        (
            "with another host",
            to("https://sécret.example/"),
            "web_push.endpoint: must have a host of 1 to 253 letters, digits, hyphens and dots behind https://",
        ),
        ("port", to("https://secret.example:0/"), "web_push.endpoint: must have a port from 1 to 65535, or none"),
        ("no port", to("https://secret.example:/"), "web_push.endpoint: must have a port from 1 to 65535, or none"),
        (
            "fragment",
            to("https://push.example/#secret"),
            "web_push.endpoint: must have a path of the characters of a URL (RFC 3986), without a fragment",
        ),
        (
            "space",
            to("https://push.example/a secret"),
            "web_push.endpoint: must have a path of the characters of a URL (RFC 3986), without a fragment",
        ),
        ("no keys", with(&|it| it["keys"] = Value::Null), "web_push.keys: is required"),
        ("no auth", with(&|it| it["keys"] = json!({"p256dh": "x"})), "web_push.keys.auth: is required"),
        (
            "short secret",
            with(&|it| it["keys"]["auth"] = json!("secret")),
            "web_push.keys.auth: auth must be 16 bytes in base64url, got \"6 characters\"",
        ),
        (
            "no point",
            with(&|it| it["keys"]["p256dh"] = json!("secret")),
            "web_push.keys.p256dh: p256dh must be an uncompressed P-256 point, 65 bytes in base64url, got \"6 characters\"",
        ),
        ("misspelt", with(&|it| it["key"] = json!({})), "web_push: unknown field `key`, did you mean `keys`?"),
    ] {
        let answer = server.send("PUT", PHONE, browser(&web_push)).await;
        cases.check(name, (answer.status.as_u16(), answer.detail()), (400, expected.to_owned()));
        cases.check(name, answer.body.contains("cret"), false);
    }
    assert_eq!(server.store.counts().devices, 0);
}

#[tokio::test]
async fn subscriptions_are_replaced_added_removed_and_listed() {
    let server = Server::start();
    server.send("PUT", PHONE, phone().to_string()).await;
    let team = json!({"subscriptions": [{"subject": "team:42", "topics": ["red_card", "goal"]}]});
    let answer = server.send("PUT", SUBSCRIPTIONS, team.to_string()).await;
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, r#"{"added":2,"removed":0}"#));
    let more = json!({"subscriptions": [
        {"subject": "team:42", "topics": ["goal", "end"]}, {"subject": "match:1", "topics": ["goal"]},
    ]});
    assert_eq!(server.post(SUBSCRIPTIONS, more.to_string()).await.body, r#"{"added":2,"removed":0}"#);
    let list = server.send("GET", SUBSCRIPTIONS, "").await;
    assert_eq!(
        list.body,
        r#"{"subscriptions":[{"subject":"match:1","topics":["goal"]},{"subject":"team:42","topics":["end","goal","red_card"]}]}"#
    );
    let again = server.send("PUT", SUBSCRIPTIONS, list.body).await;
    assert_eq!(again.body, r#"{"added":0,"removed":0}"#, "what was listed can be put back");
    let replaced = server.send("PUT", SUBSCRIPTIONS, more.to_string()).await;
    assert_eq!(replaced.body, r#"{"added":0,"removed":1}"#);
    let one = server.send("DELETE", &format!("{SUBSCRIPTIONS}?subject=team%3A42&topic=end"), "").await;
    assert_eq!(one.body, r#"{"added":0,"removed":1}"#);
    let all = server.send("DELETE", &format!("{SUBSCRIPTIONS}?subject=match:1"), "").await;
    assert_eq!(all.body, r#"{"added":0,"removed":1}"#);
    assert_eq!(
        server.send("GET", SUBSCRIPTIONS, "").await.body,
        r#"{"subscriptions":[{"subject":"team:42","topics":["goal"]}]}"#
    );
    let none = server.send("PUT", SUBSCRIPTIONS, r#"{"subscriptions":[]}"#).await;
    assert_eq!(none.body, r#"{"added":0,"removed":1}"#);
}

#[tokio::test]
async fn wrong_subscriptions_are_refused_and_change_nothing() {
    let server = Server::start();
    server.send("PUT", PHONE, phone().to_string()).await;
    let kept = json!({"subscriptions": [{"subject": "team:1", "topics": ["goal"]}]}).to_string();
    server.send("PUT", SUBSCRIPTIONS, kept.clone()).await;
    let cases = Cases::default();
    let topics: Vec<String> = (0..=SUBSCRIPTION_COUNT_MAX).map(|number| format!("t{number}")).collect();
    for (name, body, expected) in [
        ("no list", json!({}), "subscriptions: is required"),
        ("unknown field", json!({"subscription": []}), "unknown field `subscription`, did you mean `subscriptions`?"),
        (
            "no topics",
            json!({"subscriptions": [{"subject": "team:1", "topics": []}]}),
            "subscriptions[0].topics: must hold 1 to 6 topics, got 0",
        ),
        ("topics left out", json!({"subscriptions": [{"subject": "team:1"}]}), "subscriptions[0].topics: is required"),
        (
            "wrong topic",
            json!({"subscriptions": [{"subject": "team:1", "topics": ["goal", "Red"]}]}),
            "subscriptions[0].topics[1]: topic must be 1 to 64 characters of a-z, 0-9, _ and -, got \"Red\"",
        ),
        (
            "too many topics",
            json!({"subscriptions": [{"subject": "team:1", "topics": topics}]}),
            "subscriptions[0].topics: must hold 1 to 6 topics, got 7",
        ),
        (
            "too many together",
            json!({"subscriptions": [{"subject": "team:1", "topics": &topics[..4]}, {"subject": "team:2", "topics": &topics[..4]}]}),
            "subscriptions: must hold at most 6 pairs of subject and topic, got 8 or more",
        ),
    ] {
        for method in ["PUT", "POST"] {
            let answer = server.send(method, SUBSCRIPTIONS, body.to_string()).await;
            cases.check(name, (answer.status.as_u16(), answer.detail()), (400, expected.to_owned()));
        }
    }
    let six = json!({"subscriptions": [{"subject": "team:2", "topics": &topics[..6]}]}).to_string();
    let answer = server.post(SUBSCRIPTIONS, six.clone()).await;
    cases.check("no room", answer.detail(), "subscriptions of one device: limit 6, got 7".to_owned());
    for (query, expected) in [
        ("", "subject: is required in the query: ?subject=team:42"),
        ("?topic=goal", "subject: is required in the query: ?subject=team:42"),
        ("?subject=team:1&subject=team:2", "subject: is there twice"),
        ("?subject=team:1&topics=goal", "unknown query parameter `topics`, known are `subject` and `topic`"),
        (
            "?subject=%ff",
            "subject: subject must be kind:key, 3 to 128 visible ASCII characters, kind of a-z, 0-9, _ and -, got \"\u{fffd}\"",
        ),
    ] {
        let answer = server.send("DELETE", &format!("{SUBSCRIPTIONS}{query}"), "").await;
        cases.check(query, (answer.status.as_u16(), answer.detail()), (400, expected.to_owned()));
    }
    cases.check("unchanged", server.send("GET", SUBSCRIPTIONS, "").await.body, kept);
    let answer = server.send("PUT", SUBSCRIPTIONS, six).await;
    cases.check("replacing makes room first", answer.body, r#"{"added":6,"removed":1}"#.to_owned());
    let absent = "/v1/devices/nobody/subscriptions";
    for (method, path, body) in [
        ("GET", absent.to_owned(), ""),
        ("PUT", absent.to_owned(), r#"{"subscriptions":[]}"#),
        ("POST", absent.to_owned(), r#"{"subscriptions":[]}"#),
        ("DELETE", format!("{absent}?subject=team:1"), ""),
    ] {
        let answer = server.send(method, &path, body).await;
        let expected = (404, "device nobody is not registered".to_owned());
        cases.check(method, (answer.status.as_u16(), answer.detail()), expected);
    }
}

#[tokio::test]
async fn of_two_replacements_at_the_same_time_one_wins_as_a_whole() {
    let server = Server::start();
    server.send("PUT", PHONE, phone().to_string()).await;
    let list = |subject: &str| json!({"subscriptions": [{"subject": subject, "topics": ["end", "goal"]}]}).to_string();
    for round in 0..10 {
        let (a, b) = (list(&format!("team:{round}")), list(&format!("match:{round}")));
        let (first, second) =
            tokio::join!(server.send("PUT", SUBSCRIPTIONS, a.clone()), server.send("PUT", SUBSCRIPTIONS, b.clone()));
        assert_eq!((first.status, second.status), (StatusCode::OK, StatusCode::OK));
        let found = server.send("GET", SUBSCRIPTIONS, "").await.body;
        assert!(found == a || found == b, "{found}");
    }
}

#[tokio::test]
async fn devices_are_listed_in_the_order_of_their_ids_page_by_page() {
    let server = Server::start();
    assert_eq!(server.send("GET", "/v1/devices", "").await.body, r#"{"devices":[]}"#);
    for (index, id) in ["b", "a%2F1", "c", "a"].into_iter().enumerate() {
        let device = phone_with(json!({"token": format!("00000000000000{index:02}"), "user": "ann"}));
        server.send("PUT", &format!("/v1/devices/{id}"), device).await;
    }
    let first = server.send("GET", "/v1/devices?limit=2", "").await.json();
    let device = json!({
        "id": "a", "platform": "ios", "app": "com.example.scores", "environment": "production", "token": "…0003",
        "push_permission": "unknown", "locale": "pt-BR", "user": "ann", "seen_at": today(),
    });
    assert_eq!((&first["devices"][0], &first["next"]), (&device, &json!("a/1")));
    let second = server.send("GET", "/v1/devices?limit=2&after=a%2F1", "").await.json();
    let ids = |page: &Value| -> Vec<String> {
        page["devices"].as_array().unwrap().iter().map(|device| device["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!((ids(&first), ids(&second)), (vec!["a".into(), "a/1".into()], vec!["b".into(), "c".into()]));
    assert!(second.get("next").is_none(), "a full last page says that it is the last: {second}");
    let wrong = server.send("GET", "/v1/devices?after=a%20b", "").await;
    assert_eq!(wrong.detail(), "after: device id must be 1 to 128 visible ASCII characters, got \"a b\"");
}

#[tokio::test]
async fn a_new_credential_ends_the_old_one_and_what_it_has_proven() {
    let server = Server::start();
    let id = DeviceId::new("phone-1").unwrap();
    let created = server.send("PUT", PHONE, phone_with(json!({"user": "ann"}))).await.json();
    let number = server.store.device_number(&id).unwrap().unwrap();
    let rotated = server.post("/v1/devices/phone-1/credential", "").await;
    assert_eq!((rotated.status, &rotated.headers["cache-control"]), (StatusCode::OK, &"no-store".parse().unwrap()));
    let (old, new) = (created["credential"].as_str().unwrap(), rotated.json());
    assert_eq!(new.as_object().unwrap().len(), 1, "{new}");
    let new = new["credential"].as_str().unwrap();
    let proves = |credential: &str| server.store.prove(&id, Some(credential)).unwrap();
    assert_eq!((proves(old), proves(new)), (None, Some(number)));
    assert_eq!(server.revoked.take(), [(number, false)]);
    assert_eq!(server.send("GET", PHONE, "").await.json()["user"], "ann", "nothing else has changed");

    server.send("DELETE", PHONE, "").await;
    assert_eq!(server.revoked.take(), [(number, false)], "who is forgotten has no proof either");
    for path in ["credential", "logout"] {
        let absent = server.post(&format!("{PHONE}/{path}"), "").await;
        assert_eq!(
            (absent.status, absent.detail()),
            (StatusCode::NOT_FOUND, "device phone-1 is not registered".into())
        );
    }
    assert_eq!(server.revoked.take(), []);
}

/// What is asked of the store is done although nobody waits for the answer; so is what follows from it.
#[tokio::test]
async fn a_caller_that_hangs_up_leaves_no_connection_with_a_proof_of_before() {
    let server = Server::start();
    server.send("PUT", PHONE, phone_with(json!({"user": "ann"}))).await;
    let number = server.store.device_number(&DeviceId::new("phone-1").unwrap()).unwrap().unwrap();
    for (method, path, close) in [("POST", "/credential", false), ("POST", "/logout", true), ("DELETE", "", false)] {
        // Once to read its number, and once to change it.
        poll_and_drop(2, server.send(method, &format!("{PHONE}{path}"), "")).await;
        assert_eq!(server.revoked.take(), [(number, close)], "{path}");
    }
}

#[tokio::test]
async fn a_device_that_is_logged_out_is_nobodys_and_its_connections_end() {
    let server = Server::start();
    let id = DeviceId::new("phone-1").unwrap();
    let created = server.send("PUT", PHONE, phone_with(json!({"user": "ann"}))).await.json();
    let list = json!({"subscriptions": [{"subject": "team:1", "topics": ["goal"]}]});
    server.send("PUT", SUBSCRIPTIONS, list.to_string()).await;
    let number = server.store.device_number(&id).unwrap().unwrap();
    let out = server.post("/v1/devices/phone-1/logout", "").await;
    assert_eq!((out.status, &out.headers["cache-control"]), (StatusCode::OK, &"no-store".parse().unwrap()));
    assert_eq!(server.revoked.take(), [(number, true)]);
    let credential = out.json()["credential"].as_str().unwrap().to_owned();
    let proves = |credential: &str| server.store.prove(&id, Some(credential)).unwrap();
    assert_eq!((proves(created["credential"].as_str().unwrap()), proves(&credential)), (None, Some(number)));
    let left = server.send("GET", PHONE, "").await.json();
    assert_eq!((left.get("user"), &left["token"]), (None, &json!("…8899")), "its address stays");
    assert_eq!(server.send("GET", SUBSCRIPTIONS, "").await.body, r#"{"subscriptions":[]}"#);
}

#[derive(Debug, Clone)]
enum Step {
    Put(Vec<(u8, u8)>),
    Post(Vec<(u8, u8)>),
    Delete(u8, Option<u8>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pair = || prop::collection::vec((0..3_u8, 0..3_u8), 0..6);
    let step = prop_oneof![
        pair().prop_map(Step::Put),
        pair().prop_map(Step::Post),
        (0..3_u8, prop::option::of(0..3_u8)).prop_map(|(subject, topic)| Step::Delete(subject, topic)),
    ];
    prop::collection::vec(step, 1..12)
}

fn list(pairs: &[(u8, u8)]) -> String {
    let item =
        |(subject, topic): &(u8, u8)| json!({"subject": format!("team:{subject}"), "topics": [format!("t{topic}")]});
    json!({"subscriptions": pairs.iter().map(item).collect::<Vec<_>>()}).to_string()
}

/// The device's subscriptions against a plain set, with everything the API answers about the changes.
#[test]
fn subscriptions_behave_as_a_bounded_set() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(async { Server::start() });
    let mut runner = TestRunner::new(Config { cases: 16, ..Config::with_source_file(file!()) });
    let run = |steps: Vec<Step>| {
        runtime.block_on(async {
            server.send("DELETE", PHONE, "").await;
            server.send("PUT", PHONE, phone().to_string()).await;
            let mut model: BTreeSet<(u8, u8)> = BTreeSet::new();
            for step in steps {
                let mut next = model.clone();
                let answer = match &step {
                    Step::Put(pairs) => {
                        next = pairs.iter().copied().collect();
                        server.send("PUT", SUBSCRIPTIONS, list(pairs)).await
                    }
                    Step::Post(pairs) => {
                        next.extend(pairs);
                        server.post(SUBSCRIPTIONS, list(pairs)).await
                    }
                    Step::Delete(subject, topic) => {
                        next.retain(|pair| pair.0 != *subject || topic.is_some_and(|topic| pair.1 != topic));
                        let topic = topic.map_or(String::new(), |topic| format!("&topic=t{topic}"));
                        server.send("DELETE", &format!("{SUBSCRIPTIONS}?subject=team:{subject}{topic}"), "").await
                    }
                };
                if next.len() > SUBSCRIPTION_COUNT_MAX {
                    assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{step:?}");
                } else {
                    let (added, removed) = (next.difference(&model).count(), model.difference(&next).count());
                    assert_eq!(answer.json(), json!({"added": added, "removed": removed}), "{step:?} on {model:?}");
                    model = next;
                }
                let listed = server.send("GET", SUBSCRIPTIONS, "").await.json();
                let pairs: BTreeSet<String> = listed["subscriptions"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .flat_map(|item| {
                        let subject = item["subject"].as_str().unwrap();
                        item["topics"]
                            .as_array()
                            .unwrap()
                            .iter()
                            .map(move |topic| format!("{subject} {}", topic.as_str().unwrap()))
                    })
                    .collect();
                let expected = model.iter().map(|(subject, topic)| format!("team:{subject} t{topic}"));
                assert_eq!(pairs, expected.collect::<BTreeSet<String>>(), "{step:?}");
            }
        });
        Ok(())
    };
    runner.run(&steps(), run).unwrap();
}

#[tokio::test]
async fn a_device_is_proven_as_long_as_it_keeps_the_token_that_was_said_to_work() {
    let server = Server::start();
    let cases = Cases::default();
    let is_proven = || {
        let number = server.store.device_number(&DeviceId::new("phone-1").unwrap()).unwrap().unwrap();
        let mut proven = false;
        server.store.with_recipients(&[number], |recipient| proven = recipient.proven);
        proven
    };
    for (name, token, proven, expected) in [
        ("a new one", "aa", None, false),
        ("it is said to work", "aa", Some(true), true),
        ("the same without a word", "aa", None, true),
        ("another token", "bb", None, false),
        ("another that is said to work", "cc", Some(true), true),
        ("the same, doubted", "cc", Some(false), false),
        ("the same, doubted, without a word", "cc", None, false),
        ("again", "cc", Some(true), true),
        ("another, doubted", "dd", Some(false), false),
    ] {
        let mut body = json!({"platform": "ios", "token": token, "app": "a", "locale": "en"});
        if let Some(proven) = proven {
            body["proven"] = json!(proven);
        }
        let put = server.send_with("PUT", PHONE, &[("x-api-key", "devices")], body.to_string()).await;
        cases.check(name, (put.status.is_success(), is_proven()), (true, expected));
    }
    let body = json!({"platform": "ios", "token": "dd", "app": "a", "locale": "en", "proven": "yes"});
    let refused = server.send("PUT", PHONE, body.to_string()).await;
    let expected = (400, "proven: must be true or false, got text".to_owned());
    assert_eq!((refused.status.as_u16(), refused.detail()), expected);
    let body = json!({"platform": "ios", "token": "dd", "app": "a", "locale": "en", "proven": true});
    let refused = server.send_with("PUT", PHONE, &[("x-api-key", "publish")], body.to_string()).await;
    assert_eq!((refused.status, is_proven()), (StatusCode::FORBIDDEN, false), "not everybody is believed");
}
