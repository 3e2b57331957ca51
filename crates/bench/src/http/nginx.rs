//! nginx with one worker, a configuration and a folder of its own, and one answer.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tidings_server::command_error::{CommandError, failed, failed_by};
use tokio::time::{Instant, sleep};

/// What it answers.
pub(super) const BODY: &str = "Gooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooal!";
/// Until it takes connections.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A running one; dropped, it is killed and its folder removed.
pub(super) struct Nginx {
    child: Child,
    url: String,
    /// As it calls itself.
    pub(super) version: String,
    _folder: TempDir,
}

impl Nginx {
    /// Starts one on a free port, on the cores of this process.
    pub(super) async fn start() -> Result<Self, CommandError> {
        let version = Command::new("nginx").arg("-v").output();
        let version =
            version.map_err(|_| failed("nginx was not found: the clients need a server (Debian: nginx-light)"))?;
        let version = String::from_utf8_lossy(&version.stderr).trim().rsplit('/').next().unwrap_or("?").to_owned();
        let folder = TempDir::with_prefix("tidings-bench-")?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
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
        let mut nginx = Self { child, url: format!("http://127.0.0.1:{port}/goal"), version, _folder: folder };
        nginx.wait(port).await?;
        Ok(nginx)
    }

    async fn wait(&mut self, port: u16) -> Result<(), CommandError> {
        let began = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            let log = || fs::read_to_string(self._folder.path().join("error.log")).unwrap_or_default();
            if let Some(status) = self.child.try_wait()? {
                return Err(failed(format!("nginx ended by itself ({status}): {}", log().trim())));
            }
            if began.elapsed() > START_TIMEOUT {
                return Err(failed(format!("nginx takes no connections: {}", log().trim())));
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Of its one answer.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Processor time it has used, in the kernel too; it has one thread.
    pub(super) fn cpu(&self) -> Result<Duration, CommandError> {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.child.id()))?;
        let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
        nanos.map(Duration::from_nanos).ok_or_else(|| failed("no processor time in /proc/PID/schedstat"))
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It may have ended already; there is nothing to do about a process that cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Paths are in its own folder; connections live as long as the benchmark.
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
