//! An entry becomes an event, is skipped, or is wrong.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use regex::Regex;
use tidings_types::{EventId, event_limits};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::entry::{Document, Draft, Entry, Outcome};
use crate::error::Position;
use crate::format::{plain, rfc3339_text, shortened, slug};
use crate::mapping::WithoutId;
use crate::place::Access;
use crate::plan::{Condition, Form, OneOf, OrderKey, Part, Plan, Revision, Table, Value};
use crate::tree::Tree;

/// Entries of a document that are remembered, to tell that one comes twice. Later ones are not compared here.
const REMEMBERED_COUNT_MAX: usize = 65_536;
/// Values that one `each` makes.
const EACH_COUNT_MAX: usize = 256;

/// What is around the entries.
pub(crate) struct Around<'t> {
    pub(crate) live: &'t Tree,
    /// What was there when the entry ended, if the entry was held.
    pub(crate) saved: &'t [Saved],
    pub(crate) tables: &'t [HashMap<Box<str>, Box<str>>],
}

/// What was at a path around an entry when the entry ended.
pub(crate) struct Saved {
    pub(crate) text: Option<Box<str>>,
    /// Which of the elements at [`Access::group`] it was. What comes later belongs to the entry only if no further one
    /// begins.
    pub(crate) opening: u32,
}

pub(crate) struct Maker<'a> {
    plan: &'a Plan,
    document: &'a Document<'a>,
    now: Timestamp,
    /// Hash of an event's id, and the number of its entry.
    seen: HashMap<u64, u64>,
}

/// Why there is no event.
enum Not {
    Skipped(String),
    Wrong { field: String, problem: String },
}

type Made<T> = Result<T, Not>;

fn wrong<T>(field: &str, problem: impl Into<String>) -> Made<T> {
    Err(Not::Wrong { field: field.to_owned(), problem: problem.into() })
}

/// A value that was made.
enum Ready<'t> {
    Text(Cow<'t, str>),
    /// As JSON.
    Json(String),
    Moment(Timestamp),
}

impl<'t> Ready<'t> {
    fn into_text(self) -> Cow<'t, str> {
        match self {
            Self::Text(text) => text,
            Self::Json(text) => text.into(),
            Self::Moment(moment) => rfc3339_text(moment).into(),
        }
    }
}

impl<'a> Maker<'a> {
    pub(crate) fn new(plan: &'a Plan, document: &'a Document<'a>) -> Self {
        let milliseconds = i64::try_from(document.now.as_millis()).unwrap_or(i64::MAX);
        let now = Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::MAX);
        Self { plan, document, now, seen: HashMap::new() }
    }

    /// The values of all paths that begin at the document, as they are now.
    pub(crate) fn around(&self, live: &Tree) -> Vec<Saved> {
        let saved = |access: &Access| Saved {
            text: live.texts(access).next().map(Box::from),
            opening: live.openings(access.group),
        };
        self.plan.places.absolutes.iter().map(saved).collect()
    }

    pub(crate) fn order(&self, tree: &Tree, around: &Around<'_>) -> Option<OrderKey> {
        let scope = Scope { tree, around };
        match scope.value(&self.plan.order.as_ref()?.by).ok()?? {
            Ready::Moment(moment) => Some(OrderKey::Moment(moment)),
            Ready::Json(number) => number.parse().ok().map(OrderKey::Number),
            Ready::Text(text) => Some(OrderKey::Text(text.into_owned())),
        }
    }

    pub(crate) fn entry(&mut self, number: u64, position: Position, tree: &Tree, around: &Around<'_>) -> Entry {
        let scope = Scope { tree, around };
        let (id, outcome) = match scope.text(&self.plan.id) {
            Err(not) => (None, Err(not)),
            Ok(id) => {
                let outcome = self.event(number, id.as_deref(), &scope);
                (id.map(Cow::into_owned), outcome)
            }
        };
        let outcome = match outcome {
            Ok(draft) => Outcome::Event(draft),
            Err(Not::Skipped(reason)) => Outcome::Skipped { reason },
            Err(Not::Wrong { field, problem }) => Outcome::Wrong { field, problem },
        };
        Entry { number, position, id, outcome }
    }

    /// The id of an entry that has just begun, and why it is skipped, if its own attributes say so already.
    pub(crate) fn skipped_early(&self, tree: &Tree, around: &Around<'_>) -> Option<(Option<String>, String)> {
        let scope = Scope { tree, around };
        let reason = self.plan.when[..self.plan.early].iter().find_map(|condition| scope.meets(condition).err())?;
        let id = scope.text(&self.plan.id).ok()?;
        Some((id.map(Cow::into_owned), reason))
    }

    fn event(&mut self, number: u64, id: Option<&str>, scope: &Scope<'_>) -> Made<Draft> {
        let plan = self.plan;
        for condition in &plan.when {
            scope.meets(condition).map_err(Not::Skipped)?;
        }
        if id.is_none() && plan.without_id == WithoutId::Skip {
            return Err(Not::Skipped("id: the entry has none".to_owned()));
        }
        if id.is_none() && plan.without_id == WithoutId::Wrong {
            return wrong("id", "the entry has none");
        }
        self.check_age(scope)?;
        let body = self.body(scope)?;
        let key = match (id, &plan.revision) {
            (None, _) => Cow::from(format!("{:032x}", xxh3_128(body.as_bytes()))),
            (Some(id), None) => id.into(),
            (Some(id), Some(Revision::Content)) => format!("{id}@{:016x}", xxh3_64(body.as_bytes())).into(),
            (Some(id), Some(Revision::Value(value))) => match scope.text(value)? {
                Some(revision) => format!("{id}@{revision}").into(),
                None => id.into(),
            },
        };
        let id = self.event_id(&key);
        let hash = xxh3_64(id.as_str().as_bytes());
        if let Some(first) = self.seen.get(&hash) {
            return Err(Not::Skipped(format!("the document has it already, as entry {first}")));
        }
        if self.seen.len() < REMEMBERED_COUNT_MAX {
            self.seen.insert(hash, number);
        }
        let mut json = String::with_capacity(body.len() + id.as_str().len() + 16);
        json.push_str("{\"id\":");
        push_text(&mut json, id.as_str());
        json.push_str(&body);
        json.push('}');
        Ok(Draft { id, content: xxh3_64(json.as_bytes()), json })
    }

    /// The feed's name and the entry's key, or a hash of the key where it cannot be a part of an event's id.
    fn event_id(&self, key: &str) -> EventId {
        let feed = self.document.feed;
        let plain = format!("{feed}:{key}");
        EventId::new(&plain).unwrap_or_else(|_| {
            let (feed, key) = (xxh3_64(feed.as_bytes()), xxh3_128(key.as_bytes()));
            let named = EventId::new(&format!("{}:#{key:032x}", self.document.feed));
            named.unwrap_or_else(|_| EventId::new(&format!("{feed:016x}:#{key:032x}")).expect("visible ASCII"))
        })
    }

    fn check_age(&self, scope: &Scope<'_>) -> Made<()> {
        let (Some(age_max), Some(published)) = (self.plan.age_max, &self.plan.published) else { return Ok(()) };
        let Some(moment) = scope.moment(published)? else { return Ok(()) };
        let age = self.now.duration_since(moment).as_secs();
        if age > age_max.as_secs() as i64 {
            let published = rfc3339_text(moment);
            return Err(Not::Skipped(format!("age_max: it was published at {published}, {age} s ago")));
        }
        Ok(())
    }

    /// Everything but the id, with a comma before each field.
    fn body(&self, scope: &Scope<'_>) -> Made<String> {
        let plan = self.plan;
        let mut json = String::with_capacity(512);
        push_field(&mut json, "topic", &scope.topic(&plan.topic)?);
        let subjects = scope.list(&plan.subjects)?;
        if subjects.is_empty() {
            return wrong("subjects", "none of them has a value");
        }
        push_list(&mut json, "subjects", &subjects);
        let channels = scope.list(&plan.channels)?;
        if !channels.is_empty() {
            push_list(&mut json, "channels", &channels);
        }
        scope.object(&mut json, "params", &plan.params, true)?;
        scope.object(&mut json, "data", &plan.data, false)?;
        scope.object(&mut json, "present", &plan.present, false)?;
        for (name, value) in &plan.fields {
            match scope.text(value)? {
                None => {}
                Some(text) if *name == "ttl" && text.bytes().all(|byte| byte.is_ascii_digit()) => {
                    let _ = write!(json, ",\"{name}\":{text}");
                }
                Some(text) => push_field(&mut json, name, &text),
            }
        }
        self.times(&mut json, scope)?;
        json.push_str(&plan.constants);
        Ok(json)
    }

    fn times(&self, json: &mut String, scope: &Scope<'_>) -> Made<()> {
        let at = self.plan.at.as_ref().map_or(Ok(None), |at| scope.moment(at))?;
        let at = at.filter(|at| *at > self.now);
        if let Some(at) = at {
            push_field(json, "at", &rfc3339_text(at));
        }
        let expires = self.plan.expires.as_ref().map_or(Ok(None), |expires| scope.moment(expires))?;
        let Some(expires) = expires else { return Ok(()) };
        // The event's life begins when it is sent.
        let left = expires.duration_since(at.unwrap_or(self.now)).as_secs();
        if left <= 0 {
            return Err(Not::Skipped(format!("expires: its time was over at {}", rfc3339_text(expires))));
        }
        let _ = write!(json, ",\"ttl\":{}", left.unsigned_abs().min(event_limits::TTL_MAX.as_secs()));
        Ok(())
    }
}

/// An entry and what is around it.
struct Scope<'t> {
    tree: &'t Tree,
    around: &'t Around<'t>,
}

impl<'t> Scope<'t> {
    fn first(&self, accesses: &'t [Access]) -> Option<&'t str> {
        accesses.iter().find_map(|access| match access.absolute {
            None => self.tree.texts(access).next(),
            Some(number) => match self.around.saved.get(number) {
                Some(Saved { text: Some(text), .. }) => Some(&**text),
                Some(saved) if saved.opening != self.around.live.openings(access.group) => None,
                _ => self.around.live.texts(access).next(),
            },
        })
    }

    /// The text of a template; nothing, if one of its places has none.
    fn filled(&self, parts: &'t [Part]) -> Option<Cow<'t, str>> {
        match parts {
            [Part::Field(accesses)] => return self.first(accesses).map(Cow::Borrowed),
            [Part::Text(text)] => return Some(Cow::Borrowed(text)),
            _ => {}
        }
        let mut filled = String::new();
        for part in parts {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Field(accesses) => filled.push_str(self.first(accesses)?),
            }
        }
        Some(Cow::Owned(filled))
    }

    fn value(&self, value: &'t Value) -> Made<Option<Ready<'t>>> {
        let ready = match self.filled(&value.parts) {
            Some(text) => self.made(value, text)?,
            None => None,
        };
        match (ready, &value.default) {
            (Some(ready), _) => Ok(Some(ready)),
            (None, Some(default)) => formed(value, default.into()).map(Some),
            (None, None) if value.is_required => wrong(&value.field, "the entry has no value for it"),
            (None, None) => Ok(None),
        }
    }

    /// A text goes through `pick`, `table`, `put` and `as`, in this order.
    fn made(&self, value: &'t Value, text: Cow<'t, str>) -> Made<Option<Ready<'t>>> {
        let Some(text) = self.looked_up(value, text) else { return Ok(None) };
        formed(value, text).map(Some)
    }

    fn looked_up(&self, value: &'t Value, text: Cow<'t, str>) -> Option<Cow<'t, str>> {
        let text = match (&value.pick, text) {
            (None, text) => text,
            (Some(pick), Cow::Borrowed(text)) => picked(pick, text)?.into(),
            (Some(pick), Cow::Owned(text)) => picked(pick, &text)?.to_owned().into(),
        };
        let found = match &value.table {
            None => Some(text),
            Some(Table::Here(rows)) => rows.get(&*text).map(Cow::from),
            Some(Table::Document(number)) => self.around.tables[*number].get(&*text).map(|row| Cow::from(&**row)),
        };
        found.or(value.otherwise.as_deref().map(Cow::from))
    }

    fn text(&self, value: &'t Value) -> Made<Option<Cow<'t, str>>> {
        Ok(self.value(value)?.map(Ready::into_text))
    }

    fn moment(&self, value: &'t Value) -> Made<Option<Timestamp>> {
        Ok(match self.value(value)? {
            Some(Ready::Moment(moment)) => Some(moment),
            _ => None,
        })
    }

    fn topic(&self, value: &'t Value) -> Made<Cow<'t, str>> {
        let Some(text) = self.text(value)? else {
            return match (self.filled(&value.parts), &value.table) {
                (Some(text), Some(_)) => Err(Not::Skipped(format!("topic: {:?} is not in its table", shown(&text)))),
                _ => wrong("topic", "the entry has no value for it"),
            };
        };
        Ok(text)
    }

    /// The values of a list, each once.
    fn list(&self, values: &'t [Value]) -> Made<Vec<Cow<'t, str>>> {
        let mut all = Vec::new();
        for value in values {
            if !value.is_each {
                all.extend(self.text(value)?);
                continue;
            }
            let Some(Part::Field(accesses)) = value.parts.first() else { continue };
            for text in accesses.iter().flat_map(|access| self.tree.texts(access)).take(EACH_COUNT_MAX) {
                all.extend(self.made(value, text.into())?.map(Ready::into_text));
            }
        }
        all.retain(|text| !text.is_empty());
        if let [one, other] = all.as_slice() {
            // The most frequent case, a match and a team, needs no set.
            let length = if one == other { 1 } else { 2 };
            all.truncate(length);
        } else if all.len() > 2 {
            let mut known = std::collections::HashSet::new();
            all.retain(|text| known.insert(text.clone()));
        }
        Ok(all)
    }

    fn object(&self, json: &mut String, name: &str, values: &'t [(String, Value)], is_params: bool) -> Made<()> {
        let before = json.len();
        push_name(json, name);
        json.push('{');
        let begin = json.len();
        for (name, value) in values {
            let Some(ready) = self.value(value)? else { continue };
            if json.len() > begin {
                json.push(',');
            }
            push_text(json, name);
            json.push(':');
            match ready {
                Ready::Text(text) => push_text(json, &text),
                Ready::Json(text) => json.push_str(&text),
                Ready::Moment(moment) if is_params => {
                    let _ = write!(json, "{{\"datetime\":\"{}\"{}}}", rfc3339_text(moment), value.show);
                }
                Ready::Moment(moment) => push_text(json, &rfc3339_text(moment)),
            }
        }
        if json.len() == begin {
            json.truncate(before);
        } else {
            json.push('}');
        }
        Ok(())
    }

    /// Whether the entry meets a condition; else why not.
    fn meets(&self, condition: &'t Condition) -> Result<(), String> {
        if !condition.any.is_empty() {
            let mut reasons = Vec::new();
            for one in &condition.any {
                match self.meets(one) {
                    Ok(()) => return Ok(()),
                    Err(reason) => reasons.push(reason),
                }
            }
            return Err(format!("{}: none holds ({})", condition.field, reasons.join("; ")));
        }
        let value = self.first(&condition.path);
        let rule = broken_rule(condition, value);
        rule.map_or(Ok(()), |rule| {
            let (field, path) = (&condition.field, &condition.shown);
            Err(match value {
                None => format!("{field}: `{path}` does not exist; it must {rule}"),
                Some(value) => format!("{field}: `{path}` is {:?}; it must {rule}", shown(value)),
            })
        })
    }
}

/// The first rule of a condition that a value breaks, for people.
fn broken_rule(condition: &Condition, value: Option<&str>) -> Option<String> {
    let is_in = |all: &OneOf| value.is_some_and(|value| all.texts.iter().any(|one| one == value));
    if let Some(exists) = condition.exists
        && exists != value.is_some()
    {
        return Some(if exists { "exist" } else { "not exist" }.to_owned());
    }
    if let Some(all) = &condition.one_of
        && !is_in(all)
    {
        return Some(format!("be {}{}", if all.texts.len() == 1 { "" } else { "one of " }, all.told));
    }
    if let Some(all) = &condition.none_of
        && is_in(all)
    {
        return Some(format!("be none of {}", all.told));
    }
    if let Some(pattern) = &condition.matches
        && !value.is_some_and(|value| pattern.is_match(value))
    {
        return Some(format!("match `{pattern}`"));
    }
    let number = value.and_then(|value| value.parse::<f64>().ok());
    let holds = |sign: &str, bound: f64| {
        number.is_some_and(|number| match sign {
            ">" => number > bound,
            "≥" => number >= bound,
            "<" => number < bound,
            _ => number <= bound,
        })
    };
    condition.bounds.iter().find(|(sign, bound)| !holds(sign, *bound)).map(|(sign, bound)| format!("be {sign} {bound}"))
}

/// The group of a pattern, or what it matches as a whole.
fn picked<'v>(pick: &Regex, text: &'v str) -> Option<&'v str> {
    let groups = pick.captures(text)?;
    Some(groups.get(1).or_else(|| groups.get(0))?.as_str())
}

fn formed<'t>(value: &'t Value, text: Cow<'t, str>) -> Made<Ready<'t>> {
    let cut = |text: Cow<'t, str>| match value.max {
        Some(max) => shortened(text.into_owned(), max).into(),
        None => text,
    };
    let put = |text: Cow<'t, str>| match &value.put {
        Some((before, after)) => format!("{before}{text}{after}").into(),
        None => text,
    };
    let not = |what: &str| wrong(&value.field, format!("{:?} is not {what}", shown(&text)));
    Ok(match &value.form {
        Form::Text => Ready::Text(put(cut(text))),
        Form::Html => Ready::Text(put(cut(plain(&text).into()))),
        Form::Slug => match slug(&text) {
            slug if slug.is_empty() => return not("a text with letters a-z or digits"),
            slug => Ready::Text(put(slug.into())),
        },
        Form::Integer => match text.parse::<i64>().ok().and_then(|number| number.checked_add(value.plus)) {
            Some(number) => Ready::Json(number.to_string()),
            None => return not("a whole number"),
        },
        Form::Decimal => match number(&text) {
            Some(number) => Ready::Json(number),
            None => return not("a number"),
        },
        Form::Boolean => match &*text {
            "true" | "1" => Ready::Json("true".to_owned()),
            "false" | "0" => Ready::Json("false".to_owned()),
            _ => return not("true or false"),
        },
        Form::Moment { format, zone } => match format.moment(&text, zone.as_ref()) {
            Ok(moment) => Ready::Moment(moment),
            Err(problem) => return wrong(&value.field, problem),
        },
        Form::TypedNumber(key) => match number(&text) {
            Some(number) => Ready::Json(format!("{{\"{key}\":{number}{}}}", value.show)),
            None => return not("a number"),
        },
        Form::TypedText(key) => {
            let mut json = format!("{{\"{key}\":");
            push_text(&mut json, &cut(text));
            json.push_str(&value.show);
            json.push('}');
            Ready::Json(json)
        }
    })
}

/// A number as JSON writes it.
fn number(text: &str) -> Option<String> {
    if let Ok(whole) = text.parse::<i64>() {
        return Some(whole.to_string());
    }
    serde_json::Number::from_f64(text.parse().ok()?).map(|number| number.to_string())
}

/// The beginning of a text, for a message.
fn shown(text: &str) -> String {
    shortened(text.to_owned(), 80)
}

fn push_field(json: &mut String, name: &str, text: &str) {
    push_name(json, name);
    push_text(json, text);
}

/// The name of one of an event's own fields, behind a comma.
fn push_name(json: &mut String, name: &str) {
    for part in [",\"", name, "\":"] {
        json.push_str(part);
    }
}

fn push_list(json: &mut String, name: &str, texts: &[Cow<'_, str>]) {
    push_name(json, name);
    json.push('[');
    for (index, text) in texts.iter().enumerate() {
        if index > 0 {
            json.push(',');
        }
        push_text(json, text);
    }
    json.push(']');
}

/// A text as JSON.
fn push_text(json: &mut String, text: &str) {
    // Mostly it is the same in JSON. Without an early end, so that many bytes are looked at in one step.
    let is_plain = |plain, byte| plain & (byte >= b' ') & (byte != b'"') & (byte != b'\\');
    if text.bytes().fold(true, is_plain) {
        for part in ["\"", text, "\""] {
            json.push_str(part);
        }
    } else {
        json.push_str(&serde_json::to_string(text).expect("a text is JSON"));
    }
}
