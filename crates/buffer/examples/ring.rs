//! One buffer, three ways to be full, and a change of capacity: `cargo run -p tidings-buffer --example ring`.
#![expect(clippy::print_stdout, reason = "an example talks to a terminal")]

use tidings_buffer::{Bounds, Full, NoRoom, Rejected, Ring};

fn main() -> Result<(), NoRoom> {
    for full in [Full::EvictOldest, Full::DropNewest, Full::Reject] {
        let mut ring = Ring::new(3, full);
        for reading in [20.1, 20.4, 21.0, 21.7, 22.3] {
            if let Err(Rejected { value, reason }) = ring.push(reading) {
                println!("{value} came back: {reason}");
            }
        }
        println!("{full:?} holds {:?}: {:?}\n", ring.snapshot(), ring.counters());
    }

    // Bounded by bytes too, with all memory taken at once: no push or pop allocates from here on.
    let mut lines = Ring::weighed(Bounds::count(100).and_bytes(24), Full::EvictOldest, |line: &&str| line.len());
    lines.reserve();
    for line in ["kick-off", "corner", "goal", "yellow card"] {
        let lost = lines.push(line).map_err(|rejected| rejected.reason)?;
        println!("{line:?} goes in for {lost} older lines; {} bytes are held", lines.bytes());
    }
    let mut batch = vec!["red card", "penalty", "goal"];
    println!("a batch goes in whole for {} older lines", lines.push_batch(&mut batch)?);
    println!("half the bytes: {} lines go", lines.set_bounds(Bounds::count(100).and_bytes(12)));
    println!("left: {:?}, {:?}", lines.snapshot(), lines.counters());
    Ok(())
}
