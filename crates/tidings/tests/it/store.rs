//! `tidings store`: backup of a server that runs, restore, serve from that.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::thread;

use serde_json::Value;
use tidings_trial::ports::free_port;

use crate::program::{Server, place, run, text, tidings};

/// What a command that must succeed prints.
fn done(words: &str, dir: &Path) -> String {
    let output = run(words, dir);
    assert_eq!(output.status.code(), Some(0), "{words}: {}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

/// What a command says that must fail with this code.
fn refused(words: &str, dir: &Path, code: i32) -> String {
    let output = run(words, dir);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(code), ""), "{words}");
    text(&output.stderr).to_owned()
}

fn register(dir: &Path, name: &str) {
    done(&format!("devices register {name} --app com.example.app --token {name} --platform android --locale sv"), dir);
    done(&format!("devices subscribe {name} team:42 goal"), dir);
}

/// The words of `devices show`, without what is of one store only.
fn shown(dir: &Path, name: &str) -> Value {
    serde_json::from_str(&done(&format!("devices show {name} --json"), dir)).unwrap()
}

#[test]
fn what_a_running_server_holds_is_restored_elsewhere_and_served() {
    let (old, new) = (place(), place());
    let mut server = Server::start(old.path());
    register(old.path(), "phone-1");
    // Devices register all the time; the first is there before, the others are there or not.
    let registering = thread::spawn({
        let dir = old.path().to_owned();
        move || (2..8).for_each(|number| register(&dir, &format!("phone-{number}")))
    });
    let told: Value = serde_json::from_str(&done("store backup --out b.backup --json", old.path())).unwrap();
    registering.join().unwrap();
    let file = old.path().join("b.backup");
    let found = fs::metadata(&file).unwrap();
    assert_eq!((told["bytes"].as_u64(), found.permissions().mode() & 0o777), (Some(found.len()), 0o600));
    assert!(told["rows"]["device"].as_u64() >= Some(1), "{told}");
    let again = refused("store backup --out b.backup", old.path(), 1);
    assert_eq!(again, "error: b.backup already exists and is not overwritten; name another file\n");
    let in_use = refused("store verify --data data", old.path(), 1);
    assert!(in_use.contains("in use by another process") && in_use.contains("store backup --out FILE"), "{in_use}");
    // The stream of a running server can be looked at without a file.
    let mut piped = tidings("store backup --out -".split(' '), old.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let looked =
        tidings("store verify - --json".split(' '), old.path()).stdin(piped.stdout.take().unwrap()).output().unwrap();
    assert!(piped.wait().unwrap().success());
    let looked: Value = serde_json::from_slice(&looked.stdout).unwrap();
    assert_eq!((looked["finding_count"].as_u64(), looked["rows"]["device"].as_u64()), (Some(0), Some(7)));
    let before = shown(old.path(), "phone-1");
    server.stop();

    let from = file.display();
    let restored = done(&format!("store restore --from {from} --data data"), new.path());
    assert!(restored.starts_with("restored everything up to commit ") && restored.ends_with(" into data/store\n"));
    assert_eq!(fs::metadata(new.path().join("data")).unwrap().permissions().mode() & 0o777, 0o700);
    let verified = done("store verify --data data", new.path());
    assert!(verified.ends_with("all rows are readable and consistent\n"), "{verified}");
    let mut server = Server::start(new.path());
    assert_eq!(shown(new.path(), "phone-1"), before);
    register(new.path(), "phone-9");
    server.stop();
    let taken = refused(&format!("store restore --from {from} --data data"), new.path(), 1);
    assert_eq!(
        taken,
        "error: data/store: data/store already has a store; move it away first, or name another folder\n"
    );
    // Of a server that is stopped.
    let of_folder = done("store backup --out c.backup --data data", new.path());
    assert!(of_folder.ends_with(" into c.backup\n"), "{of_folder}");
    done("store verify c.backup", new.path());
}

#[test]
fn what_is_no_backup_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    fs::write(path.join("text"), "hello, this is a text and no backup").unwrap();
    for command in ["store verify text", "store restore --from text --data data"] {
        assert_eq!(refused(command, path, 1), "error: text: this is not a backup of Tidings\n");
    }
    assert!(!path.join("data/store/data").exists());
    assert_eq!(refused("store verify gone", path, 1).lines().count(), 1);
    let none = refused("store backup --out b --data elsewhere", path, 1);
    assert!(none.starts_with("error: elsewhere/store: there is no store; DIR is"), "{none}");
    let stopped = refused("store backup --out b --url http://127.0.0.1:1 --api-key k", path, 1);
    assert!(stopped.contains("if it is stopped, name its data folder with --data"), "{stopped}");
    let left: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name != "text" && name != "data"), "{left:?}");
    refused("store verify", path, 2);
    refused("store verify text --data data", path, 2);
    refused("store backup --out - --json --data data", path, 2);
}

/// A stand-in for Apple; killed however the test ends. It ends by itself when nobody reads what it says.
struct Apple(Child, #[expect(dead_code, reason = "held, not used")] BufReader<ChildStdout>);

impl Apple {
    /// Starts one, with its certificate and keys in `dir`, and tells what the configuration needs.
    fn start(dir: &Path) -> (Self, String) {
        let port = free_port();
        let words = format!("simulate apns --listen 127.0.0.1:{port} --app com.example.app --dir simulator");
        let mut child = tidings(words.split(' '), dir).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // It listens when it has told what to paste.
        let mut said = BufReader::new(child.stdout.take().unwrap());
        assert!(said.read_line(&mut String::new()).unwrap() > 0, "it starts");
        let folder = dir.join("simulator");
        let section = format!(
            "[topics.goal]\ntitle = \"Goal\"\nbody = \"Scored\"\n[apns.simulator]\nhost = \"localhost\"\nport = {port}\n\
             key_id = \"SIMULATOR1\"\nteam_id = \"TIDINGS001\"\napps = [\"com.example.app\"]\n\
             key_file = {:?}\nca_file = {:?}\n",
            folder.join("key.p8"),
            folder.join("ca.pem"),
        );
        (Self(child, said), section)
    }
}

impl Drop for Apple {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[test]
fn jobs_of_a_backup_wait_until_the_operator_releases_them() {
    let (old, new) = (place(), place());
    let (_apple, section) = Apple::start(old.path());
    for dir in [&old, &new] {
        let file = dir.path().join("tidings.toml");
        let config = fs::read_to_string(&file).unwrap() + &section;
        fs::write(file, config).unwrap();
    }
    let mut server = Server::start(old.path());
    done("devices register phone-1 --app com.example.app --token 00000000000000a1 --locale en", old.path());
    done("devices subscribe phone-1 team:42 goal", old.path());
    done("jobs pause topic:goal", old.path());
    done("publish --topic goal --subject team:42 --id goal-1", old.path());
    done("store backup --out b.backup", old.path());
    server.stop();
    let from = old.path().join("b.backup");
    let restored = done(&format!("store restore --from {} --data data", from.display()), new.path());
    assert!(
        restored.contains("All pushes are paused") && restored.contains("tidings jobs resume everything"),
        "{restored}"
    );
    let job = |dir: &Path| -> Value { serde_json::from_str(&done("jobs show goal-1 --json", dir)).unwrap() };
    let is_held = |dir: &Path| job(dir)["state"] != "finished" && job(dir)["outcomes"]["accepted"] == 0;
    // The pause outlives a start, and the log says so.
    for _ in 0..2 {
        let mut server = Server::launch(new.path());
        server.says("Pushes are paused");
        server.says("Listening");
        assert!(done("jobs brakes", new.path()).contains("everything"));
        assert!(is_held(new.path()));
        server.stop();
    }
    let mut server = Server::start(new.path());
    done("jobs resume topic:goal", new.path());
    assert!(is_held(new.path()), "everything is still paused");
    done("jobs resume everything", new.path());
    done("jobs show goal-1 --wait", new.path());
    assert_eq!(job(new.path())["outcomes"]["accepted"], 1);
    server.stop();
    let other = tempfile::tempdir().unwrap();
    let resumed = done(&format!("store restore --from {} --data data --resume", from.display()), other.path());
    assert!(!resumed.contains("paused"), "{resumed}");
}

/// Every file and folder in a folder, with what group and others may do.
fn open_to_others(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        if metadata.permissions().mode() & 0o077 != 0 {
            found.push(entry.path().display().to_string());
        }
        if metadata.is_dir() {
            found.extend(open_to_others(&entry.path()));
        }
    }
    found
}

#[test]
fn the_data_folder_is_for_its_owner_only_also_with_keys_of_the_configuration() {
    let dir = place();
    let file = dir.path().join("tidings.toml");
    let config = fs::read_to_string(&file).unwrap()
        + "[[api.keys]]\nname = \"backend\"\nkey = \"a-key-for-the-tests-of-the-data-folder-0123456789\"\n";
    fs::write(file, config).unwrap();
    let data = dir.path().join("data");
    let mut server = Server::start(dir.path());
    let closed = |what: &str| {
        assert_eq!(fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700, "{what}");
        assert_eq!(open_to_others(&data), Vec::<String>::new(), "{what}");
    };
    closed("new");
    server.stop();
    // As an earlier version left it.
    for (path, mode) in [(data.clone(), 0o755), (data.join("store"), 0o755), (data.join("store/data/version"), 0o644)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut server = Server::launch(dir.path());
    server.says("Other users of this machine could read");
    server.says("Listening");
    closed("mended");
    server.stop();
}
