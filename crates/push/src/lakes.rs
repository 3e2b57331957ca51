//! The queues from which a pool of connections takes notifications: one lake per priority.
//!
//! The binary makes them, the sender fills them, the gateway takes from them. There is one per priority, so that an
//! urgent notification does not wait behind less urgent ones.

use std::sync::Arc;

use tidings_buffer::Lake;
use tidings_types::EventPriority;

use crate::Notification;

const COUNT: usize = EventPriority::ALL.len();

/// One bounded lake of notifications per priority. Clones share them.
///
/// Queue: `capacity_each` notifications per priority. Full: the sender's lanes wait. Closed: the sender is refused and
/// keeps its notifications; those in the lakes can still be taken.
#[derive(Debug, Clone)]
pub struct Lakes {
    lakes: [Arc<Lake<Notification>>; COUNT],
}

impl Lakes {
    /// Empty lakes of `capacity_each` notifications each.
    ///
    /// # Panics
    /// If `capacity_each` is 0.
    pub fn new(capacity_each: usize) -> Self {
        Self { lakes: std::array::from_fn(|_| Arc::new(Lake::new(capacity_each))) }
    }

    /// The notifications for which lakes of this capacity have room, all together.
    pub const fn room(capacity_each: usize) -> usize {
        COUNT * capacity_each
    }

    /// The lake of one priority.
    pub fn of(&self, priority: EventPriority) -> &Arc<Lake<Notification>> {
        &self.lakes[priority as usize]
    }

    /// All lakes, the highest priority first.
    pub fn all(&self) -> &[Arc<Lake<Notification>>; EventPriority::ALL.len()] {
        &self.lakes
    }

    /// Closes all lakes: they accept nothing more.
    pub fn close(&self) {
        self.lakes.iter().for_each(|lake| lake.close());
    }

    /// Whether all are closed and empty.
    pub fn is_finished(&self) -> bool {
        self.lakes.iter().all(|lake| lake.is_finished())
    }

    /// The number of notifications in all lakes.
    pub fn held(&self) -> usize {
        self.lakes.iter().map(|lake| lake.counters().held as usize).sum()
    }

    /// The capacity of all lakes together.
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
