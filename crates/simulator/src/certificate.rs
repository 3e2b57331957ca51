//! Developers' certificates: [`PushAuthority`] issues them as Apple does, and [`ShownCertificate`] reads the one that a
//! client shows.
//!
//! | Apple's extension | Means |
//! |---|---|
//! | 1.2.840.113635.100.6.3.1 | valid for the sandbox |
//! | 1.2.840.113635.100.6.3.2 | valid for production |
//! | 1.2.840.113635.100.6.3.6 | the topics, each followed by a list of its kinds |
//!
//! A certificate with neither of the first two is valid for both. A certificate for a single topic has no list: the topic
//! is the UID of its subject.

use std::fmt;
use std::time::Duration;

use rcgen::{CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, date_time_ymd};
use tidings_types::{Environment, Timestamp};
use x509_parser::asn1_rs::{Any, FromDer as _, Oid, Sequence, Tag};
use x509_parser::certificate::X509Certificate;

use crate::identity::make_authority;
use crate::{Reason, StartError};

const SANDBOX: &[u64] = &[1, 2, 840, 113_635, 100, 6, 3, 1];
const PRODUCTION: &[u64] = &[1, 2, 840, 113_635, 100, 6, 3, 2];
const TOPICS: &[u64] = &[1, 2, 840, 113_635, 100, 6, 3, 6];
const USER_ID: &[u64] = &[0, 9, 2342, 19_200_300, 100, 1, 1];

const DER_NULL: [u8; 2] = [5, 0];
const DER_UTF8_STRING: u8 = 12;
const DER_SEQUENCE: u8 = 48;

/// Issues certificates to developers, as Apple does.
pub struct PushAuthority {
    ca_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A developer's certificate and its private key, PEM.
#[derive(Clone)]
pub struct PushCertificate {
    /// The certificate.
    pub certificate_pem: String,
    /// The private key.
    pub key_pem: String,
}

impl PushAuthority {
    /// Makes an authority with a key of its own.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn new() -> Result<Self, StartError> {
        let (ca_pem, issuer) = make_authority("Tidings simulator, developers").map_err(StartError::Identity)?;
        Ok(Self { ca_pem, issuer })
    }

    /// The authority's certificate, PEM, for [`crate::SimulatorConfig::client_ca_pem`].
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Issues a certificate for these topics. Without an environment it is valid in both. It expires at `ends_at`, in
    /// whole seconds.
    ///
    /// # Errors
    /// When no key can be made.
    ///
    /// # Panics
    /// When `ends_at` is after the year 9999.
    pub fn issue(
        &self,
        topics: &[&str],
        environment: Option<Environment>,
        ends_at: Timestamp,
    ) -> Result<PushCertificate, StartError> {
        let params = || {
            let mut params = CertificateParams::new(Vec::new())?;
            let first = topics.first().copied().unwrap_or_default();
            params.distinguished_name.push(DnType::CommonName, format!("Apple Push Services: {first}"));
            if !topics.is_empty() {
                params.distinguished_name.push(DnType::CustomDnType(USER_ID.to_vec()), first);
            }
            params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(ends_at.as_secs());
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            let mut extend = |oid, content| {
                params.custom_extensions.push(CustomExtension::from_oid_content(oid, content));
            };
            if environment != Some(Environment::Production) {
                extend(SANDBOX, DER_NULL.to_vec());
            }
            if environment != Some(Environment::Sandbox) {
                extend(PRODUCTION, DER_NULL.to_vec());
            }
            if topics.len() > 1 {
                extend(TOPICS, topic_list(topics));
            }
            Ok(params)
        };
        let issue = || {
            let key = KeyPair::generate()?;
            let certificate = params()?.signed_by(&key, &self.issuer)?;
            Ok(PushCertificate { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
        };
        issue().map_err(StartError::Identity)
    }
}

// `Debug` must not show private keys.
impl fmt::Debug for PushAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushAuthority").finish_non_exhaustive()
    }
}

impl fmt::Debug for PushCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushCertificate").finish_non_exhaustive()
    }
}

fn topic_list(topics: &[&str]) -> Vec<u8> {
    let named =
        |topic: &&str| [der(DER_UTF8_STRING, topic.as_bytes()), der(DER_SEQUENCE, &der(DER_UTF8_STRING, b"app"))];
    der(DER_SEQUENCE, &topics.iter().flat_map(named).collect::<Vec<_>>().concat())
}

/// Encodes a value as DER (X.690, 8.1).
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let [.., high, low] = content.len().to_be_bytes();
    let length: &[u8] = match content.len() {
        0..0x80 => &[low],
        0x80..0x100 => &[0x81, low],
        _ => &[0x82, high, low],
    };
    [&[tag], length, content].concat()
}

/// The certificate that a client has shown. TLS has checked its issuer.
pub(crate) struct ShownCertificate {
    /// The topics that the client may push to.
    pub(crate) topics: Vec<String>,
}

impl ShownCertificate {
    /// Reads a certificate, and refuses one that is not valid for this environment.
    pub(crate) fn read(der: &[u8], environment: Environment) -> Result<Self, Reason> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|_| Reason::BadCertificate)?;
        let extension = |oid| {
            let oid = Oid::from(oid).expect("an OID has at least two numbers");
            certificate.get_extension_unique(&oid).ok().flatten()
        };
        let (sandbox, production) = (extension(SANDBOX).is_some(), extension(PRODUCTION).is_some());
        let is_ours = match environment {
            Environment::Sandbox => sandbox,
            Environment::Production => production,
        };
        if (sandbox || production) && !is_ours {
            return Err(Reason::BadCertificateEnvironment);
        }
        let topics = match extension(TOPICS) {
            Some(list) => read_topic_list(list.value).ok_or(Reason::BadCertificate)?,
            None => {
                let user_id = Oid::from(USER_ID).expect("an OID has at least two numbers");
                let mut ids = certificate.subject().iter_by_oid(&user_id);
                ids.next().and_then(|id| id.as_str().ok()).map(ToOwned::to_owned).into_iter().collect()
            }
        };
        if topics.is_empty() { Err(Reason::BadCertificate) } else { Ok(Self { topics }) }
    }
}

fn read_topic_list(der: &[u8]) -> Option<Vec<String>> {
    let (_, list) = Sequence::from_der(der).ok()?;
    let (mut rest, mut topics): (&[u8], _) = (&list.content, Vec::new());
    while !rest.is_empty() {
        let (behind, item) = Any::from_der(rest).ok()?;
        match item.tag() {
            Tag::Utf8String => topics.push(String::from_utf8(item.data.to_vec()).ok()?),
            Tag::Sequence => {} // The kinds of the topic before it.
            _ => return None,
        }
        rest = behind;
    }
    Some(topics)
}
