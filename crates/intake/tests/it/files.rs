//! A feed whose documents are files.

use std::fs;
use std::time::Duration;

use tidings_intake::How;

use crate::support::*;

fn how(folder: &tempfile::TempDir) -> How {
    let affixes = ("match-".to_owned(), ".xml".to_owned());
    How::Files { folder: folder.path().to_owned(), affixes, interval: Duration::from_secs(3600) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_read_once_and_again_when_it_has_changed() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let feed = News::start(config(how(&folder)));
    put("match-1.xml", "a\nb\n");
    put("other.xml", "x\n");
    put("match-2.txt", "y\n");
    // First it is seen, and may still be written. On a busy machine the feed's own first look may see it.
    let looks = [feed.read().await.0, feed.read().await.0];
    assert_eq!(looks.concat(), ["a", "b"]);
    assert_eq!(feed.read().await.0, [""; 0]);
    let feed = feed.again(config(how(&folder))).await;
    feed.read().await;
    assert_eq!(feed.read().await.0, [""; 0], "it is known after a start");
    put("match-1.xml", "a\nb\nc\n");
    put("match-2.xml", "d\n?broken\n");
    feed.read().await;
    let (mut sent, told) = feed.read().await;
    sent.sort();
    assert_eq!((sent, told.failures), (vec!["c".to_owned(), "d".to_owned()], 0));
    assert_eq!((&*told.wrong[0].at, &*told.wrong[0].reason), ("match-2.xml", "line 2: broken"));
    fs::remove_dir_all(folder.path()).unwrap();
    assert_eq!(feed.read().await.1.failures, 1);
}
