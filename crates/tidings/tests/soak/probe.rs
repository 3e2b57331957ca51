//! How long an event takes to a simulated phone, and what tells of it.
//!
//! Probes are events with numbers for one device that stays. The first one is for all residents: as some tokens are gone, the
//! device of the later ones is one that got it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use hyper::Method;
use serde_json::json;
use tidings_types::Provider;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::hand::{Hand, Timed};
use crate::simulators::Acceptance;
use crate::wave::resident_id;

/// A push that a provider asked to repeat has come long before.
const PATIENCE: Duration = Duration::from_secs(60);
const PACE: Duration = Duration::from_millis(100);
/// Of the probe for all residents.
pub(crate) const FIRST: u32 = 0;

/// Tells those that wait for a probe of its acceptance.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// By probe.
    awaited: HashMap<u32, oneshot::Sender<Instant>>,
    /// The device at APNs that got the first one.
    reached: Option<u32>,
}

impl Arrivals {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().expect("nobody panics with it")
    }

    /// A provider has accepted something.
    pub(crate) fn note(&self, accepted: Acceptance<'_>) {
        let Some(probe) = accepted.event else { return };
        let mut waiting = self.lock();
        if probe == FIRST && accepted.provider == Provider::Apns {
            waiting.reached = accepted.device.or(waiting.reached);
        }
        if let Some(awaited) = waiting.awaited.remove(&probe) {
            let _ = awaited.send(Instant::now()); // Whoever waited may have given up.
        }
    }

    /// Who got the first probe.
    pub(crate) fn reached(&self) -> Option<u32> {
        self.lock().reached
    }
}

pub(crate) fn probe_id(probe: u32) -> String {
    format!("probe-{probe}")
}

/// Which probe an event is.
pub(crate) fn probe_number(id: &str) -> Option<u32> {
    id.strip_prefix("probe-")?.parse().ok()
}

/// Posts a probe after the other and waits for its push.
pub(crate) async fn probes(mut hand: Hand) -> Result<(), String> {
    let device = hand.world.arrivals.reached().expect("the soak begins with the first one");
    while hand.turn(PACE).await {
        let probe = u32::try_from(hand.world.next()).expect("an hour has fewer");
        let (tell, told) = oneshot::channel();
        hand.world.arrivals.lock().awaited.insert(probe, tell);
        let event = json!({
            "id": probe_id(probe), "topic": "goal", "subjects": ["kept:probe"], "to": { "devices": [resident_id(device)] },
            "push": "always", "channels": ["kept:probe"],
        });
        let began = Instant::now();
        hand.send(Method::POST, "/v1/events", event.to_string().into()).await?;
        let told =
            timeout(PATIENCE, told).await.map_err(|_| format!("probe {probe} is not pushed within {PATIENCE:?}"))?;
        let at = told.map_err(|_| format!("probe {probe} is forgotten"))?;
        hand.did("probe pushed");
        hand.world.note(Timed::Push, at - began);
    }
    Ok(())
}
