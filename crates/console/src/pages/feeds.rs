//! Feeds and other sources of events: whether they work, and what came of their documents.

use axum::response::Response;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::show::View;
use crate::html::{Screen, action, alarm, command, empty, facts, or_problem, state};
use crate::visit::Visit;
use crate::words::{NOTHING, count, moment};

pub(crate) async fn show(visit: Visit) -> Response {
    let answer = visit.get("/v1/feeds").await;
    let data = json!({"feeds": answer.body});
    let view = View { is_live: true, ..View::of(Screen::Feeds) };
    view.show(&visit, answer.status, &data, |data| or_problem(&data["feeds"], |page| body(&visit, page)))
}

fn body(visit: &Visit, page: &Value) -> Markup {
    let all = page["feeds"].as_array().map_or(&[][..], Vec::as_slice);
    html! {
        @if all.is_empty() {
            (empty("No feed is configured.", &html! {
                p { "A feed is a document whose entries become events, such as an RSS feed:" }
                (command("[feeds.news]\nmapping = \"news\"\nurl = \"https://www.example.com/news.xml\""))
            }))
        }
        @for feed in all { (one(visit, feed)) }
    }
}

fn one(visit: &Visit, feed: &Value) -> Markup {
    let text = |name: &str| feed[name].as_str().unwrap_or(NOTHING);
    let (total, last) = (&feed["total"], &feed["last"]);
    let counts = |counts: &Value| {
        html! { (count(&counts["sent"])) " sent, " (count(&counts["repeated"])) " repeated, " (count(&counts["skipped"])) " skipped, " (count(&counts["wrong"])) " wrong" }
    };
    let wrong = feed["errors"].as_array().map_or(&[][..], Vec::as_slice);
    html! {
        section {
            h2 { (text("name")) }
            p { (state(text("state"))) span .muted { " " (text("kind")) ", " (text("how")) } }
            @if let Some(error) = feed["error"].as_str().filter(|_| feed["state"] == "failing") {
                (alarm(&html! { p { strong { (count(&feed["failures"])) " failures in a row. " } (error) } }))
            }
            (facts(&[
                ("Where from", html! { (text("place")) }),
                ("Read", html! { (moment(&feed["read_at"], visit.now)) }),
                ("Worked", html! { (moment(&feed["worked_at"], visit.now)) }),
                ("Next", html! { (moment(&feed["next_at"], visit.now)) }),
                ("Known entries", html! { (count(&feed["known"])) }),
                ("Last document", counts(last)),
                ("Since the start", counts(total)),
            ]))
            @if !wrong.is_empty() {
                details hx-morph-skip="" {
                    summary { "Wrong entries" }
                    ul { @for entry in wrong { li { code { (entry["place"].as_str().unwrap_or_default()) } ": " (entry["reason"].as_str().unwrap_or_default()) } } }
                }
            }
            @if visit.is_operator() && feed["how"] == "polled" {
                div hx-morph-skip="" {
                    (action(&visit.token, "/console/act/poll", &[("name", text("name")), ("back", "/console/feeds")], &html! { button { "Read it now" } }))
                }
            }
        }
    }
}
