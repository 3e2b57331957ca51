//! `tidings serve` on SIGHUP: it stays, reads its credentials again, and says what came of it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tidings_simulator::{ApnsSimulator, PushAuthority, SimulatorConfig};
use tidings_types::Timestamp;

const PATIENCE: Duration = Duration::from_secs(30);

/// Ends the server however the test ends.
struct Server {
    child: Child,
    lines: Receiver<String>,
}

impl Server {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for a line with this text.
    fn says(&self, text: &str) -> String {
        loop {
            let line =
                self.lines.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("no line with {text:?}: {error}"));
            if line.contains(text) {
                return line;
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn a_hangup_reloads_credentials_and_harms_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let simulator = ApnsSimulator::start(SimulatorConfig::default()).unwrap();
    fs::write(path("key.p8"), simulator.key_pem()).unwrap();
    fs::write(path("ca.pem"), simulator.ca_pem()).unwrap();
    let authority = PushAuthority::new().unwrap();
    let certify = || {
        let issued = authority.issue(&[], None, Timestamp(4_102_444_800_000)).unwrap();
        fs::write(path("tls.pem"), issued.certificate_pem + &issued.key_pem).unwrap();
    };
    certify();
    let config = format!(
        "data_dir = {:?}\n[http]\nlisten = \"127.0.0.1:0\"\n[http.tls]\ncertificate_file = {:?}\n\
         certificate_key_file = {:?}\n[client]\nallow_anonymous = true\n[apns.main]\nhost = \
         \"localhost\"\nport = {}\nkey_id = {:?}\nteam_id = {:?}\nkey_file = {:?}\nca_file = {:?}\napps = [\"a.b\"]\n",
        path("data"),
        path("tls.pem"),
        path("tls.pem"),
        simulator.addr().port(),
        simulator.key_id(),
        simulator.team_id(),
        path("key.p8"),
        path("ca.pem"),
    );
    fs::write(path("tidings.toml"), config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidings"));
    command
        .env_clear()
        .arg("serve")
        .arg("--config")
        .arg(path("tidings.toml"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let (tx, lines) = sync_channel(1024);
    std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| tx.send(line)));
    let mut server = Server { child, lines };

    server.says("listening on https://");
    server.signal(Signal::HUP);
    server.says("TLS certificate is the same");
    server.says("Credential has not changed");
    fs::write(path("key.p8"), "no key").unwrap();
    server.signal(Signal::HUP);
    let told = server.says("Configuration is wrong, nothing is reloaded");
    assert!(told.contains("ERROR") && told.contains("key.p8"), "{told}");
    certify();
    fs::write(path("key.p8"), simulator.add_key(simulator.key_id(), simulator.team_id()).unwrap()).unwrap();
    server.signal(Signal::HUP);
    server.says("TLS certificate replaced");
    server.says("Credential replaced");
    server.signal(Signal::TERM);
    assert!(server.child.wait().unwrap().success());
}
