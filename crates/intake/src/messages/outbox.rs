//! Events out of a transaction: a table of PostgreSQL into which a back end inserts events, in the transaction that makes
//! them true (the pattern "transactional outbox").
//!
//! ```sql
//! CREATE TABLE tidings_outbox (id bigserial PRIMARY KEY, event jsonb NOT NULL, error text);
//! CREATE INDEX ON tidings_outbox (id) WHERE error IS NULL;
//! ```
//!
//! In a transaction of its own the source locks the oldest rows that nobody else has locked (`FOR UPDATE SKIP LOCKED`),
//! publishes their events, and deletes the rows. If the server crashes in between, the rows are still there, and the events
//! have the same ids, so each is sent once. Several servers may read one table. A row that can never be an event gets the
//! reason in its column `error` and is passed over from then on.
//!
//! The source looks into the table in intervals, and at once when the database notifies the channel (`NOTIFY`; a
//! trigger may do so, or the back end).
//!
//! Bounds: [`MESSAGE_COUNT_MAX`] rows at a time; an event larger than [`EVENT_BYTES_MAX`] is wrong without being read.
//! Each wait for the database ends after [`ANSWER_TIMEOUT`].

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tidings_push::retry::backoff;
use tidings_telemetry::chain;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{AsyncMessage, Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::desk::{Desk, EVENT_BYTES_MAX, Fate, MESSAGE_COUNT_MAX, Message};
use crate::place::is_loopback;

/// How long the database may take for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The first pause after a failure is at most this long.
const PAUSE_BASE: Duration = Duration::from_millis(500);
/// Every pause after a failure is at most this long.
const PAUSE_CAP: Duration = Duration::from_secs(30);

/// Where the table is.
#[derive(Debug, Clone)]
pub struct OutboxConfig {
    /// How to reach the database; it has the password.
    pub database: Config,
    /// The authorities that may have signed the database's certificate.
    pub tls: Arc<rustls::ClientConfig>,
    /// The table, perhaps with its schema: checked by [`is_table`](crate::is_table).
    pub table: String,
    /// The channel of notifications; checked by [`is_identifier`](crate::is_identifier).
    pub channel: String,
    /// How often the table is looked into.
    pub interval: Duration,
}

/// Why a connection string is refused; without its text, which may have a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DatabaseError {
    /// It has another form.
    #[error("is not a connection string of PostgreSQL")]
    Form,
    /// Others could read what goes to the database and back.
    #[error("must have `sslmode=require`: its host is beyond loopback")]
    PlainText,
}

/// Reads a connection string, as libpq takes it.
///
/// # Errors
/// If it has another form, or would go in plain text beyond loopback.
pub fn database(text: &str) -> Result<Config, DatabaseError> {
    let config: Config = text.parse().map_err(|_| DatabaseError::Form)?;
    let is_near = |host: &Host| match host {
        Host::Tcp(host) => is_loopback(host),
        Host::Unix(_) => true,
    };
    let is_protected = config.get_ssl_mode() == SslMode::Require || config.get_hosts().iter().all(is_near);
    if is_protected { Ok(config) } else { Err(DatabaseError::PlainText) }
}

/// What is wrong with the database; the text has no password and no row.
#[derive(Debug, thiserror::Error)]
enum OutboxError {
    #[error("the database refuses or does not answer")]
    Database(#[from] tokio_postgres::Error),
    #[error("the database did not answer within {} s", ANSWER_TIMEOUT.as_secs())]
    Silent(#[from] tokio::time::error::Elapsed),
}

/// Reads the table until it is dropped.
pub(crate) async fn run(config: OutboxConfig, desk: Desk) {
    let mut failed = 0_u32;
    loop {
        let mut looked = false;
        let Err(error) = read(&config, &desk, &mut looked).await;
        failed = if looked { 1 } else { failed.saturating_add(1) };
        desk.tracker.failed(&chain(&error).to_string());
        sleep(backoff(PAUSE_BASE, PAUSE_CAP, failed, rand::random())).await;
    }
}

/// Reads the table over one connection until that breaks. `looked`: it has worked.
async fn read(config: &OutboxConfig, desk: &Desk, looked: &mut bool) -> Result<std::convert::Infallible, OutboxError> {
    let woken = Arc::new(Notify::new());
    let (mut client, _driver) = connect(config, &woken).await?;
    answer(client.batch_execute(&format!("LISTEN {}", config.channel))).await?;
    loop {
        desk.tracker.began();
        let count = take(&mut client, config, desk).await?;
        *looked = true;
        if count == 0 {
            desk.tracker.looked();
        }
        if count < MESSAGE_COUNT_MAX {
            let _ = timeout(config.interval, woken.notified()).await; // Either way it looks again.
        }
    }
}

/// Connects. The driver ends the connection when it is dropped.
async fn connect(config: &OutboxConfig, woken: &Arc<Notify>) -> Result<(Client, JoinSet<()>), OutboxError> {
    let tls = MakeRustlsConnect::new(rustls::ClientConfig::clone(&config.tls));
    let (client, mut connection) = answer(config.database.connect(tls)).await?;
    let woken = woken.clone();
    let mut driver = JoinSet::new();
    driver.spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if matches!(message, AsyncMessage::Notification(_)) {
                woken.notify_one();
            }
        }
        woken.notify_one(); // The next question finds that the connection has ended.
    });
    Ok((client, driver))
}

/// Publishes the events of the oldest rows, and deletes the rows. Returns how many there were.
async fn take(client: &mut Client, config: &OutboxConfig, desk: &Desk) -> Result<usize, OutboxError> {
    let table = &config.table;
    let transaction = answer(client.transaction()).await?;
    let select = format!(
        "SELECT id, CASE WHEN octet_length(event::text) <= {EVENT_BYTES_MAX} THEN event::text END FROM {table} \
         WHERE error IS NULL ORDER BY id LIMIT {MESSAGE_COUNT_MAX} FOR UPDATE SKIP LOCKED"
    );
    let rows = answer(transaction.query(&select, &[])).await?;
    if rows.is_empty() {
        answer(transaction.rollback()).await?;
        return Ok(0);
    }
    let (mut messages, mut wrong) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in &rows {
        let id: i64 = row.try_get(0)?;
        match (u64::try_from(id), row.try_get::<_, Option<String>>(1)?) {
            (Ok(number), Some(json)) => messages.push(Message { number, json: json.into_bytes() }),
            (Err(_), _) => wrong.push((id, "the id is negative".to_owned())),
            (_, None) => wrong.push((id, format!("the event has more than {EVENT_BYTES_MAX} bytes"))),
        }
    }
    let fates = desk.publish(&messages).await;
    let mut sent: Vec<i64> = Vec::with_capacity(messages.len());
    for (message, fate) in messages.iter().zip(fates) {
        let id = message.number.cast_signed();
        match fate {
            Fate::Sent => sent.push(id),
            Fate::Wrong(reason) => wrong.push((id, reason)),
        }
    }
    answer(transaction.execute(&format!("DELETE FROM {table} WHERE id = ANY($1)"), &[&sent])).await?;
    for (id, reason) in wrong {
        let note = format!("UPDATE {table} SET error = $2 WHERE id = $1");
        answer(transaction.execute(&note, &[&id, &reason])).await?;
    }
    answer(transaction.commit()).await?;
    Ok(rows.len())
}

/// Waits for the database.
async fn answer<T>(question: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, OutboxError> {
    timeout(ANSWER_TIMEOUT, question).map(|answer| Ok(answer??)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_stays_on_this_machine() {
        for near in
            ["postgres://a:b@127.0.0.1/c", "host=/run/postgresql user=a", "postgres://[::1]/c", "host=localhost"]
        {
            assert!(database(near).is_ok(), "{near}");
        }
        assert!(database("postgres://a:b@db.example.com/c?sslmode=require").is_ok());
        assert_eq!(database("postgres://a:b@db.example.com/c").unwrap_err(), DatabaseError::PlainText);
        assert_eq!(database("host=localhost,db.example.com").unwrap_err(), DatabaseError::PlainText);
        assert_eq!(database("mysql://a:b@c/d").unwrap_err(), DatabaseError::Form);
    }
}
