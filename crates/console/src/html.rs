//! The frame of all pages, and the parts that pages share: tables, bars, notes, forms.
//!
//! Everything works without script: links, and forms that are posted. A part that changes while somebody looks is fetched
//! again by htmx every two seconds.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;

use crate::assets::address;
use crate::ports::Caller;
use crate::words::{capital, percent, plain};

/// htmx without what a strict policy forbids, and without copies of pages in the browser's storage.
const HTMX: &str = r#"{"includeIndicatorCSS":false,"history":false,"prefix":"","defaultTimeout":10000}"#;
/// Three rising bars.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect width='16' \
                    height='16' rx='4' fill='%230b6e69'/%3E%3Cpath d='M4 12V9M8 12V6M12 12V3' stroke='white' \
                    stroke-width='2' stroke-linecap='round'/%3E%3C/svg%3E";

/// A page of the menu.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Screen {
    Now,
    Events,
    Why,
    Providers,
    Audience,
    Channels,
    Texts,
    Feeds,
    System,
}

impl Screen {
    pub(crate) const ALL: [Self; 9] = [
        Self::Now,
        Self::Events,
        Self::Why,
        Self::Providers,
        Self::Audience,
        Self::Channels,
        Self::Texts,
        Self::Feeds,
        Self::System,
    ];

    /// Its address and its name in the menu.
    pub(crate) const fn parts(self) -> (&'static str, &'static str) {
        match self {
            Self::Now => ("/console", "Now"),
            Self::Events => ("/console/events", "Events"),
            Self::Why => ("/console/why", "Why"),
            Self::Providers => ("/console/providers", "Providers"),
            Self::Audience => ("/console/audience", "Audience"),
            Self::Channels => ("/console/channels", "Channels"),
            Self::Texts => ("/console/texts", "Translations"),
            Self::Feeds => ("/console/feeds", "Feeds"),
            Self::System => ("/console/system", "System"),
        }
    }
}

/// What the frame says besides the page itself.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) title: &'a str,
    /// `None`: before somebody has logged in, and on pages about a refusal.
    pub(crate) screen: Option<Screen>,
    pub(crate) caller: Option<&'a Caller>,
    /// The token of forms.
    pub(crate) token: &'a str,
    /// The address of the same as JSON.
    pub(crate) json: Option<String>,
    /// Scripts besides those that all pages have.
    pub(crate) has_charts: bool,
}

/// A whole page.
pub(crate) fn page(frame: &Frame<'_>, body: &Markup) -> Markup {
    let Frame { title, screen, caller, token, json, has_charts } = frame;
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="htmx-config" content=(HTMX);
                title { (title) " · Tidings" }
                link rel="icon" href=(ICON);
                @if *has_charts {
                    link rel="stylesheet" href=(address("uplot.min.css"));
                }
                link rel="stylesheet" href=(address("console.css"));
                @if caller.is_some() {
                    script src=(address("htmx.min.js")) defer {}
                }
                @if *has_charts {
                    script src=(address("uplot.min.js")) defer {}
                }
                script src=(address("console.js")) defer {}
            }
            body {
                a .skip href="#main" { "Skip to the content" }
                header .top {
                    a .brand href="/console" { (mark()) "Tidings" }
                    @if let Some(caller) = caller {
                        nav aria-label="Screens" {
                            @for each in Screen::ALL {
                                @let (address, name) = each.parts();
                                a href=(address) aria-current=[(Some(each) == *screen).then_some("page")] { (name) }
                            }
                        }
                        (log_out(caller, token))
                    }
                }
                p #stale .stale role="status" hidden {}
                main #main tabindex="-1" {
                    h1 { (title) }
                    (body)
                }
                @if let Some(json) = json {
                    footer { a href=(json) { "This page as JSON" } span .muted { "Times are UTC" } }
                }
            }
        }
    }
}

fn mark() -> PreEscaped<&'static str> {
    PreEscaped(
        "<svg class=\"mark\" viewBox=\"0 0 16 16\" aria-hidden=\"true\"><rect width=\"16\" height=\"16\" rx=\"4\"/>\
         <path d=\"M4 12V9M8 12V6M12 12V3\"/></svg>",
    )
}

fn log_out(caller: &Caller, token: &str) -> Markup {
    html! {
        form .who method="post" action="/console/logout" {
            input type="hidden" name="token" value=(token);
            span { (caller.user) " " span .role { (caller.role.as_str()) } }
            button .quiet { "Log out" }
        }
    }
}

/// A part that is fetched again every two seconds.
pub(crate) fn live(address: &str, body: &Markup) -> Markup {
    html! {
        div #live hx-get=(address) hx-trigger="every 2s" hx-swap="innerMorph" hx-sync="drop" { (body) }
    }
}

/// How a column of a table is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    Text(&'static str),
    Number(&'static str),
}

impl Column {
    const fn parts(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Text(name) => (name, None),
            Self::Number(name) => (name, Some("n")),
        }
    }
}

/// A table. On a narrow screen each row becomes a card, in which each value has its column's name.
pub(crate) fn table(caption: &str, columns: &[Column], rows: &[Vec<Markup>]) -> Markup {
    html! {
        table {
            caption { (caption) }
            thead {
                tr {
                    @for column in columns {
                        @let (name, class) = column.parts();
                        th scope="col" class=[class] { (name) }
                    }
                }
            }
            tbody {
                @for row in rows {
                    tr {
                        @for (cell, column) in row.iter().zip(columns) {
                            @let (name, class) = column.parts();
                            td class=[class] data-name=(name) { (cell) }
                        }
                    }
                }
            }
        }
    }
}

/// Names and what they are, such as the fields of a device.
pub(crate) fn facts(facts: &[(&str, Markup)]) -> Markup {
    html! {
        dl .facts {
            @for (name, value) in facts {
                div { dt { (name) } dd { (value) } }
            }
        }
    }
}

/// A number that is to be seen first.
pub(crate) fn tile(name: &str, value: &str, unit: &str, more: &Markup) -> Markup {
    html! {
        div .tile {
            p .name { (name) }
            p .value { (value) @if !unit.is_empty() { " " span .unit { (unit) } } }
            p .more { (more) }
        }
    }
}

/// Parts of a whole, each with a class that gives it a colour.
pub(crate) fn bar(label: &str, whole: u64, parts: &[(&str, u64)]) -> Markup {
    let mut left = 0.0;
    let mut rects = Vec::new();
    for (class, part) in parts.iter().filter(|(_, part)| *part > 0) {
        let width = 100.0 * *part as f64 / whole.max(1) as f64;
        rects.push((format!("{left:.3}"), format!("{:.3}", width.min(100.0 - left).max(0.0)), *class));
        left += width;
    }
    html! {
        svg .bar viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label=(label) {
            @for (x, width, class) in &rects {
                rect x=(x) width=(width) height="6" class=(class) {}
            }
        }
    }
}

/// Counts by name, the largest first, as a list with bars.
pub(crate) fn shares(title: &str, counts: &Value) -> Markup {
    let Some(counts) = counts.as_object().filter(|counts| !counts.is_empty()) else { return html! {} };
    let mut sorted: Vec<(&String, u64)> =
        counts.iter().map(|(name, it)| (name, it.as_u64().unwrap_or_default())).collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let whole: u64 = sorted.iter().map(|(_, count)| count).sum();
    html! {
        section .shares {
            h2 { (title) }
            ul {
                @for (name, part) in sorted.iter().take(12) {
                    li {
                        span { (name) }
                        span .n { (crate::words::grouped(*part)) " " small { (percent(*part as f64, whole as f64)) } }
                        (bar(&format!("{name}: {}", percent(*part as f64, whole as f64)), whole, &[("part", *part)]))
                    }
                }
            }
            @if sorted.len() > 12 {
                p .muted { "and " (sorted.len() - 12) " more" }
            }
        }
    }
}

/// Whether this is a refusal of the API.
pub(crate) fn is_problem(value: &Value) -> bool {
    value["type"].as_str().is_some_and(|kind| kind.starts_with("urn:tidings:problem:"))
}

/// The refusal, if this is one; else what `shown` makes.
pub(crate) fn or_problem(value: &Value, shown: impl FnOnce(&Value) -> Markup) -> Markup {
    if is_problem(value) { problem(value) } else { shown(value) }
}

/// A refusal of the API.
pub(crate) fn problem(value: &Value) -> Markup {
    html! {
        div .note.problem {
            p { strong { (value["title"].as_str().unwrap_or("Refused")) } }
            p { (value["detail"].as_str().unwrap_or_default()) }
        }
    }
}

/// Something that an operator must see.
pub(crate) fn alarm(body: &Markup) -> Markup {
    html! { div .note.alarm role="alert" { (body) } }
}

/// What to do where nothing is yet.
pub(crate) fn empty(title: &str, body: &Markup) -> Markup {
    html! { div .empty { p { strong { (title) } } (body) } }
}

/// A command to copy.
pub(crate) fn command(text: &str) -> Markup {
    html! { pre tabindex="0" { code { (text) } } }
}

/// The state of an event or of a provider as a word with a dot.
pub(crate) fn state(word: &str) -> Markup {
    let class = match word {
        "connected" | "on_demand" => "good",
        "running" | "connecting" | "reading" => "busy",
        "finished" | "waiting" | "new" | "forgotten" | "scheduled" | "cancelled" => "calm",
        _ => "bad",
    };
    html! { span class={ "state " (class) } { (capital(&plain(word))) } }
}

/// A form that acts.
pub(crate) fn action(token: &str, address: &str, fields: &[(&str, &str)], inside: &Markup) -> Markup {
    html! {
        form .act method="post" action=(address) {
            input type="hidden" name="token" value=(token);
            @for (name, value) in fields {
                input type="hidden" name=(name) value=(value);
            }
            (inside)
        }
    }
}

/// A field of a form with its label.
pub(crate) fn field(label: &str, name: &str, value: &str, more: &str) -> Markup {
    html! {
        label {
            span { (label) }
            input name=(name) value=(value) placeholder=(more) autocomplete="off" autocapitalize="none" spellcheck="false";
        }
    }
}

/// A sentence of the API, in which names stand between backticks.
pub(crate) fn sentence(text: &Value) -> Markup {
    let parts = text.as_str().unwrap_or_default().split('`').enumerate();
    html! {
        @for (index, part) in parts {
            @if index % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}
