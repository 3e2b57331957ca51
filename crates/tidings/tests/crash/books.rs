//! What the providers' ledgers say of each device of the flood, life by life of the server, and which repeats are
//! excused.
//!
//! There is one event, so a device's entry is a number: how often it was accepted up to the end of the last life. What
//! a life has added is the difference. Acceptances beyond a device's first one in a life are the provider's making (an
//! answer lost); the first one in a life of a device that had it before is the crash's, and needs an allowance: that
//! the last checkpoint before the kill did not know the outcome.
//!
//! In memory: 8 bytes per device.

use crate::deliveries::Wrongs;

/// Everything accepted up to the end of the last life.
pub(crate) struct Books {
    /// By number of the device; those from `audience` on are bystanders, who are owed nothing.
    seen: Vec<Seen>,
    audience: usize,
    pub(crate) totals: Totals,
    /// What no server may do, in words; with a limit.
    pub(crate) wrongs: Wrongs,
}

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    count: u32,
    /// The last life ended before the outcome was noted.
    may_repeat: bool,
}

/// Of all lives so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Totals {
    /// Repeats included.
    pub(crate) accepted: u64,
    pub(crate) crash_repeats: u64,
    pub(crate) crash_repeats_allowed: u64,
    pub(crate) fault_repeats: u64,
}

/// How a life ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FloodLife {
    /// Devices accepted so far.
    pub(crate) devices: u64,
    /// Of them, those whose outcome is noted.
    pub(crate) noted: u64,
    /// Of them, those whose outcome is not, and that were accepted in this life.
    pub(crate) fresh: u64,
    /// Repeats in this life that answers lost have brought.
    pub(crate) fault_repeats: u64,
}

/// What the server says of the whole audience.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) audience: u64,
    pub(crate) accepted: u64,
    /// Refused as gone, or without a token after that was noted.
    pub(crate) gone: u64,
    /// Every outcome, whatever its name.
    pub(crate) outcomes: u64,
}

impl Books {
    pub(crate) fn new(audience: u32, bystanders: u32) -> Self {
        let seen = vec![Seen::default(); (audience + bystanders) as usize];
        Self { seen, audience: audience as usize, totals: Totals::default(), wrongs: Wrongs::default() }
    }

    /// The server was killed or stopped. `count_of` is what the ledger has of a device by now, `is_noted` tells whether
    /// the last checkpoint knows its outcome.
    pub(crate) fn end_life(&mut self, count_of: impl Fn(u32) -> u32, is_noted: impl Fn(u32) -> bool) -> FloodLife {
        let (mut life, totals, wrongs) = (FloodLife::default(), &mut self.totals, &mut self.wrongs);
        for (device, seen) in self.seen.iter_mut().enumerate() {
            let device = device as u32;
            let count = count_of(device);
            if count == 0 {
                continue;
            }
            let fresh = count.saturating_sub(seen.count);
            totals.accepted += u64::from(fresh);
            life.fault_repeats += u64::from(fresh.saturating_sub(1));
            if seen.count > 0 && fresh > 0 {
                totals.crash_repeats += 1;
                wrongs.require(seen.may_repeat, || format!("device {device} got it again, though that was noted"));
            }
            let is_noted = is_noted(device);
            if !is_noted {
                // An allowance that was not used is not given twice.
                totals.crash_repeats_allowed += u64::from(fresh > 0 || !seen.may_repeat);
                life.fresh += u64::from(fresh > 0);
            }
            life.devices += 1;
            life.noted += u64::from(is_noted);
            *seen = Seen { count, may_repeat: !is_noted };
        }
        totals.fault_repeats += life.fault_repeats;
        life
    }

    /// Holds the server's report against what was accepted.
    pub(crate) fn check(&self, said: &Said) -> Wrongs {
        let (audience, bystanders) = self.seen.split_at(self.audience);
        let mut wrongs = Wrongs::default();
        for (number, seen) in bystanders.iter().enumerate() {
            wrongs
                .require(seen.count == 0, || format!("device {} got it and is no part of it", self.audience + number));
        }
        let accepted = audience.iter().filter(|seen| seen.count > 0).count() as u64;
        let expected = Said {
            audience: self.audience as u64,
            accepted,
            gone: self.audience as u64 - accepted,
            outcomes: self.audience as u64,
        };
        wrongs.require(*said == expected, || format!("the server says {said:?}, the ledgers say {expected:?}"));
        let Totals { crash_repeats, crash_repeats_allowed, .. } = self.totals;
        wrongs.require(crash_repeats <= crash_repeats_allowed, || {
            format!("{crash_repeats} repeats by kills, allowed {crash_repeats_allowed}")
        });
        wrongs
    }

    pub(crate) fn is_accepted(&self, device: u32) -> bool {
        self.seen.get(device as usize).is_some_and(|seen| seen.count > 0)
    }

    /// Those of the audience that nothing was accepted for.
    pub(crate) fn missing(&self) -> impl Iterator<Item = u32> {
        (0..self.audience as u32).filter(|device| !self.is_accepted(*device))
    }

    /// For the canary: a bystander got it.
    pub(crate) fn forge(&mut self) {
        self.seen.last_mut().expect("there are bystanders").count = 1;
    }

    /// For the canary: one delivery is forgotten.
    pub(crate) fn drop_one(&mut self) {
        let accepted = self.seen.iter_mut().find(|seen| seen.count > 0);
        accepted.expect("something was accepted").count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Said = Said { audience: 4, accepted: 3, gone: 1, outcomes: 4 };

    /// Devices 0 to 3, of which 3 is gone, and bystander 4; all lives are one.
    fn books() -> Books {
        let mut books = Books::new(4, 1);
        books.end_life(|device| u32::from(device < 3), |_| true);
        books
    }

    #[test]
    fn who_got_it_once_or_is_gone_is_right() {
        let wrongs = books().check(&GOOD);
        assert!(wrongs.is_empty(), "{wrongs}");
        assert_eq!(books().missing().collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn a_report_that_differs_in_one_device_is_wrong() {
        let others = [
            Said { audience: 5, ..GOOD },
            Said { accepted: 4, gone: 0, ..GOOD },
            Said { accepted: 2, gone: 2, ..GOOD },
            Said { gone: 2, ..GOOD },
            Said { outcomes: 3, ..GOOD },
            Said { outcomes: 5, ..GOOD },
        ];
        for said in others {
            assert!(!books().check(&said).is_empty(), "{said:?}");
        }
    }

    #[test]
    fn a_bystander_that_got_it_and_a_lost_entry_are_noticed() {
        for spoil in [Books::forge, Books::drop_one] {
            let mut books = books();
            spoil(&mut books);
            assert!(!books.check(&GOOD).is_empty());
        }
    }

    #[test]
    fn a_repeat_after_a_kill_is_excused_if_its_outcome_was_not_noted() {
        let mut books = Books::new(2, 0);
        let life = books.end_life(|_| 1, |device| device == 0);
        assert_eq!(life, FloodLife { devices: 2, noted: 1, fresh: 1, fault_repeats: 0 });
        books.end_life(|device| 1 + device, |_| true);
        assert!(books.wrongs.is_empty(), "{}", books.wrongs);
        assert_eq!((books.totals.crash_repeats, books.totals.crash_repeats_allowed), (1, 1));
        books.end_life(|_| 2, |_| true);
        assert!(books.wrongs.to_string().contains("device 0 got it again"), "{}", books.wrongs);
    }

    #[test]
    fn each_repeat_needs_an_allowance_of_its_own() {
        let mut books = Books::new(1, 0);
        books.end_life(|_| 1, |_| false);
        assert_eq!(books.end_life(|_| 1, |_| false).fresh, 0, "nothing new in that life");
        assert_eq!(books.totals.crash_repeats_allowed, 1, "two kills, but only one acceptance to repeat");
        books.end_life(|_| 2, |_| false);
        books.end_life(|_| 3, |_| true);
        assert!(books.wrongs.is_empty(), "{}", books.wrongs);
        assert_eq!((books.totals.crash_repeats, books.totals.crash_repeats_allowed), (2, 2));
    }

    #[test]
    fn a_repeat_within_a_life_is_counted_apart() {
        let mut books = Books::new(1, 0);
        assert_eq!(books.end_life(|_| 3, |_| true).fault_repeats, 2);
        assert_eq!(books.totals, Totals { accepted: 3, fault_repeats: 2, ..Totals::default() });
    }
}
