//! A provider of data: a server with one document, which it may break off.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

#[derive(Default)]
struct Shelf {
    document: String,
    /// It says that there is more, and hangs up.
    breaks_off: bool,
    /// How often it was fetched since it was put there.
    fetched: usize,
}

pub(crate) struct DataProvider {
    addr: SocketAddr,
    shelf: Arc<Mutex<Shelf>>,
    _calls: JoinSet<()>,
}

impl DataProvider {
    pub(crate) async fn open() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("the system has a port");
        let (addr, shelf) = (listener.local_addr().expect("it is bound"), Arc::<Mutex<Shelf>>::default());
        let (mut calls, all) = (JoinSet::new(), shelf.clone());
        calls.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = serve(stream, &all).await; // A server that is killed breaks it off.
            }
        });
        Self { addr, shelf, _calls: calls }
    }

    /// The settings of a feed with this document.
    pub(crate) fn settings(&self) -> String {
        let addr = self.addr;
        format!(
            "[feeds.goals]\nmapping = \"goals.toml\"\nurl = \"http://{addr}/goals\"\nallow_http = true\n\
             allow_private = [\"127.0.0.1\"]\ninterval = \"1s\"\nbackoff_max = \"1s\"\nskip_backlog = false\n"
        )
    }

    pub(crate) fn put(&self, document: String, breaks_off: bool) {
        *self.shelf.lock().expect("nobody panics with it") = Shelf { document, breaks_off, fetched: 0 };
    }

    pub(crate) fn fetched(&self) -> usize {
        self.shelf.lock().expect("nobody panics with it").fetched
    }
}

async fn serve(stream: TcpStream, shelf: &Mutex<Shelf>) -> std::io::Result<()> {
    let (mut reader, mut line) = (BufReader::new(stream), String::new());
    while reader.read_line(&mut line).await? > 2 {
        line.clear();
    }
    let answer = {
        let mut shelf = shelf.lock().expect("nobody panics with it");
        shelf.fetched += 1;
        let bytes = shelf.document.len() + if shelf.breaks_off { 1000 } else { 0 };
        format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {bytes}\r\n\r\n{}", shelf.document)
    };
    reader.get_mut().write_all(answer.as_bytes()).await
}
