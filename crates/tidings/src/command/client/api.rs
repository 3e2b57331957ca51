//! A client of a server's API: finds the server and its key, sends requests, reads and prints answers.
//!
//! A key read from the server's data folder is sent to this machine only.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::{DeserializeOwned, IgnoredAny};
use tidings_client::ServerUrl;
use tidings_config::{Secret, read_file};
use tidings_server::output::{Kind, remark};

use super::problem;
use crate::cli::ApiServer;
use crate::command::{CommandError, load_to_serve, named, plain};

/// A server with the key for it.
pub(in crate::command) struct ApiClient {
    pub(super) server: ServerUrl,
    pub(super) key: Option<Secret>,
    /// Answers are printed as they are.
    is_json: bool,
}

impl ApiClient {
    /// The server that the arguments name, else the server of the configuration.
    pub(in crate::command) fn new(args: &ApiServer) -> Result<Self, CommandError> {
        let stated = match (&args.api_key, &args.api_key_file) {
            (Some(key), _) => Some(Secret::new(key)),
            (None, Some(path)) => Some(key_in(path)?),
            (None, None) => None,
        };
        let (url, is_json) = (named(&args.server)?, args.json);
        match (url, stated) {
            (Some(server), key) if key.is_some() || !server.is_loopback() => Ok(Self { server, key, is_json }),
            (url, stated) => {
                let config = load_to_serve(&args.server.file)?.0.config; // A wrong text is no hindrance.
                let own = || match config.http.internal_listen {
                    Some(address) => Ok(ServerUrl::of_listener(address)),
                    None => plain(&config.http),
                };
                let path = config.data_dir.join("api-key");
                let key = stated.or(if path.is_file() { Some(key_in(&path)?) } else { None });
                Ok(Self { server: url.map_or_else(own, Ok)?, key, is_json })
            }
        }
    }

    pub(in crate::command) async fn get(&self, path: &str) -> Result<String, CommandError> {
        self.ask(Method::GET, path, None).await
    }

    pub(in crate::command) async fn post(&self, path: &str, body: Bytes) -> Result<String, CommandError> {
        self.ask(Method::POST, path, Some(body)).await
    }

    /// Returns the server's answer. A refusal becomes an error with the server's reason. Warnings go to standard error.
    pub(in crate::command) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<String, CommandError> {
        let key = self.key.as_ref().map(Secret::expose);
        let (status, answer) = self.server.request(method, path, key, body).await?;
        let text = String::from_utf8_lossy(&answer).into_owned();
        if !status.is_success() {
            return Err(self.refused(status, &text));
        }
        problem::warnings(&text).iter().for_each(|warning| remark(Kind::Warning, warning));
        Ok(text)
    }

    /// Hands the answer to `take` piece by piece, until `take` returns false.
    pub(in crate::command) async fn stream(
        &self,
        path: &str,
        accept: &'static str,
        take: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), CommandError> {
        let key = self.key.as_ref().map(Secret::expose);
        let (status, refusal) = self.server.stream(path, key, accept, take).await?;
        if status.is_success() { Ok(()) } else { Err(self.refused(status, &String::from_utf8_lossy(&refusal))) }
    }

    pub(super) fn refused(&self, status: StatusCode, text: &str) -> CommandError {
        let detail = format!("{} answered {status}{}", self.server, problem::words(status, text));
        let is_json = self.is_json && serde_json::from_str::<IgnoredAny>(text).is_ok();
        let answer = is_json.then(|| text.trim().to_owned());
        CommandError::Refused { status: status.as_u16(), detail, answer }
    }
}

fn key_in(path: &Path) -> Result<Secret, CommandError> {
    let text =
        read_file(path).map_err(|source| CommandError::File { action: "read", path: path.to_owned(), source })?;
    Ok(Secret::new(text.trim_end()))
}

/// Parses an answer.
pub(in crate::command) fn parse<T: DeserializeOwned>(answer: &str) -> Result<T, CommandError> {
    serde_json::from_str(answer)
        .map_err(|error| CommandError::Failed(format!("cannot read the server's answer: {error}")))
}

/// A name as a segment of a path: percent-encodes all but unreserved characters (RFC 3986, 2.3).
pub(super) fn segment(name: &str) -> String {
    const SPELT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(name, SPELT).to_string()
}

/// A duration in its two largest units: `45s`, `3m20s`, `2h05m`, `1d02h`.
pub(super) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Aligned columns.
pub(in crate::command) fn table(rows: &[Vec<String>]) -> String {
    let column_count = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| rows.iter().filter_map(|row| Some(row.get(column)?.chars().count())).max();
    let widths: Vec<usize> = (0..column_count).map(|column| width(column).unwrap_or_default()).collect();
    let text = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(text).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command, JobsCommand};

    fn client(words: &[&str]) -> ApiClient {
        let words = ["tidings", "jobs", "list"].iter().chain(words);
        let Command::Jobs(JobsCommand::List { api, .. }) = Cli::try_parse_from(words).unwrap().command else {
            unreachable!("it says jobs list")
        };
        ApiClient::new(&api).unwrap()
    }

    #[test]
    fn the_local_key_is_sent_to_this_machine_only() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("api-key"), "local-key\n").unwrap();
        let config = dir.path().join("tidings.toml");
        let data_dir =
            format!("data_dir = {:?}\n[http]\nlisten = \"0.0.0.0:7\"\ninternal_listen = \"127.0.0.1:8\"", dir.path());
        std::fs::write(&config, data_dir).unwrap();
        let destination = |more: &[&str]| {
            let config = config.display().to_string();
            let ApiClient { server, key, .. } = client(&[&["--config", &config], more].concat());
            (server.to_string(), key.map(|key| key.expose().to_owned()))
        };
        let local = Some("local-key".to_owned());
        assert_eq!(destination(&[]), ("http://127.0.0.1:8".to_owned(), local.clone()));
        assert_eq!(destination(&["--url", "http://localhost:9"]), ("http://localhost:9".to_owned(), local));
        assert_eq!(destination(&["--url", "http://example.com"]), ("http://example.com".to_owned(), None));
        let stated = Some("stated".to_owned());
        assert_eq!(destination(&["--api-key", "stated"]), ("http://127.0.0.1:8".to_owned(), stated));
    }

    #[test]
    fn addresses_that_are_no_server_are_refused() {
        for url in [
            "https://a/path",
            "https://user:pass@a",
            "http://",
            "a:80",
            "http://a/path",
            "http://user:pass@a",
            "http://a?b",
            "ws://a",
        ] {
            assert!(ServerUrl::parse(url).is_err(), "{url}");
        }
        for (listener, url) in
            [("0.0.0.0:1", "http://127.0.0.1:1"), ("[::]:1", "http://[::1]:1"), ("10.0.0.1:1", "http://10.0.0.1:1")]
        {
            let server = ServerUrl::of_listener(listener.parse().unwrap());
            assert_eq!((server.to_string().as_str(), server.is_loopback()), (url, !listener.starts_with("10")));
        }
    }

    #[test]
    fn a_key_file_is_read_without_its_line_break() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc\n").unwrap();
        assert_eq!(key_in(file.path()).unwrap().expose(), "abc");
        let error = key_in(Path::new("no-such-file")).unwrap_err();
        assert_eq!(error.to_string(), "cannot read no-such-file");
    }

    #[test]
    fn a_name_in_a_path_stays_one_part() {
        assert_eq!(segment("phone-7"), "phone-7");
        assert_eq!(segment("a/b?c#d%e"), "a%2Fb%3Fc%23d%25e");
    }

    #[test]
    fn a_duration_is_told_in_its_two_largest_units() {
        for (seconds, text) in
            [(0, "0s"), (59, "59s"), (60, "1m00s"), (3599, "59m59s"), (3600, "1h00m"), (93_600, "1d02h")]
        {
            assert_eq!(duration(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn columns_line_up() {
        let row = |texts: [&str; 2]| texts.map(str::to_owned).to_vec();
        assert_eq!(table(&[row(["id", "app"]), row(["phone-1", "x"])]), "id       app\nphone-1  x");
        assert_eq!(table(&[]), "");
    }
}
