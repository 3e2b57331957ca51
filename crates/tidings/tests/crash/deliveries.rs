//! What the simulated providers accepted, by device and event, and which of the repeats are excused.
//!
//! Acceptances are counted in *lives* of the server; each ends with a kill. A repeat within a life is of the
//! provider's making: an answer lost with its connection. A repeat of an earlier life's acceptance is the crash's: it
//! is allowed only if the outcome was not in the last checkpoint before the kill, which [`Deliveries::end_life`] is told
//! pair by pair.
//!
//! In memory only: some 60 bytes per pair of device and event.

use std::collections::HashMap;

use tidings_types::{Provider, Timestamp};
use uuid::Uuid;

use crate::event_id;
use crate::simulators::{Acceptance, PROVIDER_COUNT, provider_of};

/// Everything accepted.
#[derive(Default)]
pub(crate) struct Deliveries {
    life: u32,
    pairs: HashMap<Pair, Delivery>,
    /// By provider.
    pub(crate) counts: [Counts; PROVIDER_COUNT],
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

/// How a life ended, at one provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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
    /// A provider has accepted something.
    pub(crate) fn accept(&mut self, acceptance: Acceptance<'_>) {
        let Acceptance { provider, device, id, event, collapse_id, at } = acceptance;
        let counts = &mut self.counts[provider as usize];
        counts.accepted += 1;
        counts.accepted_in_life += 1;
        let (Some(device), Some(event)) = (device, event) else {
            return self.wrongs.add(|| format!("notification {id} is of no device or no event of ours"));
        };
        self.wrongs.require(collapse_id == Some(&*event_id(event)), || {
            format!("device {device} got event {event} to replace {collapse_id:?}")
        });
        let life = self.life;
        let new = Delivery { id, life, last_at: at, may_repeat: false };
        let Some(known) = self.pairs.insert((device, event), new) else { return };
        if known.id != id {
            self.wrongs.add(|| format!("device {device} got event {event} with two ids: {}, {id}", known.id));
        }
        if known.life == life {
            counts.fault_repeats += 1;
        } else {
            counts.crash_repeats += 1;
            self.wrongs.require(known.may_repeat, || {
                let Delivery { life: before, .. } = known;
                format!("device {device} got event {event} in life {before} and, though that was noted, in life {life}")
            });
        }
    }

    /// The server was killed; `is_settled` tells what its last checkpoint knows to be done with. What was accepted from
    /// `recent_from` on is recent, and before `late_before` late. By provider.
    pub(crate) fn end_life(
        &mut self,
        is_settled: impl Fn(Pair) -> bool,
        recent_from: Timestamp,
        late_before: Timestamp,
    ) -> [LifeEnd; PROVIDER_COUNT] {
        let mut ends = [LifeEnd::default(); PROVIDER_COUNT];
        for (pair, delivery) in &mut self.pairs {
            let end = &mut ends[provider_of(pair.0) as usize];
            delivery.may_repeat = !is_settled(*pair);
            let is_new = delivery.life == self.life;
            end.settled += u64::from(!delivery.may_repeat);
            end.fresh += u64::from(is_new && delivery.may_repeat);
            end.recent += u64::from(is_new && delivery.last_at >= recent_from);
            end.late += u64::from(is_new && delivery.may_repeat && delivery.last_at < late_before);
        }
        self.counts.iter_mut().for_each(|counts| counts.accepted_in_life = 0);
        self.life += 1;
        ends
    }

    pub(crate) fn of(&self, pair: Pair) -> Option<&Delivery> {
        self.pairs.get(&pair)
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = (Pair, &Delivery)> {
        self.pairs.iter().map(|(pair, delivery)| (*pair, delivery))
    }

    /// For the canary: a delivery that was not made.
    pub(crate) fn forge(&mut self, pair: Pair) {
        let delivery = Delivery { id: Uuid::nil(), life: self.life, last_at: Timestamp(0), may_repeat: false };
        self.pairs.insert(pair, delivery);
    }

    /// For the canary: this delivery is forgotten.
    pub(crate) fn forget(&mut self, pair: Pair) {
        self.pairs.remove(&pair);
    }

    /// For the canary: a browser gets again what it got in an earlier life, though that was noted.
    pub(crate) fn repeat_one(&mut self) {
        let is_it = |(device, _): Pair, delivery: &Delivery| {
            provider_of(device) == Provider::WebPush && delivery.life < self.life && !delivery.may_repeat
        };
        let found = self.pairs().filter(|(pair, delivery)| is_it(*pair, delivery)).min_by_key(|(pair, _)| *pair);
        let ((device, event), Delivery { id, .. }) = found.map(|(pair, known)| (pair, *known)).expect("there is one");
        let collapse_id = event_id(event);
        self.accept(Acceptance {
            provider: Provider::WebPush,
            device: Some(device),
            id,
            event: Some(event),
            collapse_id: Some(&collapse_id),
            at: Timestamp(0),
        });
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// One event at one device, as it should be.
    pub(crate) fn accept_as(deliveries: &mut Deliveries, device: u32, event: u32, id: Uuid) {
        let (provider, collapse_id) = (provider_of(device), event_id(event));
        let (device, event, collapse_id) = (Some(device), Some(event), Some(&*collapse_id));
        deliveries.accept(Acceptance { provider, device, id, event, collapse_id, at: Timestamp(100) });
    }

    fn accept(deliveries: &mut Deliveries, device: u32, event: u32) {
        accept_as(deliveries, device, event, Uuid::from_u64_pair(device.into(), event.into()));
    }

    /// For devices of APNs. What was accepted from `at` on is recent, and before it late.
    fn end_life(deliveries: &mut Deliveries, is_settled: impl Fn(Pair) -> bool, at: u64) -> LifeEnd {
        deliveries.end_life(is_settled, Timestamp(at), Timestamp(at))[Provider::Apns as usize]
    }

    /// Of devices of APNs.
    fn counts(deliveries: &Deliveries) -> Counts {
        deliveries.counts[Provider::Apns as usize]
    }

    #[test]
    fn a_repeat_after_a_crash_is_wrong_if_its_outcome_was_noted() {
        let mut deliveries = Deliveries::default();
        accept(&mut deliveries, 1, 7);
        accept(&mut deliveries, 2, 7);
        let end = end_life(&mut deliveries, |(device, _)| device == 1, 100);
        assert_eq!(end, LifeEnd { settled: 1, fresh: 1, recent: 2, late: 0 });
        accept(&mut deliveries, 2, 7);
        assert!(deliveries.wrongs.is_empty());
        accept(&mut deliveries, 1, 7);
        assert!(!deliveries.wrongs.is_empty());
        assert_eq!(counts(&deliveries).crash_repeats, 2);
    }

    #[test]
    fn fresh_and_recent_is_what_this_life_has_added() {
        let mut deliveries = Deliveries::default();
        accept(&mut deliveries, 1, 7);
        assert_eq!(end_life(&mut deliveries, |_| false, 101), LifeEnd { settled: 0, fresh: 1, recent: 0, late: 1 });
        assert_eq!(end_life(&mut deliveries, |_| false, 0).fresh, 0, "nothing new in that life");
        accept(&mut deliveries, 1, 7);
        assert_eq!(end_life(&mut deliveries, |_| false, 100), LifeEnd { settled: 0, fresh: 1, recent: 1, late: 0 });
        assert!(deliveries.wrongs.is_empty());
        assert_eq!(counts(&deliveries).crash_repeats, 1);
    }

    #[test]
    fn a_repeat_is_excused_by_the_last_kill_only() {
        let mut deliveries = Deliveries::default();
        accept(&mut deliveries, 1, 7);
        end_life(&mut deliveries, |_| false, 101);
        end_life(&mut deliveries, |_| true, 101);
        accept(&mut deliveries, 1, 7);
        assert!(!deliveries.wrongs.is_empty(), "noted meanwhile, without having been sent again");
    }

    #[test]
    fn a_repeat_within_a_life_is_counted_apart() {
        let mut deliveries = Deliveries::default();
        accept(&mut deliveries, 1, 7);
        accept(&mut deliveries, 1, 7);
        assert_eq!((counts(&deliveries).fault_repeats, counts(&deliveries).crash_repeats), (1, 0));
        assert_eq!(end_life(&mut deliveries, |_| false, 100).recent, 1);
    }

    #[test]
    fn what_a_life_leaves_is_told_by_provider() {
        let mut deliveries = Deliveries::default();
        (0..8).for_each(|device| accept(&mut deliveries, device, 7));
        let ends = deliveries.end_life(|(device, _)| device == 7, Timestamp(101), Timestamp(101));
        assert_eq!(ends.map(|end| (end.settled, end.fresh, end.late)), [(0, 6, 6), (1, 0, 0), (0, 1, 1)]);
        assert_eq!(deliveries.counts.map(|counts| counts.accepted), [6, 1, 1]);
    }

    #[test]
    fn a_second_id_for_the_same_event_is_wrong() {
        for device in 0..8 {
            let mut two_ids = Deliveries::default();
            accept(&mut two_ids, device, 7);
            accept_as(&mut two_ids, device, 7, Uuid::nil());
            assert!(two_ids.wrongs.to_string().contains("two ids"), "{}", two_ids.wrongs);
        }
    }

    #[test]
    fn what_is_of_no_device_or_event_or_replaces_another_is_wrong() {
        let right = Acceptance {
            provider: Provider::WebPush,
            device: Some(6),
            id: Uuid::nil(),
            event: Some(7),
            collapse_id: Some("e-7"),
            at: Timestamp(100),
        };
        let is_wrong = |acceptance| {
            let mut deliveries = Deliveries::default();
            deliveries.accept(acceptance);
            !deliveries.wrongs.is_empty()
        };
        assert!(!is_wrong(right));
        assert!(is_wrong(Acceptance { device: None, ..right }));
        assert!(is_wrong(Acceptance { event: None, ..right }));
        assert!(is_wrong(Acceptance { collapse_id: Some("e-8"), ..right }));
        assert!(is_wrong(Acceptance { collapse_id: None, ..right }));
    }

    #[test]
    fn a_browser_that_gets_again_what_was_noted_is_noticed() {
        let mut deliveries = Deliveries::default();
        (0..8).for_each(|device| accept(&mut deliveries, device, 7));
        end_life(&mut deliveries, |_| true, 101);
        deliveries.repeat_one();
        assert!(deliveries.wrongs.to_string().contains("though that was noted"), "{}", deliveries.wrongs);
    }
}
