//! Centrifugo's server API (v6): its server libraries work unchanged.
//!
//! `POST /api/{method}` with the parameters as the body, and the older `POST /api` with any number of
//! `{"method", "params"}` in it. Answers are `{"result": …}` or `{"error": {"code", "message"}}`, byte for byte as
//! Centrifugo writes them: fields with their zero value are left out except where noted. An error has HTTP status 200.
//! With the header `X-Centrifugo-Error-Mode: transport` it has a status of its own. A body that is not JSON of the
//! right shape is answered with 400 and plain text.
//!
//! Here: publish, broadcast, history, history_remove, presence, presence_stats, channels, info, batch; and orders about live
//! connections: subscribe, unsubscribe, disconnect, refresh; and connections, which tells of them. Not here, answered with 108: rpc. `b64data` is refused with
//! 107: binary data needs Protobuf clients. The hint `delta` is ignored. The older endpoint does not accept method numbers.
//!
//! Bounds, refused with 107: [`CHANNEL_COUNT_MAX`](publish::CHANNEL_COUNT_MAX) channels per broadcast,
//! [`COMMAND_COUNT_MAX`] commands per request, and those of `publish`. The results of a request have at most
//! `answer::ANSWER_BYTES_MAX`. A full or failing store is error 100: the caller may publish again, without risk if it
//! uses an idempotency key.
//!
//! Source: Centrifugo 6.9.1, `internal/api` and `internal/apiproto`.

mod answer;
mod error;
mod glob;
pub(crate) mod idempotency;
mod live;
mod publish;
mod read;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::value::RawValue;
use tidings_telemetry::chain;
use tidings_types::check_json_depth;
use tracing::debug;

use crate::audited::{Attempt, Audited, Note};
use crate::auth::{Caller, Scope};
use crate::guard::AnyBody;
use crate::input::shown;
use crate::shared::Shared;

use answer::{Room, text};
use publish::CONCURRENT_MAX;

pub(crate) use answer::{ANSWER_BYTES_MAX, LARGE_ANSWER_COUNT_MAX};
pub(crate) use error::{ApiError, CentrifugoMetrics};
pub(crate) use idempotency::Idempotency;

/// The most commands in one batch, or in one request to the older endpoint.
const COMMAND_COUNT_MAX: usize = 1000;
/// The methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Publish,
    Broadcast,
    History,
    Presence,
    PresenceStats,
    Info,
    Batch,
    Subscribe,
    Unsubscribe,
    Disconnect,
    Refresh,
    Connections,
    HistoryRemove,
    Channels,
    Rpc,
}

impl Method {
    pub(crate) const ALL: [Self; 15] = [
        Self::Publish,
        Self::Broadcast,
        Self::History,
        Self::Presence,
        Self::PresenceStats,
        Self::Info,
        Self::Batch,
        Self::Subscribe,
        Self::Unsubscribe,
        Self::Disconnect,
        Self::Refresh,
        Self::Connections,
        Self::HistoryRemove,
        Self::Channels,
        Self::Rpc,
    ];

    pub(crate) const fn route(self) -> &'static str {
        match self {
            Self::Publish => "POST /api/publish",
            Self::Broadcast => "POST /api/broadcast",
            Self::History => "POST /api/history",
            Self::Presence => "POST /api/presence",
            Self::PresenceStats => "POST /api/presence_stats",
            Self::Info => "POST /api/info",
            Self::Batch => "POST /api/batch",
            Self::Subscribe => "POST /api/subscribe",
            Self::Unsubscribe => "POST /api/unsubscribe",
            Self::Disconnect => "POST /api/disconnect",
            Self::Refresh => "POST /api/refresh",
            Self::Connections => "POST /api/connections",
            Self::HistoryRemove => "POST /api/history_remove",
            Self::Channels => "POST /api/channels",
            Self::Rpc => "POST /api/rpc",
        }
    }

    fn name(self) -> &'static str {
        self.route().trim_start_matches("POST /api/")
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name().eq_ignore_ascii_case(name))
    }

    /// `None`: each command inside needs its own scope.
    pub(crate) const fn scope(self) -> Option<Scope> {
        match self {
            Self::Publish | Self::Broadcast => Some(Scope::Publish),
            Self::HistoryRemove | Self::Subscribe | Self::Unsubscribe | Self::Disconnect | Self::Refresh => {
                Some(Scope::Operate)
            }
            Self::Batch => None,
            _ => Some(Scope::Read),
        }
    }
}

impl Method {
    /// How a call is recorded.
    pub(crate) const fn audited(self) -> Audited {
        match self {
            Self::Publish => Audited::As("channel.publish"),
            Self::Broadcast => Audited::As("channel.broadcast"),
            Self::HistoryRemove => Audited::As("channel.history_remove"),
            Self::Subscribe => Audited::As("client.subscribe"),
            Self::Unsubscribe => Audited::As("client.unsubscribe"),
            Self::Disconnect => Audited::As("client.disconnect"),
            Self::Refresh => Audited::As("client.refresh"),
            Self::Batch => Audited::Commands,
            Self::Rpc => Audited::Not("it is not available"),
            Self::History | Self::Presence | Self::PresenceStats | Self::Info | Self::Connections | Self::Channels => {
                Audited::Not("reads only")
            }
        }
    }
}

/// Why there is no result.
#[derive(Debug)]
enum Failure {
    /// The parameters do not have the method's shape.
    Malformed(serde_json::Error),
    Refused(ApiError),
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Malformed(error)
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self::Refused(error)
    }
}

/// One call of one method.
pub(crate) async fn call(
    method: Method,
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    note: Note,
    headers: HeaderMap,
    AnyBody(body): AnyBody,
) -> Response {
    let room = Room::new(&shared, &caller);
    let called = match method {
        // Its answer is not wrapped in a result.
        Method::Batch => batch(&shared, &caller, &note, &room, &body).await,
        _ => run(&shared, &room, method, &body, &note).await.map(|result| format!(r#"{{"result":{result}}}"#)),
    };
    match called {
        Ok(body) => ok(room.into_bytes(body)),
        Err(Failure::Malformed(error)) => malformed(&error),
        Err(Failure::Refused(error)) => {
            shared.refused(method, error);
            note.result(error.status());
            match headers.get("x-centrifugo-error-mode") {
                Some(mode) if mode == "transport" => (error.status(), ok(error.json())).into_response(),
                _ => ok(format!(r#"{{"error":{}}}"#, error.json())),
            }
        }
    }
}

/// The older endpoint: several commands, handled one after another, with one answer per line.
pub(crate) async fn legacy(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    note: Note,
    AnyBody(body): AnyBody,
) -> Response {
    #[derive(Deserialize, Default)]
    struct Command<'a> {
        #[serde(default)]
        method: String,
        #[serde(borrow, default)]
        params: Option<&'a RawValue>,
    }
    // All commands are read before the first is handled: a body that breaks off has no effect.
    let commands = serde_json::Deserializer::from_slice(&body).into_iter::<&RawValue>().take(COMMAND_COUNT_MAX + 1);
    let commands: serde_json::Result<Vec<Command<'_>>> = commands.map(|raw| parse(raw?.get().as_bytes())).collect();
    let commands = match commands {
        Ok(commands) => commands,
        Err(error) => return malformed(&error),
    };
    if commands.is_empty() || commands.len() > COMMAND_COUNT_MAX {
        let text = format!("the body must hold 1 to {COMMAND_COUNT_MAX} commands\n");
        return (StatusCode::BAD_REQUEST, text).into_response();
    }
    let (room, mut answers) = (Room::new(&shared, &caller), String::new());
    for Command { method, params } in commands {
        match command(&shared, &caller, &note, &room, &method, params).await {
            Ok((_, result)) => answers += &format!("{{\"result\":{result}}}\n"),
            Err(error) => answers += &format!("{{\"error\":{}}}\n", error.json()),
        }
    }
    ok(room.into_bytes(answers))
}

async fn batch(
    shared: &Arc<Shared>,
    caller: &Caller,
    note: &Note,
    room: &Room<'_>,
    body: &[u8],
) -> Result<String, Failure> {
    #[derive(Deserialize, Default)]
    struct Batch<'a> {
        #[serde(borrow, default)]
        commands: Option<Vec<&'a RawValue>>,
        #[serde(default)]
        parallel: Option<bool>,
    }
    let Batch { commands, parallel } = parse(body)?;
    let commands = commands.unwrap_or_default();
    if commands.is_empty() || commands.len() > COMMAND_COUNT_MAX {
        return Err(ApiError::BadRequest.into());
    }
    let at_a_time = if parallel == Some(true) { CONCURRENT_MAX } else { 1 };
    let replies: Vec<_> = commands.into_iter().map(|command| reply(shared, caller, note, room, command)).collect();
    let replies: Vec<String> = stream::iter(replies).buffered(at_a_time).collect().await;
    Ok(format!(r#"{{"replies":[{}]}}"#, replies.join(",")))
}

/// One command of a batch: an object with one field, named like the method.
async fn reply(shared: &Arc<Shared>, caller: &Caller, note: &Note, room: &Room<'_>, raw: &RawValue) -> String {
    let done = match serde_json::from_str::<BTreeMap<String, &RawValue>>(raw.get()) {
        Ok(named) if named.len() == 1 => {
            let (name, params) = named.into_iter().next().expect("there is one");
            command(shared, caller, note, room, &name, Some(params)).await
        }
        _ => {
            shared.centrifugo.count(ApiError::BadRequest);
            Err(ApiError::BadRequest)
        }
    };
    match done {
        Ok((method, result)) => format!(r#"{{"{}":{result}}}"#, method.name()),
        Err(error) => format!(r#"{{"error":{}}}"#, error.json()),
    }
}

/// A command inside a request: the method and the key's scope are checked here, and the attempt is recorded.
async fn command(
    shared: &Arc<Shared>,
    caller: &Caller,
    request: &Note,
    room: &Room<'_>,
    name: &str,
    params: Option<&RawValue>,
) -> Result<(Method, String), ApiError> {
    let Some(method) = Method::named(name).filter(|method| *method != Method::Batch) else {
        shared.centrifugo.count(ApiError::NotFound);
        return Err(ApiError::NotFound);
    };
    let attempt = match (&shared.audit, method.audited()) {
        (Some(audit), Audited::As(action)) => Some(Attempt::of_command(audit, action, request)),
        _ => None,
    };
    let note = attempt.as_ref().map(|attempt| attempt.note().clone()).unwrap_or_default();
    let done = if method.scope().is_none_or(|scope| caller.may(scope)) {
        run(shared, room, method, params.map_or("", RawValue::get).as_bytes(), &note).await
    } else {
        Err(ApiError::PermissionDenied.into())
    };
    let done = done.map(|result| (method, result)).map_err(|failure| {
        let error = match failure {
            Failure::Malformed(_) => ApiError::BadRequest,
            Failure::Refused(error) => error,
        };
        shared.refused(method, error);
        error
    });
    note.result(done.as_ref().map_or_else(|error| error.status(), |_| StatusCode::OK));
    done
}

async fn run(
    shared: &Arc<Shared>,
    room: &Room<'_>,
    method: Method,
    params: &[u8],
    note: &Note,
) -> Result<String, Failure> {
    room.check()?;
    Ok(match method {
        Method::Publish => room.done(&publish::publish(shared, parse(params)?, note).await?),
        Method::Broadcast => room.done(&publish::broadcast(shared, parse(params)?, note).await?),
        Method::History => {
            let request = parse(params)?;
            tokio::task::yield_now().await; // A command may take long, and a request has many.
            read::load(shared, &request).await;
            room.read(|| read::history(shared, &request))?
        }
        Method::Presence => {
            let request = parse(params)?;
            tokio::task::yield_now().await;
            room.reserve()?;
            let found = read::presence(shared, &request).await?;
            room.read(|| Ok(found))?
        }
        Method::PresenceStats => text(&read::presence_stats(shared, &parse(params)?).await?),
        Method::HistoryRemove => room.done(&read::history_remove(shared, &parse(params)?, note).await?),
        Method::Channels => {
            let request = parse(params)?;
            tokio::task::yield_now().await;
            room.reserve()?;
            let found = read::channels(shared, &request).await?;
            room.read(|| Ok(found))?
        }
        Method::Info => text(&read::info(shared).await),
        Method::Subscribe => room.done(&live::subscribe(shared, parse(params)?, parse(params)?, note).await?),
        Method::Unsubscribe => room.done(&live::unsubscribe(shared, parse(params)?, note).await?),
        Method::Disconnect => room.done(&live::disconnect(shared, parse(params)?, note).await?),
        Method::Refresh => room.done(&live::refresh(shared, parse(params)?, note).await?),
        Method::Connections => {
            let request = parse(params)?;
            room.reserve()?;
            let found = live::connections(shared, request).await?;
            room.read(|| Ok(found))?
        }
        _ => return Err(ApiError::NotAvailable.into()),
    })
}

impl Shared {
    fn refused(&self, method: Method, error: ApiError) {
        self.centrifugo.count(error);
        debug!(method = method.name(), error = chain(&error), "Refused a call of the server API");
    }
}

/// Reads parameters; no parameters and `null` mean `{}`.
fn parse<'a, T: Deserialize<'a> + Default>(params: &'a [u8]) -> serde_json::Result<T> {
    match params.trim_ascii() {
        b"" | b"null" => Ok(T::default()),
        // Serde would also accept a list as an object.
        params if !params.starts_with(b"{") => Err(serde::de::Error::custom("an object is needed")),
        params => {
            check_json_depth(params).map_err(serde::de::Error::custom)?;
            serde_json::from_slice(params)
        }
    }
}

fn ok(body: impl Into<Body>) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body.into()).into_response()
}

fn malformed(error: &serde_json::Error) -> Response {
    (StatusCode::BAD_REQUEST, format!("not JSON of the method's shape: {}\n", shown(&error.to_string())))
        .into_response()
}
