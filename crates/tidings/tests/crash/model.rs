//! What the campaign has asked for and was acknowledged, and what follows from it: who is owed which event.
//!
//! Time is a counter: each request takes a tick before it is sent and one when its answer was read, so that "before" is
//! certain. A request that was cut off is sent again as it was; it counts from its first sending to its answer.
//!
//! The rule. A device's subscriptions *may hold* from the moment the request is sent and *do hold* from its answer; the
//! audience of an event is chosen some time after the event was first sent, and may be chosen again after a restart.
//! A device is therefore
//! - **owed** an event when it was registered before the event was sent, and one subscription that matches was
//!   acknowledged before that and is part of everything the device was sent to be subscribed to since;
//! - **not** to get it when no subscription that may hold since then matches, when it was first registered after the
//!   event was acknowledged, or when the event is not for pushing;
//! - else it **may** get it: its subscriptions changed around it.

use std::collections::BTreeSet;

use crate::PUBLICATION;

/// One subscription: the numbers of subject and topic.
pub(crate) type Key = (u16, u8);

/// Everything known so far.
#[derive(Default)]
pub(crate) struct World {
    tick: u64,
    answer_count: u64,
    pub(crate) devices: Vec<Device>,
    pub(crate) events: Vec<Event>,
    pub(crate) publications: Vec<Publication>,
}

/// From the first sending to the answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    sent: u64,
    acknowledged: Option<u64>,
}

#[derive(Default)]
pub(crate) struct Device {
    /// Of its first registration; `None` before it.
    registration: Option<Span>,
    /// What it was to be subscribed to, oldest first; only the last may be unacknowledged.
    changes: Vec<(Span, BTreeSet<Key>)>,
}

pub(crate) struct Event {
    span: Span,
    pub(crate) push: bool,
    pub(crate) topic: u8,
    /// The first one names its channel.
    pub(crate) subjects: Vec<u16>,
    pub(crate) answer: Option<Acknowledged>,
}

/// Published with an idempotency key, in several channels.
pub(crate) struct Publication {
    /// Their subjects.
    pub(crate) channels: Vec<u16>,
    /// In each of them; `None` while there is no answer.
    pub(crate) offsets: Option<Vec<u64>>,
}

/// What the server said of an event it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    /// In the journal.
    pub(crate) position: u64,
    /// In its channel.
    pub(crate) offset: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    Owed,
    Maybe,
    No,
}

impl Span {
    fn is_acknowledged_before(&self, tick: u64) -> bool {
        self.acknowledged.is_some_and(|at| at < tick)
    }
}

impl World {
    pub(crate) fn with_devices(count: usize) -> Self {
        Self { devices: (0..count).map(|_| Device::default()).collect(), ..Self::default() }
    }

    /// The device is about to be registered; only the first time matters.
    pub(crate) fn send_registration(&mut self, device: u32) {
        let span = self.begin();
        self.devices[device as usize].registration.get_or_insert(span);
    }

    pub(crate) fn acknowledge_registration(&mut self, device: u32) {
        let tick = self.end();
        if let Some(span) = &mut self.devices[device as usize].registration {
            span.acknowledged.get_or_insert(tick);
        }
    }

    /// The device is about to be subscribed to `keys` and nothing else.
    pub(crate) fn send_change(&mut self, device: u32, keys: BTreeSet<Key>) {
        let span = self.begin();
        self.devices[device as usize].changes.push((span, keys));
    }

    pub(crate) fn acknowledge_change(&mut self, device: u32) {
        let tick = self.end();
        if let Some((span, _)) = self.devices[device as usize].changes.last_mut() {
            span.acknowledged = Some(tick);
        }
    }

    /// An event is about to be sent; gives its number.
    pub(crate) fn send_event(&mut self, topic: u8, subjects: Vec<u16>, push: bool) -> u32 {
        let span = self.begin();
        self.events.push(Event { span, push, topic, subjects, answer: None });
        self.events.len() as u32 - 1
    }

    pub(crate) fn acknowledge_event(&mut self, event: u32, answer: Acknowledged) {
        let tick = self.end();
        let event = &mut self.events[event as usize];
        event.span.acknowledged = Some(tick);
        event.answer = Some(answer);
    }

    /// Something is about to be published; gives its number.
    pub(crate) fn send_publication(&mut self, channels: Vec<u16>) -> u32 {
        self.publications.push(Publication { channels, offsets: None });
        PUBLICATION + self.publications.len() as u32 - 1
    }

    pub(crate) fn acknowledge_publication(&mut self, number: u32, offsets: Vec<u64>) {
        self.answer_count += 1;
        self.publications[(number - PUBLICATION) as usize].offsets = Some(offsets);
    }

    /// What was acknowledged in channels: number, channel and offset of each event and each publication.
    pub(crate) fn acknowledged(&self) -> impl Iterator<Item = (u32, u16, u64)> {
        let of_event = |(event, state): (u32, &Event)| Some((event, state.subjects[0], state.answer?.offset));
        let events = (0..).zip(&self.events).filter_map(of_event);
        let publications =
            (PUBLICATION..).zip(&self.publications).flat_map(|(number, Publication { channels, offsets })| {
                let offsets = offsets.iter().flatten();
                channels.iter().zip(offsets).map(move |(channel, offset)| (number, *channel, *offset))
            });
        events.chain(publications)
    }

    pub(crate) fn claim(&self, device: u32, event: u32) -> Claim {
        let (device, event) = (&self.devices[device as usize], &self.events[event as usize]);
        let sent = event.span.sent;
        let Some(registration) = device.registration.filter(|_| event.push) else { return Claim::No };
        if event.span.is_acknowledged_before(registration.sent) {
            return Claim::No;
        }
        // The last that held for certain, and all that came after it.
        let held = device.changes.iter().rposition(|(span, _)| span.is_acknowledged_before(sent));
        let mut possible = device.changes[held.unwrap_or(0)..].iter().map(|(_, keys)| keys);
        let matching = |keys: &BTreeSet<Key>| -> BTreeSet<Key> {
            let keys = keys.iter().filter(|(subject, topic)| *topic == event.topic && event.subjects.contains(subject));
            keys.copied().collect()
        };
        let Some(first) = possible.next().map(matching) else { return Claim::No };
        let (mut always, mut sometimes) = (first.clone(), first);
        for keys in possible.map(matching) {
            always = &always & &keys;
            sometimes.extend(keys);
        }
        if sometimes.is_empty() {
            Claim::No
        } else if held.is_some() && registration.is_acknowledged_before(sent) && !always.is_empty() {
            Claim::Owed
        } else {
            Claim::Maybe
        }
    }

    /// Events and publications that were sent and have no answer yet.
    pub(crate) fn unanswered_count(&self) -> usize {
        let events = self.events.iter().filter(|event| event.answer.is_none()).count();
        events + self.publications.iter().filter(|publication| publication.offsets.is_none()).count()
    }

    /// How many requests were answered.
    pub(crate) fn answer_count(&self) -> u64 {
        self.answer_count
    }

    fn begin(&mut self) -> Span {
        Span { sent: self.next_tick(), acknowledged: None }
    }

    fn end(&mut self) -> u64 {
        self.answer_count += 1;
        self.next_tick()
    }

    fn next_tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }
}

impl Device {
    /// Whether its registration was acknowledged.
    pub(crate) fn is_registered(&self) -> bool {
        self.registration.is_some_and(|span| span.acknowledged.is_some())
    }

    /// What it is subscribed to for certain; `None` while a change is on its way.
    pub(crate) fn certain(&self) -> Option<&BTreeSet<Key>> {
        self.changes.last().filter(|(span, _)| span.acknowledged.is_some()).map(|(_, keys)| keys)
    }

    /// What it was last to be subscribed to.
    pub(crate) fn latest(&self) -> BTreeSet<Key> {
        self.changes.last().map(|(_, keys)| keys.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOAL: u8 = 0;

    fn keys(subjects: &[u16]) -> BTreeSet<Key> {
        subjects.iter().map(|subject| (*subject, GOAL)).collect()
    }

    /// One registered device, subscribed as told.
    fn world(subjects: &[u16]) -> World {
        let mut world = World::with_devices(1);
        world.send_registration(0);
        world.acknowledge_registration(0);
        change(&mut world, subjects);
        world
    }

    fn change(world: &mut World, subjects: &[u16]) {
        world.send_change(0, keys(subjects));
        world.acknowledge_change(0);
    }

    fn event(world: &mut World, subjects: &[u16]) -> u32 {
        let event = world.send_event(GOAL, subjects.to_vec(), true);
        world.acknowledge_event(event, Acknowledged { position: 1, offset: 1 });
        event
    }

    #[test]
    fn who_is_subscribed_is_owed_and_nobody_else() {
        let mut world = world(&[1, 2]);
        let event_of = |world: &mut World, subjects: &[u16]| event(world, subjects);
        let (owed, not) = (event_of(&mut world, &[9, 2]), event_of(&mut world, &[9, 3]));
        let other_topic = world.send_event(GOAL + 1, vec![1], true);
        let not_for_pushing = world.send_event(GOAL, vec![1], false);
        let claims = [owed, not, other_topic, not_for_pushing].map(|event| world.claim(0, event));
        assert_eq!(claims, [Claim::Owed, Claim::No, Claim::No, Claim::No]);
    }

    #[test]
    fn a_change_around_the_event_leaves_both_open() {
        let mut world = world(&[1]);
        let before = event(&mut world, &[1]);
        change(&mut world, &[2]);
        let after = event(&mut world, &[1]);
        assert_eq!([before, after].map(|event| world.claim(0, event)), [Claim::Maybe, Claim::No]);
    }

    #[test]
    fn a_change_that_keeps_the_subscription_changes_nothing() {
        let mut world = world(&[1, 2]);
        let (kept, swapped) = (event(&mut world, &[1]), event(&mut world, &[2, 3]));
        change(&mut world, &[1, 3]);
        assert_eq!(world.claim(0, kept), Claim::Owed);
        assert_eq!(world.claim(0, swapped), Claim::Maybe, "in between it may have had neither");
    }

    #[test]
    fn what_is_not_acknowledged_may_hold() {
        let mut world = world(&[1]);
        world.send_change(0, keys(&[2]));
        let (old, new) = (event(&mut world, &[1]), event(&mut world, &[2]));
        assert_eq!([old, new].map(|event| world.claim(0, event)), [Claim::Maybe; 2]);
        assert_eq!(world.devices[0].certain(), None);
    }

    #[test]
    fn an_event_before_the_registration_is_never_owed() {
        let mut world = World::with_devices(1);
        let acknowledged = event(&mut world, &[1]);
        let open = world.send_event(GOAL, vec![1], true);
        world.send_registration(0);
        world.acknowledge_registration(0);
        change(&mut world, &[1]);
        assert_eq!([acknowledged, open].map(|event| world.claim(0, event)), [Claim::No, Claim::Maybe]);
    }
}
