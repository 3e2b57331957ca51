//! Pauses and cancellations, as the sender's lanes and reports see them: the store's brake rows, and the lane that each
//! brake concerns.
//!
//! A paused lane hands out nothing. Notifications that are in its lake already are still sent. Meanwhile the walk,
//! receipts and expiry continue. While the process may not push ([`Tenure`]), all lanes are paused.
//!
//! A task looks first whether it may go on, and then waits for a change. A change may come between the look and the wait, and
//! must not be lost. For rows, the channel remembers what each clone has seen. For the end of the tenure, which is only time
//! that passes, [`Follower`] remembers it.

use std::sync::Arc;

use tidings_store::Brakes;
use tidings_types::{AppId, BrakeScope, Provider, TopicName};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::config::Tenure;

/// The store's brakes, and what each lane carries.
#[derive(Clone)]
pub(crate) struct Braking {
    brakes: watch::Receiver<Arc<Brakes>>,
    tenure: Option<Follower>,
    /// By lane.
    lanes: Arc<[(Provider, AppId)]>,
}

impl Braking {
    pub(crate) fn new(
        brakes: watch::Receiver<Arc<Brakes>>,
        tenure: Option<Tenure>,
        lanes: Arc<[(Provider, AppId)]>,
    ) -> Self {
        let tenure = tenure.map(|tenure| Follower { tenure, was_over: false });
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

    /// Resolves when one of these has happened since this clone last resolved, also before this call: a row has changed, or
    /// the tenure has ended or has been renewed after its end. May resolve without a change. Never resolves after the store
    /// has ended.
    ///
    /// # Cancel safety
    /// Cancel safe: a change is told by the next call.
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
        if self.tenure.as_ref().is_some_and(|followed| followed.tenure.is_over()) {
            return Some(BrakeScope::Everything);
        }
        let brakes = self.brakes.borrow();
        if brakes.paused.is_empty() {
            return None;
        }
        scopes.into_iter().find(|scope| brakes.is_paused(scope))
    }
}

/// A tenure that one task follows.
#[derive(Clone)]
struct Follower {
    tenure: Tenure,
    /// Whether it was over before the task last looked.
    was_over: bool,
}

impl Follower {
    /// Resolves when the tenure has ended since the last call resolved, or was renewed after its end.
    async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        loop {
            let left = self.tenure.left();
            if std::mem::replace(&mut self.was_over, left.is_zero()) != left.is_zero() {
                return Ok(()); // Perhaps by time alone, of which the channel says nothing.
            }
            tokio::select! {
                changed = self.tenure.until.changed() => {
                    self.was_over = self.tenure.is_over();
                    return changed;
                }
                () = sleep(left), if !left.is_zero() => {} // It may have been renewed: the channel does not tell that.
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::{Context, Waker};
    use std::time::Duration;

    use tokio::task::JoinSet;
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Brakes without rows, of a process that may push for a second by the clock.
    fn for_a_second(clock: fn() -> Duration) -> (watch::Sender<Arc<Brakes>>, watch::Sender<Duration>, Braking) {
        let ((brakes_tx, brakes), (until_tx, until)) = (watch::channel(Arc::default()), watch::channel(SECOND));
        let lanes = Arc::new([(Provider::Apns, AppId::new("app").unwrap())]);
        (brakes_tx, until_tx, Braking::new(brakes, Some(Tenure { until, clock }), lanes))
    }

    fn is_told(braking: &mut Braking) -> bool {
        pin!(braking.changed()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// Once more without a change at most: a task that waits does not spin.
    fn is_quiet(braking: &mut Braking) -> bool {
        (0..2).any(|_| !is_told(braking))
    }

    /// A task looks at the brakes, and waits for a change after that.
    #[tokio::test(start_paused = true)]
    async fn a_time_that_ends_or_goes_on_between_a_look_and_the_wait_is_told() {
        static NOW_MILLIS: AtomicU64 = AtomicU64::new(0);
        let (_brakes, until, mut braking) = for_a_second(|| Duration::from_millis(NOW_MILLIS.load(Ordering::Relaxed)));
        for end in 1..=3 {
            assert!(!braking.is_lane_paused(0));
            NOW_MILLIS.store(end * 1000, Ordering::Relaxed);
            assert!(is_told(&mut braking) && braking.is_lane_paused(0), "its time is over");
            assert!(is_quiet(&mut braking));
            until.send_replace(SECOND * (end as u32 + 1));
            assert!(is_told(&mut braking) && !braking.is_lane_paused(0), "its time goes on");
            assert!(is_quiet(&mut braking));
        }
        // Over and renewed, with a look at each and without a wait; then it ends.
        NOW_MILLIS.store(4000, Ordering::Relaxed);
        assert!(braking.is_lane_paused(0));
        until.send_replace(5 * SECOND);
        assert!(is_told(&mut braking) && !braking.is_lane_paused(0));
        NOW_MILLIS.store(5000, Ordering::Relaxed);
        assert!(is_told(&mut braking) && braking.is_lane_paused(0));
        // The tenure is given back before its end.
        until.send_replace(9 * SECOND);
        assert!(is_told(&mut braking) && is_quiet(&mut braking));
        until.send_replace(Duration::ZERO);
        assert!(is_told(&mut braking) && braking.is_lane_paused(0));
    }

    /// The task that waits is woken by time, and not before the end that the last silent renewal has set.
    #[tokio::test(start_paused = true)]
    async fn a_time_that_ends_during_the_wait_is_told_then() {
        static NOW_MILLIS: AtomicU64 = AtomicU64::new(0);
        let (_brakes, until, mut braking) = for_a_second(|| Duration::from_millis(NOW_MILLIS.load(Ordering::Relaxed)));
        assert!(!is_told(&mut braking));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            braking.changed().await;
            braking.is_lane_paused(0)
        });
        tokio::task::yield_now().await;
        until.send_if_modified(|until| {
            *until = 2 * SECOND;
            false
        });
        for millis in [1000, 1999] {
            advance(Duration::from_millis(millis - NOW_MILLIS.swap(millis, Ordering::Relaxed))).await;
            tokio::task::yield_now().await;
            assert!(tasks.try_join_next().is_none());
        }
        NOW_MILLIS.store(2000, Ordering::Relaxed);
        advance(Duration::from_millis(1)).await;
        assert!(tasks.join_next().await.unwrap().unwrap(), "its time is over");
    }
}
