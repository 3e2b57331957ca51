//! Says in the log when a receiver begins to fail, recovers or leaves. For a receiver that fails now and then, the rate of
//! log lines is limited.

use tidings_http1::SendError;
use tidings_telemetry::chain;
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::super::outgoing::Said;
use super::answer::Answer;

pub(super) struct ReceiverLog {
    /// The receiver's host and port.
    receiver: String,
    /// The log has said that the receiver fails, and not yet that it takes requests again.
    is_failing: bool,
    failed: Said,
}

impl ReceiverLog {
    pub(super) fn new(receiver: String) -> Self {
        Self { receiver, is_failing: false, failed: Said::default() }
    }

    /// An attempt has ended. `is_closed`: the receiver had left before.
    pub(super) fn log(&mut self, answer: Answer, result: Result<u16, &SendError>, is_closed: bool) {
        let receiver = &self.receiver;
        match (answer, result) {
            (Answer::Gone, _) if !is_closed => {
                self.is_failing = true;
                error!(%receiver, "Receiver of reports is gone (410): nothing is sent until SIGHUP or a restart");
            }
            // From a receiver that has left: the answer to an earlier attempt.
            (Answer::Taken, _) if self.is_failing && !is_closed => {
                self.is_failing = false;
                info!(%receiver, "Receiver takes reports again");
            }
            (Answer::Taken | Answer::Gone, _) | (_, Err(SendError::Backlog { .. })) => {} // A full backlog is our own limit.
            _ if self.is_failing => {}
            (_, result) => {
                let Some(held_back) = self.failed.next(Instant::now()) else { return };
                self.is_failing = true;
                match result {
                    Ok(code) => warn!(%receiver, code, held_back, "Receiver does not take reports, trying again"),
                    Err(error) => {
                        let error = chain(error);
                        warn!(%receiver, error, held_back, "Receiver does not take reports, trying again");
                    }
                }
            }
        }
    }
}
