//! The console's way to the API: a call of the router inside the process, without a socket.
//!
//! A caller of the console is the holder of an API key. Users whom a proxy names act with the keys [`VIEWER`] and
//! [`OPERATOR`]; who configures a key with such a name decides its scopes and limits. Otherwise these keys exist only if
//! `console.user_header` is set, and nobody can show them: their hashes are random.
//!
//! Bound: of an answer at most [`ANSWER_BYTES_MAX`] are read.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use serde_json::Value;
use tidings_api::{ApiKey, ApiKeys, OnBehalf, Scope};
use tidings_config::Config;
use tidings_console::{Answer, AnswerFuture, Api, Caller, Console, ConsoleConfig, Role};
use tidings_telemetry::Registry;
use tower::ServiceExt as _;

/// The most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// The key of users who look.
const VIEWER: &str = "console-viewer";
/// The key of users who act.
const OPERATOR: &str = "console-operator";

/// The keys of users whom a proxy names.
pub(super) fn proxied_keys(config: &Config) -> Vec<ApiKey> {
    if !config.console.enabled || config.console.user_header.is_none() {
        return Vec::new();
    }
    let viewer = vec![Scope::Publish, Scope::Read, Scope::Devices, Scope::Metrics];
    let operator = [&viewer[..], &[Scope::Operate]].concat();
    let key = |(name, scopes): (&str, Vec<Scope>)| ApiKey {
        name: name.to_owned(),
        sha256: rand::random(),
        scopes,
        audience_max: None,
    };
    let is_free = |(name, _): &(&str, Vec<Scope>)| config.api.keys.iter().all(|key| key.name != *name);
    [(VIEWER, viewer), (OPERATOR, operator)].into_iter().filter(is_free).map(key).collect()
}

/// Its settings; `None`: it is not switched on.
pub(super) fn settings(config: &Config) -> Option<ConsoleConfig> {
    let section = &config.console;
    section.enabled.then(|| ConsoleConfig {
        session_count_max: section.session_count_max,
        session_ttl: section.session_ttl,
        session_idle: section.session_idle,
        user_header: section.user_header.clone(),
        role_header: section.role_header.clone(),
        role_default: section.role,
        trusted_proxies: section.trusted_proxies.clone(),
        trusts_loopback: config.http.internal_listen.is_some_and(|address| address.ip().is_loopback()),
    })
}

/// The console over these routes; `None`: it is not switched on.
pub(super) fn start(config: &Config, keys: &ApiKeys, router: Router, registry: &Registry) -> Option<Console> {
    let api = Arc::new(Inside { keys: keys.clone(), router });
    settings(config).map(|settings| Console::new(settings, api, registry.clone()))
}

struct Inside {
    keys: ApiKeys,
    router: Router,
}

impl Api for Inside {
    fn holder(&self, key: &str) -> Option<Caller> {
        let holder = self.keys.holder(key)?;
        let role = if holder.may(Scope::Operate) { Role::Operator } else { Role::Viewer };
        Some(Caller { key: holder.name().into(), user: holder.name().into(), role })
    }

    fn proxied(&self, user: &str, role: Role) -> Option<Caller> {
        let name = match role {
            Role::Viewer => VIEWER,
            Role::Operator => OPERATOR,
        };
        let holder = self.keys.named(name)?;
        Some(Caller { key: holder.name().into(), user: user.into(), role })
    }

    fn call<'a>(&'a self, caller: &'a Caller, method: Method, path: &'a str, body: Option<Value>) -> AnswerFuture<'a> {
        Box::pin(async move {
            let Some(holder) = self.keys.named(&caller.key) else {
                return Answer::refused(StatusCode::UNAUTHORIZED, "unauthorized", "the API key of this login is gone");
            };
            let is_json = body.is_some();
            let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
            let on_behalf = OnBehalf { user: caller.user.to_string(), address: None };
            let request = Request::builder().method(method).uri(path).extension(holder).extension(on_behalf);
            let request = if is_json { request.header(CONTENT_TYPE, "application/json") } else { request };
            match request.body(body) {
                Ok(request) => answer(self.router.clone(), request).await,
                Err(_) => Answer::refused(StatusCode::BAD_REQUEST, "invalid", "this is no address of the API"),
            }
        })
    }
}

async fn answer(router: Router, request: Request<Body>) -> Answer {
    let Ok(response) = router.oneshot(request).await;
    let status = response.status();
    let Ok(body) = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await else {
        return Answer::refused(StatusCode::BAD_GATEWAY, "too-large", "the answer is too large to be shown");
    };
    Answer { status, body: serde_json::from_slice(&body.to_bytes()).unwrap_or_default() }
}
