//! The texts, the folder with their translations, and its files.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use tidings_config::Config;
use tidings_gettext::{Catalogue, Finding, FindingKind, Flaw, Message, Severity, pot};
use tidings_sender::NAMES;
use tidings_server::output::{Kind, remark};
use tidings_types::Locale;

use crate::cli::ConfigFile;
use crate::command::{CommandError, load};

/// The texts, and the folder with their translations.
pub(super) struct Desk {
    pub(super) config: Config,
    pub(super) dir: PathBuf,
    /// The sources by domain, each in the order of topics, then those of names.
    pub(super) domains: BTreeMap<String, Vec<Message>>,
}

/// A PO file that exists.
pub(super) struct PoFile {
    pub(super) domain: String,
    pub(super) locale: Locale,
    pub(super) path: PathBuf,
}

impl Desk {
    pub(super) fn open(file: &ConfigFile) -> Result<Self, CommandError> {
        let config = load(file)?.config;
        let dir = config.translations.dir.clone().ok_or_else(|| {
            let told = "there is no folder for translations: set `translations.dir`, for example to \"locales\"";
            CommandError::Usage(told.to_owned())
        })?;
        if config.topics.is_empty() && config.names.is_empty() {
            let told = "there are no texts: add [topics.NAME], or name a folder in `translations.messages`";
            return Err(CommandError::Usage(told.to_owned()));
        }
        let mut domains: BTreeMap<String, Vec<Message>> = BTreeMap::new();
        for (name, topic) in &config.topics {
            let messages = topic.messages(name).expect("the check lets no other template pass");
            domains.entry(topic.domain.clone()).or_default().extend(messages);
        }
        for (context, names) in &config.names {
            let messages = names.messages(context).expect("the check lets no other name pass");
            domains.entry(NAMES.to_owned()).or_default().extend(messages);
        }
        Ok(Self { config, dir, domains })
    }

    /// The POT file of each domain.
    pub(super) fn templates(&self) -> Result<Vec<(&str, PathBuf, Catalogue)>, CommandError> {
        let template = |(domain, messages): (_, &Vec<Message>)| {
            let domain: &String = domain;
            let catalogue = pot(messages).map_err(|error| CommandError::Usage(error.to_string()))?;
            Ok((domain.as_str(), self.dir.join(format!("{domain}.pot")), catalogue))
        };
        self.domains.iter().map(template).collect()
    }

    /// The PO files that exist, by domain and folder.
    pub(super) fn files(&self) -> Result<Vec<PoFile>, CommandError> {
        let mut folders = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(unreadable(&self.dir))? {
            folders.push(entry.map_err(unreadable(&self.dir))?.path());
        }
        folders.sort();
        let mut files: Vec<PoFile> = Vec::new();
        for domain in self.domains.keys() {
            for folder in &folders {
                let path = po_path(folder, domain);
                let name = folder.file_name().unwrap_or_default().to_string_lossy();
                match Locale::new(&name) {
                    Ok(locale) if path.is_file() => {
                        let same = |file: &&PoFile| file.domain == *domain && file.locale == locale;
                        if let Some(other) = files.iter().find(same) {
                            let (other, path) = (other.path.display(), path.display());
                            let told = format!("{other} and {path} are of one locale: remove one of them");
                            return Err(CommandError::Failed(told));
                        }
                        files.push(PoFile { domain: domain.clone(), locale, path });
                    }
                    Err(_) if path.is_file() => {
                        remark(Kind::Warning, format!("{} is left out: {name} is not a locale", path.display()));
                    }
                    _ => {}
                }
            }
        }
        Ok(files)
    }
}

/// How bad a finding is for a whole node: the server does not start with a catalogue of another language, either.
pub(super) fn severity(finding: &Finding) -> Severity {
    match finding.kind {
        FindingKind::Flaw(Flaw::Language { .. } | Flaw::DuplicateLocale) => Severity::Error,
        _ => finding.severity,
    }
}

pub(super) fn po_path(folder: &Path, domain: &str) -> PathBuf {
    folder.join("LC_MESSAGES").join(format!("{domain}.po"))
}

/// What is to be said when a file cannot be read.
fn unreadable(path: &Path) -> impl Fn(std::io::Error) -> CommandError + use<> {
    let path = path.to_owned();
    move |source| CommandError::File { action: "read", path: path.clone(), source }
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, CommandError> {
    fs::read(path).map_err(unreadable(path))
}

/// Reads a PO file that must be correct enough to be worked on.
pub(super) fn catalogue(path: &Path) -> Result<Catalogue, CommandError> {
    let wrong = |error| CommandError::Failed(format!("{}: {error}", path.display()));
    Catalogue::parse(&read(path)?).map_err(wrong)
}

/// Whether the file has this content.
pub(super) fn has(path: &Path, content: &[u8]) -> Result<bool, CommandError> {
    match fs::read(path) {
        Ok(bytes) => Ok(bytes == content),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(unreadable(path)(error)),
    }
}

/// Writes a file, and makes its folder. Returns whether its content has changed.
pub(super) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<bool, CommandError> {
    let content = content.as_ref();
    if has(path, content)? {
        return Ok(false);
    }
    let written = || {
        fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        let beside = path.with_extension("new");
        fs::write(&beside, content)?;
        fs::rename(beside, path)
    };
    written().map_err(|source| CommandError::File { action: "write", path: path.to_owned(), source })?;
    Ok(true)
}
