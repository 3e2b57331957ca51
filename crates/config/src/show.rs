//! Writes the reference page, the example file and the effective configuration. All three are made from the
//! declarations, so they always match what is read.

use std::fmt::Write as _;

use super::field::{Effective, Item, Section, Shape, toml_value, variable_of};
use super::sections::Config;
use super::value::Spelling;

/// The reference page, in Markdown: every setting with kind, range, default, variable and effect.
pub fn reference() -> String {
    let mut page = String::from(
        "# Configuration\n\n\
         One TOML file, named with `--config`, or `tidings.toml` if it is there; environment variables over it. Every\n\
         setting has a default, unless it says \"required\". This page is written by `tidings config reference`.\n\n\
         A list in an environment variable is written as in TOML. NAME is a name of your choice.\n",
    );
    walk(Config::ITEMS, "", &mut |table, docs, items| {
        if !table.is_empty() {
            let _ = write!(page, "\n## {}\n\n{}\n", header(table), text(docs));
        }
        for item in items {
            let Some((expected, _)) = single(&item.shape) else { continue };
            let path = if table.is_empty() { item.name.to_owned() } else { format!("{table}.{}", item.name) };
            let range = item.range.map(|(low, high)| format!(", from {low} to {high}")).unwrap_or_default();
            let list = if matches!(item.shape, Shape::List(_)) { "list, each " } else { "" };
            let default = match (item.default, &item.shape) {
                (Some(text), shape) => format!("default `{}`", spelt(shape, text)),
                (None, Shape::Optional(_)) => "not set by default".to_owned(),
                (None, Shape::List(_)) => "default `[]`".to_owned(),
                (None, _) => "**required**".to_owned(),
            };
            let _ = write!(page, "\n### `{path}`\n\n{}\n\n{list}{expected}{range}; {default}", text(item.docs));
            if !table.contains("[]") {
                let _ = write!(page, "; `{}`", variable_of(&path));
            }
            page.push('\n');
        }
    });
    page
}

/// The example file: every setting at its default. Settings without default, and tables with a name, are comments.
pub fn example() -> String {
    let mut file = String::from(
        "# Every setting of Tidings at its default. What has no default is a comment.\n\
         # TIDINGS_HTTP__LISTEN in the environment goes before `listen` in [http]; likewise all others.\n",
    );
    walk(Config::ITEMS, "", &mut |table, docs, items| {
        // Tables with a name or in a list are examples, so they are comments.
        let off = if table.contains(NAME) || table.contains("[]") { "# " } else { "" };
        let singles = items.iter().filter(|item| single(&item.shape).is_some());
        if !table.is_empty() {
            let has_any = singles.clone().next().is_some();
            let header = if has_any { format!("{off}{}\n", header(&example_path(table))) } else { String::new() };
            let _ = write!(file, "\n# {}\n{header}", text(docs));
        }
        for item in singles {
            let value = item.default.or(item.example).unwrap_or("[]");
            let off = if item.default.is_none() { "# " } else { off };
            let _ = writeln!(file, "# {}\n{off}{} = {}", note(item), item.name, spelt(&item.shape, value));
        }
    });
    file
}

/// The effective settings as a TOML file. Each has its origin behind it, and secrets are masked.
pub fn effective(settings: &[Effective]) -> String {
    let mut file = String::new();
    let mut table = "";
    for setting in settings {
        if setting.table != table {
            table = &setting.table;
            let header = match table.split_once('[') {
                Some((list, _)) if table.ends_with(']') => format!("[[{list}]]"),
                _ => format!("[{table}]"),
            };
            let _ = write!(file, "\n{header}\n");
        }
        let stated = format!("{} = {}", setting.name, setting.value);
        let _ = writeln!(file, "{stated:<50} # {}", setting.origin);
    }
    file
}

/// The placeholder in a path for a name that the operator gives.
const NAME: &str = "NAME";

/// Gets a table's path, its documentation and its settings.
type Visit<'a> = &'a mut dyn FnMut(&str, &'static [&'static str], &'static [Item]);

/// Visits every table of settings, parents first. Names are `NAME`, and lists of tables end in `[]`.
fn walk(items: &'static [Item], table: &str, visit: Visit<'_>) {
    if table.is_empty() {
        visit(table, Config::DOCS, items);
    }
    for item in items {
        let path = if table.is_empty() { item.name.to_owned() } else { format!("{table}.{}", item.name) };
        let (path, shape) = match &item.shape {
            Shape::Named(shape) => (format!("{path}.{NAME}"), *shape),
            Shape::List(shape) => (format!("{path}[]"), *shape),
            shape => (path, shape),
        };
        if let Shape::Section { docs, items } = shape {
            visit(&path, docs, items);
            walk(items, &path, visit);
        }
    }
}

/// What a single value, or each value of a list, is expected to be; `None` for tables.
fn single(shape: &Shape) -> Option<(&'static str, Spelling)> {
    match shape {
        Shape::Leaf { expected, spelling } => Some((expected, *spelling)),
        Shape::Optional(shape) | Shape::List(shape) => single(shape),
        Shape::Section { .. } | Shape::Named(_) => None,
    }
}

/// A default or example as TOML. The declaration of a list is TOML already.
fn spelt(shape: &Shape, text: &str) -> String {
    match (shape, single(shape)) {
        (Shape::List(_), _) | (_, None) => text.to_owned(),
        (_, Some((_, spelling))) => toml_value(spelling, text),
    }
}

/// The line above a setting of the example file.
fn note(item: &Item) -> String {
    let range = item.range.map(|(low, high)| format!(" From {low} to {high}.")).unwrap_or_default();
    format!("{}{range}", text(item.docs))
}

fn header(table: &str) -> String {
    table.strip_suffix("[]").map_or_else(|| format!("[{table}]"), |list| format!("[[{list}]]"))
}

/// The path with the declarations' example names instead of `NAME`.
fn example_path(table: &str) -> String {
    let mut items = Config::ITEMS;
    let mut name = None;
    let part = |part: &str| match part {
        NAME => name.unwrap_or(NAME).to_owned(),
        part => {
            let found = items.iter().find(|item| item.name == part);
            name = found.and_then(|item| item.example);
            if let Some(Item { shape: Shape::Section { items: inner, .. }, .. }) = found {
                items = inner;
            } else if let Some(Item { shape: Shape::Named(Shape::Section { items: inner, .. }), .. }) = found {
                items = inner;
            }
            part.to_owned()
        }
    };
    table.split('.').map(part).collect::<Vec<_>>().join(".")
}

fn text(docs: &[&str]) -> String {
    docs.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}
