//! A newer event replaces older events with the same collapse key, for the devices that are in both audiences.
//!
//! [`begin`] is called once for a job that begins (or starts again after waiting), before it looks at any device. It
//! gets all older jobs of the key that are not over. In the same step [`crate::waiting::WaitingJobs::supersede`] does
//! the same with the jobs that wait. For each device of the newer job it decides finally:
//!
//! - No older job has it, or all have its outcome: nothing is to be done.
//! - An older job has not handed it out: the older job counts it as superseded, and only the newer job has it.
//! - An older job has it in flight: the gateway gives it up before its next attempt, and the newer job waits for that.
//!   Whatever the older notification's outcome, the newer one is handed out after it. That holds also for a device that
//!   has received the newer event over a live connection, because the older notification may have arrived last.
//!
//! A device that the newer event's filter does not admit is not part of the newer job, and stays with the older one.
//!
//! So no device is left without news, and no device shows the older event last:
//! 1. At most one job of a key has a device in flight: in a newer job the device is blocked until then, or counted.
//! 2. The older job never gets back what it lost. The rest of its walk is now a set, not a cursor, and a checkpoint
//!    keeps the set. So a restart that selects anew does not give it back. Nor can an older job that begins after the
//!    newer one: a waiting job without an audience gets its audience as a set when the newer job begins. It gets this
//!    set even if it has nothing to lose, because the devices that a filter admits may change: a device that was sent
//!    the newer event must not come into the older job's audience later.
//! 3. The rows of both jobs change in one batch. In the older job's row, devices in flight that the newer job waits for
//!    are superseded already. So after a crash only the newer job has them, however late it continues, and even if it
//!    is cancelled or expired by then. There is one exception: a waiting job that gets its audience as a set loses its
//!    part of it a moment before the newer job begins. After a crash in between, the newer job begins anew and takes
//!    the rest.
//! 4. The newer job hands nothing out before that batch is written (decision 0048). Otherwise, after a crash, the older job's
//!    row would still have a device that was shown the newer event and is in the newer job's audience no more. That holds for
//!    every older job of which a row without these changes may be in the store, also if it is over or loses nothing: its
//!    last row may have the device, or its cursor may let it in.
//!
//! **The older event does not come back** for these devices, whatever happens to the newer job. If the newer job is
//! paused, they wait. If it is cancelled or expires, has no text in the end, or its filter no longer admits them, they
//! get neither event. A job that is cancelled or expired before it begins takes nothing. Dry runs take nothing and lose
//! nothing, because they are not shown.
//!
//! Cost: the open devices of each older job as a set, a few operations on whole sets, and one checkpoint, which all jobs share
//! that begin meanwhile. An event without a key waits for none, nor one whose older events are done.

use std::sync::Arc;

use roaring::RoaringBitmap;

use crate::job::Job;
use crate::metrics::Metrics;

/// The devices that are open both in `newer`, which has not begun, and in one of `older` (all of one key) or in
/// `waiting`.
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
        // Some may have landed before they were blocked, and that would not be reported again.
        newer.unblock(&(&racing - job.handed_out()), metrics);
    }
}
