//! A notification as a request to FCM.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::uri::InvalidUri;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use tidings_types::{DeviceToken, Provider, Timestamp};

use super::{Reason, classify};
use crate::notification::Form;
use crate::payload::{FCM_ENVELOPE_BYTES_MAX, FCM_PAYLOAD_BYTES_MAX};
use crate::{Dialect, Notification, Verdict};

/// Bytes of a token (`tidings_types`).
const TOKEN_BYTES_MAX: usize = 4096;
/// FCM keeps a message for four weeks at most.
const TTL_SECS_MAX: u64 = 28 * 24 * 3600;
/// Google's longest project id has 30.
const PROJECT_BYTES_MAX: usize = 64;

/// A project or its address is malformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProjectError {
    /// The project id does not have Google's form.
    #[error("the project id must be 1 to {PROJECT_BYTES_MAX} letters, digits, hyphens, dots or colons, got {0:?}")]
    Id(String),
    /// Not an authority.
    #[error("the address must be host or host:port, got {0:?}")]
    Authority(String),
}

/// The dialect of one Firebase project.
#[derive(Debug, Clone)]
pub struct Fcm {
    uri: Uri,
}

impl Fcm {
    /// Requests to `authority`, `host` or `host:port`, for `project`.
    ///
    /// # Errors
    /// When either is malformed.
    pub fn new(authority: &str, project: &str) -> Result<Self, ProjectError> {
        check_project(project)?;
        let is_authority = |_: InvalidUri| ProjectError::Authority(cut(authority));
        let authority: http::uri::Authority = authority.parse().map_err(is_authority)?;
        let uri = format!("https://{authority}/v1/projects/{project}/messages:send");
        Ok(Self { uri: uri.parse().expect("an authority and a path of visible ASCII make a URI") })
    }
}

/// Checks that a project id can be a part of a URL.
pub(super) fn check_project(project: &str) -> Result<(), ProjectError> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':');
    let is_valid = !project.is_empty() && project.len() <= PROJECT_BYTES_MAX && project.bytes().all(is_part);
    is_valid.then_some(()).ok_or_else(|| ProjectError::Id(cut(project)))
}

fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}

impl Dialect for Fcm {
    fn provider(&self) -> Provider {
        Provider::Fcm
    }

    fn request(
        &self,
        notification: &Notification,
        authorization: Option<&HeaderValue>,
        _random: &mut dyn FnMut(&mut [u8]),
        now: Timestamp,
    ) -> Result<(Request<()>, Bytes), crate::Reason> {
        let (Form::Fcm(body), DeviceToken::Fcm(token)) = (notification.rendering.form(), &notification.token) else {
            return Err(Reason::Other.into()); // It belongs to another provider: the sender chose a wrong pool.
        };
        if token.bytes().any(|byte| matches!(byte, b'"' | b'\\')) {
            return Err(Reason::InvalidToken.into()); // Google's tokens have none of them, and JSON would escape them.
        }
        let ttl = notification.rendering.expires_at().saturating_since(now).as_secs().min(TTL_SECS_MAX);
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(authorization) = authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        Ok((request, body.request_body(token, ttl).into()))
    }

    fn classify(&self, status: StatusCode, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Verdict {
        classify(status, headers, body, now)
    }

    fn proves_first(&self) -> bool {
        false
    }

    fn payload_bytes_max(&self) -> usize {
        FCM_PAYLOAD_BYTES_MAX + TOKEN_BYTES_MAX + FCM_ENVELOPE_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tidings_types::{CollapseKey, EventId, Json, Payload, Present};

    use super::*;
    use crate::notification::tests::{notification, notification_of};
    use crate::payload::{Content, Encoded};

    fn encoded(patch: Option<Value>) -> Encoded {
        let (present, event) = (Present::default(), EventId::new("goal-1").unwrap());
        let patches = Payload { fcm: patch.map(|patch| Json::of(&patch)), ..Payload::default() };
        let content = Content {
            title: "Goal",
            body: "1 : 0",
            present: &present,
            thread: None,
            event: &event,
            stream: None,
            data: None,
            patches: &patches,
            urgency: None,
            collapse_id: &CollapseKey::new("match-7").unwrap(),
        };
        content.encode(Provider::Fcm).unwrap()
    }

    /// The request's body as JSON, an hour and a bit before the rendering expires.
    fn body(encoded: Encoded, token: &str) -> Value {
        let notification = notification_of(encoded, DeviceToken::fcm(token).unwrap(), 1);
        let fcm = Fcm::new("fcm.example:8443", "scores-1").unwrap();
        let authorization = HeaderValue::from_static("Bearer x");
        let now = Timestamp(notification.rendering.expires_at().0 - 3_600_900);
        let mut no_random = |_: &mut [u8]| panic!("FCM needs none");
        let (request, body) = fcm.request(&notification, Some(&authorization), &mut no_random, now).unwrap();
        assert_eq!((request.method(), request.headers().len()), (&Method::POST, 2));
        assert_eq!(request.uri(), "https://fcm.example:8443/v1/projects/scores-1/messages:send");
        assert_eq!(
            (&request.headers()[AUTHORIZATION], &request.headers()[CONTENT_TYPE]),
            (&authorization, &"application/json".parse().unwrap())
        );
        assert!(body.len() <= notification.rendering.payload_bytes() + token.len());
        serde_json::from_slice(&body).unwrap()
    }

    #[test]
    fn token_and_time_to_live_are_put_into_the_message() {
        let whole = body(encoded(None), "abc:DEF_1-2");
        assert_eq!(
            whole,
            json!({"message": {
                "token": "abc:DEF_1-2",
                "android": {"ttl": "3600s", "priority": "HIGH", "notification": {"tag": "match-7", "sound": "default"}},
                "data": {"tidings.event": "goal-1"},
                "notification": {"title": "Goal", "body": "1 : 0"},
            }})
        );
        let nothing_of_android = json!({"android": {"priority": null, "notification": null}});
        assert_eq!(body(encoded(Some(nothing_of_android)), "a")["message"]["android"], json!({"ttl": "3600s"}));
        let own = json!({"android": {"ttl": "5s"}, "apns": {"headers": {"apns-priority": "5"}}, "a": 1});
        let whole = body(encoded(Some(own)), "a");
        assert_eq!(whole["message"]["android"]["ttl"], "5s", "the producer's own");
        assert_eq!((&whole["message"]["a"], &whole["message"]["token"]), (&json!(1), &json!("a")));
    }

    #[test]
    fn a_dry_run_is_only_validated() {
        let encoded = encoded(None);
        assert!(body(encoded.clone(), "a").get("validate_only").is_none());
        let dry = body(encoded.into_dry_run().unwrap(), "a");
        assert_eq!((&dry["validate_only"], &dry["message"]["token"]), (&json!(true), &json!("a")));
    }

    #[test]
    fn what_can_never_be_sent_is_refused() {
        let fcm = Fcm::new("fcm.example", "p").unwrap();
        let ask = |notification: &Notification| fcm.request(notification, None, &mut |_| {}, Timestamp(0)).unwrap_err();
        for token in [r#"a"}"#, r"a\"] {
            let to = notification_of(encoded(None), DeviceToken::fcm(token).unwrap(), 1);
            assert_eq!(ask(&to), Reason::InvalidToken.into());
        }
        assert_eq!(ask(&notification(1)), Reason::Other.into());
    }

    #[test]
    fn the_longest_life_is_four_weeks() {
        let to = notification_of(encoded(None), DeviceToken::fcm("a").unwrap(), 1);
        let fcm = Fcm::new("fcm.example", "p").unwrap();
        let (_, body) = fcm.request(&to, None, &mut |_| {}, Timestamp(0)).unwrap();
        assert!(body.starts_with(br#"{"message":{"android":{"ttl":"2419200s","#));
    }

    #[test]
    fn a_project_or_address_that_is_none_is_refused() {
        for project in ["", "a/b", "a b", "é", &"x".repeat(65)] {
            assert!(matches!(Fcm::new("fcm.example", project), Err(ProjectError::Id(_))), "{project}");
        }
        for authority in ["", "a b", "https://a"] {
            assert!(matches!(Fcm::new(authority, "p"), Err(ProjectError::Authority(_))), "{authority}");
        }
        assert!(Fcm::new("127.0.0.1:1", "example.com:scores-1").is_ok());
    }
}
