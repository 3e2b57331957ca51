//! The control: one read and one write for each request, on a thread for each connection, and nothing else. What it takes is
//! what the system takes.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread::Builder;

use tidings_server::command_error::CommandError;

use crate::peer;

/// A request of the benchmark fits, and arrives in one piece.
const REQUEST_BYTES_MAX: usize = 4096;
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n{\"result\":{}}";

/// Serves until standard input ends. Blocks. Its greeting is where it listens.
pub(in super::super) fn serve() -> Result<(), CommandError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let addr = listener.local_addr()?;
    // The threads end with the process. Whoever is not answered fails the run.
    Builder::new().name("accept".to_owned()).spawn(move || admit(&listener))?;
    peer::answer(addr)?;
    peer::follow(|()| Ok(()))
}

fn admit(listener: &TcpListener) -> io::Result<()> {
    for stream in listener.incoming() {
        let stream = stream?;
        stream.set_nodelay(true)?;
        Builder::new().name("answer".to_owned()).spawn(move || answer(stream))?;
    }
    Ok(())
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    let mut request = [0; REQUEST_BYTES_MAX];
    while stream.read(&mut request)? > 0 {
        stream.write_all(ANSWER)?;
    }
    Ok(())
}
