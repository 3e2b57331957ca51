//! The server itself: its load, its store, its disk, and the memory that its limits allow; who did what.

use axum::response::Response;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::show::View;
use crate::html::{Column, Screen, alarm, facts, is_problem, or_problem, problem, table, tile};
use crate::visit::Visit;
use crate::words::{NOTHING, bytes, count, moment, percent, span};

/// Less free space than this share is to be seen.
const DISK_SHARE_MIN: f64 = 0.15;

pub(crate) async fn show(visit: Visit) -> Response {
    let (answer, audit) = tokio::join!(visit.get("/v1/system"), visit.get("/v1/audit?limit=20"));
    let data = json!({"system": answer.body, "logins": visit.shared.sessions.count(), "audit": audit.body});
    let view = View { is_live: true, ..View::of(Screen::System) };
    view.show(&visit, answer.status, &data, |data| {
        html! {
            (or_problem(&data["system"], |system| body(system, &data["logins"])))
            (audit_log(&visit, &data["audit"]))
        }
    })
}

/// Who changed what, the newest first.
fn audit_log(visit: &Visit, page: &Value) -> Markup {
    let row = |entry: &Value| {
        let ids =
            entry["ids"].as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
        let more = entry["more_ids"].as_u64().map(|more| format!(" and {more} more")).unwrap_or_default();
        vec![
            html! { (moment(&entry["at"], visit.now)) },
            html! { (entry["who"].as_str().unwrap_or_default()) },
            html! { (entry["action"].as_str().unwrap_or_default()) },
            html! { code { (ids) (more) } },
            html! { (count(&entry["result"])) },
        ]
    };
    let rows: Vec<_> = page["entries"].as_array().into_iter().flatten().map(row).collect();
    let columns = [
        Column::Text("When"),
        Column::Text("Who"),
        Column::Text("What"),
        Column::Text("Of what"),
        Column::Number("Answer"),
    ];
    if page["status"] == 404 {
        return html! {}; // There is no audit log.
    }
    html! {
        section {
            @if is_problem(page) {
                h2 { "Who changed what" }
                (problem(page))
            } @else if rows.is_empty() {
                h2 { "Who changed what" }
                p .muted { "Nobody has changed anything yet." }
            } @else {
                (table("Who changed what, the newest first", &columns, &rows))
            }
        }
    }
}

fn body(system: &Value, logins: &Value) -> Markup {
    let (clients, store, process) = (&system["clients"], &system["store"], &system["process"]);
    let disk = &system["disk"];
    let (free, total) = (disk["free_bytes"].as_f64().unwrap_or(1.0), disk["total_bytes"].as_f64().unwrap_or(1.0));
    let files =
        (process["open_files"].as_f64().unwrap_or_default(), process["open_files_max"].as_f64().unwrap_or_default());
    html! {
        @if store["status"] != "ok" {
            (alarm(&html! { p { strong { "The store refuses writes. " } "Events are refused until the disk works again; the server tries by itself." } }))
        }
        @if free / total < DISK_SHARE_MIN {
            (alarm(&html! { p { strong { "The disk is nearly full: " (bytes(&disk["free_bytes"])) " are free. " } "When it is full, events are refused." } }))
        }
        section .tiles aria-label="Numbers" {
            (tile("Memory", &bytes(&process["resident_bytes"]), "", &html! { "resident" }))
            (tile("Disk", &bytes(&disk["free_bytes"]), "", &html! { "free · " (percent(total - free, total)) " used" }))
            (tile("Connections", &count(&clients["connections"]), "", &html! { (count(&clients["slow_closed"])) " closed as too slow" }))
            (tile("Devices", &count(&store["devices"]), "", &html! { (count(&store["subscriptions"])) " subscriptions" }))
            (tile("Up for", &system["uptime_seconds"].as_u64().map_or_else(|| NOTHING.to_owned(), span), "", &html! { "version " (system["version"].as_str().unwrap_or(NOTHING)) }))
            (tile("Open files", &count(&process["open_files"]), "", &html! { (percent(files.0, files.1)) " of the limit" }))
        }
        div .columns {
            section {
                h2 { "Store" }
                (facts(&[
                    ("Batches written", count_of(&store["batches"])),
                    ("Requests in them", count_of(&store["requests"])),
                    ("Refused, a queue was full", count_of(&store["overloaded"])),
                    ("Failures of the disk", count_of(&store["failures"])),
                    ("Opened again", count_of(&store["reopened"])),
                    ("Checkpoints", html! { (count(&store["checkpoints"])) ", " (count(&store["checkpoints_failed"])) " failed" }),
                    ("Scheduled events", count_of(&store["scheduled"])),
                    ("Heap of devices", html! { (bytes(&store["heap_bytes"])) ", of these in use " (bytes(&store["heap_live_bytes"])) }),
                ]))
            }
            section {
                h2 { "Process" }
                (facts(&[
                    ("Processor time", html! { (process["cpu_seconds"].as_u64().map_or_else(|| NOTHING.to_owned(), span)) }),
                    ("Threads", count_of(&process["threads"])),
                    ("Channels", count_of(&clients["channels"])),
                    ("Users connected", count_of(&clients["users"])),
                    ("Listeners", listeners(&system["listeners"])),
                    ("Logins in the console", count_of(logins)),
                    ("Node", html! { code { (system["node"].as_str().unwrap_or(NOTHING)) } }),
                ]))
            }
        }
        (memory(&system["memory"]))
    }
}

fn count_of(value: &Value) -> Markup {
    html! { (count(value)) }
}

fn listeners(all: &Value) -> Markup {
    html! {
        @for listener in all.as_array().into_iter().flatten() {
            (listener["name"].as_str().unwrap_or_default()) " " code { (listener["address"].as_str().unwrap_or_default()) } " "
        }
    }
}

/// What the limits of the configuration allow, the largest first.
fn memory(terms: &Value) -> Markup {
    let mut terms: Vec<&Value> = terms.as_array().into_iter().flatten().collect();
    let size = |term: &&Value| term["bytes"].as_u64().unwrap_or_default();
    terms.sort_by_key(|term| std::cmp::Reverse(size(term)));
    let sum = |is_peak: bool| {
        terms.iter().filter(|term| is_peak || term["is_peak"] == false).map(size).fold(0, u64::saturating_add)
    };
    let row = |term: &&Value| {
        vec![
            html! { (term["name"].as_str().unwrap_or_default()) },
            html! { (bytes(&term["bytes"])) },
            html! { @if term["is_peak"] == true { "while full" } @else { "always, when every count is reached" } },
            html! { code { (term["settings"].as_str().unwrap_or_default()) } },
        ]
    };
    let rows: Vec<_> = terms.iter().filter(|term| size(term) > 0).map(row).collect();
    let columns = [Column::Text("What for"), Column::Number("At most"), Column::Text("When"), Column::Text("Settings")];
    html! {
        section {
            h2 { "Bounds of memory" }
            p { (bytes(&json!(sum(false)))) " when every count is reached, " (bytes(&json!(sum(true)))) " while also every buffer is full." }
            details hx-morph-skip="" {
                summary { "Term by term" }
                (table("Terms", &columns, &rows))
            }
        }
    }
}
