//! What the index costs in bytes; `tidings bench audience` measures it large, and its times.

use super::*;

/// Random numbers from a seed (G. Steele and others, "Fast splittable pseudorandom number generators", 2014).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Places of subject and topic, as `tidings bench audience` draws them; nearly always each once.
fn drawn(device: u32, subject_count: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut random = SplitMix(u64::from(device));
    let count = 1 + random.next() % 9;
    let log_count = (subject_count as f64).ln();
    (0..count).map(move |_| {
        let rank = (random.share() * log_count).exp() as usize - 1;
        (rank.min(subject_count - 1), usize::from(random.next().is_multiple_of(4)))
    })
}

fn names(device_count: u32) -> (Vec<Subject>, [TopicName; 2]) {
    let subject = |rank| Subject::new(&format!("team:{rank}")).unwrap();
    ((0..(device_count / 10).max(100)).map(subject).collect(), [topic(0), topic(1)])
}

/// The locales lie in blocks of 4096 numbers, as the store gives them out; one device in 50 has moved.
fn being_drawn(device: u32) -> Being {
    let mut random = SplitMix(u64::from(device) << 32);
    let moved = if random.next().is_multiple_of(50) { random.next() } else { 0 };
    let place = (u64::from(device / 4096) + moved) as usize;
    Being {
        platform: Platform::ALL[place / LOCALES.len() % 2],
        locale: Locale::new(LOCALES[place % LOCALES.len()]).unwrap(),
        country: Country::new(COUNTRIES[place % COUNTRIES.len()]).ok(),
        ..being_of(None)
    }
}

fn filled(device_count: u32) -> Index {
    let (subjects, topics) = names(device_count);
    let mut index = Index::new();
    for device in 0..device_count {
        index.set_device(DeviceNumber(device), None, Some(being_drawn(device).traits()));
        for (s, t) in drawn(device, subjects.len()) {
            index.insert(DeviceNumber(device), &subjects[s], &topics[t]);
        }
    }
    index
}

#[test]
fn a_subscription_costs_few_bytes() {
    let index = filled(100_000);
    index.check();
    let (sets, names) = index.bytes();
    let each = (sets + names) as f64 / index.subscription_count() as f64;
    assert!(each < 5.5, "{each} bytes for each subscription, more than of a large index: some pages are not full");
}

#[test]
fn a_user_with_one_device_costs_about_sixty_bytes_and_its_name() {
    const COUNT: u32 = 100_000;
    let mut index = Index::new();
    for number in 0..COUNT {
        let being = being_of(Some(&format!("user-{number:07}")));
        index.set_device(DeviceNumber(number), None, Some(being.traits()));
    }
    let (sets, names) = index.bytes();
    let each = (sets + names) as f64 / f64::from(COUNT);
    assert!(each < 75.0, "{each} bytes for each user, 12 of them its name");
    // All devices of one user are one set.
    let all = being_of(Some("everybody"));
    for number in 0..COUNT {
        let being = being_of(Some(&format!("user-{number:07}")));
        index.set_device(DeviceNumber(number), Some(being.traits()), Some(all.traits()));
    }
    index.check();
    assert_eq!(index.user_count(), 1);
    assert_eq!(index.sets().members(index.key(family::USER, "everybody").unwrap()).unwrap().len(), u64::from(COUNT));
}
