//! The simulated phones: language, subscriptions, token, and the events of the match that each must get.
//!
//! Everything is drawn from a fixed seed, so that two runs have the same phones. Languages are skewed (a third Spanish),
//! and so are subjects: each phone draws one to four from a Zipf distribution that begins with the favourite of its
//! language. For each subject it draws how much it wants to know, from "only the result" to "everything". Most phones
//! follow the final, some only other matches.
//!
//! Six in ten are iPhones, two in a hundred are browsers, the others are Androids ([`platform_of`]). A browser's address
//! comes from the simulated push service ([`Population::subscribe`]). The other addresses are made of the phone's number.
//!
//! Some phones have their app open: the client with the same number (`clients`). Three of five of these have it on the
//! screen ([`is_watching`]). Such a phone needs no push for an event that its app has got.
//!
//! What a phone must get is computed here by brute force, subscription by subscription, without the server's code: the
//! demo's verdict depends on it. Memory: 20 bytes per phone, and four for its events.
//! the demo's verdict rests on it. 20 bytes a phone, and four for what it is owed.

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use tidings_store::{NewDevice, NewImport};
use tidings_types::{AppId, DeviceId, DeviceToken, Locale, Platform, Subject, TopicName};

use super::timeline::{MATCH, Moment};

/// The app of all phones.
pub(super) const APP: &str = "com.example.football";

const SEED: u64 = 20_221_218;

/// Languages, and the percentage of phones that speak each.
pub(super) const LOCALES: [(&str, u32); 8] =
    [("es", 34), ("en", 18), ("fr", 16), ("pt-BR", 10), ("de", 7), ("ar", 7), ("pl", 4), ("ja", 4)];

/// All topics. An interest has one bit for each.
const TOPICS: [&str; 11] = [
    "result",
    "goal",
    "penalty_goal",
    "kick_off",
    "half_time",
    "full_time",
    "extra_time",
    "shoot_out",
    "added_time",
    "shoot_out_goal",
    "shoot_out_miss",
];

/// How much a subscription is about: the number of topics, from the first on, and the percentage of subscriptions.
const APPETITES: [(usize, u32); 4] = [(1, 22), (3, 46), (8, 24), (TOPICS.len(), 8)];

/// The subjects, the most popular first. Some are about other matches.
const SUBJECTS: [&str; 20] = [
    "team:argentina",
    MATCH,
    "team:france",
    "team:brazil",
    "player:lionel-messi",
    "player:kylian-mbappe",
    "team:morocco",
    "team:england",
    "team:croatia",
    "team:spain",
    "team:germany",
    "team:portugal",
    "player:angel-di-maria",
    "team:netherlands",
    "team:japan",
    "team:poland",
    "player:paulo-dybala",
    "player:kingsley-coman",
    "player:aurelien-tchouameni",
    "player:randal-kolo-muani",
];

const INTEREST_COUNT_MAX: usize = 4;

/// A subject with topics. Without topics it is no interest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Interest {
    subject: u8,
    topics: u16,
}

/// One simulated phone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Phone {
    /// Index into [`LOCALES`].
    pub(super) locale: u8,
    interests: [Interest; INTEREST_COUNT_MAX],
}

impl Phone {
    fn draw(zipf: &Weights, rng: &mut Xoshiro256PlusPlus) -> Self {
        let locale = pick(LOCALES.map(|(_, weight)| weight), rng);
        let mut interests = [Interest::default(); INTEREST_COUNT_MAX];
        let count = 1 + pick([50, 30, 14, 6], rng);
        for index in 0..count {
            let subject = favourite(LOCALES[locale].0, zipf.pick(rng));
            let (topic_count, _) = APPETITES[pick(APPETITES.map(|(_, weight)| weight), rng)];
            // If a subject is drawn again, its new topics replace the old ones.
            let place = interests[..index].iter().position(|known| known.topics != 0 && known.subject == subject);
            interests[place.unwrap_or(index)] = Interest { subject, topics: (1 << topic_count) - 1 };
        }
        Self { locale: locale as u8, interests }
    }

    /// The phone's subscriptions.
    pub(super) fn subscriptions(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        self.interests.iter().flat_map(|interest| {
            let subject = SUBJECTS[usize::from(interest.subject)];
            let wanted = |(bit, _): &(usize, &&str)| interest.topics & (1 << bit) != 0;
            TOPICS.iter().enumerate().filter(wanted).map(move |(_, topic)| (subject, *topic))
        })
    }

    fn is_owed(&self, moment: &Moment) -> bool {
        self.subscriptions().any(|(subject, topic)| topic == moment.topic && moment.subjects.contains(&subject))
    }
}

/// The subject at a rank of popularity among the speakers of a language. Their own favourite is first, the others follow.
fn favourite(locale: &str, rank: usize) -> u8 {
    let own = match locale {
        "es" => "team:argentina",
        "fr" => "team:france",
        "pt-BR" => "team:brazil",
        "de" => "team:germany",
        "ar" => "team:morocco",
        "pl" => "team:poland",
        "ja" => "team:japan",
        _ => MATCH,
    };
    let own = SUBJECTS.iter().position(|subject| *subject == own).expect("it is in the list");
    let index = match rank {
        0 => own,
        rank if rank <= own => rank - 1,
        rank => rank,
    };
    index as u8
}

/// The phones.
#[derive(Debug)]
pub(super) struct Population {
    phones: Vec<Phone>,
    /// The moments that each phone must get, as bits.
    owed: Vec<u32>,
    browsers: OnceLock<Browsers>,
}

/// The addresses of the browsers: two in a hundred phones, about 600 bytes each.
#[derive(Debug)]
struct Browsers {
    tokens: BTreeMap<u32, DeviceToken>,
    /// Numbers by endpoint.
    numbers: HashMap<Box<str>, u32>,
}

impl Population {
    /// Draws the phones, and computes what each must get.
    pub(super) fn draw(count: u32, moments: &[Moment]) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
        let zipf = Weights::zipf(SUBJECTS.len());
        let phones: Vec<Phone> = (0..count).map(|_| Phone::draw(&zipf, &mut rng)).collect();
        let owed = |phone: &Phone| {
            let bits = moments.iter().enumerate().map(|(index, moment)| u32::from(phone.is_owed(moment)) << index);
            bits.fold(0, |bits, bit| bits | bit)
        };
        let owed = phones.iter().map(owed).collect();
        Self { phones, owed, browsers: OnceLock::new() }
    }

    /// Gives every browser its address. Called once, before the phones register.
    pub(super) fn subscribe(&self, mut subscribe: impl FnMut() -> DeviceToken) {
        let numbers = (0..self.count()).filter(|number| platform_of(*number) == Platform::Web);
        let tokens: BTreeMap<u32, DeviceToken> = numbers.map(|number| (number, subscribe())).collect();
        let endpoint = |token: &DeviceToken| Box::from(&*token.to_text());
        let numbers = tokens.iter().map(|(number, token)| (endpoint(token), *number)).collect();
        self.browsers.get_or_init(|| Browsers { tokens, numbers });
    }

    /// The address of a phone; `None` for a browser without an address.
    pub(super) fn token(&self, number: u32) -> Option<DeviceToken> {
        match platform_of(number) {
            Platform::Ios => Some(DeviceToken::from(secret(number).as_slice())),
            Platform::Android => Some(DeviceToken::fcm(&android_token(number)).expect("digits and a colon")),
            Platform::Web => self.browsers.get()?.tokens.get(&number).cloned(),
        }
    }

    /// The iPhone with this address.
    pub(super) fn iphone(&self, address: &[u8]) -> Option<u32> {
        let number = u32::from_be_bytes(*address.first_chunk()?);
        self.known(number, Platform::Ios).filter(|number| secret(*number) == address)
    }

    /// The Android with this address.
    pub(super) fn android(&self, address: &str) -> Option<u32> {
        let number = u32::from_str_radix(address.get(..8)?, 16).ok()?;
        self.known(number, Platform::Android).filter(|number| android_token(*number) == address)
    }

    /// The browser with this endpoint.
    pub(super) fn browser(&self, endpoint: &str) -> Option<u32> {
        self.browsers.get()?.numbers.get(endpoint).copied()
    }

    fn known(&self, number: u32, platform: Platform) -> Option<u32> {
        Some(number).filter(|number| *number < self.count() && platform_of(*number) == platform)
    }

    pub(super) fn count(&self) -> u32 {
        self.phones.len() as u32
    }

    /// The phone's language, as an index into [`LOCALES`].
    pub(super) fn locale(&self, number: u32) -> usize {
        usize::from(self.phones[number as usize].locale)
    }

    /// The moments that the phone must get, as bits.
    pub(super) fn owed(&self, number: u32) -> u32 {
        self.owed[number as usize]
    }

    /// How many phones must get a moment.
    pub(super) fn audience(&self, moment: usize) -> u64 {
        self.owed.iter().filter(|owed| *owed & (1 << moment) != 0).count() as u64
    }

    /// The Android that must get the most moments; without Androids, any phone.
    pub(super) fn keenest_android(&self) -> u32 {
        let androids = (0..self.count()).filter(|number| platform_of(*number) == Platform::Android);
        androids.max_by_key(|number| self.owed(*number).count_ones()).unwrap_or_default()
    }

    /// Number of phones of a platform.
    pub(super) fn count_of(&self, platform: Platform) -> u32 {
        (0..self.count()).filter(|number| platform_of(*number) == platform).count() as u32
    }

    /// The registrations of a range of phones.
    pub(super) fn registrations(&self, numbers: std::ops::Range<u32>) -> Vec<NewImport> {
        let names = Names::new();
        let registration = |number| NewImport {
            subscriptions: names.subscriptions(self, number),
            credential: Some(credential(number).into()),
            proven: true,
            ..names.device(self, number).into()
        };
        numbers.map(registration).collect()
    }
}

pub(super) fn device_id(number: u32) -> DeviceId {
    DeviceId::new(&format!("phone-{number:07}")).expect("letters, digits and a hyphen")
}

pub(super) fn platform_of(number: u32) -> Platform {
    match mix(SEED ^ u64::from(number) << 32) % 100 {
        0..60 => Platform::Ios,
        60..98 => Platform::Android,
        _ => Platform::Web,
    }
}

/// The address of an iPhone: its number, then bytes that look random.
fn secret(number: u32) -> [u8; 32] {
    let mut bytes = [0; 32];
    let words = (0..4).flat_map(|index| mix(SEED ^ u64::from(number) << 8 ^ index).to_be_bytes());
    bytes.iter_mut().zip(words).for_each(|(byte, word)| *byte = word);
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// The address of an Android.
fn android_token(number: u32) -> String {
    format!("{number:08x}:{:016x}{:016x}", mix(SEED ^ u64::from(number) << 8), mix(SEED ^ u64::from(number) << 8 ^ 1))
}

/// The credential that proves that a client is the app of a phone.
pub(super) fn credential(number: u32) -> String {
    format!("{:016x}{:016x}", mix(!SEED ^ u64::from(number)), mix(SEED.rotate_left(32) ^ u64::from(number)))
}

/// Whether the app of a phone is on the screen if it is open.
pub(super) fn is_watching(number: u32) -> bool {
    number % 5 < 3
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
fn mix(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The names that registrations share. They are made once per batch.
struct Names {
    app: AppId,
    locales: [Locale; LOCALES.len()],
    subjects: [Subject; SUBJECTS.len()],
    topics: [TopicName; TOPICS.len()],
}

impl Names {
    fn new() -> Self {
        Self {
            app: AppId::new(APP).expect("a bundle id"),
            locales: LOCALES.map(|(locale, _)| Locale::new(locale).expect("a language")),
            subjects: SUBJECTS.map(|subject| Subject::new(subject).expect("kind:key")),
            topics: TOPICS.map(|topic| TopicName::new(topic).expect("a topic")),
        }
    }

    fn device(&self, population: &Population, number: u32) -> NewDevice {
        let locale = self.locales[population.locale(number)].clone();
        let new = NewDevice::new(device_id(number), self.app.clone(), platform_of(number), locale);
        NewDevice { token: population.token(number), ..new }
    }

    fn subscriptions(&self, population: &Population, number: u32) -> Vec<(Subject, TopicName)> {
        let named = |(subject, topic): (&str, &str)| {
            let subject = self.subjects.iter().find(|known| known.as_str() == subject).expect("of our list");
            let topic = self.topics.iter().find(|known| known.as_str() == topic).expect("of our list");
            (subject.clone(), topic.clone())
        };
        population.phones[number as usize].subscriptions().map(named).collect()
    }
}

/// Draws an index by weight.
fn pick<const N: usize>(weights: [u32; N], rng: &mut Xoshiro256PlusPlus) -> usize {
    let mut left = rng.random_range(0..weights.iter().sum());
    let hit = |weight: &u32| {
        let hit = left < *weight;
        left = left.saturating_sub(*weight);
        hit
    };
    weights.iter().position(hit).expect("the draw is below the sum")
}

/// Ranks with falling probability.
struct Weights(Vec<f64>);

impl Weights {
    /// Rank r has the weight 1 / (r + 1): Zipf's law.
    fn zipf(count: usize) -> Self {
        let sums = (0..count).scan(0.0, |sum, rank| {
            *sum += 1.0 / (rank as f64 + 1.0);
            Some(*sum)
        });
        Self(sums.collect())
    }

    fn pick(&self, rng: &mut Xoshiro256PlusPlus) -> usize {
        let total = self.0.last().copied().unwrap_or_default();
        let drawn = rng.random::<f64>() * total;
        self.0.partition_point(|sum| *sum <= drawn).min(self.0.len() - 1)
    }
}

/// Addresses for browsers, without a push service.
#[cfg(test)]
pub(super) fn subscriptions() -> impl FnMut() -> DeviceToken {
    let mut number = 0;
    move || {
        number += 1;
        let (p256dh, auth) = (format!("B{}", "A".repeat(86)), "A".repeat(22));
        DeviceToken::web_push(&format!("https://localhost/push/{number}"), &p256dh, &auth).expect("of the right form")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::timeline::moments;
    use super::*;

    #[test]
    fn every_run_has_the_same_phones() {
        let moments = moments();
        let (once, again) = (Population::draw(500, &moments), Population::draw(500, &moments));
        assert_eq!(once.phones, again.phones);
        assert_eq!(once.owed, again.owed);
        // With more phones, the first ones stay the same.
        assert_eq!(Population::draw(800, &moments).phones[..500], once.phones);
    }

    #[test]
    fn languages_and_subscriptions_are_skewed() {
        let moments = moments();
        let population = Population::draw(20_000, &moments);
        let speakers = |locale: &str| {
            let index = LOCALES.iter().position(|(known, _)| *known == locale).unwrap();
            (0..population.count()).filter(|number| population.locale(*number) == index).count()
        };
        for (locale, share) in LOCALES {
            let expected = 200 * share as usize;
            assert!(speakers(locale).abs_diff(expected) < expected / 5, "{locale}: {}", speakers(locale));
        }
        let followers = |subject: &str| {
            let follows = |phone: &&Phone| phone.subscriptions().any(|(known, _)| known == subject);
            population.phones.iter().filter(follows).count()
        };
        assert!(followers("team:argentina") > 8 * followers("player:paulo-dybala"));
        let result = population.audience(moments.len() - 1);
        assert!((10_000..19_000).contains(&result), "most, but not all, are told of the result: {result}");
        assert!(population.audience(0) < result / 2, "kick-off is for fewer");
    }

    #[test]
    fn a_phone_gets_the_events_of_its_subscriptions() {
        let subject = |name: &str| SUBJECTS.iter().position(|known| *known == name).unwrap() as u8;
        let topics = |names: &[&str]| {
            let bit = |name: &&str| 1u16 << TOPICS.iter().position(|known| known == name).unwrap();
            names.iter().map(bit).sum()
        };
        let mut interests = [Interest::default(); INTEREST_COUNT_MAX];
        interests[0] = Interest { subject: subject("player:kingsley-coman"), topics: topics(&["shoot_out_miss"]) };
        interests[2] = Interest { subject: subject("team:france"), topics: topics(&["goal", "shoot_out_goal"]) };
        let phone = Phone { locale: 0, interests };
        let owed: Vec<usize> =
            (1..).zip(moments()).filter(|(_, moment)| phone.is_owed(moment)).map(|(n, _)| n).collect();
        // Open-play goals of either team, Mbappé's and Kolo Muani's penalties, Coman's miss; not Tchouaméni's.
        assert_eq!(owed, [3, 7, 11, 14, 16, 20]);
    }

    #[test]
    fn an_address_belongs_to_one_phone() {
        let population = Population::draw(1000, &moments());
        assert!((0..1000).all(|number| population.token(number).is_none() == (platform_of(number) == Platform::Web)));
        population.subscribe(subscriptions());
        let tokens: Vec<_> = (0..1000).map(|number| population.token(number).unwrap()).collect();
        assert_eq!(tokens.iter().collect::<BTreeSet<_>>().len(), 1000);
        for (number, token) in (0..1000).zip(&tokens) {
            assert_eq!(token.provider(), platform_of(number).provider());
            let found = match platform_of(number) {
                Platform::Ios => population.iphone(token.as_bytes()),
                Platform::Android => population.android(&token.to_text()),
                Platform::Web => population.browser(&token.to_text()),
            };
            assert_eq!(found, Some(number));
            let mut forged = token.as_bytes().to_vec();
            *forged.last_mut().unwrap() ^= 1;
            let text = String::from_utf8_lossy(&forged).into_owned();
            assert_eq!((population.iphone(&forged), population.android(&text)), (None, None));
        }
        let of = |wanted| (1000..).find(|number| platform_of(*number) == wanted).unwrap();
        assert_eq!(population.iphone(&secret(of(Platform::Ios))), None, "there is no phone with this number");
        assert_eq!(population.android(&android_token(of(Platform::Android))), None);
        assert_eq!((population.iphone(&[1]), population.android("1"), population.browser("1")), (None, None, None));
    }

    #[test]
    fn most_phones_are_iphones_and_some_are_browsers() {
        let population = Population::draw(20_000, &moments());
        for (platform, share) in [(Platform::Ios, 60), (Platform::Android, 38), (Platform::Web, 2)] {
            let (count, expected) = (population.count_of(platform), 200 * share);
            assert!(count.abs_diff(expected) < expected / 5, "{platform:?}: {count}");
        }
        assert_eq!(platform_of(population.keenest_android()), Platform::Android);
    }

    #[test]
    fn registrations_match_the_phones() {
        let population = Population::draw(50, &moments());
        population.subscribe(subscriptions());
        for (number, import) in (10..20).zip(population.registrations(10..20)) {
            let NewImport { device, subscriptions, credential: proof, .. } = import;
            assert_eq!(proof, Some(credential(number).into()));
            assert_eq!((device.id, device.token), (device_id(number), population.token(number)));
            assert_eq!(device.locale.as_str(), LOCALES[population.locale(number)].0);
            let named: Vec<_> =
                subscriptions.iter().map(|(subject, topic)| (subject.as_str(), topic.as_str())).collect();
            let own: Vec<_> = population.phones[number as usize].subscriptions().collect();
            assert_eq!(named, own);
            assert!(!own.is_empty());
            assert_eq!(own.iter().collect::<BTreeSet<_>>().len(), own.len(), "no subscription twice");
        }
    }
}
