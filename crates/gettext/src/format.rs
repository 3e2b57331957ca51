//! Typed values as text: numbers, money, dates and times as a language writes them, moments in a time zone.
//!
//! The only module that knows ICU4X (formats of CLDR) and jiff (the IANA time zones). Their data is part of the program,
//! so two servers of one version show the same text, and nothing is read from the machine.
//!
//! **Language and region.** A value follows the language of its sentence, and the region of the reader's device if the
//! device has the same language and script: in an English sentence a device in `en-GB` reads 24/11/2026, and one in
//! `sv` reads the American form, as the source text does. A text for `und` has no language; there the device decides.
//!
//! **Zones.** A moment for the zone of the device is shown with its offset (`8:45 PM GMT+1`) to a device without a zone, or
//! with one that is not in the database. So nobody reads another zone's time as theirs.
//!
//! Nothing here fails: what [`check_value`] accepts has a text in each locale. One number or date costs some microseconds.
//! A value takes at most a few hundred bytes.

use std::sync::LazyLock;

use fixed_decimal::{Decimal, FloatPrecision, SignedRoundingMode, UnsignedRoundingMode};
use icu_calendar::Iso;
use icu_datetime::fieldsets::zone::LocalizedOffsetShort;
use icu_datetime::fieldsets::{T, YMD, YMDE};
use icu_datetime::input::{Date, Time, UtcOffset, ZonedDateTime};
use icu_datetime::{DateTimeFormatter, DateTimeFormatterPreferences};
use icu_decimal::DecimalFormatter;
use icu_experimental::dimension::currency::CurrencyType;
use icu_experimental::dimension::currency::formatter::CurrencyFormatter;
use icu_experimental::dimension::percent::formatter::PercentFormatter;
use jiff::tz::TimeZoneDatabase;
use jiff::{Timestamp, civil};
use tidings_types::{Currency, DateTime, Locale, Number, Style, TimeZone, TypedValue, Zone};

use crate::error::ValueProblem;

/// The tag of a text that has no language.
pub(crate) const UNDETERMINED: &str = "und";
/// The digits of a fraction if the value does not say how many.
const DIGITS: u8 = 3;

static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

fn is_zone(zone: &TimeZone) -> bool {
    ZONES.get(zone.as_str()).is_ok()
}

/// The offset from UTC, in seconds, at the value's moment in this zone; `None` if the value is not shown in the zone of
/// the device, or the zone does not exist. Zones with the same offsets give the same text.
pub fn offset(value: &TypedValue, zone: &TimeZone) -> Option<i32> {
    match value {
        TypedValue::DateTime { datetime, .. } if value.is_zoned() => in_zone(*datetime, zone).map(|(_, offset)| offset),
        _ => None,
    }
}

/// Checks what the type of a value does not.
///
/// # Errors
/// When it names a time zone that does not exist.
pub fn check_value(value: &TypedValue) -> Result<(), ValueProblem> {
    let TypedValue::DateTime { zone, default_zone, .. } = value else { return Ok(()) };
    let named = match zone {
        Some(Zone::Named(zone)) => Some(("zone", zone)),
        _ => None,
    };
    let mut zones = named.into_iter().chain(default_zone.as_ref().map(|zone| ("default_zone", zone)));
    match zones.find(|(_, zone)| !is_zone(zone)) {
        Some((field, zone)) => Err(ValueProblem::UnknownZone { field, zone: zone.clone() }),
        None => Ok(()),
    }
}

/// The locale of the values in a text: the reader's, if the text has the same language and script or none at all.
pub(crate) fn conventions<'a>(text: &'a Locale, reader: &'a Locale) -> &'a Locale {
    if text.as_str() == UNDETERMINED || tongue(text) == tongue(reader) { reader } else { text }
}

/// A locale without its region.
fn tongue(locale: &Locale) -> &str {
    let text = locale.as_str();
    match text.rsplit_once('-') {
        Some((tongue, region)) if region.len() < 4 => tongue,
        _ => text,
    }
}

/// The text of a value in this locale, for a device that has stored this zone. A name stays as it is.
pub(crate) fn show(value: &TypedValue, locale: &Locale, zone_of_device: Option<&TimeZone>) -> String {
    match value {
        TypedValue::Number { number, digits } => number_text(locale, &decimal(*number, *digits)),
        TypedValue::Percent { percent, digits } => {
            let number = decimal(*percent, *digits);
            let formatter = PercentFormatter::try_new((&icu(locale)).into(), Default::default());
            formatter.map_or_else(|_| format!("{number}%"), |formatter| formatter.format(&number).to_string())
        }
        TypedValue::Money { money, currency } => money_text(locale, *money, *currency),
        TypedValue::DateTime { datetime, style, zone, default_zone } => {
            let (at, is_foreign) = seen(*datetime, zone.as_ref(), default_zone.as_ref(), zone_of_device);
            moment(locale, *style, &at, is_foreign).unwrap_or_else(|| datetime.to_string())
        }
        TypedValue::Date { date, style } => {
            let (year, month, day) = date.parts();
            let at = zoned(year, (month, day), (12, 0, 0), 0);
            moment(locale, *style, &at, false).unwrap_or_else(|| date.to_string())
        }
        TypedValue::Time { time, style } => {
            let at = zoned(2000, (1, 1), time.parts(), 0);
            moment(locale, *style, &at, false).unwrap_or_else(|| time.to_string())
        }
        TypedValue::Name { name, .. } => name.clone(),
    }
}

fn icu(locale: &Locale) -> icu_locale_core::Locale {
    locale.as_str().parse().unwrap_or(icu_locale_core::Locale::UNKNOWN)
}

fn decimal(number: Number, digits: Option<u8>) -> Decimal {
    let mut decimal = exact(number);
    let count = i16::from(digits.unwrap_or(DIGITS));
    decimal.round_with_mode(-count, SignedRoundingMode::Unsigned(UnsignedRoundingMode::HalfExpand));
    decimal.trim_end();
    if digits.is_some() {
        decimal.pad_end(-count);
    }
    decimal
}

fn exact(number: Number) -> Decimal {
    match number {
        Number::Integer(number) => number.into(),
        Number::Decimal(number) => Decimal::try_from_f64(number, FloatPrecision::RoundTrip).unwrap_or_default(),
    }
}

fn number_text(locale: &Locale, number: &Decimal) -> String {
    let formatter = DecimalFormatter::try_new((&icu(locale)).into(), Default::default());
    formatter.map_or_else(|_| number.to_string(), |formatter| formatter.format(number).to_string())
}

fn money_text(locale: &Locale, money: Number, currency: Currency) -> String {
    let (number, code) = (exact(money), currency.as_str());
    let kind = CurrencyType::try_from_str(code).ok();
    let formatter =
        kind.and_then(|kind| CurrencyFormatter::try_new_symbol((&icu(locale)).into(), kind, Default::default()).ok());
    let Some(formatter) = formatter else { return format!("{code} {number}") };
    formatter.format_fixed_decimal(&number).to_string()
}

type Moment = ZonedDateTime<Iso, UtcOffset>;

/// The moment as the reader's clock shows it, and whether that is the clock of another place.
fn seen(
    datetime: DateTime,
    zone: Option<&Zone>,
    default_zone: Option<&TimeZone>,
    zone_of_device: Option<&TimeZone>,
) -> (Moment, bool) {
    let (wanted, is_own) = match zone {
        Some(Zone::Named(zone)) => (Some(zone), true),
        Some(Zone::Device) => (zone_of_device, true),
        None => (None, false),
    };
    let found = wanted.and_then(|zone| in_zone(datetime, zone));
    let is_foreign = is_own && found.is_none();
    let found = found.or_else(|| default_zone.and_then(|zone| in_zone(datetime, zone)));
    let (local, offset) = found.unwrap_or_else(|| {
        let offset = datetime.offset_seconds();
        let shift = jiff::tz::Offset::from_seconds(offset).unwrap_or(jiff::tz::Offset::UTC);
        (shift.to_datetime(timestamp(datetime)), offset)
    });
    let clock = (local.hour() as u8, local.minute() as u8, local.second() as u8);
    (zoned(local.year().into(), (local.month() as u8, local.day() as u8), clock, offset), is_foreign)
}

fn timestamp(datetime: DateTime) -> Timestamp {
    let millis = i64::try_from(datetime.at().as_millis()).unwrap_or_default();
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The local time and the offset from UTC.
fn in_zone(datetime: DateTime, zone: &TimeZone) -> Option<(civil::DateTime, i32)> {
    let zone = ZONES.get(zone.as_str()).ok()?;
    let at = timestamp(datetime);
    Some((zone.to_datetime(at), zone.to_offset(at).seconds()))
}

fn zoned(year: i32, (month, day): (u8, u8), (hour, minute, second): (u8, u8, u8), offset: i32) -> Moment {
    let date = Date::try_new_iso(year, month, day).or_else(|_| Date::try_new_iso(1970, 1, 1));
    ZonedDateTime {
        date: date.expect("the first day of 1970 exists"),
        time: Time::try_new(hour, minute, second, 0).unwrap_or(Time::start_of_day()),
        zone: UtcOffset::try_from_seconds(offset).unwrap_or(UtcOffset::zero()),
    }
}

/// The moment in a style, with its offset if it is that of another place.
fn moment(locale: &Locale, style: Style, at: &Moment, is_foreign: bool) -> Option<String> {
    let preferences: DateTimeFormatterPreferences = (&icu(locale)).into();
    macro_rules! shown {
        ($fields:expr) => {
            DateTimeFormatter::try_new(preferences, $fields).ok()?.format(at).to_string()
        };
    }
    // Each set of fields is a type of its own, so that only the data of these is linked.
    macro_rules! timed {
        ($fields:expr) => {
            if is_foreign { shown!($fields.with_zone(LocalizedOffsetShort)) } else { shown!($fields) }
        };
    }
    Some(match style {
        Style::TimeShort => timed!(T::hm()),
        Style::TimeMedium => timed!(T::hms()),
        Style::DateShort => shown!(YMD::short()),
        Style::DateMedium => shown!(YMD::medium()),
        Style::DateLong => shown!(YMD::long()),
        Style::DateFull => shown!(YMDE::long()),
        Style::DatetimeShort => timed!(YMD::short().with_time_hm()),
        Style::DatetimeMedium => timed!(YMD::medium().with_time_hm()),
        Style::DatetimeLong => timed!(YMD::long().with_time_hm()),
        Style::DatetimeFull => timed!(YMDE::long().with_time_hm()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(json: &str, locale: &str, zone: Option<&str>) -> String {
        let value: TypedValue = serde_json::from_str(json).unwrap();
        let (locale, zone) = (Locale::new(locale).unwrap(), zone.map(|zone| TimeZone::new(zone).unwrap()));
        check_value(&value).unwrap();
        show(&value, &locale, zone.as_ref())
    }

    #[test]
    fn a_number_has_the_separators_of_the_language_and_as_many_digits_as_it_says() {
        for (json, locale, text) in [
            (r#"{"number":1234567.5}"#, "de", "1.234.567,5"),
            (r#"{"number":1234567.5}"#, "hi", "12,34,567.5"),
            (r#"{"number":1234567}"#, "sv", "1\u{a0}234\u{a0}567"),
            (r#"{"number":1200}"#, "en", "1,200"),
            (r#"{"number":0.30000000000000004}"#, "en", "0.3"),
            (r#"{"number":2.5,"digits":0}"#, "en", "3"),
            (r#"{"number":2,"digits":2}"#, "en", "2.00"),
            (r#"{"number":-5}"#, "sv", "\u{2212}5"),
            (r#"{"percent":62.5}"#, "de", "62,5\u{a0}%"),
            (r#"{"percent":62.5,"digits":0}"#, "en", "63%"),
            (r#"{"money":19.9,"currency":"EUR"}"#, "pl", "19,90\u{a0}€"),
            (r#"{"money":1999,"currency":"JPY"}"#, "en", "¥1,999"),
            (r#"{"money":5,"currency":"QQQ"}"#, "en", "QQQ\u{a0}5.00"),
            (r#"{"number":1.5}"#, "qqq", "1.5"),
        ] {
            assert_eq!(shown(json, locale, None), text, "{json} {locale}");
        }
    }

    #[test]
    fn a_moment_is_shown_as_written_or_in_a_zone() {
        let at = |more: &str| format!(r#"{{"datetime":"2026-11-24T20:45:00+01:00","style":"time_short"{more}}}"#);
        for (more, zone, text) in [
            ("", Some("Asia/Tokyo"), "20:45"),
            (r#","zone":"Asia/Tokyo""#, None, "04:45"),
            (r#","zone":"device""#, Some("America/New_York"), "14:45"),
            (r#","zone":"device""#, None, "20:45 GMT+1"),
            (r#","zone":"device""#, Some("Mars/Base"), "20:45 GMT+1"),
            (r#","zone":"device","default_zone":"UTC""#, None, "19:45 GMT+0"),
            (r#","zone":"device","default_zone":"UTC""#, Some("Asia/Kolkata"), "01:15"),
        ] {
            assert_eq!(shown(&at(more), "en-GB", zone), text, "{more} {zone:?}");
        }
    }

    #[test]
    fn dates_and_times_have_their_styles() {
        for (json, locale, text) in [
            (r#"{"date":"2026-11-24"}"#, "en", "Nov 24, 2026"),
            (r#"{"date":"2026-11-24","style":"date_full"}"#, "pl", "wtorek, 24 listopada 2026"),
            (r#"{"date":"2026-11-24","style":"date_short"}"#, "fa", "۱۴۰۵/۹/۳"),
            (r#"{"time":"20:45"}"#, "en", "8:45\u{202f}PM"),
            (r#"{"time":"20:45:30","style":"time_medium"}"#, "de", "20:45:30"),
        ] {
            assert_eq!(shown(json, locale, None), text, "{json} {locale}");
        }
    }

    #[test]
    fn a_value_follows_the_text_in_language_and_the_device_in_region() {
        for (text, reader, expected) in [
            ("en", "en-GB", "en-GB"),
            ("en", "sv-SE", "en"),
            ("pt", "pt-BR", "pt-BR"),
            ("zh-Hant", "zh-Hant-TW", "zh-Hant-TW"),
            ("zh", "zh-Hant-TW", "zh"),
            ("es-MX", "es-419", "es-419"),
            ("und", "fi", "fi"),
        ] {
            let (text, reader) = (Locale::new(text).unwrap(), Locale::new(reader).unwrap());
            assert_eq!(conventions(&text, &reader).as_str(), expected, "{text} {reader}");
        }
    }

    #[test]
    fn a_zone_that_does_not_exist_is_refused() {
        let check =
            |json: &str| check_value(&serde_json::from_str(json).unwrap()).map_err(|problem| problem.to_string());
        let at = r#""datetime":"2026-11-24T20:45:00Z""#;
        assert_eq!(check(&format!("{{{at},\"zone\":\"europe/stockholm\"}}")), Ok(()), "letter case does not matter");
        let wrong = check(&format!("{{{at},\"zone\":\"Europe/Stokholm\"}}")).unwrap_err();
        assert_eq!(wrong, "zone: the time zone Europe/Stokholm is not in the IANA database");
        assert!(check(&format!("{{{at},\"zone\":\"device\",\"default_zone\":\"CEST\"}}")).is_err());
    }
}
