//! Selectors: audiences in words, as `to.selector` of an event, and `POST /v1/audience/explain`, which tells what each part
//! of one means. The language is `tidings_types::Selector`, for its users docs/selectors.md.
//!
//! Explaining counts every part over all devices, some milliseconds for each and million: as previews, requests take
//! turns on a thread of their own.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use tidings_audience::{ExplainedNode, Explanation};
use tidings_types::{Selector, SelectorProblem, selector_limits as limits};

use crate::auth::Caller;
use crate::guard::JsonBody;
use crate::input::{self, Field, Schema};
use crate::problem::{Invalid, Problem, json};
use crate::shared::{Shared, blocking};

pub(crate) const EXPLAIN: Schema = Schema { fields: &["selector"], refused: &[] };

/// Reads a selector.
pub(crate) fn selector(field: &Field<'_>) -> Result<Selector, Invalid> {
    let text = field.text_within(1..=limits::BYTES_MAX)?;
    text.parse::<Selector>().map_err(|error| {
        let invalid = field.invalid(format_args!("is no selector: {error}"));
        match error.problem {
            SelectorProblem::Limit { limit, value, .. } => invalid.limit(limit).value(value),
            SelectorProblem::Syntax { found, .. } => invalid.value(found),
            SelectorProblem::Name(name) => invalid.value(name.value),
        }
    })
}

pub(crate) async fn explain(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    body: JsonBody,
) -> Result<Response, Problem> {
    let selector = selector(&input::root(&body.0)?.object(&EXPLAIN)?.require("selector", "")?)?;
    let place = shared.waiting_place(&caller)?;
    let turn = shared.counting_turn().await?;
    let (store, asked) = (shared.store.clone(), selector.clone());
    let explaining = blocking(move || {
        let _turn = (place, turn); // Also when the caller hangs up.
        store.explain(&asked)
    });
    let Explanation { root, unmuted_count, device_count } = explaining.await?;
    let tree = Node::from(root);
    let answer = Explained { selector, devices: tree.devices, unmuted: unmuted_count, of: device_count, tree };
    Ok(json(StatusCode::OK, &answer))
}

/// What a selector means now.
#[derive(Debug, Serialize)]
struct Explained {
    /// As it was understood.
    selector: Selector,
    devices: u64,
    /// Those that did not mute everything.
    unmuted: u64,
    /// Of so many devices in all.
    of: u64,
    tree: Node,
}

#[derive(Debug, Serialize)]
struct Node {
    text: String,
    devices: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Self>,
}

impl From<ExplainedNode> for Node {
    // As deep as selectors may be.
    fn from(ExplainedNode { text, count, children }: ExplainedNode) -> Self {
        Self { text, devices: count, parts: children.into_iter().map(Self::from).collect() }
    }
}
