//! How many connections each network has: an address, or of IPv6 a /64.
//!
//! Bound: an entry for each network with a connection.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tidings_telemetry::panics::lock;

/// Whose request it is, among the extensions of a request for a connection. Without it the connection counts for no network.
#[derive(Debug, Clone, Copy)]
pub struct ClientNetwork(pub IpAddr);

/// The connections of all networks.
#[derive(Debug, Default)]
pub struct Networks(Mutex<HashMap<IpAddr, usize>>);

impl Networks {
    /// A place for a connection; `None`: the network has as many as allowed. If `count_max` is 0, any number is.
    pub fn enter(self: &Arc<Self>, network: IpAddr, count_max: usize) -> Option<NetworkPlace> {
        if count_max == 0 {
            return Some(NetworkPlace(None));
        }
        let mut counts = lock(&self.0);
        let count = counts.entry(network).or_default();
        if *count >= count_max {
            return None;
        }
        *count += 1;
        Some(NetworkPlace(Some((self.clone(), network))))
    }
}

/// The place of a connection, until this is dropped.
#[derive(Debug)]
pub struct NetworkPlace(Option<(Arc<Networks>, IpAddr)>);

impl Drop for NetworkPlace {
    fn drop(&mut self) {
        let Some((networks, network)) = &self.0 else { return };
        let mut counts = lock(&networks.0);
        if let Some(count) = counts.get_mut(network) {
            *count -= 1;
            if *count == 0 {
                counts.remove(network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_network_has_its_places_and_nothing_is_left_of_those_that_are_gone() {
        let (networks, [one, other]) =
            (Arc::<Networks>::default(), ["10.0.0.1", "::1"].map(|text| text.parse().unwrap()));
        let places: Vec<_> = (0..2).map(|_| networks.enter(one, 2).unwrap()).collect();
        assert!(networks.enter(one, 2).is_none() && networks.enter(other, 2).is_some());
        drop(places);
        assert!(lock(&networks.0).is_empty());
        assert!((0..9).all(|_| networks.enter(one, 0).is_some()) && lock(&networks.0).is_empty());
    }
}
