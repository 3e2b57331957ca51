//! The numbers at the end.

use std::time::Duration;

use serde::Serialize;
use tidings_server::output::grouped;

use super::super::view::format_duration;
use super::ledger::Verdict;
use super::plan::Kind;
use super::stage::NODE_COUNT;

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

/// The result. The fields are those of `tidings demo --nodes 3 --once --json`.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Report {
    nodes: usize,
    /// Events that were acknowledged.
    events: usize,
    /// Events that the client got, each once.
    deliveries: usize,
    /// Acknowledged events that the leader does not have, and those that did not reach the client.
    lost: u64,
    /// Publications that the client got again.
    duplicates: u64,
    /// Publications out of order or in the wrong place, and connections on which the client could not resume.
    wrong: u64,
    kills: Kills,
    /// How often the client connected.
    connections: u32,
    elapsed_s: f64,
    #[serde(skip)]
    leader: &'static str,
    #[serde(skip)]
    verdict: Verdict,
}

impl Report {
    pub(super) fn new(
        (events, deliveries, connections): (usize, usize, u32),
        verdict: Verdict,
        kills: Kills,
        leader: &'static str,
        elapsed: Duration,
    ) -> Self {
        Self {
            nodes: NODE_COUNT,
            events,
            deliveries,
            lost: verdict.lost_events + verdict.lost_publications,
            duplicates: verdict.duplicates,
            wrong: verdict.disordered + verdict.breaks,
            kills,
            connections,
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
        let [leaders, standbys, brokers] = Kind::ALL.map(|kind| self.kills.of(kind));
        let mut text = format!(
            "{events} events were acknowledged in {elapsed:.0} s. Meanwhile {killed} killed: {leader}, {standby}, {nats}.\n",
            events = grouped(self.events),
            elapsed = self.elapsed_s,
            killed = counted(self.kills.count(), "process was", "processes were"),
            leader = counted(leaders.count, "leader", "leaders"),
            standby = counted(standbys.count, "standby", "standbys"),
            nats = counted(brokers.count, "NATS server", "NATS servers"),
        );
        text += &if self.verdict.is_clean() {
            format!(
                "Nothing is lost: server {}, which leads now, has all of these events. The client got each of them exactly\n\
                 once and in order, over {}.\n",
                self.leader,
                counted(self.connections.into(), "connection", "connections")
            )
        } else {
            format!("WRONG: {}.\n", self.verdict.to_text())
        };
        text + &format!(
            "Longest time without an acknowledgement: leader killed {}, standby killed {}, NATS server killed {}.",
            leaders.pause(),
            standbys.pause(),
            brokers.pause()
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
    use super::*;

    fn report(verdict: Verdict) -> Report {
        let mut kills = Kills::default();
        for (kind, millis) in [(Kind::Leader, 3100), (Kind::Leader, 2900), (Kind::Nats, 4200)] {
            kills.add(kind);
            kills.add_pause(kind, Duration::from_millis(millis));
        }
        Report::new((5410, 5410, 3), verdict, kills, "b", Duration::from_millis(44_444))
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
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    }

    #[test]
    fn what_is_wrong_is_said_and_counted() {
        let report = report(Verdict { lost_events: 1, lost_publications: 2, breaks: 4, ..Verdict::default() });
        let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!((&json["lost"], &json["duplicates"], &json["wrong"]), (&3.into(), &0.into(), &4.into()));
        assert_eq!(json["kills"]["nats"]["pause_s_max"], 4.2);
        assert!(report.fault().is_some() && report.to_text().contains("WRONG: 1 acknowledged events"));
    }
}
