//! What a client has seen, over all its connections, and what of that may not be: the offsets of a channel have no gap and no
//! repetition, except where the server says that it recovered nothing.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::judge::Got;

/// What a client has seen so far.
#[derive(Debug, Default)]
pub struct Seen {
    /// How often it was connected and subscribed to all its channels.
    pub lives: usize,
    /// How each of its connections ended, also those that were refused.
    pub ends: Vec<End>,
    /// By name.
    pub channels: BTreeMap<String, Read>,
    /// Who came and went: the channel, "join" or "leave", and the user.
    pub company: Vec<(String, &'static str, String)>,
    /// Channels to which the server has subscribed it, and from which it has taken it.
    pub told: Vec<(String, &'static str)>,
    /// What may not be.
    pub wrongs: Vec<String>,
}

/// What it has of a channel.
#[derive(Debug, Default)]
pub struct Read {
    /// The life of the channel in which it is.
    pub epoch: String,
    /// The last offset that it has.
    pub offset: u64,
    /// Everything it got, in the order in which it came.
    pub got: Vec<Got>,
    /// Whether it missed nothing, each time that it came back.
    pub recovered: Vec<bool>,
}

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The server closed it, with this code.
    Closed(u16),
    /// It was refused, by this status of HTTP.
    Refused(u16),
    /// A command was refused with this error.
    Error(u64),
    /// It broke off, or the connection was not made in time.
    Broken,
    /// The client left, because the test wanted it.
    Left,
}

impl Seen {
    /// The life of a channel in which it is.
    pub fn epoch(&self, channel: &str) -> String {
        self.channels[channel].epoch.clone()
    }

    /// Takes what the server pushes.
    pub(super) fn take(&mut self, message: &Value) {
        let push = &message["push"];
        let Some(channel) = push["channel"].as_str() else { return };
        if push["pub"].is_object() {
            self.take_publication(channel, &push["pub"]);
        }
        for kind in ["join", "leave"] {
            if let Some(user) = push[kind]["info"]["user"].as_str() {
                self.company.push((channel.to_owned(), kind, user.to_owned()));
            }
        }
        for kind in ["subscribe", "unsubscribe"] {
            if push[kind].is_object() {
                self.told.push((channel.to_owned(), kind));
            }
        }
    }

    /// The answer to a subscription: from where on it gets what is published. The answer's offset is that before the
    /// publications in it.
    pub(super) fn subscribe(&mut self, channel: &str, answer: &Value) {
        let is_first = !self.channels.contains_key(channel);
        let read = self.channels.entry(channel.to_owned()).or_default();
        let has_all = is_first || answer["recovered"] == true;
        let epoch = answer["epoch"].as_str().unwrap_or_default();
        if !is_first {
            read.recovered.push(has_all);
        }
        if answer["recoverable"] == true {
            let offset = answer["offset"].as_u64().unwrap_or_default();
            if !is_first && has_all && (&*read.epoch, read.offset) != (epoch, offset) {
                let wrong = format!("{channel} is recovered from {} {} on: {answer}", read.epoch, read.offset);
                self.wrongs.push(wrong);
            }
            read.offset = offset;
        }
        epoch.clone_into(&mut read.epoch);
        for publication in answer["publications"].as_array().into_iter().flatten() {
            self.take_publication(channel, publication);
        }
    }

    fn take_publication(&mut self, channel: &str, publication: &Value) {
        let read = self.channels.entry(channel.to_owned()).or_default();
        let got = Got::read(publication);
        if got.offset != 0 {
            if got.offset != read.offset + 1 {
                self.wrongs.push(format!("{channel} has {got:?} after {}", read.offset));
            }
            read.offset = got.offset;
        }
        read.got.push(got);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_client_sees_what_is_wrong() {
        let publication =
            |offset: u64| json!({ "push": { "channel": "c", "pub": { "offset": offset, "data": { "id": "x" } } } });
        let answer = |recovered: bool, offset: u64, missed: &[u64]| {
            let missed: Vec<_> =
                missed.iter().map(|offset| json!({ "offset": offset, "data": { "id": "x" } })).collect();
            json!({ "recoverable": true, "epoch": "e", "offset": offset, "recovered": recovered, "publications": missed })
        };
        let saw = |answers: &[Value], offsets: &[u64]| {
            let mut seen = Seen::default();
            answers.iter().for_each(|answer| seen.subscribe("c", answer));
            offsets.iter().for_each(|offset| seen.take(&publication(*offset)));
            seen.wrongs
        };
        let first = answer(false, 5, &[]);
        assert_eq!(saw(std::slice::from_ref(&first), &[6, 7]), [""; 0]);
        assert_eq!(saw(&[first.clone(), answer(true, 5, &[6, 7])], &[8]), [""; 0]);
        assert_eq!(saw(&[first.clone(), answer(false, 9, &[])], &[10]), [""; 0], "it was told");
        for (what, answers, offsets) in [
            ("a gap", vec![first.clone()], vec![7]),
            ("a repetition", vec![first.clone()], vec![6, 6]),
            ("a gap in what was recovered", vec![first.clone(), answer(true, 5, &[7])], vec![]),
            ("a gap behind what was recovered", vec![first.clone(), answer(true, 5, &[6, 7])], vec![9]),
            ("nothing of what was recovered", vec![first.clone(), answer(true, 7, &[])], vec![]),
            ("a repetition in what was recovered", vec![first, answer(true, 5, &[5])], vec![]),
        ] {
            assert!(!saw(&answers, &offsets).is_empty(), "{what}");
        }
    }
}
