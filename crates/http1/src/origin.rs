//! The origin of a client's requests: scheme, host and port (RFC 9110, 4.3.1).

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use http::Uri;
use rustls::pki_types::ServerName;

/// A server: `http://host`, `https://host:8443`, `http://[::1]:80`.
///
/// ```
/// use tidings_http1::Origin;
///
/// let origin: Origin = "https://Example.com".parse()?;
/// assert_eq!((origin.host(), origin.port(), origin.is_tls()), ("example.com", 443, true));
/// assert_eq!(Origin::split("http://localhost:8080/hook?of=1")?.1, "/hook?of=1");
/// # Ok::<(), tidings_http1::OriginError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    is_tls: bool,
    /// Without the brackets of an IPv6 address, in lower case.
    host: String,
    port: u16,
}

/// Why a text is not an origin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OriginError {
    /// The text is not a URL (RFC 3986).
    #[error("not a URL")]
    Syntax,
    /// The scheme is missing or is not `http` or `https`.
    #[error("the scheme must be http or https")]
    Scheme,
    /// The host is missing or empty, has something other than an IPv6 address in brackets, has text after the brackets, or
    /// is a name for which no certificate can exist (`https`).
    #[error("the host is missing or invalid")]
    Host,
    /// 0, or more than 65535.
    #[error("the port must be 1 to 65535")]
    Port,
    /// There is `user:password@` (RFC 9110, 4.2.4).
    #[error("user names and passwords are not allowed in a URL")]
    UserInfo,
    /// There is a path or a query.
    #[error("an origin has no path, query or fragment")]
    Path,
    /// There is a fragment. It is never sent to a server.
    #[error("a fragment means nothing to a server")]
    Fragment,
}

impl Origin {
    /// Splits a URL into origin and target. Without a path, the target is `/`.
    ///
    /// # Errors
    ///
    /// Any [`OriginError`] except [`OriginError::Path`].
    pub fn split(url: &str) -> Result<(Self, String), OriginError> {
        if url.contains('#') {
            return Err(OriginError::Fragment); // `Uri` would remove it silently.
        }
        let uri: Uri = url.parse().map_err(|_| OriginError::Syntax)?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(OriginError::Scheme),
        };
        let authority = uri.authority().ok_or(OriginError::Host)?;
        if authority.as_str().contains('@') {
            return Err(OriginError::UserInfo);
        }
        let host = authority.host();
        // `Uri` ignores text between a bracket and the port.
        let is_whole =
            authority.as_str().strip_prefix(host).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'));
        let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = literal.unwrap_or(host);
        let is_wrong = literal.is_some_and(|literal| literal.parse::<Ipv6Addr>().is_err());
        // Over TLS, a certificate must be possible for the host.
        if !is_whole || host.is_empty() || is_wrong || (is_tls && ServerName::try_from(host).is_err()) {
            return Err(OriginError::Host);
        }
        let port = match (authority.port(), authority.port_u16()) {
            (None, _) if authority.as_str().ends_with(':') || has_port(authority.as_str()) => {
                return Err(OriginError::Port);
            }
            (None, _) => default_port(is_tls),
            (Some(_), Some(port)) if port > 0 => port,
            (Some(_), _) => return Err(OriginError::Port),
        };
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        Ok((Self { is_tls, host: host.to_ascii_lowercase(), port }, target))
    }

    /// The name or address, without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; 80 or 443 if the URL has none.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether the scheme is `https`.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// The value of `Host`. It has no port if the port is the scheme's default (RFC 9110, 7.2).
    pub fn authority(&self) -> String {
        let Self { host, port, is_tls } = self;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        if *port == default_port(*is_tls) { host } else { format!("{host}:{port}") }
    }
}

fn default_port(is_tls: bool) -> u16 {
    if is_tls { 443 } else { 80 }
}

/// Whether there is a colon outside of brackets.
fn has_port(authority: &str) -> bool {
    authority.rsplit(']').next().is_some_and(|rest| rest.contains(':'))
}

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        let (origin, target) = Self::split(text)?;
        if target == "/" { Ok(origin) } else { Err(OriginError::Path) }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.is_tls { "https" } else { "http" }, self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        for (text, shown, authority) in [
            ("http://localhost", "http://localhost", "localhost"),
            ("http://localhost:80/", "http://localhost", "localhost"),
            ("http://localhost:443", "http://localhost:443", "localhost:443"),
            ("https://Example.COM:443", "https://example.com", "example.com"),
            ("https://example.com:8443", "https://example.com:8443", "example.com:8443"),
            ("http://[::1]:8080", "http://[::1]:8080", "[::1]:8080"),
            ("http://[2001:db8::1]", "http://[2001:db8::1]", "[2001:db8::1]"),
            ("http://127.0.0.1:65535", "http://127.0.0.1:65535", "127.0.0.1:65535"),
            ("HTTP://a", "http://a", "a"),
            ("https://A_b.example.", "https://a_b.example.", "a_b.example."),
            ("https://192.0.2.1", "https://192.0.2.1", "192.0.2.1"),
            ("https://[::1]:8443", "https://[::1]:8443", "[::1]:8443"),
        ] {
            let origin: Origin = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((origin.to_string().as_str(), origin.authority().as_str()), (shown, authority), "{text}");
        }
        assert_eq!("http://[::1]".parse::<Origin>().unwrap().host(), "::1");
    }

    #[test]
    fn anything_other_than_an_origin_is_refused() {
        for (text, error) in [
            ("", OriginError::Syntax),
            ("localhost", OriginError::Scheme),
            ("/path", OriginError::Scheme),
            ("ftp://a", OriginError::Scheme),
            ("http://[::1]junk", OriginError::Host),
            ("http://[::1]junk:80", OriginError::Host),
            ("http://[::1%25lo]", OriginError::Host),
            ("http://[a]", OriginError::Host),
            ("https://a..b", OriginError::Host),
            ("https://-a", OriginError::Host),
            ("https://*", OriginError::Host),
            ("http://a:0", OriginError::Port),
            ("http://a:65536", OriginError::Port),
            ("http://a:", OriginError::Port),
            ("http://[::1]:", OriginError::Port),
            ("http://user@a", OriginError::UserInfo),
            ("http://user:pass@a", OriginError::UserInfo),
            ("http://a/x", OriginError::Path),
            ("http://a?x", OriginError::Path),
            ("http://a/#x", OriginError::Fragment),
            ("http://a b", OriginError::Syntax),
            ("http://a\r\nb", OriginError::Syntax),
        ] {
            assert_eq!(text.parse::<Origin>(), Err(error), "{text:?}");
        }
    }

    #[test]
    fn a_url_is_split_into_origin_and_target() {
        for (url, target) in
            [("http://a", "/"), ("http://a/", "/"), ("http://a/x/y?z=1", "/x/y?z=1"), ("http://a?z", "/?z")]
        {
            assert_eq!(Origin::split(url).unwrap(), ("http://a".parse().unwrap(), target.to_owned()), "{url}");
        }
    }
}
