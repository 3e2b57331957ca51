//! The table beside a model of plain devices: set, removed, collected, through checkpoints, restarts and damage.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use proptest::prelude::*;
use tempfile::TempDir;
use tidings_types::{
    AppId, Country, DeviceId, DeviceToken, Environment, JournalPosition, Locale, Platform, Provider, PushPermission,
    TimeZone, Timestamp,
};

use super::*;

/// Numbers that a device may have: three parts of a checkpoint.
const NUMBER_COUNT: u32 = 90;

fn device(number: u32, version: u32, is_large: bool) -> Device {
    let pick = number.wrapping_mul(7).wrapping_add(version);
    let text = "t".repeat(if is_large { 2000 } else { 150 });
    let point = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
    let token = match pick % 5 {
        _ if is_large => DeviceToken::fcm(&format!("{text}{pick}")).ok(),
        0 => None,
        1 | 2 => Some(DeviceToken::from([pick as u8; 32].as_slice())),
        3 => DeviceToken::fcm(&format!("{text}{pick}")).ok(),
        _ => DeviceToken::web_push(&format!("https://push.example/{pick}"), point, "BTBZMqHH6r4Tts7J_aSIgg").ok(),
    };
    Device {
        id: DeviceId::new(&format!("phone-{number}-{}", "x".repeat(pick as usize % 100))).unwrap(),
        user: None,
        app: AppId::new(&format!("app-{}", pick % 3)).unwrap(),
        platform: Platform::ALL[pick as usize % 3],
        environment: if pick.is_multiple_of(4) { Environment::Sandbox } else { Environment::Production },
        token,
        locale: Locale::new(["en", "pt-BR", "zh-Hant-TW"][pick as usize % 3]).unwrap(),
        country: (!pick.is_multiple_of(3)).then(|| Country::new(["SE", "BR"][pick as usize % 2]).unwrap()),
        time_zone: (!pick.is_multiple_of(4)).then(|| TimeZone::new(["UTC", "Asia/Tokyo"][pick as usize % 2]).unwrap()),
        push_permission: PushPermission::ALL[pick as usize % 4],
        token_at: Timestamp(0),
        since: JournalPosition(u64::from(version) << 40 | u64::from(number)),
        revision: 0,
        seen_at: Timestamp(0),
    }
}

#[test]
fn of_two_records_with_one_id_none_is_believed() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = DeviceTable::create(folder.path()).unwrap();
    let (one, other) = (device(1, 0, false), Device { id: device(1, 0, false).id, ..device(2, 0, false) });
    let hint = |table: &DeviceTable| table.number_of(&one.id);
    table.set_reserving(DeviceNumber(1), one.clone());
    assert_eq!(hint(&table), None, "only rows say so");
    table.hint_at(&one.id, DeviceNumber(1));
    assert_eq!(hint(&table), Some(DeviceNumber(1)));
    table.set_reserving(DeviceNumber(2), other);
    table.hint_at_rows(&[(one.id.clone(), DeviceNumber(2))], None);
    assert_eq!(hint(&table), None);
    table.hint_at(&one.id, DeviceNumber(2));
    assert_eq!(hint(&table), Some(DeviceNumber(2)), "a row that is new decides");
    table.remove(DeviceNumber(2));
    assert_eq!(hint(&table), None);
}

/// All that a recipient tells, as text.
fn told(recipient: &Recipient<'_>) -> String {
    let token = recipient.token.map(|token| (token.to_token().to_text().into_owned(), token.to_token()));
    let keys = token.as_ref().map(|(_, token)| serde_json::to_string(token).unwrap());
    let Recipient { number, id, proven, app, platform, environment, locale, country, time_zone, since, .. } = recipient;
    let permission = recipient.push_permission;
    format!(
        "{number:?} {id} {proven} {app} {platform:?} {environment:?} {locale} {country:?} {time_zone:?} {permission:?} {since:?} {keys:?}"
    )
}

/// The table and what must be in it.
struct World {
    folder: TempDir,
    table: DeviceTable,
    devices: BTreeMap<u32, Device>,
    /// The last checkpoint's parts, and what changed since it began.
    checkpoint: Option<Vec<Vec<u8>>>,
    changed: BTreeSet<u32>,
    version: u32,
    is_damaged: bool,
    /// The devices of so many versions have an app of their own, so that apps come and go.
    versions_per_app: Option<u32>,
}

#[derive(Debug, Clone)]
enum Act {
    Set {
        numbers: Vec<u32>,
        is_large: bool,
    },
    Remove(Vec<u32>),
    Collect(usize),
    /// With changes and collecting between its parts.
    Checkpoint {
        between: Vec<u32>,
        fails: bool,
    },
    /// Without the last checkpoint everything is set anew.
    Restart {
        with_checkpoint: bool,
    },
    /// Bytes of a segment change.
    Damage(prop::sample::Index),
    Proven(Vec<u32>),
}

fn act() -> impl Strategy<Value = Act> {
    let numbers = || prop::collection::vec(0..NUMBER_COUNT, 0..40);
    prop_oneof![
        6 => (numbers(), any::<bool>()).prop_map(|(numbers, is_large)| Act::Set { numbers, is_large }),
        2 => numbers().prop_map(Act::Remove),
        2 => (1..12_usize).prop_map(Act::Collect),
        2 => (numbers(), any::<bool>()).prop_map(|(between, fails)| Act::Checkpoint { between, fails }),
        1 => any::<bool>().prop_map(|with_checkpoint| Act::Restart { with_checkpoint }),
        1 => any::<prop::sample::Index>().prop_map(Act::Damage),
        1 => numbers().prop_map(Act::Proven),
    ]
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let table = DeviceTable::create(folder.path()).unwrap();
        let (devices, changed) = (BTreeMap::new(), BTreeSet::new());
        Self {
            folder,
            table,
            devices,
            checkpoint: None,
            changed,
            version: 0,
            is_damaged: false,
            versions_per_app: None,
        }
    }

    fn set(&mut self, number: u32, is_large: bool) {
        self.version += 1;
        let mut device = device(number, self.version, is_large);
        if let Some(versions) = self.versions_per_app {
            device.app = AppId::new(&format!("app-of-{}", self.version / versions)).unwrap();
        }
        self.table.heap.reserve(DeviceTable::room_for(&device)).unwrap();
        self.table.set(DeviceNumber(number), device.clone());
        assert!(self.table.resident.is_empty(), "there was room");
        self.devices.insert(number, device);
        self.changed.insert(number);
    }

    fn apply(&mut self, act: Act) {
        match act {
            Act::Set { numbers, is_large } => numbers.into_iter().for_each(|number| self.set(number, is_large)),
            Act::Remove(numbers) => numbers.into_iter().for_each(|number| {
                self.table.remove(DeviceNumber(number));
                self.devices.remove(&number);
                self.changed.insert(number);
            }),
            Act::Collect(count) => drop((0..count).map(|_| self.table.collect()).collect::<Vec<_>>()),
            Act::Checkpoint { between, fails } => self.checkpoint(&between, fails),
            Act::Restart { with_checkpoint } => self.restart(with_checkpoint),
            Act::Damage(at) => self.damage(at),
            Act::Proven(numbers) => self.table.set_proven_chunk(0, &numbers.into_iter().collect()),
        }
        self.table.flush();
    }

    fn checkpoint(&mut self, between: &[u32], fails: bool) {
        let before = std::mem::take(&mut self.changed);
        self.table.begin_checkpoint();
        let mut parts = Vec::new();
        while (parts.len() as u32) < self.table.part_count() {
            let mut bytes = Vec::new();
            self.table.encode(parts.len() as u32, &mut bytes);
            parts.push(bytes);
            between.iter().for_each(|number| self.set(*number, number % 2 == 0));
            self.table.collect();
        }
        self.table.end_checkpoint();
        if fails {
            self.changed.extend(before);
        } else {
            self.checkpoint = Some(parts);
            self.table.take_retired().delete().unwrap();
        }
    }

    fn restart(&mut self, with_checkpoint: bool) {
        let proven = self.table.proven_chunk(0);
        self.table.flush();
        let checkpoint = self.checkpoint.take().filter(|_| with_checkpoint);
        match checkpoint {
            Some(parts) => {
                self.table = DeviceTable::open(self.folder.path()).unwrap();
                for (part, bytes) in parts.iter().enumerate() {
                    self.table.decode(part as u32, bytes, NUMBER_COUNT).unwrap();
                }
                self.table.finish_decoding().unwrap();
                assert!(self.is_damaged || self.table.lost_count == 0, "files that a checkpoint speaks of stay");
                for number in std::mem::take(&mut self.changed) {
                    match self.devices.get(&number) {
                        Some(device) => self.table.set_reserving(DeviceNumber(number), device.clone()),
                        None => self.table.remove(DeviceNumber(number)),
                    }
                }
            }
            None => {
                self.table = DeviceTable::create(self.folder.path()).unwrap();
                for (number, device) in &self.devices {
                    self.table.set_reserving(DeviceNumber(*number), device.clone());
                }
            }
        }
        assert!(self.table.resident.is_empty());
        self.table.set_proven_chunk(0, &proven);
        self.changed = (0..NUMBER_COUNT).collect(); // The checkpoint is used up.
    }

    /// As nobody may while the file is mapped: the table must not be asked in between.
    fn damage(&mut self, at: prop::sample::Index) {
        self.is_damaged = true;
        let files = heap_files(self.folder.path());
        let Some(file) = files.get(at.index(files.len().max(1))) else { return };
        let bytes = fs::read(file).unwrap();
        let at = at.index(bytes.len().min(40_000));
        let changed: Vec<u8> = bytes[at..bytes.len().min(at + 5000)].iter().map(|byte| byte ^ 0x55).collect();
        fs::File::options().write(true).open(file).unwrap().write_all_at(&changed, at as u64).unwrap();
    }

    /// Every device is as it must be, or lost and then written anew; nothing is taken for another.
    fn check(&mut self) {
        let numbers: Vec<DeviceNumber> = (0..NUMBER_COUNT + 10).map(DeviceNumber).collect();
        let (mut rest, mut seen) = (&numbers[..], Vec::new());
        let mut lost = Vec::new();
        while let Err(index) = self.table.visit(rest, |found| seen.push(told(&found))) {
            lost.push(rest[index]);
            rest = &rest[index + 1..];
        }
        let is_lost = |number: &u32| lost.contains(&DeviceNumber(*number));
        let expected: Vec<String> = self
            .devices
            .iter()
            .filter(|(number, _)| !is_lost(number))
            .map(|(number, device)| {
                let number = DeviceNumber(*number);
                told(&Recipient::of(number, device, self.table.is_proven(number)))
            })
            .collect();
        assert_eq!(seen, expected);
        assert!(lost.iter().all(|number| self.devices.contains_key(&number.0)));
        assert_eq!(self.table.count(), self.devices.len() as u64);
        let all = self.table.find_all(|_| true);
        assert_eq!(all.len() + lost.len(), self.devices.len());
        for number in lost {
            let device = self.devices[&number.0].clone();
            self.table.set_reserving(number, device);
            self.table.flush();
            assert!(self.table.recipient(number).unwrap().is_some());
        }
        let chunk = self.table.proven_chunk(0);
        assert_eq!(chunk.len(), self.table.proven_count());
        assert!(numbers.iter().all(|number| chunk.contains(number.0) == self.table.is_proven(*number)));
    }
}

fn heap_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder.join(FOLDER)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_table_has_the_devices_of_the_model(acts in prop::collection::vec(act(), 1..30)) {
        let mut world = World { versions_per_app: Some(5), ..World::new() };
        for act in acts {
            world.apply(act);
            world.check();
        }
    }

    #[test]
    fn whatever_the_bytes_a_part_is_taken_or_refused(
        numbers in prop::collection::vec(0..NUMBER_COUNT, 1..40),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        length in prop::option::of(any::<prop::sample::Index>()),
        part in 0..5_u32,
        noise in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut world = World::new();
        numbers.into_iter().for_each(|number| world.set(number, false));
        world.table.flush();
        let mut bytes = Vec::new();
        world.table.encode(part, &mut bytes);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(length.map_or(bytes.len(), |length| length.index(bytes.len() + 1)));
        for bytes in [bytes, noise] {
            let mut table = DeviceTable::open(world.folder.path()).unwrap();
            if table.decode(part, &bytes, NUMBER_COUNT).is_ok() {
                // What is read is what was written, or lost.
                for number in (0..NUMBER_COUNT).map(DeviceNumber) {
                    let Ok(Some(found)) = table.recipient(number) else { continue };
                    let device = &world.devices[&number.0];
                    prop_assert_eq!((found.id, found.since), (device.id.as_str(), device.since));
                }
            }
        }
    }
}

#[test]
fn a_record_of_every_provider_reads_back() {
    let providers: BTreeSet<Option<Provider>> =
        (0..20).map(|number| device(number, 1, false).token.map(|token| token.provider())).collect();
    assert_eq!(providers.len(), 4);
}

#[test]
fn devices_with_too_many_different_names_stay_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = DeviceTable::create(folder.path()).unwrap();
    let other = |number: u32| Device { app: AppId::new(&format!("app-of-{number}")).unwrap(), ..device(1, 1, false) };
    for number in 0..4100 {
        table.set_reserving(DeviceNumber(number), other(number));
    }
    assert_eq!((table.resident.len(), table.count()), (4, 4100));
    let app = |table: &DeviceTable, number| table.recipient(DeviceNumber(number)).unwrap().unwrap().app.clone();
    assert!((0..4100).all(|number| app(&table, number) == other(number).app));
    tidy(&mut table);
    assert_eq!(table.resident.len(), 4, "room would not help");
    table.set_reserving(DeviceNumber(4099), other(3));
    table.remove(DeviceNumber(4098));
    assert_eq!(table.resident.len(), 2);
    let mut bytes = Vec::new();
    table.encode(4097 / PART_COUNT as u32, &mut bytes);
    let mut read = DeviceTable::open(folder.path()).unwrap();
    read.decode(4097 / PART_COUNT as u32, &bytes, 4100).unwrap();
    assert_eq!(read.recipient(DeviceNumber(4097)).err(), Some(Lost));
    assert!(read.contains(DeviceNumber(4097)) && !read.contains(DeviceNumber(4098)));
    assert_eq!(read.take_unread(), [DeviceNumber(4096), DeviceNumber(4097)], "their rows are read at once");
}

/// Collects until there is nothing to do, which must come.
fn tidy(table: &mut DeviceTable) {
    let calls = (0..5000).take_while(|_| table.collect().has_more).count();
    assert!(calls < 5000, "it never ends");
}

/// The locales are full. A device with a new locale and a new app gets no numbers, so its app must not get one either: no record
/// would have it, so each pass would free it, and ask the device again.
#[test]
fn devices_without_room_for_one_of_their_names_take_no_number_and_cause_no_pass_after_pass() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = DeviceTable::create(folder.path()).unwrap();
    let letters: Vec<char> = ('a'..='z').collect();
    let of_locale = |number: u32, app: &str| {
        let letter = |part: u32| letters[(number / 26_u32.pow(part) % 26) as usize];
        let locale = Locale::new(&format!("{}{}{}", letter(0), letter(1), letter(2))).unwrap();
        Device { locale, app: AppId::new(app).unwrap(), ..device(1, 1, false) }
    };
    (0..4096).for_each(|number| table.set_reserving(DeviceNumber(number), of_locale(number, "a")));
    tidy(&mut table);
    for number in 4096..4136 {
        table.set_reserving(DeviceNumber(number), of_locale(number, &format!("app-of-{number}")));
    }
    tidy(&mut table);
    assert_eq!((table.name_counts()[0], table.name_counts()[1], table.resident_count()), (1, 4096, 40));
    table.remove(DeviceNumber(7));
    (0..16).for_each(|_| table.set_reserving(DeviceNumber(4096), of_locale(4096, "app-of-4096")));
    tidy(&mut table);
    assert_eq!((table.name_counts()[0], table.name_counts()[1], table.resident_count()), (2, 4096, 39));
}

#[test]
fn names_that_no_device_has_any_more_make_room_for_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = DeviceTable::create(folder.path()).unwrap();
    let with_app =
        |number: u32| Device { app: AppId::new(&format!("app-of-{number}")).unwrap(), ..device(1, 1, false) };
    for number in 0..4100 {
        table.set_reserving(DeviceNumber(number), with_app(number));
    }
    tidy(&mut table);
    assert_eq!((table.name_counts()[0], table.resident_count()), (4096, 4), "all of them are in use");
    (0..3000).for_each(|number| table.remove(DeviceNumber(number)));
    (4100..4120).for_each(|number| table.set_reserving(DeviceNumber(number), with_app(number)));
    table.begin_checkpoint();
    tidy(&mut table);
    assert_eq!(table.name_counts()[0], 4096, "the parts of one checkpoint must not contradict each other");
    table.end_checkpoint();
    tidy(&mut table);
    assert_eq!((table.name_counts(), table.resident_count()), ([1120, 1, 1, 0], 0));
    for number in 3000..4120 {
        let found = table.recipient(DeviceNumber(number)).unwrap().unwrap();
        assert_eq!(*found.app, with_app(number).app);
    }
}

#[test]
fn without_room_a_device_is_kept_in_memory_until_there_is_some() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = DeviceTable::create(folder.path()).unwrap();
    fs::remove_dir_all(folder.path().join(FOLDER)).unwrap(); // As a disk that takes no file.
    let devices: Vec<Device> = (0..2000).map(|number| device(number, 1, false)).collect();
    for (number, device) in devices.iter().enumerate() {
        table.set_reserving(DeviceNumber(number as u32), device.clone());
    }
    assert_eq!((table.resident.len(), table.collect().has_more), (2000, false));
    fs::create_dir(folder.path().join(FOLDER)).unwrap();
    assert!(table.collect().has_more, "not all at once");
    assert!(!table.collect().has_more);
    assert!(table.resident.is_empty() && table.unsettled.is_empty());
    for (number, device) in devices.iter().enumerate() {
        let number = DeviceNumber(number as u32);
        assert_eq!(told(&table.recipient(number).unwrap().unwrap()), told(&Recipient::of(number, device, false)));
    }
}

#[test]
fn a_checkpoint_without_its_heap_is_of_no_use() {
    let mut world = World::new();
    for number in 0..1002 {
        world.table.set_reserving(DeviceNumber(number), device(number, 1, false));
    }
    world.table.remove(DeviceNumber(0));
    world.table.flush();
    let parts: Vec<Vec<u8>> = (0..world.table.part_count())
        .map(|part| {
            let mut bytes = Vec::new();
            world.table.encode(part, &mut bytes);
            bytes
        })
        .collect();
    let read = || {
        let mut table = DeviceTable::open(world.folder.path()).unwrap();
        (0..).zip(&parts).for_each(|(part, bytes)| table.decode(part, bytes, 1002).unwrap());
        table
    };
    let mut table = read();
    table.finish_decoding().unwrap();
    assert_eq!((table.count(), table.numbers().len(), table.numbers().min()), (1001, 1001, Some(1)));
    heap_files(world.folder.path()).iter().for_each(|file| fs::remove_file(file).unwrap());
    let mut table = read();
    assert!(table.finish_decoding().is_err());
    assert_eq!(table.recipient(DeviceNumber(5)).err(), Some(Lost));
}

#[test]
fn devices_that_came_in_any_order_come_to_lie_in_that_of_their_numbers() {
    const COUNT: u32 = 3000;
    let mut world = World::new();
    (0..COUNT).for_each(|at| world.set(at * 1009 % COUNT, false));
    world.table.flush();
    // In the order of numbers, how often a record lies before the last one of its segment.
    let jumps = |table: &DeviceTable| {
        let mut last: BTreeMap<u32, u64> = BTreeMap::new();
        let places = (0..COUNT).map(|number| table.place(DeviceNumber(number)).unwrap());
        places.filter(|place| last.insert(place.segment(), place.to_bits()) > Some(place.to_bits())).count()
    };
    let before = jumps(&world.table);
    assert_eq!(world.table.collect(), Collected::default(), "not while so many come");
    while world.table.collect().has_more {}
    let after = jumps(&world.table);
    assert!(after < before / 3, "{after} of {before} are left, though only the segment that is written may have some");
    for number in 0..COUNT {
        let found = world.table.recipient(DeviceNumber(number)).unwrap().unwrap();
        assert_eq!(told(&found), told(&Recipient::of(found.number, &world.devices[&number], false)));
    }
}

#[test]
fn garbage_goes_when_the_next_checkpoint_is_there() {
    let mut world = World::new();
    for _ in 0..40 {
        (0..NUMBER_COUNT).for_each(|number| world.set(number, true));
        world.table.flush();
    }
    let full = world.table.heap_usage();
    while world.table.collect().has_more {}
    assert!(world.table.heap_usage().segment_count >= full.segment_count, "a checkpoint may speak of them");
    world.checkpoint(&[], false);
    let usage = world.table.heap_usage();
    assert!(usage.disk_bytes <= 2 * usage.live_bytes + 3 * u64::from(LIMITS.segment_bytes_max), "{usage:?}");
    assert_eq!(heap_files(world.folder.path()).len() as u64, usage.segment_count);
    world.check();
    world.restart(true);
    world.check();
}
