//! Valid tokens, and all the ways in which one is not valid: signed otherwise, too early, too late, for somebody else.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

mod keys;
mod rules;

const NOW: Timestamp = Timestamp(1_000_000);

fn secret(text: &str) -> TokenSecret {
    TokenSecret::new(text.as_bytes()).unwrap()
}

fn verifier() -> TokenVerifier {
    TokenVerifier::new(&secret("current"), Some(&secret("previous")))
}

fn signed(algorithm: Algorithm, with: &str, claims: &Value) -> Token {
    let key = EncodingKey::from_secret(with.as_bytes());
    Token::from(&*jsonwebtoken::encode(&Header::new(algorithm), claims, &key).unwrap())
}

fn connection(claims: Value) -> Result<Admission, TokenError> {
    verifier().verify_connection(&signed(Algorithm::HS256, "current", &claims), NOW)
}

fn subscription(claims: Value) -> Result<SubscriptionClaims, TokenError> {
    verifier().verify_subscription(&signed(Algorithm::HS256, "current", &claims), NOW)
}

#[test]
fn what_we_sign_is_good_until_it_ends() {
    let info = Json::of(&json!({"name": "Ann"}));
    let end = Timestamp(2_000_000);
    let terms = SubscriptionTerms {
        expires_at: Some(end),
        info: Some(info.clone()),
        data: Some(info.clone()),
        presence: Some(true),
        force_recovery: Some(false),
        join_leave: Some(true),
        ..SubscriptionTerms::default()
    };
    let whole = Admission {
        user: "42".to_owned(),
        device: Some(DeviceId::new("phone-1").unwrap()),
        expires_at: Some(end),
        info: Some(info.clone()),
        meta: None,
        data: None,
        subscriptions: BTreeMap::from([("a".to_owned(), SubscriptionTerms::default()), ("b".to_owned(), terms)]),
    };
    let token = Token::from(&*sign_connection_token(&secret("current"), &whole, NOW));
    assert_eq!(verifier().verify_connection(&token, NOW), Ok(whole));
    assert!(verifier().verify_connection(&token, Timestamp(1_999_999)).is_ok());
    assert_eq!(verifier().verify_connection(&token, end), Err(TokenError::Expired));
    assert!(matches!(verifier().verify_subscription(&token, NOW), Err(TokenError::Invalid(_))));

    let channel = ChannelName::new("$c").unwrap();
    let token = Token::from(&*sign_subscription_token(&secret("previous"), "42", &channel, None, Some(&info), NOW));
    let claims = verifier().verify_subscription(&token, NOW).unwrap();
    assert_eq!(
        (&*claims.user, &*claims.channel, claims.terms.expires_at, claims.terms.info),
        ("42", "$c", None, Some(info))
    );
    assert!(matches!(verifier().verify_connection(&token, NOW), Err(TokenError::Invalid(_))));
}

#[test]
fn every_hmac_and_both_secrets_are_accepted_and_nothing_else() {
    for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
        for with in ["current", "previous"] {
            assert!(
                verifier().verify_connection(&signed(algorithm, with, &json!({})), NOW).is_ok(),
                "{algorithm:?} {with}"
            );
        }
        let forged = verifier().verify_connection(&signed(algorithm, "guessed", &json!({})), NOW);
        assert_eq!(forged, Err(TokenError::Invalid(UNSIGNED)));
    }
    let good = signed(Algorithm::HS256, "current", &json!({"sub": "42"}));
    let (header, rest) = good.as_str().split_once('.').unwrap();
    for fake in [
        format!("eyJhbGciOiJub25lIn0.{}.", rest.split_once('.').unwrap().0), // {"alg":"none"}
        format!("eyJhbGciOiJSUzI1NiJ9.{rest}"),                              // {"alg":"RS256"}
        format!("{header}.{rest}x"),
        format!("{header}.{}", rest.replacen('e', "f", 1)),
        header.to_owned(),
        "..".to_owned(),
        String::new(),
    ] {
        let refused = verifier().verify_connection(&Token::from(&*fake), NOW);
        assert!(matches!(refused, Err(TokenError::Invalid(_))), "{fake}: {refused:?}");
    }
    let alone = TokenVerifier::new(&secret("current"), None);
    assert!(alone.verify_connection(&signed(Algorithm::HS256, "previous", &json!({})), NOW).is_err());
}

#[test]
fn critical_extensions_are_refused() {
    let header = Header { crit: Some(vec!["exp".to_owned()]), ..Header::new(Algorithm::HS256) };
    let token = jsonwebtoken::encode(&header, &json!({}), &EncodingKey::from_secret(b"current")).unwrap();
    assert!(matches!(verifier().verify_connection(&Token::from(&*token), NOW), Err(TokenError::Invalid(_))));
}

#[test]
fn time_claims() {
    for (claims, expected) in [
        (json!({}), Ok(None)),
        (json!({"exp": 1001}), Ok(Some(1_001_000))),
        (json!({"exp": 1000.5}), Ok(Some(1_000_500))),
        (json!({"exp": 1000}), Err(TokenError::Expired)),
        (json!({"exp": 0}), Err(TokenError::Expired)),
        (json!({"exp": -5}), Err(TokenError::Expired)),
        (json!({"nbf": 1000, "exp": 1001}), Ok(Some(1_001_000))),
        (json!({"nbf": 1001}), Err(TokenError::Expired)),
        (json!({"exp": 1001, "expire_at": 5000}), Ok(Some(5_000_000))),
        (json!({"exp": 1001, "expire_at": 0}), Ok(None)),
        (json!({"exp": 999, "expire_at": 5000}), Err(TokenError::Expired)),
        (json!({"expire_at": 999}), Ok(Some(999_000))), // Good, but over: error 110, not 109.
        (json!({"exp": 1e300}), Ok(Some(u64::MAX))),
    ] {
        let found = connection(claims.clone()).map(|claims| claims.expires_at.map(Timestamp::as_millis));
        assert_eq!(found, expected, "{claims}");
    }
}

#[test]
fn claims_of_the_wrong_kind_are_refused() {
    for claims in [
        json!({"sub": 42}),
        json!({"exp": "1001"}),
        json!({"channel": "c"}),
        json!({"device": ""}),
        json!({"device": "my phone"}),
        json!({"device": "x".repeat(129)}),
        json!({"device": 7}),
        json!({"device": {"name": "phone-1"}}),
        json!({"b64info": "%"}),
        json!({"b64info": "/w=="}),
        json!({"channels": "c"}),
        json!([]),
    ] {
        assert!(matches!(connection(claims.clone()), Err(TokenError::Invalid(_))), "{claims}");
    }
    assert!(matches!(subscription(json!({"channel": ""})), Err(TokenError::Invalid(_))));
    assert_eq!(connection(json!({"b64info": "eyJhIjoxfQ=="})).unwrap().info, Some(Json::parse(b"{\"a\":1}").unwrap()));
}

#[test]
fn a_connection_token_may_name_a_device() {
    assert_eq!(connection(json!({"device": "phone-1"})).unwrap().device, Some(DeviceId::new("phone-1").unwrap()));
    assert_eq!(connection(json!({"sub": "42"})).unwrap().device, None);
    assert_eq!(connection(json!({"device": null})).unwrap().device, None);
    let refused = connection(json!({"device": "my phone"})).unwrap_err().to_string();
    assert_eq!(refused, "token is not valid: claim device is not a device id, 1 to 128 visible ASCII characters");
    // In a subscription token the claim `device` belongs to the application.
    assert!(subscription(json!({"channel": "c", "device": {"model": 7}})).is_ok());
}

#[test]
fn a_connection_token_may_subscribe_its_client() {
    let plain = SubscriptionTerms::default;
    let terms = SubscriptionTerms {
        expires_at: Some(Timestamp(7000)),
        info: Some(Json::of(&"seat")),
        data: Some(Json::of(&7)),
        presence: Some(false),
        ..plain()
    };
    let stated = json!({"expire_at": 7, "info": "seat", "b64data": "Nw==", "override": {"presence": {"value": false}}});
    for (claims, expected) in [
        (json!({}), vec![]),
        (json!({"channels": [], "subs": {}}), vec![]),
        (json!({"channels": ["b", "a"], "subs": {}}), vec![("a", plain()), ("b", plain())]),
        (json!({"channels": ["a"], "subs": {"b": {"expire_at": 0}}}), vec![("b", plain())]),
        (json!({"subs": {"a": stated}}), vec![("a", terms)]),
    ] {
        let expected = expected.into_iter().map(|(channel, terms)| (channel.to_owned(), terms));
        assert_eq!(connection(claims).unwrap().subscriptions, expected.collect());
    }
    for claims in [json!({"channels": [7]}), json!({"subs": {"a": {"b64info": "%"}}}), json!({"subs": {"a": 7}})] {
        assert!(matches!(connection(claims.clone()), Err(TokenError::Invalid(_))), "{claims}");
    }
}

#[test]
fn overrides_are_noticed() {
    let claims = subscription(json!({
        "channel": "c", "client": "x", "data": [1],
        "override": {"presence": {"value": false}, "force_recovery": {"value": true}, "join_leave": {"value": true}},
    }))
    .unwrap();
    let terms = claims.terms;
    assert_eq!((terms.join_leave, terms.force_push_join_leave), (Some(true), None));
    assert_eq!((terms.presence, terms.force_recovery, terms.force_positioning), (Some(false), Some(true), None));
    assert_eq!((claims.client.as_deref(), terms.data), (Some("x"), Some(Json::of(&[1]))));
}

#[test]
fn secrets_never_show_and_are_never_empty() {
    assert_eq!(TokenSecret::new(b""), Err(EmptySecretError));
    let shown =
        format!("{:?} {:?} {:?}", secret("hidden"), Token::from("hidden"), TokenVerifier::new(&secret("hidden"), None));
    assert!(!shown.contains("hidden"), "{shown}");
}

proptest! {
    #[test]
    fn no_text_is_a_token(text in "([A-Za-z0-9_-]{0,40}\\.){0,3}[A-Za-z0-9_-]{0,40}") {
        prop_assert!(verifier().verify_connection(&Token::from(&*text), NOW).is_err());
    }
}
