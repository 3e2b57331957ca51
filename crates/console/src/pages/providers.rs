//! The push providers: whether they are reached, how full they are, and what they refuse.

use axum::response::Response;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::show::View;
use crate::html::{Column, Screen, alarm, command, empty, facts, or_problem, shares, state, table};
use crate::visit::Visit;
use crate::words::{self, NOTHING, age, count, grouped, millis, span};

/// A certificate that ends sooner is to be seen. The alert for it (`TidingsCertificateEnds`) is as early.
const CERTIFICATE_DAYS_MIN: u64 = 7;
const DAY_SECONDS: u64 = 86_400;

pub(crate) async fn show(visit: Visit) -> Response {
    let answer = visit.get("/v1/providers").await;
    let data = json!({"providers": answer.body});
    let view = View { is_live: true, ..View::of(Screen::Providers) };
    view.show(&visit, answer.status, &data, |data| or_problem(&data["providers"], |page| body(&visit, page)))
}

fn body(visit: &Visit, page: &Value) -> Markup {
    let all = page["providers"].as_array().map_or(&[][..], Vec::as_slice);
    html! {
        @if all.is_empty() {
            (empty("Nothing is pushed: no provider is configured.", &html! {
                p { "Add a section " code { "[apns.NAME]" } ", " code { "[fcm.NAME]" } " or " code { "[web_push.NAME]" } ". To try it without an account, use a simulator:" }
                (command("tidings simulate apns"))
            }))
        }
        @for provider in all { (section(visit, provider)) }
    }
}

fn section(visit: &Visit, provider: &Value) -> Markup {
    let name = provider["name"].as_str().unwrap_or_default();
    let word = provider["status"].as_str().unwrap_or_default();
    let since = age(&provider["since"], visit.now).map_or_else(|| NOTHING.to_owned(), span);
    let pools = provider["pools"].as_array().map_or(&[][..], Vec::as_slice);
    let (used, idle): (Vec<&Value>, Vec<&Value>) = pools.iter().partition(|pool| is_used(pool));
    html! {
        section .provider {
            h2 { (words::provider(&provider["provider"])) ", " (name) }
            p { (state(word)) span .muted { " for " (since) } }
            @if let Some(told) = told(word) { (alarm(&html! { p { (told) } })) }
            @for pool in pools { (certificate(pool)) }
            @if !used.is_empty() { (connections(&used)) }
            @for pool in &used { (details(pool)) }
            @if !idle.is_empty() { p .muted { "Not used yet: " (names(&idle)) } }
        }
    }
}

/// What an operator does about a state.
fn told(word: &str) -> Option<&'static str> {
    Some(match word {
        "breaker_open" => {
            "There is no connection, and the last attempts failed. Pushes wait until their events expire. Look at the network and at the provider’s own status page; the log says why the attempts failed."
        }
        "credential_refused" => {
            "The provider refuses the credential. Put a new one in its place and send the server SIGHUP."
        }
        _ => return None,
    })
}

/// When the certificate ends with which the provider knows us, if it knows us by one.
fn certificate(pool: &Value) -> Markup {
    let Some(left) = pool["credential_ends_in_seconds"].as_u64() else { return html! {} };
    let name = pool["name"].as_str().unwrap_or_default();
    let words = match left {
        0 => format!("The certificate of {name} has ended."),
        _ => format!("The certificate of {name} ends in {}.", span(left)),
    };
    html! {
        @if left < CERTIFICATE_DAYS_MIN * DAY_SECONDS {
            (alarm(&html! { p { (words) " Put a new one in its place and send the server SIGHUP." } }))
        } @else {
            p .muted { (words) }
        }
    }
}

/// The names of pools, without the quarantine of each.
fn names(pools: &[&Value]) -> String {
    let names = pools.iter().filter_map(|pool| pool["name"].as_str());
    names.filter(|name| !name.ends_with(" quarantine")).collect::<Vec<_>>().join(", ")
}

/// Whether a pool has done anything, or has something to do.
fn is_used(pool: &Value) -> bool {
    let is_some = |name: &str| pool[name].as_u64().unwrap_or_default() > 0;
    let has_outcomes = pool["outcomes"].as_object().is_some_and(|outcomes| !outcomes.is_empty());
    has_outcomes
        || ["connections", "waiting", "connect_failures", "credential_refused"].iter().any(|name| is_some(name))
}

fn connections(pools: &[&Value]) -> Markup {
    let row = |pool: &&Value| {
        let sum = |name: &str| pool["outcomes"][name].as_u64().unwrap_or_default();
        vec![
            html! { (pool["name"].as_str().unwrap_or_default()) },
            html! { (count(&pool["connections"])) },
            html! { (count(&pool["streams"])) " of " (count(&pool["streams_allowed"])) },
            html! { (count(&pool["waiting"])) },
            html! { (grouped(sum("accepted"))) },
            html! { (grouped(sum("rejected"))) },
            html! { (count(&pool["repeats"])) },
            html! { (millis(&pool["round_trip_p50_ms"])) " · " (millis(&pool["round_trip_p99_ms"])) },
        ]
    };
    let rows: Vec<_> = pools.iter().map(row).collect();
    let columns = [
        Column::Text("Pool"),
        Column::Number("Connections"),
        Column::Number("Requests open"),
        Column::Number("Waiting"),
        Column::Number("Taken"),
        Column::Number("Refused"),
        Column::Number("Repeats"),
        Column::Number("Round trip 50 · 99 %"),
    ];
    table("Since the start", &columns, &rows)
}

/// What is worth a line only if it has happened.
fn details(pool: &Value) -> Markup {
    let name = pool["name"].as_str().unwrap_or_default();
    let all = [
        ("Pauses that the provider asked for (quota)", &pool["pauses"]),
        ("Attempts to connect that failed", &pool["connect_failures"]),
        ("Refusals of the credential", &pool["credential_refused"]),
        ("Goodbyes (GOAWAY)", &pool["goaways"]),
    ];
    let some: Vec<(&str, Markup)> = all
        .into_iter()
        .filter(|(_, value)| value.as_u64().unwrap_or_default() > 0)
        .map(|(words, value)| (words, html! { (count(value)) }))
        .collect();
    html! {
        @if !some.is_empty() { (facts(&some)) }
        (shares(&format!("Refused by {name}, by reason"), &pool["rejected"]))
    }
}
