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
//! `postgres.rs` says what the database may answer, and for how long it is waited for.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tidings_telemetry::chain;
use tidings_types::Backoff;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Config, SimpleQueryRow};

use super::desk::{Desk, EVENT_BYTES_MAX, Fate, MESSAGE_COUNT_MAX, Message};
use super::postgres::{Database, DatabaseFailure};
use crate::place::is_loopback;

/// After failures.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));

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
    /// It is not clear which of them belong together.
    #[error("must have as many `hostaddr` as `host`, and one `port` or as many")]
    Counts,
}

/// Reads a connection string, as libpq takes it.
///
/// # Errors
/// If it has another form, or would go in plain text beyond loopback.
pub fn database(text: &str) -> Result<Config, DatabaseError> {
    let config: Config = text.parse().map_err(|_| DatabaseError::Form)?;
    let counts = [config.get_hosts().len(), config.get_hostaddrs().len(), config.get_ports().len()];
    let [hosts, addresses, ports] = counts;
    if hosts.min(addresses) > 0 && hosts != addresses || ports > 1 && ports != hosts.max(addresses) {
        return Err(DatabaseError::Counts);
    }
    let is_near = |host: &Host| match host {
        Host::Tcp(host) => is_loopback(host),
        Host::Unix(_) => true,
    };
    // A `hostaddr` is where the connection goes, whatever the `host` says.
    let are_near = config.get_hosts().iter().all(is_near) && config.get_hostaddrs().iter().all(IpAddr::is_loopback);
    let is_protected = config.get_ssl_mode() == SslMode::Require || are_near;
    if is_protected { Ok(config) } else { Err(DatabaseError::PlainText) }
}

/// Reads the table until it is dropped.
pub(crate) async fn run(config: OutboxConfig, desk: Desk) {
    let mut failed = 0_u32;
    loop {
        let mut looked = false;
        let Err(error) = read(&config, &desk, &mut looked).await;
        failed = if looked { 1 } else { failed.saturating_add(1) };
        desk.tracker.failed(&chain(&error).to_string());
        sleep(PAUSES.pause(failed, rand::random())).await;
    }
}

/// Reads the table over one connection until that breaks. `looked`: it has worked.
async fn read(
    config: &OutboxConfig,
    desk: &Desk,
    looked: &mut bool,
) -> Result<std::convert::Infallible, DatabaseFailure> {
    let woken = Arc::new(Notify::new());
    let mut database = Database::connect(&config.database, &config.tls, &woken).await?;
    database.run(&format!("LISTEN {}", config.channel), &mut |_| Ok(())).await?;
    loop {
        desk.tracker.began();
        let count = take(&mut database, config, desk).await?;
        *looked = true;
        if count == 0 {
            desk.tracker.looked();
        }
        if count < MESSAGE_COUNT_MAX {
            let _ = timeout(config.interval, woken.notified()).await; // Either way it looks again.
        }
    }
}

/// A row of the table.
struct Row {
    id: i64,
    /// `None`: it is too large.
    event: Option<String>,
}

fn decode(row: &SimpleQueryRow) -> Result<Row, &'static str> {
    let column = |at| row.try_get(at).map_err(|_| "a row that was not asked for");
    let id = column(0)?.and_then(|id| id.parse().ok()).ok_or("an id that is no number of PostgreSQL's type bigint")?;
    Ok(Row { id, event: column(1)?.map(str::to_owned) })
}

/// Publishes the events of the oldest rows, and deletes the rows. Returns how many there were.
async fn take(database: &mut Database, config: &OutboxConfig, desk: &Desk) -> Result<usize, DatabaseFailure> {
    let table = &config.table;
    let select = format!(
        "BEGIN; SELECT id, CASE WHEN octet_length(convert_to(event::text, 'UTF8')) <= {EVENT_BYTES_MAX} THEN event::text END FROM {table} \
         WHERE error IS NULL ORDER BY id LIMIT {MESSAGE_COUNT_MAX} FOR UPDATE SKIP LOCKED"
    );
    let mut rows = Vec::new();
    let mut keep = |row: &SimpleQueryRow| {
        rows.push(decode(row)?);
        if rows.len() <= MESSAGE_COUNT_MAX { Ok(()) } else { Err("more rows than were asked for") }
    };
    database.run(&select, &mut keep).await?;
    let count = rows.len();
    if count == 0 {
        database.run("ROLLBACK", &mut |_| Ok(())).await?;
        return Ok(0);
    }
    let (mut messages, mut wrong) = (Vec::with_capacity(count), Vec::new());
    for Row { id, event } in rows {
        match (u64::try_from(id), event) {
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
    let noted =
        wrong.iter().map(|(id, reason)| format!("UPDATE {table} SET error = {} WHERE id = {id}; ", literal(reason)));
    let delete = match sent.iter().map(i64::to_string).collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => String::new(),
        ids => format!("DELETE FROM {table} WHERE id IN ({ids}); "),
    };
    database.run(&(delete + &noted.collect::<String>() + "COMMIT"), &mut |_| Ok(())).await?;
    Ok(count)
}

/// Text in a statement, in which no sign of the text means anything. What is not ASCII is escaped, because the database may have an
/// encoding without it.
fn literal(text: &str) -> String {
    let plain = text.chars().filter(|character| *character != '\0').map(|character| match character.is_ascii() {
        true => character.to_string(),
        false => character.escape_unicode().to_string(),
    });
    let hex: String = plain.collect::<String>().bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("convert_from(decode('{hex}', 'hex'), 'UTF8')")
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
        assert_eq!(database("host=localhost hostaddr=192.0.2.1").unwrap_err(), DatabaseError::PlainText);
        assert!(database("host=db.example.com hostaddr=192.0.2.1 sslmode=require").is_ok());
        for odd in ["host=localhost,::1 port=1,2,3", "host=localhost,::1 hostaddr=127.0.0.1"] {
            assert_eq!(database(odd).unwrap_err(), DatabaseError::Counts, "{odd}");
        }
        assert_eq!(database("mysql://a:b@c/d").unwrap_err(), DatabaseError::Form);
    }
}
