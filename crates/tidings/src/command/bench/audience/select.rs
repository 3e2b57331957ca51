//! Finding an audience of a wanted size, proving it right, and handing it out with the clock running.

use std::collections::HashSet;
use std::hint::black_box;
use std::time::Duration;

use tidings_audience::Frozen;
use tidings_store::Store;
use tidings_types::{DeviceNumber, Event, EventId, Subject, TopicName, event_limits};
use tokio::time::Instant;

use super::data::{self, Data};
use crate::command::CommandError;
use crate::command::bench::failed;

/// Devices read at a time, as the sender does.
const WINDOW_COUNT: usize = 1024;

/// An event's topic and subjects, and how many it reaches.
#[derive(Clone)]
pub(super) struct Audience {
    /// The size that was looked for.
    pub(super) wanted: u64,
    pub(super) len: u64,
    topic: TopicName,
    subjects: Vec<Subject>,
    ranks: HashSet<usize>,
}

/// How long after the event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) frozen: Duration,
    /// The first device was handed out.
    pub(super) first: Duration,
    /// The last one was.
    pub(super) all: Duration,
}

/// Looks for events that reach the wanted sizes, to a tenth; those out of reach are left out.
pub(super) fn find(data: &Data, store: &Store, sizes: &[u64]) -> Result<Vec<Audience>, CommandError> {
    let found: Vec<Audience> = sizes.iter().filter_map(|&wanted| find_one(data, store, wanted)).collect();
    if found.is_empty() { Err(failed("there are too few devices for the smallest audience")) } else { Ok(found) }
}

/// From the most popular subject on, takes each that does not make the audience too large.
fn find_one(data: &Data, store: &Store, wanted: u64) -> Option<Audience> {
    let topic = data.topics[0].clone();
    let (mut subjects, mut ranks, mut len) = (Vec::new(), HashSet::new(), 0);
    for (rank, subject) in data.subjects.iter().enumerate() {
        if subjects.len() == event_limits::SUBJECT_COUNT_MAX || len * 20 >= wanted * 19 {
            break;
        }
        subjects.push(subject.clone());
        let reached = store.select(&event(&topic, &subjects)).len();
        if reached * 20 <= wanted * 21 {
            len = reached;
            ranks.insert(rank);
        } else {
            subjects.pop();
        }
    }
    (len * 10 >= wanted * 9).then_some(Audience { wanted, len, topic, subjects, ranks })
}

fn event(topic: &TopicName, subjects: &[Subject]) -> Event {
    Event::new(EventId::new("bench").expect("a legal id"), topic.clone(), subjects.to_vec())
}

impl Audience {
    pub(super) fn subject_count(&self) -> usize {
        self.subjects.len()
    }

    fn freeze(&self, store: &Store) -> Frozen {
        store.select(&event(&self.topic, &self.subjects))
    }

    /// Compares with a walk over all devices: exactly those, each once, with its own token.
    pub(super) fn check(&self, data: &Data, store: &Store) -> Result<(), CommandError> {
        let owed = |device| data.drawn(device).any(|(subject, topic)| topic == 0 && self.ranks.contains(&subject));
        let mut missing: Vec<bool> = (0..data.device_count).map(owed).collect();
        let mut wrong = None;
        visit(store, &self.freeze(store), |recipient| {
            let device = data::device_of(recipient.id);
            let place = device.and_then(|device| missing.get_mut(device as usize));
            let taken = place.is_some_and(std::mem::take);
            let addressed = device.is_some_and(|device| recipient.token == Some(&data::token(device)));
            if !taken || !addressed {
                wrong.get_or_insert_with(|| recipient.id.to_string());
            }
        });
        let missing = missing.into_iter().filter(|&missing| missing).count();
        match wrong {
            Some(id) => Err(failed(format!("device {id} was told twice, not owed it, or has a wrong token"))),
            None if missing > 0 => Err(failed(format!("{missing} devices of an audience are missing"))),
            None => Ok(()),
        }
    }

    /// Freezes and hands out everyone with token, language and platform.
    pub(super) fn hand_out(&self, store: &Store) -> Result<Times, CommandError> {
        let began = Instant::now();
        let frozen = self.freeze(store);
        let frozen_after = began.elapsed();
        let (mut first, mut count) = (None, 0_u64);
        visit(store, &frozen, |recipient| {
            first.get_or_insert_with(|| began.elapsed());
            let token = recipient.token.map_or(&[][..], |token| token.as_bytes());
            black_box((token.first(), token.last(), recipient.locale, recipient.platform));
            count += 1;
        });
        let all = began.elapsed();
        if count != self.len {
            return Err(failed(format!("{count} of {} devices were handed out", self.len)));
        }
        Ok(Times { frozen: frozen_after, first: first.unwrap_or(all), all })
    }
}

/// Window by window, as the sender reads.
fn visit(store: &Store, frozen: &Frozen, mut each: impl FnMut(tidings_store::Recipient<'_>)) {
    let mut numbers = frozen.iter_from(DeviceNumber(0));
    let mut window = Vec::with_capacity(WINDOW_COUNT);
    loop {
        window.clear();
        window.extend(numbers.by_ref().take(WINDOW_COUNT));
        if window.is_empty() {
            return;
        }
        store.with_recipients(&window, &mut each);
    }
}

#[cfg(test)]
mod tests {
    use tidings_telemetry::unix_now;

    use super::*;
    use crate::command::bench::store;
    use tidings_store::NewImport;

    #[tokio::test]
    async fn a_device_too_few_or_too_many_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let store = store::open(folder.path()).await.unwrap();
        let data = Data::new(2000);
        let import = |device| NewImport {
            device: data.device(device),
            subscriptions: data.owned_subscriptions(device),
            credential: None,
            proven: true,
        };
        let devices = (0..2000).map(import);
        store.import_devices(devices.collect(), unix_now()).await.unwrap();
        let audience = find(&data, &store, &[500, 1_000_000]).unwrap().pop().unwrap();
        assert_eq!(audience.wanted, 500, "a million is out of reach");
        assert!(audience.len.abs_diff(500) <= 50);
        audience.check(&data, &store).unwrap();
        assert!(audience.hand_out(&store).is_ok());

        let owed =
            |device: &u32| data.drawn(*device).any(|(subject, topic)| topic == 0 && audience.ranks.contains(&subject));
        let stranger = (0..2000).find(|device| !owed(device)).unwrap();
        let selection = vec![(audience.subjects[0].clone(), vec![audience.topic.clone()])];
        store.subscribe(&data::device_id(stranger), selection.clone()).await.unwrap();
        assert!(audience.check(&data, &store).is_err(), "somebody is told who should not be");
        store.unsubscribe(&data::device_id(stranger), selection).await.unwrap();
        audience.check(&data, &store).unwrap();

        store.delete_device(&data::device_id((0..2000).find(owed).unwrap())).await.unwrap();
        assert!(audience.check(&data, &store).is_err(), "somebody is not told who should be");
        assert!(audience.hand_out(&store).is_err());
        store.close().await;
    }
}
