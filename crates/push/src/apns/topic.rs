//! The kind of push that an app's id requires.
//!
//! The id of an app is its APNs topic. The topic of a token for calls, a widget or the like is the bundle id with a suffix,
//! and APNs takes only that kind of push for it (Apple, "Sending notification requests to APNs", `apns-push-type`). So the
//! suffix alone decides the kind.
//!
//! Without such a suffix, the payload decides between alert and background. If the bundle id itself ends with such a suffix,
//! the app cannot be distinguished from one for calls or widgets.
//!
//! Not supported: Live Activities ([`check_app`] refuses them), and MDM, because its payload is a secret of each device.

use tidings_types::AppId;

use crate::kind::{Priority, PushType};
use crate::payload::ApnsBody;

const SUFFIXES: [(&str, PushType); 7] = [
    (".voip", PushType::Voip),
    (".voip-ptt", PushType::PushToTalk),
    (".complication", PushType::Complication),
    (".pushkit.fileprovider", PushType::FileProvider),
    (".location-query", PushType::Location),
    (".push-type.widgets", PushType::Widgets),
    (".push-type.controls", PushType::Controls),
];

const LIVE_ACTIVITY_SUFFIX: &str = ".push-type.liveactivity";

/// Nothing can be sent to this app.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{app} is a topic of Live Activities, which are not supported yet")]
pub struct UnsupportedApp {
    /// Its id.
    pub app: AppId,
}

/// Checks that the app's kind of push is supported.
///
/// # Errors
/// When its id is the topic of Live Activities.
pub fn check_app(app: &AppId) -> Result<(), UnsupportedApp> {
    if app.as_str().ends_with(LIVE_ACTIVITY_SUFFIX) { Err(UnsupportedApp { app: app.clone() }) } else { Ok(()) }
}

/// The body for an app: with the app's kind of push, and the priority that this kind allows.
pub(crate) fn addressed(body: ApnsBody, app: &AppId) -> ApnsBody {
    let own = SUFFIXES.iter().find(|(suffix, _)| app.as_str().ends_with(suffix)).map(|(_, own)| *own);
    let push_type = own.unwrap_or(body.push_type);
    let priority = match push_type {
        PushType::Background => Priority::Considerate,
        PushType::Voip | PushType::PushToTalk => Priority::Immediate,
        _ => body.priority,
    };
    ApnsBody { push_type, priority, ..body }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn sent(app: &str, push_type: PushType, priority: Priority) -> (&'static str, &'static str) {
        let body = ApnsBody { bytes: Bytes::from_static(b"{}"), push_type, priority };
        let ApnsBody { push_type, priority, .. } = addressed(body, &AppId::new(app).unwrap());
        (push_type.as_str(), priority.as_str())
    }

    #[test]
    fn the_suffix_decides_the_kind_and_the_kind_limits_the_priority() {
        use Priority::{Considerate, Immediate, PowerFirst};
        for shape in [PushType::Alert, PushType::Background] {
            for (app, kind) in [
                ("a.b.complication", "complication"),
                ("a.b.pushkit.fileprovider", "fileprovider"),
                ("a.b.location-query", "location"),
                ("a.b.push-type.widgets", "widgets"),
                ("a.b.push-type.controls", "controls"),
            ] {
                assert_eq!(sent(app, shape, Immediate), (kind, "10"));
                assert_eq!(sent(app, shape, Considerate), (kind, "5"));
                assert_eq!(sent(app, shape, PowerFirst), (kind, "1"));
            }
            for priority in [Immediate, Considerate, PowerFirst] {
                assert_eq!(sent("a.b.voip", shape, priority), ("voip", "10"));
                assert_eq!(sent("a.b.voip-ptt", shape, priority), ("pushtotalk", "10"));
            }
        }
    }

    #[test]
    fn without_a_suffix_the_payload_decides() {
        for app in ["a.b", "a.bvoip", "a.voip.b", "a.b.voip-p", "a.b.VOIP", "a.b.push-type", "a.b.widgets"] {
            assert_eq!(sent(app, PushType::Alert, Priority::PowerFirst), ("alert", "1"), "{app}");
            assert_eq!(sent(app, PushType::Background, Priority::Immediate), ("background", "5"), "{app}");
        }
    }

    #[test]
    fn live_activities_are_refused() {
        let check = |app: &str| check_app(&AppId::new(app).unwrap());
        for (suffix, _) in SUFFIXES {
            assert_eq!(check(&format!("a.b{suffix}")), Ok(()));
        }
        assert_eq!(check("a.b"), Ok(()));
        assert_eq!(
            check("a.b.push-type.liveactivity").unwrap_err().to_string(),
            "a.b.push-type.liveactivity is a topic of Live Activities, which are not supported yet"
        );
    }
}
