//! APNs' kinds of push. The judge is the simulator, which knows by itself which topic and which priority each may have.

use std::sync::Arc;
use std::time::Duration;

use tidings_gateway::Gateway;
use tidings_push::payload::Content;
use tidings_push::{Lakes, Notification, Outcome, Rendering, RenderingParts};
use tidings_simulator::{ApnsSimulator, SimulatorConfig};
use tidings_telemetry::{Registry, unix_now};
use tidings_types::{AppId, EventId, EventPriority, JournalPosition, Json, Payload, Present, Provider, Urgency};
use tokio::time::Instant;

use crate::{PATIENCE, Sink, config, notification, token};

const APP: &str = "org.example.scores";
const QUIET: &str = r#"{"aps":{"alert":null,"sound":null,"content-available":1},"call":7}"#;

/// What goes to the device of an app with this id.
fn push(device: u32, app: &str, urgency: Option<Urgency>, patch: Option<&str>) -> Notification {
    let plain = notification(device, JournalPosition(1), unix_now().saturating_add(Duration::from_secs(600)));
    let event = EventId::new("goal-1").unwrap();
    let parts = RenderingParts { app: AppId::new(app).unwrap(), ..plain.rendering.parts().clone() };
    let apns = patch.map(|patch| Json::parse(patch.as_bytes()).unwrap());
    let content = Content {
        title: "Goal",
        body: "1 : 0",
        present: &Present::default(),
        thread: None,
        event: &event,
        stream: None,
        data: None,
        patches: &Payload { apns, ..Payload::default() },
        urgency,
        collapse_id: &parts.collapse_id,
    };
    let encoded = content.encode(Provider::Apns).unwrap();
    Notification { rendering: Arc::new(Rendering::new(parts, encoded)), ..plain }
}

#[tokio::test]
async fn a_token_of_every_kind_is_sent_what_its_topic_takes() {
    let topics = vec![APP.to_owned()];
    let simulator = ApnsSimulator::start(SimulatorConfig { topics, ..SimulatorConfig::default() }).unwrap();
    let mut config = config(simulator.addr().port(), simulator.ca_pem().to_owned());
    config.credential = token(simulator.key_id(), simulator.team_id(), simulator.key_pem());
    let (sink, lakes) = (Arc::<Sink>::default(), Lakes::new(256));
    let gateway = Gateway::start(config, lakes.clone(), Arc::clone(&sink) as _, &Registry::new()).unwrap();

    let mut pushes = Vec::new();
    for suffix in [
        "",
        ".voip",
        ".voip-ptt",
        ".complication",
        ".pushkit.fileprovider",
        ".location-query",
        ".push-type.widgets",
        ".push-type.controls",
    ] {
        for urgency in [None, Some(Urgency::Normal), Some(Urgency::VeryLow)] {
            for patch in [None, Some(QUIET)] {
                pushes.push(push(pushes.len() as u32, &format!("{APP}{suffix}"), urgency, patch));
            }
        }
    }
    let count = pushes.len();
    // It does not take everything: that of another app, and what we have no kind for.
    pushes.push(push(count as u32, "org.example.other.voip", None, None));
    pushes.push(push(count as u32 + 1, &format!("{APP}.push-type.liveactivity"), None, None));
    let sent: Vec<_> = pushes.iter().map(|it| (it.rendering.app().clone(), it.rendering.apns())).collect();
    lakes.of(EventPriority::Normal).push_batch(&mut pushes).await.unwrap();

    let outcomes = sink.outcomes(count + 2).await;
    for (device, sent) in sent.iter().enumerate() {
        let outcome = outcomes[&(device as u32)].outcome;
        assert_eq!(outcome == Outcome::Accepted, device < count, "{sent:?}: {outcome:?}");
    }
    assert_eq!(simulator.ledger().summary().accepted, count as u64);
    assert_eq!(gateway.drain(Instant::now() + PATIENCE).await.unsettled, 0);
}
