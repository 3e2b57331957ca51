//! Where clients' publications go.

use std::sync::Arc;

use tidings_cluster::Unanswered;
use tidings_edge::{PublishFuture, Publisher};
use tidings_hub::{Hub, NewPublication};
use tidings_protocol::{ClientInfo, ErrorCode};
use tidings_types::ChannelName;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::journal::{Journal, owned};
use crate::listeners::Routes;
use crate::pass::HAND_OVER_MAX;
use crate::peers::{Link, Question};

/// Where clients' publications go: into the store and the hub of this server while it leads, else to the leader.
pub(super) struct ClusterPublisher {
    pub(super) journal: Journal,
    pub(super) hub: Arc<Hub>,
    pub(super) link: Link,
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
            let led = async {
                tokio::select! {
                    () = link.has_leader() => {}
                    _ = leading.wait_for(Option::is_some) => {}
                }
            };
            let _ = timeout(HAND_OVER_MAX, led).await; // When the lead is moved, nobody leads for a moment.
            if hub.is_home() {
                return journal.publish(channel, new).await;
            }
            let NewPublication { publication, skip_history } = new;
            let info = publication.info.map(|info| ClientInfo::clone(&info));
            let (data, tags) = (publication.data, owned(&publication.tags));
            match link.ask_leader(&Question::Publish { channel, data, info, tags, skip_history }).await {
                Ok(answer) => answer,
                Err(Unanswered::TooLarge) => Err(ErrorCode::LimitExceeded),
                Err(_) => Err(ErrorCode::Internal), // Whether it was published is not known.
            }
        })
    }
}
