//! Topics in files of their own: the folder `translations.messages`.
//!
//! Each file `*.toml` has tables `[NAME]` with what `[topics.NAME]` has in the main file. They become part of the tree of
//! settings before it is read, so they are checked alike, and a mistake names its own file and line. A topic that is in two
//! places is a mistake.
//!
//! Bounds: [`FILE_COUNT_MAX`] files of [`FILE_BYTES_MAX`] bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tidings_intake::open_within;
use tidings_types::{Locale, TopicName};

use super::check::check_topics;
use super::field::{Reader, Section as _, read_table};
use super::file::read_up_to;
use super::sections::{Config, Topic, TopicPresent, ValueTexts};
use super::tree::{self, Node, Origin, Problem, Table, Value};
use super::value::Leaf as _;

/// Files of a folder.
const FILE_COUNT_MAX: usize = 1000;
/// Bytes of a file.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Adds the topics of the folder that the tree names.
pub(crate) fn add(table: &mut Table, problems: &mut Vec<Problem>) {
    let Some((folder, origin)) = folder(table) else { return };
    let problem =
        |message: String| Problem { origin: origin.clone(), message: format!("`translations.messages`: {message}") };
    let files = match files(&folder) {
        Ok(files) => files,
        Err(error) => return problems.push(problem(format!("cannot read {}: {error}", folder.display()))),
    };
    if files.len() > FILE_COUNT_MAX {
        return problems.push(problem(format!("has {} files, the limit is {FILE_COUNT_MAX}", files.len())));
    }
    for file in files {
        let name = file.display().to_string();
        match read_within(&folder, &file) {
            Ok(text) => {
                let before = problems.len();
                let found = tree::parse(&name, &text, problems);
                // What was understood of a broken file may be half a text.
                if problems.len() == before {
                    add_topics(table, found, problems);
                }
            }
            Err(error) => problems.push(problem(format!("cannot read {name}: {error}"))),
        }
    }
}

/// Removes the topics that are wrong, each read alone, and notes what is wrong with them.
pub(crate) fn leave_out_wrong(table: &mut Table, faults: &mut Vec<Problem>) {
    let Some((_, Node { value: Value::Table(topics), .. })) = table.get_mut("topics") else { return };
    topics.retain(|name, topic| {
        let alone = Value::Table(Table::from([(name.clone(), topic.clone())]));
        let alone =
            Table::from([("topics".to_owned(), (topic.0.clone(), Node { origin: topic.0.clone(), value: alone }))]);
        let mut reader = Reader::new(Config::ITEMS);
        if let Some(config) = read_table::<Config>(&alone, "", &Origin::Default, &mut reader) {
            check_topics(&config, &mut reader);
        }
        let is_right = reader.problems.is_empty();
        faults.append(&mut reader.problems);
        is_right
    });
}

/// The topics and the language in which they are written as TOML, as they stand in a file.
pub fn topics_toml(topics: &BTreeMap<TopicName, Topic>, source_locale: Option<&Locale>) -> String {
    let mut all = toml::Table::new();
    for (name, topic) in topics {
        let Topic { domain, title, body, title_plural, body_plural, count, context, comment, .. } = topic;
        let Topic { title_max, body_max, missing, present, select, values, texts: of_values, .. } = topic;
        let texts = [("domain", domain), ("title", title), ("body", body)].map(|(name, text)| (name, Some(text)));
        let more = [("title_plural", title_plural), ("body_plural", body_plural), ("count", count)];
        let more = more.into_iter().chain([("context", context), ("comment", comment), ("select", select)]);
        let texts = texts.into_iter().chain(more.map(|(name, text)| (name, text.as_ref())));
        let texts = texts.filter_map(|(name, text)| Some((name.to_owned(), text?.as_str().into())));
        let limits = [("title_max", title_max), ("body_max", body_max)];
        let limits = limits.map(|(name, limit)| (name.to_owned(), i64::from(*limit).into()));
        let present = [("missing".to_owned(), missing.show().into()), ("present".to_owned(), present_toml(present))];
        let of_values = of_values.iter().map(|(value, texts)| (value.clone(), value_toml(texts)));
        let select = [
            ("values".to_owned(), toml::Value::from(values.clone())),
            ("texts".to_owned(), toml::Value::Table(of_values.collect())),
        ];
        all.insert(name.to_string(), toml::Value::Table(texts.chain(limits).chain(present).chain(select).collect()));
    }
    let source_locale = source_locale.map(|locale| ("source_locale".to_owned(), locale.as_str().into()));
    let translations = toml::Value::Table(source_locale.into_iter().collect());
    let all = [("topics".to_owned(), toml::Value::Table(all)), ("translations".to_owned(), translations)];
    toml::Table::from_iter(all).to_string()
}

fn value_toml(texts: &ValueTexts) -> toml::Value {
    let ValueTexts { title, body, title_plural, body_plural } = texts;
    let texts =
        [("title", title), ("body", body), ("title_plural", title_plural), ("body_plural", body_plural)].into_iter();
    toml::Value::Table(texts.filter_map(|(name, text)| Some((name.to_owned(), text.as_deref()?.into()))).collect())
}

fn present_toml(present: &TopicPresent) -> toml::Value {
    let TopicPresent { sound, category, interruption, android_channel } = present;
    let interruption = interruption.map(|level| level.show());
    let texts = [("sound", sound), ("category", category), ("android_channel", android_channel)];
    let texts = texts.into_iter().chain([("interruption", &interruption)]);
    toml::Value::Table(texts.filter_map(|(name, text)| Some((name.to_owned(), text.as_deref()?.into()))).collect())
}

/// The folder, and where it is stated.
fn folder(table: &Table) -> Option<(PathBuf, Origin)> {
    let Value::Table(translations) = &table.get("translations")?.1.value else { return None };
    let (_, Node { origin, value }) = translations.get("messages")?;
    match value {
        Value::Text(path) | Value::Variable(path) => Some((path.into(), origin.clone())),
        _ => None, // The setting's type says what is wrong.
    }
}

/// A file of the folder.
fn read_within(folder: &Path, file: &Path) -> std::io::Result<String> {
    let within = file.strip_prefix(folder).expect("the file is in the folder");
    read_up_to(open_within(folder, within)?, FILE_BYTES_MAX)
}

/// The files of the folder, by name.
fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn add_topics(table: &mut Table, found: Table, problems: &mut Vec<Problem>) {
    let empty = || (Origin::Default, Node { origin: Origin::Default, value: Value::Table(Table::new()) });
    let topics = table.entry("topics".to_owned()).or_insert_with(empty);
    let Value::Table(topics) = &mut topics.1.value else { return };
    for (name, (origin, node)) in found {
        match topics.get(&name) {
            Some((first, _)) => {
                let message = format!("the topic {name} is also in {first}: remove one of them");
                problems.push(Problem { origin, message });
            }
            None => drop(topics.insert(name, (origin, node))),
        }
    }
}
