//! Who the simulator is: a certificate authority and a server certificate made at start, and the signing key that
//! it would have given to a developer. All of it lives as long as the simulator.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use jsonwebtoken::DecodingKey;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::StartError;

pub(crate) struct Identity {
    pub(crate) ca_pem: String,
    /// The provider's signing key, PKCS#8 PEM: the content of a `.p8` file.
    pub(crate) key_pem: String,
    /// Its public half.
    pub(crate) public_key: DecodingKey,
    pub(crate) tls: Arc<ServerConfig>,
}

impl Identity {
    pub(crate) fn make() -> Result<Self, StartError> {
        let signing_key = KeyPair::generate().map_err(StartError::Identity)?; // P-256 by default.
        let public_key = DecodingKey::from_ec_pem(signing_key.public_key_pem().as_bytes()).map_err(StartError::Key)?;
        let (ca_pem, tls) = make_tls()?;
        Ok(Self { ca_pem, key_pem: signing_key.serialize_pem(), public_key, tls: Arc::new(tls) })
    }
}

fn make_tls() -> Result<(String, ServerConfig), StartError> {
    let (ca_pem, chain, key) = make_certificates().map_err(StartError::Identity)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![chain], key))
        .map_err(StartError::Tls)?;
    tls.alpn_protocols = vec![b"h2".to_vec()];
    Ok((ca_pem, tls))
}

type Certificates = (String, rustls::pki_types::CertificateDer<'static>, PrivateKeyDer<'static>);

fn make_certificates() -> Result<Certificates, rcgen::Error> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.distinguished_name.push(rcgen::DnType::CommonName, "Tidings simulator");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority_key = KeyPair::generate()?;
    let ca_pem = authority.self_signed(&authority_key)?.pem();
    let issuer = Issuer::new(authority, authority_key);

    let mut server = CertificateParams::new(vec!["localhost".into()])?;
    let loopback: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    server.subject_alt_names.extend(loopback.map(SanType::IpAddress));
    let server_key = KeyPair::generate()?;
    let certificate = server.signed_by(&server_key, &issuer)?;
    let key = PrivatePkcs8KeyDer::from(server_key.serialize_der());
    Ok((ca_pem, certificate.der().clone(), key.into()))
}
