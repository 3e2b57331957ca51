//! Where Web Push may connect to.
//!
//! An endpoint is a URL that a client has chosen. Without a guard, a client could make this server call any address
//! that it can reach, such as those of its own network. An endpoint must pass three checks:
//!
//! 1. [`Endpoint::parse`]: is it a plain https URL with a host *name*? User-info, literal addresses in any spelling,
//!    backslashes, percent signs and the like in the authority are refused rather than interpreted, since two readers
//!    of one URL may see two hosts in it.
//! 2. [`EndpointRules::check`]: are host and port allowed? Names are compared label by label, so
//!    `fcm.googleapis.com.evil.tld` is not Google's, nor is a path that looks like a host.
//! 3. [`is_public`]: is the address public? It is called for each address to which the name resolves, right before the
//!    connection to this address. So a name that resolves differently the second time does no harm.
//!
//! The driver follows no redirects, so nothing else decides where a request goes.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::Uri;

/// The hosts of the push services of the large browsers.
pub const DEFAULT_HOSTS: &[&str] = &[
    "fcm.googleapis.com",          // Chrome and its derivatives.
    "*.push.services.mozilla.com", // Firefox.
    "*.push.apple.com",            // Safari.
    "*.notify.windows.com",        // Edge.
];

/// The port that is always allowed.
pub const HTTPS_PORT: u16 = 443;

/// RFC 1035, 2.3.4.
const HOST_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// Why an endpoint is not called. The endpoint is not shown, because it is a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Not `https`.
    #[error("the endpoint must begin with https://")]
    Scheme,
    /// A name or password before the host.
    #[error("the endpoint must not hold user-info")]
    UserInfo,
    /// The host is an address in any form.
    #[error("the endpoint's host must be a name, not an address")]
    Address,
    /// The host is not a name.
    #[error("the endpoint's host must be a domain name of letters, digits, hyphens and dots")]
    Host,
    /// The port is invalid.
    #[error("the endpoint's port must be 1 to 65535")]
    Port,
    /// The path is invalid.
    #[error("the endpoint must be a URL without a fragment, of visible ASCII characters")]
    Path,
    /// No rule allows the host.
    #[error("the endpoint's host is not among the allowed ones")]
    ForbiddenHost,
    /// No rule allows the port.
    #[error("the endpoint's port is not among the allowed ones")]
    ForbiddenPort,
}

/// A parsed endpoint.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    origin: String,
    host_bytes: usize,
    port: u16,
    uri: Uri,
}

impl Endpoint {
    /// Parses an endpoint.
    ///
    /// # Errors
    /// When it is not a plain https URL with a host name.
    pub fn parse(url: &str) -> Result<Self, EndpointError> {
        let (scheme, rest) = url.split_at_checked(SCHEME.len()).ok_or(EndpointError::Scheme)?;
        if !scheme.eq_ignore_ascii_case(SCHEME) {
            return Err(EndpointError::Scheme);
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (host, port) = host_and_port(authority)?;
        if path.contains('#') || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(EndpointError::Path);
        }
        let origin = match port {
            HTTPS_PORT => format!("{SCHEME}{host}"),
            port => format!("{SCHEME}{host}:{port}"),
        };
        let slash = if path.starts_with('/') { "" } else { "/" };
        let uri = format!("{origin}{slash}{path}").parse().map_err(|_| EndpointError::Path)?;
        Ok(Self { origin, host_bytes: host.len(), port, uri })
    }

    /// Scheme, host and port, in lower case and without the usual port. VAPID tokens and connections belong to an origin.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The host, in lower case and without a final dot.
    pub fn host(&self) -> &str {
        &self.origin[SCHEME.len()..SCHEME.len() + self.host_bytes]
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The whole URL, for the request.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }
}

const SCHEME: &str = "https://";

// Endpoints never reach a log; their origins may.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({})", self.origin)
    }
}

/// The host in its canonical form, and the port.
fn host_and_port(authority: &str) -> Result<(String, u16), EndpointError> {
    if authority.contains('@') {
        return Err(EndpointError::UserInfo);
    }
    if authority.starts_with('[') {
        return Err(EndpointError::Address);
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, read_port(port)?),
        None => (authority, HTTPS_PORT),
    };
    Ok((read_host(host)?, port))
}

fn read_port(text: &str) -> Result<u16, EndpointError> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_number && *port > 0).ok_or(EndpointError::Port)
}

fn read_host(text: &str) -> Result<String, EndpointError> {
    let host = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    if host.len() > HOST_BYTES_MAX || !host.split('.').all(is_label) {
        return Err(EndpointError::Host);
    }
    // As in browsers (WHATWG URL, "ends in a number"): 127.1, 0177.0.0.1, 2130706433 and 0x7f.1 are addresses.
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_hexadecimal = last.strip_prefix("0x").is_some_and(|it| it.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if is_hexadecimal || last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(EndpointError::Address);
    }
    Ok(host)
}

fn is_label(label: &str) -> bool {
    (1..=LABEL_BYTES_MAX).contains(&label.len())
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// The rules for allowed endpoints: immutable, made from the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointRules {
    hosts: Vec<HostRule>,
    ports: BTreeSet<u16>,
    admits_private: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostRule {
    Exactly(String),
    /// With the dot before it.
    Below(String),
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(name) => f.write_str(name),
            Self::Below(suffix) => write!(f, "*{suffix}"),
        }
    }
}

impl HostRule {
    /// Whether it allows this host. Case is ignored.
    fn admits(&self, host: &[u8]) -> bool {
        match self {
            Self::Exactly(name) => host.eq_ignore_ascii_case(name.as_bytes()),
            // The suffix begins with a dot, so whole labels are compared.
            Self::Below(suffix) => {
                let start = host.len().checked_sub(suffix.len());
                start.is_some_and(|start| host[start..].eq_ignore_ascii_case(suffix.as_bytes()))
            }
        }
    }
}

/// A rule is not a host name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a host must be a domain name, or *. and one for all names below it, got {0:?}")]
pub struct HostRuleError(pub String);

impl EndpointRules {
    /// Rules that allow these hosts, each as `name` or `*.name` (every name below it, but not the name itself), on port 443
    /// and on these other ports.
    ///
    /// # Errors
    /// When a host is not a domain name.
    pub fn new<'a>(
        hosts: impl IntoIterator<Item = &'a str>,
        ports: impl IntoIterator<Item = u16>,
    ) -> Result<Self, HostRuleError> {
        let rule = |text: &str| {
            let read = |name: &str| read_host(name).map_err(|_| HostRuleError(text.chars().take(64).collect()));
            Ok(match text.strip_prefix("*.") {
                Some(name) => HostRule::Below(format!(".{}", read(name)?)),
                None => HostRule::Exactly(read(text)?),
            })
        };
        let hosts = hosts.into_iter().map(rule).collect::<Result<_, _>>()?;
        let ports = BTreeSet::from_iter(ports.into_iter().chain([HTTPS_PORT]));
        Ok(Self { hosts, ports, admits_private: false })
    }

    /// The same rules, but addresses need not be public. For tests and development only: if the host rules allow a name that
    /// a client controls, this client can make the server call any reachable address on any allowed port.
    pub fn admitting_private(self) -> Self {
        Self { admits_private: true, ..self }
    }

    /// Whether the addresses need not be public.
    pub fn admits_private(&self) -> bool {
        self.admits_private
    }

    /// Checks that this endpoint's host and port are allowed.
    ///
    /// # Errors
    /// When they are not.
    pub fn check(&self, endpoint: &Endpoint) -> Result<(), EndpointError> {
        if !self.hosts.iter().any(|rule| rule.admits(endpoint.host().as_bytes())) {
            return Err(EndpointError::ForbiddenHost);
        }
        if !self.ports.contains(&endpoint.port) {
            return Err(EndpointError::ForbiddenPort);
        }
        Ok(())
    }

    /// Splits the rules: one result per host rule, the narrower ones first, each with its form in a configuration. With
    /// them, the connections to each service can be kept apart.
    pub fn by_host(&self) -> Vec<(String, Self)> {
        let mut hosts = self.hosts.clone();
        hosts.sort_by_key(|rule| match rule {
            HostRule::Exactly(name) => (None, name.clone()),
            HostRule::Below(suffix) => (Some(Reverse(suffix.len())), suffix.clone()),
        });
        hosts.dedup();
        hosts.into_iter().map(|rule| (rule.to_string(), Self { hosts: vec![rule], ..self.clone() })).collect()
    }

    /// How many origins these rules allow; `None` if they allow all names below a domain, because then there is no limit.
    pub fn origin_count_max(&self) -> Option<usize> {
        let is_one = |rule: &HostRule| matches!(rule, HostRule::Exactly(_));
        self.hosts.iter().all(is_one).then_some(self.hosts.len() * self.ports.len())
    }

    /// Whether these rules allow the host of this endpoint. It is fast and does not validate the endpoint: use it only to
    /// choose among rules, and [`Self::check`] to decide whether an endpoint may be called.
    pub fn covers(&self, endpoint: &[u8]) -> bool {
        let Some((scheme, rest)) = endpoint.split_at_checked(SCHEME.len()) else { return false };
        let end = rest.iter().position(|byte| b":/?#".contains(byte)).unwrap_or(rest.len());
        let host = rest[..end].strip_suffix(b".").unwrap_or(&rest[..end]);
        scheme.eq_ignore_ascii_case(SCHEME.as_bytes()) && self.hosts.iter().any(|rule| rule.admits(host))
    }

    /// Whether the server may connect to this address of a host.
    pub fn admits_address(&self, address: IpAddr) -> bool {
        self.admits_private || is_public(address)
    }
}

/// Whether an address belongs to the public internet, by the registries of special-purpose addresses (IANA; RFC 6890). All
/// reserved addresses are not public: this machine, private and shared networks, link-local, multicast, documentation,
/// benchmarks, and IPv6 addresses that contain an IPv4 address (mapped, compatible, NAT64, 6to4, Teredo).
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    const SPECIAL: &[([u8; 4], u32)] = &[
        ([0, 0, 0, 0], 8),       // This network.
        ([10, 0, 0, 0], 8),      // Private.
        ([100, 64, 0, 0], 10),   // Shared by a provider's customers.
        ([127, 0, 0, 0], 8),     // This machine.
        ([169, 254, 0, 0], 16),  // Link-local, and the metadata of clouds.
        ([172, 16, 0, 0], 12),   // Private.
        ([192, 0, 0, 0], 24),    // Protocols.
        ([192, 0, 2, 0], 24),    // Documentation.
        ([192, 88, 99, 0], 24),  // 6to4 relays.
        ([192, 168, 0, 0], 16),  // Private.
        ([198, 18, 0, 0], 15),   // Benchmarks.
        ([198, 51, 100, 0], 24), // Documentation.
        ([203, 0, 113, 0], 24),  // Documentation.
        ([224, 0, 0, 0], 4),     // Groups.
        ([240, 0, 0, 0], 4),     // Reserved, and broadcast.
    ];
    let is_in = |&(net, length): &([u8; 4], u32)| (address.to_bits() ^ u32::from_be_bytes(net)) >> (32 - length) == 0;
    !SPECIAL.iter().any(is_in)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    const GLOBAL_UNICAST: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
    const SPECIAL: &[(Ipv6Addr, u32)] = &[
        (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // Protocols: Teredo, benchmarks, ORCHID and others.
        (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // Documentation.
        (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16), // 6to4.
        (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // Documentation.
    ];
    let is_in = |&(net, length): &(Ipv6Addr, u32)| (address.to_bits() ^ net.to_bits()) >> (128 - length) == 0;
    is_in(&GLOBAL_UNICAST) && !SPECIAL.iter().any(is_in)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules() -> EndpointRules {
        EndpointRules::new(DEFAULT_HOSTS.iter().copied(), []).unwrap()
    }

    fn verdict(url: &str) -> Result<(), EndpointError> {
        rules().check(&Endpoint::parse(url)?)
    }

    #[test]
    fn the_browsers_endpoints_are_asked() {
        for (url, origin) in [
            ("https://fcm.googleapis.com/fcm/send/abc:def", "https://fcm.googleapis.com"),
            ("https://fcm.googleapis.com:443/wp/abc", "https://fcm.googleapis.com"),
            ("https://FCM.GoogleAPIs.com./wp/abc?x=1", "https://fcm.googleapis.com"),
            ("https://updates.push.services.mozilla.com/wpush/v2/abc", "https://updates.push.services.mozilla.com"),
            ("https://web.push.apple.com/abc", "https://web.push.apple.com"),
            ("https://db5p.notify.windows.com/w/?token=abc%2b", "https://db5p.notify.windows.com"),
        ] {
            assert_eq!(verdict(url), Ok(()), "{url}");
            assert_eq!(Endpoint::parse(url).unwrap().origin(), origin);
        }
        let endpoint = Endpoint::parse("HTTPS://Push.Example:8443?x").unwrap();
        assert_eq!((endpoint.host(), endpoint.port()), ("push.example", 8443));
        assert_eq!(endpoint.uri(), "https://push.example:8443/?x");
        assert_eq!(format!("{endpoint:?}"), "Endpoint(https://push.example:8443)");
    }

    #[test]
    fn each_host_has_rules_of_its_own_and_the_narrowest_come_first() {
        let hosts = ["*.example", "*.b.example", "a.b.example", "*.example", "z.example"];
        let rules = EndpointRules::new(hosts, [8443]).unwrap();
        let all = rules.by_host();
        let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a.b.example", "z.example", "*.b.example", "*.example"]);
        let first = |endpoint: &str| all.iter().position(|(_, rules)| rules.covers(endpoint.as_bytes()));
        assert_eq!(first("https://a.b.example/x"), Some(0));
        assert_eq!(first("HTTPS://Z.Example.:8443/x"), Some(1));
        assert_eq!(first("https://y.b.example?x"), Some(2));
        assert_eq!(first("https://x.example"), Some(3));
        for url in
            ["https://example/x", "https://aexample", "http://x.example", "https://u@x.example.evil/", "", "https"]
        {
            assert_eq!(first(url), None, "{url}");
        }
        let counts: Vec<Option<usize>> = all.iter().map(|(_, rules)| rules.origin_count_max()).collect();
        assert_eq!(counts, [Some(2), Some(2), None, None], "two ports");
        let endpoint = Endpoint::parse("https://y.b.example:8443/x").unwrap();
        assert_eq!((all[2].1.check(&endpoint), all[0].1.check(&endpoint)), (Ok(()), Err(EndpointError::ForbiddenHost)));
    }

    #[test]
    fn what_is_no_plain_https_url_with_a_name_is_refused() {
        use EndpointError as E;
        for (url, error) in [
            ("http://fcm.googleapis.com/x", E::Scheme),
            ("ftp://fcm.googleapis.com/x", E::Scheme),
            ("https:/fcm.googleapis.com/x", E::Scheme),
            ("//fcm.googleapis.com/x", E::Scheme),
            ("", E::Scheme),
            ("https://é", E::Host),
            ("https://fcm.googleapis.com@evil.tld/", E::UserInfo),
            ("https://a:b@fcm.googleapis.com/", E::UserInfo),
            ("https://@fcm.googleapis.com/", E::UserInfo),
            ("https://127.0.0.1/", E::Address),
            ("https://127.0.0.1./", E::Address),
            ("https://127.1/", E::Address),
            ("https://0177.0.0.1/", E::Address),
            ("https://2130706433/", E::Address),
            ("https://0x7f000001/", E::Address),
            ("https://0x7f.1/", E::Address),
            ("https://a.0x/", E::Address),
            ("https://[::1]/", E::Address),
            ("https://[::ffff:10.0.0.1]:443/", E::Address),
            ("https://169.254.169.254/latest/meta-data", E::Address),
            ("https://", E::Host),
            ("https:///x", E::Host),
            ("https://./", E::Host),
            ("https://fcm.googleapis.com../", E::Host),
            ("https://fcm..googleapis.com/", E::Host),
            ("https://-fcm.googleapis.com/", E::Host),
            ("https://fcm%2egoogleapis.com/", E::Host),
            (r"https://evil.tld\.fcm.googleapis.com/", E::Host),
            ("https://evil.tld\t.fcm.googleapis.com/", E::Host),
            ("https://fcm_x.googleapis.com/", E::Host),
            ("https://fcm.googleapis.com:/", E::Port),
            ("https://fcm.googleapis.com:0/", E::Port),
            ("https://fcm.googleapis.com:65536/", E::Port),
            ("https://fcm.googleapis.com:+443/", E::Port),
            ("https://fcm.googleapis.com:443:443/", E::Port),
            ("https://fcm.googleapis.com/#x", E::Path),
            ("https://fcm.googleapis.com#@evil.tld/", E::Path),
            ("https://fcm.googleapis.com/a b", E::Path),
            ("https://fcm.googleapis.com/a\r\nHost: x", E::Path),
        ] {
            assert_eq!(Endpoint::parse(url).map(|_| ()), Err(error), "{url}");
        }
        let long = format!("https://{}fcm.googleapis.com/", "a.".repeat(120));
        assert_eq!(Endpoint::parse(&long).map(|_| ()), Err(EndpointError::Host));
    }

    #[test]
    fn hosts_are_compared_label_by_label() {
        use EndpointError as E;
        for (url, error) in [
            ("https://fcm.googleapis.com.evil.tld/", E::ForbiddenHost),
            ("https://evil.tld/https://fcm.googleapis.com/", E::ForbiddenHost),
            ("https://evil.tld/?x=.push.apple.com", E::ForbiddenHost),
            ("https://evilfcm.googleapis.com/", E::ForbiddenHost),
            ("https://x.fcm.googleapis.com/", E::ForbiddenHost),
            ("https://googleapis.com/", E::ForbiddenHost),
            ("https://push.apple.com/", E::ForbiddenHost),
            ("https://evilpush.apple.com/", E::ForbiddenHost),
            ("https://notify.windows.com.evil.tld/", E::ForbiddenHost),
            ("https://xn--fcm-google.com/", E::ForbiddenHost),
            ("https://localhost/", E::ForbiddenHost),
            ("https://fcm.googleapis.com:8443/", E::ForbiddenPort),
            ("https://fcm.googleapis.com:22/", E::ForbiddenPort),
        ] {
            assert_eq!(verdict(url), Err(error), "{url}");
        }
        let own = EndpointRules::new(["Push.Example.", "*.xn--bcher-kva.example"], [8443]).unwrap();
        for (url, admitted) in [
            ("https://push.example:8443/", true),
            ("https://a.b.XN--BCHER-kva.example/", true),
            ("https://xn--bcher-kva.example/", false),
            ("https://push.example:8444/", false),
        ] {
            assert_eq!(own.check(&Endpoint::parse(url).unwrap()).is_ok(), admitted, "{url}");
        }
        for rule in ["", "*", "*.", "a.*.b", "10.0.0.1", "https://a.b", "a.b:443"] {
            assert_eq!(EndpointRules::new([rule], []), Err(HostRuleError(rule.to_owned())));
        }
    }

    #[test]
    fn only_addresses_of_the_public_internet_are_connected_to() {
        for address in [
            "127.0.0.1",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.127.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "198.51.100.7",
            "203.0.113.9",
            "192.88.99.1",
            "198.18.0.1",
            "198.19.255.255",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "::ffff:8.8.8.8",
            "::8.8.8.8",
            "64:ff9b::8.8.8.8",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:0a00:0001::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "4000::1",
        ] {
            let address = address.parse().unwrap();
            assert!(!is_public(address), "{address}");
            assert!(!rules().admits_address(address) && rules().admitting_private().admits_address(address));
        }
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2003::1",
            "2606:4700::1111",
            "2a00:1450::1",
            "3ffe::1",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    proptest! {
        /// The HTTP library reads the same host and port in every accepted endpoint.
        #[test]
        fn two_readers_of_an_endpoint_see_one_host(
            authority in r"[a-zA-Z0-9@:.\[\]%\\ _-]{0,24}", path in r"[/?#a-z@:.\\]{0,8}"
        ) {
            let url = format!("https://{authority}{path}");
            if let Ok(endpoint) = Endpoint::parse(&url) {
                prop_assert_eq!(endpoint.uri().host(), Some(endpoint.host()));
                prop_assert_eq!(endpoint.uri().port_u16().unwrap_or(443), endpoint.port());
                let read_again: Uri = url.parse().unwrap();
                let host = read_again.host().unwrap().to_ascii_lowercase();
                prop_assert_eq!(host.trim_end_matches('.'), endpoint.host());
                prop_assert!(Endpoint::parse(&endpoint.uri().to_string()).as_ref() == Ok(&endpoint));
            }
        }

        /// An IPv4 address in an IPv6 address, in any form, is never public.
        #[test]
        fn an_address_in_another_is_no_way_around(bits: u32) {
            let inner = Ipv4Addr::from_bits(bits);
            prop_assert!(!is_public(inner.to_ipv6_mapped().into()));
            prop_assert!(!is_public(inner.to_ipv6_compatible().into()));
            let (nat64, six_to_four) = (0x64_ff9b << 96 | u128::from(bits), 0x2002 << 112 | u128::from(bits) << 80);
            prop_assert!(!is_public(Ipv6Addr::from_bits(nat64).into()));
            prop_assert!(!is_public(Ipv6Addr::from_bits(six_to_four).into()));
        }
    }
}
