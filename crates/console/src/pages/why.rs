//! One device: what is known of it, what it wants, and why it got an event or did not.

use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::{Map, Value};

use super::show::View;
use crate::html::{Column, Screen, action, empty, facts, field, is_problem, or_problem, problem, sentence, table};
use crate::ports::Answer;
use crate::sessions::random;
use crate::visit::Visit;
use crate::words::{NOTHING, capital, day, encoded, moment, plain};

pub(crate) async fn show(visit: Visit) -> Response {
    let (device, user, event) = (visit.query.get("device"), visit.query.get("user"), visit.query.get("event"));
    let mut data = Map::new();
    let mut status = StatusCode::OK;
    let mut put = |name: &str, answer: Answer| drop(data.insert(name.to_owned(), answer.body));
    if !device.is_empty() {
        let path = format!("/v1/devices/{}", encoded(device));
        let below = |part: &str| format!("{path}/{part}");
        let (subscriptions, mutes, events) = (below("subscriptions"), below("mutes"), below("events"));
        let (record, subscriptions, mutes, events) =
            tokio::join!(visit.get(&path), visit.get(&subscriptions), visit.get(&mutes), visit.get(&events));
        status = record.status;
        put("device", record);
        put("subscriptions", subscriptions);
        put("mutes", mutes);
        put("events", events);
        if !event.is_empty() {
            put("why", visit.get(&format!("/v1/events/{}/devices/{}", encoded(event), encoded(device))).await);
        }
    } else if !user.is_empty() {
        let answer = visit.get(&format!("/v1/users/{}/devices?limit=50", encoded(user))).await;
        status = answer.status;
        put("devices", answer);
    }
    let title = if device.is_empty() { "Why" } else { device };
    let view = View { title, ..View::of(Screen::Why) };
    view.show(&visit, status, &Value::Object(data), |data| body(&visit, data))
}

fn body(visit: &Visit, data: &Value) -> Markup {
    html! {
        (search(visit))
        @if data["devices"].is_object() { (or_problem(&data["devices"], devices)) }
        @if data["device"].is_object() {
            @if is_problem(&data["device"]) {
                (problem(&data["device"]))
            } @else {
                @if data["why"].is_object() { (why(visit, &data["why"])) }
                (record(&data["device"]))
                (wishes(visit, data))
                (latest(visit, &data["events"]))
                (test(visit, &data["device"]))
            }
        }
    }
}

fn search(visit: &Visit) -> Markup {
    html! {
        div .bar-of-filters {
            form .find method="get" action="/console/why" {
                (field("Device", "device", visit.query.get("device"), "the device’s id"))
                (field("Event, if you ask about one", "event", visit.query.get("event"), "goal-1"))
                button { "Show" }
            }
            form .find method="get" action="/console/why" {
                (field("Or all devices of a user", "user", visit.query.get("user"), "the user’s id"))
                button { "Find" }
            }
        }
        @if visit.query.get("device").is_empty() && visit.query.get("user").is_empty() {
            (empty("Which device?", &html! {
                p { "Give a device’s id, and the id of an event, to see why it got the event or did not. A user’s id lists the user’s devices." }
            }))
        }
    }
}

fn devices(page: &Value) -> Markup {
    let all = page["devices"].as_array().map_or(&[][..], Vec::as_slice);
    let row = |device: &Value| {
        let id = device["id"].as_str().unwrap_or_default();
        let text = |name: &str| html! { (device[name].as_str().unwrap_or(NOTHING)) };
        vec![
            html! { a href={ "/console/why?device=" (encoded(id)) } { (id) } },
            text("platform"),
            text("app"),
            text("locale"),
            text("push_permission"),
        ]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    let columns = ["Device", "Platform", "App", "Language", "Push permission"].map(Column::Text);
    html! {
        @if rows.is_empty() {
            (empty("This user has no device.", &html! { p { "A device gets its user when it is registered, or when its app logs in." } }))
        } @else {
            (table("Devices of the user", &columns, &rows))
        }
    }
}

fn record(device: &Value) -> Markup {
    let text = |name: &str| html! { (device[name].as_str().unwrap_or(NOTHING)) };
    html! {
        section {
            h2 { "The device" }
            (facts(&[
                ("Platform", text("platform")),
                ("App", text("app")),
                ("Environment", text("environment")),
                ("Token ends in", html! { @if device["token"].is_string() { code { (device["token"].as_str().unwrap_or_default()) } } @else { "no token: it cannot be pushed" } }),
                ("Push permission", text("push_permission")),
                ("Language", text("locale")),
                ("Country", text("country")),
                ("Time zone", text("time_zone")),
                ("User", html! { @if let Some(user) = device["user"].as_str() { a href={ "/console/why?user=" (encoded(user)) } { (user) } } @else { (NOTHING) } }),
                ("Last seen", html! { (day(&device["seen_at"])) }),
            ]))
        }
    }
}

fn wishes(visit: &Visit, data: &Value) -> Markup {
    let subscriptions = data["subscriptions"]["subscriptions"].as_array().map_or(&[][..], Vec::as_slice);
    let mutes = data["mutes"]["mutes"].as_array().map_or(&[][..], Vec::as_slice);
    let topics = |it: &Value| {
        let all = it["topics"].as_array().map_or(&[][..], Vec::as_slice);
        all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
    };
    let row = |it: &Value| vec![html! { (it["subject"].as_str().unwrap_or_default()) }, html! { (topics(it)) }];
    let rows: Vec<_> = subscriptions.iter().map(row).collect();
    html! {
        div .columns {
            section {
                @if rows.is_empty() {
                    h2 { "Subscriptions" }
                    p .muted { "None: only events that name the device or its user, or select it, reach it." }
                } @else {
                    (table("Subscriptions", &[Column::Text("Subject"), Column::Text("Topics")], &rows))
                }
            }
            section {
                h2 { "Mutes" }
                @if mutes.is_empty() { p .muted { "None." } }
                ul {
                    @for mute in mutes {
                        li { code { (mute["scope"].as_str().unwrap_or_default()) }
                            @if mute["until"].is_string() { " until " (moment(&mute["until"], visit.now)) } @else { " until it is taken back" } }
                    }
                }
            }
        }
    }
}

/// Why the device got the event, or did not.
fn why(visit: &Visit, why: &Value) -> Markup {
    if is_problem(why) {
        return html! { section { h2 { "This event" } (problem(why)) } };
    }
    let list = |name: &str| why[name].as_array().map_or(&[][..], Vec::as_slice);
    let event = why["event"].as_str().unwrap_or_default();
    let way =
        ["provider", "pool", "locale"].iter().filter_map(|name| why[*name].as_str()).collect::<Vec<_>>().join(", ");
    html! {
        section .why {
            h2 { "Event " a href={ "/console/events/" (encoded(event)) } { (event) } }
            p .verdict { strong { (verdict(why)) } @if !way.is_empty() { " " span .muted { (way) } } }
            p { (sentence(&why["summary"])) }
            ol .steps {
                @for step in list("steps") {
                    li {
                        time { (moment(&step["at"], visit.now)) @if step["until"].is_string() { " to " (moment(&step["until"], visit.now)) } }
                        " " strong { (capital(&plain(step["step"].as_str().unwrap_or_default()))) }
                        p { (sentence(&step["text"])) }
                    }
                }
            }
            (reasons("Because", list("because")))
            (reasons("Not known", list("unknown")))
        }
    }
}

/// What became of the device, with the reason.
fn verdict(told: &Value) -> String {
    let word = capital(&plain(told["verdict"].as_str().unwrap_or_default()));
    match told["reason"].as_str().filter(|reason| !reason.is_empty()) {
        Some(reason) => format!("{word}: {}", plain(reason)),
        None => word,
    }
}

fn reasons(title: &str, all: &[Value]) -> Markup {
    html! {
        @if !all.is_empty() {
            h3 { (title) }
            ul .bullets { @for one in all { li { (sentence(one)) } } }
        }
    }
}

/// The device's last events.
fn latest(visit: &Visit, events: &Value) -> Markup {
    let all = events["events"].as_array().map_or(&[][..], Vec::as_slice);
    let device = encoded(visit.query.get("device"));
    let row = |event: &Value| {
        let id = event["event"].as_str().unwrap_or_default();
        vec![
            html! { a href={ "/console/why?device=" (device) "&event=" (encoded(id)) } { (id) } },
            html! { (event["topic"].as_str().unwrap_or(NOTHING)) },
            html! { (verdict(event)) },
            html! { (sentence(&event["summary"])) },
            html! { (moment(&event["accepted_at"], visit.now)) },
        ]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    let columns = ["Event", "Topic", "Verdict", "In words", "Accepted"].map(Column::Text);
    html! {
        @if is_problem(events) {
            section { h2 { "Its last events" } (problem(events)) }
        } @else if rows.is_empty() {
            section { h2 { "Its last events" } p .muted { "None of the events that are remembered was for it." } }
        } @else {
            section { (table("Its last events", &columns, &rows)) }
        }
    }
}

/// A test push to this device; first one that is not delivered.
fn test(visit: &Visit, device: &Value) -> Markup {
    let id = device["id"].as_str().unwrap_or_default();
    // The id of a dry run, with `-sent` behind it, is that of the push. So a form that is sent twice pushes once.
    let run = visit.query.get("event").strip_prefix("console-dry-").unwrap_or_default().to_owned();
    let is_rehearsed = !run.is_empty() && visit.query.get("said") == "sent";
    let (dry, event) = match is_rehearsed {
        true => ("no", format!("console-test-{run}")),
        false => {
            let fresh: String = random::<6>().iter().map(|byte| format!("{byte:02x}")).collect();
            ("yes", format!("console-dry-{fresh}"))
        }
    };
    html! {
        @if visit.is_operator() {
            section {
                h2 { "Send a test" }
                @if is_rehearsed { p { "The dry run is accepted: see " a href={ "/console/events/" (encoded(visit.query.get("event"))) } { "what became of it" } ". Now you can push it." } }
                @else { p .muted { "First a dry run: everything is done except the delivery." } }
                (action(&visit.token, "/console/act/test", &[("device", id), ("id", &event), ("dry", dry), ("back", "/console/why")], &html! {
                    div .stack {
                        label { span { "Title" } input name="title" value="Test" maxlength="200"; }
                        label { span { "Text" } input name="body" value="This is a test by an operator." required maxlength="1000"; }
                        div { button .danger[is_rehearsed] { @if is_rehearsed { "Push it to this device" } @else { "Dry run" } } }
                    }
                }))
            }
        }
    }
}
