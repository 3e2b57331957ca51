//! Outcomes of all jobs' notifications, by app and by language.
//!
//! Languages may come from outside, with an event's own texts, and there may be many apps. So the labels are fixed at
//! the start: the apps of all pools, and the languages of all catalogues. `source` is the topics' own texts, and
//! everything else is `other`.
//!
//! Bound: [`NAME_COUNT_MAX`] apps and as many languages, the first in the order of their names, with one series per
//! outcome of a gateway.

use std::collections::{BTreeMap, BTreeSet};

use tidings_jobs::JobPart;
use tidings_push::Outcome;
use tidings_telemetry::metrics::sender as table;
use tidings_telemetry::{Counter, Metric, Registry};
use tidings_types::{AppId, Locale};

/// Apps, and languages, that have their own series.
const NAME_COUNT_MAX: usize = 64;

type Outcomes = [Counter; Outcome::NAMES.len()];

/// The counters by app and by language.
#[derive(Debug)]
pub(crate) struct PartTotals {
    apps: ByName<AppId>,
    /// `None` is the source language.
    locales: ByName<Option<Locale>>,
}

/// Where the devices of one part of a job are counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartIndex {
    app: u8,
    locale: u8,
}

/// Outcomes by one label.
#[derive(Debug)]
struct ByName<K> {
    indexes: BTreeMap<K, u8>,
    /// By index. The last one is `other`.
    outcomes: Vec<Outcomes>,
}

const _: () = assert!(NAME_COUNT_MAX + 1 < u8::MAX as usize);

impl PartTotals {
    pub(crate) fn new<'a>(
        registry: &Registry,
        apps: impl IntoIterator<Item = &'a AppId>,
        locales: impl IntoIterator<Item = &'a Locale>,
    ) -> Self {
        let apps = BTreeSet::from_iter(apps).into_iter().take(NAME_COUNT_MAX);
        let locales = BTreeSet::from_iter(locales).into_iter().take(NAME_COUNT_MAX);
        let languages = locales.map(|locale| (Some(locale.clone()), locale.as_str()));
        Self {
            apps: ByName::new(registry, &table::APP_OUTCOMES_TOTAL, apps.map(|app| (app.clone(), app.as_str()))),
            locales: ByName::new(registry, &table::LOCALE_OUTCOMES_TOTAL, languages.chain([(None, "source")])),
        }
    }

    pub(crate) fn index(&self, part: &JobPart) -> PartIndex {
        PartIndex { app: self.apps.index(&part.app), locale: self.locales.index(&part.locale) }
    }

    /// Counts one device; the index is one of this table's.
    pub(crate) fn count(&self, index: PartIndex, outcome: Outcome) {
        self.apps.outcomes[usize::from(index.app)][outcome.index()].inc();
        self.locales.outcomes[usize::from(index.locale)][outcome.index()].inc();
    }
}

impl<K: Ord> ByName<K> {
    /// At most [`NAME_COUNT_MAX`] names and one more.
    fn new<'a>(registry: &Registry, metric: &'static Metric, names: impl Iterator<Item = (K, &'a str)>) -> Self {
        let (keys, mut names): (Vec<K>, Vec<&str>) = names.unzip();
        names.push("other");
        let of = |name: &&str| Outcome::NAMES.map(|outcome| registry.counter(metric, &[name, outcome]));
        let outcomes = names.iter().map(of).collect();
        Self { indexes: (0..).zip(keys).map(|(index, key)| (key, index)).collect(), outcomes }
    }

    fn index(&self, key: &K) -> u8 {
        self.indexes.get(key).copied().unwrap_or(self.indexes.len() as u8)
    }
}

#[cfg(test)]
mod tests {
    use tidings_jobs::Counts;
    use tidings_types::Provider;

    use super::*;

    #[test]
    fn only_what_the_server_is_set_up_for_has_series_of_its_own() {
        let registry = Registry::new();
        let app = |index: usize| AppId::new(&format!("app-{index:03}")).unwrap();
        let apps: Vec<AppId> = (0..NAME_COUNT_MAX + 10).map(app).collect();
        let totals = PartTotals::new(&registry, apps.iter().chain(&apps), &[Locale::new("pl").unwrap()]);
        let count = |app: &AppId, locale: Option<&str>, outcome| {
            let (app, locale) = (app.clone(), locale.map(|it| Locale::new(it).unwrap()));
            let index = totals.index(&JobPart { provider: Provider::Fcm, app, locale, counts: Counts::default() });
            totals.count(index, outcome);
        };
        for app in &apps {
            count(app, Some("pl"), Outcome::Accepted);
        }
        count(&app(999), None, Outcome::Unknown);
        count(&app(0), Some("sv"), Outcome::Accepted);
        count(&app(0), Some("und"), Outcome::Accepted);
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
