//! Answers that are no pages of the menu: the way to the login, a refusal, and JSON.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION};
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde_json::Value;

use crate::html::{Frame, page};
use crate::ports::Answer;
use crate::words::encoded;

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Page,
    /// The live part of a page.
    Part,
    Json,
}

/// A page, with its status.
pub(crate) fn document(status: StatusCode, markup: Markup) -> Response {
    (status, [(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"))], markup.into_string())
        .into_response()
}

/// JSON, with its status.
pub(crate) fn json(status: StatusCode, value: &Value) -> Response {
    (status, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], value.to_string()).into_response()
}

/// To another page, with GET.
pub(crate) fn see(address: &str) -> Response {
    let address = HeaderValue::from_str(address).unwrap_or(HeaderValue::from_static("/console"));
    (StatusCode::SEE_OTHER, [(LOCATION, address)]).into_response()
}

/// Nobody is logged in: to the login, and back from there.
pub(crate) fn log_in(wanted: Wanted, uri: &Uri) -> Response {
    let back = uri.path_and_query().map_or("/console", |path| path.as_str());
    let login = format!("/console/login?next={}", encoded(back));
    match wanted {
        Wanted::Page => see(&login),
        Wanted::Part => (StatusCode::UNAUTHORIZED, [(HeaderName::from_static("hx-redirect"), login)]).into_response(),
        Wanted::Json => {
            let answer = Answer::refused(StatusCode::UNAUTHORIZED, "unauthorized", "log in at /console/login");
            json(answer.status, &answer.body)
        }
    }
}

/// A page that says what was not done, and why.
pub(crate) fn refused(status: StatusCode, why: &str) -> Response {
    let frame =
        Frame { title: "Nothing was done", screen: None, caller: None, token: "", json: None, has_charts: false };
    let body = html! {
        p { (why) }
        p { a href="/console" { "To the first page" } }
    };
    document(status, page(&frame, &body))
}

/// Headers of every answer of the console.
pub(crate) fn headers() -> [(HeaderName, HeaderValue); 6] {
    const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                          form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
    [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        // The browser must send the origin of our own forms, and nothing to others.
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        (CACHE_CONTROL.as_str(), "no-store"),
    ]
    .map(|(name, value)| (name.parse().expect("a header"), HeaderValue::from_static(value)))
}

/// The page to go on to: one of ours, else the first.
pub(crate) fn own_page(next: &str) -> &str {
    let is_own = next == "/console" || next.starts_with("/console/") || next.starts_with("/console?");
    let is_plain = next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    // These have no page.
    let is_action =
        ["/console/login", "/console/logout", "/console/act/"].iter().any(|action| next.starts_with(action));
    if is_own && is_plain && !is_action { next } else { "/console" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_goes_on_to_a_page_of_the_console_only() {
        for next in ["/console", "/console/events?state=running", "/console?x=1"] {
            assert_eq!(own_page(next), next);
        }
        for next in [
            "",
            "//evil.example/console",
            "https://evil.example",
            "/consolex",
            "/console/\r\nx",
            "/console/login",
            "/console/act/pause",
            "/v1/jobs",
        ] {
            assert_eq!(own_page(next), "/console", "{next:?}");
        }
    }
}
