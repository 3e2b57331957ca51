//! The weight of a request in its queue: about its bytes, or the bytes of the rows that it writes, if these are more.
//!
//! `StoreConfig` bounds the sum of the weights in a queue. A drain takes requests of about 1 MiB together.

/// A device with its names and its token, or a change of one.
pub(crate) const DEVICE: usize = 1024;
/// A request of a few names, numbers or positions.
pub(crate) const NAMES: usize = 256;
/// Each further subject, topic or mute.
pub(crate) const NAME: usize = 128;
/// An event without its JSON.
pub(crate) const EVENT: usize = 256;
/// A publication without its data.
pub(crate) const PUBLICATION: usize = 512;
/// A push token.
pub(crate) const TOKEN: usize = 256;
/// A job without its bytes.
pub(crate) const JOB: usize = 64;
/// A list of device numbers without the numbers.
pub(crate) const NUMBERS: usize = 64;
/// A release of scheduled events. It fills a batch.
pub(crate) const RELEASE: usize = 1 << 20;
/// The erasure of some devices.
pub(crate) const ERASE: usize = 256 << 10;
