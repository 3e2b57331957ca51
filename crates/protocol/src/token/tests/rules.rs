//! Audience, issuer, clock skew, the claim that names the user, separate keys for subscription tokens.

use super::*;

fn with(rules: TokenRules, claims: &Value) -> Result<Admission, TokenError> {
    let checks = TokenChecks { keys: vec![TokenKey::secret(&secret("current"))], remote: None, rules };
    TokenVerifier::with(checks, None).verify_connection(&signed(Algorithm::HS256, "current", claims), NOW)
}

fn pattern(text: &str) -> Option<TextPattern> {
    Some(TextPattern::new(text).unwrap())
}

#[test]
fn audience_and_issuer_are_compared_as_a_whole() {
    let chat = || TokenRules { audience: Some("chat".into()), ..TokenRules::default() };
    let chats = || TokenRules { audience_pattern: pattern("chat-[a-z]+"), ..TokenRules::default() };
    let ours = || TokenRules { issuer: Some("https://id.example".into()), ..TokenRules::default() };
    let some = || TokenRules { issuer_pattern: pattern(r"https://[a-z]+\.example"), ..TokenRules::default() };
    let both = || TokenRules { issuer: Some("https://id.example".into()), ..chat() };
    for (rules, claims, expected) in [
        (TokenRules::default(), json!({"aud": 5, "iss": [{}]}), true), // Nobody has asked.
        (chat(), json!({"aud": "chat"}), true),
        (chat(), json!({"aud": ["mail", "chat"]}), true),
        (chat(), json!({"aud": "chat-eu"}), false),
        (chat(), json!({"aud": ["mail"]}), false),
        (chat(), json!({"aud": []}), false),
        (chat(), json!({"aud": {"chat": true}}), false),
        (chat(), json!({"aud": null}), false),
        (chat(), json!({}), false),
        (chats(), json!({"aud": ["mail", "chat-eu"]}), true),
        (chats(), json!({"aud": "my-chat-eu"}), false),
        (chats(), json!({"aud": "chat-eu\n"}), false),
        (ours(), json!({"iss": "https://id.example"}), true),
        (ours(), json!({"iss": "https://id.example/"}), false),
        (ours(), json!({"iss": ["https://id.example"]}), false), // An issuer is one.
        (ours(), json!({}), false),
        (some(), json!({"iss": "https://id.example"}), true),
        (some(), json!({"iss": "https://id.example.attacker"}), false),
        (both(), json!({"aud": "chat", "iss": "https://id.example"}), true),
        (both(), json!({"aud": "chat"}), false),
        (both(), json!({"iss": "https://id.example"}), false),
    ] {
        assert_eq!(with(rules.clone(), &claims).is_ok(), expected, "{rules:?} {claims}");
    }
}

#[test]
fn clocks_may_differ_by_the_leeway() {
    let rules = || TokenRules { leeway: Duration::from_secs(30), ..TokenRules::default() };
    for (claims, expected) in [
        (json!({"exp": 971}), Ok(Some(1_001_000))), // It lets in until the leeway is over.
        (json!({"exp": 970}), Err(TokenError::Expired)),
        (json!({"nbf": 1030}), Ok(None)),
        (json!({"nbf": 1031}), Err(TokenError::Expired)),
        (json!({"exp": 2000, "expire_at": 1500}), Ok(Some(1_500_000))),
    ] {
        let found = with(rules(), &claims).map(|claims| claims.expires_at.map(Timestamp::as_millis));
        assert_eq!(found, expected, "{claims}");
    }
}

#[test]
fn another_claim_may_name_the_user() {
    let rules = || TokenRules { user_claim: Some("uid".into()), ..TokenRules::default() };
    let user = |claims| with(rules(), &claims).map(|claims| claims.user);
    assert_eq!(user(json!({"sub": "no", "uid": "42"})), Ok("42".to_owned()));
    assert_eq!(user(json!({"uid": ""})), Ok(String::new()));
    for claims in [json!({"sub": "42"}), json!({"uid": 42}), json!({"uid": null}), json!({"uid": ["42"]})] {
        assert!(matches!(user(claims.clone()), Err(TokenError::Invalid(_))), "{claims}");
    }
}

#[test]
fn subscription_tokens_may_have_keys_of_their_own() {
    let checks = |with| TokenChecks { keys: vec![TokenKey::secret(&secret(with))], ..TokenChecks::default() };
    let token = |with| signed(Algorithm::HS256, with, &json!({"channel": "c"}));
    let separate = TokenVerifier::with(checks("current"), Some(checks("other")));
    let shared = separate.clone();
    assert!(separate.verify_subscription(&token("other"), NOW).is_ok());
    assert!(separate.verify_subscription(&token("current"), NOW).is_err());
    assert!(separate.verify_connection(&signed(Algorithm::HS256, "other", &json!({})), NOW).is_err());

    shared.replace(checks("new"), None);
    assert!(separate.verify_subscription(&token("new"), NOW).is_ok(), "all clones have the new keys");
    assert!(separate.verify_subscription(&token("other"), NOW).is_err());
}
