//! Fair shares of what clients ask for: by network, within a network by user, within a user by connection.
//!
//! Nobody is limited while nobody else waits. When somebody waits, networks are served in turn, the users of a network in turn, and
//! the connections of a user in turn ([`FairQueue`]). So a thousand greedy connections delay those of another network by one of
//! their requests, and those of another user of their own network by two. If all clients come from one address, because a proxy is
//! in front that is not declared, users and connections decide. All anonymous clients of a network are one user. Of IPv6 a network
//! is a /64.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tidings_buffer::{FairQueue, Line};
use tidings_protocol::ClientId;
use tidings_telemetry::panics::lock;
use tokio::sync::oneshot;

/// Who asks for something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// Its network, if that is known.
    pub network: Option<IpAddr>,
    /// Its user; empty for an anonymous one.
    pub user: Box<str>,
    /// Its connection.
    pub client: ClientId,
}

type Path = (Option<IpAddr>, (Box<str>, (ClientId, ())));

impl Asker {
    /// Its place in a queue of [`Askers`].
    pub(crate) fn path(&self) -> Path {
        (self.network, (self.user.clone(), (self.client, ())))
    }
}

/// Those who wait, served in turn.
pub(crate) type Askers<T> = FairQueue<Option<IpAddr>, FairQueue<Box<str>, FairQueue<ClientId, VecDeque<T>>>>;

/// Lets in a limited number at a time. Whoever finds no place waits, and is let in when it is its turn.
///
/// Bounds: `waiting_max` that wait. With one more, the one goes that has come last of those who ask for most.
#[derive(Debug)]
pub struct Gate {
    state: Mutex<GateState>,
    waiting_max: usize,
}

#[derive(Debug)]
struct GateState {
    free: usize,
    waiting: Askers<oneshot::Sender<Pass>>,
}

/// A place behind a [`Gate`]. Dropped, it is the next one's.
#[derive(Debug)]
pub struct Pass(Option<Arc<Gate>>);

impl Gate {
    /// A gate with so many places.
    pub fn new(place_count: usize, waiting_max: usize) -> Arc<Self> {
        let state = GateState { free: place_count, waiting: Askers::default() };
        Arc::new(Self { state: Mutex::new(state), waiting_max })
    }

    /// Waits for a place. A connection waits for one at a time. `None`: too many wait, and this one, or others of its network or
    /// its user, ask for most.
    ///
    /// Cancel safe: whoever does not wait any more loses its turn, and nobody else does.
    pub async fn enter(self: &Arc<Self>, asker: &Asker) -> Option<Pass> {
        let (waiter, granted) = oneshot::channel();
        {
            let state = &mut *lock(&self.state);
            if state.free > 0 {
                state.free -= 1;
                return Some(Pass(Some(self.clone())));
            }
            // Whoever must make room hears that its sender is gone.
            drop(state.waiting.push_within(self.waiting_max, asker.path(), waiter));
        }
        let _waiting = Waiting { gate: self, asker };
        granted.await.ok()
    }

    /// How many wait.
    pub fn waiting_count(&self) -> usize {
        lock(&self.state).waiting.len()
    }

    /// A place is free: it is the next one's that still waits.
    fn release(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        while let Some(waiter) = state.waiting.pop() {
            match waiter.send(Pass(Some(self.clone()))) {
                Ok(()) => return,
                Err(mut unwanted) => drop(unwanted.0.take()), // It is not given back: the next one gets it.
            }
        }
        state.free += 1;
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some(gate) = self.0.take() {
            gate.release();
        }
    }
}

/// Somebody waits at the gate. Dropped, it does not any more.
struct Waiting<'a> {
    gate: &'a Gate,
    asker: &'a Asker,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let gone = lock(&self.gate.state).waiting.remove(&self.asker.path());
        drop(gone); // Without the lock: a place that was on its way is released.
    }
}

/// This part of the last room is for a second network.
const FOR_OTHERS: f64 = 0.25;

/// What connections hold of something that all of them share.
///
/// Memory: an entry for each network and user that holds something.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    count: usize,
    networks: HashMap<Option<IpAddr>, Network>,
}

#[derive(Debug, Default)]
struct Network {
    count: usize,
    users: HashMap<Box<str>, User>,
}

#[derive(Debug, Default)]
struct User {
    count: usize,
    /// Connections that hold something.
    connection_count: usize,
}

impl Holdings {
    /// The asker's connection, which held `before`, holds one more.
    pub(crate) fn add(&mut self, network: Option<IpAddr>, user: &str, before: usize) {
        self.count += 1;
        let network = self.networks.entry(network).or_default();
        network.count += 1;
        if !network.users.contains_key(user) {
            network.users.insert(user.into(), User::default());
        }
        if let Some(user) = network.users.get_mut(user) {
            user.count += 1;
            user.connection_count += usize::from(before == 0);
        }
    }

    /// The asker's connection holds one less: now `after`.
    pub(crate) fn remove(&mut self, asker: (Option<IpAddr>, &str), after: usize) {
        let (key, name) = asker;
        let Some(network) = self.networks.get_mut(&key) else { return };
        let Some(user) = network.users.get_mut(name) else { return };
        (self.count, network.count, user.count) = (self.count - 1, network.count - 1, user.count - 1);
        user.connection_count -= usize::from(after == 0);
        if user.count == 0 {
            network.users.remove(name);
        }
        if network.count == 0 {
            self.networks.remove(&key);
        }
    }

    /// Whether the asker has its fair part already: that of its network, or if there is no other network that of its user in it, or
    /// if there is no other user that of its connection, which has `own`. `last_room`: the part is smaller the less is left (from
    /// 1 to 0), so that something is left for who comes later. A network that is alone does not get [`FOR_OTHERS`].
    pub(crate) fn has_share(&self, asker: (Option<IpAddr>, &str), own: usize, last_room: f64) -> bool {
        let has_part = |held: usize, of: usize, among: usize| held as f64 >= of as f64 / among as f64 * last_room;
        let (key, name) = asker;
        let Some(network) = self.networks.get(&key) else { return false };
        if self.networks.len() > 1 {
            return has_part(network.count, self.count, self.networks.len());
        }
        if last_room <= FOR_OTHERS {
            return true;
        }
        let Some(user) = network.users.get(name) else { return false };
        if network.users.len() > 1 {
            return has_part(user.count, network.count, network.users.len());
        }
        own > 0 && has_part(own, user.count, user.connection_count)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::task::Poll;
    use std::time::Duration;

    use tokio::task::JoinSet;
    use tokio::time::timeout;

    use super::*;

    fn asker(network: u8, user: &str, client: u128) -> Asker {
        Asker { network: Some([10, 0, 0, network].into()), user: user.into(), client: ClientId::from_random(client) }
    }

    /// Whether the future waits for something now.
    async fn waits<F: Future>(future: &mut Pin<Box<F>>) -> bool {
        poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await
    }

    async fn until_waiting(gate: &Gate, count: usize) {
        soon(async {
            while gate.waiting_count() < count {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    async fn soon<T>(future: impl Future<Output = T>) -> T {
        timeout(Duration::from_secs(10), future).await.expect("it comes to an end")
    }

    #[tokio::test]
    async fn who_asks_seldom_is_served_before_a_thousand_that_ask_often() {
        let gate = Gate::new(1, 2000);
        let first = gate.enter(&asker(1, "", 0)).await.unwrap();
        let (tell, mut told) = tokio::sync::mpsc::channel(2000);
        let mut tasks = JoinSet::new();
        let mut ask = |who: Asker| {
            let (gate, tell) = (gate.clone(), tell.clone());
            tasks.spawn(async move {
                let pass = gate.enter(&who).await;
                tell.send(who.network).await.unwrap();
                drop(pass);
            });
        };
        (1..=1000).for_each(|client| ask(asker(1, "", client)));
        until_waiting(&gate, 1000).await;
        ask(asker(2, "ann", 5000));
        until_waiting(&gate, 1001).await;
        drop(first);
        let served = [soon(told.recv()).await, soon(told.recv()).await];
        assert!(served.contains(&Some(asker(2, "", 0).network)), "{served:?}");
        drop(tell);
        let mut count = 2;
        while soon(told.recv()).await.is_some() {
            count += 1;
        }
        assert_eq!(count, 1001, "everybody is served");
        assert_eq!(lock(&gate.state).free, 1);
    }

    #[tokio::test]
    async fn at_a_full_gate_who_asks_for_most_makes_room() {
        let gate = Gate::new(1, 4);
        let place = gate.enter(&asker(1, "", 0)).await;
        let mut waiting = JoinSet::new();
        for client in 1..=4 {
            let gate = gate.clone();
            waiting.spawn(async move { gate.enter(&asker(1, "", client)).await.is_some() });
        }
        until_waiting(&gate, 4).await;
        assert!(soon(gate.enter(&asker(1, "", 9))).await.is_none(), "the greedy network has no more room");
        let mut modest = JoinSet::new();
        modest.spawn({
            let gate = gate.clone();
            async move { gate.enter(&asker(2, "ann", 5)).await.is_some() }
        });
        soon(async {
            while !lock(&gate.state).waiting.has_group(&asker(2, "", 0).network) {
                tokio::task::yield_now().await;
            }
        })
        .await;
        drop(place);
        assert_eq!(soon(modest.join_all()).await, [true]);
        let served = soon(waiting.join_all()).await.into_iter().filter(|is_served| *is_served).count();
        assert_eq!(served, 3, "one of the greedy ones made room");
    }

    #[tokio::test]
    async fn who_waits_no_more_loses_its_turn_and_no_place() {
        let gate = Gate::new(1, 10);
        let place = gate.enter(&asker(1, "", 0)).await;
        let (one, other) = (asker(1, "", 1), asker(1, "", 2));
        {
            let mut impatient = Box::pin(gate.enter(&one));
            assert!(waits(&mut impatient).await);
        }
        let mut patient = Box::pin(gate.enter(&other));
        assert!(waits(&mut patient).await);
        assert_eq!(lock(&gate.state).waiting.len(), 1);
        drop(place);
        drop(patient); // Its place was on its way.
        assert!(soon(gate.enter(&one)).await.is_some());
        assert_eq!((gate.waiting_count(), lock(&gate.state).free), (0, 1));
    }

    #[test]
    fn when_room_is_scarce_each_network_user_or_connection_has_its_part() {
        let (greedy, modest) = (Some([10, 0, 0, 1].into()), Some([10, 0, 0, 2].into()));
        let mut holdings = Holdings::default();
        assert!(!holdings.has_share((greedy, ""), 0, 0.25), "nobody holds anything");
        for _ in 0..10 {
            (0..10).for_each(|before| holdings.add(greedy, "", before));
        }
        // All of one address: connections decide, and one that is new always gets something.
        assert!(holdings.has_share((greedy, ""), 10, 1.0) && !holdings.has_share((greedy, ""), 9, 1.0));
        assert!(holdings.has_share((greedy, ""), 5, 0.5) && !holdings.has_share((greedy, ""), 4, 0.5));
        assert!(!holdings.has_share((greedy, ""), 0, 0.5));
        assert!(holdings.has_share((greedy, ""), 0, 0.25) && !holdings.has_share((modest, "ann"), 0, 0.25));
        // Two users of one address.
        holdings.add(greedy, "bob", 0);
        assert!(holdings.has_share((greedy, ""), 1, 1.0) && !holdings.has_share((greedy, "bob"), 1, 0.5));
        // Two networks.
        holdings.add(modest, "ann", 0);
        assert!(holdings.has_share((greedy, "bob"), 1, 1.0), "its network has more than half");
        assert!(!holdings.has_share((modest, "ann"), 1, 0.25));
        holdings.remove((modest, "ann"), 0);
        holdings.remove((greedy, "bob"), 0);
        for _ in 0..10 {
            (0..10).rev().for_each(|after| holdings.remove((greedy, ""), after));
        }
        assert!(holdings.networks.is_empty() && holdings.count == 0);
    }
}
