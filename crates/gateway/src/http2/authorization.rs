//! The authorization headers of one connection's requests, and which request carried which header.
//!
//! A token is renewed while a connection lives (APNs after 50 minutes). An answer that says "expired" may be about the
//! earlier token, and must not count against the newer token, which the provider has not seen yet.

use std::sync::Arc;

use http::HeaderValue;
use tidings_push::apns::ProviderTokens;
use tidings_types::Timestamp;

use super::credential::Credential;
use super::oauth::OAuth;

/// Which of a connection's headers a request carried, in the order in which they were taken up.
pub(crate) type AuthorizationNumber = u32;

/// The header of a connection's requests.
pub(crate) struct Authorization {
    source: Source,
    current: Option<HeaderValue>,
    number: AuthorizationNumber,
}

enum Source {
    /// The connection has shown it.
    Certificate,
    /// We sign.
    Token(Arc<ProviderTokens>),
    /// Somebody fetches it.
    OAuth(Arc<OAuth>),
}

impl Authorization {
    /// Headers by `credential`.
    pub(crate) fn new(credential: &Credential) -> Self {
        let source = match credential {
            Credential::Certificate(_) => Source::Certificate,
            Credential::Token(tokens) => Source::Token(Arc::clone(tokens)),
            Credential::OAuth(oauth) => Source::OAuth(Arc::clone(oauth)),
        };
        Self { source, current: None, number: 0 }
    }

    /// Whether requests may be made now: an access token may have to be fetched first.
    pub(crate) fn is_ready(&self, now: Timestamp) -> bool {
        match &self.source {
            Source::Certificate | Source::Token(_) => true,
            Source::OAuth(oauth) => oauth.authorization(now).is_some(),
        }
    }

    /// The header of the requests to come, and its number.
    pub(crate) fn header(&mut self, now: Timestamp) -> (Option<HeaderValue>, AuthorizationNumber) {
        let header = match &self.source {
            Source::Certificate => None,
            Source::Token(tokens) => Some(tokens.authorization(now)),
            Source::OAuth(oauth) => oauth.authorization(now),
        };
        // None if the token has expired since the last look. Then the earlier header is sent, and the provider decides.
        if header.is_some() && self.current != header {
            self.current = header;
            self.number = self.number.wrapping_add(1);
        }
        (self.current.clone(), self.number)
    }

    /// The provider said that this header has expired. Returns whether there is a newer one, or will be.
    pub(crate) fn on_expired(&mut self, number: AuthorizationNumber, now: Timestamp) -> bool {
        match (&self.source, &self.current) {
            _ if number != self.number => true,
            (Source::Token(tokens), Some(used)) => tokens.on_expired(used, now),
            (Source::OAuth(oauth), Some(used)) => oauth.on_refused(used, now),
            _ => false, // Makes no sense for a request without a token.
        }
    }

    /// Whether a connection keeps the token it began with, so that another one needs another connection.
    pub(crate) fn belongs_to_connection(&self) -> bool {
        !matches!(self.source, Source::OAuth(_))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidings_push::apns::ProviderKey;
    use tidings_push::fcm::oauth::AccessToken;
    use tidings_telemetry::unix_now;

    use super::*;
    use crate::http2::oauth::tests::oauth;

    fn token(name: &'static str, fetched_at: Timestamp) -> AccessToken {
        let expires_at = fetched_at.saturating_add(Duration::from_secs(3600));
        AccessToken { authorization: HeaderValue::from_static(name), fetched_at, expires_at }
    }

    fn after(minutes: u64) -> Timestamp {
        Timestamp(1_800_000_000_000).saturating_add(Duration::from_secs(minutes * 60))
    }

    #[test]
    fn an_answer_about_the_token_before_is_not_held_against_the_new_one() {
        let pem = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let tokens = Arc::new(ProviderTokens::new(ProviderKey::new("ABC123DEFG", "DEF123GHIJ", &pem).unwrap()));
        let mut authorization = Authorization::new(&Credential::Token(tokens));
        let (first, before) = authorization.header(after(0));
        assert_eq!(authorization.header(after(49)), (first.clone(), before));
        let (second, current) = authorization.header(after(50));
        assert!(second != first && current != before);
        assert!(authorization.on_expired(before, after(50)));
        assert_eq!(authorization.header(after(50)), (second.clone(), current), "no third one is made");
        assert!(!authorization.on_expired(current, after(51)), "a fresh one that has expired: a clock is wrong");
        assert!(authorization.on_expired(current, after(71)));
        assert_ne!(authorization.header(after(71)).0, second);
    }

    #[test]
    fn with_a_certificate_there_is_no_header() {
        let mut authorization = Authorization { source: Source::Certificate, current: None, number: 0 };
        assert_eq!(authorization.header(after(0)), (None, 0));
        assert!(!authorization.on_expired(0, after(0)));
    }

    #[test]
    fn many_that_are_refused_have_one_token_fetched() {
        let (oauth, now) = (Arc::new(oauth()), unix_now());
        let old = Timestamp(now.as_millis() - 600_000);
        oauth.begin_refresh().expect("there is none").end(&Ok(token("old", old)));
        let connect = || Authorization::new(&Credential::OAuth(Arc::clone(&oauth)));
        let mut connections: Vec<_> = (0..50).map(|_| connect()).collect();
        let numbers: Vec<_> = connections.iter_mut().map(|it| it.header(now).1).collect();
        let mut changes = oauth.subscribe();
        for (connection, number) in connections.iter_mut().zip(&numbers) {
            assert!((0..3).all(|_| connection.on_expired(*number, now)), "another will be fetched");
            assert!(!connection.is_ready(now));
            assert!(changes.has_changed().unwrap(), "or who fetches would sleep on");
            changes.mark_unchanged();
        }
        let refresh = oauth.begin_refresh().expect("it is due");
        assert!(oauth.begin_refresh().is_none(), "one at a time");
        drop(refresh);
        assert!(changes.has_changed().unwrap(), "another gateway goes on");
        oauth.begin_refresh().expect("nobody fetches").end(&Ok(token("new", now)));
        for (connection, number) in connections.iter_mut().zip(numbers) {
            assert!(connection.is_ready(now) && connection.on_expired(number, now), "a late answer to the old one");
            let (header, number) = connection.header(now);
            assert_eq!(header, Some(HeaderValue::from_static("new")));
            assert!(!connection.on_expired(number, now), "a third one would not help");
        }
        assert!(oauth.begin_refresh().is_none());
    }
}
