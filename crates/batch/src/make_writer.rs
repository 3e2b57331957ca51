//! Log lines of `tracing-subscriber` as messages.

use std::io;

use tracing_subscriber::fmt::MakeWriter;

use crate::BatchWriter;

/// Gives `tracing-subscriber`'s formatting layer a [`BatchWriter`] to write to: one message a log line.
///
/// Whoever logs is never given an error, for there is nothing it could do: a line that is refused counts as dropped, and
/// the stream tells of it. Leave [`Full::Wait`](crate::Full::Wait) to programs whose threads may be held up.
///
/// ```no_run
/// # fn start(writer: tidings_batch::BatchWriter) {
/// tracing_subscriber::fmt().with_writer(tidings_batch::MakeBatchWriter::new(writer)).init();
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct MakeBatchWriter(BatchWriter);

impl MakeBatchWriter {
    /// Lines go to `writer`, whose other handles flush and close it.
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

/// Takes what one event is formatted to; each `write` is a message.
#[derive(Debug)]
pub struct LineWriter<'a>(&'a BatchWriter);

impl io::Write for LineWriter<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_or_lose(line);
        Ok(line.len())
    }

    /// Does nothing: an idle writer is flushed already, and a busy one should not be waited for.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
