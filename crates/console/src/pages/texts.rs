//! The texts in force: how far each language is, what is wrong, and the way forward and back.

use axum::response::Response;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::show::View;
use crate::html::{Column, Screen, action, alarm, bar, command, empty, or_problem, table, tile};
use crate::visit::Visit;
use crate::words::{count, grouped, moment, percent};

/// Topics that are named in a row.
const NAMED_COUNT: usize = 6;

pub(crate) async fn show(visit: Visit) -> Response {
    let answer = visit.get("/v1/texts").await;
    let data = json!({"texts": answer.body});
    View::of(Screen::Texts)
        .show(&visit, answer.status, &data, |data| or_problem(&data["texts"], |texts| body(&visit, texts)))
}

fn body(visit: &Visit, texts: &Value) -> Markup {
    let topics = texts["topics"].as_u64().unwrap_or_default();
    let faults = texts["faults"].as_array().map_or(&[][..], Vec::as_slice);
    let coverage = texts["coverage"].as_array().map_or(&[][..], Vec::as_slice);
    html! {
        @if !faults.is_empty() {
            (alarm(&html! {
                p { strong { "The texts that were read last are wrong. Those before are in force." } }
                ul { @for fault in faults { li { (fault.as_str().unwrap_or_default()) } } }
            }))
        }
        section .tiles aria-label="Numbers" {
            (tile("Topics", &grouped(topics), "", &html! { "in force since " (moment(&texts["since"], visit.now)) }))
            (tile("Languages", &grouped(coverage.len() as u64), "", &html! { "besides the source texts" }))
        }
        (acts(visit, texts))
        @if topics == 0 {
            (empty("There are no topics.", &html! {
                p { "A topic has the text of its notifications. Add one to the configuration, and read the texts again:" }
                (command("[topics.goal]\ntitle = \"Goal for %{team}!\"\nbody = \"%{scorer} scores in minute %{minute}.\""))
            }))
        } @else if coverage.is_empty() {
            (empty("Everybody gets the source texts.", &html! {
                p { "To have translations, write the catalogues for translators:" }
                (command("tidings translations extract"))
            }))
        } @else {
            (languages(topics, coverage))
        }
    }
}

fn acts(visit: &Visit, texts: &Value) -> Markup {
    let back = [("back", "/console/texts")];
    html! {
        @if visit.is_operator() {
            div .acts {
                (action(&visit.token, "/console/act/reload", &back, &html! { button { "Read the texts again" } }))
                @if texts["can_roll_back"] == true {
                    (action(&visit.token, "/console/act/rollback", &back, &html! { button .danger { "Back to the texts before" } }))
                }
            }
        }
    }
}

fn languages(topics: u64, coverage: &[Value]) -> Markup {
    let row = |language: &Value| {
        let translated = language["translated"].as_u64().unwrap_or_default();
        let missing: Vec<&str> =
            language["missing"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let share = percent(translated as f64, topics as f64);
        let more = (topics - translated.min(topics)).saturating_sub(missing.len().min(NAMED_COUNT) as u64);
        vec![
            html! { (language["locale"].as_str().unwrap_or_default()) },
            html! { span .progress { (bar(&share, topics, &[("accepted", translated)])) span .n { (share) } } },
            html! { (count(&language["translated"])) " of " (grouped(topics)) },
            html! {
                @if missing.is_empty() { span .muted { "nothing" } }
                @for topic in missing.iter().take(NAMED_COUNT) { code { (topic) } " " }
                @if more > 0 { span .muted { "and " (grouped(more)) " more" } }
            },
        ]
    };
    let rows: Vec<_> = coverage.iter().map(row).collect();
    let columns = [Column::Text("Language"), Column::Text("Coverage"), Column::Number("Topics"), Column::Text("Lacks")];
    html! { section { (table("Languages", &columns, &rows)) } }
}
