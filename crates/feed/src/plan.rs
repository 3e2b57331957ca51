//! A mapping made ready: its paths as places, its values checked.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt::Display;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use regex::Regex;

use crate::error::MappingError;
use crate::format::{self, TimeFormat};
use crate::limits::Limits;
use crate::mapping::{ConditionText, Kind, Lookup, MappingText, Scalar, ValueText, WithoutId};
use crate::path::Path;
use crate::place::{Access, PlaceId, Places};
use crate::syndication;

/// Events' fields that a mapping may set in `[event]`, as they are.
const CONSTANTS: [&str; 7] =
    ["to", "filter", "payload", "receipt", "receipt_wait", "receipt_policy", "expect_audience"];
/// Deeper JSON and MessagePack would need more stack than a thread may have; serde_json has the same limit.
const VALUE_DEPTH_MAX: u64 = 127;
const XML_DEPTH_MAX: u64 = 10_000;

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) limits: Limits,
    pub(crate) places: Places,
    pub(crate) is_held: bool,
    pub(crate) tables: Vec<Rows>,
    pub(crate) when: Vec<Condition>,
    /// How many conditions, from the first on, look only at attributes of the entry's own element, as its id does. They are
    /// judged as soon as the entry begins.
    pub(crate) early: usize,
    pub(crate) id: Value,
    pub(crate) revision: Option<Revision>,
    pub(crate) without_id: WithoutId,
    pub(crate) topic: Value,
    pub(crate) subjects: Vec<Value>,
    pub(crate) channels: Vec<Value>,
    pub(crate) params: Vec<(String, Value)>,
    pub(crate) data: Vec<(String, Value)>,
    pub(crate) present: Vec<(String, Value)>,
    /// `push`, `urgency` and others of the event's own fields.
    pub(crate) fields: Vec<(&'static str, Value)>,
    pub(crate) at: Option<Value>,
    pub(crate) expires: Option<Value>,
    pub(crate) published: Option<Value>,
    pub(crate) age_max: Option<Duration>,
    /// The constants, as JSON with a comma before each.
    pub(crate) constants: String,
    pub(crate) order: Option<Order>,
}

/// The columns of a table.
#[derive(Debug)]
pub(crate) struct Rows {
    name: String,
    pub(crate) place: PlaceId,
    pub(crate) key: Vec<Access>,
    pub(crate) value: Vec<Access>,
}

#[derive(Debug)]
pub(crate) enum Revision {
    Content,
    Value(Box<Value>),
}

#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) by: Value,
    is_reverse: bool,
}

/// What entries are ordered by.
#[derive(Debug, PartialEq, PartialOrd)]
pub(crate) enum OrderKey {
    Moment(Timestamp),
    Number(f64),
    Text(String),
}

impl Order {
    /// Entries without a key come last, in the order of the document.
    pub(crate) fn compare(&self, one: Option<&OrderKey>, other: Option<&OrderKey>) -> Ordering {
        match (one, other) {
            (Some(one), Some(other)) => {
                let order = one.partial_cmp(other).unwrap_or(Ordering::Equal);
                if self.is_reverse { order.reverse() } else { order }
            }
            (one, other) => other.is_some().cmp(&one.is_some()),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Value {
    /// Its name in the mapping.
    pub(crate) field: String,
    pub(crate) parts: Vec<Part>,
    /// Each value of its one part makes one.
    pub(crate) is_each: bool,
    pub(crate) pick: Option<Regex>,
    pub(crate) table: Option<Table>,
    pub(crate) otherwise: Option<String>,
    pub(crate) put: Option<(String, String)>,
    pub(crate) default: Option<String>,
    pub(crate) is_required: bool,
    pub(crate) form: Form,
    pub(crate) plus: i64,
    pub(crate) max: Option<usize>,
    /// The fields of `show`, as JSON with a comma before each.
    pub(crate) show: String,
}

#[derive(Debug)]
pub(crate) enum Part {
    Text(String),
    Field(Vec<Access>),
}

#[derive(Debug)]
pub(crate) enum Table {
    Here(HashMap<String, String>),
    /// The number of a table of the document.
    Document(usize),
}

/// What a value is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Form {
    Text,
    Html,
    Slug,
    Integer,
    Decimal,
    Boolean,
    Moment {
        format: TimeFormat,
        zone: Option<TimeZone>,
    },
    /// An object with this key and a number.
    TypedNumber(&'static str),
    /// An object with this key and a text.
    TypedText(&'static str),
}

const FORMS: [(&str, Form); 11] = [
    ("text", Form::Text),
    ("html", Form::Html),
    ("slug", Form::Slug),
    ("integer", Form::Integer),
    ("decimal", Form::Decimal),
    ("boolean", Form::Boolean),
    ("number", Form::TypedNumber("number")),
    ("money", Form::TypedNumber("money")),
    ("date", Form::TypedText("date")),
    ("time", Form::TypedText("time")),
    ("name", Form::TypedText("name")),
];

/// Texts that a value is compared with.
#[derive(Debug)]
pub(crate) struct OneOf {
    pub(crate) texts: Vec<String>,
    /// For people: `"16", "17"`.
    pub(crate) told: String,
}

#[derive(Debug)]
pub(crate) struct Condition {
    /// Its name in the mapping.
    pub(crate) field: String,
    pub(crate) path: Vec<Access>,
    pub(crate) shown: String,
    pub(crate) one_of: Option<OneOf>,
    pub(crate) none_of: Option<OneOf>,
    pub(crate) exists: Option<bool>,
    pub(crate) matches: Option<Regex>,
    /// Sign and bound.
    pub(crate) bounds: Vec<(&'static str, f64)>,
    pub(crate) any: Vec<Condition>,
}

type Compiled<T> = Result<T, MappingError>;

fn wrong<T>(field: impl Into<String>, problem: impl Display) -> Compiled<T> {
    Err(MappingError { line: None, field: field.into(), problem: problem.to_string() })
}

impl Plan {
    pub(crate) fn new(text: &MappingText) -> Compiled<Self> {
        let mut compiler = Compiler::new(text)?;
        let is_rss = text.kind == Kind::Rss;
        let id = match &text.id {
            None if is_rss => ValueText::template("{id}"),
            None => return wrong("id", "is missing: it tells one entry from another, for example \"{@id}\""),
            Some(id) => id.clone(),
        };
        let published = text.published.clone().or_else(|| is_rss.then(|| ValueText::template("{published}")));
        if text.subjects.is_empty() {
            return wrong("subjects", "must have at least one subject");
        }
        if text.ttl.is_some() && text.expires.is_some() {
            return wrong("ttl", "cannot stand beside `expires`: both say how long the event is useful");
        }
        if text.age_max.is_some() && published.is_none() {
            return wrong("age_max", "needs `published`: when an entry was published");
        }
        let age_max = match text.age_max.as_deref().map(format::seconds) {
            Some(None) => return wrong("age_max", "must be a time such as 90s, 15m, 6h or 7d"),
            age => age.flatten().map(Duration::from_secs),
        };
        let order = match &text.order {
            None => None,
            Some(order) => Some(Order { by: compiler.value("order.by", &order.by)?, is_reverse: order.reverse }),
        };
        let mut plan = Self {
            early: 0,
            kind: text.kind,
            limits: text.limits.clone(),
            is_held: text.hold || order.is_some() || !text.tables.is_empty(),
            when: compiler.conditions("when", &text.when)?,
            id: compiler.value("id", &id)?,
            revision: compiler.revision(text.revision.as_ref())?,
            without_id: text.without_id,
            topic: compiler.value("topic", &text.topic)?,
            subjects: compiler.list("subjects", &text.subjects)?,
            channels: compiler.list("channels", &text.channels)?,
            params: compiler.named("params", &text.params)?,
            data: compiler.named("data", &text.data)?,
            present: compiler.named("present", &text.present)?,
            fields: compiler.fields(text)?,
            at: compiler.moment("at", text.at.as_ref())?,
            expires: compiler.moment("expires", text.expires.as_ref())?,
            published: compiler.moment("published", published.as_ref())?,
            age_max,
            constants: constants(text)?,
            order,
            tables: compiler.tables,
            places: compiler.places,
        };
        plan.early = plan.early_conditions(compiler.root);
        Ok(plan)
    }

    fn early_conditions(&self, root: PlaceId) -> usize {
        let attributes = &self.places.place(root).attributes;
        let is_early = |access: &Access| {
            let is_own = attributes.iter().any(|(_, leaf)| *leaf == access.leaf);
            is_own && access.absolute.is_none() && access.tests.is_empty()
        };
        let has_early_id = self.id.parts.iter().all(|part| match part {
            Part::Text(_) => true,
            Part::Field(accesses) => accesses.iter().all(is_early),
        });
        if self.is_held || !has_early_id {
            return 0;
        }
        self.when.iter().take_while(|condition| condition.reads_only(&is_early)).count()
    }
}

impl Condition {
    fn reads_only(&self, is_it: &impl Fn(&Access) -> bool) -> bool {
        self.path.iter().all(is_it) && self.any.iter().all(|one| one.reads_only(is_it))
    }
}

/// The event's own texts and what stands in `[event]`.
fn constants(text: &MappingText) -> Compiled<String> {
    let mut json = String::new();
    if !text.text.is_empty() {
        let texts = text.text.iter();
        let texts: serde_json::Map<_, _> = texts
            .map(|(locale, own)| (locale.clone(), serde_json::json!({ "title": own.title, "body": own.body })))
            .collect();
        json.push_str(&format!(",\"text\":{}", serde_json::Value::Object(texts)));
    }
    for (name, value) in &text.event {
        if !CONSTANTS.contains(&name.as_str()) {
            let rule = format!("is not a field that stands here: these are {}", CONSTANTS.join(", "));
            return wrong(format!("event.{name}"), rule);
        }
        json.push_str(&format!(",\"{name}\":{}", to_json(value)));
    }
    Ok(json)
}

fn to_json(value: &toml::Value) -> serde_json::Value {
    match value {
        toml::Value::String(text) => text.as_str().into(),
        toml::Value::Integer(number) => (*number).into(),
        toml::Value::Float(number) => (*number).into(),
        toml::Value::Boolean(value) => (*value).into(),
        toml::Value::Datetime(moment) => moment.to_string().into(),
        toml::Value::Array(items) => items.iter().map(to_json).collect(),
        toml::Value::Table(table) => table.iter().map(|(name, value)| (name.clone(), to_json(value))).collect(),
    }
}

struct Compiler {
    kind: Kind,
    places: Places,
    /// Where paths of entries begin.
    root: PlaceId,
    tables: Vec<Rows>,
}

impl Compiler {
    fn new(text: &MappingText) -> Compiled<Self> {
        let is_xml = text.kind.is_xml();
        let depth_max = if is_xml { XML_DEPTH_MAX } else { VALUE_DEPTH_MAX };
        if text.limits.depth > depth_max {
            return wrong("limits.depth", format!("must be at most {depth_max}"));
        }
        if text.namespaces.is_some() && !is_xml {
            return wrong("namespaces", "are a thing of XML");
        }
        let mut namespaces = text.namespaces.clone();
        if text.kind == Kind::Rss {
            let all = namespaces.get_or_insert_default();
            for (prefix, address) in syndication::NAMESPACES {
                all.entry(prefix.to_owned()).or_insert_with(|| address.to_owned());
            }
        }
        if namespaces.as_ref().is_some_and(|all| all.len() > 100) {
            return wrong("namespaces", "must have at most 100 prefixes");
        }
        let mut places = Places::new(is_xml, namespaces.as_ref());
        let root = places.root();
        let mut compiler = Self { kind: text.kind, places, root, tables: Vec::new() };
        compiler.begin_entries(text)?;
        for (name, table) in &text.tables {
            compiler.table(name, table)?;
        }
        Ok(compiler)
    }

    fn begin_entries(&mut self, text: &MappingText) -> Compiled<()> {
        let entries = match (text.kind, &text.entries) {
            (_, Some(entries)) => entries.as_str(),
            (Kind::Rss, None) => syndication::ENTRIES,
            (Kind::Xml, None) => return wrong("entries", "is missing: where the entries are, for example /feed/item"),
            _ => "/",
        };
        for path in paths("entries", entries)? {
            if !path.is_absolute {
                return wrong("entries", "must begin with `/`");
            }
            if path.steps.is_empty() && self.kind.is_xml() {
                return wrong("entries", "must name an element");
            }
            if path.attribute.is_some() || path.steps.iter().any(|step| !step.tests.is_empty()) {
                return wrong("entries", "must lead to elements, without tests: conditions stand in `when`");
            }
            let begun = self.places.begin_entries(&path, self.root);
            begun.or_else(|problem| wrong("entries", problem))?;
        }
        Ok(())
    }

    fn table(&mut self, name: &str, text: &crate::mapping::TableText) -> Compiled<()> {
        let field = |part: &str| format!("tables.{name}.{part}");
        let rows = match paths(&field("rows"), &text.rows)?.as_slice() {
            [path] if path.is_absolute && !path.steps.is_empty() => self.places.element(path),
            _ => return wrong(field("rows"), "must be one path that begins with `/` and names an element"),
        };
        let place = rows.or_else(|problem| wrong(field("rows"), problem))?;
        let mut column = |part: &str, text: &str| {
            let paths = paths(&field(part), text)?;
            if paths.iter().any(|path| path.is_absolute || path.steps.iter().any(|step| !step.tests.is_empty())) {
                return wrong(field(part), "must begin at the row, without `/`, and have no tests");
            }
            let accesses = paths.iter().map(|path| self.places.add(place, path)).collect::<Result<Vec<_>, _>>();
            accesses.or_else(|problem| wrong(field(part), problem))
        };
        let (key, value) = (column("key", &text.key)?, column("value", &text.value)?);
        self.tables.push(Rows { name: name.to_owned(), place, key, value });
        Ok(())
    }

    fn accesses(&mut self, field: &str, text: &str) -> Compiled<Vec<Access>> {
        let mut all = Vec::new();
        for path in paths(field, text)? {
            for path in self.meant(path) {
                all.push(self.places.add(self.root, &path).or_else(|problem| wrong(field, problem))?);
            }
        }
        Ok(all)
    }

    /// A name of RSS and Atom stands for several paths.
    fn meant(&self, path: Path) -> Vec<Path> {
        let [step] = path.steps.as_slice() else { return vec![path] };
        if self.kind != Kind::Rss || path.is_absolute || path.attribute.is_some() || !step.tests.is_empty() {
            return vec![path];
        }
        let meant = syndication::NAMES.iter().find(|(name, _)| *name == step.name);
        meant.map_or_else(|| vec![path], |(_, paths)| Path::parse_all(paths).expect("tested"))
    }

    fn value(&mut self, field: &str, text: &ValueText) -> Compiled<Value> {
        let text = &text.0;
        let (parts, is_each) = match (&text.from, &text.each) {
            (Some(from), None) => (self.template(field, &from.0)?, false),
            (None, Some(each)) => (vec![Part::Field(self.accesses(field, each)?)], true),
            (None, None) if text.default.is_some() => (vec![Part::Field(Vec::new())], false),
            _ => return wrong(field, "must have either `from` or, in a list, `each`"),
        };
        if is_each
            && parts.iter().any(|part| matches!(part, Part::Field(all) if all.iter().any(|a| a.absolute.is_some())))
        {
            return wrong(field, "has an `each` that begins with `/`: it must begin at the entry");
        }
        let pick = text.pick.as_deref().map(|pick| regex(field, "pick", pick)).transpose()?;
        let table = match &text.table {
            None => None,
            Some(Lookup::Here(rows)) => Some(Table::Here(rows.clone().into_iter().collect())),
            Some(Lookup::Named(name)) => match self.tables.iter().position(|rows| rows.name == *name) {
                Some(number) => Some(Table::Document(number)),
                None => return wrong(field, format!("names the table `{name}`, which `tables` does not have")),
            },
        };
        let put = match text.put.as_deref().map(|put| put.split_once("{}")) {
            Some(None) => return wrong(field, "has a `put` without `{}`"),
            put => put.flatten().map(|(before, after)| (before.to_owned(), after.to_owned())),
        };
        let show = text
            .show
            .iter()
            .map(|(name, value)| format!(",{}:{}", serde_json::Value::from(name.as_str()), to_json(value)));
        Ok(Value {
            field: field.to_owned(),
            parts,
            is_each,
            pick,
            table,
            otherwise: text.otherwise.clone().map(|text| text.0),
            put,
            default: text.default.clone().map(|text| text.0),
            is_required: text.required,
            form: form(field, text)?,
            plus: text.plus,
            max: text.max,
            show: show.collect(),
        })
    }

    fn template(&mut self, field: &str, text: &str) -> Compiled<Vec<Part>> {
        let mut parts = Vec::new();
        let mut constant = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            constant.push_str(&rest[..at]);
            let (brace, after) = (rest.as_bytes()[at], &rest[at + 1..]);
            if after.as_bytes().first() == Some(&brace) {
                constant.push(char::from(brace));
                rest = &after[1..];
                continue;
            }
            if brace == b'}' {
                return wrong(field, "has a `}` without a `{`: a brace as text is written twice");
            }
            let Some((path, behind)) = after.split_once('}') else {
                return wrong(field, "has a `{` without a `}`: a brace as text is written twice");
            };
            if !constant.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut constant)));
            }
            parts.push(Part::Field(self.accesses(field, path)?));
            rest = behind;
        }
        constant.push_str(rest);
        if !constant.is_empty() || parts.is_empty() {
            parts.push(Part::Text(constant));
        }
        Ok(parts)
    }

    fn list(&mut self, field: &str, texts: &[ValueText]) -> Compiled<Vec<Value>> {
        texts.iter().enumerate().map(|(index, text)| self.value(&format!("{field}[{}]", index + 1), text)).collect()
    }

    fn named(
        &mut self,
        field: &str,
        texts: &std::collections::BTreeMap<String, ValueText>,
    ) -> Compiled<Vec<(String, Value)>> {
        texts.iter().map(|(name, text)| Ok((name.clone(), self.value(&format!("{field}.{name}"), text)?))).collect()
    }

    fn fields(&mut self, text: &MappingText) -> Compiled<Vec<(&'static str, Value)>> {
        let fields = [
            ("push", &text.push),
            ("urgency", &text.urgency),
            ("priority", &text.priority),
            ("collapse_key", &text.collapse_key),
            ("ttl", &text.ttl),
        ];
        let given = fields.into_iter().filter_map(|(name, text)| Some((name, text.as_ref()?)));
        given.map(|(name, text)| Ok((name, self.value(name, text)?))).collect()
    }

    fn revision(&mut self, text: Option<&ValueText>) -> Compiled<Option<Revision>> {
        match text {
            None => Ok(None),
            Some(text) if *text == ValueText::template("content") => Ok(Some(Revision::Content)),
            Some(text) => Ok(Some(Revision::Value(Box::new(self.value("revision", text)?)))),
        }
    }

    /// A value that is a moment, also where the mapping does not say so.
    fn moment(&mut self, field: &str, text: Option<&ValueText>) -> Compiled<Option<Value>> {
        let Some(text) = text else { return Ok(None) };
        let mut text = text.clone();
        text.0.form.get_or_insert_with(|| "datetime".to_owned());
        let value = self.value(field, &text)?;
        match value.form {
            Form::Moment { .. } => Ok(Some(value)),
            _ => wrong(field, "must be a time: leave `as` out"),
        }
    }

    fn conditions(&mut self, field: &str, texts: &[ConditionText]) -> Compiled<Vec<Condition>> {
        let numbered = texts.iter().enumerate();
        numbered.map(|(index, text)| self.condition(format!("{field}[{}]", index + 1), text)).collect()
    }

    fn condition(&mut self, field: String, text: &ConditionText) -> Compiled<Condition> {
        let texts = |scalars: &[Scalar]| {
            let texts: Vec<String> = scalars.iter().map(|scalar| scalar.0.clone()).collect();
            let told = texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(", ");
            OneOf { texts, told }
        };
        let equals = text.equals.as_ref().map(|equals| texts(std::slice::from_ref(equals)));
        let bounds = [(">", text.above), ("≥", text.at_least), ("<", text.below), ("≤", text.at_most)].into_iter();
        let condition = Condition {
            path: if text.path.is_empty() { Vec::new() } else { self.accesses(&format!("{field}.path"), &text.path)? },
            shown: text.path.clone(),
            one_of: equals.or_else(|| text.one_of.as_deref().map(texts)),
            none_of: text.none_of.as_deref().map(texts),
            exists: text.exists,
            matches: text.matches.as_deref().map(|pattern| regex(&field, "matches", pattern)).transpose()?,
            bounds: bounds.filter_map(|(sign, bound)| Some((sign, bound?))).collect(),
            any: self.conditions(&format!("{field}.any"), &text.any)?,
            field: field.clone(),
        };
        let says_nothing = condition.one_of.is_none()
            && condition.none_of.is_none()
            && condition.exists.is_none()
            && condition.matches.is_none()
            && condition.bounds.is_empty();
        if text.equals.is_some() && text.one_of.is_some() {
            return wrong(field, "has both `equals` and `one_of`");
        }
        if condition.any.is_empty() && (condition.path.is_empty() || says_nothing) {
            return wrong(field, "needs `path`, and what its value must be: `equals`, `one_of`, `exists`, or another");
        }
        let has_more = !condition.path.is_empty() || !says_nothing;
        if !condition.any.is_empty() && has_more {
            return wrong(field, "has `any` beside others: write two conditions");
        }
        Ok(condition)
    }
}

fn paths(field: &str, text: &str) -> Compiled<Vec<Path>> {
    Path::parse_all(text).or_else(|problem| wrong(field, format!("has the path {text:?}, which {problem}")))
}

fn regex(field: &str, part: &str, pattern: &str) -> Compiled<Regex> {
    let made = regex::RegexBuilder::new(pattern).size_limit(1 << 20).build();
    made.or_else(|error| wrong(format!("{field}.{part}"), format!("is not a regular expression: {error}")))
}

fn form(field: &str, text: &crate::mapping::ValueTable) -> Compiled<Form> {
    let name = text.form.as_deref().unwrap_or("text");
    if name == "datetime" {
        let time = text.format.as_deref().map(TimeFormat::parse).transpose();
        let format = time.or_else(|problem| wrong(format!("{field}.format"), problem))?.unwrap_or_default();
        let zone = match text.zone.as_deref().map(TimeZone::get) {
            Some(Err(error)) => return wrong(format!("{field}.zone"), format!("is not a time zone: {error}")),
            zone => zone.and_then(Result::ok),
        };
        return Ok(Form::Moment { format, zone });
    }
    if text.format.is_some() || text.zone.is_some() {
        return wrong(field, "has `format` or `zone`, but is no time: add `as = \"datetime\"`");
    }
    match FORMS.iter().find(|(known, _)| *known == name) {
        Some((_, form)) => Ok(form.clone()),
        None => {
            let names: Vec<&str> = FORMS.iter().map(|(name, _)| *name).collect();
            wrong(format!("{field}.as"), format!("must be {} or datetime, got {name:?}", names.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_rss_and_atom_can_be_used() {
        for (name, paths) in syndication::NAMES {
            Path::parse_all(paths).unwrap_or_else(|problem| panic!("{name}: {problem}"));
        }
    }
}
