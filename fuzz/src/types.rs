//! The words as text: what is taken is kept as it was, or in a normal form that is its own.

use serde::de::IgnoredAny;
use tidings_types::{
    AppId, ChannelName, CollapseKey, Country, DeviceId, DeviceToken, EventId, Json, Locale, Selector, Subject,
    TopicName, UserId, selector_limits,
};

/// One JSON value: taken exactly when it is JSON in UTF-8, one line, the same when read again.
pub(crate) fn json(bytes: &[u8]) {
    let parsed = Json::parse(bytes);
    let is_json = std::str::from_utf8(bytes).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
    assert_eq!(parsed.is_ok(), is_json, "what is JSON is taken");
    let Ok(json) = parsed else { return };
    assert!(!json.as_str().contains(['\n', '\r']), "it is spliced into messages of one line");
    assert_eq!(Json::parse(json.bytes()).expect("it was JSON before"), json);
    assert_eq!(Json::of(&json), json, "writing does not change it");
    let inside = format!("[{0},{0}]", json.as_str());
    let both: [Json; 2] = serde_json::from_str(&inside).expect("it is spliced in as it is");
    assert!(both.iter().all(|one| *one == json));
}

/// Names of all kinds.
pub(crate) fn name(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    macro_rules! kept {
        ($($name:ident up to $max:literal),*) => {$(
            if let Ok(name) = $name::new(text) {
                assert_eq!(name.as_str(), text);
                assert!((1..=$max).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()));
            }
        )*};
    }
    kept!(ChannelName up to 255, Subject up to 128, TopicName up to 64, EventId up to 128, DeviceId up to 128);
    kept!(UserId up to 128, AppId up to 128, CollapseKey up to 64, Country up to 2);
    if let Ok(locale) = Locale::new(text) {
        assert_eq!(Locale::new(locale.as_str()).as_ref(), Ok(&locale), "the normal form is its own");
        let fallbacks: Vec<_> = locale.fallbacks().collect();
        assert_eq!(fallbacks[0], locale.as_str());
        assert!(fallbacks.len() <= 3 && fallbacks.iter().all(|tag| Locale::new(tag).is_ok()), "{fallbacks:?}");
    }
    if let Ok(token) = DeviceToken::from_hex(text) {
        assert_eq!(token.to_text(), text.to_ascii_lowercase());
    }
    if let Ok(token) = DeviceToken::fcm(text) {
        assert_eq!(token.to_text(), text);
    }
}

/// A selector: read or refused at a place within the text; what is read has one canonical form, which is its own.
pub(crate) fn selector(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let selector = match text.parse::<Selector>() {
        Ok(selector) => selector,
        Err(error) => {
            assert!((1..=text.chars().count() + 1).contains(&error.position), "{error}");
            assert!(text.get(error.span.clone()).is_some(), "{error}");
            return;
        }
    };
    let canonical = selector.to_string();
    assert!(canonical.len() <= selector_limits::BYTES_MAX && text.len() <= selector_limits::BYTES_MAX);
    assert_eq!(canonical.parse().as_ref(), Ok(&selector), "{canonical}");
    let json = serde_json::to_string(&selector).expect("a text is JSON");
    assert_eq!(serde_json::from_str::<Selector>(&json).expect("what we write we read"), selector);
}
