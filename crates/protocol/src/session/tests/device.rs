//! On which device a client runs, how a refresh changes that, and whether its app is on the screen.

use super::*;
use crate::{DeviceClaim, Introduction};

#[test]
fn the_one_rpc_says_whether_the_app_is_on_the_screen() {
    let hidden = r#""rpc":{"data":{"device":null,"ttl":0}}"#;
    check(
        &mut session("42"),
        &[
            (r#""rpc":{}"#, "error 108"),
            (r#""rpc":{"method":"tidings.invisible","data":{"visible":true}}"#, "error 108"),
            (r#""rpc":{"method":"tidings.visible"}"#, "error 107"),
            (r#""rpc":{"method":"tidings.visible","data":{"ttl":9}}"#, "error 107"),
            (
                r#""rpc":{"method":"tidings.visible","data":{"visible":true,"ttl":30}}"#,
                r#""rpc":{"data":{"device":null,"ttl":30}}"#,
            ),
            (
                r#""rpc":{"method":"tidings.visible","data":{"visible":true,"ttl":300}}"#,
                r#""rpc":{"data":{"device":null,"ttl":60}}"#,
            ),
            (r#""rpc":{"method":"tidings.visible","data":{"visible":false,"ttl":30}}"#, hidden),
        ],
    );
    let (mut session, _) = introduced("", r#"{"tidings":{"device":"phone-1","credential":"c"}}"#);
    check(
        &mut session,
        &[(
            r#""rpc":{"method":"tidings.visible","data":{"visible":true}}"#,
            r#""rpc":{"data":{"device":"phone-1","ttl":60}}"#,
        )],
    );
    let command = r#"{"id":5,"rpc":{"method":"tidings.visible","data":{"visible":true}}}"#;
    let Effect::Visible { ticket, visible } =
        session.handle(parse_frame(Format::Json, command.as_bytes()).next().unwrap().unwrap(), NOW)
    else {
        panic!("not visible")
    };
    session.close();
    assert_eq!(session.on_visible(ticket, None, visible), None, "nothing is answered after the end");
}

/// A connection that says `data` of itself, and what the driver is told of it.
pub(super) fn introduced(token: &str, data: &str) -> (Session, Introduction) {
    let mut session = new_session(config());
    let command = format!(r#"{{"id":1,"connect":{{"token":"{token}","data":{data}}}}}"#);
    match session.handle(parse_frame(Format::Json, command.as_bytes()).next().unwrap().unwrap(), NOW) {
        Effect::Connect(effect) => {
            let introduction = effect.introduction.clone();
            assert!(connected(&mut session, *effect, NOW).is_some());
            (session, introduction)
        }
        other => panic!("{data}: {other:?}"),
    }
}

pub(super) fn device_token(user: &str, device: &str) -> String {
    let device = Some(DeviceId::new(device).unwrap());
    sign_connection_token(&secret(), &Admission { user: user.to_owned(), device, ..Admission::default() }, NOW)
}

#[test]
fn a_device_comes_from_the_token_or_with_its_credential() {
    let data = r#"{"tidings":{"device":"tablet","credential":"c","visible":true,"ttl":7}}"#;
    let (session, introduction) = introduced(&device_token("42", "phone-1"), data);
    assert_eq!(session.device().map(DeviceId::as_str), Some("phone-1"));
    assert!(matches!(introduction.device, Some(DeviceClaim::Signed(_))));
    assert_eq!(introduction.visible, Some(Duration::from_secs(7)));

    let (session, introduction) = introduced("", data);
    assert_eq!(session.device().map(DeviceId::as_str), Some("tablet"));
    assert!(matches!(introduction.device, Some(DeviceClaim::Credential { .. })));

    for data in ["null", "7", r#"{"tidings":[]}"#, r#"{"tidings":{"device":"tablet"}}"#] {
        let (session, introduction) = introduced("", data);
        assert_eq!((session.device(), introduction), (None, Introduction::default()), "{data}");
    }
    let mut refused = new_session(config());
    let token = odd_token(serde_json::json!({"sub": "42", "device": "my phone"}));
    assert_eq!(run(&mut refused, &format!(r#"{{"id":1,"connect":{{"token":"{token}"}}}}"#)), "cut 3500");
    assert_eq!(refused.device(), None);
}

#[test]
fn a_refresh_changes_no_device() {
    let credential = r#"{"tidings":{"device":"phone-1","credential":"c"}}"#;
    let plain = connection_token("42", None);
    for (token, data, refresh, expected) in [
        (device_token("42", "phone-1"), "{}", device_token("42", "phone-1"), r#""refresh":{}"#),
        (device_token("42", "phone-1"), "{}", plain.clone(), r#""refresh":{}"#),
        (device_token("42", "phone-1"), "{}", device_token("42", "tablet"), "cut 3500"),
        (device_token("42", "phone-1"), "{}", device_token("43", "phone-1"), "cut 3500"),
        (plain.clone(), credential, device_token("42", "phone-1"), r#""refresh":{}"#),
        (plain.clone(), credential, device_token("42", "tablet"), "cut 3500"),
        (plain.clone(), "{}", device_token("42", "tablet"), r#""refresh":{}"#),
    ] {
        let (mut session, _) = introduced(&token, data);
        let before = session.device().cloned();
        check(&mut session, &[(&format!(r#""refresh":{{"token":"{refresh}"}}"#), expected)]);
        assert_eq!(session.device(), before.as_ref());
    }
}
