//! Who an event would be for: a selector becomes a count, by platform, language, country and app, and a sample.

use axum::http::{Method, StatusCode};
use axum::response::Response;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::show::View;
use crate::html::{Column, Screen, empty, field, is_problem, problem, shares, table, tile};
use crate::visit::Visit;
use crate::words::{count, encoded, millis, plain, provider};

/// What people can begin with.
const EXAMPLES: [&str; 3] = ["all", "goal on team:42 and not country = SE", "locale = pl and platform = ios"];

pub(crate) async fn show(visit: Visit) -> Response {
    let selector = visit.query.get("selector");
    let mut data = Map::new();
    let mut status = StatusCode::OK;
    if !selector.is_empty() {
        let explain = visit.call(Method::POST, "/v1/audience/explain", Some(json!({"selector": selector}))).await;
        status = explain.status;
        if status.is_success() {
            let asked = json!({"topic": "console", "subjects": ["console:preview"], "to": {"selector": selector}});
            let counted = visit.call(Method::POST, "/v1/audience/preview?sample=10", Some(asked)).await;
            status = counted.status;
            data.insert("preview".to_owned(), counted.body);
        }
        data.insert("explain".to_owned(), explain.body);
    }
    View::of(Screen::Audience).show(&visit, status, &Value::Object(data), |data| body(&visit, data))
}

fn body(visit: &Visit, data: &Value) -> Markup {
    let (explain, preview) = (&data["explain"], &data["preview"]);
    html! {
        form .find method="get" action="/console/audience" {
            (field("Selector", "selector", visit.query.get("selector"), EXAMPLES[1]))
            button { "Count" }
        }
        @if is_problem(explain) { (problem(explain)) }
        @if is_problem(preview) { (problem(preview)) }
        @if preview["total"].is_number() { (counted(preview)) }
        @if explain.is_object() && !is_problem(explain) { (explained(explain)) }
        @if !explain.is_object() {
            (empty("Nobody is counted yet.", &html! {
                p { "Write a selector, such as one of these. Counting reads, and sends nothing." }
                ul {
                    @for example in EXAMPLES { li { a href={ "/console/audience?selector=" (encoded(example)) } { code { (example) } } } }
                }
            }))
        }
    }
}

fn counted(preview: &Value) -> Markup {
    let sample = preview["sample"].as_array().map_or(&[][..], Vec::as_slice);
    html! {
        section .tiles aria-label="Numbers" {
            (tile("Devices", &count(&preview["total"]), "", &html! { "counted now" }))
            @for estimate in preview["estimate"].as_array().map_or(&[][..], Vec::as_slice) {
                @let minutes = estimate["minutes"].as_f64();
                (tile(
                    &format!("Time by {}, {}", provider(&estimate["provider"]), estimate["pool"].as_str().unwrap_or_default()),
                    &millis(&json!(minutes.map(|minutes| minutes * 60_000.0))),
                    "",
                    &html! { (count(&estimate["devices"])) " devices" @if let Some(limit) = estimate["limited_by"].as_str() { ", limited by " (plain(limit)) } },
                ))
            }
        }
        div .columns {
            (shares("By platform", &preview["by_platform"]))
            (shares("By language", &preview["by_locale"]))
            (shares("By country", &preview["by_country"]))
            (shares("By app", &preview["by_app"]))
        }
        @if !sample.is_empty() {
            section {
                h2 { "Some of them" }
                ul .chips {
                    @for id in sample.iter().filter_map(Value::as_str) { li { a href={ "/console/why?device=" (encoded(id)) } { (id) } } }
                }
            }
        }
    }
}

/// What each part of the selector means.
fn explained(explain: &Value) -> Markup {
    let mut rows = Vec::new();
    collect(&explain["tree"], 0, &mut rows);
    html! {
        section {
            (table("What each part of it means", &[Column::Text("Part"), Column::Number("Devices")], &rows))
            p .muted { "of " (count(&explain["of"])) " devices; " (count(&explain["unmuted"])) " of them have not muted everything" }
        }
    }
}

/// Walks the tree of parts, which is at most as deep as a selector may be.
fn collect(part: &Value, depth: usize, rows: &mut Vec<Vec<Markup>>) {
    let (indent, text) = ("\u{2003}".repeat(depth.min(8)), part["text"].as_str().unwrap_or_default());
    rows.push(vec![html! { (indent) code { (text) } }, html! { (count(&part["devices"])) }]);
    for part in part["parts"].as_array().into_iter().flatten() {
        collect(part, depth + 1, rows);
    }
}
