//! Values of Centrifugo's configuration as values of ours. Go's durations, numbers that are texts, and lists that are texts
//! with spaces are understood.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value as Json;
use toml::Value as Toml;

use super::table::Kind;
use crate::value::{ByteSize, Leaf as _};

/// Whether a value switches something off.
pub(super) fn is_off(value: &Json) -> bool {
    match value {
        Json::Null => true,
        Json::Bool(on) => !on,
        Json::Number(number) => number.as_f64() == Some(0.0),
        Json::String(text) => matches!(text.as_str(), "" | "0" | "0s" | "false"),
        Json::Array(items) => items.is_empty(),
        Json::Object(items) => items.is_empty(),
    }
}

/// A plain value, as text.
pub(super) fn plain(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The value as ours; none if there is nothing to set.
///
/// # Errors
/// If it is not of this kind.
pub(super) fn convert(kind: Kind, value: &Json) -> Result<Option<Toml>, &'static str> {
    let whole = || plain(value).parse::<i64>().map_err(|_| "is not a whole number");
    Ok(Some(match kind {
        Kind::Bool => Toml::Boolean(truth(value).ok_or("is neither true nor false")?),
        Kind::Whole => Toml::Integer(whole()?),
        Kind::Limit => match whole()? {
            0 => return Ok(None),
            limit => Toml::Integer(limit),
        },
        Kind::Bytes => Toml::String(ByteSize(u64::try_from(whole()?).map_err(|_| "is not a size")?).to_string()),
        Kind::Time if is_off(value) => return Ok(None),
        Kind::Duration | Kind::Time => Toml::String(duration(value)?.show()),
        Kind::Texts => {
            Toml::Array(texts(value).ok_or("is not a list of texts")?.into_iter().map(Toml::String).collect())
        }
        _ => {
            let text = value.as_str().ok_or("is not a text")?;
            match (text, kind) {
                ("", _) => return Ok(None),
                (_, Kind::Regex) => Toml::String(whole_text(text)),
                (_, Kind::Level) => Toml::String(filter(text).ok_or("is not a level")?),
                _ => Toml::String(text.to_owned()),
            }
        }
    }))
}

/// As Go reads truth values.
pub(super) fn truth(value: &Json) -> Option<bool> {
    match plain(value).as_str() {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

/// A list, or a text with spaces.
fn texts(value: &Json) -> Option<Vec<String>> {
    match value {
        Json::String(text) => Some(text.split_whitespace().map(str::to_owned).collect()),
        Json::Array(items) => items.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
        _ => None,
    }
}

/// As Go spells a duration, such as "1h30m" and "1.5s", or nanoseconds.
fn duration(value: &Json) -> Result<Duration, &'static str> {
    const WRONG: &str = "is not a duration";
    const UNITS: [(&str, f64); 7] =
        [("ns", 1e-6), ("us", 1e-3), ("µs", 1e-3), ("ms", 1.0), ("s", 1e3), ("m", 6e4), ("h", 3.6e6)];
    let text = plain(value);
    if text.starts_with('-') {
        return Err("switches this off, and here it is always on");
    }
    let mut millis = 0.0;
    let mut rest = text.as_str();
    if let Ok(nanos) = rest.parse::<f64>() {
        (millis, rest) = (nanos * 1e-6, "");
    } else if rest.is_empty() {
        return Err(WRONG);
    }
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or(WRONG)?);
        let end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == &tail[..end]).ok_or(WRONG)?;
        millis += number.parse::<f64>().map_err(|_| WRONG)? * unit;
        rest = &tail[end..];
    }
    let is_whole = millis.is_finite() && (millis - millis.round()).abs() < 1e-6;
    let seconds = is_whole.then_some(millis.round() / 1e3).ok_or("is finer than a millisecond")?;
    Duration::try_from_secs_f64(seconds).map_err(|_| WRONG)
}

/// An expression that matches all of a text that has a match of `pattern` somewhere.
fn whole_text(pattern: &str) -> String {
    match (pattern.starts_with('^'), pattern.ends_with('$') && !pattern.ends_with("\\$")) {
        // Without alternatives at the top, `^` and `$` hold for all of the pattern.
        (true, true) if !pattern.contains('|') => pattern.to_owned(),
        _ => format!("(?s:.*)(?:{pattern})(?s:.*)"),
    }
}

fn filter(level: &str) -> Option<String> {
    Some(match level {
        "trace" | "debug" | "info" => format!("{level},fjall=warn,lsm_tree=warn"),
        "warn" | "error" => level.to_owned(),
        "fatal" => "error".to_owned(),
        "none" => "off".to_owned(),
        _ => return None,
    })
}

/// PEM that stands in a value, as it is or in base64; none if the value is a path.
pub(super) fn inline_pem(text: &str) -> Option<String> {
    let is_pem = |text: &str| text.contains("-----BEGIN ");
    let decoded = || String::from_utf8(BASE64_STANDARD.decode(text.trim()).ok()?).ok();
    if is_pem(text) { Some(text.to_owned()) } else { decoded().filter(|text| is_pem(text)) }
}

/// The lines of a file with headers.
pub(super) fn headers(value: &Json) -> Option<String> {
    let headers = value.as_object()?.iter();
    headers.map(|(name, value)| Some(format!("{name}: {}\n", value.as_str()?))).collect()
}

/// What statuses of a back end mean.
pub(super) fn statuses(value: &Json) -> Option<Toml> {
    let code = |item: &Json, to: &str| item.get(to)?.get("code")?.as_i64().filter(|code| *code > 0);
    let one = |item: &Json| {
        let mut row = toml::Table::new();
        row.insert("status".into(), item.get("status_code")?.as_i64()?.into());
        let (to, kind, text) = match code(item, "to_error") {
            Some(_) => ("to_error", "error", "message"),
            None => ("to_disconnect", "disconnect", "reason"),
        };
        row.insert(kind.into(), code(item, to)?.into());
        if let Some(text) = item[to][text].as_str().filter(|text| !text.is_empty()) {
            row.insert("text".into(), text.into());
        }
        if item[to]["temporary"] == true {
            row.insert("temporary".into(), true.into());
        }
        Some(Toml::Table(row))
    };
    value.as_array()?.iter().map(one).collect::<Option<Vec<_>>>().map(Toml::Array)
}
