//! PostgreSQL from Debian's package. It runs in a temporary folder and is reached over a Unix socket.
//!
//! It refuses to run as root. Then it runs as the user `postgres` or `nobody`.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, TryStreamExt as _};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tidings_server::command_error::{CommandError, failed, failed_by};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Statement};

use super::task::{Found, Row, Task};
use crate::audience::select::Audience;
use crate::audience::update::{self, Change, Updated};
use crate::folder::temporary;

pub(super) const HOW: &str = "over a Unix socket, a process per connection; fsync and synchronous_commit as they are \
    by default, shared_buffers 1 GB, work_mem 256 MB, max_wal_size 8 GB, locale C; it may use both cores for one \
    question. Disk: tables and indexes, without its log.";

const SETTINGS: [&str; 6] = [
    "listen_addresses=",
    "max_connections=80",
    "shared_buffers=1GB",
    "work_mem=256MB",
    "maintenance_work_mem=1GB",
    "max_wal_size=8GB",
];
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes sent to `COPY` at a time.
const COPY_BYTES: usize = 1 << 20;

const TABLES: &str = "
    CREATE TABLE device (number integer NOT NULL, id text NOT NULL, app text NOT NULL, platform text NOT NULL,
        locale text NOT NULL, country text, token text);
    CREATE TABLE subscription (device integer NOT NULL, subject text NOT NULL, topic text NOT NULL)";
const INDEXES: &str = "
    ALTER TABLE device ADD PRIMARY KEY (number);
    CREATE UNIQUE INDEX device_id ON device (id);
    CREATE UNIQUE INDEX device_token ON device (token);
    ALTER TABLE subscription ADD PRIMARY KEY (device, subject, topic);
    CREATE INDEX subscription_subject ON subscription (topic, subject, device)";
const SELECT: &str = "SELECT device.token, device.locale, device.platform \
    FROM (SELECT DISTINCT device FROM subscription WHERE topic = $1 AND subject = ANY($2)) AS owed \
    JOIN device ON device.number = owed.device";
const UPDATE: &str = "INSERT INTO subscription SELECT number, $2, 'goal' FROM device WHERE id = $1";
const DISK: &str = "SELECT pg_total_relation_size('device') + pg_total_relation_size('subscription')";

pub(super) async fn measure(task: &Task<'_>) -> Result<Found, CommandError> {
    let mut server = Server::start(task.dir)?;
    let client = server.first_client().await?;
    task.progress("PostgreSQL", "load");
    let began = Instant::now();
    load(task, &client).await.map_err(refused)?;
    let load_seconds = began.elapsed().as_secs_f64();
    let disk_bytes: i64 = client.query_one(DISK, &[]).await.map_err(refused)?.get(0);
    let mut found = Found { load_seconds, disk_bytes: disk_bytes as f64, ..Found::default() };
    let statement = client.prepare(SELECT).await.map_err(refused)?;
    let select = async |audience: &Audience, each: &mut dyn FnMut(Row<'_>)| {
        select(&client, &statement, audience, each).await.map_err(refused)
    };
    (found.select_millis, found.digests) = task.time_selections("PostgreSQL", select).await?;
    found.updates = measure_updates(task, &mut server).await?;
    Ok(found)
}

fn refused(error: tokio_postgres::Error) -> CommandError {
    failed_by("PostgreSQL", &error)
}

/// Fills the tables with `COPY`, makes the indexes, then does what a careful operator does.
async fn load(task: &Task<'_>, client: &Client) -> Result<(), tokio_postgres::Error> {
    client.batch_execute(TABLES).await?;
    copy(task, client, "COPY device FROM STDIN", |number, text| {
        let (row, _) = task.rows(number);
        let _ = writeln!(text, "{}\t{}", row.number, row.texts.join("\t"));
    })
    .await?;
    copy(task, client, "COPY subscription FROM STDIN", |number, text| {
        for (subject, topic) in task.rows(number).1 {
            let _ = writeln!(text, "{number}\t{subject}\t{topic}");
        }
    })
    .await?;
    client.batch_execute(INDEXES).await?;
    client.batch_execute("VACUUM (ANALYZE) device").await?;
    client.batch_execute("VACUUM (ANALYZE) subscription").await?;
    client.batch_execute("CHECKPOINT").await
}

async fn copy(
    task: &Task<'_>,
    client: &Client,
    command: &str,
    write: impl Fn(u32, &mut String),
) -> Result<(), tokio_postgres::Error> {
    let mut sink = pin!(client.copy_in::<_, Bytes>(command).await?);
    let mut text = String::new();
    for number in 0..task.data.device_count {
        write(number, &mut text);
        if text.len() >= COPY_BYTES {
            sink.send(Bytes::from(std::mem::take(&mut text))).await?;
        }
    }
    sink.send(Bytes::from(text)).await?;
    sink.finish().await.map(|_| ())
}

async fn select(
    client: &Client,
    statement: &Statement,
    audience: &Audience,
    each: &mut dyn FnMut(Row<'_>),
) -> Result<(), tokio_postgres::Error> {
    let topic = audience.event.topic.as_str();
    let subjects: Vec<&str> = audience.event.subjects.iter().map(|subject| subject.as_str()).collect();
    let params: [&(dyn ToSql + Sync); 2] = [&topic, &subjects];
    let mut rows = pin!(client.query_raw(statement, params).await?);
    while let Some(row) = rows.try_next().await? {
        each(Row { token: row.try_get(0)?, locale: row.try_get(1)?, platform: row.try_get(2)? });
    }
    Ok(())
}

/// Measures updates. Each writer has a connection; the server commits several together if it can.
async fn measure_updates(task: &Task<'_>, server: &mut Server) -> Result<Vec<Updated>, CommandError> {
    let mut clients = Vec::new();
    for _ in 0..update::WRITER_COUNT {
        let client = server.client().await.map_err(refused)?;
        let statement = client.prepare(UPDATE).await.map_err(refused)?;
        clients.push((client, statement));
    }
    let clients = Arc::new(clients);
    task.time_updates("PostgreSQL", async |first| {
        let clients = clients.clone();
        let write = move |writer: usize, Change { device, subject }: Change| {
            let clients = clients.clone();
            async move {
                let (client, statement) = &clients[writer];
                client.execute(statement, &[&device.as_str(), &subject.as_str()]).await.map_err(refused)
            }
        };
        update::measure(task.data.device_count, first, write).await
    })
    .await
}

/// A running server. Dropping it stops the server and removes its folder.
struct Server {
    child: Child,
    connections: JoinSet<()>,
    folder: tempfile::TempDir,
}

impl Server {
    fn start(parent: Option<&Path>) -> Result<Self, CommandError> {
        let folder = temporary(parent)?;
        let user = unprivileged_user()?;
        if let Some((uid, gid)) = user {
            chown(folder.path(), Some(uid), Some(gid))?;
        }
        let log = File::create(log_path(folder.path()))?;
        let command = |name| -> Result<Command, CommandError> {
            let path =
                program(name).ok_or_else(|| failed(format!("no {name} on this machine (Debian: postgresql)")))?;
            let mut command = Command::new(path);
            command.current_dir(folder.path()).arg("-D").arg(folder.path().join("data"));
            command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?);
            if let Some((uid, gid)) = user {
                command.uid(uid).gid(gid);
            }
            Ok(command)
        };
        let made = command("initdb")?.args(["--no-locale", "-E", "UTF8", "-A", "trust", "-U", "bench"]).status()?;
        if !made.success() {
            return Err(failed(format!("initdb failed: {}", log_end(folder.path()))));
        }
        let mut server = command("postgres")?;
        server.arg("-k").arg(folder.path()).args(SETTINGS.iter().flat_map(|setting| ["-c", setting]));
        let child = server.spawn().map_err(|error| failed_by("cannot start postgres", &error))?;
        Ok(Self { child, connections: JoinSet::new(), folder })
    }

    /// Waits until the server takes connections.
    async fn first_client(&mut self) -> Result<Client, CommandError> {
        let began = Instant::now();
        loop {
            let error = match self.client().await {
                Ok(client) => return Ok(client),
                Err(error) => error,
            };
            if self.child.try_wait()?.is_some() || began.elapsed() > START_TIMEOUT {
                let log = log_end(self.folder.path());
                return Err(failed_by(&format!("PostgreSQL does not accept connections ({log})"), &error));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn client(&mut self) -> Result<Client, tokio_postgres::Error> {
        let mut config = Config::new();
        config.host_path(self.folder.path()).user("bench").dbname("postgres");
        let (client, connection) = config.connect(NoTls).await?;
        self.connections.spawn(async {
            let _ = connection.await; // Each request on it gets the error.
        });
        Ok(client)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A fast shutdown. The server may have ended already.
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        let _ = self.child.wait();
    }
}

fn log_path(folder: &Path) -> PathBuf {
    folder.join("log")
}

/// The last line of the server's log.
fn log_end(folder: &Path) -> String {
    let text = fs::read(log_path(folder)).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().last().unwrap_or("its log is empty").to_owned()
}

/// Finds a program of PostgreSQL in the path, or in Debian's own folder; there the newest version.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(found) = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file()) {
        return Some(found);
    }
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let version = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let mut versions: Vec<_> = versions.filter_map(|path| Some((version(&path)?, path))).collect();
    versions.sort_unstable();
    versions.into_iter().rev().map(|(_, path)| path.join("bin").join(name)).find(|path| path.is_file())
}

/// User and group to run PostgreSQL as; `None` for those of this process.
fn unprivileged_user() -> Result<Option<(u32, u32)>, CommandError> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd")?;
    let found = ["postgres", "nobody"].iter().find_map(|name| user_of(&users, name));
    found.map(Some).ok_or_else(|| failed("PostgreSQL refuses to run as root, and there is no user postgres or nobody"))
}

/// A user's ids in the text of `/etc/passwd`.
fn user_of(users: &str, name: &str) -> Option<(u32, u32)> {
    let mut fields = users.lines().map(|line| line.split(':')).find(|it| it.clone().next() == Some(name))?.skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let users = "root:x:0:0:root:/root:/bin/bash\npostgres2:x:7:8::/:/bin/sh\npostgres:x:101:104::/:/bin/bash\n";
        assert_eq!(user_of(users, "postgres"), Some((101, 104)));
        assert_eq!(user_of(users, "nobody"), None);
    }

    #[test]
    fn a_program_that_is_not_there_is_not_found() {
        assert_eq!(program("no-such-program"), None);
        assert!(program("sh").is_some());
    }
}
