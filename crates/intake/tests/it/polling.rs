//! A feed that is polled: each entry is sent once, whatever the provider does.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use futures_util::stream;
use tidings_intake::{FeedConfig, How};
use tidings_telemetry::unix_now;

use crate::support::*;

fn status(code: u16, headers: &'static [(&'static str, &'static str)]) -> impl Fn(&axum::http::HeaderMap) -> Response {
    move |_| {
        let response = Response::builder().status(code);
        headers.iter().fold(response, |it, (name, value)| it.header(*name, *value)).body(Body::empty()).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_is_asked_for_only_if_it_has_changed() {
    let provider = Provider::start().await;
    let feed = News::start(config(polled(&provider)));
    provider.document("\"1\"", "a\nb\n-not this\n!no minute\n");
    let (sent, told) = feed.read().await;
    assert_eq!(sent, ["a", "b"]);
    assert_eq!((told.last.sent, told.last.skipped, told.last.wrong, told.known), (2, 1, 1, 2));
    assert_eq!((told.etag.as_deref(), &*told.wrong[0].at), (Some("\"1\""), "line 4"));
    assert_eq!(told.place.unwrap(), format!("http://127.0.0.1:{}/feed", provider.port), "without the key");
    assert_eq!(provider.asked()[0]["x-feed-key"], "secret");
    assert_eq!(feed.read().await.0, [""; 0]);
    assert_eq!(provider.asked().last().unwrap()["if-none-match"], "\"1\"");
    provider.document("\"2\"", "c\nb\na\nd\n");
    let (sent, told) = feed.read().await;
    assert_eq!((sent, told.last.repeated), (vec!["c".to_owned(), "d".to_owned()], 2));
    let feed = feed.again(config(polled(&provider))).await;
    provider.asked();
    assert_eq!(feed.read().await.0, [""; 0]);
    assert_eq!(provider.asked().last().unwrap()["if-none-match"], "\"2\"", "also after a start");
    let feed = feed.again(FeedConfig { fingerprint: 2, ..config(polled(&provider)) }).await;
    provider.asked();
    let (sent, told) = feed.read().await;
    assert!(!provider.asked().last().unwrap().contains_key("if-none-match"), "with another mapping it is read anew");
    assert_eq!((sent, told.last.repeated), (Vec::new(), 4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_that_breaks_off_and_comes_back_sends_each_entry_once() {
    let provider = Provider::start().await;
    let feed = News::start(config(polled(&provider)));
    let ledger = feed.ledger.clone();
    provider.answer(move |_| {
        let ledger = ledger.clone();
        let pieces = stream::unfold(0, move |number| {
            let ledger = ledger.clone();
            async move {
                if number == 0 {
                    return Some((Ok(Bytes::from("a\nb\nhalf of")), 1));
                }
                eventually("what came is sent", || ledger.count() == 2).await;
                Some((Err(std::io::Error::other("the cable")), 2))
            }
        });
        let body = Body::from_stream(pieces);
        Response::builder().header("etag", "\"1\"").body(body).unwrap()
    });
    let (sent, told) = feed.read().await;
    assert_eq!((sent, told.failures), (vec!["a".to_owned(), "b".to_owned()], 1));
    assert!(told.error.unwrap().contains("broke off"));
    provider.document("\"1\"", "c\nb\na\n");
    let (sent, told) = feed.read().await;
    assert_eq!((sent, told.failures, told.error), (vec!["c".to_owned()], 0, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_asks_for_a_pause_gets_it() {
    let provider = Provider::start().await;
    let How::Polled { fetch, mut pace, timeout, .. } = polled(&provider) else { unreachable!() };
    pace.interval = Duration::from_secs(60);
    let feed = News::start(config(How::Polled { fetch, pace, timeout, skip_backlog: false }));
    provider.answer(status(503, &[("retry-after", "1800")]));
    let (_, told) = feed.read().await;
    assert_eq!(
        (told.failures, told.error.as_deref()),
        (1, Some("127.0.0.1 answered with the status 503 Service Unavailable"))
    );
    let pause = || feed.intake.statuses()[0].next_at.map(|at| at.saturating_since(unix_now()).as_secs());
    eventually("it waits", || pause().is_some_and(|pause| (1700..=1800).contains(&pause))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirect_is_followed_only_to_where_the_feed_may_go() {
    let (provider, inside) = (Provider::start().await, Provider::start().await);
    let feed = News::start(config(polled(&provider)));
    inside.document("\"1\"", "secret-of-the-network\n");
    for host in ["localhost", "127.0.0.2", "[::1]", "[::ffff:127.0.0.1]", "0x7f.1"] {
        let location = format!("http://{host}:{}/", inside.port);
        provider.answer(move |_| {
            Response::builder().status(302).header("location", &location).body(Body::empty()).unwrap()
        });
        let (sent, told) = feed.read().await;
        assert!(sent.is_empty() && told.failures > 0, "{host}: {told:?}");
    }
    assert!(inside.asked().is_empty());
    let other = format!("http://127.0.0.1:{}/", inside.port);
    provider.answer(move |_| Response::builder().status(307).header("location", &other).body(Body::empty()).unwrap());
    assert_eq!(feed.read().await.0, ["secret-of-the-network"]);
    assert!(!inside.asked()[0].contains_key("x-feed-key"), "it is another origin");
    provider.answer(status(301, &[("location", "/feed")]));
    let (_, told) = feed.read().await;
    assert_eq!(told.error.as_deref(), Some("more than 5 redirects"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_document_that_inflates_to_a_large_one_is_refused() {
    let provider = Provider::start().await;
    let feed = News::start(config(polled(&provider)));
    let bomb = gzip(&b"\n".repeat(4 << 20).iter().map(|_| b' ').collect::<Vec<u8>>());
    let encoded = |bytes: Vec<u8>| {
        move |_: &axum::http::HeaderMap| {
            Response::builder().header("content-encoding", "gzip").body(Body::from(bytes.clone())).unwrap()
        }
    };
    provider.answer(encoded(bomb));
    let (_, told) = feed.read().await;
    assert_eq!(told.error.as_deref(), Some("the document has more than 1048576 bytes"));
    provider.answer(encoded(gzip(b"a\nb\n")));
    assert_eq!(feed.read().await.0, ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_journal_is_full_the_feed_waits_and_loses_nothing() {
    let provider = Provider::start().await;
    let feed = News::start(config(polled(&provider)));
    feed.ledger.close(true);
    provider.document("\"1\"", "a\nrefused\nb\n");
    let waits = || feed.intake.statuses()[0].error.as_deref() == Some("waiting: the journal is full: limit 1");
    let (read, ()) = tokio::join!(feed.read(), async {
        eventually("it waits", waits).await;
        feed.ledger.close(false);
    });
    assert_eq!(read.0, ["a", "refused", "b"]);
    assert_eq!((read.1.last.sent, read.1.last.wrong, read.1.known), (2, 1, 2), "who is refused blocks nobody");
    provider.document("\"2\"", "a\nrefused\nb\n");
    assert_eq!(feed.read().await.0, ["refused"], "it is tried again, since the configuration may be another now");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_feed_had_before_it_was_first_read_can_be_left_out() {
    let provider = Provider::start().await;
    let How::Polled { fetch, pace, timeout, .. } = polled(&provider) else { unreachable!() };
    let feed = News::start(config(How::Polled { fetch, pace, timeout, skip_backlog: true }));
    provider.document("\"1\"", "a\nb\n?here it ends\n");
    assert_eq!(feed.read().await.0, [""; 0]);
    provider.document("\"2\"", "a\nb\nc\n");
    assert_eq!(feed.read().await.0, [""; 0], "the first one was not read to its end");
    provider.document("\"3\"", "d\na\nb\nc\n");
    assert_eq!(feed.read().await.0, ["d"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_document_is_sent_in_order_and_what_is_remembered_is_bounded() {
    let provider = Provider::start().await;
    let feed = News::start(config(polled(&provider)));
    provider.answer(|_| Response::new(Body::from((0..5000).map(|id| format!("{id}\n")).collect::<String>())));
    let (sent, told) = feed.read().await;
    assert_eq!(sent, (0..5000).map(|id| id.to_string()).collect::<Vec<_>>());
    assert!((80..=100).contains(&told.known), "{}", told.known);
    assert_eq!(distinct(&sent), 5000);
    let kept = feed.store.feed(&news()).unwrap().entries.len();
    assert_eq!(kept, told.known, "also on disk");
}
