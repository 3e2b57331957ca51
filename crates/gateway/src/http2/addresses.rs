//! The addresses of a provider: where the next connection goes, and which addresses are left alone for now.
//!
//! A provider has several addresses. A new connection goes to the address with the fewest. An address that refuses
//! connections, drops packets or becomes silent has a breaker, so that it costs one attempt now and then instead of
//! delaying every connection. If all addresses are broken, the one that is due first is tried all the same.
//!
//! Shared by the threads of a gateway. Bound: [`ADDRESS_COUNT_MAX`] addresses are remembered. A further address
//! replaces one without connections; if there is none, the further address is used without being remembered.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidings_push::pacing::Breaker;
use tidings_types::Timestamp;

/// Addresses remembered: more than a provider hands out within an hour.
const ADDRESS_COUNT_MAX: usize = 256;
/// Addresses tried per connection.
const ATTEMPT_COUNT_MAX: usize = 4;

/// A handle; clones share the book.
#[derive(Clone, Default)]
pub(crate) struct Addresses(Arc<Mutex<Book>>);

#[derive(Default)]
struct Book {
    known: HashMap<SocketAddr, Known>,
}

struct Known {
    breaker: Breaker,
    connections: usize,
}

/// A connection's entry in the book, for as long as it lasts.
pub(crate) struct Entry {
    addresses: Addresses,
    address: SocketAddr,
}

impl Addresses {
    /// Which of `addresses` to try, in this order; `random` are any 64 random bits.
    pub(crate) fn in_order(&self, addresses: Vec<SocketAddr>, random: u64, now: Timestamp) -> Vec<SocketAddr> {
        self.book().in_order(addresses, random, now)
    }

    /// Whether `address` may be tried now. After failures, only one connection at a time tries an address that is due
    /// again.
    pub(crate) fn admits(&self, address: &SocketAddr, now: Timestamp) -> bool {
        self.book().known.get_mut(address).is_none_or(|known| known.breaker.admits(now))
    }

    /// Whether the breakers of all addresses are open; false if no address is known, as when the name is not resolved.
    pub(crate) fn are_broken(&self, now: Timestamp) -> bool {
        let book = self.book();
        !book.known.is_empty() && book.known.values().all(|known| known.breaker.due_at(now).is_some())
    }

    /// There is a connection to `address`.
    pub(crate) fn on_connected(&self, address: SocketAddr) -> Entry {
        if let Some(known) = self.book().entry(address) {
            known.connections += 1;
        }
        Entry { addresses: self.clone(), address }
    }

    /// An attempt failed.
    pub(crate) fn on_failed(&self, address: SocketAddr, random: u64, now: Timestamp) {
        if let Some(known) = self.book().entry(address) {
            known.breaker.on_failure(random, now);
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // No code under this lock can panic, so a poisoned lock guards consistent data.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// The connection brought an answer: the address is good.
    pub(crate) fn on_useful(&self) {
        if let Some(known) = self.addresses.book().known.get_mut(&self.address) {
            known.breaker.on_success();
        }
    }

    /// The connection was not made, became silent, or ended before it was of use.
    pub(crate) fn on_failed(&self, random: u64, now: Timestamp) {
        self.addresses.on_failed(self.address, random, now);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(known) = self.addresses.book().known.get_mut(&self.address) {
            known.connections = known.connections.saturating_sub(1);
        }
    }
}

impl Book {
    /// Sorts addresses: working ones first, then by the fewest connections, then at random. Then the two address
    /// families alternate (RFC 8305, 4).
    fn in_order(&mut self, mut addresses: Vec<SocketAddr>, random: u64, now: Timestamp) -> Vec<SocketAddr> {
        if addresses.is_empty() {
            return addresses;
        }
        let first = usize::try_from(random).unwrap_or(usize::MAX) % addresses.len();
        addresses.rotate_left(first);
        let mut sound = Vec::new();
        let mut broken = Vec::new();
        for address in addresses {
            match self.known.get(&address) {
                None => sound.push((0, address)),
                Some(known) => match known.breaker.due_at(now) {
                    Some(at) if now < at => broken.push((at, address)),
                    _ => sound.push((known.connections, address)),
                },
            }
        }
        sound.sort_by_key(|(connections, _)| *connections);
        broken.sort_by_key(|(at, _)| *at);
        if sound.is_empty() {
            return broken.into_iter().map(|(_, address)| address).take(1).collect();
        }
        let mut order = families_in_turn(sound.into_iter().map(|(_, address)| address).collect());
        order.truncate(ATTEMPT_COUNT_MAX);
        order
    }

    fn entry(&mut self, address: SocketAddr) -> Option<&mut Known> {
        if !self.known.contains_key(&address) && self.known.len() >= ADDRESS_COUNT_MAX {
            let forgotten = *self.known.iter().find(|(_, known)| known.connections == 0)?.0;
            self.known.remove(&forgotten);
        }
        Some(self.known.entry(address).or_insert_with(|| Known { breaker: Breaker::new(), connections: 0 }))
    }
}

fn families_in_turn(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let family = addresses[0].is_ipv4();
    let (own, other): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|address| address.is_ipv4() == family);
    let (mut own, mut other) = (own.into_iter(), other.into_iter());
    let pairs = std::iter::from_fn(|| {
        let pair = [own.next(), other.next()];
        pair.iter().any(Option::is_some).then_some(pair)
    });
    pairs.flatten().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn addresses(kinds: &str) -> Vec<SocketAddr> {
        let address = |(port, kind)| match kind {
            '4' => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port),
            _ => SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), port),
        };
        (1..).zip(kinds.chars()).map(address).collect()
    }

    fn order(book: &Addresses, kinds: &str, random: u64, now: Timestamp) -> Vec<u16> {
        book.in_order(addresses(kinds), random, now).iter().map(SocketAddr::port).collect()
    }

    #[test]
    fn the_other_family_is_tried_second_and_few_are_tried_at_all() {
        let order = |kinds, random| order(&Addresses::default(), kinds, random, NOW);
        assert_eq!(order("66666644", 0), [1, 7, 2, 8]);
        assert_eq!(order("66666644", 7), [8, 1, 7, 2]);
        assert_eq!(order("444", 4), [2, 3, 1]);
        assert_eq!(order("", 4), [0u16; 0]);
    }

    #[test]
    fn connections_spread_over_the_addresses() {
        let (book, all) = (Addresses::default(), addresses("4444"));
        let connect = |random| {
            let first = book.in_order(all.clone(), random, NOW)[0];
            (first.port(), book.on_connected(first))
        };
        let (mut ports, entries): (Vec<_>, Vec<_>) = (0..8).map(|index| connect(index * 7)).unzip();
        ports.sort_unstable();
        assert_eq!(ports, [1, 1, 2, 2, 3, 3, 4, 4]);
        drop(entries);
        assert!(book.book().known.values().all(|known| known.connections == 0));
    }

    #[test]
    fn a_broken_address_is_passed_over_until_it_is_due_and_then_tried_by_one() {
        let (book, all) = (Addresses::default(), addresses("44"));
        let fail = |address| (0..20).for_each(|_| book.on_failed(address, u64::MAX, NOW));
        fail(all[0]);
        assert!((0..10).all(|random| order(&book, "44", random, NOW) == [2]), "one dead address costs no connection");
        fail(all[1]);
        assert_eq!(order(&book, "44", 0, NOW).len(), 1, "where all are broken, one is tried");
        let later = Timestamp(NOW.0 + 3_600_000);
        assert_eq!(order(&book, "44", 0, later), [1, 2]);
        assert!(book.admits(&all[0], later) && !book.admits(&all[0], later));
        book.on_connected(all[0]).on_useful();
        assert_eq!(order(&book, "44", 0, later), [1, 2]);
        assert!(book.admits(&all[0], later) && book.admits(&all[0], later));
    }

    #[test]
    fn the_book_is_bounded_and_keeps_what_is_in_use() {
        let book = Addresses::default();
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let used = book.on_connected(at(1));
        (2..2000).for_each(|port| book.on_failed(at(port), 0, NOW));
        assert_eq!(book.book().known.len(), ADDRESS_COUNT_MAX);
        assert_eq!(book.book().known[&at(1)].connections, 1);
        drop(used);
    }
}
