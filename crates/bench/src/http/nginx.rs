//! nginx with one worker, its own configuration and folder, and one answer.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tidings_server::command_error::{CommandError, failed, failed_by};
use tidings_trial::ports::free_port;
use tokio::time::{Instant, sleep};

use crate::process::KillOnDrop;

/// The body of every answer.
pub(super) const BODY: &str = "Gooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooal!";
/// How long nginx may take to accept connections.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A running nginx. Its folder is removed when this is dropped.
pub(super) struct Nginx {
    child: KillOnDrop,
    url: String,
    pub(super) version: String,
    _folder: TempDir,
}

impl Nginx {
    /// Starts nginx on a free port, on the cores of this process.
    pub(super) async fn start() -> Result<Self, CommandError> {
        let version = Command::new("nginx").arg("-v").output();
        let version =
            version.map_err(|_| failed("nginx was not found: the clients need a server (Debian: nginx-light)"))?;
        let version = String::from_utf8_lossy(&version.stderr).trim().rsplit('/').next().unwrap_or("?").to_owned();
        let folder = TempDir::with_prefix("tidings-bench-")?;
        let port = free_port();
        let path = folder.path().join("nginx.conf");
        fs::write(&path, configuration(port))?;
        let child = Command::new("nginx")
            .arg("-p")
            .arg(folder.path())
            .arg("-c")
            .arg(&path)
            .args(["-e", "error.log"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| failed_by("cannot start nginx", &error))?;
        let mut nginx =
            Self { child: KillOnDrop(child), url: format!("http://127.0.0.1:{port}/goal"), version, _folder: folder };
        nginx.wait(port).await?;
        Ok(nginx)
    }

    async fn wait(&mut self, port: u16) -> Result<(), CommandError> {
        let began = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            let log = || fs::read_to_string(self._folder.path().join("error.log")).unwrap_or_default();
            if let Some(status) = self.child.0.try_wait()? {
                return Err(failed(format!("nginx ended too early ({status}): {}", log().trim())));
            }
            if began.elapsed() > START_TIMEOUT {
                return Err(failed(format!("nginx does not accept connections: {}", log().trim())));
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// The address of the one answer.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// CPU time that nginx has used, kernel included. It has one thread.
    pub(super) fn cpu(&self) -> Result<Duration, CommandError> {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.child.0.id()))?;
        let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
        nanos.map(Duration::from_nanos).ok_or_else(|| failed("no CPU time in /proc/PID/schedstat"))
    }
}

/// All paths are in nginx's folder. Connections stay open until the benchmark ends.
fn configuration(port: u16) -> String {
    let folders =
        ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|name| format!("    {name}_temp_path {name};\n"));
    format!(
        "daemon off;
master_process off;
worker_processes 1;
pid nginx.pid;
error_log error.log warn;
events {{
    worker_connections 8192;
}}
http {{
{}    access_log off;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location = /goal {{
            return 200 \"{BODY}\";
        }}
    }}
}}
",
        folders.concat()
    )
}
