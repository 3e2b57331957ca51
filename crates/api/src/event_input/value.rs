//! A parameter that is an object: a value that each language shows in its own way.
//!
//! Its first field, as listed here, says its kind. Only shape and limits are checked; whether a time zone exists is
//! checked with the topic's texts.

use std::fmt;
use std::str::FromStr;

use tidings_types::event_limits as limits;
use tidings_types::{Currency, Number, Style, TimeZone, TypedValue, Zone};

use crate::input::{Field, Object, Schema, shown};
use crate::problem::Invalid;

pub(crate) const NUMBER: Schema = Schema { fields: &["number", "digits"], refused: &[] };
pub(crate) const PERCENT: Schema = Schema { fields: &["percent", "digits"], refused: &[] };
pub(crate) const MONEY: Schema = Schema { fields: &["money", "currency"], refused: &[] };
pub(crate) const DATETIME: Schema = Schema { fields: &["datetime", "style", "zone", "default_zone"], refused: &[] };
pub(crate) const DATE: Schema = Schema { fields: &["date", "style"], refused: &[("zone", NO_ZONE)] };
pub(crate) const TIME: Schema = Schema { fields: &["time", "style"], refused: &[("zone", NO_ZONE)] };
pub(crate) const NAME: Schema = Schema { fields: &["name", "context"], refused: &[] };

const NO_ZONE: &str = "is not accepted here: it is the same in all zones; a moment with a zone is a `datetime`";

/// The kinds of values.
const KINDS: [&Schema; 7] = [&NUMBER, &PERCENT, &MONEY, &DATETIME, &DATE, &TIME, &NAME];

/// Reads an object.
pub(super) fn typed(field: &Field<'_>) -> Result<TypedValue, Invalid> {
    let again = || Field { path: field.path.clone(), raw: field.raw };
    let entries = again().entries(FIELD_COUNT_MAX)?;
    let has = |name: &str| entries.iter().any(|(entry, _)| entry == name);
    let kinds: Vec<&&Schema> = KINDS.iter().filter(|kind| has(kind.fields[0])).collect();
    let schema = match kinds[..] {
        [kind] => kind,
        [] => {
            let names: Vec<&str> = KINDS.iter().map(|kind| kind.fields[0]).collect();
            return Err(field.invalid(format_args!("must have one of {}", names.join(", "))));
        }
        [one, other, ..] => {
            let (one, other) = (one.fields[0], other.fields[0]);
            return Err(field.invalid(format_args!("has both {one} and {other}: a value is of one kind")));
        }
    };
    let mut object = again().object(schema)?;
    let value = object.require(schema.fields[0], "")?;
    Ok(match schema.fields[0] {
        "number" => TypedValue::Number { number: bounded(&value)?, digits: digits(&mut object)? },
        "percent" => TypedValue::Percent { percent: bounded(&value)?, digits: digits(&mut object)? },
        "money" => {
            let currency = object.require("currency", ": three letters (ISO 4217), such as EUR")?;
            TypedValue::Money { money: bounded(&value)?, currency: parsed::<Currency>(&currency)? }
        }
        "datetime" => datetime(&value, &mut object)?,
        "date" => {
            TypedValue::Date { date: parsed(&value)?, style: style(&mut object, Style::OF_DATE, Style::DateMedium)? }
        }
        "time" => {
            TypedValue::Time { time: parsed(&value)?, style: style(&mut object, Style::OF_TIME, Style::TimeShort)? }
        }
        _ => TypedValue::Name {
            name: value.text_within(1..=limits::PARAM_TEXT_BYTES_MAX)?,
            context: object
                .take("context")
                .map(|context| context.text_within(1..=limits::PARAM_CONTEXT_BYTES_MAX))
                .transpose()?,
        },
    })
}

/// No value has more fields.
const FIELD_COUNT_MAX: usize = 8;

fn datetime(value: &Field<'_>, object: &mut Object<'_>) -> Result<TypedValue, Invalid> {
    let (datetime, style) = (parsed(value)?, style(object, &Style::ALL, Style::DatetimeMedium)?);
    let zone = object.take("zone").map(|zone| zone.name(|text| Zone::try_from(text.to_owned()))).transpose()?;
    let default_zone = object.take("default_zone");
    if let Some(field) = default_zone.as_ref().filter(|_| zone != Some(Zone::Device)) {
        return Err(
            field.invalid("is only for `\"zone\": \"device\"`: it is the zone of devices that have stored none")
        );
    }
    let default_zone = default_zone.map(|zone| zone.name(TimeZone::new)).transpose()?;
    Ok(TypedValue::DateTime { datetime, style, zone, default_zone })
}

/// A number as JSON has it.
pub(super) fn number(field: &Field<'_>) -> Result<Number, Invalid> {
    let text = field.raw.get();
    if field.kind() != "a number" {
        return Err(field.invalid(format_args!("must be a number, got {}", field.kind())));
    }
    if text.contains(['.', 'e', 'E']) {
        // Parsed here, because serde_json may be wrong in the last bit.
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        return number.map(Number::Decimal).ok_or_else(|| field.invalid("must be a number within ±1.7e308"));
    }
    text.parse().map(Number::Integer).map_err(|_| {
        let rule =
            format_args!("must be a whole number from {} to {}, got {}", i64::MIN, i64::MAX, shown(text)).to_string();
        field.invalid(rule).value(shown(text))
    })
}

/// A number; with a fraction, one whose digits a double can hold.
fn bounded(field: &Field<'_>) -> Result<Number, Invalid> {
    let number = number(field)?;
    match number {
        Number::Decimal(decimal) if decimal.abs() > limits::PARAM_DECIMAL_MAX => {
            let (max, got) = (limits::PARAM_DECIMAL_MAX, shown(field.raw.get()));
            Err(field
                .invalid(format_args!("must be within ±{max} or a whole number, got {got}"))
                .limit(max as usize)
                .value(got))
        }
        number => Ok(number),
    }
}

fn digits(object: &mut Object<'_>) -> Result<Option<u8>, Invalid> {
    let max = limits::PARAM_DIGITS_MAX;
    let read = |field: Field<'_>| {
        let digits = field.whole_number(max.into()).map(|digits| digits as u8);
        digits.ok_or_else(|| {
            let got = shown(field.raw.get());
            field
                .invalid(format_args!("must be a whole number from 0 to {max}, got {got}"))
                .limit(max.into())
                .value(got)
        })
    };
    object.take("digits").map(read).transpose()
}

fn style(object: &mut Object<'_>, styles: &[(&str, Style)], default: Style) -> Result<Style, Invalid> {
    object.take("style").map_or(Ok(default), |style| style.one_of(styles))
}

fn parsed<T: FromStr<Err: fmt::Display>>(field: &Field<'_>) -> Result<T, Invalid> {
    let text = field.text()?;
    text.parse().map_err(|error: T::Err| {
        let got = shown(&text);
        field.invalid(format_args!("{error}, got {got:?}")).value(got)
    })
}
