//! The control requests under `/simulator/`: reading the ledger, reading and setting the faults.

use bytes::Bytes;
use http::{Method, StatusCode};
use serde::Serialize;

use crate::Faults;
use crate::provider::{Answer, Provider};
use crate::shared::Shared;

/// What control paths begin with.
pub(crate) const PREFIX: &str = "/simulator/";

/// Performs a control request; the answer is JSON.
pub(crate) fn answer<P: Provider>(shared: &Shared<P>, method: &Method, path: &str, body: &[u8]) -> Answer {
    let path = path.strip_prefix(PREFIX).unwrap_or(path);
    let own = || shared.provider.control(method, path, body);
    let (status, body) = own().unwrap_or_else(|| match (method.as_str(), path) {
        ("GET", "ledger") => json(&shared.ledger.summary()),
        ("GET", "faults") => json(&*shared.faults()),
        ("PUT", "faults") => put_faults(shared, body),
        ("GET", _) => get_device(shared, path),
        _ => refusal(StatusCode::METHOD_NOT_ALLOWED, "no such method here"),
    });
    Answer::json(status, body)
}

fn get_device<P: Provider>(shared: &Shared<P>, path: &str) -> (StatusCode, Bytes) {
    let of =
        |text: &str, read: &dyn Fn(&[u8]) -> Vec<crate::ledger::MessageEntry>| match shared.provider.read_address(text)
        {
            Ok(address) => json(&read(&address).into_iter().map(P::Entry::from).collect::<Vec<_>>()),
            Err(error) => refusal(StatusCode::BAD_REQUEST, &error),
        };
    if let Some(text) = path.strip_prefix("ledger/") {
        of(text, &|address| shared.ledger.for_address(address))
    } else if let Some(text) = path.strip_prefix("shown/") {
        of(text, &|address| shared.ledger.shown_at(address))
    } else {
        refusal(StatusCode::NOT_FOUND, "no such path")
    }
}

fn put_faults<P: Provider>(shared: &Shared<P>, body: &[u8]) -> (StatusCode, Bytes) {
    match serde_json::from_slice::<Faults<P::Refusal>>(body) {
        Ok(faults) => match shared.set_faults(faults) {
            Ok(()) => json(&*shared.faults()),
            Err(error) => refusal(StatusCode::BAD_REQUEST, &error.to_string()),
        },
        Err(error) => refusal(StatusCode::BAD_REQUEST, &error.to_string()),
    }
}

pub(crate) fn refusal(status: StatusCode, error: &str) -> (StatusCode, Bytes) {
    let (_, body) = json(&serde_json::json!({ "error": error }));
    (status, body)
}

pub(crate) fn json(value: &impl Serialize) -> (StatusCode, Bytes) {
    let body = serde_json::to_vec(value).expect("our own types have string keys and no fallible part");
    (StatusCode::OK, body.into())
}
