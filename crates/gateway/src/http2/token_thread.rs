//! The thread that has access tokens fetched.
//!
//! A gateway whose credential is an account has one more thread for this, `gateway-tokens`: in a drain the others come
//! to their end one by one, and the last may need tokens for longer than any of them lives. Without such a thread, which
//! is logged, a thread of the gateway does it beside its work.

use std::io;
use std::sync::Arc;

use tidings_telemetry::chain;
use tokio::sync::{oneshot, watch};
use tracing::error;

use super::connect::Access;
use super::oauth::Teller;

/// Has the tokens fetched of whatever credential the gateway has at the time, for as long as there is the gateway:
/// dropping the future, which never ends, changes nothing about that.
pub(crate) async fn keep_fresh(mut access: watch::Receiver<Arc<Access>>, teller: Teller) {
    let is_needed = access.wait_for(|access| access.credential.oauth().is_some()).await.is_ok();
    if is_needed {
        let builder = std::thread::Builder::new().name("gateway-tokens".to_owned());
        if let Err(error) = follow_apart(builder, access.clone(), teller.clone()).await {
            let (provider, pool) = (&teller.provider, &teller.pool);
            error!(provider, pool, error = chain(&error), "No thread for access tokens, a drain may end without one");
            follow(access, teller).await;
        }
    }
    std::future::pending().await
}

/// [`follow`] in a thread of its own, which ends by itself when the gateway is gone; passes its panic on.
///
/// # Errors
/// When there is no such thread.
///
/// # Cancel safety
/// The thread goes on.
async fn follow_apart(
    builder: std::thread::Builder,
    access: watch::Receiver<Arc<Access>>,
    teller: Teller,
) -> io::Result<()> {
    let (ended_tx, ended) = oneshot::channel();
    // The runtime is made in there: one that ends in here, because there is no thread, would panic.
    let thread = builder.spawn(move || {
        _ = ended_tx.send(block_on(follow(access, teller))); // Nobody listens when who asked has come to its end.
    })?;
    match ended.await {
        Ok(result) => result,
        Err(_) => thread.join().map_err(|panic| std::panic::resume_unwind(panic)),
    }
}

fn block_on(future: impl Future<Output = ()>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(future);
    // A name being resolved would hold up a plain shutdown.
    runtime.shutdown_background();
    Ok(())
}

/// Fetches for one credential after the other, until the gateway is gone.
async fn follow(mut access: watch::Receiver<Arc<Access>>, teller: Teller) {
    loop {
        let current = Arc::clone(&access.borrow_and_update());
        let fetching = async {
            match current.credential.oauth() {
                Some(oauth) => oauth.keep_fresh(&current.roots(), &teller).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = access.changed() => if changed.is_err() {
                return;
            },
            () = fetching => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tidings_telemetry::Registry;
    use tidings_types::Provider;

    use super::*;
    use crate::http2::credential::Credential;
    use crate::http2::health::HealthWatch;
    use crate::http2::oauth::tests::oauth;
    use crate::metrics::Metrics;

    #[tokio::test]
    async fn without_a_thread_of_their_own_tokens_are_fetched_all_the_same() {
        let access = Access::new(Credential::OAuth(Arc::new(oauth())), None).unwrap();
        let metrics = Metrics::new(&Registry::new(), Provider::Fcm, "p");
        let teller = Teller { provider: "fcm", pool: "p".to_owned(), metrics, health: HealthWatch::new() };
        let (alive, access) = watch::channel(Arc::new(access));
        let too_large = || std::thread::Builder::new().stack_size(1 << 60);
        follow_apart(too_large(), access.clone(), teller.clone()).await.expect_err("no memory has so much");
        drop(alive);
        follow_apart(std::thread::Builder::new(), access, teller).await.expect("the gateway is gone, so it ends");
    }
}
