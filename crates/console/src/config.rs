//! The settings of the console.

use std::net::IpAddr;
use std::time::Duration;

use axum::http::HeaderName;

use crate::ports::Role;

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
