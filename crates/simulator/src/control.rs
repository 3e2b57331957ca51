//! The control requests under `/simulator/`: reading the ledger, reading and setting the faults.

use bytes::Bytes;
use http::{Method, StatusCode};
use serde::Serialize;
use tidings_types::DeviceToken;

use crate::Faults;
use crate::apns::Shared;

/// What control paths begin with.
pub(crate) const PREFIX: &str = "/simulator/";

/// Performs a control request; status and JSON body of its answer.
pub(crate) fn answer(shared: &Shared, method: &Method, path: &str, body: &[u8]) -> (StatusCode, Bytes) {
    let path = path.strip_prefix(PREFIX).unwrap_or(path);
    match (method.as_str(), path) {
        ("GET", "ledger") => json(&shared.ledger.summary()),
        ("GET", "faults") => json(&*shared.faults()),
        ("PUT", "faults") => put_faults(shared, body),
        ("GET", _) => match path.strip_prefix("ledger/").map(DeviceToken::from_hex) {
            Some(Ok(token)) => json(&shared.ledger.for_device(&token)),
            Some(Err(error)) => refusal(StatusCode::BAD_REQUEST, &error.to_string()),
            None => refusal(StatusCode::NOT_FOUND, "no such path"),
        },
        _ => refusal(StatusCode::METHOD_NOT_ALLOWED, "only GET, and PUT for faults"),
    }
}

fn put_faults(shared: &Shared, body: &[u8]) -> (StatusCode, Bytes) {
    match serde_json::from_slice::<Faults>(body) {
        Ok(faults) => match shared.set_faults(faults) {
            Ok(()) => json(&*shared.faults()),
            Err(error) => refusal(StatusCode::BAD_REQUEST, &error.to_string()),
        },
        Err(error) => refusal(StatusCode::BAD_REQUEST, &error.to_string()),
    }
}

fn refusal(status: StatusCode, error: &str) -> (StatusCode, Bytes) {
    let (_, body) = json(&serde_json::json!({ "error": error }));
    (status, body)
}

fn json(value: &impl Serialize) -> (StatusCode, Bytes) {
    let body = serde_json::to_vec(value).expect("our own types have string keys and no fallible part");
    (StatusCode::OK, body.into())
}
