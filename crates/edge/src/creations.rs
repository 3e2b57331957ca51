//! How many channels each user has created by publishing, on one loop, in the current minute.
//!
//! Such a channel is kept when its history has expired, because of its position, so the number per user must be
//! limited. Subscribing needs no limit: a channel that is only read is deleted with its last reader.
//!
//! Bound: one entry per user that has created a channel in this minute. All entries are deleted when the minute is
//! over. Users without a name share one entry, because an anonymous user could connect again as a new one.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

const WINDOW: Duration = Duration::from_secs(60);

/// See the module header.
#[derive(Debug)]
pub(crate) struct Creations {
    began: Instant,
    by_user: HashMap<Box<str>, u32>,
}

impl Creations {
    pub(crate) fn new(now: Instant) -> Self {
        Self { began: now, by_user: HashMap::new() }
    }

    /// Counts one creation of the user; `false`: the user has already created `max` channels in this minute.
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
