//! Where clients' publications go.

use std::sync::Arc;

use tidings_cluster::Unanswered;
use tidings_edge::{PublishFuture, Publisher};
use tidings_hub::{Hub, NewPublication};
use tidings_protocol::{ClientInfo, ErrorCode};
use tidings_types::ChannelName;

use crate::journal::{Journal, owned};
use crate::peers::{Link, Question};

/// Where clients' publications go: into the store and the hub of this server while it leads, else to the leader.
pub(super) struct ClusterPublisher {
    pub(super) journal: Journal,
    pub(super) hub: Arc<Hub>,
    pub(super) link: Link,
}

impl Publisher for ClusterPublisher {
    fn is_home(&self) -> bool {
        self.hub.is_home()
    }

    fn publish(&self, channel: ChannelName, new: NewPublication) -> PublishFuture {
        if self.is_home() {
            return self.journal.publish(channel, new);
        }
        let NewPublication { publication, skip_history } = new;
        let info = publication.info.map(|info| ClientInfo::clone(&info));
        let (data, tags) = (publication.data, owned(&publication.tags));
        let (link, question) = (self.link.clone(), Question::Publish { channel, data, info, tags, skip_history });
        Box::pin(async move {
            match link.ask_leader(&question).await {
                Ok(answer) => answer,
                Err(Unanswered::TooLarge) => Err(ErrorCode::LimitExceeded),
                Err(_) => Err(ErrorCode::Internal), // Whether it was published is not known.
            }
        })
    }
}
