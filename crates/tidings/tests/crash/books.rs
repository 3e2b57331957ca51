//! What the providers' ledgers say of each device of one event of the flood, life by life of the server, and which
//! repeats are excused.
//!
//! A device's entry is a number: how often the event was accepted for it up to the end of the last life. What a life
//! has added is the difference. Acceptances beyond a device's first one in a life are the provider's making (an answer
//! lost). What the last checkpoint before a kill called settled, as accepted, superseded or whatever, is accepted no
//! more. Any other device that had it may get it again: a repeat by the crash. How many may at most is `lag.rs`'s.
//!
//! In memory: 8 bytes per device and event.

use std::ops::Add;

use tidings_types::Provider;

use crate::deliveries::Wrongs;
use crate::simulators::{PROVIDER_COUNT, provider_of};

/// Everything accepted up to the end of the last life.
pub(crate) struct Books {
    event: u32,
    /// By number of the device.
    seen: Vec<Seen>,
    /// It was cancelled before the last life ended: nothing is accepted any more.
    is_closed: bool,
    pub(crate) totals: Totals,
    /// What no server may do, in words; with a limit.
    pub(crate) wrongs: Wrongs,
}

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    count: u32,
    /// It is of the audience; others are bystanders.
    is_owed: bool,
    /// The last life ended with its outcome noted.
    is_noted: bool,
}

/// Of all lives so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Totals {
    /// Repeats included.
    pub(crate) accepted: u64,
    pub(crate) crash_repeats: u64,
    pub(crate) fault_repeats: u64,
}

impl Add for Totals {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            accepted: self.accepted + other.accepted,
            crash_repeats: self.crash_repeats + other.crash_repeats,
            fault_repeats: self.fault_repeats + other.fault_repeats,
        }
    }
}

/// How a life ended, for the devices of one provider and one event or more.
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

impl Add for FloodLife {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            devices: self.devices + other.devices,
            noted: self.noted + other.noted,
            fresh: self.fresh + other.fresh,
            fault_repeats: self.fault_repeats + other.fault_repeats,
        }
    }
}

/// What the server says of the whole audience.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) audience: u64,
    pub(crate) accepted: u64,
    /// Refused as gone, or without a token after that was noted.
    pub(crate) gone: u64,
    /// Superseded or cancelled, also after an attempt without an answer: it may have been accepted or not.
    pub(crate) given_up: u64,
    /// Every outcome, whatever its name.
    pub(crate) outcomes: u64,
}

impl Books {
    /// For so many devices; `is_owed` tells whom the event is for.
    pub(crate) fn new(event: u32, device_count: u32, is_owed: impl Fn(u32) -> bool) -> Self {
        let seen = (0..device_count).map(|device| Seen { is_owed: is_owed(device), ..Seen::default() }).collect();
        Self { event, seen, is_closed: false, totals: Totals::default(), wrongs: Wrongs::default() }
    }

    /// The event was cancelled, and no life after this one hands it out.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    /// The server was killed or stopped. `count_of` is what the ledger has of a device by now, `is_noted` tells whether
    /// the last checkpoint knows its outcome. By provider.
    pub(crate) fn end_life(
        &mut self,
        count_of: impl Fn(u32) -> u32,
        is_noted: impl Fn(u32) -> bool,
    ) -> [FloodLife; PROVIDER_COUNT] {
        let (mut lives, totals, wrongs) = ([FloodLife::default(); PROVIDER_COUNT], &mut self.totals, &mut self.wrongs);
        let event = self.event;
        for (device, seen) in self.seen.iter_mut().enumerate() {
            let device = device as u32;
            let life = &mut lives[provider_of(device) as usize];
            let (count, is_noted) = (count_of(device), is_noted(device));
            let fresh = count.saturating_sub(seen.count);
            let fault_repeats = u64::from(fresh.saturating_sub(1));
            totals.accepted += u64::from(fresh);
            totals.fault_repeats += fault_repeats;
            life.fault_repeats += fault_repeats;
            if fresh > 0 {
                totals.crash_repeats += u64::from(seen.count > 0);
                wrongs.require(!(seen.is_owed && seen.is_noted), || {
                    let before = seen.count;
                    format!("device {device} got event {event} {before} times before and again, though it was settled")
                });
                wrongs.require(!self.is_closed, || format!("device {device} got event {event}, which was cancelled"));
            }
            life.devices += u64::from(count > 0);
            life.noted += u64::from(count > 0 && is_noted);
            life.fresh += u64::from(fresh > 0 && !is_noted);
            *seen = Seen { count, is_noted, ..*seen };
        }
        lives
    }

    /// Holds the server's report against what was accepted.
    pub(crate) fn check(&self, said: &Said) -> Wrongs {
        let mut wrongs = Wrongs::default();
        for (device, _) in self.seen.iter().enumerate().filter(|(_, seen)| !seen.is_owed && seen.count > 0) {
            wrongs.add(|| format!("device {device} got event {} and is no part of it", self.event));
        }
        let owed = self.seen.iter().filter(|seen| seen.is_owed).count() as u64;
        let got = self.seen.iter().filter(|seen| seen.is_owed && seen.count > 0).count() as u64;
        let Said { audience, accepted, gone, given_up, outcomes } = *said;
        let adds_up = [audience, outcomes, accepted + gone + given_up] == [owed; 3];
        wrongs.require(adds_up, || format!("event {}: the server says {said:?}, it was for {owed}", self.event));
        wrongs.require(accepted <= got && got <= accepted + given_up, || {
            format!("event {}: the server says {said:?}, the ledgers have {got} devices", self.event)
        });
        wrongs
    }

    pub(crate) fn is_accepted(&self, device: u32) -> bool {
        self.seen.get(device as usize).is_some_and(|seen| seen.count > 0)
    }

    /// For the canary: a bystander with a browser got it.
    pub(crate) fn forge(&mut self) {
        self.find(|seen| !seen.is_owed).count = 1;
    }

    /// For the canary: one delivery to a browser is forgotten.
    pub(crate) fn drop_one(&mut self) {
        self.find(|seen| seen.count > 0).count = 0;
    }

    /// For the canary: a browser got it again, though that was settled.
    pub(crate) fn repeat_one(&mut self) {
        let before = self.seen.clone();
        self.find(|seen| seen.is_owed && seen.is_noted && seen.count > 0).count += 1;
        let after = std::mem::replace(&mut self.seen, before);
        self.end_life(|device| after[device as usize].count, |device| after[device as usize].is_noted);
    }

    /// The first browser that is such.
    fn find(&mut self, is_it: impl Fn(&Seen) -> bool) -> &mut Seen {
        let is_browser = |device: usize| provider_of(device as u32) == Provider::WebPush;
        let mut devices = self.seen.iter_mut().enumerate();
        let found = devices.find_map(|(device, seen)| (is_browser(device) && is_it(seen)).then_some(seen));
        found.expect("there are such browsers")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Said = Said { audience: 8, accepted: 7, gone: 1, given_up: 0, outcomes: 8 };

    /// Devices 0 to 7 of all providers, of which 3 is gone, and bystanders up to 15; all lives are one.
    fn books() -> Books {
        let mut books = Books::new(7, 16, |device| device < 8);
        books.end_life(|device| u32::from(device < 8 && device != 3), |_| true);
        books
    }

    fn end_life(books: &mut Books, count_of: impl Fn(u32) -> u32, is_noted: impl Fn(u32) -> bool) -> FloodLife {
        books.end_life(count_of, is_noted).into_iter().fold(FloodLife::default(), FloodLife::add)
    }

    #[test]
    fn who_got_it_once_or_is_gone_is_right() {
        let wrongs = books().check(&GOOD);
        assert!(wrongs.is_empty(), "{wrongs}");
    }

    #[test]
    fn a_report_that_differs_in_one_device_is_wrong() {
        let others = [
            Said { audience: 9, ..GOOD },
            Said { accepted: 8, gone: 0, ..GOOD },
            Said { accepted: 6, gone: 2, ..GOOD },
            Said { accepted: 6, ..GOOD },
            Said { gone: 2, ..GOOD },
            Said { gone: 0, ..GOOD },
            Said { given_up: 1, ..GOOD },
            Said { outcomes: 7, ..GOOD },
            Said { outcomes: 9, ..GOOD },
        ];
        for said in others {
            assert!(!books().check(&said).is_empty(), "{said:?}");
        }
    }

    #[test]
    fn who_was_given_up_may_have_got_it_or_not_but_is_one_of_the_audience() {
        for right in [Said { accepted: 6, given_up: 1, ..GOOD }, Said { gone: 0, given_up: 1, ..GOOD }] {
            let wrongs = books().check(&right);
            assert!(wrongs.is_empty(), "{wrongs}");
        }
        let more_accepted = Said { accepted: 8, gone: 0, ..GOOD };
        for wrong in [more_accepted, Said { accepted: 5, given_up: 1, gone: 2, ..GOOD }] {
            assert!(!books().check(&wrong).is_empty(), "{wrong:?}");
        }
    }

    #[test]
    fn a_delivery_to_a_browser_that_is_forged_lost_or_repeated_is_noticed() {
        for spoil in [Books::forge, Books::drop_one, Books::repeat_one] {
            let mut books = books();
            spoil(&mut books);
            let mut wrongs = books.check(&GOOD);
            wrongs.append(books.wrongs);
            assert!(!wrongs.is_empty());
        }
    }

    #[test]
    fn what_a_life_leaves_is_told_by_provider() {
        let mut books = Books::new(7, 8, |_| true);
        let lives = books.end_life(|device| if device == 6 { 2 } else { 1 }, |device| device == 7);
        let devices = lives.map(|life| (life.devices, life.noted, life.fresh, life.fault_repeats));
        assert_eq!(devices, [(6, 0, 6, 0), (1, 1, 0, 0), (1, 0, 1, 1)]);
    }

    #[test]
    fn a_repeat_after_a_kill_is_excused_if_its_outcome_was_not_noted() {
        let mut books = Books::new(7, 2, |_| true);
        let life = end_life(&mut books, |_| 1, |device| device == 0);
        assert_eq!(life, FloodLife { devices: 2, noted: 1, fresh: 1, fault_repeats: 0 });
        books.end_life(|device| 1 + device, |_| true);
        assert!(books.wrongs.is_empty(), "{}", books.wrongs);
        assert_eq!(books.totals.crash_repeats, 1);
        books.end_life(|_| 2, |_| true);
        assert!(books.wrongs.to_string().contains("device 0 got event 7 1 times"), "{}", books.wrongs);
    }

    #[test]
    fn what_was_settled_without_an_acceptance_is_accepted_no_more() {
        let mut books = Books::new(7, 2, |_| true);
        books.end_life(|_| 0, |device| device == 1);
        books.end_life(|device| u32::from(device == 0), |_| true);
        assert!(books.wrongs.is_empty(), "{}", books.wrongs);
        books.end_life(|_| 1, |_| true);
        assert!(books.wrongs.to_string().contains("device 1 got event 7 0 times"), "{}", books.wrongs);
    }

    #[test]
    fn what_was_cancelled_is_accepted_no_more() {
        let mut books = Books::new(7, 2, |_| true);
        books.end_life(|device| device, |_| false);
        books.close();
        books.end_life(|device| device, |_| false);
        assert!(books.wrongs.is_empty(), "{}", books.wrongs);
        books.end_life(|_| 1, |_| true);
        assert!(books.wrongs.to_string().contains("device 0 got event 7, which"), "{}", books.wrongs);
    }

    #[test]
    fn fresh_is_what_this_life_has_added() {
        let mut books = Books::new(7, 1, |_| true);
        assert_eq!(end_life(&mut books, |_| 1, |_| false).fresh, 1);
        assert_eq!(end_life(&mut books, |_| 1, |_| false).fresh, 0, "nothing new in that life");
        assert_eq!(end_life(&mut books, |_| 2, |_| false).fresh, 1);
        assert_eq!((books.wrongs.is_empty(), books.totals.crash_repeats), (true, 1));
    }

    #[test]
    fn a_repeat_within_a_life_is_counted_apart() {
        let mut books = Books::new(7, 1, |_| true);
        assert_eq!(end_life(&mut books, |_| 3, |_| true).fault_repeats, 2);
        assert_eq!(books.totals, Totals { accepted: 3, fault_repeats: 2, ..Totals::default() });
    }
}
