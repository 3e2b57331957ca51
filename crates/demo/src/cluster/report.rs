//! The numbers at the end.

use std::array::from_fn;
use std::time::Duration;

use serde::Serialize;
use tidings_server::output::grouped;

use super::super::view::format_duration;
use super::ledger::Verdict;
use super::plan::Kind;
use super::stage::{NODE_COUNT, node_name};

/// The kills so far.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Kills {
    leader: Killed,
    standby: Killed,
    nats: Killed,
}

/// The kills of one kind.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Killed {
    count: u64,
    /// The longest time in which no event was acknowledged.
    pause_s_max: f64,
}

impl Killed {
    fn pause(self) -> String {
        if self.count == 0 { "–".to_owned() } else { format_duration(Duration::from_secs_f64(self.pause_s_max)) }
    }
}

impl Kills {
    /// Notes a kill.
    pub(super) fn add(&mut self, kind: Kind) {
        self.of_mut(kind).count += 1;
    }

    /// Notes the longest time without an acknowledgement after a kill.
    pub(super) fn add_pause(&mut self, kind: Kind, pause: Duration) {
        let killed = self.of_mut(kind);
        killed.pause_s_max = killed.pause_s_max.max(rounded(pause));
    }

    fn of_mut(&mut self, kind: Kind) -> &mut Killed {
        match kind {
            Kind::Leader => &mut self.leader,
            Kind::Standby => &mut self.standby,
            Kind::Nats => &mut self.nats,
        }
    }

    fn of(&self, kind: Kind) -> Killed {
        match kind {
            Kind::Leader => self.leader,
            Kind::Standby => self.standby,
            Kind::Nats => self.nats,
        }
    }

    pub(super) fn count(&self) -> u64 {
        Kind::ALL.iter().map(|kind| self.of(*kind).count).sum()
    }
}

/// What was counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tally {
    /// Events that were acknowledged.
    pub(super) events: usize,
    /// How many of them each server has answered.
    pub(super) taken: [usize; NODE_COUNT],
    /// Events that each client got.
    pub(super) got: [usize; NODE_COUNT],
    /// How often each client connected.
    pub(super) connections: [u32; NODE_COUNT],
}

/// The result. The fields are those of `tidings demo --nodes 3 --once --json`.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Report {
    nodes: usize,
    clients: usize,
    /// Events that were acknowledged.
    events: usize,
    /// Events that clients got. Each client is owed all events.
    deliveries: usize,
    /// Acknowledged events that the leader does not have, and those that did not reach a client, for each client.
    lost: u64,
    /// Publications that a client got again.
    duplicates: u64,
    /// Publications out of order or in the wrong place, and connections on which a client could not resume.
    wrong: u64,
    kills: Kills,
    by_server: [ServerPart; NODE_COUNT],
    by_client: [ClientPart; NODE_COUNT],
    elapsed_s: f64,
    #[serde(skip)]
    leader: &'static str,
    #[serde(skip)]
    verdict: Verdict,
}

/// What one server did.
#[derive(Debug, Clone, Copy, Serialize)]
struct ServerPart {
    node: &'static str,
    /// Acknowledged events that it has answered. Unless it led, it had passed them on to the leader.
    events: usize,
}

/// What one client did.
#[derive(Debug, Clone, Copy, Serialize)]
struct ClientPart {
    /// Its own server, which it connects to while that runs.
    home: &'static str,
    /// Events that it got.
    deliveries: usize,
    /// How often it connected.
    connections: u32,
}

impl Report {
    pub(super) fn new(tally: Tally, verdict: Verdict, kills: Kills, leader: &'static str, elapsed: Duration) -> Self {
        Self {
            nodes: NODE_COUNT,
            clients: NODE_COUNT,
            events: tally.events,
            deliveries: tally.got.iter().sum(),
            lost: verdict.lost_events + verdict.sum(|faults| faults.lost),
            duplicates: verdict.sum(|faults| faults.duplicates),
            wrong: verdict.sum(|faults| faults.disordered + faults.breaks),
            kills,
            by_server: from_fn(|index| ServerPart { node: node_name(index), events: tally.taken[index] }),
            by_client: from_fn(|index| ClientPart {
                home: node_name(index),
                deliveries: tally.got[index],
                connections: tally.connections[index],
            }),
            elapsed_s: rounded(elapsed),
            leader,
            verdict,
        }
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers can be written as JSON")
    }

    /// The summary.
    pub(super) fn to_text(&self) -> String {
        let verdict = if self.verdict.is_clean() {
            format!(
                "Nothing is lost: server {}, which leads now, has all of these events. Each client got each of them exactly once\n\
                 and in order.",
                self.leader
            )
        } else {
            format!("WRONG: {}.", self.verdict.to_text())
        };
        [self.events_and_kills(), verdict, self.servers(), self.clients(), self.pauses()].join("\n")
    }

    fn events_and_kills(&self) -> String {
        let [leaders, standbys, brokers] = Kind::ALL.map(|kind| self.kills.of(kind));
        format!(
            "{events} events were acknowledged in {elapsed:.0} s. Meanwhile {killed} killed: {leader}, {standby}, {nats}.",
            events = grouped(self.events),
            elapsed = self.elapsed_s,
            killed = counted(self.kills.count(), "process was", "processes were"),
            leader = counted(leaders.count, "leader", "leaders"),
            standby = counted(standbys.count, "standby", "standbys"),
            nats = counted(brokers.count, "NATS server", "NATS servers"),
        )
    }

    fn servers(&self) -> String {
        let [a, b, c] = self.by_server.map(|part| format!("{} {}", part.node, grouped(part.events)));
        format!("Events taken by each server: {a}, {b}, {c}. A standby passes them on to the leader.")
    }

    fn clients(&self) -> String {
        let [a, b, c] = from_fn(|index| {
            let ClientPart { home, connections, .. } = self.by_client[index];
            format!("client {} (own server {home}) {}", index + 1, counted(connections.into(), "time", "times"))
        });
        format!("Clients connected: {a}, {b}, {c}.")
    }

    fn pauses(&self) -> String {
        let [leader, standby, nats] = Kind::ALL.map(|kind| self.kills.of(kind).pause());
        format!(
            "Longest time without an acknowledgement: leader killed {leader}, standby killed {standby}, NATS server killed \
             {nats}."
        )
    }

    /// What is wrong, if anything is.
    pub(super) fn fault(&self) -> Option<String> {
        (!self.verdict.is_clean()).then(|| self.verdict.to_text())
    }
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Seconds with three digits after the point.
fn rounded(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::super::ledger::Faults;
    use super::*;

    fn report(verdict: Verdict) -> Report {
        let mut kills = Kills::default();
        for (kind, millis) in [(Kind::Leader, 3100), (Kind::Leader, 2900), (Kind::Nats, 4200)] {
            kills.add(kind);
            kills.add_pause(kind, Duration::from_millis(millis));
        }
        let tally = Tally { events: 5410, taken: [1803, 1802, 1805], got: [5410, 5410, 5409], connections: [2, 1, 3] };
        Report::new(tally, verdict, kills, "b", Duration::from_millis(44_444))
    }

    #[test]
    fn the_summary_says_what_was_killed_and_that_nothing_is_lost() {
        let text = report(Verdict::default()).to_text();
        assert!(
            text.starts_with("5 410 events were acknowledged in 44 s. Meanwhile 3 processes were killed"),
            "{text}"
        );
        assert!(text.contains("2 leaders, 0 standbys, 1 NATS server.") && text.contains("Nothing is lost"), "{text}");
        assert!(text.contains("leader killed 3.10 s, standby killed –, NATS"), "{text}");
        assert!(text.contains("a 1 803, b 1 802, c 1 805."), "{text}");
        assert!(
            text.contains(
                "client 1 (own server a) 2 times, client 2 (own server b) 1 time, client 3 (own server c) 3 times."
            ),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    }

    #[test]
    fn what_is_wrong_is_said_and_counted() {
        let first = Faults { lost: 1, duplicates: 5, ..Faults::default() };
        let last = Faults { lost: 1, breaks: 4, ..Faults::default() };
        let report = report(Verdict { lost_events: 1, clients: [first, Faults::default(), last] });
        let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!((&json["lost"], &json["duplicates"], &json["wrong"]), (&3.into(), &5.into(), &4.into()));
        assert_eq!(json["kills"]["nats"]["pause_s_max"], 4.2);
        assert!(report.fault().is_some() && report.to_text().contains("WRONG: 1 acknowledged events"));
    }

    #[test]
    fn the_json_has_a_part_for_each_server_and_client() {
        let json: serde_json::Value = serde_json::from_str(&report(Verdict::default()).to_json()).unwrap();
        assert_eq!((&json["clients"], &json["deliveries"]), (&3.into(), &(3 * 5410 - 1).into()));
        assert_eq!(json["by_server"][2], serde_json::json!({ "node": "c", "events": 1805 }));
        let client = serde_json::json!({ "home": "a", "deliveries": 5410, "connections": 2 });
        assert_eq!(json["by_client"][0], client);
    }
}
