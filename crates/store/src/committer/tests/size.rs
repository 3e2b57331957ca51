//! What a subscription costs on the disk, table by table; to be looked at, so it is not run by itself:
//! `cargo test -p tidings-store size -- --ignored --nocapture`.

use tidings_types::{Country, DeviceToken};

use super::*;
use crate::rows;
use crate::NewImport;

const DEVICE_COUNT: u64 = 200_000;
const SUBSCRIPTION_COUNT: u64 = 5;

/// Bits of a number that look random (G. Steele and others, 2014).
fn mix(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn token(number: u64) -> DeviceToken {
    let byte = |place: u64| (mix(number << 8 | place) >> 8) as u8;
    if number.is_multiple_of(2) {
        return DeviceToken::from(&(0..32).map(byte).collect::<Vec<_>>()[..]);
    }
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let text = |places: std::ops::Range<u64>| places.map(|place| LETTERS[usize::from(byte(place) % 64)] as char);
    let text: String = text(0..22).chain(":APA91b".chars()).chain(text(22..156)).collect();
    DeviceToken::fcm(&text).unwrap()
}

fn import(number: u64) -> NewImport {
    let subject = |place| {
        // The chance of a subject falls with its rank, as in life.
        let share = (mix(number << 16 | place) >> 11) as f64 / (1_u64 << 53) as f64;
        (share * (DEVICE_COUNT as f64 / 10.0).ln()).exp() as u64
    };
    let topic = |place| if mix(number << 24 | place).is_multiple_of(4) { "red_card" } else { "goal" };
    let pairs = (0..SUBSCRIPTION_COUNT).map(|place| {
        (Subject::new(&format!("team:{}", subject(place))).unwrap(), TopicName::new(topic(place)).unwrap())
    });
    let locale = ["en", "de", "fr", "es", "pt-BR", "ja", "pl", "ar"][(mix(number) % 8) as usize];
    let device = NewDevice {
        app: AppId::new("com.example.bench").unwrap(),
        platform: if number.is_multiple_of(2) { Platform::Ios } else { Platform::Android },
        environment: Environment::Production,
        token: Some(token(number)),
        locale: Locale::new(locale).unwrap(),
        country: Country::new("SE").ok(),
        ..device(&format!("{:016x}", mix(number)))
    };
    let credential = Some(format!("{number}").into());
    NewImport { subscriptions: pairs.collect(), credential, proven: true, ..device.into() }
}

/// The rows of a device as the committer writes them, without the store.
#[test]
#[ignore = "a measurement"]
fn bytes_of_the_tables() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::open(folder.path(), 1 << 20, Rows::default).unwrap();
    let mut subscriptions = 0;
    for start in (0..DEVICE_COUNT).step_by(1000) {
        let mut rows = Rows::default();
        for number in start..start + 1000 {
            let import = import(number);
            let number = DeviceNumber(number as u32);
            let new = import.device;
            let device = tidings_types::Device {
                id: new.id, user: new.user, app: new.app, platform: new.platform, environment: new.environment,
                token: new.token, locale: new.locale, country: new.country, time_zone: new.time_zone,
                push_permission: new.push_permission, token_at: Timestamp(1_795_000_000_000 + start),
                since: JournalPosition(1), revision: u64::from(number.0), seen_at: Timestamp(20775 * 86_400_000),
            };
            rows.put(Table::Token, rows::token_key(device.token.as_ref().unwrap()), rows::number_key(number));
            rows.put(Table::DeviceId, rows::device_id_key(&device.id), rows::number_key(number));
            let credential = Some(crate::hash::hash32(&number.0.to_be_bytes()));
            rows.put(Table::Device, rows::number_key(number), rows::encode_device(&rows::DeviceRow { device, credential }));
            let unique: std::collections::BTreeSet<_> = import.subscriptions.into_iter().collect();
            for (subject, topic) in unique {
                rows.put(Table::Subscription, rows::subscription_key(number, &subject, &topic), []);
                subscriptions += 1;
            }
        }
        engine.commit(rows, Durability::Handed).unwrap();
    }
    print_tables(&engine, subscriptions);
    drop(engine);
    print_files(folder.path(), subscriptions);
}

fn print_tables(engine: &Engine, subscriptions: u64) {
    let per_subscription = |bytes: u64| bytes as f64 / subscriptions as f64;
    let tables = engine.compact();
    for (table, bytes) in tables.iter().filter(|(_, bytes)| *bytes > 0) {
        println!("{table:>12} {bytes:>10} {:5.1} B", per_subscription(*bytes));
    }
    println!("{:>12} {:5.1} B", "tables", per_subscription(tables.iter().map(|(_, bytes)| bytes).sum()));
}

#[tokio::test]
#[ignore = "a measurement"]
async fn bytes_per_subscription() {
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig { device_count_max: u32::MAX, ..config(folder.path()) };
    let config = StoreConfig { import_queue: QueueLimit { count: 64, bytes: 1 << 30 }, ..config };
    let store = Store::open(config.clone(), Arc::<Sink>::default()).unwrap();
    for start in (0..DEVICE_COUNT).step_by(10_000) {
        let devices = (start..start + 10_000).map(import).collect();
        store.import_devices(devices, None, Timestamp(1_795_000_000_000 + start)).await.unwrap();
    }
    let subscriptions = store.counts().subscriptions;
    print_tables(store.shared().engine.read().unwrap().as_ref().unwrap(), subscriptions);
    store.close().await;
    drop(store);
    let store = Store::open(config, Arc::<Sink>::default()).unwrap(); // A second time, so that old journals go.
    assert_eq!(store.counts().subscriptions, subscriptions);
    store.close().await;
    print_files(folder.path(), subscriptions);
}

fn print_files(folder: &std::path::Path, subscriptions: u64) {
    use std::os::unix::fs::MetadataExt as _;
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let mut sum = 0;
        for entry in std::fs::read_dir(&next).unwrap().map(Result::unwrap) {
            let meta = entry.metadata().unwrap();
            if meta.is_dir() { folders.push(entry.path()) } else { sum += meta.blocks() * 512 }
        }
        if sum >= subscriptions / 20 {
            println!("{:5.1} B  {}", sum as f64 / subscriptions as f64, next.display());
        }
    }
}
