//! The sender's limits and its pools. The binary has the defaults that operators see.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tidings_push::web_push::guard::EndpointRules;
use tidings_push::{Lakes, PoolGauge};
use tidings_telemetry::trace::Tracer;
use tidings_types::{AppId, DeviceId, Environment, Provider};
use tokio::sync::watch;
use uuid::Uuid;

use crate::error::StartError;

/// What bounds the sender.
#[derive(Debug, Clone)]
pub struct SenderConfig {
    /// Slots for jobs that have something to send. At most 64 times as many jobs wait.
    pub job_count_max: usize,
    /// Bytes of the running jobs, without the last one that has begun. Further jobs wait.
    pub job_bytes_max: usize,
    /// Devices read, rendered and handed to a lake in one go.
    pub window_device_count: usize,
    /// Windows of one job and pool that may be in flight at a time.
    pub window_open_count_max: usize,
    /// How often progress is written, while there is any.
    pub checkpoint_interval: Duration,
    /// Finished jobs that are kept, in memory and in the store.
    pub report_count_max: usize,
    /// Dead tokens that wait for the store. Further ones are dropped; the provider reports them again at the next
    /// event.
    pub gone_token_count_max: usize,
    /// How long the removal of a token waits after its provider said that the token belongs to another app or
    /// environment. Such answers are counted over the same time: many of them keep the tokens and raise an alarm.
    pub doubt_window: Duration,
    /// Whether jobs that finish from now on owe a report: see `Sender::take_untold`.
    pub tell_finished: bool,
    /// How long it is known what each device of a job went through, after the job is done; zero: not at all.
    pub why_ttl: Duration,
    /// The memory for that, over all jobs. When it is full, it is forgotten for the jobs that were done first.
    pub why_bytes_max: usize,
    /// In shadow mode, the devices that are really pushed. All others are counted as suppressed.
    pub shadow: Option<Shadow>,
    /// Where spans of jobs go; `None`: nowhere.
    pub tracer: Option<Tracer>,
    /// Until when this process may push; `None`: no other one pushes for the same devices.
    pub tenure: Option<Tenure>,
}

/// Until when a process may push, where only one of several may. After it, lanes hand out nothing, as if everything was
/// paused. What is in a lake already is still sent.
#[derive(Debug, Clone)]
pub struct Tenure {
    /// The end. Receivers are told of a new end only where it decides whether the tenure is over. Invariant: the sender reads
    /// the clock inside of the change, so a receiver that has found the tenure over is told of the renewal.
    pub until: watch::Receiver<Duration>,
    /// The clock that `until` is of.
    pub clock: fn() -> Duration,
}

impl Tenure {
    pub(crate) fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// How long it still is.
    pub(crate) fn left(&self) -> Duration {
        self.until.borrow().saturating_sub((self.clock)())
    }
}

/// The devices that shadow mode really pushes: named devices, and a percentage of all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shadow {
    /// These devices.
    pub devices: BTreeSet<DeviceId>,
    /// Percentage of all devices, 0 to 100, chosen by a fixed hash of the device's id. A higher number keeps the
    /// devices of a lower one.
    pub percent: u8,
}

impl Shadow {
    /// Whether the device with this id is really pushed.
    pub fn admits(&self, device: &str) -> bool {
        const NAMESPACE: Uuid = Uuid::from_u128(0x9b1d_61c3_44c1_4a0e_8a0f_52b7_2f0e_6d11);
        let hundredth = || Uuid::new_v5(&NAMESPACE, device.as_bytes()).as_u128() % 100;
        self.devices.contains(device) || (self.percent > 0 && hundredth() < u128::from(self.percent))
    }
}

impl Default for SenderConfig {
    fn default() -> Self {
        Self {
            job_count_max: 1024,
            job_bytes_max: 1 << 30,
            window_device_count: 1024,
            window_open_count_max: 32,
            checkpoint_interval: Duration::from_millis(100),
            report_count_max: 10_000,
            gone_token_count_max: 4096,
            doubt_window: Duration::from_secs(60),
            tell_finished: false,
            why_ttl: Duration::from_secs(24 * 3600),
            why_bytes_max: 64 << 20,
            shadow: None,
            tracer: None,
            tenure: None,
        }
    }
}

impl SenderConfig {
    /// Devices of one job and pool that may be in flight.
    pub(crate) fn in_flight_max(&self) -> u64 {
        (self.window_device_count * self.window_open_count_max) as u64
    }

    pub(crate) fn check(&self) -> Result<(), StartError> {
        let fields = [
            ("job_count_max", self.job_count_max, 1_000_000),
            ("job_bytes_max", self.job_bytes_max, usize::MAX),
            ("window_device_count", self.window_device_count, 65_536),
            ("window_open_count_max", self.window_open_count_max, 65_536),
            ("report_count_max", self.report_count_max, 1_000_000),
            ("gone_token_count_max", self.gone_token_count_max, 1_000_000),
        ];
        if let Some(Shadow { percent: percent @ 101.., .. }) = &self.shadow {
            return Err(StartError::Percent { value: *percent });
        }
        match fields.into_iter().find(|&(_, value, max)| value == 0 || value > max) {
            Some((field, value, max)) => Err(StartError::Config { field, max, value }),
            None => Ok(()),
        }
    }
}

/// A credential with its connections, and the apps whose devices it reaches.
#[derive(Debug, Clone)]
pub struct Pool {
    /// The operator's name for it.
    pub name: String,
    /// Its provider.
    pub provider: Provider,
    /// The provider's environment; only APNs has two.
    pub environment: Environment,
    /// The apps; one app of one provider and environment belongs to one pool, unless these are for different services.
    pub apps: Vec<AppId>,
    /// Of Web Push, the push services that this pool reaches; `None`: all.
    pub services: Option<EndpointRules>,
    /// The lakes that its gateway takes notifications from.
    pub lakes: Lakes,
    /// The lakes for tokens that the provider has not accepted yet, if these have their own connections.
    pub quarantine: Option<Lakes>,
    /// What the gateway has measured, for [`Sender::estimate`](crate::Sender::estimate).
    pub gauge: Option<Arc<PoolGauge>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shadow_mode_admits_the_named_and_about_so_many_in_a_hundred_always_the_same() {
        let ids: Vec<DeviceId> = (0..10_000).map(|index| DeviceId::new(&format!("d{index}")).unwrap()).collect();
        let admitted = |percent| -> BTreeSet<&DeviceId> {
            let shadow = Shadow { percent, ..Shadow::default() };
            ids.iter().filter(|id| shadow.admits(id.as_str())).collect()
        };
        let (none, some, more, all) = (admitted(0), admitted(7), admitted(30), admitted(100));
        assert_eq!((none.len(), all.len()), (0, 10_000));
        assert!(
            (550..850).contains(&some.len()) && (2700..3300).contains(&more.len()),
            "{} {}",
            some.len(),
            more.len()
        );
        assert!(some.is_subset(&more), "with a higher number the same ones and more");
        // Written down: a device must not fall out by an update.
        let first: Vec<&str> = some.iter().take(3).map(|id| id.as_str()).collect();
        assert_eq!(first, ["d102", "d1025", "d105"]);
        let named = Shadow { devices: BTreeSet::from([ids[3].clone()]), percent: 0 };
        assert!(named.admits(ids[3].as_str()) && !named.admits(ids[4].as_str()));
    }
}
