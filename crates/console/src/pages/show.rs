//! One page in the form that is asked for: as a whole, its live part, or JSON.

use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::Value;

use crate::answers::{Wanted, document, json};
use crate::html::{Frame, Screen, live, page};
use crate::visit::Visit;

/// A page.
pub(super) struct View<'a> {
    pub(super) screen: Screen,
    pub(super) title: &'a str,
    /// It is fetched again while somebody looks.
    pub(super) is_live: bool,
    pub(super) has_charts: bool,
}

impl<'a> View<'a> {
    pub(super) fn of(screen: Screen) -> View<'a> {
        View { screen, title: screen.parts().1, is_live: false, has_charts: false }
    }

    /// Answers with `data` as JSON, or with what `body` makes of it.
    pub(super) fn show(
        self,
        visit: &Visit,
        status: StatusCode,
        data: &Value,
        body: impl FnOnce(&Value) -> Markup,
    ) -> Response {
        match visit.wanted {
            Wanted::Json => json(status, data),
            Wanted::Part => document(StatusCode::OK, body(data)),
            Wanted::Page => {
                let body = body(data);
                let body = if self.is_live { live(&visit.here(), &body) } else { body };
                let frame = Frame {
                    title: self.title,
                    screen: Some(self.screen),
                    caller: Some(&visit.caller),
                    token: &visit.token,
                    json: Some(visit.with("format", "json")),
                    has_charts: self.has_charts,
                };
                document(status, page(&frame, &html! { (said(visit)) (body) }))
            }
        }
    }
}

/// What an action did, which the address of the page says.
fn said(visit: &Visit) -> Markup {
    let told = match visit.query.get("said") {
        "cancelled" => "The event is cancelled. Devices that had not been sent to are not pushed.",
        "paused" => "Paused. Pushes are held until you resume them.",
        "resumed" => "Resumed. What was held goes out now.",
        "reloaded" => "The texts were read again.",
        "rolled-back" => "The texts before are in force again.",
        "polled" => "The feed was read.",
        "sent" if visit.query.get("event").starts_with("console-dry-") => "This was the dry run: nothing is delivered.",
        "sent" => "The test is on its way.",
        _ => return html! {},
    };
    html! { div .note.done role="status" { p { (told) } } }
}
