//! Log lines.

use tidings_batch::{BatchConfig, BatchWriter, Full, MakeBatchWriter};
use tracing_subscriber::fmt;

use crate::common::{Gate, PATIENCE, config, start};

#[tokio::test]
async fn a_log_line_is_a_message_and_a_refused_line_is_announced() {
    let gate = Gate::open();
    let refusing = BatchConfig { bytes_max: 200, ..config(200, 100, Full::Reject) };
    let writer = BatchWriter::new(refusing, gate.clone());
    let lines = fmt().without_time().with_ansi(false).with_writer(MakeBatchWriter::new(writer.clone())).finish();
    let running = start(&writer);
    tracing::subscriber::with_default(lines, || {
        tracing::info!(count = 1, "Something happened");
        tracing::info!(text = "x".repeat(300), "Too much happened");
    });
    writer.close(PATIENCE).await.unwrap();
    running.ended().await;
    let text = gate.pages().concat();
    assert!(text.contains("Something happened count=1\n"), "{text}");
    assert!(text.ends_with("… 1 message lost …\n"), "{text}");
    assert_eq!((writer.counters().sent, writer.counters().dropped, writer.counters().refused), (1, 1, 0));
}
