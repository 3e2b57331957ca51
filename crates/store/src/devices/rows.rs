//! Rows of devices.

mod address;
pub(crate) mod device;
