//! SQLite, in this process.

use std::fs::File;
use std::path::Path;

use rusqlite::{Connection, params_from_iter};
use tidings_server::command_error::{CommandError, failed, failed_by};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::task::{Found, Row, Task};
use crate::audience::select::Audience;
use crate::audience::update::{self, Change, Updated};
use crate::folder::{disk_bytes, temporary};

pub(super) const HOW: &str = "in this process; WAL, synchronous = FULL, 1 GiB of cache, files mapped; one thread \
    reads; updates that wait are committed together by another, 64 at most.";

const TABLES: &str = "
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    CREATE TABLE device (number INTEGER PRIMARY KEY, id TEXT NOT NULL, app TEXT NOT NULL, platform TEXT NOT NULL,
        locale TEXT NOT NULL, country TEXT, token TEXT);
    CREATE TABLE subscription (device INTEGER NOT NULL, subject TEXT NOT NULL, topic TEXT NOT NULL,
        PRIMARY KEY (device, subject, topic)) WITHOUT ROWID;
    BEGIN;";
const INDEXES: &str = "
    COMMIT;
    CREATE UNIQUE INDEX device_id ON device (id);
    CREATE UNIQUE INDEX device_token ON device (token);
    CREATE INDEX subscription_subject ON subscription (topic, subject, device);
    ANALYZE;";
const SETTINGS: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA cache_size = -1048576;
    PRAGMA mmap_size = 68719476736;";
const INSERT_DEVICE: &str = "INSERT INTO device VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const INSERT_SUBSCRIPTION: &str = "INSERT INTO subscription VALUES (?1, ?2, ?3)";
const UPDATE: &str = "INSERT INTO subscription SELECT number, ?2, 'goal' FROM device WHERE id = ?1";

pub(super) async fn measure(task: &Task<'_>) -> Result<Found, CommandError> {
    let folder = temporary(task.dir)?;
    let path = folder.path().join("store.sqlite");
    let database = |error: rusqlite::Error| failed_by("the database", &error);
    task.progress("SQLite", "load");
    let began = Instant::now();
    load(task, &path).map_err(database)?;
    File::open(&path)?.sync_all()?;
    let load_seconds = began.elapsed().as_secs_f64();
    let mut found = Found { load_seconds, disk_bytes: disk_bytes(folder.path())? as f64, ..Found::default() };
    let connection = open(&path).map_err(database)?;
    let select = async |audience: &Audience, each: &mut dyn FnMut(Row<'_>)| {
        select(&connection, audience, each).map_err(database)
    };
    (found.select_millis, found.digests) = task.time_selections("SQLite", select).await?;
    drop(connection);
    found.updates = task.time_updates("SQLite", async |first| measure_updates(task, &path, first).await).await?;
    Ok(found)
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.execute_batch(SETTINGS)?;
    Ok(connection)
}

/// Writes everything in one transaction without a journal, as fast as SQLite can.
fn load(task: &Task<'_>, path: &Path) -> rusqlite::Result<()> {
    let connection = Connection::open(path)?;
    connection.execute_batch(TABLES)?;
    let mut insert_device = connection.prepare(INSERT_DEVICE)?;
    let mut insert_subscription = connection.prepare(INSERT_SUBSCRIPTION)?;
    for number in 0..task.data.device_count {
        let (row, subscriptions) = task.rows(number);
        let [id, app, platform, locale, country, token] = &row.texts;
        insert_device.execute((row.number, id, app, platform, locale, country, token))?;
        for (subject, topic) in subscriptions {
            insert_subscription.execute((row.number, subject, topic))?;
        }
    }
    connection.execute_batch(INDEXES)
}

fn select(connection: &Connection, audience: &Audience, each: &mut dyn FnMut(Row<'_>)) -> rusqlite::Result<()> {
    let event = &audience.event;
    let marks = vec!["?"; event.subjects.len()].join(", ");
    let mut statement = connection.prepare(&format!(
        "SELECT device.token, device.locale, device.platform \
         FROM (SELECT DISTINCT device FROM subscription WHERE topic = ? AND subject IN ({marks})) AS owed \
         JOIN device ON device.number = owed.device"
    ))?;
    let subjects = event.subjects.iter().map(|subject| subject.as_str());
    let mut rows = statement.query(params_from_iter(std::iter::once(event.topic.as_str()).chain(subjects)))?;
    while let Some(row) = rows.next()? {
        let text = |column| Ok::<_, rusqlite::Error>(row.get_ref(column)?.as_str()?);
        each(Row { token: text(0)?, locale: text(1)?, platform: text(2)? });
    }
    Ok(())
}

/// An update that waits for its commit.
struct Waiting {
    change: Change,
    added: oneshot::Sender<u64>,
}

async fn measure_updates(task: &Task<'_>, path: &Path, first: u64) -> Result<Updated, CommandError> {
    let (tx, rx) = mpsc::channel::<Waiting>(update::WRITER_COUNT);
    let path = path.to_owned();
    let committer = tokio::task::spawn_blocking(move || commit(&path, rx));
    let ended = || failed("the committing thread ended");
    let write = move |_, change| {
        let tx = tx.clone();
        async move {
            let (added, answer) = oneshot::channel();
            tx.send(Waiting { change, added }).await.map_err(|_| ended())?;
            answer.await.map_err(|_| ended())
        }
    };
    let updated = update::measure(task.data.device_count, first, write).await;
    let committed = committer.await.map_err(|error| failed_by("the committing thread", &error))?;
    committed.map_err(|error| failed_by("the database", &error))?;
    updated
}

/// Commits all waiting updates in one transaction, again and again, until all writers are gone. Blocks.
fn commit(path: &Path, mut rx: mpsc::Receiver<Waiting>) -> rusqlite::Result<()> {
    let connection = open(path)?;
    let mut update = connection.prepare(UPDATE)?;
    while let Some(waiting) = rx.blocking_recv() {
        let mut batch = vec![waiting];
        while let Ok(waiting) = rx.try_recv() {
            batch.push(waiting);
        }
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let mut done = Vec::with_capacity(batch.len());
        for Waiting { change, added } in batch {
            done.push((added, update.execute((change.device.as_str(), change.subject.as_str()))?));
        }
        connection.execute_batch("COMMIT")?;
        for (added, count) in done {
            let _ = added.send(count as u64); // A writer that has failed does not wait.
        }
    }
    Ok(())
}
