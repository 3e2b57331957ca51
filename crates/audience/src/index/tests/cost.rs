//! What the index costs, in bytes and time.
//!
//! `TIDINGS_DEVICES=5000000 cargo test --release -p tidings-audience -- --ignored --nocapture of_a_large_index` prints
//! both for the subscriptions of `tidings bench audience`, with devices of several kinds.

use std::hint::black_box;

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

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
}

#[expect(clippy::disallowed_methods, reason = "a measurement, run by hand")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
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

#[expect(clippy::print_stderr, reason = "a measurement, run by hand")]
#[test]
#[ignore = "a measurement"]
fn of_a_large_index() {
    let device_count = std::env::var("TIDINGS_DEVICES").map_or(1_000_000, |count| count.parse().unwrap());
    let (subjects, topics) = names(device_count);
    let (before, began) = (resident_bytes(), now());
    let index = filled(device_count);
    let (elapsed, count) = ((now() - began), index.subscription_count());
    let each = |bytes: u64| bytes as f64 / count as f64;
    let (sets, names) = index.bytes();
    eprintln!("{count} subscriptions of {device_count} devices, {:?} each with the drawing", elapsed / count as u32);
    eprintln!("accounted {:.2} B each, of these names {:.2}", each((sets + names) as u64), each(names as u64));
    eprintln!("resident {:.2} B each", each(resident_bytes() - before));
    index.sets().print_bytes(count);
    let (mut shards, began) = (Vec::new(), now());
    for shard in 0..index.shard_count() {
        let mut bytes = Vec::new();
        index.encode_shard(shard, &mut bytes);
        shards.push(bytes);
    }
    let bytes: usize = shards.iter().map(Vec::len).sum();
    let longest = shards.iter().map(Vec::len).max().unwrap_or(0);
    eprintln!(
        "{} shards, {:.2} B each, the longest {longest}, written in {:?}",
        shards.len(),
        each(bytes as u64),
        (now() - began)
    );
    let before = resident_bytes();
    let mut loaded = Index::new();
    for _ in 0..5 {
        loaded = Index::new();
        let began = now();
        shards.iter().enumerate().for_each(|(shard, bytes)| loaded.decode_shard(shard, bytes).unwrap());
        eprintln!("read in {:?}", now() - began);
    }
    eprintln!("then resident {:.2} B each", each(resident_bytes().saturating_sub(before)));
    let began = now();
    let mut counts = vec![0; device_count as usize];
    loaded.count_into(&mut counts);
    eprintln!("counted by device in {:?}", (now() - began));
    let update = |index: &mut Index, number: u32| {
        for (s, t) in drawn(number.wrapping_mul(7919), subjects.len()) {
            black_box(index.insert(DeviceNumber(number % device_count), &subjects[s], &topics[t]));
        }
    };
    let began = now();
    (0..100_000).for_each(|number| update(&mut loaded, number));
    eprintln!("random updates: {:?} each", (now() - began) / 500_000);
    time_selections(&loaded, &subjects, &topics[0], device_count);
}

#[expect(clippy::print_stderr, reason = "a measurement, run by hand")]
fn time_selections(index: &Index, subjects: &[Subject], topic: &TopicName, device_count: u32) {
    let mut muted = Index::new();
    let mut bytes = Vec::new();
    for shard in 0..index.shard_count() {
        bytes.clear();
        index.encode_shard(shard, &mut bytes);
        muted.decode_shard(shard, &bytes).unwrap();
    }
    (0..device_count).step_by(97).for_each(|number| _ = muted.mute(DeviceNumber(number), None));
    (0..device_count).step_by(991).for_each(|number| _ = muted.mute(DeviceNumber(number), Some(&subjects[0])));
    let locales: Vec<Locale> = ["pt", "zh", "pl"].map(|tag| Locale::new(tag).unwrap()).to_vec();
    let wide = Filter { locales, platforms: vec![Platform::Ios, Platform::Android], ..Filter::default() };
    let narrow = Filter { countries: vec![Country::new("SE").unwrap()], ..wide.clone() };
    for (what, places) in
        [("1", 0..1), ("1-4", 0..4), ("1-16", 0..16), ("100-115", 99..115), ("10000-10015", 9_999..10_015)]
    {
        for (limits, index, filter) in [
            ("no limits", index, &Filter::default()),
            ("wide filter, mutes", &muted, &wide),
            ("narrow filter, mutes", &muted, &narrow),
        ] {
            let mut best = std::time::Duration::MAX;
            let mut len = 0;
            for _ in 0..20 {
                let began = now();
                len = black_box(index.freeze(topic, &subjects[places.clone()], filter)).len();
                best = best.min(now() - began);
            }
            eprintln!("subjects {what}, {limits}: {len} devices in {best:?}");
        }
    }
}
