//! `GET /openapi.json`: the API described for programs, as OpenAPI 3.1.
//!
//! The document is made once, at start, from the data that the API itself uses: the registered routes ([`Route`]), the
//! fields of each [`Schema`](crate::input::Schema), `event_limits` and this server's bounds, the names of each choice,
//! the kinds of problem, and the scopes. So these parts are always correct. The rest is written by hand: the rules of
//! names and the shapes of answers. Tests compare them with the code. The document is public and has no bound: it is
//! one buffer for all callers.
//!
//! Descriptions say what JSON Schema cannot say. Lengths are in characters in JSON Schema and in bytes here. Whether a
//! topic is known, a channel is durable and a notification is small enough depends on the configuration.
//! topic is known, a channel durable and a notification small enough depends on the configuration.
//!
//! `/api` is described only briefly: its clients have their own documentation.
//!
//! Source: OpenAPI Specification 3.1.1, JSON Schema 2020-12.

mod descriptions;
mod operations;
mod schemas;

use axum::Router;
use axum::body::Bytes;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use serde_json::{Map, Value, json};

use crate::auth::Scope;
use crate::centrifugo::ApiError;
use crate::config::ApiConfig;
use crate::format::{LINES, MESSAGEPACK};
use crate::guard::Dialect;
use crate::problem::{Kind, TYPE_PREFIX};
use crate::routes::Route;
use operations::{Answer, Body, operation, unguarded};
use schemas::reference;

/// Serves the document.
pub(crate) fn router(document: String) -> Router {
    let document = Bytes::from(document);
    let answer = async move || ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], document);
    Router::new().route("/openapi.json", get(answer))
}

/// The document of a server with these routes and bounds.
pub(crate) fn document(routes: &[Route], config: &ApiConfig, version: &str) -> String {
    let described = routes.iter().filter_map(|route| Some((route.name, described(*route)?)));
    let mut paths = Map::new();
    for (name, operation) in described.chain(unguarded()) {
        let (method, path) = name.split_once(' ').expect("METHOD /path");
        let path = paths.entry(path).or_insert_with(|| json!({}));
        path[method.to_ascii_lowercase()] = operation;
    }
    let document = json!({
        "openapi": "3.1.1",
        "info": {
            "title": "Tidings",
            "version": version,
            "summary": "Delivers each event once to everyone who asked for it.",
            "description": format!(
                "Bodies and answers are JSON, or MessagePack where `Content-Type` and `Accept` say {}. An event \
                 that is handed in again goes in the format of the first try. Answers and problems may have more \
                 members in later versions.",
                MESSAGEPACK.join(", ")
            ),
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": operations::TAGS.map(|(name, description)| json!({"name": name, "description": description})),
        "paths": paths,
        "components": {
            "schemas": schemas::schemas(config),
            "responses": responses(config),
            "securitySchemes": security_schemes(routes.iter().any(|route| route.is_for_apps)),
        },
    });
    document.to_string()
}

fn described(route: Route) -> Option<Value> {
    let operation = operation(route)?;
    let mut described = operation.head();
    described["security"] = security(route);
    let mut responses: Map<String, Value> =
        operation.answers.iter().map(|answer| success(answer, route.dialect, operation.is_json_only)).collect();
    for status in operation.refusals(route.dialect) {
        responses.insert(status.to_string(), json!({"$ref": format!("#/components/responses/{status}")}));
    }
    if route.dialect == Dialect::Centrifugo {
        responses.extend(centrifugo_refusals());
    }
    described["responses"] = responses.into();
    if let Some(Body { schema, examples, is_required, are_lines, is_any }) = &operation.body {
        let content = |media: &str| (media.to_owned(), json!({"schema": schema, "examples": examples}));
        let content: Map<_, _> = if *are_lines {
            [content(LINES)].into_iter().collect()
        } else if *is_any {
            [content("*/*")].into_iter().collect()
        } else {
            media(route.dialect).map(content).collect()
        };
        described["requestBody"] = json!({"required": is_required, "content": content});
    }
    Some(described)
}

/// The refusals of Centrifugo's server API, which has texts of its own.
fn centrifugo_refusals() -> Map<String, Value> {
    let description = "With `X-Centrifugo-Error-Mode: transport`: the error.";
    let content = json!({"application/json": {"schema": reference("CentrifugoError")}});
    let in_transport_mode = json!({"description": description, "content": content});
    let statuses = ApiError::ALL.map(|error| error.status().as_str().to_owned());
    let mut refusals: Map<_, _> = statuses.into_iter().map(|status| (status, in_transport_mode.clone())).collect();
    refusals["400"]["content"]["text/plain"] = json!({"schema": {"type": "string"}});
    refusals["400"]["description"] = "The body is not JSON of the method's shape. In transport mode: the error.".into();
    refusals["403"]["content"]["application/problem+json"] = json!({"schema": reference("Problem")});
    refusals["403"]["description"] = "The API key lacks a scope. In transport mode: the error.".into();
    refusals["500"]["content"]["application/problem+json"] = json!({"schema": reference("Problem")});
    refusals["500"]["description"] = "A bug in the server ended the request. In transport mode: the error.".into();
    refusals.insert("401".to_owned(), json!({"description": "No valid key came with the request."}));
    refusals
}

fn media(dialect: Dialect) -> impl Iterator<Item = &'static str> {
    let packed = (dialect == Dialect::Tidings).then_some(MESSAGEPACK[0]);
    std::iter::once("application/json").chain(packed)
}

fn success(answer: &Answer, dialect: Dialect, is_json_only: bool) -> (String, Value) {
    let Answer { status, description, schema, lines, is_bytes, is_secret, has_tag, leads_to } = answer;
    let mut response = json!({"description": description});
    if let Some(schema) = schema {
        let content = |media: &str| (media.to_owned(), json!({"schema": schema}));
        let count_max = if is_json_only { 1 } else { usize::MAX };
        response["content"] = media(dialect).take(count_max).map(content).collect::<Map<_, _>>().into();
    }
    if let Some(line) = lines {
        response["content"][LINES] = json!({"schema": line});
    }
    if *is_bytes {
        response["content"] = json!({"application/octet-stream": {"schema": {}}});
    }
    if *is_secret {
        let header = json!({"required": true, "schema": {"const": "no-store"}, "description": "It holds a secret."});
        response["headers"]["Cache-Control"] = header;
    }
    if *has_tag {
        let schema = json!({"type": "string", "pattern": "^\"r[0-9]+\"$"});
        response["headers"]["ETag"] = json!({"required": true, "schema": schema, "description": "Of the device."});
    }
    if !leads_to.is_empty() {
        let link = |name: &&str| {
            ((*name).to_owned(), json!({"operationId": name, "parameters": {"id": "$response.body#/id"}}))
        };
        response["links"] = leads_to.iter().map(link).collect::<Map<_, _>>().into();
    }
    (status.to_string(), response)
}

/// All ways to send a key, each with the scope that it needs; then those of apps.
fn security(route: Route) -> Value {
    let roles: Vec<&str> = route.scope.iter().map(|scope| scope.name()).collect();
    let in_query = (route.dialect == Dialect::Centrifugo).then_some("query");
    let keys = ["header", "authorization", "bearer"].into_iter().chain(in_query).map(|way| json!({way: roles}));
    let apps = [json!({"device": []}), json!({"user": []}), json!({"device": [], "user": []})];
    keys.chain(apps.into_iter().filter(|_| route.is_for_apps)).collect()
}

fn security_schemes(with_apps: bool) -> Value {
    let scopes = Scope::ALL.map(|scope| format!("`{}`: {}", scope.name(), scope.meaning())).join("; ");
    let description = format!("An API key of the configuration. Its scopes say what it allows. {scopes}.");
    let mut schemes = json!({
        "header": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": description},
        "authorization": {"type": "http", "scheme": "apikey", "description": "The same key: `Authorization: apikey KEY`."},
        "bearer": {"type": "http", "scheme": "bearer", "description": "The same key: `Authorization: Bearer KEY`."},
        "query": {
            "type": "apiKey",
            "in": "query",
            "name": "api_key",
            "description": "The same key, for Centrifugo's server API only. Avoid it: URLs end up in logs.",
        },
    });
    if with_apps {
        schemes["device"] = json!({
            "type": "apiKey",
            "in": "header",
            "name": "X-Device-Credential",
            "description": "The app on a device: the credential from the registration. For that device only.",
        });
        schemes["user"] = json!({
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "JWT",
            "description": "The app of a user: the token that it connects with. For that user's devices only, and only for \
                that in its claim `device`, where it has one.",
        });
    }
    schemes
}

/// A response for each status that a problem can have.
fn responses(config: &ApiConfig) -> Map<String, Value> {
    let mut responses = Map::new();
    for kind in Kind::ALL {
        let status = kind.parts().1.as_u16();
        let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|other| other.parts().1.as_u16() == status).collect();
        let titles: Vec<&str> = kinds.iter().map(|kind| kind.parts().2).collect();
        let types: Vec<String> = kinds.iter().map(|kind| format!("{TYPE_PREFIX}{}", kind.parts().0)).collect();
        let mut description = format!("{}.", titles.join(". "));
        if kind == Kind::TooLarge {
            description += &format!(" The limit of this server is {} bytes, also as JSON.", config.body_bytes_max);
        }
        let schema = json!({
            "allOf": [{"$ref": "#/components/schemas/Problem"}],
            "properties": {"type": {"enum": types}, "status": {"const": status}},
        });
        let mut response = json!({
            "description": description,
            "content": {"application/problem+json": {"schema": schema}, (MESSAGEPACK[0]): {"schema": schema}},
        });
        let header = |required, schema| json!({"required": required, "schema": schema});
        match kind {
            Kind::Unauthorized => {
                response["headers"] = json!({"WWW-Authenticate": header(true, json!({"const": "apikey"}))})
            }
            _ if kind.retry_after().is_some() => {
                response["headers"] = json!({"Retry-After": header(true, json!({"type": "integer", "minimum": 1}))});
            }
            _ => {}
        }
        responses.insert(status.to_string(), response);
    }
    responses
}

#[cfg(test)]
pub(crate) mod tests;
