//! Topics in files of their own: the folder `translations.messages`.
//!
//! Each file `*.toml` has tables `[NAME]` with what `[topics.NAME]` has in the main file. They become part of the tree of
//! settings before it is read, so they are checked alike, and a mistake names its own file and line. A topic that is in two
//! places is a mistake.
//!
//! Bounds: [`FILE_COUNT_MAX`] files of [`FILE_BYTES_MAX`] bytes.

use std::fs;
use std::path::{Path, PathBuf};

use super::file::read_file;
use super::tree::{self, Node, Origin, Problem, Table, Value};

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
        match read(&file) {
            Ok(text) => add_topics(table, tree::parse(&name, &text, problems), problems),
            Err(error) => problems.push(problem(format!("cannot read {name}: {error}"))),
        }
    }
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

fn read(file: &Path) -> std::io::Result<String> {
    let bytes = fs::metadata(file)?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(std::io::Error::other(format!("it has {bytes} bytes, the limit is {FILE_BYTES_MAX}")));
    }
    read_file(file)
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
