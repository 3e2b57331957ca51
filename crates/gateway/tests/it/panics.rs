//! A bug in a provider's dialect costs the notification that shows it, and nothing else.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use tidings_push::{Dialect, Reason, Verdict};
use tidings_types::Provider;

use super::*;

/// Panics where a request for this device is made.
const UNMAKEABLE: u32 = 3;
/// Panics where an answer says this.
const UNREADABLE: &str = "Unreadable";

struct Panicking(Apns);

impl Dialect for Panicking {
    fn provider(&self) -> Provider {
        self.0.provider()
    }

    fn request(
        &self,
        notification: &Notification,
        authorization: Option<&HeaderValue>,
        random: &mut dyn FnMut(&mut [u8]),
        now: Timestamp,
    ) -> Result<(Request<()>, Bytes), Reason> {
        assert_ne!(notification.ticket.device.0, UNMAKEABLE, "as asked");
        self.0.request(notification, authorization, random, now)
    }

    fn classify(&self, status: StatusCode, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Verdict {
        assert!(!body.escape_ascii().to_string().contains(UNREADABLE), "as asked");
        self.0.classify(status, headers, body, now)
    }

    fn proves_first(&self) -> bool {
        self.0.proves_first()
    }

    fn payload_bytes_max(&self) -> usize {
        self.0.payload_bytes_max()
    }
}

#[tokio::test]
async fn a_panic_over_one_notification_settles_that_one() {
    let script: Script = Arc::new(|device, _| if device == 5 { Reply::refuse(400, UNREADABLE) } else { Reply::Accept });
    let setup = setup(behaviour(script), |config| {
        config.dialect = Arc::new(Panicking(Apns::new(&format!("localhost:{}", config.port)).unwrap()));
    })
    .await;
    setup.push(0..20).await;
    let outcomes = setup.sink.outcomes(20).await;
    for (device, settled) in &outcomes {
        let expected = match *device {
            UNMAKEABLE => Outcome::Rejected(Reason::Panicked(Provider::Apns)),
            5 => Outcome::Unknown, // It may have been delivered.
            _ => Outcome::Accepted,
        };
        assert_eq!(settled.outcome, expected, "{device}");
    }
    let text = setup.registry.prometheus();
    let counted = r#"tidings_gateway_rejected_total{pool="main",provider="apns",reason="apns_panicked"} 1"#;
    assert!(text.contains(counted), "{text}");
    assert_eq!(setup.peer.log(|log| log.connections), 1, "the connection goes on");
    assert_eq!(setup.drain().await, 0);
}
