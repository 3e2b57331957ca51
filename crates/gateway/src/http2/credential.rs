//! The credential of a gateway: the tokens of a signing key, or a certificate (Apple, "Establishing a token-based
//! connection to APNs", "Establishing a certificate-based connection to APNs").
//!
//! A token goes with every request. A certificate is shown once, in the TLS handshake. This module checks that key and
//! certificate belong together, that the certificate has not expired, and which topics it is for, so that the operator
//! learns of a mistake before the provider refuses. It does not check who issued the certificate; the provider does.
//!
//! Topics are in an extension of Apple's, 1.2.840.113635.100.6.3.6: a sequence of names, each followed by a sequence of
//! its kinds. A certificate without it names its one topic as UID of its subject (RFC 4519, 2.39).

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error as TlsError, InconsistentKeys};
use tidings_push::apns::ProviderTokens;
use tidings_types::{AppId, Timestamp};
use x509_parser::asn1_rs::{Any, FromDer as _, Oid, Sequence, Tag, oid};
use x509_parser::certificate::X509Certificate;

use super::oauth::OAuth;

/// The topics a certificate is for.
const TOPICS_EXTENSION: Oid<'static> = oid!(1.2.840.113635.100.6.3.6);
/// `UID` in a subject.
const USER_ID: Oid<'static> = oid!(0.9.2342.19200300.100.1.1);

/// The credential of a gateway.
#[derive(Debug, Clone)]
pub enum Credential {
    /// Signed tokens; to be shared by all gateways with the same key, see [`tidings_push::apns::ProviderKeys`].
    Token(Arc<ProviderTokens>),
    /// A certificate.
    Certificate(Arc<ClientCertificate>),
    /// Access tokens that are fetched.
    OAuth(Arc<OAuth>),
}

impl Credential {
    /// Whether the provider would see no difference.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Token(ours), Self::Token(theirs)) => ours.is_same_key(theirs),
            (Self::Certificate(ours), Self::Certificate(theirs)) => ours.certified().cert == theirs.certified().cert,
            (Self::OAuth(ours), Self::OAuth(theirs)) => ours.is_same(theirs),
            _ => false,
        }
    }

    /// Whether the connection proves it, and not each request.
    /// Until when it can be used; `None`: until somebody takes it back.
    pub(crate) fn ends_at(&self) -> Option<Timestamp> {
        match self {
            Self::Certificate(certificate) => Some(certificate.certificate().ends_at()),
            _ => None,
        }
    }

    pub(crate) fn is_certificate(&self) -> bool {
        matches!(self, Self::Certificate(_))
    }

    /// What fetches tokens, if any are fetched.
    pub(crate) fn oauth(&self) -> Option<&Arc<OAuth>> {
        match self {
            Self::OAuth(oauth) => Some(oauth),
            Self::Token(_) | Self::Certificate(_) => None,
        }
    }
}

/// Why a certificate cannot be used. The error shows nothing of the key.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The text holds no certificate.
    #[error("holds no PEM \"CERTIFICATE\"")]
    NoCertificate,
    /// The certificate is damaged.
    #[error("holds a certificate that cannot be read")]
    Unreadable,
    /// Its time is over.
    #[error("the certificate has ended on {0}")]
    Ended(String),
    /// The text holds no private key.
    #[error("holds no PEM \"PRIVATE KEY\" without a passphrase")]
    NoKey,
    /// The private key is damaged or of a kind that TLS does not use.
    #[error("holds a private key that cannot be used")]
    Key(#[source] TlsError),
    /// The private key is another certificate's.
    #[error("holds a private key that does not belong to the certificate")]
    OtherKey,
}

impl CertificateError {
    /// Whether the private key is at fault, and not the certificate.
    pub fn is_about_key(&self) -> bool {
        matches!(self, Self::NoKey | Self::Key(_) | Self::OtherKey)
    }
}

/// A certificate with its chain and its private key.
pub struct Certificate {
    certified: Arc<CertifiedKey>,
    begins_at: Timestamp,
    ends_at: Timestamp,
    end_date: String,
}

impl Certificate {
    /// Reads the certificate, first of its chain, and its private key; both texts may be the same.
    ///
    /// # Errors
    /// When one is missing or damaged, or they do not belong together.
    pub fn read(chain_pem: &str, key_pem: &str) -> Result<Self, CertificateError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(chain_pem.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|_| CertificateError::Unreadable)?;
        let leaf = chain.first().ok_or(CertificateError::NoCertificate)?;
        let (_, parsed) = X509Certificate::from_der(leaf).map_err(|_| CertificateError::Unreadable)?;
        let validity = parsed.validity();
        let [begins_at, ends_at] = [&validity.not_before, &validity.not_after].map(|at| at.timestamp());
        let [begins_at, ends_at] =
            [begins_at, ends_at].map(|secs| Timestamp(u64::try_from(secs).unwrap_or_default().saturating_mul(1000)));
        let end_date = validity.not_after.to_datetime().date().to_string();
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(|error| match error {
            pem::Error::NoItemsFound => CertificateError::NoKey,
            _ => CertificateError::Key(TlsError::General("not PEM".to_owned())),
        })?;
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let certified = CertifiedKey::from_der(chain, key, &provider).map_err(|error| match error {
            TlsError::InconsistentKeys(InconsistentKeys::KeyMismatch) => CertificateError::OtherKey,
            other => CertificateError::Key(other),
        })?;
        Ok(Self { certified: Arc::new(certified), begins_at, ends_at, end_date })
    }

    /// From when on it can be used.
    pub fn begins_at(&self) -> Timestamp {
        self.begins_at
    }

    /// Until when it can be used.
    pub fn ends_at(&self) -> Timestamp {
        self.ends_at
    }

    /// The day on which it ends, as `2027-03-31` in UTC.
    pub fn end_date(&self) -> &str {
        &self.end_date
    }

    /// What TLS shows and signs with.
    pub fn certified(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.certified)
    }
}

/// A certificate for the provider.
pub struct ClientCertificate {
    certificate: Certificate,
    topics: Vec<String>,
}

impl ClientCertificate {
    /// Reads it as [`Certificate::read`] does.
    ///
    /// # Errors
    /// As [`Certificate::read`], and when the certificate has ended.
    pub fn new(chain_pem: &str, key_pem: &str, now: Timestamp) -> Result<Self, CertificateError> {
        let certificate = Certificate::read(chain_pem, key_pem)?;
        if certificate.ends_at <= now {
            return Err(CertificateError::Ended(certificate.end_date));
        }
        let leaf = certificate.certified.cert.first().ok_or(CertificateError::NoCertificate)?;
        let (_, parsed) = X509Certificate::from_der(leaf).map_err(|_| CertificateError::Unreadable)?;
        let topics = topics(&parsed);
        Ok(Self { certificate, topics })
    }

    /// The certificate itself.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// The topics it is for; empty when it names none.
    pub fn topics(&self) -> &[String] {
        &self.topics
    }

    /// Whether notifications for `app` may be sent with it. If the certificate names no topics, the provider decides.
    pub fn covers(&self, app: &AppId) -> bool {
        self.topics.is_empty() || self.topics.iter().any(|topic| topic == app.as_str())
    }

    pub(crate) fn certified(&self) -> Arc<CertifiedKey> {
        self.certificate.certified()
    }
}

// The key never reaches a log.
impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate")
            .field("topics", &self.topics)
            .field("end_date", &self.certificate.end_date)
            .finish_non_exhaustive()
    }
}

fn topics(certificate: &X509Certificate<'_>) -> Vec<String> {
    let stated = certificate.get_extension_unique(&TOPICS_EXTENSION).ok().flatten();
    if let Some(stated) = stated.and_then(|extension| stated_topics(extension.value)) {
        return stated;
    }
    let ids = certificate.subject().iter_by_oid(&USER_ID);
    ids.filter_map(|id| id.as_str().ok()).map(ToOwned::to_owned).collect()
}

/// The names in Apple's extension; none if it is not a sequence.
fn stated_topics(der: &[u8]) -> Option<Vec<String>> {
    let (_, names) = Sequence::from_der(der).ok()?;
    let mut topics = Vec::new();
    let mut rest: &[u8] = &names.content;
    while !rest.is_empty() {
        let (behind, item) = Any::from_der(rest).ok()?;
        if item.tag() == Tag::Utf8String {
            topics.push(std::str::from_utf8(item.data).ok()?.to_owned());
        }
        rest = behind;
    }
    Some(topics)
}

#[cfg(test)]
mod tests {
    use tidings_simulator::PushAuthority;
    use tidings_types::Environment;

    use super::*;

    const TOPICS: [&str; 2] = ["org.example.scores", "org.example.scores.voip"];

    /// The first second of 2040.
    const YEAR_2040: Timestamp = Timestamp(2_208_988_800_000);
    const BEFORE: Timestamp = Timestamp(YEAR_2040.0 - 1);

    #[test]
    fn a_certificate_tells_its_topics_and_its_end() {
        let authority = PushAuthority::new().unwrap();
        let issued = authority.issue(&TOPICS, None, YEAR_2040).unwrap();
        let both = format!("{}{}", issued.certificate_pem, issued.key_pem);
        let certificate = ClientCertificate::new(&both, &both, BEFORE).unwrap();
        assert_eq!(certificate.topics(), TOPICS);
        let times = certificate.certificate();
        assert_eq!(times.end_date(), "2040-01-01");
        assert!(times.begins_at() < BEFORE && times.ends_at() == YEAR_2040);
        assert!(certificate.covers(&AppId::new("org.example.scores").unwrap()));
        assert!(!certificate.covers(&AppId::new("org.example.other").unwrap()));
        let shown = format!("{certificate:?}");
        assert!(!shown.contains("PRIVATE") && shown.contains("org.example.scores"), "{shown}");
    }

    #[test]
    fn a_certificate_of_one_topic_names_it_in_its_subject() {
        let authority = PushAuthority::new().unwrap();
        let issued = authority.issue(&TOPICS[..1], Some(Environment::Sandbox), YEAR_2040).unwrap();
        let certificate = ClientCertificate::new(&issued.certificate_pem, &issued.key_pem, BEFORE).unwrap();
        assert_eq!(certificate.topics(), &TOPICS[..1]);
    }

    #[test]
    fn what_cannot_work_is_refused_and_named() {
        let authority = PushAuthority::new().unwrap();
        let [ours, other] = [(); 2].map(|()| authority.issue(&TOPICS, None, YEAR_2040).unwrap());
        let error = |chain: &str, key: &str, now| {
            let error = ClientCertificate::new(chain, key, now).unwrap_err();
            (error.to_string(), error.is_about_key())
        };
        let chain = ours.certificate_pem.as_str();
        let begin = "-----BEGIN CERTIFICATE-----";
        assert_eq!(
            error(chain, &ours.key_pem, YEAR_2040),
            ("the certificate has ended on 2040-01-01".to_owned(), false)
        );
        assert_eq!(error("", &ours.key_pem, BEFORE).0, "holds no PEM \"CERTIFICATE\"");
        let damaged = format!("{begin}\nAAAA\n-----END CERTIFICATE-----\n");
        assert_eq!(error(&damaged, &ours.key_pem, BEFORE).0, "holds a certificate that cannot be read");
        let cut = &chain[..chain.len() / 2];
        assert_eq!(error(cut, &ours.key_pem, BEFORE).0, "holds a certificate that cannot be read");
        assert_eq!(
            error(chain, &other.key_pem, BEFORE),
            ("holds a private key that does not belong to the certificate".to_owned(), true)
        );
        assert!(error(chain, chain, BEFORE).0.starts_with("holds no PEM \"PRIVATE KEY\""));
        let no_key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        assert_eq!(error(chain, no_key, BEFORE), ("holds a private key that cannot be used".to_owned(), true));
    }
}
