//! What the store says of itself, while it works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidings_store::PutTerms;

use crate::support::*;

#[tokio::test]
async fn whoever_counts_never_waits_for_a_writer_who_waits_for_him() {
    const WRITES: u64 = 1000;
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let (done, counted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    for _ in 0..2 {
        let (store, done, counted) = (store.clone(), done.clone(), counted.clone());
        std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                store.counts();
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let writes = async {
        for number in 0..WRITES {
            store.put_device(device(&format!("d{number}"), None), PutTerms::default(), T0).await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(60), writes).await.expect("writer and readers wait for each other");
    done.store(true, Ordering::Relaxed);
    assert_eq!(store.counts().devices, WRITES);
    assert!(counted.load(Ordering::Relaxed) > 0);
}
