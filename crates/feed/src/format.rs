//! Texts become moments, numbers, and plain text.

use jiff::civil;
use jiff::fmt::rfc2822;
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Unit};

/// How a document writes a moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum TimeFormat {
    /// RFC 3339 or RFC 2822, whichever it is; a date alone is its first moment.
    #[default]
    Any,
    Rfc3339,
    Rfc2822,
    UnixSeconds,
    UnixMillis,
    /// As `strftime`.
    Pattern(String),
}

impl TimeFormat {
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        Ok(match name {
            "rfc3339" => Self::Rfc3339,
            "rfc2822" => Self::Rfc2822,
            "unix_seconds" => Self::UnixSeconds,
            "unix_ms" => Self::UnixMillis,
            pattern if pattern.contains('%') => {
                // A pattern that cannot even be printed has a letter that does not exist.
                let moment = Timestamp::UNIX_EPOCH.to_zoned_datetime(TimeZone::UTC);
                BrokenDownTime::from(&moment).to_string(pattern).map_err(|error| error.to_string())?;
                Self::Pattern(pattern.to_owned())
            }
            _ => {
                return Err(format!(
                    "must be rfc3339, rfc2822, unix_seconds, unix_ms or a pattern such as %Y-%m-%d %H:%M, got {name:?}"
                ));
            }
        })
    }

    /// The moment that a text means; `zone` is for texts that do not name theirs.
    pub(crate) fn moment(&self, text: &str, zone: Option<&TimeZone>) -> Result<Timestamp, String> {
        match self {
            Self::Any => any(text, zone),
            Self::Rfc3339 => rfc3339(text, zone),
            Self::Rfc2822 => rfc2822_moment(text).ok_or_else(|| format!("{text:?} is not a time of RFC 2822")),
            Self::UnixSeconds => unix(text, 1_000_000_000),
            Self::UnixMillis => unix(text, 1_000_000),
            Self::Pattern(pattern) => pattern_moment(text, pattern, zone),
        }
    }
}

fn any(text: &str, zone: Option<&TimeZone>) -> Result<Timestamp, String> {
    // To try a form that it is not costs as much as to read the one that it is. No RFC 2822 time has a `-` there.
    if text.as_bytes().get(4) == Some(&b'-') {
        return rfc3339(text, zone);
    }
    rfc2822_moment(text).map_or_else(|| rfc3339(text, zone), Ok)
}

fn rfc2822_moment(text: &str) -> Option<Timestamp> {
    // Feeds get the day of the week wrong, and it adds nothing.
    rfc2822::DateTimeParser::new().relaxed_weekday(true).parse_timestamp(text).ok()
}

fn rfc3339(text: &str, zone: Option<&TimeZone>) -> Result<Timestamp, String> {
    if let Ok(moment) = text.parse() {
        return Ok(moment);
    }
    let civil = text.parse::<civil::DateTime>().map_err(|_| format!("{text:?} is not a time that is known"))?;
    in_zone(civil, text, zone)
}

fn in_zone(civil: civil::DateTime, text: &str, zone: Option<&TimeZone>) -> Result<Timestamp, String> {
    let zone = zone.ok_or_else(|| format!("{text:?} has no time zone: say which is meant with `zone`"))?;
    zone.to_timestamp(civil).map_err(|error| format!("{text:?} is not a time: {error}"))
}

fn unix(text: &str, nanoseconds: i128) -> Result<Timestamp, String> {
    let error = || format!("{text:?} is not a number of seconds or milliseconds since 1970");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole: i64 = whole.parse().map_err(|_| error())?;
    if !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(error());
    }
    let part = fraction
        .bytes()
        .take(9)
        .fold((0_i128, nanoseconds), |(sum, unit), digit| (sum + i128::from(digit - b'0') * (unit / 10), unit / 10));
    let sign = if text.starts_with('-') { -1 } else { 1 };
    Timestamp::from_nanosecond(i128::from(whole) * nanoseconds + sign * part.0).map_err(|_| error())
}

fn pattern_moment(text: &str, pattern: &str, zone: Option<&TimeZone>) -> Result<Timestamp, String> {
    let error = |error: jiff::Error| format!("{text:?} is not a time of the form {pattern:?}: {error}");
    let parsed = BrokenDownTime::parse(pattern, text).map_err(error)?;
    if parsed.offset().is_some() || parsed.iana_time_zone().is_some() || parsed.timestamp().is_some() {
        return parsed.to_timestamp().map_err(error);
    }
    let date = parsed.to_date().map_err(error)?;
    let time = if parsed.hour().is_some() { parsed.to_time().map_err(error)? } else { civil::Time::midnight() };
    in_zone(date.to_datetime(time), text, zone)
}

/// A moment as RFC 3339, to the millisecond.
pub(crate) fn rfc3339_text(moment: Timestamp) -> String {
    if moment.subsec_nanosecond() % 1_000_000 == 0 {
        return moment.to_string();
    }
    moment.round(Unit::Millisecond).unwrap_or(moment).to_string()
}

/// The seconds of `90`, `90s`, `15m`, `2h`, `7d`.
pub(crate) fn seconds(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// HTML as plain text: without tags, comments, scripts and styles, with the entities resolved, runs of white space as one
/// space.
pub(crate) fn plain(html: &str) -> String {
    let mut text = String::with_capacity(html.len());
    let mut rest = html;
    while let Some(at) = rest.find(['<', '&']) {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        rest = if rest.starts_with('<') { behind_tag(rest, &mut text) } else { behind_entity(rest, &mut text) };
    }
    text.push_str(rest);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn behind_tag<'a>(rest: &'a str, text: &mut String) -> &'a str {
    let behind = |what: &str, from: &'a str| from.find(what).map_or("", |at| &from[at + what.len()..]);
    if rest.starts_with("<!--") {
        return behind("-->", rest);
    }
    let next = rest[1..].chars().next().unwrap_or(' ');
    if !(next.is_ascii_alphabetic() || matches!(next, '/' | '!' | '?')) {
        text.push('<');
        return &rest[1..];
    }
    let starts = |name: &str| rest.get(1..=name.len()).is_some_and(|tag| tag.eq_ignore_ascii_case(name));
    let after = behind(">", rest);
    for (name, end) in [("script", "</script"), ("style", "</style")] {
        if starts(name) {
            let ends = |bytes: &[u8]| bytes.eq_ignore_ascii_case(end.as_bytes());
            return behind(">", after.as_bytes().windows(end.len()).position(ends).map_or("", |at| &after[at..]));
        }
    }
    // `a<br>b` are two words, `a<b>b</b>` is one.
    let is_inline =
        ["b>", "/b>", "i>", "/i>", "em", "/em", "strong", "/strong", "a ", "a>", "/a>", "span", "/span", "u>", "/u>"];
    if !is_inline.into_iter().any(starts) {
        text.push(' ');
    }
    after
}

fn behind_entity<'a>(rest: &'a str, text: &mut String) -> &'a str {
    let known = rest.bytes().take(12).position(|byte| byte == b';').and_then(|end| {
        let letter = match &rest[1..end] {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            "nbsp" => ' ',
            "ndash" => '–',
            "mdash" => '—',
            "hellip" => '…',
            "lsquo" => '‘',
            "rsquo" => '’',
            "ldquo" => '“',
            "rdquo" => '”',
            number => {
                let number = number.strip_prefix('#')?;
                let code = match number.strip_prefix(['x', 'X']) {
                    Some(digits) => u32::from_str_radix(digits, 16).ok()?,
                    None => number.parse().ok()?,
                };
                char::from_u32(code).filter(|letter| !letter.is_control())?
            }
        };
        Some((letter, end))
    });
    match known {
        Some((letter, end)) => {
            text.push(letter);
            &rest[end + 1..]
        }
        None => {
            text.push('&');
            &rest[1..]
        }
    }
}

/// Lower case letters and digits with `-` between: for the key of a subject.
pub(crate) fn slug(text: &str) -> String {
    let mut slug = String::new();
    for letter in text.chars().flat_map(char::to_lowercase) {
        if letter.is_ascii_alphanumeric() {
            slug.push(letter);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug.truncate(slug.trim_end_matches('-').len());
    slug
}

/// The first characters of a text, with `…` if it was longer.
pub(crate) fn shortened(text: String, count_max: usize) -> String {
    if text.chars().nth(count_max).is_none() {
        return text;
    }
    let kept: String = text.chars().take(count_max.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(format: &str, zone: Option<&str>, text: &str) -> Result<String, String> {
        let format = if format.is_empty() { TimeFormat::Any } else { TimeFormat::parse(format).unwrap() };
        let zone = zone.map(|zone| TimeZone::get(zone).unwrap());
        format.moment(text, zone.as_ref()).map(rfc3339_text)
    }

    #[test]
    fn moments_are_read_in_every_form() {
        let stockholm = Some("Europe/Stockholm");
        for (format, zone, text, expected) in [
            ("", None, "2026-11-24T20:45:00+01:00", "2026-11-24T19:45:00Z"),
            ("", None, "Tue, 24 Nov 2026 20:45:00 +0100", "2026-11-24T19:45:00Z"),
            ("", None, "Mon, 24 Nov 2026 20:45:00 GMT", "2026-11-24T20:45:00Z"),
            ("", None, "24 Nov 2026 20:45 EST", "2026-11-25T01:45:00Z"),
            ("", stockholm, "2026-11-24 20:45:00", "2026-11-24T19:45:00Z"),
            ("", stockholm, "2026-07-24", "2026-07-23T22:00:00Z"),
            ("unix_seconds", None, "1795639500", "2026-11-25T20:45:00Z"),
            ("unix_seconds", None, "1795639500.25", "2026-11-25T20:45:00.25Z"),
            ("unix_ms", None, "1795639500250", "2026-11-25T20:45:00.25Z"),
            ("%d/%m/%Y %H:%M", stockholm, "24/11/2026 20:45", "2026-11-24T19:45:00Z"),
            ("%Y%m%dT%H%M%S%z", None, "20261124T204500+0100", "2026-11-24T19:45:00Z"),
            ("%d.%m.%Y", stockholm, "24.11.2026", "2026-11-23T23:00:00Z"),
        ] {
            assert_eq!(moment(format, zone, text).as_deref(), Ok(expected), "{format} {text}");
        }
        assert!(moment("", None, "2026-11-24 20:45:00").unwrap_err().contains("no time zone"));
        assert!(moment("", None, "soon").unwrap_err().contains("is not a time"));
        assert!(TimeFormat::parse("iso").unwrap_err().contains("must be rfc3339"));
        assert!(TimeFormat::parse("%K").is_err());
    }

    #[test]
    fn html_becomes_plain_text() {
        for (html, expected) in [
            ("<p>A&nbsp;goal <b>now</b>!</p>", "A goal now!"),
            ("one<br/>two", "one two"),
            ("1 < 2 & 3 &#38; &#x41; &unknown;", "1 < 2 & 3 & A &unknown;"),
            ("<style>p { }</style>text<!-- a > b -->", "text"),
            ("Goal! <STYLE>p{}</Style> Ahmed scores", "Goal! Ahmed scores"),
            ("<script", ""),
            ("é<b>é</b>", "éé"),
        ] {
            assert_eq!(plain(html), expected, "{html}");
        }
    }

    #[test]
    fn durations_slugs_and_short_texts() {
        assert_eq!(
            ["90", "2m", "1h", "7d", "1w", ""].map(seconds),
            [Some(90), Some(120), Some(3600), Some(604_800), None, None]
        );
        assert_eq!(slug("  Breaking News – Öl! "), "breaking-news-l");
        assert_eq!(shortened("ärlig text".to_owned(), 6), "ärlig…");
        assert_eq!(shortened("kort".to_owned(), 4), "kort");
    }
}
