//! Waiting until the cluster is as it should be.

use std::time::Duration;

use hyper::{Method, StatusCode};
use rand::RngExt as _;
use tidings_client::ServerUrl;
use tidings_server::command_error::{CommandError, failed};
use tokio::time::{Instant, timeout};

use super::super::clock::LOOK_INTERVAL;
use super::Show;
use super::plan::Member;
use super::stage::{PATIENCE, late};
use super::traffic::Traffic;

/// How long a NATS server says nothing about itself.
const MONITOR_TIMEOUT: Duration = Duration::from_secs(2);

impl Show {
    /// Waits until a server leads, at most a minute after `since`.
    pub(super) async fn find_leader(&mut self, since: Instant) -> Result<usize, CommandError> {
        let left = PATIENCE.saturating_sub(since.elapsed());
        let found = timeout(left, self.callers.find_leader()).await;
        self.fleet.check()?;
        found.map_err(|_| late("no server leads"))
    }

    /// Waits until a process that was started works again.
    pub(super) async fn comes_back(&mut self, member: Member, since: Instant) -> Result<(), CommandError> {
        while !self.works(member).await {
            self.fleet.check()?;
            if since.elapsed() > PATIENCE {
                return Err(late(&format!("{} does not work again", self.fleet.name(member))));
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        Ok(())
    }

    async fn works(&mut self, member: Member) -> bool {
        match member {
            Member::Server(index) => self.callers.stands_by(index).await,
            Member::Nats(index) => {
                let monitor = ServerUrl::of_listener(self.fleet.monitor(index));
                let asked = timeout(MONITOR_TIMEOUT, monitor.request(Method::GET, "/healthz", None, None)).await;
                matches!(asked, Ok(Ok((StatusCode::OK, _))))
            }
        }
    }

    /// Waits until something is so, at most a minute after `since`.
    pub(super) async fn until(
        &mut self,
        trouble: &str,
        since: Instant,
        is_so: impl Fn(&Self) -> bool,
    ) -> Result<(), CommandError> {
        while !is_so(self) {
            self.fleet.check()?;
            if let Some(failure) = self.traffic.as_ref().and_then(Traffic::failure) {
                return Err(failed(format!("an event was refused: {failure}")));
            }
            if since.elapsed() > PATIENCE {
                return Err(late(trouble));
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        Ok(())
    }

    /// Lets some time pass.
    pub(super) async fn pause(&mut self, millis: std::ops::Range<u64>) -> Result<(), CommandError> {
        tokio::time::sleep(Duration::from_millis(self.rng.random_range(millis))).await;
        self.fleet.check()
    }
}
