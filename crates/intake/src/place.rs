//! What a configuration may say of where messages are. Knows no client of PostgreSQL or NATS, so it is there in every build.

use std::net::{IpAddr, Ipv6Addr};

use http::Uri;

/// Why a server's address is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    /// It has another form.
    #[error("must be nats://HOST:PORT or tls://HOST:PORT")]
    Form,
    /// Configurations are shown, and passwords must not be.
    #[error("must not have a password: use `credentials_file`")]
    Password,
    /// Others could read what goes to the server and back.
    #[error("must be tls:// beyond loopback")]
    PlainText,
}

/// Checks the address of a server of NATS. The port may be missing (4222), and so may `nats://`.
///
/// # Errors
/// If it has another form or a password, or would be spoken to in plain text beyond loopback.
pub fn check_server(text: &str) -> Result<(), ServerError> {
    if text.contains('#') {
        return Err(ServerError::Form); // `Uri` would remove it silently.
    }
    let whole = if text.contains("://") { text.to_owned() } else { format!("nats://{text}") };
    let uri: Uri = whole.parse().map_err(|_| ServerError::Form)?;
    let authority = uri.authority().ok_or(ServerError::Form)?;
    if authority.as_str().contains('@') {
        return Err(ServerError::Password);
    }
    let is_bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
    if !is_bare || !is_host_and_port(authority.host(), authority.as_str()) {
        return Err(ServerError::Form);
    }
    match uri.scheme_str().unwrap_or_default().to_ascii_lowercase().as_str() {
        "tls" => Ok(()),
        "nats" if is_loopback(authority.host()) => Ok(()),
        "nats" => Err(ServerError::PlainText),
        _ => Err(ServerError::Form),
    }
}

/// Whether there is a host, and nothing behind it but perhaps a port.
fn is_host_and_port(host: &str, authority: &str) -> bool {
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok();
    let is_name = match host.strip_prefix('[') {
        Some(literal) => literal.strip_suffix(']').is_some_and(|literal| literal.parse::<Ipv6Addr>().is_ok()),
        None => !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)),
    };
    let rest = authority.strip_prefix(host).unwrap_or(":");
    is_name && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port))
}

/// Whether NATS takes the text as the name of a stream or a consumer.
pub fn is_nats_name(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_graphic() && !b".*>/\\".contains(&byte);
    (1..=255).contains(&text.len()) && text.bytes().all(is_letter)
}

/// Whether the host is this machine.
pub fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Whether the text names a table: an identifier, or two with a dot.
pub fn is_table(text: &str) -> bool {
    text.split('.').count() <= 2 && text.split('.').all(is_identifier)
}

/// Whether the text is an identifier that PostgreSQL takes without quotation marks and does not change.
pub fn is_identifier(text: &str) -> bool {
    let is_start = |first: char| first.is_ascii_lowercase() || first == '_';
    let is_more = |next: char| is_start(next) || next.is_ascii_digit();
    text.len() <= 63 && text.starts_with(is_start) && text.chars().all(is_more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_stays_on_this_machine_and_passwords_in_their_file() {
        assert!(
            ["nats://127.0.0.1:4222", "nats://localhost", "tls://nats.example.com"]
                .iter()
                .all(|it| check_server(it).is_ok())
        );
        let error = |text| check_server(text).unwrap_err();
        assert_eq!(error("nats://nats.example.com:4222"), ServerError::PlainText);
        assert_eq!(error("tls://me:secret@nats.example.com"), ServerError::Password);
        assert_eq!([error(""), error("wss://nats.example.com")], [ServerError::Form, ServerError::Form]);
    }

    #[test]
    fn a_name_has_no_sign_that_means_something_to_nats() {
        assert!(is_nats_name("EVENTS_2"));
        let wrong = ["", "a.b", "a*", "a>", "a b", "a/b", "ä"];
        assert!(!wrong.into_iter().any(is_nats_name) && !is_nats_name(&"a".repeat(256)));
    }

    #[test]
    fn only_plain_names_get_into_a_statement() {
        assert!(["tidings_outbox", "app.outbox_2", "_"].into_iter().all(is_table));
        let refused = ["", "Outbox", "out box", "o;drop table x", "a.b.c", "a.", "2nd", "\"o\"", "o--"];
        assert!(!refused.into_iter().any(is_table));
        assert!(!is_identifier("a.b"));
        assert!(!is_identifier(&"a".repeat(64)));
    }
}
