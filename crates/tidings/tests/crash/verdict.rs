//! Whether everything that was promised was kept: the providers' ledgers against the model, at the end of the campaign.
//!
//! Everything else is checked where it happens: ids and repeats with each acceptance, what was acknowledged after each
//! kill, the order of publications with each of them.

use std::collections::{BTreeMap, HashMap, HashSet};

use tidings_types::{DeviceId, EventId, NotificationId, Provider};

use crate::deliveries::{Deliveries, Wrongs};
use crate::model::{Claim, World};
use crate::simulators::provider_of;
use crate::{device_id, event_id, subject};

/// What the server says became of an event's audience, by name of the outcome (`accepted`, `rejected/REASON`, …).
pub(crate) type Outcomes = HashMap<u32, BTreeMap<String, u64>>;

/// Every channel's events and publications by offset.
pub(crate) type Logs = HashMap<String, BTreeMap<u64, u32>>;

/// What excuses a device that did not get what it was owed, or did not have to.
pub(crate) struct Excuses<'a> {
    /// By event.
    pub(crate) outcomes: &'a Outcomes,
    /// Devices whose token a provider called gone.
    pub(crate) gone: &'a HashSet<u32>,
    /// Refusals for good that the providers gave, those for gone tokens not among them.
    pub(crate) rejected: u64,
}

/// What the campaign was about, in numbers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) owed: u64,
    pub(crate) delivered: u64,
    /// Owed and refused by the provider.
    pub(crate) refused: u64,
    /// Owed and without a living token.
    pub(crate) gone: u64,
    /// Delivered where the subscription changed around the event.
    pub(crate) allowed: u64,
}

/// Checks every pair of device and event, and the server's books against the ledger.
pub(crate) fn check(world: &World, deliveries: &Deliveries, excuses: &Excuses<'_>) -> (Wrongs, Sums) {
    let (mut wrongs, mut sums) = (Wrongs::default(), Sums::default());
    let mut refused_total = 0;
    for (event, state) in world.events.iter().enumerate().filter(|(_, state)| state.push) {
        let event = event as u32;
        let (mut missing, mut got, mut owed_got) = (0, 0, 0);
        for device in 0..world.devices.len() as u32 {
            let is_delivered = deliveries.of((device, event)).is_some();
            let is_gone = excuses.gone.contains(&device);
            got += u64::from(is_delivered);
            match world.claim(device, event) {
                Claim::Owed => {
                    sums.owed += 1;
                    owed_got += u64::from(is_delivered);
                    sums.gone += u64::from(is_gone);
                    missing += u64::from(!is_delivered && !is_gone);
                }
                Claim::Maybe => sums.allowed += u64::from(is_delivered),
                Claim::No => {
                    wrongs.require(!is_delivered, || format!("device {device} got event {event}, not its own"))
                }
            }
        }
        let nothing = BTreeMap::new();
        let outcomes = excuses.outcomes.get(&event).unwrap_or(&nothing);
        let refused = refusals(outcomes);
        refused_total += refused;
        sums.delivered += owed_got;
        sums.refused += missing;
        wrongs.require(missing <= refused, || {
            let subjects: Vec<String> = state.subjects.iter().map(|number| subject(*number)).collect();
            format!("event {event} about {subjects:?} is missing at {missing} devices, {refused} were refused")
        });
        wrongs.append(check_books(event, outcomes, got, owed_got));
    }
    wrongs.require(refused_total <= excuses.rejected, || {
        format!("the server counts {refused_total} refusals, the providers gave {}", excuses.rejected)
    });
    for ((device, event), delivery) in deliveries.pairs() {
        let is_gone = excuses.gone.contains(&device);
        wrongs.require(!is_gone, || format!("device {device} got event {event} and then lost its token"));
        let is_push = world.events.get(event as usize).is_some_and(|event| event.push);
        wrongs.require(is_push, || format!("device {device} got event {event}, which is not for pushing"));
        let expected = notification_id(device, event);
        let has_id = provider_of(device) == Provider::Apns; // The others know none.
        wrongs.require(!has_id || delivery.id == expected.0, || {
            format!("device {device} got event {event} as {}, not as {expected}", delivery.id)
        });
    }
    (wrongs, sums)
}

/// Which id the notification must have.
fn notification_id(device: u32, event: u32) -> NotificationId {
    let names = (EventId::new(&event_id(event)), DeviceId::new(&device_id(device)));
    NotificationId::new(&names.0.expect("ours are short"), &names.1.expect("ours are short"))
}

/// What a provider says of a device that is gone.
const GONE: [&str; 3] = ["rejected/Unregistered", "rejected/UNREGISTERED", "rejected/subscription_gone"];

/// Of all kinds but those.
fn refusals(outcomes: &BTreeMap<String, u64>) -> u64 {
    let refusals = outcomes.iter().filter(|(name, _)| name.starts_with("rejected/") && !GONE.contains(&&***name));
    refusals.map(|(_, count)| count).sum()
}

/// Every accepted outcome stands in the ledger, and of what was owed and stands there, every one was counted as accepted
/// or, repeated after a crash, as refused. (Who unsubscribed may have got it before a crash and be forgotten after it.)
fn check_books(event: u32, outcomes: &BTreeMap<String, u64>, got: u64, owed_got: u64) -> Wrongs {
    let mut wrongs = Wrongs::default();
    let (accepted, refused) = (outcomes.get("accepted").copied().unwrap_or(0), refusals(outcomes));
    wrongs.require(accepted <= got && owed_got <= accepted + refused, || {
        format!(
            "event {event}: {got} got it, {owed_got} of them owed, the server counts {accepted} and {refused} refused"
        )
    });
    let usual = ["accepted", "rejected/", "suppressed/no_token", "suppressed/registered_later"];
    for (name, count) in outcomes.iter().filter(|(name, _)| !usual.iter().any(|usual| name.starts_with(usual))) {
        wrongs.add(|| format!("event {event}: {count} devices ended as {name}"));
    }
    wrongs
}

/// Every channel's events and publications by offset, as acknowledged; complains about gaps and two in one place.
pub(crate) fn channel_logs(world: &World, wrongs: &mut Wrongs) -> Logs {
    let mut logs = Logs::new();
    let unanswered = world.unanswered_count();
    wrongs.require(unanswered == 0, || format!("{unanswered} events or publications were never acknowledged"));
    for (event, channel, offset) in world.acknowledged() {
        let channel = subject(channel);
        let other = logs.entry(channel.clone()).or_default().insert(offset, event);
        wrongs.require(other.is_none(), || format!("{channel} has two events at {offset}: {event}, {other:?}"));
    }
    for (channel, log) in &logs {
        let top = log.last_key_value().map_or(0, |(offset, _)| *offset);
        wrongs.require(top == log.len() as u64, || format!("{channel} goes up to {top} with {} events", log.len()));
    }
    logs
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::deliveries::tests::accept_as;
    use crate::model::Acknowledged;

    /// Devices 0 to 9 are subscribed to subject 1 and were told of event 0; of event 1, about subject 2, nobody was.
    struct Scene {
        world: World,
        deliveries: Deliveries,
        outcomes: Outcomes,
        gone: HashSet<u32>,
        rejected: u64,
    }

    impl Scene {
        fn new() -> Self {
            Self::without(u32::MAX)
        }

        /// The same, but this device did not get it.
        fn without(missing: u32) -> Self {
            let mut world = World::with_devices(10);
            for device in 0..10 {
                world.send_registration(device);
                world.acknowledge_registration(device);
                world.send_change(device, BTreeSet::from([(1, 0)]));
                world.acknowledge_change(device);
            }
            for subject in [1, 2] {
                let event = world.send_event(0, vec![subject], true);
                world.acknowledge_event(event, Acknowledged { position: event.into(), offset: 1 });
            }
            let mut deliveries = Deliveries::default();
            let got: Vec<u32> = (0..10).filter(|device| *device != missing).collect();
            got.iter().for_each(|device| accept(&mut deliveries, *device, 0));
            let accepted = BTreeMap::from([("accepted".to_owned(), got.len() as u64)]);
            let outcomes = HashMap::from([(0, accepted)]);
            Self { world, deliveries, outcomes, gone: HashSet::new(), rejected: 0 }
        }

        fn outcome(&mut self, event: u32, name: &str, count: u64) {
            self.outcomes.entry(event).or_default().insert(name.to_owned(), count);
        }

        fn wrongs(&self) -> Wrongs {
            let Self { outcomes, gone, rejected, .. } = self;
            check(&self.world, &self.deliveries, &Excuses { outcomes, gone, rejected: *rejected }).0
        }
    }

    fn accept(deliveries: &mut Deliveries, device: u32, event: u32) {
        accept_as(deliveries, device, event, notification_id(device, event).0);
    }

    #[test]
    fn what_is_right_is_not_complained_about() {
        let wrongs = Scene::new().wrongs();
        assert!(wrongs.is_empty(), "{wrongs}");
    }

    /// One for each provider.
    const DEVICES: [u32; 3] = [3, 6, 7];

    #[test]
    fn a_dropped_entry_is_noticed() {
        for device in DEVICES {
            let wrongs = Scene::without(device).wrongs();
            assert!(wrongs.to_string().contains("missing at 1 devices"), "{wrongs}");
        }
    }

    #[test]
    fn a_dropped_entry_is_excused_by_a_refusal_that_a_provider_gave() {
        let refusals = ["DeviceTokenNotForTopic", "web_push_payload_too_large", "THIRD_PARTY_AUTH_ERROR"];
        for (device, name) in DEVICES.into_iter().zip(refusals) {
            let mut scene = Scene::without(device);
            scene.outcome(0, &format!("rejected/{name}"), 1);
            assert!(!scene.wrongs().is_empty(), "the provider knows nothing of it");
            scene.rejected = 1;
            let wrongs = scene.wrongs();
            assert!(wrongs.is_empty(), "{wrongs}");
        }
    }

    #[test]
    fn a_dropped_entry_is_excused_by_a_gone_token_but_not_after_a_delivery() {
        for (device, name) in DEVICES.into_iter().zip(["Unregistered", "subscription_gone", "UNREGISTERED"]) {
            let mut scene = Scene::without(device);
            scene.gone.insert(device);
            scene.outcome(0, &format!("rejected/{name}"), 1);
            let wrongs = scene.wrongs();
            assert!(wrongs.is_empty(), "{wrongs}");
            scene.gone.insert(4);
            assert!(!scene.wrongs().is_empty());
        }
    }

    #[test]
    fn a_forged_entry_is_noticed() {
        for device in DEVICES {
            let mut scene = Scene::new();
            accept(&mut scene.deliveries, device, 1);
            scene.outcome(1, "accepted", 1);
            let wrongs = scene.wrongs();
            assert!(wrongs.to_string().contains("not its own"), "{wrongs}");
        }
    }

    #[test]
    fn a_wrong_id_is_noticed() {
        let mut scene = Scene::without(3);
        accept_as(&mut scene.deliveries, 3, 0, uuid::Uuid::nil());
        scene.outcome(0, "accepted", 10);
        assert!(!scene.wrongs().is_empty());
    }

    #[test]
    fn books_that_do_not_agree_with_the_ledger_are_noticed() {
        for (name, count) in [("accepted", 11), ("accepted", 9), ("expired", 1), ("suppressed/no_pool", 1)] {
            let mut scene = Scene::new();
            scene.outcome(0, name, count);
            assert!(!scene.wrongs().is_empty(), "{name} {count}");
        }
    }

    #[test]
    fn a_gap_or_two_events_in_one_place_of_a_channel_are_noticed() {
        let logs = |offsets: [u64; 3]| {
            let mut world = World::with_devices(0);
            for offset in offsets {
                let event = world.send_event(0, vec![1], false);
                world.acknowledge_event(event, Acknowledged { position: 0, offset });
            }
            let mut wrongs = Wrongs::default();
            channel_logs(&world, &mut wrongs);
            wrongs.is_empty()
        };
        assert!(logs([1, 3, 2]));
        assert!(!logs([1, 2, 4]));
        assert!(!logs([1, 2, 2]));
    }
}
