//! The configuration: one TOML file, environment variables that override it, and a default for every setting.
//!
//! `TIDINGS_HTTP__LISTEN` is `listen` in `[http]`: the path in capitals, with `__` between levels. Lists are written as
//! in TOML. All mistakes are reported at once, with file, line and column or the variable, and the nearest valid name.
//! An unknown variable `TIDINGS_…` without `__` that resembles no top-level setting is ignored: a container runtime may
//! have set it.
//!
//! [`load`] reads the settings, checks relations between them, and reads secrets from files, so that a configuration
//! that exists can be started. It does not open ports or the data folder. Limit: a configuration file, or a file with a
//! secret, has at most [`FILE_BYTES_MAX`].

mod built;
mod check;
mod field;
mod file;
mod import;
mod messages;
mod sections;
mod show;
mod topic;
mod tree;
mod value;
mod webhook_key;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use tidings_types::{AppId, Environment, Provider};

use self::built::Built;
pub use self::check::read_mapping;
pub use self::field::{Effective, toml_text};
use self::field::{Reader, Section, closest, read_table};
pub use self::file::{FILE_BYTES_MAX, read_file};
pub use self::import::{Entry, Import, ImportError, ImportFile, Outcome, import};
pub use self::messages::topics_toml;
pub use self::sections::*;
pub use self::show::{effective, example, reference};
pub use self::tree::{Origin, Problem};
use self::tree::{VARIABLE_PREFIX, VARIABLE_SEPARATOR};
use self::value::Leaf as _;
pub use self::value::{
    AppleId, ByteSize, HostPort, LogFormat, Missing, Moment, Percentage, Ramp, Secret, Sha256, Tag, WebUrl,
};
pub use self::webhook_key::{Key as WebhookKey, KeyError as WebhookKeyError, Keys as WebhookKeys};

/// The file that is read if no other is named, and if it exists.
pub const DEFAULT_FILE: &str = "tidings.toml";

/// A valid configuration, and where each value comes from.
#[derive(Debug)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// The effective value of each setting.
    pub effective: Vec<Effective>,
    /// Settings that are allowed but probably wrong.
    pub warnings: Vec<Problem>,
}

/// Why a configuration cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read configuration file {file}")]
    Unreadable {
        /// The file.
        file: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Settings are wrong.
    #[error("{problems}")]
    Wrong {
        /// Every mistake.
        problems: Problems,
        /// `log.format`, if it is valid.
        log_format: Option<LogFormat>,
    },
}

impl ConfigError {
    /// The format in which to log this error: as the file or the environment says, if that can be read.
    pub fn log_format(&self) -> Option<LogFormat> {
        match self {
            Self::Wrong { log_format, .. } => *log_format,
            // The environment overrides the file, so it may give the format even if the file cannot be read.
            Self::Unreadable { .. } => LogFormat::parse(&std::env::var("TIDINGS_LOG__FORMAT").ok()?),
        }
    }
}

/// Every mistake of a configuration.
#[derive(Debug)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0.len() == 1 { "" } else { "s" };
        write!(f, "{} mistake{plural} in the configuration", self.0.len())?;
        self.0.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

/// A section of a push provider.
pub struct PushSection<'c> {
    /// The section's provider.
    pub provider: Provider,
    /// The operator's name for the section.
    pub name: &'c str,
    /// Always production, except for Apple.
    pub environment: Environment,
    /// The apps of the section.
    pub apps: &'c [AppId],
}

impl Config {
    /// The sections of all providers, in the order of providers and names.
    pub fn push_sections(&self) -> impl Iterator<Item = PushSection<'_>> {
        let environment = Environment::default(); // Only Apple has two.
        let apns = self.apns.iter();
        let apns = apns.map(|(name, it)| (Provider::Apns, name, it.environment, &it.apps));
        let fcm = self.fcm.iter().map(move |(name, it)| (Provider::Fcm, name, environment, &it.apps));
        let web_push = self.web_push.iter().map(move |(name, it)| (Provider::WebPush, name, environment, &it.apps));
        let all = apns.chain(fcm).chain(web_push);
        all.map(|(provider, name, environment, apps)| PushSection { provider, name, environment, apps })
    }
}

/// Reads the file (if none is named, [`DEFAULT_FILE`] if it exists) and applies the environment variables.
///
/// # Errors
/// If the file cannot be read, or with all mistakes.
pub fn load(
    file: Option<&Path>,
    variables: impl IntoIterator<Item = (std::ffi::OsString, std::ffi::OsString)>,
) -> Result<Loaded, ConfigError> {
    let (name, text, variables) = sources(file, variables)?;
    parse(&name, &text, variables)
}

/// As [`load`], but topics that are wrong are left out: a wrong text must not keep a server from starting. Also returns
/// what is wrong with them.
///
/// # Errors
/// If the file cannot be read, or with all other mistakes.
pub fn load_to_serve(
    file: Option<&Path>,
    variables: impl IntoIterator<Item = (std::ffi::OsString, std::ffi::OsString)>,
) -> Result<(Loaded, Vec<Problem>), ConfigError> {
    let (name, text, variables) = sources(file, variables)?;
    let error = match parse(&name, &text, variables.clone()) {
        Ok(loaded) => return Ok((loaded, Vec::new())),
        Err(error) => error,
    };
    let mut faults = Vec::new();
    let loaded = finish(read(&name, &text, variables, Some(&mut faults)), Built::THIS);
    loaded.map(|loaded| (loaded, faults)).map_err(|_| error)
}

/// The name and text of the file, and the variables that are settings.
#[expect(clippy::type_complexity, reason = "three parts that go into one call")]
fn sources(
    file: Option<&Path>,
    variables: impl IntoIterator<Item = (std::ffi::OsString, std::ffi::OsString)>,
) -> Result<(String, String, Vec<(String, String)>), ConfigError> {
    let implied = Path::new(DEFAULT_FILE);
    let file = file.or_else(|| implied.is_file().then_some(implied));
    let (name, text) = match file {
        None => (DEFAULT_FILE.to_owned(), String::new()),
        Some(path) => {
            let name = path.display().to_string();
            let text = read_file(path).map_err(|source| ConfigError::Unreadable { file: name.clone(), source })?;
            (name, text)
        }
    };
    let variables = variables.into_iter().filter_map(|(name, value)| {
        let name = name.into_string().ok().filter(|name| name.starts_with(VARIABLE_PREFIX))?;
        // A value that is not UTF-8 is wrong for every setting. The message shows replacement characters.
        Some((name, value.to_string_lossy().into_owned()))
    });
    Ok((name, text, variables.collect()))
}

/// Reads a configuration from text. Messages about mistakes name `file`.
///
/// # Errors
/// With all mistakes.
pub fn parse(
    file: &str,
    text: &str,
    variables: impl IntoIterator<Item = (String, String)>,
) -> Result<Loaded, ConfigError> {
    finish(read(file, text, variables, None), Built::THIS)
}

/// Checks what was read.
fn finish((config, mut reader): (Option<Config>, Reader), built: Built) -> Result<Loaded, ConfigError> {
    let mut warnings = Vec::new();
    let config = config.map(|mut config| {
        warnings = check::check(&mut config, &mut reader, built);
        config
    });
    reader.problems.sort_by_key(|problem| problem.origin.line_and_column());
    match config {
        Some(config) if reader.problems.is_empty() => Ok(Loaded { config, effective: reader.effective, warnings }),
        _ => {
            let stated = reader.effective.iter().find(|it| (it.table.as_str(), it.name.as_str()) == ("log", "format"));
            let log_format = stated.and_then(|it| LogFormat::parse(it.value.trim_matches('"')));
            Err(ConfigError::Wrong { problems: Problems(reader.problems), log_format })
        }
    }
}

/// Reads every setting, and the topics of the messages folder, without checking relations. With `faults`, topics that are
/// wrong are left out, and their mistakes go there.
fn read(
    file: &str,
    text: &str,
    variables: impl IntoIterator<Item = (String, String)>,
    faults: Option<&mut Vec<Problem>>,
) -> (Option<Config>, Reader) {
    let mut reader = Reader::new(Config::ITEMS);
    let mut table = tree::parse(file, text, &mut reader.problems);
    tree::overlay(&mut table, variables.into_iter().filter(|(name, _)| is_setting(name)));
    match faults {
        None => messages::add(&mut table, &mut reader.problems),
        Some(faults) => {
            messages::add(&mut table, faults);
            messages::leave_out_wrong(&mut table, faults);
        }
    }
    let config = read_table(&table, "", &Origin::Default, &mut reader);
    (config, reader)
}

/// Whether a variable is meant as a setting, even if it is misspelt.
fn is_setting(variable: &str) -> bool {
    variable.strip_prefix(VARIABLE_PREFIX).is_some_and(|path| {
        let top = || closest(&path.to_ascii_lowercase(), Config::ITEMS.iter().map(|item| item.name)).is_some();
        !NOT_SETTINGS.contains(&path) && (path.contains(VARIABLE_SEPARATOR) || top())
    })
}

/// Variables of the command line, not of the configuration: `TIDINGS_CONFIG` and so on.
const NOT_SETTINGS: [&str; 5] = ["CONFIG", "URL", "API_KEY", "TOKEN", "BIN"];

/// Reads a duration as settings spell it, for the command line.
///
/// # Errors
/// If the text is not a duration. The message says what is expected.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    Duration::parse(text).ok_or_else(|| format!("must be {}", Duration::EXPECTED))
}
