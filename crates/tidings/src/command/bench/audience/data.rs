//! The data set: devices with subscriptions, drawn from the device's number, so that nothing needs to be kept to know
//! what is right.
//!
//! Subjects are skewed as in life: the chance of a subject falls with its rank (the rank's logarithm is even, which is
//! Zipf's law with exponent 1). There are a tenth as many subjects as devices. Three subscriptions in four are to `goal`,
//! the rest to `red_card`; a device has one to nine, five on average, never the same twice.

use tidings_store::NewDevice;
use tidings_types::{AppId, Country, DeviceId, DeviceToken, Environment, Locale, Platform, Subject, TopicName};

/// Subscriptions per device, before those drawn twice are left out.
pub(super) const SUBSCRIPTION_COUNT_MEAN: u32 = 5;
const LOCALES: [&str; 8] = ["en", "de", "fr", "es", "pt-BR", "ja", "pl", "ar"];

/// The whole data set.
pub(super) struct Data {
    pub(super) device_count: u32,
    /// By rank, the most popular first.
    pub(super) subjects: Vec<Subject>,
    /// `goal`, and what else there is.
    pub(super) topics: [TopicName; 2],
    locales: Vec<Locale>,
    app: AppId,
}

impl Data {
    pub(super) fn new(device_count: u32) -> Self {
        let subject = |rank| Subject::new(&format!("team:{rank}")).expect("a legal subject");
        let topic = |name| TopicName::new(name).expect("a legal topic");
        Self {
            device_count,
            subjects: (0..(device_count / 10).max(100)).map(subject).collect(),
            topics: [topic("goal"), topic("red_card")],
            locales: LOCALES.iter().map(|text| Locale::new(text).expect("a legal locale")).collect(),
            app: AppId::new("com.example.bench").expect("a legal app"),
        }
    }

    /// What a device is subscribed to, as places in `subjects` and `topics`; each once.
    pub(super) fn drawn(&self, device: u32) -> impl Iterator<Item = (usize, usize)> + Clone {
        let mut random = SplitMix(u64::from(device));
        let count = 1 + (random.next() % 9) as usize;
        let log_count = (self.subjects.len() as f64).ln();
        let mut drawn = [(0, 0); 9];
        for place in &mut drawn[..count] {
            let rank = (random.share() * log_count).exp() as usize - 1;
            *place = (rank.min(self.subjects.len() - 1), usize::from(random.next().is_multiple_of(4)));
        }
        (0..count).filter(move |&place| !drawn[..place].contains(&drawn[place])).map(move |place| drawn[place])
    }

    /// The same as names.
    pub(super) fn subscriptions(&self, device: u32) -> impl Iterator<Item = (&Subject, &TopicName)> {
        self.drawn(device).map(|(subject, topic)| (&self.subjects[subject], &self.topics[topic]))
    }

    /// The same to give away.
    pub(super) fn owned_subscriptions(&self, device: u32) -> Vec<(Subject, TopicName)> {
        self.subscriptions(device).map(|(subject, topic)| (subject.clone(), topic.clone())).collect()
    }

    /// The device itself.
    pub(super) fn device(&self, device: u32) -> NewDevice {
        let mut random = SplitMix(u64::from(device) << 32);
        NewDevice {
            id: device_id(device),
            user: None,
            app: self.app.clone(),
            platform: Platform::Ios,
            environment: Environment::Production,
            token: Some(token(device)),
            locale: self.locales[(random.next() % self.locales.len() as u64) as usize].clone(),
            country: Country::new("SE").ok(),
        }
    }
}

/// The name of a device.
pub(super) fn device_id(device: u32) -> DeviceId {
    DeviceId::new(&format!("phone-{device}")).expect("a legal id")
}

/// The device of a name.
pub(super) fn device_of(id: &DeviceId) -> Option<u32> {
    id.as_str().strip_prefix("phone-")?.parse().ok()
}

/// The address of a device: as long as APNs has them, its number in front.
pub(super) fn token(device: u32) -> DeviceToken {
    let mut random = SplitMix(u64::from(device) ^ 0x746f_6b65_6e00_0000);
    let mut bytes = [0; 32];
    bytes.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&random.next().to_be_bytes()));
    bytes[..4].copy_from_slice(&device.to_be_bytes());
    DeviceToken::from(&bytes[..])
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

    /// From 0 up to, but not, 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_data_is_skewed_without_repeats_and_always_the_same() {
        let data = Data::new(20_000);
        let (mut total, mut popular) = (0, 0);
        for device in 0..data.device_count {
            let drawn: Vec<_> = data.drawn(device).collect();
            assert!((1..=9).contains(&drawn.len()));
            assert_eq!(drawn.iter().collect::<HashSet<_>>().len(), drawn.len());
            assert!(data.drawn(device).eq(drawn.iter().copied()));
            total += drawn.len();
            popular += drawn.iter().filter(|&&(subject, _)| subject == 0).count();
        }
        let mean = total as f64 / f64::from(data.device_count);
        assert!((4.0..=5.1).contains(&mean), "{mean}");
        // ln 2 ÷ ln 2000 of all draws are of the first of 2000 subjects.
        let share = popular as f64 / total as f64;
        assert!((0.07..=0.11).contains(&share), "{share}");
    }

    #[test]
    fn names_and_tokens_tell_the_device() {
        assert_eq!(device_of(&device_id(42)), Some(42));
        assert_ne!(token(1), token(2));
        assert_eq!(token(7).as_bytes().len(), 32);
    }
}
