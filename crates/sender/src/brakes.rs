//! Pauses and cancellations, as the sender's lanes and reports see them: the store's brake rows, and the lane that each
//! brake concerns.
//!
//! A paused lane hands out nothing. Notifications that are in its lake already are still sent. Meanwhile the walk,
//! receipts and expiry continue. While the process may not push ([`Tenure`]), all lanes are paused.

use std::sync::Arc;

use tidings_store::Brakes;
use tidings_types::{AppId, BrakeScope, Provider, TopicName};
use tokio::sync::watch;

use crate::config::Tenure;

/// The store's brakes, and what each lane carries.
#[derive(Clone)]
pub(crate) struct Braking {
    brakes: watch::Receiver<Arc<Brakes>>,
    tenure: Option<Tenure>,
    /// By lane.
    lanes: Arc<[(Provider, AppId)]>,
}

impl Braking {
    pub(crate) fn new(
        brakes: watch::Receiver<Arc<Brakes>>,
        tenure: Option<Tenure>,
        lanes: Arc<[(Provider, AppId)]>,
    ) -> Self {
        Self { brakes, tenure, lanes }
    }

    /// The widest brake that holds all events of a topic.
    pub(crate) fn of_topic(&self, topic: &TopicName) -> Option<BrakeScope> {
        self.first([BrakeScope::Everything, BrakeScope::Topic(topic.clone())])
    }

    /// The widest brake that holds a lane for events of a topic.
    pub(crate) fn of_lane(&self, topic: &TopicName, lane: usize) -> Option<BrakeScope> {
        let (provider, app) = &self.lanes[lane];
        self.of_topic(topic).or_else(|| self.first([BrakeScope::Provider(*provider), BrakeScope::App(app.clone())]))
    }

    /// Whether a brake on its app or provider pauses a lane.
    pub(crate) fn is_lane_paused(&self, lane: usize) -> bool {
        let (provider, app) = &self.lanes[lane];
        self.first([BrakeScope::Provider(*provider), BrakeScope::App(app.clone())]).is_some()
    }

    /// The rows as they are now.
    pub(crate) fn now(&self) -> Arc<Brakes> {
        self.brakes.borrow().clone()
    }

    /// Resolves when the brakes have changed since this clone last resolved, or when the process may not push any more, or
    /// may again. Never resolves after the store has ended.
    pub(crate) async fn changed(&mut self) {
        let renewed = async {
            match &mut self.tenure {
                Some(tenure) => tenure.changed().await,
                None => std::future::pending().await,
            }
        };
        let changed = tokio::select! {
            changed = self.brakes.changed() => changed,
            renewed = renewed => renewed,
        };
        if changed.is_err() {
            std::future::pending().await
        }
    }

    fn first<const COUNT: usize>(&self, scopes: [BrakeScope; COUNT]) -> Option<BrakeScope> {
        if self.tenure.as_ref().is_some_and(Tenure::is_over) {
            return Some(BrakeScope::Everything);
        }
        let brakes = self.brakes.borrow();
        if brakes.paused.is_empty() {
            return None;
        }
        scopes.into_iter().find(|scope| brakes.is_paused(scope))
    }
}
