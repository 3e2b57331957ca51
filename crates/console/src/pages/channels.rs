//! Live channels: which have readers, and of one its position, its history, who is there, and what comes for a minute.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::show::View;
use crate::answers::{Wanted, see};
use crate::html::{Column, Screen, command, empty, field, is_problem, or_problem, problem, table, tile};
use crate::visit::Visit;
use crate::words::{NOTHING, count, encoded, grouped};

/// Channels that are shown.
const SHOWN_COUNT: usize = 200;
/// Publications that are shown.
const PUBLICATION_COUNT: usize = 20;
/// People of a channel that are shown.
const PRESENCE_COUNT: usize = 50;
/// How long a tap is open, in milliseconds.
const TAP_MILLIS: u64 = 60_000;

pub(crate) async fn list(visit: Visit) -> Response {
    let name = visit.query.get("name");
    if !name.is_empty() && visit.wanted != Wanted::Json {
        return see(&format!("/console/channels/{}", encoded(name)));
    }
    let pattern = Some(visit.query.get("pattern")).filter(|pattern| !pattern.is_empty()).unwrap_or("*");
    let (channels, info) =
        tokio::join!(visit.read("channels", json!({"pattern": pattern})), visit.read("info", json!({})));
    let data = json!({"channels": channels, "info": info});
    let view = View { is_live: true, ..View::of(Screen::Channels) };
    view.show(&visit, StatusCode::OK, &data, |data| all(&visit, data))
}

fn all(visit: &Visit, data: &Value) -> Markup {
    let node = &data["info"]["nodes"][0];
    html! {
        div .bar-of-filters hx-morph-skip="" {
            form .find method="get" action="/console/channels" {
                (field("Open a channel", "name", "", "match:1"))
                button { "Open" }
            }
            form .find method="get" action="/console/channels" {
                (field("Only channels like", "pattern", visit.query.get("pattern"), "match:*"))
                button { "Filter" }
            }
        }
        section .tiles aria-label="Numbers" {
            (tile("Connections", &count(&node["num_clients"]), "", &html! { (count(&node["num_users"])) " users" }))
            (tile("Channels", &count(&node["num_channels"]), "", &html! { "with a reader or a history" }))
            (tile("Subscriptions", &count(&node["num_subs"]), "", &html! { "of live connections" }))
        }
        (or_problem(&data["channels"], read_channels))
    }
}

fn read_channels(page: &Value) -> Markup {
    let mut all: Vec<(&String, u64)> = page["channels"]
        .as_object()
        .map(|all| all.iter().map(|(name, it)| (name, it["num_clients"].as_u64().unwrap_or_default())).collect())
        .unwrap_or_default();
    all.sort_by(|(a, a_count), (b, b_count)| b_count.cmp(a_count).then(a.cmp(b)));
    let row = |(name, readers): &(&String, u64)| {
        vec![html! { a href={ "/console/channels/" (encoded(name)) } { (name) } }, html! { (grouped(*readers)) }]
    };
    let rows: Vec<_> = all.iter().take(SHOWN_COUNT).map(row).collect();
    html! {
        @if rows.is_empty() {
            (empty("Nobody reads a channel.", &html! {
                p { "A channel appears here when a client subscribes. To be one yourself:" }
                (command("tidings subscribe match:1"))
            }))
        } @else {
            section {
                (table("Channels with readers, the fullest first", &[Column::Text("Channel"), Column::Number("Readers")], &rows))
                @if all.len() > SHOWN_COUNT { p .muted { "and " (grouped((all.len() - SHOWN_COUNT) as u64)) " more" } }
            }
        }
    }
}

pub(crate) async fn one(Path(name): Path<String>, visit: Visit) -> Response {
    let channel = json!({"channel": name});
    let newest = json!({"channel": name, "limit": PUBLICATION_COUNT, "reverse": true});
    let exact = json!({"pattern": name});
    let (history, presence, readers) =
        tokio::join!(visit.read("history", newest), visit.read("presence", channel), visit.read("channels", exact));
    let mut data =
        json!({"channel": name, "history": history, "presence": presence, "readers": readers["channels"][&name]});
    if visit.query.get("payloads") != "show" {
        hide_payloads(&mut data["history"]);
    }
    // A tap is open until this moment, which its address says.
    let is_tapped =
        visit.query.get("tap").parse::<u64>().is_ok_and(|until| (visit.now..=visit.now + TAP_MILLIS).contains(&until));
    let view = View { title: &name, is_live: is_tapped, ..View::of(Screen::Channels) };
    view.show(&visit, StatusCode::OK, &data, |data| channel_body(&visit, is_tapped, data))
}

/// What was published is shown only to who asks for it.
fn hide_payloads(history: &mut Value) {
    for publication in history["publications"].as_array_mut().into_iter().flatten() {
        let bytes = publication["data"].to_string().len();
        if let Some(publication) = publication.as_object_mut() {
            publication.remove("data");
            publication.insert("data_bytes".to_owned(), json!(bytes));
        }
    }
}

fn channel_body(visit: &Visit, is_tapped: bool, data: &Value) -> Markup {
    let (history, presence) = (&data["history"], &data["presence"]);
    html! {
        p { a href="/console/channels" { "All channels" } }
        section .tiles aria-label="Numbers" {
            (tile("Readers", &count(&data["readers"]["num_clients"]).replace(NOTHING, "0"), "", &html! { "now" }))
            (tile("Position", &count(&history["offset"]), "", &html! { "epoch " code { (history["epoch"].as_str().unwrap_or(NOTHING)) } }))
            (tile("People", &people(presence).map_or_else(|| NOTHING.to_owned(), |people| grouped(people.len() as u64)), "",
                &html! { @if is_problem(presence) { "no presence here" } @else { "connections with presence" } }))
        }
        (tap(visit, is_tapped))
        @if is_problem(history) {
            (problem(history))
            p .muted { "Without a history a tap shows nothing: it reads the newest publications again and again." }
        } @else {
            (publications(visit, history))
        }
        (here(presence))
    }
}

fn tap(visit: &Visit, is_tapped: bool) -> Markup {
    let is_shown = visit.query.get("payloads") == "show";
    html! {
        p .acts {
            @if is_tapped {
                span .state.busy { "Live, for " (left(visit)) " seconds more" }
                a href=(visit.uri.path()) { "Stop" }
            } @else {
                a href=(visit.with("tap", &(visit.now + TAP_MILLIS - 1).to_string())) { "Look on live for a minute" }
            }
            @if is_shown { a href=(visit.with("payloads", "hide")) { "Hide what is said" } }
            @else { a href=(visit.with("payloads", "show")) { "Show what is said" } }
        }
    }
}

fn left(visit: &Visit) -> u64 {
    visit.query.get("tap").parse::<u64>().map_or(0, |until| until.saturating_sub(visit.now) / 1000)
}

fn publications(visit: &Visit, history: &Value) -> Markup {
    let all = history["publications"].as_array().map_or(&[][..], Vec::as_slice);
    let is_shown = visit.query.get("payloads") == "show";
    let row = |it: &Value| {
        let tags = it["tags"].as_object().map(|tags| tags.keys().cloned().collect::<Vec<_>>().join(", "));
        let data = if is_shown { it["data"].to_string() } else { format!("{} bytes", count(&it["data_bytes"])) };
        vec![html! { (count(&it["offset"])) }, html! { code { (data) } }, html! { (tags.unwrap_or_default()) }]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    let columns = [Column::Number("Offset"), Column::Text("Publication"), Column::Text("Tags")];
    html! {
        @if rows.is_empty() {
            (empty("The history is empty.", &html! { p { "Nothing was published here, or it is older than the history’s time." } }))
        } @else {
            section { (table("The newest publications", &columns, &rows)) }
        }
    }
}

fn people(presence: &Value) -> Option<&serde_json::Map<String, Value>> {
    presence["presence"].as_object()
}

fn here(presence: &Value) -> Markup {
    let Some(people) = people(presence).filter(|people| !people.is_empty()) else { return html! {} };
    let row = |(client, info): (&String, &Value)| {
        let user = info["user"].as_str().filter(|user| !user.is_empty()).unwrap_or("no user");
        vec![html! { (user) }, html! { code { (client) } }]
    };
    let rows: Vec<_> = people.iter().take(PRESENCE_COUNT).map(row).collect();
    html! { section { (table("Who is here", &[Column::Text("User"), Column::Text("Connection")], &rows)) } }
}
