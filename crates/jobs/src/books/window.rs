//! The right to move devices on, as values: each is made by the books, is no `Clone`, and is used up by the one call that
//! moves its devices on.
//!
//! A device is in one window at most, because making a window takes its devices out of the set they were in. So no device
//! is found twice and none is handed out twice, whatever happens to the books between the two calls.
//! ```compile_fail,E0382
//! fn hand_out_twice(books: &mut tidings_jobs::Books<()>, window: tidings_jobs::Window) {
//!     let _ = books.hand_out(window, &[], &[]);
//!     let _ = books.hand_out(window, &[], &[]);
//! }
//! ```

use tidings_types::DeviceNumber;

use crate::outcome::Suppression;

/// A part of the walk whose records are read now. It ends in [`Books::assign`](super::Books::assign).
#[derive(Debug)]
#[must_use = "the devices of a window are in no other set until it is assigned"]
pub struct WalkWindow {
    pub(super) devices: Vec<DeviceNumber>,
}

/// Devices of one lane that are about to be handed out. Their records are read now; ends in
/// [`Books::hand_out`](super::Books::hand_out).
#[derive(Debug)]
#[must_use = "the devices of a window are in no other set until it is handed out"]
pub struct Window {
    pub(super) lane: usize,
    pub(super) devices: Vec<DeviceNumber>,
}

/// Devices of one lane that are in flight and on their way into the lake. What does not get into the lake ends in
/// [`Books::put_back`](super::Books::put_back).
#[derive(Debug)]
pub struct Outgoing {
    pub(super) lane: usize,
    /// In the order of numbers.
    pub(super) devices: Vec<DeviceNumber>,
}

/// What the record of a device says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// It belongs to this lane.
    Lane(usize),
    /// It is not sent to.
    Suppressed(Suppression),
}

impl WalkWindow {
    /// In the order of numbers.
    pub fn devices(&self) -> &[DeviceNumber] {
        &self.devices
    }
}

impl Window {
    /// In the order of numbers.
    pub fn devices(&self) -> &[DeviceNumber] {
        &self.devices
    }

    /// The lane that it was opened for.
    pub fn lane(&self) -> usize {
        self.lane
    }
}

impl Outgoing {
    /// In the order of numbers.
    pub fn devices(&self) -> &[DeviceNumber] {
        &self.devices
    }
}
