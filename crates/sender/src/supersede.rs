//! A newer event takes the place of older ones with the same collapse key, for the devices in both audiences.
//!
//! [`begin`] is called once for a job that begins (or starts again after waiting), before any of its devices is looked at,
//! with all older jobs of the key that are not over; [`crate::waiting::WaitingJobs::supersede`] does the same, in the same step,
//! with those that wait. It decides for each device of the newer job, once and for all:
//!
//! - No older job has it, or all are through with it: nothing is to be done.
//! - An older one has not handed it out: it is counted as superseded there, and is the newer one's alone.
//! - An older one has it in flight: the gateway gives it up before its next attempt, and the newer one waits for that.
//!   Whatever became of the older one, the newer is handed out after it, also to who has received it over a live
//!   connection, since the older one may have got through last.
//!
//! A device that the newer event's filter does not admit is none of its job, and stays the older one's.
//!
//! So nobody is left without news, and nobody is shown the older one last:
//! 1. At most one job of a key has a device in flight: a newer one has it blocked until then, or has counted it.
//! 2. What the older one lost it never gets back: the rest of its walk is a set by now, not a cursor, and a checkpoint
//!    keeps the set. So also not by a restart that selects anew, and not by beginning after the newer one: a waiting job
//!    without an audience gets it as a set when the newer one begins. One that has nothing to lose gets its set too:
//!    whom a filter admits changes, and who was told the newer one must not come into the older one's audience then.
//! 3. The rows of both jobs change in one batch, and in the older one's row what is in flight for the newer one to wait
//!    for is superseded already. So after a crash it is the newer one's alone, however late that goes on, and also
//!    where it is cancelled or its time over by then. Only a waiting job that gets its audience as a set loses its part
//!    of it a moment before the newer one begins: after a crash in between, that begins anew and takes the rest.
//!
//! **The older one does not come back** for these devices, whatever becomes of the newer job: paused, it has them wait;
//! cancelled, expired, without a text in the end, or no more admitted by its filter, they get neither. A job that is
//! cancelled, or its time over, before it begins takes nothing. Dry runs take nothing and lose nothing: they are not
//! shown.
//!
//! Cost: the open devices of each older job as a set, and a few operations on whole sets.

use std::sync::Arc;

use roaring::RoaringBitmap;

use crate::job::Job;
use crate::metrics::Metrics;

/// The devices that are still open in `newer`, which has not begun, and in one of `older`, all of one key, or `waiting`.
pub(crate) fn shared(newer: &Job, older: &[Arc<Job>], waiting: RoaringBitmap) -> RoaringBitmap {
    let theirs = older.iter().fold(waiting, |all, job| all | job.open_devices());
    if theirs.is_empty() { theirs } else { theirs & newer.open_devices() }
}

/// Lets `newer` take the `shared` devices over from `older`.
pub(crate) fn begin(newer: &Arc<Job>, older: &[Arc<Job>], shared: &RoaringBitmap, metrics: &Metrics) {
    for job in older {
        let racing = job.supersede(newer, &(job.open_devices() & shared), metrics);
        if racing.is_empty() {
            continue;
        }
        newer.block(&racing);
        // Some may have landed before they were blocked, and nobody would say it again.
        newer.unblock(&(&racing - job.handed_out()), metrics);
    }
}
