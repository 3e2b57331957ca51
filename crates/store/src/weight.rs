//! What a request weighs in its queue: about the bytes that it takes there, or that it makes of rows, if these are more.
//!
//! A queue is bounded by the sum of these (`StoreConfig`), and a drain takes requests of about 1 MiB together.

/// A device with its names and its address, or a change of one.
pub(crate) const DEVICE: usize = 1024;
/// What is said in a few names, numbers or positions.
pub(crate) const NAMES: usize = 256;
/// A subject, a topic or a mute beside others.
pub(crate) const NAME: usize = 128;
/// An event beside its JSON.
pub(crate) const EVENT: usize = 256;
/// A publication beside its data.
pub(crate) const PUBLICATION: usize = 512;
/// A push token.
pub(crate) const TOKEN: usize = 256;
/// A job beside its bytes.
pub(crate) const JOB: usize = 64;
/// Device numbers beside the numbers themselves.
pub(crate) const NUMBERS: usize = 64;
/// What a release of scheduled events may make of its request: it fills a batch of its own.
pub(crate) const RELEASE: usize = 1 << 20;
/// What erasing some devices may make of its request.
pub(crate) const ERASE: usize = 256 << 10;
