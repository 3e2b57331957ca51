//! Who is let in, and as whom.

use std::net::IpAddr;

use tidings_console::{ConsoleConfig, Role};

use crate::told::{Browser, OPERATOR_KEY, VIEWER_KEY, config};

const PAGES: [&str; 9] = [
    "/console",
    "/console/events",
    "/console/why",
    "/console/providers",
    "/console/audience",
    "/console/channels",
    "/console/texts",
    "/console/feeds",
    "/console/system",
];

#[tokio::test]
async fn nobody_sees_anything_before_logging_in() {
    let browser = Browser::start();
    for path in PAGES.into_iter().chain(["/console/events/goal-1", "/console/channels/match%3A1", "/console/samples"]) {
        let page = browser.get(path).await;
        assert_eq!(page.status, 303, "{path}");
        assert!(page.header("location").starts_with("/console/login?next=%2Fconsole"), "{path}: {:?}", page.headers);
        let (status, told) = browser.json(path).await;
        assert_eq!((status, &told["type"]), (401, &"urn:tidings:problem:unauthorized".into()), "{path}");
        let part = browser.get_with(path, &[("hx-request", "true")]).await;
        let to = part.header("hx-redirect");
        assert!(part.status == 401 && to.starts_with("/console/login?next=%2Fconsole"), "{path}: {part:?}");
    }
    assert_eq!(browser.post("/console/act/pause", &[("scope", "everything")]).await.status, 303);
    assert!(browser.told.calls.lock().unwrap().is_empty(), "the API was not asked");
}

#[tokio::test]
async fn a_key_opens_the_console_and_logging_out_closes_it() {
    let mut browser = Browser::start();
    let wrong = browser.log_in("no key at all").await;
    assert_eq!((wrong.status, wrong.header("set-cookie")), (401, ""));
    assert!(wrong.text.contains("This is no API key of this server"));
    let right = browser.log_in(OPERATOR_KEY).await;
    assert_eq!((right.status, right.header("location")), (303, "/console"));
    let cookie = right.header("set-cookie");
    for part in ["; Path=/console", "; HttpOnly", "; SameSite=Strict", "; Max-Age=3600"] {
        assert!(cookie.contains(part), "{part} in {cookie}");
    }
    assert!(!cookie.contains("Secure") && !cookie.contains(OPERATOR_KEY), "{cookie}");
    let page = browser.get("/console").await;
    assert_eq!(page.status, 200);
    assert!(page.text.contains("operator"));
    assert_eq!(browser.post("/console/logout", &[("token", "guessed")]).await.status, 403);
    assert_eq!(browser.get("/console").await.status, 200, "another site cannot log somebody out");
    assert_eq!(browser.post("/console/logout", &[("token", &page.token())]).await.status, 303);
    assert_eq!(browser.get("/console").await.status, 303);
}

#[tokio::test]
async fn a_login_is_only_for_https_if_it_came_over_https() {
    let browser = Browser::start();
    let form = [("key", OPERATOR_KEY)];
    let page = browser.post_from("https://console.example", "/console/login", &form).await;
    assert!(page.header("set-cookie").ends_with("; Secure"), "{:?}", page.headers);
}

#[tokio::test]
async fn another_site_cannot_log_anybody_in() {
    let browser = Browser::start();
    for origin in ["https://evil.example", "null", "", "http://console.example.evil.example", "console.example"] {
        let page = browser.post_from(origin, "/console/login", &[("key", OPERATOR_KEY)]).await;
        assert_eq!((page.status, page.header("set-cookie")), (403, ""), "{origin}");
    }
}

#[tokio::test]
async fn one_login_too_many_ends_the_quietest() {
    let mut browsers = Vec::new();
    let first = Browser::start();
    for _ in 0..5 {
        let mut browser = first.another();
        browser.log_in(VIEWER_KEY).await;
        browsers.push(browser);
    }
    let mut statuses = Vec::new();
    for browser in &browsers {
        statuses.push(browser.get("/console").await.status);
    }
    assert_eq!(statuses, [303, 200, 200, 200, 200]);
}

#[tokio::test]
async fn a_proxy_says_who_it_is_and_nobody_else_does() {
    let settings = ConsoleConfig {
        user_header: Some("x-forwarded-user".parse().unwrap()),
        role_header: Some("x-forwarded-role".parse().unwrap()),
        trusted_proxies: vec![IpAddr::from([10, 0, 0, 2])],
        ..config()
    };
    let browser = Browser::start_with(settings.clone());
    let ann = [("x-forwarded-user", "ann"), ("x-forwarded-role", "operator")];
    let page = browser.get_from([10, 0, 0, 2], "/console", &ann).await;
    assert!(page.status == 200 && page.text.contains("ann <span class=\"role\">operator"), "{}", page.text);
    for role in ["viewer", "OPERATOR", "root", ""] {
        let page = browser.get_from([10, 0, 0, 2], "/console", &[ann[0], ("x-forwarded-role", role)]).await;
        assert!(page.text.contains("<span class=\"role\">viewer"), "{role}: what is no role gives the least");
    }
    assert_eq!(browser.get_from([10, 0, 0, 2], "/console", &[]).await.status, 303, "the proxy names nobody");
    assert_eq!(browser.get_from([10, 0, 0, 2], "/console", &[("x-forwarded-user", "")]).await.status, 303);
    for peer in [[10, 0, 0, 3], [127, 0, 0, 1]] {
        assert_eq!(browser.get_from(peer, "/console", &ann).await.status, 303, "{peer:?}");
    }
    let calls = browser.told.calls.lock().unwrap().iter().map(|(user, ..)| user.clone()).collect::<Vec<_>>();
    assert!(calls.iter().all(|user| user == "ann"));
    let private = Browser::start_with(ConsoleConfig { trusts_loopback: true, ..settings });
    assert_eq!(private.get_from([127, 0, 0, 1], "/console", &ann).await.status, 200);
    assert_eq!(private.get_from([10, 0, 0, 3], "/console", &ann).await.status, 303);
    let off = Browser::start_with(ConsoleConfig { trusts_loopback: true, role_default: Role::Operator, ..config() });
    assert_eq!(off.get_from([127, 0, 0, 1], "/console", &ann).await.status, 303, "without console.user_header");
}
