//! Each kind of key and each algorithm; keys that are for something else; JWKS documents, and keys that come and go.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair as _, RsaKeyPair, RsaPublicKeyComponents,
};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};

use super::*;

/// A private key with its public half, as its owner has them.
struct Pair {
    algorithms: &'static [Algorithm],
    private: EncodingKey,
    public_pem: String,
    jwk: Value,
}

/// Two of each kind.
static PAIRS: LazyLock<Vec<Pair>> =
    LazyLock::new(|| (0..2).flat_map(|_| [rsa(), ec(Algorithm::ES256), ec(Algorithm::ES384), ed()]).collect());

fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", BASE64_STANDARD.encode(der))
}

fn text(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

fn rsa() -> Pair {
    let pair = aws_lc_rs::rsa::KeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
    let private = AsDer::<aws_lc_rs::encoding::Pkcs8V1Der<'_>>::as_der(&pair).unwrap();
    let public: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
    let RsaPublicKeyComponents { n, e } = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public_key());
    Pair {
        algorithms: &[
            Algorithm::RS256,
            Algorithm::RS384,
            Algorithm::RS512,
            Algorithm::PS256,
            Algorithm::PS384,
            Algorithm::PS512,
        ],
        private: EncodingKey::from_rsa_pem(pem("PRIVATE KEY", private.as_ref()).as_bytes()).unwrap(),
        public_pem: pem("PUBLIC KEY", public.as_ref()),
        jwk: json!({"kty": "RSA", "n": text(&n), "e": text(&e), "use": "sig"}),
    }
}

fn ec(algorithm: Algorithm) -> Pair {
    let (algorithms, signing, curve): (&'static [Algorithm], &'static EcdsaSigningAlgorithm, _) = match algorithm {
        Algorithm::ES256 => (&[Algorithm::ES256], &ECDSA_P256_SHA256_FIXED_SIGNING, "P-256"),
        _ => (&[Algorithm::ES384], &ECDSA_P384_SHA384_FIXED_SIGNING, "P-384"),
    };
    let private = EcdsaKeyPair::generate_pkcs8(signing, &SystemRandom::new()).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(signing, private.as_ref()).unwrap();
    let public: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
    let (x, y) = pair.public_key().as_ref()[1..].split_at((pair.public_key().as_ref().len() - 1) / 2);
    Pair {
        algorithms,
        private: EncodingKey::from_ec_der(private.as_ref()),
        public_pem: pem("PUBLIC KEY", public.as_ref()),
        jwk: json!({"kty": "EC", "crv": curve, "x": text(x), "y": text(y), "key_ops": ["verify"]}),
    }
}

fn ed() -> Pair {
    let private = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let pair = Ed25519KeyPair::from_pkcs8(private.as_ref()).unwrap();
    let public: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
    Pair {
        algorithms: &[Algorithm::EdDSA],
        private: EncodingKey::from_ed_der(private.as_ref()),
        public_pem: pem("PUBLIC KEY", public.as_ref()),
        jwk: json!({"kty": "OKP", "crv": "Ed25519", "x": text(pair.public_key().as_ref()), "alg": "EdDSA"}),
    }
}

impl Pair {
    fn signed(&self, algorithm: Algorithm, id: Option<&str>) -> Token {
        let header = Header { kid: id.map(str::to_owned), ..Header::new(algorithm) };
        Token::from(&*jsonwebtoken::encode(&header, &json!({"sub": "42"}), &self.private).unwrap())
    }

    fn named(&self, id: &str) -> Value {
        let mut jwk = self.jwk.clone();
        jwk["kid"] = json!(id);
        jwk
    }
}

fn accepting(keys: Vec<TokenKey>) -> TokenVerifier {
    TokenVerifier::with(TokenChecks { keys, ..TokenChecks::default() }, None)
}

fn jwks(keys: &[Value]) -> Result<Vec<TokenKey>, JwksError> {
    read_jwks(json!({ "keys": keys }).to_string().as_bytes())
}

fn fault(verifier: &TokenVerifier, token: &Token) -> Option<TokenError> {
    verifier.verify_connection(token, NOW).err()
}

#[test]
fn a_token_is_good_for_its_own_key_and_for_no_other() {
    for (signer, pair) in PAIRS.iter().enumerate() {
        for (algorithm, (holder, other)) in
            pair.algorithms.iter().flat_map(|algorithm| PAIRS.iter().enumerate().map(move |other| (*algorithm, other)))
        {
            let pem = TokenKey::public_pem(&other.public_pem).unwrap();
            let jwk = jwks(std::slice::from_ref(&other.jwk)).unwrap().remove(0);
            for key in [pem, jwk] {
                let fault = fault(&accepting(vec![key]), &pair.signed(algorithm, None));
                assert_eq!(fault.is_none(), signer == holder, "{algorithm:?} {signer} {holder}: {fault:?}");
            }
        }
    }
    let all = accepting(PAIRS.iter().map(|pair| TokenKey::public_pem(&pair.public_pem).unwrap()).collect());
    assert!(PAIRS.iter().all(|pair| fault(&all, &pair.signed(pair.algorithms[0], Some("any"))).is_none()));
}

#[test]
fn no_algorithm_turns_a_public_key_into_a_secret() {
    for pair in PAIRS.iter().take(4) {
        let verifier = accepting(vec![TokenKey::public_pem(&pair.public_pem).unwrap()]);
        let der = pair.public_pem.lines().nth(1).unwrap();
        let der = BASE64_STANDARD.decode(der).unwrap();
        for secret in [pair.public_pem.as_bytes(), pair.public_pem.trim_end().as_bytes(), &der] {
            for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
                let key = EncodingKey::from_secret(secret);
                let token = jsonwebtoken::encode(&Header::new(algorithm), &json!({"sub": "42"}), &key).unwrap();
                let refused = fault(&verifier, &Token::from(&*token));
                assert_eq!(refused, Some(TokenError::Invalid("no configured key is for its algorithm")));
            }
        }
        // The signature is right; the header says another algorithm, or none.
        let good = pair.signed(pair.algorithms[0], None);
        let (_, rest) = good.as_str().split_once('.').unwrap();
        for name in ["none", "None", "HS256", "RS384", "ES384", "PS256", "ES512", "EdDSA", "Ed25519"] {
            let header = text(json!({"alg": name, "typ": "JWT"}).to_string().as_bytes());
            if !pair.algorithms.iter().any(|algorithm| format!("{algorithm:?}") == name) {
                assert!(fault(&verifier, &Token::from(&*format!("{header}.{rest}"))).is_some(), "{name}");
                let unsigned = format!("{header}.{}.", rest.split_once('.').unwrap().0);
                assert!(fault(&verifier, &Token::from(&*unsigned)).is_some(), "{name}, unsigned");
            }
        }
    }
}

#[test]
fn a_key_inside_the_token_is_never_used() {
    let (ours, theirs) = (&PAIRS[1], &PAIRS[5]);
    let verifier = accepting(vec![TokenKey::public_pem(&ours.public_pem).unwrap()]);
    let header = Header {
        jwk: Some(serde_json::from_value(theirs.jwk.clone()).unwrap()),
        jku: Some("https://attacker.example/keys".to_owned()),
        x5u: Some("https://attacker.example/chain".to_owned()),
        ..Header::new(Algorithm::ES256)
    };
    let token = jsonwebtoken::encode(&header, &json!({"sub": "42"}), &theirs.private).unwrap();
    assert_eq!(fault(&verifier, &Token::from(&*token)), Some(TokenError::Invalid(UNSIGNED)));
}

#[test]
fn a_previous_secret_is_good_until_its_end() {
    let keys = |until| vec![TokenKey::secret(&secret("current")), TokenKey::secret(&secret("previous")).until(until)];
    let token = signed(Algorithm::HS512, "previous", &json!({}));
    assert_eq!(fault(&accepting(keys(Timestamp(NOW.0 + 1))), &token), None);
    assert!(matches!(fault(&accepting(keys(NOW)), &token), Some(TokenError::Invalid(_))));
    assert_eq!(fault(&accepting(keys(NOW)), &signed(Algorithm::HS512, "current", &json!({}))), None);
}

#[test]
fn a_signer_signs_with_algorithms_of_its_key_only() {
    let secret = secret("current");
    for name in ["RS256", "ES256", "ES512", "none", ""] {
        assert_eq!(TokenSigner::secret(&secret, Some(name)).err(), Some(SigningKeyError::Algorithm), "{name}");
    }
    assert_eq!(TokenSigner::private_pem("rubbish", None).err(), Some(SigningKeyError::Key));
    assert_eq!(TokenSigner::private_pem(&PAIRS[1].public_pem, None).err(), Some(SigningKeyError::Key));
    let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, &SystemRandom::new()).unwrap();
    let key = pem("PRIVATE KEY", key.as_ref());
    assert_eq!(TokenSigner::private_pem(&key, None).unwrap().algorithm, Algorithm::ES384);
    assert_eq!(TokenSigner::private_pem(&key, Some("ES256")).err(), Some(SigningKeyError::Algorithm));
}

#[test]
fn a_text_that_holds_no_public_key_is_refused() {
    let pair = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    assert_eq!(TokenKey::public_pem(&pem("PRIVATE KEY", pair.as_ref())).err(), Some(PublicKeyError::Private));
    let short = RsaKeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
    let pkcs1 = short.public_key().as_ref();
    assert!(TokenKey::public_pem(&pem("RSA PUBLIC KEY", pkcs1)).is_ok(), "PKCS#1 is as good as SPKI");
    let rubbish = [
        String::new(),
        "ssh-ed25519 AAAA".to_owned(),
        pem("PUBLIC KEY", b"rubbish"),
        pem("CERTIFICATE", pkcs1),
        PAIRS[1].public_pem.replace("PUBLIC KEY", "CERTIFICATE"),
        PAIRS[1].public_pem.replace('A', "B"),
    ];
    for text in rubbish {
        assert_eq!(TokenKey::public_pem(&text).err(), Some(PublicKeyError::Unknown), "{text}");
    }
}

#[test]
fn keys_of_a_document_that_are_for_something_else_are_skipped() {
    let [rsa, p256, ..] = &PAIRS[..] else { unreachable!() };
    let with = |jwk: &Value, name: &str, value: Value| {
        let mut jwk = jwk.clone();
        jwk[name] = value;
        jwk
    };
    let skipped = [
        json!({"kty": "oct", "k": "c2VjcmV0"}),
        json!({"kty": "new"}),
        json!({"kty": "RSA"}),
        json!("rubbish"),
        with(&rsa.jwk, "use", json!("enc")),
        with(&rsa.jwk, "key_ops", json!(["encrypt"])),
        with(&rsa.jwk, "alg", json!("ES256")),
        with(&rsa.jwk, "alg", json!("HS256")),
        with(&rsa.jwk, "alg", json!("RSA-OAEP")),
        with(&rsa.jwk, "n", json!(text(&[0xff; 128]))), // 1024 bits.
        with(&rsa.jwk, "n", json!(text(&[0xff; 2048]))),
        with(&rsa.jwk, "e", json!("AQ")), // 1: every signature would be its own message.
        with(&rsa.jwk, "e", json!("")),
        with(&rsa.jwk, "kid", json!("x".repeat(257))),
        with(&p256.jwk, "crv", json!("P-521")),
        with(&p256.jwk, "crv", json!("P-384")),
        with(&p256.jwk, "x", json!(text(&[1; 32]))), // Not on the curve.
        with(&p256.jwk, "y", json!("%")),
        json!({"kty": "OKP", "crv": "Ed448", "x": text(&[0; 57])}),
        json!({"kty": "OKP", "crv": "Ed25519", "x": text(&[0; 31])}),
    ];
    for jwk in &skipped {
        assert_eq!(jwks(std::slice::from_ref(jwk)).err(), Some(JwksError::Empty), "{jwk}");
    }
    assert_eq!(jwks(&[&skipped[..], std::slice::from_ref(&p256.jwk)].concat()).unwrap().len(), 1);
    let narrow = accepting(jwks(&[with(&rsa.jwk, "alg", json!("RS384"))]).unwrap());
    assert!(fault(&narrow, &rsa.signed(Algorithm::RS384, None)).is_none());
    assert!(fault(&narrow, &rsa.signed(Algorithm::RS256, None)).is_some());
    assert!(fault(&narrow, &rsa.signed(Algorithm::PS384, None)).is_some());
}

#[test]
fn a_key_for_which_anybody_can_sign_is_left_out() {
    use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
    let mut signature = [0; 64]; // R is the neutral point, and S is 0.
    signature[0] = 1;
    for point in &super::super::key::SMALL_ORDER[..5] {
        let forged =
            (0..200_u8).any(|number| UnparsedPublicKey::new(&ED25519, point).verify(&[number], &signature).is_ok());
        assert!(forged, "the library takes {point:?}");
    }
    for mut point in super::super::key::SMALL_ORDER {
        for sign in [0, 0x80] {
            point[31] = point[31] & 0x7f | sign;
            let jwk = json!({"kty": "OKP", "crv": "Ed25519", "x": text(&point)});
            assert_eq!(jwks(&[jwk]).err(), Some(JwksError::Empty), "{point:?}");
        }
    }
}

#[test]
fn a_document_has_a_form_and_a_bound() {
    for document in ["", "[]", "{}", "{\"keys\":{}}", "<html>", &"[".repeat(1000)] {
        assert_eq!(read_jwks(document.as_bytes()).err(), Some(JwksError::Syntax), "{document}");
    }
    let many = |count| jwks(&vec![PAIRS[3].jwk.clone(); count]).map(|keys| keys.len());
    assert_eq!(many(JWKS_KEY_COUNT_MAX), Ok(JWKS_KEY_COUNT_MAX));
    assert_eq!(many(JWKS_KEY_COUNT_MAX + 1), Err(JwksError::TooMany));
    assert_eq!(many(0), Err(JwksError::Empty));
}

/// A verifier with the keys of an endpoint, and how often it has asked for new ones.
fn remote() -> (TokenVerifier, RemoteKeys, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let asks = asked.clone();
    let remote = RemoteKeys::new(move || _ = asks.fetch_add(1, Ordering::Relaxed));
    let checks = TokenChecks {
        keys: vec![TokenKey::secret(&secret("current"))],
        remote: Some(remote.clone()),
        ..TokenChecks::default()
    };
    (TokenVerifier::with(checks, None), remote, asked)
}

#[test]
fn an_unknown_key_is_asked_for_and_found_after_the_fetch() {
    let (verifier, keys, asked) = remote();
    let (old, new) = (&PAIRS[1], &PAIRS[5]);
    let (old_token, new_token) = (old.signed(Algorithm::ES256, Some("old")), new.signed(Algorithm::ES256, Some("new")));
    let at = |token: &Token, seconds: u64| verifier.verify_connection(token, Timestamp(NOW.0 + seconds * 1000)).err();
    assert_eq!(at(&old_token, 0), Some(TokenError::KeyPending), "nothing is fetched yet");
    keys.replace(jwks(&[old.named("old")]).unwrap(), NOW, Timestamp(NOW.0 + 10_000));
    assert_eq!(at(&old_token, 0), None);
    assert_eq!(asked.load(Ordering::Relaxed), 1);

    // The key is changed. While the snapshot is fresh nobody asks; afterwards the driver is asked.
    assert_eq!(at(&new_token, 9), Some(TokenError::Expired));
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert_eq!(at(&new_token, 10), Some(TokenError::KeyPending));
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    assert_eq!(at(&old_token, 10), None, "the old keys go on until there are new ones");
    keys.replace(jwks(&[new.named("new")]).unwrap(), Timestamp(NOW.0 + 11_000), Timestamp(NOW.0 + 21_000));
    assert_eq!((at(&new_token, 11), at(&old_token, 11)), (None, Some(TokenError::Expired)));
    assert_eq!(at(&old_token, 1), Some(TokenError::KeyPending), "a clock that was set back makes nothing fresh");
}

#[test]
fn only_a_key_that_may_come_is_asked_for() {
    let (verifier, keys, asked) = remote();
    keys.replace(jwks(&[PAIRS[1].named("one")]).unwrap(), NOW, NOW);
    for (what, token) in [
        ("a forged token of a known key", PAIRS[5].signed(Algorithm::ES256, Some("one"))),
        ("a known key with another algorithm", PAIRS[0].signed(Algorithm::RS256, Some("one"))),
        ("a token that names no key", PAIRS[1].signed(Algorithm::ES256, None)),
        ("a secret that nobody has", signed(Algorithm::HS256, "guessed", &json!({}))),
    ] {
        assert!(matches!(fault(&verifier, &token), Some(TokenError::Invalid(_))), "{what}");
    }
    assert_eq!(fault(&verifier, &signed(Algorithm::HS256, "current", &json!({}))), None);
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    assert_eq!(fault(&verifier, &PAIRS[1].signed(Algorithm::ES256, Some("two"))), Some(TokenError::KeyPending));
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}
