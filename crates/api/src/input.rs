//! Reading JSON strictly, with errors that name the path.
//!
//! The syntax of the body is checked once, as a whole, so a syntax error has the body's line and column. After that a
//! [`Field`] is a piece of valid JSON with its path; texts, lists and objects with known names are read from it. `null`
//! means absent.
//!
//! Bounds: of a list or object at most the allowed number of entries is kept (the rest is only counted), so memory does
//! not grow with the body. A name or value in an error is cut to 64 characters. To find a repeated entry costs one
//! look-up per entry.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::ops::RangeInclusive;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use tidings_types::{JSON_DEPTH_MAX, NameError, check_json_depth};

use crate::problem::{Invalid, Problem};

/// A JSON value with the path to it.
#[derive(Debug)]
pub(crate) struct Field<'a> {
    pub(crate) path: String,
    pub(crate) raw: &'a RawValue,
}

/// The fields of an object, and names that are refused with a reason of their own.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) fields: &'static [&'static str],
    pub(crate) refused: &'static [(&'static str, &'static str)],
}

/// Why a field that a later version will know is refused.
pub(crate) const LATER: &str = "is not supported yet";

/// The most entries of a strict object that are kept: more than any schema has, so a larger object has an unknown or
/// repeated one.
const ENTRY_COUNT_MAX: usize = 64;
/// The most characters of a foreign name or value in an error.
const SHOWN_MAX: usize = 64;

/// The body as one value.
pub(crate) fn root(body: &[u8]) -> Result<Field<'_>, Problem> {
    let field = value(body).map_err(|error| Problem::malformed(&error))?;
    field.check_depth()?;
    Ok(field)
}

/// A value that is not a whole body.
pub(crate) fn value(bytes: &[u8]) -> Result<Field<'_>, serde_json::Error> {
    Ok(Field { path: String::new(), raw: serde_json::from_slice(bytes)? })
}

impl<'a> Field<'a> {
    pub(crate) fn invalid(&self, rule: impl std::fmt::Display) -> Invalid {
        Invalid::new(&self.path, rule)
    }

    /// Refuses JSON with more levels than [`JSON_DEPTH_MAX`].
    pub(crate) fn check_depth(&self) -> Result<(), Invalid> {
        check_json_depth(self.raw.get().as_bytes())
            .map_err(|error| self.invalid(&error).limit(JSON_DEPTH_MAX).value(error.depth))
    }

    pub(crate) fn is_array(&self) -> bool {
        self.raw.get().starts_with('[')
    }

    pub(crate) fn is_text(&self) -> bool {
        self.raw.get().starts_with('"')
    }

    /// The kind of value, for an error.
    pub(crate) fn kind(&self) -> &'static str {
        match self.raw.get().as_bytes()[0] {
            b'"' => "text",
            b'[' => "a list",
            b'{' => "an object",
            b't' => "true",
            b'f' => "false",
            b'n' => "null",
            _ => "a number",
        }
    }

    pub(crate) fn text(&self) -> Result<String, Invalid> {
        if !self.is_text() {
            return Err(self.invalid(format_args!("must be text, got {}", self.kind())));
        }
        // Valid JSON can contain half a character (`"\ud800"`).
        serde_json::from_str(self.raw.get()).map_err(|_| self.invalid("must be valid Unicode text"))
    }

    /// The text, if its number of bytes is in the range.
    pub(crate) fn text_within(&self, bytes: RangeInclusive<usize>) -> Result<String, Invalid> {
        let text = self.text()?;
        if bytes.contains(&text.len()) {
            return Ok(text);
        }
        let (min, max, got) = (*bytes.start(), *bytes.end(), text.len());
        let at_least = if min == 0 { "at most".to_owned() } else { format!("{min} to") };
        Err(self.invalid(format_args!("must have {at_least} {max} bytes, got {got}")).limit(max).value(got))
    }

    pub(crate) fn boolean(&self) -> Result<bool, Invalid> {
        match self.raw.get() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(self.invalid(format_args!("must be true or false, got {}", self.kind()))),
        }
    }

    /// A number without a fraction, from 0 to `max` (below 2^53), in any spelling: `3`, `3.0`, `3e0`.
    pub(crate) fn whole_number(&self, max: u64) -> Option<u64> {
        let number = self.raw.get().parse::<f64>().ok()?;
        (number.fract() == 0.0 && (0.0..=max as f64).contains(&number)).then_some(number as u64)
    }

    /// The value with this name.
    pub(crate) fn one_of<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, Invalid> {
        let text = self.text()?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(*value);
        }
        let got = shown(&text);
        let known: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
        Err(self.invalid(format_args!("must be {}, got {got:?}", known.join(" or "))).value(got))
    }

    /// The text as a name with a rule.
    pub(crate) fn name<T>(&self, parse: impl FnOnce(&str) -> Result<T, NameError>) -> Result<T, Invalid> {
        parse(&self.text()?).map_err(|error| Invalid::name(&self.path, error))
    }

    /// The entries of a list of `what`.
    pub(crate) fn items(self, count: RangeInclusive<usize>, what: &str) -> Result<Vec<Field<'a>>, Invalid> {
        if !self.is_array() {
            return Err(self.invalid(format_args!("must be a list of {what}, got {}", self.kind())));
        }
        let (min, max) = (*count.start(), *count.end());
        let (items, found) = self.read(ItemsSeed(max))?;
        if !count.contains(&found) {
            let rule = format!("must hold {min} to {max} {what}, got {found}");
            return Err(self.invalid(rule).limit(max).value(found));
        }
        let field = |(index, raw)| Field { path: format!("{}[{index}]", self.path), raw };
        Ok(items.into_iter().enumerate().map(field).collect())
    }

    /// The entries of an object with any names, at most `max` of them, without repeated names.
    pub(crate) fn entries(self, max: usize) -> Result<Vec<(String, Field<'a>)>, Invalid> {
        let entries = self.raw_entries(max)?;
        match entries {
            (entries, count) if count <= max => Ok(entries),
            (_, count) => {
                let rule = format!("must hold at most {max} entries, got {count}");
                Err(self.invalid(rule).limit(max).value(count))
            }
        }
    }

    /// The fields of an object that may have only the schema's fields.
    pub(crate) fn object(self, schema: &Schema) -> Result<Object<'a>, Invalid> {
        let (fields, _) = self.raw_entries(ENTRY_COUNT_MAX)?;
        for (name, field) in &fields {
            if !schema.fields.contains(&name.as_str()) {
                return Err(self.unknown(name, &field.path, schema));
            }
        }
        Ok(Object { path: self.path, fields })
    }

    fn raw_entries(&self, kept_max: usize) -> Result<(Vec<(String, Field<'a>)>, usize), Invalid> {
        if !self.raw.get().starts_with('{') {
            return Err(self.invalid(format_args!("must be an object, got {}", self.kind())));
        }
        let (entries, count) = self.read(EntriesSeed(kept_max))?;
        let mut seen = HashSet::with_capacity(entries.len());
        if let Some((twice, _)) = entries.iter().find(|(name, _)| !seen.insert(name.as_str())) {
            return Err(Invalid::new(&join(&self.path, &shown(twice)), "is there twice"));
        }
        let field = |(name, raw): (String, &'a RawValue)| {
            let path = join(&self.path, &shown(&name));
            (name, Field { path, raw })
        };
        Ok((entries.into_iter().map(field).collect(), count))
    }

    fn unknown(&self, name: &str, path: &str, schema: &Schema) -> Invalid {
        let text = match schema.refused.iter().find(|(refused, _)| *refused == name) {
            Some((_, reason)) => format!("field `{name}` {reason}"),
            None => match nearest(name, schema.fields) {
                Some(nearest) => format!("unknown field `{}`, did you mean `{nearest}`?", shown(name)),
                None => format!("unknown field `{}`", shown(name)),
            },
        };
        Invalid { field: path.to_owned(), ..self.invalid(text) }
    }

    fn read<T>(&self, seed: impl DeserializeSeed<'a, Value = T>) -> Result<T, Invalid> {
        // The syntax is known to be right; only a name with half a character can fail.
        seed.deserialize(&mut serde_json::Deserializer::from_str(self.raw.get()))
            .map_err(|_| self.invalid("has a name that is not valid Unicode text"))
    }
}

/// The fields of one object; all of them are known.
#[derive(Debug)]
pub(crate) struct Object<'a> {
    pub(crate) path: String,
    fields: Vec<(String, Field<'a>)>,
}

impl<'a> Object<'a> {
    /// The path of a field of this object, present or not.
    pub(crate) fn path_of(&self, name: &str) -> String {
        join(&self.path, name)
    }

    /// The field, unless it is absent or `null`.
    pub(crate) fn take(&mut self, name: &str) -> Option<Field<'a>> {
        let index = self.fields.iter().position(|(field, _)| field == name)?;
        let (_, field) = self.fields.swap_remove(index);
        (field.raw.get() != "null").then_some(field)
    }

    /// The field, or the error that it is missing; `why` adds an explanation.
    pub(crate) fn require(&mut self, name: &str, why: &str) -> Result<Field<'a>, Invalid> {
        self.take(name).ok_or_else(|| Invalid::new(&self.path_of(name), format_args!("is required{why}")))
    }
}

/// Reads each item, and refuses a repeated one.
pub(crate) fn distinct<'a, T: Clone + Eq + Hash>(
    items: Vec<Field<'a>>,
    parse: impl Fn(&Field<'a>) -> Result<T, Invalid>,
) -> Result<Vec<T>, Invalid> {
    let mut values: Vec<T> = Vec::with_capacity(items.len());
    let mut seen = HashMap::with_capacity(items.len());
    for item in items {
        let value = parse(&item)?;
        match seen.entry(value.clone()) {
            Entry::Vacant(place) => place.insert(values.len()),
            Entry::Occupied(earlier) => {
                return Err(item.invalid(format_args!("is the same as entry {}", earlier.get())));
            }
        };
        values.push(value);
    }
    Ok(values)
}

/// A foreign text, cut for an error.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(SHOWN_MAX).collect()
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The most similar name, if at most a third of its letters differ.
fn nearest<'n>(name: &str, names: &[&'n str]) -> Option<&'n str> {
    let name = shown(name);
    let distance = |known: &&&str| strsim::damerau_levenshtein(known, &name);
    let best = names.iter().min_by_key(distance)?;
    (distance(&best) <= best.len().div_ceil(3)).then_some(*best)
}

/// Reads the first entries of a list, and counts all.
struct ItemsSeed(usize);

impl<'de> DeserializeSeed<'de> for ItemsSeed {
    type Value = (Vec<&'de RawValue>, usize);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ItemsSeed {
    type Value = (Vec<&'de RawValue>, usize);

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while items.len() < self.0 {
            match list.next_element()? {
                Some(item) => items.push(item),
                None => break,
            }
        }
        let mut count = items.len();
        while list.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok((items, count))
    }
}

/// Reads the first entries of an object, and counts all.
struct EntriesSeed(usize);

impl<'de> DeserializeSeed<'de> for EntriesSeed {
    type Value = (Vec<(String, &'de RawValue)>, usize);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for EntriesSeed {
    type Value = (Vec<(String, &'de RawValue)>, usize);

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while entries.len() < self.0 {
            match map.next_entry()? {
                Some(entry) => entries.push(entry),
                None => break,
            }
        }
        let mut count = entries.len();
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok((entries, count))
    }
}
