//! What was handed out, over all jobs: outcomes by app and by language.
//!
//! Languages may come from outside, with an event's own texts, and there may be many apps. So what has series of its own
//! is known at the start: the apps that there are pools for, and the languages that there are catalogues for; `source`
//! are the topics' own texts, and everything else is `other`.
//!
//! Bound: [`NAME_COUNT_MAX`] apps and as many languages, the first in the order of their names, with one series per
//! outcome of a gateway.

use std::collections::{BTreeMap, BTreeSet};

use tidings_push::Outcome;
use tidings_telemetry::{Counter, Registry};
use tidings_types::{AppId, Locale};

use crate::tally::JobPart;

/// Apps, and languages, that have series of their own.
const NAME_COUNT_MAX: usize = 64;

type Outcomes = [Counter; Outcome::NAMES.len()];

/// All these counters.
#[derive(Debug)]
pub(crate) struct PartTotals {
    apps: BTreeMap<AppId, Outcomes>,
    other_apps: Outcomes,
    locales: BTreeMap<Locale, Outcomes>,
    source: Outcomes,
    other_locales: Outcomes,
}

/// Where the devices of one part of a job are counted.
#[derive(Debug, Clone)]
pub(crate) struct PartPlace {
    app: Outcomes,
    locale: Outcomes,
}

impl PartTotals {
    pub(crate) fn new<'a>(
        registry: &Registry,
        apps: impl IntoIterator<Item = &'a AppId>,
        locales: impl IntoIterator<Item = &'a Locale>,
    ) -> Self {
        let of_app = |name: &str| outcomes(registry, "app", name);
        let of_locale = |name: &str| outcomes(registry, "locale", name);
        let apps = BTreeSet::from_iter(apps).into_iter().take(NAME_COUNT_MAX);
        let locales = BTreeSet::from_iter(locales).into_iter().take(NAME_COUNT_MAX);
        Self {
            apps: apps.map(|app| (app.clone(), of_app(app.as_str()))).collect(),
            other_apps: of_app("other"),
            locales: locales.map(|locale| (locale.clone(), of_locale(locale.as_str()))).collect(),
            source: of_locale("source"),
            other_locales: of_locale("other"),
        }
    }

    pub(crate) fn place(&self, part: &JobPart) -> PartPlace {
        let locale = match &part.locale {
            Some(locale) => self.locales.get(locale).unwrap_or(&self.other_locales),
            None => &self.source,
        };
        PartPlace { app: self.apps.get(&part.app).unwrap_or(&self.other_apps).clone(), locale: locale.clone() }
    }
}

impl PartPlace {
    pub(crate) fn count(&self, outcome: Outcome) {
        self.app[outcome.index()].inc();
        self.locale[outcome.index()].inc();
    }
}

fn outcomes(registry: &Registry, label: &str, value: &str) -> Outcomes {
    let name = format!("tidings_sender_{label}_outcomes_total");
    let help = format!("Devices that were handed out, by {label} and what became of them.");
    Outcome::NAMES.map(|outcome| registry.counter(&name, &help, &[(label, value), ("outcome", outcome)]))
}

#[cfg(test)]
mod tests {
    use tidings_types::Provider;

    use super::*;
    use crate::outcome::Counts;

    #[test]
    fn only_what_the_server_is_set_up_for_has_series_of_its_own() {
        let registry = Registry::new();
        let app = |index: usize| AppId::new(&format!("app-{index:03}")).unwrap();
        let apps: Vec<AppId> = (0..NAME_COUNT_MAX + 10).map(app).collect();
        let totals = PartTotals::new(&registry, apps.iter().chain(&apps), &[Locale::new("pl").unwrap()]);
        let count = |app: &AppId, locale: Option<&str>| {
            let (app, locale) = (app.clone(), locale.map(|it| Locale::new(it).unwrap()));
            totals.place(&JobPart { provider: Provider::Fcm, app, locale, counts: Counts::default() })
        };
        for app in &apps {
            count(app, Some("pl")).count(Outcome::Accepted);
        }
        count(&app(999), None).count(Outcome::Unknown);
        count(&app(0), Some("sv")).count(Outcome::Accepted);
        count(&app(0), Some("und")).count(Outcome::Accepted);
        let text = registry.prometheus();
        let has = |line: &str| assert!(text.lines().any(|it| it == line), "{line} in {text}");
        has(r#"tidings_sender_app_outcomes_total{app="app-000",outcome="accepted"} 3"#);
        has(r#"tidings_sender_app_outcomes_total{app="app-063",outcome="accepted"} 1"#);
        has(r#"tidings_sender_app_outcomes_total{app="other",outcome="accepted"} 10"#);
        has(r#"tidings_sender_app_outcomes_total{app="other",outcome="unknown"} 1"#);
        has(r#"tidings_sender_locale_outcomes_total{locale="pl",outcome="accepted"} 74"#);
        has(r#"tidings_sender_locale_outcomes_total{locale="source",outcome="unknown"} 1"#);
        has(r#"tidings_sender_locale_outcomes_total{locale="other",outcome="accepted"} 2"#);
        assert_eq!(text.matches("tidings_sender_app_outcomes_total{").count(), 65 * Outcome::NAMES.len());
    }
}
