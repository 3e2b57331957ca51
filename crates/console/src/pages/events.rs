//! All events that are remembered, newest first, and those that are scheduled.

use axum::http::{Method, StatusCode};
use axum::response::Response;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::outcome::Outcomes;
use super::show::View;
use crate::answers::{Wanted, see};
use crate::html::{Column, Screen, empty, field, or_problem, state, table};
use crate::visit::Visit;
use crate::words::{capital, count, encoded, grouped, moment, plain};

/// The states by which events can be picked.
const STATES: [&str; 4] = ["running", "paused", "finished", "cancelled"];

pub(crate) async fn show(visit: Visit) -> Response {
    let id = visit.query.get("id");
    if !id.is_empty() && visit.wanted != Wanted::Json {
        return see(&format!("/console/events/{}", encoded(id)));
    }
    let before = visit.query.get("before");
    let path = match before.parse::<u64>() {
        Ok(before) => format!("/v1/jobs?limit=100&before={before}"),
        Err(_) => "/v1/jobs?limit=100".to_owned(),
    };
    let (jobs, later) = tokio::join!(visit.get(&path), visit.call(Method::GET, "/v1/events?state=scheduled", None));
    let data = json!({"jobs": jobs.body, "scheduled": later.body});
    let view = View { is_live: before.is_empty(), ..View::of(Screen::Events) };
    view.show(&visit, StatusCode::OK, &data, |data| body(&visit, data))
}

fn body(visit: &Visit, data: &Value) -> Markup {
    let wanted = visit.query.get("state");
    html! {
        div .bar-of-filters hx-morph-skip="" {
            form .find method="get" action="/console/events" {
                (field("Find an event by its id", "id", "", "goal-1"))
                button { "Find" }
            }
            nav .chips aria-label="States" {
                a href="/console/events" aria-current=[wanted.is_empty().then_some("true")] { "All" }
                @for each in STATES {
                    a href={ "/console/events?state=" (each) } aria-current=[(wanted == each).then_some("true")] { (capital(each)) }
                }
            }
        }
        (or_problem(&data["jobs"], |page| list(visit, page, wanted)))
        (or_problem(&data["scheduled"], |page| scheduled(visit, page)))
    }
}

fn list(visit: &Visit, page: &Value, wanted: &str) -> Markup {
    let all = page["jobs"].as_array().map_or(&[][..], Vec::as_slice);
    let picked = all.iter().filter(|job| wanted.is_empty() || job["state"].as_str() == Some(wanted));
    let rows: Vec<_> = picked.map(|job| row(visit, job)).collect();
    let columns = [
        Column::Text("Event"),
        Column::Text("Topic"),
        Column::Text("Priority"),
        Column::Text("State"),
        Column::Number("Devices"),
        Column::Text("Done"),
        Column::Number("Refused"),
        Column::Text("Accepted"),
    ];
    html! {
        @if rows.is_empty() {
            (empty("No such event here.", &html! {
                p { "Events appear here when their job begins. " a href="/console" { "Post the first one" } ", pick another state, or look at older events." }
            }))
        } @else {
            (table("Events", &columns, &rows))
        }
        @if let Some(next) = page["next"].as_u64() {
            p { a href=(visit.with("before", &next.to_string())) { "Older events" } }
        }
    }
}

fn row(visit: &Visit, job: &Value) -> Vec<Markup> {
    let outcomes = Outcomes::of(job);
    let id = job["id"].as_str().unwrap_or_default();
    vec![
        html! { a href={ "/console/events/" (encoded(id)) } { (id) } },
        html! { (job["topic"].as_str().unwrap_or_default()) },
        html! { (job["priority"].as_str().unwrap_or_default()) },
        html! { (state(job["state"].as_str().unwrap_or_default())) },
        html! { (count(&job["audience"])) },
        outcomes.small(),
        html! { (grouped(outcomes.rejected())) },
        html! { (moment(&job["accepted_at"], visit.now)) },
    ]
}

fn scheduled(visit: &Visit, page: &Value) -> Markup {
    let all = page["events"].as_array().map_or(&[][..], Vec::as_slice);
    let row = |event: &Value| {
        let id = event["id"].as_str().unwrap_or_default();
        vec![
            html! { a href={ "/console/events/" (encoded(id)) } { (id) } },
            html! { (event["topic"].as_str().unwrap_or_default()) },
            html! { (moment(&event["at"], visit.now)) },
            html! { (plain(event["state"].as_str().unwrap_or_default())) },
        ]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    let columns = [Column::Text("Event"), Column::Text("Topic"), Column::Text("Due"), Column::Text("State")];
    html! {
        @if !rows.is_empty() { (table("Scheduled", &columns, &rows)) }
    }
}
