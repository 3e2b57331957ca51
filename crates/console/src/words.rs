//! How numbers, times and paths are written on pages.

use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

/// What is shown where nothing is known.
pub(crate) const NOTHING: &str = "–";

const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A name as a part of a path or query.
pub(crate) fn encoded(name: &str) -> String {
    utf8_percent_encode(name, IN_PATH).to_string()
}

/// A whole number in groups of three: `1 234 567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// A number of an answer.
pub(crate) fn count(value: &Value) -> String {
    match value.as_u64() {
        Some(number) => grouped(number),
        None => value.as_f64().map_or_else(|| NOTHING.to_owned(), |number| format!("{number:.1}")),
    }
}

/// A rate per second, with as many digits as matter.
pub(crate) fn rate(value: &Value) -> String {
    match value.as_f64() {
        None => NOTHING.to_owned(),
        Some(rate) if rate >= 10.0 || rate == 0.0 => grouped(rate.round() as u64),
        Some(rate) => format!("{rate:.1}"),
    }
}

/// A time in milliseconds: `12 ms`, `3.4 s`, `2 min 5 s`.
pub(crate) fn millis(value: &Value) -> String {
    match value.as_f64() {
        None => NOTHING.to_owned(),
        Some(millis) if millis < 10.0 => format!("{millis:.1}\u{202f}ms"),
        Some(millis) if millis < 1000.0 => format!("{millis:.0}\u{202f}ms"),
        Some(millis) if millis < 60_000.0 => format!("{:.1}\u{202f}s", millis / 1000.0),
        Some(millis) => span((millis / 1000.0) as u64),
    }
}

/// Some seconds: `45 s`, `12 min 5 s`, `3 h 20 min`, `4 d 2 h`.
pub(crate) fn span(seconds: u64) -> String {
    let pair = |big: u64, big_unit, small: u64, small_unit| match small {
        0 => format!("{big}\u{202f}{big_unit}"),
        _ => format!("{big}\u{202f}{big_unit} {small}\u{202f}{small_unit}"),
    };
    match seconds {
        0..60 => format!("{seconds}\u{202f}s"),
        60..3600 => pair(seconds / 60, "min", seconds % 60, "s"),
        3600..86_400 => pair(seconds / 3600, "h", seconds % 3600 / 60, "min"),
        _ => pair(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

/// Bytes: `512 B`, `3.4 MiB`.
pub(crate) fn bytes(value: &Value) -> String {
    let Some(bytes) = value.as_f64() else { return NOTHING.to_owned() };
    let mut scaled = bytes;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if scaled < 1024.0 {
            let digits = usize::from(unit != "B" && scaled < 100.0);
            return format!("{scaled:.digits$}\u{202f}{unit}");
        }
        scaled /= 1024.0;
    }
    format!("{scaled:.1}\u{202f}TiB")
}

/// How many of a hundred.
pub(crate) fn percent(part: f64, whole: f64) -> String {
    if whole <= 0.0 {
        return NOTHING.to_owned();
    }
    let percent = 100.0 * part / whole;
    // What is not all is not shown as all.
    let shown = if part < whole { percent.min(99.9) } else { percent };
    if (10.0..99.5).contains(&shown) {
        format!("{shown:.0}\u{202f}%")
    } else {
        format!("{shown:.1}\u{202f}%").replace(".0", "")
    }
}

/// The seconds from a moment (RFC 3339) to `now`; `None`: that is no moment.
pub(crate) fn age(moment: &Value, now: u64) -> Option<u64> {
    let at: Timestamp = moment.as_str()?.parse().ok()?;
    let at = u64::try_from(at.as_millisecond()).ok()?;
    Some(now.saturating_sub(at) / 1000)
}

/// A moment (RFC 3339) without what a reader does not need: `14:03:05` of today, else with the day. UTC.
pub(crate) fn moment(value: &Value, now: u64) -> String {
    let Some(at) = value.as_str().and_then(|text| text.parse::<Timestamp>().ok()) else {
        return NOTHING.to_owned();
    };
    let today = i64::try_from(now).ok().and_then(|now| Timestamp::from_millisecond(now).ok());
    let is_today = today.is_some_and(|today| today.strftime("%F").to_string() == at.strftime("%F").to_string());
    at.strftime(if is_today { "%H:%M:%S" } else { "%b %-d %H:%M" }).to_string()
}

/// The day of a moment (RFC 3339), UTC.
pub(crate) fn day(value: &Value) -> String {
    let at = value.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    at.map_or_else(|| NOTHING.to_owned(), |at| at.strftime("%F").to_string())
}

/// A provider as its maker writes it.
pub(crate) fn provider(value: &Value) -> &str {
    match value.as_str().unwrap_or(NOTHING) {
        "apns" => "APNs",
        "fcm" => "FCM",
        "web_push" => "Web Push",
        other => other,
    }
}

/// The time of day, UTC.
pub(crate) fn clock(now: u64) -> String {
    let now = i64::try_from(now).ok().and_then(|now| Timestamp::from_millisecond(now).ok());
    now.map_or_else(|| NOTHING.to_owned(), |now| now.strftime("%H:%M:%S").to_string())
}

/// A word of the API in plain English: `no_token` becomes `no token`.
pub(crate) fn plain(word: &str) -> String {
    word.replace('_', " ")
}

/// The first letter large.
pub(crate) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_easy_to_read() {
        let plain = |text: String| text.replace('\u{202f}', " ");
        let all = [0, 999, 1000, 1_234_567].map(|number| plain(grouped(number)));
        assert_eq!(all, ["0", "999", "1 000", "1 234 567"]);
        let rates = [json!(0), json!(0.25), json!(12.6), json!(10_500), Value::Null].map(|value| plain(rate(&value)));
        assert_eq!(rates, ["0", "0.2", "13", "10 500", "–"]);
        let times = [0.5, 12.3, 1500.0, 125_000.0].map(|value| plain(millis(&json!(value))));
        assert_eq!(times, ["0.5 ms", "12 ms", "1.5 s", "2 min 5 s"]);
        let spans = [0, 59, 60, 3660, 90_000].map(|seconds| plain(span(seconds)));
        assert_eq!(spans, ["0 s", "59 s", "1 min", "1 h 1 min", "1 d 1 h"]);
        let sizes = [512_u64, 2048, 150 << 20, 3 << 40].map(|size| plain(bytes(&json!(size))));
        assert_eq!(sizes, ["512 B", "2.0 KiB", "150 MiB", "3.0 TiB"]);
        let shares = [(0.0, 5.0), (1.0, 3.0), (9999.0, 10_000.0), (5.0, 5.0), (1.0, 0.0)];
        let shares = shares.map(|(part, whole)| plain(percent(part, whole)));
        assert_eq!(shares, ["0 %", "33 %", "99.9 %", "100 %", "–"]);
    }

    #[test]
    fn moments_are_short() {
        let now = 1_795_770_000_000; // 2026-11-27 09:00:00 UTC
        assert_eq!(age(&json!("2026-11-27T08:59:30.5Z"), now), Some(29));
        assert_eq!((age(&json!("soon"), now), age(&Value::Null, now)), (None, None));
        assert_eq!(moment(&json!("2026-11-27T08:59:30Z"), now), "08:59:30");
        assert_eq!(moment(&json!("2026-11-26T08:59:30Z"), now), "Nov 26 08:59");
        assert_eq!((day(&json!("2026-11-26T00:00:00Z")), day(&Value::Null)), ("2026-11-26".to_owned(), "–".to_owned()));
        assert_eq!((moment(&json!("never"), now), clock(now)), ("–".to_owned(), "09:00:00".to_owned()));
    }

    #[test]
    fn names_are_safe_in_paths() {
        assert_eq!(encoded("match:1/a b?&é"), "match%3A1%2Fa%20b%3F%26%C3%A9");
    }
}
