//! What the soak has done, by kind. A soak that never tried one of these has not passed.

use std::collections::BTreeMap;
use std::sync::Mutex;

/// Everything that must have been tried.
pub(crate) const DEEDS: [&str; 44] = [
    "life over WebSocket",
    "life over Protobuf",
    "life over Sse",
    "life over HttpStream",
    "life over Listen",
    "recovery",
    "reader too slow",
    "publication",
    "timed publication",
    "device imported",
    "device replaced",
    "device removed",
    "user erased",
    "wave told",
    "visitor",
    "made-up locale",
    "log-out",
    "log-in",
    "credential rotated",
    "mute",
    "token gone at APNs",
    "token gone at FCM",
    "token gone at Web Push",
    "event at once",
    "event repeated",
    "event scheduled",
    "event cancelled",
    "pause",
    "probe pushed",
    "feed entry",
    "malformed refused",
    "caller refused",
    "unknown refused",
    "too large refused",
    "conflict refused",
    "old credential refused",
    "failed hook",
    "unknown channel refused",
    "reload by SIGHUP",
    "texts reloaded",
    "texts rolled back",
    "backup verified",
    "devices exported",
    "kill",
];

/// How often each was done.
#[derive(Debug, Default)]
pub(crate) struct Deeds(Mutex<BTreeMap<&'static str, u64>>);

impl Deeds {
    /// It was done so often.
    ///
    /// # Panics
    /// If [`DEEDS`] does not have it: then nobody would notice that it is not done.
    pub(crate) fn did(&self, deed: &str, count: u64) {
        let known = DEEDS.iter().find(|known| **known == deed).unwrap_or_else(|| panic!("{deed}: no such deed"));
        *self.0.lock().expect("nobody panics with it").entry(known).or_default() += count;
    }

    pub(crate) fn count(&self, deed: &str) -> u64 {
        self.0.lock().expect("nobody panics with it").get(deed).copied().unwrap_or_default()
    }

    /// What was never done.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        DEEDS.into_iter().filter(|deed| self.count(deed) == 0).collect()
    }
}

impl std::fmt::Display for Deeds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        DEEDS.iter().try_for_each(|deed| writeln!(f, "{:>10} {deed}", self.count(deed)))
    }
}

#[cfg(test)]
mod tests {
    use super::{DEEDS, Deeds};

    #[test]
    fn what_was_never_done_is_missing() {
        let deeds = Deeds::default();
        DEEDS.iter().skip(1).for_each(|deed| deeds.did(deed, 2));
        assert_eq!(deeds.missing(), [DEEDS[0]]);
        deeds.did(DEEDS[0], 0);
        assert_eq!(deeds.missing(), [DEEDS[0]]);
    }
}
