//! Jobs as logic: the outcome of each device of an accepted event, and which job may send.
//!
//! - [`Books`]: where each device of one job is, so that each ends in exactly one [`DeviceOutcome`].
//! - [`Slots`] and [`ReadyQueue`]: which jobs hold a slot, which wait, and which are suspended.
//! - [`JobSize`]: how much memory a job may take.
//! - [`JobRow`]: a job as it is checkpointed; [`JobReport`]: a job as it is shown.
//! - [`Trail`]: what each device of a job went through, and when.
//!
//! A core: no runtime, clock, lock, file or metric. The sender drives it: it reads records, waits, wakes, counts in the
//! metrics and writes rows. Bounds: those of each module.

mod books;
mod extent;
mod latency;
mod outcome;
mod report;
mod row;
mod slots;
mod tally;
mod trail;

pub use books::{Answer, Books, Effects, Finding, Landing, LaneLimits, Outgoing, Step, WalkWindow, Window};
pub use extent::{Extent, JobSize};
pub use outcome::{Counts, DeviceOutcome, OUTCOME_COUNT, Suppression};
pub use report::{DeviceTrail, JobReport, Telling, TrailStep, Way};
pub use row::{JobRow, Progress, RowError};
pub use slots::{Claim, Ready, ReadyQueue, Slots, WAITING_BYTES_PART, WAITING_PER_SLOT};
pub use tally::{JobPart, Tally};
pub use trail::{Note, Noted, Trail, Whereabouts};
