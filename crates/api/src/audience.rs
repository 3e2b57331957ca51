//! Counting the devices of an event's audience. `POST /v1/audience/preview` counts them by platform, country and so on,
//! and estimates how long pushing would take. An event with `expect_audience`, or of a key with `audience_max`, is
//! refused if the number does not fit.
//!
//! The audience is selected in the same way as by the sender, with the event's filter. Devices are counted whether or
//! not they have a token. The total is known at once. For the groups, a preview reads the devices in windows, so that
//! changes of devices wait no longer than for one window of the sender. For a million devices this takes a good part of
//! a second of one core. So requests take turns, on a thread that may block; `Shared::waiting_place` and `TURN_TIMEOUT`
//! bound the requests that wait.
//!
//! Bounds: while counting, a group has at most [`NAME_COUNT_MAX`] different names. The answer has the [`SHOWN_COUNT`]
//! names with the most devices; the rest is `other`.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;
use std::ops::RangeInclusive;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::{Serialize, Serializer};
use tidings_store::{Recipient, Store};
use tidings_types::{AppId, Country, DeviceNumber, Event, ExpectAudience, Locale, Platform, PushPolicy};

use crate::auth::Caller;
use crate::event_input::audience;
use crate::guard::JsonBody;
use crate::input::shown;
use crate::job::Estimate;
use crate::problem::{Invalid, Kind, Problem, json};
use crate::query::Params;
use crate::shared::{Shared, blocking};

/// Devices that are read at once.
const WINDOW_COUNT: usize = 1000;
/// The most names of a group in the answer.
const SHOWN_COUNT: usize = 200;
/// The most names of a group while counting.
const NAME_COUNT_MAX: usize = 10_000;

/// The devices that a preview may name.
pub(crate) const SAMPLE_RANGE: RangeInclusive<usize> = 1..=100;

/// Counts devices whose name is not in the answer.
const OTHER: &str = "other";
/// Counts devices without a known country.
const UNKNOWN: &str = "unknown";

pub(crate) async fn preview(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    body: JsonBody,
) -> Result<Response, Problem> {
    let sample_count = sample_count(&uri)?;
    let event = audience(&body.0)?;
    let place = shared.waiting_place(&caller)?;
    let turn = shared.counting_turn().await?;
    let counting = blocking(move || {
        let _turn = (place, turn); // Held also if the caller hangs up.
        let (mut counts, mut sample) = (Counts::default(), sample_count.map(|_| Vec::new()));
        visit(&shared.store, &event, |recipient| {
            counts.add(recipient);
            if let Some(sample) = sample.as_mut().filter(|sample| Some(sample.len()) < sample_count) {
                sample.push(recipient.id.to_owned());
            }
        });
        Preview { counts, sample, estimate: shared.jobs.estimate(&event) }
    });
    Ok(json(StatusCode::OK, &counting.await?))
}

#[derive(Debug, Serialize)]
struct Preview {
    #[serde(flatten)]
    counts: Counts,
    /// The first devices; present only if they are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    sample: Option<Vec<String>>,
    /// How long pushing would take.
    estimate: Vec<Estimate>,
}

/// How many devices are to be named; `None`: that is not asked for.
fn sample_count(uri: &Uri) -> Result<Option<usize>, Invalid> {
    let mut params = Params::read(uri, &["sample"])?;
    let count = |text: String| {
        text.parse().ok().filter(|count| SAMPLE_RANGE.contains(count)).ok_or_else(|| {
            let (min, max, got) = (SAMPLE_RANGE.start(), *SAMPLE_RANGE.end(), shown(&text));
            let rule = format_args!("must be a whole number from {min} to {max}, got {got:?}");
            Invalid::new("sample", rule).limit(max).value(got)
        })
    };
    params.take("sample").map(count).transpose()
}

/// Whether the event's devices are counted before it is accepted.
pub(crate) fn is_counted(event: &Event, audience_max: Option<u64>) -> bool {
    (audience_max.is_some() || event.expect_audience.is_some()) && event.push != PushPolicy::Never
}

/// Whether the event names its audience by a selector.
pub(crate) fn has_selector(event: &Event) -> bool {
    event.to.as_ref().is_some_and(|to| to.selector.is_some())
}

/// The number of devices of the event. Evaluating a selector may take long, so it waits for its turn, on a thread that
/// may block.
async fn count(shared: &Arc<Shared>, caller: &Caller, event: &Event) -> Result<u64, Problem> {
    if !has_selector(event) {
        let event = event.clone();
        return shared.read(move |shared| Ok::<_, Problem>(shared.store.select(&event).len())).await;
    }
    let place = shared.waiting_place(caller)?;
    let turn = shared.counting_turn().await?;
    let (store, event) = (shared.store.clone(), event.clone());
    let counting = blocking(move || {
        let _turn = (place, turn); // Held also if the caller hangs up.
        store.select(&event).len()
    });
    counting.await
}

/// Refuses an event with more devices than its API key allows, or with a number other than `expect_audience`. The paths
/// of fields begin with `prefix`. Returns the number, if it was counted.
pub(crate) async fn admit(
    shared: &Arc<Shared>,
    caller: &Caller,
    event: &Event,
    prefix: &str,
) -> Result<Option<u64>, Problem> {
    let audience_max = caller.audience_max();
    if !is_counted(event, audience_max) {
        return Ok(None);
    }
    let ExpectAudience { min, max } = event.expect_audience.unwrap_or(ExpectAudience { min: None, max: None });
    let count = count(shared, caller, event).await?;
    let event_path = prefix.trim_end_matches('.');
    let place = if event_path.is_empty() { String::new() } else { format!("{event_path}: ") };
    if let Some(cap) = audience_max.filter(|cap| count > *cap) {
        let detail = format!("{place}the API key may reach at most {cap} devices with an event, this one has {count}");
        let problem = Problem::new(Kind::AudienceTooLarge, detail).limit(cap).value(count);
        return Err(if event_path.is_empty() { problem } else { problem.field(event_path) });
    }
    let missed = min.filter(|min| count < *min).map(|min| ("min", "at least", min));
    if let Some((name, word, limit)) = missed.or(max.filter(|max| count > *max).map(|max| ("max", "at most", max))) {
        let field = format!("{prefix}expect_audience.{name}");
        let detail = format!("{field}: the audience must have {word} {limit} devices, it has {count}");
        return Err(Problem::new(Kind::UnexpectedAudience, detail).field(field).limit(limit).value(count));
    }
    Ok(Some(count))
}

/// Calls `count` for each device of the event. The caller holds a [`Shared::counting_turn`] and runs on a thread that
/// may block.
fn visit(store: &Store, event: &Event, mut count: impl FnMut(&Recipient<'_>)) {
    let selected = store.select(event);
    let mut numbers = selected.iter_from(DeviceNumber(0));
    loop {
        let window: Vec<DeviceNumber> = numbers.by_ref().take(WINDOW_COUNT).collect();
        if window.is_empty() {
            return;
        }
        store.with_recipients(&window, |recipient| count(&recipient));
    }
}

#[derive(Debug, Default, Serialize)]
struct Counts {
    total: u64,
    by_platform: Tally<Platform>,
    by_locale: Tally<Locale>,
    by_country: Tally<Option<Country>>,
    by_app: Tally<AppId>,
}

impl Counts {
    fn add(&mut self, recipient: &Recipient<'_>) {
        let Recipient { platform, app, locale, country, .. } = *recipient;
        self.total += 1;
        self.by_platform.add(&platform);
        self.by_locale.add(locale);
        self.by_app.add(app);
        self.by_country.add(&country.cloned());
    }
}

/// Number of devices by name.
#[derive(Debug)]
struct Tally<T> {
    counts: HashMap<T, u64>,
    other: u64,
}

impl<T> Default for Tally<T> {
    fn default() -> Self {
        Self { counts: HashMap::new(), other: 0 }
    }
}

impl<T: Clone + Eq + Hash> Tally<T> {
    fn add(&mut self, name: &T) {
        if let Some(count) = self.counts.get_mut(name) {
            *count += 1;
        } else if self.counts.len() < NAME_COUNT_MAX {
            self.counts.insert(name.clone(), 1);
        } else {
            self.other += 1;
        }
    }
}

/// A property by which devices are counted.
trait Name: Ord {
    fn name(&self) -> &str;
}

impl Name for Platform {
    fn name(&self) -> &str {
        self.as_str()
    }
}

impl Name for Locale {
    fn name(&self) -> &str {
        self.as_str()
    }
}

impl Name for Option<Country> {
    fn name(&self) -> &str {
        self.as_ref().map_or(UNKNOWN, Country::as_str)
    }
}

impl Name for AppId {
    fn name(&self) -> &str {
        self.as_str()
    }
}

/// An object with the largest counts first, for people to read.
impl<T: Name> Serialize for Tally<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut counts: Vec<(&str, u64)> = self.counts.iter().map(|(name, &count)| (name.name(), count)).collect();
        counts.sort_unstable_by_key(|&(name, count)| (Reverse(count), name));
        // An app may be called `other`; then its devices are counted among the others.
        let (mut shown, mut other) = (Vec::with_capacity(counts.len().min(SHOWN_COUNT + 1)), self.other);
        for (name, count) in counts {
            if shown.len() < SHOWN_COUNT && name != OTHER { shown.push((name, count)) } else { other += count }
        }
        if other > 0 {
            shown.push((OTHER, other));
        }
        serializer.collect_map(shown)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn told(names: impl IntoIterator<Item = String>) -> serde_json::Map<String, Value> {
        let mut tally = Tally::default();
        names.into_iter().for_each(|name| tally.add(&AppId::new(&name).unwrap()));
        match serde_json::to_value(&tally).unwrap() {
            Value::Object(map) => map,
            value => panic!("{value}"),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// No device is lost, and each name in the answer has at least as many devices as those left out.
        #[test]
        fn every_device_is_counted_once(sizes in prop::collection::vec(1_u64..5, 0..300), other in 0_u64..3) {
            let names = sizes.iter().enumerate().flat_map(|(index, &size)| (0..size).map(move |_| format!("app-{index}")));
            let told = told(names.chain((0..other).map(|_| OTHER.to_owned())));
            let count = |value: &Value| value.as_u64().unwrap();
            prop_assert_eq!(told.values().map(count).sum::<u64>(), sizes.iter().sum::<u64>() + other);
            prop_assert!(told.len() <= SHOWN_COUNT + 1);
            prop_assert_eq!(told.len() - usize::from(told.contains_key(OTHER)), sizes.len().min(SHOWN_COUNT));
            let least = told.iter().filter(|(name, _)| *name != OTHER).map(|(_, size)| count(size)).min();
            for (index, size) in sizes.iter().enumerate() {
                match told.get(&format!("app-{index}")) {
                    Some(found) => prop_assert_eq!(count(found), *size),
                    None => prop_assert!(Some(*size) <= least),
                }
            }
        }
    }

    #[test]
    fn names_beyond_what_is_told_apart_are_counted_as_others() {
        let told = told((0..=NAME_COUNT_MAX).map(|index| format!("app-{index}")));
        assert_eq!(told[OTHER], NAME_COUNT_MAX - SHOWN_COUNT + 1);
    }
}
