//! Makes each log line of `tracing-subscriber` a message.

use std::io;

use tracing_subscriber::fmt::MakeWriter;

use crate::BatchWriter;

/// Lets `tracing-subscriber`'s formatting layer write to a [`BatchWriter`], one message per log line.
///
/// Code that logs cannot handle errors, so it never gets one. A refused line counts as dropped, and the stream reports it.
/// Use [`Full::Wait`](crate::Full::Wait) only in programs whose threads may wait.
///
/// ```no_run
/// # fn start(writer: tidings_batch::BatchWriter) {
/// tracing_subscriber::fmt().with_writer(tidings_batch::MakeBatchWriter::new(writer)).init();
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct MakeBatchWriter(BatchWriter);

impl MakeBatchWriter {
    /// Lines go to `writer`. Use its other handles to flush and close it.
    #[must_use]
    pub const fn new(writer: BatchWriter) -> Self {
        Self(writer)
    }
}

impl<'a> MakeWriter<'a> for MakeBatchWriter {
    type Writer = LineWriter<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        LineWriter(&self.0)
    }
}

/// Writes the lines of one event. Each `write` is a message.
#[derive(Debug)]
pub struct LineWriter<'a>(&'a BatchWriter);

impl io::Write for LineWriter<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_or_lose(line);
        Ok(line.len())
    }

    /// Does nothing: an idle writer has nothing to flush, and waiting for a busy writer would delay the program.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
