//! Carries out orders about connections on a loop: those of back ends, and those of a connection that takes the place of
//! its user's earlier ones.
//!
//! An order names a user, or is about all connections. The loop knows its connections by user and takes [`STEP_CONNECTION_COUNT`] of them at a step; it
//! does other work between two steps. Orders are carried out one after the other, in the order in which they came. A
//! connection that still waits for the proof of its device can only be closed, because its client is told nothing before
//! it is connected.
//!
//! Bound: one order is in work; the others wait in the queue ([`orders`](crate::orders)).

use std::rc::Rc;

use tidings_protocol::{
    CONNECTION_LIST_MAX, ClientPosition, Disconnect, ErrorCode, LiveConnection, NotSubscribed, Order,
    SubscriptionTerms, Target, Unsubscribe, encode_publication_push,
};
use tidings_telemetry::panics::lock;
use tidings_telemetry::unix_now;
use tidings_types::ChannelName;
use tokio::sync::mpsc;

use crate::commands::Client;
use crate::edge_loop::{EdgeLoop, LoopState};
use crate::orders::{Posted, Work};
use crate::subscribers::Key;

/// Connections for which an order is carried out before the loop looks at its other work: about half a millisecond.
const STEP_CONNECTION_COUNT: usize = 128;

/// The orders of one loop.
pub(crate) struct Control {
    queue: mpsc::Receiver<Posted>,
    current: Option<Current>,
}

/// The order in work.
struct Current {
    posted: Posted,
    /// The first connection that has not been looked at.
    next: Key,
    outcome: Result<(), ErrorCode>,
}

impl Control {
    pub(crate) fn new(queue: mpsc::Receiver<Posted>) -> Self {
        Self { queue, current: None }
    }

    /// Waits until there is a step to make.
    ///
    /// # Cancel safety
    /// Cancel safe: an order that came is kept for the next step.
    pub(crate) async fn ready(&mut self) {
        match &self.current {
            Some(_) => tokio::task::yield_now().await,
            None => match self.queue.recv().await {
                Some(posted) => self.current = Some(Current { posted, next: 0, outcome: Ok(()) }),
                None => std::future::pending().await,
            },
        }
    }

    /// Carries out the order in work for the next connections.
    pub(crate) fn step(&mut self, edge_loop: &Rc<EdgeLoop>) {
        let Some(mut current) = self.current.take() else { return };
        let (target, work) = &*current.posted.task;
        let keys = match work.is_for_all() {
            true => edge_loop.state().keys_from(current.next, STEP_CONNECTION_COUNT),
            false => edge_loop.state().keys_of(&target.user, current.next, STEP_CONNECTION_COUNT),
        };
        for &key in &keys {
            let client = Client { edge_loop: edge_loop.clone(), key };
            let carried_out = client.carry_out(target, work);
            current.outcome = current.outcome.and(carried_out);
        }
        match keys.last() {
            Some(&last) if keys.len() == STEP_CONNECTION_COUNT => {
                current.next = last + 1;
                self.current = Some(current);
            }
            _ => drop(current.posted.done.send(current.outcome)), // Nobody may wait for it any more.
        }
    }
}

impl Client {
    /// Carries out an order for this connection if it is meant.
    fn carry_out(&self, target: &Target, work: &Work) -> Result<(), ErrorCode> {
        let (edge_loop, key) = (&self.edge_loop, self.key);
        let state = &mut *edge_loop.state();
        let connection = &state.connections[key];
        if !target.fits(connection.client(), connection.session.id()) {
            return Ok(());
        }
        let is_connected = connection.counted_user().is_some() && !connection.is_closing();
        match work {
            Work::Replace { number } if (1..*number).contains(&connection.number) => {
                edge_loop.close_in(state, key, &Disconnect::CONNECTION_LIMIT);
            }
            Work::Ordered(Order::Disconnect { disconnect, spared }) => {
                if !spared.contains(&connection.client()) {
                    edge_loop.close_in(state, key, disconnect);
                }
            }
            Work::Ordered(Order::Subscribe { channel, terms, since }) if is_connected => {
                self.subscribe_by_order(state, channel, terms, since)?;
            }
            Work::Ordered(Order::Unsubscribe { channel, why }) if is_connected => {
                self.unsubscribe_by_order(state, channel.as_ref(), why);
            }
            Work::Ordered(Order::Refresh { expires_at, info }) if is_connected => {
                let connection = &mut state.connections[key];
                let push = connection.session.refresh_by_server(*expires_at, info.clone(), unix_now());
                connection.reply(push);
            }
            Work::List(found) if is_connected => {
                let (session, mut found) = (&connection.session, lock(found));
                // One more than is told, so that the asker sees that there are too many.
                if found.len() <= CONNECTION_LIST_MAX {
                    let (client, user) = (connection.client(), session.user().to_owned());
                    let channels = session.channels().cloned().collect();
                    found.push(LiveConnection { client, user, variant: session.variant(), channels });
                }
                return Ok(()); // There is nothing to write.
            }
            Work::SendAway => edge_loop.close_in(state, key, &Disconnect::SHUTDOWN),
            Work::Replace { .. } | Work::Ordered(_) | Work::List(_) => {}
        }
        edge_loop.flush_in(state, key);
        Ok(())
    }

    fn subscribe_by_order(
        &self,
        state: &mut LoopState,
        channel: &ChannelName,
        terms: &SubscriptionTerms,
        since: &Option<ClientPosition>,
    ) -> Result<(), ErrorCode> {
        let session = &mut state.connections[self.key].session;
        match session.subscribe_by_server(channel, terms.clone(), since.clone()) {
            Ok(Some(effect)) => {
                let joined = self.subscribe(state, effect, unix_now())?;
                // The client gets what it has missed as if it were new, behind the push that it is subscribed.
                let connection = &mut state.connections[self.key];
                for publication in joined.recovered().unwrap_or_default() {
                    let push = encode_publication_push(connection.session.variant(), channel, publication);
                    connection.reply(Some(push));
                }
            }
            Ok(None) => {}
            Err(NotSubscribed::Error(code)) => return Err(code),
            Err(NotSubscribed::Disconnect(disconnect)) => self.edge_loop.close_in(state, self.key, &disconnect),
        }
        Ok(())
    }

    /// Ends the subscription to `channel`, or all of them.
    fn unsubscribe_by_order(&self, state: &mut LoopState, channel: Option<&ChannelName>, why: &Unsubscribe) {
        let channels = match channel {
            Some(channel) => vec![channel.clone()],
            None => state.connections[self.key].session.channels().cloned().collect(),
        };
        for channel in channels {
            state.fanout.unsubscribe(&mut state.connections, self.key, &channel);
            let connection = &mut state.connections[self.key];
            let push = connection.session.end_subscription(&channel, why);
            connection.reply(push);
        }
    }
}
