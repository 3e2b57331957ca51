//! One event: its state, what became of its devices, how long it took, and what an operator can do about it.

use std::collections::BTreeMap;

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::outcome::Outcomes;
use super::show::View;
use crate::html::{Column, Screen, action, empty, facts, field, is_problem, problem, state, table, tile};
use crate::visit::Visit;
use crate::words::{NOTHING, count, encoded, grouped, millis, moment, percent, provider};

pub(crate) async fn show(Path(id): Path<String>, visit: Visit) -> Response {
    let answer = visit.get(&format!("/v1/events/{}", encoded(&id))).await;
    let data = json!({"event": answer.body});
    let is_open = matches!(data["event"]["state"].as_str(), Some("waiting" | "running" | "paused"));
    let view = View { title: &id, is_live: is_open, ..View::of(Screen::Events) };
    view.show(&visit, answer.status, &data, |data| body(&visit, &id, &data["event"]))
}

fn body(visit: &Visit, id: &str, event: &Value) -> Markup {
    if is_problem(event) {
        return html! {
            (problem(event))
            p { a href="/console/events" { "All events" } }
        };
    }
    let word = event["state"].as_str().unwrap_or_default();
    html! {
        p .lead {
            (state(word))
            " · " (event["topic"].as_str().unwrap_or_default())
            " · accepted " (moment(&event["accepted_at"], visit.now))
            @if let Some(paused_by) = event["paused_by"].as_str() { " · held by the pause of " code { (paused_by) } }
            @if event["at"].is_string() { " · due " (moment(&event["at"], visit.now)) }
        }
        @if event["audience"].is_number() {
            (report(event))
        } @else {
            (empty("There are no numbers.", &html! {
                p { @if word == "forgotten" { "The job is done, and its numbers are no longer remembered (" code { "sender.report_count_max" } ")." }
                    @else { "The job has not begun." } }
            }))
        }
        (acts(visit, id, event))
        (more(visit, id, event))
    }
}

fn report(event: &Value) -> Markup {
    let outcomes = Outcomes::of(event);
    let times = &event["time_to"];
    let seen = &event["receipts"];
    html! {
        section .tiles aria-label="Numbers" {
            (tile("Devices", &count(&event["audience"]), "", &html! { (grouped(outcomes.done())) " have their outcome" }))
            (tile("Half of the answers in", &millis(&times["p50_ms"]), "", &html! { "first " (millis(&times["first_ms"])) }))
            (tile("99 % in", &millis(&times["p99_ms"]), "", &html! { "90 % in " (millis(&times["p90_ms"])) " · all in " (millis(&times["p100_ms"])) }))
            (tile("Received live", &seen["received"].as_u64().map_or_else(|| NOTHING.to_owned(), grouped), "",
                &html! { @if seen.is_object() { "of " (count(&seen["written"])) " asked" } @else { "no receipts are kept" } }))
        }
        section {
            h2 { "What became of the devices" }
            (outcomes.large())
        }
        (times_by(&event["time_to_by"]))
        (parts(&event["by"]))
    }
}

/// How long it took by each way, live among them.
fn times_by(times: &Value) -> Markup {
    let row = |(way, times): (&String, &Value)| {
        let cells = ["first_ms", "p50_ms", "p90_ms", "p99_ms", "p100_ms"].map(|name| html! { (millis(&times[name])) });
        [html! { (provider(&json!(way))) }].into_iter().chain(cells).collect::<Vec<_>>()
    };
    let rows: Vec<_> = times.as_object().into_iter().flatten().map(row).collect();
    let numbers = ["First", "Half in", "90 % in", "99 % in", "All in"].map(Column::Number);
    let columns: Vec<_> = [Column::Text("Way")].into_iter().chain(numbers).collect();
    html! { @if !rows.is_empty() { section { (table("Time until devices had it", &columns, &rows)) } } }
}

/// The devices that were handed to a provider, by provider and app, and by language.
fn parts(by: &Value) -> Markup {
    let mut by_app: BTreeMap<(&str, &str), [u64; 3]> = BTreeMap::new();
    let mut by_language: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
    for part in by.as_array().into_iter().flatten() {
        let (provider, app) = (provider(&part["provider"]), part["app"].as_str().unwrap_or(NOTHING));
        let counts = sorted(&part["outcomes"]);
        add(by_app.entry((provider, app)).or_default(), counts);
        add(by_language.entry(part["locale"].as_str().unwrap_or("source text")).or_default(), counts);
    }
    let cells = |[taken, refused, late]: &[u64; 3]| {
        let share = percent(*taken as f64, (taken + refused + late) as f64);
        [grouped(*taken), grouped(*refused), grouped(*late), share].map(|text| html! { (text) })
    };
    let apps = by_app.iter().map(|((provider, app), counts)| {
        [html! { (provider) " " span .muted { (app) } }].into_iter().chain(cells(counts)).collect::<Vec<_>>()
    });
    let languages = by_language
        .iter()
        .map(|(language, counts)| [html! { (language) }].into_iter().chain(cells(counts)).collect::<Vec<_>>());
    let (apps, languages): (Vec<_>, Vec<_>) = (apps.collect(), languages.collect());
    let columns = |first| {
        let numbers = ["Taken", "Refused", "Late or unknown", "Share taken"].map(Column::Number);
        [Column::Text(first)].into_iter().chain(numbers).collect::<Vec<_>>()
    };
    html! {
        @if !apps.is_empty() {
            section { (table("By provider and app", &columns("Provider"), &apps)) }
            section { (table("By language", &columns("Language"), &languages)) }
        }
    }
}

/// Outcomes as taken, refused, and late or unknown.
fn sorted(outcomes: &Value) -> [u64; 3] {
    let number = |name: &str| outcomes[name].as_u64().unwrap_or_default();
    let rejected = outcomes["rejected"].as_object();
    let rejected = rejected.map_or(0, |reasons| reasons.values().filter_map(Value::as_u64).sum());
    [number("accepted"), rejected, number("expired") + number("unknown")]
}

fn add(sum: &mut [u64; 3], counts: [u64; 3]) {
    for (sum, count) in sum.iter_mut().zip(counts) {
        *sum += count;
    }
}

fn acts(visit: &Visit, id: &str, event: &Value) -> Markup {
    let is_open = matches!(event["state"].as_str(), Some("scheduled" | "waiting" | "running" | "paused"));
    let topic = event["topic"].as_str().unwrap_or_default();
    let back = format!("/console/events/{}", encoded(id));
    html! {
        @if visit.is_operator() && is_open {
            section .acts hx-morph-skip="" aria-label="Actions" {
                (action(&visit.token, "/console/act/cancel", &[("id", id), ("back", &back)], &html! {
                    button .danger { "Cancel this event" }
                }))
                @if !topic.is_empty() {
                    (action(&visit.token, "/console/act/pause", &[("scope", &format!("topic:{topic}")), ("back", &back)], &html! {
                        button { "Pause topic " (topic) }
                    }))
                }
            }
        }
    }
}

fn more(visit: &Visit, id: &str, event: &Value) -> Markup {
    let channels = event["channels"].as_array().map_or(&[][..], Vec::as_slice);
    let channel = |it: &Value| {
        let name = it["channel"].as_str().unwrap_or_default();
        html! { a href={ "/console/channels/" (encoded(name)) } { (name) } " at " (count(&it["offset"])) " " }
    };
    html! {
        section {
            h2 { "More" }
            (facts(&[
                ("Priority", html! { (event["priority"].as_str().unwrap_or(NOTHING)) }),
                ("Position in the journal", html! { (count(&event["position"])) }),
                ("Done", html! { (moment(&event["done_at"], visit.now)) }),
                ("Repeated attempts", html! { (count(&event["retried"])) }),
                ("Published in", html! { @if channels.is_empty() { "no channel" } @else { @for it in channels { (channel(it)) } } }),
            ]))
            form .find hx-morph-skip="" method="get" action="/console/why" {
                input type="hidden" name="event" value=(id);
                (field("Why did a device get it, or not?", "device", "", "the device’s id"))
                button { "Show" }
            }
        }
    }
}
