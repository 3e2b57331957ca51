//! Where log lines go: to standard error, as text for people or as JSON for machines.
//!
//! Colours only on a terminal. Writing is synchronous: whoever logs waits for standard error, so levels below INFO are
//! for looking closely, not for always. What is said and with which field names is the components' matter.

use std::io::{IsTerminal as _, stderr};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// One line of text each, for people.
    #[default]
    Text,
    /// One JSON object a line, the event's fields at the top level, for machines.
    Json,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The filter is not one of `tracing`'s directives.
    #[error("log filter {filter:?} is not understood")]
    Filter {
        /// What was given.
        filter: String,
        /// Where it went wrong.
        #[source]
        source: ParseError,
    },
    /// This process already logs somewhere.
    #[error("logging is already set up")]
    AlreadySet,
}

/// Sends the log lines of this process that pass `filter` (`info`, `warn,tidings_edge=debug`) to standard error.
///
/// # Errors
/// If the filter is not understood or logging was set up before; nothing is changed then.
pub fn init(format: Format, filter: &str) -> Result<(), InitError> {
    let parsed =
        EnvFilter::try_new(filter).map_err(|source| InitError::Filter { filter: filter.to_owned(), source })?;
    let builder =
        tracing_subscriber::fmt().with_env_filter(parsed).with_ansi(stderr().is_terminal()).with_writer(stderr);
    match format {
        Format::Text => builder.try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    }
    .map_err(|_| InitError::AlreadySet)
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::{Format, InitError, init};

    /// One test, because a process sets its logging once.
    #[test]
    fn a_bad_filter_is_refused_then_the_first_good_one_wins() {
        let refused = init(Format::Text, "tidings=loudly").unwrap_err();
        assert_eq!(refused.to_string(), "log filter \"tidings=loudly\" is not understood");
        assert!(refused.source().is_some());
        init(Format::Json, "warn,tidings_telemetry=debug").unwrap();
        assert!(tracing::enabled!(tracing::Level::DEBUG), "this module is let through");
        assert!(!tracing::enabled!(tracing::Level::TRACE));
        assert!(matches!(init(Format::Text, "info"), Err(InitError::AlreadySet)));
    }
}
