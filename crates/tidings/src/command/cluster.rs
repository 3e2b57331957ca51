//! `tidings cluster`: who leads, let another server lead, check the log.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget};
use serde_json::json;
use tidings_cluster::{ClusterStatus, NodeReport, NodeRole, Survey, SurveyError};
use tidings_server::cluster::cluster_config;
use tidings_server::output::{Kind, line, remark};
use tidings_store::backup::leave_log;
use tidings_telemetry::chain;
use tokio::time::{interval, timeout};

use super::client::table;
use super::store::store_in;
use super::{CommandError, load};
use crate::cli::{ClusterArgs, ClusterCommand, ClusterLeaveArgs, ClusterMoveArgs, ConfigFile};

/// How long another server may take to lead.
const MOVE_TIMEOUT: Duration = Duration::from_secs(60);
/// How often it is looked up who leads.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) async fn run(command: ClusterCommand) -> Result<(), CommandError> {
    match command {
        ClusterCommand::Status(args) => status(&args).await,
        ClusterCommand::Move(args) => move_lead(&args).await,
        ClusterCommand::Check(args) => check(&args).await,
        ClusterCommand::Leave(args) => leave(&args),
        ClusterCommand::Forget(args) => forget(&args).await,
    }
}

fn failed(error: &SurveyError) -> CommandError {
    CommandError::Failed(chain(error).to_string())
}

async fn survey(file: &ConfigFile) -> Result<Survey, CommandError> {
    let section = load(file)?.config.cluster;
    if section.servers.is_empty() {
        let told = "the configuration names no cluster: set cluster.servers, or name its file with --config";
        return Err(CommandError::Usage(told.to_owned()));
    }
    Survey::connect(cluster_config(&section)?).await.map_err(|error| failed(&error))
}

async fn status(ClusterArgs { file, json }: &ClusterArgs) -> Result<(), CommandError> {
    let status = survey(file).await?.status().await.map_err(|error| failed(&error))?;
    if *json {
        return Ok(line(serde_json::to_string(&status).unwrap_or_default())?);
    }
    Ok(line(told(&status))?)
}

fn told(status: &ClusterStatus) -> String {
    let ClusterStatus { lease, log, copy, nodes } = status;
    let leader = match lease {
        None => "leader  none yet".to_owned(),
        Some(holder) if holder.released => format!("leader  none; {} was the last one", holder.node),
        Some(holder) if nodes.iter().any(|node| node.node == holder.node) => format!("leader  {}", holder.node),
        Some(holder) => format!("leader  {}, which is not heard", holder.node),
    };
    let end = log.as_ref().map_or(0, |log| log.last);
    let log = match log {
        None => "log     none yet".to_owned(),
        Some(log) => format!("log     entries {} to {}, {} of {} bytes", log.first, log.last, log.bytes, log.bytes_max),
    };
    let copy = match copy {
        None => "copy    none yet: a new server waits for it".to_owned(),
        Some(sequence) => format!("copy    of the store as of entry {sequence}"),
    };
    let mut rows = vec![["NODE", "ROLE", "BEHIND", "VERSION", "ADDRESS"].map(str::to_owned).to_vec()];
    rows.extend(nodes.iter().map(|node| row(node, end)));
    let nodes = if nodes.is_empty() { "no server is heard".to_owned() } else { table(&rows) };
    format!("{leader}\n{log}\n{copy}\n\n{nodes}")
}

fn row(node: &NodeReport, end: u64) -> Vec<String> {
    let role = match node.role {
        NodeRole::Joining => "joining",
        NodeRole::Standby if !node.may_lead => "standby, may not lead",
        NodeRole::Standby => "standby",
        NodeRole::Leading => "leads",
        NodeRole::Lost => "lost: see its log",
    };
    let behind = end.saturating_sub(node.sequence).to_string();
    vec![node.node.clone(), role.to_owned(), behind, node.version.clone(), node.address.clone().unwrap_or_default()]
}

async fn move_lead(ClusterMoveArgs { to, about }: &ClusterMoveArgs) -> Result<(), CommandError> {
    let survey = survey(&about.file).await?;
    let leader = survey.leader().await.map_err(|error| failed(&error))?;
    let leader = leader.ok_or_else(|| failed(&SurveyError::NoLeader))?;
    if to.as_ref() == Some(&leader.node) {
        return moved(about.json, &leader.node, &leader.node);
    }
    let from = survey.ask_to_move(to.clone()).await.map_err(|error| failed(&error))?;
    if !about.json {
        remark(Kind::Note, format!("{from} gives the lead away"));
    }
    let looked = timeout(MOVE_TIMEOUT, async {
        let mut pulse = interval(LOOK_INTERVAL);
        loop {
            pulse.tick().await;
            // If NATS does not answer, it is asked again.
            if let Ok(Some(now)) = survey.leader().await
                && now.process != leader.process
            {
                return now.node;
            }
        }
    });
    let hint = "see `tidings cluster status`";
    let now = looked.await.map_err(|_| CommandError::Failed(format!("no other server leads yet: {hint}")))?;
    if let Some(to) = to.as_ref().filter(|to| **to != now) {
        return Err(CommandError::Failed(format!("{now} leads now, as {to} was not ready: {hint}")));
    }
    moved(about.json, &from, &now)
}

fn moved(is_json: bool, from: &str, to: &str) -> Result<(), CommandError> {
    if is_json {
        return Ok(line(json!({"from": from, "leader": to}).to_string())?);
    }
    Ok(line(format!("{to} leads"))?)
}

async fn check(ClusterArgs { file, json }: &ClusterArgs) -> Result<(), CommandError> {
    let survey = survey(file).await?;
    let target = if *json || !std::io::stderr().is_terminal() {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    };
    let bar = ProgressBar::with_draw_target(None, target);
    let checked = survey.check(|entry, last| {
        bar.set_length(last);
        bar.set_position(entry);
    });
    let checked = checked.await;
    bar.finish_and_clear();
    let checked = checked.map_err(|error| failed(&error))?;
    if *json {
        return Ok(line(serde_json::to_string(&checked).unwrap_or_default())?);
    }
    let tidings_cluster::Checked { first, last, terms, parts, bytes } = checked;
    Ok(line(format!(
        "the log is whole: entries {first} to {last}, {bytes} bytes, {parts} of records, {terms} changes of the leader"
    ))?)
}

fn leave(ClusterLeaveArgs { data, json }: &ClusterLeaveArgs) -> Result<(), CommandError> {
    let store = store_in(data);
    let had_log = leave_log(&store).map_err(|error| super::store::failed(&store, &error))?;
    if *json {
        return Ok(line(json!({"left": had_log}).to_string())?);
    }
    Ok(line(if had_log { "the store is alone now" } else { "the store was alone already" })?)
}

async fn forget(ClusterArgs { file, json }: &ClusterArgs) -> Result<(), CommandError> {
    survey(file).await?.forget().await.map_err(|error| failed(&error))?;
    if *json {
        return Ok(line(json!({"forgotten": true}).to_string())?);
    }
    Ok(line("the log, the lease and the copy are deleted")?)
}

#[cfg(test)]
mod tests {
    use tidings_cluster::LogState;

    use super::*;

    #[test]
    fn a_status_says_who_leads_and_who_is_behind() {
        let node = |node: &str, role, sequence| NodeReport {
            node: node.to_owned(),
            process: 1,
            address: Some(format!("https://{node}.example.com")),
            version: "1.2.3".to_owned(),
            role,
            sequence,
            epoch: None,
            is_whole: true,
            may_lead: node != "b",
        };
        let holder = |released| tidings_cluster::lease::Holder {
            node: "a".to_owned(),
            process: 1,
            address: None,
            secret: None,
            sequence: 40,
            released,
            to: None,
        };
        let log = Some(LogState { first: 7, last: 42, bytes: 1234, bytes_max: 9999 });
        let nodes =
            vec![node("a", NodeRole::Leading, 42), node("b", NodeRole::Standby, 40), node("c", NodeRole::Standby, 40)];
        let status = ClusterStatus { lease: Some(holder(false)), log, copy: Some(7), nodes };
        let expected = "\
leader  a
log     entries 7 to 42, 1234 of 9999 bytes
copy    of the store as of entry 7

NODE  ROLE                   BEHIND  VERSION  ADDRESS
a     leads                  0       1.2.3    https://a.example.com
b     standby, may not lead  2       1.2.3    https://b.example.com
c     standby                2       1.2.3    https://c.example.com";
        assert_eq!(told(&status), expected);
        let unheard = ClusterStatus { nodes: Vec::new(), ..status };
        let told_of = told(&unheard);
        assert!(
            told_of.starts_with("leader  a, which is not heard\n") && told_of.ends_with("no server is heard"),
            "{told_of}"
        );
        let nothing = ClusterStatus { lease: Some(holder(true)), log: None, copy: None, ..unheard };
        let told_of = told(&nothing);
        assert!(told_of.contains("none; a was the last one") && told_of.contains("log     none yet"), "{told_of}");
    }
}
