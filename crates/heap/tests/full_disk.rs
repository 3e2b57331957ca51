//! A full disk is noticed when room is reserved, and never while records are written or read.
//!
//! The disk is a tmpfs of 8 MiB in a separate mount namespace, made with `unshare` (util-linux).

use std::path::Path;
use std::process::Command;

use tidings_heap::{Heap, Limits, stored_bytes};

const FOLDER: &str = "TIDINGS_HEAP_FULL_DISK_FOLDER";

#[test]
fn a_full_disk_is_noticed_when_reserving() {
    let folder = tempfile::tempdir().unwrap();
    let status = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-ec"])
        .arg(r#"mount -t tmpfs -o size=8m tidings-test "$0"; exec "$@""#)
        .arg(folder.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "on_a_small_disk", "--ignored", "--nocapture"])
        .env(FOLDER, folder.path())
        .status()
        .expect("this test needs `unshare` of util-linux");
    assert!(status.success(), "the test on the small disk failed, or no tmpfs could be mounted: {status}");
}

#[test]
#[ignore = "child process: the full disk test starts it with a small tmpfs"]
fn on_a_small_disk() {
    let folder = std::env::var_os(FOLDER).expect("started by the full disk test");
    let folder = Path::new(&folder).join("heap");
    let limits = Limits { segment_bytes_min: 64 << 10, segment_bytes_max: 4 << 20 };
    let mut heap = Heap::create(&folder, limits).unwrap();
    let mut places = Vec::new();
    let refused = loop {
        if let Err(error) = heap.reserve(50 * stored_bytes(1000)) {
            break error;
        }
        for _ in 0..50 {
            places.push(heap.append(places.len() as u32, &[places.len() as u8; 1000]).expect("it was reserved"));
        }
        heap.flush().expect("reserved room can be written");
    };
    let cause = std::error::Error::source(&refused).unwrap().downcast_ref::<std::io::Error>().unwrap();
    assert_eq!(cause.kind(), std::io::ErrorKind::StorageFull);
    let usage = heap.usage();
    assert!(usage.disk_bytes > (8 << 20) - (256 << 10), "small segments use the rest of the disk: {usage:?}");
    let check = |heap: &Heap, from: usize| {
        for (key, place) in places.iter().enumerate().skip(from) {
            assert_eq!(heap.get(key as u32, *place), Ok(&[key as u8; 1000][..]));
        }
    };
    check(&heap, 0);
    assert_eq!(
        std::fs::read_dir(&folder).unwrap().count() as u64,
        usage.segment_count,
        "a failed reservation leaves no file"
    );
    assert!(heap.reserve(1 << 20).is_err(), "still full");
    // Deleting garbage makes room again.
    let from = places.len() / 2;
    places[..from].iter().for_each(|place| heap.release(*place));
    heap.retire();
    heap.take_retired().delete().unwrap();
    heap.reserve(1 << 20).unwrap();
    check(&heap, from);
}
