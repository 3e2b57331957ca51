//! The control requests under `/simulator/`: they read the ledger, and read and set the faults.

use bytes::Bytes;
use http::{Method, StatusCode};
use serde::Serialize;

use crate::Faults;
use crate::provider::{Answer, Provider};
use crate::shared::Shared;

/// The beginning of all control paths.
pub(crate) const PREFIX: &str = "/simulator/";

/// Handles a control request. The answer is JSON.
pub(crate) fn answer<P: Provider>(shared: &Shared<P>, method: &Method, path: &str, body: &[u8]) -> Answer {
    let path = path.strip_prefix(PREFIX).unwrap_or(path);
    let own = || shared.provider.control(method, path, body);
    let (status, body) = own().unwrap_or_else(|| match (method.as_str(), path) {
        ("GET", "ledger") => json(&shared.ledger.summary()),
        ("GET", "faults") => json(&*shared.faults()),
        ("PUT", "faults") => put_faults(shared, body),
        ("GET", _) => get_device(shared, path),
        _ => refusal(StatusCode::METHOD_NOT_ALLOWED, "method not allowed"),
    });
    Answer::json(status, body)
}

fn get_device<P: Provider>(shared: &Shared<P>, path: &str) -> (StatusCode, Bytes) {
    let (list, text) = path.split_once('/').unwrap_or_default();
    if !matches!(list, "ledger" | "shown") {
        return refusal(StatusCode::NOT_FOUND, "no such path");
    }
    let entries = match shared.provider.read_address(text) {
        Ok(address) if list == "ledger" => shared.ledger.for_address(&address),
        Ok(address) => shared.ledger.shown_at(&address),
        Err(error) => return refusal(StatusCode::BAD_REQUEST, &error),
    };
    json(&entries.into_iter().map(P::Entry::from).collect::<Vec<_>>())
}

fn put_faults<P: Provider>(shared: &Shared<P>, body: &[u8]) -> (StatusCode, Bytes) {
    let faults = serde_json::from_slice::<Faults<P::Refusal>>(body).map_err(|error| error.to_string());
    match faults.and_then(|faults| shared.set_faults(faults).map_err(|error| error.to_string())) {
        Ok(()) => json(&*shared.faults()),
        Err(error) => refusal(StatusCode::BAD_REQUEST, &error),
    }
}

pub(crate) fn refusal(status: StatusCode, error: &str) -> (StatusCode, Bytes) {
    let (_, body) = json(&serde_json::json!({ "error": error }));
    (status, body)
}

pub(crate) fn json(value: &impl Serialize) -> (StatusCode, Bytes) {
    let body = serde_json::to_vec(value).expect("these types have string keys and always serialize");
    (StatusCode::OK, body.into())
}
