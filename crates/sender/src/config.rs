//! What bounds the sender, and the ways to providers it is given. The defaults that operators see are the binary's.

use std::sync::Arc;
use std::time::Duration;

use tidings_buffer::Lake;
use tidings_push::Notification;
use tidings_types::{AppId, Environment};

use crate::error::StartError;

/// What bounds the sender.
#[derive(Debug, Clone)]
pub struct SenderConfig {
    /// Jobs in work; further events wait in the journal.
    pub job_count_max: usize,
    /// Devices read, rendered and handed to a lake in one go.
    pub window_device_count: usize,
    /// Windows of one job and pool whose devices may be on their way at a time.
    pub window_open_count_max: usize,
    /// Progress is noted this often while there is any.
    pub checkpoint_interval: Duration,
    /// Finished jobs that are remembered, in memory and in the store.
    pub report_count_max: usize,
    /// Dead tokens that wait for the store; more are forgotten, and the provider says it again at the next event.
    pub gone_token_count_max: usize,
    /// Whether jobs that finish from now on are to be told to somebody outside: see `Sender::take_untold`.
    pub tell_finished: bool,
}

impl Default for SenderConfig {
    fn default() -> Self {
        Self {
            job_count_max: 1024,
            window_device_count: 1024,
            window_open_count_max: 32,
            checkpoint_interval: Duration::from_millis(100),
            report_count_max: 10_000,
            gone_token_count_max: 4096,
            tell_finished: false,
        }
    }
}

impl SenderConfig {
    /// Devices of one job and pool that may be on their way.
    pub(crate) fn in_flight_max(&self) -> u64 {
        (self.window_device_count * self.window_open_count_max) as u64
    }

    pub(crate) fn check(&self) -> Result<(), StartError> {
        let fields = [
            ("job_count_max", self.job_count_max, 1_000_000),
            ("window_device_count", self.window_device_count, 65_536),
            ("window_open_count_max", self.window_open_count_max, 65_536),
            ("report_count_max", self.report_count_max, 1_000_000),
            ("gone_token_count_max", self.gone_token_count_max, 1_000_000),
        ];
        match fields.into_iter().find(|&(_, value, max)| value == 0 || value > max) {
            Some((field, value, max)) => Err(StartError::Config { field, max, value }),
            None => Ok(()),
        }
    }
}

/// One way to a provider: a credential with its connections, and the apps whose devices it reaches.
#[derive(Debug, Clone)]
pub struct Pool {
    /// What the operator calls it.
    pub name: String,
    /// The provider's world it belongs to.
    pub environment: Environment,
    /// The apps; one app of one environment belongs to one pool.
    pub apps: Vec<AppId>,
    /// What its gateway draws from.
    pub lake: Arc<Lake<Notification>>,
}
