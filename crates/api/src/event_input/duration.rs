//! Durations: seconds as a number, or text with a unit.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::Value;
use tidings_types::event_limits as limits;

use crate::input::{Field, shown};
use crate::problem::Invalid;

/// Units of a time to live, in seconds.
pub(crate) const TTL_UNITS: [(&str, u64); 4] = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];
/// The longest time that a request waits for receipts.
pub(crate) const QUERY_WAIT_MAX: Duration = Duration::from_secs(30);

// The journal's rows have milliseconds. No such value may be read as seconds.
const _: () = assert!(limits::RECEIPT_WAIT_MIN.as_millis() > limits::RECEIPT_WAIT_MAX.as_secs() as u128);

/// Seconds, at most the longest `ttl` of an event.
pub(super) fn ttl(field: Field<'_>) -> Result<Duration, Invalid> {
    whole_seconds(field, limits::TTL_MAX)
}

/// Whole seconds, at least one. A whole number may be written in any way (`90.0`).
pub(crate) fn whole_seconds(field: Field<'_>, max: Duration) -> Result<Duration, Invalid> {
    let text = if field.is_text() { field.text()? } else { field.raw.get().to_owned() };
    let max = max.as_secs();
    let seconds = if field.is_text() { seconds_with_unit(&text) } else { field.whole_number(max) };
    seconds.filter(|seconds| (1..=max).contains(seconds)).map(Duration::from_secs).ok_or_else(|| {
        let got = Value::from(shown(&text));
        let rule = format!(
            "must be 1 to {max} seconds, as a number or as text such as \"90s\", \"15m\", \"4h\", \"2d\", got {got}"
        );
        field.invalid(rule).limit(max as usize).value(got)
    })
}

fn seconds_with_unit(text: &str) -> Option<u64> {
    let (digits, unit) = split(text);
    let (_, seconds) = TTL_UNITS.into_iter().find(|(known, _)| *known == unit)?;
    digits.parse::<u64>().ok()?.checked_mul(seconds)
}

/// Seconds with a fraction, to the millisecond.
pub(super) fn receipt_wait(field: Field<'_>) -> Result<Duration, Invalid> {
    let (min, max) = (limits::RECEIPT_WAIT_MIN, limits::RECEIPT_WAIT_MAX);
    let text = if field.is_text() { field.text()? } else { field.raw.get().to_owned() };
    let wait = if field.is_text() { with_unit(&text) } else { number(&text) };
    wait.filter(|wait| (min..=max).contains(wait)).ok_or_else(|| {
        let (min, max, got) = (min.as_secs_f64(), max.as_secs(), Value::from(shown(&text)));
        let rule =
            format!("must be {min} to {max} seconds, as a number or as text such as \"500ms\", \"2s\", got {got}");
        field.invalid(rule).limit(max as usize).value(got)
    })
}

/// Like [`receipt_wait`], in a query, where a number is text as well.
pub(crate) fn wait_of_query(text: &str) -> Result<Duration, Invalid> {
    const RANGE: RangeInclusive<Duration> = Duration::ZERO..=QUERY_WAIT_MAX;
    with_unit(text).or_else(|| number(text)).filter(|wait| RANGE.contains(wait)).ok_or_else(|| {
        let (max, got) = (QUERY_WAIT_MAX.as_secs(), shown(text));
        let rule = format_args!("must be 0 to {max} seconds, such as 2s, 500ms or 0.5, got {got:?}").to_string();
        Invalid::new("wait", rule).limit(max as usize).value(got)
    })
}

/// A whole number and its unit.
fn with_unit(text: &str) -> Option<Duration> {
    let (digits, unit) = split(text);
    let amount = digits.parse().ok()?;
    match unit {
        "ms" => Some(Duration::from_millis(amount)),
        "s" => Some(Duration::from_secs(amount)),
        _ => None,
    }
}

/// Seconds, rounded to the millisecond.
fn number(text: &str) -> Option<Duration> {
    let millis = (text.parse::<f64>().ok()? * 1000.0).round();
    // Negative, infinite and invalid numbers end here. The largest wait is far below the limit of exact whole numbers
    // in f64.
    (0.0..=1e9).contains(&millis).then(|| Duration::from_millis(millis as u64))
}

fn split(text: &str) -> (&str, &str) {
    text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()))
}
