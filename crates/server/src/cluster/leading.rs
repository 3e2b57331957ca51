//! What begins and ends in a server of a cluster when the lead comes and goes, and while it hears the others.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidings_edge::Edge;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing::error;

use super::answers::Answers;
use super::copying::{CopyState, Copying};
use super::peers::{self, PeerLink, Waiting};
use crate::Server;
use crate::error::ServeError;
use crate::frontend::{Frontend, TELL_TIMEOUT};
use crate::journal::Journal;
use crate::listeners::Routes;
use crate::settings::node_name;

/// How long requests in work may delay another server that is to lead. Those that take longer may be refused.
const REQUEST_GRACE: Duration = Duration::from_millis(100);

/// The other servers of a cluster, before they are heard.
pub(super) struct Peers {
    pub(super) link: PeerLink,
    /// What is to be sent to them.
    pub(super) waiting: Waiting,
    /// Set to whether this server has all that the leader has.
    pub(super) is_whole: Arc<AtomicBool>,
}

impl Frontend {
    /// Hears and tells the other servers from now on. Returns how the copy of the leader's channels in memory is.
    ///
    /// # Cancel safety
    /// Dropped: nobody is heard.
    pub(super) async fn hear(&mut self, peers: Peers) -> Result<watch::Receiver<CopyState>, ServeError> {
        let Peers { link, waiting, is_whole } = peers;
        let failed = |error| ServeError::Thread(io::Error::other(error));
        let news = link.peers.news().await.map_err(failed)?;
        let questions = link.peers.questions().await.map_err(failed)?;
        let (hub, edge, store) = (&self.hub, &self.edge, &self.store);
        hub.receipts().begin_reports();
        let answers = Answers {
            hub: hub.clone(),
            edge: edge.clone(),
            store: store.clone(),
            journal: Arc::new(Journal::new(store.clone(), Arc::new(self.config.namespaces()))),
            uid: self.uid.clone(),
            name: node_name(&self.config.cluster),
            started: Instant::now(),
            leading: self.leading.subscribe(),
            link: link.clone(),
        };
        let (state, copied) = watch::channel(CopyState::Apart);
        let mut tasks = JoinSet::new();
        tasks.spawn(peers::tell(link.clone(), waiting.notices));
        tasks.spawn(peers::announce(link.clone(), hub.clone(), waiting.announced));
        tasks.spawn(peers::report(link.clone(), hub.clone()));
        tasks.spawn(answers.run(questions));
        let (hub, edge, store) = (hub.clone(), edge.clone(), store.clone());
        let copying = Copying { link, hub, edge: edge.clone(), store, state: state.clone(), is_whole };
        tasks.spawn(copying.run(news));
        self.linked.spawn(watch_over(tasks, edge, state));
        Ok(copied)
    }

    /// The listeners answer with these routes: another server leads.
    pub(super) fn answer_following(&mut self, routes: Routes) -> Result<(), ServeError> {
        self.leading.send_replace(None);
        self.listen()?.answer_with(routes);
        Ok(())
    }

    /// The hub of another server is the home of the channels in memory from now on. Waits until the others have been told what was
    /// published here, but not for longer than this.
    async fn give_away(&self, link: Option<PeerLink>, patience: Duration) {
        self.hub.set_home(false);
        if let Some(link) = link {
            let _ = timeout(patience, link.all_told()).await; // What is late, readers are told that they miss.
        }
    }
}

impl Server {
    /// Ends the pushes, the webhook and the feeds of a leader, while the API goes on. Devices that are held back are waited for, so that
    /// the next leader need not push them.
    ///
    /// # Cancel safety
    /// Not cancel safe: afterwards the server can only be stopped.
    pub(super) async fn end_work(&mut self) {
        self.frontend.hub.receipts().begin_reports(); // So that the one that leads next knows who is connected here.
        self.sender.rest(Instant::now() + self.drain_timeout).await;
        self.end_sending().await;
        self.intake.stop().await;
    }

    /// Ends the rest of what only the leader does. Clients stay connected. Requests that come from now on have `routes`, which make them
    /// wait for the server that leads next. `link`: to the others.
    ///
    /// # Errors
    /// When the listeners cannot be opened; they are open already.
    ///
    /// # Cancel safety
    /// As [`Server::stop`].
    pub(super) async fn step_down(mut self, routes: Routes, link: Option<PeerLink>) -> Result<Frontend, ServeError> {
        self.frontend.answer_following(routes)?;
        let count = crate::REQUEST_COUNT_MAX;
        let _ = timeout(REQUEST_GRACE, self.requests.acquire_many(count)).await;
        self.background.shutdown().await;
        self.frontend.give_away(link, REQUEST_GRACE).await;
        drop(self.sender); // Its thread uses the store to its end.
        Ok(self.frontend)
    }
}

/// Ends clients if one of the tasks ends that keep this server equal to the others: none does by itself.
async fn watch_over(mut tasks: JoinSet<()>, edge: Arc<Edge>, state: watch::Sender<CopyState>) {
    tasks.join_next().await;
    error!(
        "A task that hears other servers has ended: a bug. Clients are sent away until this server is started again"
    );
    loop {
        state.send_replace(CopyState::Apart);
        let _ = edge.send_away().await; // Full: the next time.
        sleep(TELL_TIMEOUT).await;
    }
}
