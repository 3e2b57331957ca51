//! A moment as text for people and programs: RFC 3339 in UTC with milliseconds, `2026-07-15T18:04:05.123Z`.
//!
//! Years have four digits, so a moment after the year 9999 is shown as the last millisecond of that year. All moments
//! from 1970 on are read, at any offset. Fractions below a millisecond are cut off, and a leap second is read as the
//! second after it.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tidings_types::Timestamp;
use time::OffsetDateTime;
use time::format_description::well_known;

/// The last moment that can be written.
const END: u64 = 253_402_300_799_999;

const NANOS_PER_MILLI: i128 = 1_000_000;

/// Shows a timestamp as RFC 3339 in UTC with milliseconds: `2026-07-15T18:04:05.123Z`. A moment after the year 9999 is
/// shown as the last millisecond of that year.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rfc3339(pub Timestamp);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = i128::from(self.0.as_millis().min(END)) * NANOS_PER_MILLI;
        let moment = OffsetDateTime::from_unix_timestamp_nanos(nanos).expect("the year has four digits");
        let (year, month, day) = moment.to_calendar_date();
        let (hour, minute, second, millis) = moment.to_hms_milli();
        let month = u8::from(month);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

impl Serialize for Rfc3339 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rfc3339 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The text is not a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a moment from 1970 to 9999 with its offset from UTC (RFC 3339), such as \"2026-07-15T18:04:05Z\" or \
     \"2026-07-15T20:04:05+02:00\""
)]
pub struct Rfc3339Error;

impl FromStr for Rfc3339 {
    type Err = Rfc3339Error;

    /// Reads `2026-07-15T20:04:05.123+02:00`.
    fn from_str(text: &str) -> Result<Self, Rfc3339Error> {
        read(text).map(|millis| Self(Timestamp(millis))).ok_or(Rfc3339Error)
    }
}

fn read(text: &str) -> Option<u64> {
    // `time` takes any character between date and time.
    text.as_bytes().get("2026-07-15".len()).filter(|separator| matches!(separator, b'T' | b't'))?;
    // It knows leap seconds only at the end of a month.
    let before = "2026-07-15T18:04:".len();
    let (text, leap_millis) = match text.get(before..before + 2) {
        Some("60") => (Cow::from(format!("{}59{}", &text[..before], &text[before + 2..])), 1000),
        _ => (text.into(), 0),
    };
    let moment = OffsetDateTime::parse(&text, &well_known::Rfc3339).ok().filter(|moment| moment.year() >= 1970)?;
    let millis = moment.unix_timestamp_nanos().div_euclid(NANOS_PER_MILLI) + leap_millis;
    u64::try_from(millis).ok().filter(|millis| *millis <= END)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_moments_are_spelt_right() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (END, "9999-12-31T23:59:59.999Z"),
            (u64::MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Rfc3339(Timestamp(millis)).to_string(), text);
        }
    }

    #[test]
    fn a_moment_is_read_at_any_offset() {
        for (text, millis) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01T02:00:00+02:00", 0),
            ("1969-12-31T23:00:00-01:00", u64::MAX), // The year is checked as it is written.
            ("2023-11-14T22:13:20.123Z", 1_700_000_000_123),
            ("2023-11-14t22:13:20.1239999999999999999z", 1_700_000_000_123),
            ("2023-11-14T22:13:20.1-00:00", 1_700_000_000_100),
            ("2023-11-15T03:58:20+05:45", 1_700_000_000_000),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000),
            ("9999-12-31T23:59:59.999Z", END),
        ] {
            let expected = (millis <= END).then_some(Rfc3339(Timestamp(millis)));
            assert_eq!(text.parse().ok(), expected, "{text}");
        }
        for text in [
            "",
            "2026-07-15",
            "2026-07-15T18:04:05",
            "2026-07-15 18:04:05Z",
            "2026-07-15T18:04Z",
            "2026-07-15T18:04:05.Z",
            "2026-07-15T18:04:05.1",
            "2026-07-15T18:04:05+0200",
            "2026-07-15T18:04:05+24:00",
            "2026-07-15T18:04:05+02:60",
            "2026-07-15T24:00:00Z",
            "2026-07-15T18:60:00Z",
            "2026-07-15T18:04:61Z",
            "2026-13-15T18:04:05Z",
            "2026-00-15T18:04:05Z",
            "2026-02-29T18:04:05Z",
            "2026-06-31T18:04:05Z",
            "2026-06-00T18:04:05Z",
            "9999-12-31T23:59:59-00:01",
            "1970-01-01T00:00:00+00:01",
            "+026-07-15T18:04:05Z",
            "2026-07-15T18:04:05Zé",
            "2026-07-15T18:04:0é",
        ] {
            assert_eq!(text.parse::<Rfc3339>(), Err(Rfc3339Error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back_at_every_offset(millis in 0..END, minutes in 0_u64..1440, east in any::<bool>()) {
            let shown = Rfc3339(Timestamp(millis)).to_string();
            prop_assert_eq!(shown.parse(), Ok(Rfc3339(Timestamp(millis))));
            let (sign, offset) = (if east { '+' } else { '-' }, minutes * 60_000);
            let there = format!("{}{sign}{:02}:{:02}", shown.trim_end_matches('Z'), minutes / 60, minutes % 60);
            let expected = if east { millis.checked_sub(offset) } else { Some(millis + offset).filter(|it| *it <= END) };
            prop_assert_eq!(there.parse().ok(), expected.map(|millis| Rfc3339(Timestamp(millis))));
        }

        #[test]
        fn whatever_comes_it_is_read_or_refused(
            text in ".{0,40}|[0-9TZ:.+-]{15,30}",
            near in "(19[67]|20[0-9]|999)[0-9]-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9](\\.[0-9]{1,9})?(Z|[+-][0-2][0-9]:[0-5][0-9])",
        ) {
            for read in [text, near].iter().filter_map(|text| text.parse::<Rfc3339>().ok()) {
                prop_assert_eq!(read.to_string().parse(), Ok(read), "what was read can be written");
            }
        }
    }

    /// Compares day after day with a calendar that counts, over all years that can be written.
    #[test]
    fn no_day_is_left_out_or_there_twice() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..=END / 86_400_000 {
            let shown = Rfc3339(Timestamp(days * 86_400_000)).to_string();
            assert_eq!(shown, format!("{year:04}-{month:02}-{day:02}T00:00:00.000Z"));
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let last = match month {
                2 => 28 + u64::from(is_leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            (year, month, day) = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                (_, day) if day == last => (year, month + 1, 1),
                _ => (year, month, day + 1),
            };
        }
    }
}
