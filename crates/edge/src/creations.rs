//! How many channels each user has created by publishing, on one loop, in the present minute.
//!
//! Such a channel stays when its history has expired, for its position, so one user must not create any number. Subscribing
//! needs no such rule: a channel that is only read goes with its last reader.
//!
//! Bound: one entry per user that has created a channel in this minute, and all go when it is over. Users without a name
//! share one entry: they could connect again as somebody new.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

const WINDOW: Duration = Duration::from_secs(60);

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Creations {
    began: Instant,
    by_user: HashMap<Box<str>, u32>,
}

impl Creations {
    pub(crate) fn new(now: Instant) -> Self {
        Self { began: now, by_user: HashMap::new() }
    }

    /// Counts one of the user's; `false`: it has had `max` in this minute.
    pub(crate) fn admit(&mut self, user: &str, max: u32, now: Instant) -> bool {
        if now.duration_since(self.began) >= WINDOW {
            *self = Self::new(now);
        }
        match self.by_user.get_mut(user) {
            Some(count) if *count >= max => return false,
            Some(count) => *count += 1,
            None => drop(self.by_user.insert(user.into(), 1)),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_its_share_of_every_minute() {
        let now = Instant::now();
        let mut creations = Creations::new(now);
        let admitted = |creations: &mut Creations, user, now| (0..5).filter(|_| creations.admit(user, 3, now)).count();
        assert_eq!((admitted(&mut creations, "ann", now), admitted(&mut creations, "bob", now)), (3, 3));
        assert_eq!(admitted(&mut creations, "ann", now + Duration::from_secs(59)), 0);
        assert_eq!(admitted(&mut creations, "ann", now + WINDOW), 3);
        assert_eq!(creations.by_user.len(), 1);
    }
}
