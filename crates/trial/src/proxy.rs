//! A wire that can be slowed, held up and cut, between clients and a server, or between a server and its brokers.
//!
//! Nothing is lost on it while it is not cut: what was held up comes late, as with a network that is away for a while. What is on
//! its way is at most 64 KiB in each direction of a connection, beside the buffers of the system.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

const PIECE_BYTES_MAX: usize = 64 * 1024;
/// A wire with a rate carries so many pieces a second at least.
const PIECES_PER_SECOND: usize = 20;

/// How one direction carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// At once.
    Open,
    /// Everything waits.
    Held,
    /// Each piece later by `delay`, and at most so many bytes per second of a connection.
    Slow {
        /// Of a piece that finds the wire empty.
        delay: Duration,
        /// At least 20.
        bytes_per_second: usize,
    },
}

/// How both directions carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passing {
    /// From whoever connected.
    pub there: Flow,
    /// To whoever connected.
    pub back: Flow,
}

impl Passing {
    /// Everything at once.
    pub const OPEN: Self = Self { there: Flow::Open, back: Flow::Open };
    /// Nothing.
    pub const HELD: Self = Self { there: Flow::Held, back: Flow::Held };

    /// The same in both directions.
    pub const fn slow(delay: Duration, bytes_per_second: usize) -> Self {
        let flow = Flow::Slow { delay, bytes_per_second };
        Self { there: flow, back: flow }
    }
}

/// Wires to one or several targets, with a place to connect for each.
#[derive(Debug)]
pub struct Proxy {
    /// Where to connect, by target.
    pub addrs: Vec<SocketAddr>,
    state: watch::Sender<State>,
    #[expect(dead_code, reason = "ends with the proxy")]
    listening: JoinSet<()>,
}

#[derive(Debug, Clone)]
struct State {
    passing: Passing,
    /// Where each wire leads; to nobody: what connects is closed.
    targets: Vec<Option<SocketAddr>>,
    /// How often everything was cut.
    cuts: u64,
}

impl Proxy {
    /// A wire to each of these; everything goes through.
    pub async fn start(targets: &[SocketAddr]) -> Self {
        let targets: Vec<_> = targets.iter().copied().map(Some).collect();
        Self::start_with(targets).await
    }

    /// One wire that leads nowhere yet.
    pub async fn start_closed() -> Self {
        Self::start_with(vec![None]).await
    }

    async fn start_with(targets: Vec<Option<SocketAddr>>) -> Self {
        let count = targets.len();
        let state = watch::Sender::new(State { passing: Passing::OPEN, targets, cuts: 0 });
        let (mut addrs, mut listening) = (Vec::new(), JoinSet::new());
        for index in 0..count {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("the system has a port");
            addrs.push(listener.local_addr().expect("it is bound"));
            listening.spawn(accept(listener, index, state.subscribe()));
        }
        Self { addrs, state, listening }
    }

    /// From now on everything goes through so, also on connections that are there.
    pub fn pass(&self, passing: Passing) {
        self.state.send_modify(|state| state.passing = passing);
    }

    /// New connections lead there, or are closed.
    pub fn lead_to(&self, target: Option<SocketAddr>) {
        self.state.send_modify(|state| state.targets.fill(target));
    }

    /// Breaks off all connections that are there.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }
}

async fn accept(listener: TcpListener, index: usize, state: watch::Receiver<State>) {
    let mut connections = JoinSet::new();
    while let Ok((outside, _)) = listener.accept().await {
        let mut state = state.clone();
        connections.spawn(async move {
            let Some(target) = state.borrow().targets[index] else { return };
            let cuts = state.borrow().cuts;
            let Ok(inside) = TcpStream::connect(target).await else { return };
            let _ = outside.set_nodelay(true).and_then(|()| inside.set_nodelay(true)); // Slower without, and right.
            let ((from_outside, to_outside), (from_inside, to_inside)) = (outside.into_split(), inside.into_split());
            let (there, back) = (state.clone(), state.clone());
            tokio::select! { // One end closes both.
                () = carry(from_outside, to_inside, there, |passing| passing.there) => {}
                () = carry(from_inside, to_outside, back, |passing| passing.back) => {}
                _ = state.wait_for(|state| state.cuts > cuts) => {}
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut state: watch::Receiver<State>,
    direction: impl Fn(&Passing) -> Flow,
) {
    let mut bytes = vec![0; PIECE_BYTES_MAX];
    loop {
        let piece_max = match direction(&state.borrow().passing) {
            Flow::Slow { bytes_per_second, .. } => (bytes_per_second / PIECES_PER_SECOND).clamp(1, PIECE_BYTES_MAX),
            Flow::Open | Flow::Held => PIECE_BYTES_MAX,
        };
        let Ok(count @ 1..) = from.read(&mut bytes[..piece_max]).await else { return };
        let Ok(flow) = state
            .wait_for(|state| direction(&state.passing) != Flow::Held)
            .await
            .map(|state| direction(&state.passing))
        else {
            return;
        };
        if let Flow::Slow { delay, bytes_per_second } = flow {
            let on_the_wire = Duration::from_secs_f64(count as f64 / bytes_per_second as f64);
            // A full piece follows others, which have waited already.
            sleep(if count < piece_max { on_the_wire + delay } else { on_the_wire }).await;
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;

    /// Both ends of a connection through it.
    async fn connect(proxy: &Proxy, target: &TcpListener) -> (TcpStream, TcpStream) {
        let outside = TcpStream::connect(proxy.addrs[0]).await.unwrap();
        (outside, target.accept().await.unwrap().0)
    }

    async fn start() -> (Proxy, TcpListener) {
        let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
        (Proxy::start(&[target.local_addr().unwrap()]).await, target)
    }

    #[tokio::test]
    async fn what_is_held_comes_later_and_only_in_its_direction() {
        let (proxy, target) = start().await;
        let (mut outside, mut inside) = connect(&proxy, &target).await;
        proxy.pass(Passing { there: Flow::Held, back: Flow::Open });
        outside.write_all(b"question").await.unwrap();
        inside.write_all(b"news").await.unwrap();
        let mut bytes = [0; 16];
        assert_eq!(outside.read(&mut bytes).await.unwrap(), 4);
        assert!(timeout(Duration::from_millis(50), inside.read(&mut bytes)).await.is_err());
        proxy.pass(Passing::OPEN);
        assert_eq!(inside.read(&mut bytes).await.unwrap(), 8);
        assert_eq!(&bytes[..8], b"question");
    }

    #[tokio::test]
    async fn what_is_slow_takes_its_time_and_is_whole() {
        let (proxy, target) = start().await;
        let (outside, mut inside) = connect(&proxy, &target).await;
        proxy.pass(Passing::slow(Duration::from_millis(20), 40_000));
        let sent: Vec<u8> = (0..8000_u32).map(|number| number as u8).collect();
        let (began, mut got) = (Instant::now(), Vec::new());
        let (_from, mut to) = outside.into_split();
        to.write_all(&sent).await.unwrap();
        to.shutdown().await.unwrap();
        drop(to);
        while got.len() < sent.len() {
            inside.read_buf(&mut got).await.unwrap();
        }
        assert_eq!(got, sent);
        assert!(began.elapsed() >= Duration::from_millis(200), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_cut_ends_both_sides_and_the_next_connection_may_lead_elsewhere() {
        let (proxy, target) = start().await;
        let (mut outside, mut inside) = connect(&proxy, &target).await;
        proxy.cut();
        assert_eq!((outside.read_u8().await.is_err(), inside.read_u8().await.is_err()), (true, true));
        proxy.lead_to(None);
        assert!(TcpStream::connect(proxy.addrs[0]).await.unwrap().read_u8().await.is_err());
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        proxy.lead_to(Some(other.local_addr().unwrap()));
        let (mut outside, mut inside) = connect(&proxy, &other).await;
        inside.write_all(b"x").await.unwrap();
        assert_eq!(outside.read_u8().await.unwrap(), b'x');
    }
}
