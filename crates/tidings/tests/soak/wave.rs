//! Devices in waves: imported, told of something, replaced and removed, all at once. And the devices that stay.

use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};

use crate::APP;
use crate::hand::{Hand, World};
use crate::setup::{ADDRESS_COUNT, RESIDENT_COUNT};
use crate::simulators::SHARE;

/// Lines of one import.
const LINE_COUNT: u64 = 10_000;
/// One in so many devices of a wave has a user, and is removed with that.
const USER_EVERY: u64 = 10;
/// Devices of a user.
const USER_DEVICES: u64 = 500;
/// Devices of a subject that only they have.
const SUBJECT_DEVICES: u64 = 100;
/// One in so many is replaced.
const REPLACED_EVERY: u64 = 10;
const REMOVERS: usize = 8;
const LOCALES: [&str; 6] = ["en", "pl", "de-AT", "pt-BR", "zh-Hant-TW", "ar"];
/// Until all of a wave have been told.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two looks.
const PULSE: Duration = Duration::from_millis(100);

/// Their ids begin so.
pub(crate) const RESIDENT: &str = "resident-";

pub(crate) fn resident_id(device: u32) -> String {
    format!("{RESIDENT}{device}")
}

/// The registrations of the devices that stay, as `PUT` takes them.
pub(crate) fn residents(world: &World) -> impl Iterator<Item = (String, Value)> {
    (0..RESIDENT_COUNT).map(|device| {
        let mut registration = world.addresses.registration(device);
        registration["app"] = json!(APP);
        registration["locale"] = json!(LOCALES[device as usize % LOCALES.len()]);
        (resident_id(device), registration)
    })
}

/// A language that exists, or one that nobody speaks.
pub(crate) fn locale(number: u64) -> (String, bool) {
    let letter = |shift: u32| char::from(b'a' + (number >> shift) as u8 % 26);
    let is_made_up = number.is_multiple_of(4);
    let made_up = || format!("q{}{}-Q{}", letter(2), letter(7), letter(12).to_ascii_uppercase());
    (if is_made_up { made_up() } else { LOCALES[number as usize % LOCALES.len()].to_owned() }, is_made_up)
}

/// Where device `index` of a wave is reached; each of its lives has another address, except that browsers share some.
pub(crate) fn address(world: &World, wave: u64, index: u64, life: u64) -> Value {
    let token = || format!("{wave:08x}{index:08x}{life:08x}");
    match index % u64::from(SHARE) {
        6 => {
            let browsers = u64::from((ADDRESS_COUNT - RESIDENT_COUNT) / SHARE);
            let browser = (wave + index / u64::from(SHARE) + life) % browsers;
            world.addresses.registration(RESIDENT_COUNT + browser as u32 * SHARE + 6)
        }
        7 => json!({ "platform": "android", "token": token() }),
        _ => json!({ "platform": "ios", "token": token() }),
    }
}

#[derive(Clone, Copy)]
struct Wave {
    number: u64,
    count: u64,
}

impl Wave {
    fn id(self, index: u64) -> String {
        format!("wave-{}-{index}", self.number)
    }

    fn subject(self) -> String {
        format!("wave:{}", self.number)
    }

    fn user(self, index: u64) -> Option<String> {
        let user = index / USER_EVERY / USER_DEVICES;
        index.is_multiple_of(USER_EVERY).then(|| format!("wave-{}-{user}", self.number))
    }

    fn line(self, world: &World, index: u64, life: u64) -> String {
        let own = format!("fresh:{}-{}", self.number, index / SUBJECT_DEVICES);
        let mut line = address(world, self.number, index, life);
        line["id"] = json!(self.id(index));
        line["app"] = json!(APP);
        line["locale"] = json!(locale(self.number + index + life).0);
        line["proven"] = json!(index.is_multiple_of(2));
        line["subscriptions"] = json!([self.subject(), own].map(|it| json!({ "subject": it, "topics": ["goal"] })));
        if let Some(user) = self.user(index) {
            line["user"] = json!(user);
        }
        format!("{line}\n")
    }

    /// Imports these devices in their first life, or in another one.
    async fn import(self, hand: &mut Hand, devices: &[u64], life: u64, deed: &str) -> Result<(), String> {
        for (part, devices) in devices.chunks(LINE_COUNT as usize).enumerate() {
            let lines: String = devices.iter().map(|index| self.line(&hand.world, *index, life)).collect();
            let path = format!("/v1/imports?name=wave-{}-{life}-{part}", self.number);
            let answer = hand.send(Method::POST, &path, lines.into()).await?;
            let end =
                answer.text().lines().next_back().map(|line| serde_json::from_str::<Value>(line).unwrap_or_default());
            let end = end.unwrap_or_default();
            if end["done"] != true || end["lines"] != devices.len() {
                return Err(format!("{path} ends with {end}"));
            }
            hand.world.deeds.did(deed, devices.len() as u64);
        }
        Ok(())
    }

    /// Tells all of them of something, and waits until each has its outcome.
    async fn tell(self, hand: &mut Hand) -> Result<(), String> {
        let id = format!("to-wave-{}", self.number);
        let event = json!({
            "id": id, "topic": "goal", "subjects": [self.subject()], "push": "always",
            "channels": ["kept:wave"], "collapse_key": self.subject(),
        });
        hand.ask("wave told", Method::POST, "/v1/events", Some(&event)).await?;
        let (deadline, mut pulse) = (Instant::now() + PATIENCE, interval(PULSE));
        while Instant::now() < deadline {
            pulse.tick().await;
            let report = hand.send(Method::GET, &format!("/v1/events/{id}"), Bytes::new()).await?.value();
            if report["done_at"].is_string() {
                return Ok(());
            }
        }
        Err(format!("{id} is not done within {PATIENCE:?}"))
    }

    /// Users with their devices, then the others one by one.
    async fn remove(self, hand: &mut Hand) -> Result<(), String> {
        let users = self.count.div_ceil(USER_EVERY * USER_DEVICES);
        for user in 0..users {
            hand.ask("user erased", Method::DELETE, &format!("/v1/users/wave-{}-{user}", self.number), None).await?;
        }
        let others = (0..self.count).filter(|index| self.user(*index).is_none()).map(|index| self.id(index));
        let left = usize::from(hand.world.plan.is_canary);
        let removed = remove(hand, others.skip(left).collect()).await?;
        hand.world.deeds.did("device removed", removed);
        Ok(())
    }
}

/// Removes these devices, several at a time; how many there were.
pub(crate) async fn remove(hand: &Hand, devices: Vec<String>) -> Result<u64, String> {
    let mut removers = JoinSet::new();
    for devices in devices.chunks(devices.len().div_ceil(REMOVERS).max(1)) {
        let (mut hand, devices) = (hand.helper(), devices.to_vec());
        removers.spawn(async move {
            for id in devices {
                hand.send(Method::DELETE, &format!("/v1/devices/{id}"), Bytes::new()).await?;
            }
            Ok::<(), String>(())
        });
    }
    while let Some(removed) = removers.join_next().await {
        removed.expect("it reports what goes wrong")?;
    }
    Ok(devices.len() as u64)
}

/// Lets waves come and go.
pub(crate) async fn waves(mut hand: Hand) -> Result<(), String> {
    let (count, pace) = (hand.world.plan.wave_count, hand.world.plan.wave_pace);
    while hand.turn(pace).await {
        let (wave, began) = (Wave { number: hand.world.next(), count }, Instant::now());
        let all: Vec<u64> = (0..count).collect();
        wave.import(&mut hand, &all, 0, "device imported").await?;
        let imported = began.elapsed();
        wave.tell(&mut hand).await?;
        let told = began.elapsed();
        let replaced: Vec<u64> = all.into_iter().filter(|index| index.is_multiple_of(REPLACED_EVERY)).collect();
        wave.import(&mut hand, &replaced, 1, "device replaced").await?;
        wave.remove(&mut hand).await?;
        let (second, gone) = (hand.world.began.elapsed().as_secs(), began.elapsed());
        println!(
            "{second:>6} s {count} devices: in after {imported:.1?}, told after {told:.1?}, gone after {gone:.1?}"
        );
    }
    Ok(())
}
