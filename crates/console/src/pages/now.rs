//! What happens now: six numbers, what is paused, the jobs that run, and what was refused in the last hour.

use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::outcome::Outcomes;
use super::show::View;
use crate::html::{
    Column, Screen, action, alarm, command, empty, field, is_problem, problem, shares, state, table, tile,
};
use crate::visit::Visit;
use crate::words::{age, clock, count, encoded, grouped, millis, moment, percent, rate, span};

/// The newest jobs, in which those that run are looked for.
const JOB_COUNT: usize = 200;
/// Jobs that are shown.
const SHOWN_COUNT: usize = 12;

pub(crate) async fn show(visit: Visit) -> Response {
    let path = format!("/v1/jobs?limit={JOB_COUNT}");
    let (jobs, brakes) = tokio::join!(visit.get(&path), visit.get("/v1/brakes"));
    let data = json!({"numbers": visit.shared.samples.now(), "jobs": jobs.body, "brakes": brakes.body});
    let view = View { is_live: true, has_charts: true, ..View::of(Screen::Now) };
    view.show(&visit, StatusCode::OK, &data, |data| body(&visit, data))
}

fn body(visit: &Visit, data: &Value) -> Markup {
    let (numbers, jobs) = (&data["numbers"], &data["jobs"]);
    let all = jobs["jobs"].as_array().map_or(&[][..], Vec::as_slice);
    let is_open = |job: &&Value| matches!(job["state"].as_str(), Some("running" | "paused"));
    let open: Vec<&Value> = all.iter().filter(is_open).collect();
    html! {
        p .asof { "At " (clock(visit.now)) " UTC" }
        (brakes(visit, &data["brakes"]))
        (tiles(visit, numbers, &open, jobs["next"].is_number()))
        section .charts hx-morph-skip="" {
            h2 .unseen { "The last hour" }
            (chart("Pushes a second", "apns fcm web_push", "APNs,FCM,Web Push", "rate"))
            (chart("Live deliveries a second", "deliveries", "deliveries", "rate"))
            (chart("From an event to the provider’s answer, 99 %", "push_ms", "time", "ms"))
        }
        @if is_problem(jobs) {
            (problem(jobs))
        } @else if all.is_empty() {
            (first_event(visit))
        } @else {
            (list(visit, if open.is_empty() { "Latest events" } else { "Running now" }, all, &open))
        }
        (shares("Refused in the last hour, by reason", &numbers["refused_last_hour"]))
        (pause(visit))
    }
}

fn brakes(visit: &Visit, brakes: &Value) -> Markup {
    let paused = brakes["brakes"].as_array().map_or(&[][..], Vec::as_slice);
    html! {
        @if !paused.is_empty() {
            (alarm(&html! {
                p { strong { (paused.len()) @if paused.len() == 1 { " pause is" } @else { " pauses are" } " in force: pushes are held." } }
                ul .rows {
                    @for brake in paused {
                        @let scope = brake["scope"].as_str().unwrap_or_default();
                        li {
                            span { code { (scope) } " since " (moment(&brake["paused_at"], visit.now)) }
                            @if visit.is_operator() {
                                (action(&visit.token, "/console/act/resume", &[("scope", scope), ("back", "/console")], &html! {
                                    button { "Resume " (scope) }
                                }))
                            }
                        }
                    }
                }
            }))
        }
        @if is_problem(brakes) { (problem(brakes)) }
    }
}

/// The way to hold pushes.
fn pause(visit: &Visit) -> Markup {
    html! {
        @if visit.is_operator() {
            section hx-morph-skip="" {
                h2 { "Hold pushes" }
                (action(&visit.token, "/console/act/pause", &[("back", "/console")], &html! {
                    (field("Pause pushes of", "scope", "", "everything, topic:goal, app:com.example.app, provider:fcm"))
                    button .danger { "Pause" }
                }))
            }
        }
    }
}

/// `has_older`: there are jobs that were not looked at.
fn tiles(visit: &Visit, numbers: &Value, open: &[&Value], has_older: bool) -> Markup {
    let hour = &numbers["last_hour"];
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let pushes = ["apns", "fcm", "web_push"].map(|provider| (provider, number(&numbers[provider])));
    let pushed: f64 = pushes.iter().map(|(_, rate)| rate).sum();
    let in_hour: f64 = ["apns", "fcm", "web_push"].iter().map(|provider| number(&hour[*provider])).sum();
    let saved = number(&hour["saved"]);
    let oldest = open.iter().filter_map(|job| age(&job["accepted_at"], visit.now)).max();
    html! {
        section .tiles aria-label="Numbers" {
            (tile("Events", &rate(&numbers["events"]), "a second", &html! { (count(&hour["events"])) " in the last hour" }))
            (tile("Live deliveries", &rate(&numbers["deliveries"]), "a second",
                &html! { (count(&numbers["connections"])) " connections" }))
            (tile("Pushes", &rate(&json!(pushed)), "a second", &html! {
                "APNs " (rate(&json!(pushes[0].1))) " · FCM " (rate(&json!(pushes[1].1))) " · Web " (rate(&json!(pushes[2].1)))
            }))
            (tile("Saved by receipts", &grouped(saved as u64), "",
                &html! { (percent(saved, saved + in_hour)) " in the last hour" }))
            (tile("Event to push, 99 %", &millis(&numbers["push_ms"]), "",
                &html! { "live " (millis(&numbers["live_ms"])) " · accepted in " (millis(&numbers["accept_ms"])) }))
            (tile("Oldest open job", &oldest.map_or_else(|| "none".to_owned(), span), "",
                &html! { (open.len()) " open" @if has_older { " of the newest " (JOB_COUNT) } " · " (count(&numbers["lakes"])) " waiting for a connection" }))
        }
    }
}

/// A chart of the last hour. The script finds the numbers in `/console/samples`.
fn chart(title: &str, columns: &str, names: &str, unit: &str) -> Markup {
    html! {
        figure {
            figcaption { (title) }
            div .chart data-columns=(columns) data-names=(names) data-unit=(unit) {
                noscript { p .muted { "The chart needs a script; the numbers are at " a href="/console/samples" { "/console/samples" } "." } }
            }
        }
    }
}

fn list(visit: &Visit, title: &str, all: &[Value], open: &[&Value]) -> Markup {
    let shown: Vec<&Value> = if open.is_empty() { all.iter().collect() } else { open.to_vec() };
    let columns = [
        Column::Text("Event"),
        Column::Text("Topic"),
        Column::Text("State"),
        Column::Number("Devices"),
        Column::Text("Done"),
        Column::Number("Refused"),
        Column::Text("Accepted"),
    ];
    let row = |job: &&Value| {
        let outcomes = Outcomes::of(job);
        let id = job["id"].as_str().unwrap_or_default();
        vec![
            html! { a href={ "/console/events/" (encoded(id)) } { (id) } },
            html! { (job["topic"].as_str().unwrap_or_default()) },
            html! { (state(job["state"].as_str().unwrap_or_default())) },
            html! { (count(&job["audience"])) },
            outcomes.small(),
            html! { (grouped(outcomes.rejected())) },
            html! { (moment(&job["accepted_at"], visit.now)) },
        ]
    };
    let rows: Vec<_> = shown.iter().take(SHOWN_COUNT).map(row).collect();
    html! {
        section {
            (table(title, &columns, &rows))
            p { a href="/console/events" { "All events" } }
        }
    }
}

/// What to do when nothing has happened yet.
fn first_event(visit: &Visit) -> Markup {
    let host = &visit.host;
    empty(
        "No event yet.",
        &html! {
            p { "Post one, and see it here within two seconds. The key is that of your back end:" }
            (command(&format!(
                "curl -H \"X-API-Key: $KEY\" http://{host}/v1/events -d '\n{{\"id\": \"first\", \"topic\": \"hello\", \
                 \"subjects\": [\"match:1\"],\n \"text\": {{\"en\": {{\"title\": \"Hello\", \"body\": \"It works.\"}}}}}}'"
            )))
        },
    )
}
