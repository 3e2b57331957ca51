//! Logging in with an API key, and out.
//!
//! The key is used once, to find its holder, and is not kept. Keys are too long to be guessed, so tries are not counted.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::html;
use tokio::time::Instant;

use crate::answers::{document, own_page, refused, see};
use crate::html::{Frame, page as framed};
use crate::visit::{COOKIE_NAME, Shared, Visit, Words, check_origin, check_token, is_secure};

pub(crate) async fn page(RawQuery(query): RawQuery) -> Response {
    let query = Words::read(query.unwrap_or_default().as_bytes());
    form(StatusCode::OK, query.get("next"), "")
}

fn form(status: StatusCode, next: &str, wrong: &str) -> Response {
    let frame = Frame { title: "Log in", screen: None, caller: None, token: "", json: None, has_charts: false };
    let body = html! {
        form .login method="post" action="/console/login" {
            input type="hidden" name="next" value=(next);
            // For password managers, which keep a key under a name.
            input .unseen type="text" name="username" value="tidings" autocomplete="username" tabindex="-1" aria-hidden="true" readonly;
            label {
                span { "API key" }
                input #key type="password" name="key" required autofocus autocomplete="current-password"
                    aria-describedby="hint" aria-invalid=[(!wrong.is_empty()).then_some("true")];
            }
            @if !wrong.is_empty() {
                p .note.alarm role="alert" { (wrong) }
            }
            button { "Log in" }
        }
        p #hint .muted {
            "The key decides what you may see and do. Without " code { "[[api.keys]]" } ", the server has made one: "
            code { "DATA_DIR/api-key" } "."
        }
    };
    document(status, framed(&frame, &body))
}

pub(crate) async fn log_in(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    if let Err(why) = check_origin(&headers) {
        return refused(StatusCode::FORBIDDEN, why);
    }
    let words = Words::read(&body);
    let next = words.get("next");
    let Some(caller) = shared.api.holder(words.get("key")) else {
        return form(StatusCode::UNAUTHORIZED, next, "This is no API key of this server.");
    };
    let id = shared.sessions.begin(caller, Instant::now());
    let seconds = shared.config.session_ttl.as_secs();
    let cookie = cookie(&id, seconds, is_secure(&headers));
    let mut response = see(own_page(next));
    response.headers_mut().insert(SET_COOKIE, cookie);
    response
}

pub(crate) async fn log_out(visit: Visit, headers: HeaderMap, body: Bytes) -> Response {
    let checked = check_origin(&headers).and_then(|()| check_token(&visit, &Words::read(&body)));
    if let Err(why) = checked {
        return refused(StatusCode::FORBIDDEN, why);
    }
    if let Some(id) = &visit.session {
        visit.shared.sessions.end(id);
    }
    let mut response = see("/console/login").into_response();
    response.headers_mut().insert(SET_COOKIE, cookie("", 0, is_secure(&headers)));
    response
}

/// No script can read it, and no other site makes the browser send it.
fn cookie(id: &str, seconds: u64, is_secure: bool) -> HeaderValue {
    let secure = if is_secure { "; Secure" } else { "" };
    let text = format!("{COOKIE_NAME}={id}; Path=/console; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::from_str(&text).expect("visible ASCII")
}
