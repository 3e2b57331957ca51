//! Which web pages may call the server: patterns for the header `Origin` (RFC 6454, 6.1).

use std::net::Ipv6Addr;

/// What some clients send instead of an origin: pages in a sandbox, and apps whose page is a file.
const OPAQUE: [&str; 2] = ["null", "file://"];

/// `*` for all pages; an origin such as `https://example.com:8443`; or an origin whose host begins with `*.`.
///
/// In `https://*.example.com`, `*` stands for one label or more: `https://a.example.com` and `https://a.b.example.com`
/// match, `https://example.com` does not. Scheme and port must be equal; a port that is not written is the scheme's
/// default. Letter case does not matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginPattern(String);

impl OriginPattern {
    /// Reads a pattern; `None` if it is no pattern.
    pub fn new(text: &str) -> Option<Self> {
        let is_opaque = OPAQUE.iter().any(|known| known.eq_ignore_ascii_case(text));
        let is_origin = || Parts::of(text).is_some_and(|parts| is_host(parts.parent().unwrap_or(parts.host)));
        (text == "*" || is_opaque || is_origin()).then(|| Self(text.to_owned()))
    }

    /// The pattern as it was read.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether pages of this origin, as the header has it, may call.
    pub fn admits(&self, origin: &str) -> bool {
        if self.0 == "*" || self.0.eq_ignore_ascii_case(origin) {
            return true;
        }
        let (Some(ours), Some(theirs)) = (Parts::of(&self.0), Parts::of(origin)) else { return false };
        let is_host_ours = || match ours.parent() {
            Some(parent) => is_below(theirs.host, parent),
            None => ours.host.eq_ignore_ascii_case(theirs.host),
        };
        ours.scheme.eq_ignore_ascii_case(theirs.scheme)
            && ours.port == theirs.port
            && is_host(theirs.host)
            && is_host_ours()
    }
}

/// An origin, its host not yet checked. A port that is the scheme's default is no port.
struct Parts<'a> {
    scheme: &'a str,
    host: &'a str,
    port: Option<u16>,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let (scheme, authority) = text.split_once("://")?;
        let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
        // The colons of an IPv6 address stand in brackets.
        let host_end = authority.find(']').map_or(0, |bracket| bracket + 1);
        let (host, port) = match authority[host_end..].find(':') {
            Some(colon) => (&authority[..host_end + colon], Some(&authority[host_end + colon + 1..])),
            None => (authority, None),
        };
        let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
        let port = match port {
            Some(port) => Some(port.parse::<u16>().ok().filter(|number| *number > 0 && is_port(port))?),
            None => None,
        };
        let default = match scheme.to_ascii_lowercase().as_str() {
            "https" => Some(443),
            "http" => Some(80),
            _ => None,
        };
        is_scheme.then_some(Self { scheme, host, port: port.filter(|port| Some(*port) != default) })
    }

    /// What is behind `*.`, in a pattern that has one.
    fn parent(&self) -> Option<&'a str> {
        self.host.strip_prefix("*.")
    }
}

/// Whether `host` is `parent` with at least one label before it.
fn is_below(host: &str, parent: &str) -> bool {
    let Some(at) = host.len().checked_sub(parent.len() + 1).filter(|at| *at > 0) else { return false };
    host.is_char_boundary(at + 1) && host.as_bytes()[at] == b'.' && host[at + 1..].eq_ignore_ascii_case(parent)
}

fn is_host(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some(address) = address {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    host.len() <= 253 && host.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, origin: &str, expected: bool) {
        let read = OriginPattern::new(pattern).unwrap_or_else(|| panic!("{pattern} is a pattern"));
        assert_eq!(read.admits(origin), expected, "{pattern} and {origin}");
    }

    #[test]
    fn a_pattern_admits_its_origin_in_any_case_and_with_the_default_port() {
        for origin in ["https://example.com", "HTTPS://Example.COM", "https://example.com:443"] {
            check("https://example.com", origin, true);
            check("https://Example.com:443", origin, true);
        }
        check("http://[::1]:8080", "http://[::1]:8080", true);
        check("http://[::1]:8080", "http://[::1]", false);
        check("capacitor://localhost", "capacitor://localhost", true);
        check("null", "null", true);
        check("file://", "file://", true);
        for origin in ["https://example.com", "null", "", "\u{fffd}"] {
            check("*", origin, true);
        }
    }

    #[test]
    fn a_pattern_with_a_star_admits_every_host_below_and_nothing_else() {
        for origin in ["https://a.example.com", "https://A.b.Example.com", "https://xn--bcher-kva.example.com:443"] {
            check("https://*.example.com", origin, true);
        }
        for origin in [
            "https://example.com",
            "https://.example.com",
            "https://a..example.com",
            "https://aexample.com",
            "https://a.example.com.evil.org",
            "https://evil.org/.example.com",
            "https://evil.org#.example.com",
            "https://evil.org?.example.com",
            "https://evil.org:443.example.com",
            "https://user@a.example.com",
            "https://é.example.com",
            "https://a.example.com.",
            "http://a.example.com",
            "wss://a.example.com",
            "https://a.example.com:8443",
            "https://*.example.com:8443",
            "null",
            "",
        ] {
            check("https://*.example.com", origin, false);
        }
        check("https://*.example.com:8443", "https://a.example.com:8443", true);
        check("https://*.example.com:8443", "https://a.example.com", false);
    }

    #[test]
    fn anything_else_is_no_pattern() {
        for text in [
            "",
            "example.com",
            "*.example.com",
            "https://",
            "https://*",
            "https://*.",
            "https://*example.com",
            "https://a.*.example.com",
            "https://*.*.example.com",
            "https://example.*",
            "*://example.com",
            "https://example.com:*",
            "https://example.com:0",
            "https://example.com:+1",
            "https://example.com:70000",
            "https://example.com/",
            "https://example.com/path",
            "https://user@example.com",
            "https://bücher.example",
            "http://[::g]",
        ] {
            assert_eq!(OriginPattern::new(text), None, "{text}");
        }
    }
}
