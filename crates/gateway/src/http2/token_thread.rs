//! The thread that fetches access tokens.
//!
//! A gateway whose credential is an account has one more thread, `gateway-tokens`. In a drain the other threads end one
//! by one, so a thread that fetches could end before the last thread that needs tokens. If this thread cannot be
//! started, that is logged, and a thread of the gateway fetches beside its work.

use std::io;
use std::sync::Arc;

use tidings_telemetry::chain;
use tokio::sync::{oneshot, watch};
use tracing::error;

use super::connect::Access;
use super::oauth::Teller;

/// Fetches tokens for the gateway's current credential as long as the gateway exists. The future never ends; dropping
/// it does not stop the fetching.
pub(crate) async fn keep_fresh(mut access: watch::Receiver<Arc<Access>>, teller: Teller) {
    let is_needed = access.wait_for(|access| access.credential.oauth().is_some()).await.is_ok();
    if is_needed {
        let builder = std::thread::Builder::new().name("gateway-tokens".to_owned());
        if let Err(error) = follow_apart(builder, access.clone(), teller.clone()).await {
            let (provider, pool) = (&teller.provider, &teller.pool);
            error!(
                provider,
                pool,
                error = chain(&error),
                "Cannot start the thread for access tokens, a drain may lack a token at its end"
            );
            follow(access, teller).await;
        }
    }
    std::future::pending().await
}

/// Runs [`follow`] in a separate thread, which ends when the gateway is gone, and resumes its panic.
///
/// # Errors
/// If the thread cannot be started.
///
/// # Cancel safety
/// The thread goes on.
async fn follow_apart(
    builder: std::thread::Builder,
    access: watch::Receiver<Arc<Access>>,
    teller: Teller,
) -> io::Result<()> {
    let (ended_tx, ended) = oneshot::channel();
    // The runtime is made in the thread: if it were made here and no thread started, dropping it here would panic.
    let thread = builder.spawn(move || {
        _ = ended_tx.send(block_on(follow(access, teller))); // The receiver may have ended.
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
