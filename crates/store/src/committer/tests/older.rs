//! Data folders of earlier versions, byte by byte: this version reads them and goes on.

use tidings_types::{
    CollapseKey, Device, DeviceNumber, DeviceToken, JournalPosition, Json, ParamValue, PushPolicy, UserId,
};

use super::*;
use crate::hash::{hash16, hash32};

/// An event with every field that could be set then.
const FULL: &str = r#"{"id":"full","topic":"goal","subjects":["match:1","user:ann"],"params":{"minute":3,"odds":0.1,"who":"Åsa"},"data":{"a": [1]},"channels":["match:1"],"push":"always","collapse_key":"m-1","ttl":90}"#;
const PLAIN: &str = r#"{"id":"plain","topic":"goal","subjects":["match:1"],"push":"always","ttl":14400}"#;
const QUIET: &str = r#"{"id":"quiet","topic":"goal","subjects":["match:1"],"push":"never","ttl":14400}"#;
const PHONE: &str = r#"{"id":"phone","user":"ann","app":"com.example.app","platform":"ios","environment":"sandbox","token":"5f3a","locale":"pl","country":"PL","token_at":1000,"since":1}"#;
const TABLET: &str = r#"{"id":"tablet","app":"com.example.app","platform":"ios","environment":"production","locale":"sv","token_at":0,"since":1}"#;
/// A row of format 2: Android, production, granted, FCM; no user, country or time zone, seen on day 20 000.
const DROID: &[u8] = b"\x02\x49\x08\x05droid\x0fcom.example.app\x02pl\xe8\x07\x01\x09\xa0\x9c\x01cX:APA91b_-";
/// SHA-256 of "secret".
const SECRET: [u8; 32] = [
    0x2b, 0xb8, 0x0d, 0x53, 0x7b, 0x1d, 0xa3, 0xe3, 0x8b, 0xd3, 0x03, 0x61, 0xaa, 0x85, 0x56, 0x86, 0xbd, 0xe0, 0xea,
    0xcd, 0x71, 0x62, 0xfe, 0xf6, 0xa2, 0x5f, 0xe9, 0x7b, 0xf5, 0x27, 0xa2, 0x5b,
];
const JOB: &[u8] = br#"{"version":1,"state":"running","next":null,"outstanding":"","counts":{},"latency":null}"#;

/// As the version before push by evidence had them.
fn older_rows() -> Rows {
    let mut rows = Rows::default();
    rows.put(Table::Meta, b"format", "tidings-store-1");
    rows.put(
        Table::Meta,
        b"state",
        r#"{"commit":9,"journal_base":1,"journal_end":4,"journal_bytes":600,"device_next":2,"channel_count":1,"epoch":"AbCdEfGh"}"#,
    );
    rows.put(Table::Meta, b"dispatched", 3u64.to_be_bytes());
    for (position, id, json) in [(1u64, "full", FULL), (2, "plain", PLAIN), (3, "quiet", QUIET)] {
        let published = r#"[["match:1",{"offset":1,"epoch":"AbCdEfGh"}]]"#;
        let body = format!(r#"{{"published":{published},"event":{json}}}"#);
        let head = [&1000u64.to_be_bytes()[..], &hash16(id.as_bytes())].concat();
        rows.put(Table::Event, position.to_be_bytes(), [head, body.into_bytes()].concat());
        let known = [&position.to_be_bytes()[..], &hash32(json.as_bytes())].concat();
        rows.put(Table::EventId, hash16(id.as_bytes()), known);
    }
    rows.put(Table::Channel, b"match:1", r#"{"top":2,"base":1,"published_at":1000}"#);
    for (offset, publication) in [
        (1u64, r#"{"data":{"a": [1]},"tags":{"event":"full"},"time":1000}"#),
        (2, r#"{"data":"hi","info":{"user":"42"},"time":1000}"#),
    ] {
        let key = [&b"match:1\0"[..], &offset.to_be_bytes()].concat();
        rows.put(Table::History, key, format!(r#"{{"expires_at":9000,"publication":{publication}}}"#));
    }
    rows.put(Table::Job, 3u64.to_be_bytes(), JOB);
    let secret = format!("{SECRET:?}");
    for (number, id, row) in [
        (0u32, "phone", format!(r#"{{"device":{PHONE},"credential":{secret}}}"#)),
        (1, "tablet", format!(r#"{{"device":{TABLET}}}"#)),
    ] {
        rows.put(Table::Device, number.to_be_bytes(), row);
        rows.put(Table::DeviceId, id.as_bytes(), number.to_be_bytes());
    }
    rows.put(Table::Token, hash16(&[0x5f, 0x3a]), 0u32.to_be_bytes());
    rows.put(Table::Subscription, b"\0\0\0\x01team:1\0goal", []);
    rows
}

/// Rows as format 2 had them. It left older devices as they were; `droid` was written by format 2.
fn rows_of_format_2() -> Rows {
    let mut rows = older_rows();
    rows.put(Table::Meta, b"format", "tidings-store-2");
    let state = rows.get(Table::Meta, b"state").unwrap().unwrap();
    let state =
        String::from_utf8(state.to_vec()).unwrap().replace(r#""device_next":2"#, r#""device_next":3,"revision":9"#);
    rows.put(Table::Meta, b"state", state);
    rows.put(Table::Device, 2u32.to_be_bytes(), DROID);
    rows.put(Table::DeviceId, b"droid", 2u32.to_be_bytes());
    rows.put(Table::Token, hash16(b"fcm\0cX:APA91b_-"), 2u32.to_be_bytes());
    rows.put(Table::Subscription, b"\0\0\0\x02team:1\0goal", []);
    rows
}

fn raw(store: &Store, table: Table, key: &[u8]) -> Vec<u8> {
    let engine = store.shared().engine.read();
    engine.as_ref().unwrap().get(table, key).unwrap().unwrap().as_ref().to_vec()
}

fn open_older(folder: &std::path::Path) -> Store {
    drop(Engine::open(folder, 1 << 20, older_rows).unwrap());
    open(folder, Arc::default())
}

fn plain(id: &str, push: PushPolicy) -> Event {
    let subjects = vec![Subject::new("match:1").unwrap()];
    Event { push, ..Event::new(EventId::new(id).unwrap(), TopicName::new("goal").unwrap(), subjects) }
}

/// The first of them, as this version reads it from a producer.
fn full(push: PushPolicy) -> Event {
    let mut event = plain("full", push);
    event.subjects.push(Subject::new("user:ann").unwrap());
    event.params = [
        ("minute".to_owned(), ParamValue::Integer(3)),
        ("odds".to_owned(), ParamValue::Decimal(0.1)),
        ("who".to_owned(), ParamValue::Text("Åsa".to_owned())),
    ]
    .into();
    event.data = Some(Json::parse(br#"{"a": [1]}"#).unwrap());
    event.channels = vec![ChannelName::new("match:1").unwrap()];
    event.collapse_key = Some(CollapseKey::new("m-1").unwrap());
    event.ttl = Duration::from_secs(90);
    event
}

#[tokio::test]
async fn all_that_an_older_version_kept_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_older(folder.path());
    let events: Vec<Event> =
        store.events_from(JournalPosition(0), 9).unwrap().into_iter().map(|(_, accepted)| accepted.event).collect();
    let [full, loud, quiet] =
        [full(PushPolicy::Always), plain("plain", PushPolicy::Always), plain("quiet", PushPolicy::Never)];
    assert_eq!(events, [full.clone(), loud, quiet]);
    let kept = store.history(&ChannelName::new("match:1").unwrap(), Timestamp(1000)).unwrap();
    let kept: Vec<_> = kept.iter().map(|(offset, one)| (offset.0, one.data.as_str(), one.receipt)).collect();
    assert_eq!(kept, [(1, r#"{"a": [1]}"#, None), (2, r#""hi""#, None)]);
    assert_eq!((store.jobs().unwrap(), store.dispatched().unwrap().0), (vec![(JournalPosition(3), JOB.to_vec())], 3));
    let [phone, tablet] = ["phone", "tablet"].map(|name| DeviceId::new(name).unwrap());
    assert_eq!(serde_json::to_string(&store.device(&phone).unwrap()).unwrap(), PHONE);
    assert_eq!(serde_json::to_string(&store.device(&tablet).unwrap()).unwrap(), TABLET);
    assert_eq!(store.prove(&phone, Some("secret")).unwrap(), Some(DeviceNumber(0)));
    assert_eq!((store.prove(&phone, Some("Secret")).unwrap(), store.prove(&tablet, Some("")).unwrap()), (None, None));
    // Users are found although earlier versions did not keep them in memory.
    assert_eq!(store.select(&full).iter_from(DeviceNumber(0)).collect::<Vec<_>>(), [DeviceNumber(0)]);
    let to = Recipients { users: vec![UserId::new("ann").unwrap()], devices: vec![tablet], selector: None };
    let named = store.select(&Event { to: Some(to), ..full });
    assert_eq!(named.iter_from(DeviceNumber(0)).collect::<Vec<_>>(), [DeviceNumber(0), DeviceNumber(1)]);
    assert_eq!((store.counts().devices, store.counts().subscriptions), (2, 1));
    assert_eq!(
        store.append_events(super::event("new"), Timestamp(2000)).await.unwrap()[0].position(),
        Some(JournalPosition(4))
    );
}

#[tokio::test]
async fn a_store_of_format_1_is_marked_when_it_is_open_and_goes_on_in_ours() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_older(folder.path());
    assert_eq!(raw(&store, Table::Meta, b"format"), b"tidings-store-4");
    let tablet = DeviceId::new("tablet").unwrap();
    let (_, secret) = store.rotate_credential(&tablet).await.unwrap().unwrap();
    assert_eq!([0, 1].map(|number| raw(&store, Table::Device, &[0, 0, 0, number])[0]), [b'{', 2]);
    store.close().await;
    let store = open(folder.path(), Arc::default());
    assert_eq!(store.prove(&tablet, Some(secret.as_str())).unwrap(), Some(DeviceNumber(1)));
    let devices = store.devices(None, 9).unwrap();
    let spelt: Vec<_> = devices.iter().map(|device| serde_json::to_string(device).unwrap()).collect();
    assert_eq!(spelt[0], PHONE);
    assert_eq!((&devices[1].id, devices[1].token_at, store.counts().subscriptions), (&tablet, Timestamp(0), 1));
}

#[tokio::test]
async fn a_store_of_format_2_is_read_row_by_row_and_a_row_is_ours_when_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    drop(Engine::open(folder.path(), 1 << 20, rows_of_format_2).unwrap());
    let store = open(folder.path(), Arc::default());
    assert_eq!(raw(&store, Table::Meta, b"format"), b"tidings-store-4");
    let (id, token) = (DeviceId::new("droid").unwrap(), DeviceToken::fcm("cX:APA91b_-").unwrap());
    let droid = store.device(&id).unwrap().unwrap();
    assert_eq!((droid.token.as_ref(), droid.token_at, droid.since.0), (Some(&token), Timestamp(1000), 1));
    assert_eq!((droid.revision, droid.seen_at), (9, Timestamp(20_000 * 24 * 3600 * 1000)));
    assert_eq!(store.device_by_token(&token).unwrap().as_ref(), Some(&droid));
    let spelt: Vec<_> = store.devices(None, 9).unwrap().iter().map(|it| serde_json::to_string(it).unwrap()).collect();
    assert_eq!(spelt[1..], [PHONE, TABLET]);
    assert_eq!(raw(&store, Table::Device, &[0, 0, 0, 2]), DROID);
    store.rotate_credential(&id).await.unwrap().unwrap();
    let ours = raw(&store, Table::Device, &[0, 0, 0, 2]);
    assert!(ours.ends_with(b"\0\x06qp\x0f\x03\xdd[\xff\xe0"), "{}", ours.escape_ascii());
    store.close().await;
    let store = open(folder.path(), Arc::default());
    let read = store.device(&id).unwrap().unwrap();
    assert_eq!((read.revision, Device { revision: 9, ..read.clone() }), (10, droid));
    assert_eq!(store.device_by_token(&token).unwrap().as_ref(), Some(&read));
    assert_eq!((store.counts().devices, store.counts().subscriptions), (3, 2));
}

#[tokio::test]
async fn an_event_that_an_older_version_accepted_is_known_when_it_is_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_older(folder.path());
    let append = async |event: Event| {
        let new = vec![NewEvent { event, channels: vec![], audience_max: None }];
        store
            .append_events(new, Timestamp(2000))
            .await
            .map(|appended| (appended[0].position().unwrap().0, appended[0].repeated))
    };
    let (always, unsaid, never) = (PushPolicy::Always, PushPolicy::default(), PushPolicy::Never);
    for push in [always, unsaid] {
        assert_eq!(append(full(push)).await, Ok((1, true)), "{push:?}");
        assert_eq!(append(plain("plain", push)).await, Ok((2, true)), "{push:?}");
        assert!(append(plain("quiet", push)).await.is_err(), "{push:?}");
    }
    assert_eq!(append(plain("quiet", never)).await, Ok((3, true)));
    // Other content, and fields that did not exist then.
    let said = |change: fn(&mut Event)| {
        let mut event = plain("plain", unsaid);
        change(&mut event);
        event
    };
    for other in [
        plain("plain", never),
        said(|event| event.ttl = Duration::from_secs(1)),
        said(|event| event.receipt = true),
        said(|event| event.receipt_wait = Duration::from_secs(3)),
        said(|event| event.receipt_policy = tidings_types::ReceiptPolicy::Any),
        said(|event| event.present.badge = Some(1)),
    ] {
        assert!(append(other.clone()).await.is_err(), "{other:?}");
    }
    // In events of this version the policy is content like every other field.
    assert_eq!(append(plain("new", always)).await, Ok((4, false)));
    assert!(append(plain("new", unsaid)).await.is_err());
    assert_eq!(append(plain("newer", unsaid)).await, Ok((5, false)));
    assert!(append(plain("newer", always)).await.is_err());
    assert_eq!(append(plain("newer", unsaid)).await, Ok((5, true)));
}
