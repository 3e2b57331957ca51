//! Log lines: as text for people or as JSON for machines, written to the writer that the program gives.
//!
//! The writer decides whether a thread that logs has to wait. The components decide the texts and the names of fields.
//! A writer that drops lines reports this with a line of [`lost`].

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{LevelFilter, ParseError};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{MakeWriter, fmt};

/// Below this level this library logs what it sends and receives, which are events and tokens.
const SECRETIVE: &str = "async_nats=info";

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// One line of text each, for people.
    #[default]
    Text,
    /// One JSON object per line for machines; the event's fields are at the top level.
    Json,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The filter has a directive that `tracing` does not accept.
    #[error("log filter {filter:?} is invalid, expected directives such as \"info\" or \"warn,tidings_edge=debug\"")]
    Filter {
        /// The filter as it was given.
        filter: String,
        /// Where it is wrong.
        #[source]
        source: ParseError,
    },
    /// Logging was set up in this process before.
    #[error("logging is already set up")]
    AlreadySet,
}

/// Sends the log lines of this process that pass `filter` (`info`, `warn,tidings_edge=debug`) to `writer`, with one
/// `write` per line. `is_coloured` is for text on a terminal.
///
/// # Errors
/// If the filter is invalid or logging was set up before; then nothing is changed.
pub fn init<W>(format: Format, filter: &str, is_coloured: bool, writer: W) -> Result<(), InitError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let failed = |source| InitError::Filter { filter: filter.to_owned(), source };
    let mut parsed = EnvFilter::try_new(filter).map_err(failed)?;
    if parsed.max_level_hint().is_none_or(|level| level > LevelFilter::INFO) {
        parsed = parsed.add_directive(SECRETIVE.parse().map_err(failed)?);
    }
    let builder = fmt().with_env_filter(parsed).with_ansi(is_coloured).with_writer(writer);
    match format {
        Format::Text => builder.try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    }
    .map_err(|_| InitError::AlreadySet)
}

/// The current time in the form of log lines.
#[must_use]
pub fn timestamp() -> String {
    let mut time = String::new();
    if SystemTime.format_time(&mut Writer::new(&mut time)).is_err() {
        "<unknown time>".clone_into(&mut time); // As the formatter does.
    }
    time
}

/// The line that reports `count` dropped lines.
#[must_use]
pub fn lost(format: Format, count: u64) -> String {
    let time = timestamp();
    let (text, target) = ("Log lines lost", module_path!());
    match format {
        Format::Text => format!("{time}  WARN {target}: {text} count={count}\n"),
        Format::Json => format!(
            "{{\"timestamp\":\"{time}\",\"level\":\"WARN\",\"message\":\"{text}\",\"count\":{count},\"target\":\"{target}\"}}\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::{Format, InitError, init, lost};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<Vec<u8>>>>);

    impl Write for Lines {
        fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().push(line.to_vec());
            Ok(line.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// A line without its time.
    fn shape(line: &str) -> String {
        let time = line.find("20").unwrap();
        let end = time + line[time..].find('Z').unwrap();
        format!("{}TIME{}", &line[..time], &line[end + 1..])
    }

    /// One test, because a process sets its logging once.
    #[test]
    fn a_bad_filter_is_refused_then_the_first_good_one_wins() {
        let lines = Lines::default();
        let make = |lines: &Lines| {
            let lines = lines.clone();
            move || lines.clone()
        };
        let refused = init(Format::Text, "tidings=loudly", false, make(&lines)).unwrap_err();
        assert!(refused.to_string().starts_with("log filter \"tidings=loudly\" is invalid, "), "{refused}");
        assert!(refused.source().is_some());
        init(Format::Json, "warn,tidings_telemetry=debug", false, make(&lines)).unwrap();
        assert!(tracing::enabled!(tracing::Level::DEBUG), "this module is let through");
        assert!(!tracing::enabled!(tracing::Level::TRACE));
        assert!(matches!(init(Format::Text, "info", false, make(&lines)), Err(InitError::AlreadySet)));

        tracing::warn!(target: "tidings_telemetry::log", count = 3, "Log lines lost");
        let written = lines.0.lock().unwrap();
        assert_eq!(written.len(), 1, "a line is one write");
        let line = str::from_utf8(&written[0]).unwrap();
        assert_eq!(shape(line), shape(&lost(Format::Json, 3)), "as if it had been logged");
    }

    #[test]
    fn a_line_about_lost_lines_looks_like_a_line() {
        let lines = Lines::default();
        let writer = lines.clone();
        let text = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(text, || {
            tracing::warn!(target: "tidings_telemetry::log", count = 3, "Log lines lost");
        });
        let written = lines.0.lock().unwrap();
        assert_eq!(shape(str::from_utf8(&written[0]).unwrap()), shape(&lost(Format::Text, 3)));
    }
}
