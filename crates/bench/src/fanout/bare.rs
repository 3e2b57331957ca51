//! The control: one `write` of the frame per subscriber, and nothing else. It reads nothing, keeps no state and recovers
//! nothing. It cannot finish an incomplete write later, so such a write fails the run.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use tidings_protocol::{Publication, Tags, encode_publication_push, websocket};
use tidings_server::command_error::{CommandError, failed_by};
use tidings_types::{ChannelName, Format, Offset, Variant};
use tokio::net::TcpSocket;
use tokio_tungstenite::tungstenite::accept;

use super::command::{Command, Listening, Mark};
use crate::peer;
use crate::process::Usage;

/// Connections that may wait to be accepted: the benchmark connects so many at a time, and none must be turned away.
const BACKLOG: u32 = 1024;

/// Bound: the number of clients that the benchmark connects.
type Sockets = Arc<Mutex<Vec<TcpStream>>>;

/// Serves until standard input ends. Blocks: this process does nothing else.
pub(in super::super) fn serve() -> Result<(), CommandError> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    let listener = socket.listen(BACKLOG)?.into_std()?;
    listener.set_nonblocking(false)?;
    let addr = listener.local_addr()?;
    let sockets = Sockets::default();
    let accepted = sockets.clone();
    // The thread ends with the process. If it cannot accept a client, the benchmark waits until its deadline.
    std::thread::Builder::new().name("accept".to_owned()).spawn(move || admit(&listener, &accepted))?;
    peer::answer(Listening(addr))?;
    peer::follow(|command| perform(&sockets, command))
}

fn admit(listener: &TcpListener, sockets: &Sockets) -> io::Result<()> {
    for stream in listener.incoming() {
        let stream = stream?;
        stream.set_nodelay(true)?;
        let stream = accept(stream).map_err(|error| io::Error::other(error.to_string()))?.into_inner();
        stream.set_nonblocking(true)?;
        sockets.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
    }
    Ok(())
}

fn perform(sockets: &Sockets, command: Command) -> Result<(), CommandError> {
    let sockets = sockets.lock().unwrap_or_else(PoisonError::into_inner);
    match command {
        Command::Publish { channel, data, .. } => {
            let channel = ChannelName::new(&channel).map_err(|error| failed_by("channel", &error))?;
            let publication =
                Publication { offset: Offset(0), data, info: None, tags: Tags::default(), receipt: None, texts: None };
            let frame = websocket::message_frame(
                Format::Json,
                &encode_publication_push(Variant::websocket(Format::Json), &channel, &publication),
            );
            for mut socket in sockets.iter() {
                let written = socket.write(&frame).map_err(|error| failed_by("the bare loop cannot write", &error))?;
                if written != frame.len() {
                    return Err(CommandError::Failed("the bare loop could not write a whole frame".to_owned()));
                }
            }
            Ok(())
        }
        Command::Mark => peer::answer(Mark { usage: Usage::now()?, connections: sockets.len() }),
    }
}
