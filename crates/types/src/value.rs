//! Values of placeholders that are shown as each reader's language shows them: numbers, money, dates, times, names.
//!
//! In JSON a value is an object, and its first field names the kind: `{"number": 1234567.5}`,
//! `{"datetime": "2026-11-24T20:45:00Z", "zone": "device"}`. The serde forms are those of the journal's rows, so a change
//! of them changes the store's format. Live clients get the same JSON.
//!
//! Not here: how a value looks (in `gettext`), and which time zones exist.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use time::format_description::well_known;
use time::{Date, Month, OffsetDateTime};

use crate::{TimeZone, Timestamp};

/// A value that is shown in the conventions of the text's language and of the reader's region.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TypedValue {
    /// A number with the separators of the language.
    Number {
        /// The number.
        number: Number,
        /// How many digits its fraction has; without: at most 3, as many as it needs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digits: Option<u8>,
    },
    /// So many percent: 63 is 63 %.
    Percent {
        /// The number before the sign.
        percent: Number,
        /// As with a number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digits: Option<u8>,
    },
    /// An amount of money, with as many digits as the currency has.
    Money {
        /// The amount.
        money: Number,
        /// Its currency.
        currency: Currency,
    },
    /// A moment, shown in a time zone.
    DateTime {
        /// The moment.
        datetime: DateTime,
        /// How it is shown.
        #[serde(default = "datetime_medium", skip_serializing_if = "is_datetime_medium")]
        style: Style,
        /// The zone; without one, the offset with which the moment is written.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        zone: Option<Zone>,
        /// The zone for devices without one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        default_zone: Option<TimeZone>,
    },
    /// A day, the same in all zones.
    Date {
        /// The day.
        date: Day,
        /// How it is shown.
        #[serde(default = "date_medium", skip_serializing_if = "is_date_medium")]
        style: Style,
    },
    /// A time of day, the same in all zones.
    Time {
        /// The time.
        time: TimeOfDay,
        /// How it is shown.
        #[serde(default = "time_short", skip_serializing_if = "is_time_short")]
        style: Style,
    },
    /// A text that has a translation itself, such as the name of a team.
    Name {
        /// The text in the source language: the msgid.
        name: String,
        /// The msgctxt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        context: Option<String>,
    },
}

impl TypedValue {
    /// Whether devices with different time zones see different texts.
    pub fn is_zoned(&self) -> bool {
        matches!(self, Self::DateTime { zone: Some(Zone::Device), .. })
    }
}

// User text must never appear in a log.
impl fmt::Debug for TypedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Number { .. } => "Number",
            Self::Percent { .. } => "Percent",
            Self::Money { .. } => "Money",
            Self::DateTime { .. } => "DateTime",
            Self::Date { .. } => "Date",
            Self::Time { .. } => "Time",
            Self::Name { .. } => "Name",
        })
    }
}

fn datetime_medium() -> Style {
    Style::DatetimeMedium
}

fn is_datetime_medium(style: &Style) -> bool {
    *style == Style::DatetimeMedium
}

fn date_medium() -> Style {
    Style::DateMedium
}

fn is_date_medium(style: &Style) -> bool {
    *style == Style::DateMedium
}

fn time_short() -> Style {
    Style::TimeShort
}

fn is_time_short(style: &Style) -> bool {
    *style == Style::TimeShort
}

/// A number as JSON has it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Number {
    /// A whole number.
    Integer(i64),
    /// A decimal number.
    Decimal(f64),
}

/// How a date or a time is shown. The lengths are those of CLDR (`dateStyle` and `timeStyle` of JavaScript's `Intl`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Style {
    /// 8:45 PM
    TimeShort,
    /// 8:45:00 PM
    TimeMedium,
    /// 11/24/26
    DateShort,
    /// Nov 24, 2026
    DateMedium,
    /// November 24, 2026
    DateLong,
    /// Tuesday, November 24, 2026
    DateFull,
    /// 11/24/26, 8:45 PM
    DatetimeShort,
    /// Nov 24, 2026, 8:45 PM
    DatetimeMedium,
    /// November 24, 2026 at 8:45 PM
    DatetimeLong,
    /// Tuesday, November 24, 2026 at 8:45 PM
    DatetimeFull,
}

impl Style {
    /// All of them by name: first those of a time, then those of a date, then those of both together.
    pub const ALL: [(&str, Self); 10] = [
        ("time_short", Self::TimeShort),
        ("time_medium", Self::TimeMedium),
        ("date_short", Self::DateShort),
        ("date_medium", Self::DateMedium),
        ("date_long", Self::DateLong),
        ("date_full", Self::DateFull),
        ("datetime_short", Self::DatetimeShort),
        ("datetime_medium", Self::DatetimeMedium),
        ("datetime_long", Self::DatetimeLong),
        ("datetime_full", Self::DatetimeFull),
    ];
    /// Those of a time.
    pub const OF_TIME: &[(&str, Self)] = Self::ALL.split_at(2).0;
    /// Those of a date.
    pub const OF_DATE: &[(&str, Self)] = Self::ALL.split_at(2).1.split_at(4).0;
}

/// In whose zone a moment is shown.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Zone {
    /// That of each device.
    Device,
    /// This zone for everybody.
    Named(TimeZone),
}

/// What [`Zone::Device`] is called. No zone of the IANA database has this name.
const DEVICE: &str = "device";

impl From<Zone> for String {
    fn from(zone: Zone) -> Self {
        match zone {
            Zone::Device => DEVICE.to_owned(),
            Zone::Named(zone) => zone.into(),
        }
    }
}

impl TryFrom<String> for Zone {
    type Error = crate::NameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text == DEVICE { Ok(Self::Device) } else { TimeZone::new(&text).map(Self::Named) }
    }
}

/// A text is not a value of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ValueError(&'static str);

/// A currency as three letters (ISO 4217), for example `EUR`. Only its syntax is checked: one that the language does not
/// know is shown by its letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Currency([u8; 3]);

impl Currency {
    /// Its letters.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("three letters A-Z")
    }
}

impl FromStr for Currency {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let letters =
            text.as_bytes().try_into().ok().filter(|letters: &[u8; 3]| letters.iter().all(u8::is_ascii_uppercase));
        letters.map(Self).ok_or(ValueError("must be a currency as three letters A-Z (ISO 4217), such as EUR"))
    }
}

/// A moment from 1970 to 9999 with the offset from UTC with which it was written (RFC 3339).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DateTime(OffsetDateTime);

impl DateTime {
    /// The moment.
    pub fn at(self) -> Timestamp {
        Timestamp(u64::try_from(self.0.unix_timestamp_nanos() / 1_000_000).unwrap_or_default())
    }

    /// The offset from UTC with which it was written, less than a day in either direction.
    pub fn offset_seconds(self) -> i32 {
        self.0.offset().whole_seconds()
    }
}

impl FromStr for DateTime {
    type Err = ValueError;

    /// Reads `2026-11-24T20:45:00+01:00`. Fractions below a millisecond are cut off.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let separated = text.as_bytes().get("2026-11-24".len()).is_some_and(|byte| matches!(byte, b'T' | b't'));
        let moment = OffsetDateTime::parse(text, &well_known::Rfc3339).ok().filter(|_| separated && text.len() <= 64);
        // The first day and the last two are left out: an offset may move a moment out of the range.
        let in_range = |moment: &OffsetDateTime| (86_400..253_402_128_000).contains(&moment.unix_timestamp());
        let moment = moment.filter(in_range).and_then(|moment| moment.replace_millisecond(moment.millisecond()).ok());
        moment.map(Self).ok_or(ValueError(
            "must be a moment from 1970-01-02 to 9999-12-29 with its offset from UTC (RFC 3339), such as \
             \"2026-11-24T20:45:00Z\" or \"2026-11-24T21:45:00+01:00\"",
        ))
    }
}

impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (date, (hour, minute, second, millis)) = (Day(self.0.date()), self.0.to_hms_milli());
        write!(f, "{date}T{hour:02}:{minute:02}:{second:02}")?;
        if millis != 0 {
            write!(f, ".{millis:03}")?;
        }
        let (hours, minutes, _) = self.0.offset().as_hms();
        match self.offset_seconds() {
            0 => f.write_str("Z"),
            offset => {
                let sign = if offset < 0 { '-' } else { '+' };
                write!(f, "{sign}{:02}:{:02}", hours.unsigned_abs(), minutes.unsigned_abs())
            }
        }
    }
}

/// A day of the calendar, of the years 1 to 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Day(Date);

impl Day {
    /// Year, month and day.
    pub fn parts(self) -> (i32, u8, u8) {
        (self.0.year(), u8::from(self.0.month()), self.0.day())
    }
}

impl FromStr for Day {
    type Err = ValueError;

    /// Reads `2026-11-24`.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let read = || {
            let [year, month, day] = numbers(text, '-', [4, 2, 2])?;
            let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
            Date::from_calendar_date(year.into(), month, u8::try_from(day).ok()?).ok().filter(|date| date.year() > 0)
        };
        read().map(Self).ok_or(ValueError("must be a day of the calendar, such as \"2026-11-24\""))
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.parts();
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

/// A time of day, to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeOfDay {
    hour: u8,
    minute: u8,
    second: u8,
}

impl TimeOfDay {
    /// Hour, minute and second.
    pub fn parts(self) -> (u8, u8, u8) {
        (self.hour, self.minute, self.second)
    }
}

impl FromStr for TimeOfDay {
    type Err = ValueError;

    /// Reads `20:45` or `20:45:00`.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let short = || numbers(text, ':', [2, 2]).map(|[hour, minute]| [hour, minute, 0]);
        let in_range = |[hour, minute, second]: &[u16; 3]| *hour < 24 && *minute < 60 && *second < 60;
        let read = short().or_else(|| numbers(text, ':', [2, 2, 2])).filter(in_range);
        let [hour, minute, second] =
            read.ok_or(ValueError("must be a time of day, such as \"20:45\" or \"20:45:30\""))?.map(|part| part as u8);
        Ok(Self { hour, minute, second })
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hour, minute, second } = self;
        match second {
            0 => write!(f, "{hour:02}:{minute:02}"),
            _ => write!(f, "{hour:02}:{minute:02}:{second:02}"),
        }
    }
}

/// Numbers of so many digits each.
fn numbers<const COUNT: usize>(text: &str, separator: char, digits: [usize; COUNT]) -> Option<[u16; COUNT]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; COUNT];
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let part =
            parts.next().filter(|part| part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit()))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

/// A serde form as text.
macro_rules! as_text {
    ($($name:ident)*) => {$(
        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

as_text!(DateTime Day TimeOfDay);

impl From<Currency> for String {
    fn from(currency: Currency) -> Self {
        currency.as_str().to_owned()
    }
}

impl TryFrom<String> for Currency {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParamValue;

    fn read(json: &str) -> ParamValue {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_value_of_the_journal_is_read_as_it_was_written() {
        for json in [
            r#"{"number":1234567.5}"#,
            r#"{"number":-3,"digits":2}"#,
            r#"{"percent":63}"#,
            r#"{"money":19.9,"currency":"EUR"}"#,
            r#"{"datetime":"2026-11-24T20:45:00Z"}"#,
            r#"{"datetime":"2026-11-24T21:45:00.250-03:30","style":"time_short","zone":"Europe/Stockholm"}"#,
            r#"{"datetime":"2026-11-24T20:45:00Z","zone":"device","default_zone":"Asia/Tokyo"}"#,
            r#"{"date":"2028-02-29","style":"date_full"}"#,
            r#"{"time":"20:45"}"#,
            r#"{"time":"20:45:30","style":"time_medium"}"#,
            r#"{"name":"Sweden","context":"team"}"#,
        ] {
            let value = read(json);
            assert!(matches!(value, ParamValue::Typed(_)), "{json}");
            assert_eq!(serde_json::to_string(&value).unwrap(), json);
        }
        assert_eq!(read("3"), ParamValue::Integer(3), "a row of an older version");
        assert_eq!(read("0.1"), ParamValue::Decimal(0.1));
        assert_eq!(read("\"2026-11-24\""), ParamValue::Text("2026-11-24".to_owned()));
    }

    #[test]
    fn a_moment_keeps_the_offset_with_which_it_was_written() {
        let moment: DateTime = "2026-11-24T21:45:00.2509+01:00".parse().unwrap();
        assert_eq!((moment.at(), moment.offset_seconds()), (Timestamp(1_795_553_100_250), 3600));
        assert_eq!(moment.to_string(), "2026-11-24T21:45:00.250+01:00");
    }

    #[test]
    fn what_is_no_value_is_refused() {
        for text in [
            "2026-11-24",
            "2026-11-24 20:45:00Z",
            "2026-11-24T20:45:00",
            "2026-02-30T20:45:00Z",
            "now",
            "1970-01-01T00:00:00Z",
            "9999-12-31T23:59:59Z",
        ] {
            assert!(text.parse::<DateTime>().is_err(), "{text}");
        }
        for text in ["2026-02-29", "2026-13-01", "2026-1-1", "0000-01-01", "2026-01-01-01", "+026-01-01", ""] {
            assert!(text.parse::<Day>().is_err(), "{text}");
        }
        for text in ["24:00", "20:60", "20:45:60", "8:45", "20", "20:45:00:00", ""] {
            assert!(text.parse::<TimeOfDay>().is_err(), "{text}");
        }
        for text in ["eur", "EURO", "E€", ""] {
            assert!(text.parse::<Currency>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_style_belongs_to_a_time_or_to_a_date_or_to_both() {
        assert!(Style::OF_TIME.iter().all(|(name, _)| name.starts_with("time_")));
        assert!(Style::OF_DATE.iter().all(|(name, _)| name.starts_with("date_")));
        for (name, style) in Style::ALL {
            assert_eq!(serde_json::to_string(&style).unwrap(), format!("\"{name}\""));
        }
    }
}
