//! What operators do to a server that runs: reloads, backups, exports, a look at everything.

use bytes::Bytes;
use hyper::Method;
use serde_json::Value;
use std::fs;
use tidings_trial::launcher::Server;
use tidings_trial::process::Signal;
use tidings_trial::wait::until;

use crate::API_KEY;
use crate::hand::Hand;

/// What the log says when a credential was read again.
const RELOADED: &str = "Credential has not changed";
const BACKUP: &str = "soak.backup";
const LOOKS: [&str; 8] = [
    "/v1/system",
    "/v1/providers",
    "/v1/feeds",
    "/v1/texts",
    "/v1/audit",
    "/v1/jobs?limit=100",
    "/v1/events?state=scheduled",
    "/v1/devices/resident-0/events",
];

/// One thing after the other, again and again.
pub(crate) async fn operate(server: &Server, mut hand: Hand) -> Result<(), String> {
    let pace = hand.world.plan.operator_pace;
    let mut turn = 0;
    while hand.turn(pace).await {
        match turn % 6 {
            0 => new_texts(server, &mut hand).await?,
            1 => hang_up(server, &hand).await,
            2 => hand.ask("texts rolled back", Method::POST, "/v1/texts/rollback", None).await.map(drop)?,
            3 => back_up(server, &hand).await?,
            4 => export(&mut hand).await?,
            _ => look(&mut hand).await?,
        }
        turn += 1;
    }
    Ok(())
}

/// A topic with another text.
async fn new_texts(server: &Server, hand: &mut Hand) -> Result<(), String> {
    let version = hand.world.next();
    server.write("messages/more.toml", format!("[corner]\ntitle = \"Corner {version}\"\nbody = \"It is so.\"\n"));
    let view = hand.ask("texts reloaded", Method::POST, "/v1/texts/reload", None).await?;
    let is_taken = view["faults"].as_array().is_none_or(Vec::is_empty);
    if is_taken { Ok(()) } else { Err(format!("the texts are wrong: {view}")) }
}

async fn hang_up(server: &Server, hand: &Hand) {
    let count = || server.log().matches(RELOADED).count();
    let before = count();
    server.signal(Signal::HUP);
    until("credentials are read again", async || (count() > before).then_some(())).await;
    hand.did("reload by SIGHUP");
}

async fn back_up(server: &Server, hand: &Hand) -> Result<(), String> {
    let url = format!("http://{}", server.addr);
    let make = ["store", "backup", "--out", BACKUP, "--url", &url, "--api-key", API_KEY];
    for words in [&make[..], &["store", "verify", BACKUP]] {
        let output = server.run(words).await;
        let said = [output.stdout, output.stderr].concat();
        if !output.status.success() {
            return Err(format!("{words:?}: {}", String::from_utf8_lossy(&said)));
        }
    }
    fs::remove_file(server.path(BACKUP)).map_err(|error| format!("the backup is not there: {error}"))?;
    hand.did("backup verified");
    Ok(())
}

/// Each line is a device.
async fn export(hand: &mut Hand) -> Result<(), String> {
    let lines = hand.send(Method::GET, "/v1/export", Bytes::new()).await?.text();
    let wrong = lines.lines().find(|line| {
        let device: Value = serde_json::from_str(line).unwrap_or_default();
        device["id"].is_null() || !device["problem"].is_null()
    });
    if let Some(wrong) = wrong {
        return Err(format!("an export has {wrong}"));
    }
    hand.world.deeds.did("devices exported", lines.lines().count() as u64);
    Ok(())
}

async fn look(hand: &mut Hand) -> Result<(), String> {
    for path in LOOKS {
        hand.send(Method::GET, path, Bytes::new()).await?;
    }
    hand.send(Method::POST, "/v1/feeds/goals/poll", Bytes::new()).await.map(drop)
}
