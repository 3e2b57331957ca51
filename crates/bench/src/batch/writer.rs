//! The writers: direct writes under a lock, as programs do without further thought; the standard library's
//! [`LineWriter`] under a lock; `tracing-appender` (with the feature `bench-peers`); and ours.

use std::io::{LineWriter, Write};
use std::sync::Mutex;

use tidings_server::command_error::CommandError;

use super::case::Case;
use super::producer::{Producer, Writer};
use super::sink::{Output, Written};

/// A writer that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Ours,
    Locked,
    LineWriter,
    #[cfg(feature = "peers")]
    Appender,
    /// With a buffer of one page around the output. The appender flushes it when it has nothing left to do.
    #[cfg(feature = "peers")]
    AppenderPages,
}

impl Kind {
    pub(super) const ALL: &[Self] = &[
        Self::Ours,
        Self::Locked,
        Self::LineWriter,
        #[cfg(feature = "peers")]
        Self::Appender,
        #[cfg(feature = "peers")]
        Self::AppenderPages,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Locked => "locked direct writes",
            Self::LineWriter => "locked LineWriter",
            #[cfg(feature = "peers")]
            Self::Appender => "tracing-appender",
            #[cfg(feature = "peers")]
            Self::AppenderPages => "tracing-appender on BufWriter",
        }
    }

    /// Whether messages can wait, or be dropped.
    pub(super) const fn has_buffer(self) -> bool {
        !matches!(self, Self::Locked | Self::LineWriter)
    }

    pub(super) fn open(self, case: &Case, output: Output) -> Result<Box<dyn Writer>, CommandError> {
        Ok(match self {
            Self::Ours => super::ours::open(case, output)?,
            Self::Locked => Box::new(Mutex::new(output)),
            Self::LineWriter => Box::new(Mutex::new(LineWriter::new(output))),
            #[cfg(feature = "peers")]
            Self::Appender => Box::new(appender::Appender::open(case, output)),
            #[cfg(feature = "peers")]
            Self::AppenderPages => {
                Box::new(appender::Appender::open(case, std::io::BufWriter::with_capacity(case.page_bytes, output)))
            }
        })
    }
}

impl<W: Write + Send> Writer for Mutex<W> {
    fn producer(&self) -> Producer<'_> {
        Box::new(|message| {
            let mut output = self.lock().expect("no producer panics");
            output.write_all(message).expect("the output is read to the end");
        })
    }

    fn finish(self: Box<Self>, _: &Written) -> Result<u64, CommandError> {
        let mut output = self.into_inner().expect("no producer panics");
        output.flush().map_err(CommandError::Terminal)?;
        Ok(0)
    }
}

#[cfg(feature = "peers")]
mod appender {
    use std::thread;
    use std::time::Duration;

    use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};

    use super::*;

    pub(super) struct Appender {
        handle: NonBlocking,
        guard: WorkerGuard,
        bytes_expected: u64,
        message_bytes: u64,
    }

    impl Appender {
        pub(super) fn open(case: &Case, output: impl Write + Send + 'static) -> Self {
            let builder = NonBlockingBuilder::default().buffered_lines_limit(case.slots).lossy(case.sheds);
            let (handle, guard) = builder.finish(output);
            Self { handle, guard, bytes_expected: case.bytes() as u64, message_bytes: case.message_bytes as u64 }
        }
    }

    impl Writer for Appender {
        fn producer(&self) -> Producer<'_> {
            let mut handle = self.handle.clone();
            Box::new(move |message| handle.write_all(message).expect("the appender's thread runs until it is dropped"))
        }

        fn finish(self: Box<Self>, written: &Written) -> Result<u64, CommandError> {
            let dropped = self.handle.error_counter().dropped_lines() as u64;
            // The guard gives up after a second. Wait for all output, as with the other writers.
            while written.bytes() < self.bytes_expected - dropped * self.message_bytes {
                thread::park_timeout(Duration::from_micros(100));
            }
            drop(self.guard);
            Ok(dropped)
        }
    }
}
