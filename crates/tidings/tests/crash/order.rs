//! Of two events with the same collapse key: the older one is not accepted by a device after the newer one.
//!
//! Within a life this holds without exception. A kill allows one: where the checkpoint knew nothing of the newer one
//! yet, both go on from before it, and the device gets the newer one once more. So at each kill the checkpoint must not
//! settle the newer one at a device and leave the older one open (what it settles no later life sends, `books.rs`);
//! and in the end every device that got the newer one got it last.
//!
//! In memory: 2 bytes per device.

use crate::deliveries::Wrongs;

/// Which of both a device got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Older,
    Newer,
}

/// What a life leaves at one device that both are for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trace {
    pub(crate) device: u32,
    /// How often the newer one was accepted so far.
    pub(crate) newer_count: u32,
    /// Which of both was accepted last.
    pub(crate) last: Option<Place>,
    /// The checkpoint knows their outcomes.
    pub(crate) is_older_noted: bool,
    pub(crate) is_newer_noted: bool,
}

/// Devices that both are for, over all lives.
pub(crate) struct Order {
    /// By device.
    newer_counts: Vec<u8>,
    last: Vec<Option<Place>>,
    pub(crate) wrongs: Wrongs,
}

impl Order {
    pub(crate) fn new(device_count: u32) -> Self {
        let count = device_count as usize;
        Self { newer_counts: vec![0; count], last: vec![None; count], wrongs: Wrongs::default() }
    }

    /// The server was killed or stopped.
    pub(crate) fn end_life(&mut self, traces: impl Iterator<Item = Trace>) {
        for Trace { device, newer_count, last, is_older_noted, is_newer_noted } in traces {
            let newer_count = u8::try_from(newer_count).unwrap_or(u8::MAX);
            let before = std::mem::replace(&mut self.newer_counts[device as usize], newer_count);
            self.wrongs.require(newer_count == before || last == Some(Place::Newer), || {
                format!("device {device} got the older event after the newer one, in the same life")
            });
            self.wrongs.require(is_older_noted || !is_newer_noted, || {
                format!("device {device}: the checkpoint knows the newer event's outcome, and has the older one open")
            });
            self.last[device as usize] = last;
        }
    }

    /// At the end.
    pub(crate) fn check(&self) -> Wrongs {
        let mut wrongs = Wrongs::default();
        for (device, (count, last)) in self.newer_counts.iter().zip(&self.last).enumerate() {
            wrongs.require(*count == 0 || *last == Some(Place::Newer), || {
                format!("device {device} got the older event last")
            });
        }
        wrongs
    }

    /// For the canary: one device got them the other way round.
    pub(crate) fn reverse_one(&mut self) {
        let last = self.last.iter_mut().find(|last| **last == Some(Place::Newer));
        *last.expect("somebody got the newer one") = Some(Place::Older);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: Trace =
        Trace { device: 1, newer_count: 1, last: Some(Place::Newer), is_older_noted: true, is_newer_noted: true };

    /// The complaints of both kinds, after lives that left these traces.
    fn wrongs(traces: &[Trace]) -> Wrongs {
        let mut order = Order::new(2);
        traces.iter().for_each(|trace| order.end_life(std::iter::once(*trace)));
        order.wrongs.append(order.check());
        order.wrongs
    }

    #[test]
    fn the_newer_last_is_right_and_so_is_either_alone() {
        let older = Trace { newer_count: 0, last: Some(Place::Older), is_newer_noted: false, ..TRACE };
        let neither = Trace { last: None, is_older_noted: false, ..older };
        for traces in [&[TRACE][..], &[older], &[older, TRACE], &[neither, TRACE], &[neither, older]] {
            let wrongs = wrongs(traces);
            assert!(wrongs.is_empty(), "{traces:?}: {wrongs}");
        }
    }

    #[test]
    fn the_older_one_may_come_after_a_kill_that_neither_was_noted_before_if_the_newer_comes_again() {
        let open = Trace { is_older_noted: false, is_newer_noted: false, ..TRACE };
        let back = Trace { last: Some(Place::Older), ..open };
        let wrongs_of = wrongs(&[open, back, Trace { newer_count: 2, ..TRACE }]);
        assert!(wrongs_of.is_empty(), "{wrongs_of}");
        assert!(wrongs(&[open, back]).to_string().contains("older event last"));
    }

    #[test]
    fn the_older_one_after_the_newer_in_one_life_is_wrong() {
        let back = Trace { newer_count: 2, last: Some(Place::Older), ..TRACE };
        assert!(wrongs(&[TRACE, back, Trace { newer_count: 3, ..TRACE }]).to_string().contains("same life"));
    }

    #[test]
    fn a_checkpoint_that_leaves_only_the_older_one_open_is_wrong() {
        assert!(wrongs(&[Trace { is_older_noted: false, ..TRACE }]).to_string().contains("has the older one open"));
    }

    #[test]
    fn the_canary_is_noticed() {
        let mut order = Order::new(2);
        order.end_life(std::iter::once(TRACE));
        order.reverse_one();
        assert!(!order.check().is_empty());
    }
}
