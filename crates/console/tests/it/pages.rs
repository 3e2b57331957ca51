//! What pages look like: the same as JSON, nothing inline, nothing unescaped, and not large.

use serde_json::{Value, json};

use crate::told::{Browser, OPERATOR_KEY, Page, job};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

const PATHS: [&str; 14] = [
    "/console",
    "/console/events",
    "/console/events?state=running",
    "/console/events/goal-1",
    "/console/why",
    "/console/why?user=u-1",
    "/console/why?device=phone-1&event=goal-1",
    "/console/providers",
    "/console/audience?selector=goal%20on%20team%3A42",
    "/console/channels",
    "/console/channels/match%3A1",
    "/console/texts",
    "/console/feeds",
    "/console/system",
];

/// An API that has something to tell of everything.
pub(crate) async fn full() -> Browser {
    let browser = Browser::logged_in(OPERATOR_KEY).await;
    let tell = |name: &str, body: Value| browser.told.tell(name, body);
    let at = "2026-11-27T04:00:00Z";
    tell(
        "GET /v1/jobs",
        json!({"jobs": [job("goal-1", "running", 100, 50), job("goal-0", "finished", 100, 94)], "next": 5}),
    );
    let mut event = job("goal-1", "running", 100, 50);
    event["channels"] = json!([{"channel": "match:1", "offset": 3, "epoch": "e"}]);
    event["receipts"] = json!({"written": 5, "received": 3});
    tell("GET /v1/events/goal-1", event);
    tell(
        "GET /v1/events",
        json!({"events": [{"id": "later-1", "topic": "goal", "accepted_at": at, "state": "scheduled", "at": at}]}),
    );
    tell("GET /v1/brakes", json!({"brakes": [{"scope": "topic:card", "paused_at": at}]}));
    tell(
        "GET /v1/users/u-1/devices",
        json!({"devices": [{"id": "phone-1", "platform": "ios", "app": "a", "locale": "pl"}]}),
    );
    tell(
        "GET /v1/devices/phone-1",
        json!({"id": "phone-1", "platform": "ios", "app": "com.example.app", "environment": "production",
        "token": "…00a1", "push_permission": "granted", "locale": "pl", "user": "u-1"}),
    );
    tell(
        "GET /v1/devices/phone-1/subscriptions",
        json!({"subscriptions": [{"subject": "team:42", "topics": ["goal", "card"]}]}),
    );
    tell("GET /v1/devices/phone-1/mutes", json!({"mutes": [{"scope": "team:7", "until": at}]}));
    tell(
        "GET /v1/events/goal-1/devices/phone-1",
        json!({"event": "goal-1", "topic": "goal", "device": "phone-1", "app": "com.example.app", "verdict": "suppressed",
            "reason": "no_token", "summary": "the device has no push token", "selected": true,
            "steps": [{"step": "selected", "at": at, "until": at, "text": "the device was in the audience"}],
            "because": ["its token was gone"], "unknown": ["whether its app was connected"]}),
    );
    tell(
        "GET /v1/devices/phone-1/events",
        json!({"device": "phone-1", "events": [{"event": "goal-1", "topic": "goal", "position": 7, "accepted_at": at,
            "verdict": "suppressed", "reason": "no_token", "summary": "the device has no push token"}]}),
    );
    tell(
        "GET /v1/audit",
        json!({"entries": [{"id": "1", "at": at, "by": "key", "who": "ann", "action": "brake.set", "ids": ["topic:goal"],
            "result": 201}]}),
    );
    tell(
        "GET /v1/providers",
        json!({"providers": [{"provider": "apns", "name": "main", "status": "breaker_open", "since": at, "pools": [
        {"name": "main", "connections": 3, "streams": 10, "streams_allowed": 300, "waiting": 7, "outcomes": {"accepted": 50, "rejected": 2},
         "rejected": {"Unregistered": 2}, "repeats": 1, "pauses": 0, "connect_failures": 4, "goaways": 0, "credential_refused": 0,
         "round_trip_p50_ms": 20, "round_trip_p99_ms": 90}]}]}),
    );
    tell(
        "POST /v1/audience/explain",
        json!({"selector": "goal on team:42", "devices": 12, "unmuted": 90, "of": 100,
        "tree": {"text": "goal on team:42", "devices": 12}}),
    );
    tell(
        "POST /v1/audience/preview",
        json!({"total": 12, "by_platform": {"ios": 8, "android": 4}, "by_locale": {"pl": 12}, "by_country": {},
        "by_app": {"com.example.app": 12}, "estimate": [{"provider": "apns", "pool": "main", "devices": 8}], "sample": ["phone-1"]}),
    );
    tell("POST /api/channels", json!({"result": {"channels": {"match:1": {"num_clients": 3}}}}));
    tell(
        "POST /api/info",
        json!({"result": {"nodes": [{"num_clients": 5, "num_users": 4, "num_channels": 2, "num_subs": 9}]}}),
    );
    tell(
        "POST /api/history",
        json!({"result": {"publications": [{"data": {"secret": "42"}, "offset": 3}], "epoch": "e", "offset": 3}}),
    );
    tell("POST /api/presence", json!({"result": {"presence": {"c-1": {"client": "c-1", "user": "u-1"}}}}));
    tell(
        "GET /v1/texts",
        json!({"topics": 4, "languages": ["pl"], "since": at, "can_roll_back": true, "faults": ["goal: no body"],
        "coverage": [{"locale": "pl", "translated": 3, "missing": ["card"]}]}),
    );
    tell(
        "GET /v1/feeds",
        json!({"feeds": [{"name": "news", "kind": "rss", "how": "polled", "state": "failing", "known": 7, "failures": 2,
        "error": "503", "last": {"sent": 1, "repeated": 0, "skipped": 0, "wrong": 0}, "total": {"sent": 1, "repeated": 0, "skipped": 0, "wrong": 1},
        "errors": [{"place": "line 3", "reason": "no title"}]}]}),
    );
    tell(
        "GET /v1/system",
        json!({"version": "1.2.3", "node": "n", "uptime_seconds": 4000,
        "listeners": [{"name": "public", "address": "127.0.0.1:8000"}],
        "clients": {"connections": 5, "users": 4, "channels": 2, "subscriptions": 9, "slow_closed": 1},
        "store": {"status": "refuses_writes", "devices": 100, "subscriptions": 200, "batches": 5, "requests": 9, "checkpoints": 1, "checkpoints_failed": 0},
        "process": {"resident_bytes": 104_857_600, "cpu_seconds": 12, "threads": 20, "open_files": 50, "open_files_max": 1024},
        "memory": [{"name": "jobs", "bytes": 1_048_576, "is_peak": true, "settings": "sender.job_count_max"}],
        "disk": {"free_bytes": 1_073_741_824, "total_bytes": 107_374_182_400_u64}}),
    );
    browser
}

fn check(path: &str, page: &Page) {
    assert_eq!(page.header("content-security-policy"), POLICY, "{path}");
    assert_eq!(page.header("cache-control"), "no-store", "{path}");
    assert_eq!(page.header("x-content-type-options"), "nosniff", "{path}");
    let text = &page.text;
    assert!(text.starts_with("<!DOCTYPE html><html lang=\"en\">"), "{path}: {text}");
    assert_eq!(text.matches("<h1>").count(), 1, "{path}");
    for inline in [" style=", "<style", "<script>", " onclick=", " onload=", "javascript:", "hx-on", "js:"] {
        assert!(!text.contains(inline), "{path} has {inline}");
    }
    // Filters of triggers would be evaluated as script.
    assert!(!text.split("hx-trigger=\"").skip(1).any(|rest| rest.split('"').next().unwrap().contains('[')), "{path}");
    let forms = text.matches("method=\"post\"").count();
    assert_eq!(text.matches("name=\"token\"").count(), forms, "{path}: each form that is posted has a token");
}

#[tokio::test]
async fn every_page_is_strict_about_itself_with_data_without_and_with_refusals() {
    let refusing = Browser::logged_in(OPERATOR_KEY).await;
    for (browser, name) in [(full().await, "full"), (refusing, "refusing")] {
        for path in PATHS {
            let page = browser.get(path).await;
            assert!(page.status == 200 || name == "refusing", "{name} {path}: {}", page.status);
            check(path, &page);
        }
    }
    check("/console/login", &browser_login().await);
    let nowhere = Browser::start().get("/console/nowhere").await;
    assert_eq!(nowhere.status, 404);
    check("/console/nowhere", &nowhere);
}

async fn browser_login() -> Page {
    let mut page = Browser::start().get("/console/login?next=/console/feeds").await;
    assert!(page.text.contains("name=\"next\" value=\"/console/feeds\""));
    // Nobody is logged in yet, so this form has no token; its origin is checked.
    page.text = page.text.replace("<input type=\"hidden\" name=\"next\"", "<input type=\"hidden\" name=\"token\"");
    page
}

#[tokio::test]
async fn a_page_and_its_json_tell_the_same() {
    let browser = full().await;
    for path in PATHS {
        let (status, data) = browser.json(path).await;
        assert!(status == 200 && data.is_object(), "{path}: {status} {data}");
        let mark = if path.contains('?') { '&' } else { '?' };
        let asked = browser.get(&format!("{path}{mark}format=json")).await;
        assert_eq!(asked.header("content-type"), "application/json", "{path}");
    }
    let (_, data) = browser.json("/console/events/goal-1").await;
    assert_eq!(data["event"]["outcomes"]["accepted"], 50, "what the API answered");
    let (_, data) = browser.json("/console/events").await;
    assert_eq!(data["jobs"]["jobs"].as_array().unwrap().len(), 2);
    let (status, data) = browser.json("/console/events/unknown").await;
    assert_eq!((status, &data["event"]["type"]), (404, &json!("urn:tidings:problem:not-found")));
    assert_eq!(browser.get("/console/events/unknown").await.status, 404);
}

#[tokio::test]
async fn the_live_part_comes_without_its_frame() {
    let browser = full().await;
    let whole = browser.get("/console").await.text;
    assert!(whole.contains("hx-get=\"/console\" hx-trigger=\"every 2s\""), "{whole}");
    let part = browser.get_with("/console", &[("hx-request", "true"), ("accept", "text/html")]).await.text;
    assert!(!part.contains("<html") && part.contains("class=\"tiles\""), "{part}");
    assert!(!browser.get("/console/texts").await.text.contains("hx-get"), "a page that does not change by itself");
}

#[tokio::test]
async fn what_an_operator_must_see_is_there() {
    let browser = full().await;
    for (path, words) in [
        ("/console", &["topic:card", "Resume topic:card", "goal-1", "Events", "1 open of the newest 200"][..]),
        ("/console/events/goal-1", &["Cancel this event", "Unregistered: 2", "match:1"]),
        (
            "/console/why?device=phone-1&event=goal-1",
            &["…00a1", "team:42", "goal, card", "Send a test", "Dry run", "Suppressed: no token", "its token was gone"],
        ),
        ("/console/providers", &["Breaker open", "Unregistered", "10 of 300"]),
        ("/console/audience?selector=goal%20on%20team%3A42", &["12", "android", "phone-1", "goal on team:42"]),
        ("/console/channels", &["match:1", "Readers"]),
        ("/console/texts", &["goal: no body", "3 of 4", "card", "Back to the texts before"]),
        ("/console/feeds", &["2 failures in a row", "Read it now", "no title"]),
        (
            "/console/system",
            &["The store refuses writes", "The disk is nearly full", "sender.job_count_max", "brake.set"],
        ),
    ] {
        let page = browser.get(path).await.text;
        for word in words {
            assert!(page.contains(word), "{path} lacks {word}: {page}");
        }
    }
}

#[tokio::test]
async fn a_certificate_that_ends_soon_is_an_alarm() {
    let browser = Browser::logged_in(OPERATOR_KEY).await;
    let page = async |left: Value| {
        let pool = json!({"name": "main", "credential_ends_in_seconds": left});
        let provider = json!({"provider": "apns", "name": "main", "status": "connected", "pools": [pool]});
        browser.told.tell("GET /v1/providers", json!({"providers": [provider]}));
        let (_, data) = browser.json("/console/providers").await;
        assert_eq!(data["providers"]["providers"][0]["pools"][0]["credential_ends_in_seconds"], left);
        browser.get("/console/providers").await.text.replace('\u{202f}', " ")
    };
    let far = page(json!(90 * 86_400)).await;
    assert!(far.contains("The certificate of main ends in 90 d.") && !far.contains("role=\"alert\""), "{far}");
    let near = page(json!(6 * 86_400 + 7200)).await;
    assert!(near.contains("ends in 6 d 2 h.") && near.contains("role=\"alert\""), "{near}");
    let over = page(json!(0)).await;
    assert!(over.contains("The certificate of main has ended.") && over.contains("role=\"alert\""), "{over}");
    let none = page(Value::Null).await;
    assert!(!none.contains("certificate"), "a key does not end: {none}");
}

#[tokio::test]
async fn where_nothing_is_a_page_says_what_to_do() {
    let browser = Browser::logged_in(OPERATOR_KEY).await;
    let tell = |name: &str, body: Value| browser.told.tell(name, body);
    tell("GET /v1/jobs", json!({"jobs": []}));
    tell("GET /v1/providers", json!({"providers": []}));
    tell("GET /v1/feeds", json!({"feeds": []}));
    tell("GET /v1/texts", json!({"topics": 0, "languages": [], "coverage": [], "can_roll_back": false, "faults": []}));
    tell("POST /api/channels", json!({"result": {"channels": {}}}));
    tell("POST /api/info", json!({"result": {"nodes": []}}));
    for (path, words) in [
        ("/console", "curl -H"),
        ("/console/providers", "tidings simulate apns"),
        ("/console/feeds", "[feeds.news]"),
        ("/console/texts", "[topics.goal]"),
        ("/console/channels", "tidings subscribe"),
        ("/console/why", "Which device?"),
        ("/console/audience", "Write a selector"),
    ] {
        assert!(browser.get(path).await.text.contains(words), "{path} lacks {words}");
    }
}

#[tokio::test]
async fn what_others_have_written_stays_text() {
    let browser = Browser::logged_in(OPERATOR_KEY).await;
    let evil = "<script>alert(1)</script>\"'";
    let mut event = job(evil, "running", 10, 1);
    event["topic"] = evil.into();
    event["channels"] = json!([{"channel": evil, "offset": 1, "epoch": evil}]);
    browser.told.tell("GET /v1/jobs", json!({"jobs": [event]}));
    browser.told.tell("POST /api/channels", json!({"result": {"channels": {evil: {"num_clients": 1}}}}));
    for path in [
        "/console",
        "/console/events",
        "/console/channels",
        "/console/why?device=%3Cscript%3Ealert(1)%3C/script%3E",
        "/console/audience?selector=%22%3E%3Cscript%3E",
    ] {
        let page = browser.get(path).await.text;
        assert!(!page.contains("<script>alert") && !page.contains("\"><script>"), "{path}: {page}");
    }
}

#[tokio::test]
async fn what_a_channel_says_is_shown_only_to_who_asks() {
    let browser = full().await;
    let path = "/console/channels/match%3A1";
    assert!(!browser.get(path).await.text.contains("secret"));
    assert!(!browser.json(path).await.1.to_string().contains("secret"));
    assert!(browser.get(&format!("{path}?payloads=show")).await.text.contains("secret"));
    let now = tidings_telemetry::unix_now().0;
    let tapped = |until: u64| format!("{path}?tap={until}");
    assert!(browser.get(&tapped(now + 50_000)).await.text.contains("hx-get"));
    for until in [0, now - 10_000, now + 10_000_000, u64::MAX] {
        assert!(!browser.get(&tapped(until)).await.text.contains("hx-get"), "{until}: a tap is open for a minute");
    }
}

/// Everything that a browser fetches for the first page is at most 100 KB, as it is sent to a browser that takes gzip.
#[tokio::test]
async fn the_first_page_is_small() {
    const BYTES_MAX: usize = 100_000;
    let browser = full().await;
    let jobs: Vec<Value> = (0..200).map(|index| job(&format!("goal-{index}"), "running", 1000, index)).collect();
    browser.told.tell("GET /v1/jobs", json!({"jobs": jobs}));
    let page = browser.get("/console").await;
    let mut sizes = vec![("/console".to_owned(), page.bytes.len())];
    let links = page.text.split(['"']).filter(|word| word.starts_with("/console/assets/")).map(str::to_owned);
    for link in links.chain(["/console/samples".to_owned()]) {
        let packed = browser.get_with(&link, &[("accept-encoding", "gzip, br")]).await;
        assert_eq!(packed.status, 200, "{link}");
        if link != "/console/samples" {
            assert_eq!(packed.header("content-encoding"), "gzip", "{link}");
            assert!(packed.header("cache-control").contains("immutable"), "{link}");
            let plain = browser.get_with(&link, &[]).await;
            assert!(plain.header("content-encoding").is_empty() && plain.bytes.len() >= packed.bytes.len(), "{link}");
        }
        sizes.push((link, packed.bytes.len()));
    }
    assert_eq!(sizes.len(), 7, "{sizes:?}");
    let sum: usize = sizes.iter().map(|(_, size)| size).sum();
    assert!(sum <= BYTES_MAX, "{sum} bytes: {sizes:?}");
}
