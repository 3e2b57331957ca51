//! A moment as text for people and programs: RFC 3339 in UTC with milliseconds, `2026-07-15T18:04:05.123Z`.
//!
//! Years have four digits there, so what lies beyond the year 9999 is shown as its last millisecond. Read are all moments
//! from 1970 on, at any offset; what is finer than a millisecond is cut off, and a leap second is the second behind it.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use tidings_types::Timestamp;

/// The last moment that can be spelt.
const END: u64 = 253_402_300_799_999;

/// Shows a timestamp as RFC 3339 in UTC with milliseconds: `2026-07-15T18:04:05.123Z`. What lies beyond the year 9999 is
/// shown as its last millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rfc3339(pub Timestamp);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis().min(END);
        let (seconds, millis) = (millis / 1000, millis % 1000);
        let (year, month, day) = date(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

impl Serialize for Rfc3339 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The text is no moment.
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
        read(text.as_bytes()).map(|millis| Self(Timestamp(millis))).ok_or(Rfc3339Error)
    }
}

fn read(text: &[u8]) -> Option<u64> {
    let (moment, rest) = text.split_at_checked("2026-07-15T18:04:05".len())?;
    let [y, yy, yyy, yyyy, b'-', m, mm, b'-', d, dd, b'T' | b't', h, hh, b':', n, nn, b':', s, ss] = *moment else {
        return None;
    };
    let (year, month, day) = (number(&[y, yy, yyy, yyyy])?, number(&[m, mm])?, number(&[d, dd])?);
    let (hour, minute, second) = (number(&[h, hh])?, number(&[n, nn])?, number(&[s, ss])?);
    let days = days(year, month, day)?;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (millis, rest) = match rest.strip_prefix(b".") {
        Some(rest) => {
            let end = rest.iter().position(|byte| !byte.is_ascii_digit())?;
            let (digits, rest) = rest.split_at_checked(end).filter(|(digits, _)| !digits.is_empty())?;
            let digit = |index: usize| digits.get(index).map_or(0, |digit| u64::from(digit - b'0'));
            (100 * digit(0) + 10 * digit(1) + digit(2), rest)
        }
        None => (0, rest),
    };
    let local = (((days * 24 + hour) * 60 + minute) * 60 + second) * 1000 + millis;
    let millis = match *rest {
        [b'Z' | b'z'] => local,
        [sign @ (b'+' | b'-'), h, hh, b':', m, mm] => {
            let (hours, minutes) = (number(&[h, hh])?, number(&[m, mm])?);
            let offset = (hours * 60 + minutes) * 60_000;
            let within = hours <= 23 && minutes <= 59;
            within.then(|| if sign == b'+' { local.checked_sub(offset) } else { Some(local + offset) })??
        }
        _ => return None,
    };
    (millis <= END).then_some(millis)
}

fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0')))
}

/// Days since 1970-01-01, if there is such a day (`days_from_civil` of the same source).
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if year < 1970 || !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    let year_from_march = year - u64::from(month <= 2);
    let (era, year_of_era) = (year_from_march / 400, year_from_march % 400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    (date(days) == (year, month, day)).then_some(days) // There is no 30th of February.
}

/// Year, month and day of a day since 1970-01-01, in the Gregorian calendar. Years are counted from March here, so that a
/// leap day is the last of its year (H. Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`).
fn date(days: u64) -> (u64, u64, u64) {
    const ERA_DAYS: u64 = 146_097; // 400 years.
    let days = days + 719_468; // Since 0000-03-01.
    let (era, day_of_era) = (days / ERA_DAYS, days % ERA_DAYS);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
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
            ("1969-12-31T23:00:00-01:00", u64::MAX), // The year counts as it is written.
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
        fn whatever_comes_it_is_read_or_refused(text in ".{0,40}", near in "[0-9TZ:.+-]{15,30}") {
            let _ = (text.parse::<Rfc3339>(), near.parse::<Rfc3339>());
        }
    }

    /// Day after day over all years that can be spelt, against a calendar that counts.
    #[test]
    fn no_day_is_left_out_or_there_twice() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..=END / 86_400_000 {
            assert_eq!(date(days), (year, month, day));
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
