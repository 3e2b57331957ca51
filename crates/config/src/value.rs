//! The kinds of values that a setting can have. Each kind reads itself from text and writes itself as TOML.
//!
//! Durations and sizes are strings with units, so nobody has to remember which numbers are seconds. A wrong value is
//! answered with what is expected ([`Leaf::EXPECTED`]). The caller repeats the value itself, unless it is a secret.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use axum::http::HeaderName;
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use tidings_api::Scope;
use tidings_api::{Rfc3339, SubjectPattern};
use tidings_console::Role;
use tidings_http1::{Origin, Request};
use tidings_protocol::{DataFormat, DeltaType, RecoveryMode, SlowReaders, TextPattern};
use tidings_types::{AppId, DeviceId, Environment, EventChannels, Interruption, Locale, OriginPattern, Timestamp};

/// How a value is spelt in TOML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// `"text"`.
    Text,
    /// `12`.
    Integer,
    /// `true`.
    Boolean,
}

/// A single value of a setting.
pub(crate) trait Leaf: Sized {
    /// What is expected: the end of the sentence "must be …".
    const EXPECTED: &'static str;
    const SPELLING: Spelling = Spelling::Text;
    /// Whether the value must never be shown.
    const SECRET: bool = false;

    /// Reads the text between the quotation marks, or the digits, or `true` and `false`.
    fn parse(text: &str) -> Option<Self>;

    /// The value as text, for the effective configuration.
    fn show(&self) -> String;

    /// Whether the value is within its range. A kind without an order has no range.
    fn is_within(&self, _low: &str, _high: &str) -> bool {
        true
    }
}

/// A number of bytes, written as `"64KiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// As a `usize`, at most `usize::MAX`.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = SIZE_UNITS.iter().find(|(_, bytes)| self.0 != 0 && self.0.is_multiple_of(*bytes));
        let (name, bytes) = unit.unwrap_or(&("B", 1));
        write!(f, "{}{name}", self.0 / bytes)
    }
}

const SIZE_UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl Leaf for ByteSize {
    const EXPECTED: &'static str = "a size in B, KiB, MiB or GiB, such as \"64KiB\"";

    fn parse(text: &str) -> Option<Self> {
        let (number, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit())?);
        let (_, bytes) = SIZE_UNITS.iter().find(|(name, _)| *name == unit.trim_start())?;
        number.parse::<u64>().ok()?.checked_mul(*bytes).map(Self)
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn is_within(&self, low: &str, high: &str) -> bool {
        is_between(self, low, high)
    }
}

/// Units of time in milliseconds, longest first.
const TIME_UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

impl Leaf for Duration {
    const EXPECTED: &'static str = "a duration in ms, s, m, h or d, such as \"25s\" or \"1h30m\"";

    fn parse(text: &str) -> Option<Self> {
        let mut rest = text;
        let mut millis = 0_u64;
        while !rest.is_empty() {
            let (number, tail) = rest.split_at(rest.find(|letter: char| !letter.is_ascii_digit())?);
            let unit_end = tail.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(tail.len());
            let (_, unit) = TIME_UNITS.iter().find(|(name, _)| *name == &tail[..unit_end])?;
            millis = millis.checked_add(number.parse::<u64>().ok()?.checked_mul(*unit)?)?;
            rest = &tail[unit_end..];
        }
        (!text.is_empty()).then(|| Self::from_millis(millis))
    }

    fn show(&self) -> String {
        let mut millis = u64::try_from(self.as_millis()).unwrap_or(u64::MAX);
        if millis == 0 {
            return "0s".to_owned();
        }
        let mut text = String::new();
        for (name, unit) in TIME_UNITS {
            if millis >= unit {
                text.push_str(&format!("{}{name}", millis / unit));
                millis %= unit;
            }
        }
        text
    }

    fn is_within(&self, low: &str, high: &str) -> bool {
        is_between(self, low, high)
    }
}

fn is_between<T: Leaf + PartialOrd>(value: &T, low: &str, high: &str) -> bool {
    T::parse(low).is_some_and(|low| *value >= low) && T::parse(high).is_some_and(|high| *value <= high)
}

macro_rules! from_text {
    ($($type:ty, $spelling:ident: $expected:expr;)+) => {$(
        impl Leaf for $type {
            const EXPECTED: &'static str = $expected;
            const SPELLING: Spelling = Spelling::$spelling;

            fn parse(text: &str) -> Option<Self> {
                text.parse().ok()
            }

            fn show(&self) -> String {
                self.to_string()
            }
        }
    )+};
}

from_text! {
    bool, Boolean: "true or false";
    IpAddr, Text: "an IP address, such as \"10.0.0.2\"";
    SocketAddr, Text: "an IP address and a port, such as \"127.0.0.1:8000\" or \"[::]:8000\"";
    AppId, Text: "a bundle id of 1 to 128 visible ASCII characters";
    SubjectPattern, Text: "a subject such as \"team:42\", \"team:*\" for a kind, or \"*\"; not of users";
    HeaderName, Text: "the name of a header";
    DeviceId, Text: "a device id of 1 to 128 visible ASCII characters";
}

macro_rules! whole_number {
    ($($type:ty),+) => {$(
        impl Leaf for $type {
            const EXPECTED: &'static str = "a whole number";
            const SPELLING: Spelling = Spelling::Integer;

            fn parse(text: &str) -> Option<Self> {
                text.parse().ok()
            }

            fn show(&self) -> String {
                self.to_string()
            }

            fn is_within(&self, low: &str, high: &str) -> bool {
                is_between(self, low, high)
            }
        }
    )+};
}

whole_number!(u16, u32, u64, usize);

impl Leaf for String {
    const EXPECTED: &'static str = "text without control characters, not empty";

    fn parse(text: &str) -> Option<Self> {
        (!text.is_empty() && !text.chars().any(char::is_control)).then(|| text.to_owned())
    }

    fn show(&self) -> String {
        self.clone()
    }
}

impl Leaf for PathBuf {
    const EXPECTED: &'static str = "a path";

    fn parse(text: &str) -> Option<Self> {
        (!text.is_empty() && !text.contains('\0')).then(|| text.into())
    }

    fn show(&self) -> String {
        self.display().to_string()
    }
}

/// A host (name or address) and a port. Whether the host exists is not checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort(pub String);

impl Leaf for HostPort {
    const EXPECTED: &'static str = "a host and a port, such as \"127.0.0.1:8089\", \"[::1]:8089\" or \"agent:8089\"";

    fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        let is_host = (1..=253).contains(&host.len()) && host.bytes().all(is_name);
        let is_address = text.parse::<SocketAddr>().is_ok(); // Also `[::1]:8089`.
        let port = port.parse::<u16>().ok().filter(|port| *port > 0);
        (port.is_some() && (is_host || is_address)).then(|| Self(text.to_owned()))
    }

    fn show(&self) -> String {
        self.0.clone()
    }
}

/// A part of a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percentage {
    /// In millionths.
    pub millionths: u32,
}

impl Leaf for Percentage {
    const EXPECTED: &'static str = "a percentage from \"0%\" to \"100%\", such as \"0.5%\"";

    fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.strip_suffix('%')?.split_once('.').unwrap_or((text.strip_suffix('%')?, "0"));
        let are_digits = [whole, fraction].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
        if !are_digits || whole.is_empty() || !(1..=4).contains(&fraction.len()) {
            return None;
        }
        let millionths =
            whole.parse::<u32>().ok()?.checked_mul(10_000)? + format!("{fraction:0<4}").parse::<u32>().ok()?;
        (millionths <= 1_000_000).then_some(Self { millionths })
    }

    fn show(&self) -> String {
        let text = format!("{}.{:04}", self.millionths / 10_000, self.millionths % 10_000);
        format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// A Web address. Its query is not shown, because it may be a secret. A wrong address is not shown either, because it
/// may contain a password.
#[derive(Clone, PartialEq, Eq)]
pub struct WebUrl {
    /// The server.
    pub origin: Origin,
    /// The path, and the query if there is one.
    pub target: String,
}

impl fmt::Debug for WebUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.show())
    }
}

impl Leaf for WebUrl {
    const EXPECTED: &'static str =
        "an address such as \"https://example.com/hook\", with http or https, without user, password and fragment";
    const SECRET: bool = true;

    fn parse(text: &str) -> Option<Self> {
        let (origin, target) = Origin::split(text).ok()?;
        target.bytes().all(|byte| byte.is_ascii_graphic()).then_some(Self { origin, target })
    }

    fn show(&self) -> String {
        match self.target.split_once('?') {
            Some((path, _)) => format!("{}{path}?***", self.origin),
            None => format!("{}{}", self.origin, self.target),
        }
    }
}

/// A header of requests. Its value may be a secret and is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct StaticHeader {
    /// Its name, in lower case.
    pub name: HeaderName,
    /// Its value.
    pub value: String,
}

impl fmt::Debug for StaticHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.show())
    }
}

impl Leaf for StaticHeader {
    const EXPECTED: &'static str = "a header that does not belong to the connection, such as \"X-Hook-Key: secret\"";
    const SECRET: bool = true;

    fn parse(text: &str) -> Option<Self> {
        let (name, value) = text.split_once(':')?;
        let (name, value) = (HeaderName::from_bytes(name.trim().as_bytes()).ok()?, value.trim());
        let is_sendable = Request::post("/").ok()?.header(name.as_str(), value).is_ok();
        is_sendable.then(|| Self { name, value: value.to_owned() })
    }

    fn show(&self) -> String {
        format!("{}: ***", self.name)
    }
}

/// A moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment(pub Timestamp);

impl Leaf for Moment {
    const EXPECTED: &'static str = "a moment with its offset from UTC (RFC 3339), such as \"2026-12-31T00:00:00Z\"";

    fn parse(text: &str) -> Option<Self> {
        text.parse::<Rfc3339>().ok().map(|moment| Self(moment.0))
    }

    fn show(&self) -> String {
        Rfc3339(self.0).to_string()
    }
}

impl Leaf for Locale {
    const EXPECTED: &'static str = "a language tag such as \"pt-BR\"";

    fn parse(text: &str) -> Option<Self> {
        Self::new(text).ok()
    }

    fn show(&self) -> String {
        self.as_str().to_owned()
    }
}

impl Leaf for TextPattern {
    const EXPECTED: &'static str = "a regular expression";

    fn parse(text: &str) -> Option<Self> {
        Self::new(text).ok()
    }

    fn show(&self) -> String {
        self.as_str().to_owned()
    }
}

/// A tag of all metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    /// Letters, digits and `_`.
    pub key: String,
    /// Without control characters.
    pub value: String,
}

/// Bytes of a tag's key, and of its value.
const TAG_BYTES_MAX: usize = 64;

impl Leaf for Tag {
    const EXPECTED: &'static str =
        "KEY=VALUE, such as \"region=eu\": 1 to 64 bytes each, KEY a letter, then letters, digits, `_`, not `time`";

    fn parse(text: &str) -> Option<Self> {
        let (key, value) = text.split_once('=')?;
        let is_size = |text: &str| (1..=TAG_BYTES_MAX).contains(&text.len());
        let valid_key = is_size(key)
            && key.starts_with(|first: char| first.is_ascii_alphabetic())
            && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let valid = valid_key && is_size(value) && !value.chars().any(char::is_control) && key != "time";
        valid.then(|| Self { key: key.to_owned(), value: value.to_owned() })
    }

    fn show(&self) -> String {
        format!("{}={}", self.key, self.value)
    }
}

impl Leaf for OriginPattern {
    const EXPECTED: &'static str = "\"*\", or an origin without a path, such as \"https://example.com\" or \
                                    \"https://example.com:8443\"; its host may begin with \"*.\", as in \
                                    \"https://*.example.com\"";

    fn parse(text: &str) -> Option<Self> {
        Self::new(text)
    }

    fn show(&self) -> String {
        self.as_str().to_owned()
    }
}

/// Ten capital letters and digits: the form of Apple's ids of keys and teams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppleId(pub String);

impl Leaf for AppleId {
    const EXPECTED: &'static str = "10 letters A-Z and digits, as Apple's developer pages show it";

    fn parse(text: &str) -> Option<Self> {
        let valid = text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
        valid.then(|| Self(text.to_owned()))
    }

    fn show(&self) -> String {
        self.0.clone()
    }
}

/// A text that must never be shown. Its `Debug` shows only that there is one.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Leaf for Secret {
    const EXPECTED: &'static str = "1 to 4096 characters without control characters";
    const SECRET: bool = true;

    fn parse(text: &str) -> Option<Self> {
        let valid = !text.is_empty() && text.len() <= 4096 && !text.chars().any(char::is_control);
        valid.then(|| Self(text.to_owned()))
    }

    fn show(&self) -> String {
        "***".to_owned()
    }
}

/// A SHA-256 in 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sha256(pub [u8; 32]);

impl Sha256 {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
        Self(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

impl Leaf for Sha256 {
    const EXPECTED: &'static str = "a SHA-256 in 64 hexadecimal digits";

    fn parse(text: &str) -> Option<Self> {
        HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?.try_into().ok().map(Self)
    }

    fn show(&self) -> String {
        HEXLOWER.encode(&self.0)
    }
}

/// Kinds whose value is one of a few words.
macro_rules! words {
    ($type:ty: $expected:literal, $($word:literal => $value:path),+) => {
        impl Leaf for $type {
            const EXPECTED: &'static str = $expected;

            fn parse(text: &str) -> Option<Self> {
                match text {
                    $($word => Some($value),)+
                    _ => None,
                }
            }

            fn show(&self) -> String {
                match self {
                    $($value => $word,)+
                }
                .to_owned()
            }
        }
    };
}

words!(Interruption: "\"passive\", \"active\", \"time-sensitive\" or \"critical\"", "passive" => Interruption::Passive, "active" => Interruption::Active, "time-sensitive" => Interruption::TimeSensitive, "critical" => Interruption::Critical);

words!(Environment: "\"production\" or \"sandbox\"", "production" => Environment::Production, "sandbox" => Environment::Sandbox);

/// Who is told where a language has no whole translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Everybody, in the next best language.
    Fallback,
    /// Only those whose language has a translation or is the source language.
    Skip,
}

words!(Missing: "\"fallback\" or \"skip\"", "fallback" => Missing::Fallback, "skip" => Missing::Skip);

/// How fast sending begins after a quiet time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ramp {
    /// At the rate that was last sustained.
    None,
    /// At a tenth of that rate, rising to all of it within a minute of sending.
    Minute,
}

words!(Ramp: "\"none\" or \"minute\"", "none" => Ramp::None, "minute" => Ramp::Minute);

words!(Role: "\"viewer\" or \"operator\"", "viewer" => Role::Viewer, "operator" => Role::Operator);

words!(DeltaType: "\"fossil\"", "fossil" => DeltaType::Fossil);

words!(RecoveryMode: "\"stream\" or \"cache\"", "stream" => RecoveryMode::Stream, "cache" => RecoveryMode::Cache);

words!(SlowReaders: "\"disconnect\", \"skip\" or \"latest\"", "disconnect" => SlowReaders::Disconnect, "skip" => SlowReaders::Skip, "latest" => SlowReaders::Latest);

words!(EventChannels: "\"first_subject\", \"all_subjects\" or \"none\"", "first_subject" => EventChannels::FirstSubject, "all_subjects" => EventChannels::AllSubjects, "none" => EventChannels::None);

words!(DataFormat: "\"json\" or \"json_object\"", "json" => DataFormat::Json, "json_object" => DataFormat::JsonObject);

words!(Scope: "\"publish\", \"read\", \"devices\", \"metrics\", \"operate\", \"backup\" or \"audit\"", "publish" => Scope::Publish, "read" => Scope::Read, "devices" => Scope::Devices, "metrics" => Scope::Metrics, "operate" => Scope::Operate, "backup" => Scope::Backup, "audit" => Scope::Audit);

impl From<LogFormat> for tidings_telemetry::log::Format {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

words!(LogFormat: "\"text\" or \"json\"", "text" => LogFormat::Text, "json" => LogFormat::Json);
