//! The lease in a stream of one message, and the task that keeps it.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::context::{GetStreamError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{self, LastRawMessageErrorKind, StorageType, Stream};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::jetstream::is_connected;
use crate::lease::{Answer, Ask, BEAT, Holder, Lease, Readiness, SILENCE};

/// How long a request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause between two looks at a lease that was given back, until a node has it.
const HURRY: Duration = Duration::from_millis(10);

/// What the task is to do. It reads it before each request.
#[derive(Clone)]
pub(crate) struct Order {
    /// Whether this node may take the lease, and how far it has read.
    pub(crate) readiness: Arc<dyn Fn() -> Readiness + Send + Sync>,
    /// Gives the lease back: to the node of this name, or to any.
    pub(crate) giving_back: Option<Option<String>>,
}

/// What is known of the lease.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standing {
    /// This process has it.
    pub is_held: bool,
    /// The other process that has it.
    pub holder: Option<Holder>,
    /// The broker has answered the last request.
    pub is_heard: bool,
}

/// The time since the machine started. Unlike other clocks it goes on while the machine sleeps, and is never set.
pub fn boot_time() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

fn stream_name(prefix: &str) -> String {
    format!("{prefix}_lease")
}

fn subject(prefix: &str) -> String {
    format!("{prefix}.lease")
}

pub(crate) struct Register {
    context: Context,
    stream: Stream<()>,
    name: String,
    subject: String,
}

impl Register {
    /// The stream, which is made if it is not there.
    pub(crate) async fn open(
        context: Context,
        prefix: &str,
        replica_count: usize,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let config = stream::Config {
            name: stream_name(prefix),
            subjects: vec![subject(prefix)],
            num_replicas: replica_count,
            max_messages: 1,
            storage: StorageType::File,
            ..stream::Config::default()
        };
        context.get_or_create_stream(config).await?;
        Ok(Self::of(context, prefix).await?)
    }

    async fn of(context: Context, prefix: &str) -> Result<Self, GetStreamError> {
        let stream = context.get_stream_no_info(stream_name(prefix)).await?;
        Ok(Self { context, stream, name: stream_name(prefix), subject: subject(prefix) })
    }

    /// The stream, if it is there and NATS answers.
    pub(crate) async fn find(context: Context, prefix: &str) -> Option<Self> {
        let is_there = context.get_stream(stream_name(prefix)).await.is_ok();
        if is_there { Self::of(context, prefix).await.ok() } else { None }
    }

    pub(crate) async fn look(&self) -> Answer {
        let read = timeout(REQUEST_TIMEOUT, self.stream.get_last_raw_message_by_subject(&self.subject)).await;
        match read {
            Ok(Ok(message)) => Answer::Has(message.sequence, serde_json::from_slice(&message.payload).ok()),
            Ok(Err(error)) if error.kind() == LastRawMessageErrorKind::NoMessageFound => self.look_at_empty().await,
            Ok(Err(_)) | Err(_) => Answer::Nothing,
        }
    }

    /// Its revision is not 0 if somebody has deleted the message. If there is one by now, nobody knows what it says.
    async fn look_at_empty(&self) -> Answer {
        match timeout(REQUEST_TIMEOUT, self.stream.get_info()).await {
            Ok(Ok(info)) if info.state.messages == 0 => Answer::Has(info.state.last_sequence, None),
            Ok(Ok(_) | Err(_)) | Err(_) => Answer::Nothing,
        }
    }

    async fn put(&self, revision: u64, holder: &Holder) -> Answer {
        let payload = serde_json::to_vec(holder).unwrap_or_default();
        let message = PublishMessage::build().payload(payload.into());
        let message = message.expected_last_sequence(revision).expected_stream(&self.name);
        // Without a connection the client would send it when there is one.
        if !is_connected(&self.context) {
            return Answer::Nothing;
        }
        let published =
            timeout(REQUEST_TIMEOUT, async { self.context.send_publish(self.subject.clone(), message).await?.await });
        match published.await {
            Ok(Ok(ack)) => Answer::Done(ack.sequence),
            Ok(Err(error)) if error.kind() == PublishErrorKind::WrongLastSequence => Answer::Refused,
            Ok(Err(_)) | Err(_) => Answer::Nothing,
        }
    }
}

/// Keeps the lease, until it is dropped. `nudged` makes it look at once, and often until a node has the lease that was given back;
/// `given_back` is called when it was given back.
pub(crate) async fn keep(
    register: Register,
    this: Holder,
    mut orders: watch::Receiver<Order>,
    told: Told,
    nudged: Arc<Notify>,
    given_back: impl AsyncFn(),
) {
    let mut lease = Lease::new(this.node.clone(), this.process);
    let (mut was_giving_back, mut sequence, mut hurried) = (false, 0, Duration::ZERO);
    loop {
        let Order { readiness, giving_back } = orders.borrow_and_update().clone();
        if giving_back.is_some() != was_giving_back {
            was_giving_back = giving_back.is_some();
            lease.give_back(was_giving_back);
        }
        let readiness = readiness();
        let (sent, ask) = (boot_time(), lease.ask(boot_time(), readiness));
        told.tell_tenure(&lease); // Before anybody hears that it is given back.
        if let Readiness::Read(read) = readiness {
            sequence = read; // Also for when it is given back: who takes it next must have read as much.
        }
        let mut holder = Holder { sequence, ..this.clone() };
        let answer = match ask {
            Ask::Look => register.look().await,
            Ask::Take(revision) => register.put(revision, &holder).await,
            Ask::Release(revision) => {
                (holder.released, holder.to) = (true, giving_back.flatten());
                register.put(revision, &holder).await
            }
        };
        let (is_heard, is_over) =
            (answer != Answer::Nothing, matches!((ask, &answer), (Ask::Release(_), Answer::Done(_))));
        let at_once = lease.hear(sent, boot_time(), ask, answer);
        told.tell(&lease, is_heard);
        if is_over {
            given_back().await;
        }
        if !at_once {
            let is_hurried = boot_time() < hurried && !lease.is_held() && lease.holder().is_none();
            tokio::select! {
                () = sleep(if is_hurried { HURRY } else { BEAT }) => {}
                () = nudged.notified() => hurried = boot_time() + SILENCE,
                changed = orders.changed() => if changed.is_err() { return },
            }
        }
    }
}

/// Where the task tells how the lease is.
pub(crate) struct Told {
    pub(crate) standing: watch::Sender<Standing>,
    /// Until when, by [`boot_time`], this process may do what cannot be undone. Receivers are told as [`set_until`] says.
    pub(crate) tenure: watch::Sender<Duration>,
}

impl Told {
    fn tell_tenure(&self, lease: &Lease) {
        set_until(&self.tenure, lease.until().unwrap_or_default(), boot_time);
    }

    fn tell(&self, lease: &Lease, is_heard: bool) {
        self.tell_tenure(lease);
        let (is_held, holder) = (lease.is_held(), lease.holder().cloned());
        let former = self.standing.send_replace(Standing { is_held, holder: holder.clone(), is_heard });
        if former.is_heard && !is_heard {
            warn!("NATS does not answer; it is asked again");
        }
        match (former.is_held, is_held) {
            (false, true) => info!("This node has the lease"),
            (true, false) => info!("This node does not have the lease any more"),
            _ => {}
        }
        let process = |holder: &Option<Holder>| holder.as_ref().map(|holder| holder.process);
        if let Some(holder) = holder.as_ref().filter(|other| process(&former.holder) != Some(other.process)) {
            info!(node = %holder.node, "Another node has the lease");
        }
    }
}

/// Tells receivers of a new end only where it decides whether the end has passed: at a late renewal, and when the lease is given
/// back or lost early. The clock is read under the channel's lock, so a receiver that has found that the former end has passed
/// is told of the renewal.
fn set_until(tenure: &watch::Sender<Duration>, new: Duration, clock: impl Fn() -> Duration) {
    tenure.send_if_modified(|until| {
        let (former, now) = (std::mem::replace(until, new), clock());
        (former > now) != (new > now)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_is_told_when_a_tenure_goes_on_after_its_end_and_when_it_ends_early() {
        let (tenure, mut seen) = watch::channel(Duration::ZERO);
        let mut is_told = |new: u64, now: u64| {
            set_until(&tenure, Duration::from_secs(new), || Duration::from_secs(now));
            assert_eq!(*seen.borrow(), Duration::from_secs(new));
            let is_told = seen.has_changed().unwrap();
            seen.mark_unchanged();
            is_told
        };
        assert!(is_told(3, 1), "the lease is taken");
        assert!(!is_told(4, 2), "it is renewed in time");
        assert!(is_told(7, 4), "it is renewed late");
        assert!(is_told(0, 5), "it is given back");
        assert!(!is_told(0, 6) && !is_told(5, 6), "it stays over");
    }
}
