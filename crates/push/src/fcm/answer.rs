//! What an answer of FCM means (Google, "FCM error codes").
//!
//! [`classify`] goes by the `errorCode` in the body's details, else by its `status`, else by the HTTP status:
//!
//! | Answer | Verdict |
//! |---|---|
//! | 2xx | accepted |
//! | `UNREGISTERED` (404) | rejected, the token is gone |
//! | `SENDER_ID_MISMATCH` (403) | rejected: the token is another project's, or the service account is |
//! | `INVALID_ARGUMENT` (400) that names a field other than the token | rejected: the message is wrong |
//! | `INVALID_ARGUMENT` (400) that names the token | rejected, the token is gone |
//! | `INVALID_ARGUMENT` (400) that names nothing, other 4xx | rejected |
//! | `UNAUTHENTICATED` (401) | repeat with a new access token |
//! | `THIRD_PARTY_AUTH_ERROR` (401) | rejected: Firebase has no key for this device's platform |
//! | `PERMISSION_DENIED` (403) | repeat, but the credential is refused |
//! | `QUOTA_EXCEEDED`, `RESOURCE_EXHAUSTED` (429) | repeat; the whole project waits as long as `Retry-After` says, a minute without it |
//! | the same, about one device | repeat; this one waits as long |
//! | `UNAVAILABLE` (503), `INTERNAL` (500), other 5xx, 408 | repeat as `Retry-After` says, after 10 s without it |
//!
//! FCM answers `INVALID_ARGUMENT` both for a bad token and for a bad message, so a token is removed only if the answer
//! names it. A service account of the wrong project gets `SENDER_ID_MISMATCH` for every device. Neither mistake of ours
//! may delete all devices. `THIRD_PARTY_AUTH_ERROR` concerns iOS and browser registrations only: our own credential is
//! valid, and all other notifications continue. The subjects of a `google.rpc.QuotaFailure` in the details say whose
//! quota is used up; without one, the word "device" in the message decides. A wait is at most an hour; a notification
//! that expires before is not repeated anyway.

use std::borrow::Cow;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use tidings_types::Timestamp;

use super::reason::Reason;
use crate::answer::{Advice, Verdict};
use crate::retry::retry_after;

/// Google: after a 429 without `Retry-After`, wait for one minute.
const QUOTA_PAUSE: Duration = Duration::from_secs(60);
/// Google: the least wait before a retry.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

#[derive(Deserialize, Default)]
#[serde(default)]
struct Body<'a> {
    #[serde(borrow)]
    error: Error<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Error<'a> {
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(borrow)]
    message: Cow<'a, str>,
    #[serde(borrow)]
    details: Vec<Detail<'a>>,
}

/// A detail of any kind. Fields that its kind does not have are empty.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Detail<'a> {
    #[serde(borrow, rename = "@type")]
    kind: Cow<'a, str>,
    #[serde(borrow, rename = "errorCode")]
    error_code: Cow<'a, str>,
    #[serde(borrow, rename = "fieldViolations")]
    fields: Vec<FieldViolation<'a>>,
    #[serde(borrow, rename = "violations")]
    quotas: Vec<QuotaViolation<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct FieldViolation<'a> {
    #[serde(borrow)]
    field: Cow<'a, str>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct QuotaViolation<'a> {
    /// `kind:name`, for example `project:scores-1`.
    #[serde(borrow)]
    subject: Cow<'a, str>,
}

impl QuotaViolation<'_> {
    /// Whether it is one device's quota; `None` if its subject does not say.
    fn is_of_device(&self) -> Option<bool> {
        // Only the kind is read, because a name may contain any word.
        let kind = self.subject.split(':').next().unwrap_or_default().to_ascii_lowercase();
        if kind.contains("project") {
            return Some(false);
        }
        ["device", "token"].iter().any(|word| kind.contains(word)).then_some(true)
    }
}

impl Error<'_> {
    fn reason(&self, status: StatusCode) -> Reason {
        let is_fcm = |detail: &&Detail<'_>| detail.kind.ends_with("google.firebase.fcm.v1.FcmError");
        let code = self.details.iter().find(is_fcm).map(|detail| &*detail.error_code);
        match Reason::from_text(code.unwrap_or(&self.status)) {
            Reason::InvalidArgument if self.names_token(code.is_some()) => Reason::InvalidToken,
            Reason::Other => match status.as_u16() {
                401 => Reason::Unauthenticated,
                403 => Reason::PermissionDenied,
                404 => Reason::NotFound,
                408 => Reason::Unavailable, // From a server that did not get the whole request (RFC 9110, 15.5.9).
                429 => Reason::QuotaExceeded,
                503 => Reason::Unavailable,
                500..=599 => Reason::Internal,
                _ => Reason::Other,
            },
            reason => reason,
        }
    }

    /// Whether only the token is wrong.
    fn names_token(&self, is_from_fcm: bool) -> bool {
        let mut violations = self.details.iter().flat_map(|detail| &detail.fields).peekable();
        if violations.peek().is_some() {
            return violations.all(|violation| violation.field == "message.token");
        }
        is_from_fcm && self.message.to_ascii_lowercase().contains("registration token")
    }

    /// Whether the quota of one device is spent and not the project's.
    fn names_device(&self) -> bool {
        let is_quota = |detail: &&Detail<'_>| detail.kind.ends_with("google.rpc.QuotaFailure");
        let quotas = self.details.iter().filter(is_quota).flat_map(|detail| &detail.quotas);
        let said = quotas.filter_map(QuotaViolation::is_of_device).reduce(|all, one| all && one);
        said.unwrap_or_else(|| self.message.to_ascii_lowercase().contains("device"))
    }
}

/// Reads an answer; `body` is its beginning, at most [`crate::ANSWER_BYTES_MAX`] bytes. Anything unreadable in it
/// counts as no reason given.
pub fn classify(status: StatusCode, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Verdict {
    if status.is_success() {
        return Verdict::Accepted;
    }
    let Body { error } = serde_json::from_slice(body).unwrap_or_default();
    let reason = error.reason(status);
    let rejected = |gone_at| Verdict::Rejected { reason: reason.into(), gone_at };
    let repeat = |advice, otherwise| {
        let not_before = retry_after(headers, now).unwrap_or(otherwise);
        Verdict::Repeat { reason: reason.into(), advice, not_before }
    };
    match reason {
        Reason::Unregistered | Reason::InvalidToken => rejected(Some(now)),
        Reason::SenderIdMismatch | Reason::InvalidArgument | Reason::NotFound | Reason::ThirdPartyAuthError => {
            rejected(None)
        }
        Reason::Unauthenticated => repeat(Advice::RenewCredential, Duration::ZERO),
        Reason::PermissionDenied => repeat(Advice::CredentialRefused, RETRY_PAUSE),
        Reason::QuotaExceeded if error.names_device() => repeat(Advice::Wait, QUOTA_PAUSE),
        Reason::QuotaExceeded => repeat(Advice::PauseAll, QUOTA_PAUSE),
        Reason::Unavailable | Reason::Internal | Reason::Unspecified => repeat(Advice::Wait, RETRY_PAUSE),
        Reason::Other if status.is_server_error() => repeat(Advice::Wait, RETRY_PAUSE),
        Reason::Other => rejected(None),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::RETRY_AFTER;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn answer(status: u16, retry_after: Option<&str>, body: &Value) -> Verdict {
        let retry_after = retry_after.map(|it| (RETRY_AFTER, HeaderValue::from_str(it).unwrap()));
        let headers = HeaderMap::from_iter(retry_after);
        classify(StatusCode::from_u16(status).unwrap(), &headers, body.to_string().as_bytes(), NOW)
    }

    /// An error as FCM words it.
    fn error(code: u16, status: &str, message: &str, details: &Value) -> Value {
        json!({"error": {"code": code, "message": message, "status": status, "details": details}})
    }

    fn fcm(code: &str) -> Value {
        json!([{"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": code}])
    }

    fn violating(fields: &[&str]) -> Value {
        let violations: Vec<_> = fields.iter().map(|field| json!({"field": field, "description": "x"})).collect();
        let mut details = fcm("INVALID_ARGUMENT");
        let bad_request = json!({"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations});
        details.as_array_mut().unwrap().push(bad_request);
        details
    }

    fn rejected(reason: Reason, gone_at: Option<Timestamp>) -> Verdict {
        Verdict::Rejected { reason: reason.into(), gone_at }
    }

    fn repeat(reason: Reason, advice: Advice, seconds: u64) -> Verdict {
        Verdict::Repeat { reason: reason.into(), advice, not_before: Duration::from_secs(seconds) }
    }

    #[test]
    fn googles_table() {
        use Reason as R;
        let gone = Some(NOW);
        for (status, name, code, verdict) in [
            (404, "NOT_FOUND", Some("UNREGISTERED"), rejected(R::Unregistered, gone)),
            (403, "PERMISSION_DENIED", Some("SENDER_ID_MISMATCH"), rejected(R::SenderIdMismatch, None)),
            (400, "INVALID_ARGUMENT", Some("INVALID_ARGUMENT"), rejected(R::InvalidArgument, None)),
            (400, "INVALID_ARGUMENT", None, rejected(R::InvalidArgument, None)),
            (404, "NOT_FOUND", None, rejected(R::NotFound, None)),
            (401, "UNAUTHENTICATED", None, repeat(R::Unauthenticated, Advice::RenewCredential, 0)),
            (401, "UNAUTHENTICATED", Some("THIRD_PARTY_AUTH_ERROR"), rejected(R::ThirdPartyAuthError, None)),
            (403, "PERMISSION_DENIED", None, repeat(R::PermissionDenied, Advice::CredentialRefused, 10)),
            (429, "RESOURCE_EXHAUSTED", Some("QUOTA_EXCEEDED"), repeat(R::QuotaExceeded, Advice::PauseAll, 60)),
            (429, "RESOURCE_EXHAUSTED", None, repeat(R::QuotaExceeded, Advice::PauseAll, 60)),
            (503, "UNAVAILABLE", Some("UNAVAILABLE"), repeat(R::Unavailable, Advice::Wait, 10)),
            (500, "INTERNAL", Some("INTERNAL"), repeat(R::Internal, Advice::Wait, 10)),
            (500, "UNKNOWN", Some("UNSPECIFIED_ERROR"), repeat(R::Unspecified, Advice::Wait, 10)),
        ] {
            let details = code.map_or(json!([]), fcm);
            assert_eq!(answer(status, None, &error(status, name, "x", &details)), verdict, "{status} {name} {code:?}");
        }
        assert_eq!(answer(200, None, &json!({"name": "projects/p/messages/1"})), Verdict::Accepted);
    }

    #[test]
    fn an_invalid_argument_costs_the_token_only_if_it_is_the_token() {
        let of = |message: &str, details: &Value| answer(400, None, &error(400, "INVALID_ARGUMENT", message, details));
        let token = rejected(Reason::InvalidToken, Some(NOW));
        let message = rejected(Reason::InvalidArgument, None);
        let about_token = "The registration token is not a valid FCM registration token";
        assert_eq!(of(about_token, &fcm("INVALID_ARGUMENT")), token);
        assert_eq!(of("x", &violating(&["message.token"])), token);
        assert_eq!(of("x", &violating(&["message.data[0].value"])), message);
        assert_eq!(of(about_token, &violating(&["message.android.ttl"])), message);
        assert_eq!(of("x", &violating(&["message.token", "message.data"])), message);
        assert_eq!(of(about_token, &json!([])), message, "not by FCM");
        assert_eq!(of("Message is too big", &fcm("INVALID_ARGUMENT")), message);
    }

    #[test]
    fn a_stated_wait_counts_and_one_device_does_not_stop_the_project() {
        let quota = |message| error(429, "RESOURCE_EXHAUSTED", message, &fcm("QUOTA_EXCEEDED"));
        assert_eq!(answer(429, Some("7"), &quota("x")), repeat(Reason::QuotaExceeded, Advice::PauseAll, 7));
        let device = "Device message rate exceeded";
        assert_eq!(answer(429, None, &quota(device)), repeat(Reason::QuotaExceeded, Advice::Wait, 60));
        let unavailable = error(503, "UNAVAILABLE", "x", &fcm("UNAVAILABLE"));
        assert_eq!(answer(503, Some("120"), &unavailable), repeat(Reason::Unavailable, Advice::Wait, 120));
        let date = Some("Fri, 15 Jan 2027 08:00:42 GMT");
        assert_eq!(answer(503, date, &unavailable), repeat(Reason::Unavailable, Advice::Wait, 42));
    }

    #[test]
    fn a_platform_without_a_key_at_firebase_stops_nobody_else_and_costs_no_token() {
        let details = fcm("THIRD_PARTY_AUTH_ERROR");
        for (status, name) in [(401, "UNAUTHENTICATED"), (403, "PERMISSION_DENIED"), (400, "INVALID_ARGUMENT")] {
            let verdict = answer(status, Some("9"), &error(status, name, "x", &details));
            assert_eq!(verdict, rejected(Reason::ThirdPartyAuthError, None), "{status}");
        }
    }

    #[test]
    fn whose_quota_is_spent_the_details_say_and_not_the_text() {
        let of = |message: &str, subjects: &[&str]| {
            let violations: Vec<_> = subjects.iter().map(|it| json!({"subject": it, "description": "x"})).collect();
            let mut details = fcm("QUOTA_EXCEEDED");
            let quota = json!({"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": violations});
            details.as_array_mut().unwrap().push(quota);
            answer(429, None, &error(429, "RESOURCE_EXHAUSTED", message, &details))
        };
        let one = repeat(Reason::QuotaExceeded, Advice::Wait, 60);
        let all = repeat(Reason::QuotaExceeded, Advice::PauseAll, 60);
        let (plain, device) = ("Resource has been exhausted", "Device message rate exceeded");
        for subject in ["device:abc", "token:abc", "registration_token:abc", "token:myproject", "DEVICE"] {
            assert_eq!(of(plain, &[subject]), one, "{subject}");
        }
        for subjects in [&["project:scores-1"][..], &["project:device-farm"], &["device:abc", "project:scores-1"]] {
            assert_eq!(of(device, subjects), all, "{subjects:?}");
        }
        for subjects in [&[][..], &["QUOTA_EXCEEDED"]] {
            assert_eq!((of(plain, subjects), of(device, subjects)), (all, one), "{subjects:?}");
        }
    }

    #[test]
    fn without_a_readable_body_the_status_decides() {
        for body in [json!(""), json!([]), json!({"error": 7}), json!({"error": {"status": "NEW"}}), Value::Null] {
            let of = |status| answer(status, None, &body);
            assert_eq!(of(400), rejected(Reason::Other, None), "{body}");
            assert_eq!(of(401), repeat(Reason::Unauthenticated, Advice::RenewCredential, 0), "{body}");
            assert_eq!(of(403), repeat(Reason::PermissionDenied, Advice::CredentialRefused, 10), "{body}");
            assert_eq!(of(404), rejected(Reason::NotFound, None), "a wrong address must not delete a fleet");
            assert_eq!(of(408), repeat(Reason::Unavailable, Advice::Wait, 10), "{body}");
            assert_eq!(of(413), rejected(Reason::Other, None), "{body}");
            assert_eq!(of(429), repeat(Reason::QuotaExceeded, Advice::PauseAll, 60), "{body}");
            assert_eq!(of(502), repeat(Reason::Internal, Advice::Wait, 10), "{body}");
        }
    }

    #[test]
    fn names_that_are_only_ours_mean_nothing_to_us_in_an_answer() {
        for name in ["INVALID_ARGUMENT_TOKEN", "FCM_OTHER"] {
            for details in [json!([]), fcm(name)] {
                let of = |status| answer(status, None, &error(status, name, "x", &details));
                assert_eq!(of(400), rejected(Reason::Other, None), "{name}");
                assert_eq!(of(503), repeat(Reason::Unavailable, Advice::Wait, 10), "{name}");
            }
        }
    }

    #[test]
    fn a_fault_of_the_credential_is_never_blamed_on_a_device() {
        for reason in [Reason::Unauthenticated, Reason::PermissionDenied] {
            for status in [400, 401, 403, 404, 429, 500] {
                let verdict = answer(status, None, &error(status, "X", "x", &fcm(reason.as_str())));
                assert!(matches!(verdict, Verdict::Repeat { advice, .. } if advice != Advice::Wait), "{verdict:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_answer_breaks_us_and_only_2xx_is_success(
            status in 100u16..1000, body in proptest::collection::vec(any::<u8>(), 0..100)
        ) {
            let verdict = classify(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), &body, NOW);
            prop_assert_eq!(verdict == Verdict::Accepted, (200..300).contains(&status));
        }

        /// For any parts, only FCM's own answer about a token removes it, and no wait is longer than an hour.
        #[test]
        fn no_error_breaks_us_and_only_a_dead_token_costs_one(
            status in 300u16..1000,
            name in prop::sample::select(vec!["NOT_FOUND", "INVALID_ARGUMENT", "UNAUTHENTICATED", "X", ""]),
            code in prop::option::of(prop::sample::select(vec![
                json!("UNREGISTERED"), json!("INVALID_ARGUMENT"), json!("QUOTA_EXCEEDED"), json!(null), json!(7),
            ])),
            field in prop::option::of(prop::sample::select(vec!["message.token", "message.data", ""])),
            message in "registration token|.{0,20}",
            retry_after in prop::option::of("[0-9]{1,25}|[ -~]{0,20}"),
            cut in 0usize..400,
        ) {
            let mut details: Vec<Value> = Vec::new();
            details.extend(code.clone().map(|code| {
                json!({"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": code})
            }));
            details.extend(field.map(|field| {
                json!({"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [{"field": field}]})
            }));
            let body = error(status, name, &message, &json!(details)).to_string();
            let headers = retry_after.map(|it| (RETRY_AFTER, HeaderValue::from_str(&it).unwrap()));
            let headers = HeaderMap::from_iter(headers);
            let body = &body.as_bytes()[..body.len().saturating_sub(cut / 4)]; // Mostly what is left is no JSON.
            match classify(StatusCode::from_u16(status).unwrap(), &headers, body, NOW) {
                Verdict::Accepted => prop_assert!(false, "it is an error"),
                Verdict::Rejected { gone_at: Some(_), .. } => {
                    let is_dead = code == Some(json!("UNREGISTERED"));
                    let names_token = field == Some("message.token") || message == "registration token";
                    prop_assert!(is_dead || names_token, "{status} {name} {code:?} {field:?} {message}");
                }
                Verdict::Rejected { gone_at: None, .. } => {}
                Verdict::Repeat { not_before, .. } => prop_assert!(not_before <= Duration::from_secs(3600)),
            }
        }
    }
}
