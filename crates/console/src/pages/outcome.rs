//! What became of the devices of a job: a bar with its legend, and how far a job is.

use maud::{Markup, html};
use serde_json::Value;

use crate::html::bar;
use crate::words::{grouped, percent, plain};

/// The outcomes in the order of the bar: their name in answers, the class that gives the colour, and words.
const OUTCOMES: [(&str, &str, &str); 8] = [
    ("received", "received", "live, so not pushed"),
    ("accepted", "accepted", "by the provider"),
    ("suppressed", "aside", "not pushed"),
    ("superseded", "aside", "a newer event went out instead"),
    ("cancelled", "aside", "before they were sent to"),
    ("expired", "late", "before a provider took it"),
    ("unknown", "late", "sent, and no answer came"),
    ("rejected", "refused", "by the provider"),
];

/// The devices of a job by what became of them, and those that still wait.
pub(super) struct Outcomes<'v> {
    audience: u64,
    held: u64,
    outcomes: &'v Value,
}

impl<'v> Outcomes<'v> {
    /// Of a job or event as the API tells it.
    pub(super) fn of(job: &'v Value) -> Self {
        let number = |name: &str| job[name].as_u64().unwrap_or_default();
        Self { audience: number("audience"), held: number("held"), outcomes: &job["outcomes"] }
    }

    fn count(&self, name: &str) -> u64 {
        let value = &self.outcomes[name];
        let of_reasons = |reasons: &serde_json::Map<String, Value>| reasons.values().filter_map(Value::as_u64).sum();
        value.as_u64().unwrap_or_else(|| value.as_object().map_or(0, of_reasons))
    }

    /// The devices that have their outcome.
    pub(super) fn done(&self) -> u64 {
        OUTCOMES.iter().map(|(name, ..)| self.count(name)).sum()
    }

    /// The devices that have none yet.
    pub(super) fn waiting(&self) -> u64 {
        self.audience.saturating_sub(self.done())
    }

    pub(super) fn rejected(&self) -> u64 {
        self.count("rejected")
    }

    /// A bar without a legend, for a table.
    pub(super) fn small(&self) -> Markup {
        let done = percent(self.done() as f64, self.audience as f64);
        html! {
            span .progress {
                (bar(&format!("{done} done"), self.audience, &self.parts()))
                span .n { (done) }
            }
        }
    }

    fn parts(&self) -> Vec<(&'static str, u64)> {
        OUTCOMES.iter().map(|(name, class, _)| (*class, self.count(name))).collect()
    }

    /// The bar, with a legend.
    pub(super) fn large(&self) -> Markup {
        let (waiting, whole) = (self.waiting(), self.audience);
        let label = format!("{} of {} devices done", grouped(self.done()), grouped(whole));
        html! {
            div .large { (bar(&label, whole, &self.parts())) }
            ul .legend {
                @for (name, class, words) in OUTCOMES {
                    @let count = self.count(name);
                    @if count > 0 {
                        li {
                            span .dot.(class) {}
                            span { strong { (plain(name)) } " " span .muted { (words) } (self.reasons(name)) }
                            span .n { (grouped(count)) " " small { (percent(count as f64, whole as f64)) } }
                        }
                    }
                }
                @if waiting > 0 {
                    li {
                        span .dot.waiting {}
                        span {
                            strong { "waiting" }
                            @if self.held > 0 { " " span .muted { "of these " (grouped(self.held)) " may still answer live" } }
                        }
                        span .n { (grouped(waiting)) " " small { (percent(waiting as f64, whole as f64)) } }
                    }
                }
            }
        }
    }

    fn reasons(&self, name: &str) -> Markup {
        let Some(reasons) = self.outcomes[name].as_object() else { return html! {} };
        html! {
            ul .reasons {
                @for (reason, count) in reasons {
                    li { (plain(reason)) ": " (grouped(count.as_u64().unwrap_or_default())) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_device_is_in_the_bar_once() {
        let outcomes = json!({"accepted": 60, "received": 10, "expired": 0, "unknown": 0, "cancelled": 0, "superseded": 0,
            "rejected": {"Unregistered": 4, "BadTopic": 1}, "suppressed": {"no_token": 5}});
        let job = json!({"audience": 100, "held": 3, "outcomes": outcomes});
        let outcomes = Outcomes::of(&job);
        assert_eq!((outcomes.done(), outcomes.waiting(), outcomes.rejected()), (80, 20, 5));
        let shown = outcomes.large().into_string();
        for words in ["Unregistered: 4", "no token: 5", "may still answer live", "80 of 100 devices done"] {
            assert!(shown.contains(words), "{words} in {shown}");
        }
        assert!(!shown.contains("expired"), "what did not happen is not shown");
        assert_eq!(Outcomes::of(&Value::Null).done(), 0, "a job that is not known");
    }
}
