//! Where clients' publications go.

use std::sync::Arc;

use tidings_cluster::Unanswered;
use tidings_edge::{PublishFuture, Publisher};
use tidings_hub::{Hub, NewPublication};
use tidings_protocol::{ClientInfo, ErrorCode};
use tidings_telemetry::unix_now;
use tidings_types::ChannelName;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::pass::HAND_OVER_MAX;
use super::peers::{PeerLink, Question};
use crate::journal::owned;
use crate::listeners::Routes;

/// Where clients' publications go: into the store and the hub of this server while it leads, else to the leader.
pub(super) struct ClusterPublisher {
    pub(super) journal: Arc<dyn Publisher>,
    pub(super) hub: Arc<Hub>,
    pub(super) link: PeerLink,
    /// Something while this server leads.
    pub(super) leading: watch::Receiver<Option<Routes>>,
}

impl Publisher for ClusterPublisher {
    fn is_home(&self) -> bool {
        self.hub.is_home()
    }

    fn publish(&self, channel: ChannelName, new: NewPublication) -> PublishFuture {
        if self.is_home() {
            return self.journal.publish(channel, new);
        }
        let (journal, hub, link, mut leading) =
            (self.journal.clone(), self.hub.clone(), self.link.clone(), self.leading.clone());
        Box::pin(async move {
            let (end, mut former) = (Instant::now() + HAND_OVER_MAX, None);
            loop {
                // When the lead is moved, nobody leads for a moment.
                let led = async {
                    tokio::select! {
                        () = link.has_leader_beside(former) => {}
                        _ = leading.wait_for(Option::is_some) => {}
                    }
                };
                let is_late = timeout_at(end, led).await.is_err();
                if hub.is_home() {
                    return publish_at_home(&hub, &*journal, channel, new).await;
                }
                former = link.leader();
                match link.ask_leader(&question(&channel, &new)).await {
                    Ok(Some(answer)) => return answer,
                    Ok(None) if !is_late => {} // It led when it was asked.
                    Err(Unanswered::TooLarge) => return Err(ErrorCode::LimitExceeded),
                    Ok(None) | Err(_) => return Err(ErrorCode::Internal), // It was not published, or nobody knows.
                }
            }
        })
    }
}

/// Publishes what a client of this server, or of another one, publishes. This server must lead.
pub(super) async fn publish_at_home(
    hub: &Hub,
    journal: &dyn Publisher,
    channel: ChannelName,
    new: NewPublication,
) -> Result<(), ErrorCode> {
    let options = hub.options(&channel).map_err(|_| ErrorCode::UnknownChannel)?;
    if options.durable {
        return journal.publish(channel, new).await;
    }
    hub.publish(&channel, new, unix_now()).map(drop).map_err(|_| ErrorCode::TooManyRequests)
}

fn question(channel: &ChannelName, NewPublication { publication, skip_history }: &NewPublication) -> Question {
    Question::Publish {
        channel: channel.clone(),
        data: publication.data.clone(),
        info: publication.info.as_ref().map(|info| ClientInfo::clone(info)),
        tags: owned(&publication.tags),
        skip_history: *skip_history,
    }
}
