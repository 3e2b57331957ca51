//! The settings of the console.

use std::net::IpAddr;
use std::time::Duration;

use axum::http::HeaderName;
use tidings_telemetry::memory::Term;

use crate::ports::Role;

/// The samples of the last hour.
const SAMPLE_BYTES: usize = 512 << 10;
/// A session.
const SESSION_BYTES: usize = 1 << 10;

/// The settings of the console.
#[derive(Debug, Clone)]
pub struct ConsoleConfig {
    /// The most sessions; with one more, the one that was quiet for longest ends.
    pub session_count_max: usize,
    /// A session ends this long after its login.
    pub session_ttl: Duration,
    /// A session ends when nobody has used it for this long.
    pub session_idle: Duration,
    /// The header in which a proxy names the user; `None`: everybody logs in.
    pub user_header: Option<HeaderName>,
    /// The header in which a proxy names the role.
    pub role_header: Option<HeaderName>,
    /// The role of users whose proxy names none.
    pub role_default: Role,
    /// The addresses of proxies whose headers are believed.
    pub trusted_proxies: Vec<IpAddr>,
    /// Whether headers are believed from this machine: only if nobody else can reach the listener.
    pub trusts_loopback: bool,
}

impl ConsoleConfig {
    /// What the last hour in numbers and the sessions may take.
    pub fn memory_terms(&self) -> Vec<Term> {
        // Each setting is named, so that a new one is not forgotten here.
        let Self {
            session_count_max,
            session_ttl: _,
            session_idle: _,
            user_header: _,
            role_header: _,
            role_default: _,
            trusted_proxies: _,
            trusts_loopback: _,
        } = self;
        vec![
            Term::standing("console", 1, SAMPLE_BYTES, "console.enabled"),
            Term::standing("logins", *session_count_max, SESSION_BYTES, "console.session_count_max"),
        ]
    }
}
