//! The data set: devices with subscriptions. A device's data is drawn from its number, so nothing must be kept to know
//! what is right.
//!
//! Popularity of subjects is skewed as in real life: the chance of a subject falls with its rank. The logarithm of the
//! rank is drawn evenly, which is Zipf's law with exponent 1. There are a tenth as many subjects as devices. Three in
//! four subscriptions are to `goal`, the rest to `red_card`. A device draws one to twelve subscriptions, each once; with
//! 4 M devices that is 6.35 on average.
//!
//! Half of the devices are iPhones with a token of 32 bytes (64 hexadecimal digits), half are Androids with a token of
//! 160 characters. They are in twelve countries of very different size. Nine in ten speak their country's main language,
//! the others English. There are no users, and there is one app.

use tidings_store::{NewDevice, NewImport};
use tidings_types::{AppId, Country, DeviceId, DeviceToken, Locale, MuteScope, Platform, Subject, TopicName};

/// Subscriptions per device. With few devices it is less, because popular subjects are drawn twice more often.
pub(super) const SUBSCRIPTION_COUNT_MEAN: f64 = 6.35;
/// Subscriptions that are drawn for a device, at most.
const DRAW_COUNT_MAX: usize = 12;
/// The length of FCM's tokens.
const FCM_TOKEN_BYTES: usize = 160;
/// Each token begins with the device's number in so many hexadecimal digits.
const NUMBER_DIGITS: usize = 8;
/// Of a hundred devices, how many are in each country, and the country's main language. The largest country comes first.
const COUNTRIES: [(u64, &str, &str); 12] = [
    (22, "DE", "de"),
    (15, "GB", "en"),
    (13, "US", "en"),
    (11, "FR", "fr"),
    (9, "ES", "es"),
    (8, "BR", "pt-BR"),
    (6, "IT", "it"),
    (5, "JP", "ja"),
    (4, "PL", "pl"),
    (3, "SE", "sv"),
    (2, "SA", "ar"),
    (2, "MX", "es"),
];

/// The whole data set.
pub(super) struct Data {
    pub(super) device_count: u32,
    /// The most popular subject comes first.
    pub(super) subjects: Vec<Subject>,
    /// `goal`, and the other topic.
    pub(super) topics: [TopicName; 2],
    pub(super) app: AppId,
    /// [`COUNTRIES`] as types.
    countries: Vec<(u64, Country, Locale)>,
    english: Locale,
}

/// The traits of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind<'a> {
    pub(super) platform: Platform,
    pub(super) locale: &'a Locale,
    pub(super) country: &'a Country,
}

impl Data {
    /// A data set with about `count` subscriptions.
    pub(super) fn of_subscriptions(count: u32) -> Self {
        Self::new((f64::from(count) / SUBSCRIPTION_COUNT_MEAN) as u32)
    }

    pub(super) fn new(device_count: u32) -> Self {
        let subject = |rank| Subject::new(&format!("team:{rank}")).expect("a legal subject");
        let topic = |name| TopicName::new(name).expect("a legal topic");
        let locale = |tag| Locale::new(tag).expect("a legal locale");
        let country = |&(share, code, tag)| (share, Country::new(code).expect("a legal country"), locale(tag));
        Self {
            device_count,
            subjects: (0..(device_count / 10).max(100)).map(subject).collect(),
            topics: [topic("goal"), topic("red_card")],
            app: AppId::new("com.example.bench").expect("a legal app"),
            countries: COUNTRIES.iter().map(country).collect(),
            english: locale("en"),
        }
    }

    /// A device's subscriptions as indexes into `subjects` and `topics`, each once.
    pub(super) fn drawn(&self, device: u32) -> impl Iterator<Item = (usize, usize)> + Clone {
        let mut random = SplitMix(u64::from(device));
        let count = 1 + (random.next() % DRAW_COUNT_MAX as u64) as usize;
        let log_count = (self.subjects.len() as f64).ln();
        let mut drawn = [(0, 0); DRAW_COUNT_MAX];
        for place in &mut drawn[..count] {
            let rank = (random.share() * log_count).exp() as usize - 1;
            *place = (rank.min(self.subjects.len() - 1), usize::from(random.next().is_multiple_of(4)));
        }
        (0..count).filter(move |&place| !drawn[..place].contains(&drawn[place])).map(move |place| drawn[place])
    }

    /// A device's subscriptions as names.
    pub(super) fn subscriptions(&self, device: u32) -> impl Iterator<Item = (&Subject, &TopicName)> {
        self.drawn(device).map(|(subject, topic)| (&self.subjects[subject], &self.topics[topic]))
    }

    pub(super) fn kind(&self, device: u32) -> Kind<'_> {
        let mut random = SplitMix(u64::from(device) << 32);
        let mut left = random.next() % 100;
        let mut place = 0;
        while left >= self.countries[place].0 {
            left -= self.countries[place].0; // The shares add up to a hundred, so this ends.
            place += 1;
        }
        let (_, country, main) = &self.countries[place];
        let locale = if random.next().is_multiple_of(10) { &self.english } else { main };
        let platform = if random.next().is_multiple_of(2) { Platform::Ios } else { Platform::Android };
        Kind { platform, locale, country }
    }

    /// What a device mutes in the measurement with mutes: of a hundred devices, one everything, one the most popular
    /// subject, one the least popular.
    pub(super) fn mute(&self, device: u32) -> Option<MuteScope> {
        match device % 100 {
            7 => Some(MuteScope::Everything),
            8 => self.subjects.first().cloned().map(MuteScope::Subject),
            9 => self.subjects.last().cloned().map(MuteScope::Subject),
            _ => None,
        }
    }

    /// The country with the most devices, and its main language.
    pub(super) fn largest_country(&self) -> (&Country, &Locale) {
        let (_, country, locale) = &self.countries[0];
        (country, locale)
    }

    pub(super) fn device(&self, device: u32) -> NewDevice {
        let Kind { platform, locale, country } = self.kind(device);
        NewDevice {
            token: Some(token(device, platform)),
            country: Some(country.clone()),
            ..NewDevice::new(device_id(device), self.app.clone(), platform, locale.clone())
        }
    }

    /// The device with its subscriptions. Its token counts as accepted by the provider.
    pub(super) fn import(&self, device: u32) -> NewImport {
        NewImport {
            subscriptions: self
                .subscriptions(device)
                .map(|(subject, topic)| (subject.clone(), topic.clone()))
                .collect(),
            proven: true,
            ..self.device(device).into()
        }
    }

    pub(super) fn token(&self, device: u32) -> DeviceToken {
        token(device, self.kind(device).platform)
    }
}

pub(super) fn device_id(device: u32) -> DeviceId {
    DeviceId::new(&format!("phone-{device}")).expect("a legal id")
}

/// The number of a device, from its id.
pub(super) fn device_of(id: &str) -> Option<u32> {
    id.strip_prefix("phone-")?.parse().ok()
}

/// The number of a device, from its token in the provider's spelling.
#[cfg(feature = "peers")]
pub(super) fn device_of_token(text: &str) -> Option<u32> {
    u32::from_str_radix(text.get(..NUMBER_DIGITS)?, 16).ok()
}

/// A token of the provider's length that begins with the device's number.
fn token(device: u32, platform: Platform) -> DeviceToken {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut random = SplitMix(u64::from(device) ^ 0x746f_6b65_6e00_0000);
    if platform == Platform::Ios {
        let mut bytes = [0; 32];
        bytes.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&random.next().to_be_bytes()));
        bytes[..NUMBER_DIGITS / 2].copy_from_slice(&device.to_be_bytes());
        return DeviceToken::from(&bytes[..]);
    }
    let mut text = format!("{device:0NUMBER_DIGITS$x}:APA91b");
    text.reserve_exact(FCM_TOKEN_BYTES - text.len());
    while text.len() < FCM_TOKEN_BYTES {
        let bits = random.next();
        let letters = (0..10).map(|place| LETTERS[(bits >> (6 * place)) as usize % LETTERS.len()] as char);
        text.extend(letters.take(FCM_TOKEN_BYTES - text.len()));
    }
    DeviceToken::fcm(&text).expect("visible ASCII")
}

/// Random numbers from a seed (G. Steele and others, "Fast splittable pseudorandom number generators", 2014).
#[derive(Debug, Clone)]
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to, but not including, 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;

    #[test]
    fn the_data_is_skewed_and_reproducible_and_has_no_repeats() {
        let data = Data::new(20_000);
        let (mut total, mut popular) = (0, 0);
        for device in 0..data.device_count {
            let drawn: Vec<_> = data.drawn(device).collect();
            assert!((1..=DRAW_COUNT_MAX).contains(&drawn.len()));
            assert_eq!(drawn.iter().collect::<HashSet<_>>().len(), drawn.len());
            assert!(data.drawn(device).eq(drawn.iter().copied()));
            total += drawn.len();
            popular += drawn.iter().filter(|&&(subject, _)| subject == 0).count();
        }
        let mean = total as f64 / f64::from(data.device_count);
        assert!((5.9..=SUBSCRIPTION_COUNT_MEAN).contains(&mean), "{mean}");
        // The first of 2000 subjects gets ln 2 ÷ ln 2000 of all draws, less repeats.
        let share = popular as f64 / total as f64;
        assert!((0.07..=0.11).contains(&share), "{share}");
    }

    #[test]
    fn devices_are_of_all_kinds_in_the_stated_shares() {
        assert_eq!(COUNTRIES.iter().map(|(share, ..)| share).sum::<u64>(), 100);
        let data = Data::new(20_000);
        let (mut kinds, mut phones) = (HashMap::new(), 0);
        for device in 0..data.device_count {
            let kind = data.kind(device);
            assert_eq!(kind, data.kind(device));
            *kinds.entry((kind.country.clone(), kind.locale.clone())).or_insert(0) += 1;
            phones += u32::from(kind.platform == Platform::Ios);
        }
        assert!((9_700..=10_300).contains(&phones), "{phones} of 20 000 are iPhones");
        let (country, locale) = data.largest_country();
        let germans = kinds[&(country.clone(), locale.clone())];
        assert!((3_700..=4_200).contains(&germans), "{germans} of 20 000 devices; nine tenths of 22 % were expected");
        assert_eq!(kinds.len(), 12 + 10, "every country has its language and English");
    }

    #[test]
    fn ids_and_tokens_contain_the_device_number() {
        assert_eq!(device_of(device_id(42).as_str()), Some(42));
        assert_eq!(device_of("late-42"), None);
        for (platform, length) in [(Platform::Ios, 64), (Platform::Android, FCM_TOKEN_BYTES)] {
            assert_ne!(token(1, platform), token(2, platform));
            let token = token(0x1234_5678, platform);
            assert_eq!(token.to_text().len(), length);
            assert_eq!(token.provider(), platform.provider());
            assert!(token.to_text().starts_with("12345678"));
        }
    }
}
