//! A feed that is received.

use bytes::Bytes;
use tidings_intake::{How, PieceFuture, Pieces, PollError, ReceiveError, Received, Said};
use tidings_types::FeedName;

use crate::support::*;

/// Pieces, and perhaps the reason why no more come.
struct Sent(Vec<Result<&'static str, &'static str>>);

impl Pieces for Sent {
    fn next(&mut self) -> PieceFuture<'_> {
        let next = (!self.0.is_empty()).then(|| self.0.remove(0));
        Box::pin(async move { next.map(|piece| piece.map(Bytes::from).map_err(str::to_owned)) })
    }
}

async fn post(feed: &News, pieces: &[Result<&'static str, &'static str>]) -> Received {
    feed.intake.receive(&news(), Said::default(), &mut Sent(pieces.to_vec())).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_that_is_posted_again_is_sent_once() {
    let feed = News::start(config(How::Received));
    let Received { report, error } = post(&feed, &[Ok("a\n-no goal\n"), Ok("b\n-no goal\n!x\n")]).await;
    assert_eq!((error, report.counts.sent, report.reasons["no goal"], report.wrong.len()), (None, 2, 2, 1));
    assert_eq!(feed.ledger.take(), ["a", "b"]);
    let again = post(&feed, &[Ok("a\nb\n")]).await;
    assert_eq!((again.report.counts.sent, again.report.counts.repeated, feed.ledger.take().len()), (0, 2, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_is_refused_with_the_reason() {
    let feed = News::start(config(How::Received));
    let cut = post(&feed, &[Ok("a\n"), Err("the sender has hung up")]).await;
    assert_eq!(cut.error, Some(ReceiveError::Malformed("the sender has hung up".to_owned())));
    let malformed = post(&feed, &[Ok("b\n?not well-formed\nc\n")]).await;
    assert_eq!(malformed.error, Some(ReceiveError::Malformed("line 2: not well-formed".to_owned())));
    assert_eq!((malformed.report.counts.sent, feed.ledger.take()), (1, vec!["a".to_owned(), "b".to_owned()]));
    let large: &'static str = Box::leak(" ".repeat(2 << 20).into_boxed_str());
    assert_eq!(post(&feed, &[Ok(large)]).await.error, Some(ReceiveError::TooLarge(1 << 20)));
    feed.ledger.close(true);
    assert_eq!(
        post(&feed, &[Ok("d\n")]).await.error,
        Some(ReceiveError::Busy("the journal is full: limit 1".to_owned()))
    );
    feed.ledger.close(false);
    assert_eq!((post(&feed, &[Ok("d\n")]).await.report.counts.sent, feed.ledger.take()), (1, vec!["d".to_owned()]));
    let other = FeedName::new("other").unwrap();
    let unknown = feed.intake.receive(&other, Said::default(), &mut Sent(Vec::new())).await;
    assert_eq!(unknown.error, Some(ReceiveError::Unknown(other)));
    assert_eq!(feed.intake.poll(&news()).await, Err(PollError::NotPolled(news())));
}
