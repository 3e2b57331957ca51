//! Who is logged in: sessions by a random id that only the browser's cookie has.
//!
//! Bounds: `count_max` sessions; with one more, of the user with the most sessions the one ends that was quiet for longest, so
//! nobody logs others out by logging in again and again. A session ends `ttl` after its login, or after `idle` without a request. Nothing is durable: after a restart everybody logs in again.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tidings_telemetry::panics::lock;
use tokio::time::Instant;

use crate::ports::Caller;

/// All sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    count_max: usize,
    ttl: Duration,
    idle: Duration,
    by_id: Mutex<HashMap<String, Session>>,
}

#[derive(Debug)]
struct Session {
    caller: Caller,
    began: Instant,
    used: Instant,
}

impl Sessions {
    pub(crate) fn new(count_max: usize, ttl: Duration, idle: Duration) -> Self {
        Self { count_max, ttl, idle, by_id: Mutex::default() }
    }

    /// A new session; its id.
    pub(crate) fn begin(&self, caller: Caller, now: Instant) -> String {
        let id = URL_SAFE_NO_PAD.encode(random::<32>());
        let mut sessions = lock(&self.by_id);
        sessions.retain(|_, session| self.is_alive(session, now));
        while sessions.len() >= self.count_max {
            let mut counts: HashMap<&str, usize> = HashMap::from([(&*caller.user, 1)]);
            sessions.values().for_each(|session| *counts.entry(&session.caller.user).or_default() += 1);
            let rank = |session: &Session| (Reverse(counts[&*session.caller.user]), session.used);
            let ending = sessions.iter().min_by_key(|(_, session)| rank(session)).map(|(id, _)| id.clone());
            sessions.remove(&ending.expect("there are sessions"));
        }
        sessions.insert(id.clone(), Session { caller, began: now, used: now });
        id
    }

    /// Whose session this is; `None`: it has ended, or never was.
    pub(crate) fn caller(&self, id: &str, now: Instant) -> Option<Caller> {
        let mut sessions = lock(&self.by_id);
        let session = sessions.get_mut(id)?;
        if !self.is_alive(session, now) {
            sessions.remove(id);
            return None;
        }
        session.used = now;
        Some(session.caller.clone())
    }

    pub(crate) fn end(&self, id: &str) {
        lock(&self.by_id).remove(id);
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.by_id).len()
    }

    fn is_alive(&self, session: &Session, now: Instant) -> bool {
        now - session.began < self.ttl && now - session.used < self.idle
    }
}

/// Bytes that nobody can guess.
pub(crate) fn random<const COUNT: usize>() -> [u8; COUNT] {
    let mut bytes = [0; COUNT];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has random bytes");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::Role;

    const MINUTE: Duration = Duration::from_secs(60);

    fn caller(user: &str) -> Caller {
        Caller { key: user.into(), user: user.into(), role: Role::Viewer }
    }

    #[test]
    fn a_session_ends_by_age_by_silence_and_by_logging_out() {
        let (sessions, start) = (Sessions::new(8, 10 * MINUTE, 3 * MINUTE), Instant::now());
        let id = sessions.begin(caller("ann"), start);
        assert_eq!(sessions.caller("", start), None);
        for minute in [2, 4, 6, 8, 9] {
            assert_eq!(sessions.caller(&id, start + minute * MINUTE), Some(caller("ann")), "{minute}");
        }
        assert_eq!(sessions.caller(&id, start + 10 * MINUTE), None, "too old, though in use");
        let id = sessions.begin(caller("ann"), start);
        assert_eq!(sessions.caller(&id, start + 3 * MINUTE), None, "quiet for too long");
        let id = sessions.begin(caller("ann"), start);
        sessions.end(&id);
        assert_eq!(sessions.caller(&id, start), None);
        assert_eq!(sessions.count(), 0);
    }

    #[test]
    fn with_one_too_many_the_quietest_ends() {
        let (sessions, start) = (Sessions::new(2, 10 * MINUTE, 10 * MINUTE), Instant::now());
        let [ann, bob] = ["ann", "bob"].map(|user| sessions.begin(caller(user), start));
        assert!(sessions.caller(&ann, start + MINUTE).is_some());
        let eve = sessions.begin(caller("eve"), start + 2 * MINUTE);
        assert_eq!(sessions.count(), 2);
        let alive = [&ann, &bob, &eve].map(|id| sessions.caller(id, start + 2 * MINUTE).is_some());
        assert_eq!(alive, [true, false, true]);
    }

    #[test]
    fn who_logs_in_again_and_again_ends_only_own_sessions() {
        let (sessions, start) = (Sessions::new(8, 10 * MINUTE, 10 * MINUTE), Instant::now());
        let [ann, bob] = ["ann", "bob"].map(|user| sessions.begin(caller(user), start));
        let own: Vec<_> = (1..100).map(|second| sessions.begin(caller("eve"), start + second * MINUTE / 60)).collect();
        let alive = |id: &String| sessions.caller(id, start + 2 * MINUTE).is_some();
        assert!(alive(&ann) && alive(&bob) && sessions.count() == 8);
        assert_eq!(own.iter().filter(|id| alive(id)).count(), 6);
        assert!(own[93..].iter().all(alive), "the last ones");
    }

    #[test]
    fn ids_cannot_be_guessed() {
        let sessions = Sessions::new(100, MINUTE, MINUTE);
        let ids: std::collections::HashSet<_> =
            (0..100).map(|_| sessions.begin(caller("ann"), Instant::now())).collect();
        assert!(ids.len() == 100 && ids.iter().all(|id| id.len() == 43), "256 bits each");
    }
}
