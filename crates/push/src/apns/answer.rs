//! What an answer of APNs means (Apple, "Handling notification responses from APNs").
//!
//! [`classify`] turns status and body into a [`Verdict`]: done for good, or to be repeated, and what has to happen to
//! the connection or the credential beside that. The table, with our choices where Apple leaves one:
//!
//! | Answer | Verdict |
//! |---|---|
//! | 200 | accepted |
//! | 410, 400 `BadDeviceToken` | rejected, the token is gone (410: as of its timestamp) |
//! | 400 `DeviceTokenNotForTopic`, 413, other 4xx | rejected |
//! | 403 `ExpiredProviderToken` | repeat with a new credential on a new connection |
//! | 403 others, 4xx that names the credential | repeat, but the credential is refused: the connection closes and others are opened slowly |
//! | 429 `TooManyRequests` | repeat, this device as `Retry-After` says, after a second without it |
//! | 429 `TooManyProviderTokenUpdates`, 400 `IdleTimeout`, 503 `Shutdown` | repeat on another connection |
//! | 5xx | repeat as `Retry-After` says |
//!
//! After `BadDeviceToken` it is not certain that a token is gone: the sender waits before it removes the token, and
//! keeps it if many tokens get this answer at once (`sender/src/wave.rs`).
//!
//! A refused credential does not reject notifications, because an operator can replace a key while they are still
//! useful. A reason that is not in Apple's table is judged by its status alone. Apple documents no `Retry-After`, but a
//! proxy before it may send one.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use tidings_types::Timestamp;

use super::reason::Reason;
use crate::answer::{Advice, Verdict};
use crate::retry::retry_after;

/// The least pause of a device that got too many requests.
const DEVICE_PAUSE: Duration = Duration::from_secs(1);

#[derive(Deserialize, Default)]
struct Body<'a> {
    #[serde(borrow, default)]
    reason: std::borrow::Cow<'a, str>,
    /// Milliseconds since the epoch; only with 410.
    timestamp: Option<u64>,
}

/// Reads an answer; `body` is its beginning, at most [`crate::ANSWER_BYTES_MAX`] bytes. Unreadable parts are ignored.
pub fn classify(status: StatusCode, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Verdict {
    if status == StatusCode::OK {
        return Verdict::Accepted;
    }
    let body: Body<'_> = serde_json::from_slice(body).unwrap_or_default();
    let reason = Reason::from_text(&body.reason);
    let repeat_after = |not_before, advice| Verdict::Repeat { reason: reason.into(), advice, not_before };
    let repeat = |advice| repeat_after(Duration::ZERO, advice);
    let wait = |otherwise| repeat_after(retry_after(headers, now).unwrap_or(otherwise), Advice::Wait);
    let rejected = |gone_at| Verdict::Rejected { reason: reason.into(), gone_at };
    match (status.as_u16(), reason) {
        (_, Reason::ExpiredProviderToken) => repeat(Advice::RenewCredential),
        (_, Reason::IdleTimeout | Reason::Shutdown | Reason::TooManyProviderTokenUpdates) => {
            repeat(Advice::LeaveConnection)
        }
        (403, _) => repeat(Advice::CredentialRefused),
        // The reason decides, not the status: a problem with a certificate must not count against the device.
        (400..=499, reason) if reason.is_about_credential() => repeat(Advice::CredentialRefused),
        (429, _) => wait(DEVICE_PAUSE),
        (500.., _) => wait(Duration::ZERO),
        // A time in the future would also remove later registrations.
        (410, _) => rejected(Some(body.timestamp.map_or(now, Timestamp).min(now))),
        (_, Reason::BadDeviceToken) => rejected(Some(now)),
        _ => rejected(None),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Dialect as _;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn answer(status: u16, body: &str) -> Verdict {
        classify(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body.as_bytes(), NOW)
    }

    fn with_reason(status: u16, reason: Reason) -> Verdict {
        answer(status, &format!(r#"{{"reason":"{}"}}"#, reason.as_str()))
    }

    #[test]
    fn apples_table() {
        use Reason as R;
        let rejected = |reason: R| Verdict::Rejected { reason: reason.into(), gone_at: None };
        let gone = |reason: R| Verdict::Rejected { reason: reason.into(), gone_at: Some(NOW) };
        let repeat_after = |seconds, advice| {
            let not_before = Duration::from_secs(seconds);
            move |reason: R| Verdict::Repeat { reason: reason.into(), advice, not_before }
        };
        let repeat = |advice| repeat_after(0, advice);
        type Row<'a> = (u16, &'a [R], &'a dyn Fn(R) -> Verdict);
        let table: &[Row<'_>] = &[
            (400, &[R::BadDeviceToken], &gone),
            (410, &[R::Unregistered, R::ExpiredToken], &gone),
            (
                400,
                &[
                    R::BadCollapseId,
                    R::BadExpirationDate,
                    R::BadMessageId,
                    R::BadPriority,
                    R::BadTopic,
                    R::DeviceTokenNotForTopic,
                    R::DuplicateHeaders,
                    R::InvalidPushType,
                    R::MissingDeviceToken,
                    R::MissingTopic,
                    R::PayloadEmpty,
                    R::TopicDisallowed,
                ],
                &rejected,
            ),
            (404, &[R::BadPath], &rejected),
            (405, &[R::MethodNotAllowed], &rejected),
            (413, &[R::PayloadTooLarge], &rejected),
            (403, &[R::ExpiredProviderToken], &repeat(Advice::RenewCredential)),
            (
                403,
                &[
                    R::BadCertificate,
                    R::BadCertificateEnvironment,
                    R::BadEnvironmentKeyIdInToken,
                    R::Forbidden,
                    R::InvalidProviderToken,
                    R::MissingProviderToken,
                    R::UnrelatedKeyIdInToken,
                ],
                &repeat(Advice::CredentialRefused),
            ),
            (429, &[R::TooManyRequests], &repeat_after(1, Advice::Wait)),
            (429, &[R::TooManyProviderTokenUpdates], &repeat(Advice::LeaveConnection)),
            (400, &[R::IdleTimeout], &repeat(Advice::LeaveConnection)),
            (500, &[R::InternalServerError], &repeat(Advice::Wait)),
            (503, &[R::ServiceUnavailable], &repeat(Advice::Wait)),
            (503, &[R::Shutdown], &repeat(Advice::LeaveConnection)),
        ];
        assert_eq!(answer(200, ""), Verdict::Accepted);
        let mut covered = 1; // Other.
        for (status, reasons, verdict) in table {
            for &reason in *reasons {
                assert_eq!(with_reason(*status, reason), verdict(reason), "{status} {reason:?}");
                covered += 1;
            }
        }
        assert_eq!(covered, Reason::ALL.len(), "a reason is missing in this table");
    }

    #[test]
    fn the_time_at_which_a_token_died_comes_from_the_answer_and_is_never_in_the_future() {
        let gone_at =
            |timestamp: u64| match answer(410, &format!(r#"{{"reason":"Unregistered","timestamp":{timestamp}}}"#)) {
                Verdict::Rejected { gone_at, .. } => gone_at,
                other => panic!("{other:?}"),
            };
        assert_eq!(gone_at(1_700_000_000_000), Some(Timestamp(1_700_000_000_000)));
        assert_eq!(gone_at(NOW.0 + 1), Some(NOW));
    }

    #[test]
    fn a_stated_wait_counts() {
        let apns = crate::apns::Apns::new("api.push.apple.com").unwrap();
        let headers = HeaderMap::from_iter([(http::header::RETRY_AFTER, http::HeaderValue::from_static("7"))]);
        for status in [429, 500, 502, 503] {
            let verdict = apns.classify(StatusCode::from_u16(status).unwrap(), &headers, b"{}", NOW);
            let not_before = Duration::from_secs(7);
            assert_eq!(verdict, Verdict::Repeat { reason: Reason::Other.into(), advice: Advice::Wait, not_before });
        }
    }

    #[test]
    fn the_older_spelling_is_understood() {
        assert_eq!(
            answer(403, r#"{"reason":"BadEnvironmentKeyInToken"}"#),
            Verdict::Repeat {
                reason: Reason::BadEnvironmentKeyIdInToken.into(),
                advice: Advice::CredentialRefused,
                not_before: Duration::ZERO
            }
        );
    }

    #[test]
    fn a_fault_of_the_credential_is_never_blamed_on_a_device() {
        let about_credential = Reason::ALL.iter().filter(|reason| reason.is_about_credential());
        for (&reason, status) in about_credential.flat_map(|reason| [400, 401, 403, 410, 429].map(|it| (reason, it))) {
            let verdict = with_reason(status, reason);
            assert!(
                matches!(verdict, Verdict::Repeat { advice, .. } if advice != Advice::Wait),
                "{status} {verdict:?}"
            );
        }
    }

    #[test]
    fn without_a_known_reason_the_status_decides() {
        let other = crate::Reason::from(Reason::Other);
        for body in ["", "{", "[]", r#"{"reason":7}"#, r#"{"reason":"New"}"#, "\u{0}"] {
            assert_eq!(answer(400, body), Verdict::Rejected { reason: other, gone_at: None }, "{body}");
            assert_eq!(answer(410, body), Verdict::Rejected { reason: other, gone_at: Some(NOW) }, "{body}");
            assert_eq!(
                answer(502, body),
                Verdict::Repeat { reason: other, advice: Advice::Wait, not_before: Duration::ZERO },
                "{body}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_answer_breaks_us_and_only_200_is_success(
            status in 100u16..1000, body in proptest::collection::vec(any::<u8>(), 0..100)
        ) {
            let verdict = classify(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), &body, NOW);
            prop_assert_eq!(verdict == Verdict::Accepted, status == 200);
        }
    }
}
