//! What a pool of connections draws from: one lake per priority.
//!
//! Made by the binary, filled by the sender, drawn from by the gateway. A goal does not stand in one line with a
//! newsletter: that is why there are several and not one that is longer.

use std::sync::Arc;

use tidings_buffer::Lake;
use tidings_types::EventPriority;

use crate::Notification;

const COUNT: usize = EventPriority::ALL.len();

/// One bounded lake of notifications per priority. Clones share them.
///
/// Queue: `capacity_each` notifications per priority. Full: the sender's lanes wait in line. Closed: the sender is
/// refused and keeps what is not handed in; what is held can still be taken.
#[derive(Debug, Clone)]
pub struct Lakes {
    lakes: [Arc<Lake<Notification>>; COUNT],
}

impl Lakes {
    /// Empty lakes that hold `capacity_each` notifications each.
    ///
    /// # Panics
    /// When that is 0.
    pub fn new(capacity_each: usize) -> Self {
        Self { lakes: std::array::from_fn(|_| Arc::new(Lake::new(capacity_each))) }
    }

    /// The lake of one priority.
    pub fn of(&self, priority: EventPriority) -> &Arc<Lake<Notification>> {
        &self.lakes[priority as usize]
    }

    /// All of them, the highest priority first.
    pub fn all(&self) -> &[Arc<Lake<Notification>>; EventPriority::ALL.len()] {
        &self.lakes
    }

    /// Takes nothing more from now on.
    pub fn close(&self) {
        self.lakes.iter().for_each(|lake| lake.close());
    }

    /// Whether all were closed and everything was taken out.
    pub fn is_finished(&self) -> bool {
        self.lakes.iter().all(|lake| lake.is_finished())
    }

    /// Notifications held now, in all of them.
    pub fn held(&self) -> usize {
        self.lakes.iter().map(|lake| lake.counters().held as usize).sum()
    }

    /// Notifications they can hold together.
    pub fn capacity(&self) -> usize {
        self.lakes.iter().map(|lake| lake.capacity()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::tests::notification;

    #[test]
    fn each_priority_has_a_lake_of_its_own() {
        let lakes = Lakes::new(2);
        let [high, normal, low] = EventPriority::ALL.map(|priority| Arc::clone(lakes.of(priority)));
        low.try_push_batch(&mut vec![notification(1), notification(2)]).unwrap();
        high.try_push_batch(&mut vec![notification(3)]).unwrap();
        assert_eq!((lakes.held(), lakes.capacity()), (3, 6));
        assert_eq!((normal.pop().is_none(), high.pop().unwrap().ticket.device.0), (true, 3));
        lakes.close();
        assert!(!lakes.is_finished() && high.try_push_batch(&mut vec![notification(4)]).is_err());
        assert!(low.pop().is_some() && low.pop().is_some());
        assert!(lakes.is_finished());
    }
}
