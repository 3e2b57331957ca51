//! Selectors: audiences as expressions, in `to.selector` of an event, and `POST /v1/audience/explain`, which counts
//! each part of a selector. The language is `tidings_types::Selector`; for users it is described in docs/selectors.md.
//!
//! To explain a selector, every part is counted over all devices, which takes some milliseconds for each part and
//! million. So requests take turns on a thread of their own, like previews.

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
        let invalid = field.invalid(format_args!("is not a valid selector: {error}"));
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
        let _turn = (place, turn); // Held also if the caller hangs up.
        store.explain(&asked)
    });
    let Explanation { root, unmuted_count, device_count } = explaining.await?;
    let tree = Node::from(root);
    let answer = Explained { selector, devices: tree.devices, unmuted: unmuted_count, of: device_count, tree };
    Ok(json(StatusCode::OK, &answer))
}

/// The current result of a selector.
#[derive(Debug, Serialize)]
struct Explained {
    /// The selector as it was read.
    selector: Selector,
    devices: u64,
    /// Devices that have not muted everything.
    unmuted: u64,
    /// The number of all devices.
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
    // Recursion is as deep as selectors may be.
    fn from(ExplainedNode { text, count, children }: ExplainedNode) -> Self {
        Self { text, devices: count, parts: children.into_iter().map(Self::from).collect() }
    }
}
