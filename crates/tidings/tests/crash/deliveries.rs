//! What the simulated provider accepted, by device and event, and which of the repeats are excused.
//!
//! Acceptances are counted in *lives* of the server; each ends with a kill. A repeat within a life is of the
//! provider's making: an answer lost with its connection. A repeat of an earlier life's acceptance is the crash's: it
//! is allowed only if the outcome was not in the last checkpoint before the kill, which [`Deliveries::end_life`] is told
//! pair by pair.
//!
//! In memory only: some 60 bytes per pair of device and event.

use std::collections::HashMap;

use tidings_types::{DeviceToken, Timestamp};
use uuid::Uuid;

/// Everything accepted.
pub(crate) struct Deliveries {
    tokens: Vec<DeviceToken>,
    life: u32,
    pairs: HashMap<Pair, Delivery>,
    pub(crate) counts: Counts,
    /// What no server may do, in words; with a limit.
    pub(crate) wrongs: Wrongs,
}

/// The numbers of device and event.
pub(crate) type Pair = (u32, u32);

/// One event at one device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delivery {
    pub(crate) id: Uuid,
    /// That of the last acceptance.
    life: u32,
    last_at: Timestamp,
    /// The life it was accepted in ended before its outcome was noted.
    may_repeat: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) accepted: u64,
    /// In this life.
    pub(crate) accepted_in_life: u64,
    pub(crate) crash_repeats: u64,
    pub(crate) fault_repeats: u64,
}

/// How a life ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LifeEnd {
    /// Pairs accepted so far whose outcome is noted.
    pub(crate) settled: u64,
    /// Pairs accepted in this life whose outcome is not.
    pub(crate) fresh: u64,
    /// Pairs accepted in this life, so shortly before its end that a checkpoint need not know of them.
    pub(crate) recent: u64,
    /// Of `fresh`, those accepted so long ago that every checkpoint must know them.
    pub(crate) late: u64,
}

/// Complaints, the first few in full.
#[derive(Debug, Default)]
pub(crate) struct Wrongs {
    texts: Vec<String>,
    count: u64,
}

impl Wrongs {
    const TEXT_COUNT_MAX: usize = 20;

    pub(crate) fn add(&mut self, text: impl FnOnce() -> String) {
        self.count += 1;
        if self.texts.len() < Self::TEXT_COUNT_MAX {
            self.texts.push(text());
        }
    }

    pub(crate) fn require(&mut self, holds: bool, text: impl FnOnce() -> String) {
        if !holds {
            self.add(text);
        }
    }

    pub(crate) fn append(&mut self, other: Self) {
        self.count += other.count;
        let room = Self::TEXT_COUNT_MAX.saturating_sub(self.texts.len());
        self.texts.extend(other.texts.into_iter().take(room));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl std::fmt::Display for Wrongs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} wrong:", self.count)?;
        self.texts.iter().try_for_each(|text| writeln!(f, "  {text}"))?;
        if self.count > self.texts.len() as u64 { writeln!(f, "  …") } else { Ok(()) }
    }
}

impl Deliveries {
    /// `tokens` by number of the device.
    pub(crate) fn new(tokens: Vec<DeviceToken>) -> Self {
        Self { tokens, life: 0, pairs: HashMap::new(), counts: Counts::default(), wrongs: Wrongs::default() }
    }

    /// The provider has accepted something; `event` is `None` when the payload names none of ours.
    pub(crate) fn accept(&mut self, token: &DeviceToken, id: Uuid, event: Option<u32>, at: Timestamp) {
        self.counts.accepted += 1;
        self.counts.accepted_in_life += 1;
        let (Some(device), Some(event)) = (self.device(token), event) else {
            return self.wrongs.add(|| format!("notification {id} is of no device or no event of ours"));
        };
        let life = self.life;
        let new = Delivery { id, life, last_at: at, may_repeat: false };
        let Some(known) = self.pairs.insert((device, event), new) else { return };
        if known.id != id {
            self.wrongs.add(|| format!("device {device} got event {event} with two ids: {}, {id}", known.id));
        }
        if known.life == life {
            self.counts.fault_repeats += 1;
        } else {
            self.counts.crash_repeats += 1;
            self.wrongs.require(known.may_repeat, || {
                let Delivery { life: before, .. } = known;
                format!("device {device} got event {event} in life {before} and, though that was noted, in life {life}")
            });
        }
    }

    /// The server was killed; `is_settled` tells what its last checkpoint knows to be done with. What was accepted from
    /// `recent_from` on is recent, and before `late_before` late.
    pub(crate) fn end_life(
        &mut self,
        is_settled: impl Fn(Pair) -> bool,
        recent_from: Timestamp,
        late_before: Timestamp,
    ) -> LifeEnd {
        let mut end = LifeEnd { settled: 0, fresh: 0, recent: 0, late: 0 };
        for (pair, delivery) in &mut self.pairs {
            delivery.may_repeat = !is_settled(*pair);
            let is_new = delivery.life == self.life;
            end.settled += u64::from(!delivery.may_repeat);
            end.fresh += u64::from(is_new && delivery.may_repeat);
            end.recent += u64::from(is_new && delivery.last_at >= recent_from);
            end.late += u64::from(is_new && delivery.may_repeat && delivery.last_at < late_before);
        }
        self.counts.accepted_in_life = 0;
        self.life += 1;
        end
    }

    pub(crate) fn of(&self, pair: Pair) -> Option<&Delivery> {
        self.pairs.get(&pair)
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = (Pair, &Delivery)> {
        self.pairs.iter().map(|(pair, delivery)| (*pair, delivery))
    }

    /// For the canary: one delivery that nobody asked for.
    pub(crate) fn forge(&mut self) {
        let absent = |pair: &Pair| !self.pairs.contains_key(pair);
        let pair = (0..self.tokens.len() as u32).map(|device| (device, 0)).find(absent).expect("not all got the first");
        let delivery = Delivery { id: Uuid::nil(), life: self.life, last_at: Timestamp(0), may_repeat: false };
        self.pairs.insert(pair, delivery);
    }

    /// For the canary: one delivery is forgotten.
    pub(crate) fn drop_one(&mut self) {
        let pair = self.pairs.keys().min().copied().expect("there was some load");
        self.pairs.remove(&pair);
    }

    /// A token begins with the number of its device.
    fn device(&self, token: &DeviceToken) -> Option<u32> {
        let number = u32::from_be_bytes(*token.as_bytes().first_chunk()?);
        (self.tokens.get(number as usize)? == token).then_some(number)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Devices 0 to 9, whose tokens are their numbers.
    pub(crate) fn deliveries() -> Deliveries {
        Deliveries::new((0..10).map(token).collect())
    }

    pub(crate) fn token(device: u32) -> DeviceToken {
        DeviceToken::from(device.to_be_bytes().as_slice())
    }

    fn accept(deliveries: &mut Deliveries, device: u32, event: u32) {
        let id = Uuid::from_u64_pair(device.into(), event.into());
        deliveries.accept(&token(device), id, Some(event), Timestamp(100));
    }

    /// What was accepted from `at` on is recent, and before it late.
    fn end_life(deliveries: &mut Deliveries, is_settled: impl Fn(Pair) -> bool, at: u64) -> LifeEnd {
        deliveries.end_life(is_settled, Timestamp(at), Timestamp(at))
    }

    #[test]
    fn a_repeat_after_a_crash_is_wrong_if_its_outcome_was_noted() {
        let mut deliveries = deliveries();
        accept(&mut deliveries, 1, 7);
        accept(&mut deliveries, 2, 7);
        let end = end_life(&mut deliveries, |(device, _)| device == 1, 100);
        assert_eq!(end, LifeEnd { settled: 1, fresh: 1, recent: 2, late: 0 });
        accept(&mut deliveries, 2, 7);
        assert!(deliveries.wrongs.is_empty());
        accept(&mut deliveries, 1, 7);
        assert!(!deliveries.wrongs.is_empty());
        assert_eq!(deliveries.counts.crash_repeats, 2);
    }

    #[test]
    fn fresh_and_recent_is_what_this_life_has_added() {
        let mut deliveries = deliveries();
        accept(&mut deliveries, 1, 7);
        assert_eq!(end_life(&mut deliveries, |_| false, 101), LifeEnd { settled: 0, fresh: 1, recent: 0, late: 1 });
        assert_eq!(end_life(&mut deliveries, |_| false, 0).fresh, 0, "nothing new in that life");
        accept(&mut deliveries, 1, 7);
        assert_eq!(end_life(&mut deliveries, |_| false, 100), LifeEnd { settled: 0, fresh: 1, recent: 1, late: 0 });
        assert!(deliveries.wrongs.is_empty());
        assert_eq!(deliveries.counts.crash_repeats, 1);
    }

    #[test]
    fn a_repeat_is_excused_by_the_last_kill_only() {
        let mut deliveries = deliveries();
        accept(&mut deliveries, 1, 7);
        end_life(&mut deliveries, |_| false, 101);
        end_life(&mut deliveries, |_| true, 101);
        accept(&mut deliveries, 1, 7);
        assert!(!deliveries.wrongs.is_empty(), "noted meanwhile, without having been sent again");
    }

    #[test]
    fn a_repeat_within_a_life_is_counted_apart() {
        let mut deliveries = deliveries();
        accept(&mut deliveries, 1, 7);
        accept(&mut deliveries, 1, 7);
        assert_eq!((deliveries.counts.fault_repeats, deliveries.counts.crash_repeats), (1, 0));
        assert_eq!(end_life(&mut deliveries, |_| false, 100).recent, 1);
    }

    #[test]
    fn a_second_id_for_the_same_event_is_wrong_and_so_is_an_unknown_device() {
        let mut two_ids = deliveries();
        accept(&mut two_ids, 1, 7);
        two_ids.accept(&token(1), Uuid::nil(), Some(7), Timestamp(100));
        assert!(two_ids.wrongs.to_string().contains("two ids"), "{}", two_ids.wrongs);
        let mut unknown = deliveries();
        accept(&mut unknown, 10, 7);
        assert!(!unknown.wrongs.is_empty());
        let mut no_event = deliveries();
        no_event.accept(&token(1), Uuid::nil(), None, Timestamp(100));
        assert!(!no_event.wrongs.is_empty());
    }
}
