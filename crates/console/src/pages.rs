//! The pages of the menu, one file each, and what they have in common.
//!
//! A page first asks the API, then makes HTML of the answers. The answers, as one JSON object, are the page in its other
//! form. So HTML is made of nothing that the JSON lacks.

mod audience;
mod channels;
mod event;
mod events;
mod feeds;
mod now;
mod outcome;
mod providers;
mod show;
mod system;
mod texts;
mod why;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;

use crate::visit::Shared;

/// All pages of the menu.
pub(crate) fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route("/console", get(now::show))
        .route("/console/events", get(events::show))
        .route("/console/events/{id}", get(event::show))
        .route("/console/why", get(why::show))
        .route("/console/providers", get(providers::show))
        .route("/console/audience", get(audience::show))
        .route("/console/channels", get(channels::list))
        .route("/console/channels/{name}", get(channels::one))
        .route("/console/texts", get(texts::show))
        .route("/console/feeds", get(feeds::show))
        .route("/console/system", get(system::show))
}
