//! A node takes over while news of the former home are applied and its own clients publish: with threads.

use std::collections::HashSet;
use std::sync::Barrier;
use std::thread;

use tidings_hub::{Applied, News};

use super::copies::{Outbox, top};
use super::*;

const TRIES: u64 = 40;
const CHANNELS: u64 = 150;
/// Publications of this node have greater values.
const OWN: u64 = 1_000_000;

fn name(number: u64) -> ChannelName {
    channel(&format!("kept:{number}"))
}

/// The `offset`-th publication that the former home tells of a channel.
fn news(number: u64, offset: u64, epoch: Epoch) -> News {
    let publication = Publication { offset: Offset(offset), ..publication(offset) };
    News::Published { channel: name(number), epoch: Some(epoch), version: None, publication, at: NOW }
}

fn values(frames: &[Frame]) -> Vec<u64> {
    let value =
        |text: String| serde_json::from_str::<serde_json::Value>(&text).unwrap()["push"]["pub"]["data"].as_u64();
    texts(frames).into_iter().map(|text| value(text).unwrap()).collect()
}

#[test]
fn no_offset_of_an_epoch_is_two_publications_while_a_node_takes_over() {
    for _ in 0..TRIES {
        let outbox = Arc::new(Outbox::default());
        let hub = hub(1000).with_relay(outbox.clone());
        hub.set_home(false);
        let before = Epoch::from_random(7);
        // Half of the channels are known, and half of the known ones are read.
        (0..CHANNELS / 2).for_each(|number| assert_eq!(hub.apply(news(number, 1, before), NOW), Applied::Done));
        let readers: Vec<Subscribed> =
            (0..CHANNELS / 4).map(|number| join(&hub, name(number).as_str(), None)).collect();
        let barrier = Barrier::new(3);
        let own = thread::scope(|scope| {
            scope.spawn(|| {
                barrier.wait();
                for offset in 1..4 {
                    (0..CHANNELS).for_each(|number| drop(hub.apply(news(number, offset, before), NOW)));
                }
            });
            let own = scope.spawn(|| {
                barrier.wait();
                let publish = |number: u64| {
                    let new = NewPublication { publication: publication(OWN + number), skip_history: false };
                    hub.publish(&name(number), new, NOW).unwrap().unwrap()
                };
                (0..2).flat_map(|_| (0..CHANNELS).rev().map(publish)).collect::<Vec<_>>()
            });
            barrier.wait();
            hub.take_over();
            own.join().unwrap()
        });
        assert!(own.iter().all(|position| position.epoch != before), "the former home gives its offsets");
        for told in outbox.take() {
            assert!(!matches!(told, News::Published { epoch: Some(epoch), .. } if epoch == before));
        }
        for number in 0..CHANNELS {
            assert_ne!(top(&hub, name(number).as_str()).epoch, before, "news came behind the cursor: {number}");
        }
        for reader in readers {
            let mut frames = Vec::new();
            reader.channel.fetch(reader.next, usize::MAX, &mut frames).unwrap();
            assert!(frames.iter().any(Frame::is_restart));
            let values = values(&frames);
            assert_eq!(
                values,
                (2..2 + values.len() as u64).collect::<Vec<_>>(),
                "of the former home, before the restart"
            );
        }
        // From now on it is the home, with one publication at each offset.
        let mut offsets = HashSet::new();
        for _ in 0..3 {
            let new = NewPublication { publication: publication(1), skip_history: false };
            assert!(offsets.insert(hub.publish(&name(0), new, NOW).unwrap().unwrap()));
        }
        assert_eq!(outbox.take().len(), 3);
    }
}
