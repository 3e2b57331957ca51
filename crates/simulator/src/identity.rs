//! The identity of a simulator: a certificate authority and a server certificate, made at start, and the signing keys
//! that a provider gives to developers. All of them live as long as the simulator.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use jsonwebtoken::DecodingKey;
use rcgen::{
    BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_RSA_SHA256, RsaKeySize, SanType,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::StartError;

/// The authority that a client must trust, and the server's side of TLS.
pub(crate) struct Identity {
    pub(crate) ca_pem: String,
    pub(crate) tls: Arc<ServerConfig>,
}

impl Identity {
    /// Makes an identity for `localhost`, the loopback addresses and `more`.
    pub(crate) fn make(client_ca_pem: Option<&str>, alpn: &[&str], more: &[IpAddr]) -> Result<Self, StartError> {
        let (ca_pem, chain, key) = make_certificates(more).map_err(StartError::Identity)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = match client_ca_pem {
            Some(pem) => make_verifier(pem)?,
            None => WebPkiClientVerifier::no_client_auth(),
        };
        let mut tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_client_cert_verifier(verifier).with_single_cert(vec![chain], key))
            .map_err(StartError::Tls)?;
        tls.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Ok(Self { ca_pem, tls: Arc::new(tls) })
    }
}

/// A P-256 signing key as a `.p8` file, and its public key.
pub(crate) fn make_signing_key() -> Result<(String, DecodingKey), StartError> {
    let signing_key = KeyPair::generate().map_err(StartError::Identity)?; // P-256 by default.
    let public_key = DecodingKey::from_ec_pem(signing_key.public_key_pem().as_bytes()).map_err(StartError::Key)?;
    Ok((signing_key.serialize_pem(), public_key))
}

/// An RSA signing key of 2048 bits in PKCS#8, as Google gives out, and its public key.
pub(crate) fn make_rsa_key() -> Result<(String, DecodingKey), StartError> {
    let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).map_err(StartError::Identity)?;
    let public_key = DecodingKey::from_rsa_pem(key.public_key_pem().as_bytes()).map_err(StartError::Key)?;
    Ok((key.serialize_pem(), public_key))
}

/// Asks each client for a certificate of this authority. A client may have none.
fn make_verifier(ca_pem: &str) -> Result<Arc<dyn ClientCertVerifier>, StartError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        let certificate = certificate.map_err(|_| StartError::ClientAuthority)?;
        roots.add(certificate).map_err(|_| StartError::ClientAuthority)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|_| StartError::ClientAuthority)
}

type Certificates = (String, rustls::pki_types::CertificateDer<'static>, PrivateKeyDer<'static>);

/// Makes a certificate authority: its certificate (PEM), and what issues certificates for it.
pub(crate) fn make_authority(name: &str) -> Result<(String, Issuer<'static, KeyPair>), rcgen::Error> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.distinguished_name.push(rcgen::DnType::CommonName, name);
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate()?;
    let ca_pem = authority.self_signed(&key)?.pem();
    Ok((ca_pem, Issuer::new(authority, key)))
}

fn make_certificates(more: &[IpAddr]) -> Result<Certificates, rcgen::Error> {
    let (ca_pem, issuer) = make_authority("Tidings simulator")?;
    let mut server = CertificateParams::new(vec!["localhost".into()])?;
    let loopback: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    let more = more.iter().copied().filter(|address| !loopback.contains(address));
    server.subject_alt_names.extend(loopback.into_iter().chain(more).map(SanType::IpAddress));
    let server_key = KeyPair::generate()?;
    let certificate = server.signed_by(&server_key, &issuer)?;
    let key = PrivatePkcs8KeyDer::from(server_key.serialize_der());
    Ok((ca_pem, certificate.der().clone(), key.into()))
}
