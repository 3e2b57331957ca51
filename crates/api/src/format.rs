//! The format of bodies and answers: JSON, or MessagePack if the caller asks for it.
//!
//! `Content-Type` names the format of a body; without it, it is JSON. An answer is JSON unless `Accept` prefers
//! MessagePack (RFC 9110, 12.5.1: the most specific matching range gives a format its weight). With equal weights, or
//! if nothing matches, the answer is JSON: an answer in another format is better than none. The answer has the name of
//! MessagePack's media type that was asked for. A problem is the same object in both formats.
//!
//! All other code reads and writes JSON; only this module knows MessagePack. Bounds: a body has at most
//! `body_bytes_max`, both as it arrives and as JSON. Both forms are held during the conversion.

pub mod messagepack;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use tidings_telemetry::{Counter, chain};
use tracing::error;

use crate::input::shown;
use crate::problem::{Kind, Problem};
use messagepack::{PackError, UnpackError, pack, unpack};

/// The media types of JSON and of a problem in JSON.
const JSON: [&str; 2] = ["application/json", "application/problem+json"];
/// MessagePack has several names: the first is the common one, the last is the registered one.
pub(crate) const MESSAGEPACK: [&str; 3] = ["application/msgpack", "application/x-msgpack", "application/vnd.msgpack"];

/// One JSON object per line, for routes that support it.
pub(crate) const LINES: &str = "application/x-ndjson";

/// The format of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    MessagePack,
}

impl Format {
    /// Reads the format of the body from the headers.
    pub(crate) fn of_body(headers: &HeaderMap) -> Result<Self, Problem> {
        let wrong = |detail: String| Err(Problem::new(Kind::UnsupportedMediaType, detail));
        if let Some(value) = headers.get(CONTENT_ENCODING).filter(|value| *value != "identity") {
            let text = shown(value.to_str().unwrap_or_default());
            return wrong(format!("Content-Encoding must be identity, got {text:?}"));
        }
        let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(Self::Json) };
        let text = value.to_str().unwrap_or_default();
        let essence = text.split(';').next().unwrap_or_default().trim();
        if essence.eq_ignore_ascii_case(JSON[0]) {
            Ok(Self::Json)
        } else if MESSAGEPACK.iter().any(|name| essence.eq_ignore_ascii_case(name)) {
            Ok(Self::MessagePack)
        } else {
            wrong(format!("Content-Type must be application/json or application/msgpack, got {:?}", shown(essence)))
        }
    }

    /// The body as JSON of at most `bytes_max`.
    pub(crate) fn json(self, body: Bytes, bytes_max: usize) -> Result<Bytes, Problem> {
        match self {
            Self::Json => Ok(body),
            Self::MessagePack => match unpack(&body, bytes_max) {
                Ok(json) => Ok(json.into()),
                Err(error @ UnpackError::Malformed { .. }) => Err(Problem::new(
                    Kind::MalformedMessagePack,
                    format!("the body is not MessagePack that can be converted to JSON: {error}"),
                )),
                Err(UnpackError::TooLarge { limit }) => {
                    let detail = format!("the body must have at most {limit} bytes as JSON");
                    Err(Problem::new(Kind::TooLarge, detail).limit(limit as u64))
                }
            },
        }
    }
}

/// Marks an answer that is JSON in any case, because it is not in memory as a whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JsonOnly;

/// The middleware of all routes whose answers may be MessagePack. An answer that cannot be converted is a bug: it is
/// counted and answered with 500.
pub(crate) async fn negotiate(State(unpackable): State<Counter>, request: Request, next: Next) -> Response {
    let accept: Vec<HeaderValue> = request.headers().get_all(ACCEPT).iter().cloned().collect();
    let mut response = next.run(request).await;
    response.headers_mut().append(VARY, HeaderValue::from_static("accept"));
    if response.extensions().get::<JsonOnly>().is_some() {
        return response;
    }
    let found = response.headers().get(CONTENT_TYPE).and_then(|name| JSON.iter().position(|json| name == json));
    match found.and_then(|index| accepted(&accept, &JSON[..=index])) {
        Some(name) => packed(response, name).await.unwrap_or_else(|error| {
            unpackable.inc();
            error!(error = chain(&error), "An answer cannot be put into MessagePack: a bug");
            Problem::new(Kind::Internal, "the answer cannot be put into MessagePack").into_response()
        }),
        None => response,
    }
}

async fn packed(response: Response, name: &'static str) -> Result<Response, PackError> {
    let (mut parts, body) = response.into_parts();
    let json = body.collect().await.map_err(PackError::Body)?.to_bytes();
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(name));
    // The answer to HEAD has the headers and no body.
    Ok(Response::from_parts(parts, if json.is_empty() { Body::empty() } else { pack(&json)?.into() }))
}

/// Whether the caller prefers lines to one answer, in either format.
pub(crate) fn prefers_lines(headers: &HeaderMap) -> bool {
    let ranges = ranges(headers.get_all(ACCEPT));
    let others = MESSAGEPACK.iter().chain(&JSON[..1]).map(|name| weight(&ranges, name)).max();
    Some(weight(&ranges, LINES)) > others
}

/// Whether the caller prefers OpenMetrics to plain text.
pub(crate) fn prefers_open_metrics(headers: &HeaderMap) -> bool {
    let ranges = ranges(headers.get_all(ACCEPT));
    weight(&ranges, "application/openmetrics-text") > weight(&ranges, "text/plain")
}

/// MessagePack's name, if the caller prefers it to an answer with the names `json`.
fn accepted(accept: &[HeaderValue], json: &[&'static str]) -> Option<&'static str> {
    let ranges = ranges(accept);
    let json = json.iter().map(|name| weight(&ranges, name)).max().unwrap_or_default();
    let weighed = MESSAGEPACK.iter().map(|name| (weight(&ranges, name), *name));
    let (weight, name) = weighed.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
    (weight > json).then_some(name)
}

fn ranges<'h>(accept: impl IntoIterator<Item = &'h HeaderValue>) -> Vec<Range<'h>> {
    let values = accept.into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).filter_map(Range::read).collect()
}

/// The weight of the most specific matching range; 0 if none matches.
fn weight(ranges: &[Range<'_>], name: &str) -> u16 {
    let fitting = ranges.iter().filter_map(|range| range.specificity(name).map(|how| (how, range.weight)));
    fitting.max().map_or(0, |(_, weight)| weight)
}

/// One entry of `Accept`.
#[derive(Debug, Clone, Copy)]
struct Range<'a> {
    name: &'a str,
    /// In thousandths.
    weight: u16,
}

impl<'a> Range<'a> {
    /// `type/subtype`, with an optional weight among its parameters. An entry with an invalid weight is ignored.
    fn read(entry: &'a str) -> Option<Self> {
        let mut parts = entry.split(';').map(str::trim);
        let name = parts.next()?;
        let weight =
            parts.filter_map(|part| part.split_once('=')).find(|(key, _)| key.trim().eq_ignore_ascii_case("q"));
        let weight = weight.map_or(Some(1.0), |(_, weight)| weight.trim().parse::<f32>().ok())?;
        (0.0..=1.0).contains(&weight).then(|| Self { name, weight: (weight * 1000.0).round() as u16 })
    }

    /// How specifically the range names `name`; `None` if it does not match.
    fn specificity(&self, name: &str) -> Option<u8> {
        let kind = name.split('/').next().unwrap_or_default();
        if self.name.eq_ignore_ascii_case(name) {
            Some(2)
        } else if self.name.strip_suffix("/*").is_some_and(|own| own.eq_ignore_ascii_case(kind)) {
            Some(1)
        } else {
            (self.name == "*/*").then_some(0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messagepack_is_answered_to_those_who_prefer_it() {
        let preferred = |values: &[&str], json| {
            let values: Vec<_> = values.iter().map(|value| HeaderValue::from_str(value).unwrap()).collect();
            accepted(&values, json)
        };
        for (values, expected) in [
            (&[][..], None),
            (&[""], None),
            (&["*/*"], None),
            (&["application/*"], None),
            (&["application/json"], None),
            (&["application/msgpack, application/json"], None),
            (&["application/msgpack;q=0.5, application/json;q=0.9"], None),
            (&["application/msgpack;q=0, */*;q=0.1"], None),
            (&["application/msgpack;q=x"], None),
            (&["application/msgpack;q=NaN"], None),
            (&["text/html"], None),
            (&["application/msgpack"], Some("application/msgpack")),
            (&["APPLICATION/MsgPack ; q=0.2"], Some("application/msgpack")),
            (&["application/x-msgpack, */*;q=0.8"], Some("application/x-msgpack")),
            (&["text/html", "application/vnd.msgpack"], Some("application/vnd.msgpack")),
            (&["application/json;q=0.001, application/msgpack;v=1;q=0.002"], Some("application/msgpack")),
            (&["application/x-msgpack;q=0.5, application/vnd.msgpack"], Some("application/vnd.msgpack")),
            (&["*/*, application/json;q=0.5"], Some("application/msgpack")),
        ] {
            assert_eq!(preferred(values, &JSON[..1]), expected, "{values:?}");
        }
        // Lines are sent only to callers that name them.
        let lines =
            |value: &'static str| prefers_lines(&HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(value))]));
        assert!(lines("application/x-ndjson") && lines("application/json;q=0.5, Application/X-NDJSON"));
        for value in ["", "*/*", "application/*", "application/x-ndjson, application/json", "application/x-ndjson;q=0"]
        {
            assert!(!lines(value), "{value}");
        }
        // A problem has a name of its own in JSON.
        let either = ["application/msgpack;q=0.5, application/problem+json"];
        assert_eq!((preferred(&either, &JSON[..1]), preferred(&either, &JSON)), (Some("application/msgpack"), None));
        assert_eq!(preferred(&["application/msgpack;q=0.5, application/json"], &JSON), None);
    }
}
