//! Where clients' publications go.

use std::sync::Arc;

use tidings_edge::{PublishFuture, Publisher};
use tidings_hub::{Hub, NewPublication};
use tidings_protocol::{ClientInfo, ErrorCode};
use tidings_types::ChannelName;

use crate::journal::{Journal, owned};
use crate::peers::{Line, Question};

/// Where clients' publications go: into the store and the hub of this server while it leads, else to the leader.
pub(super) struct Post {
    pub(super) journal: Journal,
    pub(super) hub: Arc<Hub>,
    pub(super) line: Line,
}

impl Publisher for Post {
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
        let (line, question) = (self.line.clone(), Question::Publish { channel, data, info, tags, skip_history });
        Box::pin(async move { line.ask_leader(&question).await.unwrap_or(Err(ErrorCode::Internal)) })
    }
}
