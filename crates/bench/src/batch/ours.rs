//! The crate `tidings-batch`, with a thread of its own, as the server writes its log lines.

use std::time::Duration;

use tidings_batch::{Announce, BatchConfig, BatchWriter, Full, IoSink};
use tidings_server::command_error::{CommandError, failed_by};

use super::case::Case;
use super::producer::{Producer, Writer};
use super::sink::{Output, Written};

/// How long to wait at most. No step takes that long.
const PATIENCE: Duration = Duration::from_secs(600);

struct Ours(BatchWriter);

pub(super) fn open(case: &Case, output: Output) -> Result<Box<dyn Writer>, CommandError> {
    let config = BatchConfig {
        page_bytes: case.page_bytes,
        count_max: case.slots,
        bytes_max: case.slots * case.message_bytes,
        full: if case.sheds { Full::DropNewest } else { Full::Wait { at_most: PATIENCE } },
        linger: Duration::ZERO,
        write_timeout: PATIENCE,
        announce: Some(Announce::line()),
    };
    let writer = BatchWriter::new(config, IoSink::new(output));
    writer.start_thread("batch").map_err(|error| failed_by("cannot start the writer", &error))?;
    Ok(Box::new(Ours(writer)))
}

impl Writer for Ours {
    fn producer(&self) -> Producer<'_> {
        let writer = self.0.clone();
        Box::new(move |message| writer.write(message).expect("a full buffer waits or drops"))
    }

    fn finish(self: Box<Self>, _: &Written) -> Result<u64, CommandError> {
        self.0.close_blocking(PATIENCE).map_err(|error| failed_by("not everything was written", &error))?;
        Ok(self.0.counters().dropped)
    }
}
