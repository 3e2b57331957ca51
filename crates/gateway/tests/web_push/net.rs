//! A network that lies: it says which addresses a name has, and makes of an address whatever a test needs.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use tidings_gateway::{Network, NetworkFuture};
use tokio::net::TcpStream;
use tokio::time::sleep;

/// A public address at which the push service is.
pub(crate) const PUBLIC: IpAddr = IpAddr::V4(Ipv4Addr::new(93, 184, 215, 14));
/// A public address that swallows what is sent to it.
pub(crate) const HOLE: IpAddr = IpAddr::V4(Ipv4Addr::new(9, 9, 9, 9));
/// A public address at which nobody is.
pub(crate) const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::new(8, 8, 4, 4));
/// This machine.
pub(crate) const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub(crate) struct Net {
    service: SocketAddr,
    /// Answers of names that are not simply [`PUBLIC`], one after the other; the last one stays. Without an address the
    /// look-up fails.
    answers: Mutex<HashMap<String, VecDeque<Vec<IpAddr>>>>,
    /// How long a look-up takes.
    latency: Mutex<Duration>,
    looked_up: Mutex<Vec<String>>,
    dialled: Mutex<Vec<SocketAddr>>,
}

impl Net {
    pub(crate) fn new(service: SocketAddr) -> Self {
        let (answers, latency) = (Mutex::default(), Mutex::default());
        Self { service, answers, latency, looked_up: Mutex::default(), dialled: Mutex::default() }
    }

    pub(crate) fn delay_look_ups(&self, latency: Duration) {
        *self.latency.lock().unwrap() = latency;
    }

    pub(crate) fn answer(&self, host: &str, answers: &[&[IpAddr]]) {
        let answers = answers.iter().map(|it| it.to_vec()).collect();
        self.answers.lock().unwrap().insert(host.to_owned(), answers);
    }

    /// How often this name was looked up, as a complete one.
    pub(crate) fn look_ups(&self, host: &str) -> usize {
        self.looked_up.lock().unwrap().iter().filter(|it| it.strip_suffix('.') == Some(host)).count()
    }

    /// All addresses that connections were asked for to.
    pub(crate) fn dialled(&self) -> HashSet<IpAddr> {
        self.dialled.lock().unwrap().iter().map(SocketAddr::ip).collect()
    }
}

impl Network for Net {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> NetworkFuture<'a, Vec<SocketAddr>> {
        self.looked_up.lock().unwrap().push(host.to_owned());
        let mut answers = self.answers.lock().unwrap();
        let addresses = match answers.get_mut(host.trim_end_matches('.')) {
            None => vec![PUBLIC],
            Some(answers) if answers.len() > 1 => answers.pop_front().unwrap(),
            Some(answers) => answers[0].clone(),
        };
        let latency = *self.latency.lock().unwrap();
        Box::pin(async move {
            sleep(latency).await;
            if addresses.is_empty() {
                return Err(io::ErrorKind::NotFound.into());
            }
            Ok(addresses.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
        })
    }

    fn connect(&self, address: SocketAddr) -> NetworkFuture<'_, TcpStream> {
        self.dialled.lock().unwrap().push(address);
        Box::pin(async move {
            match address.ip() {
                PUBLIC => TcpStream::connect(self.service).await,
                HOLE => std::future::pending().await,
                NOBODY => Err(io::ErrorKind::ConnectionRefused.into()),
                // Nobody has pretended anything about it: so it would really be reached.
                _ => TcpStream::connect(address).await,
            }
        })
    }
}
