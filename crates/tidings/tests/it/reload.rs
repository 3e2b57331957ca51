//! `tidings serve` with TLS: on SIGHUP it stays, reads its credentials again, and says what came of it. The other commands
//! speak TLS with it.

use std::fs;
use std::process::Stdio;

use rustix::process::Signal;
use tidings_simulator::{ApnsSimulator, PushAuthority, SimulatorConfig};
use tidings_types::Timestamp;
use tokio::time::Instant;

use crate::program::{PATIENCE, Server, tidings};

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
    let mut server = Server::launch(dir.path());
    server.says("listening on https://");
    server.process.signal(Signal::HUP);
    server.says("TLS certificate is the same");
    server.says("Credential has not changed");
    fs::write(path("key.p8"), "no key").unwrap();
    server.process.signal(Signal::HUP);
    let told = server.says("Configuration is wrong, nothing is reloaded");
    assert!(told.contains("ERROR") && told.contains("key.p8"), "{told}");
    certify();
    fs::write(path("key.p8"), simulator.add_key(simulator.key_id(), simulator.team_id()).unwrap()).unwrap();
    server.process.signal(Signal::HUP);
    server.says("TLS certificate replaced");
    server.says("Credential replaced");
    server.stop();
}

#[test]
fn the_commands_speak_tls_with_a_server_whose_certificate_they_trust() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(path("ca.pem"), issued.cert.pem()).unwrap();
    fs::write(path("tls.pem"), issued.cert.pem() + &issued.signing_key.serialize_pem()).unwrap();
    let config = format!(
        "data_dir = {:?}\n[http]\nlisten = \"127.0.0.1:0\"\n[http.tls]\ncertificate_file = {:?}\ncertificate_key_file = \
         {:?}\n[client]\nallow_anonymous = true\n[channel.without_namespace]\nallow_subscribe_for_client = true\n\
         allow_subscribe_for_anonymous = true\n",
        path("data"),
        path("tls.pem"),
        path("tls.pem"),
    );
    fs::write(path("tidings.toml"), config).unwrap();
    let server = Server::launch(dir.path());
    let line = server.says("listening on https://");
    let port = line.rsplit_once(':').unwrap().1.split_whitespace().next().unwrap().to_owned();
    let tidings = |words: &str| tidings(words.split(' '), dir.path());
    let publish = "publish --channel news {\"n\":1} --api-key-file data/api-key";
    let here = format!("--url https://localhost:{port} --ca-file ca.pem");

    let mut reader = tidings(&format!("subscribe news --count 1 {here}"));
    let mut reader = reader.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while reader.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < PATIENCE, "the publication came");
        let published = tidings(&format!("{publish} {here}")).output().unwrap();
        assert!(published.status.success(), "{}", String::from_utf8_lossy(&published.stderr));
    }
    let got = reader.wait_with_output().unwrap();
    assert!(
        String::from_utf8_lossy(&got.stdout).contains(r#""data":{"n":1}"#),
        "{}",
        String::from_utf8_lossy(&got.stderr)
    );

    for place in [format!("--url https://localhost:{port}"), format!("--url https://127.0.0.1:{port} --ca-file ca.pem")]
    {
        let refused = tidings(&format!("{publish} {place}")).output().unwrap();
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(1) && told.contains("certificate"), "{place}: {told}");
    }
}
